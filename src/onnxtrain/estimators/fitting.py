"""Fits of the user's unfitted estimator by its own ``fit``, each done once.

The candidates of a grid search usually differ only in parameters of training, so they share the fitted estimator of a
fold.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import pickle
import re
import traceback
import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from onnxtrain.cache import LIGHT, Cache
from onnxtrain.convert import registered_converters
from onnxtrain.errors import DataError, OnnxTrainError, ParameterError, unquoted
from onnxtrain.estimators.protocols import Estimator, Features, is_fitted, take
from onnxtrain.estimators.remedies import has_remedy
from onnxtrain.estimators.reuse import as_source, without_values
from onnxtrain.estimators.source import Source
from onnxtrain.training.model import Reading
from onnxtrain.training.weights import choose_weights

#: Packages whose classes are determined by their names, and whose objects are determined by their state.
_KNOWN = frozenset({"builtins", "numpy", "sklearn"})

#: Modules of scikit-learn whose callable objects hold only names and scalars; a scorer holds a function.
_CALLABLE = frozenset({"sklearn.compose._column_transformer", "sklearn.gaussian_process.kernels"})

#: Rows with more elements are not hashed; hashing this many takes a tenth of a second.
_MANY = 2**25

#: The number of rows of each class in a small sample.
_OF_EACH = 50

#: Checked X, y and sample weights.
Given: TypeAlias = "tuple[Features, np.ndarray, np.ndarray | None]"

#: If only the structure is needed, more rows than the first number are replaced by a sample of the second.
_MANY_ROWS, _FEW_ROWS = 20_000, 2000

#: Fitted pipelines that are divided, and sources, such as those of the folds of a cross-validation, by fingerprint.
FITTED: Cache[Any] = Cache("fitted pipelines")
SOURCES: Cache[Source] = Cache("sources of estimators")


def fitted_on(
    estimator: Any, rows: tuple[Any, Any, Any], *, structure_only: bool, random_state: np.random.RandomState
) -> Any:
    """Return an estimator fitted on the user's rows; return a fitted estimator unchanged.

    The candidates of a grid search share the fitted estimator of a fold.
    """
    if is_fitted(estimator):
        return estimator
    changes, key = _fit_of(estimator, rows, "as it came", structure_only=structure_only, random_state=random_state)
    found = None if key is None else FITTED.find(key)
    if found is None:
        found = fit(clone(estimator).set_params(**changes), *rows)
        if key is not None:
            FITTED.keep(key, found)
    return found


def fitted_source(
    estimator: Estimator,
    X: Features,
    rows: Given,
    reading: Reading,
    weights_to_train: Any = None,
    *,
    structure_only: bool,
    random_state: np.random.RandomState,
) -> Source:
    """Fit a copy of an estimator and return its source.

    The candidates of a grid search that differ only in training share the source.

    Parameters
    ----------
    estimator : estimator
    X : array-like
        Rows on which the conversion is compared with the estimator.
    rows : tuple of X, y, sample_weight
    reading : Reading
    weights_to_train : str, sequence of str, optional
        As for :func:`~onnxtrain.training.weights.choose_weights`.
    structure_only : bool
        Only the structure is needed, because the weights will be drawn at random. An iterative estimator does one
        iteration, and if nothing else is learned, a sample of the rows is used.
    random_state : numpy.random.RandomState
        Draws the seeds of parameters ``random_state=None`` of the estimator.
    """
    changes, key = _fit_of(estimator, rows, reading, structure_only=structure_only, random_state=random_state)
    source = None if key is None else SOURCES.find(key)
    if source is not None:
        return source
    unfitted = clone(estimator).set_params(**changes)
    if structure_only and len(rows[1]) > _MANY_ROWS:
        source = _from_few_rows(unfitted, X, rows, weights_to_train, reading)
        if source is not None:
            return source
    source = as_source(fit(unfitted, *rows), X, reading)
    light = len(source.model.onnx) <= LIGHT
    return SOURCES.keep(key, source) if key is not None and light else source


def _from_few_rows(
    estimator: Estimator,
    X: Features,
    rows: Given,
    weights_to_train: Any,
    reading: Reading,
) -> Source | None:
    """Return the source fitted on a sample of each class, or None if all rows might give a different source.

    The steps of a pipeline before the last are fitted on all rows, the last step on two samples, one twice as large as
    the other. If the two models differ only in weights that will be drawn at random, they contain nothing else that was
    learned.
    """
    front, last = (estimator[:-1], estimator[-1]) if isinstance(estimator, Pipeline) else (None, estimator)
    # everything in a meta-estimator, such as a search, depends on all rows
    if not isinstance(last, BaseEstimator) or any(isinstance(v, BaseEstimator) for v in last.get_params().values()):
        return None
    if front is not None:
        front = fit(front, *rows)
    found = []
    for size in (_FEW_ROWS, 2 * _FEW_ROWS):
        X_some, y, weight = some_rows(rows, size, classes=reading.labels)
        try:
            fitted = fit(clone(last), X_some if front is None else front.transform(X_some), y, weight)
            whole = fitted if front is None else Pipeline([*front.steps, (estimator.steps[-1][0], fitted)])
            source = as_source(whole, X, reading)
        except Exception:  # the sample is too small; if all rows are too few, fitting on them raises the error
            return None
        names = choose_weights(source.model, weights_to_train, converted=True)
        found.append((without_values(source.model.graph(), names), names, source))
    (few, few_names, _), (more, names, source) = found
    return source if (few, few_names) == (more, names) else None


def _fit_of(
    estimator: Estimator, rows: Given, more: Hashable, *, structure_only: bool, random_state: np.random.RandomState
) -> tuple[dict[str, Any], Hashable | None]:
    """Return the parameters that are changed for fitting an estimator, and the fingerprint of that fit."""
    params = estimator.get_params()
    seeds = {
        name: random_state.randint(np.iinfo(np.int32).max)
        for name, value in sorted(params.items())
        if name.rpartition("__")[2] == "random_state" and value is None
    }
    changes = {**seeds, **({"max_iter": 1} if structure_only and "max_iter" in params else {})}
    return changes, fingerprint_of_fit(estimator, params, changes, rows, more)


def fingerprint_of_fit(
    estimator: Estimator,
    params: Mapping[str, Any],
    changes: Mapping[str, Any],
    rows: Given,
    more: Hashable,
) -> Hashable | None:
    """Return the fingerprint of a fit and of `more`; None if it cannot be determined or takes too long."""
    if not all(map(_is_what_it_says, (estimator, *params.values()))):
        return None
    shape = getattr(rows[0], "shape", None)
    if shape is None or math.prod(shape) > _MANY:
        return None
    content = hashlib.sha256()

    def look_through(array: pickle.PickleBuffer) -> None:  # without a copy
        content.update(array.raw())

    try:
        rest = pickle.dumps((estimator, changes, rows, get_config()), protocol=5, buffer_callback=look_through)
    except Exception:  # not all objects can be pickled: a masked array of objects raises ValueError
        return None
    content.update(rest)
    # equal bytes imply equal objects; equal objects with different bytes only cause one more fit
    return content.digest(), more, registered_converters()


def _is_what_it_says(part: object) -> bool:
    """Whether equal bytes imply equal objects; for a function they do not, since it is pickled by its name."""
    if isinstance(part, (list, tuple)):
        return all(map(_is_what_it_says, part))
    if isinstance(part, dict):
        return all(map(_is_what_it_says, part.values()))
    is_class = isinstance(part, type)
    module = (part if is_class else type(part)).__module__
    return module.partition(".")[0] in _KNOWN and (is_class or not callable(part) or module in _CALLABLE)


def some_rows(rows: Given, size: int, *, classes: bool) -> Given:
    """Return a sample of `size` rows that contains some rows of each class or label value, nonzero weights first."""
    X, y, weight = rows
    order = np.random.RandomState(0).permutation(len(y))
    if weight is not None:
        order = order[np.argsort(weight[order] == 0, kind="stable")]
    parts = [order[:size]]
    for column in np.reshape(y, (len(y), -1)).T if classes else ():
        _, which, counts = np.unique(column[order], return_inverse=True, return_counts=True)
        by_class = order[np.argsort(which, kind="stable")]
        parts += [part[:_OF_EACH] for part in np.split(by_class, np.cumsum(counts)[:-1])]
    chosen = np.unique(np.concatenate(parts))
    return take(X, chosen), y[chosen], None if weight is None else weight[chosen]


def fit(estimator: Estimator, X: Features, y: np.ndarray, sample_weight: np.ndarray | None) -> Estimator:
    """Fit an estimator in place and return it; each step that accepts sample weights gets them."""
    routed = get_config()["enable_metadata_routing"] and sample_weight is not None
    with warnings.catch_warnings(), _named_in_errors(estimator, y):
        # training continues from here, so the estimator need not have converged
        warnings.simplefilter("ignore", ConvergenceWarning)
        if routed and get_routing_for_object(estimator).consumes("fit", ["sample_weight"]):
            return estimator.fit(X, y, sample_weight=sample_weight)
        with config_context(enable_metadata_routing=False):  # every step that takes weights
            return estimator.fit(X, y, **_weight_for(estimator, sample_weight))


@contextmanager
def _named_in_errors(estimator: Estimator, y: Any) -> Iterator[None]:
    """Add to errors of an estimator's own fit where they come from; a ValueError of scikit-learn is about the rows."""
    try:
        yield
    except (OnnxTrainError, MemoryError):
        raise
    except Exception as e:
        if isinstance(e, InvalidParameterError):
            given = re.search(r"Got '(.*)' instead", str(e))
            remedy = unquoted(given[1]) if given else ""
            raise ParameterError(f"{e}{remedy or _of_position(str(e), estimator)}") from e
        about_rows = (isinstance(e, ValueError) and not isinstance(e, np.linalg.LinAlgError)) or _is_validation(e)
        if (about_rows and not isinstance(e, NotFittedError)) or has_remedy(str(e)):  # of members of cv="prefit"
            raise
        name = type(estimator).__name__
        inner = _innermost(e, estimator)
        of_index = isinstance(e, KeyError) and hasattr(y, "iloc")  # it takes a Series for an array, as y[0]
        remedy = (
            "It may look for rows of y by position, which a Series finds by its index. Pass y.to_numpy()."
            if of_index
            else f"Pass a fitted {name}: call its fit(X, y) alone, with other parameters or rows, until it succeeds."
        )
        raise DataError(
            f"{name} is not fitted, so its own fit was called with these rows first. {inner} failed with "
            f"{type(e).__name__}: {str(e).removesuffix('.')}. {remedy}"
        ) from e


