"""Every deliberate error, by the stage at which it is raised, and how warnings name the line of the user.

Each class is also a builtin, so that code which knows nothing of onnxtrain
(scikit-learn's own checks first of all) catches the class that it expects.
"""

from __future__ import annotations

import math
import numbers
import sys
import warnings
from types import FrameType

#: Packages between onnxtrain and the line of a user: decorators of methods, searches, pipelines.
_BETWEEN = ("onnxtrain", "sklearn", "joblib", "contextlib", "functools")


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


def as_number(value: object) -> float:
    """Return a real number as a float, NaN for anything else; a bool is no number."""
    return float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line from which onnxtrain was called, by itself or by scikit-learn.

    A fixed ``stacklevel`` would be off: newer versions of scikit-learn have one frame more around ``fit``.
    """
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
