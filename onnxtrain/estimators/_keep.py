"""A fitted estimator taken apart for a file, and put together again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from onnxtrain.errors import ModelError
from onnxtrain.estimators import _file
from onnxtrain.estimators._codec import Decoder, Encoder
from onnxtrain.estimators._model import TrainableModel, initial_weights, with_weights
from onnxtrain.estimators._source import Source
from onnxtrain.heads import Link
from onnxtrain.losses import find_loss
from onnxtrain.training.state import TrainingState

#: What is learned beside the weights; the other learned attributes follow from the state.
_ATTRIBUTES = (
    *("n_features_in_", "feature_names_in_", "classes_", "_y_ndim", "_n_labels", "_sparse_labels"),
    *("_named", "_random_state"),
)


def encode_parameters(estimator: Any, encoder: Encoder) -> dict[str, Any]:
    """Return the parameters as JSON; the model that was handed over is not among them."""
    params = estimator.get_params(deep=False)
    del params["estimator"]
    return {name: encoder.encode(value, f"the parameter {name!r}") for name, value in params.items()}


def write_estimator(
    path: str | os.PathLike, estimator: Any, *, functions: bool = False, more: Mapping[str, Any] | None = None
) -> None:
    """Write an estimator, fitted or in the middle of it, to a file.

    Parameters
    ----------
    path : path
    estimator : OrtGradientRegressor or OrtGradientClassifier
    functions : bool
        As :class:`~onnxtrain.estimators._codec.Encoder`.
    more : mapping of str to object, optional
        Values to be kept with it.
    """
    encoder = Encoder(functions=functions)
    state, model = estimator._state, estimator._source.model
    weights = state.result()
    in_graph = [name for name, value in _parts(state).items() if value is weights]
    kept = {name: vars(estimator)[name] for name in _ATTRIBUTES if name in vars(estimator)}
    header = {
        "class": type(estimator).__name__,
        "has_estimator": estimator.estimator is not None,
        "params": encode_parameters(estimator, encoder),
        "attributes": {name: encoder.encode(value, name) for name, value in kept.items()},
        "model": encoder.encode({**_parts(model, "onnx"), "link": model.link.value}, "the model"),
        "names": list(weights),
        "in_graph": in_graph,
        "state": {n: encoder.encode(value, n) for n, value in _parts(state).items() if n not in in_graph},
        "more": {name: encoder.encode(value, name) for name, value in (more or {}).items()},
    }
    _file.write(path, with_weights(model.onnx, weights), header, encoder.tensors)


def _parts(value: Any, *without: str) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value) if f.name not in without}


class Kept:
    """An estimator in a file: its parts, each decoded when it is asked for.

    Attributes
    ----------
    header : dict
        As it was written.
    """

    def __init__(self, path: str | os.PathLike):
        self.onnx, self.header, self._tensors = _file.read(path)
        self.decoder = Decoder(self._tensors)

    def __getitem__(self, name: str) -> Any:
        return self.header[name]

    def decoded(self, part: str) -> dict[str, Any]:
        """Return the values of a part of the header by name."""
        return {name: self.decoder.decode(value) for name, value in self.header[part].items()}

    def model(self) -> TrainableModel:
        """Return the model, with the weights that training had come to."""
        parts = self.decoder.decode(self.header["model"])
        return TrainableModel(**{**parts, "link": Link(parts["link"])}, onnx=self.onnx.SerializeToString())

    def state(self) -> TrainingState:
        """Return what training goes on from."""
        weights = initial_weights(self.onnx.SerializeToString(), self["names"])
        parts: dict[str, Any] = self.decoded("state") | dict.fromkeys(self["in_graph"], weights)
        return TrainingState(**parts)


def restore(kept: Kept, classes: Mapping[str, type]) -> Any:
    """Return the estimator that was written.

    Parameters
    ----------
    kept : Kept
    classes : mapping of str to type
        What it may be.
    """
    if kept["class"] not in classes:
        raise ModelError(f"The file holds a {kept['class']}; known are {', '.join(classes)}.")
    model = kept.model()
    whole = with_weights(model.onnx, {}, outputs=model.outputs) if kept["has_estimator"] else None
    estimator = classes[kept["class"]](None if whole is None else whole.SerializeToString(), **kept.decoded("params"))
    for name, value in kept.decoded("attributes").items():
        if name in _ATTRIBUTES:
            setattr(estimator, name, value)
    find_loss(estimator.loss, estimator.loss_params, classifies=estimator._classifies)  # is it registered?
    estimator._source = Source(model)
    estimator._state = kept.state()
    estimator._prepare_objective()
    estimator._finish()
    return estimator
