"""Lazy collections of other libraries, read into arrays and frames if they fit in memory."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from onnxtrain.errors import DataError

#: The largest fraction of the memory that a collection may take; a fit also makes copies of the rows.
_SHARE = 0.25

#: The number of rows from which the bytes of the whole collection are estimated.
_FEW = 1000


class Lazy(NamedTuple):
    """A collection that is not in memory: its name, its approximate bytes, and the function that reads it."""

    name: str
    n_bytes: Callable[[], float]
    read: Callable[[], Any]


def in_memory(X: Any, name: str = "X") -> Any:
    """Return a lazy collection of dask, zarr, polars or pyarrow as an array or a frame; return anything else unchanged.

    Strings of numpy's StringDType, as zarr returns them, become objects, because scikit-learn's scores do not support
    them.

    Raises
    ------
    DataError
        The collection takes more than a quarter of the memory, or X is an array with masked values.
    """
    check_computed(X, name)
    lazy = _lazy(X)
    if lazy is None:
        return _texts_as_objects(unmasked(X, name))
    n_bytes, memory = lazy.n_bytes(), memory_at_hand()
    if n_bytes > _SHARE * memory:
        raise DataError(
            f"{name} is a {lazy.name} of {_size(n_bytes)}, more than a quarter of the memory, {_size(memory)}. Train "
            "and predict in parts with onnxtrain.rows (from_parquet, from_zarr, from_files, from_dask), or on the "
            "workers of a cluster with onnxtrain.dask."
        )
    return _texts_as_objects(unmasked(lazy.read(), name, of_dask=lazy.name.startswith("dask")))


def check_computed(X: Any, name: str) -> None:
    """Raise a DataError for values that cannot be read: Delayed, a Future or a Bag of dask, data of a closed file."""
    if type(X).__module__.startswith("h5py.") and not X:
        raise DataError(
            f"{name} is a dataset of an HDF5 file that is closed. Read the rows while it is open, file[name][:], or "
            "call fit inside the with statement."
        )
    kind = not_computed(X)
    if kind is not None:
        method = {"Delayed": "compute", "Future": "result", "Bag": "to_dataframe().compute"}[kind]
        raise DataError(f"{name} is a {kind}, whose value is not known yet. Pass {name}.{method}().")
    inner = not_computed(X[0]) if isinstance(X, list) and X else None
    if inner is not None:
        parts = f"dask.compute(*{name})" if inner == "Delayed" else f"[part.result() for part in {name}]"
        raise DataError(
            f"{name} is a list of {inner}, whose values are not known yet. Pass numpy.concatenate({parts}), or "
            "pandas.concat of frames."
        )


def not_computed(X: Any) -> str | None:
    """Return the kind of an object of dask or concurrent.futures whose value is not known; None for anything else."""
    return next((c.__name__ for c in type(X).__mro__ if c.__name__ in ("Delayed", "Future", "Bag")), None)


def as_collection(name: str, X: Any) -> str:
    """Return the code that makes a Dask array or frame of Delayed, Futures, a Bag or a list; empty for others."""
    one = X[0] if isinstance(X, list) and X else X
    kind = not_computed(one)
    if kind == "Bag":
        return f"Pass columns of {name}.to_dataframe()."
    if kind is None:
        return (
            f"Pass dask.array.concatenate({name}), or dask.dataframe.concat of frames." if hasattr(one, "dask") else ""
        )
    array = "dask.array.from_delayed({}, shape, dtype)".format
    if one is X:
        return f"Pass {array(name)}, or dask.dataframe.from_delayed([{name}]) of a frame."
    arrays = f"[{array('x')} for x in {name}]"
    return f"Pass dask.array.concatenate({arrays}), or dask.dataframe.from_delayed({name}) of frames."


def is_plain(X: Any) -> bool:
    """Whether values are an array that :func:`in_memory` returns unchanged."""
    return type(X) is np.ndarray and X.dtype.kind != "T"


def _texts_as_objects(X: Any) -> Any:
    return X.astype(object) if isinstance(X, np.ndarray) and X.dtype.kind == "T" else X


def unmasked(X: Any, name: str, *, of_dask: bool = False) -> Any:
    """Return the values unchanged; raise if some are masked, because numpy would drop the mask silently.

    `of_dask` says that they are of a Dask array, for which the message has other code.

    Raises
    ------
    DataError
        Some values are masked.
    """
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        library = "dask.array" if of_dask else "numpy"
        filled = ("dask.array.ma.filled({0}, {1})" if of_dask else "{0}.filled({1})").format
        remedy = (
            f"Fill them, {name} = {filled(f'{name}.astype(float)', 'numpy.nan')}, and pass a model with an imputer, "
            "make_pipeline(SimpleImputer(), model)."
        )
        if name.startswith("y"):
            known = f"known = ~{library}.ma.getmaskarray({name})"
            remedy = f"Leave out the rows without a target: {known}, fit(X[known], {name}[known])."
        elif name.startswith("sample_weight"):
            remedy = f"A weight of 0 leaves a row out: {filled(name, 0)}."
        raise DataError(f"{name} has {np.ma.count_masked(X)} masked values. {remedy}")
    return X


def _lazy(X: Any) -> Lazy | None:
    """Return how a collection is read, or None if it is in memory."""
    names = ((c.__module__.partition(".")[0], c.__name__) for c in type(X).__mro__)
    kind = next((_KINDS[name] for name in names if name in _KINDS), None)
    return None if kind is None else kind(X)


def _dask_array(X: Any) -> Lazy:
    known = X if not math.isnan(X.nbytes) else X.compute_chunk_sizes()
    return Lazy("dask array", lambda: float(known.nbytes), X.compute)


def _dask_frame(X: Any) -> Lazy:
    return Lazy("dask frame", lambda: float(X.memory_usage_per_partition(deep=True).sum().compute()), X.compute)


def _zarr_array(X: Any) -> Lazy:
    return Lazy("zarr array", lambda: float(math.prod(X.shape) * X.dtype.itemsize), lambda: X[...])


def _polars_frame(X: Any) -> Lazy:
    def n_bytes() -> float:
        (n,) = X.select(_first_module(X).len()).collect().row(0)
        head = X.head(_FEW).collect()
        return head.estimated_size() / max(len(head), 1) * n

    return Lazy("polars LazyFrame", n_bytes, X.collect)


def _arrow_dataset(X: Any) -> Lazy:
    def n_bytes() -> float:
        head = X.head(_FEW)
        return head.nbytes / max(len(head), 1) * X.count_rows()

    return Lazy("pyarrow dataset", n_bytes, lambda: X.to_table().to_pandas())


def _arrow_table(X: Any) -> Lazy:
    return Lazy("pyarrow table", lambda: float(X.nbytes), X.to_pandas)


def _arrow_column(X: Any) -> Lazy:
    return Lazy("pyarrow array", lambda: float(X.nbytes), lambda: X.to_numpy(**_copying(X)))


def _copying(X: Any) -> dict[str, bool]:
    """Return the arguments with which a pyarrow array may be copied; a chunked array always may."""
    return {} if hasattr(X, "chunks") else {"zero_copy_only": False}


#: The functions that describe collections, by the library and name of their class.
_KINDS: dict[tuple[str, str], Callable[[Any], Lazy]] = {
    ("dask", "Array"): _dask_array,
    ("dask", "FrameBase"): _dask_frame,
    ("dask", "DataFrame"): _dask_frame,
    ("dask", "Series"): _dask_frame,
    ("zarr", "Array"): _zarr_array,
    ("polars", "LazyFrame"): _polars_frame,
    ("pyarrow", "Dataset"): _arrow_dataset,
    ("pyarrow", "Table"): _arrow_table,
    ("pyarrow", "RecordBatch"): _arrow_table,
    ("pyarrow", "Array"): _arrow_column,
    ("pyarrow", "ChunkedArray"): _arrow_column,
}


def _first_module(X: Any) -> Any:
    """Return the library of a collection, which is already imported."""
    return sys.modules[type(X).__module__.partition(".")[0]]


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"


# ------------------------------------------------------------------ memory


def memory_at_hand() -> float:
    """Return the bytes of memory that this process may use: the least limit of machine, cgroups and process."""
    return min(_of_machine(), *_of_groups(), *_of_limits(), math.inf)


def _of_machine() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not available on Windows
        return math.inf


def _of_groups(root: str = "/sys/fs/cgroup", of_process: str = "/proc/self/cgroup") -> Iterator[float]:
    """Yield the memory limits of the control groups of this process and of their parents."""
    try:
        with open(of_process) as file:
            lines = [line.strip().split(":", 2) for line in file]
    except OSError:
        return
    for _, controllers, path in lines:
        if controllers not in ("", "memory"):
            continue
        folder, name = (root, "memory.max") if not controllers else (f"{root}/memory", "memory.limit_in_bytes")
        steps = [step for step in path.split("/") if step]
        for depth in range(len(steps) + 1):
            yield _limit_in("/".join([folder, *steps[:depth], name]))


def _limit_in(path: str) -> float:
    try:
        with open(path) as file:
            return float(file.read())
    except (OSError, ValueError):  # no such group, or "max"
        return math.inf


def _of_limits() -> Iterator[float]:
    """Yield the resource limits of this process."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(which)
        if soft != resource.RLIM_INFINITY:
            yield float(soft)
