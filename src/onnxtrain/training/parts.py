"""Rows of the training data in parts, of which a few are in memory: how an epoch mixes them.

Of P parts k are open at a time, and the next one is being read. An epoch is a sequence of stretches. Each takes rows
of all open parts, in an order of its own, and ends where one of them has no more; the next part is opened in its place.
The open parts stand at the rungs of a ladder, so that they end one after the other, while the next is read::

    rows left        ####    stretch      ###     next part     ####      each stretch takes
    of 4 open        ###   ----------->   ##    ------------>   ###       the same share
    parts            ##                   #                     ##        of each part
                     #                                          #

At the beginning all are whole, and the first stretch takes more of some, down to these rungs. At the end, when no part
is left to open, one stretch takes all. So if P <= k an epoch is one stretch over all rows: that of rows in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from typing import Any, Protocol, Self

import numpy as np
import scipy.sparse

from onnxtrain.errors import DataError
from onnxtrain.rows.parts import read_ahead
from onnxtrain.runtime.device import Device
from onnxtrain.training.data import Batch, Piece, TrainingData, batches, bytes_of_a_row

#: Bytes of mixed rows that are put together at once: of single batches it takes twice the time.
_MIXED_BYTES = 2**22


class PartReader(Protocol):
    """Parts of the rows, read one after the other."""

    def __len__(self) -> int:
        """How many."""

    def read(self, i: int) -> Any:
        """Return a part as its file has it; called in a thread, while steps are done."""

    def check(self, i: int, part: Any) -> TrainingData:
        """Return a part that was read as the objective takes it."""


@dataclass(frozen=True)
class Split:
    """The rows of each part that are held out, drawn anew from the same seeds whenever the part is read.

    Attributes
    ----------
    seeds : tuple of int
        One for each part.
    n_held_out : tuple of int
        How many rows of each part.
    held_out : bool
        Whether these are visited, or the others.
    """

    seeds: tuple[int, ...]
    n_held_out: tuple[int, ...]
    held_out: bool

    def of(self, i: int, data: TrainingData) -> TrainingData:
        """Return a part, of which only the rows on this side are visited."""
        rows, n = np.random.RandomState(self.seeds[i]).permutation(data.rows), self.n_held_out[i]
        return data.subset(rows[:n] if self.held_out else rows[n:])


@dataclass(frozen=True)
class PartedData:
    """The rows that a model is trained or evaluated on, in parts.

    Attributes
    ----------
    reader : PartReader
    sizes : tuple of int
        How many rows of each part count: those of weight zero are never visited.
    weights : tuple of float, optional
        The sum of the weights of each part; None if rows have none.
    like : TrainingData
        A few rows: types and shapes are those of all.
    open_parts : int
        How many are mixed at a time.
    digest : str
        A fingerprint of the rows.
    split : Split, optional
        The rows of each part that are visited; None for all.
    shuffled_labels : bool
        Each row gets the label of another in :meth:`pieces`.
    watch : callable, optional
        Called with the number of rows of each batch of an epoch.
    """

    reader: PartReader
    sizes: tuple[int, ...]
    weights: tuple[float, ...] | None
    like: TrainingData
    open_parts: int
    digest: str
    split: Split | None = None
    shuffled_labels: bool = False
    watch: Callable[[int], object] | None = field(default=None, repr=False)

    @property
    def n_rows(self) -> int:
        """How many rows count."""
        return sum(self.sizes)

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return self.weights is not None

    @property
    def total_weight(self) -> float:
        """The sum of the weights of the rows."""
        return float(sum(self.sizes if self.weights is None else self.weights))

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        """For each input of the model that is the same for all rows, its value."""
        return self.like.constants

    @property
    def at_hand(self) -> None:
        """None: steps are fed batches."""
        return None

    @property
    def rows_at_once(self) -> int:
        """The number of rows to evaluate together, outside training."""
        return self.like.rows_at_once

    @property
    def dense_at_once(self) -> int:
        """The number of rows that may be made dense together; any number if none is sparse."""
        return self.like.dense_at_once

    @property
    def bytes_of_scores(self) -> int:
        """The bytes of the scores of a row, about."""
        return self.like.bytes_of_scores

    def with_shuffled_labels(self) -> Self:
        """Return the same rows, each with the label of another; always in the same order."""
        return replace(self, shuffled_labels=True, watch=None)

    def fingerprint(self) -> str:
        """Return a fingerprint of the rows."""
        return hashlib.sha256(f"{self.digest} {self.sizes} {self.weights} {self.split}".encode()).hexdigest()

    def hold_out(self, fraction: float, random_state: np.random.RandomState) -> tuple[PartedData, PartedData]:
        """Return the rows without a fraction of each part, and these; parts with weights are read once for their sums.

        Fractions of rows are rounded so that those of all parts add up, to the next integer as in scikit-learn.

        Raises
        ------
        DataError
            No row would be left to train on.
        """
        ends = np.ceil(np.cumsum((0, *self.sizes)) * fraction).astype(np.int64)
        n_held_out = tuple(np.diff(ends).tolist())
        if not 0 < ends[-1] < self.n_rows:
            raise DataError(
                f"early_stopping=True holds out validation_fraction={fraction} of the {self.n_rows} rows, "
                f"{ends[-1]}: {self.n_rows - ends[-1]} are left. Set early_stopping=False, or give X_val."
            )
        seeds = tuple(random_state.randint(2**31, size=len(self.sizes)).tolist())
        trained, held_out = (
            replace(self, split=Split(seeds, n_held_out, side), sizes=sizes)
            for side, sizes in (
                (False, tuple(np.subtract(self.sizes, n_held_out).tolist())),
                (True, n_held_out),
            )
        )
        if self.weights is None:
            return trained, held_out
        held_out = held_out.counted()
        return replace(trained, weights=tuple(np.subtract(self.weights, held_out.weights or 0).tolist())), held_out

    def counted(self) -> PartedData:
        """Return the same with the number and the weight of the rows of each part as one more pass finds them."""
        order = [i for i, n in enumerate(self.sizes) if n]
        sizes, weights = [0] * len(self.sizes), [0.0] * len(self.sizes)
        for i, data in zip(order, self._read(order), strict=True):
            sizes[i], weights[i] = data.n_rows, data.total_weight
        return replace(self, sizes=tuple(sizes), weights=tuple(weights))

    # reading -----------------------------------------------------------------

    def _read(self, order: Iterable[int]) -> Generator[TrainingData]:
        """Yield parts in an order; while one is used, a thread reads the next."""
        return read_ahead(self.reader.read, self._checked, order)

    def _checked(self, i: int, part: Any) -> TrainingData:
        data = self.reader.check(i, part)
        return data if self.split is None else self.split.of(i, data)

    def _order(self, random_state: np.random.RandomState | None) -> list[int]:
        """Return the parts that have rows, in a drawn order if they are not all open at once."""
        order = [i for i, n in enumerate(self.sizes) if n]
        if random_state is None or len(order) <= self.open_parts:
            return order
        return spread_out(order, self.open_parts, random_state)

    def pieces(self, device: Device) -> Iterator[Piece]:
        """Yield the rows that count in the order of the parts, some at a time."""
        if self.shuffled_labels:
            yield from self._pieces_of_shuffled_labels()
            return
        for data in self._read(self._order(None)):
            yield from data.pieces(device)

    def _pieces_of_shuffled_labels(self) -> Iterator[Piece]:
        random_state = np.random.RandomState(0)
        for rows in self.epoch(self.rows_at_once, random_state):  # mixed: a part may have one label
            piece = rows.piece
            yield piece._replace(label=random_state.permutation(piece.label))

    def epoch(self, size: int, random_state: np.random.RandomState | None) -> Generator[Batch]:
        """Yield the rows of nonzero weight in batches of `size`, mixed if there is a generator."""
        order = self._order(random_state)
        parts = self._read(order)
        try:
            rows = parts if random_state is None else self._mixed(parts, len(order), random_state)
            for batch in in_batches(rows, size):
                if self.watch is not None:
                    self.watch(batch.n_rows)
                yield batch
        finally:
            parts.close()

    def _mixed(
        self, parts: Iterator[TrainingData], n_parts: int, random_state: np.random.RandomState
    ) -> Iterator[TrainingData]:
        """Yield the rows of all parts in a drawn order, stretch by stretch."""
        k = min(self.open_parts, n_parts)
        opened = [OpenPart(next(parts)) for _ in range(k)]
        for n_to_come in range(n_parts - k, -1, -1):
            opened.sort(key=lambda part: part.n_left / max(part.n_rows, 1))  # stable: equal ones stay in order
            left = [part.n_rows * rung // k if n_to_come else 0 for rung, part in enumerate(opened)]
            taken = [part.take(n, random_state) for part, n in zip(opened, left, strict=True)]
            yield from _stretch([part.data for part in opened], taken, random_state)
            if n_to_come:
                opened.pop(0)
                opened.append(OpenPart(next(parts)))


def spread_out(order: Sequence[int], k: int, random_state: np.random.RandomState) -> list[int]:
    """Return parts in a drawn order in which any k that follow each other are from all over the file.

    The file is cut into k sections, whose parts are drawn, and which take turns. Of rows that are sorted, by label or
    by date, those of a batch are then as mixed as those of the file. The turns are a Gray code, its bits reversed: both
    halves of the file, and all quarters, have the same shares of the rungs of the ladder.

    Examples
    --------
    >>> spread_out(range(16), 8, np.random.RandomState(1))
    [14, 7, 2, 10, 8, 0, 5, 12, 15, 6, 3, 11, 9, 1, 4, 13]
    """
    ends = np.linspace(0, len(order), k + 1).round().astype(int)
    sections = [random_state.permutation(order[start:stop]).tolist() for start, stop in pairwise(ends)]
    turns = turns_of(k)
    if random_state.randint(2):
        turns = [k - 1 - turn for turn in turns]
    return [i for row in zip_longest(*(sections[turn] for turn in turns)) for i in row if i is not None]


def turns_of(k: int) -> list[int]:
    """Return the order in which k sections take turns.

    Examples
    --------
    >>> turns_of(8)
    [0, 4, 6, 2, 3, 7, 5, 1]
    """
    n_bits = max(k - 1, 1).bit_length()
    codes = (int(f"{i ^ i >> 1:0{n_bits}b}"[::-1], 2) for i in range(2**n_bits))
    return [code for code in codes if code < k]


class OpenPart:
    """A part in memory and its rows that are still to be visited."""

    def __init__(self, data: TrainingData):
        self.data, self._rows, self._drawn = data, data.rows, False
        self.n_rows = len(self._rows)

    @property
    def n_left(self) -> int:
        """How many rows are still to be visited."""
        return len(self._rows)

    def take(self, n_left: int, random_state: np.random.RandomState) -> np.ndarray:
        """Return rows so that `n_left` are left; if these are not all, they are drawn."""
        if n_left and not self._drawn:
            self._rows, self._drawn = random_state.permutation(self._rows), True
        n_taken = max(len(self._rows) - n_left, 0)
        taken, self._rows = self._rows[:n_taken], self._rows[n_taken:]
        return taken


def _stretch(
    parts: Sequence[TrainingData], taken: Sequence[np.ndarray], random_state: np.random.RandomState
) -> Iterator[TrainingData]:
    """Yield the rows that are taken of parts in one drawn order, some at a time."""
    which = np.repeat(np.arange(len(parts)), [len(rows) for rows in taken])
    rows = np.concatenate(taken)
    order = random_state.permutation(len(rows))
    for some in batches(len(rows), max(1, _MIXED_BYTES // bytes_of_a_row(parts[0].features, parts[0].dtypes))):
        yield gather(parts, which[order[some]], rows[order[some]])


def gather(parts: Sequence[TrainingData], which: np.ndarray, rows: np.ndarray) -> TrainingData:
    """Return rows of several parts as arrays: row ``rows[i]`` of part ``which[i]`` is row i.

    Examples
    --------
    >>> import numpy as np
    >>> data = [TrainingData({"X": np.full((2, 1), k)}, np.full((2, 1), k), None, {}) for k in (10, 20)]
    >>> gather(data, np.array([1, 0, 1]), np.array([0, 1, 1])).label.ravel().tolist()
    [20, 10, 20]
    """
    places = [np.flatnonzero(which == k) for k in range(len(parts))]
    used = [(part, place) for part, place in zip(parts, places, strict=True) if len(place)]

    def of(arrays: Sequence[Any]) -> Any:
        found = [array[rows[place]] for array, (_, place) in zip(arrays, used, strict=True)]
        return _in_places(found, [place for _, place in used])

    first = used[0][0]
    return replace(
        first,
        features={name: of([part.features[name] for part, _ in used]) for name in first.features},
        label=of([part.label for part, _ in used]),
        weight=None if first.weight is None else of([part.weight for part, _ in used]),
        chosen=None,
    )


def _in_places(found: Sequence[Any], places: Sequence[np.ndarray]) -> Any:
    """Return the rows of arrays, each at its place."""
    if scipy.sparse.issparse(found[0]):
        return scipy.sparse.vstack(found, format="csr")[np.argsort(np.concatenate(places))]
    lengths = [len(place) for place in places]
    rows = np.empty((sum(lengths), *found[0].shape[1:]), np.result_type(*found))
    for array, place in zip(found, places, strict=True):
        rows[place] = array
    return rows


def in_batches(arrays: Iterable[TrainingData], size: int) -> Iterator[Batch]:
    """Yield the rows that count of arrays, one after the other, in batches of `size`, the last one smaller."""
    rest: list[Batch] = []  # less than a batch
    for data in arrays:
        rows, n_rest = data.rows, sum(batch.n_rows for batch in rest)
        first = size - n_rest if rest else 0
        if rest:
            rest.append(Batch(data, rows[:first]))
            if n_rest + len(rows) < size:
                rest = [_joined(rest)]
                continue
            yield _joined(rest)
            rest = []
        for some in batches(len(rows) - first, size):
            batch = Batch(data, rows[first + some.start : first + some.stop])
            if batch.n_rows == size:
                yield batch
            else:
                rest = [_joined([batch])]  # a copy: the part is let go
    yield from rest


def _joined(some: Sequence[Batch]) -> Batch:
    """Return a batch of the rows of several."""
    rows = [batch.data.rows[batch.rows] if isinstance(batch.rows, slice) else batch.rows for batch in some]
    which = np.repeat(np.arange(len(some)), [len(r) for r in rows])
    data = gather([batch.data for batch in some], which, np.concatenate(rows))
    return Batch(data, slice(None))
