"""One walk over a graph: each node that has a rewriting gives way to it."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes

from onnxtrain import graph
from onnxtrain.graph import ModelLike
from onnxtrain.rewrite.constants import lift_constants
from onnxtrain.rewrite.registry import REWRITES, key


def rewrite_model(onx: ModelLike) -> onnx.ModelProto:
    """Return a model whose numbers are initializers between ai.onnx operators.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path
        Stays as it is.

    Returns
    -------
    onnx.ModelProto
        Same inputs and outputs, same results. LinearRegressor, Scaler, SVMClassifier, ...
        became MatMul, Add, Mul, ...: what was an attribute is now an initializer, and so
        are the real numbers of Constant nodes, under their names, where they have axes.
        Of tree ensembles the leaf values became an initializer, the splits stay;
        encoders of categories stay.

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
    model = graph.load(onx)
    lift_constants(model)
    names = [str(y.name) for y in model.graph.outputs]
    _rewrite_nodes(model)
    graph.set_outputs(model, list(zip(names, model.graph.outputs, strict=True)))
    model = graph.infer_anew(model)
    passes.RemoveUnusedOpsetsPass()(model)
    return graph.save(model)


def _rewrite_nodes(model: ir.Model) -> None:
    """Replace nodes in place."""
    build = graph.builder(model)
    for node in list(model.graph):
        rule = REWRITES.get(key(node.domain, node.op_type))
        found = None if rule is None else rule(build.op, node)
        if found is None:
            if any(y.shape is None or y.dtype is None for y in node.outputs):
                build.infer(node)
            continue
        for old, new in zip(node.outputs, found if isinstance(found, tuple) else (found,), strict=True):
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        model.graph.remove(node, safe=True)
