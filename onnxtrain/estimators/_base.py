"""What both estimators share: ``fit``, ``partial_fit``, the trained model."""

from __future__ import annotations

import copy
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import onnx
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from onnxtrain.convert import ConvertsToOnnx
from onnxtrain.errors import DataError, DeviceError, ExportError, LossError
from onnxtrain.estimators._callbacks import CallbackSupportMixin, FitTask, Listener, with_callbacks
from onnxtrain.estimators._checkpoint import Checkpoint
from onnxtrain.estimators._inspect import Inspectable
from onnxtrain.estimators._model import TrainableModel, choose_weights, draw_weights, with_weights
from onnxtrain.estimators._report import reporter
from onnxtrain.estimators._rows import check_named, comes_by_name, declared_inputs, feeds_by_name, n_rows
from onnxtrain.estimators._source import Source, as_source, check_source, fitted, is_fitted, is_onnx
from onnxtrain.estimators._training import make_objective, train_by_steps, train_full_batch
from onnxtrain.estimators._validation import check_features, check_parameters, check_sample_weight, check_X, check_X_y
from onnxtrain.export import to_sklearn
from onnxtrain.losses import LOSSES, find_loss
from onnxtrain.optim import make_optimizer
from onnxtrain.optim.schedules import make_schedule
from onnxtrain.training.batches import TrainingData, batches, dense
from onnxtrain.training.device import Device, find_device
from onnxtrain.training.evaluate import row_losses
from onnxtrain.training.frozen import split_frozen
from onnxtrain.training.loop import EpochInfo, TrainingState
from onnxtrain.training.session import LazySession, open_session, run_session

#: Rows predicted at once: bounds the memory of intermediate results.
_PREDICT_CHUNK = 65_536


