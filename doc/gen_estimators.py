"""Write the page that says, of every scikit-learn class, whether it is trained, runs in front, or is refused, and why.

Run from the root of the repository: ``python doc/gen_estimators.py doc/estimators.rst``. It takes about two minutes;
names (``python doc/gen_estimators.py - Ridge``) restrict it to the classes that begin so, and print.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from sklearn.base import clone, is_regressor
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils import all_estimators

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, trainable_weights
from onnxtrain.convert import compare, convert, documentation
from onnxtrain.convert.bind import to_sklearn
from onnxtrain.convert.check import check
from onnxtrain.convert.columns import feeds_of
from onnxtrain.errors import OnnxTrainError, WeightError
from onnxtrain.runtime.session import run

STEPS = 20

#: What readers look for and find here.
WORDS = (
    "supported estimators",
    "random forest",
    "SVM",
    "SVC",
    "k nearest neighbors",
    "KNN",
    "gaussian process",
    "decision tree",
    "stacking",
    "isolation forest",
    "anomaly detection",
    "outlier detection",
    "clustering",
    "PCA",
    "naive Bayes",
)

#: Learning rates, the first that lowers the loss counts: of rows that are not scaled a step must be small.
RATES = (1e-3, 1e-4, 1e-5, 1e-6)

#: Largest difference relative to the largest value.
TOLERANCE = 1e-5

#: Of these the sums have terms that are far larger than the sum, and float32 leaves less.
ROUNDING = {"MLPClassifier": 1e-4, "KernelRidge: kernel='cosine'": 1e-4, "KernelPCA": 1e-4, "KernelCenterer": 1e-4}
#: The steps of isotonic regression are steep: a score that is rounded is a probability that differs more.
ROUNDING["CalibratedClassifierCV: method='isotonic'"] = 1e-4

LOGISTIC = LogisticRegression(max_iter=100)
REGRESSORS = [("a", Ridge()), ("b", Ridge(alpha=10.0))]
CLASSIFIERS = [("a", LOGISTIC), ("b", LogisticRegression(C=0.1, max_iter=100))]
DIABETES, WINE = load_diabetes(return_X_y=True), load_wine(return_X_y=True)
LABELS = np.column_stack([WINE[1] == 0, (WINE[1] > 0) & (WINE[0][:, 0] > 13)]).astype(int)
TARGETS = np.column_stack([DIABETES[1], DIABETES[1][::-1] + 3 * DIABETES[1]])

#: Parameters that a class needs, or that make it small; several dictionaries are variants.
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    **{
        f"{name}{kind}": [{"n_estimators": 10}]
        for name in ("RandomForest", "ExtraTrees")
        for kind in ("Classifier", "Regressor")
    },
    "CalibratedClassifierCV": [{}, {"method": "isotonic"}],
    "ClassifierChain": [{"estimator": LOGISTIC}],
    "ColumnTransformer": [{"transformers": [("a", StandardScaler(), [0, 1]), ("b", "passthrough", [2, 3])]}],
    "DictionaryLearning": [{"max_iter": 5}],
    "FeatureHasher": [{"n_features": 16}],
    "FeatureUnion": [{"transformer_list": [("a", StandardScaler()), ("b", MinMaxScaler())]}],
    "FixedThresholdClassifier": [{"estimator": LOGISTIC}, {"estimator": LOGISTIC, "threshold": 0.3}],
    "GaussianRandomProjection": [{"n_components": 3}],
    "BayesianGaussianMixture": [{"n_components": 2}],
    "GaussianMixture": [{"n_components": 2}],
    "GridSearchCV": [{"estimator": Ridge(), "param_grid": {"alpha": [1.0, 10.0]}}],
    "HashingVectorizer": [{"n_features": 16}],
    "IsolationForest": [{"n_estimators": 10}],
    "KNeighborsRegressor": [{}, {"weights": "distance"}],
    "KernelRidge": [{}, *({"kernel": k} for k in ("rbf", "poly", "sigmoid", "laplacian", "cosine"))],
    "LocalOutlierFactor": [{"novelty": True}],
    "MultiOutputClassifier": [{"estimator": LOGISTIC}],
    "MultiOutputRegressor": [{"estimator": Ridge()}, {"estimator": HistGradientBoostingRegressor(max_iter=10)}],
    "MissingIndicator": [{"features": "all"}],
    "NearestCentroid": [{}, {"priors": "empirical"}],
    "NearestNeighbors": [{"radius": None}],
    "OneVsOneClassifier": [{"estimator": LOGISTIC}],
    "OneVsRestClassifier": [{"estimator": e} for e in (LOGISTIC, LinearSVC(), make_pipeline(StandardScaler(), SVC()))],
    "OutputCodeClassifier": [{"estimator": LOGISTIC}],
    "Pipeline": [{"steps": [("a", StandardScaler()), ("b", Ridge())]}],
    "RFE": [{"estimator": Ridge()}],
    "RFECV": [{"estimator": Ridge()}],
    "RandomizedSearchCV": [{"estimator": Ridge(), "param_distributions": {"alpha": [1.0, 10.0]}, "n_iter": 2}],
    "RegressorChain": [{"estimator": Ridge()}, {"estimator": HistGradientBoostingRegressor(max_iter=10)}],
    "SelectFromModel": [{"estimator": Ridge()}],
    "SelfTrainingClassifier": [{"estimator": LOGISTIC}],
    "SequentialFeatureSelector": [{"estimator": Ridge(), "n_features_to_select": 3}],
    "SparseCoder": [{"dictionary": np.eye(10)[:4]}],
    "SparseRandomProjection": [{"n_components": 3}],
    "StackingClassifier": [{"estimators": CLASSIFIERS}],
    "StackingRegressor": [{"estimators": REGRESSORS}],
    "TunedThresholdClassifierCV": [{"estimator": LOGISTIC}],
    "VotingClassifier": [{"estimators": CLASSIFIERS, "voting": "soft"}, {"estimators": CLASSIFIERS}],
    "VotingRegressor": [{"estimators": REGRESSORS}],
}

#: Why what has no weights has none.
WITHOUT_WEIGHTS = {
    "nothing is learned": "Binarizer FunctionTransformer Normalizer PolynomialFeatures",
    "columns are chosen": "GenericUnivariateSelect RFE RFECV SelectFdr SelectFpr SelectFromModel SelectFwe SelectKBest "
    "SelectPercentile SequentialFeatureSelector VarianceThreshold",
    "categories are discrete": "LabelEncoder OneHotEncoder OrdinalEncoder TargetEncoder",
    "a bin is a number of a column": "KBinsDiscretizer",
    "what it keeps are rows": "NearestNeighbors",
    "values are looked up in a table": "QuantileTransformer",
    "the index of a leaf is discrete": "RandomTreesEmbedding",
    "the score counts splits": "IsolationForest",
    "neighbours vote": "KNeighborsClassifier RadiusNeighborsClassifier",
    "classifiers vote": "VotingClassifier",
}


@dataclass
class Result:
    """What became of one class, or a variant of it."""

    name: str
    page: str
    state: str
    weights: list[str] = field(default_factory=list)
    reason: str = ""
    seconds: float = 0.0


class Wrong(Exception):
    """Training, or the way back, gives something else than it should."""


# ----------------------------------------------------------------------- what


def cases() -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each class, with its parameters where it has variants; its kind, an instance."""
    kinds = {name: kind for kind in ("transformer", "regressor", "classifier") for name, _ in all_estimators(kind)}
    for name, made in all_estimators():
        variants = PARAMETERS.get(name, [{}])
        for i, parameters in enumerate(variants):
            try:
                estimator = made(**parameters)
            except TypeError:  # it is made around another one
                yield name, "other", None
                continue
            if "random_state" in estimator.get_params():
                estimator.set_params(random_state=0)
            words = ", ".join(f"{key}={' '.join(repr(value).split())}" for key, value in parameters.items())
            kind = kinds.get(name) or ("transformer" if hasattr(made, "transform") else "other")
            yield (f"{name}: {words}" if i else name), kind, estimator


