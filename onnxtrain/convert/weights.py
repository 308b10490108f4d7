"""What of a model can be trained, and what is trained when nobody says."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx

from onnxtrain import graph
from onnxtrain.convert.converter import Conversion
from onnxtrain.convert.reach import reaching


@dataclass(frozen=True)
class Weight:
    """One row of the list of weights: name, step of the pipeline, shape, size, kind."""

    name: str
    step: str
    shape: tuple[int, ...]
    kind: str

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


def trainable_weights(model: Conversion | onnx.ModelProto, output: str | None = None) -> list[Weight]:
    """Return the weights of a model that can be trained, in the order in which they are used.

    Parameters
    ----------
    model : Conversion or onnx.ModelProto
        Of an ONNX model: every initializer of real numbers, of one axis or more,
        that an output of real numbers depends on.
    output : str, optional
        This output only.
    """
    onx = model.onnx if isinstance(model, Conversion) else model
    loaded = graph.load(onx)
    if output is not None:
        loaded.graph.outputs[:] = [graph.find(loaded.graph.outputs, output, "output")]
    reach = {str(value.name): value for value in reaching(loaded)}
    if isinstance(model, Conversion):
        return [Weight(b.name, b.step, b.shape, b.kind) for b in model.bindings if b.name in reach]
    return [Weight(name, "", graph.static_shape(value) or (), "weight") for name, value in reach.items()]


def default_weights(model: Conversion | onnx.ModelProto) -> list[str]:
    """Return the names of the weights that are trained unless others are asked for.

    Those of the predictors, not the statistics of preprocessing; of a
    transformer alone, all.
    """
    if not isinstance(model, Conversion):
        return [w.name for w in trainable_weights(model)]
    predictors = [b.name for b in model.bindings if b.predictor]
    return predictors or [b.name for b in model.bindings]
