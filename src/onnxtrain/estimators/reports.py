"""Reports of a fit: callbacks of the user and of scikit-learn, ``verbose``, how the fit ended, warnings."""

from __future__ import annotations

import importlib.util
import inspect
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onnxtrain.convert.compared_rows import spread
from onnxtrain.errors import ParameterError, callers, warn
from onnxtrain.estimators.protocols import ArrayLike
from onnxtrain.optim.schedules import Custom
from onnxtrain.training.data import TrainingData
from onnxtrain.training.parts import PartedData
from onnxtrain.training.state import EpochInfo, Listener, TrainingState, last_fall
from onnxtrain.training.train import Fit, Outcome

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator
    from onnxtrain.estimators.trained import TrainedModel

#: Modules between the user's call and ``fit``: method decorators, and a pipeline that ends in the estimator.
_BETWEEN = ("sklearn.base", "sklearn.callback", "sklearn.pipeline")

#: The learning rate below which a weight of at most 1 may not move, for larger ones in proportion; and the change of a
#: float32 weight, relative to its size.
_SMALL_RATE, _RESOLUTION = 1e-6, 1e-7

#: The last rate relative to the first, below which a user's function is taken to have ended a fit before max_iter. One
#: that falls so far at the end of max_iter epochs is meant to.
_VANISHED = 1e-5

#: The number of epochs in which a loss should converge from any initial weights; the default, as in scikit-learn.
_MANY_EPOCHS = 200

#: The least multiple of the variance of y that is a worse loss than that of a constant, beyond the noise of batches.
_WORSE = 1.5

#: The number of targets of which the mean and the variance are computed: copies of all may be larger than memory.
_MOST_TARGETS = 10**6

#: The size of targets, or its inverse, from which a fit of 200 epochs at the default rate ends far from them.
_LARGE = 10.0


def _check_callback(callback: object) -> None:
    """Raise a ParameterError if a callback does not accept the summary of an epoch."""
    of_class = isinstance(callback, type)
    if isinstance(callback, type) and any("__call__" in vars(kind) for kind in callback.__mro__):
        raise ParameterError(
            f"callback must be an instance, got the class {callback.__name__}. Pass {callback.__name__}()."
        )
    if of_class or not callable(callback):
        found = f"the class {getattr(callback, '__name__', '')}" if of_class else f"{callback!r:.80}"
        one = " For example: callback=lambda info: print(info.epoch, info.loss)."
        if isinstance(callback, (list, tuple)):
            for each in callback:
                _check_callback(each)
            one = " For several: callback=lambda info: any([f(info) for f in callbacks])."
        if "earlystopping" in type(callback).__name__.casefold():
            one = " Set early_stopping=True and n_iter_no_change, parameters of the estimator."
        if getattr(callback, "__name__", type(callback).__name__) in ("LossCurveDisplay", "WeightsDisplay"):
            one = " onnxtrain.LiveLossCurve() draws the loss during a fit."
        raise ParameterError(
            f"callback must be a function, called as callback(info) after each epoch, got {found}.{one}"
        )
    if inspect.iscoroutinefunction(callback) or inspect.isgeneratorfunction(callback):
        kind = "an async function" if inspect.iscoroutinefunction(callback) else "a generator function, with yield"
        raise ParameterError(
            f"callback is {kind}, whose body a call does not run. Pass an ordinary function of info, without async and "
            "yield; to stop, return True."
        )
    library = str(getattr(callback, "__module__", "")).split(".")[0]
    if library in ("lightgbm", "xgboost"):
        raise ParameterError(
            f"callback is one of {library}, {callback!r:.80}, which reads its own training. Set early_stopping=True "
            "and n_iter_no_change, parameters of the estimator; verbose=2 prints the loss of each epoch."
        )
    try:
        inspect.signature(callback).bind(None)
    except TypeError as e:
        raise ParameterError(
            f"callback is called as callback(info) after each epoch, but it takes other arguments: {e}. "
            "For example: callback=lambda info: print(info.epoch, info.loss)."
        ) from e
    except ValueError:  # a C function has no signature
        return


