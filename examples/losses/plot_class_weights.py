"""
How do I train a classifier on a rare class?
============================================

One digit in ten is an eight. A classifier that separates eights from other digits has a high accuracy even if it rarely
predicts an eight. ``class_weight="balanced"`` gives both classes the same total weight. This raises the recall of the
rare class and lowers its precision.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, precision_score, recall_score
from sklearn.model_selection import train_test_split

from onnxtrain import OrtGradientClassifier

X, digit = load_digits(return_X_y=True)
X, y = X[:, ::4] / 16, digit == 8  # every fourth pixel: the task is hard
X_train, X_test, y_train, y_test = train_test_split(
    X, y, stratify=y, test_size=0.5, random_state=0
)

# %%
# The weight of a class multiplies the loss of each of its rows. ``"balanced"`` is :math:`n / (2 n_k)` for a class of
# :math:`n_k` among :math:`n` rows, as in scikit-learn.

start = LogisticRegression(C=100, max_iter=1000).fit(X_train, y_train)
weights = {"none": None, "eights count 3": {False: 1, True: 3}, "balanced": "balanced"}
found = {}
for name, weight in weights.items():
    model = OrtGradientClassifier(
        start, class_weight=weight, solver="lbfgs", dtype="float64", max_iter=500
    )
    said = model.fit(X_train, y_train).predict(X_test)
    found[name] = [
        score(y_test, said)
        for score in (recall_score, precision_score, balanced_accuracy_score)
    ]
    print(
        f"{name:<15} eights found {found[name][0]:.2f}, eights among those named {found[name][1]:.2f}"
    )

assert found["none"][0] < found["eights count 3"][0] < found["balanced"][0]
assert found["none"][1] > found["balanced"][1]
assert found["balanced"][2] > found["none"][2]

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
place = np.arange(3)
for i, (name, scores) in enumerate(found.items()):
    ax.bar(place + 0.27 * (i - 1), scores, width=0.25, label=name)
ax.set(
    xticks=place, xticklabels=["recall", "precision", "balanced accuracy"], ylim=(0, 1)
)
ax.legend(title="class_weight", loc="lower right")
