"""Behaviour of ``fit`` and ``partial_fit``: order, weights, stopping, continuing, interruption."""

import copy
import pickle
import subprocess
import sys
import warnings

import numpy as np
import onnx
import onnx.parser
import pytest
from skl2onnx import to_onnx
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_sample_weight

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.errors import ConvergenceError, ParameterError
from onnxtrain.optim import SGD, Adam
from onnxtrain.runtime.session import run

LBFGS = dict(solver="lbfgs", dtype="float64", tol=1e-10, max_iter=1000)


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(X), y / y.std()


@pytest.fixture(scope="module")
def mlp(diabetes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MLPRegressor(hidden_layer_sizes=(10,), max_iter=20, random_state=0).fit(*diabetes)


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


# ------------------------------------------------------------------- data


def test_one_epoch_sees_every_row_once():
    # each row has its own feature: one step of SGD moves the weight of the rows it saw
    n = 103
    X, y = np.eye(n, dtype=np.float32), np.ones(n)
    model = OrtGradientRegressor(
        FrozenEstimator(LinearRegression(fit_intercept=False).fit(X, np.zeros(n))),
        solver=SGD(),
        learning_rate=0.5,
        batch_size=10,
        max_iter=1,
        random_state=0,
    ).fit(X, y)
    # the mean over a batch of 10, and over the last of 3
    moved, counts = np.unique(model.weights_["coef"].ravel(), return_counts=True)
    np.testing.assert_allclose(moved, [2 * 0.5 / 10, 2 * 0.5 / 3], rtol=1e-6)
    assert counts.tolist() == [100, 3]


@pytest.mark.parametrize("estimator", [None, "mlp"])
def test_weights_of_rows_are_repetitions(diabetes, mlp, estimator):
    X, y = diabetes[0][:60], diabetes[1][:60]
    weight = np.random.default_rng(0).integers(0, 4, len(X))
    params = LBFGS | dict(estimator=None if estimator is None else mlp, max_iter=30, l2=1e-2)
    weighted = OrtGradientRegressor(**params).fit(X, y, sample_weight=weight)
    repeated = OrtGradientRegressor(**params).fit(X.repeat(weight, axis=0), y.repeat(weight))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-6, atol=1e-6)


def test_a_row_of_weight_zero_is_absent(diabetes):
    X, y = diabetes
    weight = np.ones(len(X))
    weight[::3] = 0
    kept = weight > 0
    params = dict(random_state=0, max_iter=5, batch_size=32)
    linear = LinearRegression().fit(X, y)
    a = OrtGradientRegressor(linear, **params).fit(X, y, sample_weight=weight)
    y_wild = np.where(kept, y, 1e6)
    b = OrtGradientRegressor(linear, **params).fit(X, y_wild, sample_weight=weight)
    assert same(a.weights_, b.weights_)


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
@pytest.mark.filterwarnings("ignore:The validation set")
def test_a_row_of_weight_zero_may_have_no_loss(diabetes, solver):
    """Of training or validation: the logarithm of its label is infinite, and zero times that would be NaN."""

    def squared_log_error(op, y_true, y_pred):
        return (np.log(y_true) - y_pred) ** 2

    X, y = diabetes
    weight = (np.arange(len(X)) % 3).astype(float)
    kept = weight > 0
    y = np.where(kept, y, 0.0)
    linear = LinearRegression().fit(X[kept], np.log(y[kept]))
    params = dict(loss=squared_log_error, solver=solver, dtype="float64", max_iter=5, random_state=0)
    all_rows, some = OrtGradientRegressor(linear, **params), OrtGradientRegressor(linear, **params)
    all_rows.fit(X, y, weight, X_val=X, y_val=y, sample_weight_val=weight)
    some.fit(X[kept], y[kept], weight[kept], X_val=X[kept], y_val=y[kept], sample_weight_val=weight[kept])
    np.testing.assert_allclose(all_rows.validation_loss_curve_, some.validation_loss_curve_, rtol=1e-9)
    np.testing.assert_allclose(all_rows.predict(X), some.predict(X), rtol=1e-9)


