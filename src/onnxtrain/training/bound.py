"""Steps and updates bound to the memory that their runs read and write: rows, weights and optimizer state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from onnxtrain.errors import DataError
from onnxtrain.runtime.device import Buffer
from onnxtrain.runtime.session import BoundRun, Place, Session, raise_others, recorded, said_by
from onnxtrain.training.packing import Part, Parts, join
from onnxtrain.training.state import TrainingState
from onnxtrain.training.step import StepGraph, Wire
from onnxtrain.training.update import UpdateGraph

K = TypeVar("K")


class BoundStep:
    """A training step bound to its data and to two sets of state buffers, which alternate as input and output.

    :class:`~onnxtrain.training.step.StepGraph` draws the two sets. Unless the step is fed its rows, bound buffers keep
    their addresses. Then, on a GPU, each of the two directions is recorded as a CUDA graph and replayed, if onnxruntime
    can record the step.

    Parameters
    ----------
    step : StepGraph
    place : Place
    inputs : mapping of str to ndarray
        Arrays that stay bound, by input name. On a CPU the memory is shared.
    last : mapping of str to ndarray
        Arrays that are bound instead in the last step of an epoch, whose batch is smaller.
    state : TrainingState
        The initial weights and optimizer state; copied.
    update : UpdateGraph, optional
        The update of the weights, if the step ends with gradients.
    """

    def __init__(
        self,
        step: StepGraph,
        place: Place,
        inputs: Mapping[str, np.ndarray],
        last: Mapping[str, np.ndarray],
        state: TrainingState,
        update: UpdateGraph | None = None,
    ):
        self._step, self._place, device = step, place, place.device
        self._capabilities = device.capabilities
        self._inputs = {name: device.buffer(array) for name, array in inputs.items()}
        self._last = {name: device.buffer(array) for name, array in last.items()}
        zeros = {"loss_sum": np.zeros((1, 1), step.dtype.numpy())}
        self._zeros = {name: zeros.get(name, np.zeros(1, np.int64)) for name in step.counters}
        arrays = {wire.input: self._zeros[name].copy() for name, wire in step.counters.items()}
        if update is None:
            arrays |= joined(state.weights, step.weights) | joined(state.slots, step.slots)
        self._buffers = [
            {name: device.buffer(array) for name, array in arrays.items()},
            {name: device.buffer(np.empty_like(a)) for name, a in arrays.items() if name not in step.in_place},
        ]
        self._buffers[1] |= {name: self._buffers[0][name] for name in step.in_place}
        self._outputs: dict[str, Buffer] = {}
        self._update = None if update is None else BoundUpdate(update, place, state)
        if self._update is not None:
            self._inputs |= {wire.input: self._update.weight(w) for w, wire in step.weights.items() if wire.input}
            for (w, _), wire in step.slots.items():  # the sum of gradients is overwritten, since only the sum reads it
                self._outputs[wire.output] = self._update.gradient(w)
                self._inputs |= {wire.input: self._outputs[wire.output]} if wire.input else {}
        self._places = _places(step.weights), _places(step.slots)
        self._turn = 0
        # a run that fails while it is recorded is repeated, which would add its gradients twice
        self._open(captured=self._capabilities.records_runs and step.gathered and update is None)

    def _open(self, *, captured: bool) -> None:
        self._captured = captured
        self._process = os.getpid()
        self._sessions: dict[int | None, Session] = {}
        self._runs: dict[tuple[int, bool, int | None], BoundRun] = {}

    def _session(self, length: int | None) -> Session:
        """Return the session for batches of `length` rows, None for any number; it is opened at its first use."""
        if length not in self._sessions:
            onx = self._step.onnx if length is None else self._step.of_length(length)
            self._sessions[length] = self._place.open(
                onx, captured=self._captured, thorough=self._capabilities.thorough
            )
        return self._sessions[length]

    def _length(self, inputs: Mapping[str, Buffer]) -> int | None:
        """Return the number of rows of the bound batch, or None if sessions of the device take any number."""
        if not self._capabilities.constant_batch:
            return None
        name, axis = next(iter(self._step.batch_inputs.items()))
        return int(inputs[name].value.shape()[axis])

    def _bound(self, *, last: bool) -> BoundRun:
        """Return the next run, the last of an epoch or another, which is bound at its first use.

        With two steps per epoch, two of the four bindings are never used; not making them saves 4 % of the time of a
        grid search over small models.
        """
        inputs = self._inputs | self._last if last else self._inputs
        length = self._length(inputs)
        which = self._turn, last, length
        if which not in self._runs or not self._capabilities.keeps_bindings:
            read, write = self._buffers[self._turn], self._buffers[1 - self._turn]
            session = self._session(length)
            binding = session.io_binding()
            for name, buffer in inputs.items():
                binding.bind_ortvalue_input(name, buffer.value)
            outputs = self._step.state
            for name in read:
                binding.bind_ortvalue_input(name, read[name].value)
                binding.bind_ortvalue_output(outputs[name], write[name].value)
            for name, buffer in self._outputs.items():
                binding.bind_ortvalue_output(name, buffer.value)
            self._runs[which] = BoundRun(session, binding, recorded() if self._captured else None)
        return self._runs[which]

    def run(self, *, last: bool = False) -> None:
        """Run one step, the last of an epoch or another; the next step reads the state that it writes."""
        session, binding, options = self._bound(last=last and bool(self._last))
        try:
            session.run_with_iobinding(binding, options)
        except Exception as e:  # see open_with
            raise_others(e)
            if not self._captured:
                raise DataError(f"onnxruntime cannot run a training step: {said_by(e)}") from e
            self._open(captured=False)  # the input state is unchanged
            self.run(last=last)
            return
        self._turn ^= 1

    def update(self, scalars: np.ndarray) -> None:
        """Update the weights by their gradients if the step ends with gradients; `scalars` are the per-step scalars."""
        if self._update is not None:
            self._update.run(scalars)

    def feed(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Bind the rows of the next batch, which `run` reads."""
        self._inputs |= {name: self._place.device.buffer(array) for name, array in inputs.items()}
        binding = self._bound(last=False).binding
        for name in inputs:
            binding.bind_ortvalue_input(name, self._inputs[name].value)

    def write(self, name: str, array: np.ndarray) -> None:
        """Overwrite a bound input."""
        self._inputs[name].write(array)

    def restart(self, *names: str) -> None:
        """Set counters to 0, at the beginning of each epoch.

        Each epoch begins with this call, which reopens the session if a callback of the fit has forked the process.
        """
        if self._process != os.getpid():
            self._open(captured=self._captured)
            if self._update is not None:
                self._update.open()
        for name in names:
            self._counter(name).write(self._zeros[name])

    def count(self, name: str) -> float:
        """Return the value of a counter."""
        return self._counter(name).read().item()

    def _counter(self, name: str) -> Buffer:
        return self._buffers[self._turn][self._step.counters[name].input]

    def weights(self, *, copy: bool = True) -> Parts[str]:
        """Return the weights as copies, or without a copy if the update is a separate graph and `copy` is false.

        Weights that are parts of one array share it.
        """
        return self._read(self._places[0]) if self._update is None else self._update.weights(copy=copy)

    def slots(self, *, copy: bool = True) -> Parts[tuple[str, str]]:
        """Return the optimizer state, in the same way as :meth:`weights`."""
        return self._read(self._places[1]) if self._update is None else self._update.slots(copy=copy)

    def _read(self, places: Places[K]) -> Parts[K]:
        buffers = self._buffers[self._turn]
        return Parts({name: buffers[name].read() for name in places.wholes}, places.of_each)


