"""Models that are made to do harm, or that nobody would write: refused with a reason; no file outside is read."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from skl2onnx import to_onnx
from sklearn.ensemble import GradientBoostingRegressor

from onnxtrain import (
    OrtGradientClassifier,
    OrtGradientRegressor,
    WeightsDisplay,
    add_loss_output,
    load,
    onnx_derivative,
    plot_graph,
    random_feed,
    trainable_weights,
    with_new_head,
)
from onnxtrain.convert.dynamo import Taken, as_in_module
from onnxtrain.convert.lookups import added_masks
from onnxtrain.errors import DataError, ModelError, OnnxTrainError
from onnxtrain.graph import held, layout_of, write_model
from onnxtrain.runtime.session import run

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
W = np.arange(6, dtype=np.float32).reshape(3, 2)


def fit(model):
    return OrtGradientRegressor(model, max_iter=1, random_state=0).fit(X, X[:, :2])


def model(nodes="Y = MatMul(X, W)", inputs="float[N, 3] X", outputs="float[N, 2] Y", functions=""):
    onx = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g ({inputs}) => ({outputs}) {{ {nodes} }} {functions}'
    )
    onx.graph.initializer.append(onnx.numpy_helper.from_array(W, "W"))
    return onx


def calls_on(path):
    """Return what each call ends in: None, or an error of our own."""
    found = []
    for call in (fit, onnx_derivative, add_loss_output, load):
        try:
            call(path)
            found.append(None)
        except OnnxTrainError as e:
            found.append(e)
    return found


# ------------------------------------------------------------------ external data

#: The entries of external data, and the words of the refusal.
EXTERNAL = {
    "a link": ([("location", "link")], "outside the folder"),
    "a folder that is a link": ([("location", "above/secret")], "outside the folder"),
    "up, behind a folder": ([("location", "x/../../secret")], "outside the folder"),
    "backslashes": ([("location", "..\\secret")], "outside the folder"),
    "a device": ([("location", "/dev/zero"), ("length", "24")], "outside the folder"),
    "a pipe": ([("location", "pipe"), ("length", "24")], "there is no 'pipe'"),
    "two places": ([("location", "w.bin"), ("location", "../secret")], "duplicate keys"),
    "two offsets": ([("location", "w.bin"), ("offset", "0"), ("offset", "8")], "duplicate keys"),
    "no place": ([("offset", "0")], "there is no"),
    "an empty place": ([("location", "")], "there is no ''"),
    "the folder itself": ([("location", ".")], "there is no '.'"),
    "a long place": ([("location", "a" * 5000)], "there is no 'aaa"),
    "behind the end": (
        [("location", "w.bin"), ("offset", "1000"), ("length", "24")],
        "needs 24 bytes, but 'w.bin' has",
    ),
    "before the start": ([("location", "w.bin"), ("offset", "-24"), ("length", "24")], "negative offset -24"),
    "an offset in words": ([("location", "w.bin"), ("offset", "zero")], "cannot be read"),
    "a negative length": ([("location", "w.bin"), ("length", "-1")], "needs 24 bytes, but 'w.bin' has"),
    "a huge length": ([("location", "w.bin"), ("length", str(2**70))], "needs 24 bytes, but 'w.bin' has"),
    "a length in other digits": ([("location", "w.bin"), ("length", "²4")], "cannot be read"),
}


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(W.tobytes())
    (inside / "w.bin").write_bytes(W.tobytes())
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "above").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    return inside


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("entries, words", EXTERNAL.values(), ids=EXTERNAL)
def test_external_data_that_leads_elsewhere(entries, words, large, folder, monkeypatch):
    if large:  # those are held beside the model
        monkeypatch.setattr(held, "LEAST", 1)
        monkeypatch.setattr(held, "LEAST_IN_ALL", 1)
    onx = model()
    (w,) = onx.graph.initializer
    w.ClearField("raw_data")
    w.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries:
        w.external_data.add(key=key, value=value)
    path = folder / "net.onnx"
    path.write_bytes(onx.SerializeToString())
    for error in calls_on(path):
        assert isinstance(error, ModelError)
    with pytest.raises(ModelError, match=words.replace(".", r"\.")):
        fit(path)


@pytest.mark.parametrize("location", ["../out.bin", "above/out.bin", "/tmp/out.bin"])
def test_no_file_is_written_outside(location, folder):
    with pytest.raises(ModelError, match="outside the folder"):
        write_model(model(), folder / "net.onnx", {"W": {"location": location}})
    assert not (folder.parent / "out.bin").exists()
    assert not (folder / "net.onnx").exists()
    write_model(model(), folder / "net.onnx", {"W": {"location": "own/out.bin"}})
    assert layout_of(folder / "net.onnx")["W"]["location"] == "own/out.bin"


def with_places(folder, places):
    """Write a network with the weights A, B and C whose bytes are at the given files and offsets; return its path."""
    onx = model("a = MatMul(X, A) b = MatMul(X, B) t = Tanh(b) s = Add(a, t) u = MatMul(s, C) Y = Add(u, u)")
    onx.metadata_props.add(key="space for the bytes of weights", value="0" * 2000)
    del onx.graph.initializer[:]
    for name, (location, offset) in places.items():
        shape = (2, 2) if name == "C" else (3, 2)
        w = onx.graph.initializer.add(name=name, data_type=onnx.TensorProto.FLOAT, dims=shape)
        w.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", 4 * np.prod(shape))):
            w.external_data.add(key=key, value=str(value))
    path = folder / "net.onnx"
    (folder / "weights").write_bytes(np.arange(1, 40, dtype=np.float32).tobytes())
    path.write_bytes(onx.SerializeToString())
    return path


#: The places of weights that no exporter writes, and the name of the file to which the trained model is written.
PLACES = {
    "one place": ({"A": ("weights", 0), "B": ("weights", 0), "C": ("weights", 24)}, "out.onnx"),
    "in part": ({"A": ("weights", 0), "B": ("weights", 8), "C": ("weights", 4)}, "out.onnx"),
    "in the model": ({"A": ("net.onnx", 600), "B": ("weights", 0), "C": ("weights", 24)}, "net.onnx"),
    "another file": ({"A": ("weights", 0), "B": ("weights", 24), "C": ("weights", 48)}, "text"),
}


@pytest.mark.filterwarnings("ignore:.* is the file of the given model")
@pytest.mark.parametrize("places, target", PLACES.values(), ids=PLACES)
def test_weights_are_written_apart(places, target, tmp_path):
    path = with_places(tmp_path, places)
    (tmp_path / "text").write_bytes(b"the location of something else")
    trained = OrtGradientRegressor(path, max_iter=3, learning_rate=0.1, random_state=0).fit(X, X[:, :2])
    trained.get_trained_onnx(path=tmp_path / target)
    (found,) = onnxruntime.InferenceSession(tmp_path / target).run(None, {"X": X})
    np.testing.assert_allclose(found, trained.predict(X), rtol=1e-5)


# ------------------------------------------------------------------- odd graphs


def changed(change, **kwargs):
    onx = model(**kwargs)
    change(onx)
    return onx


def call(body):
    return dict(
        nodes="A = own.f(X) Y = MatMul(A, W)", functions=f'<domain: "own", opset_import: ["" : 17, "own" : 1]> {body}'
    )


def with_dims(*dims):
    def change(onx):
        onx.graph.initializer[0].dims[:] = dims
        onx.graph.initializer[0].raw_data = b""

    return change


def with_version(version):
    return lambda onx: setattr(onx.opset_import[0], "version", version)


def with_ir(version):
    return lambda onx: setattr(onx, "ir_version", version)


def with_name(name):
    def change(onx):
        onx.graph.initializer[0].name = onx.graph.node[0].input[1] = name

    return change


def same(onx):
    pass


def typed_as_text(onx):
    a = onx.graph.node[0].attribute[0]
    a.type, a.s = onnx.AttributeProto.STRING, b"one"


def typed_falsely(onx):
    """Declare a quantized value as texts; onnx and onnxruntime believe such a declaration."""
    onx.graph.value_info.append(onnx.helper.make_tensor_value_info("q", onnx.TensorProto.STRING, [1]))


def twice(field):
    return lambda onx: getattr(onx.graph, field).append(getattr(onx.graph, field)[0])


def with_flags(onx):
    for name, value in {"B": np.ones((3, 2), bool), "s": np.float32(1)}.items():
        onx.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))


def with_empty_scale(onx):
    for name, value in {"B": np.ones((3, 2), np.int8), "s": np.ones((1, 0), np.float32)}.items():
        onx.graph.initializer.append(onnx.numpy_helper.from_array(value, name))


def with_labels(onx):
    """Turn the second node into a LabelEncoder, for which onnx ends the process if its operand has no type."""
    onx.opset_import.add(domain="ai.onnx.ml", version=3)
    node = onnx.helper.make_node(
        "LabelEncoder", ["A"], ["B"], domain="ai.onnx.ml", keys_strings=["a"], values_floats=[1.0]
    )
    onx.graph.node[1].CopyFrom(node)


def with_texts(onx):
    onx.graph.initializer[0].CopyFrom(onnx.helper.make_tensor("W", onnx.TensorProto.STRING, (3, 2), [b"a"] * 6))


def trained_by(onx):
    info = onx.training_info.add()
    info.algorithm.CopyFrom(onx.graph)
    info.update_binding.add(key="W", value="nowhere")


def without_output(onx):
    del onx.functions[0].output[:]


def from_pytorch(onx):
    """Add a mask that PyTorch's exporter computed: where it leads decides whether it is trained."""
    onx.producer_name = "pytorch"
    onx.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, -1e4], np.float32), "val_1"))


