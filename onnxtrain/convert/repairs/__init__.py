"""Repairs of skl2onnx's conversions, one file per family."""

from onnxtrain.convert.repairs import (  # noqa: F401  (imported for the repairs they file)
    linear,
    networks,
    power_transformer,
    transformed_target,
    trees,
    voting,
)
from onnxtrain.convert.repairs.graph import in_float32, last_step, repair_graph
from onnxtrain.convert.repairs.table import ADDITIONS, REPAIRS, Addition, inside

__all__ = ["ADDITIONS", "REPAIRS", "Addition", "in_float32", "inside", "last_step", "repair_graph"]
