"""The refusal of a call without targets, or with targets of another form: it names the call that is meant."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxtrain.convert.learned import library_of
from onnxtrain.errors import DataError
from onnxtrain.estimators.protocols import ArrayLike, is_frame, is_onnx
from onnxtrain.estimators.validation import check_one_type

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator

#: Containers of rows that have no shape.
_ROWS = (Mapping, Sequence)


def _call_for(X: object, method: str) -> str:
    """Return how to pass y to a method, for a message."""
    call = f"{method}(X, y)"
    if library := library_of(type(X)):
        return f"{call}. X is a {type(X).__name__} of {library}. Pass the arrays of which it was made"
    if isinstance(X, (str, os.PathLike)):
        if str(X).endswith((".parquet", ".pq")):
            return f"{method}(onnxtrain.rows.from_parquet({os.fspath(X)!r:.80}, label=...)), because X is a path"
        return f"{call}. Read {os.fspath(X)!r:.80} first, for example with pandas.read_csv"
    if type(X).__module__.startswith("pyarrow.parquet"):
        return f"{method}(onnxtrain.rows.from_parquet(path, label=...)), because X is a {type(X).__name__}"
    if isinstance(X, Mapping) and {"data", "target"} <= set(X):
        return f"{method}(X['data'], X['target']), because X is a {type(X).__name__} with both"
    inside = [name for name in ("labels", "label", "y", "target") if isinstance(X, Mapping) and name in X]
    if inside:
        return f"{call}. X contains {inside[0]!r}. Take it out: y = X.pop({inside[0]!r})"
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], Mapping):
        return f"{call}. X is a list of dictionaries, one per row. Pass the labels, y = [row['label'] for row in X]"
    if hasattr(X, "read") or (hasattr(X, "__getitem__") and not hasattr(X, "shape") and not isinstance(X, _ROWS)):
        return (
            f"{call}. {type(X).__name__} is no array. Rows in parts, which need no y, have the methods __len__(), "
            "n_rows(i) and read(i)"
        )
    if isinstance(X, (list, tuple)) and len(X) == 2 and all(hasattr(part, "shape") for part in X):
        return f"X is a {type(X).__name__} of two arrays. Use {method}(*X)"
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], (list, tuple)) and hasattr(X[0][0], "shape"):
        return f"X is a {type(X).__name__} of batches. Call partial_fit(*batch) for each, or join them for fit(X, y)"
    if is_frame(X):
        return f"{call}. If a column of X holds the targets, take it out: y = X.pop(name)"
    return call


def _of_autoencoder(estimator: OrtGradientEstimator, X: Any) -> str:
    """Return the remark that an ONNX model may learn its own rows; empty for a classifier and other rows."""
    learns_rows = is_onnx(estimator.estimator) and not estimator._classifies and getattr(X, "ndim", 0) > 1
    return " A model that learns its own rows, such as an autoencoder, takes fit(X, X)." if learns_rows else ""


def check_labelled(estimator: OrtGradientEstimator, X: Any, y: ArrayLike | None, method: str = "fit") -> None:
    """Raise a DataError if `method` got no targets; the message begins with that of scikit-learn."""
    if y is None:
        name = type(estimator).__name__
        raise DataError(
            f"This {name} estimator requires y to be passed, but the target y is None: {_call_for(X, method)}."
            f"{_of_autoencoder(estimator, X)}"
        )
    if isinstance(y, (list, tuple)) and y and isinstance(y[0], Mapping):
        raise DataError(
            "y is a list of dictionaries, one per row. Pass an array with the targets of one key, such as "
            f"numpy.array([row[{next(iter(y[0]), 'label')!r}] for row in y]), which have the same shape in all rows."
        )
    if estimator._classifies:
        check_one_type(y)
    if type(y).__module__.startswith("pandas.") and not hasattr(y, "__array__"):  # a GroupBy or a Rolling
        raise DataError(
            f"y must be an array or a column, got a {type(y).__name__} of pandas. Pass the column of which it was "
            "made, or what its methods compute with one value per row."
        )
