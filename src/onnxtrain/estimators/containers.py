"""Where a pipeline, a search or an ensemble holds an estimator of this package, for messages that ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.pipeline import Pipeline

#: The attributes that hold one fitted estimator, and those that hold several.
_ONE, _SEVERAL = ("best_estimator_", "regressor_", "estimator_"), ("estimators_", "calibrated_classifiers_")


def place_in(holder: Any) -> str | None:
    """Return the code of the estimator of this package inside an object, or None if there is none.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from onnxtrain import OrtGradientRegressor
    >>> place_in(make_pipeline(StandardScaler(), OrtGradientRegressor()))
    'pipeline[-1]'
    """
    code = "pipeline" if isinstance(holder, Pipeline) else "search" if hasattr(holder, "best_estimator_") else "model"
    code = "result" if isinstance(holder, Mapping) else code
    while (inner := _inside(holder)) is not None:
        step, holder = inner
        code += step
    return code if hasattr(type(holder), "get_trained_onnx") and code.endswith(("]", "_")) else None


def _inside(holder: Any) -> tuple[str, Any] | None:
    """Return the code of the next estimator inside a holder, and this estimator; None for another object."""
    if hasattr(type(holder), "get_trained_onnx"):
        return None
    if isinstance(holder, Pipeline) and holder.steps:
        return "[-1]", holder.steps[-1][1]
    if isinstance(holder, Mapping) and len(holder.get("estimator", ())):  # of cross_validate
        return "['estimator'][0]", holder["estimator"][0]
    for name in _SEVERAL:  # beside which estimator_ is not fitted
        members: Any = getattr(holder, name, ())
        if len(members):
            return f".{name}[0]", members[0]
    return next(((f".{name}", getattr(holder, name)) for name in _ONE if hasattr(holder, name)), None)
