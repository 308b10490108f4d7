"""Sparse rows: a step that multiplies their stored entries computes the same as one that makes them dense."""

import re

import numpy as np
import onnx
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, rows
from onnxtrain.runtime.device import find_device
from onnxtrain.runtime.session import Place
from onnxtrain.training.data import TrainingData, bytes_of_a_row, rows_at_once
from onnxtrain.training.entries import reading_entries
from onnxtrain.training.evaluate import loss_and_gradient
from onnxtrain.training.objective import Objective, weights_as_inputs

CPU = Place(find_device("cpu"), 1)
N_ROWS, N_COLUMNS = 60, 400

rng = np.random.default_rng(0)
X = scipy.sparse.random(N_ROWS, N_COLUMNS, density=0.02, format="csr", random_state=rng)
X.data[:5] = 0  # stored zeros
X = scipy.sparse.vstack([X, np.zeros((1, N_COLUMNS)), X[:7]], format="csr")
Y = X @ rng.normal(size=(N_COLUMNS, 3)) + rng.normal(size=(X.shape[0], 3))
LABELS = Y.argmax(axis=1)

WEIGHTS = {"W": (N_COLUMNS, 2), "T": (2, N_COLUMNS), "b": (2,), "V": (2, 2), "s": ()}


def objective_of(nodes):
    """A model of X with these nodes, whose initializers are trained."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        products (double[n, {N_COLUMNS}] X) => (double[n, 2] Y) {{ {nodes} }}""")
    names = [name for name in WEIGHTS if name in re.findall(r"\w+", nodes)]
    draw = np.random.default_rng(1)
    weights = {name: np.asarray(draw.normal(size=WEIGHTS[name])) for name in names}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    return Objective(weights_as_inputs(model, names), "Y", "squared_error", tuple(names)), weights


def data_of(x):
    return TrainingData({"X": x}, Y[:, :2], None, {"X": np.dtype(np.float64)})


@pytest.mark.parametrize(
    "nodes",
    [
        "Y = MatMul(X, W)",
        "p = MatMul(X, W) Y = Add(p, b)",
        "Y = Gemm(X, W, b)",
        "Y = Gemm<transB = 1, alpha = 0.5>(X, T)",
        "Y = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(X, T, b)",
        "p = Gemm(X, W, b) h = Tanh(p) Y = MatMul(h, V)",
        "p = MatMul(X, W) q = Gemm<transB = 1>(X, T) h = Sigmoid(q) Y = Mul(p, h)",
        "a = Abs(W) Y = MatMul(X, a)",
        "t = Transpose(T) Y = MatMul(X, t)",
        "p = MatMul(X, W) q = MatMul(p, V) Y = Add(q, p)",
    ],
)
def test_the_loss_and_its_gradient_are_those_of_dense_rows(nodes):
    objective, weights = objective_of(nodes)
    own = reading_entries(objective, data_of(X))
    assert own.data.stored["X"] in (2, 4)
    assert "X" not in [v.name for v in onnx.load_model_from_string(own.objective.model).graph.input]
    found, expected = (
        loss_and_gradient(objective, weights, data, CPU)
        for objective, data in ((own.objective, own.data), (objective, data_of(X.toarray())))
    )
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    for dw, dense in zip(found[1], expected[1], strict=True):
        assert np.abs(dense).max() > 1e-3
        np.testing.assert_allclose(dw, dense, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Abs(X) Y = MatMul(a, W)",
        "p = MatMul(X, W) q = ReduceSum<keepdims = 1>(X) Y = Add(p, q)",
        "x = Mul(X, s) Y = MatMul(x, W)",
        "p = Transpose(X) q = MatMul(T, p) Y = Transpose(q)",
        "p = MatMul(X, W) q = Gemm<transB = 1>(X, X) Y = MatMul(q, p)",
        "p = MatMul(X, W) q = Gemm<transA = 1>(X, p) Y = MatMul(X, q)",
        "c = Cast<to = 9>(s) Y = If(c) <then_branch = t () => (double[n, 2] p) { p = MatMul(X, W) }, "
        "else_branch = e () => (double[n, 2] q) { r = Neg(W) q = MatMul(X, r) }>",
    ],
)
def test_an_input_that_anything_else_reads_stays_dense(nodes):
    objective, _ = objective_of(nodes)
    data = data_of(X)
    assert reading_entries(objective, data) == (objective, data, None)


def test_a_matrix_with_many_entries_stays_dense():
    objective, _ = objective_of("Y = MatMul(X, W)")
    for x in (X.toarray(), scipy.sparse.csr_matrix(np.ones((N_ROWS, N_COLUMNS)))):
        assert reading_entries(objective, data := data_of(x)) == (objective, data, None)


def test_a_model_whose_names_collide_stays_dense():
    objective, _ = objective_of("X.values = MatMul(X, W) Y = Add(X.values, b)".replace("X.values", '"X.values"'))
    assert reading_entries(objective, data := data_of(X)) == (objective, data, None)


