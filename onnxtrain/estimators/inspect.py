"""Inspection of trained estimators: gradients, intermediate results, coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtrain.errors import DataError
from onnxtrain.runtime.session import open_session, run_session
from onnxtrain.training.data import rows_at_once
from onnxtrain.training.evaluate import build_loss_gradient, build_score_gradients, with_result
from onnxtrain.training.model import with_weights

if TYPE_CHECKING:
    from onnxtrain.estimators.source import Source
    from onnxtrain.training.model import TrainableModel
    from onnxtrain.training.objective import Objective


class Inspectable:
    """Mixin of the estimators: inspection of the trained model."""

    if TYPE_CHECKING:  # attributes of the estimators
        weights_: dict[str, np.ndarray]
        n_threads: int | None
        to_sklearn: Any

        @property
        def _classifies(self) -> bool: ...

        _source: Source

        @property
        def _model(self) -> TrainableModel: ...

        _whole: Objective
        _check_X: Any
        _check_X_y: Any
        _device_at_hand: Any
        _feeds: Any
        _run_chunks: Any
        _whole_data: Any

    def gradient(self, X: Any, y: Any = None, wrt: str = "X") -> np.ndarray:
        """Return the gradient with respect to the rows.

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
        feature = self._feature(wrt)
        if y is None:
            X = self._check_X(X)
            found = self._run_all(build_score_gradients(self._with_weights(), self._asked, feature), X)
            stacked = np.stack(found, axis=-1)
            return stacked[..., 0] if len(found) == 1 else stacked
        X, y = self._check_X_y(X, y, reset=False)
        g = build_loss_gradient(self._whole.as_of_now(), feature)
        session = open_session(g.onnx, self._device_at_hand(), self.n_threads)
        data = self._whole_data(X, y, None)
        known = {i.name for i in session.get_inputs()}
        parts = []
        for rows in data.batches(rows_at_once(data.features, data.dtypes)):
            feeds = {**data.constants, **self.weights_, **data.take(rows), g.inputs["label"]: data.label[rows]}
            parts.append(run_session(session, {name: v for name, v in feeds.items() if name in known})[0])
        return np.concatenate(parts)

    def embed(self, X: Any, output: str) -> np.ndarray:
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
        (found,) = self._run_all(with_result(self._with_weights(), output), self._check_X(X))
        return found

    @property
    def coef_(self) -> np.ndarray:
        """The coefficients, in the shape of the estimator that was trained."""
        return self._trained_attribute("coef_")

    @property
    def intercept_(self) -> Any:
        """The intercepts, in the shape of the estimator that was trained."""
        return self._trained_attribute("intercept_")

    def _trained_attribute(self, name: str) -> Any:
        estimator = self._source.estimator if hasattr(self, "_source") else None
        if not hasattr(estimator, name):
            raise AttributeError(f"{type(self).__name__} has {name} once it has trained an estimator that has.")
        return getattr(self.to_sklearn(), name)

    @property
    def _asked(self) -> str:
        """The output whose gradient is taken: the scores of a classifier."""
        return (self._model.scores if self._classifies else None) or self._model.output

    def _feature(self, wrt: str) -> str:
        names = list(self._model.features)
        if wrt == "X" and len(names) == 1:
            return names[0]
        if wrt not in names:
            raise DataError(f"The model has no input {wrt!r}; it has {', '.join(names)}.")
        return wrt

    def _with_weights(self) -> bytes:
        return with_weights(self._model.onnx, self.weights_).SerializeToString()

    def _run_all(self, onx: bytes, X: Any) -> list[np.ndarray]:
        session = open_session(onx, self._device_at_hand(), self.n_threads)
        return list(self._run_chunks(session, self._feeds(X)).values())
