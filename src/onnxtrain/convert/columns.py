"""The inputs of a converted graph, and columns by name or by position."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Iterator, Mapping
from decimal import Decimal
from numbers import Number, Real
from types import NoneType
from typing import Any, TypeVar

import numpy as np
import onnx
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline

T = TypeVar("T")


def by_column(X: Any) -> bool:
    """Whether each column is a separate input, as for a DataFrame that is not a numeric matrix."""
    return hasattr(X, "columns") and any(dtype.kind not in "fiub" for dtype in X.dtypes)


def text_columns(X: Any) -> list[Any]:
    """Return the names of the columns with strings or categories, in some rows at least."""
    if not by_column(X):
        return []
    others = {name: column for name, column in X.items() if column.dtype.kind not in "fiub"}
    return [name for name, column in others.items() if not _days(name, column) and not _holds_numbers(column)]


def mixed_columns(X: Any) -> list[Any]:
    """Return the names of the columns of dtype object with both strings and other values."""
    kinds = {name: {isinstance(value, str) for value in X[name].dropna()} for name in text_columns(X)}
    return [name for name, of_strings in kinds.items() if len(of_strings) > 1]


def code_of_mixed(name: Any) -> str:
    """Return the code, for a message, that makes strings of all values of a column except missing ones."""
    return f"Make strings of all: X[{name!r}] = X[{name!r}].map(str, na_action='ignore')."


def number_columns(X: Any) -> list[Any]:
    """Return the names of the columns of objects or decimals whose known values are all ints, floats or decimals."""
    return [name for name, column in X.items() if _holds_numbers(column)] if by_column(X) else []


def _holds_numbers(column: Any) -> bool:
    known = column[column.notna()] if column.dtype == object or isinstance(_first(column), Decimal) else ()
    numbers = (isinstance(value, (Real, Decimal)) and not isinstance(value, bool) for value in known)
    return len(known) > 0 and all(numbers)


def date_columns(X: Any) -> dict[Any, str]:
    """Return the columns with dates or durations, each with the expression that makes it numeric."""
    if not by_column(X):
        return {}
    found = {name: _days(name, column) for name, column in X.items()}
    return {name: expression for name, expression in found.items() if expression}


def _days(name: Any, column: Any) -> str:
    """Return the expression that makes a column of dates or durations numeric; empty for other columns.

    The expression has a fixed origin; an origin computed from the rows would differ in ``predict``.
    """
    kind, found = column.dtype.kind, f"X[{name!r}]"
    if kind == "O":
        first = _first(column)
        if isinstance(first, dt.timedelta):
            return f"pandas.to_timedelta({found}).dt.total_seconds()"
        if type(first).__name__ == "Period":
            return f"(pandas.PeriodIndex({found}).to_timestamp() - pandas.Timestamp('2020-01-01')).days"
        if not isinstance(first, dt.date):
            return ""
        if getattr(first, "tzinfo", None) is not None:
            return f"(pandas.to_datetime({found}, utc=True) - pandas.Timestamp('2020-01-01', tz='UTC')).dt.days"
        found = f"pandas.to_datetime({found}.astype(str))"
    elif kind == "m":
        return f"{found}.dt.total_seconds()"
    elif kind != "M":
        return ""
    dtype = getattr(column.dtype, "pyarrow_dtype", column.dtype)
    zone = ", tz='UTC'" if getattr(dtype, "tz", None) is not None else ""
    return f"({found} - pandas.Timestamp('2020-01-01'{zone})).dt.days"


def object_columns(X: Any) -> dict[Any, str]:
    """Return the columns that hold no numeric values, strings or dates, each with the type of its first value."""
    if not by_column(X):
        return {}
    first = {name: _first(column) for name, column in X.items() if not _days(name, column)}
    known = (str, bytes, Number, np.generic, NoneType)
    return {name: type(value).__name__ for name, value in first.items() if not isinstance(value, known)}


def columns_of(kind: type[T], X: Any) -> dict[Any, T]:
    """Return the columns whose first value has a type, each with this value."""
    first = {name: _first(column) for name, column in X.items()} if by_column(X) else {}
    return {name: value for name, value in first.items() if isinstance(value, kind)}


def types_of_columns(X: Any) -> set[str]:
    """Return the names of the types of the first values of non-numeric columns."""
    if not by_column(X):
        return set()
    return {type(_first(column)).__name__ for _, column in X.items() if column.dtype.kind not in "fiub"}


def _first(column: Any) -> Any:
    """Return the first value of a column that is not missing, or None."""
    return next(iter(column[column.notna()][:1]), None)


def input_types(X: Any) -> list[tuple[str, Any]]:
    """Return the names and types of the inputs in skl2onnx's form."""
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

    if not by_column(X):
        return [("X", FloatTensorType([None, np.shape(X)[1]]))]
    kinds = {"i": Int64TensorType, "u": Int64TensorType, "b": Int64TensorType, "f": FloatTensorType}
    return [(str(name), kinds.get(X[name].dtype.kind, StringTensorType)([None, 1])) for name in X.columns]