@pytest.mark.parametrize("init", ["estimator", "random"])
@pytest.mark.parametrize(
    "loss, l1, power", [("absolute_error", 0.0, 1), ("absolute_error", 1e-3, 1), ("squared_error", 0.0, 2)]
)
def test_lbfgs_lowers_the_loss_of_large_targets_in_float32(diabetes, loss, l1, power, init):
    """Its first step has length 1, which may change such a loss by less than rounding."""
    X, y = diabetes
    y = np.where(np.arange(len(y)) % 10, y, 8 * y)
    losses = []
    for unit in (1.0, 1e8):
        start = LinearRegression().fit(X, unit * np.roll(y, 1))
        model = OrtGradientRegressor(start, solver="lbfgs", loss=loss, l1=l1, init=init, random_state=0)
        losses.append(model.fit(X, unit * y).losses(X, unit * y).mean() / unit**power)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 1.0, 1: 5.0, 2: 0.5}])
def test_class_weight_is_sample_weight(class_weight):
    X, y = load_iris(return_X_y=True)
    y = y[:110]
    X = X[:110]
    params = dict(random_state=0, max_iter=5)
    by_class = OrtGradientClassifier(class_weight=class_weight, **params).fit(X, y)
    by_row = OrtGradientClassifier(**params).fit(X, y, sample_weight=compute_sample_weight(class_weight, y))
    assert same(by_class.weights_, by_row.weights_)


@pytest.mark.parametrize("targets", [lambda y: y, lambda y: np.stack([y > 0, y == 1], axis=1).astype(int)])
def test_a_validation_loss_is_weighted_by_the_balanced_classes_of_the_training(targets):
    X, classes = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    y, rest = targets(classes), np.argsort(classes)[:100]  # other shares of the classes, and one class is missing
    weight = 1.0 + np.arange(len(rest)) % 3
    model = OrtGradientClassifier(class_weight="balanced", dtype="float64", max_iter=3, random_state=0)
    with pytest.warns(UserWarning, match="The validation set"):
        model.fit(X, y, X_val=X[rest], y_val=y[rest], sample_weight_val=weight)
    total = weight * compute_sample_weight("balanced", y)[rest]
    expected = np.average(model.losses(X[rest], y[rest]), weights=total)
    assert model.best_loss_ == pytest.approx(expected, rel=1e-12)


def test_a_class_that_only_the_validation_set_has_counts_once_if_classes_are_balanced():
    X, y = load_wine(return_X_y=True)
    model, few = LogisticRegression(max_iter=10_000).fit(X, y), slice(0, 130)  # the classes 0 and 1
    rest = np.r_[20:30, 150:178]
    tuned = OrtGradientClassifier(model, class_weight="balanced", dtype="float64", max_iter=1, learning_rate=1e-6)
    tuned.fit(X[few], y[few], X_val=X[rest], y_val=y[rest])
    weights = np.where(y[rest] == 2, 1, 130 / (2 * (y[few] == 0).sum()))
    assert tuned.best_loss_ == pytest.approx(np.average(tuned.losses(X[rest], y[rest]), weights=weights), rel=1e-12)


#: How y is given: a class, several labels or a class for each of two positions of a row.
ZERO_WEIGHT = {
    "classes": (None, lambda y: y),
    "labels": (None, lambda y: np.stack([y > 0, y == 1], axis=1).astype(int)),
    "positions": ("(double[N,4] X) => (double[N,2,3] Y)", lambda y: np.stack([y, np.zeros_like(y)], axis=1)),
}


