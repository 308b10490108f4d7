"""The order of the rows of an epoch whose parts are read one after the other.

Of k open parts, k - 1 are a reserve of waiting rows. Each part that is read joins them; as many rows as it has leave,
in a drawn order, and what is left of the part takes their places::

    parts in a        reserve of waiting rows             rows of the epoch
    balanced order    +---------------------+
    ... c  b  a  -->  | of all parts so far | ----------> of each stratum the share that can
                      +---------------------+             last until the epoch is over

The stratum of a row is its class if the classes of all parts are known, else the section of the file it is from. Parts
that are sorted, by label for example, hold one class each. The steps should still see each class at each time in its
share of all rows, most of all at the end: the order of the parts and the rows that leave are chosen for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse

from onnxtrain.errors import DataError
from onnxtrain.training.data import TrainingData, batches, bytes_of_a_row, dense

#: Bytes of mixed rows that are put together at once: of single batches it takes twice the time.
_MIXED_BYTES = 2**22

#: Parts, drawn, of which the next one is chosen.
_CANDIDATES = 64

#: Parts to come, as a multiple of the open ones, for which rows are held back.
_FORESEEN = 4


# ------------------------------------------------------------------ strata


@dataclass(frozen=True)
class Strata:
    """The number of rows of each stratum in each part.

    Attributes
    ----------
    counts : ndarray (n_parts, n_strata)
        About, if rows are held out or have weight zero.
    by_label : bool
        Whether the stratum of a row is its label; else it is that of its part.
    """

    counts: np.ndarray
    by_label: bool

    def of(self, part: int, data: TrainingData, rows: np.ndarray) -> np.ndarray:
        """Return the strata of rows of a part."""
        if self.by_label:
            return data.label[rows, 0].astype(np.int64)
        return np.full(len(rows), np.argmax(self.counts[part]))


def sections(sizes: np.ndarray, k: int) -> np.ndarray:
    """Return the number of rows of each part in each of k sections of the file.

    Examples
    --------
    >>> sections(np.array([5, 5, 3, 4]), 2).tolist()
    [[5, 0], [5, 0], [0, 3], [0, 4]]
    """
    n = len(sizes)
    return np.where(np.arange(n)[:, None] * k // n == np.arange(k), sizes[:, None], 0)


# ---------------------------------------------------------------- the order


def balanced_order(counts: np.ndarray, sizes: np.ndarray, random_state: np.random.RandomState) -> list[int]:
    r"""Return parts in a drawn order in which no stratum is read later than the others, as nearly as they can.

    The first part is drawn. The next one, of 64 that are drawn, is that of the least

    .. math:: \sum_s \max(0, n / N - n_s / N_s)^2

    where n of N rows have been read then, and :math:`n_s` of the :math:`N_s` rows of stratum s. The one part of a rare
    class is read at the beginning, and its rows wait: read in its turn, halfway, they would be missing until then, and
    be twice as frequent afterwards.

    Examples
    --------
    >>> sorted_by_label = np.array([[9, 0]] * 4 + [[0, 9]])
    >>> order = balanced_order(sorted_by_label, np.full(5, 9), np.random.RandomState(0))
    >>> [i // 4 for i in order]
    [0, 1, 0, 0, 0]
    """
    counts = counts[:, counts.any(axis=0)]
    of_strata, n_rows = counts.sum(axis=0), sizes.sum()
    left: list[int] = random_state.permutation(len(counts)).tolist()
    order: list[int] = []
    read, n_read = np.zeros(len(of_strata)), 0
    while left:
        some = left[: _CANDIDATES if order else 1]
        behind = (n_read + sizes[some])[:, None] / n_rows - (read + counts[some]) / of_strata
        chosen = left.pop(int(np.argmin((np.maximum(behind, 0) ** 2).sum(axis=1))))
        order.append(chosen)
        read, n_read = read + counts[chosen], n_read + sizes[chosen]
    return order


# ------------------------------------------------------ the rows that leave


@dataclass(frozen=True)
class Outlook:
    """The plan by which rows leave the reserve as one part after the other is read.

    Attributes
    ----------
    read : ndarray (n_parts, n_strata)
        The rows of each stratum in the parts read so far, in their order.
    due : ndarray (n_parts,)
        How many rows have left by then.
    n_waiting : int
        How many can wait.
    n_foreseen : int
        How many parts are looked at ahead.
    """

    read: np.ndarray
    due: np.ndarray
    n_waiting: int
    n_foreseen: int

    @classmethod
    def of(cls, counts: np.ndarray, n_waiting: int, n_foreseen: int) -> Self:
        """Return the outlook of an epoch from the strata of its parts in their order."""
        read = np.cumsum(counts, axis=0)
        due = np.append(np.maximum(read[:-1].sum(axis=1) - n_waiting, 0), read[-1].sum())
        return cls(read, due, n_waiting, n_foreseen)

    def leaving(self, step: int, gone: np.ndarray, present: np.ndarray) -> np.ndarray:
        """Return how many rows of each stratum leave when a part has been read, of those that are present.

        After the last part, so many that the rest, at most half, has all strata in their shares: the last steps
        of an epoch decide which of them the model favors.
        """
        n, end = int(present.sum()), len(self.due) - 1
        if step == end:
            return present - apportioned(min(n // 2, self.n_waiting), self.read[-1], present)
        times = np.append(np.arange(step, min(step + self.n_foreseen, end)), end)
        return apportioned(max(n - self.n_waiting, 0), lasting_shares(gone, self.read[times], self.due[times]), present)


def lasting_shares(gone: np.ndarray, read: np.ndarray, due: np.ndarray) -> np.ndarray:
    """Return the shares at which rows of each stratum can go on to leave without running out.

    Parameters
    ----------
    gone : ndarray (n_strata,)
        How many rows of each stratum have left.
    read : ndarray (n_times, n_strata)
        How many will have been read, at times to come.
    due : ndarray (n_times,)
        How many rows of all strata will have left.

    Examples
    --------
    Rows of the second stratum come again when 20 have left; until then the 5 that wait are a quarter:

    >>> lasting_shares(np.zeros(2), np.array([[15, 5], [25, 15]]), np.array([20, 40])).tolist()
    [0.625, 0.25]
    """
    return np.maximum(((read - gone) / np.maximum(due - gone.sum(), 1)[:, None]).min(axis=0), 0)


def apportioned(n: int, share: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return how many of n rows are of each stratum: in these shares, but at most so many; integers.

    Examples
    --------
    >>> apportioned(10, np.array([0.5, 0.3, 0.2]), np.array([9, 1, 9])).tolist()
    [6, 1, 3]
    """
    wanted, share = np.zeros(len(share)), np.maximum(share, 1e-9)
    while n - wanted.sum() > 1e-6:  # each turn ends, or exhausts a stratum
        room = most - wanted > 1e-9
        wanted += np.where(room, (n - wanted.sum()) * share / share[room].sum(), 0)
        wanted = np.minimum(wanted, most)
    whole = np.floor(wanted + 1e-9).astype(np.int64)
    rounded_up = np.argsort(whole - wanted, kind="stable")[: n - whole.sum()]
    whole[rounded_up] += 1
    return whole


def drawn(strata: np.ndarray, numbers: np.ndarray, random_state: np.random.RandomState) -> np.ndarray:
    """Return whether each row is among those that are drawn, so many of each stratum.

    Examples
    --------
    >>> drawn(np.array([0, 0, 0, 1]), np.array([2, 0]), np.random.RandomState(0)).tolist()
    [False, True, True, False]
    """
    order = random_state.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    starts = np.searchsorted(strata[order], np.arange(len(numbers)))
    found = np.zeros(len(strata), dtype=bool)
    for start, n in zip(starts, numbers, strict=True):
        found[order[start : start + n]] = True
    return found


def mixed(
    parts: Iterator[TrainingData],
    order: Sequence[int],
    strata: Strata,
    k: int,
    random_state: np.random.RandomState,
) -> Iterator[TrainingData]:
    """Yield the rows of parts, read in an order, some at a time; those of k - 1 parts wait in between."""
    n_waiting = (k - 1) * int(strata.counts.sum(axis=1).max().round())
    outlook = Outlook.of(strata.counts[order], n_waiting, _FORESEEN * k)
    gone = np.zeros(strata.counts.shape[1], np.int64)
    reserve = None
    for step, i in enumerate(order):
        data = next(parts)
        rows = data.rows
        reserve = Reserve(data, n_waiting) if reserve is None else reserve
        waiting = reserve.rows
        stratum = np.concatenate([reserve.stratum[waiting], strata.of(i, data, rows)])
        numbers = outlook.leaving(step, gone, np.bincount(stratum, minlength=len(gone)))
        gone += numbers
        of_reserve, of_part = np.split(drawn(stratum, numbers, random_state), [len(waiting)])
        yield from shuffled([reserve.data, data], [waiting[of_reserve], rows[of_part]], random_state)
        reserve.exchange(waiting[of_reserve], data, rows[~of_part], stratum[len(waiting) :][~of_part])
        del data  # before the next is waited for
    if reserve is not None:
        yield from shuffled([reserve.data], [reserve.rows], random_state)


class Reserve:
    """Rows in memory that wait for their turn: new ones are written to the places of those that have left.

    Parameters
    ----------
    like : TrainingData
        Types and shapes of the rows.
    n_places : int
    """

    def __init__(self, like: TrainingData, n_places: int):
        def places(x: Any, dtype: np.dtype) -> Any:
            shape = (n_places, *x.shape[1:])
            return scipy.sparse.csr_matrix(shape, dtype=x.dtype) if scipy.sparse.issparse(x) else np.empty(shape, dtype)

        self.data = replace(
            like,
            features={name: places(x, like.dtypes[name]) for name, x in like.features.items()},
            label=places(like.label, like.label.dtype),
            weight=None if like.weight is None else places(like.weight, like.weight.dtype),
            chosen=None,
        )
        self.stratum = np.full(n_places, -1)  # -1: the place is free

    @property
    def rows(self) -> np.ndarray:
        """The places that are taken."""
        return np.flatnonzero(self.stratum >= 0)

    def exchange(self, leaving: np.ndarray, data: TrainingData, rows: np.ndarray, stratum: np.ndarray) -> None:
        """Let rows leave, and let rows of a part wait."""
        _check_shapes([self.data, data])
        self.stratum[leaving] = -1
        places = np.flatnonzero(self.stratum < 0)[: len(rows)]
        self.stratum[places] = stratum
        mine, weight = self.data, self.data.weight
        given: Any = data.weight  # all parts have weights or none has
        self.data = replace(
            mine,
            features={name: _put(x, places, data.features[name][rows]) for name, x in mine.features.items()},
            label=_put(_wide(mine.label, data.label), places, data.label[rows]),
            weight=None if weight is None else _put(_wide(weight, given), places, given[rows]),
        )


def _wide(array: np.ndarray, x: Any) -> np.ndarray:
    """Return an array of a type that holds the values of another, the same one if it does."""
    return array.astype(np.promote_types(array.dtype, x.dtype), copy=False)


def _put(array: Any, places: np.ndarray, rows: Any) -> Any:
    """Return an array with rows at places: the same array, a new one if it is sparse."""
    if not scipy.sparse.issparse(array):
        array[places] = dense(rows, array.dtype)
        return array
    index = np.arange(array.shape[0])
    index[places] = array.shape[0] + np.arange(len(places))
    return scipy.sparse.vstack([array, rows], format="csr")[index]


# ------------------------------------------------------------ rows as arrays


def shuffled(
    parts: Sequence[TrainingData], rows: Sequence[np.ndarray], random_state: np.random.RandomState
) -> Iterator[TrainingData]:
    """Yield rows of each part in one drawn order, some at a time."""
    which = np.repeat(np.arange(len(parts)), list(map(len, rows)))
    places = np.concatenate(rows)
    order = random_state.permutation(len(places))
    for some in batches(len(order), max(1, _MIXED_BYTES // bytes_of_a_row(parts[0].features, parts[0].dtypes))):
        yield gather(parts, which[order[some]], places[order[some]])


def gather(parts: Sequence[TrainingData], which: np.ndarray, rows: np.ndarray) -> TrainingData:
    """Return rows of several parts as arrays: row ``rows[i]`` of part ``which[i]`` is row i.

    Examples
    --------
    >>> import numpy as np
    >>> data = [TrainingData({"X": np.full((2, 1), k)}, np.full((2, 1), k), None, {}) for k in (10, 20)]
    >>> gather(data, np.array([1, 0, 1]), np.array([0, 1, 1])).label.ravel().tolist()
    [20, 10, 20]
    """
    places = [np.flatnonzero(which == k) for k in range(len(parts))]
    used = [(part, place) for part, place in zip(parts, places, strict=True) if len(place)]
    _check_shapes([part for part, _ in used])

    def of(arrays: Sequence[Any]) -> Any:
        found = [array[rows[place]] for array, (_, place) in zip(arrays, used, strict=True)]
        return _in_places(found, [place for _, place in used])

    first = used[0][0]
    return replace(
        first,
        features={name: of([part.features[name] for part, _ in used]) for name in first.features},
        label=of([part.label for part, _ in used]),
        weight=None if first.weight is None else of([part.weight for part, _ in used]),
        chosen=None,
    )


def _check_shapes(parts: Sequence[TrainingData]) -> None:
    """Refuse rows of different shapes, as those of texts that each part has filled up for itself."""
    for name, x in parts[0].features.items():
        for part in parts[1:]:
            if (shape := part.features[name].shape[1:]) != x.shape[1:]:
                raise DataError(
                    f"Rows of {name!r} have the shape {x.shape[1:]} in one part, {shape} in another. Those of several "
                    "parts are mixed in a batch: let read(i) fill up the rows of all parts to one length."
                )


def _in_places(found: Sequence[Any], places: Sequence[np.ndarray]) -> Any:
    """Return the rows of arrays, each at its place."""
    if scipy.sparse.issparse(found[0]):
        return scipy.sparse.vstack(found, format="csr")[np.argsort(np.concatenate(places))]
    lengths = [len(place) for place in places]
    rows = np.empty((sum(lengths), *found[0].shape[1:]), np.result_type(*found))
    for array, place in zip(found, places, strict=True):
        rows[place] = array
    return rows
