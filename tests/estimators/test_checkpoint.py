"""A fit that was killed and resumed ends at the same bits as one that was not."""

import errno
import multiprocessing
import os
import time
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import RobustScaler, StandardScaler

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, load
from onnxtrain.errors import DataError, FileError, ModelError, ParameterError
from onnxtrain.optim import SGD, Adaptive, Cosine

X, y = load_diabetes(return_X_y=True)
X, y = StandardScaler().fit_transform(X), y / y.std()
IRIS, SPECIES = load_iris(return_X_y=True)


def own_loss(op, y_true, y_pred):
    return op.Abs(op.Sub(y_pred, y_true))


MLP = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(7,), max_iter=5))

FITS = {
    "generator": (OrtGradientRegressor(MLP, random_state=np.random.RandomState(2), l1=1e-3), X, y, {}),
    "held out": (OrtGradientRegressor(MLP, early_stopping=True, n_iter_no_change=2, learning_rate=0.05), X, y, {}),
    "validation": (OrtGradientRegressor(Ridge(), learning_rate=0.1), X, y, dict(X_val=X[:99] + 0.1, y_val=y[:99])),
    "plateaus": (
        OrtGradientRegressor(solver=SGD(momentum=0.9), learning_rate=Adaptive(0.02), n_iter_no_change=1, tol=1e-3),
        X,
        y,
        {},
    ),
    "cosine": (OrtGradientClassifier(learning_rate=Cosine(0.1), clip_norm=1.0), IRIS, SPECIES, {}),
    "weights": (OrtGradientClassifier(class_weight="balanced"), IRIS, SPECIES, dict(sample_weight=IRIS[:, 0])),
    "sparse": (OrtGradientRegressor(LinearRegression()), scipy.sparse.csr_array(X), y, {}),
    "functions": (OrtGradientRegressor(loss=own_loss, learning_rate=lambda t: 0.1), X, y, {}),
}


class Killed(BaseException):
    """Stands in for what no ``except`` and no ``finally`` sees."""


def fit(name, n_epochs, path=None, killed_after=None, **params):
    """Fit a new estimator; with `killed_after`, end it at once when so many epochs are done."""
    model, rows, target, more = FITS[name]
    (model,) = (type(model)(**model.get_params(deep=False)),)  # estimators that are not fitted stay so
    seed = 5 if model.random_state is None else np.random.RandomState(2)
    model.set_params(max_iter=n_epochs, batch_size=64, random_state=seed)

    def kill(info):
        if info.epoch == killed_after:
            raise Killed

    try:
        return model.fit(rows, target, **more, callback=kill, checkpoint=path, **params)
    except Killed:
        return None


def check_same(a, b):
    for name, w in a.weights_.items():
        np.testing.assert_array_equal(b.weights_[name], w, err_msg=name)
    for key, slot in a._state.slots.items():
        np.testing.assert_array_equal(b._state.slots[key], slot, err_msg=str(key))
    for name in ("loss_curve_", "validation_loss_curve_", "best_loss_", "best_iteration_", "n_iter_"):
        assert getattr(a, name) == getattr(b, name), name
    for name in ("step", "plateaus", "bad_epochs", "stopped"):
        assert getattr(a._state, name) == getattr(b._state, name), name
    assert a._random_state.randint(1 << 30) == b._random_state.randint(1 << 30)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("name", FITS)
def test_goes_on_from_any_epoch(name, every, tmp_path):
    n = 12
    path = tmp_path / "fit.onnx"
    assert fit(name, n, path, killed_after=5, every=every) is None
    stops = name in ("held out", "plateaus")
    assert fit(name, n, path, killed_after=9, every=every, resume=True) is None or stops
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore" if stops else "error", "The checkpoint .* is of a fit that stopped after")
        found = fit(name, n, path, every=every, resume=True)
    check_same(fit(name, n), found)
    with pytest.warns(UserWarning, match="so none was trained"):
        again = fit(name, n, path, resume=True, every=every)  # it had ended
    for key, w in found.weights_.items():
        np.testing.assert_array_equal(again.weights_[key], w)


def test_more_epochs_than_planned(tmp_path):
    fit("weights", 5, tmp_path / "fit.onnx")
    check_same(fit("weights", 9), fit("weights", 9, tmp_path / "fit.onnx", resume=True))


