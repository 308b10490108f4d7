"""Errors of scikit-learn, numpy and pandas about rows and targets, raised as a DataError with the code that helps."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
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
from onnxtrain.estimators.protocols import is_frame, is_of_objects
from onnxtrain.estimators.strings_in_rows import FOR_STRINGS, for_strings

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
_FOR_MISSING_NUMBERS = (
    ". Put an imputer before the step of the pipeline that takes these columns, such as "
    "(make_pipeline(SimpleImputer(), StandardScaler()), [{!r}]) in make_column_transformer, or fill them: "
    "X.fillna({{{!r}: 0.0}})."
)
_FOR_IMPUTED_TEXTS = (
    ". X contains strings in {}. Impute and encode them in a step of their own: make_column_transformer((make_pipeline("
    "SimpleImputer(strategy='most_frequent'), OneHotEncoder()), {}), remainder='passthrough')."
)
_FOR_STRINGS_AMONG_NUMBERS = (
    ". {0!r} has strings and numbers. To make the strings missing: X[{0!r}] = pandas.to_numeric(X[{0!r}], "
    "errors='coerce')."
)
_FOR_MISSING_TEXTS = (
    ". Fill missing texts, for example X.fillna({{{!r}: 'missing'}}), and missing numbers by an imputer in the "
    "pipeline. Its file then contains the imputer."
)

_FOR_MISSING_DATES = (
    ". Fill missing dates by one of the column, X.fillna({{{!r}: {!r}}}), put an imputer behind the step that reads "
    "them, or leave these rows out."
)
#: The beginning of a date in a string, such as 2016-07-02 or 1/31/2002.
_DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\b")

_FOR_NO_VALUE = (
    ". It has no value at all. Fill it, X.fillna({{{0!r}: 0.0}}).astype({{{0!r}: float}}), or pass a model with an "
    "imputer, make_pipeline(SimpleImputer(), model), and X.astype({{{0!r}: float}})."
)
_FOR_NA = (
    ". X contains pandas.NA in {}, which scikit-learn does not take beside strings. Replace it by NaN: "
    "X.astype({{{}}}).fillna({{{}}})."
)

_FOR_MISSING_TRUTHS = (
    ". Convert True and False to numbers, X.astype({{{!r}: float}}), and fill the missing ones by an imputer in the "
    "pipeline, make_pipeline(SimpleImputer(strategy='most_frequent'), model)."
)

#: The ends of the messages of a text vectorizer about a row that is no string and about NaN, and the message about rows
#: without words.
_NO_TEXT, _NO_DOCUMENT, _NO_VOCABULARY = "has no attribute 'lower'", "is an invalid document", "empty vocabulary"

#: Parts of the messages about missing values in the rows.
OF_GAPS = ("X contains NaN", _NO_DOCUMENT)

#: The messages of numpy and pandas about a value that is no number.
_NO_NUMBER = re.compile(r"float\(\) argument must be|DType|Cannot cast|setting an array element")

#: The messages of numpy and Python about other values where an estimator knows dates.
_MEETS_DATES = re.compile(r"DateTime64DType|'datetime\.datetime' and|'Timestamp' and")

#: The messages about pandas.NA in a column of strings.
_NA = re.compile(r"boolean value of NA is ambiguous|Got \['NAType'")

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
    "could not convert string": FOR_STRINGS,
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
        " For a single target, pass the estimator inside the MultiOutput one: model.estimator instead of model."
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
    return bool(_NO_NUMBER.search(message) or _NA.search(message)) or any(part in message for part in _REMEDIES)


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


def _of_gaps_in_texts(message: str, X: object) -> str:
    """Return the message about NaN in an array of strings, which scikit-learn reports without the name of the array."""
    if not message.startswith("Input contains NaN") or not isinstance(X, np.ndarray) or X.dtype != object:
        return ""
    if not any(isinstance(value, float) and value != value for value in X.flat):
        return ""
    return (
        "X contains NaN among its strings. Replace it by a category of the model, such as '': "
        "numpy.where(pandas.isna(X), '', X)."
    )


def _with_remedy(message: str, X: Any, *, of_onnx: bool, by_column: bool) -> str:
    """Return a message of scikit-learn, numpy or pandas about rows or targets, with the remedy."""
    for of_cause in (_of_values, _of_map, _of_dictionaries, _of_lengths, _of_gaps_in_texts):
        if said := of_cause(message, X):
            return said
    remedy = _remedy_for(message, X)
    if "X contains NaN" in message:
        on_matrix = ". Leave out rows with NaN, or replace it: numpy.nan_to_num(X)." if of_onnx else remedy
        remedy = _with_gaps(X, on_matrix, by_column=by_column)
    expected = re.search(r"is expecting (\d+) features as input", message)
    if expected and len(getattr(X, "shape", ())) == 2 and X.shape[0] == int(expected[1]):
        remedy = " X seems to be transposed. Pass X.T; a row of a frame is frame.iloc[[0]], with two pairs of brackets."
    if "got 1D array instead" in message and isinstance(X, (list, tuple)) and X and isinstance(X[0], Mapping):
        return "X is a list of dictionaries, one per row. Pass the columns of all rows: X = pandas.DataFrame(X)."
    of_column = "got 1D array instead" in message or "Expected a 2-dimensional" in message
    if of_column and len(getattr(X, "shape", ())) == 2:
        name = X.columns[0] if is_frame(X) else 0
        remedy = f" In a ColumnTransformer, put the name of a column in brackets: (StandardScaler(), [{name!r}])."
        message = message.partition("\nReshape your")[0].partition(" Pass a DataFrame")[0]
    if "X contains infinity" in message and (place := _place_of(_is_too_large, X)):
        message = f"{message.removesuffix('.')}: {place[0]} in {place[1]}."
        remedy = remedy if hasattr(X, "tocoo") else _for_infinity(X) if np.isinf(place[0]) else _FOR_LARGE
    if "got 1D array instead" in message and hasattr(X, "to_frame"):  # of polars
        return "X is a Series. Pass a frame: X.to_frame() for a column."
    if _NO_DOCUMENT in message and hasattr(X, "fillna"):
        remedy = _for_missing_documents(X)
    if is_frame(X) and _NO_VOCABULARY in message:
        remedy = f". {of_names(X)}"
    if _NO_TEXT in message and not is_of_objects(X) and (hasattr(X, "toarray") or isinstance(X, np.ndarray)):
        is_column = getattr(X.dtype, "kind", "") in "OSU" and X.ndim == 2 and X.shape[1] == 1
        shape = f". X has the shape {X.shape}, but a text vectorizer takes one string per row. Pass X.ravel()."
        remedy = shape if is_column else _FOR_VECTORS
    if is_frame(X) and f"inconsistent numbers of samples: [{X.shape[1]}, {X.shape[0]}]" in message:
        remedy = f". {of_names(X)}"
    found = re.sub(r"np\.\w+\((.*?)\)", r"\1", _TAIL.sub("", message)).replace("np.nan", "NaN")
    found = re.sub(r"array\.reshape\((.*?)\)", r"numpy.reshape(X, (\1))", found)
    if hasattr(X, "__len__") and len(getattr(X, "shape", " ")) == 1:
        found = found.replace("got 1D array instead", f"got 1D array instead, of shape ({len(X)},)")
    begins_a_sentence = remedy[:1] == " " and remedy[1:2].isupper() and found[-1:].isalnum()
    return (found.removesuffix(".") if remedy.startswith(".") else found) + ("." if begins_a_sentence else "") + remedy


def _remedy_for(message: str, X: Any) -> str:
    """Return the remedy for a message of scikit-learn, numpy or pandas about rows, from the table or their values."""
    remedy = _for_na(message, X) or next((remedy for part, remedy in _REMEDIES.items() if part in message), "")
    if _MEETS_DATES.search(message) and is_frame(X) and not date_columns(X):
        return ". X has other values where fit had dates. Pass dates, for example pandas.to_datetime(X['date'])."
    if "strategy with non-numeric data" in message and (mixed := mixed_columns(X)):
        return _FOR_STRINGS_AMONG_NUMBERS.format(mixed[0])
    if "strategy with non-numeric data" in message and (texts := text_columns(X)):
        return _FOR_IMPUTED_TEXTS.format(", ".join(map(repr, texts)), texts)
    if any(part in message for part in _OF_MIXED) and (mixed := mixed_columns(X)):
        return f". {mixed[0]!r} has strings and numbers. {code_of_mixed(mixed[0])}"
    if "yet now missing" in message and any(f"\n- {name}\n" in message for name in _names_of_index(X)):
        return "The index of X has this name. Pass X.reset_index(), which has it as a column."
    if remedy is not FOR_STRINGS:
        return remedy
    if re.search(r"float: ['\"]\s*\{", message) and not is_frame(X):
        return ". X contains JSON. Make a table of it: pandas.DataFrame([json.loads(row) for row in X])."
    of_file = for_file(message)
    return f".{of_file}" if of_file else for_strings(X)


def _names_of_index(X: Any) -> list[Any]:
    """Return the names of the index of a frame; none for other rows."""
    return list(X.index.names) if hasattr(X, "iloc") else []


def _for_infinity(X: Any) -> str:
    """Return the remedy for infinite values in a matrix or a data frame."""
    if text_columns(X):
        return _FOR_INFINITY_AMONG_TEXTS
    table = np.asarray(X)
    if table.dtype == np.float16:
        return " X is float16, whose largest number is 65504. Compute it, or read it, as float32."
    return _FOR_INFINITY if np.isfinite(table.astype(float)).all(axis=1).any() else _FOR_ROWS_OF_INFINITY


def _is_too_large(values: np.ndarray) -> np.ndarray:
    return np.abs(values) > np.finfo(np.float32).max


def _place_of(test: Callable[[np.ndarray], np.ndarray], X: Any) -> tuple[float, str] | None:
    """Return the first value of a numeric table for which a test holds, and its row and column; None for others."""
    if is_frame(X):
        X = X[[name for name, dtype in X.dtypes.items() if dtype.kind in "fiub"]]
    table: Any = X.tocoo() if hasattr(X, "tocoo") else np.asarray(X) if is_frame(X) else X
    if not hasattr(table, "dtype") or table.dtype.kind not in "fO" or len(table.shape) != 2:
        return None
    try:
        values = np.asarray(table.data if hasattr(X, "tocoo") else table, dtype=np.float64)
    except (TypeError, ValueError):  # texts among objects
        return None
    found = np.argwhere(test(values))
    if not len(found):
        return None
    first = tuple(found[0])
    row, column = (table.row[first], table.col[first]) if hasattr(X, "tocoo") else first
    return float(values[first]), f"row {row}, column {repr(X.columns[column]) if is_frame(X) else column}"


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


def _of_dictionaries(message: str, X: Any) -> str:
    """Return the message about NaN in dictionaries, one per row, for a hasher or a vectorizer of them; else nothing."""
    if "X contains NaN" not in message or not isinstance(X, (list, tuple)):
        return ""
    rows = ((i, key, value) for i, row in enumerate(X) if isinstance(row, Mapping) for key, value in row.items())
    row, key, _ = next((place for place in rows if place[2] != place[2]), (0, None, None))
    if key is None:
        return ""
    return (
        f"X[{row}][{key!r}] is NaN. Leave missing entries out of the dictionaries: "
        "X = [{key: value for key, value in row.items() if value == value} for row in X]."
    )


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


def _for_missing_documents(X: Any) -> str:
    """Return the remedy for NaN among texts in a Series, or in columns of a frame."""
    texts = [f"{name!r}: ''" for name in text_columns(X) if X[name].isna().any()]
    return f" Replace missing texts by empty ones: X.fillna({'{' + ', '.join(texts) + '}' if texts else repr('')})."


def _of_values(message: str, X: Any) -> str:
    """Return the message about columns with dates, objects or bytes, if an error is about them; else nothing."""
    if _NO_NUMBER.search(message) and _is_about(X, message):
        return of_columns(X)
    encoded = columns_of(bytes, X) if "could not convert string" in message else {}
    return next((of_bytes(value, f"X[{name!r}]") for name, value in encoded.items()), "")


def _with_gaps(X: Any, remedy: str, *, by_column: bool) -> str:
    """Return where rows have missing values, and the remedy; `remedy` is that of a matrix."""
    if columns := _columns_with_gaps(X):
        return f" in {', '.join(map(repr, columns))}{_for_gaps(X, columns, by_column=by_column) or remedy}"
    if place := _place_of(np.isnan, X):
        return f" in {place[1]}{remedy}"
    if _has_no_gaps(X):
        return (
            " after a step of the pipeline. X itself has no missing values; the step may take, for example, the "
            "logarithm of a negative number, or overflow for large values. Change it, or put a SimpleImputer behind it."
        )
    return remedy


def _for_gaps(X: Any, columns: list[Any], *, by_column: bool) -> str:
    """Return the remedy for missing values in columns of a frame; empty for a numeric frame."""
    every = text_columns(X)
    texts = [name for name in every if name in columns]
    if not texts:
        return _FOR_MISSING_NUMBERS.format(columns[0], columns[0]) if every or by_column else ""
    known = X[texts[0]].dropna()
    if not len(known):
        return _FOR_NO_VALUE.format(texts[0])
    if isinstance(first := known.iloc[0], str) and _DATE.match(first):
        return _FOR_MISSING_DATES.format(texts[0], first)
    return (_FOR_MISSING_TRUTHS if known.map(type).eq(bool).all() else _FOR_MISSING_TEXTS).format(texts[0])


def _columns_with_gaps(X: Any) -> list[Any]:
    """Return the names of up to five columns of a frame with missing values; none for an array."""
    gaps = [name for name in X.columns if X[name].isna().any()] if is_frame(X) and X.columns.is_unique else []
    return [*gaps[:5], *["..."] * (len(gaps) > 5)]


def _for_na(message: str, X: Any) -> str:
    """Return the remedy for pandas.NA in columns of strings or booleans of a frame; empty if there is none."""
    if not _NA.search(message) or not is_frame(X) or not X.columns.is_unique:
        return ""
    columns = [name for name in X.columns if name in text_columns(X) or str(X[name].dtype) == "boolean"]
    first = {name: next(iter(X[name][X[name].isna()]), None) for name in columns}
    names = [name for name, value in first.items() if type(value).__name__ == "NAType"]
    types, values = (", ".join(f"{name!r}: {v}" for name in names) for v in ("object", "numpy.nan"))
    return _FOR_NA.format(", ".join(map(repr, names)), types, values) if names else ""


def _has_no_gaps(X: Any) -> bool:
    """Whether rows, a frame or a matrix of floats, are certain to have no missing values."""
    if is_frame(X):
        return X.columns.is_unique and not _columns_with_gaps(X)
    return isinstance(X, np.ndarray) and X.dtype.kind == "f" and not np.isnan(X).any()


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
