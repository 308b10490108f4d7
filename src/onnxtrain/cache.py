"""The caches of onnxtrain: recently built results, by their arguments.

Graphs, sessions and converted estimators share one limit in bytes; the least recently used entry of all caches is
dropped first. Keys are compared by content. The bytes of a model that is part of several keys and values are counted
once.

Small tables whose size does not depend on the user's models, such as operator schemas, are limited by number instead.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache, wraps
from inspect import isroutine
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import numpy as np

from onnxtrain.errors import ParameterError

P = ParamSpec("P")
T = TypeVar("T")

#: Results of models above this size in bytes are not cached.
LIGHT = 2**20

#: Bytes objects of at least this size are counted once even if several keys and values share them.
_LARGE = 4096

#: The approximate bytes of an object without its content.
_OBJECT = 64


def fork_safe_lock() -> threading.RLock:
    """Return a lock that is always free in a forked child: a fork waits for the thread that holds it."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


class _Entry(NamedTuple):
    value: Any
    n_bytes: int  # without `large`
    large: tuple[bytes, ...]


class _Memory:
    """The entries of all caches, the most recently used last."""

    def __init__(self, limit: int):
        self.limit = limit
        self.n_bytes = 0
        self.entries: OrderedDict[tuple[Cache, Hashable], _Entry] = OrderedDict()
        self.lock = fork_safe_lock()
        self._holders: Counter[int] = Counter()

    def keep(self, key: tuple[Cache, Hashable], entry: _Entry) -> None:
        with self.lock:
            dropped = self.drop([key])
            self.entries[key] = entry
            self.n_bytes += entry.n_bytes
            for part in entry.large:
                self.n_bytes += 0 if id(part) in self._holders else len(part)
                self._holders[id(part)] += 1
            dropped += self.shrink()
        del dropped  # freed outside the lock, see drop

    def shrink(self) -> list[_Entry]:
        """Drop entries to respect the limit; return them."""
        dropped = []
        with self.lock:
            while self.n_bytes > self.limit and self.entries:
                dropped += self.drop([next(iter(self.entries))])
        return dropped

    def drop(self, keys: list[tuple[Cache, Hashable]]) -> list[_Entry]:
        """Drop and return entries; the caller frees them outside the lock, because closing a session takes time."""
        with self.lock:
            dropped = [self.entries.pop(key) for key in keys if key in self.entries]
            for entry in dropped:
                self.n_bytes -= entry.n_bytes
                for part in entry.large:
                    self._holders[id(part)] -= 1
                    if not self._holders[id(part)]:
                        del self._holders[id(part)]
                        self.n_bytes -= len(part)
        return dropped


#: 256 MB hold about a dozen steps of a model of 1 MB, with their sessions.
_MEMORY = _Memory(256 * 2**20)

_CACHES: list[Cache] = []
_TABLES: list[Any] = []


class Cache(Generic[T]):
    """One kind of cached results.

    Parameters
    ----------
    name : str

    Attributes
    ----------
    misses : int
        How often a result was built.

    Examples
    --------
    >>> squares = Cache("squares")
    >>> squares.keep(3, 9)
    9
    >>> squares.find(3), squares.find(4)
    (9, None)
    """

    def __init__(self, name: str):
        self.name = name
        self.misses = 0
        _CACHES.append(self)

    def __len__(self) -> int:
        return len(self._keys())

    def find(self, key: Hashable) -> T | None:
        """Return the entry of a key, or None."""
        with _MEMORY.lock:
            entry = _MEMORY.entries.get((self, key))
            if entry is None:
                return None
            _MEMORY.entries.move_to_end((self, key))
            return entry.value

    def keep(self, key: Hashable, value: T, n_bytes: int | None = None) -> T:
        """Cache a value and return it; `n_bytes` is given if it cannot be determined."""
        self.misses += 1
        large: dict[int, bytes] = {}
        size = _n_bytes(key, large) + (_n_bytes(value, large) if n_bytes is None else n_bytes)
        if size + sum(map(len, large.values())) <= _MEMORY.limit:
            _MEMORY.keep((self, key), _Entry(value, size, tuple(large.values())))
        return value

    def clear(self) -> None:
        """Remove all entries."""
        _MEMORY.drop(self._keys())

    def _keys(self) -> list[tuple[Cache, Hashable]]:
        with _MEMORY.lock:
            return [key for key in _MEMORY.entries if key[0] is self]


def cached(function: Callable[P, T]) -> Callable[P, T]:
    """Memoize a function; the attribute ``cache`` holds the results.

    Arguments are compared by content and type. Results are shared, and must not be changed.
    """
    cache: Cache[tuple[T]] = Cache(f"{function.__module__}.{function.__qualname__}")

    @wraps(function)
    def build(*args: P.args, **kwargs: P.kwargs) -> T:
        key = (args, tuple(map(type, args)), *kwargs.items())
        found = cache.find(key)
        return (found or cache.keep(key, (function(*args, **kwargs),)))[0]

    build.cache = cache  # type: ignore[attr-defined]
    return build


