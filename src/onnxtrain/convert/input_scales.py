"""The size of the values that a model expects of an input, from its first operators.

Files often hold the normalization of their rows: pixels that are divided by 255, means that are subtracted, the step
of a quantized input. Rows of another scale give results without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from onnxtrain import graph
from onnxtrain.convert.lookups import Readers, constants_of, readers_of

#: Operators that move values or convert their type.
_SAME_VALUES = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

#: The distance from the mean, in standard deviations, of most values.
_FAR = 2.0


def sizes_of_inputs(onx: onnx.ModelProto) -> dict[str, float]:
    """Return the approximate largest absolute value that a model expects of each input whose scale it shows.

    Examples
    --------
    >>> import onnx.parser
    >>> onx = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 21]>
    ...     g (float[n, 4] X) => (float[n, 4] Y) <float c = {255}> { Y = Div(X, c) }''')
    >>> sizes_of_inputs(onx)
    {'X': 255.0}
    """
    walk, names = _walk_from_inputs(onx)
    with np.errstate(all="ignore"):
        found = {name: walk.size(name) for name in names}
    return {name: size for name, size in found.items() if size is not None and 0 < size < np.inf}


def standardized_inputs(onx: onnx.ModelProto) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the means that a model subtracts from each input first, and the deviations by which it then divides.

    Examples
    --------
    >>> import onnx.parser
    >>> onx = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 21]>
    ...     g (float[n, 2] X) => (float[n, 2] Y) <float[2] m = {5, 3}, float[2] s = {0.5, 2}> {
    ...         c = Sub(X, m) Y = Div(c, s) }''')
    >>> standardized_inputs(onx)
    {'X': (array([5., 3.], dtype=float32), array([0.5, 2. ], dtype=float32))}
    """
    walk, names = _walk_from_inputs(onx)
    with np.errstate(all="ignore"):
        found = {name: walk.standardization(name) for name in names}
    return {name: pair for name, pair in found.items() if pair is not None}


def _walk_from_inputs(onx: onnx.ModelProto) -> tuple[_Walk, list[str]]:
    """Return a walk of a model, and the names of its floating-point inputs."""
    floats = [v.name for v in onx.graph.input if v.type.tensor_type.elem_type in graph.FLOATS]
    floats = [name for name in floats if "mask" not in name.lower()]
    proto = graph.inline_functions(onx) if floats else onnx.ModelProto()
    return _Walk(readers_of(proto), constants_of(proto)), floats


@dataclass(frozen=True)
class _Walk:
    """The first operators of a graph, from its inputs on."""

    readers: Readers
    constants: Mapping[str, onnx.TensorProto]

    def size(self, name: str) -> float | None:
        """Return the size of the values of an input; None if its first operator does not show it."""
        node = self.reader(name)
        size_of = None if node is None else _SIZES.get(node.op_type)
        return None if node is None or size_of is None else size_of(self, node)

    def standardization(self, name: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the means and deviations of an input; None if the model does not begin with them."""
        node = self.reader(name)
        if node is not None and node.op_type == "Scaler":
            return _offset_and_divisor(node)
        following = None if node is None or node.op_type != "Sub" else self.reader(node.output[0])
        if node is None or following is None or following.op_type not in ("Div", "Mul"):
            return None
        mean, divisor = self.array(node, 1), self.array(following, 1)
        if mean is None or divisor is None:
            return None
        return mean.ravel(), (1 / divisor if following.op_type == "Mul" else divisor).ravel()

    def reader(self, name: str) -> onnx.NodeProto | None:
        """Return the only node that computes with a value, as its first operand."""
        while len(uses := self.readers[name]) == 1 and uses[0][1] == 0:
            node = uses[0][0]
            if node.op_type not in _SAME_VALUES:
                return node
            name = node.output[0]
        return None

    def array(self, node: onnx.NodeProto, position: int) -> np.ndarray | None:
        """Return an operand that is constant."""
        known = self.constants.get(node.input[position]) if position < len(node.input) else None
        return None if known is None else graph.array_of(known)

    def largest(self, node: onnx.NodeProto, position: int) -> float | None:
        """Return the largest absolute value of an operand that is constant."""
        found = self.array(node, position)
        return None if found is None or not found.size else float(np.abs(found).max())


def _divisor(walk: _Walk, node: onnx.NodeProto) -> float | None:
    found = walk.largest(node, 1)
    return 1 / found if node.op_type == "Mul" and found else found


def _of_division(walk: _Walk, node: onnx.NodeProto) -> float | None:
    """Return the size for values that are made smaller; others may be small for many reasons."""
    divisor = _divisor(walk, node)
    return divisor if divisor is not None and divisor > 1 else None


def _of_sub(walk: _Walk, node: onnx.NodeProto) -> float | None:
    """Return the size for a mean that is subtracted, if the result is divided by a standard deviation."""
    mean, following = walk.largest(node, 1), walk.reader(node.output[0])
    if mean is None or following is None or following.op_type not in ("Div", "Mul"):
        return None
    deviation = _divisor(walk, following)
    return None if deviation is None else mean + _FAR * deviation


def _of_batch_normalization(walk: _Walk, node: onnx.NodeProto) -> float | None:
    mean, variance = walk.largest(node, 3), walk.largest(node, 4)
    return None if mean is None or variance is None else mean + _FAR * float(np.sqrt(variance))


def _of_quantize(walk: _Walk, node: onnx.NodeProto) -> float | None:
    """Return the largest value that a quantized input represents."""
    step, zero = walk.largest(node, 1), walk.array(node, 2)
    if step is None or zero is None or zero.dtype.kind not in "iu":
        return None
    limits = np.iinfo(zero.dtype)
    return step * float(max(limits.max - int(zero.min()), int(zero.max()) - limits.min))


def _of_scaler(walk: _Walk, node: onnx.NodeProto) -> float | None:
    """Return the size for the Scaler of ai.onnx.ml."""
    found = _offset_and_divisor(node)
    return None if found is None else float(np.max(np.abs(found[0]) + _FAR * np.abs(found[1])))


def _offset_and_divisor(node: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the operands of the Scaler of ai.onnx.ml, which computes ``(x - offset) * scale``; None if damaged."""
    given = {"offset": np.zeros(1), "scale": np.ones(1)} | {a.name: np.asarray(a.floats) for a in node.attribute}
    offset, scale = given["offset"], given["scale"]
    lengths = {offset.size, scale.size}
    return None if 0 in lengths or len(lengths - {1}) > 1 or not scale.all() else (offset, 1 / scale)


_SIZES: Mapping[str, Callable[[_Walk, onnx.NodeProto], float | None]] = {
    "BatchNormalization": _of_batch_normalization,
    "Div": _of_division,
    "Mul": _of_division,
    "QuantizeLinear": _of_quantize,
    "Scaler": _of_scaler,
    "Sub": _of_sub,
}
