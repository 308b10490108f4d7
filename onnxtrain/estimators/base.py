"""The base class of both estimators: ``fit``, ``partial_fit``, the trained model."""

from __future__ import annotations

import copy
import inspect
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import onnx
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags, check_random_state

from onnxtrain.convert import ConvertsToOnnx, answer
from onnxtrain.errors import DataError, ModelError, WeightError
from onnxtrain.estimators.agreement import (
    AGREED,
    answers_of_onnx,
    check_numbers,
    declared,
    fingerprint,
    is_rough,
    needs_rows,
    settled,
    some_rows,
)
from onnxtrain.estimators.callbacks import CallbackSupportMixin, FitTask, reporter, with_callbacks
from onnxtrain.estimators.checkpoint import Checkpoint
from onnxtrain.estimators.inspect import Inspectable
from onnxtrain.estimators.settings import settings_of
from onnxtrain.estimators.source import (
    Source,
    as_source,
    check_source,
    is_fitted,
    is_onnx,
    source_of,
    stores_targets,
    takes_sparse,
)
from onnxtrain.estimators.trained import Trained
from onnxtrain.estimators.validation import (
    allows_nan,
    as_data_error,
    check_features,
    check_sample_weight,
    unchanged_on_error,
)
from onnxtrain.losses.link import Link
from onnxtrain.registry import did_you_mean
from onnxtrain.runtime.device import find_device
from onnxtrain.runtime.session import LazySession, cached_session, open_session
from onnxtrain.training.data import TrainingData, dense
from onnxtrain.training.frozen import Cut, Place, cut, has_texts
from onnxtrain.training.model import (
    TrainableModel,
    choose_weights,
    draw_weights,
    learned_constants,
    without_weights,
)
from onnxtrain.training.objective import LIGHT, Objective, multiplications
from onnxtrain.training.settings import Settings
from onnxtrain.training.state import Listener, TrainingState, last_fall
from onnxtrain.training.train import Fit

_OTHER_OUTPUT = "Name the output that is to be trained by output=, or train in dtype='float64'."

