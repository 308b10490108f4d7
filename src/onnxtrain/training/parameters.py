"""Roles of initializers: parameters, which are trained by default, and buffers, which are not.

If the exporter recorded the roles, these are used. Otherwise only certain initializers are buffers: statistics of a
normalization or of preprocessing, masks, tables of sines, scalars of a formula.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from enum import Enum
from fnmatch import fnmatchcase
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.autodiff import sources
from onnxtrain.convert.dynamo import KIND, constants_of_keras, held_by_module
from onnxtrain.convert.fixed_values import (
    are_0_and_1,
    are_0_or_far,
    are_centers,
    are_coordinates,
    are_frequencies,
    are_sines,
    are_slopes,
)
from onnxtrain.convert.likely_buffers import is_called_statistic, learned_scales, of_scalers
from onnxtrain.convert.tied_weights import folded_from, is_computed

#: The nodes that compute with an initializer, and its operand position.
Uses: TypeAlias = "list[tuple[ir.Node, int]]"


class Role(Enum):
    """The role of an initializer."""

    PARAMETER = "weight"
    BUFFER = "buffer"


#: The names that torch.onnx.export(dynamo=False) gives to constants and node outputs: onnx::Add_3,
#: /model/Constant_output_0, 387.
_RESULT = re.compile(r"/|.*::|\d+$")

#: Names of buffers: statistics in PyTorch and Keras; frequencies of rotary embeddings and the zeros of BART in
#: transformers; Fourier bases of speech models; windows and filters of torchaudio's spectrograms.
_BUFFERS = (
    *("*running_mean*", "*running_var*", "*num_batches_tracked*", "*moving_mean*", "*moving_var*"),
    *("*inv_freq", "*final_logits_bias"),
    *("*_buffer", "*forward_basis", "*inverse_basis", "*.spectrogram.window", "*.mel_scale.fb"),
)

#: Operands that no module learns: the values on and off of OneHot, what fills a padding, windows of Fourier transforms,
#: the cosines and sines of positions.
_SETTINGS = {("OneHot", 2), ("Pad", 2), ("STFT", 2), ("RotaryEmbedding", 1), ("RotaryEmbedding", 2)}

#: Operands of which only the shape or the type counts.
_FORM = {("CastLike", 1), ("Shape", 0), ("Size", 0)}

#: Operands that are zeros unless they are learned: initial states, and what values are scattered into.
_STARTS = {("GRU", 5), ("LSTM", 5), ("LSTM", 6), ("RNN", 5), ("ScatterElements", 0), ("ScatterND", 0)}

#: The positions of multiplicative operands; an operand that is only added is an intercept.
_FACTORS = {
    "MatMul": (0, 1),
    "Gemm": (0, 1),
    "Einsum": (0, 1, 2, 3),
    "Conv": (1,),
    "ConvTranspose": (1,),
    "Gather": (0,),
    "RNN": (1, 2),
    "GRU": (1, 2),
    "LSTM": (1, 2),
}

#: The positions of operands that are weights if they are quantized.
_QUANTIZED = {
    "ConvInteger": (0, 1),
    "DequantizeLinear": (0,),
    "MatMulInteger": (0, 1),
    "QLinearConv": (0, 3),
    "QLinearMatMul": (0, 3),
}

#: Operators whose output has all or some elements of their first operand.
_CARRIERS = frozenset(
    {"Cast", "CastLike", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze"}
) | {"DequantizeLinear", "QuantizeLinear", "Tile", "Transpose", "Unsqueeze"}

#: Operators that scale integer weights to floating-point ones.
_SCALING = frozenset({"Add", "Div", "Mul", "Sub"})

#: The types of quantized weights.
_SMALL = frozenset(
    getattr(onnx.TensorProto, name) for name in ("INT4", "UINT4", "INT8", "UINT8", "INT16", "UINT16", "INT32")
)

#: Operators after which a factor of a product is still a factor.
_SAME_ELEMENTS = ("Cast", "DequantizeLinear", "QuantizeLinear", "Reshape", "Transpose", "Unsqueeze")

#: Operators between an additive mask and its Softmax.
_BETWEEN = _CARRIERS | {"Add", "Clip", "Div", "Max", "Min", "Mul", "Sub", "Where"}

#: The number of elements from which an array is examined in its own type, because float64 would take twice the memory.
_LARGE = 2**20


def roles_by_exporter(onx: onnx.ModelProto) -> dict[str, Role]:
    """Return the roles of initializers and constants that the exporter recorded.

    Some versions of PyTorch's do, and this package for scikit-learn estimators. The original file is needed, because
    opset conversion drops the metadata.
    """
    said = {v.name: {p.key: p.value for p in v.metadata_props} for v in onx.graph.value_info}
    if onx.producer_name != "pytorch":
        marked = (name for name, recorded in said.items() if graph.BUFFER in recorded)
        return dict.fromkeys((*marked, *of_scalers(onx)), Role.BUFFER)
    names = [i.name for i in onx.graph.initializer]
    kinds = {name: kind for name in names if (kind := said.get(name, {}).get(KIND))}
    if not kinds:
        scalars = (i.name for i in onx.graph.initializer if i.dims in ([], [1]) and not _RESULT.match(i.name))
        scales = [x for x in learned_scales(onx) if not _is_name_of_buffer(x)]
        fixed = {i.name for i in onx.graph.initializer if i.name in scales and _has_fixed_values(graph.array_of(i))}
        learned = dict.fromkeys((*scalars, *(x for x in scales if x not in fixed)), Role.PARAMETER)
        return dict.fromkeys(made_by_code(onx), Role.BUFFER) | learned
    if constants_of_keras(onx):  # their use distinguishes parameters and statistics
        return dict.fromkeys(made_by_code(onx), Role.BUFFER)
    computed = dict.fromkeys(folded_from(onx), Role.PARAMETER) if held_by_module(onx) else {}
    found = {name: _of_kind(kind) for name, kind in kinds.items()}
    return computed | found | dict.fromkeys(made_by_code(onx), Role.BUFFER)


def record_buffers(onx: onnx.ModelProto, names: Container[str]) -> None:
    """Record in a model that initializers are not trained by default, such as the means of a StandardScaler."""
    known = {value.name: value for value in onx.graph.value_info}
    for w in onx.graph.initializer:
        if w.name in names:
            value = known.get(w.name)
            if value is None:
                value = onx.graph.value_info.add()
                value.CopyFrom(onnx.helper.make_tensor_value_info(w.name, w.data_type, w.dims))
            if all(p.key != graph.BUFFER for p in value.metadata_props):
                value.metadata_props.add(key=graph.BUFFER, value="1")


def _of_kind(kind: str) -> Role:
    return Role.PARAMETER if kind == "PARAMETER" else Role.BUFFER


def made_by_code(onx: onnx.ModelProto) -> set[str]:
    """Return the values that contain no parameter, because the code of a module contains or computes them.

    Only models of PyTorch's exporter show this.
    """
    if onx.producer_name != "pytorch":
        return set()
    held = held_by_module(onx)
    parameters = {name for name, (_, kind) in held.items() if _of_kind(kind) is Role.PARAMETER}
    parameters.update(constants_of_keras(onx))
    folded = (name for name, sources in folded_from(onx).items() if held and parameters.isdisjoint(sources))
    nodes = graph.nodes_in(onx.graph.node)
    constants = (node.output[0] for node in nodes if node.op_type == "Constant" and not _has_integers(node))
    return {*constants, *folded}


def _has_integers(node: onnx.NodeProto) -> bool:
    """Whether a Constant node holds a quantized weight, which code never contains as a constant."""
    return any(a.t.data_type in _SMALL for a in node.attribute if a.HasField("t"))


def trainable(model: ir.Model, *outputs: ir.Value) -> list[ir.Value]:
    """Return the floating-point initializers with respect to which an output has a derivative."""
    found = sources(model.graph, *outputs)
    return [w for w in model.graph.initializers.values() if w in found and graph.is_float(w)]


def quantized_weights(onx: onnx.ModelProto) -> list[str]:
    """Return the names of initializers that hold weights as integers, used directly, after shape changes or scaled.

    A matrix of MatMulNBits is such a weight, although its values are already scaled here.
    """
    producers = {y: node for node in onx.graph.node for y in node.output}
    initializers = {i.name: i for i in onx.graph.initializer}
    reached: set[str] = set()
    for node in onx.graph.node:
        for i in _QUANTIZED.get(node.op_type, ()):
            reached |= _sources_of(node.input[i], producers, _CARRIERS)
        for name in (node.input[i] for i in _FACTORS.get(node.op_type, ()) if i < len(node.input)):
            found = _sources_of(name, producers, _CARRIERS | _SCALING)
            if found <= initializers.keys():
                reached |= {x for x in found if _is_integer_matrix(initializers[x])}
    of_few_bits = (graph.BUFFER, graph.OF_FEW_BITS)
    few = {v.name for v in onx.graph.value_info for p in v.metadata_props if (p.key, p.value) == of_few_bits}
    # other floating-point weights are trained as they are
    integers = {name for name, i in initializers.items() if i.data_type not in graph.FLOATS}
    return [name for name in initializers if name in few | (reached & integers)]


def _sources_of(name: str, producers: Mapping[str, onnx.NodeProto], through: Container[str]) -> set[str]:
    """Return the values from which the operators `through` compute a value."""
    found, seen, pending = set(), {name}, [name]
    while pending:
        value = pending.pop()
        node = producers.get(value)
        if node is None or node.op_type not in through:
            found.add(value)
            continue
        operands = set(node.input if node.op_type in _SCALING else node.input[:1]) - seen
        seen |= operands
        pending += operands
    return found


def _is_integer_matrix(w: onnx.TensorProto) -> bool:
    """Whether an initializer holds integer weights, and not a mask or a zero point."""
    return w.data_type in _SMALL and len(w.dims) > 1 and not are_0_and_1(graph.array_of(w))


def role_of(w: ir.Value, said: Mapping[str, Role]) -> Role:
    """Return the role of an initializer; `said` holds the roles that the exporter recorded."""
    uses = list(_uses(w))
    if uses and all(_is_statistic_of_batches(*use) or _is_step(*use) for use in uses):
        return Role.BUFFER
    if str(w.name) in said:
        return said[str(w.name)]
    return Role.BUFFER if any(is_buffer(w, uses) for is_buffer in _CRITERIA) else Role.PARAMETER


def _is_statistic_of_batches(node: ir.Node, position: int) -> bool:
    return node.op_type == "BatchNormalization" and position > 2


def _is_step(node: ir.Node, position: int) -> bool:
    """Whether an operand is the scale of a quantization."""
    return node.op_type in ("DequantizeLinear", "QuantizeLinear") and position == 1


def _is_called_buffer(w: ir.Value, uses: Uses) -> bool:
    return _is_name_of_buffer(str(w.name)) or _is_singular_vector(w) or _is_of_frozen_normalization(w)


def _is_name_of_buffer(name: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in _BUFFERS)


def _is_singular_vector(w: ir.Value) -> bool:
    """Whether PyTorch's spectral_norm divides by this vector: weight_u and weight_v beside weight_orig."""
    stem, _, side = str(w.name).rpartition("_")
    return side in ("u", "v") and w.graph is not None and f"{stem}_orig" in w.graph.initializers


