"""The code that exports a model of another library to ONNX, for error messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse

from onnxtrain.estimators.frames import comes_by_name
from onnxtrain.estimators.protocols import Inputs, is_frame


def how_to_export(model: object, X: Any) -> str:
    """Return the code that exports a model of another library for rows like `X`; empty for an unknown library.

    Each line can be run as it is if the variables `model` and `X` exist.
    """
    packages = [kind.__module__.partition(".")[0] for kind in type(model).__mro__]
    lines = next((LINES[package] for package in packages if package in LINES), None)
    if lines is None:
        return ""
    if lines is _of_transformers and not hasattr(model, "forward") and not hasattr(model, "model"):
        return (
            " It has no weights. Pass the file of an exported model; a tokenizer makes the rows, "
            "X = tokenizer(texts, padding=True)."
        )
    shown = "".join(f"\n    {line}" for line in lines(model, X))
    return f' Export it, and pass the file:{shown}\n    estimator = "model.onnx"'


#: The attribute with the module inside a module of torch.compile, or of several GPUs, which cannot be exported.
_WRAPPED = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}


def _of_torch(model: Any, X: Any) -> list[str]:
    if type(model).__name__ == "ExportedProgram":
        return ['torch.onnx.export(model, f="model.onnx", dynamo=True, optimize=False)']
    for kind, attribute in _WRAPPED.items():
        if kind in [base.__name__ for base in type(model).__mro__]:
            return [f"model = model.{attribute}", *_of_torch(getattr(model, attribute), X)]
    dtype = next((str(w.dtype) for w in getattr(model, "parameters", tuple)()), "torch.float32")
    taken = _arguments(model)
    names = [name for name in _names(X, taken) if name in taken] or _names(X, taken)
    found = {name: _tensor(f"X[{name!r}]", X[name], dtype) for name in names}
    has_tokens = "input_ids" in names
    shapes = {name: '{0: "n", 1: "t"}' if has_tokens or _is_ragged(X[name]) else '{0: "n"}' for name in names}
    if not names:
        args, how = f"({_tensor('X', X, dtype)},)", 'dynamic_shapes=[{0: "n"}]'
    elif set(names) <= taken:
        args, how = "()", f"kwargs={_dictionary(found)}, dynamic_shapes={_dictionary(shapes)}"
    else:
        args = f"({', '.join(found.values())},)"
        how = f"input_names={names!r}, dynamic_shapes=[{', '.join(shapes.values())}]"
    if any(kind.__name__ == "ScriptModule" for kind in type(model).__mro__):  # refused with dynamo=True
        names = names or ["X"]
        axes = _dictionary({name: shapes.get(name, '{0: "n"}') for name in names})
        how = f"input_names={names!r}, dynamic_axes={axes}"
        return [f'torch.onnx.export(model.eval(), {args}, "model.onnx", dynamo=False, {how})']
    return [f'torch.onnx.export(model.eval(), {args}, "model.onnx", dynamo=True, optimize=False, {how})']


def _of_transformers(model: Any, X: Any) -> list[str]:
    """Return the lines for a model, or for the model in a pipeline, whose tokenizer makes the rows."""
    lines = []
    if not hasattr(model, "forward"):
        model, lines = model.model, ["model, tokenizer = model.model, model.tokenizer"]
    if isinstance(X, (list, tuple, np.ndarray)) and len(X) and isinstance(X[0], str):
        lines.append('X = tokenizer(list(X), padding=True, return_tensors="np")')
        X = dict.fromkeys(["input_ids", "attention_mask"], np.ones((2, 2), np.int64))
    return [*lines, *_of_torch(model, X)]


def _of_keras(model: Any, X: Any) -> list[str]:
    export = 'model.export("model.onnx", format="onnx")'  # for a model that has been called
    own, given = [tensor.name for tensor in getattr(model, "inputs", None) or ()], _names(X, set())
    if not own:  # the first call builds the model
        rows = {name: _keras_tensor(f"X[{name!r}]", X[name]) for name in given}
        return [f"model({_dictionary(rows) if rows else _keras_tensor('X', X)}); {export}"]
    export = f"model(model.inputs); {export}"
    if len(own) != len(given) or set(own) <= set(given):
        return [export]
    pairs = {name: f"X[{other!r}]" for name, other in zip(own, given, strict=True)}
    return [export, f"X = {_dictionary(pairs)}  # the file has the names of model.inputs, in this order"]


def _keras_tensor(code: str, values: Any) -> str:
    return f"keras.ops.convert_to_tensor({_array(code, values)})"


def _booster(library: str) -> Callable[[Any, Any], list[str]]:
    types = "onnxmltools.convert.common.data_types.FloatTensorType([None, X.shape[1]])"
    line = f'onnx.save(onnxmltools.convert_{library}(model, initial_types=[("X", {types})]), "model.onnx")'
    return lambda model, X: [line]


#: The lines by the package of the model's class; the first match is used.
LINES: dict[str, Callable[[Any, Any], list[str]]] = {
    "keras": _of_keras,
    "torch": _of_torch,
    "transformers": _of_transformers,
    "lightgbm": _booster("lightgbm"),
    "xgboost": _booster("xgboost"),
}


def _arguments(model: Any) -> set[str]:
    """Return the argument names of a module's ``forward``."""
    try:
        return set(inspect.signature(model.forward).parameters)
    except (AttributeError, TypeError, ValueError):  # unknown for a compiled module
        return set()


def _names(X: Any, taken: set[str]) -> list[str]:
    """Return the names of the values that X gives separately; empty for a single array."""
    if isinstance(X, (Mapping, Inputs)) and not scipy.sparse.issparse(X):
        return list(map(str, X.keys()))
    if X is None or not hasattr(X, "columns"):
        return []
    names = [str(name) for name in X.columns]
    return names if comes_by_name(X) or not taken.isdisjoint(names) else []


def _dictionary(items: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {value}" for name, value in items.items()) + "}"


def _array(code: str, values: Any) -> str:
    """Return code for some rows as an array; ragged rows are replaced by two copies of the first row."""
    if _is_ragged(values):
        return f"list({code}[:1]) * 2"
    if scipy.sparse.issparse(values):
        return f"{code}[:2].toarray()"
    if not hasattr(values, "to_numpy"):
        return f"{code}[:2]"
    return f"{code}[:2].to_numpy()" if _sample(values).dtype != object else f"{code}[:2].to_list()"


def _tensor(code: str, values: Any, dtype: str) -> str:
    """Return code that gives some rows as a tensor; floating-point rows get the type of the weights."""
    tensor = f"torch.as_tensor({_array(code, values)})"
    found = str(values.dtype) if hasattr(values, "detach") else f"torch.{_sample(values).dtype}"
    return f"{tensor}.to({dtype})" if "float" in found and found != dtype else tensor


def _sample(values: Any) -> np.ndarray:
    """Return one row as an array; a float without rows."""
    if values is None:
        return np.zeros((1, 1))
    rows = values[:1]
    return np.asarray(rows.toarray() if scipy.sparse.issparse(rows) else rows)


def _is_ragged(values: Any) -> bool:
    """Whether rows are lists of different lengths."""
    if values is None or hasattr(values, "detach") or is_frame(values) or scipy.sparse.issparse(values):
        return False
    if getattr(values, "dtype", None) not in (None, object):
        return False
    return len({np.shape(row) for row in values}) > 1
