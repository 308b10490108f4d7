"""The one home of onnx-ir and onnxscript: read a model, build on it, write it.

Models travel between modules as :class:`onnx.ModelProto` where a user may hold
them and as :class:`onnx_ir.Model` in between. :func:`load` makes a private
copy at a known opset, :class:`Builder` adds nodes to it, :func:`save` writes it
with a pinned IR version.
"""

from onnxtrain.graph.build import (
    BUFFER,
    Builder,
    Op,
    builder,
    inner_builder,
    is_taken_for_constant,
    names_in,
    put_out,
    scan,
    taken_for_constant,
    tensor,
    unique_name,
)
from onnxtrain.graph.check import as_model_error
from onnxtrain.graph.edit import cast_floats, constants_as_nodes, products_in, put_in_order, tidy
from onnxtrain.graph.flow import ancestors, captured, dependents, operands
from onnxtrain.graph.inference import infer_shapes, infer_types
from onnxtrain.graph.model_io import (
    IR_VERSION,
    ModelLike,
    infer_anew,
    initializers_as_inputs,
    is_written,
    load,
    prune,
    read,
    reload,
    save,
    set_outputs,
)
from onnxtrain.graph.normalize import inline_functions, leave_out_defaults, with_maps_of, without_maps
from onnxtrain.graph.opset import OPSET, at_opset
from onnxtrain.graph.query import (
    FLOATS,
    PRODUCTS,
    alike,
    constant,
    describe,
    find,
    find_schema,
    holds_graphs,
    is_float,
    made_by,
    rank,
    same_dimension,
    same_shape,
    scalar,
    static_shape,
)
from onnxtrain.graph.rewriting import Rewritings, Rule, rewrite_nodes

__all__ = [
    "BUFFER",
    "FLOATS",
    "IR_VERSION",
    "OPSET",
    "PRODUCTS",
    "Builder",
    "ModelLike",
    "Op",
    "Rewritings",
    "Rule",
    "alike",
    "ancestors",
    "as_model_error",
    "at_opset",
    "builder",
    "captured",
    "cast_floats",
    "constant",
    "constants_as_nodes",
    "dependents",
    "describe",
    "find",
    "find_schema",
    "holds_graphs",
    "infer_anew",
    "infer_shapes",
    "infer_types",
    "initializers_as_inputs",
    "inline_functions",
    "inner_builder",
    "is_float",
    "is_taken_for_constant",
    "is_written",
    "leave_out_defaults",
    "load",
    "made_by",
    "names_in",
    "operands",
    "products_in",
    "prune",
    "put_in_order",
    "put_out",
    "rank",
    "read",
    "reload",
    "rewrite_nodes",
    "same_dimension",
    "same_shape",
    "save",
    "scalar",
    "scan",
    "set_outputs",
    "static_shape",
    "taken_for_constant",
    "tensor",
    "tidy",
    "unique_name",
    "with_maps_of",
    "without_maps",
]
