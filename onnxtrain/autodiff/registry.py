"""The table of gradient rules: an operator has a rule, or is flat on purpose.

A rule receives the builder, the node and the gradient ``dy`` of each output
(None where an output is unused) and returns the gradient of each input, None
where it is flat. It is mathematics only: broadcasting is undone, contributions
are added and what is not needed is removed by the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import onnx_ir as ir

from onnxtrain.errors import GradientError
from onnxtrain.registry import Registry

Gradient: TypeAlias = "ir.Value | None"
Rule: TypeAlias = Callable[..., "Gradient | tuple[Gradient, ...] | list[Gradient]"]


@dataclass(frozen=True)
class Derivative:
    """What is known of an operator: its rule, and whether its operands are broadcast.

    ``rule`` is None for an operator that is flat: its derivative is zero
    wherever it exists.
    """

    rule: Rule | None
    broadcast: bool = False


RULES: Registry[Derivative] = Registry("gradient rule", GradientError)


def _key(op_type: str, domain: str) -> str:
    return op_type if domain in ("", "ai.onnx") else f"{domain}:{op_type}"


def gradient(*op_types: str, domain: str = "", broadcast: bool = False) -> Callable[[Rule], Rule]:
    """Register the derivative of one or several operators.

    Parameters
    ----------
    *op_types : str
        Names of operators.
    domain : str
        Their domain; empty for ai.onnx.
    broadcast : bool
        The operator stretches its operands to a common shape. The rule then
        returns gradients of that shape and the engine sums them back.

    Returns
    -------
    callable
        A decorator for ``rule(op, node, *dy) -> gradient of each input``.
        ``op`` is an onnxscript builder, ``node`` an :class:`onnx_ir.Node`.

    Raises
    ------
    ParameterError
        The operator has a rule already, or is declared flat.

    Examples
    --------
    >>> from onnxtrain.autodiff import gradient
    >>> @gradient("Cube", domain="my.domain")
    ... def cube(op, node, dy):
    ...     (x,) = node.inputs
    ...     return op.Mul(dy, op.Mul(3.0, op.Mul(x, x)))
    """

    def decorate(rule: Rule) -> Rule:
        RULES.register(*(_key(name, domain) for name in op_types))(Derivative(rule, broadcast))
        return rule

    return decorate


def no_gradient(*op_types: str, domain: str = "") -> None:
    """Declare operators flat: their derivative is zero wherever it exists.

    Raises
    ------
    ParameterError
        The operator has a rule already, or is declared flat.
    """
    RULES.register(*(_key(name, domain) for name in op_types))(Derivative(None))


def derivative_of(node: ir.Node) -> Derivative | None:
    """Return what is known of the operator of a node, None where nothing is."""
    return RULES.get(_key(node.op_type, node.domain))


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """Return the value of an attribute, the schema's default where it is not set."""
    found = node.attributes.get(name)
    return default if found is None else found.value
