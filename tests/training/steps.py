"""A small network and its training step by step, for the tests of this folder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import scipy.sparse

from onnxtrain.optim import SGD, Adam, AdamW, Constant
from onnxtrain.runtime.device import find_device
from onnxtrain.training.data import TrainingData
from onnxtrain.training.objective import Objective, weights_as_inputs
from onnxtrain.training.settings import Settings
from onnxtrain.training.state import EpochEnd, TrainingState
from onnxtrain.training.train import StepLoop, graphs_of

CPU = find_device("cpu")
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
    batch_size=20,
    device=CPU,
):
    proto, weights = network(dtype)
    onx = weights_as_inputs(proto, NAMES)
    objective = Objective(onx, "Y", "squared_error", NAMES, penalized=("W0", "W1"))
    settings = Settings(
        optimizer,
        schedule,
        device,
        n_threads=1,
        batch_size=batch_size,
        max_iter=epochs,
        tol=0.01,
        n_iter_no_change=1,
        clip_norm=clip_norm,
        l1=strength,
        l2=strength,
    )
    data = problem(dtype, weighted)
    if not gathered:
        data = replace(data, features={"X": scipy.sparse.csr_matrix(data.features["X"])})
    state = TrainingState(weights)
    graphs = graphs_of(objective, data, settings, weights)
    loop = StepLoop(graphs, data, state, np.random.RandomState(0))
    loop.run(epochs, EpochEnd(state, settings.tol, settings.n_iter_no_change))
    return loop.step, state


def state_of(state):
    return {**state.weights, **state.slots, "losses": np.array(state.loss_curve)}


OPTIMIZERS = {"sgd": SGD(), "momentum": SGD(momentum=0.9), "adam": Adam(), "adamw": AdamW(weight_decay=0.1)}
