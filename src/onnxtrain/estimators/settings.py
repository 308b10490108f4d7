"""Conversion of an estimator's parameters to the frozen values of a fit: settings, objective, start."""

from __future__ import annotations

import copy
import fnmatch
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
from sklearn.metrics import get_scorer_names

from onnxtrain.errors import DeviceError, LossError, OptimizerError, ParameterError, WeightError, warn
from onnxtrain.estimators.constraints import check_no_inputs, check_parameters, is_set
from onnxtrain.estimators.frames import InputForm
from onnxtrain.estimators.given_model import check_source
from onnxtrain.estimators.protocols import ArrayLike, is_onnx
from onnxtrain.estimators.reports import is_part_of_more
from onnxtrain.estimators.source import Source
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.loss_helper import check_penalty
from onnxtrain.losses import LOSSES, find_loss
from onnxtrain.losses.link import Link
from onnxtrain.losses.table import SYNONYMS
from onnxtrain.optim import OPTIMIZERS, Optimizer, Proximal, make_optimizer
from onnxtrain.optim.schedules import make_schedule
from onnxtrain.registry import did_you_mean
from onnxtrain.runtime.device import Device, find_device
from onnxtrain.training.model import TrainableModel, learned_constants, without_weights
from onnxtrain.training.objective import Objective
from onnxtrain.training.settings import Settings
from onnxtrain.training.state import TrainingState, Weights

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator

#: The names that `solver` accepts.
_SOLVERS = (*OPTIMIZERS, "lbfgs")

#: For solvers of scikit-learn and PyTorch, the closest solver here.
_OTHER_SOLVERS = {
    **dict.fromkeys(("lbfgsb", "bfgs", "newton", "newtoncg", "newtoncholesky", "liblinear", "cg"), "lbfgs"),
    **dict.fromkeys(("gd", "sag", "saga", "gradientdescent"), "sgd"),
    **dict.fromkeys(("nadam", "radam", "adamax", "lion", "adabelief"), "adam"),
    "adadelta": "adagrad",
}

#: Parameters that L-BFGS does not use: their defaults, and the reasons.
_OF_STEPS = {
    "accumulate": (1, "uses all rows at once"),
    "average": (False, "ends at a minimum"),
    "clip_norm": (None, "searches for the length of each step"),
}

#: Parameters that L-BFGS ignores; a search over solvers may set them.
_IGNORED_BY_LBFGS = ("batch_size", "learning_rate")

#: Half-precision types for products; weights stay float32.
HALVES = {"bfloat16": ir.DataType.BFLOAT16, "float16": ir.DataType.FLOAT16}


def floats_of(dtype: str) -> str:
    """Return the type of rows, weights and everything except products, for a value of ``dtype``."""
    return "float32" if dtype in HALVES else dtype


def settings_of(estimator: OrtGradientEstimator, X: ArrayLike | None = None) -> Settings:
    """Check all parameters that can be checked without data; return the settings of the training.

    Error messages may refer to rows like `X`.

    Raises
    ------
    ParameterError, LossError, OptimizerError, DeviceError
        A parameter is invalid, two contradict each other, or the device is not available.
    """
    check_each(estimator)
    if not is_part_of_more():
        _warn_of_ignored(estimator)
    if estimator.features is not None and estimator.head != "new":
        raise ParameterError(
            f"features={estimator.features!r} names the input of a new last layer, but head is not 'new'. Set "
            "head='new', or features=None."
        )
    if not is_onnx(estimator.estimator):
        check_no_inputs(estimator)
    if estimator.estimator is not None:
        check_source(estimator.estimator, X, classifies=estimator._classifies if estimator.output is None else None)
    return Settings(
        optimizer=_optimizer(estimator),
        schedule=make_schedule(estimator.learning_rate),
        device=_device(estimator),
        n_threads=estimator.n_threads,
        batch_size=None if isinstance(estimator.batch_size, str) else estimator.batch_size,
        max_iter=estimator.max_iter,
        shuffle=estimator.shuffle,
        tol=estimator.tol,
        n_iter_no_change=estimator.n_iter_no_change,
        average=estimator.average,
        clip_norm=estimator.clip_norm,
        l1=estimator.l1,
        l2=estimator.l2,
        penalty=check_penalty(estimator.penalty) if estimator.penalty else {},
        builder=estimator.gradient_builder,
        products=HALVES.get(estimator.dtype),
        accumulate=estimator.accumulate,
    )


