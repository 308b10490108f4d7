"""Conversion of every scikit-learn class that skl2onnx knows: faithful, or refused with a message."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_iris
from sklearn.decomposition import NMF, PCA, FastICA, TruncatedSVD
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import RandomizedSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)

from onnxtrain import OrtGradientClassifier, trainable_weights
from onnxtrain.convert import compare, convert, register_converter
from onnxtrain.convert.columns import feeds_of, input_types, positional
from onnxtrain.convert.repairs import converters
from onnxtrain.convert.sklearn import repaired_graph, to_onnx
from onnxtrain.errors import ConversionError, OnnxTrainError, WeightError
from onnxtrain.runtime.session import run
from onnxtrain.training.weights import select_weights
from tests.skl2onnx_tables import tables
from tests.zoo import REFUSED, WITHOUT_WEIGHTS, ZOO, data

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::RuntimeWarning", "ignore::UserWarning")

TARGET = {"": 21, "ai.onnx.ml": 3}

CONVERTED = [name for name in ZOO if name not in REFUSED]

#: Operators outside ai.onnx that stay: the splits of trees, encoders of categories.
STAYS = {"TreeEnsembleRegressor", "OneHotEncoder", "LabelEncoder"}


def compared(estimator, X):
    """Convert an estimator and compare the graph with it."""
    conversion = convert(estimator, X)
    compare(estimator, conversion.onnx, X)
    return conversion


@functools.cache
def converted(name):
    estimator, X = ZOO[name]()
    return estimator, X, compared(estimator, X)


@pytest.mark.parametrize("name", CONVERTED)
def test_the_graph_is_the_estimator(name):
    _, _, conversion = converted(name)
    assert {node.op_type for node in conversion.onnx.graph.node if node.domain} <= STAYS
    assert bool(conversion.bindings) == (name not in WITHOUT_WEIGHTS)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_faithful_graph_is_refused(name):
    estimator, X = ZOO[name]()
    with pytest.raises(OnnxTrainError, match=REFUSED[name]):
        compared(estimator, X)


@pytest.mark.parametrize("name", CONVERTED)
def test_rewriting_changes_no_result(name):
    estimator, X, conversion = converted(name)
    if "probability" in name:
        pytest.skip("libsvm stops its iteration early, the rewritten graph has the limit")
    if name == "RadiusNeighborsClassifier":
        pytest.skip("onnxruntime cannot run what the converter gives, only what is rewritten")
    plain = repaired_graph(positional(estimator, X), X)
    for expected, found in zip(run(plain, feeds_of(plain, X)), run(conversion.onnx, feeds_of(plain, X)), strict=True):
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.nanmax(np.abs(expected)))
        else:
            assert np.mean(found != expected) < 0.02  # ties


@pytest.mark.parametrize("name", CONVERTED)
def test_bindings_read_what_the_graph_holds(name):
    estimator, _, conversion = converted(name)
    held = {i.name: onnx.numpy_helper.to_array(i) for i in conversion.onnx.graph.initializer}
    for binding in conversion.bindings:
        found = binding.read(estimator)
        assert found.dtype == np.float64
        assert found.shape == binding.shape == held[binding.name].shape
        np.testing.assert_allclose(found, held[binding.name], rtol=1e-4, atol=1e-6 * np.abs(found).max(initial=0))


def test_names_steps_and_kinds():
    _, _, conversion = converted("Pipeline: scaler, pca, mlp iris")
    rows = [(w.name, w.step, w.shape, w.size, w.kind) for w in trainable_weights(conversion)]
    assert rows[:4] == [
        ("standardscaler.mean", "standardscaler", (4,), 4, "mean"),
        ("standardscaler.scale", "standardscaler", (4,), 4, "scale"),
        ("pca.mean", "pca", (4,), 4, "mean"),
        ("pca.components", "pca", (4, 3), 12, "components"),
    ]
    assert list(conversion.default) == [r[0] for r in rows[4:]]
    assert conversion.default[:2] == ("mlpclassifier.coefs_0", "mlpclassifier.intercepts_0")


def test_a_transformer_alone_trains_what_it_has():
    _, _, conversion = converted("StandardScaler")
    assert list(conversion.default) == ["mean", "scale"]


def test_weights_of_a_plain_model_reach_its_output():
    _, _, conversion = converted("KNeighborsRegressor")
    assert [w.name for w in trainable_weights(conversion.onnx)] == ["y"]


def test_intercepts_that_are_equal_are_two_weights():
    _, _, conversion = converted("LinearRegression: no intercept")
    assert list(conversion.default) == ["coef"]
    X = np.eye(3)
    model = LogisticRegression().fit(X, [0, 1, 2])
    model.coef_[:], model.intercept_[:] = 0, 0
    names = [b.name for b in compared(model, X).bindings]
    assert names == ["coef", "intercept"]


def test_an_array_of_several_equal_attributes_is_no_weight():
    X, y = load_iris(return_X_y=True)
    model = CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=5).fit(X, y)  # too many attributes to mark each
    tuned = OrtGradientClassifier(model, max_iter=2, learning_rate=0.01, dtype="float64", random_state=0).fit(X, y)
    assert not [binding.name for binding in convert(model, X).bindings if "prior" in binding.name]  # 1/3 in each fold
    np.testing.assert_allclose(tuned.to_sklearn().predict_proba(X), tuned.predict_proba(X), atol=1e-5)


def test_columns_by_name():
    pd = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    X = pd.DataFrame({"size": [1.0, 2.0, 3.0, 4.0], "town": ["a", "b", "a", "c"], "rooms": [1, 2, 3, 3]})
    steps = make_column_transformer((StandardScaler(), ["size", "rooms"]), (OneHotEncoder(), ["town"]))
    model = make_pipeline(steps, LinearRegression()).fit(X, [1.0, 2.0, 2.0, 5.0])
    conversion = compared(model, X)
    assert [i.name for i in conversion.onnx.graph.input] == ["size", "town", "rooms"]
    assert list(conversion.default) == ["linearregression.coef", "linearregression.intercept"]


def test_columns_of_numbers_by_name_are_one_matrix():
    pd = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline

    X = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [3.0, 1.0, 2.0, 2.0], "c": [1, 2, 3, 3]})
    steps = make_column_transformer((StandardScaler(), ["c", "a"]), (MinMaxScaler(), ["b"]))
    model = make_pipeline(steps, LinearRegression()).fit(X, [1.0, 2.0, 2.0, 5.0])
    for rows in (X, X.to_numpy()):
        conversion = compared(model, rows)
        assert [i.name for i in conversion.onnx.graph.input] == ["X"]
    (found,) = run(conversion.onnx, feeds_of(conversion.onnx, X))
    np.testing.assert_allclose(found[:, 0], model.predict(X), rtol=1e-5)


def test_a_wrong_graph_is_refused_with_row_and_page():
    X = np.arange(6.0).reshape(3, 2)
    model = LinearRegression().fit(X, [1.0, 2.0, 4.0])

    onx = convert(model, X).onnx
    for i in onx.graph.initializer:
        if i.name == "intercept":
            i.CopyFrom(onnx.numpy_helper.from_array(np.array([7.0], np.float32), "intercept"))
    with pytest.raises(
        OnnxTrainError,
        match=r"'variable' differs from predict by .* Row \d is .*sklearn.linear_model.LinearRegression.html",
    ):
        compare(model, onx, X)


@pytest.fixture
def registered():
    """Our estimators stand in skl2onnx's tables for one test."""
    before = [dict(table) for table in tables()]
    register_converter()
    yield
    for table, entries in zip(tables(), before, strict=True):
        table.clear()
        table.update(entries)


