"""Thread counts for a graph, and for BLAS between runs of graphs; waiting threads keep a core busy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import joblib
import scipy.linalg  # noqa: F401  loads the BLAS of scipy, because only loaded libraries are limited
from threadpoolctl import ThreadpoolController

from onnxtrain.cache import table

_POOLS = ThreadpoolController()

#: The number of multiplications below which a second thread does not pay.
_WORTH_A_THREAD = 8_000_000


def available_threads() -> int:
    """Return how many threads this process may use; fewer in a worker of joblib.

    loky limits its workers by OMP_NUM_THREADS, which onnxruntime ignores.
    """
    limit = os.environ.get("OMP_NUM_THREADS", "")
    cores = _cores(os.getpid())
    return min(int(limit), cores) if limit.isdigit() and int(limit) > 0 else cores


@table(maxsize=1)
def _cores(process: int) -> int:
    """Return how many cores a process may use; cached, because joblib reads system files each time."""
    return joblib.cpu_count()


def threads_for(multiplications: float, n_threads: int | None) -> int:
    """Return the number of threads for a graph: `n_threads` if given, else one for a small graph or all."""
    if n_threads is not None:
        return n_threads
    return available_threads() if is_worth_a_thread(multiplications) else 1


def is_worth_a_thread(multiplications: float) -> bool:
    """Whether a graph has enough work for a second thread."""
    return multiplications >= _WORTH_A_THREAD


@contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """Limit the BLAS of numpy and scipy to one thread, for work on small arrays between runs of onnxruntime.

    OpenBLAS' threads spin for some 50 ms, onnxruntime's for some milliseconds. On two cores, an iteration of scipy's
    L-BFGS then took 8 ms instead of 0.3 ms, and the next run of onnxruntime took up to five times as long.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> with one_thread_of_blas():
    ...     {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
    {1}
    """
    with _POOLS.limit(limits=1, user_api="blas"):
        yield
