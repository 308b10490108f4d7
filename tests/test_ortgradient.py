"""Forward and backward with the loss in between: against sessions, PyTorch and central differences, and misuse."""

from __future__ import annotations

import functools
import io
import logging
import pickle
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import _pybind_state as native

from onnxtrain import graph as graphs
from onnxtrain import training_build
from onnxtrain.errors import DataError, DeviceError, GradientError, ModelError, OnnxTrainError, WeightError
from onnxtrain.ortgradient import OrtGradientForwardBackward, OrtGradientForwardBackwardFunction, _factory
from onnxtrain.runtime.device import Device
from onnxtrain.runtime.session import run
from tests.devices import HAS_GPU

try:
    import torch
except ImportError:
    torch = None

needs_training = pytest.mark.skipif(
    not training_build.is_available(), reason="needs the training build of onnxruntime: onnxtrain[training-cpu]"
)
BUILDERS = ["builtin", pytest.param("onnxruntime-training", marks=needs_training)]
CPU = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)


def model(text):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def deep_network():
    """Three layers, each of three heads with a matrix and a bias: 18 weights whose names do not sort."""
    rng = np.random.default_rng(0)
    nodes, initializers, x = [], [], "X"
    for layer in range(3):
        heads = []
        for head in range(3):
            i = 6 * layer + 2 * head
            for name, shape in ((f"w{i}", (3, 1)), (f"w{i + 1}", (1,))):
                initializers.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
            nodes.append(onnx.helper.make_node("Gemm", [x, f"w{i}", f"w{i + 1}"], [f"head{i}"]))
            heads.append(f"head{i}")
        nodes.append(onnx.helper.make_node("Concat", heads, [f"layer{layer}"], axis=1))
        x = f"layer{layer}" if layer == 2 else f"active{layer}"
        if layer < 2:
            nodes.append(onnx.helper.make_node("Tanh", [f"layer{layer}"], [x]))
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "deep", [info("X", 1, ["N", 3])], [info(x, 1, ["N", 3])], initializers)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def deep_torch(x, *weights):
    for layer in range(3):
        heads = [x @ weights[6 * layer + 2 * h] + weights[6 * layer + 2 * h + 1] for h in range(3)]
        x = torch.cat(heads, dim=1)
        if layer < 2:
            x = torch.tanh(x)
    return (x,)


#: name -> the model, and the same in PyTorch, a function of the real inputs and the weights
MODELS = {
    "linear regression": (
        model(
            "g (float[N,3] X) => (float[N,1] Y) <float[3,1] coef = {1,2,3}, float[1] b = {0.5}>"
            "{ m = MatMul(X, coef) Y = Add(m, b) }"
        ),
        lambda x, w, b: (x @ w + b,),
    ),
    "logistic regression": (
        model(
            "g (float[N,3] X) => (float[N,2] P) <float[3,2] W = {1,-2,3,0.5,0.1,-1}, float[2] b = {0.5,0}>"
            "{ m = MatMul(X, W) s = Add(m, b) P = Softmax<axis = -1>(s) }"
        ),
        lambda x, w, b: (torch.softmax(x @ w + b, dim=1),),
    ),
    "labels beside probabilities": (
        model(
            "g (float[N,3] X) => (int64[N] L, float[N,2] P) <float[3,2] W = {1,-2,3,0.5,0.1,-1}>"
            "{ s = MatMul(X, W) P = Sigmoid(s) L = ArgMax<axis = 1, keepdims = 0>(s) }"
        ),
        lambda x, w: (torch.sigmoid(x @ w),),
    ),
    "three layers, 18 weights": (deep_network(), deep_torch),
    "two outputs": (
        model(
            "g (float[N,3] X, float[N,2] Z) => (float[N,2] A, float[N,2] B) <float[3,2] W = {1,-2,3,0.5,0.1,-1}>"
            "{ m = MatMul(X, W) A = Mul(m, Z) B = Tanh(A) }"
        ),
        lambda x, z, w: (x @ w * z, torch.tanh(x @ w * z)),
    ),
    "an output that is an input of the other": (
        model(
            "g (float[N,3] X) => (float[N,3] Y, float[N,3] X2) <float[3] w = {1,2,3}>{ X2 = Identity(X) Y = Mul(X, w) }"
        ),
        lambda x, w: (x * w, x),
    ),
    "outputs that are inputs, a weight that reaches none": (
        model(
            "g (float[N,3] X, int64[N,2] I) => (float[N,3] Y, int64[N,2] J) <float[3] w = {1,2,3}>"
            "{ Y = Identity(X) J = Identity(I) Z = Mul(Y, w) }"
        ),
        None,
    ),
    "gradients passed on as they are": (
        model("g (float[N,3] X, float[N,3] Z) => (float[N,3] Y) <float[3] w = {1,2,3}>{ a = Add(X, Z) Y = Add(a, w) }"),
        lambda x, z, w: (x + z + w,),
    ),
    "embedding": (
        model(
            "g (int64[N,2] I, float[N,2,2] X) => (float[N,2,2] Y) <float[4,2] E = {1,2,3,4,5,6,7,8}>"
            "{ e = Gather(E, I) Y = Mul(e, X) }"
        ),
        None,
    ),
}
INDICES = np.array([[0, 3], [1, 1], [2, 0], [3, 1], [0, 0]])


