"""An If whose condition is known is its branch: the same training as of a file without it, and the file stays."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxtrain import OrtGradientRegressor, graph, load, save
from onnxtrain.runtime.session import run

RNG = np.random.default_rng(0)
X, y = RNG.normal(size=(40, 4)).astype(np.float32), RNG.normal(size=(40, 2)).astype(np.float32)
V, W = (RNG.normal(size=(4, 2)).astype(np.float32) for _ in range(2))

#: The nodes in front of the If, whose condition is ``c``; the inputs beside X; the parameters; whether it is known.
CONDITIONS = {
    "a constant": ("c = Identity(yes)", "", {}, True),
    "a fixed input": ("c = Equal(rate, sixteen)", ", int64 rate", {"inputs": {"rate": 16}}, True),
    "a fixed input of another value": ("c = Equal(rate, sixteen)", ", int64 rate", {"inputs": {"rate": 8}}, True),
    "a declared length": ("s = Shape(X) k = Gather(s, one) c = Equal(k, four)", "", {}, True),
    "a part of a shape": ("s = Shape<start = 1>(X) p = ReduceProd<keepdims = 0>(s) c = Less(p, sixteen)", "", {}, True),
    "a size": ("k = Size(V) c = Greater(k, sixteen)", "", {}, True),
    "arithmetic": (
        "s = Shape(X) k = Gather(s, one) d = Div(k, four) m = Mod(d, four) u = Unsqueeze(m, at) l = Slice(u, from, to)"
        " r = Squeeze(l, at) z = Equal(r, one) w = Not(z) c = Not(w)",
        "",
        {},
        True,
    ),
    "the number of rows": ("s = Shape(X) k = Gather(s, zero) c = Greater(k, zero)", "", {}, False),
    "the rows": ("t = ReduceMax<keepdims = 0>(X) g = Greater(t, huge) c = Not(g)", "", {}, False),
}


def numbers(name, array):
    return onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array))


def branch(weights, name):
    """Return a branch, its weights in a Constant and an initializer of its own."""
    nodes = [
        numbers(f"{name}_W", weights),
        onnx.helper.make_node("MatMul", ["X", f"{name}_W"], [f"{name}_z"]),
        onnx.helper.make_node("Add", [f"{name}_z", f"{name}_b"], [f"{name}_y"]),
    ]
    bias = onnx.numpy_helper.from_array(np.zeros(2, np.float32), f"{name}_b")
    output = onnx.helper.make_tensor_value_info(f"{name}_y", 1, ["N", 2])
    return onnx.helper.make_graph(nodes, name, [], [output], [bias])


def model(condition="a constant", then="then", other="other", length="4"):
    nodes, more, _, _ = CONDITIONS[condition]
    onx = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]> net (float[N, {length}] X{more}) => (float[N, 2] Y)
        <bool yes = {{1}}, int64 zero = {{0}}, int64 one = {{1}}, int64 four = {{4}}, int64 sixteen = {{16}},
         int64[1] at = {{0}}, int64[1] from = {{0}}, int64[1] to = {{1}}, float huge = {{1e9}}, float[4, 2] V>
        {{ {nodes.replace("<start = 1>", "")} Y = Identity(V) }}""")
    for node in onx.graph.node:
        if node.op_type == "Shape" and "start" in nodes:
            node.attribute.append(onnx.helper.make_attribute("start", 1))
    del onx.graph.node[-1], onx.graph.value_info[:]
    onx.graph.initializer.append(onnx.numpy_helper.from_array(V, "V"))
    choose = onnx.helper.make_node("If", ["c"], ["Y"], then_branch=branch(W, then), else_branch=branch(V, other))
    onx.graph.node.append(choose)
    return onx


def plain(weights, name):
    """Return a branch as a model."""
    inputs = [onnx.helper.make_tensor_value_info("X", 1, ["N", 4])]
    body = branch(weights, name)
    whole = onnx.helper.make_graph(body.node, "plain", inputs, body.output, body.initializer)
    return onnx.helper.make_model(whole, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])


def fitted(onx, **params):
    return OrtGradientRegressor(onx, max_iter=3, random_state=0, **params).fit(X, y)


@pytest.mark.parametrize("name", [name for name, (*_, known) in CONDITIONS.items() if known])
def test_a_known_branch_is_trained_as_a_model_without_the_if(name):
    onx, params = model(name), CONDITIONS[name][2]
    feeds = {"X": X} | {key: np.array(value) for key, value in params.get("inputs", {}).items()}
    taken = np.array_equal(run(onx, feeds)[0], X @ W) or np.allclose(run(onx, feeds)[0], X @ W, rtol=1e-5, atol=1e-6)
    found = fitted(onx, **params)
    expected = fitted(plain(W, "then") if taken else plain(V, "other"))
    assert found.weights_.keys() == expected.weights_.keys()
    for weight, w in expected.weights_.items():
        np.testing.assert_array_equal(found.weights_[weight], w)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    own = found.get_trained_onnx()
    np.testing.assert_allclose(run(own, feeds)[0], found.predict(X), rtol=1e-6, atol=1e-6)
    weights = {"then_W": W, "other_W": V}
    weights["then_W" if taken else "other_W"] = expected.weights_["then_W" if taken else "other_W"]
    (choose,) = (node for node in own.graph.node if node.op_type == "If")
    for body in graph.bodies_of(choose):
        (constant,) = (node for node in body.node if node.op_type == "Constant")
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(constant.attribute[0].t), weights[constant.output[0]])