def chain(n, step):
    """Return the text of n nodes or pairs of nodes, each written with its own number and that of the one before."""
    return " ".join(step.format(i, i - 1) for i in range(1, n + 1)) + " "


#: A walk along each path does not end on the first two; one that calls itself fails on the others.
DOUBLED = "P = MatMul(X, W) d0 = Add(val_1, val_1) " + chain(60, "d{0} = Add(d{1}, d{1})")
JOINED = (
    "P = MatMul(X, W) a = Constant <value_ints = [0]> () b = Constant <value_ints = [2]> () d0 = Identity(val_1) "
    + chain(60, "c{0} = Concat <axis = 0> (d{1}, d{1}) d{0} = Slice(c{0}, a, b)")
)
LONG = "P = MatMul(X, W) a = Constant <value_ints = [0]> () d0 = Constant <value_floats = [0.5]> () " + chain(
    1100, "d{0} = Gather(d{1}, a)"
)
INSERTED = "P = MatMul(X, W) d0 = SequenceEmpty <dtype = 1> () " + chain(1100, "d{0} = SequenceInsert(d{1}, P)")
STACKED_MEAN = "Q = ConcatFromSequence <axis = 0, new_axis = 1> (d1100) Y = ReduceMean <axes = [0], keepdims = 0> (Q)"


