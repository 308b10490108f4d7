"""Fused operators of onnxruntime's optimizers, replaced by operators of ai.onnx.

``onnxruntime.transformers.optimizer`` writes Attention, SkipLayerNormalization, BiasGelu and others; a session that
saves its optimized model writes FusedMatMul, FusedConv and others. onnx infers no shapes after them, and they have no
derivatives. Operators of ai.onnx have both. Weights keep their names, so that a trained model can be written back with
its fused operators. A node in an unsupported form is kept. In this module, (n, t) are rows and positions, and h is the
number of heads of width d.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain.graph.build import BUFFER, OF_FEW_BITS, Op, builder, inner_builder, tensor
from onnxtrain.graph.query import (
    attribute,
    attributes,
    constant,
    holds_graphs,
    made_by,
    operator_name,
    rank,
    same_dimension,
)
from onnxtrain.graph.rewriting import Rewritings

_DOMAIN = "com.microsoft"

#: The replacements, by ``com.microsoft:name``.
FUSED = Rewritings()

#: The result of a fused normalization, followed by its mean, variance and sum.
_Normalized = tuple[ir.Value, ...]


def spell_out_fused(model: ir.Model) -> bool:
    """Replace fused operators by operators of ai.onnx, in place; return whether any was in a supported form."""
    fused = FUSED.op_types
    parts = [
        part
        for part in (model.graph, *model.graph.subgraphs())
        if any(operator_name(node.op_type, node.domain) in fused for node in part)
    ]
    op = builder(model).op
    replaced = [_spell_out(op if part is model.graph else inner_builder(op, part), part) for part in parts]
    return any(replaced)


def _spell_out(op: Op, part: ir.Graph) -> bool:
    """Replace the fused operators of a graph in order, in place, since a form is recognised by the shapes before it."""
    replaced = False
    for node in list(part):
        results = FUSED.apply(op, node) if _are_typed(node.inputs) else ()
        if not results:
            _infer(op, node)
            continue
        replaced = True
        for old, new in zip(node.outputs, results, strict=False):
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        part.remove(node, safe=True)
    return replaced


def _infer(op: Op, node: ir.Node) -> None:
    """Infer the types and shapes of the results of a node if they are unknown and can be inferred."""
    if holds_graphs(node) or not onnx.defs.has(node.op_type, node.domain):  # a branch may contain fused operators
        return
    if _are_typed(node.inputs) and any(y.dtype is None or y.shape is None for y in node.outputs):
        op.builder.infer(node)


def _are_typed(values: Iterable[ir.Value | None]) -> bool:
    """Whether the types of all values are known; results of third-party operators may have none."""
    return all(x is None or x.dtype is not None for x in values)


def _fused(*op_types: str) -> Callable[..., Any]:
    return FUSED.rule(*(f"{_DOMAIN}:{op_type}" for op_type in op_types))


def _operands(node: ir.Node, n: int) -> list[ir.Value | None]:
    """Return `n` operands, None for omitted ones."""
    return [*node.inputs, *[None] * n][:n]


def _sum(op: Op, *terms: ir.Value | None) -> ir.Value:
    """Return the sum of the terms that are not None."""
    first, *others = [x for x in terms if x is not None]
    for x in others:
        first = op.Add(first, x)
    return first


# ---------------------------------------------------------------- products


@_fused("FusedMatMul", "TransposeMatMul")
def fused_matmul(op, node):
    """Return alpha op(a) op(b); an operand with a transposed batch has its rows on the first axis."""
    orders = [_order(node, x, side) for x, side in zip(node.inputs, "AB", strict=True)]
    if None in orders:
        return None
    a, b = (op.Transpose(x, perm=axes) if axes else x for x, axes in zip(node.inputs, orders, strict=True))
    alpha = attribute(node, "alpha", 1.0)
    return op.MatMul(a, b) if alpha == 1 else op.Mul(op.MatMul(a, b), alpha)


def _order(node: ir.Node, x: ir.Value | None, side: str) -> list[int] | None:
    """Return the axis order in which an operand is multiplied, empty for its own order; None if unknown."""
    batch, matrix = (attribute(node, f"{name}{side}", 0) for name in ("transBatch", "trans"))
    n = None if x is None else rank(x)
    if not (batch or matrix) or n is None:
        return None if batch or matrix else []
    axes = [*range(1, n - 1), 0, n - 1] if batch else list(range(n))
    if matrix:
        axes[-2:] = axes[:-3:-1]
    return axes


@_fused("FusedGemm")
def fused_gemm(op, node):
    y = op.Gemm(*node.inputs, **attributes(node, "alpha", "beta", "transA", "transB"))
    given = attributes(node, "activation_alpha", "activation_beta", "activation_gamma")
    parameters = {name.removeprefix("activation_"): value for name, value in given.items()}
    return getattr(op, attribute(node, "activation", "Identity"))(y, **parameters)


#: The attributes of a convolution.
_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")

#: The attributes of activations, in the order in which a convolution lists them.
_PARAMETERS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}


@_fused("FusedConv")
def fused_conv(op, node):
    x, w, bias, added = _operands(node, 4)
    y = _sum(op, op.Conv(x, w, bias, **attributes(node, *_WINDOW)), added)
    activation, given = attribute(node, "activation", "Identity"), attribute(node, "activation_params", ())
    if activation == "Clip":
        return op.Clip(y, *given)
    return getattr(op, activation)(y, **dict(zip(_PARAMETERS.get(activation, ()), given, strict=True)))


# --------------------------------------------------------------- activations


@_fused("Gelu", "BiasGelu")
def gelu(op, node):
    return op.Gelu(_sum(op, *node.inputs))


@_fused("FastGelu")
def fast_gelu(op, node):
    return op.Gelu(_sum(op, *node.inputs), approximate="tanh")


@_fused("QuickGelu")
def quick_gelu(op, node):
    (x,) = node.inputs
    return op.Mul(x, op.Sigmoid(op.Mul(x, attribute(node, "alpha", 1.702))))


# ------------------------------------------------------------ normalizations


@_fused("SkipLayerNormalization")
def skip_layer_normalization(op, node):
    x, skip, gamma, beta, bias = _operands(node, 5)
    return _layer_normalization(op, _sum(op, x, skip, bias), gamma, beta, attribute(node, "epsilon", 1e-12))


def _layer_normalization(
    op: Op, total: ir.Value, gamma: ir.Value | None, beta: ir.Value | None, epsilon: float
) -> _Normalized:
    operands = [total, gamma] if beta is None else [total, gamma, beta]
    return (*op.LayerNormalization(*operands, axis=-1, epsilon=epsilon, _outputs=3), total)


@_fused("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(op, node):
    x, skip, gamma, bias = _operands(node, 4)
    total = _sum(op, x, skip, bias)
    y, r = _root_mean_square(op, node, total, gamma, 1e-12)
    return y, r, r, total


@_fused("SimplifiedLayerNormalization")
def simplified_layer_normalization(op, node):
    x, gamma = node.inputs
    if attribute(node, "axis", -1) >= 0 and rank(x) is None:
        return None
    return _root_mean_square(op, node, x, gamma, 1e-5)


def _root_mean_square(
    op: Op, node: ir.Node, x: ir.Value, gamma: ir.Value | None, epsilon: float
) -> tuple[ir.Value, ir.Value]:
    first, dtype = attribute(node, "axis", -1), x.dtype
    axes = list(range(first, 0 if first < 0 else rank(x)))
    x = op.Cast(x, to=ir.DataType.FLOAT) if dtype == ir.DataType.FLOAT16 else x  # float16 has neither 1e-12 nor 300²
    mean = op.ReduceMean(op.Mul(x, x), axes, keepdims=1)
    r = op.Reciprocal(op.Sqrt(op.Add(mean, attribute(node, "epsilon", epsilon))))
    y = op.Mul(x, r)
    return op.Mul(op.Cast(y, to=dtype) if dtype == ir.DataType.FLOAT16 else y, gamma), r


@_fused("EmbedLayerNormalization")
def embed_layer_normalization(op, node):
    """Return the normalized sum of three embeddings, the number of unmasked tokens of each row, and the sum."""
    ids, segments, words, positions, kinds, gamma, beta, mask, places = _operands(node, 9)
    places = _range(op, _length(op, ids, 1)) if places is None else places
    kind = None if segments is None else op.Gather(kinds, segments)
    total = _sum(op, op.Gather(words, ids), op.Gather(positions, places), kind)
    y, *_ = _layer_normalization(op, total, gamma, beta, attribute(node, "epsilon", 1e-12))
    shown = op.Sub(ids, ids) if mask is None else mask
    return y, op.Cast(op.ReduceSum(shown, [1], keepdims=0), to=ir.DataType.INT32), total


# ----------------------------------------------------------------- attention


def _integer(op: Op, n: int) -> ir.Value:
    return op.Constant(value_int=n)


def _length(op: Op, x: ir.Value | None, axis: int) -> ir.Value:
    return op.Squeeze(op.Shape(x, start=axis, end=axis + 1), [0])


def _range(op: Op, n: ir.Value) -> ir.Value:
    return op.Range(_integer(op, 0), n, _integer(op, 1))


def _width(x: ir.Value | None) -> int | None:
    """Return the length of the last axis, or None if unknown."""
    last = x.shape[-1] if x is not None and x.shape is not None and len(x.shape) else None
    return last if isinstance(last, int) else None


def _heads(op: Op, x: ir.Value, h: int, d: int = -1) -> ir.Value:
    """Return (n, h, t, d) of (n, t, h * d)."""
    width = _width(x)
    if width is not None:  # Reshape cannot infer -1 if there are no rows
        h, d = (width // d, d) if h < 0 else (h, width // h)
    return op.Transpose(op.Reshape(x, [0, 0, h, d]), perm=[0, 2, 1, 3])


def _joined(op: Op, x: ir.Value) -> ir.Value:
    """Return (n, t, h * d) of (n, h, t, d)."""
    h, d = x.shape[1], x.shape[3]
    width = h * d if isinstance(h, int) and isinstance(d, int) else -1
    return op.Reshape(op.Transpose(x, perm=[0, 2, 1, 3]), [0, 0, width])


@_fused("Attention")
def attention(op, node):
    """Return softmax(q k' / sqrt(d) + masks) v, with q, k, v from one product, and the past and new keys and values."""
    x, w, bias, mask, past, added = _operands(node, 6)
    sizes = attribute(node, "qkv_hidden_sizes") or _thirds(_width(w))
    if sizes is None or attribute(node, "do_rotary", 0) or _is_unknown_mask(mask, x) or any(node.inputs[6:]):
        return None
    parts = op.Split(_sum(op, op.MatMul(x, w), bias), list(sizes), axis=-1, _outputs=3)
    q, k, v = (_heads(op, part, attribute(node, "num_heads")) for part in parts)
    if past is not None:  # (2, n, h, t, d)
        k, v = (op.Concat(op.Gather(past, _integer(op, i), axis=0), new, axis=2) for i, new in enumerate((k, v)))
    y = _joined(op, _attended(op, node, (q, k, v), _causal(op, node, q, k), mask, added))
    return y if len(node.outputs) < 2 else (y, op.Concat(op.Unsqueeze(k, [0]), op.Unsqueeze(v, [0]), axis=0))


@_fused("MultiHeadAttention")
def multi_head_attention(op, node):
    """Return the attention of projected queries, keys and values, and the past and new keys and values."""
    q, k, v, bias, mask, added, past_k, past_v = _operands(node, 8)
    if k is None or v is None or any(node.inputs[8:]) or len(node.outputs) > 3 or _is_unknown_mask(mask, q):
        return None
    if rank(k) not in (3, 4) or (attribute(node, "unidirectional", 0) and not _are_as_long(q, k)):
        return None
    biases = [None] * 3 if bias is None else op.Split(bias, _widths(bias, v), axis=0, _outputs=3)
    q, k, v = (
        x if rank(x) == 4 else _heads(op, _sum(op, x, b), attribute(node, "num_heads"))
        for x, b in zip((q, k, v), biases, strict=True)
    )
    k, v = _with_past(op, past_k, k), _with_past(op, past_v, v)
    return _joined(op, _attended(op, node, (q, k, v), _causal(op, node, q, k), mask, added)), k, v


def _thirds(width: int | None) -> list[int] | None:
    return None if width is None else [width // 3] * 3


def _widths(bias: ir.Value, v: ir.Value) -> list[int]:
    """Return the widths of queries, keys and values in their common bias."""
    total = _width(bias) or 0
    last = (_width(v) if rank(v) == 3 else None) or total // 3
    return [(total - last) // 2, (total - last) // 2, last]


def _with_past(op: Op, past: ir.Value | None, x: ir.Value) -> ir.Value:
    return x if past is None else op.Concat(past, x, axis=2)


def _are_as_long(q: ir.Value, k: ir.Value) -> bool:
    """Whether two values (n, t, h * d) are known to have the same number of positions."""
    return rank(q) == rank(k) == 3 and same_dimension(q.shape[1], k.shape[1])


def _is_unknown_mask(mask: ir.Value | None, x: ir.Value) -> bool:
    """Whether a mask has none of the forms (n,), (n, t), (n, q, t); kernels also take (2n,) and (3n + 2,)."""
    if mask is None or rank(mask) in (2, 3):
        return False
    return rank(mask) != 1 or rank(x) is None or not same_dimension(mask.shape[0], x.shape[0])


def _kept(op: Op, mask: ir.Value, k: ir.Value) -> ir.Value:
    """Return which keys a mask keeps, from lengths (n,) or from 0 and 1."""
    mask = op.Cast(mask, to=ir.DataType.INT64)
    if rank(mask) == 1:
        return op.Less(_range(op, _length(op, k, 2)), op.Unsqueeze(mask, [1, 2, 3]))
    return op.Greater(op.Unsqueeze(mask, [1, 2] if rank(mask) == 2 else [1]), _integer(op, 0))


def _causal(op: Op, node: ir.Node, q: ir.Value, k: ir.Value) -> list[ir.Value]:
    """Return the mask (q, t) of the keys that a query may attend to; empty if it may attend to all."""
    return [_is_past(op, q, k)] if attribute(node, "unidirectional", 0) else []


def _is_past(op: Op, q: ir.Value, k: ir.Value) -> ir.Value:
    """Return which keys (q, t) are not after a query; the queries are the last positions."""
    return op.LessOrEqual(_range(op, _length(op, k, 2)), op.Unsqueeze(_places(op, q, k), [1]))


def _places(op: Op, q: ir.Value, k: ir.Value) -> ir.Value:
    """Return the positions of the queries among the keys."""
    queries = _length(op, q, 2)
    return op.Add(_range(op, queries), op.Sub(_length(op, k, 2), queries))


def _attended(
    op: Op,
    node: ir.Node,
    qkv: tuple[ir.Value, ir.Value, ir.Value],
    seen: list[ir.Value],
    mask: ir.Value | None = None,
    added: ir.Value | None = None,
) -> ir.Value:
    """Return softmax(q k' scale + added + mask) v; padding gets a low score, an unseen key is excluded."""
    q, k, v = qkv
    scores = op.Mul(op.MatMul(q, op.Transpose(k, perm=[0, 1, 3, 2])), _scale(op, node, q))
    cap = attribute(node, "softcap", 0.0)
    scores = op.Mul(op.Tanh(op.Mul(scores, 1 / cap)), cap) if cap else scores
    low = attribute(node, "mask_filter_value", -10000.0)
    padding = None if mask is None else op.Mul(op.Cast(op.Not(_kept(op, mask, k)), to=scores.dtype), low)
    scores = _sum(op, scores, added, padding)
    for keys in seen:
        scores = op.Where(keys, scores, -math.inf)
    return op.MatMul(op.Softmax(scores, axis=-1), v)


def _scale(op: Op, node: ir.Node, q: ir.Value) -> Any:
    given, d = attribute(node, "scale", 0.0), _width(q)
    if given or d:
        return given or 1 / math.sqrt(d)
    return op.Reciprocal(op.Sqrt(op.CastLike(op.Shape(q, start=3), q)))


@_fused("GroupQueryAttention")
def group_query_attention(op, node):
    """Return causal attention of h query heads, in groups that share a head of keys and values."""
    q, k, v, past_k, past_v, last, _total, cos, sin = _operands(node, 9)
    h, groups = attribute(node, "num_heads"), attribute(node, "kv_num_heads")
    packed = None if k is not None else _width(q)
    if any(node.inputs[9:]) or attribute(node, "smooth_softmax", 0) or (k is None and packed is None):
        return None
    if not _is_empty(past_k) or attribute(node, "local_window_size", -1) == 0:
        return None
    if k is None:
        d = packed // (h + 2 * groups)
        q, k, v = op.Split(q, [h * d, groups * d, groups * d], axis=-1, _outputs=3)
    q, k, v = _heads(op, q, h), _heads(op, k, groups), _heads(op, v, groups)
    if attribute(node, "do_rotary", 0):
        places = _places(op, k, _with_past(op, past_k, k))
        q, k = (_turned(op, node, x, *_angles(op, (cos, sin), places)) for x in (q, k))
    k, v = _with_past(op, past_k, k), _with_past(op, past_v, v)
    of_head = op.Constant(value_ints=[i * groups // h for i in range(h)])
    repeated = [x if groups == h else op.Gather(x, of_head, axis=1) for x in (k, v)]
    seen, is_empty = _in_window(op, node, q, k, last)
    y = _attended(op, node, (q, *repeated), seen)
    return _joined(op, y if is_empty is None else op.Where(is_empty, op.Sub(y, y), y)), k, v


def _is_empty(past: ir.Value | None) -> bool:
    """Whether there are no past keys; otherwise the lengths decide which past keys count."""
    return past is None or (rank(past) == 4 and past.shape[2] == 0)


def _in_window(
    op: Op, node: ir.Node, q: ir.Value, k: ir.Value, last: ir.Value
) -> tuple[list[ir.Value], ir.Value | None]:
    """Return which keys (n, 1, q, t) are neither after a query, nor padding, nor too far before the query.

    Also return which queries (n, 1, q, 1) have no such key; these attend to all keys that are not padding, because the
    Softmax of an empty set is NaN.
    """
    end = op.Reshape(op.Cast(last, to=ir.DataType.INT64), [-1, 1, 1, 1])
    places, keys = op.Unsqueeze(_places(op, q, k), [1]), _range(op, _length(op, k, 2))
    seen, window = op.LessOrEqual(keys, op.Min(places, end)), attribute(node, "local_window_size", -1)
    if window < 0:
        return [seen], None
    before = op.Sub(places, _integer(op, window))
    is_empty = op.GreaterOrEqual(before, end)
    return [seen, op.Or(op.Greater(keys, before), is_empty)], is_empty


@_fused("RotaryEmbedding")
def rotary_embedding(op, node):
    """Rotate pairs of entries of (n, t, h * d) or (n, h, t, d) by the angles of their positions."""
    x, places, cos, sin = node.inputs
    half, h = _width(cos), attribute(node, "num_heads", 0)
    if rank(x) not in (3, 4) or rank(places) is None or half is None or attribute(node, "is_packed_batching", 0):
        return None
    heads = x if rank(x) == 4 else _heads(op, x, h or -1, -1 if h else 2 * half)
    if rank(places) == 1:  # the position of the first
        places = op.Add(places, _range(op, _length(op, heads, 2)))
    angles = _angles(op, (cos, sin), places)
    turned = _turned(op, node, heads, *(a if rank(places) == 1 else op.Unsqueeze(a, [1]) for a in angles))
    return turned if rank(x) == 4 else _joined(op, turned)


def _angles(op: Op, tables: tuple[ir.Value, ir.Value], places: ir.Value) -> list[ir.Value]:
    """Return the rows of tables of cosines and sines, which no model learns."""
    for table in tables:
        table.metadata_props[BUFFER] = "angles"
    return [op.Gather(table, places) for table in tables]


def _turned(op: Op, node: ir.Node, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
    """Return (n, h, t, d) whose first entries are rotated in pairs: one of each half, or neighbors."""
    half = _width(cos) or 0
    last = [-1]
    if attribute(node, "interleaved", 0) or attribute(node, "rotary_interleaved", 0):
        a, b = (op.Slice(x, [i], [2 * half], last, [2]) for i in (0, 1))
        pairs = op.Concat(*(op.Unsqueeze(part, last) for part in _rotated(op, a, b, cos, sin)), axis=-1)
        turned = op.Reshape(pairs, [0, 0, 0, 2 * half])
    else:
        a, b = op.Slice(x, [0], [half], last), op.Slice(x, [half], [2 * half], last)
        turned = op.Concat(*_rotated(op, a, b, cos, sin), axis=-1)
    return turned if _width(x) == 2 * half else op.Concat(turned, op.Slice(x, [2 * half], [2**31], last), axis=-1)


def _rotated(op: Op, a: ir.Value, b: ir.Value, cos: ir.Value, sin: ir.Value) -> tuple[ir.Value, ir.Value]:
    return op.Sub(op.Mul(a, cos), op.Mul(b, sin)), op.Add(op.Mul(b, cos), op.Mul(a, sin))


# ------------------------------------------------------ weights of a few bits


@FUSED.rule("MatMulInteger", "ConvInteger")
def product_of_integers(op, node):
    """Return a product with dynamically quantized rows in floats, so that gradients pass straight through the rounding.

    The gradient through the integers would only reach the scale of the rows, which does not lead to a lower loss.
    """
    rounded = made_by(node.inputs[0], "DynamicQuantizeLinear")
    _, w, zero, shift = _operands(node, 4)
    users = node.outputs[0].consumers()
    are_floats = users and all(made_by(user.outputs[0], "Cast") is not None for user in users)
    if rounded is None or zero is not rounded.outputs[2] or not are_floats:
        return None
    (x,), scale = rounded.inputs, rounded.outputs[1]
    steps = op.Div(op.DequantizeLinear(op.QuantizeLinear(x, scale, zero), scale, zero), scale)
    one = op.initializer(tensor(1.0, ir.DataType.FLOAT, "one"))
    kernel = op.DequantizeLinear(op.Cast(w, to=ir.DataType.INT32), one)  # scale 1: the integers themselves
    kernel = kernel if shift is None else op.Sub(kernel, op.Cast(shift, to=ir.DataType.FLOAT))
    return getattr(op, node.op_type.removesuffix("Integer"))(steps, kernel, **attributes(node, *_WINDOW))


@_fused("MatMulNBits")
def matmul_of_few_bits(op, node):
    """Return the product by a matrix of 4-bit or 8-bit integers with a scale for each block, as a buffer."""
    a, b, scales, zeros, order, bias = _operands(node, 6)
    q, s, z = constant(b), constant(scales), constant(zeros)
    bits = attribute(node, "bits", 4)
    if order is not None or bits not in (4, 8) or q is None or s is None or (z is None) is not (zeros is None):
        return None
    w = _dequantized(q, s, z, bits)[:, : attribute(node, "K")]
    matrix = op.initializer(ir.tensor(np.ascontiguousarray(w.T).astype(scales.dtype.numpy())), f"{b.name}_dequantized")
    matrix.metadata_props[BUFFER] = OF_FEW_BITS
    return _sum(op, op.MatMul(a, matrix), bias)


def _dequantized(b: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, bits: int) -> np.ndarray:
    """Return scale * (q - zero) as rows; b holds (outputs, blocks, bytes) with the lower bits first."""
    n, blocks, _ = b.shape
    q = _unpacked(b, bits).reshape(n, blocks, -1)
    if zeros is None:
        zero = np.full((n, blocks), 2 ** (bits - 1), np.float32)
    elif zeros.dtype == np.uint8:
        zero = _unpacked(zeros.reshape(n, -1), bits)[:, :blocks]
    else:
        zero = zeros.reshape(n, blocks)
    w = (q.astype(np.float32) - zero.astype(np.float32)[..., None]) * scales.reshape(n, blocks, 1).astype(np.float32)
    return w.reshape(n, -1)


def _unpacked(q: np.ndarray, bits: int) -> np.ndarray:
    """Return the unpacked 4-bit integers along the last axis."""
    return q if bits == 8 else np.stack([q & 15, q >> 4], axis=-1).reshape(*q.shape[:-1], -1)
