"""How an output is read if the graph leaves it open: rows show its columns and whether it is a probability."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from onnxtrain import graph
from onnxtrain.cache import LIGHT
from onnxtrain.errors import ModelError, warn
from onnxtrain.estimators.agreement import SUM, WORK, refuse_empty, some_rows
from onnxtrain.estimators.frames import InputForm, count_rows
from onnxtrain.estimators.independence import check_row_count
from onnxtrain.estimators.protocols import Features
from onnxtrain.estimators.source import Source
from onnxtrain.estimators.trained import run_rows
from onnxtrain.losses.link import Link
from onnxtrain.losses.outputs import find_columns
from onnxtrain.losses.ranges import range_of
from onnxtrain.runtime.device import find_device
from onnxtrain.runtime.session import Place
from onnxtrain.training.model import Reading, TrainableModel


def settled(source: Source, X: Features, form: InputForm, reading: Reading) -> Source:
    """Return the source completed by running rows: the columns of its output, and whether it is a probability."""
    feeds = form.feeds(few_rows(X, source.model), source.model)
    found = _output_on(source.model, feeds)
    refuse_empty(source.model.output, found)
    check_row_count(source.model.output, found, count_rows(feeds))
    if not source.model.width:
        if not found.ndim:
            raise ModelError(
                f"The output {source.model.output!r} is a single number for all rows. Pass output=... to train an "
                "output with one value per row, or set head='new' to give the model a new last layer."
            )
        source = _with_columns(source, found.shape, X, reading)
    if not reading.needs_rows(source.model):
        return source
    if source.original is None and reading.output_is is None:
        kinds = {"predict_proba": "probabilities", "decision_function": "scores"}
        of_methods = [kind for method, kind in kinds.items() if hasattr(source.estimator, method)]
        if len(of_methods) == 1:  # with both methods, a graph has the one or the other
            reading = replace(reading, output_is=of_methods[0])
    return replace(source, model=_of_known_kind(source.model, found, reading))


def few_rows(X: Features, model: TrainableModel) -> Features:
    """Return rows spread over X; only two if their outputs have positions, since these may be large."""
    return some_rows(X, WORK if model.positional else 0.0)


def _output_on(model: TrainableModel, feeds: Mapping[str, Any]) -> np.ndarray:
    """Return the output of a model with its original weights for some rows."""
    share = len(model.onnx) <= LIGHT
    held = graph.held_by_name(model.graph()) if model.held else {}
    onx = graph.initializers_as_inputs(model.graph(), list(held)).SerializeToString() if held else model.onnx
    session = Place(find_device("cpu"), 1 if share else None).open(onx, shared=share, thorough=share)
    return run_rows(session, feeds, model.features, [model.output], held)[model.output]


def _with_columns(source: Source, shape: tuple[int, ...], X: Features, reading: Reading) -> Source:
    """Return the source with this output shape, in the user's model as in the trainable graph."""
    model = source.model
    if source.original is not None:
        original = onnx.load_model_from_string(source.original)
        axes: list[int | None] = list(shape)
        if reading.target is not None and len(shape) > 2:
            class_axis = find_columns(model.output, shape, reading.target, reading.class_axis).class_axis
            reading = replace(reading, class_axis=class_axis)
            axes = [size if axis == class_axis else None for axis, size in enumerate(shape)]
        declared = Source.of_onnx(_declared(original, model.output, axes), X, reading, source.entrance)
        return replace(declared, original=source.original, layout=source.layout)
    width = shape[1] if len(shape) == 2 else 1
    known = model.with_graph(_declared(model.graph(), model.output, shape))
    return replace(source, model=replace(known, width=width, n_scores=width))


def _of_known_kind(model: TrainableModel, found: np.ndarray, reading: Reading) -> TrainableModel:
    """Return a classifier's model whose output is classified as scores or probabilities.

    Rows within [0, 1] that sum to one are probabilities. Rows within [0, 1] that do not are ambiguous: they are read as
    scores, with a warning unless all values are equal, as for a model with zero weights.

    Raises
    ------
    ModelError
        The output is declared as probabilities, but has values outside [0, 1].
    """
    found = model.layout.table(found)
    outside = ~((found >= -SUM) & (found <= 1 + SUM)).all(axis=1)
    if reading.output_is == "probabilities":
        _check_unit(model, found, outside)
        link = Link.PROBABILITY if model.link is Link.IDENTITY else model.link
        return replace(model, link=link, scores=None if link is Link.PROBABILITY else model.scores, certain=True)
    if reading.output_is == "scores":
        return _of_scores(model, found.shape[1])
    sums_to_one = found.shape[1] > 1 and np.all(np.abs(found.sum(axis=1) - 1) <= SUM)
    if sums_to_one and not reading.n_labels and not outside.any():
        link = Link.PROBABILITY if model.link is Link.IDENTITY else model.link
        return replace(model, link=link, scores=None if link is Link.PROBABILITY else model.scores, certain=True)
    decides_by_sign = found.shape[1] == 1 or reading.n_labels > 0
    doubt = _doubt(model, found, outside=bool(outside.any()), decides_by_sign=decides_by_sign)
    if doubt:
        warn(f"{doubt} or set output_is='scores'.")
    return _of_scores(model, found.shape[1])


