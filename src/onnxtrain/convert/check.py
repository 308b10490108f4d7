"""Comparison of a graph with its estimator on rows of X."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from sklearn.base import BaseEstimator, is_classifier, is_outlier_detector, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_selection import RFE, SelectorMixin
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, RadiusNeighborsRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Binarizer, KBinsDiscretizer
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC, NuSVC

from onnxtrain.convert.columns import as_float32, as_float64, by_column, feeds_of, positional, rounding_code
from onnxtrain.convert.compared_rows import COMPARED_ROWS, at_most, rows_between, some_rows
from onnxtrain.convert.failures import documentation
from onnxtrain.convert.learned import (
    find_trees,
    holds,
    holds_boosted,
    inside,
    predictor_of,
    remedy_of_exporter,
    remedy_of_members,
)
from onnxtrain.convert.repairs import last_step
from onnxtrain.convert.selection import Columns
from onnxtrain.convert.thresholds import HISTOGRAMS
from onnxtrain.errors import ConversionError
from onnxtrain.runtime.session import one_thread_of_blas, open_session, run_session

#: Results of the methods of an estimator for some rows, by method; the rows themselves under "X".
Answers: TypeAlias = dict[str, Any]

#: The tolerance, relative to the largest value of an output or to the range of predictions, see :func:`differences`.
TOLERANCE = 1e-4

#: The range of predictions counts at least as this part of the largest, because float32 rounds that by 6e-8.
_PART = 0.01

#: The tolerance for an iteration that scikit-learn itself stops early.
LOOSE = 1e-2

#: The number of further rows for trees that do not compare in float32, because few rows are close to a split.
_ROWS_OF_TREES = 5000

#: The difference that float32 may leave between two equal scores.
_TIE = 1e-5

#: Classifiers that predict by the predictions or scores of their members.
_OF_MEMBERS = (ClassifierChain, MultiOutputClassifier, OneVsOneClassifier, OneVsRestClassifier)

#: Functions of a FunctionTransformer that jump.
_JUMPS = (np.ceil, np.floor, np.rint, np.sign)

#: Estimators that average over the nearest rows, of which several may be equally far.
NEAREST = (KNeighborsClassifier, KNeighborsRegressor)


def compare(
    estimator: BaseEstimator,
    onx: onnx.ModelProto,
    X: Any,
    answers: Answers | None = None,
    session: Any = None,
    weights: Mapping[str, np.ndarray] | None = None,
    outputs: Sequence[str] | None = None,
) -> None:
    """Compare a graph with the estimator on some rows of `X`.

    Parameters
    ----------
    estimator : fitted estimator
    onx : onnx.ModelProto
    X : array or DataFrame
    answers : dict, optional
        Results of the estimator's methods on these rows; further results are added.
    session : InferenceSession, optional
        A session on the graph with its initializers `weights` as inputs; it serves all estimators that differ only in
        them.
    weights : mapping of str to ndarray, optional
    outputs : sequence of str, optional
        The outputs to compare; all by default.

    Raises
    ------
    ConversionError
        See :func:`check`.
    """
    names = [y.name for y in onx.graph.output if outputs is None or y.name in outputs]
    if hasattr(X, "toarray") and holds_boosted(estimator) and not holds(estimator, Columns):
        _check_zeros(estimator, X)
    if session is None:
        session = open_session(onx.SerializeToString(), "cpu", 1, thorough=False)
    estimator = positional(estimator, X)

    def run(rows: Any) -> dict[str, np.ndarray]:
        return dict(zip(names, run_session(session, {**feeds_of(onx, rows), **(weights or {})}, names), strict=True))

    of_steps, of_neighbors = _has_trees_last(estimator) or _has_bins_behind(estimator), holds(estimator, NEAREST)
    if of_steps or of_neighbors:
        between = rows_between(X)
        if between is not None and not of_steps:  # each is compared with all fitted rows
            between = some_rows(between, COMPARED_ROWS)
        _check_between(estimator, run, between, _remedy_between(estimator))
    for n_rows, known in _samples(estimator, {} if answers is None else answers):
        chosen = some_rows(X, n_rows)
        found, exact = run(chosen), as_float64(chosen)
        known.setdefault("X", exact)
        try:
            check(estimator, found, known["X"], known)
        except ConversionError as e:
            if known["X"] is not exact:
                raise
            _check_rounded(estimator, found, chosen, known, e)


def _has_trees_last(estimator: BaseEstimator) -> bool:
    """Whether an estimator is a pipeline that ends in trees, or contains one, such as a member of a vote."""
    return any(isinstance(found, Pipeline) and _ends_in_trees(found) for found in inside(estimator))


def _has_bins_behind(estimator: BaseEstimator) -> bool:
    """Whether an estimator is a pipeline with a step behind others that jumps, or contains one."""
    pipelines = [found for found in inside(estimator) if isinstance(found, Pipeline)]
    return any(_jumps(part) for found in pipelines for _, step in found.steps[1:] for part in inside(step))


def _jumps(step: BaseEstimator) -> bool:
    """Whether a step maps ranges of values to one value, such as a bin."""
    return isinstance(step, (Binarizer, KBinsDiscretizer)) or getattr(step, "func", None) in _JUMPS


def _check_between(
    estimator: BaseEstimator, run: Callable[[Any], Mapping[str, np.ndarray]], rows: Any, remedy: str
) -> None:
    """Compare trees or bins after other steps, or neighbours, with their graph on decimals between the rows of a fit.

    Splits lie in the middle between two rows of the fit. There, the float32 and float64 results of the first steps may
    fall on different sides. This affects no row of the fit, but some rows of any other table of such decimals. Two
    fitted rows may be equally far from such a decimal.
    """
    if rows is None:
        return
    answers: Answers = {}
    try:
        _ask(estimator, "predict", as_float64(rows), answers)
    except ConversionError:  # a decimal may be an unknown category
        return
    try:
        check(estimator, run(rows), as_float64(rows), answers)
    except ConversionError:
        raise ConversionError(
            f"The graph of {type(estimator).__name__} matches the estimator on X, but not on all decimals between the "
            "rows of X.",
            remedy,
        ) from None


def _remedy_between(estimator: BaseEstimator) -> str:
    """Return why a graph that matches the estimator on the rows of a fit differs between them, with the remedy."""
    by_logarithms = any(_takes_logarithms_of_leaves(found) for found in inside(estimator))
    if by_logarithms or holds(estimator, NEAREST):
        return remedy_of(estimator)
    return _SPLITS_BETWEEN if _has_trees_last(estimator) else _BINS_BETWEEN


def _check_zeros(estimator: BaseEstimator, X: Any) -> None:
    """Raise a ConversionError if an estimator does not treat the absent entries of sparse rows as zeros."""
    rows = X.tocsr()[: at_most(X, COMPARED_ROWS)]
    sparse, dense = estimator.predict(rows), estimator.predict(rows.toarray())
    # sums over sparse rows have another order: Ridge differs by 5e-7
    off = 1e-5 if dense.dtype.kind == "f" else 0
    are_equal = np.allclose(sparse, dense, off, off * np.abs(dense).max()) if off else np.array_equal(sparse, dense)
    if not are_equal:
        raise ConversionError(
            f"{type(estimator).__name__} treats the entries that sparse rows do not store as missing values, but its "
            "graph treats them as 0. Fit and train it on dense rows: ColumnTransformer(..., sparse_threshold=0), "
            "OneHotEncoder(sparse_output=False), FunctionTransformer(lambda X: X.toarray()) after a text vectorizer, "
            "or X.toarray()."
        )


def _samples(estimator: BaseEstimator, answers: Answers) -> list[tuple[int, Answers]]:
    """Return the sizes of the compared samples, each with the estimator's answers on it."""
    splits = _has_trees_last(estimator) or holds(estimator, HISTOGRAMS) or holds_boosted(estimator)
    return [*([(_ROWS_OF_TREES, {})] if splits else []), (COMPARED_ROWS, answers)]


