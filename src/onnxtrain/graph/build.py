"""A builder for graphs, and for the graphs inside nodes (If, Loop, Scan), whose names never collide."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx
import onnx_ir as ir
from onnxscript import GraphBuilder

from onnxtrain.cache import table
from onnxtrain.errors import ModelError
from onnxtrain.graph.query import describe, values_in
from onnxtrain.graph.shapes import infer_simply
from onnxtrain.opsets import find_schema
from onnxtrain.registry import did_you_mean

#: Operators by their names in numpy, PyTorch and TensorFlow, where these are not similar.
_SYNONYMS = {
    "absolute": "Abs",
    "clamp": "Clip",
    "concatenate": "Concat",
    "divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "multiply": "Mul",
    "negative": "Neg",
    "power": "Pow",
    "subtract": "Sub",
}

#: The mark of a value that gets no gradient; it is not written into a model.
_CONSTANT = "onnxtrain.taken_for_constant"

#: The mark of an initializer that is not a parameter; it is written into a model.
BUFFER = "onnxtrain.buffer"

#: The value of this key for a matrix of few bits, which is stored as integers.
OF_FEW_BITS = "quantized"


class Op(Protocol):
    """The ``op`` of a builder: each operator is a method that appends a node and returns its outputs.

    Operands are values or Python scalars, which take the type of the other operand; attributes are
    keyword arguments.
    """

    @property
    def builder(self) -> Builder:
        """The builder of this ``op``."""

    def initializer(self, tensor: Any, name: str | None = None) -> ir.Value:
        """Register a tensor under `name`, or under a derived name if `name` is already used."""

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        """Return the method of an operator."""


class Builder(GraphBuilder):
    """:class:`onnxscript.GraphBuilder` whose names never collide with names in the graph.

    It also raises where onnxscript only logs: if an operator does not exist, or if operands do not fit.

    Parameters
    ----------
    graph : onnx_ir.Graph
        The graph to which nodes are appended.
    parent : Builder, optional
        The builder of the outer graph, for the body of If, Loop and Scan.
    """

    def __init__(self, graph: ir.Graph, *, parent: Builder | None = None):
        super().__init__(graph, parent=parent)
        self.names: set[str]
        if parent is not None:
            self.names = parent.names
        else:  # all builders of a graph share one set of names
            self.names = graph.meta.setdefault("onnxtrain.names", set())
            self.names.update(names_in(graph))

    if TYPE_CHECKING:

        @property
        def op(self) -> Op:  # type: ignore[override]
            """The operators as methods."""

    def initializer(self, tensor: Any, name: str | None = None, *, qualify: bool = True) -> ir.Value:
        """Register a tensor under `name`, or under a derived name if `name` is already used."""
        name = unique_name(name or tensor.name or "constant", self.names)
        return super().initializer(tensor, name, qualify=qualify)

    def _qualify_value_name(self, name: str) -> str:
        return unique_name(name, self.names)

    def _annotate_node(self, node: ir.Node) -> None:
        """Do nothing instead of adding onnxscript's metadata on modules."""

    def _get_schema(self, op_type: str, domain: str, version: int | None) -> Any:
        return None if version is None else find_schema(op_type, version, domain)

    def _partition_inputs_attributes(self, schema: Any, args: Any, kwargs: Any) -> Any:
        """Take positional arguments as inputs and keywords as attributes, without examining each parameter."""
        if schema is None or kwargs.keys() <= _attributes(schema):
            return args, kwargs
        return super()._partition_inputs_attributes(schema, args, kwargs)

    def _cast_inputs(self, schema: Any, inputs: Any) -> Any:
        """Convert scalars to constants; return at once if there are none."""
        values = all(x is None or isinstance(x, ir.Value) for x in inputs)
        if values and schema is not None and len(inputs) <= schema.max_input:
            return inputs
        if schema is not None and schema.name == "Pow" and getattr(inputs[0], "dtype", None) == ir.DataType.DOUBLE:
            # an exponent may have another type than the base, and onnxscript makes it float32: 1.1 would lose digits
            inputs = [self._input_to_ir_value(x, inputs[0]) if isinstance(x, float) else x for x in inputs]
        return super()._cast_inputs(schema, inputs)

    def infer(self, node: ir.Node) -> None:
        """Set the types and shapes of the outputs of a node."""
        if node.version is None:  # the node was already in the graph
            node.version = self.graph.opset_imports.get(node.domain)
        if infer_simply(node):
            return
        super()._infer_shapes(node)
        problem = node.metadata_props.pop("pkg.onnxscript.shape_inference_error", None)
        if problem is not None:
            if "No schema registered" in problem and node.domain:
                return  # an operator of the user, whose results have unknown types
            if "No schema registered" in problem:
                raise ModelError(f"ONNX has no operator {node.op_type!r}. {nearest_operator(node.op_type)}")
            operands = ", ".join(describe(v) for v in node.inputs)
            example = f"op.{node.op_type}(..., _outputs=2)"
            several = f" Pass the number of results: {example}." if "output size" in problem else ""
            if takes := re.search(r"input size (\d+) not in range \[min=(\d+), max=(\d+)\]", problem):
                given, least, most = takes.groups()
                allowed = least if most == least else f"{least} to {most}"
                problem = f"it takes {allowed} operands, but got {given}."
            raise ModelError(f"{node.op_type}({operands}) is not valid: {problem}{several}")

    _infer_shapes = infer  # onnxscript's name for it, called for each appended node


