"""Remedies for string features of a numeric model: an encoder, a vectorizer, or code that parses floats."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from onnxtrain.convert.columns import text_columns
from onnxtrain.estimators.number_formats import code_of_numbers
from onnxtrain.estimators.protocols import is_of_objects

#: The remedies for strings that are neither numbers nor columns of a frame, and for texts.
_FOR_STRINGS = (
    ". The rows contain strings, but the model takes numbers. Put an encoder before it, for example "
    "make_pipeline(OneHotEncoder(handle_unknown='ignore'), model), or leave these columns out."
)
_FOR_DOCUMENTS = (
    ". X contains one string per row, but the model takes numbers. Put a vectorizer before it, "
    "make_pipeline(TfidfVectorizer(), model), or pass the matrix that the vectorizer of fit returns."
)

_NUMBER = re.compile(r"[-+]?\d*\.?\d+")


def for_strings(X: Any) -> str:
    """Return the remedy for strings in the rows, which names the columns of a frame."""
    columns = text_columns(X)
    if not columns and is_of_objects(X):
        return _FOR_DOCUMENTS
    if not columns:
        return _for_numbers_in_rows(X) or _for_text_among_numbers(X) or _FOR_STRINGS
    if misread := _of_misread_file(X):
        return f". {misread}"
    for name in columns:
        values = X[name].dropna().astype(str)
        if code := code_of_numbers(values, f"X[{name!r}]"):
            found = f"{name!r}, such as {values.iloc[0]!r:.40}"
            return f". X contains numbers with units or commas as strings in {found}. {code}"
        if len(values) and values.str.match(r"\s*\{").all():
            columns_of_it = f"pandas.DataFrame(X[{name!r}].map(json.loads).tolist(), index=X.index)"
            return f". X contains JSON in {name!r}. Make columns of it: {columns_of_it}."
        if len(values) and values.isin(["True", "False"]).all():
            return f". X contains True and False as strings in {name!r}. Convert them: X[{name!r}] == 'True'."
    first = repr(columns[0])
    return (
        f". X contains strings in {', '.join(map(repr, columns))}, but the model takes numbers. Put an encoder before "
        f"it, such as make_column_transformer((OneHotEncoder(), {columns}), remainder='passthrough'), or leave these "
        f"columns out. Convert numbers stored as strings with X.astype({{{first}: float}}), or with "
        f"pandas.to_numeric(X[{first}], errors='coerce') if some of the strings mark missing numbers, and dates with "
        f"pandas.to_datetime(X[{first}])."
    )


def _for_numbers_in_rows(X: Any) -> str:
    """Return the remedy that parses the strings of an array or a list of rows as floats; empty for other rows."""
    values = np.array(X).ravel() if isinstance(X, (list, tuple, np.ndarray)) else np.array([])
    if values.dtype.kind not in "UO" or not all(isinstance(value, str) for value in values):
        return ""
    code = code_of_numbers(values, "pandas.Series(numpy.ravel(X))", ".to_numpy().reshape(numpy.shape(X))")
    if not code:
        return ""
    return f". X contains numbers with units or commas as strings, such as {str(values[0])!r:.40}. {code}"


def _of_misread_file(X: Any) -> str:
    """Return the message for a frame that was read with another separator, or without its header; else empty."""
    first, *others = X.columns
    separator = next((mark for mark in ";\t|" if mark in str(first)), None)
    if separator and not others:
        return (
            f"X has one column, {first!r}, so its file has another separator. Read it with sep={separator!r}: "
            f"pandas.read_csv(path, sep={separator!r})."
        )
    if len(X) < 2 or [*X.columns] != [*range(X.shape[1])]:
        return ""
    names, values = ([str(value) for value in X.iloc[i]] for i in (0, 1))
    if any(map(_NUMBER.fullmatch, values)) and not any(map(_NUMBER.fullmatch, names)):
        return (
            f"The first row of X holds names, {', '.join(names):.60}, so its file has a header. Read it with header=0: "
            "pandas.read_csv(path, header=0)."
        )
    return ""


def _for_text_among_numbers(X: Any) -> str:
    """Return the remedy for strings and numeric values in the same column of an array; empty for other rows."""
    if not isinstance(X, np.ndarray) or X.dtype.kind != "O" or X.ndim != 2:
        return ""
    texts = np.array([[isinstance(value, str) for value in row] for row in X])
    mixed = np.argwhere(texts & ~texts.all(axis=0))
    if not len(mixed):
        return ""
    row, column = mixed[0]
    return (
        f". It is in row {row}, column {column} of X, which has numbers, too. Convert its strings to numbers, and "
        "others to NaN for an imputer: pandas.DataFrame(X).apply(pandas.to_numeric, errors='coerce')."
    )
