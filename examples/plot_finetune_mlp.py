"""
Can a fitted model get better at the error that counts?
=======================================================

scikit-learn's :class:`~sklearn.neural_network.MLPRegressor` minimizes the squared error, with a penalty that has to be
chosen before the fit. Here the mean absolute error counts, and the fitted model knows its patients too well. Instead of
starting anew, it goes on from its weights, with the absolute error and a stronger penalty.

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
# The same model goes on from the same weights, in steps that fall to zero: first with the absolute error alone, to see
# what the penalty adds to it.

settings = {"loss": "absolute_error", "max_iter": 1000, "learning_rate": "cosine", "random_state": 0}
no_penalty = OrtGradientRegressor(mlp, **settings).fit(X_train, y_train)
tuned = OrtGradientRegressor(mlp, l2=0.1, **settings).fit(X_train, y_train)

print(f"mean absolute error on       {len(y_train)} patients   {len(y_test)} held-out patients")
errors = {}
for name, model in {"before": mlp, "absolute error": no_penalty, "and a penalty": tuned}.items():
    errors[name] = [mean_absolute_error(y_, model.predict(X_)) for X_, y_ in ((X_train, y_train), (X_test, y_test))]
    print(f"{name:<25}{errors[name][0]:>14.2f}{errors[name][1]:>23.2f}")

# %%
# What is trained is an ONNX model; nothing of onnxtrain is needed to run it.

onnx.save(tuned.get_trained_onnx(), "tuned.onnx")

# %%
# How the loss fell:

fig, ax = plt.subplots(figsize=(6, 4))
ax.plot(range(1, tuned.n_iter_ + 1), tuned.loss_curve_)
before, after = errors["before"][1], errors["and a penalty"][1]
ax.set(xlabel="epoch", ylabel="absolute error and penalty", title=f"Held-out error: {before:.2f} → {after:.2f}")
fig.tight_layout()
fig.savefig("loss_curve.png")
print("wrote tuned.onnx and loss_curve.png")
