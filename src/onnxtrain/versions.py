"""Installed versions and their features, the text with which a problem report begins."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata

import onnx

from onnxtrain import __version__
from onnxtrain.arguments import lists_its_arguments
from onnxtrain.convert import newest_opset
from onnxtrain.errors import DependencyError, DeviceError
from onnxtrain.graph import IR_VERSION
from onnxtrain.opsets import OPSET, installed_runtimes
from onnxtrain.runtime import library
from onnxtrain.runtime.device import KINDS, find_device
from onnxtrain.training_build import require

_NEEDED = ("numpy", "scipy", "scikit-learn", "onnx", "onnx-ir", "onnxscript", "skl2onnx", "tqdm")
_OPTIONAL = (
    *("matplotlib", "pandas", "polars", "skops", "torch", "dask", "pyarrow", "zarr"),
    *("lightgbm", "xgboost", "catboost", "onnxmltools"),
)


@lists_its_arguments
def show_versions() -> None:
    """Print the installed versions, devices, gradient builders and opsets.

    ``python -m onnxtrain`` prints the same. If two distributions of onnxruntime, which overwrite each other's files,
    are installed, the output reports it, with the remedy.

    Examples
    --------
    >>> import onnxtrain
    >>> onnxtrain.show_versions()
    onnxtrain ...
    ...
    Devices
      cpu               usable...
    """
    for title, rows in (
        (f"onnxtrain {__version__}", _system()),
        ("Dependencies", _versions(_NEEDED, "not installed")),
        ("Optional", _versions(_OPTIONAL, "")),
        ("onnxruntime", _onnxruntime()),
        ("Devices", _devices()),
        ("Gradient builders", _builders()),
        ("Opsets", _opsets()),
    ):
        print(title, *(f"  {name:17} {value}" for name, value in rows), "", sep="\n")


def _system() -> Iterator[tuple[str, str]]:
    yield "Python", f"{platform.python_version()}, {sys.executable}"
    yield "system", f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} cores"


def _versions(distributions: tuple[str, ...], missing: str) -> Iterator[tuple[str, str]]:
    """Yield the version of each distribution; missing ones are omitted if `missing` is empty."""
    for name in distributions:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            if missing:
                yield name, missing


def _onnxruntime() -> Iterator[tuple[str, str]]:
    yield from library().items()
    found = installed_runtimes()
    yield "installed as", ", ".join(f"{name} {version}" for name, version in found.items()) or "no distribution"
    yield from (("WebGPU plug-in", version) for _, version in _versions(("onnxruntime-ep-webgpu",), ""))
    if len(found) > 1:
        remedy = f"pip uninstall -y {' '.join(found)}, then install one of them"
        yield "PROBLEM", f"{len(found)} distributions overwrite each other's files: {remedy}."


def _devices() -> Iterator[tuple[str, str]]:
    for name in sorted(KINDS):
        try:
            find_device(name)
            yield name, "usable"
        except DeviceError as e:
            yield name, f"not usable: {e}"


def _builders() -> Iterator[tuple[str, str]]:
    yield "builtin", "usable"
    try:
        require()
        yield "onnxruntime-training", "usable"
    except DependencyError as e:
        yield "onnxruntime-training", f"not usable: {' '.join(str(e).split())}"


def _opsets() -> Iterator[tuple[str, str]]:
    yield "trained at", f"opset {OPSET}, IR version {IR_VERSION}"
    yield "onnx", f"opsets up to {onnx.defs.onnx_opset_version()}, IR versions up to {onnx.IR_VERSION}"
    yield "skl2onnx", f"opsets up to {newest_opset()}"
