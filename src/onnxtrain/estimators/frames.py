"""The forms of rows: one array, frames with columns of several types, several inputs by name, images."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Number
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array

from onnxtrain import graph
from onnxtrain.convert.columns import by_column
from onnxtrain.convert.model_inputs import Entrance
from onnxtrain.errors import DataError, warn
from onnxtrain.estimators.arrays import (
    ATTENTION_MASKS,
    as_array,
    as_column,
    as_padding,
    as_pandas,
    cast,
    check_indices,
    column_of,
    is_polars,
    loses_digits,
    not_nullable,
    warn_of_mask,
)
from onnxtrain.estimators.feeds import are_one_input, as_declared, feeds_by_name, no_column
from onnxtrain.estimators.named_columns import check_named, check_not_finite, takes_nan, without_imputed
from onnxtrain.estimators.protocols import (
    ArrayLike,
    Estimator,
    Features,
    Inputs,
    allows_nan,
    is_frame,
    is_of_objects,
    is_onnx,
)
from onnxtrain.estimators.remedies import as_data_error
from onnxtrain.estimators.row_shapes import check_features
from onnxtrain.estimators.validation import check_X_y, warn_of_rounding
from onnxtrain.training.model import TrainableModel

#: The type that an Entrance reports for every floating-point type.
_FLOAT = np.dtype(np.float32).str


@dataclass(frozen=True)
class InputForm:
    """The form of rows: separate columns by name, or one array.

    Attributes
    ----------
    by_name : bool
    dtype : str
        The type of the array.
    ndim : int
        Its rank.
    sparse : bool
        Whether the rows were sparse in ``fit``.
    allow_nan : bool
        Whether the array may hold NaN.
    front : Pipeline or None
        The fitted steps that scikit-learn runs.
    shapes : mapping of str to tuple
        The shape of a row of each input of an ONNX model, None for an arbitrary length or for an arbitrary shape; empty
        for an estimator.
    axes : mapping of str to int
        The batch axis of each input whose batch axis is not the first.
    pad : mapping of str to float
        The padding value of each input with rows of different lengths.
    tables : mapping of str to int
        For each input whose values select rows of a table, such as token ids: the number of its rows.
    fitted : mapping of str to tuple
        The shape of a row of each input of an ONNX model in the last fit; empty for an estimator.
    taken : set
        The types of the columns of frames, with the columns with NaN or infinity, that the estimator has accepted.
    """

    by_name: bool
    dtype: str
    ndim: int = 2
    sparse: bool = False
    allow_nan: bool = False
    front: Any = field(default=None, repr=False)
    shapes: Mapping[str, tuple[int | None, ...] | None] = field(default_factory=dict)
    axes: Mapping[str, int] = field(default_factory=dict)
    pad: Mapping[str, float] = field(default_factory=dict)
    tables: Mapping[str, int] = field(default_factory=dict)
    fitted: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    taken: set[Any] = field(default_factory=set, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, X: ArrayLike, estimator: Estimator | None, dtype: str) -> InputForm:
        """Return the form of rows for an estimator; `dtype` is the floating-point type of the graph."""
        if comes_by_name(X) or (_is_table(X) and _has_columns(estimator)):
            return cls(True, dtype)
        return cls(False, dtype, sparse=scipy.sparse.issparse(X), allow_nan=allows_nan(estimator))

    @classmethod
    def of_onnx(cls, X: ArrayLike, entrance: Entrance, dtype: str, pad: Mapping[str, float] | None) -> InputForm:
        """Return the form of rows for an ONNX model."""
        several = len(entrance.shapes) > 1
        how = dict(
            shapes=entrance.rows,
            axes=entrance.moved,
            pad=as_padding(pad, entrance.types),
            tables=entrance.tables,
            sparse=scipy.sparse.issparse(X),
            allow_nan=entrance.missing,
        )
        form = cls(comes_by_name(X) or (_is_table(X) and several), dtype, **how)
        if several or form.by_name:
            return form
        ((name, own),) = entrance.types.items()
        row = form.shapes[name]
        if row == ():
            return replace(form, by_name=True)
        return replace(form, dtype=dtype if own == _FLOAT else own, ndim=2 if row is None else 1 + len(row))

    def pieces(self, X: ArrayLike) -> Iterator[ArrayLike]:
        """Yield the rows to predict for, in pieces that are checked and predicted in turn: here all rows at once."""
        yield X

    def check(
        self,
        estimator: Estimator,
        X: ArrayLike,
        y: ArrayLike | None = None,
        original: Estimator | None = None,
        *,
        reset: bool = False,
        numeric: bool = True,
    ) -> tuple[Features, Any]:
        """Return rows checked against this form, and targets, `numeric` or labels, with the same number of rows.

        A fitted estimator accepts the columns of a frame if `original`, the user's estimator, accepts them.
        """
        check_kind(estimator, X)
        X, y = self._as_only_column(X) if self.by_name else X, not_nullable(y)
        if isinstance(X, (list, tuple)) and X and isinstance(X[0], Mapping):
            columns = "{name: [row[name] for row in X] for name in X[0]}" if self.shapes else "pandas.DataFrame(X)"
            raise DataError(f"X is a list of dictionaries, one per row. Pass the columns of all rows: X = {columns}.")
        if not self.by_name:
            return self._check_array(estimator, X, y, original, reset=reset, numeric=numeric)
        X = as_pandas(X)
        if isinstance(X, (Mapping, Inputs)):
            X = self._by_input(X)
        elif not is_frame(X):
            _check_names_given(self.shapes, X)
        X, y = check_named(estimator, X, y, original, reset=reset)
        if is_frame(X) and original is not None:
            try:
                check_not_finite(X, original, self.taken)
            except ValueError as e:
                refused = without_imputed(X, original)
                with as_data_error(refused, by_column=len(refused.columns) < len(X.columns)):
                    raise e
        named = is_frame(X) and (len(self.shapes) > 1 or any(name in X.columns for name in self.shapes))
        if named and not are_one_input(X, self.shapes):
            X = self._by_input(X)
        return X, y

    def _check_array(
        self,
        estimator: Estimator,
        X: ArrayLike,
        y: ArrayLike | None,
        original: Estimator | None,
        *,
        reset: bool,
        numeric: bool,
    ) -> tuple[Features, Any]:
        """Return rows that are one array, and targets, checked: see :meth:`check`."""
        X = as_pandas(self._as_one_array(X))
        if self.shapes and getattr(getattr(X, "dtype", None), "kind", "") in tuple("OSU"):
            X = cast(np.asarray(X), np.dtype(self.dtype), "X")
        if scipy.sparse.issparse(X) and np.dtype(self.dtype).kind == "O":
            X = cast(X, np.dtype(self.dtype), "X")
        n_axes = len(getattr(X, "shape", ()))
        of_file = (
            n_axes > self.ndim or (self.ndim > 2 and not reset) or (reset and n_axes == self.ndim and bool(self.tables))
        )
        if self.shapes and n_axes and of_file:  # else scikit-learn compares axis 1 with that of fit
            self.check_shape(X, {name: (None, *(row or ())) for name, row in self.shapes.items()})
        checked = functools.partial(
            check_X_y,
            estimator,
            X,
            y,
            reset=reset,
            dtype=np.dtype(self.dtype),
            ndim=self.ndim,
            numeric=numeric,
            any_length=any(row is None or None in row[:1] for row in self.shapes.values()),
        )
        try:
            X, y = checked(allow_nan=self.allow_nan)
        except DataError:
            if reset or original is None or not takes_nan(original, X):
                raise
            X, y = checked(allow_nan=True)
        for name, length in self.tables.items():
            check_indices(X, length, "X", self.pad.get(name))
        return X, y

    def _as_only_column(self, X: Any) -> Any:
        """Return X by input name if the model's only input has one entry per row; otherwise return X as it is."""
        if list(self.shapes.values()) != [()] or isinstance(X, (Mapping, Inputs)):
            return X
        (name,) = self.shapes
        return X if is_frame(X) and name in X.columns else {name: X}

    def _as_one_array(self, X: Any) -> Any:
        """Return the rows of a model with one input as an array; X may be a dictionary, tensor or ragged lists."""
        if len(self.shapes) == 1 and isinstance(X, (Mapping, Inputs)):
            (found,) = self._by_input(X).values()
            return found
        _check_names_given(self.shapes, X)
        if len(self.shapes) == 1 and isinstance(X, (list, tuple)):
            ((name, row),) = self.shapes.items()
            return as_column(name, X, self.pad, row[0] if row else None)
        return as_array(X) if hasattr(X, "detach") else X

    def _by_input(self, X: Any) -> dict[str, Any]:
        """Return the values of each input with the rows first; a dictionary's arrays have the model's axis order."""
        names = [str(name) for name in (X.columns if is_frame(X) else X.keys())]
        if not names:
            raise DataError("X is an empty dictionary.")
        if isinstance(X, Mapping) and not any(isinstance(name, str) for name in X):
            raise DataError(
                f"The keys of X must be the names of the inputs of the model, {', '.join(self.shapes)}, got "
                f"{', '.join(map(repr, X))}. Pass dict(zip({list(self.shapes)!r}, X.values()))."
            )
        columns = {}
        for name in self.shapes or names:
            if name not in names:
                widths = [(row[0] or 0) if row and len(row) == 1 else 0 for row in self.shapes.values()]
                raise no_column(name, names, self.shapes, widths)
            row = self.shapes.get(name)
            column = as_column(name, X[name], self.pad, row[0] if row else None)
            axis = self.axes.get(name, 0) if isinstance(X, Mapping) else 0
            self._check_input(name, X, column.ndim, axis)
            columns[name] = np.moveaxis(column, axis, 0) if axis else column
            if name in self.tables:
                check_indices(column, self.tables[name], f"X[{name!r}]", self.pad.get(name))
            if name in ATTENTION_MASKS:
                warn_of_mask(columns[name], f"X[{name!r}]")
        self._check_lengths(columns, X)
        return columns

    def _check_input(self, name: str, X: Any, ndim: int, axis: int) -> None:
        """Raise a DataError if the values of an input have no axis of rows."""
        if X[name] is None:
            raise DataError(
                f"X[{name!r}] is None, but the model needs this input. Pass an array; a mask that keeps all "
                "tokens is numpy.ones_like(ids)."
            )
        if not ndim and hasattr(X[name], "__next__"):
            raise DataError(
                f"X[{name!r}] must be an array with one entry per row, got a {type(X[name]).__name__}, which can "
                f"be read only once. Pass list(X[{name!r}])."
            )
        if not ndim and all(np.ndim(X[name]) == 0 for name in self.shapes):
            raise DataError(
                f"X has a single value for each input, such as {X[name]!r:.40} for {name!r}. For a single row, "
                "pass {name: [value] for name, value in X.items()}."
            )
        if not ndim:
            raise DataError(
                f"X[{name!r}] must be an array with one entry per row, got the scalar {X[name]!r}. To use it for "
                f"all rows, set inputs={{{name!r}: {X[name]!r}}} on the estimator."
            )
        if ndim <= axis:
            raise DataError(f"X[{name!r}] must have its rows on axis {axis}, but has only {ndim} axes.")

    def _check_lengths(self, columns: Mapping[str, Any], X: Any) -> None:
        if len({column.shape[0] for column in columns.values()}) < 2:
            return
        axes = self.axes if isinstance(X, Mapping) else {}
        found = ", ".join(f"{name} has {x.shape[0]} on axis {axes.get(name, 0)}" for name, x in columns.items())
        if bags := [name for name in columns if "offset" in name.casefold()]:
            raise DataError(
                f"X has inconsistent numbers of samples: {found}. The tokens of all rows are in one vector, which "
                f"{bags[0]!r} cuts, as nn.EmbeddingBag takes them, but a batch needs the same rows of each input. "
                "Export the network for tokens of shape (rows, tokens), without offsets: nn.Embedding, and the mean "
                "over axis 1 of the vectors of all tokens but the padding. Set pad={name: value of the padding}."
            )
        raise DataError(
            f"X has inconsistent numbers of samples: {found}. To take some rows, slice each input alike: "
            "{name: x[rows] for name, x in X.items()}, or onnxtrain.Inputs(**X)[rows]. If the model takes the rows of "
            "an input on another axis, set batch_axis={name: axis} on the estimator. To use one value for all rows, "
            "set inputs={name: value}."
        )

    def exact(self, X: ArrayLike, rows: Features) -> Features:
        """Return the rows of `X` in float64, as scikit-learn computes with them, if `rows` were cast to float32."""
        if not isinstance(rows, np.ndarray) or rows.dtype != np.float32 or rows.ndim != 2:
            return rows
        X = self._as_one_array(X)
        found = np.asarray(X)
        if type(X) is np.ndarray and X.dtype == np.float64 and X.shape == rows.shape:
            return X  # as check_array would, which takes a thirtieth of a small fit
        if found.shape != rows.shape or found.dtype in (np.float16, np.float32):
            return rows
        return check_array(X, dtype=np.float64, ensure_all_finite=False)

    def warn_of_rounding(self, exact: Features) -> None:
        """Warn of columns that lose digits if the model takes float32."""
        if self.dtype == "float32":
            warn_of_rounding(exact)

    def check_shape(
        self, X: Features, shapes: Mapping[str, tuple[int | None, ...]], source: str = "the model takes"
    ) -> None:
        """Compare an array with the shape of a model's only input; `source` names the model in messages."""
        if self.by_name or isinstance(X, Mapping):
            return
        _check_names_given(shapes, X)
        for name, shape in shapes.items():
            row = self.shapes.get(name) or ()  # the first layer may show what the file leaves open
            known = len(row) == len(shape) - 1
            taken = [d if wanted is None else wanted for wanted, d in zip(shape[1:], row, strict=True)] if known else []
            check_features(X, (shape[0], *taken) if known else shape, source, of_tokens=name in self.tables)

    def around(self, trained: Estimator) -> Estimator:
        """Return the user's estimator, given its trained part, which here is the whole."""
        return trained

    def runs(self, estimator: Estimator | None) -> dict[str, str]:
        """Return the library that runs each step, ``"ONNX"`` or ``"scikit-learn"``, by step name."""
        steps = estimator.named_steps if isinstance(estimator, Pipeline) else {type(estimator).__name__.lower(): None}
        return dict.fromkeys(["model"] if estimator is None else steps, "ONNX")

    def check_whole(self) -> None:
        """Raise an ExportError if the graph is only a part of the user's estimator."""

    def feeds(self, X: Features, model: TrainableModel) -> dict[str, Any]:
        """Return checked rows by the input names of a model."""
        if self.shapes and isinstance(X, Mapping):
            return {
                name: as_declared(f"X[{name!r}]", X[name], dtype, self._declared(name, model))
                for name, dtype in model.features.items()
            }
        if self.by_name:
            try:
                return feeds_by_name(X, model.features, model.shapes)
            except DataError:  # looking for them takes longer than the rows of a small prediction
                unread = _unread(model)
                if not unread or not is_frame(X):
                    raise
            return feeds_by_name(X.assign(**dict.fromkeys(unread, 0)), model.features, model.shapes)
        (name,) = model.features
        return {name: X}

    def _declared(self, name: str, model: TrainableModel) -> tuple[int | None, ...] | None:
        return None if self.shapes.get(name) is None else model.shapes[name]


