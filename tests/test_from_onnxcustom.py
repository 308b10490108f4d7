"""Scripts of onnxcustom, ported as doc/from_onnxcustom.rst says, reach the losses of its algorithm, written in numpy here.

Its algorithm: the rate of an epoch is eta_0 / max(epoch, 1) ** power_t; each step first shrinks every weight by its l2 penalty,
whatever the rate, then goes against the mean gradient of the batch. Here the rows come in order, each once an epoch.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer, make_regression
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientClassifier, OrtGradientForwardBackward, OrtGradientRegressor
from onnxtrain.optim import SGD

BATCH = 10


def per_epoch(eta0, n_rows, power_t=0.25):
    """The rate that onnxcustom has for a float, as a function of the step."""
    n_steps = n_rows // BATCH
    return lambda step: eta0 / max(step // n_steps, 1) ** power_t


def onnxcustom(weights, gradient, X, y, *, eta0, n_epochs, power_t=0.25, momentum=0.0, l2=0.0):
    """Train `weights` in place; return the mean loss of the batches of each epoch."""
    velocities, curve = [np.zeros_like(w) for w in weights], []
    for epoch in range(n_epochs):
        rate, losses = eta0 / max(epoch, 1) ** power_t, []
        for i in range(0, len(X), BATCH):
            loss, slopes = gradient(weights, X[i : i + BATCH], y[i : i + BATCH])
            losses.append(loss)
            for w, v, slope in zip(weights, velocities, slopes, strict=True):
                w *= 1 - 2 * l2
                v[:] = momentum * v - rate * slope
                w += momentum * v - rate * slope if momentum else v
        curve.append(np.mean(losses))
    return curve


def linear(weights, X, y):
    coef, intercept = weights
    r = X @ coef + intercept - y
    return (r**2).mean(), [2 * X.T @ r / len(X), 2 * r.mean(axis=0)]


def network(weights, X, y):
    w0, w1, b0, b1 = weights
    hidden = np.maximum(X @ w0 + b0, 0)
    r = hidden @ w1 + b1 - y
    back = 2 * r @ w1.T * (hidden > 0)
    return (r**2).mean(), [X.T @ back / len(X), 2 * hidden.T @ r / len(X), back.mean(axis=0), 2 * r.mean(axis=0)]


def logistic(weights, X, y):
    coef, intercept = weights
    s = X @ coef + intercept
    r = 1 / (1 + np.exp(-s)) - y
    return (np.logaddexp(0, s) - y * s).mean(), [X.T @ r / len(X), r.mean(axis=0)]


COMMON = dict(batch_size=BATCH, shuffle=False, tol=0, dtype="float64", random_state=0)


def test_a_linear_regression_whose_rate_is_a_float():
    X, y = make_regression(100, n_features=2, n_informative=2, bias=2, random_state=0)
    model = OrtGradientRegressor(
        init="random", solver="sgd", learning_rate=per_epoch(1e-2, 100), max_iter=200, n_iter_no_change=200, **COMMON
    )
    start = model.set_params(max_iter=0).fit(X, y).weights_
    weights = [w.copy() for w in start.values()]
    curve = onnxcustom(weights, linear, X, y.reshape(-1, 1), eta0=1e-2, n_epochs=200)
    model.set_params(max_iter=200).fit(X, y)
    np.testing.assert_allclose(model.loss_curve_, curve, rtol=1e-8, atol=1e-12)
    assert model.loss_curve_[-1] < 1e-6


def test_a_network_with_nesterovs_momentum():
    X, y = make_regression(100, n_features=10, bias=2, random_state=0)
    y /= y.std()
    nn = MLPRegressor(hidden_layer_sizes=(10,), tol=0.01, random_state=0).fit(X, y)
    model = OrtGradientRegressor(
        nn,
        solver=SGD(momentum=0.9, nesterov=True),
        learning_rate=1e-3,  # a velocity there holds the rates of its steps: only a constant one gives the same
        max_iter=100,
        n_iter_no_change=100,
        **COMMON,
    ).fit(X, y)
    weights = [w.copy() for w in (*nn.coefs_, *nn.intercepts_)]
    curve = onnxcustom(weights, network, X, y.reshape(-1, 1), eta0=1e-3, n_epochs=100, power_t=0, momentum=0.9)
    np.testing.assert_allclose(model.loss_curve_, curve, rtol=1e-6)


def test_classes_with_a_penalty_that_ignored_the_rate():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[:560], y[:560]
    start = LogisticRegression(C=0.01).fit(X, y)
    rate, l2 = 1e-2, 1e-4
    model = OrtGradientClassifier(
        start,
        loss="log",
        l2=l2 / rate,
        penalty={"intercept": {"l2": l2 / rate}},
        solver="sgd",
        learning_rate=rate,
        max_iter=50,
        n_iter_no_change=50,
        **COMMON,
    ).fit(X, y)
    weights = [start.coef_.T.copy(), start.intercept_.copy()]
    onnxcustom(weights, logistic, X, y.reshape(-1, 1), eta0=rate, n_epochs=50, power_t=0, l2=l2)
    np.testing.assert_allclose(model.coef_.T, weights[0], rtol=1e-8)
    np.testing.assert_allclose(model.losses(X, y).mean(), logistic(weights, X, y.reshape(-1, 1))[0], rtol=1e-8)


def test_a_loop_of_ones_own():
    X, y = make_regression(100, n_features=2, n_informative=2, bias=2, random_state=0)
    X, y = X.astype(np.float32), y.astype(np.float32).reshape(-1, 1)
    line = LinearRegression().fit(X, np.zeros(len(X)))
    onx = OrtGradientRegressor(line, max_iter=0).fit(X, y).get_training_graphs()["model"]
    made = OrtGradientForwardBackward(onx, weights_to_train=["coef", "intercept"])
    function = made.new_instance()
    weights = [made.get_initializer(name).copy() for name in made.weights_to_train]
    for _ in range(20):
        (found,) = function.forward([X, *weights], training=True)
        r = 2 * (found.numpy() - y) / len(X)
        _, dcoef, dintercept = function.backward([r])
        weights = [w - 0.1 * dw.numpy() for w, dw in zip(weights, (dcoef, dintercept), strict=True)]
    expected = [np.zeros((2, 1)), np.zeros(1)]
    for _ in range(20):
        _, slopes = linear(expected, X, y)
        expected = [w - 0.1 * slope for w, slope in zip(expected, slopes, strict=True)]
    for w, right in zip(weights, expected, strict=True):
        np.testing.assert_allclose(w, right, rtol=1e-4)
