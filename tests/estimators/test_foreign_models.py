"""ONNX models of other makers: boosting libraries, Keras, weights in other files, odd inputs and names."""

from __future__ import annotations

import numpy as np
import onnx.checker
import onnx.numpy_helper
import onnx.parser
import pytest
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor

from onnxtrain import (
    OrtGradientClassifier,
    OrtGradientRegressor,
    add_loss_output,
    get_train_initializer,
    onnx_derivative,
)
from onnxtrain.errors import ConversionError, DataError, ModelError
from onnxtrain.graph import read
from onnxtrain.losses.link import Link
from onnxtrain.runtime.session import run

pytestmark = pytest.mark.filterwarnings("ignore:.* other names than parameters of torch.nn")

RNG = np.random.default_rng(0)
N = 120
X = RNG.normal(size=(N, 4)).astype(np.float32)
SIZE = X[:, 0] + np.sin(2 * X[:, 1])
GAPS = np.where(RNG.random(X.shape) < 0.2, np.nan, X).astype(np.float32)


def tensor(name, array):
    return onnx.numpy_helper.from_array(np.asarray(array), name)


def parse(text, imports='"" : 21', **weights):
    onx = onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> g {text}")
    onx.graph.initializer.extend(tensor(name, array) for name, array in weights.items())
    return onx


def drawn(*shape, scale=0.5):
    return (scale * np.random.default_rng(len(shape)).normal(size=shape)).astype(np.float32)


def probabilities(found):
    """Return the last output as an array, whatever it is: a dictionary a row where ZipMap made it."""
    rows = found[-1]
    return np.array([list(row.values()) for row in rows]) if isinstance(rows, list) else np.asarray(rows)


def check_training(onx, rows, y, *, X_run=None, **params):
    """Train; the loss falls, the trained ONNX has the outputs that came and gives what the estimator gives."""
    kind = OrtGradientClassifier if np.asarray(y).dtype.kind in "iU" else OrtGradientRegressor
    rate = {} if params.get("solver") == "lbfgs" else {"learning_rate": 0.02}
    model = kind(onx, **{"max_iter": 10, "random_state": 0, **rate, **params}).fit(rows, y)
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    trained, came = model.get_trained_onnx(), read(onx)
    assert [o.name for o in trained.graph.output] == [o.name for o in came.graph.output]
    assert [i.name for i in trained.graph.input] == [i.name for i in came.graph.input]
    feeds = {trained.graph.input[0].name: rows} if not isinstance(rows, dict) else rows
    floats = [
        o for o in trained.graph.output if o.type.tensor_type.elem_type in (TensorProto.FLOAT, TensorProto.DOUBLE)
    ]
    if floats:
        found = run(trained, feeds, outputs=[floats[-1].name])[0]
        expected = model.predict_proba(rows) if kind is OrtGradientClassifier else model.predict(rows)
        if found.size == len(expected):  # of two classes a model may give one
            expected = expected.reshape(len(expected), -1)[:, -1]
        np.testing.assert_allclose(np.ravel(found), np.ravel(expected), rtol=1e-4, atol=1e-5)
    return model


def classes(k):
    return np.digitize(SIZE, [0] if k == 2 else [-0.5, 0.5])


# -------------------------------------------------- LightGBM and XGBoost


def lightgbm(kind, y, **params):
    library = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    tools = pytest.importorskip("onnxmltools", reason="onnxmltools is not installed: nothing exports lightgbm")
    from onnxmltools.convert.common.data_types import FloatTensorType

    model = getattr(library, f"LGBM{kind}")(n_estimators=5, verbose=-1, n_jobs=1, **params).fit(X, y)
    options = {"zipmap": False} if kind == "Classifier" else {}
    return tools.convert_lightgbm(model, initial_types=[("X", FloatTensorType([None, 4]))], target_opset=15, **options)


def xgboost(kind, y, **params):
    library = pytest.importorskip("xgboost", reason="xgboost is not installed")
    tools = pytest.importorskip("onnxmltools", reason="onnxmltools is not installed: nothing exports xgboost")
    from onnxmltools.convert.common.data_types import FloatTensorType

    model = getattr(library, f"XGB{kind}")(n_estimators=5, max_depth=3, n_jobs=1, **params).fit(X, y)
    return tools.convert_xgboost(model, initial_types=[("X", FloatTensorType([None, 4]))], target_opset=15)