def _unread(model: TrainableModel) -> list[str]:
    """Return the numeric inputs that no node reads: columns of any values that a ColumnTransformer drops."""
    proto = model.graph()
    read = {name for node in graph.nodes_in(proto.graph.node) for name in node.input}
    read |= {output.name for output in proto.graph.output}
    return [name for name, dtype in model.features.items() if name not in read and dtype.kind in "iuf"]


class Rows(NamedTuple):
    """Checked rows with their targets and sample weights, and their form.

    `exact` holds the rows as scikit-learn takes them; the model may round them to float32.
    """

    X: Features
    y: np.ndarray
    weight: np.ndarray | None
    form: InputForm
    exact: Features


def _joined(X: Mapping | Inputs) -> str:
    """Return the code that makes one array or frame of values by name, for a message."""
    if isinstance(X, Inputs):
        return "numpy.column_stack([X[name] for name in X.keys()])"
    shapes = [getattr(column, "shape", None) for column in X.values()]
    if any(shape is not None and len(shape) > 1 for shape in shapes):  # feeds of an ONNX model
        if all(shape is not None and math.prod(shape) == shape[0] for shape in shapes if shape != ()):
            return "pandas.DataFrame({name: numpy.ravel(v) for name, v in X.items()})"
        return "numpy.column_stack(list(X.values()))"
    of_rows = any(isinstance(column, Mapping) for column in X.values())
    if X and not of_rows and not any(map(np.ndim, X.values())):
        return "pandas.DataFrame([X]) for a single row"
    return "pandas.DataFrame(X)"