def case(name, builder, dtype="float32", **options):
    """Return the class for a model, its inputs and weights, and the incoming gradients."""
    onx = MODELS[name][0]
    if dtype == "float64":
        double = graphs.load(onx)
        graphs.cast_floats(double, ir.DataType.DOUBLE)
        onx = ir.to_proto(double)
    made = OrtGradientForwardBackward(onx, builder=builder, **options)
    rng = np.random.default_rng(0)
    inputs = []
    for t in made.cls_type_._graphs.inputs:
        weight = made.get_initializer(t.name, exc=False)
        shape = [5 if isinstance(d, str) else d for d in t.shape]
        inputs.append(weight if weight is not None else rng.normal(size=shape).astype(dtype) if t.is_real else INDICES)
    outputs = made.new_instance().forward(inputs)
    dys = [
        rng.normal(size=y.shape()).astype(dtype)
        for y in outputs
        if "float" in y.data_type() or "double" in y.data_type()
    ]
    return made, inputs, dys


def central_differences(onx, names, inputs, dys, outputs):
    """Return the gradient of each real input by central differences in float64."""
    double = graphs.load(onx)
    graphs.cast_floats(double, ir.DataType.DOUBLE)
    evaluator = ReferenceEvaluator(graphs.save(double))
    arrays = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in zip(names, inputs, strict=True)}

    def total():
        found = evaluator.run(outputs, arrays)
        return sum((y * dy).sum() for y, dy in zip(found, dys, strict=True))

    gradients, step = [], 1e-5
    for array in (a for a in arrays.values() if a.dtype.kind == "f"):
        found = np.zeros_like(array)
        for i in np.ndindex(array.shape):
            kept = array[i]
            array[i] = kept + step
            up = total()
            array[i] = kept - step
            found[i] = (up - total()) / (2 * step)
            array[i] = kept
        gradients.append(found)
    return gradients


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("name", MODELS)
def test_forward_is_the_session(name, training, builder):
    made, inputs, _ = case(name, builder)
    found = made.new_instance().forward(inputs, training=training)
    feeds = dict(zip(made.cls_type_._input_names, inputs, strict=False))
    for y, expected in zip(found, run(MODELS[name][0], feeds), strict=True):
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6)


