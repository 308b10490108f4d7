"""Users' values as arrays: tensors of other libraries, rows of different lengths, exact casts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from numbers import Number, Real
from typing import Any, TypeGuard

import numpy as np
import scipy.sparse

from onnxtrain.errors import ArgumentTypeError, DataError, ParameterError, unquoted, warn
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
        said = str(e).rstrip(".!")
        remedy = next((remedy for part, remedy in _OF_TENSORS.items() if part in said), "Pass {}.float().")
        remedy = f" {remedy.format(name)}" if hasattr(values, "detach") else " Convert it to float32 first."
        raise DataError(f"{name} of type {kind} cannot become a numpy array: {said}.{remedy}") from e


#: The remedy for a tensor of PyTorch that numpy cannot take, by a part of PyTorch's message.
_OF_TENSORS = {
    "to_dense": "Pass {}.to_dense().",
    "meta tensor": "A tensor on the device 'meta' has a shape and no values. Pass one with values, on a CPU or GPU.",
    "conjugate bit": "Pass {0}.resolve_conj(), or its real part, {0}.real.",
    "ScalarType Q": "Pass {}.dequantize().",
}


def is_polars(X: object) -> TypeGuard[Any]:
    """Whether X is a frame of polars."""
    return hasattr(X, "columns") and hasattr(X, "get_column")


def column_of(X: Any, name: str) -> np.ndarray:
    """Return a column of a polars frame as an array."""
    try:
        return X.get_column(name).to_numpy()
    except Exception as e:  # of polars, as for integers of 128 bits
        raise ArgumentTypeError(
            f"X[{name!r}] has a type that numpy lacks: {e}. Pass X.cast({{{name!r}: float}})."
        ) from e


def as_pandas(X: Any) -> Any:
    """Return a polars frame as a pandas frame, which is then read by column name; return anything else unchanged.

    Strings stay objects: in pandas' string columns a missing value is NaN, which scikit-learn distinguishes from None.
    """
    if not is_polars(X):
        return X
    import pandas as pd

    columns = {name: column_of(X, name) for name in X.columns}
    # structs have their fields on an axis, and dates a type that a Series has itself
    columns = {name: X.get_column(name).to_list() if v.ndim > 1 else v for name, v in columns.items()}
    objects = {name for name, v in columns.items() if isinstance(v, list) or v.dtype == object}
    return pd.DataFrame({name: pd.Series(v, dtype=object) if name in objects else v for name, v in columns.items()})


def not_nullable(y: Any) -> Any:
    """Return y; nullable pandas integers or booleans without missing values become numpy integers or booleans.

    scikit-learn would convert them to floats, and predictions would be floats.
    """
    dtype = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    if dtype is None or dtype.kind not in "iub" or y.isna().any():
        return y
    return y.to_numpy(dtype)


def loses_digits(values: Any) -> bool:
    """Whether values are float64, or integers that float32 would round."""
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
            remedy = unquoted(fill) or " For the token of a tokenizer, pass its id, tokenizer.pad_token_id."
            if fill is None:
                remedy = (
                    " tokenizer.pad_token_id is None if a tokenizer has no padding token, as that of GPT-2. Pass "
                    "tokenizer.eos_token_id; the attention mask hides it."
                )
            raise ParameterError(f"The values of pad must be numbers, got {{{name!r}: {fill!r}}}.{remedy}")
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
        A value is not an integer, is too large for the type, or is not a number; dates and durations are none.
    """
    if values.dtype == dtype:
        return values
    if dtype.kind in "OSU":
        if scipy.sparse.issparse(values):
            raise DataError(
                f"{name} is a sparse matrix of numbers, but the input of the model takes strings: the model contains "
                "its vectorizer or encoder. Pass the strings themselves, such as numpy.reshape(texts, (-1, 1))."
            )
        if values.dtype.kind not in "OSU":
            remedy = _AS_MISSING if values.dtype.kind == "f" and np.isnan(values).all() else _AS_STRINGS
            raise DataError(f"{name} must contain strings, but has dtype {values.dtype}. {remedy.format(name)}")
        return values.astype(object)
    _check_no_dates(values, name)
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


_AS_MISSING = "All its values are missing. Pass them as objects: numpy.asarray({}, object)."
_AS_STRINGS = "If the model was trained on numbers as strings, pass numpy.asarray({}, str)."


def check_texts(values: np.ndarray, name: str) -> None:
    """Check that an array of strings contains no bytes or scalars, which onnxruntime converts to unknown strings."""
    encoded = next((value for value in values.flat if isinstance(value, bytes)), None)
    if encoded is not None:
        raise DataError(
            f"{name} must contain strings, got the bytes {encoded[:20]!r}, which onnxruntime reads as the text "
            f"{str(encoded[:20])!r}. Decode them: numpy.char.decode(numpy.asarray({name}, bytes)). If the model was "
            f"trained on such texts, pass numpy.vectorize(str)({name})."
        )
    others = (value for value in values.flat if not isinstance(value, str))
    found = next((value for value in others if isinstance(value, Real) and value == value), None)  # NaN is missing
    if found is not None:
        raise DataError(
            f"{name} must contain strings, got {found!r:.80} of type {type(found).__name__}. {_AS_STRINGS.format(name)}"
        )


