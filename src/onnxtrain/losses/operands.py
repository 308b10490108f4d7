"""Graph values that support Python's operators and numpy's functions.

A user-defined loss receives its ``op``, label and prediction wrapped:
``(y_true - y_pred) ** 2`` and ``np.square(y_true - y_pred)`` append the same
nodes as ``op`` would. Types are promoted as in numpy with one exception: Python
scalars, and the types given to ``astype``, take the precision of the prediction.

onnx-ir's own operator hook is global to the process, so two threads would share
it, and supports neither powers nor comparisons nor numpy.

:func:`sum_outputs` and :func:`softplus` are functions of values, wrapped or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from types import EllipsisType
from typing import Any, NoReturn, TypeAlias

import numpy as np
import onnx_ir as ir
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, DTypeLike

from onnxtrain.errors import LossError, unquoted
from onnxtrain.graph import FLOATS, Op, describe, is_float, operator_named

#: An operand of numpy's functions, axes of a reduction, a part of an index.
Term: TypeAlias = "Operand | ArrayLike"
Axes: TypeAlias = "int | Sequence[int] | None"
Part: TypeAlias = "int | slice | EllipsisType | None"

#: The functions of numpy and scipy.special that map to one ONNX operator: for booleans, for any type, for floats.
_OF_BOOLEANS = {
    "bitwise_and": "And",
    "bitwise_or": "Or",
    "bitwise_xor": "Xor",
    "invert": "Not",
    "logical_and": "And",
    "logical_not": "Not",
    "logical_or": "Or",
    "logical_xor": "Xor",
}
_OF_ANY = {
    "absolute": "Abs",
    "add": "Add",
    "equal": "Equal",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "maximum": "Max",
    "minimum": "Min",
    "multiply": "Mul",
    "negative": "Neg",
    "sign": "Sign",
    "subtract": "Sub",
}
_OF_FLOATS = {
    "arccos": "Acos",
    "arccosh": "Acosh",
    "arcsin": "Asin",
    "arcsinh": "Asinh",
    "arctan": "Atan",
    "arctanh": "Atanh",
    "divide": "Div",
    "expit": "Sigmoid",
    "fabs": "Abs",
    "fmax": "Max",
    "fmin": "Min",
    "isinf": "IsInf",
    "isnan": "IsNaN",
    "matmul": "MatMul",
    "rint": "Round",
    **{name: name.capitalize() for name in ("ceil", "cos", "cosh", "erf", "exp", "floor", "log", "reciprocal")},
    **{name: name.capitalize() for name in ("sin", "sinh", "sqrt", "tan", "tanh")},
}
_OPERATORS = {**_OF_BOOLEANS, **_OF_ANY, **_OF_FLOATS}

_COMPARISONS = {"equal", "greater", "greater_equal", "less", "less_equal"}

#: These functions of two booleans return a boolean in numpy.
_OF_CONDITIONS = {"add": "logical_or", "maximum": "logical_or", "minimum": "logical_and", "multiply": "logical_and"}

#: Functions of several operators.
_FORMULAS: dict[str, Callable[..., Any]] = {
    "expm1": lambda x: np.exp(x) - 1,
    "exp2": lambda x: 2**x,
    "float_power": lambda x, y: _power(x, y),
    "floor_divide": lambda x, y: np.floor(x / y),
    "hypot": lambda x, y: np.sqrt(x * x + y * y),
    "log10": lambda x: np.log(x) / np.log(10),
    "log1p": lambda x: np.log(x + 1),
    "log2": lambda x: np.log(x) / np.log(2),
    "logaddexp": lambda x, y: np.maximum(x, y) + np.log(np.exp(-abs(x - y)) + 1),
    "log_expit": lambda x: -np.logaddexp(0, -x),
    "not_equal": lambda x, y: ~(x == y),
    "positive": lambda x: x,
    "power": lambda x, y: _power(x, y),
    "remainder": lambda x, y: x - np.floor(x / y) * y,
    "square": lambda x: x * x,
}


def sum_outputs(op: Op, x: ir.Value) -> ir.Value:
    """Sum (n, k) over k, kept as (n, 1)."""
    return x if x.shape is not None and x.shape[1] == 1 else op.ReduceSum(x, [1], keepdims=1)


def softplus(op: Op, x: ir.Value) -> ir.Value:
    r"""Return :math:`\log(1 + e^x)`, which is x for large x."""
    if x.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return op.Softplus(x)
    # onnxruntime has no Softplus for doubles on CPU, ONNX none for bfloat16: log(e^0 + e^x)
    zero_and_x = op.Mul(op.Unsqueeze(x, [-1]), op.initializer(ir.tensor([0.0, 1.0], dtype=x.dtype, name="zero_one")))
    return op.ReduceLogSumExp(zero_and_x, [-1], keepdims=0)


class OperandOp:
    """The builder's ``op``, whose arguments and results are operands; `label` holds the indices of classes, if any."""

    def __init__(self, op: Op, dtype: ir.DataType | None, label: ir.Value | None = None):
        self._op = op
        self._dtype = dtype
        self._label = label

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # not an operator: other libraries query protocols
            raise AttributeError(f"op has no attribute {name!r}.")
        found = getattr(self._op, name)
        if not callable(found):
            return found

        def append(*args: object, **kwargs: object) -> Any:
            if "_domain" not in kwargs and (way := _way_of(name)):
                raise LossError(f"ONNX has no operator {name!r}. {way}")
            kwargs = {key: unwrapped(value) for key, value in kwargs.items()}
            return wrapped(found(*unwrapped(list(args)), **kwargs), self)

        return append


