"""Warnings at the start of a fit that is possible, but probably not meant.

They are about parameters without effect, rows in another form, and weights that store something else. Those about
losses are in :mod:`.unsuitable_losses`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from scipy.special import logsumexp
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.neighbors import KNeighborsRegressor, RadiusNeighborsRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from onnxtrain.convert.additions.calibration import is_decided_by_rounding
from onnxtrain.convert.compared_rows import at_most, some_rows, spread
from onnxtrain.convert.input_scales import sizes_of_inputs, standardized_inputs
from onnxtrain.convert.learned import inside
from onnxtrain.errors import warn
from onnxtrain.estimators.agreement import WORK
from onnxtrain.estimators.protocols import Features, Model, is_fitted, is_frame, is_onnx, take
from onnxtrain.estimators.reports import is_part_of_more
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.losses.link import Link
from onnxtrain.training.data import TrainingData, dense
from onnxtrain.training.model import TrainableModel
from onnxtrain.training.objective import multiplications
from onnxtrain.training.parameters import quantized_weights
from onnxtrain.training.settings import Settings
from onnxtrain.training.state import TrainingState

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator
    from onnxtrain.estimators.frames import Rows


# ------------------------------------------------------------------- parameters


def warn_of_fraction(estimator: OrtGradientEstimator, *, given: bool) -> None:
    """Warn that no rows are held out although a fraction is set; `given` says whether a validation set is."""
    reason = "X_val is the validation set" if given else "early_stopping=False, so no rows are held out"
    remedy = "Leave one of the two out." if given else "Set early_stopping=True."
    warn(f"validation_fraction={estimator.validation_fraction!r} has no effect: {reason}. {remedy}")


def warn_of_few_rows(settings: Settings, n_rows: int) -> None:
    """Warn of batches of more rows than there are, and of steps of more batches than an epoch has."""
    if settings.optimizer is None:
        return
    size, n_batches = settings.batch_size, -(-n_rows // settings.rows_of_a_batch(n_rows))
    if size is not None and size > n_rows:
        warn(
            f"batch_size={size} is larger than the number of rows, {n_rows}, so an epoch is one step with all rows. "
            f"Set batch_size={n_rows} if this is meant. For more steps, set a smaller number or 'auto'."
        )
    elif settings.accumulate > n_batches:
        warn(
            f"accumulate={settings.accumulate} is larger than the number of batches in an epoch, {n_batches}, so an "
            f"epoch is one step with all rows. Set accumulate={n_batches} if this is meant. For more steps, set a "
            "smaller number."
        )


def warn_of_one_epoch(estimator: OrtGradientEstimator, settings: Settings, *, continued: bool) -> None:
    """Warn of parameters that ``partial_fit`` ignores, and of a solver that forgets the rows of earlier calls."""
    if estimator.early_stopping:
        warn(
            "early_stopping=True has no effect in partial_fit, which holds out no rows. Compute the loss of further "
            "rows with losses(X, y)."
        )
    if continued and settings.optimizer is None:
        warn(
            "solver='lbfgs' minimizes the loss of the rows of this call alone, so partial_fit forgets the rows of "
            "earlier calls. Choose a solver that takes steps, such as 'adam'."
        )


def warn_of_ended_schedule(settings: Settings, state: TrainingState, n_rows: int) -> None:
    """Warn in the call of ``partial_fit`` from which on a schedule with a length stays at its end."""
    n_steps = settings.steps_of_an_epoch(n_rows)
    planned, done = max(settings.max_iter, 1) * n_steps, state.step - state.first_step
    if settings.optimizer is not None and settings.schedule.has_length and planned <= done < planned + n_steps:
        rate = settings.schedule(done, planned, state.plateaus)
        warn(
            f"The schedule of the learning rate has ended after max_iter={settings.max_iter} epochs, so partial_fit "
            f"goes on at {rate:.3g}. Set max_iter to the number of calls, or learning_rate to a number."
        )


def warn_of_first_rows(model: Any, n_rows: int) -> None:
    """Warn that the first call of ``partial_fit`` fits the preprocessing of a pipeline, which later calls keep."""
    if model is None or is_onnx(model) or is_fitted(model) or not hasattr(model, "get_params"):
        return
    steps = [type(step).__name__ for step in inside(model) if hasattr(step, "transform") and step is not model]
    if isinstance(model, Pipeline) and steps:
        name = type(model).__name__
        warn(
            f"{name} is not fitted, so its preprocessing ({', '.join(steps[:3])}) is fitted on the {n_rows} rows of "
            "this first call alone, and later calls keep it. If these rows are not like all others, pass a pipeline "
            "that was fitted on a sample of all rows."
        )


# ------------------------------------------------------------------------- rows


def warn_of_lost_names(model: Any, X: Features) -> None:
    """Warn of an array for a model that was fitted on a frame, because the order of the columns is not compared."""
    known = getattr(model, "feature_names_in_", None)
    if known is not None and isinstance(X, np.ndarray):
        names = ", ".join(map(str, known[:5])) + (", ..." if len(known) > 5 else "")
        warn(
            f"X has no column names, but {type(model).__name__} was fitted on columns with names: {names}. The columns "
            "of X must have this order. Pass a frame to have them compared."
        )


#: The attribute of a scaler that has the spread of the columns in its fit, and the function that computes it.
_SPREAD: dict[type, tuple[str, Callable[..., np.ndarray]]] = {
    MinMaxScaler: ("data_range_", np.ptp),
    StandardScaler: ("scale_", np.std),
}

#: The least factor between the spreads of all columns that is another unit, such as a forgotten division by 255.
_OTHER_UNIT = 50.0

#: The largest mean, and the largest deviation of the standard deviation from 1, of columns that were standardized.
_STANDARD = 0.2

#: The largest distance of the extremes of a sample of scaled columns from their range, 0 to 1.
_EDGE = 0.1

#: The least number of rows and of columns that show a scale, and the number of rows that are looked at.
_ROWS, _COLUMNS, _SAMPLE = 20, 2, 1000


def warn_of_scale(model: Any, X: Any) -> None:
    """Warn of rows in another unit, or scaled already, for a fitted pipeline that begins with scalers."""
    if not (isinstance(model, Pipeline) and is_fitted(model) and (isinstance(X, np.ndarray) or is_frame(X))):
        return
    for scaler, taken in _scalers(model, X):
        rows = np.asarray(some_rows(taken, _SAMPLE))
        rows = rows[np.isfinite(rows).all(axis=1)] if rows.dtype.kind in "fiu" and rows.ndim == 2 else rows[:0]
        if len(rows) >= _ROWS:
            _warn_of_scale_of(scaler, rows)


def _scalers(step: Any, X: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the scalers that come first in a pipeline, or after imputers, each with the columns of X that it takes."""
    if isinstance(step, Pipeline):
        first = next((inner for _, inner in step.steps if not isinstance(inner, SimpleImputer)), None)
        yield from _scalers(first, X)
    elif isinstance(step, ColumnTransformer) and is_frame(X):
        for _, inner, columns in step.transformers_:
            if isinstance(columns, list) and {*columns} <= {*X.columns}:
                yield from _scalers(inner, X[columns])
    elif type(step) in _SPREAD:
        yield step, X


