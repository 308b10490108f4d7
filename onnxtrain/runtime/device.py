"""Where the work is done: the one place that knows a CPU from a GPU."""

from __future__ import annotations

import io
import os
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime

from onnxtrain.cache import table
from onnxtrain.errors import DeviceError

#: Operators a recorded run may have. Not those whose kernels for CUDA copy from memory of the host that is no longer
#: theirs when the run is replayed, so that results are silently wrong: Concat, Split, ScatterND, the recurrent
#: ones, all that https://github.com/microsoft/onnxruntime/pull/32121 names. Nor those that wait for the GPU: NonZero.
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

_NAMES = re.compile(r"(?P<kind>cpu|cuda)(?::(?P<index>\d+))?")


@dataclass(frozen=True)
class Capabilities:
    """The differences between devices that graphs and runs depend on; the defaults are those of a CPU.

    Attributes
    ----------
    records_runs : bool
        A run is recorded and replayed, if :func:`can_be_recorded`: launching its kernels takes longer than they do.
    computed_bounds : bool
        Slice may take bounds that the graph computes; else the host reads them, a copy in the midst of a run.
    holds_data : bool
        Arrays are copied to memory of its own, and stay there between runs.
    cpu_kernels : bool
        The rewritings apply that pay with the kernels of a CPU alone.
    packs_weights : bool
        The optimizer updates small weights packed in one row: fewer operators, but a Split and a Concat, which cannot
        be recorded, and on WebGPU take longer than the operators that they save.
    float64 : bool
        It has kernels in float64; without, per-step scalars are computed in float32.
    bfloat16 : bool
        It has products in bfloat16.
    thorough : bool
        Every optimization of onnxruntime pays for a step; else the cheap ones do.
    opset : int or None
        The opset at which onnxruntime has the most kernels, None if it does not matter. A kernel for CUDA that was
        registered for all versions to come is not taken if its operator has changed since: the node goes to the CPU,
        with copies there and back. Up to onnxruntime 1.23 that is so at opset 21 for Reshape, Shape, Equal and
        others, at 18 for none of them.
    """

    records_runs: bool = False
    computed_bounds: bool = True
    holds_data: bool = False
    cpu_kernels: bool = True
    packs_weights: bool = True
    float64: bool = True
    bfloat16: bool = False
    thorough: bool = False
    opset: int | None = None


#: The capabilities of each kind of device; a new kind is a row here, and its execution provider below.
CAPABILITIES = {
    "cpu": Capabilities(),
    "cuda": Capabilities(
        records_runs=True,
        computed_bounds=False,
        holds_data=True,
        cpu_kernels=False,
        packs_weights=False,
        bfloat16=True,
        thorough=True,
        opset=18,
    ),
    "webgpu": Capabilities(computed_bounds=False, cpu_kernels=False, packs_weights=False, float64=False, thorough=True),
}


@dataclass(frozen=True)
class Device:
    """A device of onnxruntime: its kind, ``"cpu"`` or ``"cuda"``, and its index."""

    kind: str
    index: int = 0

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that every device of its kind has."""
        return CAPABILITIES[self.kind]

    def providers(self, *, captured: bool = False) -> list[Any]:
        """Return the execution providers, in order of preference.

        With `captured` a GPU records the kernels of a run and replays them in the next ones.
        """
        if self.kind == "cpu":
            return ["CPUExecutionProvider"]
        # else products of float32 are rounded to ten bits, fewer than L-BFGS and small steps need
        options = {"device_id": self.index, "use_tf32": "0"} | ({"enable_cuda_graph": "1"} if captured else {})
        return [("CUDAExecutionProvider", options), "CPUExecutionProvider"]

    def put(self, array: np.ndarray) -> onnxruntime.OrtValue:
        """Return `array` as an OrtValue on the device; on a CPU it shares the memory of `array`."""
        return onnxruntime.OrtValue.ortvalue_from_numpy(array, self.kind, self.index)

    def buffer(self, array: np.ndarray) -> Buffer:
        """Return `array` as a buffer on the device; on a CPU it shares the memory of `array`."""
        value = self.put(array)
        if self.capabilities.holds_data:
            return Buffer(value, None)
        return Buffer(value, array if array.flags.c_contiguous else value.numpy())


class Buffer(NamedTuple):
    """Memory of a device that is bound to sessions, and read and written between their runs.

    Attributes
    ----------
    value : OrtValue
    array : ndarray or None
        The same memory, on a CPU.
    """

    value: onnxruntime.OrtValue
    array: np.ndarray | None

    def read(self) -> np.ndarray:
        """Return a copy of the content."""
        return self.value.numpy() if self.array is None else self.array.copy()

    def write(self, array: np.ndarray) -> None:
        """Overwrite the content."""
        if self.array is None:
            self.value.update_inplace(array)
        else:
            self.array[...] = array


def can_be_recorded(onx: bytes) -> bool:
    """Whether a GPU may record a run of a model and replay it."""
    graph = onnx.load_model_from_string(onx).graph
    values = (*graph.input, *graph.value_info, *graph.output)
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in values if v.type.tensor_type.HasField("shape")}
    ranks |= {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    if any(node.domain not in ("", "ai.onnx") or node.op_type not in _RECORDED for node in graph.node):
        return False
    # a product of two stacks of matrices gets the addresses of all of them
    return all(ranks.get(node.input[1], 3) <= 2 for node in graph.node if node.op_type == "MatMul")


def find_device(name: str) -> Device:
    """Return the device called `name`.

    Parameters
    ----------
    name : str
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, or ``"auto"``: the first GPU that
        onnxruntime can use, else the CPU.

    Raises
    ------
    DeviceError
        The name is none of these, or onnxruntime cannot use that device.
    """
    if name == "auto":
        return Device("cuda" if _fault(0, os.getpid()) is None else "cpu")
    found = _NAMES.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise DeviceError(f"Unknown device {name!r}. Known: 'cpu', 'cuda', 'cuda:1', ..., 'auto'.")
    device = Device(found["kind"], int(found["index"] or 0))
    fault = _fault(device.index, os.getpid()) if device.kind == "cuda" else None
    if fault is not None:
        raise DeviceError(f"device={name!r} {fault}")
    return device


@table(maxsize=16)
def _fault(index: int, process: int) -> str | None:
    """Return why a process cannot use a GPU, None where it can."""
    present = onnxruntime.get_available_providers()
    if "CUDAExecutionProvider" not in present:
        return (
            f"needs the CUDAExecutionProvider of onnxruntime; present: {', '.join(present)}. "
            f"Install a build with it: pip install onnxtrain[gpu] (after removing the other builds of onnxruntime)."
        )
    # the name is there wherever onnxruntime was built for GPUs, even without one
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            # since 1.21: loads the CUDA and cuDNN that pip installed
            getattr(onnxruntime, "preload_dlls", lambda: None)()
        Device("cuda", index).put(np.zeros(1, np.float32))
    except Exception as e:  # see open_session
        reasons = " ".join((said.getvalue() + str(e)).split())
        return (
            f"needs the CUDAExecutionProvider of onnxruntime, which cannot be used here: {reasons}. "
            "It needs an NVIDIA driver, CUDA and cuDNN; pip install onnxtrain[gpu] brings the latter two."
        )
    return None
