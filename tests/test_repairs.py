"""Repairs apply to the conversions of onnxtrain alone: skl2onnx and onnxscript stay as the user has them."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import numpy as np
import pytest
import skl2onnx
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.gaussian_process.kernels import RBF
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, RandomizedSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.naive_bayes import ComplementNB, GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, OneHotEncoder, PowerTransformer, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, NuSVC, NuSVR

import onnxtrain
from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, converter
from onnxtrain.convert import compare, convert, custom, registered_converters
from onnxtrain.convert import sklearn as conversions
from onnxtrain.errors import ConversionError, ModelError, ParameterError
from onnxtrain.runtime.session import run
from tests.skl2onnx_tables import picture, tables
from tests.zoo import data

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore:The objective:UserWarning", "ignore::sklearn.exceptions.ConvergenceWarning"
)

X, Y = data("iris")
X2, Y2 = data("bin")
ONE = {"max_iter": 1, "random_state": 0}

#: One of each that is repaired, or that skl2onnx does not know.
CLASSIFIERS = [
    LinearDiscriminantAnalysis(),
    HistGradientBoostingClassifier(max_iter=2),
    VotingClassifier([("a", LogisticRegression())], voting="soft"),
    MLPClassifier((3,), max_iter=2, random_state=0),
    make_pipeline(PowerTransformer(), LogisticRegression()),
]
REGRESSORS = [
    TransformedTargetRegressor(Ridge(), transformer=StandardScaler()),
    VotingRegressor([("a", TransformedTargetRegressor(Ridge(), transformer=StandardScaler())), ("b", Ridge())]),
]


def test_nothing_of_skl2onnx_and_onnxscript_is_changed(tmp_path):
    import onnxscript  # noqa: F401

    OrtGradientClassifier(LogisticRegression(), **ONE).fit(X, Y)  # imports what is imported late
    before = picture("skl2onnx", "onnxscript")
    for estimator in CLASSIFIERS:
        fitted = OrtGradientClassifier(estimator, **ONE).fit(X, Y)
        fitted.predict_proba(X)
        fitted.get_trained_onnx()
        fitted.to_sklearn()
        onnxtrain.save(fitted, tmp_path / "fitted")
        onnxtrain.load(tmp_path / "fitted").predict(X)
    for estimator in REGRESSORS:
        OrtGradientRegressor(estimator, **ONE).fit(X, Y).predict(X)
    onnxtrain.onnx_derivative(OrtGradientRegressor(Ridge(), **ONE).fit(X, Y).get_trained_onnx())
    GridSearchCV(fitted, {"learning_rate": [1e-3, 1e-2]}, cv=2).fit(X, Y)
    pipeline = make_pipeline(StandardScaler(), OrtGradientClassifier(**ONE)).fit(X, Y)
    for _ in range(2):
        onx = skl2onnx.to_onnx(pipeline, X.astype(np.float32), options={"zipmap": False}, target_opset=21)
        assert [n.op_type for n in onx.graph.node].count("ZipMap") == 0
    after = picture("skl2onnx", "onnxscript")
    assert {name for name in after if name in before and after[name] != before[name]} == set()


def test_the_users_conversions_are_as_before():
    svc = SVC(probability=True, random_state=0).fit(X, Y)

    def convert_plainly():
        return skl2onnx.to_onnx(svc, X[:1].astype(np.float32), options={"zipmap": False}).SerializeToString()

    before = convert_plainly()
    OrtGradientClassifier(LogisticRegression(), **ONE).fit(X, Y)
    assert convert_plainly() == before


@pytest.mark.filterwarnings("ignore:C=0.01 of LogisticRegression has no effect on the training:UserWarning")
@pytest.mark.skipif(sklearn.__version__ >= "1.8", reason="multi_class was removed from scikit-learn")
def test_a_repair_is_of_one_class_not_of_its_alias():
    model = LogisticRegression(multi_class="multinomial", C=0.01).fit(X2, Y2)
    tuned = OrtGradientClassifier(model, learning_rate=1e-12, **ONE).fit(X2, Y2)
    np.testing.assert_allclose(tuned.predict_proba(X2), model.predict_proba(X2), atol=1e-6)


@pytest.fixture
def own_tables():
    """skl2onnx's tables and ours are as before behind the test."""
    all_tables = [*tables(), custom.CONVERTERS]
    before = [dict(table) for table in all_tables]
    yield
    for table, entries in zip(all_tables, before, strict=True):
        table.clear()
        table.update(entries)


