"""Tables of sines, such as positions in transformers, which are usually not trained."""

from __future__ import annotations

import numpy as np

#: The least number of equations that a table of sines or a grid must satisfy, to exclude chance.
EQUATIONS = 12


def are_sines(array: np.ndarray) -> bool:
    """Whether each column of a table is a sine or a cosine of the row: x[i + 1] + x[i - 1] = 2 cos(frequency) x[i]."""
    if array.ndim != 2 or (len(array) - 3) * array.shape[1] < EQUATIONS:
        return False
    return _are_waves(array[:16, :8]) and _are_waves(array)


def _are_waves(table: np.ndarray) -> bool:
    if len(table) < 4 or np.abs(table).max() > 1 + 1e-5 or np.ptp(table, axis=0).max() < 0.1:
        return False
    middle, around = table[1:-1], table[2:] + table[:-2]
    power = (middle**2).sum(axis=0)
    factor = (around * middle).sum(axis=0) / np.where(power > 0, power, 1)
    # the error of float32 tables is 1e-3 at large positions
    off = np.abs(around - factor * middle).max(axis=0) > 5e-3 * np.abs(table).max(axis=0)
    return not off.any() and bool((np.abs(factor) <= 2 + 1e-3).all())
