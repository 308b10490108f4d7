"""The learned arrays of a fitted estimator, their paths, and their conversion to initializers and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline

from onnxtrain.rewrite.trees import to_free, to_simplex

#: The libraries of boosted trees.
_BOOSTED = frozenset({"catboost", "lightgbm", "xgboost"})

#: The path from an estimator to an object inside it: names of attributes, keys, positions in lists.
Path: TypeAlias = "tuple[str | int, ...]"

#: Attributes that hold the fitted steps of a composite estimator.
_STEPS = {Pipeline: "named_steps", ColumnTransformer: "named_transformers_", FeatureUnion: "named_transformers"}

#: Attributes that record training and are not used in prediction.
_MEMORIES = frozenset(
    {
        "loss_curve_",
        "best_loss_",
        "loss_",
        "validation_scores_",
        "best_validation_score_",
        "t_",
        "alphas_",
        "mse_path_",
        "scores_",
        "Cs_",
        "coefs_paths_",
        "dual_gap_",
        "tol_",
        "epsilon_",
        "n_samples_seen_",
        "cv_results_",
        "best_score_",
        "coef_path_",
        "train_score_",
        "oob_improvement_",
        "pvalues_",
        "n_iter_",
        "noise_variance_",
        "inertia_",
    }
)

#: The kind of each attribute, in one word.
KINDS = {
    "coef_": "coefficient", "coefs_": "coefficient", "intercept_": "intercept", "intercepts_": "intercept",
    "mean_": "mean", "center_": "mean", "means_": "mean", "theta_": "mean", "min_": "mean",
    "_x_mean": "mean", "scale_": "scale", "_x_std": "scale", "components_": "components", "support_vectors_": "support",
    "dual_coef_": "dual coefficient", "_dual_coef_": "dual coefficient", "cluster_centers_": "center",
    "_intercept_": "intercept", "offset_": "intercept", "statistics_": "statistic",
}  # fmt: skip


@dataclass(frozen=True)
class Learned:
    """A learned array: its path, its value, and the estimator that holds it."""

    path: Path
    value: np.ndarray
    owner: BaseEstimator

    @property
    def attribute(self) -> str:
        """The name of the attribute, without the position in it."""
        return next(str(key) for key in reversed(self.path) if isinstance(key, str))

    @property
    def kind(self) -> str:
        """The kind of the attribute, in one word."""
        return KINDS.get(self.attribute, self.attribute.strip("_"))

    @property
    def step(self) -> str:
        """The name of the step of the outer pipeline that contains it."""
        return str(self.path[1]) if self.path[0] in _STEPS.values() else ""

    @property
    def name(self) -> str:
        """A readable name: ``mlp.coefs_0`` for ``named_steps["mlp"].coefs_[0]``."""
        words: list[str] = []
        for key in self.path:
            if isinstance(key, int):
                words[-1] += f"_{key}"
            elif key not in _STEPS.values():
                words.append(key.strip("_"))
        return ".".join(words)


#: Types of members without parts, of which an estimator has the most, such as the losses of its iterations.
_SCALARS = frozenset({bool, int, float, str, type(None), np.float64, np.int64})


def parts(holder: Any) -> Iterable[tuple[Any, Any]]:
    """Return the members of an estimator, list, dictionary or object array, each with its key.

    A vocabulary has hundreds of thousands of members, so they are not copied.
    """
    if isinstance(holder, dict):
        return holder.items()
    if isinstance(holder, (list, tuple)) or (isinstance(holder, np.ndarray) and holder.dtype == object):
        return enumerate(holder)
    if isinstance(holder, BaseEstimator) or type(holder).__name__ == "_CalibratedClassifier":
        return list(vars(holder).items())
    return []


def is_idle(step: object) -> bool:
    """Whether a step of a pipeline has no effect in prediction: a passthrough or a sampler."""
    return step is None or isinstance(step, str) or (hasattr(step, "fit_resample") and not hasattr(step, "transform"))


def is_estimator(part: object) -> bool:
    """Whether an object is an estimator; CatBoost's estimators do not derive from scikit-learn's classes."""
    return isinstance(part, BaseEstimator) or (type(part).__module__.startswith("catboost.") and hasattr(part, "fit"))


def thawed(estimator: Any) -> Any:
    """Return the estimator inside a FrozenEstimator; return any other unchanged."""
    while isinstance(estimator, FrozenEstimator):
        estimator = estimator.estimator
    return estimator


def predictor_of(estimator: Any) -> Any:
    """Return the estimator that finally predicts: the last step of pipelines, the best of a search, a thawed one."""
    if isinstance(estimator, Pipeline):
        return predictor_of(estimator[-1])
    found = thawed(getattr(estimator, "best_estimator_", estimator))
    return found if found is estimator else predictor_of(found)


def inside(estimator: BaseEstimator) -> Iterator[BaseEstimator]:
    """Yield an estimator and every estimator inside it, each once."""
    seen: set[int] = set()
    pending = [estimator]
    while pending:
        found = pending.pop()
        if id(found) in seen:
            continue
        if is_estimator(found):
            seen.add(id(found))
            yield found
        pending.extend(item for _, item in parts(found) if type(item) not in _SCALARS)


def holds(estimator: BaseEstimator, kinds: type | tuple[type, ...]) -> bool:
    """Whether an estimator is an instance of some classes, or contains one."""
    return any(isinstance(found, kinds) for found in inside(estimator))


def library_of(kind: type) -> str | None:
    """Return the library of boosted trees of a class, or None."""
    roots = [base.__module__.partition(".")[0] for base in kind.__mro__]
    return next((root for root in roots if root in _BOOSTED), None)


def n_columns_of(estimator: Any) -> int:
    """Return the number of columns that a fitted estimator takes; copies of CatBoost's models have n_features_in_ 0."""
    if estimator.n_features_in_:
        return int(estimator.n_features_in_)
    inner = estimator[0] if isinstance(estimator, Pipeline) else getattr(estimator, "best_estimator_", None)
    return len(estimator.feature_names_) if inner is None else n_columns_of(inner)


