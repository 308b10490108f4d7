"""Mistakes that show in no error: rows that know y, scaled twice, balanced twice, labels of another task."""

from __future__ import annotations

import warnings
from ast import literal_eval

import numpy as np
import onnx.parser
import pandas as pd
import pytest
from skl2onnx import to_onnx
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import StackingClassifier, StackingRegressor, VotingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    GammaRegressor,
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
    TweedieRegressor,
)
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.class_weight import compute_sample_weight

from onnxtrain import OrtGradientClassifier as C
from onnxtrain import OrtGradientForwardBackward
from onnxtrain import OrtGradientRegressor as R
from onnxtrain.convert.learned import holds
from onnxtrain.errors import DataError, OnnxTrainError
from onnxtrain.estimators import reports
from onnxtrain.optim import Cosine, InverseScaling
from onnxtrain.rows import from_files, from_parquet

X, y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[SPECIES]
FEW = np.r_[0:50, 50:70, 100:110]  # rows with 50, 20 and 10 of each class
BALANCED = compute_sample_weight("balanced", SPECIES[FEW])

FLATS = pd.DataFrame({"area": np.linspace(20, 100, 80), "rooms": [1.0, 2.0, 3.0, 4.0] * 20})
PRICE = pd.Series(8 * FLATS.area + 100 * FLATS.rooms + 20 * np.sin(np.arange(80.0)), name="price")
SCALED_FLATS = pd.DataFrame(StandardScaler().fit_transform(FLATS), columns=FLATS.columns)
FLOWERS, KIND = pd.DataFrame(IRIS, columns=list("abcd")), pd.Series(NAMES, name="kind")


def of_columns(*steps):
    """Return a fitted pipeline that scales the columns of a frame by name."""
    return make_pipeline(make_column_transformer((make_pipeline(*steps), ["area", "rooms"])), Ridge()).fit(FLATS, PRICE)


def model(text):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] X) => {text}')


WEIGHTS = np.random.default_rng(0).normal(size=(4, 100)).round(3)
#: Scores of 100 classes, and probabilities of three.
MANY = model(f"(float[n, 100] Y) <float[4, 100] W = {{{', '.join(map(str, WEIGHTS.ravel()))}}}> {{ Y = MatMul(X, W) }}")
SHARES = model(
    "(float[n, 3] Y) <float[4, 3] W = {0.1, 0, 0, 0, 0.1, 0, 0, 0, 0.1, 0, 0, 0}> { s = MatMul(X, W) Y = Softmax<axis = 1>(s) }"
)
RANGED = make_pipeline(MinMaxScaler(), LogisticRegression()).fit(IRIS, SPECIES)
PARTS = from_files([0, 1], lambda i: (X[i::2], y[i::2]))


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: R(max_iter=1).fit(FLATS.assign(price_chf=0.93 * PRICE), PRICE),
            "The column 'price_chf' of X tells y, 'price', in each row",
        ),
        (
            lambda: R(max_iter=1).fit(FLATS.assign(log_price=np.log(PRICE)), PRICE),
            "The column 'log_price' of X tells y",
        ),
        (lambda: R(max_iter=1).fit(FLATS.assign(price=PRICE), np.log(PRICE)), "The column 'price' of X tells y"),
        (lambda: C(max_iter=1).fit(FLOWERS.assign(kind_code=SPECIES), KIND), "The column 'kind_code' of X tells y"),
        (
            lambda: R(max_iter=1).fit(X, y, X_val=X, y_val=y),
            "The validation set is X itself, so the model is trained on",
        ),
        (
            lambda: R(max_iter=1).fit(X, y, X_val=X[:50].copy(), y_val=y[:50]),
            "The validation set has rows that are in X",
        ),
        (lambda: R(max_iter=1).fit(PARTS, X_val=PARTS), "The validation set is X itself"),
        (
            lambda: C(RANGED, max_iter=1).fit(MinMaxScaler().fit_transform(IRIS), SPECIES),
            "are from 0 to 1, as after a MinMaxScaler, but the pipeline begins with one that was fitted on other values, "
            "such as from 4.3 to 7.9",
        ),
        (
            lambda: R(of_columns(SimpleImputer(), StandardScaler()), max_iter=1).fit(SCALED_FLATS, PRICE),
            "as after a StandardScaler, but the pipeline begins with one that was fitted on other values: the mean of a column was 60",
        ),
        (
            lambda: C(class_weight="balanced", max_iter=1).fit(IRIS[FEW], SPECIES[FEW], BALANCED),
            "class_weight='balanced' multiplies them by the same weights once more. Leave one of the two out",
        ),
        (
            lambda: C(max_iter=1).fit(IRIS, np.where(np.arange(150) % 4, SPECIES, -1)),
            "The label -1 is a class of its own, but marks a row without a label in scikit-learn",
        ),
        (
            lambda: C(MANY, max_iter=1).fit(IRIS, SPECIES),
            "The model has 100 scores, but y has only the labels 0 to 2, which are taken for the first 3 of its classes",
        ),
        (
            lambda: C(SHARES, output_is="scores", max_iter=1).fit(IRIS, SPECIES),
            "the output 'Y' of the model contains probabilities, from which the loss would compute probabilities once more",
        ),
        (
            lambda: R(Ridge(alpha=10.0), l2=10.0, max_iter=1).fit(X, y),
            "l2=10.0 has the value of alpha of Ridge, but multiplies another penalty, because the objective is a mean over "
            "the rows. The same penalty is l2=alpha / n_samples of OrtGradientRegressor",
        ),
        (
            lambda: C(SHARES, max_iter=1).partial_fit(IRIS, NAMES, classes=["virginica", "setosa", "versicolor"]),
            r"taken for the sorted labels, \['setosa', 'versicolor', 'virginica'\], but classes= has another order",
        ),
        (
            lambda: R(Ridge().fit(X, y), loss="epsilon_insensitive", loss_params={"epsilon": 1e3}, max_iter=2).fit(
                X, y
            ),
            "all predictions are within epsilon=1000 of y. Set a smaller one in the unit of y",
        ),
    ],
)
def test_a_mistake_is_warned_of(call, message):
    with pytest.warns(UserWarning, match=message):
        call()


