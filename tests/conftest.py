"""Fixtures for all tests: two runtimes, and deterministic random programs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from onnxtrain.runtime.session import run as run_onnxruntime
from tests.slow import LIST, name_of

try:
    import hypothesis
except ImportError:
    hypothesis = None
else:
    hypothesis.settings.register_profile("onnxtrain", derandomize=True, deadline=None, database=None)
    hypothesis.settings.load_profile("onnxtrain")


def pytest_collection_modifyitems(items):
    """Mark the slow tests, and restrict the measurement of coverage to the tests of the gradient rules.

    For the other tests, tracing would take a third of the time.
    """
    slow = set(LIST.read_text(encoding="utf-8").split())
    for item in items:
        if name_of(item.nodeid) in slow:
            item.add_marker("slow")
        if "autodiff" not in item.path.parts:
            item.add_marker("no_cover")


def run_reference(onx, feeds, *, outputs=None):
    """Run a model with the reference evaluator of onnx, which computes with numpy."""
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(onx).run(None if outputs is None else list(outputs), dict(feeds))
    return [np.asarray(y) for y in found]


RUNTIMES = {"onnxruntime": run_onnxruntime, "reference": run_reference}


@pytest.fixture(params=sorted(RUNTIMES))
def run(request):
    """Return ``run(onx, feeds, outputs=None) -> arrays``, once with onnxruntime and once with onnx.reference."""
    return RUNTIMES[request.param]
