"""Callbacks: one function that ``fit`` is given, and those of scikit-learn, which it has since 1.9."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from onnxtrain.errors import ParameterError
from onnxtrain.estimators.protocols import ArrayLike

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator
    from onnxtrain.estimators.trained import TrainedModel
    from onnxtrain.training.state import EpochInfo, TrainingState

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn below 1.9
    if not TYPE_CHECKING:

        class CallbackSupportMixin:
            """A substitute for the mixin of newer versions."""

        def with_callbacks(method):
            """Return the method itself."""
            return method


__all__ = ["CallbackSupportMixin", "FitTask", "check_callback", "with_callbacks"]


def check_callback(callback: object) -> None:
    """Raise a ParameterError if a callback cannot be called with the summary of an epoch."""
    if callback is None:
        return
    if not callable(callback):
        one = " Several are one function that calls them." if isinstance(callback, (list, tuple)) else ""
        raise ParameterError(
            f"callback is a function, called as callback(info) after each epoch, got {callback!r:.80}.{one}"
        )
    try:
        inspect.signature(callback).bind(None)
    except TypeError as e:
        raise ParameterError(
            f"callback is called as callback(info) after each epoch, and the function differs: {e}."
        ) from e
    except ValueError:  # a function written in C has no signature
        return


class FitTask:
    """A fit as scikit-learn's callbacks see it: one task, with a task inside for each epoch.

    Parameters
    ----------
    estimator : estimator
    X, y, sample_weight : array-like
        The data passed to the callbacks.
    model : TrainedModel
    state : TrainingState
        From which the weights so far are taken.
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
    def has_callbacks(self) -> bool:
        """Whether somebody is to be told of each epoch."""
        return self._context is not None and bool(vars(self._estimator).get("_skl_callbacks"))

    def after_epoch(self, info: EpochInfo) -> bool:
        """Tell the callbacks; return whether one wants to stop."""
        task = self._context.subcontext(task_name="epoch")
        task.call_on_fit_task_begin(**self._given)
        return task.call_on_fit_task_end(**self._given, reconstruction_attributes=self._so_far)

    def _so_far(self) -> dict[str, Any]:
        """Return the attributes with which a copy of the estimator predicts as if training had ended here."""
        return {"_trained": self._model.with_weights(dict(self._state.result()))}

    def end(self) -> None:
        """Tell the callbacks that all epochs are done."""
        if self._context is not None:
            self._context.call_on_fit_task_end(**self._given, reconstruction_attributes=self._so_far)
