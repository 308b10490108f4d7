"""Mistakes with ONNX files of other tools, memory maps, states and optimizers of one's own, and the answers."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
from onnx import helper, numpy_helper
from skl2onnx import to_onnx
from sklearn.linear_model import LinearRegression, Ridge

from onnxtrain import (
    DerivativeOptions,
    OrtGradientForwardBackward,
    OrtGradientRegressor,
    add_loss_output,
    onnx_derivative,
    penalty_loss_onnx,
)
from onnxtrain.errors import ArgumentTypeError, DataError, LossError, ModelError, OptimizerError, WeightError
from onnxtrain.optim import Optimizer

R = OrtGradientRegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(20, 3))
y = X @ [1.0, -2.0, 0.5]


def built(nodes, opset, *weights):
    """Return a model of onnx.helper from X (n, 3) to Y (n, 1)."""
    ends = [helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("X", 3), ("Y", 1))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(w, name) for name, w in weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


LINE = built([helper.make_node("MatMul", ["X", "W"], ["Y"])], 21, ("W", np.ones((3, 1), np.float32)))

#: A network as torch.export writes it: the names of weights begin with those of the modules.
NETWORK = built(
    [
        helper.make_node("Gemm", ["X", "body.weight", "body.bias"], ["linear"]),
        helper.make_node("Relu", ["linear"], ["relu"]),
        helper.make_node("MatMul", ["relu", "fc.weight"], ["Y"]),
    ],
    21,
    ("body.weight", np.float32([[1, 2], [3, 4], [5, 6]])),
    ("body.bias", np.float32([0, 1])),
    ("fc.weight", np.float32([[1], [-1]])),
)


# --------------------------------------------------- nodes that are written for another opset

#: Nodes, the declared opset, and that for which the nodes are written.
OPSETS = {
    "an attribute that became an input": (
        [
            helper.make_node("MatMul", ["X", "W"], ["h"]),
            helper.make_node("ReduceSum", ["h"], ["Y"], axes=[1], keepdims=1),
        ],
        21,
        12,
    ),
    "a missing input": (
        [helper.make_node("Unsqueeze", ["X"], ["h"], axes=[0]), helper.make_node("MatMul", ["h", "W"], ["Y"])],
        21,
        12,
    ),
    "an input that was an attribute": (
        [helper.make_node("Clip", ["X", "low"], ["h"]), helper.make_node("MatMul", ["h", "W"], ["Y"])],
        8,
        11,
    ),
}


@pytest.mark.parametrize("name", OPSETS)
def test_a_node_for_another_opset(name):
    nodes, declared, written = OPSETS[name]
    weights = [("W", np.ones((3, 1), np.float32)), ("low", np.float32(0))]
    with pytest.raises(ModelError, match=rf"It is written for opset {written}.*make_opsetid\('', {written}\)"):
        R(built(nodes, declared, *weights)).fit(X, y)
    if name != "a missing input":  # its output has three axes
        assert R(built(nodes, written, *weights), max_iter=1).fit(X, y).n_iter_ == 1


def test_an_attribute_of_no_opset():
    with pytest.raises(ModelError, match="unknown attribute 'slope'. Known: none.$"):
        R(built([helper.make_node("Relu", ["X"], ["Y"], slope=3.0)], 21)).fit(X, y)


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_weights_of_another_type(dtype):
    onx = built([helper.make_node("MatMul", ["X", "W"], ["Y"])], 21, ("W", np.ones((3, 1), dtype)))
    with pytest.raises(ModelError, match=r"must have one type. Store arrays of numpy as float32, .*astype"):
        R(onx).fit(X, y)


# --------------------------------------------------------------------------- names

CALLS = {
    "embed a module": (
        lambda: R(NETWORK, max_iter=0).fit(X, y).embed(X, "body"),
        ModelError,
        "The model has no result 'body'. The layer with these weights returns 'linear'. Known: ",
    ),
    "features of a module": (
        lambda: R(NETWORK, head="new", features="body").fit(X, y),
        ModelError,
        "The model has no value 'body'. The layer with these weights returns 'linear'.",
    ),
    "an input among the weights": (
        lambda: onnx_derivative(LINE, weights=["X"]),
        WeightError,
        "'X' is an input. Pass its name as inputs=['X'].",
    ),
    "a weight among the inputs": (
        lambda: onnx_derivative(LINE, inputs=["W"]),
        WeightError,
        "'W' is an initializer. Pass its name as weights=['W'].",
    ),
    "a penalty on a linear operator": (
        lambda: add_loss_output(to_onnx(LinearRegression().fit(X, y), X[:1].astype(np.float32)), penalty={"coef": 1}),
        LossError,
        "Known: X. Its weights are in LinearRegressor, which OrtGradientRegressor and OrtGradientClassifier can train. "
        "Use skl2onnx.to_onnx(model, X, black_op={'LinearRegressor'})",
    ),
    "a penalty on an array": (
        lambda: penalty_loss_onnx(np.ones((3, 1)), np.float32, l2=1.0),
        ArgumentTypeError,
        "name must be the name of the weight, a string, got ndarray.",
    ),
    "options of a session": (
        lambda: OrtGradientForwardBackward(LINE, sess_options={"intra_op_num_threads": 1}),
        ArgumentTypeError,
        "sess_options must be onnxruntime.SessionOptions, got {'intra_op_num_threads': 1} of type dict. Make them",
    ),
    "options of a run": (
        lambda: OrtGradientForwardBackward(LINE, run_options={"log_severity_level": 3}),
        ArgumentTypeError,
        "run_options must be onnxruntime.RunOptions",
    ),
    "options of a provider": (
        lambda: OrtGradientForwardBackward(LINE, provider_options={"device_id": 0}),
        ArgumentTypeError,
        "Pass [{'device_id': 0}].",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_answer_says_what_was_found_and_what_to_do(name):
    call, error, message = CALLS[name]
    with pytest.raises(error) as e:
        call()
    assert message in str(e.value)


def test_the_remedies_for_names():
    model = R(NETWORK, max_iter=0).fit(X, y)
    assert model.embed(X, "linear").shape == (20, 2)
    assert R(NETWORK, head="new", features="linear", max_iter=1).fit(X, y).n_iter_ == 1
    assert [o.name for o in onnx_derivative(LINE, inputs=["X"], weights=["W"]).graph.output] == ["X_grad", "W_grad"]
    assert onnx_derivative(add_loss_output(LINE), options=DerivativeOptions.Loss, loss="loss", label="label")
    assert OrtGradientForwardBackward(LINE, input_names="X", output_names="Y").output_names == ["Y"]


# ------------------------------------------------------------------------ states


@pytest.mark.parametrize("name", ["step.onnx", "init.onnx", "predict.onnx"])
def test_a_graph_is_no_state(name, tmp_path):
    model = R(max_iter=0).fit(X, y)
    model.export_training_step(tmp_path)
    with pytest.raises(DataError, match=r"contains a graph, not a state. Save the state .*numpy.savez\('state.npz', "):
        model.load_training_state(tmp_path / name)


def test_a_description_is_no_state(tmp_path):
    model = R(max_iter=0).fit(X, y)
    model.export_training_step(tmp_path)
    with pytest.raises(DataError, match=r"is no state, which is a file .npz of numpy, or .onnx .*numpy.savez"):
        model.load_training_state(tmp_path / "step.json")
    with pytest.raises(DataError, match=r"there is none: .* Save the state .*, numpy.savez"):
        model.load_training_state(tmp_path)


def test_a_state_with_the_loss():
    model = R(max_iter=0, solver="sgd").fit(X, y)
    state = {"coef": np.zeros((3, 1)), "intercept": np.zeros(1), "step": np.ones(1, int), "loss": np.ones(1)}
    with pytest.raises(DataError, match="also has loss. .* Leave it out: it is no part of the state."):
        model.load_training_state(state)


# ------------------------------------------------------------------- memory maps


def test_a_memory_map_of_another_type(tmp_path):
    words = np.ones((40, 3), np.float32)
    words[2::3, 1] = np.nan  # as the lower halves of float64 may be
    words.tofile(tmp_path / "x.bin")
    broken = np.memmap(tmp_path / "x.bin", np.float32, "r", shape=X.shape)
    for rows in (broken, broken[2:]):
        with pytest.raises(
            DataError, match="a memory map of float32 that reads 240 of the 480 bytes of its file. Pass"
        ):
            R().fit(rows, y[: len(rows)])


def test_a_memory_map_with_gaps(tmp_path):
    np.where(X > 1, np.nan, X).tofile(tmp_path / "x.bin")
    with pytest.raises(DataError, match="X contains NaN in row .* Pass a model with an imputer"):
        R().fit(np.memmap(tmp_path / "x.bin", np.float64, "r", shape=X.shape), y)


def test_a_memory_map_of_the_header_of_numpy(tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(DataError, match=r"whose header it reads as values. Pass numpy.load\(path, mmap_mode='r'\)."):
        R().fit(np.memmap(tmp_path / "x.npy", np.float64, "r", shape=X.shape), y)
    assert R(max_iter=1).fit(np.load(tmp_path / "x.npy", mmap_mode="r"), y).n_iter_ == 1


# -------------------------------------------------------------------- optimizers


class Counting(Optimizer):
    """Gradient descent that counts its steps in an attribute."""

    def __init__(self):
        self.t = 0

    def update(self, op, w, dw, slots, *scalars, slope=None):
        """Count a call, which is that of a weight and not of a step."""
        self.t += 1
        return op.Sub(w, op.Mul(dw, op.Div(scalars[0], float(self.t)))), slots


class Keeping(Counting):
    """Gradient descent that keeps the gradients of its weights, as those of PyTorch do."""

    def __init__(self):
        self.t = {}

    def update(self, op, w, dw, slots, *scalars, slope=None):
        """Keep the gradient."""
        self.t[w] = dw
        return op.Sub(w, op.Mul(dw, scalars[0])), slots


@dataclass
class Marked(Counting):
    """Gradient descent that sets an attribute in its first update."""

    def update(self, op, w, dw, slots, *scalars, slope=None):
        """Set the attribute."""
        self.t = dw
        return op.Sub(w, op.Mul(dw, scalars[0])), slots


class Halved(Optimizer):
    """Gradient descent with half the rate, which is computed once."""

    @cached_property
    def factor(self):
        """Return the factor of the rate."""
        return 0.5

    def update(self, op, w, dw, slots, *scalars, slope=None):
        """Return the next weight."""
        return op.Sub(w, op.Mul(dw, op.Mul(scalars[0], self.factor))), slots


@pytest.mark.parametrize("kind", [Counting, Keeping, Marked])
def test_an_optimizer_with_state_of_its_own(kind):
    with pytest.raises(
        OptimizerError, match=r"update changes self.t, but it runs once for each weight .*Keep arrays of"
    ):
        R(Ridge(), solver=kind()).fit(X, y)


def test_an_optimizer_with_a_cached_property():
    halved = R(Ridge(), solver=Halved(), learning_rate=0.1, max_iter=2, random_state=0).fit(X, y)
    plain = R(Ridge(), solver="sgd", learning_rate=0.05, max_iter=2, random_state=0).fit(X, y)
    np.testing.assert_allclose(halved.coef_, plain.coef_, rtol=1e-6)


def test_an_optimizer_of_another_interface():
    own = type("Mine", (), {"step": lambda self: None})()
    with pytest.raises(OptimizerError, match="For one of your own, derive a class from onnxtrain.optim.Optimizer."):
        R(solver=own).fit(X, y)
