"""
Does a model trained on the squared error get better at the absolute error?
===========================================================================

scikit-learn's :class:`~sklearn.neural_network.MLPRegressor` minimizes the squared error. Whoever is judged by the mean
absolute error wants the absolute error minimized. Starting anew would throw a good model away: the fitted one goes on
from its weights instead, with the other loss.

The data are those of 442 diabetes patients. The script prints the mean absolute error on held-out patients before and
after, and writes the trained model to ``tuned.onnx`` and the loss curve to ``loss_curve.png``.
"""

import matplotlib.pyplot as plt
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

# %%
# The starting point: the squared error, until it no longer falls.

mlp = MLPRegressor(hidden_layer_sizes=(50,), learning_rate_init=1e-2, max_iter=3000, tol=0.1, random_state=0)
mlp.fit(X_train, y_train)

# %%
# The same model goes on from the same weights, with the absolute error; and, for comparison, as long with the squared
# error, to see that it is the loss that does it and not the time.

settings = {"l2": 0.1, "max_iter": 500, "random_state": 0}
tuned = OrtGradientRegressor(mlp, loss="absolute_error", **settings).fit(X_train, y_train)
same_loss = OrtGradientRegressor(mlp, loss="squared_error", **settings).fit(X_train, y_train)


def held_out_error(model):
    """Return the mean absolute error on the patients the model has not seen."""
    return mean_absolute_error(y_test, model.predict(X_test))


before, after = held_out_error(mlp), held_out_error(tuned)
print(f"mean absolute error on {len(y_test)} held-out patients")
print(f"  before:                             {before:.2f}")
print(f"  after more of the squared error:    {held_out_error(same_loss):.2f}")
print(f"  after fine-tuning, absolute error:  {after:.2f}")

# %%
# What is trained is an ONNX model; nothing of onnxtrain is needed to run it.

onnx.save(tuned.get_trained_onnx(), "tuned.onnx")

# %%
# How the loss fell:

fig, ax = plt.subplots(figsize=(6, 4))
ax.plot(range(1, tuned.n_iter_ + 1), tuned.loss_curve_)
ax.set(xlabel="epoch", ylabel="mean absolute error and penalty", title=f"Held-out error: {before:.2f} → {after:.2f}")
fig.tight_layout()
fig.savefig("loss_curve.png")
print("wrote tuned.onnx and loss_curve.png")