@pytest.mark.parametrize("text, targets", ZERO_WEIGHT.values(), ids=ZERO_WEIGHT)
def test_balanced_classes_do_not_count_rows_of_weight_zero(text, targets):
    """They counted: a class most of whose rows had weight zero was weighed as a frequent one."""
    X, y = load_iris(return_X_y=True)
    y = targets(y)
    weight = np.where(np.arange(len(X)) % 5 < 2, 0.0, 1.0 + np.arange(len(X)) % 3)
    weight[60:90] = 0
    kept = weight > 0
    model = None
    if text is None:
        model = MLPClassifier((3,), max_iter=3, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
    else:
        model = onnx.parser.parse_model(
            f"""<ir_version: 8, opset_import: ["" : 17]> g {text} <double[4,6] W = {{{", ".join("1" * 24)}}},
            int64[3] shape = {{-1, 2, 3}}> {{ Z = MatMul(X, W) Y = Reshape(Z, shape) }}"""
        )
    params = dict(class_weight="balanced", solver="lbfgs", max_iter=5, l2=0.1, dtype="float64", random_state=0)
    all_rows = OrtGradientClassifier(model, **params).fit(X, y, weight)
    some = OrtGradientClassifier(model, **params).fit(X[kept], y[kept], weight[kept])
    np.testing.assert_allclose(all_rows.loss_curve_, some.loss_curve_, rtol=1e-9)
    np.testing.assert_allclose(all_rows.predict_proba(X), some.predict_proba(X), rtol=1e-5, atol=1e-9)


def test_losses_are_weighted_row_by_row(diabetes):
    X, y = diabetes
    weight = np.arange(len(X), dtype=float)
    model = OrtGradientRegressor(max_iter=1).fit(X, y)
    expected = (model.predict(X) - y) ** 2
    np.testing.assert_allclose(model.losses(X, y), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.losses(X, y, weight), expected * weight, rtol=1e-4, atol=1e-3)


def test_several_targets(diabetes):
    X, y = diabetes
    Y = np.stack([y, -2 * y], axis=1)
    model = OrtGradientRegressor(**LBFGS).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), LinearRegression().fit(X, Y).predict(X), rtol=1e-6, atol=1e-6)
    assert model.losses(X, Y).shape == (len(X),)


# ---------------------------------------------------------- start and go on


def test_a_fitted_estimator_is_where_training_starts(diabetes, mlp):
    X, y = diabetes
    found = OrtGradientRegressor(mlp, max_iter=0).fit(X, y)
    np.testing.assert_allclose(found.predict(X), mlp.predict(X), rtol=1e-5, atol=1e-5)


def test_a_clone_stays_fitted_and_is_not_shared(diabetes, mlp):
    X, y = diabetes
    original = OrtGradientRegressor(mlp, max_iter=0)
    cloned = clone(original)
    assert cloned.estimator is not mlp
    np.testing.assert_array_equal(cloned.estimator.coefs_[0], mlp.coefs_[0])
    np.testing.assert_array_equal(cloned.fit(X, y).predict(X), original.fit(X, y).predict(X))
    assert not hasattr(clone(OrtGradientRegressor(LinearRegression())).estimator, "coef_")


def test_init_random_draws_from_the_seed(diabetes, mlp):
    X, y = diabetes
    a, b, c = (
        OrtGradientRegressor(mlp, init="random", max_iter=0, random_state=seed).fit(X, y).weights_ for seed in (0, 0, 1)
    )
    assert same(a, b)
    assert not same(a, c)
    assert not a["intercepts_0"].any()
    bound = np.sqrt(6 / (10 + 10))
    assert 0.8 * bound < np.abs(a["coefs_0"]).max() <= bound


