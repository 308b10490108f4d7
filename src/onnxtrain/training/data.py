"""Rows of the training data: the protocol of the trainer, and rows whose arrays are at hand."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse

from onnxtrain.runtime.device import Device

#: Rows above which they are visited block by block: a permutation of all of them would fill the memory.
LARGE = 2**23

#: Rows of a block, and how many neighbours among them are in the same one, as they are read together. A block of
#: neighbours alone would be one class where the rows are sorted by label.
_BLOCK = 2**20
_NEIGHBOURS = 2**8

#: Rows evaluated together, outside training.
_MOST_AT_ONCE = 20_000
_FEWEST_AT_ONCE = 4096

#: Rows that onnxruntime multiplies at once by a column of weights that is an input; it rounds the rest differently.
GROUP = 16

#: Maximum bytes of the scores of rows that are evaluated together.
_RESULTS = 2**26

#: Bytes of sparse rows that are made dense together.
_DENSE_BYTES = 2**24

#: Bytes of rows that stay in the cache of a core, together with the activations of a network.
_CACHED_BYTES = 2**21

#: Rows at either end that are part of a fingerprint.
_COMPARED = 100


class Piece(NamedTuple):
    """Some rows, as onnxruntime is fed them: arrays, or OrtValues of a device that holds data."""

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
    """Some rows of arrays, taken when they are asked for."""

    data: TrainingData
    rows: np.ndarray | slice

    @property
    def n_rows(self) -> int:
        """How many."""
        return len(self.data.label[self.rows])

    @property
    def weight(self) -> float:
        """The sum of their weights."""
        if self.data.weight is None:
            return float(self.n_rows)
        weight = self.data.weight[self.rows, 0]
        return np.add.reduceat(weight, [0], dtype=np.float64)[0]  # rounded as those of a gathered step

    @property
    def piece(self) -> Piece:
        """The rows, dense, of the types that the model takes."""
        return self.data.piece(self.rows)


class HasFingerprint(Protocol):
    """Rows of a fit, wherever they lie."""

    def fingerprint(self) -> str:
        """Return a fingerprint that a resumed fit compares with that of the one that was killed."""


class EpochRows(HasFingerprint, Protocol):
    """The rows of a fit as the trainer sees them: batch by batch in an epoch, piece by piece in their order.

    Arrays (:class:`TrainingData`) and parts that are read when they are needed
    (:class:`~onnxtrain.training.parts.PartedData`) are the two kinds.
    """

    @property
    def n_rows(self) -> int:
        """How many rows count."""

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""

    @property
    def total_weight(self) -> float:
        """The sum of the weights of the rows."""

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        """For each input of the model that is the same for all rows, its value."""

    @property
    def at_hand(self) -> TrainingData | None:
        """The arrays of all rows if a step can take its rows from them by itself; None: it is fed batches."""

    @property
    def rows_at_once(self) -> int:
        """The number of rows to evaluate together, outside training."""

    @property
    def dense_at_once(self) -> int:
        """The number of rows that may be made dense together; any number if none is sparse."""

    @property
    def bytes_of_scores(self) -> int:
        """The bytes of the scores of a row, about."""

    def epoch(self, size: int, random_state: np.random.RandomState | None) -> Generator[Batch]:
        """Yield every row that counts once, in batches of `size`, in a drawn order if there is a generator."""

    def pieces(self, device: Device) -> Iterator[Piece]:
        """Yield the rows that count in their order, some at a time."""

    def with_shuffled_labels(self) -> Self:
        """Return the same rows, each with the label of another; always in the same order."""


@dataclass(frozen=True)
class TrainingData:
    """The rows that a model is trained or evaluated on, as arrays.

    Attributes
    ----------
    features : mapping of str to array-like
        For each input of the model, n rows: an ndarray (a memmap too) or a CSR matrix.
    label : ndarray (n, k), or with an axis for each of the positions of a row
    weight : ndarray (n, 1), optional
        Rows of weight zero are never visited.
    dtypes : mapping of str to numpy dtype
        The type of each input.
    constants : mapping of str to ndarray
        For each input of the model that is the same for all rows, its value.
    chosen : ndarray of int64, optional
        The rows that are visited; None for all. Nothing is copied for a part of the rows.
    n_scores : int
        The number of scores that belong to an entry of the label: those of a language model take more memory than
        its rows.
    """

    features: Mapping[str, Any]
    label: np.ndarray
    weight: np.ndarray | None
    dtypes: Mapping[str, np.dtype]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    chosen: np.ndarray | None = None
    n_scores: int = 1
    _placed: dict[Device, list[Piece]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def rows(self) -> np.ndarray:
        """The rows that count, int64."""
        rows = np.arange(len(self.label), dtype=np.int64) if self.chosen is None else self.chosen
        return rows if self.weight is None else rows[self.weight[rows, 0] != 0]

    @property
    def n_rows(self) -> int:
        """How many rows count."""
        return len(self.label) if self.chosen is None and self.weight is None else len(self.rows)

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return self.weight is not None

    @property
    def has_texts(self) -> bool:
        """Whether an input takes texts, which no step can: they must stay in the frozen front."""
        return any(dtype.kind in "OU" for dtype in self.dtypes.values())

    @property
    def in_blocks(self) -> bool:
        """Whether there are so many rows that they are visited block by block."""
        return self.chosen is None and self.weight is None and len(self.label) > LARGE

    @property
    def total_weight(self) -> float:
        """The sum of the weights of the rows."""
        if self.weight is None:
            return float(len(self.label) if self.chosen is None else len(self.chosen))
        return float(self.weight[slice(None) if self.chosen is None else self.chosen].sum(dtype=np.float64))

    @property
    def at_hand(self) -> TrainingData | None:
        """The arrays, if onnxruntime takes every feature as it lies in memory: a step selects its rows by itself."""
        ready = not self.in_blocks and all(
            isinstance(x, np.ndarray) and x.dtype == self.dtypes[name] and x.flags.c_contiguous
            for name, x in self.features.items()
        )
        return self if ready else None

    def subset(self, rows: np.ndarray) -> TrainingData:
        """Return the same data, of which only `rows` are visited."""
        return replace(self, chosen=np.sort(rows).astype(np.int64))

    def with_shuffled_labels(self) -> TrainingData:
        """Return the same rows, each with the label of another; always in the same order."""
        return replace(self, label=np.random.RandomState(0).permutation(self.label))

    def take(self, rows: np.ndarray | slice) -> dict[str, np.ndarray]:
        """Return the features of some rows, dense, of the type the model takes."""
        return {name: dense(x[rows], self.dtypes[name]) for name, x in self.features.items()}

    def piece(self, rows: np.ndarray | slice) -> Piece:
        """Return some rows as onnxruntime is fed them."""
        label = self.label[rows]
        return Piece(len(label), self.take(rows), label, None if self.weight is None else self.weight[rows])

    def epoch(self, size: int, random_state: np.random.RandomState | None) -> Generator[Batch]:
        """Yield the rows of nonzero weight in batches of `size`, shuffled if there is a generator."""
        return (Batch(self, rows) for rows in self.shuffled(size, random_state))

    def shuffled(self, size: int, random_state: np.random.RandomState | None) -> Iterator[np.ndarray]:
        """Yield the rows of nonzero weight in batches of `size`, shuffled if there is a generator.

        Very many rows are shuffled by blocks that have neighbours from everywhere, and within each block.
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
        """Yield the rows block by block, in random order if there is a generator."""
        n = len(self.label)
        starts = np.arange(0, n, _NEIGHBOURS)
        starts = starts if random_state is None else random_state.permutation(starts)
        for part in batches(len(starts), max(_BLOCK // _NEIGHBOURS, 1)):
            rows = (starts[part, None] + np.arange(_NEIGHBOURS)).ravel()
            rows = rows[rows < n]
            yield rows if random_state is None else random_state.permutation(rows)

    def pieces(self, device: Device) -> Iterator[Piece]:
        """Yield the rows that count in order, some at a time; a device that holds data keeps them for the next time."""
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
        return min(rows_at_once(self.features, self.dtypes), most_rows(self.bytes_of_scores))

    @property
    def bytes_of_scores(self) -> int:
        """The bytes of the scores of a row, about."""
        return 4 * self.n_scores * math.prod(self.label.shape[1:])

    @property
    def dense_at_once(self) -> int:
        """The number of rows that may be made dense together; any number if none is sparse."""
        return dense_at_once(self.features, self.dtypes)

    def _cut(self, size: int) -> Iterator[Piece]:
        return map(self.piece, self.batches(size))

    def batches(self, size: int) -> Iterator[np.ndarray | slice]:
        """Yield the rows that count in order, `size` at a time; slices where all of them do."""
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


def rows_at_once(features: Mapping[str, Any], dtypes: Mapping[str, np.dtype]) -> int:
    """Return the number of rows to evaluate together, outside training.

    They and the activations of a network are still in the cache of a core when they are read again; of sparse rows
    with many columns there are fewer. The number is a multiple of ``GROUP``.
    """
    row = bytes_of_a_row(features, dtypes)
    n = min(_MOST_AT_ONCE, max(_FEWEST_AT_ONCE, _CACHED_BYTES // row))
    return min(n, dense_at_once(features, dtypes)) // GROUP * GROUP


def dense_at_once(features: Mapping[str, Any], dtypes: Mapping[str, np.dtype]) -> int:
    """Return the number of rows that may be made dense together; any number if none is sparse."""
    if not any(map(scipy.sparse.issparse, features.values())):
        return sys.maxsize
    return max(GROUP, _DENSE_BYTES // bytes_of_a_row(features, dtypes))


def bytes_of_a_row(features: Mapping[str, Any], dtypes: Mapping[str, np.dtype]) -> int:
    """Return the bytes of a row when it is dense, 1 or more."""
    return max(sum(math.prod(x.shape[1:]) * dtypes[name].itemsize for name, x in features.items()), 1)


def most_rows(n_bytes: int) -> int:
    """Return the number of rows whose results, of so many bytes each, may be computed together."""
    return max(1, _RESULTS // max(n_bytes, 1))


def dense(x: Any, dtype: np.dtype) -> np.ndarray:
    """Return rows as a C-contiguous ndarray of type `dtype`, without a copy where they are one."""
    return np.ascontiguousarray(x.toarray() if scipy.sparse.issparse(x) else x, dtype=dtype)


def batches(n: int, size: int) -> Iterator[slice]:
    """Yield slices that cover ``range(n)``, `size` rows each, the last one smaller.

    Examples
    --------
    >>> list(batches(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(start, min(start + size, n)) for start in range(0, n, size))
