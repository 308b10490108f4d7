"""The engine: properties that a table of rules cannot test."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnxtrain import graph as graphs
from onnxtrain.autodiff import active_values, backpropagate, blocking, gradient_rule, no_gradient
from onnxtrain.autodiff.engine import _path, sources
from onnxtrain.autodiff.registry import RULES, derivative_of
from onnxtrain.errors import GradientError, ModelError, ParameterError
from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.graph import attribute, captured, operands

VECTOR = "program (double[3] X, double[3] A) => (double[3] Y{}) {{ {} }}"

PROGRAMS = {
    "a value used twice": "Y = Mul(X, X)",
    "a value used three times": "P = Mul(X, A) Q = Exp(X) R = Mul(P, Q) Y = Add(R, X)",
    "a diamond": "Z = Exp(X) P = Mul(Z, A) Q = Sin(Z) Y = Mul(P, Q)",
    "a diamond in a diamond": "Z = Mul(X, A) P = Exp(Z) Q = Sin(Z) R = Cos(Q) S = Mul(Q, R) Y = Mul(P, S)",
    "a dead branch": "D = Exp(X) E = Log(D) Y = Mul(X, A)",
    "a flat branch": "F = Floor(X) G = Mul(F, A) Y = Add(G, X)",
    "a flat branch that meets": "C = Greater(X, A) Y = Where(C, X, A)",
    "an operand given twice to one node": "Y = Max(X, X, A)",
    "a constant operand": "T = Constant<value_float = 2.0>() D = Cast<to = 11>(T) Y = Mul(X, D)",
    "a long chain": " ".join(f"Z{i + 1} = Sin(Z{i})" for i in range(30)).replace("Z0)", "X)") + " Y = Mul(Z30, A)",
    "an unused output": "S = Constant<value_ints = [1, 2]>() P, Q = Split(X, S) T = Exp(P) Y = Mul(T, A)",
    "an unused first output": "S = Constant<value_ints = [1, 2]>() P, Q = Split<axis = 0>(X, S) T = ReduceSum(Q) Y = Mul(T, A)",
    "a loop of shapes": "S = Shape(X) P = Expand(A, S) Y = Mul(P, X)",
}


def vector(body, more=""):
    return onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>' + VECTOR.format(more, body))


FEEDS = {"X": np.array([0.3, -1.2, 2.1]), "A": np.array([1.5, 0.4, -0.7])}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(check_model, name):
    check_model(vector(PROGRAMS[name]), FEEDS)


@pytest.mark.parametrize(
    "more, body",
    [
        (", double[3] Z", "Z = Exp(X) Y = Mul(Z, A)"),
        (", double[3] Z", "Y = Exp(X) Z = Mul(Y, A)"),
        (", double[3] Z, double[3] W", "Z = Exp(X) Y = Mul(Z, A) W = Sin(Y)"),
        (", int64[3] Z", "Z = Cast<to = 7>(X) Y = Mul(X, A)"),
    ],
)
def test_several_outputs(check_model, more, body):
    check_model(vector(body, more), FEEDS)


#: Nodes whose rule differentiates a decomposition, with an operand given twice, and the shapes of X and S.
TWICE = {
    "scale and bias": ("GroupNormalization <num_groups = 2, stash_type = 11> (X, S, S)", (2, 4, 3), (4,)),
    "weights": ("GRU <hidden_size = 2> (X, S, S)", (3, 2, 2), (1, 6, 2)),
    "states": ("LSTM <hidden_size = 2> (X, U, U, , , S, S)", (3, 2, 2), (1, 2, 2)),
    "scale, bias and mean": ("BatchNormalization <training_mode = 1> (X, S, S, S, V)", (4, 3), (3,)),
}


@pytest.mark.parametrize("node, x, s", TWICE.values(), ids=TWICE)
def test_an_operand_given_twice_to_a_decomposition(node, x, s, check_model):
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> twice (double{list(x)} X, double{list(s)} S) => (double Y)
        <double[1,8,2] U = {{{", ".join(f"{u:.3f}" for u in rng.normal(size=16))}}}, double[3] V = {{1, 2, 3}}>
        {{ Z = {node} T = Sin(Z) Y = ReduceSum <keepdims = 0> (T) }}"""
    )
    check_model(model, {"X": rng.normal(size=x), "S": rng.uniform(0.3, 1, s)})