def rows_of(name: str, kind: str, estimator: Any) -> tuple[Any, Any]:
    """Return X and y as load_diabetes or load_wine gives them, in the form that a class takes."""
    if kind == "classifier":
        X, y = WINE
        several = name.split(":")[0] in ("MultiOutputClassifier", "ClassifierChain")
        return X, LABELS if several else (y > 0).astype(int) if "Threshold" in name else y
    X, y = DIABETES
    forms = {
        "CountVectorizer": _texts, "TfidfVectorizer": _texts, "HashingVectorizer": _texts,
        "DictVectorizer": _dictionaries, "FeatureHasher": _dictionaries,
        "KernelCenterer": lambda X: X @ X.T, "IsotonicRegression": lambda X: X[:, [2]],
    }  # fmt: skip
    several = name.startswith(("MultiTask", "MultiOutput", "RegressorChain", "CCA", "PLSCanonical"))
    return forms.get(name, lambda X: X)(X), TARGETS if several else y


def _texts(X: np.ndarray) -> list[str]:
    return [" ".join(f"c{j}v{int(10 * v)}" for j, v in enumerate(row)) for row in X]


def _dictionaries(X: np.ndarray) -> list[dict[str, float]]:
    return [{f"c{j}": float(v) for j, v in enumerate(row)} for row in X]


