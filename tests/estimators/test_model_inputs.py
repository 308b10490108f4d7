"""Inputs that are fixed for all rows, and inputs that take the rows on another axis."""

import warnings
from contextlib import nullcontext

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from onnxtrain import Inputs, OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.convert.model_inputs import Entrance
from onnxtrain.errors import DataError, ModelError, ParameterError
from onnxtrain.graph.query import copy_of, dimensions

rng = np.random.default_rng(0)
N, H = 24, 3


def with_weights(text, shapes):
    model = onnx.parser.parse_model(text)
    for name, shape in shapes.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    return model


#: As models of speech: a layer for each of two sample rates, and a state of (layers, rows, hidden).
SPEECH = with_weights(
    """<ir_version: 8, opset_import: ["" : 16]>
    g (float[batch, 4] x, float[2, batch, 3] state, int64 sr) => (float[batch, 1] y, float[2, batch, 3] next)
    <int64 high = {16000}, int64[1] first = {0}> {
        is_high = Equal(sr, high)
        a = MatMul(x, A)
        b = MatMul(x, B)
        chosen = Where(is_high, a, b)
        before = ReduceSum<keepdims = 0>(state, first)
        sum = Add(chosen, before)
        hidden = Tanh(sum)
        y = MatMul(hidden, W)
        next = Add(state, state)
    }""",
    {"A": (4, H), "B": (4, H), "W": (H, 1)},
)
X = rng.normal(size=(N, 4)).astype(np.float32)
STATE = rng.normal(size=(2, 1, H)).astype(np.float32)
STATES = np.repeat(STATE, N, axis=1)
y = rng.normal(size=N).astype(np.float32)
A, B, W = (onnx.numpy_helper.to_array(w) for w in SPEECH.graph.initializer if w.name in "ABW")


def tuned(model=SPEECH, **params):
    return OrtGradientRegressor(model, **{"max_iter": 4, "batch_size": 8, "random_state": 0, "output": "y", **params})


def by_hand(x, states, weight, W=W):
    return (np.tanh(x @ weight + states.sum(axis=0)) @ W)[:, 0]