def holds_boosted(estimator: BaseEstimator) -> bool:
    """Whether an estimator is or contains boosted trees of these libraries."""
    return any(library_of(type(found)) for found in inside(estimator))


#: For each library of boosted trees: the parameters with which its exporter writes what the class computes.
_EXPORTED = {
    "lightgbm": (
        "boosting_type='gbdt', linear_tree=False, zero_as_missing=False, reg_sqrt=False, sigmoid=1 and the objective "
        "'regression', 'binary' or 'multiclass'"
    ),
    "xgboost": (
        "booster='gbtree', without rate_drop, skip_drop and one_drop, with missing=nan, multi_strategy="
        "'one_output_per_tree' and the default objective, and XGBRegressor instead of XGBRanker"
    ),
    "catboost": "grow_policy='SymmetricTree' and loss_function='RMSE', 'Logloss' or 'MultiClass'",
}


def remedy_of_exporter(estimator: BaseEstimator) -> str:
    """Return the parameters that the exporter of boosted trees supports; "" for other estimators."""
    libraries = filter(None, (library_of(type(found)) for found in inside(estimator)))
    library = next(libraries, None)
    return f"The exporter does not support all parameters. Fit with {_EXPORTED[library]}." if library else ""


def remedy_of_members(estimator: BaseEstimator) -> str:
    """Return the remedy to train a member of a meta-estimator, which then need not be converted; "" for others."""
    found = predictor_of(estimator)
    last = getattr(found, "final_estimator_", None)
    member = found.get_params(deep=False).get("estimator") if last is None else last
    if not is_estimator(member):
        return ""
    ours = "OrtGradientRegressor" if is_regressor(found) else "OrtGradientClassifier"
    keyword = "" if last is None else "final_estimator="
    return (
        f"Train its member: {type(found).__name__}({keyword}{ours}({type(predictor_of(member)).__name__}(...)), ...)."
    )


def paths(estimator: Any, path: str = "") -> Iterator[tuple[str, BaseEstimator]]:
    """Yield an estimator and those inside it, each with the path of step names."""
    path = path or type(estimator).__name__.lower()
    yield path, estimator
    steps = next((attribute for kind, attribute in _STEPS.items() if isinstance(estimator, kind)), None)
    held = getattr(estimator, steps, {}) if steps else {k: v for k, v in vars(estimator).items() if k.endswith("_")}
    if thawed(estimator) is not estimator:
        held = {"estimator": thawed(estimator)}
    for name, value in held.items():
        for key, member in [(name, value)] if is_estimator(value) else parts(value):
            found = member if is_estimator(member) else getattr(member, "estimator", None)  # of a calibrated classifier
            if is_estimator(found):
                yield from paths(found, f"{path}.{name}" if found is value else f"{path}.{name.strip('_')}.{key}")


