"""Runs a graph: devices, sessions, threads. It knows nothing of training."""

import re

import onnxruntime

from onnxtrain.errors import DependencyError

#: The oldest version that the tests run with, as pyproject.toml has it.
OLDEST = (1, 19)


def check_version(version: str) -> None:
    """Raise a DependencyError where onnxruntime is too old; pip does not look once it is installed."""
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST:
        raise DependencyError(
            f"onnxtrain needs onnxruntime {'.'.join(map(str, OLDEST))} or newer, found {version} in "
            f"{onnxruntime.__file__}. Install a newer one: pip install --upgrade onnxruntime.",
            name="onnxruntime",
        )


def library() -> dict[str, str]:
    """Return the version of onnxruntime and its file, and the execution providers of this build."""
    return {
        "module": f"{onnxruntime.__version__}, {onnxruntime.__file__}",
        "providers": ", ".join(onnxruntime.get_available_providers()),
    }


check_version(onnxruntime.__version__)
