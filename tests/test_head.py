"""A new last layer on the body of a model."""

import re
import warnings

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPRegressor

from onnxtrain import LoRA, OrtGradientClassifier, OrtGradientRegressor, with_new_head
from onnxtrain.errors import DataError, ModelError, ParameterError
from onnxtrain.runtime.session import run

NETWORK = """
    <ir_version: 8, opset_import: ["" : {opset}]>
    network (float[N,4] X) => ({outputs})
    <float[4,3] W = {{1,2,3,4,5,6,7,8,9,10,11,12}}, float[3] b = {{1,2,3}}, {weights}>
    {{ h = MatMul(X, W)  hb = Add(h, b)  r = Relu(hb)  {nodes} }}"""

#: Weights, nodes after the hidden layer `r` (N, 3), outputs; the shape of the new weights, what follows them is kept.
LAYERS = {
    "MatMul, Add": ("float[3,2] V", "s = MatMul(r, V)  Y = Add(s, c)", (3, 5), False),
    "Add from the left": ("float[3,2] V", "s = MatMul(r, V)  Y = Add(c, s)", (3, 5), False),
    "without an intercept": ("float[3,2] V", "Y = MatMul(r, V)", (3, 5), False),
    "Gemm": ("float[3,2] V", "Y = Gemm(r, V, c)", (3, 5), False),
    "Gemm that leaves out its intercept": ("float[3,2] V", "Y = Gemm <beta = 0.0> (r, V, c)", (3, 5), False),
    "Gemm, turned": ("float[2,3] V", "Y = Gemm <transB = 1> (r, V)", (5, 3), False),
    "weights turned by a node": ("float[2,3] V", "t = Transpose(V)  Y = MatMul(r, t)", (3, 5), False),
    "Softmax": ("float[3,2] V", "s = Gemm(r, V, c)  Y = Softmax <axis = 1> (s)", (3, 5), True),
    "temperature": ("float[3,2] V", "s = Gemm(r, V, c)  d = Div(s, two)  Y = Softmax <axis = 1> (d)", (3, 5), True),
    "scales of the outputs": ("float[3,2] V", "s = Gemm(r, V, c)  Y = Mul(s, c)", (3, 5), False),
    "Reshape to the outputs": ("float[3,2] V", "s = Gemm(r, V, c)  Y = Reshape(s, ends)", (3, 5), False),
}


def model(weights, nodes, outputs="float[N,2] Y", opset=17):
    constants = "float[2] c = {1, 2}, float two = {2}, int64[2] ends = {-1, 2}"
    numbers = ",".join(map(str, range(6)))
    return onnx.parser.parse_model(
        NETWORK.format(weights=f"{weights} = {{{numbers}}}, {constants}", nodes=nodes, outputs=outputs, opset=opset)
    )


def initializers(onx):
    return {w.name: onnx.numpy_helper.to_array(w) for w in onx.graph.initializer}


def hidden(X, values):
    return np.maximum(X @ values["W"] + values["b"], 0)


@pytest.mark.parametrize("case", LAYERS)
def test_the_last_layer_is_new_and_the_body_is_kept(case):
    weights, nodes, shape, is_softmax = LAYERS[case]
    body = model(weights, nodes)
    changed = with_new_head(body, 5, random_state=0)
    before, after = initializers(body), initializers(changed)
    assert after["head.weight"].shape == shape
    assert np.abs(after["head.weight"]).max() <= np.sqrt(6 / 8)
    assert not after["head.bias"].any()
    assert all(a.name != "beta" for node in changed.graph.node for a in node.attribute)
    assert {"W", "b"} == after.keys() & {"W", "b"}
    assert all(np.array_equal(after[name], before[name]) for name in ("W", "b"))
    assert [o.version for o in changed.opset_import] == [17]
    assert changed.ir_version == 8
    assert [(d.dim_param, d.dim_value) for d in changed.graph.output[0].type.tensor_type.shape.dim][1] == ("", 5)
    X = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    weight = after["head.weight"] if shape == (3, 5) else after["head.weight"].T
    expected = hidden(X, after) @ weight
    if case == "temperature":
        expected /= 2
    if is_softmax:
        expected = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    (found,) = run(changed, {"X": X})
    np.testing.assert_allclose(found, expected, rtol=1e-5)