def as_listener(callback: Listener) -> Listener:
    """Return a callback with checks of its signature and its results: a value other than True must not end the fit.

    Raises
    ------
    ParameterError
        The callback does not accept the summary of an epoch.
    """
    _check_callback(callback)

    first = True

    def listener(info: EpochInfo) -> bool:
        nonlocal first
        answer = _answer(callback, info)
        if answer is not None and not isinstance(answer, (bool, np.bool_)):
            raise ParameterError(
                f"callback returned {answer!r:.80} after epoch {info.epoch}. Return True to stop, None or False to "
                "continue."
            )
        if answer and first and getattr(callback, "__name__", "") == "<lambda>":
            warn(
                f"callback returned True after epoch {info.epoch}, its first, which stops the fit. If not meant, as "
                "of a lambda that returns the result of tqdm's update, pass a function that returns None."
            )
        first = False
        return bool(answer)

    return listener


def _answer(callback: Listener, info: EpochInfo) -> Any:
    """Return the result of a callback; its errors are the user's, but those about `info` and stopping have a remedy."""
    try:
        return callback(info)
    except StopIteration as e:
        raise ParameterError(
            f"callback raised StopIteration after epoch {info.epoch}. To stop, return True. If it is from next(...) of "
            "an iterator that has ended, use next(iterator, None)."
        ) from e
    except FrozenInstanceError as e:
        raise ParameterError(
            f"callback assigned to its argument: {e}, which has no effect on training. Set learning_rate to a schedule "
            "or to a function of the step. To stop, return True."
        ) from e
    except ValueError as e:
        if "read-only" in str(e):
            raise ParameterError(
                "callback changed an array of info.weights, which training continues from. Change a copy: "
                "info.weights[name].copy()."
            ) from e
        raise
    except TypeError as e:
        if "NoneType" in str(e) and info.validation_loss is None:
            e.add_note("info.validation_loss is None, because there is no validation set: fit(X, y, X_val=, y_val=).")
        raise


class FitTask:
    """A fit as a task of scikit-learn's callbacks, with a subtask for each epoch.

    Parameters
    ----------
    estimator : estimator
    X, y, sample_weight : array-like
        The data passed to the callbacks.
    model : TrainedModel
    state : TrainingState
        The state that holds the current weights.
    """

    def __init__(
        self,
        estimator: OrtGradientEstimator,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        model: TrainedModel,
        state: TrainingState,
    ):
        self._model, self._state = model, state
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self._given = dict(estimator=estimator, X=X, y=y, metadata=metadata)
        self._estimator = estimator
        self._context: Any = None
        if hasattr(estimator, "_init_callback_context"):
            self._context = estimator._init_callback_context(max_subtasks=estimator.max_iter)
            self._context.call_on_fit_task_begin(**self._given)

    @property
    def listeners(self) -> list[Listener]:
        """The listener that calls the callbacks, if the estimator has any."""
        told = self._context is not None and vars(self._estimator).get("_skl_callbacks")
        return [self.after_epoch] if told else []

    def after_epoch(self, info: EpochInfo) -> bool:
        """Call the callbacks; return whether one of them stops the fit."""
        task = self._context.subcontext(task_name="epoch")
        task.call_on_fit_task_begin(**self._given)
        return task.call_on_fit_task_end(**self._given, reconstruction_attributes=self._so_far)

    def _so_far(self) -> dict[str, Any]:
        """Return the attributes with which a copy of the estimator predicts as if training had ended here."""
        return {"_trained": replace(self._model, weights=dict(self._state.result()))}

    def end(self) -> None:
        """Tell the callbacks that the last epoch is done."""
        if self._context is not None:
            self._context.call_on_fit_task_end(**self._given, reconstruction_attributes=self._so_far)


def is_part_of_more(*modules: str) -> bool:
    """Whether scikit-learn or joblib called ``fit``: a search, cross-validation, ensemble or one of their workers.

    If `modules` are given, only callers in these modules count.
    """
    return any(
        caller.startswith(modules or ("sklearn.", "joblib.")) and not caller.startswith(_BETWEEN)
        for caller in callers(sys._getframe(1))
    )


