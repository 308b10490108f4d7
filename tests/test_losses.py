"""Each loss against an independent formula, in value and gradient, and at the limits of floating point."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass

import numpy as np
import onnx.parser
import pytest
import scipy.special
from scipy.special import erf, expit, huber, log_expit, log_softmax, softmax
from sklearn.metrics import (
    hinge_loss,
    log_loss,
    mean_gamma_deviance,
    mean_pinball_loss,
    mean_poisson_deviance,
    mean_tweedie_deviance,
)

from onnxtrain import graph
from onnxtrain.errors import LossError, ModelError
from onnxtrain.grad_helper import gradients, onnx_derivative
from onnxtrain.loss_helper import add_row_loss
from onnxtrain.losses import LOSSES, Prediction, find_loss, loss, loss_kind
from onnxtrain.runtime.session import run as run_onnxruntime
from onnxtrain.testing import check_gradient

TYPES = {"float32": "float", "float64": "double"}


def rows_of(name, params=None, *, k=1, head="Identity", dtype="float32", **options):
    """Return the graph (n, k) -> loss of each row of head(S), and the loss."""
    onx = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> scores ({TYPES[dtype]}[n, {k}] S) => '
        f"({TYPES[dtype]}[n, {k}] Y) {{ Y = {head}(S) }}"
    )
    model = graph.load(onx)
    return model, add_row_loss(model, model.graph.outputs[0], name, params, **options)[1]


def with_loss(name, *args, **options):
    """Return the same as a model."""
    model, rows = rows_of(name, *args, **options)
    return graph.save(model, outputs=[("rows", rows)])


def compute(onx, **feeds):
    return run_onnxruntime(onx, feeds)


def each(metric, **params):
    """Return the metric of scikit-learn, (y_true, y_pred) -> number, on each element."""
    return np.vectorize(lambda y, f: metric([y], [f], **params))


REGRESSION = [
    ("squared_error", {}, lambda y, f: (f - y) ** 2),
    ("l2", {}, lambda y, f: (f - y) ** 2),
    ("absolute_error", {}, lambda y, f: np.abs(f - y)),
    ("l1", {}, lambda y, f: np.abs(f - y)),
    ("elastic", {}, lambda y, f: 0.5 * np.abs(f - y) + 0.5 * (f - y) ** 2),
    ("elastic", {"l1_weight": 2, "l2_weight": 0}, lambda y, f: 2 * np.abs(f - y)),
    ("huber", {}, lambda y, f: huber(1, f - y)),
    ("huber", {"delta": 0.3}, lambda y, f: huber(0.3, f - y)),
    ("quantile", {}, lambda y, f: 0.5 * np.abs(f - y)),
    ("quantile", {"q": 0.9}, each(mean_pinball_loss, alpha=0.9)),
    ("epsilon_insensitive", {}, lambda y, f: np.maximum(np.abs(f - y) - 0.1, 0)),
    ("epsilon_insensitive", {"epsilon": 0.7}, lambda y, f: np.maximum(np.abs(f - y) - 0.7, 0)),
    ("log_cosh", {}, lambda y, f: np.log(np.cosh(f - y))),
]
MEAN = [
    ("poisson", {}, lambda y, f: each(mean_poisson_deviance)(y, f) / 2 - y * np.log(y) + y),
    ("gamma", {}, lambda y, f: each(mean_gamma_deviance)(y, f) / 2 + np.log(y) + 1),
    ("tweedie", {"power": 1}, lambda y, f: each(mean_poisson_deviance)(y, f) / 2 - y * np.log(y) + y),
    ("tweedie", {"power": 2}, lambda y, f: each(mean_gamma_deviance)(y, f) / 2 + np.log(y) + 1),
    ("tweedie", {}, lambda y, f: each(mean_tweedie_deviance, power=1.5)(y, f) / 2 + 4 * y**0.5),
    ("tweedie", {"power": 3}, lambda y, f: each(mean_tweedie_deviance, power=3)(y, f) / 2 - y**-1 / 2),
    ("tweedie", {"power": -1}, lambda y, f: each(mean_tweedie_deviance, power=-1)(y, f) / 2 - y**3 / 6),
]


def margins(y, s):
    """Return +-s, one problem a class where there are more than two."""
    if s.shape[1] == 2:
        s = s[:, 1:] - s[:, :1]
    return s * (2 * (y == (1 if s.shape[1] == 1 else np.arange(s.shape[1]))) - 1)


def probability(y, s):
    p = np.hstack([1 - 1 / (1 + np.exp(-s)), 1 / (1 + np.exp(-s))]) if s.shape[1] == 1 else softmax(s, axis=1)
    return np.take_along_axis(p, y, axis=1)


def smoothed(y, s):
    scores = np.hstack([np.zeros_like(s), s]) if s.shape[1] == 1 else s
    k = scores.shape[1]
    target = 0.2 / k + 0.8 * (y == np.arange(k))
    return -np.sum(target * log_softmax(scores, axis=1), axis=1, keepdims=True)


CLASSIFICATION = [
    ("log", {}, lambda y, s: -np.log(probability(y, s))),
    ("log_loss", {}, lambda y, s: -np.log(probability(y, s))),
    ("log", {"label_smoothing": 0.2}, smoothed),
    ("hinge", {}, lambda y, s: np.maximum(0, 1 - margins(y, s))),
    ("squared_hinge", {}, lambda y, s: np.maximum(0, 1 - margins(y, s)) ** 2),
    (
        "modified_huber",
        {},
        lambda y, s: np.where(margins(y, s) >= -1, np.maximum(0, 1 - margins(y, s)) ** 2, -4 * margins(y, s)),
    ),
    ("focal", {}, lambda y, s: -((1 - probability(y, s)) ** 2) * np.log(probability(y, s))),
    ("focal", {"gamma": 0}, lambda y, s: -np.log(probability(y, s))),
    ("focal", {"gamma": 0.5}, lambda y, s: -((1 - probability(y, s)) ** 0.5) * np.log(probability(y, s))),
]


def test_no_loss_is_missing_from_the_tables():
    homes = {"onnxtrain.losses.regression", "onnxtrain.losses.classification"}  # not those of an example
    ours = {name for name, loss in LOSSES.items() if loss.function.__module__ in homes}
    assert {name for name, *_ in (*REGRESSION, *MEAN, *CLASSIFICATION)} == ours


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name, params, expected", REGRESSION)
def test_regression(name, params, expected, k, dtype, run):
    rng = np.random.default_rng(0)
    S, y = 2 * rng.standard_normal((2, 7, k))
    S, y = S.astype(dtype), y.astype(dtype)
    onx = with_loss(name, params, k=k, dtype=dtype)
    (rows,) = run(onx, {"S": S, "label": y})
    np.testing.assert_allclose(
        rows, expected(y, S).sum(axis=1, keepdims=True), rtol=1e-5 if dtype == "float32" else 1e-12
    )
    check_gradient(onx, {"S": S, "label": y}, inputs=["S"], weights=[])


@pytest.mark.parametrize("head", ["Identity", "Exp"])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("name, params, expected", MEAN)
def test_mean(name, params, expected, k, head, run):
    rng = np.random.default_rng(1)
    z, y = rng.standard_normal((6, k)), rng.gamma(2, size=(6, k))
    S = np.exp(z) if head == "Identity" else z
    onx = with_loss(name, params, k=k, head=head, dtype="float64")
    (rows,) = run(onx, {"S": S, "label": y})
    np.testing.assert_allclose(rows, expected(y, np.exp(z)).sum(axis=1, keepdims=True), rtol=1e-10)
    check_gradient(onx, {"S": S, "label": y}, inputs=["S"], weights=[])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("name, params, expected", CLASSIFICATION)
def test_classification(name, params, expected, k, dtype, run):
    rng = np.random.default_rng(2)
    S = 2 * rng.standard_normal((9, k)).astype(dtype)
    y = (np.arange(9) % max(k, 2)).reshape(-1, 1)
    onx = with_loss(name, params, k=k, dtype=dtype)
    (rows,) = run(onx, {"S": S, "label": y})
    np.testing.assert_allclose(
        rows, expected(y, S).sum(axis=1, keepdims=True), rtol=1e-5 if dtype == "float32" else 1e-10, atol=1e-6
    )
    check_gradient(onx, {"S": S, "label": y}, inputs=["S"], weights=[])


def test_binary_losses_are_those_of_scikit_learn():
    rng = np.random.default_rng(3)
    s, y = rng.standard_normal((20, 1)), rng.integers(0, 2, (20, 1))
    p = 1 / (1 + np.exp(-s))
    for name, expected in (("hinge", hinge_loss(y.ravel(), s.ravel())), ("log", log_loss(y.ravel(), p.ravel()))):
        (rows,) = compute(with_loss(name, dtype="float64"), S=s, label=y)
        assert rows.mean() == pytest.approx(expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(name for name in LOSSES if loss_kind(name) == "classification"))
@pytest.mark.parametrize("k, head", [(1, "Identity"), (1, "Sigmoid"), (2, "Softmax"), (3, "Identity"), (3, "Softmax")])
def test_scores_of_a_thousand_give_finite_losses_and_a_gradient_where_the_class_is_wrong(name, k, head, dtype):
    S = np.zeros((4, k))
    S[:, -1] = [1000, 1000, -1000, -1000]
    y = np.array([[0], [k - 1 or 1], [0], [k - 1 or 1]])
    feeds = {"S": S.astype(dtype), "label": y}
    onx = with_loss(name, k=k, head=head, dtype=dtype)
    (rows,) = compute(onx, **feeds)
    assert np.isfinite(rows).all()
    assert (rows[[0, 3]] > 100).all()
    (dS,) = compute(onnx_derivative(onx, weights=[], inputs=["S"]), **feeds, rows_grad=np.ones_like(rows))
    assert np.isfinite(dS).all()
    assert dS[0, -1] > 0.4
    assert dS[3, -1] < -0.4


@pytest.mark.parametrize("name", ["huber", "log_cosh", "quantile", "absolute_error", "epsilon_insensitive"])
def test_errors_of_a_thousand(name):
    S = np.array([[1000], [-1000]], dtype=np.float32)
    onx = with_loss(name)
    feeds = {"S": S, "label": np.zeros_like(S)}
    (rows,) = compute(onx, **feeds)
    (dS,) = compute(onnx_derivative(onx, weights=[], inputs=["S"]), **feeds, rows_grad=np.ones_like(rows))
    assert np.isfinite(rows).all()
    assert dS.ravel().tolist() == ([0.5, -0.5] if name == "quantile" else [1, -1])


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", ["huber", "modified_huber"])
def test_what_is_taken_for_a_constant_adds_nothing_to_the_gradient(name, k):
    """In a model that was written nothing is marked as such."""
    S = np.repeat(np.r_[np.linspace(-3, 3, 49), 0.1, -1e4, 1e4], k).reshape(-1, k)  # the kinks included
    feeds = {"S": S, "label": np.zeros_like(S) if name == "huber" else np.arange(len(S))[:, None] % max(k, 2)}
    model, rows = rows_of(name, k=k, dtype="float64")
    (gradient,) = gradients(model, rows, model.graph.inputs[:1])
    marked = graph.save(model, outputs=[("gradient", gradient)])
    written = onnx_derivative(with_loss(name, k=k, dtype="float64"), weights=[], inputs=["S"])
    choices = [sum(node.op_type == "Where" for node in onx.graph.node) for onx in (marked, written)]
    assert choices[0] == choices[1] - 1  # whether Clip changed the number
    expected = compute(written, **feeds, rows_grad=np.ones((len(S), 1)))[0]
    np.testing.assert_allclose(compute(marked, **feeds)[0], expected, rtol=1e-14)


@pytest.mark.parametrize("name", ["absolute_error", "elastic"])
def test_descent_on_an_absolute_error_goes_down(name):
    """The ancestor's gradient had the wrong sign."""
    onx = with_loss(name)
    step = onnx_derivative(onx, weights=[], inputs=["S"])
    S, y = np.full((5, 1), 3, np.float32), np.arange(5, dtype=np.float32).reshape(-1, 1)
    start = compute(onx, S=S, label=y)[0].sum()
    for _ in range(20):
        (dS,) = compute(step, S=S, label=y, rows_grad=np.ones((5, 1), np.float32))
        S = S - 0.1 * dS
    assert compute(onx, S=S, label=y)[0].sum() < start / 2


