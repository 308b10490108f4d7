"""``save`` and ``load``: the same estimator is restored, any other content is refused."""

import json
import os
import pickle
import re
import shutil
import socket
import stat

import numpy as np
import onnx
import onnxruntime
import pytest
from google.protobuf.message import EncodeError
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onnxtrain import LoRA, OrtGradientClassifier, OrtGradientRegressor, load, save, trainable_weights
from onnxtrain.errors import ExportError, FileError, ModelError
from onnxtrain.estimators import file_format
from onnxtrain.graph import held
from onnxtrain.losses import LOSSES, loss
from onnxtrain.optim import SGD, Cosine
from onnxtrain.runtime.session import run

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
    "sgd, cosine": (
        OrtGradientRegressor(solver=SGD(momentum=0.9, nesterov=True), learning_rate=Cosine(1e-3, 0.1)),
        X,
        y,
    ),
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


#: Values of each parameter, of other types than its own too.
OF_EACH_PARAMETER = {
    "accumulate": [2, np.int64(2)],
    "average": [True, 0.5, np.float64(0.5)],
    "batch_axis": [{"a": 0}, {"a": np.int64(0)}],
    "batch_size": [20, np.int64(20)],
    "class_axis": [1, np.int64(1)],
    "class_weight": ["balanced", {0: 1, 1: 2}, {np.int64(0): np.int64(3), 1: 1.5}],
    "clip_norm": [1, 0.5],
    "device": ["cpu"],
    "dtype": ["float64"],
    "early_stopping": [True, np.bool_(True)],
    "features": [None],
    "gradient_builder": ["builtin"],
    "head": ["new"],
    "ignore_index": [-1, np.int64(-1)],
    "init": ["random"],
    "inputs": [{"sr": 16000}, {"sr": 16000.0}, {"sr": np.int64(16000)}, {"sr": [16000]}, {"sr": np.array([1, 2])}],
    "l1": [0, 1, np.float32(0.1)],
    "l1_method": ["proximal"],
    "l2": [0, 1, np.int64(1)],
    "learning_rate": [1, 0.01, Cosine(1, 0), Cosine(np.float64(1e-3), 1e-4)],
    "loss": ["log"],
    "loss_params": [None],
    "max_iter": [0, np.int64(1)],
    "n_iter_no_change": [3],
    "n_threads": [1],
    "on_interrupt": ["raise"],
    "output": [0, np.int64(0), "out"],
    "output_is": ["scores"],
    "pad": [{"a": 0}, {"a": 0.0}, {"a": np.int64(0)}, {"a": True}, {"a": np.float32(0.5)}],
    "penalty": [{"W": {"l2": 1}}, {"W": {"l1": np.float64(0.1)}}],
    "random_state": [1, np.random.RandomState(1)],
    "shuffle": [False],
    "solver": ["sgd", "lbfgs", SGD(momentum=0), SGD(momentum=1e-1)],
    "tol": [0, 1],
    "validation_fraction": [0.3],
    "verbose": [0],
    "warm_start": [True],
    "weights_to_train": ["head", "W", ["W"], ("W",), np.array(["W"]), LoRA(1, alpha=16), LoRA(1, alpha=np.float64(2))],
}


def test_each_parameter_is_among_them():
    assert OF_EACH_PARAMETER.keys() == OrtGradientClassifier().get_params(deep=False).keys() - {"estimator"}


