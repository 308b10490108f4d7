"""Parameters, weights and copies that change between two calls: what has no effect is an error, the rest has one."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import onnx
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onnxtrain import LoRA, OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.errors import ParameterError

X, Y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)


def network(seed=0):
    """Return a model with two outputs of three scores."""
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 4] X) => (float[n, 3] A, float[n, 3] B)
        { H = MatMul(X, W) R = Relu(H) A = MatMul(R, V) B = MatMul(R, U) }"""
    )
    drawn = np.random.default_rng(seed).standard_normal
    for name, shape in {"W": (4, 5), "V": (5, 3), "U": (5, 3)}.items():
        onx.graph.initializer.append(onnx.numpy_helper.from_array(drawn(shape).astype(np.float32), name))
    return onx


# ------------------------------------------------------------- another model

COPIES = {
    "itself": lambda model, path: model,
    "pickled": lambda model, path: pickle.loads(pickle.dumps(model)),
    "copied": lambda model, path: copy.deepcopy(model),
    "saved": lambda model, path: save(model, path) or load(path),
}

#: The parameter that the message names, and all that are set.
OTHERS = {
    "estimator": {"estimator": network(1)},
    "weights_to_train": {"weights_to_train": ["W"]},
    "init": {"init": "random"},
    "head": {"head": "new"},
    "head, features": {"head": "new", "features": "R"},
    "output": {"output": "B"},
    "output_is": {"output_is": "scores"},
    "class_axis": {"class_axis": 1},
    "inputs": {"inputs": {"X": 1}},
    "batch_axis": {"batch_axis": {"X": 0}},
    "pad": {"pad": {"X": 0}},
}


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("name", OTHERS)
def test_no_copy_goes_on_with_another_model(name, way, method, tmp_path):
    params = dict(output="A", weights_to_train=["V"], max_iter=1, warm_start=True, random_state=0)
    model = OrtGradientClassifier(network(), **params).fit(IRIS, SPECIES)
    model = COPIES[way](model, tmp_path / "model.onnx")
    expected, before = model.predict_proba(IRIS), {key: getattr(model, key) for key in OTHERS[name]}
    with pytest.raises(ParameterError, match=rf"^{name} changed since the fit that training continues from"):
        getattr(model.set_params(**OTHERS[name]), method)(IRIS, SPECIES)
    np.testing.assert_array_equal(model.predict_proba(IRIS), expected)
    assert getattr(model.set_params(**before), method)(IRIS, SPECIES).n_iter_ == 2


@pytest.mark.parametrize(
    "start, change",
    [
        (lambda: OrtGradientRegressor(Ridge()), {"estimator__fit_intercept": False}),
        (lambda: OrtGradientRegressor(make_pipeline(StandardScaler(), Ridge())), {"estimator__ridge": Ridge(2.0)}),
        (lambda: OrtGradientRegressor(make_pipeline(StandardScaler(), Ridge())), {"estimator__ridge__alpha": 2.0}),
        (
            lambda: OrtGradientRegressor(MLPRegressor(hidden_layer_sizes=(3,), max_iter=3000)),
            {"estimator__hidden_layer_sizes": (4,)},
        ),
    ],
    ids=["a parameter", "a step", "a parameter of a step", "layers"],
)
def test_an_estimator_inside_that_was_changed_is_another_one(start, change):
    (name,) = change
    model = start().set_params(max_iter=1, warm_start=True, random_state=0).fit(X, Y)
    before = model.get_params()[name]
    with pytest.raises(ParameterError, match=rf"{name}.* changed since the fit"):
        model.set_params(**change).fit(X, Y)
    assert model.set_params(**{name: before}).fit(X, Y).n_iter_ == 2


def test_weights_to_train_that_were_changed_in_place(tmp_path):
    model = OrtGradientClassifier(network(), output="A", weights_to_train=["V"], max_iter=1, random_state=0)
    model.fit(IRIS, SPECIES).weights_to_train.append("W")
    with pytest.raises(ParameterError, match="^weights_to_train changed since"):
        model.partial_fit(IRIS, SPECIES)
    model = OrtGradientClassifier(network(), output="A", weights_to_train=LoRA(rank=1), max_iter=1, random_state=0)
    model.fit(IRIS, SPECIES).set_params(weights_to_train__rank=2)
    with pytest.raises(ParameterError, match="^weights_to_train__rank changed since"):
        model.partial_fit(IRIS, SPECIES)
    save(model, tmp_path / "model.onnx")
    with pytest.raises(ParameterError, match="^weights_to_train__rank changed since"):
        load(tmp_path / "model.onnx").partial_fit(IRIS, SPECIES)
    model.set_params(weights_to_train__rank=1, weights_to_train__merge=False)  # which exports read
    assert model.partial_fit(IRIS, SPECIES).n_iter_ == 2


