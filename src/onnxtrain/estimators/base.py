"""The base class of both estimators: ``fit``, ``partial_fit``, the trained model."""

from __future__ import annotations

import copy
import html
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Self

import numpy as np
import onnx
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import Tags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from onnxtrain import __version__
from onnxtrain.arguments import NamesItsParameters, names_its_arguments
from onnxtrain.convert import ConvertsToOnnx
from onnxtrain.errors import DataError, ParameterError, warn
from onnxtrain.estimators import step_files
from onnxtrain.estimators.callbacks import (
    CallbackSupportMixin,
    FitTask,
    check_callback,
    ending,
    is_part_of_more,
    reporter,
    warn_of,
    with_callbacks,
)
from onnxtrain.estimators.checkpoint import Checkpoint
from onnxtrain.estimators.frames import Rows
from onnxtrain.estimators.given import at_hand, features_of, given, hold_out, joined, labelled
from onnxtrain.estimators.graphs import training_graphs
from onnxtrain.estimators.history import History, history_of
from onnxtrain.estimators.lora import LoRA
from onnxtrain.estimators.positions import row_weights
from onnxtrain.estimators.protocols import ArrayLike, Estimator, Features, Model, is_fitted, is_onnx, takes_sparse
from onnxtrain.estimators.rows import check_rows
from onnxtrain.estimators.settings import floats_of, settings_of
from onnxtrain.estimators.source import Source, check_source
from onnxtrain.estimators.summary import Summary, summary_of
from onnxtrain.estimators.targets import LabelDecoder
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.estimators.validation import (
    allows_nan,
    check_no_inputs,
    check_sample_weight,
    unchanged_on_error,
)
from onnxtrain.graph import write_model
from onnxtrain.losses.link import Link
from onnxtrain.optim import Optimizer, Schedule
from onnxtrain.registry import did_you_mean
from onnxtrain.rows.parts import Parts, is_parts
from onnxtrain.training.data import TrainingData
from onnxtrain.training.model import TrainableModel
from onnxtrain.training.parts import PartedData
from onnxtrain.training.settings import Settings
from onnxtrain.training.state import Listener, TrainingState
from onnxtrain.training.train import Fit

#: Attributes that fit sets.
_LEARNED = frozenset(
    """
    best_iteration_ best_loss_ classes_ feature_names_in_ loss_curve_ n_features_in_ n_iter_ validation_loss_curve_
    """.split()  # noqa: SIM905
)


def _holds_estimator(estimator: OrtGradientEstimator) -> bool:
    """Whether an estimator is fitted, and has trained an estimator of scikit-learn."""
    return estimator.__sklearn_is_fitted__() and estimator._trained.source.estimator is not None


