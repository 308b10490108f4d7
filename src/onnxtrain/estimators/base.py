"""The base class of both estimators: parameters, ``fit``, ``partial_fit``, cloning and pickling."""

from __future__ import annotations

import copy
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from onnxtrain import __version__
from onnxtrain.arguments import NamesItsParameters, names_its_arguments
from onnxtrain.errors import warn
from onnxtrain.estimators import deferred
from onnxtrain.estimators.callbacks import CallbackSupportMixin, with_callbacks
from onnxtrain.estimators.protocols import (
    ArrayLike,
    Model,
    allows_nan,
    is_fitted,
    is_onnx,
    takes_sparse,
)
from onnxtrain.rows.parts import Part, Parts

if TYPE_CHECKING:
    from onnxtrain.estimators.lora import LoRA
    from onnxtrain.estimators.targets import Targets
    from onnxtrain.estimators.trained import TrainedModel
    from onnxtrain.optim import Optimizer, Schedule
    from onnxtrain.training.state import Listener, TrainingState

#: Attributes that ``fit`` sets.
_LEARNED = frozenset(
    """
    best_iteration_ best_loss_ classes_ feature_names_in_ loss_curve_ n_features_in_ n_iter_ validation_loss_curve_
    """.split()  # noqa: SIM905
)


#: Names that other libraries give to our methods and attributes, with what to use instead.
_OF_OTHERS = {
    "compile": "loss and solver are parameters of the estimator",
    "cuda": "the device is a parameter of the estimator, device='cuda'",
    "eval": "predict(X) has no training mode to leave: Dropout is off, in fit too",
    "evals_result": "history_ has the loss of each epoch, of the validation set too",
    "evals_result_": "history_ has the loss of each epoch, of the validation set too",
    "evaluate": "score(X, y) does it, or losses(X, y)",
    "export": "get_trained_onnx(path=...) does it",
    "feature_importances_": "sklearn.inspection.permutation_importance(model, X, y) computes them",
    "fit_predict": "fit(X, y).predict(X) does it",
    "fit_transform": "it predicts; embed(X, output) returns a value inside the model",
    "forward": "predict(X) does it",
    "get_inputs": "they are those of onnxruntime.InferenceSession(model.get_trained_onnx().SerializeToString())",
    "get_onnx": "it is get_trained_onnx()",
    "get_weights": "it is weights_",
    "history": "it is history_",
    "initialize": "fit(X, y) does it; max_iter=0 takes no step",
    "layers": "summary() shows them",
    "load_model": "onnxtrain.load(path) does it",
    "load_params": "onnxtrain.load(path) does it",
    "load_state_dict": "onnxtrain.load(path) does it",
    "load_weights": "onnxtrain.load(path) does it",
    "loss_": "loss_curve_[-1] is the loss of the last epoch",
    "module": "get_trained_onnx() and to_sklearn() return the model",
    "module_": "get_trained_onnx() and to_sklearn() return the model",
    "named_parameters": "they are weights_; trainable_weights(model) names them",
    "onnx_": "it is get_trained_onnx()",
    "optimizer_": "it is the parameter solver; save keeps its memory",
    "parameters": "they are weights_; trainable_weights(model) names them",
    "plot_importance": "sklearn.inspection.permutation_importance(model, X, y) computes it",
    "predict_classes": "it is predict(X)",
    "predict_on_batch": "it is predict(X)",
    "run": "predict(X) does it, or onnxruntime.InferenceSession on the file of get_trained_onnx(path=...)",
    "save_model": "onnxtrain.save(estimator, path) does it, or get_trained_onnx(path=...)",
    "save_params": "onnxtrain.save(estimator, path) does it",
    "save_weights": "onnxtrain.save(estimator, path) does it",
    "set_weights": "a model is trained from its own: hand over one that has them",
    "state_dict": "it is weights_",
    "to": "the device is a parameter of the estimator, device='cuda'",
    "to_onnx": "it is get_trained_onnx()",
    "to_json": "onnxtrain.save(estimator, path) writes it, get_trained_onnx(path=...) the model",
    "train": "it is fit(X, y)",
    "train_on_batch": "partial_fit(X, y) does it",
    "transform": "it predicts; embed(X, output) returns a value inside the model",
    "weights": "it is weights_",
    "SerializeToString": "get_trained_onnx() returns the onnx.ModelProto, which has it",
}


