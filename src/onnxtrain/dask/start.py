"""The start of a fit on a cluster: a sample of the rows gives the model, then workers encode their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from distributed import Future

from onnxtrain.dask.partitions import Part, len_of
from onnxtrain.dask.rows import DistributedRows, stack
from onnxtrain.dask.workers import Workers
from onnxtrain.errors import DataError, ParameterError
from onnxtrain.estimators.base import OrtGradientEstimator
from onnxtrain.estimators.first_pass import form_of
from onnxtrain.estimators.fit_data import check_rows, data_of
from onnxtrain.estimators.labels import balanced
from onnxtrain.estimators.protocols import take
from onnxtrain.estimators.sample_weights import check_sample_weight
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.training.data import TrainingData

#: The approximate number of rows of the sample, and the least number of rows of each class.
SAMPLE, _OF_EACH = 10_000, 20


class Glance(NamedTuple):
    """The summary of a partition that is sent to the client.

    Attributes
    ----------
    n_rows : int
    sample : tuple or None
        Some rows of the partition; None if no row counts.
    counts : dict
        The number of rows of each class, including rows of weight zero; empty for regression and multilabel targets.
    """

    n_rows: int
    sample: Part | None
    counts: dict[Any, int]


def glance(part: Part, size: int, classifies: bool) -> Glance:
    """Return a sample of a partition and the counts of its classes."""
    X, y, weight = part
    y = np.asarray(y)
    counted = np.arange(len_of(X)) if weight is None else np.flatnonzero(np.asarray(weight) != 0)
    chosen = [counted[:size]]
    counts: dict[Any, int] = {}
    if classifies and y.shape[1:] in ((), (1,)):
        try:
            classes, which = np.unique(y.ravel(), return_inverse=True)
        except TypeError as e:
            raise DataError(
                f"Labels must be all numbers or all strings, and none may be missing: {e}. Leave out rows without a "
                "label with frame.dropna(subset=[...])."
            ) from e
        n = np.bincount(which[counted], minlength=len(classes))
        counts = dict(zip(classes.tolist(), n.tolist(), strict=True))
        chosen += [np.flatnonzero(which == k)[:_OF_EACH] for k in range(len(classes))]
    some = np.unique(np.concatenate(chosen))
    if not len(some):
        return Glance(len_of(X), None, {})
    weights = None if weight is None else np.asarray(weight)[some]
    return Glance(len_of(X), (take(X, some), y[some], weights), counts)


@dataclass(frozen=True)
class Sample:
    """A sample of the rows of all partitions, and the class counts of all rows."""

    X: Any
    y: np.ndarray
    sample_weight: np.ndarray | None
    counts: dict[Any, int]

    @classmethod
    def of(cls, workers: Workers, parts: Sequence[Future], *, classifies: bool) -> Sample:
        """Return a sample of the rows of the partitions."""
        size = -(-SAMPLE // max(len(parts), 1))
        found: list[Glance] = workers.results(lambda: workers.submit(glance, parts, size, classifies), parts)
        samples = [some.sample for some in found if some.sample is not None]
        if not samples:
            if not any(some.n_rows for some in found):
                raise DataError("X has no rows: all partitions are empty. The selection of rows may be empty.")
            raise DataError("No partition has a row with a nonzero sample weight. Pass weights above 0 for some rows.")
        counts: dict[Any, int] = {}
        for one in found:
            for label, n in one.counts.items():
                counts[label] = counts.get(label, 0) + n
        X, y, weights = zip(*samples, strict=True)
        return cls(_below(X), np.concatenate(y), None if weights[0] is None else np.concatenate(weights), counts)

    def named(self, y: Any) -> Any:
        """Return the targets with the name of a Dask series, by which a column of X that tells y is found."""
        if not (hasattr(self.X, "iloc") and hasattr(y, "to_frame")):
            return self.y
        import pandas as pd

        return pd.Series(self.y, name=y.name)


def _below(X: Sequence[Any]) -> Any:
    """Return concatenated rows; frames stay frames, to keep the names and types of columns."""
    forms = [form_of(rows) for rows in X]
    for form in forms:
        if form != forms[0]:
            raise DataError(
                f"All partitions must have the same form of rows, got {form} and {forms[0]}. Convert all in the same "
                "way, such as X.map_blocks(scipy.sparse.csr_array), or select the same columns of each."
            )
    if hasattr(X[0], "iloc"):
        import pandas as pd

        return pd.concat(X, ignore_index=True)
    return stack(X)


def encode(part: Part, estimator: OrtGradientEstimator, model: TrainedModel) -> TrainingData | None:
    """Return a partition in the form for the objective, after the frozen front; None if no row counts."""
    X, y, weight = part
    if not len_of(X) or (weight is not None and not np.any(np.asarray(weight))):
        return None
    rows = check_rows(estimator, X, y, None, model)
    if weight is None and model.positional:
        weight = np.ones(len_of(X))  # the weight of a row depends on its positions, so all partitions need weights
    if weight is not None:
        weight = check_sample_weight(weight, rows.y, model.dtype, keep=True)
    weight = estimator._targets.weigh(rows.y, weight)
    return model.behind_front(data_of(estimator, model, rows._replace(weight=weight)))[1]


def encoded(
    workers: Workers, parts: Sequence[Future], estimator: OrtGradientEstimator, model: TrainedModel
) -> DistributedRows:
    """Return the encoded rows of the partitions, on the workers that hold them."""
    # a task, so that Dask can send the result to other workers again
    shared = workers.client.submit(_both, estimator, model, pure=False)
    places = workers.places(parts)
    futures = [workers.start(place, _encode, part, shared) for part, place in zip(parts, places, strict=True)]
    rows = DistributedRows.of(workers, futures, places)
    if not rows.lengths:
        raise DataError("No partition has a row with a nonzero sample weight.")
    return rows


def _both(estimator: OrtGradientEstimator, model: TrainedModel) -> tuple[OrtGradientEstimator, TrainedModel]:
    return estimator, model


def _encode(part: Part, shared: tuple[OrtGradientEstimator, TrainedModel]) -> TrainingData | None:
    return encode(part, *shared)


def held_out(
    rows: DistributedRows, fraction: float, random_state: np.random.RandomState
) -> tuple[DistributedRows, DistributedRows]:
    """Return the training rows and a random set of held-out rows."""
    n = rows.n_rows
    is_held = np.zeros(n, bool)
    is_held[random_state.permutation(n)[: int(np.ceil(fraction * n))]] = True
    if is_held.all():
        raise DataError(f"validation_fraction={fraction:g} of {n} rows leaves none to train on.")
    cuts = np.split(is_held, np.cumsum(rows.lengths)[:-1])
    submit = rows.workers.client.submit
    both = [
        [
            submit(subset, part, np.flatnonzero(held == wanted), pure=False)
            for part, held in zip(rows.parts, cuts, strict=True)
        ]
        for wanted in (False, True)
    ]
    train, validation = (DistributedRows.of(rows.workers, parts, rows.places) for parts in both)
    return train, validation


def subset(data: TrainingData, places: np.ndarray) -> TrainingData | None:
    """Return some of the rows that count; None for an empty selection."""
    return data.subset(data.rows[places]) if len(places) else None


def class_weights_of(estimator: Any, counts: dict[Any, int]) -> Any:
    """Return the parameter `class_weight` for partitions, with balanced weights computed from the counts of all rows.

    Raises
    ------
    ParameterError
        ``"balanced"`` is not supported for multilabel targets.
    """
    wanted = getattr(estimator, "class_weight", None)
    if not isinstance(wanted, str):
        return wanted
    if not counts:
        raise ParameterError(
            "class_weight='balanced' needs one class per row on a cluster. Pass a dictionary for each label."
        )
    return balanced(counts)


def with_front(model: TrainedModel, data: TrainingData, n_epochs: int, n_rows: float) -> TrainedModel:
    """Return the model, cut at its trained weights if that pays for all rows; `data` is a sample of them."""
    # the work on all rows, as a number of epochs over the sample
    return replace(model, front=None).cut(data, max(1, int(n_epochs * n_rows / len(data.label))))[0]
