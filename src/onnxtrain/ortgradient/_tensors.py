"""Conversion of tensors to OrtValues, with checks of type, device and shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
from onnxruntime.capi import _pybind_state as native

from onnxtrain.errors import DataError, DeviceError
from onnxtrain.ortgradient._graphs import Tensor
from onnxtrain.runtime.device import Device

#: Tensors that users may give: arrays, OrtValues, or objects with ``__dlpack__``.
Tensors: TypeAlias = "native.OrtValueVector | Sequence[Any]"

#: DLPack device types supported by both onnxruntime and PyTorch.
_DLPACK_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu"}


def ort_device(device: Device) -> Any:
    """Return a device as onnxruntime's OrtDevice."""
    kind = getattr(native.OrtDevice, device.kind)()
    return native.OrtDevice(kind, native.OrtDevice.default_memory(), device.index)


def device_name(device: native.OrtDevice) -> str:
    """Return ``"Cpu"`` or ``"Gpu"`` for an OrtDevice.

    Raises
    ------
    DeviceError
        The device is of another kind, or is not an OrtDevice.
    """
    if not isinstance(device, native.OrtDevice):
        raise DeviceError(f"Expected an OrtDevice, got {device!r}, a {type(device).__name__}.")
    names = {native.OrtDevice.cpu(): "Cpu", native.OrtDevice.cuda(): "Gpu"}
    if device.device_type() not in names:
        raise DeviceError(f"Device type {device.device_type()} is neither a CPU nor a CUDA device.")
    return names[device.device_type()]


def to_ort(tensor: Any, device: native.OrtDevice, what: str) -> Any:
    """Return one tensor as onnxruntime's OrtValue, without a copy if it is already on the device.

    A tensor that is not copied must be kept alive by the caller as long as the result is used.

    Parameters
    ----------
    tensor : numpy array, OrtValue, or anything with ``__dlpack__``
    device : OrtDevice
    what : str
        The name of the tensor, for messages.
    """
    if isinstance(tensor, onnxruntime.OrtValue):
        tensor = tensor._ortvalue
    if isinstance(tensor, (np.ndarray, np.generic)):
        return _from_numpy(np.asarray(tensor), device, what, borrow=isinstance(tensor, np.ndarray))
    if isinstance(tensor, native.OrtValue):
        return _checked_place(tensor, device, what)
    if hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__"):
        return _from_dlpack(tensor, device, what)
    remedy = " If nothing depends on this output, pass zeros." if tensor is None and what.endswith("_grad") else ""
    raise DataError(
        f"{what} must be a numpy array, an OrtValue or a tensor with __dlpack__, got {_describe(tensor)}.{remedy}"
    )


def to_vector(tensors: Tensors, devices: Sequence[native.OrtDevice], names: Sequence[str]) -> Any:
    """Return tensors as an OrtValueVector; an OrtValueVector is returned unchanged.

    Arrays on a CPU are not copied: the caller must keep them alive as long as the result is used.

    Raises
    ------
    DataError
        The number of tensors is wrong, or a value is not a tensor.
    DeviceError
        A tensor is on another device.
    """
    if not isinstance(tensors, (list, tuple, native.OrtValueVector)):
        raise DataError(f"Expected a list of {len(names)} tensors ({', '.join(names)}), got {_describe(tensors)}.")
    if len(tensors) != len(names):
        raise DataError(
            f"Expected {len(names)} tensors ({', '.join(names) or 'none'}), got {len(tensors)}. Pass "
            "one for each name, in this order."
        )
    if isinstance(tensors, native.OrtValueVector):
        for tensor, device, name in zip(tensors, devices, names, strict=True):
            _checked_place(tensor, device, name)
        return tensors
    return vector(to_ort(t, d, name) for t, d, name in zip(tensors, devices, names, strict=True))


def vector(values: Iterable[Any]) -> Any:
    """Return onnxruntime's OrtValues as an OrtValueVector."""
    found = native.OrtValueVector()
    for value in values:
        found.push_back(value)
    return found


def broadcast(values: Sequence[Any], expected: Sequence[Tensor], devices: Sequence[native.OrtDevice]) -> Any:
    """Return values broadcast to the expected shapes; values that cannot be broadcast are unchanged."""
    return vector(
        _stretched(value, tensor, device) for value, tensor, device in zip(values, expected, devices, strict=True)
    )