def test_a_weight_used_in_two_places(check_model):
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> tied (double[N,3] X) => (double[N,3] Y)
        <double[3,3] W = {1, 2, 0, -1, 1, 3, 0, 0.5, 1}> { Z = MatMul(X, W) T = Tanh(Z) Y = MatMul(T, W) }"""
    )
    check_model(model, {"X": np.random.default_rng(0).standard_normal((4, 3))})


def test_with_respect_to_a_value_in_between():
    model = graphs.load(vector("Z = Exp(X) P = Mul(Z, A) Y = Mul(P, Z)"))
    op, (z, p, y) = graphs.builder(model).op, [node.outputs[0] for node in model.graph]
    seed = op.Constant(value=ir.tensor(np.ones(3)))
    found = backpropagate(op, [z.producer(), p.producer(), y.producer()], {y: seed}, [z, p])
    assert set(found) == {z, p}
    onx = graphs.save(model, outputs=[("dz", found[z]), ("dp", found[p])])
    dz, dp = onnx.reference.ReferenceEvaluator(onx).run(None, FEEDS)
    np.testing.assert_allclose(dz, 2 * FEEDS["A"] * np.exp(FEEDS["X"]))
    np.testing.assert_allclose(dp, np.exp(FEEDS["X"]))
    assert not any(n.op_type == "Exp" for n in list(model.graph)[3:]), "what is before is not differentiated"


def test_what_is_not_reached_is_missing():
    model = graphs.load(vector("Y = Exp(X)"))
    op, (x, a), y = graphs.builder(model).op, model.graph.inputs, model.graph.outputs[0]
    assert set(backpropagate(op, list(model.graph), {y: y}, [x, a])) == {x}


def test_an_operator_before_what_is_wanted_needs_no_rule():
    onx = vector("Z = my.Unknown(X) Y = Mul(Z, A)")
    onx.opset_import.append(onnx.helper.make_opsetid("my", 1))
    onx.graph.value_info.append(onnx.helper.make_tensor_value_info("Z", onnx.TensorProto.DOUBLE, [3]))
    model = graphs.load(onx)
    op, (_, a), y = graphs.builder(model).op, model.graph.inputs, model.graph.outputs[0]
    assert set(backpropagate(op, list(model.graph), {y: y}, [a])) == {a}


def test_weights_are_no_constants():
    model = graphs.load(
        onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 21]> g (double[2] X) => (double[2] Y) <double P = {3}>
            { Y = Pow(X, P) }"""
        )
    )
    op, p, y = graphs.builder(model).op, model.graph.initializers["P"], model.graph.outputs[0]
    backpropagate(op, list(model.graph), {y: y}, [model.graph.inputs[0], p])
    slope = next(node for node in list(model.graph)[1:] if node.op_type == "Pow")
    assert slope.inputs[1].producer() is not None, "the exponent of the gradient is computed from P"
    assert p.const_value is not None, "and P has its value again"


def test_gradients_have_the_shape_of_their_primal():
    onx = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[N,3] X, float[3] B, float[M,1] C) => (float[P,3] Y)
        { Z = Add(X, B) Y = Mul(Z, C) }"""
    )
    shapes = {
        o.name: [d.dim_param or d.dim_value for d in o.type.tensor_type.shape.dim]
        for o in onnx_derivative(onx).graph.output
    }
    assert shapes == {"X_grad": ["N", 3], "B_grad": [3], "C_grad": ["M", 1]}


# ------------------------------------------------------------------ captured


def test_operands_of_a_graph_inside():
    onx = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> g (bool C, double[3] X, double[3] A) => (double[3] Y) {
        Y = If (C) <then_branch = t () => (double[3] T) { P = Exp(X) T = Mul(P, A) },
                    else_branch = e () => (double[3] E) { E = If (C) <then_branch = u () => (double[3] U) { U = Neg(X) },
                                                                     else_branch = v () => (double[3] V) { V = Identity(A) }> }> }"""
    )
    model = graphs.load(onx)
    (node,) = [n for n in model.graph if n.op_type == "If"]
    assert [v.name for v in captured(node)] == ["X", "A", "C"]
    assert [v.name for v in operands(node)] == ["C", "X", "A", "C"]
    assert active_values(list(model.graph), [model.graph.inputs[1]]) >= set(node.outputs)


def test_sources_stop_at_operators_without_a_derivative():
    model = graphs.load(vector("F = Floor(X) G = Mul(F, A) Y = Add(G, A)"))
    x, a = model.graph.inputs
    found = sources(model.graph, model.graph.outputs[0])
    assert a in found
    assert x not in found
    assert x in sources(model.graph, model.graph.outputs[0], x)