def test_a_mean_of_zero_is_finite():
    (rows,) = compute(with_loss("poisson"), S=np.array([[0], [-1]], np.float32), label=np.ones((2, 1), np.float32))
    assert np.isfinite(rows).all()


@pytest.mark.parametrize(
    "name, params, words",
    [
        ("sqared_error", {}, "Did you mean 'squared_error'"),
        (3, {}, "must be a name or a function, got 3"),
        ("huber", {"epsilon": 1}, "'huber' has no parameter 'epsilon'. Did you mean 'delta'?"),
        ("squared_error", {"q": 1}, "'squared_error' has no parameter 'q'. Known: none"),
        ("huber", {"delta": 0}, "delta must be a finite number > 0, got 0"),
        ("huber", {"delta": float("nan")}, "delta must be a finite number > 0, got nan"),
        ("huber", {"delta": True}, "delta must be a finite number > 0, got True"),
        ("quantile", {"q": 1}, "q must be a finite number > 0 and < 1, got 1"),
        ("quantile", {"q": 95}, r"> 0 and < 1, got 95\. 95 percent is q=0\.95\."),
        ("quantile", {"q": "0.5"}, "q must be a finite number > 0 and < 1, got '0.5'"),
        ("elastic", {"l1_weight": -1}, "l1_weight must be a finite number >= 0, got -1"),
        ("elastic", {"l2_weight": -1}, "l2_weight must be a finite number >= 0, got -1"),
        ("epsilon_insensitive", {"epsilon": -0.1}, "epsilon must be a finite number >= 0"),
        ("tweedie", {"power": 0.5}, "power must be negative or at least 1, got 0.5"),
        ("tweedie", {"power": None}, "power must be a finite number, got None"),
        ("log", {"label_smoothing": 1}, "label_smoothing must be a finite number >= 0 and < 1"),
        ("log", {"eps": 0}, "eps must be a finite number > 0 and < 0.5"),
        ("focal", {"gamma": -1}, "gamma must be a finite number >= 0"),
    ],
)
def test_errors_name_what_is_wrong(name, params, words):
    with pytest.raises(LossError, match=words):
        with_loss(name, params)