@pytest.mark.parametrize("scaled", ["LayerNormalization(h, G, C)", "Mul(h, G)", "Div(h, G)"])
def test_init_random_leaves_a_network_with_scales_alive(scaled):
    onx = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n, 2] X) => (float[n, 1] Y) <float[2, 3] W = {{1, 2, 3, 4, 5, 6}}, float[3] G = {{2, 3, 4}},
            float[3] C = {{5, 6, 7}}, float[3, 1] V = {{1, 2, 3}}, float[1] b = {{1}}>
        {{ h = MatMul(X, W) s = {scaled} r = Tanh(s) p = MatMul(r, V) Y = Add(p, b) }}""")
    X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    start = OrtGradientRegressor(onx, init="random", max_iter=0, random_state=0).fit(X, X[:, 0])
    assert (start.weights_["G"] == 1).all()
    assert not start.weights_["b"].any()
    learned = OrtGradientRegressor(onx, init="random", solver="lbfgs", random_state=0).fit(X, X[:, 0])
    assert learned.score(X, X[:, 0]) > 0.8


def test_warm_start_goes_on_from_weights_and_memory(diabetes, mlp):
    X, y = diabetes
    params = dict(random_state=0, shuffle=False, tol=0, solver=Adam(), l2=1e-3)
    once = OrtGradientRegressor(mlp, max_iter=6, **params).fit(X, y)
    twice = OrtGradientRegressor(mlp, max_iter=3, warm_start=True, **params).fit(X, y).fit(X, y)
    assert same(once.weights_, twice.weights_)
    assert once.loss_curve_ == twice.loss_curve_
    assert twice.n_iter_ == 6
    cold = OrtGradientRegressor(mlp, max_iter=3, **params).fit(X, y).fit(X, y)
    assert cold.n_iter_ == 3


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    "changed",
    [{"estimator": Ridge(fit_intercept=False)}, {"weights_to_train": "intercept"}, {"dtype": "float64"}],
    ids=lambda changed: next(iter(changed)),
)
def test_training_does_not_go_on_with_another_model(changed, method, diabetes):
    X, y = diabetes
    model = OrtGradientRegressor(Ridge(), max_iter=1, warm_start=True, random_state=0).fit(X, y)
    expected = model.predict(X)
    (name,) = changed
    before = getattr(model, name)
    with pytest.raises(ParameterError, match=rf"^{name}.*[Ss]tart anew with fit and warm_start=False"):
        getattr(model.set_params(**changed), method)(X, y)
    np.testing.assert_array_equal(model.predict(X), expected)
    assert getattr(model.set_params(**{name: before}), method)(X, y).n_iter_ == 2
    assert model.set_params(warm_start=False, **changed).fit(X, y).n_iter_ == 1


COPIES = {
    "pickled": lambda model, path: pickle.loads(pickle.dumps(model)),
    "copied": lambda model, path: copy.deepcopy(model),
    "saved": lambda model, path: save(model, path) or load(path).set_params(warm_start=True),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("start", ["none", "estimator", "onnx"])
def test_a_copy_goes_on(start, way, diabetes, tmp_path):
    X, y = diabetes
    ridge = Ridge().fit(X, y)
    given = {"none": None, "estimator": ridge, "onnx": to_onnx(ridge, X[:1].astype(np.float32))}[start]
    model = OrtGradientRegressor(given, max_iter=1, warm_start=True, random_state=0, weights_to_train=["*"])
    model.fit(X, y)
    again = COPIES[way](model, tmp_path / "model.onnx")
    assert again.fit(X, y).partial_fit(X, y).n_iter_ == 3
    assert clone(again).fit(X, y).n_iter_ == 1


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float64", "float32")], ids=" to ".join)
def test_losses_are_those_of_the_type_that_was_trained(dtypes, diabetes):
    X, y = diabetes
    model = OrtGradientRegressor(Ridge(), max_iter=1, random_state=0, dtype=dtypes[0]).fit(X, y)
    expected = model.losses(X, y)
    np.testing.assert_allclose(model.set_params(dtype=dtypes[1]).losses(X, y), expected, rtol=1e-4, atol=1e-6)


def test_partial_fit_is_one_epoch(diabetes, mlp):
    X, y = diabetes
    params = dict(random_state=0, shuffle=False, tol=0)
    fitted = OrtGradientRegressor(mlp, max_iter=3, **params).fit(X, y)
    partial = OrtGradientRegressor(mlp, **params)
    for _ in range(3):
        partial.partial_fit(X, y)
    assert same(fitted.weights_, partial.weights_)


def test_partial_fit_knows_classes_that_come_later():
    X, y = load_iris(return_X_y=True)
    model = OrtGradientClassifier(random_state=0, learning_rate=0.05)
    model.partial_fit(X[:100], y[:100], classes=[0, 1, 2])
    assert model.predict_proba(X).shape == (150, 3)
    for _ in range(150):
        model.partial_fit(X, y)
    assert model.score(X, y) > 0.9
    with pytest.raises(ValueError, match=r"classes=\[0, 1\] differs from those of the first call, \[0, 1, 2\]"):
        model.partial_fit(X[:100], y[:100], classes=[0, 1])


# -------------------------------------------------------------------- stop


def test_the_best_weights_on_the_users_validation_set_are_kept(diabetes, mlp):
    X, y = diabetes
    model = OrtGradientRegressor(mlp, max_iter=50, learning_rate=0.03, n_iter_no_change=3, random_state=0)
    model.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    assert len(model.validation_loss_curve_) == model.n_iter_ < 50
    best = min(model.validation_loss_curve_)
    assert model.best_loss_ == best
    assert model.validation_loss_curve_[model.best_iteration_ - 1] == best
    np.testing.assert_allclose(model.losses(X[300:], y[300:]).mean(), best, rtol=1e-6)


def test_early_stopping_holds_out_each_class():
    X, y = load_iris(return_X_y=True)
    model = OrtGradientClassifier(early_stopping=True, validation_fraction=0.2, max_iter=30, random_state=0).fit(X, y)
    assert len(model.validation_loss_curve_) == model.n_iter_
    assert model.best_loss_ == min(model.validation_loss_curve_)


@pytest.mark.parametrize("max_iter", [1, 3])
@pytest.mark.filterwarnings("ignore:The validation set")
def test_few_epochs_with_a_validation_set(diabetes, max_iter):
    X, y = diabetes
    model = OrtGradientRegressor(max_iter=max_iter).fit(X, y, X_val=X, y_val=y)
    assert model.n_iter_ == max_iter


def test_divergence_keeps_the_last_good_weights(diabetes, mlp):
    X, y = diabetes
    model = OrtGradientRegressor(mlp, solver="sgd", learning_rate=50.0, max_iter=30, random_state=0)
    with pytest.raises(ConvergenceError, match=r"The loss became .* in epoch \d+ at learning rate 50 \(losses before"):
        model.fit(X, y)
    assert np.isfinite(model.predict(X)).all()


def test_a_gradient_that_is_nan_is_told_from_a_loss_that_is():
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 1] X) => (float[n, 1] Y) <float[1, 1] W = {2}> {
        one = Constant<value_float = 1.0>() zero = Constant<value_float = 0.0>() a = MatMul(X, W) s = Sin(a)
        d = Div(s, a) z = Equal(a, zero) Y = Where(z, one, d) }"""  # sin(a) / a, whose derivative at 0 is 0 / 0
    X = np.arange(4.0, dtype=np.float32)[:, None]
    with pytest.raises(ConvergenceError, match="^A weight became infinite or NaN in epoch 1 at learning rate"):
        OrtGradientRegressor(onnx.parser.parse_model(text), max_iter=2).fit(X, X[:, 0])


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_model_of_infinite_weights_is_named():
    X = np.arange(20.0)[:, None]
    counts = np.repeat([1.0, 0.0], 10)  # sorted, so that the first fold is fitted on counts of 0
    with pytest.raises(ConvergenceError, match=r"intercept is so before the first step, too.*KFold\(shuffle=True\)"):
        OrtGradientRegressor(PoissonRegressor(), loss="poisson").fit(X[10:], counts[10:])
    OrtGradientRegressor(PoissonRegressor(), loss="poisson", max_iter=2).fit(X[::2], counts[::2])


