"""The trained output of a model: named, the only one, computed before labels, or one per label joined.

An output of three and more axes has the rows, then positions, and one axis for the classes. A position is a token of a
text, a pixel of an image or a step of a sequence. Labels have one entry per position, so they lack the class axis:
(n, t) for an output (n, t, K), (n, h, w) for (n, K, h, w). If labels have the shape of the output, there is no class
axis: each entry is a position with its own value, or a binary problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import DataError, ModelError, ParameterError
from onnxtrain.graph import Op, constant, describe, find, is_float, made_by, origin, rank, static_shape
from onnxtrain.losses.link import Link, n_columns, other, scores_behind
from onnxtrain.losses.ranges import is_probability, operand_of
from onnxtrain.registry import did_you_mean

#: The shapes of a loss of a batch.
_OF_LOSS = frozenset({(), (1,), (1, 1)})


def choose_output(
    model: ir.Model, output: int | str | None = None, *, labels: bool = False, argument: str = "output"
) -> ir.Value:
    """Return the output to train: by position, by name, or the only floating-point one.

    Parameters
    ----------
    model : onnx_ir.Model
    output : int, str or None
        None: the only floating-point output, so the second of (label, probabilities).
    labels : bool
        For an output of labels, chosen by its name or as the only output, return
        the scores that the labels are computed from.
    argument : str
        The user's name of `output`, for messages.

    Raises
    ------
    ModelError
        There is no such output, it is not floating-point, or the choice is ambiguous.
    """
    outputs = list(model.graph.outputs)
    if isinstance(output, str):
        chosen = find(outputs, output, "output")
    elif output is None:
        chosen = _only_output(outputs, argument, labels=labels)
    else:
        chosen = _output_at(outputs, output, argument)
    if is_float(chosen):
        return chosen
    scores = _scores_of_labels(chosen) if labels else None
    if scores is None:
        problem = ", and the scores behind its labels were not recognized" if labels else ""
        others = [str(v.name) for v in outputs if is_float(v)]
        remedy = (
            f"Set {argument} to another output: {', '.join(map(repr, others))}"
            if others
            else "Export the model with its scores or probabilities as an output"
        )
        raise ModelError(
            f"A loss requires a floating-point output, but {describe(chosen)} is not floating-point{problem}. {remedy}."
        )
    return scores


def _output_at(outputs: list[ir.Value], position: int, argument: str) -> ir.Value:
    if not isinstance(position, (int, np.integer)) or isinstance(position, bool):
        names = [str(v.name) for v in outputs]
        raise ModelError(
            f"{argument} must be a name, a position or None, got {position!r}. {did_you_mean(position, names)}"
        )
    if not -len(outputs) <= position < len(outputs):
        found = ", ".join(f"{i}: {v.name!r}" for i, v in enumerate(outputs))
        raise ModelError(
            f"There is no output {position}: the model has {len(outputs)} ({found}). Set {argument} to one of them."
        )
    return outputs[position]


def _only_output(outputs: list[ir.Value], argument: str, *, labels: bool) -> ir.Value:
    """Return the only floating-point output, or the scores from which the only output of labels is computed."""
    floats = [v for v in outputs if is_float(v)]
    others = [v for v in outputs if not is_float(v)]
    if len(floats) == 1:
        return floats[0]
    if labels and len(others) == 1:  # only labels, or also one output per column of the probabilities
        scores = _scores_of_labels(others[0]) if floats else others[0]
        if scores is not None:
            return scores
    candidates = floats or outputs
    problem = "The model has several floating-point outputs" if floats else "The model has no floating-point output"
    more = f" and {len(candidates) - 20} more" if len(candidates) > 20 else ""
    found = ", ".join(map(describe, candidates[:20])) + more
    remedy = _which(floats, argument) if floats else "Export the model with its scores or probabilities as an output."
    raise ModelError(f"{problem}: {found}. {remedy}")


def _which(outputs: list[ir.Value], argument: str) -> str:
    """Return the remedy for several outputs: one of them, but not a loss, which is one number for all rows."""
    losses = [v for v in outputs if static_shape(v) in _OF_LOSS]
    others = [v for v in outputs if v not in losses]
    if losses and others:
        name = (_likely(others) or others[0]).name
        return (
            f"{losses[0].name!r} is one number for all rows, like a loss. Set {argument}={name!r}, or "
            "pass the model as it was before this loss was added, or exported without labels."
        )
    likely = _likely(outputs)
    remedy = f"Set {argument} to one of them, the name of the output that predicts y."
    if likely is not None:
        remedy = f"Set {argument} to one of them, for example {argument}={likely.name!r}."
    if argument == "output" and not any(map(_predicts, outputs)):
        remedy += " If they are hidden states, as of a body without its last layer, set head='new', too."
    return remedy


def _likely(outputs: list[ir.Value]) -> ir.Value | None:
    """Return the first output whose name says that it predicts."""
    return next((v for v in outputs if _predicts(v) or "output" in str(v.name).lower()), None)


def _predicts(output: ir.Value) -> bool:
    return re.search("logit|score|prob|pred", str(output.name).lower()) is not None


def _scores_of_labels(label: ir.Value) -> ir.Value | None:
    """Return the input of the ArgMax that computes the labels, or the binary score that is compared with 0 or 1/2."""
    index: ir.Value | None = label
    while index is not None and (node := index.producer()) is not None:
        if (node.domain == "ai.onnx.ml") != (node.op_type in ("ArrayFeatureExtractor", "LabelEncoder")):
            return None
        if node.op_type in _MAKES_LABELS:
            return _MAKES_LABELS[node.op_type](node) if index is node.outputs[-1] else None
        position = _BEHIND_INDEX.get(node.op_type)
        if position is None or (position == 1 and constant(node.inputs[0]) is None):
            return None
        index = node.inputs[position]
    return None


def counts_votes(model: ir.Model, output: str) -> bool:
    """Whether labels are those with the most votes, while the output is votes + d / (3 (|d| + 1)).

    skl2onnx writes these for SVC with three or more classes. The fraction does not decide: of several classes with the
    most votes, the first is chosen.
    """
    node = origin(find(model.graph.outputs, output, "output"))
    if node is None or node.op_type != "Add" or (fraction := made_by(node.inputs[1], "Div")) is None:
        return False
    d, divisor = fraction.inputs
    if d is None or operand_of(other(made_by(other(made_by(divisor, "Mul"), 3), "Add"), 1), "Abs") is not d:
        return False
    chosen = [_scores_of_labels(v) for v in model.graph.outputs if not is_float(v)]
    return any(v is not None and origin(v) is not node for v in chosen)


def _largest_of(node: ir.Node) -> ir.Value | None:
    x, *k = node.inputs
    along = node.attributes.get_int("axis", 0 if node.op_type == "ArgMax" else -1)
    first = node.attributes.get_int("largest", 1) == 1 and all(v is not None and constant(v) == 1 for v in k)
    n_axes = 0 if x is None else rank(x) or 0
    return x if n_axes > 1 and along % n_axes and first else None


def _compared(node: ir.Node) -> ir.Value | None:
    x, limit = node.inputs
    number = constant(limit)
    if x is None or not is_float(x) or number is None or number.size != 1:
        return None
    return x if number == (0.5 if is_probability(x) else 0) else None


#: Operators that choose a class index.
_MAKES_LABELS: Mapping[str, Callable[[ir.Node], ir.Value | None]] = {
    "ArgMax": _largest_of,
    "TopK": _largest_of,
    "Greater": _compared,
    "GreaterOrEqual": _compared,
}

#: Operators between a class index and its label, and the position of the operand that is the index.
_BEHIND_INDEX = {
    **dict.fromkeys(("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "LabelEncoder"), 0),
    **dict.fromkeys(("Gather", "ArrayFeatureExtractor"), 1),
}


def join_labels(model: ir.Model, op: Op, n_labels: int) -> ir.Value | None:
    """Append one value (n, K), the label probabilities, to a graph with K outputs of two classes each, in place.

    MultiOutputClassifier and networks with one head per label have such outputs.

    Parameters
    ----------
    model : onnx_ir.Model
    op : onnxscript builder
    n_labels : int
        K.

    Returns
    -------
    onnx_ir.Value or None
        The joined probabilities, or scores if the outputs are scores. None if there are not K floating-point outputs,
        or if they are of different kinds.
    """
    outputs = [v for v in model.graph.outputs if is_float(v)]
    found = [scores_behind(v, op) for v in outputs] if 2 <= n_labels == len(outputs) else []
    kinds = {(scores.link, n_columns(scores.value)) for scores in found}
    if kinds == {(Link.PROBABILITY, 2)}:  # trees
        return op.Concat(*(_column(op, v, 1) for v in outputs), axis=1)
    if kinds in ({(Link.SOFTMAX, 2)}, {(Link.EXP, 2)}):  # EXP: naive Bayes, whose scores are log probabilities
        differences = [op.Sub(_column(op, z.value, 1), _column(op, z.value, 0)) for z in found]
        return op.Sigmoid(op.Concat(*differences, axis=1))
    if kinds not in ({(Link.SIGMOID, 1)}, {(Link.IDENTITY, 1)}):
        return None
    parts = [z.value if rank(z.value) == 2 else op.Unsqueeze(z.value, [1]) for z in found]
    joined = op.Concat(*parts, axis=1)
    return op.Sigmoid(joined) if found[0].link is Link.SIGMOID else joined


def _column(op: Op, value: ir.Value, i: int) -> ir.Value:
    """Return a column as shape (n, 1)."""
    return op.Slice(value, [i], [i + 1], [1])


# ------------------------------------------------------------------------ axes


@dataclass(frozen=True)
class Layout:
    """The axes of an output, and how it is read as a table with the columns of scores that a loss takes.

    Attributes
    ----------
    n_axes : int
    class_axis : int or None
        The axis that labels lack, for an output of three or more axes; None: labels have the shape of the output.
    """

    n_axes: int = 2
    class_axis: int | None = None

    def table(self, found: np.ndarray) -> np.ndarray:
        """Return an output as a table (m, K), where m is the number of rows times positions."""
        if self.n_axes == 2:
            return found.reshape(len(found), -1)
        if self.class_axis is None:
            return found.reshape(-1, 1)
        return np.moveaxis(found, self.class_axis, -1).reshape(-1, found.shape[self.class_axis])

    def by_position(self, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return the values of the rows of a table in the shape of the labels; `shape` is the shape of the output."""
        if self.n_axes == 2:
            return values
        return values.reshape([size for axis, size in enumerate(shape) if axis != self.class_axis])

    def by_class(self, table: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return a table in the shape of the output, with its columns on the class axis; the last column if none.

        The number of columns may differ from the number in the output.
        """
        if self.n_axes == 2:
            return table
        if self.class_axis is None:
            return table[:, -1].reshape(shape)
        sizes = [size for axis, size in enumerate(shape) if axis != self.class_axis]
        return np.moveaxis(table.reshape(*sizes, table.shape[1]), -1, self.class_axis)


class Columns(NamedTuple):
    """The class axis and its length, 0 if the shape of the output does not show it."""

    class_axis: int | None
    width: int


def find_columns(output: str, shape: Sequence[int | None], target: Sequence[int], told: int | None = None) -> Columns:
    """Return the axis of an output that its labels lack, or None if labels have its shape.

    Parameters
    ----------
    output : str
        Its name.
    shape : sequence of int or None
        Rows first; None for a length that is not known.
    target : sequence of int
        The shape of a row of labels.
    told : int, optional
        The axis according to the user.

    Raises
    ------
    DataError
        The labels fit no axis, or several.
    ParameterError
        There is no such axis.

    Examples
    --------
    >>> find_columns("logits", (None, 21, None, None), (64, 64))
    Columns(class_axis=1, width=21)
    """
    n_axes = len(shape)
    whole = len(target) == n_axes - 1 and told is None
    if whole and _fit(shape[1:], target):
        return Columns(None, 1)
    tried = range(1, n_axes) if told is None else [_checked_axis(output, told, n_axes)]
    fitting = [axis for axis in tried if _fit([*shape[1:axis], *shape[axis + 1 :]], target)]
    known = [axis for axis in fitting if shape[axis] is not None]
    if len(known) == 1:
        return Columns(known[0], int(shape[known[0]] or 0))
    if known:
        raise DataError(
            f"The class axis of the output {output!r} is ambiguous: its shape {_written(shape)} and y of shape "
            f"{_written((None, *target))} allow the axes {' and '.join(map(str, known))}. Set class_axis={known[0]} or "
            f"class_axis={known[-1]}."
        )
    if fitting:
        return Columns(None, 0)
    axis, or_values = f", class_axis={told}", ""
    if told is None:
        axis, or_values = "", ", or one value per entry (the shape of the output)"
    elif others := [i for i in range(1, n_axes) if _fit([*shape[1:i], *shape[i + 1 :]], target)]:
        or_values = f", or class_axis={others[0]} must be set"
    raise DataError(
        f"y has shape {_written((None, *target))}, but the output {output!r} has shape {_written(shape)}. y must have "
        f"one label per position (the shape of the output without its class axis{axis}){or_values}."
        f"{_remedy(shape, target)}"
    )


#: The remedy for the labels of a language model that were shifted without a label for the last token.
NEXT_TOKEN = (
    " For the next token as label, the last position has none: numpy.pad(y, [(0, 0), (0, 1)], constant_values=-100)."
)


def _remedy(shape: Sequence[int | None], target: Sequence[int]) -> str:
    """Return the remedy for labels with an axis of length 1, or with a column per class."""
    if len(target) == 1 and len(shape) > 3:
        return " Pass y.reshape(len(y), height, width)."
    if len(shape) == 3 and target == (shape[1] - 1 if shape[1] else None,):
        return NEXT_TOKEN
    if len(target) != len(shape) - 1:
        return ""
    if 1 in target:
        axis = 1 + list(target).index(1)
        squeezed = [*target[: axis - 1], *target[axis:]]
        fits = any(_fit([*shape[1:i], *shape[i + 1 :]], squeezed) for i in range(1, len(shape)))
        return f" Pass numpy.squeeze(y, axis={axis})." if fits else ""
    colors = ""
    if len(shape) == 4 and target[-1] == 3:  # a color of red, green and blue per position
        code = "numpy.unique(y.reshape(-1, 3), axis=0, return_inverse=True)[1].reshape(y.shape[:-1])"
        colors = f" If y holds colors, one per class, number them: {code}."
    if target[-1] != shape[1]:
        return colors
    return (
        f"{colors} If the last axis of y holds channels, pass numpy.moveaxis(y, -1, 1); if classes, y.argmax(axis=-1)."
    )


def _fit(shape: Sequence[int | None], target: Sequence[int]) -> bool:
    """Whether all known lengths agree."""
    return len(shape) == len(target) and all(a is None or a == b for a, b in zip(shape, target, strict=True))


def _checked_axis(output: str, told: int, n_axes: int) -> int:
    if not -n_axes < told < n_axes or told == 0:
        raise ParameterError(
            f"class_axis must be from 1 to {n_axes - 1} for the output {output!r} with {n_axes} axes, got {told}. Axis "
            "0 holds the rows."
        )
    return told % n_axes


def _written(shape: Sequence[int | None]) -> str:
    """Return a shape for messages, ``(n, 21, ?, ?)``."""
    return f"({', '.join(['n', *('?' if size is None else str(size) for size in shape[1:])])})"
