"""Rows on which a graph is compared with the model it was made from: some of those given, and rows between them."""

from __future__ import annotations

from typing import Any

import numpy as np

#: The number of rows on which graph and estimator are compared.
COMPARED_ROWS = 200

#: The number of generated rows between those of the fit, enough to have each value of a column of three digits several
#: times; and the number of rows from which the digits of a column are counted.
_BETWEEN, _MEASURED = 2000, 20_000

#: The largest number of entries of generated rows, and of sparse rows made dense.
_GENERATED, _DENSE = 2**21, 2**20


def some_rows(X: Any, n_rows: int) -> Any:
    """Return rows, evenly spread over X, on which graph and estimator are compared."""
    chosen = spread(np.shape(X)[0], at_most(X, n_rows))
    if hasattr(X, "toarray"):
        return X.tocsr()[chosen]
    if hasattr(X, "columns"):  # of pandas or polars
        return X.iloc[chosen] if hasattr(X, "iloc") else X[chosen]
    return np.asarray(X)[chosen]


def rows_between(X: Any) -> Any:
    """Return rows of decimals like those of `X`: with the digits of each column, anywhere in its range.

    Columns with more digits, and columns of strings, keep values of `X`.

    Returns
    -------
    array or DataFrame, None if no column has few digits.
    """
    if hasattr(X, "toarray"):
        return None
    X = some_rows(X, _MEASURED)
    n_rows = min(_BETWEEN, max(2, _GENERATED // X.shape[1]))
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, len(X), n_rows)
    found = X.iloc[chosen].copy() if hasattr(X, "iloc") else X[chosen]
    given, columns = (X, found) if hasattr(X, "columns") else (X.T, found.T)
    new = {}
    for name in X.columns if hasattr(X, "columns") else range(len(columns)):
        values = np.asarray(given[name])
        between = _decimals(values, n_rows)
        if len(between):
            new[name] = rng.permutation(np.resize(between, n_rows)).astype(values.dtype)
    if new and hasattr(found, "with_columns"):  # of polars, which has no assignment
        return found.with_columns(**{str(name): values for name, values in new.items()}).cast(found.schema)
    for name, values in new.items():
        columns[name] = values
    return found if new else None


def _decimals(values: np.ndarray, n: int) -> np.ndarray:
    """Return at most n decimals spread evenly over the range of `values`; none if these have over four places."""
    if values.dtype.kind not in "iuf":
        return values[:0]
    finite = values[np.isfinite(values)].astype(np.float64)
    digits = next((d for d in range(5) if np.array_equal(np.round(finite, d).astype(values.dtype), finite)), None)
    if digits is None or not len(finite):
        return finite[:0]
    low, high = float(np.min(finite)), float(np.max(finite))
    return np.unique(np.round(np.linspace(low, high, min(n, round((high - low) * 10**digits) + 1)), digits))


def spread(n: int, n_chosen: int) -> np.ndarray:
    """Return the indices of n_chosen of n rows, evenly spread."""
    return np.unique(np.linspace(0, n - 1, n_chosen).astype(np.int64))


def at_most(X: Any, n_rows: int) -> int:
    """Return how many of n_rows rows are compared; fewer for sparse rows with many columns."""
    return min(n_rows, max(2, _DENSE // X.shape[1])) if hasattr(X, "toarray") else n_rows
