"""The models and rows that users pass: their types, questions to a model, rows of a model with several inputs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.multioutput import ClassifierChain, RegressorChain
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from onnxtrain.attributes import NamesItsAttributes
from onnxtrain.errors import ArgumentTypeError, DataError
from onnxtrain.registry import did_you_mean

if TYPE_CHECKING:
    import onnx
    from typing_extensions import TypeIs

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

    def assign(self, **columns: Any) -> Frame:
        """Return a frame with new columns."""

    def reindex(self, *, columns: Any) -> Frame:
        """Return a frame with these columns; new ones hold NaN."""


#: The types of rows, targets and sample weights that users give.
ArrayLike: TypeAlias = "npt.ArrayLike | scipy.sparse.spmatrix | Frame | Mapping[str, npt.ArrayLike] | Inputs"

#: Checked rows: an array, a CSR matrix, a frame, or columns by name.
Features: TypeAlias = "np.ndarray | scipy.sparse.csr_matrix | Frame | Mapping[str, np.ndarray]"


def is_onnx(model: object) -> TypeIs[OnnxModel]:
    """Whether a user's model is an ONNX model: a ModelProto, its bytes, or a path."""
    proto = getattr(sys.modules.get("onnx"), "ModelProto", ())  # a ModelProto exists only if onnx is imported
    return isinstance(model, (proto, bytes, bytearray, str, os.PathLike))


def is_fitted(estimator: Estimator) -> bool:
    """Whether an estimator is fitted; a frozen one is, a pipeline is if each of its steps is.

    Before a fitted last step, a step of a class outside scikit-learn may learn nothing, and so have no attribute.
    """
    if isinstance(estimator, Pipeline):  # scikit-learn checks only the last step
        steps = [step for _, step in estimator.steps if _is_step(step)]
        return all(map(_is_ready, steps[:-1])) and all(map(is_fitted, steps[-1:]))
    if hasattr(estimator, "predict") and not get_tags(estimator).requires_fit:  # a Gaussian process
        return any(name.endswith("_") and not name.startswith("_") for name in vars(estimator))
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def _is_ready(step: Any) -> bool:
    """Whether a step in front of a fitted one is fitted, as far as its class tells."""
    if isinstance(step, (Pipeline, FeatureUnion)):
        inner = step.steps if isinstance(step, Pipeline) else step.transformer_list
        return all(_is_ready(part) for _, part in inner if _is_step(part))
    return is_fitted(step) or not type(step).__module__.startswith("sklearn.")


def _is_step(step: object) -> bool:
    return step is not None and not isinstance(step, str)  # "passthrough"


def takes_sparse(estimator: Model) -> bool:
    """Whether ``fit`` accepts sparse rows: a graph does, an unfitted estimator may not."""
    return is_onnx(estimator) or get_tags(estimator).input_tags.sparse or is_fitted(estimator)


#: Meta-estimators that refuse NaN, whatever they contain.
_CHECK_ROWS = (AdaBoostClassifier, AdaBoostRegressor, ClassifierChain, RegressorChain)

#: Meta-estimators that pass the rows on to each member.
_WITH_MEMBERS = (StackingClassifier, StackingRegressor, VotingClassifier, VotingRegressor)


def allows_nan(source: object) -> bool:
    """Whether a model accepts NaN: each step of a pipeline must, up to a step that imputes.

    The tags of meta-estimators do not say so; most pass the rows on unchecked, but boosting and chains check them.
    CatBoost's estimators have no tags.
    """
    if not isinstance(source, BaseEstimator):
        return any(base.__module__.partition(".")[0] == "catboost" for base in type(source).__mro__)
    if isinstance(source, (ColumnTransformer, FeatureUnion)):
        return all(allows_nan(step) for step in _side_by_side(source) if _is_step(step))
    if isinstance(source, _WITH_MEMBERS):
        last = [source.final_estimator] if getattr(source, "passthrough", False) else []
        return all(allows_nan(member) for member in (*(m for _, m in source.estimators), *last) if member != "drop")
    if not isinstance(source, Pipeline):
        tags = get_tags(source)
        if tags.input_tags.allow_nan or tags.no_validation or isinstance(source, _CHECK_ROWS):
            return bool(tags.input_tags.allow_nan or tags.no_validation)
        return allows_nan(getattr(source, "estimator", getattr(source, "regressor", None)))
    for _, step in source.steps:
        if not _is_step(step):
            continue
        if not allows_nan(step):
            return False
        if _imputes(step):
            break
    return True


