"""Warnings of data leakage: the target among the features, training rows in the validation set."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import StackingClassifier, StackingRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import TargetEncoder

from onnxtrain.convert.compared_rows import spread
from onnxtrain.convert.learned import inside, predictor_of
from onnxtrain.errors import warn
from onnxtrain.estimators.arrays import as_pandas, is_polars
from onnxtrain.estimators.protocols import is_frame, take
from onnxtrain.rows.parts import Part
from onnxtrain.training.data import TrainingData

#: The number of rows that tell most columns from y, so that few are compared whole.
_FIRST = 10

#: Fewer rows may agree by chance, and more validation rows are sampled. More training rows are not searched, since each
#: takes about a microsecond.
_ROWS, _SAMPLE, _MOST_ROWS = 20, 200, 2**16

#: The share of validation rows among the training rows that different rows of few values do not reach.
_KNOWN = 0.5


def warn_of_target_among_columns(X: Any, y: Any, model: Any = None) -> None:
    """Warn of a column that is y and that the model takes: of the same name and values, or with the same fractions.

    A column that is named after y may also hold y in another unit or as other labels.
    """
    if is_frame(y) and y.columns.is_unique:
        _warn_of_numbered_rows(y)
    if is_polars(X) and not isinstance(X, type) and isinstance(getattr(y, "name", None), str):
        X, y = as_pandas(X[[*_named_after(y.name, X)]]), as_pandas(y.to_frame())[y.name]
    if isinstance(X, type) or not (hasattr(X, "iloc") and hasattr(X, "columns") and X.columns.is_unique):
        return
    if np.ndim(y) == 0 or len(X) != len(y):  # an error will say so
        return
    X = _columns_taken(model, X)
    if is_frame(y) and y.columns.is_unique:
        if len(X.columns) > 1 and all(name in y.columns and X[name].equals(y[name]) for name in X.columns):
            warn(
                "y has all columns of X, so the model predicts them from themselves. Pass the column of the targets as "
                "y, and X without it: fit(X.drop(columns='price'), X['price']). If this is meant, as in an "
                "autoencoder, pass y.to_numpy()."
            )
            return
        for name in set(y.columns) & set(X.columns):
            warn_of_target_among_columns(X[[name]], y[name])
    if np.ndim(y) != 1:
        return
    values, called = np.asarray(y), getattr(y, "name", None) if hasattr(y, "iloc") else None
    same = _copies(X, y, called)
    if same:
        warn(
            f"The column {same[0]!r} of X has the values of y, so the model predicts y from itself. Pass X without it: "
            f"X.drop(columns={same[0]!r})."
        )
    elif known := _telling(X, values, called):
        warn(
            f"The column {known!r} of X tells y, {called!r}, in each row, like y in another unit or with other labels, "
            f"so the model predicts y from itself. Pass X without it: X.drop(columns={known!r})."
        )


def _copies(X: Any, y: Any, called: Any) -> list[Any]:
    """Return the columns with the values of y that have its name or its fractions, which do not agree by chance."""
    values = np.asarray(y)
    with np.errstate(invalid="ignore"):  # infinity has no fraction
        has_fractions = values.dtype.kind == "f" and bool(np.any(values % 1))
    candidates = [name for name in X.columns if name == called or (has_fractions and X[name].dtype == values.dtype)]
    begins_so = [name for name in candidates if np.array_equal(X[name].iloc[:_FIRST].to_numpy(), values[:_FIRST])]
    return [name for name in begins_so if X[name].equals(y) or np.array_equal(X[name].to_numpy(), values)]


def _warn_of_numbered_rows(y: Any) -> None:
    """Warn of a column of targets that enumerates the rows, such as an id, and would be trained as a target."""
    numbered = [name for name in y.columns if y[name].dtype.kind in "iu" and (y[name].diff()[1:] == 1).all()]
    if 0 < len(numbered) < len(y.columns) and len(y) >= _ROWS:
        warn(
            f"The column {numbered[0]!r} of y numbers the rows, and is trained as a target. Pass y without it: "
            f"y.drop(columns={numbered[0]!r})."
        )


def warn_of_label_among_columns(X: Any, y: Any, label: Any, model: Any) -> None:
    """Warn of a column of files that the model takes and that is named after the label and tells it in each row.

    A copy of a label with fractions is warned of by :func:`warn_of_target_among_columns`.
    """
    if not hasattr(X, "iloc") or np.ndim(y) != 1:
        return
    X, values = _columns_taken(model, X), np.asarray(y)
    if (known := _telling(X, values, label)) and known not in _copies(X, values, None):
        warn(
            f"The column {known!r} of the files tells the label, {label!r}, in each row of the sample, so the model "
            f"predicts the label from itself. Read the files without it: from_parquet(..., columns=[...]), or let "
            f"read return X.drop(columns={known!r})."
        )


def _telling(X: Any, values: np.ndarray, called: Any) -> str | None:
    """Return the first column that is named after the target and tells its values; None if there is none."""
    return next((name for name in _named_after(called, X) if _tells(X[name].to_numpy(), values)), None)


def _named_after(called: Any, X: Any) -> Iterator[str]:
    """Yield the columns whose names contain that of y."""
    if isinstance(called, str) and len(called) > 2:
        yield from (name for name in X.columns if isinstance(name, str) and called.casefold() in name.casefold())


def _tells(column: np.ndarray, values: np.ndarray) -> bool:
    """Whether values are in the order of a column, or in the opposite order; few distinct ones may be in any order."""
    try:
        (others, ranks), (found, codes) = (np.unique(of, return_inverse=True) for of in (column, values))
    except TypeError:  # missing strings cannot be sorted
        return False
    if len(values) < _ROWS or len(found) < 2 or len(others) != len(found):
        return False
    if 2 * len(found) <= len(values):
        return len(np.unique(codes * len(others) + ranks)) == len(found)
    numeric = column.dtype.kind in "fiu" and values.dtype.kind in "fiu"
    return numeric and (np.array_equal(codes, ranks) or np.array_equal(codes, len(found) - 1 - ranks))


def _columns_taken(model: Any, X: Any) -> Any:
    """Return the columns of a frame that a pipeline takes by name; X itself if its first step may take others."""
    model = getattr(model, "regressor", model)  # of a TransformedTargetRegressor
    first = model.steps[0][1] if isinstance(model, Pipeline) and model.steps else model
    if not isinstance(first, ColumnTransformer) or first.remainder != "drop":
        return X
    if any(len(named) != 3 for named in first.transformers):
        return X  # its own fit raises the error
    chosen = [columns for _, step, columns in first.transformers if not (isinstance(step, str) and step == "drop")]
    chosen = [[columns] if isinstance(columns, str) else columns for columns in chosen]
    if not all(isinstance(columns, list) and all(isinstance(name, str) for name in columns) for columns in chosen):
        return X
    return X[[name for name in X.columns if any(name in columns for columns in chosen)]]


def warn_of_encoded_targets(estimator: Any, parts: Iterable[BaseEstimator], y: np.ndarray) -> None:
    """Warn of a TargetEncoder that was fitted on these rows, so that its columns contain the target of the row itself.

    ``fit_transform``, with which a pipeline of scikit-learn trains the steps behind it, leaves out the target of a row.
    """
    if any(_encodes(part, _as_fitted(part, y)) for part in parts):
        name, model = type(estimator).__name__, estimator.estimator
        remedy = f"make_pipeline(pipeline[:-1], {name}(pipeline[-1])).fit(X, y)"
        if not isinstance(model, Pipeline):
            member = f"make_pipeline(member[:-1], {name}(member[-1]))"
            remedy = f"in {type(model).__name__}, replace the member that has it by {member}, and fit that"
        warn(
            "A TargetEncoder inside was fitted on these rows, so its columns contain the target of each row itself, "
            "and the model predicts other rows worse. Put it outside, where scikit-learn leaves out the row's own "
            f"target: {remedy}."
        )


def _encodes(part: BaseEstimator, y: np.ndarray) -> bool:
    return any(isinstance(step, TargetEncoder) and _is_fitted_on(step, y) for step in inside(part))


def _as_fitted(part: BaseEstimator, y: np.ndarray) -> np.ndarray:
    """Return the targets on which the steps of an estimator are fitted."""
    if isinstance(part, TransformedTargetRegressor):
        return np.squeeze(part.transformer_.transform(y.reshape(len(y), -1)))
    return y


def _is_fitted_on(encoder: TargetEncoder, y: np.ndarray) -> bool:
    """Whether an encoder has the mean of these targets, or their shares of the classes."""
    if not hasattr(encoder, "target_mean_"):  # the prototype in a ColumnTransformer
        return False
    means = np.atleast_1d(encoder.target_mean_)
    if encoder.target_type_ == "continuous":
        found = np.atleast_1d(np.mean(y)) if y.dtype.kind in "biuf" and y.ndim == 1 else np.array([])
    else:
        shares = np.unique(y, return_counts=True)[1] / len(y)
        found = shares[1:] if encoder.target_type_ == "binary" else shares
    return means.shape == found.shape and np.allclose(means, found, rtol=1e-9, atol=0)


def warn_of_fitted_members(estimator: Any, model: Any, X: Any, y: np.ndarray) -> None:
    """Warn of a stack one of whose members predicts these rows much better than all together.

    Such a member was fitted on these rows. scikit-learn fits the last layer of a stack on predictions for held-out
    rows, and training goes on with predictions for these.
    """
    front, stack = (model[:-1], model[-1]) if isinstance(model, Pipeline) else (None, model)
    if not isinstance(stack, (StackingClassifier, StackingRegressor)) or np.ndim(y) != 1:
        return
    if stack.cv == "prefit" or not hasattr(stack, _method(stack)):
        return
    chosen = spread(len(y), _SAMPLE)
    if len(chosen) < _ROWS:
        return
    rows, targets = take(as_pandas(X), chosen), y[chosen]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the names of columns
        rows = front.transform(rows) if front is not None and len(front) else rows
        rows = rows.toarray() if hasattr(rows, "toarray") else rows  # sparse for one member, which others refuse
        members = [each for each in stack.estimators_ if hasattr(each, _method(stack))]
        known = targets if isinstance(stack, StackingRegressor) else targets[:, None] == stack.classes_
        error, *errors = (np.mean((getattr(each, _method(stack))(rows) - known) ** 2) for each in (stack, *members))
    if errors and min(errors) < _KNOWN * error:
        best, name = type(predictor_of(members[int(np.argmin(errors))])).__name__, type(stack).__name__
        warn(
            f"{best} inside {name} was fitted on these rows and predicts them better than others, so a fit of the last "
            "layer on them trusts it too much. Let scikit-learn fit that layer on predictions for held-out rows: "
            f"{name}(..., final_estimator={type(estimator).__name__}()). Or train on rows that are not in that fit."
        )


def _method(stack: StackingClassifier | StackingRegressor) -> str:
    return "predict" if isinstance(stack, StackingRegressor) else "predict_proba"


def warn_of_known_rows(rows: Part, validation_rows: Part, data: Any, validation: Any) -> None:
    """Warn of a validation set whose rows the model is trained on, so that its loss shows no overfitting."""
    whole = validation_rows.X is rows.X
    if whole or _share_of_known(data, validation) > _KNOWN:
        found = "is X itself" if whole else "has rows that are in X, too"
        warn(
            f"The validation set {found}, so the model is trained on its rows, and its loss does not show overfitting. "
            "Pass other rows as X_val, such as those of sklearn.model_selection.train_test_split, or hold out a part "
            "of X with early_stopping=True."
        )


def _share_of_known(data: Any, validation: Any) -> float:
    """Return the share of validation rows that are exactly one of the training rows; 0 if this is unknown."""
    if not (isinstance(data, TrainingData) and isinstance(validation, TrainingData)):
        return 0.0
    arrays = [*data.features.values(), *validation.features.values()]
    if any(type(x) is not np.ndarray for x in arrays):
        return 0.0
    if len(validation.label) < _ROWS or len(data.label) > _MOST_ROWS:
        return 0.0
    sample = [*_contents(validation, spread(len(validation.label), _SAMPLE))]
    wanted = set(sample)
    found = Counter(content for content in _contents(data, np.arange(len(data.label))) if content in wanted)
    return float(np.mean([found[content] == 1 for content in sample]))


def _contents(data: TrainingData, chosen: np.ndarray) -> Iterator[bytes]:
    """Yield the bytes of some rows and of their targets."""
    columns = [*data.features.values(), data.label]
    return (b"".join(x[i].tobytes() for x in columns) for i in chosen)
