"""Outputs of three and more axes: a label, or a value, for each position of a row."""

import json
import pickle
import warnings

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, log_softmax, softmax
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import cross_val_score

import onnxtrain
from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import DataError, LossError, ModelError, ParameterError
from onnxtrain.losses.link import Link
from onnxtrain.losses.outputs import Columns, find_columns
from onnxtrain.runtime.session import run

N, T, P, K = 12, 5, 4, 3
STEPS = dict(solver="sgd", learning_rate=0.3, batch_size=N, shuffle=False, max_iter=10, tol=0, n_iter_no_change=99)
EXACT = STEPS | dict(dtype="float64")

rng = np.random.default_rng(0)
W, B = rng.normal(size=(P, K)), rng.normal(size=K)
X = rng.normal(size=(N, T, P))
LABELS = rng.integers(0, K, (N, T))
COUNTED = rng.random((N, T)) < 0.7
COUNTED[3] = False  # a row of which no position counts
Y = np.where(COUNTED, LABELS, -100)
WEIGHTS = rng.uniform(0.5, 2, N)


def numbers(array):
    return ", ".join(map(repr, np.asarray(array, float).ravel().tolist()))


def model(head, nodes, declared=None, weights=None, inputs=f"double[n, {T}, {P}] X"):
    """Return a model of one product, in float64; `nodes` make its output of the scores Z, (n, T, K)."""
    weights = (
        f"<double[{P}, {K}] W = {{{numbers(W)}}}, double[{K}] b = {{{numbers(B)}}}>" if weights is None else weights
    )
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> positions ({inputs}) => ({head}) {weights}'
        f"{{ A = MatMul(X, W) Z = Add(A, b) {nodes} }}"
    )


TOKENS = model(f"double[n, {T}, {K}] Z", "")
OPEN = model(f"double[n, t, {K}] Z", "", inputs=f"double[n, t, {P}] X")  # of any length
CHANNELS = model(f"double[n, {K}, {T}] Y", "Y = Transpose <perm = [0, 2, 1]> (Z)")
AVERAGED = model(f"double[n, {T}, 1] Y", "last = Constant <value_ints = [2]> () Y = ReduceMean(Z, last)")
GRID = model(f"double[n, h, w, {K}] Z", "", inputs=f"double[n, h, w, {P}] X")
FLAT = onnx.parser.parse_model(
    f'<ir_version: 10, opset_import: ["" : 21]> rows (double[n, {P}] X) => (double[n, {K}] Z) '
    f"<double[{P}, {K}] W = {{{numbers(W)}}}, double[{K}] b = {{{numbers(B)}}}> {{ A = MatMul(X, W) Z = Add(A, b) }}"
)


def own_formula(op, y_true, y_pred):
    """The squared distance of the scores from the indicators of the classes."""
    return ((y_pred - (y_true == np.arange(K))) ** 2).sum(axis=1, keepdims=True)


# ---------------------------------------------- positions are rows of a table


@pytest.mark.parametrize("onx", [TOKENS, OPEN, CHANNELS], ids=["(n, t, K)", "any t", "(n, K, t)"])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"loss_params": {"label_smoothing": 0.2}},
        {"loss": "hinge"},
        {"loss": "squared_hinge"},
        {"loss": "modified_huber"},
        {"loss": "focal"},
        {"loss": own_formula},
        {"class_weight": {0: 2.0, 2: 0.25}},
        {"class_weight": "balanced"},
        {"solver": "adam", "l2": 0.1},
    ],
    ids=lambda params: ", ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in params.items()),
)
@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["", "sample_weight"])
def test_the_positions_that_count_are_trained_as_rows_of_a_table(onx, params, weight):
    params = EXACT | params
    rows = OrtGradientClassifier(FLAT, **params | dict(batch_size=COUNTED.sum()))
    each = None if weight is None else np.repeat(weight, COUNTED.sum(axis=1))
    rows.fit(X[COUNTED], LABELS[COUNTED], each)
    tuned = OrtGradientClassifier(onx, **params).fit(X, Y, weight)
    for name, w in rows.weights_.items():
        assert_allclose(tuned.weights_[name], w, rtol=1e-9, atol=1e-12)
    assert_allclose(tuned.loss_curve_, rows.loss_curve_, rtol=1e-9)
    assert_array_equal(tuned.classes_, [0, 1, 2])
    assert tuned.predict(X).shape == (N, T)
    assert_array_equal(tuned.predict(X)[COUNTED], rows.predict(X[COUNTED]))
    assert tuned.score(X, Y, weight) == pytest.approx(rows.score(X[COUNTED], LABELS[COUNTED], each))