def _check_no_dates(values: Any, name: str) -> None:
    """Raise a DataError for dates or durations, which numpy casts to the units since 1970, such as nanoseconds."""
    kind = values.dtype.kind
    if kind == "O":
        of_time = (date, timedelta, np.datetime64, np.timedelta64)
        first = next((value for value in values.ravel() if isinstance(value, of_time) and value == value), None)
        kind = "m" if isinstance(first, (timedelta, np.timedelta64)) else "M" if first is not None else kind
    if kind in ("m", "M"):
        column = name.partition("The column ")[2]
        unit = "timedelta64[s]" if kind == "m" else "datetime64[D]"
        raise DataError(
            f"{name} contains dates or durations, but the model takes numbers. Convert them to those that it was "
            f"trained on, for example numpy.asarray({f'X[{column}]' if column else name}, '{unit}').astype(float)."
        )


def _numbers(values: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """Return an array of objects or strings as an array of a numeric type."""
    try:
        array = np.array(values.tolist()) if values.dtype == object else values
        # int() would cut off the fraction of a Decimal
        as_floats = dtype.kind == "f" or all(isinstance(value, Number) for value in values.ravel())
        return array if array.dtype.kind in "fiub" else values.astype(np.float64 if as_floats else np.int64)
    except (TypeError, ValueError) as e:
        if isinstance(first := next(iter(values.ravel()), None), bytes) and first:
            raise DataError(of_bytes(first, name)) from e
        if isinstance(first, (list, tuple, np.ndarray)):
            raise DataError(
                f"{name} is an array of objects, which are rows of different lengths. Pass them as a list, "
                f"list({name}), and the number that fills the shorter ones, pad={{name of the input: number}}."
            ) from e
        texts = [str(v) for v in values.ravel()[:1] if isinstance(v, (str, os.PathLike))]
        if texts and (remedy := for_file(texts[0])):
            raise DataError(f"{name} contains names of files, such as {texts[0]!r:.80}.{remedy}") from e
        said = re.sub(r"np\.str_\((.*)\)", r"\1", str(e))
        remedy = " Convert text with the tokenizer of the model." if texts and dtype.kind in "iu" else ""
        if texts and dtype.kind == "f":
            remedy = " Encode strings as the numbers that the model was trained on, or leave their columns out."
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


def for_file(text: str) -> str:
    """Return the remedy for a name of an image or a sound, or a message that ends with one; empty for other strings."""
    return next((remedy for end, remedy in _CONTENTS.items() if re.search(end, text.lower())), "")


#: The first bytes of files of images: PNG, JPEG, GIF, WebP, BMP, TIFF.
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")


def of_bytes(value: bytes, name: str) -> str:
    """Return the message about bytes in a column of a numeric input, with the code that decodes them."""
    remedy = f"Decode each into numbers, for example [numpy.frombuffer(data, numpy.float32) for data in {name}]."
    if value.startswith(_IMAGES):
        remedy = (
            "They are images. Pass the pixels, in the size and scale of the model, for example numpy.stack([numpy."
            "asarray(PIL.Image.open(io.BytesIO(data)).convert('RGB').resize((224, 224)), numpy.float32).transpose(2, "
            f"0, 1) / 255 for data in numpy.ravel({name})])."
        )
    return f"{name} contains bytes, such as {value[:20]!r}, but the model takes numbers. {remedy}"


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


def check_indices(values: Any, n_rows: int, name: str, pad: float | None = None) -> None:
    """Raise a DataError for values that select no row of a table with `n_rows` rows, or one counted from its end.

    `pad` is the value by which rows were made of one length.
    """
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
            if piece[place] == pad:
                remedy = (
                    f"It is the padding value that the parameter pad sets, {pad!r}. Set it to the id of the padding "
                )
                remedy += "token of the tokenizer."
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
        found = values[place]
        column = name.partition("The column ")[2]
        cut = f"X.astype({{{column}: '{dtype}'}})" if column else f"{name}.astype(numpy.{dtype})"
        tokens = "" if column or dtype.kind in "bu" else "Token ids and other indices are integers. "
        remedy = f"To cut off the fractions, pass {cut}."
        if dtype == np.bool_:
            remedy = (
                f"Pass 1 for what counts and 0 for the rest, for example {name} > 0.5. Of a mask that is added to "
                f"scores, pass {name} == 0."
            )
        elif not np.isfinite(found):
            filled = f"X.fillna({{{column}: 0}})" if column else f"numpy.nan_to_num({name})"
            remedy = f"Fill missing values, for example {filled}."
        elif dtype == np.uint8 and values.min() >= 0 and values.max() <= 1:
            remedy = f"Pixels from 0 to 1 become integers from 0 to 255 by ({name} * 255).round().astype(numpy.uint8)."
        elif found == np.floor(found):
            remedy = f"Pass numbers from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}."
        elif tokens and np.mean(values != converted) > 0.5:  # measurements
            tokens = ""
            remedy = (
                "If skl2onnx made the file, the rows of its example were integers. Make it again with "
                f"{name}[:1].astype(numpy.float32), which takes any numbers. {remedy}"
            )
        raise DataError(
            f"{name} must contain {dtype} values, got {found} in row {first + place[0]}. Values are not rounded or "
            f"clipped. {tokens}{remedy}"
        )
    return converted
