"""Tables of float64, as scikit-learn loads them, in models of float32: equal on all rows, or refused with the reason."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor, RegressorChain
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OrdinalEncoder, PowerTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.convert.compared_rows import rows_between
from onnxtrain.convert.thresholds import with_float32_splits
from onnxtrain.errors import ConversionError, ExportError
from onnxtrain.estimators import agreement

DIABETES = load_diabetes(return_X_y=True)
CLASSES = {
    "breast cancer": load_breast_cancer(return_X_y=True),
    "wine": load_wine(return_X_y=True),
    "digits": tuple(part[:200] for part in load_digits(return_X_y=True)),
    "iris": load_iris(return_X_y=True),
}
HISTOGRAM = HistGradientBoostingRegressor(max_iter=20, random_state=0)
REGRESSORS = {
    "histogram": HISTOGRAM,
    "histogram, poisson": HistGradientBoostingRegressor(loss="poisson", max_iter=8, random_state=0),
    "histogram, gamma": HistGradientBoostingRegressor(loss="gamma", max_iter=8, random_state=0),
    "histogram, a pipeline of it alone": make_pipeline(HISTOGRAM),
    "boosting": GradientBoostingRegressor(n_estimators=20, random_state=0),
    "forest": RandomForestRegressor(20, random_state=0),
    "scaled, histogram": make_pipeline(StandardScaler(), HISTOGRAM),
    "filled in, histogram": make_pipeline(SimpleImputer(), HISTOGRAM),
    "scaled, tree": make_pipeline(StandardScaler(), DecisionTreeRegressor(random_state=0)),
    "vote": VotingRegressor([("trees", HISTOGRAM), ("ridge", Ridge())]),
    "stack": StackingRegressor([("trees", HISTOGRAM), ("ridge", Ridge())]),
    "bags of columns": BaggingRegressor(HISTOGRAM, 2, max_features=0.5, random_state=0),
}
CLASSIFIERS = {
    "histogram": HistGradientBoostingClassifier(max_iter=5, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=10, random_state=0),
    "forest": RandomForestClassifier(20, random_state=0),
    "extra trees": ExtraTreesClassifier(20, random_state=0),
    "scaled, histogram": make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=5, random_state=0)),
    "calibrated": CalibratedClassifierCV(HistGradientBoostingClassifier(max_iter=5, random_state=0), cv=2),
}


def tuned(model, rows, **settings):
    kind = OrtGradientClassifier if is_classifier(model) else OrtGradientRegressor
    return kind(model, max_iter=0, **settings).fit(*rows)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_of_trees_predict_the_same_for_every_row(name, dtype):
    X, y = DIABETES
    model = clone(REGRESSORS[name]).fit(X, y)
    expected = model.predict(X)
    start = tuned(model, DIABETES, dtype=dtype)
    np.testing.assert_allclose(start.predict(X), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    np.testing.assert_allclose(start.to_sklearn().predict(X), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("table", CLASSES)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_of_trees_predict_the_same_for_every_row(name, table):
    X, y = CLASSES[table]
    model = clone(CLASSIFIERS[name]).fit(X, y)
    np.testing.assert_allclose(tuned(model, (X, y)).predict_proba(X), model.predict_proba(X), rtol=0, atol=1e-5)


def _nullable(X):
    return pd.DataFrame(X, columns=[f"column {i}" for i in range(X.shape[1])]).convert_dtypes()


#: Rows that a float32 model rounds, in the forms in which scikit-learn takes them.
FORMS = {"float64": np.asarray, "objects": lambda X: X.astype(object), "nullable": _nullable}


@pytest.mark.parametrize("form", FORMS)
def test_an_unfitted_estimator_is_fitted_on_the_rows_as_given(form):
    """Random splits between powers of rounded rows give other trees."""
    X, y = CLASSES["breast cancer"]
    model = make_pipeline(PowerTransformer(), ExtraTreesClassifier(8, max_depth=6, random_state=0))
    train, test = (FORMS[form](X[start::2]) for start in (0, 1))
    expected = clone(model).fit(train, y[::2]).predict_proba(test)
    np.testing.assert_allclose(tuned(model, (train, y[::2])).predict_proba(test), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", [DIABETES, CLASSES["breast cancer"]], ids=["diabetes", "breast cancer"])
def test_histogram_boosting_is_trained_and_its_graph_is_the_estimator(rows, run):
    X, y = rows
    model = clone(HISTOGRAM).fit(X, y)
    trained = OrtGradientRegressor(model, learning_rate=1e-2, max_iter=5, random_state=0).fit(X, y + np.sin(y))
    assert trained.loss_curve_[-1] < trained.loss_curve_[0]
    expected = trained.to_sklearn().predict(X)
    (found,) = run(trained.get_trained_onnx(), {"X": X.astype(np.float32)})
    np.testing.assert_allclose(found[:, 0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("method", ["yeo-johnson", "box-cox"])
def test_the_power_of_a_target_keeps_the_digits_of_float64(method):
    model = TransformedTargetRegressor(Ridge(), transformer=PowerTransformer(method)).fit(*DIABETES)
    start = tuned(model, DIABETES, dtype="float64")
    np.testing.assert_allclose(start.predict(DIABETES[0]), model.predict(DIABETES[0]), rtol=1e-13)


STEP = np.float32(1) + np.spacing(np.float32(1))  # the float32 that follows 1

#: Values of a column, of which scikit-learn splits the second from the third; whether float32 can.
NEIGHBOURS = {
    "two neighbours in float32": ([0.0, 1.0, STEP, 2.0], True),
    "a value that is rounded up": ([0.0, 1.1 - 1e-12, 1.2, 2.0], True),
    "values in one float32 but for rounding": ([0.0, 1 + 0.49 * (STEP - 1), 1 + 0.51 * (STEP - 1), 2.0], True),
    "one float32": ([0.0, 1.0, 1 + 1e-12, 2.0], False),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_neighbours_stay_on_their_sides(name):
    values, can = NEIGHBOURS[name]
    X = np.repeat(np.array(values, dtype=np.float64), 30).reshape(-1, 1)
    y = np.repeat([0.0, 0.0, 1.0, 1.0], 30)
    model = HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=5).fit(X, y)
    assert np.ptp(model.predict(X)[30:90]) > 0.1
    start = tuned(model, (X, y))
    np.testing.assert_allclose(start.predict(X), model.predict(X), atol=1e-6)
    assert ("splits" in start.onnx_status_) is not can


SECONDS = 1.6e9 + np.random.default_rng(0).integers(0, 500, 300)  # float32 rounds them to multiples of 128
LATE = (SECONDS % 7 > 3).astype(int)
LOG = pd.DataFrame(
    {"at": np.where(np.arange(300) % 9, SECONDS, np.nan), "by": np.where(np.arange(300) % 2, "bus", "train")}
)
TREES, CLASSES_OF_TREES = HistGradientBoostingRegressor(max_iter=5), HistGradientBoostingClassifier(max_iter=5)
ENCODE = make_column_transformer((OrdinalEncoder(), ["by"]), remainder="passthrough")
ON_RANKS = {
    "alone": (TREES, LOG[["at"]]),
    "classes": (CLASSES_OF_TREES, LOG[["at"]]),
    "array": (TREES, LOG[["at"]].to_numpy()),
    "behind an encoder": (make_pipeline(ENCODE, CLASSES_OF_TREES), LOG),
    "stack of pipelines": (StackingRegressor([("a", make_pipeline(ENCODE, TREES))], cv=2), LOG),
    "bagging": (BaggingRegressor(TREES, n_estimators=2, random_state=0), LOG[["at"]]),
    "several targets": (MultiOutputRegressor(TREES), LOG[["at"]]),
}


@pytest.mark.parametrize("name", ON_RANKS)
def test_trees_on_values_that_float32_does_not_tell_apart(name, tmp_path):
    model, X = ON_RANKS[name]
    y = np.c_[LATE, -LATE] if name == "several targets" else LATE
    model = clone(model).fit(X, y)
    method = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    start = tuned(model, (X, y))
    np.testing.assert_allclose(getattr(start, method)(X), getattr(model, method)(X), atol=1e-6)
    trained = clone(start).set_params(max_iter=5, learning_rate=0.01).fit(X, y)
    assert trained.losses(X, y).mean() < start.losses(X, y).mean()
    back = trained.to_sklearn()
    assert type(back) is type(model)
    np.testing.assert_allclose(getattr(back, method)(X), getattr(trained, method)(X), atol=1e-6)
    with pytest.raises(ExportError, match="scikit-learn runs .*'.*splits', .*to_sklearn"):
        trained.get_trained_onnx()
    pytest.importorskip("skops")
    save(trained, tmp_path / "trained.onnx")
    np.testing.assert_allclose(getattr(load(tmp_path / "trained.onnx"), method)(X), getattr(trained, method)(X))


def test_trees_that_also_split_on_categories_are_fitted_on_rounded_values():
    X = LOG.astype({"by": "category"})
    with pytest.raises(ConversionError, match=r"In float32, row .* lies on a split.*categories X\.astype\({'column': "):
        tuned(clone(TREES).fit(X, LATE), (X, LATE))
    rounded = X.astype({"at": "float32"})
    again = clone(TREES).fit(rounded, LATE)
    np.testing.assert_allclose(tuned(again, (rounded, LATE)).predict(rounded), again.predict(rounded), atol=1e-6)


def test_a_threshold_that_is_a_value_of_the_rows_keeps_it_on_its_side():
    X = np.repeat([[0.0], [0.1 + 2**-40], [0.3]], 20, axis=0)
    model = HistGradientBoostingRegressor(max_iter=1).fit(X, np.repeat([0.0, 0.0, 1.0], 20))
    nodes = model._predictors[0][0].nodes
    for value in (X[20, 0], np.nextafter(X[20, 0], 1)):
        nodes["num_threshold"][0] = value
        (moved,) = with_float32_splits(model, X)._predictors[0]
        assert (X.astype(np.float32) <= moved.nodes["num_threshold"][0]).sum() == 40
        assert nodes["num_threshold"][0] == value  # the estimator stays as it is


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("digits", [4, 6])
def test_values_of_the_table_that_are_thresholds_stay_on_their_sides(digits, dtype):
    X = np.round(np.random.default_rng(0).uniform(38, 39, (600, 2)), digits)
    y = X[:, 0] * X[:, 1] - 1482
    model = HistGradientBoostingRegressor(max_iter=8, random_state=0).fit(X, y)
    some = OrtGradientRegressor(model, max_iter=0, dtype=dtype).fit(X[:300], y[:300])
    np.testing.assert_allclose(some.predict(X), model.predict(X), atol=1e-4)


@pytest.mark.parametrize("kind", ["numbers", "beside categories"])
def test_held_out_decimals_on_a_threshold_stay_on_their_sides(kind):
    """Thresholds between values with a gap are decimals too, but for the last bits: which side is theirs."""
    decimals = np.arange(1, 1000) / 10
    X, held_out = decimals[::2].reshape(-1, 1), decimals[1::2].reshape(-1, 1)
    y = np.sin(X[:, 0])
    categories = None
    if kind == "beside categories":
        X, held_out = (np.c_[rows, np.arange(len(rows)) % 3] for rows in (X, held_out))
        categories = [1]
    model = HistGradientBoostingRegressor(max_bins=255, min_samples_leaf=1, categorical_features=categories)
    model.set_params(max_iter=20, learning_rate=1).fit(X[:250], y[:250])
    start = tuned(model, (X[:250], y[:250]))
    np.testing.assert_allclose(start.predict(held_out), model.predict(held_out), atol=1e-5)


REFUSED = {
    "Gaussian process": (GaussianProcessClassifier(1e4 * RBF(1e3), optimizer=None), CLASSES["wine"]),
    "a large offset": (LinearRegression(), (DIABETES[0] + 1e5, DIABETES[1])),
}


#: Measured to a tenth: the middle of two such numbers, where a split lies, is another one.
TENTHS = np.round(np.random.default_rng(0).normal(50, 15, (600, 3)), 1)
BEHIND_SCALING = {
    "a tree": DecisionTreeRegressor(random_state=0),
    "a forest": RandomForestRegressor(5, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=5, random_state=0),
    "histograms": HistGradientBoostingRegressor(max_iter=5, random_state=0),
    "histograms of classes": HistGradientBoostingClassifier(max_iter=5, random_state=0),
    "bins": make_pipeline(KBinsDiscretizer(10, encode="ordinal", strategy="uniform"), Ridge()),
}


@pytest.mark.parametrize("as_table", [np.asarray, pd.DataFrame, np.float32], ids=["array", "frame", "float32"])
@pytest.mark.parametrize("name", BEHIND_SCALING)
def test_held_out_decimals_behind_a_scaler_stay_on_their_sides(name, as_table):
    y = TENTHS @ [1.0, -2.0, 0.5]
    model = make_pipeline(StandardScaler(), clone(BEHIND_SCALING[name]))
    y = np.digitize(y, [-40, -10]) if is_classifier(model) else y
    rows, held_out = as_table(TENTHS[:300]), as_table(TENTHS[300:])
    found = tuned(model.fit(rows, y[:300]), (rows, y[:300]))
    predict = "predict_proba" if is_classifier(model) else "predict"
    expected = getattr(model, predict)(held_out)
    np.testing.assert_allclose(getattr(found, predict)(held_out), expected, rtol=1e-5, atol=1e-5 * abs(expected).max())
    assert found.onnx_status_["standardscaler"] == "scikit-learn"


@pytest.mark.parametrize("steps", [[], [SimpleImputer()]], ids=["no step", "a step that computes nothing"])
def test_decimals_in_front_of_a_tree_stay_in_one_graph(steps):
    model = make_pipeline(*steps, DecisionTreeRegressor(random_state=0)).fit(TENTHS[:300], TENTHS[:300, 0])
    found = tuned(model, (TENTHS[:300], TENTHS[:300, 0]))
    assert set(found.onnx_status_.values()) == {"ONNX"}
    np.testing.assert_allclose(found.predict(TENTHS[300:]), model.predict(TENTHS[300:]), rtol=1e-5)


def test_rows_of_many_digits_behind_a_scaler_stay_in_one_graph():
    rows = np.random.default_rng(1).normal(50, 15, (600, 3))
    model = make_pipeline(StandardScaler(), DecisionTreeRegressor(random_state=0)).fit(rows[:300], rows[:300, 0])
    found = tuned(model, (rows[:300], rows[:300, 0]))
    assert found.onnx_status_["standardscaler"] == "ONNX"
    np.testing.assert_allclose(found.predict(rows[300:]), model.predict(rows[300:]), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:float32 rounds the columns:UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_float32_is_named_where_it_is_the_cause_and_float64_works(name):
    model, (X, y) = REFUSED[name]
    model = clone(model).fit(X, y)
    with pytest.raises(ConversionError, match="float32 has too few digits for what it computes.*dtype='float64'") as e:
        tuned(model, (X, y))
    assert "Its converter" not in str(e.value)
    method = "predict_proba" if is_classifier(model) else "predict"
    start = tuned(model, (X, y), dtype="float64")
    np.testing.assert_allclose(getattr(start, method)(X), getattr(model, method)(X), rtol=1e-6, atol=1e-9)


def test_steps_of_a_calibration_that_magnify_zero_probabilities_get_a_remedy_that_works():
    """Zero probabilities of leaves have a floor, which float64 has as well."""
    X, y = (part[:400] for part in load_digits(return_X_y=True))
    forest = RandomForestClassifier(7, max_depth=3, random_state=5)
    model = CalibratedClassifierCV(forest, method="isotonic", cv=2).fit(X, y)
    with pytest.raises(ConversionError, match=r"calibration are so steep .* Use .*\(method='sigmoid'\)\.$"):
        tuned(model, (X, y))
    model.set_params(method="sigmoid").fit(X, y)
    np.testing.assert_allclose(tuned(model, (X, y)).predict_proba(X), model.predict_proba(X), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "inner, message",
    [
        (
            RandomForestClassifier(15, min_samples_leaf=4, random_state=0),
            r"The graph is not precise .* Use .*\(method='sigmoid'\)\.$",
        ),
        (make_pipeline(StandardScaler(), LogisticRegression()), "float32 is not precise .* Set dtype='float64'"),
    ],
)
def test_float32_is_named_unless_float64_magnifies_zero_probabilities_as_well(inner, message, monkeypatch):
    monkeypatch.setattr(agreement, "_LAST_DIGITS", 1e-14)
    rows = load_breast_cancer(return_X_y=True)
    model = CalibratedClassifierCV(inner, method="isotonic", cv=3).fit(*rows)
    with pytest.warns(UserWarning, match=message):
        tuned(model, rows)


def test_a_graph_of_float64_is_not_told_to_use_float64(monkeypatch):
    monkeypatch.setattr(agreement, "_LAST_DIGITS", 1e-14)
    boosting = GradientBoostingClassifier(n_estimators=5, random_state=0)
    model = CalibratedClassifierCV(boosting, method="isotonic", cv=3).fit(*CLASSES["wine"])
    with pytest.warns(UserWarning, match=r"The graph is not precise enough .* Use CalibratedClassifierCV\(method='sig"):
        tuned(model, CLASSES["wine"], dtype="float64")


@pytest.mark.parametrize("scale, noise", [(2.0, 0.1), (0.5, 0.3)])
def test_float32_warns_where_predict_loses_the_fifth_digit(scale, noise):
    """The kernels of ``predict`` lose other digits than those of a step."""
    X, y = (part[:200] for part in DIABETES)
    kernel = RBF(scale) + WhiteKernel(noise)
    model = GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True).fit(X, y)
    expected = model.predict(X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = tuned(model, (X, y))
    off = np.abs(start.predict(X) - expected).max() / np.ptp(expected)
    messages = [str(w.message) for w in caught if "float32 is not precise enough" in str(w.message)]
    assert [f"predict differs from the original model by {off:.1e}" in message for message in messages] == [True] * int(
        off > 1e-5
    )
    exact = tuned(model, (X, y), dtype="float64")
    np.testing.assert_allclose(exact.predict(X), expected, rtol=1e-9)


def _warned(model, X, y):
    """Return by how much a fit says that float32 is wrong, or None if it does not, and by how much it is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = tuned(model, (X, y))
    expected = model.predict(X)
    off = np.abs(start.predict(X) - expected).max() / np.ptp(expected)
    said = [str(w.message).partition("differs from the original model by ")[2] for w in caught]
    return said[0].partition(" of the range")[0] if said else None, off


