"""The graphs that train an estimator, run one by one with plain onnxruntime: against its own results and differences."""

import numpy as np
import onnxruntime
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPRegressor

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.estimators.settings import settings_of

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 2))
IRIS, KIND = load_iris(return_X_y=True)
MLP = MLPRegressor(hidden_layer_sizes=(4,), activation="tanh", tol=0.1, random_state=0).fit(X, Y)
LOGISTIC = LogisticRegression(max_iter=500).fit(IRIS, KIND)

# model, rows, targets, the label that the graph takes
CASES = {
    "a network, two penalties": (OrtGradientRegressor(MLP, l1=0.1, l2=0.2, loss="huber"), X, Y, Y),
    "penalties of single weights": (
        OrtGradientRegressor(MLP, penalty={"coefs_0": {"l1": 0.1, "l2": 0.3}}),
        X,
        Y,
        Y,
    ),
    "classes": (OrtGradientClassifier(LOGISTIC, l2=0.1, solver="lbfgs"), IRIS, KIND, KIND.reshape(-1, 1)),
}


def run(onx, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # that inputs have defaults is worth a warning to onnxruntime
    session = onnxruntime.InferenceSession(onx.SerializeToString(), options)
    feeds = feeds | {"label_1": feeds["label"]}  # of a model with an output label
    wanted = {
        i.name: feeds[i.name]
        for i in [*session.get_inputs(), *session.get_overridable_initializers()]
        if i.name in feeds
    }
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, wanted), strict=True))


def graphs_and_feeds(name):
    model, rows, targets, label = CASES[name]
    model = model.set_params(dtype="float64", max_iter=0).fit(rows, targets)
    feeds = {"X": rows, "label": label, "share": np.array([[1 / len(rows)]])}
    return model, model.get_training_graphs(), feeds


@pytest.mark.parametrize("name", CASES)
def test_the_loss_is_the_objective(name):
    model, graphs, feeds = graphs_and_feeds(name)
    _, rows, targets, _ = CASES[name]
    single = (model.penalty or {}).get("coefs_0", {})
    penalty = sum(
        (model.l1 + single.get("l1", 0) * (w == "coefs_0")) * np.abs(value).sum()
        + (model.l2 + single.get("l2", 0) * (w == "coefs_0")) * (value**2).sum()
        for w, value in model.weights_.items()
        if "interc" not in w
    )
    (found,) = run(graphs["loss"], feeds).values()
    np.testing.assert_allclose(found.item(), model.losses(rows, targets).mean() + penalty, rtol=1e-9)
    (output,) = run(graphs["model"], feeds).values()
    assert len(output) == len(rows)


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_the_derivative_of_the_loss(name):
    model, graphs, feeds = graphs_and_feeds(name)
    found = run(graphs["gradient"], feeds)
    assert set(found) == {"loss", *(f"{w}_grad" for w in model.weights_)}
    for weight, value in model.weights_.items():
        expected = np.empty(value.shape)
        for i in np.ndindex(value.shape):
            step = np.zeros(value.shape)
            step[i] = 1e-6
            above, below = (run(graphs["loss"], {**feeds, weight: value + s})["loss"].item() for s in (step, -step))
            expected[i] = (above - below) / 2e-6
        np.testing.assert_allclose(found[f"{weight}_grad"], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("solver", ["sgd", "adam"])
def test_the_step_is_that_of_a_fit(solver):
    params = dict(solver=solver, learning_rate=0.1, batch_size=len(X), dtype="float64", l2=0.1)
    before = OrtGradientRegressor(MLP, max_iter=0, **params).fit(X, Y)
    after = OrtGradientRegressor(MLP, max_iter=1, **params).fit(X, Y)
    step = before.get_training_graphs()["step"]
    optimizer = settings_of(before).optimizer
    scalars = optimizer.scalar_table([0.1], [1])[0]
    feeds = {f"scalar_{i}": np.array([[s]]) for i, s in enumerate(scalars)}
    feeds |= {f"{w}.{slot}": np.zeros(v.shape) for w, v in before.weights_.items() for slot in optimizer.slots}
    found = run(step, {"X": X, "label": Y, "share": np.array([[1 / len(X)]]), **feeds})
    for weight, value in after.weights_.items():
        np.testing.assert_allclose(found[f"next_{weight}"], value, rtol=1e-12)


def test_a_solver_without_steps_has_no_step():
    assert list(graphs_and_feeds("classes")[1]) == ["model", "loss", "gradient"]


def test_before_a_fit_there_are_none():
    with pytest.raises(NotFittedError):
        OrtGradientRegressor().get_training_graphs()
