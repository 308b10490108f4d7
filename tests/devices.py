"""The devices of tests: whether there is a GPU, and a substitute for one."""

from __future__ import annotations

import glob

import onnxruntime

from onnxtrain.runtime.device import Device

#: Whether onnxruntime was built for GPUs and the machine has one, by signs that onnxtrain does not look at.
HAS_GPU = "CUDAExecutionProvider" in onnxruntime.get_available_providers() and bool(glob.glob("/dev/nvidia[0-9]*"))


class Pretended(Device):
    """A GPU, with its capabilities, that is the CPU."""

    def providers(self, *, captured=False):
        """Return the execution providers of a CPU."""
        return ["CPUExecutionProvider"]

    def put(self, array):
        """Return the array as an OrtValue that shares its memory."""
        return Device("cpu").put(array)

    def buffer(self, array):
        """Return the array as a buffer that shares its memory."""
        return Device("cpu").buffer(array)


#: The steps of GPUs, run on the CPU.
GPU, WEBGPU = Pretended("cuda"), Pretended("webgpu")
