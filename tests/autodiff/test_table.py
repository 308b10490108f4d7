"""The table of differentiable operators, and the page generated from it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import onnx
import pytest

import onnxtrain
from onnxtrain import differentiable_ops, gradient_rule
from onnxtrain.autodiff.registry import RULES
from onnxtrain.errors import ParameterError

#: name -> (where its derivative comes from, its rule where that is worth holding)
KNOWN = {
    "Relu": ("rule", "onnxtrain.autodiff.rules.activation.relu"),
    "Shape": ("flat", ""),
    "RotaryEmbedding": ("function body", ""),
    "com.microsoft:CDist": ("rule", None),
    "com.microsoft:FusedMatMul": ("fused", ""),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_row_says_where_a_derivative_comes_from(name):
    row = differentiable_ops()[name]
    how, rule = KNOWN[name]
    assert (row.domain, row.op_type) == tuple(name.rpartition(":")[::2])
    assert row.how == how
    assert rule is None or row.rule == rule


def test_rules_of_users_are_in_the_table():
    @gradient_rule("Doubled", domain="of.a.user")
    def doubled(op, node, dy):
        """Twice as much."""
        return op.Mul(dy, 2.0)

    try:
        row = differentiable_ops()["of.a.user:Doubled"]
        assert (row.how, row.note) == ("rule", "Twice as much.")
    finally:
        del RULES._entries["of.a.user:Doubled"]


def test_the_page_names_every_operator_of_onnx():
    path = Path(__file__).parents[2] / "doc" / "gen_operators.py"
    spec = importlib.util.spec_from_file_location("gen_operators", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.page()
    missing = [
        s.name for s in onnx.defs.get_all_schemas() if s.domain == "" and not s.deprecated and s.name not in page
    ]
    assert not missing


@pytest.mark.parametrize(
    "name, domain, hint",
    [
        ("gelu", "", "The domain 'ai.onnx' has no operator 'gelu'. Did you mean 'Gelu'?"),
        ("ZipMap", "ai.onnx", "Pass domain='ai.onnx.ml'."),
        ("FusedMatMul", "", "Pass domain='com.microsoft'."),
        ("Zqzqzq", "", "Pass the domain of an operator of your own"),
    ],
)
def test_an_operator_that_its_domain_lacks_takes_no_rule(name, domain, hint):
    with pytest.raises(ParameterError, match=re.escape(hint)):
        gradient_rule(name, domain=domain)(len)


def test_the_former_name_of_gradient_rule_is_an_alias():
    assert onnxtrain.gradient is onnxtrain.gradient_rule
