"""Arrays too large for memory, in unnamed temporary files that vanish with the array or with the process."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Hashable, Iterable, Mapping
from contextlib import ExitStack
from typing import TypeVar

import numpy as np

K = TypeVar("K", bound=Hashable)


def in_files(pieces: Iterable[Mapping[K, np.ndarray]], shapes: Mapping[K, tuple[int, ...]]) -> dict[K, np.ndarray]:
    """Return arrays of the given shapes, each mapped from a file that holds its part of all pieces, concatenated.

    The files have no name or, on Windows, are deleted by the system when they are closed, so an interrupt leaves no
    files.

    Raises
    ------
    OSError
        The disk is full.
    """
    with ExitStack() as stack:
        files = {key: stack.enter_context(tempfile.TemporaryFile(prefix="onnxtrain-")) for key in shapes}
        dtypes: dict[K, np.dtype] = {}
        for piece in pieces:
            for key, array in piece.items():
                dtypes[key] = array.dtype
                files[key].write(np.ascontiguousarray(array).data.cast("B"))
        for file in files.values():
            file.flush()
        return {key: _mapped(files[key], dtypes[key], shape) for key, shape in shapes.items()}


def _mapped(file: object, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if not math.prod(shape):
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, "r+", shape=shape)  # type: ignore[call-overload]  # it has a handle of its own
