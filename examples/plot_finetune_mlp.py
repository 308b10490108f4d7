"""
How do I fine-tune a fitted network with another loss?
======================================================

In this copy of the diabetes data, one training target in ten is wrong: it has one digit too many. scikit-learn's
:class:`~sklearn.neural_network.MLPRegressor` minimizes the squared error, so these outliers dominate the fit. The
metric of interest is the absolute error on patients with correct targets. This example continues the training of the
fitted network with the absolute error as loss.

The script prints the mean absolute error on held-out patients before and after. It writes the trained model to
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
# The network is first fitted with the squared error and early stopping.

mlp = MLPRegressor(
    hidden_layer_sizes=(50,),
    learning_rate_init=1e-2,
    early_stopping=True,
    max_iter=3000,
    random_state=0,
)
mlp.fit(X_train, recorded)

# %%
# Two estimators continue from the same weights, on the same rows, with a learning rate that falls to zero. One uses the
# squared error, the other one the absolute error. Their comparison separates the effect of the loss from the effect of
# more training.

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
# The trained model is an ONNX model. It runs without onnxtrain.

onnx.save(tuned.get_trained_onnx(), "tuned.onnx")

# %%
# The loss curve:

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
