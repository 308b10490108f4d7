"""Conversion of a fitted estimator to a graph; initializers are matched to learned attributes by value.

The names that a converter gives change between versions; values do not. If two attributes have the same values (a mean
computed twice, intercepts of zero), the estimator is converted again with marked values.

:func:`to_sklearn` writes trained weights back to these attributes.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.neighbors import BallTree, KDTree
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from onnxtrain import graph as graphs
from onnxtrain.convert.additions.gaussian_process import warn_of_unresolved
from onnxtrain.convert.boosted_leaves import bind_boosted, told_apart
from onnxtrain.convert.columns import positional
from onnxtrain.convert.derived import keep_in_range, range_layout, tie
from onnxtrain.convert.failures import documentation
from onnxtrain.convert.learned import (
    LAYOUTS,
    Binding,
    LeafBinding,
    Learned,
    Path,
    ProbabilityBinding,
    find_trees,
    get,
    holds,
    holds_boosted,
    inside,
    last_columns,
    leaf_values,
    learned,
    put,
    remedy_of_exporter,
)
from onnxtrain.convert.sklearn import repaired_graph
from onnxtrain.convert.thresholds import HISTOGRAMS, with_float32_splits
from onnxtrain.errors import ConversionError, ExportError, ModelError, OnnxTrainError
from onnxtrain.graph import unique_name
from onnxtrain.registry import did_you_mean
from onnxtrain.rewrite import rewritten
from onnxtrain.rewrite.trees import to_free

#: Layouts to try besides "same" and "transpose", for attributes that a graph stores in another form.
_OTHER_LAYOUTS = {
    "scale_": ("reciprocal",),
    "coef_": ("negative",),
    "intercept_": ("negative",),
}

#: If the structure of a graph depends on the values, the estimator is converted once per attribute, at most this often.
_MOST_MARKED = 40

#: initializer -> (learned array, layout)
_Matches = dict[str, tuple[Learned, str]]

#: initializer -> (position of the learned array, layout)
_Candidates = Mapping[str, Sequence[tuple[int, str]]]


@dataclass(frozen=True)
class Conversion:
    """The graph of an estimator, and the origin of each of its weights."""

    onnx: onnx.ModelProto
    bindings: tuple[Binding, ...]

    @property
    def default(self) -> tuple[str, ...]:
        """The weights that are trained by default: those of predictors or, for a transformer, all."""
        return tuple(b.name for b in self.bindings if b.predictor) or tuple(b.name for b in self.bindings)


def convert(estimator: BaseEstimator, X: Any) -> Conversion:
    """Convert a fitted estimator to a graph of ai.onnx; return it with the origin of its weights.

    Parameters
    ----------
    estimator : fitted scikit-learn estimator or pipeline
    X : array or DataFrame of shape (n_samples, n_features)
        Rows that give the types of the inputs, and decide on which side of a float64 split nearby rows fall in float32.

    Returns
    -------
    Conversion
        The model computes in float32. Its initializers are named after their attributes: ``coef``,
        ``standardscaler.mean``, ``mlp.coefs_0``.

    Raises
    ------
    ConversionError
        There is no converter, or its graph cannot be trained. :func:`~onnxtrain.convert.check.compare` checks that the
        graph agrees with the estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    >>> [(b.name, b.shape) for b in convert(model, X).bindings][-1]
    ('logisticregression.intercept', (3,))
    """
    if not hasattr(X, "columns") and np.ndim(X) != 2:
        raise ConversionError(
            f"The graph of {type(estimator).__name__} takes X of shape (n_samples, n_features), as a numeric array or "
            f"a DataFrame, but got {type(X).__name__} of shape {np.shape(X)}. Encode strings, dictionaries and labels "
            "first."
        )
    estimator = positional(estimator, X)
    if holds(estimator, HISTOGRAMS):
        estimator = with_float32_splits(estimator, X)
    known = list(learned(estimator))
    model = _trainable_graph(estimator, known, X)
    bindings = _bind(estimator, known, model, X)
    return Conversion(graphs.save(model), bindings)


#: Why steps that read strings are not part of a graph.
NO_WORDS = "ONNX does not split text into words as scikit-learn does"


def _trainable_graph(estimator: BaseEstimator, known: Sequence[Learned], X: Any) -> ir.Model:
    """Return the graph of an estimator with its learned attributes as initializers."""
    onx = repaired_graph(estimator, X)
    if any(
        node.op_type == "Tokenizer" for node in onx.graph.node
    ):  # an operator of onnxruntime that splits differently
        raise ConversionError(NO_WORDS)
    try:
        model = rewritten(graphs.load_converted(onx))
        if any(v.dtype == ir.DataType.DOUBLE for v in model.graph.initializers.values()):
            graphs.cast_floats(model, ir.DataType.FLOAT)  # converters may leave doubles
        tie(model, known)
        keep_in_range(model, known)
        graphs.put_in_order(model)
        graphs.prune(model)  # frees the names of unused initializers
        return model
    except ModelError as e:
        see = remedy_of_exporter(estimator) or f"See {documentation(estimator)}."
        why = str(e).rstrip(".")
        raise ConversionError(f"The graph of {type(estimator).__name__} cannot be trained: {why}. {see}") from e


def _bind(estimator: BaseEstimator, known: Sequence[Learned], model: ir.Model, X: Any) -> tuple[Binding, ...]:
    """Return the bindings of the weights, named after their attributes; all other initializers become constants."""
    known = [item for item in known if _is_weight(item)]
    arrays = _weights_in_order(model)
    candidates = _candidates(known, arrays)
    matches = _match_marked(estimator, known, model, X) if _ambiguous(candidates, arrays) else None
    if matches is None:
        matches = _match(known, _without_shared(candidates))
    bindings = [
        Binding(name, item.path, item.kind, arrays[name].shape, layout, item.step, hasattr(item.owner, "predict"))
        for name, (item, layout) in matches.items()
    ]
    leaves = {name: a for name, a in arrays.items() if name.startswith("leaf_values") and name not in matches}
    if leaves:
        bindings += _leaf_bindings(estimator, leaves)
    if leaves and holds_boosted(estimator):
        others = {name: a for name, a in leaves.items() if name not in _names(bindings)}
        bindings += _bind_boosted(estimator, others, X)
        bindings += [
            Binding(name, (), "derived", a.shape) for name, a in leaves.items() if name not in _names(bindings)
        ]
    graphs.constants_as_nodes(model, {model.graph.initializers[b.name] for b in bindings}, [])
    names = _rename(model.graph, {name: item.name for name, (item, _) in matches.items()})
    return tuple(replace(b, name=names.get(b.name, b.name)) for b in bindings)


def _bind_boosted(estimator: BaseEstimator, arrays: Mapping[str, np.ndarray], X: Any) -> Iterator[Binding]:
    """Yield the bindings of leaf values of boosted trees; those of equal members are told apart by marked values."""
    marked = told_apart(estimator)
    if marked is not estimator:
        found = _weights_in_order(_trainable_graph(marked, list(learned(marked)), X))
        arrays = {name: found[name] for name in arrays if name in found}
    return bind_boosted(marked, arrays)


def _names(bindings: Iterable[Binding]) -> set[str]:
    return {binding.name for binding in bindings}


def _is_weight(item: Learned) -> bool:
    """Whether an attribute may be trained: no intercept if fit_intercept=False, no rows with missing values."""
    if np.isnan(item.value).any():
        return False
    return item.kind != "intercept" or bool(getattr(item.owner, "fit_intercept", True))


def _weights_in_order(model: ir.Model) -> dict[str, np.ndarray]:
    """Return the floating-point arrays on which the outputs depend, in the order of use."""
    edges = {
        node: [x for x in graphs.operands(node) if x is not None and _may_hold_weights(x)]
        for node in model.graph
        if node.domain in ("", "ai.onnx")
    }
    wanted = graphs.ancestors(filter(graphs.is_float, model.graph.outputs), edges)
    weights = {x for x in wanted if x.is_initializer() and x.const_value is not None}
    in_order = [x for node in model.graph for x in node.inputs if x in weights]
    return {str(x.name): x.const_value.numpy() for x in in_order}  # type: ignore[union-attr]


def _may_hold_weights(x: ir.Value) -> bool:
    """Whether a value is floating-point and not a scalar initializer, which belongs to a formula."""
    return (graphs.is_float(x) or x.dtype is None) and bool(graphs.rank(x) or not x.is_initializer())


def _match(known: Sequence[Learned], candidates: _Candidates) -> _Matches:
    """Assign to each array the first attribute that is not assigned to an earlier array."""
    matches: _Matches = {}
    taken: set[int] = set()
    for name, found in candidates.items():
        for i, layout in found:
            if i not in taken:
                taken.add(i)
                matches[name] = known[i], layout
                break
    return matches


def _candidates(known: Sequence[Learned], arrays: Mapping[str, np.ndarray]) -> _Candidates:
    """Return, for each array, the position and layout of the learned arrays with the same values."""
    layouts = [_layouts_of(item) for item in known]
    return {
        name: [
            (i, layout)
            for layout in LAYOUTS
            for i, item in enumerate(known)
            if item.value.size == array.size
            and layout in layouts[i]
            and _fits(LAYOUTS[layout].forward(item.value), array)
        ]
        for name, array in arrays.items()
    }


def _layouts_of(item: Learned) -> tuple[str, ...]:
    if in_range := range_layout(item):
        return (in_range,)
    transposed = ("transpose",) if np.ndim(item.value) > 1 else ()
    return "same", *transposed, *_OTHER_LAYOUTS.get(item.attribute, ())


def _fits(value: np.ndarray, array: np.ndarray) -> bool:
    if _squeezed(value) != _squeezed(array):
        return False
    with np.errstate(over="ignore"):  # values too large for float32 do not match
        value = value.reshape(array.shape).astype(array.dtype)
    return _close(value.flat[:16], array.flat[:16]) and _close(value, array)  # most differences are at the start


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b) or np.allclose(a, b, rtol=1e-5, atol=1e-30, equal_nan=True)


def _squeezed(array: np.ndarray) -> tuple[int, ...]:
    return tuple(d for d in array.shape if d != 1)


def _without_shared(candidates: _Candidates) -> _Candidates:
    """Leave out arrays that may stand for several attributes, such as the equal class priors of several members.

    There are fewer such arrays than attributes with their values; :func:`to_sklearn` would write only one attribute.
    """
    of_array = {name: frozenset(i for i, _ in found) for name, found in candidates.items()}
    n_arrays = Counter(of_array.values())
    return {name: found for name, found in candidates.items() if len(of_array[name]) <= n_arrays[of_array[name]]}


def _ambiguous(candidates: _Candidates, arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether equal values may be a coincidence: two attributes have them, or all are 0, all are 1, ..."""
    for name, array in arrays.items():
        found = {i for i, _ in candidates[name]}
        if len(found) > 1 or (found and np.all(array == np.round(array.flat[0]))):
            return True
    return False


