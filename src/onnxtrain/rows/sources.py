"""Rows in parts from parquet, zarr, dask and files of any form."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from onnxtrain.arguments import lists_its_arguments
from onnxtrain.errors import ArgumentTypeError, DataError, DependencyError, FileError
from onnxtrain.registry import did_you_mean
from onnxtrain.rows.parts import NoArray

#: The largest size of a part in bytes: nine parts fit in a third of a gigabyte.
_PART_BYTES = 2**25

#: The number of rows copied at a time, so that they stay in the CPU cache; copying whole columns takes 2.5 times as
#: long.
_TOGETHER = 1024


def _require(library: str, name: str) -> Any:
    """Return an optional library."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise DependencyError(
            f"onnxtrain.rows needs {library} to read these rows, but it is not installed: pip install {library}.",
            name=library,
        ) from e


# ----------------------------------------------------------------- parquet


@dataclass(frozen=True)
class _Group:
    """A row group of a parquet file, or a range of rows of a large row group."""

    fragment: Any = field(repr=False)
    start: int
    stop: int
    whole: bool


@dataclass(frozen=True)
class ParquetRows(NoArray):
    """Row groups of parquet files, see :func:`from_parquet`."""

    groups: tuple[_Group, ...] = field(repr=False)
    schema: Any = field(repr=False)
    columns: tuple[str, ...]
    label: str | tuple[str, ...] | None
    weight: str | None

    def __len__(self) -> int:
        return len(self.groups)

    def n_rows(self, i: int) -> int:
        """Return the number of rows of a part."""
        return self.groups[i].stop - self.groups[i].start

    def read(self, i: int) -> tuple[Any, ...]:
        """Return a part: a frame of the features, the labels, the weights."""
        labels = [self.label] if isinstance(self.label, str) else list(self.label or ())
        group, pa = self.groups[i], _require("pyarrow", "pyarrow")
        try:
            table = self._table(group, list(dict.fromkeys([*self.columns, *labels, *_some(self.weight)])))
        except FileNotFoundError as e:
            raise FileError(f"There is no file {group.fragment.path!r} any more. {_CHANGED}") from e
        except (OSError, UnicodeDecodeError) as e:
            raise _unreadable(group.fragment.path, e) from e
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as e:
            raise DataError(
                f"{group.fragment.path!r}: {e} The columns must have the types of the dataset. Write all files with "
                "the same types, or pass a dataset whose schema can hold all values, pyarrow.dataset.dataset(paths, "
                "schema)."
            ) from e
        X = _frame(table.select(list(self.columns)))
        y = None if self.label is None else table.select(labels).to_pandas().to_numpy()
        if isinstance(self.label, str):
            y = table[self.label].to_numpy()
        return (X, y, table[self.weight].to_numpy()) if self.weight else (X, y)

    def _table(self, group: _Group, columns: list[str]) -> Any:
        """Return columns of a part; decimals, which would become Python objects, are cast to float64."""
        pa = _require("pyarrow", "pyarrow")
        table = self._read(group, columns)
        floats = [pa.field(f.name, pa.float64()) if pa.types.is_decimal(f.type) else f for f in table.schema]
        return table.cast(pa.schema(floats, metadata=table.schema.metadata))  # the metadata of pandas: types and index

    def _read(self, group: _Group, columns: list[str]) -> Any:
        if group.whole:
            return group.fragment.to_table(schema=self.schema, columns=columns, use_threads=False)
        pq, pa = _require("pyarrow", "pyarrow.parquet"), _require("pyarrow", "pyarrow")
        found, end = [], 0
        (row_group,) = group.fragment.row_groups
        with group.fragment.filesystem.open_input_file(group.fragment.path) as opened:
            file = pq.ParquetFile(opened)
            for batch in file.iter_batches(2**14, [row_group.id], columns=columns, use_threads=False):
                start, end = end, end + len(batch)
                if end > group.start:
                    first = max(group.start - start, 0)
                    found.append(batch.slice(first, group.stop - start - first))
                if end >= group.stop:
                    break
        return self._as_in_schema(pa.Table.from_batches(found), columns)

    def _as_in_schema(self, table: Any, columns: list[str]) -> Any:
        """Return the columns with the types of the schema; a missing column is null, as for whole row groups."""
        pa = _require("pyarrow", "pyarrow")
        fields = [self.schema.field(name) for name in columns]
        arrays = [table[f.name] if f.name in table.column_names else pa.nulls(len(table), f.type) for f in fields]
        found = pa.table(arrays, names=columns)
        return found.cast(pa.schema(fields, metadata=table.schema.metadata or self.schema.metadata))


