"""The base class of both estimators: parameters, ``fit``, ``partial_fit``, cloning and pickling."""

from __future__ import annotations

import copy
import inspect
import os
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from onnxtrain import __version__, attributes
from onnxtrain.arguments import SetsItsParameters, names_its_arguments
from onnxtrain.errors import ArgumentTypeError, warn
from onnxtrain.estimators import deferred
from onnxtrain.estimators.folds import warn_of_seen_folds
from onnxtrain.estimators.protocols import (
    ArrayLike,
    Model,
    allows_nan,
    is_fitted,
    is_onnx,
    takes_sparse,
)
from onnxtrain.registry import is_of_package
from onnxtrain.rows.parts import Part, Parts
from onnxtrain.synonyms import meant

# scikit-learn supports callbacks since version 1.9.
try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks

    class _TakesCallbacks(CallbackSupportMixin):
        """The mixin of scikit-learn, with an error that says how to pass a function."""

        def set_callbacks(self, *callbacks: Any) -> Self:
            """Set callbacks of scikit-learn, in place of earlier ones.

            Parameters
            ----------
            *callbacks : callback of scikit-learn
                The callbacks, such as ``sklearn.callback.ProgressBar()``; none removes all.

            Returns
            -------
            self
                The estimator itself.

            Raises
            ------
            ArgumentTypeError
                One of them is not such a callback. A function is passed to ``fit``.

            Examples
            --------
            >>> from onnxtrain import OrtGradientRegressor
            >>> from sklearn.callback import ScoringMonitor
            >>> monitor = ScoringMonitor(scoring="r2")
            >>> OrtGradientRegressor(max_iter=2).set_callbacks(monitor)
            OrtGradientRegressor(max_iter=2)
            """
            try:
                return super().set_callbacks(*callbacks)
            except TypeError as e:
                shown = f"{callbacks[0] if len(callbacks) == 1 else callbacks!r:.80}"
                raise ArgumentTypeError(
                    f"set_callbacks takes callbacks of scikit-learn one by one, such as sklearn.callback.ProgressBar()"
                    f", got {shown}. Pass a function to fit: fit(X, y, callback=function)."
                ) from e
except ImportError:  # scikit-learn below 1.9
    if not TYPE_CHECKING:

        class _TakesCallbacks:
            """A substitute for the mixin of newer versions."""

        def with_callbacks(method):
            """Return the method unchanged."""
            return method


if TYPE_CHECKING:
    from onnxtrain.estimators.lora import LoRA
    from onnxtrain.estimators.targets import Targets
    from onnxtrain.estimators.trained import TrainedModel
    from onnxtrain.optim import Optimizer, Schedule
    from onnxtrain.training.state import Listener, TrainingState

_NOT_FITTED = (
    "This %(name)s instance is not fitted yet. Call fit(X, y). To predict with an ONNX model that is not to be "
    "trained, set max_iter=0 and call fit, or run it with onnxruntime.InferenceSession. A file of onnxtrain.save is "
    "read by onnxtrain.load."
)

#: The same for a fitted estimator of scikit-learn.
_ONLY_THE_MODEL_IS = (
    "This %(name)s instance is not fitted yet, only its {model} is. Call fit(X, y), which trains the {model} further; "
    "with max_iter=0, it stays as it is."
)

#: Attributes that ``fit`` sets.
_LEARNED = frozenset(
    """
    best_iteration_ best_loss_ classes_ feature_names_in_ loss_curve_ n_features_in_ n_iter_ validation_loss_curve_
    """.split()  # noqa: SIM905
)


#: Methods, attributes and parameters that only the classifier has.
_OF_CLASSIFIERS = frozenset(
    {"class_weight", "classes_", "decision_function", "ignore_index", "predict_log_proba", "predict_proba"}
)


class _Kind(ABCMeta):
    """The type of the classes of the estimators, for unknown attributes of a class, such as Class.load(path)."""

    def __getattr__(cls, name: str) -> Any:
        remedy = attributes.OF_OTHERS.get(name)
        raise AttributeError(
            f"{cls.__name__} has no {name}. {remedy}."
            if remedy
            else f"type object {cls.__name__!r} has no attribute {name!r}",
            name=name,
            obj=cls,
        )


