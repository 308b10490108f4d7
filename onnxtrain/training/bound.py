"""A training step bound to its data and its state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxtrain.errors import DataError
from onnxtrain.runtime.device import Buffer, Device
from onnxtrain.runtime.session import BoundRun, cached_session, recorded
from onnxtrain.training.packing import Part, Parts, join
from onnxtrain.training.step import StepGraph


class BoundStep:
    """A training step bound to its data, its state in two sets of buffers used crosswise.

    :class:`~onnxtrain.training.step.StepGraph` draws the two sets. Bound buffers keep their addresses, unless the
    step is fed its rows: on a GPU each of the two directions is recorded as a CUDA graph and replayed, if
    onnxruntime can record the step.

    Parameters
    ----------
    step : StepGraph
    device : Device
    n_threads : int
    inputs : mapping of str to ndarray
        Arrays that stay bound, by the name of the input. On a CPU the memory is shared.
    state : mapping of tuple to ndarray
        The initial state, by the keys of ``step.state``; copied.
    last : mapping of str to ndarray, optional
        Arrays bound instead in the last step of an epoch, whose batch is smaller.
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
        self._open(captured=device.capabilities.records_runs and "rows" in step.inputs)

    def _open(self, *, captured: bool) -> None:
        self._captured = captured
        self._process = os.getpid()
        thorough = self._device.capabilities.thorough
        self._session = cached_session(
            self._step.onnx, self._device, self._n_threads, captured=captured, thorough=thorough
        )
        self._runs: list[BoundRun | None] = [None] * 4

    def _bound(self, way: int) -> BoundRun:
        """Return the binding of a run, made at its first use.

        The way is the set of buffers that is read, 0 or 1; 2 more for the last step of an epoch. With two steps an
        epoch two of the four are never used; without them a grid over small models takes 4 % less time.
        """
        bound = self._runs[way]
        if bound is None:
            last, turn = divmod(way, 2)
            inputs = self._inputs | self._last if last else self._inputs
            binding = self._bind(inputs, self._buffers[turn], self._buffers[1 - turn])
            bound = self._runs[way] = binding, recorded() if self._captured else None
        return bound

    def _bind(self, inputs: Mapping[str, Buffer], read: Mapping[str, Buffer], write: Mapping[str, Buffer]) -> Any:
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
        except Exception as e:  # see open_session
            if not self._captured:
                raise DataError(f"onnxruntime cannot run a step of training: {e}") from e
            self._open(captured=False)  # the state that was read is as it was
            self.run(last=last)
            return
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
        """Give a value of the state that stands for no weight the value it had at first.

        Each epoch begins with one: the session is opened anew where a callback of the fit has forked in between.
        """
        if self._process != os.getpid():
            self._open(captured=self._captured)
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
