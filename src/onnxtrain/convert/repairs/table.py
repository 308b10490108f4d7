"""The table of repairs: for each class whose converter is wrong, slow or missing, the converter to use.

The table applies only to conversions of onnxtrain; skl2onnx's own tables are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

#: A converter of skl2onnx: ``(scope, operator, container)`` writes the nodes of a fitted object.
Converter: TypeAlias = Callable[[Any, Any, Any], None]

#: A replaced converter: ``(convert, scope, operator, container)``, where ``convert`` is skl2onnx's converter.
Repair: TypeAlias = Callable[[Converter, Any, Any, Any], None]


@dataclass(frozen=True)
class Addition:
    """A converter that skl2onnx lacks.

    Attributes
    ----------
    convert : callable
    shapes : callable
        ``(operator)`` sets the types and shapes of the outputs.
    function : callable, optional
        The function that a user registered.
    """

    convert: Converter
    shapes: Callable[[Any], None]
    function: Callable[..., Any] | None = None


#: The replaced converters of classes that skl2onnx supports.
REPAIRS: dict[type, Repair] = {}

#: For classes whose repaired outputs have other types or shapes, a function ``(operator)`` that sets them.
SHAPES: dict[type, Callable[[Any], None]] = {}

#: The converters of classes that skl2onnx does not support.
ADDITIONS: dict[type, Addition] = {}


def repair(*kinds: type, shapes: Callable[[Any], None] | None = None) -> Callable[[Repair], Repair]:
    """Return a decorator that registers a repair for each class; derived classes keep their own converters."""

    def decorate(function: Repair) -> Repair:
        REPAIRS.update(dict.fromkeys(kinds, function))
        if shapes is not None:
            SHAPES.update(dict.fromkeys(kinds, shapes))
        return function

    return decorate


@contextmanager
def replaced(operator: Any, estimator: Any) -> Iterator[None]:
    """Let converters read another object in place of the fitted one of an operator, within a context."""
    original = operator.raw_operator
    operator.raw_operator = estimator
    try:
        yield
    finally:
        operator.raw_operator = original
