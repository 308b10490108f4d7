"""Operators of the training build without a CPU kernel, in float64 or for any type."""

from __future__ import annotations

import onnx

from onnxtrain.errors import GradientError


def check_kernels(onx: onnx.ModelProto) -> None:
    """Raise if a graph holds an operator that this onnxruntime has no kernel for.

    The training build for CUDA is not checked: it may have kernels that need a GPU.
    """
    import onnxruntime  # after require(): it is there

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(onx.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as e:  # onnxruntime's exceptions have no common base but Exception
        raise GradientError(
            f'onnxruntime-training derived a graph that it cannot run: {str(e).splitlines()[0]}. Use builder="builtin".'
        ) from e