#: Part of messages about rows that another part of the fit could read.
_CHANGED = "Every epoch reads all files again, so they must not change."


def _unreadable(what: str, e: Exception) -> DataError:
    """Return the error for a file or array whose bytes are damaged."""
    reason = " ".join(str(e).split()).rstrip(".")
    return DataError(f"{what!r:.300} cannot be read: {reason}. Write it again. {_CHANGED}")


def _frame(table: Any) -> Any:
    """Return a table as a frame; columns of one numeric type are copied row-major here, in the reading thread."""
    if len(set(table.schema.types)) > 1 or any(column.null_count for column in table.columns):
        return table.to_pandas(split_blocks=True, use_threads=False)
    columns = [column.to_numpy() for column in table.columns]
    if columns[0].dtype.kind not in "fiu":
        return table.to_pandas(split_blocks=True, use_threads=False)
    rows = np.empty((len(table), len(columns)), columns[0].dtype)
    for start in range(0, len(table), _TOGETHER):
        for k, column in enumerate(columns):
            rows[start : start + _TOGETHER, k] = column[start : start + _TOGETHER]
    return _require("pandas", "pandas").DataFrame(rows, columns=table.column_names, copy=False)


@lists_its_arguments
def from_parquet(
    source: Any,
    *,
    label: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    weight: str | None = None,
) -> ParquetRows:
    """Return the row groups of parquet files as parts.

    Row groups of more than 32 MB are split. Each piece is decoded from the beginning of its row group, so large row
    groups take several times as long to read. Write files with row groups of 10 to 30 MB (``row_group_size``).

    Parameters
    ----------
    source : path, list of paths, or pyarrow.dataset.Dataset
        The files; folders may be partitioned.
    label : str or sequence of str, optional
        The column or columns of y; not needed for predictions.
    columns : sequence of str, optional
        The columns of the features; by default, all columns but the labels and the weight.
    weight : str, optional
        The column of the sample weights.

    Raises
    ------
    DependencyError
        pyarrow or pandas is not installed.
    DataError
        A column does not exist.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, pandas as pd
    >>> from onnxtrain import OrtGradientClassifier
    >>> from onnxtrain.rows import from_parquet
    >>> path = os.path.join(tempfile.mkdtemp(), "rows.parquet")
    >>> table = pd.DataFrame(np.random.RandomState(0).randn(4000, 3), columns=["a", "b", "c"])
    >>> table["y"] = np.where(table.a + table.b > 0, "yes", "no")
    >>> table.sort_values("y").to_parquet(path, row_group_size=100)
    >>> parts = from_parquet(path, label="y", columns=["a", "b", "c"])
    >>> model = OrtGradientClassifier(max_iter=5, random_state=0).fit(parts)
    >>> len(parts), model.feature_names_in_.tolist(), model.score(parts) > 0.95
    (40, ['a', 'b', 'c'], True)
    """
    for name, value in {"label": label, "columns": columns}.items():
        if not (value is None or isinstance(value, (str, Iterable))):
            raise ArgumentTypeError(f"{name} must be a column name or several, got {value!r:.80}.")
    ds = _require("pyarrow", "pyarrow.dataset")
    _require("pandas", "pandas")
    dataset = source if isinstance(source, ds.Dataset) else _dataset(ds, source)
    labels = [] if label is None else [label] if isinstance(label, str) else list(label)
    try:
        index = (dataset.schema.pandas_metadata or {}).get("index_columns", [])  # the index of a frame
    except ValueError as e:  # it is no JSON, or not UTF-8
        raise _unreadable(str(source), e) from e
    rest = [name for name in dataset.schema.names if name not in (*labels, weight, *index)]
    chosen = rest if columns is None else [columns] if isinstance(columns, str) else list(columns)
    _check_columns(dataset, labels, weight, chosen)
    try:
        fragments = _fragments(dataset)
        schema = dataset.schema
        if dataset is not source:  # for a Dataset the user's schema decides what a missing column means
            _check_files(ds, fragments, [*labels, *_some(weight), *chosen], dataset.schema if columns is None else None)
            schema = _schema_of_all(schema, fragments, [*labels, *_some(weight), *chosen])
        groups = [group for fragment in fragments for group in _groups(fragment)]
    except _require("pyarrow", "pyarrow").ArrowInvalid as e:
        raise DataError(f"{e}. Leave the file out, or write it again.") from e
    except (OSError, UnicodeDecodeError) as e:
        raise _unreadable(str(source), e) from e
    if not groups:
        raise DataError(f"There are no rows in {source!r}.")
    of_label = label if label is None or isinstance(label, str) else tuple(label)
    return ParquetRows(tuple(groups), schema, tuple(chosen), of_label, weight)


