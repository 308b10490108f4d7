"""Callbacks: they are called after each epoch, and may stop the fit."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import ArgumentTypeError
from onnxtrain.training.state import EpochInfo

X, y = load_diabetes(return_X_y=True)

SOLVERS = [dict(solver="adam", batch_size=64), dict(solver="lbfgs")]
IDS = ["adam", "lbfgs"]


@pytest.mark.parametrize("params", SOLVERS, ids=IDS)
@pytest.mark.filterwarnings("ignore:The validation set")
def test_a_function_is_told_and_may_stop(params):
    seen = []

    def callback(info):
        seen.append(info)
        return info.epoch == 3

    model = OrtGradientRegressor(init="random", random_state=0, **params)
    model.fit(X, y, X_val=X, y_val=y, callback=callback)
    assert model.n_iter_ == len(seen) == 3
    assert all(isinstance(info, EpochInfo) for info in seen)
    assert [info.loss for info in seen] == model.loss_curve_
    assert [info.validation_loss for info in seen] == model.validation_loss_curve_
    assert [info.epoch for info in seen] == [1, 2, 3]
    assert [info.step for info in seen] == ([7, 14, 21] if params["solver"] == "adam" else [1, 2, 3])
    assert set(seen[0].weights) == set(model.weights_)
    assert not np.array_equal(seen[0].weights["coef"], seen[2].weights["coef"])  # each epoch's own
    if params["solver"] == "adam":
        assert sorted(info.time for info in seen) == [info.time for info in seen]
        assert {info.learning_rate for info in seen} == {1e-3}


@pytest.mark.parametrize("params", SOLVERS, ids=IDS)
def test_the_estimator_predicts_with_the_weights_of_the_epoch_in_a_callback(params):
    model = OrtGradientRegressor(init="random", max_iter=3, random_state=0, **params)
    told = []

    def tell(info):
        told.append((model.predict(X), dict(model.weights_), model.n_iter_, len(model.history_)))

    for _ in range(2):  # of a fit and of another one, in which the estimator has earlier weights
        told.clear()
        model.fit(X, y, callback=tell)
        assert [n for _, _, n, _ in told] == [epochs for *_, epochs in told] == list(range(1, len(told) + 1))
        assert not np.array_equal(told[0][0], told[1][0])
        np.testing.assert_array_equal(told[-1][0], model.predict(X))


def test_a_callback_that_takes_none_for_a_loss_is_told_why_it_is_none():
    with pytest.raises(TypeError) as e:
        OrtGradientRegressor(max_iter=1).fit(X, y, callback=lambda info: f"{info.validation_loss:.3f}")
    assert e.value.__notes__ == [
        "info.validation_loss is None, because there is no validation set: fit(X, y, X_val=, y_val=)."
    ]


def test_an_error_in_a_callback_is_the_users(recwarn):
    def callback(info):
        raise RuntimeError("of the user")

    model = OrtGradientRegressor(random_state=0)
    with pytest.raises(RuntimeError, match="of the user"):
        model.fit(X, y, callback=callback)
    assert model.n_iter_ == 1


newer = pytest.mark.skipif(parse_version(sklearn.__version__) < parse_version("1.9"), reason="scikit-learn < 1.9")


@newer
def test_a_function_is_told_where_to_go():
    with pytest.raises(ArgumentTypeError, match=r"one by one, such as .*Pass a function to fit: fit\(X, y, callb"):
        OrtGradientRegressor().set_callbacks(print)


class Recorder:
    """A callback of scikit-learn's protocol."""

    def __init__(self, stop_after=None):
        self.stop_after = stop_after
        self.calls, self.predictions, self.metadata = [], [], []

    def setup(self, estimator, context):
        self.calls.append("setup")

    def teardown(self, estimator, context):
        self.calls.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.calls.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X, y, metadata, fitted_estimator):
        self.calls.append(f"end {context.task_name}")
        self.predictions.append(fitted_estimator.predict(X))
        self.metadata.append(metadata)
        return context.task_name == "epoch" and self.calls.count("end epoch") == self.stop_after


@newer
@pytest.mark.parametrize("params", SOLVERS, ids=IDS)
def test_the_protocol_of_scikit_learn(params):
    recorder = Recorder(stop_after=3)
    model = OrtGradientRegressor(init="random", random_state=0, **params).set_callbacks(recorder)
    model.fit(X, y, sample_weight=y)
    epochs = ["begin epoch", "end epoch"] * 3
    assert recorder.calls == ["setup", "begin fit", *epochs, "end fit", "teardown"]
    assert model.n_iter_ == 3
    np.testing.assert_array_equal(recorder.predictions[-1], model.predict(X))
    assert not np.array_equal(recorder.predictions[0], recorder.predictions[1])
    assert all(np.array_equal(given["sample_weight"], y) for given in recorder.metadata)
    assert not hasattr(model, "_callback_fit_ctx")


class Refusing(Recorder):
    """It raises as the fit begins."""

    def on_fit_task_begin(self, estimator, context):
        raise RuntimeError("of the user")


@newer
def test_an_error_as_the_fit_begins_leaves_the_estimator_as_it_was():
    model = OrtGradientClassifier(max_iter=1, random_state=0).fit(X, y > 150)
    expected = model.predict(X)
    with pytest.raises(RuntimeError, match="of the user"):
        model.set_callbacks(Refusing()).fit(X, np.where(y > 150, "no", "yes"))
    assert model.classes_.tolist() == [False, True]
    np.testing.assert_array_equal(model.predict(X), expected)


@newer
@pytest.mark.parametrize("params", SOLVERS, ids=IDS)
def test_scoring_monitor(params):
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring="r2")
    model = OrtGradientRegressor(init="random", random_state=0, max_iter=4, **params).set_callbacks(monitor)
    model.fit(X, y)
    scores = [row["r2"] for row in monitor.get_logs().data if row["task_name"] == "epoch"]
    assert len(scores) == 4
    assert scores[-1] == pytest.approx(r2_score(y, model.predict(X)))
    assert len(set(scores)) == 4


@newer
def test_progress_bar(capsys):
    pytest.importorskip("rich")
    from sklearn.callback import ProgressBar

    OrtGradientRegressor(max_iter=3).set_callbacks(ProgressBar()).fit(X, y)
    assert "OrtGradientRegressor" in capsys.readouterr().out


@newer
def test_callbacks_of_a_search_reach_the_epochs():
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring="r2")
    tuned = OrtGradientRegressor(max_iter=2, random_state=0).set_callbacks(monitor)
    search = GridSearchCV(tuned, {"l2": [0.0, 1.0]}, cv=2, error_score="raise").fit(X, y)
    assert search.best_estimator_.n_iter_ == 2
    (log,) = monitor.get_logs("all")
    assert [row["task_name"] for row in log.data].count("epoch") == (2 * 2 + 1) * 2  # candidates, folds, refit; epochs


@newer
def test_in_a_pipeline():
    recorder = Recorder()
    model = make_pipeline(StandardScaler(), OrtGradientRegressor(max_iter=2).set_callbacks(recorder)).fit(X, y)
    assert recorder.calls.count("end epoch") == 2
    assert clone(model)[-1]._skl_callbacks == [recorder]


def test_partial_fit_has_none():
    model = OrtGradientClassifier(max_iter=1)
    assert model.partial_fit(X, y > 150, classes=[False, True]).n_iter_ == 1