# -------------------------------------------------------------------- examine


def examine(name: str, kind: str, estimator: Any) -> Result:
    """Fit, convert, compare at rate 0, train on moved targets, write back."""
    start = time.perf_counter()
    result = Result(name, "" if estimator is None else documentation(estimator), "no step")
    if estimator is None:
        result.reason = "it is made around a fitted estimator, and is as that is"
        return result
    X, y = rows_of(name, kind, estimator)
    try:
        if kind == "other":
            _other(result, estimator, X)
        elif kind == "transformer":
            _transformer(result, estimator, X, y)
        else:
            _predictor(result, kind, estimator, X, y)
    except WeightError as e:
        why = [reason for reason, names in WITHOUT_WEIGHTS.items() if name.split(":")[0] in names.split()]
        result.state, result.reason = "no weights", why[0] if why else short(e)
    except OnnxTrainError as e:
        result.state, result.reason = "refused", short(e)
    except Exception as e:  # the page says of every class what happens
        result.state, result.reason = "FAILS", short(e)
    result.seconds = time.perf_counter() - start
    return result


def _predictor(result: Result, kind: str, estimator: Any, X: Any, y: Any) -> None:
    fitted = clone(estimator).fit(X, y)
    result.weights = _train(
        result.name, OrtGradientRegressor if kind == "regressor" else OrtGradientClassifier, fitted, X, y
    )
    result.state = "trains"


def _transformer(result: Result, estimator: Any, X: Any, y: Any) -> None:
    """Train a Ridge behind a transformer, and what the transformer has learned where ONNX runs it."""
    positive = [MinMaxScaler()] if result.name.endswith(("Chi2Sampler", "NMF")) or "Dirichlet" in result.name else []
    try:
        pipeline = make_pipeline(*positive, clone(estimator), Ridge()).fit(X, y)
    except Exception as e:  # scikit-learn's own: it is no step of a pipeline
        result.reason = "scikit-learn does not take it as a step before a regressor: " + short(e).partition(": ")[2]
        return
    step = pipeline.steps[-2][0]
    start = OrtGradientRegressor(pipeline, max_iter=1, random_state=0).fit(X, y)
    if start.onnx_status_.get(step) != "ONNX":
        _train(result.name, OrtGradientRegressor, pipeline, X, y)
        result.state = "front only"
        return
    weights = [w.name for w in trainable_weights(start) if w.step == step]
    if not weights:
        _train(result.name, OrtGradientRegressor, pipeline, X, y)
        raise WeightError("nothing of it is learned that has a derivative")
    both = [*weights, *start.weights_]
    found = _train(result.name, OrtGradientRegressor, pipeline, X, y, weights_to_train=list(dict.fromkeys(both)))
    result.weights, result.state = [name for name in found if name in weights], "trains"