def test_entries_in_any_order_and_twice():
    columns, values = np.array([7, 3, 3, 0, 399]), np.arange(1.0, 6)
    x = scipy.sparse.csr_matrix((values, columns, [0, 3, 3, 5]), shape=(3, N_COLUMNS))
    objective, weights = objective_of("Y = MatMul(X, W)")
    data = TrainingData({"X": x}, Y[:3, :2], None, {"X": np.dtype(np.float64)})
    own = reading_entries(objective, data)
    (found, (dw,)), (expected, (dense,)) = (
        loss_and_gradient(*given, CPU) for given in ((own.objective, weights, own.data), (objective, weights, data))
    )
    assert own.data.stored == {"X": 2}
    assert found == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(dw, dense, rtol=1e-12)


def test_as_many_rows_at_once_as_fit_with_their_products():
    n_entries = X.nnz / X.shape[0]
    objective, _ = objective_of("Y = MatMul(X, W)")
    data = reading_entries(objective, data_of(X)).data
    # a column, a row and a value of 8 bytes, and twice two columns
    assert data.sparse_at_once == int(2**22 // int(n_entries * (24 + 2 * 8 * 2)))


def test_pieces_of_stored_entries_are_small_outside_training_too():
    x = scipy.sparse.random(20_000, N_COLUMNS, 0.02, random_state=0, format="csr", dtype=np.float32)
    features, dtypes, stored = {"X": x}, {"X": np.dtype(np.float32)}, {"X": 200}
    n = rows_at_once(features, dtypes, stored)
    assert n * bytes_of_a_row(features, dtypes, stored) <= 2**22
    assert n < rows_at_once(features, dtypes)  # dense


WEIGHT = np.where(np.arange(X.shape[0]) % 5 == 0, 0, 1.0 + np.arange(X.shape[0]) % 3)


@pytest.mark.parametrize(
    "estimator, y, given",
    [
        (LogisticRegression(), LABELS, {}),
        (LogisticRegression(), LABELS == 0, {"l1": 0.01, "penalty": None, "batch_size": 16}),
        (LogisticRegression(), LABELS, {"early_stopping": True, "clip_norm": 0.1}),
        (LogisticRegression(), LABELS, {"solver": "lbfgs"}),
        (OneVsRestClassifier(LogisticRegression()), LABELS, {}),
        (MultinomialNB(), LABELS, {"learning_rate": 1e-2}),
        (MLPClassifier((5,), max_iter=5, random_state=0), LABELS, {"batch_size": 7}),
        (Ridge(), Y, {"shuffle": False}),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_are_those_of_dense_rows(estimator, y, given, monkeypatch):
    kind = OrtGradientRegressor if y is Y else OrtGradientClassifier
    estimator.fit(X, y)

    def fitted():
        model = kind(estimator, max_iter=4, dtype="float64", random_state=0, **given)
        model.fit(X, y, sample_weight=WEIGHT)
        return model if {"solver", "early_stopping"} & given.keys() else model.partial_fit(X[:30], y[:30])

    own = fitted()
    monkeypatch.setattr("onnxtrain.training.entries._SPARSE", -1)
    for name, w in fitted().weights_.items():
        np.testing.assert_allclose(own.weights_[name], w, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("to_validate", [scipy.sparse.csr_matrix, lambda x: x.toarray()], ids=["sparse", "dense"])
@pytest.mark.parametrize("in_parts", [True, False])
def test_a_validation_set_and_rows_in_parts(in_parts, to_validate, monkeypatch):
    estimator = Ridge().fit(X, Y)
    in_files = rows.from_files(range(4), read=lambda i: (X[i * 15 : i * 15 + 15], Y[i * 15 : i * 15 + 15]))
    given = in_files if in_parts else X

    def fitted():
        model = OrtGradientRegressor(estimator, max_iter=3, dtype="float64", random_state=0)
        return model.fit(given, None if in_parts else Y, X_val=to_validate(X[:20]), y_val=Y[:20])

    own = fitted()
    monkeypatch.setattr("onnxtrain.training.entries._SPARSE", -1)
    dense = fitted()
    assert own.validation_loss_curve_ == pytest.approx(dense.validation_loss_curve_, rel=1e-10)
    np.testing.assert_allclose(own.weights_["coef"], dense.weights_["coef"], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("multiclass", [True, False])
def test_predictions_for_wide_rows_are_those_of_dense_rows(multiclass):
    wide = scipy.sparse.hstack([X, scipy.sparse.csr_matrix((X.shape[0], 5000))], format="csr")
    y = LABELS if multiclass else LABELS == 0
    model = OrtGradientClassifier(LogisticRegression(), max_iter=3, random_state=0).fit(wide, y)
    found = model.predict_proba(wide)
    np.testing.assert_allclose(found, model.predict_proba(wide.toarray()), rtol=1e-5)
    np.testing.assert_allclose(found, model.to_sklearn().predict_proba(wide), rtol=1e-5)
    np.testing.assert_allclose(model.losses(wide, y), model.losses(wide.toarray(), y), rtol=1e-4, atol=1e-7)
    for i in (0, 11, N_ROWS):  # of few stored entries, or of none
        np.testing.assert_array_equal(model.predict_proba(wide[i]), found[i : i + 1])
