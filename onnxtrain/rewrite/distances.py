"""Pairwise distances: the Scan over rows that skl2onnx emits becomes matrix products."""

from __future__ import annotations

import onnx_ir as ir

from onnxtrain.rewrite.registry import attribute, rewrite
from onnxtrain.rewrite.svm import squared_distances

#: The output of these operators is no longer a distance.
_ENDS = frozenset({"Exp", "MatMul", "Gemm", "Pow"})


@rewrite("", "Scan")
def scan(op, node):
    body = attribute(node, "body")
    if attribute(node, "num_scan_inputs") != 1 or len(node.inputs) != 2:
        return None
    if [n.op_type for n in body if n.op_type not in ("Identity", "Constant")] != ["Sub", "ReduceSumSquare"]:
        return None
    v, x = node.inputs  # the state, passed on unchanged, and the rows
    if len(node.outputs) != 2 or node.outputs[0].uses() or node.outputs[0].is_graph_output():
        return None
    if _square_root_follows(node.outputs[1]):  # the root of a difference close to zero would lose half its digits
        difference = op.Sub(op.Unsqueeze(x, [1]), op.Unsqueeze(v, [0]))
        return v, op.ReduceSumSquare(difference, [2], keepdims=0)
    return v, squared_distances(op, x, v, op.MatMul(x, op.Transpose(v, perm=[1, 0])))


def _square_root_follows(value: ir.Value) -> bool:
    seen: set[ir.Node] = set()
    todo = [value]
    while todo:
        for node in todo.pop().consumers():
            if node.op_type == "Sqrt":
                return True
            if node.op_type not in _ENDS and node not in seen:
                seen.add(node)
                todo += node.outputs
    return False
