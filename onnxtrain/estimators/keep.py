"""Trained estimators in files, without pickle."""

from __future__ import annotations

import os

from sklearn.utils.validation import check_is_fitted

from onnxtrain.errors import ExportError, ModelError, OnnxTrainError
from onnxtrain.estimators._keep import Kept, restore, write_estimator
from onnxtrain.estimators.classifier import OrtGradientClassifier
from onnxtrain.estimators.regressor import OrtGradientRegressor

_CLASSES = {c.__name__: c for c in (OrtGradientClassifier, OrtGradientRegressor)}


def save(estimator: OrtGradientClassifier | OrtGradientRegressor, path: str | os.PathLike) -> None:
    """Write a fitted estimator to one file: its trained model, its parameters, the memory of the optimizer.

    The file is an ONNX model that any runtime reads; all the rest lies beside the graph as
    JSON and tensors. There is no code in it, and nothing that is run when it is read. It
    replaces a file of that name in one piece: there is never half of it.

    Parameters
    ----------
    estimator : OrtGradientRegressor or OrtGradientClassifier
        Fitted.
    path : path

    Raises
    ------
    ExportError
        A parameter is a function (a loss, a learning rate): functions are code. Register
        a loss with :func:`onnxtrain.loss` and give its name. Or the estimator is of a
        class of your own.
    sklearn.exceptions.NotFittedError
        There is nothing to keep yet.

    See Also
    --------
    load : The way back.

    Examples
    --------
    >>> import os, tempfile
    >>> from onnxtrain import OrtGradientRegressor, load, save
    >>> X, y = [[0.0], [1.0], [2.0]], [0.0, 2.0, 4.0]
    >>> path = os.path.join(tempfile.mkdtemp(), "line.onnx")
    >>> save(OrtGradientRegressor(solver="lbfgs").fit(X, y), path)
    >>> load(path).predict([[3.0]]).round(3).tolist()
    [6.0]
    """
    if type(estimator) not in _CLASSES.values():
        raise ExportError(f"Only {' and '.join(_CLASSES)} are kept, got {type(estimator).__name__}.")
    check_is_fitted(estimator)
    write_estimator(path, estimator)


def load(path: str | os.PathLike) -> OrtGradientClassifier | OrtGradientRegressor:
    """Return the estimator that :func:`save`, or a checkpoint of ``fit``, wrote to a file.

    It predicts, and goes on training, as the one that was written. Its parameter
    ``estimator`` is the trained model as ONNX, or None where it was None: scikit-learn
    objects are not kept, so that ``to_sklearn`` is at an end.

    Parameters
    ----------
    path : path

    Raises
    ------
    ModelError
        There is no such file; it was cut short or changed; it comes from a newer version
        of onnxtrain; it names a loss, an optimizer or a function that is not known here.
    """
    kept = Kept(path)
    try:
        return restore(kept, _CLASSES)
    except OnnxTrainError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as e:
        raise ModelError(
            f"What {os.fspath(path)!r} holds is not understood by this version of onnxtrain: {e!r}."
        ) from e