# ----------------------------------------------------------- a user's own


def fourth_power(op, y_true, y_pred, *, scale=1.0):
    squared = op.Pow(op.Sub(y_pred, y_true), 2.0)
    return op.Mul(op.ReduceSumSquare(squared, [1], keepdims=1), scale)


@dataclass
class Scaled:
    """A loss with a state, no name, and no hash."""

    scale: float

    def __call__(self, op, y_true, y_pred):
        return op.Mul(op.ReduceSum(op.Abs(op.Sub(y_pred, y_true)), [1], keepdims=1), self.scale)


def takes_anything(op, y_true, y_pred, **params):
    return op.Mul(op.ReduceSum(op.Sub(y_pred, y_true), [1], keepdims=1), params["factor"])


@pytest.mark.parametrize(
    "function, params, expected",
    [
        (fourth_power, {}, lambda r: (r**4).sum(axis=1)),
        (fourth_power, {"scale": 0.5}, lambda r: 0.5 * (r**4).sum(axis=1)),
        (Scaled(3.0), {}, lambda r: 3 * np.abs(r).sum(axis=1)),
        (takes_anything, {"factor": 2.0}, lambda r: 2 * r.sum(axis=1)),
    ],
)
def test_own_loss(function, params, expected):
    function = pickle.loads(pickle.dumps(function))
    S, y = np.random.default_rng(0).standard_normal((2, 5, 2))
    onx = with_loss(function, params, k=2, dtype="float64")
    (rows,) = compute(onx, S=S, label=y)
    np.testing.assert_allclose(rows.ravel(), expected(S - y))
    assert loss_kind(function) == "custom"


