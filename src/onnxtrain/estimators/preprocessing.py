"""First steps of a pipeline that scikit-learn runs, because ONNX does not compute them in the same way.

A step that is not trained need not be a graph. TfidfVectorizer, IterativeImputer or a user's function transform the
rows once before training, and before each prediction. Only the trained steps become a graph.
"""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_array, validate_data

from onnxtrain.convert import HISTOGRAMS, holds
from onnxtrain.convert.bind import NO_WORDS
from onnxtrain.convert.check import differences
from onnxtrain.convert.columns import by_column, rounding_code
from onnxtrain.convert.compared_rows import COMPARED_ROWS, at_most, rows_between, some_rows
from onnxtrain.convert.failures import reason_in_front
from onnxtrain.convert.learned import inside
from onnxtrain.dialects import for_table
from onnxtrain.errors import ConversionError, DataError, ExportError, ModelError, warn
from onnxtrain.estimators.arrays import as_pandas
from onnxtrain.estimators.division import Division, divisions, steps_of, why_indivisible
from onnxtrain.estimators.frames import InputForm, holds_halves, is_rounded, numeric_columns
from onnxtrain.estimators.named_columns import DIVIDED_BY_GAPS, in_order, takes_nan, without_imputed
from onnxtrain.estimators.protocols import ArrayLike, Estimator, Features, is_frame, is_of_objects
from onnxtrain.estimators.remedies import OF_GAPS, as_data_error, check_no_dates, of_names
from onnxtrain.estimators.validation import check_lengths

#: The number of entries that are rounded to float32 at a time, which takes a tenth of a second.
_MANY = 2**21

#: The number of texts that are predicted at a time: their columns take more memory than the predictions for all texts.
_TEXTS = 500

#: If rounding changes a column by more, relative to its largest value, a row has crossed a threshold.
_ROUNDING = 1e-3

#: If rounding the rows changes the predictions by less, relative to their range, five digits remain. The graph also
#: rounds the offsets that it subtracts, which was measured to add an equal error.
_CHANGE_OF_PREDICTIONS = 5e-6

#: The remark for rows that were measured or computed in float32.
_ROUNDED_ANYWAY = "If the rows need only float32, pass {}: the steps then stay in the graph"

#: The methods that predict, the most informative first.
_METHODS = ("predict_proba", "decision_function", "predict")

#: The number of rows on which an estimator is compared with its parts.
_SOME = 100


