"""Predictions: as the trained ONNX model's, in any pieces, by sessions that small models share."""

import weakref

import numpy as np
import onnx
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import DataError
from onnxtrain.estimators import trained as trained_module
from onnxtrain.runtime import session
from onnxtrain.runtime.session import run
from onnxtrain.training import evaluate


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(X), y / y.std()


def trained(X, y, size=5, **params):
    inside = MLPRegressor(hidden_layer_sizes=(size, size), max_iter=1, random_state=0)
    return OrtGradientRegressor(inside, max_iter=1, random_state=0, **params).fit(X, y)


@pytest.fixture
def opened(monkeypatch):
    """The numbers of threads of the sessions that predictions open."""
    numbers, open_session = [], session.open_session

    def spy(onx, device, n_threads, **options):
        numbers.append(n_threads)
        return open_session(onx, device, n_threads, **options)

    monkeypatch.setattr(session, "open_session", spy)
    session.SESSIONS.clear()
    return numbers


@pytest.mark.parametrize("size", [5, 80])
def test_the_trained_onnx_predicts_as_the_estimator(diabetes, tmp_path, size):
    X, y = diabetes
    model = trained(X, y, size)
    onnx.save(model.get_trained_onnx(), tmp_path / "tuned.onnx")
    (found,) = run(onnx.load(tmp_path / "tuned.onnx"), {"X": X.astype(np.float32)})
    # a product of weights that are fed may round another way than one of weights in the graph
    rounding = dict(rtol=1e-6, atol=1e-6) if size == 5 else dict(rtol=0, atol=0)
    np.testing.assert_allclose(model.predict(X), found.ravel(), **rounding)


@pytest.mark.parametrize("model", [Ridge(), LinearRegression(), DecisionTreeRegressor(max_depth=3)], ids=str)
def test_a_single_column_of_targets_is_predicted_in_the_shape_of_the_estimator(diabetes, model):
    X, y = diabetes
    fitted = model.fit(X, y[:, None])
    tuned = OrtGradientRegressor(fitted, max_iter=1, learning_rate=1e-30).fit(X, y[:, None])
    assert tuned.predict(X).shape == fitted.predict(X).shape == tuned.to_sklearn().predict(X).shape
    assert tuned.score(X, y[:, None]) == pytest.approx(fitted.score(X, y[:, None]), abs=1e-5)


@pytest.mark.parametrize("weights", [None, "*_2"], ids=["all", "the last layer"])
@pytest.mark.parametrize("size, several", [(5, False), (80, True)])
def test_threads_are_for_the_whole_model(diabetes, monkeypatch, opened, weights, size, several):
    model = trained(*diabetes, size, weights_to_train=weights)
    opened.clear()
    session.SESSIONS.clear()  # small models share the session of the first comparison
    monkeypatch.setattr(session, "available_threads", lambda: 2)
    model.predict(diabetes[0])
    assert opened == [2 if several else 1]


