"""Rules of operators of com.microsoft, on onnxruntime, the only runtime that has them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnxtrain import OrtGradientRegressor, graph
from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.runtime.session import run

rng = np.random.default_rng(16)


def real(*shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


ROWS = [
    ("FusedMatMul", [real(2, 3), real(3, 4)], {"alpha": 0.5}, 1),
    ("FusedMatMul", [real(2, 3), real(2, 4)], {"transA": 1}, 1),
    ("FusedMatMul", [real(5, 2, 3), real(5, 4, 3)], {"transB": 1, "alpha": 2.0}, 1),
    ("FusedMatMul", [real(5, 2, 3), real(2, 3, 4)], {"transBatchA": 1}, 1),
    ("FusedMatMul", [real(2, 3), real(3)], {}, 1),
    ("FusedGemm", [real(2, 3), real(3, 4), real(4)], {"activation": "Tanh", "alpha": 0.5}, 1),
    ("FusedGemm", [real(2, 3), real(4, 3)], {"activation": "LeakyRelu", "activation_alpha": 0.3, "transB": 1}, 1),
    ("Gelu", [real(2, 3)], {}, 1),
    ("BiasGelu", [real(2, 3), real(3)], {}, 1),
    ("FastGelu", [real(2, 3)], {}, 1),
    ("FastGelu", [real(2, 3), real(3)], {}, 1),
    ("QuickGelu", [real(2, 3)], {"alpha": 1.5}, 1),
    ("SkipLayerNormalization", [real(2, 3, 4), real(2, 3, 4), real(4), real(4)], {"epsilon": 0.01}, 1),
    ("SkipLayerNormalization", [real(2, 3, 4), real(2, 3, 4), real(4), real(4), real(4)], {}, 4),
    ("SkipLayerNormalization", [real(2, 3, 4), real(2, 3, 4), real(4)], {}, 1),
    ("SkipSimplifiedLayerNormalization", [real(2, 3, 4), real(2, 3, 4), real(4)], {}, 1),
    pytest.param(
        *("SkipSimplifiedLayerNormalization", [real(2, 3, 4), real(2, 3, 4), real(4), real(4)], {"epsilon": 0.01}, 4),
        marks=pytest.mark.skipif(
            onnxruntime.__version__.startswith("1.19."), reason="onnxruntime 1.19 forgets the bias"
        ),
    ),
    ("SimplifiedLayerNormalization", [real(2, 3, 4), real(4)], {}, 1),
    ("SimplifiedLayerNormalization", [real(2, 3, 4), real(4)], {"epsilon": 0.01}, 2),
    ("CDist", [real(3, 4), real(2, 4)], {"metric": "sqeuclidean"}, 1),
    ("CDist", [real(3, 4), real(2, 4)], {"metric": "euclidean"}, 1),
]

#: Optional outputs that onnxruntime leaves empty.
EMPTY = {"SkipLayerNormalization": {1, 2}, "SkipSimplifiedLayerNormalization": {1, 2}}

#: Operators that onnxruntime registers without a domain of their own.
STANDARD = {"SimplifiedLayerNormalization"}


def model_of(op_type, arrays, attributes, outputs, free=()):
    inputs = [
        helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [f"x{i}_{d}" if d in free else d for d in a.shape])
        for i, a in enumerate(arrays)
    ]
    ys = ["" if k in EMPTY.get(op_type, ()) else f"y{k}" for k in range(outputs)]
    rank = {"FusedMatMul": max(a.ndim for a in arrays) - any(a.ndim == 1 for a in arrays)}.get(op_type, arrays[0].ndim)
    results = [helper.make_tensor_value_info(y, TensorProto.FLOAT, [None] * rank) for y in ys if y]
    node = helper.make_node(op_type, [i.name for i in inputs], ys, domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "one", inputs, results)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def runnable(model):
    """Return the model with the domain under which onnxruntime knows its operator."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for node in copy.graph.node:
        node.domain = "" if node.op_type in STANDARD else node.domain
    return copy


@pytest.mark.parametrize("op_type,arrays,attributes,outputs", ROWS)
def test_gradient_equals_central_differences(check_float32, op_type, arrays, attributes, outputs):
    model = model_of(op_type, arrays, attributes, outputs)
    assert {n.domain for n in onnx_derivative(model).graph.node if n.op_type != op_type} <= {""}
    check_float32(model, {f"x{i}": a for i, a in enumerate(arrays)}, prepare=runnable)


