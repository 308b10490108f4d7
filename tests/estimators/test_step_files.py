"""The training step as files: run without onnxtrain, its weights are those of fit; what it reached goes back."""

from __future__ import annotations

import json
import pathlib
import re
import runpy
import subprocess
import sys

import numpy as np
import onnx
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_digits, load_iris, make_multilabel_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor, VotingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    SGDClassifier,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, average_states, load, save
from onnxtrain.errors import ArgumentTypeError, DataError, ExportError, FileError, ParameterError
from onnxtrain.graph import held
from onnxtrain.optim import SGD, Adagrad, Adam, AdamW, RMSprop
from onnxtrain.runtime.session import run
from onnxtrain.training import portable

RUNNER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "web" / "run_plain.py"
EPOCHS, RATE = 3, 2e-3

DIGITS = tuple(part[:300] for part in load_digits(return_X_y=True))
DIGITS = DIGITS[0] / 16, DIGITS[1]
IRIS = load_iris(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)
DIABETES = StandardScaler().fit_transform(DIABETES[0])[:200], (DIABETES[1][:200] - 150) / 80
TWO = DIABETES[0], np.stack([DIABETES[1], DIABETES[0][:, 2] - DIABETES[0][:, 3]], axis=1)
FLOWERS = IRIS[0][:100], np.array(["setosa", "versicolor"])[IRIS[1][:100]]
LABELS = make_multilabel_classification(120, 8, n_classes=4, random_state=0)
WEIGHT = np.random.default_rng(1).uniform(0.5, 2, 300)

CONV = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 1, 8, 8] image) => (float[N, 10] logits)
    <float[4, 1, 3, 3] filters, float[4] shift, float[36, 10] W, float[10] b, int64[2] flat = {-1, 36}>
    {
        c = Conv(image, filters, shift)
        r = Relu(c)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        f = Reshape(p, flat)
        m = MatMul(f, W)
        logits = Add(m, b)
    }"""
PIXELS = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 1, 8, 8] image) => (float[N, 3, 8, 8] logits)
    <float[3, 1, 3, 3] filters, float[3] shift>
    {
        logits = Conv<pads = [1, 1, 1, 1]>(image, filters, shift)
    }"""
BODY = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 64] X) => (float[N, 10] logits)
    <float[64, 200] body, float[200] shift, float[200, 10] W, float[10] b>
    {
        z = MatMul(X, body)
        a = Add(z, shift)
        h = Relu(a)
        m = MatMul(h, W)
        logits = Add(m, b)
    }"""
TOKENS = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (int64[N, 5] tokens) => (float[N, 3] logits)
    <float[9, 4] table, float[4, 3] W>
    {
        e = Gather(table, tokens)
        m = ReduceMean<axes = [1], keepdims = 0>(e)
        logits = MatMul(m, W)
    }"""
