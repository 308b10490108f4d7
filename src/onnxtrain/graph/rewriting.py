"""One engine for local rewritings of a graph.

A rule ``rule(op, node)`` matches one node and its ancestors. It returns the replacement of the first output of the node
(a tuple for all outputs), the first output itself if it changed the node in place, or None if it does not apply. A
:class:`Rewritings` table holds the rules by operator.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import onnx_ir as ir

from onnxtrain.graph.build import Op
from onnxtrain.graph.query import operator_name

Rule: TypeAlias = "Callable[[Any, ir.Node], ir.Value | tuple[ir.Value, ...] | None]"


class Rewritings:
    """A table of rules by operator.

    Parameters
    ----------
    *others : Rewritings or mapping of str to rules
        Tables whose rules are copied first, by :func:`~onnxtrain.graph.operator_name`.

    Examples
    --------
    >>> from onnxtrain.graph import made_by
    >>> table = Rewritings()
    >>> @table.rule("Neg")
    ... def negated_twice(op, node):
    ...     inner = made_by(node.inputs[0], "Neg")
    ...     return None if inner is None else inner.inputs[0]
    """

    def __init__(self, *others: Rewritings | Mapping[str, Iterable[Rule]]):
        self._rules: dict[str, list[Rule]] = defaultdict(list)
        for other in others:
            for op_type, rules in (other._rules if isinstance(other, Rewritings) else other).items():
                self._rules[op_type] += rules

    def rule(self, *op_types: str) -> Callable[[Rule], Rule]:
        """Return a decorator that registers a rule for the operators of ai.onnx it matches, after earlier rules."""

        def decorate(rule: Rule) -> Rule:
            for op_type in op_types:
                self._rules[op_type].append(rule)
            return rule

        return decorate

    @property
    def op_types(self) -> set[str]:
        """The operators that have rules."""
        return set(self._rules)

    def apply(self, op: Op | None, node: ir.Node) -> tuple[ir.Value, ...]:
        """Return the replacements by the first rule that applies to a node, or an empty tuple."""
        for rule in self._rules.get(operator_name(node.op_type, node.domain), ()):
            found = rule(op, node)
            if found is not None:
                return found if isinstance(found, tuple) else (found,)
        return ()


def rewrite_nodes(
    op: Op,
    graph: ir.Graph,
    table: Rewritings,
    values: Sequence[ir.Value] = (),
    *,
    infer: Callable[[ir.Node], None] | None = None,
) -> list[ir.Value]:
    """Apply rules to the nodes of a graph, in place, until none applies; return the replacements of `values`.

    Parameters
    ----------
    op : onnxscript builder
        Appends to `graph`; a rule that adds nodes breaks the topological order.
    graph : onnx_ir.Graph
        A value that changes between runs must be an input: an initializer counts as a constant.
    table : Rewritings
        The rules; the first that applies to a node is used.
    values : sequence of onnx_ir.Value
        Values that will become outputs of the graph.
    infer : callable, optional
        Infers missing types and shapes of the outputs of a node without rules, from its rewritten operands.

    Returns
    -------
    list of onnx_ir.Value
        One per value of `values`, in order. Replaced nodes are removed; nodes that only they used are left
        to :func:`onnxtrain.graph.prune`.
    """
    instead: dict[ir.Value, ir.Value] = {}
    known = set(graph)
    pending = deque(graph)
    while pending:
        node = pending.popleft()
        if node.graph is None:  # replaced and removed
            continue
        found = table.apply(op, node)
        if not found:
            if infer is not None and _lacks_types(node):
                infer(node)
            continue
        if found[0] is node.outputs[0]:
            pending.appendleft(node)
            continue
        for old, new in zip(node.outputs, found, strict=False):
            maker = new.producer()
            if maker is not None and maker not in known:
                known.add(maker)
                pending.append(maker)
                _give_type(old, new)
            pending.extendleft(old.consumers())
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
            instead[old] = new
        graph.remove(node, safe=True)
    return [_last(instead, value) for value in values]


def _give_type(old: ir.Value, new: ir.Value) -> None:
    if old.type is not None and old.shape is not None:
        new.type, new.shape = old.type, old.shape


def _lacks_types(node: ir.Node) -> bool:
    """Whether the unknown types of a node can now be inferred; such a node is visited again after its operands."""
    known = all(x is None or x.dtype is not None for x in node.inputs)
    return known and any(y.shape is None or y.dtype is None for y in node.outputs)


def _last(instead: dict[ir.Value, ir.Value], value: ir.Value) -> ir.Value:
    while value in instead:
        value = instead[value]
    return value
