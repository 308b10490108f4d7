"""Validation of sample weights."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, timedelta
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight

from onnxtrain.errors import DataError, warn
from onnxtrain.estimators.protocols import ArrayLike
from onnxtrain.estimators.remedies import as_data_error
from onnxtrain.estimators.validation import is_missing

NO_WEIGHT = "Sample weights must contain at least one non-zero number. Give the rows that count a weight of 1."

#: Let scikit-learn's check accept weights that are all zero, as it does before 1.7: other parts may have nonzero ones.
_ZERO_WEIGHTS = dict.fromkeys({"allow_all_zero_weights"} & {*inspect.signature(_check_sample_weight).parameters}, True)


def _check_kind_of_weights(sample_weight: Any) -> None:
    """Raise a DataError for sample weights that are no array, such as a name or another argument of ``fit``."""
    if isinstance(sample_weight, (str, Mapping)):
        column = isinstance(sample_weight, str) and sample_weight != "balanced"
        remedy = f"Pass the column, X[{sample_weight!r:.80}]." if column else ""
        raise DataError(
            f"sample_weight must contain one number per row, got {sample_weight!r:.80}. "
            f"{remedy or 'To weight classes, set class_weight of OrtGradientClassifier.'}"
        )
    if isinstance(sample_weight, tuple) and any(map(np.ndim, sample_weight)):
        raise DataError(
            "sample_weight must contain one number per row, got a tuple of arrays. Pass a validation set by name: "
            "fit(X, y, X_val=..., y_val=...)."
        )
    if hasattr(sample_weight, "__next__") or callable(sample_weight):
        remedy = " Pass a function as callback=..." if callable(sample_weight) else ""
        raise DataError(
            f"sample_weight must be an array with one number per row, got {type(sample_weight).__name__}.{remedy}"
        )


def _check_shape_of_weights(given: np.ndarray, y: Any) -> None:
    """Check that there is one sample weight per row of the targets."""
    if given.ndim > 2:
        raise DataError(
            f"sample_weight must contain one number per row, got an array of shape {given.shape}. To weight classes of "
            "positions, set class_weight; to leave out positions, give them the label ignore_index."
        )
    if given.ndim == 2:
        remedy = "Pass one weight per row, such as numpy.mean(sample_weight, axis=1). To leave out positions of a row, "
        remedy += "give them the label ignore_index, or NaN for numbers."
        if given.shape[1] == 1:
            remedy = "Pass numpy.ravel(sample_weight)."
        elif len(given) != np.shape(y)[0]:
            remedy = "Pass a validation set by name: fit(X, y, X_val=..., y_val=...)."
        elif np.shape(y) == given.shape and np.asarray(y).dtype.kind == "f":
            remedy = "Pass one weight per row. To weight targets, pass a loss with weights: loss=lambda op, y_true, "
            remedy += f"y_pred: ((y_true - y_pred) ** 2 * numpy.ones({given.shape[1]})).sum(axis=1, keepdims=True)."
        raise DataError(f"sample_weight must contain one number per row, got shape {given.shape}. {remedy}")


def _check_values_of_weights(given: np.ndarray) -> None:
    """Raise a DataError if a sample weight is negative, NaN or infinite."""
    if given.dtype.kind in "if" and (given < 0).any():  # the message begins with that of scikit-learn
        row = int(np.argmax(given.ravel() < 0))
        raise DataError(
            f"Negative values in data passed to `sample_weight`: {given.ravel()[row]} in row {row}. Set the weight of "
            "a row to 0 to leave it out."
        )
    objects = [is_missing(w) for w in given.ravel()] if given.dtype == object else []
    missing = np.flatnonzero(np.isnan(given) if given.dtype.kind == "f" else objects)
    if missing.size:
        raise DataError(
            f"Input sample_weight contains NaN in {missing.size} of its {given.size} rows, first in row {missing[0]}. "
            "Set the weight of a row to 0 to leave it out."
        )
    if given.dtype.kind == "f" and (infinite := np.flatnonzero(np.isinf(given))).size:
        raise DataError(
            f"Input sample_weight contains infinity in {infinite.size} of its {given.size} rows, first in row "
            f"{infinite[0]}. Pass finite weights: after 1 / v, for example, 1 / numpy.maximum(v, 1e-6)."
        )


def _is_per_class(given: np.ndarray, y: Any) -> bool:
    """Whether weights are as many as the classes of targets, as PyTorch takes them."""
    column = isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind in "biuU"
    return column and given.ndim == 1 and 1 < len(given) < len(y) and len(given) == len(np.unique(y))


@as_data_error()
def check_sample_weight(
    sample_weight: ArrayLike | None, y: Any, dtype: str, *, keep: bool = False
) -> np.ndarray | None:
    """Return the sample weights, (n,), or None if all are equal; with `keep`, always the weights.

    `y` are the targets, or other values with as many rows.

    Raises
    ------
    DataError
        A weight is negative, infinite or NaN, their number is wrong, or all are zero and `keep` is false.
    """
    if sample_weight is None:
        return None
    _check_kind_of_weights(sample_weight)
    given = np.asarray(sample_weight)
    _check_shape_of_weights(given, y)
    kinds = (str, bytes, complex, date, timedelta, np.datetime64, np.timedelta64)
    others = [w for w in given.ravel() if isinstance(w, kinds)] if given.dtype.kind in "USOcMm" else []
    if others:
        remedy = "such as 0.5 for half the weight"
        with suppress(TypeError, ValueError):
            [float(w) for w in given.ravel().tolist()]  # a complex number is none
            remedy = "numpy.asarray(sample_weight).astype(float)"
        raise DataError(
            f"sample_weight must contain one number per row, but contains {str(others[0])!r:.40}. Pass numbers, "
            f"{remedy}."
        )
    _check_values_of_weights(given)
    if _is_per_class(given, y):
        raise DataError(
            f"sample_weight.shape == {given.shape}, expected ({np.shape(y)[0]},)! Pass one weight per row of X, or one "
            "per class as class_weight=dict(zip(numpy.unique(y), weights)) of OrtGradientClassifier."
        )
    weights = _check_sample_weight(sample_weight, y, dtype=dtype, ensure_non_negative=True, **_ZERO_WEIGHTS)
    if keep:
        return weights
    if not given.ndim:
        warn(
            f"sample_weight={sample_weight!r:.40} is one number for all rows, which has no effect. The third argument "
            "of fit is sample_weight; the number of epochs is max_iter, a parameter of the estimator."
        )
    if not weights.any():
        raise DataError(NO_WEIGHT)
    return None if np.all(weights == weights[0]) else weights


def rounded_weights(weights: np.ndarray, dtype: str | np.dtype) -> np.ndarray:
    """Return sample weights rounded to a floating-point type.

    Raises
    ------
    DataError
        Their sum would be infinite, or the largest weight loses digits.
    """
    limits, largest = np.finfo(dtype), weights.max(initial=0.0)
    if largest and not limits.tiny <= largest <= limits.max / len(weights):
        raise DataError(
            f"The largest sample weight is {largest:.3g}, outside the range of {limits.dtype}. Divide all weights by a "
            "constant; only their ratios matter."
        )
    return np.ascontiguousarray(weights, dtype=dtype)
