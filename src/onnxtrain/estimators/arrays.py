"""Users' values as arrays: tensors of other libraries, rows of different lengths, exact casts; errors with a remedy.

Errors of scikit-learn, numpy and pandas about rows and targets are raised as a DataError with the remedy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
import scipy.sparse

from onnxtrain.convert.columns import date_columns, object_columns, text_columns, types_of_columns
from onnxtrain.errors import ArgumentTypeError, DataError, OnnxTrainError, ParameterError, warn
from onnxtrain.estimators.protocols import is_frame, is_of_objects
from onnxtrain.registry import did_you_mean

#: The number of elements of a memory map that are examined at a time.
_PIECE = 2**24

#: Inputs of transformers that have 1 for the tokens that count and 0 for padding.
ATTENTION_MASKS = frozenset({"attention_mask", "decoder_attention_mask", "encoder_attention_mask"})

#: float32 represents every integer up to this one.
_COUNTED = 2**24


def as_array(values: Any, name: str = "X") -> Any:
    """Return values as an ndarray; a sparse matrix or a frame stays one.

    Tensors that require a gradient are detached, and tensors on a GPU are copied to the CPU. Memory maps and tensors in
    CPU memory are not copied.

    Raises
    ------
    DataError
        numpy lacks the type of the tensor, such as bfloat16.
    """
    if isinstance(values, np.ndarray) or scipy.sparse.issparse(values) or hasattr(values, "iloc"):
        return values
    try:
        if hasattr(values, "detach"):
            values = values.detach().cpu()
        if hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
            return np.from_dlpack(values)
        return np.asarray(values)
    except (TypeError, BufferError, RuntimeError) as e:
        kind = getattr(values, "dtype", type(values).__name__)
        said = str(e).rstrip(".")
        remedy = "" if "to_dense" in said else " Convert it to float32 first."
        raise DataError(f"{name} of type {kind} cannot become a numpy array: {said}.{remedy}") from e


def is_polars(X: object) -> TypeGuard[Any]:
    """Whether X is a frame of polars."""
    return hasattr(X, "columns") and hasattr(X, "get_column")


def as_pandas(X: Any) -> Any:
    """Return a polars frame as a pandas frame, which is then read by column name; return anything else unchanged.

    Strings stay objects: in pandas' string columns a missing value is NaN, which scikit-learn distinguishes from None.
    """
    if not is_polars(X):
        return X
    import pandas as pd

    columns = {name: X.get_column(name).to_numpy() for name in X.columns}
    texts = {name for name, values in columns.items() if values.dtype == object}  # not dates: Series has its own type
    return pd.DataFrame({name: pd.Series(v, dtype=object) if name in texts else v for name, v in columns.items()})


def not_nullable(y: Any) -> Any:
    """Return y; nullable pandas integers or booleans without missing values become numpy integers or booleans.

    scikit-learn would convert them to floats, and predictions would be floats.
    """
    dtype = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    if dtype is None or dtype.kind not in "iub" or y.isna().any():
        return y
    return y.to_numpy(dtype)


def loses_digits(values: Any) -> bool:
    """Whether values are float64, or integers of which float32 rounds some."""
    if values.dtype.kind in "iu":
        return bool(values.size) and max(-int(values.min()), int(values.max())) > _COUNTED
    dtype = getattr(values.dtype, "subtype", values.dtype)  # a sparse column has the type of its values inside
    return values.dtype.kind == "f" and dtype.itemsize > 4


def as_padding(pad: Mapping[str, float] | None, types: Mapping[str, str]) -> dict[str, float]:
    """Return `pad` with its values as int or float, each of the type of its input.

    Raises
    ------
    ParameterError
        `pad` names an unknown input, or a value is not a number or not of the type of the input.
    """
    for name, fill in (pad or {}).items():
        if name not in types:
            raise ParameterError(f"pad contains {name!r}, which is not an input for rows. {did_you_mean(name, types)}")
        dtype = np.dtype(types[name])
        if dtype.kind in "OSU":
            raise ParameterError(f"pad contains {name!r}, an input of strings, but rows are padded with a number.")
        if not isinstance(fill, Real):
            raise ParameterError(f"The values of pad must be numbers, got {{{name!r}: {fill!r}}}.")
        if name in ATTENTION_MASKS and fill:
            raise ParameterError(
                f"pad={{{name!r}: {fill!r}}} lets padding count. Leave it out: masks are padded with 0."
            )
        if not _holds(dtype, fill):
            raise ParameterError(
                f"The value of pad for {name!r} must be an integer in the range of {dtype}, the type of this input, "
                f"got {fill!r}. Values are not rounded or clipped. A mask tells the model which entries to ignore."
            )
    return {name: int(fill) if float(fill).is_integer() else float(fill) for name, fill in (pad or {}).items()}


def _holds(dtype: np.dtype, value: Real) -> bool:
    """Whether a type can represent a value; a floating-point type may round it."""
    if dtype.kind == "f":
        return True
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(low <= float(value) <= high) and float(value).is_integer()


def as_column(name: str, values: Any, pad: Mapping[str, float], length: int | None) -> Any:
    """Return the values of one input as an array or a CSR matrix; rows of different lengths are padded.

    Parameters
    ----------
    name : str
    values : array-like
        A list, or an array or series of objects, may hold rows of different lengths.
    pad : mapping of str to float
        The padding values, by the name of the input; 0 in masks.
    length : int or None
        The declared length of a row, to which rows are padded.

    Raises
    ------
    DataError
        Rows have different lengths, and `pad` does not name the input.
    """
    if scipy.sparse.issparse(values):
        return values.tocsr()
    found = f"X[{name!r}]"
    try:
        array = values if isinstance(values, np.ndarray) else np.asarray(as_array(values, found))
    except ValueError as e:  # rows of different lengths
        try:
            rows = [np.asarray(as_array(row, found)) for row in values]
        except DataError:  # of a type that numpy lacks
            raise
        except ValueError:
            kinds = ", ".join(type(part).__name__ for part in values[0])
            raise DataError(
                f"A row of {found} must be an array, got a {type(values[0]).__name__} of {kinds}. Pass the array alone."
            ) from e
        return _padded(name, rows, pad, length, cause=e)
    if array.dtype == object and array.ndim == 1 and len(array) and _is_row(array[0]):
        rows = [np.asarray(as_array(row, found)) for row in array]
        if len({row.shape for row in rows}) > 1:
            return _padded(name, rows, pad, length)
        array = np.stack(rows)
    if length is not None and array.ndim > 1 and array.shape[1] < length and _fill(name, pad) is not None:
        return _padded(name, list(array), pad, length)
    return array


def _is_row(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or len(getattr(value, "shape", ())) > 0


def _fill(name: str, pad: Mapping[str, float]) -> float | None:
    return pad.get(name, 0 if pad and "mask" in name.lower() else None)


def _padded(
    name: str,
    rows: Sequence[np.ndarray],
    pad: Mapping[str, float],
    length: int | None,
    cause: Exception | None = None,
) -> np.ndarray:
    fill = _fill(name, pad)
    if any(row.ndim == 0 or row.dtype == object for row in rows) or len({row.shape[1:] for row in rows}) > 1:
        raise DataError(
            f"The rows of X[{name!r}] may differ only in length, along their first axis, but have different shapes: "
            f"{', '.join(map(str, sorted({row.shape for row in rows})[:4]))}. Resize images to one size."
        ) from cause
    lengths = [len(row) for row in rows]
    if fill is None:
        example = ", ".join(f"{key!r}: {value!r}" for key, value in {**pad, name: 0}.items())
        raise DataError(
            f"The rows of X[{name!r}] have different lengths, from {min(lengths)} to {max(lengths)}. Set "
            f"pad={{{example}}} to pad them to the longest; attention masks are padded with 0."
        ) from cause
    longest = max([*lengths, length or 0])
    dtype = np.result_type(*{row.dtype for row in rows if len(row)} or {np.dtype(np.int64)})
    if dtype.kind != "f":  # integers in the rows of a floating-point input
        dtype = np.result_type(dtype, np.min_scalar_type(fill) if isinstance(fill, int) else np.float64)
    padded = np.full((len(rows), longest, *rows[0].shape[1:]), fill, dtype)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded


def cast(values: Any, dtype: np.dtype, name: str) -> Any:
    """Return an array in a type of the model; casts to integers and booleans must be exact.

    A memory map and a CSR matrix keep their type; their batches are cast later.

    Raises
    ------
    DataError
        A value is not an integer, is too large for the type, or is not a number.
    """
    if values.dtype == dtype:
        return values
    if dtype.kind in "OSU":
        if values.dtype.kind not in "OSU":
            raise DataError(f"{name} must contain strings, but has dtype {values.dtype}.")
        return values.astype(object)
    if values.dtype.kind not in "fiub":
        return cast(_numbers(values, dtype, name), dtype, name)
    exact = dtype.kind == "f" or np.can_cast(values.dtype, dtype, "safe")
    if scipy.sparse.issparse(values):
        return values if exact else cast(values.toarray(), dtype, name)
    if not isinstance(values, np.memmap):
        return values.astype(dtype) if exact else _cast_exactly(values, dtype, name)
    size = max(1, _PIECE // max(1, values[:1].size))
    for start in () if exact else range(0, len(values), size):
        _cast_exactly(values[start : start + size], dtype, name, start)
    return values


def _numbers(values: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """Return an array of objects or strings as an array of a numeric type."""
    try:
        array = np.array(values.tolist()) if values.dtype == object else values
        return array if array.dtype.kind in "fiub" else values.astype(np.float64 if dtype.kind == "f" else np.int64)
    except (TypeError, ValueError) as e:
        texts = [str(v) for v in values.ravel()[:1] if isinstance(v, (str, os.PathLike))]
        if texts and (remedy := _for_file(texts[0])):
            raise DataError(f"{name} contains names of files, such as {texts[0]!r:.80}.{remedy}") from e
        said = re.sub(r"np\.str_\((.*)\)", r"\1", str(e))
        remedy = " Convert text with the tokenizer of the model." if texts and dtype.kind in "iu" else ""
        if texts and texts[0].startswith("["):
            remedy = " Convert strings of lists: [ast.literal_eval(text) for text in texts]."
        elif (
            texts
            and dtype.kind == "i"
            and name.startswith("X[")
            and re.fullmatch(r"-?\d+(\s+-?\d+)*", texts[0].strip())
        ):
            remedy = f" Convert strings of numbers: [[int(word) for word in text.split()] for text in {name}]."
        raise DataError(
            f"{name} has dtype {values.dtype}, which cannot be converted to {dtype}: {said}.{remedy}"
        ) from e


#: What to pass instead of the names of files, by the end of a name.
_CONTENTS = {
    r"\.(bmp|gif|jpe?g|png|tiff?|webp)\W*$": (
        " Pass the pixels, in the size and scale of the model, for example numpy.stack([numpy.asarray(PIL.Image.open("
        "name).convert('RGB').resize((224, 224)), numpy.float32).transpose(2, 0, 1) / 255 for name in names])."
    ),
    r"\.(flac|m4a|mp3|ogg|wav)\W*$": " Pass the samples, for example [soundfile.read(name)[0] for name in names].",
}


def _for_file(text: str) -> str:
    """Return the remedy for a name of an image or a sound, or a message that ends with one; empty for other strings."""
    return next((remedy for end, remedy in _CONTENTS.items() if re.search(end, text.lower())), "")


#: Longformer marks tokens with global attention by 2.
_LARGEST_MARK = 2


def warn_of_mask(values: Any, name: str) -> None:
    """Warn of an attention mask that masks whole rows, as an inverted mask does, or that holds token ids."""
    if getattr(values, "ndim", 0) != 2 or values.dtype.kind not in "biu" or not values.size:
        return
    if (largest := values.max()) > _LARGEST_MARK:
        warn(
            f"{name} contains {largest}, but a mask has 1 for the tokens that count and 0 for padding. It may be "
            "swapped with another input, such as the token ids."
        )
    empty = np.flatnonzero(~np.asarray(values).any(axis=1))
    if len(empty) and not np.asarray(values).all(axis=1).any():  # a row without entries has an empty mask, too
        warn(
            f"{name} is 0 everywhere in row {empty[0]}, which masks the whole row. A mask of integers has 1 for the "
            "tokens that count and 0 for padding."
        )


def check_mask(values: Any, name: str) -> None:
    """Raise a DataError for an additive mask, such as 0 and -10000, where the model takes integers."""
    if values.size and values.min() < 0:
        raise DataError(
            f"{name} contains {values.min()}, but this input takes integers: 1 for the tokens that count and 0 for "
            f"padding. Convert an additive mask: ({name} == 0).astype(int)."
        )


def warn_of_multiplied_mask(values: Any, name: str) -> None:
    """Warn of a mask of 0 and 1 for an input that is added to the scores of an attention."""
    values = np.asarray(values)
    if values.size and values.min() == 0 and values.max() == 1 and np.isin(values, (0, 1)).all():
        warn(
            f"{name} contains only 0 and 1, but the model adds this mask to the scores of its attention, where 0 keeps "
            f"a token and a large negative number hides it. Convert it: numpy.where({name}, 0.0, -10000.0)."
        )


def check_indices(values: Any, n_rows: int, name: str) -> None:
    """Raise a DataError for values that select no row of a table with `n_rows` rows, or one counted from its end."""
    if getattr(values, "dtype", np.dtype(object)).kind not in "fiu" or scipy.sparse.issparse(values):
        return
    size = max(1, _PIECE // max(1, values[:1].size))
    for start in range(0, len(values), size):
        piece = values[start : start + size]
        if not piece.size or 0 <= piece.min() <= piece.max() < n_rows:
            continue
        outside = np.argwhere((piece < 0) | (piece >= n_rows))
        if len(outside):  # else NaN, which is refused by its type
            place = tuple(outside[0])
            remedy = (
                "ONNX would count it from the end of the table. Pad with the id of the padding token; -100 marks "
                "labels in y that do not count."
                if piece[place] < 0
                else "Use the tokenizer or the encoding that the model was trained with."
            )
            raise DataError(
                f"{name} contains {piece[place]} in row {start + place[0]}, but its values select rows of a table of "
                f"the model, 0 to {n_rows - 1}. {remedy}"
            )


def _cast_exactly(values: np.ndarray, dtype: np.dtype, name: str, first: int = 0) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        converted = values.astype(dtype)
    different = np.argwhere(values != converted)
    if len(different):
        place = tuple(different[0])
        raise DataError(
            f"{name} must contain {dtype} values, got {values[place]} in row {first + place[0]}. Values are not "
            "rounded or clipped."
        )
    return converted


# ---------------------------------------------------------------------- errors


_FOR_TEXT = (
    ". The rows contain strings, but the model takes numbers. Put an encoder before it, for example "
    "make_pipeline(OneHotEncoder(handle_unknown='ignore'), model), or leave these columns out."
)
_FOR_DOCUMENTS = (
    ". X contains one string per row, but the model takes numbers. Put a vectorizer before it, "
    "make_pipeline(TfidfVectorizer(), model), or pass the matrix that the vectorizer of fit returns."
)
_FOR_DATES = (
    ". The rows contain dates, but the model takes numbers. Replace a column of dates by its days, "
    "(X['date'] - pandas.Timestamp('2020-01-01')).dt.days, or leave it out."
)
_FOR_COMPLEX = ". Pass real and imaginary parts as columns: numpy.c_[X.real, X.imag] or numpy.c_[y.real, y.imag]."

_FOR_VECTORS = (
    ", but a text vectorizer takes one string per row, and X has numbers, as after a vectorizer. Pass the texts, or a "
    "model without the vectorizer."
)
_FOR_MISSING_NUMBERS = (
    ". Put an imputer before the step of the pipeline that takes these columns, such as "
    "(make_pipeline(SimpleImputer(), StandardScaler()), [{!r}]) in make_column_transformer, or fill them: "
    "X.fillna({{{!r}: 0.0}})."
)
_FOR_MISSING_TEXTS = (
    ". Fill missing texts, for example X.fillna({{{!r}: 'missing'}}), and missing numbers by an imputer in the "
    "pipeline. Its file then contains the imputer."
)

#: The end of the message of a text vectorizer about a row that is no string, and the message about rows without words.
_NO_TEXT, _NO_VOCABULARY = "has no attribute 'lower'", "empty vocabulary"

#: The messages of numpy and pandas about a value that is no number.
_NO_NUMBER = re.compile(r"float\(\) argument must be|DType|Cannot cast|setting an array element")

#: The values that scikit-learn prints with its messages about complex values and about arrays of one axis, and its list
#: of other estimators for rows with NaN.
_TAIL = re.compile(
    r"(?<=Complex data not supported)\n.*|(?<=array instead):\narray=.*(?=\nReshape your)|(?<=X contains NaN)\..*",
    re.DOTALL,
)

#: The remedy for invalid rows or targets, by a part of scikit-learn's message.
_REMEDIES = {
    "could not convert string": _FOR_TEXT,
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
    "LabelEncoder.fit_transform()": ". LabelEncoder is for y. Use OneHotEncoder for columns of X.",
    "Specifying the columns using strings": " Pass a frame with them: pandas.DataFrame(X, columns=[...]).",
    "X does not contain any features": ". A row of a frame is frame.iloc[[0]], with two pairs of brackets.",
    "raw text documents expected": " Pass a list of strings, also for a single text: ['...'].",
    "is an invalid document": " Replace missing texts by empty ones, for example with X.fillna('').",
    _NO_TEXT: (
        ", but a text vectorizer takes one string per row. Replace missing texts by empty ones, and pass the column of "
        "a table, X['text'] or [row[0] for row in X]."
    ),
    "inconsistent numbers of samples: [1, ": (
        ". If a ColumnTransformer gives a column of texts to a vectorizer, name the column without brackets: "
        "(TfidfVectorizer(), 'text')."
    ),
    "Found unknown categories": (
        ". Fit again with an encoder that ignores unknown categories, OneHotEncoder(handle_unknown='ignore'), or pass "
        "only categories of fit."
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
    "at least one array or dtype is required": ": X has no columns.",
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
    "yet now missing": "Rename the columns to those of fit, model.feature_names_in_, and add the missing ones.",
    "Feature names unseen": "Select the columns of fit: X[model.feature_names_in_].",
    "sample_weight contains": " Set the weight of a row to 0 to leave it out.",
    "passed to `sample_weight`": " Set the weight of a row to 0 to leave it out.",
    "of the loss 'HalfPoissonLoss'": " y must be 0 or more, and not 0 in all rows; LinearRegression takes any.",
    "of the loss 'HalfGammaLoss'": " y must be greater than 0; LinearRegression takes any values.",
    "of the loss 'HalfTweedieLoss'": " y must be greater than 0, or 0 and more for a power below 2.",
    "Sample weights must be 1D": " Pass one weight per row of X, such as sample_weight[:, 0].",
    "(numpy.record,": ". Convert records to columns: pandas.DataFrame(X).",
    "Cannot cast array data from dtype([(": ". Convert the fields to columns: pandas.DataFrame(X).",
    "same order as they were in fit": "Pass X[model.feature_names_in_], which has the columns in that order.",
    "are not in class_weight": ". Its keys must be labels as in y, the number 1 and not the string '1'.",
}


def has_remedy(message: str) -> bool:
    """Whether :func:`as_data_error` knows a remedy for a message of scikit-learn, numpy or pandas."""
    return bool(_NO_NUMBER.search(message)) or any(part in message for part in _REMEDIES)


@contextmanager
def as_data_error(X: object = None, *, of_onnx: bool = False) -> Iterator[None]:
    """Raise scikit-learn's validation errors as a DataError with the same message.

    If `X` is a frame with columns that hold no numbers, the message names them. An ONNX model has no encoder or imputer
    before it.
    """
    try:
        yield
    except OnnxTrainError:
        raise
    except (AttributeError, TypeError, ValueError) as e:
        if isinstance(e, AttributeError) and _NO_TEXT not in str(e):
            raise
        said = _with_remedy(str(e), as_pandas(X), of_onnx=of_onnx)
        raise (ArgumentTypeError if isinstance(e, TypeError) else DataError)(said) from e


def _with_remedy(message: str, X: Any, *, of_onnx: bool) -> str:
    """Return a message of scikit-learn, numpy or pandas about rows or targets, with the remedy."""
    said = _of_columns(X) if _NO_NUMBER.search(message) and _is_about(X, message) else ""
    if said:
        return said
    remedy = next((remedy for part, remedy in _REMEDIES.items() if part in message), "")
    if remedy is _FOR_TEXT:
        of_file = _for_file(message)
        remedy = f".{of_file}" if of_file else _for_texts(X)
    if of_onnx and "X contains NaN" in message:
        remedy = ". Leave out rows with NaN, or replace it: numpy.nan_to_num(X)."
    if "X contains NaN" in message and (columns := _columns_with_gaps(X)):
        every = text_columns(X)
        texts = [name for name in every if name in columns]
        remedy = _FOR_MISSING_NUMBERS.format(columns[0], columns[0]) if every else remedy
        remedy = _FOR_MISSING_TEXTS.format(texts[0]) if texts else remedy
        remedy = f" in {', '.join(map(repr, columns))}{remedy}"
    elif "X contains NaN" in message and _has_no_gaps(X):
        remedy = " after a step of the pipeline. X itself has no missing values; the step may take, for example, the "
        remedy += "logarithm of a negative number."
    expected = re.search(r"is expecting (\d+) features as input", message)
    if expected and len(getattr(X, "shape", ())) == 2 and X.shape[0] == int(expected[1]):
        remedy = " X seems to be transposed. Pass X.T; a row of a frame is frame.iloc[[0]], with two pairs of brackets."
    if "got 1D array instead" in message and isinstance(X, (list, tuple)) and X and isinstance(X[0], Mapping):
        return "X is a list of dictionaries, one per row. Pass the columns of all rows: X = pandas.DataFrame(X)."
    if is_frame(X) and _NO_VOCABULARY in message:
        remedy = f". {of_names(X)}"
    if _NO_TEXT in message and not is_of_objects(X) and (hasattr(X, "toarray") or isinstance(X, np.ndarray)):
        remedy = _FOR_VECTORS
    if is_frame(X) and f"inconsistent numbers of samples: [{X.shape[1]}, {X.shape[0]}]" in message:
        remedy = f". {of_names(X)}"
    found = re.sub(r"np\.\w+\((.*?)\)", r"\1", _TAIL.sub("", message)).replace("np.nan", "NaN")
    begins_a_sentence = remedy[:1] == " " and remedy[1:2].isupper() and found[-1:].isalnum()
    return (found.removesuffix(".") if remedy.startswith(".") else found) + ("." if begins_a_sentence else "") + remedy


def _columns_with_gaps(X: Any) -> list[Any]:
    """Return the names of up to five columns of a frame with missing values; none for an array."""
    gaps = [name for name in X.columns if X[name].isna().any()] if is_frame(X) and X.columns.is_unique else []
    return [*gaps[:5], *["..."] * (len(gaps) > 5)]


def _has_no_gaps(X: Any) -> bool:
    """Whether rows, a frame or a matrix of floats, are certain to have no missing values."""
    if is_frame(X):
        return X.columns.is_unique and not _columns_with_gaps(X)
    return isinstance(X, np.ndarray) and X.dtype.kind == "f" and not np.isnan(X).any()


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


def _for_texts(X: Any) -> str:
    """Return the remedy for strings in the rows, which names the columns of a frame."""
    columns = text_columns(X)
    if not columns and is_of_objects(X):
        return _FOR_DOCUMENTS
    if not columns:
        return _FOR_TEXT
    first = repr(columns[0])
    values = X[columns[0]].dropna().astype(str)
    if values.str.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?|[-+]?\d{1,3}(\.\d+)?").all():
        return (
            f". X contains numbers with commas between the thousands as strings in {first}. Convert them: "
            f"X[{first}].str.replace(',', '').astype(float)."
        )
    if re.fullmatch(r"[-+]?[\d.]+,\d+|[-+]?[\d.,]+ ?%", str(next(iter(X[columns[0]].dropna()), ""))):
        return (
            f". X contains numbers with a comma or a percent sign as strings in {first}. Convert them, for example "
            f"X[{first}].str.rstrip(' %').str.replace(',', '.').astype(float)."
        )
    return (
        f". X contains strings in {', '.join(map(repr, columns))}, but the model takes numbers. Put an encoder before "
        f"it, such as make_column_transformer((OneHotEncoder(), [{first}]), remainder='passthrough'), or leave these "
        f"columns out. Convert numbers stored as strings with X.astype({{{first}: float}}), or with "
        f"pandas.to_numeric(X[{first}], errors='coerce') if some of the strings mark missing numbers, and dates with "
        f"pandas.to_datetime(X[{first}])."
    )


def of_names(X: Any) -> str:
    """Return the message for a frame whose column names a step of a pipeline took as its rows."""
    name = next(iter(text_columns(X) or X.columns))
    return (
        f"X is a frame, and a text vectorizer takes the names of its columns as the texts. Pass a column, X[{name!r}], "
        f"or select it in the pipeline, make_column_transformer((TfidfVectorizer(), {name!r}))."
    )