@pytest.mark.parametrize(
    "name, value", [(name, value) for name, values in OF_EACH_PARAMETER.items() for value in values], ids=str
)
def test_each_value_of_a_parameter_comes_back(name, value, tmp_path):
    shape, last = ("n, 2, 1", "z = MatMul(same, W) out = Unsqueeze(z, two)")
    if name != "class_axis":  # which is for a label a position
        shape, last = ("n, 2", "out = MatMul(same, W)")
    onx = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n, t] a, float[k] sr) => (float[{shape}] out)
        <float[2, 2] W = {{1, 2, 0, 1}}, int64[1] two = {{2}}> {{ s = ReduceSum(sr) zero = Sub(s, s)
        same = Add(a, zero) {last} }}"""
    )
    rows, target = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    target = target.reshape(-1, 1) if name == "class_axis" else target
    params = dict(inputs={"sr": [1]}, random_state=0, max_iter=1) | {name: value}
    params |= {"early_stopping": True} if name == "validation_fraction" else {}
    params |= {"l1": 1e-3} if name == "l1_method" else {}
    params |= {"batch_size": 20} if name == "accumulate" else {}  # of two batches
    model = OrtGradientClassifier(onx, **params).fit({"a": rows}, target)
    save(model, tmp_path / "m.onnx")
    twin = load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(twin.predict_proba({"a": rows}), model.predict_proba({"a": rows}))
    if name != "random_state":
        found = twin.get_params(deep=False)[name]
        assert type(found) is type(value)
        pair = (found.get_params(), value.get_params()) if isinstance(value, LoRA) else (found, value)
        np.testing.assert_equal(*pair)


def test_training_goes_on_at_the_same_bits(kept):
    model, twin, rows, target, _ = kept
    model.fit(rows, target)
    twin.fit(rows, target)
    for name, w in model.weights_.items():
        np.testing.assert_array_equal(twin.weights_[name], w)
    assert twin.loss_curve_ == model.loss_curve_


@pytest.mark.parametrize("weights", [None, "*", "*scaler*", ["standardscaler.mean"]], ids=str)
def test_a_file_of_a_pipeline_trains_the_weights_that_the_pipeline_trained(weights, tmp_path):
    scaled = make_pipeline(StandardScaler(), Ridge())
    model = OrtGradientRegressor(scaled, weights_to_train=weights, max_iter=3, random_state=0).fit(X, y)
    save(model, tmp_path / "m.onnx")
    again = load(tmp_path / "m.onnx").fit(X, y)
    assert list(again.weights_) == list(model.weights_)
    save(again, tmp_path / "again.onnx")
    assert list(load(tmp_path / "again.onnx").fit(X, y).weights_) == list(model.weights_)


def test_the_scaler_of_an_exported_pipeline_is_a_buffer():
    model = OrtGradientRegressor(make_pipeline(StandardScaler(), Ridge()), max_iter=1, random_state=0).fit(X, y)
    exported = model.get_trained_onnx()
    kinds = {w.name: w.kind for w in trainable_weights(exported)}
    assert {name for name, kind in kinds.items() if kind == "buffer"} == {"standardscaler.mean", "standardscaler.scale"}
    assert list(OrtGradientRegressor(exported, max_iter=1, random_state=0).fit(X, y).weights_) == list(model.weights_)


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
    with pytest.raises(ExportError, match=r"onnxtrain.save, which contains no scikit-learn objects.*get_trained_onnx"):
        twin.to_sklearn()
    assert twin.set_params(max_iter=2).fit(frame, y).n_iter_ == 2  # its estimator is the trained model


def own_loss(op, y_true, y_pred):
    return op.Abs(op.Sub(y_pred, y_true))


class Own(OrtGradientRegressor):
    pass


@pytest.mark.parametrize(
    "model, message",
    [
        (OrtGradientRegressor(loss=own_loss), r"cannot store the parameter 'loss', of type function.*Register a loss"),
        (OrtGradientRegressor(learning_rate=lambda step: 1e-3), "cannot store the parameter 'learning_rate'"),
        (Own(), "Only OrtGradientClassifier and OrtGradientRegressor can be saved, got Own"),
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
    model, header, tensors = file_format.read(path)
    change(header)
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    proto.metadata_props.add(key="onnxtrain", value=json.dumps(header))
    arrays = [onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()]
    proto.training_info.add().algorithm.initializer.extend(arrays)
    plain = proto.SerializeToString()
    path.write_bytes(plain + file_format._trailer(plain))


CHANGES = [
    (
        dict(format=2, written_by="9.9"),
        r"written by onnxtrain 9.9 in format 2, but this version reads formats up to 1. Install",
    ),
    ({"class": "Popen"}, "The file contains a Popen, expected one of OrtGradientClassifier, OrtGradientRegressor"),
    (dict(params={"colour": 1}), "OrtGradientRegressor has no parameter 'colour'"),
    (dict(params={"loss": {"function": "f"}}), "names the function 'f' without its code"),
    (dict(params={"loss": {"pickle": "gASVAAAA"}}), "kind 'pickle', unknown to this version of onnxtrain"),
    (dict(params={"solver": {"optimizer": ["Lion", {}]}}), "names 'Lion', which is not registered"),
    (dict(state=[]), "cannot read the content"),
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


#: Calls that write an estimator to a file.
WRITERS = {"save": save, "get_trained_onnx": lambda model, path: model.get_trained_onnx(path=path)}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_link_stays_one_and_permissions_stay(write, content, tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "m.onnx", tmp_path / "link.onnx"
    target.write_bytes(content)
    target.chmod(0o600)
    link.symlink_to(target)
    write(OrtGradientRegressor(max_iter=1).fit(X, y), link)
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.read_bytes() == link.read_bytes() != content
    assert [p.name for p in target.parent.iterdir()] == ["m.onnx"]


@pytest.mark.skipif(os.name != "posix", reason="pipes and sockets have names in folders on POSIX")
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_pipes_and_sockets_are_neither_replaced_nor_read(kind, tmp_path, monkeypatch):
    """A pipe that nobody writes to is read for ever; whoever may write to /dev replaced /dev/null by a model."""
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as opened:
        os.mkfifo(kind) if kind == "pipe" else opened.bind(kind)
        model = OrtGradientRegressor(max_iter=1).fit(X, y)
        for write in WRITERS.values():
            with pytest.raises(FileError, match=f"'{kind}' cannot be written: It is a device, a pipe or a socket"):
                write(model, kind)
        with pytest.raises(ModelError, match=f"'{kind}' cannot be read: it is a device, a pipe or a socket"):
            load(kind)
        with pytest.raises(ModelError, match=f"'{kind}' cannot be read: it is a device, a pipe or a socket"):
            model.fit(X, y, checkpoint=kind, resume=True)
    assert [p.name for p in tmp_path.iterdir()] == [kind]
    assert not (tmp_path / kind).is_file()


# --------------------------------------------- files that were changed and signed again

#: What is put in the place of a value of the header.
WRONG = [
    *(None, True, -1, 0, 1e300, "x", "", [], {}, [1, "a", None], 2**70, "\ud800"),
    *({"array": 0}, {"array": 99}, {"array": ["O", [2, -5], [1]]}, {"array": ["U", [10**12], ["a"]]}),
    *({"tuple": [1]}, {"dict": [[1, 2]]}, {"dict": [[[], 2]]}, {"float": "nan"}, {"float": "q"}, {"scalar": 0}),
    *({"optimizer": ["adam", {"beta_1": 7}]}, {"random_state": {"dict": []}}, {"dtype": "O"}, {"dtype": "zz"}),
]


def places(value, path=()):
    """Yield the way to each value inside of JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in items:
        yield (*path, key)
        yield from places(inside, (*path, key))


