"""
How do I write a custom loss?
=============================

A clinic plans its beds from the predicted progression of a disease. An underestimate costs four times as much as an
overestimate of the same size. The loss is a function of two lines. It takes the true and the predicted values, and
returns one value for each row.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

from onnxtrain import OrtGradientRegressor

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)


def cost(op, y_true, y_pred):
    """Return 4 per unit of an underestimate, 1 per unit of an overestimate."""
    missing = y_true - y_pred
    return np.where(missing > 0, 4 * missing, -missing)


# %%
# The function builds an ONNX graph, and onnxtrain derives its gradient. ``op`` is the builder of the graph. It offers
# ONNX operators that numpy lacks. The function can be passed wherever the name of a loss is accepted.

start = LinearRegression().fit(X_train, y_train)
tuned = OrtGradientRegressor(
    start, loss=cost, solver="lbfgs", dtype="float64", max_iter=300, tol=1e-6
)
tuned.fit(X_train, y_train)

costs = {
    name: np.mean(cost(None, y_test, model.predict(X_test)))
    for name, model in {"least squares": start, "our loss": tuned}.items()
}
for name, value in costs.items():
    print(f"{name:<13} mean cost of a held-out patient: {value:.1f}")
assert costs["our loss"] < 0.9 * costs["least squares"]

# %%
# This loss is minimal at a quantile: four fifths of the targets lie below the prediction.

below = np.mean(y_train <= tuned.predict(X_train))
print(f"patients below the prediction: {below:.0%}")
assert abs(below - 0.8) < 0.03

fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
errors = np.linspace(-50, 50, 101)
left.plot(errors, cost(None, 0.0, errors))
left.set(xlabel="prediction - truth", ylabel="cost", title="the loss")
for name, model in {"least squares": start, "our loss": tuned}.items():
    right.hist(
        model.predict(X_test) - y_test,
        bins=20,
        alpha=0.6,
        label=f"{name}: {costs[name]:.0f}",
    )
right.set(xlabel="prediction - truth", ylabel="held-out patients")
right.legend()
