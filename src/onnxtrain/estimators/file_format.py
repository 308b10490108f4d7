"""The file format of a trained estimator: an ONNX model that any runtime reads, with additional data.

The additional data are a JSON text in ``metadata_props`` and tensors in ``training_info``, where ONNX puts the state of
an optimizer. If the file would exceed the size of a protobuf message, these tensors are in a data file beside it:
``line.onnx`` refers to ``line.onnx.<checksum>.data``. New content has a new name, so the old pair of files stays
complete until ``line.onnx`` is replaced; only then is the old data file removed. :class:`Encoder` converts values to
JSON and tensors; reading them runs no code from the file. The last bytes of the file are a checksum of all others. The
checksum is encoded as a further entry of ``metadata_props``, because bytes appended to a protobuf message are merged
into the message.
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import onnx

from onnxtrain import graph
from onnxtrain.errors import ExportError, FileError, ModelError
from onnxtrain.estimators.lora import LoRA
from onnxtrain.optim import OPTIMIZERS, Optimizer
from onnxtrain.optim.schedules import SCHEDULES, Schedule

#: The version of the format.
FORMAT = 1

#: A partial file older than this many seconds is abandoned; writing the largest takes less than a minute.
_ABANDONED = 3600

_HEADER = "onnxtrain"
_CHECKSUM = "onnxtrain.sha256"

#: Types that JSON represents directly.
_PLAIN = (str, int, float, type(None))


def _trailer(content: bytes) -> bytes:
    proto = onnx.ModelProto()
    proto.metadata_props.add(key=_CHECKSUM, value=hashlib.sha256(content).hexdigest())
    return proto.SerializeToString()


def may_be_replaced(path: str | os.PathLike) -> bool:
    """Whether a path is free, or its file is empty or ends as those of :func:`write`; the checksum is not compared."""
    file = Path(path)
    if not file.is_file() or not file.stat().st_size:
        return True
    sample = _trailer(b"")
    with file.open("rb") as opened:
        opened.seek(-min(len(sample), file.stat().st_size), os.SEEK_END)
        return _CHECKSUM.encode() in opened.read()


def write(
    path: str | os.PathLike, model: onnx.ModelProto, header: Mapping[str, Any], tensors: Sequence[onnx.TensorProto]
) -> None:
    """Write a model, a header and tensors atomically; the tensors in a data file if a message cannot hold all.

    Raises
    ------
    ExportError
        The model exceeds the size of a protobuf message, 2 GiB.
    FileError
        The disk is full, or the folder is not writable.
    """
    from onnxtrain import __version__

    header = {"format": FORMAT, "written_by": __version__, **header}
    real = Path(os.path.realpath(path))
    try:
        remove_parts(real)
        former = data_files_of(real)
        if is_too_large(model, header, tensors):
            remove_files(former - {_write_two(real, model, header, tensors, former)})
        else:
            _write_one(real, _content(model, header, tensors))
            remove_files(former)
    except OSError as e:
        raise FileError(f"The file {os.fspath(path)!r} cannot be written: {e.strerror or e}.{_in_folder(path)}") from e


def _write_one(path: Path, content: bytes) -> None:
    """Replace a file by a model and its checksum."""
    with graph.replacement(path, lambda f: f.write(content + _trailer(content))):
        pass


def _write_two(
    path: Path,
    model: onnx.ModelProto,
    header: Mapping[str, Any],
    tensors: Sequence[onnx.TensorProto],
    former: Collection[Path],
) -> Path:
    """Write the data file, then replace the model's file; return the path of the data file.

    The partial file of the model is written before the data file and refers to it, so that :func:`remove_parts` finds
    the data file if the process is killed in between.
    """
    checksum = checksum_of(tensors)
    file = path.parent / name_of_data_file(path, checksum)
    header = {**header, "beside": {"name": file.name, "sha256": checksum}}
    content = _content(model, header, references(tensors, file.name))
    try:
        with (
            graph.replacement(path, lambda f: f.write(content + _trailer(content))),
            graph.replacement(file, lambda f: f.writelines(t.raw_data for t in tensors), like=path),
        ):
            pass
    except BaseException:
        remove_files({file} - {*former} - data_files_of(path))  # the new model may already be in place
        raise
    return file


#: The remedy for a file that is an ordinary ONNX model.
_NOT_OURS = " To train another ONNX model, use OrtGradientRegressor(path) or OrtGradientClassifier(path)."


def _content(model: onnx.ModelProto, header: Mapping[str, Any], tensors: Sequence[onnx.TensorProto]) -> bytes:
    proto = graph.copy_of(model)
    proto.metadata_props.add(key=_HEADER, value=json.dumps(header, allow_nan=False))
    proto.training_info.add().algorithm.initializer.extend(tensors)
    try:
        return bytes(proto.SerializeToString())
    except Exception as e:  # the class differs between implementations of protobuf
        raise ExportError(f"The model does not fit into one ONNX file: {e}") from e


def _is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a URL, from which a Path leaves one slash of two."""
    return re.match(r"[a-z]\w+:/", os.fsdecode(path)) is not None