def change_header(rng, proto, header):
    wholes = json.loads(header.value)
    ways = list(places(wholes))
    *way, last = ways[rng.integers(len(ways))]
    owner = wholes
    for key in way:
        owner = owner[key]
    if rng.random() < 0.3:
        del owner[last]
    else:
        owner[last] = WRONG[rng.integers(len(WRONG))]
    header.value = json.dumps(wholes)


def change_text(rng, proto, header):
    header.value = rng.choice(["", "null", "[]", "{}", "{", '"a"', "1", "[" * 100_000, '{"a":' * 100_000, "9" * 5000])


def change_tensor(rng, proto, header):
    tensors = [*proto.training_info[0].algorithm.initializer, *proto.graph.initializer]
    tensor = tensors[rng.integers(len(tensors))]
    match rng.integers(5):
        case 0:
            tensor.dims[:] = [2**40]
        case 1:
            tensor.data_type = rng.choice([0, 8, 9, 10, 16, 99])
        case 2:
            tensor.raw_data = tensor.raw_data[:-1]
        case 3:
            tensor.name = "other"
        case 4:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="beside.bin")


def change_graph(rng, proto, header):
    match rng.integers(5):
        case 0:
            del proto.graph.node[rng.integers(len(proto.graph.node))]
        case 1:
            proto.graph.output[0].name = "other"
        case 2:
            proto.graph.input[0].name = "other"
        case 3:
            proto.metadata_props.remove(header)
        case 4:
            del proto.training_info[:]