# what each operator is, in standard operators: to more digits than differences have
SAME = [
    (
        "FusedMatMul",
        [real(2, 3), real(3, 4)],
        {"alpha": 0.5},
        "A = Constant<value_float = 0.5>() P = MatMul(x0, x1) Y = Mul(P, A)",
    ),
    ("Gelu", [real(2, 3)], {}, "Y = Gelu(x0)"),
    ("BiasGelu", [real(2, 3), real(3)], {}, "S = Add(x0, x1) Y = Gelu(S)"),
    ("FastGelu", [3 * real(2, 3)], {}, 'Y = Gelu<approximate = "tanh">(x0)'),
    (
        "QuickGelu",
        [3 * real(2, 3)],
        {},
        "A = Constant<value_float = 1.702>() P = Mul(x0, A) S = Sigmoid(P) Y = Mul(x0, S)",
    ),
    (
        "QuickGelu",
        [real(2, 3)],
        {"alpha": 0.5},
        "A = Constant<value_float = 0.5>() P = Mul(x0, A) S = Sigmoid(P) Y = Mul(x0, S)",
    ),
    (
        "SkipLayerNormalization",
        [1e-6 * real(2, 3, 4), 1e-6 * real(2, 3, 4), real(4), real(4)],
        {},
        "S = Add(x0, x1) Y = LayerNormalization<epsilon = 1e-12>(S, x2, x3)",
    ),
    (
        "SimplifiedLayerNormalization",
        [1e-3 * real(2, 4), real(4)],
        {},
        "A = Constant<value_ints = [1]>() E = Constant<value_float = 1e-5>() Q = Mul(x0, x0) M = ReduceMean(Q, A)"
        "V = Add(M, E) R = Sqrt(V) N = Div(x0, R) Y = Mul(N, x1)",
    ),
]


@pytest.mark.parametrize("op_type, arrays, attributes, body", SAME)
def test_gradient_is_that_of_the_standard_operators(op_type, arrays, attributes, body):
    inputs = ", ".join(f"float[{','.join(map(str, a.shape))}] x{i}" for i, a in enumerate(arrays))
    result = ",".join("?" * arrays[0].ndim)
    standard = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> same ({inputs}) => (float[{result}] Y) {{ {body} }}'
    )
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    (y,) = run(standard, feeds)
    dy = real(*y.shape)
    found = run(runnable(onnx_derivative(model_of(op_type, arrays, attributes, 1))), feeds | {"y0_grad": dy})
    for dx, expected in zip(found, run(onnx_derivative(standard), feeds | {"Y_grad": dy}), strict=True):
        np.testing.assert_allclose(dx, expected, rtol=2e-5, atol=2e-6 * np.abs(expected).max())


def test_distance_zero():
    """The derivative of the euclidean distance of a point to itself is 0, not NaN."""
    x = real(3, 4)
    derived = onnx_derivative(model_of("CDist", [x, x], {"metric": "euclidean"}, 1))
    found = run(derived, {"x0": x, "x1": x, "y0_grad": np.eye(3, dtype=np.float32)})
    assert all(np.all(dx == 0) for dx in found)


#: Operators that onnx does not know, and the shape of their result, which later operators need.
SHAPES = {
    "CDist": ('d = com.microsoft.CDist <metric = "euclidean"> (X, C)', "d", ["N", 5]),
    "Inverse": ("d = com.microsoft.Inverse(S)", "d", ["N", 4, 4]),
    "DynamicQuantizeLSTM": (
        'd, h = com.microsoft.DynamicQuantizeLSTM <hidden_size = 3, direction = "bidirectional"> '
        "(T, W, R, , , , , , s, z, s, z)",
        "d",
        ["t", 2, "N", 3],
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_the_shapes_of_their_results_are_known(case):
    node, name, expected = SHAPES[case]
    onx = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[N,4] X, float[5,4] C, float[N,4,4] S, float[t,N,4] T, int8[2,4,12] W, int8[2,3,12] R, float[2] s,
           int8[2] z) => (float Y) {{ {node} Y = Neg(d) }}"""
    )
    model = graph.load(onx)
    (y,) = (y for n in model.graph for y in n.outputs if y.name == name)
    assert [str(d) for d in y.shape] == [str(d) for d in expected]
    assert y.dtype.name == "FLOAT"
    assert [(n.op_type, n.domain, len(n.attributes)) for n in model.graph] == [
        (n.op_type, n.domain, len(n.attribute)) for n in onx.graph.node
    ]


def test_a_product_of_distances_is_trained():
    """The derivative of the product needs the number of axes of the distances."""
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[N,2] X) => (float[N,1] Y) <float[3,2] C = {0, 0, 1, 1, 2, 0}, float[3,1] V = {1, 2, 3}, int64[2] shape = {-1, 3}>
        { d = com.microsoft.CDist <metric = "sqeuclidean"> (X, C)  e = Reshape(d, shape)  Y = MatMul(e, V) }"""
    )
    rows = real(20, 2)
    network = OrtGradientRegressor(onx, max_iter=20, random_state=0).fit(rows, rows[:, 0])
    assert sorted(network.weights_) == ["C", "V"]
    assert network.loss_curve_[-1] < network.loss_curve_[0]