def test_the_loss_of_a_row_is_the_mean_over_its_positions():
    tuned = OrtGradientClassifier(TOKENS, **EXACT | dict(max_iter=0)).fit(X, Y)
    log_p = log_softmax(X @ W + B, axis=2)
    each = -np.take_along_axis(log_p, LABELS[..., None], axis=2)[..., 0]
    expected = [row[counted].mean() if counted.any() else 0.0 for row, counted in zip(each, COUNTED, strict=True)]
    assert_allclose(tuned.losses(X, Y), expected, rtol=1e-12)
    v = np.where(COUNTED, np.array([2.0, 1.0, 0.25])[LABELS], 0)
    weighted = OrtGradientClassifier(TOKENS, class_weight={0: 2.0, 2: 0.25}, **EXACT | dict(max_iter=0)).fit(X, Y)
    sums = v.sum(axis=1)
    assert_allclose(weighted.losses(X, Y), (v * each).sum(axis=1) / np.where(sums > 0, sums, 1), rtol=1e-12)


def test_sample_weights_give_each_row_the_same_weight():
    per_row = 1 / np.maximum((Y != -100).sum(axis=1), 1)
    tuned = OrtGradientClassifier(TOKENS, **EXACT | dict(max_iter=1)).fit(X, Y, per_row)
    start = OrtGradientClassifier(TOKENS, **EXACT | dict(max_iter=0)).fit(X, Y)
    assert tuned.loss_curve_[0] == pytest.approx(start.losses(X, Y)[COUNTED.any(axis=1)].mean())


@pytest.mark.parametrize("solver", ["sgd", "lbfgs"])
def test_rows_without_a_label_do_not_count(solver):
    params = EXACT | dict(solver=solver, max_iter=5, batch_size=4)
    if solver == "lbfgs":
        params |= dict(batch_size="auto", learning_rate=1e-3)
    rows = COUNTED.any(axis=1)
    tuned = OrtGradientClassifier(TOKENS, **params).fit(X, Y)
    fewer = OrtGradientClassifier(TOKENS, **params).fit(X[rows], Y[rows])
    assert_allclose(tuned.weights_["W"], fewer.weights_["W"], rtol=1e-9)


# ------------------------------------------------------------------ results


#: The output of labels; nodes that compute it from the scores Z, (n, T, K).
ONLY_LABELS = {
    "ArgMax of the last axis": (f"int64[n, {T}] Y", "Y = ArgMax <axis = -1, keepdims = 0> (Z)"),
    "ArgMax of channels": (
        "int64[n, t] Y",
        "C = Transpose <perm = [0, 2, 1]> (Z) Y = ArgMax <axis = 1, keepdims = 0> (C)",
    ),
    "of a declared type only": ("int64 Y", "L = ArgMax <axis = 2, keepdims = 0> (Z) Y = Identity(L)"),
}


@pytest.mark.parametrize("case", ONLY_LABELS)
def test_labels_of_positions_are_trained_by_the_scores_they_are_computed_from(case):
    onx = model(*ONLY_LABELS[case])
    tuned = OrtGradientClassifier(onx, **EXACT).fit(X, Y)
    assert_allclose(tuned.weights_["W"], OrtGradientClassifier(TOKENS, **EXACT).fit(X, Y).weights_["W"], rtol=1e-12)
    trained = tuned.get_trained_onnx()
    assert [(y.name, y.type.tensor_type.elem_type) for y in trained.graph.output] == [("Y", onnx.TensorProto.INT64)]
    assert_array_equal(run(trained, {"X": X})[0], tuned.predict(X))


def test_results_have_the_axes_of_the_output():
    scores = np.moveaxis(X @ W + B, 2, 1)
    tuned = OrtGradientClassifier(CHANNELS, **EXACT | dict(max_iter=0)).fit(X, Y)
    assert_allclose(tuned.decision_function(X), scores, rtol=1e-12)
    assert_allclose(tuned.predict_proba(X), softmax(scores, axis=1), rtol=1e-9)
    assert_allclose(tuned.predict_log_proba(X), log_softmax(scores, axis=1), rtol=1e-9)
    assert_array_equal(tuned.predict(X), scores.argmax(axis=1))
    assert tuned.score(X, Y) == accuracy_score(LABELS[COUNTED], scores.argmax(axis=1)[COUNTED])


ONE = dict(weights=f"<double[{P}, 1] W = {{{numbers(W[:, 0])}}}, double[1] b = {{0.5}}>")


