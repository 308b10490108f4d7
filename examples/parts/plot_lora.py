"""
How do I adapt a network with LoRA?
===================================

A network classifies dark digits on a white background, and a new scanner inverts black and white. LoRA adapts the
network without training its weight matrices. For each matrix, it trains two low-rank factors, whose product is added to
the matrix. The optimizer state has the size of the factors. The trained model has the size of the original one.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from onnxtrain import LoRA, OrtGradientClassifier

X, y = load_digits(return_X_y=True)
X = X / 16
X_theirs, X_ours, y_theirs, y_ours = train_test_split(
    X, y, test_size=0.5, random_state=0
)
X_train, X_test, y_train, y_test = train_test_split(
    1 - X_ours, y_ours, train_size=400, random_state=0
)
theirs = MLPClassifier((128, 64), early_stopping=True, random_state=0).fit(
    X_theirs, y_theirs
)

# %%
# The rank is the inner dimension of the product of the two factors.

settings = {"learning_rate": 5e-3, "batch_size": 32, "max_iter": 40, "random_state": 0}
wanted = {f"rank {rank}": LoRA(rank=rank) for rank in (1, 2, 4)} | {"all weights": None}
found = {}
for name, weights in wanted.items():
    tuned = OrtGradientClassifier(theirs, weights_to_train=weights, **settings).fit(
        X_train, y_train
    )
    found[name] = (
        sum(w.size for w in tuned.weights_.values()),
        tuned.score(X_test, y_test),
    )
    print(
        f"{name:<12} {found[name][0]:>6} weights trained, accuracy {found[name][1]:.3f}"
    )
before = theirs.score(X_test, y_test)
print(f"before, on the inverted digits: {before:.3f}")
assert before < 0.3
assert found["rank 4"][0] < 0.15 * found["all weights"][0]
assert found["rank 1"][1] < found["rank 2"][1] < found["rank 4"][1]
assert found["rank 4"][1] > 0.85 * found["all weights"][1]

# %%
# The weight matrices keep their shapes, and the change of each matrix has the rank of the factors.

small = OrtGradientClassifier(theirs, weights_to_train=LoRA(rank=2), **settings).fit(
    X_train, y_train
)
change = small.to_sklearn().coefs_[0] - theirs.coefs_[0]
assert np.linalg.matrix_rank(change, tol=1e-4) == 2

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
counts, scores = zip(*found.values(), strict=True)
ax.semilogx(counts, scores, "o")
for name, (count, score) in found.items():
    ax.annotate(
        name, (count, score), textcoords="offset points", xytext=(0, -14), ha="center"
    )
ax.axhline(before, color="0.5", linestyle=":", label="before")
ax.set(xlabel="weights trained", ylabel="accuracy on inverted digits", ylim=(0, 1))
ax.legend()
