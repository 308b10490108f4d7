"""Every floating-point type, every rule: the emitted nodes are valid, standard, and differentiable themselves."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxtrain.autodiff import rules
from onnxtrain.autodiff.registry import RULES
from onnxtrain.errors import GradientError
from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.runtime.session import run

RULE_FILES = sorted(Path(rules.__file__).parent.glob("*.py"))

BODY = """
    T = Transpose(X) G = MatMul(X, W) S = Sigmoid(G) P = Pow(S, E) Q = Max(P, G) R = Where(C, Q, S)
    A = Constant<value_ints = [1]>() M = ReduceLogSumExp(R, A) LOW = ReduceMin<keepdims = 0>(M) L = Clip(R, LOW) N = ReduceL2(L, A) D = Div(L, N)
    I = Constant<value_ints = [1, 0]>() K0 = Gather<axis = 1>(D, I) K1 = Gather(K0, O) O1 = Unsqueeze(O, A)
    O2 = Concat<axis = 1>(O1, O1) K2 = GatherElements(K1, O2) K3 = GatherND(K1, O1) K4 = ScatterElements<reduction = "max">(K1, O2, K1)
    K5 = Mul(K2, K3) K = Add(K4, K5) F = Gelu<approximate = "tanh">(K) V = PRelu(F, B)
    H = Slice(V, A, J, A) U = Concat<axis = 1>(H, V) Z = Sqrt(U) Y = Softplus(Z)
"""


def program(dtype, body=BODY):
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({dtype}[N,3] X, {dtype}[3,3] W, {dtype} E, {dtype}[2] B, bool[N,3] C) => ({dtype}[N,3] Y)
        <int64[1] J = {{9}}, int64[4] O = {{0, 1, 3, 3}}> {{ {body} }}"""
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float", "double"])
def test_gradients_have_the_type_of_the_model(dtype):
    derived = onnx_derivative(program(dtype))
    onnx.checker.check_model(derived, full_check=True)
    again = onnx_derivative(derived, weights=[])
    onnx.checker.check_model(again, full_check=True)
    code = derived.graph.input[0].type.tensor_type.elem_type
    assert {o.type.tensor_type.elem_type for o in (*derived.graph.output, *again.graph.output)} == {code}


def feeds(dtype):
    rng = np.random.default_rng(0)
    values = {"X": (4, 3), "W": (3, 3), "E": (), "B": (2,), "Y_grad": (4, 3)}
    return {n: rng.uniform(0.5, 1.5, s).astype(dtype) for n, s in values.items()} | {"C": rng.random((4, 3)) > 0.5}


@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-4), ("float16", 3e-2)])
def test_onnxruntime_has_every_kernel(dtype, rtol):
    names = {"float32": "float", "float16": "float16"}
    derived = onnx_derivative(program(names[dtype]))
    expected = onnx.reference.ReferenceEvaluator(onnx_derivative(program("double"))).run(None, feeds(np.float64))
    for found, right in zip(run(derived, feeds(dtype)), expected, strict=True):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, right, rtol=rtol, atol=rtol * np.abs(right).max())


MIXED = [
    ("float[3] X, double[3] P", "float", "Y = Pow(X, P)"),
    ("double[3] X, float P", "double", "Y = Pow(X, P)"),
    ("float[3] X, double[3] P", "double", "Z = Cast<to = 11>(X) Y = Mul(Z, P)"),
    ("float[3] X, double[3] P", "double", "Z = CastLike(X, P) Y = Mul(Z, P)"),
    ("float16[3] X, float[3] P", "float", "Z = Cast<to = 1>(X) Y = Mul(Z, P)"),
    ("int64[3] I, float[3] P", "float", "Z = Cast<to = 1>(I) Y = Mul(Z, P)"),
]


@pytest.mark.parametrize("inputs, result, body", MIXED)
def test_mixed_types(inputs, result, body):
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({result}[3] Y) {{ {body} }}'
    )
    derived = onnx_derivative(model)
    onnx.checker.check_model(derived, full_check=True)
    types = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
    assert all(o.type.tensor_type.elem_type == types[o.name.removesuffix("_grad")] for o in derived.graph.output)
    onnx.checker.check_model(onnx_derivative(derived, weights=[]), full_check=True)


# ------------------------------------------------------------------ closure


def emitted(path):
    return sorted(set(re.findall(r"\bop\.([A-Z]\w+)\(", path.read_text())))


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda p: p.stem)
def test_what_rules_emit_has_a_derivative(path):
    for name in emitted(path):
        assert name in RULES, f"{path.name} emits {name}, which has no derivative: the second derivative would fail"


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda p: p.stem)
def test_what_rules_emit_is_standard(path):
    of_their_own = {"CumProd", "TensorScatter", "Swish"}  # emitted for themselves only: their graphs are newer
    for name in set(emitted(path)) - of_their_own:
        assert onnx.defs.has(name, 21, ""), f"{path.name} emits {name}, which opset 21 does not have"


@pytest.mark.parametrize("name", [name for name, known in RULES.items() if known.rule is not None])
def test_rules_are_short(name):
    source = inspect.getsource(RULES[name].rule)
    body = source.split("):", 1)[1].replace(inspect.getdoc(RULES[name].rule) or "", "")
    lines = [line for line in body.splitlines() if line.strip(' "')]
    assert len(lines) <= 15, f"{name}: a rule is at most 15 lines"


# --------------------------------------------------------------------- flat

FLAT = [
    "Y = Floor(X)",
    "Y = Round(X)",
    "I = ArgMax(X) Y = Cast<to = 11>(I)",
    "I = Greater(X, A) Y = Cast<to = 11>(I)",
    "I = NonZero(X) Y = Cast<to = 11>(I)",
    "I = IsNaN(X) Y = Cast<to = 11>(I)",
    "I = Shape(X) Y = Cast<to = 11>(I)",
    "Y = RandomNormalLike(X)",
    "Y = EyeLike(X)",
]


@pytest.mark.parametrize("body", FLAT)
def test_flat_operators_give_zeros(body):
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (double[2,2] X, double[2,2] A) => (double[?,?] Y) {{ {body} }}'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model)
    derived = onnx_derivative(inferred)
    assert [n.op_type for n in derived.graph.node] == ["ConstantOfShape"] * 2


def test_unknown_is_not_flat():
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "of.a.user" : 1]> g (float[3] X) => (float[3] Y)
        { Y = of.a.user.Cubed(X) }"""
    )
    with pytest.raises(GradientError, match="Cubed .* has no gradient rule"):
        onnx_derivative(model)
