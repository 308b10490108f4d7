"""Models of several inputs, with rows as people have them: in scikit-learn's tools, ragged, of other libraries."""

import pickle
from collections import UserDict

import numpy as np
import onnx.parser
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.experimental import enable_halving_search_cv  # noqa: F401  (makes HalvingGridSearchCV importable)
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import Pipeline

from onnxtrain import Inputs, OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.errors import DataError, ModelError, ParameterError
from onnxtrain.training.data import TrainingData

rng = np.random.default_rng(0)
N, T, V = 60, 9, 12

#: The mean of the vectors of the tokens that the mask shows, and a layer.
TOKENS = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[rows, T] input_ids, int64[rows, T] attention_mask) => (float[rows, 2] logits)
    <int64[1] inner = {2}, int64[1] tokens = {1}> {
        vectors = Gather(E, input_ids)
        shown = Cast<to = 1>(attention_mask)
        shown_column = Unsqueeze(shown, inner)
        kept = Mul(vectors, shown_column)
        total = ReduceSum<keepdims = 0>(kept, tokens)
        count = ReduceSum<keepdims = 0>(shown_column, tokens)
        mean = Div(total, count)
        logits = MatMul(mean, W)
    }"""
)
for name, shape in {"E": (V, 4), "W": (4, 2)}.items():
    TOKENS.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))

LENGTHS = rng.integers(2, T + 1, N)
LENGTHS[0] = T
IDS = [rng.integers(1, V, n).tolist() for n in LENGTHS]
MASKS = [[1] * n for n in LENGTHS]
PADDED = np.array([row + [0] * (T - len(row)) for row in IDS])
MASK = (PADDED > 0).astype(np.int64)
y = np.array([row[0] > V / 2 for row in IDS]).astype(int)
X = {"input_ids": PADDED, "attention_mask": MASK}
ROWS = Inputs(**X)


def tuned(**params):
    return OrtGradientClassifier(TOKENS, **{"max_iter": 3, "batch_size": 16, "random_state": 0, **params})


EXPECTED = tuned().fit(X, y).weights_


def assert_as_expected(model):
    for weight, expected in EXPECTED.items():
        np.testing.assert_array_equal(model.weights_[weight], expected)


# ------------------------------------------------------------------ containers


def torch_tensors(**more):
    torch = pytest.importorskip("torch")
    return {name: torch.tensor(values, **more) for name, values in X.items()}


def frame(ids, masks, library="pandas"):
    return pytest.importorskip(library).DataFrame({"input_ids": list(ids), "attention_mask": list(masks)})


def memory_map(values, dtype, tmp_path):
    mapped = np.memmap(tmp_path / "rows", dtype, "w+", shape=values.shape)
    mapped[:] = values
    return mapped


class OnlyDLPack:
    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **asked):
        return self.values.__dlpack__(**asked)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


PAD = {"pad": {"input_ids": 0}}
#: Rows, and parameters.
CONTAINERS = {
    "Inputs": lambda: (ROWS, {}),
    "a mapping": lambda: (UserDict(X), {}),  # as BatchEncoding of transformers
    "lists": lambda: ({name: values.tolist() for name, values in X.items()}, {}),
    "lists in Inputs": lambda: (Inputs(**{name: values.tolist() for name, values in X.items()}), {}),
    "tensors": lambda: (torch_tensors(), {}),
    "tensors in Inputs": lambda: (Inputs(**torch_tensors()), {}),
    "tensors with a gradient": lambda: (
        torch_tensors(dtype=pytest.importorskip("torch").float32, requires_grad=True),
        {},
    ),
    "a capsule": lambda: ({**X, "input_ids": OnlyDLPack(PADDED)}, {}),
    "lists of different lengths": lambda: ({"input_ids": IDS, "attention_mask": MASKS}, PAD),
    "a tensor a row": lambda: (
        Inputs(input_ids=[pytest.importorskip("torch").tensor(row) for row in IDS], attention_mask=MASKS),
        PAD,
    ),
    "cells of a frame": lambda: (frame(PADDED, MASK), {}),
    "cells of different lengths": lambda: (frame(IDS, MASKS), PAD),
    "cells of polars": lambda: (frame(IDS, MASKS, "polars"), PAD),
    "a row of no token": lambda: ({"input_ids": [[], *IDS[1:]], "attention_mask": [[0] * T, *MASKS[1:]]}, PAD),
    "int32, truth values": lambda: ({"input_ids": PADDED.astype(np.int32), "attention_mask": MASK == 1}, {}),
    "whole floats": lambda: ({"input_ids": PADDED.astype(float), "attention_mask": MASK.astype(np.float16)}, {}),
    "objects": lambda: ({"input_ids": PADDED.astype(object), "attention_mask": MASK}, {}),
    "another order, others among them": lambda: (Inputs(attention_mask=MASK, input_ids=PADDED), {}),
}


@pytest.mark.parametrize("kind", [kind for kind in CONTAINERS if kind != "a row of no token"])
def test_the_same_fit(kind):
    rows, params = CONTAINERS[kind]()
    model = tuned(**params).fit(rows, y)
    assert_as_expected(model)
    np.testing.assert_array_equal(model.predict_proba(rows), tuned().fit(X, y).predict_proba(X))
    assert model.score(rows, y) == tuned().fit(X, y).score(X, y)
    np.testing.assert_array_equal(model.losses(rows, y), tuned().fit(X, y).losses(X, y))


@pytest.mark.parametrize("fill", [0.5, 2.7, np.nan, np.inf, 2**70, np.float32(1.5)], ids=str)
def test_a_fill_that_the_input_does_not_take(fill):
    ragged = {"input_ids": IDS, "attention_mask": MASKS}
    with pytest.raises(
        ParameterError,
        match="value of pad for 'input_ids' must be an integer in the range of int64, .* not rounded or clipped",
    ):
        tuned(pad={"input_ids": fill}).fit(ragged, y)


@pytest.mark.parametrize(
    "fill", [0, 0.0, False, np.int64(0), np.float16(0), np.uint8(0)], ids=lambda f: type(f).__name__
)
def test_a_fill_of_another_type_is_kept(fill, tmp_path):
    """A file and a checkpoint take it too."""
    ragged = {"input_ids": IDS, "attention_mask": MASKS}
    model = tuned(pad={"input_ids": fill}).fit(ragged, y, checkpoint=tmp_path / "checkpoint")
    assert_as_expected(model)
    save(model, tmp_path / "kept.onnx")
    np.testing.assert_array_equal(load(tmp_path / "kept.onnx").predict(ragged), model.predict(X))
    n_iter = model.n_iter_ + 2
    resumed = tuned(pad={"input_ids": fill}, max_iter=n_iter).fit(
        ragged, y, checkpoint=tmp_path / "checkpoint", resume=True
    )
    assert resumed.n_iter_ == n_iter


@pytest.mark.parametrize("fill", [0.5, -1, 300, np.nan])
def test_whole_numbers_of_a_floating_point_input_are_filled_with_any_number(fill):
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n, t] a) => (float[n, 1] out) <float[1] w = {2},
        int64[1] last = {1}> { b = Mul(a, w) out = ReduceSum(b, last) }"""
    )
    rows = [np.array(row, np.uint8) for row in ([1, 2], [3])]
    model = OrtGradientRegressor(onx, pad={"a": fill}, max_iter=0, weights_to_train="w").fit(
        {"a": np.ones((2, 2))}, [0.0, 0.0]
    )
    np.testing.assert_array_equal(model.predict({"a": rows}), [6, 6 + 2 * fill])