#: Models, and the words of the error of a fit, None where it works.
ODD = {
    "a function that calls itself": (changed(same, **call("f (a) => (b) { b = own.f(a) }")), "'f' of the model calls"),
    "a function without a result": (changed(without_output, **call("f (a) => (b) { b = Neg(a) }")), "cannot be read"),
    "a cycle": (model("A = Add(B, X) B = Neg(A) Y = MatMul(B, W)"), "contains a cycle"),
    "a node of itself": (model("A = Add(A, X) Y = MatMul(A, W)"), "contains a cycle"),
    "a name of two results": (model("A = Neg(X) A = Abs(X) Y = MatMul(A, W)"), "2 values named 'A'"),
    "a result named as an input": (model("X = Neg(X) Y = MatMul(X, W)"), "2 values named 'X'.* Use optimize=False"),
    "an output twice": (changed(twice("output")), "Set output to one of them"),
    "an initializer twice": (changed(twice("initializer")), "2 values named 'W'"),
    "another width declared": (model(inputs="float[N, 4] X"), "Incompatible dimensions"),
    "another type declared": (model(outputs="int64[N, 2] Y"), None),
    "text in a whole number": (
        changed(typed_as_text, nodes="A = Softmax <axis = 1> (X) Y = MatMul(A, W)"),
        "'axis' of Softmax .* must have type INT",
    ),
    "a quantized value that is declared as texts": (
        changed(
            typed_falsely,
            nodes="s = Constant <value_float = 0.1> () q = QuantizeLinear(X, s) A = DequantizeLinear(q, s) "
            "Y = MatMul(A, W)",
        ),
        None,
    ),
    "a Split into another number of parts": (  # onnxruntime would end the process
        changed(
            with_version(18),
            nodes="A, B = Split <axis = 1, num_outputs = 3> (X) C = Concat <axis = 1> (A, B) Y = MatMul(C, W)",
        ),
        "num_outputs=3, but 2 outputs",
    ),
    "a wrong permutation": (model("A = Transpose <perm = [5, -9]> (X) Y = MatMul(A, W)"), "Invalid attribute perm"),
    "a weight of texts": (changed(with_texts), "MatMul .* takes no texts, but its input 'W' holds texts"),
    "many axes": (changed(with_dims(3, *[1] * 5000, 2)), "has 5002 axes, but numpy arrays have at most 32"),
    "huge dimensions": (changed(with_dims(2**60, 2)), "must hold 9223372036854775808 bytes, but holds 0"),
    "dimensions whose product is 0 in 64 bits": (changed(with_dims(2**32, 2**32)), "must hold 73786976294838206464"),
    "huge and empty": (changed(with_dims(0, 2**60)), "no elements, but too large dimensions"),
    "a huge input": (model(inputs=f"float[N, {2**60}] X"), "Incompatible dimensions"),
    "an output without columns": (
        changed(lambda onx: with_dims(3, 0)(onx), outputs="float[N, 0] Y"),
        r"'Y' is empty: it has shape \(6, 0\) for 6 rows. Pass output=",
    ),
    "a weight without rows": (
        changed(with_dims(0, 2), inputs="float[N, 0] X"),
        "X has 3 features, but the model takes 0",
    ),
    "a quantized weight of booleans": (
        changed(with_flags, nodes="V = DequantizeLinear(B, s) A = MatMul(X, W) C = MatMul(X, V) Y = Add(A, C)"),
        "DequantizeLinear",
    ),
    "a scale without elements": (
        changed(with_empty_scale, nodes="V = DequantizeLinear(B, s) A = MatMul(X, W) C = MatMul(X, V) Y = Add(A, C)"),
        "DequantizeLinear",
    ),
    "a LabelEncoder of a value without a type": (
        changed(with_labels, nodes="A = own.Weird(X) B = Neg(A) Y = MatMul(B, W)"),
        "Weird",
    ),
    "opset 0": (changed(with_version(0)), "Opset 0 cannot be converted"),
    "opset -5": (changed(with_version(-5)), "Opset -5 cannot be converted"),
    "a huge opset": (changed(with_version(2**40)), "Install a newer onnx"),
    "an unknown operator": (model("A = own.Weird(X) Y = MatMul(A, W)"), "Weird"),
    "an unknown domain": (model("A = else.Weird(X) Y = MatMul(A, W)"), "No opset import for domain else"),
    "the state of another training": (changed(trained_by), None),
    "an optional input": (
        model("A = OptionalGetElement(X) Y = MatMul(A, W)", inputs="optional(float[N, 3]) X"),
        r"not a tensor \(optional\)",
    ),
    "a map as input": (
        model("A = DictVectorizer(X) Y = MatMul(A, W)", inputs="map(string, float[N]) X"),
        r"not a tensor \(map\)|DictVectorizer",
    ),
    "a sequence as output": (
        model("P = MatMul(X, W) Y = SequenceConstruct(P, P)", outputs="seq(float[N, 2]) Y"),
        None,
    ),
    "an output, and a sequence made of it": (
        model("Y = MatMul(X, W) S = SequenceConstruct(Y) Z = Identity(S)", outputs="float[N, 2] Y, seq(float[N, 2]) Z"),
        None,
    ),
    "a name that is a path": (changed(with_name("/a/../b")), None),
    "a name in any script": (changed(with_name("gewicht/é∂\u202e😀")), None),
    "a name with a zero byte": (changed(with_name("a\0b")), None),
    "a name of spaces": (changed(with_name("  ")), None),
    "a name that is a pattern": (changed(with_name("*")), None),
    "IR 0": (changed(with_ir(0)), None),
    "IR 3": (changed(with_ir(3)), None),
    "IR 9000": (changed(with_ir(9000)), "IR version 9000, but onnx .* Install a newer onnx"),
    "sixty sums of a value with itself": (
        changed(from_pytorch, nodes=DOUBLED + "Q = Add(P, d60) Y = Softmax(Q)"),
        None,
    ),
    "sixty joins of a value with itself": (changed(from_pytorch, nodes=JOINED + "Y = Add(P, d60)"), None),
    "a long chain of shape changes": (model(LONG + "Y = Add(P, d1100)"), None),
    "a long chain of insertions": (model(INSERTED + STACKED_MEAN), None),
}


