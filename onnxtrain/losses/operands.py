"""Graph values that support Python's operators and numpy's functions.

A user-defined loss receives its ``op``, label and prediction wrapped:
``(y_true - y_pred) ** 2`` and ``np.square(y_true - y_pred)`` append the same
nodes as ``op`` would. Types are promoted as in numpy with one exception: Python
scalars, and the types given to ``astype``, take the precision of the prediction.

onnx-ir's own operator hook is global to the process, so two threads would share
it, and supports neither powers nor comparisons nor numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.lib.mixins import NDArrayOperatorsMixin

from onnxtrain.errors import LossError
from onnxtrain.graph import describe, is_float

#: The functions of numpy and scipy.special that map to one ONNX operator.
_OPERATORS = {
    "absolute": "Abs",
    "add": "Add",
    "arccos": "Acos",
    "arccosh": "Acosh",
    "arcsin": "Asin",
    "arcsinh": "Asinh",
    "arctan": "Atan",
    "arctanh": "Atanh",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "divide": "Div",
    "erf": "Erf",
    "exp": "Exp",
    "expit": "Sigmoid",
    "fabs": "Abs",
    "floor": "Floor",
    "fmax": "Max",
    "fmin": "Min",
    "isinf": "IsInf",
    "isnan": "IsNaN",
    "log": "Log",
    "matmul": "MatMul",
    "maximum": "Max",
    "minimum": "Min",
    "multiply": "Mul",
    "negative": "Neg",
    "reciprocal": "Reciprocal",
    "rint": "Round",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "subtract": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
}
_COMPARISONS = {
    "equal": "Equal",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "less": "Less",
    "less_equal": "LessOrEqual",
}
#: For booleans only; ONNX has other operators for integers.
_LOGIC = {
    "bitwise_and": "And",
    "bitwise_or": "Or",
    "bitwise_xor": "Xor",
    "invert": "Not",
    "logical_and": "And",
    "logical_not": "Not",
    "logical_or": "Or",
    "logical_xor": "Xor",
}
#: These functions of two booleans return a boolean in numpy.
_OF_CONDITIONS = {"add": "logical_or", "maximum": "logical_or", "minimum": "logical_and", "multiply": "logical_and"}
_FORMULAS: dict[str, Callable[..., Any]] = {
    "expm1": lambda x: np.exp(x) - 1,
    "exp2": lambda x: 2**x,
    "floor_divide": lambda x, y: np.floor(x / y),
    "hypot": lambda x, y: np.sqrt(x * x + y * y),
    "log10": lambda x: np.log(x) / np.log(10),
    "log1p": lambda x: np.log(x + 1),
    "log2": lambda x: np.log(x) / np.log(2),
    "logaddexp": lambda x, y: np.maximum(x, y) + np.log(np.exp(-abs(x - y)) + 1),
    "log_expit": lambda x: -np.logaddexp(0, -x),
    "not_equal": lambda x, y: ~(x == y),
    "positive": lambda x: x,
    "remainder": lambda x, y: x - np.floor(x / y) * y,
    "square": lambda x: x * x,
}
_REAL = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE}
_ON_INTEGERS = {
    "absolute",
    "add",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "positive",
    "sign",
    "square",
    "subtract",
}


def call_loss(
    function: Callable[..., Any], op: Any, y_true: ir.Value, y_pred: ir.Value, params: Mapping[str, Any]
) -> Any:
    """Call a loss with wrapped operands and return the resulting graph value."""
    own = Op(op, y_pred.dtype)
    return _unwrapped(function(own, _wrapped(y_true, own), _wrapped(y_pred, own), **params))


class Op:
    """The builder's ``op`` with operands as arguments and results."""

    def __init__(self, op: Any, dtype: ir.DataType | None):
        self._op = op
        self._dtype = dtype

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._op, name)
        if not callable(found):
            return found

        def append(*args: Any, **kwargs: Any) -> Any:
            kwargs = {key: _unwrapped(value) for key, value in kwargs.items()}
            return _wrapped(found(*_unwrapped(list(args)), **kwargs), self)

        return append


