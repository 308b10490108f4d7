"""All deliberate errors, by the stage at which they are raised, and warnings that point to the user's line.

Each class also derives from a builtin exception, so that code that does not know onnxtrain, such as scikit-learn's
checks, catches the class that it expects.
"""

from __future__ import annotations

import math
import numbers
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

__all__ = [
    "ArgumentTypeError",
    "ConvergenceError",
    "ConversionError",
    "DataError",
    "DependencyError",
    "DeviceError",
    "ExportError",
    "FileError",
    "GradientError",
    "LossError",
    "ModelError",
    "OnnxTrainError",
    "OptimizerError",
    "ParameterError",
    "RewriteError",
    "WeightError",
]

#: Packages whose frames belong to onnxtrain, including decorators of the standard library; packages between onnxtrain
#: and the user's line, such as searches and pipelines; packages that call a worker, which has no line of the user.
_OURS = frozenset({"onnxtrain", "contextlib", "functools"})
_BETWEEN = _OURS | {"sklearn", "joblib"}
_OF_WORKERS = frozenset({"", "concurrent", "multiprocessing", "threading"})


class OnnxTrainError(Exception):
    """Base class of all errors that onnxtrain raises deliberately.

    Examples
    --------
    One ``except`` catches all of them; each is also a builtin exception:

    >>> from onnxtrain import OrtGradientRegressor, errors
    >>> try:
    ...     OrtGradientRegressor("nowhere.onnx").fit([[0.0], [1.0]], [0.0, 1.0])
    ... except errors.OnnxTrainError as e:
    ...     print(type(e).__name__, isinstance(e, ValueError))
    ModelError True
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class ModelError(OnnxTrainError, ValueError):
    """The ONNX model cannot be read, or onnxtrain cannot train it.

    Examples
    --------
    >>> from onnxtrain import OrtGradientRegressor
    >>> OrtGradientRegressor(b"no model").fit([[0.0], [1.0]], [0.0, 1.0])
    Traceback (most recent call last):
        ...
    onnxtrain.errors.ModelError: 8 bytes cannot be read as an ONNX model: ...
    """


class ConversionError(OnnxTrainError, ValueError):
    """A scikit-learn estimator has no faithful ONNX graph.

    Parameters
    ----------
    found : str
        What is wrong, with the values that were found.
    remedy : str, default=""
        The likely cause with its remedy; it ends the message.

    Examples
    --------
    >>> from sklearn.base import BaseEstimator, RegressorMixin
    >>> from onnxtrain import OrtGradientRegressor
    >>> class Mine(RegressorMixin, BaseEstimator):
    ...     def fit(self, X, y):
    ...         self.n_features_in_ = X.shape[1]
    ...         return self
    ...
    ...     def predict(self, X):
    ...         return X[:, 0]
    >>> OrtGradientRegressor(Mine()).fit([[0.0], [1.0]], [0.0, 1.0])
    Traceback (most recent call last):
        ...
    onnxtrain.errors.ConversionError: Mine cannot be converted to ONNX: there is no converter for Mine. ...
    """

    def __init__(self, found: str = "", remedy: str = ""):
        super().__init__(f"{found} {remedy}" if remedy else found)
        self.found = found
        self.remedy = remedy


class RewriteError(OnnxTrainError, NotImplementedError):
    """An operator outside ai.onnx has no rewriting into trainable operators.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnxtrain import OrtGradientRegressor
    >>> onx = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>
    ...     g (float[N, 1] X) => (float[N, 1] Y) <float[1, 1] W = {1}> {
    ...         h = MatMul(X, W)
    ...         Y = ai.onnx.ml.Normalizer <norm = "L7"> (h)
    ...     }''')
    >>> OrtGradientRegressor(onx).fit([[0.0], [1.0]], [0.0, 1.0])
    Traceback (most recent call last):
        ...
    onnxtrain.errors.RewriteError: ...norm='L7'; known: MAX, L1, L2...
    """


class LossError(OnnxTrainError, ValueError):
    """A loss or a penalty is unknown, or does not fit the model.

    Examples
    --------
    >>> from onnxtrain import OrtGradientRegressor
    >>> OrtGradientRegressor(loss="mae").fit([[0.0], [1.0]], [0.0, 1.0])
    Traceback (most recent call last):
        ...
    onnxtrain.errors.LossError: Unknown loss 'mae'. Did you mean 'absolute_error'? Known: ...
    """


class GradientError(OnnxTrainError, NotImplementedError):
    """An operator between the weights and the loss has no derivative in onnxtrain.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnxtrain import onnx_derivative
    >>> onx = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 21]>
    ...     g (float[2] X) => (float Y) <int64 i = {0}> {
    ...         parts = SplitToSequence(X)
    ...         part = SequenceAt(parts, i)
    ...         Y = ReduceSum <keepdims = 0> (part)
    ...     }''')
    >>> onnx_derivative(onx, inputs=["X"])
    Traceback (most recent call last):
        ...
    onnxtrain.errors.GradientError: SequenceAt (node '') has no gradient rule, ...
    """


class OptimizerError(OnnxTrainError, ValueError):
    """A solver, one of its parameters or a learning rate is invalid.

    Examples
    --------
    >>> from onnxtrain.optim import SGD
    >>> SGD(momentum=1.5)
    Traceback (most recent call last):
        ...
    onnxtrain.errors.OptimizerError: SGD: momentum must be a number in [0, 1), got 1.5.
    """


class WeightError(OnnxTrainError, ValueError):
    """A weight is unknown, not trainable, or the output does not depend on it.

    Examples
    --------
    >>> from onnxtrain import OrtGradientRegressor
    >>> OrtGradientRegressor(weights_to_train=["coeff"]).fit([[0.0], [1.0]], [0.0, 1.0])
    Traceback (most recent call last):
        ...
    onnxtrain.errors.WeightError: 'coeff' is neither a weight that the output ... Did you mean 'coef'? ...
    """


class ParameterError(OnnxTrainError, ValueError):
    """A parameter of an estimator or an argument of a function has an invalid type or value.

    Examples
    --------
    >>> from onnxtrain import OrtGradientRegressor
    >>> OrtGradientRegressor(batch_size=0).fit([[0.0], [1.0]], [0.0, 1.0])
    Traceback (most recent call last):
        ...
    onnxtrain.errors.ParameterError: The 'batch_size' parameter of OrtGradientRegressor must be ... Got 0 instead. ...
    """


class ArgumentTypeError(OnnxTrainError, TypeError):
    """An argument of a function has an invalid type.

    Examples
    --------
    >>> from onnxtrain import OrtGradientRegressor
    >>> OrtGradientRegressor(epochs=10)
    Traceback (most recent call last):
        ...
    onnxtrain.errors.ArgumentTypeError: OrtGradientRegressor has no parameter 'epochs'. Did you mean 'max_iter'?
    """


class DataError(OnnxTrainError, ValueError):
    """The rows do not fit the model.

    Examples
    --------
    >>> from onnxtrain import OrtGradientRegressor
    >>> OrtGradientRegressor(loss="poisson").fit([[0.0], [1.0]], [-1.0, 1.0])
    Traceback (most recent call last):
        ...
    onnxtrain.errors.DataError: The loss 'poisson' requires y >= 0, got -1. ...
    """


class DeviceError(OnnxTrainError, RuntimeError):
    """The requested device is not available.

    Examples
    --------
    >>> from onnxtrain import OrtGradientRegressor
    >>> OrtGradientRegressor(device="abacus").fit([[0.0], [1.0]], [0.0, 1.0])
    Traceback (most recent call last):
        ...
    onnxtrain.errors.DeviceError: Unknown device 'abacus'. Known: ...
    """


class ExportError(OnnxTrainError, ValueError):
    """The trained model cannot be written in the requested form: a scikit-learn object, one graph, a training step.

    Examples
    --------
    >>> import tempfile
    >>> from onnxtrain import OrtGradientRegressor
    >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [0.0, 1.0])
    >>> line.export_training_step(tempfile.mkdtemp())
    Traceback (most recent call last):
        ...
    onnxtrain.errors.ExportError: solver='lbfgs' has no step: ...
    """


class FileError(OnnxTrainError, OSError):
    """A file cannot be written; its earlier content is unchanged.

    Examples
    --------
    >>> from onnxtrain import OrtGradientRegressor, save
    >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [0.0, 1.0])
    >>> save(line, "no/such/folder/line.onnx")
    Traceback (most recent call last):
        ...
    onnxtrain.errors.FileError: The file 'no/such/folder/line.onnx' cannot be written: ... Create the folder first: ...
    """


class ConvergenceError(OnnxTrainError, ArithmeticError):
    """The loss became infinite or NaN; the initial weights or the weights of the best epoch are kept.

    Examples
    --------
    The estimator remains usable, with the weights from before the divergence.

    >>> from onnxtrain import OrtGradientRegressor
    >>> line = OrtGradientRegressor(solver="sgd", learning_rate=1e30)
    >>> try:
    ...     line.fit([[0.0], [1.0], [2.0]], [1.0, 0.0, 6.0])
    ... except ArithmeticError as e:
    ...     print(str(e)[:16], line.predict([[1.0]]).round(1).tolist())
    The loss became [2.3]
    """


class DependencyError(OnnxTrainError, ImportError):
    """A required library is not installed, or is a flavour without the required feature.

    Examples
    --------
    The message states which feature needs skops, matplotlib or a training build of onnxruntime, and how to install it:

    >>> from onnxtrain.errors import DependencyError
    >>> issubclass(DependencyError, ImportError)
    True
    """


class ClusterError(OnnxTrainError, RuntimeError):
    """The workers of a cluster were lost repeatedly, or do not respond."""


@contextmanager
def as_model_error(stage: str) -> Iterator[None]:
    """Turn any exception of onnx, onnx-ir or protobuf into a ModelError that names the stage."""
    try:
        yield
    except OnnxTrainError:
        raise
    except Exception as e:
        raise ModelError(f"{stage}: {type(e).__name__}: {e}") from e


def unknown_name(module: str, name: str, hint: str) -> AttributeError | ImportError:
    """Return the error of the ``__getattr__`` of a module, with a hint.

    Python replaces the message of an AttributeError in ``from module import name``, so an ImportError is needed there.
    """
    import dis  # only for this error

    caller = sys._getframe(2)
    if dis.opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM":
        return ImportError(f"cannot import name {name!r} from {module!r}{hint}", name=module)
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        """Raise an error that lists the classes of this module."""
        raise unknown_name(__name__, name, "" if name[0] == "_" else f". Known: {', '.join(__all__)}.")


def as_number(value: object) -> float:
    """Return a number as a float, and NaN for anything else, including bools."""
    return float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan


def check_path(path: object, name: str = "path", remedy: str = " Pass a name such as 'model.onnx'.") -> None:
    """Raise an ArgumentTypeError unless `path` is the path of a file."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "\0" in os.fsdecode(path):
        raise ArgumentTypeError(f"{name} must be a file path, got {path!r:.80}.{remedy}")


