"""Devices: the only module that distinguishes CPUs and GPUs."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime

from onnxtrain.cache import table
from onnxtrain.errors import DeviceError, ModelError
from onnxtrain.opsets import runtime_version

#: Operators that a recorded run may contain. Excluded are operators whose CUDA kernels copy from host memory that is
#: freed before the run is replayed, which makes results silently wrong: Concat, Split, ScatterND, the recurrent
#: operators, all that https://github.com/microsoft/onnxruntime/pull/32121 names. Excluded are also operators that wait
#: for the GPU: NonZero.
_RECORDED = frozenset(
    """
    Abs Add And AveragePool BatchNormalization Cast Ceil Clip Constant ConstantOfShape Conv ConvTranspose Cos Div Elu
    Equal Erf Exp Expand Flatten Floor Gather GatherElements Gelu Gemm GlobalAveragePool Greater GreaterOrEqual
    HardSigmoid HardSwish Identity LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max MaxPool Min
    Mul Neg Not Or PRelu Pow Reciprocal ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceSum
    ReduceSumSquare Relu Reshape ScatterElements Selu Shape Sigmoid Sign Sin Size Slice Softmax Softplus Softsign Sqrt
    Squeeze Sub Sum Tanh Tile Transpose Unsqueeze Where
    """.split()  # noqa: SIM905  a list of literals would fill the page
)

_NAMES = re.compile(r"(?P<kind>cpu|cuda|gpu|webgpu)(?::(?P<index>\d+))?")

#: The oldest onnxruntime that can open a session on a plug-in provider by name; older ones use the CPU.
_PLUGINS = (1, 32)

#: The process that first used each kind of device; its forked children have the device, but none of its threads.
_FIRST_USER: dict[str, int] = {}

#: Other names of kinds, from onnxruntime's ``get_device`` and older programs.
_ALIASES = {"gpu": "cuda"}


@dataclass(frozen=True)
class Capabilities:
    """Differences between devices on which graphs and runs depend; the defaults describe a CPU.

    Attributes
    ----------
    records_runs : bool
        Whether a run is recorded and replayed, if :func:`can_be_recorded`, because launching its kernels takes longer
        than running them.
    computed_bounds : bool
        Whether Slice supports bounds that the graph computes; otherwise the host reads them, with a copy during the
        run.
    holds_data : bool
        Whether arrays are copied to the device's own memory and stay there between runs.
    constant_batch : bool
        Whether the batch size is a constant of a step, with one session for full batches and one for the last batch of
        an epoch. Otherwise computations on shapes run on the host, and the step cannot be recorded. On a CPU, where
        there is no such boundary, this costs small networks 8 % and gains nothing for others.
    keeps_bindings : bool
        Whether a run sees values written to its inputs after they were bound. Otherwise an input that a node on the
        host reads is copied there when it is bound, so each run must bind it again.
    cpu_kernels : bool
        Whether to use the rewritings that pay only with CPU kernels.
    packs_weights : bool
        Whether the optimizer updates small weights packed in one row. This saves operators but needs a Split and a
        Concat, which cannot be recorded, and which on WebGPU take longer than the operators that they save.
    float64 : bool
        Whether it has float64 kernels; otherwise per-step scalars are computed in float32.
    bfloat16 : bool
        Whether it has bfloat16 products.
    thorough : bool
        Whether all graph optimizations of onnxruntime pay for a step; otherwise only the cheap ones do.
    opset : int or None
        The opset at which onnxruntime has the most kernels, None if it does not matter. A CUDA kernel that was
        registered for all future versions is not used if its operator has changed since. The node then runs on the CPU,
        with copies in both directions. Up to onnxruntime 1.23 this concerns Reshape, Shape, Equal and others at opset
        21, and none of them at opset 18.
    """

    records_runs: bool = False
    computed_bounds: bool = True
    holds_data: bool = False
    constant_batch: bool = False
    keeps_bindings: bool = True
    cpu_kernels: bool = True
    packs_weights: bool = True
    float64: bool = True
    bfloat16: bool = False
    thorough: bool = False
    opset: int | None = None


def _put_as_result(array: np.ndarray, kind: str, index: int) -> onnxruntime.OrtValue:
    """Return an array as a result of a session, because the Python API cannot allocate device memory otherwise."""
    session = _identity(kind, str(array.dtype), array.ndim, os.getpid())
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.ascontiguousarray(array))
    binding.bind_output("y", kind, index)
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0]


def _copy(value: onnxruntime.OrtValue, array: np.ndarray) -> None:
    onnxruntime.copy_tensors([onnxruntime.OrtValue.ortvalue_from_numpy(array)], [value])


def _never(node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]]) -> bool:
    return False


def _wrong_on_webgpu(node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether a node must run on the host, because onnxruntime's WebGPU kernel refuses it or is wrong for it.

    The kernel is wrong for a Conv of 6, 9, 15, ... channels (1.27):
    https://github.com/microsoft/onnxruntime/issues/29651. In the gradient of filters, the channels are the rows of the
    batch, whose number is unknown in the graph.
    """
    if node.op_type == "MaxPool":
        return len(node.output) > 1
    if node.op_type != "Conv":
        return False
    shape = shapes.get(node.input[1], ())
    channels = shape[1] if len(shape) > 1 else 0  # 0: unknown
    return channels != 3 and channels % 3 == 0 and (channels == 0 or channels % 4 != 0)


