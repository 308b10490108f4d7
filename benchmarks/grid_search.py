"""A grid over losses and penalties: whole searches, and what a fit costs beyond its steps."""

from __future__ import annotations

from _harness import OURS, Options, Run, case, environment, forget, options, timed

EPOCHS = 50


def main(given: Options) -> None:
    """Search 3 losses x 3 l1 x 3 l2 in 5 folds on diabetes, as a user would write it."""
    from sklearn.datasets import load_diabetes
    from sklearn.linear_model import LinearRegression, SGDRegressor
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from onnxtrain import OrtGradientRegressor

    X, y = load_diabetes(return_X_y=True)
    strengths = [0.0, 1e-3] if given.quick else [0.0, 1e-3, 1e-2]
    ours = OrtGradientRegressor(
        LinearRegression(), max_iter=EPOCHS, tol=0.0, n_iter_no_change=10**6, learning_rate=0.1, random_state=0
    )
    peer = SGDRegressor(max_iter=EPOCHS, tol=None, penalty="elasticnet", random_state=0)
    grids = {
        OURS: (ours, {"loss": ["squared_error", "absolute_error", "huber"], "l1": strengths, "l2": strengths}),
        # absolute error: epsilon_insensitive with epsilon 0 would be the same, the cost is
        "SGDRegressor": (
            peer,
            {
                "loss": ["squared_error", "epsilon_insensitive", "huber"],
                "alpha": [max(a, 1e-6) for a in strengths],
                "l1_ratio": [0.0, 0.5, 1.0][: len(strengths)],
            },
        ),
    }

    def search(name: str) -> Run:
        estimator, grid = grids[name]
        step = type(estimator).__name__.lower()
        grid = {f"{step}__{key}": values for key, values in grid.items()}

        def run() -> float:
            forget()
            return timed(lambda: GridSearchCV(make_pipeline(StandardScaler(), estimator), grid).fit(X, y))

        return run

    n_fits = 5 * 3 * len(strengths) ** 2 + 1
    case(
        f"GridSearchCV, {n_fits} fits of {EPOCHS} epochs on diabetes",
        {name: lambda name=name: search(name) for name in grids},
        given,
        targets={} if given.quick else {"SGDRegressor": 2.0},  # of the whole grid: it shares its graphs among more fits
    )
    beyond_steps(ours, X, y, given)


def beyond_steps(estimator, X, y, given: Options) -> None:
    """Print what is left of a fit, its graph compiled before, when its epochs are taken away."""
    from sklearn.base import clone

    def fixed_cost() -> Run:
        one, many = clone(estimator).set_params(max_iter=1), clone(estimator).set_params(max_iter=1 + EPOCHS)

        def run() -> float:
            short, long = timed(lambda: one.fit(X, y)), timed(lambda: many.fit(X, y))
            return short - (long - short) / EPOCHS

        return run

    case("A fit beyond its steps (at most 15 ms are wanted)", {OURS: fixed_cost}, given)


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
