"""Division of a fitted estimator into first steps, which scikit-learn runs, and an estimator that is trained.

A pipeline is divided before the first trained step. If an estimator contains pipelines, the first steps of all these
pipelines are run side by side, and each inner estimator takes its part of their columns::

    Voting(A -> ridge, B -> tree)  =  [A | B] -> Voting(columns of A -> ridge, columns of B -> tree)

ONNX's tree operators compare a feature with one value, but histogram gradient boosting also splits by categories, which
tests membership in a set. So scikit-learn's encoder runs before the graph, and each such split gets its own column,
which is 1 if the category goes to the right.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer

from onnxtrain.convert.learned import Path, get, holds, inside, is_idle, n_columns_of, paths, thawed
from onnxtrain.convert.selection import Columns
from onnxtrain.convert.thresholds import HISTOGRAMS
from onnxtrain.errors import ConversionError
from onnxtrain.estimators.protocols import Estimator, allows_nan
from onnxtrain.estimators.split_ranks import SplitRanks, on_values

if TYPE_CHECKING:
    from typing_extensions import TypeIs

#: Attributes that hold fitted estimators whose input is the input of the holder.
_MEMBERS = ("estimators_", "calibrated_classifiers_", "best_estimator_", "regressor_")

#: Classes whose attribute `estimator_` has the same input as the holder.
_AROUND_ONE = ("FixedThresholdClassifier", "TunedThresholdClassifierCV", "SelfTrainingClassifier")

#: Attributes that define the columns that the holder takes.
_OF_COLUMNS = ("n_features_in_", "feature_names_in_", "estimators_features_")

#: A step that refuses NaN and returns other rows unchanged, for columns beside those of members that allow NaN.
_CHECK = ("no missing values", FunctionTransformer(validate=True, accept_sparse=True))


class FirstSteps(Pipeline):
    """The fitted first steps of a pipeline; the last of them may be a transformer without fitted attributes.

    scikit-learn takes such a transformer as unfitted, and refuses the rows of a pipeline that ends in one.
    """

    def __sklearn_is_fitted__(self) -> bool:
        return True


class Fronts(FeatureUnion):
    """The first steps of several estimators, side by side."""


@dataclass(frozen=True)
class Division:
    """An estimator in two parts: ``whole`` on the rows equals ``tail`` on the columns that ``front`` returns.

    Attributes
    ----------
    whole : fitted estimator
    front : Pipeline
    tail : fitted estimator
    inside : bool
        Whether the members of the last step are divided as well.
    """

    whole: Estimator = field(repr=False)
    front: Pipeline
    tail: Estimator
    inside: bool

    @property
    def path(self) -> str:
        """The path of step names to the first step that is trained."""
        first = _flat(self.whole)[-1 if self.inside else len(self.front.steps)][1]
        return _path(self.whole, first)

    @property
    def trained(self) -> list[str]:
        """The names of the steps of the tail; nested steps with the names of their parents in front."""
        name, last = _flat(self.whole)[-1]
        if not self.inside:
            return [name for name, _ in _flat(self.whole)[len(self.front.steps) :]]
        parts = {} if splits_categories(last) else _parts(last)
        return [*(f"{name}.{_name(path)}.{step}" for path, part in parts.items() for step in part.trained), name]

    @property
    def allows_nan(self) -> bool:
        """Whether the columns of the tail may hold NaN, because the tail or one of its members allows it."""
        last = _flat(self.whole)[-1][1]
        parts = _parts(last) if self.inside and not splits_categories(last) else {}
        return allows_nan(self.tail) or any(part.allows_nan for part in parts.values())

    def around(self, trained: Estimator) -> Any:
        """Return a copy of the whole with the trained tail in place."""
        new = [step for _, step in _flat(trained)]
        old = [step for _, step in _flat(self.whole)[-len(new) :]]
        if self.inside:
            new[-1] = _with_fronts(old[-1], new[-1])
        return on_values(copy.deepcopy(self.whole, {id(a): b for a, b in zip(old, new, strict=True)}))


def is_divisible(estimator: object) -> TypeIs[BaseEstimator]:
    """Whether an estimator is a pipeline of steps and a predictor, holds pipelines, or may split on categories."""
    estimator = thawed(estimator)
    last = _flat(estimator)[-1][1]
    if isinstance(estimator, Pipeline) and len(_flat(estimator)) > 1:
        return hasattr(last, "fit")
    return _holds_pipelines(estimator) or holds(last, HISTOGRAMS)


def divisions(whole: Estimator, weights_to_train: Any = None) -> list[Division]:
    """Return the possible divisions of a fitted estimator, the largest tail first.

    Parameters
    ----------
    whole : fitted estimator
    weights_to_train : str, sequence of str or LoRA, optional
        Steps whose weights are named here belong to the tail.
    """
    steps = _flat(whole)
    first = _first_named([name for name, _ in steps], weights_to_train)
    found = []
    if first > 0:
        tail = steps[first][1] if first == len(steps) - 1 else Pipeline(steps[first:])
        found.append(Division(whole, FirstSteps(steps[:first]), tail, inside=False))
    inner = _fronts_of(steps[-1][1]) if first == len(steps) - 1 else None
    if inner is not None:
        fronts, tail = inner
        found.append(Division(whole, FirstSteps([*steps[:-1], (steps[-1][0], fronts)]), tail, inside=True))
    return found


def why_indivisible(estimator: Estimator) -> str:
    """Return why pipelines inside an estimator cannot be divided, and the remedy."""
    name = type(estimator).__name__
    return (
        f"{name} passes other columns than those of X to its inner pipelines, so their first steps cannot be run "
        f"beforehand. Put these steps in front of it: make_pipeline(steps, {name}(...))."
    )


def refusal(whole: Estimator, refused: Exception | None) -> Exception:
    """Return the error for an estimator without a part that can be trained, made from the last error."""
    last = _flat(whole)[-1][1]
    if refused is not None and (not _holds_pipelines(last) or _members(last)):
        return refused
    error = ConversionError(
        " ".join([f"{_path(whole, last)}: {why_indivisible(last)}", *([str(refused)] if refused else [])])
    )
    error.__cause__ = refused
    return error


def _path(whole: Estimator, step: Any) -> str:
    """Return the path of step names to a step."""
    return next(path for path, found in paths(whole) if found is step)


def steps_of(front: Pipeline, prefix: str = "") -> list[str]:
    """Return the names of the first steps; nested steps with the names of their parents in front."""
    found = []
    for name, step in front.steps:
        if isinstance(step, Fronts):
            for member, inner in step.transformer_list:
                found += steps_of(inner, f"{prefix}{name}.{member}.")
        elif not isinstance(step, Columns) and name != _CHECK[0]:
            found.append(prefix + name)
    return found


def _flat(estimator: Estimator) -> list[tuple[str, Any]]:
    """Return the steps of a pipeline, with a pipeline as last step expanded; another estimator is one step.

    Samplers, which scikit-learn's pipelines do not have, are left out.
    """
    estimator = thawed(estimator)
    if not isinstance(estimator, Pipeline):
        return [(type(estimator).__name__.lower(), estimator)]
    *front, (name, last) = estimator.steps
    front = [(each, step) for each, step in front if not hasattr(step, "fit_resample") or not is_idle(step)]
    return [*front, *(_flat(last) if isinstance(last, Pipeline) or thawed(last) is not last else [(name, last)])]


def _holds(estimator: object) -> bool:
    """Whether an estimator that is not a pipeline contains pipelines, or trees that split on categories or ranks."""
    splits = any(splits_categories(found) or isinstance(found, SplitRanks) for found in inside(estimator))
    return splits or _holds_pipelines(estimator)


def _holds_pipelines(estimator: object) -> bool:
    """Whether an estimator that is not a pipeline has pipelines among its parameters."""
    if not isinstance(estimator, BaseEstimator) or isinstance(estimator, Pipeline):
        return False
    return any(isinstance(value, Pipeline) for value in estimator.get_params().values())


def _first_named(names: Sequence[str], weights_to_train: Any) -> int:
    """Return the index of the first step whose weights are named, or of the last step if none is named."""
    chosen = getattr(weights_to_train, "weights", weights_to_train)  # of LoRA
    words = [chosen] if isinstance(chosen, str) else list(chosen or ())
    wanted = [str(word).partition(".")[0] for word in words if not str(word).startswith("-")]
    return next(
        (i for i, name in enumerate(names) if any(w not in ("*", "all") and fnmatchcase(name, w) for w in wanted)),
        len(names) - 1,
    )


# ------------------------------------------------------------------ pipelines inside


def _members(estimator: Estimator) -> list[Path]:
    """Return the paths to the fitted estimators inside an estimator whose input is the input of the estimator."""
    if _holds_fitted(estimator):
        return [("estimator",)]
    if type(estimator).__name__ in _AROUND_ONE:
        return [("estimator_",)]
    if hasattr(estimator, "order_"):  # the members of a chain also see predictions
        return []
    found: list[Path] = []
    for name in _MEMBERS:
        held = vars(estimator).get(name)
        if isinstance(held, BaseEstimator):
            found.append((name,))
        elif isinstance(held, (list, tuple)):
            found += [(name, i, *(_members(m)[0] if _holds_fitted(m) else ())) for i, m in enumerate(held)]
    return found


def _holds_fitted(estimator: Estimator) -> bool:
    """Whether the attribute `estimator` is fitted and has the same input as its holder."""
    return thawed(estimator) is not estimator or type(estimator).__name__ == "_CalibratedClassifier"


def _parts(estimator: Estimator) -> dict[Path, Division]:
    """Return the divided members of an estimator, without those that do not know their number of columns.

    OneVsRestClassifier has such members for classes without rows.
    """
    found = {}
    for path in _members(estimator):
        member = get(estimator, path)
        steps = _flat(member)
        deepest = (divisions(member) or [Division(member, FirstSteps(steps[:-1]), steps[-1][1], inside=False)])[-1]
        if hasattr(deepest.tail, "n_features_in_"):
            found[path] = deepest
    return found


def _fronts_of(estimator: Estimator) -> tuple[Fronts | CategorySplits, Estimator] | None:
    """Return the first steps of all members, and a copy of the estimator whose members take their columns."""
    if splits_categories(estimator):
        return without_categories(estimator)
    parts = _parts(estimator) if _members(estimator) and _holds(estimator) else {}
    if not parts:
        return None
    ends = np.cumsum([n_columns_of(part.tail) for part in parts.values()])
    n_passed_on = _n_passed_on(estimator)
    total = int(ends[-1]) + n_passed_on
    mixed = any(part.allows_nan for part in parts.values())
    fronts: list[tuple[str, Any]] = []
    changed: dict[int, Any] = {}
    for i, ((path, part), end) in enumerate(zip(parts.items(), ends, strict=True)):
        chosen = Columns(np.arange(end - n_columns_of(part.tail), end), total)
        changed[id(get(estimator, path))] = Pipeline([("columns", chosen), (_flat(part.whole)[-1][0], part.tail)])
        check = [_CHECK] if mixed and not part.allows_nan else []
        fronts.append((_name(path), FirstSteps([*_select(estimator, i, part), *part.front.steps, *check])))
    if n_passed_on:
        final = estimator.final_estimator_
        check = [_CHECK] if mixed and not allows_nan(final) else []
        fronts.append(("rows", FirstSteps([("columns", Columns(np.arange(n_passed_on), n_passed_on)), *check])))
        n_seen = final.n_features_in_ + total - n_passed_on  # predictions, columns of the members, passed-on rows
        kept = np.delete(np.arange(n_seen), np.s_[final.n_features_in_ - n_passed_on : n_seen - n_passed_on])
        changed[id(final)] = Pipeline([("columns", Columns(kept, n_seen)), ("final", final)])
    tail = copy.deepcopy(estimator, changed)
    vars(tail).pop("feature_names_in_", None)
    for name, value in {"n_features_in_": total, "estimators_features_": [np.arange(total)] * len(parts)}.items():
        if name in vars(tail):
            setattr(tail, name, value)
    return Fronts(fronts), tail


def _n_passed_on(estimator: Estimator) -> int:
    """Return the number of columns of the rows that the final estimator of a stack sees besides the predictions."""
    if not getattr(estimator, "passthrough", False):
        return 0
    return int(estimator.final_estimator_.n_features_in_ - sum(estimator._n_feature_outs))


def _name(path: Path) -> str:
    """Return the path to a member as the names of weights spell it."""
    return "_".join(str(key).strip("_") for key in path)


def _select(estimator: Estimator, i: int, part: Division) -> list[tuple[str, Any]]:
    """Return a step that gives member i of an estimator its columns, or no step if it sees the rows unchanged."""
    columns = getattr(estimator, "estimators_features_", None)  # of bagging
    without_names = hasattr(estimator, "feature_names_in_") and not hasattr(part.whole, "feature_names_in_")
    if columns is None and part.front.steps and not without_names:
        return []
    n_features = getattr(estimator, "n_features_in_", part.tail.n_features_in_)
    return [("columns", Columns(np.arange(n_features) if columns is None else columns[i], n_features))]


def _with_fronts(estimator: Estimator, trained: Estimator) -> Any:
    """Return a copy of a trained tail of :func:`_fronts_of` whose members have their first steps again."""
    if splits_categories(estimator):
        return with_categories(estimator, trained)
    whole = {id(get(trained, p)): part.around(get(trained, p)[-1]) for p, part in _parts(estimator).items()}
    if _n_passed_on(estimator):
        whole[id(trained.final_estimator_)] = trained.final_estimator_[-1]
    copied = copy.deepcopy(trained, whole)
    for name in _OF_COLUMNS:
        if name in vars(estimator):
            setattr(copied, name, copy.deepcopy(vars(estimator)[name]))
    return copied


# ---------------------------------------------------------- categorical splits


#: The attributes that define the encoding of rows.
_OF_CATEGORIES = (
    *("categorical_features", "is_categorical_", "_is_categorical_remapped", "_preprocessor"),
    *("n_features_in_", "feature_names_in_"),
)

#: The code of a missing or unknown category; the codes of categories are smaller.
_MISSING = 256


def splits_categories(estimator: object) -> bool:
    """Whether an estimator is histogram gradient boosting that was fitted on categories."""
    return isinstance(estimator, HISTOGRAMS) and getattr(estimator, "is_categorical_", None) is not None


class CategorySplits(TransformerMixin, BaseEstimator):
    """Transform rows to the encoded columns, followed by one column for each split by categories.

    Parameters
    ----------
    encoder : transformer
        A fitted encoder of categories.
    features : ndarray of int, shape (n_splits,)
        The column that each split tests.
    right : ndarray of bool, shape (n_splits, 257)
        Whether each code goes to the right; the last entry is for missing values.
    """

    def __init__(self, encoder: Estimator, features: np.ndarray, right: np.ndarray):
        self.encoder = encoder
        self.features = features
        self.right = right

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any = None) -> Self:
        """Return self: the splits are given."""
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the columns, float64 (n, n_features + n_splits)."""
        encoded = self.encoder.transform(X)
        codes = np.nan_to_num(encoded[:, np.unique(self.features)], nan=_MISSING).astype(int)
        place = np.searchsorted(np.unique(self.features), self.features)
        sides = [right[codes[:, i]] for i, right in zip(place, self.right, strict=True)]
        return np.column_stack([encoded, *sides])