def file_of(*steps, X=IRIS, dtype=np.float32):
    """Return the ONNX file of a pipeline that ends in a logistic regression."""
    fitted = make_pipeline(*steps, LogisticRegression()).fit(X, SPECIES)
    return to_onnx(fitted, X[:1].astype(dtype), options={"zipmap": False})


STANDARD_IRIS = StandardScaler().fit_transform(IRIS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_are_standardized_before_the_scaler_of_a_file_are_warned_of(dtype):
    file = file_of(StandardScaler(), dtype=dtype)
    with pytest.warns(
        UserWarning, match="as after a StandardScaler, but the model subtracts other means from its input"
    ):
        C(file, max_iter=1).fit(STANDARD_IRIS, SPECIES)
    C(file, max_iter=1).fit(IRIS, SPECIES)  # filterwarnings = error
    means_and_deviations = (
        "float[n, 3] Y) <float[4] m = {5.8, 3.1, 3.8, 1.2}, float[4] s = {0.8, 0.4, 1.8, 0.8}, float[4, 3] W = "
        "{1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1}> { c = Sub(X, m) z = Div(c, s) Y = MatMul(z, W) }"
    )
    with pytest.warns(UserWarning, match="such as 5.8. Pass the rows as they were before scaling."):
        C(model(f"({means_and_deviations}"), max_iter=1).fit(STANDARD_IRIS, SPECIES)


@pytest.mark.parametrize(
    "scaler", [StandardScaler(), MinMaxScaler(), MaxAbsScaler(), RobustScaler()], ids=lambda s: type(s).__name__
)
def test_a_file_that_scales_standardized_rows_once_more_is_not_warned_of(scaler):  # filterwarnings = error
    skewed = np.exp(2 * np.random.default_rng(0).normal(size=IRIS.shape))
    for rows in (STANDARD_IRIS, StandardScaler().fit_transform(skewed)):
        C(file_of(scaler, X=rows), max_iter=1).fit(rows, SPECIES)


def switched(i):
    """Return a part whose columns have another order in the second part."""
    return FLATS[["area", "rooms"] if i == 0 else ["rooms", "area"]], PRICE


def next_state():
    model = R(max_iter=1).fit(X, y)
    state = {f"next_{name}": np.zeros(1) for name in ("packed_weights", *OF_ADAM)}
    return model.load_training_state(state)


OF_ADAM = ("packed_weights.mean", "packed_weights.square", "step")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: R().fit(X, y, groups=SPECIES), "cross_val_score(model, X, y, groups=groups, cv=GroupKFold())"),
        (
            lambda: R().fit(X, y, groups=SPECIES),
            "train, val = next(GroupShuffleSplit().split(X, y, groups)), fit(X[train]",
        ),
        (lambda: Cosine(0.1, eta_min=0.01), "onnxtrain.optim.Cosine(rate, final_ratio=eta_min / rate)"),
        (
            lambda: InverseScaling(0.1, gamma=0.5),
            "InverseScaling has no parameter 'gamma'. Known: learning_rate, power_t.",
        ),
        (lambda: R(gamma=2.0), "loss_params={'gamma': 2.0}"),
        (
            lambda: R(penalty={"coef": np.abs}).fit(X, y),
            "The penalty on 'coef' is a function, but a penalty is a sum of l1 |w| and l2 w²: penalty={'coef': {'l1': 0.1}}",
        ),
        (
            lambda: R().fit(from_files([0, 1], switched)),
            "Let read(1) return X[columns], with one list of columns for all",
        ),
        (next_state, "Pass {name.removeprefix('next_'): x for name, x in state.items() if name != 'loss'}."),
    ],
)
def test_a_mistake_is_an_error_with_a_remedy(call, message):
    with pytest.raises(OnnxTrainError) as raised:
        call()
    assert message in str(raised.value)


