"""Threads: how many a graph gets, and how few BLAS beside it: those that wait for work keep a core busy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import joblib
import scipy.linalg  # noqa: F401  the BLAS of scipy, beside that of numpy: a library loaded later is not found
from threadpoolctl import ThreadpoolController

from onnxtrain.cache import table

_POOLS = ThreadpoolController()

#: Multiplications below which a second thread costs more than it brings.
_WORTH_A_THREAD = 8_000_000


def available_threads() -> int:
    """Return how many threads this process may use: fewer in a worker of joblib.

    loky tells its workers by OMP_NUM_THREADS, which onnxruntime does not read.
    """
    limit = os.environ.get("OMP_NUM_THREADS", "")
    cores = _cores(os.getpid())
    return min(int(limit), cores) if limit.isdigit() and int(limit) > 0 else cores


@table(maxsize=1)
def _cores(process: int) -> int:
    """Return how many cores a process may use; joblib asks files of the system, each time."""
    return joblib.cpu_count()


def threads_for(multiplications: float, n_threads: int | None) -> int:
    """Return the number of threads for a graph: `n_threads` if given, one for a small graph."""
    if n_threads is not None:
        return n_threads
    return available_threads() if is_worth_a_thread(multiplications) else 1


def is_worth_a_thread(multiplications: float) -> bool:
    """Whether a graph has so much to do that a second thread may bring something."""
    return multiplications >= _WORTH_A_THREAD


@contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """Limit the BLAS of numpy and scipy to one thread, for work on small arrays between runs of onnxruntime.

    OpenBLAS' threads go on looking for work for some 50 ms, onnxruntime's for some milliseconds: on two cores an
    iteration of scipy's L-BFGS took 8 ms instead of 0.3, and the next run of onnxruntime up to five times as long.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> with one_thread_of_blas():
    ...     {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
    {1}
    """
    with _POOLS.limit(limits=1, user_api="blas"):
        yield
