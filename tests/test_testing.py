"""check_gradient finds wrong gradients, reports position and size of the error, and accepts correct ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

from onnxtrain import gradient_rule
from onnxtrain.autodiff.registry import RULES
from onnxtrain.errors import DataError, ModelError
from onnxtrain.testing import GradientMismatch, check_gradient


def model(nodes, inputs="float[N,3] X", outputs="float[N,3] Y", initializers="", domains=""):
    return parse_model(f"""
        <ir_version: 8, opset_import: ["" : 18{domains}]> m ({inputs}) => ({outputs}) {initializers} {{ {nodes} }}""")


X = np.array([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7]])

RIGHT = {
    "several outputs": (model("Y = Tanh(X) Z = Mul(X, X)", outputs="float[N,3] Y, float[N,3] Z"), {"X": X}, ["X"]),
    "an output of integers": (
        model("Y = Tanh(X) i = ArgMax(X)", outputs="float[N,3] Y, int64[1,3] i"),
        {"X": X},
        ["X"],
    ),
    "an input of integers": (
        model(
            "Y = Gather(W, i)", "int64[N] i", initializers="<float[3,2] W = {1, 2, 3, 4, 5, 6}>", outputs="float[N,2] Y"
        ),
        {"i": [0, 2, 0]},
        ["W"],
    ),
    "a weight that nothing uses": (
        model("Y = Tanh(X)", initializers="<float[2] W = {1, 2}>"),
        {"X": X},
        ["X", "W"],
    ),
    "no kernel in float64": (model("Y = Softplus(X)"), {"X": X}, ["X"]),
    "a kernel that computes in float32": (model("Y = Shrink <lambd = 0.2, bias = 0.1> (X)"), {"X": X}, ["X"]),
    "a scalar": (model("Y = Mul(X, X)", "float X", "float Y"), {"X": 3.0}, ["X"]),
    "no rows": (model("Y = Tanh(X)"), {"X": np.zeros((0, 3))}, ["X"]),
    "an entry that is infinite": (model("Y = Tanh(X)"), {"X": [[np.inf, 1, 2], [np.nan, 3, 4]]}, ["X"]),
    "what cannot be moved": (model("Y = Sigmoid(X)"), {"X": [[-800, 800, 0.0]]}, ["X"]),
    "windows that overlap, behind what onnxruntime has not in float64": (
        model(
            "H = Conv(X, W) Y = MaxPool <kernel_shape = [2, 2]> (H)",
            "float[N,1,4,4] X",
            "float[N,1,2,2] Y",
            "<float[1,1,2,2] W = {1, -2, 0.5, 3}>",
        ),
        {"X": np.random.default_rng(0).normal(size=(2, 1, 4, 4))},
        ["X", "W"],
    ),
    "float16 becomes float64": (model("Y = Exp(X)", "float16[N,3] X", "float16[N,3] Y"), {"X": X}, ["X"]),
}


@pytest.mark.parametrize("onx, feeds, names", RIGHT.values(), ids=RIGHT)
def test_what_is_right_passes(onx, feeds, names):
    before = onx.SerializeToString(deterministic=True)
    errors = check_gradient(onx, feeds)
    assert list(errors) == names
    assert max(errors.values()) < 1e-5
    assert onx.SerializeToString(deterministic=True) == before


@pytest.fixture
def rule():
    """Return a decorator that registers a rule for the test only."""
    added = []

    def register(op_type, domain="test.only"):
        added.append(f"{domain}:{op_type}")
        return gradient_rule(op_type, domain=domain)

    yield register
    for name in added:
        RULES._entries.pop(name, None)


def run_cube(onx, feeds):
    """Run a model that holds the operator Cube, which no runtime has."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class Cube(OpRun):
        op_domain = "test.only"

        def _run(self, x):
            return (x**3,)

    return ReferenceEvaluator(onx, new_ops=[Cube]).run(None, feeds)


CUBE = model("Y = test.only.Cube(X)", domains=', "test.only" : 1')
WRONG = {
    "right": (lambda op, x, dy: op.Mul(dy, op.Mul(3.0, op.Mul(x, x))), None),
    "a factor": (lambda op, x, dy: op.Mul(dy, op.Mul(x, x)), r"gradient of 'X' is wrong in 6 of 6 entries .* by up to"),
    "a sign": (lambda op, x, dy: op.Mul(dy, op.Mul(-3.0, op.Mul(x, x))), r"at \[0, 0\]: -?\d\S* instead of -?\d"),
    "one entry": (
        lambda op, x, dy: op.Mul(op.Mul(dy, op.Mul(3.0, op.Mul(x, x))), op.Cast(op.Less(x, 1.9), to=11)),
        r"wrong in 1 of 6 entries.*at \[0, 2\]: 0 instead of",
    ),
    "no number": (lambda op, x, dy: op.Sqrt(op.Sub(op.Mul(x, 0.0), 1.0)), "nan instead of"),
}


