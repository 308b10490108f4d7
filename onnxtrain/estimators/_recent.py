"""What was computed last, under the keys it is asked for by."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """A memory of bounded size: what was not asked for longest is forgotten first.

    Examples
    --------
    >>> squares = Recent(2)
    >>> for i in (1, 2, 3):
    ...     squares.keep(i, i * i)
    >>> squares.find(1), squares.find(3)
    (None, 9)
    """

    def __init__(self, size: int):
        self.size = size
        self._kept: OrderedDict[Hashable, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Hashable) -> T | None:
        """Return what is kept under a key, None where nothing is."""
        value = self._kept.pop(key, None)  # in one step each: threads may share it
        if value is not None:
            self._kept[key] = value
        return value

    def keep(self, key: Hashable, value: T) -> None:
        """Keep a value, instead of the one under the same key."""
        self._kept.pop(key, None)
        self._kept[key] = value
        if len(self._kept) > self.size:
            self._kept.popitem(last=False)

    def cache_clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