def _of_path(X: str | os.PathLike, *, of_onnx: bool) -> str:
    """Return the message about a formula, a folder or a file in place of rows."""
    path = f"{os.fspath(X)!r:.80}"
    if isinstance(X, str) and "~" in X:
        return (
            f"X must be an array or a frame, got the formula {path}. Pass the columns: fit(frame[['x']], frame['y'])."
        )
    if os.path.isdir(X):
        return (
            f"X must be an array or a frame, got the folder {path}. Read its files, for example "
            f"pandas.concat(map(pandas.read_csv, sorted(pathlib.Path({path}).glob('*.csv')))), and pass the columns, "
            "or train from the files: onnxtrain.rows.from_files(paths, read), or from_parquet(path, label=...) for "
            "parquet files."
        )
    read = "read_parquet" if str(X).endswith(".parquet") else "read_csv"
    tokens = " A tokenizer makes rows of text." if of_onnx else ""
    return (
        f"X must be an array or a frame, got the {'string' if isinstance(X, str) else 'path'} {path}. Read the file, "
        f"for example with pandas.{read}, and pass its columns.{tokens}"
    )


def check_kind(estimator: Estimator, X: object) -> None:
    """Raise a DataError for objects that are not rows of this model; the message says how to convert them."""
    source = estimator.estimator
    model = "a linear model" if source is None else type(source).__name__
    if isinstance(X, type):
        raise DataError(f"X must be an array or a frame, got the class {X.__name__}. Pass an object with rows.")
    if X is None:
        raise DataError("X is None. Pass the rows, an array or a frame of shape (n_samples, n_features).")
    if isinstance(X, (str, os.PathLike)):
        raise DataError(_of_path(X, of_onnx=is_onnx(source)))
    if is_onnx(X):
        raise DataError(
            f"X must be an array or a frame, got {type(X).__name__}. Pass an ONNX model first, then the rows: "
            "OrtGradientRegressor(model).fit(X, y)."
        )
    if isinstance(X, np.lib.npyio.NpzFile):
        raise DataError(
            f"X is a file of several arrays, {', '.join(X.files[:5])}. Pass one of them: X[{X.files[0]!r}]."
        )
    if isinstance(X, (Mapping, Inputs)) and not scipy.sparse.issparse(X) and not is_onnx(source):
        raise DataError(
            f"X must be an array or a frame for {model}, got {type(X).__name__}. Pass {_joined(X)}. Only ONNX models "
            "with several inputs take columns by name."
        )
    if type(X).__name__.endswith("GroupBy"):
        raise DataError(
            f"X must be an array or a frame, got a {type(X).__name__}. Pass the frame itself, or one of its groups: "
            "X.get_group(name)."
        )
    if (library := type(X).__module__.partition(".")[0]) in ("catboost", "lightgbm", "xgboost"):
        raise DataError(
            f"X must be an array or a frame, got a {type(X).__name__} of {library}. Pass the arrays of which it was "
            "made: fit(X, y), predict(X)."
        )
    if type(X).__module__.startswith("pyarrow.parquet"):
        raise DataError(f"X is a {type(X).__name__} of pyarrow. {_FOR_PARQUET}")
    if not any(hasattr(X, name) for name in ("__array__", "__getitem__", "__dataframe__", "__dlpack__", "shape")):
        remedy = f"For a single row with one feature, pass [[{X!r}]]." if isinstance(X, Number) else ""
        raise DataError(
            f"X must be an array or a frame, got {type(X).__name__}, whose rows cannot be indexed. "
            f"{remedy or 'Pass a list, an array or a frame of rows, or each batch to partial_fit.'}"
        )


