"""Rows of the training data in parts, of which a few are in memory.

Of P parts k are open at a time, and the next one is being read. If P <= k an epoch is that of the same rows in memory;
else :mod:`~onnxtrain.training.mixing` mixes them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np

from onnxtrain.errors import DataError
from onnxtrain.rows.parts import read_ahead
from onnxtrain.runtime.device import Device
from onnxtrain.training.data import Batch, Piece, TrainingData, batches
from onnxtrain.training.mixing import Strata, balanced_order, gather, mixed, sections, shuffled

#: How much the sum of the weights of a part may differ from one pass to the next: those on one side of a split are a
#: difference of sums.
_ROUNDED = 1e-6


class PartReader(Protocol):
    """Parts of the rows, read one after the other."""

    def __len__(self) -> int:
        """How many."""

    def read(self, i: int) -> Any:
        """Return a part as its file has it; called in a thread, while steps are done."""

    def check(self, i: int, part: Any) -> TrainingData:
        """Return a part that was read as the objective takes it."""

    def check_lengths(self) -> None:
        """Raise a DataError if the number of parts, or of the rows of one, has changed since the fit began."""


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
    digest : str or None
        A fingerprint of the rows; None if a pass over them is needed for it.
    split : Split, optional
        The rows of each part that are visited; None for all.
    shares : ndarray (n_parts, n_classes), optional
        The share of each class in the rows of each part, if the labels are classes and known.
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
    digest: str | None
    split: Split | None = None
    shares: np.ndarray | None = None
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
        digest = self.digest
        if digest is None:
            digest = " ".join(data.fingerprint() for data in self._read(self._present))
        return hashlib.sha256(f"{digest} {self.sizes} {self.weights} {self.split}".encode()).hexdigest()

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
        order = self._present
        sizes, weights = [0] * len(self.sizes), [0.0] * len(self.sizes)
        for i, data in zip(order, self._read(order, self._taken), strict=True):
            sizes[i], weights[i] = data.n_rows, data.total_weight
        return replace(self, sizes=tuple(sizes), weights=tuple(weights))

    # reading -----------------------------------------------------------------

    def _read(
        self, order: Iterable[int], use: Callable[[int, Any], TrainingData] | None = None
    ) -> Generator[TrainingData]:
        """Yield parts in an order, as the first pass found them; while one is used, a thread reads the next."""
        self.reader.check_lengths()
        return read_ahead(self.reader.read, use or self._unchanged, order)

    def _taken(self, i: int, part: Any) -> TrainingData:
        """Return a part, of which only the rows on this side of a split are visited."""
        data = self.reader.check(i, part)
        return data if self.split is None else self.split.of(i, data)

    def _unchanged(self, i: int, part: Any) -> TrainingData:
        """Return a part as :meth:`_taken` does, if its rows, weights and labels count as in the first pass."""
        data = self._taken(i, part)
        if data.n_rows != self.sizes[i]:
            raise changed(i, f"{data.n_rows} rows count, {self.sizes[i]} did")
        if self.weights is not None and not math.isclose(data.total_weight, self.weights[i], rel_tol=_ROUNDED):
            raise changed(i, f"its sample weights sum to {data.total_weight:.6g}, it was {self.weights[i]:.6g}")
        if self.shares is not None:
            found, label = np.bincount(data.label[:, 0].astype(np.int64)), np.rint(self.shares[i] * len(data.label))
            if not np.array_equal(np.trim_zeros(found, "b"), np.trim_zeros(label, "b")):
                raise changed(i, "its rows are of other classes")
        return data

    @property
    def _present(self) -> list[int]:
        """The parts that have rows."""
        return [i for i, n in enumerate(self.sizes) if n]

    def pieces(self, device: Device) -> Iterator[Piece]:
        """Yield the rows that count in the order of the parts, some at a time."""
        if self.shuffled_labels:
            yield from self._pieces_of_shuffled_labels()
            return
        for data in self._read(self._present):
            yield from data.pieces(device)

    def _pieces_of_shuffled_labels(self) -> Iterator[Piece]:
        random_state = np.random.RandomState(0)
        for rows in self.epoch(self.rows_at_once, random_state):  # mixed: a part may have one label
            piece = rows.piece
            yield piece._replace(label=random_state.permutation(piece.label))

    def epoch(self, size: int, random_state: np.random.RandomState | None) -> Generator[Batch]:
        """Yield the rows of nonzero weight in batches of `size`, mixed if there is a generator."""
        rows = self._read(self._present) if random_state is None else self._mixed(random_state)
        try:
            for batch in in_batches(rows, size):
                if self.watch is not None:
                    self.watch(batch.n_rows)
                yield batch
        finally:
            rows.close()

    def _mixed(self, random_state: np.random.RandomState) -> Generator[TrainingData]:
        """Yield the rows of all parts in a drawn order, some at a time."""
        present, k = np.array(self._present), self.open_parts
        if len(present) <= k:
            opened = list(self._read(present.tolist()))
            yield from shuffled(opened, [data.rows for data in opened], random_state)
            return
        sizes = np.array(self.sizes)[present]
        of_sections = sections(sizes, k)
        strata = Strata(of_sections, by_label=False)
        if self.shares is not None:
            strata = Strata(self.shares[present] * sizes[:, None], by_label=True)
        order = balanced_order(np.hstack([strata.counts, of_sections]), sizes, random_state)
        parts = self._read(present[order].tolist())
        try:
            yield from mixed(parts, order, strata, k, random_state)
        finally:
            parts.close()


def changed(i: int, how: str) -> DataError:
    """Return the error for a part that has changed during the fit."""
    return DataError(
        f"Part {i} has changed during the fit: {how}. Each epoch reads the parts again, and they must be the same: "
        "write new rows elsewhere, or fit again."
    )


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