#: what onnxruntime-training derives and cannot run
WITHOUT_KERNELS = {
    ("logistic regression", "onnxruntime-training", "float64"): "SoftmaxGrad",
    ("three layers, 18 weights", "onnxruntime-training", "float64"): "Concat .* only in float32",
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("name", MODELS)
def test_backward_is_the_derivative(name, builder, dtype):
    if (name, builder, dtype) in WITHOUT_KERNELS:
        with pytest.raises(GradientError, match=WITHOUT_KERNELS[name, builder, dtype]):
            case(name, builder, dtype)
        return
    made, inputs, dys = case(name, builder, dtype)
    function = made.new_instance()
    function.forward(inputs, training=True)
    found = [dx.numpy() for dx in function.backward(dys)]
    g = made.cls_type_._graphs
    rtol = 1e-5 if dtype == "float32" else 1e-7
    real = [y.name for y in g.outputs if y.is_real]
    evaluation = onnx.load_model_from_string(g.evaluation)
    expected = central_differences(evaluation, [t.name for t in g.inputs], inputs, dys, real)
    for dx, number in zip(found, expected, strict=True):
        np.testing.assert_allclose(dx, number, rtol=max(rtol, 1e-6), atol=1e-5 if dtype == "float32" else 1e-7)
    if torch is not None and MODELS[name][1] is not None:
        tensors = [torch.tensor(a, requires_grad=True) for a in inputs]
        outputs = MODELS[name][1](*tensors)
        expected = torch.autograd.grad(outputs, tensors, [torch.tensor(dy) for dy in dys])
        for dx, tensor in zip(found, expected, strict=True):
            np.testing.assert_allclose(dx, tensor.numpy(), rtol=rtol, atol=1e-6)


@needs_training
@pytest.mark.parametrize("name", MODELS)
def test_the_agent_runs_the_graph_of_the_built_in_rules(name, monkeypatch):
    usual, inputs, dys = case(name, "builtin")
    monkeypatch.setattr(_factory, "yield_graphs", functools.partial(_factory.yield_graphs, builder="builtin"))
    made, _, _ = case(name, "onnxruntime-training")
    a, b = usual.new_instance(), made.new_instance()
    for function in (a, b):
        function.forward(inputs, training=True)
    for x, y in zip(a.backward(dys), b.backward(dys), strict=True):
        np.testing.assert_allclose(y.numpy(), x.numpy(), rtol=1e-6)


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("builder", BUILDERS)
def test_an_embedding_is_torchs(builder):
    made, inputs, dys = case("embedding", builder)
    function = made.new_instance()
    function.forward(inputs, training=True)
    table, x = torch.tensor(inputs[2], requires_grad=True), torch.tensor(inputs[1], requires_grad=True)
    y = torch.nn.functional.embedding(torch.tensor(inputs[0]), table) * x
    expected = torch.autograd.grad(y, [x, table], torch.tensor(dys[0]))
    for dx, tensor in zip(function.backward(dys), expected, strict=True):
        np.testing.assert_allclose(dx.numpy(), tensor.numpy(), rtol=1e-6)


@pytest.mark.parametrize("builder", BUILDERS)
def test_weights_and_inputs_in_any_order(builder):
    usual, inputs, dys = case("two outputs", builder)
    order = OrtGradientForwardBackward(
        MODELS["two outputs"][0], ["W"], ["Z", "X"], ["B", "A"], class_name="Turned", builder=builder
    )
    assert order.cls_type_._onx_inp == ["Z", "X", "W"]
    assert order.cls_type_._onx_out == ["Z_grad", "X_grad", "W_grad"]
    assert order.cls_type_.__name__ == "Turned"
    first, second = usual.new_instance(), order.new_instance()
    first.forward(inputs, training=True)
    second.forward([inputs[1], inputs[0], inputs[2]], training=True)
    expected = first.backward(dys)
    found = second.backward(dys[::-1])
    for i, j in enumerate([1, 0, 2]):
        np.testing.assert_allclose(found[i].numpy(), expected[j].numpy(), rtol=1e-6)


@pytest.mark.parametrize("builder", BUILDERS)
def test_weights_in_the_order_asked(builder):
    names = [f"w{i}" for i in range(18)]
    asked = names[::-1]
    made = OrtGradientForwardBackward(MODELS["three layers, 18 weights"][0], asked, builder=builder)
    assert made.cls_type_._weights_to_train == asked
    assert made.cls_type_._bw_fetches_names == ["X_grad", *(f"{name}_grad" for name in asked)]
    usual, inputs, dys = case("three layers, 18 weights", builder)
    a, b = usual.new_instance(), made.new_instance()
    a.forward(inputs, training=True)
    b.forward([inputs[0], *inputs[:0:-1]], training=True)
    expected, found = list(a.backward(dys)), list(b.backward(dys))
    for x, y in zip([found[0], *found[:0:-1]], expected, strict=True):
        np.testing.assert_array_equal(x.numpy(), y.numpy())


@pytest.mark.parametrize("builder", BUILDERS)
def test_some_weights_stay_and_some_inputs_get_no_gradient(builder):
    made = OrtGradientForwardBackward(
        MODELS["linear regression"][0],
        graph_builder_config=SimpleNamespace(initializer_names_to_train=["b"], input_names_require_grad=["other"]),
        builder=builder,
    )
    assert made.cls_type_._onx_inp == ["X", "b"]
    assert made.cls_type_._onx_out == ["b_grad"]
    function = made.new_instance()
    function.forward([np.ones((4, 3), np.float32), np.ones(1, np.float32)], training=True)
    (db,) = function.backward([np.ones((4, 1), np.float32)])
    np.testing.assert_array_equal(db.numpy(), [4])


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize(
    "name", ["outputs that are inputs, a weight that reaches none", "gradients passed on as they are"]
)
def test_results_have_memory_of_their_own(name, builder):
    made, inputs, dys = case(name, builder)
    function = made.new_instance()
    found = list(function.forward(inputs, training=True))
    found += function.backward(dys)
    given = {a.ctypes.data for a in (*inputs, *dys)}
    assert not [y for y in found if y.data_ptr() in given]


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("form", ["numpy", "OrtValue", "OrtValueVector"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (4, 1)])
def test_a_gradient_is_stretched_to_its_output(shape, form, builder):
    onx = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[rows, 2] X) => (float[rows, 3] Y) <float[2, 3] W = {1, 2, 3, 4, 5, 6}> { Y = MatMul(X, W) }"""
    )
    function = OrtGradientForwardBackward(onx, builder=builder).new_instance()
    X, W = np.arange(8, dtype=np.float32).reshape(4, 2), np.arange(6, dtype=np.float32).reshape(2, 3)
    dy = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    whole = np.broadcast_to(dy, (4, 3))
    function.forward([X, W], training=True)
    dX, dW = function.backward(FORMS[form]([dy]))
    np.testing.assert_array_equal(dX.numpy(), whole @ W.T)
    np.testing.assert_array_equal(dW.numpy(), X.T @ whole)


def test_a_gradient_that_does_not_stretch_is_refused():
    made, inputs, _ = case("embedding", "builtin")
    function = made.new_instance()
    (y,) = function.forward(inputs, training=True)
    with pytest.raises(DataError, match="must have shape|must have . axes"):
        function.backward([np.ones((*y.shape(), 2), np.float32)])
    assert len(function.states_) == 1


def as_vector(arrays):
    found = native.OrtValueVector()
    for array in arrays:
        found.push_back(native.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), CPU))
    return found


#: what tensors may come in as
FORMS = {
    "numpy": list,
    "strided": lambda arrays: [np.asfortranarray(np.repeat(a, 2, axis=0))[::2] for a in arrays],
    "OrtValue": lambda arrays: [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in arrays],
    "its C class": lambda arrays: [native.OrtValue.ortvalue_from_numpy(a, CPU) for a in arrays],
    "OrtValueVector": as_vector,
    "tuple": tuple,
    "torch": lambda arrays: [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays],
}


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("form", FORMS)
def test_what_comes_in(form, builder):
    if form == "torch" and torch is None:
        pytest.skip("needs torch")
    made, inputs, dys = case("embedding", builder)
    function = made.new_instance()
    outputs = native.OrtValueVector()
    assert function.forward(FORMS[form](inputs), True, forward_outputs_cache=outputs) is outputs
    assert len(function.saved_tensors) == len(inputs)
    found = function.backward(FORMS[form](dys), backward_outputs_cache=native.OrtValueVector())
    assert isinstance(found, native.OrtValueVector)
    function.forward(inputs, training=True)
    for a, b in zip(found, function.backward(dys), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("builder", BUILDERS)
def test_several_forwards_before_the_backwards(builder):
    made, inputs, dys = case("two outputs", builder)
    function = made.new_instance()
    batches = [[a[: 2 + i] if a.shape[0] == 5 else a for a in inputs] for i in range(3)]
    expected = []
    for batch in batches:
        function.forward(batch, training=True)
        expected.append([dx.numpy().copy() for dx in function.backward([dy[: len(batch[0])] for dy in dys])])
    for batch in batches:
        function.forward(batch, training=True)
        function.forward(batch)  # an evaluation in between changes nothing
    for batch, gradients in zip(batches[::-1], expected[::-1], strict=True):
        for dx, number in zip(function.backward([dy[: len(batch[0])] for dy in dys]), gradients, strict=True):
            np.testing.assert_array_equal(dx.numpy(), number)
    with pytest.raises(DataError, match="no forward pass to differentiate"):
        function.backward(dys)


@pytest.mark.parametrize("builder", BUILDERS)
def test_pickling(builder):
    made, inputs, dys = case("logistic regression", builder, sess_options=onnxruntime.SessionOptions())
    again = pickle.loads(pickle.dumps(made))
    assert repr(again) == repr(made) == "OrtGradientForwardBackward(...)"
    first, second = made.new_instance(), again.new_instance()
    for function in (first, second):
        function.forward(inputs, training=True)
    for a, b in zip(first.backward(dys), second.backward(dys), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("builder", BUILDERS)
def test_the_graphs_can_be_saved(builder, tmp_path):
    made, _, _ = case("logistic regression", builder)
    content = made.save_onnx_graph(bytes)
    files = made.save_onnx_graph(tmp_path, prefix="a_", suffix="_b")
    assert {"model", "evaluation", "training"} <= content.keys() == files.keys()
    for name, path in files.items():
        assert path.endswith(f"a_{name}_b.onnx")
        with open(path, "rb") as f:
            assert f.read() == content[name]
        onnx.load(io.BytesIO(content[name]))
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        made.save_onnx_graph(tmp_path / "nowhere")


def test_initializers():
    made, _, _ = case("linear regression", "builtin")
    np.testing.assert_array_equal(made.get_initializer("b"), np.array([0.5], np.float32))
    assert made.get_initializer("c", exc=False) is None
    with pytest.raises(WeightError, match="Did you mean 'coef'"):
        made.get_initializer("coeff")


def test_logging(caplog):
    with caplog.at_level(logging.DEBUG, "onnxtrain"):
        made, inputs, dys = case("linear regression", "builtin", enable_logging=True)
        function = made.new_instance()
        function.forward(inputs, training=True)
        function.backward(dys)
    assert "weights_to_train=['coef', 'b']" in caplog.text
    assert "gradients" in caplog.messages[-1]


def test_the_device_of_a_tensor():
    assert OrtGradientForwardBackwardFunction.device_name(CPU) == "Cpu"
    with pytest.raises(DeviceError, match="Expected an OrtDevice"):
        OrtGradientForwardBackwardFunction.device_name("cpu")
    vector = OrtGradientForwardBackwardFunction.input_to_ort([np.ones(2)], [CPU], True)
    assert isinstance(vector, native.OrtValueVector)
    with pytest.raises(DataError, match="Expected 1 tensors"):
        OrtGradientForwardBackwardFunction.input_to_ort([], [CPU], True)


#: arguments of the constructor -> the error, and its words
REFUSED = [
    ({"weights_to_train": ["nope"]}, WeightError, "Known: b, coef"),
    ({"weights_to_train": ["b", "b"]}, WeightError, "twice"),
    ({"input_names": ["X", "X"]}, ModelError, "once"),
    ({"input_names": []}, ModelError, "missing"),
    ({"output_names": ["Z"]}, ModelError, "no output 'Z'"),
    ({"output_names": []}, ModelError, "at least one"),
    ({"providers": ["NONE"]}, DeviceError, "must be CPUExecutionProvider"),
    ({"providers": "tpu"}, DeviceError, "Unknown device"),
    ({"builder": "bultin"}, ValueError, "Did you mean 'builtin'"),
    ({"onnx_model": b"no model"}, ModelError, "cannot be read"),
    (
        {"onnx_model": model("g (float[N] X) => (float[N] Y) { Y = Identity(X) }")},
        WeightError,
        "no floating-point initializer to train",
    ),
    (
        {"onnx_model": model("g (float[N] X) => (float[N] Y) <float[1] w = {1}> { a = Mul(X, w) Y = my.Op(a) }")},
        OnnxTrainError,
        "Op",
    ),
]


@pytest.mark.parametrize("arguments, error, words", REFUSED)
def test_what_is_refused_at_once(arguments, error, words):
    with pytest.raises(error, match=words):
        OrtGradientForwardBackward(**{"onnx_model": MODELS["linear regression"][0]} | arguments)


@pytest.mark.skipif(HAS_GPU, reason="for a machine without a GPU")
@pytest.mark.parametrize(
    "providers", ["cuda", "cuda:1", "gpu", ["CUDAExecutionProvider"], SimpleNamespace(type="cuda", index=0)]
)
def test_no_gpu(providers):
    with pytest.raises(DeviceError, match="CUDAExecutionProvider"):
        OrtGradientForwardBackward(MODELS["linear regression"][0], providers=providers)


def test_a_device_whose_memory_no_other_library_reads(monkeypatch):
    monkeypatch.setattr("onnxtrain.ortgradient._factory.find_device", lambda name: Device("webgpu"))
    with pytest.raises(
        DeviceError, match="device 'webgpu' cannot share tensors with other libraries. Use 'cpu' or 'cuda'"
    ):
        OrtGradientForwardBackward(MODELS["linear regression"][0], providers="webgpu")
    OrtGradientForwardBackward(MODELS["linear regression"][0], providers="auto")


@pytest.mark.skipif(training_build.is_available(), reason="for an onnxruntime without training")
def test_no_training_build():
    with pytest.raises(ImportError, match="training"):
        OrtGradientForwardBackward(MODELS["linear regression"][0], builder="onnxruntime-training")


# --------------------------------------------------------------------- abuse


def wrong_tensors(rng, right, *, stretches):
    """Return a list of tensors of which at least one is wrong, and say how; with `stretches`, shapes may broadcast."""
    arrays = list(right)
    i = int(rng.integers(len(arrays)))
    a = arrays[i]
    ways = {
        "one too many": lambda: [*arrays, a],
        "one too few": lambda: arrays[:-1],
        "none at all": list,
        "no list": lambda: rng.choice([None, 3, "X"]),
        "an array": lambda: a,
        "a dict": lambda: dict(enumerate(arrays)),
        "None": lambda: [*arrays[:i], None, *arrays[i + 1 :]],
        "a string": lambda: [*arrays[:i], "X", *arrays[i + 1 :]],
        "a list": lambda: [*arrays[:i], a.tolist(), *arrays[i + 1 :]],
        "another type": lambda: [
            *arrays[:i],
            a.astype(rng.choice(["float16", "float64", "int32", "bool", "U", "complex64"])),
            *arrays[i + 1 :],
        ],
        "objects": lambda: [*arrays[:i], a.astype(object), *arrays[i + 1 :]],
        "an axis too many": lambda: [*arrays[:i], a[None], *arrays[i + 1 :]],
        "an axis too few": lambda: [*arrays[:i], a[0], *arrays[i + 1 :]],
        "another length": lambda: [*arrays[:i], np.concatenate([a, a], axis=-1), *arrays[i + 1 :]],
        "no rows": lambda: [*arrays[:i], a[:0], *arrays[i + 1 :]],
        "other rows": lambda: [*arrays[:i], np.concatenate([a, a[:1]]), *arrays[i + 1 :]],
        "a vector of another length": lambda: as_vector(arrays[:-1]),
        "a vector of other shapes": lambda: as_vector([x[None] for x in arrays]),
    }
    if stretches:
        del ways["an axis too few"]
    how = str(rng.choice(sorted(ways)))
    return how, ways[how]()


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("name", ["two outputs", "embedding"])
def test_a_thousand_wrong_calls(name, builder):
    made, inputs, dys = case(name, builder)
    function = made.new_instance()
    rng = np.random.default_rng(0)
    for _ in range(1000):
        kind = rng.choice(["forward", "training", "backward", "too early", "closed", "cache"])
        if kind == "backward" and not function.states_:
            function.forward(inputs, training=True)
        with pytest.raises(OnnxTrainError, match=r".{20}"):
            abuse(str(kind), function, made, rng, inputs, dys)
    function.forward(inputs, training=True)
    assert len(function.backward(dys)) == len(made.cls_type_._onx_out)


def abuse(kind, function, made, rng, inputs, dys):
    if kind == "cache":
        function.forward(inputs, forward_outputs_cache=as_vector(inputs) if rng.random() < 0.5 else [])
    elif kind == "too early":
        made.new_instance().backward(dys)
    elif kind == "closed":
        closed = type("Closed", (made.cls_type_,), {"_engine": None, "_eval": None})()
        closed.forward(inputs, training=bool(rng.random() < 0.5))
    else:
        how, tensors = wrong_tensors(rng, dys if kind == "backward" else inputs, stretches=kind == "backward")
        if kind == "backward":
            function.backward(tensors)
        else:
            function.forward(tensors, training=kind == "training")
        pytest.fail(f"{kind} with {how} went through")
    pytest.fail(f"{kind} went through")


def test_indices_out_of_range_are_an_error_too():
    made, inputs, _ = case("embedding", "builtin")
    with pytest.raises(DataError, match="onnxruntime cannot run"):
        made.new_instance().forward([inputs[0] + 10, *inputs[1:]], training=True)


def test_an_output_may_be_an_initializer_of_integers():
    onx = model(
        "g (float[N,2] X) => (float[N,2] Y, int64[2] sizes) <float[2] w = {1, 2}, int64[2] sizes = {3, 4}> "
        "{ Y = Mul(X, w) }"
    )
    function = OrtGradientForwardBackward(onx).new_instance()
    w, ones = np.array([1, 2], np.float32), np.ones((3, 2), np.float32)
    _, sizes = function.forward([ones, w], training=True)
    np.testing.assert_array_equal(sizes.numpy(), [3, 4])
    np.testing.assert_array_equal(function.backward([ones])[1].numpy(), [3, 3])
