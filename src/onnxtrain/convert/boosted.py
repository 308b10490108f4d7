"""Boosted trees of LightGBM, XGBoost and CatBoost, exported by onnxmltools or by the library itself."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from sklearn.base import is_classifier

from onnxtrain import graph
from onnxtrain.convert.boosted_repairs import OPSET, repair_export, with_known_objective
from onnxtrain.convert.custom import Nodes, addition
from onnxtrain.convert.learned import library_of
from onnxtrain.convert.repairs.table import Addition
from onnxtrain.errors import ConversionError


def addition_of_boosted(kind: type) -> Addition:
    """Return the converter of a class of boosted trees, in skl2onnx's form.

    Raises
    ------
    ConversionError
        The exporter of its library is not installed.
    """
    exporter = "catboost" if library_of(kind) == "catboost" else "onnxmltools"
    try:
        importlib.import_module(exporter)
    except ImportError as e:
        raise ConversionError(
            f"Exporting {kind.__name__} requires {exporter}, which is not installed. Run pip install {exporter}."
        ) from e
    return addition(_trees)


def _trees(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Append the nodes of the library's export of an estimator; return its predictions or probabilities."""
    width = X.shape[-1] if X.shape is not None and isinstance(X.shape[-1], int) else estimator.n_features_in_
    check_exported(estimator)
    file = exported(estimator, width)
    lost = lost_outputs(file)
    if lost:
        raise ConversionError(lost)
    outputs = op.splice(graph.without_maps(file), X)
    found = [y for y in outputs if graph.is_float(y)][-1]
    return found if is_classifier(estimator) else op.Reshape(found, op.constant(graph.tensor([-1, 1])))


def check_exported(estimator: Any) -> None:
    """Raise a ConversionError for categories, labels and objectives that the exporter of the library cannot write."""
    library, name = library_of(type(estimator)), type(estimator).__name__
    if getattr(estimator, "objective", None) == "binary:hinge":
        raise ConversionError(f"{name}(objective='binary:hinge') has no probabilities. Fit with 'binary:logistic'.")
    if library == "catboost" and is_classifier(estimator) and np.asarray(estimator.classes_).dtype.kind == "b":
        raise ConversionError("CatBoost cannot export boolean classes. Fit with y.astype(int).")
    categories = {
        "lightgbm": lambda: estimator.booster_.pandas_categorical,
        "xgboost": lambda: "c" in (estimator.get_booster().feature_types or ()),
        "catboost": lambda: estimator.get_cat_feature_indices(),
    }
    if library is not None and categories[library]():
        raise ConversionError(
            "It encodes columns of categories itself, which its exporter cannot write. Encode them before it, in place "
            "of a step that makes categories, and fit again: make_pipeline(make_column_transformer((OrdinalEncoder("
            "handle_unknown='use_encoded_value', unknown_value=-1), columns), remainder='passthrough'), "
            f"{name}())."
        )


def exported(estimator: Any, n_columns: int) -> onnx.ModelProto:
    """Return the file of an estimator of boosted trees, from the exporter of its library, with its parameters."""
    return repair_export(_by_library(estimator, n_columns), estimator)


def _by_library(estimator: Any, n_columns: int) -> onnx.ModelProto:
    library = library_of(type(estimator))
    if library == "catboost":
        from catboost.utils import convert_to_onnx_object

        return convert_to_onnx_object(estimator)
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    types = [("X", FloatTensorType([None, n_columns]))]
    if library == "lightgbm":
        options = {"zipmap": False} if is_classifier(estimator) else {}
        if options and estimator.classes_.dtype.kind == "b":  # the exporter would write strings
            estimator = copy.copy(estimator)
            estimator._classes = estimator.classes_.astype(int)
        estimator = with_known_objective(estimator)
        return onnxmltools.convert_lightgbm(estimator, initial_types=types, target_opset=OPSET, **options)
    unnamed = copy.deepcopy(estimator)  # the exporter only supports columns of floats by position
    unnamed.get_booster().feature_names = unnamed.get_booster().feature_types = None
    return onnxmltools.convert_xgboost(unnamed, initial_types=types, target_opset=OPSET)


def lost_outputs(onx: onnx.ModelProto) -> str:
    """Return which outputs of XGBoost's or CatBoost's export have no trees, and the remedy; else ""."""
    for node in onx.graph.node:
        if node.op_type == "TreeEnsembleClassifier" and not _classes(node):
            return (
                "The file has a classifier without classes, as CatBoost writes for losses of several outputs, such as "
                "MultiRMSE and MultiQuantile, and onnxruntime cannot run it. Fit with loss_function='RMSE'; for "
                "several targets, fit and pass sklearn.multioutput.MultiOutputRegressor(CatBoostRegressor())."
            )
        if node.op_type == "TreeEnsembleClassifier" and _largest_class(node) >= max(len(_classes(node)), 2):
            return (
                "The file has trees for more classes than it names, as onnxmltools writes for XGBClassifier with "
                "num_parallel_tree above 1, and onnxruntime cannot run it. Fit with num_parallel_tree=1."
            )
        found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.name in _OF_OUTPUTS}
        n_outputs, written = (found.get(name) for name in _OF_OUTPUTS)
        if node.op_type == "TreeEnsembleRegressor" and written and (n_outputs or 1) > len(set(written)):
            return (
                f"The exported file has trees for only {len(set(written))} of {n_outputs} outputs. Fit and pass "
                "sklearn.multioutput.MultiOutputRegressor(estimator), which has trees for each output; of a list of "
                "quantile_alpha, fit one estimator per quantile."
            )
    return ""


def _classes(node: onnx.NodeProto) -> list[int | bytes]:
    """Return the classes of a TreeEnsembleClassifier."""
    return [label for a in node.attribute if a.name.startswith("classlabels_") for label in (*a.ints, *a.strings)]


def _largest_class(node: onnx.NodeProto) -> int:
    """Return the largest index of a class to which a leaf of a TreeEnsembleClassifier adds."""
    return max((index for a in node.attribute if a.name == "class_ids" for index in a.ints), default=0)


#: Attributes of tree ensembles: the number of outputs, and the output to which each leaf adds.
_OF_OUTPUTS = ("n_targets", "target_ids")