@pytest.mark.usefixtures("registered")
def test_our_estimators_are_converted_where_they_stand():
    from skl2onnx import to_onnx
    from sklearn.ensemble import VotingRegressor
    from sklearn.pipeline import make_pipeline

    from onnxtrain import OrtGradientClassifier, OrtGradientRegressor

    X, y = data("iris")
    x = X.astype(np.float32)
    tuned = make_pipeline(StandardScaler(), OrtGradientClassifier(max_iter=3)).fit(X, y)
    label, p = run(to_onnx(tuned, x, options={"zipmap": False}, target_opset=21), {"X": x})
    np.testing.assert_array_equal(label, tuned.predict(X))
    np.testing.assert_allclose(p, tuned.predict_proba(X), atol=1e-5)
    assert [n.op_type for n in to_onnx(tuned, x, target_opset=21).graph.node].count("ZipMap") == 1  # its default
    double = OrtGradientRegressor(max_iter=3, dtype="float64")
    both = VotingRegressor([("a", double), ("b", OrtGradientRegressor(max_iter=3))]).fit(X, y)
    (found,) = run(to_onnx(both, x, target_opset=21), {"X": x})
    np.testing.assert_allclose(found[:, 0], both.predict(X), rtol=1e-4, atol=1e-6)  # some are close to zero


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("inner", [LinearRegression(), LogisticRegression(max_iter=500)], ids=["values", "classes"])
def test_a_search_in_the_tables_is_what_its_estimator_is(inner):
    """The class has predict_proba whatever it searches: skl2onnx would take it for a classifier."""
    X, y = data("iris")
    search = RandomizedSearchCV(inner, {"fit_intercept": [True, False]}, n_iter=2).fit(X, y)
    compared(search, X)


