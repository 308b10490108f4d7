"""The regressor and the classifier for Dask arrays and frames."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from distributed import Client

from onnxtrain import estimators as plain
from onnxtrain.arguments import names_its_arguments
from onnxtrain.dask.partitions import is_lazy, mapped, partitions
from onnxtrain.dask.rows import DistributedRows
from onnxtrain.dask.scores import accuracy, r_squared
from onnxtrain.dask.start import Sample, class_weights_of, encoded, held_out, with_front
from onnxtrain.dask.steps import DistributedFit
from onnxtrain.dask.workers import Workers
from onnxtrain.errors import DataError, ParameterError
from onnxtrain.estimators.base import OrtGradientEstimator
from onnxtrain.estimators.checkpoint import Checkpoint
from onnxtrain.estimators.constraints import random_state_of
from onnxtrain.estimators.fit import train
from onnxtrain.estimators.fit_data import data_of
from onnxtrain.estimators.independence import warn_of_loss_of_batch
from onnxtrain.estimators.protocols import take
from onnxtrain.estimators.reports import as_listener
from onnxtrain.estimators.settings import HALVES, settings_of
from onnxtrain.estimators.start import start
from onnxtrain.training.state import Listener

#: The parameters that the plain estimators lack.
_OWN = ("client", "max_failures", "timeout")


class OnDask(OrtGradientEstimator):
    """The common base class of the regressor and the classifier on a cluster."""

    client: Client | None
    max_failures: int
    timeout: float

    #: One row of the last fit.
    _row: Any

    #: The class of the estimator that trains in one process.
    _plain: ClassVar[type[OrtGradientEstimator]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # scikit-learn and users need the parameters of the plain estimator by name; a copy of its forty lines would
        # diverge
        own = inspect.signature(cls.__init__).parameters
        inherited = inspect.signature(cls._plain.__init__).parameters
        merged = {**inherited, **{name: own[name] for name in _OWN}}
        cls.__init__.__signature__ = inspect.Signature(list(merged.values()))  # type: ignore[attr-defined]

    def to_local(self) -> Any:
        """Return the plain estimator of :mod:`onnxtrain` with the same parameters, fitted if this one is fitted.

        Returns
        -------
        onnxtrain.OrtGradientRegressor or onnxtrain.OrtGradientClassifier
        """
        local = self._plain(**{name: getattr(self, name) for name in self._plain._get_param_names()})
        take_learned(local, self)
        return local

    @names_its_arguments
    def fit(
        self,
        X: Any,
        y: Any = None,
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
        """Train the model on rows that are distributed over the workers.

        The rows are not moved. A sample of about 10,000 rows, with some of each class, is sent to the client. On the
        sample, the conversion is compared with the estimator, and an unfitted estimator is fitted.

        Parameters
        ----------
        X : dask array of shape (n_samples, n_features) or dask DataFrame
        y : dask array or Series of shape (n_samples,) or (n_samples, n_outputs)
            The targets, with the partitions of X, as are the sample weights. Partitions may differ in length and may be
            empty.
        sample_weight : dask array or Series of shape (n_samples,), optional
            Weights of the rows, not negative. A row of weight zero is ignored.
        X_val, y_val, sample_weight_val : dask array or frame, optional
            The validation set.
        callback : callable, optional
            As in the plain estimator; the client calls it.
        checkpoint : path, optional
            A file of the client to which the state of the fit is written every `every` epochs. :func:`onnxtrain.load`
            reads it as a plain estimator.
        every : int
        resume : bool
            Continue from the file `checkpoint` if it exists, else start from the beginning.

        Returns
        -------
        self

        Raises
        ------
        ClusterError
            The same tasks were lost with their workers more than `max_failures` times, or the workers did not respond
            for `timeout` seconds. A checkpoint contains the epochs until then.
        ConvergenceError
            The loss became infinite or NaN. The estimator holds the initial weights or those of the best epoch,
            whichever have the lower loss.
        DataError
            y is missing, its partitions differ from those of X, or a partition does not fit the model.
        """
        if self.dtype in HALVES:
            raise ParameterError(f"dtype={self.dtype!r} is for one device. Set 'float32' or 'float64' on a cluster.")
        if y is None:
            raise DataError(
                "y is missing. Pass Dask arrays or frames: fit(X, y). Rows in parts are for the estimator of onnxtrain "
                f"itself: onnxtrain.{type(self).__name__}(...).fit(parts)."
            )
        if isinstance(self.estimator, Client):
            raise ParameterError("estimator must be a model, got a Client of Dask. Pass it by name: client=client.")
        own = [] if callback is None else [as_listener(callback)]
        workers = Workers.of(self.client, self.max_failures, self.timeout)
        local = self.to_local()
        if not self.warm_start and local.__sklearn_is_fitted__():
            del local._trained
        try:
            rows = (X, y, sample_weight), (X_val, y_val, sample_weight_val)
            self._fit(local, workers, *rows, Checkpoint(local, checkpoint, every, resume), own)
        finally:
            if local.__sklearn_is_fitted__():
                take_learned(self, local)
        return self

    def _fit(
        self,
        local: OrtGradientEstimator,
        workers: Workers,
        given: tuple[Any, Any, Any],
        validation_given: tuple[Any, Any, Any],
        file: Checkpoint,
        own: list[Listener],
    ) -> None:
        settings = settings_of(local)
        local._random_state = file.rng_at("start", random_state_of(local))
        parts = _started(workers, given)
        sample = Sample.of(workers, parts, classifies=local._classifies)
        known = local._trained if local.__sklearn_is_fitted__() else None
        self._row = take(sample.X, np.arange(1))
        rows, model, state = start(local, sample.X, sample.named(given[1]), sample.sample_weight, known)
        warn_of_loss_of_batch(local, model, rows, known)
        n_rows = sum(sample.counts.values()) or len(sample.y)
        model = with_front(model, data_of(local, model, rows), self.max_iter, n_rows)
        encoder = _encoder(local, sample)
        data = encoded(workers, parts, encoder, model)
        del parts
        validation = _validation(workers, validation_given, encoder, model)
        local._random_state = file.rng_at("split", local._random_state)
        if validation is None and self.early_stopping:
            data, validation = held_out(data, self.validation_fraction, local._random_state)
        so_far = state.so_far()
        killed = file.restored(model, data, validation)
        if killed is None:
            state.begin(validated=validation is not None, weighted=data.weighted)
        else:
            model, state, local._random_state = killed
        fit = DistributedFit(model.rest, data, validation, settings, state, so_far, local._random_state)
        train(local, model, fit, self.max_iter, *own, *file.listeners(model, state))
        file.check_written()

    def _predicted(self, X: Any, output: str, read: Callable[[np.ndarray], np.ndarray]) -> Any:
        """Return an output of the trained model after `read`; for a Dask collection, as a lazy array."""
        if not is_lazy(X):
            return super()._predicted(X, output, read)
        local, row = self.to_local(), self._row
        row = row.astype(X.dtype) if hasattr(X, "dtype") else row
        return mapped(predicted, (local, output, read), X, like=local._predicted(row, output, read))

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy with the same client, because a client cannot be copied."""
        without = type(self)(**self.get_params(deep=False) | {"client": None})
        copied = super(OnDask, without).__sklearn_clone__()
        copied.client = self.client
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for pickling, without the client."""
        return super().__getstate__() | {"client": None}


def take_learned(to: OrtGradientEstimator, of: OrtGradientEstimator) -> None:
    """Copy the attributes of an estimator that are not parameters to another estimator.

    Learned attributes that only the other one has are removed, such as the names of columns of an earlier fit.
    """
    parameters = of._get_param_names()
    for name in [name for name in vars(to) if name.endswith("_") and name not in vars(of)]:
        delattr(to, name)
    for name, value in vars(of).items():
        if name not in parameters and name != "_row":
            setattr(to, name, value)


def predicted(model: tuple[Any, str, Callable[[np.ndarray], np.ndarray]], X: Any) -> np.ndarray:
    """Return an output of a trained model for a partition."""
    local, output, read = model
    return local._predicted(X, output, read)


def _started(workers: Workers, given: tuple[Any, Any, Any], suffix: str = "") -> list[Any]:
    """Return the partitions as futures, whose computation starts now; `suffix` ends the names in messages."""
    return workers.client.compute(partitions(*given, suffix=suffix))


def _encoder(local: OrtGradientEstimator, sample: Sample) -> OrtGradientEstimator:
    """Return an estimator that encodes partitions, which may each lack some of the classes."""
    encoder = type(local)(**local.get_params(deep=False))
    take_learned(encoder, local)
    if local._classifies:
        encoder.set_params(class_weight=class_weights_of(local, sample.counts))
    return encoder


def _validation(
    workers: Workers, given: tuple[Any, Any, Any], encoder: OrtGradientEstimator, model: Any
) -> DistributedRows | None:
    X, y, _ = given
    if all(values is None for values in given):
        return None
    if X is None or y is None:
        raise DataError("X_val and y_val must be passed together, but one of them is missing.")
    parts = _started(workers, given, "_val")
    try:
        return encoded(workers, parts, encoder, model)
    except DataError as e:
        raise DataError(f"The validation set, X_val and y_val: {e}") from e


class OrtGradientRegressor(OnDask, plain.OrtGradientRegressor):
    """:class:`onnxtrain.OrtGradientRegressor` on a Dask cluster.

    The rows stay on the workers. The client holds the weights and the optimizer, and makes every decision.
    ``solver="lbfgs"`` profits most: each evaluation sums every partition separately, and the result is the same bit by
    bit for any number of workers. The stochastic solvers use the batches of the plain estimator for up to 2**23 rows,
    and need large batches: see :doc:`/guide/cluster`.

    For a Dask array or frame, ``predict`` returns a lazy array, and ``score`` adds sums over the partitions. The other
    methods take rows in memory.

    Parameters
    ----------
    client : distributed.Client, optional
        The client of the cluster; None is the current one.
    max_failures : int
        How often tasks that were lost with a worker are started again. Dask recomputes the data that the worker held.
    timeout : float
        The seconds without a response from the workers after which ``fit`` fails.
    **parameters
        The parameters of :class:`onnxtrain.OrtGradientRegressor`. `n_threads` is the number of threads of a task; None
        is one.

    See Also
    --------
    OrtGradientClassifier : The same for classification.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from onnxtrain.dask import OrtGradientRegressor
    >>> client = Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0")
    >>> X = da.arange(100.0, chunks=25)[:, None] / 100
    >>> line = OrtGradientRegressor(solver="lbfgs", dtype="float64").fit(X, 2 * X[:, 0] + 1)
    >>> line.coef_.round(4), line.predict(X)
    (array([2.]), dask.array<concatenate, shape=(100,), dtype=float64, chunksize=(25,), chunktype=numpy.ndarray>)
    >>> client.close()
    """

    _plain = plain.OrtGradientRegressor

    def __init__(
        self,
        estimator: Any = None,
        *,
        client: Client | None = None,
        max_failures: int = 3,
        timeout: float = 300.0,
        **parameters: Any,
    ):
        super().__init__(estimator, **parameters)
        self.client, self.max_failures, self.timeout = client, max_failures, timeout

    @names_its_arguments
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # type: ignore[override]  # no parts
        """Return R², computed from sums over the partitions.

        Parameters
        ----------
        X : dask array of shape (n_samples, n_features) or dask DataFrame
        y : dask array or Series of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : dask array or Series of shape (n_samples,), optional

        Returns
        -------
        float
        """
        return r_squared(self, X, y, sample_weight) if is_lazy(X) else super().score(X, y, sample_weight)


class OrtGradientClassifier(OnDask, plain.OrtGradientClassifier):
    """:class:`onnxtrain.OrtGradientClassifier` on a Dask cluster; see :class:`OrtGradientRegressor` for the parameters.

    The classes of all partitions are found before training.

    Parameters
    ----------
    client : distributed.Client, optional
    max_failures : int
    timeout : float
    **parameters
        The parameters of :class:`onnxtrain.OrtGradientClassifier`.

    See Also
    --------
    OrtGradientRegressor : The same for real-valued targets.
    """

    _plain = plain.OrtGradientClassifier

    def __init__(
        self,
        estimator: Any = None,
        *,
        client: Client | None = None,
        max_failures: int = 3,
        timeout: float = 300.0,
        **parameters: Any,
    ):
        super().__init__(estimator, **parameters)
        self.client, self.max_failures, self.timeout = client, max_failures, timeout

    @names_its_arguments
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # type: ignore[override]  # no parts
        """Return the accuracy, computed from sums over the partitions.

        Parameters
        ----------
        X : dask array of shape (n_samples, n_features) or dask DataFrame
        y : dask array or Series of shape (n_samples,) or (n_samples, n_labels)
        sample_weight : dask array or Series of shape (n_samples,), optional

        Returns
        -------
        float
        """
        return accuracy(self, X, y, sample_weight) if is_lazy(X) else super().score(X, y, sample_weight)