@pytest.mark.parametrize(
    "change, words",
    [
        (
            dict(attention_mask=np.ones((len(PADDED), T + 3), int)),
            rf"attention_mask of shape \(\d+, {T + 3}\), from 1 to 1",
        ),
    ],
    ids=["lengths"],
)
def test_an_error_of_onnxruntime_names_the_inputs(change, words):
    with pytest.raises(DataError, match=f"(?s)onnxruntime cannot run the model: .* Integer inputs: .*{words}"):
        tuned().fit(X | change, y)


def test_text_is_not_filled():
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> g (string[n, t] a) => (float[n, t] out)
        <float[1] w = {2}> { b = ai.onnx.ml.LabelEncoder<keys_strings = ["x"], values_floats = [1.0]>(a)
        out = Mul(b, w) }"""
    )
    with pytest.raises(
        ParameterError, match="pad contains 'a', an input of strings, but rows are padded with a number"
    ):
        OrtGradientRegressor(onx, pad={"a": 0}).fit([["x"], ["x", "y"]], np.ones((2, 2)))


@pytest.mark.parametrize("model", ["ONNX", "scikit-learn"])
def test_a_dictionary_for_each_row(model):
    if model == "ONNX":
        estimator, target = tuned(pad={"input_ids": 0}), y
        rows = [{"input_ids": i, "attention_mask": m} for i, m in zip(IDS, MASKS, strict=True)]
    else:
        estimator, target = OrtGradientRegressor(LinearRegression(), max_iter=1), [1.0, 2.0, 3.0]
        rows = [{"a": 1.0}, {"a": 2.0}, {"a": 4.0}]
    with pytest.raises(DataError, match="X is a list of dictionaries, one per row. Pass the columns") as raised:
        estimator.fit(rows, target)
    line = str(raised.value).partition("of all rows: ")[2].removesuffix(".")
    assert line.startswith("X = ")
    columns = eval(line.removeprefix("X = "), {"X": rows, "pandas": pytest.importorskip("pandas")})
    assert len(estimator.fit(columns, target).predict(columns)) == len(rows)


def test_a_row_without_entries_is_padded():
    rows, params = CONTAINERS["a row of no token"]()
    with np.errstate(invalid="ignore"):
        found = tuned(**params).fit(X, y).predict_proba(rows)
    np.testing.assert_array_equal(found[1:], tuned().fit(X, y).predict_proba(X)[1:])


def test_the_targets_may_be_tensors():
    torch = pytest.importorskip("torch")
    weight = rng.uniform(1, 2, N).astype(np.float32)
    model = tuned().fit(torch_tensors(), torch.tensor(y), sample_weight=torch.tensor(weight))
    np.testing.assert_array_equal(model.weights_["E"], tuned().fit(X, y, sample_weight=weight).weights_["E"])
    images = torch.tensor(rng.normal(size=(N, 3)), requires_grad=True)
    model = OrtGradientRegressor(max_iter=2, random_state=0).fit(images, torch.tensor(y, dtype=torch.float32))
    plain = OrtGradientRegressor(max_iter=2, random_state=0).fit(images.detach().numpy(), y)
    np.testing.assert_array_equal(model.predict(images), plain.predict(images.detach().numpy()))


def test_a_memory_map_is_cast_by_the_batch(tmp_path, monkeypatch):
    mapped = memory_map(PADDED, np.uint16, tmp_path)
    seen = []
    make = TrainingData.__init__
    monkeypatch.setattr(TrainingData, "__init__", lambda self, *a, **k: (seen.extend(a[:1]), make(self, *a, **k))[1])
    rows = Inputs(input_ids=mapped, attention_mask=MASK)
    assert rows["input_ids"] is mapped
    model = tuned().fit(rows, y)
    features = seen[0]
    assert np.shares_memory(features["input_ids"], mapped)
    for weight, expected in EXPECTED.items():
        np.testing.assert_allclose(model.weights_[weight], expected, rtol=1e-5)
    wrong = memory_map(PADDED + 0.5 * (np.arange(N) == 7)[:, None], np.float32, tmp_path)
    with pytest.raises(DataError, match=r"X\['input_ids'\] must contain int64 values, got .* in row 7"):
        model.predict(Inputs(input_ids=wrong, attention_mask=MASK))


ONE_INPUT = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[rows, T] ids) => (float[rows, 1] Y) <float[4, 1] E = {0, 1, 2, 3}, int64[1] tokens = {1}> {
        G = Gather(E, ids)
        Y = ReduceSum<keepdims = 0>(G, tokens)
    }"""
)