class Operand(NDArrayOperatorsMixin):
    """A graph value with the operators of Python and the functions of numpy.

    It also has attributes of :class:`onnx_ir.Value` (``shape``, ``dtype``, ``name``).
    """

    def __init__(self, value: ir.Value, op: Op):
        self._value = value
        self._op = op

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(ir.Value, name):
            raise AttributeError(f"a value of the graph has no attribute {name!r}. {WAY}")
        return getattr(self._value, name)

    def __repr__(self) -> str:
        return describe(self._value)

    def __bool__(self) -> bool:
        raise LossError(
            f"{self!r} has no truth value: a loss is written down once, before there are rows. "
            f"Instead of if, max and min use np.where, np.maximum and np.minimum; instead of and, or, not: &, |, ~."
        )

    def _no_number(self, *args: Any, **kwargs: Any) -> Any:
        raise LossError(f"{self!r} has no values yet: a loss is written down once, before there are rows. {WAY}")

    __float__ = __int__ = __index__ = __len__ = __iter__ = __array__ = _no_number

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (), **kwargs: Any) -> Any:
        name = ufunc.__name__
        if method != "__call__" or kwargs:
            raise LossError(f"A loss cannot use numpy.{name} with {method} {kwargs}. {WAY}")
        result = _apply(name, self._op, inputs)
        for target in out:  # r *= 2
            target._value = result._value
        return result

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__.removeprefix("a") if function.__name__ in ("amax", "amin") else function.__name__
        if name == "where" and len(args) == 3:
            condition = _converted(self._op, args[0], ir.DataType.BOOL)
            return self._op.Where(condition, *_promoted(self._op, args[1:]))
        if name not in _METHODS or not isinstance(args[0], Operand):
            raise LossError(f"A loss cannot use numpy.{function.__name__} here. {WAY}")
        return getattr(args[0], name)(*args[1:], **kwargs)

    def __getitem__(self, key: Any) -> Operand:
        """Index by slices, integers and new axes, as in ``y_pred[:, :1]`` or ``y_pred[:, 0, None]``."""
        result, axis = self, 0
        for part in self._all_axes(key if isinstance(key, tuple) else (key,)):
            if part is None:
                result = self._op.Unsqueeze(result, [axis])
            elif isinstance(part, slice):
                if part != slice(None):
                    first, last = (-1, -(2**62)) if (part.step or 1) < 0 else (0, 2**62)
                    first, last = (d if i is None else i for i, d in ((part.start, first), (part.stop, last)))
                    result = self._op.Slice(result, [first], [last], [axis], [part.step or 1])
            elif isinstance(part, (int, np.integer)) and not isinstance(part, bool):
                result = self._op.Gather(result, int(part), axis=axis)
                continue
            else:
                raise LossError(f"A loss cannot take {self!r} at {part!r}: only at numbers, slices and None. {WAY}")
            axis += 1
        return result

    def _all_axes(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Expand ``...`` to full slices."""
        if not any(part is Ellipsis for part in key):
            return key
        if self.shape is None:
            raise LossError(f"{self!r} has no known rank: write the axes that ... stands for.")
        at = next(i for i, part in enumerate(key) if part is Ellipsis)
        given = sum(part is not None and part is not Ellipsis for part in key)
        return (*key[:at], *[slice(None)] * (len(self.shape) - given), *key[at + 1 :])

    def astype(self, dtype: Any) -> Operand:
        """Cast to integers, booleans or floats; floats have the precision of the prediction."""
        kind = np.dtype(dtype).kind
        if kind not in "biuf":
            raise LossError(f"A loss cannot use astype({dtype!r}): only bool, int and float.")
        return _cast(self, {"b": ir.DataType.BOOL, "f": self._op._dtype}.get(kind, ir.DataType.INT64))

    def sum(self, axis: Any = None, keepdims: bool = False) -> Operand:
        """Sum over one, several or all axes."""
        return self._reduce("ReduceSum", axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Operand:
        """Average over one, several or all axes."""
        return _cast(self, _float_type(self))._reduce("ReduceMean", axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Operand:
        """Return the maximum over one, several or all axes."""
        return self._reduce("ReduceMax", axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Operand:
        """Return the minimum over one, several or all axes."""
        return self._reduce("ReduceMin", axis, keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> Operand:
        """Multiply over one, several or all axes."""
        return self._reduce("ReduceProd", axis, keepdims)

    def clip(self, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> Operand:
        """Return the operand clipped to two bounds, either of which may be None."""
        low, high = (a_min if min is None else min), (a_max if max is None else max)
        result = self if low is None else np.maximum(self, low)
        return result if high is None else np.minimum(result, high)

    def reshape(self, *shape: Any) -> Operand:
        """Return the operand in another shape; -1 is inferred."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        return self._op.Reshape(self, [int(n) for n in sizes])

    def _reduce(self, op_type: str, axis: Any, keepdims: bool) -> Operand:
        axes = [] if axis is None else [[int(a) for a in np.atleast_1d(axis)]]
        x = _cast(self, ir.DataType.INT64) if self.dtype == ir.DataType.BOOL else self
        return getattr(self._op, op_type)(x, *axes, keepdims=int(keepdims))


_METHODS = {"clip", "max", "mean", "min", "prod", "reshape", "sum"}
WAY = (
    "A loss is written with op (op.Xyz is ONNX's operator Xyz), Python's operators, "
    f"np.where, {', '.join(f'np.{name}' for name in sorted(_METHODS))}, "
    f"and numpy's {', '.join(sorted({*_OPERATORS, *_COMPARISONS, *_FORMULAS} - {'erf', 'expit', 'log_expit'}))}."
)


def _apply(name: str, op: Op, inputs: Sequence[Any]) -> Any:
    """Append an elementwise function of numpy or a matrix product."""
    if name in ("power", "float_power"):
        return _power(op, *inputs)
    if name in _OF_CONDITIONS and all(_dtype(x) == ir.DataType.BOOL for x in inputs):
        name = _OF_CONDITIONS[name]
    if name in _FORMULAS:
        return _FORMULAS[name](*inputs)
    if name in _LOGIC:
        if any(_dtype(x) != ir.DataType.BOOL for x in inputs):
            raise LossError(f"numpy.{name} takes conditions in a loss, got {', '.join(map(repr, inputs))}.")
        return getattr(op, _LOGIC[name])(*_promoted(op, inputs))
    if name not in _OPERATORS and name not in _COMPARISONS:
        raise LossError(f"A loss cannot use numpy.{name}. {WAY}")
    whole = name in _ON_INTEGERS or name in _COMPARISONS
    operands = _promoted(op, inputs, floats=not whole)
    return _same_rows(getattr(op, (_OPERATORS | _COMPARISONS)[name])(*operands), operands)


def _power(op: Op, base: Any, exponent: Any) -> Any:
    if not isinstance(exponent, Operand) and np.ndim(exponent) == 0 and exponent == 2:
        return base * base
    base, exponent = _promoted(op, (base, exponent), floats=True)
    return _same_rows(op.Pow(base, exponent), (base, exponent))


def _same_rows(result: Operand, operands: Sequence[Operand]) -> Operand:
    """Refuse (n,) with (n, 1), which numpy broadcasts to (n, n): every row with every other."""
    rows = _symbols(result)
    for dim in set(rows):
        if rows.count(dim) > max(_symbols(x).count(dim) for x in operands):
            raise LossError(
                f"{' and '.join(map(repr, operands))} would become {result!r}, each row with each other. "
                f"Keep the axis: y_pred[:, :1], x.sum(axis=1, keepdims=True)."
            )
    return result


def _symbols(x: Operand) -> list[str]:
    return [d.value for d in x.shape or () if isinstance(d, ir.SymbolicDim) and d.value]


def _promoted(op: Op, inputs: Sequence[Any], *, floats: bool = False) -> list[Operand]:
    """Return operands of one type: constants follow graph values; booleans and integers follow floats."""
    types = [_dtype(x) for x in inputs]
    real = {t for t, x in zip(types, inputs, strict=True) if t in _REAL and isinstance(x, Operand)}
    dtype: ir.DataType | None = ir.DataType.INT64
    if len(real) > 1:
        dtype = ir.DataType.from_numpy(np.result_type(*(t.numpy() for t in real if t is not None)))
    elif real:
        (dtype,) = real
    elif floats or None in types:
        dtype = op._dtype
    elif all(t == ir.DataType.BOOL for t in types):
        dtype = ir.DataType.BOOL
    return [_converted(op, x, dtype) for x in inputs]


def _dtype(x: Any) -> ir.DataType | None:
    """Return the type of an operand, or INT64, BOOL or None (any float) for a constant."""
    if isinstance(x, Operand):
        return x.dtype
    kind = np.asarray(x).dtype.kind
    if kind not in "biuf":
        raise LossError(
            f"A loss cannot compute with {x!r}: only with numbers, arrays of numbers and values of the graph."
        )
    return {"b": ir.DataType.BOOL, "f": None}.get(kind, ir.DataType.INT64)


def _float_type(x: Operand) -> ir.DataType | None:
    return x.dtype if is_float(x._value) else x._op._dtype


def _cast(x: Operand, dtype: ir.DataType | None) -> Operand:
    return x if dtype is None or x.dtype == dtype else x._op.Cast(x, to=dtype)


def _converted(op: Op, x: Any, dtype: ir.DataType | None) -> Operand:
    """Return an operand or a constant as an operand of the given type."""
    if isinstance(x, Operand):
        return _cast(x, dtype)
    tensor = ir.Tensor(np.asarray(x).astype(dtype.numpy()), dtype=dtype, name="constant")  # type: ignore[union-attr]
    return op.initializer(tensor)


def _wrapped(x: Any, op: Op) -> Any:
    if isinstance(x, ir.Value):
        return Operand(x, op)
    return type(x)(_wrapped(part, op) for part in x) if isinstance(x, (list, tuple)) else x


def _unwrapped(x: Any) -> Any:
    if isinstance(x, Operand):
        return x._value
    return type(x)(_unwrapped(part) for part in x) if isinstance(x, (list, tuple)) else x
