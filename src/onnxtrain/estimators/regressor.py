"""Regression: train scikit-learn's regressors and ONNX models with any loss."""

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
    r"""Train a regressor, any scikit-learn estimator or ONNX model, by gradient descent with onnxruntime.

    The objective over the rows of a batch is

    .. math::

        \frac{\sum_i w_i\, \ell(y_i, f(x_i))}{\sum_i w_i}
        + \sum_W \left(\lambda_1 \lVert W \rVert_1 + \lambda_2 \lVert W \rVert_2^2\right)

    where :math:`\ell` is summed over outputs and :math:`W` runs over the multiplicative weights, never over intercepts.
    So ``l2 = alpha / n_samples`` gives :class:`~sklearn.linear_model.Ridge`.

    An output of three or more axes (images, sequences) has an entry for each channel, pixel or step. y has the same
    shape. :math:`\ell` is the mean over the entries of a row that are not NaN in y. The weight of a row is :math:`w_i`
    times the number of these entries, so that the objective is a mean over all entries of the batch, as in PyTorch's
    ``MSELoss``.

    Parameters
    ----------
    estimator : estimator, onnx.ModelProto, bytes or path, optional
        The model to train. A fitted estimator is fine-tuned from its weights, and stays fitted in clones. An unfitted
        estimator is cloned and fitted first. None is a :class:`~sklearn.linear_model.LinearRegression`.
    loss : str or callable
        ``"squared_error"``, ``"absolute_error"``, ``"elastic"``, ``"huber"``, ``"quantile"``,
        ``"epsilon_insensitive"``, ``"log_cosh"``, ``"poisson"``, ``"gamma"``, ``"tweedie"``, the name of your own loss
        registered with :func:`onnxtrain.loss`, or a function ``(op, y_true, y_pred) -> (n, 1)``.
    loss_params : dict, optional
        Parameters of the loss, such as ``{"delta": 2.0}``.
    l1, l2 : float
        Strength of the penalties, :math:`\lambda_1` and :math:`\lambda_2`.
    penalty : dict, optional
        Penalties of single weights, added to l1 and l2: ``{name: {"l1": a, "l2": b}}`` or ``{name: b}``.
    weights_to_train : str, sequence of str or LoRA, optional
        Names, patterns (``"*coef*"``) or steps of a pipeline; a leading minus (``"-pca"``) excludes. None: the weights
        of the predictor, not the statistics of its preprocessing; for an ONNX model, its parameters, not its buffers
        (:func:`onnxtrain.trainable_weights` tells them apart). ``"all"``: both. ``"head"``: the weights of the last
        linear layer. A :class:`~onnxtrain.LoRA` trains low-rank factors of weight matrices.
    init : {"estimator", "random"}
        Start from the weights of the estimator, or from random weights: Glorot uniform, intercepts zero, scales one.
    solver : str or optimizer
        ``"adam"``, ``"sgd"``, ``"adamw"``, ``"rmsprop"``, ``"adagrad"``, an instance such
        as ``SGD(momentum=0.9)`` of :mod:`onnxtrain.optim`, or ``"lbfgs"``: full batch.
    learning_rate : float, str, schedule or callable
        A float, ``"constant"``, ``"invscaling"``, ``"optimal"``, ``"adaptive"``, ``"cosine"``,
        ``"onecycle"``, a schedule of :mod:`onnxtrain.optim`, or a function of the step.
    batch_size : int or "auto"
        ``"auto"`` is ``min(200, n_samples)``. The last, smaller batch counts too. ``"lbfgs"`` takes all rows.
    max_iter : int
        The maximum number of epochs (iterations of lbfgs). If the loss still falls at the end, a fit from random
        weights, or a fit of 200 epochs or more, ends with a ConvergenceWarning.
    shuffle : bool
        Visit the rows in a new order in each epoch.
    tol : float
        The decrease of the loss that counts as progress. lbfgs stops when no entry of the gradient is larger than a
        hundredth of `tol`.
    n_iter_no_change : int
        Training stops after more than this number of epochs without progress.
    early_stopping : bool
        Hold out rows as a validation set, unless `X_val` is given, and keep the weights of the epoch with the lowest
        validation loss.
    validation_fraction : float
        The fraction of the rows held out.
    clip_norm : float, optional
        Largest global norm of the gradients. Not with ``"lbfgs"``.
    warm_start : bool
        ``fit`` continues from the weights and the optimizer state of the last fit.
    device : str
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"webgpu"`` (a GPU of any vendor) or ``"auto"``: a usable GPU if present,
        else the CPU.
    n_threads : int, optional
        The number of threads per operator. None: one for a small model, else all that this process may use.
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Floating-point type of the graph. The two half-precision types are used only in the matrix products of a
        training step, whose weights and results stay float32; predictions are computed in float32.
    gradient_builder : {"builtin", "onnxruntime-training"}
        The library that derives the gradient graph: onnxtrain (``"builtin"``) or onnxruntime-training.
    output : str or int, optional
        The output of the model that enters the loss, if there are several.
    head : {"keep", "new"}
        ``"new"``: replace the last linear layer of an ONNX model by a layer with one output per column of y, its
        weights drawn by `random_state` (:func:`onnxtrain.with_new_head`). ``weights_to_train="head"`` trains only this
        layer.
    features : str, optional
        With ``head="new"``: the name of the value of the model that is the input of the new layer, if this is not the
        input of the last linear layer. The value is averaged over all axes but the feature axis.
    inputs : dict, optional
        Values of the inputs of an ONNX model that are the same for all rows, by name: ``{"sr": 16000}``. A scalar fills
        an input of any shape; a state has length 1 on its batch axis. The exported model keeps the input, with the
        value as its default unless its length is the number of rows.
    batch_axis : dict, optional
        The batch axis of an input of an ONNX model, ``{"state": 1}``, if the names of its dimensions do not show it;
        None: the input has no batch axis. If X is a dictionary, its arrays have the axis order of the model; in all
        other forms of X the rows are the first axis.
    pad : dict, optional
        The padding value of an input of an ONNX model, ``{"input_ids": 0}``: rows are padded at their end to the length
        of the longest. Masks are padded with 0.
    random_state : int, RandomState or None
        Seed of all random draws: initial weights, order of the rows, held-out rows.
    verbose : int
        1 shows a progress bar, 2 prints a line per epoch.
    average : bool or float
        Keep the mean of the weights over the epochs, in which noise cancels out. True: after t epochs the new weights
        enter the mean with weight ``4 / (t + 3)``, so that late epochs count most. A float below 1 is the decay of an
        exponential moving average. The validation loss is computed with the mean. Training continues from the
        unaveraged weights. Not with ``"lbfgs"``.
    l1_method : {"penalty", "proximal"}
        How the stochastic solvers minimise l1, including the l1 terms of `penalty`. ``"penalty"``: as part of the loss,
        whose gradient makes weights small but not zero. ``"proximal"``: a soft threshold after each step, see
        :class:`onnxtrain.optim.Proximal`, makes weights exactly zero. The minimum and the reported loss are the same.
        ``"lbfgs"`` gives exact zeros with either.
    accumulate : int
        The number of batches per step. Their gradients are summed before the weights are updated, as for one large
        batch, but with the memory of one small batch. The last step of an epoch has the remaining batches. Not with
        ``"lbfgs"``.
    on_interrupt : {"keep", "raise"}
        What ``fit`` does after Ctrl-C. In both cases the estimator has the weights of the last complete epoch; with a
        validation set, those of the best epoch. ``"keep"``: the fit ends with a warning. ``"raise"``: it ends with
        KeyboardInterrupt, so that an enclosing loop ends too. Inside a search, cross-validation or ensemble of
        scikit-learn, KeyboardInterrupt is always raised.

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
    OrtGradientClassifier : The same for classification.

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
        if tags.target_tags.multi_output or tags.estimator_type != "regressor":  # one target per output
            return True
        # MLPRegressor takes several targets, but its tags do not say so; it may be the last step of a pipeline
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
            With three or more axes, the shape of y.

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
        """Return R², the coefficient of determination; with three or more axes, over all entries of y that are not NaN.

        Of generalized linear models too, whose own score in scikit-learn is D²: ``to_sklearn().score(X, y)``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or rows in parts
            As in ``fit``.
        y : array-like of shape (n_samples,), (n_samples, n_outputs) or the shape of the predictions
            As in ``fit``.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

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
        with deferred.remedies.as_data_error():
            return float(r2_score(targets, predictions, sample_weight=weight))
