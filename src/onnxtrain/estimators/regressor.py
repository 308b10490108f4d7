"""Regression: scikit-learn's regressors and ONNX models trained with any loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.utils import Tags, get_tags

from onnxtrain.arguments import names_its_arguments
from onnxtrain.estimators import deferred
from onnxtrain.estimators.evaluation import EvaluableEstimator
from onnxtrain.estimators.exports import ExportableEstimator
from onnxtrain.estimators.inspection import InspectableEstimator
from onnxtrain.estimators.protocols import ArrayLike, is_onnx
from onnxtrain.rows.parts import Parts

if TYPE_CHECKING:
    from onnxtrain.estimators.targets import Values


class OrtGradientRegressor(RegressorMixin, InspectableEstimator, ExportableEstimator, EvaluableEstimator):
    r"""Train a regressor, any scikit-learn estimator or ONNX model, by gradients on onnxruntime.

    The objective over the rows of a batch is

    .. math::

        \frac{\sum_i w_i\, \ell(y_i, f(x_i))}{\sum_i w_i}
        + \sum_W \left(\lambda_1 \lVert W \rVert_1 + \lambda_2 \lVert W \rVert_2^2\right)

    where :math:`\ell` is summed over outputs and :math:`W` runs over the weights that
    multiply, never over intercepts. So ``l2 = alpha / n_samples`` gives
    :class:`~sklearn.linear_model.Ridge`.

    An output of three or more axes (images, sequences) has an entry for each channel, pixel or step. y has its shape,
    and :math:`\ell` is the mean over the entries of a row, NaN in y left out. A row counts as its entries do, with the
    weight :math:`w_i` times their number, so that the objective is a mean over all entries of the batch, as that of
    PyTorch's ``MSELoss``.

    Parameters
    ----------
    estimator : estimator, onnx.ModelProto, bytes or path, optional
        The model to train. A fitted estimator is fine-tuned from its weights, and stays
        fitted in clones; one that is not is cloned and fitted first. None is a
        :class:`~sklearn.linear_model.LinearRegression`.
    loss : str or callable
        ``"squared_error"``, ``"absolute_error"``, ``"elastic"``, ``"huber"``,
        ``"quantile"``, ``"epsilon_insensitive"``, ``"log_cosh"``, ``"poisson"``,
        ``"gamma"``, ``"tweedie"``, one of your own registered with
        :func:`onnxtrain.loss`, or a function ``(op, y_true, y_pred) -> (n, 1)``.
    loss_params : dict, optional
        Parameters of the loss, such as ``{"delta": 2.0}``.
    l1, l2 : float
        Strength of the penalties, :math:`\lambda_1` and :math:`\lambda_2`.
    penalty : dict, optional
        Penalties of single weights, added to those: ``{name: {"l1": a, "l2": b}}`` or
        ``{name: b}``.
    weights_to_train : str, sequence of str or LoRA, optional
        Names, patterns (``"*coef*"``) or steps of a pipeline; a leading minus (``"-pca"``) excludes. None: the weights
        of the predictor, not the statistics of the preprocessing in front of it; of an ONNX model its parameters, not
        its buffers (:func:`onnxtrain.trainable_weights` tells them apart). ``"all"``: both. ``"head"``: those of the
        last linear layer. A :class:`~onnxtrain.LoRA` trains low-rank factors beside weight matrices.
    init : {"estimator", "random"}
        Start from the weights of the estimator, or draw them anew: Glorot uniform,
        intercepts at zero.
    solver : str or optimizer
        ``"adam"``, ``"sgd"``, ``"adamw"``, ``"rmsprop"``, ``"adagrad"``, an instance such
        as ``SGD(momentum=0.9)`` of :mod:`onnxtrain.optim`, or ``"lbfgs"``: full batch.
    learning_rate : float, str, schedule or callable
        A float, ``"constant"``, ``"invscaling"``, ``"optimal"``, ``"adaptive"``, ``"cosine"``,
        ``"onecycle"``, a schedule of :mod:`onnxtrain.optim`, or a function of the step.
    batch_size : int or "auto"
        ``"auto"`` is ``min(200, n_samples)``. The last, smaller batch counts too. ``"lbfgs"`` takes all rows.
    max_iter : int
        Epochs (iterations of lbfgs). Where the loss still falls after them, a fit from drawn weights, or of 200
        epochs and more, ends with a ConvergenceWarning.
    shuffle : bool
        Visit the rows in a new order in each epoch.
    tol : float
        The decrease of the loss that counts as progress. lbfgs stops when no entry of the
        gradient is larger than a hundredth of it.
    n_iter_no_change : int
        Stop after more than so many epochs without progress.
    early_stopping : bool
        Hold out rows as a validation set; the weights of the epoch with its lowest loss are kept.
    validation_fraction : float
        The part of the rows held out.
    clip_norm : float, optional
        Largest global norm of the gradients. Not with ``"lbfgs"``.
    warm_start : bool
        ``fit`` goes on from the weights and the memory of the optimizer of the last one.
    device : str
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"webgpu"`` (a GPU of any make) or ``"auto"``: a GPU that can be used,
        else the CPU.
    n_threads : int, optional
        Threads of one operator. None: one for a small model, else all that this process may use.
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Floating-point type of the graph. In half precision only the products of a step compute in
        that type, from weights and to results in float32; predictions do not.
    gradient_builder : {"builtin", "onnxruntime-training"}
        The gradient builder.
    output : str or int, optional
        The output of the model that enters the loss, if there are several.
    head : {"keep", "new"}
        ``"new"``: the last linear layer of an ONNX model is replaced by one of as many outputs as y has
        columns, its weights drawn by `random_state` (:func:`onnxtrain.with_new_head`). ``weights_to_train="head"``
        trains it alone.
    features : str, optional
        With ``head="new"``: the value of the model that the new layer takes, by name, if it is not the input of
        the last linear layer; averaged over all axes but that of the features.
    inputs : dict, optional
        Inputs of an ONNX model that are the same for all rows, by name: ``{"sr": 16000}``. A scalar fills an input of
        any shape; a state has length 1 on the axis of its rows. The exported model keeps the input, with the value as
        its default unless it is as long as the rows.
    batch_axis : dict, optional
        The axis on which an ONNX model takes the rows of an input, ``{"state": 1}``, where the names of its dimensions
        do not show it; None: it takes none. A dictionary X holds arrays in the order of axes of the model, everything
        else has the rows first.
    pad : dict, optional
        What fills the end of the shorter rows of an input of an ONNX model, up to the longest: ``{"input_ids": 0}``.
        Masks are filled with 0.
    random_state : int, RandomState or None
        Fixes everything that is drawn: weights, order of the rows, rows held out.
    verbose : int
        1 shows a progress bar, 2 prints a line per epoch.
    average : bool or float
        The trained weights are a mean over the epochs, in which noise cancels out: True
        gives the mean after t epochs a share of ``4 / (t + 3)`` in the new weights, so
        that late epochs count most; a float below 1 is the decay of an exponential
        moving average. The validation loss is that of the mean. Training continues from the
        weights themselves. Not with ``"lbfgs"``.
    l1_method : {"penalty", "proximal"}
        How the solvers of steps minimise l1, that of `penalty` too. ``"penalty"``: as part of the loss, whose
        gradient makes weights small but not zero. ``"proximal"``: a soft threshold after each step, see
        :class:`onnxtrain.optim.Proximal`, leaves weights exactly zero. The minimum and the loss reported are
        the same. ``"lbfgs"`` gives exact zeros with either.
    accumulate : int
        Batches of a step: their gradients are summed before the weights move, as in one batch of as many rows, in the
        memory of one. The last step of an epoch has the batches that are left. Not with ``"lbfgs"``.
    on_interrupt : {"keep", "raise"}
        Either way a fit that is interrupted by Ctrl-C leaves the weights of the last complete epoch, with a validation
        set those of the best one. ``"keep"``: it ends with a warning. ``"raise"``: with KeyboardInterrupt, so that a
        loop around it ends too. Inside others of scikit-learn, such as a search, a cross-validation or an ensemble, it
        is always raised, and ends them.

    Attributes
    ----------
    loss_curve_ : list of float
        The objective, averaged over each epoch.
    validation_loss_curve_ : list of float
        The loss on the validation set, after each epoch.
    best_loss_ : float
        The lowest validation loss if there is a validation set, else the lowest training loss.
    best_iteration_ : int
        The epoch it belongs to, from 1.
    n_iter_ : int
        Epochs that were run.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had names.

    See Also
    --------
    OrtGradientClassifier : The same for classes.

    References
    ----------
    Kingma, Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.

    Examples
    --------
    An outlier drags least squares away; the absolute error is robust to it.

    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from onnxtrain import OrtGradientRegressor
    >>> X = np.arange(11.0).reshape(-1, 1)
    >>> y = 2.5 * X.ravel()
    >>> y[10] = 1000
    >>> linear = LinearRegression().fit(X, y)
    >>> tuned = OrtGradientRegressor(linear, loss="absolute_error", solver="lbfgs", dtype="float64").fit(X, y)
    >>> float(linear.coef_[0].round(1)), float(tuned.weights_["coef"].item().__round__(1))
    (46.8, 2.5)
    """

    _classifies = False

    _targets: Values

    def _default_estimator(self) -> BaseEstimator:
        return LinearRegression()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self._takes_several_targets()
        return tags

    def _takes_several_targets(self) -> bool:
        if self.estimator is None or is_onnx(self.estimator):
            return True
        tags = get_tags(self.estimator)
        if tags.target_tags.multi_output or tags.estimator_type != "regressor":  # a transformer has as many as outputs
            return True
        # MLPRegressor takes several targets, its tags do not say so; it may be the last step of a pipeline
        parts = (self.estimator, *self.estimator.get_params().values())
        return any(hasattr(part, "hidden_layer_sizes") for part in parts)

    def _new_targets(self, y: ArrayLike, *, positional: bool) -> Values:
        kind = deferred.positions.PositionValues if positional else deferred.targets.Values
        dtype = deferred.settings.floats_of(self.dtype)
        return kind(dtype, several=self._takes_several_targets(), named=self.output is not None)

    @names_its_arguments
    def predict(self, X: ArrayLike | Parts) -> np.ndarray:
        """Return the output of the trained model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            As in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Of three or more axes, in the shape of y.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> line.predict([[0.0], [2.0]]).round(3).tolist()
        [1.0, 5.0]
        """
        layout = self._model.layout
        flat = self._model.positional or self._targets.n_axes == 1

        def read(found: np.ndarray) -> np.ndarray:
            table = layout.table(found)
            one = table.shape[1] == 1 and flat
            return layout.by_position(table[:, 0], found.shape) if one else table

        return self._predicted(X, self._model.source.model.output, read)

    @names_its_arguments
    def score(self, X: ArrayLike | Parts, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Return R², the coefficient of determination; with three or more axes, of all entries of y but NaN together.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or rows in parts
            As in ``fit``.
        y : array-like of shape (n_samples,), (n_samples, n_outputs) or that of the predictions
            As in ``fit``.
        sample_weight : array-like of shape (n_samples,), optional
            Of the rows.

        Returns
        -------
        float
            At most 1.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> round(line.score([[0.0], [1.0]], [1.0, 3.0]), 3)
        1.0
        """
        targets, predictions, weight = self._scored(X, y, sample_weight)
        with deferred.validation.as_data_error():
            return float(r2_score(targets, predictions, sample_weight=weight))
