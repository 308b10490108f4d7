"""Columns with names: their order as in fit, and the missing values that the estimator takes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from onnxtrain.errors import DataError
from onnxtrain.estimators.protocols import ArrayLike, Estimator, Features, Frame, is_frame
from onnxtrain.estimators.remedies import as_data_error, check_no_dates
from onnxtrain.estimators.validation import check_even, check_lengths


def in_order(X: Frame, names: Sequence[str], estimator: Estimator | None) -> Frame:
    """Return a frame with its columns in the order of `names`, if scikit-learn accepts any order.

    A ColumnTransformer selects its columns by name, other estimators by position, so the fitted `estimator` is tried on
    the first row. Columns without which it predicts the same, as those that a ColumnTransformer drops, are NaN where
    they are missing. Without an estimator, the model is ONNX with one input per column and accepts any order.

    Raises
    ------
    DataError
        The estimator refuses the columns in their order.
    """
    if list(X.columns) == list(names):
        return X
    missing = not all(name in X.columns for name in names)
    if missing and estimator is not None and _may_lack(estimator, X, names):
        return X.reindex(columns=list(names))
    if estimator is not None:
        with as_data_error(X), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if missing:
                validate_data(estimator, X, reset=False, skip_check_array=True)
            _try(estimator, X.iloc[:1])
    return X if missing else X[list(names)]


def _may_lack(estimator: Estimator, X: Frame, names: Sequence[str]) -> bool:
    """Whether an estimator predicts the same for a row without some columns of fit as for one where they are NaN."""
    row = X.iloc[:1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.array_equal(_predict(estimator, row), _predict(estimator, row.reindex(columns=list(names))))
    except Exception:  # of a step of the user, or of scikit-learn, which the caller raises again
        return False


def _try(estimator: Estimator, rows: Features) -> None:
    """Let an estimator predict, so that it raises its own error for rows that it refuses."""
    try:
        _predict(estimator, rows)
    except TypeError as e:
        names = _missing_texts(estimator, rows) if _OF_TEXTS in str(e) and is_frame(rows) else []
        if "DateTime64DType" in str(e):
            check_no_dates(rows)
        if not names:
            raise
        types = ", ".join(f"{name!r}: object" for name in names)
        raise DataError(
            f"X has the type {rows[names[0]].dtype} in {', '.join(map(repr, names))}, where fit got texts. If all "
            f"texts are missing, pass X.astype({{{types}}})."
        ) from e


def _predict(estimator: Estimator, rows: Features) -> Any:
    return getattr(estimator, "predict" if hasattr(estimator, "predict") else "transform")(rows)


#: The error of numpy, which an encoder of texts raises for a column of floats.
_OF_TEXTS = "ufunc 'isnan' not supported"


def _missing_texts(estimator: Estimator, rows: Any) -> list[Any]:
    """Return the columns with only NaN, of dtype float in pandas, that an estimator encodes as strings."""
    names = [name for name, dtype in rows.dtypes.items() if dtype.kind == "f" and rows[name].isna().all()]
    return [name for name in names if _needs_text(estimator, rows.astype({n: object for n in names if n != name}))]


def _needs_text(estimator: Estimator, rows: Frame) -> bool:
    """Whether an encoder of texts refuses a column of floats."""
    try:
        _predict(estimator, rows)
    except (TypeError, ValueError) as e:
        return _OF_TEXTS in str(e)
    return False


def takes_nan(estimator: Estimator, X: Any) -> bool:
    """Whether a matrix has NaN, and an estimator predicts for such rows; the tags of meta-estimators do not tell."""
    with as_data_error(X):  # lists of different lengths
        rows = np.asarray(X)
    gaps = np.isnan(rows) if rows.dtype.kind == "f" and rows.ndim == 2 else np.zeros((0, 0), bool)
    if not gaps.any():
        return False
    first = np.unique(gaps.argmax(axis=0)[gaps.any(axis=0)])  # of each column
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _try(estimator, rows[first])
    except (TypeError, ValueError):
        return False
    return True


def check_named(
    estimator: Estimator, X: ArrayLike, y: ArrayLike | None, original: Estimator | None, *, reset: bool
) -> tuple[Any, Any]:
    """Return the rows unchanged, after checking their names and number, and y as an array.

    Raises
    ------
    DataError
        X and y have different lengths, or y holds NaN.
    """
    if not reset and is_frame(X) and hasattr(estimator, "feature_names_in_"):
        X = in_order(X, estimator.feature_names_in_, original)
    with as_data_error(None if isinstance(X, Mapping) else X):
        if not isinstance(X, Mapping):
            validate_data(estimator, X, reset=reset, skip_check_array=True)
        if is_frame(X):
            _check_no_gaps(X)
        check_consistent_length(*(X.values() if isinstance(X, Mapping) else [X]))
        if y is not None:
            check_even(y)
            name, first = next(iter(X.items())) if isinstance(X, Mapping) else ("", X)
            check_lengths(first, y, f"X[{name!r}]" if name else "X")
            y = check_array(y, accept_sparse="csr", ensure_2d=False, dtype=None, input_name="y")
    return X, y


#: The second remedy for missing integers, of no use where scikit-learn runs the steps.
DIVIDED_BY_GAPS = (
    " Or fit on rows some of which lack these values, so that scikit-learn runs the steps that fill them in."
)


def _check_no_gaps(X: Frame) -> None:
    """Raise a DataError for integer or boolean columns with missing values, which numpy arrays cannot represent."""
    gaps = [name for name, dtype in X.dtypes.items() if dtype.kind in "iub" and X[name].isna().to_numpy().any()]
    if gaps:
        types = ", ".join(f"{name!r}: float" for name in gaps)
        raise DataError(
            f"Missing values in the integer or boolean columns {', '.join(map(str, gaps))}: ONNX has them only for "
            f"floats. Use X.astype({{{types}}}) in fit and in predict.{DIVIDED_BY_GAPS}"
        )


def check_not_finite(X: Frame, estimator: Estimator, taken: set[Any]) -> None:
    """Show an estimator a row for each column with NaN or infinity: a graph takes them where the estimator raises.

    What it accepts is added to `taken`, and is not shown again: a forest takes 12 ms to predict a row.
    """
    dtypes = tuple(X.dtypes)
    rows: dict[Any, int] = {}
    for i, dtype in enumerate(dtypes):
        if dtype.kind != "f":
            continue
        values = X.iloc[:, i].to_numpy(dtype=np.float64, na_value=np.nan)
        if not np.isfinite(values.sum()):
            for kind in (np.isnan, np.isinf):
                odd = kind(values)
                if odd.any() and (dtypes, i, kind.__name__) not in taken:
                    rows[dtypes, i, kind.__name__] = int(odd.argmax())
    if rows:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _try(estimator, X.iloc[sorted(set(rows.values()))])
        taken.update(rows)


def without_imputed(X: Frame, estimator: Estimator) -> Frame:
    """Return rows that an estimator refuses without the columns whose missing values it takes."""
    gaps = [name for name in X.columns if X[name].isna().any()] if X.columns.is_unique else []
    known, taken = X.iloc[:1].copy(), []
    for name in gaps:
        found = X[name].dropna().iloc[:1]
        known[name] = found.set_axis(known.index) if len(found) else 0.0
    for name in gaps:
        row = known.assign(**{name: X[name][X[name].isna()].iloc[:1].set_axis(known.index)})
        with suppress(TypeError, ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _try(estimator, row)
            taken.append(name)
    return X[[name for name in X.columns if name not in taken]]
