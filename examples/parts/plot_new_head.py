"""
How do I train a new head for other classes?
============================================

A network was trained on many rows to classify ten digits. The new task is to predict how many loops a digit has: none,
one or two. Only few labeled rows are available. ``head="new"`` replaces the last layer of the network by a new one, and
``weights_to_train="head"`` trains only this layer. The features of the body are reused.
"""

import matplotlib.pyplot as plt
import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
X_theirs, X_ours, y_theirs, y_ours = train_test_split(
    X, y, test_size=0.5, random_state=0
)
theirs = MLPClassifier((64, 32), tol=1e-3, random_state=0).fit(X_theirs, y_theirs)
body = to_onnx(theirs, X[:1], options={"zipmap": False})

# %%
# The new task has other rows and other classes. For comparison, a network of the same size is trained from scratch.

n_loops = np.array([1, 0, 0, 0, 1, 0, 1, 0, 2, 1])[y_ours]
X_rest, X_test, y_rest, y_test = train_test_split(
    X_ours, n_loops, test_size=0.5, stratify=n_loops, random_state=0
)
sizes = [20, 30, 50, 100]
on_body, alone = [], []
for n in sizes:
    ours = OrtGradientClassifier(
        body,
        head="new",
        weights_to_train="head",
        solver="lbfgs",
        l2=1e-3,
        max_iter=200,
        random_state=0,
    ).fit(X_rest[:n], y_rest[:n])
    fresh = MLPClassifier((64, 32), alpha=1, max_iter=1000, random_state=0).fit(
        X_rest[:n], y_rest[:n]
    )
    on_body.append(ours.score(X_test, y_test))
    alone.append(fresh.score(X_test, y_test))
print("trained:", {name: w.shape for name, w in ours.weights_.items()})
for name, scores in {"new head": on_body, "from nothing": alone}.items():
    print(f"{name:<13} accuracy with {sizes} rows: {np.round(scores, 2).tolist()}")

# %%
# With few rows, the new head on the trained body is more accurate. With a hundred rows, the network trained from
# scratch has caught up.

assert on_body[0] > alone[0]
assert on_body[2] > alone[2]

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(sizes, on_body, "o-", label="new head on their body")
ax.plot(sizes, alone, "o-", label="the same network from nothing")
ax.set(xlabel="rows of ours", ylabel="accuracy on held-out rows", xticks=sizes)
ax.legend()
