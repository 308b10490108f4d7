"""Rows, targets and sample weights of an estimator, checked together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from onnxtrain.errors import DataError
from onnxtrain.estimators.arrays import as_array
from onnxtrain.estimators.frames import InputForm, Rows, in_order
from onnxtrain.estimators.positions import is_positional, row_weights
from onnxtrain.estimators.protocols import ArrayLike, Features, is_frame
from onnxtrain.estimators.settings import floats_of
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.estimators.validation import check_sample_weight
from onnxtrain.training.data import TrainingData

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator


def check_rows(
    estimator: OrtGradientEstimator, X: Features, y: ArrayLike, sample_weight: ArrayLike | None, model: TrainedModel
) -> Rows:
    """Return further rows for a trained model, in the form in which its first ones came."""
    return _checked(estimator, X, y, sample_weight, model.form, model)


def check_first_rows(
    estimator: OrtGradientEstimator,
    X: Features,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    form: InputForm | None = None,
) -> Rows:
    """Return the first rows that an estimator sees; their form is that of a table unless it is given."""
    if form is None:
        form = InputForm.of(X, estimator.estimator, floats_of(estimator.dtype))
    names = getattr(estimator.estimator, "feature_names_in_", None)
    if names is not None and is_frame(X):
        X = in_order(X, names, estimator.estimator)
    rows = _checked(estimator, X, y, sample_weight, form, None)
    return rows._replace(exact=form.exact(X, rows.X))


def data_of(estimator: OrtGradientEstimator, model: TrainedModel, rows: Rows) -> TrainingData:
    """Return checked rows as the objective of the whole model takes them."""
    label, weight = estimator._encode_target(rows.y, model.source.model), rows.weight
    if model.layout.positional:
        weight = row_weights(label, estimator._class_weights, weight)
    return model.data(rows.X, label, weight)


def _checked(
    estimator: OrtGradientEstimator,
    X: Features,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    form: InputForm,
    model: TrainedModel | None,
) -> Rows:
    """Return checked rows in a form; for None they are the first."""
    if y is None:  # scikit-learn's words
        name = type(estimator).__name__
        raise DataError(f"This {name} estimator requires y to be passed, but the target y is None: fit(X, y).")
    if scipy.sparse.issparse(y) and not estimator._classifies:
        raise DataError(
            "y is sparse, the targets of a regressor are an array: give y.toarray(), or y.toarray().ravel()."
        )
    y = as_array(y, "y") if hasattr(y, "detach") else y  # a tensor
    reset, dtype = model is None, floats_of(estimator.dtype)
    original = None if model is None else model.source.estimator
    if is_positional(estimator, y, model):
        y = estimator._check_positions(y, reset=reset)
        found, _ = form.check(estimator, X, np.zeros(len(y)), original, reset=reset, numeric=False)
        weight = check_sample_weight(sample_weight, y, dtype)
    else:
        found, y = form.check(estimator, X, y, original, reset=reset, numeric=not estimator._classifies)
        y = estimator._check_y(y, reset=reset)
        weight = estimator._sample_weights(y, check_sample_weight(sample_weight, y, dtype))
    return Rows(found, y, weight, form, found)
