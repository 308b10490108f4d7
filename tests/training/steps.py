"""A small network, and training it step by step, for the tests beside."""

from __future__ import annotations

import numpy as np
import onnx

from onnxtrain.optim import SGD, Adam, AdamW, Constant
from onnxtrain.training.batches import TrainingData
from onnxtrain.training.device import find_device
from onnxtrain.training.loop import Plan, Trainer
from onnxtrain.training.objective import Objective, weights_as_inputs
from onnxtrain.training.session import BoundStep
from onnxtrain.training.state import TrainingState
from onnxtrain.training.step import build_step

NETWORK = """
    <ir_version: 10, opset_import: ["" : 21]>
    network (float[n, 3] X) => (float[n, 2] Y)
    <float[3, 4] W0, float[1, 4] b0, float[4, 2] W1, float[2] b1>
    {
        z = MatMul(X, W0)
        a = Add(z, b0)
        h = Tanh(a)
        o = MatMul(h, W1)
        Y = Add(o, b1)
    }"""
NAMES = ("W0", "b0", "W1", "b1")
CONSTANT = Constant(0.01)


def network(dtype):
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(NETWORK.replace("float[", "double[" if dtype is np.float64 else "float["))
    shapes = {"W0": (3, 4), "b0": (1, 4), "W1": (4, 2), "b1": (2,)}
    weights = {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    return proto, weights


def problem(dtype, weighted):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(50, 3)).astype(dtype), rng.normal(size=(50, 2)).astype(dtype)
    weight = rng.uniform(0.5, 2, (50, 1)).astype(dtype) if weighted else None
    return TrainingData({"X": X}, y, weight, {"X": np.dtype(dtype)})


def train(
    optimizer,
    dtype=np.float64,
    *,
    gathered=True,
    weighted=False,
    clip_norm=None,
    strength=0.0,
    epochs=3,
    schedule=CONSTANT,
    on_gpu=False,
    batch_size=20,
    device=None,
):
    proto, weights = network(dtype)
    onx = weights_as_inputs(proto, NAMES)
    objective = Objective(onx, "Y", "squared_error", NAMES, penalized=("W0", "W1"))
    groups = (("W0", "W1"),) if strength else ()
    built = build_step(
        objective,
        optimizer,
        clip_norm=clip_norm,
        gathered=gathered,
        weighted=weighted,
        l1=groups,
        l2=groups,
        on_gpu=on_gpu,
    )
    state = TrainingState(weights)
    state.slots = {
        key[1:]: np.full_like(weights[key[1]], optimizer.initial(key[2])) for key in built.state if key[0] == "slot"
    }

    def bind(inputs, initial, last):
        return BoundStep(built, device or find_device("cpu"), 1, inputs, initial, last)

    plan = Plan(
        schedule,
        batch_size,
        max_iter=epochs,
        tol=0.01,
        n_iter_no_change=1,
        strengths=(strength, strength) if strength else (),
    )
    trainer = Trainer(bind, built, optimizer, problem(dtype, weighted), plan, state, np.random.RandomState(0))
    for _ in trainer.run(epochs):
        pass
    return built, state


def state_of(state):
    return {**state.weights, **state.slots, "losses": np.array(state.loss_curve)}


OPTIMIZERS = {"sgd": SGD(), "momentum": SGD(0.9), "adam": Adam(), "adamw": AdamW(weight_decay=0.1)}
