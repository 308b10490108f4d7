"""Numbers that a converter computes from attributes go back into the graph.

GaussianNB's graph holds the variances and a sum of their logarithms: trained
apart they would no longer belong to one model. A tie says how such a number
comes from attributes; the graph then computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from onnxtrain import graph
from onnxtrain.convert.learned import Learned, learned

_LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Tie:
    """``compute(op, *attributes)`` is a number of the graph."""

    attributes: tuple[str, ...]
    compute: Callable[..., ir.Value]


def tie(estimator: Any, onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with derived numbers computed from the attributes they come from.

    Each attribute that has a tie becomes one initializer, whatever the number
    of places that it was copied to.
    """
    owners = [(items, ties) for items in _by_owner(estimator) if (ties := ties_of(next(iter(items.values())).owner))]
    if not owners:
        return onx
    model = graph.load(onx)
    build = graph.builder(model)
    for items, ties in owners:
        values: dict[str, ir.Value] = {}
        for each in ties:
            if all(name in items for name in each.attributes):
                _replace(build, model, each, items, values)
    return graph.save(model)


def _by_owner(estimator: Any) -> list[dict[str, Learned]]:
    found: dict[int, dict[str, Learned]] = {}
    for item in learned(estimator):
        if isinstance(item.path[-1], str):
            found.setdefault(id(item.owner), {})[item.attribute] = item
    return list(found.values())


def _replace(
    build: graph.Builder, model: ir.Model, each: Tie, items: dict[str, Learned], values: dict[str, ir.Value]
) -> None:
    expected = _evaluate(each, [items[name].value for name in each.attributes])
    for old in [v for v in model.graph.initializers.values() if graph.is_float(v) and v not in values.values()]:
        array = old.const_value.numpy()  # type: ignore[union-attr]
        if array.size != expected.size or not np.allclose(
            array.reshape(-1), expected.reshape(-1), rtol=1e-5, atol=1e-30
        ):
            continue
        for name in each.attributes:
            if name not in values:
                values[name] = build.op.initializer(ir.tensor(items[name].value.astype(np.float32)), f"tied.{name}")
        new = each.compute(build.op, *(values[name] for name in each.attributes))
        if graph.static_shape(new) != array.shape:
            new = build.op.Reshape(new, list(array.shape))
        ir.convenience.replace_all_uses_with(old, new)


def _evaluate(each: Tie, arrays: list[np.ndarray]) -> np.ndarray:
    """Return the number that a tie computes from the arrays of its attributes."""
    inner = ir.Graph([], [], nodes=[], opset_imports={"": graph.OPSET}, name="tie")
    build = graph.Builder(inner)
    result = build.op.Identity(
        each.compute(build.op, *(build.op.initializer(ir.tensor(a), f"a{i}") for i, a in enumerate(arrays)))
    )
    inner.outputs.append(result)
    onx = ir.to_proto(ir.Model(inner, ir_version=graph.IR_VERSION))
    (found,) = ReferenceEvaluator(onx).run(None, {})
    return np.asarray(found)


def ties_of(owner: Any) -> list[Tie]:
    """Return the ties of an estimator, those of its class and its classes' bases."""
    for kind in type(owner).__mro__:
        if kind.__name__ in TIES:
            return list(TIES[kind.__name__](owner))
    return []


def _rows(name: str, n: int) -> Iterator[Tie]:
    """Return one tie for each row of an attribute that a graph holds row by row."""
    for i in range(n):
        yield Tie((name,), lambda op, a, i=i: op.Gather(a, i, axis=0))


def _itself(name: str) -> Tie:
    return Tie((name,), lambda op, a: a)


def _gaussian_nb(owner: Any) -> Iterator[Tie]:
    yield _itself("var_")
    yield Tie(("var_",), lambda op, v: op.Mul(op.ReduceSum(op.Add(op.Log(v), _LOG_2PI), [1], keepdims=0), -0.5))
    yield Tie(("class_prior_",), lambda op, p: op.Log(p))


def _k_means(owner: Any) -> Iterator[Tie]:
    yield _itself("cluster_centers_")
    yield Tie(("cluster_centers_",), lambda op, c: op.ReduceSumSquare(c, [1], keepdims=0))


def _kernel_pca(owner: Any) -> Iterator[Tie]:
    yield Tie(("eigenvectors_", "eigenvalues_"), lambda op, v, e: op.Div(v, op.Sqrt(e)))


def _discriminant(owner: Any) -> Iterator[Tie]:
    yield from _rows("means_", len(owner.means_))


def _ada_boost(owner: Any) -> Iterator[Tie]:
    yield from _rows("estimator_weights_", len(owner.estimators_))
    yield Tie(("estimator_weights_",), lambda op, w: op.ReduceSum(w, [0], keepdims=0))


def _gaussian_mixture(owner: Any) -> Iterator[Tie]:
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


def _bayesian_mixture(owner: Any) -> Iterator[Tie]:
    """Return ties of the means alone: the covariances have a part in digamma functions."""
    if owner.covariance_type != "full":
        return
    for i, root in enumerate(owner.precisions_cholesky_):
        yield Tie(
            ("means_",), lambda op, m, i=i, c=root: op.Neg(op.MatMul(op.Gather(m, i, axis=0), _constant(op, c, m)))
        )


def _constant(op: Any, array: np.ndarray, like: ir.Value) -> ir.Value:
    return op.Constant(value=ir.tensor(array.astype(like.dtype.numpy())))  # type: ignore[union-attr]


def _log_of_diagonal(op: Any, c: ir.Value) -> ir.Value:
    """Return the sum of the logarithms of the diagonals of ``c`` (..., p, p)."""
    p = graph.static_shape(c)[-1]  # type: ignore[index]
    return op.ReduceSum(
        op.Log(op.ReduceSum(op.Mul(c, _constant(op, np.eye(p), c)), [-1], keepdims=0)), [-1], keepdims=0
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


#: Class, or a class it derives from -> its ties.
TIES: dict[str, Callable[[Any], Iterator[Tie]]] = {
    "GaussianNB": _gaussian_nb,
    "_BaseKMeans": _k_means,
    "KernelPCA": _kernel_pca,
    "QuadraticDiscriminantAnalysis": _discriminant,
    "AdaBoostClassifier": _ada_boost,
    "GaussianMixture": _gaussian_mixture,
    "BayesianGaussianMixture": _bayesian_mixture,
}