NAMES = ["scaler.mean", "scaler.scale", "pca.mean", "mlp.coefs_0", "mlp.intercepts_0"]


@pytest.mark.parametrize(
    "wanted, found",
    [
        ("all", NAMES),
        ("pca.mean", ["pca.mean"]),
        ("scaler", NAMES[:2]),
        ("*.mean", ["scaler.mean", "pca.mean"]),
        (["mlp", "scaler.scale"], ["scaler.scale", "mlp.coefs_0", "mlp.intercepts_0"]),
        ("-pca", [n for n in NAMES if n != "pca.mean"]),
        (["all", "-*.mean", "-mlp"], ["scaler.scale"]),
    ],
)
def test_weights_by_name_pattern_and_step(wanted, found):
    assert select_weights(NAMES, wanted) == found


def test_a_word_that_fits_no_weight():
    with pytest.raises(WeightError, match=r"'scaller' is neither a weight nor a step with one. Did you mean 'scaler'"):
        select_weights(NAMES, ["-scaller"])


def test_a_name_with_brackets_is_itself():
    names = ["layers[0].weight", "layers[1].weight", "layers0.weight"]
    assert select_weights(names, "layers[0].weight")[0] == "layers[0].weight"
    assert select_weights(names, "layers[1]*") == ["layers[1].weight"]
    assert select_weights(names, "-layers[1]*") == ["layers[0].weight", "layers0.weight"]


@pytest.mark.parametrize(
    "options",
    [
        {"transformer": StandardScaler()},
        {"transformer": RobustScaler()},
        {"transformer": MinMaxScaler()},
        {"transformer": MaxAbsScaler()},
        {"transformer": FunctionTransformer()},
        {"transformer": StandardScaler(with_mean=False)},
        {"transformer": StandardScaler(with_std=False)},
        {"transformer": RobustScaler(with_centering=False)},
        {"transformer": RobustScaler(with_scaling=False)},
        {"func": np.log, "inverse_func": np.exp},
        {"func": np.exp, "inverse_func": np.log},
        {"func": np.log1p, "inverse_func": np.expm1},
        {"func": np.expm1, "inverse_func": np.log1p},
        {"func": np.sqrt, "inverse_func": np.square},
        {"func": np.square, "inverse_func": np.sqrt},
        {"transformer": make_pipeline(FunctionTransformer(np.log1p, np.expm1), "passthrough", StandardScaler())},
        {"transformer": make_pipeline(PowerTransformer(standardize=False), MinMaxScaler())},
    ],
    ids=str,
)
def test_the_transformation_of_a_target_is_undone(options):
    X = np.linspace(0, 1, 12).reshape(6, 2)
    model = TransformedTargetRegressor(LinearRegression(), **options).fit(X, X[:, 0] + 2.0)
    names = compared(model, X).default
    assert names[:2] == ("regressor.coef", "regressor.intercept")


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("method", ["yeo-johnson", "box-cox"])
def test_the_power_of_a_target_is_undone(method, standardize):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.exp(X[:, 0] + 0.1 * rng.normal(size=60)) - (1.5 if method == "yeo-johnson" else 0)
    transformer = PowerTransformer(method, standardize=standardize)
    compared(TransformedTargetRegressor(LinearRegression(), transformer=transformer).fit(X, y), X)
    both = np.c_[y, y**2]
    compared(TransformedTargetRegressor(LinearRegression(), transformer=transformer).fit(X, both), X)


