"""Sessions of onnxruntime: their options and their runs, the number of their threads, and of BLAS between runs.

Threads that wait keep a core busy.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakSet

import joblib
import numpy as np
import onnx
import onnxruntime
import scipy.linalg  # noqa: F401  loads the BLAS of scipy, because only loaded libraries are limited
from threadpoolctl import ThreadpoolController

from onnxtrain.cache import Cache, table
from onnxtrain.errors import DataError, ModelError, warn
from onnxtrain.opsets import OPSET, at_opset
from onnxtrain.runtime.device import Device, can_be_recorded, find_device

#: The sessions of this process, and those that it inherited, a list for each fork that led to it. Destroying a session
#: waits for its threads. A forked child has none of its parent's threads and would wait forever, so it keeps inherited
#: sessions. They are listed before the fork: a garbage collection may destroy unreachable ones at once after it.
_OPEN: WeakSet[onnxruntime.InferenceSession] = WeakSet()
_INHERITED: list[list[onnxruntime.InferenceSession]] = []

SESSIONS: Cache[onnxruntime.InferenceSession] = Cache("sessions")

#: The bytes of a session without its weights. It has a copy of the weights and, for products, a packed copy.
_SESSION_BYTES = 2**20

#: From this size of a result in bytes, onnxruntime's memory planning is off, which would hold intermediate results
#: twice. A step of a language model with 196 MB of scores then takes 0.6 GB instead of 1.2, as in PyTorch. Small steps
#: profit from planned memory.
_LARGE = 2**24


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=lambda: _INHERITED.append(list(_OPEN)),
        after_in_parent=lambda: _INHERITED.pop(),
        after_in_child=lambda: SESSIONS.clear(),
    )


def open_session(
    onx: onnx.ModelProto | bytes,
    device: Device | str = "cpu",
    n_threads: int | None = None,
    *,
    captured: bool = False,
    thorough: bool = True,
    planned: bool = True,
) -> onnxruntime.InferenceSession:
    """Return an onnxruntime session on a model.

    Parameters
    ----------
    onx : onnx.ModelProto or bytes
    device : Device or str
    n_threads : int, optional
        The number of threads per operator; None: all of :func:`available_threads`.
    captured : bool
        Whether runs on a GPU are recorded as CUDA graphs, if onnxruntime can do this for the model.
    thorough : bool
        Whether all graph optimizations of onnxruntime are used, which pays for many predictions; otherwise only the
        cheap ones, from which steps profit.
    planned : bool
        Whether the memory of all intermediate results is one block from the second run on, in addition to the memory of
        the first run.

    Raises
    ------
    ModelError
        onnxruntime refuses the model, because an operator has no kernel or the opset is too new.
    """
    device = device if isinstance(device, Device) else find_device(device)
    options = quiet_options()
    options.intra_op_num_threads = n_threads or available_threads()
    options.enable_mem_pattern = planned
    if not thorough:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    content = at_opset(onx if isinstance(onx, bytes) else onx.SerializeToString(), device.capabilities.opset)
    content = device.prepared(content, options)
    if captured and device.capabilities.records_runs and (can_be_recorded(content) or _is_recorded_folded(content)):
        with suppress(ModelError):  # a node with only a CPU kernel
            return open_with(content, options, device.providers(captured=True))
    try:
        return open_with(content, options, device.providers())
    except ModelError as e:
        if "QuantizeLinear" in str(e):  # 1.32 changes a quantization from int8 to uint8 but keeps its output_dtype
            options.add_session_config_entry("session.disable_quant_qdq", "1")
            with suppress(ModelError):
                return open_with(content, options, device.providers())
        session = _open_with_less(content, options, device.providers())
        if session is None:
            raise
        # up to 1.19 a product is fused into an operator without float64 kernel
        if "FusedMatMul" not in str(e):
            warn(f"{e}. It is loaded with fewer graph optimizations instead.", RuntimeWarning)
        return session


def _is_recorded_folded(content: bytes) -> bool:
    """Whether a GPU can record a run of a model after onnxruntime's constant folding, which is equal on all devices."""
    options = quiet_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory() as folder, suppress(ModelError):  # no CPU kernel
        options.optimized_model_filepath = path = os.path.join(folder, "folded.onnx")
        open_with(content, options, ["CPUExecutionProvider"])
        with open(path, "rb") as file:
            return can_be_recorded(file.read())
    return False


