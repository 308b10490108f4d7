"""The types of models and rows as users give them, and of checked rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
import scipy.sparse
from sklearn.base import BaseEstimator

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from onnxtrain.estimators.inputs import Inputs

Estimator: TypeAlias = BaseEstimator

#: An ONNX model: itself, its bytes, or a path.
OnnxModel: TypeAlias = "onnx.ModelProto | bytes | str | os.PathLike[str]"

#: What is trained.
Model: TypeAlias = "Estimator | OnnxModel"


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
    return isinstance(model, (onnx.ModelProto, bytes, bytearray, str, os.PathLike))


def is_frame(X: object) -> TypeIs[Frame]:
    """Whether X is a frame as pandas makes them."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def take(X: Features, rows: np.ndarray) -> Features:
    """Return some of the rows."""
    if isinstance(X, Mapping):
        return {name: column[rows] for name, column in X.items()}
    return X.iloc[rows] if is_frame(X) else X[rows]