#: The remedy for an open parquet file.
_FOR_PARQUET = "Pass onnxtrain.rows.from_parquet(path, label=...) without y; predict takes it without label."


def comes_by_name(X: ArrayLike) -> bool:
    """Whether rows are passed column by column, by name, to any model.

    This holds for dictionaries and for frames that have non-numeric columns. A numeric frame is passed by name only to
    a model that selects columns: a model with several inputs, or with a ColumnTransformer.
    """
    if scipy.sparse.issparse(X):  # a dok_array is also a dictionary
        return False
    if isinstance(X, (Mapping, Inputs)):
        return True
    if not _is_table(X):
        return False
    dtypes = [column_of(X.head(0), name).dtype for name in X.columns] if is_polars(X) else X.dtypes
    return any(dtype.kind not in "fiub" for dtype in dtypes)


def _has_columns(estimator: object) -> bool:
    if isinstance(estimator, ColumnTransformer):
        return True
    if not isinstance(estimator, BaseEstimator):
        return False
    return any(_has_columns(part) for part in estimator.get_params().values() if isinstance(part, BaseEstimator))


def _is_table(X: object) -> TypeGuard[Any]:
    return is_frame(X) or is_polars(X)


def is_rounded(X: ArrayLike) -> bool:
    """Whether a float32 model rounds the rows: float64 values, or integers that float32 cannot represent."""
    X = as_pandas(X)
    separate = by_column(X)
    return any(loses_digits(column) for column in numeric_columns(X) if column.dtype.kind == "f" or not separate)


