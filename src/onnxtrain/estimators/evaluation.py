"""Evaluation of a fitted estimator on rows: outputs, losses, gradients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from onnxtrain.arguments import names_its_arguments
from onnxtrain.errors import DataError
from onnxtrain.estimators import deferred
from onnxtrain.estimators.base import OrtGradientEstimator
from onnxtrain.estimators.protocols import ArrayLike, is_of_objects
from onnxtrain.rows.parts import Parts


class EvaluableEstimator(OrtGradientEstimator):
    """An estimator that runs its trained model on rows: losses, gradients, intermediate results."""

    @abstractmethod
    def predict(self, X: ArrayLike | Parts) -> np.ndarray:
        """Return the predictions for the rows."""

    @names_its_arguments
    def losses(
        self, X: ArrayLike | Parts, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> np.ndarray:
        """Return the loss of each row, without penalties: the loss of the last fit, also after ``set_params``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or rows in parts
            As in ``fit``.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            As in ``fit``.
        sample_weight : array-like of shape (n_samples,), optional
            The loss of each row is multiplied by the weight of the row.

        Returns
        -------
        ndarray of shape (n_samples,)
            The losses.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> line.losses([[0.0], [1.0]], [1.0, 5.0]).round(3).tolist()  # squared errors
        [0.0, 4.0]
        """
        return deferred.fit_data.joined(self._losses(*part) for part in deferred.fit_data.labelled(X, y, sample_weight))

    def _losses(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> np.ndarray:
        model = self._model
        with self._expecting_rows(X, y, "losses"):
            X, label = self._check_labelled(X, y)
        weight = deferred.sample_weights.check_sample_weight(sample_weight, label, model.dtype, keep=True)
        with model.category_named(X):
            losses = model.losses(X, label)
        return losses if weight is None else losses * weight

    @names_its_arguments
    def gradient(self, X: ArrayLike, y: ArrayLike | None = None, wrt: str = "X") -> np.ndarray:
        """Return the gradient of the loss, or of the output, with respect to the rows.

        If scikit-learn runs the first steps of a pipeline (:attr:`onnx_status_`), the gradient is with respect to the
        output of these steps.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            As in ``fit``.
        y : array-like, optional
            If given, the loss of each row, that of the last fit, is differentiated; otherwise, each score (of a
            classifier) or each output (of a regressor).
        wrt : str
            ``"X"``, or the name of an input of the model.

        Returns
        -------
        ndarray of shape (n_samples, n_features) or (n_samples, n_features, n_scores)
            The last axis is present if there are several scores and y is not given.

        Raises
        ------
        WeightError
            The gradient is 0 everywhere, as that of trees, or the input contains integers.

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
            raise DataError(f"y must contain targets, got the string {y!r}. Name an input as gradient(X, wrt={y!r}).")
        if y is None:
            return model.score_gradient(model.check(self, deferred.fit_data.at_hand(X).X), wrt)
        rows = deferred.fit_data.at_hand(X, y)
        with self._expecting_rows(rows.X, rows.y, "gradient"):
            checked = self._check_labelled(rows.X, rows.y)
        return model.loss_gradient(*checked, wrt)

    @names_its_arguments
    def embed(self, X: ArrayLike, output: str) -> np.ndarray:
        """Return an intermediate result of the trained model, such as a hidden layer.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            As in ``fit``.
        output : str
            The name of a value in the graph of :meth:`get_trained_onnx`.

        Returns
        -------
        ndarray
            One entry per row, along the first axis.

        Raises
        ------
        ModelError
            The model has no value of this name.

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
        return self._model.embed(self._model.check(self, deferred.fit_data.at_hand(X).X), output)

    def _scored(
        self, X: ArrayLike | Parts, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return the targets that count, their predictions and their weights, concatenated over all parts."""
        self._check_fitted()
        found = []
        for part in deferred.fit_data.labelled(X, y, sample_weight):
            deferred.validation.check_even(part.y)
            if not self._classifies:
                deferred.validation.check_no_text(part.y)
            with self._expecting_rows(part.X, part.y, "score"):
                predictions = self.predict(part.X)
            deferred.validation.check_lengths(range(predictions.shape[0]), part.y)  # sparse ones have no len
            weight = deferred.sample_weights.check_sample_weight(part.sample_weight, predictions, "float64", keep=True)
            found.append(self._targets.counted(part.y, predictions, weight))
        targets, predictions, weights = (deferred.fit_data.joined(iter(values)) for values in zip(*found, strict=True))
        deferred.validation.check_not_infinite(targets)
        if not self._classifies:
            _check_predicted(predictions)
        return targets, predictions, weights

    @contextmanager
    def _expecting_rows(self, X: Any, y: Any, method: str) -> Iterator[None]:
        """Say in an error about one-dimensional rows that a method takes rows, not predictions."""
        try:
            yield
        except DataError as e:
            deferred.validation.check_places(X, y, method)
            if np.ndim(X) == np.ndim(y) == 1 and not is_of_objects(X):
                raise DataError(
                    f"{type(self).__name__}.{method} takes the rows, not predictions: {method}(X, y). A metric of "
                    "sklearn.metrics compares y with predictions."
                ) from e
            raise

    def _check_labelled(self, X: ArrayLike, y: ArrayLike) -> tuple[Any, np.ndarray]:
        """Return the checked rows and their encoded labels."""
        model = self._model
        rows = deferred.fit_data.check_rows(self, X, y, None, model)
        return rows.X, self._targets.encode(rows.y, model)

    def _predicted(self, X: ArrayLike | Parts, output: str, read: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return an output of the trained model for the rows, after `read` is applied.

        As in scikit-learn, the output is float32 for float32 rows and float64 otherwise.
        """
        model = self._model
        found = []
        for rows in (piece for part in deferred.fit_data.features_of(X) for piece in model.form.pieces(part)):
            dtype = np.dtype(np.float32 if getattr(rows, "dtype", None) == np.float32 else np.float64)
            with deferred.fit_data.of_rows_in_parts(X):
                checked = model.check(self, rows)
            outputs = model.predict(checked, output)
            finite = True
            with model.category_named(rows):
                for piece in outputs:
                    if finite and not np.isfinite(piece.sum()):
                        finite = False
                        model.raise_as_original(rows)
                    found.append(read(piece.astype(dtype, copy=False)))
        if not found:
            raise DataError("X has no rows. Pass at least one.")
        return found[0] if len(found) == 1 else np.concatenate(found)


def _check_predicted(predictions: np.ndarray) -> None:
    """Raise a DataError if predictions are NaN; a metric would not say that the predictions are."""
    n_unknown = int(np.isnan(predictions).reshape(len(predictions), -1).any(axis=1).sum())
    if n_unknown:
        raise DataError(
            f"predict returns NaN for {n_unknown} of {len(predictions)} rows, so they have no score. Look for NaN in "
            "X. If it has none, increase the radius of a RadiusNeighborsRegressor inside, which predicts NaN for rows "
            "without neighbors, or use KNeighborsRegressor."
        )
