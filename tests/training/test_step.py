"""The training step: rows, rates and cheaper nodes, with the same results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxtrain.training.peephole as peephole_module
from onnxtrain import graph
from onnxtrain.graph import rewrite_nodes
from onnxtrain.optim import SGD, Adam, Adaptive, Constant, Cosine, OneCycle
from onnxtrain.runtime.session import Place
from onnxtrain.training import evaluate as evaluate_module
from onnxtrain.training import train as train_module
from onnxtrain.training.objective import Objective, rewrite_locally, weights_as_inputs
from onnxtrain.training.peephole import ON_CPU, SIGNS
from onnxtrain.training.step import build_step
from tests.devices import GPU, WEBGPU
from tests.training.steps import CPU, NAMES, OPTIMIZERS, network, state_of, train


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch_size", [1, 20, 25, 49, 50])
@pytest.mark.parametrize("gathered", [False, True])
@pytest.mark.parametrize("device", [GPU, WEBGPU], ids=lambda device: device.kind)
def test_rows_taken_as_on_a_gpu(device, gathered, batch_size, weighted):
    built, found = train(Adam(), gathered=gathered, weighted=weighted, batch_size=batch_size, device=device)
    _, expected = train(Adam(), gathered=gathered, weighted=weighted, batch_size=batch_size)
    for key, value in state_of(expected).items():
        np.testing.assert_array_equal(state_of(found)[key], value, err_msg=str(key))
    assert "Slice" not in {node.op_type for node in onnx.load_model_from_string(built.onnx).graph.node}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_in_the_graph_or_fed(name, weighted):
    _, found = train(OPTIMIZERS[name], weighted=weighted, strength=0.01)
    _, expected = train(OPTIMIZERS[name], weighted=weighted, strength=0.01, gathered=False)
    for key, value in state_of(expected).items():
        np.testing.assert_allclose(state_of(found)[key], value, rtol=1e-9, atol=1e-12, err_msg=str(key))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("schedule", [Constant(0.1), Adaptive(0.3), Cosine(0.1), OneCycle(0.1)], ids=repr)
def test_steps_looked_ahead_to_change_no_bit(schedule, weighted, monkeypatch):
    monkeypatch.setattr(train_module, "_AHEAD", 1)
    _, expected = train(Adam(), weighted=weighted, schedule=schedule, epochs=40)
    for ahead in (7, 256):  # the epoch has three steps
        monkeypatch.setattr(train_module, "_AHEAD", ahead)
        _, found = train(Adam(), weighted=weighted, schedule=schedule, epochs=40)
        assert found.plateaus == expected.plateaus
        for key, value in state_of(expected).items():
            np.testing.assert_array_equal(state_of(found)[key], value, err_msg=str(key))


def test_the_state_that_is_kept_is_a_copy():
    _, state = train(Adam(), np.float32, epochs=1)
    before = {key: value.copy() for key, value in state.weights.items()}
    train(Adam(), np.float32, epochs=2)
    for key, value in before.items():
        np.testing.assert_array_equal(state.weights[key], value)


# ------------------------------------------------------------- peephole rewritings


@pytest.mark.parametrize("name", ["momentum", "adam", "adamw"])
def test_averages_of_packed_weights_take_a_node_each(name):
    built, _ = train(OPTIMIZERS[name], epochs=1)
    averages = {wire.input for wire in built.slots.values()}
    nodes = onnx.load_model_from_string(built.onnx).graph.node
    assert {n.op_type for n in nodes if averages.intersection(n.input)} == {"Gemm"}


LINES = {
    "average": ("m = Mul(row, tenth) z = Add(m, other)", {"Gemm": 1}),
    "average, the other way round": ("m = Mul(tenth, row) z = Add(other, m)", {"Gemm": 1}),
    "step": ("m = Mul(row, rate) z = Sub(other, m)", {"Gemm": 1}),
    "step from the other end": ("m = Mul(row, rate) z = Sub(m, other)", {"Mul": 1, "Sub": 1}),
    "row times row": ("m = Mul(row, other) z = Add(other, m)", {"Mul": 1, "Add": 1}),
    "number with one axis": ("m = Mul(row, flat) z = Add(other, m)", {"Mul": 1, "Add": 1}),
    "plus a number": ("m = Mul(row, tenth) z = Add(m, rate)", {"Mul": 1, "Add": 1}),
    "quotient": ("m = Div(row, tenth) z = Add(m, other)", {"Div": 1, "Add": 1}),
    "product needed elsewhere": (
        "m = Mul(row, rate) d = Sub(other, m) z = Mul(d, m)",
        {"Mul": 2, "Gemm": 1},
    ),
    "columns": ("c = Transpose(row) m = Mul(c, rate) d = Sub(column, m) z = Transpose(d)", {"Transpose": 2, "Gemm": 1}),
    "matrix": ("c = Mul(row, column) m = Mul(c, rate) z = Add(c, m)", {"Mul": 2, "Add": 1}),
    "integers": (
        "i = Cast<to = 7>(row) j = Cast<to = 7>(other) n = Cast<to = 7>(rate) m = Mul(i, n) a = Add(j, m) "
        "z = Cast<to = 1>(a)",
        {"Cast": 4, "Mul": 1, "Add": 1},
    ),
}


def rewritten_lines(body):
    """Return a graph before and after the rewriting of rows and columns."""
    onx = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[1, 3] row, float[1, 3] other, float[3, 1] column, float[1, 1] rate, float[1] flat) => (float[k, 3] z)
        <float tenth = {{0.1}}>
        {{ {body} }}""")
    model = graph.load(onx)
    rewrite_nodes(graph.builder(model).op, model.graph, ON_CPU)
    return onx, graph.save(model)


