"""Reverse mode: one walk from the outputs back to the differentiated values.

The engine knows no operator. It finds the values that depend on the
differentiated ones, looks up one rule per node, undoes broadcasting,
accumulates contributions and gives each gradient the type and the shape of its
primal. It never assumes a zero gradient: an operator without a rule raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile

import onnx_ir as ir

from onnxtrain.autodiff.broadcast import known_rank, sum_to, with_shape_of
from onnxtrain.autodiff.registry import Gradient, derivative_of
from onnxtrain.errors import GradientError, OnnxTrainError
from onnxtrain.graph import Op, describe, flow, is_float, is_quantized, is_taken_for_constant
from onnxtrain.graph.flow import operands
from onnxtrain.registry import is_of_package


def backpropagate(
    op: Op, nodes: Sequence[ir.Node], dy: Mapping[ir.Value, ir.Value], wrt: Iterable[ir.Value]
) -> dict[ir.Value, ir.Value]:
    """Append the backward pass of `nodes` and return the gradients with respect to `wrt`.

    Parameters
    ----------
    op : onnxscript builder
        The new nodes are appended to it.
    nodes : sequence of onnx_ir.Node
        The forward pass, in topological order.
    dy : mapping of value to value
        The incoming gradient of each output.
    wrt : iterable of onnx_ir.Value
        The values to differentiate with respect to.

    Returns
    -------
    dict of value to value
        The gradient of each value of `wrt`. A value that no output depends on is missing: its gradient is zero.

    Raises
    ------
    GradientError
        An operator between `wrt` and an output has no derivative. The message names
        the node, the path from it to the output and the remedy.
    """
    wrt = list(wrt)
    active = active_values(nodes, wrt)
    contributions: dict[ir.Value, list[ir.Value]] = {
        value: [incoming] for value, incoming in dy.items() if value in active
    }
    gradients: dict[ir.Value, ir.Value] = {}

    def collect(value: ir.Value) -> Gradient:
        if value in contributions:
            gradients[value] = with_shape_of(_add(op, contributions.pop(value)), value)
        return gradients.get(value)

    with _without_values(wrt):
        for node in reversed(nodes):
            reached = any(y in contributions for y in node.outputs)
            if reached and any(x in active for x in operands(node)):
                incoming = [collect(y) for y in node.outputs]
                for x, dx in _apply_rule(op, node, incoming, active, dy):
                    contributions.setdefault(x, []).append(dx)
        return {value: found for value in wrt if (found := collect(value)) is not None}


@contextmanager
def _without_values(wrt: Iterable[ir.Value]) -> Iterator[None]:
    """Hide the values of the weights, which will change, so that no rule treats a weight as a constant."""
    values = [(w, w.const_value) for w in wrt if w.const_value is not None]
    try:
        for w, _ in values:
            w.const_value = None
        yield
    finally:
        for w, value in values:
            w.const_value = value


def active_values(nodes: Iterable[ir.Node], wrt: Iterable[ir.Value]) -> set[ir.Value]:
    """Return the values whose derivative with respect to `wrt` may be nonzero.

    Integers other than the results of QuantizeLinear, booleans, outputs of non-differentiable operators and values
    treated as constants are excluded.
    """
    nodes = list(nodes)
    real = {y for node in nodes if not _is_flat(node) for y in node.outputs if _is_real(y)}
    return flow.dependents(nodes, wrt, real)


def sources(nodes: Iterable[ir.Node], *values: ir.Value) -> set[ir.Value]:
    """Return the values with respect to which one of `values` may have a derivative: see :func:`active_values`."""
    return flow.ancestors(values, {node: _real_operands(node) for node in nodes if not _is_flat(node)})


def _real_operands(node: ir.Node) -> list[ir.Value]:
    known = derivative_of(node)
    flat = () if known is None else known.flat
    return [x for i, x in enumerate(operands(node)) if i not in flat and x is not None and _is_real(x)]


def blocking(nodes: Iterable[ir.Node], values: Iterable[ir.Value]) -> list[ir.Node]:
    """Return the nodes with a derivative of zero among those that depend on some values."""
    nodes = list(nodes)
    reached = flow.dependents(nodes, values)
    return [node for node in nodes if _is_flat(node) and any(x in reached for x in operands(node))]


def _is_flat(node: ir.Node) -> bool:
    known = derivative_of(node)
    return known is not None and known.rule is None


def _is_real(value: ir.Value) -> bool:
    return (is_float(value) or value.dtype is None or is_quantized(value)) and not is_taken_for_constant(value)


def _apply_rule(
    op: Op,
    node: ir.Node,
    incoming: Sequence[Gradient],
    active: set[ir.Value],
    outputs: Iterable[ir.Value],
) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Yield each differentiated operand with the contribution of this node to its gradient."""
    known = derivative_of(node)
    if known is None or known.rule is None:
        raise GradientError(_no_rule(node, outputs))
    with _faults_of_the_rule(node, outputs):
        found = known.rule(op, node, *incoming)
    if found is None and not is_of_package(known.rule):
        raise GradientError(
            f"The rule of {_named(node)} returned nothing. End it with return and the gradient of each operand. For an "
            "operator whose derivative is zero, use onnxtrain.no_gradient instead of a rule."
        )
    gradients = list(found) if isinstance(found, (list, tuple)) else [found]
    wrong = [dx for dx in gradients if dx is not None and not isinstance(dx, ir.Value)]
    if wrong:
        raise GradientError(
            f"The rule of {_named(node)} must return a result of op, or None, for each operand, got "
            f"{type(wrong[0]).__name__}. Its arguments are op, the node, whose operands are node.inputs, and the "
            "gradient of each output."
        )
    xs = operands(node)
    too_many = any(dx is not None for dx in gradients[len(xs) :])
    if too_many or (not is_of_package(known.rule) and any(x in active for x in xs[len(gradients) :])):
        raise GradientError(
            f"The rule of {_named(node)} returned {len(gradients)} gradient{'s' * (len(gradients) != 1)} for {len(xs)} "
            f"operand{'s' * (len(xs) != 1)}. Return one for each in their order, and None for one without a derivative."
        )
    for x, dx in zip(xs, gradients, strict=False):
        if dx is None or x is None or x not in active:
            continue
        if known.broadcast:
            with _misfit(node, x):
                dx = sum_to(op, with_shape_of(dx, node.outputs[0]), x)
        _check(node, x, dx)
        yield x, dx


