"""The one home of onnx-ir and onnxscript: read a model, build on it, write it.

Models travel between modules as :class:`onnx.ModelProto` where a user may hold
them and as :class:`onnx_ir.Model` in between. :func:`load` makes a private
copy at a known opset, :class:`Builder` adds nodes to it, :func:`save` writes it
with a pinned IR version.
"""

from onnxtrain.graph.bodies import inner_builder, put_out, scan
from onnxtrain.graph.build import (
    Builder,
    builder,
    is_taken_for_constant,
    names_in,
    taken_for_constant,
    tensor,
    unique_name,
)
from onnxtrain.graph.change import cast_floats, constants_as_nodes, products_in, tidy
from onnxtrain.graph.look import (
    FLOATS,
    PRODUCTS,
    constant,
    describe,
    find,
    find_schema,
    holds_graphs,
    is_float,
    rank,
    same_dimension,
    same_shape,
    static_shape,
)
from onnxtrain.graph.maps import with_maps_of, without_maps
from onnxtrain.graph.opset import OPSET, at_opset
from onnxtrain.graph.read import IR_VERSION, ModelLike, infer_anew, is_written, load, read, reload
from onnxtrain.graph.write import prune, save, set_outputs

__all__ = [
    "FLOATS",
    "IR_VERSION",
    "OPSET",
    "PRODUCTS",
    "Builder",
    "ModelLike",
    "at_opset",
    "builder",
    "cast_floats",
    "constant",
    "constants_as_nodes",
    "describe",
    "find",
    "find_schema",
    "holds_graphs",
    "infer_anew",
    "inner_builder",
    "is_float",
    "is_taken_for_constant",
    "is_written",
    "load",
    "names_in",
    "products_in",
    "prune",
    "put_out",
    "rank",
    "read",
    "reload",
    "same_dimension",
    "same_shape",
    "save",
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
