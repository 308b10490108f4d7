"""Conversion between opsets: older models to the project's opset, its graphs to the opset of a GPU."""

import re

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper
from onnx.helper import make_node

from onnxtrain import graph, opsets
from onnxtrain.errors import ModelError
from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.graph import opset as opset_module
from onnxtrain.losses import LOSSES
from onnxtrain.optim import Adam
from onnxtrain.runtime.device import CAPABILITIES, can_be_recorded
from onnxtrain.runtime.session import run
from onnxtrain.testing import check_gradient
from onnxtrain.training.objective import Objective, weights_as_inputs
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
    step = build_step(objective, Adam(), **how, products=products, capabilities=CAPABILITIES["cuda"])
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


def test_a_file_before_ir_4_that_does_not_list_its_initializers():
    older = onnx.parser.parse_model(LINEAR.replace("ir_version: 10", "ir_version: 3").replace(": 21", ": 7"))
    X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(graph.save(graph.load(older)), {"X": X}), run(older, {"X": X}))


@pytest.mark.parametrize("version", [7, 17, 21])
def test_a_file_before_ir_4_that_lists_its_initializers_has_all_shapes(version):
    older = onnx.parser.parse_model(LINEAR.replace("ir_version: 10", "ir_version: 3").replace(": 21", f": {version}"))
    listed = [onnx.helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in older.graph.initializer]
    older.graph.input.extend(listed)
    assert all(y.shape is not None for node in graph.load(older).graph for y in node.outputs)


@pytest.mark.parametrize("elem_type, value", [("float", ""), ("float", ", value = 2.5"), ("double", "")])
def test_pad_before_its_value_was_an_operand(elem_type, value):
    text = f"""<ir_version: 4, opset_import: ["" : 10]> g ({elem_type}[n, 3] X) => ({elem_type}[n, 4] Y)
    {{ Y = Pad<pads = [0, 1, 0, 0]{value}>(X) }}"""
    onx = onnx.parser.parse_model(text).SerializeToString()
    X = np.arange(6).reshape(2, 3).astype(np.float32 if elem_type == "float" else np.float64)
    np.testing.assert_array_equal(run(graph.save(graph.load(onx)), {"X": X}), run(onx, {"X": X}))


BODY = onnx.parser.parse_graph("body (int64 i, bool go) => (bool next) { next = Identity(go) }")
KEPT = {
    "an operator that is newer": make_node("Gelu", ["X"], ["Y"]),
    "an operator that meant another thing": make_node("Resize", ["X", "", "scales"], ["Y"]),
    "an attribute that is newer": make_node("Cast", ["X"], ["Y"], to=onnx.TensorProto.FLOAT16, saturate=0),
    "a type that is newer": make_node("Cast", ["X"], ["Y"], to=onnx.TensorProto.FLOAT8E5M2),
    "a graph inside": make_node("Loop", ["", "go"], [], body=BODY),
}


#: Nodes whose meaning changed after an opset, which onnx's converter ignores.
CHANGED = {
    "a scale per group": (18, "Y = GroupNormalization <num_groups = 2> (a, two, two)"),
    "a scale per group, another epsilon": (20, "Y = GroupNormalization <num_groups = 2, epsilon = 0.5> (a, two, two)"),
    "the largest of a matrix": (12, "Y = Hardmax (a)"),
    "the largest of all": (11, "Y = Hardmax <axis = 0> (a)"),
    "linear pixels": (10, 'Y = Resize <mode = "linear"> (a, larger)'),
    "nearest pixels": (10, "Y = Resize (a, smaller)"),
    "linear pixels of Upsample": (9, 'Y = Upsample <mode = "linear"> (a, larger)'),
    "linear pixels of a branch": (
        10,
        """c = Cast <to = 9> (one)
        Y = If (c) <then_branch = t () => (float[1, 4, p, q] z) { z = Resize <mode = "linear"> (a, larger) },
        else_branch = e () => (float[1, 4, p, q] w) { w = Resize (a, larger) }>""",
    ),
}


