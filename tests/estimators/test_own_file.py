"""The file that comes out is the file that came in: its nodes, and every initializer that was not trained."""

from __future__ import annotations

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest
from onnx import TensorProto, helper

from onnxtrain import OrtGradientRegressor, load, save
from onnxtrain.runtime.session import run

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4)).astype(np.float32)
Y = np.tanh(X[:, 0] - X[:, 1])

OLD = '<ir_version: 8, opset_import: ["" : 15], producer_name: "another\'s", metadata_props: ["kept": "yes"]>'
NET = "g (float[n, 4] X) => (float[n, 1] Y) { unused = Identity(X) H = MatMul(X, W) R = Relu(H) Z = MatMul(R, V) Y = Add(Z, c) }"
SHAPES = {"W": (4, 3), "V": (3, 1), "c": (1,)}


def drawn(shape):
    return RNG.standard_normal(shape).astype(np.float32)


def parsed(text, dtype=np.float32, **shapes):
    onx = onnx.parser.parse_model(text)
    weights = {name: drawn(shape).astype(dtype) for name, shape in (shapes or SHAPES).items()}
    onx.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    return onx


def metadata():
    onx = parsed(OLD + NET)
    onx.doc_string, onx.graph.doc_string, onx.domain, onx.model_version = "of the model", "of the graph", "org", 7
    onx.graph.node[1].doc_string = "of a node"
    onx.graph.node[1].name = "first"
    value = onx.graph.value_info.add()
    value.CopyFrom(helper.make_tensor_value_info("H", TensorProto.FLOAT, ["n", 3]))
    onx.training_info.add().algorithm.name = "of another"
    return onx


def constants():
    onx = parsed(OLD + NET)
    for w in onx.graph.initializer:
        onx.graph.node.insert(0, helper.make_node("Constant", [], [w.name], value=w))
    del onx.graph.initializer[:]
    return onx


def listed_floats():
    """A Constant node that lists floats instead of a tensor."""
    onx = parsed(OLD + NET)
    c = onx.graph.initializer.pop()
    floats = onnx.numpy_helper.to_array(c).tolist()
    onx.graph.node.insert(0, helper.make_node("Constant", [], [c.name], value_floats=floats))
    return onx


def named_domain():
    """A node of the domain ai.onnx, which is another name for the empty one."""
    onx = parsed(OLD + NET)
    onx.graph.node[1].domain = "ai.onnx"
    return onx


def float_data():
    """Elements in the field of their type, not as bytes."""
    onx = parsed(OLD + NET)
    for w in onx.graph.initializer:
        array = onnx.numpy_helper.to_array(w)
        w.CopyFrom(helper.make_tensor(w.name, TensorProto.FLOAT, array.shape, array.ravel()))
    return onx


def listed():
    """Initializers that are inputs as well, as before IR version 4."""
    onx = parsed(OLD + NET)
    onx.graph.input.extend(
        helper.make_tensor_value_info(w.name, TensorProto.FLOAT, w.dims) for w in onx.graph.initializer
    )
    return onx


def quantized():
    onx = parsed(
        OLD + NET.replace("H = MatMul(X, W)", "w = DequantizeLinear(W, s) H = MatMul(X, w)"), s=(), V=(3, 1), c=(1,)
    )
    onx.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.float32(0.1), "s"))
    onx.graph.initializer.append(onnx.numpy_helper.from_array(RNG.integers(-9, 9, (4, 3)).astype(np.int8), "W"))
    return onx


SOURCES = {
    "opset 15, IR 8": lambda: parsed(OLD + NET),
    "opset 9, IR 3": lambda: parsed(OLD.replace("15", "9").replace("ir_version: 8", "ir_version: 4") + NET),
    "metadata": metadata,
    "Constant nodes": constants,
    "a Constant node that lists floats": listed_floats,
    "the domain ai.onnx": named_domain,
    "float_data": float_data,
    "listed initializers": listed,
    "float16": lambda: parsed(OLD + NET.replace("float[", "float16["), np.float16),
    "quantized": quantized,
    "a function": lambda: parsed(
        """<ir_version: 8, opset_import: ["" : 15, "local" : 1]>
        g (float[n, 4] X) => (float[n, 1] Y) { H = local.dense(X, W) Z = local.dense(H, V) Y = Add(Z, c) }
        <domain: "local", opset_import: ["" : 15]>
        dense (x, w) => (y) { half = Constant <value_float = 0.5> () z = MatMul(x, w) s = Mul(z, half) y = Tanh(s) }"""
    ),
    "a subgraph": lambda: parsed(
        OLD
        + """g (float[n, 4] X) => (float[n, 1] Y) { H = MatMul(X, W) t = Constant <value_float = 0.0> () x = Mul(X, X)
            s = ReduceSum(x) q = Squeeze(s) b = Greater(q, t)
            R = If (b) <then_branch = a () => (float[n, 3] p) { p = Relu(H) },
                        else_branch = e () => (float[n, 3] p) { p = Tanh(H) }>
            Z = MatMul(R, V) Y = Add(Z, c) }"""
    ),
    "a fixed batch": lambda: parsed(OLD + NET.replace("[n,", "[10,")),
}


