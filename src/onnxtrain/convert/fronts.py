"""The first steps of the members of an estimator, side by side in front of it, for tables of several types.

skl2onnx gives all members of a stack or of a calibrated classifier one array, so none could take columns by their name.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier, StackingRegressor
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import FeatureUnion, Pipeline

from onnxtrain.convert.learned import inside, n_columns_of
from onnxtrain.convert.selection import Columns

#: Classes whose members get one array from skl2onnx.
_OF_ONE_ARRAY = (
    *(CalibratedClassifierCV, MultiOutputClassifier, MultiOutputRegressor),
    *(OneVsRestClassifier, StackingClassifier, StackingRegressor),
)


def with_fronts_outside(estimator: BaseEstimator) -> BaseEstimator:
    """Return a copy in which members take columns of one matrix, which their first steps compute in front of them.

    .. code-block:: text

        Stacking(A -> ridge, B -> tree)  =  [A | B] -> Stacking(columns of A -> ridge, columns of B -> tree)

    The steps are those of the estimator, not copies.
    """
    outside = {id(found): _outside(found) for found in inside(estimator) if isinstance(found, _OF_ONE_ARRAY)}
    return copy.deepcopy(estimator, outside) if outside else estimator


def _outside(found: Any) -> BaseEstimator:
    """Return a pipeline of the first steps of all members and the estimator; the estimator if it has other members."""
    calibrated = getattr(found, "calibrated_classifiers_", ())
    members = [each.estimator for each in calibrated] or getattr(found, "estimators_", [])  # none if it is not fitted
    steps = [_steps(with_fronts_outside(member)) for member in members]
    if getattr(found, "passthrough", False) or min(map(len, steps), default=0) < 2:
        return found
    widths = [n_columns_of(last) for *_, (_, last) in steps]
    ends = np.cumsum(widths)
    taken = [Columns(np.arange(end - width, end), ends[-1]) for end, width in zip(ends, widths, strict=True)]
    pairs = zip(members, taken, steps, strict=True)
    tail = copy.deepcopy(found, {id(member): Pipeline([("columns", own), last]) for member, own, (*_, last) in pairs})
    union = FeatureUnion([(str(i), Pipeline(front)) for i, (*front, _) in enumerate(steps)])
    return Pipeline([("fronts", union), ("members", tail)])


def _steps(estimator: BaseEstimator) -> list[tuple[str, Any]]:
    """Return the steps of a pipeline, with a pipeline as last step expanded; none of another estimator."""
    if not isinstance(estimator, Pipeline):
        return []
    *front, last = estimator.steps
    return [*front, *(_steps(last[1]) or [last])]