def check_each(estimator: OrtGradientEstimator) -> None:
    """Check each parameter by itself, against its constraints or the table of its names."""
    check_parameters(estimator)
    _check_loss(estimator.loss, estimator.loss_params, classifies=estimator._classifies)
    _check_solver(estimator)


def _objective_of(
    estimator: OrtGradientEstimator, model: TrainableModel, weights: tuple[str, ...], constants: tuple[str, ...]
) -> Objective:
    """Return the objective of a model as the parameters of an estimator define it.

    Parameters
    ----------
    estimator : OrtGradientRegressor or OrtGradientClassifier
    model : TrainableModel
    weights : tuple of str
        The names of the trained weights.
    constants : tuple of str
        The names of the learned values that are not trained.

    Raises
    ------
    WeightError
        A penalty applies to a weight that is not trained.
    """
    penalty = estimator.penalty or {}
    for name in penalty:
        if name not in weights:
            of_all = "" if name in model.weights else " For a penalty on all weights, set l1= and l2=."
            known = did_you_mean(name, weights)
            if any(sign in name for sign in "*?[") and (matching := fnmatch.filter(weights, name)):
                code = f"dict.fromkeys({matching}, {penalty[name]!r:.80})"
                known = f"penalty takes names, not patterns: penalty={code}."
            raise WeightError(f"The penalty is on {name!r}, which is not trained. {known}{of_all}")
    kind = "scores" if model.link is Link.IDENTITY else "probabilities"
    return Objective(
        model=without_weights(model, (*weights, *constants)),
        output=model.output,
        loss=estimator.loss,
        weights=weights,
        constants=constants,
        loss_params=tuple(sorted((estimator.loss_params or {}).items())),
        penalized=tuple(name for name in weights if name in model.penalized),
        classifies=estimator._classifies,
        multilabel=estimator._targets.n_labels > 0,
        output_is=kind if estimator._classifies else None,
        class_axis=model.class_axis,
        class_weight=tuple(estimator._targets.class_weights.tolist()) if model.positional else (),
    )


def _check_loss(loss: Any, loss_params: Mapping[str, Any] | None, *, classifies: bool) -> None:
    """Check that a loss exists and fits the task, regression or classification."""
    if isinstance(loss, str) and loss not in LOSSES:
        raise LossError(_unknown_loss(loss, classifies=classifies))
    entry = find_loss(loss, loss_params, classifies=classifies)
    if entry.classifies != classifies:
        kind, other = ("classes", "OrtGradientClassifier") if entry.classifies else ("numbers", "OrtGradientRegressor")
        raise LossError(
            f"The loss {loss!r} is for {kind}. Use it with {other}, or choose one of "
            f"{', '.join(name for name, known in LOSSES.items() if known.classifies == classifies)}."
        )


#: Losses of other libraries that are one of ours with other targets or weights, by their names without underscores.
_IN_OTHER_TERMS = {
    **dict.fromkeys(
        ("msle", "rmsle", "squaredlogerror", "meansquaredlogerror", "meansquaredlogarithmicerror"),
        "It is the squared error of log(1 + y): TransformedTargetRegressor(OrtGradientRegressor(model), "
        "func=numpy.log1p, inverse_func=numpy.expm1).",
    ),
    **dict.fromkeys(
        ("mape", "meanabsolutepercentageerror"),
        "It is the absolute error, weighted: loss='absolute_error' and fit(X, y, sample_weight=1 / numpy.abs(y)).",
    ),
}


