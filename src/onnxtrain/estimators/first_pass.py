"""The first pass over rows in parts: a sample, the labels, the weights, and the parts with missing values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from onnxtrain.convert.compared_rows import spread
from onnxtrain.dialects import for_part
from onnxtrain.errors import DataError
from onnxtrain.estimators.arrays import as_array, as_pandas
from onnxtrain.estimators.protocols import ArrayLike, Inputs, is_frame
from onnxtrain.estimators.sample_weights import NO_WEIGHT, check_sample_weight
from onnxtrain.estimators.validation import check_no_text, check_places
from onnxtrain.rows.parts import Part, Parts, read_ahead, with_rows

#: The largest number of label shares per part that are kept, 2 MB. Ordering 26,000 parts of ten classes takes a second
#: per epoch, ordering 420,000 parts 49 s.
_MOST_SHARES = 2**18


@dataclass(frozen=True)
class Survey:
    """The result of the first pass over rows in parts.

    Attributes
    ----------
    sample : Part
        Rows spread evenly over the parts; all rows if there are few.
    lengths : tuple of int
        The number of rows of each part.
    sizes : tuple of int
        The number of rows of nonzero weight in each part.
    weights : tuple of float or None
        The sum of the weights of each part; None if all weights are equal.
    labels : ndarray
        The distinct labels; for real-valued or several targets, the minimum and the maximum.
    counts : ndarray
        The number of rows of nonzero weight with each label.
    shares : ndarray (n_parts, n_labels) or None
        The share of each label in the rows of each part; None if unknown for some part.
    suspects : tuple of int
        The index of the first part with NaN in its rows or targets, and of the first part with an infinite value.
    digest : str
        A fingerprint of the labels, the weights and some rows.
    label : str or None
        The name of the column of labels.
    """

    sample: Part = field(repr=False)
    lengths: tuple[int, ...]
    sizes: tuple[int, ...]
    weights: tuple[float, ...] | None
    labels: np.ndarray
    counts: np.ndarray
    shares: np.ndarray | None
    suspects: tuple[int, ...]
    digest: str
    label: str | None


class _Found(NamedTuple):
    """The findings for one part.

    Attributes
    ----------
    sample : Part
        Its rows in the sample.
    form : tuple
        The form of its rows, as :func:`form_of` returns it.
    size : int
        The number of rows of nonzero weight.
    weight : float
        The sum of the weights.
    range : tuple of float
        The least and the largest weight.
    labels, counts : ndarray
        The distinct labels and how many rows have each; the minimum and the maximum of other targets.
    weighed : ndarray
        The counts without rows of weight zero.
    flaws : frozenset of str
        ``"NaN"`` or ``"infinite"``, if its rows or targets contain such values.
    digest : bytes
        A fingerprint of its content.
    label : str or None
        The name of its labels, if they are a column of a table.
    kinds : dict of str to (str or None)
        The kind of the values of each column, as :func:`_kind` returns it, by name or position.
    """

    sample: Part
    form: tuple[Any, ...]
    size: int
    weight: float
    range: tuple[float, float]
    labels: np.ndarray
    counts: np.ndarray
    weighed: np.ndarray
    flaws: frozenset[str]
    digest: bytes
    label: str | None
    kinds: dict[str, str | None]


def survey(
    parts: Parts, dtype: str, *, classifies: bool, counted: Callable[[np.ndarray], np.ndarray | None] = lambda y: None
) -> Survey:
    """Read all parts, or only some if the classes are known and the rows have no weights, and return the findings.

    Parameters
    ----------
    parts : Parts
    dtype : str
        The type of the sample weights.
    classifies : bool
        Whether labels are classes.
    counted : callable
        A function that returns which labels of y count, or None if rows have no positions.

    Raises
    ------
    DataError
        A part has no labels, a number of rows that differs from ``n_rows``, or invalid weights.
    """
    lengths = [parts.n_rows(i) for i in range(len(parts))]
    order = with_rows(parts)
    if parts.classes is not None:
        order = [order[k] for k in spread(len(order), parts.open_parts)]
    places = _places([lengths[i] for i in order], parts.sample)

    def look(i: int, part: Part) -> _Found:
        return _look(i, part, lengths[i], next(places), dtype, classifies=classifies, counted=counted)

    found = dict(zip(order, read_ahead(parts.read, look, order), strict=True))
    _check_alike(found, order[0])
    if parts.classes is not None and found[order[0]].sample.sample_weight is not None:
        return survey(replace(parts, classes=None), dtype, classifies=classifies, counted=counted)
    return _summary(found, lengths, classifies=classifies, of_all=parts.classes is None)


def _check_alike(found: Mapping[int, _Found], first: int) -> None:
    """Raise if a part differs from the first part in the form of its rows or targets, or in having weights."""
    sample = found[first].sample
    for i, part in found.items():
        check_form(i, part.form, first, found[first].form)
        _check_kinds_of_values(i, part.kinds, first, found[first].kinds)
        check_targets(i, part.sample.y, first, shape_of_targets(sample.y))
        check_weighted(i, part.sample, first, weighted=sample.sample_weight is not None)


def _summary(found: Mapping[int, _Found], lengths: Sequence[int], *, classifies: bool, of_all: bool) -> Survey:
    """Return the findings for all parts from those for each; `of_all` says whether all parts were read."""
    low, high = zip(*(part.range for part in found.values()), strict=True)
    if max(high) == 0:
        raise DataError(NO_WEIGHT)
    differ = min(low) < max(high)
    sample = Part(*_joined([part.sample for part in found.values()]))
    if sample.sample_weight is not None and not sample.sample_weight.any():
        raise DataError(
            f"All {n_rows_of(sample.y)} rows of the sample have weight zero. Use more rows: Parts(source, sample=...)."
        )
    if classifies:
        _check_kinds(found)
    labels, counts = _union(list(found.values()), distinct=classifies)
    flaws = [next((i for i, part in found.items() if flaw in part.flaws), None) for flaw in ("NaN", "infinite")]
    digest = hashlib.sha256(repr(lengths).encode())
    for part in found.values():
        digest.update(part.digest)
    return Survey(
        sample,
        tuple(lengths),
        tuple(found[i].size if differ and i in found else n for i, n in enumerate(lengths)),
        tuple(found[i].weight if i in found else 0.0 for i in range(len(lengths))) if differ else None,
        labels,
        counts,
        _shares(found, labels, len(lengths)) if classifies and of_all else None,
        tuple(sorted({i for i in flaws if i is not None})),
        digest.hexdigest(),
        next((part.label for part in found.values()), None),
    )


def check_length(i: int, part: Part, n_rows: int, *, labelled: bool = True) -> None:
    """Raise if a part has another number of rows than ``n_rows`` says, or lacks y although the rows are labelled."""
    if labelled and part.y is None:
        raise DataError(
            f"Part {i} has no y: read({i}) must return (X, y) or (X, y, sample_weight), for a table "
            "(table.drop(columns='y'), table['y']). With from_parquet, pass label=..., the name of the column; with "
            "from_dask and from_zarr, y."
        )
    if labelled and np.ndim(part.y) == 0:
        raise DataError(
            f"read({i}) must return several rows, but y is a single number. A part of some thousand rows is fast: "
            "return X[start:stop], y[start:stop]."
        )
    n_features, n_labels = n_rows_of(part.X), n_rows_of(part.y) if labelled else n_rows
    if (n_features, n_labels) != (n_rows, n_rows):
        of_y = f" in X and {n_labels} in y" if labelled else ""
        raise DataError(
            f"Part {i} must have n_rows({i}) = {n_rows} rows, but has {n_features}{of_y}. read({i}) must return "
            "as many rows of X as of y, and n_rows must count them."
        )


def check_form(i: int, form: tuple[Any, ...], first: int, form_of_first: tuple[Any, ...]) -> None:
    """Raise if the rows of a part differ from the first part in their columns or in being sparse."""
    if form != form_of_first:
        named = [any(isinstance(entry, str) and entry != "sparse" for entry in f) for f in (form, form_of_first)]
        alike = ", and return a frame for all parts or for none" if named[0] != named[1] else ""
        raise DataError(
            f"All parts must have the same columns or row shape, but part {i} has {form} and part {first} has "
            f"{form_of_first}. Let read(i) select the same columns of each part{alike}."
        )


def _check_kinds_of_values(
    i: int, kinds: Mapping[str, str | None], first: int, kinds_of_first: Mapping[str, str | None]
) -> None:
    """Raise if the type of a column differs from that in the first part, such as strings for floats."""
    for name, kind in kinds.items():
        wanted = kinds_of_first.get(name)
        if kind is not None and wanted is not None and kind != wanted:
            other, remedy = (i, _AS_NUMBERS.get(kind)) if wanted == "numbers" else (first, _AS_NUMBERS.get(wanted))
            where = f" in column {name!r}" if len(kinds) > 1 else ""
            raise DataError(
                f"All parts must have one kind of values, but part {i} has {kind}{where} and part {first} {wanted}. "
                f"Let read({other}) convert them, {remedy}, or select the same columns of each part. "
                "Of a column of categories, let each part return strings, column.astype(str)."
            )


#: How a part makes numbers of its values, by their kind.
_AS_NUMBERS = {
    "strings": "pandas.to_numeric(column, errors='coerce')",
    "dates": "(column - pandas.Timestamp('2020-01-01')).dt.days",
    "durations": "column.dt.total_seconds()",
    "complex numbers": "numpy.c_[X.real, X.imag]",
}


def _kind(values: Any) -> str | None:
    """Return the kind of the values of an array, for messages; None if they may be of any."""
    if scipy.sparse.issparse(values) or not n_rows_of(values):
        return None
    array = _values(values)
    if array.dtype.kind == "O" and any(isinstance(v, (list, tuple, np.ndarray)) for v in array.flat):
        return None  # rows of different lengths
    if array.dtype.kind in "fO" and all(v is None or v != v for v in array.flat):
        return None  # a column without values
    if array.dtype.kind in "OUS":
        holds_text = any(isinstance(v, (str, bytes)) for v in array.flat)
        try:
            array = array.astype(float)
        except (TypeError, ValueError):
            return "strings" if holds_text else None
        if holds_text:  # digits, which may be codes or numbers
            return None
    return {"M": "dates", "m": "durations", "c": "complex numbers"}.get(array.dtype.kind, "numbers")


def shape_of_targets(y: Any) -> tuple[Any, ...]:
    """Return the shape of y of a part, with "n" for the number of its rows."""
    return "n", *as_array(y, "y").shape[1:]


def check_targets(i: int, y: Any, first: int, shape_of_first: tuple[Any, ...]) -> None:
    """Raise if y of a part differs from y of the first part in its axes or number of columns."""
    shape = shape_of_targets(y)
    if shape != shape_of_first:
        found, wanted = (f"({', '.join(map(str, s))}{',' * (len(s) == 1)})" for s in (shape, shape_of_first))
        same = "y.ravel()" if shape == ("n", 1) and len(shape_of_first) == 1 else "the same columns of y for each part"
        raise DataError(
            f"All parts must have y of one shape, but part {i} has {found} and part {first} has {wanted}. Let read(i) "
            f"return {same}."
        )


def check_weighted(i: int, part: Part, first: int, *, weighted: bool) -> None:
    """Raise if a part has weights but the first part has none, or the reverse."""
    if (part.sample_weight is not None) != weighted:
        has, had = ("none", "some") if weighted else ("some", "none")
        raise DataError(
            f"All parts must have sample weights, or none of them, but part {i} has {has} and part {first} has {had}. "
            "Let read(i) return (X, y, sample_weight) for each part, or (X, y)."
        )


def _places(lengths: Sequence[int], n_sample: int) -> Iterator[np.ndarray]:
    """Yield, for each part, the indices of its rows that belong to the sample."""
    ends = np.cumsum([0, *lengths])
    chosen = spread(int(ends[-1]), min(n_sample, int(ends[-1])))
    for start, stop in pairwise(ends):
        yield chosen[(chosen >= start) & (chosen < stop)] - start


@contextmanager
def _of_part(i: int) -> Iterator[None]:
    """Name the part in an error about targets, and its source in the remedy; y is not an argument of the user's."""
    try:
        yield
    except DataError as e:
        raise DataError(f"Part {i}: {for_part(str(e), i)}") from e


