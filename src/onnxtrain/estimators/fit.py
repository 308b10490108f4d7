"""A fit, from the user's rows to the learned attributes of the estimator.

The model and its initial weights come from :mod:`.start`; here the rows are given to the solver, which runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import check_random_state

from onnxtrain.dialects import for_call, for_validation
from onnxtrain.errors import DataError, ParameterError
from onnxtrain.estimators.cautions import (
    warn_of_balanced_twice,
    warn_of_changed_file,
    warn_of_ended_schedule,
    warn_of_few_rows,
    warn_of_first_rows,
    warn_of_fraction,
    warn_of_one_epoch,
    warn_of_other_rows,
    warn_of_start,
)
from onnxtrain.estimators.checkpoint import Checkpoint
from onnxtrain.estimators.constraints import is_set
from onnxtrain.estimators.fit_data import GivenArrays, given, hold_out
from onnxtrain.estimators.independence import warn_of_loss_of_batch
from onnxtrain.estimators.labelled import check_labelled
from onnxtrain.estimators.labels import Labels
from onnxtrain.estimators.leaks import warn_of_encoded_targets, warn_of_fitted_members, warn_of_known_rows
from onnxtrain.estimators.protocols import (
    Estimator,
    is_fitted,
    is_onnx,
)
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
from onnxtrain.estimators.targets import ClassWeights
from onnxtrain.estimators.trained import TrainedModel, set_learned, set_learned_so_far
from onnxtrain.estimators.unsuitable_losses import (
    warn_of_means,
    warn_of_no_minimum,
    warn_of_probabilities,
    warn_of_range,
    warn_of_signs,
    warn_of_two_links,
)
from onnxtrain.rows.parts import Part, is_parts
from onnxtrain.training.data import TrainingData
from onnxtrain.training.entries import reading_entries
from onnxtrain.training.parts import PartedData
from onnxtrain.training.settings import Settings
from onnxtrain.training.state import EpochInfo, Listener, TrainingState
from onnxtrain.training.train import Fit, graphs_of

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator


#: The number of rows on whose labels a loss of the user's own is examined.
_FEW = 100


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
    own = None if callback is None else as_listener(callback)
    file = Checkpoint(estimator, checkpoint, every, resume)
    known = vars(estimator).get("_trained") if estimator.warm_start else None
    with _unchanged_on_error(estimator):
        estimator._random_state = file.rng_at("start", check_random_state(estimator.random_state))
        path = vars(estimator).get("_begun_with", {}).get("estimator")
        with _naming_warm_start(known):
            model, state, data, of_classes = _started(estimator, rows, known, estimator.max_iter, settings=settings)
        warn_of_changed_file(path, vars(estimator).get("_trained"), estimator.estimator, model)
        validation = _validation_data(estimator, model, validation_rows, of_classes)
        if validation is not None and not is_part_of_more("sklearn.model_selection"):
            warn_of_other_rows(data, validation, classifies=estimator._classifies)
            warn_of_known_rows(rows, validation_rows, data, validation)
        estimator._random_state = file.rng_at("split", estimator._random_state)
        if validation is None and estimator.early_stopping:
            data, validation = hold_out(estimator, data)
        elif is_set(estimator, "validation_fraction") and not is_part_of_more():
            warn_of_fraction(estimator, given=validation is not None)
        so_far = state.so_far()
        killed = file.restored(model, data, validation)
        if killed is not None:
            model, state, estimator._random_state = killed
        with model.source.remedy_in_errors():
            objective, data, validation = reading_entries(model.rest, data, validation)
            graphs = graphs_of(objective, data, settings, state.weights)
        task = FitTask(estimator, *rows, model, state)
    if killed is None:
        state.begin(validated=validation is not None, weighted=data.weighted)
    # a search or a loop of fits would repeat the warning; very many rows, or rows in files, would be read thrice more
    in_memory = isinstance(data, TrainingData) and not data.in_blocks
    small = known is None and not is_part_of_more() and in_memory
    prepared = Fit(objective, data, validation, settings, state, so_far, estimator._random_state, graphs, small)
    listeners = *task.listeners, *_of_user(own, estimator, model, state), *file.listeners(model, state)
    train(estimator, model, prepared, estimator.max_iter, *listeners)
    task.end()
    file.check_written()


def _of_user(
    callback: Listener | None, estimator: OrtGradientEstimator, model: TrainedModel, state: TrainingState
) -> list[Listener]:
    """Return the user's callback as a listener that first gives the estimator the weights so far, to predict with."""
    if callback is None:
        return []

    def after_epoch(info: EpochInfo) -> bool:
        set_learned_so_far(estimator, model, state, dict(info.weights))
        shown = {name: w.view() for name, w in info.weights.items()}
        for w in shown.values():
            w.flags.writeable = False
        epoch, before = state.epoch, estimator.get_params(deep=False)
        stops = bool(callback(replace(info, weights=shown)))
        changed = [name for name, value in estimator.get_params(deep=False).items() if value is not before[name]]
        if changed:
            raise ParameterError(
                f"callback changed {', '.join(changed)} of the estimator, which has no effect on this fit. Set "
                "learning_rate to a schedule or a function of the step. For another parameter, return True to stop, "
                "change it, and call fit again with warm_start=True."
            )
        if estimator._state is not state or state.epoch != epoch:
            raise ParameterError(
                f"callback called fit or partial_fit of the estimator that is being fitted, after epoch {info.epoch}. "
                "Train a copy of it, copy.deepcopy(model).partial_fit(X, y), or return None and call it after fit."
            )
        return stops

    return [after_epoch]


