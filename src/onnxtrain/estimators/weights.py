"""A list of the weights that can be trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from sklearn.utils.validation import check_is_fitted

from onnxtrain import graph
from onnxtrain.arguments import lists_its_arguments
from onnxtrain.convert import Binding, Conversion, convert
from onnxtrain.convert.merged import with_own_copies
from onnxtrain.errors import ParameterError
from onnxtrain.estimators.protocols import ArrayLike, Estimator, HasShape, Model, is_onnx
from onnxtrain.estimators.source import Source, check_source, rewritten
from onnxtrain.estimators.validation import check_features
from onnxtrain.training.model import Weight, list_weights
from onnxtrain.training.parameters import Role, roles_by_exporter


@lists_its_arguments
def trainable_weights(
    model: Model | Conversion, X: ArrayLike | None = None, *, output: str | None = None
) -> list[Weight]:
    """Return the weights that can be trained, in the order in which the model uses them.

    `weights_to_train` accepts their names, patterns of names, and steps.

    Parameters
    ----------
    model : fitted estimator, or ONNX model
        A scikit-learn estimator or pipeline, an :class:`~onnxtrain.OrtGradientRegressor` or
        :class:`~onnxtrain.OrtGradientClassifier`, an ``onnx.ModelProto``, its bytes or a path. For an ONNX model, the
        weights are all floating-point initializers with respect to which an output may have a nonzero derivative.
    X : DataFrame, optional
        Rows, for an estimator that selects columns by name. Not needed if all columns are numeric.
    output : str, optional
        Only weights on which this output depends are returned.

    Returns
    -------
    list of Weight
        Each with ``name``, ``step`` of the pipeline, ``shape``, ``size`` and ``kind`` (``"coefficient"``,
        ``"intercept"``, ``"scale"``, ``"leaf"``, ...; for an ONNX model, ``"weight"``, or ``"buffer"`` for values that
        are trained only if `weights_to_train` names them: statistics of BatchNormalization, masks, position tables,
        scalars of formulas).

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
    if isinstance(model, Conversion):
        return _bound(model.onnx, model.bindings, output)
    if hasattr(model, "get_trained_onnx"):  # an estimator of this package
        check_is_fitted(model)
        return _of_source(vars(model)["_trained"].source, output)
    check_source(model)
    if is_onnx(model):
        onx = graph.read(model)
        return list_weights(rewritten(onx), output, roles_by_exporter(with_own_copies(onx)))
    check_is_fitted(model)
    if isinstance(X, HasShape) and len(X.shape) == 2:
        check_features(X, (None, getattr(model, "n_features_in_", None)), f"{type(model).__name__} takes")
    return trainable_weights(convert(model, _a_row_for(model) if X is None else X), output=output)


def _of_source(source: Source, output: str | None) -> list[Weight]:
    """Return the weights of a model that an estimator of this package has trained."""
    model = source.model
    if source.bindings:
        return _bound(model.onnx, source.bindings, output)
    roles = {name: Role.PARAMETER if name in model.default else Role.BUFFER for name in model.weights}
    return list_weights(model.onnx, output or model.output, roles)


def _a_row_for(model: Estimator) -> np.ndarray:
    """Return a row of zeros with as many columns as an estimator takes."""
    if not hasattr(model, "n_features_in_"):
        raise ParameterError(f"{type(model).__name__} does not say how many columns it takes. Pass X.")
    return np.zeros((1, model.n_features_in_))


def _bound(onx: onnx.ModelProto | bytes, bindings: Sequence[Binding], output: str | None) -> list[Weight]:
    """Return the learned attributes that are weights of a graph."""
    names = {w.name for w in list_weights(onx, output, {})}
    return [Weight(b.name, b.step, b.shape, b.kind) for b in bindings if b.name in names]