def learned(estimator: BaseEstimator, path: Path = ()) -> Iterator[Learned]:
    """Yield every learned array of an estimator and of those inside it, in the order in which they were set."""
    steps = next((attribute for kind, attribute in _STEPS.items() if isinstance(estimator, kind)), None)
    if steps is not None:
        for name, step in getattr(estimator, steps, {}).items():  # an unfitted ColumnTransformer has none
            yield from learned(step, (*path, steps, name))
    elif isinstance(estimator, BaseEstimator):
        for name, value in _fitted(estimator).items():
            yield from _arrays(value, (*path, name), estimator)


def _fitted(estimator: BaseEstimator) -> dict[str, Any]:
    """Return the attributes that ``fit`` has set and prediction may use, public ones first."""
    given = set(estimator.get_params(deep=False))
    found = {k: v for k, v in vars(estimator).items() if k not in given and k not in _MEMORIES}
    if not any(k.endswith("_") for k in found):  # a FrozenEstimator: its estimator is fitted
        found = {k: v for k, v in vars(estimator).items() if isinstance(v, BaseEstimator)}
    if "_dual_coef_" in found:  # libsvm predicts with the private ones; the public ones may have the opposite sign
        found = {k: v for k, v in found.items() if k not in ("dual_coef_", "intercept_", "offset_")}
    return dict(sorted(found.items(), key=lambda item: item[0].startswith("_")))


def _arrays(value: Any, path: Path, owner: BaseEstimator) -> Iterator[Learned]:
    if isinstance(value, BaseEstimator):
        yield from learned(value, path)
    elif isinstance(value, (float, np.floating)) or _holds_values(value, path, owner):
        yield Learned(path, np.asarray(value, dtype=np.float64), owner)
    else:
        for key, item in parts(value):
            yield from _arrays(item, (*path, key), owner)


def _holds_values(value: Any, path: Path, owner: BaseEstimator) -> bool:
    """Whether a value is a float array, or the integer targets that a neighbors regressor averages."""
    if not isinstance(value, np.ndarray):
        return False
    return value.dtype.kind == "f" or (path[-1] == "_y" and value.dtype.kind in "iub" and is_regressor(owner))


def get(estimator: BaseEstimator, path: Path) -> Any:
    """Return the object at the end of a path of attributes, keys and positions."""
    found: Any = estimator
    for key in path:
        found = found[key] if isinstance(key, int) or isinstance(found, dict) else getattr(found, key)
    return found


def put(estimator: BaseEstimator, path: Path, value: Any) -> None:
    """Replace the object at the end of a path."""
    holder, key = get(estimator, path[:-1]), path[-1]
    if isinstance(key, int) or isinstance(holder, dict):
        holder[key] = value
    else:
        setattr(holder, key, value)


# ---------------------------------------------------------------------- trees


#: The probability that stands for zero.
_FLOOR = 1e-7

#: Attributes that hold trees, besides those whose names end in an underscore.
_HOLD_TREES = ("_predictors", "steps", "transformer_list")