def feeds_of(onx: onnx.ModelProto, X: Any) -> Mapping[str, np.ndarray]:
    """Return the values of the inputs of a converted graph for the rows `X`, by name."""
    inputs = list(onx.graph.input)
    if len(inputs) == 1 and not by_column(X):
        return {inputs[0].name: _typed(X, inputs[0])}
    names = {str(name): name for name in X.columns}  # numbers, in a file without a header
    return {i.name: _typed(X[names[i.name]], i).reshape(-1, 1) for i in inputs}


def _typed(x: Any, entry: onnx.ValueInfoProto) -> np.ndarray:
    """Return values in the type of an input."""
    x = x.toarray() if hasattr(x, "toarray") else x
    dtype = onnx.helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)
    return _as_floats(x, dtype) if dtype.kind == "f" else np.asarray(x, dtype=dtype)


def _as_floats(X: Any, dtype: Any) -> np.ndarray:
    """Return a numeric matrix as floats; the missing values of a frame of pandas, which may be NA, become NaN."""
    return X.to_numpy(dtype=dtype, na_value=np.nan) if hasattr(X, "iloc") else np.asarray(X, dtype=dtype)


def as_float64(X: Any) -> Any:
    """Return the rows as scikit-learn takes them; a numeric matrix becomes float64."""
    if hasattr(X, "toarray"):
        return X.astype(np.float64)
    return X if by_column(X) else _as_floats(X, np.float64)


def as_float32(X: Any) -> Any:
    """Return the rows rounded as a float32 graph sees them; a numeric matrix becomes float64."""
    if hasattr(X, "toarray"):
        return X.astype(np.float32).astype(np.float64)
    if not by_column(X):
        return _as_floats(X, np.float32).astype(np.float64)
    floats = {name: dtype for name, dtype in X.dtypes.items() if dtype.kind == "f"}
    return X.astype(dict.fromkeys(floats, np.float32)).astype(floats)


def rounding_code(X: Any) -> str:
    """Return the code that rounds the rows `X` to float32, for a message: in a frame with strings only the floats."""
    if not by_column(X):
        return "X.astype(numpy.float32)"
    floats = ", ".join(f"{str(name)!r}: 'float32'" for name, dtype in X.dtypes.items() if dtype.kind == "f")
    return f"X.astype({{{floats}}})"


def positional(estimator: BaseEstimator, X: Any) -> BaseEstimator:
    """Return an estimator that selects columns by position: a copy if it selects by name and `X` is a matrix."""
    if by_column(X) or not any(_named(found) for found in on_raw_columns(estimator)):
        return estimator
    changed = copy.deepcopy(estimator)
    for found in filter(_named, on_raw_columns(changed)):
        positions = {name: i for i, name in enumerate(found.feature_names_in_)}
        for attribute in ("transformers_", "transformers"):
            items = [(n, t, _positions(columns, positions)) for n, t, columns in getattr(found, attribute)]
            setattr(found, attribute, items)
        found._columns = [_positions(columns, positions) for columns in found._columns]
        found._transformer_to_input_indices = {
            name: np.asarray(columns, dtype=int) for name, columns in found._transformer_to_input_indices.items()
        }
        del found.feature_names_in_
    return changed


def _positions(columns: Any, positions: Mapping[str, int]) -> Any:
    if isinstance(columns, str):
        return positions[columns]
    if isinstance(columns, (list, tuple, np.ndarray)) and len(columns) and isinstance(columns[0], str):
        return [positions[c] for c in columns]
    if isinstance(columns, slice) and isinstance(columns.start or columns.stop, str):
        start, stop = positions.get(columns.start, 0), positions.get(columns.stop, len(positions) - 1)
        return slice(start, stop + 1)  # as in pandas, the last name is inside
    return columns


def _named(found: ColumnTransformer) -> bool:
    return hasattr(found, "feature_names_in_")


def on_raw_columns(estimator: BaseEstimator) -> Iterator[ColumnTransformer]:
    """Return the ColumnTransformers whose input is X itself."""
    if isinstance(estimator, ColumnTransformer):
        yield estimator
    elif isinstance(estimator, Pipeline):
        yield from on_raw_columns(estimator.steps[0][1])
    elif isinstance(estimator, FeatureUnion):
        for _, item in estimator.transformer_list:
            yield from on_raw_columns(item)
    elif isinstance(estimator, BaseEstimator):
        for name in ("best_estimator_", "regressor_", "estimator"):
            if hasattr(estimator, name):
                yield from on_raw_columns(getattr(estimator, name))
        for item in getattr(estimator, "estimators_", ()):
            yield from on_raw_columns(item)
