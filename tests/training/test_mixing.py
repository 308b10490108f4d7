"""The rows of parts are mixed: classes, or sections of the file, in their shares all along an epoch."""

import numpy as np
import pytest
import scipy.sparse

from onnxtrain.training.data import TrainingData
from onnxtrain.training.mixing import (
    Reserve,
    Strata,
    apportioned,
    balanced_order,
    drawn,
    lasting_shares,
    mixed,
    sections,
    to_balance,
)


def epoch(labels, n_parts, k, seed=0, *, by_label=True):
    """The numbers of the rows in the order of an epoch, of parts that hold them as they come."""
    cuts = np.array_split(np.arange(len(labels)), n_parts)
    sizes = np.array(list(map(len, cuts)))
    parts = [
        TrainingData({"X": c[:, None].astype(np.float64)}, labels[c][:, None], None, {"X": np.dtype(np.float64)})
        for c in cuts
    ]
    random_state = np.random.RandomState(seed)
    counts = sections(sizes, k)
    if by_label:
        counts = np.array([np.bincount(labels[c], minlength=labels.max() + 1) for c in cuts])
    counts_to_balance, weights = to_balance(counts, sizes, k)
    order = balanced_order(counts_to_balance, sizes, random_state, weights)
    found = mixed(iter([parts[i] for i in order]), order, Strata(counts, by_label), k, random_state)
    return np.concatenate([data.features["X"][:, 0] for data in found]).astype(int)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_parts", [24, 64, 200])
