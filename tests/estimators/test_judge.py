"""Unusual input of users: models of a fixed batch size, odd labels, misspelled names."""

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest
import sklearn
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import DataError, ModelError, OptimizerError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(13, 4)).astype(np.float32)
Y = X.sum(axis=1)
NAMES = np.where(Y > 0, "up", "down")

FIXED = {
    "a product": "h = MatMul(A, W) out = MatMul(h, V)",
    "a reshape to rows": "h = MatMul(A, W) s = Constant <value_ints = [{n}, 3]> () r = Reshape(h, s) out = MatMul(r, V)",
    "a flattening": (
        "h = MatMul(A, W) s = Constant <value_ints = [{n}, 3, 1]> () r = Reshape(h, s)"
        " f = Constant <value_ints = [{n}, -1]> () q = Reshape(r, f) out = MatMul(q, V)"
    ),
}


def fixed_model(n, nodes, columns=1):
    """Return a model whose input is declared with n rows."""
    onx = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> '
        f"g (float[{n}, 4] A) => (float[{n}, {columns}] out) {{ {nodes.replace('{n}', str(n))} }}"
    )
    rng = np.random.default_rng(0)
    for name, shape in {"W": (4, 3), "V": (3, columns)}.items():
        onx.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    return onx


@pytest.mark.parametrize("n", [1, 10])
@pytest.mark.parametrize("nodes", FIXED.values(), ids=FIXED)
def test_a_model_for_one_size_of_batch_takes_any(n, nodes):
    onx = fixed_model(n, nodes)
    weights = {i.name: onnx.numpy_helper.to_array(i) for i in onx.graph.initializer}
    start = OrtGradientRegressor(onx, max_iter=0).fit(X, Y)
    np.testing.assert_allclose(start.predict(X).ravel(), (X @ weights["W"] @ weights["V"]).ravel(), rtol=1e-4)
    tuned = OrtGradientRegressor(onx, max_iter=3, batch_size=5, random_state=0).fit(X, Y)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    (declared,) = tuned.get_trained_onnx().graph.input
    assert declared.type.tensor_type.shape.dim[0].dim_value == n  # the model that came


MIXED = {
    # as a reshape to the number of tokens of the exporter's example
    "works with some rows only": """
        z = Greater(A, A) n = NonZero(z) f = Cast <to = 1> (n) t = Constant <value_ints = [7]> () r = Reshape(f, t)
        m = ReduceSum <keepdims = 0> (r) c = Add(A, m)""",
    "mean of the rows": "s = Constant <value_ints = [0]> () m = ReduceMean <keepdims = 1> (A, s) c = Sub(A, m)",
    # as the mask of a transformer, which changes little in a network of small weights
    "a little of the first row": """
        s = Constant <value_ints = [0]> () f = Gather <axis = 0> (A, s) e = Constant <value_float = 0.0005> ()
        m = Mul(f, e) c = Sub(A, m)""",
}


@pytest.mark.parametrize("nodes", MIXED.values(), ids=MIXED)
def test_a_model_that_mixes_the_rows_of_its_batch_is_refused(nodes):
    with pytest.raises(ModelError, match=r"fixed batch size 10, .* Export it with .* dynamic_shapes=\[\{0: \"n\"\}\]"):
        OrtGradientRegressor(fixed_model(10, nodes + " h = MatMul(c, W) out = MatMul(h, V)")).fit(X, Y)


def test_two_classes_of_a_machine_are_one_score():
    rows, labels = load_breast_cancer(return_X_y=True)
    rows = (rows / rows.std(axis=0))[:60]
    machine = SVC().fit(rows, labels[:60])
    ours = OrtGradientClassifier(machine, max_iter=0).fit(rows, labels[:60])
    np.testing.assert_allclose(ours.decision_function(rows), machine.decision_function(rows), atol=1e-3)
    np.testing.assert_array_equal(ours.predict(rows), machine.predict(rows))


BAD_LABELS = {
    "real numbers": (Y, "Unknown label type"),
    "two columns": (np.c_[NAMES, NAMES], "multiclass-multioutput"),
    "bytes": (NAMES.astype("S"), "Labels must be all numbers or all strings"),
    "numbers and strings": (
        np.array(["a", 1] * 6 + ["a"], dtype=object),
        "Labels must be all numbers or all strings.*int, str",
    ),
}


@pytest.mark.parametrize("labels, message", BAD_LABELS.values(), ids=BAD_LABELS)
def test_labels_that_are_none(labels, message):
    if labels.dtype.kind == "S" and sklearn.__version__.startswith("1.6."):
        pytest.skip("scikit-learn 1.6 only warns of bytes, and warnings are errors here")
    with pytest.raises(DataError, match=message):
        OrtGradientClassifier(max_iter=1).fit(X, labels)


def test_class_weight_of_a_class_that_is_not_there():
    with pytest.raises(DataError, match="not in class_weight"):
        OrtGradientClassifier(class_weight={"upp": 2.0}, max_iter=1).fit(X, NAMES)


def test_too_few_rows_to_hold_some_out():
    with pytest.raises(DataError, match="has only 1 row"):
        OrtGradientClassifier(early_stopping=True, max_iter=1).fit(X[:2], ["a", "b"])


def test_a_solver_spelled_wrong():
    with pytest.raises(OptimizerError, match="Did you mean 'lbfgs'"):
        OrtGradientRegressor(solver="lbgfs").fit(X, Y)


def test_another_solver_goes_on_from_the_weights():
    model = OrtGradientRegressor(max_iter=2, warm_start=True, random_state=0, init="random").fit(X, Y)
    model.set_params(solver="sgd").fit(X, Y)
    assert model.loss_curve_[-1] < model.loss_curve_[0]


@pytest.mark.parametrize("change", [{"ir_version": 99}, {"opset": 99}], ids=str)
def test_a_model_of_the_future(change):
    onx = fixed_model(1, FIXED["a product"])
    onx.ir_version = change.get("ir_version", onx.ir_version)
    onx.opset_import[0].version = change.get("opset", 21)
    with pytest.raises(ModelError, match="99, but onnx .* Install a newer onnx"):
        OrtGradientRegressor(onx).fit(X, Y)


def test_columns_by_name_that_are_missing():
    pd = pytest.importorskip("pandas")
    rows = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": NAMES})
    encode = ColumnTransformer([("n", StandardScaler(), ["a", "b"]), ("c", OneHotEncoder(), ["c"])])
    model = OrtGradientRegressor(make_pipeline(encode, Ridge()), max_iter=1).fit(rows, Y)
    with pytest.raises(DataError, match="now missing"):
        model.predict(rows[["a", "b"]])
