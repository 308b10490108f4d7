"""The base class of both estimators: ``fit``, ``partial_fit``, the trained model."""

from __future__ import annotations

import copy
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import onnx
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import Tags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from onnxtrain.convert import ConvertsToOnnx
from onnxtrain.convert.entrance import Entrance
from onnxtrain.convert.head import head_weights
from onnxtrain.convert.labels import with_labels
from onnxtrain.errors import ConversionError, DataError, ExportError, OnnxTrainError, ParameterError
from onnxtrain.estimators import step_files
from onnxtrain.estimators.agreement import check_start, settled
from onnxtrain.estimators.arrays import as_array
from onnxtrain.estimators.callbacks import (
    CallbackSupportMixin,
    FitTask,
    is_part_of_more,
    reporter,
    warn_of,
    with_callbacks,
)
from onnxtrain.estimators.checkpoint import Checkpoint
from onnxtrain.estimators.division import divisions, is_divisible, refusal
from onnxtrain.estimators.frames import InputForm, Rows, in_order, warn_of_unknown
from onnxtrain.estimators.lora import LoRA, adapted
from onnxtrain.estimators.positions import check_axes, check_class_axis, has_positions, row_weights
from onnxtrain.estimators.preprocessing import PreprocessedForm, check_agreement, is_of_objects, rounds
from onnxtrain.estimators.protocols import ArrayLike, Estimator, Features, Model, OnnxModel, is_frame, is_onnx
from onnxtrain.estimators.settings import HALVES, objective_of, settings_of
from onnxtrain.estimators.source import (
    Reading,
    Source,
    check_source,
    fitted_on,
    frozen_layers,
    is_fitted,
    layout_of,
    opened,
    source_of,
    takes_sparse,
    thawed,
    warn_of_quantized,
    warn_of_stored_targets,
    with_head,
)
from onnxtrain.estimators.targets import LabelDecoder
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.estimators.validation import (
    allows_nan,
    as_data_error,
    check_no_inputs,
    check_sample_weight,
    unchanged_on_error,
)
from onnxtrain.graph import FLOATS, write_model
from onnxtrain.losses.link import Link
from onnxtrain.optim import Optimizer, Schedule
from onnxtrain.registry import did_you_mean
from onnxtrain.training.data import TrainingData
from onnxtrain.training.model import (
    TrainableModel,
    choose_weights,
    draw_weights,
    learned_constants,
)
from onnxtrain.training.settings import Settings
from onnxtrain.training.state import Listener, TrainingState, Weights
from onnxtrain.training.train import Fit


def _holds_estimator(estimator: OrtGradientEstimator) -> bool:
    """Whether an estimator is fitted, and has trained an estimator of scikit-learn."""
    return estimator.__sklearn_is_fitted__() and estimator._trained.source.estimator is not None


