"""
How do I train a support vector machine with another loss?
==========================================================

:class:`~sklearn.svm.SVR` can only minimize its own loss. onnxtrain can train a fitted model further with any loss for
regressors. The weights are the support vectors, their coefficients and the intercept. This example uses the quantile
loss. The result is an ``SVR`` that predicts an upper bound.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.metrics import mean_pinball_loss
from sklearn.model_selection import train_test_split
from sklearn.svm import SVR

from onnxtrain import OrtGradientRegressor

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
machine = SVR(C=100, gamma=5.0).fit(X_train, y_train)

# %%
# The learning rate is small, because the coefficients are already large. The intercept must change most.

tuned = OrtGradientRegressor(
    machine,
    loss="quantile",
    loss_params={"q": 0.9},
    learning_rate=1e-3,
    max_iter=60,
    random_state=0,
).fit(X_train, y_train)
print("trained:", {name: w.shape for name, w in tuned.weights_.items()})

back = tuned.to_sklearn()
losses, below = {}, {}
for name, model in {"before": machine, "after": back}.items():
    losses[name] = mean_pinball_loss(y_test, model.predict(X_test), alpha=0.9)
    below[name] = np.mean(y_test <= model.predict(X_test))
    print(
        f"{name:<7} quantile loss on held-out patients {losses[name]:5.2f}, patients below {below[name]:.0%}"
    )
assert type(back) is SVR
assert losses["after"] < 0.8 * losses["before"]
assert abs(below["after"] - 0.9) < 0.1

order = np.argsort(back.predict(X_test))
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(y_test[order], "k.", markersize=4, label="held-out patients")
ax.plot(machine.predict(X_test)[order], label=f"before: {below['before']:.0%} below")
ax.plot(back.predict(X_test)[order], label=f"after: {below['after']:.0%} below")
ax.set(xlabel="patients, by predicted bound", ylabel="progression")
ax.legend()
