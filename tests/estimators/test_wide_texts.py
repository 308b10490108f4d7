"""Texts of 200,000 words: columns stay sparse, and batches of them are made dense a few rows at a time."""

import json
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression

from onnxtrain import OrtGradientClassifier
from onnxtrain.training import data

SCRIPT = """
import gc, json, pathlib
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from onnxtrain import OrtGradientClassifier

def memory(kind):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(kind))

words = [f"w{i:06d}" for i in range(200_000)]
rng = np.random.default_rng(0)
texts = [" ".join([words[i] for i in row]) for row in rng.integers(0, len(words), (1500, 800))]
labels = np.arange(len(texts)) % 2
few = texts[:50], labels[:50]
small = make_pipeline(TfidfVectorizer(vocabulary=words[:2000]), SGDClassifier(loss="log_loss")).fit(*few)
OrtGradientClassifier(small, max_iter=1, batch_size=2).fit(*few).predict(few[0])  # what is imported late
model = make_pipeline(TfidfVectorizer(vocabulary=words), SGDClassifier(loss="log_loss")).fit(texts, labels)
matrix = model[0].transform(texts)
size = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
del matrix
gc.collect()
pathlib.Path("/proc/self/clear_refs").write_text("5")  # resets the peak
before = memory("VmRSS")
tuned = OrtGradientClassifier(model, max_iter=2, random_state=0).fit(texts, labels)
tuned.predict(texts)
print(json.dumps({"grown": memory("VmHWM") - before, "matrix": size}))
"""

#: glibc returns what is freed, so that the peak does not depend on what was freed before.
FREED = {"MALLOC_MMAP_THRESHOLD_": "100000", "MALLOC_TRIM_THRESHOLD_": "100000"}


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="Linux tells the peak")
def test_memory_is_that_of_the_sparse_matrix():
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=os.environ | FREED, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert 14e6 < found["matrix"] < 16e6
    assert found["grown"] < 3 * found["matrix"]  # one batch of 200 rows, dense, is 160 MB


def test_memory_beside_a_small_matrix_is_small():
    X = scipy.sparse.random(300, 70_000, 1e-3, random_state=0, format="csr", dtype=np.float32)
    tuned = OrtGradientClassifier(LogisticRegression(), max_iter=1, random_state=0).fit(X, np.arange(300) % 2)
    _, inputs = tuned._trained._predictor()
    assert inputs["coef"] is tuned.weights_["coef"]  # a session would hold the column sixteen times
    rows = tuned._trained.data(X, np.zeros((300, 1), np.int64))
    assert rows.sparse_at_once * 4 * 70_000 <= 2**22
    assert rows.rows_at_once == rows.sparse_at_once  # 16 rows of 4 bytes and 70,000 columns, as predict takes, are more


def test_the_last_rows_are_not_dense_twice():
    X = scipy.sparse.random(47, 70_000, 1e-3, random_state=0, format="csr", dtype=np.float32)
    tuned = OrtGradientClassifier(LogisticRegression(), max_iter=1, random_state=0).fit(X, np.arange(47) % 2)
    tracemalloc.start()
    tuned.predict(X)  # the last row is repeated to 48
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.2 * 48 * 4 * 70_000


def test_training_holds_weights_and_state_once():
    X = scipy.sparse.random(50, 100_000, 1e-3, random_state=0, format="csr", dtype=np.float32)
    y = np.arange(50) % 6
    fitted = LogisticRegression(tol=1e3).fit(X, y)
    model = OrtGradientClassifier(fitted, max_iter=3, random_state=0).fit(X, y)  # what is imported late
    held = []

    def count(info):
        held.append(tracemalloc.get_traced_memory()[0] / model.weights_["coef"].nbytes)

    tracemalloc.start()
    model.fit(X, y, callback=count)
    tracemalloc.stop()
    assert max(held) < 10  # 8.1; copies of the weights and the state after each epoch would add 4


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("params", [{}, {"solver": "sgd", "accumulate": 2}, {"average": True, "shuffle": False}])
def test_pieces_of_a_batch_make_the_same_steps(params, weighted, monkeypatch):
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(203, 300, 0.05, random_state=0, format="csr")
    y, weight = rng.integers(0, 2, 203), rng.random(203) if weighted else None
    model = OrtGradientClassifier(
        LogisticRegression(), dtype="float64", batch_size=60, max_iter=3, random_state=0, **params
    )
    whole = model.fit(X, y, weight)
    expected, losses, predictions = whole.weights_["coef"], whole.loss_curve_, whole.predict_proba(X)
    monkeypatch.setattr(data, "_DENSE_BYTES", 8 * X.shape[1] * 25)  # 25 rows: three pieces of 20
    assert data.sparse_at_once({"X": X}, {"X": np.dtype(float)}) == 25
    again = model.fit(X, y, weight)
    np.testing.assert_allclose(again.weights_["coef"], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(again.loss_curve_, losses, rtol=1e-9)
    np.testing.assert_array_equal(again.predict_proba(X).argmax(axis=1), predictions.argmax(axis=1))
