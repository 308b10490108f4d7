"""Remedies for files that an exporter wrote wrongly, by the error that they raise."""

from __future__ import annotations

import onnx

from onnxtrain import graph
from onnxtrain.convert.boosted import lost_outputs
from onnxtrain.convert.dynamo import held_by_module
from onnxtrain.convert.keras import WITH_JAX, is_of_keras
from onnxtrain.convert.tied_weights import folded_from

#: The remedy for a file of dynamo=True with operands of different types.
_TYPES = (
    "torch.onnx.export(..., dynamo=True) writes such nodes, for example, for torch.arange(0, 5.0), and onnxruntime "
    "cannot run them either. Pass numbers of one type, torch.arange(0.0, 5.0), or use torch.onnx.export(..., "
    "dynamo=False, do_constant_folding=False)."
)

#: The remedies for files that were built or edited by hand, by words of the error.
_BY_HAND = {
    **dict.fromkeys(("inconsistent type", "bound to different types"), graph.ONE_TYPE),
    "No opset import for domain": (
        "Declare the domain of each operator, for example onnx.helper.make_model(graph, opset_imports="
        "[onnx.helper.make_opsetid('', 21), onnx.helper.make_opsetid('ai.onnx.ml', 3)])."
    ),
    "which no node computes": "Add an initializer or an input of this name, or correct the name in the node.",
}

#: The remedy for a file of dynamo=True with a loss of NaN.
_OPTIMIZED = (
    "If PyTorch's own output is finite, the exporter's optimizer has changed the model so that it becomes NaN. Use "
    "torch.onnx.export(..., dynamo=True, optimize=False)."
)

#: The remedy for a file of dynamo=True in which a node lacks its operand.
_CUT = (
    "The optimizer of torch.onnx.export(..., dynamo=True) has removed the node, and onnxruntime cannot run the file "
    "either. Use torch.onnx.export(..., dynamo=True, optimize=False)."
)


def remedy_of_faulty_file(onx: onnx.ModelProto, error: str) -> str:
    """Return the remedy for a file that its exporter wrote wrongly and that raised `error`; else ""."""
    if lost := lost_outputs(onx):
        return lost
    if is_of_keras(onx) and "ONNX has no operator" in error:
        return f"The exporter of Keras with TensorFlow kept it, and onnxruntime cannot run it either. {WITH_JAX}"
    by_hand = next((remedy for words, remedy in _BY_HAND.items() if words in error), "")
    if onx.producer_name != "pytorch":
        return by_hand
    of_dynamo = bool(held_by_module(onx) or folded_from(onx))
    if "ShapeInferenceError" in error or "Invalid attribute perm" in error:
        this, other = ("True", "False, do_constant_folding=False") if of_dynamo else ("False", "True")
        return (
            f"torch.onnx.export(..., dynamo={this}) writes such nodes for some modules, and onnxruntime cannot run "
            f"them either. Use torch.onnx.export(..., dynamo={other})."
        )
    if of_dynamo:
        return _remedy_of_dynamo(onx, error)
    if "requires the number of axes" in error and any(node.op_type == "SequenceEmpty" for node in onx.graph.node):
        return (
            "torch.onnx.export(..., dynamo=False) wrote a list of tensors as a sequence, whose shapes are unknown. Use "
            "torch.onnx.export(..., dynamo=True)."
        )
    return by_hand


def _remedy_of_dynamo(onx: onnx.ModelProto, error: str) -> str:
    """Return the remedy for a file of dynamo=True; else ""."""
    if any(words in error for words in ("TypeInferenceError", "bound to different types", "inconsistent type")):
        return _TYPES
    if "which no node computes" in error:
        return _CUT
    return _OPTIMIZED if "before the first step" in error and folded_from(onx) else ""
