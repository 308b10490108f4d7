"""The builder: its own shape inference agrees with onnx's."""

import itertools

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnxscript import GraphBuilder

from onnxtrain import add_loss_output, graph, onnx_derivative
from onnxtrain.errors import ModelError
from onnxtrain.runtime.session import run

SHAPES = [(), (1,), (3,), ("n",), ("n", 1), ("n", 3), (1, 3), ("m", 3), (2, "n", 3), (None, 3), None]


def inferred(kind, op_type, shapes, dtypes=None, constants=(), **attributes):
    """Return the type and the shape that a builder gives the result of an operator."""
    dtypes = dtypes or [ir.DataType.FLOAT] * len(shapes)
    operands = [
        ir.Value(name=f"x{i}", type=ir.TensorType(dtype), shape=None if shape is None else ir.Shape(shape))
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    model = ir.Model(ir.Graph(operands, [], nodes=[], opset_imports={"": graph.OPSET}), ir_version=graph.IR_VERSION)
    op = kind(model.graph).op
    more = [
        op.initializer(ir.tensor(list(numbers), dtype=ir.DataType.INT64, name=f"numbers{i}"))
        for i, numbers in enumerate(constants)
    ]
    y = getattr(op, op_type)(*operands, *more, **attributes)
    ys = [y] if isinstance(y, ir.Value) else y
    if any(y.shape is None for y in ys):
        return ys[0].dtype, None
    return ys[0].dtype, [[d if isinstance(d, int) else d.value for d in y.shape] for y in ys]


def as_onnx(op_type, shapes, dtypes=None, constants=(), **attributes):
    """Compare what our builder infers with what onnx does; return whether it did so without onnx."""
    given = op_type, shapes, dtypes, constants
    try:
        found = inferred(graph.Builder, *given, **attributes)
    except ModelError:
        assert inferred(GraphBuilder, *given, **attributes)[0] is None
        return False
    assert found == inferred(GraphBuilder, *given, **attributes), (shapes, constants, attributes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphBuilder, "_infer_shapes", lambda self, node: None)
        return inferred(graph.Builder, *given, **attributes) == found and found[1] is not None


@pytest.mark.parametrize("op_type", ["Add", "Sum", "Div", "Max", "Equal", "Greater", "LessOrEqual"])
def test_shapes_of_two_operands_are_those_of_onnx(op_type):
    assert sum(as_onnx(op_type, shapes) for shapes in itertools.product(SHAPES, repeat=2)) > 60


@pytest.mark.parametrize("op_type", ["Neg", "Exp", "Sum"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_of_one_operand_are_those_of_onnx(op_type, shape):
    assert as_onnx(op_type, [shape]) == (shape is not None)


def test_choices():
    types = [ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.FLOAT]
    some = [(), (3,), ("n", 1), ("n", 3), ("m", 3), None]
    assert sum(as_onnx("Where", shapes, types) for shapes in itertools.product(some, repeat=3)) > 60
    assert not as_onnx("Where", [("n", 3)] * 3)  # the condition is no bool


@pytest.mark.parametrize("axis", [-3, -2, 0, 1, 3])
def test_softmax(axis):
    found = [as_onnx("LogSoftmax", [shape], axis=axis) for shape in SHAPES]
    assert any(found) == (axis < 3)


def test_shapes_of_shapes():
    assert sum(as_onnx("Shape", [shape]) for shape in SHAPES) == len(SHAPES) - 1
    assert not as_onnx("Shape", [("n", 3)], start=1)


def test_clips():
    assert as_onnx("Clip", [("n", 3), (), ()])
    assert not as_onnx("Clip", [None, (), ()])


def test_numbers_taken_and_put_by_place():
    types = [ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.FLOAT]
    for shapes in itertools.product(SHAPES, repeat=2):
        as_onnx("GatherElements", shapes, types[:2], axis=0)
        as_onnx("ScatterElements", [*shapes, shapes[1]], types, axis=0)
    assert as_onnx("GatherElements", [("n", 3), ("n", 1)], types[:2], axis=1)
    assert as_onnx("ScatterElements", [("n", 3), ("n", 1), ("n", 1)], types, axis=1)


@pytest.mark.parametrize("to", [ir.DataType.BOOL, ir.DataType.DOUBLE, ir.DataType.INT64])
def test_casts(to):
    assert sum(as_onnx("Cast", [shape], to=to) for shape in SHAPES) == len(SHAPES) - 1


MATRICES = [("n", 3), (3, "n"), (4, 3), (3, 4), ("n", "n"), (None, 3), (3, None), (2, 3, 3), (3,), None]


def test_products():
    assert sum(as_onnx("MatMul", shapes) for shapes in itertools.product(MATRICES, repeat=2)) == 14


@pytest.mark.parametrize("c", [[], [(1, 4)]], ids=["", "c"])
@pytest.mark.parametrize("turned", list(itertools.product((0, 1), repeat=2)), ids=str)
def test_general_products(turned, c):
    flags = dict(zip(("transA", "transB"), turned, strict=True))
    pairs = itertools.product([s for s in MATRICES if s is not None and len(s) == 2], repeat=2)
    assert sum(as_onnx("Gemm", [*pair, *c], **flags) for pair in pairs) > 10


@pytest.mark.parametrize("axis", [-4, -2, -1, 0, 1, 3])
def test_gathers(axis):
    types = [ir.DataType.FLOAT, ir.DataType.INT64]
    indices = [(), ("k",), (2,), (2, "k"), (None,), None]
    found = [as_onnx("Gather", pair, types, axis=axis) for pair in itertools.product(SHAPES, indices)]
    assert any(found) == (-4 < axis < 3)


@pytest.mark.parametrize("target", [(3,), (2, 6), (12,), (-1, 3), (0, 3), (1, 1, 12)], ids=str)
def test_shapes_that_are_numbers(target):
    found = [as_onnx("Reshape", [shape], constants=[target]) for shape in [(3, 4), ("n", 3), (3,), (None, 2), None]]
    assert any(found) == (0 not in target)
    if -1 in target:
        assert found == [True, False, True, False, False]  # 12 and 3 numbers, of the others it is not known how many


@pytest.mark.parametrize("shape, length", [(("n",), "n"), (("n", 1), "n"), ((1, "n"), "n"), (("n", 3), None)], ids=str)
def test_a_row_or_column_as_a_vector(shape, length):
    assert inferred(graph.Builder, "Reshape", [shape], constants=[(-1,)])[1] == [[length]]


@pytest.mark.parametrize("target", [(3,), (2, 3), (4, 1), (1, 1, 1), (0, 3)], ids=str)
def test_shapes_that_are_stretched(target):
    found = [as_onnx("Expand", [shape], constants=[target]) for shape in [(), (1,), (1, 3), ("n", 3), (5,), None]]
    assert any(found) == (0 not in target)


@pytest.mark.parametrize("like", ["n", 2])
def test_shapes_taken_from_another(like):
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([like, 3]))
    one = ir.Value(name="one", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, 1]))
    model = ir.Model(ir.Graph([x, one], [], nodes=[], opset_imports={"": graph.OPSET}), ir_version=graph.IR_VERSION)
    op = graph.builder(model).op
    zeros = op.ConstantOfShape(op.Shape(x), value=ir.tensor([0.0], dtype=ir.DataType.DOUBLE))
    assert op.Expand(one, op.Shape(x)).shape == zeros.shape == x.shape
    assert zeros.dtype == ir.DataType.DOUBLE
    assert op.Expand(one, op.Shape(x, start=1)).shape != x.shape


