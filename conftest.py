"""What is not collected where an optional library is missing; clients and figures that tests leave behind."""

import sys
from importlib.util import find_spec

import pytest

# pytest executes a module again if its package is not imported yet; the registry would then be a second, empty one
import onnxtrain.autodiff
import onnxtrain.losses  # noqa: F401

_HAS_DASK = find_spec("distributed") is not None

collect_ignore_glob = [] if _HAS_DASK else ["src/onnxtrain/dask/*", "doc/guide/cluster.rst"]


def pytest_report_header():
    """Return the reason."""
    return [] if _HAS_DASK else ["onnxtrain.dask is not tested: distributed is not installed"]


@pytest.fixture(autouse=True, scope="module")
def no_client_is_left():
    """Close the default clients of Dask that are still open.

    A worker that is a thread of this process makes a client of its own, the default one. It outlives its cluster where
    another cluster lives longer; Dask would then compute on a cluster that is gone, and its thread draws from `random`.
    """
    yield
    distributed = sys.modules.get("distributed")
    while distributed is not None:
        try:
            distributed.default_client().close()
        except ValueError:  # there is none
            break


@pytest.fixture(autouse=True)
def no_figure_is_left():
    """Close the figures of pyplot, which warns of more than 20 in a process."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
