"""Rows of the training data: the protocol that the trainer uses, and rows as arrays in memory or in temporary files."""

from __future__ import annotations

import hashlib
import math
import sys
import tempfile
from collections.abc import Container, Generator, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import scipy.sparse

from onnxtrain.runtime.device import Device

#: More rows than this are shuffled in blocks: a permutation of all rows would fill the memory.
LARGE = 2**23

#: The rows of a block, and the number of adjacent rows that stay in one block because they are read together. A block
#: of only adjacent rows would hold one class if the rows are sorted by label.
_BLOCK = 2**20
_NEIGHBOURS = 2**8

#: The largest number of rows that are evaluated together, outside training.
_MOST_AT_ONCE = 20_000
_FEWEST_AT_ONCE = 4096

#: The number of rows that onnxruntime multiplies at once by a column of weights that is an input; it rounds the
#: remaining rows differently.
GROUP = 16

#: The largest number of bytes of the scores of rows that are evaluated together.
_RESULTS = 2**26

#: The bytes of sparse rows that a step takes at once, and the least for a small matrix: up to half of its size, because
#: a step has its rows and the next ones, and memory is proportional to the matrix. Larger pieces are faster.
_DENSE_BYTES, _FEWEST_DENSE_BYTES = 2**24, 2**22

#: The bytes of rows that fit in the cache of a core together with the activations of a network.
_CACHED_BYTES = 2**21

#: The endings of the names of the inputs that take the stored entries of sparse rows: the column, the row and the value
#: of each, and a zero for each row.
COLUMNS, ROWS, VALUES, ZEROS = ".columns", ".rows", ".values", ".zeros"

#: No inputs of which a step reads the stored entries.
NOTHING: Mapping[str, int] = MappingProxyType({})

#: The number of rows at each end that enter a fingerprint.
_COMPARED = 100


class Piece(NamedTuple):
    """Some rows in the form for onnxruntime: arrays, or OrtValues on a device."""

    n_rows: int
    features: Mapping[str, Any]
    label: Any
    weight: Any

    def on(self, device: Device) -> Piece:
        """Return the same rows on a device."""
        features = {name: device.put(x) for name, x in self.features.items()}
        return Piece(
            self.n_rows, features, device.put(self.label), None if self.weight is None else device.put(self.weight)
        )


class Batch(NamedTuple):
    """Some rows of arrays, which are gathered when they are needed."""

    data: TrainingData
    rows: np.ndarray | slice

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.data.label[self.rows])

    @property
    def weight(self) -> float:
        """The sum of the sample weights."""
        if self.data.weight is None:
            return float(self.n_rows)
        weight = self.data.weight[self.rows, 0]
        return np.add.reduceat(weight, [0], dtype=np.float64)[0]  # rounded as in a gathered step

    @property
    def piece(self) -> Piece:
        """The rows, dense, in the types of the model."""
        return self.data.piece(self.rows)


class HasFingerprint(Protocol):
    """Rows of a fit, wherever they are."""

    def fingerprint(self) -> str:
        """Return a fingerprint, which a resumed fit compares with that of the killed fit."""


class EpochRows(HasFingerprint, Protocol):
    """The rows of a fit as the trainer sees them: in batches during an epoch, or in pieces in their order.

    The implementations are arrays (:class:`TrainingData`) and parts that are read when they are needed
    (:class:`~onnxtrain.training.parts.PartedData`).
    """

    @property
    def n_rows(self) -> int:
        """The number of rows that count."""

    @property
    def weighted(self) -> bool:
        """Whether the rows have sample weights."""

    @property
    def total_weight(self) -> float:
        """The sum of the sample weights."""

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        """The values of the inputs of the model that are the same for all rows."""

    @property
    def at_hand(self) -> TrainingData | None:
        """The arrays of all rows if a step can gather its rows from them; None if the step must be fed batches."""

    @property
    def rows_at_once(self) -> int:
        """The number of rows to evaluate together, outside training."""

    @property
    def sparse_at_once(self) -> int:
        """The number of sparse rows that a step may take at once; unlimited if none is sparse."""

    @property
    def bytes_of_scores(self) -> int:
        """The approximate bytes of the scores of a row."""

    def epoch(self, size: int, random_state: np.random.RandomState | None) -> Generator[Batch]:
        """Yield every row that counts once, in batches of `size`; shuffled if `random_state` is given."""

    def pieces(self, device: Device) -> Iterator[Piece]:
        """Yield the rows that count in order, in pieces."""

    def with_shuffled_labels(self) -> Self:
        """Return the same rows with permuted labels; the permutation is always the same."""


