"""The results of the user's ONNX model, computed by plain onnxruntime, and their accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from onnxtrain import graph
from onnxtrain.cache import Cache, content_key
from onnxtrain.convert.foreign import batch_size
from onnxtrain.convert.quantized import activation_bits
from onnxtrain.errors import ModelError, OnnxTrainError, warn
from onnxtrain.runtime.session import open_session, run_session

#: Outputs of the users' ONNX models, by model and rows.
_ANSWERS: Cache[dict[str, np.ndarray]] = Cache("answers")

#: The number of quantization steps by which results may differ. onnxruntime multiplies integers in the user's file but
#: floats in the trainable graph, and a sum that is rounded to another integer affects later sums. A step is 2 / 2^bits
#: of the largest value. On 15 models quantized by onnxruntime and PyTorch the difference was at most two steps.
_STEPS = 4


def answers_of_onnx(original: bytes, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of the user's ONNX model, computed by plain onnxruntime.

    If onnxruntime refuses the original model, because it lacks an operator for a type, the result is empty and a
    warning says that the model is not compared.
    """
    key = content_key([original], feeds)
    known = None if key is None else _ANSWERS.find(key)
    if known is not None:
        return known
    with graph.as_model_error("The model cannot be read"):  # protobuf writes deeper messages than it reads
        proto = onnx.load_model_from_string(original)
    try:
        found = _run_as_it_came(original, proto, feeds)
    except OnnxTrainError as e:
        if "bound to different types" in str(e):  # no other runtime can run the trained file either
            raise
        warn(f"The trainable model was not compared with the original, which onnxruntime cannot run: {e}")
        return {}
    return found if key is None else _ANSWERS.keep(key, found)


def _run_as_it_came(original: bytes, proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of an ONNX model by plain onnxruntime, for rows in batches of the model's size."""
    held = {i.name for i in proto.graph.initializer}
    types = {v.name: v.type.tensor_type.elem_type for v in proto.graph.input if v.name not in held}
    typed = {name: _cast(rows, types[name]) for name, rows in feeds.items() if name in types}
    n = len(next(iter(typed.values())))
    size = batch_size(proto) or n
    rows = np.arange(-(-n // size) * size) % n  # batches of equal size; the last one repeats rows
    weights = graph.held_by_name(proto)
    session = _session_of(
        graph.initializers_as_inputs(proto, list(weights)).SerializeToString() if weights else original
    )
    names = [o.name for o in session.get_outputs()]
    pieces = ({k: x[batch] for k, x in typed.items()} for batch in rows.reshape(-1, size))
    parts = [run_session(session, {**some, **weights}, names) for some in pieces]
    return {name: _joined([_as_array(y) for y in ys], n) for name, *ys in zip(names, *parts, strict=True)}


def _session_of(original: bytes) -> Any:
    """Return a session on an ONNX model, converted to our opset if onnxruntime does not support its own."""
    try:
        return open_session(original, "cpu", 1, thorough=False)
    except ModelError:
        return open_session(graph.save(graph.load(original)), "cpu", 1, thorough=False)


def _cast(rows: np.ndarray, element: int) -> np.ndarray:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
    with np.errstate(over="ignore"):  # of float16, whose results are compared
        return rows if dtype.kind == "O" else rows.astype(dtype, copy=False)


def _joined(parts: list[np.ndarray], n: int) -> np.ndarray:
    return parts[0] if parts[0].ndim == 0 or len(parts) == 1 else np.concatenate(parts)[:n]


def _as_array(found: Any) -> np.ndarray:
    """Return an output as an array; dictionaries of ZipMap become rows of their values."""
    if isinstance(found, list) and found and isinstance(found[0], dict):
        return np.array([list(row.values()) for row in found])
    return np.asarray(found)


def is_rough(original: bytes) -> bool:
    """Whether the probabilities of an ONNX model come from libsvm, whose pairwise iteration ends early."""
    nodes = onnx.load_model_from_string(original).graph.node
    given = [a for node in nodes if node.op_type == "SVMClassifier" for a in node.attribute]
    return any(a.name == "prob_a" and len(a.floats) > 0 for a in given)


def computes_in_halves(original: bytes) -> bool:
    """Whether a model casts to half precision, whatever the type of its inputs and outputs."""
    halves = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    casts = (n for n in onnx.load_model_from_string(original).graph.node if n.op_type == "Cast")
    return any(a.name == "to" and a.i in halves for node in casts for a in node.attribute)


def has_halves(onx: onnx.ModelProto) -> bool:
    """Whether a model has inputs or weights of half precision."""
    kinds = {value.type.tensor_type.elem_type for value in onx.graph.input} | {
        w.data_type for w in onx.graph.initializer
    }
    return onnx.TensorProto.FLOAT16 in kinds


def quantized_steps(original: bytes) -> float:
    """Return how much a quantized model may differ, relative to the largest value; 0 for other models."""
    bits = activation_bits(onnx.load_model_from_string(original))
    return _STEPS * 2.0 / 2**bits if bits else 0.0
