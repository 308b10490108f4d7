"""Devices, threads and sessions; tests that need a GPU are marked and skipped with a reason."""

import os
import pickle
import re
from types import SimpleNamespace

import joblib
import numpy as np
import onnx.parser
import onnx.shape_inference
import onnxruntime
import pytest
from sklearn.datasets import load_diabetes, load_digits
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, clear_caches
from onnxtrain.errors import DataError, DeviceError, ModelError
from onnxtrain.runtime import device as device_module
from onnxtrain.runtime.device import KINDS, Device, can_be_recorded, find_device, nodes_on_host
from onnxtrain.runtime.session import available_threads, open_session, run, threads_for
from tests.devices import HAS_GPU, Pretended

needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="there is no GPU, or onnxruntime was not built for one")

DOUBLE = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[N] X) => (float[N] Y) { Y = Add(X, X) }'
)


@pytest.mark.parametrize(
    "name", ["gpus", "gpu:x", "cuda:x", "CPU", "cuda:-1", "webgpu:1", "cpu:0", "directml", "coreml", 0, None]
)
def test_names_of_devices(name):
    words = "Unknown device .*Known: 'cpu', 'cuda', 'cuda:1', ..., 'webgpu', 'auto'. Other execution providers"
    with pytest.raises(DeviceError, match=words):
        find_device(name)


def test_every_kind_has_a_name():
    assert all(
        re.search(rf"'{kind}'", find_device.__doc__ or "") or f'"{kind}"' in find_device.__doc__ for kind in KINDS
    )
    assert list(KINDS)[-1] == "cpu"  # which "auto" ends with


def test_auto_is_what_is_there():
    assert find_device("auto") == Device("cuda" if HAS_GPU else "cpu")
    assert find_device("cpu") == Device("cpu", 0)


@pytest.mark.parametrize("name, device", [("gpu", Device("cuda")), ("gpu:1", Device("cuda", 1))])
def test_gpu_is_another_name_of_cuda(monkeypatch, name, device):
    monkeypatch.setattr(device_module, "_fault", lambda kind, index, process: None)
    assert find_device(name) == device
    monkeypatch.setattr(device_module, "_fault", lambda kind, index, process: f"needs {kind}")
    with pytest.raises(DeviceError, match=f"device='{name}' needs cuda"):
        find_device(name)


@pytest.mark.parametrize("usable", [True, False])
def test_auto_is_a_gpu_that_can_be_used(monkeypatch, usable):
    faults = {"cuda": None if usable else "has no driver", "webgpu": "is missing", "cpu": None}
    monkeypatch.setattr(device_module, "_fault", lambda kind, index, process: faults[kind])
    assert find_device("auto") == Device("cuda" if usable else "cpu")


@pytest.mark.parametrize("cuda", [True, False])
@pytest.mark.parametrize(
    "providers, expected",
    [
        ([("CPUExecutionProvider", 0)], "cpu"),
        ([("CPUExecutionProvider", 0), ("WebGpuExecutionProvider", 1)], "webgpu"),
        ([("CPUExecutionProvider", 0), ("WebGpuExecutionProvider", 0)], "cpu"),  # the plug-in, on a software GPU
    ],
)
def test_auto_is_webgpu_after_cuda_and_on_a_real_gpu(monkeypatch, cuda, providers, expected):
    faults = {"cuda": None if cuda else "has no driver", "webgpu": None, "cpu": None}
    monkeypatch.setattr(device_module, "_fault", lambda kind, index, process: faults[kind])
    kinds = SimpleNamespace(CPU=0, GPU=1)
    devices = [SimpleNamespace(ep_name=name, device=SimpleNamespace(type=hardware)) for name, hardware in providers]
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: devices, raising=False)
    monkeypatch.setattr(onnxruntime, "OrtHardwareDeviceType", kinds, raising=False)
    assert find_device("auto").kind == ("cuda" if cuda else expected)


