"""A warning for a fitted estimator in a cross-validation, whose held-out rows it may know."""

from __future__ import annotations

import sys
from typing import Any

from sklearn.frozen import FrozenEstimator

from onnxtrain.errors import callers, warn

_THRESHOLDS = "sklearn.model_selection._classification_threshold"

#: Code that predicts the rows that each fold holds out: stacking, calibration, ``cross_val_score``, learning curves and
#: the choice of a threshold. A FixedThresholdClassifier holds out none.
_HOLD_OUT = (
    "sklearn.calibration.",
    "sklearn.ensemble._stacking.",
    "sklearn.model_selection._plot.",
    "sklearn.model_selection._validation.",
    f"{_THRESHOLDS}.TunedThresholdClassifierCV.",
)

#: Code between it and the copy of an estimator.
_BETWEEN = ("sklearn.base.", "sklearn.pipeline.", "sklearn.utils.", f"{_THRESHOLDS}.BaseThresholdClassifier.")


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
    of_sklearn = (name for name in callers(sys._getframe(1)) if name.startswith("sklearn."))
    holds_out = [name.startswith(_HOLD_OUT) for name in of_sklearn if not name.startswith(_BETWEEN)]
    return bool(holds_out) and all(holds_out)