@pytest.mark.parametrize("opset, nodes", CHANGED.values(), ids=CHANGED)
def test_a_change_of_meaning_that_the_converter_ignores(opset, nodes):
    onx = onnx.parser.parse_model(
        f"""<ir_version: 4, opset_import: ["" : {opset}]> g (float[1, 4, 3, 3] X) => (float[b, c, p, q] Y)
        <float[2] two = {{2, -3}}, float[4] larger = {{1, 1, 2, 1.5}}, float[4] smaller = {{1, 1, 0.7, 0.4}},
         float one = {{1}}> {{ a = Tanh(X) {nodes} }}"""
    )
    X = np.random.default_rng(0).normal(size=(1, 4, 3, 3)).astype(np.float32)
    np.testing.assert_allclose(run(graph.save(graph.load(onx)), {"X": X})[0], run(onx, {"X": X})[0], atol=1e-5)
    if "Group" in nodes:  # no runtime has Resize for float64, and Hardmax is flat
        check_gradient(onx, {"X": X})


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


@pytest.mark.parametrize("op_type", sorted(opsets.WIDENED))
def test_widened_operators_take_what_they_took(op_type):
    old, new = (graph.find_schema(op_type, version, "") for version in (opsets.WIDENED_SINCE, graph.OPSET))
    old = old or graph.find_schema(op_type, 15, "")  # CastLike came later
    assert (old.min_input, old.max_input, old.max_output) == (new.min_input, new.max_input, new.max_output)
    assert [name for name in old.attributes if name not in new.attributes] == []
    assert not [name for name, a in new.attributes.items() if name not in old.attributes and a.required]


# --------------------------------------------------------------- newer opsets

#: Attributes that must be set, for a node of any operator.
REQUIRED = {
    "axes": [0], "axis": 0, "blocksize": 1, "direction": "LEFT", "equation": "i->i", "kernel_shape": [1],
    "pooled_shape": [1, 1], "shape": [1], "to": 1,
}  # fmt: skip

#: Operators whose meaning changed where their schema did not: the types of results for which they keep their opset.
CHANGED = {"BitShift": "uint", "Cast": "float8", "CastLike": "float8", "Mod": "float|double"}


def type_of(written):
    """Return a type that an onnx schema writes as a text."""
    kind, _, inner = written.removesuffix(")").partition("(")
    if kind == "tensor":
        return helper.make_tensor_type_proto(getattr(onnx.TensorProto, inner.upper()), None)
    return (helper.make_sequence_type_proto if kind == "seq" else helper.make_optional_type_proto)(type_of(inner))


def is_valid(onx):
    try:
        onnx.shape_inference.infer_shapes(onx, check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return False
    return True


def changed_since(oldest):
    """Yield each version, after `oldest`, of an operator that was there before."""
    for opset in range(oldest + 1, onnx.defs.onnx_opset_version() + 1):
        for name in sorted({s.name for s in onnx.defs.get_all_schemas() if not s.domain}):
            new = graph.find_schema(name, opset, "")
            holds_graphs = new and any(a.type == onnx.defs.OpSchema.AttrType.GRAPH for a in new.attributes.values())
            if new and new.since_version == opset and graph.find_schema(name, oldest, "") and not holds_graphs:
                yield new


def models_of(schema):
    """Yield a model of one node for each type that its operator takes or gives, with its optional inputs and without."""
    for formals in (schema.inputs, [f for f in schema.inputs if f.option.name != "Optional"]):
        allowed = {f.type_str: f.types for f in (*schema.outputs, *formals)}
        common = {name: "tensor(float)" if "tensor(float)" in types else min(types) for name, types in allowed.items()}
        for one in ({name: written} for name, types in allowed.items() for written in sorted(types)):
            types = {n: type_of(t) for n, t in (common | one).items()}
            attributes = {n: REQUIRED[n] for n, a in schema.attributes.items() if a.required}
            given = types[schema.outputs[0].type_str].tensor_type.elem_type
            if schema.name == "Cast":
                attributes["to"] = given
            if schema.name == "Constant":
                attributes["value"] = onnx.TensorProto(data_type=given, dims=[0])
            inputs = [helper.make_value_info(f"x{i}", types[f.type_str]) for i, f in enumerate(formals)]
            node = helper.make_node(schema.name, [x.name for x in inputs], ["y"], **attributes)
            body = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name="y")])
            opsets = [helper.make_opsetid("", schema.since_version)]
            yield (
                (common | one)[schema.outputs[0].type_str],
                helper.make_model(body, opset_imports=opsets, ir_version=10),
            )


