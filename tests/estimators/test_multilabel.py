"""Multilabel targets: compared with scikit-learn's own multilabel estimators."""

import copy
import pickle
import warnings

import numpy as np
import onnx.parser
import pytest
import scipy.sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import get_tags
from sklearn.utils.class_weight import compute_sample_weight

import onnxtrain
from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import DataError, LossError, ModelError
from onnxtrain.runtime.session import run

K = 3
LBFGS = dict(solver="lbfgs", dtype="float64", tol=1e-9, max_iter=2000)
EXACT = LBFGS | dict(l2=1e-2)
SHORT = dict(max_iter=3, random_state=0)
MLP = MLPClassifier(hidden_layer_sizes=(4,), max_iter=20, random_state=0)


def drawn():
    X, Y = make_multilabel_classification(120, 5, n_classes=K, random_state=0)
    return StandardScaler().fit_transform(X), Y


X, Y = drawn()


def fit_quietly(estimator, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(estimator).fit(*args)


def onnx_model(head, nodes="Y = Sigmoid(Z)", k=K):
    """Return a linear model of float32 whose output is `head`, its nodes behind the scores Z."""
    W = ", ".join(map(str, np.linspace(-0.5, 0.5, 5 * k)))
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> labels (float[n, 5] X) => ({head}) '
        f"<float[5, {k}] W = {{{W}}}, float[{k}] b = {{{', '.join(['0.1'] * k)}}}>"
        f"{{ P = MatMul(X, W) Z = Add(P, b) {nodes} }}"
    )


HEADS = (
    "float[n, 1] P0, float[n, 1] P1, float[n, 1] P2",
    "one, two, three = Split <axis = 1, num_outputs = 3> (Z) P0 = Sigmoid(one) P1 = Sigmoid(two) P2 = Sigmoid(three)",
)
MODELS = {
    "nothing": None,
    "MLP": MLP,
    "OneVsRest": OneVsRestClassifier(LogisticRegression()),
    "OneVsRest of scores": OneVsRestClassifier(LinearSVC(random_state=0)),
    "OneVsRest of SGD": OneVsRestClassifier(SGDClassifier(random_state=0)),
    "MultiOutput": MultiOutputClassifier(LogisticRegression()),
    "MultiOutput of MLP": MultiOutputClassifier(MLP),
    "Ridge": RidgeClassifier(),
    "Ridge without intercepts": RidgeClassifier(fit_intercept=False),
    "pipeline": make_pipeline(StandardScaler(), MLP),
    "pipeline of OneVsRest": make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression())),
    "ONNX sigmoids": onnx_model(f"float[n, {K}] Y"),
    "ONNX scores": onnx_model(f"float[n, {K}] Z", ""),
    "ONNX heads": onnx_model(*HEADS),
}
LINEAR = [name for name in MODELS if "MLP" not in name and name != "pipeline" and "without" not in name]


# -------------------------------------------------------------------- loss


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_the_loss_is_that_of_the_mlp_of_scikit_learn(hidden):
    mlp = fit_quietly(MLPClassifier(hidden, max_iter=5, alpha=0.0, random_state=0), X, Y)
    ours = OrtGradientClassifier(mlp, dtype="float64", max_iter=0).fit(X, Y)
    P = mlp.predict_proba(X)
    each = np.array(
        [[log_loss([y], [p], labels=[0, 1]) for y, p in zip(*row, strict=True)] for row in zip(Y, P, strict=True)]
    )
    losses = ours.losses(X, Y)
    assert losses.shape == (len(X),)
    np.testing.assert_allclose(losses, each.sum(axis=1), rtol=1e-6)
    # one step of the size 0 reports the loss of its weights; the penalty is none
    again = fit_quietly(
        clone(mlp).set_params(max_iter=1, learning_rate_init=1e-12, warm_start=False, batch_size=len(X)), X, Y
    )
    ours = OrtGradientClassifier(again, dtype="float64", max_iter=0).fit(X, Y)
    np.testing.assert_allclose(ours.losses(X, Y).mean(), again.loss_, rtol=1e-6)


BINARY = {
    "log": lambda m: np.logaddexp(0, -m),
    "hinge": lambda m: np.maximum(0, 1 - m),
    "squared_hinge": lambda m: np.maximum(0, 1 - m) ** 2,
    "modified_huber": lambda m: np.where(m >= -1, np.maximum(0, 1 - m) ** 2, -4 * m),
    "focal": lambda m: (1 - expit(m)) ** 2 * np.logaddexp(0, -m),
}