@pytest.mark.parametrize("name", [name for name, (*_, known) in CONDITIONS.items() if not known])
def test_a_branch_that_rows_choose_stays(name):
    assert "If" in {node.op_type for node in graph.load(model(name)).graph}


def test_lengths_of_the_rows_settle_what_is_declared_open():
    open_ = model("a declared length", length="K")
    assert "If" in {node.op_type for node in graph.load(open_).graph}
    found, expected = fitted(open_), fitted(plain(W, "then"))
    for weight, w in expected.weights_.items():
        np.testing.assert_array_equal(found.weights_[weight], w)
    np.testing.assert_array_equal(found.predict({"X": X}), expected.predict(X))
    with pytest.raises(ValueError, match="Got: 3 Expected: 4"):
        found.predict(X[:, :3])


def test_names_that_both_branches_have():
    onx = model(then="same", other="same")
    found, expected = fitted(onx), fitted(plain(W, "same"))
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    np.testing.assert_allclose(run(found.get_trained_onnx(), {"X": X})[0], expected.predict(X), rtol=1e-6, atol=1e-6)


def test_branches_inside_branches_and_outer_names():
    """A branch whose result is a value from outside, in a branch, whose names the outer graph takes later."""
    onx = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]> net (float[N, 4] X) => (float[N, 2] Y)
        <bool yes = {1}, bool no = {0}, float[4, 2] V>
        {
            r = If (yes) <
                then_branch = g1 () => (float[N, 4] a) { a = If (no) <
                    then_branch = g2 () => (float[N, 4] b) { b = Neg(X) },
                    else_branch = g3 () => (float[N, 4] d) { d = Identity(X) }
                > },
                else_branch = g4 () => (float[N, 4] e) { e = Abs(X) }
            >
            q = If (no) <
                then_branch = g5 () => (float[N, 4] a) { a = Neg(r) },
                else_branch = g6 () => (float[N, 4] a) { a = Mul(r, r) }
            >
            Y = MatMul(q, V)
        }""")
    del onx.graph.value_info[:]
    onx.graph.initializer.append(onnx.numpy_helper.from_array(V, "V"))
    loaded = graph.load(onx)
    assert [node.op_type for node in loaded.graph if node.op_type in ("If", "Neg", "Abs")] == []
    (found,), (expected,) = (run(each, {"X": X}) for each in (graph.save(loaded), onx))
    np.testing.assert_array_equal(found, expected)


#: Graphs whose inner graphs have names of each other, and of values outside; ``open`` is an input.
CLASHES = {
    "two of one name, which a graph inside captures": """
        r = If (yes) <
            then_branch = g1 () => (float[N, 4] b) {
                a = Abs(X)
                b = If (open) <
                    then_branch = g2 () => (float[N, 4] a_1) { a_1 = Sub(X, a) },
                    else_branch = g3 () => (float[N, 4] a_2) { a_1 = Exp(X) a_2 = Sub(a_1, a) }
                >
            },
            else_branch = g4 () => (float[N, 4] c) { c = Abs(X) }
        >
        a = Neg(X)
        q = Add(r, a)""",
    "neighbours": """
        r = If (yes) <
            then_branch = g1 () => (float[N, 4] a) { b = Abs(X) a = Sub(b, X) },
            else_branch = g2 () => (float[N, 4] a) { b = Neg(X) a = Mul(b, X) }
        >
        s = If (no) <
            then_branch = g3 () => (float[N, 4] b) { a = Abs(r) b = Sub(a, X) },
            else_branch = g4 () => (float[N, 4] b) { a = Exp(r) b = Mul(a, X) }
        >
        q = If (open) <
            then_branch = g5 () => (float[N, 4] b) { a = Neg(s) b = Sub(a, r) },
            else_branch = g6 () => (float[N, 4] a) { b = Abs(s) a = Mul(b, r) }
        >""",
    "in the body of a Loop": """
        q = Loop (three, yes, X) <body = turn (int64 i, bool go, float[N, 4] x) => (bool on, float[N, 4] z) {
            on = Identity(go)
            a = Neg(x)
            z = If (yes) <
                then_branch = g1 () => (float[N, 4] b) {
                    a_1 = Tanh(x)
                    b = If (no) <
                        then_branch = g2 () => (float[N, 4] d) { d = Abs(a_1) },
                        else_branch = g3 () => (float[N, 4] d) { d = Sub(a_1, a) }
                    >
                },
                else_branch = g4 () => (float[N, 4] b) { a_1 = Abs(x) b = Add(a_1, a) }
            >
        }>""",
    "with a Loop that captures": """
        q = If (yes) <
            then_branch = g1 () => (float[N, 4] c) {
                b = Tanh(X)
                c = Loop (three, yes, X) <body = turn (int64 i, bool go, float[N, 4] b_1) => (bool on, float[N, 4] b_2) {
                    on = Identity(go)
                    b_2 = Sub(b_1, b)
                }>
            },
            else_branch = g2 () => (float[N, 4] c) { c = Abs(X) }
        >
        b = Neg(q)""",
    "in a function, called twice": """
        a = local.choice(X)
        b = Neg(a)
        q = local.choice(b)""",
}


@pytest.mark.parametrize("nodes", CLASHES.values(), ids=CLASHES)
def test_names_that_clash_once_a_branch_has_taken_the_place_of_its_if(nodes):
    onx = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        net (float[N, 4] X, bool open) => (float[N, 2] Y)
        <bool yes = {{1}}, bool no = {{0}}, int64 three = {{3}}, float[4, 2] V> {{ {nodes} Y = MatMul(q, V) }}
        <domain: "local", opset_import: ["" : 17]> choice (a) => (c) {{
            yes = Constant<value = bool {{1}}>()
            c = If (yes) <
                then_branch = g1 () => (float[N, 4] b) {{ d = Tanh(a) b = Sub(d, a) }},
                else_branch = g2 () => (float[N, 4] b) {{ d = Abs(a) b = Sub(d, a) }}
            >
        }}""")
    del onx.graph.value_info[:]
    onx.graph.initializer.append(onnx.numpy_helper.from_array(V, "V"))
    for open_ in (True, False):
        feeds = {"X": X, "open": np.array(open_)}
        (found,), (expected,) = (run(each, feeds) for each in (graph.save(graph.load(onx)), onx))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_a_saved_estimator_has_the_file(tmp_path):
    found = fitted(model("a fixed input"), inputs={"rate": 16})
    save(found, tmp_path / "model.onnx")
    again = load(tmp_path / "model.onnx")
    np.testing.assert_array_equal(again.predict(X), found.predict(X))
    assert again.get_trained_onnx().SerializeToString() == found.get_trained_onnx().SerializeToString()


