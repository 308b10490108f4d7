"""Rows in parts: a fit means what it means in memory, with the memory of a few parts."""

import re
import signal
import subprocess
import sys
import textwrap

import numpy as np
import onnx.parser
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from onnxtrain import Inputs, OrtGradientClassifier, OrtGradientRegressor, load
from onnxtrain.errors import ArgumentTypeError, DataError, ParameterError
from onnxtrain.rows import Parts, from_files, from_parquet

N = 603
_rng = np.random.RandomState(0)
X = _rng.randn(N, 4).astype(np.float32)
y = np.where(X[:, 0] + X[:, 1] * X[:, 2] > 0, "yes", "no")
value = (X @ [1.0, -2.0, 0.5, 3.0] + 0.1 * _rng.randn(N)).astype(np.float32)
weight = _rng.randint(0, 4, N) / 3
NET = MLPClassifier((8,), max_iter=3, random_state=0)


def parts_of(n, *arrays, **how):
    """The rows of arrays in `n` parts."""
    cuts = np.array_split(np.arange(arrays[-1].shape[0]), n)
    source = from_files(cuts, lambda rows: tuple((a.iloc if hasattr(a, "iloc") else a)[rows] for a in arrays))
    return Parts(source, **how) if how else source


def check_same(a, b):
    assert a.loss_curve_ == b.loss_curve_
    assert a.validation_loss_curve_ == b.validation_loss_curve_
    for name, w in a.weights_.items():
        np.testing.assert_array_equal(b.weights_[name], w, err_msg=name)


# ------------------------------------------------- the same as in memory


@pytest.fixture(scope="module")
def fitted():
    with pytest.warns(UserWarning, match="Maximum iterations"):
        return MLPClassifier((8,), max_iter=3, random_state=0).fit(X, y)


FRAME = pd.DataFrame(X, columns=list("abcd")).assign(e=np.where(X[:, 3] > 0, "left", "right"))
TEXTS = np.array([f"{a} {'good' if b == 'yes' else 'bad'} {a}" for a, b in zip(FRAME.e, y, strict=True)], dtype=object)
COLUMNS = make_column_transformer((OneHotEncoder(), ["e"]), (StandardScaler(), list("abcd")))

