"""The weights of a derived graph: those of the model, not the constants that rules add."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

from onnxtrain.grad_helper import DerivativeOptions, onnx_derivative
from onnxtrain.runtime.session import run

O = DerivativeOptions  # noqa: E741  as short as the option it stands for
HEAD = '<ir_version: 10, opset_import: ["" : 21]>'

#: A network whose derivative needs numbers of its own, among them one that a weight equals.
NETWORK = f"""{HEAD} g (double[N,2] X) => (double[N,2] Y) <double[2,2] W = {{0.5, -1, 0.3, 0.7}}, double b = {{0.5}}>
    {{ H = MatMul(X, W) G = Gelu(H) S = Softplus(G) Y = Mul(S, b) }}"""

LOSS = NETWORK.replace("(double[N,2] Y)", "(double[N,2] Y, double L)").replace(
    "Y = Mul(S, b)", "Y = Mul(S, b) L = ReduceSum<keepdims = 0>(Y)"
)


def names(values):
    return [v.name for v in values]


# name -> model, options, and the gradients of the second derivative with nothing said of its weights
TWICE = {
    "gradients": (NETWORK, {}, ["X", "W", "b", "Y_grad"]),
    "without weights": (NETWORK, {"weights": []}, ["X", "Y_grad", "W", "b"]),
    "one weight": (NETWORK, {"weights": ["W"]}, ["X", "W", "Y_grad", "b"]),
    "ones come in": (NETWORK, {"options": O.KeepOutputs | O.FillGrad}, ["X", "W", "b"]),
    "a loss": (LOSS, {"options": O.Loss, "loss": "L"}, ["X", "W", "b"]),
}


@pytest.mark.parametrize("text, given, expected", TWICE.values(), ids=TWICE)
def test_the_second_derivative_is_with_respect_to_the_weights_of_the_model(text, given, expected):
    first = onnx_derivative(parse_model(text), **given)
    second = onnx_derivative(first)
    found = [name.removesuffix("_grad") for name in names(second.graph.output)]
    assert [name.removesuffix("_1") for name in found] == expected
    onnx.checker.check_model(second, full_check=True)


def test_a_product_of_the_hessian_with_a_vector():
    """Three times derived: each is right, whatever is said of the weights."""
    x = np.array([0.3, -1.2, 2.0])
    model = parse_model(f"{HEAD} g (double[3] X) => (double[3] Y) {{ Y = Sigmoid(X) }}")
    s = 1 / (1 + np.exp(-x))
    slopes = [s * (1 - s), s * (1 - s) * (1 - 2 * s), s * (1 - s) * (1 - 6 * s + 6 * s**2)]
    for slope in slopes:
        model = onnx_derivative(model, inputs=["X"], options=O.KeepOutputs | O.FillGrad)
        del model.graph.output[1:]
        (found,) = run(model, {"X": x})
        np.testing.assert_allclose(found, slope, rtol=1e-12)


def test_equal_numbers_are_one_node():
    model = parse_model(f"{HEAD} g (float[2] X) => (float[2] Y) {{ A = Gelu(X) B = Gelu(A) Y = Gelu(B) }}")
    derived = onnx_derivative(model)
    numbers = [onnx.numpy_helper.to_array(n.attribute[0].t) for n in derived.graph.node if n.op_type == "Constant"]
    assert len(numbers) == len({number.tobytes() for number in numbers}) > 1
    assert not [w.name for w in derived.graph.initializer if w.data_type == onnx.TensorProto.FLOAT]


def test_a_gradient_that_is_a_number():
    model = parse_model(f"{HEAD} g (float X) => (float Y) {{ Y = Identity(X) }}")
    derived = onnx_derivative(model, options=O.KeepOutputs | O.FillGrad)
    assert [y.tolist() for y in run(derived, {"X": np.array(3, np.float32)})] == [1, 3]


@pytest.mark.parametrize("given", [None, 3.0])
def test_an_input_with_a_default_is_no_constant(given):
    model = parse_model(f"{HEAD} g (double[3] X, double E) => (double[3] Y) <double E = {{1}}> {{ Y = Pow(X, E) }}")
    x = np.array([0.5, 1, 2])
    feeds = {"X": x, "Y_grad": np.ones(3)} | ({} if given is None else {"E": np.array(given)})
    (dx,) = run(onnx_derivative(model, weights=[], inputs=["X"]), feeds)
    np.testing.assert_allclose(dx, np.ones(3) if given is None else given * x ** (given - 1))


@pytest.mark.parametrize("ir_version, weights_are_inputs", [(3, False), (4, True)])
def test_before_ir_version_4_every_weight_was_listed(ir_version, weights_are_inputs):
    text = '<ir_version: 10, opset_import: ["" : 8]> g (float[2] X, float E) => (float[2] Y) <float E = {2}>'
    model = parse_model(text + " { Y = Pow(X, E) }")
    model.ir_version = ir_version
    derived = onnx_derivative(model, weights=[], inputs=["X"])
    assert ("E" in names(derived.graph.input)) == weights_are_inputs
    (dx,) = run(derived, {"X": np.array([1, 3], np.float32), "Y_grad": np.ones(2, np.float32)})
    np.testing.assert_allclose(dx, [2, 6])
