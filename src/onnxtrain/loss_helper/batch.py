"""The loss of a batch as an output of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph as graphs
from onnxtrain.arguments import lists_its_arguments
from onnxtrain.errors import ArgumentTypeError, LossError
from onnxtrain.graph import ModelLike, Op, builder, describe, names_in, rank, unique_name, values_in
from onnxtrain.loss_helper.penalty import add_penalty, find_penalties
from onnxtrain.loss_helper.rows import add_row_loss, sum_over_positions, weights_of_positions
from onnxtrain.losses import Loss, Prediction, find_loss
from onnxtrain.losses.link import OUTPUT_IS, Link, n_columns, scores_behind
from onnxtrain.losses.outputs import choose_output


@lists_its_arguments
def add_loss_output(
    onx: ModelLike,
    score_name: str | Callable[..., ir.Value] = "squared_error",
    loss_name: str = "loss",
    label_name: str = "label",
    weight_name: str | None = None,
    penalty: Mapping[str, Mapping[str, float] | float] | None = None,
    output_index: int | str | None = None,
    output_is: str | None = None,
    class_axis: int | None = None,
    ignore_index: int = -100,
    **kwargs: Any,
) -> onnx.ModelProto:
    r"""Return a model that also computes its loss on a batch.

    For a regressor, with :math:`\ell` the loss of a row and w the sample weights (default 1),

    .. math:: \sum_i w_i \ell(y_i, f(x_i)) + \sum_W \left(\lambda_1 \sum |W| + \lambda_2 \sum W^2\right),

    and for a classifier :math:`\sum_i w_i \ell_i / \sum_i w_i` plus the same penalties. For an output of three or more
    axes, :math:`\ell_i` is the mean over the :math:`c_i` positions of the row that count. The loss of a classifier is
    then :math:`\sum_i w_i c_i \ell_i / \sum_i w_i c_i`, as in PyTorch's ``CrossEntropyLoss``.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path
        The model; it is not changed.
    score_name : str or callable
        A name in :data:`onnxtrain.losses.LOSSES`, or ``function(op, y_true, y_pred, **kwargs)`` that
        returns one value per row, (n, 1). A function is a loss for regressors; :func:`onnxtrain.loss`
        registers one for classifiers.
    loss_name, label_name : str
        Names of the added output and input. For a classification loss, the label is the class index, int64, of shape
        (n, 1) or the shape of the output without `class_axis`. Otherwise the label has the type and the shape of the
        output.
    weight_name : str, optional
        Adds an input for sample weights, (n,) or (n, 1).
    penalty : mapping, optional
        ``{name: {"l1": a, "l2": b}}`` or ``{name: b}``, which is the same as ``{name: {"l2": b}}``;
        names of initializers or of inputs.
    output_index : int or str, optional
        The prediction, by position or by name. None: the only floating-point output. For a
        classification loss, an output of labels selects the scores that the labels are computed from.
    output_is : {"scores", "probabilities"} or None
        For a classification loss. None: inferred from the graph, which recognises Softmax, Sigmoid, their averages, any
        other output proven to lie in [0, 1], and a last layer that returns scores. If the graph is inconclusive,
        ``"log"`` reads rows of an output (n, k) that sum to one as probabilities, with 0 replaced by eps, and a single
        column as scores.
    class_axis : int, optional
        The class axis of an output of three or more axes, for a classification loss: -1 or 2 for (n, t, K), 1 for
        (n, K, h, w).
    ignore_index : int
        The label of the positions that the loss ignores in such an output. Floating-point labels are ignored if they
        are NaN.
    **kwargs
        Parameters of the loss.

    Returns
    -------
    onnx.ModelProto
        Its outputs are the loss (1, 1) and the chosen output. Any other value of the model named `loss_name`,
        `label_name` or `weight_name`, initializers included, gets a numeric suffix. Constants of the loss and of
        the penalties are Constant nodes: the floating-point initializers are the weights of `onx`.

    Raises
    ------
    LossError
        The loss, one of its parameters or a name in `penalty` is unknown, a
        penalty is negative, the loss does not fit the output, or an input or the
        chosen output has a name that is to be added.
    ModelError
        The model cannot be read, or the output does not exist or is not floating-point.

    Examples
    --------
    A penalty is added once per batch, independently of the number of rows:

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
    entry = _entry_of(score_name, kwargs, output_is)
    _check_positions(score_name, entry, class_axis, ignore_index)
    classifies = entry.classifies
    output = choose_output(model, output_index, labels=classifies, argument="output_index")
    output_name = str(output.name)
    penalties = find_penalties(model, penalty or {})
    _reserve_names(model, output, {"loss_name": loss_name, "label_name": label_name, "weight_name": weight_name})
    if output_is is None and entry.prediction is Prediction.LIKELIHOOD and _may_be_probabilities(model, output):
        output_is = "probabilities"
    label, rows = add_row_loss(
        model,
        output,
        score_name,
        kwargs,
        label_name=label_name,
        output_is=output_is,
        class_axis=_axis_of_classes(output, class_axis) if classifies else None,
        ignored=ignore_index,
    )
    op = builder(model).op
    counts = None
    if classifies and (rank(output) or 0) > 2:
        counts = sum_over_positions(op, weights_of_positions(op, label, ignore_index, rows.dtype))
    total = _total(op, model, rows, weight_name, counts, mean=label.dtype is ir.DataType.INT64)
    for weight, (l1, l2) in penalties.items():
        added = add_penalty(op, weight, l1, l2)
        total = op.Add(total, added if added.dtype == total.dtype else op.Cast(added, to=total.dtype))
    total, output = graphs.constants_as_nodes(model, own, [total, output])
    return graphs.save(model, outputs=[(loss_name, total), (output_name, output)])