def _some(name: str | None) -> list[str]:
    return [] if name is None else [name]


def _check_columns(dataset: Any, labels: Sequence[str], weight: str | None, chosen: Sequence[str]) -> None:
    """Check the column names that the user gave."""
    pa, schema = _require("pyarrow", "pyarrow"), dataset.schema
    for name in (*labels, *_some(weight), *chosen):
        if name not in schema.names:
            raise DataError(f"The rows have no column {name!r}. {did_you_mean(name, schema.names)}")
    if not chosen:
        raise DataError(f"The rows have no features. Their only columns are {', '.join(schema.names)}.")
    for argument, names in (("columns", chosen), ("label", labels)):
        if len(set(names)) < len(names):
            raise DataError(f"{argument}= contains a column twice: {list(names)}. Leave one of them out.")
    if both := [name for name in chosen if name in labels]:
        raise DataError(f"The column {both[0]!r} is the label and also in columns=. Leave it out of columns=.")
    for name in (*chosen, *labels, *_some(weight)):
        if pa.types.is_nested(schema.field(name).type):
            raise DataError(
                f"The column {name!r} must have one value per row, but is of type {schema.field(name).type}. "
                "Leave it out with columns=, or read the files as arrays with from_files(paths, read)."
            )


def _check_files(ds: Any, fragments: Sequence[Any], needed: Sequence[str], schema: Any) -> None:
    """Raise if a file lacks a column: pyarrow would treat its values as missing.

    With a schema, raise too if a file has a column that the schema lacks: pyarrow would leave it out.
    """
    for fragment in fragments:
        has = {*fragment.physical_schema.names, *ds.get_partition_keys(fragment.partition_expression)}
        if lacks := [name for name in needed if name not in has]:
            raise DataError(
                f"{fragment.path!r} has no column {lacks[0]!r}, but other files do. {did_you_mean(lacks[0], has)} "
                "Use the same name in all files. If its values are missing in this file, pass "
                "pyarrow.dataset.dataset(paths)."
            )
        index = (fragment.physical_schema.pandas_metadata or {}).get("index_columns", [])
        if schema is not None and (more := [name for name in has.difference(schema.names) if name not in index]):
            raise DataError(
                f"{fragment.path!r} has a column {min(more)!r}, but other files lack it. Pass the names of the feature "
                "columns as columns=."
            )


def _schema_of_all(schema: Any, fragments: Sequence[Any], needed: Sequence[str]) -> Any:
    """Return a schema whose types hold the values of all files; pyarrow would cast to the types of the first."""
    pa = _require("pyarrow", "pyarrow")
    for name in needed:
        fields = [f.physical_schema.field(name) for f in fragments if name in f.physical_schema.names]
        if len({field.type for field in fields}) < 2 or any(pa.types.is_dictionary(field.type) for field in fields):
            continue
        try:
            one = pa.unify_schemas([pa.schema([field]) for field in fields], promote_options="permissive")
        except pa.ArrowTypeError as e:
            raise DataError(
                f"The column {name!r} has incompatible types in the files: {e}. Write it with the same type, or leave "
                "it out with columns=. If one type can hold all values, pass a schema: "
                "from_parquet(pyarrow.dataset.dataset(paths, schema=schema))."
            ) from e
        schema = schema.set(schema.get_field_index(name), one.field(name))
    return schema


def _fragments(dataset: Any) -> list[Any]:
    to_parquet = (
        "Write its rows to a file, pyarrow.dataset.write_dataset(dataset, folder, format='parquet'), and pass that."
    )
    try:
        fragments = list(dataset.get_fragments())
    except ValueError as e:  # a filtered dataset: its row groups contain rows that the dataset excludes
        if isinstance(e, _require("pyarrow", "pyarrow").ArrowInvalid):
            raise
        raise DataError(f"The dataset cannot be read by row groups: {e} {to_parquet}") from e
    for fragment in fragments:
        if not hasattr(fragment, "split_by_row_group"):
            of = getattr(getattr(fragment, "format", None), "default_extname", "tables in memory")
            raise DataError(f"from_parquet expects a parquet dataset, got {of}, without row groups. {to_parquet}")
    return fragments


