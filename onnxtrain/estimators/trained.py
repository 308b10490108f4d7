"""Trained estimators: access to the model, predictions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from sklearn.utils.validation import check_is_fitted

from onnxtrain.convert.export import to_sklearn
from onnxtrain.errors import DataError, DeviceError, ExportError
from onnxtrain.estimators.frames import (
    as_pandas,
    check_named,
    comes_by_name,
    declared_inputs,
    feeds_by_name,
    in_order,
    is_frame,
    n_rows,
)
from onnxtrain.estimators.settings import HALVES
from onnxtrain.estimators.source import Source, is_onnx
from onnxtrain.estimators.validation import check_features, check_sample_weight, check_X, check_X_y
from onnxtrain.runtime.device import Device, find_device
from onnxtrain.runtime.session import LazySession, cached_session, open_session, run_session
from onnxtrain.runtime.threads import is_worth_a_thread, threads_for
from onnxtrain.training.data import batches, dense, rows_at_once
from onnxtrain.training.evaluate import row_losses, run_in_groups
from onnxtrain.training.model import TrainableModel, with_weights
from onnxtrain.training.objective import LIGHT, Objective, multiplications

#: Rows for which the number of threads is chosen: a session serves predictions of any size.
_MANY_ROWS = 65_536


class Trained:
    """Mixin of the estimators: rows in, results out."""

    if TYPE_CHECKING:  # attributes of the estimators
        estimator: Any
        weights_: dict[str, np.ndarray]
        n_threads: int | None
        device: str
        dtype: str
        _named: bool
        _source: Source
        _session: LazySession
        _objective: Objective
        _training_data: Any
        _whole: Objective
        _constants: dict[str, np.ndarray]

        @property
        def _classifies(self) -> bool: ...

    @property
    def _real(self) -> str:
        """The type of rows, weights and all that is no product."""
        return "float32" if self.dtype in HALVES else self.dtype

    # the trained model ------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "weights_")

    @property
    def _model(self) -> TrainableModel:
        check_is_fitted(self)
        return self._source.model

    def get_trained_onnx(self) -> onnx.ModelProto:
        """Return the model with the trained weights: the inputs and outputs it came with, labels included.

        It predicts as the estimator, up to the rounding of its type.

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
        weight = check_sample_weight(sample_weight, y, self._real, keep=True)
        n_threads = threads_for(len(y) * multiplications(self._objective.model), self.n_threads)
        data = self._training_data(X, y, None)
        losses = row_losses(self._objective.as_of_now(), self.weights_, data, self._device_at_hand(), n_threads)
        return losses if weight is None else losses * weight

    def _run(self, X: Any, output: str) -> np.ndarray:
        """Return one output of the trained model for rows, computed in pieces of bounded size.

        It is float32 for float32 rows and float64 for all others, as scikit-learn's estimators.
        """
        result = np.dtype(np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64)
        X = self._check_X(X)
        session, known = self._predictor()
        found = self._run_chunks(session, self._feeds(X), [output], known)[output]
        return found.astype(result, copy=False)

    def _predictor(self) -> tuple[Any, dict[str, np.ndarray]]:
        """Return a session that predicts, and its inputs besides the rows.

        Opening one takes 0.6 ms, scoring a fold of a grid search with a small model 0.3: the weights of such
        models are inputs, and all fits of the same structure share one session.
        """
        # weights that are not trained count; one that is multiplied by nothing, such as a leaf of a tree, too
        n_numbers = sum(w.size for w in self.weights_.values())
        work = _MANY_ROWS * max(multiplications(self._whole.model), n_numbers)
        large = is_worth_a_thread(work)
        if not large and len(self._source.model.onnx) <= LIGHT:  # sessions that are shared are kept
            onx, known = self._fed_with(self.weights_)
            return cached_session(onx, self._device_at_hand(), 1, thorough=False), known

        def make() -> Any:
            onx = with_weights(self._source.model.onnx, self.weights_)
            return open_session(onx, self._device_at_hand(), threads_for(work, self.n_threads), thorough=large)

        return self._session.open(make), {}

    def _fed_with(self, weights: Mapping[str, np.ndarray]) -> tuple[bytes, dict[str, np.ndarray]]:
        """Return the model whose weights are inputs, and its inputs besides the rows."""
        known = {name: np.asarray(w, self._real) for name, w in weights.items()} | self._constants
        return self._whole.model, known

    def _device_at_hand(self) -> Device:
        """Return the device of the parameters, or the CPU with a warning if this machine lacks it."""
        try:
            return find_device(self.device)
        except DeviceError as e:
            warnings.warn(f"{e} The CPU is used instead.", UserWarning, stacklevel=4)
            return find_device("cpu")

    # inputs -----------------------------------------------------------------

    def _input_of(self, *, reset: bool = False) -> tuple[Any, int]:
        """Return the type and the rank of X, from the model if known."""
        declared: dict[str, tuple[Any, int]] = {}
        if not reset:
            model = self._source.model
            declared = {name: (dtype, len(model.shapes[name])) for name, dtype in model.features.items()}
        elif self.estimator is not None and is_onnx(self.estimator):
            declared = declared_inputs(self.estimator)
        if len(declared) != 1:
            return np.dtype(self._real), 2
        ((dtype, ndim),) = declared.values()
        return np.dtype(self._real) if dtype.kind == "f" else dtype, ndim

    def _check_X(self, X: Any) -> Any:
        if self._named:
            return check_named(self, as_pandas(X), None, reset=False)[0]
        dtype, ndim = self._input_of()
        return check_X(self, X, reset=False, dtype=dtype, ndim=ndim)

    def _check_X_y(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, np.ndarray]:
        if reset:
            self._named = comes_by_name(X, self.estimator)
            names = getattr(self.estimator, "feature_names_in_", None)
            if names is not None and is_frame(X):
                X = in_order(X, names, self.estimator)
        if self._named:
            return check_named(self, as_pandas(X), y, reset=reset)
        dtype, ndim = self._input_of(reset=reset)
        return check_X_y(self, X, y, reset=reset, dtype=dtype, ndim=ndim, numeric=not self._classifies)

    def _check_only_input(self, X: Any) -> None:
        """Compare the rows with the one input of the model."""
        shapes = self._source.model.shapes
        if len(shapes) > 1:
            raise DataError(
                f"The model has the inputs {', '.join(shapes)}: give X as a dictionary or a DataFrame by these names."
            )
        for shape in shapes.values():
            check_features(X, shape, "the model takes")

    def _feeds(self, X: Any) -> dict[str, Any]:
        """Return the rows by the names of the inputs of the model."""
        features = self._source.model.features
        if self._named:
            return feeds_by_name(X, features, self._source.model.shapes)
        (name,) = features
        return {name: X}

    def _run_chunks(
        self,
        session: Any,
        feeds: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        known: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """Return outputs of a session for rows, computed in pieces of bounded size; `known` is fed with each."""
        names = list(outputs) if outputs is not None else [o.name for o in session.get_outputs()]
        dtypes = self._source.model.features
        parts = []
        for rows in batches(n_rows(feeds), rows_at_once(feeds, dtypes)):
            piece = {name: dense(x[rows], dtypes[name]) for name, x in feeds.items()}
            parts.append(run_in_groups(session, piece, known, names) if known else run_session(session, piece, names))
        found = parts[0] if len(parts) == 1 else [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        return dict(zip(names, found, strict=True))
