"""Repairs of skl2onnx's conversions: replaced converters by class, and repairs of whole graphs."""

from onnxtrain.convert.repairs import converters, transformers  # noqa: F401  (imported for the repairs that they file)
from onnxtrain.convert.repairs.graph import last_step, repair_graph
from onnxtrain.convert.repairs.table import ADDITIONS, REPAIRS, SHAPES, Addition

__all__ = ["ADDITIONS", "REPAIRS", "SHAPES", "Addition", "last_step", "repair_graph"]
