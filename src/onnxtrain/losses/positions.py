"""Outputs of three and more axes: the rows, then positions, and one axis for the classes.

A position is a token of a text, a pixel of an image or a step of a sequence. Labels have one entry per position, so
they lack the class axis: (n, t) for an output (n, t, K), (n, h, w) for (n, K, h, w). If labels have the shape of the
output, there is no class axis: each entry is a position with its own value, or a binary problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onnxtrain.errors import DataError, ParameterError


@dataclass(frozen=True)
class Layout:
    """The axes of an output, and how it is read as a table with the columns of scores that a loss takes.

    Attributes
    ----------
    n_axes : int
    class_axis : int or None
        The axis that labels lack, for an output of three or more axes; None: labels have the shape of the output.
    """

    n_axes: int = 2
    class_axis: int | None = None

    def table(self, found: np.ndarray) -> np.ndarray:
        """Return an output as a table (m, K), where m is the number of rows times positions."""
        if self.n_axes == 2:
            return found.reshape(len(found), -1)
        if self.class_axis is None:
            return found.reshape(-1, 1)
        return np.moveaxis(found, self.class_axis, -1).reshape(-1, found.shape[self.class_axis])

    def by_position(self, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return the values of the rows of a table in the shape of the labels; `shape` is the shape of the output."""
        if self.n_axes == 2:
            return values
        return values.reshape([size for axis, size in enumerate(shape) if axis != self.class_axis])

    def by_class(self, table: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return a table in the shape of the output, with its columns on the class axis; the last column if none.

        The number of columns may differ from the number in the output.
        """
        if self.n_axes == 2:
            return table
        if self.class_axis is None:
            return table[:, -1].reshape(shape)
        sizes = [size for axis, size in enumerate(shape) if axis != self.class_axis]
        return np.moveaxis(table.reshape(*sizes, table.shape[1]), -1, self.class_axis)


class Columns(NamedTuple):
    """The class axis and its length, 0 if the shape of the output does not show it."""

    class_axis: int | None
    width: int


def find_columns(output: str, shape: Sequence[int | None], target: Sequence[int], told: int | None = None) -> Columns:
    """Return the axis of an output that its labels lack, or None if labels have its shape.

    Parameters
    ----------
    output : str
        Its name.
    shape : sequence of int or None
        Rows first; None for a length that is not known.
    target : sequence of int
        The shape of a row of labels.
    told : int, optional
        The axis according to the user.

    Raises
    ------
    DataError
        The labels fit no axis, or several.
    ParameterError
        There is no such axis.

    Examples
    --------
    >>> find_columns("logits", (None, 21, None, None), (64, 64))
    Columns(class_axis=1, width=21)
    """
    n_axes = len(shape)
    whole = len(target) == n_axes - 1 and told is None
    if whole and _fit(shape[1:], target):
        return Columns(None, 1)
    tried = range(1, n_axes) if told is None else [_checked_axis(output, told, n_axes)]
    fitting = [axis for axis in tried if _fit([*shape[1:axis], *shape[axis + 1 :]], target)]
    known = [axis for axis in fitting if shape[axis] is not None]
    if len(known) == 1:
        return Columns(known[0], int(shape[known[0]] or 0))
    if known:
        raise DataError(
            f"The class axis of the output {output!r} is ambiguous: its shape {_written(shape)} and y of shape "
            f"{_written((None, *target))} allow the axes {' and '.join(map(str, known))}. Set class_axis={known[0]} or "
            f"class_axis={known[-1]}."
        )
    if fitting:
        return Columns(None, 0)
    axis, or_values = f", class_axis={told}", ""
    if told is None:
        axis, or_values = "", ", or one value per entry (the shape of the output)"
    raise DataError(
        f"y has shape {_written((None, *target))}, but the output {output!r} has shape {_written(shape)}. y must have "
        f"one label per position (the shape of the output without its class axis{axis}){or_values}."
    )


def _fit(shape: Sequence[int | None], target: Sequence[int]) -> bool:
    """Whether all known lengths agree."""
    return len(shape) == len(target) and all(a is None or a == b for a, b in zip(shape, target, strict=True))


def _checked_axis(output: str, told: int, n_axes: int) -> int:
    if not -n_axes < told < n_axes or told == 0:
        raise ParameterError(
            f"class_axis must be from 1 to {n_axes - 1} for the output {output!r} with {n_axes} axes, got {told}. Axis "
            "0 holds the rows."
        )
    return told % n_axes


def _written(shape: Sequence[int | None]) -> str:
    """Return a shape for messages, ``(n, 21, ?, ?)``."""
    return f"({', '.join(['n', *('?' if size is None else str(size) for size in shape[1:])])})"
