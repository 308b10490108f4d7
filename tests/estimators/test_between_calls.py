"""Parameters, weights and copies that change between two calls: what has no effect is an error, the rest has one."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import onnx
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import Ridge
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
    with pytest.raises(ParameterError, match=rf"^{name} was set since the fit that training goes on from"):
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
    with pytest.raises(ParameterError, match=rf"{name}.* was set since the fit"):
        model.set_params(**change).fit(X, Y)
    assert model.set_params(**{name: before}).fit(X, Y).n_iter_ == 2


def test_weights_to_train_that_were_changed_in_place():
    model = OrtGradientClassifier(network(), output="A", weights_to_train=["V"], max_iter=1, random_state=0)
    model.fit(IRIS, SPECIES).weights_to_train.append("W")
    with pytest.raises(ParameterError, match="^weights_to_train was set"):
        model.partial_fit(IRIS, SPECIES)
    model = OrtGradientClassifier(network(), output="A", weights_to_train=LoRA(rank=1), max_iter=1, random_state=0)
    model.fit(IRIS, SPECIES).set_params(weights_to_train__rank=2)
    with pytest.raises(ParameterError, match="^weights_to_train__rank was set"):
        model.partial_fit(IRIS, SPECIES)
    model.set_params(weights_to_train__rank=1, weights_to_train__merge=False)  # which exports read
    assert model.partial_fit(IRIS, SPECIES).n_iter_ == 2


def test_a_file_knows_the_parameters_that_training_began_with(tmp_path):
    params = dict(weights_to_train=["V"], max_iter=1, warm_start=True, random_state=0)
    model = OrtGradientClassifier(network(), output="A", **params).fit(IRIS, SPECIES)
    save(model.set_params(output="B", estimator=None), tmp_path / "model.onnx")
    again = load(tmp_path / "model.onnx")
    assert again.output == "B"
    with pytest.raises(ParameterError, match="^output was set"):
        again.fit(IRIS, SPECIES)
    assert again.set_params(output="A").fit(IRIS, SPECIES).n_iter_ == 2


def test_the_exported_step_is_not_that_of_another_model(tmp_path):
    model = OrtGradientRegressor(Ridge(), max_iter=1, random_state=0).fit(X, Y).set_params(estimator=Ridge())
    with pytest.raises(ParameterError, match="^estimator was set"):
        model.export_training_step(tmp_path)
    with pytest.raises(ParameterError, match="^estimator was set"):
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


def test_the_graphs_of_training_are_those_of_the_next_fit():
    params = dict(solver="sgd", max_iter=1, random_state=0)
    model = OrtGradientRegressor(Ridge().fit(X, Y), **params).fit(X, Y).set_params(loss="absolute_error")
    other = OrtGradientRegressor(Ridge().fit(X, Y), loss="absolute_error", **params).fit(X, Y)
    ours, theirs = (m.get_training_graphs()["gradient"].graph for m in (model, other))
    assert [n.op_type for n in ours.node] == [n.op_type for n in theirs.node]
