"""Initializers that the graph computes from others, so that training keeps the model consistent.

Ties: an initializer that a converter derives from attributes is computed in the graph again. For example, the graph of
GaussianNB contains the variances and the sum of their logarithms, which would become inconsistent if trained
separately.

Ranges: variances and probabilities stay valid if their logarithms are trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from sklearn.base import BaseEstimator

from onnxtrain import graph
from onnxtrain.convert.learned import Learned, log_odds, root
from onnxtrain.graph import Op

_LOG_2PI = math.log(2 * math.pi)

_Entry = TypeVar("_Entry")


@dataclass(frozen=True)
class Tie:
    """A tie: ``compute(op, *attributes)`` is an initializer of the graph."""

    attributes: tuple[str, ...]
    compute: Callable[..., ir.Value]


def tie(model: ir.Model, known: Sequence[Learned]) -> None:
    """Compute derived initializers from their attributes, in place.

    Each attribute with a tie becomes one initializer, even if the graph has several copies.
    """
    owners: dict[int, dict[str, Learned]] = {}
    for item in known:
        if isinstance(item.path[-1], str):
            owners.setdefault(id(item.owner), {})[item.attribute] = item
    for items in owners.values():
        ties = ties_of(next(iter(items.values())).owner)
        if not ties:
            continue
        build = graph.builder(model)
        values: dict[str, ir.Value] = {}
        for each in ties:
            if all(name in items for name in each.attributes):
                _replace(build, model, each, items, values)


@np.errstate(over="ignore")  # variances above 3e38 are infinite in float32, where the graph differs from the estimator
def _replace(
    build: graph.Builder, model: ir.Model, each: Tie, items: Mapping[str, Learned], values: dict[str, ir.Value]
) -> None:
    """Compute the initializers that equal a tie; `values` are the attributes that are initializers."""
    expected = _evaluate(each, [items[name].value for name in each.attributes])
    op = build.op
    for old in _floats(model):
        array = old.const_value.numpy()  # type: ignore[union-attr]
        if old in values.values() or not _same_elements(array, expected, atol=1e-30):
            continue
        for name in each.attributes:
            if name not in values:
                values[name] = op.initializer(ir.tensor(items[name].value.astype(np.float32)), f"tied.{name}")
        new = each.compute(op, *(values[name] for name in each.attributes))
        if graph.static_shape(new) != array.shape:
            new = op.Reshape(new, list(array.shape))
        ir.convenience.replace_all_uses_with(old, new)


def _floats(model: ir.Model) -> list[ir.Value]:
    return [v for v in model.graph.initializers.values() if graph.is_float(v) and v.const_value is not None]


def _same_elements(a: np.ndarray, b: np.ndarray, *, atol: float = 0.0) -> bool:
    """Whether two arrays have the same elements in the same order, rounded to float32; their shapes may differ."""
    return a.size == b.size and np.allclose(a.reshape(-1), b.reshape(-1), rtol=1e-5, atol=atol, equal_nan=True)


def _evaluate(each: Tie, arrays: list[np.ndarray]) -> np.ndarray:
    """Return the value that a tie computes from the arrays of its attributes."""
    inner = ir.Graph([], [], nodes=[], opset_imports={"": graph.OPSET}, name="tie")
    build = graph.Builder(inner)
    result = build.op.Identity(
        each.compute(build.op, *(build.op.initializer(ir.tensor(a), f"a{i}") for i, a in enumerate(arrays)))
    )
    inner.outputs.append(result)
    onx = ir.to_proto(ir.Model(inner, ir_version=graph.IR_VERSION))
    (found,) = ReferenceEvaluator(onx).run(None, {})
    return np.asarray(found)


def ties_of(owner: BaseEstimator) -> list[Tie]:
    """Return the ties of an estimator: those of its class, or of its nearest base class that has any."""
    ties = _of_class(TIES, owner)
    return list(ties(owner)) if ties is not None else []


def _of_class(table: Mapping[str, _Entry], owner: BaseEstimator) -> _Entry | None:
    """Return the entry for the class of an estimator, or for its nearest base class that has one."""
    return next((table[kind.__name__] for kind in type(owner).__mro__ if kind.__name__ in table), None)


def _rows(name: str, n: int) -> Iterator[Tie]:
    """Yield one tie for each row of an attribute that a graph stores row by row."""
    for i in range(n):
        yield Tie((name,), lambda op, a, i=i: op.Gather(a, i, axis=0))


def _itself(name: str) -> Tie:
    return Tie((name,), lambda op, a: a)


def _gaussian_nb(owner: BaseEstimator) -> Iterator[Tie]:
    yield _itself("var_")
    yield Tie(("var_",), lambda op, v: op.Mul(op.ReduceSum(op.Add(op.Log(v), _LOG_2PI), [1], keepdims=0), -0.5))
    yield Tie(("class_prior_",), lambda op, p: op.Log(p))


def _k_means(owner: BaseEstimator) -> Iterator[Tie]:
    yield _itself("cluster_centers_")
    yield Tie(("cluster_centers_",), lambda op, c: op.ReduceSumSquare(c, [1], keepdims=0))


def _kernel_pca(owner: BaseEstimator) -> Iterator[Tie]:
    yield Tie(("eigenvectors_", "eigenvalues_"), lambda op, v, e: op.Div(v, op.Sqrt(e)))


def _discriminant(owner: BaseEstimator) -> Iterator[Tie]:
    yield from _rows("means_", len(owner.means_))


def _gaussian_mixture(owner: BaseEstimator) -> Iterator[Tie]:
    k = len(owner.means_)
    yield Tie(("weights_",), lambda op, w: op.Log(w))
    yield from {"full": _full, "tied": _tied, "diag": _diagonal, "spherical": _spherical}[owner.covariance_type](k)


def _full(k: int) -> Iterator[Tie]:
    yield from _rows("precisions_cholesky_", k)
    for i in range(k):
        yield Tie(
            ("means_", "precisions_cholesky_"),
            lambda op, m, c, i=i: op.Neg(op.MatMul(op.Gather(m, i, axis=0), op.Gather(c, i, axis=0))),
        )
    yield Tie(("precisions_cholesky_",), lambda op, c: _log_of_diagonal(op, c))


def _bayesian_mixture(owner: BaseEstimator) -> Iterator[Tie]:
    """Yield ties of the means only, because digamma functions depend on the covariances."""
    if owner.covariance_type != "full":
        return
    for i, factor in enumerate(owner.precisions_cholesky_):
        yield Tie(
            ("means_",), lambda op, m, i=i, c=factor: op.Neg(op.MatMul(op.Gather(m, i, axis=0), _constant(op, c, m)))
        )


def _constant(op: Op, array: np.ndarray, like: ir.Value) -> ir.Value:
    return op.Constant(value=ir.tensor(array.astype(like.dtype.numpy())))  # type: ignore[union-attr]


def _log_of_diagonal(op: Op, c: ir.Value) -> ir.Value:
    """Return the sum of the logarithms of the absolute diagonals of ``c`` (..., p, p)."""
    p = graph.static_shape(c)[-1]  # type: ignore[index]
    return op.ReduceSum(
        op.Log(op.Abs(op.ReduceSum(op.Mul(c, _constant(op, np.eye(p), c)), [-1], keepdims=0))), [-1], keepdims=0
    )


def _tied(k: int) -> Iterator[Tie]:
    yield _itself("precisions_cholesky_")
    for i in range(k):
        yield Tie(
            ("means_", "precisions_cholesky_"), lambda op, m, c, i=i: op.Neg(op.MatMul(op.Gather(m, i, axis=0), c))
        )
    yield Tie(("precisions_cholesky_",), _log_of_diagonal)


def _diagonal(k: int) -> Iterator[Tie]:
    both = ("means_", "precisions_cholesky_")
    yield Tie(both[1:], lambda op, c: op.Transpose(op.Mul(c, c), perm=[1, 0]))
    yield Tie(both, lambda op, m, c: op.ReduceSumSquare(op.Mul(m, c), [1], keepdims=0))
    yield Tie(both, lambda op, m, c: op.Transpose(op.Mul(m, op.Mul(c, c)), perm=[1, 0]))
    yield Tie(both[1:], lambda op, c: op.ReduceSum(op.Log(c), [1], keepdims=0))


def _spherical(k: int) -> Iterator[Tie]:
    both = ("means_", "precisions_cholesky_")
    yield Tie(both[1:], lambda op, c: op.Mul(c, c))
    yield Tie(both, lambda op, m, c: op.Mul(op.ReduceSumSquare(m, [1], keepdims=0), op.Mul(c, c)))
    yield Tie(both, lambda op, m, c: op.Transpose(op.Mul(m, op.Unsqueeze(op.Mul(c, c), [1])), perm=[1, 0]))
    yield Tie(
        both,
        lambda op, m, c: op.Mul(op.Log(c), float(graph.static_shape(m)[1])),  # type: ignore[index]
    )


#: The ties of each class and its subclasses.
TIES: dict[str, Callable[[Any], Iterator[Tie]]] = {
    "GaussianNB": _gaussian_nb,
    "_BaseKMeans": _k_means,
    "KernelPCA": _kernel_pca,
    "QuadraticDiscriminantAnalysis": _discriminant,
    "GaussianMixture": _gaussian_mixture,
    "BayesianGaussianMixture": _bayesian_mixture,
}


#: For each class and its subclasses: the attributes that must not become negative, because they are probabilities or
#: the graph takes their logarithm, root or reciprocal, and the layout in which each is trained. The values of an
#: IsotonicRegression are probabilities only if it calibrates a classifier, see :func:`range_layout`.
_RANGES = {
    "DummyClassifier": {"class_prior_": "log"},
    "GaussianNB": {"var_": "log", "class_prior_": "log"},
    "QuadraticDiscriminantAnalysis": {"scalings_": "log", "priors_": "log"},
    "BaseMixture": {"weights_": "log", "precisions_cholesky_": "log"},
    "KernelPCA": {"eigenvalues_": "log"},
    "BernoulliNB": {"feature_log_prob_": "log odds"},  # the graph also takes log(1 - p)
    "BaseLabelPropagation": {"label_distributions_": "root"},
    "IsotonicRegression": {"y_thresholds_": "reflected"},
}

#: The list of the calibrators of a classifier of CalibratedClassifierCV.
_CALIBRATORS = "calibrators"


@dataclass(frozen=True)
class _Range:
    """The range of the entries of an array, and the parameter that is trained instead."""

    inside: Callable[[np.ndarray], Any]
    trained: Callable[[np.ndarray], np.ndarray]
    back: Callable[[Any, ir.Value], ir.Value]


def _reflect(op: Op, w: ir.Value) -> ir.Value:
    """Reflect values at 0 and 1; unlike Abs and Min, the choice has a derivative of 1 at both ends."""
    distance = op.Where(op.Less(w, 0.0), op.Neg(w), w)
    return op.Where(op.Greater(distance, 1.0), op.Sub(2.0, distance), distance)


_TRAINED_AS = {
    "log": _Range(lambda a: a > 0, np.log, lambda op, w: op.Exp(w)),
    "root": _Range(lambda a: a >= 0, root, lambda op, w: op.Mul(w, w)),
    "reflected": _Range(lambda a: (a >= 0) & (a <= 1), lambda a: a, _reflect),
    "log odds": _Range(lambda a: a < 0, log_odds, lambda op, w: op.Neg(op.Softplus(op.Neg(w)))),
}


def range_layout(item: Learned) -> str | None:
    """Return the layout in which a learned array is trained to stay in its range; None if it has no range."""
    layout = (_of_class(_RANGES, item.owner) or {}).get(item.attribute)
    if layout == "reflected" and _CALIBRATORS not in item.path:
        return None
    return layout if layout is not None and np.all(_TRAINED_AS[layout].inside(item.value)) else None


def keep_in_range(model: ir.Model, known: Sequence[Learned]) -> None:
    """Compute each array with a range from its trained parameter, in place."""
    found = [(item.value, layout) for item in known if (layout := range_layout(item))]
    for v in _floats(model) if found else ():
        array = v.const_value.numpy()  # type: ignore[union-attr]
        layout = next((layout for value, layout in found if _same(array, value)), None)
        if layout is not None:
            op = graph.builder(model).op
            trained = _TRAINED_AS[layout].trained(array.astype(np.float64)).astype(array.dtype)
            new = _TRAINED_AS[layout].back(op, op.initializer(ir.tensor(trained), f"free_{v.name}"))
            ir.convenience.replace_all_uses_with(v, new)


def _same(array: np.ndarray, value: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        value = value.astype(array.dtype)  # in float32, values below 1e-45 are 0, and those above 3e38 infinite
    transposed = value.ndim == 2 and array.shape == value.T.shape and _same_elements(array, value.T)
    return transposed or _same_elements(array, value)