def _in_folder(path: str | os.PathLike[str]) -> str:
    return " Write a local file, and upload it." if _is_url(path) else graph.in_folder(path)


def remove_parts(path: str | os.PathLike) -> None:
    """Remove the partial files of killed processes, but not those that other processes may be writing now."""
    path = Path(os.path.realpath(path))
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with suppress(OSError):  # the file is gone or belongs to another user
            if time.time() - part.stat().st_mtime > _ABANDONED:
                remove_files(data_files_of(path, part) - data_files_of(path))
                part.unlink()


def read(path: str | os.PathLike) -> tuple[onnx.ModelProto, dict[str, Any], dict[str, np.ndarray]]:
    """Return the model, the header and the tensors of a file.

    Raises
    ------
    ModelError
        The file does not exist, is incomplete, or was written by a newer version.
    """
    if graph.is_special(path):
        raise ModelError(f"The file {os.fspath(path)!r} cannot be read: it is a device, a pipe or a socket.")
    try:
        content = Path(path).read_bytes()
    except OSError as e:
        remedy = " Download it first, and pass the path of the file." if _is_url(path) else ""
        remedy = " Pass a file in it." if os.path.isdir(path) else remedy
        if not os.path.exists(path) and not remedy:
            near = f" Pass the path that was passed to onnxtrain.save; the current folder is {os.getcwd()!r}."
            remedy = graph.not_expanded(path) or near
        raise ModelError(f"The file {os.fspath(path)!r} cannot be read: {e.strerror}.{remedy}") from e
    size = len(_trailer(b""))
    whole, content, trailer = content, content[:-size], content[-size:]
    if trailer != _trailer(content):
        raise ModelError(
            f"{os.fspath(path)!r} was not written by onnxtrain.save, or it was cut short or changed afterwards: "
            f"its checksum is missing or wrong.{_NOT_OURS if graph.is_model(whole) else graph.not_a_model(whole)}"
        )
    proto = onnx.load_model_from_string(content)
    header = json.loads(next(p.value for p in proto.metadata_props if p.key == _HEADER))
    outside = take_in_data_file(proto, header.get("beside"), Path(os.path.realpath(path)))
    proto = graph.read(proto)
    if header["format"] > FORMAT:
        raise ModelError(
            f"{os.fspath(path)!r} was written by onnxtrain {header['written_by']} in format {header['format']}, "
            f"but this version reads formats up to {FORMAT}. Install a newer version."
        )
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in proto.training_info[0].algorithm.initializer}
    return _without_state(proto), header, tensors | outside


def _without_state(proto: onnx.ModelProto) -> onnx.ModelProto:
    others = [p for p in proto.metadata_props if p.key != _HEADER]
    kept = graph.copy_of(proto)
    del kept.training_info[:]
    graph.assign(kept.metadata_props, others)
    return kept


def _digest(function: Any) -> str:
    """Return a digest of a function's code, by which a changed one is noticed; "" for other callables."""
    codes, parts = [getattr(function, "__code__", None)], []
    while codes:
        code = codes.pop()
        if isinstance(code, CodeType):
            codes.extend(code.co_consts)  # functions inside
            parts += [code.co_code.hex(), repr(code.co_names)]
        elif code is not None:
            parts.append(repr(code))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest() if parts else ""


class Encoder:
    """Encodes values as JSON; numeric arrays are collected as tensors.

    Values of JSON types are unchanged; every other value becomes a mapping with one entry, ``{kind: content}``.

    Parameters
    ----------
    functions : bool
        Whether functions are written by name and digest, if the user will pass them again; otherwise they are refused.

    Attributes
    ----------
    tensors : list of onnx.TensorProto
    """

    def __init__(self, *, functions: bool = False):
        self.functions = functions
        self.tensors: list[onnx.TensorProto] = []

    def encode(self, value: Any, what: str) -> Any:
        """Return `value` as JSON.

        Raises
        ------
        ExportError
            The file format cannot store a value of this type; `what` names the value in the message.
        """
        if isinstance(value, np.generic):
            return str(value) if isinstance(value, np.str_) else {"scalar": self.add_tensor(np.asarray(value), what)}
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if type(value) in (*_PLAIN, bool):
            return value
        for kinds, name, pack in self._kinds():
            if isinstance(value, kinds):
                return {name: pack(value, what)}
        if callable(value) and self.functions:
            return {"function": [getattr(value, "__qualname__", type(value).__qualname__), _digest(value)]}
        remedy = " Register a loss with @onnxtrain.loss(name), and pass its name." if callable(value) else ""
        raise ExportError(f"A file cannot store {what}, of type {type(value).__name__}: {str(value)[:80]}.{remedy}")

    def _kinds(self) -> list[tuple[Any, str, Callable[[Any, str], Any]]]:
        return [
            (np.ndarray, "array", self._array),
            (np.dtype, "dtype", lambda v, _: v.str),
            (np.random.RandomState, "random_state", self._random_state),
            (Optimizer, "optimizer", lambda v, what: self._registered(v, OPTIMIZERS, what)),
            (LoRA, "lora", lambda v, what: self.encode(v.get_params(deep=False), what)),
            (Schedule, "schedule", lambda v, what: self._registered(v, SCHEDULES, what)),
            (tuple, "tuple", self._items),
            (list, "list", self._items),
            (Mapping, "dict", lambda v, what: [self._items(pair, what) for pair in v.items()]),
        ]

    def _items(self, values: Any, what: str) -> list[Any]:
        return [self.encode(v, what) for v in values]

    def _array(self, value: np.ndarray, what: str) -> Any:
        if value.dtype.kind in "OU":
            return [value.dtype.kind, list(value.shape), self._items(value.ravel().tolist(), what)]
        return self.add_tensor(value, what)

    def add_tensor(self, value: np.ndarray, what: str) -> int:
        """Add a tensor and return its index."""
        if value.dtype.kind not in "biufc":
            raise ExportError(f"A file cannot store {what}, an array of dtype {value.dtype}.")
        number = len(self.tensors)
        native = np.array(value, value.dtype.newbyteorder("="), order="C")
        self.tensors.append(onnx.numpy_helper.from_array(native, str(number)))
        return number

    def _random_state(self, value: np.random.RandomState, what: str) -> Any:
        state = value.get_state(legacy=False)
        if state["bit_generator"] != "MT19937":
            raise ExportError(f"A file cannot store {what} of {state['bit_generator']}. Use MT19937, or an int.")
        return self.encode(state, what)

    def _registered(self, value: Any, registry: Mapping[str, type], what: str) -> list[Any]:
        name = next((name for name, entry in registry.items() if entry is type(value)), None)
        if name is None:
            if self.functions:
                return [type(value).__qualname__, None]
            raise ExportError(
                f"A file cannot store {what}, {value!r}: {type(value).__name__} is not registered under a name."
            )
        return [name, {f.name: self.encode(getattr(value, f.name), what) for f in fields(value)}]


