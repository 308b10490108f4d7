"""
What do outliers do to a line?
==============================

One row in ten is wrong, and wrong on the same side. Least squares bends towards it; the absolute error and the Huber
loss do not care how far out a row is.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

from onnxtrain import OrtGradientRegressor

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (200, 1))
y = 2.5 * X.ravel() + 1.0 + rng.normal(0, 1, 200)
wrong = X.ravel() > 9
y[wrong] -= 40

# %%
# L-BFGS goes to the minimum of each loss; it is the solver of choice for a linear model.

losses = {"squared_error": None, "huber": {"delta": 1.0}, "absolute_error": None}
models = {
    name: OrtGradientRegressor(
        LinearRegression(), loss=name, loss_params=params, solver="lbfgs", dtype="float64", tol=1e-6
    ).fit(X, y)
    for name, params in losses.items()
}

grid = np.array([[0.0], [10.0]])
fig, ax = plt.subplots(figsize=(6, 4))
ax.scatter(X[~wrong], y[~wrong], s=8, color="0.6")
ax.scatter(X[wrong], y[wrong], s=8, color="tab:red", label=f"{wrong.sum()} wrong rows")
for name, model in models.items():
    left, right = model.predict(grid)
    print(f"{name}: slope {(right - left) / 10:.2f}")
    ax.plot(grid, [left, right], label=name)
print("the truth: slope 2.50")
ax.plot(grid, 2.5 * grid + 1.0, "k:", label="the truth")
ax.legend()
fig.tight_layout()
