"""Parameters of a Keras model that tf2onnx, its exporter with TensorFlow and JAX, writes differently or leaves out."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np
import onnx
import onnx.numpy_helper

from onnxtrain import graph

#: Names of nodes and weights into which BatchNormalization was folded.
_NORMALIZED = re.compile(r"/batchnorm/|FusedBatchNorm|/merged_input")

#: The operand of an operator that is an intercept.
_INTERCEPT = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2}

#: Operators whose second operand is a matrix or a kernel.
_PRODUCTS = ("MatMul", *_INTERCEPT)


#: How to export a model by the exporter of Keras with JAX, jax2onnx.
WITH_JAX = (
    "Save the model with model.save, load it with KERAS_BACKEND=jax, and use model(model.inputs); model.export(...) "
    "there."
)


def is_of_keras(onx: onnx.ModelProto) -> bool:
    """Whether tf2onnx wrote a model."""
    return onx.producer_name == "tf2onnx"


def with_one_intercept(onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which an LSTM trains one intercept, as in Keras, not the sum of two.

    ONNX adds an intercept to the product with the rows and one to the product with the state. tf2onnx fills the second
    with zeros. If both were trained, their sum would move twice as far.
    """
    if not is_of_keras(onx):
        return onx
    held = {i.name: i for i in onx.graph.initializer}
    nodes = [n for n in onx.graph.node if _adds_both(n) and len(n.input) > 3 and n.input[3] in held]
    halves = {b: _first_half(held[b]) for b in {n.input[3] for n in nodes}}
    if not any(mask is not None for mask in halves.values()):
        return onx
    changed, kept = graph.copy_of(onx), []
    for node in changed.graph.node:
        mask = halves.get(node.input[3]) if _adds_both(node) and len(node.input) > 3 else None
        if mask is not None:
            b, name = node.input[3], f"{node.output[0] or node.name}.intercept"
            kept.append(
                onnx.helper.make_node("Constant", [], [f"{name}.mask"], value=onnx.numpy_helper.from_array(mask))
            )
            kept.append(onnx.helper.make_node("Mul", [b, f"{name}.mask"], [name]))
            node.input[3] = name
        kept.append(node)
    graph.assign(changed.graph.node, kept)
    return changed


def _adds_both(node: onnx.NodeProto) -> bool:
    """Whether a node adds both intercepts directly to each gate."""
    if node.op_type == "GRU":
        return not any(a.name == "linear_before_reset" and a.i for a in node.attribute)
    return node.op_type in ("LSTM", "RNN")


def _first_half(tensor: onnx.TensorProto) -> np.ndarray | None:
    """Return the mask of the first half of each row of intercepts, if the second halves are zeros."""
    b = graph.array_of(tensor)
    half = b.shape[-1] // 2
    if b.dtype.kind != "f" or b[..., half:].any():
        return None
    return np.broadcast_to(np.arange(b.shape[-1]) < half, b.shape).astype(b.dtype)


def remarks_on_keras(onx: onnx.ModelProto, trained: Collection[str]) -> list[str]:
    """Return warnings about `trained` weights that Keras would train differently."""
    if not is_of_keras(onx):
        return []
    nodes, found = list(graph.nodes_in(onx.graph.node)), []
    unfolded = {x for n in nodes if n.op_type == "BatchNormalization" for x in n.input}
    normalized = {x for n in nodes if _NORMALIZED.search(n.name) for x in n.input}
    if folded := [w for w in trained if w not in unfolded and (w in normalized or _NORMALIZED.search(w))]:
        found.append(
            f"The exporter of Keras computed {_listed(folded)} from several weights, those of BatchNormalization among "
            f"them. The results are trained here, but Keras trains what they come from. To keep it: {WITH_JAX}"
        )
    products = [n.input[1] for n in nodes if n.op_type in _PRODUCTS and len(n.input) > 1 and n.input[1] in trained]
    if products and not _has_intercepts(nodes, trained):
        found.append(
            f"The layers of {_listed(products)} have no intercept in the file. The exporter of Keras leaves out "
            "intercepts of zeros and scales of ones, as layers have at the start, and what it left out is not trained. "
            "To keep it, change it slightly before model.export: for v in model.trainable_variables: "
            "v.assign(v + 1e-6 * keras.random.normal(v.shape))."
        )
    return found


def _has_intercepts(nodes: Sequence[onnx.NodeProto], trained: Collection[str]) -> bool:
    """Whether a trained weight is an intercept of a layer."""
    added = {x for n in nodes if n.op_type == "Add" for x in n.input}
    added |= {n.input[i] for n in nodes if (i := _INTERCEPT.get(n.op_type, 0)) and len(n.input) > i}
    return not added.isdisjoint(trained)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
