"""Function bodies are expanded for operators without a rule."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from onnxtrain.autodiff.expand import expand_functions, functions_to_expand
from onnxtrain.autodiff.registry import RULES, has_function_body
from onnxtrain.errors import ModelError


def parse(text, opset=24, more=""):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}{more}]>\n{text}')


ATTENTION = "attend (float[B,4,6] X) => (float[B,4,6] Y) {{ Y = Attention <q_num_heads = 2, kv_num_heads = 2> ({}) }}"


@pytest.mark.parametrize(
    "text,gone",
    [
        (ATTENTION.format("X, X, X"), "Attention"),
        (ATTENTION.replace("X) =>", "X, int64[B] L) =>").format("X, X, X, , , , L"), "Attention"),
        (
            "crop (float[8,9] X) => (float[4,5] Y) { s = Constant <value = int64[2] {4, 5}> ()  Y = CenterCropPad(X, s) }",
            "CenterCropPad",
        ),
    ],
)
def test_the_body_stands_in(text, gone):
    model = parse(text)
    before = model.SerializeToString()
    found = expand_functions(model)
    assert gone not in {n.op_type for n in found.graph.node}
    assert not found.functions
    assert model.SerializeToString() == before
    onnx.checker.check_model(found, full_check=True)


def test_inside_a_branch():
    model = parse(
        """
        branch (bool C, float[8,9] X) => (float[4,5] Y) {
            s = Constant <value = int64[2] {4, 5}> ()
            Y = If (C) <
                then_branch = g1 () => (float[4,5] a) { a = CenterCropPad(X, s) },
                else_branch = g2 () => (float[4,5] b) { c = CenterCropPad(X, s)  b = Neg(c) }>
        }"""
    )
    assert functions_to_expand(model) == ["CenterCropPad"]
    assert functions_to_expand(expand_functions(model)) == []


def test_of_values_inside_a_branch():
    model = parse(
        """
        branch (bool C, float[8,9] X) => (float[4,5] Y) {
            Y = If (C) <
                then_branch = g1 () => (float[4,5] a) {
                    s = Constant <value = int64[2] {4, 5}> ()  h = Neg(X)  a = CenterCropPad(h, s) },
                else_branch = g2 () => (float[4,5] b) {
                    t = Constant <value = int64[2] {4, 5}> ()  h = Exp(X)  b = CenterCropPad(h, t) }>
        }"""
    )
    found = expand_functions(model)
    assert functions_to_expand(found) == []
    onnx.checker.check_model(found)


def test_operands_left_out():
    """The inliner of onnx wants the types of absent operands too; bodies are asked for one by one."""
    model = parse(
        """
        attend (bool C, float[B,4,6] X) => (float[B,4,6] Y) <int64[1] L = {4}> {
            A = Attention <q_num_heads = 2, kv_num_heads = 2> (X, X, X, , , , L)
            D = If (C) < then_branch = t () => (float[B,4,6] p) { p = Neg(A) }, else_branch = e () => (float[B,4,6] q) { q = Exp(A) }>
            Y = Attention <q_num_heads = 2, kv_num_heads = 2> (D, X, X, , , , L)
        }"""
    )
    found = expand_functions(model)
    assert functions_to_expand(found) == []
    onnx.checker.check_model(found, full_check=True)


def test_inside_a_local_function():
    model = parse(
        """
        outer (float[8,9] X) => (float[4,5] Y) { Y = local.crop(X) }
        <domain: "local", opset_import: ["" : 24]>
        crop (x) => (y) { s = Constant <value = int64[2] {4, 5}> ()  y = CenterCropPad(x, s) }""",
        more=', "local" : 1',
    )
    found = expand_functions(model)
    assert "CenterCropPad" not in {n.op_type for n in found.graph.node}


@pytest.mark.parametrize("op_type", ["Softmax", "Relu", "HannWindow", "Conv"])
def test_what_has_a_rule_or_is_flat_stays(op_type):
    assert op_type in RULES
    model = parse(f"f (float[2,3] X) => (float[2,3] Y) {{ Y = {op_type}(X) }}")
    assert expand_functions(model) is model


def test_an_unknown_operator_stays():
    """The engine names it, if it is on the way."""
    model = parse("f (float[2,3] X) => (float[2,3] Y) { Y = Nothing(X) }")
    assert expand_functions(model) is model
    assert not has_function_body("Nothing", 21)


def test_no_opset():
    model = parse("f (float[2,3] X) => (float[2,3] Y) { Y = local.crop(X) }")
    del model.opset_import[:]
    assert functions_to_expand(model) == []


def test_types_that_are_unknown():
    model = parse(
        "f (float[2,3] X) => (float[2,3] Y) { Z = other.Op(X)  Y = RotaryEmbedding(Z, X, X) }", more=', "other" : 1'
    )
    with pytest.raises(ModelError, match="body of RotaryEmbedding cannot be expanded"):
        expand_functions(model)


def test_attention_in_float64(check_model):
    rng = np.random.default_rng(17)
    model = parse(ATTENTION.format("X, X, X").replace("float", "double"))
    check_model(model, {"X": rng.uniform(-1, 1, (2, 4, 6))})


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 28, reason="onnx does not have opset 28")
def test_a_body_of_an_earlier_opset_than_the_model(check_model):
    model = parse("""f (double[1,3,4] X, double[1,3,2] B) => (double[1,3,4] Y)
        { Y, S = LinearAttention <q_num_heads = 2, kv_num_heads = 2, update_rule = "delta"> (X, X, X, , , B) }""")
    model.opset_import[0].version = 28
    rng = np.random.default_rng(3)
    check_model(
        model, {"X": rng.uniform(-1, 1, (1, 3, 4)), "B": rng.uniform(0, 1, (1, 3, 2))}, rtol=5e-3
    )  # it is in float32
