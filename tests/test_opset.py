"""A model at an older opset: the graphs that a GPU is given, and what keeps its opset."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.helper import make_node

from onnxtrain import graph
from onnxtrain.graph import opset as opset_module
from onnxtrain.losses import LOSSES
from onnxtrain.optim import Adam
from onnxtrain.training.device import can_be_recorded
from onnxtrain.training.objective import Objective, weights_as_inputs
from onnxtrain.training.session import run
from onnxtrain.training.step import build_step

LINEAR = """
    <ir_version: 10, opset_import: ["" : 21]>
    linear (float[n, 3] X) => (float[n, 2] Y) <float[3, 2] W = {1, 2, 3, 4, 5, 6}, float[2] b = {0, 1}>
    { z = MatMul(X, W)  a = Add(z, b)  h = Relu(a)  Y = Exp(h) }"""


def opset(onx):
    """Return the opset that a model, or its bytes, declares."""
    onx = onnx.load_model_from_string(onx) if isinstance(onx, bytes) else onx
    (found,) = (o.version for o in onx.opset_import if not o.domain)
    return found


@pytest.mark.parametrize("products", [None, ir.DataType.FLOAT16, ir.DataType.BFLOAT16], ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_gpu_has_the_kernels_of_every_step_and_can_record_it(loss, products):
    model = weights_as_inputs(onnx.parser.parse_model(LINEAR), ["W", "b"])
    classifies = LOSSES.find(loss).classifies
    objective = Objective(model, "Y", loss, ("W", "b"), penalized=("W",), classifies=classifies)
    how = {"clip_norm": 1.0, "gathered": True, "weighted": True, "l1": (("W",),), "l2": (("W",),)}
    step = build_step(objective, Adam(), **how, products=products, on_gpu=True)
    assert opset(step.onnx) == graph.OPSET
    assert opset(graph.at_opset(step.onnx, 18)) == 18
    assert can_be_recorded(step.onnx)


def test_the_numbers_are_the_same():
    onx = onnx.parser.parse_model(LINEAR).SerializeToString()
    X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    older = graph.at_opset(onx, 18)
    assert opset(older) == 18
    np.testing.assert_array_equal(run(older, {"X": X}), run(onx, {"X": X}))
    assert graph.at_opset(onx, None) is onx


BODY = onnx.parser.parse_graph("body (int64 i, bool go) => (bool next) { next = Identity(go) }")
KEPT = {
    "an operator that is newer": make_node("Gelu", ["X"], ["Y"]),
    "an operator that meant another thing": make_node("Resize", ["X", "", "scales"], ["Y"]),
    "an attribute that is newer": make_node("Cast", ["X"], ["Y"], to=onnx.TensorProto.FLOAT16, saturate=0),
    "a type that is newer": make_node("Cast", ["X"], ["Y"], to=onnx.TensorProto.FLOAT8E5M2),
    "a graph inside": make_node("Loop", ["", "go"], [], body=BODY),
}


@pytest.mark.parametrize("node", KEPT.values(), ids=KEPT)
def test_what_keeps_its_opset(node):
    onx = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n] X) => (float[n] Z) { Z = Neg(X) }'
    )
    assert opset(graph.at_opset(onx.SerializeToString(), 18)) == 18
    onx.graph.node.append(node)
    assert opset(graph.at_opset(onx.SerializeToString(), 18)) == 21


def test_an_older_model_stays_as_it_is():
    onx = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n] X) => (float[n] Z) { Z = Neg(X) }'
    )
    assert graph.at_opset(onx.SerializeToString(), 18) == onx.SerializeToString()


@pytest.mark.parametrize("op_type", sorted(opset_module._WIDENED))
def test_widened_operators_take_what_they_took(op_type):
    old, new = (graph.find_schema(op_type, version, "") for version in (opset_module._WIDENED_SINCE, graph.OPSET))
    old = old or graph.find_schema(op_type, 15, "")  # CastLike came later
    assert (old.min_input, old.max_input, old.max_output) == (new.min_input, new.max_input, new.max_output)
    assert [name for name in old.attributes if name not in new.attributes] == []
    assert not [name for name, a in new.attributes.items() if name not in old.attributes and a.required]
