"""
How is a loss of one's own written?
===================================

A clinic plans beds by the predicted progression of a disease. A patient who is underestimated costs it four times as
much as one who is overestimated. No library has that loss, but it is two lines: a function of the label and the
prediction that returns one value for each row.
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
    """Return four for each unit that is missing, one for each that is left over."""
    missing = y_true - y_pred
    return np.where(missing > 0, 4 * missing, -missing)


# %%
# The gradient is derived from the graph that this function builds; nothing else is to be written. ``op`` is the builder
# of that graph, for operators that numpy lacks. The function is used wherever the name of a loss is.

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
# The minimum of such a loss is a quantile: four fifths of the patients are below the prediction.

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
