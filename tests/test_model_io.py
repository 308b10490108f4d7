"""Reading a model: its content, and the files that it may refer to."""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_function, parse_graph, parse_model
from onnx.reference import ReferenceEvaluator

from onnxtrain import OrtGradientRegressor, add_loss_output, load, onnx_derivative, save, trainable_weights
from onnxtrain import graph as graphs
from onnxtrain.errors import DataError, ModelError, OnnxTrainError
from onnxtrain.grad_helper import DerivativeOptions
from onnxtrain.loss_helper import get_train_initializer
from onnxtrain.ortgradient import OrtGradientForwardBackward
from onnxtrain.testing import check_gradient

X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
Y = X.sum(axis=1)
SECRET = np.full((4, 1), 7.25, np.float32)


# ---------------------------------------------------- external data, anywhere

LINE = """
    <ir_version: 10, opset_import: ["" : 21, "f" : 1]>
    line (float[N,4] X) => (float[N,1] Y) <float[4,1] W = {1, 2, 3, 4}> { Y = f.act(X, W) }
    <domain: "f", opset_import: ["" : 21]> act (x, w) => (y) { y = MatMul(x, w) }"""


def elsewhere(location, dims=(4, 1), name="W", **entries):
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def constant(tensor):
    node = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(SECRET))
    node.attribute[0].t.CopyFrom(tensor)
    return node


def in_the_graph(onx, tensor):
    onx.graph.initializer[0].CopyFrom(tensor)


def in_a_constant(onx, tensor):
    del onx.graph.initializer[:]
    onx.graph.node.insert(0, constant(tensor))
    onx.graph.node[1].input[1] = "w"


def in_a_function(onx, tensor):
    function = onx.functions[0]
    function.input[:], onx.graph.node[0].input[:] = ["x"], ["X"]
    function.node.insert(0, constant(tensor))


def in_a_body_in_a_function(onx, tensor):
    body = parse_graph("body () => (float[4,1] b) { b = Identity(w) }")
    body.node.insert(0, constant(tensor))
    in_a_function(onx, numpy_helper.from_array(SECRET))
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["c"], ["w"], then_branch=body, else_branch=body),
    ]
    onx.functions[0].node[0].CopyFrom(nodes[0])
    onx.functions[0].node.insert(1, nodes[1])


def in_a_default_of_a_function(onx, tensor):
    in_a_function(onx, numpy_helper.from_array(SECRET))
    attribute = onx.functions[0].node[0].attribute[0]
    default = onx.functions[0].attribute_proto.add(name="kept", type=onnx.AttributeProto.TENSOR)
    default.t.CopyFrom(tensor)
    attribute.ClearField("t")
    attribute.ref_attr_name = "kept"


#: What runs wherever the tensor stands.
USED = [in_the_graph, in_a_constant, in_a_function, in_a_body_in_a_function, in_a_default_of_a_function]


def in_a_sparse_initializer(onx, tensor):
    onx.graph.sparse_initializer.add(dims=[4, 1]).values.CopyFrom(tensor)


def in_sparse_indices(onx, tensor):
    onx.graph.node[0].attribute.add(name="s", type=onnx.AttributeProto.SPARSE_TENSORS).sparse_tensors.add()
    onx.graph.node[0].attribute[0].sparse_tensors[0].indices.CopyFrom(tensor)


def in_a_list_of_tensors(onx, tensor):
    onx.graph.node[0].attribute.add(name="t", type=onnx.AttributeProto.TENSORS).tensors.append(tensor)


def in_a_list_of_graphs(onx, tensor):
    inner = onx.graph.node[0].attribute.add(name="g", type=onnx.AttributeProto.GRAPHS).graphs.add()
    inner.initializer.append(tensor)


def in_the_state_of_training(onx, tensor):
    onx.training_info.add().initialization.initializer.append(tensor)


PLACES = [
    *USED,
    in_a_sparse_initializer,
    in_sparse_indices,
    in_a_list_of_tensors,
    in_a_list_of_graphs,
    in_the_state_of_training,
]

by_name = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)


def line(place, tensor):
    onx = parse_model(LINE)
    place(onx, tensor)
    return onx


