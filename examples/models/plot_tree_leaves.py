"""
How do I train the leaves of boosted trees with another loss?
=============================================================

A gradient boosting model was fitted to predict the mean. The application needs an upper bound, below which nine targets
of ten lie. onnxtrain keeps the splits of the trees and trains the values of all leaves together.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.metrics import mean_pinball_loss
from sklearn.model_selection import train_test_split

from onnxtrain import OrtGradientRegressor

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
mean = GradientBoostingRegressor(n_estimators=30, max_depth=2, random_state=0).fit(
    X_train, y_train
)

# %%
# The model is trained for thirty epochs with the quantile loss for :math:`q = 0.9`. Gradient boosting itself would have
# to grow new trees for this loss.

tuned = OrtGradientRegressor(
    mean,
    loss="quantile",
    loss_params={"q": 0.9},
    learning_rate=0.3,
    batch_size=len(X_train),
    max_iter=30,
    random_state=0,
).fit(X_train, y_train)
print("trained:", {name: w.shape for name, w in tuned.weights_.items()})

# %%
# ``to_sklearn()`` returns a :class:`~sklearn.ensemble.GradientBoostingRegressor` with the new leaf values.

bound = tuned.to_sklearn()
losses, below = {}, {}
for name, model in {"mean": mean, "bound": bound}.items():
    losses[name] = mean_pinball_loss(y_test, model.predict(X_test), alpha=0.9)
    below[name] = np.mean(y_test <= model.predict(X_test))
    print(
        f"{name:<6} quantile loss on held-out patients {losses[name]:5.2f}, patients below {below[name]:.0%}"
    )
assert type(bound) is GradientBoostingRegressor
assert losses["bound"] < 0.6 * losses["mean"]
assert abs(below["bound"] - 0.9) < 0.08

order = np.argsort(bound.predict(X_test))
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(y_test[order], "k.", markersize=4, label="held-out patients")
ax.plot(mean.predict(X_test)[order], label=f"before: {below['mean']:.0%} below")
ax.plot(bound.predict(X_test)[order], label=f"after: {below['bound']:.0%} below")
ax.set(xlabel="patients, by predicted bound", ylabel="progression")
ax.legend()
