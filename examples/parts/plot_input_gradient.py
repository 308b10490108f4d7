"""
Which pixels determine a prediction?
====================================

The gradient of a score with respect to the pixels shows how strongly each pixel influences the score. It needs no
training: ``fit`` with ``max_iter=0`` uses the weights of the model as they are.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier

X, y = load_digits(return_X_y=True)
X = X / 16
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
network = MLPClassifier((64,), early_stopping=True, random_state=0).fit(
    X_train, y_train
)
model = OrtGradientClassifier(network, max_iter=0).fit(X_train, y_train)

# %%
# Without y, ``gradient`` returns the gradients of all scores, with the shape (rows, pixels, classes). The gradient of
# the score of the predicted class, multiplied by the pixel, is the contribution of the pixel to the score.

gradient = model.gradient(X_test)
predicted = model.predict(X_test)
parts = gradient[np.arange(len(X_test)), :, predicted] * X_test
print("gradient:", gradient.shape)

# %%
# To test this, the eight pixels with the largest contributions are erased. For comparison, the eight darkest pixels are
# erased.

rng = np.random.default_rng(0)


def accuracy_without(pixels):
    """Return the accuracy on held-out digits after erasing pixels of each digit."""
    erased = X_test.copy()
    np.put_along_axis(erased, pixels, 0, axis=1)
    return network.score(erased, y_test)


by_gradient = np.argsort(-parts, axis=1)[:, :8]
dark = np.argsort(-X_test - rng.uniform(0, 1e-3, X_test.shape), axis=1)[:, :8]
scores = {
    "nothing": network.score(X_test, y_test),
    "the darkest": accuracy_without(dark),
    "by the gradient": accuracy_without(by_gradient),
}
for name, score in scores.items():
    print(f"erased: {name:<16} accuracy {score:.2f}")
assert scores["by the gradient"] < scores["the darkest"] < scores["nothing"]

fig, axes = plt.subplots(2, 6, figsize=(8, 3), layout="constrained")
for ax_digit, ax_part, row in zip(*axes, range(6), strict=True):
    ax_digit.imshow(X_test[row].reshape(8, 8), cmap="gray_r")
    limit = np.abs(parts[row]).max()
    ax_part.imshow(parts[row].reshape(8, 8), cmap="RdBu_r", vmin=-limit, vmax=limit)
    ax_digit.set(xticks=[], yticks=[], title=f"{predicted[row]}")
    ax_part.set(xticks=[], yticks=[])
axes[0, 0].set_ylabel("digit")
axes[1, 0].set_ylabel("part in the score")