def _of_position(message: str, estimator: Estimator) -> str:
    """Return the remedy for an invalid value of the first parameter of a class, which was perhaps given by position."""
    found = re.match(r"The '(\w+)' parameter of (\w+) must be", message)
    for part in (estimator, *estimator.get_params().values()):
        if found is not None and type(part).__name__ == found[2] and isinstance(part, BaseEstimator):
            first, *others = inspect.signature(type(part)).parameters
            if first == found[1] and others:
                return f" A value by position is {first}. Pass others by name, such as {found[2]}({others[0]}=...)."
    return ""


def _innermost(error: Exception, estimator: Estimator) -> str:
    """Return the name of the class of the last estimator that was fitted when an error was raised, such as a step."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "fit"]
    owners = [frame.f_locals.get("self") for frame in frames]
    return type([estimator, *(owner for owner in owners if hasattr(owner, "get_params"))][-1]).__name__


def _is_validation(error: Exception) -> bool:
    """Whether an error was raised where scikit-learn checks rows, targets and their metadata."""
    last = list(traceback.walk_tb(error.__traceback__))[-1][0]
    return last.f_globals.get("__name__", "").startswith("sklearn.utils")


def _weight_for(estimator: Estimator, sample_weight: np.ndarray | None) -> dict[str, Any]:
    """Return the sample weights as keyword arguments of ``fit``, for each step of a pipeline."""
    if sample_weight is None:
        return {}
    if isinstance(estimator, Pipeline):
        steps = {name: step for name, step in estimator.steps if has_fit_parameter(step, "sample_weight")}
        return {f"{name}__sample_weight": sample_weight for name in steps}
    return {"sample_weight": sample_weight} if has_fit_parameter(estimator, "sample_weight") else {}
