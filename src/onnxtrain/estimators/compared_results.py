"""Comparison of a model's results before training with those of the original: values, and labels except ties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxtrain.convert.check import differences, worst_row
from onnxtrain.errors import ModelError, OnnxTrainError
from onnxtrain.estimators.decoder import LabelDecoder
from onnxtrain.estimators.trained import TrainedModel

#: The tolerances relative to the largest value, of float32 graphs and of half-precision graphs trained in float32.
TOLERANCE, TOLERANCE_OF_HALVES = 1e-3, 3e-2

#: The tolerance for results of iterations that end early, such as libsvm's pairwise coupling.
_APPROXIMATE = 1e-2

#: libsvm chooses the class by its decision values and fits its probabilities to them. Near the boundary the most
#: probable class may be another, as scikit-learn documents. Up to this fraction of the rows gives a warning, more an
#: error.
_FEW = 0.1

#: The largest number of rows that a message names.
_NAMED = 6

#: skl2onnx predicts by clipped probabilities for SGDClassifier(loss="modified_huber") of three or more classes.
_TIED = (
    "Several probabilities of these rows are clipped or rounded to the same largest value. The file predicts the first "
    "of these classes, but predict() the class with the largest score. Pass the scikit-learn estimator instead of the "
    "file, or convert it with the option raw_scores=True."
)

#: Two classes whose scores differ by less, relative to the largest score, are tied in float32.
_TIE = 1e-4


def check_values(
    name: str,
    found: np.ndarray,
    expected: Any,
    remedy: Callable[[], str],
    *,
    error: type[OnnxTrainError],
    rough: bool = False,
    steps: float = 0.0,
    least: float = 1e-30,
    of_range: bool = False,
) -> float:
    """Return the largest difference between values on the same rows; 0 if they represent different things.

    `least` and `of_range` are as for :func:`~onnxtrain.convert.check.differences`.

    Raises
    ------
    OnnxTrainError
        An instance of `error` that names the row with the largest difference.
    """
    if isinstance(expected, list):  # multilabel: one array of probabilities per label
        expected = np.column_stack([np.asarray(p)[:, -1] for p in expected])
    expected = np.asarray(expected)
    tolerance = max(_APPROXIMATE if rough else TOLERANCE, steps)
    if expected.dtype.kind != "f":
        return 0.0
    if expected.dtype.itemsize == 2:
        tolerance = max(TOLERANCE_OF_HALVES, steps)
    expected = expected.reshape(len(expected), -1).astype(np.float64)
    found = found.reshape(len(found), -1)
    if found.shape != expected.shape:
        if found.shape[1] != 2 or expected.shape[1] != 1:
            return 0.0  # another representation; the conversion has already compared this graph
        found = found[:, 1:]
    off = differences(found, expected, least, of_range=of_range)
    if not off.max(initial=0.0) <= tolerance:
        row = worst_row(off)
        raise error(
            f"Before the first step, {name} differs from the original model: {found[row]} instead of {expected[row]} "
            f"in row {row} of {len(found)} compared rows. {remedy()}"
        )
    return float(off.max(initial=0.0))


def check_labels(
    model: TrainedModel,
    found: Mapping[str, np.ndarray],
    expected: Any,
    decoder: LabelDecoder,
    remedy: Callable[[], str],
    *,
    error: type[OnnxTrainError],
    rough: bool,
    steps: float = 0.0,
) -> tuple[str, ...]:
    """Compare the predicted classes with those of the original model, except ties.

    Returns
    -------
    tuple of str
        A warning if libsvm's probabilities choose another class for a few rows, or if a file chooses the first of
        several classes with equal probabilities although their scores differ.

    Raises
    ------
    OnnxTrainError
        An instance of `error` that names the first row whose labels differ, and its scores.
    """
    found = {name: model.layout.table(y) for name, y in found.items()}
    own, scores = decoder.labels(found[model.scores]), decoder.margins(found[model.scores])
    expected = np.asarray(expected.toarray() if hasattr(expected, "toarray") else expected)
    if expected.size != own.size:
        return ()  # not one label per row
    labels = _as_classes(expected.reshape(own.shape), decoder.classes)
    if labels is None:
        return ()
    output = found[model.source.model.output]
    differs, unequal = _differ(own, labels, scores, output, steps), _any_label(labels != own)
    # where libsvm's probabilities are tied its decision function is not
    reported = unequal if rough else differs
    tied = not reported.any() and error is ModelError and own.ndim == 1 and output.shape == scores.shape
    if tied:
        reported, remedy = unequal & (_gap(output) == 0) & (_gap(scores) > _TIE * np.abs(scores).max()), lambda: _TIED
    if not reported.any():
        return ()
    row = int(np.argmax(reported))
    others = np.flatnonzero(reported)[1:_NAMED]
    also = (
        f", also in rows {', '.join(map(str, others))}{', ...' if reported.sum() > _NAMED else ''}"
        if others.size
        else ""
    )
    message = (
        f"Before the first step, predict differs from the original model in {int(reported.sum())} of {len(own)} "
        f"rows, first in row {row}: {own[row].tolist()!r} instead of {labels[row].tolist()!r}, with scores "
        f"{scores[row]}{also}. {remedy()}"
    )
    if tied or (rough and differs.mean() < _FEW):
        return (message,)
    raise error(message)


def _differ(own: np.ndarray, labels: np.ndarray, scores: np.ndarray, output: np.ndarray, steps: float) -> np.ndarray:
    """Return which rows have different labels, except ties; scores and output may each be wrong by `steps`."""
    tie = max(_TIE, 2 * steps)
    differs = labels != own
    if own.ndim > 1:
        return _any_label(differs & (np.abs(scores) > tie))
    differs &= _gap(scores) > tie * np.abs(scores).max(initial=0.0)
    if output.shape == scores.shape:  # probabilities may be rounded to one although the scores differ
        differs &= _gap(output) > steps
    return differs


def _any_label(differs: np.ndarray) -> np.ndarray:
    """Return, for each row, whether any of its labels differs."""
    return differs.reshape(len(differs), -1).any(axis=1)


def _gap(scores: np.ndarray) -> np.ndarray:
    """Return the difference between the largest and the second largest score of each row."""
    best = np.sort(scores, axis=1)
    return best[:, -1] - best[:, -2]


def _as_classes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray | None:
    """Return the labels as classes; labels may also be class indices. Return None if they are neither."""
    if labels.ndim > 1:
        return labels.astype(np.int64) if labels.dtype.kind in "iubf" else None
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "O":
        labels = np.array([v.decode() if isinstance(v, bytes) else v for v in labels.tolist()])
    if np.isin(labels, classes).all():
        return labels
    if labels.dtype.kind in "iu" and labels.min() >= 0 and labels.max() < len(classes):
        return classes[labels]
    return None
