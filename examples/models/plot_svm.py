"""
Can a support vector machine learn a loss that it does not have?
================================================================

Support vector regression has one loss, since its quadratic program is made for that one. A fitted machine is a formula
like any other: its support vectors, their coefficients and the intercept are weights. Here they go on with the
quantile loss, and what comes back is a machine that predicts an upper bound.
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
# A small rate: the coefficients are large already, and the intercept has to move most.

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
