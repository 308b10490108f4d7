"""Weights by name: the rows of their list, and their selection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from onnxtrain.errors import WeightError
from onnxtrain.registry import did_you_mean


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
    found = [n for n in names if plain in ("all", n) or fnmatchcase(n, plain) or n.startswith(f"{plain}.")]
    if not found and not (word.startswith("-") and any(c in plain for c in "*?[")):
        steps = {n.rpartition(".")[0] for n in names} - {""}
        meant = _MEANT.get(plain.casefold(), "")
        raise WeightError(
            f"{plain!r} is neither a {what} nor a step with one. {meant}{did_you_mean(plain, [*names, *steps])}"
        )
    return found