@dataclass(frozen=True)
class TrainingData:
    """The rows that a model is trained or evaluated on, as arrays.

    Attributes
    ----------
    features : mapping of str to array-like
        The n rows of each input of the model: an ndarray, which may be a memmap, or a CSR matrix.
    label : ndarray (n, k), or with an axis for each of the positions of a row
    weight : ndarray (n, 1), optional
        Rows of weight zero are never visited.
    dtypes : mapping of str to numpy dtype
        The type of each input.
    constants : mapping of str to ndarray
        The values of the inputs of the model that are the same for all rows.
    chosen : ndarray of int64, optional
        The indices of the rows that are visited; None for all. A subset of the rows is not copied.
    n_scores : int
        The number of scores per entry of the label; the scores of a language model take more memory than its rows.
    stored : mapping of str to int
        The sparse inputs whose stored entries a step reads, and the number of columns of their products.
    """

    features: Mapping[str, Any]
    label: np.ndarray
    weight: np.ndarray | None
    dtypes: Mapping[str, np.dtype]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    chosen: np.ndarray | None = None
    n_scores: int = 1
    stored: Mapping[str, int] = field(default_factory=dict)
    _placed: dict[Device, list[Piece]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def rows(self) -> np.ndarray:
        """The indices of the rows that count, int64."""
        rows = np.arange(len(self.label), dtype=np.int64) if self.chosen is None else self.chosen
        return rows if self.weight is None else rows[self.weight[rows, 0] != 0]

    @property
    def n_rows(self) -> int:
        """The number of rows that count."""
        return len(self.label) if self.chosen is None and self.weight is None else len(self.rows)

    @property
    def weighted(self) -> bool:
        """Whether the rows have sample weights."""
        return self.weight is not None

    @property
    def has_texts(self) -> bool:
        """Whether an input takes strings, which a step cannot: they must stay in the frozen front."""
        return any(dtype.kind in "OU" for dtype in self.dtypes.values())

    @property
    def in_blocks(self) -> bool:
        """Whether the rows are shuffled in blocks because there are very many of them."""
        return self.chosen is None and self.weight is None and len(self.label) > LARGE

    @property
    def total_weight(self) -> float:
        """The sum of the sample weights."""
        if self.weight is None:
            return float(len(self.label) if self.chosen is None else len(self.chosen))
        return float(self.weight[slice(None) if self.chosen is None else self.chosen].sum(dtype=np.float64))

    @property
    def at_hand(self) -> TrainingData | None:
        """The data itself if onnxruntime can use every array as it is, so that a step can gather rows; else None."""
        ready = not self.in_blocks and all(
            isinstance(x, np.ndarray) and x.dtype == self.dtypes[name] and x.flags.c_contiguous
            for name, x in self.features.items()
        )
        return self if ready else None

    def subset(self, rows: np.ndarray) -> TrainingData:
        """Return the same data with only `rows` visited."""
        return replace(self, chosen=np.sort(rows).astype(np.int64))

    def storing(self, stored: Mapping[str, int]) -> TrainingData:
        """Return the same rows, of which a step reads the stored entries of some inputs."""
        if not stored:
            return self
        features = {name: scipy.sparse.csr_matrix(x) if name in stored else x for name, x in self.features.items()}
        return replace(self, features=features, stored=stored)

    def with_shuffled_labels(self) -> TrainingData:
        """Return the same rows with permuted labels; the permutation is always the same."""
        return replace(self, label=np.random.RandomState(0).permutation(self.label))

    def take(self, rows: np.ndarray | slice) -> dict[str, np.ndarray]:
        """Return the features of some rows in the types of the model: dense, or their stored entries."""
        return take(self.features, rows, self.dtypes, self.stored)

    def piece(self, rows: np.ndarray | slice) -> Piece:
        """Return some rows in the form for onnxruntime."""
        label = self.label[rows]
        return Piece(len(label), self.take(rows), label, None if self.weight is None else self.weight[rows])

    def epoch(self, size: int, random_state: np.random.RandomState | None) -> Generator[Batch]:
        """Yield the rows of nonzero weight in batches of `size`; shuffled if `random_state` is given."""
        return (Batch(self, rows) for rows in self.shuffled(size, random_state))

    def shuffled(self, size: int, random_state: np.random.RandomState | None) -> Iterator[np.ndarray]:
        """Yield the indices of the rows of nonzero weight in batches of `size`; shuffled if `random_state` is given.

        Very many rows are divided into blocks of groups of adjacent rows from everywhere, and shuffled within each
        block.
        """
        if not self.in_blocks:
            rows = self.rows if random_state is None else random_state.permutation(self.rows)
            yield from (rows[part] for part in batches(len(rows), size))
            return
        rows = np.empty(0, np.int64)
        for block in self._blocks(random_state):
            rows = np.concatenate([rows, block])
            whole = len(rows) // size * size
            yield from (rows[part] for part in batches(whole, size))
            rows = rows[whole:]
        if len(rows):
            yield rows

    def _blocks(self, random_state: np.random.RandomState | None) -> Iterator[np.ndarray]:
        """Yield the indices of the rows in blocks; in random order if `random_state` is given."""
        n = len(self.label)
        starts = np.arange(0, n, _NEIGHBOURS)
        starts = starts if random_state is None else random_state.permutation(starts)
        for part in batches(len(starts), max(_BLOCK // _NEIGHBOURS, 1)):
            rows = (starts[part, None] + np.arange(_NEIGHBOURS)).ravel()
            rows = rows[rows < n]
            yield rows if random_state is None else random_state.permutation(rows)

    def pieces(self, device: Device) -> Iterator[Piece]:
        """Yield the rows that count in order, in pieces; a device with its own memory keeps them for the next call."""
        if self.at_hand is None or not device.capabilities.holds_data:
            yield from self._cut(self.rows_at_once)
            return
        if device not in self._placed:
            size = min(_MOST_AT_ONCE, most_rows(self.bytes_of_scores))
            self._placed[device] = [piece.on(device) for piece in self._cut(size)]
        yield from self._placed[device]

    @property
    def rows_at_once(self) -> int:
        """The number of rows to evaluate together, outside training."""
        n = rows_at_once(self.features, self.dtypes, self.stored)
        return min(n, most_rows(self.bytes_of_scores), self.sparse_at_once)

    @property
    def bytes_of_scores(self) -> int:
        """The approximate bytes of the scores of a row."""
        return 4 * self.n_scores * math.prod(self.label.shape[1:])

    @property
    def sparse_at_once(self) -> int:
        """The number of sparse rows that a step may take at once; unlimited if none is sparse."""
        n_bytes = sum(x.data.nbytes + x.indices.nbytes for x in self.features.values() if scipy.sparse.issparse(x))
        return sparse_at_once(self.features, self.dtypes, max(n_bytes // 2, _FEWEST_DENSE_BYTES), self.stored)

    def _cut(self, size: int) -> Iterator[Piece]:
        return map(self.piece, self.batches(size))

    def batches(self, size: int) -> Iterator[np.ndarray | slice]:
        """Yield the indices of the rows that count in order, `size` at a time; slices if all rows count."""
        if self.chosen is None and (self.weight is None or self.weight.all()):
            yield from batches(len(self.label), size)
        else:
            rows = self.rows
            yield from (rows[part] for part in batches(len(rows), size))

    def fingerprint(self) -> str:
        """Return a fingerprint of the labels, the sample weights, and the first and last rows."""
        found = hashlib.sha256()
        arrays = [self.label, self.weight, self.chosen]
        for rows in (slice(0, _COMPARED), slice(max(len(self.label) - _COMPARED, 0), None)):
            arrays += self.take(rows).values()
        for array in arrays:
            found.update(b"none" if array is None else f"{array.shape}{array.dtype}".encode())
            found.update(b"" if array is None else np.ascontiguousarray(array).data.cast("B"))
        return found.hexdigest()


def rows_at_once(
    features: Mapping[str, Any], dtypes: Mapping[str, np.dtype], stored: Mapping[str, int] = NOTHING
) -> int:
    """Return the number of rows to evaluate together, outside training.

    This many rows, with the activations of a network, fit in the cache of a core until they are read again. For sparse
    rows with many columns the number is smaller. It is a multiple of ``GROUP``.
    """
    row = bytes_of_a_row(features, dtypes, stored)
    n = min(_MOST_AT_ONCE, max(_FEWEST_AT_ONCE, _CACHED_BYTES // row))
    n_bytes = _FEWEST_DENSE_BYTES if stored else _DENSE_BYTES  # stored entries are evaluated as fast in small pieces
    return max(min(n, sparse_at_once(features, dtypes, n_bytes, stored)) // GROUP, 1) * GROUP


def sparse_at_once(
    features: Mapping[str, Any],
    dtypes: Mapping[str, np.dtype],
    n_bytes: float = math.inf,
    stored: Mapping[str, int] = NOTHING,
) -> int:
    """Return the number of sparse rows that a step may take at once, in `n_bytes`; unlimited if none is sparse."""
    if not any(map(scipy.sparse.issparse, features.values())):
        return sys.maxsize
    return max(1, int(min(n_bytes, _DENSE_BYTES) // bytes_of_a_row(features, dtypes, stored)))


def bytes_of_a_row(
    features: Mapping[str, Any], dtypes: Mapping[str, np.dtype], stored: Mapping[str, int] = NOTHING
) -> int:
    """Return the bytes of a row in a step, at least 1: of a dense row, or of its stored entries and their products."""
    found = 0.0
    for name, x in features.items():
        each = dtypes[name].itemsize
        if name in stored:  # of each entry its column and row, its value, and the rows of the matrix before and after
            found += x.nnz / max(x.shape[0], 1) * (16 + each + 2 * each * stored[name])
        else:
            found += math.prod(x.shape[1:]) * each
    return max(int(found), 1)


def most_rows(n_bytes: int) -> int:
    """Return the number of rows that may be evaluated together if the results of a row take `n_bytes`."""
    return max(1, _RESULTS // max(n_bytes, 1))


def take(
    features: Mapping[str, Any],
    rows: np.ndarray | slice,
    dtypes: Mapping[str, np.dtype],
    stored: Container[str] = (),
) -> dict[str, np.ndarray]:
    """Return some rows in given types: dense, or the stored entries of the inputs in `stored`."""
    found = dict[str, np.ndarray]()
    for name, x in features.items():
        found |= entries(name, x[rows], dtypes[name]) if name in stored else {name: dense(x[rows], dtypes[name])}
    return found


def dense(x: Any, dtype: np.dtype) -> np.ndarray:
    """Return rows as a C-contiguous ndarray of type `dtype`, without a copy if they already are."""
    return np.ascontiguousarray(x.toarray() if scipy.sparse.issparse(x) else x, dtype=dtype)


def entries(name: str, x: scipy.sparse.csr_matrix, dtype: np.dtype) -> dict[str, np.ndarray]:
    """Return the stored entries of sparse rows, by the names of the inputs that take them.

    Examples
    --------
    >>> found = entries("X", scipy.sparse.csr_matrix([[0, 0, 3], [0, 0, 0], [4, 0, 5]]), np.dtype("float32"))
    >>> {name: x.ravel().tolist() for name, x in found.items()}
    {'X.columns': [2, 0, 2], 'X.rows': [0, 2, 2], 'X.values': [3.0, 4.0, 5.0], 'X.zeros': [0.0, 0.0, 0.0]}
    """
    n = x.shape[0]
    return {
        name + COLUMNS: x.indices.astype(np.int64),
        name + ROWS: np.repeat(np.arange(n, dtype=np.int64), np.diff(x.indptr))[:, None],
        name + VALUES: x.data.astype(dtype)[:, None],
        name + ZEROS: np.zeros((n, 1), dtype),
    }


def batches(n: int, size: int) -> Iterator[slice]:
    """Yield slices that cover ``range(n)``, `size` rows each, the last one smaller.

    Examples
    --------
    >>> list(batches(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


# ---------------------------------------------- more rows than fit into memory


K = TypeVar("K", bound=Hashable)


def in_files(pieces: Iterable[Mapping[K, np.ndarray]], shapes: Mapping[K, tuple[int, ...]]) -> dict[K, np.ndarray]:
    """Return arrays of the given shapes, each mapped from a file that holds its part of all pieces, concatenated.

    The files have no name or, on Windows, are deleted by the system when they are closed, so an interrupt leaves no
    files.

    Raises
    ------
    OSError
        The disk is full.
    """
    with ExitStack() as stack:
        files = {key: stack.enter_context(tempfile.TemporaryFile(prefix="onnxtrain-")) for key in shapes}
        dtypes: dict[K, np.dtype] = {}
        for piece in pieces:
            for key, array in piece.items():
                dtypes[key] = array.dtype
                files[key].write(np.ascontiguousarray(array).data.cast("B"))
        for file in files.values():
            file.flush()
        return {key: _mapped(files[key], dtypes[key], shape) for key, shape in shapes.items()}


def _mapped(file: object, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if not math.prod(shape):
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, "r+", shape=shape)  # type: ignore[call-overload]  # it has a handle of its own