def _match_marked(estimator: BaseEstimator, known: Sequence[Learned], model: ir.Model, X: Any) -> _Matches | None:
    """Match on a graph in which all attributes differ; return None if marking changes the structure of the graph.

    Equal attributes of two estimators that are tied to initializers have one in common, but none once they are marked.
    """
    structure = _structure(model)

    def graph_of(items: Sequence[Learned]) -> tuple[list[Learned], ir.Model | None]:
        marked = _marked(estimator, items)
        found = list(learned(marked))
        try:
            other = _trainable_graph(marked, found, X)
        except OnnxTrainError:  # SelectFromModel selects other columns, which do not fit the next step
            return found, None
        return found, other if _structure(other) == structure else None

    kept = list(known)
    found, other = graph_of(kept)
    if other is None and len(known) <= _MOST_MARKED:  # one attribute determines the graph, so it is not an initializer
        kept = [item for item in known if graph_of([item])[1] is not None]
        found, other = graph_of(kept)
    if other is None:
        return None
    by_path = {item.path: item for item in kept}
    marked = [item for item in found if item.path in by_path]
    matches = _match(marked, _candidates(marked, _weights_in_order(other)))
    return {name: (by_path[item.path], layout) for name, (item, layout) in matches.items()}


def _structure(model: ir.Model) -> tuple[list[str], set[str]]:
    return [node.op_type for node in model.graph], {*_weights_in_order(model)}