def _entry_of(score_name: str | Callable[..., ir.Value], kwargs: Mapping[str, Any], output_is: str | None) -> Loss:
    """Return the entry of a loss in the table; refuse an argument of another name, and `output_is` for regression."""
    if "loss" in kwargs:  # the name of this argument everywhere else
        raise ArgumentTypeError(
            f"add_loss_output has no argument 'loss'. Pass the loss as score_name: score_name={kwargs['loss']!r:.80}."
        )
    entry = find_loss(score_name, kwargs)
    if output_is is not None and (output_is not in OUTPUT_IS or not entry.classifies):
        raise LossError(
            f"output_is must be 'scores' or 'probabilities' and is for classification losses only, got {output_is!r} "
            f"for the loss {score_name!r}."
        )
    return entry


def _check_positions(score_name: object, entry: Loss, class_axis: object, ignore_index: object) -> None:
    """Check the types of `class_axis` and `ignore_index`, which a regression loss does not read."""
    for name, value, default in (("class_axis", class_axis, None), ("ignore_index", ignore_index, -100)):
        if value == default:
            continue
        if not entry.classifies:
            nans = " Positions whose label is NaN are ignored." if name == "ignore_index" else ""
            raise LossError(
                f"{name} is for classification losses only, got {value!r:.80} for the loss {score_name!r}. Leave it "
                f"out.{nans}"
            )
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise LossError(
                f"{name} must be an integer, such as {name}={1 if default is None else default}, got {value!r:.80}."
            )


def _may_be_probabilities(model: ir.Model, output: ir.Value) -> bool:
    """Whether an output has several columns that may sum to one, and the graph does not show their kind."""
    scores = scores_behind(output, builder(model).op)
    is_open = scores.link is Link.IDENTITY and not scores.certain
    return is_open and output.is_graph_output() and n_columns(output) not in (None, 1)


def _axis_of_classes(output: ir.Value, class_axis: int | None) -> int | None:
    """Return the class axis of an output of three or more axes; None for an output of two axes.

    Raises
    ------
    LossError
        `class_axis` is missing, or is not an axis of the output.
    """
    n_axes = rank(output) or 0
    if n_axes < 3:
        if class_axis is not None:
            raise LossError(
                f"class_axis={class_axis} applies to outputs with three or more axes, but got {describe(output)}. Set "
                "class_axis=None."
            )
        return None
    if class_axis is None:
        raise LossError(f"The class axis of {describe(output)} is unknown. Set class_axis to the axis of its classes.")
    if class_axis == 0 or not -n_axes < class_axis < n_axes:
        raise LossError(f"class_axis must be from 1 to {n_axes - 1} for {describe(output)}, got {class_axis}.")
    return class_axis % n_axes


def _total(
    op: Op, model: ir.Model, rows: ir.Value, weight_name: str | None, counts: ir.Value | None, *, mean: bool
) -> ir.Value:
    """Return the weighted sum or mean of the losses of the rows, (1, 1); `counts` multiplies the weights."""
    reduce = op.ReduceMean if mean else op.ReduceSum
    if weight_name is None and counts is None:
        return reduce(rows, [0], keepdims=1)
    w = counts if weight_name is None else _added_weight(op, model, rows, weight_name)
    if weight_name is not None and counts is not None:
        w = op.Mul(w, counts)
    total = op.ReduceSum(op.Mul(rows, w), [0], keepdims=1)
    return op.Div(total, op.ReduceSum(w, [0], keepdims=1)) if mean else total


def _added_weight(op: Op, model: ir.Model, rows: ir.Value, weight_name: str) -> ir.Value:
    """Add an input for the sample weights; return it as (n, 1)."""
    # ONNX has no type for "(n,) or (n, 1)"; runtimes do not check the shape of an input declared as a scalar
    weight = ir.Value(name=weight_name, type=ir.TensorType(rows.dtype), shape=ir.Shape([]))  # type: ignore[arg-type]
    model.graph.inputs.append(weight)
    w = op.Reshape(weight, op.Shape(rows))  # one per row, or an error: never broadcast
    w.shape = rows.shape
    return w


def _reserve_names(model: ir.Model, output: ir.Value, names: Mapping[str, str | None]) -> None:
    """Check the names that the user chose, and rename other values of the graph with the same names."""
    visible = {str(v.name): "input" for v in model.graph.inputs} | {str(output.name): "output"}
    chosen: dict[str, str] = {}
    for argument, name in names.items():
        if name is None and argument == "weight_name":
            continue
        if not isinstance(name, str) or not name:
            raise LossError(f"{argument} must be a non-empty string, got {name!r}.")
        if name in visible:
            raise LossError(f"The model already has an {visible[name]} named {name!r}. Choose another {argument}.")
        chosen[argument] = name
    if len(set(chosen.values())) < len(chosen):
        raise LossError(f"The names must differ, got {', '.join(f'{a}={n!r}' for a, n in chosen.items())}.")
    taken = names_in(model.graph) | set(chosen.values())
    for value in values_in(model.graph):
        if value.name in chosen.values():
            value.name = unique_name(str(value.name), taken)