#: exporter, what, targets, how the output follows from the scores
BOOSTED = {
    "lightgbm regressor": (lightgbm, "Regressor", SIZE, {}, Link.IDENTITY),
    "lightgbm forest": (
        lightgbm,
        "Regressor",
        SIZE,
        {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
        Link.IDENTITY,
    ),
    "lightgbm poisson": (lightgbm, "Regressor", np.exp(SIZE), {"objective": "poisson"}, Link.EXP),
    "lightgbm of two": (lightgbm, "Classifier", classes(2), {}, Link.SIGMOID),
    "lightgbm of three": (lightgbm, "Classifier", classes(3), {}, Link.SOFTMAX),
    "lightgbm of names": (lightgbm, "Classifier", np.array(["a", "b", "c"])[classes(3)], {}, Link.SOFTMAX),
    "xgboost regressor": (xgboost, "Regressor", SIZE, {}, Link.IDENTITY),
    "xgboost of two": (xgboost, "Classifier", classes(2), {}, Link.SIGMOID),
    "xgboost of three": (xgboost, "Classifier", classes(3), {}, Link.SOFTMAX),
}


@pytest.mark.filterwarnings("ignore")  # the exporters' own
@pytest.mark.parametrize("case", BOOSTED.values(), ids=BOOSTED)
def test_leaves_of_boosted_trees(case):
    export, kind, y, params, link = case
    onx = export(kind, y, **params)
    start = (OrtGradientClassifier if kind == "Classifier" else OrtGradientRegressor)(onx, max_iter=0).fit(X, y)
    for rows in (X, GAPS):  # branches of missing values are kept
        for found, expected in zip(run(start.get_trained_onnx(), {"X": rows}), run(onx, {"X": rows}), strict=True):
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
            else:
                np.testing.assert_array_equal(found, expected)
    model = check_training(onx, X, y)
    assert model._model.source.model.link is link
    assert "leaf_values" in model.weights_


# ------------------------------------------------------- the same by hand


def splits(mode, tracks):
    """Two trees of two splits, as exporters write them: ids by tree and node."""
    return {
        "nodes_treeids": [0] * 5 + [1] * 3,
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
        "nodes_modes": [mode, mode, "LEAF", "LEAF", "LEAF", mode, "LEAF", "LEAF"],
        "nodes_values": [0.1, -0.2, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [tracks, 1 - tracks, 0, 0, 0, tracks, 0, 0],
        "nodes_hitrates": [1.0] * 8,
    }


def leaves(kind, ids):
    return {
        f"{kind}_treeids": [0, 0, 0, 1, 1],
        f"{kind}_nodeids": [2, 3, 4, 1, 2],
        f"{kind}_ids": ids,
        f"{kind}_weights": [0.4, -0.3, 0.2, -0.5, 0.6],
    }


#: operator, attributes beside the splits, targets
ENSEMBLES = {
    "regressor": ("TreeEnsembleRegressor", {**leaves("target", [0] * 5), "n_targets": 1}, SIZE),
    "regressor with a base": (
        "TreeEnsembleRegressor",
        {**leaves("target", [0] * 5), "n_targets": 1, "base_values": [0.5]},
        SIZE,
    ),
    "average": (
        "TreeEnsembleRegressor",
        {**leaves("target", [0] * 5), "n_targets": 1, "aggregate_function": "AVERAGE"},
        SIZE,
    ),
    "two classes, one score": (
        "TreeEnsembleClassifier",
        {**leaves("class", [0] * 5), "classlabels_int64s": [0, 1], "post_transform": "LOGISTIC", "base_values": [-0.2]},
        classes(2),
    ),
    "three classes, a tree each": (
        "TreeEnsembleClassifier",
        {
            **leaves("class", [0, 0, 0, 2, 2]),
            "classlabels_int64s": [0, 1, 2],
            "post_transform": "SOFTMAX",
            "base_values": [0.1, 0.2, 0.3],
        },
        classes(3),
    ),
    "names": (
        "TreeEnsembleClassifier",
        {
            **leaves("class", [0, 0, 0, 1, 1]),
            "classlabels_strings": ["a", "b", "c"],
            "post_transform": "SOFTMAX",
            "base_values": [0.0, 0.0, 0.0],  # without, onnxruntime never chooses a class that no leaf has
        },
        np.array(["a", "b", "c"])[classes(3)],
    ),
}


def ensemble(op_type, attributes, version):
    outputs = [("Y", TensorProto.FLOAT, ["n", 1])]
    if op_type == "TreeEnsembleClassifier":
        names = attributes.get("classlabels_strings")
        k = len(names or attributes["classlabels_int64s"])
        outputs = [
            ("label", TensorProto.STRING if names else TensorProto.INT64, ["n"]),
            ("p", TensorProto.FLOAT, ["n", k]),
        ]
    node = helper.make_node(op_type, ["X"], [name for name, *_ in outputs], domain="ai.onnx.ml", **attributes)
    infos = [helper.make_tensor_value_info(*o) for o in outputs]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", 4])], infos)
    opsets = [helper.make_opsetid("", 9), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=6)


@pytest.mark.parametrize(
    "mode, tracks, version", [("BRANCH_LEQ", 0, 1), ("BRANCH_LT", 1, 3), ("BRANCH_GTE", 0, 3), ("BRANCH_GT", 1, 1)]
)
@pytest.mark.parametrize("case", ENSEMBLES.values(), ids=ENSEMBLES)
def test_trees_of_every_form(case, mode, tracks, version):
    op_type, attributes, y = case
    onx = ensemble(op_type, {**splits(mode, tracks), **attributes}, version)
    model = check_training(onx, X, y)
    same = OrtGradientRegressor if op_type.endswith("Regressor") else OrtGradientClassifier
    start = same(onx, max_iter=0).fit(X, y).get_trained_onnx()
    for found, expected in zip(run(start, {"X": GAPS}), run(onx, {"X": GAPS}), strict=True):
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    after = next(n for n in model.get_trained_onnx().graph.node if n.op_type == "TreeEnsembleRegressor")
    kept = {a.name: helper.get_attribute_value(a) for a in after.attribute}
    for name in ("nodes_values", "nodes_featureids", "nodes_missing_value_tracks_true"):
        np.testing.assert_array_equal(kept[name], np.asarray(splits(mode, tracks)[name], np.float32))


def test_opposite_columns_of_trees_stay_probabilities():
    """CatBoost stores -s and s: trained apart from each other, their Sigmoids would no longer sum to one."""
    leaf = leaves("class", [0] * 5)
    twice = {name: np.repeat(values, 2).tolist() for name, values in leaf.items()}
    twice["class_ids"] = [0, 1] * 5
    twice["class_weights"] = (np.repeat(leaf["class_weights"], 2) * np.tile([-1, 1], 5)).tolist()
    twice |= {"classlabels_int64s": [0, 1], "post_transform": "LOGISTIC"}
    onx = ensemble("TreeEnsembleClassifier", {**splits("BRANCH_LEQ", 0), **twice}, 1)
    y = classes(2)
    model = OrtGradientClassifier(onx, learning_rate=0.1, max_iter=30, random_state=0).fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p, run(model.get_trained_onnx(), {"X": X})[1], rtol=1e-5)
    np.testing.assert_allclose(model.losses(X, y).ravel(), -np.log(p[np.arange(len(y)), y]), rtol=1e-4)


#: 0: <=, 1: <, 2: >=, 3: >
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("tracks", [0, 1])
def test_trees_of_ai_onnx_ml_5(mode, tracks):
    if onnx_runtime_is_old():
        pytest.skip("onnxruntime 1.19 has no TreeEnsemble of ai.onnx.ml 5")
    node = helper.make_node(
        "TreeEnsemble",
        ["X"],
        ["Y"],
        domain="ai.onnx.ml",
        n_targets=2,
        nodes_featureids=[0, 1],
        nodes_modes=tensor("m", np.full(2, mode, np.uint8)),
        nodes_splits=tensor("s", np.float32([0.1, -0.2])),
        nodes_truenodeids=[0, 2],
        nodes_trueleafs=[1, 1],
        nodes_falsenodeids=[1, 3],
        nodes_falseleafs=[1, 1],
        nodes_missing_value_tracks_true=[tracks, 1 - tracks],
        tree_roots=[0, 1],
        leaf_targetids=[0, 0, 1, 1],
        leaf_weights=tensor("w", np.float32([0.5, -0.5, 0.3, -0.3])),
    )
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", k]) for n, k in (("X", 4), ("Y", 2))]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    onx = helper.make_model(helper.make_graph([node], "g", infos[:1], infos[1:]), opset_imports=opsets, ir_version=10)
    y = np.c_[SIZE, -SIZE]
    check_training(onx, X, y)
    start = OrtGradientRegressor(onx, max_iter=0).fit(X, y).get_trained_onnx()
    np.testing.assert_allclose(run(start, {"X": GAPS})[0], run(onx, {"X": GAPS})[0], rtol=1e-5)


def onnx_runtime_is_old():
    import onnxruntime

    return onnxruntime.__version__.startswith("1.19.")


# -------------------------------------------------- weights in other files

NET = "(float[n, 4] X) => (float[n, 1] Y) { H = MatMul(X, W) A = Tanh(H) Y = MatMul(A, V) }"


@pytest.fixture
def outside(tmp_path):
    """A path to a model whose weights are in another file of the same folder."""
    path = tmp_path / "net.onnx"
    onx = parse(NET, W=drawn(4, 30), V=drawn(30, 1))
    onnx.save_model(onx, path, save_as_external_data=True, location="net.data", size_threshold=0)
    return path


@pytest.mark.parametrize("kind", [str, lambda path: path], ids=["str", "Path"])
def test_weights_beside_the_file(outside, kind, tmp_path):
    model = check_training(kind(outside), X, SIZE)
    trained = tmp_path / "apart" / "trained.onnx"
    trained.parent.mkdir()
    onnx.save(model.get_trained_onnx(), trained)
    assert [p.name for p in trained.parent.iterdir()] == ["trained.onnx"]
    found = run(onnx.load(trained), {"X": X})[0]
    np.testing.assert_allclose(found.ravel(), model.predict(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("use", [add_loss_output, onnx_derivative, get_train_initializer], ids=lambda f: f.__name__)
@pytest.mark.parametrize("as_bytes", [True, False], ids=["bytes", "ModelProto"])
def test_weights_of_a_model_without_a_folder(outside, use, as_bytes):
    onx = outside.read_bytes() if as_bytes else onnx.load(outside, load_external_data=False)
    for call in (use, lambda onx: OrtGradientRegressor(onx).fit(X, SIZE)):
        with pytest.raises(ModelError, match="values of 'W' are in another file, 'net.data'.*Pass the path"):
            call(onx)


#: The last layer of a network inside a body: V is an initializer there, b a Constant.
BODIES = {
    "Scan": """Y = Scan <num_scan_inputs = 1, body = s (double[4] r) => (double[2] y) <double[4, 2] V = {}> {
        b = Constant <value = double[2] {1, 2}> () p = MatMul(r, V) y = Add(p, b) }> (H)""",
    "Loop": """Z = Loop (once, yes) <body = l (int64 i, bool c) => (bool d, double[n, 2] y) <double[4, 2] V = {}> {
        b = Constant <value = double[2] {1, 2}> () d = Identity(c) y = Gemm(H, V, b) }> Y = Squeeze(Z, at)""",
    "If": """m = ReduceMax<keepdims = 0>(X) c = Less(m, huge) Y = If (c) <
        then_branch = t () => (double[n, 2] y) <double[4, 2] V = {}> {
            b = Constant <value = double[2] {1, 2}> () y = Gemm(H, V, b) },
        else_branch = e () => (double[n, 2] u) { u = Slice(H, at, two, one) }>""",
    "If in a Loop": """Z = Loop (once, yes) <body = l (int64 i, bool c) => (bool d, double[n, 2] y) {
        d = Identity(c) m = ReduceMax<keepdims = 0>(H) k = Less(m, huge) y = If (k) <
            then_branch = t () => (double[n, 2] v) <double[4, 2] V = {}> {
                b = Constant <value = double[2] {1, 2}> () v = Gemm(H, V, b) },
            else_branch = e () => (double[n, 2] u) { u = Slice(H, at, two, one) }> }> Y = Squeeze(Z, at)""",
    "names that two bodies have": """m = ReduceMax<keepdims = 0>(X) c = Less(m, huge) Y = If (c) <
        then_branch = t () => (double[n, 2] y) <double[4, 2] V = {}> {
            b = Constant <value = double[2] {1, 2}> () y = Gemm(H, V, b) },
        else_branch = e () => (double[n, 2] u) <double[4, 2] V = {}> {
            b = Constant <value = double[2] {3, 4}> () u = Gemm(X, V, b) }>""",
    "": "b = Constant <value = double[2] {1, 2}> () Y = Gemm(H, V, b)",
}


def with_body(name):
    V = "{" + ", ".join(map(str, drawn(4, 2).ravel())) + "}"
    nodes = BODIES[name].replace("{}", V)
    more = "" if name else f", double[4, 2] V = {V}"
    return parse(
        f"""(double[n, 4] X) => (double[n, 2] Y) <double huge = {{1e9}}, int64 once = {{1}}, bool yes = {{1}},
        int64[1] at = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}{more}> {{ Z1 = MatMul(X, W) H = Tanh(Z1) {nodes} }}""",
        W=drawn(4, 4).astype(float),
    )


@pytest.mark.parametrize("name", [name for name in BODIES if name])
def test_weights_inside_a_body_are_trained_as_those_outside(name):
    """Before, those in front of the body were trained and those inside it stayed, without a word."""
    rows, y = X.astype(float), np.stack([SIZE, -SIZE], axis=1)
    params = dict(solver="sgd", learning_rate=0.1, max_iter=3, dtype="float64", shuffle=False)
    expected, found = (OrtGradientRegressor(with_body(which), **params).fit(rows, y) for which in ("", name))
    np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-12)
    np.testing.assert_allclose(found.predict(rows), expected.predict(rows), rtol=1e-10)
    own = found.get_trained_onnx()
    np.testing.assert_allclose(run(own, {"X": rows})[0], expected.predict(rows), rtol=1e-10)
    if "two bodies" not in name:  # the file that came, with other bytes
        assert [node.op_type for node in own.graph.node] == [node.op_type for node in with_body(name).graph.node]
        assert [i.name for i in own.graph.initializer] == [i.name for i in with_body(name).graph.initializer]


def test_weights_of_a_constant_and_of_a_body_without_a_folder():
    held = tensor("w", drawn(4))
    held.ClearField("raw_data")
    held.data_location = TensorProto.EXTERNAL
    held.external_data.add(key="location", value="else.data")
    for text in (
        "(float[n, 4] X) => (float[n, 4] Y) { w = Constant <value = float[1] {0}> () Y = Mul(X, w) }",
        "(float[n, 4] X, bool c) => (float[n, 4] Y) { Y = If (c) <then_branch = t () => (float[n, 4] a)"
        " { w = Constant <value = float[1] {0}> () a = Mul(X, w) }, else_branch = e () => (float[n, 4] b)"
        " { b = Identity(X) }> }",
    ):
        onx = parse(text)
        (node,) = onx.graph.node[:1]
        body = next((a.g for a in node.attribute if a.name == "then_branch"), onx.graph)
        body.node[0].attribute[0].t.CopyFrom(held)
        with pytest.raises(ModelError, match="'else.data'"):
            read(onx)


def larger(path, element=TensorProto.FLOAT):
    onx = onnx.load(path, load_external_data=False)
    onx.graph.initializer[0].dims[:] = [4, 2**28]
    onx.graph.initializer[0].data_type = element
    path.write_bytes(onx.SerializeToString())


def huge(path):
    with open(path, "wb") as f:
        f.truncate(2**31)


BROKEN = {
    "missing": (lambda path: path.with_name("net.data").unlink(), "external data of the model cannot be read from"),
    "short": (lambda path: path.with_name("net.data").write_bytes(b"123"), "cannot be read from .*"),
    "weights over 2 GB": (
        lambda path: larger(path, TensorProto.DOUBLE),
        "weights of the model take 8.0 GB.*less than 2 GB",
    ),
    "float32 over 2 GB": (larger, "needs 4294967296 bytes, but 'net.data' has"),
    "a file over 2 GB": (huge, "larger than 2 GB"),
}


@pytest.mark.parametrize("breaks, words", BROKEN.values(), ids=BROKEN)
def test_files_that_are_broken_or_too_large(outside, breaks, words):
    breaks(outside)
    with pytest.raises(ModelError, match=words):
        OrtGradientRegressor(outside).fit(X, SIZE)


# -------------------------------------------------- inputs and their shapes

IMAGES = RNG.normal(size=(N, 1, 6, 6)).astype(np.float32)
WORDS = RNG.integers(0, 9, (N, 5))
STEPS = RNG.normal(size=(N, 5, 3)).astype(np.float32)
TWO = "(float[{n}, 2] left, float[{n}, 2] right) => (float[{n}, 1] Y) {{ J = Concat <axis = 1> (left, right) Y = MatMul(J, W) }}"
PAIR = {"left": X[:, :2], "right": X[:, 2:]}

#: model, its weights, the rows
SHAPES = {
    "images": (
        "(float[n, 1, 6, 6] X) => (float[n, 1] Y) { C = Conv(X, K) R = Relu(C) F = Flatten(R) Y = MatMul(F, W) }",
        {"K": drawn(2, 1, 3, 3), "W": drawn(32, 1)},
        IMAGES,
    ),
    "images of any size": (
        "(float[n, 1, h, w] X) => (float[n, 1] Y) { C = Conv(X, K) R = Relu(C) P = GlobalAveragePool(R)"
        " F = Flatten(P) Y = MatMul(F, W) }",
        {"K": drawn(2, 1, 3, 3), "W": drawn(2, 1)},
        IMAGES,
    ),
    "sequences": (
        "(float[n, 5, 3] X) => (float[n, 1] Y) { H = MatMul(X, W) M = ReduceMean <keepdims = 0> (H, axis) Y = MatMul(M, V) }",
        {"W": drawn(3, 4), "V": drawn(4, 1), "axis": np.array([1])},
        STEPS,
    ),
    "sequences of any length": (
        "(float[n, t, 3] X) => (float[n, 1] Y) { H = MatMul(X, W) M = ReduceMean <keepdims = 0> (H, axis) Y = MatMul(M, V) }",
        {"W": drawn(3, 4), "V": drawn(4, 1), "axis": np.array([1])},
        STEPS,
    ),
    "words": (
        "(int64[n, 5] X) => (float[n, 1] Y) { H = Gather(E, X) M = ReduceMean <keepdims = 0> (H, axis) Y = MatMul(M, V) }",
        {"E": drawn(9, 4), "V": drawn(4, 1), "axis": np.array([1])},
        WORDS,
    ),
    "a batch without a name": ("(float[?, 4] X) => (float[?, 1] Y) { Y = MatMul(X, W) }", {"W": drawn(4, 1)}, X),
    "a batch of one": ("(float[1, 4] X) => (float[1, 1] Y) { Y = MatMul(X, W) }", {"W": drawn(4, 1)}, X),
    "a batch of eight images": (
        "(float[8, 1, 6, 6] X) => (float[8, 1] Y) { C = Conv(X, K) F = Reshape(C, s) Y = MatMul(F, W) }",
        {"K": drawn(2, 1, 3, 3), "W": drawn(32, 1), "s": np.array([8, 32])},
        IMAGES,
    ),
    "a batch of eight rows, divided by their norms": (
        "(float[8, 4] X) => (float[8, 1] Y) { L = ReduceL2(X, axis) E = Expand(L, s) D = Div(X, E) Y = MatMul(D, W) }",
        {"W": drawn(4, 1), "axis": np.array([1]), "s": np.array([8, 4])},
        X,
    ),
    "two inputs": (TWO.format(n="n"), {"W": drawn(4, 1)}, PAIR),
    "two inputs of a fixed batch": (TWO.format(n=8), {"W": drawn(4, 1)}, PAIR),
    "two inputs of different kinds": (
        "(float[1, 3, 6] X, int64[1] k) => (float[1, 1] Y) { F = Flatten(X) A = MatMul(F, W) B = Gather(E, k) Y = Add(A, B) }",
        {"W": drawn(18, 1), "E": drawn(3, 1)},
        {"X": RNG.normal(size=(N, 3, 6)).astype(np.float32), "k": classes(3)},
    ),
}


@pytest.mark.parametrize("text, weights, rows", SHAPES.values(), ids=SHAPES)
def test_shapes_of_inputs(text, weights, rows):
    onx = parse(text, **weights)
    kind = rows if isinstance(rows, dict) else {"X": rows}
    y = SIZE if "K" not in weights else next(iter(kind.values())).mean(axis=(1, 2, 3))
    fixed = "batch of" in text or any(f"[{n}" in text for n in (1, 8))
    if not fixed:
        model = check_training(onx, rows, y)
    else:  # the trained model is again for a batch of this size
        model = OrtGradientRegressor(onx, max_iter=10, learning_rate=0.02, random_state=0).fit(rows, y)
        assert model.loss_curve_[-1] < model.loss_curve_[0]
        trained = model.get_trained_onnx()
        size = trained.graph.input[0].type.tensor_type.shape.dim[0].dim_value
        found = run(trained, {name: x[:size] for name, x in kind.items()})[0]
        np.testing.assert_allclose(found.ravel(), model.predict(rows)[:size], rtol=1e-4, atol=1e-6)
    assert set(model.weights_) == {name for name, w in weights.items() if w.dtype.kind == "f"}


def test_a_frame_for_several_inputs():
    pandas = pytest.importorskip("pandas")
    onx = parse(
        "(float[n, 1] a, int64[n, 1] k) => (float[n, 1] Y) { A = MatMul(a, W) G = Gather(E, k) S = Squeeze(G, axis) Y = Add(A, S) }",
        W=drawn(1, 1),
        E=drawn(3, 1),
        axis=np.array([2]),
    )
    frame = pandas.DataFrame({"k": classes(3), "a": SIZE})
    model = OrtGradientRegressor(onx, max_iter=5, learning_rate=0.05, random_state=0).fit(frame, 2 * SIZE)
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    by_dict = {"a": SIZE.reshape(-1, 1), "k": classes(3)}
    np.testing.assert_array_equal(model.predict(by_dict), model.predict(frame))


# --------------------------------------------------------------- names

#: Names that a training step, a loss or a gradient gives as well.
OURS = ["label", "loss", "weight", "learning_rate", "l1", "l2", "rows", "index", "step", "X_grad", "W_grad", "Y_grad",
        "numbers", "coef", "const_1.0_f32", "batch_rows", "scores", "v_MatMul_0", "sample_weight"]  # fmt: skip


@pytest.mark.parametrize("where", ["input", "weight", "hidden", "output"])
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_names_that_are_ours_as_well(where, solver):
    for name in OURS:
        names = {"input": "A", "weight": "W", "hidden": "H", "output": "B", where: name}
        nodes = [
            helper.make_node("MatMul", [names["input"], names["weight"]], [names["hidden"]]),
            helper.make_node("Tanh", [names["hidden"]], ["T"]),
            helper.make_node("MatMul", ["T", "V"], [names["output"]]),
        ]
        infos = [helper.make_tensor_value_info(names[n], 1, ["n", k]) for n, k in (("input", 4), ("output", 1))]
        held = [tensor(names["weight"], drawn(4, 3)), tensor("V", drawn(3, 1))]
        graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], held)
        onx = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        model = check_training(
            onx, X, SIZE, solver=solver, max_iter=3, l1=1e-4, l2=1e-4, penalty={names["weight"]: 1e-3}, n_threads=1
        )
        assert set(model.weights_) == {names["weight"], "V"}