CHANGED = {f.__name__: f for f in (change_header, change_text, change_tensor, change_graph)}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two kept estimators, two checkpoints."""
    folder = tmp_path_factory.mktemp("files")
    regressor = OrtGradientRegressor(max_iter=2, average=True, learning_rate="cosine", random_state=0)
    classifier = OrtGradientClassifier(max_iter=3, early_stopping=True, class_weight="balanced")
    classifier.set_params(random_state=np.random.RandomState(0))
    for model, rows, target in ((regressor, X, y), (classifier, IRIS, NAMES[SPECIES])):
        model.fit(rows, target, checkpoint=folder / f"{type(model).__name__}.checkpoint")
        save(model, folder / f"{type(model).__name__}.onnx")
    return [path.read_bytes() for path in sorted(folder.iterdir())]


@pytest.mark.parametrize("name", CHANGED)
def test_files_that_were_changed_and_signed_again(name, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.bin").write_bytes(b"\0" * 4096)  # nothing is read from here
    rng = np.random.default_rng(0)
    path, size, refused = tmp_path / "m.onnx", len(file_format._trailer(b"")), 0
    n = 300 if name == "change_header" else 50
    for _ in range(n):
        proto = onnx.load_model_from_string(files[rng.integers(len(files))][:-size])
        CHANGED[name](rng, proto, next(p for p in proto.metadata_props if p.key == "onnxtrain"))
        plain = proto.SerializeToString()
        path.write_bytes(plain + file_format._trailer(plain))
        try:
            model = load(path)
            model.predict(IRIS if isinstance(model, OrtGradientClassifier) else X)
        except ModelError:
            refused += 1
    assert refused > n / 2


@pytest.mark.parametrize(
    "part, name, value, words",
    [
        ("attributes", "_n_labels", None, "does not contain n_labels"),
        ("attributes", "_n_labels", True, "_n_labels of the estimator must be of type int, got True"),
        (
            "attributes",
            "feature_names_in_",
            {"array": ["O", [1], [["a"]]]},
            r"array in the file contains a list, \['a'\]",
        ),
        ("model", "scores", {"array": 0}, "scores of TrainableModel must be of type str | None"),
        ("model", "scores", "other", "do not match its graph: other"),
        ("model", "shapes", {"dict": [["X", {"tuple": ["n", 10]}]]}, "shapes of TrainableModel must be"),
        (
            "model",
            "features",
            {"dict": [["X", {"dtype": "<f8"}]]},
            "dtype float64 for the input 'X', but its graph has float32",
        ),
        ("state", "step", 1.0, "step of TrainingState must be of type int, got 1.0"),
        ("state", "loss_curve", {"list": [0.5, "low"]}, "loss_curve of TrainingState must be.*list"),
    ],
)
def test_a_header_with_another_type(part, name, value, words, tmp_path):
    path = tmp_path / "m.onnx"
    save(
        OrtGradientClassifier(max_iter=1, random_state=0).fit(X, 1 - np.eye(3, dtype=int)[np.arange(len(X)) % 3]), path
    )
    proto = onnx.load_model_from_string(path.read_bytes()[: -len(file_format._trailer(b""))])
    (header,) = (p for p in proto.metadata_props if p.key == "onnxtrain")
    whole = json.loads(header.value)
    if part == "model":
        content = next(pair for pair in whole[part]["dict"] if pair[0] == name)
        content[1] = value
    elif value is None:
        del whole[part][name]
    else:
        whole[part][name] = value
    header.value = json.dumps(whole)
    plain = proto.SerializeToString()
    path.write_bytes(plain + file_format._trailer(plain))
    with pytest.raises(ModelError, match=words):
        load(path)


def texts(name):
    return onnx.helper.make_tensor(name, onnx.TensorProto.STRING, [1], ["a"])


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda g: g.node[-1].ClearField("output"), "No node computes the output"),
        (lambda g: g.node[0].input.pop(), "must have 2 inputs, got 1"),
        (lambda g: g.initializer[0].CopyFrom(texts(g.initializer[0].name)), "."),
    ],
)
def test_a_graph_with_nodes_that_are_not_what_their_operators_are(change, words, files, tmp_path):
    path, size = tmp_path / "m.onnx", len(file_format._trailer(b""))
    for content in files:
        proto = onnx.load_model_from_string(content[:-size])
        change(proto.graph)
        plain = proto.SerializeToString()
        path.write_bytes(plain + file_format._trailer(plain))
        with pytest.raises(ModelError, match=words):
            load(path)


def test_bytes_that_were_changed_and_signed_again(files, tmp_path):
    rng = np.random.default_rng(0)
    path, size = tmp_path / "m.onnx", len(file_format._trailer(b""))
    for i in range(100):
        plain = bytearray(files[i % len(files)][:-size])
        for position in rng.integers(0, len(plain), 3):
            plain[position] = rng.integers(256)
        path.write_bytes(bytes(plain) + file_format._trailer(bytes(plain)))
        try:
            found = load(path)
        except ModelError:
            continue
        assert isinstance(found, (OrtGradientRegressor, OrtGradientClassifier))


def test_the_file_that_came_in_is_kept(tmp_path):
    """Its opset, names, nodes and metadata, and each weight once: the graph of the saved file has it as well."""
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 15], producer_name: "another's", metadata_props: ["kept": "yes"]>
        g (float[n, 10] X) => (float[n, 1] Y) { unused = Identity(X) H = MatMul(X, W) R = Relu(H) Y = MatMul(R, V) }"""
    )
    drawn = np.random.default_rng(0).standard_normal
    for name, shape in {"W": (10, 500), "V": (500, 1)}.items():
        onx.graph.initializer.append(onnx.numpy_helper.from_array(drawn(shape).astype(np.float32), name))
    model = OrtGradientRegressor(onx, solver="sgd", weights_to_train=["V"], max_iter=2, random_state=0).fit(X, y)
    save(model, tmp_path / "m.onnx")
    twin = load(tmp_path / "m.onnx")
    assert twin.get_trained_onnx() == model.get_trained_onnx()
    assert twin.get_trained_onnx().opset_import[0].version == 15
    assert onnx.load_model_from_string(twin.estimator) == model.get_trained_onnx()
    assert (tmp_path / "m.onnx").stat().st_size < 1.3 * onx.ByteSize()
    twin.fit(X, y)
    assert {n.name for n in twin.get_trained_onnx().graph.initializer} == {"W", "V"}