def _train(name: str, kind: Any, fitted: Any, X: Any, y: Any, **options: Any) -> list[str]:
    """Return the names of the weights that were trained.

    Raises
    ------
    Wrong
        The predictions at rate 0 are not the estimator's, the loss does not fall, no weight moves, or the estimator
        with the trained weights does not predict as the trained model does.
    """
    tolerance, rng = ROUNDING.get(name, TOLERANCE), np.random.default_rng(0)
    options = {"batch_size": len(y), "random_state": 0, "n_iter_no_change": STEPS, **options}
    start = kind(fitted, max_iter=1, learning_rate=1e-30, **options).fit(X, y)
    _agree("at rate 0", start, fitted, X, tolerance)
    if kind is OrtGradientRegressor:
        moved = 0.7 * y + 0.3 * y.std(axis=0) * rng.normal(size=y.shape)
    else:
        moved = np.where(rng.random(y.shape) < 0.2, y.max() - y, y)
    for rate in RATES:
        tuned = kind(fitted, max_iter=STEPS, learning_rate=rate, **options).fit(X, moved)
        if tuned.loss_curve_[-1] < tuned.loss_curve_[0]:
            break
    else:
        raise Wrong(f"the loss goes from {tuned.loss_curve_[0]:.6g} to {tuned.loss_curve_[-1]:.6g}")
    if all(np.array_equal(tuned.weights_[k], w) for k, w in start.weights_.items()):
        raise Wrong("no weight moves")
    _agree("written back", tuned, tuned.to_sklearn(), X, tolerance)
    return list(tuned.weights_)


def _agree(when: str, ours: Any, theirs: Any, X: Any, tolerance: float) -> None:
    # the scores of our own are those that the link makes the probabilities of: AdaBoost divides its before
    scores = "predict_proba" if hasattr(theirs, "predict_proba") else "decision_function"
    for method in (scores, "predict"):
        if not (hasattr(ours, method) and hasattr(theirs, method)):
            continue
        found, expected = (_as_array(getattr(each, method)(X)) for each in (ours, theirs))
        if found.shape != expected.shape:
            raise Wrong(f"{when} {method} has shape {found.shape}, not {expected.shape}")
        if found.dtype.kind != "f":
            if not np.array_equal(found, expected):
                raise Wrong(f"{when} {method} differs in {np.sum(found != expected)} rows")
            continue
        difference = np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30)
        if not difference <= tolerance:
            raise Wrong(f"{when} {method} differs by {difference:.1e}")


def _as_array(found: Any) -> np.ndarray:
    """Return results as columns; of several classifiers of two classes the probability of the second class of each."""
    if isinstance(found, list):
        found = np.column_stack([np.asarray(p)[:, -1] for p in found])
    found = np.asarray(found)
    return found.reshape(len(found), -1)


def _other(result: Result, estimator: Any, X: Any) -> None:
    """Train each floating-point output of a class that is neither predictor nor transformer."""
    fitted = clone(estimator).fit(*DIABETES)
    if is_regressor(fitted):  # a search, a pipeline
        result.weights = _train(result.name, OrtGradientRegressor, fitted, *DIABETES)
        result.state = "trains"
        return
    if not (hasattr(fitted, "predict") or hasattr(fitted, "kneighbors")):
        result.reason = "it has neither predict nor transform for other rows"
        return
    conversion = convert(fitted, X)
    compare(fitted, conversion.onnx, X)
    if not conversion.bindings:
        raise WeightError("nothing of it is learned that has a derivative")
    tuned = _train_outputs(conversion, X)
    back = to_sklearn(fitted, conversion.bindings, tuned.weights_)
    rows = np.asarray(X, dtype=np.float32).astype(np.float64)
    found = dict(zip((y.name for y in tuned.onnx.graph.output), run(tuned.onnx, feeds_of(tuned.onnx, X)), strict=True))
    check(back, found, rows, tolerance=1e-4)
    result.weights, result.state = list(tuned.weights_), "trains"


