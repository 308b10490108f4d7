"""Threads and scores in the workers of joblib's backends."""

import importlib
import os
import sys
import warnings
from contextlib import contextmanager

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV

from onnxtrain import OrtGradientRegressor

X, y = load_diabetes(return_X_y=True)


def threads_of_a_fit(width):
    """Return how many threads a fit leaves behind in this process: those of onnxruntime's sessions."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, width), dtype=np.float32)
    start = LinearRegression().fit(X, X[:, :20])
    tuned = OrtGradientRegressor(start, max_iter=1, batch_size=200)
    start.predict(X)  # BLAS has its threads
    importlib.import_module("onnxruntime")  # its log has one
    before = len(os.listdir("/proc/self/task"))
    tuned.fit(X, X[:, :20]).predict(X)
    return len(os.listdir("/proc/self/task")) - before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
@pytest.mark.parametrize("width", [10, 2000], ids=["small", "large"])
def test_two_workers_on_two_cores_run_two_threads(width):
    width = max(width, 20)
    with joblib.parallel_config(backend="loky", n_jobs=2, inner_max_num_threads=1):
        more = joblib.Parallel()(joblib.delayed(threads_of_a_fit)(width) for _ in range(2))
    assert more == [0, 0]  # the thread that calls is the only one


@contextmanager
def dask_cluster():
    distributed = pytest.importorskip("distributed")
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        yield


@contextmanager
def ray_cluster():
    ray = pytest.importorskip("ray", reason="ray is too large for the requirements of the tests")
    from ray.util.joblib import register_ray

    with warnings.catch_warnings():  # its own, of resources and of what it will change
        warnings.simplefilter("ignore")
        ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
        try:
            register_ray()
            yield
        finally:
            ray.shutdown()


CLUSTERS = {"dask": dask_cluster, "ray": ray_cluster}


@pytest.mark.parametrize("backend", CLUSTERS)
def test_the_same_scores_on_a_cluster(backend):
    search = GridSearchCV(OrtGradientRegressor(max_iter=3, random_state=0), {"l2": [0.0, 0.1]}, cv=2)
    expected = search.fit(X, y).cv_results_
    with CLUSTERS[backend](), joblib.parallel_config(backend=backend, n_jobs=2):
        found = search.fit(X, y).cv_results_
    for name in (name for name in expected if "score" in name and "time" not in name):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