def test_an_outer_value_that_is_an_output_of_the_inner_graph():
    outer = ir.val("outer", ir.DataType.DOUBLE, [3])
    inner = ir.Graph([], [outer], nodes=[], name="inner", opset_imports={"": 21})
    node = ir.node("If", [], {"then_branch": inner})
    assert captured(node) == (outer,)


def test_attributes_that_are_no_graphs():
    outer = ir.val("outer", ir.DataType.DOUBLE, [3])
    inner = ir.Graph([], [], nodes=[ir.node("Elu", [outer], {"alpha": 2.0})], name="inner", opset_imports={"": 21})
    assert captured(ir.node("Scan", [], {"num_scan_inputs": 0, "body": inner})) == (outer,)


# -------------------------------------------------------------------- rules


@pytest.fixture
def own_rule(monkeypatch):
    """Register rules of a domain of one's own; they are forgotten after the test."""
    monkeypatch.setattr(RULES, "_entries", dict(RULES._entries))
    return lambda *names, **options: gradient_rule(*names, domain="my", **options)


def derive(body):
    model = vector(body)
    model.opset_import.append(onnx.helper.make_opsetid("my", 1))
    for name in ("Y", "Z"):
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, [3]))
    return onnx_derivative(model, inputs=["X"])


def test_a_rule_of_ones_own(own_rule):
    @own_rule("Cube")
    def cube(op, node, dy):
        (x,) = node.inputs
        return op.Mul(dy, op.Mul(3.0, op.Mul(x, x)))

    assert [n.op_type for n in derive("Y = my.Cube(X)").graph.node] == ["Constant", "Mul", "Mul", "Mul"]


WRONG_RULES = [
    (
        lambda op, node, dy: op.Cast(dy, to=1),
        r"The rule of my:Odd \(node 'odd'\) returned .*FLOAT\[3\] as the gradient of X: DOUBLE\[3\]: type and shape must match\.$",
    ),
    (lambda op, node, dy: op.Concat(dy, dy, axis=0), r"DOUBLE\[6\] as the gradient of X.* with broadcast=True\.$"),
    (lambda op, node, dy: op.Unsqueeze(dy, [0]), r"returned .*DOUBLE\[1,3\] as the gradient of X"),
    (lambda op, node, dy: (dy, dy), r"returned 2 gradients for 1 operand. Return one for each"),
    (
        lambda op, node, dy: {}["gone"],
        r"The rule of my:Odd \(node 'odd'\) failed for \(X: DOUBLE\[3\]\): KeyError: 'gone'",
    ),
    (lambda op, node, dy: node, r"must return a result of op, or None, for each operand, got Node"),
    (lambda op, node, dy: (np.ones(3), None), r"must return a result of op, .* got ndarray"),
    (lambda op, node, dy: 2 * dy, r"set a handler\. A rule computes with op"),
    (lambda op, node, dy: op.MatMul(dy, op.Unsqueeze(dy, [0])), r"MatMul\(.*\) is not valid"),
    (lambda op, node, dy: None, r"returned nothing. End it with return and the gradient of each operand"),
]


@pytest.mark.parametrize("rule, message", WRONG_RULES)
def test_a_wrong_rule_is_named(own_rule, rule, message):
    own_rule("Odd")(rule)
    with pytest.raises((GradientError, ModelError), match=message):
        derive("[odd] Y = my.Odd(X)")


def test_a_rule_that_forgets_an_operand_is_named(own_rule):
    own_rule("Scaled")(lambda op, node, dy: op.Mul(dy, node.inputs[1]))
    with pytest.raises(
        GradientError, match=r"returned 1 gradient for 2 operands. Return one for each in their order, an"
    ):
        derive("Y = my.Scaled(A, X)")


def test_a_node_that_a_rule_of_the_package_cannot_read_is_named():
    with pytest.raises(GradientError, match=r"The rule of Einsum .* IndexError: .* Either the node does not have the"):
        derive('Y = Einsum<equation = "ij,jk">(X, A)')


def test_a_wrong_type_is_named_where_operands_are_broadcast(own_rule):
    own_rule("Odd", broadcast=True)(lambda op, node, dy: op.Cast(dy, to=1))
    with pytest.raises(GradientError, match=r"returned .*FLOAT\[3\] as the gradient of X: DOUBLE"):
        derive("Y = my.Odd(X)")


