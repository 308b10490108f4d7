"""What both estimators share: ``fit``, ``partial_fit``, the trained model."""

from __future__ import annotations

import copy
import inspect
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags, check_random_state

from onnxtrain.convert import ConvertsToOnnx
from onnxtrain.errors import DataError
from onnxtrain.estimators._callbacks import CallbackSupportMixin, FitTask, Listener, with_callbacks
from onnxtrain.estimators._checkpoint import Checkpoint
from onnxtrain.estimators._inspect import Inspectable
from onnxtrain.estimators._model import choose_weights, draw_weights, learned_constants
from onnxtrain.estimators._report import reporter
from onnxtrain.estimators._source import Source, check_source, is_fitted, is_onnx, source_of, takes_sparse
from onnxtrain.estimators._trained import Trained
from onnxtrain.estimators._training import (
    check_device,
    check_loss,
    check_solver,
    make_objective,
    train_by_steps,
    train_full_batch,
)
from onnxtrain.estimators._validation import (
    as_data_error,
    check_features,
    check_parameters,
    check_sample_weight,
    minds_no_nan,
    unchanged_on_error,
)
from onnxtrain.training.batches import TrainingData
from onnxtrain.training.device import Device
from onnxtrain.training.frozen import split_frozen
from onnxtrain.training.loop import EpochInfo
from onnxtrain.training.session import LazySession, open_session
from onnxtrain.training.state import TrainingState


