"""A loss and penalties added to a model: values, gradients, names, errors."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from numpy.testing import assert_allclose
from onnx import numpy_helper
from skl2onnx import to_onnx
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler

from onnxtrain import graph
from onnxtrain.errors import ArgumentTypeError, LossError, ModelError
from onnxtrain.grad_helper import DerivativeOptions, onnx_derivative
from onnxtrain.loss_helper import (
    add_loss_output,
    add_penalty,
    add_row_loss,
    get_train_initializer,
    loss_kind,
    penalty_loss_onnx,
)
from onnxtrain.loss_helper import penalty as penalty_module
from onnxtrain.loss_helper.penalty import check_penalty
from onnxtrain.losses import LOSSES
from onnxtrain.rewrite import rewrite_model
from onnxtrain.runtime.session import run as run_onnxruntime
from onnxtrain.testing import check_gradient


def parse(text):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>\ng {text}')


LINE = "(float[n, 2] X) => (float[n, 1] Y) <float[2, 1] W = {1.0, -2.0}> { Y = MatMul(X, W) }"
CUBE = "(float[n, 2, 2] X) => (float[n, 2, 2] Y) { Y = Neg(X) }"
TWO_OUTPUTS = (
    "(float[n, 2] X) => (int64[n, 1] label, float[n, 2] Y) <float[2, 2] loss = {1.0, 0.0, 0.0, 1.0}>"
    "{ weight = MatMul(X, loss) label = ArgMax <axis = 1> (weight) Y = Softmax(weight) }"
)
X2 = np.array([[1, 0], [0, 1], [1, 1]], dtype=np.float32)
Y2 = np.array([[0], [0], [1]], dtype=np.float32)  # residuals 1, -2, -2


# ----------------------------------------------------------------- values


@pytest.mark.parametrize(
    "name, expected",
    [
        ("squared_error", 9),
        ("l2", 9),
        ("absolute_error", 5),
        ("l1", 5),
        ("elastic", 7),
        ("huber", 3.5),
        ("log_cosh", None),
    ],
)
@pytest.mark.parametrize("shape", [None, (3,), (3, 1)])
def test_weighted_sum_of_the_losses_of_rows(name, expected, shape, run):
    onx = add_loss_output(parse(LINE), name, weight_name=None if shape is None else "w")
    onnx.checker.check_model(onx, full_check=True)
    feeds = {"X": X2, "label": Y2}
    total, prediction = run(onx, feeds if shape is None else {**feeds, "w": np.ones(shape, np.float32)})
    assert total.shape == (1, 1)
    assert total.item() == pytest.approx(np.log(np.cosh([1, 2, 2])).sum() if expected is None else expected, rel=1e-5)
    assert_allclose(prediction, [[1], [-2], [-1]])


@pytest.mark.parametrize("shape", [(60,), (60, 1)])
@pytest.mark.parametrize("name", ["squared_error", "absolute_error", "elastic"])
def test_weights_are_one_factor_a_row(name, shape, run):
    """The ancestor broadcast weights (n,) times losses (n, 1) to (n, n)."""
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:60].astype(np.float32), y[:60].astype(np.float32).reshape(-1, 1) / 100
    w = np.random.default_rng(0).random(shape).astype(np.float32)
    onx = add_loss_output(to_onnx(LinearRegression().fit(X, y), X[:1], target_opset=21), name, weight_name="weight")
    total, prediction = run(onx, {"X": X, "label": y, "weight": w})
    r = prediction - y
    rows = {"squared_error": r**2, "absolute_error": np.abs(r), "elastic": 0.5 * np.abs(r) + 0.5 * r**2}[name]
    assert total.item() == pytest.approx((w.reshape(-1, 1) * rows).sum(), rel=1e-5)


POSITIONS = [
    ("float[n, 4, 3]", -1, lambda s: s),
    ("float[n, 3, 4]", 1, lambda s: np.moveaxis(s, -1, 1)),
    ("float[n, 3, 2, 2]", 1, lambda s: np.moveaxis(s, -1, 1).reshape(-1, 3, 2, 2)),
]


@pytest.mark.parametrize("shape, class_axis, turned", POSITIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore_index", [-100, 2])
def test_the_loss_of_a_classifier_is_the_mean_over_the_positions_that_count(
    shape, class_axis, turned, weighted, ignore_index, run
):
    rng = np.random.default_rng(0)
    scores, y, w = rng.normal(size=(5, 4, 3)), rng.integers(0, 3, (5, 4)), rng.random(5)
    labels = np.where(rng.random(y.shape) < 0.3, ignore_index, y)
    labels[2] = ignore_index
    onx = add_loss_output(
        parse(f"({shape} X) => ({shape} Y) {{ Y = Identity(X) }}"),
        "log",
        weight_name="w" if weighted else None,
        class_axis=class_axis,
        ignore_index=ignore_index,
    )
    X = turned(scores).astype(np.float32)
    feeds = {"X": X, "label": labels.reshape(5, *np.delete(X.shape[1:], class_axis % X.ndim - 1))}
    total, _ = run(onx, feeds | {"w": w.astype(np.float32)} if weighted else feeds)
    counted = labels != ignore_index
    each = np.repeat(w if weighted else np.ones(5), counted.sum(axis=1))
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
    assert total.shape == (1, 1)
    expected = log_loss(y[counted], probabilities[counted], sample_weight=each, labels=[0, 1, 2])
    assert total.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("shape", ["float[n, 4, 3]", "float[n, 3, 2, 2]"])
def test_the_loss_of_a_row_of_a_regressor_is_the_mean_over_its_entries(shape, run):
    rng = np.random.default_rng(0)
    onx = add_loss_output(parse(f"({shape} X) => ({shape} Y) {{ Y = Identity(X) }}"), weight_name="w")
    X = rng.normal(size=(5, 3, 2, 2) if "2" in shape else (5, 4, 3)).astype(np.float32)
    label, w = np.where(rng.random(X.shape) < 0.3, np.nan, 0).astype(np.float32), rng.random(5).astype(np.float32)
    total, _ = run(onx, {"X": X, "label": label, "w": w})
    rows = np.nanmean(((X - label) ** 2).reshape(5, -1), axis=1)
    assert total.item() == pytest.approx(w @ rows, rel=1e-5)


@pytest.mark.parametrize(
    "shape, params, size, labels",
    [
        ("float[n, t, 3]", {"score_name": "log", "class_axis": 2}, (1, 4, 3), [(1, 1), (1, 3), (2, 4), (2, 2)]),
        ("float[n, c, h, w]", {}, (1, 2, 4, 3), [(1, 2, 3, 4), (1, 1, 1, 1), (2, 2, 4, 3)]),
    ],
)
def test_labels_of_other_positions_are_refused(shape, params, size, labels):
    onx = add_loss_output(parse(f"({shape} X) => ({shape} Y) {{ Y = Identity(X) }}"), **params)
    dtype = np.int64 if params else np.float32
    for label in labels:
        feeds = {"X": np.zeros(size, np.float32), "label": np.zeros(label, dtype)}
        with pytest.raises(Exception, match=r"(?i)reshape|broadcast"):
            run_onnxruntime(onx, feeds)


def test_weights_of_another_length_are_refused():
    onx = add_loss_output(parse(LINE), weight_name="weight")
    for n in (1, 2, 4):
        with pytest.raises(Exception, match=r"(?i)reshape"):
            run_onnxruntime(onx, {"X": X2, "label": Y2, "weight": np.ones(n, np.float32)})


CLASSIFIERS = [
    LogisticRegression(max_iter=500),
    MLPClassifier(hidden_layer_sizes=(3,), solver="lbfgs", max_iter=20),
    SGDClassifier(loss="log_loss", random_state=0),
    GaussianNB(),
    RandomForestClassifier(n_estimators=3, max_depth=2, random_state=0),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=lambda e: type(e).__name__)
def test_log_is_the_weighted_mean_of_log_loss(estimator, weighted, n_classes, rewritten):
    X, y = load_iris(return_X_y=True)
    X, y = StandardScaler().fit_transform(X[y < n_classes]).astype(np.float32), y[y < n_classes]
    onx = to_onnx(estimator.fit(X, y), X[:1], options={id(estimator): {"zipmap": False}}, target_opset=21)
    before = onx.SerializeToString()
    onx_loss = add_loss_output(rewrite_model(onx) if rewritten else onx, "log", weight_name="w" if weighted else None)
    assert onx.SerializeToString() == before
    onnx.checker.check_model(onx_loss, full_check=True)
    w = np.random.default_rng(0).random(len(y)).astype(np.float32)
    feeds = {"X": X, "label": y.reshape(-1, 1)} | ({"w": w} if weighted else {})
    total, p = run_onnxruntime(onx_loss, feeds)
    assert total.shape == (1, 1)
    # what is not behind a Softmax or Sigmoid is clipped
    expected = log_loss(y, np.clip(p, 1e-6, 1 - 1e-6), sample_weight=w if weighted else None)
    assert total.item() == pytest.approx(expected, rel=1e-3, abs=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("penalty", [None, {"l1": 1e-2, "l2": 1e-2}])
def test_gradient_of_every_loss_and_penalty(name, penalty):
    X, y = load_iris(return_X_y=True)
    X = X[::9].astype(np.float32)
    y = y[::9]
    classifies = loss_kind(name) == "classification"
    estimator = MLPClassifier((3,), max_iter=3) if classifies else MLPRegressor(hidden_layer_sizes=(3,), max_iter=3)
    if not classifies:
        y = np.exp(X[:, 0] - 5).astype(np.float32)
    estimator.set_params(random_state=0, activation="tanh").fit(X, y)
    onx = to_onnx(estimator, X[:1], options={id(estimator): {"zipmap": False}} if classifies else None, target_opset=21)
    if loss_kind(name) == "regression" and LOSSES[name].prediction.value == "log_mean":
        onx.graph.node.append(onnx.helper.make_node("Exp", [onx.graph.output[0].name], ["mean"]))
        onx.graph.output[0].name = "mean"
    weights = [w for w in get_train_initializer(onx) if w.startswith(("coefficient", "intercepts"))]
    onx = add_loss_output(
        onx, name, weight_name="weight", penalty={w: penalty for w in weights if "coef" in w} if penalty else None
    )
    del onx.graph.output[1:]
    feeds = {"X": X, "label": y.reshape(-1, 1), "weight": np.linspace(0.1, 2, len(y))}
    assert set(check_gradient(onx, feeds, weights=weights, inputs=["X"])) == {"X", *weights}


# --------------------------------------------------------------- penalties


@pytest.mark.parametrize(
    "penalty, expected",
    [
        ({"W": {"l1": 2}}, 6),
        ({"W": {"l2": 3}}, 15),
        ({"W": 3}, 15),
        ({"W": 3.0}, 15),
        ({"W": {"l1": 2, "l2": 3}}, 21),
        ({"W": {"l1": np.float64(2), "l2": np.int64(3)}}, 21),
        ({"W": 0}, 0),
        ({"W": {}}, 0),
        ({}, 0),
        ({"W": 3, "X": {"l1": 10}}, 55),
    ],
)
def test_penalty(penalty, expected, run):
    onx = add_loss_output(parse(LINE), penalty=penalty)
    onnx.checker.check_model(onx, full_check=True)
    total, _ = run(onx, {"X": X2, "label": Y2})
    assert total.item() == pytest.approx(9 + expected)


def test_penalty_of_another_type(run):
    onx = parse(
        "(double[n, 2] X) => (double[n, 1] Y) <float[2, 1] W = {1.0, -2.0}>{ V = Cast <to = 11> (W) Y = MatMul(X, V) }"
    )
    total, _ = run(add_loss_output(onx, penalty={"W": 3}), {"X": X2.astype(float), "label": Y2.astype(float)})
    assert total.item() == pytest.approx(24)


@pytest.mark.parametrize("l1, l2, expected", [(2, None, 6), (None, 3, 15), (2, 3, 21), (0, 3, 15), (0.5, 0, 1.5)])
@pytest.mark.parametrize("dtype", [np.float32, np.dtype("float64"), "float32", onnx.TensorProto.DOUBLE])
def test_penalty_loss_onnx(l1, l2, expected, dtype, run):
    taken = {"X", "W_penalty"}
    initializers, nodes = penalty_loss_onnx("W", dtype, l1, l2, existing_names=taken)
    names = [*(i.name for i in initializers), *(o for n in nodes for o in n.output)]
    assert taken >= {"X", "W", "W_penalty", *names}
    assert len(set(names)) == len(names)
    assert "W_penalty" not in names
    element = initializers[0].data_type
    last = onnx.helper.make_tensor_value_info(nodes[-1].output[0], element, [])
    W = numpy_helper.to_array(initializers[0]).dtype.type([[1.0], [-2.0]])
    w = onnx.helper.make_tensor_value_info("W", element, W.shape)
    onx = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", [w], [last], initializers),
        ir_version=10,
        opset_imports=[onnx.helper.make_opsetid("", 21)],
    )
    onnx.checker.check_model(onx, full_check=True)
    assert run(onx, {"W": W})[0] == pytest.approx(expected)


def test_penalties_of_two_weights_live_in_one_graph():
    taken: set[str] = set()
    found = [penalty_loss_onnx(name, np.float32, 1, 1, taken) for name in ("W", "W2")]
    names = [i.name for initializers, _ in found for i in initializers]
    names += [o for _, nodes in found for n in nodes for o in n.output]
    assert len(set(names)) == len(names)
    assert penalty_loss_onnx("W", np.float32, 1, existing_names=["W_penalty"])[0][0].name == "W_penalty_1"


@pytest.mark.parametrize("l1, l2", [(1, None), (None, 1), (1, 1)])
def test_penalties_are_added_to_a_model_that_has_some(l1, l2, run):
    taken: set[str] = set()
    initializers, nodes = zip(*(penalty_loss_onnx(name, np.float32, l1, l2, taken) for name in ("V", "W")), strict=True)
    total = onnx.helper.make_node("Add", [n[-1].output[0] for n in nodes], ["total"], name=nodes[0][0].name)
    vectors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in ("V", "W")]
    output = onnx.helper.make_tensor_value_info("total", onnx.TensorProto.FLOAT, [])
    graph = onnx.helper.make_graph(
        [*nodes[0], *nodes[1], total], "g", vectors, [output], [*initializers[0], *initializers[1]]
    )
    onx = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    found = run(onx, {"V": np.float32([1, -2]), "W": np.float32([0, 3])})[0]
    assert found == (6 if l1 else 0) + (14 if l2 else 0)


def test_both_penalties_on_a_large_weight(run, monkeypatch):
    small = onnx_with_both()
    monkeypatch.setattr(penalty_module, "_MANY", 1)
    large = onnx_with_both()
    kinds = [sorted({n.op_type for n in onx.graph.node}) for onx in (small, large)]
    assert "Sign" in kinds[0]
    assert "Sign" not in kinds[1]
    totals = [run(onx, {"X": X2, "label": Y2})[0].item() for onx in (small, large)]
    assert totals == pytest.approx([9 + 21] * 2)
    grads = [
        onnx_derivative(onx, weights=["W"], inputs=[], loss="loss", options=DerivativeOptions.Loss)
        for onx in (small, large)
    ]
    found = [run(grad, {"X": X2, "label": Y2})[0] for grad in grads]
    assert_allclose(found[1], found[0])


def onnx_with_both():
    return add_loss_output(parse(LINE), penalty={"W": {"l1": 2, "l2": 3}})


def test_check_penalty_needs_no_model():
    assert check_penalty({"W": 3, "V": {"l1": 1}}) == {"W": (0, 3), "V": (1, 0)}
    with pytest.raises(LossError, match="'W' must be a finite number >= 0, got -3"):
        check_penalty({"W": -3})


@pytest.mark.parametrize(
    "name, dtype, taken, error, words",
    [
        ("", np.float32, None, ArgumentTypeError, "name must be the name of the weight, a string, got ''"),
        ("W", None, None, LossError, "must be a type such as numpy.float32, got None"),
        ("W", np.float32, "W_penalty", ArgumentTypeError, "must be a list or a set of names, got 'W_penalty'"),
        ("W", np.float32, 3, ArgumentTypeError, "existing_names must be a list or a set of names, got 3"),
    ],
)
def test_wrong_arguments_of_a_penalty(name, dtype, taken, error, words):
    with pytest.raises(error, match=words):
        penalty_loss_onnx(name, dtype, l2=1, existing_names=taken)


@pytest.mark.parametrize("l1, l2, expected", [(2.0, 3.0, 21), (0, 0, 0), ("a", "b", 21), (0.0, "b", 15)])
def test_add_penalty_with_factors_known_at_run_time(l1, l2, expected, run):
    model = graph.load(parse("(float a, float b) => (float p) <float[2, 1] W = {1.0, -2.0}> { p = Add(a, b) }"))
    inputs = {v.name: v for v in model.graph.inputs}
    op = graph.builder(model).op
    p = add_penalty(op, model.graph.initializers["W"], inputs.get(l1, l1), inputs.get(l2, l2))
    onx = graph.save(model, outputs=[("penalty", p)])
    (found,) = run(onx, {"a": np.array(2, np.float32), "b": np.array(3, np.float32)})
    assert found.shape == ()
    assert found == pytest.approx(expected)


# ------------------------------------------------------------------- names


def test_names_in_between_and_outputs_not_chosen_make_way(run):
    onx = parse(TWO_OUTPUTS)
    before = onx.SerializeToString()
    with_loss = add_loss_output(onx, "log", weight_name="weight", penalty={"loss": 1})
    assert onx.SerializeToString() == before
    onnx.checker.check_model(with_loss, full_check=True)
    assert [i.name for i in with_loss.graph.input] == ["X", "label", "weight"]
    assert [o.name for o in with_loss.graph.output] == ["loss", "Y"]
    assert next(iter(get_train_initializer(with_loss))) == "loss_1"
    X, label = X2[:2], np.array([[0], [0]])
    total, _ = run(with_loss, {"X": X, "label": label, "weight": np.array([1, 0], np.float32)})
    assert total.item() == pytest.approx(np.log(1 + np.exp(-1)) + 2)


def test_names_in_inner_graphs_make_way():
    onx = parse(
        "(float[n, 1] X, bool c) => (float[n, 1] Y)"
        "{ Y = If (c) <then_branch = t () => (float[n, 1] label) { label = Identity(X) },"
        " else_branch = e () => (float[n, 1] f) { loss = Neg(X) f = Neg(loss) }> }"
    )
    with_loss = add_loss_output(onx)
    total, _ = run_onnxruntime(with_loss, {"X": Y2, "c": np.array(True), "label": Y2 + 1})
    assert total.item() == 3


@pytest.mark.parametrize("name", ["label", "loss", "weight"])
def test_a_model_of_scikit_learn_with_a_taken_name(name):
    X, y = load_diabetes(return_X_y=True)
    onx = to_onnx(LinearRegression().fit(X, y), X[:1].astype(np.float32), target_opset=21)
    text = onnx.printer.to_text(onx)
    for old in ("X", onx.graph.output[0].name):
        renamed = onnx.parser.parse_model(
            text.replace(f" {old})", f" {name})").replace(f" {old} =", f" {name} =").replace(f"({old})", f"({name})")
        )
        with pytest.raises(LossError, match=f"{name!r}. Choose another {name}_name"):
            add_loss_output(renamed, weight_name="weight")
        assert add_loss_output(renamed, loss_name="a", label_name="b", weight_name="c")


@pytest.mark.parametrize("output_index", [None, 1, "Y", -1])
def test_chosen_output_keeps_its_name(output_index):
    onx = add_loss_output(parse(TWO_OUTPUTS), "hinge", output_index=output_index)
    assert [o.name for o in onx.graph.output] == ["loss", "Y"]


def test_output_that_is_an_input(run):
    onx = parse("(float[n, 1] X) => (float[n, 1] X) { }")
    total, X = run(add_loss_output(onx), {"X": Y2 + 2, "label": Y2})
    assert total.item() == 12
    assert_allclose(X, Y2 + 2)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "text, options, error, words",
    [
        (LINE, {"score_name": "sqared_error"}, LossError, "Unknown loss 'sqared_error'. Did you mean 'squared_error'"),
        (LINE, {"delta": 1}, LossError, "'squared_error' has no parameter 'delta'"),
        (LINE, {"penalty": {"V": 1}}, LossError, "penalty names 'V', which is not .* Known: W, X"),
        (LINE, {"penalty": {"Y": 1}}, LossError, "penalty names 'Y'"),
        (LINE, {"penalty": {"W": -1}}, LossError, "l2 of the penalty on 'W' must be a finite number >= 0, got -1"),
        (LINE, {"penalty": {"W": {"l1": -1}}}, LossError, "l1 of the penalty on 'W' must be .* got -1"),
        (LINE, {"penalty": {"W": {"l1": "1"}}}, LossError, "l1 of the penalty on 'W' must be .* got '1'"),
        (LINE, {"penalty": {"W": {"l1": True}}}, LossError, "l1 of the penalty on 'W' must be .* got True"),
        (LINE, {"penalty": {"W": {"L1": 1}}}, LossError, "'W' has an unknown factor 'L1'. Did you mean 'l1'"),
        (LINE, {"penalty": {"W": float("nan")}}, LossError, "must be a finite number >= 0, got nan"),
        (LINE, {"loss_name": "X"}, LossError, "The model already has an input named 'X'. Choose another loss_name"),
        (LINE, {"label_name": "Y"}, LossError, "The model already has an output named 'Y'. Choose another label_name"),
        (LINE, {"weight_name": "X"}, LossError, "The model already has an input named 'X'. Choose another weight_name"),
        (LINE, {"weight_name": "label"}, LossError, "names must differ, got .*label_name='label', weight_name='label'"),
        (LINE, {"weight_name": ""}, LossError, "weight_name must be a non-empty string, got ''"),
        (LINE, {"label_name": 1}, LossError, "label_name must be a non-empty string, got 1"),
        (LINE, {"output_index": 1}, ModelError, "no output 1: the model has 1"),
        (TWO_OUTPUTS, {"output_index": "label"}, ModelError, r"label: INT64\[n,1\] is not floating-point"),
        (
            "(float[n, 2] X) => (float[n, 2] Y, float[n, 2] Z) { Y = Neg(X) Z = Abs(X) }",
            {},
            ModelError,
            "several floating-point outputs: Y",
        ),
        (
            CUBE,
            {"score_name": "log"},
            LossError,
            r"class axis of Y: FLOAT\[n,2,2\] is unknown. Set class_axis",
        ),
        (CUBE, {"score_name": "log", "class_axis": 3}, LossError, "class_axis must be from 1 to 2 for .* got 3"),
        (CUBE, {"score_name": "log", "class_axis": 0}, LossError, "class_axis must be from 1 to 2 for .* got 0"),
        (
            "(float[n, 2, k] X) => (float[n, 2, k] Y) { Y = Neg(X) }",
            {"score_name": "log", "class_axis": -1},
            LossError,
            r"number of classes .*of Y: FLOAT\[n,2,k\] is unknown",
        ),
        ("(float X) => (float Y) { Y = Neg(X) }", {}, LossError, r"requires an output .* got Y: FLOAT\[\]"),
        (
            "(float[] X) => (float[] Y) { Y = Neg(X) }",
            {},
            LossError,
            r"got Y: FLOAT\[\?\].*Declare it with make_tensor",
        ),
        (
            "(float[n, k] X) => (float[n, k] Y) { Y = Softmax(X) }",
            {"score_name": "log"},
            LossError,
            r"number of classes of Y: FLOAT\[n,k\] is unknown",
        ),
        (
            "(float[n, 2] X) => (float[n, 2] Y) { Y = HardSigmoid(X) }",
            {"score_name": "hinge"},
            LossError,
            r"Y: FLOAT\[n,2\] holds probabilities .* Use the loss 'log'",
        ),
        (
            "(float[n, 1] X) => (float[n, 1] Y) { Y = Exp(X) }",
            {"score_name": "hinge"},
            LossError,
            "holds probabilities",
        ),
    ],
)
def test_errors_come_at_once(text, options, error, words):
    onx = parse(text)
    before = onx.SerializeToString()
    with pytest.raises(error, match=words):
        add_loss_output(onx, **options)
    assert issubclass(error, ValueError)
    assert onx.SerializeToString() == before


@pytest.mark.parametrize(
    "l1, l2, words",
    [(None, None, "'W' needs a positive l1 or l2"), (0, 0, "needs a positive"), (-1, 1, "l1 of the penalty on 'W'")],
)
def test_penalty_loss_onnx_errors(l1, l2, words):
    with pytest.raises(LossError, match=words):
        penalty_loss_onnx("W", np.float32, l1, l2)


# -------------------------------------------------------------- row losses


@pytest.mark.parametrize(
    "text, name, label, rows",
    [
        (LINE, "huber", "label: FLOAT[n,1]", "FLOAT[n,1]"),
        ("(float[n, 2] X) => (float[n, 2] Y) { Y = Neg(X) }", "huber", "label: FLOAT[n,2]", "FLOAT[n,1]"),
        ("(float[n] X) => (float[n] Y) { Y = Neg(X) }", "huber", "label: FLOAT[n,1]", "FLOAT[n,1]"),
        ("(double[n] X) => (double[n] Y) { Y = Exp(X) }", "poisson", "label: DOUBLE[n,1]", "DOUBLE[n,1]"),
        ("(float[n] X) => (float[n] Y) { Y = Sigmoid(X) }", "log", "label: INT64[n,1]", "FLOAT[n,1]"),
        ("(float[4, 3] X) => (float[4, 3] Y) { Y = Softmax(X) }", "log", "label: INT64[4,1]", "FLOAT[4,1]"),
        (TWO_OUTPUTS, "log", "label_1: INT64[n,1]", "FLOAT[n,1]"),
        ("(float[?, 1] X) => (float[?, 1] Y) { Y = Neg(X) }", "huber", "label: FLOAT[X_0,1]", "FLOAT[X_0,1]"),
        (
            "(float[?, 2] X) => (float[?, 1] Y) <int64[2] to = {-1, 1}> { Z = Neg(X) Y = Reshape(Z, to) }",
            "huber",
            "label: FLOAT[X_0,1]",
            "FLOAT[X_0,1]",
        ),
        (
            "(float[2] X, int64[2] to) => (float[?, 1] Y) { Y = Reshape(X, to) }",
            "huber",
            "label: FLOAT[rows,1]",
            "FLOAT[rows,1]",
        ),
        (
            "(float[n, 1] X) => (double[n, 1] Y) { E = Exp(X) Y = Cast <to = 11> (E) }",
            "poisson",
            "label: DOUBLE[n,1]",
            "DOUBLE[n,1]",
        ),
    ],
)
def test_label_and_rows_have_the_rows_of_the_prediction(text, name, label, rows):
    model = graph.load(parse(text))
    outputs = list(model.graph.outputs)
    y_true, losses = add_row_loss(model, outputs[-1], name)
    assert graph.describe(y_true) == label
    assert graph.describe(losses).split(": ")[1] == rows
    assert model.graph.inputs[-1] is y_true
    assert list(model.graph.outputs) == outputs


def test_an_output_that_is_not_float_has_no_loss():
    model = graph.load(parse(TWO_OUTPUTS))
    with pytest.raises(LossError, match="requires a floating-point output, got label: INT64"):
        add_row_loss(model, model.graph.outputs[0], "huber")


def test_gradient_needs_no_broadcasting_at_run_time():
    """The names of dimensions are kept: the label has the rows of the prediction."""
    X, y = load_diabetes(return_X_y=True)
    estimator = PoissonRegressor().fit(X, y)
    model = graph.load(rewrite_model(to_onnx(estimator, X[:1].astype(np.float32), target_opset=21)))
    _, rows = add_row_loss(model, model.graph.outputs[0], "poisson")
    onx = onnx_derivative(graph.save(model, outputs=[("rows", rows)]), inputs=[])
    assert not {"Shape", "NonZero", "Expand"} & {node.op_type for node in onx.graph.node}


@pytest.mark.parametrize(
    "head, name, S, y, expected",
    [
        ("HardSigmoid", "log", [[1000], [-1000]], [[0], [0]], [-np.log(1e-6), 0]),
        ("Exp", "log", [[np.log(0.25)]], [[1]], [-np.log(0.25)]),
        ("HardSigmoid", "focal", [[0], [0]], [[0], [1]], [np.log(2) / 4, np.log(2) / 4]),
        ("Sigmoid", "hinge", [[0.25], [3]], [[1], [1]], [0.75, 0]),
    ],
)
def test_probabilities_without_scores_are_clipped(head, name, S, y, expected, run):
    model = graph.load(parse(f"(float[n, 1] S) => (float[n, 1] Y) {{ Y = {head}(S) }}"))
    label, rows = add_row_loss(model, model.graph.outputs[0], name)
    onx = graph.save(model, outputs=[("rows", rows)])
    (found,) = run(onx, {"S": np.array(S, np.float32), label.name: np.array(y)})
    assert_allclose(found.ravel(), expected, rtol=2e-3, atol=1e-5)


def test_eps_is_checked_before_it_is_used():
    onx = parse("(float[n, 2] S) => (float[n, 2] Y) { Y = Clip(S) }")
    with pytest.raises(LossError, match=r"eps must be a finite number > 0 and < 0.5, got 'small'"):
        add_loss_output(onx, "log", eps="small")


@pytest.mark.parametrize("k, y", [(1, 0), (1, 1), (3, 2)])
def test_a_probability_of_zero_has_the_gradient_of_its_loss(k, y):
    """The logarithm rises from 0 to eps by a hundredth: the gradient is that of the loss that is reported."""
    onx = parse(f"(double[n, {k}] S) => (double[n, {k}] Y) {{ Y = Identity(S) }}")
    model = graph.load(onx)
    _, rows = add_row_loss(model, model.graph.outputs[0], "log", output_is="probabilities", loss_params={"eps": 1e-2})
    onx = graph.save(model, outputs=[("rows", rows)])
    p = np.linspace(0.001, 0.05, 9)
    S = np.stack([1 - p, p / 2, p / 2], axis=1) if k == 3 else (p if y else 1 - p).reshape(-1, 1)
    feeds = {"S": S, "label": np.full((9, 1), y)}
    check_gradient(onx, feeds, inputs=["S"])
    found = run_onnxruntime(onx, feeds)[0]
    assert (np.diff(found.ravel()) < 0).all()  # the lower the probability, the higher the loss
    zero = run_onnxruntime(onx, {**feeds, "S": np.where(S < 0.5, 0, 1.0)})[0]
    assert_allclose(zero, -np.log(1e-2), rtol=1e-2)
    derivative = onnx_derivative(onx, weights=[], inputs=["S"])
    (dS,) = run_onnxruntime(derivative, {**feeds, "S": np.zeros_like(S) + (k == 1 and not y), "rows_grad": found})
    assert (np.abs(dS[:, y if k == 3 else 0]) > 2).all()


def test_eps_is_a_parameter():
    onx = parse("(float[n, 2] S) => (float[n, 2] Y) { Y = Clip(S) }")
    onx = add_loss_output(onx, "log", eps=1e-2)
    total, _ = run_onnxruntime(onx, {"S": np.array([[1, 0]], np.float32), "label": np.array([[1]])})
    assert total.item() == pytest.approx(-np.log(0.01), abs=1e-5)


def test_modified_huber_of_sgd_works_on_scores_and_log_on_probabilities():
    X, y = load_iris(return_X_y=True)
    X, y = X[y < 2].astype(np.float32), y[y < 2]
    estimator = SGDClassifier(loss="modified_huber", random_state=0).fit(X, y)
    onx = to_onnx(estimator, X[:1], options={id(estimator): {"zipmap": False}}, target_opset=21)
    m = estimator.decision_function(X) * (2 * y - 1)
    expected = {
        "modified_huber": np.where(m >= -1, np.maximum(0, 1 - m) ** 2, -4 * m).mean(),
        "log": -np.log(np.clip((1 + m.clip(-1, 1)) / 2, 1e-6, 1 - 1e-6)).mean(),
    }
    for name, value in expected.items():
        total, _ = run_onnxruntime(add_loss_output(onx, name), {"X": X, "label": y.reshape(-1, 1)})
        assert total.item() == pytest.approx(value, abs=1e-5)


# ---------------------------------------------------------------- weights


def test_get_train_initializer():
    onx = parse(
        "(float[n, 2] X) => (float[n, 2] Y) <float[2, 2] W = {1, 2, 3, 4}, int64[1] i = {1}, double[1] d = {0.5}>"
        "{ Y = MatMul(X, W) }"
    )
    half = numpy_helper.from_array(np.ones(3, np.float16), "half")
    brain = onnx.helper.make_tensor("brain", onnx.TensorProto.BFLOAT16, [2], [1.0, 2.0])
    onx.graph.initializer.extend([half, brain])
    found = get_train_initializer(onx)
    assert list(found) == ["W", "d", "half", "brain"]
    for name, (array, tensor) in found.items():
        assert tensor.name == name
        assert_allclose(array.astype(np.float32), numpy_helper.to_array(tensor).astype(np.float32))
    assert found["W"][0].tolist() == [[1, 2], [3, 4]]


def test_bytes_and_paths_are_models_too(tmp_path):
    onx = parse(LINE)
    onnx.save(onx, tmp_path / "line.onnx")
    for form in (onx.SerializeToString(), tmp_path / "line.onnx"):
        assert list(get_train_initializer(form)) == ["W"]
        assert [o.name for o in add_loss_output(form).graph.output] == ["loss", "Y"]


def test_own_loss_by_add_loss_output(run):
    def cube(op, y_true, y_pred, *, scale=1.0):
        return op.Mul(op.Pow(op.Abs(op.Sub(y_pred, y_true)), 3.0), scale)

    total, _ = run(add_loss_output(parse(LINE), cube, scale=2.0), {"X": X2, "label": Y2})
    assert total.item() == pytest.approx(34)


@pytest.mark.parametrize(
    "head, name, S, expected",
    [
        ("Sigmoid", "log", [[0]], np.log(2)),
        ("HardSigmoid", "log", [[100]], -np.log(0.999)),
        ("Softmax", "focal", [[0, 0, 0]], np.log(3) * 4 / 9),
        ("Identity", "hinge", [[0.5]], 0.5),
    ],
)
def test_float16(head, name, S, expected):
    k = len(S[0])
    onx = parse(f"(float16[n, {k}] X) => (float16[n, {k}] Y) {{ Y = {head}(X) }}")
    total, _ = run_onnxruntime(add_loss_output(onx, name), {"X": np.array(S, np.float16), "label": np.array([[1]])})
    assert total.dtype == np.float16
    assert total.item() == pytest.approx(expected, rel=1e-2, abs=1e-4)


def test_bfloat16_is_built():
    onx = parse("(bfloat16[n, 3] X) => (bfloat16[n, 3] Y) { Y = Softmax(X) }")
    for name in LOSSES:
        onnx.checker.check_model(add_loss_output(onx, name), full_check=True)


def test_types_of_labels():
    model = graph.load(parse(LINE))
    label, _ = add_row_loss(model, model.graph.outputs[0], "log")
    assert label.dtype is ir.DataType.INT64


def test_numbers_of_loss_and_penalty_are_no_weights():
    line = parse(LINE)
    onx = add_loss_output(line, "huber", weight_name="weight", penalty={"W": {"l1": 0.5, "l2": 2}}, delta=3.0)
    assert set(get_train_initializer(onx)) == set(get_train_initializer(line))
    derivative = onnx_derivative(onx, options=DerivativeOptions.Loss, loss="loss", label="label", inputs=[])
    assert [y.name for y in derivative.graph.output] == [
        "loss",
        *(f"{name}_grad" for name in get_train_initializer(line)),
    ]


@pytest.mark.parametrize("labels", [np.arange(3), np.array(["a", "b", "c"])])
def test_the_probabilities_behind_a_zip_map(labels):
    X, codes = load_iris(return_X_y=True)
    model = LogisticRegression(C=0.1, max_iter=1000).fit(X, labels[codes])
    onx = add_loss_output(to_onnx(model, X[:1].astype(np.float32)), "log")  # with skl2onnx's default ZipMap
    loss = run_onnxruntime(onx, {"X": X.astype(np.float32), "label": codes.reshape(-1, 1)}, outputs=["loss"])[0]
    assert loss.item() == pytest.approx(log_loss(labels[codes], model.predict_proba(X)), rel=1e-4)
