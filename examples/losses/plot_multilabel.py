"""
How do I train a multilabel classifier?
=======================================

Each digit has three binary labels: it has a loop, it is even, it is greater than four. y is a multilabel indicator
matrix with one column for each label. One network predicts all labels, with one Sigmoid output for each.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier

X, digit = load_digits(return_X_y=True)
X = X / 16
names = ["has a loop", "even", "above four"]
Y = np.column_stack([np.isin(digit, [0, 6, 8, 9]), digit % 2 == 0, digit > 4]).astype(
    int
)
X_train, X_test, Y_train, Y_test = train_test_split(X, Y, random_state=0)

# %%
# The loss of a row is the sum of the binary losses of its labels. Every loss for classifiers can be used. ``"focal"``
# gives more weight to labels that are predicted badly.

network = MLPClassifier((32,), max_iter=20, random_state=0, tol=0.1)
start = network.fit(X_train, Y_train)
tuned = OrtGradientClassifier(
    start, loss="focal", learning_rate=5e-3, max_iter=30, random_state=0
)
tuned.fit(X_train, Y_train)
print("labels a row:", tuned.predict(X_test).shape[1])

scores = {
    name: f1_score(Y_test, model.predict(X_test), average=None)
    for name, model in {"start": start, "tuned": tuned}.items()
}
for i, label in enumerate(names):
    print(f"{label:<12} F1 {scores['start'][i]:.3f} -> {scores['tuned'][i]:.3f}")
assert (scores["tuned"] > scores["start"]).all()

fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
place = np.arange(3)
for i, (name, values) in enumerate(scores.items()):
    ax.bar(place + 0.4 * (i - 0.5), values, width=0.38, label=name)
ax.set(xticks=place, xticklabels=names, ylabel="F1 on held-out rows", ylim=(0.5, 1))
ax.legend(loc="lower right")
