"""Rows as the inputs of a model: columns of a frame, or arrays of a mapping, in the declared types and shapes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from onnxtrain.convert.columns import object_columns
from onnxtrain.errors import DataError
from onnxtrain.estimators.arrays import ATTENTION_MASKS, cast, check_mask, check_texts
from onnxtrain.estimators.protocols import Features, is_frame
from onnxtrain.estimators.remedies import as_data_error, check_no_dates
from onnxtrain.estimators.row_shapes import check_features


def feeds_by_name(X: Features, inputs: Mapping[str, np.dtype], shapes: Mapping[str, tuple]) -> dict[str, np.ndarray]:
    """Return the columns of a frame for each input of a model, in the type of the input.

    Raises
    ------
    DataError
        An input has no column with its name.
    ArgumentTypeError
        A numeric input has a column of dates.
    """
    X = _with_names(X, inputs) if is_frame(X) else X
    names = list(X) if isinstance(X, Mapping) else [str(name) for name in getattr(X, "columns", ())]
    only = next(iter(inputs))
    if len(inputs) == 1 and not isinstance(X, Mapping) and (only not in names or are_one_input(X, shapes)):
        if len(shapes[only]) > 2 and object_columns(X):  # a column of arrays
            raise no_column(only, names, inputs)
        return {name: _as_matrix(X, dtype, shapes[name]) for name, dtype in inputs.items()}
    if not names:
        raise DataError(
            f"X must be a DataFrame with the columns {', '.join(inputs)}, the inputs of the model, got "
            f"{type(X).__name__}. Pass pandas.DataFrame(X, columns={list(inputs)!r:.200}), with types as in fit."
        )
    _check_no_dates(X, inputs)
    feeds: dict[str, np.ndarray] = {}
    refused: dict[str, DataError] = {}
    for name, dtype in inputs.items():
        if name not in names:
            raise no_column(name, names, inputs)
        try:
            column = _as_fitted(name, np.asarray(X[name]), dtype)
        except DataError as e:
            if coded := _categories_of_numbers(X, inputs):
                raise coded from None
            if dtype.kind not in "iu":
                raise
            refused[name] = e
            continue
        feeds[name] = np.ascontiguousarray(column.reshape(-1, 1) if column.ndim < len(shapes[name]) else column)
    if refused:
        raise _of_integers(refused)
    return feeds


def _with_names(X: Any, inputs: Mapping[str, np.dtype]) -> Any:
    """Return a frame with strings as column names; scikit-learn takes columns with integer names by position."""
    if any(isinstance(name, str) for name in X.columns):
        return X
    by_position = len(inputs) == len(X.columns) and all(name.isdigit() for name in inputs)
    return X.set_axis(list(inputs) if by_position else [str(name) for name in X.columns], axis=1)


def are_one_input(X: Any, shapes: Mapping[str, tuple[Any, ...] | None]) -> bool:
    """Whether the columns of a frame are together the only input of a model, although one of them has its name.

    Columns named X, Y and Z are as many as an input X takes. A column of arrays is an input of its own.
    """
    (name, shape), *others = shapes.items()
    if others or not shape or not is_frame(X) or not 1 < X.shape[1] == shape[-1] or not X.columns.is_unique:
        return False
    return name in X.columns and X[name].dtype.kind in "fiub"


#: The remedy for an input of a model of transformers that X lacks, by the beginning of its name.
_OF_TOKENS = {
    "token_type_ids": "It is 0 for the tokens of a single text: inputs={'token_type_ids': 0} on the estimator. The "
    "tokenizer makes it for pairs of texts.",
    "position_ids": "It counts the tokens: numpy.broadcast_to(numpy.arange(X['input_ids'].shape[1]), "
    "X['input_ids'].shape).",
    "decoder_input_ids": "It is y behind the start token of the decoder, without the last label: "
    "numpy.pad(y[:, :-1], [(0, 0), (1, 0)], constant_values=decoder_start_token_id).",
    "past_key_values": "It holds the results of earlier tokens when a text is generated, which training does not have. "
    "Export the model without it: optimum-cli export onnx --task text-generation --model name folder.",
}


def no_column(name: str, names: Sequence[str], inputs: Collection[str], widths: Sequence[int] = ()) -> DataError:
    """Return the error for an input that has no column, with the columns that may be meant.

    `widths` are the numbers of columns of the inputs, 0 if one takes no matrix.
    """
    others = [other for other in names if other not in inputs]
    if name == "input_ids" and names and all(other.isdigit() for other in names):
        return DataError(
            f"X has no column 'input_ids', which is an input of the model, but {len(names)} columns with numbers as "
            "names. If they are the positions of the tokens, pass {'input_ids': X.to_numpy(), 'attention_mask': "
            "numpy.ones(X.shape, int)}."
        )
    if name in ATTENTION_MASKS and not others:
        return DataError(
            f"X has no column {name!r}, which is an input of the model. The tokenizer makes it. A mask that keeps all "
            f"tokens is numpy.ones_like(X[{next(iter(names))!r}]), or inputs={{{name!r}: 1}} on the estimator."
        )
    of_tokens = next((remedy for part, remedy in _OF_TOKENS.items() if name.startswith(part)), "")
    if of_tokens and not others and "input_ids" in names:
        return DataError(f"X has no column {name!r}, which is an input of the model. {of_tokens}")
    renamed = len(others) == 1 < len(names)
    if name == "input_ids" and len(inputs) > 1 and not any("id" in other for other in names) and not renamed:
        return DataError(
            f"X has no column 'input_ids', which is an input of the model, but {', '.join(names)}. The tokenizer of "
            "the model makes it from texts: X = tokenizer(list(texts), padding=True, return_tensors='np')."
        )
    if len(names) == len(others) > len(widths) > 1 and all(widths) and sum(widths) == len(names):
        columns = iter(names)
        chosen = (f"{x!r}: X[{list(islice(columns, n))!r}]" for x, n in zip(inputs, widths, strict=True))
        return DataError(
            f"X has {len(names)} columns, but none has the name of an input of the model: {', '.join(inputs)}. Pass "
            f"the columns of each input; in this order, {{{', '.join(chosen)}}}."
        )
    remedy = (
        f"Rename one of its columns: {', '.join(others)}."
        if others
        else f"Add it to the others: {', '.join(names)}. A value for all rows is inputs={{{name!r}: 0}}, a parameter."
    )
    if len(others) == len(names) == len(inputs) == 1:
        remedy = f"Rename its column: {{{name!r}: X[{others[0]!r}]}}."
    return DataError(f"X has no column {name!r}, which is an input of the model. {remedy}")


def _as_matrix(X: npt.ArrayLike, dtype: np.dtype, shape: tuple) -> np.ndarray:
    """Return the columns of a numeric frame as the only input of a model."""
    found: Any = X
    if is_frame(X):
        odd = any(kind.kind in "mMc" for kind in X.dtypes)  # pandas would take durations, and real parts alone
        with as_data_error(X):
            found = found.astype(object) if odd else found
            found = found.to_numpy(dtype, **(dict(na_value=np.nan) if dtype.kind == "f" else {}))  # of nullable columns
    rows = np.ascontiguousarray(np.asarray(found), dtype=dtype)
    check_features(rows, shape, "the model takes")
    return rows


def _check_no_dates(X: Any, inputs: Mapping[str, np.dtype]) -> None:
    """Raise an ArgumentTypeError for columns with dates or durations whose input is numeric."""
    if is_frame(X):
        numeric = {name for name, dtype in inputs.items() if dtype.kind not in "OSU"}
        others = [name for name, kind in X.dtypes.items() if kind.kind not in "fiub" and str(name) in numeric]
        check_no_dates(X[others])


def _as_fitted(name: str, column: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a column of a frame in the type that it had in ``fit``."""
    if dtype.kind not in "OSU":
        return cast(column, dtype, f"The column {name!r}")
    # a column of booleans with gaps holds objects, and booleans in rows without a gap
    if column.dtype.kind in "fiu" and not (column.dtype.kind == "f" and np.isnan(column).all()):
        raise DataError(
            f"The column {name!r} contained texts in fit, but has dtype {column.dtype}. Pass X.astype({{{name!r}: "
            f"str}}) if these numbers are the texts, and the texts themselves if they are codes of them. If they "
            f"begin with zeros in a file, read them as texts: pandas.read_csv(..., dtype={{{name!r}: str}})."
        )
    return column.astype(object)


