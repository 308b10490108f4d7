"""Types of users' models and rows and of checked rows, and functions that query a model."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    import onnx
    from typing_extensions import TypeIs

    from onnxtrain.estimators.inputs import Inputs

Estimator: TypeAlias = BaseEstimator

#: An ONNX model: a ModelProto, its bytes, or a path.
OnnxModel: TypeAlias = "onnx.ModelProto | bytes | str | os.PathLike[str]"

#: A model that can be trained.
Model: TypeAlias = "Estimator | OnnxModel"


@runtime_checkable
class HasShape(Protocol):
    """A dense or sparse array, or a frame."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis; the rows are the first."""


class Frame(HasShape, Protocol):
    """The interface of pandas frames that is used here."""

    @property
    def columns(self) -> Any:
        """The column names."""

    @property
    def dtypes(self) -> Any:
        """The type of each column."""

    @property
    def iloc(self) -> Any:
        """The rows by position."""

    def __getitem__(self, name: Any, /) -> Any:
        """Return a column, or several."""


#: The types of rows, targets and sample weights that users give.
ArrayLike: TypeAlias = "npt.ArrayLike | scipy.sparse.spmatrix | Frame | Mapping[str, npt.ArrayLike] | Inputs"

#: Checked rows: an array, a CSR matrix, a frame, or columns by name.
Features: TypeAlias = "np.ndarray | scipy.sparse.csr_matrix | Frame | Mapping[str, np.ndarray]"


def is_onnx(model: object) -> TypeIs[OnnxModel]:
    """Whether a user's model is an ONNX model: a ModelProto, its bytes, or a path."""
    proto = getattr(sys.modules.get("onnx"), "ModelProto", ())  # a ModelProto exists only if onnx is imported
    return isinstance(model, (proto, bytes, bytearray, str, os.PathLike))


def is_fitted(estimator: Estimator) -> bool:
    """Whether an estimator is fitted; a frozen one is, a pipeline is if each of its steps is."""
    if isinstance(estimator, Pipeline) and not all(is_fitted(step) for _, step in estimator.steps if _is_step(step)):
        return False  # scikit-learn checks only the last step
    if hasattr(estimator, "predict") and not get_tags(estimator).requires_fit:  # a Gaussian process
        return any(name.endswith("_") and not name.startswith("_") for name in vars(estimator))
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def _is_step(step: object) -> bool:
    return step is not None and not isinstance(step, str)  # "passthrough"


def takes_sparse(estimator: Model) -> bool:
    """Whether ``fit`` accepts sparse rows: a graph does, an unfitted estimator may not."""
    return is_onnx(estimator) or get_tags(estimator).input_tags.sparse or is_fitted(estimator)


def allows_nan(source: object) -> bool:
    """Whether a model accepts NaN: each step of a pipeline must, up to a step that imputes.

    The tags of meta-estimators do not say so; most pass the rows on unchecked.
    """
    if not isinstance(source, BaseEstimator):
        return False
    if not isinstance(source, Pipeline):
        within = getattr(source, "estimator", getattr(source, "regressor", None))
        return get_tags(source).input_tags.allow_nan or allows_nan(within)
    for _, step in source.steps:
        if not _is_step(step):
            continue
        if not allows_nan(step):
            return False
        if type(step).__module__.startswith("sklearn.impute"):
            break
    return True


def takes_labels(estimator: Model) -> bool:
    """Whether ``fit`` accepts multilabel targets, as far as the tags tell."""
    if is_onnx(estimator):
        return True
    tags = get_tags(estimator)
    return bool(tags.target_tags.multi_output or (tags.classifier_tags and tags.classifier_tags.multi_label))


def is_frame(X: object) -> TypeIs[Frame]:
    """Whether X is a pandas-like frame."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def is_of_objects(X: Any) -> bool:
    """Whether the rows are strings or dictionaries, in a list or an array of one axis, which hold no columns."""
    one_axis = isinstance(X, (list, tuple)) or getattr(X, "ndim", 0) == 1
    return one_axis and isinstance(next(iter(X), None), (str, bytes, Mapping))


def take(X: Features, rows: np.ndarray) -> Features:
    """Return a subset of the rows."""
    if isinstance(X, Mapping):
        return {name: column[rows] for name, column in X.items()}
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]