class OrtGradientEstimator(_TakesCallbacks, SetsItsParameters, BaseEstimator, metaclass=_Kind):
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
            Weights of the rows, not negative. A row of weight zero is ignored. In an unfitted pipeline, each step that
            accepts weights is fitted with them, such as ``StandardScaler``. A fitted pipeline stays as it is.
        X_val, y_val, sample_weight_val : array-like, optional
            The validation set. Its loss is computed after each epoch. The weights of the best epoch are kept, and
            training stops as with ``early_stopping``, but no rows of X are held out.
        callback : callable, optional
            ``callback(info)`` is called after each epoch with an :class:`~onnxtrain.training.state.EpochInfo`: epoch,
            step, loss, validation_loss, learning_rate, time, weights. In the call, the estimator predicts with these
            weights. Training stops if it returns True. Callbacks of scikit-learn are set by ``set_callbacks``.
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
        rows. An unfitted estimator, with its preprocessing, is fitted on the rows of the first call.

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

    def _warn_of_no_effect(self, changed: Sequence[str]) -> None:
        inner = [key.partition("__")[2] for key in changed if key.startswith("estimator__")]
        if not inner or not is_fitted(self.estimator):
            return
        if deferred.reports.is_part_of_more("sklearn.ensemble"):  # sets every random_state
            inner = [key for key in inner if not key.endswith("random_state")]
        if inner:
            name = type(self.estimator).__name__
            warn(
                f"{name} is fitted, so another value of {', '.join(inner)} does not change its weights, which training "
                "starts from. Pass an unfitted one, sklearn.base.clone(model), which is fitted with the value, or set "
                f"parameters of {type(self).__name__}, such as l2."
            )

    # the trained model ------------------------------------------------------

    @property
    def _model(self) -> TrainedModel:
        """The trained model, on the device and with the number of threads that the parameters name now."""
        self._check_fitted()
        self._trained = self._trained.on(self.device, self.n_threads)
        return self._trained

    def _check_fitted(self) -> None:
        """Raise scikit-learn's NotFittedError; for an ONNX model, the message says how to predict with it as it is."""
        if self.__sklearn_is_fitted__():  # scikit-learn's check takes a tenth of a small prediction
            return
        if is_onnx(self.estimator):
            check_is_fitted(self, msg=_NOT_FITTED)
        if hasattr(self.estimator, "predict") and is_fitted(self.estimator):
            check_is_fitted(self, msg=_ONLY_THE_MODEL_IS.format(model=type(self.estimator).__name__))
        check_is_fitted(self)

    def __getattr__(self, name: str) -> Any:
        """Raise an AttributeError with a hint; Python calls this method for missing attributes."""
        kind = type(self).__name__
        if name in _OF_CLASSIFIERS and not self._classifies:
            said = f"{kind} has no {name}, because it is a regressor. Use OrtGradientClassifier for classes."
            raise AttributeError(said, name=name, obj=self)
        if name in _LEARNED and not self.__sklearn_is_fitted__():
            said = f"{kind} has no {name} before it is fitted. Call fit first."
            raise AttributeError(said, name=name, obj=self)
        if name == "feature_names_in_":  # predict asks for it
            raise AttributeError(f"{kind} has no {name}, because X had no column names in fit.", name=name, obj=self)
        if name in attributes.OF_OTHERS:
            raise AttributeError(f"{kind} has no {name}. {attributes.OF_OTHERS[name]}.", name=name, obj=self)
        if f"{name}_" in _LEARNED:
            raise AttributeError(f"{kind} has no {name}. Use {name}_ after fit.", name=name, obj=self)
        if name[0] != "_" and not hasattr(type(self), name) and (remedy := self._of_inner(name)):
            raise AttributeError(f"{kind} has no {name}{remedy}", name=name, obj=self)
        if name[0] != "_" and not hasattr(type(self), name):
            raise AttributeError(attributes.of_estimator(self, name), name=name, obj=self)
        return object.__getattribute__(self, name)  # once more: a property may raise its own message

    def __setattr__(self, name: str, value: Any) -> None:
        """Raise an AttributeError for a parameter of another library or a misspelt one, which would have no effect."""
        kind: Any = type(self)
        if name == name.strip("_") and not hasattr(kind, name) and is_of_package(kind):
            known = kind.__init__.__signature__.parameters
            if name not in known and name not in vars(self) and (ours := meant(name, known)) is not None:
                raise AttributeError(
                    f"{kind.__name__} has no parameter {name!r}. Did you mean {ours!r}?", name=name, obj=self
                )
        super().__setattr__(name, value)

    def _of_inner(self, name: str) -> str:
        """Return the end of a message about an attribute of the scikit-learn estimator inside; empty if it has none."""
        inner = vars(self).get("estimator")
        if not hasattr(inner, "get_params") or isinstance(inner, type):
            return ""
        fitted = self.__sklearn_is_fitted__()
        if hasattr(inner, name) or (fitted and hasattr(self._trained.source.estimator, name)):
            return f", but its estimator does. Use to_sklearn().{name} after fit for the trained value."
        learned = name.endswith("_") and not fitted
        return f". If {type(inner).__name__} learns it, use fit(X, y).to_sklearn().{name}." if learned else ""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise an ArgumentTypeError, because an estimator is not a function as modules of PyTorch and Keras are."""
        raise ArgumentTypeError(f"{type(self).__name__} cannot be called. Use predict(X).")

    def __getitem__(self, key: object) -> NoReturn:
        """Raise an ArgumentTypeError, because an estimator holds no items as a pipeline or a dictionary of weights."""
        steps = (
            f" A trained step of the pipeline is to_sklearn()[{key!r:.80}]." if hasattr(self.estimator, "steps") else ""
        )
        raise ArgumentTypeError(
            f"{type(self).__name__} cannot be indexed, got [{key!r:.80}]. Use weights_, a dictionary of the weights by "
            f"name, or history_.to_frame(), the losses of the epochs.{steps}"
        )

    # copies -----------------------------------------------------------------

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy; a fitted `estimator` parameter stays fitted, so that it can be fine-tuned."""
        copied = super().__sklearn_clone__()
        if self.estimator is not None and not is_onnx(self.estimator) and is_fitted(self.estimator):
            copied.estimator = copy.deepcopy(self.estimator)
            warn_of_seen_folds(self.estimator)
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
