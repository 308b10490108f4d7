"""Low-rank factors beside weights: trained as in PyTorch, merged on the way out."""

import numpy as np
import onnx
import onnx.parser
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline

import onnxtrain
from onnxtrain import LoRA, OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import ParameterError, WeightError
from onnxtrain.runtime.session import run

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 6)).astype(np.float32)
Y = X @ rng.normal(size=(6, 3)).astype(np.float32)
SGD = {"solver": "sgd", "learning_rate": 0.003, "batch_size": 40, "shuffle": False, "tol": 0, "random_state": 0}

#: Nodes from X (N, 6) to Y, with the weights W, V, and which of them may have factors.
GRAPHS = {
    "MatMul": ("h = MatMul(X, W) r = Tanh(h) Y = MatMul(r, V)", (6, 4), (4, 3), "WV"),
    "Gemm": ("h = Gemm(X, W, c) r = Tanh(h) Y = Gemm(r, V)", (6, 4), (4, 3), "WV"),
    "Gemm, turned": ("h = Gemm <transB = 1> (X, W, c) r = Tanh(h) Y = Gemm <transB = 1> (r, V)", (4, 6), (3, 4), "WV"),
    "Gemm, factors": ("h = Gemm <alpha = 0.5, beta = 2.0> (X, W, c) r = Tanh(h) Y = MatMul(r, V)", (6, 4), (4, 3), "WV"),
    "Gemm of turned rows": (
        "t = Transpose(X) h = Gemm <transA = 1> (t, W, c) r = Tanh(h) Y = MatMul(r, V)",
        (6, 4),
        (4, 3),
        "WV",
    ),
    "turned by a node": ("t = Transpose(W) h = MatMul(X, t) r = Tanh(h) Y = MatMul(r, V)", (4, 6), (4, 3), "WV"),
    "turned by no node": (
        "t = Transpose <perm = [0, 1]> (W) h = MatMul(X, t) r = Tanh(h) Y = MatMul(r, V)",
        (6, 4),
        (4, 3),
        "WV",
    ),
    "used twice": (
        "a = MatMul(X, W) h = Tanh(a) b = MatMul(h, W) r = Tanh(b) Y = MatMul(r, V)",
        (6, 6),
        (6, 3),
        "WV",
    ),
    "used in two ways": (
        "a = MatMul(X, W) i = Constant <value_int = 0> () g = Gather(W, i) b = Add(a, g) h = Tanh(b) Y = MatMul(h, V)",
        (6, 6),
        (6, 3),
        "V",
    ),
    "used turned and not": (
        "a = MatMul(X, W) h = Tanh(a) t = Transpose(W) b = MatMul(h, t) Y = MatMul(b, V)",
        (6, 4),
        (6, 3),
        "V",
    ),
}  # fmt: skip


def model(case, opset=21):
    nodes, w, v, _ = GRAPHS[case]
    onx = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> m (float[N,6] X) => (float[N,3] Y) {{ {nodes} }}'
    )
    draw = np.random.default_rng(1)
    for name, shape in {"W": w, "V": v, "c": (4,)}.items():
        if any(name in node.input for node in onx.graph.node):
            w = draw.normal(size=shape).astype(np.float32) / 2
            onx.graph.initializer.append(onnx.numpy_helper.from_array(w, name))
    return onx


def initializers(onx):
    return {w.name: onnx.numpy_helper.to_array(w) for w in onx.graph.initializer}


def shape_of(onx):
    """Return all of a model but the bytes of its weights."""
    copied = onnx.ModelProto()
    copied.CopyFrom(onx)
    for w in copied.graph.initializer:
        w.raw_data = b""
    return copied


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("case", GRAPHS)
def test_training_starts_at_the_model_and_the_merged_file_is_the_one_that_came(case, opset):
    onx = model(case, opset)
    start = OrtGradientRegressor(onx, weights_to_train=LoRA(rank=2), max_iter=0, **SGD).fit(X, Y)
    np.testing.assert_allclose(start.predict(X), run(onx, {"X": X})[0], rtol=1e-5, atol=1e-6)
    assert {name[0] for name in start.weights_} == set(GRAPHS[case][3])
    assert not any(w.any() for name, w in start.weights_.items() if name.endswith("B"))
    tuned = OrtGradientRegressor(onx, weights_to_train=LoRA(rank=2), max_iter=10, **SGD).fit(X, Y)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    merged = tuned.get_trained_onnx()
    assert shape_of(merged) == shape_of(onx)
    np.testing.assert_allclose(run(merged, {"X": X})[0], tuned.predict(X), rtol=1e-4, atol=1e-5)
    for name in GRAPHS[case][3]:
        assert np.linalg.matrix_rank(initializers(merged)[name] - initializers(onx)[name], tol=1e-5) == 2
    kept = tuned.set_params(weights_to_train__merge=False).get_trained_onnx()
    assert [o.version for o in kept.opset_import] == [opset]
    assert all(np.array_equal(initializers(kept)[name], w) for name, w in initializers(onx).items())
    np.testing.assert_allclose(run(kept, {"X": X})[0], tuned.predict(X), rtol=1e-5, atol=1e-6)


