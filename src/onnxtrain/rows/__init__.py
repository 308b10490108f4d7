"""Rows in parts: files, row groups and blocks; only a few are in memory at a time.

In place of X and y, ``fit`` accepts any object with ``__len__``, ``n_rows(i)`` and ``read(i) -> (X, y)`` or
``(X, y, sample_weight)``. The functions here make such objects from files and from collections of other libraries.
:class:`Parts` sets how a fit goes through them.
"""

from typing import TYPE_CHECKING

from onnxtrain.attributes import of_module
from onnxtrain.rows.parquet import from_parquet
from onnxtrain.rows.parts import Parts, Source
from onnxtrain.rows.sources import from_dask, from_files, from_zarr

__all__ = ["Parts", "Source", "from_dask", "from_files", "from_parquet", "from_zarr"]

#: Names that users expect, and what to use instead.
_REMEDIES = {
    **dict.fromkeys(
        ("from_csv", "from_feather", "from_hdf5", "from_json", "from_npy"),
        "Use from_files(paths, read), where read(path) returns (X, y).",
    ),
    **dict.fromkeys(
        ("from_array", "from_arrays", "from_frame", "from_numpy", "from_pandas"),
        "Pass rows in memory to fit itself: fit(X, y).",
    ),
}

if not TYPE_CHECKING:
    __getattr__ = of_module(__name__, __all__, _REMEDIES)
