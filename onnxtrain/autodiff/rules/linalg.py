"""Rules of matrix products."""

from onnxtrain.autodiff.registry import attribute, gradient
from onnxtrain.graph import rank


@gradient("MatMul")
def matmul(op, node, dy):
    a, b = node.inputs
    if rank(a) == rank(b) == 2:
        return op.Gemm(dy, b, transB=1), op.Gemm(a, dy, transA=1)
    raise NotImplementedError
