"""Edge cases of rules: kinks, zeros, large values, no rows, one row, unknown ranks, every floating-point type."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from onnxtrain.errors import GradientError, OnnxTrainError
from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.runtime.session import run as run_onnxruntime

INF = np.inf
OLD = onnxruntime.__version__.startswith("1.19.")


def program(text, opset=21):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')


def gradients(run, model, *arrays, dys=None):
    """Return the gradients of every real input; incoming gradients are ones."""
    derived = onnx_derivative(model)
    feeds = dict(zip((i.name for i in model.graph.input), arrays, strict=True))
    names = [i.name for i in derived.graph.input][len(feeds) :]
    ys = run(model, feeds) if dys is None else dys
    feeds |= {n: np.ones_like(y) for n, y in zip(names, ys, strict=True)}
    return run(derived, feeds)


@pytest.fixture
def slope(run):
    """``slope(expression, x, ...) -> dx``: derivative of an expression of doubles X, A, ... of one axis."""

    def compute(op_type, *arrays, **attributes):
        names = ["X", "A", "B", "C"][: len(arrays)]
        inputs = [onnx.helper.make_tensor_value_info(n, 11, np.shape(a)) for n, a in zip(names, arrays, strict=True)]
        node = onnx.helper.make_node(op_type, names, ["Y"], **attributes)
        graph = onnx.helper.make_graph([node], "g", inputs, [onnx.helper.make_tensor_value_info("Y", 11, None)])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model)
        model.graph.output[0].CopyFrom(inferred.graph.output[0])
        try:
            return gradients(run, model, *(np.asarray(a, np.float64) for a in arrays))
        except OnnxTrainError as e:
            if "Could not find an implementation" not in str(e):
                raise
            pytest.skip(f"onnxruntime has no kernel of {op_type} for float64")

    return compute


# what, operands, attributes, gradients
POINTS = [
    ("Abs", [[-1, 0, 2]], {}, [[-1, 0, 1]]),
    ("Relu", [[-1, 0, 2]], {}, [[0, 0, 1]]),
    ("LeakyRelu", [[-1, 0, 2]], {"alpha": 0.1}, [[0.1, 0.1, 1]]),
    ("Sqrt", [[0, 4]], {}, [[0, 0.25]]),
    ("Sign", [[-1, 0, 2]], {}, [[0, 0, 0]]),
    ("Max", [[1, 2, 3], [1, 3, 2]], {}, [[0.5, 0, 1], [0.5, 1, 0]]),
    ("Min", [[1, 2, 3], [1, 3, 2]], {}, [[0.5, 1, 0], [0.5, 0, 1]]),
    ("Max", [[1, 2], [1, 3], [1, 3]], {}, [[1 / 3, 0], [1 / 3, 0.5], [1 / 3, 0.5]]),
    ("Min", [[1, 2], [2], [1, 3]], {}, [[0.5, 0.5], 0.5, [0.5, 0]]),
    ("Max", [[-INF, 1], [-INF, INF]], {}, [[0.5, 0], [0.5, 1]]),
    ("Clip", [[-2, -1, 0, 1, 2], -1, 1], {}, [[0, 1, 1, 1, 0], 1, 1]),
    ("Clip", [[0, 3], 2, 1], {}, [[0, 0], 0, 2]),
    ("Pow", [[0, 0, 0, 2], [2, 1, 0, 3]], {}, [[0, 1, 0, 12], [0, 0, 0, 8 * np.log(2)]]),
    ("Pow", [[-2, -2], [2, 3]], {}, [[-4, 12], [0, 0]]),
    ("Sigmoid", [[-1e4, 0, 1e4]], {}, [[0, 0.25, 0]]),
    ("Tanh", [[-1e4, 0, 1e4]], {}, [[0, 1, 0]]),
    ("Softplus", [[-1e4, 0, 1e4]], {}, [[0, 0.5, 1]]),
    ("Softsign", [[-1e200, 0, 1e200]], {}, [[0, 1, 0]]),
    ("Gelu", [[-1e200, 0, 1e200]], {}, [[0, 0.5, 1]]),
    ("Gelu", [[-1e200, 0, 1e200]], {"approximate": "tanh"}, [[0, 0.5, 1]]),
    ("Mish", [[-1e4, 1e4]], {}, [[0, 1]]),
    ("Erf", [[-1e200, 0, 1e200]], {}, [[0, 2 / np.sqrt(np.pi), 0]]),
    ("HardSigmoid", [[-2.5, 0, 2.5]], {}, [[0, 0.2, 0]]),
    ("ThresholdedRelu", [[0.9, 1, 1.1]], {}, [[0, 0, 1]]),
    ("HardSwish", [[-4, -3, 0, 3, 4]], {}, [[0, 0, 0.5, 1, 1]]),
    ("Elu", [[-1e4, 0, 1]], {}, [[0, 1, 1]]),
    ("PRelu", [[-1, 0, 1], [0.5, 0.5, 0.5]], {}, [[0.5, 0.5, 1], [-1, 0, 0]]),
    ("ReduceL2", [[0, 0]], {}, [[0, 0]]),
    ("ReduceL1", [[0, -3]], {}, [[0, -1]]),
    ("ReduceMax", [[1, 3, 3]], {}, [[0, 0.5, 0.5]]),
    ("ReduceMin", [[1, 1, 3]], {}, [[0.5, 0.5, 0]]),
    ("ReduceProd", [[2, 0, 3]], {}, [[0, 6, 0]]),
    ("ReduceProd", [[0, 0, 3]], {}, [[0, 0, 0]]),
    ("ReduceLogSumExp", [[1000, 1000, -1000]], {}, [[0.5, 0.5, 0]]),
    ("Unique", [[3, 1, 3]], {}, [[0.5, 1, 0.5]]),
    ("Unique", [[[3, 1], [2, 2], [3, 1]]], {"axis": 0}, [[[0.5, 0.5], [1, 1], [0.5, 0.5]]]),
    ("Unique", [[[3, 1, 3], [1, 1, 1]]], {"axis": -1}, [[[0.5, 1, 0.5], [0.5, 1, 0.5]]]),
    ("LpNormalization", [[[0, 0], [3, 4]]], {}, [[[0, 0], [4 / 125, -3 / 125]]]),
    ("GlobalMaxPool", [[[[1, 3, 3]]]], {}, [[0, 0.5, 0.5]]),
]


@pytest.mark.parametrize("op_type, arrays, attributes, expected", POINTS, ids=lambda v: v if isinstance(v, str) else "")
def test_convention(slope, op_type, arrays, attributes, expected):
    for dx, right in zip(slope(op_type, *arrays, **attributes), expected, strict=True):
        np.testing.assert_allclose(np.squeeze(dx), right, rtol=1e-7, atol=1e-12)


SCATTER = (
    'g (double[3] X, int64[3] I, double[3] A) => (double[3] Y) {{ Y = ScatterElements<reduction = "{}">(X, I, A) }}'
)
TIES = [
    ("max", [2, 2, 0], [2, 1, 5], [0.5, 1, 0], [0.5, 0, 1]),
    ("min", [2, 2, 9], [2, 3, 5], [0.5, 1, 0], [0.5, 0, 1]),
    ("mul", [2, 2, 9], [0, 3, 0], [0, 1, 0], [6, 0, 9]),
    ("mul", [2, 0, 9], [0, 0, 5], [0, 1, 5], [0, 0, 9]),
]


@pytest.mark.parametrize("reduction, x, a, dx, da", TIES)
def test_what_meets_in_scatter(run, reduction, x, a, dx, da):
    model = program(SCATTER.format(reduction))
    found = gradients(run, model, np.array(x, float), np.array([0, 0, 2]), np.array(a, float))
    np.testing.assert_array_equal(found, [dx, da])


@pytest.mark.parametrize("keepdims", [0, 1])
def test_product_with_axes_at_run_time(run, keepdims):
    if run is run_onnxruntime and OLD:
        pytest.skip("onnxruntime 1.19 has no kernel of ReduceProd for float64")
    model = program(
        f"g (double[N,M] X, int64[1] A) => (double Y) {{ Z = ReduceProd<keepdims = {keepdims}>(X, A) "
        "Y = ReduceSum<keepdims = 0>(Z) }"
    )
    (dx,) = gradients(run, model, np.array([[0, 2.0, 0], [3, 0, 2], [1, 2, 3]]), np.array([1]))
    np.testing.assert_array_equal(dx, [[0, 0, 0], [0, 6, 0], [6, 3, 2]])


# --------------------------------------------------------------------- rows

ROWS = [
    "Y = Add(X, A)",
    "Y = Mul(X, A)",
    "Y = Where(C, X, A)",
    "Y = MatMul(X, B)",
    "Y = Gemm(X, B, A)",
    'Y = Einsum<equation = "ni,ij->nj">(X, B)',
    "S = Constant<value_ints = [0]>() Y = ReduceSum(X, S)",
    "S = Constant<value_ints = [1]>() Y = ReduceMean(X, S)",
    "S = Constant<value_ints = [1]>() Y = ReduceMax(X, S)",
    "S = Constant<value_ints = [1]>() Y = ReduceProd(X, S)",
    "S = Constant<value_ints = [0]>() T = Constant<value_ints = [1]>() Y = Slice(X, T, S, S)",
    "S = Constant<value_ints = [1, 0]>() T = Constant<value_ints = [9, 2]>() Y = Slice(X, S, T)",
    "S = Constant<value_ints = [0, 1, 0, 1]>() Y = Pad(X, S)",
    "S = Constant<value_ints = [2, 1]>() Y = Tile(X, S)",
    "S = Constant<value_ints = [-1, 1]>() Y = Reshape(X, S)",
    "S = Constant<value_ints = [2, 0]>() Y = Gather<axis = 1>(X, S)",
    "Y = Concat<axis = 0>(X, X)",
    "Y = Concat<axis = 1>(X, X)",
    "Y, Z = Split<num_outputs = 2, axis = 1>(X)",
    "Y = Transpose(X)",
    "Y = Flatten(X)",
    "S = Constant<value_int = 1>() Y = CumSum(X, S)",
    "S = Constant<value_ints = [2]>() Y, I = TopK(X, S)",
]


@pytest.mark.parametrize("rows", [0, 1, 4])
@pytest.mark.parametrize("body", ROWS)
def test_any_number_of_rows(run, body, rows):
    if run is run_onnxruntime and OLD and (rows == 0 or "ReduceProd" in body):
        pytest.skip("onnxruntime 1.19: wrong products of no rows, operators that die, no ReduceProd of float64")
    head = "g (double[N,3] X, double[3] A, double[3,3] B, bool[N,3] C)"
    model = program(f"{head} => (double[K,L] Y) {{ {body} }}")
    rng = np.random.default_rng(0)
    x, a, b = rng.standard_normal((rows, 3)), rng.standard_normal(3), rng.standard_normal((3, 3))
    try:
        found = gradients(run, model, x, a, b, x > 0)
    except (OnnxTrainError, ValueError):
        if rows or run is run_onnxruntime:
            raise
        return  # onnx.reference cannot run every operator without rows
    for value, dx in zip((x, a, b), found, strict=True):
        assert dx.shape == value.shape


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_a_mean_of_as_many_columns_as_there_are(run, rows):
    model = program(
        "g (double[N,M] X) => (double[N] Y) { I = Constant<value_ints = [1]>() Y = ReduceMean<keepdims = 0>(X, I) }"
    )
    (dx,) = gradients(run, model, np.ones((rows, 2)))
    np.testing.assert_array_equal(dx, np.full((rows, 2), 0.5))


# ------------------------------------------------------------------- shapes

UNKNOWN = "g (double[N,3] X, double[M,3] A, int64[R] S) => (double[?,?] Y) {{ Z = Reshape(X, S) {} }}"
BODIES = [
    "Y = Mul(Z, A)",
    "Y = Sub(A, Z)",
    "W = Abs(Z) Y = Pow(W, A)",
    "W = Exp(Z) T = ReduceSum<keepdims = 0>(W) Y = Mul(A, T)",
    "W = Exp(Z) T = ReduceMean<keepdims = 1>(W) Y = Mul(A, T)",
    "I = Constant<value_ints = [1, 0, 1]>() W = Gather(Z, I) T = ReduceLogSumExp<keepdims = 0>(W) Y = Mul(A, T)",
    "W = Transpose(Z) V = Transpose(W) Y = Mul(A, V)",
    "I = Constant<value_ints = [1]>() F = Constant<value_ints = [9]>() W = Slice(Z, I, F) Y = Mul(A, W)",
    "I = Constant<value_ints = [1]>() W = ReduceProd(Z, I) Y = Mul(A, W)",
    "P = Constant<value_ints = [0, 0, 1, 2]>() W = Pad(Z, P) Y = Mul(W, W)",
    "W = Concat<axis = 0>(Z, A) Y = Mul(W, W)",
    "I = Constant<value_int = 1>() W = Gather(Z, I) Y = Mul(A, W)",
    "I = Constant<value_ints = [-1]>() U = Unsqueeze(Z, I) V = DFT(U) W = ReduceSum<keepdims = 0>(V, I) Y = Mul(A, W)",
]


@pytest.mark.parametrize("body", BODIES)
def test_unknown_rank(check_model, body):
    rng = np.random.default_rng(0)
    rows = 1 if "Slice" in body else 2
    feeds = {"X": rng.uniform(1, 2, (2, 3)), "A": rng.uniform(1, 2, (rows, 3)), "S": np.array([2, 3])}
    check_model(program(UNKNOWN.format(body)), feeds)


REFUSED = [
    ("Y = MatMul(Z, A)", "MatMul .* requires the number of axes of Z: DOUBLE"),
    ("Y = GroupNormalization<num_groups = 1>(Z, S, S)", "GroupNormalization .* requires the number of axes of Z"),
    ("Y = InstanceNormalization(Z, S, S)", "InstanceNormalization .* requires the number of axes of Z"),
    ("E = Det(Z) Y = Mul(E, A)", "Det .* requires the number of axes of Z"),
    ('Y = Einsum<equation = "...i->...">(Z)', "Einsum .* requires the number of axes of Z"),
    ('Y = Einsum<equation = "ii->i">(X)', "Einsum .* takes a diagonal: 'ii->i' names an axis of one operand twice"),
    ("T = Constant<value_int = 1>() B = Cast<to = 9>(T) Y = Dropout(X, , B)", "Dropout .* again after model.eval"),
    ("T = Cast<to = 9>(S) B = ReduceMax<keepdims = 0>(T) Y = Dropout(X, , B)", "Dropout .* may be in training mode"),
]


@pytest.mark.parametrize("body, message", REFUSED)
def test_what_is_refused(body, message):
    with pytest.raises(GradientError, match=message):
        onnx_derivative(program(UNKNOWN.format(body)))


def test_cofactors_of_a_symbolic_batch(check_model):
    model = program("g (double[N,3,3] X) => (double[N] Y) { Y = Det(X) }")
    check_model(model, {"X": np.random.default_rng(0).standard_normal((4, 3, 3))})


@pytest.mark.parametrize("high, dx", [(6, [0, 0, 1, 0, 0]), (7, [0, 1, 1, 1, 1])])
@pytest.mark.parametrize("bound", ["Identity(c)", "CastLike(c, X)"])
def test_the_bounds_of_relu6(run, bound, high, dx):
    """PyTorch writes ReLU6 as Clip; its derivative at the bounds is 0, that of clamp 1."""
    model = program(
        f"""g (double[N] X) => (double[N] Y) {{
            low = Constant<value = double {{0}}>() c = Constant<value = double {{{high}}}>() high = {bound}
            Y = Clip(X, low, high)
        }}"""
    )
    assert gradients(run, model, np.array([-1.0, 0.0, 3.0, 6.0, 7.0]))[0].tolist() == dx


# -------------------------------------------------------------------- newer

RNG = np.random.default_rng(0)
CACHE, UPDATE = RNG.standard_normal((2, 5, 3)), RNG.standard_normal((2, 2, 3))
PRODUCT = RNG.uniform(0.5, 2, (2, 4))
PRODUCT[0, 1] = PRODUCT[1, 0] = PRODUCT[1, 3] = 0

NEWER = [
    *(
        ("CumProd", [PRODUCT, np.array(a)], {"exclusive": e, "reverse": r})
        for a in (0, -1)
        for e in (0, 1)
        for r in (0, 1)
    ),
    ("TensorScatter", [CACHE, UPDATE, np.array([1, 3])], {}),
    ("TensorScatter", [CACHE, UPDATE], {"axis": 1}),
    ("TensorScatter", [CACHE, UPDATE, np.array([4, 0])], {"mode": "circular"}),
    ("TensorScatter", [CACHE, CACHE[:, :, :2] + 1, np.array([0, 1])], {"axis": 2}),
    ("TensorScatter", [CACHE[:, None], UPDATE[:, None], np.array([1, 3])], {"axis": -2}),
]


@pytest.mark.parametrize("check_rule", ["static", "symbolic"], indirect=True)
@pytest.mark.parametrize("op_type, arrays, attributes", NEWER, ids=lambda v: v if isinstance(v, str) else "")
def test_newer_than_opset_21(check_rule, op_type, arrays, attributes):
    check_rule(op_type, arrays, attributes)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("attributes", ["", "<exclusive = 1>", "<reverse = 1>", "<exclusive = 1, reverse = 1>"])
def test_axis_of_cumprod_at_run_time(check_model, axis, attributes):
    model = program(f"g (double[N,M] X, int64 A) => (double[N,M] Y) {{ Y = CumProd{attributes}(X, A) }}", opset=26)
    check_model(model, {"X": PRODUCT, "A": np.array(axis)})