def _open_with_less(
    content: bytes, options: onnxruntime.SessionOptions, providers: list[Any]
) -> onnxruntime.InferenceSession | None:
    """Return a session with a lower optimization level, or None if none can be opened: then the model is at fault."""
    levels = onnxruntime.GraphOptimizationLevel
    tried = options.graph_optimization_level
    for level in (levels.ORT_ENABLE_BASIC, levels.ORT_DISABLE_ALL):
        if level.value < tried.value:
            options.graph_optimization_level = level
            with suppress(ModelError):
                return open_with(content, options, providers)
    return None


def quiet_options() -> onnxruntime.SessionOptions:
    """Return session options that print no errors, since errors are raised as exceptions."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options


def open_with(
    content: bytes,
    options: onnxruntime.SessionOptions,
    providers: Sequence[Any],
    provider_options: Sequence[dict[str, Any]] | None = None,
) -> onnxruntime.InferenceSession:
    """Return a session with given options and execution providers.

    Raises
    ------
    ModelError
        onnxruntime refuses the model, or lacks a provider.
    """
    try:
        # no fallback, which would print the GPU's error and open a session on the CPU
        session = onnxruntime.InferenceSession(
            content, options, providers=providers, provider_options=provider_options, enable_fallback=0
        )
    except Exception as e:  # onnxruntime's exceptions have no common base class but Exception
        raise_others(e)
        raise ModelError(
            f"onnxruntime {onnxruntime.__version__} cannot load the model: {said_by(e)}"
            f"{_for_missing_kernel(content, str(e))}"
            f"{next((remedy for part, remedy in _OF_LOADING.items() if part in str(e)), '')}"
        ) from e
    name = providers[0] if isinstance(providers[0], str) else providers[0][0]
    if name not in session.get_providers():  # versions that always fall back
        raise ModelError(f"onnxruntime {onnxruntime.__version__} cannot run the model on the {name}.")
    _OPEN.add(session)  # a forked child will not destroy it
    return session


#: The remedies for parts of the messages of onnxruntime about a model that it cannot load.
_OF_LOADING = {
    "is not a registered function": ". Only operators of ONNX and onnxruntime can be trained. Export the model without "
    "custom operators, or pass the part of it after them, made with onnx.utils.extract_model. That needs the type of "
    "its first value: model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, 1, ['n', n_columns])).",
    "Failed to construct locale": ". Install this locale, or convert the model with one that every machine has: "
    "skl2onnx.to_onnx(..., options={CountVectorizer: {'locale': 'C'}}).",
    "not in range [min=": " An operator has too few or too many inputs. If it is in a loss, a rule or an optimizer of "
    "your own, compare the call with https://onnx.ai/onnx/operators.",
}

#: onnxruntime's messages about a node without kernel, or that ONNX does not define for float64.
_NO_KERNEL = re.compile(
    r"Could not find an implementation for (\w+)\(\d+\) node with name"
    r"|Type 'tensor\(double\)' of input parameter \(.*\) of operator \((\w+)\)"
)


def _for_missing_kernel(content: bytes, problem: str) -> str:
    """Return the remedy for an operator that onnxruntime does not run for a type; empty for another problem."""
    found = _NO_KERNEL.search(problem)
    if found is None:
        return ""
    graph, op_type = onnx.load_model_from_string(content).graph, found[1] or found[2]
    types = {v.type.tensor_type.elem_type for v in graph.input} | {v.data_type for v in graph.initializer}
    if onnx.TensorProto.DOUBLE in types:
        return f". It has no {op_type} for float64. Set dtype='float32', and export a float64 model in float32"
    if not onnx.defs.has(op_type, OPSET):
        return f". It does not run {op_type} yet. Export the model with opset {OPSET}, which has other operators for it"
    return (
        f". It has no {op_type} for one of the types here. If the model is from torch.onnx.export(..., dynamo=False), "
        "export it with dynamo=True, which writes other operators; else cast to float32 or int64 before the operator."
    )


@dataclass(frozen=True)
class Place:
    """Where graphs run: a device, and the number of threads per operator.

    Attributes
    ----------
    device : Device
    n_threads : int or None
        None: depends on the work.
    planned : bool
        As in :func:`open_session`.
    """

    device: Device
    n_threads: int | None = None
    planned: bool = True

    def for_work(self, multiplications: float) -> Place:
        """Return the place for a graph with the given number of multiplications per run."""
        return replace(self, n_threads=threads_for(multiplications, self.n_threads))

    def for_results(self, n_bytes: float) -> Place:
        """Return the place for a graph with results of `n_bytes` per run; large results are not held twice."""
        planned = n_bytes <= _LARGE
        return self if planned == self.planned else replace(self, planned=planned)

    def open(
        self, onx: bytes, *, shared: bool = True, captured: bool = False, thorough: bool = True
    ) -> onnxruntime.InferenceSession:
        """Return a session as :func:`open_session` does; a shared session is cached for all equal places."""
        n_threads = self.n_threads or available_threads()
        key = (onx, self.device, n_threads, captured, thorough, self.planned)
        session = SESSIONS.find(key) if shared else None
        if session is None:
            session = open_session(
                onx, self.device, n_threads, captured=captured, thorough=thorough, planned=self.planned
            )
            if shared:
                SESSIONS.keep(key, session, _SESSION_BYTES + 2 * len(onx))
        return session


class KeptSession:
    """A session of an object that may be pickled or forked, and copies of the arrays in it, which may have changed."""

    def __init__(self) -> None:
        self._session: onnxruntime.InferenceSession | None = None
        self._process: int | None = None
        self._inside: dict[str, np.ndarray] = {}

    def find(self, inside: Mapping[str, np.ndarray]) -> onnxruntime.InferenceSession | None:
        """Return the session if this process opened it with equal arrays; NaN never compares equal."""
        is_own = self._process == os.getpid() and inside.keys() == self._inside.keys()
        is_same = is_own and all(np.array_equal(array, self._inside[name]) for name, array in inside.items())
        return self._session if is_same else None

    def keep(self, session: onnxruntime.InferenceSession, inside: Mapping[str, np.ndarray]) -> None:
        """Keep a session that contains these arrays."""
        self._session, self._process = session, os.getpid()
        self._inside = {name: np.array(array) for name, array in inside.items()}

    def __reduce__(self) -> tuple[type[KeptSession], tuple[()]]:
        return KeptSession, ()


def run(
    onx: onnx.ModelProto | bytes,
    feeds: Mapping[str, np.ndarray],
    *,
    device: Device | str = "cpu",
    n_threads: int | None = None,
    outputs: Sequence[str] | None = None,
    thorough: bool = True,
) -> list[np.ndarray]:
    """Run a model once and return all outputs, or the outputs named in `outputs`; see :func:`open_session`."""
    return run_session(open_session(onx, device, n_threads, thorough=thorough), feeds, outputs)


def raise_others(e: Exception) -> None:
    """Raise an exception that is not onnxruntime's: that of a signal handler, as a timeout, while onnxruntime ran."""
    if not type(e).__module__.startswith(("onnxruntime", "builtins")) or isinstance(e, OSError):
        raise e