#: Nodes after the scores `p` (N, 1, 5) of a convolution; the shape of the output with three new classes.
BEHIND = {
    "squeezes the outputs": ("Y = Squeeze(p, one)", "Y[N,5]", (7, 3, 5)),
    "squeezes, averages, unsqueezes": (
        "q = Squeeze(p, one)  r = ReduceMean <axes = [1]> (q)  Y = Unsqueeze(r, one)",
        "Y[N,1,1]",
        (7, 3, 5),
    ),
    "averages over the outputs": ("Y = ReduceMean <axes = [1], keepdims = 0> (p)", "Y[N,5]", (7, 3, 5)),
    "averages over positions": ("Y = ReduceMean <axes = [-1], keepdims = 0> (p)", "Y[N,1]", (7, 3)),
    "selects an output": ("Y = Gather <axis = 1> (p, zero)", "Y[N,5]", (7, 3, 5)),
    "selects a position": ("t = Transpose <perm = [0,2,1]> (p)  Y = Gather <axis = 1> (t, zero)", "Y[N,1]", (7, 3)),
    "slices the outputs": ("Y = Slice(p, zeros, one, one)", "Y[N,1,5]", (7, 3, 5)),
    "slices positions, along a reshaped axis": (
        "a = Reshape(minus, one)  Y = Slice(p, zeros, one, a)",
        "Y[N,1,1]",
        (7, 3, 1),
    ),
    "pools positions": ("q = GlobalAveragePool(p)  Y = Flatten(q)", "Y[N,1]", (7, 3)),
    "pools the outputs": ("t = Transpose <perm = [0,2,1]> (p)  Y = GlobalAveragePool(t)", "Y[N,5,1]", (7, 5, 3)),
    "joins all axes": ("Y = Reshape(p, minus)", "Y[M]", (7, 3, 5)),
    "joins the outputs and positions": ("Y = Flatten(p)", "Y[N,5]", (7, 3, 5)),
    "unsqueezes, averages": (
        "q = Unsqueeze(p, one)  Y = ReduceMean <axes = [3], keepdims = 0> (q)",
        "Y[N,1,1]",
        (7, 1, 3),
    ),
    "selects positions by row": (
        "t = Transpose <perm = [0,2,1]> (p)  Y = GatherND <batch_dims = 1> (t, places)",
        "Y[7,1]",
        (7, 3),
    ),
    "resizes": ('Y = Resize <mode = "nearest"> (p, , , sizes)', "Y[7,1,10]", (7, 3, 10)),
}


@pytest.mark.parametrize("case", BEHIND)
def test_nodes_behind_the_layer_are_kept_up_to_one_that_acts_along_the_outputs(case):
    nodes, output, shape = BEHIND[case]
    body = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> network (float[N,4,5] X) => (float{output[1:]} Y)
        <float[1,4,1] V = {{1, 2, 3, 4}}, int64 zero = {{0}}, int64[1] zeros = {{0}}, int64[1] one = {{1}}, int64[1] minus = {{-1}},
         int64[3] sizes = {{7, 1, 10}}, int64[7,1] places = {{0, 1, 2, 3, 4, 0, 1}}>
        {{ s = Conv(X, V)  p = Sigmoid(s)  {nodes} }}"""
    )
    X = np.random.default_rng(0).normal(size=(7, 4, 5)).astype(np.float32)
    assert run(with_new_head(body, 3, random_state=0), {"X": X})[0].shape == shape
    assert run(with_new_head(body, 1, random_state=0), {"X": X})[0].shape == run(body, {"X": X})[0].shape


#: Nodes after the scores `s` (N, 2, h, w) of a convolution; the shape of the output with three new classes.
IMAGES = {
    "joins positions": ("i = Constant <value_ints = [0, 2, -1]> ()  Y = Reshape(s, i)", (7, 3, 4, 4)),
    "joins all": ("Y = Flatten(s)", (7, 3, 4, 4)),
    "resizes by a factor": ('Y = Resize <mode = "nearest"> (s, , twice)', (7, 3, 8, 8)),
}


@pytest.mark.parametrize("case", IMAGES)
def test_nodes_behind_scores_of_open_lengths(case):
    nodes, shape = IMAGES[case]
    body = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> network (float[N,1,h,w] X) => (float Y)
        <float[2,1,1,1] V = {{1, 2}}, float[4] twice = {{1, 1, 2, 2}}> {{ s = Conv(X, V)  {nodes} }}"""
    )
    body.graph.output[0].type.tensor_type.ClearField("shape")
    assert run(with_new_head(body, 3), {"X": np.ones((7, 1, 4, 4), np.float32)})[0].shape == shape


