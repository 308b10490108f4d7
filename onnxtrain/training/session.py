"""The one home of onnxruntime's sessions: options, threads, binding, runs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeAlias

import joblib
import numpy as np
import onnx
import onnxruntime

from onnxtrain import graph
from onnxtrain.errors import DataError, ModelError
from onnxtrain.training.device import Buffer, Device, can_be_recorded, find_device
from onnxtrain.training.packing import Part, Parts, join
from onnxtrain.training.step import StepGraph

#: Multiplications below which a second thread costs more than it brings.
_WORTH_A_THREAD = 8_000_000


def open_session(
    onx: onnx.ModelProto | bytes,
    device: Device | str = "cpu",
    n_threads: int | None = None,
    *,
    captured: bool = False,
    thorough: bool = True,
) -> onnxruntime.InferenceSession:
    """Return a session of onnxruntime on a model.

    Parameters
    ----------
    onx : onnx.ModelProto or bytes
    device : Device or str
    n_threads : int, optional
        Threads of one operator; None takes what :func:`available_threads` finds.
    captured : bool
        On a GPU, runs are recorded as CUDA graphs where onnxruntime can do so with the model.
    thorough : bool
        Every rearrangement of the graph that onnxruntime knows is tried, which pays for many predictions. Without,
        the cheap ones are: those that steps gain from.

    Raises
    ------
    ModelError
        onnxruntime refuses the model: an operator without kernel, an opset too new.
    """
    device = device if isinstance(device, Device) else find_device(device)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors reach us as exceptions
    options.intra_op_num_threads = n_threads or available_threads()
    if not thorough:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    content = graph.at_opset(onx if isinstance(onx, bytes) else onx.SerializeToString(), device.opset)
    if captured and device.kind != "cpu" and can_be_recorded(content):
        with suppress(ModelError):  # a node that only a CPU has
            return _open(content, options, device.providers(captured=True))
    try:
        return _open(content, options, device.providers())
    except ModelError as e:
        if "FusedMatMul" not in str(e):
            raise
        # up to 1.19 a product is fused into an operator that has no kernel in float64
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        return _open(content, options, device.providers())


def _open(content: bytes, options: onnxruntime.SessionOptions, providers: list[Any]) -> onnxruntime.InferenceSession:
    try:
        # without fallback: else an error of the GPU is printed, and the session is one on the CPU
        session = onnxruntime.InferenceSession(content, options, providers=providers, enable_fallback=0)
    except Exception as e:  # onnxruntime's exceptions have no common base but Exception
        raise ModelError(f"onnxruntime {onnxruntime.__version__} cannot load the model: {e}") from e
    name = providers[0] if isinstance(providers[0], str) else providers[0][0]
    if name not in session.get_providers():  # as versions do that know no other way than to fall back
        raise ModelError(f"onnxruntime {onnxruntime.__version__} cannot run the model on the {name}.")
    return session


def cached_session(
    onx: bytes, device: Device, n_threads: int, *, captured: bool = False, thorough: bool = True
) -> onnxruntime.InferenceSession:
    """Return a session like :func:`open_session`, the same one for the same model in this process."""
    # after a fork the threads of the parent's sessions are gone: a child opens its own
    return _cached_session(onx, device, n_threads, captured, thorough, os.getpid())


@lru_cache(maxsize=64)
def _cached_session(
    onx: bytes, device: Device, n_threads: int, captured: bool, thorough: bool, process: int
) -> onnxruntime.InferenceSession:
    return open_session(onx, device, n_threads, captured=captured, thorough=thorough)


class LazySession:
    """A session that is opened when it is first needed and never pickled."""

    def __init__(self) -> None:
        self._session: onnxruntime.InferenceSession | None = None
        self._process: int | None = None

    def open(self, make: Callable[[], onnxruntime.InferenceSession]) -> onnxruntime.InferenceSession:
        """Return the session, made by `make` the first time in this process."""
        if self._session is None or self._process != os.getpid():
            self._session, self._process = make(), os.getpid()
        return self._session

    def __reduce__(self) -> tuple[type[LazySession], tuple[()]]:
        return LazySession, ()


def run(
    onx: onnx.ModelProto | bytes,
    feeds: Mapping[str, np.ndarray],
    *,
    device: Device | str = "cpu",
    n_threads: int | None = None,
    outputs: Sequence[str] | None = None,
    thorough: bool = True,
) -> list[np.ndarray]:
    """Run a model once and return its outputs, or those named in `outputs`; see :func:`open_session`."""
    return run_session(open_session(onx, device, n_threads, thorough=thorough), feeds, outputs)


def run_session(
    session: onnxruntime.InferenceSession, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None
) -> list[np.ndarray]:
    """Run an open session and return its outputs; what onnxruntime refuses becomes a DataError."""
    try:
        found = session.run(list(outputs) if outputs is not None else None, dict(feeds))
    except Exception as e:  # see open_session
        raise DataError(f"onnxruntime cannot run the model: {e}") from e
    # onnxruntime 1.19 returns the memory of an input that is an output as well, without keeping it alive
    return [y.copy() if any(_may_share_memory(x, y) for x in feeds.values()) else y for y in found]


def _may_share_memory(x: Any, y: Any) -> bool:
    return isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and np.may_share_memory(x, y)


def available_threads() -> int:
    """Return how many threads this process may use: fewer in a worker of joblib.

    loky tells its workers by OMP_NUM_THREADS, which onnxruntime does not read.
    """
    limit = os.environ.get("OMP_NUM_THREADS", "")
    cores = _cores(os.getpid())
    return min(int(limit), cores) if limit.isdigit() and int(limit) > 0 else cores


@lru_cache(maxsize=1)
def _cores(process: int) -> int:
    """Return how many cores a process may use; joblib asks files of the system, each time."""
    return joblib.cpu_count()


def threads_for(multiplications: float, n_threads: int | None) -> int:
    """Return the number of threads for a graph: `n_threads` where given, one for a small graph."""
    if n_threads is not None:
        return n_threads
    return available_threads() if is_worth_a_thread(multiplications) else 1


def is_worth_a_thread(multiplications: float) -> bool:
    """Whether a graph has so much to do that a second thread may bring something."""
    return multiplications >= _WORTH_A_THREAD


#: What a run reads and writes, and how it is recorded.
_Bound: TypeAlias = "tuple[onnxruntime.IOBinding, onnxruntime.RunOptions | None]"

#: The numbers of recorded runs: a session may serve several steps, each bound to memory of its own.
_RECORDS = itertools.count(1)


def _record() -> onnxruntime.RunOptions:
    """Return the options of a run that is recorded."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(next(_RECORDS)))
    return options