@dataclass(frozen=True)
class PreprocessedForm(InputForm):
    """Rows as scikit-learn takes them; the first steps transform them to the columns of the trained part.

    Attributes
    ----------
    division : Division or None
        The division of the user's estimator; None if the steps were read from a file.
    reason : str
        Why ONNX does not run the first steps; empty if they were read from a file.
    numeric : tuple of str
        The names of the numeric columns of a data frame in ``fit``.
    """

    division: Division | None = field(default=None, repr=False)
    reason: str = field(default="", repr=False)
    numeric: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of_division(cls, division: Division, dtype: str, reason: str, X: Any) -> PreprocessedForm:
        """Return the form of rows such as `X` for a divided estimator; `reason` says why it is divided."""
        columns = X.dtypes.items() if is_frame(X) else ()
        numeric = tuple(str(name) for name, kind in columns if kind.kind in "fiub")
        how = dict(front=division.front, division=division, reason=reason, numeric=numeric)
        return cls(False, dtype, allow_nan=division.allows_nan, **how)

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
        """Return the columns of the trained part, and targets with as many rows."""
        if not reset and is_frame(X) and self.division is not None and hasattr(estimator, "feature_names_in_"):
            X = in_order(X, estimator.feature_names_in_, self.division.whole)
        if is_frame(rows := as_pandas(X)):
            check_no_dates(rows[[name for name in rows.columns if str(name) in self.numeric]])
        with as_data_error(X):
            if y is not None:
                check_lengths(X, y)
            _check_names(estimator, X, reset=reset)
            if y is not None:
                dtype = "numeric" if numeric else None
                y = check_array(y, accept_sparse="csr", ensure_2d=False, dtype=dtype, input_name="y")
            return self._columns(X, reset=reset), y

    def pieces(self, X: ArrayLike) -> Iterator[ArrayLike]:
        """Yield a few hundred texts at a time, where each step is scikit-learn's own and transforms a row by itself."""
        libraries = {type(step).__module__.partition(".")[0] for step in inside(self.front)}
        by_row = libraries <= {"onnxtrain", "sklearn"} and not holds(self.front, FunctionTransformer)
        if not by_row or not is_of_objects(X):
            yield X
            return
        texts: Any = X
        for start in range(0, len(texts), _TEXTS):
            rows = slice(start, start + _TEXTS)
            yield texts.iloc[rows] if hasattr(texts, "iloc") else texts[rows]

    def exact(self, X: ArrayLike, rows: Features) -> Features:
        """Return the columns before rounding to float32 if histogram gradient boosting splits on them, else `rows`.

        Rows with decimals between those of X are appended, to check the side of each threshold on which they fall.
        """
        if self.division is None or not holds(self.division.tail, HISTOGRAMS):
            return rows
        found = super().exact(self.front.transform(X), rows)
        between = None if found is rows else rows_between(X)
        if between is None:
            return found
        try:
            columns = self.front.transform(between)
        except Exception:  # any class: a number between may be an unknown category, for a step of the user's own too
            return found
        return np.vstack([found, _dense(columns)])

    def _columns(self, X: Features, *, reset: bool) -> Features:
        with self._naming_gaps(X):
            columns = self.front.transform(X)
            columns = columns if hasattr(columns, "shape") else np.asarray(columns)  # a list of rows
        tail = None if reset or self.division is None else self.division.tail
        finite = "allow-nan" if self.allow_nan or (tail is not None and takes_nan(tail, columns)) else True
        if is_frame(X) and columns.shape[0] != X.shape[0]:
            raise DataError(of_names(X))
        if len(columns.shape) == 1:  # as IsotonicRegression takes
            raise DataError(
                f"The step {steps_of(self.front)[-1]!r} returns an array of shape {columns.shape}, but the trained "
                "part takes a table. Return a column: array.reshape(-1, 1)."
            )
        with as_data_error(X), self._naming_gaps(X):
            return check_array(
                columns, accept_sparse="csr", dtype=self.dtype, order="C", ensure_all_finite=finite, input_name="X"
            )

    @contextmanager
    def _naming_gaps(self, X: Features) -> Iterator[None]:
        """Name the columns of a frame to fill in an error about missing values, which the estimator refuses."""
        try:
            yield
        except ValueError as e:
            if self.division is None or not is_frame(X) or not any(words in str(e) for words in OF_GAPS):
                raise
            refused = without_imputed(X, self.division.whole)
            with as_data_error(refused, by_column=len(refused.columns) < len(X.columns)):
                raise

    def around(self, trained: Estimator) -> Estimator:
        """Return the user's estimator with a trained tail."""
        return trained if self.division is None else self.division.around(trained)

    def runs(self, estimator: Estimator | None) -> dict[str, str]:
        """Return the library that runs each step, ``"ONNX"`` or ``"scikit-learn"``, by step name."""
        trained = ["model"] if self.division is None else self.division.trained
        return {**dict.fromkeys(steps_of(self.front), "scikit-learn"), **dict.fromkeys(trained, "ONNX")}

    def warn_of_tail(self) -> None:
        """Warn that the graph will not contain the first steps."""
        warn(
            f"scikit-learn runs {self._in_front}, so get_trained_onnx() cannot return a model. "
            f"get_trained_onnx(part='tail') returns the model of the trained part. Reason: {self.reason}"
        )

    @property
    def _in_front(self) -> str:
        return ", ".join(map(repr, steps_of(self.front)))

    def check_whole(self) -> None:
        """Raise an ExportError, because the graph does not contain the first steps."""
        why = f" ({self.reason.rstrip('.')})" if self.reason else ""
        back = "" if self.division is None else " to_sklearn() returns the whole estimator."
        raise ExportError(
            f"The graph contains only the trained part. scikit-learn runs {self._in_front}, which ONNX does not run "
            f"identically{why}. get_trained_onnx(part='tail') returns the model of the trained part, which takes the "
            f"rows from front_.transform(X).{back} For a training step, fit an estimator of that model on these "
            "rows, as a dense array."
        )