def without_categories(estimator: Estimator) -> tuple[CategorySplits, Estimator]:
    """Return the transformer to 0/1 columns of a fitted estimator, and a copy of the estimator that splits on them."""
    tail = copy.deepcopy(estimator)
    n_encoded = len(estimator.is_categorical_)
    features, right = [], []
    for tree in _trees(tail):
        for node in tree.nodes[(tree.nodes["is_categorical"] == 1) & (tree.nodes["is_leaf"] == 0)]:
            left = np.unpackbits(tree.raw_left_cat_bitsets[node["bitset_idx"]].view(np.uint8), bitorder="little")
            features.append(node["feature_idx"])
            right.append(~np.append(left, node["missing_go_to_left"]).astype(bool))
    first = n_encoded
    for tree in _trees(tail):
        chosen = (tree.nodes["is_categorical"] == 1) & (tree.nodes["is_leaf"] == 0)
        tree.nodes["feature_idx"][chosen] = np.arange(first, first + chosen.sum())
        tree.nodes["num_threshold"][chosen] = 0.5
        tree.nodes["is_categorical"][chosen] = 0
        first += int(chosen.sum())
    vars(tail).pop("feature_names_in_", None)
    tail.set_params(categorical_features=None)
    tail.is_categorical_ = tail._is_categorical_remapped = tail._preprocessor = None
    tail.n_features_in_ = first
    table = np.array(right, bool).reshape(-1, _MISSING + 1)
    return CategorySplits(estimator._preprocessor, np.array(features, int), table), tail


def with_categories(estimator: Estimator, trained: Estimator) -> Any:
    """Return a copy of a trained tail of :func:`without_categories` that splits on categories again."""
    copied = copy.deepcopy(trained)
    for tree, other in zip(_trees(copied), _trees(estimator), strict=True):
        values = tree.nodes["value"]
        tree.nodes = other.nodes.copy()
        tree.nodes["value"] = values
    for name in _OF_CATEGORIES:
        if name in vars(estimator):
            setattr(copied, name, copy.deepcopy(getattr(estimator, name)))
    return copied


def _trees(estimator: Estimator) -> Iterator[Any]:
    for iteration in estimator._predictors:
        yield from iteration