def test_a_file_knows_the_parameters_that_training_began_with(tmp_path):
    params = dict(weights_to_train=["V"], max_iter=1, warm_start=True, random_state=0)
    model = OrtGradientClassifier(network(), output="A", **params).fit(IRIS, SPECIES)
    save(model.set_params(output="B", estimator=None), tmp_path / "model.onnx")
    again = load(tmp_path / "model.onnx")
    assert again.output == "B"
    with pytest.raises(ParameterError, match="^output changed since"):
        again.fit(IRIS, SPECIES)
    assert again.set_params(output="A").fit(IRIS, SPECIES).n_iter_ == 2


def test_the_exported_step_is_not_that_of_another_model(tmp_path):
    model = OrtGradientRegressor(Ridge(), max_iter=1, random_state=0).fit(X, Y).set_params(estimator=Ridge())
    with pytest.raises(ParameterError, match="^estimator changed since"):
        model.export_training_step(tmp_path)
    with pytest.raises(ParameterError, match="^estimator changed since"):
        model.get_training_graphs()


# ------------------------------------------------------------------- weights


def fitted_network(size):
    """Return a fitted network, with sessions that have the weights as inputs, or inside."""
    start = MLPRegressor(hidden_layer_sizes=(size, size), max_iter=1, random_state=0)
    with pytest.warns(match="Maximum iterations"):
        start.fit(X, Y)
    return OrtGradientRegressor(start, max_iter=0, random_state=0).fit(X, Y)


def forward(weights, rows):
    """Return the output of a network of two hidden layers, in float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    h = np.maximum(rows.astype(np.float32) @ w["coefs_0"] + w["intercepts_0"], 0)
    h = np.maximum(h @ w["coefs_1"] + w["intercepts_1"], 0)
    return (h @ w["coefs_2"] + w["intercepts_2"]).ravel()


@pytest.mark.parametrize("size", [4, 400])
def test_predictions_follow_weights_that_are_changed(size):
    model = fitted_network(size)
    expected = model.predict(X)
    weights = model.weights_
    np.testing.assert_array_equal(model.predict(X), expected)
    changes = [
        lambda: weights["coefs_1"].__imul__(0.5),
        lambda: weights["coefs_2"].__iadd__(1),
        lambda: weights.__setitem__("intercepts_1", weights["intercepts_1"] + 1),
        lambda: weights["coefs_0"].__setitem__(slice(None), weights["coefs_0"][::-1].copy()),
    ]
    for change in changes:
        before = model.predict(X)
        change()
        found = model.predict(X)
        assert not np.array_equal(found, before)
        np.testing.assert_allclose(found, forward(weights, X), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(model.predict(X), found)
        model.set_params(n_threads=1 if model.n_threads is None else None)


def test_a_session_is_kept_while_weights_are_looked_at():
    model = fitted_network(400)
    model.weights_  # noqa: B018
    model.predict(X)
    session = model._trained._session._session
    model.weights_  # noqa: B018
    model.predict(X)
    assert session is not None
    assert model._trained._session._session is session


# ---------------------------------------------------------------- parameters


def test_a_fitted_model_is_that_of_its_loss():
    model = OrtGradientClassifier(LogisticRegression(max_iter=500), max_iter=2, random_state=0).fit(IRIS, SPECIES)
    found = [model.losses(IRIS, SPECIES), model.predict_proba(IRIS), model.gradient(IRIS, SPECIES)]
    title = model.summary().title
    model.set_params(loss="hinge", dtype="float64", l2=1.0, class_weight={0: 9.0, 1: 1.0, 2: 1.0}, clip_norm=1.0)
    again = [model.losses(IRIS, SPECIES), model.predict_proba(IRIS), model.gradient(IRIS, SPECIES)]
    for a, b in zip(found, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert model.summary().title == title
    assert not hasattr(model.set_params(dtype="float32").fit(IRIS, SPECIES), "predict_proba")
    counts = OrtGradientRegressor(Ridge(), max_iter=1).fit(X, Y - 200)
    expected = counts.losses(X, Y - 200)
    np.testing.assert_array_equal(counts.set_params(loss="poisson").losses(X, Y - 200), expected)


def test_a_file_knows_the_parameters_of_the_last_fit(tmp_path):
    model = OrtGradientRegressor(Ridge(), loss="huber", max_iter=2, random_state=0).fit(X, Y)
    expected = model.losses(X, Y)
    save(model.set_params(loss="squared_error", dtype="float64"), tmp_path / "model.onnx")
    again = load(tmp_path / "model.onnx")
    assert again.loss == "squared_error"
    np.testing.assert_array_equal(again.losses(X, Y), expected)
    with pytest.raises(ParameterError, match="^dtype='float64', but training continues in float32"):
        again.partial_fit(X, Y)
    again.set_params(dtype="float32").partial_fit(X, Y)
    np.testing.assert_allclose(again.losses(X, Y), (Y - again.predict(X)) ** 2, rtol=1e-4)


def test_the_graphs_of_training_are_those_of_the_next_fit():
    params = dict(solver="sgd", max_iter=1, random_state=0)
    model = OrtGradientRegressor(Ridge().fit(X, Y), **params).fit(X, Y).set_params(loss="absolute_error")
    other = OrtGradientRegressor(Ridge().fit(X, Y), loss="absolute_error", **params).fit(X, Y)
    ours, theirs = (m.get_training_graphs()["gradient"].graph for m in (model, other))
    assert [n.op_type for n in ours.node] == [n.op_type for n in theirs.node]


# ------------------------------------------------------- labels of positions

TOKENS = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, t, 4] X) => (float[n, t, 3] S) { P = MatMul(X, W) S = Add(P, b) }"""
)
for _name, _shape in {"W": (4, 3), "b": (3,)}.items():
    _drawn = np.random.default_rng(0).standard_normal(_shape).astype(np.float32)
    TOKENS.graph.initializer.append(onnx.numpy_helper.from_array(_drawn, _name))