def _is_of_frozen_normalization(w: ir.Value) -> bool:
    """Whether a value is first combined with statistics, like all buffers of a FrozenBatchNorm2d.

    Learned factors and shifts are combined with the normalized rows.
    """
    stem, _, part = str(w.name).rpartition(".")
    if part not in ("weight", "bias") or w.graph is None or f"{stem}.running_var" not in w.graph.initializers:
        return False
    others = [x for node, position in _uses(w) for i, x in enumerate(node.inputs) if i != position and x is not None]
    inputs = {x for x in w.graph.inputs if not x.is_initializer()}
    return bool(others) and inputs.isdisjoint(graph.ancestors(others))


def _is_setting(w: ir.Value, uses: Uses) -> bool:
    """Whether a value is only an operand that no module learns."""
    return bool(uses) and all((node.op_type, position) in _SETTINGS for node, position in uses)


def _is_start(w: ir.Value, uses: Uses) -> bool:
    """Whether a value is only the zeros from which a recurrence starts, or into which values are scattered."""
    array = graph.constant(w) if uses and all(_starts_from(*use) for use in uses) else None
    return array is not None and not array.any()


def _starts_from(node: ir.Node, position: int) -> bool:
    if node.op_type == "Scan":
        return position < len(node.inputs) - graph.attribute(node, "num_scan_inputs")
    return (node.op_type, position) in _STARTS or (node.op_type == "Loop" and position > 1)


