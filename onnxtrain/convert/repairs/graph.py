"""Repairs of faulty converters that change the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline

from onnxtrain import graph as graphs
from onnxtrain.graph import unique_name


def repair_graph(estimator: Any, onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model, in place, without the known faults of skl2onnx."""
    untie(onx)
    last = last_step(estimator)
    if isinstance(last, MLPRegressor) and last.n_outputs_ > 1:
        _keep_columns(onx)
    if isinstance(last, OneVsRestClassifier) and last.multilabel_ and not hasattr(last, "predict_proba"):
        _threshold_at_zero(onx)
    if _has_two_labels(last):
        _keep_two_labels(onx)
    _turn_scores(onx)
    _unpack_sequence(onx)
    return onx


def last_step(estimator: Any) -> Any:
    """Return the last step of a pipeline, of pipelines in it too."""
    while isinstance(estimator, Pipeline):
        estimator = estimator[-1]
    return estimator


def in_float32(onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with float32 where a converter left double."""
    if not any(i.data_type == onnx.TensorProto.DOUBLE for i in onx.graph.initializer):
        return onx
    model = graphs.load(onx)
    graphs.cast_floats(model, ir.DataType.FLOAT)
    return graphs.save(model)


def untie(onx: onnx.ModelProto) -> None:
    """Give each Identity of an initializer a copy of its own.

    skl2onnx stores equal arrays once; trained, two intercepts that start at zero
    go different ways.
    """
    graph = onx.graph
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


def _keep_columns(onx: onnx.ModelProto) -> None:
    """Remove the last Reshape to (-1, 1) of a regressor with several targets."""
    graph = onx.graph
    (name,) = (y.name for y in graph.output)
    producer = next(node for node in graph.node if name in node.output)
    if producer.op_type == "Reshape":
        producer.CopyFrom(helper.make_node("Identity", producer.input[:1], [name], name=producer.name))
    graph.output[0].type.tensor_type.shape.dim[-1].ClearField("value")


def _threshold_at_zero(onx: onnx.ModelProto) -> None:
    """Compare the scores of labels with 0; the converter compares them with 0.5 as if they were probabilities."""
    graph = onx.graph
    (scores,) = (y.name for y in graph.output if y.type.tensor_type.elem_type in graphs.FLOATS)
    aliases = {scores, *(node.input[0] for node in graph.node if scores in node.output and len(node.input) == 1)}
    compared = {node.input[1] for node in graph.node if node.op_type == "Sub" and node.input[0] in aliases}
    for tensor in graph.initializer:
        if tensor.name in compared:
            zeros = np.zeros_like(numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(zeros, tensor.name))


def _has_two_labels(last: Any) -> bool:
    binarizer = getattr(last, "_label_binarizer", None)
    return getattr(binarizer, "y_type_", None) == "multilabel-indicator" and len(last.classes_) == 2


def _keep_two_labels(onx: onnx.ModelProto) -> None:
    """Give each of two labels its own column: the converters of MLPs and Ridge take them for two classes."""
    graph = onx.graph
    for node in graph.node:
        if node.op_type == "LinearClassifier":
            for attribute in node.attribute:
                if attribute.name in ("coefficients", "intercepts"):  # those of class 0 come first
                    del attribute.floats[: len(attribute.floats) // 2]
                if attribute.name == "intercepts" and len(attribute.floats) == 1:  # there is none, written as 0
                    attribute.floats.append(0.0)
    (scores,) = (y for y in graph.output if y.type.tensor_type.elem_type in graphs.FLOATS)
    (node,) = (n for n in graph.node if scores.name in n.output)
    if node.op_type in ("Concat", "ArrayFeatureExtractor"):
        kept = node.input[1] if node.op_type == "Concat" else node.input[0]
        node.CopyFrom(helper.make_node("Identity", [kept], [scores.name], name=node.name))
    for output in graph.output:
        del output.type.tensor_type.shape.dim[:]
        output.type.tensor_type.shape.dim.add()
        output.type.tensor_type.shape.dim.add().dim_value = 2


def _turn_scores(onx: onnx.ModelProto) -> None:
    """Put the scores of a support vector classifier of two classes in the order of the classes.

    SVMClassifier gives [d, -d] where d > 0 speaks for the second class.
    """
    graph = onx.graph
    outputs = {y.name for y in graph.output}
    for node in list(graph.node):
        attributes = {a.name: a for a in node.attribute}
        if node.op_type != "SVMClassifier" or "prob_a" in attributes or len(attributes["rho"].floats) != 1:
            continue
        users = [n for n in graph.node if node.output[1] in n.input]
        if node.output[1] in outputs or all(n.op_type == "Cast" and n.output[0] in outputs for n in users):
            _swap_columns(graph, node)


def _swap_columns(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    name, plain = node.output[1], f"{node.output[1]}_by_sign"
    node.output[1] = plain
    graph.initializer.append(numpy_helper.from_array(np.array([1, 0]), f"{plain}_order"))
    position = list(graph.node).index(node) + 1
    graph.node.insert(position, helper.make_node("Gather", [plain, f"{plain}_order"], [name], axis=1))


def _unpack_sequence(onx: onnx.ModelProto) -> None:
    """Make each element of a sequence an output: MultiOutputClassifier has probabilities for each target."""
    graph = onx.graph
    for node in [n for n in graph.node if n.op_type == "SequenceConstruct"]:
        (old,) = (y for y in graph.output if y.name == node.output[0])
        graph.output.remove(old)
        graph.node.remove(node)
        for i, name in enumerate(node.input):
            output = f"{old.name}_{i}"
            graph.node.append(helper.make_node("Identity", [name], [output], name=output))
            graph.output.append(helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, [None, None]))