def _warn_of_scale_of(scaler: Any, rows: np.ndarray) -> None:
    """Warn of rows in another unit than those on which a scaler was fitted, or scaled already."""
    attribute, spread_of = _SPREAD[type(scaler)]
    before = getattr(scaler, attribute)
    if before is None or rows.shape[1:] != np.shape(before):
        return
    with np.errstate(all="ignore"):
        spread, mean = spread_of(rows, axis=0), rows.mean(axis=0)
        varies = (spread > 0) & (before > 0)
        ratios = spread[varies] / before[varies]
    if len(ratios) < _COLUMNS or not np.isfinite(ratios).all():
        return
    name = type(scaler).__name__
    if ratios.min() > _OTHER_UNIT or ratios.max() < 1 / _OTHER_UNIT:
        warn(
            f"The columns of X vary {np.median(ratios):.3g} times as much as those on which the {name} of the pipeline "
            "was fitted, as in another unit. Scale X as in that fit, for example X / 255 for pixels from 0 to 255."
        )
    elif isinstance(scaler, StandardScaler) and _is_standard(mean[varies], spread[varies]):
        means = np.zeros(len(ratios)) if scaler.mean_ is None else scaler.mean_[varies]
        if not _is_standard(means, before[varies]) and np.all(np.abs(means) + np.abs(before[varies] - 1) > _STANDARD):
            warn(
                "The columns of X have means near 0 and standard deviations near 1, as after a StandardScaler, but the "
                f"pipeline begins with one that was fitted on other values: the mean of a column was {means[0]:.3g}, "
                f"its standard deviation {before[varies][0]:.3g}. Pass the rows as they were before scaling, or a "
                "pipeline without the scaler."
            )
    elif isinstance(scaler, MinMaxScaler) and _is_in_range(scaler, rows[:, varies], varies):
        (low, high), before = scaler.feature_range, (scaler.data_min_[varies][0], scaler.data_max_[varies][0])
        warn(
            f"The columns of X are from {low:g} to {high:g}, as after a MinMaxScaler, but the pipeline begins with one "
            f"that was fitted on other values, such as from {before[0]:.3g} to {before[1]:.3g}. Pass the rows as they "
            "were before scaling, or a pipeline without the scaler."
        )