#: Estimator, features, targets.
SAME = {
    "no estimator": (OrtGradientClassifier(), X, y),
    "not fitted": (OrtGradientClassifier(NET), X, y),
    "pipeline": (OrtGradientClassifier(make_pipeline(StandardScaler(), NET)), X, y),
    "plateaus": (OrtGradientClassifier(learning_rate="adaptive", solver="sgd", tol=0.1, n_iter_no_change=1), X, y),
    "balanced": (OrtGradientClassifier(class_weight="balanced"), X, y),
    "class weights": (OrtGradientClassifier(class_weight={"yes": 3.0, "no": 0.5}), X, y),
    "accumulated": (OrtGradientClassifier(batch_size=32, accumulate=3, average=True), X, y),
    "not shuffled": (OrtGradientClassifier(shuffle=False), X, y),
    "drawn weights": (OrtGradientClassifier(NET, init="random"), X, y),
    "frame": (OrtGradientClassifier(), FRAME[list("abcd")], y),
    "columns by name": (OrtGradientClassifier(make_pipeline(COLUMNS, LogisticRegression())), FRAME, y),
    "texts": (OrtGradientClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression())), TEXTS, y),
    "sparse": (OrtGradientRegressor(LinearRegression()), scipy.sparse.csr_matrix(np.where(X > 0, X, 0)), value),
    "regressor": (OrtGradientRegressor(), X, value),
    "two targets": (OrtGradientRegressor(), X, np.stack([value, -value], axis=1)),
    "tree": (OrtGradientRegressor(DecisionTreeRegressor(max_depth=3, random_state=0)), X, value),
    "labels": (OrtGradientClassifier(), X, np.stack([y == "yes", X[:, 1] > 0], axis=1).astype(int)),
}


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("name", SAME)
def test_few_parts_give_the_bits_of_memory(name, weighted):
    model, rows, target = SAME[name]
    if name == "labels" and weighted:
        weighted = False
    given = (rows, target, weight) if weighted else (rows, target)

    def fit(*args):
        return type(model)(**model.get_params(deep=False)).set_params(max_iter=3, random_state=0).fit(*args)

    expected = fit(*given)
    for n in (1, 5):
        found = fit(parts_of(n, *given))
        check_same(expected, found)
        np.testing.assert_array_equal(found.predict(parts_of(n, *given)), expected.predict(rows))
        np.testing.assert_allclose(found.losses(parts_of(n, *given)), expected.losses(*given), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(found.score(parts_of(n, *given)), expected.score(*given), rtol=1e-6)
    names = getattr(expected, "feature_names_in_", None)
    np.testing.assert_array_equal(getattr(found, "feature_names_in_", None), names)


def test_a_fitted_estimator_is_trained_as_it_is(fitted):
    a, b = (OrtGradientClassifier(fitted, max_iter=2, random_state=0) for _ in range(2))
    check_same(a.fit(X, y), b.fit(parts_of(4, X, y, np.ones(N))))


def test_a_warm_start_goes_on():
    a, b = (OrtGradientClassifier(max_iter=2, random_state=0, warm_start=True) for _ in range(2))
    check_same(a.fit(X, y).fit(X, y), b.fit(parts_of(3, X, y)).fit(parts_of(3, X, y)))


@pytest.mark.parametrize("model", [OrtGradientClassifier(), OrtGradientRegressor(solver="sgd", learning_rate=0.01)])
def test_partial_fit_is_an_epoch_over_the_parts(model):
    target = y if isinstance(model, OrtGradientClassifier) else value
    a, b = (type(model)(**model.get_params(deep=False)).set_params(random_state=0) for _ in range(2))
    for _ in range(3):
        a.partial_fit(X, target), b.partial_fit(parts_of(4, X, target))
    check_same(a, b)
    assert b.n_iter_ == 3
    many = type(model)(**model.get_params(deep=False)).set_params(random_state=0)
    assert many.partial_fit(parts_of(30, X, target)).partial_fit(parts_of(30, X, target)).n_iter_ == 2


def test_partial_fit_of_parts_takes_classes_that_come_later():
    model = OrtGradientClassifier(max_iter=1).partial_fit(parts_of(3, X, y), classes=["maybe", "no", "yes"])
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    assert model.partial_fit(parts_of(12, X[:40], np.repeat(["maybe"], 40))).n_iter_ == 2


@pytest.mark.parametrize("weighted", [False, True])
def test_lbfgs_adds_up_the_parts(weighted):
    given = (X, value, weight) if weighted else (X, value)
    a, b = (OrtGradientRegressor(solver="lbfgs", dtype="float64", loss="huber") for _ in range(2))
    a.fit(*given), b.fit(parts_of(40, *given, open_parts=3))
    np.testing.assert_allclose(b.coef_, a.coef_, rtol=1e-8)
    np.testing.assert_allclose(b.loss_curve_[-1], a.loss_curve_[-1], rtol=1e-12)


def test_many_parts_of_one_class_each_learn_as_much_as_memory():
    """Eight open parts hold eight of ten classes at most."""
    rows = np.random.RandomState(1).randn(4000, 10).astype(np.float32)
    labels = np.argmax(rows + 0.3 * np.random.RandomState(2).randn(4000, 10), axis=1)
    order = np.argsort(labels, kind="stable")
    net = MLPClassifier((32,), max_iter=1, random_state=0)
    scores = []
    for given in ((rows[order], labels[order]), (parts_of(60, rows[order], labels[order]),)):
        models = [
            OrtGradientClassifier(net, init="random", learning_rate=0.01, max_iter=3, random_state=seed).fit(*given)
            for seed in range(5)
        ]
        scores.append(np.mean([model.score(rows, labels) for model in models]))
    assert scores[0] > 0.7
    assert scores[1] > scores[0] - 0.02


@pytest.mark.parametrize("weighted", [False, True])
def test_many_parts_in_the_order_of_the_labels_learn_as_much_as_memory(weighted):
    """One part after the other would end at the label of the last one."""
    order = np.argsort(y)
    given = (X[order], y[order], weight[order]) if weighted else (X[order], y[order])
    net = MLPClassifier((16,), max_iter=1, random_state=0)
    how = dict(learning_rate=0.01, batch_size=20, max_iter=30, random_state=0)
    a, b = (OrtGradientClassifier(net, **how) for _ in range(2))
    a.fit(*given), b.fit(parts_of(40, *given))
    assert a.score(X, y) > 0.9
    assert abs(a.score(X, y) - b.score(X, y)) < 0.03


def test_sparse_labels_of_parts_are_scored_as_in_memory():
    labels = np.stack([y == "yes", X[:, 1] > 0], axis=1).astype(int)
    model = OrtGradientClassifier(max_iter=2, random_state=0)
    dense, sparse = (clone(model).fit(parts_of(5, X, Y)) for Y in (labels, scipy.sparse.csr_matrix(labels)))
    check_same(sparse, dense)
    parts = parts_of(5, X, scipy.sparse.csr_matrix(labels), sample=50)
    assert sparse.score(parts) == dense.score(parts) == dense.score(X, labels)
    for fitted in (clone(model).set_params(verbose=1).fit(parts), clone(model).partial_fit(parts)):
        assert {type(fitted.predict(rows)) for rows in (parts, X)} == {scipy.sparse.csr_matrix}


def test_validation_parts_and_held_out_rows():
    net = OrtGradientClassifier(NET, max_iter=5, random_state=0)
    a, b = (type(net)(**net.get_params(deep=False)) for _ in range(2))
    a.fit(X[:400], y[:400], X_val=X[400:], y_val=y[400:], sample_weight_val=weight[400:])
    b.fit(parts_of(4, X[:400], y[:400]), X_val=parts_of(1, X[400:], y[400:], weight[400:]))
    check_same(a, b)
    c = OrtGradientClassifier(learning_rate=0.3, max_iter=100, tol=0.01, early_stopping=True, random_state=0)
    c.fit(parts_of(40, X, y, weight))
    assert len(c.validation_loss_curve_) == c.n_iter_ < 100
    assert c.best_loss_ == min(c.validation_loss_curve_)


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.filterwarnings("ignore:The validation set")
def test_classes_of_validation_parts_are_weighted_as_in_training(weighted):
    order = np.argsort(y[:500], kind="stable")[:350]  # another share of each class, and one of them in most parts
    given = tuple(array[order] for array in ((X, y, weight) if weighted else (X, y)))
    a, b = (OrtGradientClassifier(class_weight="balanced", max_iter=3, random_state=0) for _ in range(2))
    a.fit(X, y, X_val=given[0], y_val=given[1], sample_weight_val=given[2] if weighted else None)
    b.fit(X, y, X_val=parts_of(7, *given))
    np.testing.assert_allclose(b.validation_loss_curve_, a.validation_loss_curve_, rtol=1e-6)


# ------------------------------------------------------- weights, lengths


@pytest.mark.filterwarnings("ignore:The validation set")
def test_parts_of_weight_zero_count_nothing():
    """In a fit, in the validation set, in losses and in score it is only all parts together that must count."""
    w = np.where(np.arange(N) < 201, 0.0, weight)
    parts = parts_of(3, X, y, w)
    assert not parts.read(0)[2].any()
    a, b = (OrtGradientClassifier(max_iter=3, random_state=0) for _ in range(2))
    a.fit(X, y, w, X_val=X, y_val=y, sample_weight_val=w)
    b.fit(parts, X_val=parts)
    assert a.loss_curve_ == b.loss_curve_
    np.testing.assert_allclose(b.validation_loss_curve_, a.validation_loss_curve_, rtol=1e-6)
    np.testing.assert_allclose(b.losses(parts), a.losses(X, y, w), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(b.score(parts), a.score(X, y, w), rtol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda m, parts: m.fit(parts),
        lambda m, parts: m.fit(X, y, X_val=parts),
        lambda m, parts: m.fit(X, y).losses(parts),
        lambda m, parts: m.fit(X, y).score(parts),
        lambda m, parts: m.fit(X, y).losses(X, y, 0 * weight),
        lambda m, parts: m.fit(X, y).score(X, y, 0 * weight),
    ],
    ids=["fit", "X_val", "losses", "score", "losses in memory", "score in memory"],
)
def test_weights_that_are_all_zero_are_refused(call):
    with pytest.raises(DataError, match="Sample weights must contain at least one non-zero number"):
        call(OrtGradientClassifier(max_iter=1), parts_of(3, X, y, 0 * weight))


def test_a_sample_without_weight_asks_for_more_rows():
    w = np.r_[0.0, np.ones(N - 2), 0.0]
    with pytest.raises(DataError, match="All 2 rows of the sample have weight zero. .*sample="):
        OrtGradientClassifier(max_iter=1).fit(parts_of(3, X, y, w, sample=2))


def parts_but_one(odd, arrays):
    """The rows of arrays in forty parts, number 3 with those of other arrays."""
    source, other = parts_of(40, *arrays), parts_of(40, *odd)
    lengths = [source.n_rows(i) for i in range(40)]
    return from_files(range(40), lambda i: (other if i == 3 else source).read(i), n_rows=lengths)


@pytest.mark.parametrize("weighted", [False, True], ids=["one with weights", "one without"])
@pytest.mark.parametrize(
    "call",
    [
        lambda m, parts: m.fit(parts),
        lambda m, parts: m.fit(Parts(parts, classes=["no", "yes"])),
        lambda m, parts: m.fit(X, y, X_val=parts),
        lambda m, parts: m.fit(X, y).losses(parts),
        lambda m, parts: m.fit(X, y).score(parts),
    ],
    ids=["fit", "classes given", "X_val", "losses", "score"],
)
def test_all_parts_have_weights_or_none_has(call, weighted):
    ways = [(X, y), (X, y, weight)]
    message = ("none", "some") if weighted else ("some", "none")
    with pytest.raises(DataError, match=f"part 3 has {message[0]} and part 0 has {message[1]}"):
        call(OrtGradientClassifier(max_iter=2), parts_but_one(ways[not weighted], ways[weighted]))


def test_a_constant_weight_is_none():
    a, b = (OrtGradientClassifier(max_iter=2, random_state=0) for _ in range(2))
    ones = np.full(N, 2.0)
    a.fit(parts_of(20, X, y)), b.fit(parts_of(20, X, y, ones))
    check_same(a, b)
    np.testing.assert_allclose(b.score(parts_of(20, X, y, ones)), a.score(X, y), rtol=1e-6)


def test_a_constant_weight_may_be_none_in_the_type_of_the_model():
    a, b = (OrtGradientClassifier(max_iter=2, random_state=0) for _ in range(2))
    tiny = np.full(N, 1e-50)
    assert not tiny.astype(np.float32).any()
    check_same(a.fit(X, y, tiny), b.fit(parts_of(5, X, y, tiny)))


@pytest.mark.parametrize(
    "call",
    [
        lambda m, parts: m.fit(Parts(parts, classes=["no", "yes"])),
        lambda m, parts: m.fit(X, y, X_val=parts),
        lambda m, parts: m.fit(X, y).score(parts),
        lambda m, parts: m.fit(X, y).predict(parts),
        lambda m, parts: m.fit(X, y).predict_proba(parts),
    ],
    ids=["fit", "X_val", "score", "predict", "predict_proba"],
)
def test_a_part_has_as_many_rows_as_it_says(call):
    with pytest.raises(DataError, match="Part 3 must have n_rows\\(3\\) = 15 rows, but has 14 in X and 14 in y"):
        call(OrtGradientClassifier(max_iter=1), parts_but_one((X[:560], y[:560]), (X, y)))


def test_predictions_of_parts_without_labels_have_as_many_rows_as_they_say():
    model = OrtGradientClassifier(max_iter=1).fit(X, y)
    rows = from_files(range(2), lambda i: (X[: 3 + i],), n_rows=[3, 3])
    with pytest.raises(DataError, match="Part 1 must have n_rows\\(1\\) = 3 rows, but has 4"):
        model.predict(rows)


TAGGER = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N, T, 2] u) => (float[N, T, 3] Y) <float[2, 3] A = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}> { Y = MatMul(u, A) }"""
TOKENS = _rng.randn(N, 5, 2).astype(np.float32)
TAGS = np.where(np.arange(N)[:, None] % 7 + np.arange(5) > 8, -100, (TOKENS > 0).sum(axis=2))


def test_labels_of_positions_are_counted_without_those_ignored():
    onx = onnx.parser.parse_model(TAGGER)
    a, b, c = (OrtGradientClassifier(onx, max_iter=3, random_state=0) for _ in range(3))
    check_same(a.fit(TOKENS, TAGS), b.fit(parts_of(5, TOKENS, TAGS)))
    assert b.classes_.tolist() == [0, 1, 2]
    many = parts_of(40, TOKENS, TAGS)
    np.testing.assert_allclose(c.fit(many).score(many), a.score(TOKENS, TAGS), atol=0.02)


def test_balanced_weights_of_positions_are_those_of_the_sample():
    model = OrtGradientClassifier(onnx.parser.parse_model(TAGGER), class_weight="balanced", max_iter=3, random_state=0)
    a, b = clone(model).fit(TOKENS, TAGS), clone(model).fit(parts_of(5, TOKENS, TAGS))
    check_same(a, b)
    with pytest.raises(
        ParameterError,
        match="class_weight='balanced' for labels with positions is computed from the sample.*dictionary",
    ):
        model.fit(parts_of(5, TOKENS, TAGS, sample=10))


def test_balanced_weights_are_those_of_all_parts_where_the_classes_are_given():
    order = np.argsort(y, kind="stable")
    model = OrtGradientClassifier(class_weight="balanced", solver="lbfgs", l2=0.01, dtype="float64")
    a, b = (
        clone(model).fit(X, y),
        clone(model).fit(parts_of(40, X[order], y[order], classes=["no", "yes"], open_parts=2)),
    )
    np.testing.assert_allclose(b.coef_, a.coef_, rtol=1e-6)


@pytest.mark.parametrize("sample", [20_000, 3], ids=["", "rare class not in the sample"])
@pytest.mark.filterwarnings("ignore:The validation set")
def test_weights_of_some_classes_are_for_parts_that_lack_them(sample):
    labels = np.where(np.arange(N) < 40, "rare", y)  # in the first parts alone, and no other label there
    start = LogisticRegression().fit(X, labels)
    a, b = (OrtGradientClassifier(start, class_weight={"rare": 3.0}, max_iter=3, random_state=0) for _ in range(2))
    a.fit(X, labels, X_val=X[100:], y_val=labels[100:])
    b.fit(parts_of(30, X, labels, open_parts=30, sample=sample), X_val=parts_of(3, X[100:], labels[100:]))
    for name, w in a.weights_.items():
        np.testing.assert_array_equal(b.weights_[name], w)
    np.testing.assert_allclose(b.validation_loss_curve_, a.validation_loss_curve_, rtol=1e-6)
    assert a.partial_fit(X[100:], labels[100:]).n_iter_ == 4


def test_weights_of_labels_are_for_parts_that_lack_them():
    labels = np.stack([np.arange(N) < 40, X[:, 1] > 0], axis=1).astype(int)
    how = dict(class_weight=[{1: 5.0}, {1: 0.5}], max_iter=3, random_state=0)
    a, b = OrtGradientClassifier(**how), OrtGradientClassifier(**how)
    a.fit(X, labels), b.fit(parts_of(30, X, labels, open_parts=30))
    for name, w in a.weights_.items():
        np.testing.assert_array_equal(b.weights_[name], w)
    assert a.partial_fit(X[100:], labels[100:]).n_iter_ == 4


@pytest.mark.parametrize("known", [False, True], ids=["", "classes given"])
def test_balanced_weights_of_parts_do_not_count_rows_of_weight_zero(known):
    w = np.where((np.arange(N) % 3 == 0) | ((y == "no") & (np.arange(N) % 2 == 0)), 0.0, weight)
    model = OrtGradientClassifier(class_weight="balanced", solver="lbfgs", l2=0.01, dtype="float64")
    more = {"classes": ["no", "yes"], "open_parts": 2} if known else {}
    a, b = clone(model).fit(X[w > 0], y[w > 0], w[w > 0]), clone(model).fit(parts_of(9, X, y, w, **more))
    np.testing.assert_allclose(b.coef_, a.coef_, rtol=1e-6)


TEXT = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (int64[N, T] ids) => (float[N, 3] Y) <float[4, 3] E = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 2.0, 3.0}>
    { e = Gather(E, ids) Y = ReduceMean<axes = [1], keepdims = 0>(e) }"""


