"""Rows in another scale than those on which the scaler of a fitted pipeline was fitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from onnxtrain.convert.columns import some_rows
from onnxtrain.errors import warn
from onnxtrain.estimators.protocols import is_fitted, is_frame

#: The attribute of a scaler that has the spread of the columns in its fit, and the function that computes it.
_SPREAD: dict[type, tuple[str, Callable[..., np.ndarray]]] = {
    MinMaxScaler: ("data_range_", np.ptp),
    StandardScaler: ("scale_", np.std),
}

#: The least factor between the spreads of all columns that is another unit, such as a forgotten division by 255.
_OTHER_UNIT = 50.0

#: The largest mean, and the largest deviation of the standard deviation from 1, of columns that were standardized.
_STANDARD = 0.2

#: The least number of rows and of columns that show a scale, and the number of rows that are looked at.
_ROWS, _COLUMNS, _SAMPLE = 20, 2, 1000


def warn_of_scale(model: Any, X: Any) -> None:
    """Warn of rows in another unit, or already standardized, for a fitted pipeline that begins with a scaler."""
    scaler = model.steps[0][1] if isinstance(model, Pipeline) and is_fitted(model) else None
    if type(scaler) not in _SPREAD or not (isinstance(X, np.ndarray) or is_frame(X)) or X.shape[0] < _ROWS:
        return
    attribute, spread_of = _SPREAD[type(scaler)]
    rows, before = np.asarray(some_rows(X, _SAMPLE)), getattr(scaler, attribute)
    if rows.dtype.kind not in "fiu" or before is None or rows.shape[1:] != np.shape(before):
        return
    with np.errstate(all="ignore"):
        spread, mean = spread_of(rows, axis=0), rows.mean(axis=0)
        varies = (spread > 0) & (before > 0)
        ratios = spread[varies] / before[varies]
    if len(ratios) < _COLUMNS or not np.isfinite(ratios).all():
        return
    name = type(scaler).__name__
    if ratios.min() > _OTHER_UNIT or ratios.max() < 1 / _OTHER_UNIT:
        warn(
            f"The columns of X vary {np.median(ratios):.3g} times as much as those on which the {name} of the pipeline "
            "was fitted, as in another unit. Scale X as in that fit, for example X / 255 for pixels from 0 to 255."
        )
    elif isinstance(scaler, StandardScaler) and _is_standard(mean[varies], spread[varies]):
        means = np.zeros(len(ratios)) if scaler.mean_ is None else scaler.mean_[varies]
        if not _is_standard(means, before[varies]) and np.all(np.abs(means) + np.abs(before[varies] - 1) > _STANDARD):
            warn(
                "The columns of X have means near 0 and standard deviations near 1, as after a StandardScaler, but the "
                f"pipeline begins with one that was fitted on other values, with means such as {means[0]:.3g}. Pass "
                "the rows as they were before scaling, or a pipeline without the scaler."
            )


def _is_standard(mean: np.ndarray, spread: np.ndarray) -> bool:
    return bool(np.all(np.abs(mean) < _STANDARD) and np.all(np.abs(spread - 1) < _STANDARD))
