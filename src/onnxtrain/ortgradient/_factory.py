"""OrtGradientForwardBackward makes a class with ``forward`` and ``backward`` from a model."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime
from onnxruntime.capi import _pybind_state as native

from onnxtrain import graph as graphs
from onnxtrain.arguments import lists_its_arguments
from onnxtrain.attributes import NamesItsAttributes
from onnxtrain.errors import ArgumentTypeError, DeviceError, ParameterError, WeightError, warn
from onnxtrain.ortgradient._function import (
    Agent,
    Engine,
    OrtGradientForwardBackwardFunction,
    Runner,
    TwoSessions,
)
from onnxtrain.ortgradient._graphs import PassGraphs, Tensor, arrange, split_graphs, yield_graphs
from onnxtrain.ortgradient._tensors import ort_device
from onnxtrain.registry import did_you_mean
from onnxtrain.runtime.device import Device, find_device
from onnxtrain.runtime.session import open_with, quiet_options

BUILDERS = ("builtin", "onnxruntime-training")

#: Execution providers that are supported.
_PROVIDERS = frozenset({"CPUExecutionProvider", "CUDAExecutionProvider"})

#: Attributes that cannot be pickled; a pickled copy has the defaults.
_NOT_PICKLED = ("sess_options", "run_options", "graph_builder_config")


class OrtGradientForwardBackward(NamesItsAttributes):
    r"""The forward and the backward pass of an ONNX model, between which the caller computes a loss.

    For outputs :math:`y = f(x, w)` and incoming gradients :math:`\bar y` given by the
    caller, backward returns :math:`\bar x = (\partial y / \partial x)^\top \bar y` and
    :math:`\bar w = (\partial y / \partial w)^\top \bar y`.

    Parameters
    ----------
    onnx_model : onnx.ModelProto, bytes or path
        The model; it is not changed.
    weights_to_train : list of str, optional
        The names of initializers, in any order; None for all floating-point ones.
    input_names, output_names : list of str, optional
        The order of the inputs; the selection and order of the outputs.
    class_name : str, optional
        The name of the generated class, :attr:`cls_type_`.
    sess_options, run_options : optional
        Options of onnxruntime. They cannot be pickled; a pickled copy has the defaults.
    providers : optional
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, a ``torch.device``, or a list of names of
        execution providers.
    provider_options : list of dict, optional
        The options of each provider, if `providers` is a list.
    graph_builder_config : optional
        onnxruntime's OrtModuleGraphBuilderConfiguration, or an object with its attributes
        ``initializer_names_to_train`` and ``input_names_require_grad``.
    device_index : int
        The index of the CUDA device.
    enable_logging : bool
        Whether to log to the logger ``"onnxtrain"``.
    debug : bool
        No effect; kept for backward compatibility. All checks are always made.
    builder : {"builtin", "onnxruntime-training"}
        ``"builtin"`` runs two sessions of any onnxruntime. ``"onnxruntime-training"`` runs one TrainingAgent of the
        training build.

    Attributes
    ----------
    cls_type_ : type
        A subclass of :class:`OrtGradientForwardBackwardFunction`.

    Raises
    ------
    ModelError, WeightError, GradientError, DeviceError, ImportError
        The model cannot be read, a name is unknown, an operator cannot be derived,
        the device or the training build is missing.

    Examples
    --------
    >>> import numpy as np, onnx.parser
    >>> onx = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["" : 21]>
    ...     line (float[N] X) => (float[N] Y) <float slope = {2}> { Y = Mul(X, slope) }''')
    >>> function = OrtGradientForwardBackward(onx).new_instance()
    >>> X = np.array([1, 2, 3], dtype=np.float32)
    >>> (y,) = function.forward([X, np.float32(2)], training=True)
    >>> dx, dslope = function.backward([np.ones(3, dtype=np.float32)])
    >>> y.numpy(), dx.numpy(), dslope.numpy()
    (array([2., 4., 6.], dtype=float32), array([2., 2., 2.], dtype=float32), array(6., dtype=float32))
    """

    _remedies = MappingProxyType(dict.fromkeys(("backward", "forward"), "It is a method of new_instance()."))

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse calls, which PyTorch users expect."""
        raise ArgumentTypeError(
            f"{type(self).__name__} cannot be called. Use new_instance().forward([X, *weights], training=True)."
        )

    @lists_its_arguments
    def __init__(
        self,
        onnx_model: graphs.ModelLike,
        weights_to_train: Sequence[str] | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        class_name: str | None = None,
        sess_options: onnxruntime.SessionOptions | None = None,
        providers: Any = None,
        provider_options: Sequence[dict[str, Any]] | None = None,
        run_options: onnxruntime.RunOptions | None = None,
        graph_builder_config: Any = None,
        device_index: int = 0,
        enable_logging: bool = False,
        debug: bool = False,
        *,
        builder: str = "builtin",
    ):
        if class_name is not None and not isinstance(class_name, str):
            raise ArgumentTypeError(f"class_name must be a string, got {class_name!r:.80}.")
        _check_options(sess_options, "sess_options", "SessionOptions", "intra_op_num_threads = 1")
        _check_options(run_options, "run_options", "RunOptions", "log_severity_level = 3")
        if isinstance(provider_options, Mapping):
            raise ArgumentTypeError(
                f"provider_options must be a list with a dictionary for each of providers, got "
                f"{provider_options!r:.80}. Pass [{provider_options!r:.80}]."
            )
        if builder not in BUILDERS:
            raise ParameterError(f"Unknown builder {builder!r}. {did_you_mean(builder, BUILDERS)}")
        self.onnx_model = graphs.read(onnx_model)
        self.builder = builder
        self.graph_builder_config = graph_builder_config
        self.weights_to_train = self._find_weights(weights_to_train)
        order, chosen = ([names] if isinstance(names, str) else names for names in (input_names, output_names))
        self._arranged = arrange(self.onnx_model, order, chosen, self.weights_to_train)
        given = {*self.weights_to_train, *(t.name for t in self._arranged.graph.initializer)}
        self.input_names = [v.name for v in self._arranged.graph.input if v.name not in given]
        self.output_names = [v.name for v in self._arranged.graph.output]
        self.class_name = class_name or f"OrtGradientForwardBackwardFunction_{id(self)}"
        self.sess_options = sess_options
        self.provider_options = provider_options
        self.run_options = run_options
        self.device_index = device_index
        self.providers = providers
        self.enable_logging = enable_logging
        self.debug = debug
        self.inputs_require_grad = self._find_inputs_require_grad()
        self._init_next()

    # -------------------------------------------------------------- the arguments

    def _find_weights(self, names: Sequence[str] | None) -> list[str]:
        if names is None:
            names = list(getattr(self.graph_builder_config, "initializer_names_to_train", ())) or None
        known = {t.name: Tensor(t.name, t.data_type, tuple(t.dims)) for t in self.onnx_model.graph.initializer}
        real = [name for name, tensor in known.items() if tensor.is_real]
        if names is None and not real:
            remark = graphs.weights_in_operators(self.onnx_model.graph.node)
            raise WeightError(
                f"The model has no floating-point initializer to train; initializers: {list(known)}."
                f"{remark or ' Pass a model with weights, initializers of its graph.'}"
            )
        if names is not None and not isinstance(names, (str, Sequence, Set)):
            raise ArgumentTypeError(f"weights_to_train must be a list of names, got {names!r:.80}. Known: {real}.")
        if names is None and (inner := graphs.weights_in_bodies(self.onnx_model.graph)):
            warn(
                f"The weights of bodies of Loop, Scan and If are not trained: {', '.join(inner[:3])}"
                f"{', ...' * (len(inner) > 3)}. Move them to the initializers of the graph, which the bodies can read, "
                "or name those to train in weights_to_train."
            )
        names = real if names is None else [names] if isinstance(names, str) else list(names)
        unknown = [name for name in names if name not in real]
        if unknown:
            remark = graphs.weights_elsewhere(self.onnx_model.graph, unknown[0])
            raise WeightError(
                f"{unknown[0]!r} is not a floating-point initializer. {did_you_mean(unknown[0], real)}{remark}"
            )
        if len(set(names)) != len(names):
            raise WeightError(f"weights_to_train must not contain a weight twice, got {names}.")
        return names

    def _find_inputs_require_grad(self) -> list[str]:
        tensors = [Tensor.of(v) for v in self._arranged.graph.input if v.name in self.input_names]
        asked = getattr(self.graph_builder_config, "input_names_require_grad", None) or self.input_names
        return [t.name for t in tensors if t.is_real and t.name in asked]

    def _find_device(self) -> Device:
        asked = _name_of(self.providers)
        if asked is None:
            return Device("cpu")
        if isinstance(asked, str) and not asked.endswith("Provider"):
            return self._device_of_kind(asked)
        names = [asked] if isinstance(asked, str) else [p if isinstance(p, str) else p[0] for p in asked]
        if not names or not _PROVIDERS.issuperset(names):
            raise DeviceError(f"providers must be CPUExecutionProvider or CUDAExecutionProvider, got {names}.")
        return self._device_of_kind("cuda" if "CUDAExecutionProvider" in names else "cpu")

    def _device_of_kind(self, name: str) -> Device:
        device = find_device(f"cuda:{self.device_index}" if name in ("cuda", "gpu") else name)
        if device.kind in ("cpu", "cuda"):
            return device
        if name == "auto":
            return Device("cpu")
        raise DeviceError(f"The device {name!r} cannot share tensors with other libraries. Use 'cpu' or 'cuda'.")

    # -------------------------------------------------------- the generated class

    def _init_next(self) -> None:
        self._logger = logging.getLogger("onnxtrain") if self.enable_logging else None
        device = self._find_device()
        make = split_graphs if self.builder == "builtin" else yield_graphs
        found = make(self._arranged, self.weights_to_train, self.inputs_require_grad)
        if self._logger is not None:
            self._logger.info(
                "[OrtGradientForwardBackward] weights_to_train=%r, input_names=%r, output_names=%r, gradients=%r on %r",
                self.weights_to_train, self.input_names, self.output_names, list(found.gradients), device,
            )  # fmt: skip
        attributes = self._class_attributes(found, device)
        base = OrtGradientForwardBackwardFunction
        self.cls_type_: type[OrtGradientForwardBackwardFunction] = type(self.class_name, (base,), attributes)

    def _class_attributes(self, found: PassGraphs, device: Device) -> dict[str, Any]:
        where = ort_device(device)
        inputs = [t.name for t in found.inputs]
        outputs = [t.name for t in found.outputs]
        sess_eval = self._open(found.evaluation, device)
        engine, sess, agent = self._engine(found, device, where)
        return {
            "__doc__": "Forward and backward of one model, see OrtGradientForwardBackwardFunction.",
            "__module__": OrtGradientForwardBackwardFunction.__module__,
            "_graphs": found,
            "_engine": engine,
            "_eval": Runner(sess_eval, where, inputs, outputs, self.run_options),
            "_sess": sess,
            "_sess_eval": sess_eval,
            "_training_agent": agent,
            "_run_options": self.run_options,
            "_devices": [where] * len(inputs),
            "_logger": self._logger,
            "_debug": self.debug,
            "_input_names": self.input_names,
            "_output_names": outputs,
            "_grad_input_names": inputs,
            "_bw_fetches_names": list(found.gradients),
            "_onx_inp": inputs,
            "_onx_out": list(found.gradients),
            "_weights_to_train": list(self.weights_to_train),
        }

    def _engine(self, found: PassGraphs, device: Device, where: native.OrtDevice) -> tuple[Engine, Any, Any]:
        inputs = [t.name for t in found.inputs]
        if self.builder == "onnxruntime-training":
            session = self._open(found.training, device)
            engine = Agent(found, session, where)
            return engine, session, engine.agent
        forward = self._open(found.forward, device)
        outputs = [*(t.name for t in found.outputs), *found.kept]
        run_forward = Runner(forward, where, inputs, outputs, self.run_options)
        backward = self._open(found.backward, device)
        names = [*found.incoming_names, *found.needed]
        return (
            TwoSessions(found, run_forward, Runner(backward, where, names, found.gradients, self.run_options)),
            forward,
            None,
        )

    def _open(self, content: bytes, device: Device) -> onnxruntime.InferenceSession:
        asked = self.providers if isinstance(self.providers, (list, tuple)) else device.providers()
        content = graphs.at_opset(content, device.capabilities.opset)
        return open_with(content, self.sess_options or quiet_options(), asked, self.provider_options)

    # ------------------------------------------------------------------- interface

    @lists_its_arguments
    def new_instance(self) -> OrtGradientForwardBackwardFunction:
        """Return an instance of :attr:`cls_type_`, which has ``forward`` and ``backward``.

        Returns
        -------
        OrtGradientForwardBackwardFunction
            The instance has its own stack of forward passes; instances share the sessions.

        Examples
        --------
        >>> import numpy as np, onnx.parser
        >>> from onnxtrain import OrtGradientForwardBackward
        >>> onx = onnx.parser.parse_model('''
        ...     <ir_version: 10, opset_import: ["" : 21]>
        ...     line (float[N] X) => (float[N] Y) <float slope = {2}> { Y = Mul(X, slope) }''')
        >>> factory = OrtGradientForwardBackward(onx)
        >>> isinstance(factory.new_instance(), factory.cls_type_)
        True
        """
        return self.cls_type_()

    def get_initializer(self, name: str, exc: bool = True) -> np.ndarray | None:
        """Return an initializer of the model as an array.

        Parameters
        ----------
        name : str
            The name of an initializer of the given model.
        exc : bool
            Whether an unknown name raises an error.

        Returns
        -------
        ndarray or None
            A copy of the initializer.

        Raises
        ------
        WeightError
            There is no initializer of this name; with ``exc=False`` None is returned instead.

        Examples
        --------
        >>> import numpy as np, onnx.parser
        >>> from onnxtrain import OrtGradientForwardBackward
        >>> onx = onnx.parser.parse_model('''
        ...     <ir_version: 10, opset_import: ["" : 21]>
        ...     line (float[N] X) => (float[N] Y) <float slope = {2}> { Y = Mul(X, slope) }''')
        >>> OrtGradientForwardBackward(onx).get_initializer("slope").item()
        2.0
        """
        known = {t.name: t for t in self.onnx_model.graph.initializer}
        if name in known:
            return onnx.numpy_helper.to_array(known[name])
        if exc:
            raise WeightError(f"The model has no initializer {name!r}. {did_you_mean(name, known)}")
        return None

    def save_onnx_graph(
        self, folder: str | os.PathLike[str] | type[bytes], prefix: str | None = None, suffix: str | None = None
    ) -> dict[str, Any]:
        """Save the graphs: the model, the evaluation graph, and the two passes.

        Parameters
        ----------
        folder : path, or the type ``bytes``
            An existing folder; with ``bytes`` the graphs are returned.
        prefix, suffix : str, optional
            Prefix and suffix of the file names.

        Returns
        -------
        dict
            ``{name: file name or bytes}``.

        Examples
        --------
        >>> import numpy as np, onnx.parser
        >>> from onnxtrain import OrtGradientForwardBackward
        >>> onx = onnx.parser.parse_model('''
        ...     <ir_version: 10, opset_import: ["" : 21]>
        ...     line (float[N] X) => (float[N] Y) <float slope = {2}> { Y = Mul(X, slope) }''')
        >>> sorted(OrtGradientForwardBackward(onx).save_onnx_graph(bytes))
        ['backward', 'evaluation', 'forward', 'model', 'training']
        """
        found = self.cls_type_._graphs
        content = {
            "model": self.onnx_model.SerializeToString(),
            "evaluation": found.evaluation,
            "training": found.training,
            "forward": found.forward,
            "backward": found.backward,
        }
        content = {name: graph for name, graph in content.items() if graph}
        if folder is bytes:
            return content
        if not isinstance(folder, (str, os.PathLike)) or not os.path.isdir(folder):
            raise NotADirectoryError(f"{folder!r} is not a folder. Create it first, or pass the type bytes.")
        saved = {}
        for name, graph in content.items():
            path = os.path.join(folder, f"{prefix or ''}{name}{suffix or ''}.onnx")
            with open(path, "wb") as f:
                f.write(graph)
            saved[name] = path
        return saved

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if not k.endswith("_") and k != "_logger"}
        state |= dict.fromkeys(_NOT_PICKLED)
        for name in ("onnx_model", "_arranged"):
            state[name] = state[name].SerializeToString()
        if hasattr(self.providers, "type"):
            state["providers"] = str(self.providers)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in ("onnx_model", "_arranged"):
            setattr(self, name, onnx.load_model_from_string(state[name]))
        self._init_next()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


def _check_options(options: object, name: str, kind: str, example: str) -> None:
    """Raise an ArgumentTypeError unless options are None or of a class of onnxruntime."""
    if options is not None and not isinstance(options, getattr(onnxruntime, kind)):
        raise ArgumentTypeError(
            f"{name} must be onnxruntime.{kind}, got {options!r:.80} of type {type(options).__name__}. Make them, "
            f"options = onnxruntime.{kind}(), and set their attributes, such as options.{example}."
        )


def _name_of(providers: Any) -> Any:
    """Return the name of a torch.device; return anything else unchanged."""
    if not hasattr(providers, "type"):
        return providers
    return providers.type if providers.index is None else f"{providers.type}:{providers.index}"