def _is_in_range(scaler: MinMaxScaler, rows: np.ndarray, varies: np.ndarray) -> bool:
    """Whether each column has the range that a scaler makes, unlike those of its fit."""
    low, high = scaler.feature_range
    now = np.maximum(np.abs(rows.min(axis=0) - low), np.abs(rows.max(axis=0) - high))
    before = np.maximum(np.abs(scaler.data_min_[varies] - low), np.abs(scaler.data_max_[varies] - high))
    return bool(np.all(now < _EDGE) and np.all(before > _STANDARD))


def _is_standard(mean: np.ndarray, spread: np.ndarray) -> bool:
    return bool(np.all(np.abs(mean) < _STANDARD) and np.all(np.abs(spread - 1) < _STANDARD))


#: The median distance of values from the middle of others, as a multiple of their spread, that is another unit.
#: Unscaled ages, 20 to 80, are at 20 from standardized ones; later rows of a series are at 1.
_ELSEWHERE = 10.0

#: The largest number of columns that are compared.
_MOST_COLUMNS = 1000


def warn_of_other_rows(data: Any, validation: Any, *, classifies: bool) -> None:
    """Warn of a validation set in another unit than the training rows: a step outside transforms only the latter."""
    if not (isinstance(data, TrainingData) and isinstance(validation, TrainingData)):
        return
    pairs = [("X_val", "X", x, validation.features[name]) for name, x in data.features.items()]
    pairs += [] if classifies else [("y_val", "y", data.label, validation.label)]
    for name, other, before, now in pairs:
        if (distance := _distance(before, now)) > _ELSEWHERE:
            warn(
                f"The values of {name} are far from those of {other}, by {distance:.3g} times the spread of {other}, "
                "as in another unit. A Pipeline or TransformedTargetRegressor around this estimator transforms "
                f"{other}, but not {name}. Pass {name} transformed in the same way."
            )
        elif name == "y_val" and (ratio := _ratio_of_spreads(before, now)) < 1 / _OTHER_UNIT:
            warn(
                f"The values of y_val vary {ratio:.3g} times as much as those of y, as in another unit. Pass y_val "
                "and y in the same unit, both scaled or both not."
            )


def _ratio_of_spreads(before: np.ndarray, now: np.ndarray) -> float:
    """Return the standard deviation of values as a multiple of that of others; 1 for too few or constant values."""
    if min(len(before), len(now)) < _ROWS or not before.std() or not now.std():
        return 1.0
    return float(now.std() / before.std())


