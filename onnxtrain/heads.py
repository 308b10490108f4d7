"""What an output ends in: the scores behind probabilities, the logarithm behind a mean.

A loss of probabilities is computed from what enters Softmax or Sigmoid: the
probability of a score of 1000 is 1 in floating point, its logarithm 0, and the
gradient is lost, while the score still tells how far it is from the label.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import ModelError
from onnxtrain.graph import constant, describe, find, is_float, rank, same_dimension
from onnxtrain.registry import did_you_mean


class Link(enum.Enum):
    """How an output follows from the scores behind it."""

    IDENTITY = "identity"  #: the output is the scores
    SIGMOID = "sigmoid"  #: s (n, 1), the probability of class 1 of two
    SOFTMAX = "softmax"  #: s (n, K)
    NORMALIZED_SIGMOID = "normalized_sigmoid"  #: s (n, K), Sigmoid of each divided by their sum
    EXP = "exp"  #: the output is a mean, its logarithm behind it
    PROBABILITY = "probability"  #: probabilities of unknown origin, there are no scores


@dataclass(frozen=True)
class Scores:
    """A value, and how the output follows from it."""

    value: ir.Value
    link: Link


def scores_behind(value: ir.Value) -> Scores:
    """Find the scores that an output is computed from.

    Parameters
    ----------
    value : onnx_ir.Value
        An output (n, 1) or (n, K).

    Returns
    -------
    Scores
        ``link`` is PROBABILITY, and the value is the output itself, where it
        ends in something that makes probabilities but is not recognised, and
        IDENTITY where nothing says that it is not a score.
    """
    value = _skip(value)
    for pattern in _PATTERNS:
        found = pattern(value)
        if found is not None:
            return found
    return Scores(value, Link.PROBABILITY if _is_probability(value) else Link.IDENTITY)


def choose_output(model: ir.Model, output: int | str | None = None) -> ir.Value:
    """Return the output to train: by position, by name, or the only one that holds numbers.

    Parameters
    ----------
    model : onnx_ir.Model
    output : int, str or None
        None: the only output of floats, so of (label, probabilities) the second.

    Raises
    ------
    ModelError
        There is no such output, it does not hold floats, or there are several
        to choose from.
    """
    outputs = list(model.graph.outputs)
    if isinstance(output, str):
        chosen = find(outputs, output, "output")
    elif output is None:
        floats = [v for v in outputs if is_float(v)]
        if len(floats) != 1:
            candidates = ", ".join(describe(v) for v in floats or outputs)
            problem = "None of the outputs holds floats" if not floats else "There are several outputs to choose from"
            raise ModelError(f"{problem}: {candidates}. Name one: {[v.name for v in floats or outputs]}.")
        chosen = floats[0]
    elif isinstance(output, (int, np.integer)) and not isinstance(output, bool):
        if not -len(outputs) <= output < len(outputs):
            raise ModelError(f"There is no output {output}: the model has {len(outputs)}.")
        chosen = outputs[output]
    else:
        raise ModelError(f"An output is a name, a position or None, got {output!r}. {did_you_mean(output, _names(outputs))}")
    if not is_float(chosen):
        raise ModelError(f"The output {describe(chosen)} does not hold floats; a loss needs floats.")
    return chosen


def _names(values: list[ir.Value]) -> Iterator[str]:
    return (str(v.name) for v in values)


# ----------------------------------------------------------------- patterns


def _made_by(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """Return the node of ai.onnx that makes a value, if it is one of `op_types`."""
    node = None if value is None else value.producer()
    return node if node is not None and node.domain in ("", "ai.onnx") and node.op_type in op_types else None


def _skip(value: ir.Value) -> ir.Value:
    """Go back over nodes that leave the numbers where they are."""
    while True:
        node = _made_by(value, "Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
        if node is None:
            return value
        (x, *_) = node.inputs
        if x is None or not is_float(x) or not _same_columns(x, value):
            return value
        value = x


def _same_columns(x: ir.Value, y: ir.Value) -> bool:
    return rank(x) == rank(y) == 2 and same_dimension(x.shape[1], y.shape[1])  # type: ignore[index]


def _columns(value: ir.Value) -> Any:
    return value.shape[1] if rank(value) == 2 else None  # type: ignore[index]


def _axis(node: ir.Node, default: int) -> int:
    found = node.attributes.get("axis")
    return default if found is None else int(found.value)


def _equals(value: ir.Value | None, number: float) -> bool:
    array = constant(value)
    return array is not None and array.size == 1 and float(array.reshape(-1)[0]) == number


def _softmax(value: ir.Value) -> Scores | None:
    node = _made_by(value, "Softmax")
    if node is None or _axis(node, -1) not in (-1, 1) or rank(value) != 2:
        return None
    return Scores(_skip(node.inputs[0]), Link.SOFTMAX)  # type: ignore[arg-type]


def _exp(value: ir.Value) -> Scores | None:
    node = _made_by(value, "Exp")
    return None if node is None else Scores(_skip(node.inputs[0]), Link.EXP)  # type: ignore[arg-type]


def _logit(value: ir.Value) -> ir.Value | None:
    """Return z where value is the Sigmoid of z, also written as 1 / (1 + exp(-z))."""
    node = _made_by(_skip(value), "Sigmoid")
    return None if node is None else _skip(node.inputs[0])  # type: ignore[arg-type]


def _sigmoid(value: ir.Value) -> Scores | None:
    z = _logit(value)
    if z is None:
        return None
    return Scores(z, Link.SIGMOID if _columns(z) == 1 else Link.NORMALIZED_SIGMOID)


_PATTERNS: tuple[Callable[[ir.Value], Scores | None], ...] = (_softmax, _exp, _sigmoid)


def _is_probability(value: ir.Value) -> bool:
    return False
