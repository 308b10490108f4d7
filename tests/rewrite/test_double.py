"""Models in double precision around operators of ai.onnx.ml, which return float for it or do not accept it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from onnx import TensorProto, helper

from onnxtrain import OrtGradientRegressor
from onnxtrain.rewrite import rewrite_model
from onnxtrain.runtime.session import run

rng = np.random.default_rng(0)
X = np.round(rng.normal(size=(60, 3)))
Y = 2 * X[:, 0] + X[:, 1]
W = rng.normal(size=(3, 1))

MAP = {"keys_floats": [-1.0, 0.0, 1.0], "values_floats": [0.5, 1.0, 2.0], "default_float": 0.0}
DOUBLE_MAP = {
    "keys_tensor": onnx.numpy_helper.from_array(np.array([-1.0, 0.0, 1.0])),
    "values_tensor": onnx.numpy_helper.from_array(np.array([0.5, 1.0, 2.0])),
    "default_tensor": onnx.numpy_helper.from_array(np.array([0.0])),
}
TREE = {
    "n_targets": 3,
    "nodes_treeids": [0] * 3,
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0] * 3,
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.0] * 3,
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 1],
    "target_weights": [1.0, 2.0],
}
SVR = {
    "coefficients": [1.0, 2.0],
    "kernel_params": [0.1, 0.0, 0.0],
    "kernel_type": "RBF",
    "n_supports": 2,
    "rho": [1.0],
    "support_vectors": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
}
WEIGHTS = {"offset": [0.0, 1.0, 2.0], "scale": [1.0, 2.0, 3.0]}
LINEAR = {"coefficients": [float(i) for i in range(9)], "intercepts": [1.0, 2.0, 3.0], "targets": 3}

#: operator, attributes, type of its input, version of ai.onnx.ml
OPERATORS = {
    "LabelEncoder 2": ("LabelEncoder", MAP, "float", 2),
    "LabelEncoder 3": ("LabelEncoder", MAP, "float", 3),
    "LabelEncoder 4": ("LabelEncoder", MAP, "float", 4),
    "LabelEncoder 4 of doubles": ("LabelEncoder", DOUBLE_MAP, "double", 4),
    "LabelEncoder to integers": (
        "LabelEncoder",
        {**MAP, "values_floats": None, "values_int64s": [1, 2, 3]},
        "float",
        2,
    ),
    "OneHotEncoder": ("OneHotEncoder", {"cats_int64s": [-1, 0, 1], "zeros": 1}, "double", 3),
    "Scaler": ("Scaler", WEIGHTS, "double", 3),
    "Imputer": ("Imputer", {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": 0.0}, "double", 3),
    "Normalizer": ("Normalizer", {"norm": "L2"}, "double", 3),
    "Binarizer": ("Binarizer", {"threshold": 0.5}, "double", 3),
    "FeatureVectorizer": ("FeatureVectorizer", {"inputdimensions": [3]}, "double", 3),
    "LinearRegressor": ("LinearRegressor", LINEAR, "double", 3),
    "SVMRegressor": ("SVMRegressor", SVR, "double", 3),
    "TreeEnsembleRegressor": ("TreeEnsembleRegressor", TREE, "double", 3),
}
KINDS = {"float": TensorProto.FLOAT, "double": TensorProto.DOUBLE}


def model(kind, op_type, attributes, of, version):
    """Return Y = op(X) @ W, its input, weight and output of type `kind`."""
    attributes = {k: v for k, v in attributes.items() if v is not None}
    columns = {"SVMRegressor": 1, "OneHotEncoder": 9}.get(op_type, 3)
    nodes = [
        helper.make_node("Cast", ["X"], ["x"], to=KINDS[of if kind == "double" else "float"]),
        helper.make_node(op_type, ["x"], ["E"], domain="ai.onnx.ml", **attributes),
        helper.make_node("Cast", ["E"], ["F"], to=KINDS[kind]),
        helper.make_node("Reshape", ["F", "shape"], ["R"]),
        helper.make_node("MatMul", ["R", "W"], ["Y"]),
    ]
    weights = {
        "W": np.tile(W, (3, 1))[:columns].astype(kind.replace("float", "float32")),
        "shape": np.array([-1, columns]),
    }
    infos = [helper.make_tensor_value_info(n, KINDS[kind], ["n", k]) for n, k in (("X", 3), ("Y", 1))]
    held = [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


# onnxruntime has no kernel for some of them in double: what is trained is then not compared
@pytest.mark.filterwarnings("ignore:The trainable model was not compared")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", OPERATORS.values(), ids=OPERATORS)
def test_trained_in_either_type(case, kind, dtype):
    if case[1] is DOUBLE_MAP and kind == "float":
        pytest.skip("its keys are doubles")
    onx = model(kind, *case)
    start = OrtGradientRegressor(onx, dtype=dtype, max_iter=0).fit(X, Y)
    plain = model("float", *case) if case[1] is not DOUBLE_MAP else model("float", *OPERATORS["LabelEncoder 4"])
    expected = run(plain, {"X": X.astype(np.float32)})[0]
    np.testing.assert_allclose(start.predict(X), expected.ravel(), rtol=1e-5, atol=1e-6)
    tuned = OrtGradientRegressor(onx, dtype=dtype, max_iter=3, random_state=0).fit(X, Y)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    trained = tuned.get_trained_onnx()
    assert trained.graph.input[0].type.tensor_type.elem_type == KINDS[kind]
    rows = X.astype(np.float64 if kind == "double" else np.float32)
    np.testing.assert_allclose(run(trained, {"X": rows})[0].ravel(), tuned.predict(X), rtol=1e-4, atol=1e-6)


def test_digits_of_a_date_are_not_lost():
    node = helper.make_node("Scaler", ["X"], ["Y"], domain="ai.onnx.ml", offset=[1.6e9], scale=[2.0])
    infos = [helper.make_tensor_value_info(n, KINDS[k], ["n", 1]) for n, k in (("X", "double"), ("Y", "float"))]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onx = helper.make_model(helper.make_graph([node], "g", infos[:1], infos[1:]), opset_imports=opsets, ir_version=8)
    rows = {"X": np.array([[1.6e9 + 3.0], [1.6e9 + 4.0]])}
    np.testing.assert_array_equal(run(rewrite_model(onx), rows)[0], run(onx, rows)[0])
    np.testing.assert_array_equal(run(rewrite_model(onx), rows)[0].ravel(), [6, 8])
