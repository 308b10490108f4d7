"""
How do I write my own training loop?
====================================

:class:`~onnxtrain.OrtGradientForwardBackward` runs the forward and the backward pass of an ONNX model. The caller
provides the loss, the optimizer and the loop. This example writes them in numpy. It also wraps the two passes in a
``torch.autograd.Function`` for PyTorch. Tensors are exchanged through DLPack without a copy.
"""

import matplotlib.pyplot as plt
import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_diabetes
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale

from onnxtrain import OrtGradientForwardBackward

X, y = (scale(a).astype(np.float32) for a in load_diabetes(return_X_y=True))
y = y.reshape(-1, 1)
mlp = MLPRegressor(
    hidden_layer_sizes=(16,), learning_rate_init=0.01, tol=1e-3, random_state=0
).fit(X, y.ravel())
onx = to_onnx(mlp, X[:1])

# %%
# The network was fitted with the squared error. The loop minimizes the absolute error, whose gradient with respect to
# the prediction is the sign of the error.

passes = OrtGradientForwardBackward(onx)
weights = {
    name: passes.get_initializer(name).copy() for name in passes.weights_to_train
}
losses = []
for step in range(300):
    # cheap; each instance keeps the state of one forward pass
    function = passes.new_instance()
    (prediction,) = function.forward([X, *weights.values()], training=True)
    error = prediction.numpy() - y
    losses.append(np.abs(error).mean())
    _, *gradients = function.backward([np.sign(error) / len(X)])
    rate = 0.3 * (1 - step / 300)
    weights = {
        name: w - rate * g.numpy()
        for (name, w), g in zip(weights.items(), gradients, strict=True)
    }
print(
    f"mean absolute error: {losses[0]:.3f} before, {losses[-1]:.3f} after {len(losses)} steps"
)
assert losses[-1] < 0.95 * losses[0]

# %%
# The same two passes as a ``torch.autograd.Function``. PyTorch differentiates the code around it. This part runs only
# if PyTorch is installed.


def torch_function(passes):
    """Return a torch.autograd.Function that calls an OrtGradientForwardBackward."""

    def tensors_of(values):
        """Share the memory of onnxruntime with PyTorch."""
        return tuple(torch.from_dlpack(values.dlpack_at(i)) for i in range(len(values)))

    class OnnxFunction(torch.autograd.Function):
        """Run the forward and the backward pass in onnxruntime."""

        @staticmethod
        def forward(ctx, *tensors):
            """Run the model on its inputs and weights."""
            ctx.function = passes.new_instance()
            return tensors_of(ctx.function.forward(tensors, training=True))

        @staticmethod
        def backward(ctx, *grad_outputs):
            """Return a gradient for each input."""
            return tensors_of(
                ctx.function.backward([g.contiguous() for g in grad_outputs])
            )

    return OnnxFunction


try:
    import torch
except ImportError:
    print("PyTorch is not installed: the function is not run here.")
else:
    parameters = [
        torch.nn.Parameter(torch.from_numpy(passes.get_initializer(name).copy()))
        for name in weights
    ]
    (predicted,) = torch_function(passes).apply(torch.from_numpy(X), *parameters)
    loss = torch.nn.functional.l1_loss(predicted, torch.from_numpy(y))
    loss.backward()
    print(f"PyTorch: mean absolute error {loss.item():.3f} before")
    assert np.isclose(loss.item(), losses[0], rtol=1e-5)

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(losses)
ax.set(
    xlabel="step",
    ylabel="mean absolute error",
    title="A loop in numpy, the passes in onnxruntime",
)
