"""The global state of skl2onnx and onnxscript."""

from __future__ import annotations

import inspect
import sys
from typing import Any


def tables() -> list[dict[Any, Any]]:
    """Return skl2onnx's tables of converters, shapes, names and parsers."""
    from skl2onnx._parse import sklearn_parsers_map
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import _converter_pool, _shape_calculator_pool

    return [sklearn_operator_name_map, sklearn_parsers_map, _converter_pool, _shape_calculator_pool]


def picture(*packages: str) -> dict[str, Any]:
    """Return the contents of every table of the packages' modules, and the attributes of every class in them."""
    found: dict[str, Any] = {}
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] not in packages or module is None:
            continue
        for attribute, value in sorted(vars(module).items()):
            where = f"{name}.{attribute}"
            if isinstance(value, (dict, list, set, tuple)) and not attribute.startswith("__"):
                found[where] = _contents(value)
            elif inspect.isclass(value) and value.__module__ == name:
                found[where] = {k: id(v) for k, v in vars(value).items() if not k.startswith("__")}
            elif inspect.isfunction(value):
                found[where] = (id(value), id(value.__code__))
    return found


def _contents(value: Any) -> Any:
    if isinstance(value, dict):
        return {id(k) if not isinstance(k, str) else k: _contents(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_contents(v) for v in value]
    return id(value)