def _check_rounded(
    estimator: BaseEstimator, found: Mapping[str, np.ndarray], X: Any, answers: Answers, differs: ConversionError
) -> None:
    """If outputs differ on the original rows, compare them with the estimator on rows rounded to float32.

    Rounding changes a continuous output only a little, but can move a row across a split of a tree.
    """
    rounded = as_float32(X)
    if are_equal(answers["X"], rounded):
        raise differs
    own: Answers = {"X": rounded}
    try:
        check(estimator, found, rounded, own)
    except ConversionError as e:
        has_own_remedy = _has_trees_behind(estimator) or holds(estimator, NEAREST)
        if _is_moved(answers, own) and not has_own_remedy:
            raise ConversionError(e.found, f"{_ROUNDED} {_fit_again(X)}") from None
        raise
    if _ends_in_trees(estimator):
        raise ConversionError(differs.found, f"{_ON_A_SPLIT} {_fit_again(X)}") from None
    answers.clear()
    answers.update(own)


def _is_moved(exact: Answers, rounded: Answers) -> bool:
    """Whether rounding the rows changes the results of the estimator itself."""
    shared = exact.keys() & rounded.keys() - {"X"}
    pairs = [(exact[k], rounded[k]) for k in shared if getattr(exact[k], "dtype", np.dtype(int)).kind == "f"]
    return any(np.abs(_dense(a) - b).max() > TOLERANCE * np.abs(_dense(a)).max() for a, b in pairs)


