"""Rows in: one array, frames with columns of several types, several inputs by name, images."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt
import onnx
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from onnxtrain import graph
from onnxtrain.errors import DataError, ModelError
from onnxtrain.estimators.protocols import (
    ArrayLike,
    Estimator,
    Features,
    Frame,
    Model,
    OnnxModel,
    is_frame,
    is_onnx,
)
from onnxtrain.estimators.validation import allows_nan, as_data_error, check_features, check_X_y
from onnxtrain.registry import did_you_mean
from onnxtrain.training.model import TrainableModel

#: float32 holds every integer up to here.
_COUNTED = 2**24


@dataclass(frozen=True)
class InputForm:
    """The form in which rows come in: column by column under their names, or as one array.

    Attributes
    ----------
    by_name : bool
    dtype : str
        The type of the array.
    ndim : int
        Its rank.
    sparse : bool
        The rows were sparse in ``fit``.
    allow_nan : bool
        Whether the array may hold NaN.
    front : Pipeline or None
        Fitted steps that scikit-learn runs.
    """

    by_name: bool
    dtype: str
    ndim: int = 2
    sparse: bool = False
    allow_nan: bool = False
    front: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, X: ArrayLike, estimator: Model | None, dtype: str) -> InputForm:
        """Return the form of rows for an estimator or an ONNX model, whose floating-point type is `dtype`."""
        if comes_by_name(X, estimator):
            return cls(True, dtype)
        declared = declared_inputs(estimator) if estimator is not None and is_onnx(estimator) else {}
        sparse = scipy.sparse.issparse(X)
        if len(declared) != 1:
            return cls(False, dtype, sparse=sparse, allow_nan=allows_nan(estimator))
        ((own, ndim),) = declared.values()
        return cls(False, dtype if own.kind == "f" else own.str, ndim, sparse)

    def check(
        self,
        estimator: Estimator,
        X: ArrayLike,
        y: ArrayLike | None = None,
        original: Estimator | None = None,
        *,
        reset: bool = False,
        numeric: bool = True,
    ) -> tuple[Features, Any]:
        """Return rows of this form, and targets, `numeric` or labels, with as many rows.

        An estimator that is fitted takes the columns of frames as `original` does, the one that was handed over.
        """
        if self.by_name:
            return check_named(estimator, as_pandas(X), y, original, reset=reset)
        dtype = np.dtype(self.dtype)
        return check_X_y(
            estimator, X, y, reset=reset, dtype=dtype, ndim=self.ndim, numeric=numeric, allow_nan=self.allow_nan
        )

    def exact(self, X: ArrayLike, rows: Features) -> Features:
        """Return `rows` before their rounding to float32, from `X` as it came; else `rows`."""
        if not isinstance(rows, np.ndarray) or rows.dtype != np.float32 or rows.ndim != 2:
            return rows
        found = np.asarray(X)
        if found.shape != rows.shape or found.dtype.itemsize < 8 or found.dtype.kind not in "fiu":
            return rows
        if found.dtype.kind != "f" and np.abs(found).max(initial=0) <= _COUNTED:
            return rows
        return found.astype(np.float64, copy=False)

    def check_shape(
        self, X: Features, shapes: Mapping[str, tuple[int | None, ...]], source: str = "the model takes"
    ) -> None:
        """Compare an array with the shape of the one input of a model; `source` says whose."""
        if self.by_name or isinstance(X, Mapping):
            return
        if len(shapes) > 1:
            raise DataError(
                f"The model has the inputs {', '.join(shapes)}: give X as a dictionary or a DataFrame by these names."
            )
        for shape in shapes.values():
            check_features(X, shape, source)

    def around(self, trained: Estimator) -> Estimator:
        """Return the estimator that was handed over, from its trained part: all of it."""
        return trained

    def runs(self, estimator: Estimator | None) -> dict[str, str]:
        """Return ``"ONNX"`` or ``"scikit-learn"`` by the name of a step."""
        steps = estimator.named_steps if isinstance(estimator, Pipeline) else {type(estimator).__name__.lower(): None}
        return dict.fromkeys(["model"] if estimator is None else steps, "ONNX")

    def check_whole(self) -> None:
        """Raise an ExportError if the graph is only a part of the estimator that was handed over."""

    def feeds(self, X: Features, model: TrainableModel) -> dict[str, Any]:
        """Return checked rows by the names of the inputs of a model."""
        if self.by_name:
            return feeds_by_name(X, model.features, model.shapes)
        (name,) = model.features
        return {name: X}


class Rows(NamedTuple):
    """Checked rows with their targets and sample weights, and the form in which they came.

    `exact` are the rows as scikit-learn takes them, which the model may round to float32.
    """

    X: Features
    y: np.ndarray
    weight: np.ndarray | None
    form: InputForm
    exact: Features


def declared_inputs(onx: OnnxModel) -> dict[str, tuple[np.dtype, int]]:
    """Return the type and the rank of each input of an ONNX model."""
    proto = graph.read(onx)
    known = {i.name for i in proto.graph.initializer}
    found = {}
    for value in proto.graph.input:
        if value.name not in known:
            tensor = value.type.tensor_type
            if not tensor.elem_type:
                raise ModelError(f"The input {value.name!r} of the model is no tensor: rows cannot go in.")
            dtype = np.dtype(np.float32)  # as any type of floating point, of which numpy lacks some
            if tensor.elem_type not in graph.FLOATS:
                dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
            if dtype.type.__module__ != "numpy":  # types of 2, 4 and 8 bits
                raise ModelError(f"The input {value.name!r} of the model holds {dtype}: numpy has no such numbers.")
            found[value.name] = dtype, len(tensor.shape.dim) or 2
    return found


def comes_by_name(X: ArrayLike, estimator: Model | None) -> bool:
    """Whether the rows are passed column by column, each under its name.

    So are dictionaries, frames whose columns are not all numeric, and frames for a
    model that asks for columns: one with several inputs, or with a ColumnTransformer.
    """
    if scipy.sparse.issparse(X):  # a dok_array is a dictionary as well
        return False
    if isinstance(X, Mapping):
        return True
    if not is_frame(X) and not _is_polars(X):
        return False
    dtypes = [X.head(0).get_column(name).to_numpy().dtype for name in X.columns] if _is_polars(X) else X.dtypes
    if any(dtype.kind not in "fiub" for dtype in dtypes):
        return True
    if is_onnx(estimator):
        return len(declared_inputs(estimator)) > 1
    return _has_columns(estimator)


def _has_columns(estimator: object) -> bool:
    if isinstance(estimator, ColumnTransformer):
        return True
    if not isinstance(estimator, BaseEstimator):
        return False
    return any(_has_columns(part) for part in estimator.get_params().values() if isinstance(part, BaseEstimator))


def _is_polars(X: object) -> TypeGuard[Any]:
    return hasattr(X, "columns") and hasattr(X, "get_column")


def as_pandas(X: ArrayLike) -> ArrayLike:
    """Return a frame of polars as one of pandas, through which columns go by name; anything else as it is."""
    if not _is_polars(X):
        return X
    import pandas as pd

    return pd.DataFrame({name: X.get_column(name).to_numpy() for name in X.columns})


def in_order(X: Frame, names: Sequence[str], estimator: Estimator | None) -> Frame:
    """Return a frame with the columns `names` in their order, if scikit-learn accepts any order.

    A ColumnTransformer selects its columns by name, others by position: the
    fitted `estimator` is tried on the first row. Without one, an ONNX model
    with an input for each column accepts any order.

    Raises
    ------
    DataError
        The estimator does not take the columns as they are.
    """
    if list(X.columns) == list(names):
        return X
    missing = not all(name in X.columns for name in names)
    if estimator is not None:
        with as_data_error(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if missing:
                validate_data(estimator, X, reset=False, skip_check_array=True)
            getattr(estimator, "predict" if hasattr(estimator, "predict") else "transform")(X.iloc[:1])
    return X if missing else X[list(names)]


def check_named(
    estimator: Estimator, X: ArrayLike, y: ArrayLike | None, original: Estimator | None, *, reset: bool
) -> tuple[Any, Any]:
    """Return the rows as they are, after a check of their names and their number, and y as an array.

    Raises
    ------
    DataError
        X and y have different lengths, or y holds NaN.
    """
    if not reset and is_frame(X) and hasattr(estimator, "feature_names_in_"):
        X = in_order(X, estimator.feature_names_in_, original)
    if isinstance(X, Mapping):
        if not X:
            raise DataError("X is an empty dictionary.")
        for name, column in X.items():
            if np.ndim(column) == 0:
                raise DataError(f"X[{name!r}] is the scalar {column!r}: give an array with one entry a row.")
        X = {name: np.asarray(column) for name, column in X.items()}
    with as_data_error():
        if not isinstance(X, Mapping):
            validate_data(estimator, X, reset=reset, skip_check_array=True)
        if is_frame(X):
            _check_no_gaps(X)
        check_consistent_length(*(X.values() if isinstance(X, Mapping) else [X]), y)
        if y is not None:
            y = check_array(y, accept_sparse="csr", ensure_2d=False, dtype=None, input_name="y")
    return X, y


def _check_no_gaps(X: Frame) -> None:
    """Raise a DataError for columns of integers or booleans with missing values, which have no place in an array."""
    gaps = [str(name) for name, dtype in X.dtypes.items() if dtype.kind in "iub" and X[name].isna().to_numpy().any()]
    if gaps:
        raise DataError(
            f"Missing values in the columns {', '.join(gaps)} of integers or booleans: ONNX has no such type. Fit on "
            "rows some of which lack these values, so that scikit-learn runs the steps that fill them in, or fill them "
            "in before."
        )


def warn_of_unknown(X: Frame | Mapping[str, np.ndarray], inputs: Collection[str]) -> None:
    """Warn of columns by name that an ONNX model does not take: misspelled, or meant for another model."""
    names = [str(name) for name in (X if isinstance(X, Mapping) else X.columns)]
    unknown = [name for name in names if name not in inputs]
    if unknown and (isinstance(X, Mapping) or len(unknown) < len(names)):  # a frame may be one input, under any names
        warnings.warn(
            f"The model does not take the columns {', '.join(unknown)} of X: they have no effect. "
            f"Its inputs are {', '.join(inputs)}.",
            UserWarning,
            stacklevel=6,
        )


def feeds_by_name(X: Features, inputs: Mapping[str, np.dtype], shapes: Mapping[str, tuple]) -> dict[str, np.ndarray]:
    """Return the rows for each input of a model, in its type.

    Raises
    ------
    DataError
        An input has no column of its name.
    """
    names = list(X) if isinstance(X, Mapping) else [str(name) for name in getattr(X, "columns", ())]
    if len(inputs) == 1 and not isinstance(X, Mapping) and not set(inputs) & set(names):
        return {name: _as_matrix(X, dtype, shapes[name]) for name, dtype in inputs.items()}
    if not names:
        raise DataError(f"The model has the inputs {', '.join(inputs)}: give X as a DataFrame with these columns.")
    feeds = {}
    for name, dtype in inputs.items():
        if name not in names:
            raise DataError(
                f"The model has an input {name!r}, X has no column of that name. {did_you_mean(name, names)}"
            )
        column = np.asarray(X[name])
        column = column.astype(object if dtype.kind in "OSU" else dtype)
        feeds[name] = np.ascontiguousarray(column.reshape(-1, 1) if column.ndim < len(shapes[name]) else column)
    return feeds


def _as_matrix(X: npt.ArrayLike, dtype: np.dtype, shape: tuple) -> np.ndarray:
    """Return the columns of a numeric frame as the one input of a model."""
    rows = np.ascontiguousarray(np.asarray(X), dtype=dtype)
    check_features(rows, shape, "the model takes")
    return rows


def count_rows(X: Features) -> int:
    """Return the number of rows."""
    return (next(iter(X.values())) if isinstance(X, Mapping) else X).shape[0]