def test_a_model_of_one_input_takes_rows_with_and_without_its_name():
    ids = rng.integers(0, 4, (N, 5))
    target = ids.sum(axis=1) * 2.0
    ragged = [row[: 2 + i % 4].tolist() for i, row in enumerate(ids)]
    params = dict(max_iter=2, random_state=0)
    named, plain = (OrtGradientRegressor(ONE_INPUT, **params).fit(rows, target) for rows in ({"ids": ids}, ids))
    for rows in (ids, {"ids": ids}, Inputs(ids=ids), ids.tolist(), ids.astype(float)):
        np.testing.assert_array_equal(named.predict(rows), plain.predict(ids))
        np.testing.assert_array_equal(plain.predict(rows), plain.predict(ids))
    padded = OrtGradientRegressor(ONE_INPUT, pad={"ids": 0}, **params).fit(ragged, target)
    given = OrtGradientRegressor(ONE_INPUT, pad={"ids": 0}, **params).fit({"ids": ragged}, target)
    np.testing.assert_array_equal(padded.predict(ragged), given.predict(Inputs(ids=ragged)))
    with pytest.raises(
        DataError, match=r"rows of X\['ids'\] have different lengths, from 2 to 5. Set pad=\{'ids': 0\}"
    ):
        plain.predict(ragged)
    with pytest.raises(
        DataError, match=r"X must contain int64 values, got 0.5 in row 0. Values are not rounded or clipped"
    ):
        plain.predict(ids + 0.5)