def _ends_in_trees(estimator: BaseEstimator) -> bool:
    last = last_step(estimator)
    return next(find_trees(last), None) is not None or holds_boosted(last)


def are_equal(exact: Any, rounded: Any) -> bool:
    """Whether two sets of rows of the same form are equal."""
    if by_column(exact):
        return bool(exact.equals(rounded))
    pair = (exact.data, rounded.data) if hasattr(exact, "toarray") else (exact, rounded)
    return np.array_equal(*pair, equal_nan=True)


def answer(estimator: BaseEstimator, X: Any, answers: Answers, method: str) -> Any:
    """Return the result of a method on the compared rows, from `answers` if present."""
    estimator = positional(estimator, X)
    rows = answers["X"] if "X" in answers else as_float64(some_rows(X, COMPARED_ROWS))
    return _ask(estimator, method, rows, answers)


@one_thread_of_blas()
def check(
    estimator: BaseEstimator,
    found: Mapping[str, np.ndarray],
    X: Any,
    answers: Answers | None = None,
    *,
    tolerance: float = TOLERANCE,
) -> None:
    """Compare the outputs of a graph for the rows `X`, by name, with the results of the estimator.

    Floating-point values may differ by `tolerance`, as :func:`differences` measures them. Results of methods are taken
    from `answers`, or added to it.

    Raises
    ------
    ConversionError
        They differ; the message names the largest difference, its row, and the documentation of the class.
    """
    answers = {} if answers is None else answers
    scores = _check_scores(estimator, found, X, answers, tolerance)
    for name, array in found.items():
        if array.dtype.kind != "f" and hasattr(estimator, "predict"):
            labels = _ask(estimator, "predict", X, answers)
            labels = np.asarray(labels.toarray() if hasattr(labels, "toarray") else labels)
            _compare_labels(estimator, name, array, labels, scores)


def _check_scores(
    estimator: BaseEstimator, found: Mapping[str, np.ndarray], X: Any, answers: Answers, tolerance: float
) -> list[np.ndarray]:
    """Compare the floating-point outputs; return them in the shapes of the estimator's results."""
    floats = {name: array for name, array in found.items() if array.dtype.kind == "f"}
    method = _scores_method(estimator, len(found))
    if not floats or not hasattr(estimator, method):
        return []
    expected = _ask(estimator, method, X, answers)
    expected = expected[0] if method == "kneighbors" else expected
    several = isinstance(expected, list) and len(expected) == len(floats) > 1
    scores = [
        _compare(estimator, method, name, array, _dense(expected[i] if several else expected), tolerance)
        for i, (name, array) in enumerate(floats.items())
    ]
    return scores if several else scores[-1:]