# -------------------------------------------------- graphs of other exporters


def keras(*, in_constants):
    """A convolution of channels last as tf2onnx writes it: Transpose around it, slashes and colons in names."""
    weights = {
        "model/conv/kernel:0": drawn(3, 1, 3, 3),
        "model/conv/bias:0": np.full(3, 0.1, np.float32),
        "model/dense/kernel:0": drawn(3, 2),
        "model/dense/bias:0": np.zeros(2, np.float32),
    }
    others = {"Const:0": np.array([2, 3]), "temperature:0": np.float32([2.0])}

    def node(op_type, inputs, output, **attributes):
        return helper.make_node(op_type, inputs, [output], name=output.removesuffix(":0"), **attributes)

    held = {**weights, **others}
    nodes = [node("Constant", [], name, value=tensor(name, a)) for name, a in held.items() if in_constants]
    nodes += [
        node("Transpose", ["images:0"], "model/conv/first:0", perm=[0, 3, 1, 2]),
        node("Conv", ["model/conv/first:0", "model/conv/kernel:0"], "model/conv:0", pads=[1, 1, 1, 1]),
        node("Transpose", ["model/conv:0"], "model/conv/last:0", perm=[0, 2, 3, 1]),
        node("Add", ["model/conv/last:0", "model/conv/bias:0"], "model/BiasAdd:0"),
        node("Relu", ["model/BiasAdd:0"], "model/relu:0"),
        node("Transpose", ["model/relu:0"], "model/pool/first:0", perm=[0, 3, 1, 2]),
        node("GlobalAveragePool", ["model/pool/first:0"], "model/pool:0"),
        node("Squeeze", ["model/pool:0", "Const:0"], "model/flat:0"),
        node("MatMul", ["model/flat:0", "model/dense/kernel:0"], "model/dense/MatMul:0"),
        node("Add", ["model/dense/MatMul:0", "model/dense/bias:0"], "model/dense/BiasAdd:0"),
        node("Mul", ["model/dense/BiasAdd:0", "temperature:0"], "model/scaled:0"),
        node("Softmax", ["model/scaled:0"], "Identity:0"),
    ]
    inputs = [helper.make_tensor_value_info("images:0", 1, ["unk__1", 6, 6, 1])]
    outputs = [helper.make_tensor_value_info("Identity:0", 1, ["unk__1", 2])]
    initializers = [] if in_constants else [tensor(name, a) for name, a in held.items()]
    graph = helper.make_graph(nodes, "tf2onnx", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), set(weights)