def test_a_warm_start_goes_on_too(tmp_path):
    path = tmp_path / "fit.onnx"
    whole, half = (OrtGradientRegressor(MLP, max_iter=3, random_state=0, warm_start=True).fit(X, y) for _ in range(2))
    whole.fit(X, y)

    def kill(info):
        if info.epoch == 5:
            raise Killed

    with pytest.raises(Killed):
        half.fit(X, y, callback=kill, checkpoint=path)
    found = OrtGradientRegressor(MLP, max_iter=3, random_state=0, warm_start=True)
    found.fit(X, y, checkpoint=path, resume=True)
    check_same(whole, found)
    assert found.to_sklearn().predict(X).shape == y.shape  # the scikit-learn object is there as well


def test_a_callback_that_stopped_the_fit_has_stopped_it(tmp_path):
    model = OrtGradientRegressor(max_iter=9, random_state=0)
    model.fit(X, y, callback=lambda info: info.epoch == 4, checkpoint=tmp_path / "fit.onnx", every=3)
    assert model.n_iter_ == 4
    with pytest.warns(
        UserWarning, match=r"stopped after 4 epochs, because a callback asked .* none was trained. To tr"
    ):
        assert model.fit(X, y, checkpoint=tmp_path / "fit.onnx", resume=True).n_iter_ == 4


def resumed_in_vain(model, path):
    """Return the warning of a fit that resumes from a checkpoint after which no epoch is left."""
    with pytest.warns(UserWarning, match="so none was trained") as found:
        model.fit(X, y, checkpoint=path, resume=True)
    (message,) = (str(w.message) for w in found if "The checkpoint" in str(w.message))
    return message


def test_a_checkpoint_with_all_epochs_says_that_none_is_left(tmp_path):
    path, model = tmp_path / "fit.onnx", OrtGradientRegressor(max_iter=3, random_state=0)
    model.fit(X, y, checkpoint=path)
    message = resumed_in_vain(model, path)
    assert message == (
        f"The checkpoint {str(path)!r} already has all 3 epochs of max_iter=3, so none was trained. Raise max_iter to "
        "train further; it counts the epochs of the checkpoint."
    )
    assert model.set_params(max_iter=5).fit(X, y, checkpoint=path, resume=True).n_iter_ == 5  # filterwarnings = error


@pytest.mark.parametrize("max_iter", [5, 90])
def test_a_checkpoint_of_a_fit_that_stopped_gives_the_reason(max_iter, tmp_path):
    """A larger max_iter trains no further then, also after a stop in the last epoch."""
    path, model = tmp_path / "fit.onnx", OrtGradientRegressor(max_iter=max_iter, tol=9.0, n_iter_no_change=3)
    model.set_params(random_state=0).fit(X, y, checkpoint=path)
    message = resumed_in_vain(model.set_params(max_iter=99), path)
    assert "stopped after 5 epochs, because the loss did not fall by tol=9 for 4 epochs, so none was" in message
    code = message.partition("To train further: onnxtrain.")[2].removesuffix(".")
    assert eval(code, {"load": load, "X": X, "y": y}).n_iter_ > 5  # the remedy, literally


def test_a_checkpoint_is_a_model(tmp_path):
    fit("held out", 12, tmp_path / "fit.onnx", killed_after=3, every=2)
    so_far = load(tmp_path / "fit.onnx")
    assert so_far.n_iter_ == 2
    assert so_far.predict(X).shape == y.shape
    fit("functions", 2, tmp_path / "own.onnx")
    with pytest.raises(
        ModelError, match=r"names the function '(own_loss|.*lambda>)' without its code. Continue by fit"
    ):
        load(tmp_path / "own.onnx")


def test_a_full_disk_does_not_end_a_fit(tmp_path, monkeypatch):
    path, fsync, calls = tmp_path / "fit.onnx", os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) > 2:  # the file of the first epoch and its folder
            raise OSError(errno.ENOSPC, "No space left on device")
        return fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    model = OrtGradientRegressor(loss="absolute_error", max_iter=4, random_state=0)
    words = r"cannot be written: No space left on device\."
    with (
        pytest.warns(UserWarning, match=words + " Training continues; the file is unchanged") as warned,
        pytest.raises(FileError, match=words + " The checkpoint is older than the estimator.*Save it elsewhere"),
    ):
        model.fit(X, y, checkpoint=path)
    assert len(warned) == 1
    assert model.n_iter_ == 4
    assert load(path).n_iter_ == 1
    assert [p.name for p in tmp_path.iterdir()] == ["fit.onnx"]
    monkeypatch.undo()
    check_same(model, clone(model).fit(X, y, checkpoint=path, resume=True))


