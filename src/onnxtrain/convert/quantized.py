r"""Quantized models: integer weights are trained as floats and written back as integers.

A weight after ``DequantizeLinear`` is :math:`W = s (q - z)`. Training keeps W as a float master copy, which the forward
pass quantizes with the file's scale s and zero point z. The derivative of the rounding is defined in
:mod:`onnxtrain.autodiff.rules.quantized`. Intercepts of 32 bits, which ``QuantizeLinear`` does not support, are rounded
only when they are written back. This changes them by half their scale, a hundredth of the scale of a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import onnx
import onnx.numpy_helper
import onnx_ir as ir

from onnxtrain import graph


class Quantization(NamedTuple):
    r"""The mapping of floats to integers: :math:`q = \operatorname{clip}(\operatorname{round}(w / s) + z)`.

    Scale and zero point have shapes that broadcast to that of the weight.
    """

    scale: np.ndarray
    zero: np.ndarray
    dtype: ir.DataType

    def integers(self, w: np.ndarray) -> np.ndarray:
        """Return weights as integers, rounded like QuantizeLinear; for float8 the cast rounds."""
        steps = np.asarray(w, np.float32) / self.scale
        if not self.dtype.is_integer():
            return np.clip(steps, self.dtype.min, self.dtype.max).astype(self.dtype.numpy())
        rounded = np.rint(steps.astype(np.float64)) + self.zero
        return np.clip(rounded, int(self.dtype.min), int(self.dtype.max)).astype(self.dtype.numpy())

    def floats(self, q: np.ndarray) -> np.ndarray:
        """Return integers as the float32 values that DequantizeLinear computes."""
        return ((q.astype(np.float64) - self.zero).astype(np.float32) * self.scale).astype(np.float32)


#: The prefix of operators that quantize a batch by its largest value.
_OF_BATCHES = "DynamicQuantize"


def scales_of_batches(onx: onnx.ModelProto) -> str:
    """Return why rows depend on each other in a dynamically quantized model, and the remedy; else ""."""
    nodes = graph.nodes_in(onx.graph.node)
    found = next((node for node in nodes if node.op_type.startswith(_OF_BATCHES)), None)
    if found is None:
        return ""
    return (
        f"The model quantizes each batch with one scale in {found.op_type} (node {found.name!r}), as written by "
        f"onnxruntime's quantize_dynamic. {graph.OF_FIXED_SCALES}"
    )


def has_integers(onx: onnx.ModelProto) -> bool:
    """Whether a model has quantized values."""
    return any(node.op_type in ("DequantizeLinear", "QuantizeLinear") for node in onx.graph.node)


def activation_bits(onx: onnx.ModelProto) -> int:
    """Return the bits of the coarsest quantization of values that depend on the inputs; 0 if there is none."""
    if any(node.op_type.startswith("DynamicQuantize") for node in onx.graph.node):  # always uint8
        return 8
    nodes = graph.load(onx).graph if has_integers(onx) else ()
    quantized = (n.outputs[0] for n in nodes if n.op_type == "QuantizeLinear" and graph.constant(n.inputs[0]) is None)
    return min((y.dtype.bitwidth for y in quantized if y.dtype is not None), default=0)


def with_master_copies(onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with quantized weights as floating-point initializers of the same names, quantized in the graph.

    Weights in subgraphs, and weights whose scale is computed, are not changed.
    """
    if not has_integers(onx):
        return onx
    model = graph.load(onx)
    op = graph.builder(model).op
    users: dict[ir.Value, list[ir.Node]] = {}
    for node in model.graph:
        x = node.inputs[0] if node.op_type == "DequantizeLinear" else None
        if x is not None and _is_held(x):
            users.setdefault(x, []).append(node)
    for weight, nodes in users.items():
        found = {_identity(node) for node in nodes}
        how = _quantization(nodes[0]) if len(found) == 1 and len(nodes) == len(weight.uses()) else None
        if how is not None:
            _replace(model, op, weight, nodes, how)
    return graph.save(model)


def _is_held(x: ir.Value) -> bool:
    """Whether a value is an initializer or the value of a Constant node, and not an output."""
    held = x.is_initializer() or graph.made_by(x, "Constant") is not None
    return held and graph.constant(x) is not None and not x.is_graph_output()