def _imputes(step: object) -> bool:
    """Whether a step has no NaN: an imputer, splines of zeros for NaN, a pipeline with one, or several side by side."""
    if isinstance(step, (ColumnTransformer, FeatureUnion)):
        return all(_imputes(inner) for inner in _side_by_side(step))
    if isinstance(step, Pipeline):
        return any(_imputes(inner) for _, inner in step.steps)
    as_zeros = getattr(step, "handle_missing", "") == "zeros"  # SplineTransformer
    return as_zeros or type(step).__module__.startswith("sklearn.impute")


def _side_by_side(step: ColumnTransformer | FeatureUnion) -> list[Any]:
    """Return the steps whose columns are joined; ``"passthrough"`` is one of them."""
    if isinstance(step, FeatureUnion):
        return [inner for _, inner in step.transformer_list if inner != "drop"]
    return [inner for inner in (*(inner for _, inner, _ in step.transformers), step.remainder) if inner != "drop"]


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
    """Whether the rows are strings, dictionaries or records, in a list or array of one axis, which hold no columns."""
    one_axis = isinstance(X, (list, tuple)) or getattr(X, "ndim", 0) == 1
    return one_axis and isinstance(next(iter(X), None), (str, bytes, Mapping, np.void))


def take(X: Features, rows: np.ndarray) -> Features:
    """Return a subset of the rows."""
    if isinstance(X, Mapping):
        return {name: column[rows] for name, column in X.items()}
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


# -------------------------------------------------------------- several inputs


