"""The steps of a pipeline in front of the trained one that scikit-learn runs, because ONNX does not run them alike.

A step that is not trained need not be a graph: TfidfVectorizer, IterativeImputer or a function of one's own transform
the rows once before training, and again before each prediction. Only the last step becomes a model.
"""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from onnxtrain.convert import HISTOGRAMS, holds
from onnxtrain.convert.learned import paths
from onnxtrain.errors import ExportError, ModelError
from onnxtrain.estimators.frames import InputForm, as_pandas, in_order
from onnxtrain.estimators.protocols import ArrayLike, Estimator, Features, is_frame
from onnxtrain.estimators.validation import as_data_error

if TYPE_CHECKING:
    from typing_extensions import TypeIs

#: Entries of the rows on which rounding to float32 is tried: a tenth of a second.
_MANY = 2**21

#: A larger change of a column by rounding, relative to its largest value, is a row on the other side of a threshold.
_ROUNDING = 1e-3


def is_divisible(estimator: object) -> TypeIs[Pipeline]:
    """Whether an estimator is a pipeline with steps in front of the last one, which predicts."""
    return isinstance(estimator, Pipeline) and len(_flat(estimator)) > 1 and hasattr(_flat(estimator)[-1][1], "fit")


def _flat(pipeline: Pipeline) -> list[tuple[str, Any]]:
    """Return the steps; those of a pipeline that is the last step itself instead of it."""
    *front, (name, last) = pipeline.steps
    return [*front, *(_flat(last) if isinstance(last, Pipeline) else [(name, last)])]


@dataclass(frozen=True)
class PreprocessedForm(InputForm):
    """Rows as scikit-learn takes them; the steps in front of the trained one turn them into its columns.

    Attributes
    ----------
    front : Pipeline
        Fitted, without the last step.
    pipeline : Pipeline or None
        Fitted, as it was handed over; None if it was read from a file.
    """

    front: Any = field(default=None, repr=False)
    pipeline: Any = field(default=None, repr=False)

    @classmethod
    def of_pipeline(cls, pipeline: Pipeline, dtype: str) -> PreprocessedForm:
        """Return the form of rows for a fitted pipeline."""
        return cls(False, dtype, front=Pipeline(_flat(pipeline)[:-1]), pipeline=pipeline)

    @property
    def last(self) -> Any:
        """The step that is trained."""
        return _flat(self.pipeline)[-1][1]

    @property
    def path(self) -> str:
        """The names of the steps that lead to the one that is trained."""
        return next(path for path, step in paths(self.pipeline) if step is self.last)

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
        """Return the columns that the last step takes, and targets with as many rows."""
        if not reset and is_frame(X) and self.pipeline is not None and hasattr(estimator, "feature_names_in_"):
            X = in_order(X, estimator.feature_names_in_, self.pipeline)
        with as_data_error():
            check_consistent_length(X, y)
            _check_names(estimator, X, reset=reset)
            if y is not None:
                dtype = "numeric" if numeric else None
                y = check_array(y, accept_sparse="csr", ensure_2d=False, dtype=dtype, input_name="y")
            return self._columns(X), y

    def exact(self, X: ArrayLike, rows: Features) -> Features:
        """Return the columns that the last step takes before they are rounded to float32, where it does not itself."""
        return super().exact(self.front.transform(X), rows) if holds(self.last, HISTOGRAMS) else rows

    def _columns(self, X: Features) -> Features:
        allows_nan = self.pipeline is not None and get_tags(self.last).input_tags.allow_nan
        finite = "allow-nan" if allows_nan else True
        return check_array(
            self.front.transform(X), accept_sparse="csr", dtype=self.dtype, order="C", ensure_all_finite=finite
        )

    def around(self, trained: Estimator) -> Estimator:
        """Return the pipeline with a trained last step."""
        whole = copy.deepcopy(self.pipeline)
        inner = whole
        while isinstance(inner.steps[-1][1], Pipeline):
            inner = inner.steps[-1][1]
        inner.steps[-1] = (inner.steps[-1][0], trained)
        return whole

    def runs(self, estimator: Estimator | None) -> dict[str, str]:
        """Return ``"ONNX"`` or ``"scikit-learn"`` by the name of a step."""
        last = "model" if self.pipeline is None else _flat(self.pipeline)[-1][0]
        return {**dict.fromkeys(self.front.named_steps, "scikit-learn"), last: "ONNX"}

    def check_whole(self) -> None:
        """Raise an ExportError: the graph does not hold the steps in front."""
        names = ", ".join(repr(name) for name, _ in self.front.steps)
        raise ExportError(
            f"The graph holds the last step alone: scikit-learn runs {names}, which ONNX does not run alike. "
            "get_trained_onnx(part='tail') returns the model of the last step; its rows are what "
            "fitted_pipeline[:-1].transform(X) returns. to_sklearn() returns the whole pipeline."
        )