def _train_outputs(conversion: Any, X: Any) -> Any:
    """Train each output of scores on moved scores, one after the other."""
    rng, onx, weights = np.random.default_rng(0), conversion.onnx, {}
    for name in [o.name for o in onx.graph.output if o.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]:
        reach = {w.name for w in trainable_weights(onx, output=name)}
        found = run(onx, feeds_of(onx, X), outputs=[name])[0].reshape(len(X), -1)
        moved = 0.7 * found + 0.3 * found.std() * rng.normal(size=found.shape)
        tuned = OrtGradientRegressor(
            onx, output=name, weights_to_train=[b.name for b in conversion.bindings if b.name in reach],
            max_iter=STEPS, batch_size=len(X), learning_rate=1e-4, random_state=0,
        ).fit(X, moved)  # fmt: skip
        if not tuned.loss_curve_[-1] < tuned.loss_curve_[0]:
            raise Wrong(f"the loss goes from {tuned.loss_curve_[0]:.4g} to {tuned.loss_curve_[-1]:.4g}")
        onx = tuned.get_trained_onnx()
        weights.update(tuned.weights_)
    return SimpleNamespace(weights_=weights, onnx=onx)


# ----------------------------------------------------------------------- page


def short(error: Exception) -> str:
    """Return an error as one line of the page."""
    text = f"{type(error).__name__}: {error}".replace("\n", " ")
    text = text.split(" See http")[0].split(" Its converter")[0]
    text = text if len(text) < 400 else text[:400].rsplit(" ", 1)[0] + " ..."
    return "".join(f"\\{c}" if c in "*_`|\\" else c for c in text)


STATES = {
    "trains": "its weights are trained and written back by ``to_sklearn()``",
    "front only": "scikit-learn runs it before the trained part, and it is written back unchanged",
    "no weights": "ONNX runs it, but none of its learned values has a derivative",
    "refused": "an error gives the reason and a remedy",
    "no step": "scikit-learn itself neither predicts with it nor uses it as a step of a pipeline",
    "FAILS": "a fault",
}


def page(results: list[Result]) -> str:
    """Return the page, reStructuredText."""
    counts = {state: sum(r.state == state for r in results) for state in STATES}
    lines = [
        f".. index:: {', '.join(f'! {word}' for word in WORDS)}", "",
        "Every scikit-learn class", "========================", "",
        ".. This page is written by doc/gen_estimators.py: do not edit.", "",
        "This table lists each class of ``sklearn.utils.all_estimators()`` with default parameters, some with others. "
        "Classifiers are fitted on ``load_wine``, all others on ``load_diabetes``, in float64 and without "
        "scaling. A transformer is followed by a Ridge. The second column is one of:", "",
        *(f"* *{state}* ({counts[state]}): {words}." for state, words in STATES.items() if counts[state]), "",
        "Each class was tested:", "",
        "* The predictions at learning rate 0 are those of the estimator.",
        f"* {STEPS} steps lower the loss on shifted targets, and the weights change.",
        "* The estimator with the trained weights predicts like the trained model. The tolerance is 1e-5 of the "
        "largest value, and 1e-4 for a few classes whose sums or steps magnify rounding.", "",
        ".. list-table::", "   :header-rows: 1", "   :widths: 26 10 30 34", "",
        "   * - Class", "     - ", "     - Weights", "     - Why not",
    ]  # fmt: skip
    for result in results:
        link = f"`{short_name(result.name)} <{result.page}>`__" if result.page.startswith("http") else result.name
        weights = ", ".join(result.weights[:4]) + (", ..." if len(result.weights) > 4 else "")
        lines += [f"   * - {link}", f"     - {result.state}", f"     - {weights}", f"     - {result.reason}"]
    return "\n".join(lines) + "\n"


def short_name(name: str) -> str:
    """Return the name of a class or a variant, without the marks of links."""
    return name.replace("<", "").replace(">", "").replace("`", "").replace("_", r"\_")


def main(target: str, *words: str) -> int:
    """Write the page; return 1 where something fails that should not."""
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, kind, estimator in cases():
            if words and not name.startswith(words):
                continue
            results.append(examine(name, kind, estimator))
            if target == "-":
                r = results[-1]
                print(f"{r.name}: {r.state} {r.seconds:.1f} s {r.weights[:3]} {r.reason}", flush=True)
    if target != "-":
        Path(target).write_text(page(results), encoding="utf-8")
    failures = [r for r in results if r.state == "FAILS"]
    for r in failures:
        print(f"{r.name}: {r.reason}", file=sys.stderr)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["doc/estimators.rst"])))