@pytest.mark.parametrize("open_parts", [1, 2, 40])
def test_rows_of_parts_that_are_mixed_have_one_length(open_parts):
    ids = [[int(k) for k in _rng.randint(0, 4, 1 + i % 6)] for i in range(60)]
    kinds = np.array([row[0] % 3 for row in ids])
    cuts = np.array_split(np.arange(60), 20)
    source = from_files(cuts, lambda rows: (Inputs(ids=[ids[i] for i in rows]), kinds[rows]))
    model = OrtGradientClassifier(onnx.parser.parse_model(TEXT), pad={"ids": 0}, max_iter=2)
    with pytest.raises(DataError, match=r"Rows of 'ids' have shape \(\d,\) in one part, .*Pad the rows of all"):
        model.fit(Parts(source, open_parts=open_parts))


@pytest.mark.parametrize("as_rows", [np.asarray, list, tuple])
def test_rows_of_different_lengths_in_parts(as_rows):
    ids = np.empty(60, object)
    ids[:] = [as_rows([i % 4] * (1 + i % 6)) for i in range(60)]
    kinds = np.arange(60) % 3
    source = from_files(range(3), lambda k: (Inputs(ids=ids[20 * k : 20 * k + 20]), kinds[20 * k : 20 * k + 20]))
    model = OrtGradientClassifier(onnx.parser.parse_model(TEXT), pad={"ids": 0}, max_iter=2, random_state=0)
    expected = clone(model).fit({"ids": ids}, kinds).weights_["E"]
    np.testing.assert_allclose(model.fit(source).weights_["E"], expected, rtol=1e-4)
    with pytest.raises(DataError, match=r"rows of different lengths. Pass them as a list, list\(X\), and the number"):
        clone(model).fit(ids, kinds)
    np.testing.assert_array_equal(clone(model).fit(list(ids), kinds).weights_["E"], expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda m, masked: m.fit(masked, y),
        lambda m, masked: m.fit(parts_of(3, masked, y)),
        lambda m, masked: m.fit(X, y).predict(masked),
    ],
    ids=["fit", "parts", "predict"],
)
def test_masked_values_are_not_taken_for_others(call):
    masked = np.ma.masked_greater(X, 2)
    with pytest.raises(DataError, match=r"has \d+ masked values. Fill them"):
        call(OrtGradientClassifier(max_iter=1), masked)
    OrtGradientClassifier(max_iter=1).fit(np.ma.masked_greater(X, 200), y)


