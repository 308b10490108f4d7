"""Rows in parts: files, row groups and blocks, of which only a few are in memory at a time.

In place of X and y, ``fit`` accepts any object with ``__len__``, ``n_rows(i)`` and ``read(i) -> (X, y)`` or
``(X, y, sample_weight)``. The functions here make such objects from files and from collections of other libraries.
:class:`Parts` sets how a fit goes through them.
"""

from onnxtrain.rows.parts import Parts, Source
from onnxtrain.rows.sources import from_dask, from_files, from_parquet, from_zarr

__all__ = ["Parts", "Source", "from_dask", "from_files", "from_parquet", "from_zarr"]
