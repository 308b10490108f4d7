"""The choice of the output to train."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import ModelError
from onnxtrain.graph import constant, describe, find, is_float, rank
from onnxtrain.losses.link.probabilities import is_probability
from onnxtrain.registry import did_you_mean

#: Operators between the index of a class and its label.
_BEHIND_INDEX = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Gather")


def choose_output(model: ir.Model, output: int | str | None = None, *, labels: bool = False) -> ir.Value:
    """Return the output to train: by position, by name, or the only floating-point one.

    Parameters
    ----------
    model : onnx_ir.Model
    output : int, str or None
        None: the only floating-point output, so the second of (label, probabilities).
    labels : bool
        For an output of labels, chosen by its name or as the only output, return
        the scores that the labels are computed from.

    Raises
    ------
    ModelError
        There is no such output, it is not floating-point, or the choice is ambiguous.
    """
    outputs = list(model.graph.outputs)
    if isinstance(output, str):
        chosen = find(outputs, output, "output")
    elif output is None:
        floats = [v for v in outputs if is_float(v)] or (outputs if labels and len(outputs) == 1 else [])
        others = [v for v in outputs if not is_float(v)]
        if labels and len(floats) > 1 and len(others) == 1 and (scores := _scores_of_labels(others[0])) is not None:
            return scores  # such as an output for each column of the probabilities
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
        names = [str(v.name) for v in outputs]
        raise ModelError(f"An output is a name, a position or None, got {output!r}. {did_you_mean(output, names)}")
    if is_float(chosen):
        return chosen
    scores = _scores_of_labels(chosen) if labels else None
    if scores is not None:
        return scores
    problem = ", and no scores that it is the largest of were recognised" if labels else ""
    raise ModelError(f"The output {describe(chosen)} does not hold floats{problem}; a loss needs floats.")


def _scores_of_labels(label: ir.Value) -> ir.Value | None:
    """Return the input of the ArgMax that makes the labels, or the binary score compared with 0 or 1/2."""
    value: ir.Value | None = label
    while value is not None:
        node = value.producer()
        if node is None or (node.domain == "ai.onnx.ml") != (node.op_type in ("ArrayFeatureExtractor", "LabelEncoder")):
            return None
        if node.op_type in ("ArgMax", "TopK"):
            return _largest_of(node) if value is node.outputs[-1] else None
        if node.op_type in ("Greater", "GreaterOrEqual"):
            return _compared(node)
        if node.domain != "ai.onnx.ml" and node.op_type not in _BEHIND_INDEX:
            return None
        by_index = node.op_type in ("Gather", "ArrayFeatureExtractor")
        if by_index and constant(node.inputs[0]) is None:
            return None
        value = node.inputs[1 if by_index else 0]
    return None


def _largest_of(node: ir.Node) -> ir.Value | None:
    x, *k = node.inputs
    axis = node.attributes.get_int("axis", 0 if node.op_type == "ArgMax" else -1)
    first = node.attributes.get_int("largest", 1) == 1 and all(v is not None and constant(v) == 1 for v in k)
    return x if x is not None and rank(x) == 2 and axis in (1, -1) and first else None


def _compared(node: ir.Node) -> ir.Value | None:
    x, limit = node.inputs
    number = constant(limit)
    if x is None or not is_float(x) or number is None or number.size != 1:
        return None
    return x if number == (0.5 if is_probability(x) else 0) else None