@dataclass(frozen=True)
class Kind:
    """A kind of device: its execution provider, and how arrays are copied to it.

    Attributes
    ----------
    provider : str
    capabilities : Capabilities
    options : tuple of (name, value)
        The options of the provider.
    numbered : bool
        Whether there may be several devices, distinguished by an index.
    package, needs : str
        The package that pip installs for the provider, and other requirements of the provider.
    plugin : str
        The module whose library adds the provider to a build of onnxruntime that lacks it.
    prepare : str
        The function of onnxruntime, if it exists, that loads libraries installed by pip.
    put : callable
        Returns an array as an OrtValue on a device, given by its kind and index.
    overwrite : callable
        Copies an array to an OrtValue on the device.
    on_host : callable
        Whether a node must run on the host, given the known shapes.
    on_host_option : str
        The session option that names such nodes.
    """

    provider: str
    capabilities: Capabilities = Capabilities()
    options: tuple[tuple[str, str], ...] = ()
    numbered: bool = False
    package: str = "onnxruntime"
    needs: str = ""
    plugin: str = ""
    prepare: str = ""
    put: Callable[[np.ndarray, str, int], onnxruntime.OrtValue] = onnxruntime.OrtValue.ortvalue_from_numpy
    overwrite: Callable[[onnxruntime.OrtValue, np.ndarray], None] = onnxruntime.OrtValue.update_inplace
    on_host: Callable[[onnx.NodeProto, Mapping[str, Sequence[int]]], bool] = _never
    on_host_option: str = ""


#: The kinds of devices in the order in which "auto" prefers them. A new kind needs a row here and a test that has run
#: on it.
KINDS = {
    "cuda": Kind(
        "CUDAExecutionProvider",
        Capabilities(
            records_runs=True,
            computed_bounds=False,
            holds_data=True,
            constant_batch=True,
            cpu_kernels=False,
            packs_weights=False,
            bfloat16=True,
            thorough=True,
            opset=18,
        ),
        # TF32 would round float32 products to ten bits, fewer than L-BFGS and small steps need
        options=(("use_tf32", "0"),),
        numbered=True,
        package="onnxruntime-gpu[cuda,cudnn]",
        needs="It needs an NVIDIA driver, CUDA and cuDNN; the extras [cuda,cudnn] install the latter two.",
        prepare="preload_dlls",  # since 1.21
    ),
    "webgpu": Kind(
        "WebGpuExecutionProvider",
        Capabilities(
            computed_bounds=False,
            holds_data=True,
            keeps_bindings=False,
            cpu_kernels=False,
            packs_weights=False,
            float64=False,
        ),
        package="onnxruntime-ep-webgpu",
        needs="It needs a GPU with a driver for Vulkan, Metal or Direct3D 12.",
        plugin="onnxruntime_ep_webgpu",
        put=_put_as_result,
        overwrite=_copy,
        on_host=_wrong_on_webgpu,
        on_host_option="ep.webgpuexecutionprovider.forceCpuNodeNames",
    ),
    "cpu": Kind("CPUExecutionProvider"),
}

#: The capabilities of each kind of device.
CAPABILITIES = {name: kind.capabilities for name, kind in KINDS.items()}


