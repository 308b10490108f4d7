"""Tests for user-defined gradient rules: comparison with central differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_max_pool

from onnxtrain import graph as graphs
from onnxtrain.arguments import lists_its_arguments, seeded
from onnxtrain.attributes import of_module
from onnxtrain.errors import ArgumentTypeError, DataError, ModelError, OnnxTrainError, ParameterError
from onnxtrain.grad_helper import onnx_derivative

__all__ = ["GradientMismatch", "check_gradient"]

if not TYPE_CHECKING:
    __getattr__ = of_module(__name__, __all__)

Arrays: TypeAlias = dict[str, np.ndarray]
Evaluator: TypeAlias = Callable[[Arrays], list[np.ndarray]]
Runtime: TypeAlias = Callable[[onnx.ModelProto], Evaluator]

#: Steps of the differences, relative to the entry. The first has the smallest error for a smooth function; the others
#: are used if there is a kink within the first step.
STEPS = (1e-5, 1e-7, 1e-3)

#: The largest number of elements of a value: 0.5 GB in float64.
LARGEST = 2**26


class GradientMismatch(OnnxTrainError, AssertionError):
    """A gradient differs from central differences.

    Examples
    --------
    The class is also an AssertionError, so that test runners report it as a failed test:

    >>> from onnxtrain.testing import GradientMismatch
    >>> issubclass(GradientMismatch, AssertionError)
    True
    """


@lists_its_arguments
def check_gradient(
    model: graphs.ModelLike,
    feeds: Mapping[str, Any],
    *,
    weights: Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-7,
    max_entries: int = 64,
    random_state: int = 0,
    run: Callable[[onnx.ModelProto, Arrays], Any] | None = None,
) -> dict[str, float]:
    r"""Compare the gradient of a model with central differences, in float64.

    With random incoming gradients :math:`\bar y_k` and
    :math:`f(x) = \sum_k \langle \bar y_k, y_k(x) \rangle`, each entry must be

    .. math:: \bar x_i = \frac{f(x + h e_i) - f(x - h e_i)}{2h}

    and so must one random direction through all entries at once.

    Parameters
    ----------
    model : onnx.ModelProto, bytes or path
        The model; it is cast to float64.
    feeds : mapping of str to array
        The point at which to differentiate, away from kinks.
    weights, inputs : sequence of str, optional
        As in :func:`onnxtrain.grad_helper.onnx_derivative`.
    rtol, atol : float
        An entry may differ by `atol` plus `rtol` times the largest entry of its tensor.
    max_entries : int
        The number of entries to check in a larger tensor; they are drawn at random.
    random_state : int
        The seed of the random directions and entries.
    run : callable, optional
        ``run(onx, feeds) -> arrays``, for operators that neither onnxruntime nor
        :class:`onnx.reference.ReferenceEvaluator` know.

    Returns
    -------
    dict of str to float
        The largest difference found, by name of input or weight.

    Raises
    ------
    GradientMismatch
        A derivative is wrong; the message names the tensor, the entry, the difference and the runtimes.
    GradientError
        An operator has no derivative.

    Examples
    --------
    >>> import numpy as np, onnx.parser
    >>> onx = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["" : 21]>
    ...     slope (float[2] X) => (float[2] Y) { Y = Tanh(X) }''')
    >>> error = check_gradient(onx, {"X": np.array([0.5, -1.0])})
    >>> error["X"] < 1e-9
    True
    """
    limits = _Limits(rtol, atol, max_entries)
    if run is not None and not callable(run):
        raise ArgumentTypeError(f"run must be a function, called as run(model, feeds), got {run!r:.80}.")
    double = _in_double(model)
    weights = _real_initializers(double) if weights is None else list(weights)
    inputs = _real_inputs(double) if inputs is None else list(inputs)
    names = [*inputs, *weights]
    models = _with_open_weights(double, weights), onnx_derivative(double, weights, inputs)
    point = _point(double, feeds, weights)
    _check_sizes(double, point)

    def compare(runtimes: Mapping[str, Runtime]) -> dict[str, float]:
        forward, backward = (_First(onx, runtimes) for onx in models)
        f = _Function(forward, point, _differentiated(double.graph.output), seeded(np.random.default_rng, random_state))
        gradients = backward({**point, **_seeds(models[1], f)})
        try:
            return _compare(f, dict(zip(names, gradients, strict=True)), limits)
        except GradientMismatch as e:
            raise GradientMismatch(f"{e} The model ran in {forward.name}, its gradient in {backward.name}.") from None

    if run is not None:
        return compare({"run": lambda onx: partial(run, onx)})
    try:
        return compare({"onnxruntime": _onnxruntime, "onnx.reference": _reference})
    except GradientMismatch as mismatch:
        # some kernels of onnxruntime compute in float32 although they return float64
        try:
            return compare({"onnx.reference": _reference, "onnxruntime": _onnxruntime})
        except GradientMismatch:
            raise mismatch from None


@dataclass(frozen=True)
class _Limits:
    rtol: float
    atol: float
    max_entries: int

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < np.inf:
                found = f"must be a finite number >= 0, got {value!r:.80}"
                raise ParameterError(f"{name} {found}. It is a tolerance, such as 1e-5.")
        if not isinstance(self.max_entries, Integral) or self.max_entries < 0:
            raise ParameterError(
                f"max_entries must be an integer, 0 or more, got {self.max_entries!r:.80}. It is the number of entries "
                "of each tensor that are compared one by one."
            )


def _differentiated(outputs: Sequence[onnx.ValueInfoProto]) -> list[bool]:
    """Whether the derivative has an incoming gradient for each output; an output that is listed twice has one."""
    first = {o.name: i for i, o in reversed(list(enumerate(outputs)))}
    return [_is_real(o) and first[o.name] == i for i, o in enumerate(outputs)]


def _seeds(derived: onnx.ModelProto, f: _Function) -> Arrays:
    """Return the incoming gradients by name; they are the last inputs of the derived graph."""
    given = [dy for dy in f.incoming if dy is not None]
    names = [i.name for i in derived.graph.input]
    return dict(zip(names[len(names) - len(given) :], given, strict=True))


def _compare(f: _Function, gradients: Arrays, limits: _Limits) -> dict[str, float]:
    for name, dx in gradients.items():
        if dx.shape != f.point[name].shape:
            raise GradientMismatch(
                f"The gradient of {name!r} has shape {dx.shape}, but {name!r} has shape {f.point[name].shape}."
            )
    errors = {name: _check_entries(f, name, dx, limits) for name, dx in gradients.items()}
    _check_direction(f, gradients, limits)
    return errors


class _Function:
    """The scalar function f of the point, and its central differences."""

    def __init__(self, evaluate: Evaluator, point: Arrays, real: Sequence[bool], rng: np.random.Generator):
        self.evaluate = evaluate
        self.point = point
        self.rng = rng
        found = evaluate(point)
        if len(found) != len(real):
            raise ModelError("An output is declared as a sequence, but is a tensor.")
        outputs = list(zip(found, real, strict=True))
        for y, is_real in outputs:
            if is_real and y.dtype.kind != "f":
                raise ModelError(f"An output is declared as double, but has dtype {y.dtype}.")
        # an infinite entry of an output has no derivative
        self.incoming = [
            rng.standard_normal(np.shape(y)) * np.isfinite(y) if is_real else None for y, is_real in outputs
        ]

    def change(self, high: Arrays, low: Arrays) -> float:
        """Return f(high) - f(low), subtracted per output before the sum, which preserves more digits."""
        outputs = zip(self.evaluate({**self.point, **high}), self.evaluate({**self.point, **low}), strict=True)
        total = 0.0
        for dy, (above, below) in zip(self.incoming, outputs, strict=True):
            if dy is None:
                continue
            if above.shape != dy.shape or below.shape != dy.shape:
                return np.nan  # the shape of the output depends on this entry
            # equal infinities, and NaN on both sides, are ignored
            moved = (above != below) & ~(np.isnan(above) & np.isnan(below))
            total += float(np.sum(dy[moved] * (above[moved] - below[moved])))
        return total

    def slope(self, directions: Arrays, step: float) -> float:
        """Return the central difference along `directions`."""
        return self.change(self._moved(directions, step), self._moved(directions, -step)) / (2 * step)

    def sides(self, directions: Arrays, step: float) -> tuple[float, float]:
        """Return the left and the right difference."""
        return self.change({}, self._moved(directions, -step)) / step, self.change(
            self._moved(directions, step), {}
        ) / step

    def _moved(self, directions: Arrays, step: float) -> Arrays:
        return {name: np.asarray(self.point[name] + step * d) for name, d in directions.items()}


def _check_entries(f: _Function, name: str, dx: np.ndarray, limits: _Limits) -> float:
    """Compare entry by entry; return the largest difference or raise."""
    entries = [entry for entry in np.ndindex(dx.shape) if np.isfinite(f.point[name][entry])]
    if len(entries) > limits.max_entries:
        entries = [entries[i] for i in f.rng.choice(len(entries), limits.max_entries, replace=False)]
    tolerance = limits.atol + limits.rtol * float(np.max(np.abs(dx), initial=0.0, where=np.isfinite(dx)))
    errors: list[float] = []
    wrong: list[str] = []
    for entry in entries:
        size = max(1.0, abs(float(f.point[name][entry])))
        unit = np.zeros(dx.shape)
        unit[entry] = size
        expected, error = _nearest(f, {name: unit}, float(dx[entry]) * size, tolerance * size)
        errors.append(error / size)
        if not error <= tolerance * size:
            left, right = (s / size for s in f.sides({name: unit}, STEPS[0]))
            wrong.append(
                f"at {list(entry)}: {dx[entry]:.9g} instead of {expected / size:.9g} "
                f"({left:.6g} to the left, {right:.6g} to the right)"
            )
    if wrong:
        raise GradientMismatch(
            f"The gradient of {name!r} is wrong in {len(wrong)} of {len(entries)} entries checked, by up to "
            f"{np.max(errors):.3g} (tolerance {tolerance:.3g}); {'; '.join(wrong[:3])}."
        )
    return float(max(errors, default=0.0))


def _check_direction(f: _Function, gradients: Arrays, limits: _Limits) -> None:
    """Compare along one random direction through all entries, including entries that were not drawn."""
    # an infinite or NaN entry cannot be perturbed
    directions = {name: f.rng.standard_normal(dx.shape) * np.isfinite(f.point[name]) for name, dx in gradients.items()}
    terms = [(dx * directions[name])[np.isfinite(f.point[name])] for name, dx in gradients.items()]
    derived = float(sum(np.sum(t) for t in terms))
    tolerance = limits.atol + limits.rtol * float(sum(np.sum(np.abs(t)) for t in terms))
    expected, error = _nearest(f, directions, derived, tolerance)
    if not error <= tolerance:
        raise GradientMismatch(
            f"The derivative along a random direction is {derived:.9g} instead of {expected:.9g}: it is off by "
            f"{error:.3g} (tolerance {tolerance:.3g}). The entries checked one by one are correct."
        )


def _nearest(f: _Function, directions: Arrays, derived: float, tolerance: float) -> tuple[float, float]:
    """Return the central difference nearest to `derived` and its distance; stop at the first within tolerance."""
    candidates: list[tuple[float, float]] = []
    for step in STEPS:
        slope = f.slope(directions, step)
        distance = abs(slope - derived)
        if distance <= tolerance:
            return slope, distance
        candidates.append((slope, np.inf if np.isnan(distance) else distance))
    return min(candidates, key=lambda pair: pair[1])


# ------------------------------------------------------------------- models


def _in_double(model: graphs.ModelLike) -> onnx.ModelProto:
    """Return the model in float64 at its own opset, so that the conversion of the opset is checked as well."""
    proto = graphs.read(model)
    with graphs.as_model_error("The model cannot be read"):
        inlined = graphs.copy_of(graphs.inline_functions(proto))
        graphs.forget_scalars(inlined.graph)
        loaded = ir.from_proto(graphs.infer_types(inlined))
        graphs.cast_floats(loaded, ir.DataType.DOUBLE)
        return ir.to_proto(loaded)


def _is_real(value: onnx.ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE


def _initializers(onx: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    return {w.name: w for w in onx.graph.initializer}


def _real_inputs(onx: onnx.ModelProto) -> list[str]:
    return [i.name for i in onx.graph.input if _is_real(i) and i.name not in _initializers(onx)]


def _real_initializers(onx: onnx.ModelProto) -> list[str]:
    return [w.name for w in onx.graph.initializer if w.data_type == onnx.TensorProto.DOUBLE]


def _point(onx: onnx.ModelProto, feeds: Mapping[str, Any], opened: Sequence[str]) -> Arrays:
    """Return the feeds and the values of the weights in `opened`, in the types of the float64 model."""
    if not isinstance(feeds, Mapping):
        names = ", ".join(f"{i.name!r}: ..." for i in onx.graph.input)
        raise DataError(f"feeds must map input names to arrays, got {type(feeds).__name__}. Pass {{{names}}}.")
    for value in onx.graph.input:
        if not value.type.tensor_type.elem_type:
            raise ModelError(f"The input {value.name!r} is not a tensor, so it has no finite differences.")
    types = {i.name: onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in onx.graph.input}
    weights = _initializers(onx)
    missing = [name for name in types if name not in feeds and name not in weights]
    if missing:
        raise DataError(
            f"feeds has no value for {', '.join(map(repr, missing))}; it has {sorted(feeds)}. Name each value as its "
            "input: onnxtrain.random_feed(model.graph.input) returns one for each."
        )
    point = {name: _as_numbers(name, value, types[name]) for name, value in feeds.items() if name in types}
    given = [value for value in onx.graph.input if value.name in point]
    for value in given:
        _check_shape(value, point[value.name].shape)
    _check_names({value.name: graphs.dimensions(value) or () for value in given}, point)
    return {w: onnx.numpy_helper.to_array(weights[w]) for w in opened} | point


def _as_numbers(name: str, value: Any, dtype: np.dtype) -> np.ndarray:
    try:
        return np.asarray(value).astype(dtype)
    except (TypeError, ValueError) as e:
        raise DataError(f"feeds[{name!r}] must be an array of numbers, got {value!r:.80}.") from e


def _check_shape(value: onnx.ValueInfoProto, found: tuple[int, ...]) -> None:
    """Raise a DataError if an array does not have the declared shape of an input."""
    shape = graphs.dimensions(value)
    if shape is None:
        return
    declared = ["?" if d is None else d for d in shape]
    fits = len(declared) == len(found) and all(
        d in (n, 0) or isinstance(d, str) for d, n in zip(declared, found, strict=True)
    )
    if not fits:
        raise DataError(
            f"feeds[{value.name!r}] has shape {found}, but the model takes ({', '.join(map(str, declared))}). Pass an "
            "array of this shape."
        )


def _check_names(declared: Mapping[str, Sequence[int | str | None]], point: Arrays) -> None:
    """Raise a DataError if an axis name of the inputs has two lengths, which the derivative takes to be equal."""
    known: dict[str, tuple[int, str]] = {}
    for name, shape in declared.items():
        for dim, n in zip(shape, point[name].shape, strict=False):
            length, first = known.setdefault(dim, (n, name)) if isinstance(dim, str) else (n, name)
            if length != n:
                raise DataError(
                    f"The axis {dim!r} has length {length} in feeds[{first!r}], but {n} in feeds[{name!r}]. Pass "
                    "arrays that agree, or give the axes different names in the model."
                )


def _check_sizes(onx: onnx.ModelProto, point: Arrays) -> None:
    """Raise a ModelError if a value is too large for differences: onnx.reference would fill the memory."""
    sized = graphs.copy_of(onx)
    for value in sized.graph.input:
        if value.name in point:
            like = onnx.helper.make_tensor_type_proto(value.type.tensor_type.elem_type, point[value.name].shape)
            value.type.CopyFrom(like)
    graphs.assign(sized.graph.value_info, [])
    for value in sized.graph.output:
        value.type.tensor_type.ClearField("shape")
    with graphs.as_model_error("The shapes of the model cannot be inferred"):
        graph = graphs.infer_types(sized, data_prop=True).graph
    for value in (*graph.value_info, *graph.output):
        n = math.prod(d for d in graphs.dimensions(value) or () if isinstance(d, int))
        if n > LARGEST:
            raise ModelError(
                f"{value.name!r} would have {n:,} elements, too many to be computed for each difference. Pass smaller "
                "feeds."
            )


def _with_open_weights(onx: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return the model with its weights as inputs, so that the weights can be perturbed."""
    opened = graphs.copy_of(onx)
    known = {i.name for i in onx.graph.input}
    for w in onx.graph.initializer:
        if w.name in names and w.name not in known:
            opened.graph.input.append(onnx.helper.make_tensor_value_info(w.name, w.data_type, list(w.dims)))
    return opened


# ----------------------------------------------------------------- runtimes


def _onnxruntime(onx: onnx.ModelProto) -> Evaluator:
    from onnxtrain.runtime.session import open_session  # onnxruntime is slow to import

    try:
        session = open_session(onx, n_threads=1)
    except ModelError:  # an opset too new for an older onnxruntime
        session = open_session(graphs.save(graphs.load(onx)), n_threads=1)
    return partial(session.run, None)


class MaxPool(OpRun):
    """MaxPool computed by onnxruntime, because onnx.reference returns wrong indices for overlapping windows.

    If onnxruntime is too old for the opset, onnx.reference computes it.
    """

    op_domain = ""

    def _run(self, x: np.ndarray, **attributes: object) -> tuple[np.ndarray, ...]:
        node = self.onnx_node
        opsets = [onnx.helper.make_opsetid("", self.run_params["opsets"][""])]
        x_info = onnx.helper.make_tensor_value_info(node.input[0], onnx.helper.np_dtype_to_tensor_dtype(x.dtype), None)
        types = (x_info.type.tensor_type.elem_type, onnx.TensorProto.INT64)
        outputs = [onnx.helper.make_tensor_value_info(y, t, None) for y, t in zip(node.output, types, strict=False)]
        graph = onnx.helper.make_graph([node], "pool", [x_info], outputs)
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=graphs.IR_VERSION)
        try:
            return tuple(_onnxruntime(model)({node.input[0]: x}))
        except ModelError:
            return tuple(op_max_pool.MaxPool(node, self.run_params)._run(x, **attributes))


def _reference(onx: onnx.ModelProto) -> Evaluator:
    session = ReferenceEvaluator(onx, new_ops=[MaxPool])

    def evaluate(feeds: Arrays) -> list[np.ndarray]:
        with np.errstate(all="ignore"):  # an infinite entry is compared, not reported
            return [np.asarray(y) for y in session.run(None, feeds)]

    return evaluate


class _First:
    """A model as a function of its feeds, run by the first runtime that supports its operators in float64.

    ``name`` is the name of this runtime after the first call.
    """

    def __init__(self, onx: onnx.ModelProto, runtimes: Mapping[str, Runtime]):
        self.onx = onx
        self.runtimes = runtimes
        self.name = ""
        self.chosen: Evaluator | None = None

    def __call__(self, feeds: Arrays) -> list[np.ndarray]:
        if self.chosen is not None:
            return self.chosen(feeds)
        problems = []
        for name, runtime in self.runtimes.items():
            try:
                chosen = runtime(self.onx)
                outputs = chosen(feeds)
            except Exception as e:  # each runtime has its own exceptions
                problems.append(str(e))
                continue
            self.name, self.chosen = name, chosen
            return outputs
        raise ModelError(f"No runtime can run the model in float64: {'; '.join(problems)}")
