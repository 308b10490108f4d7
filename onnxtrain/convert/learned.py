"""What a fitted estimator has learned: every array of real numbers in it, with its path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline

from onnxtrain.convert.binding import Path

#: Attributes that hold the fitted steps of an estimator made of steps.
_STEPS = {Pipeline: "named_steps", ColumnTransformer: "named_transformers_", FeatureUnion: "named_transformers"}

#: What training left behind and prediction does not use.
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

#: What an attribute is, in one word.
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
        """What it is, in one word."""
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
    if not any(k.endswith("_") for k in fitted):  # a frozen one: what it was given is fitted
        fitted = {k: v for k, v in vars(estimator).items() if isinstance(v, BaseEstimator)}
    if "_dual_coef_" in fitted:  # what libsvm predicts with; the public ones may have another sign
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