def test_factors_in_a_file_without_types_of_its_results_log_nothing(caplog):
    onx = model("MatMul")
    del onx.graph.value_info[:]
    OrtGradientRegressor(onx, weights_to_train=LoRA(1, merge=False), max_iter=0, **SGD).fit(X, Y).get_trained_onnx()
    assert not caplog.records


def adapted(**params):
    return OrtGradientRegressor(model("MatMul"), weights_to_train=LoRA(rank=2, **params), max_iter=3, **SGD)


@pytest.mark.filterwarnings("ignore:LoRA\\(rank=64\\) has a larger rank")
def test_initial_values_are_those_of_peft():
    start = OrtGradientRegressor(
        model("MatMul"), weights_to_train=LoRA(rank=64, weights="W"), max_iter=0, random_state=1
    )
    a = start.fit(X, Y).weights_["W.lora_A"]
    assert a.shape == (6, 64)
    assert 0.95 / np.sqrt(6) < np.abs(a).max() <= 1 / np.sqrt(6)
    assert np.array_equal(a, clone(start).fit(X, Y).weights_["W.lora_A"])
    assert not np.array_equal(a, clone(start).set_params(random_state=2).fit(X, Y).weights_["W.lora_A"])


#: Words; the class and the words of the error.
WRONG = {
    "no such weight": (
        {"weights": "U*"},
        WeightError,
        "'U\\*' is neither a weight matrix for LoRA.*MatMul or Gemm.*Known: V, W",
    ),
    "no matrix": ({"weights": "c"}, WeightError, "'c' is neither a weight matrix"),
    "no such other weight": ({"besides": "U"}, WeightError, "'U' is neither a weight that the output 'Y' depends on"),
    "rank 0": ({"rank": 0}, ParameterError, "'rank' parameter of LoRA must be an int.*Got 0"),
    "no alpha": ({"alpha": 0}, ParameterError, "'alpha' parameter of LoRA"),
    "an array of words": ({"weights": None}, ParameterError, "'weights' parameter of LoRA"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors(case):
    params, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        OrtGradientRegressor(model("Gemm"), weights_to_train=LoRA(**{"rank": 2} | params), max_iter=1).fit(X, Y)


def test_what_lora_cannot_go_with():
    with pytest.raises(ParameterError, match="init='random' draws new weights.*init='estimator'"):
        adapted().set_params(init="random").fit(X, Y)
    vector = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 21]> m (float[N,6] X) => (float[N,6] Y) <float[6] w = {1,2,3,4,5,6}> '
        "{ Y = Mul(X, w) }"
    )
    with pytest.raises(WeightError, match="the model has none.*leave out weights_to_train"):
        OrtGradientRegressor(vector, weights_to_train=LoRA()).fit(X, X)


def test_weights_besides():
    tuned = OrtGradientRegressor(model("Gemm"), weights_to_train=LoRA(2, weights="W", besides=["c"]), **SGD)
    tuned.set_params(max_iter=3).fit(X, Y)
    assert list(tuned.weights_) == ["W.lora_A", "W.lora_B", "c"]
    tuned.set_params(weights_to_train__besides="head", weights_to_train__weights="*").fit(X, Y)
    assert list(tuned.weights_) == ["W.lora_A", "W.lora_B", "V"]
    merged = initializers(tuned.get_trained_onnx())
    np.testing.assert_array_equal(merged["V"], tuned.weights_["V"])
    np.testing.assert_array_equal(merged["c"], initializers(model("Gemm"))["c"])


def test_a_new_head_is_trained_besides():
    y = np.array(["a", "b", "c", "d"])[np.digitize(Y[:, 0], [-1, 0, 1])]
    tuned = OrtGradientClassifier(model("Gemm"), head="new", weights_to_train=LoRA(rank=2), max_iter=60, random_state=0)
    tuned.set_params(learning_rate=0.02).fit(X, y)
    assert sorted(tuned.weights_) == ["W.lora_A", "W.lora_B", "head.bias", "head.weight"]
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0] / 2
    (scores,) = run(tuned.get_trained_onnx(), {"X": X})
    np.testing.assert_allclose(scores, tuned.decision_function(X), rtol=1e-4, atol=1e-4)


