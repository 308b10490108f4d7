"""One forward and its backward, on the graphs of a class made by OrtGradientForwardBackward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from onnxruntime.capi import _pybind_state as native

from onnxtrain.errors import DataError, ModelError
from onnxtrain.ortgradient import _tensors
from onnxtrain.ortgradient._engines import Engine, Runner, Saved
from onnxtrain.ortgradient._graphs import PassGraphs, Tensor


class OrtGradientForwardBackwardFunction:
    """Ancestor of the classes made by :class:`OrtGradientForwardBackward`.

    An instance remembers its forwards: each call of :meth:`backward` answers the
    last :meth:`forward` that has not been answered yet.

    Attributes
    ----------
    states_ : list
        One entry for each forward that waits for its backward.
    saved_tensors_ : list or None
        What :meth:`save_for_backward` was given.
    """

    _graphs: ClassVar[PassGraphs]
    _engine: ClassVar[Engine | None]
    _eval: ClassVar[Runner | None]
    _devices: ClassVar[list[Any]]
    _logger: ClassVar[Any] = None
    _debug: ClassVar[bool] = False

    def __init__(self) -> None:
        self.states_: list[Saved] = []
        self.saved_tensors_: list[Any] | None = None

    @staticmethod
    def device_name(device: Any) -> str:
        """Return ``"Cpu"`` or ``"Gpu"`` for an OrtDevice."""
        return _tensors.device_name(device)

    @staticmethod
    def input_to_ort(tensors: Any, devices: Sequence[Any], debug: bool = False) -> Any:
        """Return tensors as an OrtValueVector, without copies on a CPU.

        Parameters
        ----------
        tensors : OrtValueVector, or list of numpy arrays, OrtValues, or tensors with ``__dlpack__``
        devices : list of OrtDevice
            One for each tensor; numpy arrays are copied there.
        debug : bool
            Kept for old code: everything is always checked.

        Raises
        ------
        DataError, DeviceError
            Their number is wrong, one is no tensor, or lies on another device.
        """
        return _tensors.to_vector(tensors, devices, [f"tensor {i}" for i in range(len(devices))])

    def save_for_backward(self, inputs: Any) -> None:
        """Remember a list of tensors; they are not copied."""
        self.saved_tensors_ = list(inputs)

    @property
    def saved_tensors(self) -> list[Any]:
        """What :meth:`save_for_backward` was given last."""
        if self.saved_tensors_ is None:
            raise DataError("No tensors were saved: call forward(inputs, training=True) or save_for_backward first.")
        return self.saved_tensors_

    def forward(self, inputs: Any, training: bool = False, forward_outputs_cache: Any = None) -> Any:
        """Compute the outputs.

        Parameters
        ----------
        inputs : OrtValueVector, or list of numpy arrays, OrtValues, or tensors with ``__dlpack__``
            The inputs of the model, then the weights, in the order of
            ``OrtGradientForwardBackward``. Do not change them before the backward: they are not copied.
        training : bool
            A backward will follow.
        forward_outputs_cache : OrtValueVector, optional
            An empty one, which receives the outputs.

        Returns
        -------
        OrtValueVector
            The outputs, on the device.

        Raises
        ------
        DataError, DeviceError
            A number, a type, a shape or a device is wrong; nothing has run.
        """
        graphs, cls = self._graphs, self.__class__
        receiver = _receiver(forward_outputs_cache, "forward_outputs_cache")
        feeds = _checked(inputs, graphs.inputs, cls._devices)
        if not training:
            return _handed(_opened(cls._eval)(feeds), receiver)
        outputs, memory = _opened(cls._engine).forward(feeds)
        shapes = tuple(tuple(y.shape()) for y in outputs)
        self.states_.append(Saved(memory, shapes, (inputs, feeds)))
        self.save_for_backward(feeds)
        if cls._logger is not None:
            cls._logger.debug(
                "[%s.forward] %d outputs, %d forwards wait", cls.__name__, len(outputs), len(self.states_)
            )
        return _handed(outputs, receiver)

    def backward(self, grad_outputs: Any, backward_outputs_cache: Any = None) -> Any:
        """Compute the gradients that answer the last forward in training.

        Parameters
        ----------
        grad_outputs : OrtValueVector, or list of numpy arrays, OrtValues, or tensors with ``__dlpack__``
            One for each output, of its shape; an output of integers has none: None, or
            nothing at its place.
        backward_outputs_cache : OrtValueVector, optional
            An empty one, which receives the gradients.

        Returns
        -------
        OrtValueVector
            The gradients of the inputs that need one, then of the weights, on the device.

        Raises
        ------
        DataError, DeviceError
            No forward waits, or a number, a type, a shape or a device is wrong: nothing has run,
            and the forward still waits.
        """
        cls, graphs = self.__class__, self._graphs
        receiver = _receiver(backward_outputs_cache, "backward_outputs_cache")
        if not self.states_:
            raise DataError("No forward waits for a backward: call forward(inputs, training=True) first.")
        saved = self.states_[-1]
        real = [i for i, y in enumerate(graphs.outputs) if y.is_real]
        expected = [
            Tensor(f"{graphs.outputs[i].name}_grad", graphs.outputs[i].elem_type, saved.shapes[i]) for i in real
        ]
        given = _without_flat(grad_outputs, real, len(graphs.outputs))
        dy = _checked(given, expected, [cls._devices[0]] * len(expected))
        gradients = [value for i, value in zip(real, dy, strict=True) if i in graphs.incoming]
        found = _opened(cls._engine).backward(saved.memory, gradients)
        self.states_.pop()
        if cls._logger is not None:
            cls._logger.debug("[%s.backward] %d gradients", cls.__name__, len(found))
        return _handed(found, receiver)


def _checked(tensors: Any, expected: Sequence[Tensor], devices: Sequence[Any]) -> Any:
    feeds = _tensors.to_vector(tensors, devices, [t.name for t in expected])
    _tensors.check_fits(feeds, expected)
    return feeds


def _without_flat(gradients: Any, real: Sequence[int], count: int) -> Any:
    """Leave out what stands at the place of an output of integers."""
    if len(real) == count or not isinstance(gradients, (list, tuple)) or len(gradients) != count:
        return gradients
    return [gradients[i] for i in real]


def _opened(engine: Any) -> Any:
    if engine is None:
        raise ModelError("The sessions are closed: make another OrtGradientForwardBackward.")
    return engine


def _receiver(cache: Any, what: str) -> Any:
    """Return the vector that receives results, or raise before anything has run."""
    if cache is None:
        return None
    if not isinstance(cache, native.OrtValueVector) or len(cache):
        raise DataError(f"{what} must be an empty OrtValueVector, got a {type(cache).__name__}.")
    return cache


def _handed(values: Any, receiver: Any) -> Any:
    if receiver is None:
        return values if isinstance(values, native.OrtValueVector) else _tensors.vector(values)
    for value in values:
        receiver.push_back(value)
    return receiver