class BoundUpdate:
    """An update of the weights bound to one set of buffers, which it overwrites if its graph allows that.

    Parameters
    ----------
    update : UpdateGraph
    place : Place
    state : TrainingState
        The initial weights and optimizer state; copied.
    """

    def __init__(self, update: UpdateGraph, place: Place, state: TrainingState):
        self._update, self._place, device = update, place, place.device
        arrays = joined(state.weights, update.weights) | joined(state.slots, update.slots)
        self._shapes = {name: w.shape for name, w in state.weights.items()}
        self._buffers = {name: device.buffer(array) for name, array in arrays.items()}
        self._gradients = {
            name: device.buffer(np.zeros_like(arrays[update.weights[name].input])) for name in update.gradients
        }
        self._scalars = device.buffer(np.zeros((1, update.n_scalars), update.dtype.numpy()))
        self._places = _places(update.weights), _places(update.slots)
        self._written = self._buffers
        if not update.in_place:
            self._written = {name: device.buffer(np.empty_like(array)) for name, array in arrays.items()}
        self.open()

    def open(self) -> None:
        """Open the session and bind the buffers."""
        update, device = self._update, self._place.device
        session = self._place.open(update.onnx, thorough=device.capabilities.thorough)
        binding = session.io_binding()
        binding.bind_ortvalue_input(update.step_scalars, self._scalars.value)
        for name, gradient in update.gradients.items():
            binding.bind_ortvalue_input(gradient, self._gradients[name].value)
        for wire in (*update.weights.values(), *update.slots.values()):
            binding.bind_ortvalue_input(wire.input, self._buffers[wire.input].value)
            binding.bind_ortvalue_output(wire.output, self._written[wire.input].value)
        self._session, self._binding = session, binding

    def run(self, scalars: np.ndarray) -> None:
        """Update the weights; `scalars` has one row."""
        self._scalars.write(scalars)
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as e:  # see open_with
            raise_others(e)
            raise DataError(f"onnxruntime cannot run an update of the weights: {e}") from e
        if self._written is not self._buffers:
            for name, buffer in self._buffers.items():
                buffer.write(self._written[name].read())

    def weight(self, name: str) -> Buffer:
        """Return the buffer of a weight, in the shape of the weight."""
        return self._shaped(self._buffers[self._update.weights[name].input], name)

    def gradient(self, name: str) -> Buffer:
        """Return the buffer of the gradient of a weight, in the shape of the weight."""
        return self._shaped(self._gradients[name], name)

    def _shaped(self, buffer: Buffer, name: str) -> Buffer:
        if buffer.array is None or buffer.array.shape == self._shapes[name]:
            return buffer
        return self._place.device.buffer(buffer.array.reshape(self._shapes[name]))

    def weights(self, *, copy: bool) -> Parts[str]:
        """Return the weights; if not copied, later steps change them."""
        return self._read(self._places[0], copy=copy)

    def slots(self, *, copy: bool) -> Parts[tuple[str, str]]:
        """Return the optimizer state, in the same way as :meth:`weights`."""
        return self._read(self._places[1], copy=copy)

    def _read(self, places: Places[K], *, copy: bool) -> Parts[K]:
        buffers = {name: self._buffers[name] for name in places.wholes}
        wholes = {name: b.read() if copy or b.array is None else b.array for name, b in buffers.items()}
        return Parts(wholes, places.of_each)


class Places(NamedTuple, Generic[K]):
    """The inputs that hold packed arrays, and the place of each array in them."""

    wholes: frozenset[str]
    of_each: dict[K, tuple[str, Part | None]]


def _places(wires: Mapping[K, Wire]) -> Places[K]:
    """Return the places of arrays; computed once, because they are needed after every epoch."""
    of_each = {key: (wire.input, wire.part) for key, wire in wires.items()}
    return Places(frozenset(whole for whole, _ in of_each.values()), of_each)


def joined(arrays: Mapping[K, np.ndarray], wires: Mapping[K, Wire]) -> dict[str, np.ndarray]:
    """Return a new array for each input, concatenated from its parts."""
    parts: dict[str, dict[K, Part | None]] = {}
    for key, wire in wires.items():
        parts.setdefault(wire.input, {})[key] = wire.part
    return {name: join(arrays, members) for name, members in parts.items()}
