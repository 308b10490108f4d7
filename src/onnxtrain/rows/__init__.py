"""Rows in parts: files, row groups and blocks of which a few are in memory at a time.

``fit`` takes in place of X and y any object with ``__len__``, ``n_rows(i)`` and ``read(i) -> (X, y)`` or
``(X, y, sample_weight)``; the functions here make such objects of files and of collections of other libraries.
:class:`Parts` says how a fit goes through them.
"""

from onnxtrain.rows.parts import Parts, Source
from onnxtrain.rows.sources import from_dask, from_files, from_parquet, from_zarr

__all__ = ["Parts", "Source", "from_dask", "from_files", "from_parquet", "from_zarr"]