CODES = np.arange(N) % V
TABLE = np.random.default_rng(1).normal(size=(V, 3)).astype(np.float32)

#: The rows of a model whose only input has one entry a row.
OF_ONE_ENTRY = {
    "vector": CODES,
    "list": CODES.tolist(),
    "column": CODES[:, None],
    "floats": CODES.astype(float),
    "series": pd.Series(CODES, index=np.arange(N)[::-1]),
    "frame": pd.DataFrame({"code": CODES}),
    "frame of another name": pd.DataFrame({"other": CODES}),
    "dictionary": {"code": CODES},
    "sparse": scipy.sparse.csr_array(CODES[:, None]),
}


@pytest.mark.parametrize("rows", OF_ONE_ENTRY.values(), ids=OF_ONE_ENTRY)
def test_a_model_of_one_entry_a_row(rows):
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (int64[rows] code) => (float[rows, 1] Y) { F = Gather(E, code) Y = MatMul(F, W) }"""
    )
    W = np.ones((3, 1), np.float32)
    onx.graph.initializer.extend([onnx.numpy_helper.from_array(w, name) for name, w in {"E": TABLE, "W": W}.items()])
    expected = TABLE[CODES].sum(axis=1)
    model = OrtGradientRegressor(onx, max_iter=0).fit(rows, CODES)
    np.testing.assert_allclose(model.predict(rows), expected, rtol=1e-5)
    assert model.score(rows, expected) == pytest.approx(1)
    with pytest.raises(DataError, match=r"X\['code'\] must contain int64 values, got 0.5 in row 0"):
        model.predict([0.5, 1.5])


def test_rows_are_padded_to_the_length_that_the_model_declares():
    fixed = onnx.ModelProto()
    fixed.CopyFrom(TOKENS)
    for value in fixed.graph.input:
        value.type.tensor_type.shape.dim[1].dim_value = T + 3
    rows = Inputs(input_ids=IDS, attention_mask=MASKS)
    model = OrtGradientClassifier(fixed, pad={"input_ids": 0}, max_iter=3, batch_size=16, random_state=0)
    assert_as_expected(model.fit(rows, y))
    np.testing.assert_array_equal(model.predict(ROWS), model.predict(rows))
    plain = OrtGradientClassifier(fixed)
    with pytest.raises(DataError, match=rf"X\['input_ids'\] has {T} features, but the model takes {T + 3}"):
        plain.fit(ROWS, y)


#: Rows that no model of tokens can take, and the words.
REFUSED = {
    "lengths": (
        {"input_ids": IDS, "attention_mask": MASKS},
        r"The rows of X\['input_ids'\] have different lengths, from 2 to 9. Set pad={'input_ids': 0} to pad them to the "
        "longest; attention masks are padded with 0",
    ),
    "no integers": (
        {**X, "input_ids": PADDED + 0.25},
        r"X\['input_ids'\] must contain int64 values, got .*\.25 in row 0. Values are not rounded",
    ),
    "NaN": ({**X, "input_ids": np.where(PADDED == 0, np.nan, PADDED)}, "must contain int64 values, got nan in row .*"),
    "texts": (
        {**X, "input_ids": np.full((N, T), "word")},
        r"X\['input_ids'\] has dtype <U4, which cannot be converted to int64",
    ),
    "axes": ({**X, "input_ids": PADDED[:, :, None]}, r"X\['input_ids'\] has 3 axes, but the model takes 2"),
    "rows": (
        {**X, "attention_mask": MASK[:5]},
        "X has inconsistent numbers of samples: input_ids has 60 on axis 0, attention_mask has 5 on axis 0. To take "
        r"some rows, slice each input alike: {name: x\[rows\] for name, x in X.items\(\)}, or onnxtrain.Inputs\(\*\*X\)\[rows\]",
    ),
    "deeper lists": (
        {**X, "input_ids": [[[1, 2]], [[1]]] * 30},
        r"The rows of X\['input_ids'\] may differ only in length",
    ),
    "a scalar": (
        {**X, "attention_mask": 1},
        r"X\['attention_mask'\] must be an array with one entry per row, got the scalar 1. To use it for all rows, set "
        r"inputs={'attention_mask': 1} on the estimator",
    ),
    "nothing": ({}, "X is an empty dictionary"),
    "an input less": (Inputs(input_ids=PADDED), "X has no column 'attention_mask', which is an input of the model"),
    "an array": (
        PADDED,
        "The model has several inputs: input_ids, attention_mask. Pass X as a dictionary or a DataFrame",
    ),
}


@pytest.mark.parametrize("rows, words", REFUSED.values(), ids=REFUSED)
def test_rows_that_are_refused(rows, words):
    with pytest.raises(DataError, match=words):
        tuned().fit(rows, y)
    with pytest.raises(DataError, match=words):
        tuned().fit(X, y).predict(rows)


def test_a_type_that_numpy_lacks():
    torch = pytest.importorskip("torch")
    rows = {**X, "attention_mask": torch.tensor(MASK).to(torch.bfloat16)}
    with pytest.raises(DataError, match=r"X\['attention_mask'\] of type torch.bfloat16 cannot become a numpy array"):
        tuned().fit(rows, y)
    assert_as_expected(tuned().fit({**rows, "attention_mask": rows["attention_mask"].float()}, y))


#: Values, the type of the model, and the value that does not fit.
CASTS = {
    "too large": ([[1, 2**40]], "int32", "1099511627776 in row 0"),
    "negative": ([[1, -1]], "uint8", "-1 in row 0"),
    "no truth value": ([[0, 1], [1, 2]], "bool", "2 in row 1"),
    "fits": ([[0, 255]], "uint8", None),
    "truth values": ([[0.0, 1.0]], "bool", None),
}


@pytest.mark.parametrize("values, dtype, found", CASTS.values(), ids=CASTS)
def test_casts_lose_nothing(values, dtype, found):
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (uint8[rows, 2] a, float[rows, 2] b) => (float[rows, 1] Y) <float[2, 1] W = {1, 2}> {
            A = Cast<to = 1>(a)
            C = Add(A, b)
            Y = MatMul(C, W)
        }"""
    )
    model.graph.input[0].type.tensor_type.elem_type = code
    rows = {"a": values, "b": np.zeros((len(values), 2))}
    target = np.zeros(len(values))
    estimator = OrtGradientRegressor(model, max_iter=0)
    if found is None:
        assert estimator.fit(rows, target).predict(rows) == pytest.approx(np.array(values) @ [1, 2])
    else:
        with pytest.raises(DataError, match=rf"X\['a'\] must contain {dtype} values, got {found}"):
            estimator.fit(rows, target)


