"""The data file beside a saved estimator, for tensors that together would exceed the size of a protobuf message.

``line.onnx`` then refers to ``line.onnx.<checksum>.data``. New content has a new name, so the old pair of files stays
complete until ``line.onnx`` is replaced; only then is the old data file removed.
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxtrain import graph
from onnxtrain.errors import ExportError, ModelError

#: From this size in bytes tensors go to a data file: the limit of a protobuf message, minus room for the encoding.
LIMIT = graph.PROTO_LIMIT - 2**20

#: The number of characters of the checksum in the name of a file.
_LETTERS = 16


def is_too_large(model: onnx.ModelProto, header: Mapping[str, Any], tensors: Iterable[onnx.TensorProto]) -> bool:
    """Whether a model, a header and tensors together exceed the size of a protobuf message.

    Raises
    ------
    ExportError
        The model alone exceeds this size.
    """
    try:
        size = model.ByteSize()
    except Exception as e:  # the class depends on the implementation of protobuf
        raise ExportError(f"The model does not fit into one ONNX file: {e}") from e
    return size + len(json.dumps(header)) + sum(len(t.raw_data) for t in tensors) >= LIMIT


def checksum_of(tensors: Iterable[onnx.TensorProto]) -> str:
    """Return the checksum of the concatenated bytes of tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.raw_data)
    return digest.hexdigest()


def name_of(path: Path, checksum: str) -> str:
    """Return the name of the data file beside a path."""
    return f"{path.name}.{checksum[:_LETTERS]}.data"


def references(tensors: Sequence[onnx.TensorProto], location: str) -> list[onnx.TensorProto]:
    """Return tensors that refer to a data file with their concatenated bytes."""
    found, offset = [], 0
    for tensor in tensors:
        n = len(tensor.raw_data)
        reference = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        reference.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": location, "offset": str(offset), "length": str(n)}.items():
            reference.external_data.add(key=key, value=value)
        found.append(reference)
        offset += n
    return found


def belonging_to(path: Path, part: Path | None = None) -> set[Path]:
    """Return the data files to which an estimator's file, or a partial file of it, refers."""
    model = part or path
    pattern = re.compile(re.escape(path.name) + rf"\.[0-9a-f]{{{_LETTERS}}}\.data")
    found = {p for p in path.parent.glob(f"{glob.escape(path.name)}.*.data") if pattern.fullmatch(p.name)}
    if not found or not model.exists():  # parsing the file takes long
        return set()
    try:
        named = {place.get("location") for place in graph.layout_of(model).values()}
    except Exception:  # another kind of file, which is being replaced
        return set()
    return {p for p in found if p.name in named}


def remove(paths: Iterable[Path]) -> None:
    """Remove files; another process may already have removed them."""
    for path in paths:
        with suppress(OSError):
            path.unlink()


def take_in(proto: onnx.ModelProto, known: Mapping[str, Any] | None, path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a data file by name, and remove the references to them from `proto` in place.

    Parameters
    ----------
    proto : onnx.ModelProto
        The parsed model.
    known : mapping of str to str, or None
        The name and the checksum of the data file; None if there is none.
    path : path
        The file with the model, not a link.

    Raises
    ------
    ModelError
        The data file is missing, outside the folder, or has another content.
    """
    if known is None:
        return {}
    location, where = str(known["name"]), os.fspath(path)
    graph.check_location("the state of training", location, os.fspath(path.parent))
    beside = path.parent / location
    with open(beside, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != known["sha256"]:
            raise ModelError(
                f"{os.fspath(beside)!r} does not match its checksum in {where!r}: it was cut short, changed, or "
                "written with another file. Copy both files again."
            )
    info = proto.training_info[0].algorithm
    outside = [t for t in info.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    graph.assign(info.initializer, [t for t in info.initializer if t.data_location != onnx.TensorProto.EXTERNAL])
    return {t.name: _read(t, beside) for t in outside}


def _read(tensor: onnx.TensorProto, path: Path) -> np.ndarray:
    offset = int(next(e.value for e in tensor.external_data if e.key == "offset"))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).newbyteorder("<")
    rest = path.stat().st_size - math.prod(tensor.dims) * dtype.itemsize
    if min(tensor.dims, default=0) < 0 or not 0 <= offset <= rest:
        raise ModelError(f"The tensor {tensor.name!r} of shape {list(tensor.dims)} is not in {os.fspath(path)!r}.")
    return np.fromfile(path, dtype, math.prod(tensor.dims), offset=offset).reshape(tuple(tensor.dims))