def test_a_gradient_without_its_axis_has_a_remedy():
    one = model("(float[n, 1] Y) <float[4, 1] W = {1, 2, 3, 4}> { Y = MatMul(X, W) }")
    passes = OrtGradientForwardBackward(one).new_instance()
    passes.forward([IRIS.astype(np.float32), np.ones((4, 1), np.float32)], training=True)
    with pytest.raises(
        DataError, match=r"must have 2 axes, \(150, 1\), got shape \(150,\). Pass it with shape \(150, 1\)."
    ):
        passes.backward([np.ones(150, np.float32)])
    assert len(passes.backward([np.ones((150, 1), np.float32)])) == 2


def test_what_is_meant_is_not_warned_of():  # filterwarnings = error
    R(max_iter=1).fit(FLATS.assign(price_of_last_year=np.roll(PRICE, 4)), PRICE)
    R(max_iter=1).fit(FLATS.assign(price_id=np.random.default_rng(0).permutation(80)), PRICE)
    C(max_iter=1).fit(FLOWERS.assign(kind_of_soil=SPECIES // 2), KIND)
    train, held_out, y_train, y_held_out = train_test_split(X, y, random_state=0)
    R(max_iter=1).fit(train, y_train, X_val=held_out, y_val=y_held_out)
    counts = np.random.default_rng(0).integers(0, 2, (100, 3))  # few different rows
    R(max_iter=1).fit(counts[:60], counts[:60].sum(axis=1), X_val=counts[60:], y_val=counts[60:].sum(axis=1))
    C(RANGED, max_iter=1).fit(IRIS, SPECIES)
    C(RANGED, max_iter=1).fit(IRIS[:60], SPECIES[:60])
    in_range = MinMaxScaler().fit_transform(IRIS)
    C(make_pipeline(MinMaxScaler(), LogisticRegression()).fit(in_range, SPECIES), max_iter=1).fit(in_range, SPECIES)
    R(of_columns(SimpleImputer(), StandardScaler()), max_iter=1).fit(FLATS, PRICE)
    C(class_weight="balanced", max_iter=1).fit(IRIS[FEW], SPECIES[FEW], np.linspace(1, 2, 80))
    C(class_weight="balanced", max_iter=1).fit(IRIS, SPECIES, np.full(150, 2.0))
    C(max_iter=1).fit(IRIS[FEW], SPECIES[FEW], BALANCED)
    C(max_iter=1).fit(IRIS, SPECIES - 1)  # -1, 0, 1
    C(SVC(C=0.1), early_stopping=True, max_iter=1).fit(IRIS, SPECIES)
    C(MANY, head="new", max_iter=1).fit(IRIS, SPECIES)
    C(MANY, max_iter=1).fit(IRIS, SPECIES + 40)
    C(MANY, max_iter=1).partial_fit(IRIS, SPECIES, classes=range(100))
    C(SHARES, output_is="probabilities", max_iter=1).fit(IRIS, SPECIES)
    R(Ridge(), l2=1.0, max_iter=1).fit(X, y)
    R(Ridge(alpha=10.0), l2=10.0 / len(X), max_iter=1).fit(X, y)
    R(SGDRegressor(alpha=0.1), l2=0.1, max_iter=1).fit(X / X.std(axis=0), (y - y.mean()) / y.std())
    GridSearchCV(R(Ridge(alpha=10.0), max_iter=1), {"l2": [10.0]}, cv=2).fit(X, y)
    R(Ridge().fit(X, y), loss="epsilon_insensitive", max_iter=2).fit(X, y)
    C(LogisticRegression(C=0.1), l2=0.1, max_iter=1).fit(IRIS, SPECIES)
    R(max_iter=1).fit(X, y > 150)  # as regressors of scikit-learn learn it
    C(SHARES, max_iter=1).partial_fit(IRIS, NAMES, classes=["setosa", "versicolor", "virginica"])
    C(SHARES, head="new", max_iter=1).partial_fit(IRIS, NAMES, classes=["virginica", "setosa", "versicolor"])
    C(max_iter=1).partial_fit(IRIS, NAMES, classes=["virginica", "setosa", "versicolor"])


def test_a_column_of_polars_that_tells_y_is_named():
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({**FLATS, "price": PRICE})
    for target in (table["price"], table["price"].log()):
        with pytest.warns(UserWarning, match="The column 'price' of X"):
            R(max_iter=1).fit(table, target)
    R(max_iter=1).fit(table.drop("price"), table["price"])  # filterwarnings = error


@pytest.mark.parametrize(
    "estimator, message",
    [
        (
            R(PoissonRegressor(alpha=9.0), loss="poisson"),
            "alpha=9.0 of Pois.* The same penalty is l2=alpha / 2 of OrtG",
        ),
        (C(RidgeClassifier(alpha=9.0)), "alpha=9.0 of RidgeClassifier .* The same penalty is l2=alpha / n_samples of"),
        (C(LinearSVC(C=0.1)), r"C=0.1 of LinearSVC has .* The same penalty is l2=1 / \(2 \* C \* n_samples\) of OrtG"),
        (
            R(QuantileRegressor(alpha=9.0), loss="quantile"),
            "alpha=9.0 of Quantile.* The same penalty is l1=alpha of OrtG",
        ),
        (R(KernelRidge(alpha=9.0)), "alpha=9.0 of KernelRidge .* by early_stopping=True, or penalize: penalty="),
        (C(SVC(C=0.1)), "C=0.1 of SVC has no effect on the training, which minimizes the loss without this penalty"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "",
)
def test_a_penalty_of_the_given_estimator_is_warned_of(estimator, message):
    rows = (IRIS, SPECIES) if isinstance(estimator, C) else (X, y)
    with pytest.warns(UserWarning, match=message):
        estimator.set_params(max_iter=1, learning_rate=1e-5).fit(*rows)
    strength = "C" if hasattr(estimator.estimator, "C") else "alpha"
    inner = clone(estimator.estimator).set_params(**{strength: 1.0})  # the default
    clone(estimator).set_params(estimator=inner).fit(*rows)  # filterwarnings = error


INNER = SVC(C=0.1)


@pytest.mark.parametrize(
    "estimator",
    [
        INNER,
        make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", alpha=9.0)),
        make_pipeline(make_column_transformer((StandardScaler(), [0, 1])), make_pipeline(StandardScaler(), INNER)),
        make_pipeline(FunctionTransformer(np.unwrap), INNER),  # scikit-learn runs its first step
        make_pipeline(StandardScaler(), FrozenEstimator(clone(INNER).fit(IRIS, SPECIES))),
        GridSearchCV(make_pipeline(StandardScaler(), INNER), {"svc__C": [0.1]}).fit(IRIS, SPECIES),
        make_pipeline(StandardScaler(), GridSearchCV(INNER, {"C": [0.1]})).fit(IRIS, SPECIES),
    ],
    ids=["alone", "step", "nested", "divided", "frozen", "search", "searched step"],
)
def test_the_penalty_of_dual_coefficients_is_named_as_the_weight(estimator):
    kind = R if holds(estimator, KernelRidge) else C
    tuned = kind(estimator, max_iter=1, learning_rate=1e-5)
    with pytest.warns(UserWarning, match="or penalize: penalty=") as warned:
        tuned.fit(IRIS, SPECIES)
    (code,) = (str(w.message).partition("penalize: penalty=")[2] for w in warned if "penalize" in str(w.message))
    penalty = literal_eval(code.removesuffix("."))
    assert tuned.set_params(penalty=penalty).fit(IRIS, SPECIES).weights_.keys() >= penalty.keys()


@pytest.mark.parametrize(
    "model, loss, penalty",
    [
        (PoissonRegressor(alpha=9.0, tol=1e-8, max_iter=1000), {"loss": "poisson"}, {"l2": 9.0 / 2}),
        (GammaRegressor(alpha=9.0, tol=1e-8, max_iter=1000), {"loss": "gamma"}, {"l2": 9.0 / 2}),
        (
            TweedieRegressor(alpha=9.0, power=1.5, tol=1e-8, max_iter=1000),
            {"loss": "tweedie", "loss_params": {"power": 1.5}},
            {"l2": 9.0 / 2},
        ),
        (QuantileRegressor(alpha=0.1, quantile=0.5), {"loss": "quantile", "loss_params": {"q": 0.5}}, {"l1": 0.1}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else "",
)
def test_the_penalty_that_is_named_is_the_same(model, loss, penalty):
    rows = StandardScaler().fit_transform(X)
    target = y / 100
    params = dict(solver="lbfgs", dtype="float64", tol=1e-9, max_iter=5000)
    ours = R(clone(model).set_params(alpha=0.0), **loss, **penalty, **params).fit(rows, target)
    np.testing.assert_allclose(ours.coef_, model.fit(rows, target).coef_, rtol=1e-2, atol=5e-3)


STANDARD_X, STANDARD_Y = StandardScaler().fit_transform(X), (y - y.mean()) / y.std()
TO_THE_END = dict(solver="lbfgs", dtype="float64", tol=1e-10, max_iter=5000)


@pytest.mark.parametrize(
    "model",
    [LassoCV(), ElasticNetCV(l1_ratio=0.7), Lasso(alpha=0.1), ElasticNet(alpha=0.1, l1_ratio=0.7), RidgeCV([50.0])],
    ids=lambda model: type(model).__name__,
)
def test_a_penalty_that_made_coefficients_zero_or_was_found_is_warned_of(model):
    model = clone(model).set_params(**{"tol": 1e-10} if hasattr(model, "tol") else {}).fit(STANDARD_X, STANDARD_Y)
    with pytest.warns(UserWarning, match="has no effect on the training") as warned:
        R(model, max_iter=1).fit(STANDARD_X, STANDARD_Y)
    words = next(str(w.message) for w in warned if "has no effect" in str(w.message))
    code = words.partition("The same penalty is ")[2].removesuffix(" of OrtGradientRegressor.")
    known = {**model.get_params(), "n_samples": len(X)}
    same = eval(f"dict({code})", known)  # the remedy, literally
    ours = R(model, init="random", **same, **TO_THE_END).fit(STANDARD_X, STANDARD_Y)
    np.testing.assert_allclose(ours.coef_, model.coef_, rtol=2e-3, atol=2e-3)


def test_the_penalty_of_a_classifier_is_named_by_its_kind():
    inner = LogisticRegression(l1_ratio=1, solver="saga", C=0.1, max_iter=5000)
    if "penalty" in inner.get_params() and inner.penalty == "l2":  # scikit-learn before 1.8
        inner.set_params(penalty="elasticnet")
    with pytest.warns(UserWarning, match=r"The same penalty is l1=1 / \(C \* n_samples\) of OrtGradientClassifier"):
        C(inner.fit(IRIS, SPECIES), max_iter=1).fit(IRIS, SPECIES)
    with pytest.warns(UserWarning, match=r"alpha=0.1 of SGDClassifier .* The same penalty is l1=alpha of OrtG"):
        C(SGDClassifier(alpha=0.1, penalty="l1"), loss="hinge", max_iter=1).fit(IRIS, SPECIES)


def test_a_penalty_that_is_still_to_be_found_is_warned_of():
    with pytest.warns(UserWarning, match=r"Fit the model first: .* The same penalty is l1=2 \* model.alpha_ of OrtG"):
        R(LassoCV(), max_iter=1).fit(STANDARD_X, STANDARD_Y)
    nested = make_pipeline(StandardScaler(), make_pipeline(LassoCV()))
    with pytest.warns(UserWarning, match=r"penalty is l1=2 \* model\[-1\]\[-1\].alpha_ of OrtG"):
        R(nested, max_iter=1).fit(STANDARD_X, STANDARD_Y)
    assert nested.fit(STANDARD_X, STANDARD_Y)[-1][-1].alpha_ > 0


def test_a_small_penalty_without_zeros_is_not_warned_of():  # filterwarnings = error
    for model in (Lasso(alpha=1e-6), ElasticNet(alpha=1e-6), RidgeCV(), LinearRegression()):
        R(model.fit(STANDARD_X, STANDARD_Y), learning_rate=1e-5, max_iter=1).fit(
            STANDARD_X, STANDARD_Y + 0.1 * STANDARD_X[:, 0]
        )
    for model in (Lasso(), RidgeCV()):
        R(model, max_iter=1).fit(STANDARD_X, STANDARD_Y)
    found = Lasso(alpha=0.1).fit(STANDARD_X, STANDARD_Y)
    R(found, l1=0.2, learning_rate=1e-5, max_iter=1).fit(STANDARD_X, STANDARD_Y + 0.1 * STANDARD_X[:, 0])


def test_labels_in_the_order_of_the_columns_as_the_message_numbers_them():
    classes = ["virginica", "setosa", "versicolor"]
    of_column = [classes.index(label) for label in NAMES]
    tuned = C(SHARES, max_iter=0).partial_fit(IRIS, of_column, classes=range(len(classes)))  # filterwarnings = error
    assert tuned.classes_.tolist() == [0, 1, 2]


def test_labels_in_another_order_are_numbered_as_the_message_says():
    fitted, order = LogisticRegression(max_iter=1000).fit(IRIS, SPECIES), [2, 0, 1]
    scores = model(
        f"(float[n, 3] Y) <float[4, 3] W = {{{', '.join(f'{w:.6f}' for w in fitted.coef_[order].T.ravel())}}}, float[3] b = "
        f"{{{', '.join(f'{b:.6f}' for b in fitted.intercept_[order])}}}> {{ s = MatMul(X, W) Y = Add(s, b) }}"
    )
    with pytest.warns(UserWarning, match="y names them in another order. Number them by its columns") as warned:
        C(scores, max_iter=1).fit(IRIS, NAMES)
    code = str(warned[0].message).partition("y = ")[2].removesuffix(".")
    numbered = eval(code, {"y": NAMES})
    assert C(scores, max_iter=1).fit(IRIS, numbered).score(IRIS, numbered) > 0.9  # filterwarnings = error


def test_a_column_of_files_that_tells_the_label_is_warned_of(tmp_path):
    path = tmp_path / "flats.parquet"
    flats = FLATS.assign(price=PRICE, log_price=np.log(PRICE))
    flats.to_parquet(path, row_group_size=50)
    with pytest.warns(UserWarning, match="The column 'log_price' of the files tells the label, 'price', in each row"):
        R(max_iter=1).fit(from_parquet(path, label="price"))
    tuned = R(max_iter=1).fit(from_parquet(path, label="price", columns=list(FLATS)))  # filterwarnings = error
    with pytest.raises(
        DataError, match=r"Let read\(i\) return X\[model.feature_names_in_\]; from_parquet takes columns"
    ):
        tuned.predict(from_parquet(path))
    assert tuned.predict(from_parquet(path, columns=[*tuned.feature_names_in_])).shape == (80,)


def test_a_part_of_rows_that_contains_its_label_is_warned_of():
    flats = FLATS.assign(price=PRICE.round())  # a label with fractions is told apart without its name
    with pytest.warns(
        UserWarning, match=r"'price' of the files tells .* or let read return X.drop\(columns='price'\)."
    ):
        R(max_iter=1).fit(from_files([0, 1], lambda _: (flats, flats["price"])))
    with pytest.warns(UserWarning, match="The column 'price' of X has the values of y"):  # once
        R(max_iter=1).fit(from_files([0, 1], lambda _: (FLATS.assign(price=PRICE), PRICE)))
    R(max_iter=1).fit(from_files([0, 1], lambda _: (flats.drop(columns="price"), flats["price"])))


DAYS = pd.date_range("2020", periods=80)


@pytest.mark.parametrize(
    "rows, other, warns",
    [
        (FLATS.index[40:], FLATS.index[:40] + 100, True),
        (DAYS[:40], DAYS[40:], True),
        (DAYS[:-1], DAYS[1:], False),  # a forecast
        (FLATS.index[:40], FLATS.index[40:], False),  # X may have got a new index
        (FLATS.index[40:].rename("id"), FLATS.index[:40] + 100, False),
        (FLATS.index[40:], DAYS[:40], False),
    ],
    ids=["integers", "dates", "forecast", "new index", "named", "types"],
)
def test_rows_and_targets_of_different_rows_are_warned_of(rows, other, warns):
    X, y = FLATS[: len(rows)].set_axis(rows), PRICE[: len(rows)].set_axis(other)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        R(max_iter=1).fit(X, y)
    said = [str(w.message) for w in caught if "has no label of the index of X" in str(w.message)]
    assert len(said) == warns
    if warns:
        assert f"row 0 is {rows[0]} in X, and {other[0]} in y, as if they were different rows." in said[0]


def test_a_file_that_changes_between_two_fits_is_warned_of(tmp_path):
    path = tmp_path / "line.onnx"
    onnx.save(SHARES, path)
    tuned = C(path, max_iter=1).fit(IRIS, SPECIES)
    tuned.fit(IRIS, SPECIES)  # filterwarnings = error
    with pytest.warns(UserWarning, match="To keep the given model, write to another file"):
        tuned.get_trained_onnx(path=path)
    tuned.set_params(warm_start=True).fit(IRIS, SPECIES)
    with pytest.warns(UserWarning, match="has changed since the last fit, so this fit does not start from the same"):
        tuned.set_params(warm_start=False).fit(IRIS, SPECIES)


CATBOOST = dict(iterations=2, verbose=0, allow_writing_files=False)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"scale_pos_weight": 3}, r"scale_pos_weight=3 of .* OrtGradientClassifier\(model, class_weight=\{1: 3\}\)"),
        ({"class_weights": [1, 3]}, r"class_weights=\[1, 3\] of .* class_weight=\{0: 1, 1: 3\}\)"),
        ({"auto_class_weights": "Balanced"}, "auto_class_weights='Balanced' of .* class_weight='balanced'"),
    ],
)
def test_weights_of_classes_in_boosted_trees_are_warned_of(params, message):
    catboost = pytest.importorskip("catboost")
    labels = (SPECIES == 2).astype(int)
    trees, weighed = (catboost.CatBoostClassifier(**CATBOOST, **p).fit(IRIS, labels) for p in ({}, params))
    C(trees, max_iter=1).fit(IRIS, labels)  # filterwarnings = error
    with pytest.warns(UserWarning, match=message):
        C(weighed, max_iter=1).fit(IRIS, labels)


def test_the_loss_of_boosted_trees_is_named():
    catboost = pytest.importorskip("catboost")
    trees = catboost.CatBoostRegressor(loss_function="Quantile:alpha=0.9", **CATBOOST).fit(X, y)
    with pytest.warns(
        UserWarning, match=r"minimizes the loss 'quantile', .*Set loss='quantile', loss_params=\{'q': 0.9\}"
    ):
        R(trees, max_iter=1).fit(X, y)
    R(trees, loss="quantile", loss_params={"q": 0.9}, max_iter=1).fit(X, y)
    R(catboost.CatBoostRegressor(**CATBOOST).fit(X, y), max_iter=1).fit(X, y)


@pytest.mark.parametrize("most", [100, 10**6])
def test_a_fit_that_tol_ended_above_the_variance_of_y_is_warned_of(most, monkeypatch):
    monkeypatch.setattr(reports, "_MOST_TARGETS", most)
    returns = 0.01 * STANDARD_Y  # as daily ones
    network = R(MLPRegressor(hidden_layer_sizes=(20,)), init="random", random_state=0)
    weights = np.linspace(1, 2, len(X))
    for rest in ((returns,), (returns, weights), (np.c_[returns, returns],)):
        with pytest.warns(
            ConvergenceWarning,
            match=r"but that of the mean of y is .* TransformedTargetRegressor\(model, transformer=StandardScaler\(\)\)",
        ):
            clone(network).set_params(tol=1e-3).fit(STANDARD_X, *rest)
    scaled = TransformedTargetRegressor(network.set_params(max_iter=400), transformer=StandardScaler())
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        assert scaled.fit(STANDARD_X, returns).score(STANDARD_X, returns) > 0.5


def test_a_fit_that_max_iter_ended_far_from_y_is_told_to_scale_it():
    prices = 2e5 + 1e4 * STANDARD_Y
    network = R(MLPRegressor(hidden_layer_sizes=(20,)), init="random", random_state=0)
    with pytest.warns(
        ConvergenceWarning,
        match=r"still falling, by .*mean of y is 1e\+08. Scale y: TransformedTargetRegressor\(model, transformer=",
    ):
        clone(network).fit(STANDARD_X, prices)
    with pytest.warns(ConvergenceWarning, match="Raise max_iter or learning_rate, or scale the data"):
        clone(network).set_params(learning_rate=1e-5).fit(STANDARD_X, STANDARD_Y)
    scaled = TransformedTargetRegressor(network, transformer=StandardScaler())
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        assert scaled.fit(STANDARD_X, prices).score(STANDARD_X, prices) > 0.5


def test_a_fit_that_is_no_better_than_the_mean_of_y_is_not_warned_of():  # filterwarnings = error
    noise = np.random.default_rng(0).normal(size=len(X))
    R(random_state=0).fit(STANDARD_X, noise)
    network = R(MLPRegressor(hidden_layer_sizes=(20,)), max_iter=5, random_state=0)
    network.fit(STANDARD_X, 0.01 * STANDARD_Y)
    clone(network).set_params(max_iter=0, init="random").fit(STANDARD_X, STANDARD_Y)
    clone(network).set_params(max_iter=8, init="random").fit(X, y)
    GridSearchCV(network.set_params(max_iter=100), {"learning_rate": [1e-3]}, cv=2).fit(STANDARD_X, 0.01 * STANDARD_Y)


@pytest.mark.parametrize(
    "model",
    [None, Ridge(), make_pipeline("passthrough", StandardScaler(), Ridge()), make_pipeline(SimpleImputer(), Ridge())],
)
def test_an_estimator_that_fit_fitted_on_a_frame_has_its_names(model):  # filterwarnings = error
    tuned = R(model, max_iter=1).fit(FLATS, PRICE)
    inner = tuned.to_sklearn()
    np.testing.assert_allclose(inner.predict(FLATS), tuned.predict(FLATS), rtol=1e-5)
    steps = [step for step in getattr(inner, "named_steps", {"": inner}).values() if step != "passthrough"]
    assert steps[0].feature_names_in_.tolist() == ["area", "rooms"]
    with pytest.raises(ValueError, match="The feature names should match"):
        inner.predict(FLATS.rename(columns={"area": "size"}))


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(FeatureUnion([("scaled", StandardScaler()), ("spread", MinMaxScaler())]), Ridge()),
        VotingRegressor([("a", Ridge()), ("b", make_pipeline(StandardScaler(), Ridge()))]),
        StackingRegressor([("a", Ridge()), ("b", make_pipeline(StandardScaler(), Ridge()))]),
        MultiOutputRegressor(Ridge()),
    ],
)
def test_members_that_see_a_frame_have_its_names(model):  # filterwarnings = error
    targets = np.c_[PRICE, PRICE] if isinstance(model, MultiOutputRegressor) else PRICE
    tuned = R(model, max_iter=1).fit(FLATS, targets)
    np.testing.assert_allclose(tuned.to_sklearn().predict(FLATS), tuned.predict(FLATS), rtol=1e-5)


