"""The rewriting pass: weights become initializers, and nodes with a registered rewriting are replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes

from onnxtrain import graph
from onnxtrain.graph import WITHOUT_EFFECT, ModelLike, Rewritings, as_model_error, constant, is_float, unique_name
from onnxtrain.rewrite.registry import REWRITES


def rewrite_model(onx: ModelLike) -> onnx.ModelProto:
    """Return a model of ai.onnx operators with its parameters as initializers.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path
        The model; it is not changed.

    Returns
    -------
    onnx.ModelProto
        A model with the same inputs, outputs and results. LinearRegressor, Scaler, SVMClassifier and others become
        MatMul, Add, Mul and others; their attributes become initializers. Floating-point Constant nodes of rank 1 or
        more become initializers of the same names, as do the initializers inside the bodies of If, Loop and Scan. The
        leaf values of tree ensembles become an initializer. Their splits are kept, and encoders of categories as well.

    Raises
    ------
    ModelError
        The model cannot be read.

    Examples
    --------
    >>> from onnx.helper import make_graph, make_model, make_node, make_opsetid
    >>> from onnx.helper import make_tensor_value_info as info
    >>> node = make_node("Scaler", ["X"], ["Y"], domain="ai.onnx.ml", offset=[1.0, 2.0], scale=[0.5, 2.0])
    >>> graph = make_graph([node], "g", [info("X", 1, ["n", 2])], [info("Y", 1, ["n", 2])])
    >>> onx = make_model(graph, opset_imports=[make_opsetid("", 21), make_opsetid("ai.onnx.ml", 3)])
    >>> rewritten = rewrite_model(onx)
    >>> [n.op_type for n in rewritten.graph.node], [i.name for i in rewritten.graph.initializer]
    (['Sub', 'Mul'], ['offset', 'scale'])
    """
    return graph.save(rewritten(graph.load(onx)))


@as_model_error("The model cannot be rewritten")
def rewritten(model: ir.Model) -> ir.Model:
    """Return a loaded model after the rewriting, which may change it; types are inferred node by node."""
    lift_constants(model)
    declared = [(str(y.name), y.shape) for y in model.graph.outputs]
    for y in model.graph.outputs:
        if y.producer() is not None:
            y.shape = None  # inference may find more than the declared shape
    build, table = graph.builder(model), Rewritings(WITHOUT_EFFECT, {name: [rule] for name, rule in REWRITES.items()})
    given = set(model.graph.initializers)
    graph.rewrite_nodes(build.op, model.graph, table, infer=build.infer)
    _keep_scalars(model, given)
    graph.set_outputs(model, [(name, y) for (name, _), y in zip(declared, model.graph.outputs, strict=True)])
    for y, (_, shape) in zip(model.graph.outputs, declared, strict=True):
        y.shape = shape if y.shape is None else y.shape
    if not all(map(_is_typed, model.graph)):
        model = graph.infer_anew(model)
    passes.RemoveUnusedOpsetsPass()(model)
    return model


def _keep_scalars(model: ir.Model, given: Container[str]) -> None:
    """Turn, in place, the scalars of the formulas that the rewriting added into Constant nodes: they are no weights."""
    for name, value in list(model.graph.initializers.items()):
        if name not in given and value.shape is not None and not value.shape.dims and is_float(value):
            del model.graph.initializers[name]
            node = ir.node("Constant", [], {"value": value.const_value}, outputs=[value])
            model.graph.insert_before(model.graph[0], node)


def _is_typed(node: ir.Node) -> bool:
    """Whether all types and dimensions of the results of a node are known; False for a node with subgraphs."""
    results = [y for y in node.outputs if y.name]
    shapes = [y.shape for y in results if y.dtype is not None]
    known = all(shape is not None and not shape.has_unknown_dim() for shape in shapes)
    return known and len(shapes) == len(results) and not graph.holds_graphs(node)


# ---------------------------------------------------------- Constant nodes that hold weights

#: A scalar added to the output of one of these is an intercept, not part of a formula.
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"})


def lift_constants(model: ir.Model) -> None:
    """Turn, in place, floating-point Constant nodes of rank 1 or more into initializers of the same names.

    A scalar is kept as part of a formula, unless it is the intercept of a product. Constants and initializers in the
    subgraphs of If, Loop and Scan also become initializers of the main graph, because only those are trained.
    """
    counts = Counter(str(v.name) for v in graph.values_in(model.graph))
    names = set(counts)
    for value in _weights_in_bodies(model):
        del value.graph.initializers[str(value.name)]
        _register(model, value, counts, names)
    for node in list(model.graph.all_nodes()):
        array = _lifted(node)
        if array is None:
            continue
        (value,) = node.outputs
        if node.graph is not model.graph and _is_flat(value):
            continue
        lifted = ir.Value(name=value.name, type=value.type, shape=ir.Shape(array.shape))
        lifted.const_value = ir.tensor(array, dtype=value.dtype, name=value.name)
        node.graph.remove(node)  # frees the name
        ir.convenience.replace_all_uses_with(value, lifted)
        _register(model, lifted, counts, names)


def _weights_in_bodies(model: ir.Model) -> list[ir.Value]:
    """Return the floating-point initializers of subgraphs."""
    found = [value for body in model.graph.subgraphs() for value in body.initializers.values()]
    return [v for v in found if is_float(v) and not v.is_graph_input() and not v.is_graph_output() and not _is_flat(v)]


def _is_flat(value: ir.Value) -> bool:
    """Whether a value is read only as the region or the scales of Resize, which have no derivative.

    Otherwise it would be treated as a weight of the node whose body reads it.
    """
    uses = value.uses()
    return bool(uses) and all(node.op_type == "Resize" and position in (1, 2) for node, position in uses)


def _lifted(node: ir.Node) -> np.ndarray | None:
    """Return the array of a Constant node that may be a weight."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    (value,) = node.outputs
    array = constant(value)
    if array is None or not is_float(value) or value.is_graph_output() or not array.ndim:
        return None
    if array.size == 1 and not _is_intercept(value):
        return None
    return array


def _register(model: ir.Model, value: ir.Value, counts: Mapping[str, int], names: set[str]) -> None:
    """Add an initializer to the main graph, renamed if several values have its name."""
    if counts[str(value.name)] > 1:
        value.name = unique_name(str(value.name), names)
    model.graph.register_initializer(value)


#: Operators that reshape, cast or repeat a single element.
_CARRIERS = frozenset({"Cast", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze"}) | {
    *("Transpose", "Unsqueeze")
}


def _is_intercept(value: ir.Value) -> bool:
    """Whether a node adds a value, perhaps reshaped, to a product."""
    return any(_joins_product(v, node) for v in graph.carried(value, _CARRIERS) for node in v.consumers())


def _joins_product(value: ir.Value, node: ir.Node) -> bool:
    if node.op_type in _PRODUCTS:
        return True
    others = [x.producer() for x in node.inputs if x is not None and x is not value]
    return node.op_type == "Add" and any(made is not None and made.op_type in _PRODUCTS for made in others)
