"""What of a model can be trained, and what is trained when nobody says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import onnx

from onnxtrain import graph
from onnxtrain.convert.converter import Conversion
from onnxtrain.convert.reach import reaching
from onnxtrain.errors import WeightError
from onnxtrain.registry import did_you_mean


@dataclass(frozen=True)
class Weight:
    """One row of the list of weights: name, step of the pipeline, shape, size, kind."""

    name: str
    step: str
    shape: tuple[int, ...]
    kind: str

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


def trainable_weights(model: Conversion | onnx.ModelProto, output: str | None = None) -> list[Weight]:
    """Return the weights of a model that can be trained, in the order in which they are used.

    Parameters
    ----------
    model : Conversion or onnx.ModelProto
        Of an ONNX model: every initializer of real numbers, of one axis or more,
        that an output of real numbers depends on.
    output : str, optional
        This output only.
    """
    onx = model.onnx if isinstance(model, Conversion) else model
    loaded = graph.load(onx)
    if output is not None:
        loaded.graph.outputs[:] = [graph.find(loaded.graph.outputs, output, "output")]
    reach = {str(value.name): value for value in reaching(loaded)}
    if isinstance(model, Conversion):
        return [Weight(b.name, b.step, b.shape, b.kind) for b in model.bindings if b.name in reach]
    return [Weight(name, "", graph.static_shape(value) or (), "weight") for name, value in reach.items()]


def select_weights(names: Sequence[str], wanted: str | Sequence[str], what: str = "weight") -> list[str]:
    """Return those of `names` that are asked for, in their order.

    Parameters
    ----------
    names : sequence of str
    wanted : str or sequence of str
        ``"all"``, names, patterns (``"*.intercept*"``), names of steps
        (``"standardscaler"``); with a minus in front (``"-pca"``) what is left out. Where
        only such are given, of all.

    what : str
        What a name is, for the message.

    Raises
    ------
    WeightError
        One of them fits no name.

    Examples
    --------
    >>> names = ["standardscaler.mean", "standardscaler.scale", "pca.mean", "mlp.coefs_0", "mlp.intercepts_0"]
    >>> select_weights(names, ["standardscaler", "*coefs*"])
    ['standardscaler.mean', 'standardscaler.scale', 'mlp.coefs_0']
    >>> select_weights(names, "-standardscaler")
    ['pca.mean', 'mlp.coefs_0', 'mlp.intercepts_0']
    """
    words = [wanted] if isinstance(wanted, str) else list(wanted)
    found = {word: _fitting(names, word, what) for word in words}
    added = [word for word in words if not word.startswith("-")]
    chosen = {name for word in added for name in found[word]} if added or not words else set(names)
    chosen -= {name for word in words if word not in added for name in found[word]}
    return [name for name in names if name in chosen]


def _fitting(names: Sequence[str], word: str, what: str) -> list[str]:
    """Return the names that one word means."""
    plain = word.removeprefix("-")
    found = [n for n in names if plain in ("all", n) or fnmatchcase(n, plain) or n.startswith(f"{plain}.")]
    if not found:
        steps = {n.rpartition(".")[0] for n in names} - {""}
        raise WeightError(f"{plain!r} is no {what}, and no step with one. {did_you_mean(plain, [*names, *steps])}")
    return found


def default_weights(model: Conversion | onnx.ModelProto) -> list[str]:
    """Return the names of the weights that are trained unless others are asked for.

    Those of the predictors, not the statistics of preprocessing; of a
    transformer alone, all.
    """
    if not isinstance(model, Conversion):
        return [w.name for w in trainable_weights(model)]
    predictors = [b.name for b in model.bindings if b.predictor]
    return predictors or [b.name for b in model.bindings]