#: a loss written as numpy is, which numpy then computes itself: (y_true, y_pred) -> value
IN_NUMPY = [
    lambda t, p: (t - p) ** 2,
    lambda t, p: (t - p) * (t - p),
    lambda t, p: np.square(t - p),
    lambda t, p: abs(t - p),
    lambda t, p: -(p - t) / 2 + 3 - p * 4,
    lambda t, p: 1 / (1 + (t - p) ** 2) + 2**p + (t - p) ** 3,
    lambda t, p: np.abs(t - p) ** 1.5,
    lambda t, p: np.float64(3) * np.abs(t - p) + np.array([[2.0]]) * p,
    lambda t, p: np.where(t > p, 0.9 * (t - p), 0.1 * (p - t)),
    lambda t, p: np.where(np.abs(t - p) <= 1, 1, 0) * (t - p) ** 2,
    lambda t, p: (t > p) * (t - p) + (t <= p) * 2 * (p - t),
    lambda t, p: ((t > 0) & (p > 0) | ~(t >= p)) * p + ((t < p) ^ (t != p)) * 0.5 + (t == p),
    lambda t, p: ((t > 0) * (p > 0)) + 1.5 * np.logical_or(t > 1, p > 1),
    lambda t, p: np.maximum(0, 1 - t * p) + np.minimum(p, 0.5) + np.clip(p, -0.5, 0.25) + p.clip(max=0.1),
    lambda t, p: np.log1p(np.exp(-t * p)) + np.logaddexp(0, p) + np.expm1(p) - np.hypot(t, p),
    lambda t, p: expit(p) - log_expit(p) + np.exp2(p) + np.float_power(2, p),
    lambda t, p: np.log2(p * p + 1) + np.log10(np.sqrt(t * t + 1)) + np.log(np.exp(p) + 1),
    lambda t, p: np.sign(t - p) * np.floor(p) + np.ceil(p) + np.rint(p) + p // 1 + p % 2 + np.isnan(p),
    lambda t, p: (
        p - p.mean(axis=1, keepdims=True) + np.sum(p, axis=1, keepdims=True) + np.max(t, axis=1, keepdims=True)
    ),
    lambda t, p: p[:, :1] * t[:, 1:] + p[:, 0, None] - p[..., -1:] + p[:, ::-1],
    lambda t, p: (t > p).astype(float) + (p * 3).astype(int) + (t > p).sum(axis=1).reshape(-1, 1),
    lambda t, p: (t - p).reshape(p.shape) + np.reshape(p * p, t.shape),
    lambda t, p: (p @ np.array([[1.0, 2.0], [3.0, 4.0]])) * np.reciprocal(2 + p * p),
]


