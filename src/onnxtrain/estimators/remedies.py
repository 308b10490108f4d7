"""Errors of scikit-learn, numpy and pandas about rows and targets, raised as a DataError with the code that helps."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import permutations
from typing import Any

import numpy as np

from onnxtrain.convert.columns import (
    code_of_mixed,
    columns_of,
    date_columns,
    mixed_columns,
    object_columns,
    text_columns,
    types_of_columns,
)
from onnxtrain.errors import ArgumentTypeError, DataError, OnnxTrainError
from onnxtrain.estimators.arrays import as_pandas, for_file, of_bytes
from onnxtrain.estimators.gaps_in_rows import MEETS_NA, for_na, of_dictionaries, of_gaps_in_texts, place_of, with_gaps
from onnxtrain.estimators.protocols import is_frame, is_of_objects
from onnxtrain.estimators.strings_in_rows import for_strings

_FOR_DATES = (
    ". The rows contain dates, but the model takes numbers. Replace a column of dates by its days, "
    "(X['date'] - pandas.Timestamp('2020-01-01')).dt.days, or leave it out."
)
_FOR_COMPLEX = (
    ". Pass real and imaginary parts as columns: numpy.c_[X.real, X.imag] or numpy.c_[y.real, y.imag], or one of them, "
    "such as X.real; for a frame, X = X.to_numpy()."
)

_FOR_INFINITY = " Leave out rows with infinity: known = numpy.isfinite(X).all(axis=1), fit(X[known], y[known])."
_FOR_ROWS_OF_INFINITY = (
    " Every row has it. Leave out its columns before fit, or replace it: numpy.where(numpy.isfinite(X), X, 0.0)."
)
_FOR_INFINITY_AMONG_TEXTS = (
    " Make it missing, X.replace([numpy.inf, -numpy.inf], numpy.nan), and put a SimpleImputer before the model."
)
_FOR_LARGE = " Divide this column by a constant that brings its values near 1, before fit and before predict."

_FOR_VECTORS = (
    ", but a text vectorizer takes one string per row, and X has numbers, as after a vectorizer. Pass the texts, or a "
    "model without the vectorizer."
)
_FOR_MISSING_DOCUMENTS = (
    ", but a text vectorizer takes one string per row. Replace missing texts by empty ones: "
    "[text if isinstance(text, str) else '' for text in X]."
)
_FOR_IMPUTED_TEXTS = (
    ". X contains strings in {}. Impute and encode them in a step of their own: make_column_transformer((make_pipeline("
    "SimpleImputer(strategy='most_frequent'), OneHotEncoder()), {}), remainder='passthrough')."
)
_FOR_STRINGS_AMONG_NUMBERS = (
    ". {0!r} has strings and numbers. To make the strings missing: X[{0!r}] = pandas.to_numeric(X[{0!r}], "
    "errors='coerce')."
)
#: The ends of the messages of a text vectorizer about a row that is no string and about NaN, and the message about rows
#: without words.
_NO_TEXT, _NO_DOCUMENT, _NO_VOCABULARY = "has no attribute 'lower'", "is an invalid document", "empty vocabulary"

#: Parts of the messages about missing values in the rows.
OF_GAPS = ("X contains NaN", _NO_DOCUMENT)

#: A part of the message of Python and numpy about a string that is no number.
_NOT_A_FLOAT = "could not convert string"

#: The messages of numpy and pandas about a value that is no number.
_NO_NUMBER = re.compile(r"float\(\) argument must be|DType|Cannot cast|setting an array element")

#: The messages of numpy and Python about other values where an estimator knows dates.
_MEETS_DATES = re.compile(r"DateTime64DType|'datetime\.datetime' and|'Timestamp' and")

#: The values that scikit-learn prints with its messages about complex values and about arrays of one axis, and its list
#: of other estimators for rows with NaN.
_TAIL = re.compile(
    r"(?<=Complex data not supported)\n.*|(?<=array instead):\narray=.*(?=\nReshape your)|(?<=X contains NaN)\..*",
    re.DOTALL,
)

#: The remedy for early stopping of a boosted model.
_FOR_BOOSTED_STOPPING = (
    "The given model gets no validation set. Leave out its early stopping, or fit it first: model.fit(X, y, "
    "eval_set=[(X_val, y_val)])."
)

#: Parts of messages about strings and numbers in one column; those of comparisons are of sorting.
_OF_MIXED = (
    "must be uniformly strings or numbers",
    *(f"instances of {left!r} and {right!r}" for left, right in permutations(("str", "int", "float"), 2)),
)

#: The remedy for invalid rows or targets, by a part of the message of scikit-learn or of another library.
_REMEDIES = {
    "DateTime64DType": _FOR_DATES,
    "'Timestamp'": _FOR_DATES,
    "'Timedelta'": ". Durations become numbers by pandas.to_timedelta(values).total_seconds().",
    "not 'NAType'": ". Convert columns with missing values to floats, X.astype({name: float}), which an imputer fills.",
    "not 'dict'": ". Make columns of the entries of dictionaries: pandas.DataFrame(dictionaries).",
    "not 'complex'": _FOR_COMPLEX,
    "Input y contains": " Leave out the rows without a target: known = numpy.isfinite(y), fit(X[known], y[known]).",
    "Input contains NaN": (
        ". The NaN is in y, perhaps after a transformation such as the logarithm of a negative number. Leave out the "
        "rows without a label: known = ~pandas.isna(y), fit(X[known], y[known])."
    ),
    "y_true contains": ". Leave out the rows without a label: known = ~pandas.isna(y), score(X[known], y[known]).",
    "Input X contains NaN": (
        ". Pass a model with an imputer, make_pipeline(SimpleImputer(), model). Its file then contains the imputer."
    ),
    "Invalid classes inferred from unique values": (
        ". XGBClassifier takes the labels 0, 1, ...: pass sklearn.preprocessing.LabelEncoder().fit_transform(y)."
    ),
    "at least 1 validation dataset for early stopping": f" {_FOR_BOOSTED_STOPPING}",
    "at least one dataset and eval metric is required": f". {_FOR_BOOSTED_STOPPING}",
    "LabelEncoder.fit_transform()": ". LabelEncoder is for y. Use OneHotEncoder for columns of X.",
    "Specifying the columns using strings": " Pass a frame with them: pandas.DataFrame(X, columns=[...]).",
    "X does not contain any features": ". A row of a frame is frame.iloc[[0]], with two pairs of brackets.",
    "raw text documents expected": " Pass a list of strings, also for a single text: ['...'].",
    "y should be a 1d array": (
        " A column of it is numpy.asarray(y)[:, 0]. For several targets, pass MultiOutputRegressor(model), which has "
        "one per target."
    ),
    _NO_DOCUMENT: " Replace missing texts by empty ones: [text if isinstance(text, str) else '' for text in X].",
    "'float' object has no attribute 'lower'": _FOR_MISSING_DOCUMENTS,
    "'NoneType' object has no attribute 'lower'": _FOR_MISSING_DOCUMENTS,
    "at least two dimensions for multi-output": (
        " For a single target, pass the estimator inside the MultiOutput one: model.estimator instead of model. At the "
        "end of a pipeline, it is model[-1].estimator: pass make_pipeline(model[:-1], model[-1].estimator)."
    ),
    **dict.fromkeys(
        (f"_matrix' object {_NO_TEXT}", f"_array' object {_NO_TEXT}", "got 'csr_matrix'", "got 'csr_array'"),
        _FOR_VECTORS,
    ),
    **dict.fromkeys(
        (f"'int' object {_NO_TEXT}", f"int64' object {_NO_TEXT}"),
        ", but a text vectorizer takes strings. Convert numbers: [str(row) for row in X].",
    ),
    _NO_TEXT: (
        ", but a text vectorizer takes one string per row. Pass the column of a table, X['text'] or "
        "[row[0] for row in X]."
    ),
    **dict.fromkeys(
        ("inconsistent numbers of samples: [1, ", "but along dimension 0, the array at index 0 has size"),
        ". If a ColumnTransformer gives a column of texts to a vectorizer, name the column without brackets: "
        "(TfidfVectorizer(), 'text').",
    ),
    **dict.fromkeys(
        _OF_MIXED,
        ". Make strings of all values of such a column: pandas.DataFrame(X).map(str, na_action='ignore').",
    ),
    "Found unknown categories": (
        ". Fit again with an encoder that ignores unknown categories, OneHotEncoder(handle_unknown='ignore') or "
        "OrdinalEncoder(handle_unknown='use_encoded_value', unknown_value=-1), or pass only categories of fit."
    ),
    "Expected a 2-dimensional container": (
        " A row of a frame is frame.iloc[[0]], a column frame[['name']], with two pairs of brackets."
    ),
    "sample_weight.shape ==": " Pass one weight per row of X.",
    "inhomogeneous shape": (
        " The rows have different lengths, but a table has the same number of columns in each. Pad them, or set "
        "pad={name: value} for an ONNX model that takes sequences."
    ),
    "array element with a sequence": " If each row is a sequence, stack them into a matrix: numpy.stack(list(X)).",
    "at least one array or dtype is required": ": X has no columns. Select some of a frame: frame[['name']].",
    "Complex data not supported": _FOR_COMPLEX,
    "float() argument must be": (
        ". To learn classes, for example intervals of numbers, pass y.astype(str) to OrtGradientClassifier."
    ),
    "contains infinity or a value too large": (
        " Leave out rows with infinity, and divide large numbers by a constant that brings them near 1."
    ),
    "Found array with dim": " Pass rows and targets with one or two axes, for example values.reshape(len(values), -1).",
    "Found array with 0 sample": " Pass at least one row; the selection of rows may be empty.",
    "Found array with 0 feature": " Pass at least one column.",
    "features as input": " Pass the columns that fit got, in the same order.",
    "Mix of label input types": ". Pass labels of the type of classes_, those of fit.",
    "not columns of the dataframe": ". The model selects columns by these names. Pass a frame that has them.",
    "array=[]": " X has no rows. Pass at least one.",
    "got scalar array": "\nPass an array or a frame; for a dictionary of columns, pandas.DataFrame(X).",
    _NO_VOCABULARY: ". The vectorizer drops words of one letter; token_pattern=r'(?u)\\b\\w+\\b' keeps them.",
    "Expected unique column names": "\nRename the columns, or drop repeated ones: X.loc[:, ~X.columns.duplicated()].",
    "yet now missing": "Rename the columns to those of fit, model.feature_names_in_, and add the missing ones. "
    "After pandas.get_dummies, X.reindex(columns=model.feature_names_in_, fill_value=0) does both.",
    "Feature names unseen": "Select the columns of fit: X[model.feature_names_in_].",
    "sample_weight contains": " Set the weight of a row to 0 to leave it out.",
    "passed to `sample_weight`": " Set the weight of a row to 0 to leave it out.",
    "passed to CategoricalNB": ". Encode the categories as numbers from 0: make_pipeline(OrdinalEncoder(), model).",
    **dict.fromkeys(
        ("Negative values in data", "X must be non-negative"),
        " Scale the columns before this step by MinMaxScaler(clip=True), which maps values below those of fit to 0.",
    ),
    "of the loss 'HalfPoissonLoss'": " y must be 0 or more, and not 0 in all rows: do not standardize it. "
    "For other targets, use LinearRegression with loss='squared_error'.",
    "of the loss 'HalfGammaLoss'": " y must be greater than 0. For other targets, use LinearRegression with "
    "loss='squared_error'.",
    "of the loss 'HalfTweedieLoss'": " y must be greater than 0, or 0 and more for a power below 2.",
    "Sample weights must be 1D": " Pass one weight per row of X.",
    "(numpy.record,": ". Convert records to columns: pandas.DataFrame(X).",
    **dict.fromkeys(
        ("Cannot cast array data from dtype([(", "Cannot cast array data from dtype({"),
        ". Convert the fields to columns: pandas.DataFrame(X).",
    ),
    "beyond the limits of the knots": ". SplineTransformer(extrapolation='linear') takes any values.",
    "No neighbors found for test samples": " Set outlier_label='most_frequent' of RadiusNeighborsClassifier.",
    "can only be applied to strictly positive data": (
        ". Use PowerTransformer(method='yeo-johnson'), which takes any values, or leave these rows out."
    ),
    "same order as they were in fit": "Pass X[model.feature_names_in_], which has the columns in that order.",
    "can't handle a mix of": ". Pass labels as in fit: y.argmax(axis=1) for one column per class.",
    "have different number of output": ". Pass the targets of the rows, with as many columns as in fit: score(X, y).",
    "class_weight should be a list of dicts": " For example: class_weight=[{0: 1.0, 1: 2.0}] * y.shape[1].",
    "number of elements in class_weight": " Pass a list of one dictionary per label.",
    "Names provided are not unique": ". Give each a name of its own, as make_pipeline(...) does for steps.",
    "are not in class_weight": ". Its keys must be labels as in y, the number 1 and not the string '1'.",
}


def has_remedy(message: str) -> bool:
    """Whether :func:`as_data_error` knows a remedy for a message of scikit-learn, numpy or pandas."""
    known = (_NOT_A_FLOAT, *_REMEDIES)
    return bool(_NO_NUMBER.search(message) or MEETS_NA.search(message)) or any(part in message for part in known)


@contextmanager
def as_data_error(X: object = None, *, of_onnx: bool = False, by_column: bool = False) -> Iterator[None]:
    """Raise scikit-learn's validation errors as a DataError with the same message.

    If `X` is a frame with columns that hold no numbers, the message names them. An ONNX model has no encoder or imputer
    before it; `by_column` tells that the steps of a pipeline take different columns.
    """
    try:
        yield
    except OnnxTrainError:
        raise
    except (AttributeError, TypeError, ValueError) as e:
        if isinstance(e, AttributeError) and _NO_TEXT not in str(e):
            raise
        said = _with_remedy(str(e), as_pandas(X), of_onnx=of_onnx, by_column=by_column)
        raise (ArgumentTypeError if isinstance(e, TypeError) else DataError)(said) from e


def _with_remedy(message: str, X: Any, *, of_onnx: bool, by_column: bool) -> str:
    """Return a message of scikit-learn, numpy or pandas about rows or targets, with the remedy."""
    by_rows = (_of_values, _of_map, of_dictionaries, _of_lengths, of_gaps_in_texts, _of_records, _of_series)
    if said := _first(by_rows, message, X):
        return said
    remedy = _remedy_for(message, X)
    if "X contains NaN" in message:
        on_matrix = ". Leave out rows with NaN, or replace it: numpy.nan_to_num(X)." if of_onnx else remedy
        remedy = with_gaps(X, on_matrix, by_column=by_column)
    found = _in_our_words(message, X)
    begins_a_sentence = remedy[:1] == " " and remedy[1:2].isupper() and found[-1:].isalnum()
    return (found.removesuffix(".") if remedy.startswith(".") else found) + ("." if begins_a_sentence else "") + remedy


def _first(functions: Iterable[Callable[[str, Any], str]], message: str, X: Any) -> str:
    """Return the result of the first function that knows an error about rows; empty if none does."""
    return next(filter(None, (function(message, X) for function in functions)), "")


def _in_our_words(message: str, X: Any) -> str:
    """Return a message with the place or the shape of the values, and without misleading code and values."""
    if _is_of_one_axis(message, X):
        message = message.partition("\nReshape your")[0].partition(" Pass a DataFrame")[0]
    if "X contains infinity" in message and (place := place_of(_is_too_large, X)):
        message = f"{message.removesuffix('.')}: {place[0]} in {place[1]}."
    found = re.sub(r"np\.\w+\((.*?)\)", r"\1", _TAIL.sub("", message)).replace("np.nan", "NaN")
    found = re.sub(r"array\.reshape\((.*?)\)", r"numpy.reshape(X, (\1))", found)
    if hasattr(X, "__len__") and len(getattr(X, "shape", " ")) == 1:
        found = found.replace("got 1D array instead", f"got 1D array instead, of shape ({len(X)},)")
    return found


def _remedy_for(message: str, X: Any) -> str:
    """Return the remedy for a message of scikit-learn, numpy or pandas about rows, from the table or their values."""
    by_rows = (
        _for_text_vectorizers,
        _for_infinity,
        _for_one_axis,
        _for_transposed,
        _for_other_than_dates,
        _for_mixed,
        _for_index,
        for_na,
        _for_words,
    )
    return _first(by_rows, message, X) or next((remedy for part, remedy in _REMEDIES.items() if part in message), "")


def _for_text_vectorizers(message: str, X: Any) -> str:
    """Return the remedy for rows that a text vectorizer does not take as its texts; empty for other errors."""
    if is_frame(X) and (
        _NO_VOCABULARY in message or f"inconsistent numbers of samples: [{X.shape[1]}, {X.shape[0]}]" in message
    ):
        return f". {of_names(X)}"
    if _NO_TEXT in message and not is_of_objects(X) and (hasattr(X, "toarray") or isinstance(X, np.ndarray)):
        is_column = getattr(X.dtype, "kind", "") in "OSU" and X.ndim == 2 and X.shape[1] == 1
        shape = f". X has the shape {X.shape}, but a text vectorizer takes one string per row. Pass X.ravel()."
        return shape if is_column else _FOR_VECTORS
    if _NO_DOCUMENT in message and hasattr(X, "fillna"):
        texts = [f"{name!r}: ''" for name in text_columns(X) if X[name].isna().any()]
        return f" Replace missing texts by empty ones: X.fillna({'{' + ', '.join(texts) + '}' if texts else repr('')})."
    return ""


def _for_infinity(message: str, X: Any) -> str:
    """Return the remedy for infinite or too large values in a matrix or a data frame; empty for other errors."""
    if "X contains infinity" not in message or hasattr(X, "tocoo") or not (place := place_of(_is_too_large, X)):
        return ""
    if not np.isinf(place[0]):
        return _FOR_LARGE
    if text_columns(X):
        return _FOR_INFINITY_AMONG_TEXTS
    table = np.asarray(X)
    if table.dtype == np.float16:
        return " X is float16, whose largest number is 65504. Compute it, or read it, as float32."
    return _FOR_INFINITY if np.isfinite(table.astype(float)).all(axis=1).any() else _FOR_ROWS_OF_INFINITY


def _is_of_one_axis(message: str, X: Any) -> bool:
    """Whether a step got one column of a table without its second axis."""
    of_column = "got 1D array instead" in message or "Expected a 2-dimensional" in message
    return of_column and len(getattr(X, "shape", ())) == 2


def _for_one_axis(message: str, X: Any) -> str:
    """Return the remedy for a column that a ColumnTransformer passes on as one axis; empty for other errors."""
    if not _is_of_one_axis(message, X):
        return ""
    name = X.columns[0] if is_frame(X) else 0
    return f" In a ColumnTransformer, put the name of a column in brackets: (StandardScaler(), [{name!r}])."


def _for_transposed(message: str, X: Any) -> str:
    """Return the remedy for a matrix that has as many rows as the model takes columns; empty for other errors."""
    expected = re.search(r"is expecting (\d+) features as input", message)
    if not expected or len(getattr(X, "shape", ())) != 2 or X.shape[0] != int(expected[1]):
        return ""
    return " X seems to be transposed. Pass X.T; a row of a frame is frame.iloc[[0]], with two pairs of brackets."


def _for_other_than_dates(message: str, X: Any) -> str:
    """Return the remedy for other values where fit had dates; empty for other errors."""
    if not _MEETS_DATES.search(message) or not is_frame(X) or date_columns(X):
        return ""
    return ". X has other values where fit had dates. Pass dates, for example pandas.to_datetime(X['date'])."


def _for_mixed(message: str, X: Any) -> str:
    """Return the remedy for columns of dtype object that a step does not take; empty for other errors."""
    of_imputer = "strategy with non-numeric data" in message
    if of_imputer and (mixed := mixed_columns(X)):
        return _FOR_STRINGS_AMONG_NUMBERS.format(mixed[0])
    if of_imputer and (texts := text_columns(X)):
        return _FOR_IMPUTED_TEXTS.format(", ".join(map(repr, texts)), texts)
    if any(part in message for part in _OF_MIXED) and (mixed := mixed_columns(X)):
        return f". {mixed[0]!r} has strings and numbers. {code_of_mixed(mixed[0])}"
    return ""


def _for_index(message: str, X: Any) -> str:
    """Return the remedy for a column of fit that is the index now; empty for other errors."""
    names = X.index.names if hasattr(X, "iloc") else ()
    is_index = "yet now missing" in message and any(f"\n- {name}\n" in message for name in names)
    return "The index of X has this name. Pass X.reset_index(), which has it as a column." if is_index else ""


def _for_words(message: str, X: Any) -> str:
    """Return the remedy for strings that cannot be converted to floats; empty for other errors."""
    if _NOT_A_FLOAT not in message:
        return ""
    if re.search(r"float: ['\"]\s*\{", message) and not is_frame(X):
        return ". X contains JSON. Make a table of it: pandas.DataFrame([json.loads(row) for row in X])."
    of_file = for_file(message)
    return f".{of_file}" if of_file else for_strings(X)


def _is_too_large(values: np.ndarray) -> np.ndarray:
    return np.abs(values) > np.finfo(np.float32).max


def _of_map(message: str, X: Any) -> str:
    """Return the message about NaN or infinity in a memory map that reads a part of its file; else nothing."""
    wrong = "X contains NaN" in message or "X contains infinity" in message
    if not wrong or not isinstance(X, np.memmap) or X.filename is None or not os.path.exists(X.filename):
        return ""
    size, whole = os.path.getsize(X.filename), X
    while isinstance(whole.base, np.memmap):  # X is a part of it
        whole = whole.base
    if whole.offset + whole.nbytes == size:
        return ""
    return (
        f"{message.partition(chr(10))[0].removesuffix('.')}. It is a memory map of {X.dtype} that reads {whole.nbytes} "
        f"of the {size} bytes of its file. Pass numpy.memmap the type of the values in the file, or write it with "
        "numpy.save(path, X) and pass numpy.load(path, mmap_mode='r')."
    )


def _of_records(message: str, X: Any) -> str:
    """Return the message about a list of dictionaries, one per row; nothing for other errors."""
    if "got 1D array instead" not in message or not (isinstance(X, (list, tuple)) and X and isinstance(X[0], Mapping)):
        return ""
    return "X is a list of dictionaries, one per row. Pass the columns of all rows: X = pandas.DataFrame(X)."


def _of_series(message: str, X: Any) -> str:
    """Return the message about a column of polars without its frame; nothing for other errors."""
    if "got 1D array instead" not in message or not hasattr(X, "to_frame"):
        return ""
    return "X is a Series. Pass a frame: X.to_frame() for a column."


def _of_lengths(message: str, X: Any) -> str:
    """Return the message about a list of rows of different lengths; nothing for other errors."""
    if "inhomogeneous shape" not in message or not isinstance(X, (list, tuple)):
        return ""
    lengths = [len(row) if hasattr(row, "__len__") else 1 for row in X]
    other = next((i for i, n in enumerate(lengths) if n != lengths[0]), None)
    if other is None:
        return ""
    return (
        f"X[0] has {lengths[0]} values and X[{other}] has {lengths[other]} values, but a table has the same number of "
        "columns in each row. Pad the rows, numpy.array(list(itertools.zip_longest(*X, fillvalue=0.0))).T, or set "
        "pad={name: value} for an ONNX model that takes sequences."
    )


def _of_values(message: str, X: Any) -> str:
    """Return the message about columns with dates, objects or bytes, if an error is about them; else nothing."""
    if _NO_NUMBER.search(message) and _is_about(X, message):
        return of_columns(X)
    encoded = columns_of(bytes, X) if _NOT_A_FLOAT in message else {}
    return next((of_bytes(value, f"X[{name!r}]") for name, value in encoded.items()), "")


def _is_about(X: object, message: str) -> bool:
    """Whether an error may be about the rows: it names no type, or the type of the values of a column of theirs."""
    named = re.search(r"not '([\w.]+)'", message)
    return named is None or named[1].rpartition(".")[2] in types_of_columns(X)


def check_no_dates(X: Any) -> None:
    """Raise an ArgumentTypeError for columns with dates or durations, which numpy would cast to nanoseconds."""
    if date_columns(X):
        raise ArgumentTypeError(of_columns(X))


def of_columns(X: Any) -> str:
    """Return a message about columns of a frame with dates or objects, with the remedy; empty if there are none."""
    if dates := date_columns(X):
        return (
            f"X contains dates or durations in {', '.join(map(repr, dates))}, but the model takes numbers. Convert "
            f"such a column to numbers, for example {next(iter(dates.values()))}, or leave it out."
        )
    if objects := object_columns(X):
        name, kind = next(iter(objects.items()))
        if kind in ("dict", "list", "ndarray", "tuple"):
            lengths = {len(row) for row in X[name].dropna() if hasattr(row, "__len__")} if kind != "dict" else set()
            if len(lengths) > 1:
                return _of_ragged(X, name, lengths)
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


def _of_ragged(X: Any, name: str, lengths: set[int]) -> str:
    """Return the message about a column of lists of different lengths, with the code that pads them."""
    others = [other for other in X.columns if other != name]
    code = f"numpy.array(list(itertools.zip_longest(*X[{name!r}], fillvalue=0.0))).T"
    return (
        f"X contains lists of different lengths in {name!r}, from {min(lengths)} to {max(lengths)}, but the model "
        f"takes numbers. Pad them: {f'numpy.column_stack([X[{others}], {code}])' if others else code}."
    )


def of_names(X: Any) -> str:
    """Return the message for a frame whose column names a step of a pipeline took as its rows."""
    name = next(iter(text_columns(X) or X.columns))
    return (
        f"X is a frame, and a text vectorizer takes the names of its columns as the texts. Pass a column, X[{name!r}], "
        f"or select it in the pipeline, make_column_transformer((TfidfVectorizer(), {name!r}))."
    )