def _look(
    i: int,
    part: Part,
    n_rows: int,
    place: np.ndarray,
    dtype: str,
    *,
    classifies: bool,
    counted: Callable[[np.ndarray], np.ndarray | None],
) -> _Found:
    check_length(i, part, n_rows)
    with _of_part(i):
        check_places(part.X, part.y, classifies=classifies)
        if not classifies:
            check_no_text(part.y)
    X, given = as_pandas(part.X), as_array(part.y, "y")
    y = given.toarray() if scipy.sparse.issparse(given) else np.asarray(given)
    weight = part.sample_weight
    if weight is not None:
        weight = check_sample_weight(weight, y, dtype, keep=True)
    sums = (n_rows, float(n_rows), (1.0, 1.0))
    if weight is not None:
        of_steps = weight.astype(dtype)
        sums = (int(np.count_nonzero(of_steps)), float(of_steps.sum(dtype=np.float64)), (weight.min(), weight.max()))
    of_sample = take_rows(given, place, n_rows) if scipy.sparse.issparse(given) else y[place]  # as are predictions
    sample = Part(take_rows(X, place, n_rows), of_sample, None if weight is None else weight[place])
    ends = take_rows(X, np.unique([0, n_rows - 1]), n_rows)
    digest = b"".join(_content(array) for array in (y, weight, *_columns(ends)))
    which = counted(y) if classifies else None
    labels, counts = _labels(y if which is None else y[which], classifies=classifies, i=i)
    weighed = counts
    if weight is not None and which is None and labels.ndim == 1 and classifies:
        weighed = np.bincount(np.searchsorted(labels, y.ravel()[weight != 0]), minlength=len(labels))
    fingerprint, label = hashlib.sha256(digest).digest(), getattr(part.y, "name", None)
    kinds = {str(getattr(column, "name", k)): _kind(column) for k, column in enumerate(_columns(X))}
    return _Found(sample, form_of(X), *sums, labels, counts, weighed, _flaws(X) | _flaws(y), fingerprint, label, kinds)


