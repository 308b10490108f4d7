"""The shapes of rows, compared with those that a model takes; a message says how to turn, resize or select them."""

from __future__ import annotations

import math
import re
from typing import Any

from onnxtrain.errors import DataError
from onnxtrain.estimators.protocols import HasShape


def check_features(
    X: HasShape, shape: tuple[Any, ...], source: str, name: str = "X", *, of_tokens: bool = False
) -> None:
    """Compare the rows, called `name`, with the input shape of a model; in `shape`, None is any length.

    `of_tokens` says that the features are the positions of tokens.

    Raises
    ------
    DataError
        The rank or the number of columns differs; `source` names the model in the message.
    """
    dense = f"{name}.toarray()" if hasattr(X, "toarray") else name
    if len(shape) != len(X.shape):
        axes = "1 axis" if len(X.shape) == 1 else f"{len(X.shape)} axes"
        raise DataError(f"{name} has {axes}, but {source} {len(shape)}.{_turned(X.shape, shape[1:], dense)}")
    wanted, given = shape[1:], X.shape[1:]
    if any(w is not None and w != g for w, g in zip(wanted, given, strict=True)):
        if len(wanted) == 1:
            remedy = "Pass those columns, or a model for these, such as an unfitted one, which fit fits on them."
            if of_tokens or re.search(r"ids|mask|tokens", name):
                remedy = f"Pad or cut the texts to {wanted[0]} tokens, or export the model with a variable length."
            raise DataError(f"{name} has {given[0]} features, but {source} {wanted[0]}. {remedy}")
        raise DataError(f"{name} has rows of shape {given}, but {source} {wanted}.{_turned(X.shape, wanted, dense)}")


def _turned(given: tuple[int, ...], row: tuple[Any, ...], name: str) -> str:
    """Return the advice that gives an array rows of shape `row`: moving, adding or splitting axes, colors, a resize."""
    if row == (None,):
        return f" Pass {name}[None] for a single row." if len(given) == 1 else _reduced(given, row, name)
    candidates = {
        f"{name}[:, None]": (1, *given[1:]),
        f"{name}[..., None]": (*given[1:], 1),
        f"{name}[None] for a single row": given,
        f"{name}[:, None].repeat(3, axis=1) for gray images": (3, *given[1:]),
        f"numpy.moveaxis({name}, -1, 0)[None] for a single row": (given[-1], *given[:-1]),
    }
    if len(given) == 1 + len(row) > 2:
        candidates = {
            f"numpy.moveaxis({name}, -1, 1)": (given[-1], *given[1:-1]),
            f"numpy.moveaxis({name}, 1, -1)": (*given[2:], given[1]),
            f"{name}.repeat(3, axis=1) for gray images": (3 * given[1], *given[2:]),
            f"{name}[:, :3], without the alpha channel": (given[1] - 1, *given[2:]),
            f"{name}.mean(axis=1, keepdims=True) for gray images": (1, *given[2:]) if given[1] == 3 else (),
            f"{name}.mean(axis=-1)[:, None] for gray images": (1, *given[1:-1]) if given[-1] == 3 else (),
        }
    elif len(given) == 2 and None not in row and given[1] == math.prod(row):
        candidates = {f"{name}.reshape(-1, {', '.join(map(str, row))})": row}
    elif len(given) == 2 and len(row) == 3 and None in row and given[1] % math.prod(n or 1 for n in row) == 0:
        sides = iter(("height", "width", "channels"))
        return f" Pass the images in their size, {name}.reshape(-1, {', '.join(str(n or next(sides)) for n in row)})."
    for expression, shape in candidates.items():
        if len(shape) == len(row) and all(w in (None, g) for w, g in zip(row, shape, strict=True)):
            return f" Pass {expression}."
    if len(given) != 1 + len(row):
        return _reduced(given, row, name)
    if len(row) != 3:  # not images
        return _selected(given, row, name)
    size = row[1:] if given[1] == row[0] else row[:-1]
    if given[1] == row[0] or given[-1] == row[-1]:
        return f" Resize the images to {size[0]} x {size[1]}, or export the model with variable axes for other sizes."
    return f" Give the images the shape {row} of a row: move or convert their channels, and resize them."


def _selected(given: tuple[int, ...], row: tuple[Any, ...], name: str) -> str:
    """Return the advice for rows, such as series, whose first wrong axis is longer or shorter than the model's."""
    axis = next(i for i, n in enumerate(row, 1) if n is not None and n != given[i])
    n, found = row[axis - 1], given[axis]
    images = ""
    if all(w != g for w, g in zip(row, given[1:], strict=True)):
        images = f" For images, resize them to {' x '.join(map(str, row))}."
    cut = f", for example the last, {name}[{':, ' * axis}-{n}:]" if found > n else ""
    return (
        f" Axis {axis} has length {found} instead of {n}. Pass the {n} values that the model was trained on{cut}, or a "
        f"model for {found}.{images}"
    )


def _reduced(given: tuple[int, ...], row: tuple[Any, ...], name: str) -> str:
    """Return the advice for an array with another number of axes than rows of shape `row`."""
    if given[0] == 1 and len(given) == 2 + len(row):
        return f" Pass {name}[0], which has the rows."
    ones = tuple(axis for axis, n in enumerate(given) if axis and n == 1)
    if ones and len(given) - len(ones) == 1 + len(row):
        return f" Pass numpy.squeeze({name}, axis={ones})."
    more = len(given) > 1 + len(row)
    fewer = f" Select one entry of an axis, or average over it: {name}.mean(axis=1)." if more else ""
    if more and given[2:] == row:  # a list of batches
        fewer += f" If the first axis counts batches, pass numpy.concatenate({name})."
    return f" Its shape is {given}, and that of a row of the model {row}.{fewer}"
