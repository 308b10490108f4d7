r"""Low-rank factors of weight matrices: :math:`x W` becomes :math:`x W + s\,(x A)\,B`.

After merging this is :math:`x (W + s A B)`. The user's opset, nodes and names are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph

#: The first opset in which the third operand of Gemm is optional.
_GEMM_ALONE = 11

#: The products of rows by a weight, and whether each transposes the stored weight.
Products: TypeAlias = "list[tuple[ir.Node, bool]]"


class LowRank(NamedTuple):
    """The low-rank factors of one weight.

    Attributes
    ----------
    weight, a, b : str
        The names of the initializers W, A of shape (p, r) and B of shape (r, q).
    scale : float
    turned : bool
        Whether W is stored as (q, p), outputs first.
    """

    weight: str
    a: str
    b: str
    scale: float
    turned: bool


def matrices(model: ir.Model) -> dict[str, Products]:
    """Return the weights that can have low-rank factors, with the products of each.

    All uses of such a weight are as second operand of MatMul or Gemm, either all direct or all transposed.
    """
    weights = model.graph.initializers.items()
    found = {str(name): _products(model, w) for name, w in weights if graph.rank(w) == 2 and graph.is_float(w)}
    return {name: uses for name, uses in found.items() if uses and len({turned for _, turned in uses}) == 1}


def _products(model: ir.Model, weight: ir.Value) -> Products:
    """Return the products by a matrix; empty if it has any other use."""
    found: Products = []
    waiting = [(weight, False)]
    while waiting:
        value, turned = waiting.pop()
        if value.is_graph_output():
            return []
        for node, position in value.uses():
            y = node.outputs[0]
            if graph.made_by(y, "MatMul", "Gemm") is not None and position == 1 and node.graph is model.graph:
                found.append((node, turned != bool(graph.attribute(node, "transB", 0))))
            elif graph.made_by(y, "Transpose", "Identity") is not None:
                swaps = node.op_type == "Transpose" and list(graph.attribute(node, "perm", (1, 0))) == [1, 0]
                waiting.append((y, turned != swaps))
            else:
                return []
    return found


def with_factors(
    onx: onnx.ModelProto, factors: Sequence[LowRank], values: Mapping[str, np.ndarray]
) -> onnx.ModelProto | None:
    """Return a model with low-rank factors added; everything else is unchanged. Return None if this is not possible.

    It is not possible if a weight is not one of the model's matrices, if a name is already used, or before opset 11, in
    which Gemm requires a bias.

    Parameters
    ----------
    onx : onnx.ModelProto
    factors : sequence of LowRank
    values : mapping of str to ndarray
        The values of the factors, which are cast to the types of the weights.
    """
    model = ir.from_proto(onx)
    known = matrices(model)
    names = graph.names_in(model.graph)
    if (
        model.opset_imports.get("", 0) < _GEMM_ALONE
        or any(f.weight not in known or known[f.weight][0][1] != f.turned for f in factors)
        or any(name in names for f in factors for name in (f.a, f.b))
    ):
        return None
    for f in factors:
        dtype = model.graph.initializers[f.weight].dtype
        a, b = (_initializer(model, name, values[name], dtype) for name in (f.a, f.b))  # type: ignore[arg-type]
        names |= {f.a, f.b}
        for product, _ in known[f.weight]:
            _add_beside(model, product, a, b, f.scale, names)
    return graph.with_nodes_of(ir.to_proto(model), onx)


def _initializer(model: ir.Model, name: str, array: np.ndarray, dtype: ir.DataType) -> ir.Value:
    tensor = ir.tensor(np.asarray(array).astype(dtype.numpy()), dtype=dtype, name=name)
    value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(array.shape), const_value=tensor)
    model.graph.register_initializer(value)
    return value


def _add_beside(model: ir.Model, product: ir.Node, a: ir.Value, b: ir.Value, scale: float, names: set[str]) -> None:
    """Add the product by two factors to the product by their weight; the sum takes the name and place of the latter."""
    x, y = product.inputs[0], product.outputs[0]
    narrow = None if y.shape is None else [*y.shape[:-1], a.shape[1]]  # type: ignore[index]
    nodes: list[ir.Node] = []

    def made(op_type: str, operands: Sequence[ir.Value | None], shape: Any, **attributes: Any) -> ir.Value:
        node = ir.node(op_type, operands, attributes)
        (found,) = node.outputs
        found.name, found.type = graph.unique_name(f"{y.name}_low_rank", names), y.type or a.type
        found.shape = None if shape is None else ir.Shape(shape)
        nodes.append(node)
        return found

    if product.op_type == "Gemm":
        factor = scale * graph.attribute(product, "alpha", 1.0)
        thin = made("Gemm", [x, a], narrow, alpha=factor, transA=int(graph.attribute(product, "transA", 0)))
    else:
        factor = ir.tensor(np.array(scale, a.dtype.numpy()), dtype=a.dtype)  # type: ignore[union-attr]
        thin = made("Mul", [made("MatMul", [x, a], narrow), made("Constant", [], [], value=factor)], narrow)
    beside = made(product.op_type, [thin, b], y.shape)
    total = made("Add", [y, beside], y.shape)
    y.name, total.name = total.name, y.name
    ir.convenience.replace_all_uses_with(y, total, replace_graph_outputs=True)
    nodes[-1].replace_input_with(0, y)
    model.graph.insert_after(product, nodes)


def without_factors(onx: onnx.ModelProto, factors: Sequence[LowRank]) -> onnx.ModelProto:
    """Undo :func:`with_factors`: each sum is replaced by the product by the weight."""
    model = ir.from_proto(onx)
    for f in factors:
        b = model.graph.initializers[f.b]
        for beside in [node for node, _ in b.uses()]:
            ((addition, _),) = beside.outputs[0].uses()
            y, total = addition.inputs[0], addition.outputs[0]
            name = total.name
            ir.convenience.replace_all_uses_with(total, y, replace_graph_outputs=True)  # type: ignore[arg-type]
            total.name, y.name = y.name, name  # type: ignore[union-attr]
    return graph.save(model)


def merged(
    weights: Mapping[str, np.ndarray], factors: Sequence[LowRank], frozen: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the trained weights without factors; their products are added to the frozen weights."""
    own = {name for f in factors for name in (f.a, f.b)}
    found = {name: w for name, w in weights.items() if name not in own}
    return found | dict(_sums(weights, factors, frozen))


def _sums(
    weights: Mapping[str, np.ndarray], factors: Sequence[LowRank], frozen: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    for f in factors:
        w = frozen[f.weight]
        product = f.scale * (weights[f.a].astype(np.float64) @ weights[f.b].astype(np.float64))
        yield f.weight, (w + (product.T if f.turned else product)).astype(w.dtype)