def _labels(y: np.ndarray, *, classifies: bool, i: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct labels and their counts; for real-valued or several targets, the minimum and the maximum."""
    if classifies and (y.ndim == 1 or y.shape[1:] == (1,)):
        try:
            return np.unique(y, return_counts=True)
        except TypeError as e:
            missing = sum(label is None or label != label for label in y.ravel().tolist())
            if missing:
                raise _without_labels(i, missing, "label (None or NaN)", "pandas.notna(y)") from e
            raise DataError(f"Labels must be of one type, numbers or strings: {e}") from e
    return np.stack([y.min(axis=0), y.max(axis=0)]) if y.dtype.kind in "fiub" else y[:1], np.array([len(y), len(y)])


def _without_labels(i: int, n_rows: int, missing: str, known: str) -> DataError:
    """Return the error for rows of a part without a label or target, with the expression of those to keep."""
    return DataError(
        f"Part {i} has {n_rows} rows without a {missing}. Leave them out: let read({i}) return X[known], y[known] with "
        f"known = {known}. For from_parquet, write the files without these rows: "
        "table.dropna(subset=[label]).to_parquet(path)."
    )


def of_missing_targets(error: DataError, parts: Iterable[tuple[int, ArrayLike]]) -> DataError:
    """Return an error about a missing target of a regression with the number of its part; another error as it is.

    `parts` are the numbers and the targets of parts.
    """
    if "Input y contains NaN" not in str(error):
        return error
    for i, y in parts:
        values = as_array(y, "y")
        values = np.asarray(values.toarray() if scipy.sparse.issparse(values) else values, np.float64)
        if n_rows := int(np.isnan(values).reshape(len(values), -1).any(axis=1).sum()):
            known = "numpy.isfinite(y)" if values.ndim == 1 else "numpy.isfinite(y).all(axis=1)"
            return _without_labels(i, n_rows, "target (NaN)", known)
    return error


def _check_kinds(found: Mapping[int, _Found]) -> None:
    """Raise if labels are strings in one part and integers in another: numpy would make 1 and "1" the same class."""
    labels = {i: part.labels[:1].tolist()[0] for i, part in found.items()}
    first, label = next(iter(labels.items()))
    for i, other in labels.items():
        if isinstance(other, str) != isinstance(label, str):
            raise DataError(
                f"Labels must be of one type, numbers or strings: part {i} has {other!r}, part {first} has {label!r}."
            )


def _union(found: Sequence[_Found], *, distinct: bool) -> tuple[np.ndarray, np.ndarray]:
    labels, counts = (np.concatenate(arrays) for arrays in ([f.labels for f in found], [f.weighed for f in found]))
    if not distinct or labels.ndim > 1:
        return _labels(labels, classifies=False)
    distinct_labels, which = np.unique(labels, return_inverse=True)
    return distinct_labels, np.bincount(which, counts).astype(np.int64)


def _shares(found: Mapping[int, _Found], labels: np.ndarray, n_parts: int) -> np.ndarray | None:
    """Return the share of each label in the rows of each part; None if too many, or if rows have several labels."""
    if labels.ndim > 1 or n_parts * len(labels) > _MOST_SHARES:
        return None
    shares = np.zeros((n_parts, len(labels)))
    for i, part in found.items():
        shares[i, np.searchsorted(labels, part.labels)] = part.counts / max(part.counts.sum(), 1)
    return shares


def _columns(X: Any) -> list[Any]:
    """Return the arrays of rows of any form: a matrix itself, or the columns of a frame."""
    if isinstance(X, (Mapping, Inputs)):
        return [X[name] for name in X.keys()]  # noqa: SIM118  # Inputs iterate over rows
    if is_frame(X):
        return [X.iloc[:, k] for k in range(X.shape[1])]
    return [X]


def n_rows_of(X: Any) -> int:
    """Return the number of rows of any form."""
    first = _columns(X)[0] if isinstance(X, Mapping) else X
    return int(first.shape[0]) if hasattr(first, "shape") else len(first)


def form_of(X: Any) -> tuple[Any, ...]:
    """Return the sorted names of the columns or, without names, the shape of a row and whether it is sparse."""
    if isinstance(X, (Mapping, Inputs)):
        return tuple(sorted(map(str, X.keys())))
    if hasattr(X, "columns"):
        return tuple(sorted(map(str, X.columns)))
    return (*getattr(X, "shape", ())[1:], *(["sparse"] if scipy.sparse.issparse(X) else []))


def _flaws(X: Any) -> frozenset[str]:
    """Return which values that a model may refuse the rows contain: NaN, infinite."""
    found = set()
    for column in _columns(X):
        array = column.data if scipy.sparse.issparse(column) else _values(column)
        if array.dtype.kind == "O":
            found |= {"NaN"} if any(isinstance(v, float) and math.isnan(v) for v in array.ravel()) else set()
        elif array.dtype.kind == "f" and not np.isfinite(array).all():
            found |= {"NaN"} if np.isnan(array).any() else set()
            found |= {"infinite"} if np.isinf(array).any() else set()
    return frozenset(found)


def _content(values: Any) -> bytes:
    """Return bytes that differ if the values differ."""
    if values is None:
        return b"none"
    if scipy.sparse.issparse(values):
        values = values.toarray()
    array = _values(values)
    header = f"{array.shape}{array.dtype}".encode()
    return header + (
        np.ascontiguousarray(array).tobytes() if array.dtype.kind in "fiub" else repr(array.tolist()).encode()
    )


def _values(column: Any) -> np.ndarray:
    """Return values as an array; ragged rows are concatenated."""
    try:
        return np.asarray(as_array(column))
    except ValueError:
        return np.concatenate([np.ravel(as_array(row)) for row in column])


def take_rows(X: Any, rows: np.ndarray, n_rows: int) -> Any:
    """Return some rows of any form; all rows are returned uncopied."""
    if len(rows) == n_rows:
        return X
    if isinstance(X, Mapping):
        return {name: take_rows(column, rows, n_rows) for name, column in X.items()}
    if is_frame(X):
        return X.iloc[rows]
    if isinstance(X, (list, tuple)):
        return [X[i] for i in rows.tolist()]
    return (X.tocsr() if scipy.sparse.issparse(X) else X if isinstance(X, Inputs) else as_array(X))[rows]


def _joined(samples: Sequence[Part]) -> Iterator[Any]:
    """Yield the concatenated rows, labels and weights of several samples."""
    for values in zip(*(part for part in samples if n_rows_of(part.y)), strict=True):
        yield None if values[0] is None else concatenated(values)


def concatenated(values: Sequence[Any]) -> Any:
    """Return the concatenated rows of arrays, frames, lists or mappings."""
    first = values[0]
    if len(values) == 1:
        return first
    if isinstance(first, Mapping):
        return {name: concatenated([value[name] for value in values]) for name in first}
    if isinstance(first, Inputs):
        return Inputs(**{name: concatenated([value[name] for value in values]) for name in first.keys()})  # noqa: SIM118  # it iterates over rows
    if is_frame(first):
        import pandas as pd

        return pd.concat(values, ignore_index=True)
    if scipy.sparse.issparse(first):
        return scipy.sparse.vstack(values, format="csr")
    if isinstance(first, (list, tuple)):
        return [row for value in values for row in value]
    return np.concatenate([np.asarray(as_array(value)) for value in values])