def holds_halves(X: ArrayLike) -> bool:
    """Whether scikit-learn computes in float16: all columns have it, or one of those that are separate inputs."""
    halves = [column.dtype == np.float16 for column in numeric_columns(X)]
    return any(halves) if by_column(as_pandas(X)) else bool(halves) and all(halves)


def numeric_columns(X: ArrayLike) -> list[Any]:
    """Return the numeric columns of a frame, or a whole array; empty for sparse rows and lists of objects."""
    if scipy.sparse.issparse(X) or is_of_objects(X):
        return []
    X = as_pandas(X)
    if not is_frame(X):
        return [np.asarray(X)]
    return [X.iloc[:, i] for i, dtype in enumerate(X.dtypes) if getattr(dtype, "kind", "") in "fiu"]


def warn_of_unknown(X: Any, inputs: Mapping[str, tuple[Any, ...] | None], fixed: Iterable[str]) -> None:
    """Warn of columns of X that an ONNX model does not take: misspelled, of another model, or with a `fixed` value."""
    by_name = isinstance(X, (Mapping, Inputs))
    if not (by_name or is_frame(X) or is_polars(X)):
        return
    names = [str(name) for name in (X.keys() if by_name else X.columns)]
    others = [name for name in names if name not in inputs]
    # A frame with arbitrary names may be a single input.
    if not (by_name or (len(others) < len(names) and not are_one_input(as_pandas(X[:1]), inputs))):
        return
    if twice := [name for name in others if name in fixed]:
        warn(
            f"The model ignores {', '.join(twice)} of X, because the parameter inputs sets the same value for all "
            "rows. Leave it out of one of the two."
        )
    if unknown := [name for name in others if name not in fixed]:
        warn(
            f"The model ignores the columns {', '.join(unknown)} of X, which are not among its inputs. "
            f"Its inputs are {', '.join(inputs)}."
        )