@pytest.mark.usefixtures("own_tables")
def test_a_converter_that_the_user_registered_with_skl2onnx_is_used():
    from skl2onnx.common._registration import get_converter, get_shape_calculator

    original, called = get_converter("SklearnLinearClassifier"), []

    def mine(scope, operator, container):
        called.append(type(operator.raw_operator))
        original(scope, operator, container)

    options = {"zipmap": [True, False], "nocl": [True, False], "raw_scores": [True, False]}
    lda = LinearDiscriminantAnalysis().fit(X, Y)
    known = registered_converters()
    shapes = get_shape_calculator("SklearnLinearClassifier")
    skl2onnx.update_registered_converter(LinearDiscriminantAnalysis, "Mine", shapes, mine, options=options)
    assert registered_converters() != known
    OrtGradientClassifier(lda, **ONE).fit(X, Y)
    assert called == [LinearDiscriminantAnalysis]


def test_what_is_converted_at_the_same_time_is_not_disturbed():
    nested, plain = REGRESSORS[1].fit(X, Y), LinearDiscriminantAnalysis().fit(X, Y)
    expected = skl2onnx.to_onnx(plain, X[:1].astype(np.float32)).SerializeToString()
    stop, found, errors = threading.Event(), set(), []

    def users_own():
        while not stop.is_set():
            found.add(skl2onnx.to_onnx(plain, X[:1].astype(np.float32)).SerializeToString())

    def ours():
        try:
            for _ in range(5):
                compare(nested, convert(nested, X).onnx, X)
        except Exception as e:  # an error in a thread is lost
            errors.append(e)

    user, others = threading.Thread(target=users_own), [threading.Thread(target=ours) for _ in range(3)]
    for thread in (user, *others):
        thread.start()
    for thread in others:
        thread.join()
    stop.set()
    user.join()
    assert not errors
    assert found == {expected}


def test_classes_that_are_missing_are_looked_for_under_the_lock(monkeypatch):
    look, owned = conversions._missing, []

    def looks(kinds):
        owned.append(conversions._ENTRIES._is_owned())
        return look(kinds)

    monkeypatch.setattr(conversions, "_missing", looks)
    convert(REGRESSORS[1].fit(X, Y), X)
    assert owned
    assert all(owned)


def test_entries_are_removed_where_a_conversion_fails(monkeypatch):
    nested = VotingRegressor([("a", TransformedTargetRegressor(Ridge(), func=np.cbrt, inverse_func=lambda y: y**3))])
    before = [dict(table) for table in tables()]
    with pytest.raises(ConversionError, match="of the target cannot be inverted in ONNX"):
        convert(nested.fit(X, Y), X)
    assert [dict(table) for table in tables()] == before
    holder = threading.Thread(target=conversions._ENTRIES.acquire)  # it never lets go, as one that is not in a child
    holder.start()
    holder.join()
    conversions._unlock_in_child()
    assert conversions._ENTRIES.acquire(blocking=False)
    conversions._ENTRIES.release()


@pytest.mark.parametrize(
    "model",
    [
        TransformedTargetRegressor(MLPRegressor(hidden_layer_sizes=(3,), max_iter=9), transformer=StandardScaler()),
        TransformedTargetRegressor(
            make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(3,), max_iter=9)), func=None
        ),
    ],
    ids=["a network", "a pipeline"],
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_several_targets_of_a_network_that_are_transformed(model):
    targets = np.column_stack([Y, X[:, 0], X[:, 1]])
    fitted = model.fit(X, targets)
    compare(fitted, convert(fitted, X).onnx, X)


def test_weights_of_members_that_are_dropped():
    members = [("a", Ridge()), ("b", "drop"), ("c", SVR())]
    fitted = VotingRegressor(members, weights=[0.2, 9, 0.8]).fit(X, Y)
    compare(fitted, convert(fitted, X).onnx, X)


def warned_of_other_labels(machine, X):
    """Expect a warning that names the rows in which the probabilities choose another class than the machine."""
    if not hasattr(machine, "predict_proba"):
        return nullcontext()
    differs = machine.classes_[machine.predict_proba(X).argmax(axis=1)] != machine.predict(X)
    first, *others = np.flatnonzero(differs).tolist() or [None]
    message = "predict agrees with the original model on the compared rows, but on others it may not"
    if differs.any():
        message = f"predict differs from the original model in {differs.sum()} of {len(X)} rows, first in row {first}:"
        message += f".*, also in rows {', '.join(map(str, others[:5]))}" if others else ""
    remedy = r"CalibratedClassifierCV\(\w+\(\), ensemble=False\)"
    return pytest.warns(UserWarning, match=f"{message}.*{remedy}")