def _marked(estimator: BaseEstimator, items: Sequence[Learned]) -> BaseEstimator:
    """Return a copy of an estimator in which each element of `items` has its own factor slightly below 1.

    So probabilities stay in their range.
    """
    rng = np.random.default_rng(0)
    marked = copy.deepcopy(estimator)
    for item in items:
        old = get(marked, item.path)
        array = np.asarray(old) if np.asarray(old).dtype.kind == "f" else item.value
        new = array * (1 - 0.01 * rng.random(array.shape)) + np.where(array == 0, 0.01 * rng.random(array.shape), 0)
        put(marked, item.path, new.astype(array.dtype) if isinstance(old, np.ndarray) else type(old)(new))
    for item in learned(marked):
        make_consistent(item.owner)
    return marked


def _leaf_bindings(estimator: BaseEstimator, arrays: Mapping[str, np.ndarray]) -> Iterator[Binding]:
    trees = list(find_trees(estimator))
    for name, array in arrays.items():
        found = _bind_leaves(estimator, name, array, trees)
        if found is not None:
            trees = [path for path in trees if path not in found.trees]
            yield found


def _bind_leaves(estimator: BaseEstimator, name: str, array: np.ndarray, trees: Sequence[Path]) -> LeafBinding | None:
    """Return the binding of an initializer to the first sequence of `trees` whose leaves have its values.

    Parameters
    ----------
    array : array of shape (leaves,) or (leaves, k)
    trees : sequence of Path
        The trees not yet bound, in order.
    """
    counts = [len(leaf_values(get(estimator, path))) for path in trees]
    for first in range(len(trees)):
        total = np.cumsum(counts[first:])
        (stop,) = np.nonzero(total == len(array))[0][:1].tolist() or [-1]
        if stop < 0:
            continue
        run = tuple(trees[first : first + stop + 1])
        values = last_columns(np.concatenate([leaf_values(get(estimator, path)) for path in run]), array.shape)
        factor = _factor(values, array)
        if factor is not None:
            return LeafBinding(name, (*run[0], "leaves"), "leaf", array.shape, trees=run, factor=factor)
        if _are_probabilities(values, array):
            return ProbabilityBinding(name, (*run[0], "leaves"), "leaf", array.shape, trees=run)
    return None