def operator_named(name: str) -> str | None:
    """Return the operator of ONNX that other libraries call `name`, or None."""
    same = _SYNONYMS.get(name.casefold())
    return same or next((known for known in _operators() if known.casefold() == name.casefold()), None)


def _operators() -> set[str]:
    return {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain and not schema.deprecated}


def nearest_operator(name: str) -> str:
    """Return the end of a message about an unknown operator: the operator of ONNX that was probably meant."""
    near = did_you_mean(name, _operators(), _SYNONYMS).partition("Known")[0]
    near = "Use op.Mul(x, x). " if name.casefold() == "square" else near
    return f"{near}The operators are listed at https://onnx.ai/onnx/operators."


@table(maxsize=256)
def _attributes(schema: Any) -> frozenset[str]:
    return frozenset(schema.attributes)


def tensor(numbers: Any, dtype: Any = ir.DataType.INT64, name: str | None = None) -> ir.Tensor:
    """Return an array as a tensor; :func:`onnx_ir.tensor` infers the type, which takes ten times as long."""
    return ir.Tensor(np.array(numbers, dtype.numpy()), dtype=dtype, name=name)


def taken_for_constant(value: ir.Value) -> ir.Value:
    """Mark a value with respect to which the derivative of the result is zero, so that it gets no gradient."""
    value.meta[_CONSTANT] = True
    return value


def is_taken_for_constant(value: ir.Value) -> bool:
    """Whether a value is marked to get no gradient."""
    return bool(value.meta.get(_CONSTANT))


def depending_on(op: Op, shape: ir.Value, x: ir.Value) -> ir.Value:
    """Return a shape that formally depends on a floating-point value, without being changed by it."""
    positive = op.Greater(x, 0.0)
    never = op.And(positive, op.Not(positive))
    return op.Add(shape, op.ReduceSum(op.Cast(never, to=int(ir.DataType.INT64)), keepdims=0))


def builder(model: ir.Model) -> Builder:
    """Return a :class:`Builder` on the main graph of a model."""
    return Builder(model.graph)


def names_in(graph: ir.Graph) -> set[str]:
    """Return every name of a value in a graph and in the graphs inside it."""
    return {v.name for v in values_in(graph) if v.name}


def unique_name(name: str, taken: set[str]) -> str:
    """Return `name`, with a numeric suffix if it is in `taken`; add the result to `taken`.

    Examples
    --------
    >>> taken = {"loss"}
    >>> unique_name("loss", taken), unique_name("loss", taken)
    ('loss_1', 'loss_2')
    """
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate


# ------------------------------------------------------------------- bodies


def inner_builder(op: Op, body: ir.Graph) -> Any:
    """Return the ``op`` that appends to a graph inside the graph of `op`."""
    body.opset_imports.setdefault("", op.builder.graph.opset_imports[""])
    return Builder(body, parent=op.builder).op


def put_out(op: Op, body: ir.Graph, values: Iterable[ir.Value]) -> None:
    """Set the outputs of a body; each must be computed in the body, and they must differ."""
    body.outputs.clear()
    for x in values:
        node = x.producer()
        own = node is not None and node.graph is body and not x.is_graph_output()
        body.outputs.append(x if own else op.Identity(x))


def scan(
    op: Op, turn: Callable[..., Iterable[ir.Value]], xs: Sequence[ir.Value], states: Sequence[ir.Value] = ()
) -> list[ir.Value]:
    """Append a Scan over the first axis of `xs`; return the last states, then the stacked results.

    Parameters
    ----------
    op : onnxscript builder
    turn : callable
        ``turn(op, *states, *slices)`` appends one iteration; it returns the next states, then the values to stack.
    xs, states : sequence of onnx_ir.Value
    """
    body = scan_body(op, turn, xs, states)
    turns = xs[0].shape[0]  # type: ignore[index]
    found = [
        value_like(op, f"scanned_{y.name}", y, y.shape if i < len(states) or y.shape is None else [turns, *y.shape])
        for i, y in enumerate(body.outputs)
    ]
    attributes: dict[str, Any] = {"body": body, "num_scan_inputs": len(xs)}
    op.builder.graph.append(ir.node("Scan", [*states, *xs], attributes=attributes, outputs=found))
    return found


def scan_body(
    op: Op, turn: Callable[..., Iterable[ir.Value]], xs: Sequence[ir.Value], states: Sequence[ir.Value]
) -> ir.Graph:
    """Return the body of :func:`scan`."""
    body = ir.Graph([], [], nodes=[], name="turn")
    body.inputs.extend(value_like(op, f"{x.name}_turn", x, x.shape) for x in states)
    body.inputs.extend(value_like(op, f"{x.name}_turn", x, x.shape[1:]) for x in xs)  # type: ignore[index]
    inner = inner_builder(op, body)
    put_out(inner, body, turn(inner, *body.inputs))
    return body


def loop(
    op: Op, turn: Callable[..., Iterable[ir.Value]], states: Sequence[ir.Value], *, at_most: int
) -> list[ir.Value]:
    """Append a Loop whose iterations keep the shapes of its states; return the last states.

    Parameters
    ----------
    op : onnxscript builder
    turn : callable
        ``turn(op, *states)`` appends one iteration; it returns whether another iteration follows, then the next states.
    states : sequence of onnx_ir.Value
    at_most : int
        The largest number of iterations.
    """
    body = ir.Graph([], [], nodes=[], name="turn")
    body.inputs.extend(
        ir.Value(name=unique_name(name, op.builder.names), type=ir.TensorType(dtype), shape=ir.Shape([]))
        for name, dtype in (("number", ir.DataType.INT64), ("going", ir.DataType.BOOL))
    )
    body.inputs.extend(value_like(op, f"{x.name}_turn", x, x.shape) for x in states)
    inner = inner_builder(op, body)
    put_out(inner, body, turn(inner, *body.inputs[2:]))
    found = [value_like(op, f"{x.name}_last", x, x.shape) for x in states]
    bounds = [op.initializer(tensor(at_most, name="at_most")), op.initializer(ir.tensor(True, name="true"))]
    op.builder.graph.append(ir.node("Loop", [*bounds, *states], attributes={"body": body}, outputs=found))
    return found


def value_like(op: Op, name: str, x: ir.Value, shape: Any) -> ir.Value:
    """Return a new value with the type of `x` and the given name and shape."""
    name = unique_name(name, op.builder.names)
    return ir.Value(name=name, type=x.type, shape=None if shape is None else ir.Shape(shape))