def test_scikit_learn_gets_merged_weights():
    iris, kind = load_iris(return_X_y=True)
    mlp = MLPClassifier((8,), tol=0.1, random_state=0).fit(iris, kind)
    tuned = OrtGradientClassifier(mlp, weights_to_train=LoRA(rank=1), max_iter=20, random_state=0).fit(iris, kind)
    back = tuned.to_sklearn()
    for before, after in zip(mlp.coefs_, back.coefs_, strict=True):
        assert np.linalg.matrix_rank(after - before, tol=1e-5) == 1
    np.testing.assert_array_equal(back.intercepts_[0], mlp.intercepts_[0])
    np.testing.assert_allclose(back.predict_proba(iris), tuned.predict_proba(iris), atol=1e-5)
    found = dict(
        zip(["label", "probabilities"], run(tuned.get_trained_onnx(), {"X": iris.astype(np.float32)}), strict=True)
    )
    np.testing.assert_allclose(found["probabilities"], tuned.predict_proba(iris), atol=1e-5)
    assert not any(".lora_" in w.name for w in tuned.get_trained_onnx().graph.initializer)


def test_of_a_pipeline_the_predictor_has_factors():
    iris, kind = load_iris(return_X_y=True)
    pipeline = make_pipeline(PCA(3), LogisticRegression()).fit(iris, kind)
    tuned = OrtGradientClassifier(pipeline, weights_to_train=LoRA(rank=1), max_iter=1).fit(iris, kind)
    assert list(tuned.weights_) == ["logisticregression.coef.lora_A", "logisticregression.coef.lora_B"]
    named = clone(tuned).set_params(weights_to_train__weights="pca").fit(iris, kind)
    assert list(named.weights_) == ["pca.components.lora_A", "pca.components.lora_B"]


def test_penalties_are_on_the_factors():
    free, held = adapted().fit(X, Y), adapted().set_params(l2=10.0).fit(X, Y)
    for name, w in free.weights_.items():
        assert np.abs(held.weights_[name]).sum() < np.abs(w).sum()
    data = float(np.mean(free.losses(X, Y)))
    l2 = sum(float(np.square(w).sum()) for w in free.weights_.values())
    again = adapted().set_params(l2=10.0, warm_start=True)
    again.fit(X, Y)
    for name, w in free.weights_.items():
        again.weights_[name][...] = w
    again.set_params(max_iter=1).fit(X, Y)
    assert again.loss_curve_[-1] == pytest.approx(data + 10 * l2, rel=1e-5)


# ------------------------------------------------------------------ a fit goes on


def test_save_load_partial_fit_and_clone(tmp_path):
    whole = adapted().set_params(max_iter=6, solver="adam").fit(X, Y)
    once = adapted().set_params(max_iter=6, solver="adam")
    for _ in range(6):
        once.partial_fit(X, Y)
    for name, w in whole.weights_.items():
        np.testing.assert_array_equal(w, once.weights_[name])
    path = tmp_path / "adapted.onnx"
    onnxtrain.save(whole, path)
    loaded = onnxtrain.load(path)
    np.testing.assert_array_equal(loaded.predict(X), whole.predict(X))
    assert loaded.weights_to_train.get_params() == whole.weights_to_train.get_params()
    assert not any(".lora_" in w.name for w in loaded.get_trained_onnx().graph.initializer)
    np.testing.assert_allclose(run(loaded.get_trained_onnx(), {"X": X})[0], whole.predict(X), rtol=1e-4, atol=1e-5)
    loaded.partial_fit(X, Y)
    once.partial_fit(X, Y)
    for name, w in once.weights_.items():
        np.testing.assert_array_equal(w, loaded.weights_[name])


def test_a_killed_fit_goes_on(tmp_path):
    path = tmp_path / "fit.onnx"
    whole = adapted().set_params(max_iter=6, solver="adam").fit(X, Y)

    def die(info):
        if info.epoch == 3:
            raise RuntimeError("killed")

    begun = adapted().set_params(max_iter=6, solver="adam")
    with pytest.raises(RuntimeError, match="killed"):
        begun.fit(X, Y, checkpoint=path, callback=die)
    resumed = clone(begun).fit(X, Y, checkpoint=path, resume=True)
    for name, w in whole.weights_.items():
        np.testing.assert_array_equal(w, resumed.weights_[name])
    with pytest.raises(ParameterError, match="other values of weights_to_train"):
        clone(begun).set_params(weights_to_train__rank=3).fit(X, Y, checkpoint=path, resume=True)


@pytest.mark.parametrize(
    "grid",
    [{"weights_to_train__rank": [1, 2]}, {"weights_to_train": [LoRA(1), LoRA(2), "head"]}],
    ids=["rank", "objects"],
)
def test_a_search(grid):
    search = GridSearchCV(adapted(), grid, cv=2).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    mlp = MLPRegressor(hidden_layer_sizes=(5,), tol=0.5, random_state=0).fit(X, Y)
    search = GridSearchCV(OrtGradientRegressor(mlp, weights_to_train=LoRA(), max_iter=2), grid, cv=2).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
