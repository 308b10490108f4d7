"""From the parameters of an estimator to a run of :mod:`onnxtrain.training`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from sklearn.exceptions import ConvergenceWarning

from onnxtrain.errors import DeviceError, LossError, OptimizerError, ParameterError, WeightError
from onnxtrain.estimators._model import TrainableModel, without_weights
from onnxtrain.loss_helper import check_penalty
from onnxtrain.losses import LOSSES, find_loss
from onnxtrain.optim import OPTIMIZERS, Optimizer, Proximal, make_optimizer
from onnxtrain.optim.schedules import make_schedule
from onnxtrain.registry import did_you_mean
from onnxtrain.training.batches import TrainingData
from onnxtrain.training.device import Device, find_device
from onnxtrain.training.evaluate import loss_and_gradient, mean_loss
from onnxtrain.training.lbfgs import Penalties, minimize_lbfgs
from onnxtrain.training.loop import Arrays, EpochInfo, Plan, Trainer
from onnxtrain.training.objective import Objective
from onnxtrain.training.session import BoundStep, threads_for
from onnxtrain.training.state import TrainingState, Weights
from onnxtrain.training.step import BatchGraph, StepGraph, build_loss_and_gradient, build_step

OnEpoch = Callable[[EpochInfo], bool]

#: The names that `solver` may be.
_SOLVERS = (*OPTIMIZERS, "lbfgs")

#: What products may compute in while the weights are float32.
HALVES = {"bfloat16": ir.DataType.BFLOAT16, "float16": ir.DataType.FLOAT16}

#: A loss so many times as large as it was is no noise.
_FAR = 10


@dataclass(frozen=True)
class Machine:
    """Where the graphs run."""

    device: Device
    n_threads: int


def make_objective(
    params: Any,
    model: TrainableModel,
    names: tuple[str, ...],
    *,
    constants: tuple[str, ...] = (),
    classifies: bool,
    multilabel: bool = False,
) -> Objective:
    """Return what an estimator with these parameters minimises over the weights `names`.

    The initializers `constants` become inputs as well.
    """
    for name in check_penalty(params.penalty or {}):
        if name not in names:
            raise WeightError(f"The penalty is on {name!r}, which is not trained. {did_you_mean(name, names)}")
    return Objective(
        model=without_weights(model.onnx, names + constants),
        output=model.output,
        loss=params.loss,
        weights=names,
        constants=constants,
        loss_params=tuple(sorted((params.loss_params or {}).items())),
        penalized=tuple(name for name in names if name in model.penalized),
        classifies=classifies,
        multilabel=multilabel,
    )


def check_loss(loss: Any, loss_params: Mapping[str, Any] | None, *, classifies: bool) -> None:
    """Check that a loss exists and is for numbers or for classes, as the target is."""
    entry = find_loss(loss, loss_params, classifies=classifies)
    if entry.classifies != classifies:
        kind, other = ("classes", "OrtGradientClassifier") if entry.classifies else ("numbers", "OrtGradientRegressor")
        raise LossError(
            f"The loss {loss!r} is for {kind}, as {other} has them. Here there are: "
            f"{', '.join(name for name, known in LOSSES.items() if known.classifies == classifies)}."
        )


def check_device(params: Any) -> Device:
    """Return the device, where it is there and has products of the type that is asked for."""
    device = find_device(params.device)
    if params.dtype == "bfloat16" and device.kind == "cpu":
        raise DeviceError("dtype='bfloat16' needs device='cuda': on a CPU onnxruntime has no products of that type.")
    return device


def check_solver(params: Any) -> None:
    """Check the parameters that say how is minimised."""
    if params.solver == "lbfgs":
        if params.dtype in HALVES:
            raise ParameterError(f"dtype={params.dtype!r} is for the solvers of steps: L-BFGS needs exact gradients.")
        if params.average is not False:
            raise ParameterError("average is for the solvers of steps: solver='lbfgs' ends at a minimum.")
        return
    if isinstance(params.solver, str) and params.solver not in OPTIMIZERS:
        raise OptimizerError(f"Unknown solver {params.solver!r}. {did_you_mean(params.solver, _SOLVERS)}")
    find_optimizer(params)
    make_schedule(params.learning_rate)


def find_optimizer(params: Any) -> Optimizer:
    """Return the optimizer, with the proximal step of l1 where it is asked for."""
    optimizer = make_optimizer(params.solver)
    return Proximal(optimizer) if params.l1_method == "proximal" else optimizer


def find_machine(params: Any, device: Device, graph: BatchGraph, batch_size: int) -> Machine:
    """Return the device and the number of threads for a graph on batches of this size."""
    return Machine(device, threads_for(batch_size * graph.multiplications + graph.besides, params.n_threads))


def make_plan(params: Any, n_rows: int, strengths: tuple[float, ...]) -> Plan:
    """Return how the loop runs over so many rows, under penalties of these strengths."""
    return Plan(
        make_schedule(params.learning_rate),
        min(200 if params.batch_size == "auto" else params.batch_size, n_rows),
        params.max_iter,
        params.shuffle,
        params.tol,
        params.n_iter_no_change,
        params.average,
        strengths,
    )


def _fill_slots(state: TrainingState, step: StepGraph, optimizer: Optimizer) -> None:
    """Give the state the memory of the optimizer, new where there is none or that of another solver."""
    state.slots = {key: value for key, value in state.slots.items() if ("slot", *key) in step.state}
    for key in step.state:
        if key[0] == "slot" and key[1:] not in state.slots:
            _, name, slot = key
            state.slots[name, slot] = np.full_like(state.weights[name], optimizer.initial(slot))


def train_by_steps(
    params: Any,
    objective: Objective,
    state: TrainingState,
    data: TrainingData,
    validation: TrainingData | None,
    device: Device,
    random_state: np.random.RandomState,
    *,
    n_epochs: int,
    on_epoch: OnEpoch,
) -> None:
    """Run epochs of mini-batches and update `state`."""
    penalties = _penalties(params, objective)
    l1, l2 = (_in_groups(penalty, params.penalty or ()) for penalty in (penalties.l1, penalties.l2))
    optimizer, plan = find_optimizer(params), make_plan(params, data.n_rows, (*l1.values(), *l2.values()))
    step = build_step(
        objective,
        optimizer,
        clip_norm=params.clip_norm,
        gathered=data.ready,
        weighted=data.weight is not None,
        l1=tuple(l1),
        l2=tuple(l2),
        builder=params.gradient_builder,
        products=HALVES.get(params.dtype),
        on_gpu=device.kind != "cpu",
    )
    machine = find_machine(params, device, step, plan.batch_size)
    _fill_slots(state, step, optimizer)

    def bind(inputs: Arrays, initial: Mapping[tuple[str, ...], np.ndarray], last: Arrays) -> BoundStep:
        return BoundStep(step, machine.device, machine.n_threads, inputs, initial, last)

    before = state.so_far()
    trainer = Trainer(bind, step, optimizer, data, plan, state, random_state)
    validate = None
    if validation is not None:
        rows = validation

        def validate(weights: Weights) -> float:
            return mean_loss(objective, weights, rows, machine.device, machine.n_threads)

    for info in trainer.run(n_epochs, validate):
        if on_epoch(info):
            break
    if validation is None:  # else the best weights are kept
        _warn_of_a_rise(params, objective, data, machine, trainer, before, penalties)


def _warn_of_a_rise(
    params: Any,
    objective: Objective,
    data: TrainingData,
    machine: Machine,
    trainer: Trainer,
    before: Mapping[str, np.ndarray],
    penalties: Penalties,
) -> None:
    """Warn where training left the objective far above where it began.

    Only where the last epoch was so beside the first batch are all rows looked at.
    """
    if trainer.first_loss is None or not _is_far_above(trainer.state.loss_curve[-1], trainer.first_loss, params.tol):
        return
    first, last = (
        mean_loss(objective, w, data, machine.device, machine.n_threads) + penalties.value(w)
        for w in (before, trainer.state.result())
    )
    if _is_far_above(last, first, params.tol):
        warnings.warn(
            f"The loss rose from {first:.3g} to {last:.3g}; the learning rate of the last step was "
            f"{trainer.learning_rate:.3g}. Lower learning_rate, scale the data, set clip_norm, or give rows for "
            "validation: then the best weights are kept.",
            ConvergenceWarning,
            stacklevel=5,
        )


def _is_far_above(last: float, first: float, tol: float) -> bool:
    # steps of a fixed length leave a perfect fit: the rise must be one beside `tol` as well
    return last - first > _FAR * (abs(first) + 100 * tol)


def _penalties(params: Any, objective: Objective) -> Penalties:
    """Return the strength of the penalties on each weight, the common ones and its own together."""
    l1 = dict.fromkeys(objective.penalized, params.l1)
    l2 = dict.fromkeys(objective.penalized, params.l2)
    for name, (own1, own2) in check_penalty(params.penalty or {}).items():
        l1[name], l2[name] = l1.get(name, 0.0) + own1, l2.get(name, 0.0) + own2
    return Penalties(l1, l2)


def _in_groups(penalty: Mapping[str, float], single: Container[str]) -> dict[tuple[str, ...], float]:
    """Return a penalty by the weights that have it in common, those in `single` each for itself.

    Which weights go together must not follow from their strengths: the candidates of a search share a step.
    """
    common = tuple(w for w in penalty if w not in single)
    groups = [common] * bool(common) + [(w,) for w in sorted(penalty) if w in single]
    return {group: penalty[group[0]] for group in groups if penalty[group[0]] > 0}


def train_full_batch(
    params: Any,
    objective: Objective,
    state: TrainingState,
    data: TrainingData,
    validation: TrainingData | None,
    device: Device,
    *,
    on_epoch: OnEpoch,
) -> None:
    """Minimise by L-BFGS and update `state`."""
    builder = params.gradient_builder
    graph = build_loss_and_gradient(objective, builder)
    machine = find_machine(params, device, graph, len(data.label))

    def on_iteration(loss: float, weights: dict[str, np.ndarray]) -> bool:
        state.weights = weights
        state.loss_curve.append(loss)
        state.step += 1
        watched = loss
        if validation is not None:
            watched = mean_loss(objective, weights, validation, machine.device, machine.n_threads)
            state.validation_loss_curve.append(watched)
        if state.watch(watched, params.tol if validation is not None else 0.0) and validation is not None:
            state.best_weights = weights
        stop = validation is not None and state.bad_epochs > params.n_iter_no_change
        info = EpochInfo(
            state.epoch, state.step - 1, loss, watched if validation is not None else None, 1.0, 0.0, weights
        )
        return on_epoch(info) or stop

    if params.max_iter == 0:
        return
    before = state.epoch
    weights, loss = minimize_lbfgs(
        lambda weights: loss_and_gradient(objective, weights, data, machine.device, machine.n_threads, builder),
        state.weights,
        _penalties(params, objective),
        max_iter=params.max_iter,
        tol=params.tol / 100,
        on_iteration=on_iteration,
    )
    if state.epoch == before:  # the start was the minimum
        on_iteration(loss, weights)
    state.weights = weights
