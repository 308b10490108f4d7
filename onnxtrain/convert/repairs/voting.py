"""Estimators made of several that vote."""

from __future__ import annotations

import copy
from typing import Any

from sklearn.ensemble import VotingClassifier

from onnxtrain.convert.repairs.table import Converter, repair


@repair(VotingClassifier)
def without_flatten_transform(convert: Converter, scope: Any, operator: Any, container: Any) -> None:
    """Leave out ``flatten_transform``: it concerns `transform` alone, and skl2onnx refuses it."""
    original = operator.raw_operator
    operator.raw_operator = copy.copy(original)
    operator.raw_operator.flatten_transform = False
    try:
        convert(scope, operator, container)
    finally:
        operator.raw_operator = original