@pytest.mark.parametrize("shares", [[0.1] * 10, [0.5, 0.5], [0.35, 0.3, 0.2, 0.1, 0.05]], ids=["ten", "two", "skewed"])
def test_each_class_has_its_share_at_each_time(shares, n_parts, seed):
    """Of ten classes eight open parts hold eight at most: the others come later, and the last steps see all."""
    labels = np.repeat(np.arange(len(shares)), (np.array(shares) * 20_000).astype(int))
    order = epoch(labels, n_parts, 8, seed)
    assert len(np.unique(order)) == len(labels) == len(order)
    found = np.array(
        [np.bincount(labels[rows], minlength=len(shares)) / len(rows) for rows in np.array_split(order, 20)]
    )
    error = np.abs(found - shares) / shares
    last = order[-3 * len(labels) // n_parts :]  # drawn of rows with all classes in their shares
    deviation = np.bincount(labels[last], minlength=len(shares)) / len(last) - shares
    assert (np.abs(deviation) < 4 * np.sqrt(np.multiply(shares, np.subtract(1, shares)) / len(last))).all()
    assert error[-5:].max() < 1  # one part of a class of 5 % is a third of its rows
    assert error.mean() < 0.12


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shares", [[0.99, 0.01], [0.6, 0.3, 0.09, 0.01]])
def test_a_rare_class_is_not_missing_until_its_part_is_read_halfway(shares, seed):
    labels = np.repeat(np.arange(len(shares)), (np.array(shares) * 20_000).astype(int))
    order = epoch(labels, 64, 8, seed)
    of_rare = np.array([np.mean(labels[rows] == len(shares) - 1) for rows in np.array_split(order, 5)])
    np.testing.assert_allclose(of_rare, shares[-1], rtol=0.2)


@pytest.mark.parametrize("n_rare", [1, 3])
def test_parts_of_a_rare_class_are_read_first_among_many(n_rare):
    counts = np.full((500, 2), [10, 0])
    counts[200 : 200 + n_rare] = [0, 10]
    sizes = counts.sum(axis=1)
    found, weights = to_balance(counts, sizes, 8)
    order = balanced_order(found, sizes, np.random.RandomState(0), weights)
    assert order.index(200) <= n_rare + 1


@pytest.mark.parametrize("seed", range(3))
def test_each_section_of_the_file_has_its_share_if_there_are_no_classes(seed):
    order = epoch(np.zeros(8000, np.int64), 80, 8, seed, by_label=False)
    found = np.array([np.histogram(rows, 8, (0, 8000))[0] / len(rows) for rows in np.array_split(order, 20)])
    np.testing.assert_allclose(found[:-2], 1 / 8, atol=0.03)
    np.testing.assert_allclose(found[-2:], 1 / 8, atol=0.06)  # the last ones, of eight parts, are drawn together


@pytest.mark.parametrize("n_groups, most", [(3, 0.11), (5, 0.19), (7, 0.27), (10, 0.38)])
def test_groups_that_no_label_tells_are_read_in_turn(n_groups, most):
    """Each of the groups has half of its rows in each class; sections of one length leave errors of 0.15 to 0.48."""
    labels = np.arange(24_000) % 2
    errors = []
    for seed in range(3):
        order = epoch(labels, 120, 8, seed)
        found = np.array(
            [np.histogram(rows, n_groups, (0, 24_000))[0] / len(rows) for rows in np.array_split(order, 20)]
        )
        errors.append(np.sqrt(np.mean((found * n_groups - 1) ** 2)))
    assert np.mean(errors) < most


def test_parts_differ_from_epoch_to_epoch():
    sizes = np.full(40, 10)
    orders = {tuple(balanced_order(sections(sizes, 8), sizes, np.random.RandomState(seed))) for seed in range(10)}
    assert len(orders) == 10
    assert all(sorted(order) == list(range(40)) for order in orders)
    for order in orders:
        assert (np.sort(np.reshape(order, (5, 8)) // 5) == np.arange(8)).all()  # each eight from all sections


@pytest.mark.parametrize(
    "n, share, most, expected",
    [
        (10, [0.5, 0.5], [10, 10], [5, 5]),
        (10, [0.9, 0.1], [10, 0], [10, 0]),
        (10, [0.9, 0.1], [2, 20], [2, 8]),
        (7, [1.0, 1.0, 1.0], [9, 9, 9], [3, 2, 2]),
        (0, [1.0, 1.0], [3, 3], [0, 0]),
        (6, [0.0, 0.0], [3, 3], [3, 3]),
        (5, [1.0, 1e-9, 1e-9], [1, 1, 9], [1, 1, 3]),
    ],
)
def test_rows_are_apportioned(n, share, most, expected):
    assert apportioned(n, np.array(share), np.array(most)).tolist() == expected


def test_apportioned_numbers_are_of_the_sum_and_possible():
    random_state = np.random.RandomState(0)
    for _ in range(200):
        most = random_state.randint(0, 50, random_state.randint(1, 30))
        n = random_state.randint(0, most.sum() + 1)
        found = apportioned(n, np.maximum(random_state.rand(len(most)) - 0.3, 0), most)
        assert found.sum() == n
        assert (found >= 0).all()
        assert (found <= most).all()


def test_a_stratum_that_comes_late_is_made_to_last():
    read = np.array([[10, 10], [20, 10], [30, 10], [30, 20]])
    np.testing.assert_allclose(lasting_shares(np.zeros(2), read, np.array([10, 20, 30, 50])), [0.6, 1 / 3])
    gone = np.array([0.0, 10.0])  # none waits: none leaves
    np.testing.assert_allclose(lasting_shares(gone, read, np.array([20, 30, 40, 50]))[1], 0, atol=1e-8)


def test_rows_of_a_stratum_are_drawn():
    strata = np.array([1, 0, 1, 1, 0])
    found = np.array([drawn(strata, np.array([1, 2]), np.random.RandomState(seed)) for seed in range(300)])
    assert (found[:, strata == 0].sum(axis=1) == 1).all()
    assert (found[:, strata == 1].sum(axis=1) == 2).all()
    np.testing.assert_allclose(found.mean(axis=0), np.where(strata, 2 / 3, 1 / 2), atol=0.1)


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_take_the_places_of_those_that_left(sparse):
    """Integers of one part and floats of another are both of the type of the model."""

    def data(*numbers, dtype):
        x = np.array(numbers, dtype)[:, None]
        x = scipy.sparse.csr_matrix(x) if sparse else x
        return TrainingData({"X": x}, np.array(numbers)[:, None], np.array(numbers)[:, None] / 2, {"X": np.dtype("f4")})

    first, second = data(1, 2, 3, dtype=np.int64), data(4.5, 5.5, dtype=np.float64)
    reserve = Reserve(first, 3)
    reserve.exchange(np.array([], int), first, np.array([0, 2]), np.array([7, 9]))
    reserve.exchange(np.array([0]), second, np.array([1, 0]), np.array([5, 4]))
    rows = reserve.rows
    found = reserve.data.piece(rows)
    assert sorted(found.features["X"].ravel().tolist()) == [3.0, 4.5, 5.5]
    by_stratum = dict(zip(reserve.stratum[rows].tolist(), found.features["X"].ravel().tolist(), strict=True))
    assert by_stratum == {9: 3.0, 5: 5.5, 4: 4.5}
    np.testing.assert_array_equal(found.label, found.weight * 2)
