"""Models whose weights are held once, beside the graph, and trained in one set of buffers."""

from __future__ import annotations

import copy
import gc
import pickle
import tempfile

import numpy as np
import onnx
import onnx.parser
import pytest
from sklearn.base import clone

import onnxtrain
from onnxtrain import LoRA, OrtGradientClassifier, OrtGradientRegressor, graph
from onnxtrain.errors import ConvergenceError, ModelError
from onnxtrain.estimators import trained
from onnxtrain.estimators.source import opened
from onnxtrain.graph import held
from onnxtrain.optim import SGD
from onnxtrain.runtime.session import run
from onnxtrain.training import train

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 6)).astype(np.float32)
Y = (X @ rng.normal(size=(6, 3))).astype(np.float32)
SETTINGS = {"max_iter": 6, "batch_size": 16, "learning_rate": 0.01, "tol": 0, "random_state": 0}


@pytest.fixture
def large(monkeypatch):
    """Weights of four elements are large."""
    monkeypatch.setattr(held, "LEAST", 16)
    monkeypatch.setattr(held, "LEAST_IN_ALL", 16)
    monkeypatch.setattr(train, "LARGE", 1)


def model(opset=17, nodes="h = Gemm(X, W, b) r = Tanh(h) Y = MatMul(r, V)", inputs="float[N,6] X"):
    onx = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> m ({inputs}) => (float[N,3] Y) {{ {nodes} }}'
    )
    draw = np.random.default_rng(1)
    for name, shape in {"W": (6, 8), "b": (8,), "V": (8, 3)}.items():
        w = draw.normal(size=shape).astype(np.float32)
        onx.graph.initializer.append(onnx.numpy_helper.from_array(w, name))
    onx.graph.initializer[0].doc_string = "of the hidden layer"
    onx.metadata_props.add(key="author", value="somebody")
    return onx


def bytes_of(onx):
    return onx.SerializeToString(deterministic=True)


def test_a_model_is_taken_apart_and_put_together(large):
    onx = model()
    small, arrays = graph.detached(onx)
    assert len(arrays) == 3
    assert not any(w.raw_data for w in small.graph.initializer)
    assert graph.held_by_name(small).keys() == {"W", "b", "V"}
    np.testing.assert_array_equal(graph.held_by_name(small)["V"], onnx.numpy_helper.to_array(onx.graph.initializer[2]))
    assert bytes_of(graph.attach(small)) == bytes_of(onx)


def test_arrays_are_found_as_long_as_somebody_has_them(large):
    small, arrays = graph.detached(model())
    graph.read(small)
    del arrays
    gc.collect()
    with pytest.raises(ModelError, match="in another file"):
        graph.read(small)


def test_keys_are_forgotten_with_their_arrays(large):
    gone = [graph.detached(model())[1] for _ in range(5)]
    keys = {key for arrays in gone for key in arrays}
    assert keys <= held._ARRAYS.keys()
    copied = copy.deepcopy(gone[0])
    held.hold(copied)
    del gone
    gc.collect()
    _, arrays = graph.detached(model())
    assert keys & held._ARRAYS.keys() == copied.keys()
    assert arrays.keys() <= held._ARRAYS.keys()


def test_what_stays_in_the_model(large):
    filters = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[N,1,4] X) => (float[N,1,4] Y) { Y = Conv(X, F) }'
    )
    filters.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 1, 8), np.float32), "F"))
    assert graph.detached(filters)[1] == {}
    halves = model()
    halves.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones((6, 8), np.float16), "W"))
    assert len(graph.detached(halves)[1]) == 2


#: Parameters of a fit.
FITS = {
    "all weights": {},
    "sgd": {"solver": "sgd"},
    "momentum": {"solver": SGD(momentum=0.9)},
    "adagrad": {"solver": "adagrad"},
    "the head": {"weights_to_train": "head"},
    "one weight": {"weights_to_train": ["W"]},
    "lora": {"weights_to_train": LoRA(2)},
    "a new head": {"head": "new"},
    "a new head alone": {"head": "new", "weights_to_train": "head"},
    "a new head and lora": {"head": "new", "weights_to_train": LoRA(2)},
    "validation": {"early_stopping": True},
    "average": {"average": True},
    "lbfgs": {"solver": "lbfgs", "learning_rate": 1e-3, "batch_size": "auto"},
    "accumulate": {"accumulate": 3},
    "proximal": {"l1": 0.01, "l1_method": "proximal", "l2": 0.1},
    "float64": {"dtype": "float64"},
    "drawn": {"init": "random"},
}


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize("case", FITS)
def test_fits_are_those_of_small_models(case, opset, request):
    estimator = OrtGradientRegressor(model(opset), **(SETTINGS | FITS[case]))
    expected = clone(estimator).fit(X, Y)
    request.getfixturevalue("large")
    found = clone(estimator).fit(X, Y)
    assert bool(found._trained.source.model.held) == (case != "float64")
    assert found.weights_.keys() == expected.weights_.keys()
    for name, w in expected.weights_.items():
        np.testing.assert_allclose(found.weights_[name], w, rtol=1e-4, atol=1e-5)
        assert found.weights_[name].flags.writeable
    np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-4)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.losses(X, Y), expected.losses(X, Y), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found.gradient(X, Y), expected.gradient(X, Y), rtol=1e-3, atol=1e-4)
    onx = found.get_trained_onnx()
    assert [w.data_location for w in onx.graph.initializer] == [onnx.TensorProto.DEFAULT] * len(onx.graph.initializer)
    np.testing.assert_allclose(run(onx, {"X": X})[0], found.predict(X), rtol=1e-4, atol=1e-5)
    trained = found._trained.source.merged(found.weights_)
    before = {w.name: w for w in model(opset).graph.initializer}
    for w in onx.graph.initializer:
        if w.name not in trained and w.name in before:
            assert bytes_of(w) == bytes_of(before[w.name])