ROWS = np.random.default_rng(0).standard_normal((30, 6, 4)).astype(np.float32)
TAGS = np.random.default_rng(1).choice(3, (30, 6), p=[0.7, 0.2, 0.1])
STEP = dict(solver="sgd", learning_rate=0.1, max_iter=1, batch_size=30, shuffle=False, tol=0, random_state=0)


@pytest.mark.parametrize("class_weight", [{0: 1.0, 1: 1.0, 2: 9.0}, "balanced", None], ids=str)
@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("before", [None, "balanced", {0: 5.0, 1: 1.0, 2: 1.0}], ids=str)
def test_weights_of_classes_are_those_that_are_set(before, way, class_weight, tmp_path):
    """One step of SGD has no memory: it is that of a fresh estimator from where the first one stands."""
    model = OrtGradientClassifier(TOKENS, class_weight=before, **STEP).fit(ROWS, TAGS)
    model = COPIES[way](model, tmp_path / "model.onnx")
    fresh = OrtGradientClassifier(model.get_trained_onnx(), class_weight=class_weight, **STEP).fit(ROWS, TAGS)
    model.set_params(class_weight=class_weight).partial_fit(ROWS, TAGS)
    for name, w in fresh.weights_.items():
        np.testing.assert_allclose(model.weights_[name], w, rtol=0, atol=1e-7)


def test_balanced_weights_of_positions_are_those_of_the_first_rows():
    parts = [OrtGradientClassifier(TOKENS, class_weight="balanced", **STEP).fit(ROWS, TAGS) for _ in range(2)]
    counts = np.bincount(TAGS.ravel())
    weights = dict(enumerate((TAGS.size / (3 * counts)).tolist()))
    parts[0].partial_fit(ROWS[:5], TAGS[:5])
    parts[1].set_params(class_weight=weights).partial_fit(ROWS[:5], TAGS[:5])
    for name, w in parts[0].weights_.items():
        np.testing.assert_allclose(parts[1].weights_[name], w, rtol=0, atol=1e-7)


def test_labels_that_do_not_count_may_be_named_anew():
    model = OrtGradientClassifier(TOKENS, **STEP).fit(ROWS, TAGS)
    padded = np.where(TAGS == 2, 255, TAGS)
    other = np.where(TAGS == 2, -100, TAGS)
    score, losses = model.score(ROWS, other), model.losses(ROWS, other)
    model.set_params(ignore_index=255)
    assert model.score(ROWS, padded) == score
    np.testing.assert_array_equal(model.losses(ROWS, padded), losses)


def test_classes_belong_to_the_model():
    model = OrtGradientClassifier(LogisticRegression(max_iter=500), max_iter=1).fit(IRIS, SPECIES)
    with pytest.raises(AttributeError, match="classes_"):
        model.classes_ = np.array(["a", "b", "c"])
    assert not hasattr(OrtGradientClassifier(), "classes_")
