"""Errors of scikit-learn, numpy and pandas about rows and targets, raised as a DataError with the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onnxtrain.convert.columns import date_columns, object_columns, text_columns, types_of_columns
from onnxtrain.errors import ArgumentTypeError, DataError, OnnxTrainError
from onnxtrain.estimators.protocols import is_frame

_FOR_TEXT = (
    ". The rows contain strings, but the model takes numbers. Put an encoder before it, for example "
    "make_pipeline(OneHotEncoder(handle_unknown='ignore'), model), or leave these columns out."
)
_FOR_DATES = (
    ". The rows contain dates, but the model takes numbers. Replace a column of dates by its days, "
    "(X['date'] - pandas.Timestamp('2020-01-01')).dt.days, or leave it out."
)
_FOR_COMPLEX = ". Pass real and imaginary parts as columns: numpy.c_[X.real, X.imag] or numpy.c_[y.real, y.imag]."

#: The messages of numpy and pandas about a value that is no number.
_NO_NUMBER = re.compile(r"float\(\) argument must be|DType|Cannot cast|setting an array element")

#: The matrix that scikit-learn prints after its message about complex values.
_MATRIX = re.compile(r"(?<=Complex data not supported)\n.*", re.DOTALL)

#: The remedy for invalid rows or targets, by a part of scikit-learn's message.
_REMEDIES = {
    "could not convert string": _FOR_TEXT,
    "DateTime64DType": _FOR_DATES,
    "'Timestamp'": _FOR_DATES,
    "'Timedelta'": ". Durations become numbers by pandas.to_timedelta(values).total_seconds().",
    "not 'dict'": ". Make columns of the entries of dictionaries: pandas.DataFrame(dictionaries).",
    "not 'complex'": _FOR_COMPLEX,
    "Input y contains": " Leave out the rows without a target: known = numpy.isfinite(y), fit(X[known], y[known]).",
    "Input contains NaN": (
        ". The NaN is in y. Leave out the rows without a label: known = ~pandas.isna(y), fit(X[known], y[known])."
    ),
    "y_true contains": ". Leave out the rows without a label: known = ~pandas.isna(y), score(X[known], y[known]).",
    "Input X contains NaN": (
        "\nPass a model with an imputer, make_pipeline(SimpleImputer(), model). Its file then contains the imputer."
    ),
    "sample_weight.shape ==": " Pass one weight per row of X.",
    "inhomogeneous shape": (
        " The rows have different lengths, but a table has the same number of columns in each. Pad them, or set "
        "pad={name: value} for an ONNX model that takes sequences."
    ),
    "at least one array or dtype is required": ": X has no columns.",
    "Complex data not supported": _FOR_COMPLEX,
    "float() argument must be": (
        ". To learn classes, for example intervals of numbers, pass y.astype(str) to OrtGradientClassifier."
    ),
    "contains infinity or a value too large": (
        " Leave out rows with infinity, and divide large numbers by a constant that brings them near 1."
    ),
    "same order as they were in fit": "Pass X[model.feature_names_in_], which has the columns in that order.",
    "are not in class_weight": ". Its keys must be labels as in y, the number 1 and not the string '1'.",
}


@contextmanager
def as_data_error(X: object = None) -> Iterator[None]:
    """Raise scikit-learn's validation errors as a DataError with the same message.

    If `X` is a frame with columns that hold no numbers, the message names them.
    """
    try:
        yield
    except OnnxTrainError:
        raise
    except (TypeError, ValueError) as e:
        said = _of_columns(X) if _NO_NUMBER.search(str(e)) and _is_about(X, str(e)) else ""
        if not said:
            remedy = next((remedy for part, remedy in _REMEDIES.items() if part in str(e)), "")
            remedy = _for_texts(X) if remedy is _FOR_TEXT else remedy
            if is_frame(X) and f"inconsistent numbers of samples: [{X.shape[1]}, {X.shape[0]}]" in str(e):
                remedy = f". {of_names(X)}"
            found = _MATRIX.sub("", str(e))
            said = (found.removesuffix(".") if remedy.startswith(".") else found) + remedy
        raise (ArgumentTypeError if isinstance(e, TypeError) else DataError)(said) from e


def _is_about(X: object, message: str) -> bool:
    """Whether an error may be about the rows: it names no type, or the type of the values of a column of theirs."""
    named = re.search(r"not '([\w.]+)'", message)
    return named is None or named[1].rpartition(".")[2] in types_of_columns(X)


def _of_columns(X: object) -> str:
    """Return a message about columns of a frame with dates or objects, with the remedy; empty if there are none."""
    if dates := date_columns(X):
        return (
            f"X contains dates or durations in {', '.join(map(repr, dates))}, but the model takes numbers. Convert "
            f"such a column to numbers, for example {next(iter(dates.values()))}, or leave it out."
        )
    if objects := object_columns(X):
        name, kind = next(iter(objects.items()))
        if kind in ("dict", "list", "ndarray", "tuple"):
            of_entries = f"pandas.DataFrame(X[{name!r}].tolist(), index=X.index).add_prefix('{name}_')"
            return (
                f"X contains values of type {kind} in {name!r}, but the model takes numbers. Make columns of their "
                f"entries: X.drop(columns={name!r}).join({of_entries})."
            )
        return (
            f"X contains values of type {kind} in {name!r}, but the model takes numbers. Convert them to numbers, or "
            f"to strings for an encoder, X.astype({{{name!r}: str}}), or leave the column out."
        )
    return ""


def _for_texts(X: object) -> str:
    """Return the remedy for strings in the rows, which names the columns of a frame."""
    columns = text_columns(X)
    if not columns:
        return _FOR_TEXT
    first = repr(columns[0])
    return (
        f". X contains strings in {', '.join(map(repr, columns))}, but the model takes numbers. Put an encoder before "
        f"it, such as make_column_transformer((OneHotEncoder(), [{first}]), remainder='passthrough'), or leave these "
        f"columns out. Convert numbers stored as strings with X.astype({{{first}: float}}), and dates with "
        f"pandas.to_datetime(X[{first}])."
    )


def of_names(X: Any) -> str:
    """Return the message for a frame whose column names a step of a pipeline took as its rows."""
    name = next(iter(text_columns(X) or X.columns))
    return (
        f"X is a frame, and a text vectorizer takes the names of its columns as the texts. Pass a column, X[{name!r}], "
        f"or select it in the pipeline, make_column_transformer((TfidfVectorizer(), {name!r}))."
    )