class OrtGradientEstimator(Inspectable, ConvertsToOnnx, CallbackSupportMixin, BaseEstimator, ABC):
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

    # what a subclass decides ------------------------------------------------

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
        X, y = self._check_X_y(X, y, reset=not self._goes_on())
        weight = self._row_weights(y, check_sample_weight(sample_weight, y, self.dtype))
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
        X, y = self._check_X_y(X, y, reset=first)
        weight = self._row_weights(y, check_sample_weight(sample_weight, y, self.dtype))
        if first:
            self._random_state = check_random_state(self.random_state)
            self._start(X, y, weight)
        self._prepare_objective()
        self._state.begin(watched=False)
        return self._train(self._training_data(X, y, weight), None, device, n_epochs=1)

    def _goes_on(self) -> bool:
        return self.warm_start and self.__sklearn_is_fitted__()

    def _check(self) -> Device:
        """Check every parameter that can be checked without data; return the device."""
        check_parameters(self)
        self._check_loss()
        if self.solver != "lbfgs":
            make_optimizer(self.solver)
            make_schedule(self.learning_rate)
        if self.estimator is not None:
            check_source(self.estimator)
        return find_device(self.device)

    def _check_loss(self) -> None:
        entry = find_loss(self.loss, self.loss_params, classifies=self._classifies)
        if entry.classifies != self._classifies:
            kind, other = (
                ("classes", "OrtGradientClassifier") if entry.classifies else ("numbers", "OrtGradientRegressor")
            )
            raise LossError(
                f"The loss {self.loss!r} is for {kind}, as {other} has them. Here there are: "
                f"{', '.join(name for name, known in LOSSES.items() if known.classifies == self._classifies)}."
            )

    def _start(self, X: Any, y: np.ndarray, weight: np.ndarray | None) -> None:
        """Read the model and take its weights, or draw them anew."""
        estimator = self._default_estimator() if self.estimator is None else self.estimator
        if not is_onnx(estimator):
            if is_fitted(estimator) and hasattr(estimator, "n_features_in_") and not self._named:
                shape = (None, estimator.n_features_in_)
                check_features(X, shape, f"{type(estimator).__name__} was fitted on")
            rows = self._rows_for_estimator(X, y, weight)
            estimator = fitted(estimator, *rows, structure_only=self.init == "random", random_state=self._random_state)
        self._source = as_source(estimator, X, dtype=self.dtype, output=self.output)
        if not self._named:
            self._check_only_input(X)
        self._learn_target(y, self._source)
        names = choose_weights(self._source.model, self.weights_to_train, self._source.default)
        weights = self._source.initial_weights(names)
        if self.init == "random":
            weights = draw_weights(weights, self._source.model.penalized, self._random_state)
        self._state = TrainingState(weights)

    def _rows_for_estimator(self, X: Any, y: np.ndarray, weight: np.ndarray | None) -> tuple[Any, Any, Any]:
        """Return the rows on which an estimator that is not fitted is fitted."""
        return X, y, weight

    def _check_only_input(self, X: Any) -> None:
        """Compare the rows with the one input of the model."""
        shapes = self._source.model.shapes
        if len(shapes) > 1:
            raise DataError(
                f"The model has the inputs {', '.join(shapes)}: give X as a dictionary or a DataFrame by these names."
            )
        for shape in shapes.values():
            check_features(X, shape, "the model takes")

    def _prepare_objective(self) -> None:
        names = tuple(self._state.weights)
        model = self._source.model
        self._before = None
        if self._named:
            self._before, behind = split_frozen(model.onnx, names, [model.output])
            model = replace(model, onnx=behind)
        self._objective = make_objective(self, model, names, classifies=self._classifies)

    def _row_weights(self, y: np.ndarray, sample_weight: np.ndarray | None) -> np.ndarray | None:
        return sample_weight

    def _training_data(self, X: Any, y: np.ndarray, weight: np.ndarray | None) -> TrainingData:
        column = None if weight is None else np.ascontiguousarray(weight, dtype=self.dtype).reshape(-1, 1)
        features = self._feeds(X)
        dtypes = dict(self._source.model.features)
        if self._before is not None:
            features = self._run_chunks(open_session(self._before, "cpu", self.n_threads), features)
            dtypes = {name: values.dtype for name, values in features.items()}
        return TrainingData(features, self._encode_target(y), column, dtypes)

    def _feeds(self, X: Any) -> dict[str, Any]:
        """Return the rows by the names of the inputs of the model."""
        features = self._source.model.features
        if self._named:
            return feeds_by_name(X, features, self._source.model.shapes)
        (name,) = features
        return {name: X}

    def _run_chunks(
        self, session: Any, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return outputs of a session for rows, computed in pieces of bounded size."""
        names = list(outputs) if outputs is not None else [o.name for o in session.get_outputs()]
        dtypes = self._source.model.features
        parts = [
            run_session(session, {name: dense(x[rows], dtypes[name]) for name, x in feeds.items()}, names)
            for rows in batches(n_rows(feeds), _PREDICT_CHUNK)
        ]
        found = parts[0] if len(parts) == 1 else [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        return dict(zip(names, found, strict=True))

    def _check_validation(self, X: Any, y: Any, sample_weight: Any) -> TrainingData | None:
        if X is None and y is None:
            return None
        if X is None or y is None:
            raise DataError("X_val and y_val go together: one of them is missing.")
        X, y = self._check_X_y(X, y, reset=False)
        weight = check_sample_weight(sample_weight, y, self.dtype)
        return self._training_data(X, y, self._row_weights(y, weight))

    def _hold_out(self, data: TrainingData, y: np.ndarray) -> tuple[TrainingData, TrainingData]:
        train, held_out = train_test_split(
            data.rows,
            test_size=self.validation_fraction,
            random_state=self._random_state,
            stratify=y[data.rows] if self._classifies else None,
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
                    answers = [report(info), *(listener(info) for listener in listeners)]
                    state.stopped = state.stopped or any(bool(stop) for stop in answers)
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
        """Set the learned attributes from the state."""
        state = self._state
        state.weights = state.result()
        self.weights_ = state.weights
        self.loss_curve_ = list(state.loss_curve)
        self.validation_loss_curve_ = list(state.validation_loss_curve)
        self.best_loss_ = state.best_loss
        self.best_iteration_ = state.best_epoch
        self.n_iter_ = state.epoch
        self._session = LazySession()

    # the trained model ------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "weights_")

    @property
    def _model(self) -> TrainableModel:
        check_is_fitted(self)
        return self._source.model

    def get_trained_onnx(self) -> onnx.ModelProto:
        """Return the model with the trained weights: the inputs and outputs it came with, labels included.

        Returns
        -------
        onnx.ModelProto
        """
        check_is_fitted(self)
        return self._source.with_weights(self.weights_)

    def to_sklearn(self) -> Any:
        """Return a fitted copy of the scikit-learn estimator, its learned attributes replaced by the trained weights.

        Returns
        -------
        estimator or pipeline
            Of the class that was handed over.

        Raises
        ------
        ExportError
            The model was an ONNX file, or a weight has no place in the estimator.
        """
        if self._model and self._source.estimator is None:
            raise ExportError(
                "The model came as ONNX, or from a file of onnxtrain.save, which holds no scikit-learn objects: "
                "there is no estimator to write to. Take get_trained_onnx()."
            )
        return to_sklearn(self._source.estimator, self._source.bindings, self.weights_)

    def losses(self, X: Any, y: Any, sample_weight: Any = None) -> np.ndarray:
        """Return the loss of each row, without penalties.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), optional
            Each loss is multiplied by the weight of its row.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        X, y = self._check_X_y(X, y, reset=False)
        weight = check_sample_weight(sample_weight, y, self.dtype, keep=True)
        device = self._device_at_hand()
        losses = row_losses(
            self._objective, self.weights_, self._training_data(X, y, None), device, self.n_threads or 0
        )
        return losses if weight is None else losses * weight

    def _run(self, X: Any, output: str) -> np.ndarray:
        """Return one output of the trained model for rows, computed in pieces of bounded size.

        It is float32 for float32 rows and float64 for all others, as scikit-learn's estimators.
        """
        result = np.dtype(np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64)
        X = self._check_X(X)
        found = self._run_chunks(self._open_session(), self._feeds(X), [output])[output]
        return found.astype(result, copy=False)

    def _open_session(self) -> Any:
        return self._session.open(
            lambda: open_session(
                with_weights(self._source.model.onnx, self.weights_), self._device_at_hand(), self.n_threads
            )
        )

    def _device_at_hand(self) -> Device:
        """Return the device of the parameters, or the CPU with a warning where this machine has none."""
        try:
            return find_device(self.device)
        except DeviceError as e:
            warnings.warn(f"{e} The CPU is used instead.", UserWarning, stacklevel=4)
            return find_device("cpu")

    # what goes in -----------------------------------------------------------

    def _input_of(self, *, reset: bool = False) -> tuple[Any, int]:
        """Return the type and the rank of X, from the model where it is known."""
        declared: dict[str, tuple[Any, int]] = {}
        if not reset:
            model = self._source.model
            declared = {name: (dtype, len(model.shapes[name])) for name, dtype in model.features.items()}
        elif self.estimator is not None and is_onnx(self.estimator):
            declared = declared_inputs(self.estimator)
        if len(declared) != 1:
            return np.dtype(self.dtype), 2
        ((dtype, ndim),) = declared.values()
        return np.dtype(self.dtype) if dtype.kind == "f" else dtype, ndim

    def _check_X(self, X: Any) -> Any:
        if self._named:
            return check_named(self, X, None, reset=False)[0]
        dtype, ndim = self._input_of()
        return check_X(self, X, reset=False, dtype=dtype, ndim=ndim)

    def _check_X_y(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, np.ndarray]:
        if reset:
            self._named = comes_by_name(X, self.estimator)
        if self._named:
            return check_named(self, X, y, reset=reset)
        dtype, ndim = self._input_of(reset=reset)
        return check_X_y(self, X, y, reset=reset, dtype=dtype, ndim=ndim, numeric=not self._classifies)

    # copies -----------------------------------------------------------------

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy; an estimator inside that is fitted stays fitted, to be fine-tuned."""
        copied = super().__sklearn_clone__()
        if self.estimator is not None and not is_onnx(self.estimator) and is_fitted(self.estimator):
            copied.estimator = copy.deepcopy(self.estimator)
        return copied
