"""Rules of activations. At a kink the derivative is 0."""

from onnxtrain.autodiff.registry import gradient


@gradient("Relu")
def relu(op, node, dy):
    (y,) = node.outputs
    return op.Where(op.Greater(y, 0.0), dy, 0.0)


@gradient("Sigmoid")
def sigmoid(op, node, dy):
    (y,) = node.outputs
    return op.Mul(dy, op.Mul(y, op.Sub(1.0, y)))


@gradient("Tanh")
def tanh(op, node, dy):
    (y,) = node.outputs
    return op.Mul(dy, op.Sub(1.0, op.Mul(y, y)))
