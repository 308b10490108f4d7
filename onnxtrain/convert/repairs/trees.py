"""Ensembles of trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from onnxtrain.convert.repairs.table import Converter, WithAttributes, repair


@repair(HistGradientBoostingClassifier, HistGradientBoostingRegressor)
def integers_for_booleans(convert: Converter, scope: Any, operator: Any, container: Any) -> None:
    """Write booleans in a list of integers as integers: onnx refuses them."""
    convert(scope, operator, WithAttributes(container, _without_booleans))


def _without_booleans(given: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [int(v) if isinstance(v, (bool, np.bool_)) else v for v in value] if isinstance(value, list) else value
        for name, value in given.items()
    }