# ------------------------------------------------ more than a protobuf message holds


@pytest.fixture
def small_limit(monkeypatch):
    """No message holds more than a header and the weights of a linear model."""
    monkeypatch.setattr(file_format, "LIMIT", 4000)


def fitted_line(max_iter=3, **params):
    model = OrtGradientRegressor(max_iter=max_iter, warm_start=True, random_state=0, **params)
    return model.fit(X, np.stack([y] * 20, axis=1))


def data_of(path):
    return sorted(p.name for p in path.parent.iterdir() if p != path)


def test_the_state_of_training_is_beside_a_file_that_would_be_too_large(small_limit, tmp_path):
    path, Y = tmp_path / "line.onnx", np.stack([y] * 20, axis=1)
    model = fitted_line(solver="adam")
    save(model, path)
    (name,) = data_of(path)
    twin = load(path)
    np.testing.assert_array_equal(twin.predict(X), model.predict(X))
    assert twin.fit(X, Y).loss_curve_ == model.fit(X, Y).loss_curve_
    onx = onnx.load_model(path, load_external_data=False)
    assert {e.value for t in onx.training_info[0].algorithm.initializer for e in t.external_data[:1]} == {name}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: X.astype(np.float32)})
    np.testing.assert_allclose(found[0], load(path).predict(X), rtol=1e-5)
    onnx.checker.check_model(onnx.load_model(path))