def test_graphs_are_small_and_weights_are_there_once(large):
    tuned = OrtGradientRegressor(model(), weights_to_train=["V"], **SETTINGS).fit(X, Y)
    trained = tuned._trained
    arrays = trained.source.model.held.values()
    assert {np.shares_memory(trained.constants["W"], array) for array in arrays} == {True, False}
    assert trained.constants.keys() == {"W", "b"}
    values = [w.tobytes() for w in arrays]
    for content in (trained.source.original, trained.source.model.onnx, trained.objective.model):
        assert not any(w in content for w in values)


def test_a_step_of_large_weights_holds_its_results_and_the_trained_weights_once(large, monkeypatch):
    loops = []

    class Spied(train.StepLoop):
        def run(self, *args):
            super().run(*args)
            loops.append(self)

    monkeypatch.setattr(train, "StepLoop", Spied)
    tuned = OrtGradientRegressor(model(), **SETTINGS).fit(X, Y)
    assert not loops[0].place.planned
    trained = loops[0].bound.weights(copy=False)
    assert all(np.shares_memory(w, trained[name]) for name, w in tuned.weights_.items())


def test_weights_changed_in_place_are_those_of_the_next_prediction(monkeypatch):
    monkeypatch.setattr(trained, "LIGHT", 0)  # a session of its own, which holds the weights
    estimator = OrtGradientRegressor(model(), **SETTINGS).fit(X, Y)
    assert not estimator._trained.source.model.held
    assert estimator.predict(X).any()
    for name in estimator.weights_:
        estimator.weights_[name][...] = 0
    assert not estimator.predict(X).any()


def test_copies_have_their_own(large):
    tuned = OrtGradientRegressor(model(), weights_to_train=["V"], **SETTINGS).fit(X, Y)
    expected, onx = tuned.predict(X), bytes_of(tuned.get_trained_onnx())
    copied, pickled = copy.deepcopy(tuned), pickle.loads(pickle.dumps(tuned))
    del tuned
    gc.collect()
    for other in (copied, pickled):
        np.testing.assert_array_equal(other.predict(X), expected)
        assert bytes_of(other.get_trained_onnx()) == onx
        other.partial_fit(X, Y)
    del copied
    gc.collect()
    assert np.isfinite(pickled.predict(X)).all()


def test_save_and_load(large, tmp_path):
    tuned = OrtGradientRegressor(model(), weights_to_train=["V"], **SETTINGS).fit(X, Y)
    onnxtrain.save(tuned, tmp_path / "tuned.onnx")
    loaded = onnxtrain.load(tmp_path / "tuned.onnx")
    np.testing.assert_allclose(loaded.predict(X), tuned.predict(X), rtol=1e-5, atol=1e-6)
    loaded.partial_fit(X, Y)
    tuned.partial_fit(X, Y)
    np.testing.assert_allclose(loaded.weights_["V"], tuned.weights_["V"], rtol=1e-5, atol=1e-6)


def test_a_file_and_its_bytes(large, tmp_path):
    onnx.save(model(), tmp_path / "m.onnx")
    onnx.save(model(), tmp_path / "e.onnx", save_as_external_data=True, location="e.data", size_threshold=0)
    estimator = OrtGradientRegressor(model(), **SETTINGS)
    expected = clone(estimator).fit(X, Y)
    for given in (str(tmp_path / "m.onnx"), tmp_path / "e.onnx", bytes_of(model())):
        found = clone(estimator).set_params(estimator=given).fit(X, Y)
        assert found._trained.source.model.held
        np.testing.assert_array_equal(found.weights_["W"], expected.weights_["W"])