def unnamed(model):
    """Return a model whose dimensions have no names."""
    changed = copy_of(model)
    for value in (*changed.graph.input, *changed.graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            dimension.ClearField("dim_param")
    return changed


EXPECTED = tuned(inputs={"sr": 16000}).fit({"x": X, "state": STATES}, y)
#: Models, parameters and rows of one and the same fit.
SAME = {
    "a state as a parameter": (SPEECH, {"inputs": {"sr": 16000, "state": STATE}}, X),
    "by its name": (SPEECH, {"inputs": {"sr": np.int32(16000), "state": STATE.tolist()}}, {"x": X}),
    "the only open axis": (unnamed(SPEECH), {"inputs": {"sr": [16000][0], "state": STATE}}, Inputs(x=X)),
    "told": (unnamed(SPEECH), {"inputs": {"sr": 16000, "state": STATE}, "batch_axis": {"state": -2}}, X),
    "rows in a dictionary": (unnamed(SPEECH), {"inputs": {"sr": 16000}}, {"x": X, "state": STATES}),
    "rows of Inputs": (SPEECH, {"inputs": {"sr": 16000}}, Inputs(x=X, state=np.moveaxis(STATES, 1, 0))),
    "rows told": (unnamed(SPEECH), {"inputs": {"sr": 16000}, "batch_axis": {"state": 1}}, {"x": X, "state": STATES}),
}


@pytest.mark.parametrize("model, params, rows", SAME.values(), ids=SAME)
def test_the_same_fit(model, params, rows, tmp_path):
    found = tuned(model, **params).fit(rows, y)
    assert set(found.weights_) == {"A", "B", "W"}
    for name, w in EXPECTED.weights_.items():
        np.testing.assert_allclose(found.weights_[name], w, rtol=1e-5, atol=1e-7)
    expected = by_hand(X, STATES, found.weights_["A"], found.weights_["W"])
    np.testing.assert_allclose(found.predict(rows), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.losses(rows, y), (expected - y) ** 2, rtol=1e-4, atol=1e-6)
    save(found, tmp_path / "kept.onnx")
    again = load(tmp_path / "kept.onnx")
    np.testing.assert_array_equal(again.predict(rows), found.predict(rows))
    for model in (found, again):
        np.testing.assert_allclose(
            run(model.get_trained_onnx(), state=STATES, sr=16000), expected, rtol=1e-5, atol=1e-6
        )
    refitted = again.set_params(max_iter=0).fit(rows, y)
    np.testing.assert_allclose(refitted.predict(rows), expected, rtol=1e-5, atol=1e-6)
    found.partial_fit(rows, y)
    assert found.weights_["B"].tolist() == B.tolist()  # the layer of the other rate


def run(onx, **feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # onnxruntime says that a default is no constant
    session = onnxruntime.InferenceSession(onx.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": X, **{name: np.asarray(value) for name, value in feeds.items()}})[0][:, 0]


def test_the_file_keeps_its_inputs_and_has_the_fixed_values_as_defaults():
    model = tuned(inputs={"sr": 8000, "state": STATE}).fit(X, y)
    onx = model.get_trained_onnx()
    assert list(onx.graph.node) == list(SPEECH.graph.node)
    assert list(onx.graph.input) == list(SPEECH.graph.input)
    held = {i.name: onnx.numpy_helper.to_array(i) for i in onx.graph.initializer}
    assert held["sr"] == 8000
    assert "state" not in held  # onnxruntime would take no more rows than a default has
    b, w = model.weights_["B"], model.weights_["W"]
    np.testing.assert_allclose(run(onx, state=STATES), by_hand(X, STATES, b, w), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run(onx, state=2 * STATES), by_hand(X, 2 * STATES, b, w), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run(onx, state=STATES, sr=16000), by_hand(X, STATES, A, w), rtol=1e-5, atol=1e-6)
    assert [i.name for i in SPEECH.graph.initializer] == ["high", "first", "A", "B", "W"]  # as it was


def test_a_state_is_trained_where_it_is_named():
    model = tuned(inputs={"sr": 16000, "state": STATE}, weights_to_train=["state"], learning_rate=0.1).fit(X, y)
    assert set(model.weights_) == {"state"}
    assert model.weights_["state"].shape == STATE.shape
    assert np.abs(model.weights_["state"] - STATE).max() > 0.01
    states = np.repeat(model.weights_["state"], N, axis=1)
    np.testing.assert_allclose(model.predict(X), by_hand(X, states, A), rtol=1e-5, atol=1e-6)
    held = {i.name: onnx.numpy_helper.to_array(i) for i in model.get_trained_onnx().graph.initializer}
    np.testing.assert_array_equal(held["state"], model.weights_["state"])


def test_the_gradient_has_the_rows_first():
    given = {"x": X, "state": STATES}
    found = EXPECTED.gradient(given, y, wrt="state")
    assert found.shape == (N, 2, H)
    by_rows = EXPECTED.gradient(Inputs(x=X, state=np.moveaxis(STATES, 1, 0)), y, wrt="state")
    np.testing.assert_array_equal(found, by_rows)
    step = np.zeros_like(STATES)
    step[1, 5, 2] = 1e-2
    shifted = [EXPECTED.losses({"x": X, "state": STATES + sign * step}, y)[5] for sign in (1, -1)]
    assert found[5, 1, 2] == pytest.approx((shifted[0] - shifted[1]) / 2e-2, rel=1e-2)


def of_one_size(size):
    fixed = copy_of(SPEECH)
    for value in (*fixed.graph.input, *fixed.graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.dim_value = size
    return fixed


def test_a_model_made_for_batches_of_one_size():
    fixed = of_one_size(5)
    rows = {"x": X, "state": STATES}
    model = tuned(fixed, inputs={"sr": 16000}).fit(rows, y)
    np.testing.assert_allclose(model.weights_["A"], EXPECTED.weights_["A"], rtol=1e-5)
    np.testing.assert_allclose(model.predict(rows), EXPECTED.predict(rows), rtol=1e-5)
    single = of_one_size(1)
    for state in (STATE, 0):
        given = tuned(single, inputs={"sr": 16000, "state": state}).fit(X, y)
        expected = by_hand(X, STATES * (state is STATE), given.weights_["A"], given.weights_["W"])
        np.testing.assert_allclose(given.predict(X), expected, rtol=1e-5, atol=1e-6)


#: Inputs of a model, its output, batch_axis, and the axes of the rows.
AXES = {
    "first": ("float[n, 3] a, int64[n] b", "float[n, 1]", {}, {"a": 0, "b": 0}),
    "by the name of another": ("float[n, 3] a, float[2, n, 3] b", "float[k, 1]", {}, {"a": 0, "b": 1}),
    "by the name of the output": ("float[t, n, 3] a, int64[n] b", "float[n, 1]", {}, {"a": 1, "b": 0}),
    "an output of other order": ("float[n, t, 3] a", "float[t, n, 1]", {}, {"a": 0}),
    "layers with a name": ("float[n, 3] a, float[layers, n, 3] b", "float[n, 1]", {}, {"a": 0, "b": 1}),
    "told": ("float[t, n, 3] a", "float[k, 1]", {"a": 1}, {"a": 1}),
    "from the end": ("float[3, t, n] a", "float[k, 1]", {"a": -1}, {"a": 2}),
    "another than found": ("float[n, n] a, float[n] b", "float[n, 1]", {"a": 1}, {"a": 1, "b": 0}),
    "unknown rank": ("float[] a", "float[n, 1]", {}, {"a": 0}),
    "batches of one row": ("float[1, 3] a, float[2, 1, 3] b", "float[1, 1]", {}, {"a": 0, "b": 1}),
    "batches of a size that layers have": ("float[2, 3] a, float[2, 2, 3] b", "float[2, 1]", {}, {"a": 0, "b": 0}),
    "a fixed size that the output does not say": ("float[1, 3] a", "float[k, 1]", {}, {"a": 0}),
    "a fixed size": ("float[1, 3] a, float[1, 2] b", "float[1, 1]", {}, {"a": 0, "b": 0}),
}


@pytest.mark.parametrize("inputs, output, told, axes", AXES.values(), ids=AXES)
def test_the_axis_of_the_rows(inputs, output, told, axes):
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({output} y) {{ y = Identity(a) }}'
    assert Entrance.of(onnx.parser.parse_model(text), None, told).axes == axes


@pytest.mark.parametrize("axis, shape", [(0, (5, 2, 3)), (1, (2, 5, 3)), (2, (2, 3, 5))])
def test_rows_first(axis, shape):
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float{[d if d != 5 else "n" for d in shape]} a) => (float[d, e, f] y) {{ y = Identity(a) }}""".replace("'", "")
    model = onnx.parser.parse_model(text)
    entrance = Entrance.of(model, None, {"a": axis})
    values = rng.normal(size=shape).astype(np.float32)
    turned = entrance.rows_first(model)
    assert dimensions(turned.graph.input[0]) == ["n", 2, 3]
    for onx, given in ((model, values), (turned, np.moveaxis(values, axis, 0))):
        session = onnxruntime.InferenceSession(onx.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, {"a": given})[0], values)


#: Axes of a fixed value are as long as those of the same name in other inputs.
MASKED = with_weights(
    """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[n, t] ids, int64[n, t] mask, int64[n, t] types) => (float[n, 1] y) <int64[1] tokens = {1}> {
        vectors = Gather(E, ids)
        kinds = Gather(K, types)
        both = Add(vectors, kinds)
        shown = Cast<to = 1>(mask)
        kept = Mul(both, shown)
        sum = ReduceSum<keepdims = 1>(kept, tokens)
        y = Mul(sum, S)
    }""",
    {"E": (7,), "K": (2,), "S": (1,)},
)


def test_a_scalar_fills_a_sequence():
    ids = rng.integers(0, 7, (N, 5))
    ones = {"mask": np.ones_like(ids), "types": np.zeros_like(ids)}
    given = tuned(MASKED).fit({"ids": ids, **ones}, y)
    fixed = tuned(MASKED, inputs={"mask": 1, "types": 0}).fit(ids, y)
    for name, w in given.weights_.items():
        np.testing.assert_allclose(fixed.weights_[name], w, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(fixed.predict(ids[:, :2]), given.predict({k: v[:, :2] for k, v in
        {"ids": ids, **ones}.items()}), rtol=1e-5)  # fmt: skip


#: Parameters of a model of speech, rows, the error and its words.
REFUSED = {
    "a scalar that is missing": (
        {}, {"x": X, "state": STATES}, ModelError,
        r"The input 'sr' of the model is a scalar, the same for all rows. Pass its value with inputs={'sr': \.\.\.}",
    ),
    "no such input": (
        {"inputs": {"rate": 1}}, X, ParameterError, "inputs: the model has no input 'rate'. Did you mean 'state'",
    ),
    "no such axis": (
        {"inputs": {"sr": 1}, "batch_axis": {"state": 3}}, X, ParameterError,
        "batch_axis={'state': 3} is not an axis of the input, which has 3 axes",
    ),
    "an axis of what": (
        {"inputs": {"sr": 1}, "batch_axis": {"states": 1}}, X, ParameterError,
        "batch_axis: the model has no input 'states'. Did you mean 'state'",
    ),
    "no axis": (
        {"inputs": {"sr": 1}, "batch_axis": {"state": None}}, X, ParameterError,
        r"batch_axis=\{'state': None\} says that the input has no axis of rows, so it needs a value for all rows: inputs",
    ),
    "a value of another shape": (
        {"inputs": {"sr": 1, "state": np.zeros((2, H))}}, X, ParameterError,
        r"inputs\['state'\] must have the shape \(2, batch, 3\) of the model input, got \(2, 3\). The batch axis has length 1",
    ),
    "no whole number": (
        {"inputs": {"sr": 8000.5, "state": 0}}, X, ParameterError, r"inputs\['sr'\] must have the dtype int64 of the model input, got 8000.5",
    ),
    "a text": (
        {"inputs": {"sr": "fast", "state": 0}}, X, ParameterError, r"inputs\['sr'\] must have the dtype int64 of the model input, got 'fast'",
    ),
    "nothing left": (
        {"inputs": {"sr": 1, "state": 0, "x": 0}}, X, ParameterError, "inputs= fixes every input of the model",
    ),
    "rows on the first axis": (
        {"inputs": {"sr": 1}}, {"x": X, "state": np.moveaxis(STATES, 1, 0)}, DataError,
        "x has 24 on axis 0, state has 2 on axis 1. .* If the model takes the rows of an input on another axis, set batch_axis",
    ),
    "too few axes": (
        {"inputs": {"sr": 1}}, {"x": X, "state": np.zeros(N)}, DataError,
        r"X\['state'\] must have its rows on axis 1, but has only 1 axes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("params, rows, error, words", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(params, rows, error, words):
    with pytest.raises(error, match=words):
        tuned(**params).fit(rows, y)


def test_a_default_that_the_script_exporter_made_an_input_is_answered_with_the_other_exporter():
    of_torch = onnx.ModelProto.FromString(SPEECH.SerializeToString())
    of_torch.producer_name = "pytorch"
    with pytest.raises(ModelError, match=r"inputs={'sr': \.\.\.}\. If forward has a default .* use dynamo=True"):
        OrtGradientRegressor(of_torch, output="y").fit({"x": X, "state": STATES}, y)


def test_a_fixed_input_in_the_rows_has_no_effect():
    rows = {"x": X, "state": STATES, "sr": 8000}
    with pytest.warns(UserWarning, match="The model ignores sr of X, because the parameter inputs sets the same value"):
        found = tuned(inputs={"sr": 16000}).fit(rows, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(found.predict(rows), EXPECTED.predict(rows))


#: How a row depends on the others, and nodes.
MIXED = {
    "their number": "shape = Shape<end = 1>(a) n = Cast<to = 1>(shape) h = Mul(a, n)",
    "rows before it": "zero = Constant<value_int = 0>() h = CumSum(a, zero)",
    "a branch by their number": """shape = Shape<end = 1>(a) one = Constant<value_ints = [1]>() c = Greater(shape, one)
        h = If(c) <then_branch = b () => (float[n, 3] p) { p = Add(a, a) },
                   else_branch = b () => (float[n, 3] q) { q = Identity(a) }>""",
    "all rows, a little": "s = Softmax<axis = 0>(a) h = Add(a, s)",
    "rows after it": "zero = Constant<value_int = 0>() h = CumSum<reverse = 1>(a, zero)",
    "the neighbor in a graph": f"i = Constant<value_ints = [{len(X) - 1}]>() g = Gather(a, i) h = Add(a, g)",
    "not": "h = Tanh(a)",
}


@pytest.mark.parametrize("kind", MIXED)
def test_rows_that_depend_on_one_another(kind):
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 3] a) => (float[n, 1] y) <float[3, 1] W = {{1, 1, 1}}> {{ {MIXED[kind]} y = MatMul(h, W) }}"""
    softmax = "The Softmax that computes 's' is over axis 0" if "Softmax" in MIXED[kind] else "If the rows"
    words = f"output 'y' of a row depends on the other rows of its batch or on .* {softmax}.* another axis, set batch_axis={{name"
    with pytest.raises(ModelError, match=words) if kind != "not" else nullcontext():
        tuned(onnx.parser.parse_model(text), max_iter=1).fit(1 + X[:, :3] ** 2, y)


def test_statistics_of_the_batch_have_the_mode_as_remedy():
    onx = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] a) => (float[n, 1] y)
    <float[3, 1] W = {1, 1, 1}, float[3] s = {1, 2, 1}, float[3] z = {0, 1, 0}, float[3] m = {1, 0, 0},
     float[3] v = {2, 1, 1}> { h, _, __ = BatchNormalization<training_mode = 1>(a, s, z, m, v) y = MatMul(h, W) }""")
    with pytest.raises(ModelError, match=r"BatchNormalization is in training mode\. Export .*, after model.eval\(\)"):
        tuned(onx, max_iter=1).fit(1 + X[:, :3] ** 2, y)


@pytest.mark.parametrize("place", range(8))
def test_one_row_that_alone_has_a_result(place):
    """Without the largest row, another one has it."""
    onx = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] a) => (float[n, 1] y)
    <float[3, 1] W = {1, 1, 1}> { m = ReduceMax(a) c = Equal(a, m) f = Cast<to = 1>(c) h = Mul(a, f) y = MatMul(h, W) }""")
    rows = 1 + X[:8, :3] ** 2
    rows[place, 0] = 100
    with pytest.raises(ModelError, match="of a row depends on the other rows of its batch"):
        tuned(onx, max_iter=1).fit(rows, y[:8])