def test_shifts_by_position_are_left_out_with_the_former_layer():
    body = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> network (float[N,2,1] X) => (float[N,2,2] Y)
        <float[1,2] V = {1, 2}, float[2,2] table = {1, 2, 3, 4}> { s = MatMul(X, V)  Y = Add(s, table) }"""
    )
    assert run(with_new_head(body, 3), {"X": np.ones((7, 2, 1), np.float32)})[0].shape == (7, 2, 3)


@pytest.mark.parametrize("nodes", ["Y = ReduceMean <axes = [1]> (s)", "Y = Gather <axis = 1> (s, zero)"])
@pytest.mark.parametrize("n_outputs", [2, 5])
def test_outputs_are_not_joined(nodes, n_outputs):
    body = model("int64[1] zero = {0}, float[3,2] V", f"s = MatMul(r, V)  {nodes}", "float[N,1] Y")
    changed = with_new_head(body, n_outputs)
    assert run(changed, {"X": np.ones((7, 4), np.float32)})[0].shape == (7, n_outputs)


#: Nodes that make a value `f` of the rows with other axes; its mean over all but the features.
FEATURES = {
    "(n, p)": ("f = Identity(r)", lambda r: r),
    "(n, t, p)": ("i = Constant <value_ints = [1]> ()  u = Unsqueeze(r, i)  f = Concat <axis = 1> (u, u)", lambda r: r),
    "(n, p, t), of a pooling": (
        "i = Constant <value_ints = [2]> ()  u = Unsqueeze(r, i)  q = Concat <axis = 2> (u, u)  "
        "f = AveragePool <kernel_shape = [1]> (q)",
        lambda r: r,
    ),
    "(n, t, p) of an operator on (n, p, t), with t = p": (
        "i = Constant <value_ints = [2]> ()  u = Unsqueeze(r, i)  q = Concat <axis = 2> (u, u, u)  "
        "a = AveragePool <kernel_shape = [1]> (q)  t = Relu(a)  f = Transpose <perm = [0, 2, 1]> (t)",
        lambda r: r,
    ),
    "(n, p, h, w)": (
        "i = Constant <value_ints = [2, 3]> ()  u = Unsqueeze(r, i)  f = Concat <axis = 3> (u, u)",
        lambda r: r,
    ),
}


@pytest.mark.parametrize("opset", [13, 17, 18])
@pytest.mark.parametrize("case", FEATURES)
def test_a_value_of_the_model_becomes_the_features(case, opset):
    nodes, pooled = FEATURES[case]
    body = model("float[3,2] V", f"{nodes}  y = ReduceSum(f)  z = MatMul(r, V)  Y = Add(y, z)", opset=opset)
    changed = with_new_head(body, 4, features="f", random_state=0)
    assert [y.name for y in changed.graph.output] == ["head"]
    after = initializers(changed)
    assert "V" not in after
    X = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    np.testing.assert_allclose(run(changed, {"X": X})[0], pooled(hidden(X, after)) @ after["head.weight"], rtol=1e-5)


#: Models without a last layer; what the error says.
REFUSED = {
    "two layers side by side": (
        "s = MatMul(r, V)  t = MatMul(hb, V)  Y = Add(s, t)",
        "no last linear layer.*Set features",
    ),
    "a connection around it": (
        "s = MatMul(r, V)  m = ReduceMean <axes = [1]> (X)  Y = Add(s, m)",
        "no last linear layer.*Set features",
    ),
    "a layer of another kind behind it": (
        'Y = Einsum <equation = "nk,kq->nq"> (r, V)',
        "through. Einsum .* has weights of another form. Set features",
    ),
    "a normalized weight behind it": (
        "q = ReduceL2 <axes = [0]> (V)  u = Div(V, q)  Y = MatMul(r, u)",
        "through. MatMul .* has weights of another form. Set features",
    ),
    "distances behind it": (
        "t = Transpose(V)  i = Constant <value_ints = [1]> ()  f = Unsqueeze(r, i)  d = Sub(f, t)  e = Mul(d, d) "
        "Y = ReduceMean <axes = [2], keepdims = 0> (e)",
        "through. Sub .* has weights of another form. Set features",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_layer_that_is_not_the_last_is_refused(case):
    nodes, message = REFUSED[case]
    with pytest.raises(ModelError, match=message):
        with_new_head(model("float[3,2] V", nodes), 5)
    X, y = np.ones((9, 4)), np.arange(18.0).reshape(9, 2)
    with pytest.raises(ModelError, match="no last linear layer.*Name the weights to train"):
        OrtGradientRegressor(model("float[3,2] V", nodes), weights_to_train="head").fit(X, y)


@pytest.mark.parametrize("nodes", ["hb = Identity(hb)", "a = Neg(k)  k = Neg(a)"])
def test_a_cycle_in_a_branch_is_refused(nodes):
    branches = f"""s = MatMul(hb, V)  Y = If (go) <then_branch = t () => (float[N,2] d) {{ {nodes}  d = Identity(s) }},
        else_branch = e () => (float[N,2] f) {{ f = Neg(s) }}>"""
    with pytest.raises(ModelError, match="contains a cycle"):
        with_new_head(model("bool go = {1}, float[3,2] V", branches), 5)


#: Arguments; class and words of the error.
WRONG = {
    "no outputs": ({"n_outputs": 0}, ParameterError, "n_outputs must be an integer >= 1, got 0"),
    "an unknown value": ({"n_outputs": 2, "features": "hbb"}, ModelError, "no value 'hbb'. Did you mean 'hb'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    arguments, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        with_new_head(model("float[3,2] V", "Y = MatMul(r, V)"), **arguments)


@pytest.mark.parametrize("ir_version", [3, 8])
@pytest.mark.parametrize("features", [None, "r"])
def test_weights_may_be_listed_among_the_inputs(ir_version, features):
    """Exporters did so up to IR version 3, some also later."""
    body = model("float[3,2] V", "Y = Gemm(r, V, c)")
    body.graph.input.extend(
        onnx.helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in body.graph.initializer
    )
    body.ir_version = ir_version
    changed = with_new_head(body, 5, features=features, random_state=0)
    onnx.checker.check_model(changed)
    assert [i.name for i in changed.graph.input] == ["X"]
    values = initializers(changed)
    X = np.ones((2, 4), np.float32)
    expected = hidden(X, values) @ values["head.weight"] + values["head.bias"]
    np.testing.assert_allclose(run(changed, {"X": X})[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    "name, shape, nodes", [("two", [], "s = Gemm(r, V, c)  Y = Div(s, two)"), ("W", [4, 3], "Y = Gemm(r, V, c)")]
)
def test_a_default_of_an_input_stays(name, shape, nodes):
    body = model("float[3,2] V", nodes)
    body.graph.input.append(onnx.helper.make_tensor_value_info(name, 1, shape))
    assert [i.name for i in with_new_head(body, 5).graph.input] == ["X", name]


def test_other_outputs_stay_unless_they_depend_on_the_layer():
    nodes = "s = MatMul(r, V)  Y = Softmax(s)  L = ArgMax <axis = 1, keepdims = 0> (s)  E = Identity(r)"
    body = model("float[3,2] V", nodes, "int64[N] L, float[N,2] Y, float[N,3] E")
    changed = with_new_head(body, 5, output="Y")
    assert [y.name for y in changed.graph.output] == ["E", "Y"]


def test_the_model_is_not_changed():
    body = model("float[3,2] V", "Y = MatMul(r, V)")
    before = body.SerializeToString(deterministic=True)
    with_new_head(body, 5)
    assert body.SerializeToString(deterministic=True) == before


# --------------------------------------------------------------- estimators


def images(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    return X, X @ rng.normal(size=(4, 3)).astype(np.float32)


BODY = model("float[3,2] V", "s = Gemm(r, V, c)  Y = Softmax <axis = 1> (s)")


def steps_of_gradient_descent(onx, X, p, rate, n_steps):
    """Return the weights of the last layer after steps on the log loss of one-hot targets `p`, all rows at once."""
    values = {name: w.astype(float) for name, w in initializers(onx).items()}
    h, w, b = hidden(X.astype(float), values), values["head.weight"], values["head.bias"]
    for _ in range(n_steps):
        s = h @ w + b
        e = np.exp(s - s.max(axis=1, keepdims=True))
        ds = (e / e.sum(axis=1, keepdims=True) - p) / len(X)
        w, b = w - rate * h.T @ ds, b - rate * ds.sum(axis=0)
    return w, b


def test_a_classifier_of_other_classes_is_trained():
    X, scores = images()
    y = np.array(["a", "b", "c"])[scores.argmax(axis=1)]
    settings = {"solver": "sgd", "learning_rate": 0.01, "batch_size": 60, "shuffle": False, "random_state": 3}
    given = OrtGradientClassifier(BODY, head="new", weights_to_train="head", max_iter=10, tol=0, **settings)
    tuned = given.fit(X, y)
    assert sorted(tuned.weights_) == ["head.bias", "head.weight"]
    assert tuned.classes_.tolist() == ["a", "b", "c"]
    start = OrtGradientClassifier(BODY, head="new", max_iter=0, **settings).fit(X, y).get_trained_onnx()
    w, b = steps_of_gradient_descent(start, X, np.eye(3)[scores.argmax(axis=1)], 0.01, 10)
    np.testing.assert_allclose(tuned.weights_["head.weight"], w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tuned.weights_["head.bias"], b, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(run(tuned.get_trained_onnx(), {"X": X})[0], tuned.predict_proba(X), rtol=1e-5)


def test_all_weights_may_be_trained_with_it():
    X, scores = images()
    tuned = OrtGradientClassifier(BODY, head="new", max_iter=30, learning_rate=0.05, random_state=0)
    tuned.fit(X, scores.argmax(axis=1))
    assert {"W", "b", "head.weight", "head.bias"} == set(tuned.weights_)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0] / 2


@pytest.mark.parametrize("n_targets", [1, 3])
def test_a_regressor_on_features(n_targets):
    X, scores = images()
    y = scores[:, 0] if n_targets == 1 else scores
    settings = {"solver": "lbfgs", "dtype": "float64", "tol": 1e-10, "max_iter": 1000}
    tuned = OrtGradientRegressor(BODY, head="new", features="hb", weights_to_train="head", **settings).fit(X, y)
    assert tuned.predict(X).shape == y.shape
    values = initializers(BODY)
    h = (X @ values["W"] + values["b"]).astype(float)
    assert abs(tuned.score(X, y) - LinearRegression().fit(h, y).score(h, y)) < 5e-3  # nearly collinear


def test_several_labels():
    X, scores = images()
    tuned = OrtGradientClassifier(BODY, head="new", features="hb", max_iter=100, learning_rate=0.05, random_state=0)
    y = (scores > 0).astype(int)
    assert tuned.fit(X, y).predict_proba(X).shape == (60, 3)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0] / 2


def test_the_head_of_a_model_as_it_is():
    X, scores = images()
    y = (scores[:, 0] > 0).astype(int)
    tuned = OrtGradientClassifier(BODY, weights_to_train="head", max_iter=2).fit(X, y)
    assert set(tuned.weights_) == {"V", "c"}
    mlp = MLPRegressor(hidden_layer_sizes=(5,), tol=0.5, random_state=0).fit(X, scores[:, 0])
    of_mlp = OrtGradientRegressor(mlp, weights_to_train="head", max_iter=2).fit(X, scores[:, 0])
    np.testing.assert_array_equal(of_mlp.to_sklearn().coefs_[0], mlp.coefs_[0])
    assert not np.array_equal(of_mlp.to_sklearn().coefs_[1], mlp.coefs_[1])


def test_the_number_of_classes_names_the_parameter():
    X, scores = images()
    with pytest.raises(DataError, match="has 2 classes, but y has 3: a, b, c. Set head='new'"):
        OrtGradientClassifier(BODY).fit(X, np.array(["a", "b", "c"])[scores.argmax(axis=1)])
    with pytest.raises(ParameterError, match="head='new' replaces the last layer of an ONNX model, but got Ridge"):
        OrtGradientRegressor(Ridge(), head="new").fit(X, scores[:, 0])


def test_classes_to_come_have_an_output():
    X, scores = images()
    y = scores.argmax(axis=1)
    settings = {"head": "new", "max_iter": 1, "random_state": 0}
    for kinds in (np.array([0, 1, 2]), np.array(["a", "b", "c"])):
        tuned = OrtGradientClassifier(BODY, **settings)
        for rows in (y < 1, y < 2, y < 3):  # one class, two, three
            tuned.partial_fit(X[rows], kinds[y[rows]], classes=kinds)
            assert tuned.classes_.tolist() == kinds.tolist()
        assert tuned.weights_["head.weight"].shape == (3, 3)
    wide = OrtGradientClassifier(BODY, **settings).partial_fit(X, y, classes=range(5))
    assert wide.predict_proba(X).shape == (60, 5)


#: Labels, how they are given; the words of the error.
LABELS = {
    "one class": (lambda m, X: m.fit(X, np.ones(60, int)), "y has one class, 1. A classifier needs at least two"),
    "one text": (lambda m, X: m.fit(X, np.full(60, "b")), "y has one class, 'b'. .* classes="),
    "one class to come": (lambda m, X: m.partial_fit(X, np.ones(60, int), classes=[1]), "y has one class, 1. "),
    "others than said": (
        lambda m, X: m.partial_fit(X, np.arange(60) % 3, classes=[0, 1]),
        r"classes must list all labels of y, got \[0, 1\], which lacks 2\.",
    ),
    "none that the model has": (
        lambda m, X: m.set_params(head="keep").fit(X, np.full(60, 2)),
        "model has 2 classes, but y has 1: 2. Without names .* A classifier needs at least two .* classes=",
    ),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_that_make_no_classes(case):
    fit, message = LABELS[case]
    with pytest.raises(DataError, match=message):
        fit(OrtGradientClassifier(BODY, head="new", max_iter=1), images()[0])


@pytest.mark.parametrize("weights", ["head", None])
def test_a_head_on_the_input_is_a_linear_model(weights):
    (x,) = with_new_head(BODY, 3, features="X").graph.input
    assert x == BODY.graph.input[0]  # its shape as well
    X, scores = images()
    settings = {"solver": "lbfgs", "dtype": "float64", "tol": 1e-10, "max_iter": 1000}
    tuned = OrtGradientRegressor(BODY, head="new", features="X", weights_to_train=weights, **settings)
    tuned.fit(X, scores + 1)
    assert set(tuned.weights_) == {"head.weight", "head.bias"}
    expected = LinearRegression().fit(X.astype(float), scores + 1)
    np.testing.assert_allclose(tuned.weights_["head.weight"], expected.coef_.T, atol=1e-5)
    np.testing.assert_allclose(tuned.predict(X), scores + 1, atol=1e-5)


def test_all_values_that_an_error_proposes_work():
    X, scores = images()
    others = "i = Cast <to = 7> (h)  n = Shape(X)  g = Identity(W)  m = ReduceSum <keepdims = 0> (h)"
    body = model("float[3,2] V", f"s = MatMul(r, V)  Y = Softmax(s)  {others}")
    with pytest.raises(ModelError, match=r"no value 'relu'. Known: X, Y, h, hb, r, s\."):
        with_new_head(body, 3, features="relu")
    for name in ("X", "Y", "h", "hb", "r", "s"):
        tuned = OrtGradientClassifier(body, head="new", features=name, weights_to_train="head", max_iter=1)
        assert set(tuned.fit(X, scores.argmax(axis=1)).weights_) == {"head.weight", "head.bias"}


@pytest.mark.parametrize("estimator", [OrtGradientClassifier, OrtGradientRegressor])
def test_features_are_those_of_a_new_head(estimator):
    with pytest.raises(ParameterError, match="features='hb' names .*Set head='new', or features=None"):
        estimator(BODY, features="hb").fit(images()[0], np.arange(60) % 2)


def test_a_new_head_gives_scores_whatever_its_weights_give_on_the_rows():
    """Behind a Softmax a product may be probabilities: of drawn weights above zero all outputs are within [0, 1]."""
    softmax = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> '
        "g (float[N,2] X) => (float[N,2] Y) <float[2,2] W = {1, 0, 0, 1}> { s = MatMul(X, W)  Y = Softmax(s) }"
    )
    X, y = np.random.default_rng(0).random((40, 2), np.float32) / 10, np.arange(40) % 2
    kinds = {
        OrtGradientClassifier(softmax, head="new", features="Y", max_iter=1, random_state=seed).fit(X, y).output_is_
        for seed in range(25)
    }
    assert kinds == {"scores"}


def test_a_search_over_the_seed_of_the_head():
    X, scores = images()
    search = GridSearchCV(
        OrtGradientClassifier(BODY, head="new", weights_to_train="head", max_iter=3), {"random_state": [0, 1]}, cv=2
    )
    assert np.isfinite(search.fit(X, scores.argmax(axis=1)).cv_results_["mean_test_score"]).all()


# ------------------------------------------------------------------- labels

KINDS = {
    "texts": (np.array(["a", "b", "c"]), TensorProto.STRING),
    "objects": (np.array(["a", "b", "c"], object), TensorProto.STRING),
    "integers": (np.array([3, 5, 9]), TensorProto.INT64),
    "whole floats": (np.array([0.0, 1.0, 2.0]), TensorProto.INT64),
}


def check_labels(model, X, kind):
    """The model with labels gives, in any opset, the classes and probabilities of the estimator."""
    onx = model.get_trained_onnx(labels=True)
    onnx.checker.check_model(onx, full_check=True)
    used = {x for node in onx.graph.node for x in node.input}
    own = {w.name for w in model.get_trained_onnx().graph.initializer}
    assert {w.name for w in onx.graph.initializer} - own <= used, "onnxruntime warns of those that are not"
    assert [o.name for o in onx.graph.output] == ["label", "probabilities"]
    assert onx.graph.output[0].type.tensor_type.elem_type == kind
    label, found = run(onx, {"X": X})
    np.testing.assert_array_equal(label.astype(model.classes_.dtype), model.predict(X))
    np.testing.assert_allclose(found, model.predict_proba(X), rtol=1e-5, atol=1e-7)
    assert onx.opset_import[0].version == model.get_trained_onnx().opset_import[0].version


@pytest.mark.parametrize("classes, kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("opset", [11, 17])
def test_a_new_head_with_labels(classes, kind, opset):
    X, scores = images()
    body = model("float[3,2] V", "s = Gemm(r, V, c)  Y = Softmax <axis = 1> (s)", opset=opset)
    tuned = OrtGradientClassifier(body, head="new", max_iter=3, random_state=0).fit(X, classes[scores.argmax(axis=1)])
    check_labels(tuned, X, kind)


#: the last weights, nodes after the hidden layer, the columns of the output
CLASSIFIERS = {
    "scores": ("float[3,2] V", "Y = Gemm(r, V, c)", 2),
    "one score": ("float[3,1] V", "Y = MatMul(r, V)", 1),
    "a Sigmoid": ("float[3,1] V", "s = MatMul(r, V)  Y = Sigmoid(s)", 1),
    "a vector of scores": (
        "float[3,1] V",
        "s = MatMul(r, V)  l = Shape <start = 0, end = 1> (s)  Y = Reshape(s, l)",
        0,
    ),
    "a Sigmoid for each class": ("float[3,2] V", "s = Gemm(r, V, c)  Y = Sigmoid(s)", 2),
    "both probabilities of one score": (
        "float[3,1] V",
        "s = MatMul(r, V)  p = Sigmoid(s)  o = Constant <value_float = 1.0> ()  q = Sub(o, p)  Y = Concat <axis = 1> (q, p)",
        2,
    ),
}


@pytest.mark.parametrize("weights, nodes, n_columns", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_the_labels_of_any_classifier(weights, nodes, n_columns):
    X, scores = images()
    values = f"{weights} = {{{'1, -2, 1' if '3,1' in weights else '0, 1, -2, 3, 4, 5'}}}"
    constants = "float[2] c = {1, 2}"
    outputs = f"float[N,{n_columns}] Y" if n_columns else "float[N] Y"
    onx = onnx.parser.parse_model(
        NETWORK.format(weights=f"{values}, {constants}", nodes=nodes, outputs=outputs, opset=17)
    )
    y = np.array(["no", "yes"])[(scores[:, 0] > 0).astype(int)]
    tuned = OrtGradientClassifier(onx, max_iter=5, random_state=0, learning_rate=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a loss that still falls, or rises
        tuned.fit(X, y)
    check_labels(tuned, X, TensorProto.STRING)


def test_values_of_the_model_that_have_the_names_of_the_outputs():
    X, scores = images()
    nodes = "label = Gemm(r, V, c)  probabilities = Softmax <axis = 1> (label)  Y = Identity(probabilities)"
    tuned = OrtGradientClassifier(model("float[3,2] V", nodes), max_iter=2).fit(X, (scores[:, 0] > 0).astype(int))
    check_labels(tuned, X, TensorProto.INT64)


def test_labels_of_several_labels_and_of_margins():
    X, scores = images()
    y = (scores[:, :2] > 0).astype(int)
    body = model("float[3,2] V", "Y = Gemm(r, V, c)")
    tuned = OrtGradientClassifier(body, max_iter=3).fit(X, y)
    label, found = run(tuned.get_trained_onnx(labels=True), {"X": X})
    np.testing.assert_array_equal(label, tuned.predict(X))
    np.testing.assert_allclose(found, tuned.predict_proba(X), rtol=1e-5)
    hinge = OrtGradientClassifier(body, loss="hinge", max_iter=3).fit(X, y[:, 0])
    onx = hinge.get_trained_onnx(labels=True)
    assert [o.name for o in onx.graph.output] == ["label", "scores"]
    np.testing.assert_array_equal(run(onx, {"X": X})[0], hinge.predict(X))


@pytest.mark.filterwarnings("ignore:y is from")  # the output is a probability
def test_models_that_have_labels_or_cannot_have_them():
    X, scores = images()
    own = OrtGradientClassifier(max_iter=3).fit(X, scores.argmax(axis=1))
    assert own.get_trained_onnx(labels=True) == own.get_trained_onnx()
    with pytest.raises(ParameterError, match="labels=True is only for classifiers"):
        OrtGradientRegressor(BODY, output="Y", max_iter=0).fit(X, scores[:, :2]).get_trained_onnx(labels=True)


def test_nodes_of_the_body_are_byte_for_byte_those_of_the_file():
    """What says nothing stays too: training_mode=0 of PyTorch's exporter, empty domains of onnxruntime's files."""
    nodes = "m = BatchNormalization<training_mode = 0>(r, c3, c3, c3, c3)  t = Tanh(m)  Y = MatMul(t, V)"
    onx = model("float[3,2] V", nodes)
    onx.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "c3"))
    for node in onx.graph.node:
        node.domain = ""
    body = [node.SerializeToString() for node in onx.graph.node[:-1]]
    changed = with_new_head(onx, 5, random_state=0)
    assert [node.SerializeToString() for node in changed.graph.node[: len(body)]] == body
    adapted = OrtGradientClassifier(onx, weights_to_train=LoRA(rank=1, weights="V", merge=False), max_iter=1)
    kept = adapted.fit(np.eye(4), [0, 1, 0, 1]).get_trained_onnx()
    assert [node.SerializeToString() for node in kept.graph.node[: len(body)]] == body


#: A network with one branch for each rate of a fixed input, as Silero's detector of voice has.
BRANCHES = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    network (float[N,4] X, int64 rate) => (float[N,2] Y)
    <float[4,3] W = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3,2] V = {1,2,3,4,5,6}, int64 high = {16000}>
    {
        h = MatMul(X, W)
        is_high = Equal(rate, high)
        Y = If (is_high) <
            then_branch = fast () => (float[N,2] y) { r = Relu(h)  y = MatMul(r, V) },
            else_branch = slow () => (float[N,2] y) { t = Tanh(h)  y = MatMul(t, V) }
        >
    }""")


