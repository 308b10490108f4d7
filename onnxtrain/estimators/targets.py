"""Targets of classifiers: the classes by column of the scores, rows added for those still to come."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse

from onnxtrain.errors import DataError
from onnxtrain.estimators.source import Source


def per_row(n_labels: int) -> str:
    """Return a description of a row of targets, for messages."""
    return f"{n_labels} labels a row" if n_labels else "one class a row"


def labels_of(estimator: Any, X: Any, default: int) -> int:
    """Return the number of labels of a fitted multilabel estimator, 0 for another one; `default` if unknown."""
    if not hasattr(estimator, "predict") or isinstance(X, Mapping):
        return default
    row = X[:1].toarray() if scipy.sparse.issparse(X) else X[:1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that X has no names of columns is no news here
        shape = estimator.predict(row).shape
    return int(shape[1]) if len(shape) == 2 and shape[1] > 1 else 0


def with_zeros(X: Any, y: np.ndarray, weight: np.ndarray | None, targets: np.ndarray) -> tuple[Any, Any, Any]:
    """Return the rows followed by rows of zeros, one for each of `targets`, their sample weight the mean.

    Frames stay as they are: there may be texts in them.
    """
    if not hasattr(X, "dtype"):
        return X, y, weight
    zeros = np.zeros((len(targets), *X.shape[1:]), X.dtype)
    X = scipy.sparse.vstack([X, zeros], format="csr") if scipy.sparse.issparse(X) else np.concatenate([X, zeros])
    if weight is not None:
        weight = np.concatenate([weight, np.full(len(targets), weight.mean())])
    return X, np.concatenate([y, targets]), weight


def classes_of(y: np.ndarray, source: Source) -> np.ndarray:
    """Return the labels by column of the scores: those the model knows, else those of y.

    Raises
    ------
    DataError
        The number of classes of y differs from the number of columns of the model.
    """
    known = getattr(source.estimator, "classes_", None)
    if known is None:
        known = source.model.classes
    if known is not None:
        return np.asarray(known)
    n_classes = max(source.model.n_scores, 2)
    found = np.unique(y)
    if len(found) == n_classes:
        return found
    if np.issubdtype(found.dtype, np.integer) and found.min() >= 0 and found.max() < n_classes:
        return np.arange(n_classes)
    raise DataError(f"The model has {n_classes} classes, y has {len(found)}: {', '.join(map(str, found[:10]))}.")
