"""Losses and gradients of all rows: on a GPU the rows stay where they are."""

import numpy as np
import onnx
import pytest
from scipy.sparse import csr_matrix

from onnxtrain.runtime.device import find_device
from onnxtrain.runtime.session import Place
from onnxtrain.training.data import TrainingData
from onnxtrain.training.evaluate import loss_and_gradient, mean_loss
from onnxtrain.training.objective import Objective, weights_as_inputs
from tests.devices import Pretended

LINEAR = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    linear (float[n, 3] X) => (float[n, 1] Y) <float[3, 1] W = {1, 2, 3}> { Y = MatMul(X, W) }""")


@pytest.mark.parametrize("ready", [True, False], ids=["dense", "sparse"])
@pytest.mark.parametrize("weighted", [True, False])
def test_rows_go_to_a_gpu_once(weighted, ready):
    placed = []

    class Counting(Pretended):
        """Keeps what is put on it."""

        def put(self, array):
            placed.append(array)
            return super().put(array)

    rng = np.random.default_rng(0)
    X, y, weight = (rng.normal(size=(50, k)).astype(np.float32) for k in (3, 1, 1))
    features = {"X": X if ready else csr_matrix(X)}
    data = TrainingData(features, y, np.abs(weight) if weighted else None, {"X": np.dtype(np.float32)})
    objective = Objective(weights_as_inputs(LINEAR, ["W"]), "Y", "squared_error", ("W",))
    weights = {"W": np.ones((3, 1), np.float32)}

    def judged(device):
        loss, (dw,) = loss_and_gradient(objective, weights, data, Place(device, 1))
        return loss, *dw.ravel(), mean_loss(objective, weights, data, Place(device, 1))

    for _ in range(3):
        assert judged(Counting("cuda")) == judged(find_device("cpu"))
    assert len(placed) == (2 + weighted if ready else 0)
