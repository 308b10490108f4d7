"""A loss, and penalties on weights, added to a model."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph as graphs
from onnxtrain.errors import LossError
from onnxtrain.graph import ModelLike, builder, describe, is_float, names_in, rank, unique_name
from onnxtrain.heads import Link, Scores, choose_output, n_columns, scores_behind
from onnxtrain.losses import Loss, Prediction, find_loss, loss_kind, row_loss
from onnxtrain.losses.table import softplus
from onnxtrain.registry import did_you_mean

__all__ = [
    "add_loss_output",
    "add_penalty",
    "add_row_loss",
    "get_train_initializer",
    "loss_kind",
    "penalty_loss_onnx",
]

#: A mean or a probability that is not behind an Exp, Sigmoid or Softmax is kept this far from 0.
_EPS = 1e-6


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
        returns one value a row (n, 1).
    loss_name, label_name : str
        Names of the output and of the input that are added. The label is int64 (n, 1), the index
        of the class, for the loss of a classifier, else of the type and shape of the output.
    weight_name : str, optional
        Adds an input for weights, one a row: (n,) or (n, 1).
    penalty : mapping, optional
        ``{name: {"l1": a, "l2": b}}`` or ``{name: b}``, which is the same as ``{name: {"l2": b}}``;
        names of initializers or of inputs.
    output_index : int or str, optional
        The prediction, by position or by name. None: the only output of floats.
    **kwargs
        Parameters of the loss.

    Returns
    -------
    onnx.ModelProto
        Its outputs are the loss (1, 1) and the chosen output. What else in the model is called
        `loss_name`, `label_name` or `weight_name`, initializers included, gets a number behind its name.

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
    output = choose_output(model, output_index)
    output_name = str(output.name)
    penalties = _find_penalties(model, penalty or {})
    _reserve_names(model, output, {"loss_name": loss_name, "label_name": label_name, "weight_name": weight_name})
    label, rows = add_row_loss(model, output, score_name, kwargs, label_name=label_name)
    op = builder(model).op
    total = _total(op, model, rows, weight_name, mean=label.dtype is ir.DataType.INT64)
    for weight, (l1, l2) in penalties.items():
        added = add_penalty(op, weight, l1, l2)
        total = op.Add(total, added if added.dtype == total.dtype else op.Cast(added, to=total.dtype))
    return graphs.save(model, outputs=[(loss_name, total), (output_name, output)])


def penalty_loss_onnx(
    name: str,
    dtype: Any,
    l1: float | None = None,
    l2: float | None = None,
    existing_names: Iterable[str] | None = None,
) -> tuple[list[onnx.TensorProto], list[onnx.NodeProto]]:
    r"""Return the initializers and nodes of :math:`\lambda_1 \sum |w| + \lambda_2 \sum w^2`, of shape ().

    Parameters
    ----------
    name : str
        Name of w.
    dtype : numpy dtype or int
        Its type; an int is one of :class:`onnx.TensorProto`.
    l1, l2 : float, optional
        At least one is given.
    existing_names : iterable of str, optional
        Names not to use again; a set is added to.

    Returns
    -------
    initializers : list of onnx.TensorProto
    nodes : list of onnx.NodeProto
        The output of the last one is the penalty.

    Raises
    ------
    LossError
        Neither factor is positive, or one is negative.

    Examples
    --------
    >>> initializers, nodes = penalty_loss_onnx("W", np.float32, l2=0.5)
    >>> [node.op_type for node in nodes]
    ['ReduceSumSquare', 'Mul']
    """
    factors = _check_factors(name, {"l1": 0 if l1 is None else l1, "l2": 0 if l2 is None else l2})
    if factors == (0, 0):
        raise LossError(f"The penalty on {name!r} needs a positive l1 or l2.")
    element = ir.DataType(dtype) if isinstance(dtype, int) else ir.DataType.from_numpy(np.dtype(dtype))
    w = ir.Value(name=name, type=ir.TensorType(element))
    graph = ir.Graph([w], [], nodes=[], opset_imports={"": graphs.OPSET})
    add_penalty(graphs.Builder(graph).op, w, *factors)
    taken = existing_names if isinstance(existing_names, set) else set(existing_names or ())
    taken.add(name)
    for value in (*graph.initializers.values(), *(y for node in graph for y in node.outputs)):
        value.name = unique_name(f"{name}_penalty", taken)
    initializers = [onnx.numpy_helper.from_array(v.const_value.numpy(), k) for k, v in graph.initializers.items()]
    return initializers, [ir.to_proto(node) for node in graph]


def get_train_initializer(onx: ModelLike) -> dict[str, tuple[np.ndarray, onnx.TensorProto]]:
    """Return the initializers that can be trained, those of real numbers: their array and the tensor.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path

    Returns
    -------
    dict of str to (array, onnx.TensorProto)
        Types float16, bfloat16, float and double, in the order of the model.
    """
    return {
        tensor.name: (onnx.numpy_helper.to_array(tensor), tensor)
        for tensor in graphs.read(onx).graph.initializer
        if tensor.data_type in graphs.FLOATS
    }


def add_row_loss(
    model: ir.Model,
    output: ir.Value,
    loss: str | Callable[..., ir.Value],
    loss_params: Mapping[str, Any] | None = None,
    *,
    label_name: str = "label",
    classifies: bool = False,
) -> tuple[ir.Value, ir.Value]:
    """Append, in place, an input for the label and the loss of each row.

    Parameters
    ----------
    model : onnx_ir.Model
        Gets one input more and the nodes; its outputs stay what they are.
    output : onnx_ir.Value
        The prediction, (n,), (n, 1) or (n, k).
    loss : str or callable
        A name of the table, or ``function(op, y_true, y_pred, **loss_params)``.
    loss_params : mapping, optional
    label_name : str
        A number is put behind it where the name is taken.
    classifies : bool
        For a loss that is not in the table: it is a classifier's. It then receives
        the index of the class and the scores, as ``log`` does.

    Returns
    -------
    label : onnx_ir.Value
        int64 (n, 1) for classes, else of the type and the shape (n, k) of the prediction.
    rows : onnx_ir.Value
        (n, 1).

    Raises
    ------
    LossError
        The loss or one of its parameters is unknown, or does not fit the output.
    """
    entry = find_loss(loss, loss_params, classifies=classifies)
    op = builder(model).op
    y_pred = _prediction(op, model, output, entry, (loss_params or {}).get("eps", _EPS))
    n, k = y_pred.shape  # type: ignore[misc]
    label = ir.Value(
        name=unique_name(label_name, names_in(model.graph)),
        type=ir.TensorType(ir.DataType.INT64 if entry.classifies else y_pred.dtype),  # type: ignore[arg-type]
        shape=ir.Shape([n, 1 if entry.classifies else k]),
    )
    model.graph.inputs.append(label)
    return label, row_loss(op, loss, label, y_pred, loss_params or {})


def add_penalty(op: Any, weight: ir.Value, l1: ir.Value | float, l2: ir.Value | float) -> ir.Value:
    r"""Append :math:`\lambda_1 \sum |w| + \lambda_2 \sum w^2`, a number of shape ().

    A factor that is the number 0 adds no node, and 0 is returned where both are; one that is a value of the
    graph, of shape () and of the type of the weight, is known at run time only.
    """
    terms = []
    if not _is_zero(l1):
        terms.append(op.Mul(op.ReduceSum(op.Abs(weight), keepdims=0), l1))
    if not _is_zero(l2):
        terms.append(op.Mul(op.ReduceSumSquare(weight, keepdims=0), l2))
    if not terms:
        return op.initializer(ir.tensor(0.0, dtype=weight.dtype, name="no_penalty"))
    return terms[0] if len(terms) == 1 else op.Add(*terms)


def _is_zero(factor: ir.Value | float) -> bool:
    return not isinstance(factor, ir.Value) and factor == 0


# ------------------------------------------------------------ loss of a batch


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
                value.name = unique_name(value.name, taken)


def _find_penalties(
    model: ir.Model, penalty: Mapping[str, Mapping[str, float] | float]
) -> dict[ir.Value, tuple[float, float]]:
    known = {str(v.name): v for v in (*model.graph.inputs, *model.graph.initializers.values()) if is_float(v)}
    found = {}
    for name, factors in penalty.items():
        if name not in known:
            raise LossError(
                f"The penalty is on {name!r}, which is neither an initializer nor an input of floats. "
                f"{did_you_mean(name, known)}"
            )
        found[known[name]] = _check_factors(name, factors if isinstance(factors, Mapping) else {"l2": factors})
    return found


def _check_factors(name: str, factors: Mapping[str, Any]) -> tuple[float, float]:
    for key, value in factors.items():
        if key not in ("l1", "l2"):
            raise LossError(f"The penalty on {name!r} has a factor {key!r}. {did_you_mean(key, ('l1', 'l2'))}")
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not real or not 0 <= value < float("inf"):
            raise LossError(f"{key} of the penalty on {name!r} must be a finite number >= 0, got {value!r}.")
    return float(factors.get("l1", 0)), float(factors.get("l2", 0))


# --------------------------------------------------------------- prediction


def _prediction(op: Any, model: ir.Model, output: ir.Value, entry: Loss, eps: float) -> ir.Value:
    """Return what the loss wants to know of the output, (n, k), its rows named."""
    if not is_float(output):
        raise LossError(f"A loss needs an output of floats, got {describe(output)}.")
    if rank(output) not in (1, 2):
        raise LossError(f"A loss needs an output (n,), (n, 1) or (n, k), got {describe(output)}.")
    if entry.prediction is Prediction.OUTPUT:
        y_pred = output
    elif entry.prediction is Prediction.LOG_MEAN:
        y_pred = _log_mean(op, output)
    else:
        y_pred = _class_scores(op, output, entry, eps)
    _name_rows(model, y_pred)
    return y_pred if rank(y_pred) == 2 else op.Unsqueeze(y_pred, [1])


def _name_rows(model: ir.Model, value: ir.Value) -> None:
    """Give the rows of a value the name that those of the input have, where they have none.

    The gradient relies on it: what has the same name has the same length.
    """
    n, *rest = value.shape  # type: ignore[misc]
    if not _is_named(n):
        first = (v.shape[0] for v in model.graph.inputs if v.shape)
        value.shape = ir.Shape([next((d for d in first if _is_named(d)), ir.SymbolicDim("rows")), *rest])


def _is_named(dim: int | ir.SymbolicDim) -> bool:
    """Whether a dimension is a number, or has a name that is not one made up by shape inference."""
    return isinstance(dim, int) or dim.value is not None and not dim.value.startswith("unk__")


def _log_mean(op: Any, output: ir.Value) -> ir.Value:
    scores = scores_behind(output)
    if scores.link is Link.EXP:
        z = scores.value
        return z if z.dtype == output.dtype else op.Cast(z, to=output.dtype)
    return op.Log(op.Clip(output, _EPS))


def _class_scores(op: Any, output: ir.Value, entry: Loss, eps: float) -> ir.Value:
    """Return decision values (n, 1) of two classes, or one score a class (n, K)."""
    if n_columns(output) is None:
        raise LossError(f"The number of classes is not known: {describe(output)}.")
    scores = scores_behind(output, op)
    if entry.prediction is Prediction.LIKELIHOOD:
        return _log_probabilities(op, scores, eps)
    if scores.link is Link.PROBABILITY:
        raise LossError(
            f"{describe(output)} holds probabilities that do not come from a Softmax or Sigmoid: "
            f"there are no scores for this loss. Use 'log'."
        )
    return scores.value


def _log_probabilities(op: Any, scores: Scores, eps: float) -> ir.Value:
    """Return values whose Sigmoid (n, 1) or Softmax (n, K) are the probabilities."""
    s = scores.value
    if scores.link is Link.NORMALIZED_SIGMOID:
        return op.Neg(softplus(op, op.Neg(s)))
    if scores.link is Link.PROBABILITY:
        p = op.Clip(s, eps, 1 - eps)
        return op.Log(p) if n_columns(s) != 1 else op.Sub(op.Log(p), op.Log(op.Sub(1.0, p)))
    return s
