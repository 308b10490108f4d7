"""Rows in parts from zarr, Dask and files of any form."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtrain.arguments import lists_its_arguments
from onnxtrain.errors import ArgumentTypeError, DataError, FileError
from onnxtrain.rows import reading
from onnxtrain.rows.lazy import as_collection, check_computed
from onnxtrain.rows.parts import NoArray
from onnxtrain.rows.reading import require, unreadable

# ------------------------------------------------------------------ arrays


@dataclass(frozen=True)
class ZarrRows(NoArray):
    """Blocks of arrays that are read by slicing, see :func:`from_zarr`."""

    X: Any = field(repr=False)
    y: Any = field(repr=False)
    weight: Any = field(repr=False)
    size: int

    def __len__(self) -> int:
        return -(-self.X.shape[0] // self.size)

    def _rows(self, i: int) -> slice:
        return slice(i * self.size, min((i + 1) * self.size, self.X.shape[0]))

    def n_rows(self, i: int) -> int:
        """Return the number of rows of a part."""
        return self._rows(i).stop - self._rows(i).start

    def read(self, i: int) -> tuple[Any, ...]:
        """Return a part as arrays."""
        rows = self._rows(i)
        given = (self.X, self.y) if self.weight is None else (self.X, self.y, self.weight)
        try:
            return tuple(None if array is None else array[rows] for array in given)
        except Exception as e:  # the codecs of zarr and h5py raise any class for damaged chunks
            raise unreadable(f"rows {rows.start} to {rows.stop} of {self.X!r}", e) from e


@lists_its_arguments
def from_zarr(X: Any, y: Any = None, *, weight: Any = None) -> ZarrRows:
    """Return whole chunks of zarr arrays as parts; arrays of h5py are accepted as well.

    Parameters
    ----------
    X : zarr.Array or path
        The rows. A part has as many chunks of rows as fit in 32 MB, at least one.
    y : zarr.Array, path or ndarray, optional
        The targets; not needed for predictions.
    weight : zarr.Array, path or ndarray, optional
        The sample weights.

    Raises
    ------
    DependencyError
        zarr is not installed, and a path was given.
    DataError
        The arrays have different lengths.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> from onnxtrain.rows import from_zarr
    >>> X = zarr.array(np.zeros((10_000, 2_000), "float32"), chunks=(1_000, 2_000))
    >>> parts = from_zarr(X, np.zeros(10_000))  # four chunks are 32 MB
    >>> [parts.n_rows(i) for i in range(len(parts))]
    [4000, 4000, 2000]
    """
    X, y, weight = (_opened(array) for array in (X, y, weight))
    for name, array in (("X", X), ("y", y), ("weight", weight)):
        check_computed(array, name)
        if not hasattr(array, "shape") and (array is not None or name == "X"):
            raise ArgumentTypeError(f"{name} must be an array or the path of one, got {type(array).__name__}.")
    for name, array in (("y", y), ("weight", weight)):
        if array is not None and array.shape[0] != X.shape[0]:
            raise DataError(f"X has {X.shape[0]} rows, but {name} has {array.shape[0]}. Pass one {name} per row.")
    n_bytes = max(int(np.prod(X.shape[1:])) * X.dtype.itemsize, 1)
    chunk = max((getattr(X, "chunks", None) or (1,))[0], 1)
    return ZarrRows(X, y, weight, chunk * max(1, reading.PART_BYTES // (n_bytes * chunk)))


def _opened(array: Any) -> Any:
    if not isinstance(array, (str, os.PathLike)):
        return array
    zarr = require("zarr", "zarr")
    try:
        return zarr.open_array(array, mode="r")
    except (FileNotFoundError, ValueError) as e:  # zarr raises a ValueError for a group
        reason = f" zarr reports: {e}" if isinstance(e, ValueError) else ""
        raise FileError(
            f"There is no zarr array {os.fspath(array)!r}. The path of an array in a group ends with its name.{reason}"
        ) from e
    except Exception as e:  # whatever its readers of damaged metadata meet
        raise unreadable(os.fspath(array), e) from e


# ------------------------------------------------------------------- files


@dataclass(frozen=True)
class FileRows(NoArray):
    """Files that a user's function reads, see :func:`from_files`."""

    files: tuple[Any, ...]
    function: Callable[[Any], tuple[Any, ...]]
    lengths: dict[int, int] = field(repr=False)

    def __len__(self) -> int:
        return len(self.files)

    def n_rows(self, i: int) -> int:
        """Return the number of rows of a file; the file is read once if its number was not given."""
        if i not in self.lengths:
            found = self.read(i)
            values = found[0] if len(found) < 2 or found[1] is None else found[1]
            if values is None:
                raise DataError(f"read({self.files[i]!r:.80}) must return (X, y) or (X, y, sample_weight), got None.")
            self.lengths[i] = _length(values)
        return self.lengths[i]

    def read(self, i: int) -> tuple[Any, ...]:
        """Return the rows of a file."""
        try:
            inspect.signature(self.function).bind(self.files[i])
        except TypeError as e:
            raise ArgumentTypeError(f"read is called as read(file), but it takes other arguments: {e}.") from e
        except ValueError:  # a callable written in C has no signature
            pass
        try:
            found = self.function(self.files[i])
        except Exception as e:
            e.add_note(f"The function read of from_files raised this for file {i}, {self.files[i]!r:.200}.")
            raise
        if isinstance(found, list) and 2 <= len(found) <= 3 and _are_columns(found):
            raise DataError(
                f"read({self.files[i]!r:.80}) must return the tuple (X, y) or (X, y, sample_weight), got a list of "
                f"{len(found)}. Leave out its brackets: return X, y."
            )
        if isinstance(found, Iterator):
            raise DataError(
                f"read({self.files[i]!r:.80}) must return (X, y) or (X, y, sample_weight), got a "
                f"{type(found).__name__}. Return the rows of the file at once. If a file is too large for that, make "
                "several parts of it: from_files([(file, k) for k in range(n_parts)], read)."
            )
        if isinstance(found, Mapping) and {"X", "y"} <= set(found):
            raise DataError(
                f"read({self.files[i]!r:.80}) must return (X, y) or (X, y, sample_weight), got a "
                f"{type(found).__name__} with {', '.join(map(str, found))}. Return found['X'], found['y']."
            )
        return found if isinstance(found, tuple) else (found,)