def test_a_build_without_the_provider_names_the_package(monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(device_module, "find_spec", lambda name: None)
    device_module._fault.cache_clear()
    for kind, package in (("cuda", r"onnxruntime-gpu\[cuda,cudnn\]"), ("webgpu", "onnxruntime-ep-webgpu")):
        words = rf"device='{kind}' needs the {KINDS[kind].provider} .*pip install .*\"{package}\""
        with pytest.raises(DeviceError, match=words):
            find_device(kind)
    device_module._fault.cache_clear()


class Library:
    """A plug-in for WebGPU, and an onnxruntime that registers it where there is a GPU."""

    def __init__(self, monkeypatch, gpu=True, version=(1, 32)):
        self.gpu, self.registered = gpu, []
        for name in ("get_available_providers", "register_execution_provider_library"):
            monkeypatch.setattr(onnxruntime, name, getattr(self, name), raising=False)
        monkeypatch.setattr(onnxruntime, "unregister_execution_provider_library", self.registered.remove, raising=False)
        monkeypatch.setattr(device_module, "runtime_version", lambda: version)
        monkeypatch.setattr(device_module, "find_spec", lambda name: name == "onnxruntime_ep_webgpu" or None)
        monkeypatch.setattr(device_module, "import_module", lambda name: self)
        monkeypatch.setattr(Device, "put", lambda self, array: None)
        device_module._fault.cache_clear()

    def get_library_path(self):
        return "webgpu.so"

    def get_available_providers(self):
        return ["CPUExecutionProvider", *(["WebGpuExecutionProvider"] if self.registered and self.gpu else [])]

    def register_execution_provider_library(self, name, path):
        assert path == "webgpu.so"
        if name in self.registered:
            raise RuntimeError("it is registered already")
        self.registered.append(name)


def test_a_plug_in_adds_its_provider(monkeypatch):
    library = Library(monkeypatch)
    for _ in range(2):
        assert find_device("webgpu") == Device("webgpu")
        device_module._fault.cache_clear()
    assert library.registered == ["onnxruntime_ep_webgpu"]


def test_a_plug_in_that_cannot_be_used_says_why(monkeypatch):
    words = "needs the WebGpuExecutionProvider .* CPUExecutionProvider. The plug-in onnxruntime_ep_webgpu cannot be used here: "
    library = Library(monkeypatch, gpu=False)
    for _ in range(2):  # what finds no GPU is looked for again, once the answer is forgotten
        with pytest.raises(DeviceError, match=f"{words}it finds no GPU. It needs a GPU with a driver for Vulkan"):
            find_device("webgpu")
        clear_caches()
    assert not library.registered
    Library(monkeypatch, version=(1, 31))
    with pytest.raises(
        DeviceError, match=f"{words}it needs onnxruntime 1.32 or newer, found {onnxruntime.__version__}"
    ):
        find_device("webgpu")
    library = Library(monkeypatch)
    library.gpu, library.registered = False, ["onnxruntime_ep_webgpu"]
    with pytest.raises(DeviceError, match=f"{words}it is registered already"):
        find_device("webgpu")
    device_module._fault.cache_clear()


def test_a_fork_of_a_user_of_a_device_is_told(monkeypatch):
    Library(monkeypatch)
    monkeypatch.setattr(device_module, "_FIRST_USER", {})
    find_device("webgpu")
    assert Device("webgpu").providers()
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a child
    with pytest.raises(DeviceError, match=r"forked from one that has used the device. .*get_context\('spawn'\)"):
        Device("webgpu").providers()
    device_module._fault.cache_clear()


def test_a_device_without_float64_says_so(monkeypatch):
    monkeypatch.setattr(device_module, "_fault", lambda kind, index, process: None)
    with pytest.raises(DeviceError, match="device='webgpu' does not support float64. Set dtype='float32'"):
        OrtGradientRegressor(device="webgpu", dtype="float64").fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 3), np.float32), np.zeros((4, 6))[:, ::2], np.zeros((), np.int64), np.zeros((0, 3))],
    ids=np.shape,
)
def test_a_buffer_holds_what_sessions_read(array):
    buffer, new = Device("cpu").buffer(array), np.ones_like(array)
    buffer.write(new)
    kept = buffer.read()
    np.testing.assert_array_equal(buffer.value.numpy(), new)
    buffer.write(2 * new)
    np.testing.assert_array_equal(kept, new)


@pytest.fixture
def no_driver(monkeypatch):
    """An onnxruntime that was built for GPUs, on a machine that has none."""
    put = Device.put

    def put_on_the_cpu(device, array):
        if device.kind == "cuda":
            raise RuntimeError("no CUDA-capable device is detected")
        return put(device, array)

    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: print("Failed to load libcublas.so"), raising=False)
    monkeypatch.setattr(Device, "put", put_on_the_cpu)
    device_module._fault.cache_clear()
    yield
    device_module._fault.cache_clear()


def test_a_gpu_that_cannot_be_used(no_driver, capsys):
    words = "needs .*cannot be used here: Failed to load libcublas.so no CUDA-capable device is detected. It needs"
    with pytest.raises(DeviceError, match=f"device='cuda:1' {words} an NVIDIA driver"):
        find_device("cuda:1")
    assert find_device("auto") == Device("cpu")
    assert capsys.readouterr().out == ""
    X, y = load_diabetes(return_X_y=True)
    model = OrtGradientRegressor(max_iter=1, device="auto").fit(X, y)
    expected = model.predict(X)
    kept = pickle.loads(pickle.dumps(model.set_params(device="cuda")))
    with pytest.warns(UserWarning, match=f"{words}.*The CPU is used instead"):
        np.testing.assert_array_equal(kept.predict(X), expected)