@contextmanager
def _naming_warm_start(known: TrainedModel | None) -> Iterator[None]:
    """Add to an error about other columns than those of the last fit that `fit` continues it."""
    try:
        yield
    except DataError as e:
        if known is None or not any(part in str(e) for part in ("features as input", "feature names should match")):
            raise
        raise DataError(f"{e} With warm_start=True, fit continues the last fit; for other columns, set False.") from e


@contextmanager
def _unchanged_on_error(estimator: Estimator) -> Iterator[None]:
    """Restore the estimator if an error occurs before the first step, whether it was fitted or not."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def fit_one_epoch(estimator: OrtGradientEstimator, rows: Part) -> None:
    """Train an estimator for one more epoch, from its current state."""
    settings = settings_of(estimator, rows.X)
    known = vars(estimator).get("_trained")
    if not is_part_of_more():
        warn_of_one_epoch(estimator, settings, continued=known is not None)
    with _unchanged_on_error(estimator):
        if known is None:
            estimator._random_state = check_random_state(estimator.random_state)
        model, state, data, _ = _started(estimator, rows, known, 1, "partial_fit")
        with model.source.remedy_in_errors():
            objective, data, _ = reading_entries(model.rest, data)
            graphs = graphs_of(objective, data, settings, state.weights)
        if known is None and not is_part_of_more():
            warn_of_first_rows(estimator.estimator, data.n_rows)
        warn_of_ended_schedule(settings, state, data.n_rows)
    state.begin(validated=False, weighted=data.weighted, one_epoch=True)
    prepared = Fit(objective, data, None, settings, state, state.so_far(), estimator._random_state, graphs)
    train(estimator, model, prepared, n_epochs=1)


def _started(
    estimator: OrtGradientEstimator,
    rows: Part,
    known: TrainedModel | None,
    n_epochs: int,
    method: str = "fit",
    *,
    settings: Settings | None = None,
) -> tuple[TrainedModel, TrainingState, TrainingData | PartedData, ClassWeights]:
    """Return the model, its state before the first step, the rows that it is trained on, and balanced class weights.

    No reference to the user's rows, or to the sample of rows in parts, is kept during training. If `settings` are
    given, a batch of more rows than there are is warned of.
    """
    found = given(*rows)
    if isinstance(found, GivenArrays):
        check_labelled(estimator, found.sample.X, found.sample.y, method)
    given_rows = found.surveyed(estimator)
    with given_rows.expecting_classes(estimator):
        checked, model, state = start(estimator, *given_rows.sample, known)
    of_classes = given_rows.balanced_weights(estimator, model, checked)
    model, data = given_rows.data(estimator, model, checked, n_epochs)
    if settings is not None and not is_part_of_more():  # data lacks rows of weight 0 and those without a label
        warn_of_few_rows(settings, len(checked.y) if isinstance(found, GivenArrays) else data.n_rows)
    warn_of_loss_of_batch(estimator, model, checked, known)
    if known is None:
        warn_of_means(model, checked.exact)
        warn_of_range(model, estimator._targets.encode(checked.y, model))
        if isinstance(estimator._targets, Labels) and not is_part_of_more():
            warn_of_signs(model, estimator._targets.classes)
            warn_of_balanced_twice(estimator, checked)
            warn_of_two_links(estimator, model)
        if isinstance(found, GivenArrays):
            parts = [part for part in (model.form.front, model.source.estimator) if part is not None]
            warn_of_encoded_targets(estimator, parts, np.asarray(checked.y))
            if n_epochs and not is_part_of_more():
                warn_of_fitted_members(estimator, model.source.estimator, checked.exact, np.asarray(checked.y))
        if _continues(estimator):
            warn_of_start(estimator, model, checked)
        warn_of_probabilities(model)
        if not (estimator.l1 or estimator.l2 or estimator.penalty):  # a penalty bounds the objective
            warn_of_no_minimum(model, estimator._targets.encode(checked.y[:_FEW], model))
    return model, state, data, of_classes


def _continues(estimator: OrtGradientEstimator) -> bool:
    """Whether the training begins with the weights of a model that was trained before."""
    model = estimator.estimator
    trained = is_onnx(model) or (model is not None and is_fitted(model))
    repeats = is_part_of_more("sklearn.model_selection")  # then the warning has been given, or repeats for each fold
    return trained and estimator.init != "random" and estimator.head != "new" and not repeats


def _validation_data(
    estimator: OrtGradientEstimator, model: TrainedModel, rows: Part, of_classes: ClassWeights
) -> TrainingData | PartedData | None:
    """Return the checked validation set, whose loss is weighted as that of the training; None if there is none."""
    if all(values is None for values in rows):
        return None
    if isinstance(rows.X, Real):
        raise DataError(
            f"X_val must be an array or a frame, got {rows.X!r}. To hold out a part of the rows, set "
            "early_stopping=True and validation_fraction."
        )
    if isinstance(rows.X, (str, os.PathLike)):
        path = os.fspath(rows.X)
        remedy = f"Read the file, for example with pandas.read_csv({path!r}), and pass its columns as X_val and y_val."
        if path.endswith(".parquet"):
            remedy = (
                f"Pass X_val=onnxtrain.rows.from_parquet({path!r}, label=...) without y_val; label is the name of the "
                "column of the targets."
            )
        raise DataError(f"X_val must be an array, a frame or rows in parts, got {path!r:.80}. {remedy}")
    if isinstance(rows.X, tuple) and rows.y is None:
        raise DataError(
            f"X_val is a tuple of {len(rows.X)}, but y_val is missing. Pass them one by one: fit(X, y, X_val=..., "
            "y_val=...)."
        )
    if rows.X is None or (rows.y is None and not is_parts(rows.X)):
        missing = "X_val" if rows.X is None else "y_val"
        raise DataError(f"X_val and y_val go together, but {missing} is missing: fit(X, y, X_val=..., y_val=...).")
    try:
        return given(*rows, ending="_val").further(estimator, model, of_classes)
    except DataError as e:
        found = for_validation(for_call(str(e), "fit", rows.X, rows.y))
        raise DataError(f"Invalid validation set (X_val, y_val): {found}") from e


def train(estimator: OrtGradientEstimator, model: TrainedModel, fit: Fit, n_epochs: int, *listeners: Listener) -> None:
    """Run the solver; even after an exception the estimator gets the best or last finite weights."""
    try:
        with model.source.remedy_in_errors(), reporter(estimator.verbose, n_epochs, fit) as (report, reported):
            outcome = reported.run(n_epochs, (*report, *listeners))
    finally:
        fit.state.ending = ending(fit, n_epochs)
        set_learned(estimator, model, fit.state)
    if outcome.interrupt is not None and (estimator.on_interrupt == "raise" or is_part_of_more()):
        raise outcome.interrupt
    warn_of(outcome, fit, estimator)
