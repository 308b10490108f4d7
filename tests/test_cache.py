"""The common bound of all caches, their keys, and their state in threads and forked processes."""

import multiprocessing
import pathlib
import re
import threading

import numpy as np
import onnx.parser
import pytest

import onnxtrain
from onnxtrain import OrtGradientRegressor
from onnxtrain.cache import Cache, cache_info, cached, clear_caches, limit_caches
from onnxtrain.errors import ParameterError

MB = 2**20


@pytest.fixture(autouse=True)
def of_one_megabyte():
    """Caches that are empty and hold one megabyte."""
    clear_caches()
    before = limit_caches(MB)
    yield
    limit_caches(before)


@pytest.fixture
def cache():
    return Cache("of a test")


def held():
    return sum(kept["bytes"] for kept in cache_info().values())


def test_what_was_not_asked_for_longest_is_forgotten_first(cache):
    other = Cache("another of a test")
    for i in range(3):
        (cache if i else other).keep(i, bytes([i]) * (300 * 1024))
    assert other.find(0) is not None
    cache.keep(3, b"3" * (300 * 1024))
    assert [other.find(0) is None, *(cache.find(i) is None for i in (1, 2, 3))] == [False, True, False, False]


VALUES = {
    "bytes": b"x" * MB,
    "str": "x" * MB,
    "array": np.zeros(MB, np.uint8),
    "list": [b"x" * 4000] * 300,
    "dict": {"a": {"b": np.zeros((256, 1024), np.float32)}},
    "model": onnx.helper.make_model(
        onnx.helper.make_graph([], "g", [], [], [onnx.numpy_helper.from_array(np.zeros(MB, np.uint8), "w")])
    ),
}


@pytest.mark.parametrize("kind", VALUES)
def test_what_is_larger_than_the_bound_is_not_kept(cache, kind):
    cache.keep("small", b"y")
    assert cache.keep("large", VALUES[kind]) is VALUES[kind]
    assert cache.find("large") is None
    assert cache.find("small") == b"y"


def test_an_estimator_counts_with_its_arrays(cache):
    from sklearn.neighbors import KNeighborsRegressor

    model = KNeighborsRegressor().fit(np.zeros((200_000, 1)), np.zeros(200_000))
    cache.keep("model", model)
    assert cache.find("model") is None


def test_the_same_bytes_count_once(cache):
    model = b"x" * (MB // 2)
    for i in range(10):
        cache.keep((i, model), (model, i))
    assert len(cache) == 10
    cache.keep("more", b"y" * (MB // 4))
    assert len(cache) == 11
    cache.clear()
    assert len(cache) == held() == 0


def test_a_function_is_called_once_for_equal_arguments():
    calls = []

    @cached
    def build(*args, **kwargs):
        calls.append(args)

    for _ in range(2):
        for value in (1, 1.0, True, np.float32(1), "1", (1,)):
            build(value)
        build(1, more=2)
        assert len(calls) == 7
    clear_caches()
    build(1)
    assert len(calls) == 8


def test_an_error_is_not_kept():
    @cached
    def build(calls=[]):  # noqa: B006
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("first")
        return "built"

    with pytest.raises(ValueError, match="first"):
        build()
    assert build() == "built"


@pytest.mark.parametrize("n_bytes", [-1, 1.5, "1", None, True])
def test_a_bound_is_a_number_of_bytes(n_bytes):
    with pytest.raises(ParameterError, match="n_bytes must be an integer, 0 or more, got"):
        limit_caches(n_bytes)


def test_a_smaller_bound_holds_at_once(cache):
    for i in range(10):
        cache.keep(i, bytes(90_000))
    assert limit_caches(300_000) == MB
    assert 0 < held() <= 300_000
    limit_caches(0)
    assert held() == 0


def test_threads_share_it(cache):
    model, wrong = bytes(50_000), []

    def work(seed):
        for i in np.random.default_rng(seed).integers(40, size=2000):
            found = cache.find((int(i), model))
            wrong.extend([] if found in (None, i) else [found])
            if found is None:
                cache.keep((int(i), model), int(i), 100_000)
            if i == seed:
                cache.clear()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    cache.clear()
    from onnxtrain import cache as module

    assert module._MEMORY.n_bytes == held()


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_of_a_fork_goes_on_with_it(cache):
    cache.keep("model", b"x" * 1000)
    stop = threading.Event()

    def work():
        while not stop.is_set():  # another thread often has the lock
            cache.keep("another", b"y" * 1000)

    thread = threading.Thread(target=work)
    thread.start()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=lambda: cache.keep("more", cache.find("model"))) for _ in range(20)]
    try:
        for child in children:
            child.start()
            child.join(60)
            assert child.exitcode == 0
    finally:
        stop.set()
        thread.join()
        for child in children:
            child.kill()


def test_fits_of_a_large_model_stay_within_the_bound():
    body = np.random.default_rng(0).normal(size=(200, 200)).astype(np.float32)  # 160 kB
    onx = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n, 200] X) => (float[n, 1] Y)'
        "{ a = MatMul(X, V) b = Tanh(a) Y = MatMul(b, H) }"
    )
    onx.graph.initializer.append(onnx.numpy_helper.from_array(body, "V"))
    onx.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((200, 1), np.float32), "H"))
    X = np.random.default_rng(1).normal(size=(20, 200)).astype(np.float32)
    for i in range(10):
        params = {"weights_to_train": ["H"], "loss": "huber", "loss_params": {"delta": 1 + i / 10}, "max_iter": 1}
        OrtGradientRegressor(onx, **params).fit(X, X[:, 0]).predict(X)
        from onnxtrain import cache as module

        assert 0 < module._MEMORY.n_bytes <= MB


def test_one_module_keeps_what_is_built():
    package = pathlib.Path(onnxtrain.__file__).parent
    others = [path for path in package.rglob("*.py") if path.name != "cache.py"]
    assert [p.name for p in others if re.search(r"lru_cache|functools\.cache\b|import cache\b", p.read_text())] == []