def _doubt(model: TrainableModel, found: np.ndarray, *, outside: bool, decides_by_sign: bool) -> str:
    """Return the start of a warning: evidence that the output is not scores, and the remedy; empty if none."""
    output, total = repr(model.output), _common_sum(found)
    if total:
        return (
            f"The rows of the output {output} sum to {total:.6g}, like probabilities times {total:.6g}. It is read as "
            f"scores. Divide it by {total:.6g} in the model,"
        )
    if not outside and np.ptp(found) > 0:
        return (
            f"The output {output} lies between 0 and 1 on the rows, and the model does not show whether it contains "
            "scores or probabilities. It is read as scores. Set output_is='probabilities' if it contains probabilities,"
        )
    undone = next((name for name, undo in _LOGARITHMS.items() if _sums_to_one(undo, found)), None)
    if undone:
        return (
            f"The rows of {undone.format(model.output)} sum to one, as if the output {output} were this logarithm of "
            "probabilities. It is read as scores, and the class is that of the largest. Make it a natural logarithm,"
        )
    if decides_by_sign and _has_one_sign(model, found):
        return (
            f"The output {output} is never {'negative' if found.max() > 0 else 'positive'}, but it is read as "
            "scores, whose sign decides, so it predicts the same for every row. Make it a score or a probability,"
        )
    return ""


#: Functions that invert logarithms of probabilities other than the natural one, which Softmax inverts.
_LOGARITHMS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp(-{})": lambda z: np.exp(-z),
    "2 ** {}": np.exp2,
    "10 ** {}": lambda z: np.power(10.0, z),
}


def _sums_to_one(undo: Callable[[np.ndarray], np.ndarray], found: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return found.shape[1] > 1 and bool(np.all(np.abs(undo(found.astype(np.float64)).sum(axis=1) - 1) <= SUM))


def _has_one_sign(model: TrainableModel, found: np.ndarray) -> bool:
    """Whether the output has one sign on the rows, and the graph proves it for all rows."""
    if found.min() < 0 < found.max() or not np.ptp(found) > 0:
        return False
    values = graph.load(model.graph()).graph.outputs
    bounds = next(range_of(v) for v in values if v.name == model.output)
    return bounds.low >= 0 or bounds.high <= 0


def _common_sum(found: np.ndarray) -> float:
    """Return the sum that all rows share, such as 100 for percentages; 0 if the rows cannot be scaled probabilities."""
    alike = np.ptp(found, axis=0).max() == 0  # identical rows show nothing
    if found.shape[1] < 2 or alike or found.min() < 0 or not np.isfinite(found).all():
        return 0.0
    sums = found.sum(axis=1)
    return float(sums[0]) if len(sums) > 1 and np.all(np.abs(sums - sums[0]) <= SUM * sums[0]) else 0.0


def _of_scores(model: TrainableModel, n_scores: int) -> TrainableModel:
    if model.link is Link.IDENTITY:
        return replace(model, certain=True)
    return replace(model, link=Link.IDENTITY, scores=model.output, n_scores=n_scores, certain=True)


def _check_unit(model: TrainableModel, found: np.ndarray, outside: np.ndarray) -> None:
    if outside.any():
        row = int(np.argmax(outside))
        raise ModelError(
            f"output_is='probabilities', but the output {model.output!r} has values outside [0, 1]: {found[row]} in "
            f"row {row} of the {len(found)} rows that were checked. Set output_is='scores'."
        )


def _declared(original: onnx.ModelProto, output: str, shape: Sequence[int | None]) -> onnx.ModelProto:
    """Return a copy of an ONNX model whose output is declared with the shape that was observed.

    None in `shape` leaves a length open.
    """
    proto = graph.copy_of(original)
    for value in proto.graph.output:
        if value.name == output:
            dims = value.type.tensor_type.shape
            del dims.dim[:]
            for i, size in enumerate(shape):
                dims.dim.add(**({"dim_param": "rows"} if i == 0 else {} if size is None else {"dim_value": size}))
    return proto