@contextmanager
def _faults_of_the_rule(node: ir.Node, outputs: Iterable[ir.Value]) -> Iterator[None]:
    """Turn any exception of a rule into a GradientError with the node and its operands."""
    try:
        yield
    except OnnxTrainError as e:
        maker = _operator_of_unknown_type(node)
        if maker is not None:  # a rule needs the type of its operand, which is unknown after an operator without a rule
            raise GradientError(_no_rule(maker, outputs)) from e
        raise
    except Exception as e:  # a rule may be a user's, and the node malformed
        unknown = [x for x in node.inputs if x is not None and x.shape is None]
        if unknown and isinstance(e, TypeError):  # of arithmetic with the number of axes
            known_rank(unknown[0], node)
        operands_ = ", ".join(describe(x) for x in node.inputs)
        known = derivative_of(node)
        remedy = "Either the node does not have the operands and attributes of its operator, or the rule is wrong."
        if known is not None and known.rule is not None and not is_of_package(known.rule):
            remedy = (
                "A rule computes with op, such as op.Mul(dy, 2.0), and not with numpy or the operators of Python, and "
                "node.inputs has the operands of the node."
            )
        raise GradientError(
            f"The rule of {_named(node)} failed for ({operands_}): {type(e).__name__}: {str(e).rstrip('.')}. {remedy}"
        ) from e


def _operator_of_unknown_type(node: ir.Node) -> ir.Node | None:
    """Return the operator without a rule that leaves the type of a node's operand unknown, or None."""
    queue = [node]
    for current in queue:
        makers = dict.fromkeys(x.producer() for x in current.inputs if x is not None and x.dtype is None)
        earlier = [maker for maker in makers if maker is not None and maker not in queue]
        without_rule = [maker for maker in earlier if derivative_of(maker) is None]
        if without_rule:
            return without_rule[0]
        queue += earlier
    return None


