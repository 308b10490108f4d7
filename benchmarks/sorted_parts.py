"""Compare the accuracy on sorted rows in parts with the same rows in memory, for eight open parts and five seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from _harness import Options, environment, options
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier
from onnxtrain.rows import from_files

#: The largest allowed loss of the mean accuracy over the seeds, in percentage points.
_MOST = 0.3

#: The estimator and the number of epochs, by name.
_MODELS = {
    "logistic regression": (LogisticRegression(), 1),
    "20-64-32 network": (MLPClassifier((64, 32), max_iter=1), 3),
}


def rows(n_classes: int, n: int, *, skewed: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of `n_classes` classes; if `skewed`, the last class is 20 times rarer than the first."""
    X, y = make_classification(
        n, 20, n_informative=12, n_redundant=4, n_classes=n_classes, n_clusters_per_class=2, flip_y=0.02, random_state=0
    )
    X = (X / X.std(axis=0)).astype(np.float32)
    if skewed:
        kept = np.random.RandomState(1).rand(n) < np.linspace(1, 0.05, n_classes)[y]
        X, y = X[kept], y[kept]
    return X, y


def orders(X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Return typical orders of the rows in files, by name."""
    drift = X @ np.random.RandomState(3).randn(X.shape[1]) / 4 + np.random.RandomState(4).randn(len(X))
    return {
        "label": np.argsort(y, kind="stable"),
        "a feature": np.argsort(X[:, 0]),
        "time, drifting": np.argsort(drift),
    }


def accuracy(model: str, seed: int, *given: Any, held_out: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the accuracy after a fit, in percent."""
    estimator, n_epochs = _MODELS[model]
    trained = OrtGradientClassifier(estimator, init="random", max_iter=n_epochs, random_state=seed, n_threads=1)
    return 100 * float(trained.fit(*given).score(*held_out))


def compare(model: str, n_parts: int, X: np.ndarray, y: np.ndarray, order: np.ndarray, n_seeds: int) -> np.ndarray:
    """Return the accuracies for each seed, in memory and in parts."""
    n_held_out = len(y) // 6
    held_out, kept = (X[:n_held_out], y[:n_held_out]), order[order >= n_held_out]
    cuts = np.array_split(kept, n_parts)
    parts = from_files(cuts, lambda cut: (X[cut], y[cut]), n_rows=list(map(len, cuts)))
    return np.array(
        [
            [
                accuracy(model, seed, X[kept], y[kept], held_out=held_out),
                accuracy(model, seed, parts, held_out=held_out),
            ]
            for seed in range(n_seeds)
        ]
    )


def main(given: Options) -> None:
    """Print the table."""
    n, n_seeds = (60_000, 2) if given.quick else (120_000, 5)
    print(f"\nAccuracy in %, the mean of {n_seeds} seeds (a difference of at least -{_MOST} is wanted)")
    print(f"{'':38} {'':19} memory spread  parts change")
    for n_classes, skewed in ((2, False), (10, False), (10, True)):
        X, y = rows(n_classes, n, skewed=skewed)
        for name, order in orders(X, y).items():
            if skewed and name != "label":
                continue
            for n_parts in (64, 200) if name == "label" and n_classes > 2 else (64,):
                case = f"{n_classes} {'skewed ' if skewed else ''}classes by {name}, {n_parts} parts"
                show(case, n_parts, X, y, order, n_seeds, judged=not given.quick)
    X, group = rows(10, n)
    show(
        "2 classes by ten groups, 128 parts", 128, X, group % 2, np.argsort(group, kind="stable"), n_seeds, judged=False
    )


def show(case: str, n_parts: int, X: np.ndarray, y: np.ndarray, order: np.ndarray, n_seeds: int, judged: bool) -> None:
    """Print the line of each model."""
    for model in _MODELS:
        found = compare(model, n_parts, X, y, order, n_seeds)
        memory, parts = found.mean(axis=0)
        word = ("ok" if parts - memory >= -_MOST else "MISSED") if judged else ""
        print(
            f"{case:38} {model:19} {memory:6.2f} {found[:, 0].std():6.2f} {parts:6.2f} {parts - memory:+6.2f} {word}",
            flush=True,
        )


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