def warn_of_pickle(path: str | os.PathLike[str], reader: str) -> None:
    """Warn of an ONNX file with the name of a pickle; `reader` is the function that reads it."""
    if os.fspath(path).endswith((".joblib", ".pickle", ".pkl")):
        warn(
            f"{os.fspath(path)!r} will be an ONNX file, which pickle and joblib cannot read. Read it with {reader}, "
            "and give it a name that ends in .onnx."
        )


def warn_of_given_file(path: str | os.PathLike[str], given: object) -> None:
    """Warn that a file to be written is that of the given model, which later fits read."""
    if isinstance(given, (str, os.PathLike)) and os.path.realpath(path) == os.path.realpath(given):
        warn(
            f"{os.fspath(path)!r} is the file of the given model, which is replaced: every later fit, also of clones "
            "in a search, starts from the trained weights. To keep the given model, write to another file."
        )


def unquoted(value: object) -> str:
    """Return the end of a message about a number, a bool or None that is given as a string; empty for other values."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d*\.?\d+(e[-+]?\d+)?|True|False|None", value, re.IGNORECASE):
        return f" Pass it without quotes: {value}."
    return ""


def printable(text: str) -> str:
    """Return a text with escapes for characters that are not printable, except line feeds.

    Names in a model are arbitrary: they can hold control characters, which a terminal executes and XML does not allow.
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the line from which onnxtrain was called, directly or through scikit-learn.

    A fixed ``stacklevel`` would be wrong, because newer versions of scikit-learn have one more frame around ``fit``.
    """
    packages = [*(name.partition(".")[0] for name in callers(sys._getframe(1))), ""]
    caller = next(i for i, package in enumerate(packages) if package not in _BETWEEN)
    if packages[caller] in _OF_WORKERS:
        caller = next(i for i, package in enumerate(packages) if package not in _OURS)
    message = printable(message) if isinstance(message, str) else message
    warnings.warn(message, category, stacklevel=2 + caller)


def callers(frame: FrameType | None) -> Iterator[str]:
    """Yield the function of a frame and its callers as ``module.Class.method``, the innermost first."""
    while frame is not None:
        yield f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
        frame = frame.f_back
