"""Selection of columns of the rows: those of one of several estimators, which each have their own first steps."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, TransformerMixin

from onnxtrain.convert.custom import converter


class Columns(TransformerMixin, BaseEstimator):
    """Select columns of the rows by position; rows of any type become an array, sparse rows stay sparse.

    Parameters
    ----------
    columns : ndarray of int
    n_features : int
        The number of columns of the rows.
    """

    def __init__(self, columns: np.ndarray, n_features: int):
        self.columns = columns
        self.n_features = n_features

    @property
    def n_features_in_(self) -> int:
        """The number of columns of the rows."""
        return self.n_features

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any = None) -> Self:
        """Return self: nothing is learned."""
        return self

    def transform(self, X: Any) -> Any:
        """Return the columns."""
        rows = X.tocsc() if scipy.sparse.issparse(X) else np.asarray(X)
        return rows[:, self.columns]


@converter(Columns)
def columns(op: Any, estimator: Columns, X: Any) -> Any:
    """Write a Slice of adjacent columns, or a Gather of others."""
    chosen = np.asarray(estimator.columns, np.int64)
    first = int(chosen[0])
    if np.array_equal(chosen, np.arange(first, first + len(chosen))):
        return op.Slice(X, np.array([first]), np.array([first + len(chosen)]), np.array([1]))
    return op.Gather(X, chosen, axis=1)
