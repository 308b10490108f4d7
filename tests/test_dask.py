"""Training on a Dask cluster is training in one process: the weights are compared with those of the plain estimators."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import onnx
import pytest
import scipy.sparse
from onnx import TensorProto, helper, numpy_helper
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import onnxtrain
from onnxtrain.errors import ArgumentTypeError, ClusterError, ConvergenceError, DataError, ExportError, ParameterError
from onnxtrain.optim import SGD, Adam
from onnxtrain.optim.base import OPTIMIZERS

distributed = pytest.importorskip("distributed", reason="onnxtrain.dask needs dask and distributed")
dask = pytest.importorskip("dask", reason="onnxtrain.dask needs dask")
da = pytest.importorskip("dask.array", reason="onnxtrain.dask needs dask[array]")
bag = pytest.importorskip("dask.bag", reason="onnxtrain.dask needs dask")
dd = pytest.importorskip("dask.dataframe", reason="onnxtrain.dask needs dask[dataframe]")
pd = pytest.importorskip("pandas")

import onnxtrain.dask as on_dask  # noqa: E402
from onnxtrain.dask.workers import Workers  # noqa: E402

RNG = np.random.default_rng(0)
X, CLASSES = make_classification(90, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=0)
Y = X @ RNG.normal(size=(5, 2)) + RNG.normal(size=(90, 2))
WEIGHT = RNG.integers(0, 4, 90) / 2  # a quarter of them zero

#: Unequal partitions, one without rows, one of a single row.
CHUNKS = (40, 0, 1, 17, 32)

#: A partition whose rows have no weight.
WEIGHT[58:] *= np.arange(32) > 20
WEIGHT[40] = 0

#: With so large a tol a network is fitted after some epochs, without a warning.
SHORT = dict(tol=1e3, n_iter_no_change=1, random_state=0)
REGRESSOR = MLPRegressor(hidden_layer_sizes=(4,), activation="tanh", **SHORT).fit(X, Y)
CLASSIFIER = MLPClassifier(hidden_layer_sizes=(4,), activation="tanh", **SHORT).fit(X, CLASSES)

COMMON = dict(dtype="float64", batch_size=25, max_iter=2, random_state=0)


def on_workers(*arrays, chunks=CHUNKS):
    return [None if a is None else da.from_array(a, chunks=(chunks, *a.shape[1:])) for a in arrays]


@pytest.fixture(scope="module")
def clients():
    """Clients of clusters inside this process, by the number of workers."""
    made = {}

    def client(n):
        if n not in made:
            cluster = distributed.LocalCluster(
                n_workers=n, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50
            )
            made[n] = cluster, distributed.Client(cluster, set_as_default=False)
        return made[n][1]

    yield client
    for cluster, one in made.values():
        one.close()
        cluster.close()


@pytest.fixture
def client(clients):
    return clients(2)


def assert_same_weights(a, b, atol=1e-12):
    assert a.weights_.keys() == b.weights_.keys()
    for name in b.weights_:
        np.testing.assert_allclose(a.weights_[name], b.weights_[name], rtol=0, atol=atol)


#: Rows so few, and steps so many, are not what a cluster is for: one test is about that warning.
pytestmark = pytest.mark.filterwarnings("ignore:A step takes")

# ------------------------------------------------------------------- weights

STEPS = {
    **{solver: dict(solver=solver) for solver in OPTIMIZERS},
    "momentum": dict(solver=SGD(momentum=0.9, nesterov=True), learning_rate=1e-2),
    "clip": dict(clip_norm=0.1, learning_rate=1e-2),
    "l1": dict(l1=1e-2, l2=1e-2, penalty={"coefs_0": {"l1": 0.1, "l2": 0.2}}),
    "proximal": dict(l1=1e-1, l1_method="proximal", solver=Adam(), learning_rate=1e-2),
    "in order": dict(shuffle=False),
    "accumulate": dict(accumulate=2, batch_size=20),
    "average": dict(average=True),
    "schedule": dict(learning_rate="cosine"),
    "adaptive": dict(learning_rate="adaptive", tol=1e3, n_iter_no_change=1, max_iter=4),
    "no weights": dict(sample_weight=None),
}


@pytest.mark.parametrize("n_workers", [1, 2, 3, 8])
@pytest.mark.parametrize("name", STEPS)
def test_steps_move_the_weights_as_in_one_process(clients, name, n_workers):
    parameters = {**COMMON, **STEPS[name]}
    weight = parameters.pop("sample_weight", WEIGHT)
    names = [w.name for w in onnxtrain.trainable_weights(REGRESSOR)]
    if "penalty" in parameters:
        parameters["penalty"] = {names[0]: parameters["penalty"]["coefs_0"]}
    here = onnxtrain.OrtGradientRegressor(REGRESSOR, **parameters).fit(X, Y, weight)
    dX, dy, dw = on_workers(X, Y, weight)
    there = on_dask.OrtGradientRegressor(REGRESSOR, client=clients(n_workers), **parameters).fit(dX, dy, dw)
    assert_same_weights(there, here)
    np.testing.assert_allclose(there.loss_curve_, here.loss_curve_, rtol=1e-12)
    assert there.n_iter_ == here.n_iter_


@pytest.mark.parametrize("parameters", [dict(l2=1e-2), dict(l1=1e-2), dict(loss="absolute_error")])
def test_lbfgs_gives_the_same_bits_for_any_number_of_workers(clients, parameters):
    parameters = dict(solver="lbfgs", dtype="float64", max_iter=15, tol=0.0) | parameters
    dX, dy, dw = on_workers(X, Y, WEIGHT)
    found = [
        on_dask.OrtGradientRegressor(REGRESSOR, client=clients(n), **parameters).fit(dX, dy, dw) for n in (1, 2, 8)
    ]
    for other in found[1:]:
        assert all(np.array_equal(other.weights_[name], w) for name, w in found[0].weights_.items())
        assert other.loss_curve_ == found[0].loss_curve_
    here = onnxtrain.OrtGradientRegressor(REGRESSOR, **parameters).fit(X, Y, WEIGHT)
    np.testing.assert_allclose(found[0].loss_curve_, here.loss_curve_, rtol=1e-6)


def test_a_linear_model_ends_at_the_minimum_whatever_the_sample_it_began_with(client):
    dX, dy = on_workers(X, Y)
    line = on_dask.OrtGradientRegressor(solver="lbfgs", dtype="float64", tol=1e-10, client=client).fit(dX, dy)
    exact = LinearRegression().fit(X, Y)
    np.testing.assert_allclose(line.coef_, exact.coef_, atol=1e-7)
    np.testing.assert_allclose(line.intercept_, exact.intercept_, atol=1e-7)
    np.testing.assert_allclose(line.to_sklearn().predict(X), exact.predict(X), atol=1e-6)


def test_float32_rows(client):
    """Rows of float32 are not copied; the result of a batch is rounded to float32 where gradients are added."""
    parameters = COMMON | dict(dtype="float32")
    rows = X.astype(np.float32)
    here = onnxtrain.OrtGradientRegressor(REGRESSOR, **parameters).fit(rows, Y)
    there = on_dask.OrtGradientRegressor(REGRESSOR, client=client, **parameters).fit(*on_workers(rows, Y))
    assert_same_weights(there, here, atol=1e-6)
    assert there.predict(on_workers(rows)[0]).dtype == np.float32


# ------------------------------------------------------------------- classes


@pytest.mark.parametrize("class_weight", [None, "balanced", {"a": 2.0}])
def test_classes_and_their_weights_are_those_of_all_partitions(client, class_weight):
    order = np.argsort(CLASSES, kind="stable")  # a partition has one class or two
    labels = np.array(["a", "b", "c"])[CLASSES[order]]
    parameters = COMMON | dict(class_weight=class_weight)
    model = MLPClassifier(hidden_layer_sizes=(4,), **SHORT).fit(X[order], labels)
    here = onnxtrain.OrtGradientClassifier(model, **parameters).fit(X[order], labels, WEIGHT)
    there = on_dask.OrtGradientClassifier(model, client=client, **parameters).fit(*on_workers(X[order], labels, WEIGHT))
    assert_same_weights(there, here)
    assert there.classes_.tolist() == ["a", "b", "c"]
    dX = on_workers(X)[0]
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        lazy, expected = getattr(there, method)(dX), getattr(here, method)(X)
        assert isinstance(lazy, da.Array)
        assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
        computed = lazy.compute(scheduler="sync")
        if method == "predict":
            assert (computed == expected).all()
        else:
            np.testing.assert_allclose(computed, expected, atol=1e-12)
        np.testing.assert_array_equal(getattr(there, method)(X), getattr(there.to_local(), method)(X))


def test_balanced_classes_do_not_count_rows_of_weight_zero(client):
    weight = np.where((CLASSES == 0) & (np.arange(len(CLASSES)) % 4 > 0), 0.0, WEIGHT)
    parameters = COMMON | dict(class_weight="balanced")
    model = MLPClassifier(hidden_layer_sizes=(4,), **SHORT).fit(X, CLASSES)
    here = onnxtrain.OrtGradientClassifier(model, **parameters).fit(X, CLASSES, weight)
    there = on_dask.OrtGradientClassifier(model, client=client, **parameters).fit(*on_workers(X, CLASSES, weight))
    assert_same_weights(there, here)


def test_several_labels_a_row(client):
    labels = np.stack([CLASSES == 0, CLASSES > 0, X[:, 0] > 0], axis=1).astype(int)
    model = MLPClassifier(hidden_layer_sizes=(4,), **SHORT).fit(X, labels)
    here = onnxtrain.OrtGradientClassifier(model, **COMMON).fit(X, labels)
    dX, dy = on_workers(X, labels)
    there = on_dask.OrtGradientClassifier(model, client=client, **COMMON).fit(dX, dy)
    assert_same_weights(there, here)
    assert there.score(dX, dy) == pytest.approx(accuracy_score(labels, here.predict(X)))
    with pytest.raises(ParameterError, match="class_weight='balanced' needs one class per row on a cluster"):
        on_dask.OrtGradientClassifier(model, client=client, class_weight="balanced").fit(dX, dy)
    sparse = dy.map_blocks(scipy.sparse.csr_matrix, meta=scipy.sparse.csr_matrix((0, 3), dtype=int))
    assert_same_weights(on_dask.OrtGradientClassifier(model, client=client, **COMMON).fit(dX, sparse), there)
    assert there.score(dX, sparse) == there.score(dX, dy)


def test_weights_of_labels_that_a_partition_lacks(client):
    labels = np.stack([np.arange(90) < 10, X[:, 0] > 0], axis=1).astype(int)
    parameters = COMMON | dict(class_weight=[{1: 5.0}, {1: 0.5}])
    model = MLPClassifier(hidden_layer_sizes=(4,), **SHORT).fit(X, labels)
    here = onnxtrain.OrtGradientClassifier(model, **parameters).fit(X, labels)
    there = on_dask.OrtGradientClassifier(model, client=client, **parameters).fit(*on_workers(X, labels))
    assert_same_weights(there, here)


@pytest.mark.filterwarnings("ignore:The validation set")
def test_classes_of_validation_rows_are_weighted_as_in_training(client):
    parameters = COMMON | dict(class_weight="balanced", max_iter=4)
    order = np.argsort(CLASSES, kind="stable")[:50]  # another share of each class than in training
    here = onnxtrain.OrtGradientClassifier(CLASSIFIER, **parameters)
    here.fit(X, CLASSES, X_val=X[order], y_val=CLASSES[order], sample_weight_val=WEIGHT[order])
    rows = on_workers(X[order], CLASSES[order], WEIGHT[order], chunks=(20, 0, 30))
    names = ("X_val", "y_val", "sample_weight_val")
    there = on_dask.OrtGradientClassifier(CLASSIFIER, client=client, **parameters)
    there.fit(*on_workers(X, CLASSES), **dict(zip(names, rows, strict=True)))
    np.testing.assert_allclose(there.validation_loss_curve_, here.validation_loss_curve_, rtol=1e-12)


def test_a_series_of_texts(client):
    texts = pd.Series(np.array(["bad day", "good day", "fine night"])[CLASSES])
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, CLASSES)
    here = onnxtrain.OrtGradientClassifier(model, **COMMON).fit(texts, CLASSES)
    rows, labels = (dd.from_pandas(pd.Series(a), npartitions=3, sort=False) for a in (texts, CLASSES))
    there = on_dask.OrtGradientClassifier(model, client=client, **COMMON).fit(rows, labels)
    assert_same_weights(there, here)
    assert there.score(rows, labels) == here.score(texts, CLASSES)


def test_positions_count_alike_in_all_partitions(client):
    """A partition in which each row has two labels, and one in which each has four: a row counts as its labels do."""
    W = numpy_helper.from_array(RNG.normal(size=(3, 2)).astype(np.float32), "W")
    nodes = [helper.make_node("MatMul", ["X", "W"], ["Y"])]
    shapes = {"X": ["n", 4, 3], "Y": ["n", 4, 2]}
    given, out = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in "XY")
    opset = [helper.make_opsetid("", 21)]
    model = helper.make_model(helper.make_graph(nodes, "g", [given], [out], [W]), opset_imports=opset, ir_version=10)
    rows = RNG.normal(size=(20, 4, 3))
    labels = (rows.sum(axis=2) > 0).astype(np.int64)
    labels[:10, 2:] = -100
    params = COMMON | {"batch_size": 20}
    here = onnxtrain.OrtGradientClassifier(model, **params).fit(rows, labels)
    dX, dy = on_workers(rows, labels, chunks=(10, 10))
    there = on_dask.OrtGradientClassifier(model, client=client, **params).fit(dX, dy)
    assert_same_weights(there, here)
    assert there.score(dX, dy) == pytest.approx(here.score(rows, labels))
    assert (there.predict(dX).compute() == here.predict(rows)).all()


# -------------------------------------------------------------------- frames


def test_frames_keep_their_names_and_types_of_columns(client):
    frame = pd.DataFrame(X, columns=list("vwxyz")).assign(colour=np.array(["red", "green", "blue"])[CLASSES])
    target = pd.Series(Y[:, 0])
    front = make_column_transformer((OneHotEncoder(), ["colour"]), (StandardScaler(), list("vwxyz")))
    model = make_pipeline(front, LinearRegression()).fit(frame, target)
    here = onnxtrain.OrtGradientRegressor(model, **COMMON).fit(frame, target)
    ddf, ddy = dd.from_pandas(frame, npartitions=3), dd.from_pandas(target, npartitions=3)
    there = on_dask.OrtGradientRegressor(model, client=client, **COMMON).fit(ddf, ddy)
    assert there.feature_names_in_.tolist() == [*"vwxyz", "colour"]
    assert_same_weights(there, here)
    np.testing.assert_allclose(there.predict(ddf).compute(), here.predict(frame), atol=1e-12)
    assert there.score(ddf, ddy) == pytest.approx(here.score(frame, target))


def test_names_of_columns_are_those_of_the_last_fit(client):
    rows = dd.from_pandas(pd.DataFrame(X, columns=list("abcde")), npartitions=2)
    model = on_dask.OrtGradientClassifier(client=client, max_iter=1).fit(rows, dd.from_pandas(pd.Series(CLASSES), 2))
    assert model.feature_names_in_.tolist() == list("abcde")
    dX, dy = on_workers(X, CLASSES)
    assert not hasattr(model.fit(dX, dy), "feature_names_in_")
    assert not hasattr(model.to_local(), "feature_names_in_")


def test_a_column_that_is_the_label_is_warned_of(client):
    rows = dd.from_pandas(pd.DataFrame(X, columns=list("abcde")).assign(kind=CLASSES), npartitions=2)
    model = on_dask.OrtGradientClassifier(client=client, max_iter=1)
    with pytest.warns(UserWarning, match=r"The column 'kind' of X has the values of y.* X.drop\(columns='kind'\)"):
        model.fit(rows, rows["kind"])
    model.fit(rows.drop(columns="kind"), rows["kind"])  # filterwarnings = error


def test_the_frozen_front_is_computed_once_by_the_workers(client):
    model = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(300, 300), **SHORT))
    model.fit(X, Y[:, 0])
    last = [w.name for w in onnxtrain.trainable_weights(model)][-2:]
    parameters = COMMON | dict(weights_to_train=last, max_iter=40, learning_rate=1e-2)
    here = onnxtrain.OrtGradientRegressor(model, **parameters).fit(X, Y[:, 0])
    there = on_dask.OrtGradientRegressor(model, client=client, **parameters).fit(*on_workers(X, Y[:, 0]))
    assert there._trained.front is not None
    assert_same_weights(there, here, atol=1e-10)
    np.testing.assert_allclose(there.predict(X), here.predict(X), atol=1e-9)


# -------------------------------------------------------------------- scores


def test_scores_are_those_of_scikit_learn(client):
    shifted = Y + 1e6  # sums of squares would lose ten digits
    dX, dy, dw = on_workers(X, shifted, WEIGHT)
    line = on_dask.OrtGradientRegressor(LinearRegression().fit(X, shifted), client=client, **COMMON).fit(dX, dy)
    for weight, lazy in ((None, None), (WEIGHT, dw)):
        expected = r2_score(shifted, line.predict(X), sample_weight=weight)
        assert line.score(dX, dy, lazy) == pytest.approx(expected, abs=1e-9)
        assert line.score(X, shifted, weight) == pytest.approx(expected, abs=1e-9)
    model = on_dask.OrtGradientClassifier(CLASSIFIER, client=client, **COMMON).fit(dX, *on_workers(CLASSES))
    expected = accuracy_score(CLASSES, model.predict(X), sample_weight=WEIGHT)
    assert model.score(dX, *on_workers(CLASSES, WEIGHT)) == pytest.approx(expected)
    assert model.score(dX, *on_workers(CLASSES[:, None], WEIGHT)) == pytest.approx(expected)


def test_a_partition_without_rows_is_predicted(client):
    two = (CLASSES > 0).astype(int)
    fitted = on_dask.OrtGradientClassifier(client=client, max_iter=1).fit(*on_workers(X, two))
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=3)
    few = frame[frame[0] > np.partition(X[:, 0], -3)[-4]]  # a partition may keep no row
    for method in ("predict", "predict_proba", "decision_function"):
        lazy, rows = getattr(fitted, method), few.compute().to_numpy()
        np.testing.assert_allclose(lazy(few.to_dask_array()).compute(), lazy(rows), rtol=1e-6)


@pytest.mark.parametrize("y, expected", [(np.full(90, 2.0), 1.0), (np.full(90, 3.0), 0.0)])
def test_r_squared_of_a_constant_is_that_of_scikit_learn(client, y, expected):
    model = LinearRegression().fit(np.zeros((90, 5)), np.full(90, 2.0))
    line = on_dask.OrtGradientRegressor(model, client=client, **COMMON | dict(max_iter=0)).fit(*on_workers(X, y))
    assert line.score(*on_workers(X, y)) == expected == r2_score(y, line.predict(X))


# -------------------------------------------------------- the end of an epoch


@pytest.mark.filterwarnings("ignore:The validation set")
def test_validation_rows_choose_the_best_epoch(client):
    parameters = COMMON | dict(max_iter=12, learning_rate=0.3, n_iter_no_change=3)
    here = onnxtrain.OrtGradientRegressor(REGRESSOR, **parameters)
    here.fit(X, Y, X_val=X[:20], y_val=Y[:20], sample_weight_val=WEIGHT[:20])
    there = on_dask.OrtGradientRegressor(REGRESSOR, client=client, **parameters)
    names = ("X_val", "y_val", "sample_weight_val")
    validation = on_workers(X[:20], Y[:20], WEIGHT[:20], chunks=(15, 5))
    there.fit(*on_workers(X, Y), **dict(zip(names, validation, strict=True)))
    assert there.best_iteration_ == here.best_iteration_
    np.testing.assert_allclose(there.validation_loss_curve_, here.validation_loss_curve_, rtol=1e-9)
    assert_same_weights(there, here, atol=1e-9)


def test_early_stopping_holds_out_rows(clients):
    parameters = COMMON | dict(early_stopping=True, validation_fraction=0.3)
    found = [
        on_dask.OrtGradientRegressor(REGRESSOR, client=clients(n), **parameters).fit(*on_workers(X, Y, WEIGHT))
        for n in (1, 3)
    ]
    assert len(found[0].validation_loss_curve_) == 2
    assert_same_weights(*found)
    with pytest.raises(DataError, match="validation_fraction=0.99 of 90 rows leaves none to train on"):
        found[0].set_params(validation_fraction=0.99).fit(*on_workers(X, Y))


def test_a_loss_that_diverges_leaves_the_better_weights(client):
    model = on_dask.OrtGradientRegressor(REGRESSOR, client=client, **COMMON | dict(solver="sgd", learning_rate=1e200))
    with pytest.raises(ConvergenceError, match="in epoch 1 at learning rate 1e\\+200 .* Lower learning_rate"):
        model.fit(*on_workers(X, Y))
    np.testing.assert_allclose(model.predict(X), REGRESSOR.predict(X), atol=1e-9)


def test_a_callback_that_returns_a_text_is_an_error(client):
    with pytest.raises(ParameterError, match="callback returned .on. after epoch 1"):
        on_dask.OrtGradientRegressor(REGRESSOR, client=client, **COMMON).fit(*on_workers(X, Y), callback=lambda i: "on")


def test_a_callback_stops_training(client):
    def stop(info):
        return info.epoch == 1

    model = on_dask.OrtGradientRegressor(REGRESSOR, client=client, **COMMON)
    assert model.fit(*on_workers(X, Y), callback=stop).n_iter_ == 1


def test_a_warm_start_goes_on(client):
    parameters = COMMON | dict(shuffle=False)
    twice = on_dask.OrtGradientRegressor(REGRESSOR, client=client, warm_start=True, **parameters | dict(max_iter=1))
    twice.fit(*on_workers(X, Y)).fit(*on_workers(X, Y))
    once = onnxtrain.OrtGradientRegressor(REGRESSOR, **parameters).fit(X, Y)
    assert_same_weights(twice, once)


def test_a_killed_client_resumes_at_the_same_bits(client, tmp_path):
    class Killed(BaseException):
        pass

    def killing(info):
        if info.epoch == 3:
            raise Killed

    rows, file = on_workers(X, Y, WEIGHT), tmp_path / "fit.onnxtrain"
    parameters = COMMON | dict(max_iter=4)
    whole = on_dask.OrtGradientRegressor(REGRESSOR, client=client, **parameters).fit(*rows)
    model = on_dask.OrtGradientRegressor(REGRESSOR, client=client, **parameters)
    with pytest.raises(Killed):
        model.fit(*rows, checkpoint=file, callback=killing)
    assert isinstance(onnxtrain.load(file), onnxtrain.OrtGradientRegressor)
    resumed = clone(model).fit(*rows, checkpoint=file, resume=True)
    assert all(np.array_equal(resumed.weights_[name], w) for name, w in whole.weights_.items())
    assert resumed.loss_curve_ == whole.loss_curve_
    with pytest.raises(DataError, match="is of other rows"):
        clone(model).fit(*on_workers(X, Y + 1), checkpoint=file, resume=True)


def test_batches_that_do_not_pay_are_warned_of(client):
    model = on_dask.OrtGradientRegressor(REGRESSOR, client=client, **COMMON | dict(max_iter=6))
    with pytest.warns(
        UserWarning, match=r"A step takes .* ms, but the workers compute .* Raise batch_size to about \d+, or"
    ):
        model.fit(*on_workers(X, Y))


# ------------------------------------------------------------------- faults


def pending(cluster):
    return {
        key: task.state for key, task in cluster.scheduler.tasks.items() if task.state not in ("memory", "released")
    }


@pytest.fixture(scope="module")
def processes():
    """A client of two workers that can be killed."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_a_worker_that_is_killed_changes_nothing(processes, solver):
    """Its weights, of 400 KB, are sent beside the tasks and lost with it."""
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(400, 100)), rng.normal(size=400)
    model = MLPRegressor(hidden_layer_sizes=(500,), **SHORT).fit(rows, y)
    parameters = dict(solver=solver, dtype="float64", max_iter=4, random_state=0)
    if solver == "adam":
        parameters["batch_size"] = 100
    here = onnxtrain.OrtGradientRegressor(model, **parameters).fit(rows, y)
    processes.wait_for_workers(2, timeout=300)
    victim = min(processes.run(os.getpid).values())

    def kill(info):
        if info.epoch == 1:
            threading.Timer(0.02, os.kill, (victim, signal.SIGKILL)).start()

    data = on_workers(rows, y, chunks=(100,) * 4)
    there = on_dask.OrtGradientRegressor(model, client=processes, timeout=60, **parameters).fit(*data, callback=kill)
    assert victim not in processes.run(os.getpid).values()
    assert not pending(processes.cluster)
    assert_same_weights(there, here, atol=1e-8 if solver == "lbfgs" else 1e-12)


