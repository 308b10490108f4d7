"""The loss of a batch as an output of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx
import onnx_ir as ir

from onnxtrain import graph as graphs
from onnxtrain.errors import LossError
from onnxtrain.graph import ModelLike, builder, names_in, unique_name
from onnxtrain.heads import choose_output
from onnxtrain.loss_helper.penalty import add_penalty, find_penalties
from onnxtrain.loss_helper.rows import add_row_loss
from onnxtrain.losses import find_loss


def add_loss_output(
    onx: ModelLike,
    score_name: str | Callable[..., ir.Value] = "squared_error",
    loss_name: str = "loss",
    label_name: str = "label",
    weight_name: str | None = None,
    penalty: Mapping[str, Mapping[str, float] | float] | None = None,
    output_index: int | str | None = None,
    **kwargs: Any,
) -> onnx.ModelProto:
    r"""Return a model that also computes its loss on a batch.

    For a regressor, with :math:`\ell` the loss of a row and w the weights of rows, 1 without them,

    .. math:: \sum_i w_i \ell(y_i, f(x_i)) + \sum_W \left(\lambda_1 \sum |W| + \lambda_2 \sum W^2\right),

    and for a classifier :math:`\sum_i w_i \ell_i / \sum_i w_i` in front of the same penalties.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path
        Stays as it is.
    score_name : str or callable
        A name in :data:`onnxtrain.losses.LOSSES`, or ``function(op, y_true, y_pred, **kwargs)`` that
        returns one value a row (n, 1). A function is for a regressor; :func:`onnxtrain.loss`
        registers one for a classifier.
    loss_name, label_name : str
        Names of the output and of the input that are added. The label is int64 (n, 1), the index
        of the class, for the loss of a classifier, else of the type and shape of the output.
    weight_name : str, optional
        Adds an input for weights, one a row: (n,) or (n, 1).
    penalty : mapping, optional
        ``{name: {"l1": a, "l2": b}}`` or ``{name: b}``, which is the same as ``{name: {"l2": b}}``;
        names of initializers or of inputs.
    output_index : int or str, optional
        The prediction, by position or by name. None: the only output of floats. For the loss of a
        classifier an output of labels stands for the scores they are the largest of.
    **kwargs
        Parameters of the loss.

    Returns
    -------
    onnx.ModelProto
        Its outputs are the loss (1, 1) and the chosen output. What else in the model is called
        `loss_name`, `label_name` or `weight_name`, initializers included, gets a number behind its name.
        Numbers of the loss and of the penalties are nodes (Constant): the real initializers are the weights of `onx`.

    Raises
    ------
    LossError
        The loss, one of its parameters or a name in `penalty` is unknown, a
        penalty is negative, the loss does not fit the output, or an input or the
        chosen output has the name of what is to be added.
    ModelError
        The model cannot be read, the output does not exist or holds no floats.

    Examples
    --------
    A penalty counts once a batch, however many rows there are:

    >>> import numpy as np, onnx.parser
    >>> from onnx.reference import ReferenceEvaluator
    >>> onx = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["" : 21]>
    ...     line (float[n, 1] X) => (float[n, 1] Y) <float[1, 1] W = {3.0}> { Y = MatMul(X, W) }''')
    >>> with_loss = add_loss_output(onx, "absolute_error", penalty={"W": {"l1": 1, "l2": 10}})
    >>> X = np.array([[1], [2]], dtype=np.float32)
    >>> loss, prediction = ReferenceEvaluator(with_loss).run(None, {"X": X, "label": 4 * X})
    >>> float(loss.item()), prediction.ravel().tolist()
    (96.0, [3.0, 6.0])
    """
    model = graphs.load(onx)
    own = set(model.graph.initializers.values())
    classifies = find_loss(score_name, kwargs).classifies
    output = choose_output(model, output_index, labels=classifies)
    output_name = str(output.name)
    penalties = find_penalties(model, penalty or {})
    _reserve_names(model, output, {"loss_name": loss_name, "label_name": label_name, "weight_name": weight_name})
    label, rows = add_row_loss(model, output, score_name, kwargs, label_name=label_name)
    op = builder(model).op
    total = _total(op, model, rows, weight_name, mean=label.dtype is ir.DataType.INT64)
    for weight, (l1, l2) in penalties.items():
        added = add_penalty(op, weight, l1, l2)
        total = op.Add(total, added if added.dtype == total.dtype else op.Cast(added, to=total.dtype))
    total, output = graphs.constants_as_nodes(model, own, [total, output])
    return graphs.save(model, outputs=[(loss_name, total), (output_name, output)])


def _total(op: Any, model: ir.Model, rows: ir.Value, weight_name: str | None, *, mean: bool) -> ir.Value:
    """Return the sum or the mean of the losses of rows, each times its weight, as (1, 1)."""
    reduce = op.ReduceMean if mean else op.ReduceSum
    if weight_name is None:
        return reduce(rows, [0], keepdims=1)
    # ONNX has no type for "(n,) or (n, 1)"; runtimes do not check the size of what is declared to have no axis
    weight = ir.Value(name=weight_name, type=ir.TensorType(rows.dtype), shape=ir.Shape([]))  # type: ignore[arg-type]
    model.graph.inputs.append(weight)
    w = op.Reshape(weight, op.Shape(rows))  # as many as rows, or an error: never broadcast
    w.shape = rows.shape
    total = op.ReduceSum(op.Mul(rows, w), [0], keepdims=1)
    return op.Div(total, op.ReduceSum(w, [0], keepdims=1)) if mean else total


def _reserve_names(model: ir.Model, output: ir.Value, names: Mapping[str, str | None]) -> None:
    """Check the names that the user chose and rename whatever else in the graph has one of them."""
    chosen = {argument: name for argument, name in names.items() if name is not None}
    visible = {str(v.name): "input" for v in model.graph.inputs} | {str(output.name): "output"}
    for argument, name in chosen.items():
        if not isinstance(name, str) or not name:
            raise LossError(f"{argument} must be a name, got {name!r}.")
        if name in visible:
            raise LossError(f"The model has an {visible[name]} {name!r}: choose another {argument}.")
    if len(set(chosen.values())) < len(chosen):
        raise LossError(f"The names must differ, got {', '.join(f'{a}={n!r}' for a, n in chosen.items())}.")
    taken = names_in(model.graph) | set(chosen.values())
    for graph in (model.graph, *model.graph.subgraphs()):
        values = [*graph.inputs, *graph.initializers.values(), *(y for node in graph for y in node.outputs)]
        for value in values:
            if value.name in chosen.values():
                value.name = unique_name(str(value.name), taken)