class Inputs(NamesItsAttributes):
    """Rows of a model with several inputs, which scikit-learn can index like an array.

    So ``cross_val_score``, ``GridSearchCV``, ``train_test_split`` and ``Pipeline`` accept models with several inputs.
    They cannot split a dictionary, whose length is the number of inputs.

    Parameters
    ----------
    *unnamed : object
        Not used: an input without a name is an error.
    **inputs : array-like
        The values of each input, by name, with one entry per row along the first axis: an array, a memory map, a sparse
        matrix, a PyTorch tensor, a frame, or a list, whose entries may have different lengths. Nothing is copied, and
        no memory map is read, before rows are taken.

    Attributes
    ----------
    shape : tuple of int
        The number of rows and the number of inputs.

    Raises
    ------
    ArgumentTypeError
        An input has no name.
    DataError
        The inputs have different numbers of rows, or one is a scalar.

    See Also
    --------
    OrtGradientClassifier : Its parameters ``inputs``, ``batch_axis`` and ``pad`` say how rows reach the model.

    Examples
    --------
    >>> import numpy as np
    >>> from onnxtrain import Inputs
    >>> X = Inputs(input_ids=[[2, 7], [2], [5, 4, 3]], age=np.array([31, 45, 27]))
    >>> len(X), X.shape, X[[0, 2]]["input_ids"]
    (3, (3, 2), [[2, 7], [5, 4, 3]])
    >>> X[X["age"] > 30]
    Inputs(2 rows: input_ids, age)
    """

    _remedies = MappingProxyType(dict.fromkeys(("items", "values"), "Use X[name] for each name of X.keys()."))

    def __init__(self, /, *unnamed: Any, **inputs: Any):
        if unnamed:
            raise ArgumentTypeError(
                f"Inputs takes each input by name, Inputs(input_ids=..., attention_mask=...), got "
                f"{type(unnamed[0]).__name__} without a name. Pass a dictionary as Inputs(**inputs), and the array of "
                "a model with one input directly to fit and predict."
            )
        if not inputs:
            raise DataError("Inputs requires at least one input: Inputs(input_ids=..., attention_mask=...).")
        self._inputs = inputs
        counts = {name: _n_rows(name, values) for name, values in inputs.items()}
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{name} has {n}" for name, n in counts.items())
            raise DataError(
                f"The inputs have inconsistent numbers of samples: {found}. The first axis of each input must be the "
                "rows; use np.moveaxis(values, axis, 0). To take some rows, make Inputs of all rows and slice it, "
                "Inputs(...)[rows]. If a value is the same for all rows, set inputs={name: value} on the estimator."
            )
        self.shape = (next(iter(counts.values())), len(inputs))

    def __len__(self) -> int:
        return self.shape[0]

    def keys(self) -> list[str]:
        """Return the names of the inputs.

        Returns
        -------
        list of str
            In the order in which they were given.

        Examples
        --------
        >>> from onnxtrain import Inputs
        >>> Inputs(tokens=[[1, 2], [3, 4]], mask=[[1, 1], [1, 0]]).keys()
        ['tokens', 'mask']
        """
        return list(self._inputs)

    def __getitem__(self, key: Any) -> Any:
        """Return the values of an input by its name, one row by its index as a dictionary, or a subset of the rows."""
        if isinstance(key, str):
            if key not in self._inputs:
                raise DataError(f"There is no input {key!r}. {did_you_mean(key, self._inputs)}")
            return self._inputs[key]
        if isinstance(key, tuple):  # scikit-learn indexes rows by X[rows, ...]
            key, *others = key
            if any(part is not Ellipsis and part != slice(None) for part in others):
                raise DataError(
                    f"Inputs are indexed by rows alone, got {(key, *others)!r:.80}. For columns of an input, use "
                    "Inputs(...)[name][:, columns]."
                )
        if isinstance(key, (int, np.integer)) and -len(self) <= key < len(self):
            return {name: part[0] for name, part in self[[range(len(self))[key]]]._inputs.items()}
        rows = _positions(key, len(self))
        return Inputs(**{name: _taken(values, rows) for name, values in self._inputs.items()})

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise DataError(
            f"Inputs ({', '.join(self._inputs)}) cannot become one array. Use it in splits, searches and pipelines, "
            "not in estimators and functions that compute with one array."
        )

    def __repr__(self) -> str:
        return f"Inputs({len(self)} rows: {', '.join(self._inputs)})"


def _n_rows(name: str, values: Any) -> int:
    no_rows = isinstance(values, (str, bytes, Mapping, set, frozenset))
    if no_rows or not (hasattr(values, "__len__") or hasattr(values, "shape")):
        raise DataError(f"The input {name!r} must have rows, got {values!r:.80}. {_fixed(name)}")
    shape = getattr(values, "shape", None)
    if shape is not None and not len(shape):
        raise DataError(f"The input {name!r} must have rows, got the scalar {values!r:.80}. {_fixed(name)}")
    return len(values) if shape is None else int(shape[0])


def _fixed(name: str) -> str:
    return f"If a value is the same for all rows, set inputs={{{name!r}: ...}} on the estimator."


def _positions(key: Any, n: int) -> slice | np.ndarray:
    """Convert a key to an increasing slice or to row indices."""
    if isinstance(key, slice):
        return key if key.step is None or key.step > 0 else np.arange(n)[key]
    rows = np.asarray(key)
    if rows.dtype == bool:
        if rows.shape != (n,):
            raise DataError(f"The mask must have shape ({n},), got {rows.shape}.")
        return np.flatnonzero(rows)
    try:
        return np.arange(n)[rows.astype(np.int64) if rows.size == 0 else rows]
    except IndexError as e:
        raise IndexError(f"Rows are selected by indices from 0 to {n - 1}, slices or a mask, got {key!r:.80}.") from e


def _taken(values: Any, rows: slice | np.ndarray) -> Any:
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    if hasattr(values, "shape"):
        return values[rows]
    return values[rows] if isinstance(rows, slice) else [values[i] for i in rows.tolist()]
