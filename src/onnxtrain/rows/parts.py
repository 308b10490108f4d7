"""Rows in parts, and reading them one after the other, the next one in advance."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from numbers import Integral
from types import FunctionType
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar, runtime_checkable

from onnxtrain.arguments import NamesItsParameters, called_as
from onnxtrain.dialects import for_table
from onnxtrain.errors import ArgumentTypeError, DataError, ParameterError, unquoted
from onnxtrain.rows.lazy import check_computed, in_memory

T = TypeVar("T")
R = TypeVar("R")


@runtime_checkable
class Source(Protocol):
    """Rows in parts that can be read repeatedly.

    Examples
    --------
    >>> import numpy as np
    >>> from onnxtrain import OrtGradientRegressor
    >>> class Simulated:
    ...     def __len__(self):
    ...         return 3
    ...     def n_rows(self, i):
    ...         return 100
    ...     def read(self, i):
    ...         X = np.random.RandomState(i).rand(100, 2)
    ...         return X, X @ [1.0, 2.0]
    >>> OrtGradientRegressor(solver="lbfgs").fit(Simulated()).score(Simulated()) > 0.999
    True
    """

    def __len__(self) -> int:
        """Return the number of parts."""

    def n_rows(self, i: int) -> int:
        """Return the number of rows of a part.

        Parameters
        ----------
        i : int
            The number of the part, from 0.

        Examples
        --------
        >>> from onnxtrain.rows import from_files
        >>> from_files(["a.csv", "b.csv"], read=open, n_rows=[10, 20]).n_rows(1)
        20
        """

    def read(self, i: int) -> tuple[Any, ...]:
        """Return a part, ``(X, y)`` or ``(X, y, sample_weight)``, always in one form; called in another thread.

        Parameters
        ----------
        i : int
            The number of the part, from 0.

        Examples
        --------
        >>> from onnxtrain.rows import from_files
        >>> from_files([1, 2], lambda n: ([[n]], [10 * n])).read(1)
        ([[2]], [20])
        """


class NoArray:
    """Base class of rows in parts that refuse conversion to an array, as cross-validation would try it."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse conversion to an array.

        Raises
        ------
        ArgumentTypeError
            Always.
        """
        raise ArgumentTypeError(
            "Rows in parts work only with fit, partial_fit, predict, score and losses of the estimators of onnxtrain. "
            "scikit-learn functions, cross-validation, searches and outer pipelines need rows in memory. Pass them "
            "some parts, X, y = parts.read(i)[:2], and put preprocessing steps into the estimator, "
            "OrtGradientClassifier(make_pipeline(...))."
        )

    @property
    def __getitem__(self) -> NoReturn:
        """Refuse indices; a property, because scikit-learn takes any object that has this method for rows."""
        raise AttributeError(
            f"{type(self).__name__} has no indices, slices or iteration. Read a part with X, y = parts.read(i)[:2], or "
            "make parts of some files alone, such as from_files(files[:2], read)."
        )


@called_as("Parts(from_files(paths, read))")
@dataclass(frozen=True)
class Parts(NamesItsParameters, NoArray):
    """How a fit goes through rows in parts.

    Parameters
    ----------
    source : Source
        Any object with ``__len__``, ``n_rows(i)`` and ``read(i)``.
    open_parts : int
        The number of parts whose rows are shuffled together. These parts, and one that is read ahead, are in memory. If
        the source has at most `open_parts` parts, an epoch gives bit by bit the result of the same rows in memory.
    sample : int
        The number of rows, spread evenly over the parts, on which an unfitted estimator is fitted first, and on which
        the predictions of the graph and the estimator are compared before training.
    classes : array-like of shape (n_classes,), optional
        All classes of y. By default, a fit begins with a pass over all parts that finds the classes and missing values.
        If the classes are given, this pass reads only `open_parts` parts, unless the rows have weights.

    Examples
    --------
    >>> import numpy as np
    >>> from onnxtrain import OrtGradientRegressor
    >>> from onnxtrain.rows import Parts, from_files
    >>> def read(seed):
    ...     X = np.random.RandomState(seed).rand(1000, 2)
    ...     return X, X @ [1.0, 2.0]
    >>> parts = Parts(from_files(range(20), read), open_parts=4)
    >>> model = OrtGradientRegressor(solver="lbfgs", dtype="float64").fit(parts)
    >>> model.coef_.round(3).tolist()
    [1.0, 2.0]
    """

    source: Source
    open_parts: int = 8
    sample: int = 20_000
    classes: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if not is_parts(self.source):
            raise ArgumentTypeError(
                f"Parts expects an object with __len__, n_rows(i) and read(i), got {type(self.source).__name__}. Pass "
                "rows in memory to fit itself, and files to onnxtrain.rows.from_files(files, read)."
            )
        for name in ("open_parts", "sample"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                unit = name.partition("_")[2] or "rows"
                raise ParameterError(
                    f"{name} must be a positive number of {unit}, such as {type(self).__dict__[name]}, got "
                    f"{value!r:.80}.{unquoted(value)}"
                )
        if isinstance(self.classes, str) or not (self.classes is None or hasattr(self.classes, "__len__")):
            raise ParameterError(
                f"classes must list all labels of y, got {self.classes!r:.80}. Pass classes=numpy.unique(y), or leave "
                "it out: the first pass then finds them."
            )
        if not len(self):
            raise DataError("There are no parts: the source has length 0.")

    def __len__(self) -> int:
        return len(self.source)

    def n_rows(self, i: int) -> int:
        """Return the number of rows of a part.

        Parameters
        ----------
        i : int
            The number of the part, from 0.

        Examples
        --------
        >>> from onnxtrain.rows import Parts, from_files
        >>> Parts(from_files(["a.csv", "b.csv"], read=open, n_rows=[10, 20])).n_rows(1)
        20
        """
        return self.source.n_rows(i)

    def read(self, i: int) -> Part:
        """Return a part, with its lazy collections read into memory.

        Parameters
        ----------
        i : int
            The number of the part, from 0.

        Examples
        --------
        >>> from onnxtrain.rows import Parts, from_files
        >>> Parts(from_files([1, 2], lambda n: ([[n]], [10 * n]))).read(1)
        Part(X=[[2]], y=[20], sample_weight=None)
        """
        try:
            found = self.source.read(i)
        except Exception as e:
            e.add_note(f"Part {i} could not be read. Every epoch reads all parts again, so files must not change.")
            raise
        if not isinstance(found, tuple) or not 1 <= len(found) <= 3:
            raise DataError(
                f"read({i}) must return the tuple (X, y) or (X, y, sample_weight), got {type(found).__name__}"
                + (f" of length {len(found)}." if isinstance(found, tuple) else ".")
            )
        for value in found:
            if isinstance(value, (str, bytes)):
                remedy = "Let it read that file."
                if value in list(getattr(found[0], "columns", ())):
                    remedy = for_table(f"For a column, return (X.drop(columns={value!r}), X[{value!r}]).", found[0])
                raise DataError(f"read({i}) must return arrays or frames, got {value!r:.50}. {remedy}")
        return Part(*(value if value is None else in_memory(value, "a part") for value in found))

    def in_order(self) -> Iterator[Part]:
        """Yield the parts that have rows, reading the next one ahead.

        Examples
        --------
        >>> from onnxtrain.rows import Parts, from_files
        >>> parts = Parts(from_files([1, 2], lambda n: ([[n]], [10 * n])))
        >>> [part.y for part in parts.in_order()]
        [[10], [20]]
        """
        return read_ahead(self.read, lambda i, part: part, with_rows(self))


class Part(NamedTuple):
    """One part of the rows; predictions do not need targets."""

    X: Any
    y: Any = None
    sample_weight: Any = None


def with_rows(parts: Parts) -> list[int]:
    """Return the indices of the parts that have rows.

    Raises
    ------
    DataError
        No part has rows.
    """
    order = [i for i in range(len(parts)) if _checked(i, parts.n_rows(i))]
    if not order:
        raise DataError(f"The {len(parts)} parts have no rows.")
    return order


def _checked(i: int, n_rows: Any) -> int:
    if not isinstance(n_rows, Integral) or n_rows < 0:
        raise DataError(f"n_rows({i}) must return the number of rows of part {i}, got {n_rows!r:.50}.")
    return int(n_rows)


def is_parts(X: object) -> bool:
    """Whether an object is rows in parts."""
    return all(callable(getattr(type(X), name, None)) for name in ("__len__", "n_rows", "read"))


#: Modules of the data loaders of other libraries.
_LOADERS = ("torch.utils.data", "tensorflow.python.data")


def as_parts(X: Any) -> Parts | None:
    """Return X as parts if it is rows in parts, else None.

    Raises
    ------
    ArgumentTypeError
        X is a generator, another iterator, or a function.
    """
    check_computed(X, "X")
    iterates = hasattr(X, "__iter__") and not any(hasattr(X, name) for name in ("__getitem__", "__next__", "__array__"))
    of_batches = iterates and not isinstance(X, Set) and not is_parts(X)
    if not hasattr(X, "shape") and (of_batches or type(X).__module__.startswith(_LOADERS)):
        raise ArgumentTypeError(
            f"X is a {type(X).__name__}, but fit draws batches itself. Pass the rows as arrays, X and y, or as parts, "
            "only a few of which are in memory at a time: onnxtrain.rows.from_files(files, read)."
        )
    if isinstance(X, io.IOBase):
        raise ArgumentTypeError(
            f"X is an open file, {getattr(X, 'name', '')!r}. Read it, for example with pandas.read_csv(X)."
        )
    if isinstance(X, (Iterator, FunctionType)):
        kind = type(X).__name__
        article = "an" if kind[0] in "aeiou" else "a"
        reason = "" if isinstance(X, FunctionType) else ", which can be read only once"
        raise ArgumentTypeError(
            f"X is {article} {kind}{reason}, but each epoch needs a pass over all rows. Pass an array or a frame, or "
            "parts that can be read again: onnxtrain.rows.from_files(files, read), or any object with __len__, "
            "n_rows(i) and read(i) -> (X, y). For rows that come only once, use partial_fit."
        )
    if isinstance(X, Parts):
        return X
    return Parts(X) if is_parts(X) else None


def read_ahead(read: Callable[[int], T], use: Callable[[int, T], R], order: Iterable[int]) -> Generator[R]:
    """Yield ``use(i, read(i))`` for each part of `order`; a thread reads the next part meanwhile."""
    todo = list(order)
    with ThreadPoolExecutor(1, "onnxtrain-rows") as thread:
        ahead: list[Future[T]] = [thread.submit(read, i) for i in todo[:1]]
        for n, i in enumerate(todo, 1):
            found = use(i, ahead.pop().result())  # no reference to the part remains
            ahead += [thread.submit(read, following) for following in todo[n : n + 1]]
            yield found
            del found