#: onnxruntime, or its oldest version supported, has these in float32 alone
IN_SINGLE = [
    lambda t, p: p.max(axis=1, keepdims=True) - np.amin(p, axis=1, keepdims=True) + p.prod(axis=1, keepdims=True),
    lambda t, p: np.sin(p) + np.cos(p) * np.tanh(p),
    lambda t, p: erf(p) + np.tan(p) + np.sinh(p) + np.cosh(p) + np.arctan(p),
    lambda t, p: np.arcsin(np.tanh(p)) + np.arccos(np.tanh(p)) + np.arcsinh(p) + np.arctanh(np.tanh(p) / 2),
]


@pytest.mark.parametrize(
    "formula, dtype",
    [(f, dtype) for f in IN_NUMPY for dtype in ("float32", "float64")] + [(f, "float32") for f in IN_SINGLE],
)
def test_own_loss_in_python_and_numpy(formula, dtype):
    S, y = np.random.default_rng(0).standard_normal((2, 6, 2)).astype(dtype)
    S[0] = y[0]
    onx = with_loss(lambda op, t, p: (formula(t, p) + 0 * p).sum(axis=1, keepdims=True), k=2, dtype=dtype)
    (rows,) = compute(onx, S=S, label=y)
    assert rows.dtype == dtype
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(rows.ravel(), (formula(y, S) + 0 * S).sum(axis=1), rtol=tolerance, atol=tolerance)


def test_the_gradient_of_a_loss_in_numpy():
    S, y = np.random.default_rng(0).standard_normal((2, 5, 2))
    onx = with_loss(lambda op, t, p: np.logaddexp(0, abs(t - p) ** 3).sum(axis=1, keepdims=True), k=2, dtype="float64")
    check_gradient(onx, {"S": S, "label": y}, inputs=["S"])


def test_an_exponent_has_the_precision_of_its_base():
    onx = with_loss(lambda op, t, p: op.Pow(op.Abs(p), 1.1), dtype="float64")
    S = np.array([[1e3], [2.0]])
    np.testing.assert_allclose(compute(onx, S=S, label=S)[0], S**1.1, rtol=1e-13)


def test_operators_and_op_mix():
    def both(op, y_true, y_pred):
        r = op.Sub(y_pred, y_true)
        r *= 2
        first, second = op.Split(r, num_outputs=2, axis=1, _outputs=2)
        return op.Concat(first**2, second**2, axis=1).mean(axis=1, keepdims=True)

    S, y = np.random.default_rng(0).standard_normal((2, 5, 2))
    (rows,) = compute(with_loss(both, k=2, dtype="float64"), S=S, label=y)
    np.testing.assert_allclose(rows, ((2 * (S - y)) ** 2).mean(axis=1, keepdims=True))