def find_trees(holder: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every tree in an estimator, in order."""
    return _find(holder, lambda found: hasattr(found, "tree_") or _is_histogram_tree(found), path)


def find_boosted(holder: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every estimator of LightGBM, XGBoost or CatBoost in an estimator, in order."""
    return _find(holder, lambda found: library_of(type(found)) is not None and _is_fitted(found), path)


def _find(holder: Any, wanted: Callable[[Any], bool], path: Path) -> Iterator[Path]:
    if wanted(holder):
        yield path
    elif not isinstance(holder, dict):  # a dictionary by name repeats the estimators of a list
        for key, item in parts(holder):
            if not isinstance(holder, BaseEstimator) or key.endswith("_") or key in _HOLD_TREES or _is_frozen(holder):
                yield from _find(item, wanted, (*path, key))


def _is_fitted(boosted: Any) -> bool:
    """Whether an estimator of boosted trees is fitted; CatBoost has a method of its own."""
    return boosted.is_fitted() if hasattr(boosted, "is_fitted") else boosted.__sklearn_is_fitted__()


def _is_frozen(holder: Any) -> bool:
    """Whether the attribute ``estimator`` is the one that predicts, not the template of others."""
    return isinstance(holder, FrozenEstimator)


def leaf_values(tree: Any) -> np.ndarray:
    """Return the values (leaves, k) of a fitted tree, in the order of its nodes."""
    if _is_histogram_tree(tree):
        return tree.nodes["value"][tree.nodes["is_leaf"].astype(bool)].reshape(-1, 1)
    values = tree.tree_.value[tree.tree_.children_left == -1]
    return values.reshape(len(values), -1)


def put_leaves(tree: Any, rows: np.ndarray) -> None:
    """Replace the leaf values of a fitted tree in place."""
    if _is_histogram_tree(tree):
        tree.nodes["value"][tree.nodes["is_leaf"].astype(bool)] = rows[:, 0]
        return
    values = tree.tree_.value  # a view of the tree's memory
    leaves = tree.tree_.children_left == -1
    k = values[0].size
    if rows.shape[1] < k:  # two classes, of which only the second is stored
        rows = np.concatenate([1 - rows, rows], axis=1)
    values[leaves] = rows.reshape(values[leaves].shape)


def _is_histogram_tree(tree: Any) -> bool:
    return type(tree).__name__ == "TreePredictor" and hasattr(tree, "nodes")


# ------------------------------------------------------------------- bindings


@dataclass(frozen=True)
class Layout:
    """The conversion of an attribute to an initializer and back.

    ``forward`` takes the attribute. ``backward`` takes the initializer and the old attribute, for its shape.
    """

    forward: Callable[[np.ndarray], np.ndarray]
    backward: Callable[[np.ndarray, np.ndarray], np.ndarray]


def _inverse(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return 1.0 / np.asarray(x)


def log_odds(logarithm: np.ndarray) -> np.ndarray:
    """Return log(p / (1 - p)) for log p."""
    return logarithm - np.log(-np.expm1(logarithm))


def root(p: np.ndarray) -> np.ndarray:
    """Return the square root; that of 0 is positive, because the derivative of its square would be zero."""
    return np.sqrt(np.maximum(p, _FLOOR))


def _squared(w: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Return the squares; those of untrained values are the old values, including zeros."""
    w = w.reshape(old.shape)
    return np.where(root(old).astype(np.float32) == w.astype(np.float32), old, np.square(w))


def _reflected(w: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Return values that left [0, 1] reflected at its ends."""
    distance = np.abs(w.reshape(old.shape))
    return np.where(distance > 1, 2 - distance, distance)


LAYOUTS = {
    "same": Layout(lambda a: a, lambda w, a: w.reshape(a.shape)),
    "transpose": Layout(lambda a: a.T, lambda w, a: w.reshape(a.T.shape).T),
    "negative": Layout(lambda a: -a, lambda w, a: -w.reshape(a.shape)),
    "reciprocal": Layout(_inverse, lambda w, a: _inverse(w.reshape(a.shape))),
    # probabilities, of which some are zero: the root is trained
    "root": Layout(root, _squared),
    # probabilities that do not add up to one: a value that leaves [0, 1] is reflected at its end
    "reflected": Layout(lambda a: a, _reflected),
    # values that must stay positive: the logarithm is trained
    "log": Layout(np.log, lambda w, a: np.exp(w.reshape(a.shape))),
    # logarithms of probabilities, transposed: the log odds are trained
    "log odds": Layout(lambda a: log_odds(a.T), lambda w, a: -np.logaddexp(0, -w).reshape(a.T.shape).T),
    # two opposite scores: only the last row is kept
    "last row": Layout(lambda a: a[-1:], lambda w, a: np.concatenate([-w.reshape(1, -1), w.reshape(1, -1)])),
}


@dataclass(frozen=True)
class Binding:
    """A weight of a converted estimator, bound to its learned attribute.

    Attributes
    ----------
    name : str
        The initializer.
    path : tuple
        Names of attributes and positions in lists, from the estimator to the learned array:
        ``("named_steps", "mlp", "coefs_", 0)``. Empty if the initializer is derived from several attributes and cannot
        be written back.
    kind : str
        coefficient, intercept, mean, scale, components, support, leaf, ...
    shape : tuple of int
        The shape of the initializer.
    layout : str
        A key of :data:`LAYOUTS`.
    step : str
        The step of a pipeline that holds it, ``""`` for a single estimator.
    predictor : bool
        Whether it belongs to a predictor and so is trained by default, unlike the statistics of preprocessing.
    """

    name: str
    path: Path
    kind: str
    shape: tuple[int, ...]
    layout: str = "same"
    step: str = ""
    predictor: bool = True

    def read(self, estimator: BaseEstimator) -> np.ndarray:
        """Return the weight of `estimator`, float64, in the layout of the initializer."""
        found = LAYOUTS[self.layout].forward(np.asarray(get(estimator, self.path), dtype=np.float64))
        return np.ascontiguousarray(found).reshape(self.shape)

    def write(self, estimator: BaseEstimator, weight: np.ndarray) -> None:
        """Replace the learned attribute of `estimator` by `weight`, which has the layout of the initializer."""
        old = get(estimator, self.path)
        new = LAYOUTS[self.layout].backward(with_all_digits(weight, self.read(estimator)), np.asarray(old))
        put(estimator, self.path, _like(new, old))


def with_all_digits(weight: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Return a weight in float64; values that are the rounded old ones get their digits back.

    A steep function, such as that of isotonic calibration, shows the rounding.
    """
    rounded = old.astype(np.result_type(weight, np.float16))  # integers were not rounded
    return np.where(rounded == weight, old, weight)


def _like(new: np.ndarray, old: Any) -> Any:
    """Return `new` in the type of `old`: a float, a numpy scalar or an array, which stays floating-point."""
    if isinstance(old, np.ndarray):
        dtype = old.dtype if old.dtype.kind == "f" else new.dtype
        return np.array(new, dtype=dtype, order="F" if old.flags.f_contiguous else "C")
    return type(old)(new.item())


@dataclass(frozen=True)
class LeafBinding(Binding):
    """The leaf values of one or several trees.

    Attributes
    ----------
    trees : tuple of Path
        The trees, in the order of the initializer's rows.
    factor : float
        The initializer is this factor times the leaf values: a learning rate, one over the number of trees.
    """

    trees: tuple[Path, ...] = ()
    factor: float = 1.0

    def read(self, estimator: BaseEstimator) -> np.ndarray:
        """Return the leaf values, one row per leaf, tree by tree."""
        values = np.concatenate([leaf_values(get(estimator, path)) for path in self.trees])
        return np.ascontiguousarray(last_columns(values, self.shape)).reshape(self.shape) * self.factor

    def write(self, estimator: BaseEstimator, weight: np.ndarray) -> None:
        """Replace the leaf values in place."""
        rows = with_all_digits(weight, self.read(estimator)).reshape(self.shape[0], -1) / self.factor
        for path in self.trees:
            tree = get(estimator, path)
            n_leaves = len(leaf_values(tree))
            put_leaves(tree, rows[:n_leaves])
            rows = rows[n_leaves:]


@dataclass(frozen=True)
class ProbabilityBinding(LeafBinding):
    """The probabilities in the leaves of trees, parametrized by :func:`onnxtrain.rewrite.trees.probabilities_of`."""

    def read(self, estimator: BaseEstimator) -> np.ndarray:
        """Return the parameters of the probabilities, one row per leaf, tree by tree."""
        return to_free(np.concatenate([leaf_values(get(estimator, path)) for path in self.trees]))

    def write(self, estimator: BaseEstimator, weight: np.ndarray) -> None:
        """Replace the probabilities in place; untrained leaves keep their values, including zeros."""
        for path in self.trees:
            tree = get(estimator, path)
            old = leaf_values(tree)
            rows, weight = weight[: len(old)], weight[len(old) :]
            same = np.all(to_free(old).astype(np.float32) == rows.astype(np.float32), axis=1, keepdims=True)
            put_leaves(tree, np.where(same, old, to_simplex(rows)))


def last_columns(values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return the last columns of `values`, as many as an initializer of the given shape has."""
    k = shape[1] if len(shape) > 1 else 1
    return values[:, -k:].reshape(tuple(shape)) if values.shape[1] >= k else values


#: The modules of classifiers without decision_function whose graphs output probabilities that have no known scores.
_WITHOUT_SCORES = ("sklearn.calibration", "sklearn.gaussian_process", "sklearn.semi_supervised", "sklearn.tree")


def gives_probabilities_alone(estimator: Any) -> bool:
    """Whether a classifier has no scores after its fit: OutputCodeClassifier and others ask before it."""
    found = predictor_of(estimator)
    if isinstance(found, (BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier, VotingClassifier)):
        return True
    if type(found).__module__.startswith(("sklearn.model_selection", "sklearn.multiclass")):
        return gives_probabilities_alone(found.estimator)
    return type(found).__module__.startswith(_WITHOUT_SCORES) and not hasattr(found, "decision_function")
