"""
How do I resume an interrupted fit?
===================================

With ``checkpoint=``, ``fit`` saves its state to a file every few epochs: the weights, the optimizer state and the order
of the rows. If the program is interrupted, call ``fit`` again with ``resume=True``. It continues from the last saved
epoch. The result equals the result of an uninterrupted fit, bit by bit.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier, load

X, y = load_digits(return_X_y=True)
X = X / 16
path = Path(tempfile.mkdtemp()) / "fit.onnx"


def estimator():
    """Return the estimator that the program creates at each start."""
    network = MLPClassifier((32,), random_state=0)
    return OrtGradientClassifier(
        network,
        init="random",
        learning_rate="cosine",
        max_iter=20,
        tol=0,
        random_state=0,
    )


# %%
# A callback interrupts the fit in epoch 13.


class PowerCut(Exception):
    """Simulate the end of the program."""


def cut(info):
    """Raise PowerCut in epoch 13."""
    if info.epoch == 13:
        raise PowerCut


try:
    estimator().fit(X, y, checkpoint=path, every=5, callback=cut)
except PowerCut:
    so_far = load(path)
print(f"in the file: epoch {so_far.n_iter_}, accuracy {so_far.score(X, y):.3f}")

# %%
# The same call with ``resume=True`` continues the fit. It may run in a new process.

resumed = estimator().fit(X, y, checkpoint=path, every=5, resume=True)
whole = estimator().fit(X, y)
equal = all(
    np.array_equal(resumed.weights_[name], w) for name, w in whole.weights_.items()
)
print(
    f"resumed: epoch {resumed.n_iter_}, accuracy {resumed.score(X, y):.3f}; the same bits as without a cut: {equal}"
)
assert so_far.n_iter_ == 10
assert equal
assert resumed.loss_curve_ == whole.loss_curve_

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(
    range(1, 21), whole.loss_curve_, linewidth=6, color="0.85", label="without a cut"
)
ax.plot(range(1, 11), resumed.loss_curve_[:10], label="from the file")
ax.plot(range(11, 21), resumed.loss_curve_[10:], label="resumed")
ax.axvline(13, color="tab:red", linestyle=":", label="power cut")
ax.set(xlabel="epoch", ylabel="log loss", xticks=range(0, 21, 5))
ax.legend()
