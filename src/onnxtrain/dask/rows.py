"""Rows on the workers, encoded once; sums over partitions are added in the order of the partitions."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from distributed import Future

from onnxtrain.dask.workers import Place, Workers
from onnxtrain.runtime import session
from onnxtrain.runtime.device import Device
from onnxtrain.training.data import TrainingData
from onnxtrain.training.evaluate import row_losses, sums_of_loss_and_gradient
from onnxtrain.training.objective import Objective
from onnxtrain.training.state import Weights


@dataclass(frozen=True)
class Program:
    """The computations of a task on its rows; a task uses one thread, because Dask runs one task per thread.

    Attributes
    ----------
    objective : Objective
    builder : str
        The gradient builder.
    device : Device
    n_threads : int
    """

    objective: Objective
    builder: str
    device: Device
    n_threads: int

    @property
    def place(self) -> session.Place:
        """The device and the number of threads on the worker."""
        return session.Place(self.device, self.n_threads)


class Sums(NamedTuple):
    """Sums over rows.

    Attributes
    ----------
    loss : float
        The sum of the losses times the sample weights.
    gradient : list of ndarray
        The gradient of each weight; separate arrays are sent without a copy.
    weight : float
        The sum of the sample weights.
    seconds, cpu : float
        The elapsed time and the CPU time of the computation.
    """

    loss: float
    gradient: list[np.ndarray]
    weight: float
    seconds: float = 0.0
    cpu: float = 0.0


def total(parts: Sequence[Sums]) -> Sums:
    """Return the total of the sums, added in their order, with the longest times."""
    gradient = [reduce(np.add, of_weight) for of_weight in zip(*(part.gradient for part in parts), strict=True)]
    loss, weight = (float(sum(column)) for column in ((p.loss for p in parts), (p.weight for p in parts)))
    return Sums(loss, gradient, weight, max(p.seconds for p in parts), max(p.cpu for p in parts))


@dataclass(frozen=True)
class DistributedRows:
    """The rows of a fit, on the workers.

    Attributes
    ----------
    workers : Workers
    parts : tuple of Future
        One :class:`~onnxtrain.training.data.TrainingData` per partition, without empty partitions.
    lengths : tuple of int
        The number of rows of nonzero sample weight in each partition.
    total_weight : float
    weighted : bool
        Whether there are sample weights.
    places : tuple of Place
        The place of each partition. The partitions of one place form one task of a step, and stay together if a worker
        is lost. So the rounding of gradients depends only on the number of threads at the start of the fit.
    """

    workers: Workers
    parts: tuple[Future, ...]
    lengths: tuple[int, ...]
    total_weight: float
    weighted: bool
    places: tuple[Place, ...]
    _fingerprint: str = field(repr=False)

    @classmethod
    def of(cls, workers: Workers, parts: Sequence[Future], places: Sequence[Place]) -> DistributedRows:
        """Return partitions, each at its place, as rows, after computing the :class:`Look` of each."""
        looks = workers.results(lambda: workers.submit(look, parts), parts)
        some = [i for i, found in enumerate(looks) if found.n_rows]
        content = hashlib.sha256("".join(found.fingerprint for found in looks).encode())
        return cls(
            workers,
            tuple(parts[i] for i in some),
            tuple(looks[i].n_rows for i in some),
            float(sum(found.weight for found in looks)),
            any(found.weighted for found in looks),
            tuple(places[i] for i in some),
            content.hexdigest(),
        )

    @property
    def n_rows(self) -> int:
        """The number of rows that count."""
        return sum(self.lengths)

    def fingerprint(self) -> str:
        """Return a fingerprint of all rows."""
        return self._fingerprint

    def loss_and_gradient(self, program: Program, weights: Weights) -> tuple[float, list[np.ndarray]]:
        """Return the weighted mean of the losses of all rows and its gradient for each weight, in float64.

        The result is the same bit by bit for any number of workers: each partition is summed separately, and the sums
        are added in the order of the partitions.
        """
        found = total(self._over_parts(sums_of_part, program, weights))
        return found.loss / found.weight, [dw / found.weight for dw in found.gradient]

    def mean_loss(self, program: Program, weights: Weights) -> float:
        """Return the weighted mean of the losses of all rows, without penalties."""
        sums = self._over_parts(loss_of_part, program, weights)
        return float(sum(loss for loss, _ in sums) / sum(weight for _, weight in sums))

    def _over_parts(self, function: Callable[..., Any], program: Program, weights: Weights) -> list[Any]:
        """Return the result for each partition in order; the partitions of a place are one task."""
        groups = self._groups(range(len(self.parts)))

        def submit() -> list[Future]:
            sent = self.workers.send(weights)
            return [
                self.workers.start(place, of_each, [self.parts[i] for i in g], function, program, sent)
                for place, g in groups
            ]

        found = zip(groups, self.workers.results(submit, self.parts), strict=True)
        by_part = {i: result for (_, group), results in found for i, result in zip(group, results, strict=True)}
        return [by_part[i] for i in range(len(self.parts))]

    def _groups(self, parts: Iterable[int]) -> list[tuple[Place, list[int]]]:
        """Return the given partitions, grouped by place."""
        groups: dict[Place, list[int]] = {}
        for i in parts:
            groups.setdefault(self.places[i], []).append(i)
        return sorted(groups.items())

    def with_shuffled_labels(self) -> DistributedRows:
        """Return the same rows, with the labels permuted within each partition."""
        return replace(self, parts=tuple(self.workers.submit(TrainingData.with_shuffled_labels, self.parts)))

    def sums(self, program: Program, weights: Weights, rows: Mapping[int, np.ndarray]) -> Sums:
        """Return the sums over some rows; the rows of the partitions of a place are computed together.

        Parameters
        ----------
        program : Program
        weights : mapping of str to ndarray
        rows : mapping of int to ndarray
            For each partition, the indices of the rows among those that count.
        """
        groups = self._groups(rows)

        def submit() -> list[Future]:
            sent = self.workers.send(weights)
            return [
                self.workers.start(place, sums_of_rows, [self.parts[i] for i in g], [rows[i] for i in g], program, sent)
                for place, g in groups
            ]

        return total(self.workers.results(submit, self.parts))


# what a task does ---------------------------------------------------------------


class Look(NamedTuple):
    """The summary of an encoded partition: see :class:`DistributedRows`."""

    n_rows: int
    weight: float
    weighted: bool
    fingerprint: str


def look(data: TrainingData | None) -> Look:
    """Return the summary of a partition for the client; `data` is None for an empty partition."""
    if data is None or not data.n_rows:
        return Look(0, 0.0, False, "")
    return Look(data.n_rows, data.total_weight, data.weight is not None, data.fingerprint())


def sums_of_part(data: TrainingData, program: Program, weights: Weights, dtype: Any = np.float64) -> Sums:
    """Return the sums over a partition, the gradient in `dtype`."""
    begin, cpu = time.perf_counter(), time.thread_time()
    loss, dws = sums_of_loss_and_gradient(program.objective, weights, data, program.place, program.builder, dtype)
    return Sums(loss, dws, data.total_weight, time.perf_counter() - begin, time.thread_time() - cpu)


def loss_of_part(data: TrainingData, program: Program, weights: Weights) -> tuple[float, float]:
    """Return the weighted sum of the losses of a partition, and the sum of its weights."""
    losses = row_losses(program.objective, weights, data, program.place).astype(np.float64)
    if data.weight is None:
        return float(losses.sum()), float(len(losses))
    (rows,) = data.batches(len(losses))
    weight = data.weight[rows, 0].astype(np.float64)
    return float(losses @ weight), float(weight.sum())


def of_each(
    parts: Sequence[TrainingData], function: Callable[..., Any], program: Program, weights: Weights
) -> list[Any]:
    """Return the result of a function for each partition."""
    return [function(part, program, weights) for part in parts]


def sums_of_rows(parts: Sequence[TrainingData], rows: Sequence[np.ndarray], program: Program, weights: Weights) -> Sums:
    """Return the sums over some rows of several partitions, computed together."""
    data = joined([part.subset(part.rows[some]) for part, some in zip(parts, rows, strict=True)])
    dtype = next(iter(weights.values())).dtype  # the type of a step; float64 would double the data that is sent
    return sums_of_part(data, program, weights, dtype)


def joined(parts: Sequence[TrainingData]) -> TrainingData:
    """Return the chosen rows of several partitions, concatenated."""
    chosen = [part.chosen for part in parts]
    columns = [{name: x[rows] for name, x in part.features.items()} for part, rows in zip(parts, chosen, strict=True)]
    weights = [part.weight[rows] for part, rows in zip(parts, chosen, strict=True) if part.weight is not None]
    return replace(
        parts[0],
        features={name: stack([column[name] for column in columns]) for name in columns[0]},
        label=np.concatenate([part.label[rows] for part, rows in zip(parts, chosen, strict=True)]),
        weight=np.concatenate(weights) if weights else None,
        chosen=None,
    )


def stack(rows: Sequence[Any]) -> Any:
    """Return the rows of several partitions, concatenated."""
    if len(rows) == 1:
        return rows[0]
    return scipy.sparse.vstack(rows, format="csr") if scipy.sparse.issparse(rows[0]) else np.concatenate(rows)