@pytest.mark.parametrize("size", [(3,), (2, 3), ()], ids=str)
def test_filled(size):
    assert as_onnx("ConstantOfShape", [], constants=[size])
    assert not as_onnx("ConstantOfShape", [(2,)], [ir.DataType.INT64])


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
def test_put_together(axis):
    some = [(2, 3), ("n", 3), (5, 3), (2, 4), (None, 3), (3,), None]
    found = [as_onnx("Concat", pair, axis=axis) for pair in itertools.product(some, repeat=2)]
    assert any(found) == (axis in (-1, 0, 1))
    assert as_onnx("Concat", [("n", 3), ("n", 4), ("n", 5)], axis=1)


def test_pieces_of_vectors():
    bounds = {"shapes": [("n",), (1,), (1,)], "dtypes": [ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.INT64]}
    assert as_onnx("Slice", **bounds)
    assert not as_onnx("Slice", [("n",)], constants=[(0,), (2,)])
    assert not as_onnx("Slice", [("n", 3), (1,), (1,)], bounds["dtypes"])


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
@pytest.mark.parametrize("sizes", [(4,), (1, 3), (2, 1, 1), (2, 3)], ids=str)
def test_taken_apart(axis, sizes):
    found = [
        as_onnx("Split", [shape], constants=[sizes], axis=axis, _outputs=len(sizes))
        for shape in [(4,), ("n", 4), (4, 4), (3, "n"), (4, None), None]
    ]
    assert any(found) == (axis in (-1, 0, 1) and sum(sizes) == 4)
    assert not as_onnx("Split", [(4, 4)], axis=0, num_outputs=2, _outputs=2)


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceL1", "ReduceSumSquare"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [None, (), (0,), (1,), (-1,), (0, 1), (0, -2), (5,)], ids=str)
def test_sums(axes, keepdims, op_type):
    constants = [] if axes is None else [axes]
    found = [as_onnx(op_type, [shape], constants=constants, keepdims=keepdims) for shape in SHAPES]
    assert any(found) == (axes not in [(), (5,)])