class Decoder:
    """Decodes the values that :class:`Encoder` encoded.

    Parameters
    ----------
    tensors : mapping of str to ndarray
    """

    def __init__(self, tensors: Mapping[str, np.ndarray]):
        self.tensors = tensors

    def decode(self, value: Any) -> Any:
        """Return the value that was passed to :meth:`Encoder.encode`.

        Raises
        ------
        ModelError
            The value is a function, or of a kind that is unknown to this version.
        """
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind not in _DECODERS:
            raise ModelError(f"The file contains a value of the kind {kind!r}, unknown to this version of onnxtrain.")
        return _DECODERS[kind](self, content)

    def tensor(self, number: int) -> np.ndarray:
        """Return a writable copy of a tensor by its index."""
        return np.array(self.tensors[str(number)])

    def _items(self, content: list[Any]) -> list[Any]:
        return [self.decode(v) for v in content]

    def _array(self, content: Any) -> np.ndarray:
        if isinstance(content, int):
            return self.tensor(content)
        kind, shape, values = content
        array = np.empty(len(values), dtype=object)
        array[:] = self._items(values)
        if wrong := [x for x in array.flat if not isinstance(x, Hashable)]:  # names and labels are looked up
            raise ModelError(f"An array in the file contains a {type(wrong[0]).__name__}, {wrong[0]!r:.50}.")
        return (array if kind == "O" else array.astype(np.str_)).reshape(shape)

    def _random_state(self, content: Any) -> np.random.RandomState:
        random_state = np.random.RandomState(0)
        random_state.set_state(self.decode(content))
        return random_state

    def _registered(self, content: list[Any], registry: Mapping[str, type]) -> Any:
        name, values = content
        if name not in registry or values is None:
            raise ModelError(f"The file names {name!r}, which is not registered. Import what registers it first.")
        return registry[name](**{key: self.decode(v) for key, v in values.items()})


def _no_function(decoder: Decoder, content: list[str]) -> Any:
    raise ModelError(f"The file names the function {content[0]!r} without its code. Continue by fit(..., resume=True).")


_DECODERS: dict[str, Callable[[Decoder, Any], Any]] = {
    "scalar": lambda d, content: d.tensor(content)[()],
    "float": lambda d, content: float(content),
    "array": Decoder._array,
    "dtype": lambda d, content: np.dtype(content),
    "random_state": Decoder._random_state,
    "optimizer": lambda d, content: d._registered(content, OPTIMIZERS),
    "schedule": lambda d, content: d._registered(content, SCHEDULES),
    "lora": lambda d, content: LoRA(**d.decode(content)),
    "tuple": lambda d, content: tuple(d._items(content)),
    "list": lambda d, content: d._items(content),
    "dict": lambda d, content: dict(d._items(pair) for pair in content),
    "function": _no_function,
}


# -------------------------------------------------------------- more than 2 GB


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


def name_of_data_file(path: Path, checksum: str) -> str:
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


def data_files_of(path: Path, part: Path | None = None) -> set[Path]:
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


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files; another process may already have removed them."""
    for path in paths:
        with suppress(OSError):
            path.unlink()


def take_in_data_file(proto: onnx.ModelProto, known: Mapping[str, Any] | None, path: Path) -> dict[str, np.ndarray]:
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
