"""One forward and one backward pass: two sessions of any onnxruntime, or the TrainingAgent of the training build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

import onnxruntime
from onnxruntime.capi import _pybind_state as native

from onnxtrain.arguments import lists_its_arguments
from onnxtrain.attributes import NamesItsAttributes
from onnxtrain.errors import DataError, ModelError, ParameterError
from onnxtrain.ortgradient import _tensors
from onnxtrain.ortgradient._graphs import PassGraphs, Tensor
from onnxtrain.ortgradient._tensors import Tensors, vector


class Saved(NamedTuple):
    """The results of a forward pass that its backward pass needs.

    ``memory`` is private to the engine. ``shapes`` and ``inputs`` are used for checks; ``inputs`` also keeps alive the
    memory that onnxruntime borrows.
    """

    memory: Any
    shapes: tuple[tuple[int, ...], ...]
    inputs: Any


class Engine(Protocol):
    """The two passes of one graph."""

    def forward(self, inputs: native.OrtValueVector) -> tuple[list[Any], Any]:
        """Return the outputs and the saved values for the backward pass."""

    def backward(self, memory: Any, gradients: Sequence[Any]) -> Any:
        """Return the gradients as an OrtValueVector; `gradients` has one entry per incoming gradient."""


class Runner:
    """A session whose inputs and outputs are OrtValues on the device."""

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        device: native.OrtDevice,
        inputs: Sequence[str],
        outputs: Sequence[str],
        run_options: onnxruntime.RunOptions | None = None,
    ):
        self.session = session
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.devices = [device] * len(self.outputs)
        self.run_options = run_options if run_options is not None else onnxruntime.RunOptions()

    def __call__(self, feeds: native.OrtValueVector) -> native.OrtValueVector:
        fetches = native.OrtValueVector()
        if not self.outputs:
            return fetches
        guarded(
            lambda: self.session.run_with_ortvaluevector(
                self.run_options, self.inputs, feeds, self.outputs, fetches, self.devices
            )
        )
        return fetches


class TwoSessions:
    """The passes as two graphs of standard operators; the forward graph also outputs the values that backward needs."""

    def __init__(self, graphs: PassGraphs, forward: Runner, backward: Runner):
        self.graphs = graphs
        self.run_forward = forward
        self.run_backward = backward

    def forward(self, inputs: native.OrtValueVector) -> tuple[list[Any], Any]:
        """See :class:`Engine`."""
        g = self.graphs
        fetches = list(self.run_forward(inputs))
        known = dict(zip((t.name for t in g.inputs), inputs, strict=True))
        known |= dict(zip(self.run_forward.outputs, fetches, strict=True))
        return fetches[: len(g.outputs)], [known[name] for name in g.needed]

    def backward(self, memory: Any, gradients: Sequence[Any]) -> Any:
        """See :class:`Engine`."""
        return self.run_backward(vector([*gradients, *memory]))


class Agent:
    """The passes of a TrainingAgent: one session that stops at YieldOp and resumes there."""

    def __init__(self, graphs: PassGraphs, session: onnxruntime.InferenceSession, device: native.OrtDevice):
        names = [t.name for t in graphs.inputs]
        self.session = session
        self.cache = native.OrtValueCache()
        # one device per output: with fewer the process crashes
        self.agent = native.TrainingAgent(
            session._sess,
            names,
            [device] * len(graphs.outputs),
            list(graphs.gradients),
            [device] * len(graphs.gradients),
            device.device_id(),
        )

    def forward(self, inputs: native.OrtValueVector) -> tuple[list[Any], Any]:
        """See :class:`Engine`."""
        state, fetches = native.PartialGraphExecutionState(), native.OrtValueVector()
        guarded(lambda: self.agent.run_forward(inputs, fetches, state, self.cache))
        return list(fetches), state

    def backward(self, memory: Any, gradients: Sequence[Any]) -> Any:
        """See :class:`Engine`."""
        fetches = native.OrtValueVector()
        guarded(lambda: self.agent.run_backward(vector(gradients), fetches, memory))
        return fetches


def guarded(run: Callable[[], None]) -> None:
    """Call onnxruntime and re-raise its exceptions as a DataError."""
    try:
        run()
    except Exception as e:  # onnxruntime's exceptions have no common base class but Exception
        raise DataError(f"onnxruntime cannot run the model: {e}") from e


class OrtGradientForwardBackwardFunction(NamesItsAttributes):
    """Base class of the classes that :class:`OrtGradientForwardBackward` generates.

    An instance has a stack of forward passes. Each call of :meth:`backward` belongs to the last call of :meth:`forward`
    that had no backward pass yet.

    Attributes
    ----------
    states_ : list
        One entry per forward pass that waits for its backward pass.
    saved_tensors_ : list or None
        The last argument of :meth:`save_for_backward`.

    Examples
    --------
    Two forward passes wait; the backward pass belongs to the second:

    >>> import numpy as np, onnx.parser
    >>> from onnxtrain import OrtGradientForwardBackward
    >>> onx = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["" : 21]>
    ...     line (float[N] X) => (float[N] Y) <float slope = {2}> { Y = Mul(X, slope) }''')
    >>> function = OrtGradientForwardBackward(onx).new_instance()
    >>> X, slope = np.array([1, 2], np.float32), np.float32(2)
    >>> for x in (X, 10 * X):
    ...     outputs = function.forward([x, slope], training=True)
    >>> len(function.states_)
    2
    >>> function.backward([np.ones(2, np.float32)])[1].numpy().item()  # the sum of the second X
    30.0
    """

    _remedies = MappingProxyType(
        dict.fromkeys(
            ("get_weights", "parameters", "set_weights", "step", "weights"),
            "The caller holds the weights, passes them to forward after the inputs, and changes them.",
        )
    )
    _graphs: ClassVar[PassGraphs]
    _onx_inp: ClassVar[list[str]]
    _weights_to_train: ClassVar[list[str]]
    _engine: ClassVar[Engine | None]
    _eval: ClassVar[Runner | None]
    _devices: ClassVar[list[Any]]
    _logger: ClassVar[Any] = None
    _debug: ClassVar[bool] = False

    def __init__(self) -> None:
        if type(self) is OrtGradientForwardBackwardFunction:
            raise ParameterError(
                "OrtGradientForwardBackwardFunction is the base class of the classes of single models. Create an "
                "instance of such a class: OrtGradientForwardBackward(model).new_instance()."
            )
        self.states_: list[Saved] = []
        self.saved_tensors_: list[Any] | None = None

    @staticmethod
    def device_name(device: native.OrtDevice) -> str:
        """Return ``"Cpu"`` or ``"Gpu"`` for an OrtDevice.

        Parameters
        ----------
        device : OrtDevice
            A device of onnxruntime.

        Returns
        -------
        str
            The kind of the device, without an index.

        Examples
        --------
        >>> import numpy as np, onnxruntime
        >>> from onnxruntime.capi import _pybind_state as native
        >>> from onnxtrain import OrtGradientForwardBackwardFunction
        >>> cpu = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
        >>> OrtGradientForwardBackwardFunction.device_name(cpu)
        'Cpu'
        """
        return _tensors.device_name(device)

    @staticmethod
    def input_to_ort(tensors: Tensors, devices: Sequence[native.OrtDevice], debug: bool = False) -> Any:
        """Return tensors as an OrtValueVector, without copies on a CPU.

        Parameters
        ----------
        tensors : OrtValueVector, or list of numpy arrays, OrtValues, or tensors with ``__dlpack__``
            The tensors, in the order of the inputs.
        devices : list of OrtDevice
            The device of each tensor, to which numpy arrays are copied.
        debug : bool
            No effect; kept for backward compatibility.

        Returns
        -------
        OrtValueVector
            One entry per tensor.

        Raises
        ------
        DataError, DeviceError
            The number of tensors is wrong, a value is not a tensor, or a tensor is on another device.

        Examples
        --------
        >>> import numpy as np
        >>> from onnxruntime.capi import _pybind_state as native
        >>> from onnxtrain import OrtGradientForwardBackwardFunction
        >>> cpu = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
        >>> vector = OrtGradientForwardBackwardFunction.input_to_ort([np.arange(3)], [cpu])
        >>> vector[0].shape()
        [3]
        """
        return _tensors.to_vector(tensors, devices, [f"tensor {i}" for i in range(len(devices))])

    def save_for_backward(self, inputs: Any) -> None:
        """Save a list of tensors without copying them.

        Parameters
        ----------
        inputs : iterable of tensors
            The tensors; :meth:`forward` with ``training=True`` saves its inputs itself.

        Examples
        --------
        >>> import numpy as np, onnx.parser
        >>> from onnxtrain import OrtGradientForwardBackward
        >>> onx = onnx.parser.parse_model('''
        ...     <ir_version: 10, opset_import: ["" : 21]>
        ...     line (float[N] X) => (float[N] Y) <float slope = {2}> { Y = Mul(X, slope) }''')
        >>> function = OrtGradientForwardBackward(onx).new_instance()
        >>> X, slope = np.array([1, 2], np.float32), np.float32(2)
        >>> function.save_for_backward([X])
        >>> function.saved_tensors[0] is X
        True
        """
        self.saved_tensors_ = list(inputs)

    @property
    def saved_tensors(self) -> list[Any]:
        """The last argument of :meth:`save_for_backward`.

        Examples
        --------
        >>> import numpy as np, onnx.parser
        >>> from onnxtrain import OrtGradientForwardBackward
        >>> onx = onnx.parser.parse_model('''
        ...     <ir_version: 10, opset_import: ["" : 21]>
        ...     line (float[N] X) => (float[N] Y) <float slope = {2}> { Y = Mul(X, slope) }''')
        >>> function = OrtGradientForwardBackward(onx).new_instance()
        >>> X, slope = np.array([1, 2], np.float32), np.float32(2)
        >>> outputs = function.forward([X, slope], training=True)
        >>> [tensor.numpy().tolist() for tensor in function.saved_tensors]
        [[1.0, 2.0], 2.0]
        """
        if self.saved_tensors_ is None:
            raise DataError("No tensors were saved: call forward(inputs, training=True) or save_for_backward first.")
        return self.saved_tensors_

    @lists_its_arguments
    def forward(
        self, inputs: Tensors, training: bool = False, forward_outputs_cache: native.OrtValueVector | None = None
    ) -> Any:
        """Compute the outputs.

        Parameters
        ----------
        inputs : OrtValueVector, or list of numpy arrays, OrtValues, or tensors with ``__dlpack__``
            The inputs of the model, then the weights, in the order of ``OrtGradientForwardBackward``. They are not
            copied, so do not change them before the backward pass.
        training : bool
            Whether a backward pass will follow.
        forward_outputs_cache : OrtValueVector, optional
            An empty vector that receives the outputs.

        Returns
        -------
        OrtValueVector
            The outputs, on the device.

        Raises
        ------
        DataError, DeviceError
            The number of tensors, a type, a shape or a device is wrong; nothing was run.

        Examples
        --------
        >>> import numpy as np, onnx.parser
        >>> from onnxtrain import OrtGradientForwardBackward
        >>> onx = onnx.parser.parse_model('''
        ...     <ir_version: 10, opset_import: ["" : 21]>
        ...     line (float[N] X) => (float[N] Y) <float slope = {2}> { Y = Mul(X, slope) }''')
        >>> function = OrtGradientForwardBackward(onx).new_instance()
        >>> X, slope = np.array([1, 2], np.float32), np.float32(2)
        >>> function.forward([X, slope])[0].numpy().tolist()
        [2.0, 4.0]
        """
        graphs, cls = self._graphs, self.__class__
        receiver = _receiver(forward_outputs_cache, "forward_outputs_cache")
        if isinstance(inputs, (list, tuple)) and 0 < len(cls._weights_to_train) == len(graphs.inputs) - len(inputs):
            raise DataError(
                f"forward takes the weights after the inputs of the model, got {len(inputs)} of {len(graphs.inputs)} "
                "tensors. For passes = OrtGradientForwardBackward(...), pass forward([X, *map(passes.get_initializer, "
                "passes.weights_to_train)])."
            )
        feeds = _checked(inputs, graphs.inputs, cls._devices)
        if not training:
            return _handed(_opened(cls._eval)(feeds), receiver)
        outputs, memory = _opened(cls._engine).forward(feeds)
        shapes = tuple(tuple(y.shape()) for y in outputs)
        self.states_.append(Saved(memory, shapes, (inputs, feeds)))
        self.save_for_backward(feeds)
        if cls._logger is not None:
            cls._logger.debug(
                "[%s.forward] %d outputs, %d pending forwards", cls.__name__, len(outputs), len(self.states_)
            )
        return _handed(outputs, receiver)

    def backward(self, grad_outputs: Tensors, backward_outputs_cache: native.OrtValueVector | None = None) -> Any:
        """Compute the gradients for the last forward pass in training mode.

        Parameters
        ----------
        grad_outputs : OrtValueVector, or list of numpy arrays, OrtValues, or tensors with ``__dlpack__``
            One gradient per output, of the same shape as the output, or of a shape that broadcasts to it. The gradient
            of an integer output is None or left out.
        backward_outputs_cache : OrtValueVector, optional
            An empty vector that receives the gradients.

        Returns
        -------
        OrtValueVector
            The gradients of the inputs that need one, then of the weights, on the device.

        Raises
        ------
        DataError, DeviceError
            No forward pass waits, or the number of tensors, a type, a shape or a device is wrong. Nothing was run, and
            the forward pass still waits.

        Examples
        --------
        >>> import numpy as np, onnx.parser
        >>> from onnxtrain import OrtGradientForwardBackward
        >>> onx = onnx.parser.parse_model('''
        ...     <ir_version: 10, opset_import: ["" : 21]>
        ...     line (float[N] X) => (float[N] Y) <float slope = {2}> { Y = Mul(X, slope) }''')
        >>> function = OrtGradientForwardBackward(onx).new_instance()
        >>> X, slope = np.array([1, 2], np.float32), np.float32(2)
        >>> outputs = function.forward([X, slope], training=True)
        >>> dx, dslope = function.backward([np.array([1, 10], np.float32)])
        >>> dx.numpy().tolist(), dslope.numpy().item()
        ([2.0, 20.0], 21.0)
        """
        cls, graphs = self.__class__, self._graphs
        receiver = _receiver(backward_outputs_cache, "backward_outputs_cache")
        if not self.states_:
            raise DataError("There is no forward pass to differentiate. Call forward(inputs, training=True) first.")
        saved = self.states_[-1]
        real = [i for i, y in enumerate(graphs.outputs) if y.is_real]
        expected = [
            Tensor(f"{graphs.outputs[i].name}_grad", graphs.outputs[i].elem_type, saved.shapes[i]) for i in real
        ]
        given = _without_flat(grad_outputs, real, len(graphs.outputs))
        dy = _checked(given, expected, [cls._devices[0]] * len(expected), stretches=True)
        gradients = [value for i, value in zip(real, dy, strict=True) if i in graphs.incoming]
        found = _opened(cls._engine).backward(saved.memory, gradients)
        self.states_.pop()
        if cls._logger is not None:
            cls._logger.debug("[%s.backward] %d gradients", cls.__name__, len(found))
        return _handed(found, receiver)


def _checked(
    tensors: Tensors, expected: Sequence[Tensor], devices: Sequence[native.OrtDevice], *, stretches: bool = False
) -> Any:
    """Return checked tensors as an OrtValueVector; with `stretches`, shapes that broadcast are allowed."""
    feeds = _tensors.to_vector(tensors, devices, [t.name for t in expected])
    feeds = _tensors.broadcast(feeds, expected, devices) if stretches else feeds
    _tensors.check_fits(feeds, expected)
    return feeds


def _without_flat(gradients: Tensors, real: Sequence[int], count: int) -> Any:
    """Remove the gradients of integer outputs."""
    if len(real) == count or not isinstance(gradients, (list, tuple)) or len(gradients) != count:
        return gradients
    return [gradients[i] for i in real]


def _opened(engine: Any) -> Any:
    if engine is None:
        raise ModelError("The sessions are closed. Create another OrtGradientForwardBackward.")
    return engine


def _receiver(cache: Any, what: str) -> Any:
    """Return the vector that receives results; raise before execution if it is not an empty vector."""
    if cache is None:
        return None
    if not isinstance(cache, native.OrtValueVector) or len(cache):
        found = "one with values" if isinstance(cache, native.OrtValueVector) else f"a {type(cache).__name__}"
        raise DataError(f"{what} must be an empty OrtValueVector, got {found}.")
    return cache


def _handed(values: Any, receiver: native.OrtValueVector | None) -> Any:
    if receiver is None:
        return values if isinstance(values, native.OrtValueVector) else _tensors.vector(values)
    for value in values:
        receiver.push_back(value)
    return receiver
