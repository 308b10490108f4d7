"""Values that are usually not trained: tables of sines, such as positions in transformers, frequencies, and grids."""

from __future__ import annotations

import numpy as np

#: The least number of equations that a table of sines or a grid must satisfy, to exclude chance.
EQUATIONS = 12

#: The least number of values that show equal steps or powers; three random float32 values do by chance, once in 2**20.
_VALUES = 3


def are_sines(array: np.ndarray) -> bool:
    """Whether each column of a table, or each row, is a sine or a cosine of the position."""
    return array.ndim == 2 and (_are_waves_of_rows(array) or _are_waves_of_rows(array.T))


def _are_waves_of_rows(table: np.ndarray) -> bool:
    """Whether x[i + 1] + x[i - 1] = 2 cos(frequency) x[i] in each column, as for a sine of the row."""
    if (len(table) - 3) * table.shape[1] < EQUATIONS:
        return False
    return _are_waves(table[:16, :8]) and _are_waves(table)


def _are_waves(table: np.ndarray) -> bool:
    if len(table) < 4 or np.abs(table).max() > 1 + 1e-5 or np.ptp(table, axis=0).max() < 0.1:
        return False
    middle, around = table[1:-1], table[2:] + table[:-2]
    power = (middle**2).sum(axis=0)
    factor = (around * middle).sum(axis=0) / np.where(power > 0, power, 1)
    # the error of float32 tables is 1e-3 at large positions
    off = np.abs(around - factor * middle).max(axis=0) > 5e-3 * np.abs(table).max(axis=0)
    return not off.any() and bool((np.abs(factor) <= 2 + 1e-3).all())


def are_frequencies(array: np.ndarray) -> bool:
    """Whether an array has powers a, a q, a q², ..., as in a rotary embedding, or equal steps, as in a Fourier series.

    Two values show powers only if the first is 1.
    """
    if array.ndim != 1 or len(array) < 2 or array.min() <= 0 or array[0] == array[1]:
        return False
    powers = array[0] * (array[1] / array[0]) ** np.arange(len(array))
    are_powers = (len(array) >= _VALUES or array[0] == 1) and np.allclose(array, powers, rtol=1e-4, atol=0)
    return bool(are_powers) or are_even_steps(array)


def are_even_steps(array: np.ndarray) -> bool:
    """Whether an array has equal steps, such as the centers of radial basis functions."""
    if array.ndim != 1 or len(array) < _VALUES or array[0] == array[-1]:
        return False
    even = np.linspace(array[0], array[-1], len(array))
    return bool(np.allclose(array, even, rtol=0, atol=1e-6 * np.ptp(array)))


def has_even_steps(matrix: np.ndarray) -> bool:
    """Whether a row of a matrix has equal steps, as x has in a table of the polynomials 1, x, x²."""
    first = matrix[:, : _VALUES + 1]
    if first.shape[1] <= _VALUES:
        return False
    size = np.ptp(first, axis=1)
    rows = np.flatnonzero((size > 0) & (np.abs(np.diff(first, n=2, axis=1)).max(axis=1) <= 1e-5 * size))
    return any(are_even_steps(matrix[row]) for row in rows)
