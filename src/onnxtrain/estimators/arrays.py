"""Conversion of users' values to arrays: tensors of other libraries, rows of different lengths, exact casts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse

from onnxtrain.errors import DataError, ParameterError
from onnxtrain.registry import did_you_mean

#: The number of elements of a memory map that are examined at a time.
_PIECE = 2**24

#: float32 represents every integer up to this one.
_COUNTED = 2**24


def as_array(values: Any, name: str = "X") -> Any:
    """Return values as an ndarray; a sparse matrix or a frame stays one.

    Tensors that require a gradient are detached, and tensors on a GPU are copied to the CPU. Memory maps and tensors in
    CPU memory are not copied.

    Raises
    ------
    DataError
        numpy lacks the type of the tensor, such as bfloat16.
    """
    if isinstance(values, np.ndarray) or scipy.sparse.issparse(values) or hasattr(values, "iloc"):
        return values
    try:
        if hasattr(values, "detach"):
            values = values.detach().cpu()
        if hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
            return np.from_dlpack(values)
        return np.asarray(values)
    except (TypeError, BufferError, RuntimeError) as e:
        kind = getattr(values, "dtype", type(values).__name__)
        raise DataError(f"{name} of type {kind} cannot become a numpy array: {e}. Convert it to float32 first.") from e


def not_nullable(y: Any) -> Any:
    """Return y; nullable pandas integers or booleans without missing values become numpy integers or booleans.

    scikit-learn would convert them to floats, and predictions would be floats.
    """
    dtype = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    if dtype is None or dtype.kind not in "iub" or y.isna().any():
        return y
    return y.to_numpy(dtype)


def loses_digits(values: Any) -> bool:
    """Whether values are float64, or integers of which float32 rounds some."""
    if values.dtype.kind in "iu":
        return bool(values.size) and max(-int(values.min()), int(values.max())) > _COUNTED
    return values.dtype.kind == "f" and values.dtype.itemsize > 4


def as_padding(pad: Mapping[str, float] | None, types: Mapping[str, str]) -> dict[str, float]:
    """Return `pad` with its values as int or float, each of the type of its input.

    Raises
    ------
    ParameterError
        `pad` names an unknown input, or a value is not a number or not of the type of the input.
    """
    for name, fill in (pad or {}).items():
        if name not in types:
            raise ParameterError(f"pad contains {name!r}, which is not an input for rows. {did_you_mean(name, types)}")
        dtype = np.dtype(types[name])
        if dtype.kind in "OSU":
            raise ParameterError(f"pad contains {name!r}, an input of strings, but rows are padded with a number.")
        if not isinstance(fill, Real):
            raise ParameterError(f"The values of pad must be numbers, got {{{name!r}: {fill!r}}}.")
        if not _holds(dtype, fill):
            raise ParameterError(
                f"The value of pad for {name!r} must be an integer in the range of {dtype}, the type of this input, "
                f"got {fill!r}. Values are not rounded or clipped. A mask tells the model which entries to ignore."
            )
    return {name: int(fill) if float(fill).is_integer() else float(fill) for name, fill in (pad or {}).items()}


def _holds(dtype: np.dtype, value: Real) -> bool:
    """Whether a type can represent a value; a floating-point type may round it."""
    if dtype.kind == "f":
        return True
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(low <= float(value) <= high) and float(value).is_integer()


def as_column(name: str, values: Any, pad: Mapping[str, float], length: int | None) -> Any:
    """Return the values of one input as an array or a CSR matrix; rows of different lengths are padded.

    Parameters
    ----------
    name : str
    values : array-like
        A list, or an array or series of objects, may hold rows of different lengths.
    pad : mapping of str to float
        The padding values, by the name of the input; 0 in masks.
    length : int or None
        The declared length of a row, to which rows are padded.

    Raises
    ------
    DataError
        Rows have different lengths, and `pad` does not name the input.
    """
    if scipy.sparse.issparse(values):
        return values.tocsr()
    found = f"X[{name!r}]"
    try:
        array = values if isinstance(values, np.ndarray) else np.asarray(as_array(values, found))
    except ValueError as e:  # rows of different lengths
        return _padded(name, [np.asarray(as_array(row, found)) for row in values], pad, length, cause=e)
    if array.dtype == object and array.ndim == 1 and len(array) and _is_row(array[0]):
        rows = [np.asarray(as_array(row, found)) for row in array]
        if len({row.shape for row in rows}) > 1:
            return _padded(name, rows, pad, length)
        array = np.stack(rows)
    if length is not None and array.ndim > 1 and array.shape[1] < length and _fill(name, pad) is not None:
        return _padded(name, list(array), pad, length)
    return array


def _is_row(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or len(getattr(value, "shape", ())) > 0


def _fill(name: str, pad: Mapping[str, float]) -> float | None:
    return pad.get(name, 0 if pad and "mask" in name.lower() else None)


def _padded(
    name: str,
    rows: Sequence[np.ndarray],
    pad: Mapping[str, float],
    length: int | None,
    cause: Exception | None = None,
) -> np.ndarray:
    fill = _fill(name, pad)
    if any(row.ndim == 0 or row.dtype == object for row in rows) or len({row.shape[1:] for row in rows}) > 1:
        raise DataError(
            f"The rows of X[{name!r}] may differ only in length, along their first axis, but have different shapes."
        ) from cause
    lengths = [len(row) for row in rows]
    if fill is None:
        example = ", ".join(f"{key!r}: {value!r}" for key, value in {**pad, name: 0}.items())
        raise DataError(
            f"The rows of X[{name!r}] have different lengths, from {min(lengths)} to {max(lengths)}. Set "
            f"pad={{{example}}} to pad them to the longest; attention masks are padded with 0."
        ) from cause
    longest = max([*lengths, length or 0])
    dtype = np.result_type(*{row.dtype for row in rows if len(row)} or {np.dtype(np.int64)})
    if dtype.kind != "f":  # integers in the rows of a floating-point input
        dtype = np.result_type(dtype, np.min_scalar_type(fill) if isinstance(fill, int) else np.float64)
    padded = np.full((len(rows), longest, *rows[0].shape[1:]), fill, dtype)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded


def cast(values: Any, dtype: np.dtype, name: str) -> Any:
    """Return an array in a type of the model; casts to integers and booleans must be exact.

    A memory map and a CSR matrix keep their type; their batches are cast later.

    Raises
    ------
    DataError
        A value is not an integer, is too large for the type, or is not a number.
    """
    if values.dtype == dtype:
        return values
    if dtype.kind in "OSU":
        if values.dtype.kind not in "OSU":
            raise DataError(f"{name} must contain strings, but has dtype {values.dtype}.")
        return values.astype(object)
    if values.dtype.kind not in "fiub":
        return cast(_numbers(values, dtype, name), dtype, name)
    exact = dtype.kind == "f" or np.can_cast(values.dtype, dtype, "safe")
    if scipy.sparse.issparse(values):
        return values if exact else cast(values.toarray(), dtype, name)
    if not isinstance(values, np.memmap):
        return values.astype(dtype) if exact else _cast_exactly(values, dtype, name)
    size = max(1, _PIECE // max(1, values[:1].size))
    for start in () if exact else range(0, len(values), size):
        _cast_exactly(values[start : start + size], dtype, name, start)
    return values


def _numbers(values: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """Return an array of objects or strings as an array of a numeric type."""
    try:
        array = np.array(values.tolist()) if values.dtype == object else values
        return array if array.dtype.kind in "fiub" else values.astype(np.float64 if dtype.kind == "f" else np.int64)
    except (TypeError, ValueError) as e:
        remedy = (
            " Convert text with the tokenizer of the model." if dtype.kind in "iu" and "invalid lit" in str(e) else ""
        )
        said = re.sub(r"np\.str_\((.*)\)", r"\1", str(e))
        raise DataError(
            f"{name} has dtype {values.dtype}, which cannot be converted to {dtype}: {said}.{remedy}"
        ) from e


def _cast_exactly(values: np.ndarray, dtype: np.dtype, name: str, first: int = 0) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        converted = values.astype(dtype)
    different = np.argwhere(values != converted)
    if len(different):
        place = tuple(different[0])
        raise DataError(
            f"{name} must contain {dtype} values, got {values[place]} in row {first + place[0]}. Values are not "
            "rounded or clipped."
        )
    return converted