# ---------------------------------------------------------- inside scikit-learn


def test_cross_validation_is_that_of_the_folds():
    folds = list(KFold(3, shuffle=True, random_state=0).split(PADDED))
    found = cross_val_score(tuned(), ROWS, y, cv=folds)
    by_hand = []
    for train, test in folds:
        part = [{name: values[rows] for name, values in X.items()} for rows in (train, test)]
        by_hand.append(tuned().fit(part[0], y[train]).score(part[1], y[test]))
    np.testing.assert_array_equal(found, by_hand)
    np.testing.assert_array_equal(cross_val_score(tuned(), ROWS, y, cv=folds, n_jobs=2), by_hand)
    np.testing.assert_array_equal(cross_val_predict(tuned(), ROWS, y, cv=folds).shape, (N,))


@pytest.mark.parametrize("search", [GridSearchCV, HalvingGridSearchCV])
def test_a_search(search):
    more = {"min_resources": 20, "factor": 2, "random_state": 0} if search is HalvingGridSearchCV else {}
    found = search(tuned(learning_rate=0.1), {"l2": [0.0, 100.0]}, cv=2, **more).fit(ROWS, y)
    assert found.best_params_ == {"l2": 0.0}
    refitted = tuned(learning_rate=0.1).fit(X, y)
    np.testing.assert_array_equal(found.predict_proba(ROWS), refitted.predict_proba(X))


