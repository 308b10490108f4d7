"""
Which learning rate schedule should I use?
==========================================

The gradients of small batches are noisy. With a large constant learning rate, the loss falls fast and then fluctuates
around the minimum. With a small one, it falls slowly. A schedule lowers the rate during the training. The minimum of
least squares is known, so this example can plot the distance to it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import scale

from onnxtrain import OrtGradientRegressor
from onnxtrain.optim import Cosine, InverseScaling, OneCycle

X, y = (scale(a) for a in load_diabetes(return_X_y=True))
best = np.mean((LinearRegression().fit(X, y).predict(X) - y) ** 2)

schedules = {
    "constant, 0.02": 0.02,
    "constant, 0.001": 0.001,
    "inverse scaling": InverseScaling(0.02),
    "cosine": Cosine(0.02, warmup=0.1),
    "one cycle": OneCycle(0.02),
}

# %%
# After each epoch, a callback records the learning rate and the excess of the squared error over its minimum. The rate
# is an input of the training step, so all fits share one graph.

rates, excess = {}, {}
for name, schedule in schedules.items():
    seen, far = rates.setdefault(name, []), excess.setdefault(name, [])

    def look(info, seen=seen, far=far):
        """Record the learning rate and the excess of the squared error."""
        seen.append(info.learning_rate)
        prediction = X @ info.weights["coef"].ravel() + info.weights["intercept"]
        far.append(np.mean((prediction - y) ** 2) - best)

    model = OrtGradientRegressor(
        solver="sgd",
        init="random",
        learning_rate=schedule,
        batch_size=10,
        max_iter=30,
        tol=0,
        random_state=0,
    )
    model.set_params(n_iter_no_change=30).fit(X, y, callback=look)
    print(f"{name:<16} squared error above the minimum after 30 epochs: {far[-1]:.5f}")

# %%
# The schedules that fall to zero end closest to the minimum.

falling = max(excess["cosine"][-1], excess["one cycle"][-1])
assert 3 * falling < excess["constant, 0.02"][-1]
assert 3 * falling < excess["constant, 0.001"][-1]

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
for name in schedules:
    left.plot(range(1, 31), rates[name], label=name)
    right.semilogy(range(1, 31), excess[name])
left.set(xlabel="epoch", ylabel="learning rate")
right.set(xlabel="epoch", ylabel="squared error above the minimum")
left.legend()
