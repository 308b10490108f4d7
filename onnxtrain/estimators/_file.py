"""The file of a kept estimator: an ONNX model that any runtime reads, with all the rest beside it.

The rest is a JSON text in ``metadata_props`` and tensors in ``training_info``, where ONNX
puts the state of an optimizer. The last bytes are a checksum of all others, itself an
entry of ``metadata_props``: bytes appended to a protobuf message are merged into it.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxtrain.errors import ExportError, ModelError

#: The version of what is written.
FORMAT = 1

_HEADER = "onnxtrain"
_CHECKSUM = "onnxtrain.sha256"


def _trailer(content: bytes) -> bytes:
    proto = onnx.ModelProto()
    proto.metadata_props.add(key=_CHECKSUM, value=hashlib.sha256(content).hexdigest())
    return proto.SerializeToString()


def write(
    path: str | os.PathLike, model: onnx.ModelProto, header: Mapping[str, Any], tensors: Sequence[onnx.TensorProto]
) -> None:
    """Write a model, a header and tensors; the file is there whole or not at all, whatever happens.

    Raises
    ------
    ExportError
        The whole is larger than a protobuf message may be, 2 GiB.
    """
    from onnxtrain import __version__

    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    text = json.dumps({"format": FORMAT, "written_by": __version__, **header}, allow_nan=False)
    proto.metadata_props.add(key=_HEADER, value=text)
    proto.training_info.add().algorithm.initializer.extend(tensors)
    try:
        content = proto.SerializeToString()
    except Exception as e:  # the class differs between implementations of protobuf
        raise ExportError(f"The model does not fit into one ONNX file: {e}") from e
    _replace(Path(path), content + _trailer(content))


def _replace(path: Path, content: bytes) -> None:
    part = path.parent / f".{path.name}.{uuid.uuid4().hex}.part"
    try:
        with open(part, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(FileNotFoundError):
            part.unlink()
        raise
    if os.name == "posix":  # that the name stands for the new file is written too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_parts(path: str | os.PathLike) -> None:
    """Remove what a process that was killed while it wrote has left behind."""
    path = Path(path)
    for part in path.parent.glob(f".{path.name}.*.part"):
        part.unlink(missing_ok=True)


def read(path: str | os.PathLike) -> tuple[onnx.ModelProto, dict[str, Any], dict[str, np.ndarray]]:
    """Return the model, the header and the tensors of a file.

    Raises
    ------
    ModelError
        There is no such file, it is not whole, or a newer version wrote it.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as e:
        raise ModelError(f"The file {os.fspath(path)!r} cannot be read: {e.strerror}.") from e
    size = len(_trailer(b""))
    content, trailer = content[:-size], content[-size:]
    if trailer != _trailer(content):
        raise ModelError(
            f"{os.fspath(path)!r} was not written by onnxtrain.save, or it was cut short or changed afterwards: "
            "its checksum is missing or wrong."
        )
    proto = onnx.load_model_from_string(content)
    header = json.loads(next(p.value for p in proto.metadata_props if p.key == _HEADER))
    if header["format"] > FORMAT:
        raise ModelError(
            f"{os.fspath(path)!r} was written by onnxtrain {header['written_by']}, in format {header['format']}; "
            f"this version reads up to {FORMAT}: install a newer one."
        )
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in proto.training_info[0].algorithm.initializer}
    return _without_state(proto), header, tensors


def _without_state(proto: onnx.ModelProto) -> onnx.ModelProto:
    others = [p for p in proto.metadata_props if p.key != _HEADER]
    kept = onnx.ModelProto()
    kept.CopyFrom(proto)
    del kept.training_info[:]
    del kept.metadata_props[:]
    kept.metadata_props.extend(others)
    return kept