CHOOSING = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 64] X) => (float[N, 10] logits)
    <float[64, 200] body, float[200, 10] W, float[10] b>
    {
        zero = Constant<value = float {0.0}>()
        total = ReduceSum<keepdims = 0>(X)
        some = Greater(total, zero)
        h = If(some) <
            then_branch = yes () => (float[N, 200] h1) { z1 = MatMul(X, body) h1 = Relu(z1) },
            else_branch = no () => (float[N, 200] h2) { z2 = MatMul(X, body) h2 = Neg(z2) }
        >
        m = MatMul(h, W)
        logits = Add(m, b)
    }"""


def network(text):
    """Return a network written in ONNX, its weights drawn."""
    rng, proto = np.random.default_rng(0), onnx.parser.parse_model(text)
    for value in proto.graph.value_info:
        w = rng.normal(scale=0.2, size=[d.dim_value for d in value.type.tensor_type.shape.dim]).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(w, value.name))
    del proto.graph.value_info[:]
    return proto


def mlp(kind, rows, **options):
    return kind(hidden_layer_sizes=(16, 8), tol=10, n_iter_no_change=1, random_state=0, **options).fit(*rows)


def fourth_power(op, y_true, y_pred):
    error = op.Sub(y_pred, y_true)
    return op.ReduceSum(op.Mul(op.Mul(error, error), op.Mul(error, error)), [1], keepdims=1)


C, R = OrtGradientClassifier, OrtGradientRegressor
IMAGES = DIGITS[0].reshape(-1, 1, 8, 8).astype(np.float32), DIGITS[1]

SHADES = (IMAGES[0][:, 0] * 2.99).astype(int)
WORDS = np.arange(600).reshape(120, 5) ** 2 % 9

#: Name: the class, what is trained, the rows, the parameters.
CASES = {
    "network": (C, lambda: mlp(MLPClassifier, DIGITS), DIGITS, {}),
    "network of two classes": (C, lambda: mlp(MLPClassifier, FLOWERS), FLOWERS, {"solver": "sgd"}),
    "network of labels": (C, lambda: mlp(MLPClassifier, LABELS), LABELS, {"solver": Adam(epsilon=1e-6)}),
    "tanh, momentum": (R, lambda: mlp(MLPRegressor, DIABETES, activation="tanh"), DIABETES, {"solver": SGD(momentum=0.9)}),
    "two targets, nesterov": (R, lambda: mlp(MLPRegressor, TWO), TWO, {"solver": SGD(momentum=0.9, nesterov=True)}),
    "rmsprop": (R, lambda: mlp(MLPRegressor, DIABETES), DIABETES, {"solver": RMSprop(centered=True, momentum=0.5)}),
    "adagrad": (R, lambda: mlp(MLPRegressor, DIABETES), DIABETES, {"solver": Adagrad(lr_decay=0.1)}),
    "adamw": (R, lambda: mlp(MLPRegressor, DIABETES), DIABETES, {"solver": AdamW(weight_decay=0.1)}),
    "drawn anew": (R, lambda: mlp(MLPRegressor, DIABETES), DIABETES, {"init": "random"}),
    "linear": (R, LinearRegression, DIABETES, {"solver": "sgd"}),
    "linear, two targets, l2": (R, Ridge, TWO, {"l2": 1e-2}),
    "penalties": (R, lambda: mlp(MLPRegressor, DIABETES), DIABETES, {"l1": 1e-3, "l2": 1e-3}),
    "penalty on one": (R, Ridge, DIABETES, {"penalty": {"coef": {"l1": 0.1, "l2": 0.2}}}),
    "proximal": (R, Ridge, DIABETES, {"l1": 0.2, "l1_method": "proximal"}),
    "proximal, momentum, clipped": (
        R, Ridge, DIABETES, {"l1": 0.2, "l1_method": "proximal", "solver": SGD(momentum=0.9), "clip_norm": 0.5}
    ),
    "clipped": (C, lambda: mlp(MLPClassifier, DIGITS), DIGITS, {"clip_norm": 0.1}),
    "logistic": (C, LogisticRegression, IRIS, {"solver": "rmsprop"}),
    "logistic, two names": (C, LogisticRegression, FLOWERS, {}),
    "hinge": (C, LinearSVC, FLOWERS, {"loss": "hinge"}),
    "focal": (C, SGDClassifier, IRIS, {"loss": "focal"}),
    "one against the rest": (C, lambda: OneVsRestClassifier(LogisticRegression()), IRIS, {}),
    "huber": (R, Ridge, DIABETES, {"loss": "huber"}),
    "quantile": (R, Ridge, DIABETES, {"loss": "quantile", "loss_params": {"q": 0.9}}),
    "a loss of one's own": (R, Ridge, DIABETES, {"loss": fourth_power}),
    "counts": (R, PoissonRegressor, (DIABETES[0], np.exp(DIABETES[1])), {"loss": "poisson"}),
    "kernel": (R, SVR, DIABETES, {"loss": "log_cosh"}),
    "kernel, classes": (C, lambda: SVC().fit(*FLOWERS), FLOWERS, {}),
    "neighbours, weights called y": (R, KNeighborsRegressor, DIABETES, {"weights_to_train": "all"}),
    "trees": (R, lambda: GradientBoostingRegressor(n_estimators=5), DIABETES, {}),
    "votes": (R, lambda: VotingRegressor([("a", Ridge()), ("b", LinearRegression())]), DIABETES, {}),
    "scaled": (C, lambda: make_pipeline(StandardScaler(), PCA(3), LogisticRegression()), IRIS, {}),
    "columns": (
        C,
        lambda: make_pipeline(
            ColumnTransformer([("a", StandardScaler(), [0, 1]), ("b", MinMaxScaler(), [2, 3])]), LogisticRegression()
        ),
        IRIS,
        {},
    ),
    "convolution": (C, lambda: network(CONV), IMAGES, {}),
    "a class for each pixel": (C, lambda: network(PIXELS), (IMAGES[0], SHADES), {"class_axis": 1}),
    "tokens": (C, lambda: network(TOKENS), (WORDS, WORDS[:, 0] % 3), {}),
    "frozen body": (C, lambda: network(BODY), DIGITS, {"weights_to_train": ["W", "b"]}),
    "new head": (C, lambda: network(BODY), DIGITS, {"head": "new", "weights_to_train": "head"}),
    "network, weighted": (C, lambda: mlp(MLPClassifier, DIGITS), DIGITS, {}),
    "linear, weighted, l2": (R, Ridge, DIABETES, {"l2": 0.1}),
    "balanced": (C, LogisticRegression, IRIS, {"class_weight": "balanced"}),
}  # fmt: skip

#: With the sample weights WEIGHT.
WEIGHTED = {"network, weighted", "linear, weighted, l2"}
#: Products with all rows, of which fit takes a batch at a time, are rounded differently.
IN_FRONT = {
    "a graph in the front": (C, lambda: network(CHOOSING), DIGITS, {"weights_to_train": ["W", "b"]}),
}
#: In float64 an exponential of numpy and one of onnxruntime may differ in the last bit.
DOUBLE = {"float64": (R, lambda: mlp(MLPRegressor, DIABETES), DIABETES, {"dtype": "float64"})}
FRONTS = {
    "scaled",
    "columns",
    "frozen body",
    "new head",
    "kernel",
    "kernel, classes",
    "neighbours, weights called y",
    "trees",
}
ALL = CASES | IN_FRONT | DOUBLE


def fitted(name, max_iter=0, **changes):
    """Return the estimator of a case, fitted."""
    kind, make, (X, y), params = ALL[name]
    common = {"learning_rate": RATE, "batch_size": 32, "shuffle": False, "random_state": 0, "tol": 0.0}
    weight = WEIGHT[: len(y)] if name in WEIGHTED else None
    return kind(make(), max_iter=max_iter, **common | params | changes).fit(X, y, weight)


def rows_of(name, folder):
    """Return the rows of a case as a host feeds them, by step.json."""
    about = json.loads((folder / "step.json").read_text())
    _, _, (X, y), params = ALL[name]
    first = about["before"]["inputs"] if about["before"] else about["step"]["inputs"]
    (feature,) = (i for i in first if i not in ("y", "sample_weight", "learning_rate", *map(_name, about["state"])))
    classes = about["classes"]
    label = about["step"]["inputs"][about["label"]]
    y = y if classes is None or len(label["shape"]) == 2 else np.searchsorted(classes, y)
    rows = {feature: np.asarray(X, first[feature]["dtype"]), "y": np.asarray(y, label["dtype"])}
    if about["sample_weight"]:
        weight = WEIGHT[: len(y)] if name in WEIGHTED else np.full(len(y), y[0].size)  # a row counts as its positions
        if "class_weight" in params:
            weight = len(y) / (len(classes) * np.bincount(y)[y])
        rows["sample_weight"] = weight.astype(about["step"]["inputs"]["sample_weight"]["dtype"])
    return rows


def _name(described):
    return described["name"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The files of all cases, each with the state that a process without onnxtrain reached."""
    root = tmp_path_factory.mktemp("steps")
    found = {}
    for i, name in enumerate(ALL):
        found[name] = root / str(i)
        fitted(name).export_training_step(found[name])
        rows = rows_of(name, found[name])
        np.savez(found[name] / "rows.npz", **rows, batch_size=32, epochs=EPOCHS, learning_rate=RATE)
    code = (
        f"import runpy, sys; main = runpy.run_path({str(RUNNER)!r})['main']\n"
        f"for i in range({len(found)}): main(f{str(root) + '/{i}'!r}, f{str(root) + '/{i}/rows.npz'!r})\n"
        "print('loaded:', *(m for m in ('onnxtrain', 'onnxscript', 'sklearn') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded:"
    return found


@pytest.mark.parametrize("name", ALL)
def test_a_plain_runner_reaches_the_weights_of_fit(name, folders):
    expected = fitted(name, max_iter=EPOCHS)
    start = fitted(name)
    found = fitted(name).load_training_state(folders[name])
    moved = max(np.abs(w - start.weights_[n]).max() for n, w in found.weights_.items())
    assert moved > 0
    for weight, w in expected.weights_.items():
        if name in CASES:
            np.testing.assert_array_equal(found.weights_[weight], w, err_msg=weight)
        else:
            atol = (1e-13 if name in DOUBLE else 1e-6) * np.abs(w).max()
            np.testing.assert_allclose(found.weights_[weight], w, rtol=0, atol=atol, err_msg=weight)
    if name not in IN_FRONT:  # an older onnxruntime refuses rows without gaps, which are drawn there
        assert (folders[name] / "before.onnx").exists() == (name in FRONTS)


@pytest.mark.parametrize("name", ["network", "frozen body", "scaled", "two targets, nesterov", "logistic, two names"])
def test_what_comes_back_scores_and_goes_on(name, folders):
    _, _, (X, y), _ = ALL[name]
    expected = fitted(name, max_iter=EPOCHS)
    found = fitted(name).load_training_state(folders[name])
    assert found.score(X, y) == expected.score(X, y)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    expected.partial_fit(X, y)
    found.partial_fit(X, y)
    assert found.loss_curve_[-1] == expected.loss_curve_[-1]
    for weight, w in expected.weights_.items():
        np.testing.assert_array_equal(found.weights_[weight], w, err_msg=weight)


def test_predict_takes_the_weights_from_the_state(folders):
    for name in ("network", "scaled", "frozen body", "two targets, nesterov"):
        folder = folders[name]
        with np.load(folder / "state.npz") as file:
            state = dict(file)
        rows = rows_of(name, folder)
        names = [i.name for i in onnx.load(folder / "predict.onnx").graph.input]
        found = run(onnx.load(folder / "predict.onnx"), {n: {**state, **rows}[n] for n in names})
        trained = fitted(name).load_training_state(state).get_trained_onnx()
        expected = run(trained, {i.name: rows[i.name] for i in trained.graph.input})
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_state_comes_back_as_file_folder_or_arrays(folders, tmp_path):
    folder = folders["linear"]
    expected = fitted("linear", max_iter=EPOCHS).weights_
    with np.load(folder / "state.npz") as file:
        state = dict(file)
    tensors = [onnx.numpy_helper.from_array(x, name) for name, x in state.items()]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "state", [], [], tensors)), tmp_path / "state.onnx")
    for source in (state, folder, folder / "state.npz", tmp_path, str(tmp_path / "state.onnx")):
        found = fitted("linear").load_training_state(source).weights_
        assert all((found[name] == w).all() for name, w in expected.items())