@pytest.mark.parametrize("onx, words", ODD.values(), ids=ODD)
@pytest.mark.filterwarnings("ignore")  # those of the fits that work
def test_graphs_that_nobody_would_write(onx, words, tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(onx.SerializeToString())
    fitted, *_, loaded = calls_on(path)
    assert isinstance(loaded, ModelError)
    if words is None:
        assert fitted is None
    else:
        with pytest.raises(OnnxTrainError, match=words):
            raise fitted or AssertionError("it was trained")


@pytest.mark.parametrize("op_type", ["DictVectorizer", "LabelEncoder"])
def test_an_older_model_with_an_operand_of_unknown_type(op_type):
    """onnx's conversion of opsets infers types, and ends the process at these operators."""
    onx = model("z = own.Weird(X) A = own.Replaced(z) Y = MatMul(A, W)")
    node = onx.graph.node[1]
    node.op_type, node.domain = op_type, "ai.onnx.ml"
    onx.opset_import[0].version = 11
    onx.opset_import.add(domain="ai.onnx.ml", version=2)
    with pytest.raises(OnnxTrainError):
        onnx_derivative(onx)


@pytest.mark.parametrize("call", [fit, with_new_head, onnx_derivative], ids=["fit", "head", "derivative"])
def test_a_split_of_a_fixed_batch_into_another_number_of_parts(call):
    nodes = "A, B = Split <axis = 1, num_outputs = 1> (X) C = Concat <axis = 1> (A, B) Y = MatMul(C, W)"
    onx = changed(with_version(18), nodes=nodes, inputs="float[6, 3] X", outputs="float[6, 2] Y")
    with pytest.raises(ModelError, match="num_outputs=1, but 2 outputs"):
        call(onx) if call is not with_new_head else call(onx, 3)


@pytest.mark.parametrize("attribute, found", [("transB = 1", [3]), ("transB = 7", [3]), ("transB = 0", [2])])
def test_a_dropped_intercept_of_a_damaged_product(attribute, found):
    onx = model(f"Y = Gemm <{attribute}> (X, W)")
    named = as_in_module(onx, [Taken("bias", "Y", 2, "", "PARAMETER")])
    assert [list(w.dims) for w in named.graph.initializer if w.name == "bias"] == [found]
    with pytest.raises(ModelError, match="The parameters of the model cannot be found: KeyError: 'Z'"):
        as_in_module(onx, [Taken("bias", "Z", 2, "", "PARAMETER")])


#: Files of an exporter whose parameters are found by their nodes, with another number of inputs or outputs of a node.
MISCOUNTED = {
    "a product of three": ("skl2onnx", "H = Mul(X, X, X) Y = MatMul(H, W)", "Mul .* must have 2 inputs, got 3"),
    "a division of one": ("pytorch", "H = Div(X) Y = MatMul(H, W)", "Div .* must have 2 inputs, got 1"),
    "a Clip of nothing": ("pytorch", "H = Clip() Y = MatMul(H, W)", "Clip .* must have 1 to 3 inputs, got 0"),
}


@pytest.mark.parametrize("call", [fit, trainable_weights], ids=["fit", "weights"])
@pytest.mark.parametrize("producer, nodes, words", MISCOUNTED.values(), ids=MISCOUNTED)
def test_miscounted_operands_of_files_of_an_exporter(producer, nodes, words, call):
    onx = changed(lambda onx: setattr(onx, "producer_name", producer), nodes=nodes)
    with pytest.raises(ModelError, match=words):
        call(onx)


@pytest.mark.parametrize("call", [onnx_derivative, trainable_weights], ids=["derivative", "weights"])
def test_an_attribute_that_only_a_function_may_have(call):
    onx = model("V = DequantizeLinear <axis = 1> (B, s) Y = MatMul(X, V)")
    for name, value in {"B": np.ones((3, 2), np.int8), "s": np.ones(2, np.float32)}.items():
        onx.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    onx.graph.node[0].attribute[0].ref_attr_name = "axis_of_the_call"
    words = (
        "'axis' of DequantizeLinear .* refers to the attribute 'axis_of_the_call' of a function, but the node is in no"
    )
    with pytest.raises(ModelError, match=words):
        call(onx)


#: False shapes of the mean of a row, as a tool leaves them that changes the batch size of a file.
FALSE = [[], [1], [2], [1, 1], [1, 2], [6, 2], ["N", 2], ["N", 1, 2]]


@pytest.mark.parametrize("shape", FALSE, ids=str)
def test_false_shapes_of_results_are_not_believed(shape):
    """The gradient of `b` was summed over other axes, without a word, as `s` seemed to be broadcast."""
    nodes = (
        "P = MatMul(X, W) a = Constant <value_ints = [1]> () s = ReduceMean(P, a) D = Sub(P, s) "
        "E = Mul(D, b) Y = Neg(E)"
    )

    def with_declaration(onx):
        onx.opset_import[0].version = 18
        onx.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 2), np.float32), "b"))
        onx.graph.value_info.append(onnx.helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, shape))

    onx = changed(with_declaration, nodes=nodes)
    right = onnx.ModelProto()
    right.CopyFrom(onx)
    del right.graph.value_info[:]
    feeds = {"X": X, "W": W, "b": np.ones((1, 2), np.float32), "Y_grad": X[:, :2]}
    for found, expected in zip(run(onnx_derivative(onx), feeds), run(onnx_derivative(right), feeds), strict=True):
        np.testing.assert_array_equal(found, expected)
    for name, weight in fit(right).weights_.items():
        np.testing.assert_array_equal(fit(onx).weights_[name], weight)


