"""Running of graphs: devices, sessions, threads. The package is independent of training."""

import re

import onnxruntime

from onnxtrain.errors import DependencyError

#: The oldest supported version, as in pyproject.toml; the tests run with it.
OLDEST = (1, 19)


def check_version(version: str) -> None:
    """Raise a DependencyError if onnxruntime is too old; pip does not check an already installed version."""
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST:
        raise DependencyError(
            f"onnxtrain needs onnxruntime {'.'.join(map(str, OLDEST))} or newer, found {version} in "
            f"{onnxruntime.__file__}. Install a newer one: pip install --upgrade onnxruntime.",
            name="onnxruntime",
        )


def library() -> dict[str, str]:
    """Return the version and file of onnxruntime, and the execution providers of this build."""
    return {
        "module": f"{onnxruntime.__version__}, {onnxruntime.__file__}",
        "providers": ", ".join(onnxruntime.get_available_providers()),
    }


check_version(onnxruntime.__version__)
