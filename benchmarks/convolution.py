"""Compare two gradients of the filters of a convolution: one matrix product per entry, or a convolution by an image."""

from __future__ import annotations

from unittest import mock

import numpy as np
import onnxruntime
from _harness import OURS, Options, Run, case, environment, options, timed
from onnx import TensorProto, helper, numpy_helper

#: (rows, channels, width of the image, filters, width of a filter, stride)
LAYERS = [
    (32, 3, 64, 64, 7, 2),
    (200, 1, 8, 16, 3, 1),
    (256, 6, 12, 16, 5, 1),
    (32, 4, 32, 16, 3, 1),
    (32, 8, 32, 16, 3, 1),
    (32, 16, 8, 16, 3, 1),
    (32, 64, 16, 64, 3, 1),
    (32, 64, 16, 128, 1, 2),
    (32, 256, 4, 256, 3, 1),
    (16, 64, 56, 64, 1, 1),
    (8, 64, 16, 64, 7, 1),
    (8, 32, 16, 64, 9, 1),
]


def gradient(layer: tuple[int, ...], channels: int, threads: int) -> Run:
    """Return a function that times the gradient, by products if there are at least `channels` channels."""
    from onnxtrain.grad_helper import onnx_derivative

    n, c, size, m, k, stride = layer
    rng = np.random.default_rng(0)
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[stride] * 2, pads=[k // 2] * 4)
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", c, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.zeros((m, c, k, k), np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with mock.patch("onnxtrain.autodiff.rules.conv._CHANNELS", channels):
        derivative = onnx_derivative(model, weights=["w"], inputs=[])
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(derivative.SerializeToString(), settings)
    positions = (size + k // 2 * 2 - k) // stride + 1
    shapes = {"x": (n, c, size, size), "w": (m, c, k, k), "y_grad": (n, m, positions, positions)}
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return lambda: timed(lambda: session.run(None, feeds))


def main(given: Options) -> None:
    """Print a table for each layer."""
    for layer in LAYERS[:: 4 if given.quick else 1]:
        n, c, size, m, k, stride = layer
        case(
            f"{n} rows, {c} channels, {size} x {size}, {m} filters of {k} x {k}, stride {stride}",
            {
                OURS: lambda layer=layer: gradient(layer, 1, given.threads),
                "as a convolution": lambda layer=layer: gradient(layer, 10**6, given.threads),
            },
            given,
        )


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