@pytest.fixture
def folder(tmp_path):
    """A folder for models, and beside it what they must not read."""
    (tmp_path / "secret.bin").write_bytes(SECRET.tobytes())
    folder = tmp_path / "models"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "w.bin").write_bytes(SECRET.tobytes())
    (folder / "linked.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "outside").symlink_to(tmp_path)
    return folder


#: Every public function that takes a model.
WAYS_IN = {
    "fit": lambda onx: OrtGradientRegressor(onx, max_iter=1).fit(X, Y),
    "trainable_weights": trainable_weights,
    "onnx_derivative": onnx_derivative,
    "add_loss_output": add_loss_output,
    "get_train_initializer": get_train_initializer,
    "OrtGradientForwardBackward": OrtGradientForwardBackward,
    "check_gradient": lambda onx: check_gradient(onx, {"X": X}),
}


@by_name
@pytest.mark.parametrize("as_bytes", [True, False], ids=["bytes", "ModelProto"])
def test_a_model_without_a_folder_reads_no_file(place, as_bytes, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for location in (str(folder.parent / "secret.bin"), "../secret.bin", "below/w.bin"):
        onx = line(place, elsewhere(location))
        for call in WAYS_IN.values():
            with pytest.raises(ModelError, match="are in another file, '.*'.*Pass the path"):
                call(onx.SerializeToString() if as_bytes else onx)


OUTSIDE = {
    "absolute": lambda folder: str(folder.parent / "secret.bin"),
    "above": lambda folder: "../secret.bin",
    "above and back": lambda folder: "below/../../models/below/w.bin",
    "above on Windows": lambda folder: "below\\..\\..\\secret.bin",
    "a drive": lambda folder: "C:secret.bin",
    "a share": lambda folder: "\\\\host\\secret.bin",
    "a link": lambda folder: "linked.bin",
    "a linked folder": lambda folder: "outside/secret.bin",
    "a zero": lambda folder: "below/w.bin\0",
}


@by_name
def test_a_model_in_a_folder_reads_no_file_outside(place, folder):
    path = folder / "line.onnx"
    for where in OUTSIDE.values():
        onnx.save(line(place, elsewhere(where(folder))), path)
        with pytest.raises(ModelError, match="outside the folder of the model"):
            graphs.read(path)


@pytest.mark.parametrize("call", WAYS_IN.values(), ids=WAYS_IN)
def test_each_way_in_refuses_a_file_outside(call, folder):
    path = folder / "line.onnx"
    onnx.save(line(in_a_function, elsewhere("../secret.bin")), path)
    with pytest.raises(ModelError, match="outside the folder of the model"):
        call(path)


@pytest.mark.parametrize("place", USED, ids=lambda place: place.__name__)
def test_files_in_the_folder_are_read_wherever_the_tensor_stands(place, folder):
    path = folder / "line.onnx"
    onnx.save(line(place, elsewhere("below/w.bin", offset=0, length=16)), path)
    (y,) = ReferenceEvaluator(graphs.save(graphs.load(path))).run(None, {"X": X})
    np.testing.assert_allclose(y, X @ SECRET, rtol=1e-5)
    derived = onnx_derivative(path, weights=[])
    (dx,) = ReferenceEvaluator(derived).run(None, {"X": X, "Y_grad": np.ones((12, 1), np.float32)})
    np.testing.assert_allclose(dx, np.tile(SECRET.T, (12, 1)))
    assert TensorProto.EXTERNAL not in [t.data_location for t in derived.graph.initializer]


WRONG_FILES = {
    "missing": (elsewhere("below/none.bin"), "there is no 'below/none.bin'"),
    "a folder": (elsewhere("below"), "there is no 'below'"),
    "no name": (TensorProto(name="W", data_type=1, dims=[4, 1], data_location=1), "there is no '?'"),
    "longer than said": (elsewhere("below/w.bin", length=20), "needs 16 bytes, but 'below/w.bin' has 16"),
    "too short": (elsewhere("below/w.bin", dims=(5, 1)), "needs 20 bytes, but 'below/w.bin' has 16"),
    "an offset": (elsewhere("below/w.bin", offset=4), "needs 16 bytes, but 'below/w.bin' has 12"),
    "a negative offset": (elsewhere("below/w.bin", offset=-4, length=16), "offset"),
    "a text for a length": (elsewhere("below/w.bin", length="long"), "invalid literal"),
    "terabytes": (elsewhere("below/w.bin", dims=(2**40, 2**10)), "take .* GB"),
}


@pytest.mark.parametrize("tensor, words", WRONG_FILES.values(), ids=WRONG_FILES)
def test_files_that_do_not_fit(tensor, words, folder):
    path = folder / "line.onnx"
    onnx.save(line(in_a_function, tensor), path)
    with pytest.raises(ModelError, match=words.replace("?", r"\?")):
        graphs.read(path)


def test_load_looks_for_no_file(folder, monkeypatch):
    monkeypatch.chdir(folder / "below")
    from onnxtrain.estimators import file_format

    save(OrtGradientRegressor(parse_model(LINE), max_iter=1).fit(X, Y), "kept.onnx")
    model, header, tensors = file_format.read("kept.onnx")
    del header["format"], header["written_by"]
    for where in ("model", "state"):
        held = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        (changed.graph.initializer[0] if where == "model" else held[0]).CopyFrom(elsewhere("w.bin"))
        file_format.write("changed.onnx", changed, header, held)
        with pytest.raises(ModelError, match="'w.bin'"):
            load("changed.onnx")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    path = tmp_path / "line.onnx"
    path.write_bytes(b"")
    path.chmod(0)
    with pytest.raises(ModelError, match="cannot be read: Permission denied"):
        graphs.read(path)


# ---------------------------------------------------------- damaged contents


def tensor(**fields):
    return lambda onx: onx.graph.initializer[0].CopyFrom(TensorProto(name="W", **fields))


def first(path, name, value):
    """Set a field of something in the model: `path` leads to it."""

    def change(onx):
        place = onx
        for part in path.split("."):
            place = place[int(part)] if part.isdigit() else getattr(place, part)
        field = getattr(place, name)
        field.extend(value) if hasattr(field, "extend") else setattr(place, name, value)

    return change


def recursive(onx):
    onx.functions.append(
        parse_function('<domain: "f", opset_import: ["" : 21, "f" : 1]> g (x, w) => (y) { y = f.act(x, w) }')
    )
    onx.functions[0].node[0].CopyFrom(helper.make_node("g", ["x", "w"], ["y"], domain="f"))
    onx.functions[0].opset_import.add(domain="f", version=1)


def bomb(onx):
    for i in range(40):
        text = f"{{ a = f.b{i}(x, w) y = f.b{i}(a, w) }}" if i else "{ a = MatMul(x, w) y = Relu(a) }"
        onx.functions.append(
            parse_function(f'<domain: "f", opset_import: ["" : 21, "f" : 1]> b{i + 1} (x, w) => (y) {text}')
        )
    onx.graph.node[0].op_type = "b40"


def not_utf8(onx):
    """Return the bytes of a model: protobuf takes no such text."""
    onx.graph.node[0].op_type = "ABCD"
    return onx.SerializeToString().replace(b"ABCD", b"A\xff\xfeD")


DAMAGED = {
    "a negative dimension": (tensor(data_type=1, dims=[-4, -1], raw_data=bytes(16)), r"negative dimension: \[-4, -1\]"),
    "too few bytes": (tensor(data_type=1, dims=[4, 1], raw_data=bytes(12)), "must hold 16 bytes, but holds 12"),
    "too many bytes": (tensor(data_type=1, dims=[4, 1], raw_data=bytes(20)), "must hold 16 bytes, but holds 20"),
    "too few elements": (tensor(data_type=1, dims=[4, 1], float_data=[1]), "must hold 4 elements, but holds 1"),
    "data of two types": (tensor(data_type=11, dims=[1], double_data=[1], float_data=[1]), "'W' of type DOUBLE holds data of another type"),
    "terabytes": (tensor(data_type=1, dims=[2**40, 1], raw_data=bytes(16)), "must hold 4398046511104 bytes"),
    "terabytes of nothing": (tensor(data_type=1, dims=[0, 2**62], raw_data=b""), "too large dimensions"),
    "a segment": (lambda onx: setattr(onx.graph.initializer[0].segment, "begin", 0), "'W' is a segment of another tensor"),
    "raw texts": (tensor(data_type=8, dims=[1], raw_data=b"ab"), "must hold 0 bytes"),
    "no element type": (tensor(dims=[4, 1], raw_data=bytes(16)), "unknown element type 0"),
    "an unknown element type": (tensor(data_type=99, dims=[4, 1], raw_data=bytes(16)), "unknown element type 99"),
    "an input without type": (lambda onx: onx.graph.input[0].ClearField("type"), "input 'X' has no element type"),
    "an input of type 0": (first("graph.input.0.type.tensor_type", "elem_type", 0), "input 'X' has no element type"),
    "an output of type 77": (first("graph.output.0.type.tensor_type", "elem_type", 77), "unknown element type 77"),
    "an initializer twice": (lambda onx: onx.graph.initializer.append(onx.graph.initializer[0]), "2 values named 'W'"),
    "an initializer without name": (lambda onx: onx.graph.initializer.append(numpy_helper.from_array(SECRET)), "has no name"),
    "a sparse tensor of negative size": (lambda onx: onx.graph.sparse_initializer.add(dims=[-1]), r"invalid dimensions: \[-1\]"),
    "an input twice": (lambda onx: onx.graph.input.append(onx.graph.input[0]), "2 values named 'X'"),
    "a result twice": (lambda onx: onx.graph.node.append(onx.graph.node[0]), "2 values named 'Y'"),
    "a function twice": (lambda onx: onx.functions.append(onx.functions[0]), "two functions with the same name"),
    "a function that calls itself": (recursive, "function 'act' of the model calls itself"),
    "calls of calls of calls": (bomb, "create more than 10,000,000 nodes"),
    "a name of bytes": (not_utf8, "not valid UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("damage, words", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("call", WAYS_IN.values(), ids=WAYS_IN)
def test_damaged_contents(call, damage, words):
    onx = parse_model(LINE)
    changed = damage(onx)
    with pytest.raises(ModelError, match=words):
        call(changed if isinstance(changed, bytes) else onx)


NODES = {
    "a value that nothing computes": ("Y = MatMul(nowhere, W)", "MatMul .* reads 'nowhere', which no node computes"),
    "an output that nothing computes": ("Z = MatMul(X, W)", "No node computes the output 'Y'"),
    "an attribute of another operator": ("Y = MatMul <axis = 1> (X, W)", "MatMul .* has an unknown attribute 'axis'"),
    "an attribute of another type": (
        "Y = Gemm <alpha = 1> (X, W)",
        "attribute 'alpha' of Gemm .* must have type FLOAT",
    ),
    "an attribute twice": ("Y = Gemm <alpha = 1.0, alpha = 2.0> (X, W)", "Gemm .* has duplicate attributes"),
    "a value inside a body": (
        "c = Constant <value = bool {1}> () Y = If (c) <then_branch = t () => (float[N,1] a) { h = MatMul(X, W) a = Tanh(h) },"
        " else_branch = e () => (float[N,1] b) { b = Tanh(h) }>",
        "Tanh .* reads 'h'",
    ),
    "an attribute that is missing": ("a = Cast(X) Y = MatMul(a, W)", "Cast .* lacks the required attribute 'to'"),
    "an input that is left out": ("Y = MatMul(, W)", "MatMul .* lacks the required input 'A'"),
    "one of several inputs that is left out": (
        "Z = MatMul(X, W) Y = Sum(Z, , Z)",
        "Sum .* lacks the required input 'data_0'",
    ),
    "in a body": (
        "c = Constant <value = bool {1}> () Y = If (c) <then_branch = t () => (float[N,1] a) { a = MatMul <axis = 1> (X, W) },"
        " else_branch = e () => (float[N,1] b) { b = MatMul(X, W) }>",
        "MatMul .* has an unknown attribute 'axis'",
    ),
}


@pytest.mark.parametrize("text, words", NODES.values(), ids=NODES)
def test_nodes_that_are_not_what_their_operators_are(text, words):
    head = LINE.partition("{ Y =")[0]
    for call in (onnx_derivative, add_loss_output, trainable_weights):
        with pytest.raises(ModelError, match=words):
            call(parse_model(head + "{" + text + "}"))


def test_small_elements_fill_their_bytes():
    small = helper.make_tensor("small", TensorProto.INT4, [5], [1, 2, 3, -4, 5])
    raw = helper.make_tensor("raw", TensorProto.UINT4, [3], bytes([0x21, 0x03]), raw=True)
    kinds = [
        numpy_helper.from_array(np.array([1 + 2j, 3], dtype), str(dtype)) for dtype in (np.complex64, np.complex128)
    ]
    complexes = [helper.make_tensor("entries", TensorProto.COMPLEX64, [2], [1, 2j])]
    texts = [numpy_helper.from_array(np.array(["a", "bc"], object), "texts")]
    halves = [helper.make_tensor("half", TensorProto.FLOAT16, [2], [1, 2])]
    onx = parse_model(LINE)
    onx.graph.initializer.extend([small, raw, *kinds, *complexes, *texts, *halves])
    assert graphs.read(onx) is onx
    onx.graph.initializer[1].int32_data.append(0)
    with pytest.raises(ModelError, match="'small' of type INT4 .* must hold 3 elements, but holds 4"):
        graphs.read(onx)


# --------------------------------------------------- defaults of functions


def test_small_elements_with_an_entry_each_are_packed():
    small = "int4[5] a = {1, 2, 3, -4, 5}, uint4[3] b = {1, 15, 7}, int4[1] c = {-4}"
    onx = parse_model(LINE.replace("<ir_version: 8", "<ir_version: 10").replace("<float", f"<{small}, float", 1))
    before = onx.SerializeToString()
    found = {w.name: numpy_helper.to_array(w).astype(int).tolist() for w in graphs.read(onx).graph.initializer}
    assert onx.SerializeToString() == before
    assert {name: found[name] for name in "abc"} == {"a": [1, 2, 3, -4, 5], "b": [1, 15, 7], "c": [-4]}


def test_a_default_of_a_function_holds_where_a_call_leaves_it_out():
    onx = parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "f" : 1]>
        line (float[N,4] X) => (float[N,4] A, float[N,4] B) { A = f.act(X) B = f.act <alpha = 0.5> (X) }
        <domain: "f", opset_import: ["" : 21, "f" : 1]> act <alpha: float = 0.3> (x) => (y)
            { y = f.leaky <alpha: float = @alpha> (x) }
        <domain: "f", opset_import: ["" : 21]> leaky <alpha: float = 0.7> (x) => (y)
            { y = LeakyRelu <alpha: float = @alpha> (x) }""")
    a, b = ReferenceEvaluator(graphs.save(graphs.load(onx))).run(None, {"X": -np.ones((1, 4), np.float32)})
    np.testing.assert_allclose([a[0, 0], b[0, 0]], [-0.3, -0.5])
    derived = onnx_derivative(onx, options=DerivativeOptions.KeepOutputs | DerivativeOptions.FillGrad)
    (dx, *_) = ReferenceEvaluator(derived).run(None, {"X": -np.ones((1, 4), np.float32)})
    np.testing.assert_allclose(dx, np.full((1, 4), 0.8), rtol=1e-6)
    check_gradient(onx, {"X": X})


# ----------------------------------------------------------- a domain twice


def test_the_last_opset_of_a_domain_holds():
    onx = parse_model(LINE.replace('"" : 21, "f"', '"" : 9, "f"').replace('["" : 21]>', '["" : 9]>'))
    onx.opset_import[0].version = 21
    onx.opset_import.add(domain="", version=9)
    onx.functions[0].opset_import.add(domain="", version=9)
    read = graphs.read(onx)
    assert [(o.domain, o.version) for o in read.opset_import] == [("", 9), ("f", 1)]
    assert len(onx.opset_import) == 3
    assert graphs.load(onx).graph.opset_imports[""] == graphs.OPSET
    check_gradient(onx, {"X": X})


# ------------------------------------------------------ sizes of any kind


@pytest.mark.parametrize(
    "text",
    ["Y = MatMul(X, W)", "h = Tanh(X) s = Constant <value_ints = [-1, 4]> () r = Reshape(h, s) Y = MatMul(r, W)"],
)
def test_a_batch_declared_as_minus_one(text):
    onx = parse_model(LINE.partition("{ Y =")[0] + "{" + text + "}")
    h = helper.make_tensor_value_info("h", TensorProto.FLOAT, [-1, 4])
    onx.graph.value_info.append(h)
    for value in (onx.graph.input[0], onx.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    before = onx.SerializeToString()
    model = OrtGradientRegressor(onx, max_iter=5, random_state=0).fit(X, Y)
    assert onx.SerializeToString() == before
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    for n in (12, 5, 1):
        (y,) = ReferenceEvaluator(model.get_trained_onnx()).run(None, {"X": X[:n]})
        np.testing.assert_allclose(y.ravel(), model.predict(X[:n]), rtol=1e-4, atol=1e-5)
    check_gradient(onx, {"X": X})
    for made in (onnx_derivative(onx), add_loss_output(onx)):
        dims = [d for value in (*made.graph.input, *made.graph.output) for d in value.type.tensor_type.shape.dim]
        assert all(d.dim_value >= 0 for d in dims)


#: A negative dimension -> what makes it, and the words: behind it onnx's inference of a Slice would end the process.
NEGATIVE = {
    "Pad": ("p = Constant <value_ints = [0, -9]> () z = Pad(X, p, , at)", "-5"),
    "Split": ("p = Constant <value_ints = [7, -3]> () w, z = Split <axis = 1> (X, p)", "-3"),
    "Split in too many": ("a, b, c, d, e, z = Split <axis = 1, num_outputs = 6> (X)", "-1"),
    "pooling": ("i = Unsqueeze(X, at) z = MaxPool <kernel_shape = [9]> (i)", "-4"),
    "cropping": ("p = Constant <value_ints = [-3]> () z = CenterCropPad <axes = [1]> (X, p)", "-3"),
    "a Pad behind a Slice behind a Pad": (
        "p = Constant <value_ints = [0, -2]> () a = Pad(X, p, , at) b = Slice(a, from, to, last) z = Pad(b, p, , at)",
        "-1",
    ),
    "a Pad in a body": (
        "c = Constant <value_ints = [1]> () d = Cast <to = 9> (c) z = If(d) <"
        " then_branch = t () => (u) { p = Constant <value_ints = [0, -9]> () v = Pad(X, p, , at)"
        " u = Slice(v, from, to, last) }, else_branch = e () => (w) { w = Relu(X) }>",
        "-5",
    ),
    "a Pad in a function of another opset": ("z = g.crop(X)", "-5"),
    "expanding": ("p = Constant <value_ints = [3, -2]> () f = Constant <value_float = 0.0> () z = Expand(f, p)", "-2"),
    "expanding to a computed shape": (
        "m = Constant <value_ints = [-2]> () h = Shape(X) n = Slice(h, from, to) p = Concat <axis = 0> (n, m)"
        " f = Constant <value_float = 0.0> () z = Expand(f, p)",
        "-2",
    ),
    "expanding to a difference": (
        "a = Constant <value_ints = [3, 1]> () b = Constant <value_ints = [1, 3]> () p = Sub(a, b)"
        " f = Constant <value_float = 0.0> () z = Expand(f, p)",
        "-2",
    ),
}


@pytest.mark.parametrize("call", [call for name, call in WAYS_IN.items() if name != "get_train_initializer"])
@pytest.mark.parametrize("text, words", NEGATIVE.values(), ids=NEGATIVE)
def test_dimensions_that_would_be_negative(text, words, call):
    head = LINE.partition("{ Y =")[0].replace('"" : 21', '"" : 21, "g" : 1').replace("float[N,1] Y", "float[N,M] Y")
    constants = "at = Constant <value_ints = [1]> () from = Constant <value_ints = [0]> ()"
    constants += " to = Constant <value_ints = [1]> () last = Constant <value_ints = [-1]> ()"
    crop = """<domain: "g", opset_import: ["" : 18]> crop (x) => (y) {
        at = Constant <value_ints = [1]> () from = Constant <value_ints = [0]> () to = Constant <value_ints = [1]> ()
        p = Constant <value_ints = [0, -9]> () q = Pad(x, p, , at) y = Slice(q, from, to, at) }"""
    onx = parse_model(f"{head} {{ {constants} {text} s = Slice(z, from, to, last) Y = Mul(s, W) }} {crop}")
    with pytest.raises(
        OnnxTrainError, match=rf"The shape of .* would be \[.*, {words}\]: a dimension cannot be negative"
    ):
        call(onx)


def test_a_function_of_another_opset_with_a_slice():
    onx = parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "g" : 1]>
        crop (float[N,4] X) => (float[N,2] Y) <float[2] W = {1, 2}> { s = g.crop(X) Y = Mul(s, W) }
        <domain: "g", opset_import: ["" : 13]> crop (x) => (y) {
            at = Constant <value_ints = [1]> () from = Constant <value_ints = [2]> () to = Constant <value_ints = [9]> ()
            y = Slice(x, from, to, at) }""")
    check_gradient(onx, {"X": X})
    assert {o.domain for o in onnx_derivative(onx).opset_import} <= {"", "g"}


#: What runs out of memory when it runs, or makes shape inference fill it.
BOMBS = {
    "Expand": "Y = Expand(X, size)",
    "Tile": "t = Constant <value_ints = [35184372088832, 1]> () Y = Tile(X, t)",
    "ConstantOfShape": "b = ConstantOfShape(size) c = Concat <axis = 0> (b, b) h = MatMul(X, W) Y = Add(h, c)",
    "Range": "l = Constant <value_int = 35184372088832> () z = Constant <value_int = 0> () o = Constant <value_int = 1> ()"
    " r = Range(z, l, o) g = Concat <axis = 0> (r, r) f = Cast <to = 1> (g) h = MatMul(X, W) Y = Add(h, f)",
}


@pytest.mark.filterwarnings("ignore:onnxruntime .* cannot load the model:RuntimeWarning")  # 1.19 folds constants first
@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_models_that_ask_for_terabytes(text):
    head = LINE.partition("{ Y =")[0].replace("float[N,1] Y", "float Y")
    onx = parse_model(head.replace(">  ", ">") + "{ size = Constant <value_ints = [35184372088832]> () " + text + "}")
    onx.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(OnnxTrainError):
        OrtGradientRegressor(onx, max_iter=1).fit(X, Y).predict(X)
    with suppress(OnnxTrainError):  # the gradient may be derived: nothing runs
        onnx_derivative(onx)


def test_steps_that_onnxruntime_cannot_run():
    text = "s = Constant <value_ints = [5, 5]> () h = MatMul(X, W) r = Reshape(h, s) m = ReduceMean(r) Y = Add(h, m)"
    onx = parse_model(LINE.partition("{ Y =")[0] + "{" + text + "}")
    with pytest.raises(DataError, match="onnxruntime cannot run"):
        OrtGradientRegressor(onx, max_iter=1).fit(X, Y)


def test_a_batch_too_large_to_try_out():
    onx = parse_model(LINE.replace("[N,", f"[{2**40},"))
    with pytest.raises(ModelError, match="fixed batch size 1099511627776"):
        OrtGradientRegressor(onx).fit(X, Y)


def test_a_product_of_one_operand():
    onx = parse_model(LINE.partition("{ Y =")[0] + '{ h = MatMul(X, W) Y = Einsum <equation = "ij->ij"> (h) }')
    assert OrtGradientRegressor(onx, max_iter=2).fit(X, Y).predict(X).shape == (12,)


@pytest.mark.parametrize("shape", [[4, 1], None], ids=["declared", "without shape"])
def test_weights_that_are_inputs_with_a_default(shape):
    onx = parse_model(LINE.partition("{ Y =")[0] + "{ h = MatMul(X, W) Y = Reshape(h, t) }")
    onx.graph.initializer.append(numpy_helper.from_array(np.array([-1, 1]), "t"))
    onx.graph.input.append(helper.make_tensor_value_info("W", TensorProto.FLOAT, shape))
    onx.graph.input.append(helper.make_tensor_value_info("t", TensorProto.INT64, [2]))
    model = OrtGradientRegressor(onx, max_iter=3, random_state=0).fit(X, Y)
    assert list(model.weights_) == ["W"]
    trained = model.get_trained_onnx()
    assert [i.name for i in trained.graph.input] == ["X", "W", "t"]  # though the Reshape that reads t changes nothing
    (y,) = ReferenceEvaluator(trained).run(None, {"X": X})
    np.testing.assert_allclose(y.ravel(), model.predict(X), rtol=1e-5)
    assert [w.name for w in trainable_weights(onx)] == ["W"]


def test_an_input_that_is_an_output():
    onx = parse_model(LINE)
    onx.graph.output.append(onx.graph.input[0])
    model = OrtGradientRegressor(onx, output="Y", max_iter=3, random_state=0).fit(X, Y)
    assert model.predict(X).shape == (12,)
    np.testing.assert_allclose(ReferenceEvaluator(model.get_trained_onnx()).run(None, {"X": X})[1], X)


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("names", [["b"], ["W", "b"], ["X"]])
def test_weights_and_inputs_that_are_outputs(names, typed, tmp_path):
    onx = parse_model("""<ir_version: 10, opset_import: ["" : 20]> g (float[N, 4] X) => (float[N, 1] Y)
        <float[4, 1] W = {1, 2, 3, 4}, float[1] b = {0.5}> { h = MatMul(X, W) Y = Add(h, b) }""")
    types = {"X": helper.make_tensor_value_info("X", 1, ["N", 4]), "W": helper.make_tensor_value_info("W", 1, [4, 1])}
    types["b"] = helper.make_tensor_value_info("b", 1, [1])
    onx.graph.output.extend([types[name] if typed else onnx.ValueInfoProto(name=name) for name in names])
    model = OrtGradientRegressor(onx, output="Y", max_iter=3, random_state=0).fit(X, Y)
    expected = {**model.weights_, "X": X}
    for name, value in zip(names, ReferenceEvaluator(model.get_trained_onnx()).run(names, {"X": X}), strict=True):
        np.testing.assert_array_equal(value, expected[name])
    model.export_training_step(tmp_path)
    assert (tmp_path / "predict.onnx").exists()


def test_an_output_that_is_listed_twice():
    onx = parse_model(LINE)
    onx.graph.output.extend([onx.graph.output[0]] * 2)
    assert max(check_gradient(onx, {"X": X}).values()) < 1e-8


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.FLOAT8E5M2, TensorProto.FLOAT4E2M1])
def test_rows_of_types_that_numpy_lacks(kind):
    onx = parse_model(LINE.partition("{ Y =")[0] + "{ x = Cast <to = 1> (X) Y = MatMul(x, W) }")
    onx.graph.input[0].type.tensor_type.elem_type = kind
    with pytest.raises(ModelError, match="input 'X' of the model has dtype .*, which numpy does not have"):
        OrtGradientRegressor(onx).fit(X, Y)


