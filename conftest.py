"""What is not collected where an optional library is missing."""

from importlib.util import find_spec

_HAS_DASK = find_spec("distributed") is not None

collect_ignore_glob = [] if _HAS_DASK else ["src/onnxtrain/dask/*", "doc/guide/cluster.rst"]


def pytest_report_header():
    """Return the reason."""
    return [] if _HAS_DASK else ["onnxtrain.dask is not tested: distributed is not installed"]