def test_calibration_around_it():
    calibrated = CalibratedClassifierCV(tuned(learning_rate=0.1), cv=2).fit(ROWS, y)
    found = calibrated.predict_proba(ROWS)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    scores = tuned().fit(X, y).decision_function(ROWS)
    p = tuned().fit(X, y).predict_proba(ROWS)
    np.testing.assert_allclose(scores, np.log(p[:, 1] / p[:, 0]), rtol=1e-4, atol=1e-5)


def test_a_pipeline_and_a_split():
    train, test, y_train, y_test = train_test_split(ROWS, y, stratify=y, random_state=0)
    assert (len(train), len(test)) == (45, 15)
    piped = Pipeline([("nothing", "passthrough"), ("model", tuned())]).fit(train, y_train)
    alone = tuned().fit(train, y_train, X_val=test, y_val=y_test)
    assert piped.score(test, y_test) == tuned().fit(train, y_train).score(test, y_test)
    assert len(alone.validation_loss_curve_) == alone.n_iter_
    again = pickle.loads(pickle.dumps(piped))
    np.testing.assert_array_equal(again.predict(pickle.loads(pickle.dumps(test))), piped.predict(test))


@pytest.mark.filterwarnings("ignore:early_stopping=True has no effect in partial_fit")
def test_all_that_an_estimator_does(tmp_path):
    whole = tuned(early_stopping=True, max_iter=4)
    path = tmp_path / "checkpoint"
    whole.fit(ROWS, y, checkpoint=path)
    resumed = clone(whole).set_params(max_iter=6).fit(ROWS, y, checkpoint=path, resume=True)
    longer = clone(whole).set_params(max_iter=6).fit(X, y)
    np.testing.assert_array_equal(resumed.weights_["E"], longer.weights_["E"])
    save(whole, tmp_path / "kept.onnx")
    np.testing.assert_array_equal(load(tmp_path / "kept.onnx").predict(ROWS), whole.predict(X))
    np.testing.assert_array_equal(whole.embed(ROWS, "mean"), whole.embed(X, "mean"))
    by_dictionary = pickle.loads(pickle.dumps(whole)).partial_fit(X, y)
    np.testing.assert_array_equal(whole.partial_fit(ROWS, y).weights_["E"], by_dictionary.weights_["E"])


