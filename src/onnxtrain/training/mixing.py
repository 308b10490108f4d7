"""The order of the rows of an epoch whose parts are read one after the other.

Of k open parts, k - 1 form a reserve of waiting rows. Each part that is read joins the reserve. As many rows as the
part has then leave in random order, and the remaining rows of the part take their places::

    parts in a        reserve of waiting rows             rows of the epoch
    balanced order    +---------------------+
    ... c  b  a  -->  | of all parts so far | ----------> of each stratum the share that can
                      +---------------------+             last until the epoch is over

The stratum of a row is its class if the classes of all parts are known, else the section of the file that contains it.
If the rows are sorted, for example by label, each part may hold a single class. The steps should still see each class
in its overall proportion at all times, above all at the end. The order of the parts and the rows that leave are chosen
for this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse

from onnxtrain.errors import DataError
from onnxtrain.training.data import TrainingData, batches, bytes_of_a_row, dense

#: The bytes of mixed rows that are gathered at once; gathering single batches takes twice as long.
_MIXED_BYTES = 2**22

#: The number of randomly drawn parts from which the next part is chosen.
_CANDIDATES = 64

#: Parts that hold more than this share of a stratum are among the candidates from the second part on.
_MUCH = 1 / 8

#: The number of future parts, as a multiple of the open parts, for which rows are held back.
_FORESEEN = 4


# ------------------------------------------------------------------ strata


@dataclass(frozen=True)
class Strata:
    """The number of rows of each stratum in each part.

    Attributes
    ----------
    counts : ndarray (n_parts, n_strata)
        The counts, approximate if rows are held out or have weight zero.
    by_label : bool
        Whether the stratum of a row is its label; otherwise it is that of its part.
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