def test_a_false_number_of_axes_of_an_output_is_not_believed():
    """fit said that y had positions, and to pass one label per row, which it was."""
    onx = changed(lambda onx: onx.graph.output[0].type.tensor_type.shape.dim.add(dim_value=1))
    np.testing.assert_array_equal(fit(onx).weights_["W"], fit(model()).weights_["W"])


@pytest.mark.parametrize("dims", [[], ["c"]], ids=["matrix", "series"])
def test_rows_give_the_number_of_axes_that_a_file_does_not_declare(dims):
    """fit asked to declare the shapes of the inputs, or said that the model took one axis."""
    nodes = (
        "Y = MatMul(X, W)"
        if not dims
        else "a = Constant <value_ints = [1]> () m = ReduceMean <keepdims = 0> (X, a) Y = MatMul(m, W)"
    )
    rows = np.stack([X] * 4, axis=1) if dims else X

    def fitted(change, inputs):
        onx = model("t = Tanh(X) " + nodes.replace("(X", "(t"), inputs=inputs)
        onx.opset_import[0].version, onx.ir_version = 18, 8
        change(onx.graph.input[0].type.tensor_type)
        return OrtGradientRegressor(onx, max_iter=1, random_state=0).fit(rows, X[:, :2])

    inputs = f"float[N, {', '.join([*dims, '3'])}] X"
    found, expected = fitted(lambda t: t.ClearField("shape"), inputs), fitted(lambda t: None, inputs)
    np.testing.assert_array_equal(found.weights_["W"], expected.weights_["W"])
    np.testing.assert_array_equal(found.predict(rows), expected.predict(rows))


