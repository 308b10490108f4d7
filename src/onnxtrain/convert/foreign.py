"""ONNX models of other exporters: removal of fixed batch sizes, and writing of weights back to the user's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper

from onnxtrain import graph
from onnxtrain.convert.merged import (
    holders_of,
    listed_floats,
    separate_in_file,
    with_own_copies,
    with_trained_copies,
)
from onnxtrain.convert.quantized import has_integers, quantized_again
from onnxtrain.convert.tied_weights import untied
from onnxtrain.errors import ModelError, OnnxTrainError
from onnxtrain.runtime.session import open_session, run_session

#: The tolerance, relative to the largest value, between the results of rows in a larger batch and in batches of the
#: model's size. float32 alone gives up to 4e-7 (12 layers of 1024); applying the mask of the first row to all rows
#: gives 2.6e-4 or more.
_ROUNDING = 3e-5

#: The tolerance for float16 and quantized values, where rounding can reach the next value.
_COARSE_ROUNDING = 1e-3

#: The largest number of rows of a compared batch; they are run three times.
_LARGEST = 2**16

#: The remedy for a model for batches of one size.
_OPEN = (
    'Export it with a variable batch axis: torch.onnx.export(..., dynamo=True, dynamic_shapes=[{0: "n"}]). PyTorch may '
    "fix the axis if it is given as a torch.export.Dim."
)


@graph.as_model_error("The batch axis of the model cannot be made variable")
def open_batch(onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model for any batch size, if all inputs are declared with the same fixed batch size.

    The rows are the first axis. The first axis of a Reshape or an Expand is made variable; any other dependence on the
    batch size is detected by running both models on the same rows.

    Raises
    ------
    ModelError
        The batch size cannot be made variable.
    """
    size = batch_size(onx)
    if size is None:
        return onx
    opened = graph.copy_of(onx)
    _open_shapes(opened, size)
    held = {i.name for i in opened.graph.initializer}  # keeps the exporter's metadata on them
    graph.assign(opened.graph.value_info, [v for v in opened.graph.value_info if v.name in held])
    for value in (*_inputs(opened), *opened.graph.output):
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].dim_value == size:
            dims[0].dim_param = "batch_rows"
        elif any(d.dim_value == size for d in dims):  # an output, whose batch axis may be another
            value.type.tensor_type.ClearField("shape")
    _compare(onx, opened, size)
    return opened


def with_lengths_of(onx: onnx.ModelProto, X: Any) -> onnx.ModelProto:
    """Return a model with the input lengths of given rows if an If depends on them, else the model itself.

    Parameters
    ----------
    onx : onnx.ModelProto
        A model with the rows on the first axis of each input.
    X : array-like, or mapping of str to array-like
    """
    n_open = _open_branches(onx)
    if not n_open:
        return onx
    rows = X if isinstance(X, Mapping) else {value.name: X for value in _inputs(onx)[:1]}
    declared = graph.copy_of(onx)
    for value in declared.graph.input:
        dims, shape = value.type.tensor_type.shape.dim, np.shape(rows.get(value.name, 0))
        if len(dims) == len(shape):
            for dim, length in zip(dims[1:], shape[1:], strict=True):
                dim.dim_value = dim.dim_value or length
    return declared if _open_branches(declared) < n_open else onx


def _open_branches(onx: onnx.ModelProto) -> int:
    """Return the number of If nodes that are decided at run time."""
    if not any(node.op_type == "If" for node in onx.graph.node):
        return 0
    return sum(node.op_type == "If" for node in graph.load(onx).graph)