@pytest.mark.parametrize("name", LINES)
def test_what_rows_and_columns_become(name):
    body, expected = LINES[name]
    onx, new_onx = rewritten_lines(body)
    assert counts(new_onx) == expected
    assert_equal_lines(onx, new_onx)


def assert_equal_lines(onx, new_onx):
    rng = np.random.default_rng(0)
    shapes = {"row": (1, 3), "other": (1, 3), "column": (3, 1), "rate": (1, 1), "flat": (1,)}
    feeds = {x: rng.normal(size=shape).astype(np.float32) for x, shape in shapes.items()}
    with np.errstate(over="ignore"):
        new, old = (ReferenceEvaluator(m).run(None, feeds)[0] for m in (new_onx, onx))
    np.testing.assert_allclose(new, old, rtol=1e-5)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("average", {"Gemm": 1}),
        ("step", {"Neg": 1, "Gemm": 1}),
        ("columns", {"Transpose": 2, "Mul": 1, "Sub": 1}),
    ],
)
def test_what_long_rows_and_columns_become(name, expected, monkeypatch):
    monkeypatch.setattr(peephole_module, "_SHORT", 2)
    monkeypatch.setattr(peephole_module, "_SHORT_COLUMN", 2)
    onx, new_onx = rewritten_lines(LINES[name][0])
    assert counts(new_onx) == expected
    assert_equal_lines(onx, new_onx)