def _factor(values: np.ndarray, array: np.ndarray) -> float | None:
    """Return f such that ``array = f * values``, or None if there is no such f."""
    if values.shape != array.shape:
        return None
    size = float(np.sum(values * values))
    factor = float(np.sum(values * array)) / size if size else 1.0
    fits = np.allclose(values * factor, array, rtol=1e-4, atol=1e-6 * np.abs(array).max(initial=0.0))
    return _tidy(factor) if fits and factor > 0 else None


def _are_probabilities(values: np.ndarray, array: np.ndarray) -> bool:
    """Whether `array` (leaves, k) holds parameters of the probabilities `values`."""
    if values.shape != array.shape or array.ndim != 2 or array.shape[1] < 2 or np.any(values < 0):
        return False
    return bool(np.all(values.sum(axis=1) > 0)) and np.allclose(to_free(values), array, rtol=0, atol=1e-4)


def _tidy(factor: float) -> float:
    """Return the exact value of a factor that was estimated in float32, such as 0.1 or 1 / 30."""
    for exact in (round(factor, 5), 1 / round(1 / factor)) if factor < 1.5 else (round(factor, 5),):
        if exact and abs(exact / factor - 1) < 1e-6:  # 0.33333 is not 1/3
            return exact
    return factor


def _rename(graph: ir.Graph, wanted: Mapping[str, str]) -> dict[str, str]:
    """Rename initializers in place as `wanted`, if the names are free; return their names."""
    taken = graphs.names_in(graph) - wanted.keys()
    names = {old: unique_name(new, taken) for old, new in wanted.items()}
    values = list(graph.initializers.values())
    graph.initializers.clear()  # to keep their order
    for value in values:
        value.name = names.get(str(value.name), value.name)
        graph.register_initializer(value)
    return names


# ---------------------------------------------------------------- the way back


#: Search trees over the fitted rows, by algorithm.
_SEARCH_TREES = {"kd_tree": KDTree, "ball_tree": BallTree}