class Operand(NDArrayOperatorsMixin):
    """A graph value with the operators of Python and the functions of numpy.

    It also has attributes of :class:`onnx_ir.Value` (``shape``, ``dtype``, ``name``).
    """

    def __init__(self, value: ir.Value, op: OperandOp):
        self._value = value
        self._op = op

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(ir.Value, name):
            operator = operator_named(name)
            remedy = WAY if operator is None else f"Use the operator of ONNX, op.{operator}(...), or numpy."
            remedy = _INSTEAD.get(name, remedy)
            raise AttributeError(f"a value of the graph has no attribute {name!r}. {remedy}")
        return getattr(self._value, name)

    def __repr__(self) -> str:
        return describe(self._value)

    def __bool__(self) -> bool:
        raise LossError(
            f"{self!r} has no truth value: a loss is built once, before there are rows. "
            "Use np.where, np.maximum and np.minimum instead of if, max and min, and &, |, ~ instead of and, or, not."
        )

    def _no_number(self, *args: object, **kwargs: object) -> Any:
        _refuse_values(repr(self))

    __float__ = __int__ = __index__ = __len__ = __array__ = _no_number

    def __iter__(self) -> Any:
        raise LossError(
            f"A loss cannot loop over the rows of {self!r}, as Python's sum does: it is built once, before there are "
            "rows. Leave out the sum or the mean over the rows; the objective is the mean of these values. Reduce "
            "outputs with x.sum(axis=1, keepdims=True)."
        )

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Term, out: tuple[Operand, ...] = (), **kwargs: object
    ) -> Any:
        name = ufunc.__name__
        if method != "__call__" or kwargs:
            raise LossError(f"A loss cannot use numpy.{name} with {method} {kwargs}. {WAY}")
        result = _apply(name, self._op, inputs)
        for target in out:  # r *= 2
            target._value = result._value
        return result

    def __array_function__(
        self, function: Callable[..., Any], types: object, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        name = function.__name__.removeprefix("a") if function.__name__ in ("amax", "amin") else function.__name__
        if name == "where" and len(args) == 3:
            condition = _converted(self._op, args[0], ir.DataType.BOOL)
            operands = [condition, *_promoted(self._op, args[1:])]
            return _same_rows(self._op.Where(*operands), operands)
        if name not in _METHODS or not isinstance(args[0], Operand):
            module = function.__module__ or "numpy"
            raise LossError(f"A loss cannot use {module}.{function.__name__} here. {_INSTEAD.get(name, WAY)}")
        return getattr(args[0], name)(*args[1:], **kwargs)

    def __getitem__(self, key: Part | tuple[Part, ...]) -> Operand:
        """Index by slices, integers and new axes, as in ``y_pred[:, :1]`` or ``y_pred[:, 0, None]``."""
        result, axis = self, 0
        for part in self._all_axes(key if isinstance(key, tuple) else (key,)):
            if isinstance(part, (int, np.integer)) and not isinstance(part, bool):
                result = self._op.Gather(result, int(part), axis=axis)
                continue
            if part is None:
                result = self._op.Unsqueeze(result, [axis])
            elif isinstance(part, slice):
                result = result._sliced(part, axis)
            else:
                of_class = "(y_pred * (numpy.arange(n_classes) == y_true)).sum(axis=1, keepdims=True)"
                remedy = f" The score of the class of each row is {of_class}." if self._op._label is not None else ""
                if isinstance(part, Operand) and part.dtype == ir.DataType.BOOL:
                    remedy = _FOR_CONDITION
                raise LossError(
                    f"A loss cannot index {self!r} with {part!r}. Use integers, slices and None only.{remedy}"
                )
            axis += 1
        return result

    def __setitem__(self, key: object, value: object) -> None:
        raise LossError(f"A loss cannot assign to a part of {self!r}.{_FOR_CONDITION}")

    def _sliced(self, part: slice, axis: int) -> Operand:
        if part == slice(None):
            return self
        step = part.step or 1
        first, last = (-1, -(2**62)) if step < 0 else (0, 2**62)
        first, last = first if part.start is None else part.start, last if part.stop is None else part.stop
        return self._op.Slice(self, [first], [last], [axis], [step])

    def _all_axes(self, key: tuple[Part, ...]) -> tuple[Part, ...]:
        """Expand ``...`` to full slices."""
        dots = [i for i, part in enumerate(key) if part is Ellipsis]
        if not dots:
            return key
        if self.shape is None:
            raise LossError(f"{self!r} has an unknown number of axes. Write out the axes that ... stands for.")
        (at, *_) = dots
        given = sum(part is not None for part in key) - len(dots)
        return (*key[:at], *[slice(None)] * (len(self.shape) - given), *key[at + 1 :])

    def astype(self, dtype: DTypeLike) -> Operand:
        """Cast to integers, booleans or floats; floats have the precision of the prediction."""
        kind = np.dtype(dtype).kind
        if kind not in "biuf":
            raise LossError(f"A loss cannot use astype({dtype!r}). Use bool, int or float.")
        return _cast(self, {"b": ir.DataType.BOOL, "f": self._op._dtype}.get(kind, ir.DataType.INT64))

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Operand:
        """Sum over one, several or all axes."""
        return self._reduce("ReduceSum", axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Operand:
        """Average over one, several or all axes."""
        return _cast(self, _float_type(self))._reduce("ReduceMean", axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Operand:
        """Return the maximum over one, several or all axes."""
        return self._reduce("ReduceMax", axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Operand:
        """Return the minimum over one, several or all axes."""
        return self._reduce("ReduceMin", axis, keepdims)

    def prod(self, axis: Axes = None, keepdims: bool = False) -> Operand:
        """Multiply over one, several or all axes."""
        return self._reduce("ReduceProd", axis, keepdims)

    def clip(
        self, min: Term | None = None, max: Term | None = None, *, a_min: Term | None = None, a_max: Term | None = None
    ) -> Operand:
        """Return the operand clipped to two bounds, either of which may be None."""
        low, high = (a_min if min is None else min), (a_max if max is None else max)
        result: Any = self if low is None else np.maximum(self, low)
        return result if high is None else np.minimum(result, high)

    def reshape(self, *shape: int | ir.SymbolicDim | Sequence[int | ir.SymbolicDim]) -> Operand:
        """Return the operand in another shape, as of another operand; -1 is inferred."""
        wanted = [-1 if isinstance(d, ir.SymbolicDim) else d for d in np.ravel(np.array(shape, object)).tolist()]
        result = self._op.Reshape(self, wanted)
        if self.shape is not None and wanted.count(-1) == 1 and 0 not in wanted:
            result._value.shape = ir.Shape([_remaining(self.shape, wanted) if d == -1 else d for d in wanted])
        return result

    def _reduce(self, op_type: str, axis: Axes, keepdims: bool) -> Operand:
        if axis is None and _symbols(self):
            raise LossError(
                f"A loss has one value per row and cannot use a mean, sum or maximum over the rows, here of {self!r}."
                " Leave out the mean or the sum over the rows; the objective is the mean of these values. Reduce "
                "outputs with x.mean(axis=1, keepdims=True), and pass constants, such as a mean of y, by loss_params."
            )
        axes = [] if axis is None else [[int(a) for a in np.atleast_1d(axis)]]
        x = _cast(self, ir.DataType.INT64) if self.dtype == ir.DataType.BOOL else self
        return getattr(self._op, op_type)(x, *axes, keepdims=int(keepdims))


_FOR_CONDITION = (
    " Choose by a condition with numpy.where: numpy.where(r > 0, 0, r) is r with its positive values set to 0."
)


def _refuse_values(what: str) -> NoReturn:
    raise LossError(
        f"{what} has no values yet: a loss is built once, before there are rows. "
        "Compute with whole arrays: numpy.log instead of math.log, no loop over rows and no len; the objective is "
        "already the mean over the rows. A value for each label is op.Gather(values, y_true), an indicator matrix of "
        "K classes numpy.arange(K) == y_true. Otherwise use numpy functions, Python operators and op."
    )


#: What to use instead of other methods and functions of arrays.
_INSTEAD = {
    **dict.fromkeys(("flatten", "ravel", "squeeze"), "Keep the last axis: a loss returns one column, of shape (n, 1)."),
    **dict.fromkeys(
        ("T", "dot", "transpose"),
        "A loss has one value per row: a product of rows is (x * z).sum(axis=1, keepdims=True).",
    ),
    **dict.fromkeys(("std", "var"), "Use x.mean(axis=1, keepdims=True) of x and of x * x."),
    **dict.fromkeys(
        ("around", "round"),
        "Leave it out: the derivative of rounding is 0. For values that need no gradient, use numpy.rint.",
    ),
    **dict.fromkeys(("full_like", "ones_like", "zeros_like"), "Use a number, such as 1.0, for all rows."),
    "square": "Use x * x.",
    "norm": "Use numpy.sqrt((x * x).sum(axis=1, keepdims=True)).",
    "take_along_axis": "The score of the class of each row is "
    "(y_pred * (numpy.arange(n_classes) == y_true)).sum(axis=1, keepdims=True).",
    "view": "Use x.reshape(-1, 1).",
}

_METHODS = {"clip", "max", "mean", "min", "prod", "reshape", "sum"}
WAY = (
    "A loss may use op (op.Xyz is the ONNX operator Xyz), Python operators, "
    f"np.where, {', '.join(f'np.{name}' for name in sorted(_METHODS))}, "
    f"and the numpy functions {', '.join(sorted({*_OPERATORS, *_FORMULAS} - {'erf', 'expit', 'log_expit'}))}."
)


def _way_of(name: str) -> str:
    """Return the remedy for a function of numpy or PyTorch that is used as an operator; empty for other names."""
    if not name[:1].islower():  # operators begin with a capital letter
        return ""
    ours = name.removeprefix("reduce_")
    if ours in _METHODS - {"clip", "reshape"}:
        return f"Use x.{ours}(axis=1, keepdims=True); the objective is already the mean over the rows."
    return f"Use numpy.{name}, which takes values of the graph." if name in _FORMULAS else ""


def _apply(name: str, op: OperandOp, inputs: Sequence[Term]) -> Any:
    """Append an elementwise function of numpy or a matrix product."""
    booleans = all(_dtype(x) == ir.DataType.BOOL for x in inputs)
    name = _OF_CONDITIONS.get(name, name) if booleans else name
    if name in _FORMULAS:
        return _FORMULAS[name](*inputs)
    if name not in _OPERATORS:
        found = f"numpy.{name}" if hasattr(np, name) else name  # scipy has such functions, too
        raise LossError(f"A loss cannot use {found}. {WAY}")
    values = [x._value for x in inputs if isinstance(x, Operand)]
    widths = [v.shape[-1] for v in values if v.shape and is_float(v)]
    if name not in _COMPARISONS and op._label in values and any(isinstance(w, int) and w > 1 for w in widths):
        raise LossError(
            f"y_true holds the index of the class of each row, so numpy.{name} of it and {widths[0]} scores means "
            f"nothing. For an indicator matrix of the classes, use numpy.arange({widths[0]}) == y_true."
        )
    lengths = {np.shape(x)[-1] for x in inputs if not isinstance(x, Operand) and np.ndim(x)} - {1}
    if lengths - {*widths} and any(isinstance(w, int) and w > 1 for w in widths):
        raise LossError(
            f"An array of {max(lengths)} numbers does not fit {' and '.join(map(describe, values))} in a loss. An "
            "array must not have an axis of rows. Pass weights of rows to fit(X, y, sample_weight)."
        )
    if name in _OF_BOOLEANS and not booleans:  # ONNX has other operators for integers
        raise LossError(f"numpy.{name} requires conditions in a loss, got {', '.join(map(repr, inputs))}.")
    operands = _promoted(op, inputs, floats=name in _OF_FLOATS)
    return _same_rows(getattr(op, _OPERATORS[name])(*operands), operands)


def _power(base: Term, exponent: Term) -> Any:
    if isinstance(base, Operand) and not isinstance(exponent, Operand) and np.ndim(exponent) == 0 and exponent == 2:
        return base * base
    op = (base if isinstance(base, Operand) else exponent)._op  # type: ignore[union-attr]
    base, exponent = _promoted(op, (base, exponent), floats=True)
    return _same_rows(op.Pow(base, exponent), (base, exponent))


def _same_rows(result: Operand, operands: Sequence[Operand]) -> Operand:
    """Raise for (n,) with (n, 1), which numpy broadcasts to (n, n), every row with every other."""
    rows = _symbols(result)
    for dim in set(rows):
        if rows.count(dim) > max(_symbols(x).count(dim) for x in operands):
            raise LossError(
                f"{' and '.join(map(repr, operands))} would broadcast to {result!r}, which pairs each row with every "
                "other row. Keep the axis: y_pred[:, :1], x.sum(axis=1, keepdims=True). For all pairs of rows, as in "
                "a ranking, use op.Sub(a, b) or another ONNX operator."
            )
    return result


def _remaining(shape: ir.Shape, wanted: Sequence[int]) -> int | str | None:
    """Return the length for -1: the batch length, a multiple of it by name, or None if unknown."""
    rows = [d.value for d in shape if isinstance(d, ir.SymbolicDim)]
    each = Fraction(math.prod(d for d in shape if isinstance(d, int)), math.prod(d for d in wanted if d != -1))
    if not rows:
        return int(each)
    if len(rows) > 1 or rows[0] is None:
        return None
    name, _, times = rows[0].partition("*")
    each *= Fraction(times or 1)
    return name if each == 1 else f"{name}*{each}"


def _symbols(x: Operand) -> list[str]:
    return [d.value for d in x.shape or () if isinstance(d, ir.SymbolicDim) and d.value]


def _promoted(op: OperandOp, inputs: Sequence[Term], *, floats: bool = False) -> list[Operand]:
    """Return operands of one type: constants follow graph values; booleans and integers follow floats."""
    types = {_dtype(x) for x in inputs}
    real = {x.dtype.numpy() for x in inputs if isinstance(x, Operand) and x.dtype in FLOATS}
    dtype: ir.DataType | None
    if real:
        dtype = ir.DataType.from_numpy(np.result_type(*real))
    elif floats or None in types:
        dtype = op._dtype
    else:
        dtype = ir.DataType.BOOL if types == {ir.DataType.BOOL} else ir.DataType.INT64
    return [_converted(op, x, dtype) for x in inputs]


def _dtype(x: Term) -> ir.DataType | None:
    """Return the type of an operand, or INT64, BOOL or None (any float) for a constant."""
    if isinstance(x, Operand):
        return x.dtype
    if isinstance(x, ir.SymbolicDim):  # x.shape[0]
        _refuse_values(f"The number of rows, {x.value!r},")
    kind = np.asarray(x).dtype.kind
    if kind not in "biuf":
        remedy = unquoted(x) or " Use numbers, numeric arrays and values of the graph only."
        if kind in "SU":
            remedy += " Labels are numbers, too: for a classifier, y_true is the index of the class in classes_."
        raise LossError(f"A loss cannot compute with {x!r}.{remedy}")
    return {"b": ir.DataType.BOOL, "f": None}.get(kind, ir.DataType.INT64)


def _float_type(x: Operand) -> ir.DataType | None:
    return x.dtype if is_float(x._value) else x._op._dtype


def _cast(x: Operand, dtype: ir.DataType | None) -> Operand:
    return x if dtype is None or x.dtype == dtype else x._op.Cast(x, to=dtype)


def _converted(op: OperandOp, x: Term, dtype: ir.DataType | None) -> Operand:
    """Return an operand or a constant as an operand of the given type."""
    if isinstance(x, Operand):
        return _cast(x, dtype)
    tensor = ir.Tensor(np.asarray(x).astype(dtype.numpy()), dtype=dtype, name="constant")  # type: ignore[union-attr]
    return op.initializer(tensor)


def wrapped(x: object, op: OperandOp) -> Any:
    """Return values of the graph, also in lists, as operands; return anything else unchanged."""
    if isinstance(x, ir.Value):
        return Operand(x, op)
    return type(x)(wrapped(part, op) for part in x) if isinstance(x, (list, tuple)) else x


def unwrapped(x: object) -> Any:
    """Return operands, also in lists, as values of the graph; return anything else unchanged."""
    if isinstance(x, Operand):
        return x._value
    return type(x)(unwrapped(part) for part in x) if isinstance(x, (list, tuple)) else x