@pytest.mark.parametrize("in_constants", [True, False])
def test_a_network_of_keras(in_constants):
    onx, weights = keras(in_constants=in_constants)
    rows = IMAGES.transpose(0, 2, 3, 1)
    y = (rows.std(axis=(1, 2, 3)) > 1).astype(int)
    model = check_training(onx, rows, y)
    assert set(model.weights_) == weights
    trained = model.get_trained_onnx()
    onnx.checker.check_model(trained)
    in_file = {i.name for i in trained.graph.initializer} | {n.output[0] for n in trained.graph.node}
    assert weights <= in_file
    again = OrtGradientClassifier(trained, max_iter=0).fit(rows, y)
    assert set(again.weights_) == weights
    np.testing.assert_allclose(again.predict_proba(rows), model.predict_proba(rows), rtol=1e-5)


def test_functions_of_the_model():
    onx = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[n, 4] X) => (float[n, 1] Y) { H = local.dense <units = 3> (X, W) Y = local.dense(H, V) }
        <domain: "local", opset_import: ["" : 21]>
        dense <units> (x, w) => (y) { half = Constant <value_float = 0.5> () z = MatMul(x, w) s = Mul(z, half) y = Tanh(s) }"""
    )
    onx.graph.initializer.extend([tensor("W", drawn(4, 3)), tensor("V", drawn(3, 1))])
    model = check_training(onx, X, np.tanh(SIZE))
    assert set(model.weights_) == {"W", "V"}


def without_bytes(onx, names):
    """Return a model without the bytes of some of its initializers and Constant nodes."""
    left = onnx.ModelProto()
    left.CopyFrom(onx)
    holders = {t.name: t for t in left.graph.initializer}
    holders.update((n.output[0], n.attribute[0].t) for n in left.graph.node if n.op_type == "Constant")
    for name in names:
        for values in ("raw_data", "float_data", "int32_data"):
            holders[name].ClearField(values)
    return left.SerializeToString(deterministic=True)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("holder", ["initializers", "nodes"])
def test_the_file_that_comes_out_is_the_one_that_came_in(holder, dtype):
    """Only the bytes of what was trained differ: not the opset, the IR version, the nodes, the names, the metadata."""
    kind = TensorProto.DataType.Name(dtype).lower()
    onx = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 15], producer_name: "another's", metadata_props: ["kept": "yes"]>
        g ({kind}[n, 4] X) => ({kind}[n, 1] Y)
        {{ unused = Identity(X) H = MatMul(X, W) R = Relu(H) Z = MatMul(R, V) Y = Add(Z, c) }}"""
    )
    for name, w in {"W": drawn(4, 3), "V": drawn(3, 1), "c": drawn(1)}.items():
        of_type = onnx.numpy_helper.from_array(w.astype(onnx.helper.tensor_dtype_to_np_dtype(dtype)), name)
        if holder == "nodes":
            onx.graph.node.insert(0, helper.make_node("Constant", [], [name], value=of_type))
        else:
            onx.graph.initializer.append(of_type)
    model = OrtGradientRegressor(onx, weights_to_train=["V", "c"], max_iter=5, learning_rate=0.1).fit(X, np.tanh(SIZE))
    trained = model.get_trained_onnx()
    assert trained.SerializeToString() != onx.SerializeToString()
    assert without_bytes(trained, ["V", "c"]) == without_bytes(onx, ["V", "c"])
    rows = X.astype(onnx.helper.tensor_dtype_to_np_dtype(dtype))
    tolerance = 1e-5 if dtype == TensorProto.FLOAT else 2e-2
    np.testing.assert_allclose(run(trained, {"X": rows})[0].ravel(), model.predict(X), rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------ labels alone

LABELS = {
    "of three": (
        "(float[n, 4] X) => (int64[n] label) { S = MatMul(X, W) P = Softmax(S) label = ArgMax <axis = 1, keepdims = 0> (P) }",
        (4, 3),
        Link.SOFTMAX,
        classes(3),
    ),
    "of scores": (
        "(float[n, 4] X) => (int64[n, 1] label) { S = MatMul(X, W) label = ArgMax <axis = -1> (S) }",
        (4, 3),
        Link.IDENTITY,
        classes(3),
    ),
    "of names": (
        '(float[n, 4] X) => (string[n] label) <string[3] names = {"a", "b", "c"}> { S = MatMul(X, W)'
        " A = ArgMax <axis = 1, keepdims = 0> (S) label = Gather(names, A) }",
        (4, 3),
        Link.IDENTITY,
        np.array(["a", "b", "c"])[classes(3)],
    ),
    "of two": (
        "(float[n, 4] X) => (int64[n, 1] label) <float half = {0.5}> { S = MatMul(X, W) P = Sigmoid(S)"
        " B = Greater(P, half) label = Cast <to = 7> (B) }",
        (4, 1),
        Link.SIGMOID,
        classes(2),
    ),
}


@pytest.mark.parametrize("output", [None, "label"])
@pytest.mark.parametrize("text, shape, link, y", LABELS.values(), ids=LABELS)
def test_a_model_that_gives_labels_alone(text, shape, link, y, output):
    model = check_training(parse(text, W=drawn(*shape)), X, y, output=output, max_iter=50)
    assert model._model.source.model.link is link
    trained = model.get_trained_onnx()
    np.testing.assert_array_equal(run(trained, {"X": X})[0].ravel(), model.predict(X))
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
    with pytest.raises(ModelError, match="has no floating-point output|is not floating-point"):
        OrtGradientRegressor(parse(text, W=drawn(*shape)), output=output).fit(X, SIZE)


# ------------------------------------------------ probabilities of classes

#: Outputs (n, 3) of S = X W that are positive and do not sum to one, and their links.
NOT_NORMALIZED = {
    "Sigmoid": ("Y = Sigmoid(S)", Link.SIGMOIDS),
    "columns of Sigmoid": (
        "A, B, C = Split <axis = 1, num_outputs = 3> (S) P = Sigmoid(A) Q = Sigmoid(B) R = Sigmoid(C)"
        " Y = Concat <axis = 1> (P, Q, R)",
        Link.SIGMOIDS,
    ),
    "roots": ("P = Softmax(S) Y = Sqrt(P)", Link.PROBABILITY),
    "Exp": ("M = Relu(S) N = Neg(M) Y = Exp(N)", Link.EXP),
}


#: How a file stores its classes, in another order than the sorted one: the nodes behind the Softmax, and the outputs.
STORED = {
    "a table": ("label = Gather(names, best)", "string[n] label, float[n, 3] P"),
    "a table of ai.onnx.ml": (
        "label = ai.onnx.ml.ArrayFeatureExtractor(names, best)",
        "string[one, n] label, float[n, 3] P",
    ),
    "an encoder": (
        'label = ai.onnx.ml.LabelEncoder <keys_int64s = [2, 0, 1], values_strings = ["mole", "zebra", "ant"]> (best)',
        "string[n] label, float[n, 3] P",
    ),
    "an encoder behind a table": (
        "code = Gather(codes, best)  label = ai.onnx.ml.LabelEncoder <keys_int64s = [7, 8, 9], "
        'values_strings = ["mole", "zebra", "ant"]> (code)',
        "string[n] label, float[n, 3] P",
    ),
    "a map alone": (
        'Z = ai.onnx.ml.ZipMap <classlabels_strings = ["zebra", "ant", "mole"]> (P)',
        "seq(map(string, float)) Z",
    ),
}
BEST = "S = MatMul(X, W)  P = Softmax(S)  best = ArgMax <axis = 1, keepdims = 0> (S)"


@pytest.mark.parametrize("nodes, outputs", STORED.values(), ids=STORED)
def test_the_columns_have_the_labels_that_the_file_stores(nodes, outputs):
    names, W = np.array(["zebra", "ant", "mole"], object), drawn(4, 3)
    onx = parse(f"(float[n, 4] X) => ({outputs}) {{ {BEST} {nodes} }}", imports='"" : 21, "ai.onnx.ml" : 3', W=W)
    read_by = {name for node in onx.graph.node for name in node.input}
    tables = {"names": names, "codes": np.array([8, 9, 7])}
    onx.graph.initializer.extend(tensor(name, table) for name, table in tables.items() if name in read_by)
    y = names[np.argmax(X @ W, axis=1)].astype(str)
    model = OrtGradientClassifier(onx, max_iter=5, random_state=0).fit(X, y)
    assert model.classes_.tolist() == names.tolist()
    assert model.score(X, y) > 0.95
    with pytest.raises(
        DataError, match=r"y has the integers 0, 1, 2, but the classes of the model are .'zebra', 'ant', 'mole'"
    ):
        OrtGradientClassifier(onx).fit(X, np.argmax(X @ W, axis=1))


def test_the_probabilities_of_several_labels_are_a_sequence():
    """The file of a MultiOutputClassifier is trained as the estimator is; its outputs are kept."""
    y = np.c_[X[:, 0] > 0, X[:, 1] > X[:, 2]].astype(int)
    several = MultiOutputClassifier(LogisticRegression()).fit(X, y)
    settings = {"max_iter": 3, "learning_rate": 0.1, "random_state": 0}
    onx = to_onnx(several, X[:1], options={"zipmap": False})
    assert onx.graph.output[1].type.HasField("sequence_type")
    tuned = OrtGradientClassifier(onx, **settings).fit(X, y)
    expected = OrtGradientClassifier(several, **settings).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(tuned.predict_proba(X), expected, atol=1e-6)
    label, probabilities = run(tuned.get_trained_onnx(), {"X": X})
    np.testing.assert_array_equal(label, tuned.predict(X))
    np.testing.assert_allclose(np.stack([p[:, 1] for p in probabilities], axis=1), expected, atol=1e-6)


@pytest.mark.parametrize("labels", [[3, 3, 5], [3, 4, 5, 6]], ids=["one twice", "one too many"])
def test_a_table_without_one_label_for_each_column_is_refused(labels):
    onx = parse(
        f"(float[n, 4] X) => (int64[n] label, float[n, 3] P) {{ {BEST} label = Gather(names, best) }}",
        W=drawn(4, 3),
        names=np.array(labels),
    )
    with pytest.raises(DataError, match=f"The model has 3 classes, but stores {len(labels)} labels .*: 3, "):
        OrtGradientClassifier(onx).fit(X, np.where(SIZE > 0, 3, 5))


def test_labels_that_two_texts_are_chosen_for_are_no_numbers():
    onx = parse(
        "(float[n, 4] X) => (string[n, 1] label, float[n, 1] P) { S = MatMul(X, W)  P = Sigmoid(S) "
        "half = Constant <value_float = 0.5> ()  above = Greater(P, half)  label = Where(above, yes, no) }",
        W=drawn(4, 1),
        yes=np.array("yes", object),
        no=np.array("no", object),
    )
    y = (X @ drawn(4, 1) > 0).ravel().astype(int)
    assert OrtGradientClassifier(onx, max_iter=5, random_state=0).fit(X, y).score(X, y) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("nodes, link", NOT_NORMALIZED.values(), ids=NOT_NORMALIZED)
def test_probabilities_of_classes_sum_to_one_and_are_those_of_the_loss(nodes, link, dtype):
    onx = parse(f"(float[n, 4] X) => (float[n, 3] Y) {{ S = MatMul(X, W) {nodes} }}", W=drawn(4, 3))
    y = classes(3)
    for max_iter in (0, 5):
        model = OrtGradientClassifier(onx, dtype=dtype, max_iter=max_iter, learning_rate=0.02, random_state=0).fit(X, y)
        assert model._model.source.model.link is link
        p, (given,) = model.predict_proba(X), run(model.get_trained_onnx(), {"X": X})
        np.testing.assert_allclose(p, given / given.sum(axis=1, keepdims=True), rtol=1e-4)
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-6)
        np.testing.assert_allclose(model.losses(X, y), -np.log(p[np.arange(N), y]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("nodes", [NOT_NORMALIZED["Sigmoid"][0], NOT_NORMALIZED["columns of Sigmoid"][0]])
def test_sigmoids_of_classes_that_are_all_zero_are_compared_by_their_scores(nodes):
    onx = parse(
        f"(float[n, 4] X) => (float[n, 3] Y) {{ Z = MatMul(X, W) S = Sub(Z, far) {nodes} }}",
        W=drawn(4, 3),
        far=np.float32([300] * 3),
    )
    y = classes(3)
    model = OrtGradientClassifier(onx, max_iter=0).fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(model.losses(X, y), -np.log(p[np.arange(N), y]), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(p.argmax(axis=1), model.predict(X))


# --------------------------------------------- layers that PyTorch runs otherwise in training


@pytest.mark.parametrize("layer", ["BatchNormalization", "none"])
def test_verbose_says_that_statistics_stay(layer, capsys):
    nodes = {
        "none": "N = Identity(H)",
        "BatchNormalization": "N = BatchNormalization(H, scale, bias, mean, variance)",
    }[layer]
    ones = np.ones(3, np.float32)
    onx = parse(
        f"(float[n, 4] X) => (float[n, 1] Y) {{ H = MatMul(X, W) {nodes} R = Relu(N) Y = MatMul(R, V) }}",
        W=drawn(4, 3),
        V=drawn(3, 1),
        scale=ones,
        bias=ones,
        mean=0 * ones,
        variance=2 * ones,
    )
    model = OrtGradientRegressor(onx, max_iter=1, verbose=1).fit(X, SIZE)
    said = (
        "BatchNormalization uses the statistics it came with, in training as in predictions." in capsys.readouterr().out
    )
    assert said == (layer != "none")
    assert not {"mean", "variance"} & set(model.weights_)


# ------------------------------------------- weights that an exporter wrote several times

EMBEDDING = drawn(6, 3)
IDS = np.random.default_rng(3).integers(0, 6, (20, 4))


def language_model(copy, said=False, name="onnx::MatMul_6"):
    """Token ids to scores of the next token: the embedding is also the last layer, a constant of its own if `copy`."""
    turned = "" if copy else "T = Transpose<perm = [1, 0]>(embedding)"
    onx = parse(
        f"(int64[N,4] ids) => (float[N,4,6] scores) {{ E = Gather(embedding, ids) H = Tanh(E) {turned} "
        "scores = MatMul(H, T) }",
        embedding=EMBEDDING,
        **({"T": EMBEDDING.T.copy()} if copy else {}),
    )
    if said:
        onx.graph.value_info.append(helper.make_tensor_value_info("T", TensorProto.FLOAT, [3, 6]))
        onx.graph.value_info[0].metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value="['embedding']")
    elif copy:
        onx.graph.initializer[1].name = onx.graph.node[-1].input[1] = name
    onx.producer_name = "pytorch"
    return onx


def trained_to_go_on(onx, **params):
    y = np.concatenate([IDS[:, 1:], np.full((len(IDS), 1), -100)], axis=1)
    steps = {"solver": "sgd", "learning_rate": 0.5, "batch_size": 20, "shuffle": False, "max_iter": 10, "tol": 0}
    return OrtGradientClassifier(onx, **steps, **params).fit(IDS, y)


@pytest.mark.parametrize(
    "how",
    [{}, {"said": True}, {"name": "/lm_head/Transpose_output_0"}],
    ids=["its name says so", "its metadata says so", "onnxruntime computed it"],
)
def test_a_tied_weight_and_its_transposed_copy_stay_one(how):
    whole = trained_to_go_on(language_model(copy=False))
    came = language_model(copy=True, **how)
    tuned = trained_to_go_on(came)
    assert list(tuned.weights_) == ["embedding"]
    np.testing.assert_allclose(tuned.weights_["embedding"], whole.weights_["embedding"], rtol=1e-5)
    out = tuned.get_trained_onnx()
    w, copy = (onnx.numpy_helper.to_array(i) for i in out.graph.initializer)
    np.testing.assert_array_equal(copy, w.T)
    assert not np.array_equal(w, EMBEDDING)
    assert list(out.graph.node) == list(came.graph.node)
    np.testing.assert_array_equal(run(out, {"ids": IDS})[0].argmax(-1), tuned.predict(IDS))


def test_the_declared_shape_of_a_weight_may_be_another_one():
    """onnxruntime's optimizer transposes weights and leaves the shapes that were declared; onnxruntime reads them."""
    onx = parse(
        "(float[n, 4] X) => (float[n, 1] Y) { H = MatMul(X, W) Y = MatMul(H, V) }", W=drawn(4, 3), V=drawn(3, 1)
    )
    onx.graph.value_info.append(helper.make_tensor_value_info("W", TensorProto.FLOAT, [3, 4]))
    check_training(onx, X, SIZE)


def with_no_maker(onx):
    onx.producer_name = "by hand"


def with_no_metadata(onx):
    del onx.graph.value_info[:]


def with_no_variation(onx):
    for i in onx.graph.initializer:
        i.CopyFrom(tensor(i.name, np.zeros(i.dims, np.float32)))


def with_other_values(onx):
    onx.graph.initializer[1].CopyFrom(tensor("T", EMBEDDING.T + 1))


@pytest.mark.parametrize("change", [with_no_maker, with_no_metadata, with_no_variation, with_other_values])
def test_what_no_exporter_transposed_is_trained_by_itself(change):
    onx = language_model(copy=True, said=True)
    change(onx)
    assert list(trained_to_go_on(onx).weights_) == ["embedding", "T"]


def test_layers_that_begin_as_copies_are_trained_apart():
    """PyTorch's exporter names a transposed matrix by a number, which says nothing of where it came from."""
    step = drawn(4, 4)
    onx = parse(
        "(float[N,4] X) => (float[N,4] Y) { H = MatMul(X, step) T = Tanh(H) Y = Gemm<transB = 1>(T, top) }",
        step=step.T.copy(),
        top=step,
    )
    onx.graph.initializer[0].name = onx.graph.node[0].input[1] = "onnx::MatMul_12"
    onx.graph.initializer[1].name = onx.graph.node[2].input[1] = "top.weight"
    onx.producer_name = "pytorch"
    model = check_training(onx, X, np.tanh(X @ drawn(4, 4, scale=2)))
    assert list(model.weights_) == ["onnx::MatMul_12", "top.weight"]
    assert not np.array_equal(model.weights_["onnx::MatMul_12"], model.weights_["top.weight"].T)


PAIRS = drawn(30, 3, 4, 4)
DISTANCES = np.subtract.outer(np.arange(4), np.arange(4)) + 3
FOLDED = {"name": "unsqueeze_14", "sources": ["bias.weight", "embedding_2", "permute"]}


def with_position_bias(folded, table, name="onnx::Add_7", sources=()):
    """Scores of pairs of positions, and a bias by their distance, which the exporter has read from `table` if folded."""
    read = "G = Gather(table, distances) T = Transpose<perm = [2, 0, 1]>(G) B = Unsqueeze(T, first)"
    bias = np.moveaxis(table[DISTANCES], -1, 0)[None]
    weights = {"B": bias} if folded else {"table": table, "distances": DISTANCES, "first": np.array([0])}
    onx = parse(
        f"(float[n, {table.shape[1]}, 4, 4] X) => (float[n, 1] Y) "
        f"{{ {'' if folded else read} S = Add(X, B) R = Softmax(S) F = Flatten(R) Y = MatMul(F, V) }}",
        V=drawn(16 * table.shape[1], 1),
        **weights,
    )
    if folded:
        onx.graph.initializer[1].name = onx.graph.node[0].input[1] = name
    if folded and sources:
        onx.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, bias.shape))
        key = "pkg.onnxscript.optimizer.folded_from"
        onx.graph.value_info[0].metadata_props.add(key=key, value=repr(sources))
    onx.producer_name = "pytorch"
    return onx