def test_a_gradient_of_fewer_axes_is_named_where_operands_are_broadcast(own_rule):
    own_rule("Odd", broadcast=True)(lambda op, node, dy: op.ReduceSum(dy, keepdims=0))
    with pytest.raises(GradientError, match=r"The gradient of my:Odd .* does not fit X: DOUBLE\[3\]: ValueError"):
        derive("Y = my.Odd(X)")


def test_no_rule_names_the_node_and_the_path():
    with pytest.raises(
        GradientError, match=r"my:Odd \(node 'odd'\) has no gradient rule.*Odd -> Z -> Exp -> W -> Mul -> Y"
    ):
        derive("[odd] Z = my.Odd(X) W = Exp(Z) V = Sin(Z) Y = Mul(W, A)")
    with pytest.raises(GradientError, match=r"@onnxtrain.gradient_rule\('Odd', domain='my'\)"):
        derive("Y = my.Odd(X)")


def test_an_operator_without_a_rule_is_named_where_a_rule_needs_the_type_of_its_result():
    words = r"my:Odd \(node ''\) has no gradient rule.*Odd -> V -> Exp -> W -> Reshape -> U -> ReduceSum -> Y"
    with pytest.raises(GradientError, match=words):
        derive(
            "V = my.Odd(X) W = Exp(V) s = Constant<value_ints = [3, 1]>() U = Reshape(W, s) Y = ReduceSum<keepdims = 0>(U)"
        )


def test_the_path_is_one_of_several():
    with pytest.raises(GradientError, match="Odd -> Z -> Exp -> W -> Mul -> Y"):
        derive("Z = my.Odd(X) W = Exp(Z) V = Sin(Z) Y = Mul(W, V)")
    assert _path(ir.node("Exp", []), set()) == ["Exp"]


def test_a_flat_operator_stops_the_walk(own_rule):
    no_gradient("Steps", domain="my")
    assert {n.op_type for n in derive("Z = my.Steps(X) Y = Mul(Z, X)").graph.node} == {"Steps", "Mul"}


@pytest.mark.parametrize(
    "register, former",
    [
        (lambda: no_gradient("Exp"), "rules.elementwise.exp"),
        (lambda: gradient_rule("Sign")(lambda op, node, dy: dy), "registry.no_gradient"),
    ],
)
def test_a_second_registration_raises(register, former):
    with pytest.raises(ValueError, match=rf"is already registered: onnxtrain.autodiff.{former}\. Pass override=True"):
        register()


def test_a_rule_with_too_few_arguments_is_refused():
    with pytest.raises(ParameterError, match=r"is called as rule\(op, node, dy\).* but <lambda> takes \(x\)"):
        gradient_rule("Wave", domain="my")(lambda x: x)


@pytest.mark.parametrize(
    "register, message",
    [
        (lambda: gradient_rule("Cube", domain=3), "domain must be a string, such as 'my.domain', or"),
        (lambda: no_gradient("Cube", domain=None), "for ai.onnx, got None"),
        (lambda: gradient_rule("Cube", domain="my", flat=0), "flat must be a tuple of positions of"),
        (lambda: gradient_rule("Cube", domain="my", broadcast="yes"), "True or False, got 'yes'."),
        (lambda: gradient_rule("Cube", domain="my")(3), "called as rule(op, node, dy), got 3."),
    ],
)
def test_an_argument_of_another_kind_is_refused(register, message):
    with pytest.raises(ParameterError, match=re.escape(message)):
        register()


def test_the_domain_of_onnx_has_two_names():
    assert derivative_of(ir.node("Exp", [], domain="ai.onnx")) is RULES["Exp"]
    assert derivative_of(ir.node("Exp", [], domain="my")) is None


def test_attribute_and_its_default():
    node = ir.node("Elu", [], {"alpha": 2.0})
    assert (attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0), attribute(node, "beta")) == (2.0, 1.0, None)


def test_the_nodes_that_stop_a_derivative_are_found():
    model = graphs.load(
        onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 21]> g (float[3] X) => (float[3] Y) <float[3] W = {1, 2, 3}>
            { a = Round(X) b = Mul(a, W) c = Floor(b) Y = Neg(c) }"""
        )
    )
    weights = list(model.graph.initializers.values())
    assert [node.op_type for node in blocking(model.graph, weights)] == ["Floor"]
    assert not sources(model.graph, *model.graph.outputs).intersection(weights)
