"""The table of gradient rules: an operator has a rule or is declared non-differentiable.

A rule receives the builder, the node and the gradient ``dy`` of each output
(None if the output is unused). It returns the gradient of each input, None
for a non-differentiable input. A rule is mathematics only: the engine undoes
broadcasting, accumulates contributions and drops gradients that are not needed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx
import onnx_ir as ir

from onnxtrain.arguments import lists_its_arguments
from onnxtrain.errors import GradientError, ParameterError
from onnxtrain.graph import operator_name
from onnxtrain.graph.fused import FUSED
from onnxtrain.registry import Registry, did_you_mean, is_of_package

Gradient: TypeAlias = "ir.Value | None"
Rule: TypeAlias = Callable[..., "Gradient | tuple[Gradient, ...] | list[Gradient]"]


@dataclass(frozen=True)
class Derivative:
    """The derivative of an operator: its rule, whether its operands are broadcast, which operands have zero gradient.

    ``rule`` is None for an operator that is declared non-differentiable: its
    derivative is zero wherever it exists.
    """

    rule: Rule | None
    broadcast: bool = False
    flat: tuple[int, ...] = ()


RULES: Registry[Derivative] = Registry("gradient rule", GradientError)


@lists_its_arguments
def gradient_rule(
    *op_types: str, domain: str = "", broadcast: bool = False, flat: tuple[int, ...] = (), override: bool = False
) -> Callable[[Rule], Rule]:
    """Register the gradient rule of one or several operators.

    Parameters
    ----------
    *op_types : str
        Names of operators.
    domain : str
        Their domain; empty for ai.onnx.
    broadcast : bool
        The operator broadcasts its operands. The rule then returns gradients of
        the common shape and the engine sums them to the shapes of the operands.
    flat : tuple of int
        Positions of floating-point operands for which the rule always returns None, so that no gradient passes through
        them.
    override : bool
        Replace an existing rule.

    Returns
    -------
    callable
        A decorator for ``rule(op, node, *dy) -> gradient of each input``.
        ``op`` is an onnxscript builder, ``node`` an :class:`onnx_ir.Node`.

    Raises
    ------
    ParameterError
        The operator already has a rule or is declared non-differentiable; ONNX defines the domain, but no operator of
        this name in it; or the rule takes other arguments.

    Examples
    --------
    >>> from onnxtrain.autodiff import gradient_rule
    >>> @gradient_rule("Cube", domain="my.domain")
    ... def cube(op, node, dy):
    ...     (x,) = node.inputs
    ...     return op.Mul(dy, op.Mul(3.0, op.Mul(x, x)))
    """
    RULES.check_names(op_types)
    _check_domain(domain)
    if not isinstance(flat, (tuple, list)) or not all(type(i) is int and i >= 0 for i in flat):
        raise ParameterError(f"flat must be a tuple of positions of operands, such as (1,), got {flat!r:.80}.")
    if not isinstance(broadcast, bool):
        raise ParameterError(f"broadcast must be True or False, got {broadcast!r:.80}.")

    def decorate(rule: Rule) -> Rule:
        if not is_of_package(rule):  # the rules here include operators that are newer than the oldest supported onnx
            _check_operators(op_types, domain)
            _check_arguments(rule)
        keys = (operator_name(name, domain) for name in op_types)
        RULES.register(*keys, override=override, definition=rule)(Derivative(rule, broadcast, tuple(flat)))
        return rule

    return decorate


#: The former name of :func:`gradient_rule`.
gradient = gradient_rule


@lists_its_arguments
def no_gradient(*op_types: str, domain: str = "", override: bool = False) -> None:
    """Declare operators non-differentiable: their derivative is zero wherever it exists.

    Parameters
    ----------
    *op_types : str
        Names of operators.
    domain : str
        Their domain; empty for ai.onnx.
    override : bool
        Replace an existing registration.

    Raises
    ------
    ParameterError
        The operator already has a rule or is declared non-differentiable; or ONNX defines the domain, but no operator
        of this name in it.

    Examples
    --------
    >>> from onnxtrain import no_gradient
    >>> no_gradient("Relu")
    Traceback (most recent call last):
        ...
    onnxtrain.errors.ParameterError: ...Relu...
    """
    RULES.check_names(op_types)
    _check_domain(domain)
    _check_operators(op_types, domain)
    keys = (operator_name(name, domain) for name in op_types)
    RULES.register(*keys, override=override, definition=no_gradient)(Derivative(None))


def _check_domain(domain: object) -> None:
    """Raise if a domain is not a string: no node could use the registration."""
    if not isinstance(domain, str):
        raise ParameterError(
            f"domain must be a string, such as 'my.domain', or '' for ai.onnx, got {domain!r:.80}. The opset is not "
            "part of the domain."
        )


def _check_operators(op_types: Sequence[str], domain: str) -> None:
    """Raise if ONNX defines a domain, but not one of these operators in it: no node could use the registration."""
    domain = "" if domain == "ai.onnx" else domain
    unknown = [name for name in op_types if not onnx.defs.has(name, domain)]
    if not unknown:
        return
    places: dict[str, set[str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        places.setdefault(schema.domain, set()).add(schema.name)
    known = places.get(domain)
    wrong = next((name for name in unknown if known and name not in known), None)
    if wrong is None:
        return
    fused, _, _ = next((key for key in FUSED.op_types if key.endswith(f":{wrong}")), "").rpartition(":")
    other = fused or next((place for place, names in places.items() if wrong in names), None)
    near = did_you_mean(wrong, known or ()).partition("Known")[0].rstrip()
    hint = f"Pass domain={other!r}." if other is not None else near
    hint = hint or "Pass the domain of an operator of your own: domain='my.domain'."
    raise ParameterError(f"The domain {domain or 'ai.onnx'!r} has no operator {wrong!r}. {hint}")


def _check_arguments(rule: Rule) -> None:
    """Raise for a function that cannot be called with the builder, the node and a gradient."""
    if not callable(rule):
        raise ParameterError(f"A gradient rule must be a function, called as rule(op, node, dy), got {rule!r:.80}.")
    signature = inspect.signature(rule)
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    if not takes_any and len(signature.parameters) < 3:
        raise ParameterError(
            f"A gradient rule is called as rule(op, node, dy), with the gradient of each output, but {rule.__name__} "
            f"takes {signature}. Compute the gradient of each of node.inputs with op, such as op.Mul(dy, 2.0)."
        )


def derivative_of(node: ir.Node) -> Derivative | None:
    """Return the registered derivative of the operator of a node, None if it has none."""
    return RULES.get(operator_name(node.op_type, node.domain))


# ----------------------------------------------------------------- the table


__all__ = ["DifferentiableOp", "differentiable_ops"]


@dataclass(frozen=True)
class DifferentiableOp:
    """An operator and the origin of its derivative.

    Attributes
    ----------
    domain : str
        Empty for ai.onnx.
    op_type : str
    how : {"rule", "function body", "fused", "flat"}
        The origin of the derivative: a rule of this package or of the user; the function body that ONNX defines; the
        operators of ai.onnx that replace a fused operator of onnxruntime when a model is read; or a declaration as
        non-differentiable, whose derivative is zero wherever it exists.
    rule : str
        The function that is the rule, as ``module.name``; empty without a rule.
    note : str
        The first line of the rule's documentation.
    """

    domain: str
    op_type: str
    how: str
    rule: str = ""
    note: str = ""


@lists_its_arguments
def differentiable_ops() -> dict[str, DifferentiableOp]:
    """Return the origin of each operator's derivative, by name (``domain:name`` outside ai.onnx).

    An operator that is not in the table raises :class:`onnxtrain.errors.GradientError`
    if it is between a differentiated value and an output.

    Returns
    -------
    dict of str to DifferentiableOp
        Rules registered by users are included.

    Examples
    --------
    >>> table = differentiable_ops()
    >>> table["MatMul"].how, table["Shape"].how, table["RotaryEmbedding"].how
    ('rule', 'flat', 'function body')
    """
    rows = {name: _row(name, known) for name, known in RULES.items()}
    for schema in onnx.defs.get_all_schemas():
        name = schema.name
        if schema.domain == "" and name not in rows and has_function_body(name, schema.since_version):
            rows[name] = DifferentiableOp("", name, "function body")
    for name in FUSED.op_types - rows.keys():
        domain, _, op_type = name.rpartition(":")
        rows[name] = DifferentiableOp(domain, op_type, "fused")
    return dict(sorted(rows.items()))


def has_function_body(op_type: str, opset: int) -> bool:
    """Whether ONNX defines an operator of ai.onnx by a function body.

    Examples
    --------
    >>> has_function_body("MeanVarianceNormalization", 21), has_function_body("Conv", 21)
    (True, False)
    """
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return False
    # onnx's own stubs do not know these attributes
    return bool(schema.has_function or schema.has_context_dependent_function)  # type: ignore[attr-defined]


def _row(name: str, known: Derivative) -> DifferentiableOp:
    domain, _, op_type = name.rpartition(":")
    if known.rule is None:
        return DifferentiableOp(domain, op_type, "flat")
    rule = f"{known.rule.__module__}.{known.rule.__qualname__}"
    note = (known.rule.__doc__ or "").strip().partition("\n")[0]
    return DifferentiableOp(domain, op_type, "rule", rule, note)