def test_another_solver_begins_at_step_one(tmp_path):
    X, y = DIABETES
    changed = fitted("tanh, momentum", max_iter=3).set_params(solver=Adam())
    away = fitted("tanh, momentum", max_iter=3).set_params(solver=Adam())
    changed.export_training_step(tmp_path)
    assert dict(zip(["step"], run(onnx.load(tmp_path / "init.onnx"), {}, outputs=["step"]), strict=True))["step"] == [1]
    rows = rows_of("tanh, momentum", tmp_path)
    np.savez(tmp_path / "rows.npz", **rows, batch_size=32, epochs=1, learning_rate=RATE)
    subprocess.run([sys.executable, str(RUNNER), str(tmp_path), str(tmp_path / "rows.npz")], check=True, timeout=60)
    away.load_training_state(tmp_path).partial_fit(X, y)
    changed.partial_fit(X, y).partial_fit(X, y)
    assert away._state.step == changed._state.step  # which the schedule of the learning rate counts
    for weight, w in changed.weights_.items():
        np.testing.assert_array_equal(away.weights_[weight], w, err_msg=weight)


def test_a_file_of_rows_that_lacks_some(folders, tmp_path):
    np.savez(tmp_path / "rows.npz", x=IRIS[0], batch_size=32, epochs=1)
    command = [sys.executable, str(RUNNER), str(folders["network"]), str(tmp_path / "rows.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "rows.npz lacks ['X', 'learning_rate', 'y']. It has ['batch_size', 'epochs', 'x']." in done.stderr


def test_a_file_goes_on_where_it_was(folders, tmp_path):
    model = fitted("network").load_training_state(folders["network"])
    save(model, tmp_path / "model.onnx")
    back = load(tmp_path / "model.onnx")
    back.export_training_step(tmp_path / "step")
    init = onnx.load(tmp_path / "step" / "init.onnx")
    names = [o.name for o in init.graph.output]
    with np.load(folders["network"] / "state.npz") as state:
        for name, x in zip(names, run(init, {}), strict=True):
            np.testing.assert_array_equal(x, state[name])


# ---------------------------------------------------------------- the target


def elements(proto):
    """Yield the element type of everything in a model."""
    g = onnx.shape_inference.infer_shapes(proto).graph
    yield from (v.type.tensor_type.elem_type for v in (*g.input, *g.output, *g.value_info))
    yield from (t.data_type for t in g.initializer)
    for node in g.node:
        for a in node.attribute:
            if a.name in ("to", "dtype"):
                yield a.i
            if a.HasField("t"):
                yield a.t.data_type


ON_GPUS = [name for name in (*CASES, *IN_FRONT) if name not in ("trees", "convolution", "a class for each pixel")]


@pytest.mark.parametrize("name", ON_GPUS)
def test_for_webgpu_no_float64(name, folders, tmp_path):
    fitted(name).export_training_step(tmp_path, target="webgpu")
    about = json.loads((tmp_path / "step.json").read_text())
    for file in about["files"].values():
        proto = onnx.load(tmp_path / file)
        assert onnx.TensorProto.DOUBLE not in set(elements(proto))
        assert {node.domain for node in proto.graph.node} <= {"", "ai.onnx"}
    inputs = about["step"]["inputs"]
    assert {inputs[n]["dtype"] for n in inputs if n not in about["rows"]} == {"float32", "int32"}
    assert not any("start" in part for value in about["state"] for part in value["parts"])
    step, init = onnx.load(tmp_path / "step.onnx"), onnx.load(tmp_path / "init.onnx")
    state = dict(zip([o.name for o in init.graph.output], run(init, {}), strict=True))
    rows = rows_of(name, tmp_path)
    if about["before"]:
        before = onnx.load(tmp_path / "before.onnx")
        rows |= dict(
            zip(about["before"]["outputs"], run(before, {n: rows[n] for n in about["before"]["inputs"]}), strict=True)
        )
    rows = {n: x for n, x in rows.items() if n in inputs}
    outputs = [o.name for o in step.graph.output]
    for start in range(0, len(rows["y"]), 32):
        batch = {n: x[start : start + 32] for n, x in rows.items()}
        found = run(step, {**batch, **state, "learning_rate": np.array([RATE], np.float32)}, outputs=outputs)
        state = {n.removeprefix("next_"): x for n, x in zip(outputs, found, strict=True) if n != "loss"}
    back, expected = fitted(name).load_training_state(state), fitted(name, max_iter=1)
    for weight, w in expected.weights_.items():
        np.testing.assert_allclose(back.weights_[weight], w, rtol=0, atol=1e-5 * max(1, np.abs(w).max()))


def test_the_bias_correction_of_the_first_steps_in_float32(tmp_path):
    """1 - 0.999 ** t in float32 is off by 3e-5 for t = 1."""
    solver = Adam(beta_2=0.999999)  # a difference: 5 % off
    model = R(Ridge(), solver=solver, max_iter=0, learning_rate=0.1).fit(*DIABETES)
    model.export_training_step(tmp_path, target="webgpu")
    step, init = onnx.load(tmp_path / "step.onnx"), onnx.load(tmp_path / "init.onnx")
    state = dict(zip([o.name for o in init.graph.output], run(init, {}), strict=True))
    rows = {"X": DIABETES[0].astype(np.float32), "y": DIABETES[1].astype(np.float32)}
    found = run(step, {**rows, **state, "learning_rate": np.array([0.1], np.float32)}, outputs=["next_coef"])[0]
    # the first step of Adam has the length of the learning rate
    np.testing.assert_allclose(np.abs(found - state["coef"]), 0.1, rtol=1e-4)


def test_a_new_export_replaces_the_files_of_another(tmp_path):
    fitted("scaled").export_training_step(tmp_path)
    assert (tmp_path / "before.onnx").exists()
    fitted("logistic").export_training_step(tmp_path)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["init.onnx", "predict.onnx", "step.json", "step.onnx"]


def test_a_frozen_body_is_not_in_the_step(tmp_path):
    text = BODY.replace("float[64, 200] body", "float[64, 3000] body").replace("200", "3000")
    model = C(network(text), weights_to_train=["W", "b"], max_iter=0).fit(*DIGITS)
    model.export_training_step(tmp_path)
    assert (tmp_path / "before.onnx").stat().st_size > 4 * 64 * 3000
    assert (tmp_path / "step.onnx").stat().st_size < 20_000


ANY_SIZE = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[N, c, h, w] X) => (float[N, 10] logits)
    <float[8, 1, 5, 5] filters, float[8, 10] W>
    {
        z = Conv(X, filters)
        p = GlobalAveragePool(z)
        f = Flatten(p)
        logits = MatMul(f, W)
    }"""
FROZEN = {
    "images of any size": (ANY_SIZE, IMAGES),
    "a table of three rows": (TOKENS.replace("float[9, 4] table", "float[3, 4] table"), (WORDS // 3, WORDS[:, 0] % 3)),
}


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_body_is_cut_off_whatever_rows_it_takes(name, tmp_path, capfd):
    text, rows = FROZEN[name]
    save(C(network(text), weights_to_train=["W"], max_iter=0).fit(*rows), tmp_path / "model.onnx")
    load(tmp_path / "model.onnx").export_training_step(tmp_path)
    assert {"Conv", "Gather"} & {node.op_type for node in onnx.load(tmp_path / "before.onnx").graph.node}
    assert not capfd.readouterr().err  # onnxruntime refuses some of the rows that are tried


def test_step_json_says_what_is_what(folders):
    about = json.loads((folders["logistic, two names"] / "step.json").read_text())
    assert about["format"] == "onnxtrain.step"
    assert about["version"] == 1
    assert about["classes"] == ["setosa", "versicolor"]
    assert about["step"]["inputs"]["y"] == {"dtype": "int32", "shape": [about["step"]["inputs"]["X"]["shape"][0]]}
    assert about["host"]["learning_rate"] == RATE
    assert about["host"]["batch_size"] == 32
    (weights,) = (s for s in about["state"] if s["name"] == "packed_weights")
    assert weights["parts"] == [
        {"weight": "coef", "start": 0, "stop": 4, "shape": [4, 1]},
        {"weight": "intercept", "start": 4, "stop": 5, "shape": [1]},
    ]
    for name, folder in folders.items():
        step = onnx.load(folder / "step.onnx").graph
        state = [s["name"] for s in json.loads((folder / "step.json").read_text())["state"]]
        assert [o.name for o in step.output] == ["loss", *(f"next_{s}" for s in state)], name
        assert {*state, "y", "learning_rate"} <= {i.name for i in step.input}
        assert not {t.name for t in step.initializer} & {i.name for i in step.input}, "onnxruntime-node ignores such"
        assert all(len(i.type.tensor_type.shape.dim) > 0 for i in step.input)


TAGGER = """
    <ir_version: 10, opset_import: ["" : 21]>
    tagger (float[n, t, 2] X) => (float[n, t, 3] scores) <float[2, 3] W = {0, 1, 0, 0, 2, 0}> { scores = MatMul(X, W) }"""
HEIGHTS = """
    <ir_version: 10, opset_import: ["" : 21]>
    heights (float[n, t, 2] X) => (float[n, t, 1] Y) <float[2, 1] W = {0, 1}> { Y = MatMul(X, W) }"""

POSITIONS = np.random.default_rng(0).normal(size=(12, 4, 2)).astype(np.float32)
COUNTED = np.arange(48).reshape(12, 4) % 5 > 1


@pytest.mark.parametrize(
    "kind, onx, y, no_label",
    [
        (C, TAGGER, np.where(COUNTED, np.arange(48).reshape(12, 4) % 3, -100), -1),
        (R, HEIGHTS, np.where(COUNTED, POSITIONS.sum(axis=2), np.nan)[..., None], "NaN"),
    ],
    ids=["classes", "values"],
)
def test_step_json_says_how_positions_without_a_label_are_fed(kind, onx, y, no_label, tmp_path):
    params = dict(learning_rate=0.05, batch_size=12, shuffle=False, tol=0)
    start = kind(onnx.parser.parse_model(onx), max_iter=0, **params).fit(POSITIONS, y)
    start.export_training_step(tmp_path)
    about = json.loads((tmp_path / "step.json").read_text())
    assert about["no_label"] == no_label
    label = np.where(COUNTED.reshape(COUNTED.shape + (1,) * (y.ndim - 2)), y, float(about["no_label"]))
    rows = {"X": POSITIONS, about["label"]: label, about["sample_weight"]: COUNTED.sum(axis=1)}
    rows = {name: rows[name].astype(about["step"]["inputs"][name]["dtype"]) for name in rows}
    trainer = runpy.run_path(str(RUNNER))["Trainer"](tmp_path)
    for _ in range(4):
        trainer.step(trainer.rows(rows), 0.05)
    expected = kind(onnx.parser.parse_model(onx), max_iter=4, **params).fit(POSITIONS, y)
    start.load_training_state(trainer.state)
    np.testing.assert_allclose(start.weights_["W"], expected.weights_["W"], rtol=1e-6)


def test_without_positions_every_row_has_a_label(folders):
    found = {name: json.loads((folder / "step.json").read_text())["no_label"] for name, folder in folders.items()}
    assert found == dict.fromkeys(folders) | {"a class for each pixel": -1}


# ---------------------------------------------------------------- refused

TEXTS = ["good day", "bad day", "good", "bad", "fine day", "worse"] * 5, [1, 0, 1, 0, 1, 0] * 5


def sparse_rows():
    import scipy.sparse

    return C(LogisticRegression(), max_iter=0).fit(scipy.sparse.csr_matrix(IRIS[0]), IRIS[1])


def text_rows():
    model = """
        <ir_version: 8, opset_import: ["" : 20, "ai.onnx.ml" : 3]>
        words (string[N, 1] X) => (float[N, 1] Y) <float[1, 1] W = {1.0}>
        {
            i = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_floats = [1.0, 2.0]>(X)
            Y = MatMul(i, W)
        }"""
    X = np.array([["a"], ["b"]] * 10, object)
    return R(onnx.parser.parse_model(model), max_iter=0).fit({"X": X}, np.arange(20.0))


REFUSED = {
    "lbfgs": (
        lambda: R(solver="lbfgs", max_iter=1, tol=1).fit([[0], [1]], [0, 1]),
        "cpu",
        "solver='lbfgs' has no step",
    ),
    "sparse": (sparse_rows, "cpu", "The rows in fit were sparse, but an exported step reads dense tensors"),
    "texts": (text_rows, "cpu", r"The model takes strings \(X\)"),
    "pipeline": (
        lambda: C(make_pipeline(TfidfVectorizer(), LogisticRegression()), max_iter=0).fit(*TEXTS),
        "cpu",
        "scikit-learn runs 'tfidfvectorizer'",
    ),
    "trees": (lambda: fitted("trees"), "webgpu", "ai.onnx.ml.TreeEnsembleRegressor, an operator outside ai.onnx"),
    "pooling": (lambda: fitted("convolution"), "webgpu", "MaxPool with Indices, which the gradient of a MaxPool"),
    "filters": (
        lambda: C(network(CONV.replace("MaxPool", "AveragePool")), max_iter=0).fit(*IMAGES),
        "webgpu",
        "Conv with a number of channels for which onnxruntime's results are or may be wrong",
    ),
    "float64": (lambda: fitted("float64"), "webgpu", r"in float64 \(set dtype='float32'\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_step_that_cannot_be_written_is_refused_with_the_reason(name, tmp_path):
    make, target, words = REFUSED[name]
    model = make()
    with pytest.raises(ExportError, match=words):
        model.export_training_step(tmp_path / "step", target=target)
    assert not (tmp_path / "step").exists()


@pytest.mark.parametrize(
    "file, trained, words",
    [
        ("step", ["body", "shift", "b"], "Train a smaller model"),
        ("init", ["body", "shift"], "Train fewer weights"),
        ("predict", ["W", "b"], "Train a smaller model"),
        ("before", ["W", "b"], "Train a smaller model"),
    ],
)
def test_a_file_that_would_be_no_protobuf_message(file, trained, words, tmp_path, monkeypatch):
    """The limits are those of the file that is asked for: the export writes it in this order or before the others."""
    for name, least in {"LEAST": 2**10, "LEAST_IN_ALL": 2**10}.items():
        monkeypatch.setattr(held, name, least)
    model = C(network(BODY), weights_to_train=trained, solver="sgd", max_iter=0).fit(*DIGITS)
    arrays, check = [], portable._check_size

    def small(name, *args):
        monkeypatch.setattr(portable, "MOST_BYTES", 8_000 if name == f"{file}.onnx" else 2**31)
        arrays.append(name)
        check(name, *args)

    monkeypatch.setattr(portable, "_check_size", small)
    with pytest.raises(ExportError, match=rf"{file}\.onnx would be 0\.0\d GB, but an ONNX file must be below.*{words}"):
        model.export_training_step(tmp_path / "step")
    assert not (tmp_path / "step").exists()


def test_an_unknown_target(tmp_path):
    with pytest.raises(ParameterError, match="target must be 'cpu' or 'webgpu', got 'webgl'. Did you mean 'webgpu'"):
        fitted("linear").export_training_step(tmp_path, target="webgl")


def test_paths_of_other_types():
    with pytest.raises(ArgumentTypeError, match="folder must be the path of a folder, got None"):
        fitted("linear").export_training_step(None)
    with pytest.raises(ArgumentTypeError, match=r"state must be a mapping of names to arrays, .*, got \[1, 2\]"):
        fitted("linear").load_training_state([1, 2])


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        fitted("linear").export_training_step(tmp_path / "file" / "step")


STATES = {
    "missing": (
        lambda s: {n: s[n] for n in s if n != "coef"},
        "The state lacks coef. Expected coef, intercept, .*step, got intercept, ",
    ),
    "another": (
        lambda s: {"w": 1},
        "The state lacks coef, .*step. Expected coef, .*step, got w. It comes from a step of",
    ),
    "unknown": (lambda s: {**s, "more": np.zeros(1)}, "The state also has more"),
    "shape": (lambda s: {**s, "coef": s["coef"][:3]}, r"coef of the state has shape \(3, 1\), expected \(10, 1\)"),
    "diverged": (lambda s: {**s, "coef": s["coef"] * np.nan}, "coef of the state contains values that are not finite"),
    "step 0": (
        lambda s: {**s, "step": [0]},
        r"step of the state must be the number of the next step, 1 or more, got \[0\]",
    ),
    "half a step": (lambda s: {**s, "step": [1.5]}, r"step of the state must be .* got \[1\.5\]"),
    "step in int64": (lambda s: {**s, "step": [2**32 + 1]}, r"step of the state must be .* got \[4294967297\]"),
}


@pytest.mark.parametrize("case", STATES)
def test_a_state_that_does_not_fit(case, folders):
    change, words = STATES[case]
    with np.load(folders["linear"] / "state.npz") as file:
        state = change(dict(file))
    model = fitted("linear")
    before = {n: w.copy() for n, w in model.weights_.items()}
    with pytest.raises(DataError, match=words):
        model.load_training_state(state)
    assert all((model.weights_[n] == w).all() for n, w in before.items())


@pytest.mark.parametrize(
    "name, label",
    [
        ("logistic", 3),
        ("logistic", -1),
        ("hinge", 2),
        ("hinge", -1),
        ("network of labels", 2),
        ("a class for each pixel", 3),
        ("a class for each pixel", -2),
    ],
)
def test_labels_that_are_no_index_of_a_class(name, label, folders):
    trainer = runpy.run_path(str(RUNNER))["Trainer"](folders[name])
    rows = trainer.rows(rows_of(name, folders[name]))
    trainer.step(rows, RATE)
    rows["y"].flat[0] = label
    with pytest.raises(Exception, match="y_must_be_the_index_of_a_class.* out of data bounds"):
        trainer.step(rows, RATE)


X4, X9 = DIABETES[0][:, :4], DIABETES[0][:, :9]
CODES = IRIS[1] + 5

#: The estimator that exports, the one that loads, the words; their states have the same names and shapes.
OTHERS = {
    "weights": (
        lambda: R(Ridge(), max_iter=0).fit(X4, TWO[1]),
        lambda: R(Ridge(), max_iter=0).fit(X9, DIABETES[1]),
        r"This estimator has the weights coef \(9, 1\), intercept \(1,\), but .* lists the weights coef \(4, 2\), intercept \(2,\). ",
    ),
    "classes": (
        lambda: C(LogisticRegression(), max_iter=0).fit(*IRIS),
        lambda: C(LogisticRegression(), max_iter=0).fit(IRIS[0], CODES),
        r"and the classes \[5, 6, 7\], but .* and the classes \[0, 1, 2\]",
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_state_beside_the_description_of_another_step(case, tmp_path):
    make, make_other, words = OTHERS[case]
    model, other = make(), make_other()
    model.export_training_step(tmp_path)
    state = runpy.run_path(str(RUNNER))["Trainer"](tmp_path).state
    np.savez(tmp_path / "state.npz", **state)
    for source in (tmp_path, tmp_path / "state.npz"):
        model.load_training_state(source)
        with pytest.raises(DataError, match=f"The state belongs to another model. .*{words}"):
            other.load_training_state(source)
    (tmp_path / "step.json").write_text("{}")
    with pytest.raises(DataError, match=r"not a valid step description \(KeyError.*Export the step again"):
        model.load_training_state(tmp_path)


def test_a_folder_without_a_state(tmp_path):
    with pytest.raises(DataError, match=re.escape("state.onnx or state.npz in a folder, but there is none")):
        fitted("linear").load_training_state(tmp_path)
    (tmp_path / "state.onnx").write_bytes(b"\x08")
    with pytest.raises(DataError, match="The state cannot be read from"):
        fitted("linear").load_training_state(tmp_path)


def test_a_state_that_unpacks_to_more_than_it_may_hold_is_not_unpacked(tmp_path):
    np.savez_compressed(tmp_path / "state.npz", weights=np.zeros(10**6))
    assert (tmp_path / "state.npz").stat().st_size < 10**5
    with pytest.raises(
        DataError, match=r"it unpacks to 8000\d+ bytes, but the state of this estimator needs less than"
    ):
        fitted("linear").load_training_state(tmp_path)


# ---------------------------------------------------------------- averages


def test_a_federated_round_is_the_fit_of_all_rows(tmp_path):
    """One step of gradient descent on each half, averaged by the rows, is the step on all of them."""
    X, y = (part.astype(np.float32) for part in DIABETES)
    model = R(Ridge(), solver="sgd", max_iter=0).fit(X, y)
    model.export_training_step(tmp_path)
    step, init = onnx.load(tmp_path / "step.onnx"), onnx.load(tmp_path / "init.onnx")
    state = dict(zip([o.name for o in init.graph.output], run(init, {}), strict=True))
    names = [o.name for o in step.graph.output]

    def after(rows):
        feeds = {"X": X[rows], "y": y[rows], "learning_rate": np.array([0.1]), **state}
        return {n.removeprefix("next_"): x for n, x in zip(names, run(step, feeds), strict=True) if n != "loss"}

    parts = slice(0, 50), slice(50, None)
    mean = average_states([after(rows) for rows in parts], [50, len(y) - 50])
    whole = after(slice(None))
    assert mean["step"] == whole["step"] == 2
    for name in ("coef", "intercept"):
        assert mean[name].dtype == np.float32
        np.testing.assert_allclose(mean[name], whole[name], rtol=1e-5, atol=1e-6)
    assert model.load_training_state(mean).weights_["coef"].shape == (10, 1)


WRONG = {
    "none": ([], None, "There is no state to average"),
    "names": ([{"a": np.ones(1)}, {"b": np.ones(1)}], None, "The states have different names or shapes"),
    "shapes": ([{"a": np.ones(1)}, {"a": np.ones(2)}], None, "The states have different names or shapes"),
    "as many": ([{"a": np.ones(1)}], [1, 2], "weights must be 1 non-negative numbers"),
    "negative": ([{"a": np.ones(1)}] * 2, [1, -1], "2 non-negative numbers"),
    "zero": ([{"a": np.ones(1)}], [0], "not all zero"),
    "one state": ({"a": np.ones(1)}, None, r"a list of states, .* average_states\(\[a, b\]\), got a single dict\."),
    "diverged": (
        [{"a": np.ones(1)}, {"a": [np.nan]}],
        [1, 0],
        "'a' of state 1 contains values that are not finite: its training",
    ),
    "arrays": ([np.ones(1)], None, r"a list of states, .* average_states\(\[a, b\]\), got an entry of type ndarray\."),
    "files": (["a.npz"], None, r"got an entry of type str\. Read a file first: dict\(numpy.load\('state.npz'\)\)\."),
}


@pytest.mark.parametrize("case", WRONG)
def test_states_that_cannot_be_averaged(case):
    states, weights, words = WRONG[case]
    with pytest.raises(DataError, match=words):
        average_states(states, weights)
