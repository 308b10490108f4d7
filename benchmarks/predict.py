"""Compare predictions for many rows with an onnxruntime session on the same model, and with scikit-learn."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from _harness import OURS, Options, Wanted, case, environment, options, timed

GROUPS = (
    "Both read the rows twice, for NaN and for the product, and take the same time on one core. scikit-learn's BLAS "
    "multiplies on all of them; ours is the session of one thread that all fits of small models share."
)

CHECKS = (
    "Both check the row in Python, which is nine tenths of the time. A run of onnxruntime takes 6 us, numpy's "
    "product 2."
)


def main(given: Options) -> None:
    """Predict with a linear model and with a network."""
    import onnxruntime
    from sklearn.linear_model import LinearRegression
    from sklearn.neural_network import MLPRegressor

    from onnxtrain import OrtGradientRegressor

    rows = 50_000 if given.quick else 500_000
    X = np.random.default_rng(0).standard_normal((rows, 50), dtype=np.float32)
    few = slice(0, 1000)
    for estimator in (LinearRegression(), MLPRegressor(hidden_layer_sizes=(100,), max_iter=1)):
        model = OrtGradientRegressor(estimator.fit(X[few], X[few, 0]), max_iter=1).fit(X[few], X[few, 0])
        trained = model.to_sklearn()
        session = onnxruntime.InferenceSession(
            model.get_trained_onnx().SerializeToString(), providers=["CPUExecutionProvider"]
        )
        feeds = {session.get_inputs()[0].name: X}
        contenders = {
            OURS: lambda model=model: model.predict(X),
            "onnxruntime alone": lambda session=session, feeds=feeds: session.run(None, feeds),
            "scikit-learn": lambda trained=trained: trained.predict(X),
        }
        makers = {name: lambda f=f: lambda: timed_alone(f) for name, f in contenders.items()}
        name, wanted = type(estimator).__name__, {"scikit-learn": Wanted(1.0, GROUPS)}
        case(f"{name}: predict {rows:,} x 50", makers, given, targets=wanted)
        one = {OURS: lambda model=model: model.predict(X[:1]), "scikit-learn": lambda t=trained: t.predict(X[:1])}
        case(
            f"{name}: predict one row",
            {peer: lambda f=f: lambda: timed(lambda: [f() for _ in range(200)]) / 200 for peer, f in one.items()},
            given,
            unit="us",
            scale=1e6,
            targets={"scikit-learn": Wanted(1.0, CHECKS)},
        )


def timed_alone(f: Callable[[], object]) -> float:
    """Return the seconds of one call, after the threads of the previous call have stopped spinning."""
    time.sleep(0.1)
    return timed(f)


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