def _identity(node: ir.Node) -> tuple[object, ...]:
    attributes = tuple(sorted((a.name, a.value) for a in node.attributes.values() if isinstance(a.value, int)))
    return (*(x and x.name for x in node.inputs[1:]), attributes)


def _quantization(node: ir.Node) -> Quantization | None:
    """Return the quantization of a DequantizeLinear's operand; None if its scale is not constant or not positive."""
    x, scale, zero = (*node.inputs, None)[:3]
    q, s = graph.constant(x), graph.constant(scale)
    unsaid = zero is None or (x is not None and x.dtype is ir.DataType.INT32)  # 0 by definition for 32 bits
    z = np.zeros((), np.int64) if unsaid else graph.constant(zero)
    if q is None or s is None or z is None or x is None or x.dtype is None or not (s > 0).all():
        return None
    if not (x.dtype.is_integer() or x.dtype.is_floating_point()):  # only in a damaged model
        return None
    axis, block = graph.attribute(node, "axis", 1), graph.attribute(node, "block_size", 0)
    try:
        how = quantization(q.shape, s, z, x.dtype, axis, block)
        exact = x.dtype is ir.DataType.INT32 or np.array_equal(how.integers(how.floats(q)), q)
    except (IndexError, ValueError, ZeroDivisionError):  # the scale has not the length of the axis: a damaged model
        return None
    return how if exact else None


def dequantized(node: ir.Node) -> np.ndarray | None:
    """Return the constant result of a DequantizeLinear, or None if it depends on the inputs."""
    master = graph.made_by(node.inputs[0], "QuantizeLinear")
    if master is not None:
        return graph.constant(master.inputs[0])
    q, how = graph.constant(node.inputs[0]), _quantization(node)
    return None if q is None or how is None else how.floats(q)


def quantization(
    shape: tuple[int, ...], scale: np.ndarray, zero: np.ndarray, dtype: ir.DataType, axis: int, block: int
) -> Quantization:
    """Return the quantization of a weight by a scale and zero point: per tensor, per axis or per block."""

    def along(v: np.ndarray) -> np.ndarray:
        v = np.asarray(v)
        if v.ndim == 0 or v.size == 1:
            return v.reshape(())
        if block:
            return np.repeat(v, block, axis=axis).take(range(shape[axis]), axis=axis)
        return v.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])

    return Quantization(along(scale).astype(np.float32), along(zero).astype(np.float64), dtype)


def _replace(model: ir.Model, op: graph.Op, weight: ir.Value, nodes: Iterable[ir.Node], how: Quantization) -> None:
    """Turn a quantized weight into a floating-point initializer that is quantized before its DequantizeLinear nodes."""
    name, first = str(weight.name), next(iter(nodes))
    scale = first.inputs[1]
    w = how.floats(graph.constant(weight)).astype(scale.dtype.numpy())  # type: ignore[arg-type, union-attr]
    producer = weight.producer()
    if producer is None:
        del model.graph.initializers[name]
    weight.name = None
    tensor = ir.tensor(w, dtype=scale.dtype, name=name)  # type: ignore[union-attr]
    master = ir.Value(name=name, type=scale.type, shape=ir.Shape(w.shape), const_value=tensor)  # type: ignore[union-attr]
    model.graph.register_initializer(master)
    for node in nodes:
        if how.dtype is ir.DataType.INT32:
            ir.convenience.replace_all_uses_with(node.outputs[0], master, replace_graph_outputs=True)
            model.graph.remove(node, safe=True)
        else:
            node.replace_input_with(0, _quantized(op, node, master, weight))
    if producer is not None:
        model.graph.remove(producer, safe=True)


def _quantized(op: graph.Op, node: ir.Node, master: ir.Value, weight: ir.Value) -> ir.Value:
    """Insert, before a DequantizeLinear, the QuantizeLinear of a master copy; return its result."""
    _, scale, *zero = node.inputs
    if not zero:  # without a zero point the result would be uint8
        zeros = np.zeros(graph.static_shape(scale) or (), weight.dtype.numpy())  # type: ignore[arg-type, union-attr]
        zero = [op.initializer(ir.tensor(zeros, dtype=weight.dtype), "zero")]
    quantize = ir.node("QuantizeLinear", [master, scale, *zero], graph.attributes(node, "axis", "block_size"))
    (q,) = quantize.outputs
    q.name, q.type, q.shape = graph.unique_name(f"{master.name}_quantized", op.builder.names), weight.type, weight.shape
    node.prepend(quantize)
    return q