class BoundStep:
    """A training step bound to its data, its state in two sets of buffers used crosswise.

    What is bound stays where it is, unless the step is fed its rows: on a GPU each of the two ways
    through the buffers is recorded as a CUDA graph and replayed, if onnxruntime can record the step.

    Parameters
    ----------
    step : StepGraph
    device : Device
    n_threads : int
    inputs : mapping of str to ndarray
        What stays bound, by the name of the input. On a CPU the memory is shared.
    state : mapping of tuple to ndarray
        The initial state, by the keys of ``step.state``; copied.
    last : mapping of str to ndarray, optional
        What is bound instead in the last step of an epoch, whose batch is smaller.
    """

    def __init__(
        self,
        step: StepGraph,
        device: Device,
        n_threads: int,
        inputs: Mapping[str, np.ndarray],
        state: Mapping[tuple[str, ...], np.ndarray],
        last: Mapping[str, np.ndarray] | None = None,
    ):
        self._step, self._device, self._n_threads = step, device, n_threads
        self._inputs = {name: device.buffer(array) for name, array in inputs.items()}
        self._last = {name: device.buffer(array) for name, array in (last or {}).items()}
        places = {key: (step.state[key].input, step.state[key].part) for key in state}
        self._weights = {key[1]: place for key, place in places.items() if key[0] == "weight"}
        self._slots = {(key[1], key[2]): place for key, place in places.items() if key[0] == "slot"}
        self._wholes_of_weights = {whole for whole, _ in self._weights.values()}
        self._wholes_of_slots = {whole for whole, _ in self._slots.values()}
        self._at_first = {key[0]: array for key, array in state.items() if len(key) == 1}
        arrays = self._join(state)
        self._buffers = [
            {name: device.buffer(array) for name, array in arrays.items()},
            {name: device.buffer(np.empty_like(array)) for name, array in arrays.items()},
        ]
        self._turn = 0
        self._open(captured=device.kind != "cpu" and "rows" in step.inputs)

    def _open(self, *, captured: bool) -> None:
        self._captured = captured
        self._session = cached_session(
            self._step.onnx, self._device, self._n_threads, captured=captured, thorough=self._device.kind != "cpu"
        )
        self._runs: list[_Bound | None] = [None] * 4

    def _bound(self, way: int) -> _Bound:
        """Return what a run reads and writes, bound when it is first needed: with two steps an epoch two never are.

        The way is the set of buffers that is read, 0 or 1; 2 more for the last step of an epoch.
        """
        bound = self._runs[way]
        if bound is None:
            last, turn = divmod(way, 2)
            inputs = self._inputs | self._last if last else self._inputs
            binding = self._bind(inputs, self._buffers[turn], self._buffers[1 - turn])
            bound = self._runs[way] = binding, _record() if self._captured else None
        return bound

    def _bind(
        self, inputs: Mapping[str, Buffer], read: Mapping[str, Buffer], write: Mapping[str, Buffer]
    ) -> onnxruntime.IOBinding:
        binding = self._session.io_binding()
        for name, buffer in inputs.items():
            binding.bind_ortvalue_input(name, buffer.value)
        for name, output in {wire.input: wire.output for wire in self._step.state.values()}.items():
            binding.bind_ortvalue_input(name, read[name].value)
            binding.bind_ortvalue_output(output, write[name].value)
        return binding

    def _join(self, state: Mapping[tuple[str, ...], np.ndarray]) -> dict[str, np.ndarray]:
        """Return a new array for each input, the parts of one put together."""
        parts: dict[str, dict[tuple[str, ...], Part | None]] = {}
        for key, wire in self._step.state.items():
            parts.setdefault(wire.input, {})[key] = wire.part
        return {name: join(state, members) for name, members in parts.items()}

    def run(self, *, last: bool = False) -> None:
        """Do one step, the last of an epoch or another: the state just written is read by the next."""
        way = self._turn + 2 * (last and bool(self._last))
        try:
            self._session.run_with_iobinding(*self._bound(way))
        except Exception:  # see open_session
            if not self._captured:
                raise
            self._open(captured=False)  # the state that was read is as it was
            self._session.run_with_iobinding(*self._bound(way))
        self._turn ^= 1

    def feed(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Bind the rows of the next batch, which `run` will read."""
        for name, array in inputs.items():
            self._inputs[name] = self._device.buffer(array)
            self._bound(self._turn)[0].bind_ortvalue_input(name, self._inputs[name].value)

    def write(self, name: str, array: np.ndarray) -> None:
        """Overwrite a bound input."""
        self._inputs[name].write(array)

    def restart(self, name: str) -> None:
        """Give a value of the state that stands for no weight the value it had at first."""
        self._buffers[self._turn][self._step.state[name,].input].write(self._at_first[name])

    def read_state(self, name: str) -> np.ndarray:
        """Return a copy of a value of the state that stands for no weight."""
        return self._buffers[self._turn][self._step.state[name,].input].read()

    def state(self) -> tuple[Parts[str], Parts[tuple[str, str]]]:
        """Return copies of the weights and of the memory of the optimizer; parts of one array share it."""
        buffers = self._buffers[self._turn]
        return (
            Parts({name: buffers[name].read() for name in self._wholes_of_weights}, self._weights),
            Parts({name: buffers[name].read() for name in self._wholes_of_slots}, self._slots),
        )