#: Models whose outputs and bodies may be declared falsely, and the declarations that are false.
OF_BODIES = {
    "an output": ("Y = MatMul(X, W)", lambda graph: graph.output[0]),
    "an output whose first length is not inferred": (
        "P = MatMul(X, W) k = Constant <value_ints = [-1, 2]> () r = Constant <value_ints = [1, 1]> () "
        "T = Tile(P, r) Y = Reshape(T, k)",
        lambda graph: graph.output[0],
    ),
    "a result in a branch": (
        "P = MatMul(X, W) s = ReduceSum <keepdims = 0> (P) z = Constant <value_float = 0.0> () g = Greater(s, z) Y = If (g) "
        "<then_branch = t () => (float[N,2] a) { a = Mul(P, w) }, else_branch = e () => (float[N,2] o) { o = Sub(P, w) }>",
        lambda graph: graph.node[-1].attribute[1].g.output[0],
    ),
    "a result in a scan": (
        "P = MatMul(X, W) f, Y = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] x) => (float[2] t, float[2] y) "
        "{ p = Mul(s, w) t = Add(p, x) y = Tanh(t) }> (w, P)",
        lambda graph: graph.node[-1].attribute[1].g.value_info.add(name="p"),
    ),
    "an input of a scan": (
        "P = MatMul(X, W) f, Y = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] x) => (float[2] t, float[2] y) "
        "{ p = Mul(s, w) t = Add(p, x) y = Tanh(t) }> (w, P)",
        lambda graph: graph.node[-1].attribute[1].g.input[1],
    ),
    "an input of a loop": (
        "P = MatMul(X, W) n = Constant <value_int = 2> () c = Constant <value = bool {1}> () L = Loop (n, c, P) <body = b "
        "(int64 i, bool d, float[N,2] q) => (bool e, float[N,2] r) { e = Identity(d) u = Mul(q, w) r = Tanh(u) }> "
        "Y = MatMul(L, V)",
        lambda graph: graph.node[-2].attribute[0].g.input[2],
    ),
}


@pytest.mark.parametrize("nodes, value", OF_BODIES.values(), ids=OF_BODIES)
@pytest.mark.parametrize("shape", [[], [1], [1, 1], [1, 2], [3, 2], ["N", 1], ["N", 1, 2]], ids=str)
def test_false_shapes_of_outputs_and_bodies_are_not_believed(nodes, value, shape):
    """Gradients were wrong, or the derivative was refused, by onnxruntime when it ran or by a rule."""
    feeds = {"X": X, "W": W, "w": np.float32([0.5, 2]), "V": W[:2], "Y_grad": X[:, :2]}

    def with_weights(onx):
        onx.opset_import[0].version = 18
        for name in ("w", "V"):
            onx.graph.initializer.append(onnx.numpy_helper.from_array(feeds[name], name))

    right = changed(with_weights, nodes=nodes)
    false = onnx.ModelProto()
    false.CopyFrom(right)
    declared = value(false.graph)
    declared.CopyFrom(onnx.helper.make_tensor_value_info(declared.name, onnx.TensorProto.FLOAT, shape))
    derivatives = [onnx_derivative(onx) for onx in (right, false)]
    expected, found = (run(onx, {i.name: feeds[i.name] for i in onx.graph.input}) for onx in derivatives)
    for dx, dx_right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(dx, dx_right)


def test_nodes_in_another_order_are_inferred_at_once(monkeypatch):
    """onnx infers a type only after its operands' types, so nodes in reverse order took one inference each."""
    onx = model("P = MatMul(X, W) d0 = Identity(P) " + chain(40, "d{0} = Transpose(d{1})") + "Y = Neg(d40)")
    nodes = list(onx.graph.node)[::-1]
    del onx.graph.node[:]
    onx.graph.node.extend(nodes)
    infer, calls = onnx.shape_inference.infer_shapes, []
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", lambda *a, **k: (calls.append(1), infer(*a, **k))[1])
    onnx_derivative(onx)
    assert len(calls) < 20


def test_a_type_that_protobuf_writes_but_does_not_read():
    onx = model("Y = MatMul(X, W) Z = SequenceConstruct(Y)")
    value = onx.graph.output.add(name="Z").type
    for _ in range(90):
        value = value.optional_type.elem_type
    value.tensor_type.elem_type = onnx.TensorProto.FLOAT
    with pytest.raises(ModelError, match="The model cannot be read"):
        OrtGradientRegressor(onx, max_iter=1, output="Y").fit(X, X[:, :2])


