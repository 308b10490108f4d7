"""The interface of onnx_derivative: names, order, options, metadata, errors."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.parser import parse_model
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression

from onnxtrain import OrtGradientForwardBackward, OrtGradientRegressor, trainable_weights
from onnxtrain import graph as graphs
from onnxtrain.errors import DataError, GradientError, ModelError, WeightError
from onnxtrain.grad_helper import DerivativeOptions, gradients, onnx_derivative, random_feed
from onnxtrain.graph import held
from onnxtrain.testing import check_gradient

O = DerivativeOptions  # noqa: E741  as short as the option it stands for

#: Two real outputs and one of integers; z comes before b, U is used by nothing.
MODEL = """
<ir_version: 8, opset_import: ["" : 15], producer_name: "somebody", producer_version: "3", domain: "a.domain",
 model_version: 7, doc_string: "What it is for.", metadata_props: ["key": "value"]>
two_outputs (float[N,3] X, float[3] scale, int64[N] rows) => (float[N,2] scores, float[N,3] squares, int64[N] ranks)
<float[3,2] z = {1, -2, 3, 4, 5, -6}, float[2] b = {1, 2}, float[2] U = {1, 3}, int64[1] one = {1}>
{
    scaled = Mul(X, scale)
    product = MatMul(scaled, z)
    scores = Add(product, b)
    squares = Mul(scaled, scaled)
    ranks = Add(rows, one)
}
"""


def parsed(text=MODEL):
    onx = parse_model(text)
    onnx.checker.check_model(onx, full_check=True)
    return onx


def names(values):
    return [v.name for v in values]


# (weights, inputs) asked for, and the gradients that come out, in that order
ASKED = {
    "everything": (None, None, ["X", "scale", "z", "b", "U"]),
    "no inputs": (None, [], ["z", "b", "U"]),
    "no weights": ([], None, ["X", "scale"]),
    "in the order given": (["b", "z"], ["scale", "X"], ["scale", "X", "b", "z"]),
    "one of each": (["b"], ["X"], ["X", "b"]),
}


@pytest.mark.parametrize("weights, inputs, expected", ASKED.values(), ids=ASKED)
def test_what_is_asked_for_comes_out_in_the_order_given(weights, inputs, expected):
    grad = onnx_derivative(parsed(), weights, inputs)
    opened = [w for w in expected if w in ("z", "b", "U")]
    assert names(grad.graph.output) == [f"{name}_grad" for name in expected]
    assert names(grad.graph.input) == ["X", "scale", "rows", *opened, "scores_grad", "squares_grad"]
    assert not set(opened) & set(names(grad.graph.initializer))


GRADS = ["X_grad", "scale_grad", "z_grad", "b_grad", "U_grad"]
OUTPUTS = ["scores", "squares", "ranks"]
OPENED = ["X", "scale", "rows", "z", "b", "U"]
SEEDS = ["scores_grad", "squares_grad"]
OPTIONS = {
    O.Zero: (OPENED + SEEDS, GRADS),
    O.KeepOutputs: (OPENED + SEEDS, GRADS + OUTPUTS),
    O.KeepOutputs | O.FillGrad: (OPENED, GRADS + OUTPUTS),
    O.KeepYieldOp: (OPENED, GRADS),
}


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_options_decide_what_comes_in_and_out(options):
    onx = parsed()
    before = onx.SerializeToString(deterministic=True)
    grad = onnx_derivative(onx, options=options)
    onnx.checker.check_model(grad, full_check=True)
    assert (names(grad.graph.input), names(grad.graph.output)) == OPTIONS[options]
    assert onx.SerializeToString(deterministic=True) == before, "the argument was changed"
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string", "metadata_props"):
        assert getattr(grad, field) == getattr(onx, field)
    assert {n.domain for n in grad.graph.node} <= {"", "com.microsoft" if options == O.KeepYieldOp else ""}


def feed(onx, dy=()):
    X = np.array([[1, 2, 3], [-1, 0, 2]], np.float32)
    found = {"X": X, "scale": np.array([1, -1, 2], np.float32), "rows": np.array([0, 1])}
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in parsed().graph.initializer}
    found |= {w: weights[w] for w in ("z", "b", "U")} | dict(dy)
    return {i.name: found[i.name] for i in onx.graph.input}


@pytest.mark.parametrize("options", [O.Zero, O.KeepOutputs, O.KeepOutputs | O.FillGrad], ids=repr)
def test_gradients_are_those_of_the_formula(run, options):
    grad = onnx_derivative(parsed(), options=options)
    ones = {"scores_grad": np.ones((2, 2), np.float32), "squares_grad": np.ones((2, 3), np.float32)}
    feeds = feed(grad, ones)
    got = dict(zip(names(grad.graph.output), run(grad, feeds), strict=True))
    X, scale, z = (feeds[name] for name in ("X", "scale", "z"))
    d_scaled = np.ones((2, 2)) @ z.T + 2 * X * scale
    expected = {
        "X_grad": d_scaled * scale,
        "scale_grad": (d_scaled * X).sum(axis=0),
        "z_grad": (X * scale).T @ np.ones((2, 2)),
        "b_grad": [2, 2],
        "U_grad": [0, 0],
        "scores": (X * scale) @ z + feeds["b"],
        "squares": (X * scale) ** 2,
        "ranks": [1, 2],
    }
    for name, value in got.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("more", ["", "X1 = Cast <to = 1> (X)"], ids=["", "beside a node without effect"])
def test_outputs_that_are_copies_keep_their_names_and_gradients(run, more):
    onx = parsed(
        f"""<ir_version: 8, opset_import: ["" : 15]>
        copies (float[3] X) => (float[3] A, float[3] B, float[3] C)
        {{ {more or "X1 = Identity(X)"} A = Exp(X1) B = Identity(A) C = Identity(B) }}"""
    )
    onx = onnx_derivative(onx, options=O.KeepOutputs)
    assert names(onx.graph.input) == ["X", "A_grad", "B_grad", "C_grad"]
    assert names(onx.graph.output) == ["X_grad", "A", "B", "C"]
    X, one = np.array([0, 1, 2], np.float32), np.ones(3, np.float32)
    dx, *_ = run(onx, {"X": X, "A_grad": one, "B_grad": 2 * one, "C_grad": 4 * one})
    np.testing.assert_allclose(dx, 7 * np.exp(X), rtol=1e-6)


def test_an_initializer_may_be_an_output_of_unknown_length(run):
    onx = parsed(
        """<ir_version: 8, opset_import: ["" : 15]> passed_on (float[3] X) => (float[3] Y, float[N] W)
        <float[3] W = {1, 2, 3}> { Y = Mul(X, W) }"""
    )
    feeds = {"X": np.ones(3, np.float32), "Y_grad": np.ones(3, np.float32), "W_grad": np.ones(3, np.float32)}
    (dx,) = run(onnx_derivative(onx, weights=[]), feeds)
    np.testing.assert_array_equal(dx, [1, 2, 3])


def test_yield_op_stands_between_forward_and_backward():
    grad = onnx_derivative(parsed(), options=O.KeepYieldOp)
    (node,) = [n for n in grad.graph.node if n.op_type == "YieldOp"]
    assert list(node.input) == OUTPUTS
    assert list(node.output) == SEEDS
    attributes = {a.name: list(a.ints) for a in node.attribute}
    assert attributes == {"full_shape_outputs": [0, 1], "non_differentiable_outputs": [2]}


WITH_LOSS = """
<ir_version: 8, opset_import: ["" : 18]>
with_loss (float[N,3] X, float[N,2] label) => (float[N,2] scores, float loss) <float[3,2] W = {1, -2, 3, 4, 5, -6}>
{
    scores = MatMul(X, W)
    d = Sub(scores, label)
    squares = Mul(d, d)
    loss = ReduceSum <keepdims = 0> (squares)
}
"""


@pytest.mark.parametrize(
    "options, label, expected",
    [
        (O.Loss, "label", ["loss", "X_grad", "W_grad"]),
        (O.Loss, ["label"], ["loss", "X_grad", "W_grad"]),
        (O.Loss, None, ["loss", "X_grad", "label_grad", "W_grad"]),
        (O.Loss | O.KeepOutputs, "label", ["loss", "X_grad", "W_grad", "scores"]),
    ],
)
def test_loss_comes_out_with_its_gradients_and_the_weights_keep_their_values(run, tmp_path, options, label, expected):
    path = tmp_path / "grad.onnx"
    grad = onnx_derivative(parsed(WITH_LOSS), options=options, loss="loss", label=label, path_name=path)
    assert onnx.load(path) == grad
    assert names(grad.graph.output) == expected
    X, y = np.eye(4, 3, dtype=np.float32), np.zeros((4, 2), np.float32)
    W = onnx.numpy_helper.to_array(grad.graph.initializer[0])
    for w, feeds in ((W, {"X": X, "label": y}), (2 * W, {"X": X, "label": y, "W": 2 * W})):
        got = dict(zip(expected, run(grad, feeds), strict=True))
        np.testing.assert_allclose(got["loss"], ((X @ w - y) ** 2).sum())
        np.testing.assert_allclose(got["W_grad"], 2 * X.T @ (X @ w - y))


def test_a_loss_that_is_no_output_can_be_named(run):
    grad = onnx_derivative(parsed(WITH_LOSS), inputs=[], options=O.Loss, loss="squares", label="label")
    assert names(grad.graph.output) == ["squares", "W_grad"]


NOT_POSSIBLE = {
    "nothing": ({"weights": [], "inputs": []}, WeightError, "Nothing to differentiate"),
    "unknown weight": ({"weights": ["Z"]}, WeightError, "no initializer 'Z'. Did you mean 'z'"),
    "unknown input": ({"inputs": ["x"]}, ModelError, "no input 'x'. Did you mean 'X'"),
    "weight of integers": ({"weights": ["one"]}, WeightError, "one: INT64.* is not floating-point"),
    "input of integers": ({"inputs": ["rows"]}, ModelError, "rows: INT64.* is not floating-point"),
    "weight named twice": ({"weights": ["b", "b"]}, ValueError, "weights contains 'b' more than once"),
    "weight that is no name": ({"weights": [1]}, TypeError, "weights must be names, got 1 of type int"),
    "options of another type": ({"options": 1}, TypeError, "options must be DerivativeOptions, got 1 of type int"),
    "FillGrad alone": ({"options": O.FillGrad}, ValueError, "FillGrad requires KeepOutputs"),
    "YieldOp and outputs": (
        {"options": O.KeepYieldOp | O.KeepOutputs},
        ValueError,
        "cannot be combined with other options",
    ),
    "YieldOp and loss": (
        {"options": O.KeepYieldOp | O.Loss, "loss": "scores"},
        ValueError,
        "cannot be combined with other options",
    ),
    "loss filled": ({"options": O.Loss | O.FillGrad, "loss": "scores"}, ValueError, "Leave out FillGrad"),
    "Loss without its name": ({"options": O.Loss}, ValueError, "such as loss='loss' for a model of add_loss_output"),
    "loss without Loss": ({"loss": "scores"}, ValueError, "require the option Loss"),
    "label without Loss": ({"label": "rows"}, ValueError, "require the option Loss"),
    "unknown loss": ({"options": O.Loss, "loss": "score"}, ModelError, "no loss 'score'. Did you mean 'scores'"),
    "loss of integers": ({"options": O.Loss, "loss": "ranks"}, ModelError, "The loss ranks: INT64"),
    "unknown label": ({"options": O.Loss, "loss": "scores", "label": "row"}, ModelError, "Did you mean 'rows'"),
    "label differentiated": (
        {"options": O.Loss, "loss": "scores", "label": "X", "inputs": ["X"]},
        ValueError,
        "is both in inputs and in label",
    ),
    "unknown builder": ({"builder": "builtins"}, ValueError, "Unknown builder 'builtins'. Did you mean 'builtin'"),
}


@pytest.mark.parametrize("arguments, error, message", NOT_POSSIBLE.values(), ids=NOT_POSSIBLE)
def test_what_is_not_possible_is_said(arguments, error, message):
    with pytest.raises(error, match=message):
        onnx_derivative(parsed(), **arguments)


def test_a_quantized_weight_is_named():
    onx = parsed("""
        <ir_version: 8, opset_import: ["" : 15]>
        quantized (float[N,2] X) => (float[N,2] Y) <int8[2,2] W = {1, 2, 3, 4}, float scale = {0.5}, int8 zero = {0}>
        { real = DequantizeLinear(W, scale, zero)  Y = MatMul(X, real) }""")
    with pytest.raises(WeightError, match=r"W: INT8.* is quantized, so it has no derivative. .* before quantization"):
        onnx_derivative(onx, weights=["W"])


def test_a_dynamically_quantized_weight_is_named():
    onx = parsed("""<ir_version: 8, opset_import: ["" : 17]>
        quantized (float[N,2] X) => (float[N,2] Y) <int8[2,2] W = {1, 2, 3, 4}> {
            q, s, z = DynamicQuantizeLinear(X)  p = MatMulInteger(q, W, z)  f = Cast<to = 1>(p)  Y = Mul(f, s) }""")
    with pytest.raises(WeightError, match=r"W: INT8.* is quantized, so it has no derivative. .* before quantization"):
        onnx_derivative(onx, weights=["W"])


def with_sparse(at, values=(2.0, 3.0, 4.0), dims=(3, 2)):
    """Return a network whose weight W is sparse, at indices that are flat or one per axis."""
    onx = parse_model("""<ir_version: 8, opset_import: ["" : 15]> m (float[N,3] X) => (float[N,2] Y) <float[2,2] V = {1, 2, 3, 4}>
        { Z = MatMul(X, W)  T = Tanh(Z)  Y = MatMul(T, V) }""")
    values = onnx.numpy_helper.from_array(np.array(values, np.float32), "W")
    onx.graph.sparse_initializer.append(
        onnx.helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(np.array(at), "at"), dims)
    )
    return onx


@pytest.mark.parametrize("at", [[0, 3, 4], [[0, 0], [1, 1], [2, 0]]], ids=["flat", "by axis"])
def test_a_sparse_initializer_is_a_dense_buffer(at):
    dense = with_sparse(at)
    dense.graph.ClearField("sparse_initializer")
    array = np.array([[2, 0], [0, 3], [4, 0]], np.float32)
    dense.graph.initializer.append(onnx.numpy_helper.from_array(array, "W"))
    x, dy = np.eye(3, dtype=np.float32), np.ones((3, 2), np.float32)
    feeds = {"X": x, "W": array, "V": np.array([[1, 2], [3, 4]], np.float32), "Y_grad": dy}
    sparse, expected = (
        onnxruntime.InferenceSession(onnx_derivative(onx, ["V", "W"]).SerializeToString()).run(None, feeds)
        for onx in (with_sparse(at), dense)
    )
    for a, b in zip(sparse, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [(w.name, w.kind) for w in trainable_weights(with_sparse(at))] == [("V", "weight"), ("W", "buffer")]
    model = OrtGradientRegressor(with_sparse(at), max_iter=1).fit(x, dy)
    assert list(model.weights_) == ["V"]
    assert model.get_trained_onnx().graph.sparse_initializer[0].values.name == "W"


@pytest.mark.parametrize(
    "sparse, words",
    {
        "after the end": (with_sparse([0, 3, 6]), "out of bounds"),
        "negative": (with_sparse([[0, 0], [1, 1], [-1, 0]]), "indices that do not fit its 2 dimensions"),
        "of one axis": (with_sparse([[0], [1], [2]]), "indices that do not fit its 2 dimensions"),
        "too few values": (with_sparse([0, 3, 4], (1.0, 2.0)), "could not be broadcast"),
        "terabytes": (with_sparse([0, 3, 4], dims=(2**20, 2**20)), "has 1,099,511,627,776 elements, too many"),
    }.values(),
)
def test_a_sparse_initializer_that_is_damaged(sparse, words):
    with pytest.raises(ModelError, match=words):
        onnx_derivative(sparse)


def test_a_sparse_initializer_of_a_body_is_named():
    onx = parse_model("""<ir_version: 8, opset_import: ["" : 15]> m (float[N,3] X, bool c) => (float[N,2] Y)
        { Y = If (c) <then_branch = t () => (float[N,2] a) { a = MatMul(X, W) }, else_branch = e () => (float[N,2] b) { b = MatMul(X, W) }> }""")
    for attribute in onx.graph.node[0].attribute:
        attribute.g.sparse_initializer.extend(with_sparse([0, 3, 4]).graph.sparse_initializer)
    with pytest.raises(ModelError, match=r"initializer 'W' of a body is sparse"):
        onnx_derivative(onx)


def test_a_sparse_constant_is_named():
    onx = parse_model("""<ir_version: 8, opset_import: ["" : 15]> m (float[3] X, bool c) => (float[3] Y)
        { Y = If (c) <then_branch = t () => (float[3] a) { W = Constant () a = Add(X, W) }, else_branch = e () => (float[3] b) { b = Neg(X) }> }""")
    values = onnx.helper.make_tensor("", onnx.TensorProto.FLOAT, [1], [2.0])
    sparse = onnx.helper.make_sparse_tensor(values, onnx.helper.make_tensor("", onnx.TensorProto.INT64, [1], [1]), [3])
    (body,) = (a.g for a in onx.graph.node[0].attribute if a.name == "then_branch")
    body.node[0].attribute.append(onnx.helper.make_attribute("sparse_value", sparse))
    with pytest.raises(ModelError, match=r"constant 'W' is sparse.*Store it as a dense tensor"):
        onnx_derivative(onx)


def test_distinct_bits():
    single = [O.KeepYieldOp, O.KeepOutputs, O.FillGrad, O.Loss]
    assert sum(single) == O.KeepYieldOp | O.KeepOutputs | O.FillGrad | O.Loss
    assert O.Zero == 0


def test_a_name_that_is_taken_gets_a_number(run):
    onx = parsed("""
        <ir_version: 8, opset_import: ["" : 15]>
        taken (float[2] X, float[2] Y_grad) => (float[2] Y, float[2] X_grad)
        { Y = Mul(X, Y_grad)  X_grad = Neg(X) }""")
    grad = onnx_derivative(onx, inputs=["X"], options=O.KeepOutputs)
    assert names(grad.graph.input) == ["X", "Y_grad", "Y_grad_1", "X_grad_grad"]
    assert names(grad.graph.output) == ["X_grad_1", "Y", "X_grad"]
    X, c, dy, dx = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
    got = run(grad, {"X": X, "Y_grad": c, "Y_grad_1": dy, "X_grad_grad": dx})
    for found, expected in zip(got, (dy * c - dx, X * c, -X), strict=True):
        np.testing.assert_allclose(found, expected)


def test_closed_under_itself(run):
    """The product of the Hessian with a vector is the gradient of a gradient."""
    onx = parsed("""
        <ir_version: 8, opset_import: ["" : 15]> cube (float[3] X) => (float[3] Y) { S = Mul(X, X)  Y = Mul(S, X) }""")
    hessian = onnx_derivative(onnx_derivative(onx), inputs=["X"])
    assert names(hessian.graph.input) == ["X", "Y_grad", "X_grad_grad"]
    x, v = np.array([1, -2, 3], np.float32), np.array([1, 1, -1], np.float32)
    (got,) = run(hessian, {"X": x, "Y_grad": np.ones(3, np.float32), "X_grad_grad": v})
    np.testing.assert_allclose(got, 6 * x * v)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_any_number_of_rows(run, rows, request):
    if rows == 0 and tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 20):
        request.applymarker(pytest.mark.xfail("onnxruntime" in request.node.name, reason="its Gemm wants rows"))
    grad = onnx_derivative(parsed())
    feeds = random_feed(grad.graph.input, batch=rows, random_state=0)
    shapes = [y.shape for y in run(grad, feeds)]
    assert shapes == [(rows, 3), (3,), (3, 2), (2,), (2,)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float", "double"])
def test_every_type_of_real_number(dtype):
    onx = parsed(MODEL.replace("float[", f"{dtype}["))
    code = onnx.TensorProto.DataType.Value({"float16": "FLOAT16", "bfloat16": "BFLOAT16"}.get(dtype, dtype.upper()))
    grad = onnx_derivative(onx)
    assert {o.type.tensor_type.elem_type for o in grad.graph.output} == {code}


def test_bytes_and_paths_are_models_too(tmp_path):
    onx = parsed()
    onnx.save_model(onx, tmp_path / "model.onnx")
    expected = onnx_derivative(onx)
    assert onnx_derivative(onx.SerializeToString()) == expected
    assert onnx_derivative(tmp_path / "model.onnx") == expected


def test_verbose_says_what_is_differentiated(capsys):
    onnx_derivative(parsed(), weights=["b"], verbose=1)
    assert "weights ['b']" in capsys.readouterr().out


def test_gradients_names_each_value_that_the_output_does_not_depend_on():
    model = graphs.load(parsed())
    values = {v.name: v for v in (*model.graph.inputs, *model.graph.initializers.values())}
    squares = model.graph.outputs[1]
    (dX,) = gradients(model, squares, [values["X"]])
    assert graphs.same_shape(dX, values["X"])
    with pytest.raises(WeightError, match="'squares' does not depend on 'z', 'b'"):
        gradients(model, squares, [values["X"], values["z"], values["b"]])


def test_the_example_of_the_interface_is_right():
    check_gradient(parsed(), random_feed(parsed().graph.input, batch=4, random_state=0))


TYPES = ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT64", "INT8", "UINT8", "BOOL", "COMPLEX64"]


@pytest.mark.parametrize("shape", [[], [3], ["N"], [None, 2], ["N", 0, "M", "N"]], ids=repr)
@pytest.mark.parametrize("name", TYPES)
def test_random_feed_has_the_type_and_the_shape_of_the_input(name, shape):
    code = getattr(onnx.TensorProto, name)
    value = onnx.helper.make_tensor_value_info("X", code, shape)
    drawn = random_feed([value], batch=5, empty_dimension=4, random_state=0)["X"]
    expected = [d if isinstance(d, int) and d else 5 if i == 0 or d == "N" else 4 for i, d in enumerate(shape)]
    assert drawn.dtype == onnx.helper.tensor_dtype_to_np_dtype(code)
    assert list(drawn.shape) == expected
    if drawn.dtype.kind in "iu":
        assert ((drawn >= 0) & (drawn < 10)).all()
    again = random_feed([value], batch=5, empty_dimension=4, random_state=0)["X"]
    np.testing.assert_array_equal(drawn, again)


def test_random_feed_takes_the_inputs_of_a_session():
    from onnxtrain.runtime.session import open_session

    session = open_session(parsed())
    feeds = random_feed(session.get_inputs(), batch=2)
    assert [y.shape for y in session.run(None, feeds)] == [(2, 2), (2, 3), (2,)]


@pytest.mark.parametrize("options", [O.Zero, O.KeepOutputs | O.FillGrad], ids=str)
@pytest.mark.parametrize("weights", [None, ["z"], ["b"]], ids=str)
def test_large_weights_pass_beside_the_graph(monkeypatch, weights, options):
    onx = parsed()
    for w in onx.graph.initializer:  # the parser writes lists of numbers
        w.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(w), w.name))
    expected, before = onnx_derivative(onx, weights=weights, options=options), onx.SerializeToString()
    monkeypatch.setattr(held, "LEAST", 1)
    monkeypatch.setattr(held, "LEAST_IN_ALL", 1)
    assert held.detached(onx)[1]
    assert onnx_derivative(onx, weights=weights, options=options) == expected
    assert onx.SerializeToString() == before


def test_random_feed_refuses_strings():
    value = onnx.helper.make_tensor_value_info("X", onnx.TensorProto.STRING, ["N"])
    with pytest.raises(DataError, match="'X' is not a numeric tensor"):
        random_feed([value])


def test_a_model_whose_scores_are_in_an_operator_of_scikit_learn_is_refused_with_the_conversion():
    rows, classes = load_iris(return_X_y=True)
    rows = rows.astype(np.float32)
    models = [LogisticRegression(max_iter=500).fit(rows, classes), LinearRegression().fit(rows, classes)]
    for model, kind in zip(models, ("LinearClassifier", "LinearRegressor"), strict=True):
        with pytest.raises(GradientError, match=rf"black_op={{'{kind}'}}\) to write a matrix product instead"):
            onnx_derivative(to_onnx(model, rows[:1]))
        operators = [node.op_type for node in onnx_derivative(to_onnx(model, rows[:1], black_op={kind})).graph.node]
        assert {"Gemm", "MatMul"} & set(operators)


# ------------------------------------------------------------ false shapes

#: A model whose input `X` is declared as a scalar; onnxruntime takes arrays of any shape for it.
SCALAR = """<ir_version: 8, opset_import: ["" : 18]> m (float X) => (float Y) <float[3] W = {{1, 2, 3}}>
    {{ {} P = Mul(V, W) Y = ReduceSum <keepdims = 0> (P) }}"""


def test_an_input_declared_as_a_scalar_takes_no_array():
    """The gradients had the wrong shapes, `()` for X and `(4, 3)` for W, without a word."""
    onx = parse_model(SCALAR.format("V = Identity(X)"))
    W, dy = np.array([1, 2, 3], np.float32), np.ones((), np.float32)
    derivative = onnxruntime.InferenceSession(onnx_derivative(onx).SerializeToString())
    dx, dw = derivative.run(None, {"X": np.float32([2.0]), "W": W, "Y_grad": dy})
    assert (float(dx), dw.tolist()) == (6, [2, 2, 2])
    X = np.ones((4, 3), np.float32)
    with pytest.raises(Exception, match=r"'X is declared as a scalar'.*Input shape:\{4,3\}, requested shape:\{\}"):
        derivative.run(None, {"X": X, "W": W, "Y_grad": dy})
    with pytest.raises(DataError, match=r"feeds\['X'\] has shape \(4, 3\), but the model takes \(\)"):
        check_gradient(onx, {"X": X})


def test_an_input_declared_as_a_scalar_that_is_an_output_too():
    square = '<ir_version: 8, opset_import: ["" : 18]> m (float X) => (float Y, float X) { Y = Mul(X, X) }'
    derivative = onnxruntime.InferenceSession(onnx_derivative(parse_model(square)).SerializeToString())
    (dx,) = derivative.run(
        None, {x.name: np.array(3.0 if x.name == "X" else 1.0, np.float32) for x in derivative.get_inputs()}
    )
    assert float(dx) == 7  # 2 x + 1


def test_an_input_declared_as_a_scalar_that_is_only_reshaped_takes_any_array():
    onx = parse_model(SCALAR.format("s = Constant <value_ints = [-1, 3]> () V = Reshape(X, s)"))
    assert check_gradient(onx, {"X": np.arange(12.0)}).keys() == {"X", "W"}


def test_a_product_of_quantized_rows_has_no_gradient_of_zeros():
    """The format QOperator of onnxruntime's quantization."""
    onx = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        quantized (float[N,2] X) => (float[N,2] Y) <int8[2,2] W = {1, 2, 3, 4}, float s = {0.5}, int8 z = {0}>
        { q = QuantizeLinear(X, s, z)  p = QLinearMatMul(q, s, z, W, s, z, s, z)  Y = DequantizeLinear(p, s, z) }""")
    with pytest.raises(ModelError, match=r"in QLinearMatMul .* in the format QOperator.* quant_format=QuantFormat.QDQ"):
        onnx_derivative(onx)


@pytest.mark.parametrize("inputs", ["float[N,2] X, double[N,2] Z", "double[N,2] X, float[N,2] Z"])
def test_operands_of_different_types_are_named(inputs):
    onx = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g ({inputs}) => (float[N,2] Y) {{ h = Add(X, Z)  Y = Tanh(h) }}""")
    with pytest.raises(ModelError, match=r"Add\(X: .*, Z: .*\) has operands of different types. .*put a Cast before"):
        onnx_derivative(onx)


