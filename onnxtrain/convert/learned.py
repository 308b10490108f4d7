"""The learned arrays of a fitted estimator: every floating-point array in it, with its path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline

#: From an estimator to something inside it: names of attributes, keys, positions in lists.
Path: TypeAlias = "tuple[str | int, ...]"

#: Attributes that hold the fitted steps of an estimator made of steps.
_STEPS = {Pipeline: "named_steps", ColumnTransformer: "named_transformers_", FeatureUnion: "named_transformers"}

#: Attributes of the training that prediction does not use.
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

#: The kind of an attribute, in one word.
KINDS = {
    "coef_": "coefficient", "coefs_": "coefficient", "intercept_": "intercept", "intercepts_": "intercept",
    "mean_": "mean", "center_": "mean", "means_": "mean", "theta_": "mean", "min_": "mean",
    "_x_mean": "mean", "scale_": "scale", "_x_std": "scale", "components_": "components", "support_vectors_": "support",
    "dual_coef_": "dual coefficient", "_dual_coef_": "dual coefficient", "cluster_centers_": "center",
    "_intercept_": "intercept", "offset_": "intercept", "statistics_": "statistic",
}  # fmt: skip


@dataclass(frozen=True)
class Learned:
    """One learned array: its path, its value, the estimator that holds it."""

    path: Path
    value: np.ndarray
    owner: Any

    @property
    def attribute(self) -> str:
        """The name of the attribute, without a position in it."""
        return next(str(key) for key in reversed(self.path) if isinstance(key, str))

    @property
    def kind(self) -> str:
        """Its kind, in one word."""
        return KINDS.get(self.attribute, self.attribute.strip("_"))

    @property
    def step(self) -> str:
        """The name of the step of the outer pipeline that holds it."""
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


def learned(estimator: Any, path: Path = ()) -> Iterator[Learned]:
    """Return every learned array of an estimator and of those inside it, in the order they were set."""
    for kind, attribute in _STEPS.items():
        if isinstance(estimator, kind):
            for name, step in getattr(estimator, attribute).items():
                yield from learned(step, (*path, attribute, name))
            return
    if not isinstance(estimator, BaseEstimator):
        return
    given = set(estimator.get_params(deep=False))
    fitted = {k: v for k, v in vars(estimator).items() if k not in given and k not in _MEMORIES}
    if not any(k.endswith("_") for k in fitted):  # a frozen one: its estimator is fitted
        fitted = {k: v for k, v in vars(estimator).items() if isinstance(v, BaseEstimator)}
    if "_dual_coef_" in fitted:  # those that libsvm predicts with; the public ones may have another sign
        fitted = {k: v for k, v in fitted.items() if k not in ("dual_coef_", "intercept_", "offset_")}
    for name, value in sorted(fitted.items(), key=lambda item: item[0].startswith("_")):
        yield from _arrays(value, (*path, name), estimator)


def _arrays(value: Any, path: Path, owner: Any) -> Iterator[Learned]:
    if isinstance(value, BaseEstimator):
        yield from learned(value, path)
    elif type(value).__name__ in ("_CalibratedClassifier",):
        for name, item in vars(value).items():
            yield from _arrays(item, (*path, name), owner)
    elif isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object):
        for i, item in enumerate(value):
            yield from _arrays(item, (*path, i), owner)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _arrays(item, (*path, key), owner)
    elif isinstance(value, (float, np.floating)) or (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
        yield Learned(path, np.asarray(value, dtype=np.float64), owner)


def get(estimator: Any, path: Path) -> Any:
    """Return the object at the end of a path of attributes, keys and positions."""
    for key in path:
        estimator = _step(estimator, key)
    return estimator


def _step(holder: Any, key: str | int) -> Any:
    if isinstance(key, int) or isinstance(holder, dict):
        return holder[key]
    return getattr(holder, key)


def put(estimator: Any, path: Path, value: Any) -> None:
    """Replace the object at the end of a path."""
    holder, key = get(estimator, path[:-1]), path[-1]
    if isinstance(key, int) or isinstance(holder, dict):
        holder[key] = value
    else:
        setattr(holder, key, value)


def find_trees(estimator: Any, path: Path = ()) -> Iterator[Path]:
    """Return the path of every tree in an estimator, in order."""
    if hasattr(estimator, "tree_") or _is_histogram_tree(estimator):
        yield path
    elif isinstance(estimator, BaseEstimator):
        for name, value in vars(estimator).items():
            if name.endswith("_") or name in (
                "_predictors",
                "steps",
                "transformer_list",
                "estimator",
                "calibrated_classifiers_",
            ):
                yield from find_trees(value, (*path, name))
    elif isinstance(estimator, (list, tuple)) or (isinstance(estimator, np.ndarray) and estimator.dtype == object):
        for i, item in enumerate(estimator):
            yield from find_trees(item, (*path, i))
    elif type(estimator).__name__ == "_CalibratedClassifier":
        yield from find_trees(estimator.estimator, (*path, "estimator"))


def leaf_values(tree: Any) -> np.ndarray:
    """Return the values (leaves, k) of a fitted tree, in the order of its nodes."""
    if _is_histogram_tree(tree):
        return tree.nodes["value"][tree.nodes["is_leaf"].astype(bool)].reshape(-1, 1)
    values = tree.tree_.value[tree.tree_.children_left == -1]
    return values.reshape(len(values), -1)


def put_leaves(tree: Any, rows: np.ndarray) -> None:
    """Replace the values of the leaves of a fitted tree, in place."""
    if _is_histogram_tree(tree):
        tree.nodes["value"][tree.nodes["is_leaf"].astype(bool)] = rows[:, 0]
        return
    values = tree.tree_.value  # a view of the tree's memory
    leaves = tree.tree_.children_left == -1
    k = values[0].size
    if rows.shape[1] < k:  # probabilities of two classes, of which the second is kept
        rows = np.concatenate([1 - rows, rows], axis=1)
    values[leaves] = rows.reshape(values[leaves].shape)


def _is_histogram_tree(tree: Any) -> bool:
    return type(tree).__name__ == "TreePredictor" and hasattr(tree, "nodes")
