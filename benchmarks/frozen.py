"""Compare the training of the head of a frozen convolutional body with precomputed features and the head alone."""

from __future__ import annotations

import io
import warnings

import numpy as np
from _harness import OURS, Missing, Options, Wanted, case, environment, forget, need, options, timed

BEFORE = (
    "The same before each fit, however long: the file is read, its predictions on some rows are compared with those of "
    "the graph that is trained, and graphs are made and opened. By hand the file is not compared."
)


def body(size: int) -> bytes:
    """Return a small residual network of PyTorch as ONNX, with images of three channels and 10 scores."""
    need("torch")
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, n_in: int, n_out: int):
            super().__init__()
            stride = 1 if n_in == n_out else 2
            self.path = nn.Sequential(
                *(nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()),
                *(nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out)),
            )
            self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(n_in, n_out, 1, stride, bias=False)

        def forward(self, x):
            return torch.relu(self.path(x) + self.shortcut(x))

    torch.manual_seed(0)
    blocks = [Block(a, b) for a, b in ((16, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64))]
    first = (nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    net = nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).eval()
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, torch.zeros(1, 3, size, size), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
        )
    return file.getvalue()


def main(given: Options) -> None:
    """Print the table."""
    try:
        cases(given)
    except Missing as e:
        print(f"left out: {e}")


def cases(given: Options) -> None:
    import onnx
    import onnxruntime

    from onnxtrain import OrtGradientClassifier

    size, rows = 32, 500 if given.quick else 2000
    onx, rng = body(size), np.random.default_rng(0)
    X, y = rng.normal(size=(rows, 3, size, size)).astype(np.float32), np.arange(rows) % 10
    settings = {"max_iter": 10, "tol": 0, "n_iter_no_change": 100, "random_state": 0}

    proto = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(onx))
    head = next(node for node in proto.graph.node if node.op_type == "Gemm")
    parts = onnx.utils.Extractor(proto)
    front = parts.extract_model(["x"], [head.input[0]]).SerializeToString()
    tail = parts.extract_model([head.input[0]], [proto.graph.output[0].name])

    def ours() -> float:
        forget()
        return timed(lambda: OrtGradientClassifier(onx, weights_to_train="head", **settings).fit(X, y))

    def by_hand() -> float:
        """Compute the features in batches, then fit their head."""
        forget()

        def fit() -> None:
            session = onnxruntime.InferenceSession(front, providers=["CPUExecutionProvider"])
            features = np.concatenate([session.run(None, {"x": X[i : i + 64]})[0] for i in range(0, rows, 64)])
            OrtGradientClassifier(tail, **settings).fit(features, y)

        return timed(fit)

    case(
        f"Head of a residual network on {rows} images of {size} x {size}, 10 epochs",
        {OURS: lambda: ours, "features by hand, then the head": lambda: by_hand},
        given,
        targets={"features by hand, then the head": Wanted(1.2, BEFORE)},
    )


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
