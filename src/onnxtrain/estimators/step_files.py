"""The training step of an estimator as files, for machines without onnxtrain, and reading the resulting state."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx

import onnxtrain
from onnxtrain.errors import DataError, ExportError, FileError, ParameterError
from onnxtrain.estimators.settings import go_on, settings_of
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.grad_helper import random_feed
from onnxtrain.optim import Optimizer
from onnxtrain.registry import did_you_mean
from onnxtrain.training.data import TrainingData
from onnxtrain.training.frozen import split_at_weights
from onnxtrain.training.portable import (
    TARGETS,
    PortableStep,
    check_runs_on,
    frozen_part,
    portable_step,
    predictor,
    state_model,
)
from onnxtrain.training.state import TrainingState

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator

#: The number of random rows with which values of one entry per row are detected.
_SOME_ROWS = 8

#: The most bytes of the names and headers in a state.npz.
_HEADERS = 2**20

#: Parameters that the host implements, not the graph.
_FOR_THE_HOST = (
    "learning_rate",
    "batch_size",
    "shuffle",
    "max_iter",
    "tol",
    "n_iter_no_change",
    "early_stopping",
    "validation_fraction",
    "average",
    "class_weight",
    "ignore_index",  # fed as no_label; the weight of a row is the number of its other labels
)


class Made(NamedTuple):
    """A step, the cut model that it trains, and its initial state."""

    model: TrainedModel
    state: TrainingState
    optimizer: Optimizer
    step: PortableStep


def write(folder: str | os.PathLike, estimator: OrtGradientEstimator, target: str) -> None:
    """Write the training step of a fitted estimator; see the estimator's method."""
    if target not in TARGETS:
        hint = did_you_mean(str(target), TARGETS)
        if str(target).lower() in ("browser", "js", "node", "wasm", "web"):
            hint = "In a browser and in Node, a step for 'cpu' runs as WebAssembly, and one for 'webgpu' on the GPU."
        raise ParameterError(f"target must be 'cpu' or 'webgpu', got {target!r}. {hint}")
    if os.fspath(folder).endswith(".onnx"):
        raise ParameterError(
            f"folder must be the path of a folder for several files, got {os.fspath(folder)!r}. For the model alone, "
            "use get_trained_onnx(path=...)."
        )
    made = _make(estimator, target)
    model, front = made.model, made.model.front
    files = {
        "step": made.step.onnx,
        "init": state_model(made.step.arrays(made.state, made.optimizer)).SerializeToString(),
        "predict": predictor(model.objective, model.source.model.outputs, made.step, model.constants),
    }
    if front is not None:
        files["before"] = frozen_part(front.front.onnx, {name: model.constants[name] for name in front.front.constants})
    for name, content in files.items():
        check_runs_on(target, content, f"{name}.onnx")
    text = json.dumps(_description(estimator, made, target, files), indent=1)
    _write(Path(folder), {f"{name}.onnx": content for name, content in files.items()} | {"step.json": text.encode()})


def read(
    source: str | os.PathLike | Mapping[str, Any], estimator: OrtGradientEstimator
) -> tuple[TrainedModel, TrainingState]:
    """Return the model of an estimator and a state reached elsewhere, from a file, a folder or arrays."""
    candidates = [_make(estimator, target) for target in TARGETS]
    n_bytes = max(sum(a.nbytes for a in made.step.arrays(made.state, made.optimizer).values()) for made in candidates)
    arrays = source if isinstance(source, Mapping) else _arrays_in(Path(source), 2 * n_bytes + _HEADERS)
    made = next((made for made in candidates if made.step.state.keys() == arrays.keys()), candidates[0])
    state = made.step.after(made.state, arrays, made.optimizer)
    if not isinstance(source, Mapping):
        _check_description(Path(source), estimator, made)
    return made.model, state


def _check_description(source: Path, estimator: OrtGradientEstimator, made: Made) -> None:
    """Raise a DataError if a step.json beside the state describes another model; packed weights have no names."""
    path = (source if source.is_dir() else source.parent) / "step.json"
    if not path.is_file():
        return
    try:
        about = json.loads(path.read_text())
        there = _in_words(about["state"], about["classes"])
    except (OSError, ValueError, LookupError, TypeError) as e:
        raise DataError(f"{str(path)!r} is not a valid step description ({e!r}). Export the step again.") from e
    state = _state(made)
    if [value["name"] for value in state] != [value["name"] for value in about["state"]]:
        return  # a step for another device packs its state differently; its names have been compared
    here = _in_words(state, _classes(estimator))
    if there != here:
        raise DataError(
            f"The state belongs to another model. This estimator has {here}, but {str(path)!r} next to the state lists "
            f"{there}. Export the step of this estimator, or load the state into one fitted like the exported one."
        )