def trained_on_pairs(onx, n_heads=2):
    y = PAIRS[:, 0].sum(axis=(1, 2))
    steps = {"solver": "sgd", "learning_rate": 0.05, "batch_size": 30, "shuffle": False, "max_iter": 10, "tol": 0}
    return OrtGradientRegressor(onx, **steps).fit(PAIRS[:, :n_heads], y)


@pytest.mark.parametrize("n_heads", [2, 3])
@pytest.mark.parametrize("how", [{}, FOLDED], ids=["its name says so", "its metadata says so"])
def test_a_position_bias_that_was_read_from_a_table_stays_one(how, n_heads):
    """A pair of positions moves the bias of its distance, as in PyTorch, not one of its own."""
    table = drawn(7, n_heads)
    whole = trained_on_pairs(with_position_bias(False, table), n_heads)
    came = with_position_bias(True, table, **how)
    tuned = trained_on_pairs(came, n_heads)
    name = came.graph.initializer[1].name
    assert tuned.weights_[name].size == table.size
    out = tuned.get_trained_onnx()
    written = onnx.numpy_helper.to_array(out.graph.initializer[1])
    np.testing.assert_allclose(written[0], np.moveaxis(whole.weights_["table"][DISTANCES], -1, 0), rtol=1e-5)
    assert (written[0] != np.moveaxis(table[DISTANCES], -1, 0)).all()
    assert list(out.graph.node) == list(came.graph.node)
    np.testing.assert_allclose(
        run(out, {"X": PAIRS[:, :n_heads]})[0][:, 0], tuned.predict(PAIRS[:, :n_heads]), rtol=1e-5, atol=1e-6
    )