# ---------------------------------------------------------------- written back


class _Dequantized(NamedTuple):
    """A weight that a DequantizeLinear of a file reads: the names of its tensors, and the axis of its scales."""

    weight: str
    scale: str
    zero: str | None
    axis: int
    block: int

    def by(self, scale: np.ndarray, tensors: Mapping[str, onnx.TensorProto]) -> Quantization:
        tensor = tensors[self.weight]
        zero = np.zeros(()) if self.zero is None else onnx.numpy_helper.to_array(tensors[self.zero])
        return quantization(tuple(tensor.dims), scale, zero, ir.DataType(tensor.data_type), self.axis, self.block)


def quantized_again(
    onx: onnx.ModelProto, tensors: Mapping[str, onnx.TensorProto], weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the integers for trained weights and trained scales of a file, by tensor name.

    Integers of unchanged weights stay the same. The scale of an intercept is the product of the scales of the layer's
    operands, as runtimes with integer products assume, so it is updated if one of these was trained.

    Parameters
    ----------
    onx : onnx.ModelProto
        The file.
    tensors : mapping of str to onnx.TensorProto
        The original initializers and constants of the file.
    weights : mapping of str to ndarray
    """
    if not has_integers(onx):
        return {}
    found = {y: d for y, d in _dequantized(onx).items() if d.scale in tensors}
    scales = {d.scale: onnx.numpy_helper.to_array(tensors[d.scale]) for d in found.values()}
    new_scales = {name: np.asarray(weights.get(name, s), s.dtype) for name, s in scales.items()}
    changed: dict[str, np.ndarray] = {}
    for name, scale in _scales_of_intercepts(onx, found, new_scales, weights).items():
        changed[name] = new_scales[name] = scale.astype(scales[name].dtype)
    for d in found.values():
        if d.weight not in tensors or not ({d.weight, d.scale} & {*weights, *changed}):
            continue
        old, scale = onnx.numpy_helper.to_array(tensors[d.weight]), scales[d.scale]
        floats = d.by(scale, tensors).floats(old).astype(scale.dtype)
        w = weights.get(d.weight, floats)
        same = (floats == w) if new_scales[d.scale] is scale else np.zeros(w.shape, bool)
        changed[d.weight] = np.where(same, old, d.by(new_scales[d.scale], tensors).integers(w))
    return changed


def _dequantized(onx: onnx.ModelProto) -> dict[str, _Dequantized]:
    """Return the operands of each DequantizeLinear by the name of its result, with copies by Identity resolved."""
    copies = {n.output[0]: n.input[0] for n in onx.graph.node if n.op_type == "Identity"}

    def source(x: str) -> str:
        while x in copies:
            x = copies[x]
        return x

    integers = {t.name for t in onx.graph.initializer if t.data_type == onnx.TensorProto.INT32}
    found = {}
    for node in onx.graph.node:
        if node.op_type == "DequantizeLinear":
            weight, scale, *zero = map(source, node.input)
            given = {a.name: a.i for a in node.attribute}
            shifted = bool(zero) and weight not in integers  # 0 by definition for 32 bits, and perhaps computed
            place = given.get("axis", 1), given.get("block_size", 0)
            found[node.output[0]] = _Dequantized(weight, scale, zero[0] if shifted else None, *place)
    return found


def _scales_of_intercepts(
    onx: onnx.ModelProto,
    found: Mapping[str, _Dequantized],
    scales: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Return new scales, by name, of the intercepts of layers with another trained scale."""
    followed = {}
    for node in onx.graph.node:
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or len(node.input) < 3:
            continue
        x, w, b = (found.get(name) for name in node.input[:3])
        if x is not None and w is not None and b is not None and {x.scale, w.scale} & set(weights):
            product = scales[x.scale] * scales[w.scale]
            if product.size in (1, scales[b.scale].size):
                followed[b.scale] = np.resize(product, scales[b.scale].shape)
    return followed
