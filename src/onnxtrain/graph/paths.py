"""The path of a model: the content of its file, and the refusal of a path that leads to none."""

from __future__ import annotations

import os
import re

from onnxtrain.errors import ModelError
from onnxtrain.graph.check import BESIDE, PROTO_LIMIT
from onnxtrain.graph.files import not_expanded
from onnxtrain.registry import did_you_mean

#: The largest number of characters of a path, on Linux.
_LONGEST_PATH = 4096


def bytes_of_file(path: str | os.PathLike[str]) -> bytes:
    """Return the content of the file of a model; raise a ModelError for another path."""
    if not os.path.isfile(path):
        if os.path.isdir(path):
            raise ModelError(f"{os.fspath(path)!r} is a folder.{_in_folder(os.fspath(path))}")
        shown = os.fspath(path)
        if len(shown) > _LONGEST_PATH:
            raise ModelError(
                f"A model given as a string must be the path of an ONNX file, got {len(shown)} characters, "
                f"{shown!r:.40}. Pass the content of a file as bytes: open(path, 'rb').read()."
            )
        raise ModelError(
            f"There is no file {shown!r}. A model given as a string must be the path of an ONNX file."
            f"{_not_a_path(path)}"
        )
    if os.path.basename(path) == "saved_model.pb":
        raise ModelError(
            f"{os.fspath(path)!r} is not an ONNX model.{_in_folder(os.path.dirname(os.path.abspath(path)))}"
        )
    if os.path.getsize(path) >= PROTO_LIMIT:
        raise ModelError(f"{os.fspath(path)!r} is larger than 2 GB, the limit of a protobuf message. {BESIDE}.")
    if not os.path.getsize(path):
        raise ModelError(f"{os.fspath(path)!r} is empty, 0 bytes. Write or download it again.")
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise ModelError(f"The file {os.fspath(path)!r} cannot be read: {e.strerror}.") from e


#: The characters that a backslash and a letter become in a string that is not raw, as in a path on Windows.
_ESCAPES = dict(zip("\a\b\f\n\r\t\v", (r"\a", r"\b", r"\f", r"\n", r"\r", r"\t", r"\v"), strict=True))


def _not_a_path(path: str | os.PathLike[str]) -> str:
    """Return advice about a string that is not a path, for the end of a message."""
    text = os.fspath(path)
    raw = "".join(_ESCAPES.get(c, c) for c in text)
    if raw != text and text.lower().endswith(".onnx"):
        return f" A backslash and a letter became one character. Pass r'{raw}', with an r before the quote."
    if remedy := not_expanded(path):
        return remedy
    if os.path.isfile(turned := text.replace("\\", "/")):
        return f" Did you mean {turned!r}?"
    if os.path.isfile(complete := f"{os.path.splitext(text)[0]}.onnx"):
        return f" Did you mean {complete!r}?"
    if "://" in text:
        return " Download it, and pass the path of the file."
    folder = os.path.dirname(text) or "."
    if text.lower().endswith(".onnx") or (os.sep in text and os.path.isdir(folder)):
        names = os.listdir(folder) if os.path.isdir(folder) else []
        beside = [os.path.join(os.path.dirname(text), name) for name in names if name.endswith(".onnx")]
        near = did_you_mean(text, beside).partition("Known")[0].rstrip()
        here = "" if os.path.isabs(text) else f" The current folder is {os.getcwd()!r}."
        return f" {near}" if near else here
    if re.fullmatch(r"[\w.-]+/[\w.-]+|[a-z]+[\d-][\w.-]*", text):  # neither a class of scikit-learn nor a file
        return (
            f" A model of a hub must be exported first: optimum-cli export onnx --model {text} folder. A network of "
            "torchvision or timm is exported by torch.onnx.export(model, ...)."
        )
    return "" if os.sep in text else " Pass an estimator as an object, such as Ridge()."


def _in_folder(folder: str) -> str:
    """Return advice about the folder of a model, for the end of a message."""
    files = sorted(os.listdir(folder))
    found = [os.path.join(folder, name) for name in files if name.endswith(".onnx")]
    if found:
        return f" Pass a file in it: {', '.join(map(repr, found[:5]))}."
    if "saved_model.pb" in files:
        return (
            " It holds a SavedModel of TensorFlow. Export it, python -m tf2onnx.convert --saved-model "
            f"{folder} --output model.onnx, and pass 'model.onnx'."
        )
    if "config.json" in files:
        return (
            f" It holds a model of transformers. Export it, optimum-cli export onnx --model {folder} exported, and "
            "pass 'exported/model.onnx'."
        )
    return " Pass the path of an ONNX file."
