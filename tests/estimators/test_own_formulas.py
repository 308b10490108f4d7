"""Functions and objects of the user: their current behaviour counts, not that at the time a graph was built."""

import pickle

import numpy as np
import onnx
import onnx.parser
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_regression
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from onnxtrain import OrtGradientRegressor
from onnxtrain.errors import DataError, ExportError, LossError
from onnxtrain.losses import LOSSES, loss
from onnxtrain.optim.base import Optimizer
from onnxtrain.training.evaluate import build_loss_and_gradient
from onnxtrain.training.step import build_step

X, y = make_regression(60, 3, noise=5.0, random_state=0)
X, y = X.astype(np.float32), y / y.std()

ALPHA = 0.5
HELD = {"alpha": 0.5}


def pinball(op, y_true, y_pred, alpha):
    d = op.Sub(y_true, y_pred)
    return op.ReduceSum(op.Max(op.Mul(d, float(alpha)), op.Mul(d, float(alpha) - 1)), [1], keepdims=1)


def fit(loss, **params):
    settings = {"solver": "lbfgs", "dtype": "float64", "max_iter": 200} | params
    return OrtGradientRegressor(loss=loss, **settings).fit(X, y)


def share_above(model):
    return float(np.mean(y < model.predict(X)))


def of_a_global(op, y_true, y_pred):
    return pinball(op, y_true, y_pred, ALPHA)


def of_a_dictionary(op, y_true, y_pred):
    return pinball(op, y_true, y_pred, HELD["alpha"])


class OfAnAttribute:
    alpha = 0.5

    def __call__(self, op, y_true, y_pred):
        return pinball(op, y_true, y_pred, self.alpha)


OBJECT = OfAnAttribute()


def change_global(alpha):
    global ALPHA
    ALPHA = alpha


CHANGED = {
    "global": (of_a_global, change_global),
    "dictionary": (of_a_dictionary, lambda alpha: HELD.update(alpha=alpha)),
    "attribute": (OBJECT, lambda alpha: setattr(OBJECT, "alpha", alpha)),
    "method": (OBJECT.__call__, lambda alpha: setattr(OBJECT, "alpha", alpha)),
    "registered": ("of_a_global_of_a_test", change_global),
}


@pytest.fixture
def registered():
    loss("of_a_global_of_a_test")(of_a_global)
    yield
    LOSSES.unregister("of_a_global_of_a_test")


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
@pytest.mark.parametrize("case", CHANGED)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_loss_that_has_changed_is_trained_as_it_is_now(case, solver, registered):
    function, change = CHANGED[case]
    params = {"solver": solver, "learning_rate": 0.05, "random_state": 0} if solver == "adam" else {}
    found = []
    try:
        for alpha in (0.5, 0.95, 0.5):
            change(alpha)
            model = fit(function, **params)
            found.append(share_above(model))
            d = y - model.predict(X)
            np.testing.assert_allclose(model.losses(X, y), np.maximum(alpha * d, (alpha - 1) * d), rtol=1e-4, atol=1e-5)
    finally:
        change(0.5)
    assert found[0] == found[2] < 0.7
    assert found[1] > 0.8


