"""The weights that a model offers for training."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onnxtrain import convert, graph
from onnxtrain.convert import Conversion, Weight
from onnxtrain.errors import ParameterError
from onnxtrain.estimators._source import check_source, is_onnx, rewritten
from onnxtrain.estimators._trained import Trained
from onnxtrain.rewrite import rewrite_model


def trainable_weights(model: Any, X: Any = None, *, output: str | None = None) -> list[Weight]:
    """Return the weights that can be trained, in the order in which the model uses them.

    Their names, patterns and steps are what `weights_to_train` takes.

    Parameters
    ----------
    model : fitted estimator, or ONNX model
        A scikit-learn estimator or pipeline, an :class:`~onnxtrain.OrtGradientRegressor` or
        :class:`~onnxtrain.OrtGradientClassifier`, an ``onnx.ModelProto``, its bytes or a path.
        Of an ONNX model: every initializer of real numbers, of one axis or more, that an
        output of real numbers depends on.
    X : DataFrame, optional
        Rows for an estimator that takes its columns by name. Where all columns are
        numbers, none are needed.
    output : str, optional
        This output only.

    Returns
    -------
    list of Weight
        Each with ``name``, ``step`` of the pipeline, ``shape``, ``size`` and ``kind``
        (``"coefficient"``, ``"intercept"``, ``"scale"``, ``"leaf"``, ...; ``"weight"`` of an ONNX model).

    Raises
    ------
    ConversionError
        The estimator cannot be converted.
    NotFittedError
        The estimator has no weights yet.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from onnxtrain import trainable_weights
    >>> model = make_pipeline(StandardScaler(), LogisticRegression()).fit(*load_iris(return_X_y=True))
    >>> for weight in trainable_weights(model):
    ...     print(weight.name, weight.shape, weight.kind)
    standardscaler.mean (4,) mean
    standardscaler.scale (4,) scale
    logisticregression.coef (4, 3) coefficient
    logisticregression.intercept (3,) intercept
    """
    check_source(model)
    if is_onnx(model):
        return convert.trainable_weights(rewritten(graph.read(model)), output)
    check_is_fitted(model)
    if isinstance(model, Trained):
        source = model._source
        onx = graph.read(source.model.onnx)
        return convert.trainable_weights(Conversion(onx, source.bindings) if source.bindings else onx, output)
    if X is None:
        if not hasattr(model, "n_features_in_"):
            raise ParameterError(f"{type(model).__name__} does not say how many columns it takes: give X.")
        X = np.zeros((1, model.n_features_in_))
    return convert.trainable_weights(convert.convert(model, X, rewrite=rewrite_model), output)