def _categories_of_numbers(X: Any, inputs: Mapping[str, np.dtype]) -> DataError | None:
    """Return the error for categorical columns of integers or floats that are inputs of strings; None without any."""
    texts = [name for name, dtype in inputs.items() if dtype.kind in "OSU" and is_frame(X) and name in X.columns]
    categories = {name: np.asarray(X[name]) for name in texts if X[name].dtype.name == "category"}
    types = {name: column.dtype.name for name, column in categories.items() if column.dtype.kind in "fiub"}
    if not types:
        return None
    as_texts = ", ".join(f"{name!r}: str" for name in types)
    return DataError(
        f"Categories are taken as texts, but those of {', '.join(map(repr, types))} are numbers. Pass "
        f"X.astype({types}), which takes them as numbers, or X.astype({{{as_texts}}}), in fit and in predict."
    )


def _of_integers(refused: Mapping[str, DataError]) -> DataError:
    """Return the error for columns of integers or booleans in ``fit`` that now hold fractions or missing values."""
    first = next(iter(refused.values()))
    types = ", ".join(f"{name!r}: float" for name in refused)
    error = DataError(
        f"{first} It contained integers or booleans in fit. For missing values or fractions, use "
        f"X.astype({{{types}}}) in fit and in predict."
    )
    error.__cause__ = first
    return error


def as_declared(name: str, column: Any, dtype: np.dtype, shape: tuple[int | None, ...] | None) -> Any:
    """Return the values of an input of an ONNX model in its declared type and shape."""
    column = cast(column, dtype, name)
    if dtype.kind == "O":
        check_texts(column, name)
    if dtype.kind == "i" and "mask" in name.lower():
        check_mask(column, name)
    one = column.shape[1] if column.ndim == 2 else shape[1] if shape is not None and len(shape) == 2 else None
    if shape is not None and {column.ndim, len(shape)} == {1, 2} and one == 1:
        column = column.toarray() if scipy.sparse.issparse(column) else column
        column = column.reshape(-1, 1) if column.ndim == 1 else column.reshape(-1)
    if shape is not None:
        check_features(column, shape, "the model takes", name)
    if scipy.sparse.issparse(column) or isinstance(column, np.memmap):
        return column
    return np.ascontiguousarray(column)
