"""The one home of onnxruntime's sessions: options, threads, runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime

from onnxtrain.errors import DataError, ModelError
from onnxtrain.training.device import Device, find_device


def open_session(
    onx: onnx.ModelProto | bytes, device: Device | str = "cpu", n_threads: int | None = None
) -> onnxruntime.InferenceSession:
    """Return a session of onnxruntime on a model.

    Parameters
    ----------
    onx : onnx.ModelProto or bytes
    device : Device or str
    n_threads : int, optional
        Threads of one operator; None leaves it to onnxruntime, one per core.

    Raises
    ------
    ModelError
        onnxruntime refuses the model: an operator without kernel, an opset too new.
    """
    device = device if isinstance(device, Device) else find_device(device)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = n_threads or 0
    content = onx if isinstance(onx, bytes) else onx.SerializeToString()
    try:
        return onnxruntime.InferenceSession(content, options, providers=device.providers)
    except Exception as e:  # onnxruntime's exceptions have no common base but Exception
        raise ModelError(f"onnxruntime {onnxruntime.__version__} cannot load the model: {e}") from e


def run(
    onx: onnx.ModelProto | bytes,
    feeds: Mapping[str, np.ndarray],
    *,
    device: Device | str = "cpu",
    n_threads: int | None = None,
    outputs: Sequence[str] | None = None,
) -> list[np.ndarray]:
    """Run a model once and return its outputs, or those named in `outputs`."""
    session = open_session(onx, device, n_threads)
    try:
        return session.run(list(outputs) if outputs is not None else None, dict(feeds))
    except Exception as e:  # see open_session
        raise DataError(f"onnxruntime cannot run the model: {e}") from e
