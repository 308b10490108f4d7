"""The builder: what it infers itself is what onnx infers."""

import itertools

import onnx
import onnx_ir as ir
import pytest
from onnxscript import GraphBuilder

from onnxtrain import graph
from onnxtrain.errors import ModelError

SHAPES = [(), (1,), (3,), ("n",), ("n", 1), ("n", 3), (1, 3), ("m", 3), (2, "n", 3), (None, 3), None]


def inferred(kind, op_type, shapes, dtypes=None):
    """Return the type and the shape that a builder gives the result of an operator."""
    dtypes = dtypes or [ir.DataType.FLOAT] * len(shapes)
    operands = [
        ir.Value(name=f"x{i}", type=ir.TensorType(dtype), shape=None if shape is None else ir.Shape(shape))
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    model = ir.Model(ir.Graph(operands, [], nodes=[], opset_imports={"": graph.OPSET}), ir_version=graph.IR_VERSION)
    y = getattr(kind(model.graph).op, op_type)(*operands)
    return y.dtype, None if y.shape is None else [d if isinstance(d, int) else d.value for d in y.shape]


@pytest.mark.parametrize("op_type", ["Add", "Sum", "Div"])
def test_shapes_of_two_operands_are_those_of_onnx(op_type):
    compared = 0
    for shapes in itertools.product(SHAPES, repeat=2):
        try:
            found = inferred(graph.Builder, op_type, shapes)
        except ModelError:
            assert inferred(GraphBuilder, op_type, shapes)[0] is None
            continue
        assert found == inferred(GraphBuilder, op_type, shapes), shapes
        compared += 1
    assert compared > 80


@pytest.mark.parametrize("op_type", ["Neg", "Exp", "Sum"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_of_one_operand_are_those_of_onnx(op_type, shape):
    assert inferred(graph.Builder, op_type, [shape]) == inferred(GraphBuilder, op_type, [shape])


@pytest.mark.parametrize("shapes", [[(2, 3), (2, 4)], [("n", 3), (5, 4)]], ids=str)
def test_shapes_that_do_not_fit_are_refused(shapes):
    with pytest.raises(ModelError, match="Mul"):
        inferred(graph.Builder, "Mul", shapes)


def test_operands_of_two_types_are_refused():
    with pytest.raises(ModelError, match="inconsistent type"):
        inferred(graph.Builder, "Add", [(3,), (3,)], [ir.DataType.FLOAT, ir.DataType.DOUBLE])


def test_what_was_written_is_told_from_what_was_not():
    onx = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n, 3] x) => (float z) { y = Neg(x) z = Exp(y) }'
    )
    assert not graph.is_written(onx)
    written = graph.save(graph.load(onx))
    assert graph.is_written(written)
    unnamed = onnx.ModelProto.FromString(written.SerializeToString())
    unnamed.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    assert not graph.is_written(unnamed)
    written.ir_version = 9
    assert not graph.is_written(written)