def test_a_loss_may_return_one_axis():
    def distance(op, t, p):
        return np.sqrt(((t - p) ** 2).sum(axis=1))

    S, y = np.random.default_rng(0).standard_normal((2, 5, 2))
    (rows,) = compute(with_loss(distance, k=2, dtype="float64"), S=S, label=y)
    np.testing.assert_allclose(rows, np.linalg.norm(y - S, axis=1, keepdims=True))


def test_a_loss_may_use_a_scalar_of_the_graph():
    S, y = np.array([[-0.5], [2.0]]), np.array([[0.5], [1.0]])
    (rows,) = compute(
        with_loss(lambda op, t, p: abs(t - p) * op.Constant(value_float=2.0), dtype="float64"), S=S, label=y
    )
    np.testing.assert_allclose(rows, 2 * abs(y - S))


def test_labels_of_classes_are_integers_that_become_floats():
    S, y = np.array([[-0.5], [2.0]], dtype=np.float32), np.array([[0], [1]])
    (rows,) = compute(with_loss(lambda op, t, p: (1 - p * (2 * t - 1)) + t / 2, classifies=True), S=S, label=y)
    np.testing.assert_allclose(rows, (1 - S * (2 * y - 1)) + y / 2)


@pytest.mark.parametrize(
    "function, words",
    [
        (lambda op, t, p: p if p > t else t, "no truth value.*Use np.where, np.maximum and np.minimum instead of if"),
        (lambda op, t, p: max(t, p), "no truth value"),
        (lambda op, t, p: memoryview(p), "not 'Operand'. A loss may use op"),
        (lambda op, t, p: math.exp(p), "has no values yet: .*numpy functions"),
        (lambda op, t, p: np.asarray(p), "has no values yet"),
        (lambda op, t, p: [*p], "cannot loop over the rows of .* Leave out the sum or the mean"),
        (lambda op, t, p: np.heaviside(p, 0), r"cannot use numpy\.heaviside\..*op\.Xyz is the ONNX operator"),
        (lambda op, t, p: np.add.reduce(p), r"cannot use numpy\.add with reduce"),
        (lambda op, t, p: np.multiply(p, t, where=p > 0), r"cannot use numpy\.multiply with __call__ \{'where'"),
        (lambda op, t, p: scipy.special.huber(1.0, t - p), "A loss cannot use huber"),
        (lambda op, t, p: np.median(p, axis=1), r"cannot use numpy\.median here"),
        (lambda op, t, p: np.exp(p).numpy(), r"no attribute 'numpy'\..*tan, tanh\. For example: lambda"),
        (lambda op, t, p: p.std(axis=1), "no attribute 'std'. Use x.mean"),
        (lambda op, t, p: p & 1, r"numpy\.bitwise_and requires conditions in a loss"),
        (lambda op, t, p: p * "2", "cannot compute with '2'"),
        (lambda op, t, p: p.astype(str), "Use bool, int or float"),
        (lambda op, t, p: p[[0, 1]], "Use integers, slices and None only.$"),
        (
            lambda op, t, p: p[p > 0],
            r"slices and None only. Choose by a condition with numpy\.where: numpy\.where\(r > 0, 0",
        ),
        (lambda op, t, p: p.__setitem__(p > 0, 0), r"cannot assign to a part of .* numpy\.where\(r > 0, 0, r\)"),
        (
            lambda op, t, p: p / t.shape[0],
            r"rows, 'n', has no values yet: .* no len; the objective is already the mean",
        ),
        (
            lambda op, t, p: np.sqrt(((t - p) ** 2).mean()),
            r"over the rows, here of .*FLOAT\[n,2\]\. Leave out the mean",
        ),
        (lambda op, t, p: (t - t.mean()) * (p - p.mean()), "Leave out the mean .* pass constants, .* by loss_params"),
        (lambda op, t, p: (t - p) ** 2 / ((t - t.mean()) ** 2).mean(), "Leave out the mean or the sum over the rows"),
        (lambda op, t, p: p / p.max(), "cannot use a mean, sum or maximum over the rows"),
        (
            lambda op, t, p: (t - p) ** 2 * np.ones(9),
            r"array of 9 numbers does not fit .*FLOAT\[n,2\].* sample_weight\)\.",
        ),
        (
            lambda op, t, p: (t[:, :1] - p[:, :1]) ** 2 * np.ones(9),
            r"array of 9 numbers in it .* fit\(X, y, sample_weight\)\. Otherwise: sum over",
        ),
        (
            lambda op, t, p: p[:, 0] - t[:, :1],
            r"would broadcast to .*FLOAT\[n,n\], which pairs each row with every other row\. Keep the axis: y_pred\[:, :1\]",
        ),
        (lambda op, t, p: ((t - p) ** 2).sum(axis=0), r"shape \(n, 1\).*x\.sum\(axis=1, keepdims=True\)"),
        (lambda op, t, p: np.linalg.norm(t - p, axis=1), r"numpy\.linalg\.norm here\. Use numpy\.sqrt"),
        (lambda op, t, p: scipy.special.softmax(p - t), r"a function of scipy, .*Use op\.Softmax\(x, axis=1\)"),
        (lambda op, t, p: np.take_along_axis(p, t, axis=1), r"\(numpy\.arange\(n_classes\) == y_true\)"),
        (lambda op, t, p: t > p, "must return floats"),
        (
            lambda op, t, p: op.Mul(p, np.ones(2)),
            r"FLOAT\. Convert the array, array\.astype\('float32'\), or use Python",
        ),
    ],
)
def test_what_is_not_possible_in_python_says_how(function, words):
    with pytest.raises(LossError, match=words):
        with_loss(function, k=2)