def stripped(onx, names):
    """Return a model without the bytes of some weights."""
    left = onnx.ModelProto()
    left.CopyFrom(onx)
    holders = {t.name: t for t in left.graph.initializer}
    constants = {n.output[0]: n.attribute[0] for n in left.graph.node if n.op_type == "Constant"}
    holders.update((name, a.t) for name, a in constants.items() if a.HasField("t"))
    for name in names:
        if name not in holders:
            constants[name].ClearField("floats")
            continue
        for field in ("raw_data", "float_data", "int32_data"):
            holders[name].ClearField(field)
    return left.SerializeToString(deterministic=True)


def fields_of(onx):
    """Return the fields of protobuf that initializers use, by name."""
    return {w.name: [field.name for field, _ in w.ListFields()] for w in onx.graph.initializer}


@pytest.mark.parametrize("trained", [["V", "c"], None], ids=["some weights", "all weights"])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_all_but_what_was_trained_is_equal(source, trained, tmp_path):
    onx = source()
    model = OrtGradientRegressor(onx, weights_to_train=trained, max_iter=5, learning_rate=0.05, random_state=0)
    model.fit(X, Y)
    assert set(model.weights_) == set(trained or SHAPES)
    found = model.get_trained_onnx()
    assert found.SerializeToString(deterministic=True) != onx.SerializeToString(deterministic=True)
    assert stripped(found, model.weights_) == stripped(onx, model.weights_)
    assert fields_of(found) == fields_of(onx)
    save(model, tmp_path / "kept.onnx")
    assert load(tmp_path / "kept.onnx").get_trained_onnx() == found


# ------------------------------------------------------------ half precision


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("rate, lost", [(1e-7, True), (0.05, False)])
def test_small_steps_are_lost_in_half_precision(kind, rate, lost, recwarn):
    dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(kind.upper()))
    casts = NET.replace("H = MatMul(X, W)", "w = Cast <to = 1> (W) v = Cast <to = 1> (V) H = MatMul(X, w)")
    onx = parsed(OLD + casts.replace("MatMul(R, V)", "MatMul(R, v)"), c=(1,))
    onx.graph.initializer.extend(
        onnx.numpy_helper.from_array(drawn(SHAPES[name]).astype(dtype), name) for name in ("W", "V")
    )
    model = OrtGradientRegressor(onx, max_iter=5, solver="sgd", learning_rate=rate, weights_to_train=["W", "V"])
    model.fit(X, Y)
    recwarn.clear()
    model.get_trained_onnx()
    said = [str(w.message) for w in recwarn]
    assert len(said) == lost
    assert all("half precision" in text and "larger learning_rate" in text for text in said)


# ------------------------------------------------- results with another type than declared


def declared_falsely(name, elem_type, shape=("n", 1)):
    """Return a network with an output or an inner value that is declared with another type or shape."""
    onx = parsed(OLD + NET.replace("(float[n, 1] Y)", "(float[n, 1] Y, float[n, 1] Z)"))
    value = next((v for v in onx.graph.output if v.name == name), None) or onx.graph.value_info.add()
    value.CopyFrom(helper.make_tensor_value_info(name, elem_type, shape))
    return onx


FALSE = {
    "double": ("Y", TensorProto.DOUBLE),
    "int64": ("Y", TensorProto.INT64),
    "string": ("Y", TensorProto.STRING),
    "undefined": ("Y", TensorProto.UNDEFINED),
    "another output": ("Z", TensorProto.DOUBLE),
    "an inner value": ("H", TensorProto.DOUBLE, ("n", 3)),
    "a shape": ("Y", TensorProto.FLOAT, ("n", 3)),
    "a rank": ("Y", TensorProto.FLOAT, ("n",)),
    "an earlier batch": ("Y", TensorProto.FLOAT, (5, 1)),
}


@pytest.mark.parametrize("given", FALSE.values(), ids=FALSE)
def test_false_declarations_are_true_in_the_trained_file(given, tmp_path):
    """onnxruntime refuses a file whose results have other element types than declared."""
    model = OrtGradientRegressor(declared_falsely(*given), output="Y", max_iter=3, random_state=0).fit(X, Y)
    save(model, tmp_path / "kept.onnx")
    for fitted in (model, load(tmp_path / "kept.onnx")):
        found = fitted.get_trained_onnx()
        np.testing.assert_allclose(run(found, {"X": X})[0].ravel(), model.predict(X), rtol=1e-5, atol=1e-6)
        assert [helper.printable_value_info(y) for y in found.graph.output] == ["%Y[FLOAT, nx1]", "%Z[FLOAT, nx1]"]


# ------------------------------------------------------- weights in other files

PLACES = {
    "one file": dict(location="net.data", size_threshold=0),
    "a file each": dict(all_tensors_to_one_file=False, size_threshold=0),
    "some inside": dict(location="net.data", size_threshold=40),
}