@pytest.mark.parametrize("derivative, message", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(rule, derivative, message):
    @rule("Cube")
    def cube(op, node, dy):
        return derivative(op, node.inputs[0], dy)

    if message is None:
        assert check_gradient(CUBE, {"X": X}, run=run_cube)["X"] < 1e-6
        return
    with pytest.raises(GradientMismatch, match=message) as caught:
        check_gradient(CUBE, {"X": X}, run=run_cube)
    assert isinstance(caught.value, AssertionError)


def test_a_random_direction_sees_the_entries_that_were_not_drawn(rule):
    @rule("Cube")
    def cube(op, node, dy):
        (x,) = node.inputs
        return op.Mul(dy, op.Mul(2.0, op.Mul(x, x)))

    with pytest.raises(GradientMismatch, match=r"along a random direction.* ran in run, its gradient in run\.$"):
        check_gradient(CUBE, {"X": X}, run=run_cube, max_entries=0)


def test_the_shape_of_a_gradient_is_checked():
    onx = model("Y = Tanh(X)")

    def run(model, feeds):
        from onnx.reference import ReferenceEvaluator

        found = ReferenceEvaluator(model).run(None, feeds)
        return found if model.graph.output[0].name == "Y" else [found[0][:1]]

    with pytest.raises(GradientMismatch, match=r"has shape \(1, 3\), but 'X' has shape \(2, 3\)"):
        check_gradient(onx, {"X": X}, run=run)


def test_both_sides_of_a_kink_are_shown():
    with pytest.raises(GradientMismatch, match=r"at \[0\]: 0 instead of .* \(0 to the left, .* ran in onnxruntime"):
        check_gradient(model("Y = Relu(X)", "float[N] X", "float[N] Y"), {"X": [0.0]})


def test_an_output_whose_shape_depends_on_the_entry_is_no_number():
    onx = model(
        "z = Constant<value = float {0}>() d = Constant<value = float {1}>() Y = Range(z, X, d)",
        "float X",
        "float[n] Y",
    )
    with pytest.raises(GradientMismatch, match="instead of nan"):
        check_gradient(onx, {"X": 3.0})


def test_a_feed_that_is_missing_is_named():
    with pytest.raises(DataError, match=r"no value for 'X'; it has \['x'\]"):
        check_gradient(model("Y = Tanh(X)"), {"x": X})


def test_a_model_that_nothing_runs_is_said(rule):
    @rule("Cube")
    def cube(op, node, dy):
        return dy

    with pytest.raises(ModelError, match="No runtime can run the model in float64"):
        check_gradient(CUBE, {"X": X})


def test_one_name_has_one_length():
    """The gradient of T, which is not summed over the rows, was blamed."""
    onx = model("Y = Mul(X, T)", "float[N,3] X, float[N,1] T")
    with pytest.raises(DataError, match=r"'N' has length 2 in feeds\['X'\], but 1 in feeds\['T'\]"):
        check_gradient(onx, {"X": X, "T": [[1.0]]})
    assert check_gradient(model("Y = Mul(X, T)", "float[N,3] X, float[M,1] T"), {"X": X, "T": [[1.0]]})["T"] < 1e-6


@pytest.mark.parametrize(
    "nodes",
    ["Y = Expand(X, n)", "v = ConstantOfShape <value = int64[1] {0}> (n) Y = Unsqueeze(X, v)"],
    ids=["a result", "axes"],
)
def test_values_that_would_fill_the_memory_are_refused(nodes):
    """onnx.reference computes a million million elements, and makes a tuple of as many axes."""
    onx = model(nodes, outputs="float Y", initializers="<int64[3] n = {1000000, 1000000, 3}>")
    onx.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError, match=r"would have [36],000,000,000,000 elements, too many .* Pass smaller feeds"):
        check_gradient(onx, {"X": np.ones((1, 3))})


def test_local_functions_are_inlined():
    onx = parse_model("""
        <ir_version: 9, opset_import: ["" : 20, "local" : 1]> m (float[N] X) => (float[N] Y) { Y = local.square (X) }
        <domain: "local", opset_import: ["" : 20]> square (x) => (y) { y = Mul(x, x) }""")
    assert check_gradient(onx, {"X": [1.0, 2.0]})["X"] < 1e-8
    onnx.checker.check_model(onx)