@pytest.mark.parametrize("offset", [0, 1000])
def test_predictions_far_from_zero_are_compared_by_their_range(offset):
    rng = np.random.default_rng(0)
    X = np.column_stack([300_000.0 + rng.integers(0, 500, 200), rng.integers(1, 13, 200)])  # exact in float32
    y = X @ [0.7, 3.1] - 210_000 + offset
    model = LinearRegression().fit(X, y)
    said, off = _warned(model, X, y)
    assert 2e-5 < off < 1e-4
    assert said == f"{off:.1e}"


def test_all_rows_are_compared_where_some_nearly_differ():
    """200 of the rows differ by 9e-6 of the range, and one of the others by more than 1e-5."""
    X, y = DIABETES
    model = make_pipeline(StandardScaler(), KernelRidge(kernel="poly")).fit(X, y)
    said, off = _warned(model, X, y)
    assert off > 1e-5
    assert said == f"{off:.1e}"


def test_a_stack_that_sees_the_rows_besides_is_divided_in_front_of_its_trees():
    X, y = DIABETES
    behind = [("trees", make_pipeline(StandardScaler(), HISTOGRAM)), ("ridge", Ridge())]
    model = StackingRegressor(behind, passthrough=True).fit(X, y)
    np.testing.assert_allclose(tuned(model, (X, y)).predict(X), model.predict(X), rtol=1e-5)


def test_decimals_between_the_rows_stay_on_their_sides_in_a_member_of_a_vote():
    X, y = CLASSES["breast cancer"]
    X = np.round(X, 1)
    tree = make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=6, random_state=0))
    model = VotingClassifier([("tree", tree), ("bayes", GaussianNB())], voting="soft", weights=[9, 1]).fit(X, y)
    between = rows_between(X)
    np.testing.assert_allclose(tuned(model, (X, y)).predict_proba(between), model.predict_proba(between), atol=1e-5)


def test_trees_inside_others_behind_other_steps_get_a_remedy_that_works():
    X, y = DIABETES
    targets = np.column_stack([y, y[::-1]])
    behind = RegressorChain(make_pipeline(StandardScaler(), HISTOGRAM)).fit(X, targets)  # the second sees the first
    with pytest.raises(
        ConversionError, match=r"In float32, a row lies on a split.* make_pipeline\(steps, RegressorChain\(...\)\)"
    ):
        tuned(behind, (X, targets))
    again = make_pipeline(StandardScaler(), RegressorChain(HISTOGRAM)).fit(X, targets)
    np.testing.assert_allclose(tuned(again, (X, targets)).predict(X), again.predict(X), rtol=1e-5)