@pytest.mark.parametrize(
    "head, nodes, target, proba, link",
    [
        (f"double[n, {T}, 1] Z", "", (N, T), (N, T, 2), Link.IDENTITY),
        (f"double[n, {T}, 1] Y", "Y = Sigmoid(Z)", (N, T), (N, T, 2), Link.SIGMOID),
        (
            f"double[n, 1, {T}] Y",
            "S = Sigmoid(Z) Y = Transpose <perm = [0, 2, 1]> (S)",
            (N, T),
            (N, 2, T),
            Link.SIGMOID,
        ),
        (f"double[n, {T}, 1] Y", "Y = Sigmoid(Z)", (N, T, 1), (N, T, 1), Link.SIGMOID),
    ],
    ids=["scores", "Sigmoid", "channel", "shape of the output"],
)
def test_one_score_is_that_of_two_classes(head, nodes, target, proba, link):
    y = (LABELS > 0).astype(int).reshape(target)
    tuned = OrtGradientClassifier(model(head, nodes, **ONE), **EXACT).fit(X, y)
    p = expit((X @ tuned.weights_["W"])[..., 0] + tuned.weights_["b"])
    flat = OrtGradientClassifier(FLAT_OF_ONE, **EXACT | dict(batch_size=N * T)).fit(X.reshape(-1, P), y.ravel())
    assert_allclose(tuned.weights_["W"], flat.weights_["W"], rtol=1e-9)
    found = tuned.predict_proba(X)
    assert found.shape == proba
    assert_allclose(
        found.reshape(p.shape)
        if proba[-1] == 1
        else np.moveaxis(found, -1, 1)[:, 1]
        if proba[-1] == 2
        else found[:, 1],
        p,
        rtol=1e-9,
    )
    assert_array_equal(tuned.predict(X), (p > 0.5).astype(int).reshape(target))
    assert tuned.decision_function(X).shape == target
    assert tuned._trained.source.model.link is link


FLAT_OF_ONE = onnx.parser.parse_model(
    f'<ir_version: 10, opset_import: ["" : 21]> rows (double[n, {P}] X) => (double[n, 1] Z) '
    f"<double[{P}, 1] W = {{{numbers(W[:, 0])}}}, double[1] b = {{0.5}}> {{ A = MatMul(X, W) Z = Add(A, b) }}"
)


@pytest.mark.parametrize(
    "head, nodes, link",
    [
        (f"double[n, {T}, {K}] Y", "Y = Softmax <axis = 2> (Z)", Link.SOFTMAX),
        (f"double[n, {K}, {T}] Y", "S = Softmax <axis = -1> (Z) Y = Transpose <perm = [0, 2, 1]> (S)", Link.SOFTMAX),
        (f"double[n, {T}, {K}] Y", "Y = LogSoftmax <axis = 2> (Z)", Link.IDENTITY),
        (f"double[n, {T}, {K}] Y", "S = Softmax <axis = 2> (Z) Y = Clip(S)", Link.PROBABILITY),
    ],
    ids=["Softmax", "Softmax, transposed", "LogSoftmax", "probabilities"],
)
def test_probabilities_are_trained_by_their_scores(head, nodes, link):
    tuned = OrtGradientClassifier(model(head, nodes), **EXACT).fit(X, Y)
    scores = OrtGradientClassifier(TOKENS, **EXACT).fit(X, Y)
    assert tuned._trained.source.model.link is link
    assert_allclose(tuned.weights_["W"], scores.weights_["W"], rtol=1e-6)
    assert_array_equal(tuned.predict(X), scores.predict(X))
    found = tuned.predict_proba(X)
    assert_allclose(found if found.shape[-1] == K else np.moveaxis(found, 1, 2), scores.predict_proba(X), rtol=1e-6)


def test_the_kind_of_an_output_is_seen_on_the_rows():
    """A Reshape between Softmax and output hides it; the rows sum to one along the axis of the classes."""
    nodes = "S = Softmax <axis = 2> (Z) Y = Reshape(S, to)"
    to = f"<double[{P}, {K}] W = {{{numbers(W)}}}, double[{K}] b = {{{numbers(B)}}}, int64[3] to = {{-1, {T}, {K}}}>"
    tuned = OrtGradientClassifier(model(f"double[n, {T}, {K}] Y", nodes, weights=to), **EXACT).fit(X, Y)
    assert tuned.output_is_ == "probabilities"
    assert_allclose(tuned.predict_proba(X).sum(axis=2), 1)


def test_a_softmax_over_another_axis_gives_no_probabilities_of_classes():
    onx = model(f"double[n, {T}, {K}] Y", "Y = Softmax <axis = 1> (Z)")
    with pytest.warns(UserWarning, match="'Y' lies between 0 and 1 .*read as scores. Set output_is='probabilities'"):
        assert OrtGradientClassifier(onx, **EXACT).fit(X, Y).output_is_ == "scores"
    said = OrtGradientClassifier(onx, output_is="probabilities", **EXACT).fit(X, Y)
    assert_allclose(said.predict_proba(X).sum(axis=2), 1)