def test_a_sum_that_may_be_none():
    assert as_onnx("ReduceSum", [("n", 3)], noop_with_empty_axes=1) is False


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


ORDERS = {
    "in order": "y = Neg(x) z = Exp(y)",
    "upside down": "z = Exp(y) y = Neg(x)",
    "read from inside": """z = If (go) <then_branch = a () => (float[3] p) { p = Exp(y) },
        else_branch = b () => (float[3] q) { q = Identity(y) }> y = Neg(x)""",
}


@pytest.mark.parametrize("body", ORDERS.values(), ids=ORDERS)
def test_nodes_stand_behind_what_they_read(body):
    onx = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[3] x, bool go) => (float[3] z) {{ {body} }}'
    )
    written = graph.save(ir.from_proto(onx))
    assert [node.output[0] for node in written.graph.node] == ["y", "z"]


def test_bodies_in_bodies_deeper_than_python_calls():
    onx = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N] X, bool c) => (float[N] Y) { Y = Neg(X) }'
    )
    inner = onx.graph
    for number in range(1100):
        node = inner.node.add(op_type="If", name=str(number), input=["c"])
        for branch in ("then_branch", "else_branch"):
            body = node.attribute.add(name=branch, type=onnx.AttributeProto.GRAPH).g
            body.node.add(op_type="Neg", name=f"{branch} of {number}")
        inner = node.attribute[0].g
    names = [node.name for node in graph.nodes_in(onx.graph.node)]
    assert names[:4] == ["", "0", "then_branch of 0", "1"]
    assert names[-3:] == ["else_branch of 2", "else_branch of 1", "else_branch of 0"]
    assert len(names) == 1 + 3 * 1100
    for call in (onnx_derivative, add_loss_output):
        with pytest.raises(ModelError, match="cannot be read"):
            call(onx)


def test_an_axis_that_was_reshaped_is_a_constant_for_inference():
    """As torch.onnx.export(dynamo=True, optimize=False) writes the axis of a maximum, with the default of allowzero."""
    code = """<ir_version: 10, opset_import: ["" : 21]> g (float[n, 2, 3] X) => (float Y) {
        one = Constant<value_int = 1>() shape = Constant<value_ints = [-1]>()
        axis = Reshape<allowzero = 0>(one, shape) M = ReduceMax<keepdims = 0>(X, axis) Y = Tanh(M) }"""
    model = graph.load(onnx.parser.parse_model(code))
    found = next(node.outputs[0] for node in model.graph if node.op_type == "ReduceMax")
    assert graph.rank(found) == 2


@pytest.mark.parametrize(
    "nodes",
    [
        "s = Shape(x) y = ConstantOfShape(s)",
        "s = Constant <value_int = 3> () y = HannWindow(s)",
        "s = Constant <value_int = 3> () y = HammingWindow <output_datatype = 1> (s)",
    ],
)
def test_values_that_are_float32_by_default_are_cast(nodes):
    onx = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[2, 3] x) => (float[2, 3] z) {{ {nodes} z = Add(x, y) }}'
    )
    model = graph.load(onx)
    graph.cast_floats(model, ir.DataType.DOUBLE)
    x = np.arange(6.0).reshape(2, 3)
    (found,) = run(graph.save(model), {"x": x})
    (expected,) = run(onx, {"x": x.astype(np.float32)})
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, atol=1e-6)