def test_masked_values_of_dask_are_not_taken_for_others():
    da = pytest.importorskip("dask.array")
    masked, labels = da.ma.masked_greater(da.from_array(X), 2), da.from_array(y)
    with pytest.raises(
        DataError, match=r"masked values. Fill them, X = dask.array.ma.filled\(X.astype\(float\), numpy.nan\)"
    ):
        OrtGradientClassifier(max_iter=1).fit(masked, labels)
    with pytest.raises(DataError, match=r"known = ~dask.array.ma.getmaskarray\(y\), fit\(X\[known\], y\[known\]\)"):
        OrtGradientClassifier(max_iter=1).fit(X, da.ma.masked_equal(da.from_array(np.arange(len(X)) % 3), 0))


@pytest.mark.parametrize("missing", [None, np.nan])
def test_rows_without_a_label_are_counted(missing):
    labels = y.astype(object)
    labels[[400, 401]] = missing
    with pytest.raises(
        DataError,
        match=r"Part 3 has 2 rows without a label \(None or NaN\). Leave them out: let read\(3\) return X\[known",
    ):
        OrtGradientClassifier(max_iter=1).fit(parts_of(5, X, labels))


@pytest.mark.parametrize(
    "call",
    [
        lambda parts: cross_val_score(OrtGradientClassifier(max_iter=1), parts, y),
        lambda parts: GridSearchCV(OrtGradientClassifier(max_iter=1), {"l2": [0.0, 1.0]}).fit(parts),
        lambda parts: make_pipeline(StandardScaler(), OrtGradientClassifier(max_iter=1)).fit(parts),
    ],
    ids=["cross-validation", "search", "pipeline"],
)
@pytest.mark.parametrize("wrapped", [False, True], ids=["source", "Parts"])
def test_scikit_learn_takes_no_parts(call, wrapped):
    parts = parts_of(3, X, y)
    with pytest.raises(
        ArgumentTypeError, match="Rows in parts work only with fit.*cross-validation, searches and outer pipelines"
    ):
        call(Parts(parts) if wrapped else parts)


