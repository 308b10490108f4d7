"""Compare training steps with the gradient of onnxtrain and with the gradient of onnxruntime-training.

The rest of the step is the same. The environment must have ``onnxruntime-training-cpu``.
"""

from __future__ import annotations

from _harness import OURS, Missing, Options, Run, Wanted, case, environment, options, timed
from _networks import Problem, sklearn_network

PROBLEMS = [
    Problem((10, 100, 1), 4000, 32),
    Problem((64, 100, 100, 10), 4000, 200, classifies=True),
    Problem((784, 256, 128, 10), 4000, 200, classifies=True),
]


def has_training_build() -> bool:
    """Whether the installed onnxruntime is the training build."""
    try:
        from onnxruntime.capi._pybind_state import OrtModuleGraphBuilder  # noqa: F401
    except ImportError:
        return False
    return True


def main(given: Options) -> None:
    """Print the time of a step with each gradient."""
    from onnxtrain import OrtGradientClassifier, OrtGradientRegressor

    for problem in PROBLEMS[: 2 if given.quick else None]:
        X, y = problem.data()
        few = slice(0, 500)
        start = sklearn_network(problem, 1, 500).fit(X[few], y[few])
        estimator = OrtGradientClassifier if problem.classifies else OrtGradientRegressor
        epochs = 3 if given.quick else 10

        def step(builder: str, X=X, y=y, start=start, estimator=estimator, problem=problem, epochs=epochs) -> Run:
            if builder != "builtin" and not has_training_build():
                raise Missing("this onnxruntime is not the training build")

            def fit(n: int):
                return estimator(
                    start,
                    gradient_builder=builder,
                    max_iter=n,
                    tol=0.0,
                    n_iter_no_change=10**6,
                    batch_size=problem.batch,
                    random_state=0,
                ).fit(X, y)

            def run() -> float:
                short, long = timed(lambda: fit(1)), timed(lambda: fit(1 + epochs))
                return (long - short) / (epochs * problem.steps)

            return run

        case(
            f"{problem.name}: one step",
            {
                OURS: lambda step=step: step("builtin"),
                "onnxruntime-training's gradient": lambda step=step: step("onnxruntime-training"),
            },
            given,
            unit="us",
            scale=1e6,
            targets={"onnxruntime-training's gradient": Wanted(1.0)},
        )


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