def test_an_output_of_another_type_than_declared():
    onx = parse_model(LINE.partition("{ Y =")[0] + "{ h = MatMul(X, W) z = Sub(h, h) Y = Equal(h, z) }")
    with pytest.raises(OnnxTrainError):
        check_gradient(onx, {"X": X})


def test_a_tensor_declared_as_a_sequence():
    onx = parse_model(LINE)
    onx.graph.output[0].type.sequence_type.elem_type.tensor_type.elem_type = 1
    with pytest.raises(ModelError, match="declared as a sequence, but is a tensor"):
        check_gradient(onx, {"X": X})


def test_rows_go_into_tensors_only():
    onx = parse_model(LINE)
    onx.graph.input.add(name="many").type.sequence_type.elem_type.tensor_type.elem_type = 1
    with pytest.raises(ModelError, match="input 'many' of the model is not a tensor"):
        OrtGradientRegressor(onx).fit(X, Y)
    with pytest.raises(ModelError, match="input 'many' is not a tensor"):
        check_gradient(onx, {"X": X})


@pytest.mark.parametrize("end, rank", [(4, 4), (1, None), (2**40, None)])
def test_axes_that_are_computed_from_constants_are_known(end, rank):
    """PyTorch's dynamo exporter writes the scale of GroupNorm so, without its optimizer."""
    text = f"""<ir_version: 10, opset_import: ["" : 20]> g (float[n, 6, h, w] X, float[6] b) => (float Y)
        {{ one = Constant<value_int = 1>() end = Constant<value_int = {end}>() last = Sub(end, one)
           axes = Range(one, last, one) s = Unsqueeze(b, axes) Y = Mul(X, s) }}"""
    onx = parse_model(text)
    onx.graph.output[0].type.tensor_type.ClearField("shape")
    shape = graphs.load(onx).graph.outputs[0].shape
    assert (None if shape is None else len(shape)) == rank


