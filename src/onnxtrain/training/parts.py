"""Rows of the training data in parts; a few are in memory at a time.

Of P parts, k are open at a time while the next one is read. If P <= k, an epoch equals that of the same rows in memory;
otherwise :mod:`~onnxtrain.training.mixing` mixes the rows.
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
from onnxtrain.training.data import Batch, Piece, TrainingData, batches, sparse_at_once
from onnxtrain.training.mixing import (
    Strata,
    balanced_order,
    gather,
    mixed,
    sections,
    shuffled,
    to_balance,
)

#: The tolerance of the sum of the weights of a part between two passes; on one side of a split, the sum is a difference
#: of sums.
_ROUNDED = 1e-6


class PartReader(Protocol):
    """Reads parts of the rows one after the other."""

    def __len__(self) -> int:
        """Return the number of parts."""

    def read(self, i: int) -> Any:
        """Return a part as its source stores it; called in a thread, while steps run."""

    def check(self, i: int, part: Any) -> TrainingData:
        """Check a part that was read, and return it in the form for the objective."""

    def check_lengths(self) -> None:
        """Raise a DataError if the number of parts, or of rows of a part, has changed since the fit began."""


@dataclass(frozen=True)
class Split:
    """The held-out rows of each part, drawn again from the same seed whenever the part is read.

    Attributes
    ----------
    seeds : tuple of int
        The seed of each part.
    n_held_out : tuple of int
        The number of held-out rows of each part.
    held_out : bool
        Whether the held-out rows are visited, or the others.
    """

    seeds: tuple[int, ...]
    n_held_out: tuple[int, ...]
    held_out: bool

    def of(self, i: int, data: TrainingData) -> TrainingData:
        """Return a part with only the rows of this side visited."""
        rows, n = np.random.RandomState(self.seeds[i]).permutation(data.rows), self.n_held_out[i]
        return data.subset(rows[:n] if self.held_out else rows[n:])


@dataclass(frozen=True)
class PartedData:
    """The rows that a model is trained or evaluated on, in parts.

    Attributes
    ----------
    reader : PartReader
    sizes : tuple of int
        The number of rows of each part that count; rows of weight zero are never visited.
    weights : tuple of float, optional
        The sum of the weights of each part; None if rows have no weights.
    like : TrainingData
        A few rows, which have the types and shapes of all rows.
    open_parts : int
        The number of parts that are mixed at a time.
    digest : str or None
        A fingerprint of the rows; None if it requires a pass over the rows.
    split : Split, optional
        The rows of each part that are visited; None for all.
    shares : ndarray (n_parts, n_classes), optional
        The share of each class in the rows of each part, if the labels are known classes.
    shuffled_labels : bool
        Whether :meth:`pieces` permutes the labels.
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
        """The number of rows that count."""
        return sum(self.sizes)

    @property
    def weighted(self) -> bool:
        """Whether the rows have sample weights."""
        return self.weights is not None

    @property
    def total_weight(self) -> float:
        """The sum of the sample weights."""
        return float(sum(self.sizes if self.weights is None else self.weights))

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        """The values of the inputs of the model that are the same for all rows."""
        return self.like.constants

    @property
    def at_hand(self) -> None:
        """None, because steps are fed batches."""
        return None

    @property
    def rows_at_once(self) -> int:
        """The number of rows to evaluate together, outside training."""
        return self.like.rows_at_once

    @property
    def sparse_at_once(self) -> int:
        """The number of sparse rows that a step may take at once; unlimited if none is sparse."""
        return sparse_at_once(self.like.features, self.like.dtypes, stored=self.like.stored)

    @property
    def bytes_of_scores(self) -> int:
        """The approximate bytes of the scores of a row."""
        return self.like.bytes_of_scores

    def storing(self, stored: Mapping[str, int]) -> PartedData:
        """Return the same rows, of which a step reads the stored entries of some inputs."""
        return replace(self, like=self.like.storing(stored))

    def with_shuffled_labels(self) -> Self:
        """Return the same rows with permuted labels; the permutation is always the same."""
        return replace(self, shuffled_labels=True, watch=None)

    def fingerprint(self) -> str:
        """Return a fingerprint of the rows."""
        digest = self.digest
        if digest is None:
            digest = " ".join(data.fingerprint() for data in self._read(self._present))
        return hashlib.sha256(f"{digest} {self.sizes} {self.weights} {self.split}".encode()).hexdigest()

    def hold_out(self, fraction: float, random_state: np.random.RandomState) -> tuple[PartedData, PartedData]:
        """Return the training rows and the held-out rows, a fraction of each part.

        Parts with weights are read once to compute the sums of the weights.

        The numbers of held-out rows are rounded so that their sum is the fraction of all rows, rounded up as in
        scikit-learn.

        Raises
        ------
        DataError
            No row would be left to train on.
        """
        ends = np.ceil(np.cumsum((0, *self.sizes)) * fraction).astype(np.int64)
        n_held_out = tuple(np.diff(ends).tolist())
        if not 0 < ends[-1] < self.n_rows:
            raise DataError(
                f"early_stopping=True holds out {ends[-1]} of {self.n_rows} rows (validation_fraction={fraction}), so "
                f"{self.n_rows - ends[-1]} are left. Set early_stopping=False, or pass X_val."
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
        """Return the same data with the number and weight of the rows of each part, counted in one more pass."""
        order = self._present
        sizes, weights = [0] * len(self.sizes), [0.0] * len(self.sizes)
        for i, data in zip(order, self._read(order, self._taken), strict=True):
            sizes[i], weights[i] = data.n_rows, data.total_weight
        return replace(self, sizes=tuple(sizes), weights=tuple(weights))

    # reading -----------------------------------------------------------------

    def _read(
        self, order: Iterable[int], use: Callable[[int, Any], TrainingData] | None = None
    ) -> Generator[TrainingData]:
        """Yield the parts in order, checked against the first pass; a thread reads the next part meanwhile."""
        self.reader.check_lengths()
        return read_ahead(self.reader.read, use or self._unchanged, order)

    def _taken(self, i: int, part: Any) -> TrainingData:
        """Return a part with only the rows of this side of the split visited."""
        data = self.reader.check(i, part).storing(self.like.stored)
        return data if self.split is None else self.split.of(i, data)

    def _unchanged(self, i: int, part: Any) -> TrainingData:
        """Return a part like :meth:`_taken`; raise if its rows, weights or labels differ from the first pass."""
        data = self._taken(i, part)
        if data.n_rows != self.sizes[i]:
            raise changed(i, f"{data.n_rows} of its rows count, but {self.sizes[i]} did before")
        if self.weights is not None and not math.isclose(data.total_weight, self.weights[i], rel_tol=_ROUNDED):
            raise changed(i, f"its sample weights sum to {data.total_weight:.6g}, but to {self.weights[i]:.6g} before")
        if self.shares is not None:
            found, label = np.bincount(data.label[:, 0].astype(np.int64)), np.rint(self.shares[i] * len(data.label))
            if not np.array_equal(np.trim_zeros(found, "b"), np.trim_zeros(label, "b")):
                raise changed(i, "its rows have other classes")
        return data

    @property
    def _present(self) -> list[int]:
        """The indices of the parts that have rows."""
        return [i for i, n in enumerate(self.sizes) if n]

    def pieces(self, device: Device) -> Iterator[Piece]:
        """Yield the rows that count in the order of the parts, in pieces."""
        if self.shuffled_labels:
            yield from self._pieces_of_shuffled_labels()
            return
        for data in self._read(self._present):
            yield from data.pieces(device)

    def _pieces_of_shuffled_labels(self) -> Iterator[Piece]:
        random_state = np.random.RandomState(0)
        for rows in self.epoch(self.rows_at_once, random_state):  # mixed, because a part may have only one label
            piece = rows.piece
            yield piece._replace(label=random_state.permutation(piece.label))

    def epoch(self, size: int, random_state: np.random.RandomState | None) -> Generator[Batch]:
        """Yield the rows of nonzero weight in batches of `size`; mixed if `random_state` is given."""
        rows = self._read(self._present) if random_state is None else self._mixed(random_state)
        try:
            for batch in in_batches(rows, size):
                if self.watch is not None:
                    self.watch(batch.n_rows)
                yield batch
        finally:
            rows.close()

    def _mixed(self, random_state: np.random.RandomState) -> Generator[TrainingData]:
        """Yield the rows of all parts in a random order, in pieces."""
        present, k = np.array(self._present), self.open_parts
        if len(present) <= k:
            opened = list(self._read(present.tolist()))
            yield from shuffled(opened, [data.rows for data in opened], random_state)
            return
        sizes = np.array(self.sizes)[present]
        strata = Strata(sections(sizes, k), by_label=False)
        if self.shares is not None:
            strata = Strata(self.shares[present] * sizes[:, None], by_label=True)
        counts, weights = to_balance(strata.counts, sizes, k)
        order = balanced_order(counts, sizes, random_state, weights)
        parts = self._read(present[order].tolist())
        try:
            yield from mixed(parts, order, strata, k, random_state)
        finally:
            parts.close()


def changed(i: int, how: str) -> DataError:
    """Return the error for a part that has changed during the fit."""
    return DataError(
        f"Part {i} has changed during the fit: {how}. Each epoch reads the parts again, so they must not change. "
        "Write new rows elsewhere, or fit again."
    )


def in_batches(arrays: Iterable[TrainingData], size: int) -> Iterator[Batch]:
    """Yield the rows that count of consecutive arrays in batches of `size`; the last batch is smaller."""
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
                rest = [_joined([batch])]  # a copy, so that the part can be freed
    yield from rest


def _joined(some: Sequence[Batch]) -> Batch:
    """Return one batch with the rows of several."""
    rows = [batch.data.rows[batch.rows] if isinstance(batch.rows, slice) else batch.rows for batch in some]
    which = np.repeat(np.arange(len(some)), [len(r) for r in rows])
    data = gather([batch.data for batch in some], which, np.concatenate(rows))
    return Batch(data, slice(None))