@pytest.mark.parametrize(
    "transformer",
    [
        PCA(2),
        make_pipeline(StandardScaler(), PCA(2, whiten=True)),
        TruncatedSVD(2),
        NMF(2, max_iter=1000),
        FastICA(2, whiten="unit-variance", random_state=0),
        FunctionTransformer(lambda y: y / 1000, lambda y: 1000 * y),
    ],
    ids=["pca", "whitened", "svd", "nmf", "ica", "functions"],
)
def test_components_of_targets_are_added_up(transformer):
    X = np.random.default_rng(0).normal(size=(60, 3))
    targets = np.exp(X @ [[1, 0, 1], [0, 1, 1], [1, 1, 0]])
    model = TransformedTargetRegressor(LinearRegression(), transformer=transformer, check_inverse=False)
    assert compared(model.fit(X, targets), X).default == ("regressor.coef", "regressor.intercept")


class Bounded(StandardScaler):
    """It undoes the transformation in another way, which rows within the bounds do not show."""

    def inverse_transform(self, X, copy=None):
        return np.minimum(super().inverse_transform(X, copy), 100)


@pytest.mark.parametrize(
    "options",
    [
        {"func": np.cbrt, "inverse_func": lambda y: y**3},
        {"transformer": Bounded()},
        {"transformer": FunctionTransformer(np.log2, np.exp, inv_kw_args={"where": True}, check_inverse=False)},
        {"transformer": KBinsDiscretizer(2, encode="ordinal", strategy="uniform")},
    ],
    ids=["another function", "another transformer", "arguments of the function", "bins"],
)
def test_a_target_that_cannot_be_transformed_back_in_onnx(options):
    X = np.linspace(0, 1, 12).reshape(6, 2)
    model = TransformedTargetRegressor(LinearRegression(), check_inverse=False, **options).fit(X, X[:, 0] + 1.0)
    with pytest.raises(
        ConversionError, match=r"of the target cannot be inverted in ONNX.*OrtGradientRegressor\(fitted"
    ):
        compared(model, X)


@pytest.mark.parametrize("method, shift", [("yeo-johnson", -2.0), ("box-cox", 1.0)])
def test_power_transformer(method, shift):
    X = np.random.default_rng(0).gamma(2.0, size=(40, 2)).astype(np.float32) + shift
    model = PowerTransformer(method=method).fit(X)
    assert compared(model, X).default == ("lambdas", "scaler.mean", "scaler.scale")
    model.lambdas_[0] = 0.0  # a logarithm
    assert convert(model, X).default


def test_the_weights_of_a_network_are_written_whole():
    X, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3
    fitted = MLPClassifier((5,), max_iter=1, random_state=0).fit(X, y)
    onx = to_onnx(fitted, input_types(X), TARGET)
    found = {tuple(t.dims): t for t in onx.graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    for coef in fitted.coefs_:
        assert found[coef.shape].raw_data
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(found[coef.shape]), coef.astype(np.float32))


def test_repairs_are_applied_once(monkeypatch):
    X, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3
    fitted = MLPClassifier((5,), max_iter=1, random_state=0).fit(X, y)
    written, write = [], converters._WritesWhole.add_initializer

    def counted(self, name, *args):
        written.append(name)
        return write(self, name, *args)

    monkeypatch.setattr(converters._WritesWhole, "add_initializer", counted)
    to_onnx(fitted, input_types(X), TARGET)
    written.clear()
    to_onnx(fitted, input_types(X), TARGET)
    assert written
    assert len(written) == len(set(written))
