"""Writing of trained weights back to the scikit-learn estimator that they come from."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.neighbors import BallTree, KDTree
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from onnxtrain.convert.learned import Binding, get
from onnxtrain.errors import ExportError
from onnxtrain.registry import did_you_mean

#: Search trees over the fitted rows, by algorithm.
_SEARCH_TREES = {"kd_tree": KDTree, "ball_tree": BallTree}


def to_sklearn(estimator: BaseEstimator, bindings: Iterable[Binding], weights: Mapping[str, np.ndarray]) -> Any:
    """Return a fitted copy of an estimator with trained weights.

    Parameters
    ----------
    estimator : fitted estimator
        The converted estimator; it is not changed.
    bindings : iterable of Binding
        The bindings of its conversion.
    weights : mapping of name to array
        The trained initializers; other attributes stay unchanged.

    Raises
    ------
    ExportError
        A weight is unknown, or has no corresponding attribute in the estimator.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> from onnxtrain.convert import convert
    >>> X = np.array([[0.0], [1.0]])
    >>> model = LinearRegression().fit(X, [0.0, 1.0])
    >>> bindings = convert(model, X).bindings
    >>> to_sklearn(model, bindings, {"intercept": np.array([5.0])}).predict([[1.0]])
    array([6.])
    """
    known = {b.name: b for b in bindings}
    trained = copy.deepcopy(estimator)
    for name, weight in weights.items():
        if name not in known:
            raise ExportError(
                f"The weight {name!r} does not belong to {type(estimator).__name__}. {did_you_mean(name, known)}"
            )
        _write(trained, known[name], np.asarray(weight))
    for owner in {id(o): o for o in (_owner(trained, known[n]) for n in weights if known[n].kind != "leaf")}.values():
        make_consistent(owner)
    return trained


def _write(estimator: BaseEstimator, binding: Binding, weight: np.ndarray) -> None:
    if binding.kind == "derived":
        raise ExportError(
            f"The weight {binding.name!r} cannot be written back, because no attribute of {type(estimator).__name__} "
            "holds just these values. Use get_trained_onnx(), or leave the weight out of weights_to_train."
        )
    if weight.shape != binding.shape:
        raise ExportError(
            f"The weight {binding.name!r} has shape {weight.shape}, but the estimator's has {binding.shape}."
        )
    try:
        binding.write(estimator, weight)
    except (AttributeError, TypeError, ValueError) as e:
        raise ExportError(f"The weight {binding.name!r} cannot be written back: {e}") from e


def _owner(estimator: BaseEstimator, binding: Binding) -> Any:
    """Return the estimator that directly holds the attribute."""
    path = binding.path[:-1] if not isinstance(binding.path[-1], int) else binding.path[:-2]
    return get(estimator, path)


def make_consistent(owner: BaseEstimator) -> None:
    """Recompute the attributes that an estimator derives from the replaced ones."""
    if isinstance(owner, StandardScaler) and owner.scale_ is not None:
        owner.var_ = owner.scale_**2
    elif hasattr(owner, "_dual_coef_"):
        sign = -1 if len(getattr(owner, "classes_", ())) == 2 else 1
        owner.dual_coef_, owner.intercept_ = sign * owner._dual_coef_, sign * owner._intercept_
        if hasattr(owner, "offset_"):
            owner.offset_ = -owner._intercept_
    elif getattr(owner, "_fit_method", None) in _SEARCH_TREES:
        search = _SEARCH_TREES[owner._fit_method]
        owner._tree = search(
            owner._fit_X, owner.leaf_size, metric=owner.effective_metric_, **owner.effective_metric_params_
        )
    elif isinstance(owner, (GaussianMixture, BayesianGaussianMixture)) and owner.covariance_type in ("full", "tied"):
        # the sign of a column does not change the precision; scikit-learn takes the logarithm of the diagonal
        diagonal = np.diagonal(owner.precisions_cholesky_, axis1=-2, axis2=-1)
        owner.precisions_cholesky_ = owner.precisions_cholesky_ * np.where(diagonal < 0, -1, 1)[..., None, :]
    elif isinstance(owner, IsotonicRegression):
        owner._build_f(owner.X_thresholds_, owner.y_thresholds_)
    elif isinstance(owner, DummyClassifier):
        owner.class_prior_ = owner.class_prior_ / np.sum(owner.class_prior_)
    elif isinstance(owner, MaxAbsScaler):
        owner.max_abs_ = owner.scale_.copy()
    elif isinstance(owner, MinMaxScaler):
        low, high = owner.feature_range
        owner.data_min_ = (low - owner.min_) / owner.scale_
        owner.data_range_ = (high - low) / owner.scale_
        owner.data_max_ = owner.data_min_ + owner.data_range_
