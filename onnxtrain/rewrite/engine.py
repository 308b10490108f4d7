"""The rewriting pass: each node with a registered rewriting is replaced by it."""

from __future__ import annotations

import onnx
import onnx_ir.passes.common as passes

from onnxtrain import graph
from onnxtrain.graph import ModelLike, as_model_error
from onnxtrain.rewrite.constants import lift_constants
from onnxtrain.rewrite.registry import rules_for


@as_model_error("The model cannot be rewritten")
def rewrite_model(onx: ModelLike) -> onnx.ModelProto:
    """Return a model of ai.onnx operators with its parameters as initializers.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path
        It is not changed.

    Returns
    -------
    onnx.ModelProto
        The inputs, outputs and results are the same. LinearRegressor, Scaler, SVMClassifier, ...
        become MatMul, Add, Mul, ...; their attributes become initializers. Floating-point
        Constant nodes of rank 1 or more become initializers of the same names. The leaf
        values of tree ensembles become an initializer, the splits are kept. Encoders of
        categories are kept.

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
    build = graph.builder(model)
    graph.rewrite_nodes(build.op, model.graph, rules_for, infer=build.infer)
    graph.set_outputs(model, list(zip(names, model.graph.outputs, strict=True)))
    model = graph.infer_anew(model)
    passes.RemoveUnusedOpsetsPass()(model)
    return graph.save(model)