def _check_names(estimator: Estimator, X: Features, *, reset: bool) -> None:
    """Check names and number of the columns; rows of a list of texts have none."""
    by_column = is_frame(X) or len(getattr(X, "shape", ())) > 1
    validate_data(estimator, X, reset=reset, skip_check_array=True, ensure_2d=by_column)


def rounds(pipeline: Estimator | None, X: ArrayLike) -> bool:
    """Whether rounding the rows to float32 changes the results of the steps in front by more than their last digits.

    A row that lies on a threshold, of a bin for example, may fall to the other side.
    """
    if not is_divisible(pipeline) or scipy.sparse.issparse(X) or not _holds_float64(X):
        return False
    front, X = Pipeline(_flat(pipeline)[:-1]), as_pandas(X)
    X = X if is_frame(X) else np.asarray(X)
    step = max(1, math.prod(X.shape) // _MANY)
    some = X.iloc[::step] if is_frame(X) else X[::step]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the rows were given in fit
        exact, rounded = (_dense(front.transform(rows)) for rows in (some, _rounded(some)))
    if exact.dtype.kind != "f" or exact.shape != rounded.shape:
        return not np.array_equal(exact, rounded)
    with np.errstate(invalid="ignore"):
        largest = np.nanmax(np.abs(exact), axis=0, initial=0.0)
        return bool(np.any(np.abs(exact - rounded) > _ROUNDING * np.maximum(largest, 1e-30)))


def _rounded(X: Features) -> Features:
    """Return rows of which float64 was rounded to float32, in the types they have."""
    if not is_frame(X):
        return np.asarray(X, np.float32).astype(np.float64)
    floats = {name: dtype for name, dtype in X.dtypes.items() if getattr(dtype, "kind", "") == "f"}
    return X.astype(dict.fromkeys(floats, np.float32)).astype(floats)  # type: ignore[attr-defined]


def _holds_float64(X: ArrayLike) -> bool:
    X = as_pandas(X)
    if is_frame(X):
        return any(getattr(dtype, "kind", "") == "f" and dtype.itemsize > 4 for dtype in X.dtypes)
    return getattr(X, "dtype", None) != np.float32 and np.asarray(X).dtype.kind == "f"


def _dense(rows: Any) -> np.ndarray:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)


# ------------------------------------------------------------------- files


def to_bytes(front: Pipeline) -> np.ndarray:
    """Return fitted steps as skops writes them, uint8 (n,)."""
    try:
        from skops.io import dumps
    except ImportError as e:
        raise ExportError(
            "scikit-learn runs the first steps of the pipeline; a file keeps them by skops: pip install skops."
        ) from e
    return np.frombuffer(dumps(front), np.uint8)


#: Types that skops asks about, and which hold numbers alone: bins, splines, the fitted imputers of IterativeImputer.
_HARMLESS = (
    "numpy.dtype",
    "sklearn.compose._column_transformer._RemainderColsList",
    "scipy.interpolate._bsplines.BSpline",
    "scipy.interpolate._bsplines._BSpline",
    "sklearn.impute._iterative._ImputerTriplet",
)


def from_bytes(content: np.ndarray, trusted: tuple[str, ...] = ()) -> Pipeline:
    """Return fitted steps; only types that skops trusts, that are known here to be harmless, or `trusted` are built.

    Raises
    ------
    ModelError
        skops is missing, or the steps hold objects of other types.
    """
    try:
        from skops.io import get_untrusted_types, loads
    except ImportError as e:
        raise ModelError("The file holds steps of scikit-learn, which skops reads: pip install skops.") from e
    data = content.tobytes()
    known = {*_HARMLESS, *trusted}
    asked = get_untrusted_types(data=data)
    unknown = sorted(set(asked) - known)
    if unknown:
        raise ModelError(
            f"The steps of scikit-learn in the file hold {', '.join(unknown)}, which skops does not trust by itself. "
            f"If you trust whoever wrote the file: load(path, trusted={unknown})."
        )
    return loads(data, trusted=sorted(asked))