def test_a_disk_that_has_room_again(tmp_path, monkeypatch):
    fsync = os.fsync

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    def room(info):
        if info.epoch == 2:
            monkeypatch.setattr(os, "fsync", fsync)

    monkeypatch.setattr(os, "fsync", full)
    model = OrtGradientRegressor(max_iter=3, random_state=0)
    with pytest.warns(UserWarning, match="Training continues"):
        model.fit(X, y, checkpoint=tmp_path / "fit.onnx", callback=room)
    check_same(model, load(tmp_path / "fit.onnx"))


def test_parts_of_others_stay_until_they_are_old(tmp_path):
    path, live, dead = (tmp_path / name for name in ("fit.onnx", ".fit.onnx.live.part", ".fit.onnx.dead.part"))
    live.write_bytes(b"half")
    dead.write_bytes(b"half")
    os.utime(dead, (0, 0))
    OrtGradientRegressor(max_iter=1).fit(X, y, checkpoint=path, resume=True)
    assert live.exists()
    assert not dead.exists()


WRONG = [
    (dict(checkpoint="no/such/folder/m.onnx"), {}, ParameterError, "The folder of the checkpoint 'no/such/.*not exist"),
    (dict(checkpoint="."), {}, ParameterError, "must be the path of a file, but '.' is a folder"),
    (dict(checkpoint="n" * 300), {}, ParameterError, "cannot be used: File name too long. Pass another path"),
    (dict(resume=True), {}, ParameterError, "resume=True continues from a file. Pass its path"),
    (dict(checkpoint=3), {}, ParameterError, "checkpoint must be the path of a file, such as 'fit.onnx', got 3"),
    (dict(checkpoint="PATH", every=0), {}, ParameterError, "every must be an integer, 1 or more, got 0"),
    (dict(checkpoint="PATH"), dict(solver="lbfgs"), ParameterError, "not available with solver='lbfgs'"),
    (dict(checkpoint="PATH", resume=True), dict(l2=0.1, loss="huber"), ParameterError, "other values of l2, loss"),
    (dict(checkpoint="PATH", resume=True, sample_weight=y), {}, DataError, "sample weights.*so leave checkpoint out"),
]


@pytest.mark.parametrize("given, params, error, message", WRONG, ids=[row[-1] for row in WRONG])
def test_wrong_use(given, params, error, message, tmp_path):
    OrtGradientRegressor(max_iter=1).fit(X, y, checkpoint=tmp_path / "fit.onnx")
    given = {
        name: tmp_path / "fit.onnx" if isinstance(value, str) and value == "PATH" else value
        for name, value in given.items()
    }
    with pytest.raises(error, match=message):
        OrtGradientRegressor(max_iter=1, **params).fit(X, y, **given)


def test_a_checkpoint_of_another_kind(tmp_path):
    OrtGradientRegressor(max_iter=1).fit(X, y, checkpoint=tmp_path / "fit.onnx")
    with pytest.raises(ParameterError, match="fit.onnx' is of a fit of OrtGradientRegressor, and not of OrtGradientCl"):
        OrtGradientClassifier().fit(IRIS, SPECIES, checkpoint=tmp_path / "fit.onnx", resume=True)
    network = MLPRegressor(tol=1e9, n_iter_no_change=1)
    lines, curves = (clone(network).set_params(hidden_layer_sizes=sizes).fit(X, y) for sizes in ((), (3,)))
    OrtGradientRegressor(lines, max_iter=1).fit(X, y, checkpoint=tmp_path / "lines.onnx")
    with pytest.raises(DataError, match="of a model with other weights"):
        OrtGradientRegressor(curves, max_iter=1).fit(X, y, checkpoint=tmp_path / "lines.onnx", resume=True)


SCALED = make_pipeline(StandardScaler(), LinearRegression())

#: The estimators of a killed fit and of one that resumes from it, and how the second is said to differ.
OTHERS = [
    (Ridge(), Ridge(alpha=1e3), "alpha: 1.0, now 1000.0"),
    (Ridge(), LinearRegression(), "Ridge, now LinearRegression"),
    (MLPRegressor(max_iter=1), MLPRegressor(max_iter=1, activation="tanh"), "activation: 'relu', now 'tanh'"),
    (SCALED, make_pipeline(RobustScaler(), LinearRegression()), "steps: .*StandardScaler.*, now .*RobustScaler.*"),
    (SCALED, Pipeline([("standardscaler", RobustScaler()), SCALED.steps[1]]), "standardscaler: Standard.*, now Robust"),
    (Ridge(), Ridge().fit(X, y), r"Ridge, now Ridge \(fitted\)"),
    (None, Ridge(), "None, now Ridge"),
]


