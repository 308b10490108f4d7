"""Parameters of boosted trees that the exporter of their library refuses or leaves out of the file."""

from __future__ import annotations

import copy
import json
import math
import re
from typing import Any

import numpy as np
import onnx
from sklearn.base import is_classifier

from onnxtrain.convert.learned import library_of

#: The losses of CatBoost whose predictions are the exponentials of the sums of leaves.
_EXPONENTIAL = ("Poisson", "Tweedie")

#: The newest opset of the exporters.
OPSET = 15

#: Objectives of LightGBM that onnxmltools refuses, and those with the same link, which it writes.
_SAME_LINK = {"fair": "regression", "mape": "regression", "cross_entropy": "binary sigmoid:1"}


def with_known_objective(estimator: Any) -> Any:
    """Return an estimator of LightGBM, or a copy of it with an objective that onnxmltools writes."""
    text = estimator.booster_.model_to_string()
    found = re.search(r"^objective=(\w+)$", text, re.MULTILINE)
    known = _SAME_LINK.get(found[1]) if found else None
    if found is None or known is None:
        return estimator
    changed = copy.copy(estimator)
    changed._Booster = type(estimator.booster_)(model_str=text.replace(found[0], f"objective={known}", 1))
    return changed


def repair_export(file: onnx.ModelProto, estimator: Any) -> onnx.ModelProto:
    """Return the exported file with the parameters of the estimator, which are added in place."""
    repairs = {"xgboost": _repair_xgboost, "catboost": _repair_catboost, "lightgbm": _repair_lightgbm}
    node = next((node for node in file.graph.node if node.op_type.startswith("TreeEnsemble")), None)
    repair = repairs.get(str(library_of(type(estimator))))
    if node is not None and repair is not None:
        repair(file, node, estimator)
    return file


def _repair_lightgbm(file: onnx.ModelProto, node: onnx.NodeProto, estimator: Any) -> None:
    """Divide the sums of leaves of a forest, ``boosting_type="rf"``, by the number of its trees instead of by 100."""
    if node.op_type == "TreeEnsembleRegressor" and estimator.boosting_type == "rf":
        divisor = next(n.input[1] for n in file.graph.node if n.op_type == "Div")
        (tensor,) = (tensor for tensor in file.graph.initializer if tensor.name == divisor)
        n_trees = np.full(tensor.dims, estimator.booster_.num_trees(), np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(n_trees, divisor))


def _repair_xgboost(file: onnx.ModelProto, node: onnx.NodeProto, estimator: Any) -> None:
    """Give the trees of a forest to their classes, as for ``num_parallel_tree``; add softmax to ``multi:softmax``."""
    if not is_classifier(estimator):
        return
    model = json.loads(estimator.get_booster().save_raw("json"))["learner"]
    of_tree = model["gradient_booster"]["model"]["tree_info"]
    trees = next(a.ints for a in node.attribute if a.name == "class_treeids")
    _set(node, "class_ids", [of_tree[tree] for tree in trees])
    if estimator.objective == "multi:softmax":
        _set(node, "post_transform", "SOFTMAX")
    if estimator.objective == "binary:logistic":
        share = float(model["learner_model_param"]["base_score"].strip("[]"))
        _set(node, "base_values", [math.log(share / (1 - share))])
        _set(node, "post_transform", "LOGISTIC")


def _repair_catboost(file: onnx.ModelProto, node: onnx.NodeProto, estimator: Any) -> None:
    """Add the exponential to the sums of leaves for losses of logarithms."""
    loss = str(estimator.get_all_params()["loss_function"])
    if not is_classifier(estimator) and loss.startswith(_EXPONENTIAL):
        (output,) = node.output
        node.output[0] = f"{output}_logarithm"
        file.graph.node.append(onnx.helper.make_node("Exp", list(node.output), [output]))
        if not any(opset.domain == "" for opset in file.opset_import):
            file.opset_import.append(onnx.helper.make_opsetid("", OPSET))


def _set(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Replace an attribute of a node."""
    others = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*others, onnx.helper.make_attribute(name, value)])