#: Names of inputs for labels.
_OF_LABELS = frozenset({"label", "labels", "target", "targets", "y"})


def _check_names_given(inputs: Mapping[str, Any], X: Any) -> None:
    """Raise a DataError if rows have no names but the model has several inputs."""
    if len(inputs) > 1:
        shape = getattr(X, "shape", None)
        found = f"an array of shape {tuple(shape)}" if shape is not None else f"a {type(X).__name__} of {len(X)}"
        remedy = "A tokenizer makes such a dictionary of strings." if is_of_objects(X) else _array_of_each(inputs, X)
        if of_labels := [name for name in inputs if name.lower() in _OF_LABELS]:
            remedy = (
                f"{of_labels[0]!r} seems to be an input for labels, as of a model with a loss. Pass the model without "
                f"a loss; fit adds one. Or set output to the name of its scores, and inputs={{{of_labels[0]!r}: 0}}."
            )
        if shape is not None and len(shape) == 2 and shape[1] == len(inputs):
            remedy = (
                f"If it has a column per input, in this order, use pandas.DataFrame(X, columns={list(inputs)!r:.200})."
            )
        if hasattr(X, "iloc") and len(shape or ()) == 1:
            remedy = "A row of a frame is frame.iloc[[0]], with two pairs of brackets."
        if shape is None and all(isinstance(row, (list, tuple)) and len(row) == len(inputs) for row in X):
            remedy = (
                f"If each row has a value per input, in this order, use pandas.DataFrame(X, columns={list(inputs)!r})."
            )
        elif shape is None and len(X) == len(inputs):
            remedy = f"If it has an array per input, use dict(zip({list(inputs)!r}, X))."
        raise DataError(
            f"The model has several inputs: {', '.join(inputs)}. Pass X as a dictionary or a DataFrame with these "
            f"names, or as onnxtrain.Inputs, got {found}. {remedy}"
        )


def _array_of_each(shapes: Mapping[str, Any], X: Any) -> str:
    """Return the remedy that makes a dictionary of an array: slices of its columns if they are those of all inputs."""
    widths = [shape[0] if shape is not None and len(shape) == 1 else None for shape in shapes.values()]
    known = [width for width in widths if isinstance(width, int)]
    if not isinstance(X, np.ndarray) or X.ndim != 2 or len(known) < len(widths) or sum(known) != X.shape[1]:
        return f"Pass an array for each: {{{', '.join(f'{name!r}: ...' for name in shapes)}}}."
    ends = np.cumsum([0, *known])
    slices = [f"{name!r}: X[:, {start}:{end}]" for name, start, end in zip(shapes, ends, ends[1:], strict=False)]
    return f"If the columns are those of the inputs, in this order, pass {{{', '.join(slices)}}}."


def count_rows(X: Features) -> int:
    """Return the number of rows."""
    return (next(iter(X.values())) if isinstance(X, Mapping) else X).shape[0]