@dataclass(frozen=True)
class Device:
    """A device of onnxruntime: its kind, a key of ``KINDS``, and its index."""

    kind: str
    index: int = 0

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of its kind of device."""
        return CAPABILITIES[self.kind]

    def providers(self, *, captured: bool = False) -> list[Any]:
        """Return the execution providers, in order of preference.

        With `captured`, a GPU records the kernels of a run and replays them in later runs.

        Raises
        ------
        DeviceError
            This process was forked from one that has used the device, so a run would wait forever.
        """
        if self.kind == "cpu":
            return ["CPUExecutionProvider"]
        if _FIRST_USER.get(self.kind, os.getpid()) != os.getpid():
            raise DeviceError(
                "this process was forked from one that has used the device. Start it with "
                "multiprocessing.get_context('spawn') or joblib instead, or use device='cpu' in it"
            )
        kind = KINDS[self.kind]
        options: dict[str, Any] = {"device_id": self.index} if kind.numbered else {}
        options |= dict(kind.options) | ({"enable_cuda_graph": "1"} if captured else {})
        return [(kind.provider, options), "CPUExecutionProvider"]

    def prepared(self, onx: bytes, options: onnxruntime.SessionOptions) -> bytes:
        """Return a model whose nodes that must run on the host have names, which are added to the options."""
        kind = KINDS[self.kind]
        if not kind.on_host_option:
            return onx
        proto = onnx.load_model_from_string(onx)
        nodes = nodes_on_host(self.kind, proto)
        for i, node in enumerate(nodes):
            node.name = f"on_host_{i}"
        if nodes:
            options.add_session_config_entry(kind.on_host_option, "\n".join(node.name for node in nodes))
        return proto.SerializeToString() if nodes else onx

    def put(self, array: np.ndarray) -> onnxruntime.OrtValue:
        """Return `array` as an OrtValue on the device; on a CPU it shares the memory of `array`.

        Raises
        ------
        ModelError
            The array holds strings.
        """
        if array.dtype.kind in "OSU":
            raise ModelError(
                "The nodes that are trained read strings, but a training step takes only numbers. Train weights after "
                "the nodes that turn the strings into numbers."
            )
        return KINDS[self.kind].put(array, self.kind, self.index)

    def buffer(self, array: np.ndarray) -> Buffer:
        """Return `array` as a buffer on the device; on a CPU it shares the memory of `array`."""
        value = self.put(array)
        if self.capabilities.holds_data:
            return Buffer(value, None, KINDS[self.kind].overwrite)
        return Buffer(value, array if array.flags.c_contiguous else value.numpy())


class Buffer(NamedTuple):
    """Memory of a device that is bound to sessions, and that is read and written between runs.

    Attributes
    ----------
    value : OrtValue
    array : ndarray or None
        The same memory as an array, on a CPU.
    overwrite : callable
        Copies an array to ``value``, on other devices.
    """

    value: onnxruntime.OrtValue
    array: np.ndarray | None
    overwrite: Callable[[onnxruntime.OrtValue, np.ndarray], None] = onnxruntime.OrtValue.update_inplace

    def read(self) -> np.ndarray:
        """Return a copy of the content."""
        return self.value.numpy() if self.array is None else self.array.copy()

    def write(self, array: np.ndarray) -> None:
        """Overwrite the content."""
        if self.array is None:
            self.overwrite(self.value, array)
        else:
            self.array[...] = array


@table(maxsize=64)
def _identity(kind: str, dtype: str, ndim: int, process: int) -> onnxruntime.InferenceSession:
    """Return a session that copies a tensor of a type and a rank to a device.

    WebGPU's memory is freed with its last session, so these sessions are cached until `clear_caches` is called.
    """
    code, shape = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [f"d{i}" for i in range(ndim)]
    x, y = (onnx.helper.make_tensor_value_info(name, code, shape) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "copy", [x], [y])
    opset = [onnx.helper.make_opsetid("", 21)]
    content = onnx.helper.make_model(graph, ir_version=10, opset_imports=opset).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised
    # no fallback, which would silently open a session on the CPU
    return onnxruntime.InferenceSession(content, options, providers=Device(kind).providers(), enable_fallback=0)


def can_be_recorded(onx: bytes) -> bool:
    """Whether a GPU can record a run of a model and replay it."""
    graph = onnx.load_model_from_string(onx).graph
    ranks = {name: len(shape) for name, shape in _shapes(graph).items()}
    if any(node.domain not in ("", "ai.onnx") or node.op_type not in _RECORDED for node in graph.node):
        return False
    # a batched matrix product is passed the addresses of all matrices
    return all(ranks.get(node.input[1], 3) <= 2 for node in graph.node if node.op_type == "MatMul")


def nodes_on_host(kind: str, onx: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the nodes of a model that must run on the host, because the device's kernels refuse them or are wrong."""
    shapes = _shapes(onx.graph)
    return [node for node in onx.graph.node if KINDS[kind].on_host(node, shapes)]


def _shapes(graph: onnx.GraphProto) -> dict[str, list[int]]:
    """Return the declared shapes of values, 0 for an unknown length."""
    values = (*graph.input, *graph.value_info, *graph.output)
    tensors = ((v.name, v.type.tensor_type) for v in values)
    known = {name: [d.dim_value for d in t.shape.dim] for name, t in tensors if t.HasField("shape")}
    return known | {tensor.name: list(tensor.dims) for tensor in graph.initializer}