@pytest.mark.parametrize("target", [Y, Y == 0], ids=["three classes", "two"])
@pytest.mark.parametrize("kind", [SVC, NuSVC])
def test_probabilities_of_support_vectors_are_those_of_the_estimator(kind, target):
    machine = kind(probability=True, random_state=0).fit(X, target)
    expected = machine.predict_proba(X)
    for source in (machine, skl2onnx.to_onnx(machine, X[:1].astype(np.float32), options={"zipmap": False})):
        with warned_of_other_labels(machine, X):
            tuned = OrtGradientClassifier(source, learning_rate=1e-12, **ONE).fit(X, target)
        np.testing.assert_allclose(tuned.predict_proba(X), expected, atol=1e-5)
    with warned_of_other_labels(machine, X):  # of rows that are known as well
        tuned = OrtGradientClassifier(machine, max_iter=20, random_state=0).fit(X, target)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    np.testing.assert_allclose(tuned.to_sklearn().predict_proba(X), tuned.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize(
    "classifier", [MLPClassifier((3,), max_iter=2, random_state=0), SGDClassifier(loss="log_loss", random_state=0)]
)
@pytest.mark.parametrize("classes", [[5, 2**31, 2**40], [-(2**35), 3, 7]])
def test_labels_that_int32_cannot_hold(classifier, classes):
    target = np.array(classes)[Y]
    classifier = clone(classifier).fit(X, target)
    tuned = OrtGradientClassifier(classifier, learning_rate=1e-12, **ONE).fit(X, target)
    labels = run(tuned.get_trained_onnx(), {"X": X.astype(np.float32)}, outputs=["label"])[0]
    np.testing.assert_array_equal(labels, classifier.predict(X))
    np.testing.assert_array_equal(tuned.predict(X), classifier.predict(X))


@pytest.mark.parametrize("options", [{"zipmap": False}, {"zipmap": False, "output_class_labels": True}])
def test_scores_of_pairs_of_classes_are_no_scores_of_classes(options):
    machine = SVC(decision_function_shape="ovo").fit(X, Y)
    onx = skl2onnx.to_onnx(machine, X[:1].astype(np.float32), options={id(machine): options})
    with pytest.raises(
        ModelError, match=r"Before the first step, predict differs from the original model in \d+ of 75 rows"
    ):
        OrtGradientClassifier(onx, **ONE).fit(X, Y)


# converters of a user's own estimators ------------------------------------------------


class Bump(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        self.center_, self.height_, self.n_features_in_ = X.mean(axis=0), float(y.max()), X.shape[1]
        return self

    def predict(self, X):
        return self.height_ * np.exp(-((X - self.center_) ** 2).sum(axis=1))


class Nearest(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.centers_ = np.stack([X[y == c].mean(axis=0) for c in self.classes_])
        return self

    def decision_function(self, X):
        scores = X @ self.centers_.T - (self.centers_**2).sum(axis=1) / 2
        return scores if len(self.classes_) > 2 else scores[:, 1] - scores[:, 0]

    def predict(self, X):
        scores = X @ self.centers_.T - (self.centers_**2).sum(axis=1) / 2
        return self.classes_[scores.argmax(axis=1)]


class Shift(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.shift_ = X.mean(axis=0)
        return self

    def transform(self, X):
        return X - self.shift_


@pytest.fixture
def with_own(own_tables):
    @converter(Bump)
    def bump(op, estimator, x):
        distance = op.ReduceSumSquare(op.Sub(x, estimator.center_), [1], keepdims=1)
        return op.Mul(op.Exp(op.Neg(distance)), np.array([estimator.height_]))

    @converter(Nearest)
    def nearest(op, estimator, x):
        centers = estimator.centers_
        return op.Sub(op.MatMul(x, centers.T), (centers**2).sum(axis=1) / 2)

    @converter(Shift)
    def shift(op, estimator, x):
        return op.Sub(x, estimator.shift_)


@pytest.mark.usefixtures("with_own")
@pytest.mark.parametrize(
    "estimator, weights",
    [
        (Bump(), {"center", "height"}),
        (make_pipeline(Shift(), Bump()), {"bump.center", "bump.height"}),
        (VotingRegressor([("a", Bump()), ("b", Ridge())]), {"estimators_0.center", "estimators_0.height"}),
        (MultiOutputRegressor(Bump()), {"estimators_0.center"}),
        (make_pipeline(Shift(), Ridge()), {"ridge.coef"}),
    ],
    ids=["alone", "pipeline", "voting", "several", "transformer"],
)
def test_an_estimator_of_ones_own(estimator, weights):
    y = np.stack([Y, Y], axis=1) if isinstance(estimator, MultiOutputRegressor) else Y
    fitted = estimator.fit(X, y)
    tuned = OrtGradientRegressor(fitted, max_iter=5, random_state=0).fit(X, y)
    assert weights <= set(tuned.weights_)
    np.testing.assert_allclose(tuned.to_sklearn().predict(X), tuned.predict(X), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("with_own")
@pytest.mark.parametrize("names", [np.array([0, 1, 2]), np.array(["a", "b", "c"])], ids=["integers", "strings"])
def test_a_classifier_of_ones_own(names):
    y = names[Y]
    fitted = Nearest().fit(X, y)
    tuned = OrtGradientClassifier(fitted, learning_rate=1e-12, **ONE).fit(X, y)
    np.testing.assert_array_equal(tuned.predict(X), fitted.predict(X))
    assert set(tuned.weights_) >= {"centers"}


@pytest.mark.usefixtures("own_tables")
def test_a_converter_registered_twice_or_wrong():
    def cell():
        return lambda op, estimator, x: 3

    converter(Bump)(cell())
    converter(Bump)(cell())  # run twice
    fitted = Bump().fit(X, Y)
    with pytest.raises(ConversionError, match="must return a result of op, such as .*, got int"):
        convert(fitted, X)
    with pytest.raises(ParameterError, match="Bump already has a converter"):
        converter(Bump)(lambda op, estimator, x: op.Neg(x))
    with pytest.raises(ParameterError, match="converter must be a class, got 'Bump'"):
        converter("Bump")
    converter(Nearest)(lambda op, estimator, x: op.ReduceMax(x, [1]))
    with pytest.raises(ConversionError, match="returned 1 columns, but the classifier has 3 classes"):
        convert(Nearest().fit(X, Y), X)
    before = registered_converters()
    converter(Bump, override=True)(lambda op, estimator, x: op.ReduceMax(x, [1]))
    assert registered_converters() != before
    with pytest.raises(ConversionError, match="does not match the estimator"):
        compare(fitted, convert(fitted, X).onnx, X)


@pytest.mark.parametrize("options", [{"zipmap": False}, {"zipmap": False, "raw_scores": True}, {}], ids=str)
@pytest.mark.parametrize("names", [np.array([0, 1]), np.array(["no", "yes"])], ids=["integers", "strings"])
@pytest.mark.parametrize("probability", [False, True])
@pytest.mark.parametrize("kind", [SVC, NuSVC])
def test_a_file_of_a_support_vector_machine_of_two_classes(kind, probability, names, options):
    y = names[Y2]
    machine = kind(probability=probability, random_state=0).fit(X2, y)
    onx = skl2onnx.to_onnx(machine, X2[:1].astype(np.float32), options={id(machine): options}, target_opset=21)
    if probability and "raw_scores" in options:  # skl2onnx negates the probabilities: their largest is the other class
        remedy = "Convert without raw_scores"
        with pytest.raises(
            ModelError, match=f"Before the first step, predict differs from the original model.* {remedy}"
        ):
            OrtGradientClassifier(onx, **ONE).fit(X2, y)
        del onx.graph.output[0]  # else its scores would be trained, for the other class
        with pytest.raises(ModelError, match=f"'probabilities' cannot be trained.* {remedy}"):
            OrtGradientClassifier(onx, **ONE).fit(X2, y)
        return
    with warned_of_other_labels(machine, X2):
        tuned = OrtGradientClassifier(onx, learning_rate=1e-12, **ONE).fit(X2, y)
    assert tuned.score(X2, y) == pytest.approx(machine.score(X2, y), abs=0.02)  # probabilities are not the votes
    if probability:
        np.testing.assert_allclose(tuned.predict_proba(X2), machine.predict_proba(X2), atol=5e-3)
    else:
        np.testing.assert_allclose(tuned.decision_function(X2), machine.decision_function(X2), atol=1e-5)
    with warned_of_other_labels(machine, X2):
        trained = OrtGradientClassifier(onx, max_iter=30, random_state=0).fit(X2, y)
    label = run(trained.get_trained_onnx(), {"X": X2.astype(np.float32)})[0]
    assert np.mean(label == trained.predict(X2)) > 0.9
    assert trained.score(X2, y) > 0.8


NOISY = make_classification(300, 8, n_informative=6, n_redundant=0, n_classes=5, flip_y=0.2, random_state=0)


def file_of(estimator, **options):
    """Return a fitted estimator, and its ONNX model as skl2onnx writes it."""
    fitted = estimator.fit(*NOISY)
    rows = NOISY[0][:1].astype(np.float32)
    return fitted, skl2onnx.to_onnx(fitted, rows, options={id(fitted): options}, target_opset=21)


def labels_of(onx):
    return run(onx, {"X": NOISY[0].astype(np.float32)})[0]


@pytest.mark.parametrize("kind", [SVC(), NuSVC(nu=0.2), SVC(break_ties=True)], ids=str)
def test_a_file_of_a_support_vector_machine_of_five_classes_votes(kind):
    fitted, onx = file_of(kind, zipmap=False)
    start = OrtGradientClassifier(onx, learning_rate=1e-12, **ONE).fit(*NOISY)
    np.testing.assert_array_equal(start.predict(NOISY[0]), labels_of(onx))
    assert np.any(fitted.decision_function(NOISY[0]).argmax(axis=1) != labels_of(onx))  # the votes are not the scores
    trained = OrtGradientClassifier(onx, max_iter=20, random_state=0).fit(*NOISY)
    np.testing.assert_array_equal(trained.predict(NOISY[0]), labels_of(trained.get_trained_onnx()))
    unbroken = OrtGradientClassifier(SVC(break_ties=True).fit(*NOISY), learning_rate=1e-12, **ONE).fit(*NOISY)
    again = OrtGradientClassifier(unbroken.get_trained_onnx(), learning_rate=1e-12, **ONE).fit(*NOISY)
    np.testing.assert_array_equal(again.predict(NOISY[0]), unbroken.predict(NOISY[0]))


@pytest.mark.filterwarnings("ignore:[A-Za-z]+ minimizes the loss:UserWarning")
def test_a_file_that_chooses_among_clipped_probabilities_is_warned_of():
    machine = SGDClassifier(loss="modified_huber", random_state=0)
    machine, onx = file_of(machine, zipmap=False)
    with pytest.warns(UserWarning, match="predict differs from the original .* clipped or rounded to the same largest"):
        OrtGradientClassifier(onx, **ONE).fit(*NOISY)
    for remedy in (machine, file_of(machine, zipmap=False, raw_scores=True)[1]):
        tuned = OrtGradientClassifier(remedy, max_iter=5, random_state=0).fit(*NOISY)
        np.testing.assert_array_equal(tuned.predict(NOISY[0]), labels_of(tuned.get_trained_onnx()))


def test_a_file_of_opposite_scores_is_warned_of():
    bag = BaggingClassifier(LogisticRegression(), 2, random_state=0).fit(X2, Y2)
    options = {id(bag): {"zipmap": False, "raw_scores": True}}
    onx = skl2onnx.to_onnx(bag, X2[:1].astype(np.float32), options=options, target_opset=21)
    with pytest.warns(UserWarning, match="two columns of the output 'probabilities' are -d and d"):
        OrtGradientClassifier(onx, **ONE).fit(X2, Y2)


def test_a_file_that_computes_probabilities_of_opposite_scores_is_not_warned_of():  # filterwarnings = error
    """skl2onnx writes those of two classes so in float64, which it also takes for integer beside float columns."""
    line = LogisticRegression().fit(X2, Y2)
    onx = skl2onnx.to_onnx(line, X2[:1].astype(np.float64), options={"zipmap": False}, target_opset=21)
    tuned = OrtGradientClassifier(onx, max_iter=0).fit(X2, Y2)
    np.testing.assert_allclose(tuned.predict_proba(X2), line.predict_proba(X2), atol=1e-6)


@pytest.mark.parametrize("n_rows, kind", [(400, SVC), (400, NuSVC), (1500, SVC)])
def test_labels_of_libsvm_are_its_own_or_warned_of(n_rows, kind):
    """In the long table one row of 1500 has another label, none of a sample of 200 has."""
    rows, y = make_classification(n_rows, 6, flip_y=0.1, random_state=0)
    machine = kind(probability=True, random_state=0).fit(rows[:400], y[:400])
    differs = machine.classes_[machine.predict_proba(rows).argmax(axis=1)] != machine.predict(rows)
    with warned_of_other_labels(machine, rows):
        tuned = OrtGradientClassifier(machine, learning_rate=1e-12, **ONE).fit(rows, y)
    assert np.count_nonzero(tuned.predict(rows) != machine.predict(rows)) == differs.sum()
    for remedy in (CalibratedClassifierCV(kind(), ensemble=False), kind()):
        remedy.fit(rows[:400], y[:400])
        tuned = OrtGradientClassifier(remedy, learning_rate=1e-12, **ONE).fit(rows, y)
        np.testing.assert_array_equal(tuned.predict(rows), remedy.predict(rows))


@pytest.mark.parametrize("target", [Y, Y == 0], ids=["three classes", "two"])
def test_clipped_probabilities_do_not_choose_the_class(target):
    machine = SGDClassifier(loss="modified_huber", random_state=0).fit(10 * X, target)
    found = run(convert(machine, 10 * X).onnx, {"X": np.float32(10 * X)})[0]
    np.testing.assert_array_equal(found, machine.predict(10 * X))


#: Columns of integers and of floats, with gaps; one has no value at all, and -1 stands for what is not known.
GAPS = {
    "age": np.arange(60) % 7 - 1,
    "income": np.where(np.arange(60) % 5, np.linspace(-1, 2, 60), np.nan),
    "never": np.full(60, np.nan),
    "married": np.arange(60) % 2 == 0,
}

IMPUTERS = {
    "mean": (SimpleImputer(), ["age", "income"]),
    "integers": (SimpleImputer(strategy="median"), ["age"]),
    "booleans": (SimpleImputer(), ["married", "income"]),
    "indicator": (SimpleImputer(strategy="median", add_indicator=True), ["age", "income"]),
    "constant": (SimpleImputer(strategy="constant", fill_value=-2), ["age", "income"]),
    "marked": (SimpleImputer(missing_values=-1, strategy="most_frequent", add_indicator=True), ["age"]),
    "empty": (SimpleImputer(), ["age", "never", "income"]),
    "empty, kept": (SimpleImputer(keep_empty_features=True), ["age", "never", "income"]),
}


@pytest.mark.parametrize("imputer, names", IMPUTERS.values(), ids=IMPUTERS)
@pytest.mark.filterwarnings("ignore:Skipping features without any observed values")
def test_an_imputer_of_columns_of_several_types_is_onnx(imputer, names):
    pd = pytest.importorskip("pandas")
    X, y = pd.DataFrame(GAPS)[names], np.arange(60) % 4 + np.arange(60) / 60
    pipeline = make_pipeline(imputer, Ridge()).fit(X, y)
    fitted = OrtGradientRegressor(pipeline, max_iter=0).fit(X, y)
    assert set(fitted.onnx_status_.values()) == {"ONNX"}
    np.testing.assert_allclose(fitted.predict(X), pipeline.predict(X), atol=1e-5)


def test_an_imputer_by_neighbours_is_run_by_scikit_learn():
    rng = np.random.default_rng(0)
    rows, y = rng.random((60, 4)).round(1), rng.random(60)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    rows[50] = np.nan
    model = make_pipeline(KNNImputer(n_neighbors=2), Ridge()).fit(rows[:30], y[:30])
    with pytest.raises(ConversionError, match=r"pipeline.knnimputer .* equally far, rounding decides"):
        convert(model, rows)
    tuned = OrtGradientRegressor(model, max_iter=0).fit(rows[:30], y[:30])
    assert tuned.onnx_status_ == {"knnimputer": "scikit-learn", "ridge": "ONNX"}
    np.testing.assert_allclose(tuned.predict(rows), model.predict(rows), rtol=1e-5)


@pytest.mark.parametrize("labels", [[0, 1, 2], [7, -3, 100], ["b", "a", "c"]], ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_and_scores_of_one_versus_one(labels, n_classes):
    rows = n_classes > Y
    features, y = X[rows], np.array(labels)[Y[rows]]
    model = make_pipeline(StandardScaler(), OneVsOneClassifier(LogisticRegression())).fit(features, y)
    tuned = OrtGradientClassifier(model, max_iter=0).fit(features, y)
    scores = model.decision_function(features)
    np.testing.assert_allclose(tuned.decision_function(features), scores, atol=1e-5)  # the shape as well
    np.testing.assert_array_equal(tuned.predict(features), model.predict(features))
    trained = tuned.set_params(max_iter=3).fit(features, y)
    found, *_ = run(trained.get_trained_onnx(), {"X": features.astype(np.float32)})
    np.testing.assert_array_equal(found.ravel(), trained.predict(features))
    np.testing.assert_array_equal(trained.to_sklearn().predict(features), trained.predict(features))


@pytest.mark.parametrize("weights", [[1, 3], (1, 3), np.array([1, 3])], ids=["list", "tuple", "array"])
def test_the_weights_of_votes_are_any_sequence(weights):
    members = [("a", LogisticRegression(C=0.1)), ("b", LogisticRegression())]
    classes = VotingClassifier(members, voting="soft", weights=weights).fit(X, Y)
    found = OrtGradientClassifier(classes, max_iter=0).fit(X, Y).predict_proba(X)
    np.testing.assert_allclose(found, classes.predict_proba(X), atol=1e-6)
    mean = VotingRegressor([("a", Ridge(100.0)), ("b", LinearRegression())], weights=weights).fit(X, Y)
    found = OrtGradientRegressor(mean, max_iter=0).fit(X, Y).predict(X)
    np.testing.assert_allclose(found, mean.predict(X), atol=1e-5)
    assert mean.weights is weights


MARGIN = make_pipeline(StandardScaler(), LinearSVC(random_state=0))
NESTED = make_pipeline(MaxAbsScaler(), MARGIN)


@pytest.mark.parametrize("pipeline", [MARGIN, NESTED], ids=["pipeline", "nested"])
@pytest.mark.parametrize("names", [np.array([0, 1, 2]), np.array(["a", "b", "c"])], ids=["integers", "strings"])
@pytest.mark.parametrize(
    "kind",
    [
        lambda pipeline: CalibratedClassifierCV(pipeline, cv=2),
        OneVsRestClassifier,
        OneVsOneClassifier,
        lambda pipeline: StackingClassifier([("a", pipeline)], cv=2),
        lambda pipeline: pipeline,
    ],
    ids=["calibrated", "one vs rest", "one vs one", "stacked", "alone"],
)
def test_a_pipeline_without_probabilities_inside_others(kind, names, pipeline):
    y = names[Y]
    model = kind(pipeline).fit(X, y)
    tuned = OrtGradientClassifier(model, max_iter=0).fit(X, y)
    method = "predict_proba" if hasattr(model, "predict_proba") else "decision_function"
    np.testing.assert_allclose(getattr(tuned, method)(X), getattr(model, method)(X), atol=1e-5)
    np.testing.assert_array_equal(tuned.predict(X), model.predict(X))


@pytest.mark.parametrize(
    "model",
    [
        QuadraticDiscriminantAnalysis(),
        RandomizedSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, n_iter=1, cv=2, random_state=0),
        HalvingGridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), {}, cv=2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_file_has_a_label_for_each_row(model):
    label, probabilities = run(convert(model.fit(X, Y), X).onnx, {"X": X.astype(np.float32)})
    np.testing.assert_array_equal(label, model.predict(X))
    np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("searched", [LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression())])
@pytest.mark.parametrize(
    "around",
    [
        lambda search: CalibratedClassifierCV(search, cv=2),
        lambda search: VotingClassifier([("search", search), ("nb", GaussianNB())], voting="soft"),
        lambda search: StackingClassifier([("search", search)], cv=2),
    ],
    ids=["calibration", "vote", "stack"],
)
def test_a_search_inside_another_estimator(around, searched):
    model = around(GridSearchCV(searched, {}, cv=2)).fit(X, Y)
    tuned = OrtGradientClassifier(model, max_iter=0).fit(X, Y)
    np.testing.assert_allclose(tuned.predict_proba(X), model.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(tuned.to_sklearn().predict_proba(X), model.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("around", [lambda search: CalibratedClassifierCV(search, cv=2), OneVsOneClassifier])
def test_a_search_of_a_divided_pipeline_whose_last_step_has_no_option_zipmap(around):
    searched = make_pipeline(FunctionTransformer(np.arcsinh), LinearSVC())
    model = around(GridSearchCV(searched, {}, cv=2)).fit(X, Y)
    tuned = OrtGradientClassifier(model, max_iter=0).fit(X, Y)
    np.testing.assert_array_equal(tuned.predict(X), model.predict(X))
    np.testing.assert_array_equal(tuned.to_sklearn().predict(X), model.predict(X))


@pytest.mark.parametrize("member", [GaussianNB(), make_pipeline(StandardScaler(), GaussianNB())])
def test_a_vote_of_one_member_is_refused_with_the_member(member):
    with pytest.raises(ConversionError, match="has one member, GaussianNB, .* Fit and pass the member alone"):
        OrtGradientClassifier(OneVsOneClassifier(member).fit(X, Y == 0)).fit(X, Y == 0)
    assert OrtGradientClassifier(clone(member), max_iter=0).fit(X, Y == 0).score(X, Y == 0) > 0.5


@pytest.mark.parametrize("around", [lambda search: search, lambda search: make_pipeline(StandardScaler(), search)])
@pytest.mark.parametrize(
    "model",
    [
        MLPRegressor(max_iter=20, tol=1e3, n_iter_no_change=1),
        make_pipeline(StandardScaler(), MLPRegressor(max_iter=20, tol=1e3, n_iter_no_change=1)),
    ],
)
def test_a_network_that_a_search_found_keeps_its_columns(model, around):
    targets = np.column_stack([X[:, 0], X[:, 1] - X[:, 2]])
    found = around(GridSearchCV(model, {}, cv=2)).fit(X, targets)
    (y,) = run(convert(found, X).onnx, {"X": X.astype(np.float32)})
    np.testing.assert_allclose(y, found.predict(X), atol=1e-5)


@pytest.mark.parametrize("labels", [Y.astype(float), Y.astype(np.uint8)], ids=["0.0", "uint8"])
@pytest.mark.parametrize(
    "estimator",
    [
        AdaBoostClassifier(n_estimators=3, random_state=0), ComplementNB(), GaussianNB(), SGDClassifier(random_state=0),
        OneVsOneClassifier(LogisticRegression()), OneVsRestClassifier(LogisticRegression()),
        make_pipeline(MaxAbsScaler(), CalibratedClassifierCV(LogisticRegression(), cv=2)),
    ],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_labels_may_be_real_valued_or_unsigned(estimator, labels):
    """The converters of these classes would write the labels as strings."""
    rows = X - X.min(axis=0)  # not negative, for ComplementNB
    fitted = clone(estimator).fit(rows, labels)
    tuned = OrtGradientClassifier(fitted, learning_rate=1e-12, **ONE).fit(rows, labels)
    found, expected = tuned.predict(rows), fitted.predict(rows)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
    assert run(tuned.get_trained_onnx(), {"X": rows.astype(np.float32)})[0].dtype == np.int64


@pytest.mark.parametrize(
    "estimator, name", [(LinearSVC(), "scores"), (SVC(), "scores"), (LogisticRegression(), "probabilities")]
)
def test_scores_are_not_named_probabilities(estimator, name):
    tuned = OrtGradientClassifier(estimator, **ONE).fit(X, Y)
    onx = tuned.get_trained_onnx()
    assert [output.name for output in onx.graph.output] == ["label", name]
    values = tuned.decision_function(X) if name == "scores" else tuned.predict_proba(X)
    np.testing.assert_allclose(run(onx, {"X": X.astype(np.float32)})[1], values, atol=1e-5)


def test_the_column_named_scores_keeps_its_name():
    frame = pytest.importorskip("pandas").DataFrame({"scores": X2[:, 0], "city": np.where(Y2, "Rome", "Oslo")})
    model = make_pipeline(make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough"), LinearSVC())
    onx = OrtGradientClassifier(model, **ONE).fit(frame, Y2).get_trained_onnx()
    assert "scores" in [value.name for value in onx.graph.input]
    assert [output.name for output in onx.graph.output] == ["label", "probabilities"]


@pytest.mark.filterwarnings("ignore:Before the first step, predict differs")  # libsvm's probabilities
def test_without_probabilities_and_scores_predict_is_left():
    tuned = OrtGradientClassifier(SVC(probability=True), loss="squared_hinge", **ONE).fit(X2, Y2)
    with pytest.raises(AttributeError, match=r"CalibratedClassifierCV\.$"):
        tuned.predict_proba(X2)
    with pytest.raises(AttributeError, match=r"Use predict, or to_sklearn\(\)\.decision_function\(X\)"):
        tuned.decision_function(X2)


@pytest.mark.parametrize("opset", [11, 12, 17])
@pytest.mark.parametrize("estimator", [SVC(), NuSVC(), LogisticRegression()], ids=lambda e: type(e).__name__)
def test_files_of_skl2onnx_keep_their_labels(estimator, opset):
    """Those of libsvm have the decision value in column 0; those of older opsets import a domain twice."""
    onx = skl2onnx.to_onnx(estimator.fit(X2, Y2), X2[:1].astype(np.float32), target_opset=opset)
    tuned = OrtGradientClassifier(onx, learning_rate=1e-12, loss="hinge", **ONE).fit(X2, Y2)
    np.testing.assert_array_equal(tuned.predict(X2), estimator.predict(X2))
    np.testing.assert_array_equal(run(tuned.get_trained_onnx(), {"X": X2.astype(np.float32)})[0], tuned.predict(X2))


@pytest.mark.parametrize("kind, parameter", [(SVR, "epsilon=0.1"), (NuSVR, "nu or C")])
def test_a_machine_without_support_vectors_says_so(kind, parameter):
    targets = X2[:, 0] * 1e-6
    with pytest.raises(ConversionError, match=f"no support vectors .* {parameter}"):
        OrtGradientRegressor(kind(), **ONE).fit(X2, targets)
    remedy = TransformedTargetRegressor(kind(), transformer=StandardScaler()).fit(X2, targets)
    tuned = OrtGradientRegressor(remedy, learning_rate=1e-12, **ONE).fit(X2, targets)
    np.testing.assert_allclose(tuned.predict(X2), remedy.predict(X2), atol=1e-5 * np.ptp(targets))


@pytest.mark.skipif(
    "loss" not in MLPRegressor().get_params(), reason="MLPRegressor has no loss before scikit-learn 1.7"
)
def test_a_network_of_the_poisson_loss_ends_in_an_exponential():
    counts = np.exp(X2[:, 0])
    network = MLPRegressor(loss="poisson", hidden_layer_sizes=(3,), max_iter=50, random_state=0).fit(X2, counts)
    tuned = OrtGradientRegressor(network, loss="poisson", max_iter=20, random_state=0).fit(X2, counts)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    np.testing.assert_allclose(tuned.to_sklearn().predict(X2), tuned.predict(X2), rtol=1e-5)


def test_isotonic_calibration_in_float64():
    calibrated = CalibratedClassifierCV(LinearSVC(random_state=0), method="isotonic", cv=2).fit(X, Y)
    tuned = OrtGradientClassifier(calibrated, dtype="float64", max_iter=0).fit(X, Y)
    np.testing.assert_allclose(tuned.predict_proba(X), calibrated.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize(
    "estimator, message",
    [
        (GradientBoostingRegressor(init=Ridge()), r"predictions of init=Ridge\(.*\), .*init=None or init='zero'"),
        (KernelRidge(kernel=RBF()), r"The kernel RBF\(length_scale=1\) has no formula"),
    ],
)
def test_parts_without_a_formula_are_named(estimator, message):
    with pytest.raises(ConversionError, match=message):
        OrtGradientRegressor(estimator, **ONE).fit(X2, Y2)
