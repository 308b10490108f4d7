"""Where the work is done: the one place that knows a CPU from a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from onnxtrain.errors import DeviceError

_NAMES = re.compile(r"(?P<kind>cpu|cuda)(?::(?P<index>\d+))?")


@dataclass(frozen=True)
class Device:
    """A device of onnxruntime: its kind, ``"cpu"`` or ``"cuda"``, and its number."""

    kind: str
    index: int = 0

    def providers(self, *, captured: bool = False) -> list[Any]:
        """Return the execution providers, in order of preference.

        With `captured` a GPU records what it does for a run and replays it in the next ones.
        """
        if self.kind == "cpu":
            return ["CPUExecutionProvider"]
        options = {"device_id": self.index} | ({"enable_cuda_graph": "1"} if captured else {})
        return [("CUDAExecutionProvider", options), "CPUExecutionProvider"]

    def put(self, array: np.ndarray) -> onnxruntime.OrtValue:
        """Return `array` as an OrtValue on the device; on a CPU it shares the memory of `array`."""
        return onnxruntime.OrtValue.ortvalue_from_numpy(array, self.kind, self.index)

    def write(self, value: onnxruntime.OrtValue, array: np.ndarray) -> None:
        """Overwrite what `value` holds, in place, wherever it lies."""
        value.update_inplace(array)


def find_device(name: str) -> Device:
    """Return the device called `name`.

    Parameters
    ----------
    name : str
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, or ``"auto"``: the first GPU that
        onnxruntime can use, else the CPU.

    Raises
    ------
    DeviceError
        The name is none of these, or onnxruntime cannot use that device.
    """
    present = onnxruntime.get_available_providers()
    if name == "auto":
        name = "cuda" if "CUDAExecutionProvider" in present else "cpu"
    found = _NAMES.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise DeviceError(f"Unknown device {name!r}. Known: 'cpu', 'cuda', 'cuda:1', ..., 'auto'.")
    device = Device(found["kind"], int(found["index"] or 0))
    if device.kind == "cuda" and "CUDAExecutionProvider" not in present:
        raise DeviceError(
            f"device={name!r} needs the CUDAExecutionProvider of onnxruntime; present: {', '.join(present)}. "
            f"Install a build with it: pip install onnxtrain[gpu] (after removing the other builds of onnxruntime)."
        )
    return device
