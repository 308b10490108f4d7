"""``save`` and ``load``: the same estimator comes back, nothing else is let in."""

import json
import os

import numpy as np
import onnx
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.errors import ExportError, ModelError
from onnxtrain.estimators import _file
from onnxtrain.optim import SGD, Cosine
from onnxtrain.training.session import run

X, y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])

pytestmark = pytest.mark.filterwarnings("ignore:Stochastic Optimizer")


def mlp(kind, **params):
    return make_pipeline(StandardScaler(), kind(hidden_layer_sizes=(6,), max_iter=5, random_state=0, **params))


CASES = {
    "default": (OrtGradientRegressor(), X, y),
    "classifier": (OrtGradientClassifier(mlp(MLPClassifier), class_weight={"setosa": 2.0}), IRIS, NAMES[SPECIES]),
    "objects": (OrtGradientClassifier(early_stopping=True), IRIS, NAMES[SPECIES].astype(object)),
    "two classes": (OrtGradientClassifier(class_weight="balanced", loss="hinge"), IRIS[:100], SPECIES[:100] == 1),
    "sgd, cosine": (OrtGradientRegressor(solver=SGD(0.9, nesterov=True), learning_rate=Cosine(1e-3, 0.1)), X, y),
    "penalties": (OrtGradientRegressor(penalty={"coef": {"l1": 1e-3}}, l2=np.float64(1e-3)), X, np.stack([y, y], 1)),
    "huber, mlp": (OrtGradientRegressor(mlp(MLPRegressor), loss="huber", loss_params={"delta": 3}), X, y),
    "lbfgs": (OrtGradientRegressor(solver="lbfgs", dtype="float64", weights_to_train=["intercept"]), X, y),
    "generator": (OrtGradientRegressor(random_state=np.random.RandomState(3)), X, y),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def kept(request, tmp_path):
    model, rows, target = request.param
    model.set_params(max_iter=4, warm_start=True)
    if model.random_state is None:
        model.set_params(random_state=0)
    model.fit(rows, target)
    save(model, tmp_path / "kept.onnx")
    return model, load(tmp_path / "kept.onnx"), rows, target, tmp_path / "kept.onnx"


def test_the_same_comes_back(kept):
    model, twin, rows, target, _ = kept
    assert type(twin) is type(model)
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, method):
            found, expected = getattr(twin, method)(rows), getattr(model, method)(rows)
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == expected.dtype
    np.testing.assert_array_equal(twin.losses(rows, target), model.losses(rows, target))
    for name in ("loss_curve_", "validation_loss_curve_", "best_loss_", "best_iteration_", "n_iter_", "n_features_in_"):
        assert getattr(twin, name) == getattr(model, name), name
    others = ("estimator", "random_state")
    found, expected = twin.get_params(deep=False), model.get_params(deep=False)
    assert {k: v for k, v in found.items() if k not in others} == {k: v for k, v in expected.items() if k not in others}


def test_training_goes_on_at_the_same_bits(kept):
    model, twin, rows, target, _ = kept
    model.fit(rows, target)
    twin.fit(rows, target)
    for name, w in model.weights_.items():
        np.testing.assert_array_equal(twin.weights_[name], w)
    assert twin.loss_curve_ == model.loss_curve_


