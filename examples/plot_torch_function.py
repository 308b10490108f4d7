"""
Can PyTorch train an ONNX model?
================================

The model stays ONNX and runs in onnxruntime; the loss, the optimizer and the data are PyTorch's. What joins them is a
``torch.autograd.Function`` whose forward and backward are graphs of onnxruntime. Tensors pass through DLPack: nothing
is copied, and on a GPU nothing leaves it.
"""

import matplotlib.pyplot as plt
import numpy as np
from onnxruntime.capi._pybind_state import OrtValueVector
from skl2onnx import to_onnx
from sklearn.datasets import load_diabetes
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale

from onnxtrain import OrtGradientForwardBackward

try:
    import torch
except ImportError:
    torch = None
    print("PyTorch is not installed: there is nothing to show. pip install torch")

# %%
# A scikit-learn network, as ONNX. Its weights are parameters for PyTorch from now on.

X, y = (scale(a) for a in load_diabetes(return_X_y=True))
mlp = MLPRegressor(
    hidden_layer_sizes=(16,), learning_rate_init=0.01, early_stopping=True, max_iter=1000, random_state=0
)
mlp.fit(X, y)
X, y = X.astype(np.float32), y.astype(np.float32).reshape(-1, 1)
onx = to_onnx(mlp, X[:1])

# %%
# The function. ``new_instance`` is cheap: one for each call, so that any number of forwards may wait for their
# backwards, in any order.


def to_torch(values: OrtValueVector) -> tuple:
    """Hand the memory of onnxruntime to PyTorch."""
    return tuple(torch.from_dlpack(values.dlpack_at(i)) for i in range(len(values)))


def make_function(made):
    """Return a torch.autograd.Function on the passes of an OrtGradientForwardBackward."""
    names, gradients = made.cls_type_._onx_inp, made.cls_type_._onx_out

    class OnnxFunction(torch.autograd.Function):
        """Forward and backward in onnxruntime."""

        @staticmethod
        def forward(ctx, *tensors):
            """Run the model on its inputs and weights."""
            ctx.function = made.new_instance()
            return to_torch(ctx.function.forward(tensors, training=True))

        @staticmethod
        def backward(ctx, *grad_outputs):
            """Answer with one gradient for each input, None for those that have none."""
            found = to_torch(ctx.function.backward([g.contiguous() for g in grad_outputs]))
            by_name = dict(zip(gradients, found, strict=True))
            return tuple(by_name.get(f"{name}_grad") for name in names)

    return OnnxFunction


# %%
# A loss and an optimizer of PyTorch: the absolute error, for which scikit-learn's network has no loss.


def train(steps=300):
    """Return the losses and the absolute error of the network, before and after."""
    made = OrtGradientForwardBackward(onx)
    network = make_function(made)
    weights = [torch.nn.Parameter(torch.from_numpy(made.get_initializer(w).copy())) for w in made.weights_to_train]
    optimizer = torch.optim.Adam(weights, lr=1e-3)
    data, target = torch.from_numpy(X), torch.from_numpy(y)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        (prediction,) = network.apply(data, *weights)
        loss = torch.nn.functional.l1_loss(prediction, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if torch is not None:
    losses = train()
    print(f"mean absolute error: {losses[0]:.3f} before, {losses[-1]:.3f} after")
    plt.plot(losses)
    plt.xlabel("step")
    plt.ylabel("mean absolute error")
    plt.title("An ONNX model trained by PyTorch")
    plt.show()