@contextmanager
def reporter(verbose: int, n_epochs: int, fit: Fit) -> Iterator[tuple[tuple[Listener, ...], Fit]]:
    """Yield the listeners for `verbose`, a progress bar, printed lines or none, and the fit to run.

    The bar counts epochs or, for rows in parts, rows; then the returned fit updates it after each batch. At the end,
    the bar or the printed line says how the fit ended.
    """
    if not verbose:
        yield (), fit
    elif verbose == 1:
        data = fit.data if isinstance(fit.data, PartedData) and fit.settings.optimizer is not None else None
        unit, of_epoch = ("epoch", 1) if data is None else ("row", data.n_rows)
        with _progress_bar()(total=n_epochs * of_epoch, unit=unit, unit_scale=data is not None) as bar:

            def advance(info: EpochInfo) -> bool:
                bar.set_postfix_str(_losses(info), refresh=False)
                bar.update(1 if data is None else 0)
                return False

            yield (advance,), fit if data is None else replace(fit, data=replace(data, watch=bar.update))
            bar.set_postfix_str(
                f"loss {fit.state.loss_curve[-1]:.6g}, {ending(fit, n_epochs)}"
                if fit.state.epoch > fit.state.first_epoch
                else ""
            )
    else:
        yield (_print_line,), fit
        if fit.state.epoch > fit.state.first_epoch:
            print(ending(fit, n_epochs))


def _progress_bar() -> Any:
    """Return tqdm's progress bar for notebooks if its widgets are installed, else its text bar."""
    if importlib.util.find_spec("ipywidgets") is None:
        from tqdm import tqdm  # tqdm.auto warns in a notebook without widgets
    else:
        from tqdm.auto import tqdm
    return tqdm


def ending(fit: Fit, n_epochs: int) -> str:
    """Return how a fit of at most `n_epochs` ended, and why."""
    state, settings = fit.state, fit.settings
    done = state.epoch - state.first_epoch
    best = f": best epoch {state.best_epoch - state.first_epoch}" if state.validated else ""
    if not state.stopped:
        return f"{done} of {n_epochs} epochs{best}" if done == n_epochs else f"{state.epoch} epochs{best}"
    if state.bad_epochs > settings.n_iter_no_change:
        why = no_progress(state, settings.tol)
    else:
        why = "a callback asked for it" if settings.optimizer is not None else "the solver has converged"
    return f"stopped after {done} of {n_epochs}{best}; {why}"


def no_progress(state: TrainingState, tol: float) -> str:
    """Return the reason why a fit stopped whose loss did not fall."""
    loss = "validation loss" if state.validated else "loss"
    return f"the {loss} did not fall by tol={tol:g} for {state.bad_epochs} epochs"


def _print_line(info: EpochInfo) -> bool:
    line = f"epoch {info.epoch}, {_losses(info)}, learning rate {info.learning_rate:.3g}, {info.time:.1f} s"
    if info.pace is not None:
        line += f", {info.pace.rows_per_second:,.0f} rows/s, waiting for rows {info.pace.waited:.0%} of the time"
    print(line)
    return False


def _losses(info: EpochInfo) -> str:
    validation = "" if info.validation_loss is None else f", validation loss {info.validation_loss:.6g}"
    return f"loss {info.loss:.6g}{validation}"


def warn_of(outcome: Outcome, fit: Fit, estimator: OrtGradientEstimator) -> None:
    """Warn if a fit was interrupted, if its loss rose or, like scikit-learn, if its loss was still falling."""
    state, rise = fit.state, outcome.rise
    if rise is not None and fit.settings.optimizer is None and not state.validated:
        message = (
            f"The loss rose from {rise.first:.3g} to {rise.last:.3g}. L-BFGS needs a loss without jumps, such as those "
            f"of a vote of estimators. {rise} Set solver='adam', or train the estimators of the vote one by one."
        )
        warn(message, ConvergenceWarning)
    elif rise is not None and not rise.is_small:
        message = (
            f"The loss rose from {rise.first:.3g} to {rise.last:.3g}; the learning rate of the last step was "
            f"{state.learning_rate:.3g}. {rise} Lower learning_rate, scale the data, or set clip_norm."
        )
        warn(message, ConvergenceWarning)
    elif _stays(fit):
        of_default = state.learning_rate < _SMALL_RATE
        scale = "; the default is 0.001" if of_default else f" in proportion to the weights, up to {_largest(fit):.3g}"
        warn(
            f"The weights changed by less than {_RESOLUTION:g} of their size in {state.epoch - state.first_epoch} "
            f"epochs, the resolution of float32, at learning rate {state.learning_rate:.3g}. Raise "
            f"learning_rate{scale}."
        )
    elif rise is not None:
        where = "on the validation set, " if state.validated else ""
        rate = "" if fit.settings.optimizer is None else ", lower learning_rate, or set solver='lbfgs'"
        message = (
            f"The loss did not fall: {where}it was {rise.first:.6g} before training, and is "
            f"{rise.last - rise.first:.2g} higher after it. The initial weights may be at its minimum. Choose another "
            f"loss or a penalty{rate}."
        )
        warn(message, ConvergenceWarning)
    elif estimator.loss == "epsilon_insensitive" and _several(state) and not any(state.loss_curve[state.first_epoch :]):
        epsilon = (estimator.loss_params or {}).get("epsilon", 0.1)
        warn(
            "The loss was 0 in every epoch, so there was nothing to train: all predictions are within "
            f"epsilon={epsilon:g} of y. Set a smaller one in the unit of y: loss_params={{'epsilon': ...}}."
        )
    if outcome.interrupt is not None:
        kept = "" if rise is not None else f"; the estimator has the weights {_kept(state)}"
        warn(f"Training was interrupted in epoch {state.epoch + 1}{kept}.")
    elif rise is None:
        _warn_of_end(fit, estimator)