def test_weights_of_more_than_a_message_holds(large, tmp_path, monkeypatch):
    """They are read into arrays, not into the model."""
    onnx.save(model(), tmp_path / "e.onnx", save_as_external_data=True, location="e.data", size_threshold=0)
    monkeypatch.setattr(graph.check, "PROTO_LIMIT", 100)
    with pytest.raises(ModelError, match="takes? .* GB"):
        graph.read(tmp_path / "e.onnx")
    small, arrays = opened(tmp_path / "e.onnx", "float32")
    assert len(arrays) == 3
    assert not any(array.flags.writeable for array in arrays.values())
    monkeypatch.undo()
    assert [w.raw_data for w in graph.attach(small).graph.initializer] == [
        w.raw_data for w in model().graph.initializer
    ]


@pytest.mark.parametrize("damage", ["short", "missing"])
def test_damaged_files(large, tmp_path, damage):
    onnx.save(model(), tmp_path / "e.onnx", save_as_external_data=True, location="e.data", size_threshold=0)
    data = tmp_path / "e.data"
    if damage == "short":
        data.write_bytes(data.read_bytes()[:-4])
    else:
        data.unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        OrtGradientRegressor(tmp_path / "e.onnx", **SETTINGS).fit(X, Y)


def test_a_batch_of_fixed_size_is_opened(large):
    onx = model(inputs="float[4,6] X")
    onx.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 4
    found = OrtGradientRegressor(onx, **SETTINGS).fit(X, Y)
    assert not found._trained.source.model.held
    assert found.predict(X).shape == (60, 3)


def test_a_classifier_of_probabilities(large):
    onx = model(nodes="h = Gemm(X, W, b) r = Tanh(h) s = MatMul(r, V) Y = Softmax(s)")
    y = np.array(["a", "b", "c"])[Y.argmax(axis=1)]
    tuned = OrtGradientClassifier(onx, **SETTINGS | {"max_iter": 40}).fit(X, y)
    assert tuned.score(X, y) > 0.9
    np.testing.assert_allclose(run(tuned.get_trained_onnx(), {"X": X})[0], tuned.predict_proba(X), rtol=1e-4, atol=1e-6)


# ------------------------------------------------------- one set of buffers


@pytest.fixture
def folder(large, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_fit_goes_on(folder):
    estimator = OrtGradientRegressor(model(), **SETTINGS)
    once = clone(estimator)
    for _ in range(6):
        once.partial_fit(X, Y)
    whole = clone(estimator).fit(X, Y)
    for name, w in whole.weights_.items():
        np.testing.assert_array_equal(once.weights_[name], w)
    assert not list(folder.iterdir())


def test_callbacks_see_the_weights_of_their_epoch(folder):
    seen = []
    estimator = OrtGradientRegressor(model(), **SETTINGS)
    clone(estimator).fit(X, Y, callback=lambda info: seen.append(info.weights))
    for epoch, weights in enumerate(seen, 1):

        def stop(info, epoch=epoch):
            return info.epoch == epoch

        expected = clone(estimator).fit(X, Y, callback=stop)
        np.testing.assert_array_equal(weights["W"], expected.weights_["W"])


def test_a_fit_that_diverges_keeps_finite_weights(folder):
    estimator = OrtGradientRegressor(model(nodes="h = Gemm(X, W, b) Y = MatMul(h, V)"), **SETTINGS)
    estimator.set_params(solver="sgd", learning_rate=10.0)
    with pytest.raises(ConvergenceError, match="weights .* are kept"):
        estimator.fit(X, Y)
    assert all(np.isfinite(w).all() and w.flags.writeable for w in estimator.weights_.values())
    estimator.set_params(learning_rate=1e-3, warm_start=True, solver="adam").fit(X, Y)


def test_an_interrupt_leaves_the_last_epoch(folder):
    estimator = OrtGradientRegressor(model(), **SETTINGS)
    expected = clone(estimator).fit(X, Y, callback=lambda info: info.epoch == 3)

    def stop(info):
        if info.epoch == 3:
            raise KeyboardInterrupt

    found = clone(estimator)
    with pytest.warns(UserWarning, match="[Ii]nterrupt"):
        found.fit(X, Y, callback=stop)
    np.testing.assert_array_equal(found.weights_["W"], expected.weights_["W"])
    assert not list(folder.iterdir())


def test_a_full_disk(folder, monkeypatch):
    estimator = OrtGradientRegressor(model(), **SETTINGS)
    expected = clone(estimator).fit(X, Y)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    found = clone(estimator).fit(X, Y)
    np.testing.assert_array_equal(found.weights_["W"], expected.weights_["W"])


def test_a_killed_fit_goes_on(folder):
    path = folder / "fit.onnx"
    estimator = OrtGradientRegressor(model(), **SETTINGS)
    expected = clone(estimator).fit(X, Y)

    def die(info):
        if info.epoch == 3:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        clone(estimator).fit(X, Y, checkpoint=path, callback=die)
    resumed = clone(estimator).fit(X, Y, checkpoint=path, resume=True)
    for name, w in expected.weights_.items():
        np.testing.assert_array_equal(resumed.weights_[name], w)
