"""ONNX models that were exported for one size of batch, opened to any."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.shape_inference

from onnxtrain import graph
from onnxtrain.errors import ModelError, OnnxTrainError
from onnxtrain.training.session import open_session, run_session

#: How far the rows of a larger batch may be from the same rows in batches of the size of the model.
_RTOL, _ATOL = 1e-3, 1e-4


def open_batch(onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that takes any number of rows where every input is declared with one and the same number.

    The rows are the first axis. The first axis of a Reshape follows them; whatever else may count on
    their number is found by running both models on the same rows.

    Raises
    ------
    ModelError
        The number of rows cannot be set free.
    """
    size = _batch_size(onx)
    if size is None:
        return onx
    opened = onnx.ModelProto()
    opened.CopyFrom(onx)
    _open_reshapes(opened, size)
    del opened.graph.value_info[:]
    for value in (*_inputs(opened), *opened.graph.output):
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].dim_value == size:
            dims[0].dim_param = "batch_rows"
    _compare(onx, opened, size)
    return opened


def _inputs(onx: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    held = {i.name for i in onx.graph.initializer}
    return [i for i in onx.graph.input if i.name not in held]


def _batch_size(onx: onnx.ModelProto) -> int | None:
    dims = [value.type.tensor_type.shape.dim for value in _inputs(onx)]
    sizes = {d[0].dim_value for d in dims if d and d[0].HasField("dim_value")}
    return sizes.pop() if len(sizes) == 1 and all(d and d[0].HasField("dim_value") for d in dims) else None


def _open_reshapes(onx: onnx.ModelProto, size: int) -> None:
    """Let the first axis of what is reshaped from the inputs be as long as needed."""
    inferred = onnx.shape_inference.infer_shapes(onx, data_prop=True).graph
    shapes = {
        v.name: [d.dim_value if d.HasField("dim_value") else None for d in v.type.tensor_type.shape.dim]
        for v in (*inferred.value_info, *inferred.output)
    }
    from_input = {i.name for i in _inputs(onx)}
    for node in onx.graph.node:
        if not from_input.intersection(node.input):
            continue
        from_input.update(node.output)
        shape = shapes.get(node.output[0])
        if node.op_type != "Reshape" or len(node.input) < 2 or node.input[1] in from_input:
            continue
        if shape and all(shape) and shape[0] % size == 0:  # type: ignore[operator]
            name = f"{node.output[0]}_open_shape"
            onx.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1, *shape[1:]], np.int64), name))
            node.input[1] = name


def _compare(onx: onnx.ModelProto, opened: onnx.ModelProto, size: int) -> None:
    rng = np.random.RandomState(0)
    feeds = {}
    for value in _inputs(onx):
        tensor = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        rest = [d.dim_value or 1 for d in tensor.shape.dim[1:]]
        drawn = rng.uniform(0, 2, [3 * size, *rest])
        feeds[value.name] = drawn.astype(str).astype(object) if dtype.kind == "O" else drawn.astype(dtype)
    names = [o.name for o in onx.graph.output if o.type.HasField("tensor_type")]
    fixed = open_session(graph.save(graph.load(onx)), "cpu", 1)  # of an opset that the runtime knows
    parts = [
        run_session(fixed, {k: x[i : i + size] for k, x in feeds.items()}, names) for i in range(0, 3 * size, size)
    ]
    refusal = (
        f"The model is made for batches of {size} rows, and not every node of it works with more. "
        "Export it with the first axis of its inputs left open (dynamic_axes or dynamic_shapes of torch.onnx.export)."
    )
    try:
        found = run_session(open_session(graph.save(graph.load(opened)), "cpu", 1), feeds, names)
    except (OnnxTrainError, RuntimeError) as e:
        raise ModelError(refusal) from e
    for got, expected in zip(found, (np.concatenate(columns) for columns in zip(*parts, strict=True)), strict=True):
        close = got.shape == expected.shape and (
            got.dtype.kind != "f" or np.allclose(got, expected, rtol=_RTOL, atol=_ATOL, equal_nan=True)
        )
        if not close:
            raise ModelError(refusal)