def _check_names(estimator: Estimator, X: Features, *, reset: bool) -> None:
    """Check the names and the number of columns; rows of a list of strings have none."""
    by_column = is_frame(X) or len(getattr(X, "shape", ())) > 1
    validate_data(estimator, X, reset=reset, skip_check_array=True, ensure_2d=by_column)


def check_agreement(division: Division, X: ArrayLike) -> None:
    """Compare an estimator that is divided inside its last step with its parts, on some rows.

    Raises
    ------
    ConversionError
        They differ, because the estimator passes other rows to its pipelines than it gets.
    """
    rows: Any = X.iloc[:_SOME] if is_frame(X) else X[:_SOME]  # type: ignore[index]
    whole, tail = division.whole, division.tail
    methods = [m for m in _METHODS if hasattr(whole, m)]
    columns = division.front.transform(rows)
    n_rows = at_most(columns, columns.shape[0])
    rows = rows.iloc[:n_rows] if is_frame(rows) else rows[:n_rows]
    columns = _dense(columns[:n_rows])  # sparse columns of one member make all columns sparse, which SVR refuses
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if all(_agree(getattr(whole, m)(rows), getattr(tail, m)(columns), _ROUNDING) for m in methods):
            return
    raise ConversionError(why_indivisible(whole[-1] if isinstance(whole, Pipeline) else whole))


def _agree(expected: Any, found: Any, tolerance: float, *, of_range: bool = False) -> bool:
    """Whether results agree; the tolerance is as for :func:`~onnxtrain.convert.check.differences`."""
    if isinstance(expected, list):  # multilabel: one array of probabilities per label
        return all(_agree(*both, tolerance) for both in zip(expected, found, strict=True))
    expected, found = np.asarray(expected), np.asarray(found)
    if expected.dtype.kind != "f":
        return np.array_equal(expected, found)
    return bool(differences(found, expected, of_range=of_range).max(initial=0.0) <= tolerance)


def computes_integers(estimator: Estimator | None, X: ArrayLike) -> bool:
    """Whether a function of numpy may get integers, of which it makes integers or floats of few digits."""
    has_function = any(isinstance(found, FunctionTransformer) and found.func is not None for found in inside(estimator))
    return has_function and any(column.dtype.kind in "iu" for column in numeric_columns(X))


def reason_of_rounding(estimator: Estimator | None, X: ArrayLike, dtype: str) -> str:
    """Return why scikit-learn must run the first steps on rows that float32 would round; empty if ONNX may run them.

    The caller has checked that float32 rounds the rows, see :func:`~onnxtrain.estimators.frames.is_rounded`, that they
    are float16, which scikit-learn rounds its own results to, or that functions may take them as integers. A row on a
    threshold, for example of a bin, may fall on the other side. This holds for a float64 model as well, because its
    thresholds are float32. A float32 model also loses the digits of columns far from 0. Even so the estimator becomes
    one graph if its predictions keep five digits.
    """
    found = divisions(estimator)
    if not found:
        return ""
    change = max((_change(found[-1].front, rows) for rows in _pieces(as_pandas(X))), default=0.0)
    in_float32 = rounding_code(as_pandas(X))
    if change > _CHANGE_OF_PREDICTIONS and holds_halves(X):
        return f"scikit-learn computes float16 rows in float16. Fit on {in_float32}, the estimator too."
    if change > _CHANGE_OF_PREDICTIONS and computes_integers(estimator, X) and not is_rounded(X):
        return (
            "numpy computes integers as integers, where 1 / 2 is 0 and 16 * 16 is 0 in uint8, or as floats of few "
            "digits. Fit on X.astype(float), the estimator too."
        )
    rounded_anyway = _ROUNDED_ANYWAY.format(in_float32)
    if change > _ROUNDING:
        return (
            "float32 rounds their rows too much, and ONNX stores thresholds and categories in float32 even with "
            f"dtype='float64'. {rounded_anyway}, with dtype='float64' if the estimator is fitted."
        )
    if dtype == "float32" and change > _CHANGE_OF_PREDICTIONS and _predicts_otherwise(estimator, X):
        in_float64 = "Set dtype='float64' to include the steps."
        return f"float32 rounds their rows too much. {in_float64} {rounded_anyway}."
    return ""