def read(path):
    """Return a model with the weights that are in files beside it."""
    onx = onnx.load(path)
    for w in onx.graph.initializer:
        w.ClearField("data_location")  # onnx says of those that it read that they are inside
    return onx


@pytest.mark.parametrize("options", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("loaded", [False, True], ids=["fitted", "loaded"])
def test_weights_in_other_files_go_to_such_files(options, loaded, tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    onnx.save_model(parsed(OLD + NET), there / "net.onnx", save_as_external_data=True, **options)
    before = {p.name: p.read_bytes() for p in there.iterdir()}
    model = OrtGradientRegressor(there / "net.onnx", max_iter=5, learning_rate=0.05, random_state=0).fit(X, Y)
    if loaded:
        save(model, tmp_path / "kept.onnx")
        model = load(tmp_path / "kept.onnx")
    found = model.get_trained_onnx(path=here / "net.onnx")
    assert sorted(p.name for p in here.iterdir()) == sorted(before)
    assert read(here / "net.onnx") == found
    bare = [onnx.load(folder / "net.onnx", load_external_data=False) for folder in (there, here)]
    assert [n.SerializeToString() for n in bare[0].graph.node] == [n.SerializeToString() for n in bare[1].graph.node]
    places = [
        {w.name: sorted((e.key, e.value) for e in w.external_data) for w in onx.graph.initializer} for onx in bare
    ]
    assert places[0] == places[1]
    np.testing.assert_allclose(run(found, {"X": X})[0].ravel(), model.predict(X), rtol=1e-5, atol=1e-6)
    assert {p.name: p.read_bytes() for p in there.iterdir()} == before


def test_files_of_another_model_stay(tmp_path):
    onnx.save_model(parsed(OLD + NET), tmp_path / "net.onnx", save_as_external_data=True, **PLACES["one file"])
    before = (tmp_path / "net.data").read_bytes()
    model = OrtGradientRegressor(tmp_path / "net.onnx", max_iter=3, random_state=0).fit(X, Y)
    for _ in range(2):  # its own are replaced
        found = model.get_trained_onnx(path=tmp_path / "tuned.onnx")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["net.data", "net.onnx", "tuned.net.data", "tuned.onnx"]
    assert (tmp_path / "net.data").read_bytes() == before
    assert read(tmp_path / "tuned.onnx") == found


def test_a_folder_that_is_missing_is_named(tmp_path):
    model = OrtGradientRegressor(parsed(OLD + NET), max_iter=1).fit(X, Y)
    with pytest.raises(OSError, match="cannot be written: No such file or directory"):
        model.get_trained_onnx(path=tmp_path / "nowhere" / "net.onnx")


# -------------------------------------------------------- weights that were merged


def test_weights_that_an_exporter_had_merged_become_those_of_their_nodes():
    """Two normalizations of a network that was not trained share a scale of ones, and an intercept of zeros."""
    onx = parsed(
        OLD
        + """g (float[n, 4] X) => (float[n, 1] Y) { H = MatMul(X, W) N = BatchNormalization(H, ones, zeros, zeros, ones)
            R = Relu(N) U = MatMul(R, T) M = BatchNormalization(U, ones, zeros, zeros, ones) Q = Tanh(M) Y = MatMul(Q, V) }""",
        W=(4, 3),
        T=(3, 3),
        V=(3, 1),
    )
    for name, value in {"ones": np.ones(3), "zeros": np.zeros(3)}.items():
        onx.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), name))
    model = OrtGradientRegressor(onx, max_iter=5, learning_rate=0.05, random_state=0).fit(X, Y)
    assert len(model.weights_) == 7
    found = model.get_trained_onnx()
    assert found.opset_import[0].version == 15
    assert [n.op_type for n in found.graph.node] == [n.op_type for n in onx.graph.node]
    changed = [a.op_type for a, b in zip(onx.graph.node, found.graph.node, strict=True) if a != b]
    assert set(changed) == {"BatchNormalization"}
    np.testing.assert_allclose(run(found, {"X": X})[0].ravel(), model.predict(X), rtol=1e-4, atol=1e-5)
    some = OrtGradientRegressor(onx, weights_to_train=["W"], max_iter=2, random_state=0).fit(X, Y).get_trained_onnx()
    assert stripped(some, ["W"]) == stripped(onx, ["W"])


def test_weights_inside_a_function_come_out_in_its_place():
    onx = parsed(
        """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[n, 4] X) => (float[n, 1] Y) { H = local.dense(X) Y = MatMul(H, V) }
        <domain: "local", opset_import: ["" : 21]>
        dense (x) => (y) { w = Constant <value_floats = [1.0, 2.0, 3.0, 4.0]> () z = Mul(x, w) y = Tanh(z) }""",
        V=(4, 1),
    )
    model = OrtGradientRegressor(onx, max_iter=3, learning_rate=0.05, random_state=0).fit(X, Y)
    assert len(model.weights_) == 2
    with pytest.warns(UserWarning, match="Weights inside functions of the model were trained"):
        found = model.get_trained_onnx()
    np.testing.assert_allclose(run(found, {"X": X})[0].ravel(), model.predict(X), rtol=1e-5, atol=1e-6)