def test_an_output_without_the_declared_columns():
    onx = changed(with_dims(3, 0))
    with pytest.raises(ModelError, match=r"'Y' is empty: it has shape \(6, 0\) for 6 rows"):
        OrtGradientClassifier(onx).fit(X, [0, 1] * 3)


@pytest.mark.parametrize("shape, words", [([2**62, 3], "too big|Maximum"), ([1] * 3000, "dimension")])
def test_an_input_that_no_array_fits_is_not_drawn(shape, words):
    value = onnx.helper.make_tensor_value_info("X", onnx.TensorProto.FLOAT, shape)
    with pytest.raises(DataError, match=f"'X' cannot be drawn: .*({words}).* Create its value yourself"):
        random_feed([value])


def test_an_output_that_has_values_only_where_it_is_optimized():
    """onnxruntime's optimizer removes this Expand, which leaves no columns, so that there seem to be some."""
    onx = model(
        "P = MatMul(X, W) a = Constant <value_ints = [1]> () M = ReduceMean <axes = [1]> (P) "
        "s = Constant <value_ints = [0]> () Y = Expand(M, s)",
        outputs="float[N, 1] Y",
    )
    with pytest.raises(ModelError, match=r"'Y' is empty: it has shape \(6, 0\) for 6 rows"):
        OrtGradientRegressor(onx, max_iter=1).fit(X, X[:, 0])


def labelled(n):
    casts = chain(n, "c{0} = Cast <to = 6> (d{1}) d{0} = Cast <to = 7> (c{0})")
    return model(f"S = MatMul(X, W) d0 = ArgMax <axis = 1> (S) {casts} Y = Identity(d{n})", outputs="int64[N, 1] Y")


def with_positions(n):
    turns = chain(n, "c{0} = Transpose <perm = [0, 2, 1]> (d{1}) d{0} = Transpose <perm = [0, 2, 1]> (c{0})")
    head = "a = Constant <value_ints = [1]> () U = Unsqueeze(X, a) P = MatMul(U, W) d0 = Softmax <axis = 2> (P)"
    return model(f"{head} {turns} Y = Transpose <perm = [0, 1, 2]> (d{n})", outputs="float[N, 1, 2] Y")


def guarded(n):
    """Another sum than that of the row, through nodes that take it n times each."""
    guards = chain(4, "d{0} = Max(" + ", ".join(["d{1}"] * n) + ")")
    head = "a = Constant <value_ints = [1]> () P = MatMul(X, W) E = Exp(P) d0 = ReduceSum(P, a)"
    return model(f"{head} {guards} Y = Div(E, d4)")


def turned(n):
    turns = chain(n, "c{0} = Transpose(d{1}) d{0} = Transpose(c{0})")
    return model(f"d0 = Identity(W) {turns} Y = MatMul(X, d{n})")


def summed(n):
    """The intercept of the last layer comes in n parts; a negative one says that the output is scores."""
    sums = chain(n, "d{0} = Add(d{1}, b)")
    head = f"b = Constant <value_floats = [{-1 / n}, 0]> ()"
    return model(f"{head} d0 = MatMul(X, W) {sums} Y = Identity(d{n})")


def cast(n):
    casts = chain(n, "c{0} = Cast <to = 11> (d{1}) d{0} = Cast <to = 1> (c{0})")
    return model(f"P = MatMul(X, W) d0 = Softmax(P) {casts} Y = Identity(d{n})")


def with_log_loss(onx):
    return add_loss_output(
        onx, "log", class_axis=2 if len(onx.graph.output[0].type.tensor_type.shape.dim) > 2 else None
    )


def with_new_layer(onx):
    return with_new_head(onx, 4, random_state=0)


CLASSES = {"label": np.arange(6).reshape(-1, 1) % 2}

#: Calls that walk through a graph, models of any length, and a length at which a call took minutes or was refused.
WALKS = {
    "labels behind changes of type": (with_log_loss, labelled, CLASSES, 550),
    "positions behind transposes": (with_log_loss, with_positions, CLASSES, 550),
    "a sum behind nodes that repeat it": (with_log_loss, guarded, CLASSES, 300),
    "an intercept in parts": (with_log_loss, summed, CLASSES, 1100),
    "probabilities behind changes of type": (onnx_derivative, cast, {"W": W, "Y_grad": X[:, :2]}, 550),
    "a layer behind transposes": (with_new_layer, turned, {}, 550),
}


@pytest.mark.parametrize("call, make, feeds, length", WALKS.values(), ids=WALKS)
def test_a_long_graph_is_read_as_a_short_one(call, make, feeds, length):
    found = [run(call(make(n)), {"X": X, **feeds}) for n in (length, 2)]
    for long, short in zip(*found, strict=True):
        np.testing.assert_allclose(long, short, rtol=1e-4)  # 1,100 sums are rounded in float32


