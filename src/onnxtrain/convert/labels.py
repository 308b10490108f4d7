"""Labels and probabilities appended to the output of a classifier, as skl2onnx's classifiers return them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper

from onnxtrain import graph
from onnxtrain.errors import ExportError
from onnxtrain.losses.link import Link

#: The names of the outputs, unless the model already uses them.
LABEL, PROBABILITIES, SCORES = "label", "probabilities", "scores"


class _Tail:
    """Nodes appended to a model under new names; their operators mean the same since opset 1, or for (n, k)."""

    def __init__(self, onx: onnx.ModelProto):
        self._graph = onx.graph
        made = (name for node in graph.nodes_in(onx.graph.node) for name in (*node.output, *node.input))
        self._names = {*made, *(v.name for v in (*onx.graph.input, *onx.graph.initializer, *onx.graph.output))}

    def free(self, name: str) -> None:
        """Rename the result of a node that has this name."""
        nodes = list(graph.nodes_in(self._graph.node))
        if not any(name in node.output for node in nodes):
            return
        other = graph.unique_name(name, self._names)
        for node in nodes:
            for field in (node.input, node.output):
                field[:] = [other if x == name else x for x in field]
        for value in self._graph.value_info:
            value.name = other if value.name == name else value.name
        self._names.remove(name)

    def node(self, op_type: str, *operands: str, name: str = "", **attributes: Any) -> str:
        y = graph.unique_name(name or f"labels_{op_type.lower()}", self._names)
        self._graph.node.append(onnx.helper.make_node(op_type, operands, [y], **attributes))
        return y

    def constant(self, array: np.ndarray, name: str) -> str:
        name = graph.unique_name(name, self._names)
        self._graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return name

    def columns(self, x: str, n_columns: int) -> str:
        """Reshape (n,) to (n, 1), and an output of more axes to (n, K)."""
        if n_columns == 1:
            return self.node("Reshape", x, self.constant(np.array([-1, 1]), "labels_shape"))
        return self.node("Flatten", x, axis=1)


def with_labels(
    onx: onnx.ModelProto,
    *,
    output: str,
    n_columns: int,
    scores: str | None,
    n_scores: int,
    link: Link,
    classes: np.ndarray,
    n_labels: int,
    likely: bool,
) -> onnx.ModelProto:
    """Return a classifier whose outputs are replaced by ``label`` and ``probabilities``.

    Parameters
    ----------
    onx : onnx.ModelProto
    output : str
        The output with the scores or the probabilities, in `n_columns` columns.
    n_columns : int
    scores : str or None
        The value of `n_scores` columns that decides the label, if the model has it; probabilities may be tied by
        rounding.
    n_scores : int
    link : Link
        The link from the scores to `output`.
    classes : ndarray
        The classes by column.
    n_labels : int
        The number of labels for multilabel targets, else 0: the label is then an indicator matrix.
    likely : bool
        Whether the scores define probabilities; for other scores, such as margins, the second output is ``scores``.

    Raises
    ------
    ExportError
        The model has no output of this name.
    """
    changed = graph.copy_of(onx)
    types = {value.name: value.type.tensor_type.elem_type for value in changed.graph.output}
    if output not in types:
        raise ExportError(
            f"The original model has no output {output!r}, which was made of several outputs. Use get_trained_onnx() "
            "without labels."
        )
    tail, dtype = _Tail(changed), onnx.helper.tensor_dtype_to_np_dtype(types[output])
    made = {name for node in changed.graph.node for name in node.output}
    found = tail.columns(output, n_columns)
    decides, width, threshold = found, n_columns, 0.0 if link is Link.IDENTITY else 0.5
    if scores is not None and scores in made - {output}:
        decides, width, threshold = tail.columns(scores, n_scores), n_scores, 0.0
    label = _label(tail, decides, np.array(threshold, dtype), width, classes, n_labels)
    second = _probabilities(tail, found, link, n_columns, n_labels, np.array(1, dtype)) if likely else found
    name = PROBABILITIES if likely else SCORES
    del changed.graph.output[:]
    n_results = n_columns if n_labels or n_columns > 1 or not likely else 2
    chosen = _written(classes).dtype
    kind = onnx.TensorProto.INT64 if n_labels else onnx.helper.np_dtype_to_tensor_dtype(chosen)
    widths = [[n_labels] if n_labels else [], [n_results]]
    for y, called, element, dims in zip((label, second), (LABEL, name), (kind, types[output]), widths, strict=True):
        tail.free(called)
        y = tail.node("Identity", y, name=called)
        changed.graph.output.append(onnx.helper.make_tensor_value_info(y, element, ["rows", *dims]))
    return changed


def _label(tail: _Tail, decides: str, threshold: np.ndarray, n_columns: int, classes: np.ndarray, n_labels: int) -> str:
    if not n_labels and n_columns > 1:
        best = tail.node("ArgMax", decides, axis=1, keepdims=0)
    else:
        tie = tail.constant(threshold, "labels_threshold")
        above = tail.node("Cast", tail.node("Greater", decides, tie), to=onnx.TensorProto.INT64)
        if n_labels:
            return above
        best = tail.node("Reshape", above, tail.constant(np.array([-1]), "labels_shape"))
    return tail.node("Gather", tail.constant(_written(classes), "classes"), best)


def _written(classes: np.ndarray) -> np.ndarray:
    """Return labels in the types of skl2onnx: strings or int64."""
    if classes.dtype.kind in "UOS":
        return classes.astype(str).astype(object)
    whole = classes.astype(np.int64)
    return whole if np.array_equal(whole, classes) else classes.astype(np.float32)


def _probabilities(tail: _Tail, found: str, link: Link, n_columns: int, n_labels: int, one: np.ndarray) -> str:
    """Return the probabilities of an output; those of exclusive classes are normalized to sum to one."""
    if link is Link.IDENTITY:
        found = tail.node("Softmax", found, axis=1) if n_columns > 1 and not n_labels else tail.node("Sigmoid", found)
    elif n_columns > 1 and not n_labels and link is not Link.SOFTMAX:
        found = tail.node("LpNormalization", found, axis=1, p=1)
    if n_labels or n_columns > 1:
        return found
    rest = tail.node("Sub", tail.constant(one, "labels_one"), found)
    return tail.node("Concat", rest, found, axis=1)
