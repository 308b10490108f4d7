"""Classification: train scikit-learn's classifiers and ONNX models with any loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.neural_network import MLPClassifier
from sklearn.utils import Tags

from onnxtrain.arguments import given, names_its_arguments
from onnxtrain.errors import ParameterError
from onnxtrain.estimators import deferred
from onnxtrain.estimators.evaluation import EvaluableEstimator
from onnxtrain.estimators.exports import ExportableEstimator
from onnxtrain.estimators.inspection import InspectableEstimator
from onnxtrain.estimators.protocols import ArrayLike, Model, takes_labels
from onnxtrain.rows.parts import Part, Parts

if TYPE_CHECKING:
    from onnxtrain.estimators.labels import Labels
    from onnxtrain.estimators.lora import LoRA
    from onnxtrain.optim import Optimizer, Schedule


#: How to compute balanced weights of classes, and of the labels of an indicator matrix.
_OF_CLASSES = (
    ": classes = numpy.unique(y_all), class_weight=dict(zip(classes, sklearn.utils.class_weight.compute_class_weight("
    "'balanced', classes=classes, y=y_all)))"
)
_OF_LABELS = (
    ", a dictionary {0: ..., 1: ...} for each column of y: n = len(y_all), class_weight=[{0: n / (2 * (n - k)), "
    "1: n / (2 * k)} for k in y_all.sum(axis=0)]"
)


def _gives_probabilities(self: OrtGradientClassifier) -> bool:
    """Whether probabilities are defined: the loss is a likelihood, or the model's link belongs to such a loss."""
    if self.__sklearn_is_fitted__():
        loss, likely = self._trained.objective.loss, self._targets.decoder(self._trained).likely
    else:
        found = deferred.losses.find_loss(self.loss, self.loss_params, classifies=True)
        loss, likely = self.loss, found.prediction is deferred.losses.Prediction.LIKELIHOOD
    if likely:
        return True
    scores = "" if _why_no_scores(self) else " Use decision_function for the scores."
    raise AttributeError(
        f"predict_proba is not available with loss={loss!r}, because the scores do not define probabilities. Set "
        f"loss='log', or wrap the estimator in CalibratedClassifierCV.{scores}"
    )


def _has_scores(self: OrtGradientClassifier) -> bool:
    if reason := _why_no_scores(self):
        others = "predict_proba or predict" if hasattr(self, "predict_proba") else "predict"
        of_file = not self.__sklearn_is_fitted__() or self._trained.source.original is not None
        own = "" if of_file else ", or to_sklearn().decision_function(X)"
        raise AttributeError(
            f"decision_function is not available, because {reason}. Use {others}{own}. In CalibratedClassifierCV, set "
            "ensemble=True."
        )
    return True


def _why_no_scores(self: OrtGradientClassifier) -> str:
    """Return why there is no decision_function, for a message; empty if there is one."""
    if not self._decides:
        return "the probabilities of this model are the softmax of other scores"
    if self.__sklearn_is_fitted__() and self._trained.source.model.link is deferred.link.Link.PROBABILITY:
        return "this model outputs probabilities, whose scores were not recognised"
    if not self.__sklearn_is_fitted__() and deferred.learned.gives_probabilities_alone(self.estimator):
        return "this model outputs probabilities"
    return ""