def _ask(estimator: BaseEstimator, method: str, X: Any, answers: Answers) -> Any:
    """Return the result of a method, which is called once; X need not have column names, and may be sparse."""
    if method not in answers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                try:
                    answers[method] = getattr(estimator, method)(X)
                except (TypeError, ValueError):  # a member that was fitted on dense columns
                    if not hasattr(X, "toarray"):
                        raise
                    answers[method] = getattr(estimator, method)(X.toarray())
            except Exception as e:  # any class: third-party steps may ask for columns by name, KMeans for float64
                raise ConversionError(
                    f"{type(estimator).__name__}.{method} failed on the rows as an array: {e!r}"
                ) from e
    return answers[method]


def _dense(found: Any) -> np.ndarray:
    """Return the result of a method as one dense array; it may be sparse, or a list with one array per output."""
    if isinstance(found, list):
        found = np.stack(found)
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found, dtype=np.float64)


def _scores_method(estimator: BaseEstimator, n_outputs: int) -> str:
    """Return the method whose results the floating-point outputs of a graph correspond to."""
    classifies = is_classifier(estimator)
    selects = isinstance(estimator, SelectorMixin) and not isinstance(estimator, RFE)  # which predicts
    if n_outputs == 1 and hasattr(estimator, "transform") and (classifies or selects):
        return "transform"
    if is_regressor(estimator):
        return "predict"
    if classifies or is_outlier_detector(estimator):
        return "predict_proba" if classifies and hasattr(estimator, "predict_proba") else "decision_function"
    names = [*(["predict_proba"] if n_outputs > 1 else []), "transform", "predict", "kneighbors"]
    return next((name for name in names if hasattr(estimator, name)), "predict")


def _compare(
    estimator: BaseEstimator, method: str, name: str, found: np.ndarray, expected: np.ndarray, tolerance: float
) -> np.ndarray:
    if method == "decision_function" and found.size == 2 * expected.size:
        found = found[:, 1]  # the graph of a binary classifier has a score for each class
    if found.size != expected.size or len(found) != len(expected):
        raise ConversionError(
            f"The graph of {type(estimator).__name__} returns {name!r} of shape {found.shape}, but {method} returns "
            f"shape {expected.shape}.",
            remedy_of(estimator),
        )
    found = found.reshape(expected.shape)
    of_range = method == "predict"
    off = differences(found, expected, of_range=of_range)
    largest = off.max(initial=0.0)
    if not largest <= tolerance and not (largest <= LOOSE and is_approximate(estimator)):
        row = worst_row(off)
        raise ConversionError(
            f"The graph of {type(estimator).__name__} does not match the estimator: {name!r} differs from {method} by "
            f"{largest:.1e} of {MEASURED[of_range]}. Row {row} is {found[row]}, expected {expected[row]}.",
            remedy_of(estimator),
        )
    return found


#: The scale of a difference, for a message: without and with `of_range`.
MEASURED = "the largest value", "the range of the predictions"


def differences(found: np.ndarray, expected: np.ndarray, least: float = 1e-30, *, of_range: bool = False) -> np.ndarray:
    """Return the differences relative to the largest expected value; 0 where both values are NaN.

    If the largest expected value is below `least`, differences are relative to `least`. With `of_range` they are
    relative to the range of each column: predictions of a regressor may all be far from 0.
    """
    finite = np.isfinite(expected)
    largest = np.abs(expected).max(where=finite, initial=0.0)
    scale = largest
    if of_range:
        lows = expected.min(axis=0, where=finite, initial=np.inf)
        highs = expected.max(axis=0, where=finite, initial=-np.inf)
        scale = np.maximum(highs - lows, _PART * largest)
    with np.errstate(invalid="ignore"):
        off = np.abs(found - expected) / np.maximum(scale, least)
    equal = (found == expected) | (np.isnan(found) & np.isnan(expected))
    if expected.ndim == 2 and expected.shape[1] > 1:
        equal |= _vanished(found, expected)
    off[equal] = 0.0
    return off


