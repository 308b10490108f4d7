"""What is minimised, as a graph: the model, its loss, and the inputs that data and weights come through."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import onnx
import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.autodiff.engine import operands
from onnxtrain.autodiff.expand import expand_functions
from onnxtrain.loss_helper import add_row_loss


@dataclass(frozen=True)
class Objective:
    r"""What is minimised over the rows of a batch.

    .. math::

        \frac{\sum_i w_i\, \ell(y_i, f(x_i))}{\sum_i w_i}
        + \sum_W \left(\lambda_1 \lVert W \rVert_1 + \lambda_2 \lVert W \rVert_2^2\right)

    Attributes
    ----------
    model : bytes
        An ONNX model whose trained weights are inputs (see :func:`weights_as_inputs`),
        so that two models of the same structure compare equal.
    output : str
        The output :math:`f(x)` that enters the loss.
    loss : str or callable
    weights : tuple of str
        The inputs that are trained.
    constants : tuple of str
        The inputs that are the same for all rows: learned numbers that are not trained, so that
        folds of a search, which learn others, share a graph.
    loss_params : tuple of (name, value)
    penalized : tuple of str
        The weights under the penalties common to all, l1 and l2.
    classifies : bool
        A loss that is a function of the user is a classifier's.
    multilabel : bool
        Columns of the output are labels of which a row has any number.
    """

    model: bytes = field(repr=False)
    output: str
    loss: str | Callable[..., ir.Value]
    weights: tuple[str, ...]
    constants: tuple[str, ...] = ()
    loss_params: tuple[tuple[str, Any], ...] = ()
    penalized: tuple[str, ...] = ()
    classifies: bool = False
    multilabel: bool = False


def weights_as_inputs(onx: onnx.ModelProto, weights: Sequence[str]) -> bytes:
    """Return, as bytes, a model ready to be differentiated: the initializers `weights` are its last inputs."""
    return _normal_form(initializers_as_inputs(onx, weights).SerializeToString(deterministic=True))


def initializers_as_inputs(onx: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return a model whose initializers `names` are inputs, behind the inputs it has."""
    proto = onnx.ModelProto()
    proto.CopyFrom(onx)
    inputs = {value.name for value in proto.graph.input}
    values = {tensor.name: tensor for tensor in onx.graph.initializer}
    kept = [tensor for tensor in onx.graph.initializer if tensor.name not in set(names)]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    for name in names:
        if name not in inputs:
            tensor = values[name]
            proto.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    return proto


@lru_cache(maxsize=64)
def _normal_form(onx: bytes) -> bytes:
    """Return a model as :mod:`onnxtrain.graph` writes it, its functions expanded.

    The same structure often comes with other weights.
    """
    proto = onnx.load_model_from_string(onx)
    expanded = expand_functions(proto)
    if expanded is proto and graph.is_written(proto):
        return onx
    return graph.save(graph.load(expanded)).SerializeToString(deterministic=True)


@lru_cache(maxsize=64)
def multiplications(onx: bytes) -> float:
    """Return how many a model does for one row, about: see :attr:`ObjectiveGraph.multiplications`."""
    return _multiplications(graph.reload(onx).graph)


class ObjectiveGraph:
    """The graph of the losses of the rows, on which a step or an evaluation is built.

    Attributes
    ----------
    model : onnx_ir.Model
    op : onnxscript builder
    weights : list of onnx_ir.Value
        What is trained, in the order of the objective.
    features : list of onnx_ir.Value
        The inputs of the user's model that the loss depends on.
    constants : list of onnx_ir.Value
        Those of ``objective.constants`` that it depends on.
    label : onnx_ir.Value
    losses : onnx_ir.Value
        One loss a row, (n, 1).
    multiplications : float
        Of the products of the model for one row, about.
    weight : onnx_ir.Value or None
        The weights of the rows, (n, 1), where there are any.
    """

    def __init__(self, objective: Objective, *, weighted: bool, products: ir.DataType | None = None):
        self.model = graph.reload(objective.model)
        if products is not None:
            graph.products_in(self.model, products)
        inputs = {str(v.name): v for v in self.model.graph.inputs}
        self.multiplications = _multiplications(self.model.graph)
        self.weights = [inputs.pop(name) for name in objective.weights]
        constants = [inputs.pop(name) for name in objective.constants]
        output = graph.find(self.model.graph.outputs, objective.output, "output")
        self.label, self.losses = add_row_loss(
            self.model,
            output,
            objective.loss,
            dict(objective.loss_params),
            classifies=objective.classifies,
            multilabel=objective.multilabel,
        )
        build = graph.builder(self.model)
        self.op, self._names = build.op, build.names
        needed = _ancestors([self.losses])
        self.features = [v for v in inputs.values() if v in needed]
        self.constants = [v for v in constants if v in needed]
        self.weight = self.add_input("sample_weight", self.losses.shape) if weighted else None

    @property
    def dtype(self) -> ir.DataType:
        """The type of the losses, and of all that is real."""
        return self.losses.dtype or ir.DataType.FLOAT

    @property
    def data(self) -> list[ir.Value]:
        """The inputs with one entry a row."""
        return [*self.features, self.label, *([self.weight] if self.weight is not None else [])]

    def add_input(self, name: str, shape: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """Add an input called `name`, or nearly so where the name is taken."""
        return self.op.builder.input(self.unique(name), dtype or self.dtype, shape)

    def unique(self, name: str) -> str:
        """Return `name`, with a number behind it where the graph has it already."""
        return graph.unique_name(name, self._names)

    def save(self, outputs: Sequence[tuple[str, ir.Value]]) -> bytes:
        """Return the model with these outputs and the inputs they need."""
        needed = _ancestors(value for _, value in outputs)
        inputs = [v for v in self.model.graph.inputs if v in needed]
        self.model.graph.inputs[:] = inputs
        return graph.save(self.model, outputs=outputs).SerializeToString()


def _multiplications(model: ir.Graph) -> float:
    r"""Return :math:`\sqrt{|A| |B| |C|}` summed over the products C = A B of a graph, unknown dimensions taken as 1.

    That is exact for matrices, and for filters of width k too small by k.
    """
    products = [node for node in model.all_nodes() if node.op_type in graph.PRODUCTS]
    return sum(math.sqrt(_size(n.inputs[0]) * _size(n.inputs[1]) * _size(n.outputs[0])) for n in products)


def _size(value: ir.Value | None) -> int:
    shape = () if value is None or value.shape is None else value.shape
    return math.prod(d for d in shape if isinstance(d, int))


def _ancestors(values: Iterable[ir.Value]) -> set[ir.Value]:
    """Return what some values are computed from, themselves included."""
    found = set(values)
    todo = list(found)
    while todo:
        node = todo.pop().producer()
        for x in operands(node) if node is not None else ():
            if x is not None and x not in found:
                found.add(x)
                todo.append(x)
    return found