def _stretched(value: Any, expected: Tensor, device: native.OrtDevice) -> Any:
    shape = tuple(value.shape())
    wanted = [d for d in expected.shape or () if isinstance(d, int)]  # all dimensions of a gradient are known
    if expected.shape is None or shape == tuple(wanted):
        return value
    try:
        array = np.broadcast_to(value.numpy(), wanted)
    except ValueError:  # the check of shapes raises the error
        return value
    return _from_numpy(array, device, expected.name, borrow=False)


def check_fits(values: Iterable[Any], expected: Sequence[Tensor]) -> None:
    """Raise if a type or a shape differs from the expected one, or if a named dimension has two lengths."""
    lengths: dict[str, tuple[int, str]] = {}
    order = f" The order is {', '.join(tensor.name for tensor in expected)}." if len(expected) > 1 else ""
    for value, tensor in zip(values, expected, strict=True):
        if value.element_type() != tensor.elem_type:
            raise DataError(
                f"{tensor.name!r} must be of type {_type_name(tensor.elem_type)}, "
                f"got {_type_name(value.element_type())}. Pass an array of dtype "
                f"{onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)}."
            )
        shape = tuple(value.shape())
        if tensor.shape is None:
            continue
        if len(shape) != len(tensor.shape):
            column = f" Pass it with shape {(*shape, 1)}." if (*shape, 1) == tuple(tensor.shape) else ""
            raise DataError(
                f"{tensor.name!r} must have {len(tensor.shape)} axes, {tensor.shape}, got shape {shape}.{column}{order}"
            )
        for length, dim in zip(shape, tensor.shape, strict=True):
            if isinstance(dim, int) and length != dim:
                raise DataError(f"{tensor.name!r} must have shape {tensor.shape}, got {shape}.{order}")
            if isinstance(dim, str):
                before, where = lengths.setdefault(dim, (length, tensor.name))
                if before != length:
                    raise DataError(
                        f"The dimension {dim!r} is {before} in {where!r} and {length} in {tensor.name!r}: "
                        "they must agree."
                    )


def _from_numpy(array: np.ndarray, device: native.OrtDevice, what: str, *, borrow: bool) -> Any:
    if array.dtype.kind in "OUSV" and array.dtype.isbuiltin:
        raise DataError(f"{what} holds strings or objects ({array.dtype}), which have no derivative.")
    try:
        if borrow and array.flags.c_contiguous:
            return native.OrtValue.ortvalue_from_numpy(array, device)
        # on a CPU onnxruntime borrows the memory of an array, and this local copy would be freed before the run
        owned = native.OrtValue.ortvalue_from_shape_and_type(list(array.shape), array.dtype, device)
        owned.update_inplace(array.copy(order="C"))
        return owned
    except Exception as e:  # the type is unknown to onnxruntime
        raise DataError(f"{what} has the unsupported dtype {array.dtype}: {e}") from e


def _from_dlpack(tensor: Any, device: native.OrtDevice, what: str) -> Any:
    kind, index = tensor.__dlpack_device__()
    if _DLPACK_DEVICES.get(int(kind)) != _kind(device) or (_kind(device) == "cuda" and index != device.device_id()):
        raise DeviceError(f"{what} is on another device ({_describe(tensor)}) than the model ({_kind(device)}).")
    if getattr(tensor, "requires_grad", False):
        tensor = tensor.detach()
    if hasattr(tensor, "is_contiguous") and not tensor.is_contiguous():
        tensor = tensor.contiguous()
    try:
        return native.OrtValue.from_dlpack(tensor.__dlpack__())
    except Exception as e:  # the other library and onnxruntime raise different classes for an unknown type
        raise DataError(f"{what}: {_describe(tensor)} cannot be read through DLPack: {e}") from e


def _checked_place(value: Any, device: native.OrtDevice, what: str) -> Any:
    if not value.has_value() or not value.is_tensor():
        raise DataError(f"{what} is an OrtValue that holds no tensor.")
    place = value.device_name().lower()
    if place != _kind(device):
        raise DeviceError(f"{what} is on {place}, but the model is on {_kind(device)}. Move it there first.")
    return value


def _kind(device: native.OrtDevice) -> str:
    return "cpu" if device_name(device) == "Cpu" else "cuda"


def _type_name(elem_type: int) -> str:
    return str(onnx.TensorProto.DataType.Name(elem_type)).lower()


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")