def test_the_former_pair_of_files_is_whole_until_it_is_replaced(small_limit, tmp_path, monkeypatch):
    path = tmp_path / "line.onnx"
    other = tmp_path / "line.onnx.0123456789abcdef.data"
    other.write_bytes(b"another's")
    first, second = fitted_line(), fitted_line(4)
    save(first, path)
    before = data_of(path)
    replace = os.replace

    def full(part, target):
        if str(target) == str(path):
            raise OSError(28, "No space left on device")
        replace(part, target)

    monkeypatch.setattr(file_format.os, "replace", full)
    for model in (first, second):  # the state of the first one is there already
        with pytest.raises(FileError, match="cannot be written: No space left on device"):
            save(model, path)
        assert data_of(path) == before
        np.testing.assert_array_equal(load(path).predict(X), first.predict(X))
    monkeypatch.undo()
    save(second, path)  # all in one file now
    assert data_of(path) == [other.name]
    np.testing.assert_array_equal(load(path).predict(X), second.predict(X))


def test_the_files_of_a_killed_save_are_removed_by_a_later_one(small_limit, tmp_path, monkeypatch):
    path, killed = tmp_path / "whole" / "line.onnx", tmp_path / "killed" / "line.onnx"
    path.parent.mkdir()
    first, second, third = fitted_line(), fitted_line(4, solver="adam"), fitted_line(5, solver="adam")
    save(first, path)
    before, replace = data_of(path), os.replace

    def seen(part, target):
        if target == path:  # the tensors of the second are in place
            shutil.copytree(path.parent, killed.parent)
        replace(part, target)

    with monkeypatch.context() as patched:
        patched.setattr(file_format.os, "replace", seen)
        save(second, path)
    left = [killed.with_name(name) for name in data_of(killed) if name not in before]
    assert sorted(p.suffix for p in left) == [".data", ".part"]
    np.testing.assert_array_equal(load(killed).predict(X), first.predict(X))
    save(third, killed)  # another process may be writing the others
    assert len(data_of(killed)) == 3
    for file in left:
        os.utime(file, (0, 0))
    save(third, killed)
    (name,) = data_of(killed)
    assert killed.with_name(name) not in left
    np.testing.assert_array_equal(load(killed).predict(X), third.predict(X))