MASKS = {
    "of Relu": ("y = Relu(row) c = Cast<to = 9>(y) z = Cast<to = 1>(c)", {"Relu": 1, "HardSigmoid": 1}),
    "of any sign": ("y = Neg(row) c = Cast<to = 9>(y) z = Cast<to = 1>(c)", {"Neg": 1, "Cast": 2}),
    "of whole numbers": ("y = Relu(row) c = Cast<to = 7>(y) z = Cast<to = 1>(c)", {"Relu": 1, "Cast": 2}),
    "of doubles": (
        "d = Cast<to = 11>(row) y = Relu(d) c = Cast<to = 9>(y) m = Cast<to = 11>(c) z = Cast<to = 1>(m)",
        {"Relu": 1, "Cast": 4},
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_what_a_mask_becomes(name):
    body, expected = MASKS[name]
    onx, new_onx = rewritten_lines(body.replace("z = ", "u = ") + " z = Neg(u)")
    assert counts(new_onx) == {**expected, "Neg": expected.get("Neg", 0) + 1}
    assert_equal_lines(onx, new_onx)


SIGN = {"Greater": 1, "Not": 1, "Cast": 2, "Sub": 1, "Neg": 1}
KEPT = {"Greater": 1, "Where": 1, "Neg": 1}
GRAPHS = {
    "Expand before Mul": ("y = Expand(s, shape) z = Mul(y, x)", {"Mul": 1}),
    "Expand used twice": ("y = Expand(s, shape) w = Mul(y, x) z = Add(w, y)", {"Mul": 1, "Add": 1}),
    "Expand to fewer than the other has": (
        "r = Shape(column) y = Expand(s, r) w = Neg(y) z = Mul(w, x)",
        {"Neg": 1, "Mul": 1},
    ),
    "Expand to more than the other has": ("y = Expand(s, shape) z = Mul(y, column)", {"Expand": 1, "Mul": 1}),
    "Expand whose negative is an output": ("y = Expand(s, shape) z = Neg(y)", {"Expand": 1, "Neg": 1}),
    "Expand that must stay": ("y = Expand(s, shape) z = Exp(y)", {"Expand": 1, "Exp": 1}),
    "sum of rows": (
        "y = ReduceSum<keepdims = 1>(x, rows) z = Neg(y)",
        {"Shape": 1, "ConstantOfShape": 1, "Reshape": 1, "Gemm": 1, "Neg": 1},
    ),
    "sum of rows, no axis": (
        "y = ReduceSum<keepdims = 0>(x, rows) z = Neg(y)",
        {"Shape": 1, "ConstantOfShape": 1, "Gemm": 1, "Reshape": 2, "Neg": 1},
    ),
    "an output": ("z = ReduceSum<keepdims = 1>(x, rows)", {"ReduceSum": 1}),
    "a sign": ("c = Greater(x, s) y = Where(c, one, minus) z = Neg(y)", SIGN),
    "the other sign": ("c = Greater(x, s) y = Where(c, minus, one) z = Neg(y)", SIGN),
    "two numbers": ("c = Greater(x, s) y = Where(c, two, minus) z = Neg(y)", KEPT),
    "a number": ("c = Greater(x, s) y = Where(c, x, minus) z = Neg(y)", KEPT),
    "once": ("w = Neg(x) y = Mul(w, one) z = Neg(y)", {"Neg": 2}),
    "one times": ("w = Neg(x) y = Mul(one, w) z = Neg(y)", {"Neg": 2}),
    "one times, stretched": ("y = Mul(column, x) w = Mul(y, two) z = Neg(w)", {"Mul": 2, "Neg": 1}),
    "added to a product": ("p = Gemm<transA = 1>(x, x) y = Add(square, p) z = Neg(y)", {"Gemm": 1, "Neg": 1}),
    "added to a product that adds nothing yet": (
        "p = Gemm<transA = 1, beta = 0.0>(x, x) y = Add(square, p) z = Neg(y)",
        {"Gemm": 1, "Neg": 1},
    ),
    "a product among others": (
        "p = Gemm<transA = 1, alpha = 0.5>(x, x) t = Neg(square) y = Sum(square, p, t) z = Neg(y)",
        {"Neg": 2, "Gemm": 1, "Add": 1},
    ),
    "a product used twice": (
        "p = Gemm<transA = 1>(x, x) w = Add(square, p) y = Mul(w, p) z = Neg(y)",
        {"Gemm": 1, "Add": 1, "Mul": 1, "Neg": 1},
    ),
    "a product added to itself": (
        "p = Gemm<transA = 1>(x, x) y = Add(p, p) z = Neg(y)",
        {"Gemm": 1, "Add": 1, "Neg": 1},
    ),
    "a row added to a product": (
        "p = Gemm<transA = 1>(x, x) t = Transpose(s) y = Add(p, t) z = Neg(y)",
        {"Gemm": 1, "Transpose": 1, "Add": 1, "Neg": 1},
    ),
    "a product with a sum": (
        "p = Gemm<transA = 1>(x, x, square) y = Add(p, square) z = Neg(y)",
        {"Gemm": 1, "Add": 1, "Neg": 1},
    ),
    "added to a product, an output": ("p = Gemm<transA = 1>(x, x) z = Add(square, p)", {"Gemm": 1, "Add": 1}),
    "mask of a product": (
        "r = Relu(x) c = Greater(r, zero) t = Transpose(x) p = MatMul(t, x) d = MatMul(x, p) y = Where(c, d, zero) "
        "z = Neg(y)",
        {"Relu": 1, "Transpose": 1, "MatMul": 2, "Cast": 2, "Mul": 1, "Neg": 1},
    ),
    "mask of what may be infinite": (
        "r = Relu(x) c = Greater(r, zero) d = Exp(x) y = Where(c, d, zero) z = Neg(y)",
        {"Relu": 1, "Greater": 1, "Exp": 1, "Where": 1, "Neg": 1},
    ),
    "mask of another function": (
        "r = Neg(x) c = Greater(r, zero) d = MatMul(x, square) y = Where(c, d, zero) z = Neg(y)",
        {"Neg": 2, "Greater": 1, "MatMul": 1, "Where": 1},
    ),
    "mask with more axes": (
        "r = Relu(x) c = Greater(r, zero) d = MatMul(x, square) y = Where(c, d, deep) z = Neg(y)",
        {"Relu": 1, "Greater": 1, "MatMul": 1, "Where": 1, "Neg": 1},
    ),
    "mask that is an output": (
        "r = Relu(x) c = Greater(r, zero) d = MatMul(x, square) z = Where(c, d, zero)",
        {"Relu": 1, "Greater": 1, "MatMul": 1, "Where": 1},
    ),
    "sum of columns": ("z = ReduceSum<keepdims = 1>(x, columns)", {"ReduceSum": 1}),
    "sum of all": ("z = ReduceSum<keepdims = 0>(x)", {"ReduceSum": 1}),
    "sum of squares": ("y = Mul(x, x) w = ReduceSum<keepdims = 0>(y) z = Neg(w)", {"ReduceSumSquare": 1, "Neg": 1}),
    "sum of absolute values": (
        "y = Abs(x) w = ReduceSum<keepdims = 0>(y) z = Neg(w)",
        {"ReduceL1": 1, "Neg": 1},
    ),
    "sum of products": (
        "y = Mul(x, column) w = ReduceSum<keepdims = 0>(y) z = Neg(w)",
        {"Mul": 1, "ReduceSum": 1, "Neg": 1},
    ),
    "sum of squares, by axis": (
        "y = Mul(x, x) w = ReduceSum<keepdims = 1>(y, columns) z = Neg(w)",
        {"Mul": 1, "ReduceSum": 1, "Neg": 1},
    ),
    "squares that are not summed": (
        "y = Mul(x, x) w = ReduceSum<keepdims = 1, noop_with_empty_axes = 1>(y) z = Neg(w)",
        {"Mul": 1, "ReduceSum": 1, "Neg": 1},
    ),
    "squares, an output": ("y = Mul(x, x) z = ReduceSum<keepdims = 0>(y)", {"Mul": 1, "ReduceSum": 1}),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_cheaper_graphs_give_the_same(name):
    body, expected = GRAPHS[name]
    onx = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n, 3] x, float[n, 1] column, float[1, 1] s) => (float z)
        <int64[1] rows = {{0}}, int64[1] columns = {{1}}, float one = {{1}}, float minus = {{-1}}, float two = {{2}},
         float zero = {{0}}, float[1, 1, 1] deep = {{0}}, float[3, 3] square = {{1, 0, 0, 0, 1, 0, 0, 0, 1}}>
        {{ shape = Shape(x) {body} }}""")
    assert counts(cheaper(onx), without=() if "Shape" in expected else ("Shape",)) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_signs_of_many_numbers(dtype):
    element = {np.float32: "float", np.float64: "double"}[dtype]
    onx = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g ({element}[20, 50] x, {element}[n, 50] y, {element}[999] few) => ({element} many, {element} open, {element} some)
        {{ a = Sign(x) many = Neg(a) b = Sign(y) open = Neg(b) c = Sign(few) some = Neg(c) }}""")
    for y in onx.graph.output:
        y.type.tensor_type.ClearField("shape")
    model = graph.load(onx)
    rewrite_nodes(graph.builder(model).op, model.graph, SIGNS)
    new_onx = graph.save(model)
    assert counts(new_onx) == {"Sign": 2, "Mul": 1, "Clip": 1, "Neg": 3}
    x = np.random.default_rng(0).normal(size=(20, 50)).astype(dtype)
    x[0, :6] = 0, -0.0, np.inf, -np.inf, np.finfo(dtype).tiny, -np.finfo(dtype).tiny
    with np.errstate(over="ignore"):
        found, _, _ = ReferenceEvaluator(new_onx).run(None, {"x": x, "y": x, "few": x.ravel()[:999]})
    np.testing.assert_array_equal(found, -np.sign(x))