def exponential(op, y_true, y_pred):
    """A loss of one's own, exp(-m / 2), of the index of the class (n, 1) and the score (n, 1)."""
    sign = op.Sub(op.Mul(op.Cast(y_true, to=y_pred.dtype), 2.0), 1.0)
    return op.Exp(op.Mul(op.Mul(sign, y_pred), -0.5))


@pytest.mark.parametrize("name", ["MLP", "MultiOutput", "ONNX heads", "ONNX scores"])
@pytest.mark.parametrize("loss", [*BINARY, exponential])
def test_losses_are_summed_over_labels(name, loss):
    ours = OrtGradientClassifier(MODELS[name], loss=loss, dtype="float64", max_iter=0, random_state=0).fit(X, Y)
    of_margin = BINARY.get(loss, lambda m: np.exp(-m / 2))
    expected = of_margin((2 * Y - 1) * ours.decision_function(X)).sum(axis=1)
    np.testing.assert_allclose(ours.losses(X, Y), expected, rtol=1e-6, atol=1e-12)
    weight = np.arange(len(X))
    np.testing.assert_allclose(ours.losses(X, Y, weight), weight * expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", [*BINARY, exponential])
@pytest.mark.parametrize("name", ["MLP", "ONNX heads"])
def test_gradients_against_central_differences(name, loss):
    ours = OrtGradientClassifier(MODELS[name], loss=loss, dtype="float64", max_iter=0, random_state=0)
    ours.fit(X, Y)
    rows, found, step = X[:4] + 0.01, ours.gradient(X[:4] + 0.01, Y[:4]), 1e-6
    for j in range(X.shape[1]):
        change = np.zeros_like(rows)
        change[:, j] = step
        slope = (ours.losses(rows + change, Y[:4]) - ours.losses(rows - change, Y[:4])) / (2 * step)
        np.testing.assert_allclose(found[:, j], slope, rtol=1e-5, atol=1e-6)
    assert ours.gradient(rows).shape == (4, 5, K)


@pytest.mark.parametrize("loss", ["log", "focal", "modified_huber"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_of_a_thousand_overflow_nowhere(loss, dtype):
    ours = OrtGradientClassifier(onnx_model(f"float[n, {K}] Y"), loss=loss, dtype=dtype, max_iter=0).fit(X, Y)
    rows = np.array([[3e3] * 5, [-3e3] * 5])
    scores = ours.decision_function(rows)
    assert np.abs(scores).max() > 1000
    for labels in ([[1, 1, 1], [0, 0, 0]], [[0, 0, 0], [1, 1, 1]]):
        wrong = (2 * np.array(labels) - 1) * scores
        assert np.isfinite(ours.gradient(rows, labels)).all()
        expected = BINARY[loss](wrong).sum(axis=1)
        np.testing.assert_allclose(ours.losses(rows, labels), expected, rtol=1e-4, atol=1e-3)


def test_probabilities_of_unknown_origin_are_kept_from_0_and_1():
    onx = onnx_model(f"float[n, {K}] Y", "S = Sigmoid(Z) T = Tanh(Z) U = Abs(T) A = Add(S, U) B = Sigmoid(A) "
                     "C = Mul(S, B) Y = Mul(C, B)")  # fmt: skip
    ours = OrtGradientClassifier(onx, dtype="float64", max_iter=0).fit(X, Y)
    P = ours.predict_proba(X)
    expected = -np.log(np.where(Y, P, 1 - P)).sum(axis=1)
    np.testing.assert_allclose(ours.losses(X, Y), expected, rtol=1e-6)
    np.testing.assert_array_equal(ours.predict(X), P > 0.5)
    assert not hasattr(ours, "decision_function")


# ----------------------------------------------------------------- training


@pytest.mark.parametrize("name", MODELS)
def test_what_a_fit_gives(name):
    ours = OrtGradientClassifier(MODELS[name], random_state=0, max_iter=40, learning_rate=0.01).fit(X, Y)
    assert ours.loss_curve_[-1] < ours.loss_curve_[0]
    np.testing.assert_array_equal(ours.classes_, np.arange(K))
    labels, scores, P = ours.predict(X), ours.decision_function(X), ours.predict_proba(X)
    assert (type(labels), labels.shape, labels.dtype) == (np.ndarray, Y.shape, np.int64)
    np.testing.assert_array_equal(labels, scores > 0)
    np.testing.assert_allclose(P, expit(scores), rtol=1e-4)
    np.testing.assert_allclose(ours.predict_log_proba(X), np.log(P))
    assert ours.score(X, Y) == accuracy_score(Y, labels) > 0.2
    np.testing.assert_allclose(ours.losses(X, Y), BINARY["log"]((2 * Y - 1) * scores).sum(axis=1), rtol=1e-3)


TWO = {
    "ONNX sigmoids": onnx_model("float[n, 2] Y", k=2),
    "ONNX scores": onnx_model("float[n, 2] Z", "", k=2),
    "ONNX heads": onnx_model(
        "float[n, 1] P0, float[n, 1] P1",
        "one, two = Split <axis = 1, num_outputs = 2> (Z) P0 = Sigmoid(one) P1 = Sigmoid(two)",
        k=2,
    ),
}


@pytest.mark.filterwarnings("ignore:max_iter=200 was reached")
@pytest.mark.parametrize("name", MODELS)
def test_two_labels_are_no_two_classes(name):
    two = Y[:, :2]
    estimator = TWO.get(name, MODELS[name])
    ours = OrtGradientClassifier(estimator, solver="lbfgs", dtype="float64", random_state=0).fit(X, two)
    expected = BINARY["log"]((2 * two - 1) * ours.decision_function(X)).sum(axis=1)
    np.testing.assert_allclose(ours.losses(X, two), expected, rtol=1e-6)
    assert ours.predict(X).shape == two.shape
    if name not in TWO:
        np.testing.assert_array_equal(ours.to_sklearn().predict(X), ours.predict(X))
        np.testing.assert_array_equal(run(ours.get_trained_onnx(), {"X": X})[0], ours.predict(X))


@pytest.mark.filterwarnings("ignore:max_iter=200 was reached")
@pytest.mark.parametrize("name", [name for name in MODELS if "ONNX" not in name])
def test_what_comes_out_agrees(name):
    ours = OrtGradientClassifier(MODELS[name], solver="lbfgs", dtype="float64", random_state=0).fit(X, Y)
    trained = ours.to_sklearn()
    assert type(trained) is type(MODELS[name] or MLP)
    np.testing.assert_array_equal(trained.predict(X), ours.predict(X))
    onx = ours.get_trained_onnx()
    found = dict(zip([o.name for o in onx.graph.output], run(onx, {"X": X}), strict=True))
    np.testing.assert_array_equal(found.pop("label"), ours.predict(X))
    made = {out for node in onx.graph.node for out in node.output}
    used = {i for node in onx.graph.node for i in node.input} | {o.name for o in onx.graph.output}
    assert made <= used  # nothing is left of what joins the labels
    if name.startswith("MultiOutput"):
        assert list(found) == [f"probabilities_{k}" for k in range(K)]
        np.testing.assert_allclose(np.stack([p[:, 1] for p in found.values()], axis=1), ours.predict_proba(X))


def test_an_onnx_model_keeps_its_outputs():
    ours = OrtGradientClassifier(MODELS["ONNX heads"], solver="lbfgs").fit(X, Y)
    onx = ours.get_trained_onnx()
    assert [o.name for o in onx.graph.output] == ["P0", "P1", "P2"]
    found = np.hstack(run(onx, {"X": X.astype(np.float32)}))
    np.testing.assert_allclose(found, ours.predict_proba(X), rtol=1e-4)


@pytest.mark.parametrize("name", LINEAR)
def test_lbfgs_finds_the_coefficients_of_logistic_regression(name):
    n, C = len(X), 0.5
    expected = OneVsRestClassifier(LogisticRegression(C=C, tol=1e-10, max_iter=5000)).fit(X, Y)
    coef = np.vstack([e.coef_ for e in expected.estimators_])
    intercept = np.hstack([e.intercept_ for e in expected.estimators_])
    ours = OrtGradientClassifier(MODELS[name], **LBFGS, l2=1 / (2 * C * n)).fit(X, Y)
    zero = np.zeros((1, 5))
    at_zero = ours.decision_function(zero)
    np.testing.assert_allclose((ours.decision_function(np.eye(5)) - at_zero).T, coef, atol=1e-3 * np.abs(coef).max())
    np.testing.assert_allclose(at_zero[0], intercept, atol=1e-3)


@pytest.mark.parametrize(
    "member",
    [
        RandomForestClassifier(5, max_depth=3, random_state=0),
        GaussianNB(),
        LinearSVC(random_state=0),
        GradientBoostingClassifier(n_estimators=2, max_depth=1, init="zero", learning_rate=1e-9),  # all rows are ties
    ],
    ids=lambda member: type(member).__name__,
)
def test_the_classifier_of_each_label_is_of_any_class(member):
    rows = X.astype(np.float32).astype(np.float64)
    fitted = MultiOutputClassifier(member).fit(rows, Y)
    start = OrtGradientClassifier(fitted, max_iter=0).fit(rows, Y)
    if hasattr(fitted, "predict_proba"):
        P = np.column_stack([p[:, 1] for p in fitted.predict_proba(rows)])
        np.testing.assert_allclose(start.predict_proba(rows), P, atol=1e-5)
    if not isinstance(member, GradientBoostingClassifier):
        np.testing.assert_array_equal(start.predict(rows), fitted.predict(rows))
    trained = OrtGradientClassifier(fitted, max_iter=4, solver="lbfgs").fit(rows, Y)
    assert trained.losses(rows, Y).mean() < start.losses(rows, Y).mean()
    np.testing.assert_array_equal(trained.to_sklearn().predict(rows), trained.predict(rows))
    nodes = trained.get_trained_onnx().graph.node
    outputs = {o.name for o in trained.get_trained_onnx().graph.output}
    assert {y for node in nodes for y in node.output} <= {x for node in nodes for x in node.input} | outputs


INTEGER = np.random.RandomState(0).randint(0, 3, len(X))


@pytest.mark.parametrize("name", ["nothing", "OneVsRest", "MultiOutput"])
def test_integer_weights_are_repeated_rows_and_zero_is_no_row(name):
    weighted = OrtGradientClassifier(MODELS[name], **EXACT).fit(X, Y, sample_weight=INTEGER)
    rows = np.repeat(np.arange(len(X)), INTEGER)
    repeated = OrtGradientClassifier(MODELS[name], **EXACT).fit(X[rows], Y[rows])
    assert (INTEGER == 0).any()
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-6)


@pytest.mark.parametrize(
    "class_weight", ["balanced", [{0: 1, 1: 2}, {0: 3, 1: 1}, {0: 1, 1: 0.5}]], ids=["balanced", "list"]
)
def test_class_weights_are_sample_weights(class_weight):
    ours = OrtGradientClassifier(MLP, class_weight=class_weight, **SHORT).fit(X, Y)
    same = OrtGradientClassifier(MLP, **SHORT).fit(X, Y, sample_weight=compute_sample_weight(class_weight, Y))
    np.testing.assert_array_equal(ours.decision_function(X), same.decision_function(X))


@pytest.mark.parametrize(
    "as_given, as_found",
    [
        (np.asarray, np.ndarray),
        (np.ndarray.tolist, np.ndarray),
        (lambda Y: Y.astype(float), np.ndarray),
        (lambda Y: Y.astype(bool), np.ndarray),
        (scipy.sparse.csr_matrix, scipy.sparse.csr_matrix),
        (scipy.sparse.csc_array, scipy.sparse.csr_matrix),
    ],
    ids=["int", "list", "float", "bool", "csr", "csc"],
)
@pytest.mark.parametrize("name", ["MLP", "MultiOutput"])
def test_labels_in_any_form(name, as_given, as_found):
    given, plain = as_given(Y), OrtGradientClassifier(MODELS[name], **SHORT).fit(X, Y)
    ours = OrtGradientClassifier(MODELS[name], **SHORT).fit(X, given)
    found = ours.predict(X)
    assert (type(found), found.dtype) == (as_found, np.int64)
    np.testing.assert_array_equal(found.toarray() if scipy.sparse.issparse(found) else found, plain.predict(X))
    np.testing.assert_array_equal(ours.losses(X, given), plain.losses(X, Y))
    assert ours.score(X, given) == plain.score(X, Y)
    theirs = fit_quietly(MLP, X, given).predict(X)
    assert (type(theirs), theirs.dtype) == (as_found, found.dtype)


# -------------------------------------------------------------- the contract


def test_partial_fit_goes_on_and_learns_labels_that_come_late():
    late = Y.copy()
    late[:60, 1], late[:60, 2] = 0, 1
    for name in ("nothing", "MLP", "OneVsRest", "MultiOutput"):
        ours = OrtGradientClassifier(MODELS[name], random_state=0, learning_rate=0.02)
        ours.partial_fit(X[:60], late[:60], classes=np.arange(K))
        for _ in range(80):
            ours.partial_fit(X[60:], Y[60:])
        assert ours.predict(X)[:, 1].any(), name
        assert not ours.predict(X)[:, 2].all(), name


@pytest.mark.parametrize("how", ["early_stopping", "X_val"])
def test_validation_rows(how):
    ours = OrtGradientClassifier(MLP, early_stopping=how == "early_stopping", max_iter=5, random_state=0)
    rows = np.arange(len(X)) % 4 == 0
    rare = Y.copy()
    rare[:, 2] = 0
    rare[1, 2] = 1  # one row alone could not be stratified
    validation = dict(X_val=X[rows], y_val=rare[rows]) if how == "X_val" else {}
    ours.fit(X[~rows], rare[~rows], **validation)
    assert len(ours.validation_loss_curve_) == ours.n_iter_
    if validation:
        expected = min(ours.validation_loss_curve_)
        np.testing.assert_allclose(ours.losses(X[rows], rare[rows]).mean(), expected, rtol=1e-5)


def kept(ours, path):
    onnxtrain.save(ours, path)
    return onnxtrain.load(path)


@pytest.mark.parametrize(
    "copied",
    [lambda m, _: pickle.loads(pickle.dumps(m)), kept, lambda m, _: copy.deepcopy(m)],
    ids=["pickle", "save", "deepcopy"],
)
@pytest.mark.parametrize("given", [np.asarray, scipy.sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", ["MLP", "MultiOutput"])
def test_copies(name, given, copied, tmp_path):
    ours = OrtGradientClassifier(MODELS[name], class_weight="balanced", **SHORT).fit(X, given(Y))
    again = copied(ours, tmp_path / "labels.onnx")
    assert type(again.predict(X)) is type(ours.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), ours.predict_proba(X))
    np.testing.assert_array_equal(again.losses(X, Y), ours.losses(X, Y))
    np.testing.assert_array_equal(again.classes_, ours.classes_)
    a, b = (m.set_params(class_weight=None).partial_fit(X, Y).decision_function(X) for m in (ours, again))
    np.testing.assert_array_equal(a, b)


def test_a_checkpoint_goes_on_at_the_same_bits(tmp_path):
    whole = OrtGradientClassifier(MLP, **SHORT | dict(max_iter=6)).fit(X, Y)
    path = tmp_path / "half.onnx"
    OrtGradientClassifier(MLP, **SHORT).fit(X, Y, checkpoint=path)
    ours = OrtGradientClassifier(MLP, **SHORT | dict(max_iter=6)).fit(X, Y, checkpoint=path, resume=True)
    np.testing.assert_array_equal(ours.decision_function(X), whole.decision_function(X))


def test_grid_search_and_warm_start():
    search = GridSearchCV(OrtGradientClassifier(MLP, **SHORT), {"loss": ["log", "hinge"], "l2": [0, 0.1]}, cv=3)
    search.fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(X).shape == Y.shape
    ours = OrtGradientClassifier(MLP, warm_start=True, **SHORT).fit(X, Y).fit(X, Y)
    assert ours.n_iter_ == 6
    assert ours.set_params(warm_start=False, estimator=None).fit(X, Y[:, 0]).predict(X).shape == (len(X),)


@pytest.mark.parametrize(
    "estimator, expected",
    [
        (None, True),
        (MLP, True),
        (OneVsRestClassifier(LogisticRegression()), True),
        (MultiOutputClassifier(LogisticRegression()), True),
        (make_pipeline(StandardScaler(), MLP), True),
        (MODELS["ONNX scores"], True),
        (LogisticRegression(), False),
        (make_pipeline(StandardScaler(), LogisticRegression()), False),
    ],
    ids=lambda x: type(x).__name__,
)
def test_tags(estimator, expected):
    assert get_tags(OrtGradientClassifier(estimator)).classifier_tags.multi_label is expected


# -------------------------------------------------------------------- errors

IRIS_LIKE = Y.argmax(axis=1)
SOFTMAX = onnx_model(f"float[n, {K}] Y", "Y = Softmax(Z)")
CHOOSES = onnx_model(f"int64[n] L, float[n, {K}] Y", "L = ArgMax <axis = 1, keepdims = 0> (Z) Y = Sigmoid(Z)")


@pytest.mark.parametrize(
    "estimator, target, error, match",
    [
        (
            None,
            2 * Y,
            DataError,
            "multiclass-multioutput.*For several multiclass targets, train one classifier per target",
        ),
        (None, 2 * Y - 1, DataError, "the values -1, 1.*columns of 0 and 1"),
        (None, scipy.sparse.csr_matrix(2 * Y), DataError, "multiclass-multioutput"),
        (None, np.where(Y, "yes", "no"), DataError, "the values no, yes.*columns of 0 and 1"),
        (None, Y + 0.5, DataError, "continuous"),
        (LogisticRegression(), Y, DataError, r"3 labels per row.*OneVsRestClassifier\(LogisticRegression"),
        (LogisticRegression().fit(X, Y[:, 0]), Y, DataError, "3 labels per row, but LogisticRegression.*on one class"),
        (LogisticRegression().fit(X, IRIS_LIKE), Y, DataError, "LogisticRegression was fitted on one class per row"),
        (fit_quietly(MLP, X, Y), Y[:, :2], DataError, "y has 2 labels per row, but MLPClassifier was fitted on 3"),
        (fit_quietly(MLP, X, Y), IRIS_LIKE, DataError, "one class per row, but MLPClassifier was fitted on 3 labels"),
        (MODELS["ONNX sigmoids"], Y[:, :2], DataError, "3 scores, but y has 2 labels"),
        (onnx_model("float[n, 1] Y", k=1), Y, DataError, "one score, for two classes, but y has 3 labels"),
        (
            SOFTMAX,
            Y,
            LossError,
            "sum to 1, so each row has exactly one class. If y has one column per class, pass y.argmax",
        ),
        (CHOOSES, Y, ModelError, "predicts one class per row, L.*y has 3 labels"),
        (MODELS["ONNX heads"], Y[:, :2], ModelError, "several floating-point outputs: P0"),
    ],
    ids=range(15),
)
def test_refusals(estimator, target, error, match):
    with pytest.raises(error, match=match):
        OrtGradientClassifier(estimator, **SHORT).fit(X, target)


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda m: m.partial_fit(X, IRIS_LIKE), "one class per row, but the model was fitted on 3 labels"),
        (lambda m: m.losses(X, Y[:, :2]), "2 labels per row, but the model was fitted on 3"),
        (lambda m: m.partial_fit(X, Y, classes=[0, 1]), "classes has 2 entries, but y has 3 columns"),
        (lambda m: m.fit(X, Y, X_val=X, y_val=IRIS_LIKE), "one class per row"),
        (lambda m: m.set_params(class_weight={0: 1, 1: 2}).fit(X, Y), "list of dicts"),
        (lambda m: m.set_params(class_weight=[{0: 1, 1: 2}], estimator=None).fit(X, IRIS_LIKE), "one class per row"),
    ],
    ids=["partial_fit", "losses", "classes", "y_val", "dict", "list"],
)
def test_refusals_of_a_fitted_model(call, match):
    ours = OrtGradientClassifier(MLP, **SHORT).fit(X, Y)
    with pytest.raises(DataError, match=match):
        call(ours)


