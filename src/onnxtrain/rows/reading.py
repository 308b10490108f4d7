"""The size of a part and the errors of libraries, shared by the readers of parquet, zarr and Dask."""

from __future__ import annotations

import importlib
from typing import Any

from onnxtrain.errors import DataError, DependencyError

#: The largest size of a part in bytes: nine parts fit in a third of a gigabyte.
PART_BYTES = 2**25

#: Part of messages about rows that another part of the fit could read.
CHANGED = "Every epoch reads all files again, so they must not change."


def require(library: str, name: str) -> Any:
    """Return an optional library."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise DependencyError(
            f"onnxtrain.rows needs {library} to read these rows, but it is not installed: pip install {library}.",
            name=library,
        ) from e


def unreadable(what: str, e: Exception) -> DataError:
    """Return the error for a file or array that is damaged, or out of reach."""
    reason = " ".join(str(e).split()).rstrip(".")
    remedy = "Write it again."
    if "://" in what and "file://" not in what:
        remedy = "Check the network, the address and the credentials, or download it and pass the path of the file."
    return DataError(f"{what!r:.300} cannot be read: {reason}. {remedy} {CHANGED}")
