"""
How does a robust loss handle outliers?
=======================================

In this copy of the diabetes data, one training target in ten is wrong: it has one digit too many. It is unknown which
targets are wrong. The outliers dominate the squared error. Their influence on the absolute error and on the Huber loss
is bounded. All models are compared on held-out rows with correct targets.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import train_test_split

from onnxtrain import OrtGradientRegressor

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
wrong = np.random.default_rng(0).random(len(y_train)) < 0.1
recorded = np.where(wrong, 10 * y_train, y_train)

# %%
# A linear model, fitted by least squares, is trained further with each of three losses. L-BFGS finds the minimum of
# each loss without a learning rate, and there is no penalty. The models therefore differ only in the loss.

start = LinearRegression().fit(X_train, recorded)
losses = {"squared_error": None, "huber": {"delta": 50.0}, "absolute_error": None}
models = {
    name: OrtGradientRegressor(
        start,
        loss=name,
        loss_params=params,
        solver="lbfgs",
        dtype="float64",
        max_iter=300,
        tol=1e-6,
    ).fit(X_train, recorded)
    for name, params in losses.items()
}
errors = {
    name: mean_absolute_error(y_test, model.predict(X_test))
    for name, model in models.items()
}
for name, error in errors.items():
    print(
        f"{name:<15} mean absolute error on {len(y_test)} correct, held-out patients: {error:6.2f}"
    )

# %%
# With the squared error, the model stays at the least-squares solution. With the other two losses, its error falls
# almost to the error of a model fitted on correct targets.

clean = mean_absolute_error(
    y_test, LinearRegression().fit(X_train, y_train).predict(X_test)
)
print(f"least squares, had all rows been correct: {clean:6.2f}")
assert errors["absolute_error"] < 0.6 * errors["squared_error"]
assert errors["huber"] < 0.6 * errors["squared_error"]
assert errors["absolute_error"] < 1.1 * clean

fig, axes = plt.subplots(
    1, 3, figsize=(9, 3.2), sharex=True, sharey=True, layout="constrained"
)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    ax.scatter(y_test, model.predict(X_test), s=8)
    ax.plot([0, 350], [0, 350], "k:", linewidth=1)
    ax.set(title=f"{name}: {errors[name]:.1f}", xlabel="true progression")
axes[0].set_ylabel("predicted")