@pytest.mark.skipif(os.name != "posix", reason="A folder is flushed on POSIX only")
@pytest.mark.parametrize(
    "error, raised",
    [(OSError(22, "Invalid argument"), FileError), (KeyboardInterrupt(), KeyboardInterrupt)],
    ids=["refused", "interrupted"],
)
def test_the_new_pair_of_files_is_whole_where_its_folder_is_not_flushed(
    error, raised, small_limit, tmp_path, monkeypatch
):
    path = tmp_path / "line.onnx"
    first, second = fitted_line(solver="adam"), fitted_line(4, solver="adam")
    save(first, path)
    before = data_of(path)
    fsync, folders = os.fsync, []

    def fail(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            folders.append(handle)
            if len(folders) == 2:  # after the tensors and the model
                raise error
        fsync(handle)

    monkeypatch.setattr(file_format.os, "fsync", fail)
    with pytest.raises(raised):
        save(second, path)
    monkeypatch.undo()
    twin = load(path)
    assert data_of(path) != before
    assert twin.n_iter_ == 4
    np.testing.assert_array_equal(twin.predict(X), second.predict(X))


class Large:
    """A model of more than 2 GiB, as protobuf has it."""

    def ByteSize(self):
        raise EncodeError("Failed to serialize proto")


def test_a_model_that_is_no_message_by_itself(tmp_path):
    with pytest.raises(ExportError, match="does not fit into one ONNX file: Failed to serialize proto"):
        file_format.write(tmp_path / "m.onnx", Large(), {}, [])
    assert not list(tmp_path.iterdir())


def test_one_file_of_tensors_for_each_checkpoint(small_limit, tmp_path):
    path, Y = tmp_path / "line.onnx", np.stack([y] * 20, axis=1)
    seen = []
    model = OrtGradientRegressor(solver="adam", max_iter=4, random_state=0)
    model.fit(X, Y, checkpoint=path, every=1, callback=lambda info: seen.append(data_of(path)))
    names = {name for names in [*seen, data_of(path)] for name in names}
    assert [len(names) for names in seen] == [0, 1, 1, 1]
    assert len(names) == 4
    np.testing.assert_array_equal(load(path).predict(X), model.predict(X))
    (tmp_path / data_of(path)[0]).chmod(0o600)
    path.chmod(0o600)
    save(model.set_params(warm_start=True).fit(X, Y), path)
    (name,) = data_of(path)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


BESIDE = {
    "missing": (lambda data: data.unlink(), "the external data of the model cannot be read"),
    "cut short": (
        lambda data: data.write_bytes(data.read_bytes()[:-1]),
        "does not match its checksum in .*: it was cut short, changed",
    ),
    "changed": (lambda data: data.write_bytes(b"0" * data.stat().st_size), "Copy both files again"),
    "a link out of the folder": (
        lambda data: (data.unlink(), data.symlink_to("/etc/hostname")),
        "outside the folder",
    ),
}


@pytest.mark.parametrize("change, words", BESIDE.values(), ids=BESIDE)
def test_another_file_beside(change, words, small_limit, tmp_path):
    path = tmp_path / "line.onnx"
    save(fitted_line(), path)
    (name,) = data_of(path)
    change(tmp_path / name)
    with pytest.raises(ModelError, match=f"(?i){words}"):
        load(path)


SIGNED = {
    "an absolute path": ("name", "/etc/hostname", "outside the folder"),
    "a folder above": ("name", "../line.onnx", "outside the folder"),
    "no name": ("name", None, "there is no 'None'"),
    "no checksum": ("sha256", None, "does not match its checksum in"),
    "an offset behind the end": ("offset", "1000000", r"The tensor '0' of shape \[.*\] is not in"),
    "an offset before the start": ("offset", "-8", r"The tensor '0' of shape \[.*\] is not in"),
    "an offset that is no number": ("offset", "x", "cannot read the content"),
    "a length beyond memory": ("dims", 2**60, "is not in"),
    "a negative length": ("dims", -3, "is not in"),
}


@pytest.mark.parametrize("name, value, words", SIGNED.values(), ids=SIGNED)
def test_a_reference_that_was_changed_and_signed_again(name, value, words, small_limit, tmp_path):
    path = tmp_path / "line.onnx"
    save(fitted_line(), path)

    def change(proto, header):
        reference = proto.training_info[0].algorithm.initializer[0]
        if name in header["beside"]:
            header["beside"][name] = value
        elif name == "dims":
            reference.dims[:] = [value]
        else:
            next(e for e in reference.external_data if e.key == name).value = value

    proto = onnx.load_model(path, load_external_data=False)
    text = next(p for p in proto.metadata_props if p.key == "onnxtrain")
    header = json.loads(text.value)
    change(proto, header)
    text.value = json.dumps(header)
    del proto.metadata_props[-1]
    plain = proto.SerializeToString()
    path.write_bytes(plain + file_format._trailer(plain))
    with pytest.raises(ModelError, match=words):
        load(path)


def test_a_large_model_computes_the_same_bits_after_it_is_loaded(tmp_path, monkeypatch):
    """Large weights are inputs of its sessions, before and after: with the weights inside, the last bits differ."""
    monkeypatch.setattr(held, "LEAST", 2**16)
    monkeypatch.setattr(held, "LEAST_IN_ALL", 2**18)
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 10] X) => (float[n, 1] Y)
        { H = MatMul(X, W) R = Relu(H) G = MatMul(R, U) S = Relu(G) Y = MatMul(S, V) }"""
    )
    drawn = np.random.default_rng(0).standard_normal
    for name, shape in {"W": (10, 700), "U": (700, 700), "V": (700, 1)}.items():
        w = drawn(shape).astype(np.float32) / np.sqrt(np.float32(shape[0]))
        onx.graph.initializer.append(onnx.numpy_helper.from_array(w, name))
    model = OrtGradientRegressor(onx, max_iter=1, warm_start=True, random_state=0).fit(X, y)
    assert model._trained.source.model.held
    save(model, tmp_path / "m.onnx")
    twin = load(tmp_path / "m.onnx")
    for rows in (X[:1], X[:7], X):
        np.testing.assert_array_equal(twin.predict(rows), model.predict(rows))
    np.testing.assert_array_equal(twin.losses(X, y), model.losses(X, y))
    assert twin.get_trained_onnx() == model.get_trained_onnx()
    again = pickle.loads(pickle.dumps(twin))
    assert twin.fit(X, y).loss_curve_ == model.fit(X, y).loss_curve_ == again.fit(X, y).loss_curve_
    save(twin, tmp_path / "m.onnx")
    np.testing.assert_array_equal(load(tmp_path / "m.onnx").predict(X), model.predict(X))


@pytest.mark.parametrize("name", ["fourth", "my_huber"], ids=["like no other", "like another"])
def test_a_file_with_a_loss_that_is_not_registered_yet(tmp_path, monkeypatch, name):
    def register():
        loss(name)(lambda op, y_true, y_pred: (y_true - y_pred) ** 4)

    path = tmp_path / "model.onnx"
    with monkeypatch.context() as m:
        m.setattr(LOSSES, "_entries", dict(LOSSES))
        register()
        save(OrtGradientRegressor(loss=name, max_iter=1, learning_rate=1e-6).fit(X[:9], X[:9, 0]), path)
    words = f"Unknown loss '{name}'. First import the module that registers it with @onnxtrain.loss('{name}')."
    with pytest.raises(ModelError, match=re.escape(words)):
        load(path)
    monkeypatch.setattr(LOSSES, "_entries", dict(LOSSES))
    register()
    assert load(path).loss == name


def test_labels_in_the_byte_order_of_another_machine(tmp_path):
    """As read from a file of FITS or netCDF; a tensor of ONNX has no other byte order."""
    model = OrtGradientClassifier(max_iter=1, random_state=0).fit(IRIS, SPECIES.astype(">i4"))
    save(model, tmp_path / "m.onnx")
    again = load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(again.classes_, model.classes_)
    np.testing.assert_array_equal(again.predict(IRIS), model.predict(IRIS))