def table(maxsize: int, *, typed: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator for a small pure function with at most `maxsize` results; see :func:`cached`."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        kept = lru_cache(maxsize, typed)(function)
        _TABLES.append(kept)
        return kept  # type: ignore[return-value]

    return decorate


def content_key(models: Sequence[bytes], rows: Mapping[str, np.ndarray], *more: Hashable) -> Hashable | None:
    """Return a key for results of models on rows; None if the models are too large for their results to be cached."""
    if sum(map(len, models)) > LIGHT:
        return None
    digest = hashlib.sha256()
    for content in models:
        digest.update(content)
    for name, values in rows.items():
        array = np.asarray(values)
        plain = array.dtype.kind in "fiub"
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(
            np.ascontiguousarray(array).reshape(-1).view(np.uint8) if plain else repr(array.tolist()).encode()
        )
    return digest.digest(), *more


def clear_caches() -> None:
    """Remove all cached graphs, sessions and converted estimators.

    Results of fits do not change; removed entries are built again when needed.

    Examples
    --------
    >>> import onnxtrain
    >>> onnxtrain.clear_caches()
    >>> sum(kept["entries"] for kept in onnxtrain.cache_info().values())
    0
    """
    for cache in _CACHES:
        cache.clear()
    for kept in _TABLES:
        kept.cache_clear()


def limit_caches(n_bytes: int) -> int:
    """Set the size limit of all caches together in bytes, initially 256 MB, and return the former limit.

    Parameters
    ----------
    n_bytes : int
        The limit; 0 disables caching.

    Returns
    -------
    int
        The former limit.

    Examples
    --------
    >>> import onnxtrain
    >>> before = onnxtrain.limit_caches(2**20)
    >>> onnxtrain.limit_caches(before)
    1048576
    """
    if not isinstance(n_bytes, int) or isinstance(n_bytes, bool) or n_bytes < 0:
        raise ParameterError(f"n_bytes must be an integer, 0 or more, got {n_bytes!r}. 10**9 is a gigabyte.")
    before, _MEMORY.limit = _MEMORY.limit, n_bytes
    _MEMORY.shrink()
    return before


def cache_info() -> dict[str, dict[str, int]]:
    """Return the number of entries and bytes of each cache; content that two caches share is counted in both.

    Returns
    -------
    dict of str to dict
        ``{"entries": count, "bytes": size}`` by the name of a cache.

    Examples
    --------
    >>> import onnxtrain
    >>> onnxtrain.clear_caches()
    >>> sum(cache["entries"] for cache in onnxtrain.cache_info().values())
    0
    """
    with _MEMORY.lock:
        kept = {cache.name: [e for key, e in _MEMORY.entries.items() if key[0] is cache] for cache in _CACHES}
    return {
        name: {"entries": len(entries), "bytes": sum(e.n_bytes + sum(map(len, e.large)) for e in entries)}
        for name, entries in kept.items()
    }


def _n_bytes(x: Any, large: dict[int, bytes]) -> int:
    """Return the approximate bytes of an object, without large bytes objects, which are added to `large`."""
    total, todo = 0, [x]
    while todo:  # iterative, because keys are deeply nested
        part = todo.pop()
        if part is None or isinstance(part, (str, int, float)):  # nearly all parts of keys
            total += sys.getsizeof(part)
        elif (inner := _parts(part)) is not None:
            total += _OBJECT
            todo += inner
        elif isinstance(part, bytes) and len(part) >= _LARGE:
            total += _OBJECT
            large[id(part)] = part
        else:
            total += _own_bytes(part)
    return total


def _parts(x: Any) -> Iterable[Any] | None:
    """Return the parts of a container, or None for anything else."""
    if isinstance(x, (tuple, list, set, frozenset)):
        return x
    if isinstance(x, Mapping):
        return (*x.keys(), *x.values())
    if is_dataclass(x) and not isinstance(x, type):
        return [getattr(x, part.name) for part in fields(x)]
    return None


def _own_bytes(x: Any) -> int:
    """Return the approximate bytes of an object without parts."""
    if isinstance(x, bytes):
        return _OBJECT + len(x)
    if isinstance(x, np.ndarray):
        return _OBJECT + x.nbytes
    if hasattr(x, "ByteSize") and not isinstance(x, type):  # a parsed ModelProto
        return _OBJECT + 2 * x.ByteSize()
    if isinstance(x, type) or isroutine(x):
        return 0  # it belongs to its module
    return _pickled(x)


def _pickled(x: Any) -> int:
    """Return the bytes of a pickled object, without copying its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        rest = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    except Exception:  # unpicklable objects raise various exceptions
        return sys.getsizeof(x)
    return len(rest) + sum(buffer.raw().nbytes for buffer in buffers)