def _unknown_loss(loss: str, *, classifies: bool) -> str:
    """Return the message for an unknown loss name, which proposes the nearest loss and lists those of the same task."""
    if remedy := _IN_OTHER_TERMS.get("".join(filter(str.isalnum, loss.casefold()))):
        return f"Unknown loss {loss!r}. {remedy}"
    names = sorted(name for name, known in LOSSES.items() if known.classifies == classifies)
    hint = did_you_mean(loss, LOSSES, SYNONYMS).partition("Known")[0]
    near = hint.removeprefix("Did you mean ").removesuffix("? ")
    scores = loss in get_scorer_names()
    if not near and not scores:
        hint = "For a loss of your own, pass a function of op, y and the prediction, or first import the module that "
        hint += f"registers it with @onnxtrain.loss({loss!r}). "
    elif near and near.strip("'") not in names:
        kind, estimator = ("numbers", "OrtGradientRegressor") if classifies else ("classes", "OrtGradientClassifier")
        hint = f"It is called {near} here and is for {kind}, with {estimator}. "
    if scores:
        hint = f"It is a score, which scoring={loss!r} of a search maximizes; a fit minimizes a loss. {hint}"
    return f"Unknown loss {loss!r}. {hint}Known: {', '.join(names)}."


def _check_solver(estimator: OrtGradientEstimator) -> None:
    """Check the solver, and the parameters that only stochastic solvers use."""
    solver = estimator.solver
    if solver == "lbfgs":
        if estimator.dtype in HALVES:
            raise ParameterError(
                f"dtype={estimator.dtype!r} needs a stochastic solver, because L-BFGS needs exact gradients."
            )
        for name, (default, why) in _OF_STEPS.items():
            if getattr(estimator, name) != default:
                raise ParameterError(
                    f"{name} needs a stochastic solver: solver='lbfgs' {why}. Set {name}={default!r}, its default."
                )
    elif isinstance(solver, str) and solver not in OPTIMIZERS:
        if solver.lower() in ("momentum", "nesterov"):
            more = ", nesterov=True" if solver.lower() == "nesterov" else ""
            raise OptimizerError(
                f"Unknown solver {solver!r}. Pass an optimizer: solver=onnxtrain.optim.SGD(momentum=0.9{more})."
            )
        plain = "".join(filter(str.isalnum, solver.casefold()))  # of "Adam W" and "L-BFGS"
        last = re.split(r"[_: ]", solver.rpartition(".")[2])[0]  # of torch.optim.AdamW, or of sgd_momentum
        near = did_you_mean(plain if plain in _SOLVERS else last, _SOLVERS, _OTHER_SOLVERS)
        raise OptimizerError(f"Unknown solver {solver!r}. {near}")


def _warn_of_ignored(estimator: OrtGradientEstimator) -> None:
    """Warn of parameters that are set, but that have no effect: for L-BFGS, or without a penalty."""
    if estimator.l1_method == "proximal" and not estimator.l1 and not _penalizes_l1(estimator.penalty):
        warn("l1_method='proximal' has no effect without a penalty. Set its strength too, for example l1=1e-3.")
    if isinstance(estimator.solver, Proximal) and not estimator.l1 and not _penalizes_l1(estimator.penalty):
        warn("solver=Proximal(...) has no effect without a penalty of l1. Set its strength too, for example l1=1e-3.")
    if estimator.solver != "lbfgs":
        return
    if ignored := [name for name in _IGNORED_BY_LBFGS if is_set(estimator, name)]:
        given = ", ".join(f"{name}={getattr(estimator, name)!r:.80}" for name in ignored)
        warn(
            f"{given} has no effect: solver='lbfgs' uses all rows at once and searches for the length of each step. "
            "Choose another solver, such as 'adam', or leave these parameters out."
        )


def _penalizes_l1(penalty: Mapping[str, Any] | None) -> bool:
    """Whether penalties of single weights have a term l1."""
    return any(isinstance(terms, Mapping) and terms.get("l1") for terms in (penalty or {}).values())


def _optimizer(estimator: OrtGradientEstimator) -> Optimizer | None:
    """Return the optimizer, with the proximal step of l1 if requested; None for L-BFGS."""
    if isinstance(estimator.solver, str) and estimator.solver == "lbfgs":
        return None
    optimizer = make_optimizer(estimator.solver)
    return Proximal(optimizer) if estimator.l1_method == "proximal" else optimizer