def _is_marked(w: ir.Value, uses: Uses) -> bool:
    """Whether the builder of this package created the initializer as a constant."""
    return bool(w.metadata_props.get(graph.BUFFER))


def _has_missing_values(w: ir.Value, uses: Uses) -> bool:
    """Whether an entry is NaN, as in the rows that a KNNImputer stores; a coefficient with NaN is broken."""
    array = None if _is_only_factor(uses) else graph.constant(w)
    return array is not None and array.size > 0 and bool(np.isnan(array.min()))


def _is_only_factor(uses: Uses) -> bool:
    """Whether all uses are products, in which NaN marks nothing."""
    return bool(uses) and all(node.op_type in ("MatMul", "Gemm", "Conv") for node, _ in uses)


def multiplies(w: ir.Value) -> bool:
    """Whether a weight is a factor of products: a coefficient, not an intercept or a scale."""
    if graph.rank(w) == 0:
        return False
    values = graph.carried(w, _SAME_ELEMENTS)
    return any(
        index in _FACTORS.get(node.op_type, ()) for v in values for node, index in v.uses() if graph.rank(v) != 0
    )


def scaling_weights(onx: onnx.ModelProto) -> list[str]:
    """Return the initializers that scale elements: those of normalizations, and operands of Mul and Div."""
    model = graph.reload(onx)
    return [str(w.name) for w in model.graph.initializers.values() if any(_scales_elements(*use) for use in _uses(w))]


