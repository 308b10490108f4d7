"""Containers of rows: the same fit from each, without needless copies."""

import tracemalloc
import warnings
from contextlib import nullcontext

import numpy as np
import onnx
import pandas as pd
import pytest
import scipy.sparse
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from onnxtrain import OrtGradientRegressor
from onnxtrain.estimators.validation import check_size
from onnxtrain.training import data as data_module
from onnxtrain.training.data import TrainingData

X, y = load_diabetes(return_X_y=True)
X = X.astype(np.float32)
START = LinearRegression().fit(X, y)


def tuned(**params):
    return OrtGradientRegressor(START, max_iter=2, random_state=0, batch_size=64, **params)


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def frame(library):
    return lambda x: pytest.importorskip(library).DataFrame({f"c{i}": column for i, column in enumerate(x.T)})


KINDS = {
    "read-only": read_only,
    "Fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "list": lambda x: x.tolist(),
    "pandas": frame("pandas"),
    "polars": frame("polars"),
    "csr_array": scipy.sparse.csr_array,
    "csr_matrix": scipy.sparse.csr_matrix,
    "csc": scipy.sparse.csc_array,
    "float64": lambda x: x.astype(np.float64),
    "float128": lambda x: x.astype(np.longdouble),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_fit(kind):
    expected, found = tuned().fit(X, y), tuned().fit(KINDS[kind](X), y)
    np.testing.assert_allclose(found.weights_["coef"], expected.weights_["coef"], rtol=1e-5)
    np.testing.assert_allclose(found.predict(KINDS[kind](X)), expected.predict(X), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "int64", "bool"])
def test_other_numbers(dtype):
    rounded = (100 * X).round().clip(0, 1 if dtype == "bool" else 100).astype(dtype)
    expected, found = tuned().fit(rounded.astype(np.float32), y), tuned().fit(rounded, y)
    np.testing.assert_array_equal(found.weights_["coef"], expected.weights_["coef"])


def test_a_memmap_is_not_copied(tmp_path, monkeypatch):
    mapped = np.memmap(tmp_path / "X", dtype=np.float32, mode="w+", shape=X.shape)
    mapped[:] = X
    seen = []
    make = TrainingData.__init__
    monkeypatch.setattr(TrainingData, "__init__", lambda self, *a, **k: (seen.append(a[0]), make(self, *a, **k))[1])
    found = tuned().fit(mapped, y)
    (features,) = seen
    (rows,) = features.values()
    assert np.shares_memory(rows, mapped)
    np.testing.assert_array_equal(found.weights_["coef"], tuned().fit(X, y).weights_["coef"])


def test_the_check_of_targets_copies_none():
    targets = np.resize(y, 10**6)
    tracemalloc.start()
    check_size(targets, "float32")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.1 * targets.nbytes


def test_csr_rows_are_made_dense_batch_by_batch(monkeypatch):
    largest = []
    dense = data_module.dense
    monkeypatch.setattr(data_module, "dense", lambda x, dtype: (largest.append(x.shape[0]), dense(x, dtype))[1])
    tuned().set_params(max_iter=1).fit(scipy.sparse.csr_array(X), y)  # after more epochs, all rows are evaluated
    assert max(largest) == 64


@pytest.mark.parametrize("shuffle", [True, False])
def test_very_many_rows_are_visited_block_by_block(monkeypatch, shuffle):
    monkeypatch.setattr(data_module, "LARGE", 100)
    monkeypatch.setattr(data_module, "_BLOCK", 100)
    monkeypatch.setattr(data_module, "_NEIGHBOURS", 10)
    data = TrainingData({"X": X}, y.reshape(-1, 1), None, {"X": X.dtype})
    assert data.in_blocks
    assert data.at_hand is None
    found = list(data.shuffled(32, np.random.RandomState(0) if shuffle else None))
    assert sorted(map(len, found)) == [442 % 32, *[32] * (442 // 32)]
    order = np.concatenate(found)
    assert np.array_equal(order, np.arange(442)) != shuffle
    assert np.array_equal(np.sort(order), np.arange(442))
    model = tuned(shuffle=shuffle).fit(X, y)
    # each block has rows from everywhere: steps of sorted rows see all classes
    means = [np.mean(rows) for rows in (order[start : start + 100] for start in range(0, 400, 100))]
    assert (np.ptp(means) < 200) == shuffle
    monkeypatch.setattr(data_module, "LARGE", 1000)
    expected = tuned(shuffle=shuffle).fit(X, y)
    if not shuffle:
        np.testing.assert_allclose(model.weights_["coef"], expected.weights_["coef"], rtol=1e-5)
    np.testing.assert_allclose(model.predict(X), expected.predict(X), rtol=0.01)


@pytest.mark.parametrize("offset, step, loses", [(2**30, 60, True), (2**30, 2**25, False), (5, 0, False)])
@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame])
def test_columns_that_lose_their_digits_in_float32(offset, step, loses, form):
    X = np.random.default_rng(0).normal(size=(100, 2))
    y = X.sum(axis=1)
    X[:, 1] = offset + step * X[:, 1]
    X = form(X)
    words = r"float32 rounds the columns \[1\] of X by up to .* Subtract an offset"
    columns = ColumnTransformer([("all", "passthrough", [0, 1])])
    for steps in [(), (columns,)]:
        with pytest.warns(UserWarning, match=words) if loses else nullcontext():
            OrtGradientRegressor(make_pipeline(*steps, DecisionTreeRegressor(max_depth=3)), max_iter=1).fit(X, y)
    scaled = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y)
    with pytest.warns(UserWarning, match="^scikit-learn runs 'standardscaler'") if loses else nullcontext():
        tuned = OrtGradientRegressor(scaled, max_iter=0).fit(X, y)
    assert tuned.onnx_status_["standardscaler"] == ("scikit-learn" if loses else "ONNX")
    np.testing.assert_allclose(tuned.predict(X), scaled.predict(X), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "offset, scale, words",
    [
        (1.7e9, 100, "float32 rounds y by up to .* of its range.*Subtract an offset from y and add it"),
        (0, 1e-50, "float32 rounds y by up to .* of its range"),
        (0, 1e-30, "The range of y is .*, and squares of such numbers are 0 in float32. Multiply y by a constant"),
        (1e4, 100, None),
        (0, 1e-12, None),
        (1e12, 0, None),
    ],
)
def test_targets_that_float32_does_not_tell_apart(offset, scale, words):
    """As times in seconds: a linear model of R² 1 has one below 0 in float32, before its first step."""
    X = np.random.default_rng(0).normal(size=(100, 2))
    y = offset + scale * X.sum(axis=1)
    with pytest.warns(UserWarning, match=words) if words else nullcontext():
        OrtGradientRegressor(max_iter=0).fit(X, y)
    exact = OrtGradientRegressor(max_iter=0, dtype="float64").fit(X, y)  # filterwarnings = error
    np.testing.assert_allclose(exact.predict(X), y, rtol=0, atol=1e-6 * scale + 1e-15 * offset)


def test_integers_that_a_model_takes_as_such_lose_nothing():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (int64[n, 1] X) => (float[n, 1] Y) <int64[1] first = {20000000}, '
        "float[1, 1] W = {3}> { D = Sub(X, first) F = Cast <to = 1> (D) Y = MatMul(F, W) }"
    )
    rows = 20_000_000 + np.arange(5).reshape(-1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        start = OrtGradientRegressor(model, max_iter=0).fit(rows, np.arange(5.0))
    assert start.predict(rows).tolist() == [0, 3, 6, 9, 12]