@pytest.mark.parametrize("rows", [np.asarray, csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_a_loss_may_hold_a_sum_over_the_rows(solver, rows):
    def relative(op, y_true, y_pred):
        return (y_pred - y_true) ** 2 / (y_true * y_true).sum(axis=0)

    size = len(y) if solver == "adam" else "auto"
    whole = {"solver": solver, "max_iter": 3, "batch_size": size, "dtype": "float64", "random_state": 0}
    plain = OrtGradientRegressor(**whole).fit(rows(X), y)
    with pytest.warns(UserWarning, match="The loss 'relative' of a row .* depends on the other rows of its batch"):
        of_sums = OrtGradientRegressor(loss=relative, **whole).fit(rows(X), y)
    expected = plain.losses(rows(X), y) / (y @ y)
    np.testing.assert_allclose(of_sums.losses(rows(X), y), expected, rtol=1e-2, atol=1e-5)


#: Losses of a row that depend on other rows, on their number, or on random numbers.
OF_BATCH = {
    "a difference from the mean": lambda op, t, p: (t - p - op.ReduceMean(t - p, [0], keepdims=1)) ** 2,
    "a cumulative sum": lambda op, t, p: op.CumSum(t - p, 0) ** 2,
    "the first row": lambda op, t, p: (t - p) ** 2 + op.Gather(p, [0], axis=0) ** 2,
    "the next row": lambda op, t, p: (t - op.Concat(p[1:], p[:1], axis=0)) ** 2,
    "the number of rows": lambda op, t, p: (t - p) ** 2 / op.CastLike(op.Shape(p, start=0, end=1), p),
    "pairs of rows": lambda op, t, p: op.ReduceLogSumExp(op.MatMul(p, op.Transpose(t)), [1], keepdims=1),
    "random": lambda op, t, p: (t - p + op.RandomNormalLike(p)) ** 2,
}


@pytest.mark.parametrize("loss", OF_BATCH.values(), ids=OF_BATCH)
def test_a_loss_of_other_rows_is_warned_of(loss):
    model = OrtGradientRegressor(loss=loss, max_iter=1, random_state=0)
    with pytest.warns(
        UserWarning, match="changes between calls, .* or depends on the other rows .* Compute the loss of a row from"
    ):
        model.fit(X, y)
    model.partial_fit(X, y)  # said once
    with pytest.warns(UserWarning, match="depends on the other rows"):
        model.set_params(loss=lambda op, t, p: 2.0 * loss(op, t, p)).partial_fit(X, y)


def test_a_loss_that_changes_between_calls_is_warned_of():
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="changes between calls, as with random numbers"):
        fit(lambda op, t, p: (t - p + float(rng.normal())) ** 2)


def test_parameters_of_a_loss_that_are_arrays_may_change():
    def weighted(op, t, p, factors):
        return ((t - p) ** 2 * factors).sum(axis=1, keepdims=True)

    both, rows = np.c_[y, -y], X.astype(np.float64)  # of float32 rows, predictions have too few digits
    model = OrtGradientRegressor(loss=weighted, max_iter=1, dtype="float64")
    for factors in np.array([[1.0, 2.0], [1.0, 2.0], [5.0, 3.0]]):
        model.set_params(loss_params={"factors": factors}).partial_fit(rows, both)
    np.testing.assert_allclose(model.losses(rows, both), ((both - model.predict(rows)) ** 2) @ [5, 3], rtol=1e-4)


@pytest.mark.parametrize("target", [y, np.full(60, 7.0), 1e9 * y], ids=["", "constant", "large"])
@pytest.mark.parametrize("n_rows", [1, 2, 60])
def test_a_loss_of_the_row_alone_is_not_warned_of(n_rows, target):
    line = LinearRegression().fit(X, target)
    asymmetric = OrtGradientRegressor(line, loss=lambda op, t, p: np.maximum(t - p, 0.0) ** 2, max_iter=0)
    asymmetric.fit(X[:n_rows], target[:n_rows])


def squared_output(op, y_true, y_pred):
    return (y_pred**2).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("rows", [X, csr_matrix(X)], ids=["dense", "sparse"])
@pytest.mark.parametrize("weight", [None, np.arange(60.0)], ids=["", "weighted"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_loss_may_leave_the_labels_out(rows, weight, fit_intercept):
    """As the entropy of what a model predicts for rows without labels."""
    line = LinearRegression(fit_intercept=fit_intercept).fit(X, y)
    settings = {"solver": "sgd", "learning_rate": 0.01, "batch_size": 60, "dtype": "float64", "max_iter": 1}
    model = OrtGradientRegressor(line, loss=squared_output, **settings).fit(rows, y, weight)
    start, dense = line.predict(X), X.astype(np.float64)
    np.testing.assert_allclose(model.loss_curve_, [np.average(start**2, weights=weight)], rtol=1e-6)
    slope = np.average(2 * dense * start[:, None], axis=0, weights=weight)
    np.testing.assert_allclose(model.weights_["coef"].ravel(), line.coef_ - 0.01 * slope, rtol=1e-6)
    np.testing.assert_allclose(model.losses(rows, y), model.predict(rows) ** 2, rtol=1e-6)
    np.testing.assert_allclose(model.gradient(rows, y), 2 * model.predict(rows)[:, None] * model.coef_, rtol=1e-6)


def test_an_exported_step_reads_the_labels(tmp_path):
    line = LinearRegression(fit_intercept=False).fit(X, y)
    model = OrtGradientRegressor(line, loss=squared_output, max_iter=1).fit(X, y)
    with pytest.raises(ExportError, match="The loss does not read y, but an exported step takes y. Add 0"):
        model.export_training_step(tmp_path)


def test_losses_that_build_the_same_graph_share_it():
    cases = [lambda op, a, b, alpha=alpha: pinball(op, a, b, alpha) for alpha in (0.3, 0.3, 0.4)]
    built = []
    for function in cases:
        fit(function)
        built.append(build_loss_and_gradient.cache.misses)
    assert built[0] == built[1] == built[2] - 1


def test_a_loss_that_is_replaced_is_trained_anew():
    try:
        found = []
        for alpha in (0.5, 0.95):
            loss("replaced_by_a_test", override=True)(lambda op, a, b, alpha=alpha: pinball(op, a, b, alpha))
            found.append(share_above(fit("replaced_by_a_test")))
    finally:
        LOSSES.unregister("replaced_by_a_test")
    assert found[0] < 0.7 < found[1]


def weighted(op, y_true, y_pred, *, w=(1.0,)):
    d = op.Sub(y_true, y_pred)
    first = next(iter(w.values())) if isinstance(w, dict) else w[0]
    return op.ReduceSum(op.Mul(op.Mul(d, d), float(first)), [1], keepdims=1)


@pytest.mark.parametrize("w", [(2.0,), [2.0], np.array([2.0]), {"a": 2.0}], ids=lambda w: type(w).__name__)
def test_parameters_of_any_kind(w):
    model = fit(weighted, loss_params={"w": w})
    np.testing.assert_allclose(model.losses(X, y), 2 * (y - model.predict(X)) ** 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("delta", [[1.0], np.array([1.0]), {"a": 1.0}, None, True], ids=repr)
def test_a_parameter_of_a_loss_of_the_table_is_a_number(delta):
    fit("huber", loss_params={"delta": 1.0})
    with pytest.raises(LossError, match="delta must be a finite number > 0, got"):
        fit("huber", loss_params={"delta": delta})


class Scaled(Optimizer):
    """Gradient descent by an attribute; neither frozen nor hashable by content."""

    def __init__(self, factor):
        self.factor = factor

    def update(self, op, w, dw, slots, learning_rate):
        return op.Sub(w, op.Mul(op.Mul(dw, self.factor), learning_rate)), ()


def test_an_optimizer_that_has_changed_steps_as_it_does_now():
    optimizer, moved = Scaled(1.0), []
    for factor in (1.0, 0.5, 1.0):
        optimizer.factor = factor
        settings = {"init": "random", "learning_rate": 0.01, "batch_size": 60, "dtype": "float64", "random_state": 0}
        model = OrtGradientRegressor(solver=optimizer, **settings).partial_fit(X, y)
        moved.append(model.coef_)
    np.testing.assert_allclose(moved[0], moved[2], rtol=1e-12)
    assert not np.allclose(moved[0], moved[1])


def test_optimizers_of_the_table_share_a_step():
    built = []
    for _ in range(2):
        OrtGradientRegressor(solver="adam", max_iter=1, random_state=0).partial_fit(X, y)
        built.append(build_step.cache.misses)
    assert built[0] == built[1]


def test_a_function_of_no_module():
    namespace = {}
    exec("def squares(op, y_true, y_pred): return (y_true - y_pred) ** 2", namespace)
    namespace["squares"].__module__ = None
    np.testing.assert_allclose(fit(namespace["squares"]).predict(X), fit("squared_error").predict(X), atol=1e-6)


MIXED = {
    "rows in numpy's where": lambda op, t, p: np.where(t[:, 0] > 0, t - p, p - t).sum(axis=1, keepdims=True),
    "a flat label": lambda op, t, p: abs(t.reshape(-1) - p).sum(axis=1, keepdims=True),
}


@pytest.mark.filterwarnings("ignore:The loss 'ranking' of a row")
def test_pairs_of_rows_are_written_with_operators_of_onnx():
    """The mean over all rows of a hinge on the differences, a ranking within the batch."""

    def ranking(op, t, p):
        pairs = [op.Sub(x, op.Transpose(x, perm=[1, 0])) for x in (t, p)]
        return op.ReduceMean(op.Relu(op.Sub(1.0, op.Mul(op.Sign(pairs[0]), pairs[1]))), [1], keepdims=1)

    found = fit(ranking).losses(X, y)
    p = fit(ranking).predict(X)
    expected = np.maximum(0, 1 - np.sign(y[:, None] - y) * (p[:, None] - p)).mean(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(LossError, match=r"For all pairs of rows, as in a ranking, use op\.Sub\(a, b\)"):
        fit(lambda op, t, p: abs(p - np.reshape(p, (1, -1))).mean(axis=1, keepdims=True))


@pytest.mark.parametrize("name", MIXED)
def test_a_loss_of_each_row_with_each_other_is_refused(name):
    with pytest.raises(
        LossError, match=r"would broadcast to .*, which pairs each row with every other row. Keep the axis"
    ):
        fit(MIXED[name])


@pytest.mark.parametrize("width", [3, 49, 98])
def test_rows_are_found_again_behind_a_reshape(width):
    several = np.tile(np.c_[y], width)
    loss = lambda op, t, p: ((t - p) ** 2).reshape(-1, 1).reshape(-1, width).sum(axis=1, keepdims=True)  # noqa: E731
    found, expected = (
        OrtGradientRegressor(loss=each, random_state=0, max_iter=2).fit(X, several) for each in (loss, "squared_error")
    )
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-5)


def test_a_loss_with_more_values_than_rows_is_refused():
    two = np.c_[y, -y]
    model = OrtGradientRegressor(loss=lambda op, t, p: ((t - p) ** 2).reshape(-1, 1))
    with pytest.raises(
        LossError, match=r"must return one value per row, but returned .*\*2,1\] for label.*Sum over outputs"
    ):
        model.fit(X, two)
    back = OrtGradientRegressor(loss=lambda op, t, p: ((t - p) ** 2).reshape(-1).reshape(-1, 2).sum(1, keepdims=True))
    expected = OrtGradientRegressor(loss="squared_error", random_state=0, max_iter=3).fit(X, two)
    found = back.set_params(random_state=0, max_iter=3).fit(X, two)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-5)


#: The log probability, mean and deviation of each of two parts of a mixture, as a mixture density network returns them.
MIXTURE = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] X) => (float[n, 6] Y)
    <float[3, 6] W = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}, int64[3] two = {2, 2, 2}> {
        h = MatMul(X, W)  a, m, b = Split <axis = 1> (h, two)
        p = LogSoftmax <axis = 1> (a)  s = Softplus(b)  Y = Concat <axis = 1> (p, m, s)
    }""")


def of_a_mixture(op, y_true, y_pred):
    log_p, mean, s = y_pred[:, :2], y_pred[:, 2:4], y_pred[:, 4:] + 1e-3
    z = (y_true[:, :1] - mean) / s
    return -op.ReduceLogSumExp(log_p - z * z / 2 - op.Log(s), [1], keepdims=1)


def test_a_loss_that_takes_fewer_columns_than_the_model_has():
    model = OrtGradientRegressor(MIXTURE, loss=of_a_mixture, max_iter=2, learning_rate=0.01)
    with pytest.raises(DataError, match=r"If the loss uses one column of y_true, pass numpy.repeat\(.*\), 6, axis=1\)"):
        model.fit(X, y)
    curve = model.fit(X, np.repeat(np.reshape(y, (-1, 1)), 6, axis=1)).loss_curve_  # filterwarnings = error
    assert curve[1] < curve[0]


def absolute(op, y_true, y_pred):
    return abs(y_true - y_pred) * 1.0


def test_a_loss_is_pickled_after_an_equal_one_that_cannot_be():
    """The graph behind the encoder is kept for both."""
    rows = pd.DataFrame(X, columns=["a", "b", "c"][: X.shape[1]]).assign(town=["Bern", "Ulm"] * (len(X) // 2))
    model = make_pipeline(make_column_transformer((OneHotEncoder(), ["town"]), remainder=StandardScaler()), Ridge())
    OrtGradientRegressor(model, loss=lambda op, t, p: abs(t - p) * 1.0, max_iter=2).fit(rows, y)
    tuned = OrtGradientRegressor(model, loss=absolute, max_iter=2).fit(rows, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(tuned)).predict(rows), tuned.predict(rows))
