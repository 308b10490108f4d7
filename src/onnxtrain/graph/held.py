"""Large weights, held as arrays outside a model.

The model refers to each array by a key, so copies of the model are small. Otherwise, a model of 500 MB that passes
through a dozen conversions as protobuf messages would be in memory several times. The owner of a model with such
weights also owns the arrays, by key. An array can be looked up as long as it has an owner.
"""

from __future__ import annotations

import math
import os
import uuid
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain.cache import fork_safe_lock

#: The least size in bytes of a tensor, and of all such tensors of a model together, to be held outside the model.
LEAST, LEAST_IN_ALL = 2**20, 2**26

#: The prefix of the location of a held tensor.
_PREFIX = "onnxtrain-held:"

#: Weak references to the arrays, by key, with all copies of each, since the first may be freed before a copy.
_ARRAYS: dict[str, list[weakref.ref[np.ndarray]]] = {}
_LOCK = fork_safe_lock()


def hold(arrays: Mapping[str, np.ndarray]) -> None:
    """Make arrays available by their keys as long as they live; keys of freed arrays are removed."""
    with _LOCK:
        for key, array in arrays.items():
            _ARRAYS[key] = [*_ARRAYS.get(key, ()), weakref.ref(array)]
        for key, refs in list(_ARRAYS.items()):
            alive = [ref for ref in refs if ref() is not None]
            if alive:
                _ARRAYS[key] = alive
            else:
                del _ARRAYS[key]


def _find(key: str) -> np.ndarray:
    found = (ref() for ref in _ARRAYS.get(key, ()))
    return next(array for array in found if array is not None)


def key_of(tensor: onnx.TensorProto) -> str | None:
    """Return the key of a held tensor, or None."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return None
    location = next((e.value for e in tensor.external_data if e.key == "location"), "")
    key = location.removeprefix(_PREFIX)
    return key if location.startswith(_PREFIX) and any(ref() is not None for ref in _ARRAYS.get(key, ())) else None


def array_of(tensor: onnx.TensorProto) -> np.ndarray:
    """Return the array of a tensor, which must not be changed, because a held tensor is not copied."""
    key = key_of(tensor)
    return onnx.numpy_helper.to_array(tensor) if key is None else _find(key)


def array_of_value(tensor: ir.TensorProtocol) -> np.ndarray:
    """Return the array of a tensor of onnx-ir, held or not."""
    if isinstance(tensor, ir.ExternalTensor) and str(tensor.location).startswith(_PREFIX):
        return _find(str(tensor.location).removeprefix(_PREFIX))
    return tensor.numpy()


def detached(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model whose large weights are held outside it, and these by key; the model itself if they are small.

    Convolution weights stay in the model, because onnxruntime prepares constant ones for its kernels.
    """
    filters = filters_of(proto)
    large = [w for w in proto.graph.initializer if _is_large(w) and w.name not in filters]
    if sum(4 * math.prod(w.dims) for w in large) < LEAST_IN_ALL:
        return proto, {}
    keys = {w.name: uuid.uuid4().hex for w in large}
    arrays = {keys[w.name]: np.frombuffer(w.raw_data, np.float32).reshape(w.dims) for w in large}
    hold(arrays)
    # a message does not free the memory of a cleared field, so all other fields are copied
    small = onnx.ModelProto()
    for field, value in proto.ListFields():
        if field.name != "graph":
            _copy(small, field.name, value)
    for field, value in proto.graph.ListFields():
        if field.name != "initializer":
            _copy(small.graph, field.name, value)
    small.graph.initializer.extend(_stub(w, keys[w.name]) if w.name in keys else w for w in proto.graph.initializer)
    return small, arrays


def filters_of(proto: onnx.ModelProto) -> set[str]:
    """Return the names of the convolution weights."""
    return {node.input[1] for node in proto.graph.node if node.op_type in ("Conv", "ConvTranspose")}


def _is_large(w: onnx.TensorProto) -> bool:
    return has_many_floats(w) and w.data_location == onnx.TensorProto.DEFAULT and w.HasField("raw_data")


def has_many_floats(w: onnx.TensorProto) -> bool:
    """Whether a tensor is a large float32 tensor."""
    return w.data_type == onnx.TensorProto.FLOAT and 4 * math.prod(w.dims) >= LEAST


def hold_external(tensors: Iterable[onnx.TensorProto], folder: str) -> dict[str, np.ndarray]:
    """Read tensors of external files and, if their total size is large, hold them outside their model, in place."""
    large = list(tensors)
    if sum(4 * math.prod(w.dims) for w in large) < LEAST_IN_ALL:
        return {}
    arrays = {}
    for w in large:
        place = {e.key: e.value for e in w.external_data}
        path, offset = os.path.join(folder, place["location"]), int(place.get("offset", 0))
        array = np.fromfile(path, "<f4", math.prod(w.dims), offset=offset).reshape(w.dims)
        array.flags.writeable = False
        key = uuid.uuid4().hex
        arrays[key] = array
        w.CopyFrom(_stub(w, key))
    hold(arrays)
    return arrays


def _copy(message: Any, name: str, value: Any) -> None:
    """Set a field of a message."""
    if hasattr(value, "CopyFrom"):
        getattr(message, name).CopyFrom(value)
    elif isinstance(value, (str, bytes, int, float)):
        setattr(message, name, value)
    else:
        getattr(message, name).extend(value)


def _stub(w: onnx.TensorProto, key: str) -> onnx.TensorProto:
    stub = onnx.TensorProto(name=w.name, data_type=w.data_type, dims=w.dims)
    if w.HasField("doc_string"):
        stub.doc_string = w.doc_string
    stub.metadata_props.extend(w.metadata_props)
    stub.data_location = onnx.TensorProto.EXTERNAL
    stub.external_data.add(key="location", value=_PREFIX + key)
    return stub


def attach(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Put the held arrays into a model that leaves this package, in place; return the model."""
    for tensor in proto.graph.initializer:
        key = key_of(tensor)
        if key is not None:
            put(tensor, _find(key))
    return proto


def put(tensor: onnx.TensorProto, array: np.ndarray) -> None:
    """Set the data of a tensor in place; a list of floating-point values, as of skl2onnx, stays a list."""
    listed = next((name for name in ("float_data", "double_data") if getattr(tensor, name)), None)
    for field in ("float_data", "int32_data", "int64_data", "double_data", "external_data", "data_location"):
        tensor.ClearField(field)
    if listed is not None:
        getattr(tensor, listed).extend(array.ravel())
    else:
        tensor.raw_data = array.tobytes() if array.dtype == "<f4" else onnx.numpy_helper.from_array(array).raw_data


def held_by_name(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return the held initializers, by name."""
    keys = {w.name: key_of(w) for w in proto.graph.initializer}
    return {name: _find(key) for name, key in keys.items() if key is not None}


def held_by_key(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return the held arrays of a model, by key."""
    keys = map(key_of, proto.graph.initializer)
    return {key: _find(key) for key in keys if key is not None}
