"""Models with one output for each label."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxtrain.graph import is_float, rank
from onnxtrain.heads.scores import Link, scores_behind
from onnxtrain.heads.walk import n_columns


def join_labels(model: ir.Model, op: Any, n_labels: int) -> ir.Value | None:
    """Append, in place, the probabilities of labels as one value (n, K), from K outputs of two classes each.

    MultiOutputClassifier has such outputs, and networks with a head for each label.

    Parameters
    ----------
    model : onnx_ir.Model
    op : onnxscript builder
    n_labels : int
        K.

    Returns
    -------
    onnx_ir.Value or None
        The scores instead where the outputs are scores. None: there are not K outputs of floats,
        or they are not all of one kind.
    """
    outputs = [v for v in model.graph.outputs if is_float(v)]
    if n_labels < 2 or len(outputs) != n_labels:
        return None
    heads = [scores_behind(v, op) for v in outputs]
    links = {head.link for head in heads}
    if links not in ({Link.SIGMOID}, {Link.IDENTITY}) or any(n_columns(head.value) != 1 for head in heads):
        return None
    columns = [z if rank(z) == 2 else op.Unsqueeze(z, [1]) for z in (head.value for head in heads)]
    joined = op.Concat(*columns, axis=1)
    return op.Sigmoid(joined) if links == {Link.SIGMOID} else joined