def test_providers_carry_the_number_of_the_device():
    (cuda, options), cpu = Device("cuda", 3).providers()
    assert (cuda, cpu) == ("CUDAExecutionProvider", "CPUExecutionProvider")
    assert options == {"device_id": 3, "use_tf32": "0"}
    (_, captured), _ = Device("cuda", 3).providers(captured=True)
    assert captured == options | {"enable_cuda_graph": "1"}
    assert Device("cpu").providers(captured=True) == ["CPUExecutionProvider"]


NODES = {
    "channels known": ("float[N, 4, 8, 8] X", "float[8, 4, 3, 3] W = {0.0}", []),
    "six channels": ("float[N, 6, 8, 8] X", "float[8, 6, 3, 3] W = {0.0}", ["Conv"]),
    "twelve channels": ("float[N, 12, 8, 8] X", "float[8, 12, 3, 3] W = {0.0}", []),
    "channels unknown": ("float[N, C, 8, 8] X, float[8, C, 3, 3] W", "int64 none = {0}", ["Conv"]),
}


@pytest.mark.parametrize("case", NODES)
def test_nodes_that_webgpu_computes_wrongly_stay_on_the_host(case):
    inputs, initializer, expected = NODES[case]
    onx = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float[N, 8, 3, 3] Y, int64[N, 8, 3, 3] I)'
        f"<{initializer}> {{ C = Conv(X, W) Y, I = MaxPool<kernel_shape = [4, 4]>(C) }}"
    )
    assert [node.op_type for node in nodes_on_host("webgpu", onx)] == [*expected, "MaxPool"]
    assert nodes_on_host("cuda", onx) == nodes_on_host("cpu", onx) == []
    options = onnxruntime.SessionOptions()
    prepared = onnx.load_model_from_string(Device("webgpu").prepared(onx.SerializeToString(), options))
    names = options.get_session_config_entry("ep.webgpuexecutionprovider.forceCpuNodeNames").split("\n")
    assert [node.op_type for node in prepared.graph.node if node.name in names] == [*expected, "MaxPool"]
    content = onx.SerializeToString()
    assert Device("cuda").prepared(content, options) is content


RECORDED = {
    "a product of matrices": ("A = MatMul(X, W)", True),
    "a product of a stack and a matrix": ("S = Unsqueeze(X, zero) A = MatMul(S, W)", True),
    "a product of two stacks": ("S = Unsqueeze(X, zero) V = Unsqueeze(W, zero) A = MatMul(S, V)", False),
    "an operator of another domain": ("V = another.Relu(W) A = MatMul(X, V)", False),
    "an operator that waits for the GPU": ("V = NonZero(W) A = Cast<to = 1>(V)", False),
    "pieces of different sizes": ("A, B = Split<axis = 1>(X, sizes)", False),
}


@pytest.mark.parametrize("body, expected", RECORDED.values(), ids=RECORDED)
def test_runs_that_a_gpu_may_replay(body, expected):
    onx = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21, "another" : 1]> g (float[n, 3] X, float[3, 3] W) => (float Y)
        <int64[1] zero = {{0}}, int64[2] sizes = {{1, 2}}> {{ {body} Y = ReduceSum(A) }}""")
    onx = onnx.shape_inference.infer_shapes(onx)
    assert can_be_recorded(onx.SerializeToString()) == expected
    asked = []

    class Asked(Pretended):
        """Keeps whether it is to record."""

        def providers(self, *, captured=False):
            asked.append(captured)
            return super().providers()

    if "another" not in body:  # else onnxruntime has no kernel
        open_session(onx, Asked("cuda"), captured=True)
        assert asked == [expected]


@pytest.mark.parametrize("limit, expected", [("1", 1), ("999", joblib.cpu_count()), ("x", joblib.cpu_count())])
def test_threads_of_a_worker(monkeypatch, limit, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert available_threads() == expected


def test_a_small_graph_has_one_thread(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads_for(10, None) == 1
    assert threads_for(1e12, None) == available_threads()
    assert threads_for(10, 2) == 2


def test_what_onnxruntime_refuses():
    unknown = onnx.ModelProto()
    unknown.CopyFrom(DOUBLE)
    unknown.graph.node[0].op_type = "Nonsense"
    with pytest.raises(ModelError, match="onnxruntime .* cannot load the model"):
        open_session(unknown)
    with pytest.raises(DataError, match="onnxruntime cannot run the model"):
        run(DOUBLE, {"X": np.ones((2, 2), np.float64)})


def test_a_file_for_one_number_of_rows_has_a_remedy():
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 2] X) => (float[1, 2] Y) <int64[1] four = {4}>
        { Y = Gather(X, four) }"""
    )
    with pytest.raises(DataError, match=r"may only take as many rows as it was exported with.* Use dynamo=True\."):
        run(onx, {"X": np.ones((2, 2), np.float32)})


