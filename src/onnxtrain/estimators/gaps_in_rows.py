"""Messages about missing values in rows, with their columns and the code that fills them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxtrain.convert.columns import text_columns
from onnxtrain.estimators.protocols import is_frame

_FOR_MISSING_NUMBERS = (
    ". Put an imputer before the step of the pipeline that takes these columns, such as "
    "(make_pipeline(SimpleImputer(), StandardScaler()), [{!r}]) in make_column_transformer, or fill them: "
    "X.fillna({{{!r}: 0.0}})."
)
_OF_TEXTS_BESIDE = " OneHotEncoder takes missing texts; for another step, fill them: X.fillna({{{!r}: 'missing'}})."
_FOR_MISSING_TEXTS = (
    ". Fill missing texts, for example X.fillna({{{!r}: 'missing'}}), and missing numbers by an imputer in the "
    "pipeline. Its file then contains the imputer."
)
_FOR_MISSING_DATES = (
    ". Fill missing dates by one of the column, X.fillna({{{!r}: {!r}}}), put an imputer behind the step that reads "
    "them, or leave these rows out."
)

#: The beginning of a date in a string, such as 2016-07-02 or 1/31/2002.
_DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\b")

_FOR_NO_VALUE = (
    ". It has no value at all. Fill it, X.fillna({{{0!r}: 0.0}}).astype({{{0!r}: float}}), or pass a model with an "
    "imputer, make_pipeline(SimpleImputer(), model), and X.astype({{{0!r}: float}})."
)
_FOR_NA = (
    ". X contains pandas.NA in {}, which scikit-learn does not take beside strings. Replace it by NaN: "
    "X.astype({{{}}}).fillna({{{}}})."
)

_FOR_MISSING_TRUTHS = (
    ". Convert True and False to numbers, X.astype({{{!r}: float}}), and fill the missing ones by an imputer in the "
    "pipeline, make_pipeline(SimpleImputer(strategy='most_frequent'), model)."
)

#: The messages about pandas.NA in a column of strings.
MEETS_NA = re.compile(r"boolean value of NA is ambiguous|Got \['NAType'")


def with_gaps(X: Any, remedy: str, *, by_column: bool) -> str:
    """Return where rows have missing values, and the remedy; `remedy` is that of a matrix."""
    if columns := _columns_with_gaps(X):
        return f" in {', '.join(map(repr, columns))}{_for_gaps(X, columns, by_column=by_column) or remedy}"
    if place := place_of(np.isnan, X):
        return f" in {place[1]}{remedy}"
    if _has_no_gaps(X):
        return (
            " after a step of the pipeline. X itself has no missing values; the step may take, for example, the "
            "logarithm of a negative number, or overflow for large values. Change it, or put a SimpleImputer behind it."
        )
    return remedy


def _for_gaps(X: Any, columns: list[Any], *, by_column: bool) -> str:
    """Return the remedy for missing values in columns of a frame; empty for a numeric frame."""
    every = text_columns(X)
    texts = [name for name in every if name in columns]
    if not texts:
        return _FOR_MISSING_NUMBERS.format(columns[0], columns[0]) if every or by_column else ""
    known = X[texts[0]].dropna()
    if not len(known):
        return _FOR_NO_VALUE.format(texts[0])
    if isinstance(first := known.iloc[0], str) and _DATE.match(first):
        return _FOR_MISSING_DATES.format(texts[0], first)
    if known.map(type).eq(bool).all():
        return _FOR_MISSING_TRUTHS.format(texts[0])
    if numbers := [name for name in columns if name not in texts]:
        return _FOR_MISSING_NUMBERS.format(numbers[0], numbers[0]) + _OF_TEXTS_BESIDE.format(texts[0])
    return _FOR_MISSING_TEXTS.format(texts[0])


def _columns_with_gaps(X: Any) -> list[Any]:
    """Return the names of up to five columns of a frame with missing values; none for an array."""
    gaps = [name for name in X.columns if X[name].isna().any()] if is_frame(X) and X.columns.is_unique else []
    return [*gaps[:5], *["..."] * (len(gaps) > 5)]


def for_na(message: str, X: Any) -> str:
    """Return the remedy for pandas.NA in columns of strings or booleans of a frame; empty if there is none."""
    if not MEETS_NA.search(message) or not is_frame(X) or not X.columns.is_unique:
        return ""
    columns = [name for name in X.columns if name in text_columns(X) or str(X[name].dtype) == "boolean"]
    first = {name: next(iter(X[name][X[name].isna()]), None) for name in columns}
    names = [name for name, value in first.items() if type(value).__name__ == "NAType"]
    types, values = (", ".join(f"{name!r}: {v}" for name in names) for v in ("object", "numpy.nan"))
    return _FOR_NA.format(", ".join(map(repr, names)), types, values) if names else ""


def _has_no_gaps(X: Any) -> bool:
    """Whether rows, a frame or a matrix of floats, are certain to have no missing values."""
    if is_frame(X):
        return X.columns.is_unique and not _columns_with_gaps(X)
    return isinstance(X, np.ndarray) and X.dtype.kind == "f" and not np.isnan(X).any()


def of_gaps_in_texts(message: str, X: object) -> str:
    """Return the message about NaN in an array of strings, which scikit-learn reports without the name of the array."""
    if not message.startswith("Input contains NaN") or not isinstance(X, np.ndarray) or X.dtype != object:
        return ""
    if not any(isinstance(value, float) and value != value for value in X.flat):
        return ""
    return (
        "X contains NaN among its strings. Replace it by a category of the model, such as '': "
        "numpy.where(pandas.isna(X), '', X)."
    )


def of_dictionaries(message: str, X: Any) -> str:
    """Return the message about NaN in dictionaries, one per row, for a hasher or a vectorizer of them; else nothing."""
    if "X contains NaN" not in message or not isinstance(X, (list, tuple)):
        return ""
    rows = ((i, key, value) for i, row in enumerate(X) if isinstance(row, Mapping) for key, value in row.items())
    row, key, _ = next((place for place in rows if place[2] != place[2]), (0, None, None))
    if key is None:
        return ""
    return (
        f"X[{row}][{key!r}] is NaN. Leave missing entries out of the dictionaries: "
        "X = [{key: value for key, value in row.items() if value == value} for row in X]."
    )


def place_of(test: Callable[[np.ndarray], np.ndarray], X: Any) -> tuple[float, str] | None:
    """Return the first value of a numeric table for which a test holds, and its row and column; None for others."""
    if is_frame(X):
        X = X[[name for name, dtype in X.dtypes.items() if dtype.kind in "fiub"]]
    table: Any = X.tocoo() if hasattr(X, "tocoo") else np.asarray(X) if is_frame(X) else X
    if not hasattr(table, "dtype") or table.dtype.kind not in "fO" or len(table.shape) != 2:
        return None
    try:
        values = np.asarray(table.data if hasattr(X, "tocoo") else table, dtype=np.float64)
    except (TypeError, ValueError):  # texts among objects
        return None
    found = np.argwhere(test(values))
    if not len(found):
        return None
    first = tuple(found[0])
    row, column = (table.row[first], table.col[first]) if hasattr(X, "tocoo") else first
    return float(values[first]), f"row {row}, column {repr(X.columns[column]) if is_frame(X) else column}"