class OrtGradientEstimator(ConvertsToOnnx, CallbackSupportMixin, BaseEstimator, ABC):
    """Base class of the estimators; the parameters are documented there."""

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

    #: The number of labels for multilabel targets, else 0.
    _n_labels = 0

    #: The kind of the output according to the user; a parameter of the classifier, as is the next.
    output_is: str | None = None

    #: The axis of the classes of an output with positions, according to the user.
    class_axis: int | None = None

    #: A weight of each class, learned from the labels of positions; empty for equal ones.
    _class_weights = np.empty(0)

    @property
    @abstractmethod
    def _classifies(self) -> bool:
        """Whether targets are classes."""

    @abstractmethod
    def _default_estimator(self) -> BaseEstimator:
        """Return the estimator that ``estimator=None`` stands for."""

    @abstractmethod
    def _check_y(self, y: np.ndarray, *, reset: bool) -> np.ndarray:
        """Return targets of the right kind; with `reset` set the attributes that say which kind they are."""

    @abstractmethod
    def _check_positions(self, y: ArrayLike, *, reset: bool) -> np.ndarray:
        """Return targets with a label, or a value, for each position of a row."""

    @abstractmethod
    def _n_outputs(self, y: np.ndarray) -> int:
        """Return the number of outputs that a new head has."""

    @abstractmethod
    def _learn_target(self, y: np.ndarray, source: Source) -> None:
        """Set the attributes that are learned from y, besides the weights."""

    @abstractmethod
    def _encode_target(self, y: np.ndarray, model: TrainableModel) -> np.ndarray:
        """Return y as the label of the loss: (n, k), int64 (n, 1), or with an axis for each of the positions."""

    def _check_estimator(self, estimator: Estimator, X: Features) -> None:
        """Raise an error if the estimator does not accept y, or was fitted on other targets."""

    def _rows_for_estimator(self, rows: Rows) -> Rows:
        """Return the rows on which an estimator that is not fitted is fitted."""
        return rows

    def _sample_weights(self, y: np.ndarray, sample_weight: np.ndarray | None) -> np.ndarray | None:
        """Return the sample weights, those of the classes among them."""
        return sample_weight

    def _decoder(self, link: Link) -> LabelDecoder | None:
        """Return how scores become labels; None for a regressor."""
        return None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self._default_estimator() if self.estimator is None else self.estimator)
        tags.input_tags.allow_nan = allows_nan(self.estimator)
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_trained")

    # fit --------------------------------------------------------------------

    @with_callbacks
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: ArrayLike | None = None,
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
            For an ONNX model with several inputs :class:`~onnxtrain.Inputs`, a mapping or a frame with their names;
            here and in all other methods.
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
        settings = self._check(X)
        file = Checkpoint(self, checkpoint, every, resume)
        known = self._trained if self.warm_start and self.__sklearn_is_fitted__() else None
        with unchanged_on_error(self):
            self._random_state = file.rng_at("start", check_random_state(self.random_state))
            rows, model, state = self._first(X, y, sample_weight, known)
            model, data = model.cut(self._data(model, rows), self.max_iter)
            validation = self._validation_data(model, X_val, y_val, sample_weight_val)
            self._random_state = file.rng_at("split", self._random_state)
            if validation is None and self.early_stopping:
                data, validation = self._hold_out(data, rows.y)
            start = state.so_far()
            killed = file.restored(model, data, validation)
            if killed is None:
                state.begin(validated=validation is not None, weighted=data.weight is not None)
            else:
                model, state, self._random_state = killed
        task = FitTask(self, X, y, sample_weight, model, state)
        listeners: list[Listener] = [task.after_epoch, partial(file.after_epoch, model, state)]
        if callback is not None:
            listeners.insert(1, callback)  # the file is written after it
        fit = Fit(model.rest, data, validation, settings, state, start, self._random_state)
        self._train(model, fit, self.max_iter, *listeners)
        task.end()
        file.check_written()
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
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

    def _partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        settings = self._check(X)
        known = self._trained if self.__sklearn_is_fitted__() else None
        with unchanged_on_error(self):
            if known is None:
                self._random_state = check_random_state(self.random_state)
            rows, model, state = self._first(X, y, sample_weight, known)
            model, data = model.cut(self._data(model, rows), 1)
        state.begin(validated=False, weighted=data.weight is not None, one_epoch=True)
        fit = Fit(model.rest, data, None, settings, state, state.so_far(), self._random_state)
        return self._train(model, fit, n_epochs=1)

    def _check(self, X: ArrayLike | None = None) -> Settings:
        """Check every parameter that can be checked without data; a message may say how rows like `X` are used."""
        settings = settings_of(self)
        if not is_onnx(self.estimator):
            check_no_inputs(self)
        if self.estimator is not None:
            check_source(self.estimator, X, classifies=self._classifies if self.output is None else None)
        return settings

    @property
    def _real(self) -> str:
        """The type of rows, weights and all that is no product."""
        return "float32" if self.dtype in HALVES else self.dtype

    def _first(
        self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None, known: TrainedModel | None
    ) -> tuple[Rows, TrainedModel, TrainingState]:
        """Return the rows, checked, and the model with its state before the first step.

        An estimator that ONNX does not compute as scikit-learn does is divided: scikit-learn runs the steps in front.
        """
        if known is not None:
            rows = self._check_rows(X, y, sample_weight, known)
            if known.form.front is None:
                known.form.warn_of_rounding(known.form.exact(X, rows.X))
            return rows, *self._go_on(known)
        X = as_array(X) if hasattr(X, "detach") else X  # a tensor
        if is_onnx(self.estimator):
            return self._first_of_onnx(X, y, sample_weight, self.estimator)
        refused: Exception | None = None
        if not (is_of_objects(X) and is_divisible(self.estimator)):
            try:
                rows = self._check_rows(X, y, sample_weight, None)
                own = self._default_estimator() if self.estimator is None else self.estimator
                model, state = self._begin(rows, own)
                if not rounds(model.source.estimator, X):
                    rows.form.warn_of_rounding(rows.exact)
                    return rows, model, state
            except Exception as e:  # of any class: steps of others ask for columns by name, the whole got an array
                ours = isinstance(e, OnnxTrainError) and not isinstance(e, (ConversionError, DataError))
                if ours or not is_divisible(self.estimator):
                    raise
                refused = e
        return self._divided(X, y, sample_weight, refused)

    def _first_of_onnx(
        self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None, model: OnnxModel
    ) -> tuple[Rows, TrainedModel, TrainingState]:
        """Return the rows, checked, and an ONNX model with its state before the first step."""
        path = model
        model, _held = opened(path, self._real)
        layout = layout_of(path) if self.head == "keep" else {}  # the file is there
        entrance = Entrance.of(model, self.inputs, self.batch_axis, self.output)
        form = InputForm.of_onnx(X, entrance, self._real, self.pad)
        rows = self._check_rows(X, y, sample_weight, None, form)
        trained, state = self._begin(rows, model, entrance)
        warn_of_unknown(X, entrance.shapes)
        form.warn_of_rounding(rows.exact)
        if self.weights_to_train is None or str(self.weights_to_train) == "all":
            warn_of_quantized(trained.source.model)
        return rows, replace(trained, source=replace(trained.source, layout=layout)), state

    def _divided(
        self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None, refused: Exception | None
    ) -> tuple[Rows, TrainedModel, TrainingState]:
        """Return the rows as the steps in front transform them, and the model of the steps behind.

        The largest part that ONNX computes is trained; `refused` is the reason why it is not the whole.
        """
        with as_data_error():
            fitted = fitted_on(
                self.estimator,
                (X, y, sample_weight),
                structure_only=self.init == "random",
                random_state=self._random_state,
            )
        whole = thawed(fitted)
        for division in divisions(whole, self.weights_to_train):
            form = PreprocessedForm.of_division(division, self._real)
            try:
                rows = self._check_rows(X, y, sample_weight, None, form)
                if division.inside:
                    check_agreement(division, X)
                model, state = self._begin(rows, division.tail)
                if division.inside or not rounds(division.tail, rows.exact):
                    return rows, model, state
            except DataError as e:  # categories, which the last step may encode itself
                refused = e
            except ConversionError as e:
                refused = ConversionError(f"{division.path}: {e}")
                refused.__cause__ = e.__cause__
        raise refusal(whole, refused)

    def _check_rows(
        self,
        X: Features,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        model: TrainedModel | None,
        form: InputForm | None = None,
    ) -> Rows:
        """Return checked rows for a model; for None they are the first that the estimator sees, in this form."""
        if y is None:  # scikit-learn's words
            raise DataError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        y = as_array(y, "y") if hasattr(y, "detach") else y  # a tensor
        reset = model is None
        if model is not None:
            form = model.form
        elif form is None:
            form = InputForm.of(X, self.estimator, self._real)
        names = getattr(self.estimator, "feature_names_in_", None)
        if reset and names is not None and is_frame(X):
            X = in_order(X, names, self.estimator)
        original = None if model is None else model.source.estimator
        if self._has_positions(y, model):
            y = self._check_positions(y, reset=reset)
            rows, _ = form.check(self, X, np.zeros(len(y)), original, reset=reset, numeric=False)
            weight = check_sample_weight(sample_weight, y, self._real)
        else:
            rows, y = form.check(self, X, y, original, reset=reset, numeric=not self._classifies)
            y = self._check_y(y, reset=reset)
            weight = self._sample_weights(y, check_sample_weight(sample_weight, y, self._real))
        return Rows(rows, y, weight, form, form.exact(X, rows) if reset else rows)

    def _has_positions(self, y: ArrayLike, model: TrainedModel | None) -> bool:
        """Whether y has a label for each position of a row; for None, as the model says that was handed over."""
        if model is not None:
            return model.layout.positional
        if self.estimator is None or not is_onnx(self.estimator):
            return False
        return has_positions(y, self.estimator, self.output, may_be_labels=self.features is None)

    def _begin(
        self, rows: Rows, estimator: Any, entrance: Entrance | None = None
    ) -> tuple[TrainedModel, TrainingState]:
        """Return the model that was handed over, ready to be trained, and its state; one that is not fitted is."""
        output = self.output
        if self.head == "new":
            n_outputs = self._n_outputs(rows.y)
            estimator, output = with_head(estimator, n_outputs, self.features, output, self._random_state)
        given, exact = (rows, rows.X) if is_onnx(estimator) else self._rows_of(estimator, rows)
        positional = is_onnx(estimator) and self._has_positions(rows.y, None)
        target = rows.y.shape[1:] if positional else None
        reading = Reading(self._real, output, self._n_labels, self._classifies, self.output_is, target, self.class_axis)
        source = source_of(
            estimator,
            exact,
            given[:3],
            reading,
            self.weights_to_train,
            structure_only=self.init == "random",
            random_state=self._random_state,
            entrance=entrance,
        )
        rows.form.check_shape(rows.X, source.model.shapes)
        known = settled(source, rows.X, rows.form, reading)
        if is_onnx(estimator):
            check_axes(known.model, rows.y, positional=positional)
        check_class_axis(known.model, self.class_axis)
        if known is not source and self.verbose and self._classifies:
            kind = "scores" if known.model.link is Link.IDENTITY else "probabilities"
            print(f"The output {known.model.output!r} is taken for {kind}, as the rows show.")
        if self.verbose and (layers := frozen_layers(known.model)):
            print(f"{layers}, in training as in predictions.")
        if self.weights_to_train is None:
            warn_of_stored_targets(estimator)
        return self._with_initial_weights(known, rows._replace(exact=exact), target)

    def _rows_of(self, estimator: Estimator, rows: Rows) -> tuple[Rows, Features]:
        """Return the rows that an estimator is fitted on, if it is not, and those that its graph is compared on."""
        if not is_fitted(estimator):
            self._check_estimator(estimator, rows.X)
            return self._rows_for_estimator(rows), rows.X
        if hasattr(estimator, "n_features_in_"):
            wanted = {"X": (None, estimator.n_features_in_)}
            rows.form.check_shape(rows.X, wanted, f"{type(estimator).__name__} was fitted on")
        self._check_estimator(estimator, rows.exact)
        return rows, rows.exact

    def _with_initial_weights(
        self, source: Source, rows: Rows, target: tuple[int, ...] | None
    ) -> tuple[TrainedModel, TrainingState]:
        """Return a model with the weights it came with, or weights drawn anew, and the state before the first step."""
        self._learn_target(rows.y, source)
        model = source.model
        wanted = self.weights_to_train
        if isinstance(wanted, LoRA):
            model, given = adapted(model, wanted, head=self.head == "new", random_state=self._random_state)
            source = replace(source, model=model)
        else:
            if wanted == "head":
                wanted = head_weights(model.graph(), model.scores or model.output)
            given = source.initial_weights(choose_weights(model, wanted, converted=source.original is None))
        trained = self._with_objective(source, given, rows.form)
        check_start(trained, rows.exact, self._decoder(model.link), target)
        weights = trained.weights
        if self.init == "random":
            weights = draw_weights(weights, model.penalized, self._random_state)
        return replace(trained, source=replace(source, answers={}, agreed=set())), TrainingState(weights)

    def _go_on(self, known: TrainedModel) -> tuple[TrainedModel, TrainingState]:
        """Return the trained model, its objective that of the parameters as they are now, and its state."""
        return self._with_objective(known.source, known.weights, known.form), self._state

    def _with_objective(self, source: Source, weights: Weights, form: InputForm) -> TrainedModel:
        """Return a model with the objective that the parameters describe."""
        constants = learned_constants(source.model, tuple(weights))
        objective = objective_of(self, source.model, tuple(weights), tuple(constants))
        return TrainedModel(source, objective, constants, dict(weights), form, self._real, self.device, self.n_threads)

    def _data(self, model: TrainedModel, rows: Rows) -> TrainingData:
        label, weight = self._encode_target(rows.y, model.source.model), rows.weight
        if model.layout.positional:
            weight = row_weights(label, self._class_weights, weight)
        return model.data(rows.X, label, weight)

    def _validation_data(
        self, model: TrainedModel, X: ArrayLike | None, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> TrainingData | None:
        if X is None and y is None:
            return None
        if X is None or y is None:
            raise DataError("X_val and y_val go together: one of them is missing.")
        rows = self._check_rows(X, y, sample_weight, model)
        return model.behind_front(self._data(model, rows))[1]

    @as_data_error()
    def _hold_out(self, data: TrainingData, y: np.ndarray) -> tuple[TrainingData, TrainingData]:
        train, held_out = train_test_split(
            data.rows,
            test_size=self.validation_fraction,
            random_state=self._random_state,
            stratify=y[data.rows] if self._classifies and y.ndim == 1 else None,
        )
        return data.subset(train), data.subset(held_out)

    def _train(self, model: TrainedModel, fit: Fit, n_epochs: int, *listeners: Listener) -> Self:
        """Run the solver; leave the best or last finite weights in place, even after an exception."""
        try:
            with reporter(self.verbose, n_epochs) as report:
                outcome = fit.run(n_epochs, (report, *listeners))
        finally:
            self._finish(model, fit.state)
        if outcome.interrupt is not None and (self.on_interrupt == "raise" or is_part_of_more()):
            raise outcome.interrupt
        warn_of(outcome, fit, self)
        return self

    def _finish(self, model: TrainedModel, state: TrainingState) -> None:
        """Set the learned attributes from the state; it shares `weights_`: training continues from changes there."""
        # weights that are held beside a model are those it came with
        result = {name: w if w.flags.writeable else w.copy() for name, w in state.result().items()}
        state.best_weights = result if state.validated and state.best_weights is not None else None
        state.weights = result if state.average is None else dict(state.weights)  # training leaves the mean alone
        self._trained, self._state = model.with_weights(result), state
        self.loss_curve_ = list(state.loss_curve)
        self.validation_loss_curve_ = list(state.validation_loss_curve)
        self.best_loss_ = state.best_loss
        self.best_iteration_ = state.best_epoch
        self.n_iter_ = state.epoch

    # the trained model ------------------------------------------------------

    @property
    def _model(self) -> TrainedModel:
        """The trained model, run as the parameters say now."""
        if not self.__sklearn_is_fitted__():  # the check takes a tenth of a small prediction
            check_is_fitted(self)
        self._trained = self._trained.on(self.device, self.n_threads)
        return self._trained

    @property
    def weights_(self) -> dict[str, np.ndarray]:
        """The trained weights, a dictionary of arrays by name; training goes on from changes there."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"{type(self).__name__} has weights_ once it is fitted.")
        return self._trained.weights

    @property
    def coef_(self) -> np.ndarray:
        """The coefficients, in the shape of the estimator that was trained."""
        return self._trained_attribute("coef_")

    @property
    def intercept_(self) -> Any:
        """The intercepts, in the shape of the estimator that was trained."""
        return self._trained_attribute("intercept_")

    def _trained_attribute(self, name: str) -> Any:
        estimator = self._trained.source.estimator if self.__sklearn_is_fitted__() else None
        if not hasattr(estimator, name):
            raise AttributeError(f"{type(self).__name__} has {name} once it has trained an estimator that has.")
        return getattr(self.to_sklearn(), name)

    def get_trained_onnx(
        self, part: str = "whole", *, labels: bool = False, path: str | os.PathLike[str] | None = None
    ) -> onnx.ModelProto:
        """Return the model with the trained weights: the inputs and outputs it came with, labels included.

        It predicts as the estimator, up to the rounding of its type.

        Parameters
        ----------
        part : {"whole", "tail"}
            ``"tail"``: the graph alone, without the steps of a pipeline in front of it that scikit-learn runs
            (:attr:`onnx_status_`); its rows are what these steps return.
        labels : bool
            Of a classifier that came as ONNX: the outputs are ``label``, texts or int64, and ``probabilities`` (n, K),
            or ``scores`` where the loss has no probabilities; a model that gives labels already has its own.
        path : path, optional
            Where the model is written to as well. Weights that came in files beside the model are written to files of
            the same names there; where another model has such a file, the new one's begins with the name of the model.

        Returns
        -------
        onnx.ModelProto

        Raises
        ------
        ExportError
            ONNX does not run all steps of the pipeline as scikit-learn does.
        FileError
            The file cannot be written.
        """
        if part not in ("whole", "tail"):
            raise ParameterError(f"part is 'whole' or 'tail', got {part!r}. {did_you_mean(part, ('whole', 'tail'))}")
        model = self._model
        if part == "whole":
            model.form.check_whole()
        wanted = self.weights_to_train
        onx = model.to_onnx(merge=not isinstance(wanted, LoRA) or wanted.merge)
        onx = self._with_labels(onx) if labels else onx
        if path is not None:
            write_model(onx, path, model.source.layout)
        return onx

    def _with_labels(self, onx: onnx.ModelProto) -> onnx.ModelProto:
        """Return the trained model with the labels of a classifier, and probabilities."""
        read = self._trained.source.model
        decoder = self._decoder(read.link)
        if decoder is None:
            raise ParameterError("labels=True is for classifiers: a regressor has no labels.")
        has_labels = any(y.type.tensor_type.elem_type not in FLOATS for y in onx.graph.output)
        if read.classes is not None or (self._trained.source.original is None and has_labels):
            return onx
        if read.layout.positional:
            raise ExportError(
                "labels=True is for a label a row; this output has one for each position: the largest along axis "
                f"{read.class_axis} of get_trained_onnx()."
            )
        return with_labels(
            onx,
            output=read.output,
            n_columns=read.width,
            scores=read.scores,
            n_scores=read.n_scores,
            link=read.link,
            classes=decoder.classes,
            n_labels=decoder.n_labels,
            likely=decoder.likely,
        )

    @property
    def front_(self) -> Pipeline | None:
        """The fitted steps that scikit-learn runs, as a pipeline that transforms rows; None if there are none."""
        return self._model.form.front

    @property
    def onnx_status_(self) -> dict[str, str]:
        """``"ONNX"`` or ``"scikit-learn"``, whichever runs a step, by the name of the step; one step for a model."""
        return self._model.form.runs(self._trained.source.estimator)

    @available_if(_holds_estimator)
    def _sk_visual_block_(self) -> Any:
        """Return the diagram of scikit-learn, in which the steps are in two parts, by that which runs them."""
        model = self._trained
        front = [] if model.form.front is None else [("scikit-learn", model.form.front)]
        trained = clone(model.source.estimator)  # without attributes, which would be those before training
        steps = trained if isinstance(trained, Pipeline) else make_pipeline(trained)
        return Pipeline([*front, ("ONNX", steps)])._sk_visual_block_()

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
        return self._model.to_sklearn()

    def export_training_step(self, folder: str | os.PathLike, *, target: str = "cpu") -> None:
        """Write the training step to files that any onnxruntime runs: in a browser, on a telephone, on another server.

        ``step.onnx`` is a step of training from where the estimator stands (``fit`` with ``max_iter=0`` for the start):
        rows, ``y``, the sample weights if the last fit had some, ``learning_rate`` and the state go in; ``loss`` and
        the next state come out. The only rule a runner needs: what ``next_S`` gives is fed to ``S``.

        * ``init.onnx`` has no inputs; it returns the state, with the step number ``step``.
        * ``before.onnx``, if there is a part of the model in front of the trained weights, is run once a row: its
          outputs are the rows of the step.
        * ``predict.onnx`` is the whole model; it reads its weights from the state.
        * ``step.json`` says which value is which, the classes that the labels 0, 1, ... stand for, the label of a
          position without one (``no_label``: -1, in a regression ``"NaN"``; ``ignore_index`` is not fed), the parts of
          packed state, and what is left to the host: the schedule of the learning rate, shuffling, stopping.

        Penalties, clipping and the optimizer are in the graph; the batch may have any size. If rows have positions, the
        weight of one is the number of those that count, times its sample weight; a label of -1, or NaN, does not count.

        Parameters
        ----------
        folder : path
            Made if it is missing; files of these names are replaced.
        target : {"cpu", "webgpu"}
            ``"cpu"`` runs everywhere, WebAssembly too; on the rows of ``fit``, at its learning rates, the weights are
            those of ``fit``, bit by bit. ``"webgpu"`` is for GPUs: no float64, each weight for itself.

        Raises
        ------
        ExportError
            The solver has no steps (``"lbfgs"``), the rows are sparse or texts, scikit-learn runs a part of the
            pipeline, or the target lacks an operator.
        FileError
            The folder cannot be written.

        Examples
        --------
        >>> import os, tempfile
        >>> import numpy as np, onnxruntime
        >>> from onnxtrain import OrtGradientRegressor
        >>> X, y = np.array([[0.0], [1.0], [2.0]], np.float32), np.array([1.0, 3.0, 5.0], np.float32)
        >>> line = OrtGradientRegressor(solver="sgd", init="random", max_iter=0).fit(X, y)
        >>> folder = tempfile.mkdtemp()
        >>> line.export_training_step(folder)
        >>> files = [os.path.join(folder, f"{name}.onnx") for name in ("step", "init")]
        >>> step, init = map(onnxruntime.InferenceSession, files)
        >>> state = dict(zip([o.name for o in init.get_outputs()], init.run(None, {})))
        >>> names = [o.name for o in step.get_outputs()]
        >>> for _ in range(100):
        ...     found = step.run(None, {"X": X, "y": y, "learning_rate": np.array([0.1]), **state})
        ...     state = {name.removeprefix("next_"): x for name, x in zip(names, found) if name != "loss"}
        >>> line.load_training_state(state).predict([[3.0]]).round(3).tolist()
        [7.0]
        """
        check_is_fitted(self)
        step_files.write(folder, self, target)

    def load_training_state(self, state: str | os.PathLike | Mapping[str, ArrayLike]) -> Self:
        """Go on from the state that the files of :meth:`export_training_step` have reached elsewhere.

        Afterwards ``predict``, ``to_sklearn``, ``partial_fit`` and another export begin there. Curves of the loss stay
        those of the fits in this process.

        Parameters
        ----------
        state : mapping of str to array-like, or path
            The arrays by the names of ``init.onnx``; or a file, ``.npz`` of numpy or ``.onnx`` of the runner for
            JavaScript; or a folder with ``state.npz`` or ``state.onnx``.

        Returns
        -------
        self

        Raises
        ------
        DataError
            A name or a shape is not that of the step of this estimator, or a value is not finite.
        """
        check_is_fitted(self)
        self._finish(*step_files.read(state, self))
        return self

    def losses(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> np.ndarray:
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
        model, (X, label) = self._model, self._check_labelled(X, y)
        weight = check_sample_weight(sample_weight, label, self._real, keep=True)
        losses = model.losses(X, label)
        return losses if weight is None else losses * weight

    def gradient(self, X: ArrayLike, y: ArrayLike | None = None, wrt: str = "X") -> np.ndarray:
        """Return the gradient with respect to the rows.

        If scikit-learn runs the first steps of a pipeline (:attr:`onnx_status_`), with respect to what these return.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like, optional
            With it, the gradient of the loss of each row; without, of each score (of a
            classifier) or output.
        wrt : str
            ``"X"``, or the name of an input of the model.

        Returns
        -------
        ndarray of shape (n_samples, n_features) or (n_samples, n_features, n_scores)
            The last axis is present for several scores without y.

        Examples
        --------
        >>> import numpy as np
        >>> from onnxtrain import OrtGradientRegressor
        >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> model = OrtGradientRegressor(solver="lbfgs", dtype="float64").fit(X, [3.0, 2.0, 5.0])
        >>> model.gradient(X[:1]).round(6)
        array([[2., 3.]])
        """
        model = self._model
        if y is None:
            return model.score_gradient(model.check(self, X), wrt)
        return model.loss_gradient(*self._check_labelled(X, y), wrt)

    def embed(self, X: ArrayLike, output: str) -> np.ndarray:
        """Return an intermediate result of the trained model, such as a hidden layer.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        output : str
            The name of a result in :meth:`get_trained_onnx`.

        Returns
        -------
        ndarray
            One entry per row, along the first axis.

        Raises
        ------
        ModelError
            There is no such result.
        """
        return self._model.embed(self._model.check(self, X), output)

    def _check_labelled(self, X: ArrayLike, y: ArrayLike) -> tuple[Any, np.ndarray]:
        """Return checked rows and their labels for the loss."""
        model = self._model
        rows = self._check_rows(X, y, None, model)
        return rows.X, self._encode_target(rows.y, model.source.model)

    def _predicted(self, X: ArrayLike, output: str, read: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return an output of the trained model for rows, passed through `read`.

        The output is float32 for float32 rows and float64 for all others, as of scikit-learn's estimators.
        """
        dtype = np.dtype(np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64)
        model = self._model
        parts = [read(found.astype(dtype, copy=False)) for found in model.predict(model.check(self, X), output)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    # copies -----------------------------------------------------------------

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy; an estimator inside that is fitted stays fitted, to be fine-tuned."""
        copied = super().__sklearn_clone__()
        if self.estimator is not None and not is_onnx(self.estimator) and is_fitted(self.estimator):
            copied.estimator = copy.deepcopy(self.estimator)
        return copied