def test_a_position_bias_of_one_head_is_warned_of():
    with pytest.warns(
        UserWarning, match="onnx::Add_7 seem to be tables of position biases .*do_constant_folding=False"
    ):
        trained_on_pairs(with_position_bias(True, drawn(7, 1)), 1)


def with_equal_rows(onx):
    onx.graph.initializer[1].CopyFrom(tensor(onx.graph.initializer[1].name, np.zeros((1, 2, 4, 4), np.float32)))


def with_distinct_values(onx):
    onx.graph.initializer[1].CopyFrom(tensor(onx.graph.initializer[1].name, drawn(1, 2, 4, 4)))


def with_another_reader(onx):
    onx.graph.node[0].op_type = "Mul"


def with_no_softmax(onx):
    """Learned positions: they are added to rows, and may begin as sines, with equal rows."""
    onx.graph.node[1].op_type = "Tanh"


@pytest.mark.parametrize(
    "change, how",
    [
        (with_no_maker, FOLDED),
        (with_equal_rows, FOLDED),
        (with_distinct_values, FOLDED),
        (lambda onx: None, {**FOLDED, "sources": ["bias.weight", "permute"]}),
        (with_another_reader, {}),
        (with_no_softmax, {}),
        (lambda onx: None, {"name": "bias"}),
    ],
    ids=[
        "no maker",
        "equal rows",
        "distinct values",
        "nothing was read",
        "a factor",
        "no scores",
        "a parameter's name",
    ],
)
def test_values_that_no_exporter_read_from_a_table_are_trained_by_themselves(change, how):
    onx = with_position_bias(True, drawn(7, 2), **how)
    change(onx)
    assert trained_on_pairs(onx).weights_[onx.graph.initializer[1].name].shape == (1, 2, 4, 4)