def test_interrupted_training_is_fitted(diabetes, mlp):
    X, y = diabetes

    calls = []

    def interrupt(step):
        calls.append(step)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return 1e-3

    model = OrtGradientRegressor(mlp, learning_rate=interrupt, random_state=0)
    with pytest.warns(UserWarning, match=r"interrupted in epoch 3; the estimator has the weights of epoch 2\."):
        model.fit(X, y)
    expected = OrtGradientRegressor(mlp, max_iter=2, random_state=0).fit(X, y)
    assert same(model.weights_, expected.weights_)


# ----------------------------------------------------------------- the same


SCRIPT = """
import sys, hashlib, numpy as np
from sklearn.datasets import load_iris
from sklearn.neural_network import MLPClassifier
from onnxtrain import OrtGradientClassifier
X, y = load_iris(return_X_y=True)
model = OrtGradientClassifier(MLPClassifier(hidden_layer_sizes=(9,)), init="random", early_stopping=True,
                              max_iter=7, batch_size=32, random_state=3).fit(X, y)
print(hashlib.sha256(b"".join(w.tobytes() for w in model.weights_.values())).hexdigest())
"""


def test_same_seed_same_bits_in_two_processes():
    outputs = {
        subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(outputs) == 1


@pytest.mark.parametrize("batch_size", ["auto", 7])
def test_same_seed_same_bits_in_one_process(diabetes, mlp, batch_size):
    X, y = diabetes
    a, b, c = (
        OrtGradientRegressor(mlp, max_iter=3, batch_size=batch_size, random_state=seed).fit(X, y).weights_
        for seed in (0, 0, 1)
    )
    assert same(a, b)
    assert not same(a, c)


# --------------------------------------------------------------------- ONNX


def test_an_onnx_file_keeps_its_inputs_outputs_and_labels(tmp_path):
    from skl2onnx import to_onnx

    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=0.01)).fit(X, names[y])
    onx = to_onnx(pipeline, X[:1].astype(np.float32), options={"zipmap": False}, target_opset=18)
    onnx.save(onx, tmp_path / "model.onnx")
    for given in (onx, onx.SerializeToString(), str(tmp_path / "model.onnx"), tmp_path / "model.onnx"):
        model = OrtGradientClassifier(given, max_iter=50, learning_rate=0.05, random_state=0).fit(X, names[y])
        assert model.classes_.tolist() == names.tolist()
        assert model.score(X, names[y]) > pipeline.score(X, names[y])
    trained = model.get_trained_onnx()
    assert [v.name for v in trained.graph.input] == [v.name for v in onx.graph.input]
    assert [v.name for v in trained.graph.output] == [v.name for v in onx.graph.output]
    labels, probabilities = run(trained, {"X": X.astype(np.float32)})
    assert labels.tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(probabilities, model.predict_proba(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_maps_and_types_of_an_onnx_file_come_back(dtype):
    from skl2onnx import to_onnx

    X, y = load_iris(return_X_y=True)
    onx = to_onnx(LogisticRegression(C=0.01).fit(X, y), X[:1].astype(np.float32))  # with ZipMap
    model = OrtGradientClassifier(onx, max_iter=5, dtype=dtype, random_state=0).fit(X, y)
    trained = model.get_trained_onnx()
    onnx.checker.check_model(trained)
    assert list(trained.graph.input) == list(onx.graph.input)
    labels, maps = run(trained, {"X": X.astype(np.float32)})
    assert labels.tolist() == model.predict(X).tolist()
    found = [[row[label] for label in (0, 1, 2)] for row in maps]
    np.testing.assert_allclose(found, model.predict_proba(X), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_back_to_scikit_learn(diabetes):
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), MLPClassifier(hidden_layer_sizes=(8,), max_iter=10, random_state=0))
    pipeline.fit(X, y)
    model = OrtGradientClassifier(pipeline, weights_to_train="all", max_iter=20, random_state=0).fit(X, y)
    back = model.to_sklearn()
    assert type(back) is type(pipeline)
    np.testing.assert_allclose(back.predict_proba(X), model.predict_proba(X), rtol=1e-5, atol=1e-6)
    assert not np.array_equal(back[0].mean_, pipeline[0].mean_)


@pytest.mark.parametrize(
    "steps",
    [
        ["passthrough", StandardScaler(), LogisticRegression()],
        [None, make_pipeline(StandardScaler(), "passthrough"), LogisticRegression()],
    ],
)
def test_a_pipeline_of_which_one_step_is_fitted_is_fitted_first(steps):
    X, y = load_iris(return_X_y=True)
    steps[-1].set_params(max_iter=1000).fit(X, y)
    tuned = OrtGradientClassifier(make_pipeline(*steps), max_iter=1).fit(X, y)
    whole = make_pipeline(*steps).fit(X, y)
    np.testing.assert_allclose(tuned.predict_proba(X), whole.predict_proba(X), atol=0.01)
    assert list(tuned.to_sklearn().named_steps) == list(whole.named_steps)


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.filterwarnings("ignore:The validation set")
def test_training_goes_on_from_the_weights_the_user_put_in(diabetes, watched):
    X, y = diabetes
    rows = dict(X_val=X, y_val=y) if watched else {}
    model = OrtGradientRegressor(max_iter=3, random_state=0).fit(X, y, **rows)
    model.weights_["coef"] = np.zeros_like(model.weights_["coef"])
    model.set_params(learning_rate=1e-9).partial_fit(X, y)  # a step so short is none
    assert np.abs(model.weights_["coef"]).max() < 1e-6


@pytest.mark.filterwarnings("ignore:float32 is not precise enough")  # 2e-5 of probabilities
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "model", [SGDClassifier(loss="log_loss"), OneVsRestClassifier(SGDClassifier(loss="log_loss"))], ids=["sgd", "ovr"]
)
def test_probabilities_one_against_the_rest_that_underflow_in_float32(model, dtype):
    X, y = load_digits(return_X_y=True)
    getattr(model, "estimator", model).set_params(random_state=0)
    model.fit(X, y)
    ours = OrtGradientClassifier(model, dtype=dtype, max_iter=0).fit(X, y)
    expected = model.predict_proba(X)
    assert (model.decision_function(X).max(axis=1) < -104).any()
    np.testing.assert_allclose(ours.predict_proba(X), expected, atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X), model.predict(X))
    labels, p = run(ours.get_trained_onnx(), {"X": X.astype(dtype)})
    np.testing.assert_allclose(p, expected, atol=1e-4)
    np.testing.assert_array_equal(labels, model.predict(X))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_probabilities_that_underflow_in_float64_are_uniform(dtype):
    X, y = load_wine(return_X_y=True)  # not scaled: scores of 1e5
    model = OneVsRestClassifier(SGDClassifier(loss="log_loss", random_state=0)).fit(X, y)
    with np.errstate(invalid="ignore"):  # before 1.7 scikit-learn divides 0 by 0
        expected = np.nan_to_num(model.predict_proba(X))
    lost = ~expected.any(axis=1)
    assert 0 < lost.sum() < len(X)
    ours = OrtGradientClassifier(model, dtype=dtype, max_iter=0).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), np.where(lost[:, None], 1 / 3, expected), atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X), model.predict(X))


def test_a_calibrated_classifier_has_no_loss_that_is_not_a_number():
    X, y = load_breast_cancer(return_X_y=True)  # not scaled: powers of the scores are infinite in float32
    model = CalibratedClassifierCV(LinearSVC(random_state=0), cv=2).fit(X, y)
    single, double = (
        OrtGradientClassifier(model, dtype=dtype, max_iter=15, random_state=0).fit(X, y)
        for dtype in ("float32", "float64")
    )
    np.testing.assert_allclose(single.loss_curve_, double.loss_curve_, rtol=1e-2)


def test_coefficients_are_a_copy_that_cannot_be_written():
    """Writing to a copy would change no prediction."""
    linear = OrtGradientRegressor(max_iter=1).fit(*load_diabetes(return_X_y=True))
    with pytest.raises(ValueError, match="read-only"):
        linear.coef_[0] = 0.0
