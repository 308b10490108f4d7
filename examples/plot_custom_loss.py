"""
How is a loss of one's own written?
===================================

Too little stock costs four times what too much costs. That is not a loss of any library, but it is a line of code: a
function of the builder ``op`` that returns one value for each row.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

from onnxtrain import OrtGradientRegressor

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (400, 1))
demand = 5 + 2 * X.ravel() + rng.normal(0, 0.3 + 0.3 * X.ravel(), 400)


def cost_of_stock(op, y_true, y_pred):
    """Four for each piece that is missing, one for each that is left over."""
    missing = op.Relu(op.Sub(y_true, y_pred))
    left_over = op.Relu(op.Sub(y_pred, y_true))
    return op.Add(op.Mul(4.0, missing), left_over)


# %%
# ``op`` is a builder of ONNX nodes. The gradient is derived from them; nothing else is to be written, and the function
# is used wherever the name of a loss is.

start = LinearRegression().fit(X, demand)
tuned = OrtGradientRegressor(start, loss=cost_of_stock, solver="lbfgs", dtype="float64").fit(X, demand)


def cost(stock):
    """Return the mean cost, in numpy."""
    return np.mean(4 * np.maximum(demand - stock, 0) + np.maximum(stock - demand, 0))


print(f"cost a day with least squares: {cost(start.predict(X)):.2f}, with our loss: {cost(tuned.predict(X)):.2f}")
print(
    f"days without enough stock: {np.mean(demand > start.predict(X)):.0%} and {np.mean(demand > tuned.predict(X)):.0%}"
)

grid = np.array([[0.0], [10.0]])
fig, ax = plt.subplots(figsize=(6, 4))
ax.scatter(X, demand, s=6, color="0.6", label="demand")
ax.plot(grid, start.predict(grid), label="least squares")
ax.plot(grid, tuned.predict(grid), label="our loss")
ax.legend()
fig.tight_layout()
