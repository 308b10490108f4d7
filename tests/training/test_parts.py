"""Rows in parts: an epoch visits each row once, mixed, with few parts in memory; of few parts it is that of arrays."""

import math
import weakref
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from onnxtrain.runtime.device import find_device
from onnxtrain.training.data import TrainingData
from onnxtrain.training.parts import PartedData

N = 1003


def data_of(n=N, *, weighted=False, sparse=False):
    """Rows whose features, labels and weights all hold the number of the row."""
    number = np.arange(1, n + 1, dtype=np.float32)[:, None]
    x = scipy.sparse.csr_matrix(number) if sparse else number
    weight = np.where(number % 3 == 0, 0, number) if weighted else None
    return TrainingData({"X": x}, number, weight, {"X": np.dtype(np.float32)})


class Reader:
    """Slices of arrays."""

    def __init__(self, whole, ends):
        self.whole, self.slices = whole, [slice(a, b) for a, b in zip([0, *ends], [*ends, N], strict=True)]

    def __len__(self):
        return len(self.slices)

    def read(self, i):
        return self.slices[i]

    def check_lengths(self):
        pass  # arrays do not change

    def check(self, i, rows):
        whole = self.whole
        weight = None if whole.weight is None else whole.weight[rows]
        part = replace(whole, features={"X": whole.features["X"][rows]}, label=whole.label[rows].copy(), weight=weight)
        return part


def parted(whole, n_parts, open_parts=8):
    """Rows in parts of different lengths."""
    ends = np.sort(np.random.RandomState(1).choice(np.arange(1, N), n_parts - 1, replace=False)).tolist()
    reader = Reader(whole, ends)
    parts = [reader.check(i, reader.read(i)) for i in range(n_parts)]
    weights = None if whole.weight is None else tuple(part.total_weight for part in parts)
    return PartedData(reader, tuple(part.n_rows for part in parts), weights, parts[0], open_parts, "digest")


def visited(data, size, seed=0):
    """The batches of an epoch: features, labels and weights of each."""
    random_state = None if seed is None else np.random.RandomState(seed)
    return [batch.piece for batch in data.epoch(size, random_state)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "n_parts, open_parts, size, seed",
    [(1, 8, 200, 0), (5, 8, 64, 3), (8, 8, 2000, 1), (30, 8, 64, None), (30, 8, 1003, None)],
    ids=["one part", "few", "a batch of all", "many, not shuffled", "many, a batch of all"],
)
def test_the_batches_are_those_of_arrays(n_parts, open_parts, size, seed, weighted, sparse):
    whole = data_of(weighted=weighted, sparse=sparse)
    expected, found = visited(whole, size, seed), visited(parted(whole, n_parts, open_parts), size, seed)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a.label, b.label)
        np.testing.assert_array_equal(a.features["X"], b.features["X"])
        if weighted:
            np.testing.assert_array_equal(a.weight, b.weight)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_parts, open_parts, size", [(30, 8, 64), (30, 1, 64), (200, 3, 7), (9, 8, 500)])
def test_each_row_is_visited_once(n_parts, open_parts, size, weighted):
    whole = data_of(weighted=weighted)
    found = visited(parted(whole, n_parts, open_parts), size)
    assert {piece.n_rows for piece in found[:-1]} <= {size}
    labels = np.concatenate([piece.label for piece in found])
    np.testing.assert_array_equal(np.sort(labels, axis=0), whole.label[whole.rows])
    np.testing.assert_array_equal(np.concatenate([piece.features["X"] for piece in found]), labels)


def test_an_epoch_draws_another_order_of_parts_and_rows():
    data = parted(data_of(), 30)
    random_state = np.random.RandomState(0)
    first, second = (np.concatenate([b.piece.label for b in data.epoch(64, random_state)]) for _ in range(2))
    assert np.mean(first == second) < 0.05


def test_rows_of_sorted_parts_are_mixed():
    data = parted(data_of(), 40)
    batches = [piece.label for piece in visited(data, 50)]
    spread = [np.ptp(labels) / N for labels in batches if len(labels) == 50]  # the last has three rows
    assert np.mean(spread) > 0.5  # of the rows as they are sorted: 0.05
    assert min(spread) > 0.2