def _dataset(ds: Any, source: Any) -> Any:
    if hasattr(source, "columns"):  # an iteration over a data frame gives the names of its columns
        raise ArgumentTypeError(
            f"from_parquet expects a path, several paths or a pyarrow dataset, got {type(source).__name__}. Pass a "
            "table in memory to fit itself: fit(X, y)."
        )
    one = isinstance(source, (str, os.PathLike))
    given = [source] if one or not isinstance(source, Iterable) else list(source)
    if not all(isinstance(path, (str, os.PathLike)) for path in given):
        raise ArgumentTypeError(f"from_parquet expects a path, several paths or a pyarrow dataset, got {source!r:.80}.")
    paths = os.fspath(source) if one else [os.fspath(path) for path in given]
    try:
        dataset = ds.dataset(paths, format="parquet", partitioning="hive") if paths else None
    except FileNotFoundError as e:
        remedy = "Pass glob.glob(pattern)." if "*" in str(e) else "Pass the path of a file or a folder."
        raise FileError(f"There is no file {str(e)!r}. {remedy}") from e
    except ValueError as e:  # that of pyarrow for a file of another format
        remedy = "Read other formats with from_files(paths, read)."
        remedy = "Download it first." if "://" in str(source) else remedy
        raise DataError(f"{source!r:.80} cannot be read as parquet: {str(e).rstrip('.')}. {remedy}") from e
    except OSError as e:
        raise _unreadable(str(source), e) from e
    except _require("pyarrow", "pyarrow").ArrowTypeError as e:
        raise DataError(
            f"{source!r:.80}: a column has one type in the files and another in the names of their folders: {e} Pass "
            "pyarrow.dataset.dataset(paths), which reads no columns from the names of folders."
        ) from e
    if dataset is None or not dataset.files:
        raise DataError(f"There are no files in {source!r:.80}. Pass the path of a file or a folder.")
    return dataset


def _groups(fragment: Any) -> Iterator[_Group]:
    """Yield the row groups of a file that have rows; large ones are split."""
    for part in fragment.split_by_row_group():
        (row_group,) = part.row_groups
        n = row_group.num_rows
        n_pieces = min(-(-row_group.total_byte_size // _PART_BYTES), max(n, 1))
        if n_pieces <= 1 or len(_require("pyarrow", "pyarrow.dataset").get_partition_keys(part.partition_expression)):
            if n:
                yield _Group(part, 0, n, whole=True)
            continue
        ends = np.linspace(0, n, n_pieces + 1).astype(int).tolist()
        yield from (_Group(part, a, b, whole=False) for a, b in pairwise(ends))


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
            raise _unreadable(f"rows {rows.start} to {rows.stop} of {self.X!r}", e) from e


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
        if not hasattr(array, "shape") and (array is not None or name == "X"):
            raise ArgumentTypeError(f"{name} must be an array or the path of one, got {type(array).__name__}.")
    for name, array in (("y", y), ("weight", weight)):
        if array is not None and array.shape[0] != X.shape[0]:
            raise DataError(f"X has {X.shape[0]} rows, but {name} has {array.shape[0]}. Pass one {name} per row.")
    n_bytes = max(int(np.prod(X.shape[1:])) * X.dtype.itemsize, 1)
    chunk = max((getattr(X, "chunks", None) or (1,))[0], 1)
    return ZarrRows(X, y, weight, chunk * max(1, _PART_BYTES // (n_bytes * chunk)))


def _opened(array: Any) -> Any:
    if not isinstance(array, (str, os.PathLike)):
        return array
    zarr = _require("zarr", "zarr")
    try:
        return zarr.open_array(array, mode="r")
    except (FileNotFoundError, ValueError) as e:  # zarr raises a ValueError for a group
        reason = f" zarr reports: {e}" if isinstance(e, ValueError) else ""
        raise FileError(
            f"There is no zarr array {os.fspath(array)!r}. The path of an array in a group ends with its name.{reason}"
        ) from e


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
        return found if isinstance(found, tuple) else (found,)


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
    if n_rows is not None and len(n_rows) != len(files):
        raise DataError(f"n_rows has {len(n_rows)} entries, but there are {len(files)} files.")
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
        return _require("dask", "dask").compute(*self.parts[i])


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
    _require("dask", "dask")
    for name, value in (("X", X), ("y", y), ("weight", weight)):
        n_axes = getattr(value, "ndim", None) if hasattr(value, "to_delayed") else None
        if not (isinstance(n_axes, int) and n_axes) and (value is not None or name == "X"):
            raise ArgumentTypeError(
                f"{name} must be a dask array or frame, got {type(value).__name__}. Pass rows in memory to fit itself: "
                "fit(X, y)."
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
        dask = _require("dask", "dask")
        known = dask.compute(*map(dask.delayed(_length), _partitions(value)))
    return tuple(map(int, known))


def _partitions(value: Any) -> list[Any]:
    """Return the row blocks of a dask collection, each as a delayed value."""
    if hasattr(value, "numblocks"):
        value = value.rechunk(dict.fromkeys(range(1, value.ndim), -1))
        return value.to_delayed().ravel().tolist()
    return list(value.to_delayed())