def to_sklearn(estimator: BaseEstimator, bindings: Iterable[Binding], weights: Mapping[str, np.ndarray]) -> Any:
    """Return a fitted copy of an estimator with trained weights.

    Parameters
    ----------
    estimator : fitted estimator
        The converted estimator; it is not changed.
    bindings : iterable of Binding
        The bindings of its conversion.
    weights : mapping of name to array
        The trained initializers; other attributes stay unchanged.

    Raises
    ------
    ExportError
        A weight is unknown, or has no corresponding attribute in the estimator.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> from onnxtrain.convert import convert
    >>> X = np.array([[0.0], [1.0]])
    >>> model = LinearRegression().fit(X, [0.0, 1.0])
    >>> bindings = convert(model, X).bindings
    >>> to_sklearn(model, bindings, {"intercept": np.array([5.0])}).predict([[1.0]])
    array([6.])
    """
    known = {b.name: b for b in bindings}
    trained = copy.deepcopy(estimator)
    for name, weight in weights.items():
        if name not in known:
            raise ExportError(
                f"The weight {name!r} does not belong to {type(estimator).__name__}. {did_you_mean(name, known)}"
            )
        _write(trained, known[name], np.asarray(weight))
    for owner in {id(o): o for o in (_owner(trained, known[n]) for n in weights if known[n].kind != "leaf")}.values():
        make_consistent(owner)
    for found in inside(trained):
        if isinstance(found, GaussianProcessClassifier):
            warn_of_unresolved(found)
    return trained


def _write(estimator: BaseEstimator, binding: Binding, weight: np.ndarray) -> None:
    if binding.kind == "derived":
        raise ExportError(
            f"The weight {binding.name!r} cannot be written back, because no attribute of {type(estimator).__name__} "
            "holds just these values. Use get_trained_onnx(), with part='tail' if scikit-learn runs the first steps. "
            "If it suffices to train other weights, name them in weights_to_train."
        )
    if weight.shape != binding.shape:
        raise ExportError(
            f"The weight {binding.name!r} has shape {weight.shape}, but the estimator's has {binding.shape}."
        )
    try:
        binding.write(estimator, weight)
    except ExportError:
        raise
    except Exception as e:  # libraries of boosted trees raise exceptions of any class
        raise ExportError(f"The weight {binding.name!r} cannot be written back: {e}") from e


def _owner(estimator: BaseEstimator, binding: Binding) -> Any:
    """Return the estimator that directly holds the attribute."""
    path = binding.path[:-1] if not isinstance(binding.path[-1], int) else binding.path[:-2]
    return get(estimator, path)


def make_consistent(owner: BaseEstimator) -> None:
    """Recompute the attributes that an estimator derives from the replaced ones."""
    if isinstance(owner, StandardScaler) and owner.scale_ is not None:
        owner.var_ = owner.scale_**2
    elif hasattr(owner, "_dual_coef_"):
        sign = -1 if len(getattr(owner, "classes_", ())) == 2 else 1
        owner.dual_coef_, owner.intercept_ = sign * owner._dual_coef_, sign * owner._intercept_
        if hasattr(owner, "offset_"):
            owner.offset_ = -owner._intercept_
    elif getattr(owner, "_fit_method", None) in _SEARCH_TREES:
        search = _SEARCH_TREES[owner._fit_method]
        owner._tree = search(
            owner._fit_X, owner.leaf_size, metric=owner.effective_metric_, **owner.effective_metric_params_
        )
    elif isinstance(owner, (GaussianMixture, BayesianGaussianMixture)) and owner.covariance_type in ("full", "tied"):
        # the sign of a column does not change the precision; scikit-learn takes the logarithm of the diagonal
        diagonal = np.diagonal(owner.precisions_cholesky_, axis1=-2, axis2=-1)
        owner.precisions_cholesky_ = owner.precisions_cholesky_ * np.where(diagonal < 0, -1, 1)[..., None, :]
    elif isinstance(owner, IsotonicRegression):
        owner._build_f(owner.X_thresholds_, owner.y_thresholds_)
    elif isinstance(owner, DummyClassifier):
        owner.class_prior_ = owner.class_prior_ / np.sum(owner.class_prior_)
    elif isinstance(owner, MaxAbsScaler):
        owner.max_abs_ = owner.scale_.copy()
    elif isinstance(owner, MinMaxScaler):
        low, high = owner.feature_range
        owner.data_min_ = (low - owner.min_) / owner.scale_
        owner.data_range_ = (high - low) / owner.scale_
        owner.data_max_ = owner.data_min_ + owner.data_range_