class OrtGradientClassifier(ClassifierMixin, InspectableEstimator, ExportableEstimator, EvaluableEstimator):
    r"""Train a classifier, any scikit-learn estimator or ONNX model, by gradient descent with onnxruntime.

    The objective is that of :class:`OrtGradientRegressor`, with a loss :math:`\ell` of the class and of the scores, the
    input of the model's final Sigmoid or Softmax. So ``l2 = 1 / (2 * C * n_samples)`` gives
    :class:`~sklearn.linear_model.LogisticRegression`.

    y may be a multilabel indicator matrix of K labels. Each label is then a binary problem with its own score, and the
    loss of a row is the sum over the labels, as in :class:`~sklearn.neural_network.MLPClassifier`:

    .. math:: \ell_i = \sum_{k=1}^{K} \ell(y_{ik}, s_{ik})

    An output of three or more axes has positions: tokens (n, t, K), pixels (n, K, h, w). y has a label for each
    position, (n, t) or (n, h, w). The loss of a row is the mean over its positions p whose label is not `ignore_index`:

    .. math:: \ell_i = \frac{\sum_p v_{ip}\, \ell(y_{ip}, s_{ip})}{\sum_p v_{ip}}

    where v is the weight of the class (`class_weight`), or 1. The weight of a row is :math:`w_i \sum_p v_{ip}`, so that
    the objective is a mean over all positions of the batch, as in PyTorch's ``CrossEntropyLoss``.
    ``sample_weight = 1 / (y != -100).sum(axis=1)`` gives each row the same weight instead. If y has the shape of the
    output, each entry is a binary problem.

    Parameters
    ----------
    estimator : estimator, onnx.ModelProto, bytes or path, optional
        The model to train. None is a :class:`~sklearn.linear_model.LogisticRegression`; for multilabel targets, an
        MLPClassifier without a hidden layer. The output of an ONNX model has one column of scores or probabilities per
        class, or one column for two classes, or is the class with the largest score. For multilabel targets, it has one
        column of scores or Sigmoids per label, or the model has one output of one column per label.
    loss : str or callable
        ``"log"``, ``"hinge"``, ``"squared_hinge"``, ``"modified_huber"``, ``"focal"``, the name of your own loss
        registered with :func:`onnxtrain.loss`, or a function ``(op, y_true, y_pred) -> (n, 1)`` of the class index and
        the scores.
    loss_params, l1, l2, penalty, weights_to_train, init, solver, learning_rate
        As :class:`OrtGradientRegressor`.
    batch_size, max_iter, shuffle, tol, n_iter_no_change
        As :class:`OrtGradientRegressor`.
    early_stopping, validation_fraction
        As :class:`OrtGradientRegressor`. The held-out rows are stratified by class, but not for multilabel targets.
    clip_norm, warm_start, device, n_threads, dtype, gradient_builder, output
        As :class:`OrtGradientRegressor`.
    random_state, verbose
        As :class:`OrtGradientRegressor`.
    class_weight : dict, list of dict, "balanced" or None
        Weights of the classes, multiplied with the sample weights. ``"balanced"``: ``n_samples / (n_classes * count of
        the class)``, counted on the training rows of nonzero weight; the validation loss has the same weights. For
        multilabel targets, one dictionary ``{0: a, 1: b}`` per label; the weights of a row's labels are multiplied, see
        :func:`~sklearn.utils.class_weight.compute_sample_weight`. With positions, each position has the weight of its
        class; ``"balanced"`` weights are computed on the rows of the first call and kept in later calls of
        ``partial_fit``, or of ``fit`` with `warm_start`, unless the parameter is set to a new value.
    average, l1_method
        As :class:`OrtGradientRegressor`.
    output_is : {"scores", "probabilities"} or None
        The kind of the model's output. None: probabilities if the graph ends in Softmax or Sigmoid or its output
        provably lies in [0, 1]; scores if it ends in a layer whose output is scores. If the graph does not show it, the
        outputs on the training rows decide: probabilities lie in [0, 1] and sum to one.
    head : {"keep", "new"}
        ``"new"``: replace the last linear layer of an ONNX model by a layer with one output per class or label of y,
        its weights drawn by `random_state` (:func:`onnxtrain.with_new_head`). ``weights_to_train="head"`` trains only
        this layer.
    features, inputs, batch_axis, pad
        As :class:`OrtGradientRegressor`.
    accumulate : int
        As :class:`OrtGradientRegressor`.
    on_interrupt : {"keep", "raise"}
        As :class:`OrtGradientRegressor`.
    class_axis : int, optional
        The class axis of an output of three or more axes. None: inferred from the shapes of the output and y.
    ignore_index : int, str or None
        The label of positions that the loss ignores: padding, pixels without a label. It is never one of the classes.
        For an output of two axes it has no effect: every label counts.

    Attributes
    ----------
    loss_curve_ : list of float
        The objective, averaged over each epoch.
    validation_loss_curve_ : list of float
        The loss on the validation set, after each epoch.
    best_loss_ : float
        The lowest validation loss if there is a validation set, else the lowest training loss.
    best_iteration_ : int
        The epoch of ``best_loss_``, from 1.
    n_iter_ : int
        The number of epochs that were run.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        The names of the features, if X had names.

    See Also
    --------
    OrtGradientRegressor : The same for real-valued targets.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from onnxtrain import OrtGradientClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression(C=0.001).fit(X, y)
    >>> tuned = OrtGradientClassifier(model, solver="lbfgs", l2=1e-5).fit(X, y)
    >>> float(round(model.score(X, y), 2)), float(round(tuned.score(X, y), 2))
    (0.75, 0.99)
    """

    def __init__(
        self,
        estimator: Model | None = None,
        *,
        loss: str | Callable[..., Any] = "log",
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
        class_weight: Mapping[Any, float] | list[Mapping[Any, float]] | str | None = None,
        average: bool | float = False,
        l1_method: str = "penalty",
        output_is: str | None = None,
        head: str = "keep",
        features: str | None = None,
        accumulate: int = 1,
        on_interrupt: str = "keep",
        class_axis: int | None = None,
        ignore_index: int | str | None = -100,
        inputs: Mapping[str, Any] | None = None,
        batch_axis: Mapping[str, int | None] | None = None,
        pad: Mapping[str, float] | None = None,
    ):
        super().__init__(
            estimator,
            loss=loss,
            loss_params=loss_params,
            l1=l1,
            l2=l2,
            penalty=penalty,
            weights_to_train=weights_to_train,
            init=init,
            solver=solver,
            learning_rate=learning_rate,
            batch_size=batch_size,
            max_iter=max_iter,
            shuffle=shuffle,
            tol=tol,
            n_iter_no_change=n_iter_no_change,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            clip_norm=clip_norm,
            warm_start=warm_start,
            device=device,
            n_threads=n_threads,
            dtype=dtype,
            gradient_builder=gradient_builder,
            output=output,
            random_state=random_state,
            verbose=verbose,
            average=average,
            l1_method=l1_method,
            head=head,
            features=features,
            accumulate=accumulate,
            on_interrupt=on_interrupt,
            inputs=inputs,
            batch_axis=batch_axis,
            pad=pad,
        )
        self.class_weight = class_weight
        self.output_is = output_is
        self.class_axis = class_axis
        self.ignore_index = ignore_index

    _classifies = True

    @property
    def classes_(self) -> np.ndarray:
        """The classes, in the order of the columns of the scores; for multilabel targets, the column indices.

        Examples
        --------
        >>> from onnxtrain import OrtGradientClassifier
        >>> OrtGradientClassifier(max_iter=1).fit([[0.0], [1.0]], ["low", "high"]).classes_.tolist()
        ['high', 'low']
        """
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"{type(self).__name__} has no classes_ before it is fitted. Call fit first.")
        return self._targets.classes

    @classes_.setter
    def classes_(self, values: object) -> NoReturn:
        raise AttributeError(
            "classes_ cannot be assigned: the classes are the labels of y in fit. To rename them, fit with other "
            "labels, or map the predictions: numpy.array(names)[model.classes_.searchsorted(model.predict(X))]."
        )

    @property  # type: ignore[override]  # it takes labels only
    def _targets(self) -> Labels:
        """The labels of the last fit, with the current values of `class_weight` and `ignore_index`."""
        return replace(self._labels, class_weight=self.class_weight, ignore_index=self.ignore_index)

    @_targets.setter
    def _targets(self, labels: Labels) -> None:
        self._labels = labels

    def _new_targets(self, y: ArrayLike, *, positional: bool) -> Labels:
        to_come = getattr(self, "_expected_classes", None)
        parameters: dict[str, Any] = {
            "class_weight": self.class_weight,
            "ignore_index": self.ignore_index,
            "to_come": to_come,
        }
        if positional:
            return deferred.positions.PositionLabels(**parameters)
        return deferred.labels.labels_of_rows(y, **parameters)

    def _default_estimator(self) -> BaseEstimator:
        labels = vars(self).get("_labels")
        if labels is None or not labels.n_labels:
            return LogisticRegression()
        # one layer is 50 times faster than 100 LogisticRegressions; alpha=1 is their penalty
        return MLPClassifier(hidden_layer_sizes=(), solver="lbfgs", alpha=1.0)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self.estimator is None or takes_labels(self.estimator)
        return tags

    @names_its_arguments
    def partial_fit(  # type: ignore[override]  # scikit-learn's signature for classifiers
        self,
        X: ArrayLike | Parts,
        y: ArrayLike | None = None,
        classes: Sequence[Any] | np.ndarray | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on the rows for one epoch, continuing from the current weights and optimizer state.

        An unfitted estimator, with its preprocessing, is fitted on the rows of the first call.
        ``class_weight="balanced"`` is refused, because it would change with the rows of each call.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or rows in parts
            As in ``fit``. Each call checks all parts before its epoch.
        y : {array-like, sparse matrix} of shape (n_samples,), (n_samples, n_labels) or (n_samples, ...)
            As in ``fit``.
        classes : array-like of shape (n_classes,), optional
            All classes that later calls may have, given in the first call; by default, the classes of y. A new head has
            an output for each class. For multilabel targets, the number of labels follows from y, and ``classes`` must
            have as many entries.
        sample_weight : array-like of shape (n_samples,), optional
            Not negative.

        Returns
        -------
        self
            The estimator, trained for one more epoch.

        Examples
        --------
        The first call names the class that is still to come:

        >>> from onnxtrain import OrtGradientClassifier
        >>> model = OrtGradientClassifier().partial_fit([[0.0], [1.0]], [0, 0], classes=[0, 1])
        >>> model.partial_fit([[2.0], [3.0]], [1, 1]).classes_.tolist()
        [0, 1]
        """
        known = self._trained if self.__sklearn_is_fitted__() else None
        positional = deferred.targets.is_positional(self, y, known)
        of_fit = positional and known is not None  # these weights stay those of the first rows
        if isinstance(self.class_weight, str) and self.class_weight == "balanced" and not of_fit:
            several = not positional and deferred.given_labels.n_columns(y) > 1
            raise ParameterError(
                "class_weight='balanced' is not available in partial_fit, which knows the rows of one call. Compute "
                f"the weights from all labels{_OF_LABELS if several else _OF_CLASSES}."
            )
        labels = None if known is None else self._targets
        with self._expecting(deferred.labels.check_expected(classes, y, labels, positional=positional)):
            deferred.fit.fit_one_epoch(self, Part(X, y, sample_weight))
        if known is None and self._targets.n_labels == 0:
            deferred.labels.warn_of_sorted(classes, self._trained, new=self.head == "new")
        return self

    @contextmanager
    def _expecting(self, classes: np.ndarray | None) -> Iterator[None]:
        of_caller = getattr(self, "_expected_classes", None)  # of partial_fit(parts, classes=...)
        self._expected_classes = classes if of_caller is None else of_caller
        try:
            yield
        finally:
            if of_caller is None:
                self.__dict__.pop("_expected_classes", None)

    # predictions ------------------------------------------------------------

    @given(_has_scores)
    @names_its_arguments
    def decision_function(self, X: ArrayLike | Parts) -> np.ndarray:
        """Return the scores: one column for two classes, positive for the second; else one column per class or label.

        If the model has a score for each of two classes, the result is the second score minus the first.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            As in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples,), (n_samples, n_classes) or (n_samples, n_labels)
            With positions, the shape of the output, without the class axis if there are two classes.

        Examples
        --------
        The second class is ``classes_[1]``:

        >>> from onnxtrain import OrtGradientClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["low", "low", "high", "high"]
        >>> model = OrtGradientClassifier(solver="lbfgs").fit(X, y)
        >>> model.classes_.tolist(), (model.decision_function(X) > 0).tolist()
        (['high', 'low'], [True, True, False, False])
        """
        layout = self._model.layout
        one_a_row = not self._targets.n_labels and not self._model.positional

        def read(found: np.ndarray) -> np.ndarray:
            scores = layout.table(found)
            if scores.shape[1] == 2 and one_a_row:
                return scores[:, 1] - scores[:, 0]
            if scores.shape[1] == 1:
                return layout.by_position(scores[:, 0], found.shape)
            return layout.by_class(scores, found.shape)

        return self._predicted(X, self._model.scores, read)

    @given(_gives_probabilities)
    @names_its_arguments
    def predict_proba(self, X: ArrayLike | Parts) -> np.ndarray:
        """Return the probability of each class; for multilabel targets, the probability of each label.

        The probabilities of the classes sum to one. For a model with a Sigmoid per class, they are the Sigmoids divided
        by their sum, as in the loss that is trained.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            As in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples, n_labels)
            With positions, the shape of the output; a single score gives two classes.

        Examples
        --------
        >>> from onnxtrain import OrtGradientClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["low", "low", "high", "high"]
        >>> model = OrtGradientClassifier(solver="lbfgs").fit(X, y)
        >>> model.predict_proba(X).sum(axis=1).round(6).tolist()
        [1.0, 1.0, 1.0, 1.0]
        """
        model = self._model
        decoder = self._targets.decoder(model)
        output = model.scores if decoder.takes_scores else model.source.model.output
        deferred.unsuitable_losses.warn_of_no_probabilities(model)

        def read(found: np.ndarray) -> np.ndarray:
            return model.layout.by_class(decoder.probabilities(model.layout.table(found)), found.shape)

        return self._predicted(X, output, read)

    @names_its_arguments
    def predict(self, X: ArrayLike | Parts) -> np.ndarray:
        """Return the most likely class; for multilabel targets, 1 for each label of probability above 0.5.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            As in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_labels)
            With positions, one prediction per position, in the shape of y. Multilabel predictions are a CSR matrix if y
            was sparse in ``fit``.

        Examples
        --------
        >>> from onnxtrain import OrtGradientClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["low", "low", "high", "high"]
        >>> model = OrtGradientClassifier(solver="lbfgs").fit(X, y)
        >>> model.predict([[0.0], [3.0]]).tolist()
        ['low', 'high']
        """
        model = self._model
        decoder = self._targets.decoder(model)

        def read(found: np.ndarray) -> np.ndarray:
            table = model.layout.table(found)
            deferred.reports.warn_of_nan(table)
            return model.layout.by_position(decoder.labels(table), found.shape)

        labels = self._predicted(X, model.scores, read)
        return scipy.sparse.csr_matrix(labels) if self._targets.sparse else labels

    @names_its_arguments
    def score(self, X: ArrayLike | Parts, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy; with positions, over all positions whose label is not `ignore_index`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or rows in parts
            As in ``fit``.
        y : array-like of shape (n_samples,), (n_samples, n_labels) or the shape of the predictions
            As in ``fit``.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        float
            At most 1.

        Examples
        --------
        >>> from onnxtrain import OrtGradientClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["low", "low", "high", "high"]
        >>> model = OrtGradientClassifier(solver="lbfgs").fit(X, y)
        >>> model.score(X, y)
        1.0
        """
        targets, predictions, weight = self._scored(X, y, sample_weight)
        if np.ndim(targets) == np.ndim(predictions) == 1:
            deferred.given_labels.check_comparable(np.asarray(targets), self.classes_)
        with deferred.remedies.as_data_error():
            return float(accuracy_score(targets, predictions, sample_weight=weight))

    @given(_gives_probabilities)
    @names_its_arguments
    def predict_log_proba(self, X: ArrayLike | Parts) -> np.ndarray:
        """Return the logarithm of :meth:`predict_proba`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            As in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples, n_labels)
            One column per class or label, in the order of ``classes_``.

        Examples
        --------
        >>> from onnxtrain import OrtGradientClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["low", "low", "high", "high"]
        >>> model = OrtGradientClassifier(solver="lbfgs").fit(X, y)
        >>> import numpy as np
        >>> np.allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
        True
        """
        with np.errstate(divide="ignore"):  # a probability may be 0
            return np.log(self.predict_proba(X))

    @property
    def output_is_(self) -> str:
        """The kind of the model's output: scores or probabilities.

        Examples
        --------
        >>> from onnxtrain import OrtGradientClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["low", "low", "high", "high"]
        >>> model = OrtGradientClassifier(solver="lbfgs").fit(X, y)
        >>> model.output_is_
        'probabilities'
        """
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"{type(self).__name__} has no output_is_ before it is fitted. Call fit first.")
        return "scores" if self._trained.source.model.link is deferred.link.Link.IDENTITY else "probabilities"
