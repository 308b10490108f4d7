"""The partitions of Dask collections (rows of X with their labels and sample weights), and lazy results for rows."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
import scipy.sparse
from dask.utils import is_dataframe_like, is_series_like

from onnxtrain.errors import ArgumentTypeError, DataError
from onnxtrain.rows.lazy import as_collection, unmasked

#: A partition: X, y, sample_weight; the last two may be None.
Part = tuple[Any, Any, Any]


def is_lazy(X: object) -> bool:
    """Whether X is a Dask array, frame or series."""
    return isinstance(X, da.Array) or (dask.is_dask_collection(X) and (is_dataframe_like(X) or is_series_like(X)))


def partitions(X: Any, y: Any = None, sample_weight: Any = None, *, suffix: str = "") -> list[Any]:
    """Return the partitions of collections as delayed tuples ``(X, y, sample_weight)``.

    Parameters
    ----------
    X : dask array of shape (n_samples, ...) or dask DataFrame
        The rows; chunks along other axes are merged.
    y, sample_weight : dask array or dask Series, optional
        Collections with the partitions of X; an array with known chunks is rechunked to them.
    suffix : str
        The end of the names of the arguments in messages, "_val" for a validation set.

    Raises
    ------
    ArgumentTypeError
        One of the arguments is not a Dask collection.
    DataError
        The partitions of y or sample_weight differ from those of X.
    """
    columns = {"X": X, "y": y, "sample_weight": sample_weight}
    for name, column in columns.items():
        if column is not None and not is_lazy(column):
            raise ArgumentTypeError(
                f"{name}{suffix} must be a Dask array or frame, got {type(column).__name__}. "
                f"{_in_partitions(column, f'{name}{suffix}') if suffix else _elsewhere(name, column, X, y)}"
            )
        if column is not None and not column.ndim:
            raise DataError(f"{name}{suffix} is a single value, without an axis of rows. Pass one value per row.")
    found = {name: _delayed(column, X) for name, column in columns.items() if column is not None}
    n_parts = len(found["X"])
    for name, column in columns.items():
        lengths = [sum(x.chunks[0]) for x in (X, column) if isinstance(x, da.Array) and known(x.chunks[0])]
        if len(lengths) == 2 and lengths[0] != lengths[1]:
            raise DataError(
                f"X{suffix} has {lengths[0]} rows, but {name}{suffix} has {lengths[1]}. Pass one for each row."
            )
    for name, parts in found.items():
        if len(parts) != n_parts:
            raise DataError(
                f"{name}{suffix} must have the same partitions as X{suffix}, but has {len(parts)}, and X{suffix} has "
                f"{n_parts}. Arrays with known chunks are aligned: call compute_chunk_sizes() of an array, or "
                "to_dask_array(lengths=True) of a frame."
            )
    rest = [found.get(name, [None] * n_parts) for name in ("y", "sample_weight")]
    return [dask.delayed(_part)(*part) for part in zip(found["X"], *rest, strict=True)]


def _elsewhere(name: str, column: Any, X: Any, y: Any) -> str:
    """Return the remedy for rows that are no collection: a column of X, a path, Delayed, rows in memory."""
    if remedy := as_collection(name, column):
        return remedy
    names = [column] if isinstance(column, str) else column
    if isinstance(names, list) and all(isinstance(name, str) and name in getattr(X, "columns", ()) for name in names):
        return f"Pass X.drop(columns={column!r}) and X[{column!r}]."
    if isinstance(column, (str, os.PathLike)):
        read = "read_parquet" if os.fspath(column).endswith(".parquet") else "read_csv"
        return f"Read the files, frame = dask.dataframe.{read}({os.fspath(column)!r}), and pass columns of the frame."
    if is_lazy(X) and hasattr(X, "divisions"):  # an array has other partitions than a frame
        return (
            f"Pass a column of the frame of X, or arrays: X.to_dask_array(lengths=True), dask.array.from_array({name})."
        )
    before = " If a step of a pipeline made them, pass the pipeline as the model: OrtGradientRegressor(pipeline)."
    return (
        "For rows in the memory of one process, use the estimators of onnxtrain itself, or dask.array.from_array to "
        f"make a Dask array.{before if name == 'X' and is_lazy(y) else ''}"
    )


def _in_partitions(column: Any, name: str) -> str:
    """Return the remedy for validation rows or targets in memory, beside rows of Dask."""
    if hasattr(column, "iloc"):
        return f"Pass dask.dataframe.from_pandas({name}, npartitions=1)."
    return f"Pass dask.array.from_array({name})."


def _part(X: Any, y: Any, sample_weight: Any) -> Part:
    lengths = {name: len_of(x) for name, x in (("y", y), ("sample_weight", sample_weight)) if x is not None}
    for name, length in lengths.items():
        if length != len_of(X):
            raise DataError(
                f"A partition of {name} has {length} rows, but that of X has {len_of(X)}. "
                f"Select the rows of {name} and of X alike, before they are cut into partitions."
            )
    for name, values in (("X", X), ("y", y), ("sample_weight", sample_weight)):
        unmasked(values, name, of_dask=True)
    return X, y.toarray() if scipy.sparse.issparse(y) else y, sample_weight


def len_of(x: Any) -> int:
    """Return the number of rows of an array or a sparse matrix."""
    return int(x.shape[0])


def _delayed(column: Any, X: Any) -> list[Any]:
    if not isinstance(column, da.Array):
        return list(column.to_delayed())
    of_rows = X.chunks[0] if isinstance(X, da.Array) else column.chunks[0]
    if known(of_rows) and known(column.chunks[0]) and sum(of_rows) == sum(column.chunks[0]):
        column = column.rechunk({0: of_rows})
    column = column.rechunk(dict.fromkeys(range(1, column.ndim), -1))
    return list(column.to_delayed().ravel())


def known(chunks: Sequence[float]) -> bool:
    """Whether the lengths of chunks are known."""
    return not any(math.isnan(n) for n in chunks)


def mapped(function: Callable[..., np.ndarray], model: Any, X: Any, like: np.ndarray) -> da.Array:
    """Return ``function(model, part of X)`` for all partitions as a lazy array; `like` has its type and columns.

    For a frame, the lengths of the chunks are unknown.
    """
    parts = _delayed(X, X)
    lengths = X.chunks[0] if isinstance(X, da.Array) else [math.nan] * len(parts)
    shared, task = dask.delayed(model, traverse=False, pure=False), dask.delayed(_mapped, pure=False)
    blocks = [
        da.from_delayed(task(function, shared, part, like[:0]), shape=(n, *like.shape[1:]), dtype=like.dtype)
        for part, n in zip(parts, lengths, strict=True)
    ]
    return da.concatenate(blocks)


def _mapped(function: Callable[..., np.ndarray], model: Any, X: Any, nothing: np.ndarray) -> np.ndarray:
    return function(model, unmasked(X, "X", of_dask=True)) if len_of(X) else nothing