@pytest.mark.filterwarnings("ignore:.* seem to be tables of position biases")
@pytest.mark.parametrize("how", [{}, FOLDED], ids=["its name says so", "its metadata says so"])
def test_single_values_that_are_equal_are_trained_apart(how):
    """A table of one head may begin with equal values: the places do not say which of them are one weight."""
    onx = with_position_bias(True, np.pi * np.array([[3, 1, 2, 2, 1, 1, 3]], np.float32).T, **how)
    assert trained_on_pairs(onx, 1).weights_[onx.graph.initializer[1].name].shape == (1, 1, 4, 4)


@pytest.mark.parametrize("text", ["embedding", "3", "['embedding'", "[1]", "[" * 1000])
def test_metadata_of_a_folded_weight_that_is_no_list_of_names_says_nothing(text):
    onx = language_model(copy=True, said=True)
    onx.graph.value_info[0].metadata_props[0].value = text
    assert list(trained_to_go_on(onx).weights_) == ["embedding", "T"]


def test_outputs_without_trees_are_named_with_the_remedy():
    """As onnxmltools 1.16 writes XGBRegressor of two outputs: all trees add to the first one."""
    node = onnx.helper.make_node(
        "TreeEnsembleRegressor", ["X"], ["Y"], domain="ai.onnx.ml", n_targets=2, base_values=[0.5, 0.25],
        nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[0.0, 0.0, 0.0],
        nodes_modes=["BRANCH_LT", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[1.0, 2.0],
    )  # fmt: skip
    x, y = (onnx.helper.make_tensor_value_info(n, 1, ["n", k]) for n, k in (("X", 3), ("Y", 2)))
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    onx = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=10)
    rows = np.linspace(-1, 1, 30).reshape(10, 3).astype(np.float32)
    with pytest.raises(ModelError, match="has trees for only 1 of 2 outputs. .*MultiOutputRegressor.*per quantile"):
        OrtGradientRegressor(onx, max_iter=1).fit(rows, rows[:, :2])