class Rewritten:
    """Six parts, number 3 of which is another one from its second or third reading on."""

    def __init__(self, first, then, after=1):
        self.first, self.then, self.left = parts_of(6, *first), parts_of(6, *then), after

    def __len__(self):
        return 6

    def n_rows(self, i):
        return self.first.n_rows(i)

    def read(self, i):
        self.left -= i == 3
        return (self.then if i == 3 and self.left < 0 else self.first).read(i)


ONES, CHANGE = np.ones(N), "Part 3 has changed during the fit: "
AMONG = np.isin(np.arange(N), np.array_split(np.arange(N), 6)[3])

FEWER = np.where(AMONG & (np.arange(N) % 2 == 0), "no", y)

#: The rows of the first pass, those of part 3 afterwards, the error.
CHANGED = {
    "some weights are zero": ((X, y, weight), (X, y, weight * (np.arange(N) % 2)), CHANGE + r"\d+ of its rows count, but \d+ did"),
    "all weights are zero": ((X, y, weight), (X, y, 0 * weight), CHANGE + r"0 of its rows count, but \d+ did"),
    "larger weights": ((X, y, weight), (X, y, 2 * weight), CHANGE + "its sample weights sum to .*, but to"),
    "weights that were all one": ((X, y, ONES), (X, y, weight), "Part 3: the sample weights have changed.*all of them were 1"),
    "weights that are all two": ((X, y, ONES), (X, y, 2 * ONES), "Part 3: the sample weights have changed.*all of them were 1"),
    "other classes": ((X, y), (X, FEWER), CHANGE + "its (rows have other classes|sample weights sum)"),
    "one class": ((X, y), (X, np.where(AMONG, "yes", y)), CHANGE + "its (rows have other classes|sample weights sum)"),
    "another class": ((X, y), (X, np.where(AMONG, "perhaps", y)), "Part 3: (y has labels that the model does not know: 'perh|.*'perh)"),
    "fewer rows": ((X, y), (X[:500], y[:500]), r"Part 3 must have n_rows\(3\) = 100 rows, but has 83 in X and 83 in y"),
    "other columns": ((X, y), (X[:, :3], y), r"part 3 has \(3,\) and part 0 has \(4,\)"),
}  # fmt: skip


#: Parameters, how many parts are open, passes before the first epoch: one more counts the rows of balanced classes.
WAYS = [
    (dict(solver="lbfgs"), 2, 1),
    ({}, 2, 1),
    ({}, 8, 1),
    (dict(early_stopping=True), 2, 1),
    (dict(class_weight="balanced"), 2, 2),
]


@pytest.mark.parametrize("how, open_parts, n_passes", WAYS)
@pytest.mark.parametrize("name", CHANGED)
def test_parts_must_stay_as_they_are(name, how, open_parts, n_passes):
    first, then, message = CHANGED[name]
    model = OrtGradientClassifier(max_iter=3, random_state=0, **how)
    with pytest.raises(DataError, match=message):
        model.fit(Parts(Rewritten(first, then, n_passes), open_parts=open_parts))


def test_a_part_that_changes_later_ends_a_fit_with_the_weights_of_the_epoch_before():
    one = OrtGradientClassifier(max_iter=1, random_state=0).fit(Parts(parts_of(6, X, y), open_parts=2))
    model = OrtGradientClassifier(max_iter=3, random_state=0)
    with pytest.raises(DataError, match="Part 3 has changed"):
        model.fit(Parts(Rewritten((X, y), (X, FEWER), after=2), open_parts=2))
    check_same(one, model)


@pytest.mark.parametrize(
    "now, message",
    [
        ([100, 101, 100, 100, 101, 101, 9], "The source has 7 parts, but had 6 when the fit began. .*partial_fit"),
        ([101, 101, 101, 90, 100, 100], r"Part 3 has changed during the fit: n_rows\(3\) is 90, but was 100"),
    ],
)
def test_parts_that_come_later_are_named(now, message):
    class Growing:
        def __init__(self):
            self.lengths = [101, 101, 101, 100, 100, 100]

        def __len__(self):
            return len(self.lengths)

        def n_rows(self, i):
            return self.lengths[i]

        def read(self, i):
            return X[: self.lengths[i]], y[: self.lengths[i]]

    source = Growing()
    with pytest.raises(DataError, match=message):
        OrtGradientClassifier(max_iter=3).fit(source, callback=lambda info: setattr(source, "lengths", now))


def test_rows_that_are_drawn_anew_in_each_epoch_are_no_change():
    """X may be augmented: nothing that is counted differs."""
    rng, source = np.random.RandomState(0), parts_of(6, X, y)

    def read(i):
        rows, labels = source.read(i)
        return rows + 0.01 * rng.randn(*rows.shape).astype(np.float32), labels

    parts = Parts(from_files(range(6), read, n_rows=[source.n_rows(i) for i in range(6)]), open_parts=2)
    assert len(OrtGradientClassifier(max_iter=3).fit(parts).loss_curve_) == 3


def test_a_file_that_cannot_be_read_is_named():
    def read(name):
        return {"a.csv": (X, y)}[name]

    with pytest.raises(KeyError, match="b.csv") as raised:
        OrtGradientClassifier(max_iter=1).fit(from_files(["a.csv", "b.csv"], read))
    assert "The function read of from_files raised this for file 1, 'b.csv'." in raised.value.__notes__


def test_a_file_that_vanishes_is_named(tmp_path):
    files = [tmp_path / f"{k}.npz" for k in range(6)]
    for file, cut in zip(files, np.array_split(np.arange(N), 6), strict=True):
        np.savez(file, X=X[cut], y=y[cut])

    def read(path):
        with np.load(path) as file:
            return file["X"], file["y"]

    with pytest.raises(FileNotFoundError, match=re.escape(str(files[3]))) as raised:
        OrtGradientClassifier(max_iter=3).fit(from_files(files, read), callback=lambda info: files[3].unlink())
    assert any("Part 3 could not be read. Every epoch reads all parts" in note for note in raised.value.__notes__)