def test_a_new_head_is_put_into_the_branch_that_a_fixed_input_chooses():
    X, scores = images()
    given = OrtGradientClassifier(BRANCHES, head="new", inputs={"rate": 16000}, max_iter=3, random_state=0)
    trained = given.fit({"X": X}, scores.argmax(axis=1)).get_trained_onnx()
    assert [i.name for i in trained.graph.input] == ["X", "rate"]
    values = initializers(trained)
    expected = np.maximum(X @ values["W"], 0) @ values["head.weight"] + values["head.bias"]
    for feeds in ({"X": X}, {"X": X, "rate": np.array(16000)}):
        np.testing.assert_allclose(run(trained, feeds)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("n_lengths", ["3", "r"], ids=["known rank", "unknown rank"])
def test_features_have_the_axis_in_which_the_next_layer_takes_them(n_lengths):
    onx = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]> network (float[N,4] X, int64[{n_lengths}] lengths) => (float[N,2,k] Y)
        <float[4,12] W = {{1,2,3,4,5,6,7,8,9,10,11,12,1,2,3,4,5,6,7,8,9,10,11,12,1,2,3,4,5,6,7,8,9,10,11,12,1,2,3,4,5,6,
         7,8,9,10,11,12}}, float[2,3,1] V = {{1,2,3,4,5,6}}>
        {{ h = MatMul(X, W)  f = Reshape(h, lengths)  Y = Conv(f, V) }}""")
    X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    changed = with_new_head(onx, 2, features="f", random_state=0)
    values = initializers(changed)
    pooled = (X @ values["W"]).reshape(5, 3, 4).mean(axis=2)
    found = run(changed, {"X": X, "lengths": np.array([5, 3, 4])})[0]
    np.testing.assert_allclose(found, pooled @ values["head.weight"], rtol=1e-5)


TIME_FIRST = """<ir_version: 8, opset_import: ["" : 17]>
    network (float[N,6,4] X) => (float[M,3] Y) <float[1,12,4] W = {{{W}}}, float[1,12,3] R = {{{R}}}>
    {{ x = Transpose <perm = [1,0,2]> (X)  s = Tanh(x)  a, h = LSTM <hidden_size = 3> (s, W, R)
       i = Constant <value_ints = [0]> ()  Y = Squeeze(h, i) }}"""


def recurrent():
    weights = {name: ",".join(f"{i % 5 / 5}" for i in range(size)) for name, size in (("W", 48), ("R", 36))}
    return onnx.parser.parse_model(TIME_FIRST.format(**weights))


def test_features_with_the_rows_on_the_second_axis():
    """The axis has the name of the rows of the input."""
    X = np.random.default_rng(0).normal(size=(5, 6, 4)).astype(np.float32)
    changed = with_new_head(recurrent(), 2, features="s", random_state=0)
    expected = np.tanh(X).mean(axis=1) @ initializers(changed)["head.weight"]
    np.testing.assert_allclose(run(changed, {"X": X})[0], expected, rtol=1e-5, atol=1e-6)


def test_rows_behind_a_reshape_that_onnx_does_not_infer():
    """onnx does not know the lengths that are products; the loaded model does."""
    weights = {"W": np.ones((1, 3, 4), np.float32), "R": np.zeros((1, 3, 3), np.float32)}
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 12]> network (float[N,2,6,2] X) => (float[T,M,3] Y) {
            z = Shape(X)  zero = Constant <value = int64 {0}> ()  one = Constant <value = int64 {1}> ()
            three = Constant <value = int64 {3}> ()  n = Gather(z, zero)  a = Gather(z, one)  b = Gather(z, three)
            p = Mul(a, b)  t = Transpose <perm = [2,0,1,3]> (X)  l = Constant <value = int64[1] {6}> ()
            u = Unsqueeze <axes = [0]> (n)  v = Unsqueeze <axes = [0]> (p)  k = Concat <axis = 0> (l, u, v)
            r = Reshape(t, k)  g = RNN <hidden_size = 3> (r, W, R)  q = Squeeze <axes = [1]> (g)  Y = Neg(q) }"""
    )
    onx.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    X = np.random.default_rng(0).normal(size=(5, 2, 6, 2)).astype(np.float32)
    changed = with_new_head(onx, 2, features="q", random_state=0)
    sums = np.tanh(X.sum(axis=(1, 3)))  # (n, t)
    expected = sums.mean(axis=1, keepdims=True) * initializers(changed)["head.weight"].sum(axis=0)
    np.testing.assert_allclose(run(changed, {"X": X})[-1], expected, rtol=1e-5, atol=1e-6)


def test_values_that_are_proposed_have_rows():
    """Neither the state of a recurrent layer nor its weights."""
    with pytest.raises(ModelError, match=r"no last linear layer .* such as (.*)\.") as e:
        with_new_head(recurrent(), 2)
    proposed = re.findall(r"(\w+): FLOAT", str(e.value).partition("such as")[2])
    assert proposed
    for name in proposed:
        X = np.zeros((5, 6, 4), np.float32)
        assert run(with_new_head(recurrent(), 2, features=name), {"X": X})[-1].shape == (5, 2)


def test_a_norm_is_not_proposed_as_features():
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> network (float[N,4] X) => (float[N,4] Y) {
            H = Relu(X)  L = ReduceL2 <axes = [1]> (H)  M = Clip(L)  Y = Div(H, M) }"""
    )
    with pytest.raises(ModelError, match=r"no last linear layer .* such as H: FLOAT\[N,4\], Y: FLOAT\[N,4\]\."):
        with_new_head(onx, 2)