class OrtGradientEstimator(Trained, Inspectable, ConvertsToOnnx, CallbackSupportMixin, BaseEstimator, ABC):
    """Base class of the estimators; the parameters are documented there."""

    def __init__(
        self,
        estimator: Any = None,
        *,
        loss: str | Callable[..., Any] = "squared_error",
        loss_params: Mapping[str, Any] | None = None,
        l1: float = 0.0,
        l2: float = 0.0,
        penalty: Mapping[str, Any] | None = None,
        weights_to_train: str | Sequence[str] | None = None,
        init: str = "estimator",
        solver: Any = "adam",
        learning_rate: Any = 1e-3,
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
        random_state: Any = None,
        verbose: int = 0,
        average: bool | float = False,
        l1_method: str = "penalty",
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

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # scikit-learn asks for the parameters about six times a fit, which takes as long as an epoch
        cls.__init__.__signature__ = inspect.signature(cls.__init__)  # type: ignore[attr-defined]

    # what a subclass decides ------------------------------------------------

    #: The number of labels where a row has any number of them, else 0.
    _n_labels = 0

    @property
    @abstractmethod
    def _classifies(self) -> bool:
        """Whether targets are classes."""

    @abstractmethod
    def _default_estimator(self) -> BaseEstimator:
        """Return the estimator that ``estimator=None`` stands for."""

    @abstractmethod
    def _learn_target(self, y: np.ndarray, source: Source) -> None:
        """Keep what is learned about y beside the weights."""

    @abstractmethod
    def _encode_target(self, y: np.ndarray) -> np.ndarray:
        """Return y as the label of the loss, (n, k) or int64 (n, 1)."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self._default_estimator() if self.estimator is None else self.estimator)
        tags.input_tags.allow_nan = minds_no_nan(self.estimator)
        return tags

    # fit --------------------------------------------------------------------

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        callback: Listener | None = None,
        checkpoint: str | os.PathLike | None = None,
        every: int = 1,
        resume: bool = False,
    ) -> Self:
        """Train the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Of a classifier with several labels a row a matrix of 0 and 1, which may be sparse.
        sample_weight : array-like of shape (n_samples,), optional
            Not negative. A row of weight zero is as good as absent.
        X_val, y_val, sample_weight_val : array-like, optional
            Rows whose loss is watched after each epoch: the weights of the best epoch
            are kept, and training stops as with ``early_stopping``, which would hold
            out rows of X itself.
        callback : callable, optional
            ``callback(info)`` after each epoch, with an :class:`~onnxtrain.training.loop.EpochInfo`:
            epoch, step, loss, validation_loss, learning_rate, time, weights. Training stops
            where it returns True. Callbacks of scikit-learn are set by ``set_callbacks``.
        checkpoint : path, optional
            Every `every` epochs the state of the fit is written to this file, in one piece or
            not at all. :func:`onnxtrain.load` reads it too.
        every : int
        resume : bool
            Go on from the file `checkpoint` where it is there, else begin: a fit that was
            killed, called again with the same rows and parameters, ends at the same bits as
            one that was not. `max_iter` may be another one. A fit that had ended is not
            run again.

        Returns
        -------
        self

        Raises
        ------
        ConversionError, ModelError, WeightError
            The estimator or the ONNX model cannot be trained.
        ConvergenceError
            The loss became infinite or NaN. The last good weights are in place.
        """
        device = self._check()
        file = Checkpoint(self, checkpoint, every, resume)
        with unchanged_on_error(self):
            X, y = self._check_X_y(X, y, reset=not self._goes_on())
            weight = self._row_weights(y, check_sample_weight(sample_weight, y, self._real))
            self._random_state = file.at("start", check_random_state(self.random_state))
            if not self._goes_on():
                self._start(X, y, weight)
            self._prepare_objective()
            validation = self._check_validation(X_val, y_val, sample_weight_val)
            data = self._training_data(X, y, weight)
            self._random_state = file.at("split", self._random_state)
            if validation is None and self.early_stopping:
                data, validation = self._hold_out(data, y)
            if not file.restore(self, data, validation):
                self._state.begin(watched=validation is not None)
        task = FitTask(self, X, y, sample_weight, self.max_iter)
        listeners = [task.after_epoch, *([] if callback is None else [callback])]
        self._train(data, validation, device, n_epochs=self.max_iter, listeners=listeners, file=file)
        task.end()
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on the rows for one epoch, going on from the weights and the memory of the optimizer.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        return self._partial_fit(X, y, sample_weight)

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        device = self._check()
        first = not self.__sklearn_is_fitted__()
        with unchanged_on_error(self):
            X, y = self._check_X_y(X, y, reset=first)
            weight = self._row_weights(y, check_sample_weight(sample_weight, y, self._real))
            if first:
                self._random_state = check_random_state(self.random_state)
                self._start(X, y, weight)
            self._prepare_objective()
            data = self._training_data(X, y, weight)
        self._state.begin(watched=False)
        return self._train(data, None, device, n_epochs=1)

    def _goes_on(self) -> bool:
        return self.warm_start and self.__sklearn_is_fitted__()

    def _check(self) -> Device:
        """Check every parameter that can be checked without data; return the device."""
        check_parameters(self)
        check_loss(self.loss, self.loss_params, classifies=self._classifies)
        check_solver(self)
        if self.estimator is not None:
            check_source(self.estimator)
        return check_device(self)

    def _start(self, X: Any, y: np.ndarray, weight: np.ndarray | None) -> None:
        """Read the model and take its weights, or draw them anew."""
        estimator = self._default_estimator() if self.estimator is None else self.estimator
        rows = X, y, weight
        if not is_onnx(estimator):
            fitted = is_fitted(estimator)
            if fitted and hasattr(estimator, "n_features_in_") and not self._named:
                check_features(X, (None, estimator.n_features_in_), f"{type(estimator).__name__} was fitted on")
            self._check_estimator(estimator, X)
            if not fitted:
                rows = self._rows_for_estimator(*rows)
        how: dict[str, Any] = {"dtype": self._real, "output": self.output, "n_labels": self._n_labels}
        how |= {"labels": self._classifies, "structure_only": self.init == "random"}
        self._source = source_of(estimator, X, rows, random_state=self._random_state, **how)
        if not self._named:
            self._check_only_input(X)
        self._learn_target(y, self._source)
        names = choose_weights(self._source.model, self.weights_to_train, self._source.default)
        weights = self._source.initial_weights(names)
        if self.init == "random":
            weights = draw_weights(weights, self._source.model.penalized, self._random_state)
        self._state = TrainingState(weights)

    def _check_estimator(self, estimator: Any, X: Any) -> None:
        """Raise an error where y is not what the estimator takes or was fitted on."""

    def _rows_for_estimator(self, X: Any, y: np.ndarray, weight: np.ndarray | None) -> tuple[Any, Any, Any]:
        """Return the rows on which an estimator that is not fitted is fitted."""
        return X, y, weight

    def _prepare_objective(self) -> None:
        names, model = tuple(self._state.weights), self._source.model
        self._before = None
        if self._named:
            self._before, behind = split_frozen(model.onnx, names, [model.output])
            model = replace(model, onnx=behind)
        self._constants = learned_constants(model, names)
        kind = {"classifies": self._classifies, "multilabel": self._n_labels > 0}
        self._objective = make_objective(self, model, names, constants=tuple(self._constants), **kind)

    def _row_weights(self, y: np.ndarray, sample_weight: np.ndarray | None) -> np.ndarray | None:
        return sample_weight

    def _training_data(self, X: Any, y: np.ndarray, weight: np.ndarray | None) -> TrainingData:
        column = None if weight is None else np.ascontiguousarray(weight, dtype=self._real).reshape(-1, 1)
        features = self._feeds(X)
        dtypes = dict(self._source.model.features)
        if self._before is not None:
            features = self._run_chunks(open_session(self._before, "cpu", self.n_threads), features)
            dtypes = {name: values.dtype for name, values in features.items()}
        return TrainingData(features, self._encode_target(y), column, dtypes, self._constants)

    def _check_validation(self, X: Any, y: Any, sample_weight: Any) -> TrainingData | None:
        if X is None and y is None:
            return None
        if X is None or y is None:
            raise DataError("X_val and y_val go together: one of them is missing.")
        X, y = self._check_X_y(X, y, reset=False)
        weight = check_sample_weight(sample_weight, y, self._real)
        return self._training_data(X, y, self._row_weights(y, weight))

    @as_data_error()
    def _hold_out(self, data: TrainingData, y: np.ndarray) -> tuple[TrainingData, TrainingData]:
        train, held_out = train_test_split(
            data.rows,
            test_size=self.validation_fraction,
            random_state=self._random_state,
            stratify=y[data.rows] if self._classifies and not self._n_labels else None,
        )
        return data.subset(train), data.subset(held_out)

    def _train(
        self,
        data: TrainingData,
        validation: TrainingData | None,
        device: Device,
        *,
        n_epochs: int,
        listeners: Sequence[Listener] = (),
        file: Checkpoint | None = None,
    ) -> Self:
        """Run the solver; whatever ends it, leave the best or last good weights in place."""
        state = self._state
        stopped_early = False
        try:
            with reporter(self, n_epochs) as report:

                def on_epoch(info: EpochInfo) -> bool:
                    for listener in (report, *listeners):
                        state.stopped |= bool(listener(info))
                    if file is not None:
                        file.after_epoch(self, n_epochs)
                    return state.stopped

                rows = (self._objective, state, data, validation, device)
                if self.solver == "lbfgs":
                    train_full_batch(self, *rows, on_epoch=on_epoch)
                else:
                    train_by_steps(self, *rows, self._random_state, n_epochs=n_epochs, on_epoch=on_epoch)
        except KeyboardInterrupt:
            stopped_early = True
        finally:
            self._finish()
        if stopped_early:
            warnings.warn(
                f"Training was interrupted in epoch {state.epoch + 1}; the estimator has the best weights so far.",
                UserWarning,
                stacklevel=3,
            )
        return self

    def _finish(self) -> None:
        """Set the learned attributes from the state; it shares `weights_`: what is put in there is trained further."""
        state = self._state
        result = dict(state.result())
        if state.watched and state.best_weights is not None:
            state.best_weights = result
        state.weights = result if state.average is None else dict(state.weights)  # training leaves the mean alone
        self.weights_ = result
        self.loss_curve_ = list(state.loss_curve)
        self.validation_loss_curve_ = list(state.validation_loss_curve)
        self.best_loss_ = state.best_loss
        self.best_iteration_ = state.best_epoch
        self.n_iter_ = state.epoch
        self._session = LazySession()

    # copies -----------------------------------------------------------------

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy; an estimator inside that is fitted stays fitted, to be fine-tuned."""
        copied = super().__sklearn_clone__()
        if self.estimator is not None and not is_onnx(self.estimator) and is_fitted(self.estimator):
            copied.estimator = copy.deepcopy(self.estimator)
        return copied