def worst_row(off: np.ndarray) -> int:
    """Return the index of the row with the largest difference."""
    return int(np.argmax(np.where(np.isnan(off), np.inf, off).reshape(len(off), -1).max(axis=1)))


def _vanished(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the rows, (n, 1), with uniform probabilities where those of the estimator are all 0.

    OneVsRestClassifier has such rows, in which every class underflows. The rows of a graph sum to one.
    """
    uniform = np.abs(found * found.shape[1] - 1).max(axis=1, keepdims=True) < _TIE
    # scikit-learn before 1.7 divides 0 by 0 there
    return uniform & ~np.nan_to_num(expected).any(axis=1, keepdims=True)


def _compare_labels(
    estimator: BaseEstimator, name: str, found: np.ndarray, expected: np.ndarray, scores: Sequence[np.ndarray]
) -> None:
    differs = found.reshape(expected.shape) != expected
    differs &= ~_undecided(estimator, scores, differs.shape)
    if expected.ndim > 1:
        differs = differs.any(axis=1)
    if np.any(differs):
        row = int(np.argmax(differs))
        label, own = (np.asarray(labels[row]).tolist() for labels in (found, expected))
        raise ConversionError(
            f"The graph of {type(estimator).__name__} does not match the estimator: {name!r} differs from predict in "
            f"{int(differs.sum())} of {len(differs)} rows. The first is row {row} with {label!r}, expected {own!r}.",
            remedy_of_labels(estimator),
        )


def _undecided(estimator: BaseEstimator, scores: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Return where rounding decides the label; `scores` are those of all classes, or one array per label."""
    if len(shape) == 2 and [each.shape for each in scores] == [shape]:  # one column per label
        return np.abs(scores[0] - (0.5 if hasattr(estimator, "predict_proba") else 0.0)) <= _TIE
    if len(scores) != math.prod(shape[1:]):
        return np.zeros(shape, bool)
    return np.stack([_ties(each) for each in scores], axis=-1).reshape(shape)


def _ties(scores: np.ndarray) -> np.ndarray:
    """Return the rows in which rounding decides between the two best classes."""
    if scores.ndim == 2 and scores.shape[1] > 1:
        best = np.sort(scores, axis=1)
        return best[:, -1] - best[:, -2] <= _TIE
    return np.abs(scores) <= _TIE if scores.ndim == 1 else np.zeros(len(scores), bool)


#: Why trees differ on rows between the rows of the fit.
_SPLITS_BETWEEN = (
    "In float32, the steps in front move some of them across a split of a tree. Trees need no scaling: without these "
    "steps, the estimator is converted as one graph."
)

#: Why bins differ on rows between the rows of the fit.
_BINS_BETWEEN = (
    "In float32, the steps in front move some of them into the next bin. Bins need no scaling: without these steps, "
    "the estimator is converted as one graph."
)

#: The cause for trees on rows that float32 rounds, and for other estimators.
_ON_A_SPLIT = "The row lies on a split in float32."
_ROUNDED = "Rounding the rows to float32 changes the result of the estimator."


def _fit_again(X: Any) -> str:
    return f"Fit on {rounding_code(X)}, and fit the estimator on it as well."


def remedy_of(estimator: BaseEstimator) -> str:
    """Return the likely cause, with its remedy, of a difference between a graph and an estimator."""
    if holds(estimator, KNeighborsRegressor):
        return (
            "If the nearest rows of a row are equally far, rounding decides whose values it gets. Use "
            "KernelRidge(kernel='rbf') behind a StandardScaler, where all rows count, or "
            "RadiusNeighborsRegressor(radius), which averages all rows in a radius and needs one where each row has a "
            "neighbor."
        )
    if holds(estimator, KNeighborsClassifier):
        return (
            "If the nearest rows of a row are equally far, for example because they are equal, rounding decides which "
            "of them vote. Use RadiusNeighborsClassifier(radius, outlier_label='most_frequent'), where all of them do."
        )
    if any(getattr(found, "kernel", None) == "knn" for found in inside(estimator)):  # LabelSpreading, LabelPropagation
        return (
            "If the nearest rows of a row are equally far, for example because they are equal, rounding decides whose "
            "label distributions it gets. Use kernel='rbf', where all rows count."
        )
    if isinstance(predictor_of(estimator), OneVsOneClassifier) and is_approximate(estimator):
        return remedy_of_labels(estimator)
    if holds(estimator, RadiusNeighborsRegressor):
        return (
            "For a row at exactly the radius, rounding decides whether it is a neighbor. Choose a radius that is not "
            "the distance of two rows, for example 2.01 instead of 2 if the rows have one decimal."
        )
    if any(_takes_logarithms_of_leaves(found) for found in inside(estimator)):
        return (
            "A class without rows in a leaf counts as 1.7e-7 there, so that it can be trained, and temperature scaling "
            "takes its logarithm. Use CalibratedClassifierCV(method='sigmoid'), which takes the probability itself."
        )
    if _has_trees_behind(estimator):
        return (
            "In float32, a row lies on a split of trees that follow other steps. Put these steps in front, "
            f"make_pipeline(steps, {type(estimator).__name__}(...)), where scikit-learn runs them in float64."
        )
    return (
        remedy_of_exporter(estimator)
        or remedy_of_members(estimator)
        or f"Its converter does not compute what the class computes. See {documentation(estimator)}"
    )


def remedy_of_labels(estimator: BaseEstimator) -> str:
    """Return the likely cause, with its remedy, of a difference between the labels of a graph and an estimator."""
    for found in inside(estimator):
        if _is_libsvm(found):
            name = type(found).__name__
            return (
                f"{name} predicts by its decision function. The probabilities, which libsvm fits to it, may choose "
                f"another class. Use CalibratedClassifierCV({name}(), ensemble=False), which predicts by them, or "
                f"{name}() without probability=True, which keeps its labels."
            )
    return remedy_of(estimator)


def _takes_logarithms_of_leaves(estimator: BaseEstimator) -> bool:
    """Whether an estimator is calibrated by a temperature on the leaf probabilities of trees."""
    if not isinstance(estimator, CalibratedClassifierCV) or estimator.method != "temperature":
        return False
    member = estimator.calibrated_classifiers_[0].estimator
    return not hasattr(member, "decision_function") and next(find_trees(member), None) is not None


def _has_trees_behind(estimator: BaseEstimator) -> bool:
    """Whether trees that compare in float64 follow other steps inside an estimator that is not divided there."""
    pipelines = [found for found in inside(estimator) if isinstance(found, Pipeline) and found is not estimator]
    return any(holds(found, HISTOGRAMS) for found in pipelines)


def is_approximate(estimator: BaseEstimator) -> bool:
    """Whether probabilities come from libsvm, whose pairwise coupling stops at an error of 0.005 / k."""
    return any(_is_libsvm(found) for found in inside(estimator))


def chooses_by_scores(estimator: BaseEstimator) -> bool:
    """Whether an estimator predicts by libsvm, whose label need not be that of the largest probability."""
    last = predictor_of(estimator)
    if isinstance(last, _OF_MEMBERS):
        return any(chooses_by_scores(member) for member in last.estimators_)
    if isinstance(last, SelfTrainingClassifier):
        return chooses_by_scores(last.estimator_)
    return _is_libsvm(last)


def _is_libsvm(estimator: BaseEstimator) -> bool:
    """Whether an estimator is a support vector machine with probabilities."""
    return isinstance(estimator, (SVC, NuSVC)) and hasattr(estimator, "predict_proba")