#: Epochs after which a loss is expected to converge from any initial weights: the default, scikit-learn's.
_MANY_EPOCHS = 200


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

    # overridden by subclasses -----------------------------------------------

    #: The number of labels for multilabel targets, else 0.
    _n_labels = 0

    #: The kind of the output according to the user; a parameter of the classifier.
    output_is: str | None = None

    @property
    @abstractmethod
    def _classifies(self) -> bool:
        """Whether targets are classes."""

    @abstractmethod
    def _default_estimator(self) -> BaseEstimator:
        """Return the estimator that ``estimator=None`` stands for."""

    @abstractmethod
    def _learn_target(self, y: np.ndarray, source: Source) -> None:
        """Set the attributes that are learned from y, besides the weights."""

    @abstractmethod
    def _encode_target(self, y: np.ndarray) -> np.ndarray:
        """Return y as the label of the loss, (n, k) or int64 (n, 1)."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self._default_estimator() if self.estimator is None else self.estimator)
        tags.input_tags.allow_nan = allows_nan(self.estimator)
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
            For multilabel targets, an indicator matrix, which may be sparse.
        sample_weight : array-like of shape (n_samples,), optional
            Not negative. A row of weight zero is ignored.
        X_val, y_val, sample_weight_val : array-like, optional
            The validation set. Its loss is computed after each epoch: the weights of the best epoch
            are kept, and training stops as with ``early_stopping``, which would hold
            out rows of X itself.
        callback : callable, optional
            ``callback(info)`` after each epoch, with an :class:`~onnxtrain.training.state.EpochInfo`:
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
            The loss became infinite or NaN. The better weights of the start and the best epoch are in place.
        FileError
            The checkpoint could not be written at last, on a full disk for example: until then that is a warning.
            The estimator is fitted.
        """
        settings = self._check()
        file = Checkpoint(self, checkpoint, every, resume)
        with unchanged_on_error(self):
            X, y = self._check_X_y(X, y, reset=not self._goes_on())
            weight = self._sample_weights(y, check_sample_weight(sample_weight, y, self._real))
            self._random_state = file.rng_at("start", check_random_state(self.random_state))
            if not self._goes_on():
                self._start(X, y, weight)
            self._prepare_objective()
            if not self._goes_on():
                self._check_start(X)
            data = self._cut(self._whole_data(X, y, weight), self.max_iter)
            validation = self._check_validation(X_val, y_val, sample_weight_val)
            self._random_state = file.rng_at("split", self._random_state)
            if validation is None and self.early_stopping:
                data, validation = self._hold_out(data, y)
            start = self._state.so_far()
            if not file.restore(self, data, validation):
                self._state.begin(watched=validation is not None)
        task = FitTask(self, X, y, sample_weight, self.max_iter)
        listeners = [task.after_epoch, *([] if callback is None else [callback]), file.after_epoch]
        fit = Fit(self._objective, data, validation, settings, self._state, start, self._random_state)
        self._train(fit, self.max_iter, listeners)
        task.end()
        file.check_written()
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on the rows for one epoch, going on from the weights and the memory of the optimizer.

        The learning rate goes on as well; a schedule that needs a length has that of ``max_iter`` calls with as
        many rows.

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
        settings = self._check()
        first = not self.__sklearn_is_fitted__()
        with unchanged_on_error(self):
            X, y = self._check_X_y(X, y, reset=first)
            weight = self._sample_weights(y, check_sample_weight(sample_weight, y, self._real))
            if first:
                self._random_state = check_random_state(self.random_state)
                self._start(X, y, weight)
            self._prepare_objective()
            if first:
                self._check_start(X)
            data = self._cut(self._whole_data(X, y, weight), 1)
        self._state.begin(watched=False, one_epoch=True)
        state = self._state
        fit = Fit(self._objective, data, None, settings, state, state.so_far(), self._random_state)
        return self._train(fit, n_epochs=1)

    def _goes_on(self) -> bool:
        return self.warm_start and self.__sklearn_is_fitted__()

    def _check(self) -> Settings:
        """Check every parameter that can be checked without data."""
        settings = settings_of(self)
        if self.estimator is not None:
            check_source(self.estimator, classifies=self._classifies if self.output is None else None)
        return settings

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
        how |= {"labels": self._classifies, "output_is": self.output_is}
        anew = self.init == "random"
        self._source = source_of(
            estimator, X, rows, self.weights_to_train, structure_only=anew, random_state=self._random_state, **how
        )
        if not self._named:
            self._check_only_input(X)
        if needs_rows(self._source.model, self.output_is, classifies=self._classifies):
            self._source = self._settled(X, how)
            if self.verbose and self._classifies:
                taken = "scores" if self._source.model.link is Link.IDENTITY else "probabilities"
                print(f"The output {self._source.model.output!r} is taken for {taken}, as the rows show.")
        self._learn_target(y, self._source)
        names = choose_weights(self._source.model, self.weights_to_train, self._source.default)
        if self.weights_to_train is None and stores_targets(estimator):
            warnings.warn(
                f"{type(estimator).__name__} averages the targets of the rows it was fitted on; they are what is "
                "trained here, one for each row. Name them in weights_to_train if that is meant.",
                UserWarning,
                stacklevel=4,
            )
        weights = self._source.initial_weights(names)
        if self.init == "random":
            weights = draw_weights(weights, self._source.model.penalized, self._random_state)
        self._state = TrainingState(weights)

    def _settled(self, X: Any, how: Mapping[str, Any]) -> Source:
        """Return the source completed on rows: the columns of its output, and whether they are probabilities."""
        source = self._source
        found = self._look(X, source.model)
        if not source.model.width:
            if found.ndim not in (1, 2):
                raise ModelError(
                    f"The number of columns of the output is not known: {source.model.output!r} of shape {found.shape}."
                )
            source = self._with_columns(found.shape, X, how)
        if not needs_rows(source.model, self.output_is, classifies=self._classifies):
            return source
        return replace(source, model=settled(source.model, found, self.output_is, n_labels=self._n_labels))

    def _with_columns(self, shape: tuple[int, ...], X: Any, how: Mapping[str, Any]) -> Source:
        """Return the source whose output has this shape, in the file as in the graph."""
        source, model = self._source, self._source.model
        if source.original is not None:
            original = onnx.load_model_from_string(source.original)
            known = as_source(declared(original, model.output, shape), X, **how)
            return replace(known, original=source.original)
        width = shape[1] if len(shape) == 2 else 1
        known_model = model.with_graph(declared(model.graph(), model.output, shape))
        return replace(source, model=replace(known_model, width=width, n_scores=width))

    def _look(self, X: Any, model: TrainableModel) -> np.ndarray:
        """Return the output of a model, with the weights it came with, for some rows."""
        share = len(model.onnx) <= LIGHT
        device = find_device("cpu")
        session = cached_session(model.onnx, device, 1) if share else open_session(model.onnx, device, thorough=False)
        return self._run_chunks(session, self._feeds(some_rows(X)), [model.output])[model.output]

    def _check_start(self, X: Any) -> None:
        """Compare the predictions of the initial weights on some rows with those of the original model.

        Raises
        ------
        ConversionError, ModelError
            They differ; the message holds the row and both.
        """
        source, names = self._source, tuple(self._state.weights)
        model = source.model
        how = type(self), type(source.estimator), names, model.link, repr(getattr(self, "classes_", None))
        if how not in source.agreed:  # one that many candidates of a search train is the same object
            self._compare_start(X, names, how)
            source.agreed.add(how)
        self._source = replace(source, answers={}, agreed=set())

    def _compare_start(self, X: Any, names: tuple[str, ...], how: Hashable) -> None:
        source, model = self._source, self._source.model
        work = multiplications(self._whole.model) if source.original is not None else 0.0
        feeds = self._feeds(some_rows(X, work))
        feeds = {name: dense(x, model.features[name]) for name, x in feeds.items()}
        key = fingerprint([model.onnx, source.original or b""], feeds, how)
        if key is not None and AGREED.find(key) is not None:
            return
        onx, known = self._fed_with(source.initial_weights(names))
        share, device = len(onx) <= LIGHT, self._device_at_hand()
        session = (cached_session if share else open_session)(onx, device, 1, thorough=False)
        outputs = dict.fromkeys([model.output, model.scores or model.output])
        found = self._run_chunks(session, feeds, list(outputs), known)
        columns = {name: y.reshape(len(y), -1) for name, y in found.items()}
        if source.original is not None:
            self._compare_with_onnx(columns, source.original, feeds)
        else:
            self._compare_with_estimator(columns, partial(answer, source.estimator, X, source.answers))
        if key is not None:
            AGREED.keep(key, True)

    def _compare_with_onnx(
        self, found: Mapping[str, np.ndarray], original: bytes, feeds: Mapping[str, np.ndarray]
    ) -> None:
        """Compare outputs on some rows with those of the ONNX model as it came."""
        expected, name = answers_of_onnx(original, feeds), self._source.model.output
        if name in expected:
            rough, what = is_rough(original), f"the output {name!r}"
            check_numbers(what, found[name], expected[name], _OTHER_OUTPUT, error=ModelError, rough=rough)
        labels = [y for y in expected.values() if y.dtype.kind != "f"]
        if len(labels) == 1:
            self._compare_with_labels(found, labels[0], rough=is_rough(original))

    def _compare_with_labels(self, found: Mapping[str, np.ndarray], labels: np.ndarray, *, rough: bool) -> None:
        """Compare predictions on some rows with the labels of an ONNX model as it came."""

    @abstractmethod
    def _compare_with_estimator(self, found: Mapping[str, np.ndarray], ask: Callable[[str], Any]) -> None:
        """Compare outputs on some rows with the results of methods of the estimator."""

    def _check_estimator(self, estimator: Any, X: Any) -> None:
        """Raise an error if the estimator does not accept y, or was fitted on other targets."""

    def _rows_for_estimator(self, X: Any, y: np.ndarray, weight: np.ndarray | None) -> tuple[Any, Any, Any]:
        """Return the rows on which an estimator that is not fitted is fitted."""
        return X, y, weight

    def _prepare_objective(self) -> None:
        names, model = tuple(self._state.weights), self._source.model
        self._constants = learned_constants(model, names)
        for name in self.penalty or {}:
            if name not in names:
                raise WeightError(f"The penalty is on {name!r}, which is not trained. {did_you_mean(name, names)}")
        whole = Objective(
            model=without_weights(model, (*names, *self._constants)),
            output=model.output,
            loss=self.loss,
            weights=names,
            constants=tuple(self._constants),
            loss_params=tuple(sorted((self.loss_params or {}).items())),
            penalized=tuple(name for name in names if name in model.penalized),
            classifies=self._classifies,
            multilabel=self._n_labels > 0,
            output_is=("scores" if model.link is Link.IDENTITY else "probabilities") if self._classifies else None,
        )
        if getattr(self, "_whole", None) != whole:
            self._whole = self._objective = whole
            self._front: Cut | None = None

    def _cut(self, data: TrainingData, n_epochs: int) -> TrainingData:
        """Compute the frozen front once, if that pays; return the rows of the rest."""
        self._front, self._objective = None, self._whole
        found = cut(self._whole, data, n_epochs, self._place(data), by_name=self._named)
        if found is not None:
            self._front, data = found
            self._objective = self._front.objective
        return data

    def _place(self, data: TrainingData) -> Place:
        return Place(find_device("cpu") if has_texts(data) else self._device_at_hand(), self.n_threads)

    def _sample_weights(self, y: np.ndarray, sample_weight: np.ndarray | None) -> np.ndarray | None:
        return sample_weight

    def _whole_data(self, X: Any, y: np.ndarray, weight: np.ndarray | None) -> TrainingData:
        column = None if weight is None else np.ascontiguousarray(weight, dtype=self._real).reshape(-1, 1)
        dtypes = dict(self._source.model.features)
        return TrainingData(self._feeds(X), self._encode_target(y), column, dtypes, self._constants)

    def _training_data(self, X: Any, y: np.ndarray, weight: np.ndarray | None) -> TrainingData:
        """Return rows for the objective, with the frozen front computed."""
        data = self._whole_data(X, y, weight)
        if self._front is None:
            return self._cut(data, 1) if has_texts(data) else data
        return self._front.apply(data, self._place(data))

    def _check_validation(self, X: Any, y: Any, sample_weight: Any) -> TrainingData | None:
        if X is None and y is None:
            return None
        if X is None or y is None:
            raise DataError("X_val and y_val go together: one of them is missing.")
        X, y = self._check_X_y(X, y, reset=False)
        weight = check_sample_weight(sample_weight, y, self._real)
        return self._training_data(X, y, self._sample_weights(y, weight))

    @as_data_error()
    def _hold_out(self, data: TrainingData, y: np.ndarray) -> tuple[TrainingData, TrainingData]:
        train, held_out = train_test_split(
            data.rows,
            test_size=self.validation_fraction,
            random_state=self._random_state,
            stratify=y[data.rows] if self._classifies and not self._n_labels else None,
        )
        return data.subset(train), data.subset(held_out)

    def _train(self, fit: Fit, n_epochs: int, listeners: Sequence[Listener] = ()) -> Self:
        """Run the solver; leave the best or last finite weights in place, even after an exception."""
        try:
            with reporter(self.verbose, n_epochs) as report:
                outcome = fit.run(n_epochs, (report, *listeners))
        finally:
            self._finish()
        if outcome.rise is not None:
            warnings.warn(
                f"The loss rose from {outcome.rise.first:.3g} to {outcome.rise.last:.3g}; the learning rate of the "
                f"last step was {self._state.learning_rate:.3g}. {outcome.rise} Lower learning_rate, scale the data, "
                "or set clip_norm.",
                ConvergenceWarning,
                stacklevel=4,
            )
        elif not outcome.interrupted:
            self._warn_of_the_length(fit)
        if outcome.interrupted:
            warnings.warn(
                f"Training was interrupted in epoch {self._state.epoch + 1}; "
                "the estimator has the best weights so far.",
                UserWarning,
                stacklevel=4,
            )
        return self

    def _warn_of_the_length(self, fit: Fit) -> None:
        """Warn, as scikit-learn does, if max_iter has ended a fit whose loss was still falling.

        A fine-tuning of few epochs, and a fit whose learning rate was planned to its end, is as long as it was meant.
        """
        if self._state.stopped or (self.init != "random" and self.max_iter < _MANY_EPOCHS):
            return
        fall = last_fall(self._state, self.n_iter_no_change)
        by_steps = fit.settings.optimizer is not None
        if fall <= self.tol or (by_steps and fit.settings.schedule.has_length):
            return
        warnings.warn(
            f"max_iter={self.max_iter} was reached and the loss still fell, by {fall:.3g} in the last "
            f"{self.n_iter_no_change} epochs. Raise max_iter{' or learning_rate' * by_steps}, or scale the data.",
            ConvergenceWarning,
            stacklevel=5,
        )

    def _finish(self) -> None:
        """Set the learned attributes from the state; it shares `weights_`: training continues from changes there."""
        state = self._state
        result = dict(state.result())
        state.best_weights = result if state.watched and state.best_weights is not None else None
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