class OrtGradientEstimator(CallbackSupportMixin, NamesItsParameters, BaseEstimator, ABC):
    """Base class of the estimators; its subclasses document the parameters."""

    def __init__(
        self,
        estimator: Model | None = None,
        *,
        loss: str | Callable[..., Any] = "squared_error",
        loss_params: Mapping[str, Any] | None = None,
        l1: float = 0.0,
        l2: float = 0.0,
        penalty: Mapping[str, Any] | None = None,
        weights_to_train: str | Sequence[str] | LoRA | None = None,
        init: str = "estimator",
        solver: str | Optimizer = "adam",
        learning_rate: float | str | Schedule | Callable[[int], float] = 1e-3,
        batch_size: int | str = "auto",
        max_iter: int = 200,
        shuffle: bool = True,
        tol: float = 1e-4,
        n_iter_no_change: int = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        clip_norm: float | None = None,
        warm_start: bool = False,
        device: str = "cpu",
        n_threads: int | None = None,
        dtype: str = "float32",
        gradient_builder: str = "builtin",
        output: str | int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        average: bool | float = False,
        l1_method: str = "penalty",
        head: str = "keep",
        features: str | None = None,
        accumulate: int = 1,
        on_interrupt: str = "keep",
        inputs: Mapping[str, Any] | None = None,
        batch_axis: Mapping[str, int | None] | None = None,
        pad: Mapping[str, float] | None = None,
    ):
        self.estimator = estimator
        self.loss = loss
        self.loss_params = loss_params
        self.l1 = l1
        self.l2 = l2
        self.penalty = penalty
        self.weights_to_train = weights_to_train
        self.init = init
        self.solver = solver
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.clip_norm = clip_norm
        self.warm_start = warm_start
        self.device = device
        self.n_threads = n_threads
        self.dtype = dtype
        self.gradient_builder = gradient_builder
        self.output = output
        self.random_state = random_state
        self.verbose = verbose
        self.average = average
        self.l1_method = l1_method
        self.head = head
        self.features = features
        self.accumulate = accumulate
        self.on_interrupt = on_interrupt
        self.inputs = inputs
        self.batch_axis = batch_axis
        self.pad = pad

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # scikit-learn asks for the parameters about six times a fit, which takes as long as an epoch
        cls.__init__.__signature__ = inspect.signature(cls.__init__)  # type: ignore[attr-defined]

    # overridden by subclasses -----------------------------------------------

    #: The trained model, the state of its training, and the parameters from which the model was built; ``fit`` sets
    #: them.
    _trained: TrainedModel
    _state: TrainingState
    _begun_with: dict[str, Any]

    #: The targets of the last fit; for a classifier, its labels.
    _targets: Targets

    #: Whether the scores equal those of `decision_function` of the given estimator, if it has this method.
    _decides = True

    #: The kind of the output as the user declares it; this attribute and the next are parameters of the classifier.
    output_is: str | None = None

    #: The class axis of an output with positions, as the user declares it.
    class_axis: int | None = None

    @property
    @abstractmethod
    def _classifies(self) -> bool:
        """Whether targets are classes."""

    @abstractmethod
    def _default_estimator(self) -> BaseEstimator:
        """Return the estimator that is used if ``estimator=None``."""

    @abstractmethod
    def _new_targets(self, y: ArrayLike, *, positional: bool) -> Targets:
        """Return targets of the kind of `y` that have not been fitted yet."""

    def _expecting(self, classes: np.ndarray | None) -> AbstractContextManager[None]:
        """Return a context in which the first rows may lack some of the classes; a regressor has no classes."""
        return nullcontext()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self._default_estimator() if self.estimator is None else self.estimator)
        tags.input_tags.allow_nan = allows_nan(self.estimator)
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_trained")

    # fit --------------------------------------------------------------------

    @names_its_arguments
    @with_callbacks
    def fit(
        self,
        X: ArrayLike | Parts,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: ArrayLike | Parts | None = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
        callback: Listener | None = None,
        checkpoint: str | os.PathLike | None = None,
        every: int = 1,
        resume: bool = False,
    ) -> Self:
        """Train the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows. For an ONNX model with several inputs, :class:`~onnxtrain.Inputs`, a mapping or a frame whose keys
            are the names of the inputs. Rows that do not fit in memory are given in parts, without y, see
            :mod:`onnxtrain.rows`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            The targets. For multilabel targets, an indicator matrix, which may be sparse.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows, not negative. A row of weight zero is ignored.
        X_val, y_val, sample_weight_val : array-like, optional
            The validation set. Its loss is computed after each epoch. The weights of the best epoch are kept, and
            training stops as with ``early_stopping``, but no rows of X are held out.
        callback : callable, optional
            ``callback(info)`` is called after each epoch with an :class:`~onnxtrain.training.state.EpochInfo`: epoch,
            step, loss, validation_loss, learning_rate, time, weights. Training stops if it returns True. Callbacks of
            scikit-learn are set by ``set_callbacks``.
        checkpoint : path, optional
            The state of the fit is written to this file every `every` epochs, atomically. :func:`onnxtrain.load` reads
            the file too.
        every : int
            The number of epochs between two checkpoints.
        resume : bool
            Continue from the file `checkpoint` if it exists, else start from the beginning. A killed fit that is called
            again with the same rows and parameters ends at the same bits as an uninterrupted fit. `max_iter` may
            differ. A fit that had ended is not run again.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ConversionError, ModelError, WeightError
            The estimator or the ONNX model cannot be trained.
        ConvergenceError
            The loss became infinite or NaN. The estimator holds the initial weights or those of the best epoch,
            whichever have the lower loss.
        FileError
            The checkpoint could not be written at the end of the fit, for example because the disk is full; earlier
            failures are warnings. The estimator is fitted.

        Examples
        --------
        The validation set decides which epoch is kept:

        >>> import numpy as np
        >>> from onnxtrain import OrtGradientRegressor
        >>> X = np.linspace(0, 1, 40).reshape(-1, 1)
        >>> y = 2 * X.ravel() + 1
        >>> line = OrtGradientRegressor(init="random", learning_rate=0.1, max_iter=9, random_state=0)
        >>> line = line.fit(X[::2], y[::2], X_val=X[1::2], y_val=y[1::2])
        >>> len(line.validation_loss_curve_), line.best_loss_ == min(line.validation_loss_curve_)
        (9, True)
        """
        deferred.fit.fit(
            self,
            Part(X, y, sample_weight),
            Part(X_val, y_val, sample_weight_val),
            callback=callback,
            checkpoint=checkpoint,
            every=every,
            resume=resume,
        )
        return self

    @names_its_arguments
    def partial_fit(
        self, X: ArrayLike | Parts, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train on the rows for one epoch, continuing from the current weights and optimizer state.

        The learning rate continues as well. A schedule that needs a length assumes ``max_iter`` calls with as many
        rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or rows in parts
            The rows, with the features of the first call. Like ``fit``, each call checks all parts before its epoch.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            As in ``fit``.
        sample_weight : array-like of shape (n_samples,), optional
            Not negative.

        Returns
        -------
        self
            The estimator, trained for one more epoch.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(init="random", solver="sgd", learning_rate=0.5)
        >>> for _ in range(3):
        ...     line = line.partial_fit([[0.0], [1.0]], [1.0, 3.0])
        >>> line.n_iter_, len(line.loss_curve_)
        (3, 3)
        """
        deferred.fit.fit_one_epoch(self, Part(X, y, sample_weight))
        return self

    # the trained model ------------------------------------------------------

    @property
    def _model(self) -> TrainedModel:
        """The trained model, on the device and with the number of threads that the parameters name now."""
        if not self.__sklearn_is_fitted__():  # the check takes a tenth of a small prediction
            check_is_fitted(self)
        self._trained = self._trained.on(self.device, self.n_threads)
        return self._trained

    def __getattr__(self, name: str) -> Any:
        """Raise an AttributeError with a hint; Python calls this method for missing attributes."""
        if name in _LEARNED and not self.__sklearn_is_fitted__():
            raise AttributeError(f"{type(self).__name__} has {name} once it is fitted: call fit.", name=name, obj=self)
        if name in ("save", "load"):
            call = "save(estimator, path)" if name == "save" else "load(path)"
            raise AttributeError(f"{name} is a function: onnxtrain.{call}.", name=name, obj=self)
        if name in _OF_OTHERS:
            said = f"{type(self).__name__} has no {name}: {_OF_OTHERS[name]}."
            raise AttributeError(said, name=name, obj=self)
        inside = vars(self).get("estimator")
        has_it = hasattr(inside, "get_params") and not isinstance(inside, type) and hasattr(inside, name)
        if has_it and name[0] != "_" and not hasattr(type(self), name):
            said = f"{type(self).__name__} has no {name}, its estimator has: to_sklearn().{name} is that after the fit."
            raise AttributeError(said, name=name, obj=self)
        return object.__getattribute__(self, name)  # once more: a property may raise its own message

    # copies -----------------------------------------------------------------

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy; a fitted `estimator` parameter stays fitted, so that it can be fine-tuned."""
        copied = super().__sklearn_clone__()
        if self.estimator is not None and not is_onnx(self.estimator) and is_fitted(self.estimator):
            copied.estimator = copy.deepcopy(self.estimator)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_onnxtrain_version": __version__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state of a pickle; warn if another version wrote it."""
        written_by = state.pop("_onnxtrain_version", "unknown")
        if written_by != __version__:
            warn(
                InconsistentVersionWarning(
                    estimator_name=f"{type(self).__name__} of onnxtrain",
                    current_sklearn_version=__version__,
                    original_sklearn_version=written_by,
                )
            )
        super().__setstate__(state)