def test_a_label_of_one_value_only():
    constant = Y.copy()
    constant[:, 0], constant[:, 2] = 0, 1
    for name in ("nothing", "OneVsRest", "MultiOutput"):
        ours = OrtGradientClassifier(MODELS[name], **EXACT).fit(X, constant)
        np.testing.assert_array_equal(ours.predict(X)[:, [0, 2]], constant[:, [0, 2]], name)


def test_indicators_as_numbers_are_still_no_labels():
    with pytest.raises(
        DataError, match=r"The y of a regressor must be an array, got a sparse matrix. Pass y.toarray\(\)"
    ):
        OrtGradientRegressor(max_iter=1).fit(X, scipy.sparse.csr_matrix(Y))
    assert OrtGradientRegressor(max_iter=1).fit(X, Y).predict(X).dtype.kind == "f"


@pytest.mark.parametrize(
    "model",
    [
        MultiOutputClassifier(GaussianNB()),
        make_pipeline(StandardScaler(), MultiOutputClassifier(DecisionTreeClassifier(max_depth=2))),
        ClassifierChain(DecisionTreeClassifier(max_depth=2)),
    ],
    ids=["each for itself", "pipeline", "chain"],
)
def test_a_label_that_all_fitted_rows_have_is_refused_with_a_remedy_that_works(model):
    constant = np.column_stack([Y[:, 0], np.ones(len(Y), int), Y[:, 2]])
    fitted = fit_quietly(model, X, constant)
    with pytest.raises(DataError, match=r"same label in the columns \[1\] of y.* sklearn.base.clone\(estimator\)"):
        OrtGradientClassifier(fitted, **SHORT).fit(X, Y)
    tuned = OrtGradientClassifier(clone(fitted), **SHORT).fit(X, constant)
    assert tuned.predict(X)[:, 1].all()