#: A fit in a process of its own, which kills itself at the end of an epoch.
KILLED = """
import os, pickle, signal, sys
import dask.array as da
from distributed import Client
address, given, checkpoint = sys.argv[1:]
with open(given, "rb") as file:
    model, X, y, chunks = pickle.load(file)
rows = (da.from_array(a, chunks=(chunks, *a.shape[1:])) for a in (X, y))
kill = lambda info: info.epoch == 2 and os.kill(os.getpid(), signal.SIGKILL)
model.set_params(client=Client(address)).fit(*rows, checkpoint=checkpoint, callback=kill)
"""


def test_a_client_whose_process_is_killed_resumes_at_the_same_bits(processes, tmp_path):
    processes.wait_for_workers(2, timeout=300)
    given, file = tmp_path / "given.pickle", tmp_path / "fit.onnxtrain"
    model = on_dask.OrtGradientRegressor(REGRESSOR, **COMMON | dict(max_iter=4))
    given.write_bytes(pickle.dumps((model, X, Y, CHUNKS)))
    address = processes.scheduler.address
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, address, given, file], timeout=300, check=False, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    model.set_params(client=processes)
    resumed = clone(model).fit(*on_workers(X, Y), checkpoint=file, resume=True)
    whole = clone(model).fit(*on_workers(X, Y))
    assert all(np.array_equal(resumed.weights_[name], w) for name, w in whole.weights_.items())
    assert resumed.loss_curve_ == whole.loss_curve_
    assert not pending(processes.cluster)