def _are_columns(found: list[Any]) -> bool:
    """Whether a list holds X and y; the rows of X would have the same number of axes."""
    return hasattr(found[0], "columns") or len({getattr(values, "ndim", 0) for values in found}) > 1


def _length(values: Any) -> int:
    shape = getattr(values, "shape", None)
    return len(values) if shape is None else int(shape[0])


@lists_its_arguments
def from_files(
    files: Sequence[Any], read: Callable[[Any], tuple[Any, ...]], *, n_rows: Sequence[int] | None = None
) -> FileRows:
    """Return files as parts, one part per file.

    Parameters
    ----------
    files : sequence
        Paths, or any arguments of `read`.
    read : callable
        ``read(file) -> (X, y)`` or ``(X, y, sample_weight)``: arrays, frames, sparse matrices. It is called in another
        thread.
    n_rows : sequence of int, optional
        The number of rows of each file. If not given, each file is read once to count its rows.

    Raises
    ------
    DataError
        `n_rows` and `files` have different lengths.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from onnxtrain import OrtGradientRegressor
    >>> from onnxtrain.rows import from_files
    >>> folder = tempfile.mkdtemp()
    >>> for k in range(3):
    ...     X = np.random.RandomState(k).rand(50, 2)
    ...     np.savez(os.path.join(folder, f"{k}.npz"), X=X, y=X @ [1.0, 2.0])
    >>> def read(path):
    ...     with np.load(path) as file:
    ...         return file["X"], file["y"]
    >>> parts = from_files([os.path.join(folder, f"{k}.npz") for k in range(3)], read)
    >>> OrtGradientRegressor(solver="lbfgs").fit(parts).score(parts) > 0.999
    True
    """
    if isinstance(files, (str, os.PathLike)) or not isinstance(files, Iterable) or not callable(read):
        pattern = ""
        if isinstance(files, str):
            pattern = " Pass glob.glob(pattern)." if "*" in files else f" Pass a list, [{files!r:.80}]."
        elif callable(files):
            pattern = " Call from_files(files, read)."
        raise ArgumentTypeError(
            f"from_files expects a sequence of files and a function that reads one, got {files!r:.80} and {read!r:.80}."
            f"{pattern}"
        )
    files = tuple(files)
    if n_rows is not None and (np.ndim(n_rows) != 1 or len(n_rows) != len(files)):
        found = f"has {len(n_rows)} entries" if np.ndim(n_rows) == 1 else f"is {n_rows!r:.80}"
        raise DataError(
            f"n_rows {found}, but there are {len(files)} files. Pass one number of rows for each file, or leave n_rows "
            "out: each file is then read once to count them."
        )
    return FileRows(files, read, {} if n_rows is None else dict(enumerate(map(int, n_rows))))


