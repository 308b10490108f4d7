"""Each loss and its slope, as the graphs of training compute them, for a model that returns its input."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.losses import LOSSES, Prediction

NAMES = {}  # of each loss the first, the others are aliases
for name, entry in LOSSES.items():
    if entry.function.__module__.startswith("onnxtrain."):
        NAMES.setdefault(entry, name)
TICKS = np.linspace(-3, 3, 301)[:, None]


def curves(entry, name):
    """Return the loss and its slope at each tick, and what the axis shows."""
    if entry.classifies:  # the score of class 1, which is the true one: the margin
        model = LogisticRegression().fit([[-1.0], [1.0]], [0, 1])
        tuned, label, axis = OrtGradientClassifier(model, loss=name, max_iter=0), np.ones(301), "margin m"
    elif entry.prediction is Prediction.LOG_MEAN:
        model = PoissonRegressor().fit([[-1.0], [1.0]], [1.0, 2.0])
        tuned, label, axis = OrtGradientRegressor(model, loss=name, max_iter=0), np.ones(301), "z, for y = 1"
    else:
        model = LinearRegression().fit([[-1.0], [1.0]], [-1.0, 1.0])
        tuned, label, axis = OrtGradientRegressor(model, loss=name, max_iter=0), np.zeros(301), "residual f - y"
    model.coef_, model.intercept_ = np.ones_like(model.coef_), np.zeros_like(model.intercept_)
    tuned.fit([[-1.0], [1.0]], [0, 1] if entry.classifies else [1.0, 2.0])
    return tuned.losses(TICKS, label), tuned.gradient(TICKS, label).ravel(), axis


figure, axes = plt.subplots(5, 3, figsize=(8, 10), sharex=True)
for ax, (entry, name) in zip(axes.flat, sorted(NAMES.items(), key=lambda found: found[0].classifies), strict=True):
    values, slopes, axis = curves(entry, name)
    ax.plot(TICKS, values, label="loss")
    ax.plot(TICKS, slopes, "--", label="slope")
    ax.set(title=name, xlabel=axis, ylim=(-3.5, 5))
    ax.grid(alpha=0.3)
axes[0, 0].legend()