def _warn_of_end(fit: Fit, estimator: OrtGradientEstimator) -> None:
    """Warn of a loss that was still falling at max_iter, and of a fit that ended above the loss of the mean of y."""
    compared = _compares_with_mean(fit, estimator)
    if fall := _missed_fall(fit, estimator):
        other = "" if fit.settings.optimizer is None else " or learning_rate"
        remedy = f"Raise max_iter{other}, or scale the data."
        above = _above_variance(fit) if compared else ""
        if above and not _is_standard(fit):
            remedy = f"{above}."
        message = (
            f"max_iter={estimator.max_iter} was reached while the loss was still falling, by {fall:.3g} in the last "
            f"{estimator.n_iter_no_change} epochs. {remedy}"
        )
        warn(message, ConvergenceWarning)
    elif fit.state.stopped and (first := _rate_before_vanishing(fit)):
        message = (
            f"The learning rate, a function of the step, fell from {first:.3g} to {fit.state.learning_rate:.3g} in "
            f"{fit.state.epoch - fit.state.first_epoch} epochs, and training stopped. If the function takes the epoch, "
            "divide the step by the steps of an epoch, ceil(n_rows / batch_size). Else bound it from below, for "
            "example max(rate, 1e-6)."
        )
        warn(message, ConvergenceWarning)
    elif compared and _has_ended(fit, estimator) and (message := _above_variance(fit)):
        warn(f"{message}.", ConvergenceWarning)


def _rate_before_vanishing(fit: Fit) -> float:
    """Return the first rate of a user's function whose last rate is vanishingly small beside it; 0 for others."""
    schedule = fit.settings.schedule
    first = schedule(0, 1) if isinstance(schedule, Custom) else 0.0
    return first if fit.state.learning_rate < _VANISHED * first else 0.0


def _compares_with_mean(fit: Fit, estimator: OrtGradientEstimator) -> bool:
    """Whether the last loss of a fit is the squared error of its weights, which the mean of y has, too.

    Of a fit with penalties the loss is another, and a validation set may have better weights than the last ones.
    """
    if estimator.l1 or estimator.l2 or estimator.penalty or fit.state.validated or fit.settings.optimizer is None:
        return False
    return estimator.loss == "squared_error" and not is_part_of_more()


def _has_ended(fit: Fit, estimator: OrtGradientEstimator) -> bool:
    """Whether `tol` ended a fit, or max_iter a long one whose length was not intended."""
    state, n_epochs = fit.state, fit.state.epoch - fit.state.first_epoch
    if state.stopped:
        return state.bad_epochs > fit.settings.n_iter_no_change
    return n_epochs >= _MANY_EPOCHS and not _is_planned(fit, estimator)


def _above_variance(fit: Fit) -> str:
    """Return the end of a message about a squared error above that of a constant; empty if it is below.

    `tol` ends a fit to small targets there, and max_iter one to targets far from 0.
    """
    loss, variance, rate = fit.state.loss_curve[-1], _variance(fit), fit.state.learning_rate
    if not loss > _WORSE * variance > 0:
        return ""
    remedy = "Scale y: TransformedTargetRegressor(model, transformer=StandardScaler()), or raise learning_rate"
    if rate < _SMALL_RATE:
        remedy = f"Raise learning_rate from {rate:.3g}; the default is 0.001"
    elif isinstance(fit.data, TrainingData) and loss > _LARGE * max(_LARGE, _mean_square(fit.data)):
        # the outputs are larger than y and than those for standardized columns
        remedy = (
            "Scale the columns of X, too: TransformedTargetRegressor(OrtGradientRegressor(make_pipeline("
            "StandardScaler(), model)), transformer=StandardScaler())"
        )
    return f"The loss is {loss:.3g} at the end, but that of the mean of y is {variance:.3g}. {remedy}"


