"""Files of models: atomic writing, and weights in external data files, written at the same places again."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import onnx
import onnx.numpy_helper

from onnxtrain.errors import FileError
from onnxtrain.graph.check import refuse_outside
from onnxtrain.graph.query import copy_of, messages_in


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a device, a pipe or a socket, which may never end when read and must not be replaced."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


@contextmanager
def replacement(path: Path, write: Callable[[BinaryIO], Any], like: Path | None = None) -> Iterator[None]:
    """Write a partial file, which finally replaces the file; it gets the permissions of the old file, or of `like`.

    Raises
    ------
    OSError
        The folder is not writable, the disk is full, or the path is a device, a pipe or a socket, so that a user who
        may write to `/dev` does not replace `/dev/null`.
    """
    if is_special(path):
        raise OSError(errno.EEXIST, "It is a device, a pipe or a socket, which the file would replace", str(path))
    part, like = path.parent / f".{path.name}.{uuid.uuid4().hex}.part", like or path
    try:
        with open(part, "xb") as file:
            if like.exists():
                shutil.copymode(like, part)
            write(file)
            file.flush()
            os.fsync(file.fileno())
        yield
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    if os.name == "posix":  # also sync the directory entry
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# --------------------------------------------------------------- external data


#: The location, offset and length of each external tensor, by name, as the model states them.
Layout: TypeAlias = "Mapping[str, Mapping[str, str]]"

#: The entries that locate external data; further entries describe the former file.
_PLACE = ("location", "offset", "length")

#: onnx recommends offsets at which a page of memory begins.
_PAGE = 4096

#: The number of bytes of a file that are searched at a time.
_PIECE = 2**20


def layout_of(path: str | os.PathLike[str]) -> dict[str, dict[str, str]]:
    """Return the tensors of a model's file that are stored in external files, and their places."""
    if not _names_a_place(path):
        return {}
    proto = onnx.load_model(path, load_external_data=False)
    tensors = (m for m in messages_in(proto) if isinstance(m, onnx.TensorProto) and m.name)
    outside = (t for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL)
    return {t.name: {e.key: e.value for e in t.external_data if e.key in _PLACE} for t in outside}


def _names_a_place(path: str | os.PathLike[str]) -> bool:
    """Whether a file may refer to external files; parsing 500 MB with the weights inside takes twice the memory."""
    before = b""
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            if b"location" in before + piece:
                return True
            before = piece[-len(b"location") :]
    return False


def write_model(onx: onnx.ModelProto, path: str | os.PathLike[str], layout: Layout) -> None:
    """Write a model to a file, and the tensors of a layout to external files beside it.

    An existing external file of another model is kept; the new file's name is then prefixed with the name of the model.
    Tensors whose bytes are in the model's file itself stay in the model.

    Raises
    ------
    FileError
        A file cannot be written.
    ModelError
        A file of the layout is outside the folder.
    """
    given, path = path, Path(os.path.realpath(path))  # keeps a symbolic link
    for name, place in layout.items():
        refuse_outside(name, place["location"], os.fspath(path.parent))
    written = copy_of(onx)
    try:
        own = _files_of(path)
        content: dict[str, list[_Part]] = {}
        for tensor in messages_in(written):
            stated = layout.get(tensor.name) if isinstance(tensor, onnx.TensorProto) else None
            if stated is not None and os.path.realpath(path.parent / stated["location"]) != str(path):
                part = _move_out(tensor, stated, path, own)
                content.setdefault(part.place["location"], []).append(part)
        for location, parts in content.items():
            (path.parent / location).parent.mkdir(parents=True, exist_ok=True)
            _replace(path.parent / location, _placed(parts))
        _replace(path, [(0, written.SerializeToString())])
    except OSError as e:
        raise FileError(f"The file {os.fspath(given)!r} cannot be written: {e.strerror or e}.{in_folder(given)}") from e


def in_folder(path: str | os.PathLike[str]) -> str:
    """Return the remedy if the path of a file is that of a folder, or its folder is missing or a file; else nothing."""
    folder = os.path.dirname(os.fspath(path))
    if not os.path.exists(folder) and (remedy := not_expanded(path)):
        return remedy
    if os.path.isfile(folder):
        return f" {folder!r} is a file. Pass a file in a folder."
    if folder and not os.path.isdir(folder):
        return f" Create the folder first: os.makedirs({folder!r})."
    return f" Pass a file in it: {os.path.join(os.fspath(path), 'model.onnx')!r}." if os.path.isdir(path) else ""


def not_expanded(path: str | os.PathLike[str]) -> str:
    """Return the remedy for a path that begins with ``~``, which only a shell expands; else nothing."""
    text = os.fsdecode(path)
    return f" ~ is not expanded. Use os.path.expanduser({text!r})." if text.startswith("~") else ""


def _files_of(path: Path) -> set[str]:
    """Return the external files of the model that will be replaced; none if the file is not a model."""
    if not path.is_file():  # nothing, or a pipe, which would wait for its other end
        return set()
    try:
        return {place["location"] for place in layout_of(path).values() if "location" in place}
    except Exception:  # protobuf's DecodeError, which moved between versions
        return set()


@dataclass
class _Part:
    """The bytes of a tensor in an external file, and where the tensor says that they are."""

    tensor: onnx.TensorProto
    place: dict[str, str]
    offset: int
    data: bytes

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.offset + len(self.data)

    def differs(self, other: _Part) -> bool:
        """Whether a byte of the file would have two values."""
        first, end = max(self.offset, other.offset), min(self.end, other.end)
        return first < end and (
            self.data[first - self.offset : end - self.offset] != other.data[first - other.offset : end - other.offset]
        )


def _move_out(tensor: onnx.TensorProto, place: Mapping[str, str], path: Path, own: set[str]) -> _Part:
    """Take the bytes of a tensor, in place, and return them with their place in an external file."""
    location = place["location"]
    if (path.parent / location).exists() and location not in own:
        location = os.path.join(os.path.dirname(location), f"{path.stem}.{os.path.basename(location)}")
    data = tensor.raw_data
    if not tensor.HasField("raw_data"):
        data = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor)).raw_data
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
        tensor.ClearField(field)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    return _Part(tensor, {**place, "location": location}, int(place.get("offset", 0)), data)


def _placed(parts: list[_Part]) -> list[tuple[int, bytes]]:
    """Write the places of the parts of a file to their tensors, and return the content of the file.

    Tensors that shared bytes may differ after training; the later ones are then moved to the end of the file.
    """
    end, overlapping, moved = 0, list[_Part](), []
    for part in sorted(parts, key=lambda part: part.offset):
        overlapping = overlapping if part.offset < end else []
        if any(part.differs(other) for other in overlapping):
            moved.append(part)
        else:
            overlapping.append(part)
            end = max(end, part.end)
    for part in moved:
        part.offset = -(-end // _PAGE) * _PAGE
        part.place["offset"] = str(part.offset)
        end = part.end
    for part in parts:
        for key, value in part.place.items():
            part.tensor.external_data.add(key=key, value=value)
    return [(part.offset, part.data) for part in parts]


def _replace(path: Path, parts: list[tuple[int, bytes]]) -> None:
    """Replace a file atomically."""

    def write(file: BinaryIO) -> None:
        for offset, data in parts:
            file.seek(offset)
            file.write(data)

    with replacement(path, write):
        pass
