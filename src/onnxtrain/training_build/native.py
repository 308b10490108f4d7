"""The private interface of onnxruntime-training: its availability and its two gradient builders."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType

import onnx

from onnxtrain.errors import DependencyError, GradientError
from onnxtrain.opsets import installed_runtimes

#: The last Python version and the (system, machine) pairs with wheels, for each extra; None is any machine.
WHEELS: Mapping[str, tuple[tuple[int, int], tuple[tuple[str, str | None], ...]]] = {
    "training": ((3, 11), (("Linux", "x86_64"),)),
    "training-cpu": ((3, 12), (("Linux", "x86_64"), ("Darwin", None), ("Windows", None))),
}


def require() -> ModuleType:
    """Return onnxruntime's module of bindings with its training interface.

    Raises
    ------
    DependencyError
        No training build is installed, or another build of onnxruntime overwrote it. The message says what is installed
        and what would work. The error is also an ImportError.
    """
    try:
        state = import_module("onnxruntime.capi._pybind_state")
    except ImportError:
        state = None
    if state is not None and hasattr(state, "OrtModuleGraphBuilder"):
        return state
    words = advice(installed_runtimes(), sys.version_info[:2], platform.system(), platform.machine())
    raise DependencyError(words, name="onnxruntime")


def is_available() -> bool:
    """Whether a training build of onnxruntime can be used."""
    try:
        require()
    except ImportError:
        return False
    return True


def advice(found: Mapping[str, str], python: Sequence[int], system: str, machine: str) -> str:
    """Return the reason why the training build is missing and the remedy.

    Examples
    --------
    >>> print(advice({"onnxruntime": "1.31.1"}, (3, 14), "Linux", "aarch64"))
    The training build of onnxruntime is not installed. Installed: onnxruntime 1.31.1. There is no training build for
    Python 3.14 on Linux aarch64. Use the builder "builtin", or Python 3.12 or older on Linux x86_64, macOS or Windows.
    """
    listed = ", ".join(f"{name} {version}" for name, version in found.items()) or "no onnxruntime at all"
    training = [name for name in found if "training" in name]
    if training:
        reason = f"{training[0]} was overwritten by another build of onnxruntime"
    else:
        reason = "The training build of onnxruntime is not installed"
    extras = [name for name, wheel in WHEELS.items() if _fits(wheel, python, system, machine)]
    where = f"Python {python[0]}.{python[1]} on {system} {machine}"
    if not extras:
        return (
            f"{reason}. Installed: {listed}. There is no training build for\n{where}. "
            'Use the builder "builtin", or Python 3.12 or older on Linux x86_64, macOS or Windows.'
        )
    removal = f"pip uninstall -y {' '.join(found)} && " if found else ""
    commands = " or ".join(f"{removal}pip install onnxruntime-{extra}" for extra in extras)
    return f'{reason}. Installed: {listed}. On {where}, run {commands}. Or use the builder "builtin".'


def _fits(
    wheel: tuple[tuple[int, int], tuple[tuple[str, str | None], ...]], python: Sequence[int], system: str, machine: str
) -> bool:
    last, places = wheel
    return tuple(python) <= last and any(s == system and m in (None, machine) for s, m in places)


def module_gradient(onx: onnx.ModelProto, weights: Sequence[str], inputs: Sequence[str]) -> onnx.ModelProto:
    """Return the graph of OrtModuleGraphBuilder: forward, YieldOp, backward.

    Parameters
    ----------
    onx : onnx.ModelProto
    weights : sequence of str
        Initializers, which become inputs after the inputs of the model.
    inputs : sequence of str

    Raises
    ------
    GradientError
        onnxruntime-training has no derivative for an operator on the way.
    """
    native = require()
    config = native.OrtModuleGraphBuilderConfiguration()
    config.initializer_names = list(weights)
    config.initializer_names_to_train = list(weights)
    config.input_names_require_grad = list(inputs)
    config.build_gradient_graph = True
    config.loglevel = native.Severity.FATAL
    builder = native.OrtModuleGraphBuilder()
    try:
        builder.initialize(onx.SerializeToString(), config)
        builder.build(native.TrainingGraphTransformerConfiguration())
        return onnx.load_model_from_string(builder.get_gradient_model())
    except Exception as e:  # C++ throws RuntimeError, IndexError, ...
        raise _refused(e) from e


def loss_gradient(onx: onnx.ModelProto, loss: str, wrt: Iterable[str]) -> onnx.ModelProto:
    """Return the graph of GradientGraphBuilder: the model, then the gradients of one of its outputs.

    Parameters
    ----------
    onx : onnx.ModelProto
    loss : str
        An output with one element.
    wrt : iterable of str
        Any values, initializers included.

    Raises
    ------
    GradientError
        onnxruntime-training has no derivative for an operator on the way.
    """
    native = require()
    options = native.SessionOptions()
    options.log_severity_level = int(native.Severity.FATAL)
    try:
        builder = native.GradientGraphBuilder(onx.SerializeToString(), {loss}, set(wrt), loss, options)
        builder.build()
        return onnx.load_model_from_string(builder.get_model())
    except Exception as e:  # C++ throws RuntimeError, IndexError, ...
        raise _refused(e) from e


def _refused(e: Exception) -> GradientError:
    said = " ".join(str(e).split())
    # the text before the mark is the location and signature of a C++ function
    for mark in ("was false. ", "const ", "Logger&) ", "Configuration&)> "):
        said = said.rsplit(mark, 1)[-1]
    reason = said.strip(" .")
    return GradientError(f'onnxruntime-training cannot differentiate this model: {reason}. Use the builder "builtin".')


def check_kernels(onx: onnx.ModelProto) -> None:
    """Raise if a graph contains an operator for which this onnxruntime has no kernel.

    The training build for CUDA is not checked: it may have kernels that need a GPU.
    """
    import onnxruntime  # exists after require()

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(onx.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as e:  # onnxruntime's exceptions have no common base but Exception
        raise GradientError(
            f"onnxruntime-training built a gradient graph that it cannot run: {str(e).splitlines()[0]}. "
            'Use the builder "builtin".'
        ) from e
