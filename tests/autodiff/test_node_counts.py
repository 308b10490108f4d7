"""The cost of a rule: the nodes of the gradient, with symbolic dimensions."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from onnxtrain.grad_helper import onnx_derivative

rng = np.random.default_rng(18)


def parse(signature, body, opset=21):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> counted ({signature}) {{ {body} }}')


AT_RUN_TIME = ["Einsum", "Shape", "Expand", "Shape", "Sub", "NonZero", "Squeeze", "ReduceSum"]

#: The check of an input that is declared as a scalar.
CHECK = ["Constant", "Reshape"]

# equation, shapes of the operands, nodes of the gradient
EINSUM = [
    ("ij,jk->ik", ["N,3", "3,4"], ["Einsum", "Einsum"]),
    ("bij,bjk->bik", ["B,N,3", "B,3,4"], ["Einsum", "Einsum"]),
    ("...ij,...jk->...ik", ["B,N,3", "B,3,4"], ["Einsum", "Einsum"]),
    ("i,i->i", ["N", "N"], ["Einsum", "Einsum"]),
    ("ij->ji", ["N,3"], ["Einsum"]),
    ("ij", ["N,3"], ["Identity"]),
    ("ij->", ["N,3"], ["Unsqueeze", "Shape", "Expand"]),
    ("ij->i", ["N,3"], ["Unsqueeze", "Shape", "Expand"]),
    (",ij->ij", ["", "N,3"], [*CHECK, "Einsum", "Mul"]),
    (",,i->i", ["", "", "N"], [*CHECK, "Reshape", "Einsum", "Einsum", "Mul", "Mul"]),
    ("ij,jk->ik", ["N,1", "3,4"], ["Einsum", "ReduceSum", "Einsum", "Expand"]),
    ("ij,ij,ij->ij", ["N,2", "1,2", "1,2"], ["Einsum", "Einsum", "ReduceSum", "Einsum", "ReduceSum"]),
    ("i,i,i->i", ["N", "N", "M"], AT_RUN_TIME * 3),
]


def einsum(equation, shapes):
    inputs = ", ".join(f"double[{s}] {n}" if s else f"double {n}" for n, s in zip("XAB", shapes, strict=False))
    axes = ", ".join(
        "?" * len(equation.partition("->")[2].replace("...", "b") or ("ij" if "->" not in equation else ""))
    )
    result = f"double[{axes}] Y" if axes else "double Y"
    operands = ", ".join("XAB"[: len(shapes)])
    return parse(f"{inputs}) => ({result}", f'Y = Einsum <equation = "{equation}"> ({operands})')


@pytest.mark.parametrize("equation, shapes, nodes", EINSUM)
def test_einsum(equation, shapes, nodes):
    assert [n.op_type for n in onnx_derivative(einsum(equation, shapes)).graph.node] == nodes


@pytest.mark.parametrize("n, m", [(1, 3), (3, 1), (3, 3)])
def test_einsum_of_dimensions_that_may_stretch_one_another(check_model, n, m):
    feeds = {"X": rng.uniform(-1, 1, n), "A": rng.uniform(-1, 1, n), "B": rng.uniform(-1, 1, m)}
    check_model(einsum("i,i,i->i", ["N", "N", "M"]), feeds)


# X is (N, 3), A (N, 3); the forward nodes that the gradient needs are counted too
NODES = {
    "Y = Softmax(X)": ["Softmax", "Mul", "ReduceSum", "Mul", "Sub"],
    "I = Constant<value_ints = [0]>() Y = ReduceSum<keepdims = 0>(X, I)": ["Shape", "Expand"],
    "I = Constant<value_ints = [1]>() Y = ReduceSum<keepdims = 0>(X, I)": ["Unsqueeze", "Shape", "Expand"],
    "Y = Cast<to = 11>(X)": ["Identity"],
    "I = Constant<value_int = 1>() Y = Gather<axis = 1>(X, I)": ["Unsqueeze", "Pad"],
    "I = Constant<value_ints = [2, 0]>() Y = Gather(X, I)": ["Shape", "Unsqueeze", "ConstantOfShape", "ScatterND"],
    "J = Constant<value_ints = [0]>() S = ReduceSum(X, J) I = Constant<value = int64[1,3] {0, 1, 1}>() Y = ScatterElements(X, I, S)": [
        "ConstantOfShape",
        "ScatterElements",
        "GatherElements",
        "Add",
    ],
    "I = Constant<value = int64[2,1] {2, 0}>() Y = GatherND(X, I)": ["Shape", "ConstantOfShape", "ScatterND"],
    "F = Cast<to = 1>(X) Y = Identity(F)": ["Cast"],
}


@pytest.mark.parametrize("body", NODES)
def test_nodes(body):
    result = (
        "float[?,?] Y"
        if "to = 1>" in body
        else "double[?] Y"
        if "keepdims" in body or "int = 1" in body
        else "double[?,?] Y"
    )
    derived = onnx_derivative(parse(f"double[N,3] X) => ({result}", body))
    assert [n.op_type for n in derived.graph.node if n.op_type != "Constant"] == NODES[body]


# signature, body, nodes
PRODUCTS = [
    ("double[N,3] X, double[3,4] A) => (double[N,4] Y", "Y = MatMul(X, A)", ["Gemm", "Gemm"]),
    (
        "double[B,N,3] X, double[B,3,4] A) => (double[B,N,4] Y",
        "Y = MatMul(X, A)",
        ["Transpose", "MatMul", "Transpose", "MatMul"],
    ),
    (
        "double[B,N,3] X, double[3,4] A) => (double[B,N,4] Y",
        "Y = MatMul(X, A)",
        ["Transpose", "MatMul", "Flatten", "Flatten", "Gemm"],
    ),
    (
        "double[N,3] X, double[3,4] A, double[4] B) => (double[N,4] Y",
        "Y = Gemm(X, A, B)",
        ["Gemm", "Gemm", "ReduceSum"],
    ),
]


@pytest.mark.parametrize("signature, body, nodes", PRODUCTS)
def test_products(signature, body, nodes):
    assert [n.op_type for n in onnx_derivative(parse(signature, body)).graph.node if n.op_type != "Constant"] == nodes
