"""The steps of ``fit`` and ``partial_fit``: from the user's rows to the learned attributes of the estimator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sklearn.utils import check_random_state

from onnxtrain.errors import DataError
from onnxtrain.estimators.agreement import warn_of_means
from onnxtrain.estimators.checkpoint import Checkpoint
from onnxtrain.estimators.fit_data import given, hold_out
from onnxtrain.estimators.reports import (
    FitTask,
    as_listener,
    ending,
    is_part_of_more,
    reporter,
    warn_of,
)
from onnxtrain.estimators.settings import settings_of
from onnxtrain.estimators.start import start
from onnxtrain.estimators.trained import TrainedModel, set_learned
from onnxtrain.estimators.validation import unchanged_on_error
from onnxtrain.rows.parts import Part, is_parts
from onnxtrain.training.data import TrainingData
from onnxtrain.training.parts import PartedData
from onnxtrain.training.state import Listener, TrainingState
from onnxtrain.training.train import Fit, graphs_of

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator


def fit(
    estimator: OrtGradientEstimator,
    rows: Part,
    validation_rows: Part,
    *,
    callback: Listener | None,
    checkpoint: str | os.PathLike | None,
    every: int,
    resume: bool,
) -> None:
    """Train an estimator; ``estimator.fit`` calls this function."""
    settings = settings_of(estimator, rows.X)
    own = [] if callback is None else [as_listener(callback)]
    file = Checkpoint(estimator, checkpoint, every, resume)
    known = vars(estimator).get("_trained") if estimator.warm_start else None
    with unchanged_on_error(estimator):
        estimator._random_state = file.rng_at("start", check_random_state(estimator.random_state))
        model, state, data = _started(estimator, rows, known, estimator.max_iter)
        validation = _validation_data(estimator, model, validation_rows)
        estimator._random_state = file.rng_at("split", estimator._random_state)
        if validation is None and estimator.early_stopping:
            data, validation = hold_out(estimator, data)
        so_far = state.so_far()
        killed = file.restored(model, data, validation)
        if killed is not None:
            model, state, estimator._random_state = killed
        graphs = graphs_of(model.rest, data, settings, state.weights)
        task = FitTask(estimator, *rows, model, state)
    if killed is None:
        state.begin(validated=validation is not None, weighted=data.weighted)
    prepared = Fit(model.rest, data, validation, settings, state, so_far, estimator._random_state, graphs)
    listeners = *task.listeners, *own, *file.listeners(model, state)
    train(estimator, model, prepared, estimator.max_iter, *listeners)
    task.end()
    file.check_written()


def fit_one_epoch(estimator: OrtGradientEstimator, rows: Part) -> None:
    """Train an estimator for one more epoch, from its current state."""
    settings = settings_of(estimator, rows.X)
    known = vars(estimator).get("_trained")
    with unchanged_on_error(estimator):
        if known is None:
            estimator._random_state = check_random_state(estimator.random_state)
        model, state, data = _started(estimator, rows, known, n_epochs=1)
        graphs = graphs_of(model.rest, data, settings, state.weights)
    state.begin(validated=False, weighted=data.weighted, one_epoch=True)
    prepared = Fit(model.rest, data, None, settings, state, state.so_far(), estimator._random_state, graphs)
    train(estimator, model, prepared, n_epochs=1)


def _started(
    estimator: OrtGradientEstimator, rows: Part, known: TrainedModel | None, n_epochs: int
) -> tuple[TrainedModel, TrainingState, TrainingData | PartedData]:
    """Return the model, its state before the first step, and the rows that it is trained on.

    No reference to the user's rows, or to the sample of rows in parts, is kept during training.
    """
    given_rows = given(*rows).surveyed(estimator)
    with given_rows.expecting_classes(estimator):
        checked, model, state = start(estimator, *given_rows.sample, known)
    model, data = given_rows.data(estimator, model, checked, n_epochs)
    if known is None:
        warn_of_means(model, checked.exact)
    return model, state, data


def _validation_data(
    estimator: OrtGradientEstimator, model: TrainedModel, rows: Part
) -> TrainingData | PartedData | None:
    if all(values is None for values in rows):
        return None
    if rows.X is None or (rows.y is None and not is_parts(rows.X)):
        missing = "X_val" if rows.X is None else "y_val"
        raise DataError(f"X_val and y_val go together, but {missing} is missing: fit(X, y, X_val=..., y_val=...).")
    try:
        return given(*rows).further(estimator, model)
    except DataError as e:
        raise DataError(f"Invalid validation set (X_val, y_val): {e}") from e


def train(estimator: OrtGradientEstimator, model: TrainedModel, fit: Fit, n_epochs: int, *listeners: Listener) -> None:
    """Run the solver; even after an exception the estimator gets the best or last finite weights."""
    try:
        with reporter(estimator.verbose, n_epochs, fit) as (report, reported):
            outcome = reported.run(n_epochs, (*report, *listeners))
    finally:
        fit.state.ending = ending(fit, n_epochs)
        set_learned(estimator, model, fit.state)
    if outcome.interrupt is not None and (estimator.on_interrupt == "raise" or is_part_of_more()):
        raise outcome.interrupt
    warn_of(outcome, fit, estimator)
