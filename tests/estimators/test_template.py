"""Conversions that are reused equal a new conversion."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import make_classification, make_regression
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeRegressor

from onnxtrain import limit_caches
from onnxtrain.convert import convert
from onnxtrain.estimators.reuse import TEMPLATES, as_source
from onnxtrain.training.model import Reading

REGRESSORS = {
    "linear": LinearRegression(),
    "no intercept": Ridge(fit_intercept=False),
    "mlp": MLPRegressor(hidden_layer_sizes=(4,), max_iter=30, random_state=0),
    "scaled": make_pipeline(StandardScaler(), LinearRegression()),
    "pca": make_pipeline(PCA(2), LinearRegression()),
    "pls": PLSRegression(2),
    "tree": DecisionTreeRegressor(max_depth=2, random_state=0),
}
CLASSIFIERS = {
    "logistic": LogisticRegression(),
    "svm": LinearSVC(random_state=0),
    "mlp classifier": MLPClassifier(hidden_layer_sizes=(4,), max_iter=30, random_state=0),
}
#: Made of parts whose equality is not known: converted each time.
NOT_REUSED = {"tree"}


def problems(classes):
    """Return three sets of rows of the same kind."""
    if classes:
        common = {"n_features": 4, "n_informative": 3, "n_redundant": 0, "n_classes": 3}
        return [make_classification(60, random_state=seed, **common) for seed in range(3)]
    return [make_regression(60, 4, noise=1.0, random_state=seed) for seed in range(3)]


def parts(source):
    weights = source.initial_weights(source.model.weights)
    return source.model.onnx, source.bindings, source.model.default, {k: v.tolist() for k, v in weights.items()}


@pytest.mark.filterwarnings("ignore:.*converge")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*REGRESSORS, *CLASSIFIERS])
def test_a_third_fit_lends_its_numbers(name, dtype, monkeypatch):
    estimator = (REGRESSORS | CLASSIFIERS)[name]
    data = problems(name in CLASSIFIERS)
    settings = Reading(dtype, None if name in REGRESSORS else 1)

    TEMPLATES.clear()
    expected = parts(as_source(estimator.fit(*data[2]), data[2][0], settings))
    TEMPLATES.clear()
    for X, y in data[:2]:
        as_source(estimator.fit(X, y), X, settings)
    calls = []
    monkeypatch.setattr("onnxtrain.estimators.reuse.convert", lambda *a, **k: calls.append(a) or convert(*a, **k))
    found = parts(as_source(estimator.fit(*data[2]), data[2][0], settings))
    assert len(calls) == (name in NOT_REUSED)
    assert found == expected


def test_what_was_equal_in_all_fits_must_stay_so():
    TEMPLATES.clear()
    X, y = problems(False)[0]
    scaler = make_pipeline(StandardScaler(), LinearRegression())
    for scale in (1.0, 2.0):  # the scaler sees the same rows twice, its numbers are not free
        as_source(scaler.fit(X, scale * y), X, Reading("float32"))
    source = as_source(scaler.fit(3 * X + 1, y), X, Reading("float32"))
    found = source.initial_weights(tuple(b.name for b in source.bindings))
    np.testing.assert_allclose(found["standardscaler.mean"].ravel(), scaler[0].mean_, rtol=1e-6)


def test_other_labels_are_another_structure():
    TEMPLATES.clear()
    X, y = problems(True)[0]
    model = LogisticRegression()
    for labels in (np.array(["a", "b", "c"]), np.array(["x", "y", "z"])):
        for seed in range(3):
            rows = np.random.default_rng(seed).permutation(60)[:50]
            source = as_source(model.fit(X[rows], labels[y[rows]]), X, Reading("float32", 1))
        assert source.model.classes.tolist() == labels.tolist()


def test_few_structures_are_remembered():
    TEMPLATES.clear()
    before = limit_caches(2**18)
    try:
        for width in range(2, 52):
            X, y = make_regression(30, width, random_state=0)
            as_source(LinearRegression().fit(X, y), X, Reading("float32"))
        assert 2 < len(TEMPLATES) < 50
    finally:
        limit_caches(before)


def test_another_converter_is_another_structure():
    from skl2onnx import update_registered_converter
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import _converter_pool, get_converter, get_shape_calculator

    TEMPLATES.clear()
    alias = sklearn_operator_name_map[LinearRegression]
    before, pool = get_converter(alias), dict(_converter_pool)

    def negated_twice(scope, operator, container):
        x = operator.inputs[0]
        given, names = x.onnx_name, [scope.get_unique_variable_name("negated") for _ in range(2)]
        for source, target in zip([given, names[0]], names, strict=True):
            container.add_node("Neg", [source], [target], name=scope.get_unique_operator_name("Neg"))
        x.set_onnx_name(names[1])
        before(scope, operator, container)
        x.set_onnx_name(given)

    def operators():
        X, y = next(rows)
        source = as_source(LinearRegression().fit(X, y), X, Reading("float32"))
        return {n.op_type for n in onnx.load_model_from_string(source.model.onnx).graph.node}

    rows = itertools.cycle(problems(False))
    assert [operators() for _ in range(3)] == [{"MatMul", "Add"}] * 3
    try:
        update_registered_converter(
            LinearRegression, alias, get_shape_calculator(alias), negated_twice, overwrite=True, options=None
        )
        assert operators() == {"Neg", "MatMul", "Add"}
    finally:
        _converter_pool.update(pool)
    assert operators() == {"MatMul", "Add"}


def test_a_template_shares_its_arrays_with_the_source_and_not_with_the_user(monkeypatch):
    kept = []
    monkeypatch.setattr(TEMPLATES, "find", lambda key: None)
    monkeypatch.setattr(TEMPLATES, "keep", lambda key, template: kept.append(template))
    X, y = make_regression(50, 5, random_state=0)
    model = Ridge().fit(X, y)
    source = as_source(model, X, Reading("float32"))
    (template,) = kept
    assert template.model.onnx is source.model.onnx
    assert any(np.shares_memory(array, source.estimator.coef_) for array in template.learned.values())
    assert not np.shares_memory(model.coef_, source.estimator.coef_)