def test_the_file_is_an_onnx_model(kept):
    model, _, rows, _, path = kept
    onnx.checker.check_model(onnx.load(path))
    expected = model.get_trained_onnx()
    outputs = [o.name for o in expected.graph.output]
    feeds = {expected.graph.input[0].name: rows.astype(model.dtype)}
    for found, wanted in zip(run(onnx.load(path), feeds, outputs=outputs), run(expected, feeds), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_feature_names_and_no_way_back_to_scikit_learn(tmp_path):
    frame = load_diabetes(as_frame=True).data
    save(OrtGradientRegressor(LinearRegression(), max_iter=1).fit(frame, y), tmp_path / "m.onnx")
    twin = load(tmp_path / "m.onnx")
    assert twin.feature_names_in_.tolist() == list(frame.columns)
    with pytest.raises(ExportError, match=r"onnxtrain.save, which holds no scikit-learn objects.*get_trained_onnx"):
        twin.to_sklearn()
    assert twin.set_params(max_iter=2).fit(frame, y).n_iter_ == 2  # its estimator is the trained model


def own_loss(op, y_true, y_pred):
    return op.Abs(op.Sub(y_pred, y_true))


class Own(OrtGradientRegressor):
    pass


@pytest.mark.parametrize(
    "model, message",
    [
        (OrtGradientRegressor(loss=own_loss), r"cannot keep the parameter 'loss', a function.*Register it"),
        (OrtGradientRegressor(learning_rate=lambda step: 1e-3), "cannot keep the parameter 'learning_rate'"),
        (Own(), "Only OrtGradientClassifier and OrtGradientRegressor are kept, got Own"),
    ],
)
def test_what_cannot_be_kept(model, message, tmp_path):
    with pytest.raises(ExportError, match=message):
        save(model.set_params(max_iter=1).fit(X, y), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_nothing_to_keep(tmp_path):
    with pytest.raises(NotFittedError):
        save(OrtGradientRegressor(), tmp_path / "m.onnx")


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept") / "m.onnx"
    save(OrtGradientRegressor(max_iter=2).fit(X, y), path)
    return path.read_bytes()


def test_files_that_were_cut_short_or_changed(content, tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "m.onnx"
    spoiled = [content[:n] for n in rng.integers(0, len(content), 30)] + [content + b"\0"]
    for position in rng.integers(0, len(content), 60):
        changed = bytearray(content)
        changed[position] ^= 1 << rng.integers(8)
        spoiled.append(bytes(changed))
    onnx.save(onnx.load_model_from_string(content), path)  # the same model, written by another
    spoiled.append(path.read_bytes())
    for wrong in spoiled:
        path.write_bytes(wrong)
        with pytest.raises(ModelError, match="cut short or changed afterwards: its checksum is missing or wrong"):
            load(path)


def rewritten(path, content, change):
    """Write a file with another header and the right checksum."""
    path.write_bytes(content)
    model, header, tensors = _file.read(path)
    change(header)
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    proto.metadata_props.add(key="onnxtrain", value=json.dumps(header))
    arrays = [onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()]
    proto.training_info.add().algorithm.initializer.extend(arrays)
    plain = proto.SerializeToString()
    path.write_bytes(plain + _file._trailer(plain))


CHANGES = [
    (dict(format=2, written_by="9.9"), r"written by onnxtrain 9.9, in format 2; this version reads up to 1: install"),
    ({"class": "Popen"}, "The file holds a Popen; known are OrtGradientClassifier, OrtGradientRegressor"),
    (dict(params={"colour": 1}), "is not understood by this version"),
    (dict(params={"loss": {"function": "f"}}), "names the function 'f', and holds no code"),
    (dict(params={"loss": {"pickle": "gASVAAAA"}}), "kind 'pickle', which this version of onnxtrain does not know"),
    (dict(params={"solver": {"optimizer": ["Lion", {}]}}), "names 'Lion', which is not registered here"),
    (dict(state=[]), "is not understood"),
]


@pytest.mark.parametrize("change, message", CHANGES, ids=lambda x: str(x)[:30])
def test_headers_that_are_not_understood(content, tmp_path, change, message):
    rewritten(tmp_path / "m.onnx", content, lambda header: header.update(change))
    with pytest.raises(ModelError, match=message):
        load(tmp_path / "m.onnx")


def test_no_file(tmp_path):
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        load(tmp_path / "m.onnx")


def test_a_failed_writing_leaves_the_former_file(content, tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)

    def full(handle):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        save(OrtGradientRegressor(max_iter=1).fit(X, y), path)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
