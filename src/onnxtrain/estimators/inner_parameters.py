"""Warnings of parameters of a scikit-learn estimator that are not part of its graph, so that training ignores them.

These are its loss, its penalty, its class weights, bounds of its weights, and steps that resample the rows.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    GammaRegressor,
    HuberRegressor,
    Lasso,
    LassoCV,
    LogisticRegression,
    LogisticRegressionCV,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
    TweedieRegressor,
)
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

from onnxtrain.convert.learned import inside, library_of, predictor_of
from onnxtrain.errors import warn
from onnxtrain.estimators.constraints import is_set
from onnxtrain.estimators.reports import is_part_of_more
from onnxtrain.losses.table import LOSSES, loss_kind, our_name

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator

#: The parameter that is the strength of the penalty of an estimator, and the parameter of the same penalty here.
_PENALTIES: dict[type, tuple[str, str]] = {
    Ridge: ("alpha", "l2=alpha / n_samples"),
    Lasso: ("alpha", "l2=alpha"),
    ElasticNet: ("alpha", "l2=alpha"),
    LogisticRegression: ("C", "l2=1 / (2 * C * n_samples)"),
    SGDClassifier: ("alpha", "l2=alpha / 2"),
    SGDRegressor: ("alpha", "l2=alpha"),
    MLPClassifier: ("alpha", "l2=alpha / (2 * batch_size)"),
    MLPRegressor: ("alpha", "l2=alpha / batch_size"),
    RidgeClassifier: ("alpha", "l2=alpha / n_samples"),
    LinearSVC: ("C", "l2=1 / (2 * C * n_samples)"),
    LinearSVR: ("C", "l2=1 / (2 * C * n_samples)"),
    QuantileRegressor: ("alpha", ""),
    **dict.fromkeys((GammaRegressor, PoissonRegressor, TweedieRegressor), ("alpha", "l2=alpha / 2")),
    KernelRidge: ("alpha", ""),  # its penalty is one of functions, and l2 one of dual coefficients
    **dict.fromkeys((SVC, SVR), ("C", "")),
}

#: The parameter of the same penalty here, if that of an estimator is one of absolute values.
_OF_L1: dict[type, str] = {
    **dict.fromkeys((Lasso, ElasticNet, SGDRegressor), "l1=2 * alpha"),
    **dict.fromkeys((LogisticRegression, LinearSVC), "l1=1 / (C * n_samples)"),
    **dict.fromkeys((QuantileRegressor, SGDClassifier), "l1=alpha"),
}

#: The estimators with the same penalty as those that choose its strength, an attribute that ends in an underscore.
_WITHOUT_CHOICE: dict[type, type] = {
    ElasticNetCV: ElasticNet,
    LassoCV: Lasso,
    LogisticRegressionCV: LogisticRegression,
    RidgeClassifierCV: RidgeClassifier,
    RidgeCV: Ridge,
}

#: The losses of estimators that have no parameter `loss`.
_LOSSES: dict[type, str] = {
    GammaRegressor: "gamma",
    HuberRegressor: "huber",
    PoissonRegressor: "poisson",
    QuantileRegressor: "quantile",
    **dict.fromkeys((SVR, LinearSVR), "epsilon_insensitive"),
}

#: The parameter of a loss, and its names in scikit-learn, LightGBM and XGBoost.
_PARAMETERS = {
    "epsilon_insensitive": ("epsilon", ("epsilon",)),
    "quantile": ("q", ("quantile", "alpha", "quantile_alpha")),
    "tweedie": ("power", ("power", "tweedie_variance_power")),
}


#: Parameters of boosted models that weigh their classes, besides class_weight.
_OF_BOOSTED = ("scale_pos_weight", "is_unbalance", "auto_class_weights", "class_weights")


def warn_of_ignored_parameters(estimator: OrtGradientEstimator, weights: Collection[str]) -> None:
    """Warn of each parameter of the given model that training ignores; `weights` are the names of those it trains.

    Within a search, only penalties and class weights are warned of. A search may vary the loss, whose default is then
    one of the candidates.
    """
    model = estimator.estimator
    boosted = library_of(type(model)) is not None  # models of CatBoost are no BaseEstimator
    if (isinstance(model, BaseEstimator) or boosted) and estimator.max_iter:
        last = predictor_of(model)
        said = [*_on_penalty(estimator, last, weights), *_on_weights(estimator, last)]
        if not is_part_of_more():
            said += [*_on_loss(estimator, last), *_on_samplers(estimator, model)]
        for message in said:
            warn(message)


def _on_penalty(estimator: OrtGradientEstimator, last: Any, weights: Collection[str]) -> Iterator[str]:
    name, ours = type(last).__name__, type(estimator).__name__
    if getattr(last, "positive", False) is True:
        yield f"positive=True of {name} has no effect on the training, after which coefficients may be negative."
    kind = _WITHOUT_CHOICE.get(type(last), type(last))
    if kind not in _PENALTIES:
        return
    share = _share_of_l1(last)
    strength, default = _PENALTIES[kind][0], inspect.signature(kind).parameters[_PENALTIES[kind][0]].default
    if kind is not type(last):
        strength += "_"
        if not hasattr(last, strength):
            yield from _on_choice(estimator, last, share)
            return
    same, chosen = _same_penalty(last, kind, share), getattr(last, strength)
    if np.asarray(chosen).dtype.kind not in "fiu" or not np.any(chosen):
        return  # scikit-learn refuses it, or there is no penalty
    if not same and estimator.early_stopping:
        return
    if estimator.l1 or estimator.l2 or estimator.penalty:
        copied = strength == "alpha" and np.ndim(chosen) == 0 and estimator.l2 == chosen != default
        if copied and "/ n_samples" in same and not is_part_of_more():
            yield (
                f"l2={chosen!r} has the value of {strength} of {name}, but multiplies another penalty, because the "
                f"objective is a mean over the rows. The same penalty is {same} of {ours}."
            )
        return
    strong = np.min(chosen) < default if strength[0] == "C" else np.max(chosen) > default  # stronger than usual
    if strong or (share and _shows_zeros(last, chosen, default)):
        remedy = f"The same penalty is {same} of {ours}."
        if not same:
            names = [name for name in weights if name.rpartition(".")[2] == "dual_coef"]
            code = f", or penalize: penalty={{{names[-1]!r}: {{'l2': 1e-3}}}}" if names else ""
            remedy = f"Limit the training by early_stopping=True{code}."
        yield (
            f"{strength}={np.asarray(chosen).tolist()!r:.80} of {name} has no effect on the training, which "
            f"minimizes the loss without this penalty. {remedy}"
        )


def _share_of_l1(last: Any) -> float:
    """Return the share of absolute values in the penalty of an estimator, its ``l1_ratio``."""
    kind = getattr(last, "penalty", "l1" if isinstance(last, (Lasso, LassoCV, QuantileRegressor)) else "elasticnet")
    if kind in ("l1", "l2", None):
        return float(kind == "l1")
    ratio: Any = getattr(last, "l1_ratio_", getattr(last, "l1_ratio", None))
    return float(np.max(ratio)) if np.asarray(ratio).dtype.kind in "fiu" else 0.0


def _same_penalty(last: Any, kind: type, share: float) -> str:
    """Return the arguments of the equivalent penalty, with the strength that cross-validation selected, if any."""
    absolute, (strength, squared) = _OF_L1.get(kind, ""), _PENALTIES[kind]
    same = absolute if share == 1 else squared
    if absolute and 0 < share < 1:
        same = f"{absolute.replace('=', '=l1_ratio * ')}, {squared.replace('=', '=(1 - l1_ratio) * ')}"
    if kind is type(last):
        return same
    chosen = np.min(last.C_) if strength == "C" else np.max(last.alpha_)
    return re.sub(rf"\b{strength}\b", f"{chosen:.4g}", same.replace("l1_ratio", f"{share:.4g}"))


def _shows_zeros(last: Any, chosen: Any, default: Any) -> bool:
    """Whether a penalty of absolute values made coefficients 0 or, of an estimator that is not fitted, is set."""
    coef = getattr(last, "coef_", None)
    if coef is None:
        return bool(chosen != default)
    return scipy.sparse.issparse(coef) or bool(np.any(coef == 0))


def _on_choice(estimator: OrtGradientEstimator, last: Any, share: float) -> Iterator[str]:
    """Yield a message about an estimator that would choose a penalty of absolute values in its fit."""
    kind = _WITHOUT_CHOICE[type(last)]
    if share == 1 and kind in _OF_L1 and not (estimator.l1 or estimator.l2 or estimator.penalty):
        code, inner = "model", estimator.estimator
        while isinstance(inner, Pipeline):
            code, inner = f"{code}[-1]", inner[-1]
        same = re.sub(r"\b(alpha|C)\b", rf"{code}.\1_", _OF_L1[kind])
        yield (
            f"The penalty that {type(last).__name__} chooses has no effect on the training, which minimizes the loss "
            f"without it. Fit the model first: model.fit(X, y). The same penalty is {same} of "
            f"{type(estimator).__name__}."
        )


def _on_loss(estimator: OrtGradientEstimator, last: Any) -> Iterator[str]:
    loss, parameters = _loss_of(last)
    task = "classification" if estimator._classifies else "regression"
    if loss not in LOSSES or is_set(estimator, "loss") or loss_kind(loss) != task:
        return
    if LOSSES[loss] is not LOSSES[str(estimator.loss)]:
        level = f", loss_params={parameters!r}" if parameters else ""
        yield (
            f"{type(last).__name__} minimizes the loss {loss!r}, but training minimizes loss={estimator.loss!r}, the "
            f"default of {type(estimator).__name__}. Set loss={loss!r}{level} to go on with it."
        )


def _loss_of(last: Any) -> tuple[Any, dict[str, Any]]:
    """Return the name of the loss that an estimator minimizes, and the parameters of the same loss here."""
    loss: Any = getattr(last, "loss", None) if _is_chosen(last, "loss") else _LOSSES.get(type(last))
    level = ""
    if library_of(type(last)) and isinstance(objective := _objective_of(last), str):
        objective, _, level = re.sub(":(alpha|variance_power)=", "=", objective).partition("=")
        loss = our_name(objective)
    if type(last) is TweedieRegressor:
        loss = {0: "squared_error", 1: "poisson", 2: "gamma"}.get(last.power, "tweedie")
    if loss not in _PARAMETERS:
        return loss, {}
    ours, names = _PARAMETERS[loss]
    params = last.get_params()
    values = [params[name] for name in names if params.get(name) is not None]
    values += [float(level.partition(";")[0])] if level else []
    return loss, {ours: values[0]} if values else {}


def _objective_of(boosted: Any) -> Any:
    """Return the loss of boosted trees; CatBoost names it otherwise, and has no attributes for parameters."""
    return getattr(boosted, "objective", None) or boosted.get_params().get("loss_function")


def _on_weights(estimator: OrtGradientEstimator, last: Any) -> Iterator[str]:
    inner = getattr(last, "class_weight", None)
    if inner is not None and getattr(estimator, "class_weight", None) is None:
        yield (
            f"class_weight={inner!r:.80} of {type(last).__name__} has no effect on the training, in which all rows "
            f"count alike. Set it on the estimator too: {type(estimator).__name__}(model, class_weight={inner!r:.80})."
        )
    if library_of(type(last)) and getattr(estimator, "class_weight", None) is None:
        params = last.get_params()
        for name in (name for name in _OF_BOOSTED if _weighs(params.get(name))):
            yield (
                f"{name}={params[name]!r:.80} of {type(last).__name__} has no effect on the training, in which all "
                "rows count alike. Set it on the estimator: "
                f"{type(estimator).__name__}(model, class_weight={_class_weight(last, name, params[name])!r:.80})."
            )


def _class_weight(boosted: Any, name: str, value: Any) -> Any:
    """Return the class weights of this package that equal a parameter of boosted trees."""
    classes = np.asarray(getattr(boosted, "classes_", [0, 1])).tolist()
    if name == "scale_pos_weight":
        return {classes[-1]: value}
    if isinstance(value, (list, tuple)):
        return dict(zip(classes, value, strict=False))
    return value if isinstance(value, dict) else "balanced"


def _weighs(value: Any) -> bool:
    """Whether a parameter of a boosted model makes classes count differently."""
    return value is True or (value is not None and value is not False and value not in (1, "None"))


def _on_samplers(estimator: OrtGradientEstimator, model: BaseEstimator) -> Iterator[str]:
    """Yield messages about steps of imbalanced-learn, which change the rows only when their pipeline is fitted.

    In a pipeline, the steps before a sampler may encode the rows that it takes.
    """
    if getattr(estimator, "class_weight", None) is not None:
        return
    samplers = [step for step in inside(model) if hasattr(step, "fit_resample")]
    parts = {id(part) for step in samplers for part in inside(step) if part is not step}
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else []
    for name in dict.fromkeys(type(step).__name__ for step in samplers if id(step) not in parts):
        remedy = f"pass rows that were resampled: X, y = {name}(...).fit_resample(X, y)."
        if any(type(step).__name__ == name for step in steps):
            last = f"{type(estimator).__name__}(model[-1])"
            remedy = f"resample in the fit: imblearn.pipeline.make_pipeline(*model[:-1], {last})."
        yield (
            f"{name} has no effect on the training, in which all rows count alike. Set class_weight='balanced', or "
            f"{remedy}"
        )


def _is_chosen(model: Any, name: str) -> bool:
    """Whether a parameter of a model has another value than its default."""
    known = inspect.signature(type(model)).parameters
    return name in known and bool(getattr(model, name) != known[name].default)