def test_labels_of_any_kind():
    names = np.array(["name", "other", "place"])
    y = np.where(COUNTED, names[LABELS], "")
    tuned = OrtGradientClassifier(TOKENS, ignore_index="", **EXACT).fit(X, y)
    assert_array_equal(tuned.classes_, names)
    by_index = OrtGradientClassifier(TOKENS, **EXACT).fit(X, Y)
    assert_array_equal(tuned.predict(X), names[by_index.predict(X)])
    assert tuned.score(X, y) == by_index.score(X, Y)


# --------------------------------------------------------------- regression

VALUES = rng.normal(size=(N, T, K))
MISSING = np.where(rng.random(VALUES.shape) < 0.3, np.nan, VALUES)
MISSING[4] = np.nan


@pytest.mark.parametrize("target", [VALUES, MISSING], ids=["", "missing values"])
@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["", "sample_weight"])
@pytest.mark.parametrize(
    "loss, formula",
    [
        ("squared_error", lambda r: r**2),
        ("absolute_error", np.abs),
        ("huber", lambda r: np.where(np.abs(r) <= 1, r**2 / 2, np.abs(r) - 0.5)),
        (lambda op, y_true, y_pred: (y_pred - y_true) ** 4, lambda r: r**4),
    ],
    ids=["squared", "absolute", "huber", "own formula"],
)
def test_the_objective_of_a_regression_is_the_mean_over_its_entries(loss, formula, weight, target):
    tuned = OrtGradientRegressor(TOKENS, loss=loss, **EXACT | dict(max_iter=1)).fit(X, target, weight)
    each = np.ma.masked_invalid(formula(X @ W + B - target))
    weights = np.broadcast_to((np.ones(N) if weight is None else weight)[:, None, None], each.shape)
    assert tuned.loss_curve_[0] == pytest.approx(np.ma.average(each, weights=weights))
    start = OrtGradientRegressor(TOKENS, loss=loss, **EXACT | dict(max_iter=0)).fit(X, target)
    assert_allclose(start.losses(X, target), each.reshape(N, -1).mean(axis=1).filled(0.0), rtol=1e-12)
    assert_allclose(start.predict(X), X @ W + B, rtol=1e-12)
    counted = ~np.isnan(target)
    each = None if weight is None else weights[counted]
    assert start.score(X, target, weight) == pytest.approx(
        r2_score(target[counted], (X @ W + B)[counted], sample_weight=each)
    )


def test_a_mean_and_its_logarithm():
    """The loss of counts takes the input of Exp, and refuses negative counts; those that are missing are none."""
    exp = model(f"double[n, {T}, {K}] Y", "Y = Exp(Z)")
    counts = np.where(np.isnan(MISSING), np.nan, np.round(VALUES**2))
    tuned = OrtGradientRegressor(exp, loss="poisson", **EXACT | dict(max_iter=1, learning_rate=1e-3)).fit(X, counts)
    z = X @ W + B
    assert tuned.loss_curve_[0] == pytest.approx(np.nanmean(np.exp(z) - counts * z))
    with pytest.raises(DataError, match="requires y >= 0, got -1"):
        tuned.fit(X, counts - 1)


def test_labels_without_the_axis_of_one_value():
    one = model(f"double[n, 1, {T}] Y", "Y = Transpose <perm = [0, 2, 1]> (Z)", **ONE)
    tuned = OrtGradientRegressor(one, **EXACT).fit(X, VALUES[..., 0])
    same = OrtGradientRegressor(one, **EXACT).fit(X, VALUES[:, None, :, 0])
    assert_array_equal(tuned.weights_["W"], same.weights_["W"])
    assert_array_equal(tuned.predict(X), same.predict(X)[:, 0])


# ------------------------------------------------------------ the whole line


