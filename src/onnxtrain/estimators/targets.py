"""Targets of classifiers: labels checked and encoded, scores decoded."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import expit, log_expit, softmax
from sklearn.svm import SVC, NuSVC
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from onnxtrain.convert.repairs import last_step
from onnxtrain.errors import ConversionError, DataError
from onnxtrain.estimators.frames import Rows
from onnxtrain.estimators.protocols import ArrayLike, Estimator, Features
from onnxtrain.estimators.source import Source
from onnxtrain.estimators.validation import as_data_error
from onnxtrain.losses.link import LOWEST_LOGIT, Link
from onnxtrain.registry import did_you_mean

#: The remedy for labels of one class.
TO_COME = "A classifier needs two classes or more: partial_fit takes those still to come as classes=."


@dataclass(frozen=True)
class LabelDecoder:
    """How the scores of a classifier, or its probabilities, become labels and probabilities.

    Attributes
    ----------
    link : Link
        Of the model.
    classes : ndarray
        The labels by column.
    n_labels : int
        The number of labels for multilabel targets, else 0.
    likely : bool
        Whether the scores are those of probabilities.
    of_votes : bool
        Whether scores are numbers of votes, and a share of one that does not decide: the first class with the most
        votes is chosen.
    """

    link: Link
    classes: np.ndarray
    n_labels: int
    likely: bool
    of_votes: bool = False

    @property
    def threshold(self) -> float:
        """The score of a tie."""
        return 0.5 if self.link is Link.PROBABILITY else 0.0

    @property
    def takes_scores(self) -> bool:
        """Whether probabilities are computed of the scores; else the output of the model holds them."""
        of_classes = not self.n_labels and self.link in (Link.SIGMOIDS, Link.NORMALIZED_SIGMOID)
        return self.link is Link.IDENTITY or of_classes

    def probabilities(self, found: np.ndarray) -> np.ndarray:
        """Return probabilities of scores (:attr:`takes_scores`) or of probabilities, one or more columns.

        Those of classes sum to one, as in the loss: a model with a Sigmoid for each class leaves that open.
        """
        if self.link is Link.IDENTITY:
            found = expit(found) if self.n_labels or found.shape[1] == 1 else softmax(found, axis=1)
        elif self.takes_scores:  # of their logarithms: the probabilities may all be 0
            vanish = found.max(axis=1, keepdims=True) < LOWEST_LOGIT
            found = softmax(np.where(vanish, 0, log_expit(found)), axis=1)
        elif found.shape[1] > 1 and not self.n_labels:
            sums = found.sum(axis=1, keepdims=True)
            found = found / np.where(sums > 0, sums, 1)
        return np.hstack([1 - found, found]) if found.shape[1] == 1 else found

    def labels(self, found: np.ndarray) -> np.ndarray:
        """Return the classes of scores, or of probabilities, or which labels rows have."""
        if self.n_labels:
            return (found > self.threshold).astype(np.int64)
        found = np.rint(found) if self.of_votes else found
        best = found[:, 0] > self.threshold if found.shape[1] == 1 else found.argmax(axis=1)
        return self.classes[best.astype(np.intp)]

    def margins(self, found: np.ndarray) -> np.ndarray:
        """Return scores whose largest decides; for multilabel targets, those whose sign does."""
        if self.n_labels:
            return found - self.threshold
        return np.hstack([np.zeros_like(found), found - self.threshold]) if found.shape[1] == 1 else found


def labels_of(estimator: Estimator, X: Features, default: int) -> int:
    """Return the number of labels of a fitted multilabel estimator, 0 for another one; `default` if unknown."""
    if not hasattr(estimator, "predict") or isinstance(X, Mapping):
        return default
    rows = X[:2]  # of one row SparsePCA forgets that it is one
    rows = rows.toarray() if hasattr(rows, "toarray") else rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that X has no names of columns is no news here
        try:
            shape = estimator.predict(rows).shape
        except (TypeError, ValueError):  # rounded to float32 they are no categories of an encoder
            return default
        except Exception as e:  # of any other class: steps of others ask for columns by name
            raise ConversionError(f"{type(estimator).__name__}.predict fails on the rows as an array: {e!r}") from e
    return int(shape[1]) if len(shape) == 2 and shape[1] > 1 else 0


def check_both_labels(estimator: Estimator) -> None:
    """Raise a DataError for a fitted estimator of several labels one of which was 0, or 1, in all rows."""
    classes = getattr(estimator, "classes_", None)
    constant = [i for i, each in enumerate(classes) if np.size(each) < 2] if isinstance(classes, list) else []
    if constant:
        raise DataError(
            f"{type(estimator).__name__} was fitted on rows that all have the same label in the columns {constant} of "
            "y: it has no score for them that could be trained. Hand it over unfitted, sklearn.base.clone(estimator): "
            "then it is fitted on the rows and one with the other label."
        )


def counts_votes(estimator: Estimator | None) -> bool:
    """Whether an estimator chooses the class with the most votes: a support vector classifier of three classes or more.

    Its decision function is the number of votes, and less than a third of a vote by the scores of the pairs.

    Raises
    ------
    ConversionError
        Its decision function has a score for each pair of classes.
    """
    last = last_step(getattr(estimator, "best_estimator_", estimator))
    if not isinstance(last, (SVC, NuSVC)) or len(last.classes_) < 3 or hasattr(last, "predict_proba"):
        return False
    if last.decision_function_shape != "ovr":
        raise ConversionError(
            f"{type(last).__name__} with decision_function_shape={last.decision_function_shape!r} has a score for each "
            "pair of classes, a loss takes one for each class: set_params(decision_function_shape='ovr'), of a fitted "
            "one too, which predicts the same."
        )
    return not last.break_ties


def with_zeros(rows: Rows, targets: np.ndarray) -> Rows:
    """Return the rows followed by rows of zeros, one for each of `targets`, their sample weight the mean.

    Frames stay as they are: there may be texts in them.
    """
    X, y, weight, *_ = rows
    if isinstance(X, Mapping) or not hasattr(X, "dtype"):
        return rows
    zeros = np.zeros((len(targets), *X.shape[1:]), X.dtype)
    X = scipy.sparse.vstack([X, zeros], format="csr") if scipy.sparse.issparse(X) else np.concatenate([X, zeros])
    if weight is not None:
        weight = np.concatenate([weight, np.full(len(targets), weight.mean())])
    return Rows(X, np.concatenate([y, targets]), weight, rows.form, X)


def classes_of(y: np.ndarray, source: Source) -> np.ndarray:
    """Return the labels by column of the scores: those the model knows, else those of y.

    Raises
    ------
    DataError
        The number of classes of y differs from the number of columns of the model.
    """
    known = getattr(source.estimator, "classes_", None)
    if known is None:
        known = source.model.classes
    if known is not None:
        return np.asarray(known)
    n_classes = max(source.model.n_scores, 2)
    found = np.unique(y)
    if len(found) == n_classes:
        return found
    if np.issubdtype(found.dtype, np.integer) and found.min() >= 0 and found.max() < n_classes:
        return np.arange(n_classes)
    some = ", ".join(map(str, found[:10]))
    remedy = "head='new' gives it a last layer for these." if len(found) > 1 else TO_COME
    positions = "" if source.model.n_axes == 2 else " A label of positions that do not count is named by ignore_index."
    raise DataError(f"The model has {n_classes} classes, y has {len(found)}: {some}. {remedy}{positions}")


@as_data_error()
def check_classes(y: np.ndarray) -> np.ndarray:
    """Return labels as (n,), or as a multilabel indicator matrix, int64 (n, K).

    Raises
    ------
    DataError
        Labels are continuous, bytes, several columns of other values than 0 and 1, or cannot be sorted.
    """
    try:
        check_classification_targets(y)
    except (TypeError, ValueError) as e:
        if isinstance(e, ValueError) and np.asarray(y).dtype != object:
            raise DataError(f"{e} Numbers are learned by OrtGradientRegressor.") from e
        types = sorted({type(label).__name__ for label in np.ravel(y)})
        if types in (["int"], ["bool"], ["float"]):
            raise DataError(f"y is an array of objects, all of type {types[0]}: give y.astype({types[0]}).") from e
        raise DataError(f"Labels must be of one type, numbers or strings, got {', '.join(types)}: {e}") from e
    if n_columns(y) > 1:
        return _check_indicator(y)
    return column_or_1d(y.toarray() if hasattr(y, "toarray") else y, warn=True)


def n_columns(y: ArrayLike) -> int:
    """Return the number of columns of targets; 1 for (n,)."""
    shape = y.shape if hasattr(y, "shape") else np.shape(y)
    return int(shape[1]) if len(shape) > 1 else 1


def _check_indicator(y: np.ndarray) -> np.ndarray:
    values = np.unique(y.data if scipy.sparse.issparse(y) else y)
    if not np.isin(values, (0, 1)).all():
        raise DataError(
            f"y has {y.shape[1]} columns and the values {', '.join(map(str, values[:5]))}: that is a target of "
            "multiclass-multioutput, which has no loss here. Several labels a row are columns of 0 and 1; "
            "several targets of classes are a classifier each."
        )
    return np.asarray(y.toarray() if hasattr(y, "toarray") else y).astype(np.int64)


def balanced(counts: Mapping[Any, int]) -> dict[Any, float]:
    """Return the weight n_samples / (n_classes * count) of each class."""
    n_rows = sum(counts.values())
    return {label: n_rows / (len(counts) * count) for label, count in counts.items()}


def encode_classes(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the index in `classes` of each label, int64 (n, 1).

    Raises
    ------
    DataError
        Labels that the model does not know.
    """
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise DataError(
            f"y has labels the model does not know: {', '.join(map(repr, unknown[:5].tolist()))}. "
            f"{did_you_mean(unknown[0], map(str, classes))} Other classes are learned by an estimator that is not "
            "fitted, or by an ONNX model with head='new'."
        )
    order = np.argsort(classes)
    return order[np.searchsorted(classes, y, sorter=order)].astype(np.int64).reshape(-1, 1)
