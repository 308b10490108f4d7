"""A warning for a fitted estimator in a cross-validation, whose held-out rows it may know."""

from __future__ import annotations

import sys
from typing import Any

from sklearn.frozen import FrozenEstimator

from onnxtrain.errors import modules_of_callers, warn

#: Modules that predict the rows that each fold holds out: stacking, calibration, ``cross_val_score`` and learning
#: curves. That of thresholds also has the FixedThresholdClassifier, which holds out none.
_HOLD_OUT = {
    "sklearn.calibration",
    "sklearn.ensemble._stacking",
    "sklearn.model_selection._plot",
    "sklearn.model_selection._validation",
}

#: Modules between them and the copy of an estimator.
_BETWEEN = ("sklearn.base", "sklearn.pipeline", "sklearn.utils")


def warn_of_seen_folds(model: Any) -> None:
    """Warn that a fitted estimator is copied for a fold.

    A search is not warned of: it compares candidates that start from the same weights. A FrozenEstimator says that the
    fit is meant to stay.
    """
    if not isinstance(model, FrozenEstimator) and _is_cross_validated():
        warn(
            f"{type(model).__name__} is fitted and stays so in each fold. If it was fitted on these rows, it knows "
            "those that a fold holds out, so it predicts them too well: pass it unfitted, sklearn.base.clone(model), "
            "which each fold fits anew. If it was fitted on other rows, pass sklearn.frozen.FrozenEstimator(model)."
        )


def _is_cross_validated() -> bool:
    """Whether a function that holds out rows called, and no search of scikit-learn around it."""
    modules = set(modules_of_callers(sys._getframe(1)))
    of_sklearn = {name for name in modules if name.startswith("sklearn.") and not name.startswith(_BETWEEN)}
    return bool(of_sklearn) and of_sklearn <= _HOLD_OUT