def to_balance(counts: np.ndarray, sizes: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts that the order of the parts balances, strata and sections of all lengths, and their weights.

    Sorted files have groups of rows that no label tells: the sections are the file cut into 2, 3, up to k + 2. Those of
    one length would balance the groups of theirs only. The strata weigh as much as all sections.
    """
    of_sections = [sections(sizes, n) for n in range(2, k + 3)]
    weights = [np.full(counts.shape[1], len(of_sections)), *(np.ones(found.shape[1]) for found in of_sections)]
    return np.hstack([counts, *of_sections]), np.concatenate(weights)


# ---------------------------------------------------------------- the order


def balanced_order(
    counts: np.ndarray, sizes: np.ndarray, random_state: np.random.RandomState, weights: np.ndarray | None = None
) -> list[int]:
    r"""Return the parts in a random order in which no stratum lags behind the others, as far as possible.

    The first part is drawn at random. The next part, out of 64 drawn parts, is the one with the least

    .. math:: \sum_s w_s \max(0, n / N - n_s / N_s)^2

    where n of all N rows and :math:`n_s` of the :math:`N_s` rows of stratum s have been read after it, and :math:`w_s`
    is the weight of the stratum, 1 by default. Parts that hold much of a stratum are drawn first, so that the few parts
    of a rare class are read at the beginning, and its rows wait. Read halfway, they would be missing before and twice
    as frequent afterwards.

    Examples
    --------
    >>> sorted_by_label = np.array([[9, 0]] * 4 + [[0, 9]])
    >>> order = balanced_order(sorted_by_label, np.full(5, 9), np.random.RandomState(0))
    >>> [i // 4 for i in order]
    [0, 1, 0, 0, 0]
    """
    present = counts.any(axis=0)
    weights = np.ones(len(present)) if weights is None else weights
    counts, weights = counts[:, present], weights[present]
    of_strata, n_rows = counts.sum(axis=0), sizes.sum()
    scarce = (counts > _MUCH * of_strata).any(axis=1)
    left: list[int] = random_state.permutation(len(counts)).tolist()
    left[1:] = sorted(left[1:], key=lambda i: not scarce[i])
    order: list[int] = []
    read, n_read = np.zeros(len(of_strata)), 0
    while left:
        some = left[: _CANDIDATES if order else 1]
        behind = (n_read + sizes[some])[:, None] / n_rows - (read + counts[some]) / of_strata
        chosen = left.pop(int(np.argmin(np.maximum(behind, 0) ** 2 @ weights)))
        order.append(chosen)
        read, n_read = read + counts[chosen], n_read + sizes[chosen]
    return order


# ------------------------------------------------------ the rows that leave


@dataclass(frozen=True)
class Outlook:
    """The plan that decides which rows leave the reserve after each part is read.

    Attributes
    ----------
    read : ndarray (n_parts, n_strata)
        The cumulated rows of each stratum after each part, in reading order.
    due : ndarray (n_parts,)
        The number of rows that must have left by then.
    n_waiting : int
        The number of rows that can wait.
    n_foreseen : int
        The number of future parts that are considered.
    """

    read: np.ndarray
    due: np.ndarray
    n_waiting: int
    n_foreseen: int

    @classmethod
    def of(cls, counts: np.ndarray, n_waiting: int, n_foreseen: int) -> Self:
        """Return the plan of an epoch from the strata of its parts, in reading order."""
        read = np.cumsum(counts, axis=0)
        due = np.append(np.maximum(read[:-1].sum(axis=1) - n_waiting, 0), read[-1].sum())
        return cls(read, due, n_waiting, n_foreseen)

    def leaving(self, step: int, gone: np.ndarray, present: np.ndarray) -> np.ndarray:
        """Return how many of the present rows of each stratum leave after a part has been read.

        After the last part, the rows that stay, at most half, have all strata in their overall proportions, because the
        last steps of an epoch decide which stratum the model favors.
        """
        n, end = int(present.sum()), len(self.due) - 1
        if step == end:
            return present - apportioned(min(n // 2, self.n_waiting), self.read[-1], present)
        times = np.append(np.arange(step, min(step + self.n_foreseen, end)), end)
        return apportioned(max(n - self.n_waiting, 0), lasting_shares(gone, self.read[times], self.due[times]), present)


def lasting_shares(gone: np.ndarray, read: np.ndarray, due: np.ndarray) -> np.ndarray:
    """Return the proportions in which rows of each stratum can keep leaving without any stratum running out.

    Parameters
    ----------
    gone : ndarray (n_strata,)
        The number of rows of each stratum that have left.
    read : ndarray (n_times, n_strata)
        The number that will have been read, at future times.
    due : ndarray (n_times,)
        The number of rows of all strata that will have left.

    Examples
    --------
    The next rows of the second stratum come after 20 rows have left; until then its 5 waiting rows are a quarter:

    >>> lasting_shares(np.zeros(2), np.array([[15, 5], [25, 15]]), np.array([20, 40])).tolist()
    [0.625, 0.25]
    """
    return np.maximum(((read - gone) / np.maximum(due - gone.sum(), 1)[:, None]).min(axis=0), 0)


def apportioned(n: int, share: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Divide n rows among strata in the proportions `share`, at most `most` of each; the result is integer.

    Examples
    --------
    >>> apportioned(10, np.array([0.5, 0.3, 0.2]), np.array([9, 1, 9])).tolist()
    [6, 1, 3]
    """
    wanted, share = np.zeros(len(share)), np.maximum(share, 1e-9)
    while n - wanted.sum() > 1e-6:  # each turn finishes or exhausts a stratum
        room = most - wanted > 1e-9
        wanted += np.where(room, (n - wanted.sum()) * share / share[room].sum(), 0)
        wanted = np.minimum(wanted, most)
    whole = np.floor(wanted + 1e-9).astype(np.int64)
    rounded_up = np.argsort(whole - wanted, kind="stable")[: n - whole.sum()]
    whole[rounded_up] += 1
    return whole


def drawn(strata: np.ndarray, numbers: np.ndarray, random_state: np.random.RandomState) -> np.ndarray:
    """Draw rows of each stratum, as many as given; return a mask of the drawn rows.

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
    """Yield the rows of parts, read in `order`, in pieces; the rows of k - 1 parts wait meanwhile."""
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
        del data  # free the part before waiting for the next
    if reserve is not None:
        yield from shuffled([reserve.data], [reserve.rows], random_state)


class Reserve:
    """Waiting rows in memory; new rows are written to the places of rows that have left.

    Parameters
    ----------
    like : TrainingData
        Rows whose types and shapes are used.
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
        self.stratum = np.full(n_places, -1)  # -1: a free place

    @property
    def rows(self) -> np.ndarray:
        """The occupied places."""
        return np.flatnonzero(self.stratum >= 0)

    def exchange(self, leaving: np.ndarray, data: TrainingData, rows: np.ndarray, stratum: np.ndarray) -> None:
        """Remove the leaving rows and add rows of a part."""
        _check_shapes([self.data, data])
        self.stratum[leaving] = -1
        places = np.flatnonzero(self.stratum < 0)[: len(rows)]
        self.stratum[places] = stratum
        mine, weight = self.data, self.data.weight
        given: Any = data.weight  # all parts have weights, or none has
        self.data = replace(
            mine,
            features={name: _put(x, places, data.features[name][rows]) for name, x in mine.features.items()},
            label=_put(_wide(mine.label, data.label), places, data.label[rows]),
            weight=None if weight is None else _put(_wide(weight, given), places, given[rows]),
        )


def _wide(array: np.ndarray, x: Any) -> np.ndarray:
    """Return an array in a type that also holds the values of `x`, without a copy if it already does."""
    return array.astype(np.promote_types(array.dtype, x.dtype), copy=False)


def _put(array: Any, places: np.ndarray, rows: Any) -> Any:
    """Write rows to places of an array; return the same array, or a new one if it is sparse."""
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
    """Yield the chosen rows of all parts in one random order, in pieces."""
    which = np.repeat(np.arange(len(parts)), list(map(len, rows)))
    places = np.concatenate(rows)
    order = random_state.permutation(len(places))
    row = bytes_of_a_row(parts[0].features, parts[0].dtypes, parts[0].stored)
    for some in batches(len(order), max(1, _MIXED_BYTES // row)):
        yield gather(parts, which[order[some]], places[order[some]])


def gather(parts: Sequence[TrainingData], which: np.ndarray, rows: np.ndarray) -> TrainingData:
    """Return rows of several parts as arrays: row i is row ``rows[i]`` of part ``which[i]``.

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
    """Raise if rows have different shapes, as strings that were padded separately in each part."""
    for name, x in parts[0].features.items():
        for part in parts[1:]:
            if (shape := part.features[name].shape[1:]) != x.shape[1:]:
                raise DataError(
                    f"Rows of {name!r} have shape {x.shape[1:]} in one part, but {shape} in another. A batch mixes "
                    "rows of several parts. Pad the rows of all parts to the same length in read(i)."
                )


def _in_places(found: Sequence[Any], places: Sequence[np.ndarray]) -> Any:
    """Return the rows of several arrays, each row at its given place."""
    if scipy.sparse.issparse(found[0]):
        return scipy.sparse.vstack(found, format="csr")[np.argsort(np.concatenate(places))]
    lengths = [len(place) for place in places]
    rows = np.empty((sum(lengths), *found[0].shape[1:]), np.result_type(*found))
    for array, place in zip(found, places, strict=True):
        rows[place] = array
    return rows
