"""Arrays whose values show that they are no parameters: masks, tables of sines, frequencies, grids, fixed filters.

Each test excludes values that initial weights may have.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

#: The least number of equations that a table of sines or a grid must satisfy, to exclude chance.
_EQUATIONS = 12

#: The least magnitude of the values of an additive mask; their exp is negligible beside 1. Common values are -100
#: (Swin), -1e4, -65504, -inf.
_MASKED = 1e2

#: The largest amplitude of a sine; YaRN and LongRoPE scale those of rotary embeddings by up to 1.5.
_AMPLITUDE = 2

#: The least number of equal steps of a fixed grid; fewer may be learned thresholds.
_STEPS = 5

#: The number of elements of a large array, or along each of its axes, that are examined first or only.
_SAMPLE = 64

#: The least number of values that show equal steps or powers; three random float32 values do by chance, once in 2**20.
_VALUES = 3


def are_sines(array: np.ndarray) -> bool:
    """Whether each column of a table, or each row, is a sine or a cosine of the position.

    The positions may lie in a grid, and the table may be shifted and scaled, as in PatchTST.
    """
    if array.ndim < 2 or not array.size:
        return False
    by_rows, by_columns = array.reshape(-1, array.shape[-1]), array.reshape(len(array), -1).T
    waves = array.ndim == 2 and (_are_waves_of_rows(by_rows) or _are_waves_of_rows(by_columns))
    return waves or _are_on_circles(by_rows) or _are_on_circles(by_columns)


def _are_on_circles(table: np.ndarray) -> bool:
    """Whether the columns are pairs (sine, cosine), which lie on one circle: p² + q² = 2 c (p + q) + d in each pair.

    Codes write sines and cosines in turn, or in halves of the columns, of one block for each axis of a grid.
    """
    size = table.shape[1]
    if size < 2 or size % 2:
        return False
    counts = dict.fromkeys(n for n in (1, 2, 3, size // 2) if size % (2 * n) == 0)
    few = table[: 3 + 8 * _EQUATIONS // size]
    return any(_is_circle(few, n) and _is_circle(table, n) for n in counts)


def _is_circle(table: np.ndarray, n_blocks: int) -> bool:
    rows = table[table.any(axis=1)]  # the row of a class token may be 0
    if rows.size < 2 * _EQUATIONS or not np.isfinite(rows).all():
        return False
    p, q = np.moveaxis(rows.reshape(len(rows), n_blocks, 2, -1).astype(np.float64), 2, 0).reshape(2, -1)
    squares, terms = p * p + q * q, np.stack([p + q, np.ones_like(p)], axis=1)
    found = np.linalg.lstsq(terms, squares, rcond=None)[0]
    size = float(np.max(squares))
    if not size or float(np.max(np.abs(terms @ found - squares))) > 1e-4 * size:
        return False
    magnitudes = np.unique(np.round(np.abs(rows) / size**0.5, 4))
    return len(magnitudes) >= _EQUATIONS // 2  # signs and zeros lie on circles, too


def _are_waves_of_rows(table: np.ndarray) -> bool:
    """Whether x[i + 1] + x[i - 1] = 2 cos(frequency) x[i] in each column, as for a sine of the row."""
    if (len(table) - 3) * table.shape[1] < _EQUATIONS:
        return False
    return _are_waves(table[:16, :8]) and _are_waves(table)


def _are_waves(table: np.ndarray) -> bool:
    if len(table) < 4 or np.abs(table).max() > _AMPLITUDE or np.ptp(table, axis=0).max() < 0.1:
        return False
    middle, around = table[1:-1], table[2:] + table[:-2]
    power = (middle**2).sum(axis=0)
    factor = (around * middle).sum(axis=0) / np.where(power > 0, power, 1)
    # the error of float32 tables is 1e-3 at large positions; a column of sin(pi n) is 1e-7
    off = np.abs(around - factor * middle).max(axis=0) > 5e-3 * np.maximum(np.abs(table).max(axis=0), 1e-3)
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
    """Whether an array has equal steps."""
    if array.ndim != 1 or len(array) < _VALUES or array[0] == array[-1]:
        return False
    even = np.linspace(array[0], array[-1], len(array))
    return bool(np.allclose(array, even, rtol=0, atol=1e-6 * np.ptp(array)))


def _has_even_steps(matrix: np.ndarray) -> bool:
    """Whether a row of a matrix has equal steps, as x has in a table of the polynomials 1, x, x²."""
    first = matrix[:, : _VALUES + 1]
    if first.shape[1] <= _VALUES:
        return False
    size = np.ptp(first, axis=1)
    rows = np.flatnonzero((size > 0) & (np.abs(np.diff(first, n=2, axis=1)).max(axis=1) <= 1e-5 * size))
    return any(are_even_steps(matrix[row]) for row in rows)


def are_0_and_1(array: np.ndarray) -> bool:
    """Whether an array is a mask that multiplies or selects: both 0 and 1, and nothing else."""
    return _all(array, lambda x: (x == 0) | (x == 1)) and len(np.unique(array)) == 2


def are_0_or_far(array: np.ndarray) -> bool:
    """Whether an array is an additive mask: 0 where an entry counts, a large magnitude elsewhere."""
    return _all(array, lambda x: (x == 0) | (np.abs(x) >= _MASKED)) and bool(array.any())


def _all(array: np.ndarray, holds: Callable[[np.ndarray], np.ndarray]) -> bool:
    return bool(holds(array.ravel()[:_SAMPLE]).all()) and bool(holds(array).all())


def are_centers(array: np.ndarray) -> bool:
    """Whether an array has so many equal steps that they are fixed, as the centers of radial basis functions."""
    return len(array) >= _STEPS and are_even_steps(array)


def are_coordinates(array: np.ndarray) -> bool:
    """Whether a table (n1, ..., nk, k) is a grid: each of its k entries grows with one of the k indices only."""
    k = array.ndim - 1
    if k < 2 or array.shape[-1] != k or array.size < _EQUATIONS:
        return False
    return _is_grid(array[(slice(3),) * k]) and _is_grid(array)


def _is_grid(table: np.ndarray) -> bool:
    k = table.ndim - 1
    steps = [[np.diff(table[..., entry], axis=axis) for axis in range(k)] for entry in range(k)]
    grows = np.array([[(step > 0).all() for step in row] for row in steps])
    stays = np.array([[not step.any() for step in row] for row in steps])
    once = (grows.sum(axis=0) == 1) & (grows.sum(axis=1) == 1)
    return bool((grows ^ stays).all() and once.all())


def are_slopes(array: np.ndarray) -> bool:
    """Whether a position bias (..., n, n) is linear in the distance of two positions, as in ALiBi."""
    if array.ndim < 2 or array.shape[-1] < _STEPS or array.shape[-2] != array.shape[-1]:
        return False
    n, matrices = array.shape[-1], array.reshape(-1, *array.shape[-2:])
    on_diagonal = np.arange(n)[:, None] == np.arange(1, n - 1)  # where the distance is 0
    bends = np.abs(np.diff(matrices, n=2, axis=-1))[:, ~on_diagonal]
    return bool(np.ptp(matrices[0]) > 0 and bends.max() <= 1e-5 * np.abs(matrices).max())


def may_be_constant(array: np.ndarray) -> bool:
    """Whether an array has values of a fixed filter, a grid or the matrix of a graph, which no initial weights have.

    These are equal steps, integers, numbers of few digits, signs in a filter, permutations, rows or columns that add
    up to 0 or 1, and symmetric matrices. Initial weights may be equal, have one value on the diagonal and another one
    beside it, or have one entry that is not 0 in each row, as an identity.
    """
    if not array.size:
        return False
    if _have_few_digits(array):
        return True
    if array.size == max(array.shape, default=1):
        return are_even_steps(array.reshape(-1))
    return _is_constant_matrix(array, array.reshape(len(array), -1))


def _is_constant_matrix(array: np.ndarray, matrix: np.ndarray) -> bool:
    """Whether an array of two or more axes has such values; `matrix` has its rows flattened."""
    some = matrix[:_SAMPLE, :_SAMPLE]
    if np.count_nonzero(some) <= len(some) and np.count_nonzero(matrix, axis=1).max() < 2:
        return array.ndim == 2 and _is_permutation(matrix)
    if np.ptp(some) == 0:
        return False
    if array.ndim > 2 and some.all() and np.ptp(np.abs(some)) == 0:
        return bool(np.ptp(np.abs(matrix)) == 0)
    if some.all() and len(np.unique(some)) < 3:
        return False
    if _has_even_steps(matrix) or _has_even_steps(matrix.T):
        return True
    if np.array_equal(some, np.rint(some)):
        return np.array_equal(matrix, np.rint(matrix))
    if _add_up(matrix) or _add_up(matrix.T):
        return True
    square = array.ndim == 2 and array.shape[0] == array.shape[1] > 2
    return square and np.array_equal(some, some.T) and np.array_equal(matrix, matrix.T)


def _have_few_digits(array: np.ndarray) -> bool:
    """Whether an array has three magnitudes or more, each a decimal of four digits or a multiple of 1 / 32.

    One random float32 value in 3,000 is such a decimal.
    """
    values = np.unique(np.abs(array.reshape(-1)[:_SAMPLE]))
    values = values[values > 0]
    return len(values) >= _VALUES and _are_short(values) and _are_short(np.unique(np.abs(array[array != 0])))


def _are_short(values: np.ndarray) -> bool:
    if not np.isfinite(values).all():
        return False
    wide = values.astype(np.float64)
    unit = 10.0 ** (np.floor(np.log10(wide)) - 3)
    return bool(
        ((wide * 32 == np.rint(wide * 32)) | ((np.rint(wide / unit) * unit).astype(values.dtype) == values)).all()
    )


def _is_permutation(matrix: np.ndarray) -> bool:
    """Whether a matrix permutes columns; an identity may be an initial value."""
    n = len(matrix)
    ones = are_0_and_1(matrix) and bool((matrix.sum(axis=0) == 1).all())
    return ones and matrix.shape == (n, n) and not np.array_equal(matrix, np.eye(n))


def _add_up(matrix: np.ndarray) -> bool:
    """Whether each row of a matrix adds up to 0 or 1."""
    return matrix.shape[1] > 2 and _sums_are_0_or_1(matrix[:_SAMPLE]) and _sums_are_0_or_1(matrix)


def _sums_are_0_or_1(rows: np.ndarray) -> bool:
    sums, size = rows.sum(axis=1, dtype=np.float64), np.abs(rows).sum(axis=1, dtype=np.float64)
    used = size > 0
    near = np.minimum(np.abs(sums), np.abs(sums - 1)) <= 1e-5 * np.minimum(size, 1)
    return bool(used.sum() > 1 and near[used].all())


def may_be_result(array: np.ndarray) -> bool:
    """Whether an array has values of a softmax, a division by norms, a mask, or w + w.T or w - w.T.

    Initial weights may have equal magnitudes, as an identity, or be orthogonal; weights of one row then have norm 1.
    """
    n_axes, array = array.ndim, array.squeeze()
    if array.size < 2:
        return False
    if array.min() > 0 and any(_are_ones(array.sum(axis, dtype=np.float64)) for axis in range(array.ndim)):
        return True
    some = array[tuple(slice(None, None, 1 + d // _SAMPLE) for d in array.shape)]
    if len(np.unique(np.abs(some[some != 0]))) < 2:
        return False
    if (n_axes != 2 or array.ndim == 2) and _are_ones(np.linalg.norm(array)):
        return True
    if array.ndim != 2:
        return False
    symmetric = array.shape[0] == array.shape[1] and np.array_equal(np.abs(some), np.abs(some.T))
    return symmetric or _is_masked(some) or _has_normalized_rows(array) or _has_normalized_rows(array.T)


def _are_ones(values: np.ndarray | np.floating) -> bool:
    return bool(np.allclose(values, 1, rtol=0, atol=1e-5))


def _is_masked(matrix: np.ndarray) -> bool:
    """Whether a matrix has zeros beside other values; rows of zeros may be initial values, as for padding."""
    part = matrix[matrix.any(axis=1)][:, matrix.any(axis=0)]
    return bool(np.count_nonzero(part) < 0.995 * part.size)  # an initial value is 0 by chance, once in 2**24


def _has_normalized_rows(matrix: np.ndarray) -> bool:
    """Whether the rows of a matrix have norm 1, but are not orthogonal."""
    rows = matrix[:: 1 + len(matrix) // _SAMPLE].astype(np.float64)
    products = rows @ rows.T
    return _are_ones(np.diagonal(products)) and not np.allclose(products, np.eye(len(rows)), rtol=0, atol=1e-3)