def run_session(
    session: onnxruntime.InferenceSession, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None
) -> list[np.ndarray]:
    """Run an open session and return its outputs; raise a DataError for an error of onnxruntime."""
    try:
        found = session.run(list(outputs) if outputs is not None else None, dict(feeds))
    except Exception as e:  # see open_with
        raise_others(e)
        said = said_by(e)
        if UNKNOWN_CATEGORY in said:
            raise DataError(said) from e
        remedy = next((remedy for part, remedy in _REMEDIES.items() if part in said), "")
        raise DataError(f"onnxruntime cannot run the model: {said.removesuffix('.')}.{_integers(feeds)}{remedy}") from e
    # if an input is also an output, onnxruntime 1.19 returns its memory without keeping it alive
    given = [x for x in feeds.values() if isinstance(x, np.ndarray)]
    shared = (isinstance(y, np.ndarray) and any(np.may_share_memory(x, y) for x in given) for y in found)
    return [y.copy() if is_shared else y for y, is_shared in zip(found, shared, strict=True)]


#: What onnxruntime says before its message: the kind of error; the node that failed and the line of its source.
_BEFORE = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : "
    r"(?:Non-zero status code returned while running (\w+) node\. Name:'(.*?)' Status Message: )?"
    r"(?:(?:Exception during initialization: )?/\S+:\d+ .*? was false\. )?",
    re.DOTALL,
)


def said_by(error: Exception) -> str:
    """Return the message of an error of onnxruntime, without its codes and the lines of its source, or ours for it."""
    encoder = next((encoder for part, encoder in _ENCODERS.items() if part in str(error)), "")
    if encoder:
        return f"{UNKNOWN_CATEGORY} {encoder} takes any."
    return _BEFORE.sub(lambda found: f"{found[1]} (node {found[2]!r}): " if found[1] else "", str(error).strip())


#: The error for a category that an encoder does not know, and the encoder that takes it, by onnxruntime's message.
UNKNOWN_CATEGORY = "X has a category that the encoder was not fitted on."
_ENCODERS = {
    "Unknown Category": "OneHotEncoder(handle_unknown='ignore')",
    "UnknownCategory": "OrdinalEncoder(handle_unknown='use_encoded_value', unknown_value=-1)",
}

_FEATURES = (
    " The rows may have another number of features than the model takes, which the file does not state. Pass those "
    "with which it was trained, such as model.feature_names_in_ of a scikit-learn estimator."
)