def test_rows_that_are_compared_with_each_other():
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] a) => (float[n, m] z)
    <float[3, 2] W = {1, 2, 3, 4, 5, 6}> { e = MatMul(a, W) f = Transpose(e) z = MatMul(e, f) }"""
    model, a, classes = onnx.parser.parse_model(text), X[:6, :3], np.arange(6)
    with pytest.raises(ModelError, match=r"column for each row .* \(6, 6\) for 6 rows, .* set head='new' and name "):
        OrtGradientClassifier(model, max_iter=1).fit(a, classes)
    fitted = OrtGradientClassifier(model, head="new", features="e", max_iter=1, random_state=0).fit(a, classes)
    assert fitted.predict_proba(a).shape == (6, 6)


@pytest.mark.parametrize("draw", ["r = RandomNormalLike <scale = 0.3> (a)", "p = Sigmoid(a) r = Bernoulli(p)"])
def test_random_outputs_are_refused_with_their_operator(draw):
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] a) => (float[n, 1] y)
    <float[3, 1] W = {{1, 1, 1}}> {{ {draw} h = Add(a, r) y = MatMul(h, W) }}"""
    with pytest.raises(ModelError, match=r"(RandomNormalLike|Bernoulli) \(node .*\) draws other numbers in each run"):
        tuned(onnx.parser.parse_model(text), max_iter=1).fit(X[:, :3], y)


