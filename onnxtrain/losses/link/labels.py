"""Multilabel models with one output per label."""

from __future__ import annotations

import onnx_ir as ir

from onnxtrain.graph import Op, is_float, rank
from onnxtrain.losses.link.scores import Link, scores_behind
from onnxtrain.losses.link.walk import n_columns


def join_labels(model: ir.Model, op: Op, n_labels: int) -> ir.Value | None:
    """Append, in place, the probabilities of labels as one value (n, K), from K outputs of two classes each.

    MultiOutputClassifier has such outputs, and networks with one head per label.

    Parameters
    ----------
    model : onnx_ir.Model
    op : onnxscript builder
    n_labels : int
        K.

    Returns
    -------
    onnx_ir.Value or None
        The scores instead if the outputs are scores. None if there are not K floating-point
        outputs, or if they are not all of one kind.
    """
    outputs = [v for v in model.graph.outputs if is_float(v)]
    if n_labels < 2 or len(outputs) != n_labels:
        return None
    found = [scores_behind(v, op) for v in outputs]
    links = {scores.link for scores in found}
    if links not in ({Link.SIGMOID}, {Link.IDENTITY}) or any(n_columns(scores.value) != 1 for scores in found):
        return None
    columns = [z if rank(z) == 2 else op.Unsqueeze(z, [1]) for z in (scores.value for scores in found)]
    joined = op.Concat(*columns, axis=1)
    return op.Sigmoid(joined) if links == {Link.SIGMOID} else joined