def test_sums_that_branch_are_followed_once():
    """Following each branch would visit 2**60 paths."""
    doubled = " ".join(f"v{i + 1} = Add(v{i}, v{i})" for i in range(60))
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[n, t] x, float[n, t] mask) => (float[n, t] Y) {{
        v0 = Add(x, mask) {doubled} Y = Softmax(v60) }}"""
    )
    assert added_masks(onx) == {"mask"}


# ------------------------------------------------------------------------- rows

#: Models whose output has other rows than X: the operators, the axes of the output, the shape of y, the words.
OTHER_ROWS = {
    "a fixed Reshape, all rows": ("Y = Reshape(A, s)", "N, M", (6, 4), r"has shape \(2, 12\) for 6 rows of X"),
    "a fixed Reshape, declared": ("Y = Reshape(A, s)", "N, 4", (6, 4), r"has shape \(2, 12\) for 6 rows of X"),
    "a fixed Reshape, as many rows": ("Y = Reshape(A, s)", "N, M", (2, 4), r"has shape \(2, 6\) for 3 rows of X"),
}


@pytest.mark.parametrize("nodes, axes, shape, words", OTHER_ROWS.values(), ids=OTHER_ROWS)
def test_an_output_with_other_rows(nodes, axes, shape, words):
    onx = model(f"A = MatMul(X, V) {nodes}", outputs=f"float[{axes}] Y" if axes else "Y")
    for name, values in {"V": np.ones((3, 4), np.float32), "s": [2, -1]}.items():
        onx.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(values), name))
    with pytest.raises(ModelError, match=words):
        OrtGradientRegressor(onx, max_iter=1).fit(X[: shape[0]], np.zeros(shape))


def test_a_squeeze_keeps_the_rows():
    """It was refused, because it removes the axis of a single row."""
    squeezed, plain = (
        model(f"A = MatMul(X, V) B = Reshape(A, t) Y = {last}(B)", outputs="Y") for last in ("Squeeze", "Identity")
    )
    for onx in (squeezed, plain):
        for name, values in {"V": np.ones((3, 4), np.float32), "t": np.array([0, 2, 2])}.items():
            onx.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    found, expected = (
        OrtGradientRegressor(onx, max_iter=2, random_state=0).fit(X[:6], np.zeros((6, 2, 2)))
        for onx in (squeezed, plain)
    )
    assert found.loss_curve_ == expected.loss_curve_
    np.testing.assert_array_equal(found.predict(X[:1]), expected.predict(X[:1]))


# ------------------------------------------------------------------------ names


@pytest.mark.parametrize(
    "name, shown",
    {
        "\x1b[2Jw": r"\x1b[2Jw",
        "w\x9b31m": r"w\x9b31m",
        "w\x00": r"w\x00",
        "w\u202eb": r"w\u202eb",
        "w\ufffe": r"w\ufffe",
        "w\r\nx": r"w\r\nx",
        "<script>": "<script>",
        "$\\frac$": r"$\frac$",
    }.items(),
)
def test_names_with_control_characters(name, shown, tmp_path):
    """A terminal executes control characters, XML does not allow them, and matplotlib reads $ as mathematics."""
    onx = model()
    onx.graph.initializer[0].name = onx.graph.node[0].input[1] = name
    tuned = fit(onx)
    assert tuned.summary().__repr__().splitlines()[4].startswith(f"{shown}  MatMul")
    assert "<script>" not in tuned.summary()._repr_html_()
    svg = ET.fromstring(plot_graph(onx).to_svg())
    assert [
        g.get("data-name") for g in svg.iter("{http://www.w3.org/2000/svg}g") if g.get("data-stage") == "weight"
    ] == [shown.replace(r"\n", "\n")]
    pytest.importorskip("matplotlib").use("agg")
    WeightsDisplay.from_estimator(tuned).figure_.savefig(tmp_path / "weights.svg")
    ET.parse(tmp_path / "weights.svg")
    with pytest.raises(OnnxTrainError) as e:
        OrtGradientRegressor(onx, weights_to_train="none").fit(X, X[:, :2])
    assert shown.replace(r"\n", "\n") in str(e.value)


def test_trees_whose_rows_have_no_declared_shape():
    rows = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    trees = GradientBoostingRegressor(n_estimators=2, max_depth=1, random_state=0).fit(rows, rows[:, 0])
    onx = to_onnx(trees, rows[:1])
    onx.graph.input[0].type.tensor_type.ClearField("shape")
    tuned = OrtGradientRegressor(onx, learning_rate=1e-9, max_iter=1).fit(rows.tolist(), rows[:, 0])
    np.testing.assert_allclose(tuned.predict(rows), trees.predict(rows), atol=1e-5)
