"""The table of differentiable operators: one row for each operator."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from onnxtrain.autodiff.expand import has_function_body
from onnxtrain.autodiff.registry import RULES, Derivative

__all__ = ["DifferentiableOp", "differentiable_ops"]


@dataclass(frozen=True)
class DifferentiableOp:
    """An operator and the origin of its derivative.

    Attributes
    ----------
    domain : str
        Empty for ai.onnx.
    op_type : str
    how : {"rule", "function body", "flat"}
        A rule of this package or of the user; the function body that ONNX defines; or declared non-differentiable:
        the derivative is zero wherever it exists.
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
    return dict(sorted(rows.items()))


def _row(name: str, known: Derivative) -> DifferentiableOp:
    domain, _, op_type = name.rpartition(":")
    if known.rule is None:
        return DifferentiableOp(domain, op_type, "flat")
    rule = f"{known.rule.__module__}.{known.rule.__qualname__}"
    note = (known.rule.__doc__ or "").strip().partition("\n")[0]
    return DifferentiableOp(domain, op_type, "rule", rule, note)
