"""``l1_method="proximal"``: the trajectory against NumPy, the minimum against Lasso and LogisticRegression."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse
import sklearn
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale
from sklearn.utils.fixes import parse_version

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.errors import OptimizerError, ParameterError
from onnxtrain.optim import OPTIMIZERS, SGD, Adagrad, Adam, AdamW, Cosine, Optimizer, Proximal, RMSprop

X, y = load_diabetes(return_X_y=True)
X, y = scale(X), scale(y)

# name: the solver, a learning rate that it reaches the minimum with
SOLVERS = {
    "sgd": (SGD(), 0.1),
    "momentum": (SGD(momentum=0.9), 0.02),
    "nesterov": (SGD(momentum=0.9, nesterov=True), 0.02),
    "adam": (Adam(), 0.02),
    "adam-no-mean": (Adam(beta_1=0.0), 0.02),
    "adamw": (AdamW(weight_decay=0.0), 0.02),
    "rmsprop": (RMSprop(), 0.01),
    "rmsprop-momentum": (RMSprop(momentum=0.9), 0.005),
    "rmsprop-both": (RMSprop(momentum=0.5, centered=True), 0.005),
    "adagrad": (Adagrad(), 0.3),
    "adagrad-decay": (Adagrad(lr_decay=0.001), 0.3),
}


def moves(solver, rate, t, memory, g, slope):
    """Return by the textbook how far a weight moves, and how far a slope of 1 at every step would move it."""
    kept = {name: memory.get(name, 0.0) for name in ("mean", "square", "velocity")}
    momentum = getattr(solver, "momentum", 0.0)
    pull = sum(momentum**k for k in range(t + getattr(solver, "nesterov", False))) if momentum else 1.0
    if isinstance(solver, Adam):
        b1, b2 = solver.beta_1, solver.beta_2
        memory["mean"] = b1 * kept["mean"] + (1 - b1) * g
        memory["square"] = b2 * kept["square"] + (1 - b2) * slope**2
        step = rate / (np.sqrt(memory["square"] / (1 - b2**t)) + solver.epsilon)
        return step * memory["mean"] / (1 - b1**t), step
    memory["velocity"] = v = momentum * kept["velocity"] + g
    if isinstance(solver, SGD):
        return rate * (g + momentum * v if solver.nesterov else v), rate * pull
    if isinstance(solver, RMSprop):
        memory["square"] = solver.alpha * kept["square"] + (1 - solver.alpha) * slope**2
        memory["mean"] = solver.alpha * kept["mean"] + (1 - solver.alpha) * slope
        variance = memory["square"] - solver.centered * memory["mean"] ** 2
        step = rate / (np.sqrt(variance) + solver.epsilon)
        return step * v, step * pull
    memory["square"] = kept["square"] + slope**2
    step = rate / (1 + (t - 1) * solver.lr_decay) / (np.sqrt(memory["square"]) + solver.epsilon)
    return step * g, step


def reference(solver, rates, w, *, l1, l2, clip_norm, weight=None):
    """Return the coefficients of a regression without an intercept after full-batch steps."""
    weight = np.ones(len(y)) if weight is None else weight
    memory = {}
    for t, rate in enumerate(rates, start=1):
        g = 2 * X.T @ (weight * (X @ w - y)) / weight.sum() + 2 * l2 * w
        factor = 1.0 if clip_norm is None else min(1.0, clip_norm / (np.linalg.norm(g) + 1e-6))
        g, threshold = factor * g, factor * l1
        if isinstance(solver, AdamW):
            w = (1 - rate * solver.weight_decay) * w
        moved, reach = moves(solver, rate, t, memory, g, g + threshold * np.sign(w))
        u = w - moved
        w = np.sign(u) * np.maximum(np.abs(u) - reach * threshold, 0)
    return w


def fit(solver, rate, *, n_steps, dtype="float64", rows=X, weight=None, **params):
    start = LinearRegression(fit_intercept=False).fit(X, y)
    model = OrtGradientRegressor(
        start,
        l1_method="proximal",
        solver=solver,
        learning_rate=rate,
        batch_size=len(y),
        max_iter=n_steps,
        n_iter_no_change=n_steps,
        shuffle=False,
        dtype=dtype,
        **params,
    )
    return model.fit(rows, y, weight)


@dataclass
class Way:
    """A problem for the comparison of ways."""

    params: dict
    l1: float
    l2: float = 0.0
    clip_norm: float | None = None
    sparse: bool = False
    weighted: bool = False


WAYS = {
    "common": Way({"l1": 0.2}, 0.2),
    "own": Way({"penalty": {"coef": {"l1": 0.2, "l2": 0.1}}}, 0.2, 0.1),
    "both": Way({"l1": 0.1, "l2": 0.1, "penalty": {"coef": {"l1": 0.1}}}, 0.2, 0.1),
    "clipped": Way({"l1": 0.2, "clip_norm": 0.1}, 0.2, clip_norm=0.1),
    "sparse rows": Way({"l1": 0.2}, 0.2, sparse=True),
    "weighted": Way({"l1": 0.2}, 0.2, weighted=True),
}


@pytest.mark.parametrize("n_steps", [1, 30])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*SOLVERS, "decay"])
def test_the_way_is_numpys(name, way, n_steps):
    solver, rate = (AdamW(weight_decay=0.3), 0.02) if name == "decay" else SOLVERS[name]
    p = WAYS[way]
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y)) if p.weighted else None
    rows = scipy.sparse.csr_matrix(X) if p.sparse else X
    schedule = Cosine(rate)
    found = fit(solver, schedule, n_steps=n_steps, rows=rows, weight=weight, **p.params)
    start = LinearRegression(fit_intercept=False).fit(X, y).coef_
    rates = [schedule(t, n_steps, 0) for t in range(n_steps)]
    expected = reference(solver, rates, start, l1=p.l1, l2=p.l2, clip_norm=p.clip_norm, weight=weight)
    coef = found.weights_["coef"].ravel()
    np.testing.assert_allclose(coef, expected, rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(coef == 0, expected == 0)
    assert np.abs(coef - start).max() > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("clip_norm", [None, 0.2])
@pytest.mark.parametrize("name", SOLVERS)
def test_the_end_is_the_lasso(name, clip_norm, dtype):
    lasso = Lasso(alpha=0.05, fit_intercept=False, tol=1e-10).fit(X, y)  # half the squared error
    solver, rate = SOLVERS[name]
    rate = 3 * rate if clip_norm is not None and name == "sgd" else rate
    common = dict(n_steps=1000, dtype=dtype, tol=0, clip_norm=clip_norm)
    found = fit(solver, Cosine(rate), l1=0.1, **common)
    coef = found.weights_["coef"].ravel()
    np.testing.assert_allclose(coef, lasso.coef_, atol=1e-3)
    np.testing.assert_array_equal(coef == 0, lasso.coef_ == 0)
    assert 0 < np.sum(coef == 0) < len(coef)
    # the objective that is reported has l1 in it
    objective = np.mean((X @ lasso.coef_ - y) ** 2) + 0.1 * np.abs(lasso.coef_).sum()
    assert found.loss_curve_[-1] == pytest.approx(objective, rel=1e-5)


def test_every_optimizer_is_in_the_table():
    assert {type(solver) for solver, _ in SOLVERS.values()} == set(OPTIMIZERS.values())


def test_the_penalty_in_the_loss_gives_no_zeros():
    params = dict(l1=0.1, solver="sgd", learning_rate=0.1, batch_size=len(y), max_iter=300, tol=0)
    zeros = {
        method: np.sum(OrtGradientRegressor(l1_method=method, **params).fit(X, y).weights_["coef"] == 0)
        for method in ("penalty", "proximal")
    }
    assert zeros == {"penalty": 0, "proximal": 4}


@pytest.mark.parametrize("solver, rate", [("adam", 0.05), ("adagrad", 0.3), (SGD(momentum=0.9), 0.3)])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_end_is_the_logistic_regression(solver, rate, classes):
    X, y = load_iris(return_X_y=True)
    X, y = scale(X), y if classes == 3 else y == 1
    l1 = {"l1_ratio": 1} if parse_version(sklearn.__version__) >= parse_version("1.8") else {"penalty": "l1"}
    sparse = LogisticRegression(**l1, C=0.1, solver="saga", tol=1e-10, max_iter=100_000).fit(X, y)
    found = OrtGradientClassifier(
        LogisticRegression().fit(X, y),
        l1=1 / (0.1 * len(X)),
        l1_method="proximal",
        solver=solver,
        learning_rate=Cosine(rate),
        batch_size=len(X),
        max_iter=2000,
        tol=0,
        n_iter_no_change=2000,
        dtype="float64",
    ).fit(X, y)
    coef = found.to_sklearn().coef_
    np.testing.assert_allclose(coef, sparse.coef_, atol=1e-3)
    np.testing.assert_array_equal(coef == 0, sparse.coef_ == 0)
    assert np.any(coef == 0)


@pytest.mark.parametrize("solver", OPTIMIZERS)
def test_a_trained_network_is_not_wiped_out(solver):
    network = MLPRegressor(hidden_layer_sizes=(30,), solver="lbfgs", max_iter=200, tol=1, random_state=0).fit(X, y)
    params = dict(l1=1e-2, l1_method="proximal", solver=solver, random_state=0)
    assert OrtGradientRegressor(network, max_iter=1, **params).fit(X, y).score(X, y) > network.score(X, y) - 0.05
    found = OrtGradientRegressor(network, max_iter=100, learning_rate=5e-3, **params).fit(X, y)
    assert found.loss_curve_[-1] < found.loss_curve_[0]
    zeros = {name: np.mean(w == 0) for name, w in found.weights_.items()}
    assert zeros["intercepts_0"] == zeros["intercepts_1"] == 0
    assert (zeros["coefs_0"] > 0.2) == (solver in ("adam", "adamw", "rmsprop"))  # the others have not come so far


PARAMS = dict(l1=0.1, l1_method="proximal", learning_rate=0.05, batch_size=64, random_state=0, shuffle=False)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("solver", ["adam", SGD(momentum=0.5), RMSprop(momentum=0.5)], ids=["adam", "sgd", "rmsprop"])
@pytest.mark.parametrize("way", ["warm start", "partial_fit", "saved", "pickled", "checkpoint"])
def test_two_halves_are_a_whole(way, solver, average, tmp_path):
    params = PARAMS | dict(solver=solver, average=average)
    whole = OrtGradientRegressor(max_iter=4, **params).fit(X, y)
    model, path = OrtGradientRegressor(max_iter=2, warm_start=True, **params), tmp_path / "half.onnx"
    if way == "partial_fit":
        for _ in range(4):
            model.partial_fit(X, y)
    elif way == "checkpoint":
        model = OrtGradientRegressor(max_iter=2, **params).fit(X, y, checkpoint=path)
        model = OrtGradientRegressor(max_iter=4, **params).fit(X, y, checkpoint=path, resume=True)
    else:
        model.fit(X, y)
        if way == "saved":
            save(model, path)
            model = load(path)
        model = pickle.loads(pickle.dumps(model)) if way == "pickled" else model
        model.fit(X, y)
    np.testing.assert_array_equal(model.weights_["coef"], whole.weights_["coef"])
    assert model.l1_method == "proximal"


def test_a_search_over_the_method():
    grid = {"l1": [0.0, 0.1], "l1_method": ["penalty", "proximal"]}
    params = dict(solver="sgd", learning_rate=0.05, max_iter=30, random_state=0)
    found = GridSearchCV(OrtGradientRegressor(**params), grid, cv=2, error_score="raise").fit(X, y)
    scores = found.cv_results_["mean_test_score"].reshape(2, 2)
    assert scores[0, 0] == scores[0, 1]  # without l1 there is no difference
    assert scores[1, 0] != scores[1, 1]
    assert scores[1, 0] == pytest.approx(scores[1, 1], abs=1e-2)


def test_lbfgs_gives_the_same_with_either():
    fits = [
        OrtGradientRegressor(l1=0.1, l1_method=method, solver="lbfgs", dtype="float64").fit(X, y).weights_["coef"]
        for method in ("penalty", "proximal")
    ]
    np.testing.assert_array_equal(*fits)
    assert np.sum(fits[0] == 0) == 4


@pytest.mark.parametrize("solver", ["sgd", "adam", AdamW(weight_decay=0.0)], ids=["sgd", "adam", "adamw"])
@pytest.mark.parametrize("params", [{}, {"l1": 0.1, "weights_to_train": "intercept"}], ids=["no l1", "no weight"])
@pytest.mark.filterwarnings("ignore:l1_method='proximal' has no effect", "ignore:No effect on the training")
def test_nothing_to_threshold(solver, params):
    fits = [
        OrtGradientRegressor(l1_method=method, solver=solver, max_iter=3, random_state=0, **params).fit(X, y).weights_
        for method in ("penalty", "proximal")
    ]
    for name, w in fits[0].items():
        np.testing.assert_array_equal(fits[1][name], w)


@dataclass(frozen=True)
class SignDescent(Optimizer):
    def update(self, op, w, dw, slots, *scalars):
        return op.Sub(w, op.Mul(op.Sign(dw), scalars[0])), ()


def test_errors_say_what_to_do():
    with pytest.raises(OptimizerError, match="SignDescent has no proximal step. Give it the methods pull and metric"):
        OrtGradientRegressor(solver=SignDescent(), l1=0.1, l1_method="proximal").fit(X, y)
    OrtGradientRegressor(solver=SignDescent(), l1=0.1, max_iter=2).fit(X, y)
    with pytest.raises(ParameterError, match="The 'l1_method' parameter"):
        OrtGradientRegressor(l1_method="soft").fit(X, y)


def test_a_proximal_optimizer_is_a_value():
    assert pickle.loads(pickle.dumps(Proximal(Adam()))) == Proximal(Adam()) != Proximal(SGD())