def _meant(name: object) -> str:
    """Return the end of a message: the device that a number, a torch.device or a provider probably means."""
    if name is None or isinstance(name, bool):
        return " Did you mean 'auto'?"
    if re.search(r"\d\W+(\w+:)?\d", str(name)):  # "cuda:0,1" or ["cuda:0", "cuda:1"]
        return " A fit uses one device. To use several GPUs, run one fit on each: device='cuda:0', device='cuda:1'."
    if isinstance(name, int):
        return f" Did you mean 'cuda:{name}'?" if name >= 0 else " Did you mean 'cpu'?"
    spelt = str(name).casefold()
    return next((f" Did you mean {kind!r}?" for kind in (*KINDS, "gpu", "auto") if kind in spelt), "")


def find_device(name: str) -> Device:
    """Return the device named `name`.

    Parameters
    ----------
    name : str
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"webgpu"``, or ``"auto"``: the first GPU that onnxruntime can use, else
        the CPU. A software GPU does not count. ``"gpu"`` is ``"cuda"``.

    Raises
    ------
    DeviceError
        The name is unknown, or onnxruntime cannot use the device.
    """
    if name == "auto":
        usable = (kind for kind in KINDS if _fault(kind, 0, os.getpid()) is None and _has_hardware(kind))
        return Device(next(usable))
    found = _NAMES.fullmatch(name) if isinstance(name, str) else None
    kind = found and _ALIASES.get(found["kind"], found["kind"])
    if found is None or kind is None or (found["index"] and not KINDS[kind].numbered):
        raise DeviceError(
            f"Unknown device {name!r}. Known: 'cpu', 'cuda', 'cuda:1', ..., 'webgpu', 'auto'. Other execution "
            f"providers of onnxruntime are untested; a GPU of any vendor is 'webgpu'.{_meant(name)}"
        )
    device = Device(kind, int(found["index"] or 0))
    fault = _fault(device.kind, device.index, os.getpid())
    if fault is not None:
        raise DeviceError(f"device={name!r} {fault}")
    return device


def _has_hardware(kind: str) -> bool:
    """Whether onnxruntime lists hardware for a device, if it can; WebGPU can also run on a CPU."""
    if kind != "webgpu":
        return True
    devices = onnxruntime.get_ep_devices() if hasattr(onnxruntime, "get_ep_devices") else []  # since 1.22
    return any(
        d.ep_name == KINDS[kind].provider and d.device.type == onnxruntime.OrtHardwareDeviceType.GPU for d in devices
    )


@table(maxsize=16)
def _fault(kind: str, index: int, process: int) -> str | None:
    """Return why a process cannot use a device, or None if it can."""
    if kind == "cpu":
        return None
    row = KINDS[kind]
    problem = _register_plugin(row)
    present = onnxruntime.get_available_providers()
    if row.provider not in present:
        remedy = f"The plug-in {row.plugin} cannot be used here: {problem}" if problem else _remedy(row)
        return f"needs the {row.provider} of onnxruntime, but this build has only {', '.join(present)}. {remedy}"
    # a build for GPUs lists the provider even without a GPU
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            getattr(onnxruntime, row.prepare, lambda: None)()
            Device(kind, index).put(np.zeros(1, np.float32))
    except Exception as e:  # see open_with
        reasons = " ".join((said.getvalue() + str(e)).split())
        return f"needs the {row.provider} of onnxruntime, which cannot be used here: {reasons}. {row.needs}"
    _FIRST_USER.setdefault(kind, process)
    return None


def _remedy(row: Kind) -> str:
    """Return how to install the provider of a kind of device."""
    if row.plugin:
        return f'Install its plug-in: pip install "onnxruntime>={".".join(map(str, _PLUGINS))}" "{row.package}".'
    return f'Install a build with it: pip install "{row.package}" (after removing the other builds of onnxruntime).'


def _register_plugin(row: Kind) -> str:
    """Add a provider that this build of onnxruntime lacks from its plug-in; return why it cannot be added."""
    if not row.plugin or row.provider in onnxruntime.get_available_providers() or find_spec(row.plugin) is None:
        return ""
    if runtime_version() < _PLUGINS:
        return f"it needs onnxruntime {'.'.join(map(str, _PLUGINS))} or newer, found {onnxruntime.__version__}."
    try:
        onnxruntime.register_execution_provider_library(row.plugin, import_module(row.plugin).get_library_path())
    except Exception as e:  # see open_with
        return " ".join(str(e).split())
    if row.provider in onnxruntime.get_available_providers():
        return ""
    onnxruntime.unregister_execution_provider_library(row.plugin)  # clear_caches() allows another try
    return f"it finds no GPU. {row.needs}"
