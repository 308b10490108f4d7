"""Rules of normalizations, in every form."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime
import pytest

rng = np.random.default_rng(13)

STATIC = pytest.mark.parametrize("check_rule", ["static"], indirect=True)


def real(*shape):
    return rng.uniform(-1, 1, shape)


def positive(*shape):
    return rng.uniform(0.5, 2, shape)


def batch_operands(*shape):
    c = shape[1]
    return [real(*shape), real(c), real(c), real(c), positive(c)]


ROWS = [
    ("BatchNormalization", batch_operands(3, 2), {}),
    ("BatchNormalization", batch_operands(2, 3, 4), {"epsilon": 0.1}),
    ("BatchNormalization", batch_operands(2, 3, 2, 2), {}),
    ("LayerNormalization", [real(2, 3, 4), real(4), real(4)], {}),
    ("LayerNormalization", [real(2, 3, 4), real(3, 4)], {"axis": 1, "epsilon": 0.1}),
    ("LayerNormalization", [real(2, 3), real(1), real(3)], {"axis": 1}),
    ("InstanceNormalization", [real(2, 3, 4), real(3), real(3)], {}),
    ("InstanceNormalization", [real(2, 3, 2, 2), real(3), real(3)], {"epsilon": 0.1}),
    # where epsilon counts
    ("BatchNormalization", [*batch_operands(3, 2)[:4], 1e-3 * positive(2)], {}),
    ("LayerNormalization", [1e-2 * real(2, 3), real(3)], {}),
    ("InstanceNormalization", [1e-2 * real(2, 3, 4), real(3), real(3)], {}),
    ("LpNormalization", [real(2, 3)], {}),
    ("LpNormalization", [real(2, 3, 2)], {}),
    ("LpNormalization", [real(2, 3)], {"p": 1, "axis": 0}),
]


@STATIC
@pytest.mark.parametrize("op_type,arrays,attributes", ROWS)
def test_normalization(check_rule, op_type, arrays, attributes):
    check_rule(op_type, arrays, attributes, max_entries=8)


@pytest.mark.parametrize("outputs", [1, 3])
def test_layer_normalization_with_statistics(check_rule, outputs):
    """Mean and the inverse deviation are outputs, each with a gradient of its own."""
    check_rule("LayerNormalization", [real(3, 4), real(4), real(4)], outputs=outputs, max_entries=8)


MODELS = {
    "group": (
        "double[N,4,H] X, double[4] S, double[4] B) => (double[N,4,H] Y",
        "Y = GroupNormalization <num_groups = 2, stash_type = 11> (X, S, B)",
        {"X": real(2, 4, 3), "S": real(4), "B": real(4)},
    ),
    "group, before a pooling": (
        "double[N,4,H] X, double[4] S, double[4] B) => (double[N,4,K] Y",
        """n = GroupNormalization <num_groups = 2, stash_type = 11> (X, S, B)  a = Softplus(n)
        m = GroupNormalization <num_groups = 1, stash_type = 11> (a, S, B)
        Y = MaxPool <kernel_shape = [2], strides = [2]> (m)""",
        {"X": real(2, 4, 6), "S": real(4), "B": real(4)},
    ),
    "group of small entries": (
        "double[N,4,H] X, double[4] S, double[4] B) => (double[N,4,H] Y",
        "Y = GroupNormalization <num_groups = 2, stash_type = 11> (X, S, B)",
        {"X": 1e-2 * real(2, 4, 3), "S": real(4), "B": real(4)},
    ),
    "training, by default": (
        "double[N,3] X, double[3] S, double[3] B, double[3] M, double[3] V) => (double[N,3] Y, double[3] m, double[3] v",
        "Y, m, v = BatchNormalization <training_mode = 1> (X, S, B, M, V)",
        dict(zip("XSBMV", [1e-2 * real(4, 3), *batch_operands(4, 3)[1:]], strict=True)),
    ),
    "training": (
        "double[N,3,H] X, double[3] S, double[3] B, double[3] M, double[3] V) => (double[N,3,H] Y, double[3] m, double[3] v",
        "Y, m, v = BatchNormalization <training_mode = 1, momentum = 0.7> (X, S, B, M, V)",
        dict(zip("XSBMV", batch_operands(4, 3, 2), strict=True)),
    ),
    "open batch": (
        "double[N,3,H] X, double[3] S, double[3] B, double[3] M, double[3] V) => (double[N,3,H] Y",
        "Y = BatchNormalization(X, S, B, M, V)",
        dict(zip("XSBMV", batch_operands(4, 3, 2), strict=True)),
    ),
    "mean only": (
        "double[N,4] X, double[4] S) => (double[N,1] M",
        "Y, M, R = LayerNormalization(X, S)",
        {"X": real(3, 4), "S": real(4)},
    ),
    "deviation only": (
        "double[N,4] X, double[4] S) => (double[N,1] R",
        "Y, M, R = LayerNormalization(X, S)",
        {"X": real(3, 4), "S": real(4)},
    ),
    "no rows": (
        "double[N,4] X, double[4] S, double[4] B) => (double[N,4] Y",
        "Y = LayerNormalization(X, S, B)",
        {"X": real(0, 4), "S": real(4), "B": real(4)},
    ),
    "zero norm": (
        "double[N,4] X) => (double[N,4] Y",
        "Z = ReduceSum <keepdims = 0> (X)\n N = LpNormalization(X)\n Y = Mul(N, Z)",
        {"X": real(2, 4)},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_model(check_model, name):
    signature, body, feeds = MODELS[name]
    head = f'<ir_version: 10, opset_import: ["" : 21]>\nnormalized ({signature}) {{\n'
    check_model(onnx.parser.parse_model(head + body + "\n}"), feeds)


@pytest.mark.parametrize(
    "opset,signature,body",
    [
        pytest.param(
            *(23, "float[N,4] X, float[4] S) => (float[N,4] Y", "Y = RMSNormalization(X, S)"),
            marks=pytest.mark.skipif(
                onnxruntime.__version__.startswith("1.19."), reason="onnxruntime 1.19 ends at opset 21"
            ),
        ),
        (21, "float[N,2,3,3] X) => (float[N,2,3,3] Y", "Y = MeanVarianceNormalization(X)"),
        (21, "float[N,2,3] X) => (float[N,2,3] Y", "Y = MeanVarianceNormalization <axes = [0, 2]> (X)"),
        (21, "float[N,5,2,2] X) => (float[N,5,2,2] Y", "Y = LRN <size = 3, alpha = 2.0> (X)"),
        (
            21,
            "float[N,5,2,2] X) => (float[N,5,2,2] Y",
            "C = Constant <value_float = 100.0> () Z = Mul(X, C) Y = LRN <size = 3> (Z)",
        ),
        (21, "float[N,5,2,2] X) => (float[N,5,2,2] Y", "Y = LRN <size = 5, alpha = 2.0> (X)"),
        (21, "float[N,4,H,W] X) => (float[N,4,H,W] Y", "Y = LRN <size = 3, beta = 0.5, bias = 2.0, alpha = 5.0> (X)"),
    ],
)
def test_in_float32(check_float32, opset, signature, body):
    """onnxruntime has these in float32 only; onnx.reference takes the batch for the channels of LRN."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\nf ({signature}) {{\n{body}\n}}')
    shapes = [[d.dim_value or 2 for d in i.type.tensor_type.shape.dim] for i in model.graph.input]
    check_float32(model, {i.name: real(*s) for i, s in zip(model.graph.input, shapes, strict=True)})


def test_the_default_epsilon_of_rms_normalization(check_model):
    text = '<ir_version: 10, opset_import: ["" : 23]> f (double[N,4] X, double[4] S) => (double[N,4] Y) { Y = RMSNormalization(X, S) }'
    check_model(onnx.parser.parse_model(text), {"X": 1e-2 * real(3, 4), "S": real(4)})