def test_signs_of_many_numbers_inside_a_scan():
    onx = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 1000] x) => (float[2, 1000] y)
        { y = Scan<num_scan_inputs = 1, body = turn (float[1000] row) => (float[1000] z) { s = Sign(row) z = Neg(s) }>(x) }
    """)
    model = graph.load(onx)
    rewrite_locally(graph.builder(model).op, model.graph, model.graph.inputs[0], cpu_kernels=True)
    new_onx = graph.save(model)
    (scan,) = new_onx.graph.node
    body = next(a.g for a in scan.attribute if a.name == "body")
    assert sorted(node.op_type for node in body.node) == ["Clip", "Mul", "Neg"]
    x = np.random.default_rng(0).normal(size=(2, 1000)).astype(np.float32)
    with np.errstate(over="ignore"):
        (found,) = ReferenceEvaluator(new_onx).run(None, {"x": x})
    np.testing.assert_array_equal(found, -np.sign(x))


@pytest.mark.parametrize("device, has_sign", [(CPU, False), (GPU, True)])
def test_a_gpu_has_a_sign(device, has_sign, monkeypatch):
    monkeypatch.setattr(peephole_module, "_MANY", 8)
    build_step.cache.clear()
    built, _ = train(SGD(), strength=0.1, epochs=1, device=device)
    build_step.cache.clear()
    assert ("Sign" in {n.op_type for n in onnx.load_model_from_string(built.onnx).graph.node}) == has_sign


def test_a_large_matrix_is_added_by_threads(monkeypatch):
    onx = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n, 3] x, float[n, 1] column) => (float z) <float[3, 3] square = {1, 0, 0, 0, 1, 0, 0, 0, 1}>
        { p = Gemm<transA = 1>(x, x) y = Add(square, p) z = Neg(y) }""")
    assert "Add" not in counts(cheaper(onx))
    monkeypatch.setattr(peephole_module, "_SMALL", 8)
    assert "Add" in counts(cheaper(onx))