@pytest.mark.parametrize("first, second, difference", OTHERS)
def test_a_checkpoint_of_another_estimator(first, second, difference, tmp_path):
    path = tmp_path / "fit.onnx"
    OrtGradientRegressor(first, max_iter=1, random_state=0).fit(X, y, checkpoint=path)
    with pytest.raises(ParameterError, match=rf"was written with other values of estimator \({difference}"):
        OrtGradientRegressor(second, max_iter=2, random_state=0).fit(X, y, checkpoint=path, resume=True)


def test_an_estimator_with_a_generator_or_more_workers_is_the_same(tmp_path):
    for kind, name, values in (
        (MLPRegressor, "random_state", [np.random.RandomState(0), np.random.RandomState(0)]),
        (LinearRegression, "n_jobs", [None, 2]),
    ):
        for n_epochs, value in enumerate(values, 1):
            tuned = OrtGradientRegressor(kind(**{name: value}), init="random", max_iter=n_epochs)
            tuned.fit(X, y, checkpoint=tmp_path / f"{name}.onnx", resume=True)
        assert tuned.n_iter_ == 2


def test_a_checkpoint_of_another_start(tmp_path):
    line, other = LinearRegression().fit(X, y), LinearRegression().fit(X[:99], y[:99])
    given = dict(checkpoint=tmp_path / "fit.onnx", resume=True)
    OrtGradientRegressor(line, max_iter=1).fit(X, y, **given)
    with pytest.raises(DataError, match="a fit that started from other values of coef, intercept: the estimator or"):
        OrtGradientRegressor(other, max_iter=2).fit(X, y, **given)
    assert OrtGradientRegressor(LinearRegression().fit(X, y), max_iter=2).fit(X, y, **given).n_iter_ == 2


# ------------------------------------------------------------------ SIGKILL

#: Run in a process of its own, forked from one that has imported everything and opened no session.
SCRIPT = """
import warnings
warnings.simplefilter("ignore")
from sklearn.datasets import load_diabetes
from sklearn.neural_network import MLPRegressor
from onnxtrain import OrtGradientRegressor, save
X, y = load_diabetes(return_X_y=True)
mlp = MLPRegressor(hidden_layer_sizes=(20,), max_iter=5)
model = OrtGradientRegressor(mlp, early_stopping=True, max_iter=60, batch_size=16, n_threads=1, n_iter_no_change=60,
                             random_state=1, solver="adamw")
model.fit(X, y / y.std(), checkpoint=path, resume=True)
save(model, done)
"""

PRELOAD = ["onnxtrain.estimators.saving", "skl2onnx", "sklearn.neural_network", "sklearn.datasets"]


def test_two_processes_with_one_checkpoint(tmp_path):
    path, done = tmp_path / "fit.onnx", [tmp_path / name for name in "ab"]
    processes = [start(path, name) for name in done]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    check_same(load(done[0]), load(done[1]))


def start(path, done):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    process = context.Process(target=exec, args=(SCRIPT, {"path": str(path), "done": str(done)}))
    process.start()
    return process


def test_killed_at_random_moments(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("first", "whole"):  # the first run also starts the server that forks
        begin = time.perf_counter()
        start(tmp_path / f"{name}.onnx", tmp_path / f"{name}.done").join()
        duration = time.perf_counter() - begin
    check_same(load(tmp_path / "first.done"), load(tmp_path / "whole.done"))
    kills, chains = 0, 0
    while kills < 20:
        chains += 1
        path, done = tmp_path / f"{chains}.onnx", tmp_path / f"{chains}.done"
        while not done.exists():
            process = start(path, done)
            process.join(rng.uniform(0.1, 0.6) * duration)
            kills += process.is_alive()
            process.kill()
            process.join()
            if path.exists():
                load(path)  # whole, at any moment
        check_same(load(tmp_path / "whole.done"), load(done))


def test_resume_may_be_a_boolean_of_numpy(tmp_path):
    model = OrtGradientRegressor(random_state=0)
    for n_epochs, resume in enumerate((np.bool_(False), np.bool_(True)), 1):
        model.set_params(max_iter=n_epochs).fit(X, y, checkpoint=tmp_path / "fit.onnx", resume=resume)
        assert model.n_iter_ == n_epochs
