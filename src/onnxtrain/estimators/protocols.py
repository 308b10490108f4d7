"""The types of models and rows as users give them, and of checked rows; questions that a model answers."""

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

#: An ONNX model: itself, its bytes, or a path.
OnnxModel: TypeAlias = "onnx.ModelProto | bytes | str | os.PathLike[str]"

#: What is trained.
Model: TypeAlias = "Estimator | OnnxModel"


@runtime_checkable
class HasShape(Protocol):
    """An array, sparse or not, or a frame."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows, and those of the other axes."""


class Frame(HasShape, Protocol):
    """A table of pandas, as far as it is used here."""

    @property
    def columns(self) -> Any:
        """The names."""

    @property
    def dtypes(self) -> Any:
        """The type of each column."""

    @property
    def iloc(self) -> Any:
        """The rows by position."""

    def __getitem__(self, name: Any, /) -> Any:
        """Return a column, or several."""


#: Rows, targets and sample weights as users give them.
ArrayLike: TypeAlias = "npt.ArrayLike | scipy.sparse.spmatrix | Frame | Mapping[str, npt.ArrayLike] | Inputs"

#: Checked rows: an array, a CSR matrix, a frame, or columns by name.
Features: TypeAlias = "np.ndarray | scipy.sparse.csr_matrix | Frame | Mapping[str, np.ndarray]"


def is_onnx(model: object) -> TypeIs[OnnxModel]:
    """Whether a user's model is an ONNX model: a ModelProto, its bytes, or a path."""
    proto = getattr(sys.modules.get("onnx"), "ModelProto", ())  # whoever has a ModelProto has imported onnx
    return isinstance(model, (proto, bytes, bytearray, str, os.PathLike))


def is_fitted(estimator: Estimator) -> bool:
    """Whether an estimator has been fitted; one that is frozen has, a pipeline where each of its steps has."""
    if isinstance(estimator, Pipeline) and not all(is_fitted(step) for _, step in estimator.steps if _is_step(step)):
        return False  # scikit-learn asks the last step alone
    if hasattr(estimator, "predict") and not get_tags(estimator).requires_fit:  # a Gaussian process predicts unfitted
        return any(name.endswith("_") and not name.startswith("_") for name in vars(estimator))
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def _is_step(step: object) -> bool:
    return step is not None and not isinstance(step, str)  # "passthrough"


def takes_sparse(estimator: Model) -> bool:
    """Whether `fit` takes sparse rows: a graph does, an estimator that has to be fitted first may not."""
    return is_onnx(estimator) or get_tags(estimator).input_tags.sparse or is_fitted(estimator)


def allows_nan(source: object) -> bool:
    """Whether all of a model takes NaN: each step of a pipeline up to one that fills them in.

    The tags of estimators around others leave it open; most hand on the rows before any check.
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
    """Whether `fit` accepts multilabel targets, as far as known in advance."""
    if is_onnx(estimator):
        return True
    tags = get_tags(estimator)
    return bool(tags.target_tags.multi_output or (tags.classifier_tags and tags.classifier_tags.multi_label))


def is_frame(X: object) -> TypeIs[Frame]:
    """Whether X is a frame as pandas makes them."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def is_of_objects(X: object) -> bool:
    """Whether the rows are a list of texts or dictionaries; in an array each text takes the bytes of the longest."""
    return isinstance(X, (list, tuple)) and len(X) > 0 and isinstance(X[0], (str, bytes, Mapping))


def take(X: Features, rows: np.ndarray) -> Features:
    """Return some of the rows."""
    if isinstance(X, Mapping):
        return {name: column[rows] for name, column in X.items()}
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]
