"""Which output is trained."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import ModelError
from onnxtrain.graph import describe, find, is_float
from onnxtrain.registry import did_you_mean


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
        names = [str(v.name) for v in outputs]
        raise ModelError(f"An output is a name, a position or None, got {output!r}. {did_you_mean(output, names)}")
    if not is_float(chosen):
        raise ModelError(f"The output {describe(chosen)} does not hold floats; a loss needs floats.")
    return chosen