@contextmanager
def _misfit(node: ir.Node, x: ir.Value) -> Iterator[None]:
    """Turn any exception while a gradient is summed to the shape of an operand into a GradientError."""
    try:
        yield
    except Exception as e:  # the node is malformed
        fault = f"{type(e).__name__}: {e}"
        raise GradientError(f"The gradient of {_named(node)} does not fit {describe(x)}: {fault}") from e


def _check(node: ir.Node, x: ir.Value, dx: ir.Value) -> None:
    """Raise if a gradient differs from its primal in type or shape; quantized values have float gradients."""
    same_type = x.dtype is None or dx.dtype is None or x.dtype == dx.dtype or (is_quantized(x) and is_float(dx))
    if not (same_type and _may_have_one_shape(x, dx)):
        broadcast = " If the operator broadcasts its operands, register the rule with broadcast=True."
        raise GradientError(
            f"The rule of {_named(node)} returned {describe(dx)} as the gradient of {describe(x)}: "
            f"type and shape must match.{broadcast * same_type}"
        )


def _may_have_one_shape(x: ir.Value, dx: ir.Value) -> bool:
    if x.shape is None or dx.shape is None:
        return True
    if len(x.shape) != len(dx.shape):
        return False
    pairs = zip(x.shape, dx.shape, strict=True)
    return all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def _add(op: Op, terms: Sequence[ir.Value]) -> ir.Value:
    if len(terms) == 1:
        return terms[0]
    return op.Add(*terms) if len(terms) == 2 else op.Sum(*terms)


def _named(node: ir.Node) -> str:
    return f"{f'{node.domain}:' if node.domain else ''}{node.op_type} (node {node.name!r})"


def _no_rule(node: ir.Node, outputs: Iterable[ir.Value]) -> str:
    domain = f", domain={node.domain!r}" if node.domain else ""
    before = "it was quantized" if node.op_type.startswith("DynamicQuantize") else "onnxruntime optimized it"
    fused = f"Pass the model from before {before}, r" if node.domain == "com.microsoft" else "R"
    return (
        f"{_named(node)} has no gradient rule, but lies between the trained values and the output: "
        f"{' -> '.join(_path(node, set(outputs)))}. {fused}egister a rule with "
        f"@onnxtrain.gradient_rule({node.op_type!r}{domain}), or do not train the weights before this node."
    )


def _path(node: ir.Node, outputs: set[ir.Value]) -> list[str]:
    """Return the names of operators and values from a node to one of the outputs."""
    came_from: dict[ir.Node, tuple[ir.Node, ir.Value] | None] = {node: None}
    queue = [node]
    for current in queue:
        for y in current.outputs:
            if y in outputs:
                path = [str(y.name), current.op_type]
                step = came_from[current]
                while step is not None:
                    current, value = step
                    path += [str(value.name), current.op_type]
                    step = came_from[current]
                return path[::-1]
            for consumer in y.consumers():
                if consumer not in came_from:
                    came_from[consumer] = (current, y)
                    queue.append(consumer)
    return [node.op_type]


# ------------------------------------------------------------- decomposition


def differentiate(op: Op, node: ir.Node, forward: Callable[..., Sequence[Gradient]], *dy: Gradient) -> list[Gradient]:
    """Return the gradients of the operands of `node` by differentiating its decomposition `forward`.

    Parameters
    ----------
    op : onnxscript builder
    node : onnx_ir.Node
    forward : callable
        ``forward(op, node, *inputs) -> outputs``. It appends nodes that have rules.
        An output without a gradient may be None.
    *dy : onnx_ir.Value or None
        The gradients of the outputs.
    """
    last = next(reversed(op.builder.graph), None)
    outputs = forward(op, node, *node.inputs)
    appended = list(takewhile(lambda node: node is not last, reversed(op.builder.graph)))[::-1]
    incoming = {y: d for y, d in zip(outputs, dy, strict=False) if y is not None and d is not None}
    wanted = {x for x in node.inputs if x is not None and is_float(x)}
    found = backpropagate(op, appended, incoming, wanted)
    # the gradient of an operand that occurs twice is already the sum over its uses
    return [None if x is None else found.pop(x, None) for x in node.inputs]