@pytest.mark.parametrize("seed", range(5))
def test_every_stretch_of_sorted_rows_has_each_half_and_quarter(seed):
    """Else the last steps of an epoch would learn the share of a label in the parts that are open."""
    whole = data_of()
    reader = Reader(whole, (np.arange(1, 80) * N // 80).tolist())
    sizes = tuple(part.stop - part.start for part in reader.slices)
    data = PartedData(reader, sizes, None, whole, 8, "digest")
    labels = np.concatenate([piece.label[:, 0] for piece in visited(data, 50, seed)])
    for stretch in np.array_split(labels, 10):
        quarters = np.histogram(stretch, bins=np.linspace(1, N, 5))[0] / len(stretch)
        np.testing.assert_allclose(quarters, 0.25, atol=0.06)
        np.testing.assert_allclose(quarters[:2].sum(), 0.5, atol=0.06)


@pytest.mark.parametrize("open_parts", [1, 3, 8])
def test_so_many_parts_are_in_memory(open_parts):
    data = parted(data_of(), 40, open_parts)
    alive, most = [], 0
    check = data.reader.check

    def counted(i, part):
        nonlocal most
        found = check(i, part)
        alive.append(weakref.ref(found))
        most = max(most, sum(ref() is not None for ref in alive))
        return found

    data.reader.check = counted
    for batch in data.epoch(10, np.random.RandomState(0)):
        del batch
    assert most <= open_parts + 1


def test_the_next_part_is_read_while_one_is_used():
    data = parted(data_of(), 4, 1)
    read, seen = data.reader.read, []
    data.reader.read = lambda i: seen.append(i) or read(i)
    parts = data._read(range(4))
    next(parts)
    parts.close()  # waits for the thread
    assert seen == [0, 1]


def test_an_error_of_reading_reaches_the_epoch():
    data = parted(data_of(), 4)

    def read(i):
        raise OSError("the disk is gone")

    data.reader.read = read
    with pytest.raises(OSError, match="the disk is gone"):
        visited(data, 10)


def test_pieces_come_in_the_order_of_the_rows():
    whole = data_of(weighted=True)
    found = [piece.label for piece in parted(whole, 30).pieces(find_device("cpu"))]
    np.testing.assert_array_equal(np.concatenate(found), whole.label[whole.rows])


def test_labels_are_shuffled_across_parts():
    data = parted(data_of(), 30).with_shuffled_labels()
    first, second = (list(data.pieces(find_device("cpu"))) for _ in range(2))
    labels, rows = (np.concatenate(found) for found in zip(*((p.label, p.features["X"]) for p in first), strict=True))
    np.testing.assert_array_equal(np.sort(labels, axis=0), np.sort(rows, axis=0))
    assert np.corrcoef(labels[:, 0], rows[:, 0])[0, 1] < 0.1
    np.testing.assert_array_equal(labels, np.concatenate([p.label for p in second]))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_fraction_of_each_part_is_held_out(weighted):
    whole = data_of(weighted=weighted)
    trained, held_out = parted(whole, 12).hold_out(0.2, np.random.RandomState(0))
    labels = [np.concatenate([piece.label for piece in visited(side, 64)])[:, 0] for side in (trained, held_out)]
    np.testing.assert_array_equal(np.sort(np.concatenate(labels)), whole.label[whole.rows, 0])
    assert [len(found) for found in labels] == [trained.n_rows, held_out.n_rows]
    assert held_out.n_rows == math.ceil(0.2 * whole.n_rows)
    sums = [found.sum(dtype=np.float64) if weighted else len(found) for found in labels]
    np.testing.assert_allclose([trained.total_weight, held_out.total_weight], sums, rtol=1e-12)
    again = parted(whole, 12).hold_out(0.2, np.random.RandomState(0))[1]
    assert again.fingerprint() == held_out.fingerprint() != trained.fingerprint()