def _predicts_otherwise(estimator: Any, X: ArrayLike) -> bool:
    """Whether rounding the rows changes the predictions on some rows visibly."""
    rows = some_rows(as_pandas(X), COMPARED_ROWS)
    method = next((m for m in _METHODS if hasattr(estimator, m)), "transform")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the rows were given in fit
        exact, rounded = (getattr(estimator, method)(x) for x in (rows, _rounded(rows)))
    return not _agree(exact, rounded, _CHANGE_OF_PREDICTIONS, of_range=method == "predict")


def _pieces(X: Any) -> Iterator[Features]:
    """Yield the rows in pieces."""
    X = X if is_frame(X) else np.asarray(X)
    size = max(_SOME, _MANY // max(math.prod(X.shape[1:]), 1))
    for start in range(0, len(X), size):
        yield X.iloc[start : start + size] if is_frame(X) else X[start : start + size]


def _change(front: Pipeline, rows: Features) -> float:
    """Return the largest change of an output column of the steps by rounding the rows, relative to its maximum.

    A constant column, whose largest value after a StandardScaler is 0, does not distinguish rows and counts for little.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the rows were given in fit
        try:
            exact, rounded = (_as_floats(_dense(front.transform(x))) for x in (rows, _rounded(rows)))
        except ValueError:  # a rounded number is not a known category
            return math.inf
    if not {exact.dtype.kind, rounded.dtype.kind} <= set("fiub") or exact.shape != rounded.shape:
        return 0.0 if np.array_equal(exact, rounded) else math.inf
    exact, rounded = exact.astype(np.float64, copy=False), rounded.astype(np.float64, copy=False)
    with np.errstate(invalid="ignore"):
        largest = np.nanmax(np.abs(exact), axis=0, initial=0.0)
        least = max(np.finfo(np.float64).eps * largest.max(initial=0.0), 1e-30)  # below are zeros, as of unused splines
        change = np.nanmax(np.abs(exact - rounded), axis=0, initial=0.0) / np.maximum(largest, least)
    constant = (exact == exact[:1]).all(axis=0) & (rounded == rounded[:1]).all(axis=0)
    return float(np.where(constant, np.minimum(change, _ROUNDING), change).max(initial=0.0))


def _as_floats(columns: np.ndarray) -> np.ndarray:
    """Return columns of floats and booleans, which a ColumnTransformer passes on as objects, as floats."""
    try:
        return columns.astype(np.float64) if columns.dtype == object else columns
    except (TypeError, ValueError):  # texts
        return columns


def _rounded(X: Features) -> Features:
    """Return rows rounded to float32: a whole matrix as the model takes it; in a frame with strings only floats."""
    if not is_frame(X):
        return np.asarray(X, np.float32).astype(np.float64)
    if not by_column(X):
        return X.astype(np.float32).astype(np.float64)  # type: ignore[attr-defined]
    floats = {name: dtype for name, dtype in X.dtypes.items() if getattr(dtype, "kind", "") == "f"}
    back = {name: np.float64 if dtype == np.float16 else dtype for name, dtype in floats.items()}
    return X.astype(dict.fromkeys(floats, np.float32)).astype(back)  # type: ignore[attr-defined]


def reason_of(X: Any, refused: Exception | None, rounding: str, division: Division) -> str:
    """Return why ONNX does not run the first steps: the error of the whole estimator, or the rounding."""
    first = next(iter(X)) if is_of_objects(X) or getattr(X, "ndim", 0) == 1 else None
    if isinstance(first, Mapping):
        step = "FeatureHasher" if holds(division.front, (FeatureHasher,)) else "DictVectorizer"
        return (
            "the rows are a list of dictionaries, which a graph cannot take; for a graph of all of it, fit "
            f"make_column_transformer((OneHotEncoder(), columns), remainder='passthrough') in place of {step}, "
            "on pandas.DataFrame(X), where columns are those of strings"
        )
    if isinstance(first, np.void):
        return (
            "the rows are records, which a graph cannot take; for a graph of all of it, fit steps that take a table "
            "on pandas.DataFrame(X)"
        )
    if isinstance(first, (str, bytes)):
        return NO_WORDS
    if refused is None:
        return for_table(rounding, X)
    if reason := reason_in_front(division.whole, division.front):
        return for_table(reason, X)
    if isinstance(refused, DataError) and any(words in str(refused) for words in OF_GAPS):
        return "X has missing values, which each step in front of an imputer, or beside it, must take"
    if isinstance(refused, DataError) and holds(division.front, (CountVectorizer, HashingVectorizer)):
        return NO_WORDS
    if isinstance(refused, DataError) and not is_frame(as_pandas(X)):
        return "the entries of an array have one type; pass a frame, which can have columns of numbers and of strings"
    return for_table(str(refused).removesuffix(DIVIDED_BY_GAPS), X)


def _dense(rows: Any) -> np.ndarray:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)


# ------------------------------------------------------------------- files


#: The name of a function without a name, the remedy for it, which pickle does not save either, and for other steps.
_LAMBDA = "<lambda>"
_FOR_LAMBDA = (
    "Define the function with def, in a module, and fit with it. Or save get_trained_onnx(part='tail'), and front_ "
    "by cloudpickle."
)
_FOR_UNSAVED = "Pickle the estimator instead, or save get_trained_onnx(part='tail') and the step separately."


def to_bytes(front: Pipeline) -> np.ndarray:
    """Return fitted steps serialized by skops, uint8 (n,).

    Raises
    ------
    ExportError
        skops is missing, or cannot write an attribute of a step.
    """
    try:
        from skops.io import dumps, get_untrusted_types, loads
    except ImportError as e:
        raise ExportError(
            "scikit-learn runs the first steps of the pipeline. Saving them needs skops: pip install skops."
        ) from e
    for name, step in front.steps:
        try:
            data = dumps(step)  # skops writes functions that cannot be found by name
            loads(data, trusted=get_untrusted_types(data=data))
        except Exception as e:  # skops raises any class if it cannot write an attribute of a step
            raise ExportError(
                f"skops cannot save the step {name!r}, {type(step).__name__}, which scikit-learn runs: "
                f"{str(e).rstrip('.')}. {_FOR_LAMBDA if _LAMBDA in str(e) else _FOR_UNSAVED}"
            ) from e
    return np.frombuffer(dumps(front), np.uint8)


#: Types that skops does not trust although they hold only numbers: bins, splines, the imputers of IterativeImputer.
_HARMLESS = (
    "numpy.dtype",
    "sklearn.compose._column_transformer._RemainderColsList",
    "scipy.interpolate._bsplines.BSpline",
    "scipy.interpolate._bsplines._BSpline",
    "sklearn.impute._iterative._ImputerTriplet",
    "onnxtrain.convert.selection.Columns",
    "onnxtrain.estimators.division.CategorySplits",
    "onnxtrain.estimators.division.FirstSteps",
    "onnxtrain.estimators.division.Fronts",
    "onnxtrain.estimators.split_ranks.SplitRanks",
)


def _refuse_compressed(data: bytes) -> None:
    """Raise a ModelError if steps would unpack to more than their own bytes: :func:`to_bytes` compresses nothing."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > len(data):
        raise ModelError(
            f"The scikit-learn steps in the file unpack from {len(data)} to {unpacked} bytes, but onnxtrain.save "
            "compresses nothing. The file was changed."
        )


def from_bytes(content: np.ndarray, trusted: tuple[str, ...] = ()) -> Pipeline:
    """Read fitted steps; only types that skops trusts, types known here as harmless, or `trusted` types are built.

    Raises
    ------
    ModelError
        skops is missing, or the steps hold objects of other types, or they are compressed.
    """
    try:
        from skops.io import get_untrusted_types, loads
    except ImportError as e:
        raise ModelError("The file contains scikit-learn steps. Reading them needs skops: pip install skops.") from e
    data = content.tobytes()
    _refuse_compressed(data)
    known = {*_HARMLESS, *trusted}
    asked = get_untrusted_types(data=data)
    unknown = sorted(set(asked) - known)
    if unknown:
        raise ModelError(
            f"The scikit-learn steps in the file contain {', '.join(unknown)}, which skops does not trust by default. "
            f"If you trust the author of the file, call load(path, trusted={unknown})."
        )
    return loads(data, trusted=sorted(asked))
