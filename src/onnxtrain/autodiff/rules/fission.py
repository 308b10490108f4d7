"""Loop fission: nodes of a Scan that read no state are moved out and run once for all iterations.

The backward pass recomputes the forward pass of each iteration from saved values. This recomputation does not depend on
the gradients that are passed from one iteration to the next. It is therefore done by one operator for all iterations. A
sum of matrix products over the iterations, such as the gradient of the recurrent weights, becomes one product.

References
----------
M. Wolfe, High Performance Compilers for Parallel Computing, 1996, chapter 9: loop distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from onnxtrain.graph import Op, attribute, constant, rank, value_like

__all__ = ["Turns"]

#: Elementwise operators. They compute the same values with an additional leading axis of iterations.
# fmt: off
_BY_ENTRY = frozenset([
    "Abs", "Add", "And", "Cast", "Celu", "Clip", "Div", "Elu", "Equal", "Erf", "Exp", "Greater",
    "HardSigmoid", "Identity", "LeakyRelu", "Less", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow",
    "Reciprocal", "Relu", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh",
    "ThresholdedRelu", "Where",
])
# fmt: on


@dataclass
class Turns:
    """A Scan that is not yet appended.

    Attributes
    ----------
    op : onnxscript builder
        The builder of the outer graph.
    body : onnx_ir.Graph
        The body: (states, a slice of each value that is read) -> (states, values to stack).
    states : list of onnx_ir.Value
        The initial states.
    read, stacked : list of onnx_ir.Value
        Outer values of which each iteration reads a slice along the first axis, and new values for results that are
        stacked along it.
    whole : dict of onnx_ir.Value
        For a value of the body, the outer value that contains it for all iterations.
    """

    op: Op
    body: ir.Graph
    states: list[ir.Value]
    read: list[ir.Value]
    stacked: list[ir.Value]
    whole: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._learn(self.body.inputs, self.read)

    def _learn(self, inside: Sequence[ir.Value], outside: Sequence[ir.Value]) -> None:
        pairs = zip(inside[len(self.states) :], outside, strict=True)
        self.whole.update({x: y for x, y in pairs if x.shape is not None})

    def append(self, last: Sequence[ir.Value], first_sum: int) -> list[ir.Value]:
        """Append the Scan, with the nodes that need no state before or after it.

        Parameters
        ----------
        last : sequence of onnx_ir.Value
            New values for the last states.
        first_sum : int
            The index of the first state that starts at zero and to which each iteration adds.

        Returns
        -------
        list of onnx_ir.Value
            The last states.
        """
        for node in list(self.body):
            self._hoist(node)
        self._learn(self.body.outputs, self.stacked)
        summands = {k: summand for k in range(first_sum, len(last)) if (summand := self._summand(k))}
        for x in (x for node in summands.values() for x in _operands(node)):
            self._stack(x)
        for k in sorted(summands, reverse=True):
            del self.body.inputs[k], self.body.outputs[k], self.states[k]
        self._remove_unused()
        outputs = [*(y for k, y in enumerate(last) if k not in summands), *self.stacked]
        attributes: dict[str, Any] = {"body": self.body, "num_scan_inputs": len(self.read)}
        self._append(ir.node("Scan", [*self.states, *self.read], attributes=attributes, outputs=outputs))
        sums = {k: _sum(self.op, node, [self.whole[x] for x in _operands(node)]) for k, node in summands.items()}
        return [sums.get(k, y) for k, y in enumerate(last)]

    # --------------------------------------------------------------- before

    def _hoist(self, node: ir.Node) -> None:
        """Replace a node that reads no state by one node for all iterations, and d * a * b by d * (a * b)."""
        if self._is_free(node):
            for y, whole in zip(node.outputs, self._for_all_turns(node), strict=True):
                y.replace_all_uses_with(self._slice(y, whole))
            self.body.remove(node, safe=True)
        elif node.op_type == "Mul" and (factors := self._factors(node)) is not None:
            d, a, b = factors
            product = self.op.Mul(self.whole[a], self.whole[b])
            node.replace_input_with(0, d)
            node.replace_input_with(1, self._slice(a, product))

    def _is_free(self, node: ir.Node) -> bool:
        """Whether a node reads no state and computes the same values with a leading axis of iterations."""
        xs = [x for x in node.inputs if x is not None]
        own = [x for x in xs if x.graph is self.body]
        if not own or node.domain or not all(x in self.whole for x in own):
            return False
        if any(y.is_graph_output() or y.shape is None for y in node.outputs) or any(x.shape is None for x in xs):
            return False
        if node.op_type == "MatMul":
            return own == xs[:1] and [rank(x) for x in xs] == [2, 2]
        if node.op_type in ("Split", "Concat"):
            return own == (xs if node.op_type == "Concat" else xs[:1])
        n = rank(node.outputs[0])
        fits = all(rank(x) == n if x in self.whole else rank(x) <= n for x in xs)
        return node.op_type in _BY_ENTRY and fits

    def _factors(self, node: ir.Node) -> tuple[ir.Value, ir.Value, ir.Value] | None:
        """Return d, a and b of d * a * b if a and b read no state and nothing else reads d * a."""
        for product, b in (tuple(node.inputs), tuple(node.inputs)[::-1]):
            inner = product.producer()
            if inner is None or inner.graph is not self.body or inner.op_type != "Mul" or b not in self.whole:
                continue
            if len(product.uses()) > 1 or product.is_graph_output():
                continue
            for d, a in (tuple(inner.inputs), tuple(inner.inputs)[::-1]):
                if a in self.whole and a.shape == b.shape == product.shape:
                    return d, a, b
        return None

    def _for_all_turns(self, node: ir.Node) -> list[ir.Value]:
        """Append a node of the body outside it; return its outputs, with the iterations on the first axis."""
        attributes = dict(node.attributes)
        axis = attribute(node, "axis", 0)
        if node.op_type in ("Split", "Concat") and axis >= 0:
            attributes["axis"] = ir.AttrInt64("axis", axis + 1)
        inputs = [x if x is None else self.whole.get(x, x) for x in node.inputs]
        outputs = [self._new(y) for y in node.outputs]
        self._append(ir.Node("", node.op_type, inputs, attributes.values(), outputs=outputs))
        return outputs

    def _slice(self, like: ir.Value, whole: ir.Value) -> ir.Value:
        """Make each iteration of the body read a slice of a value; return the slice."""
        x = value_like(self.op, f"{whole.name}_turn", like, like.shape)
        self.body.inputs.append(x)
        self.read.append(whole)
        self.whole[x] = whole
        return x

    # ----------------------------------------------------------------- after

    def _summand(self, k: int) -> ir.Node | None:
        """Return the matrix product or sum over rows that each iteration adds to a state, if nothing else reads it."""
        add, start = self.body.outputs[k].producer(), self.body.inputs[k]
        if add is None or add.op_type != "Add" or start not in add.inputs or len(start.uses()) > 1:
            return None
        (found,) = (x for x in add.inputs if x is not start)
        node = found.producer()
        if node is None or node.graph is not self.body or len(found.uses()) > 1:
            return None
        own = all(x.graph is self.body for x in _operands(node))
        return node if own and _is_sum_over_rows(node) else None

    def _stack(self, x: ir.Value) -> None:
        """Make the body stack a value, unless it is already stacked."""
        if x not in self.whole:
            y = x
            if x.is_graph_output() or x.producer() is None:  # an output is not listed twice
                y = value_like(self.op, f"{x.name}_stacked", x, x.shape)
                self.body.append(ir.Node("", "Identity", [x], outputs=[y]))
            self.body.outputs.append(y)
            self.whole[x] = self._new(x)
            self.stacked.append(self.whole[x])

    def _remove_unused(self) -> None:
        """Remove unused nodes and slices, but keep one slice, because a Scan needs an input."""
        for node in reversed(list(self.body)):
            if not any(y.uses() or y.is_graph_output() for y in node.outputs):
                self.body.remove(node, safe=True)
        n = len(self.states)
        unused = [k for k, x in enumerate(self.body.inputs[n:]) if not x.uses()]
        for k in reversed(unused[int(len(unused) == len(self.read)) :]):
            del self.body.inputs[n + k], self.read[k]

    # --------------------------------------------------------------- helpers

    def _append(self, node: ir.Node) -> None:
        self.op.builder.graph.append(node)

    def _new(self, y: ir.Value) -> ir.Value:
        """Return a new outer value for a value of the body in all iterations."""
        turns = next(iter(self.whole.values())).shape[0]
        return value_like(self.op, f"{y.name}_each_turn", y, [turns, *y.shape])  # type: ignore[misc]


def _is_sum_over_rows(node: ir.Node) -> bool:
    """Whether a node is a product A' B or a sum over the first axis; one node can then sum over all iterations."""
    if node.op_type == "ReduceSum":
        axes = None if len(node.inputs) < 2 else constant(node.inputs[1])
        known = axes is not None and axes.tolist() == [0] and attribute(node, "keepdims", 1) == 0
    else:
        defaults = {"transA": 0, "transB": 0, "alpha": 1.0}
        given = [attribute(node, name, default) for name, default in defaults.items()]
        known = node.op_type == "Gemm" and len(node.inputs) == 2 and given == [1, 0, 1.0]
    return known and all(x.shape is not None for x in _operands(node))


def _operands(node: ir.Node) -> tuple[ir.Value, ...]:
    return tuple(node.inputs[: 1 if node.op_type == "ReduceSum" else 2])


def _sum(op: Op, node: ir.Node, xs: Sequence[ir.Value]) -> ir.Value:
    """Return the sum of a node of :func:`_is_sum_over_rows` over all iterations, from its operands in all of them."""
    if node.op_type == "ReduceSum":
        return op.ReduceSum(xs[0], [0, 1], keepdims=0)
    return op.Gemm(*(op.Flatten(x, axis=2) for x in xs), transA=1)
