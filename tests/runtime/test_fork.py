"""A forked process inherits its parent's sessions but none of their threads."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from copy import deepcopy

import numpy as np
import onnx.parser
import pytest
from sklearn.datasets import make_regression
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor

from onnxtrain import OrtGradientRegressor
from onnxtrain.ortgradient import OrtGradientForwardBackward
from onnxtrain.runtime.device import Device
from onnxtrain.runtime.session import KeptSession, Place, open_session, run_session

pytestmark = [
    pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

#: Seconds that a child may take.
LIMIT = 60

X, y = make_regression(6000, 8, random_state=0)
X, y = X.astype(np.float32), y / y.std()


def in_a_child(function, *given):
    """Return what `function` returns in a child of a fork."""

    def work():
        signal.alarm(LIMIT)  # ends a child that hangs
        there.send(function(*given))

    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=work)
    child.start()
    there.close()
    try:
        found = here.recv()
    except EOFError:
        child.join()
        pytest.fail(f"the child ended with {child.exitcode} (-{signal.SIGALRM.value}: it hung for {LIMIT} s)")
    child.join()
    assert child.exitcode == 0
    return found


@pytest.fixture(scope="module")
def models():
    """Trained models that have predicted: the large one with threads, the small one by a session that is shared."""
    inside = {
        "large": MLPRegressor(hidden_layer_sizes=(512, 512), max_iter=2, random_state=0),
        "small": LinearRegression(),
    }
    models = {
        name: OrtGradientRegressor(model, max_iter=2, learning_rate=1e-4, random_state=0)
        for name, model in inside.items()
    }
    for model in models.values():
        model.fit(X[:300], y[:300]).predict(X)
    return models


ACTIONS = {
    "predict": lambda model: model.predict(X),
    "losses": lambda model: model.losses(X, y),
    "gradient": lambda model: model.gradient(X[:50], y[:50]),
    "fit": lambda model: model.fit(X[:300], y[:300]).predict(X),
    "partial_fit": lambda model: model.partial_fit(X[:300], y[:300]).predict(X),
    "L-BFGS": lambda model: model.set_params(solver="lbfgs", learning_rate=1e-3).fit(X[:300], y[:300]).predict(X),
    "in a child of the child": lambda model: in_a_child(lambda: model.predict(X)),
    "in two children": lambda model: [in_a_child(lambda: model.predict(X)) for _ in range(2)][1],
    "after the child": lambda model: (in_a_child(lambda: model.predict(X)), model.predict(X))[1],
}


@pytest.mark.parametrize("size", ["large", "small"])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_child_does_what_its_parent_can(models, action, size):
    act = ACTIONS[action]
    expected = act(deepcopy(models[size]))
    np.testing.assert_array_equal(in_a_child(act, models[size]), expected)


def test_a_fit_goes_on_in_a_child():
    def go_on_in_a_child(info):
        """Fork after the first epoch; the child does the rest, its parent waits for it."""
        if info.epoch == 1:
            child = os.fork()
            if child:
                os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            signal.alarm(LIMIT)

    def fit(callback):
        inside = MLPRegressor(hidden_layer_sizes=(512, 512), max_iter=1, random_state=0)
        return (
            OrtGradientRegressor(inside, batch_size=100, max_iter=3, random_state=0)
            .fit(X[:300], y[:300], callback=callback)
            .weights_
        )

    found, expected = in_a_child(fit, go_on_in_a_child), fit(None)
    for name, weight in expected.items():
        np.testing.assert_array_equal(found[name], weight, err_msg=name)


PRODUCT = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[N, 3] X) => (float[N, 2] Y) <float[3, 2] W = {1, 2, 3, 4, 5, 6}>'
    "{ Y = MatMul(X, W) }"
)


#: A fork after which garbage is collected before the hooks of onnxtrain run, as threading may do; it prints whether a
#: session that is garbage still exists.
COLLECTS = """
import gc, os, weakref

os.register_at_fork(after_in_child=lambda: (gc.collect(), print(session() is not None, flush=True)))

import onnx.parser
from onnxtrain.runtime.session import open_session

gc.disable()
onx = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> g (float[N] X) => (float[N] Y) { Y = Neg(X) }')
cycle = [open_session(onx, n_threads=2)]
session = weakref.ref(cycle[0])
cycle.append(cycle)
del cycle
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
gc.collect()
print(session() is not None)
"""


def test_a_session_that_is_garbage_is_destroyed_in_the_parent_alone():
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", COLLECTS], capture_output=True, text=True)
    assert (found.stdout.split(), found.stderr) == (["True", "False"], "")


@pytest.mark.parametrize("drops", [True, False], ids=["dropped", "kept"])
def test_sessions_of_every_kind_are_dropped_in_a_child(drops):
    kept, content = KeptSession(), PRODUCT.SerializeToString()
    kept.keep(open_session(PRODUCT, n_threads=2), {})
    held = [
        open_session(PRODUCT, n_threads=2),
        kept,
        OrtGradientForwardBackward(PRODUCT).new_instance(),
        Place(Device("cpu"), 2).open(content),
    ]
    feeds = {"X": np.eye(3, dtype=np.float32)}

    def work():
        if drops:
            held.clear()
            gc.collect()
        assert kept.find({}) is None  # it is of the parent
        kept.keep(open_session(PRODUCT, n_threads=2), {})
        return [run_session(session, feeds)[0] for session in (Place(Device("cpu"), 2).open(content), kept.find({}))]

    for found in in_a_child(work):
        np.testing.assert_array_equal(found, [[1, 2], [3, 4], [5, 6]])