@pytest.mark.parametrize("n", [603, 5, 2])
def test_few_rows_are_held_out_as_in_memory(n):
    model = OrtGradientRegressor(LinearRegression(), early_stopping=True, max_iter=1)
    model.fit(parts_of(min(n, 5), X[:n], value[:n]))
    assert np.isfinite(model.validation_loss_curve_).all()


def test_a_single_row_is_not_held_out():
    with pytest.raises(DataError, match=r"holds out 1 of 1 row \(validation_fraction=0.1\), so 0 are left"):
        OrtGradientRegressor(early_stopping=True).fit(parts_of(1, X[:1], value[:1]))


@pytest.mark.parametrize(
    "call", [lambda m, none: m.predict(none), lambda m, none: m.score(none), lambda m, none: m.losses(none)]
)
def test_parts_without_rows_are_named(call):
    model = OrtGradientClassifier(max_iter=1).fit(X, y)
    with pytest.raises(DataError, match="The 2 parts have no rows"):
        call(model, from_files(range(2), lambda i: (X[:0], y[:0])))


# -------------------------------------------------------- the first pass


def test_classes_of_later_parts_are_found():
    rows = [(X[:50], np.zeros(50)), (X[50:90], np.zeros(40)), (X[90:], np.r_[np.ones(N - 91), 2])]
    model = OrtGradientClassifier(max_iter=1).fit(from_files(range(3), lambda i: rows[i]))
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict_proba(X).shape == (N, 3)


@pytest.mark.parametrize(
    "change, classes, message",
    [
        (lambda rows, labels: (rows, np.where(np.arange(len(rows)) == 9, "perhaps", labels)), None, "does not know.*perhaps"),
        (lambda rows, labels: (rows, np.where(np.arange(len(rows)) == 9, "perhaps", labels)), ["no", "yes"], "Part 31: y has labels that the model does not know: 'perhaps'"),
        (lambda rows, labels: (np.where(np.arange(len(rows))[:, None] == 9, np.nan, rows), labels), None, "Part 31: Input X contains NaN"),
        (lambda rows, labels: (np.where(np.arange(len(rows))[:, None] == 9, np.inf, rows), labels), None, "Part 31: Input X contains infinity"),
        (lambda rows, labels: (rows[:, :3], labels), None, "part 31 has \\(3,\\) and part 0 has \\(4,\\)"),
        (lambda rows, labels: (rows, labels[:, None]), None, "part 31 has \\(n, 1\\) and part 0 has \\(n,\\). Let read\\(i\\) return y.ravel\\(\\)"),
        (lambda rows, labels: (np.where(rows > 9, rows, "n/a"), labels), None, r"part 31 has strings and part 0 numbers. Let read\(31\) convert them, pandas.to_numeric\("),
        (lambda rows, labels: (rows.astype("M8[s]"), labels), None, r"part 31 has dates and part 0 numbers. Let read\(31\) convert them, \(column - pandas.Timestamp"),
        (lambda rows, labels: (rows + 1j, labels), None, r"part 31 has complex numbers and part 0 .* them, numpy.c_\[X.real, X.imag\]"),
        (lambda rows, labels: (pd.DataFrame(rows), labels), None, "Let read\\(i\\) select the same columns of each part, and return a frame for all parts or for none"),
        (lambda rows, labels: (rows[1:], labels), None, "Part 31 must have n_rows\\(31\\) = 15 rows, but has 14 in X and 15 in y"),
        (lambda rows, labels: (rows, labels, -np.ones(len(labels))), None, "Negative values in data"),
        (lambda rows, labels: (rows, None), None, "Part 31 has no y"),
        (lambda rows, labels: rows, None, "Part 31 has no y"),
    ],
    ids=["label", "label, classes given", "NaN", "infinite", "columns", "targets", "strings", "dates", "complex", "frame", "lengths", "weights", "no y", "no tuple"],
)  # fmt: skip
def test_a_fault_of_a_later_part_is_found(change, classes, message, fitted):
    rows = [(X[cut], y[cut]) for cut in np.array_split(np.arange(N), 40)]
    lengths = [len(labels) for _, labels in rows]
    changed = change(*rows[31])
    source = from_files(range(40), lambda i: changed if i == 31 else rows[i], n_rows=lengths)
    model = OrtGradientClassifier(fitted, max_iter=2)
    with pytest.raises(DataError, match=message):
        model.fit(Parts(source, classes=classes, sample=10))
    assert (classes is None) == (not hasattr(model, "weights_"))  # before the first step


@pytest.mark.parametrize("strings", [["n/a", "3"], [None, None], ["2", "3"]], ids=["strings", "empty", "digits"])
def test_a_column_of_another_kind_in_a_part_is_named(strings):
    frames = [pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 5.0]}), pd.DataFrame({"a": [3.0, 5.0], "b": strings})]
    source = from_files(range(2), lambda i: (frames[i], [1.0, 2.0]))
    model = OrtGradientRegressor(make_pipeline(SimpleImputer(), LinearRegression()), max_iter=1)
    if strings[0] != "n/a":  # as in memory
        model.fit(source)
        return
    words = r"part 1 has strings in column 'b' and part 0 numbers. Let read\(1\) convert them, "
    with pytest.raises(DataError, match=words) as raised:
        model.fit(source)
    assert "pandas.to_numeric(column, errors='coerce')" in str(raised.value)
    frames[1]["b"] = pd.to_numeric(frames[1].b, errors="coerce")
    model.fit(source)


def test_codes_that_are_digits_in_some_parts_are_of_one_kind():
    codes = [["A", "10"], ["11", "10"]]
    source = from_files(range(2), lambda i: (pd.DataFrame({"code": codes[i]}), [1.0, 2.0]))
    model = OrtGradientRegressor(make_pipeline(OneHotEncoder(), LinearRegression()), max_iter=1).fit(source)
    assert model.predict(pd.DataFrame({"code": ["A"]})).shape == (1,)


def test_targets_of_the_parts_that_are_scored_are_alike():
    source = from_files(range(2), lambda i: (X, np.c_[value, value] if i else value))
    with pytest.raises(DataError, match=r"y of one shape, but part 1 has \(n, 2\) and part 0 has \(n,\)"):
        OrtGradientRegressor(max_iter=1).fit(X, value).score(source)


