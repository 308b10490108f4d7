"""The graph against the estimator, on rows of X."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from sklearn.base import is_classifier, is_outlier_detector, is_regressor
from sklearn.feature_selection import SelectorMixin
from sklearn.svm import SVC, NuSVC

from onnxtrain.blas import one_thread_of_blas
from onnxtrain.convert.faults import last_step
from onnxtrain.errors import ConversionError

#: Runs a model: (ModelProto, {input: array}) -> outputs.
Run: TypeAlias = Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], Sequence[np.ndarray]]

#: Largest difference, relative to the largest value of an output.
TOLERANCE = 1e-4

#: Where scikit-learn's own result is the early end of an iteration.
LOOSE = 1e-2

#: float32 leaves this much between two scores that are equal.
_TIE = 1e-5


@one_thread_of_blas()
def check(
    estimator: Any,
    onx: onnx.ModelProto,
    X: Any,
    feeds: Mapping[str, np.ndarray],
    run: Run,
    *,
    tolerance: float = TOLERANCE,
) -> None:
    """Compare the outputs of a graph with the estimator's own.

    Numbers may differ by `tolerance` times the largest value of an output.

    Raises
    ------
    ConversionError
        They differ; the message holds the largest difference, its row, and the page of the class.
    """
    found = dict(zip((y.name for y in onx.graph.output), run(onx, feeds), strict=True))
    scores = None
    floats = {name: array for name, array in found.items() if array.dtype.kind == "f"}
    method = _scores_method(estimator, len(found))
    if floats and hasattr(estimator, method):
        expected = _ask(estimator, method, X)
        expected = expected[0] if method == "kneighbors" else expected
        several = isinstance(expected, list) and len(expected) == len(floats) > 1
        for i, (name, array) in enumerate(floats.items()):
            these = _dense(expected[i] if several else expected)
            scores = _compare(estimator, method, name, array, these, tolerance)
        scores = None if several else scores
    for name, array in found.items():
        if array.dtype.kind != "f" and hasattr(estimator, "predict"):
            _compare_labels(estimator, name, array, np.asarray(_ask(estimator, "predict", X)), scores)


def _ask(estimator: Any, method: str, X: Any) -> Any:
    """Return what a method gives; that X has no names of columns is no news here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(estimator, method)(X)
        except ValueError as e:  # KMeans fitted in float64 has no code for rows in float32
            raise ConversionError(f"{type(estimator).__name__}.{method} fails on the rows: {e}") from e


def _dense(found: Any) -> np.ndarray:
    """Return what a method gives as one array: a sparse matrix, or one array for each output, too."""
    if isinstance(found, list):
        found = np.stack(found)
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found, dtype=np.float64)


def _scores_method(estimator: Any, n_outputs: int) -> str:
    if (
        n_outputs == 1
        and hasattr(estimator, "transform")
        and (isinstance(estimator, SelectorMixin) or is_classifier(estimator))
    ):
        return "transform"
    last = last_step(estimator)
    if isinstance(last, (SVC, NuSVC)) and len(last.classes_) > 2:
        return "decision_function"
    if is_classifier(estimator):
        return "predict_proba" if hasattr(estimator, "predict_proba") else "decision_function"
    if is_regressor(estimator):
        return "predict"
    if is_outlier_detector(estimator):
        return "decision_function"
    if n_outputs > 1 and hasattr(estimator, "predict_proba"):
        return "predict_proba"
    known = [name for name in ("transform", "predict", "kneighbors") if hasattr(estimator, name)]
    return known[0] if known else "predict"


def _compare(
    estimator: Any, method: str, name: str, found: np.ndarray, expected: np.ndarray, tolerance: float
) -> np.ndarray:
    if method == "decision_function" and found.size == 2 * expected.size:
        found = found[:, 1]  # a classifier of two classes has a score for each in the graph
    if found.size != expected.size or len(found) != len(expected):
        raise ConversionError(
            f"The graph of {type(estimator).__name__} returns {name!r} of shape {found.shape} where {method} returns "
            f"{expected.shape}. {_remedy(estimator)}"
        )
    found = found.reshape(expected.shape)
    tolerance = LOOSE if _approximate(estimator) else tolerance
    finite = np.abs(expected[np.isfinite(expected)])
    differences = np.abs(found - expected) / max(finite.max(initial=0.0), 1e-30)
    differences[(found == expected) | (np.isnan(found) & np.isnan(expected))] = 0.0
    if not np.all(differences <= tolerance):
        row = int(
            np.nanargmax(np.where(np.isnan(differences), np.inf, differences).reshape(len(found), -1).max(axis=1))
        )
        raise ConversionError(
            f"The graph of {type(estimator).__name__} is not the estimator: {name!r} differs from {method} by "
            f"{differences.max():.1e} of the largest value in row {row}: {found[row]} instead of {expected[row]}. "
            f"{_remedy(estimator)}"
        )
    return found


def _compare_labels(
    estimator: Any, name: str, found: np.ndarray, expected: np.ndarray, scores: np.ndarray | None
) -> None:
    differs = found.reshape(expected.shape) != expected
    if expected.ndim > 1:
        differs = differs.any(axis=1)
    if scores is not None and scores.ndim == 2 and scores.shape[1] > 1:
        best = np.sort(scores, axis=1)
        differs &= best[:, -1] - best[:, -2] > _TIE
    elif scores is not None and scores.ndim == 1:
        differs &= np.abs(scores) > _TIE
    if np.any(differs):
        row = int(np.argmax(differs))
        raise ConversionError(
            f"The graph of {type(estimator).__name__} is not the estimator: {name!r} differs from predict in "
            f"{int(differs.sum())} of {len(differs)} rows, first in row {row}: {found[row]!r} instead of "
            f"{expected[row]!r}. {_remedy(estimator)}"
        )


def _remedy(estimator: Any) -> str:
    return f"Its converter does not do what the class does: {documentation(estimator)}"


def documentation(estimator: Any) -> str:
    """Return the address of the page of a scikit-learn class, its full name for another class."""
    kind = type(estimator)
    if not kind.__module__.startswith("sklearn."):
        return f"{kind.__module__}.{kind.__name__}"
    module = ".".join(part for part in kind.__module__.split(".") if not part.startswith("_"))
    return f"https://scikit-learn.org/stable/modules/generated/{module}.{kind.__name__}.html"


def _approximate(estimator: Any) -> bool:
    """Whether probabilities come from libsvm, whose coupling of pairs stops at an error of 0.005 / k."""
    last = last_step(estimator)
    return isinstance(last, (SVC, NuSVC)) and bool(last.probability)