@pytest.mark.parametrize("estimator, y", [(OrtGradientClassifier, Y), (OrtGradientRegressor, VALUES)])
def test_the_exported_model_predicts_the_same(estimator, y):
    tuned = estimator(CHANNELS if y is Y else TOKENS, **STEPS).fit(X, y)
    (found,) = run(tuned.get_trained_onnx(), {"X": X})
    assert_allclose(found, tuned.decision_function(X) if y is Y else tuned.predict(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "estimator, y",
    [(OrtGradientClassifier(CHANNELS, class_weight="balanced"), Y), (OrtGradientRegressor(TOKENS), MISSING)],
)
def test_files_copies_and_further_training(estimator, y, tmp_path):
    tuned = clone(estimator).set_params(**STEPS).fit(X, y)
    path = tmp_path / "positions.onnx"
    onnxtrain.save(tuned, path)
    for copied in (onnxtrain.load(path), pickle.loads(pickle.dumps(tuned))):
        assert_array_equal(copied.predict(X), tuned.predict(X))
        assert_array_equal(copied.losses(X, y), tuned.losses(X, y))
        more = clone(estimator).set_params(**STEPS).fit(X, y).partial_fit(X, y)
        assert_array_equal(copied.partial_fit(X, y).weights_["W"], more.weights_["W"])
    again = clone(estimator).set_params(**STEPS | dict(max_iter=4))
    again.fit(X, y, checkpoint=tmp_path / "kept.onnx")
    again.set_params(max_iter=10).fit(X, y, checkpoint=tmp_path / "kept.onnx", resume=True)
    assert_array_equal(again.weights_["W"], tuned.weights_["W"])


@pytest.mark.parametrize("estimator, y", [(OrtGradientClassifier(OPEN), Y), (OrtGradientRegressor(OPEN), MISSING)])
@pytest.mark.filterwarnings("ignore:The validation set")
def test_validation_search_and_gradients(estimator, y):
    tuned = clone(estimator).set_params(early_stopping=True, validation_fraction=0.25, random_state=0, max_iter=5)
    assert len(tuned.fit(X, y).validation_loss_curve_) == tuned.n_iter_
    longer = np.concatenate([X, X[:, :2]], axis=1)  # of another length
    filled = np.concatenate([y, y[:, :2]], axis=1)
    tuned.set_params(early_stopping=False, validation_fraction=0.1).fit({"X": X}, y, X_val={"X": longer}, y_val=filled)
    assert tuned.predict({"X": longer}).shape == filled.shape
    weights = (y != -100).sum(axis=1) if y is Y else (~np.isnan(y)).sum(axis=(1, 2))
    tuned.set_params(max_iter=1, learning_rate=1e-9, dtype="float64").fit(X, y, X_val=X, y_val=y)
    start = clone(tuned).set_params(max_iter=0).fit(X, y)
    assert tuned.validation_loss_curve_[0] == pytest.approx(np.average(start.losses(X, y), weights=weights), rel=1e-5)
    assert len(cross_val_score(clone(estimator).set_params(max_iter=2), X, y, cv=3)) == 3
    dx, eps = start.gradient(X, y), 1e-6
    moved = X.copy()
    moved[:, 1, 2] += eps
    assert_allclose(dx[:, 1, 2], (start.losses(moved, y) - start.losses(X, y)) / eps, atol=1e-4)
    with pytest.raises(ModelError, match="Pass y"):
        start.gradient(X)


def test_a_new_head_has_the_classes_that_count():
    other = np.where(COUNTED, LABELS + 3 * (X[..., 0] > 1), -100)
    two = model(
        f"double[n, {T}, {K}] Y",
        "H = Tanh(Z) Y = MatMul(H, V)",
        weights=f"<double[{P}, {K}] W = {{{numbers(W)}}}, double[{K}] b = {{0, 0, 0}}, double[{K}, {K}] V = {{{numbers(np.eye(K))}}}>",
    )
    tuned = OrtGradientClassifier(two, head="new", weights_to_train="head", random_state=0, max_iter=3).fit(X, other)
    assert_array_equal(tuned.classes_, np.unique(other[COUNTED]))
    assert tuned.predict_proba(X).shape == (N, T, len(tuned.classes_))


@pytest.mark.parametrize(
    "onx, turned",
    [(TOKENS, lambda y: y), (GRID, lambda y: y[:, :4].reshape(N, 2, 2))],
    ids=["(n, t, K)", "(n, h, w, K)"],
)
@pytest.mark.parametrize("class_weight", [None, {0: 2.0, 1: 0.5, 2: 1.0}], ids=["", "class_weight"])
def test_the_step_as_files_is_that_of_fit(onx, turned, class_weight, tmp_path):
    x = X if onx is TOKENS else X[:, :4].reshape(N, 2, 2, P)
    params = STEPS | dict(class_weight=class_weight)
    OrtGradientClassifier(onx, **params | dict(max_iter=0)).fit(x, turned(Y)).export_training_step(tmp_path)
    about = json.loads((tmp_path / "step.json").read_text())
    assert "class_weight" not in about["host"]
    counted = turned(COUNTED)
    label = np.where(counted, turned(LABELS), -1)
    v = np.ones(K) if class_weight is None else np.array(list(class_weight.values()))
    weight = np.where(counted, v[turned(LABELS)], 0).reshape(N, -1).sum(axis=1)
    init, step = (onnx.load(tmp_path / f"{name}.onnx") for name in ("init", "step"))
    state = dict(zip([o.name for o in init.graph.output], run(init, {}), strict=True))
    outputs = [o.name for o in step.graph.output]
    given = {*state, "y", "sample_weight", "learning_rate"}
    (rows,) = (i.name for i in step.graph.input if i.name not in given)
    label = label.astype(about["step"]["inputs"]["y"]["dtype"])
    feeds = {rows: x.astype(np.float32), "y": label, "sample_weight": weight.astype(np.float32)}
    for _ in range(STEPS["max_iter"]):
        found = run(step, feeds | {"learning_rate": np.array([STEPS["learning_rate"]])} | state)
        state = {name.removeprefix("next_"): x for name, x in zip(outputs, found, strict=True) if name != "loss"}
    elsewhere = OrtGradientClassifier(onx, **params | dict(max_iter=0)).fit(x, turned(Y)).load_training_state(state)
    here = OrtGradientClassifier(onx, **params).fit(x, turned(Y))
    assert_allclose(elsewhere.weights_["W"], here.weights_["W"], rtol=1e-5)


def test_partial_fit_knows_classes_to_come():
    tuned = OrtGradientClassifier(TOKENS, **EXACT).partial_fit(X, np.zeros((N, T), int), classes=[0, 1, 2])
    assert_array_equal(tuned.partial_fit(X, Y).classes_, [0, 1, 2])
    with pytest.raises(DataError, match="labels that the model does not know: 7"):
        tuned.partial_fit(X, np.where(COUNTED, 7, -100))


def test_evaluation_is_cut_into_pieces(monkeypatch):
    tuned = OrtGradientClassifier(TOKENS, **EXACT).fit(X, Y)
    whole = tuned.predict_proba(X), tuned.losses(X, Y), tuned.predict(X)
    monkeypatch.setattr("onnxtrain.training.data._RESULTS", 1)
    for found, expected in zip((tuned.predict_proba(X), tuned.losses(X, Y), tuned.predict(X)), whole, strict=True):
        assert_allclose(found, expected, rtol=1e-12)
    assert next(tuned._model.predict(X, "Z")).shape == (1, T, K)


# ------------------------------------------------------------- axes, errors


@pytest.mark.parametrize(
    "shape, target, told, expected",
    [
        ((None, 7, 5), (7,), None, (2, 5)),
        ((None, None, 5), (7,), None, (2, 5)),
        ((None, 5, 7), (7,), None, (1, 5)),
        ((None, 21, None, None), (21, 21), None, (1, 21)),
        ((None, None, None, 21), (8, 8), None, (3, 21)),
        ((None, 5, 5), (5,), -1, (2, 5)),
        ((None, 5, 5), (5,), 1, (1, 5)),
        ((None, 5, 7), (5, 7), None, (None, 1)),
        ((None, 1, 8, 8), (8, 8), None, (1, 1)),
        ((None, None, None), (7,), None, (None, 0)),
    ],
)
def test_the_axis_of_the_classes_is_the_one_that_labels_lack(shape, target, told, expected):
    assert find_columns("Y", shape, target, told) == Columns(*expected)


@pytest.mark.parametrize(
    "shape, target, told, error, words",
    [
        (
            (None, 5, 5),
            (5,),
            None,
            DataError,
            r"\(n, 5, 5\) and y of shape \(n, 5\) allow the axes 1 and 2. Set class_axis=1",
        ),
        (
            (None, 5, 7),
            (6,),
            None,
            DataError,
            r"y has shape \(n, 6\), but the output 'Y' has shape \(n, 5, 7\). y must have one label",
        ),
        ((None, 5, 7), (5, 6), None, DataError, r"y has shape \(n, 5, 6\), but the output 'Y' has shape \(n, 5, 7\)"),
        ((None, 5, 7), (7,), 2, DataError, "without its class axis, class_axis=2"),
        ((None, 5, 7), (5, 7), 2, DataError, r"y has shape \(n, 5, 7\)"),
        ((None, 5, 7), (1, 5), None, DataError, r"Pass numpy.squeeze\(y, axis=1\)\.$"),
        ((None, 5, 7), (6, 1), None, DataError, r"or one value per entry \(the shape of the output\)\.$"),
        ((None, 5, 7), (7,), 3, ParameterError, "class_axis must be from 1 to 2 for the output 'Y' with 3 axes, got 3"),
        ((None, 5, 7), (7,), 0, ParameterError, "got 0. Axis 0 holds the rows"),
    ],
)
def test_axes_that_do_not_fit_are_named(shape, target, told, error, words):
    with pytest.raises(error, match=words):
        find_columns("Y", shape, target, told)


UNDECLARED = onnx.ModelProto()
UNDECLARED.CopyFrom(TOKENS)
UNDECLARED.graph.output[0].type.tensor_type.ClearField("shape")
SQUARE = X[:, :K]
NO_PROBABILITIES = model(f"double[n, {T}, {K}] Y", "Y = Softmax <axis = 2> (Z)")


def square(**params):
    """Fit a model whose lengths are equal."""
    onx = model(f"double[n, {K}, {K}] Z", "", inputs=f"double[n, {K}, {P}] X")
    return OrtGradientClassifier(onx, max_iter=1, **params).fit(SQUARE, LABELS[:, :K])


@pytest.mark.parametrize(
    "fit, error, words",
    [
        (
            lambda: OrtGradientClassifier(TOKENS).fit(X, LABELS[:, 0]),
            DataError,
            r"has 3 axes, but y has shape \(n,\). y must have",
        ),
        (
            lambda: OrtGradientClassifier(FLAT).fit(X[:, 0], LABELS[..., None]),
            DataError,
            r"one result per row, \(n, k\)",
        ),
        (
            lambda: OrtGradientClassifier(TOKENS).fit(X, LABELS[:, :4]),
            DataError,
            r"y has shape \(n, 4\), but the output",
        ),
        (
            lambda: OrtGradientClassifier(OPEN).fit(X, LABELS[:, :4]),
            DataError,
            r"labels of a row must have shape \(5,\), .* \(4,\)",
        ),
        (lambda: OrtGradientClassifier(TOKENS).fit(X, LABELS + 1), None, None),
        (
            lambda: OrtGradientClassifier(TOKENS).fit(X, LABELS * 2 + (X[..., 0] > 0)),
            DataError,
            "3 classes, but y has 6: 0, 1",
        ),
        (
            lambda: OrtGradientClassifier(TOKENS).fit(X, np.where(COUNTED, LABELS, 255)),
            DataError,
            "y has 4: .*ignore_index",
        ),
        (
            lambda: OrtGradientClassifier(TOKENS).fit(X, np.full((N, T), -100)),
            DataError,
            "All labels in y equal ignore_index=-100",
        ),
        (lambda: OrtGradientClassifier(TOKENS).fit(X, VALUES[..., 0]), DataError, "Unknown label type: continuous"),
        (
            lambda: OrtGradientClassifier(TOKENS).fit(X, [[0] * T] * (N - 1) + [[0]]),
            DataError,
            "different lengths. Pad",
        ),
        (lambda: OrtGradientClassifier(TOKENS).fit(X[1:], Y), DataError, "inconsistent numbers of samples"),
        (
            lambda: OrtGradientClassifier(TOKENS, class_weight=[{0: 1}]).fit(X, Y),
            DataError,
            "one class per position",
        ),
        (
            lambda: OrtGradientClassifier(NO_PROBABILITIES).fit(X, VALUES > 0),
            LossError,
            "sum to 1, so each row has exactly one class",
        ),
        (
            lambda: OrtGradientRegressor(TOKENS).fit(X, VALUES[..., 0]),
            DataError,
            r"has 3 values for each entry of y, on axis 2.* use OrtGradientClassifier\.$",
        ),
        (
            lambda: OrtGradientRegressor(AVERAGED).fit(X, VALUES[:, 0, :1]),
            DataError,
            r"on axis 1.* For one value per row, pass y.ravel\(\), set head='new', and features= to a value",
        ),
        (lambda: OrtGradientRegressor(TOKENS).fit(X, np.abs(VALUES) * np.inf), DataError, "Input y contains infinity"),
        (lambda: OrtGradientRegressor(TOKENS).fit(X, VALUES * np.nan), DataError, "All values in y are NaN"),
        (lambda: OrtGradientRegressor(TOKENS).fit(X, VALUES.astype(str)), DataError, "y must be numeric"),
        (square, DataError, "Set class_axis=1 or class_axis=2"),
        (lambda: square(class_axis=2), None, None),
        (lambda: square(class_axis=-2), None, None),
        (
            lambda: square(class_axis=7),
            ParameterError,
            "class_axis must be from 1 to 2 for the output 'Z' with 3 axes, got 7",
        ),
        (lambda: OrtGradientClassifier(UNDECLARED, max_iter=1).fit(X, Y), None, None),
    ],
)
def test_errors_name_shapes_and_remedies(fit, error, words):
    if error is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert fit().predict(SQUARE if "square" in fit.__code__.co_names else X).ndim == 2
        return
    with pytest.raises(error, match=words):
        fit()


def test_an_axis_of_classes_needs_positions():
    for estimator in (FLAT, None):
        with pytest.raises(ParameterError, match="class_axis=1 applies to outputs with three .* Set class_axis=None"):
            OrtGradientClassifier(estimator, class_axis=1).fit(X[:, 0], np.arange(N) % K)


#: Labels of positions, parameters; whether -1 may be meant as padding.
PADDED = {
    "-1, 0, 1": (np.where(LABELS == 2, -1, LABELS), {}, True),
    "-1, 0, 1, floats": (np.where(LABELS == 2, -1.0, LABELS), {}, True),
    "a new head": (np.where(COUNTED, LABELS, -1), {"head": "new"}, True),
    "named": (np.where(COUNTED, LABELS, -1), {"ignore_index": -1}, False),
    "a class": (np.where(LABELS == 2, -1, LABELS), {"ignore_index": None}, False),
    "-100 is there": (np.where(COUNTED, LABELS - 1, -100), {}, False),
    "-1 and 1": (np.where(LABELS > 0, 1, -1), {"head": "new"}, False),
    "texts": (LABELS.astype(str), {}, False),
}


@pytest.mark.parametrize("case", PADDED)
def test_padding_of_another_label_is_named(case):
    y, params, warned = PADDED[case]
    tuned = OrtGradientClassifier(TOKENS, max_iter=0, dtype="float64", **params)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        tuned.fit(X, y)
    assert ["set ignore_index=-1" in str(w.message) for w in found] == [True] * warned
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # classes that were told are meant
        OrtGradientClassifier(TOKENS, dtype="float64", **params).partial_fit(X, y, classes=tuned.classes_)


@pytest.mark.parametrize("lengths", [(N, T), (N, N)], ids=["", "as many steps as rows"])
def test_the_first_axis_must_be_the_rows(lengths, tmp_path, monkeypatch):
    """A model that gives its steps first is refused, and the remedies work: a transposed result."""
    x = rng.normal(size=(*lengths, P))
    y = rng.integers(0, K, lengths)
    inputs = f"double[n, t, {P}] X"
    time_first = model(f"double[t, n, {K}] Y", "Y = Transpose <perm = [1, 0, 2]> (Z)", inputs=inputs)
    with pytest.raises(
        ModelError, match=r"the rows are on axis 1. .* batch_first=True .*result.transpose\(0, 1\)"
    ) as e:
        OrtGradientClassifier(time_first, **STEPS).fit(x, y)
    onnx.save(time_first, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    exec("\n".join(line[4:] for line in str(e.value).splitlines() if line.startswith("    ")), globals(), code := {})
    changed = OrtGradientClassifier(code["estimator"], output=code["output"], **EXACT).fit(x, y)
    nodes = "Y = Transpose <perm = [1, 0, 2]> (Z) R = Transpose <perm = [1, 0, 2]> (Y)"
    tuned = OrtGradientClassifier(model(f"double[n, t, {K}] R", nodes, inputs=inputs), **EXACT).fit(x, y)
    same = OrtGradientClassifier(OPEN, **EXACT).fit(x, y)
    assert_allclose(tuned.weights_["W"], same.weights_["W"])
    assert_allclose(changed.weights_["W"], same.weights_["W"])


def test_one_label_a_row_by_features():
    """The remedy of the error: a new head on a value whose mean over the positions decides the class."""
    tuned = OrtGradientClassifier(TOKENS, head="new", features="Z", max_iter=2, random_state=0).fit(X, LABELS[:, 0])
    assert tuned.predict(X).shape == (N,)


def test_the_declared_number_of_classes_is_taken_where_inference_finds_none():
    """PyTorch's exporter with do_constant_folding=False joins the scales of a Resize from two constants."""
    enlarging = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> pixels (float[n, 1, h, w] X) => (float[n, 3, H, W] Y)
        <float[3, 1, 1, 1] W = {1, 2, 3}> {
            c = Conv(X, W) one = Constant<value_floats = [1.0, 1.0]>() two = Constant<value_floats = [2.0, 2.0]>()
            scales = Concat<axis = 0>(one, two) Y = Resize(c, , scales)
        }"""
    )
    images, kinds = rng.normal(size=(N, 1, 2, 2)), rng.integers(0, 3, (N, 4, 4))
    assert OrtGradientClassifier(enlarging, max_iter=1).fit(images, kinds).predict_proba(images).shape == (N, 3, 4, 4)