@pytest.mark.parametrize("sample", [10, 10_000], ids=["after the sample", "in the sample"])
@pytest.mark.parametrize("columns", [1, 2])
def test_a_missing_target_names_its_part_and_the_remedy(tmp_path, columns, sample):
    target = np.c_[value, value][:, :columns].squeeze()
    target[400] = np.nan
    known = "numpy.isfinite(y)" if columns == 1 else "numpy.isfinite(y).all(axis=1)"
    words = "Part 26 has 1 row without a target (NaN). Leave them out: let read(26) return X[known], y[known] with "
    with pytest.raises(DataError, match=re.escape(f"{words}known = {known}. For from_parquet, write")):
        OrtGradientRegressor(max_iter=1).fit(parts_of(40, X, target, sample=sample))
    kept = eval(known, {"numpy": np, "y": target})
    OrtGradientRegressor(max_iter=1).fit(parts_of(40, X[kept], target[kept], sample=sample))


def test_an_infinite_target_of_a_later_part_is_named():
    target = value.copy()
    target[400] = np.inf
    with pytest.raises(DataError, match="Part 26: Input y contains .*known = numpy.isfinite"):
        OrtGradientRegressor(max_iter=1).fit(parts_of(40, X, target, sample=10))


def test_a_parquet_file_is_written_without_missing_targets(tmp_path):
    path, label = tmp_path / "rows.parquet", "t"
    table = pd.DataFrame(X).add_prefix("x").assign(t=value)
    table.loc[9, "t"] = np.nan
    table.to_parquet(path)
    model = OrtGradientRegressor(max_iter=1)
    with pytest.raises(DataError, match="without these rows: (.*)[.]$") as e:
        model.fit(from_parquet(path, label=label))
    exec(str(e.value).rpartition("rows: ")[2].removesuffix("."), {"table": table, "label": label, "path": path})
    model.fit(from_parquet(path, label=label))


def test_a_sparse_part_is_found_if_the_classes_are_given():
    parts = parts_but_one((scipy.sparse.csr_array(X), y), (X, y))
    with pytest.raises(DataError, match=r"part 3 has \(4, 'sparse'\) and part 0 has \(4,\)"):
        OrtGradientClassifier(max_iter=1).fit(Parts(parts, classes=["no", "yes"]))


@pytest.mark.parametrize("sparse", [0, 1], ids=["part 0 sparse", "part 1 sparse"])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_parts_are_sparse_or_dense_alike(method, sparse):
    dense = parts_of(4, X, value)

    def read(i):
        rows, target = dense.read(i)
        return (scipy.sparse.csr_array(rows) if i % 2 == sparse else rows), target

    with pytest.raises(DataError, match="part 1 has .*4.* and part 0 has .*4.*"):
        getattr(OrtGradientRegressor(max_iter=1), method)(from_files(range(4), read))


def test_missing_values_are_taken_where_the_model_takes_them():
    rows = X.copy()
    rows[500, 1] = np.nan
    model = make_pipeline(SimpleImputer(), LogisticRegression())
    a, b = (OrtGradientClassifier(model, max_iter=2, random_state=0) for _ in range(2))
    check_same(a.fit(rows, y), b.fit(parts_of(7, rows, y)))


def test_known_classes_spare_the_first_pass(fitted):
    read = []
    source = parts_of(40, X, y)
    counted = from_files(
        range(40), lambda i: read.append(i) or source.read(i), n_rows=[source.n_rows(i) for i in range(40)]
    )
    OrtGradientClassifier(fitted, max_iter=1).fit(counted)
    assert len(read) == 2 * 40
    read.clear()
    OrtGradientClassifier(fitted, max_iter=1).fit(Parts(counted, classes=["no", "yes"]))
    assert len(read) == 8 + 40


def test_an_estimator_is_fitted_on_a_sample_and_says_so(capsys):
    model = OrtGradientClassifier(LogisticRegression(), max_iter=2, verbose=2, random_state=0)
    model.fit(parts_of(20, X, y, sample=100))
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("LogisticRegression is fitted on 100 of 603 rows, spread over the parts")
    assert "rows/s, waiting for rows" in out[1]
    assert "%" in out[1]
    expected = LogisticRegression().fit(*(a[np.unique(np.linspace(0, N - 1, 100).astype(int))] for a in (X, y)))
    start = OrtGradientClassifier(LogisticRegression(), max_iter=0).fit(parts_of(20, X, y, sample=100))
    np.testing.assert_allclose(start.coef_, expected.coef_, rtol=1e-5)


def test_the_progress_bar_is_one_of_rows(capsys):
    OrtGradientClassifier(max_iter=2, verbose=1).fit(parts_of(20, X, y))
    bar = capsys.readouterr().err
    assert "1.21k/1.21k" in bar
    assert "row/s" in bar


# -------------------------------------------------------------- refusals


