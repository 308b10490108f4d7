"""A row of the output, and its loss, must belong to one row of the input and not depend on the others of its batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnxtrain import graph
from onnxtrain.convert.quantized import activation_bits, scales_of_batches
from onnxtrain.errors import DataError, ModelError, warn
from onnxtrain.estimators.frames import count_rows
from onnxtrain.estimators.protocols import Features, take
from onnxtrain.estimators.reports import is_part_of_more
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.losses import find_loss
from onnxtrain.registry import is_of_package

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator
    from onnxtrain.estimators.frames import Rows

#: A result that changes by more with the other rows of the batch depends on them. Rounding changes it by less than the
#: first if the graph agrees with the original, dynamic quantization of activations by less than the second.
_MIXED, _MIXED_STEPS = 1e-2, 0.1

#: The number of rows on which a loss of the user's own is examined, and the differences of its values that may be
#: rounding errors of predictions, relative to the labels.
_FEW, _ROUNDED = 100, 1e-6

#: Operators whose results are random.
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


def check_first_axis(model: TrainedModel, X: Features) -> tuple[int, ...]:
    """Return the shape of the output for one row.

    Raises
    ------
    ModelError
        The first axis of the output is not that of the rows.
    """
    output = model.source.model.output
    two, one = (_shape_on(model, take(X, np.array(rows))) for rows in ([0, -1], [0]))
    if (two[:1], one[:1]) != ((2,), (1,)):
        moved = [axis for axis, sizes in enumerate(zip(two, one, strict=False)) if sizes == (2, 1)]
        rows_are = f", so the rows are on axis {moved[0]}" if len(moved) == 1 else ""
        remedy = (
            "Export the model with batch_first=True in its recurrent layers, or let it return result.transpose(0, 1)."
            + (_turned(output, len(one), moved[0]) if len(moved) == 1 else "")
            if len(one) == len(two)
            else "A Squeeze removes the axis of a single row. Export the model with the axis in squeeze(axis)."
        )
        raise ModelError(
            f"The first axis of the output {output!r} must be the rows, but its shape is {one} for one row and {two} "
            f"for two{rows_are}. {remedy}"
        )
    return one


def _turned(output: str, n_axes: int, axis: int) -> str:
    """Return the code that adds an output with the rows first to a file."""
    perm = [axis, *(i for i in range(n_axes) if i != axis)]
    return (
        " To change the file instead:\n"
        '    onx = onnx.load("model.onnx")\n'
        f'    node = onnx.helper.make_node("Transpose", [{output!r}], ["rows_first"], perm={perm})\n'
        "    onx.graph.node.append(node)\n"
        '    onx.graph.output.append(onnx.helper.make_empty_tensor_value_info("rows_first"))\n'
        '    estimator, output = onx, "rows_first"'
    )


def _shape_on(model: TrainedModel, X: Features) -> tuple[int, ...]:
    """Return the shape of the output for the given rows."""
    output = model.source.model.output
    return model.run_once(model.form.feeds(X, model.source.model), [output])[output].shape


def check_row_count(output: str, found: np.ndarray, n_rows: int) -> None:
    """Raise a ModelError if an output of two axes has more or fewer rows than X."""
    if found.ndim == 2 and len(found) != n_rows:
        raise ModelError(
            f"The output {output!r} has shape {found.shape} for {n_rows} rows of X, but each row of X must have one "
            "row in the output. If a Reshape of the model has a fixed batch size, export it with x.reshape(len(x), "
            "-1). With head='new', set features to a value that has the rows on its first axis."
        )


def check_rows_alone(model: TrainedModel, found: Mapping[str, np.ndarray], feeds: Mapping[str, np.ndarray]) -> None:
    """Raise a ModelError if the result for a row depends on the other rows of its batch, or on their number."""
    output = model.source.model.output
    n = count_rows(feeds)
    check_row_count(output, found[output], n)
    if n < 2:
        return
    largest = int(np.argmax(np.nan_to_num(np.abs(found[output]).reshape(n, -1)).max(axis=1)))
    for rows in {_middle(n, largest), (largest, largest + 1)}:
        some = slice(*rows)
        try:
            alone = model.run_once({name: x[some] for name, x in feeds.items()}, [output])[output]
        except DataError:  # no single row is accepted, or the file has the indices of a graph whose nodes are the rows
            order = np.random.RandomState(0).permutation(n)
            moved = model.run_once({name: x[order] for name, x in feeds.items()}, [output])[output]
            _check_alone(model, moved, found[output][order])
            continue
        expected = found[output][some]
        if expected.ndim > 1 and expected.shape[1] == n and alone.shape[1:2] == alone.shape[:1] != (n,):
            raise ModelError(
                f"The output {output!r} has a column for each row of the batch, its shape is {found[output].shape} for "
                f"{n} rows, so it compares rows with each other, but batches are drawn at random. Set output to an "
                "output that has one result per row, or set head='new' and name such a value with features."
            )
        if alone.shape[:1] != expected.shape[:1]:  # one row may lose its axis, in a Squeeze; several do not
            more = model.run_once({name: x[[largest] * (n + 1)] for name, x in feeds.items()}, [output])[output]
            check_row_count(output, more.reshape(len(more), -1), n + 1)
        if alone.size == expected.size:
            _check_alone(model, alone.reshape(expected.shape), expected)


def _middle(n: int, largest: int) -> tuple[int, int]:
    """Return the bounds of about half of n rows, of three or more with rows before and after them.

    The row of the largest result is left out if it is among them, because it may be the only one that others change.
    """
    first = (n - n // 2 + 1) // 2
    bounds = first, first + n // 2
    if n > 3 and bounds[0] <= largest < bounds[1]:
        return max((first, largest), (largest + 1, bounds[1]), key=lambda rows: rows[1] - rows[0])
    return bounds


def _check_alone(model: TrainedModel, alone: np.ndarray, expected: np.ndarray) -> None:
    """Compare results for some rows alone with those for the same rows among others."""
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    if np.allclose(alone, expected, rtol=0, atol=_MIXED * largest, equal_nan=True):
        return
    original = onnx.load_model_from_string(model.source.rows_first())
    of_batch = scales_of_batches(original)
    has_steps = of_batch or activation_bits(original)
    if has_steps and np.allclose(alone, expected, rtol=0, atol=_MIXED_STEPS * largest, equal_nan=True):
        return
    if drawn := random_numbers(original):
        raise ModelError(f"The output {model.source.model.output!r} of a row is random. {drawn}")
    another_axis = (
        "If the rows of an input are on another axis, set batch_axis={name: axis}. The steps of one sequence or the "
        "nodes of one graph are not rows: export the network for inputs with a first axis of sequences or graphs, such "
        "as (graphs, nodes, features). Export it in evaluation mode."
    )
    remedy = of_batch or in_training_mode(original) or _softmax_of_rows(original) + another_axis
    raise ModelError(
        f"The output {model.source.model.output!r} of a row depends on the other rows of its batch or on their number, "
        f"but batches are drawn at random. {remedy}"
    )


def warn_of_loss_of_batch(
    estimator: OrtGradientEstimator, model: TrainedModel, rows: Rows, known: TrainedModel | None = None
) -> None:
    """Warn of a loss of the user's own that depends on the other rows of its batch, or changes between calls.

    A loss that was examined with the model of the last fit, `known`, is not examined again.
    """
    objective, n = model.objective, min(len(rows.y), _FEW)
    loss = find_loss(objective.loss, dict(objective.loss_params), classifies=objective.classifies).function
    if n < 2 or is_of_package(loss) or is_part_of_more() or (known is not None and known.objective == objective):
        return
    original = onnx.load_model_from_string(model.source.rows_first())
    if scales_of_batches(original) or activation_bits(original):
        return
    # labels of other rows: those of its own row may have a loss of rounding errors only
    X, label = take(rows.X, np.arange(n)), np.roll(estimator._targets.encode(rows.y[:n], model), 1, axis=0)
    found = model.losses(X, label)
    rounding = _ROUNDED * float(np.abs(np.nan_to_num(label)).max())
    for bounds in {_middle(n, n - 1), (n - 1, n)}:
        some = np.arange(*bounds)
        alone, expected = model.losses(take(X, some), label[some]), found[some]
        largest = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
        if not np.allclose(alone, expected, rtol=0, atol=rounding + _MIXED * largest, equal_nan=True):
            name = getattr(loss, "__name__", repr(loss))
            return warn(
                f"The loss {name!r} of a row changes between calls, as with random numbers, or depends on the other "
                "rows of its batch or on their number. Batches are drawn at random, and those of losses(X, y), of a "
                "validation set and of L-BFGS have other sizes, so these losses differ. Compute the loss of a row from "
                "the row alone, with sums, means and Softmax over axis 1, and pass constants, such as the mean of y, "
                "by loss_params."
            )


def random_numbers(onx: onnx.ModelProto) -> str:
    """Name a node with random results, and the remedy, for a message; empty if there is none."""
    nodes = graph.nodes_in(onx.graph.node)
    training = ("Dropout", 3)  # its third input is the mode
    found = next((n for n in nodes if n.op_type in _RANDOM or (n.op_type, len(n.input)) == training), None)
    if found is None:
        return ""
    return (
        f"{found.op_type} (node {found.name!r}) draws other numbers in each run. Export the network in evaluation "
        "mode, or make the random numbers an input."
    )


def in_training_mode(onx: onnx.ModelProto) -> str:
    """Return the remedy for a BatchNormalization that computes the statistics of each batch; empty if there is none."""
    for node in graph.nodes_in(onx.graph.node):
        trains = len(node.output) > 1 or any(a.name == "training_mode" and a.i for a in node.attribute)
        if node.op_type == "BatchNormalization" and trains:
            return "BatchNormalization is in training mode. Export the network in evaluation mode, after model.eval()."
    return ""


def _softmax_of_rows(onx: onnx.ModelProto) -> str:
    """Return the remedy if a Softmax may normalize over the rows; else ""."""
    softmaxes = (node for node in graph.nodes_in(onx.graph.node) if node.op_type in ("Softmax", "LogSoftmax"))
    found = next((node for node in softmaxes if any(a.name == "axis" and a.i == 0 for a in node.attribute)), None)
    if found is None:
        return ""
    return (
        f"The {found.op_type} that computes {found.output[0]!r} is over axis 0. If this is the axis of the rows, use "
        "the last axis instead, as dim=-1 in PyTorch. "
    )
