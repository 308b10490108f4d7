"""
How do I stop training with my own validation set?
==================================================

A network that trains too long overfits. A validation set shows when to stop. In this example it consists of later
measurements, because a random split would mix earlier and later ones. After training, the weights of the best epoch are
kept.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier

X, y = load_digits(return_X_y=True)
X = X / 16
X_train, y_train = X[:200], y[:200]  # earlier writers
X_val, y_val = X[200:600], y[200:600]  # later writers
X_test, y_test = X[600:], y[600:]

# %%
# ``X_val`` and ``y_val`` are the validation set. Without them, ``early_stopping=True`` holds out a random part of the
# training rows.

network = MLPClassifier((100,), random_state=0)
settings = {
    "init": "random",
    "learning_rate": 0.01,
    "batch_size": 20,
    "max_iter": 100,
    "random_state": 0,
}
stopped = OrtGradientClassifier(network, n_iter_no_change=20, **settings)
stopped.fit(X_train, y_train, X_val=X_val, y_val=y_val)
whole = OrtGradientClassifier(network, tol=0, n_iter_no_change=100, **settings).fit(
    X_train, y_train
)

losses = {
    name: log_loss(y_test, m.predict_proba(X_test))
    for name, m in {"stopped": stopped, "to the end": whole}.items()
}
print(
    f"stopped after {stopped.n_iter_} of {stopped.max_iter} epochs: best epoch {stopped.best_iteration_}"
)
print(
    f"log loss on later writers: {losses['stopped']:.3f}, after all epochs: {losses['to the end']:.3f}"
)
assert stopped.n_iter_ < stopped.max_iter
assert losses["stopped"] < losses["to the end"]

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.semilogy(stopped.loss_curve_, label="rows trained on")
ax.semilogy(stopped.validation_loss_curve_, label="our validation rows")
ax.axvline(
    stopped.best_iteration_ - 1, color="0.5", linestyle=":", label="weights kept"
)
ax.set(xlabel="epoch", ylabel="log loss")
ax.legend()