def _in_words(state: Sequence[Mapping[str, Any]], classes: Sequence[Any] | None) -> str:
    """Describe the weights and classes of step.json for a message; slots have the layout of the weights."""
    weights = (part for value in state for part in value["parts"] if "slot" not in part)
    named = (part["weight"] + (f" {tuple(part['shape'])}" if "shape" in part else "") for part in weights)
    return f"the weights {', '.join(named)}" + ("" if classes is None else f" and the classes {list(classes)}")


def _make(estimator: OrtGradientEstimator, target: str) -> Made:
    """Return the step that partial_fit would take, after the frozen part, which is computed once per row."""
    settings, trained = settings_of(estimator), estimator._trained
    model, state = go_on(estimator, trained)
    if settings.optimizer is None:
        raise ExportError(
            "solver='lbfgs' has no step: each iteration evaluates the loss of all rows several times, with decisions "
            "in between. Train with solver='adam' or another stochastic solver."
        )
    _check_rows(model)
    known = trained.front if model.objective == trained.objective else None
    model = _split(model) if known is None else replace(model, front=known)
    # the host computes the weight of a row with positions: the number of positions that count
    weighted = state.weighted or model.positional
    step = portable_step(
        model.rest,
        settings.optimizer,
        settings,
        model.constants,
        target=target,
        weighted=weighted,
        labels=_labels(estimator, model),
    )
    return Made(model, state, settings.optimizer, step)


def _labels(estimator: OrtGradientEstimator, model: TrainedModel) -> range | None:
    """Return the labels that a classifier's step accepts: class indices, and -1 for an ignored position."""
    if not hasattr(estimator, "classes_"):
        return None
    return range(-1 if model.positional else 0, 2 if model.objective.multilabel else len(estimator.classes_))


def _check_rows(model: TrainedModel) -> None:
    """Raise an ExportError if a host without scikit-learn cannot compute the rows."""
    model.form.check_whole()
    if model.form.sparse:
        raise ExportError(
            "The rows in fit were sparse, but an exported step reads dense tensors. Fit on X.toarray(), or on fewer "
            "columns (TruncatedSVD, SelectKBest)."
        )
    texts = [name for name, dtype in model.source.model.features.items() if dtype.kind in "OSU"]
    if texts:
        raise ExportError(
            f"The model takes strings ({', '.join(texts)}), but an exported step reads numbers. Train only the "
            "predictor, on the columns that the preceding steps return."
        )


def _split(model: TrainedModel) -> TrainedModel:
    """Return a model cut at its trained weights, if random rows confirm the cut."""
    label = np.zeros((_SOME_ROWS, 1), np.int64)
    for rows in _random_rows(model):
        data = TrainingData(rows, label, None, dict(model.source.model.features), model.constants)
        found = split_at_weights(model.objective, data, 1, model.cpu_place, always=True)
        if found is not None:
            return replace(model, front=found[0])
    return model


def _random_rows(model: TrainedModel) -> Iterator[dict[str, np.ndarray]]:
    """Yield random rows with the shapes of the last fit; if some inputs are integers, also rows with 0 and 1 for these.

    An embedding of token types has two rows, and Gather fails for other indices.
    """
    graph = onnx.load_model_from_string(model.objective.model).graph
    inputs = [v for v in graph.input if v.name in model.source.model.features]
    for value in inputs:
        lengths = model.form.fitted.get(value.name, ())
        for dim, length in zip(value.type.tensor_type.shape.dim[1:], lengths, strict=False):
            dim.dim_value = length
    rows = random_feed(inputs, batch=_SOME_ROWS, random_state=0)
    yield rows
    if any(x.dtype.kind in "iu" for x in rows.values()):
        yield {name: x % 2 if x.dtype.kind in "iu" else x for name, x in rows.items()}


