"""
Can a fitted model get better at the error that counts?
=======================================================

One patient in ten of the diabetes data has a wrong entry: one digit too many. scikit-learn's
:class:`~sklearn.neural_network.MLPRegressor` minimizes the squared error, and follows these rows. What counts is the
absolute error, for the patients whose entries are right. The fitted model goes on from its weights with that loss.

The script prints the mean absolute error on held-out patients before and after, and writes the trained model to
``tuned.onnx`` and the loss curve to ``loss_curve.png``.
"""

import matplotlib.pyplot as plt
import numpy as np
import onnx
from sklearn.datasets import load_diabetes
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientRegressor

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
scaler = StandardScaler().fit(X_train)
X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
wrong = np.random.default_rng(0).random(len(y_train)) < 0.1
recorded = np.where(wrong, 10 * y_train, y_train)

# %%
# The starting point: the squared error, until held-out rows no longer gain.

mlp = MLPRegressor(
    hidden_layer_sizes=(50,),
    learning_rate_init=1e-2,
    early_stopping=True,
    max_iter=3000,
    random_state=0,
)
mlp.fit(X_train, recorded)

# %%
# The same model goes on from the same weights, on the same rows, in steps that fall to zero. Twice, to see what the
# loss does, and not merely more training: with the squared error once more, and with the absolute error.

settings = {"max_iter": 200, "learning_rate": "cosine", "tol": 0, "random_state": 0}
squared = OrtGradientRegressor(mlp, **settings).fit(X_train, recorded)
tuned = OrtGradientRegressor(mlp, loss="absolute_error", **settings).fit(
    X_train, recorded
)

models = {"before": mlp, "squared error": squared, "absolute error": tuned}
errors = {
    name: mean_absolute_error(y_test, model.predict(X_test))
    for name, model in models.items()
}
print(f"mean absolute error on {len(y_test)} held-out patients")
for name, error in errors.items():
    print(f"  {name:<15}{error:>7.2f}")
assert errors["absolute error"] < 0.9 * errors["before"] < errors["squared error"]

# %%
# What is trained is an ONNX model; nothing of onnxtrain is needed to run it.

onnx.save(tuned.get_trained_onnx(), "tuned.onnx")

# %%
# How the loss fell:

fig, ax = plt.subplots(figsize=(6, 4))
ax.plot(range(1, tuned.n_iter_ + 1), tuned.loss_curve_)
before, after = errors["before"], errors["absolute error"]
ax.set(
    xlabel="epoch",
    ylabel="absolute error, wrong entries included",
    title=f"Held-out error: {before:.1f} → {after:.1f}",
)
fig.tight_layout()
fig.savefig("loss_curve.png")
print("wrote tuned.onnx and loss_curve.png")