def cheaper(onx):
    """Return a model with peephole rewritings, after it was seen to give the same."""
    onx.graph.output[0].type.tensor_type.ClearField("shape")
    model = graph.load(onx)
    column = graph.find(model.graph.inputs, "column", "input")
    rewrite_locally(graph.builder(model).op, model.graph, column)
    new_onx = graph.save(model)
    rng = np.random.default_rng(0)
    feeds = {"x": (5, 3), "column": (5, 1), "s": (1, 1)}
    feeds = {k: rng.normal(size=shape).astype(np.float32) for k, shape in feeds.items()}
    old = ReferenceEvaluator(onx).run(None, feeds)[0]
    new = ReferenceEvaluator(new_onx).run(None, {i.name: feeds[i.name] for i in new_onx.graph.input})[0]
    np.testing.assert_allclose(new, old, rtol=1e-6)
    assert new.shape == old.shape
    return new_onx


def counts(onx, without=()):
    """Return how many nodes there are of each operator."""
    found = [n.op_type for n in onx.graph.node]
    return {op: found.count(op) for op in found if op not in without}


@pytest.mark.parametrize(
    "body, axes",
    {
        "scalar without axes": ("y = Mul(column, half)", 2),
        "in front": ("y = Sub(half, column)", 2),
        "scalar with one axis": ("y = Max(column, flat)", 2),
        "scalars to choose": ("c = Less(column, half) y = Where(c, half, column)", 2),
        "an input": ("u = Squeeze(s) y = Mul(column, u)", 2),
        "beside a matrix": ("y = Mul(x, half)", 0),
        "beside a vector": ("one = Constant<value_ints = [1]>() v = Squeeze(column, one) y = Mul(v, half)", 0),
    }.values(),
)
def test_scalars_beside_a_column_have_as_many_axes(body, axes):
    new_onx = cheaper(
        onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n, 3] x, float[n, 1] column, float[1, 1] s) => (float z)
        <float half = {{0.5}}, float[1] flat = {{0.5}}> {{ {body} z = Neg(y) }}""")
    )
    floats = [held for held in new_onx.graph.initializer if held.data_type == onnx.TensorProto.FLOAT]
    assert {len(held.dims) for held in floats} <= {axes}


@pytest.mark.parametrize("values, product", [("x", True), ("column", False)])
def test_the_sum_of_a_column_is_no_product(values, product):
    found = counts(
        cheaper(
            onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n, 3] x, float[n, 1] column) => (float z) <int64[1] rows = {{0}}>
        {{ e = Neg({values}) y = ReduceSum(e, rows) z = Neg(y) }}""")
        )
    )
    assert ("Gemm" in found, "ReduceSum" in found) == (product, not product)