def _scales_elements(node: ir.Node, position: int) -> bool:
    return node.op_type in ("Div", "Mul") or (node.op_type.endswith("Normalization") and position == 1)


def _uses(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """Yield the nodes that compute with a value, directly or after shape changes, and its operand position."""
    values = graph.carried(value, _CARRIERS)
    carried = set(values)
    for v in values:
        for node, position in v.uses():
            if node.outputs[0] not in carried and (node.op_type, position) not in _FORM:
                yield node, position


# scalars ---------------------------------------------------------------------


def _is_scalar(w: ir.Value, uses: Uses) -> bool:
    """Whether a weight is a scalar of a formula: no axes, or one element that scales or fills the other operand."""
    if not graph.rank(w):
        return not all(_is_intercept(w, node) for node in w.consumers())
    return graph.static_shape(w) == (1,) and all(node.op_type in ("Mul", "Div", "Pow", "Where") for node, _ in uses)


def _is_intercept(w: ir.Value, node: ir.Node) -> bool:
    """Whether a node adds a scalar to a product that has no intercept yet and no other use.

    The 1 in 1 - p is not an intercept.
    """
    if node.op_type not in ("Add", "Sub") or (node.op_type == "Sub" and node.inputs[0] is w):
        return False
    others = [x for x in node.inputs if x is not None and x is not w]
    return len(others) == 1 and _is_bare_product(others[0])


def _is_bare_product(value: ir.Value | None) -> bool:
    while value is not None and len(value.uses()) < 2 and (node := value.producer()) is not None:
        if node.op_type not in (*_CARRIERS, "ReduceSum"):
            return _multiplies_alone(node)
        value = node.inputs[0]
    return False


def _multiplies_alone(node: ir.Node) -> bool:
    """Whether a node multiplies by a weight without adding anything."""
    with_weight = any(_comes_from_initializer(x) for x in node.inputs)
    if node.op_type == "Mul":  # x / 6 + 1 / 2, y * deviation + mean: scaling by a scalar often comes with adding one
        return with_weight and all(graph.static_shape(x) not in ((), (1,)) for x in node.inputs if x is not None)
    return with_weight and (
        node.op_type in ("MatMul", "Einsum")
        or (node.op_type in ("Gemm", "Conv", "ConvTranspose") and (len(node.inputs) < 3 or node.inputs[2] is None))
    )


def _comes_from_initializer(value: ir.Value | None) -> bool:
    while value is not None and not value.is_initializer():
        node = value.producer()
        value = node.inputs[0] if node is not None and node.op_type in _CARRIERS else None
    return value is not None


# statistics of a normalization in single operators ---------------------------------


def _is_statistic(w: ir.Value, uses: Uses) -> bool:
    if any(_normalizes_images(*use) for use in uses):  # learned shifts and scales have other names
        return _RESULT.match(str(w.name)) is not None or is_called_statistic(str(w.name))
    return all(_is_variance(node) or _is_mean(node, position) for node, position in uses) or any(
        _is_of_folded_normalization(node) for node, _ in uses
    )


def _is_variance(node: ir.Node) -> bool:
    """Whether a node is the start of sqrt(variance + eps)."""
    if node.op_type == "Add" and _has_scalar(node):
        return any(_is_root(user) for user in node.outputs[0].consumers())
    return _is_root(node)


def _has_scalar(node: ir.Node) -> bool:
    return any((c := graph.constant(x)) is not None and c.size == 1 for x in node.inputs)


def _is_root(node: ir.Node) -> bool:
    power = graph.constant(node.inputs[1]) if node.op_type == "Pow" else None
    return node.op_type == "Sqrt" or (power is not None and power.size == 1 and abs(power.item()) == 0.5)


def _is_mean(node: ir.Node, position: int) -> bool:
    """Whether a node is x - mean, or mean * scale, in a normalization.

    The forms are (x - mean) / sqrt(variance + eps), x * scale - mean * scale, x * scale + (-mean) * scale,
    (x - mean) / scale, and (x - mean) * scale + shift.
    """
    if node.op_type == "Mul":
        return _is_mean_by_scale(node, position)
    if node.op_type == "Neg":
        users = node.outputs[0].uses()
        return bool(users) and all(u.node.op_type == "Mul" and _is_fixed_root(u.node.inputs[1 - u.idx]) for u in users)
    if node.op_type == "Sub" and position == 1:
        centered, m = node.outputs[0], node.inputs[1]
        return any(_scales(user, place, centered) or _scales_and_shifts(user, m) for user, place in centered.uses())
    if node.op_type == "Div" and position == 1:
        moved = graph.made_by(node.inputs[0], "Sub")
        return moved is not None and _comes_from_initializer(moved.inputs[1])
    return False


def _scales(user: ir.Node, position: int, centered: ir.Value) -> bool:
    """Whether a node divides x - mean by sqrt(variance + eps), or multiplies by its inverse, or divides by a scale."""
    if user.op_type in ("Div", "Mul") and any(_is_fixed_root(x) for x in user.inputs if x is not centered):
        return True
    return user.op_type == "Div" and position == 0 and _comes_from_initializer(user.inputs[1])


def _scales_and_shifts(node: ir.Node, m: ir.Value | None) -> bool:
    """Whether a node is the product in (x - m) s + b, all of one shape: b makes m redundant, so m is no parameter."""
    sums = [user for user in node.outputs[0].consumers() if user.op_type == "Add"]
    others = [x for user in [node, *sums] for x in user.inputs if _comes_from_initializer(x)]
    shapes = {graph.static_shape(x) for x in [m, *others] if x is not None}
    return node.op_type == "Mul" and len(others) > 1 and len(shapes) == 1 and shapes.isdisjoint({None, (), (1,)})


def _is_mean_by_scale(node: ir.Node, position: int) -> bool:
    """Whether a node multiplies by 1 / sqrt(variance + eps) and the product is subtracted."""
    others = (x for i, x in enumerate(node.inputs) if i != position)
    taken = any(n.op_type == "Neg" or (n.op_type == "Sub" and place == 1) for n, place in node.outputs[0].uses())
    return taken and any(_is_fixed_root(x) for x in others)


def _is_fixed_root(value: ir.Value | None) -> bool:
    """Whether a value is computed only from initializers, with a square root."""
    above = graph.ancestors([] if value is None else [value])
    nodes = {node for v in above if (node := v.producer()) is not None}
    leaves = (v for v in above if v.producer() is None)
    return any(map(_is_root, nodes)) and all(v.is_initializer() for v in leaves)


def _normalizes_images(node: ir.Node, position: int) -> bool:
    """Whether a node subtracts one value per channel from an input (n, c, h, w), or divides the input by it.

    After a convolution, such values are learned shifts and scales of channels.
    """
    x, w = node.inputs[0], node.inputs[position]
    if node.op_type not in ("Sub", "Div") or position != 1 or not _is_one_a_channel(w):
        return False
    while (moved := graph.made_by(x, "Cast", "Div", "Mul", "Sub")) is not None:  # scaled by a constant
        x = moved.inputs[0]
    return x is not None and x.is_graph_input() and not x.is_initializer()


def _is_one_a_channel(value: ir.Value | None) -> bool:
    shape = None if value is None else graph.static_shape(value)
    return shape is not None and len(shape) > 2 and shape[-2:] == (1, 1) and math.prod(shape) == shape[-3] > 1


def _is_of_folded_normalization(node: ir.Node) -> bool:
    """Whether a node belongs to conv(x) s + b with s and b per channel, computed by PyTorch's exporter.

    The exporter folds FrozenBatchNorm2d to this form: s = weight / sqrt(running_var + eps), b = bias - running_mean s.
    Learned s and b that a module reshapes, `x * w.view(1, -1, 1, 1) + b.view(1, -1, 1, 1)`, give the same form. The
    file does not distinguish the two cases, so the more common one is assumed.
    """
    users = node.outputs[0].consumers()
    addition = users[0] if node.op_type == "Mul" and len(users) == 1 else node
    product = next((m for x in addition.inputs if (m := graph.made_by(x, "Mul")) is not None), None)
    if addition.op_type != "Add" or product is None:
        return False
    operands = [x for x in (*product.inputs, *addition.inputs) if x is not None]
    computed = [x for x in operands if x.is_initializer() and _is_folded(str(x.name)) and _is_one_a_channel(x)]
    convolved = [x for x in product.inputs if graph.made_by(x, "Conv") is not None and _is_bare_product(x)]
    return len(computed) == 2 and len(convolved) == 1


def _is_folded(name: str) -> bool:
    """Whether torch.onnx.export(dynamo=False) computed an initializer and named it after its reader."""
    return name.startswith("onnx::") and is_computed(name)


# masks, tables and grids, by their values ---------------------------------------


def _is_fixed(w: ir.Value, uses: Uses) -> bool:
    """Whether the values of an initializer are a mask, a table of sines or its frequencies, or a grid."""
    array = graph.constant(w) if not w.is_graph_input() else None
    if array is None or not array.size or not uses:
        return False
    array = (array if array.size > _LARGE else np.asarray(array, np.float64)).squeeze()
    if not np.isfinite(array).all():
        return not _is_only_factor(uses)
    if array.size < 2:
        return False
    return any(all(is_used_so(node) for node, _ in uses) and are_so(array) for is_used_so, are_so in _FIXED)


def _has_fixed_values(array: np.ndarray) -> bool:
    """Whether an array has the values of a mask, a table or a grid, whatever its uses."""
    array = np.asarray(array).squeeze()
    return array.size > 1 and any(are_so(array) for _, are_so in _FIXED)


def _masks(node: ir.Node) -> bool:
    return node.op_type in ("Mul", "Where") or _is_one_minus(node)


def _masks_softmax(node: ir.Node) -> bool:
    return node.op_type in ("Add", "Sub", "Where", "Attention") and _leads_to_softmax(node)


def _turns(node: ir.Node) -> bool:
    return (node.op_type in _FACTORS or node.op_type == "Mul") and _is_turned(node.outputs[0])


def _is_one_minus(node: ir.Node) -> bool:
    ones = graph.constant(node.inputs[0]) if node.op_type == "Sub" else None
    return ones is not None and bool((ones == 1).all())


def _leads_to_softmax(node: ir.Node) -> bool:
    """Whether every use of a node leads to a Softmax through shape changes and sums only."""
    return node.op_type == "Attention" or _leads_only_to({"Softmax", "LogSoftmax"}, node.outputs[0], _BETWEEN)


def _leads_only_to(ends: Collection[str], value: ir.Value, between: Collection[str]) -> bool:
    """Whether every use of a value leads to one of the operators `ends` through operators `between` only."""
    values = graph.carried(value, {*between}.difference(ends), any_operand=True)
    known = {*ends, *between}
    return all(
        v.consumers() and all(node.op_type in known and not node.domain for node in v.consumers()) for v in values
    )


def _is_turned(value: ir.Value) -> bool:
    """Whether only the sine and the cosine of a value are used."""
    return _leads_only_to({"Sin", "Cos"}, value, _CARRIERS)


#: Tests for the uses of values that are not learned, all of which must be of the kind, and for the values, which take
#: longer.
_FIXED: tuple[tuple[Callable[[ir.Node], bool], Callable[[np.ndarray], bool]], ...] = (
    (_masks, are_0_and_1),
    (_masks_softmax, are_0_or_far),
    (_turns, are_frequencies),
    (lambda node: node.op_type == "Sub", are_centers),
    # the parameters of two probabilities, to which trees add 1, lie on a circle as well
    (lambda node: node.op_type != "Add" or not _has_scalar(node), are_sines),
    (lambda node: True, are_coordinates),
    (_masks_softmax, are_slopes),
)

#: The criteria of a buffer, of which one suffices.
_CRITERIA: tuple[Callable[[ir.Value, Uses], bool], ...] = (
    _is_called_buffer,
    _is_statistic,
    _is_setting,
    _is_start,
    _is_marked,
    _has_missing_values,
    _is_scalar,
    _is_fixed,
)