@pytest.mark.parametrize("rows", [FLATS.to_numpy(), FLATS], ids=["array", "frame"])
def test_an_estimator_that_was_fitted_before_keeps_its_names(rows):
    fitted = make_pipeline(StandardScaler(), Ridge()).fit(rows, PRICE)
    named = hasattr(fitted, "feature_names_in_")
    assert hasattr(R(fitted, max_iter=1).fit(FLATS, PRICE).to_sklearn(), "feature_names_in_") is named


def test_steps_that_pass_frames_on_predict_the_rows_of_fit():
    steps = make_pipeline(StandardScaler(), Ridge()).set_output(transform="pandas")
    tuned = R(steps, max_iter=1).fit(FLATS, PRICE)
    with warnings.catch_warnings(action="ignore"):  # scikit-learn's about names
        np.testing.assert_allclose(tuned.to_sklearn().predict(FLATS), tuned.predict(FLATS), rtol=1e-5)


def test_members_of_a_stack_that_were_fitted_on_the_rows():
    train, others = slice(0, None, 2), slice(1, None, 2)
    members = [("tree", DecisionTreeRegressor(random_state=0)), ("ridge", Ridge())]
    stack = StackingRegressor(members, Ridge()).fit(STANDARD_X[train], STANDARD_Y[train])
    with pytest.warns(UserWarning, match=r"DecisionTreeRegressor inside StackingRegressor was fitted on these rows"):
        tuned = R(stack, solver="lbfgs").fit(STANDARD_X[train], STANDARD_Y[train])
    with pytest.warns(
        UserWarning, match=r"held-out rows: StackingRegressor\(..., final_estimator=OrtGradientRegressor"
    ):
        R(make_pipeline(StandardScaler(), clone(stack)), max_iter=1).fit(STANDARD_X[train], STANDARD_Y[train])
    inside = clone(stack).set_params(final_estimator=R(solver="lbfgs")).fit(STANDARD_X[train], STANDARD_Y[train])
    on_others = R(stack, solver="lbfgs").fit(STANDARD_X[others], STANDARD_Y[others])  # filterwarnings = error
    rest = STANDARD_X[others], STANDARD_Y[others]
    assert tuned.score(*rest) < stack.score(*rest) - 0.2
    assert min(inside.score(*rest), on_others.score(*rest)) > stack.score(*rest) - 0.05


def test_members_of_a_stack_of_classes_that_were_fitted_on_the_rows():
    members = [("tree", DecisionTreeClassifier(random_state=0)), ("linear", LogisticRegression(C=0.01))]
    stack = StackingClassifier(members, LogisticRegression(C=0.1)).fit(IRIS[::2], SPECIES[::2])
    with pytest.warns(UserWarning, match=r"StackingClassifier\(..., final_estimator=OrtGradientClassifier\(\)\)"):
        C(stack, max_iter=1).fit(IRIS[::2], SPECIES[::2])
    StackingClassifier(members, C(max_iter=1)).fit(IRIS, SPECIES)  # filterwarnings = error


def test_linear_members_of_a_stack_are_not_warned_of():  # filterwarnings = error
    R(StackingRegressor([("a", Ridge()), ("b", LinearRegression())]).fit(X, y), max_iter=1).fit(X, y)