def _is_standard(fit: Fit) -> bool:
    """Whether the targets are about as large as those of a StandardScaler, so that a fit needs only more steps."""
    if not isinstance(fit.data, TrainingData):
        return False
    return 1 / _LARGE < math.sqrt(_mean_square(fit.data)) < _LARGE


def _mean_square(data: TrainingData) -> float:
    """Return the mean square of the targets, summed over the outputs: the squared error of predictions of 0."""
    y, weight = _some_targets(data)
    return float(np.average(np.square(y), axis=0, weights=weight).sum())


def _variance(fit: Fit) -> float:
    """Return the weighted variance of the targets, summed over the outputs; 0 for rows in parts."""
    data = fit.data
    if not isinstance(data, TrainingData) or data.label.ndim != 2:
        return 0.0
    y, weight = _some_targets(data)
    residual = y - np.average(y, axis=0, weights=weight)
    return float(np.average(residual**2, axis=0, weights=weight).sum())


def _some_targets(data: TrainingData) -> tuple[np.ndarray, np.ndarray | None]:
    """Return targets in float64, and their sample weights, of evenly spread rows."""
    rows = spread(data.n_rows, min(data.n_rows, _MOST_TARGETS))
    if data.chosen is not None or data.weight is not None:
        rows = data.rows[rows]
    return data.label[rows].astype(np.float64), None if data.weight is None else data.weight[rows, 0]


def _several(state: TrainingState) -> bool:
    """Whether a fit had several epochs; a single one may be meant to change nothing."""
    return state.epoch - state.first_epoch > 1


def _stays(fit: Fit) -> bool:
    """Whether a learning rate that is small beside the weights left all of them as they were.

    At a minimum, they stay at any learning rate.
    """
    state = fit.state
    small = _SMALL_RATE * max(1.0, _largest(fit))
    if fit.settings.optimizer is None or not 0 < state.learning_rate < small or not _several(state):
        return False
    pairs = [(state.so_far()[name], w) for name, w in fit.start.items()]
    return all(
        np.max(np.abs(new - old), initial=0) <= _RESOLUTION * np.max(np.abs(old), initial=0) for new, old in pairs
    )


def _largest(fit: Fit) -> float:
    """Return the largest magnitude of a weight before the fit."""
    return max((float(np.max(np.abs(w), initial=0)) for w in fit.start.values()), default=0.0)


def _kept(state: TrainingState) -> str:
    """Describe which weights an interrupted fit has."""
    if state.epoch == state.first_epoch:
        return "at the start"
    return f"of epoch {state.best_epoch}, the best one" if state.validated else f"of epoch {state.epoch}"


def _missed_fall(fit: Fit, estimator: OrtGradientEstimator) -> float:
    """Return how fast the loss was still falling when max_iter ended a fit; 0 if the length was intended."""
    if fit.state.stopped or _is_planned(fit, estimator):
        return 0.0
    fall = last_fall(fit.state, estimator.n_iter_no_change)
    return fall if fall > estimator.tol else 0.0


def _is_planned(fit: Fit, estimator: OrtGradientEstimator) -> bool:
    """Whether the length of a fit was intended.

    It is in a fine-tuning of few epochs, and in a fit whose learning rate schedule has a length.
    """
    is_short = estimator.init != "random" and estimator.max_iter < _MANY_EPOCHS
    return is_short or (fit.settings.optimizer is not None and fit.settings.schedule.has_length)


def warn_of_nan(scores: np.ndarray) -> None:
    """Warn of rows or positions whose scores are NaN, which have no most likely class."""
    n_unknown = int(np.isnan(scores).any(axis=1).sum())
    if n_unknown:
        warn(
            f"predict: {n_unknown} of {len(scores)} rows have scores that are NaN, so their class is arbitrary. "
            "predict_proba(X) shows them. Look for NaN in X. If it has none, set outlier_label="
            "'most_frequent' of a RadiusNeighborsClassifier inside, which raises an error for rows without neighbors "
            "in scikit-learn."
        )
