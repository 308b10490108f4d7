"""The same solution as scikit-learn's solvers, the same path as PyTorch's optimizers."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.linear_model import (
    HuberRegressor,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
)
from sklearn.metrics import mean_pinball_loss
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.optim import SGD, Adam

LBFGS = dict(solver="lbfgs", dtype="float64", max_iter=1000)


def scaled(load):
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def close(found, expected, tol=1e-3):
    np.testing.assert_allclose(np.ravel(found), np.ravel(expected), rtol=tol, atol=tol * np.abs(expected).max())


def test_ridge():
    X, y = load_diabetes(return_X_y=True)
    expected = Ridge(alpha=0.1).fit(X, y)
    found = OrtGradientRegressor(l2=0.1 / len(X), **LBFGS).fit(X, y)
    close(found.weights_["coef"], expected.coef_)
    close(found.weights_["intercept"], expected.intercept_)


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer], ids=["multinomial", "binary"])
@pytest.mark.parametrize("init", ["estimator", "random"])
def test_logistic_regression(load, init):
    X, y = scaled(load)
    expected = LogisticRegression(C=0.7, tol=1e-10, max_iter=10_000).fit(X, y)
    found = OrtGradientClassifier(l2=1 / (2 * 0.7 * len(X)), init=init, random_state=0, **LBFGS).fit(X, y)
    close(found.weights_["coef"], expected.coef_.T)


def test_huber():
    X, y = scaled(load_diabetes)
    expected = HuberRegressor(alpha=0, tol=1e-10, max_iter=10_000).fit(X, y)
    found = OrtGradientRegressor(loss="huber", loss_params={"delta": 1.35 * expected.scale_}, **LBFGS).fit(X, y)
    close(found.weights_["coef"], expected.coef_)


@pytest.mark.parametrize("alpha", [0, 0.5])
@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_quantile(q, alpha):
    # the optimum is a corner or an edge of a polyhedron: what is minimised is compared
    X, y = scaled(load_diabetes)
    expected = QuantileRegressor(quantile=q, alpha=alpha).fit(X, y)
    found = OrtGradientRegressor(loss="quantile", loss_params={"q": q}, l1=alpha, **LBFGS).fit(X, y)

    def objective(model, coef):
        return mean_pinball_loss(y, model.predict(X), alpha=q) + alpha * np.abs(coef).sum()

    assert objective(found, found.weights_["coef"]) <= (1 + 1e-4) * objective(expected, expected.coef_)


def test_poisson():
    X, y = scaled(load_diabetes)
    expected = PoissonRegressor(alpha=0.1, tol=1e-8, max_iter=1000).fit(X, y)
    found = OrtGradientRegressor(PoissonRegressor(alpha=1.0), loss="poisson", l2=0.05, **LBFGS).fit(X, y)
    close(found.weights_["coef"], expected.coef_)


def test_lasso_is_sparse():
    from sklearn.linear_model import Lasso

    X, y = scaled(load_diabetes)
    expected = Lasso(alpha=5.0, tol=1e-10).fit(X, y)
    found = OrtGradientRegressor(l1=10.0, **LBFGS).fit(X, y)  # Lasso halves the squared error
    close(found.weights_["coef"], expected.coef_)
    np.testing.assert_array_equal(found.weights_["coef"].ravel() == 0, expected.coef_ == 0)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("dtype, tol", [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize(
    "solver, name, params",
    [(SGD(momentum=0.9), "SGD", {"momentum": 0.9}), (Adam(), "Adam", {})],
    ids=["SGD", "Adam"],
)
def test_hundred_steps_of_pytorch(solver, name, params, dtype, tol):
    torch = pytest.importorskip("torch")
    X, y = scaled(load_diabetes)
    X, y = X[:400].astype(dtype), (y[:400] / 100).astype(dtype)
    mlp = MLPRegressor(hidden_layer_sizes=(20,), max_iter=3, random_state=0, early_stopping=True).fit(X, y)
    # 400 rows, 50 a batch: 8 steps an epoch, the hundredth in the middle of the thirteenth
    tuned = OrtGradientRegressor(
        mlp, solver=solver, learning_rate=1e-2, batch_size=50, max_iter=13, shuffle=False, l2=1e-3, dtype=dtype, tol=0
    ).fit(X, y)

    kinds = getattr(torch, dtype)
    arrays = [mlp.coefs_[0], mlp.intercepts_[0], mlp.coefs_[1], mlp.intercepts_[1]]
    w = [torch.tensor(a, dtype=kinds, requires_grad=True) for a in arrays]
    optimizer = getattr(torch.optim, name)(w, lr=1e-2, **params)
    tx, ty = torch.tensor(X), torch.tensor(y).reshape(-1, 1)
    for step in range(13 * 8):
        rows = slice(step % 8 * 50, step % 8 * 50 + 50)
        optimizer.zero_grad()
        error = torch.relu(tx[rows] @ w[0] + w[1]) @ w[2] + w[3] - ty[rows]
        ((error**2).mean() + 1e-3 * (w[0].square().sum() + w[2].square().sum())).backward()
        optimizer.step()
    names = ("coefs_0", "intercepts_0", "coefs_1", "intercepts_1")
    for key, expected in zip(names, w, strict=True):
        expected = expected.detach().numpy()
        error = np.abs(tuned.weights_[key].reshape(expected.shape) - expected).max() / np.abs(expected).max()
        assert error < tol, (key, error)