@pytest.mark.parametrize(
    "choice",
    [
        "w = MatMul(x, W) y = If(c) <then_branch = b () => (float[n, 1] p) { p = Neg(w) }, "
        "else_branch = b () => (float[n, 1] q) { q = Identity(w) }>",
        "w = MatMul(x, W) m = Neg(w) y = Where(c, m, w)",
    ],
    ids=["If", "Where"],
)
def test_rows_are_predicted_together_where_their_number_may_choose(choice):
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] x) => (float[n, 1] y)
    <float[3, 1] W = {{1, 1, 1}}> {{ s = Shape<end = 1>(x) k = Constant<value_ints = [60]>() c = Greater(s, k) {choice} }}"""
    model = onnx.parser.parse_model(text)
    found = tuned(model, learning_rate=1e-12, max_iter=1).fit(X[:40, :3], y[:40])
    for n in (57, 61, 9000):  # filled to 64 rows, or cut into pieces, they would choose otherwise
        rows = np.resize(X[:, :3], (n, 3))
        np.testing.assert_allclose(found.predict(rows), run(model, x=rows), rtol=1e-5)


def test_weights_inside_a_branch_that_rows_choose_are_trained_as_without_it():
    branch = (
        "g () => (float[n, 1] {0}) {{ W{0} = Constant<value = float[4, 1] {{1, 2, 3, 4}}>() {0} = MatMul(x, W{0}) }}"
    )
    head = """<ir_version: 8, opset_import: ["" : 16]> g (float[n, 4] x) => (float[n, 1] y)"""
    model = onnx.parser.parse_model(
        f"""{head} {{
            highest = ReduceMax<keepdims = 0>(x)
            fast = Cast<to = 9>(highest)
            y = If(fast) <then_branch = {branch.format("a")}, else_branch = {branch.format("b")}>
        }}"""
    )
    plain = onnx.parser.parse_model(f"{head} {{ W = Constant<value = float[4, 1] {{1, 2, 3, 4}}>() y = MatMul(x, W) }}")
    found, wanted = tuned(model).fit(X, y).weights_, tuned(plain).fit(X, y).weights_["W"]
    np.testing.assert_array_equal(found["Wa"], wanted)
    assert not np.array_equal(wanted[:, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(found["Wb"][:, 0], [1, 2, 3, 4])


# ------------------------------------------------------------ against PyTorch


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("states", ["rows", "fixed"])
def test_ten_steps_of_a_recurrent_network_as_in_pytorch(states, dynamo, tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)

    class Net(torch.nn.Module):  # the time on the first axis
        def __init__(self):
            super().__init__()
            self.recurrent = torch.nn.LSTM(4, H, 2)
            self.last = torch.nn.Linear(H, 1)

        def forward(self, x, h, c):
            return self.last(self.recurrent(x, (h, c))[1][0][1])

    net = Net()
    x = rng.normal(size=(5, N, 4)).astype(np.float32)
    h, c = (np.zeros((2, N, H), np.float32) if states == "fixed" else rng.normal(size=(2, N, H)).astype(np.float32)
            for _ in "hc")  # fmt: skip
    tensors = [torch.tensor(array) for array in (x, h, c)]
    axes = {"x": {1: "rows"}, "h": {1: "rows"}, "c": {1: "rows"}}
    how = dict(dynamo=False, dynamic_axes={**axes, "y": {0: "rows"}}, opset_version=17)
    if dynamo:
        rows = torch.export.Dim("rows")
        how = dict(dynamo=True, dynamic_shapes=({1: rows},) * 3, verbose=False, external_data=False)
    torch.onnx.export(net, tuple(tensors), tmp_path / "net.onnx", input_names=[*axes], output_names=["y"], **how)
    params = dict(solver="sgd", learning_rate=0.1, batch_size=N, max_iter=10, shuffle=False, tol=0)
    if states == "rows":
        given, more = {"x": x, "h": h, "c": c}, {}
    else:
        given, more = np.moveaxis(x, 1, 0), {"inputs": {"h": 0, "c": np.zeros((2, 1, H))}}
    model = OrtGradientRegressor(tmp_path / "net.onnx", **params, **more).fit(given, y)

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        ((net(*tensors)[:, 0] - torch.tensor(y)) ** 2).mean().backward()
        optimizer.step()
    np.testing.assert_allclose(model.predict(given), net(*tensors)[:, 0].detach(), rtol=1e-4, atol=1e-6)