def test_an_estimator_of_scikit_learn_takes_no_inputs():
    rows = Inputs(a=np.eye(3))
    with pytest.raises(DataError, match=r"Inputs \(a\) cannot become one array. Use it in splits"):
        LinearRegression().fit(rows, np.ones(3))
    for name, value in {"inputs": {"a": 1}, "pad": {"a": 0}, "batch_axis": {"a": 1}}.items():
        with pytest.raises(
            ParameterError, match=f"{name}= applies to the inputs of an ONNX model, but got LinearRegression"
        ):
            OrtGradientRegressor(LinearRegression(), **{name: value}).fit(np.eye(3), np.ones(3))
    with pytest.raises(
        ParameterError, match="pad contains 'input_id', which is not an input for rows. Did you mean 'input_ids'"
    ):
        tuned(pad={"input_id": 0}).fit(ROWS, y)
    with pytest.raises(ParameterError, match="values of pad must be numbers, got {'input_ids': '0'}"):
        tuned(pad={"input_ids": "0"}).fit(ROWS, y)


# ---------------------------------------------------------------------- Inputs

VALUES = np.arange(12.0).reshape(4, 3)
#: What may be an input of four rows.
ENTRIES = {
    "array": VALUES,
    "list": [[1], [2, 3], [4, 5, 6], []],
    "tuple": ("a", "b", "c", "d"),
    "sparse": scipy.sparse.csr_array(VALUES),
    "one axis": VALUES[:, 0],
}
#: What is asked for, and the rows it stands for.
KEYS = {
    "positions": ([2, 0], [2, 0]),
    "an array of positions": (np.array([3, 3]), [3, 3]),
    "from the end": ([-1], [3]),
    "none": ([], []),
    "a mask": (np.array([True, False, False, True]), [0, 3]),
    "a list of truth values": ([False, True, False, False], [1]),
    "a slice": (slice(1, 3), [1, 2]),
    "backwards": (slice(None, None, -1), [3, 2, 1, 0]),
    "scikit-learn's way": (([1, 2], Ellipsis), [1, 2]),
    "a frame's way": ((slice(0, 2), slice(None)), [0, 1]),
}


def as_list(values):
    return values.toarray().tolist() if scipy.sparse.issparse(values) else list(map(np.ndarray.tolist, values)) if (
        isinstance(values, np.ndarray) and values.ndim > 1
    ) else list(values)  # fmt: skip


@pytest.mark.parametrize("key, rows", KEYS.values(), ids=KEYS)
def test_some_rows(key, rows):
    found = Inputs(**ENTRIES)[key]
    assert found.shape == (len(rows), len(ENTRIES))
    for name, values in ENTRIES.items():
        assert type(found[name]) in (type(values), list)
        whole = as_list(values)
        assert as_list(found[name]) == [whole[i] for i in rows]