class OrtGradientEstimator(ConvertsToOnnx, CallbackSupportMixin, NamesItsParameters, BaseEstimator, ABC):
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

    @abstractmethod
    def _check_estimator(self, estimator: Estimator, X: Features) -> None:
        """Raise an error if the estimator does not accept y, or was fitted on other targets."""

    @abstractmethod
    def _rows_for_estimator(self, rows: Rows) -> Rows:
        """Return the rows on which an estimator that is not fitted is fitted."""

    @abstractmethod
    def _sample_weights(
        self, y: np.ndarray, sample_weight: np.ndarray | None, counts: Mapping[Any, int] | None = None
    ) -> np.ndarray | None:
        """Return the sample weights, those of the classes among them; balanced ones by `counts`, else those of y."""

    @abstractmethod
    @abstractmethod
    def _expecting(self, classes: np.ndarray) -> AbstractContextManager[None]:
        """Let the first rows lack some of the classes while this is open; a regressor has none."""

    def _decoder(self, link: Link) -> LabelDecoder | None:
        """Return how scores become labels; None for a regressor."""

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
            For an ONNX model with several inputs :class:`~onnxtrain.Inputs`, a mapping or a frame with their names;
            here and in all other methods. Rows that do not fit in memory are given in parts, without y:
            :mod:`onnxtrain.rows`.
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
            Epochs between two files.
        resume : bool
            Go on from the file `checkpoint` where it is there, else begin: a fit that was
            killed, called again with the same rows and parameters, ends at the same bits as
            one that was not. `max_iter` may be another one. A fit that had ended is not
            run again.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ConversionError, ModelError, WeightError
            The estimator or the ONNX model cannot be trained.
        ConvergenceError
            The loss became infinite or NaN. The better weights of the start and the best epoch are in place.
        FileError
            The checkpoint could not be written at last, on a full disk for example: until then that is a warning.
            The estimator is fitted.

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
        settings = self._check(X)
        check_callback(callback)
        file = Checkpoint(self, checkpoint, every, resume)
        known = self._trained if self.warm_start and self.__sklearn_is_fitted__() else None
        with unchanged_on_error(self):
            self._random_state = file.rng_at("start", check_random_state(self.random_state))
            model, state, data = given(X, y, sample_weight).begin(self, known, self.max_iter)
            validation = self._validation_data(model, X_val, y_val, sample_weight_val)
            self._random_state = file.rng_at("split", self._random_state)
            if validation is None and self.early_stopping:
                data, validation = hold_out(self, data)
            so_far = state.so_far()
            killed = file.restored(model, data, validation)
            if killed is None:
                state.begin(validated=validation is not None, weighted=data.weighted)
            else:
                model, state, self._random_state = killed
        task = FitTask(self, X, y, sample_weight, model, state)
        listeners: list[Listener] = [task.after_epoch] if task.has_callbacks else []
        if callback is not None:
            listeners.append(callback)
        if file.path is not None:
            listeners.append(partial(file.after_epoch, model, state))
        fit = Fit(model.rest, data, validation, settings, state, so_far, self._random_state)
        self._train(model, fit, self.max_iter, *listeners)
        task.end()
        file.check_written()
        return self

    @names_its_arguments
    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on the rows for one epoch, going on from the weights and the memory of the optimizer.

        The learning rate goes on as well; a schedule that needs a length has that of ``max_iter`` calls with as
        many rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Of the features of the first call.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            As in ``fit``.
        sample_weight : array-like of shape (n_samples,), optional
            Not negative.

        Returns
        -------
        self
            After one epoch more.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(init="random", solver="sgd", learning_rate=0.5)
        >>> for _ in range(3):
        ...     line = line.partial_fit([[0.0], [1.0]], [1.0, 3.0])
        >>> line.n_iter_, len(line.loss_curve_)
        (3, 3)
        """
        return self._partial_fit(X, y, sample_weight)

    def _partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        settings = self._check(X)
        known = self._trained if self.__sklearn_is_fitted__() else None
        with unchanged_on_error(self):
            if known is None:
                self._random_state = check_random_state(self.random_state)
            model, state, data = at_hand(X, y, sample_weight).begin(self, known, 1)
        state.begin(validated=False, weighted=data.weighted, one_epoch=True)
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

    def _data(self, model: TrainedModel, rows: Rows) -> TrainingData:
        """Return checked rows as the objective of the whole model takes them."""
        label, weight = self._encode_target(rows.y, model.source.model), rows.weight
        if model.layout.positional:
            weight = row_weights(label, self._class_weights, weight)
        return model.data(rows.X, label, weight)

    def _validation_data(
        self, model: TrainedModel, X: Any, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> TrainingData | PartedData | None:
        if X is None and y is None:
            return None
        if X is None or (y is None and not is_parts(X)):
            missing = "X_val" if X is None else "y_val"
            raise DataError(f"X_val and y_val go together, {missing} is missing: fit(X, y, X_val=..., y_val=...).")
        try:
            return given(X, y, sample_weight).further(self, model)
        except DataError as e:
            raise DataError(f"The validation set, X_val and y_val: {e}") from e

    def _train(self, model: TrainedModel, fit: Fit, n_epochs: int, *listeners: Listener) -> Self:
        """Run the solver; leave the best or last finite weights in place, even after an exception."""
        try:
            with reporter(self.verbose, n_epochs, fit) as (report, reported):
                outcome = reported.run(n_epochs, (*report, *listeners))
        finally:
            fit.state.ending = ending(fit, n_epochs)
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
        """The trained weights, a dictionary of arrays by name; training goes on from changes there.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> {name: w.ravel().round(3).tolist() for name, w in line.weights_.items()}
        {'coef': [2.0], 'intercept': [1.0]}
        """
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"{type(self).__name__} has weights_ once it is fitted.")
        return self._trained.weights

    @property
    def history_(self) -> History:
        """The losses and rates by epoch, and how the last fit ended; ``history_.to_frame()`` is a pandas frame.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> def enough(info):
        ...     return info.epoch == 3
        >>> model = OrtGradientRegressor(max_iter=30).fit([[0.0], [1.0]], [0.0, 1.0], callback=enough)
        >>> model.history_
        <History of 3 epochs: stopped after 3 of 30; a callback asked for it>
        """
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"{type(self).__name__} has history_ once it is fitted.")
        return history_of(self._state)

    def summary(self) -> Summary:
        """Return a table of the layers: operators, shapes, parameters, trained or frozen, and who runs which step.

        It prints as text, and a notebook shows it as HTML.

        Returns
        -------
        Summary
            With ``layers``, ``steps``, ``n_parameters`` and ``n_trained`` as attributes.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> from onnxtrain import OrtGradientClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> start = LogisticRegression(max_iter=1000).fit(X, y)
        >>> OrtGradientClassifier(start, weights_to_train="coef", max_iter=2, random_state=0).fit(X, y).summary()
        OrtGradientClassifier of LogisticRegression, loss log
        logisticregression: ONNX
        layer      operator  weights  output  parameters  trained
        ---------------------------------------------------------
        coef       MatMul    (4, 3)   (n, 3)          12  trained
        intercept  Add       (3,)     (n, 3)           3  frozen
        ---------------------------------------------------------
        15 parameters: 12 trained, 3 frozen
        2 of 2 epochs
        """
        trained = self._model.source.estimator
        kind = "an ONNX model" if trained is None else type(trained).__name__
        loss = self.loss if isinstance(self.loss, str) else getattr(self.loss, "__name__", repr(self.loss))
        return summary_of(f"{type(self).__name__} of {kind}, loss {loss}", self._model, self.history_.ending)

    @property
    def coef_(self) -> np.ndarray:
        """The coefficients, in the shape of the estimator that was trained.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> line.coef_.round(3).tolist()
        [2.0]
        """
        return self._trained_attribute("coef_")

    @property
    def intercept_(self) -> Any:
        """The intercepts, in the shape of the estimator that was trained.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> round(float(line.intercept_), 3)
        1.0
        """
        return self._trained_attribute("intercept_")

    def _trained_attribute(self, name: str) -> Any:
        estimator = self._trained.source.estimator if self.__sklearn_is_fitted__() else None
        if estimator is None:
            raise AttributeError(
                f"{type(self).__name__} has {name} once it is fitted, and has trained an estimator of scikit-learn "
                f"with {name}; weights_ holds what any model has learned."
            )
        if not hasattr(estimator, name):
            raise AttributeError(f"{type(estimator).__name__} has no {name}: weights_ holds what was trained.")
        return getattr(self.to_sklearn(), name)

    @names_its_arguments
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
            A new one; the model that was handed over is unchanged.

        Raises
        ------
        ExportError
            ONNX does not run all steps of the pipeline as scikit-learn does.
        FileError
            The file cannot be written.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> import numpy as np, onnxruntime
        >>> session = onnxruntime.InferenceSession(line.get_trained_onnx().SerializeToString())
        >>> session.run(None, {"X": np.array([[5.0]], np.float32)})[0].round(3).tolist()
        [[11.0]]
        """
        if part not in ("whole", "tail"):
            known = did_you_mean(part, ("whole", "tail"))
            raise ParameterError(f"part is 'whole' or 'tail', got {part!r}. {known} A file is named by path=.")
        model = self._model
        if part == "whole":
            model.form.check_whole()
        wanted = self.weights_to_train
        onx = model.to_onnx(merge=not isinstance(wanted, LoRA) or wanted.merge)
        onx = model.with_labels(onx, self._decoder(model.source.model.link)) if labels else onx
        if path is not None:
            write_model(onx, path, model.source.layout)
        return onx

    @property
    def front_(self) -> Pipeline | None:
        """The fitted steps that scikit-learn runs, as a pipeline that transforms rows; None if there are none.

        Examples
        --------
        The whole pipeline is ONNX here, nothing is left in front:

        >>> from sklearn.linear_model import Ridge
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from onnxtrain import OrtGradientRegressor
        >>> model = make_pipeline(StandardScaler(), Ridge())
        >>> tuned = OrtGradientRegressor(model, max_iter=1).fit([[0.0], [1.0]], [1.0, 3.0])
        >>> tuned.front_ is None
        True
        """
        return self._model.form.front

    @property
    def onnx_status_(self) -> dict[str, str]:
        """``"ONNX"`` or ``"scikit-learn"``, whichever runs a step, by the name of the step; one step for a model.

        Examples
        --------
        >>> from sklearn.linear_model import Ridge
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from onnxtrain import OrtGradientRegressor
        >>> model = make_pipeline(StandardScaler(), Ridge())
        >>> tuned = OrtGradientRegressor(model, max_iter=1).fit([[0.0], [1.0]], [1.0, 3.0])
        >>> tuned.onnx_status_
        {'standardscaler': 'ONNX', 'ridge': 'ONNX'}
        """
        return self._model.form.runs(self._trained.source.estimator)

    @available_if(_holds_estimator)
    def _sk_visual_block_(self) -> Any:
        """Return the diagram of scikit-learn, in which the steps are in two parts, by that which runs them."""
        model = self._trained
        front = [] if model.form.front is None else [("scikit-learn", model.form.front)]
        trained = clone(model.source.estimator)  # without attributes, which would be those before training
        steps = trained if isinstance(trained, Pipeline) else make_pipeline(trained)
        return Pipeline([*front, ("ONNX", steps)])._sk_visual_block_()

    def _repr_html_inner(self) -> str:
        """Return the diagram of scikit-learn, and the summary if fitted."""
        return super()._repr_html_inner() + self._fitted_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/html": bundle["text/html"] + self._fitted_html()} if "text/html" in bundle else bundle

    def _fitted_html(self) -> str:
        """Return the summary as HTML, folded under the line that says how training ended; nothing if not fitted."""
        if not self.__sklearn_is_fitted__():
            return ""
        summary = self.summary()
        line = f"{summary.ending}; {summary.totals}"
        return f"<details><summary>{html.escape(line)}</summary>{summary._repr_html_()}</details>"

    def __dir__(self) -> list[str]:
        """Leave out the names that are not for users: the protocol of skl2onnx, parameters of the other estimator."""
        others = {"output_is", "class_axis"} - set(self._get_param_names())
        return sorted({*super().__dir__()} - others - {n for n in vars(ConvertsToOnnx) if not n.startswith("_")})

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

        Examples
        --------
        >>> from sklearn.linear_model import LinearRegression
        >>> from onnxtrain import OrtGradientRegressor
        >>> X, y = [[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]
        >>> tuned = OrtGradientRegressor(LinearRegression(), solver="lbfgs").fit(X, y)
        >>> tuned.to_sklearn(), tuned.to_sklearn().coef_.round(3).tolist()
        (LinearRegression(), [2.0])
        """
        return self._model.to_sklearn()

    @names_its_arguments
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

    def get_training_graphs(self) -> dict[str, onnx.ModelProto]:
        """Return the graphs that train the model, as they are derived, to be looked at or run.

        The step that ``fit`` runs computes the same with fewer nodes; :meth:`export_training_step` writes that one,
        with a description of its state.

        Returns
        -------
        dict of str to onnx.ModelProto
            ``"model"``, the part that is trained; ``"loss"``, the objective of a batch; ``"gradient"``, the objective
            and ``<weight>_grad`` for each trained weight; ``"step"``, the objective and the next state, not with
            ``"lbfgs"``. Weights and strengths of penalties are inputs with their present values as defaults. Left to
            be fed are the rows; ``label``, indices of classes for a classifier, ``label_1`` if the model has a
            ``label``; the sample weights if ``fit`` had some; and ``share``, one over the number of rows, or over the
            sum of their weights; of a step also the memory of the optimizer, and ``scalar_0``, ..., what its
            ``scalar_table`` says of this step.

        Raises
        ------
        NotFittedError
            The estimator is not fitted.

        Examples
        --------
        >>> import numpy as np, onnxruntime
        >>> from onnxtrain import OrtGradientRegressor
        >>> X, y = np.array([[0.0], [1.0]], np.float32), np.array([[0.0], [4.0]], np.float32)
        >>> line = OrtGradientRegressor(solver="sgd", max_iter=0).fit(X, 2 * X.ravel())
        >>> graphs = line.get_training_graphs()
        >>> list(graphs)
        ['model', 'loss', 'gradient', 'step']
        >>> session = onnxruntime.InferenceSession(graphs["gradient"].SerializeToString())
        >>> [o.name for o in session.get_outputs()]
        ['loss', 'coef_grad', 'intercept_grad']
        >>> feeds = {"X": X, "label": y, "share": np.array([[1 / 2]], np.float32)}
        >>> loss, slope, _ = session.run(None, feeds)
        >>> loss.round(3).item(), slope.round(3).item()
        (2.0, -2.0)
        """
        check_is_fitted(self)
        return training_graphs(self)

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
            At that state.

        Raises
        ------
        DataError
            A name or a shape is not that of the step of this estimator, or a value is not finite.

        Examples
        --------
        The state of one estimator goes on in another, as it would after training elsewhere:

        >>> import os, tempfile
        >>> import onnxruntime
        >>> from onnxtrain import OrtGradientRegressor
        >>> X, y = [[0.0], [1.0]], [1.0, 3.0]
        >>> trained = OrtGradientRegressor(learning_rate=0.1, max_iter=5, random_state=0).fit(X, y)
        >>> folder = tempfile.mkdtemp()
        >>> trained.export_training_step(folder)
        >>> init = onnxruntime.InferenceSession(os.path.join(folder, "init.onnx"))
        >>> state = dict(zip([o.name for o in init.get_outputs()], init.run(None, {})))
        >>> other = OrtGradientRegressor(init="random", max_iter=0, random_state=1).fit(X, y).load_training_state(state)
        >>> (other.predict(X) == trained.predict(X)).all().item()
        True
        """
        check_is_fitted(self)
        self._finish(*step_files.read(state, self))
        return self

    @names_its_arguments
    def losses(
        self, X: ArrayLike | Parts, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> np.ndarray:
        """Return the loss of each row, without penalties.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or rows in parts
            As in ``fit``.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            As in ``fit``.
        sample_weight : array-like of shape (n_samples,), optional
            Each loss is multiplied by the weight of its row.

        Returns
        -------
        ndarray of shape (n_samples,)
            In the units of the loss.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> line.losses([[0.0], [1.0]], [1.0, 5.0]).round(3).tolist()  # squared errors
        [0.0, 4.0]
        """
        return joined(self._losses(*part) for part in labelled(X, y, sample_weight))

    def _losses(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> np.ndarray:
        model, (X, label) = self._model, self._check_labelled(X, y)
        weight = check_sample_weight(sample_weight, label, floats_of(self.dtype), keep=True)
        losses = model.losses(X, label)
        return losses if weight is None else losses * weight

    @names_its_arguments
    def gradient(self, X: ArrayLike, y: ArrayLike | None = None, wrt: str = "X") -> np.ndarray:
        """Return the gradient with respect to the rows.

        If scikit-learn runs the first steps of a pipeline (:attr:`onnx_status_`), with respect to what these return.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            As in ``fit``.
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
        if isinstance(y, str):
            raise DataError(f"y is the text {y!r}: an input is named by wrt={y!r}, as in gradient(X, wrt={y!r}).")
        if y is None:
            return model.score_gradient(model.check(self, at_hand(X).X), wrt)
        rows = at_hand(X, y)
        return model.loss_gradient(*self._check_labelled(rows.X, rows.y), wrt)

    @names_its_arguments
    def embed(self, X: ArrayLike, output: str) -> np.ndarray:
        """Return an intermediate result of the trained model, such as a hidden layer.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            As in ``fit``.
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

        Examples
        --------
        The hidden layer of a network:

        >>> import numpy as np
        >>> from sklearn.neural_network import MLPRegressor
        >>> from onnxtrain import OrtGradientRegressor
        >>> X = np.random.default_rng(0).normal(size=(20, 3))
        >>> network = OrtGradientRegressor(MLPRegressor(hidden_layer_sizes=(7,)), init="random", max_iter=1)
        >>> network.fit(X, X[:, 0]).embed(X, "next_activations").shape
        (20, 7)
        """
        return self._model.embed(self._model.check(self, at_hand(X).X), output)

    def _scored(
        self, X: ArrayLike | Parts, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return the targets that count, the predictions for them and their weights; those of all parts together."""
        found = [self._with_prediction(*part) for part in labelled(X, y, sample_weight)]
        targets, predictions, weights = (joined(iter(values)) for values in zip(*found, strict=True))
        return targets, predictions, weights

    @abstractmethod
    def _with_prediction(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Any, Any, ArrayLike | None]:
        """Return the targets that count, the predictions for them and their weights."""

    def _check_labelled(self, X: ArrayLike, y: ArrayLike) -> tuple[Any, np.ndarray]:
        """Return checked rows and their labels for the loss."""
        model = self._model
        rows = check_rows(self, X, y, None, model)
        return rows.X, self._encode_target(rows.y, model.source.model)

    def _predicted(self, X: ArrayLike | Parts, output: str, read: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return an output of the trained model for rows, passed through `read`.

        The output is float32 for float32 rows and float64 for all others, as of scikit-learn's estimators.
        """
        model = self._model
        found = []
        for rows in features_of(X):
            dtype = np.dtype(np.float32 if getattr(rows, "dtype", None) == np.float32 else np.float64)
            outputs = model.predict(model.check(self, rows), output)
            found += [read(piece.astype(dtype, copy=False)) for piece in outputs]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def __getattr__(self, name: str) -> Any:
        """Raise an AttributeError with a hint; Python calls this for attributes that are missing."""
        if name in _LEARNED and not self.__sklearn_is_fitted__():
            raise AttributeError(f"{type(self).__name__} has {name} once it is fitted: call fit.", name=name, obj=self)
        if name in ("save", "load"):
            call = "save(estimator, path)" if name == "save" else "load(path)"
            raise AttributeError(f"{name} is a function: onnxtrain.{call}.", name=name, obj=self)
        return object.__getattribute__(self, name)  # again: a property may have a reason of its own

    # copies -----------------------------------------------------------------

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy; an estimator inside that is fitted stays fitted, to be fine-tuned."""
        copied = super().__sklearn_clone__()
        if self.estimator is not None and not is_onnx(self.estimator) and is_fitted(self.estimator):
            copied.estimator = copy.deepcopy(self.estimator)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_onnxtrain_version": __version__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of a pickle; a version that differs is warned of."""
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