@pytest.mark.parametrize("width, waits", [(4, "tasks"), (500, "transfer of weights or results|tasks")])
def test_frozen_workers_are_no_hang(width, waits):
    """They are connected and have tasks: nothing but their silence tells. Weights of 400 KB travel by themselves."""
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(100, 100)), rng.normal(size=100)
    model = MLPRegressor(hidden_layer_sizes=(width,), **SHORT).fit(rows, y)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        frozen = client.run(os.getpid)

        def freeze(info):
            for pid in frozen.values():
                os.kill(pid, signal.SIGSTOP)

        fit = on_dask.OrtGradientRegressor(model, client=client, timeout=3, max_iter=9, batch_size=50)
        try:
            with pytest.raises(
                ClusterError, match=f"No response from .*({waits}) within timeout=3 seconds.*stopped"
            ) as raised:
                fit.fit(*on_workers(rows, y, chunks=(50, 50)), callback=freeze)
        finally:
            for pid in frozen.values():
                os.kill(pid, signal.SIGCONT)
    assert any(address in str(raised.value) for address in frozen)


#: A scheduler in a process of its own, which says its address and waits.
SCHEDULER = """
import sys
from distributed import LocalCluster
with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster:
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_a_frozen_scheduler_is_no_hang(solver):
    command = [sys.executable, "-c", f"if __name__ == '__main__': exec({SCHEDULER!r})"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        client = distributed.Client(process.stdout.readline().strip(), set_as_default=False)
        fit = on_dask.OrtGradientRegressor(REGRESSOR, client=client, timeout=3, max_iter=9, solver=solver)
        try:
            with pytest.raises(ClusterError, match="No response from .* within timeout=3 seconds"):
                fit.fit(*on_workers(X, Y), callback=lambda info: os.kill(process.pid, signal.SIGSTOP))
        finally:
            os.kill(process.pid, signal.SIGCONT)
            client.close()
            process.stdin.close()


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_a_client_that_is_closed_is_named(clients, solver):
    client = distributed.Client(clients(2).cluster, set_as_default=False)
    model = on_dask.OrtGradientRegressor(REGRESSOR, client=client, solver=solver, max_iter=9)
    with pytest.raises(ClusterError, match="The client is clos.* before its tasks are done.*resume=True"):
        model.fit(*on_workers(X, Y), callback=lambda info: client.close())
    with pytest.raises(ParameterError, match="The client is clos.*Create a new one"):
        model.fit(*on_workers(X, Y))


def test_a_restart_of_the_cluster_is_named():
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0", silence_logs=50) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        model = on_dask.OrtGradientRegressor(REGRESSOR, client=client, timeout=60, **COMMON)
        with pytest.raises(ClusterError, match=r"and so are all rows after client.restart\(\). Create them anew"):
            model.fit(*on_workers(X, Y), callback=lambda info: client.restart(wait_for_workers=False))


def test_a_task_of_a_worker_that_is_heard_of_may_take_longer(client):
    workers = Workers(client, max_failures=0, timeout=1)
    assert workers.results(lambda: [client.submit(time.sleep, 5, pure=False)]) == [None]


def test_a_task_that_raises_a_timeout_keeps_its_own(client):
    def read():
        raise TimeoutError("the disk")

    with pytest.raises(TimeoutError, match="the disk"):
        Workers(client, max_failures=0, timeout=60).results(lambda: [client.submit(read, pure=False)])


def test_weights_that_are_sent_are_those_of_one_fit(client):
    """Two fits of the same model on a cluster, in threads for example, have weights of the same names."""
    workers = Workers(client, max_failures=0, timeout=60)
    sent = [workers.send({"w": np.full(2**15, value)}) for value in (1.0, 2.0)]
    assert [weights["w"][0] for weights in client.gather(sent)] == [1.0, 2.0]


@pytest.mark.parametrize("lost", ["tasks", "connection"])
def test_lost_tasks_are_started_again_up_to_a_limit(client, lost, monkeypatch):
    n_lost = [0]
    if lost == "connection":  # it breaks between two attempts, as that to a scheduler that was killed

        async def broken(futures, asynchronous):
            n_lost[0] = 0
            raise distributed.comm.CommClosedError("the scheduler is gone")

        monkeypatch.setattr(client, "retry", broken)

    def submit(n):
        n_lost[0] += 1
        if n_lost[0] <= n:
            raise distributed.client.FutureCancelledError("weights-1", "lost")
        return [client.submit(abs, -1, pure=False)]

    workers = Workers(client, max_failures=2, timeout=10)
    if lost == "tasks":
        assert workers.results(lambda: submit(2)) == [1]
    n_lost[0] = 0
    with pytest.raises(ClusterError, match="Tasks were lost with their workers 3 times, more than max_failures=2"):
        workers.results(lambda: submit(9))


def test_a_cluster_without_workers_is_no_hang():
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0", silence_logs=50) as cluster,
        distributed.Client(cluster),
        pytest.raises(ClusterError, match="No response from 5 of 5 tasks within timeout=0.5 seconds.* knows 0 workers"),
    ):
        on_dask.OrtGradientRegressor(REGRESSOR, timeout=0.5).fit(*on_workers(X, Y))


# -------------------------------------------------------------------- errors

ROWS = on_workers(X, Y)
SPARSE = ROWS[0].map_blocks(
    lambda block: scipy.sparse.csr_matrix(block) if len(block) == 17 else block, meta=np.zeros((0, 5))
)
NAMES = on_workers(np.array(["a", "b", "c"])[CLASSES])[0]


def frame_of(rows, n_parts):
    """Return rows as a Dask frame, whose columns are named by their numbers."""
    return dd.from_pandas(pd.DataFrame(rows).rename(columns=str), npartitions=n_parts)


def classifier_like(model):
    return on_dask.OrtGradientClassifier(client=model.client, max_iter=1)


def lacks_a_package(block, block_info=None):
    if block_info:
        import no_such_package  # noqa: F401
    return block


REFUSED = {
    "path": (lambda m: m.fit("rows.parquet", Y), ArgumentTypeError, "frame = dask.dataframe.read_parquet\\(.rows.parquet.\\), and pass columns of the frame"),
    "in memory": (lambda m: m.fit(X, Y), ArgumentTypeError, "X must be a Dask array or frame, got ndarray"),
    "y in memory": (lambda m: m.fit(ROWS[0], Y), ArgumentTypeError, "y must be a Dask array or frame, got ndarray"),
    "no y": (lambda m: m.fit(ROWS[0]), DataError, r"y is missing. Pass Dask arrays or frames: fit\(X, y\). Rows in parts are for"),
    "partitions": (lambda m: m.fit(ROWS[0], ROWS[1][:50]), DataError, "X has 90 rows, but y has 50. Pass one for each row."),
    "names of y": (lambda m: m.fit(frame_of(np.c_[X, Y], 3), ["5"]), ArgumentTypeError, r"got list. Pass X.drop\(columns=\['5'\]\) and X\[\['5'\]\]."),
    "partitions of frames": (lambda m: m.fit(frame_of(X, 3), frame_of(Y, 2)["0"]), DataError, "y must have the same partitions as X, but has 2, and X has 3"),
    "name of y": (lambda m: m.fit(frame_of(np.c_[X, Y], 3), "5"), ArgumentTypeError, r"got str. Pass X.drop\(columns='5'\) and X\['5'\]."),
    "rows": (lambda m: m.fit(frame_of(X, 2), frame_of(Y[:80], 2)["0"]), DataError, "partition of y has 40 rows, but that of X has 45"),
    "masked": (lambda m: m.fit(da.ma.masked_greater(ROWS[0], 1), ROWS[1]), DataError, r"X has \d+ masked values. Fill them"),
    "sparse among dense": (lambda m: m.fit(SPARSE, ROWS[1]), DataError, r"All partitions must have the same form of rows, got \(5, 'sparse'\) and \(5,\)"),
    "no label": (lambda m: classifier_like(m).fit(ROWS[0], da.from_array(np.array(["a", None, "b"] * 30, object), chunks=30)[:90].rechunk((CHUNKS,))), DataError, "none may be missing.*dropna"),
    "NaN": (lambda m: m.fit(ROWS[0] * np.nan, ROWS[1]), DataError, "NaN"),
    "y_val": (lambda m: m.fit(*ROWS, X_val=ROWS[0]), DataError, "X_val and y_val must be passed together"),
    "X_val, y_val": (lambda m: m.fit(*ROWS, sample_weight_val=da.ones(90, chunks=30)), DataError, "X_val and y_val must be passed together"),
    "weights_val": (lambda m: m.fit(*ROWS, X_val=ROWS[0], y_val=ROWS[1], sample_weight_val=da.zeros(90, chunks=30)), DataError, "The validation set, .*No partition has a row with"),
    "score of a column of weights": (lambda m: m.fit(*ROWS).score(*ROWS, da.ones((90, 1), chunks=30)), DataError, "one number per row, got shape .*Pass numpy.ravel"),
    "score of NaN weights": (lambda m: m.fit(*ROWS).score(*ROWS, np.nan * da.ones(90, chunks=30)), DataError, "sample_weight contains NaN"),
    "score of NaN": (lambda m: m.fit(*ROWS).score(ROWS[0], ROWS[1] * np.nan), DataError, "y contains NaN or infinity"),
    "score of one column": (lambda m: m.fit(*ROWS).score(ROWS[0], ROWS[1][:, 0]), DataError, "y has 1 column, but the predictions have 2"),
    "score of numbers for texts": (lambda m: classifier_like(m).fit(ROWS[0], NAMES).score(ROWS[0], NAMES == "a"), DataError, "but the classes of the model are"),
    "score of a column of weights, classes": (lambda m: classifier_like(m).fit(ROWS[0], NAMES).score(ROWS[0], NAMES, da.ones((90, 1), chunks=30)), DataError, "one number per row, got shape .*Pass numpy.ravel"),
    "weights": (lambda m: m.fit(*ROWS, da.zeros(90, chunks=30)), DataError, "No partition has a row with a nonzero sample weight"),
    "negative": (lambda m: m.fit(*ROWS, -da.ones(90, chunks=30)), DataError, "[Nn]egative"),
    "X_val in memory": (lambda m: m.fit(*ROWS, X_val=X, y_val=ROWS[1]), ArgumentTypeError, r"X_val must be a Dask array or frame, got ndarray. Pass dask.array.from_array\(X_val\)\."),
    "y_val in memory": (lambda m: m.fit(*ROWS, X_val=ROWS[0], y_val=Y), ArgumentTypeError, "y_val must be a Dask array or frame, got ndarray"),
    "frame of X_val": (lambda m: m.fit(*ROWS, X_val=pd.DataFrame(X), y_val=ROWS[1]), ArgumentTypeError, r"Pass dask.dataframe.from_pandas\(X_val, npartitions=1\)\."),
    "partitions of y_val": (lambda m: m.fit(*ROWS, X_val=ROWS[0], y_val=ROWS[1][:50]), DataError, "X_val has 90 rows, but y_val has 50. Pass one for each row."),
    "delayed": (lambda m: m.fit(dask.delayed(X), ROWS[1]), ArgumentTypeError, "X must be a Dask array or frame, got Delayed"),
    "delayed y": (lambda m: m.fit(ROWS[0], dask.delayed(Y)), ArgumentTypeError, r"Pass dask.array.from_delayed\(y, shape, dtype\), or dask.dataframe.from_delayed\(\[y\]\) of a frame"),
    "future": (lambda m: m.fit(m.client.scatter(X), ROWS[1]), ArgumentTypeError, r"got Future. Pass dask.array.from_delayed\(X, shape, dtype\)"),
    "list of delayed": (lambda m: m.fit([dask.delayed(X)], ROWS[1]), ArgumentTypeError, r"dask.array.concatenate\(\[dask.array.from_delayed\(x, shape, dtype\) for x in X\]\)"),
    "list of arrays": (lambda m: m.fit([ROWS[0]], ROWS[1]), ArgumentTypeError, r"got list. Pass dask.array.concatenate\(X\)"),
    "bag": (lambda m: m.fit(bag.from_sequence([1, 2]), ROWS[1]), ArgumentTypeError, r"got Bag. Pass columns of X.to_dataframe\(\)"),
    "single value": (lambda m: m.fit(ROWS[0], ROWS[1].sum()), DataError, "y is a single value, without an axis of rows. Pass one value per row."),
    "y in memory beside a frame": (lambda m: m.fit(frame_of(X, 3), Y), ArgumentTypeError, r"or arrays: X.to_dask_array\(lengths=True\), dask.array.from_array\(y\)"),
    "step in front": (lambda m: m.fit(X, ROWS[1]), ArgumentTypeError, r"pass the pipeline as the model: OrtGradientRegressor\(pipeline\)"),
    "rows of one": (lambda m: m.fit(ROWS[0][:0], ROWS[1][:0]), DataError, "X has no rows: all partitions are empty"),
    "masked y": (lambda m: m.fit(ROWS[0], da.ma.masked_greater(ROWS[1], 1)), DataError, r"known = ~dask.array.ma.getmaskarray\(y\), fit\("),
    "package": (lambda m: m.fit(ROWS[0].map_blocks(lacks_a_package, meta=np.empty((0, 5))), ROWS[1]), ClusterError, "A worker cannot import a module: No module named 'no_such_package'. Install it on each worker"),
    "argument": (lambda m: m.fit(*ROWS, client=m.client), ArgumentTypeError, r"fit has no argument 'client'. It is a parameter of the estimator"),
    "client as model": (lambda m: on_dask.OrtGradientRegressor(m.client).fit(*ROWS), ParameterError, "got a Client of Dask. Pass it by name: client=client."),
    "cluster": (lambda m: m.set_params(client=m.client.cluster).fit(*ROWS), ParameterError, r"Pass client=distributed.Client\(cluster\)\."),
    "class": (lambda m: m.set_params(client=distributed.Client).fit(*ROWS), ParameterError, r"Pass client=distributed.Client\(\), which starts a cluster"),
    "score": (lambda m: m.fit(*ROWS).score(*ROWS, da.zeros(90, chunks=30)), DataError, "No partition has a row with"),
    "client": (lambda m: m.set_params(client="tcp://h:1").fit(*ROWS), ParameterError, "client must be a distributed.Client.*, got 'tcp://h:1'. Pass client=distributed.Client\\('tcp"),
    "failures": (lambda m: m.set_params(max_failures=-1).fit(*ROWS), ParameterError, "max_failures must be a non-negative integer, got -1"),
    "limit": (lambda m: m.set_params(timeout=0).fit(*ROWS), ParameterError, "timeout must be a finite number of seconds above 0, got 0"),
    "limit in words": (lambda m: m.set_params(timeout="5m").fit(*ROWS), ParameterError, "timeout must be a finite number .* got '5m'"),
    "no limit": (lambda m: m.set_params(timeout=float("inf")).fit(*ROWS), ParameterError, "timeout must be a finite number .* got inf"),
    "half": (lambda m: m.set_params(dtype="bfloat16").fit(*ROWS), ParameterError, "dtype='bfloat16' is for one device"),
    "checkpoint": (lambda m: m.set_params(solver="lbfgs").fit(*ROWS, checkpoint="x"), ParameterError, "Use a solver that takes steps"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(client, name):
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        call(on_dask.OrtGradientRegressor(REGRESSOR, client=client, **COMMON))


def test_an_accuracy_of_no_rows_is_refused(client):
    model = on_dask.OrtGradientClassifier(CLASSIFIER, client=client, **COMMON).fit(*on_workers(X, CLASSES))
    with pytest.raises(DataError, match="No partition has a row with a nonzero sample weight"):
        model.score(*on_workers(X, CLASSES, np.zeros(90)))


def test_the_number_of_workers_is_an_argument_of_the_client():
    with pytest.raises(ArgumentTypeError, match=r"Pass a client: client=distributed.Client\(n_workers=...\)"):
        on_dask.OrtGradientRegressor(n_workers=2)


def test_a_cluster_without_workers_is_named():
    with distributed.Client(processes=False, n_workers=0, dashboard_address=":0") as empty:
        model = on_dask.OrtGradientRegressor(REGRESSOR, client=empty, timeout=0.1)
        with pytest.raises(
            ClusterError, match=r"knows 0 workers\. Start some, .* A worker that lacks onnxtrain ends at"
        ):
            model.fit(*ROWS)


def test_without_a_client_there_is_no_cluster():
    with pytest.raises(ParameterError, match="There is no cluster. Create a client first"):
        on_dask.OrtGradientRegressor(REGRESSOR).fit(*ROWS)


# -------------------------------------------------------------- as estimators


@pytest.mark.parametrize("name", ["OrtGradientRegressor", "OrtGradientClassifier"])
def test_parameters_are_those_of_the_plain_estimator_and_those_of_the_cluster(name):
    plain, ours = (getattr(module, name)() for module in (onnxtrain, on_dask))
    own = {"client": None, "max_failures": 3, "timeout": 300.0}
    assert ours.get_params() == plain.get_params() | own
    assert ours.set_params(l2=1.0, timeout=5.0).to_local().get_params() == plain.set_params(l2=1.0).get_params()


def test_a_plain_estimator_is_saved(client, tmp_path):
    model = on_dask.OrtGradientRegressor(REGRESSOR, client=client, max_iter=1).fit(*on_workers(X, Y))
    with pytest.raises(ExportError, match=r"save\(estimator.to_local\(\), path\)"):
        onnxtrain.save(model, tmp_path / "model.onnx")
    onnxtrain.save(model.to_local(), tmp_path / "model.onnx")


def test_clones_have_the_client_and_pickles_do_not(client):
    model = on_dask.OrtGradientRegressor(REGRESSOR, client=client, **COMMON).fit(*on_workers(X, Y))
    copy = clone(model)
    assert copy.client is client
    assert not hasattr(copy, "loss_curve_")
    loaded = pickle.loads(pickle.dumps(model))
    assert loaded.client is None
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert onnx.checker.check_model(model.get_trained_onnx()) is None


# -------------------------------------------------- recipes of doc/guide/cluster.rst


def test_a_search_on_the_workers(client):
    import joblib

    search = GridSearchCV(
        onnxtrain.OrtGradientRegressor(REGRESSOR, **COMMON | dict(n_threads=1)), {"l2": [0.0, 0.1, 1.0]}, cv=3
    )
    with joblib.parallel_config("dask", client=client):
        there = clone(search).fit(X, Y)
    here = search.fit(X, Y)
    assert here.cv_results_["mean_test_score"].tolist() == there.cv_results_["mean_test_score"].tolist()


def test_a_plain_model_predicts_partitions():
    model = onnxtrain.OrtGradientRegressor(REGRESSOR, **COMMON).fit(X, Y)
    (dX,) = on_workers(X, chunks=30)
    found = dX.map_blocks(model.predict, chunks=(dX.chunks[0], (2,)), meta=np.empty((0, 2)))
    np.testing.assert_allclose(found.compute(), model.predict(X), atol=1e-12)
