"""Every deliberate error, by the stage at which it is raised, and how warnings name the line of the user.

Each class is also a builtin, so that code which knows nothing of onnxtrain
(scikit-learn's own checks first of all) catches the class that it expects.
"""

from __future__ import annotations

import math
import numbers
import sys
import warnings
from collections.abc import Iterator
from types import FrameType

#: Packages whose frames are ours, decorators of the standard library among them; those between us and the line of a
#: user, searches and pipelines; those that call a worker, in which the user has no line.
_OURS = frozenset({"onnxtrain", "contextlib", "functools"})
_BETWEEN = _OURS | {"sklearn", "joblib"}
_OF_WORKERS = frozenset({"", "concurrent", "multiprocessing", "threading"})


class OnnxTrainError(Exception):
    """Base class of every error that onnxtrain raises on purpose."""


class ModelError(OnnxTrainError, ValueError):
    """The ONNX model cannot be read, or is not one onnxtrain can work on."""


class ConversionError(OnnxTrainError, ValueError):
    """A scikit-learn estimator has no faithful ONNX graph."""


class RewriteError(OnnxTrainError, NotImplementedError):
    """An operator outside ai.onnx has no rewriting into trainable operators."""


class LossError(OnnxTrainError, ValueError):
    """A loss or a penalty is unknown, or does not fit the model."""


class GradientError(OnnxTrainError, NotImplementedError):
    """An operator between the weights and the loss has no derivative here."""


class OptimizerError(OnnxTrainError, ValueError):
    """A solver, one of its parameters or a learning rate makes no sense."""


class WeightError(OnnxTrainError, ValueError):
    """A weight is unknown, not trainable, or does not reach the output."""


class ParameterError(OnnxTrainError, ValueError):
    """A parameter of an estimator or an argument of a function has an invalid type or value."""


class ArgumentTypeError(OnnxTrainError, TypeError):
    """An argument of a function is of another type than it may be."""


class DataError(OnnxTrainError, ValueError):
    """The rows do not fit the model."""


class DeviceError(OnnxTrainError, RuntimeError):
    """The device asked for is not there."""


class ExportError(OnnxTrainError, ValueError):
    """The trained model cannot be written in the form asked for: a scikit-learn object, one graph, a training step."""


class FileError(OnnxTrainError, OSError):
    """A file cannot be written; its earlier content is unchanged."""


class ConvergenceError(OnnxTrainError, ArithmeticError):
    """The loss became infinite or NaN; the better weights of the start and the best epoch are kept."""


class DependencyError(OnnxTrainError, ImportError):
    """A library that this step needs is not installed, or is a flavour that cannot do it."""


class ClusterError(OnnxTrainError, RuntimeError):
    """The workers of a cluster were lost again and again, or show no sign of life."""


def as_number(value: object) -> float:
    """Return a real number as a float, NaN for anything else; a bool is no number."""
    return float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the line from which onnxtrain was called, by itself or by scikit-learn.

    A fixed ``stacklevel`` would be off: newer versions of scikit-learn have one frame more around ``fit``.
    """
    packages = [*_packages_of_callers(sys._getframe(1)), ""]
    caller = next(i for i, package in enumerate(packages) if package not in _BETWEEN)
    if packages[caller] in _OF_WORKERS:
        caller = next(i for i, package in enumerate(packages) if package not in _OURS)
    warnings.warn(message, category, stacklevel=2 + caller)


def _packages_of_callers(frame: FrameType | None) -> Iterator[str]:
    """Yield the package of a frame and of those around it, the innermost first."""
    while frame is not None:
        yield frame.f_globals.get("__name__", "").partition(".")[0]
        frame = frame.f_back