#: A SequenceMap as PyTorch writes hstack: a vector becomes a matrix, a matrix stays.
STACKED = """
    <ir_version: 8, opset_import: ["" : 18]> net (float[N, 4] X) => (float[N, 2] Y)
    <int64 zero = {0}, int64 one = {1}, int64[2] column = {-1, 1}, float[4, 2] V, float[4, 2] U>
    { a = MatMul(X, V) b = MatMul(X, U) t = Tanh(b) S = SequenceConstruct(a, t)
      M = SequenceMap (S) <body = each (float[] x) => (float[] y) {
          s = Shape(x) k = Size(s) o = CastLike(one, k) c = Equal(k, o)
          y = If (c) <then_branch = g1 () => (float[] r) { r = Reshape(x, column) },
                      else_branch = g2 () => (float[] i) { i = Identity(x) }>
      }>
      p = SequenceAt(M, zero) q = SequenceAt(M, one) Y = Add(p, q) }"""


@pytest.mark.parametrize(
    "tensors",
    ["S = SequenceConstruct(a, t)", "j = Concat <axis = 1> (a, t) S = SplitToSequence <axis = 1> (j, sizes)"],
    ids=["constructed", "split"],
)
def test_a_body_for_each_of_known_tensors_is_trained_as_without_it(tensors):
    sizes = "sizes = Constant <value_ints = [2, 2]> () "
    onx = onnx.parser.parse_model(STACKED.replace("S = SequenceConstruct(a, t)", sizes + tensors))
    simple = onnx.parser.parse_model(
        STACKED.partition("{ a = ")[0] + "{ a = MatMul(X, V) b = MatMul(X, U) t = Tanh(b) Y = Add(a, t) }"
    )
    for file in (onx, simple):
        file.graph.initializer.extend([onnx.numpy_helper.from_array(w, name) for name, w in (("V", V), ("U", W))])
    found, expected = fitted(onx), fitted(simple)
    for name in ("V", "U"):
        np.testing.assert_array_equal(found.weights_[name], expected.weights_[name])
    own = found.get_trained_onnx()
    assert own.graph.node == onx.graph.node
    np.testing.assert_allclose(run(own, {"X": X})[0], expected.predict(X), rtol=1e-6, atol=1e-6)


def test_a_body_with_weights_is_not_repeated():
    onx = onnx.parser.parse_model(STACKED)
    (repeated,) = (node for node in onx.graph.node if node.op_type == "SequenceMap")
    repeated.attribute[0].g.node.insert(0, numbers("w", np.float32([1, 2])))
    onx.graph.initializer.extend([onnx.numpy_helper.from_array(w, name) for name, w in (("V", V), ("U", W))])
    assert "SequenceMap" in {node.op_type for node in graph.load(onx).graph}