@pytest.mark.parametrize(
    "classes, ids, words",
    [
        ({}, [0, 1], "a classifier without classes, as CatBoost .*MultiOutputRegressor"),
        ({"classlabels_int64s": [0, 1]}, [0, 2], "trees for more classes than it names, .* with num_parallel_tree=1"),
    ],
)
def test_a_classifier_of_other_classes_is_named_with_the_remedy(classes, ids, words):
    """As CatBoost writes its loss MultiRMSE, and onnxmltools forests of XGBoost; onnxruntime cannot run them either."""
    node = onnx.helper.make_node(
        "TreeEnsembleClassifier", ["X"], ["label", "scores"], domain="ai.onnx.ml", base_values=[0.5, 0.25],
        nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[0.0, 0.0, 0.0],
        nodes_modes=["BRANCH_LT", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        class_treeids=[0, 0], class_nodeids=[1, 2], class_ids=ids, class_weights=[1.0, 2.0], **classes,
    )  # fmt: skip
    x, y = (onnx.helper.make_tensor_value_info(n, 1, ["n", k]) for n, k in (("X", 3), ("scores", 2)))
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    onx = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=10)
    rows = np.linspace(-1, 1, 30).reshape(10, 3).astype(np.float32)
    with pytest.raises(ModelError, match=words):
        OrtGradientRegressor(onx, max_iter=1).fit(rows, rows[:, :2])


#: Nodes that read rows X (n, 2), and the result for rows of NaN; None if they are refused.
MISSING = {
    "trees": (
        """t = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1, nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2],
            nodes_featureids = [0, 0, 0], nodes_values = [0.0, 0.0, 0.0], nodes_modes = ["BRANCH_LT", "LEAF", "LEAF"],
            nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0],
            nodes_missing_value_tracks_true = [1, 0, 0], target_treeids = [0, 0], target_nodeids = [1, 2],
            target_ids = [0, 0], target_weights = [1.0, 2.0]> (X) Y = Identity(t)""",
        1.0,
    ),
    "an imputer": ("F = ai.onnx.ml.Imputer <imputed_value_floats = [3.0, 4.0]> (X) Y = MatMul(F, W)", 7.0),
    "a product": (
        "F = ai.onnx.ml.Imputer <imputed_value_floats = [3.0, 4.0]> (X) Z = Mul(X, F) Y = MatMul(Z, W)",
        None,
    ),
}


@pytest.mark.parametrize("case", MISSING)
def test_files_of_trees_and_imputers_take_missing_values(case):
    nodes, expected = MISSING[case]
    onx = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
        g (float[n,2] X) => (float[n,1] Y) <float[2,1] W = {{1, 1}}> {{ {nodes} }}"""
    )
    for node in onx.graph.node:
        if node.op_type == "Imputer":
            node.attribute.append(onnx.helper.make_attribute("replaced_value_float", np.nan))
    rows = np.array([[-1, 1], [2, 3], [np.nan, np.nan]] * 4, np.float32)
    model = OrtGradientRegressor(onx, max_iter=0)
    if expected is None:
        with pytest.raises(DataError, match="X contains NaN"):
            model.fit(rows, np.arange(12.0))
    else:
        assert model.fit(rows, np.arange(12.0)).predict(rows)[2] == expected


def test_catboost_of_two_outputs_names_the_remedy_that_works(tmp_path):
    library = pytest.importorskip("catboost", reason="catboost is not installed")
    rows = np.linspace(-1, 1, 90).reshape(30, 3).astype(np.float32)
    settings = {"iterations": 3, "depth": 2, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    both = library.CatBoostRegressor(loss_function="MultiRMSE", **settings).fit(rows, rows[:, :2])
    both.save_model(tmp_path / "both.onnx", format="onnx")
    for model in (both, tmp_path / "both.onnx"):
        with pytest.raises((ConversionError, ModelError), match="MultiOutputRegressor"):
            OrtGradientRegressor(model, max_iter=1).fit(rows, rows[:, :2])
    several = MultiOutputRegressor(library.CatBoostRegressor(**settings)).fit(rows, rows[:, :2])
    start = OrtGradientRegressor(several, max_iter=0).fit(rows, rows[:, :2])
    np.testing.assert_allclose(start.predict(rows), several.predict(rows), rtol=1e-5, atol=1e-5)


def test_xgboost_of_two_outputs_names_the_remedy_that_works():
    library = pytest.importorskip("xgboost", reason="xgboost is not installed")
    pytest.importorskip("onnxmltools", reason="onnxmltools is not installed: nothing exports xgboost")
    rows = np.linspace(-1, 1, 90).reshape(30, 3).astype(np.float32)
    estimator = library.XGBRegressor(n_estimators=3, n_jobs=1)
    with pytest.raises(ConversionError, match="MultiOutputRegressor"):
        OrtGradientRegressor(clone(estimator).fit(rows, rows[:, :2]), max_iter=1).fit(rows, rows[:, :2])
    several = MultiOutputRegressor(estimator).fit(rows, rows[:, :2])
    model = OrtGradientRegressor(several, solver="sgd", learning_rate=1e-30, max_iter=1).fit(rows, rows[:, :2])
    np.testing.assert_allclose(model.predict(rows), several.predict(rows), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
@pytest.mark.parametrize(
    "library, name, params, meant",
    [
        ("xgboost", "XGBRegressor", {"objective": "count:poisson"}, "loss='poisson'"),
        ("xgboost", "XGBRegressor", {"objective": "reg:quantileerror", "quantile_alpha": 0.9}, "{'q': 0.9}"),
        ("lightgbm", "LGBMRegressor", {"objective": "poisson"}, "loss='poisson'"),
        ("lightgbm", "LGBMRegressor", {"objective": "quantile", "alpha": 0.9}, "{'q': 0.9}"),
    ],
)
def test_an_objective_that_is_not_trained_is_warned_of(library, name, params, meant):
    kind = getattr(pytest.importorskip(library, reason=f"{library} is not installed"), name)
    pytest.importorskip("onnxmltools", reason=f"onnxmltools is not installed: nothing exports {library}")
    extra = {"verbose": -1} if library == "lightgbm" else {}
    model = kind(n_estimators=3, n_jobs=1, **params, **extra).fit(X, np.exp(SIZE))
    with pytest.warns(UserWarning, match=f"{name} minimizes the loss '.*', but training minimizes .*{meant} to go on"):
        OrtGradientRegressor(model, max_iter=1).fit(X, np.exp(SIZE))
