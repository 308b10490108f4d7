"""Products in half precision: the weights, the losses and the optimizer stay in float32."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator
from sklearn.datasets import load_digits
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import DeviceError, ParameterError
from onnxtrain.optim import SGD
from onnxtrain.training.objective import Objective, weights_as_inputs
from onnxtrain.training.step import build_step

NETWORK = """
    <ir_version: 10, opset_import: ["" : 21]>
    network (float[n, 3] X) => (float[n, 2] Y)
    <float[3, 4] W0, float[4] b0, float[4, 2] W1, float[2] b1>
    {
        z = MatMul(X, W0)
        a = Add(z, b0)
        h = Tanh(a)
        Y = Gemm(h, W1, b1)
    }"""
SHAPES = {"W0": (3, 4), "b0": (4,), "W1": (4, 2), "b1": (2,)}
HALVES = {"bfloat16": ir.DataType.BFLOAT16, "float16": ir.DataType.FLOAT16}


def moved(products, *, size=1.0):
    """Return what one step of SGD with learning rate 1 takes away, by weight, and its graph.

    Weights and targets are of the given size.
    """
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(NETWORK)
    weights = {name: (size * rng.normal(size=shape)).astype(np.float32) for name, shape in SHAPES.items()}
    names = tuple(SHAPES)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    objective = Objective(weights_as_inputs(proto, names), "Y", "squared_error", names)
    step = build_step(
        objective,
        SGD(momentum=0.0),
        clip_norm=None,
        gathered=False,
        weighted=False,
        products=HALVES.get(products),
    )
    X, y = rng.normal(size=(64, 3)).astype(np.float32), (size * rng.normal(size=(64, 2))).astype(np.float32)
    numbers = np.array([[1 / len(X), 1]], np.float32)
    feeds = {step.features["X"]: X, step.inputs["label"]: y, step.inputs["scalars"]: numbers}
    feeds |= {wire.input: weights[name] for name, wire in step.weights.items()}
    feeds[step.counters["loss_sum"].input] = np.zeros((1, 1), np.float32)
    onx = onnx.load_model_from_string(step.onnx)
    found = dict(zip((o.name for o in onx.graph.output), ReferenceEvaluator(onx).run(None, feeds), strict=True))
    return {n: weights[n] - found[step.weights[n].output] for n in SHAPES}, onx


@pytest.mark.parametrize("products, digits", [("bfloat16", 5e-2), ("float16", 5e-3)])
def test_gradients_are_those_of_float32_but_for_rounding(products, digits):
    exact, _ = moved(None)
    rounded, _ = moved(products)
    for name, dw in exact.items():
        assert rounded[name].dtype == np.float32
        np.testing.assert_allclose(rounded[name], dw, rtol=0, atol=digits * np.abs(dw).max())
        assert not np.array_equal(rounded[name], dw)


def is_row_of_ones(x):
    """Whether a value is ConstantOfShape, reshaped."""
    node = x.producer()
    made = node.inputs[0].producer() if node is not None and node.op_type == "Reshape" else None
    return made is not None and made.op_type == "ConstantOfShape"


@pytest.mark.parametrize("products", HALVES)
def test_every_product_is_in_half_precision_and_nothing_else_is(products):
    _, onx = moved(products)
    model = ir.from_proto(onnx.shape_inference.infer_shapes(onx))
    half = HALVES[products]
    seen = {"MatMul": 0, "Gemm": 0}
    for node in model.graph:
        if node.op_type == "Gemm" and is_row_of_ones(node.inputs[0]):
            continue  # a product with ones is a sum
        if node.op_type in seen:
            seen[node.op_type] += 1
            assert all(x.dtype == half for x in node.inputs if x is not None), node
        elif node.op_type not in ("Cast", "Transpose", "Reshape", "Identity", "Constant", "Shape", "ReduceSum"):
            assert half not in {x.dtype for x in (*node.inputs, *node.outputs) if x is not None}, node
    assert sum(seen.values()) >= 5
    assert all(v.dtype == ir.DataType.FLOAT for v in model.graph.inputs)


def test_small_gradients_do_not_vanish_in_float16():
    # those of the outputs are 1e-8 each, below the smallest number of float16
    exact, _ = moved(None, size=1e-6)
    rounded, _ = moved("float16", size=1e-6)
    np.testing.assert_allclose(rounded["b1"], exact["b1"], rtol=0, atol=0.04 * np.abs(exact["b1"]).max())


def test_float16_on_a_cpu():
    X, y = load_digits(return_X_y=True)
    X = X / 16
    start = MLPClassifier(hidden_layer_sizes=(32,), max_iter=300, tol=1e-2, random_state=0).fit(X[:300], y[:300])
    params = dict(estimator=start, max_iter=3, random_state=0)
    half, real = (OrtGradientClassifier(dtype=dtype, **params).fit(X, y) for dtype in ("float16", "float32"))
    np.testing.assert_allclose(half.loss_curve_, real.loss_curve_, rtol=1e-2)
    assert all(w.dtype == np.float32 for w in half.weights_.values())
    assert half.score(X, y) == pytest.approx(real.score(X, y), abs=0.01)


@pytest.mark.parametrize(
    "last", ["Y = Gemm(X, W, b)", "Y = MatMul(X, W)", "z = Gemm(X, W, b) Y = Softmax<axis = 1>(z)"]
)
def test_a_classifier_that_ends_in_a_product_has_its_loss_in_float32(last):
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[n, 3] X) => (float[n, 2] Y)
        <float[3, 2] W = {{1, 2, 3, 4, 5, 6}}, float[2] b = {{1, 2}}> {{ {last} }}"""
    )
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    half, real = (
        OrtGradientClassifier(onx, dtype=dtype, max_iter=3, random_state=0).fit(X, y)
        for dtype in ("float16", "float32")
    )
    np.testing.assert_allclose(half.loss_curve_, real.loss_curve_, rtol=1e-2)


def test_where_half_precision_is_not_to_be_had():
    X, y = np.eye(4), np.arange(4.0)
    with pytest.raises(DeviceError, match="dtype='bfloat16' needs device='cuda'"):
        OrtGradientRegressor(LinearRegression(), dtype="bfloat16").fit(X, y)
    with pytest.raises(ParameterError, match="L-BFGS needs exact gradients"):
        OrtGradientRegressor(LinearRegression(), dtype="float16", solver="lbfgs").fit(X, y)
