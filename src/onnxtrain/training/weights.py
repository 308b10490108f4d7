"""The weights of a model by name: those that ``weights_to_train`` selects, and the rows of a list of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from onnxtrain.convert.head import WEIGHT
from onnxtrain.errors import WeightError
from onnxtrain.registry import did_you_mean
from onnxtrain.training.parameters import quantized_weights

if TYPE_CHECKING:
    from onnxtrain.training.model import TrainableModel


def choose_weights(model: TrainableModel, wanted: str | Sequence[str] | None, *, converted: bool) -> tuple[str, ...]:
    """Return the weights to train.

    Parameters
    ----------
    model : TrainableModel
    wanted : str, sequence of str, or None for ``model.default``
        As for :func:`~onnxtrain.training.weights.select_weights`. If all words exclude, they exclude from all weights
        of an estimator, or from the parameters of an ONNX model.
    converted : bool
        Whether the model was an estimator.

    Raises
    ------
    WeightError
        A name is unknown, or the output does not depend on it.
    """
    if wanted is None:
        names = list(model.default)
    else:
        of = model.weights if converted else model.default
        try:
            names = select_weights(model.weights, wanted, f"weight that the output {model.output!r} depends on", of=of)
        except WeightError:
            _refuse_integers(model, wanted)
            raise
    if not names:
        raise WeightError(f"There is no weight to train: {_none_left(model, wanted)}")
    return tuple(names)


def _refuse_integers(model: TrainableModel, wanted: str | Sequence[str]) -> None:
    """Raise a WeightError that says why if a wanted weight holds quantized integers."""
    words = {wanted} if isinstance(wanted, str) else set(wanted)
    named = [name for name in quantized_weights(model.graph()) if name in words]
    if named:
        raise WeightError(
            f"{named[0]!r} holds quantized integers, which have no derivative. Train the floating-point model that was "
            "quantized, or one quantized in the QDQ format (onnxruntime's quantize_static)."
        )


def _none_left(model: TrainableModel, wanted: object) -> str:
    """Return why no weight is left to train, and the remedy."""
    some = [*model.weights][:10]
    if some and wanted is not None:
        return f"weights_to_train={wanted!r:.80} selects none of {', '.join(some)}. Name some of them."
    operators = {node.op_type for node in model.graph().graph.node}
    quantized = operators & {"DequantizeLinear", "MatMulInteger", "ConvInteger", "MatMulNBits"}
    if quantized:
        return (
            "weights of a dynamically quantized model are integers. Quantize the original model in the QDQ format "
            "instead (onnxruntime's quantize_static)."
        )
    if not some:
        return "the model has no parameters between its inputs and its output."
    if all("lifted_tensor_" in name for name in model.weights):
        return (
            f"PyTorch's exporter recorded all tensors as constants ({some[0]}, ...), as it does if a module reads its "
            "parameters from a dictionary. Use torch.onnx.export(..., dynamo=False), which keeps their names."
        )
    return (
        "the model holds only buffers, such as the statistics of a scaler, which are not trained by default. Pass a "
        f"model with a predictor behind them, or name those to train, as in weights_to_train={some}."
    )


@dataclass(frozen=True)
class Weight:
    """A row of the list of weights: name, step of the pipeline, shape, size, kind."""

    name: str
    step: str
    shape: tuple[int, ...]
    kind: str

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def select_weights(
    names: Sequence[str], wanted: str | Sequence[str], what: str = "weight", *, of: Sequence[str] | None = None
) -> list[str]:
    """Return the names that are selected, in the order of `names`.

    Parameters
    ----------
    names : sequence of str
    wanted : str or sequence of str
        ``"all"``, names, patterns (``"*.intercept*"``), names of steps (``"standardscaler"``); a leading minus
        (``"-pca"``) excludes. If all words exclude, they exclude from all names. An excluding pattern need not match
        any name.
    what : str
        The noun for a name, for messages.
    of : sequence of str, optional
        The names from which to exclude if all words exclude.

    Raises
    ------
    WeightError
        A word matches no name.

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
    chosen = (
        {name for word in added for name in found[word]} if added or not words else set(names if of is None else of)
    )
    chosen -= {name for word in words if word not in added for name in found[word]}
    return [name for name in names if name in chosen]


#: Remedies for words that are no names of weights.
_MEANT = {
    "head": "It is a whole value of weights_to_train: weights_to_train='head'. ",
    "last": "For the last layer, pass weights_to_train='head'. ",
    "lora": "Pass weights_to_train=onnxtrain.LoRA(). ",
}


def _fitting(names: Sequence[str], word: str, what: str) -> list[str]:
    """Return the names that match a word."""
    plain = word.removeprefix("-")
    literal = plain.replace("[", "[[]")  # brackets are a part of the names layers[0].weight
    found = [
        n
        for n in names
        if plain in ("all", n) or fnmatchcase(n, plain) or fnmatchcase(n, literal) or n.startswith(f"{plain}.")
    ]
    if not found and not (word.startswith("-") and any(c in plain for c in "*?[")):
        steps = {n.rpartition(".")[0] for n in names} - {""}
        meant, inside = _MEANT.get(plain.casefold(), ""), plain.strip("*.")
        if plain.startswith("!"):
            meant = f"To leave out weights, begin with a minus: '-{plain[1:]}'. "
        elif any(c in plain for c in "^$|\\(+"):
            meant = "Patterns are those of file names, with * and ?, not regular expressions. "
        elif n_within := sum(inside in name or fnmatchcase(name, f"*{inside}*") for name in names if inside):  # as PEFT
            pattern = word.replace(plain, f"*{inside}*")
            meant = f"The pattern {pattern!r} matches {n_within}. "
        known = [*names, *steps]
        if "," in plain and any(part.strip() in known for part in plain.split(",")):
            meant = f"Pass a list, {[part.strip() for part in word.split(',')]}. "
        first = next((name for name in known if plain.removeprefix(name) in known), None)
        meant = f"A comma is missing between {first!r} and {plain.removeprefix(first)!r}. " if first else meant
        hint = did_you_mean(plain, known)
        if WEIGHT in names:
            meant += "The new head replaced the last layer: for its weights, set weights_to_train='head'. "
            hint = hint[hint.index("Known") :]
        elif not meant and (own := next((name for name in names if name.startswith("onnx::")), None)):
            meant = (
                f"torch.onnx.export(..., dynamo=False) gives some weights names of its own, such as {own!r}. With "
                "dynamo=True and optimize=False, the file has the names of the module. "
            )
            hint = hint[hint.index("Known") :]
        raise WeightError(f"{plain!r} is neither a {what} nor a step with one. {meant}{hint}")
    return found