SCATTER = 'w = ScatterElements<axis = 1, reduction = "add">'
SUM = "ReduceSum<keepdims = 1>(w, columns)"


@pytest.mark.parametrize(
    "body, stays",
    {
        "a number a row": (f"{SCATTER}(zeros, first, column) y = {SUM}", False),
        "from behind": (f"{SCATTER}(zeros, first, column) y = ReduceSum<keepdims = 1>(w, last)", False),
        "into others": (f"{SCATTER}(x, first, column) y = {SUM}", True),
        "into ones": (f"{SCATTER}(ones, first, column) y = {SUM}", True),
        "multiplied": (f"{SCATTER.replace('add', 'mul')}(zeros, first, column) y = {SUM}", True),
        "several a row": (f"{SCATTER}(zeros, places, x) y = {SUM}", True),
        "over rows": (f"{SCATTER}(zeros, first, column) y = ReduceSum<keepdims = 1>(w, rows)", True),
        "without the axis": (f"{SCATTER}(zeros, first, column) y = ReduceSum<keepdims = 0>(w, columns)", True),
    }.values(),
)
def test_sums_of_what_was_written_into_zeros(body, stays):
    found = counts(cheaper(scattered(body)))
    assert ("ScatterElements" in found) == stays


def scattered(body):
    """Return a model that writes numbers among others."""
    return onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n, 3] x, float[n, 1] column, float[1, 1] s) => (float z)
        <int64[1] rows = {{0}}, int64[1] columns = {{1}}, int64[1] last = {{-1}}>
        {{
            shape = Shape(x) zeros = ConstantOfShape(shape) ones = ConstantOfShape<value = float[1] {{1}}>(shape)
            heights = Shape(column) first = ConstantOfShape<value = int64[1] {{0}}>(heights)
            places = ConstantOfShape<value = int64[1] {{1}}>(shape) {body} z = Neg(y)
        }}""")


CONVOLUTION = """
    <ir_version: 10, opset_import: ["" : 21]>
    network (float[n, 1, 30, 30] X) => (float[n, 7840] Y)
    <float[10, 1, 3, 3] W0> { z = Conv(X, W0) Y = Flatten(z) }"""


def test_graphs_whose_types_are_not_all_known():
    # the gradient of onnxruntime-training tells the types of some values only
    bodies = ("w = Expand(s, shape) v = Neg(w) y = Mul(v, column)",)
    for body in bodies:
        model = graph.load(scattered(body))
        for value in (y for node in model.graph for y in node.outputs if node.op_type in ("Shape", "ConstantOfShape")):
            value.type = None
        before = [node.op_type for node in model.graph]
        rewrite_locally(graph.builder(model).op, model.graph, model.graph.inputs[1])
        assert [node.op_type for node in model.graph][: len(before)] == before


def test_multiplications_of_products():
    proto, _ = network(np.float32)
    dense = Objective(weights_as_inputs(proto, NAMES), "Y", "squared_error", NAMES)
    assert evaluate_module.build_row_losses(dense).multiplications == pytest.approx(3 * 4 + 4 * 2)
    proto = onnx.parser.parse_model(CONVOLUTION)
    weight = np.ones((10, 1, 3, 3), np.float32)
    del proto.graph.initializer[:]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "W0"))
    shared = Objective(weights_as_inputs(proto, ["W0"]), "Y", "squared_error", ("W0",))
    exact = 28 * 28 * weight.size
    assert exact / 3.3 < evaluate_module.build_row_losses(shared).multiplications < exact


def test_a_step_does_more_than_its_model():
    proto, _ = network(np.float32)
    objective = Objective(weights_as_inputs(proto, NAMES), "Y", "squared_error", NAMES)
    model = evaluate_module.build_row_losses(objective)
    options = {"clip_norm": None, "gathered": True, "weighted": False}
    plain, adam = (build_step(objective, solver, **options) for solver in (SGD(), Adam()))
    assert model.fixed_cost == 0
    assert plain.multiplications == adam.multiplications == 3 * model.multiplications
    assert evaluate_module.build_loss_and_gradient(objective).multiplications == 3 * model.multiplications
    assert adam.fixed_cost == 3 * plain.fixed_cost > 0  # two averages besides the weights


@pytest.mark.parametrize("refused_at", [1, 2, 3, 5])
def test_a_step_that_cannot_be_recorded_is_run_as_it_is(refused_at, monkeypatch):
    numbers = []

    class Refusing:
        """A session that runs recorded steps up to some step."""

        def __init__(self, session):
            self.io_binding, self.run_plainly = session.io_binding, session.run_with_iobinding

        def run_with_iobinding(self, binding, options):
            numbers.append(options.get_run_config_entry("gpu_graph_id"))
            if len(numbers) == refused_at:
                raise RuntimeError("operation not permitted when stream is capturing")
            self.run_plainly(binding, options)

    opened = Place.open
    monkeypatch.setattr(
        Place,
        "open",
        lambda *given, captured, thorough: Refusing(opened(*given)) if captured else opened(*given),
    )
    _, found = train(Adam(), device=GPU)
    _, expected = train(Adam())
    for key, value in state_of(expected).items():
        np.testing.assert_array_equal(state_of(found)[key], value, err_msg=str(key))
    assert len(numbers) == refused_at
    assert len(set(numbers)) == min(refused_at, 3)  # both ways through the buffers, and the smaller batch


@pytest.mark.parametrize(
    "scatter, zeros, factor, stays",
    [
        ('reduction = "add"', "zeros", "p", False),
        ('reduction = "none"', "zeros", "p", True),
        ('reduction = "add"', "ones", "p", True),
        ('reduction = "add"', "zeros", "column", True),
    ],
)
def test_the_gradient_of_scores_is_written_in_place(scatter, zeros, factor, stays):
    onx = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n, 3] x, float[n, 1] column) => (float[n, 3] z) <int64[5, 1] first = {{0, 2, 1, 0, 2}}>
        {{ u = Neg(column) p = Exp(x) shape = Shape(x) zeros = ConstantOfShape(shape) ones = Exp(zeros)
           s = ScatterElements<axis = 1, {scatter}>({zeros}, first, u) m = Mul({factor}, u) d = Sub(s, m) z = Neg(d) }}""")
    onx.graph.output[0].type.tensor_type.ClearField("shape")
    model = graph.load(onx)
    rewrite_nodes(graph.builder(model).op, model.graph, ON_CPU)
    new_onx = graph.save(model)
    assert ("Sub" in counts(new_onx)) == stays
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(5, 3)).astype(np.float32), "column": rng.normal(size=(5, 1)).astype(np.float32)}
    (found,), (expected,) = (ReferenceEvaluator(m).run(None, feeds) for m in (new_onx, onx))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "body, stays",
    {
        "a product": ("y = MatMul(x, w)", False),
        "with a bias": ("p = MatMul(x, w) y = Add(p, b)", False),
        "the bias first": ("p = MatMul(x, w) y = Add(b, p)", False),
        "with a residual": ("p = MatMul(x, w) y = Add(p, x)", True),
        "of one column with a wider bias": ("p = MatMul(x, first) y = Add(p, b)", True),
        "of two": ("t = Transpose <perm = [0, 2, 1]> (x) y = MatMul(x, t)", True),
        "no product": ("y = Exp(x)", True),
    }.values(),
)
def test_the_shape_of_scores_is_taken_without_them(body, stays):
    onx = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n, t, 2] x) => (float[n, u, v] z) <float[2, 2] w = {{1, 2, 3, 4}}, float[2] b = {{1, 2}},
        float[2, 1] first = {{1, 3}}, int64[1] all = {{-1}}>
        {{ {body} flat = Reshape(y, all) shape = Shape(y) e = Exp(flat) z = Reshape(e, shape) }}""")
    model = graph.load(onx)
    rewrite_nodes(graph.builder(model).op, model.graph, ON_CPU)
    new_onx = graph.save(model)
    (shape,) = (node for node in new_onx.graph.node if node.op_type == "Shape")
    assert (shape.input[0] == "y") == stays
    x = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
    (found,), (expected,) = (ReferenceEvaluator(m).run(None, {"x": x}) for m in (new_onx, onx))
    np.testing.assert_array_equal(found, expected)


def test_the_step_of_a_language_model_holds_three_arrays_of_its_scores():
    """The scores, their logarithms, their gradient; PyTorch holds as many."""
    onx = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        lm (int64[n, t] ids) => (float[n, t, 7] scores) <float[7, 2] table = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}>
        { h = Gather(table, ids) turned = Transpose(table) scores = MatMul(h, turned) }""")
    objective = Objective(
        weights_as_inputs(onx, ["table"]),
        "scores",
        "log",
        ("table",),
        classifies=True,
        output_is="scores",
        class_axis=2,
    )
    step = onnx.load_model_from_string(build_step(objective, SGD(), clip_norm=None, gathered=True, weighted=True).onnx)
    inferred = onnx.shape_inference.infer_shapes(step).graph.value_info
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in inferred}
    of_scores = {
        name for name, shape in shapes.items() if shape[-1:] == [7] and 0 in shape
    }  # the number of tokens is open
    made = sorted(node.op_type for node in step.graph.node if node.output[0] in of_scores)
    assert made == ["Exp", "Flatten", "LogSoftmax", "MatMul", "Mul", "Reshape", "Reshape", "ScatterElements"]
    assert not any(node.op_type == "Shape" and node.input[0] == "scores" for node in step.graph.node)