def test_own_loss_of_a_classifier_gets_scores_and_classes():
    def zero_one(op, y_true, y_pred):
        return op.Cast(op.Not(op.Equal(op.ArgMax(y_pred, axis=1), y_true)), to=y_pred.dtype)

    S = np.array([[1, 0, 0], [0, 0, 1]], dtype=np.float32)
    (rows,) = compute(with_loss(zero_one, k=3, head="Softmax", classifies=True), S=S, label=np.array([[0], [0]]))
    assert rows.ravel().tolist() == [0, 1]


@pytest.mark.parametrize(
    "function, params, words",
    [
        (lambda op, y, f: 1.0, {}, "must return a value of the graph, got float: 1.0"),
        (lambda op, y, f: op.Sub(f, y), {}, r"must return floats of shape \(n, 1\).*FLOAT\[n,2\]"),
        (lambda op, y, f: op.ReduceSum(f, [0], keepdims=0), {}, r"shape \(n, 1\).*FLOAT\[2\]"),
        (lambda op, y, f: op.ReduceMean(f, keepdims=1), {}, r"one value per row, but returned .*\[1,1\] for .*\[n,2\]"),
        (lambda op, y, f: op.ArgMax(f, axis=1), {}, "must return floats"),
        (lambda op, y: y, {}, r"failed when it was called with \(op, y_true, y_pred\): "),
        (fourth_power, {"scales": 1}, "no parameter 'scales'. Did you mean 'scale'"),
    ],
)
def test_own_loss_that_does_not_fit(function, params, words):
    with pytest.raises(LossError, match=words):
        with_loss(function, params, k=2)


def test_own_loss_that_builds_nonsense_says_so():
    with pytest.raises(ModelError, match=r"Add\(.*\) is not valid"):
        with_loss(lambda op, y, f: op.Add(f, op.Concat(f, f, f, axis=1)), k=2)
    with pytest.raises(
        ModelError, match=r"TopK\(.*\) is not valid.* Pass the number of results: op\.TopK\(\.\.\., _outputs=2\)"
    ):
        with_loss(lambda op, y, f: op.TopK(f, [1])[0], k=2)


def test_a_registered_loss_is_found_by_name_and_as_a_function(monkeypatch):
    monkeypatch.setattr(LOSSES, "_entries", dict(LOSSES))
    loss("fourth_power", prediction="scores")(fourth_power)
    assert find_loss("fourth_power") is find_loss(fourth_power)
    assert find_loss(fourth_power).prediction is Prediction.SCORES
    assert loss_kind(fourth_power) == "classification"
    with pytest.raises(ValueError, match="'huber' is already registered"):
        loss("huber")(fourth_power)


def test_a_function_without_signature_takes_any_parameter():
    assert find_loss(min, {"anything": 1}).function is min


def test_few_nodes():
    """Small models cost by the node."""
    counts = {
        name: len(with_loss(name, k=k).graph.node) for name, k in [("squared_error", 1), ("log", 1), ("huber", 1)]
    }
    assert counts == {"squared_error": 2, "log": 4, "huber": 5}
    assert len(with_loss("log", k=5, head="Softmax").graph.node) == 3
