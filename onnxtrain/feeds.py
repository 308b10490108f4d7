"""Random values for the inputs of a model, to run it without data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx

from onnxtrain.errors import DataError

#: `random_feed` draws integers in ``[0, INTEGERS)``: valid indices of tensors with ten rows.
INTEGERS = 10


def random_feed(
    inputs: Iterable[Any], batch: int = 10, empty_dimension: int = 1, random_state: Any = None
) -> dict[str, np.ndarray]:
    """Draw a random value for each input of a model.

    Floating-point values are standard normal, integers uniform between 0 and 9, booleans fair.

    Parameters
    ----------
    inputs : iterable
        ``onx.graph.input``, or ``session.get_inputs()``.
    batch : int
        Length of a first axis that is unknown, and of every other axis of the same name.
    empty_dimension : int
        Length of any other unknown axis.
    random_state : int, numpy.random.Generator or None
        The same int gives the same feed.

    Raises
    ------
    DataError
        An input holds strings or is not a tensor.

    Examples
    --------
    >>> import onnx
    >>> X = onnx.helper.make_tensor_value_info("X", onnx.TensorProto.INT64, ["N", None, 3])
    >>> random_feed([X], batch=4)["X"].shape
    (4, 1, 3)
    """
    rng = np.random.default_rng(random_state)
    described = [(i.name, *_dtype_and_shape(i)) for i in inputs]
    rows = {shape[0] for _, _, shape in described if shape and isinstance(shape[0], str)}

    def length(axis: int, dim: int | str | None) -> int:
        if isinstance(dim, int) and dim > 0:
            return dim
        return batch if axis == 0 or dim in rows else empty_dimension

    return {
        name: _draw(rng, dtype, [length(axis, dim) for axis, dim in enumerate(shape)])
        for name, dtype, shape in described
    }


# ------------------------------------------------------------------ options


def _dtype_and_shape(value: Any) -> tuple[np.dtype, list[int | str | None]]:
    """Return the type and the shape of a ValueInfoProto or of onnxruntime's NodeArg."""
    if isinstance(value, onnx.ValueInfoProto):
        tensor = value.type.tensor_type
        code = tensor.elem_type
        shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    else:
        name = value.type.removeprefix("tensor(").removesuffix(")").upper()
        code = getattr(onnx.TensorProto, name, 0)
        shape = list(value.shape)
    if code in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        raise DataError(f"The input {value.name!r} is no tensor of numbers: give its value yourself.")
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)), shape


def _draw(rng: np.random.Generator, dtype: np.dtype, shape: list[int]) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, INTEGERS, shape).astype(dtype)
    return np.asarray(rng.standard_normal(shape)).astype(dtype)
