"""The registries of losses, rules, rewritings and optimizers: a cell may run twice, another entry may not hide one."""

from dataclasses import dataclass

import pytest

from onnxtrain.autodiff import gradient_rule, no_gradient
from onnxtrain.autodiff.registry import RULES
from onnxtrain.errors import GradientError, OnnxTrainError, ParameterError
from onnxtrain.losses import LOSSES, loss
from onnxtrain.optim import OPTIMIZERS, Optimizer, optimizer
from onnxtrain.registry import Registry
from onnxtrain.rewrite import REWRITES, rewrite

CELL = {
    "loss": (
        lambda **o: loss("cell", **o),
        LOSSES,
        "cell",
        "def cell(op, y_true, y_pred):\n    return op.{}(y_pred)\n",
    ),
    "gradient": (
        lambda **o: gradient_rule("Cell", domain="c", **o),
        RULES,
        "c:Cell",
        "def cell(op, node, dy):\n    return op.{}(dy)\n",
    ),
    "rewrite": (
        lambda **o: rewrite("c", "Cell", **o),
        REWRITES,
        "c:Cell",
        "def cell(op, node):\n    return op.{}(node.inputs[0])\n",
    ),
    "optimizer": (
        lambda **o: optimizer("cell", **o),
        OPTIMIZERS,
        "cell",
        "@dataclass(frozen=True)\nclass cell(Optimizer):\n    rate: float = 0.5\n"
        "    def update(self, op, w, dw, slots, *scalars):\n        return op.{}(w), ()\n",
    ),
}


def run(source):
    namespace = {"dataclass": dataclass, "Optimizer": Optimizer, "__name__": "__main__"}
    exec(compile(source, "<cell>", "exec"), namespace)
    return namespace["cell"]


@pytest.mark.parametrize("kind", CELL)
def test_a_cell_may_run_twice(kind):
    register, table, key, source = CELL[kind]
    name = next((k for k in (key, "cell", "c:Cell", "c.Cell") if k in table), key)
    try:
        register()(run(source.format("Neg")))
        name = next(k for k in table if "ell" in k and k not in ("Cell",))
        register()(run(source.format("Neg")))
        with pytest.raises(ParameterError, match="is already registered.*override=True"):
            register()(run(source.format("Abs")))
        before = table[name]
        register(override=True)(run(source.format("Abs")))
        assert table[name] is not before
    finally:
        table.unregister(name)
    assert name not in table
    with pytest.raises(OnnxTrainError, match="Unknown"):
        table.unregister(name)


def test_a_value_in_a_class_counts():
    _, table, _, source = CELL["optimizer"]
    optimizer("cell")(run(source.format("Neg")))
    try:
        with pytest.raises(ParameterError, match="already registered"):
            optimizer("cell")(run(source.format("Neg").replace("0.5", "0.25")))
    finally:
        table.unregister("cell")


def test_flat_on_purpose_twice():
    no_gradient("Level", domain="c")
    no_gradient("Level", domain="c")
    with pytest.raises(ParameterError, match="already registered"):
        gradient_rule("Level", domain="c")(lambda op, node, dy: dy)
    RULES.unregister("c:Level")


def test_an_entry_that_is_no_definition():
    table = Registry("number", GradientError)
    table.register("one")(1)
    table.register("one")(1)
    with pytest.raises(ParameterError, match="number 'one' is already registered: 1"):
        table.register("one")(2)
