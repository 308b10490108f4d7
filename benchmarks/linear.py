"""Measure the time in which linear models on many rows reach the loss of scikit-learn's solver; a network of words."""

from __future__ import annotations

import numpy as np
from _harness import OURS, Missing, Options, Run, Wanted, case, environment, forget, options, timed

FEATURES = 100


def regression(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return X (n, 100) and y (n,) in float32, with noise as large as the signal."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, FEATURES), dtype=np.float32)
    signal = X @ rng.standard_normal(FEATURES, dtype=np.float32)
    return X, signal + signal.std() * rng.standard_normal(rows, dtype=np.float32)


def squared_error(estimator, X: np.ndarray, y: np.ndarray) -> float:
    """Return the mean squared error on the rows."""
    return float(np.mean((np.asarray(estimator.predict(X)).ravel() - y) ** 2))


def compare_regression(given: Options) -> None:
    """Compare with SGDRegressor, whose loss after 5 epochs is to be reached."""
    from sklearn.linear_model import LinearRegression, SGDRegressor

    from onnxtrain import OrtGradientRegressor
    from onnxtrain.optim import SGD, Cosine

    rows = 100_000 if given.quick else 1_000_000
    X, y = regression(rows)
    peer = SGDRegressor(max_iter=5, tol=None, alpha=0.0, random_state=0)
    goal = squared_error(peer.fit(X, y), X, y)
    start = LinearRegression().fit(X[:200], y[:200])
    start.coef_[:], start.intercept_ = 0, 0.0

    def fit(epochs: int):
        return OrtGradientRegressor(
            start,
            solver=SGD(momentum=0.9),
            learning_rate=Cosine(0.01),
            batch_size=2000,
            max_iter=epochs,
            tol=0.0,
            random_state=0,
        ).fit(X, y)

    epochs = next((e for e in (1, 2, 3, 5) if squared_error(fit(e), X, y) <= goal * (1 + 1e-3)), None)

    def ours() -> Run:
        if epochs is None:
            raise Missing("5 epochs do not reach the loss")
        return lambda: (forget(), timed(lambda: fit(epochs)))[1]

    case(
        f"Linear regression, {rows:,} x {FEATURES}: fit to the loss of SGDRegressor after 5 epochs, {goal:.6g} "
        f"(ours: {epochs} epochs)",
        {OURS: ours, "SGDRegressor, 5 epochs": lambda: lambda: timed(lambda: peer.fit(X, y))},
        given,
        targets={"SGDRegressor, 5 epochs": Wanted(1.0)},
    )


def compare_logistic(given: Options) -> None:
    """Compare with LogisticRegression, which has the same objective and also uses L-BFGS."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    from onnxtrain import OrtGradientClassifier

    rows = 20_000 if given.quick else 100_000
    X, signal = regression(rows)
    y = (signal > 0).astype(int)
    C = 1.0
    peer = LogisticRegression(C=C, max_iter=1000)

    def objective(estimator) -> float:
        probabilities = np.asarray(estimator.predict_proba(X), np.float64)
        w = (
            estimator.coef_
            if hasattr(estimator, "coef_")
            else next(w for w in estimator.weights_.values() if w.size == FEATURES)
        )
        return log_loss(y, probabilities) + float(np.sum(np.square(w, dtype=np.float64))) / (2 * C * rows)

    goal = objective(peer.fit(X, y))
    start = LogisticRegression(max_iter=1).fit(X[:200], y[:200])
    start.coef_[:], start.intercept_[:] = 0, 0

    def fit():
        # both stop if no entry of the gradient is above 1e-4; in onnxtrain, the limit is tol / 100
        return OrtGradientClassifier(start, solver="lbfgs", l2=1 / (2 * C * rows), max_iter=1000, tol=1e-2).fit(X, y)

    print(f"\nObjective: ours {objective(fit()):.8f}, LogisticRegression {goal:.8f}")
    case(
        f"Logistic regression, {rows:,} x {FEATURES}: L-BFGS",
        {
            OURS: lambda: lambda: (forget(), timed(fit))[1],
            "LogisticRegression(lbfgs)": lambda: lambda: timed(lambda: peer.fit(X, y)),
        },
        given,
        targets={"LogisticRegression(lbfgs)": Wanted(1.0)},
    )


def compare_words(given: Options) -> None:
    """Compare with MLPClassifier, which takes the same steps, on sparse rows of word counts."""
    from scipy.sparse import csr_matrix
    from sklearn.neural_network import MLPClassifier

    from onnxtrain import OrtGradientClassifier

    rows, words, per_text = (2000 if given.quick else 10_000), 100_000, 100
    rng = np.random.default_rng(0)
    columns = (words * rng.random((rows, per_text)) ** 3).astype(np.int32)  # some words are frequent
    counts = np.ones(rows * per_text, np.float32), columns.ravel(), np.arange(0, rows * per_text + 1, per_text)
    X = csr_matrix(counts, shape=(rows, words))
    X.sum_duplicates()
    y = np.asarray(X @ rng.normal(size=(words, 10))).argmax(axis=1)
    peer = MLPClassifier((32,), batch_size=200, max_iter=3, tol=0.0, random_state=0)
    start = MLPClassifier((32,), max_iter=1, random_state=0).fit(X[:200], y[:200])

    def fit():
        return OrtGradientClassifier(start, batch_size=200, max_iter=3, tol=0.0, random_state=0).fit(X, y)

    case(
        f"Network {words}-32-10 on {rows:,} sparse rows of {per_text} words, adam: fit, 3 epochs",
        {
            OURS: lambda: lambda: (forget(), timed(fit))[1],
            "MLPClassifier": lambda: lambda: timed(lambda: peer.fit(X, y)),
        },
        given,
    )


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    compare_regression(found)
    compare_logistic(found)
    compare_words(found)