def _inputs(onx: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    held = {i.name for i in onx.graph.initializer}
    return [i for i in onx.graph.input if i.name not in held]


def batch_size(onx: onnx.ModelProto) -> int | None:
    """Return the fixed batch size of a model, or None if it is variable."""
    dims = [value.type.tensor_type.shape.dim for value in _inputs(onx)]
    sizes = {d[0].dim_value for d in dims if d}
    size = sizes.pop() if len(sizes) == 1 and all(dims) else 0
    return size if size > 0 else None  # a variable axis has length 0 or -1


def _open_shapes(onx: onnx.ModelProto, size: int) -> None:
    """Make the first axis of each Reshape and Expand of values that depend on the inputs variable."""
    inferred = graph.infer_shapes(onx).graph
    shapes = {
        v.name: [d.dim_value if d.HasField("dim_value") else 0 for d in v.type.tensor_type.shape.dim]
        for v in (*inferred.value_info, *inferred.output)
    }
    from_input = {i.name for i in _inputs(onx)}
    for node in onx.graph.node:
        if not from_input.intersection(node.input):
            continue
        from_input.update(node.output)
        shape = shapes.get(node.output[0], [0])
        given = node.op_type in ("Expand", "Reshape") and len(node.input) > 1 and node.input[1] not in from_input
        first = -1 if node.op_type == "Reshape" else 1  # an axis expanded to length 1 keeps its length
        if given and shape and all(shape) and (shape[0] == size or (first < 0 and shape[0] % size == 0)):
            name = f"{node.output[0]}_open_shape"
            onx.graph.initializer.append(onnx.numpy_helper.from_array(np.array([first, *shape[1:]], np.int64), name))
            node.input[1] = name


def _compare(onx: onnx.ModelProto, opened: onnx.ModelProto, size: int) -> None:
    """Compare a batch of three times the size with three batches of the size."""
    if size > _LARGEST:
        raise ModelError(
            f"The model has the fixed batch size {size}, which is too large to test whether other batch sizes work "
            f"({_LARGEST} at most). {_OPEN}"
        )
    rng = np.random.RandomState(0)
    feeds = {value.name: _draw(rng, 3 * size, value.type.tensor_type) for value in _inputs(onx)}
    names = [o.name for o in onx.graph.output if o.type.HasField("tensor_type")]
    fixed = open_session(graph.save(graph.load(onx)), "cpu", 1)  # converts to an opset that the runtime supports
    refusal = f"The model has the fixed batch size {size}, and some of its nodes do not work with more rows. {_OPEN}"
    if all(len(value.type.tensor_type.shape.dim) == 1 for value in _inputs(onx)):
        refusal = (
            f"The input {_inputs(onx)[0].name!r} has one axis, of length {size}, so the model takes one row without an "
            f"axis of rows. Export it with rows of shape (n, {size}): torch.onnx.export(model, (torch.zeros(2, {size}),"
            '), path, dynamo=True, dynamic_shapes=[{0: "n"}]).'
        )
    try:
        parts = [
            run_session(fixed, {k: x[i : i + size] for k, x in feeds.items()}, names) for i in range(0, 3 * size, size)
        ]
        found = run_session(open_session(graph.save(graph.load(opened)), "cpu", 1), feeds, names)
    except (OnnxTrainError, RuntimeError) as e:
        raise ModelError(refusal) from e
    expected = [_joined(batches, whole.shape) for batches, whole in zip(zip(*parts, strict=True), found, strict=True)]
    coarse = has_integers(onx)
    if not all(_is_close(*pair, coarse=coarse) for pair in zip(found, expected, strict=True)):
        raise ModelError(refusal)


def _joined(batches: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Return batches of an output, concatenated along the axis that is longer in `shape`."""
    axes = [i for i, (n, whole) in enumerate(zip(batches[0].shape, shape, strict=False)) if n != whole]
    return np.concatenate(batches, axis=axes[0] if axes else 0)


def _draw(rng: np.random.RandomState, n_rows: int, tensor: onnx.TypeProto.Tensor) -> np.ndarray:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    drawn = rng.uniform(0, 2, [n_rows, *(d.dim_value or 1 for d in tensor.shape.dim[1:])])
    return drawn.astype(str).astype(object) if dtype.kind == "O" else drawn.astype(dtype)


def _is_close(found: np.ndarray, expected: np.ndarray, *, coarse: bool) -> bool:
    if found.shape != expected.shape or found.dtype.kind != "f":
        return found.shape == expected.shape
    tolerance = _COARSE_ROUNDING if coarse or found.dtype == np.float16 else _ROUNDING
    largest = np.abs(expected, where=np.isfinite(expected), out=np.zeros_like(expected)).max(initial=0)
    return np.allclose(found, expected, rtol=0, atol=tolerance * float(largest), equal_nan=True)


def put_back(
    original: onnx.ModelProto, weights: Mapping[str, np.ndarray], trained: onnx.ModelProto
) -> onnx.ModelProto | None:
    """Return a model with new values in some of its initializers and ``Constant`` nodes; everything else is unchanged.

    Weights that the exporter had merged and that are no longer equal become separate initializers of the nodes that had
    shared one.

    Parameters
    ----------
    original : onnx.ModelProto
    weights : mapping of str to ndarray
        The new values; each is written in its original type, quantized if necessary.
    trained : onnx.ModelProto
        The trainable form of the model.

    Returns
    -------
    onnx.ModelProto or None
        None if a weight is neither an initializer nor a constant, because it comes from an operator of ai.onnx.ml or
        from a function; or if training replaced float64 operators of ai.onnx.ml for which onnxruntime has no kernel.
    """
    values = (*original.graph.input, *original.graph.output)
    in_double = any(value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE for value in values)
    if in_double and any(node.domain == "ai.onnx.ml" for node in original.graph.node):
        return None
    weights = untied(with_own_copies(original), weights)
    changed = graph.copy_of(with_trained_copies(original, weights))
    separate_in_file(changed, trained, set(weights))
    holders, listed = holders_of(changed), listed_floats(changed)
    if any(name not in holders or tuple(holders[name].dims) != w.shape for name, w in weights.items()):
        return None
    written = {**weights, **quantized_again(original, {**holders, **holders_of(original)}, weights)}
    for name, array in written.items():
        tensor, dtype = holders[name], onnx.helper.tensor_dtype_to_np_dtype(holders[name].data_type)
        if array is weights.get(name) and tensor.data_type not in graph.FLOATS:
            return None  # integers that are never dequantized
        graph.put(tensor, np.asarray(array, dtype))
        if name in listed:
            listed[name].floats[:] = np.asarray(array, dtype).tolist()
    return changed