def _device(estimator: OrtGradientEstimator) -> Device:
    """Return the device, after checking that it is available and supports products of the requested type."""
    device = find_device(estimator.device)
    if estimator.dtype == "bfloat16" and not device.capabilities.bfloat16:
        raise DeviceError("dtype='bfloat16' needs device='cuda': onnxruntime has bfloat16 products only there.")
    if estimator.dtype == "float64" and not device.capabilities.float64:
        raise DeviceError(f"device={estimator.device!r} does not support float64. Set dtype='float32'.")
    return device


# ------------------------------------------------------------ continued training

#: Parameters that only a new fit reads, not a continued one.
_OF_START = (
    "estimator",
    "weights_to_train",
    "init",
    "head",
    "features",
    "output",
    "output_is",
    "class_axis",
    "inputs",
    "batch_axis",
    "pad",
)

#: The parameter that only exports read.
_OF_EXPORT = "weights_to_train__merge"


def parameters_of_start(estimator: OrtGradientEstimator) -> dict[str, Any]:
    """Return the parameters that determine the model; those of nested objects as ``estimator__alpha``."""
    found: dict[str, Any] = {}
    for name in _OF_START:
        value = getattr(estimator, name)
        found[name] = copy.copy(value) if isinstance(value, (list, dict)) else value  # may be changed in place
        if hasattr(value, "get_params"):
            found |= {f"{name}__{inner}": part for inner, part in value.get_params().items()}
    found.pop(_OF_EXPORT, None)
    return found


def is_same(value: Any, before: Any) -> bool:
    """Whether a parameter is unchanged: estimators and models by identity, all others by their representation."""
    if value is before:
        return True
    if isinstance(value, (str, bytes)):
        return bool(value == before)
    return not (hasattr(value, "fit") or hasattr(value, "SerializeToString")) and repr(value) == repr(before)


#: The remedy for other weights to train, as of layers that are unfrozen after the head was trained.
_OTHER_WEIGHTS = (
    " To train other weights from the trained values, fit a new estimator of to_sklearn(), or of get_trained_onnx() "
    "for an ONNX model."
)


def check_same_start(estimator: OrtGradientEstimator, dtype: str) -> None:
    """Raise if training continues although a parameter that determines the model, or the dtype, has changed."""
    now = parameters_of_start(estimator)
    others = [name for name, value in estimator._begun_with.items() if not is_same(now.get(name), value)]
    others = [name for name in others if not any(name.startswith(f"{other}__") for other in others)]
    if others:
        raise ParameterError(
            f"{', '.join(others)} changed since the fit that training continues from; the change would have no effect. "
            "Start anew with fit and warm_start=False, or restore the former value."
            + (_OTHER_WEIGHTS if "weights_to_train" in others else "")
        )
    if dtype != floats_of(estimator.dtype):
        raise ParameterError(
            f"dtype={estimator.dtype!r}, but training continues in {dtype}, the dtype of the last fit. Restore dtype, "
            "or start anew with fit and warm_start=False."
        )


def go_on(estimator: OrtGradientEstimator, known: TrainedModel) -> tuple[TrainedModel, TrainingState]:
    """Return the trained model, with the objective of the current parameters, and its state.

    Raises
    ------
    ParameterError
        A parameter that determines the model was changed since the last fit; the change would have no effect.
    """
    check_same_start(estimator, known.dtype)
    return with_objective(estimator, known.source, known.weights, known.form), estimator._state


def with_objective(estimator: OrtGradientEstimator, source: Source, weights: Weights, form: InputForm) -> TrainedModel:
    """Return a model with the objective that the parameters describe."""
    constants = learned_constants(source.model, tuple(weights))
    objective = _objective_of(estimator, source.model, tuple(weights), tuple(constants))
    return TrainedModel(
        source=source,
        objective=objective,
        constants=constants,
        weights=dict(weights),
        form=form,
        dtype=floats_of(estimator.dtype),
        device=estimator.device,
        n_threads=estimator.n_threads,
    )