@pytest.mark.parametrize(
    "schema", changed_since(graph.OPSET), ids=lambda schema: f"{schema.name}-{schema.since_version}"
)
def test_an_operator_is_lowered_with_the_types_it_had_before(schema):
    for result, onx in models_of(schema):
        if not is_valid(onx):
            continue
        older = opset_module.convert_opset(onx)
        lowered = opset(older) == graph.OPSET
        older.opset_import[0].version = graph.OPSET
        changed = re.search(CHANGED.get(schema.name, "nothing"), result)
        assert lowered == (is_valid(older) and not changed), onx.graph.node


IN_IF = """
    z = If (c) <
        then_branch = t () => (float16[n] a) { a = Celu (x) },
        else_branch = e () => (float16[n] b) { b = Identity (x) }>"""


@pytest.mark.parametrize(
    "signature, body, lowered",
    [
        ("float[n] x) => (float[n] z", "z = Mod <fmod = 1> (x, x)", True),
        ("int64[n] x) => (int64[n] z", "z = Mod (x, x)", True),
        ("float[n] x) => (float[n] z", "z = Mod (x, x)", False),
        ("float[1,1,n] x) => (float[1,1,m] z", "z = MaxPool <kernel_shape = [2], ceil_mode = 1> (x)", False),
        ("float[1,1,n] x) => (float[1,1,m] z", "z = MaxPool <kernel_shape = [2]> (x)", True),
        ("float[1,4,n,k] x) => (float[a,b,c,d] z", 'z = SpaceToDepth <blocksize = 2, mode = "CRD"> (x)', False),
        ("bool c, float16[n] x) => (float16[n] z", IN_IF, False),
        ("bool c, float[n] x) => (float[n] z", IN_IF.replace("float16", "float"), True),
        ("float16[n] x) => (float16[n] z", "y = mine.Own (x)  z = Celu (y)", False),
        ("float[n] x) => (float[n] z", "z = Swish (x)", False),
    ],
)
def test_a_newer_model_is_lowered_where_it_means_the_same(signature, body, lowered):
    onx = onnx.parser.parse_model(f'<ir_version: 14, opset_import: ["" : 28, "mine" : 1]> g ({signature}) {{ {body} }}')
    assert (opset(opset_module.convert_opset(onx)) == graph.OPSET) == lowered


def test_another_default_keeps_the_opset(monkeypatch):
    onx = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 28]> g (float[n] x) => (float[n] z) { z = Elu(x) }'
    )
    new = graph.find_schema("Elu", 28, "")
    alpha = onnx.defs.OpSchema.Attribute("alpha", helper.make_attribute("alpha", 2.0))
    types = [(t.type_param_str, t.allowed_type_strs, "") for t in new.type_constraints]
    other = onnx.defs.OpSchema(
        "Elu", "", 28, inputs=new.inputs, outputs=new.outputs, type_constraints=types, attributes=[alpha]
    )
    known = opsets.find_schema
    monkeypatch.setattr(opsets, "find_schema", lambda name, v, d: other if v == 28 else known(name, v, d))
    assert opset(opset_module.convert_opset(onx)) == 28


@pytest.mark.parametrize(
    "opset, body",
    [(28, "z = Mod (x, y)"), (28, "s = Mul (x, y)  z = Celu <alpha = 2.0> (s)"), (26, "s = Swish (x)  z = Mul (s, y)")],
)
def test_the_derivative_of_a_newer_model_is_right_at_its_opset(opset, body):
    onx = onnx.parser.parse_model(
        f'<ir_version: 14, opset_import: ["" : {opset}]> g (double[n] x, double[n] y) => (double[n] z) {{ {body} }}'
    )
    assert {o.domain: o.version for o in onnx_derivative(onx).opset_import} == {"": opset}
    check_gradient(onx, {"x": np.array([0.4, -1.3, 5.1]), "y": np.array([0.3, 0.7, -2.0])})


def test_an_opset_that_cannot_be_converted_has_a_remedy():
    """As torch.onnx.export(dynamo=False, opset_version=13) writes standardized weights of convolutions."""
    onx = onnx.parser.parse_model("""<ir_version: 7, opset_import: ["" : 13]> m (float[n, 3] X) => (float[n, 3] Y)
        <float[3] s = {1, 1, 1}, float[3] b = {0, 0, 0}, float[3] mean = {1, 2, 3}, float[3] variance = {1, 2, 1}>
        { Y, m, v, p, q = BatchNormalization(X, s, b, mean, variance) }""")
    with pytest.raises(ModelError, match=r"Opset 13 cannot be .* Export the model with a later opset, .*version=17\)"):
        graph.load(onx)