@pytest.mark.parametrize("axis, known", [(-1, {3: 4}), (1, {2: 4, 3: 8}), (0, {1: 4, 3: 8})])
def test_axes_that_unflatten_makes_are_known(axis, known):
    """PyTorch's exporter with dynamo=False writes unflatten(axis, (-1, 4)) so if the batch is open."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n, t, 8] X) => (float Y)
        {{ a = Constant<value_int = {axis}>() r = Constant<value_int = 3>() at = Mod(a, r) s = Shape(X)
           zero = Constant<value_ints = [0]>() flat = Constant<value_ints = [-1]>() one = Constant<value_int = 1>()
           end = Reshape(at, flat) head = Slice(s, zero, end) next = Add(at, one) start = Reshape(next, flat)
           last = Constant<value_ints = [9223372036854775807]>() tail = Slice(s, start, last)
           new = Constant<value_ints = [-1, 4]>() all = Concat<axis = 0>(head, new, tail) Y = Reshape(X, all) }}"""
    onx = parse_model(text)
    onx.graph.output[0].type.tensor_type.ClearField("shape")
    found = graphs.load(onx).graph.outputs[0].shape
    assert len(found) == 4
    assert {i: d for i, d in enumerate(found) if isinstance(d, int)} == known


def test_a_computed_integer_has_the_shape_that_the_model_gives_it():
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 6] X) => (float Y)
        <int64[1, 1] many = {6}, int64[1] flat = {-1}>
        { few = Reshape(many, flat) new = Concat<axis = 0>(few, flat) Y = Reshape(X, new) }"""
    onx = parse_model(text)
    onx.graph.output[0].type.tensor_type.ClearField("shape")
    found = graphs.load(onx).graph.outputs[0].shape
    assert (len(found), found[0]) == (2, 6)
