"""Rules of operators that move elements without changing them."""

from onnxtrain.autodiff.broadcast import reshape_like
from onnxtrain.autodiff.registry import gradient


@gradient("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(op, node, dy):
    return reshape_like(op, dy, node.inputs[0])
