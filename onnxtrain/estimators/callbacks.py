"""Who is told of each epoch: scikit-learn's callbacks, which it has since 1.9, and the report of ``verbose``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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


__all__ = ["CallbackSupportMixin", "FitTask", "reporter", "with_callbacks"]


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

    def __init__(self, estimator: Any, X: Any, y: Any, sample_weight: Any, model: TrainedModel, state: TrainingState):
        self._model, self._state = model, state
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self._given = dict(estimator=estimator, X=X, y=y, metadata=metadata)
        self._estimator = estimator
        self._context = None
        if hasattr(estimator, "_init_callback_context"):
            self._context = estimator._init_callback_context(max_subtasks=estimator.max_iter)
            self._context.call_on_fit_task_begin(**self._given)

    def after_epoch(self, info: EpochInfo) -> bool:
        """Tell the callbacks; return whether one wants to stop."""
        if self._context is None or not getattr(self._estimator, "_skl_callbacks", None):
            return False
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


@contextmanager
def reporter(verbose: int, n_epochs: int) -> Iterator[Callable[[EpochInfo], bool]]:
    """Yield a function to be called after each epoch, a progress bar or a line; it returns whether to stop."""
    if not verbose:
        yield lambda info: False
    elif verbose == 1:
        from tqdm.auto import tqdm  # looks for a notebook when it is imported

        with tqdm(total=n_epochs, unit="epoch") as bar:

            def advance(info: EpochInfo) -> bool:
                bar.set_postfix_str(_losses(info), refresh=False)
                bar.update()
                return False

            yield advance
    else:
        yield _print_line


def _print_line(info: EpochInfo) -> bool:
    print(f"epoch {info.epoch}, {_losses(info)}, learning rate {info.learning_rate:.3g}, {info.time:.1f} s")
    return False


def _losses(info: EpochInfo) -> str:
    validation = "" if info.validation_loss is None else f", validation loss {info.validation_loss:.6g}"
    return f"loss {info.loss:.6g}{validation}"