def _description(
    estimator: OrtGradientEstimator, made: Made, target: str, files: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return step.json: the role of each value, and the tasks of the host."""
    step = made.step
    return {
        "format": "onnxtrain.step",
        "version": 1,
        "producer": f"onnxtrain {onnxtrain.__version__}",
        "target": target,
        "graph_optimization_level": "basic",  # with this level the weights equal those of fit bit by bit
        "files": {name: f"{name}.onnx" for name in files},
        "before": None if made.model.front is None else _interface(files["before"]),
        "step": _interface(step.onnx),
        "predict": _interface(files["predict"]),
        "rows": list(step.features.values()),
        "label": step.label,
        "no_label": _no_label(made.model, made.model.objective.classifies),
        "sample_weight": step.weight,
        "learning_rate": step.learning_rate,
        "loss": step.loss,
        "classes": _classes(estimator),
        "objective": {"loss": str(estimator.loss), "l1": estimator.l1, "l2": estimator.l2},
        "optimizer": repr(made.optimizer),
        "state": _state(made),
        "host": _for_the_host(estimator, made.model),
    }


def _state(made: Made) -> list[dict[str, Any]]:
    """Return the values of the state, with the weights and slots that each contains."""
    arrays = made.step.arrays(made.state, made.optimizer)
    return [
        {
            "name": name,
            "dtype": str(arrays[name].dtype),
            "shape": list(arrays[name].shape),
            "parts": [_part(key, part) for key, part in parts.items()],
        }
        for name, parts in made.step.state.items()
    ]


def _classes(estimator: OrtGradientEstimator) -> list[Any] | None:
    classes = getattr(estimator, "classes_", None)
    return None if classes is None else np.asarray(classes).tolist()


def _no_label(model: TrainedModel, classifies: bool) -> int | str | None:
    """Return the label of an ignored position, None if rows have no positions; a string, since JSON has no NaN."""
    if not model.positional:
        return None
    return -1 if classifies else "NaN"


def _for_the_host(estimator: OrtGradientEstimator, model: TrainedModel) -> dict[str, Any]:
    names = [name for name in _FOR_THE_HOST if hasattr(estimator, name)]
    if model.positional:  # the graph contains the class weights of positions
        names = [name for name in names if name != "class_weight"]
    return {name: _as_json(getattr(estimator, name)) for name in names}


def _as_json(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)


def _part(key: tuple[str, ...], part: Any) -> dict[str, Any]:
    slot = {"slot": key[1]} if len(key) > 1 else {}
    place = {} if part is None else {"start": part.start, "stop": part.stop, "shape": list(part.shape)}
    return {"weight": key[0], **slot, **place}


def _interface(onx: bytes) -> dict[str, dict[str, Any]]:
    """Return the types and shapes of the inputs and outputs of a model, by name."""
    graph = onnx.load_model_from_string(onx).graph
    return {"inputs": dict(map(_described, graph.input)), "outputs": dict(map(_described, graph.output))}


def _described(value: onnx.ValueInfoProto) -> tuple[str, dict[str, Any]]:
    tensor = value.type.tensor_type
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    return value.name, {"dtype": dtype, "shape": [d.dim_value or d.dim_param for d in tensor.shape.dim]}


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if "before.onnx" not in files:  # left by an earlier export
            (folder / "before.onnx").unlink(missing_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as e:
        remedy = " It is a file. Pass another path." if folder.is_file() else ""
        raise FileError(f"The folder {str(folder)!r} cannot be written: {e.strerror or e}.{remedy}") from e


#: How to save a state.
_SAVE_STATE = "Save the state that step.onnx has reached, numpy.savez('state.npz', **state)"


def _arrays_in(path: Path, most: int) -> dict[str, np.ndarray]:
    """Return the arrays of a state from ``state.npz`` of numpy, or from the model ``state.onnx``.

    A compressed archive of more than `most` bytes is refused before it is unpacked, because it may fill the memory.
    """
    names = ("state.onnx", "state.npz")
    files = [path] if not path.is_dir() else [path / name for name in names if (path / name).is_file()]
    if not path.exists():
        raise DataError(
            f"There is no file or folder {str(path)!r}. Pass a state that step.onnx has reached, saved as .npz or "
            ".onnx, or the folder that contains it as state.npz or state.onnx."
        )
    if len(files) != 1 or not files[0].is_file():
        found = "both exist" if len(files) > 1 else "there is none"
        known = " or ".join(names)
        remedy = "Pass the path of one of them." if len(files) > 1 else f"{_SAVE_STATE} there."
        raise DataError(
            f"A state is read from a file, or from {known} in a folder, but {found}: {str(path)!r}. {remedy}"
        )
    try:
        if files[0].suffix == ".npz":
            with zipfile.ZipFile(files[0]) as archive:
                size = sum(member.file_size for member in archive.infolist())
            if size > most:
                raise ValueError(f"it unpacks to {size} bytes, but the state of this estimator needs less than {most}")
            with np.load(files[0]) as arrays:
                return dict(arrays)
        proto = onnx.load_model(files[0])
    except Exception as e:  # the errors of protobuf and of damaged archives have no common base class
        if files[0].suffix in (".npz", ".onnx"):
            raise DataError(f"The state cannot be read from {str(files[0])!r}: {e}") from e
        raise DataError(
            f"{str(files[0])!r} is no state, which is a file .npz of numpy, or .onnx of the JavaScript runner. "
            f"{_SAVE_STATE}, and pass its path."
        ) from e
    if proto.graph.node:
        raise DataError(
            f"{str(files[0])!r} contains a graph, not a state. {_SAVE_STATE}, and pass its path, or pass state itself."
        )
    return {t.name: np.array(onnx.numpy_helper.to_array(t)) for t in proto.graph.initializer}