# -------------------------------------------------------------------- dask


@dataclass(frozen=True)
class DaskRows(NoArray):
    """Partitions of dask collections, see :func:`from_dask`."""

    parts: tuple[tuple[Any, ...], ...] = field(repr=False)
    lengths: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.parts)

    def n_rows(self, i: int) -> int:
        """Return the number of rows of a partition."""
        return self.lengths[i]

    def read(self, i: int) -> tuple[Any, ...]:
        """Compute and return a partition."""
        return require("dask", "dask").compute(*self.parts[i])


def _in_dask(name: str, value: Any, X: Any) -> str:
    """Return the remedy for an argument of :func:`from_dask` that is no collection of Dask."""
    if isinstance(value, str) and value in getattr(X, "columns", ()):
        return f"Pass the frame without it and the column: X.drop(columns={value!r}), {name}=X[{value!r}]."
    if name != "X" and hasattr(value, "shape") and hasattr(X, "chunks"):
        return f"Pass dask.array.from_array({name}, chunks=X.chunks[0])."
    return "Pass rows in memory to fit itself: fit(X, y)."


@lists_its_arguments
def from_dask(X: Any, y: Any = None, *, weight: Any = None) -> DaskRows:
    """Return the partitions of dask collections as parts; each partition is computed when it is read.

    The model is trained in this process; :mod:`onnxtrain.dask` trains on the workers.

    Parameters
    ----------
    X : dask array or frame
        The rows, in partitions.
    y, weight : dask array, frame or series, optional
        The targets and sample weights, cut at the rows of the partitions of X; y is not needed for predictions.

    Raises
    ------
    DependencyError
        dask is not installed.
    DataError
        The collections have different numbers of rows, or partitions that cannot be cut alike.

    Examples
    --------
    >>> import dask.array as da
    >>> from onnxtrain.rows import from_dask
    >>> parts = from_dask(da.zeros((100, 3), chunks=(40, 3)), da.ones(100, chunks=40))
    >>> [parts.n_rows(i) for i in range(len(parts))]
    [40, 40, 20]
    """
    require("dask", "dask")
    for name, value in (("X", X), ("y", y), ("weight", weight)):
        n_axes = getattr(value, "ndim", None) if hasattr(value, "to_delayed") else None
        if not (isinstance(n_axes, int) and n_axes) and (value is not None or name == "X"):
            raise ArgumentTypeError(
                f"{name} must be a dask array or frame, got {type(value).__name__}. "
                f"{as_collection(name, value) or _in_dask(name, value, X)}"
            )
    given = [X, y] if weight is None else [X, y, weight]
    lengths = _lengths(X)
    for k, name in enumerate(("y", "weight")[: len(given) - 1], 1):
        if given[k] is None or (found := _lengths(given[k])) == lengths:
            continue
        if sum(found) != sum(lengths):
            raise DataError(f"X has {sum(lengths)} rows, but {name} has {sum(found)}. Pass one {name} per row.")
        if not hasattr(given[k], "rechunk"):
            raise DataError(
                f"X and {name} are partitioned at different rows. Convert {name} to an array, "
                f"{name}.to_dask_array(lengths=True), which is then partitioned like X."
            )
        known = given[k].compute_chunk_sizes() if np.isnan(given[k].chunks[0]).any() else given[k]
        given[k] = known.rechunk({0: lengths})
    columns = [None if value is None else _partitions(value) for value in given]
    n = len(lengths)
    rows = zip(*([None] * n if found is None else found for found in columns), strict=True)
    return DaskRows(tuple(rows), lengths)


def _lengths(value: Any) -> tuple[int, ...]:
    """Return the number of rows of each block; the blocks of a frame are computed to count their rows."""
    known = getattr(value, "chunks", ((np.nan,),))[0]
    if np.isnan(known).any():
        dask = require("dask", "dask")
        known = dask.compute(*map(dask.delayed(_length), _partitions(value)))
    return tuple(map(int, known))


def _partitions(value: Any) -> list[Any]:
    """Return the row blocks of a dask collection, each as a delayed value."""
    if hasattr(value, "numblocks"):
        value = value.rechunk(dict.fromkeys(range(1, value.ndim), -1))
        return value.to_delayed().ravel().tolist()
    return list(value.to_delayed())