def test_a_comparison_with_as_many_values_as_the_export_had_rows_has_a_remedy():
    """As speechbrain's mask of lengths is written if the batch axis is a torch.export.Dim."""
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 2] X) => (bool[n, 2] Y)
        <float[3, 1] lengths = {1, 2, 3}> { Y = Less(X, lengths) }"""
    )
    with pytest.raises(DataError, match=r"only take as many rows as it was exported .*dynamic_shapes=\[\{0: \"n\"\}\]"):
        run(onx, {"X": np.ones((8, 2), np.float32)})


def test_a_reshape_to_a_number_of_rows_is_said_to_be_of_the_export():
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n,2] X) => (float[n,2] Y) <int64[2] s = {1, 2}>
        { Y = Reshape(X, s) }"""
    )
    with pytest.raises(DataError, match=r"exported with, although its inputs say otherwise\. Export .*dynamic_shapes"):
        run(onx, {"X": np.zeros((3, 2), np.float32)})


@pytest.mark.skipif(HAS_GPU, reason="for a machine without a GPU")
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_session_is_on_the_device_or_not_at_all():
    with pytest.raises(ModelError, match="onnxruntime .* cannot run the model on the CUDAExecutionProvider"):
        open_session(DOUBLE, Device("cuda"))


def test_run_returns_what_is_asked_for():
    x = np.arange(3, dtype=np.float32)
    (y,) = run(DOUBLE, {"X": x}, outputs=["Y"])
    np.testing.assert_array_equal(y, 2 * x)


# -------------------------------------------------------------------- GPU


CASES = {
    "linear": (OrtGradientRegressor, LinearRegression(), load_diabetes),
    "network": (
        OrtGradientClassifier,
        MLPClassifier(hidden_layer_sizes=(32,), max_iter=5, random_state=0),
        load_digits,
    ),
}


@pytest.mark.gpu
@needs_gpu
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("solver", ["sgd", "adam", "lbfgs"])
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_trains_as_a_cpu(case, solver):
    estimator, model, load = CASES[case]
    X, y = load(return_X_y=True)
    params = dict(estimator=model.fit(X, y), solver=solver, max_iter=5, random_state=0)
    cpu, gpu = (estimator(device=device, **params).fit(X, y) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(gpu.loss_curve_, cpu.loss_curve_, rtol=1e-3)
    np.testing.assert_allclose(gpu.predict(X), cpu.predict(X), rtol=1e-2, atol=1e-3)


@pytest.mark.gpu
@needs_gpu
def test_same_seed_same_bits_on_a_gpu():
    X, y = load_diabetes(return_X_y=True)
    a, b = (OrtGradientRegressor(device="cuda", max_iter=3, random_state=0).fit(X, y).weights_ for _ in range(2))
    assert all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.gpu
@needs_gpu
def test_fits_that_share_a_session_replay_their_own_memory():
    X, y = load_diabetes(return_X_y=True)
    params = dict(max_iter=3, random_state=0, batch_size=100)  # the last batch of an epoch has 42 rows
    first = OrtGradientRegressor(device="cuda", **params).fit(X, y)
    second = OrtGradientRegressor(device="cuda", **params).fit(X[::-1], -y[::-1])
    for found, rows in ((first, (X, y)), (second, (X[::-1], -y[::-1]))):
        expected = OrtGradientRegressor(**params).fit(*rows)
        np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-3)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_half_precision_on_a_gpu():
    estimator, model, load = CASES["network"]
    X, y = load(return_X_y=True)
    params = dict(estimator=model.fit(X, y), device="cuda", max_iter=5, random_state=0)
    half, real = (estimator(dtype=dtype, **params).fit(X, y) for dtype in ("bfloat16", "float32"))
    np.testing.assert_allclose(half.loss_curve_, real.loss_curve_, rtol=0.05)


def test_an_output_that_is_an_input_has_memory_of_its_own():
    onx = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n] X, int64[n] I) => (float[n] X, int64[n] I) {}'
    )
    feeds = {"X": np.arange(5, dtype=np.float32), "I": np.arange(5)}
    for given, found in zip(feeds.values(), run(onx, feeds), strict=True):
        assert not np.shares_memory(given, found)
        np.testing.assert_array_equal(given, found)


def test_strings_are_not_placed_on_a_device():
    with pytest.raises(ModelError, match="read strings, but a training step takes only numbers"):
        find_device("cpu").put(np.array(["a"]))
