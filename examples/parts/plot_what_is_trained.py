"""
Which nodes does a training step contain?
=========================================

The model, the loss, the gradient and the optimizer are one ONNX graph. All its nodes are operators of the ONNX
standard. :func:`~onnxtrain.plot_graph` draws the graph.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor

from onnxtrain import OrtGradientRegressor, plot_graph

X, y = load_diabetes(return_X_y=True)
line = OrtGradientRegressor(
    LinearRegression().fit(X, y), loss="huber", l2=0.1, solver="sgd", max_iter=0
).fit(X, y)

# %%
# The graph of the model, the Huber loss and the penalty:

plot_graph(line, "loss")

# %%
# The step of stochastic gradient descent also contains the gradient and the optimizer. It takes the weights as inputs
# and returns the updated weights.

plot_graph(line, "step")

# %%
# Other solvers have more nodes. They add the same number of nodes for each weight, whatever the model is.

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
colors = {
    "forward": "#3b6ea5",
    "loss": "#c05621",
    "gradient": "#3c7a3c",
    "optimizer": "#6b46a3",
}
network = MLPRegressor(
    hidden_layer_sizes=(20,), tol=1e3, n_iter_no_change=1, random_state=0
).fit(X, y)
counts = {}
for solver in ("sgd", "rmsprop", "adam", "adamw"):
    model = OrtGradientRegressor(network, loss="huber", solver=solver, max_iter=0).fit(
        X, y
    )
    boxes = plot_graph(model, "step").boxes
    counts[solver] = {
        stage: sum(box.stage == stage for box in boxes) for stage in colors
    }
    left = 0
    for stage, n in counts[solver].items():
        ax.barh(
            solver,
            n,
            left=left,
            color=colors[stage],
            label=stage if solver == "sgd" else None,
        )
        left += n
    print(f"{solver:<8}", counts[solver])
assert all(
    c["forward"] == counts["sgd"]["forward"]
    and c["gradient"] == counts["sgd"]["gradient"]
    for c in counts.values()
)
assert (
    counts["sgd"]["optimizer"]
    < counts["adam"]["optimizer"]
    < counts["adamw"]["optimizer"]
)
ax.set(xlabel="nodes of the step of a network")
ax.legend(loc="lower right")