def test_a_weight_of_a_body_is_named():
    onx = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[N,2] X) => (float[N,2] Y) <int64 trips = {3}, float[2,2] W = {1, 2, 3, 4}> {
            h = Loop(trips, , X) <body = b (int64 i, bool c, float[N,2] a) => (bool d, float[N,2] e)
                <float[2,2] V = {1, 2, 3, 4}> { d = Identity(c)  z = MatMul(a, V)  e = Tanh(z) }>
            Y = MatMul(h, W) }""")
    words = r"Known: .* 'V' is in the body of Loop .* Move it to the initializers of the graph, which the body can read"
    with pytest.raises(WeightError, match=words):
        onnx_derivative(onx, weights=["W", "V"])
    with pytest.raises(WeightError, match=words):
        OrtGradientForwardBackward(onx, weights_to_train=["V"])
    with pytest.warns(UserWarning, match="The weights of bodies of Loop, Scan and If are not trained: V. Move them to"):
        assert OrtGradientForwardBackward(onx).weights_to_train == ["W"]
    body = next(a.g for a in onx.graph.node[0].attribute if a.name == "body")
    onx.graph.initializer.append(body.initializer.pop())
    names = [output.name for output in onnx_derivative(onx, weights=["W", "V"]).graph.output]
    assert names == ["X_grad", "W_grad", "V_grad"]


def test_a_weight_in_an_operator_of_trees_is_named():
    trees = onnx.helper.make_node("TreeEnsembleRegressor", ["X"], ["Y"], domain="ai.onnx.ml", n_targets=1)
    ends = [onnx.helper.make_tensor_value_info(name, 1, ["n", 1]) for name in "XY"]
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in (("", 17), ("ai.onnx.ml", 1))]
    onx = onnx.helper.make_model(onnx.helper.make_graph([trees], "g", ends[:1], ends[1:]), opset_imports=opsets)
    with pytest.raises(WeightError, match="no initializer 'nodes_values'. .* Its weights are in TreeEnsembleRegressor"):
        onnx_derivative(onx, weights=["nodes_values"])