def parts_with_lengths(n):
    class Rows:
        def __len__(self):
            return 2

        def n_rows(self, i):
            return n

        def read(self, i):
            return X, y

    return Rows()


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda m: m.fit(iter([(X, y)])), ArgumentTypeError, "list_iterator, which can be read only once.*from_files"),
        (lambda m: m.fit((X, y) for _ in range(2)), ArgumentTypeError, "generator.*each epoch needs a pass.*n_rows\\(i\\)"),
        (lambda m: m.fit(lambda: [(X, y)]), ArgumentTypeError, "X is a function, but each epoch needs a pass.*from_files"),
        (lambda m: m.fit(from_files([0, 1], lambda i: (X, (y == "yes").astype(str if i else int)))), DataError, "of one type.*part 1 has 'False', part 0 has 0"),
        (lambda m: m.fit(parts_of(3, X, y), y), DataError, "y cannot be passed with rows in parts"),
        (lambda m: m.fit(parts_of(3, X, y), sample_weight=weight), DataError, "sample_weight cannot be passed with"),
        (lambda m: m.partial_fit(parts_of(3, X, y), y), DataError, "y cannot be passed with rows in parts"),
        (lambda m: m.partial_fit(X), DataError, "requires y to be passed"),
        (lambda m: m.partial_fit(parts_of(3, X, y), classes=["no", "maybe"]), DataError, "classes must list all labels of y.* lacks 'yes'"),
        (lambda m: m.fit(Parts(from_files([], len))), DataError, "There are no parts"),
        (lambda m: m.fit(from_files([0], lambda i: (X[:0], y[:0]))), DataError, "The 1 parts have no rows"),
        (lambda m: m.fit(from_files([0], lambda i: (X, y), n_rows=[7])), DataError, "Part 0 must have n_rows\\(0\\) = 7 rows, but has 603 in X and 603 in y"),
        (lambda m: m.fit(parts_with_lengths(None)), DataError, "n_rows\\(0\\) must return the number of rows of part 0, got None"),
        (lambda m: m.fit(parts_with_lengths(-1)), DataError, "n_rows\\(0\\) must return .*got -1"),
        (lambda m: m.fit(from_files([0], lambda i: (X, y, weight, 1))), DataError, "read\\(0\\) must return the tuple.*length 4"),
        (lambda m: m.fit(parts_of(3, X, y, 0 * weight)), DataError, "at least one non-zero"),
        (lambda m: m.fit(X), DataError, "requires y to be passed"),
        (lambda m: m.fit(X, y).score(X), DataError, "y is missing. Pass the labels"),
        (lambda m: m.fit(X, y).embed(parts_of(3, X, y), "a"), ParameterError, "one part at a time"),
        (lambda m: Parts(parts_of(3, X, y), open_parts=0), ParameterError, "open_parts must be a positive number of parts"),
        (lambda m: Parts([X, y]), ArgumentTypeError, "__len__, n_rows\\(i\\) and read\\(i\\), got list"),
        (lambda m: OrtGradientRegressor().fit(parts_of(3, X, value, classes=[1])), ParameterError, "classes= is only for classifiers"),
        (lambda m: m.set_params(class_weight="balanced").fit(parts_of(3, X, np.stack([y == "yes"] * 2, 1).astype(int))), ParameterError, "class_weight='balanced' is not available for multilabel targets"),
        (lambda m: m.fit(parts_of(3, X, np.array([0, "a", 1.5] * 201, dtype=object))), DataError, "Labels must be of one type"),
    ],
)  # fmt: skip
def test_refusals_say_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call(OrtGradientClassifier(max_iter=1))


# ------------------------------------------------- processes of their own

FIT = """
    import os, signal, sys
    import numpy as np
    from onnxtrain import OrtGradientClassifier
    from onnxtrain.rows import Parts, from_files

    def read(seed):
        X = np.random.RandomState(seed).randn(300, 4).astype(np.float32)
        return X, np.where(X[:, 0] > X[:, 1], "yes", "no"), np.arange(300) % 4

    def kill(info):
        if info.epoch == killed_after:
            os.kill(os.getpid(), signal.SIGKILL)

    parts = Parts(from_files(range(12), read), open_parts=3)
    model = OrtGradientClassifier(max_iter=8, random_state=3, batch_size=50, early_stopping={early})
    path, killed_after = sys.argv[1], int(sys.argv[2])
    model.fit(parts, checkpoint=path, resume=True, callback=kill)
"""


def run(code, *args):
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")
@pytest.mark.parametrize("early", [False, True], ids=["", "held out"])
def test_a_killed_fit_resumes_to_the_same_bits(early, tmp_path):
    code = FIT.format(early=early)
    whole, killed = tmp_path / "whole.onnx", tmp_path / "killed.onnx"
    first = run(code, whole, 0)
    assert first.returncode == 0, first.stderr
    assert run(code, killed, 4).returncode == -signal.SIGKILL
    assert load(killed).n_iter_ == 3  # the file is written after the callback
    again = run(code, killed, 0)
    assert again.returncode == 0, again.stderr
    check_same(load(whole), load(killed))


def test_other_rows_are_no_resumption(tmp_path):
    path = tmp_path / "fit.onnx"

    def fit(labels, **how):
        return OrtGradientClassifier(max_iter=2, random_state=0).fit(parts_of(20, X, labels), checkpoint=path, **how)

    fit(y)
    other = y.copy()
    other[300] = "no" if y[300] == "yes" else "yes"
    with pytest.raises(DataError, match="of other rows"):
        fit(other, resume=True)


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("change", ["label", "feature", "order"])
def test_other_rows_of_the_validation_set_are_no_resumption(change, weighted, tmp_path):
    """Sizes and weights of the parts are the same: it is rows that differ."""

    def fit(rows, labels, **how):
        given = (rows, labels, np.ones(N)) if weighted else (rows, labels)
        model = OrtGradientClassifier(max_iter=2, random_state=0)
        return model.fit(parts_of(20, X, y), X_val=parts_of(20, *given), checkpoint=tmp_path / "fit.onnx", **how)

    first = fit(X, y)
    with pytest.warns(UserWarning, match="already has all 2 epochs of max_iter=2, so none was trained"):
        check_same(first, fit(X, y, resume=True))
    rows, labels = X.copy(), y.copy()
    if change == "label":
        labels[300] = "no" if y[300] == "yes" else "yes"
    elif change == "feature":
        rows[300] += 1
    else:
        rows, labels = X[::-1], y[::-1]
    with pytest.raises(DataError, match="of other rows"):
        fit(rows, labels, resume=True)


MEMORY = """
    import resource, sys
    import numpy as np
    from onnxtrain import OrtGradientRegressor
    from onnxtrain.rows import Parts, from_files

    n_parts, open_parts = int(sys.argv[1]), int(sys.argv[2])

    def read(seed):  # 4 MB
        X = np.random.RandomState(seed).rand(10_000, 100).astype(np.float32)
        return X, X[:, 0]

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    model = OrtGradientRegressor(solver="{solver}", max_iter=2, random_state=0, n_threads=1)
    model.fit(Parts(from_files(range(2), read), sample=1000))
    before = peak()
    parts = Parts(from_files(range(n_parts), read, n_rows=[10_000] * n_parts), open_parts=open_parts, sample=1000)
    others = Parts(parts.source, open_parts=open_parts, sample=1000)
    model.fit(parts, X_val=others)
    model.predict(parts), model.score(parts)
    print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_the_memory_is_that_of_a_few_parts(solver):
    done = run(MEMORY.format(solver=solver), 60, 4)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 60  # 240 MB of rows; 5 parts of 4 MB, what is read and what is mixed
