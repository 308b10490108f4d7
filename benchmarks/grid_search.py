"""Measure grid searches over losses and penalties and over a network with frozen steps, and the fixed cost of a fit."""

from __future__ import annotations

from _harness import OURS, Options, Run, Wanted, case, environment, forget, options, timed

EPOCHS = 50

SURROUNDINGS = (
    "SGDRegressor's epochs are nearly free on 353 rows, ours are two runs of 26 to 36 operators: a quarter of the "
    "search. A third is the search and the scaling, which both pay; the rest are twelve graphs to derive, the checks "
    "of the rows, and the end of each of 6800 epochs."
)

REPEATED = (
    "Two thirds are the steps. A tenth is what each fit of a fold does again: scikit-learn's front on all rows, as "
    "they are and rounded to float32, and the comparison of its start with the estimator."
)


def main(given: Options) -> None:
    """Search 3 losses x 3 l1 x 3 l2 with 5 folds on the diabetes data, in the way a user would."""
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
        targets={"SGDRegressor": Wanted(1.3, SURROUNDINGS)},
    )
    behind_a_front(given)
    beyond_steps(ours, X, y, given)


def behind_a_front(given: Options) -> None:
    """Search 3 learning rates x 3 penalties with 5 folds for a network behind a scaler and a PCA."""
    from sklearn.datasets import make_regression
    from sklearn.decomposition import PCA
    from sklearn.model_selection import GridSearchCV
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from onnxtrain import OrtGradientRegressor

    X, y = make_regression(500 if given.quick else 2000, 20, noise=1.0, random_state=0)
    y /= y.std()
    long = {"max_iter": EPOCHS, "tol": 0.0, "n_iter_no_change": 10**6, "random_state": 0}

    def network(**settings):
        return make_pipeline(StandardScaler(), PCA(8), MLPRegressor(hidden_layer_sizes=(100,), **settings))

    rates, strengths = [1e-3, 3e-3, 1e-2], [1e-5, 1e-4, 1e-3]
    searches: dict[str, GridSearchCV] = {
        OURS: GridSearchCV(
            OrtGradientRegressor(network(max_iter=1, random_state=0), **long), {"learning_rate": rates, "l2": strengths}
        ),
        "MLPRegressor": GridSearchCV(
            network(**long), {"mlpregressor__learning_rate_init": rates, "mlpregressor__alpha": strengths}
        ),
    }

    def maker(search: GridSearchCV) -> Run:
        return lambda: (forget(), timed(lambda: search.fit(X, y)))[1]

    case(
        f"GridSearchCV of a pipeline with a frozen front, 46 fits of {EPOCHS} epochs on {len(X)} rows",
        {name: lambda search=search: maker(search) for name, search in searches.items()},
        given,
        targets={"MLPRegressor": Wanted(0.3, REPEATED)},
    )


def beyond_steps(estimator, X, y, given: Options) -> None:
    """Print the time of a fit with a compiled graph minus the time of its epochs."""
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