def test_an_array_like_of_rows():
    rows = Inputs(a=VALUES, b=[1, 2, 3, 4])
    assert (len(rows), rows.shape, rows.keys(), repr(rows)) == (4, (4, 2), ["a", "b"], "Inputs(4 rows: a, b)")
    assert rows["a"] is VALUES
    assert dict(rows)["b"] == [1, 2, 3, 4]
    assert [row["b"] for row in rows] == [1, 2, 3, 4]
    assert rows[-1]["a"].tolist() == [9, 10, 11]
    assert np.shares_memory(rows[1:3]["a"], VALUES)
    frame = pytest.importorskip("pandas").DataFrame(VALUES, index=list("wxyz"))
    assert Inputs(f=frame, s=frame[0])[[3, 1]]["f"].index.tolist() == ["z", "x"]
    with pytest.raises(IndexError):
        rows[4]


#: What is no row of inputs, and the words.
NO_INPUTS = {
    "nothing": (lambda: Inputs(), "Inputs requires at least one input"),
    "lengths": (
        lambda: Inputs(a=VALUES, b=[1, 2]),
        "inconsistent numbers of samples: a has 4, b has 2. The first axis",
    ),
    "scalar": (lambda: Inputs(a=VALUES, sr=16000), r"'sr' must have rows, got 16000. If a value is .* inputs={'sr':"),
    "array of no axis": (lambda: Inputs(a=VALUES, sr=np.array(3)), r"'sr' must have rows, got the scalar array\(3\)"),
    "text": (lambda: Inputs(a="word"), "'a' must have rows, got 'word'"),
    "name": (lambda: Inputs(left=VALUES)["lefd"], "There is no input 'lefd'. Did you mean 'left'"),
    "mask": (lambda: Inputs(a=VALUES)[np.array([True, False])], r"The mask must have shape \(4,\), got \(2,\)"),
    "columns": (lambda: Inputs(a=VALUES)[[0], 1], "For columns of an input, use Inputs"),
}


@pytest.mark.parametrize("ask, words", NO_INPUTS.values(), ids=NO_INPUTS)
def test_words_of_inputs(ask, words):
    with pytest.raises(DataError, match=words):
        ask()


def test_the_vector_of_all_tokens_with_offsets_has_a_remedy():
    bags = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (int64[t] ids, int64[n] offsets)
        => (float[n, 2] Y) <float[5, 2] E = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0}> {
            v = Gather(E, ids) s = Gather(v, offsets) Y = Relu(s) }""")
    with pytest.raises(DataError, match=r"which 'offsets' cuts, as nn.EmbeddingBag .* nn.Embedding, and the mean over"):
        OrtGradientClassifier(bags).fit({"ids": np.arange(5), "offsets": np.array([0, 2, 4])}, [0, 1, 0])


def test_the_edges_of_a_graph_have_a_remedy():
    of_edges = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 3] x, int64[2, e] edge_index) => (float[n, 2] Y)
        <float[3, 2] W = {1, 2, 3, 4, 5, 6}, int64 i = {0}> {
            h = MatMul(x, W) sources = Gather<axis = 0>(edge_index, i) m = Gather(h, sources) s = ReduceSum(m)
            Y = Add(h, s) }""")
    X, edges, y = np.random.default_rng(0).normal(size=(4, 3)), np.array([[0, 1, 2], [1, 2, 3]]), [0, 1, 0, 1]
    words = r"'edge_index' .* nodes are not rows. Export the network .* \(graphs, nodes, features\) and an adjacency"
    with pytest.raises(ModelError, match=words):
        OrtGradientClassifier(of_edges).fit({"x": X, "edge_index": edges}, y)
    of_graphs = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[g, n, 3] x, float[g, n, n] A) => (float[g, 2] Y)
        <float[3, 2] W = {1, 2, 3, 4, 5, 6}, int64[1] one = {1}> {
            h = MatMul(x, W) m = MatMul(A, h) Y = ReduceSum<keepdims = 0>(m, one) }""")
    rows = {"x": np.stack([X] * 4), "A": np.stack([np.eye(4)] * 4)}
    assert OrtGradientClassifier(of_graphs, max_iter=1).fit(rows, y).predict(rows).shape == (4,)