#: The remedies for parts of the messages of onnxruntime.
_REMEDIES = {
    "Attempting to broadcast": " Two inputs or results have different lengths. Pass the inputs of a row, such as token "
    "ids and their mask, with the same length, no longer than the model's table of positions, and rows with as many "
    "features as the model takes. If they are right, the file may only take as many rows as it was exported with. Use "
    'torch.onnx.export(..., dynamo=True, dynamic_shapes=[{0: "n"}]).',
    "GEMM: Dimension mismatch": _FEATURES,
    "requests feature": _FEATURES,
    "cannot be reshaped to the requested shape": " The file may only take as many rows, or rows as long, as it was "
    "exported with, although its inputs say otherwise. Export it with dynamic_shapes of torch.onnx.export(..., "
    "dynamo=True) for both axes, and with x.reshape(len(x), -1) in the module.",
    "Invalid input shape": " A row is too short for a convolution or a pooling of the model. Pad the rows.",
    "bias must be a 1D tensor": " torch.onnx.export(..., dynamo=True, optimize=False) writes such an intercept for "
    "nn.Conv3d(..., bias=False). Use dynamo=False, do_constant_folding=False, or give each such layer zeros that are "
    "not trained, before the export: del layer.bias; layer.register_buffer('bias', torch.zeros(layer.out_channels)).",
    "invalid expand shape": " The rows may be longer than the model's table of positions. Truncate them: "
    "tokenizer(texts, truncation=True, max_length=...).",
    "indices element out of data bounds": " An index selects a row of a table in the model, which has fewer rows. Use "
    "the tokenizer or the encoding that the model was trained with, and rows no longer than its table of positions. If "
    "all indices are valid, the file may only take as many rows as it was exported with: torch.onnx.export(..., "
    "dynamo=False) writes the number of rows as a constant if the module computes with it. Use dynamo=True.",
}


def _integers(feeds: Mapping[str, Any]) -> str:
    """Return the integer inputs (indices and masks) for a message, because onnxruntime only names a node."""
    found = [
        f"{name} of shape {x.shape}, from {x.min()} to {x.max()}"
        for name, x in feeds.items()
        if isinstance(x, np.ndarray) and x.dtype.kind in "iu" and x.ndim and x.size
    ]
    return f" Integer inputs: {'; '.join(found[:8])}." if found else ""


Session: TypeAlias = onnxruntime.InferenceSession


class BoundRun(NamedTuple):
    """A session with bound inputs and outputs, and how its runs are recorded."""

    session: Session
    binding: onnxruntime.IOBinding
    options: onnxruntime.RunOptions | None


#: The identifiers of recorded runs; a session may serve several steps with their own memory.
_RECORDS = itertools.count(1)


def recorded() -> onnxruntime.RunOptions:
    """Return the options of a recorded run."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(next(_RECORDS)))
    return options


# --------------------------------------------------------------------- threads


_POOLS = ThreadpoolController()

#: The number of multiplications below which a second thread does not pay. With 12 million, the fit of a network took
#: 84 ms with two threads and 93 ms with one on two idle cores, but 127 and 91 ms when others used the machine.
_WORTH_A_THREAD = 16_000_000


def available_threads() -> int:
    """Return how many threads this process may use; fewer in a worker of joblib.

    loky limits its workers by OMP_NUM_THREADS, which onnxruntime ignores.
    """
    limit = os.environ.get("OMP_NUM_THREADS", "")
    cores = _cores(os.getpid())
    return min(int(limit), cores) if limit.isdigit() and int(limit) > 0 else cores


@table(maxsize=1)
def _cores(process: int) -> int:
    """Return how many cores a process may use; cached, because joblib reads system files each time."""
    return joblib.cpu_count()


def threads_for(multiplications: float, n_threads: int | None) -> int:
    """Return the number of threads for a graph: `n_threads` if given, else one for a small graph or all."""
    if n_threads is not None:
        return n_threads
    return available_threads() if is_worth_a_thread(multiplications) else 1


def is_worth_a_thread(multiplications: float) -> bool:
    """Whether a graph has enough work for a second thread."""
    return multiplications >= _WORTH_A_THREAD


@contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """Limit the BLAS of numpy and scipy to one thread, for work on small arrays between runs of onnxruntime.

    OpenBLAS' threads spin for some 50 ms, onnxruntime's for some milliseconds. On two cores, an iteration of scipy's
    L-BFGS then took 8 ms instead of 0.3 ms, and the next run of onnxruntime took up to five times as long.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> with one_thread_of_blas():
    ...     {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
    {1}
    """
    with _POOLS.limit(limits=1, user_api="blas"):
        yield
