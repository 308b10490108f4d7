"""Repairs of the graphs of faulty converters."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper
from sklearn.base import BaseEstimator, is_classifier
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline

from onnxtrain import graph as graphs
from onnxtrain.convert.learned import predictor_of
from onnxtrain.graph import unique_name


def repair_graph(estimator: BaseEstimator, onx: onnx.ModelProto) -> onnx.ModelProto:
    """Repair known faults of skl2onnx in a model, in place, and return the model."""
    graph, last = onx.graph, predictor_of(estimator)
    operators = {node.op_type for node in graph.node}
    if "Identity" in operators:
        untie(graph)
    if isinstance(last, OneVsRestClassifier) and last.multilabel_ and not hasattr(last, "predict_proba"):
        _threshold_at_zero(graph)
    if isinstance(last, QuadraticDiscriminantAnalysis):
        _flatten_labels(graph)
    if _has_two_labels(last):
        _keep_two_labels(graph)
    if "SVMClassifier" in operators:
        _turn_scores(graph)
    if "SequenceConstruct" in operators:
        _unpack_sequence(graph)
    if is_classifier(estimator) and not hasattr(estimator, "predict_proba"):
        _name_scores(graph)
    return onx


def last_step(estimator: BaseEstimator) -> BaseEstimator:
    """Return the last step of a pipeline, also of nested pipelines."""
    while isinstance(estimator, Pipeline):
        estimator = estimator[-1]
    return estimator


def untie(graph: onnx.GraphProto) -> None:
    """Replace each Identity of an initializer by a separate copy of the initializer.

    skl2onnx stores equal arrays once, but two intercepts that are both zero become different in training.
    """
    initializers = {i.name: i for i in graph.initializer}
    taken = set(initializers)
    outputs = {y.name for y in graph.output}
    for node in list(graph.node):
        if node.op_type == "Identity" and node.input[0] in initializers and node.output[0] not in outputs:
            copy = onnx.TensorProto()
            copy.CopyFrom(initializers[node.input[0]])
            copy.name = unique_name(node.output[0], taken)
            graph.initializer.append(copy)
            initializers[copy.name] = copy
            graph.node.remove(node)


def _scores(graph: onnx.GraphProto) -> tuple[onnx.ValueInfoProto, onnx.NodeProto]:
    """Return the floating-point output and the node that computes it."""
    (scores,) = (y for y in graph.output if y.type.tensor_type.elem_type in graphs.FLOATS)
    return scores, next(node for node in graph.node if scores.name in node.output)


def _become_identity(node: onnx.NodeProto, of: str, result: str) -> None:
    node.CopyFrom(helper.make_node("Identity", [of], [result], name=node.name))


def _threshold_at_zero(graph: onnx.GraphProto) -> None:
    """Compare the scores of labels with 0; the converter compares them with 0.5, as if they were probabilities."""
    scores, node = _scores(graph)
    aliases = {scores.name, *(node.input if len(node.input) == 1 else ())}
    compared = {node.input[1] for node in graph.node if node.op_type == "Sub" and node.input[0] in aliases}
    for tensor in graph.initializer:
        if tensor.name in compared:
            zeros = np.zeros_like(numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(zeros, tensor.name))


def _flatten_labels(graph: onnx.GraphProto) -> None:
    """Give the labels the shape (n,); the converter writes (1, n)."""
    label = graph.output[0]
    row, shape = f"{label.name}_in_a_row", f"{label.name}_shape"
    (maker,) = (node for node in graph.node if label.name in node.output)
    maker.output[list(maker.output).index(label.name)] = row
    graph.initializer.append(numpy_helper.from_array(np.array([-1]), shape))
    graph.node.append(helper.make_node("Reshape", [row, shape], [label.name]))
    del label.type.tensor_type.shape.dim[:]
    label.type.tensor_type.shape.dim.add()


def _has_two_labels(last: BaseEstimator) -> bool:
    binarizer = getattr(last, "_label_binarizer", None)
    return getattr(binarizer, "y_type_", None) == "multilabel-indicator" and len(last.classes_) == 2


def _keep_two_labels(graph: onnx.GraphProto) -> None:
    """Give each of two labels its own column; the converters of MLPs and Ridge treat two labels as two classes."""
    linear = [a for node in graph.node if node.op_type == "LinearClassifier" for a in node.attribute]
    for attribute in linear:
        if attribute.name in ("coefficients", "intercepts"):  # the coefficients of class 0 come first
            del attribute.floats[: len(attribute.floats) // 2]
        if attribute.name == "intercepts" and len(attribute.floats) == 1:  # no intercept is written as a single 0
            attribute.floats.append(0.0)
    scores, node = _scores(graph)
    if node.op_type in ("Concat", "ArrayFeatureExtractor"):
        _become_identity(node, node.input[node.op_type == "Concat"], scores.name)
    for output in graph.output:
        del output.type.tensor_type.shape.dim[:]
        output.type.tensor_type.shape.dim.add()
        output.type.tensor_type.shape.dim.add().dim_value = 2


def _turn_scores(graph: onnx.GraphProto) -> None:
    """Put the scores of a binary support vector classifier in the order of the classes.

    SVMClassifier returns [d, -d], where d > 0 favors the second class.
    """
    outputs = {y.name for y in graph.output}
    for node in [n for n in graph.node if n.op_type == "SVMClassifier"]:
        attributes = {a.name: a for a in node.attribute}
        users = [n for n in graph.node if node.output[1] in n.input]
        last = node.output[1] in outputs or all(n.op_type == "Cast" and n.output[0] in outputs for n in users)
        if last and "prob_a" not in attributes and len(attributes["rho"].floats) == 1:
            _swap_columns(graph, node)


def _swap_columns(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    name, plain = node.output[1], f"{node.output[1]}_by_sign"
    node.output[1] = plain
    graph.initializer.append(numpy_helper.from_array(np.array([1, 0]), f"{plain}_order"))
    position = list(graph.node).index(node) + 1
    graph.node.insert(position, helper.make_node("Gather", [plain, f"{plain}_order"], [name], axis=1))


def _unpack_sequence(graph: onnx.GraphProto) -> None:
    """Make each element of a sequence an output; MultiOutputClassifier has probabilities for each target."""
    for node in [n for n in graph.node if n.op_type == "SequenceConstruct"]:
        (old,) = (y for y in graph.output if y.name == node.output[0])
        graph.output.remove(old)
        graph.node.remove(node)
        for i, name in enumerate(node.input):
            output = f"{old.name}_{i}"
            graph.node.append(helper.make_node("Identity", [name], [output], name=output))
            graph.output.append(helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, [None, None]))


def _name_scores(graph: onnx.GraphProto) -> None:
    """Name the output of a classifier without probabilities ``scores``; skl2onnx calls every one ``probabilities``."""
    names = [some for node in graph.node for some in (node.input, node.output)]
    if "scores" in {value.name for value in graph.input}.union(*names):
        return
    for some in names:
        some[:] = ["scores" if name == "probabilities" else name for name in some]
    for output in graph.output:
        output.name = "scores" if output.name == "probabilities" else output.name
