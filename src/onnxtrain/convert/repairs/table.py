"""The table of repairs: a class whose converter is wrong, slow or missing -> its converter here.

It holds for the conversions of onnxtrain alone: skl2onnx's own tables stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

#: Writes the nodes of a fitted object: ``(scope, operator, container)`` of skl2onnx.
Converter: TypeAlias = Callable[[Any, Any, Any], None]

#: Writes them differently: ``(convert, scope, operator, container)``, ``convert`` as skl2onnx has it.
Repair: TypeAlias = Callable[[Converter, Any, Any, Any], None]


@dataclass(frozen=True)
class Addition:
    """A converter that skl2onnx lacks.

    Attributes
    ----------
    convert : callable
    shapes : callable
        ``(operator)``, sets the types and shapes of the outputs.
    function : callable, optional
        What a user registered.
    """

    convert: Converter
    shapes: Callable[[Any], None]
    function: Callable[..., Any] | None = None


#: Class that skl2onnx converts -> its replacement.
REPAIRS: dict[type, Repair] = {}

#: Class whose outputs have other types or shapes once it is repaired -> what sets them: ``(operator)``.
SHAPES: dict[type, Callable[[Any], None]] = {}

#: Class that skl2onnx does not know -> its converter.
ADDITIONS: dict[type, Addition] = {}


def repair(*kinds: type, shapes: Callable[[Any], None] | None = None) -> Callable[[Repair], Repair]:
    """Return a decorator that files a repair for each class; classes derived from it keep their own converters."""

    def decorate(function: Repair) -> Repair:
        REPAIRS.update(dict.fromkeys(kinds, function))
        if shapes is not None:
            SHAPES.update(dict.fromkeys(kinds, shapes))
        return function

    return decorate