@pytest.mark.parametrize("size", [5, 80])
def test_rows_are_predicted_the_same_in_any_pieces(diabetes, monkeypatch, size):
    X, y = diabetes
    model = trained(X, y, size)
    whole = model.predict(X)
    pieces, run_session = [], session.run_session
    for module in (evaluate, trained_module):
        monkeypatch.setattr(module, "run_session", lambda *given: pieces.append(given) or run_session(*given))
    for n in (1, 100, len(X) - 1):
        pieces.clear()
        monkeypatch.setattr(trained_module, "rows_at_once", lambda *given, n=n: n)
        np.testing.assert_array_equal(model.predict(X), whole)
        assert len(pieces) == -(-len(X) // n) > 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("inside", [LinearRegression(), make_pipeline(StandardScaler(), LinearRegression())])
def test_a_row_is_predicted_the_same_in_any_company(diabetes, inside, dtype):
    X, y = diabetes
    model = OrtGradientRegressor(inside, max_iter=2, random_state=0, dtype=dtype).fit(X, y)
    whole = model.predict(X)
    for n in (1, 2, 3, 5, 7, 8, 13, 100):
        np.testing.assert_array_equal(model.predict(X[:n]), whole[:n], f"{n} rows")


def test_small_models_of_the_same_structure_share_a_session(diabetes, opened):
    X, y = diabetes
    first = OrtGradientRegressor(LinearRegression(), max_iter=1).fit(X, y)
    second = OrtGradientRegressor(LinearRegression(), l1=0.1, max_iter=2).fit(X[:200], y[:200])
    one = first.predict(X)
    opened.clear()
    other = second.predict(X)
    assert opened == []
    for model, found in ((first, one), (second, other)):
        np.testing.assert_allclose(found, X @ model.weights_["coef"][:, 0] + model.weights_["intercept"], rtol=1e-4)
    assert not np.array_equal(one, other)


def test_what_is_large_has_a_session_of_its_own(diabetes, opened, monkeypatch):
    model = OrtGradientRegressor(LinearRegression(), max_iter=1).fit(*diabetes)
    monkeypatch.setattr(trained_module, "LIGHT", 10)
    opened.clear()
    kept = len(session.SESSIONS)
    model.predict(diabetes[0])
    assert opened == [1]
    assert len(session.SESSIONS) == kept


def test_frames_share_a_session_whatever_their_columns_hold(opened):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": np.arange(60.0), "port": ["a", "b", "c"] * 20})
    columns = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["port"]))
    inside = make_pipeline(columns, LogisticRegression())
    models = [
        OrtGradientClassifier(inside, l1=l1, max_iter=2, random_state=0).fit(frame, frame["age"] > 30)
        for l1 in (0.0, 0.1)
    ]
    first = models[0].predict_proba(frame)
    opened.clear()
    second = models[1].predict_proba(frame)
    assert opened == []
    for model, found in zip(models, (first, second), strict=True):
        np.testing.assert_allclose(found, model.to_sklearn().predict_proba(frame), rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(model.predict_proba(frame[:3]), found[:3])
    assert not np.array_equal(first, second)


def test_predictions_follow_the_weights(diabetes):
    X, y = diabetes
    model = OrtGradientRegressor(LinearRegression(), max_iter=1).fit(X, y)
    before = model.predict(X)
    after = model.partial_fit(X, y).predict(X)
    assert not np.array_equal(before, after)
    np.testing.assert_allclose(after, X @ model.weights_["coef"][:, 0] + model.weights_["intercept"], rtol=1e-4)


def test_learned_numbers_that_are_not_trained_are_those_of_this_fit(diabetes):
    X, y = diabetes
    models = [
        OrtGradientClassifier(make_pipeline(StandardScaler(), LogisticRegression()), max_iter=1).fit(Z, y > 1.5)
        for Z in (X, 10 * X + 3)
    ]
    for model, Z in zip(models, (X, 10 * X + 3), strict=True):
        found = model.to_sklearn().predict_proba(Z)
        np.testing.assert_allclose(model.predict_proba(Z), found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "as_given",
    [np.float32, np.float64, np.asfortranarray, lambda X: X.tolist(), lambda X: X * 1e20, lambda X: X[:1]],
    ids=["float32", "float64", "columns first", "lists", "large", "one row"],
)
def test_rows_that_need_no_validation_are_predicted_as_all_others(diabetes, as_given):
    X, y = diabetes
    model, X = trained(X, y), as_given(X)
    checked = model.predict(np.asarray(X).astype(object))  # objects take scikit-learn's way
    np.testing.assert_array_equal(model.predict(X), checked.astype(model.predict(X).dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "value, words",
    [(np.nan, "contains NaN"), (np.inf, "infinity"), (1e39, "infinity"), (None, "expecting 10 features")],
)
def test_rows_that_cannot_be_predicted_are_refused_in_scikit_learns_words(diabetes, dtype, value, words):
    X, y = diabetes
    model = trained(X, y)
    with np.errstate(over="ignore"):
        rows = X[:3, :9].astype(dtype) if value is None else np.where(np.eye(3, 10), value, X[:3]).astype(dtype)
    with np.errstate(over="ignore"), pytest.raises(DataError, match=words):
        model.predict(rows)


def test_rows_without_names_are_warned_of_where_the_model_saw_names(diabetes):
    pandas = pytest.importorskip("pandas")
    X, y = diabetes
    model = trained(pandas.DataFrame(X, columns=list("abcdefghij")), y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)


def test_names_that_fit_did_not_see_are_matched_by_position_as_the_warning_says(diabetes):
    pandas = pytest.importorskip("pandas")
    X, y = diabetes
    model, frame = trained(X, y), pandas.DataFrame(X, columns=list("abcdefghij"))
    with pytest.warns(
        UserWarning, match="without feature names. Columns are matched by position: column 0 is 'j'."
    ) as w:
        found = model.predict(frame[list("jihgfedcba")])
    assert len(w) == 1
    assert (found == model.predict(X[:, ::-1])).all()
    assert (model.predict(frame.to_numpy()) == model.predict(X)).all()  # filterwarnings = error
    assert list(frame) == list("abcdefghij")


def test_scores_become_labels_piece_by_piece(monkeypatch):
    X, y = load_iris(return_X_y=True)
    model, given = OrtGradientClassifier(max_iter=1, random_state=0).fit(X, y), []

    def pieces(*_):
        for _ in range(4):
            scores = np.eye(3)
            given.append(weakref.ref(scores))
            yield scores
            del scores
            assert sum(piece() is not None for piece in given) <= 1  # all scores of a language model are too many

    monkeypatch.setattr(type(model._model), "predict", pieces)
    assert model.predict(X).tolist() == [0, 1, 2] * 4
