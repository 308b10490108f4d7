"""
How do I predict an interval?
=============================

A predicted mean does not tell the spread of the targets. The quantile loss predicts quantiles instead. This example
fits one model for each of the quantiles 0.05, 0.5 and 0.95. The band between the outer two contains about nine rows of
ten, and its width depends on the row.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from onnxtrain import OrtGradientRegressor

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# %%
# The loss of the quantile :math:`q` is :math:`q` per unit of an underestimate and :math:`1 - q` per unit of an
# overestimate. Without an estimator, :class:`~onnxtrain.OrtGradientRegressor` trains a linear model.

quantiles = [0.05, 0.5, 0.95]
bands = {
    q: OrtGradientRegressor(
        loss="quantile",
        loss_params={"q": q},
        solver="lbfgs",
        dtype="float64",
        max_iter=300,
        tol=1e-6,
    ).fit(X_train, y_train)
    for q in quantiles
}
low, middle, high = (bands[q].predict(X_test) for q in quantiles)
for q, model in bands.items():
    print(
        f"below the quantile {q}: {np.mean(y_train <= model.predict(X_train)):.1%} of the rows trained on"
    )
    assert abs(np.mean(y_train <= model.predict(X_train)) - q) < 0.05

inside = np.mean((low <= y_test) & (y_test <= high))
print(f"held-out rows inside the band: {inside:.0%}")
assert 0.8 < inside < 0.98

# %%
# The width of the band varies: it is wider for patients with a high predicted progression.

width = high - low
half = middle > np.median(middle)
print(
    f"mean width where the median is low: {width[~half].mean():.0f}, where it is high: {width[half].mean():.0f}"
)
assert width[half].mean() > width[~half].mean()

order = np.argsort(middle)
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.fill_between(
    range(len(order)), low[order], high[order], alpha=0.3, label="5 % to 95 %"
)
ax.plot(middle[order], label="median")
ax.plot(y_test[order], "k.", markersize=4, label="held-out patients")
ax.set(xlabel="patients, by predicted median", ylabel="progression")
ax.legend()
