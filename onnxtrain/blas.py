"""BLAS beside onnxruntime: threads that wait for work do so busily, on the core where the others have some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import scipy.linalg  # noqa: F401  the BLAS of scipy, beside that of numpy: what is loaded later is not found
from threadpoolctl import ThreadpoolController

_POOLS = ThreadpoolController()


@contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """Keep the products of numpy and scipy to one thread, for work on few numbers between runs of onnxruntime.

    OpenBLAS' threads go on looking for work for some 50 ms, onnxruntime's for some milliseconds: on two cores an
    iteration of scipy's L-BFGS took 8 ms instead of 0.3, and what onnxruntime ran next up to five times as long.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> with one_thread_of_blas():
    ...     {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
    {1}
    """
    with _POOLS.limit(limits=1, user_api="blas"):
        yield
