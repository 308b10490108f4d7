"""Rows in parts from the row groups of parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from onnxtrain.arguments import lists_its_arguments
from onnxtrain.errors import ArgumentTypeError, DataError, FileError, OnnxTrainError
from onnxtrain.registry import did_you_mean
from onnxtrain.rows import reading
from onnxtrain.rows.parts import NoArray
from onnxtrain.rows.reading import CHANGED, require, unreadable

#: The number of rows copied at a time, so that they stay in the CPU cache; copying whole columns takes 2.5 times as
#: long.
_TOGETHER = 1024


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
        group, pa = self.groups[i], require("pyarrow", "pyarrow")
        try:
            table = self._table(group, list(dict.fromkeys([*self.columns, *labels, *_some(self.weight)])))
        except FileNotFoundError as e:
            raise FileError(f"There is no file {group.fragment.path!r} any more. {CHANGED}") from e
        except (OSError, UnicodeDecodeError) as e:
            raise unreadable(group.fragment.path, e) from e
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
        pa = require("pyarrow", "pyarrow")
        table = self._read(group, columns)
        floats = [pa.field(f.name, pa.float64()) if pa.types.is_decimal(f.type) else f for f in table.schema]
        return table.cast(pa.schema(floats, metadata=table.schema.metadata))  # the metadata of pandas: types and index

    def _read(self, group: _Group, columns: list[str]) -> Any:
        if group.whole:
            return group.fragment.to_table(schema=self.schema, columns=columns, use_threads=False)
        pq, pa = require("pyarrow", "pyarrow.parquet"), require("pyarrow", "pyarrow")
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
        pa = require("pyarrow", "pyarrow")
        fields = [self.schema.field(name) for name in columns]
        arrays = [table[f.name] if f.name in table.column_names else pa.nulls(len(table), f.type) for f in fields]
        found = pa.table(arrays, names=columns)
        return found.cast(pa.schema(fields, metadata=table.schema.metadata or self.schema.metadata))


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
    return require("pandas", "pandas").DataFrame(rows, columns=table.column_names, copy=False)


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
    ds = require("pyarrow", "pyarrow.dataset")
    require("pandas", "pandas")
    dataset = source if isinstance(source, ds.Dataset) else _dataset(ds, source)
    labels = [] if label is None else [label] if isinstance(label, str) else list(label)
    try:
        index = _index_of(dataset.schema)
    except ValueError as e:
        raise unreadable(str(source), e) from e
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
    except OnnxTrainError:
        raise
    except require("pyarrow", "pyarrow").ArrowInvalid as e:
        raise DataError(f"{e}. Leave the file out, or write it again.") from e
    except (OSError, ValueError) as e:
        raise unreadable(str(source), e) from e
    if not groups:
        raise DataError(f"There are no rows in {source!r}.")
    of_label = label if label is None or isinstance(label, str) else tuple(label)
    return ParquetRows(tuple(groups), schema, tuple(chosen), of_label, weight)


def _index_of(schema: Any) -> list[Any]:
    """Return the columns that held the index of a frame.

    Raises
    ------
    ValueError
        The entry of pandas is damaged: it is no JSON, not UTF-8, or no dictionary.
    """
    entry = schema.pandas_metadata or {}
    if not isinstance(entry, dict):
        raise ValueError(f"the entry of pandas in the schema is {entry!r:.80}")
    return entry.get("index_columns", [])


def _some(name: str | None) -> list[str]:
    return [] if name is None else [name]


def _check_columns(dataset: Any, labels: Sequence[str], weight: str | None, chosen: Sequence[str]) -> None:
    """Check the column names that the user gave."""
    pa, schema = require("pyarrow", "pyarrow"), dataset.schema
    for name in (*labels, *_some(weight), *chosen):
        if name not in schema.names:
            parts = [part.strip() for part in str(name).split(",")]
            several = f"Pass them as a list: {parts}. " if len(parts) > 1 and set(parts) <= set(schema.names) else ""
            unlabeled = " For rows without labels, as predict takes them, leave out label=." if name in labels else ""
            raise DataError(f"The rows have no column {name!r}. {several}{did_you_mean(name, schema.names)}{unlabeled}")
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
        if twice := [name for name in needed if fragment.physical_schema.names.count(name) > 1]:
            raise DataError(f"{fragment.path!r} has several columns {twice[0]!r}. Write it with one column per name.")
        index = _index_of(fragment.physical_schema)
        if schema is not None and (more := [name for name in has.difference(schema.names) if name not in index]):
            raise DataError(
                f"{fragment.path!r} has a column {min(more)!r}, but other files lack it. Pass the names of the feature "
                "columns as columns=."
            )


def _schema_of_all(schema: Any, fragments: Sequence[Any], needed: Sequence[str]) -> Any:
    """Return a schema whose types hold the values of all files; pyarrow would cast to the types of the first."""
    pa = require("pyarrow", "pyarrow")
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
        if isinstance(e, require("pyarrow", "pyarrow").ArrowInvalid):
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
        raise unreadable(str(source), e) from e
    except require("pyarrow", "pyarrow").ArrowTypeError as e:
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
        n_pieces = min(-(-row_group.total_byte_size // reading.PART_BYTES), max(n, 1))
        if n_pieces <= 1 or len(require("pyarrow", "pyarrow.dataset").get_partition_keys(part.partition_expression)):
            if n:
                yield _Group(part, 0, n, whole=True)
            continue
        ends = np.linspace(0, n, n_pieces + 1).astype(int).tolist()
        yield from (_Group(part, a, b, whole=False) for a, b in pairwise(ends))