def _distance(before: Any, now: Any) -> float:
    """Return the median distance of values from the middle of others, by their spread, in most columns; 0 if unknown.

    The spread is the distance of the 10th and the 90th percentile.
    """
    if not all(isinstance(x, np.ndarray) and x.dtype.kind == "f" and len(x) for x in (before, now)):
        return 0.0
    if len(before) < _ROWS or before.shape[1:] != now.shape[1:]:
        return 0.0
    before, now = (x.reshape(len(x), -1) for x in (some_rows(before, _SAMPLE), some_rows(now, _SAMPLE)))
    step = -(-before.shape[1] // _MOST_COLUMNS)
    low, middle, high = np.percentile(before[:, ::step], [10, 50, 90], axis=0)
    varies = high > low
    if not varies.any():
        return 0.0
    found = np.median(np.abs(now[:, ::step] - middle), axis=0)[varies] / (high - low)[varies]
    return float(np.median(found)) if np.isfinite(found).all() else 0.0


def _warn_of_other_size(model: TrainedModel, X: Any) -> bool:
    """Warn of rows on another scale than an ONNX model expects; return whether the model shows its scale."""
    if model.source.original is None:
        return False
    original = onnx.load_model_from_string(model.source.original)
    expected, standardized = sizes_of_inputs(original), standardized_inputs(original)
    for name, wanted in expected.items():
        rows = X[name] if isinstance(X, Mapping) or (is_frame(X) and name in X.columns) else X
        if name in standardized and _warn_of_standard_rows(name, *standardized[name], rows):
            continue
        size = _largest(rows)
        if size and not 1 / _OTHER_UNIT <= size / wanted <= _OTHER_UNIT:
            remedy = "Scale X as in the training of the model, for example X / 255 for pixels from 0 to 255."
            if size < wanted:
                remedy = "For pixels from 0 to 1, pass X * 255; if X was scaled, pass the rows as they were before."
            warn(
                f"The model shifts and scales its input {name!r} as if its values were up to about {wanted:.3g}, but "
                f"those of X are up to {size:.3g}. {remedy}"
            )
    return bool(expected)


def _warn_of_standard_rows(name: str, mean: np.ndarray, deviation: np.ndarray, X: Any) -> bool:
    """Warn of rows that are standardized already, for an ONNX model that standardizes its input; return whether.

    A model that was trained on standardized rows and scales them once more subtracts medians, of at most 1, minima, of
    at most the range by which it divides, or means near 0.
    """
    rows = _sample(X)
    rows = rows[np.isfinite(rows).all(axis=1)] if rows.ndim == 2 else rows[:0]
    if len(rows) < _ROWS or rows.shape[1] < _COLUMNS or not {mean.size, deviation.size} <= {1, rows.shape[1]}:
        return False
    rows = rows[:, rows.std(axis=0) > 0]
    elsewhere = np.abs(mean) > np.maximum(np.abs(deviation), 1)
    if not rows.shape[1] or elsewhere.mean() < 0.5 or not _is_standard(rows.mean(axis=0), rows.std(axis=0)):
        return False
    warn(
        f"The columns of X have means near 0 and standard deviations near 1, as after a StandardScaler, but the model "
        f"subtracts other means from its input {name!r}, such as {max(mean, key=abs):.3g}. Pass the rows as "
        "they were before scaling."
    )
    return True


def _largest(X: Any) -> float:
    """Return the largest absolute value in a sample of the rows; 0 for sparse or non-numeric rows."""
    size = float(np.abs(_sample(X)).max(initial=0))
    return size if np.isfinite(size) else 0.0


def _sample(X: Any) -> np.ndarray:
    """Return a sample of the rows in float64; no values of sparse or non-numeric rows."""
    if not (isinstance(X, np.ndarray) or is_frame(X)) or not X.shape[0]:
        return np.empty(0)
    values = np.asarray(some_rows(X, _SAMPLE))
    return values.astype(np.float64) if values.dtype.kind in "fiu" else np.empty(0)


#: The least value of rows that may need another scale.
_LARGE = 10.0

#: The distance between the two largest scores from which the probabilities are exactly 0 and 1.
_CERTAIN = 50.0

#: The least correlation of predictions with y that shows a model of the same values.
_RELATED = 0.5

#: The largest number of rows on which a start is examined. A large model takes fewer, and is not examined: 20 rows
#: would take 3 % of a fit of the head of a convolutional network on 2000 images.
_MOST_ROWS = 200

#: The least number of rows of a label, and their least share for which one class is predicted, that show its name.
_PER_LABEL, _SURE = 5, 0.8

#: The least number of scores for each label of y that are probably those of another task, and the share of rows that a
#: model of the same task predicts right.
_SCORES_PER_LABEL, _KNOWN = 10, 0.5

#: The largest number of classes whose order is listed.
_NAMED = 10

#: The multiple of the rows that guessing predicts right, and of the loss at the end of the fit, that is still near.
_SLACK = 1.5

#: The relative difference of weights that are equal up to rounding.
_EQUAL = 1e-3

#: The probability that a leaf of a tree, or rounding, gives for 0.
_ZERO = 1e-7


def warn_of_start(estimator: OrtGradientEstimator, model: TrainedModel, rows: Rows) -> None:
    """Warn if a trained model begins with predictions in another unit, or of other classes, than y."""
    targets: Any = estimator._targets
    read, label = model.source.model, targets.encode(rows.y, model)
    shows_scale = _warn_of_other_size(model, rows.exact)
    n_rows = int(min(WORK / max(multiplications(model.objective.model), 1.0), _MOST_ROWS))
    chosen = spread(len(label), at_most(rows.exact, n_rows))
    chosen = chosen if rows.weight is None else chosen[rows.weight[chosen] > 0]
    if read.positional or len(chosen) < _ROWS:
        _warn_of_few_labels(model, targets, label)
        return
    known, X, label = label, take(rows.exact, chosen), label[chosen]
    feeds = {name: dense(x, read.features[name]) for name, x in model.form.feeds(X, read).items()}
    name = model.scores if estimator._classifies and model.scores is not None else read.output
    found = model.run_once(feeds, [name])[name].reshape(len(chosen), -1)
    if not np.isfinite(found).all():
        return
    if not estimator._classifies:
        if model.source.original is None:  # random weights of an ONNX model may be related to y by chance
            _warn_of_unit(found, label)
    elif not targets.n_labels and not (read.link is Link.PROBABILITY and found.shape[1] == 1):
        scores = np.hstack([np.zeros_like(found), found]) if found.shape[1] == 1 else found
        if read.link is not Link.PROBABILITY and model.source.original is not None and not shows_scale:
            _warn_of_certainty(scores, label, _largest(next(iter(X.values())) if isinstance(X, Mapping) else X))
        predicted = scores.argmax(axis=1)
        _warn_of_few_labels(model, targets, known, right=float(np.mean(predicted == label[:, 0])))
        of_columns = model.source.original is not None and read.classes is None
        warned = _warn_of_other_order(predicted, label[:, 0], targets.classes, of_columns=of_columns)
        if not warned and model.source.original is None:
            logits = np.log(np.maximum(scores, _ZERO)) if read.link is Link.PROBABILITY else scores
            weight = None if rows.weight is None else rows.weight[chosen]
            _warn_of_guesses(logits, label, weight, targets.classes, estimator.estimator)


def _warn_of_few_labels(model: TrainedModel, targets: Any, label: np.ndarray, right: float = 0.0) -> None:
    """Warn of labels that number the first of the many scores of an ONNX model, as classes of another task do.

    `right` is the share of rows that the model predicts right.
    """
    read = model.source.model
    named = model.source.original is None or read.classes is not None or getattr(targets, "to_come", None) is not None
    if named or targets.positional or targets.n_labels or not model.objective.classifies or right > _KNOWN:
        return
    known = np.unique(label)
    if len(known) > 1 and read.n_scores >= _SCORES_PER_LABEL * len(known) and known[-1] == len(known) - 1:
        warn(
            f"The model has {read.n_scores} scores, but y has only the labels 0 to {known[-1]}, which are taken for "
            f"the first {len(known)} of its classes. For other classes than those of its training, set head='new'."
        )


def _log_losses(scores: np.ndarray, label: np.ndarray, weight: np.ndarray | None = None) -> tuple[float, float]:
    """Return the mean log loss of scores over rows with sample weights, and that of guessing."""
    losses = logsumexp(scores, axis=1) - np.take_along_axis(scores, label, 1)[:, 0]
    return float(np.average(losses, weights=weight)), float(np.log(scores.shape[1]))


def _warn_of_guesses(
    logits: np.ndarray, label: np.ndarray, weight: np.ndarray | None, classes: np.ndarray, estimator: Any
) -> None:
    """Warn of a fitted classifier that is right no more often than its most frequent answer, and surer than guessing.

    The last step of a fitted pipeline is such a classifier for rows without the scaler before it. Rows that stand for
    many, by their sample weights, may be right where most others are wrong.
    """
    counts = np.bincount(label[:, 0], minlength=len(classes))
    n_right = int(np.sum(logits.argmax(axis=1) == label[:, 0]))
    guessed = len(label) / logits.shape[1]
    loss, guessing = _log_losses(logits, label, weight)
    if np.count_nonzero(counts) == 1 or n_right > min(np.max(counts), _SLACK * guessed):
        return
    if isinstance(estimator, Pipeline) and type(estimator.steps[0][1]) in _SPREAD:
        return  # warn_of_scale knows the rows of its fit
    if any(hasattr(step, "fit_resample") for step in inside(estimator)):
        return  # fitted on as many rows of each class, it may be wrong more often than the most frequent class
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    if loss <= max(guessing, _SLACK * getattr(last, "loss_", 0.0)):  # a network may have been trained little
        return
    names, most = classes.tolist(), int(np.argmax(counts))
    absent = [names[k] for k in np.flatnonzero(counts == 0)[:5]]
    lacks = f" y lacks {', '.join(map(repr, absent))}, which it knows." if absent else ""
    warn(
        f"The fitted model predicts {n_right} of {len(label)} rows right before training, and always {names[most]!r} "
        f"would be right in {counts[most]}.{lacks} Pass rows and labels as in its fit: for the last step of a "
        "pipeline, pass the whole pipeline. For other labels, pass it unfitted: sklearn.base.clone(model)."
    )


#: The remedies for predictions in another unit than y.
_FOR_OTHER_UNIT = (
    "If the model was trained on another scale, convert y, or X, to it, for example y / 1000 or numpy.log(y), or pass "
    "the model unfitted: sklearn.base.clone(model)."
)
_FOR_ELSEWHERE = "Scale both as in that fit, or pass the model unfitted: sklearn.base.clone(model)."
_FOR_TRANSFORMED = (
    "A TransformedTargetRegressor transforms y before this fit. Pass the model unfitted: sklearn.base.clone(model)."
)


def _warn_of_unit(found: np.ndarray, y: np.ndarray) -> None:
    """Warn of predictions that rise with y, but in another unit, or that are far from all of y."""
    spreads = [float(np.subtract(*np.percentile(values, [90, 10]))) for values in (found, y)]  # without outliers
    if found.shape != y.shape or min(spreads) <= 0:
        return
    other_unit = not 1 / _OTHER_UNIT < spreads[0] / spreads[1] < _OTHER_UNIT
    transformed = is_part_of_more("sklearn.compose")
    if other_unit and np.corrcoef(found.ravel(), y.ravel())[0, 1] > _RELATED:
        return warn(
            f"The predictions of the model are from {found.min():.3g} to {found.max():.3g} before training, but y is "
            f"from {y.min():.3g} to {y.max():.3g}, as in another unit. "
            f"{_FOR_TRANSFORMED if transformed else _FOR_OTHER_UNIT}"
        )
    if np.median(np.abs(found - y)) > _ELSEWHERE * spreads[1]:
        warn(
            f"The predictions of the fitted model are from {found.min():.3g} to {found.max():.3g} before training, but "
            f"y is from {y.min():.3g} to {y.max():.3g}. X or y may be in another unit than in the fit of the model. "
            f"{_FOR_TRANSFORMED if transformed else _FOR_ELSEWHERE}"
        )


def _warn_of_certainty(scores: np.ndarray, label: np.ndarray, size: float) -> None:
    """Warn of a classifier that is certain of the class of most rows, yet worse than guessing.

    A network that was trained on pixels from 0 to 1 computes such scores for pixels from 0 to 255.
    """
    margins = np.diff(np.sort(scores)[:, -2:])
    loss, guessing = _log_losses(scores, label)
    if size >= _LARGE and np.median(margins) > _CERTAIN and loss > guessing:
        warn(
            f"The model is certain of a class in most rows, with scores that differ by {np.median(margins):.3g}, but "
            f"its loss is {loss:.3g} before training, that of guessing {guessing:.3g}. X has values up to {size:.3g}. "
            "If the model was trained on scaled rows, scale X in the same way, for example X / 255 for pixels."
        )


def _warn_of_other_order(predicted: np.ndarray, label: np.ndarray, classes: np.ndarray, *, of_columns: bool) -> bool:
    """Warn of a model that predicts one other class for nearly all rows of a label, in a permutation of the classes.

    Return whether it warned. If `of_columns`, labels are numbered by the columns of the scores, without names.
    """
    known, n_rows = np.unique(label, return_counts=True)
    counts = np.array([np.bincount(predicted[label == k], minlength=len(classes)) for k in known])
    best = counts.argmax(axis=1)
    sure = np.all(counts.max(axis=1) >= _SURE * n_rows) and np.all(n_rows >= _PER_LABEL) and len(known) > 1
    found = bool(sure and np.array_equal(np.sort(best), known) and np.any(best != known))
    if found:
        names = classes.tolist()
        remedy = "Use the labels of its training."
        if of_columns and len(known) == len(names) <= _NAMED:
            order = [names[k] for k in np.argsort(best)]
            remedy = f"Number them by its columns: y = [{order!r}.index(label) for label in y]."
        pairs = ", ".join(f"{names[k]!r} as {names[i]!r}" for k, i in zip(known, best, strict=True) if i != k)
        warn(
            f"Before training, the model predicts rows with the label {pairs:.200}. If it was trained on these "
            f"classes, y names them in another order. {remedy}"
        )
    return found


def warn_of_balanced_twice(estimator: OrtGradientEstimator, rows: Rows) -> None:
    """Warn of sample weights that balance the classes although class_weight does so, too."""
    if getattr(estimator, "class_weight", None) != "balanced" or rows.weight is None or np.ndim(rows.y) != 1:
        return
    by_class = compute_sample_weight("balanced", rows.y)
    ratios = rows.weight / by_class**2  # the weights of the rows contain those of the classes
    if np.ptp(by_class) > _EQUAL * by_class.max() and np.ptp(ratios) <= _EQUAL * ratios.max():
        warn(
            "The sample weights are those of balanced classes, and class_weight='balanced' multiplies them by the same "
            "weights once more. Leave one of the two out."
        )


# ---------------------------------------------------------------------- weights


def warn_of_stored_targets(estimator: Model) -> None:
    """Warn if a model's only weights are the targets of its rows, which it stores as learned attributes."""
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    if isinstance(last, (KNeighborsRegressor, RadiusNeighborsRegressor)):
        warn(
            f"{type(last).__name__} averages the targets of the rows it was fitted on. These targets, one per "
            "row, are the weights that are trained. Name them in weights_to_train if this is intended."
        )


def warn_of_steep_calibration(estimator: Model) -> None:
    """Warn of isotonic calibration between scores that rounding can exchange, as those of GaussianNB near 0 and 1."""
    if is_decided_by_rounding(estimator):
        warn(
            f"The steps of the isotonic calibration in {type(estimator).__name__} are so steep that the last digits of "
            "the scores decide. After training, to_sklearn() may predict other probabilities for some rows. Use "
            "CalibratedClassifierCV(method='sigmoid')."
        )


def warn_of_changed_file(path_before: Any, before: TrainedModel | None, path: Any, model: TrainedModel) -> None:
    """Warn of a file that has other content than in the last fit, such as the trained model itself."""
    same_path = isinstance(path, (str, os.PathLike)) and path_before == path
    if same_path and before is not None and before.source.original != model.source.original:
        warn(
            f"The file {os.fspath(path)!r} has changed since the last fit, so this fit does not start from the same "
            "weights. Write the trained model to another file. To continue training, use partial_fit or "
            "warm_start=True."
        )


def warn_of_no_penalized(estimator: OrtGradientEstimator, model: TrainedModel) -> None:
    """Warn of penalties that apply to no weight, as to those of trees, whose leaves do not multiply their input."""
    chosen = {name: value for name in ("l1", "l2") if (value := getattr(estimator, name))}
    if not chosen or model.objective.penalized:
        return
    # of a kernel model the coefficients, not the support vectors
    names = sorted(model.weights, key=lambda name: ("coef" not in name, -model.weights[name].size))
    given = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
    warn(
        f"No effect on the training: {given}. Penalties apply to weights that multiply their input, and the trained "
        f"weights, {', '.join(names[:3])}{', ...' * (len(names) > 3)}, do not. To penalize one of them, name it: "
        f"penalty={{{names[0]!r}: {chosen!r}}}."
    )


def warn_of_quantized(model: TrainableModel) -> None:
    """Warn if some weights of an ONNX model are integers, so that mainly intercepts and scales can be trained."""
    names = quantized_weights(model.graph())
    if names:
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        warn(
            f"The model has quantized weights: {len(names)} ({some}). Integers have no derivative and are not trained. "
            "Train the floating-point model that was quantized, or one quantized in the QDQ format (onnxruntime's "
            "quantize_static). To train only the other weights, name them in weights_to_train."
        )
