"""The objective as a graph: the model, its loss, and the inputs for data and weights."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any

import onnx
import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.autodiff.expand import expand_functions
from onnxtrain.cache import Cache
from onnxtrain.loss_helper import add_row_loss
from onnxtrain.losses import find_loss
from onnxtrain.registry import is_of_package
from onnxtrain.training.data import Piece
from onnxtrain.training.peephole import ANYWHERE, ON_CPU, SIGNS, sum_rows_by_a_product

#: The products of a model with its gradient, which has two for each product: one for each operand.
WITH_GRADIENT = 3


@dataclass(frozen=True)
class Objective:
    r"""The function minimised over the rows of a batch.

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
        The inputs that are the same for all rows: learned values that are not trained. They differ between the folds of
        a search, which so can share a graph.
    loss_params : tuple of (name, value)
    penalized : tuple of str
        The weights to which the common penalties l1 and l2 apply.
    classifies : bool
        Whether a loss given as a function is for classes.
    multilabel : bool
        Whether the targets are a multilabel indicator matrix.
    output_is : {"scores", "probabilities"} or None
        The kind of a classifier's output.
    class_axis : int or None
        The axis that labels lack, for an output of three or more axes. There, labels of -1 or NaN do not count.
    class_weight : tuple of float
        The weight of each class for such an output; empty if all are equal.
    """

    model: bytes = field(repr=False)
    output: str
    loss: str | Callable[..., ir.Value] = field(compare=False)
    weights: tuple[str, ...]
    constants: tuple[str, ...] = ()
    loss_params: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    penalized: tuple[str, ...] = ()
    classifies: bool = False
    multilabel: bool = False
    output_is: str | None = None
    class_axis: int | None = None
    class_weight: tuple[float, ...] = ()
    _formula: Hashable = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_formula", self._identity_of_loss())

    def as_of_now(self) -> Objective:
        """Return the objective with the current behaviour of a user's function, which may read globals that changed."""
        return self if isinstance(self._formula, tuple) else replace(self)

    def _identity_of_loss(self) -> Hashable:
        """Return the identity of the loss: its name and parameters, or the graph that a user's function builds."""
        function = find_loss(self.loss, dict(self.loss_params), classifies=self.classifies).function
        if is_ours(function) and all(isinstance(value, (bool, int, float, str)) for _, value in self.loss_params):
            return function, tuple((name, type(value), value) for name, value in self.loss_params)
        g = ObjectiveGraph(self, weighted=False)
        return hashlib.sha256(g.save([(g.unique("losses"), g.losses)])).digest()


def is_ours(part: Any) -> bool:
    """Whether a function or a frozen value is of this package, so that equal ones behave equally; a user's may not."""
    if isinstance(part, (bool, int, float, str, type(None))):
        return True
    if is_dataclass(part) and not isinstance(part, type):
        parts = (getattr(part, item.name) for item in fields(part))
        return is_ours(type(part)) and all(map(is_ours, parts))
    return is_of_package(part)


#: Models in normal form, by their original bytes.
_NORMAL_FORMS: Cache[bytes] = Cache("models in normal form")


def weights_as_inputs(onx: onnx.ModelProto, weights: Sequence[str]) -> bytes:
    """Return, as bytes, a model ready for differentiation, whose last inputs are the initializers `weights`."""
    proto = graph.initializers_as_inputs(onx, weights)
    content = proto.SerializeToString(deterministic=True)
    # models often differ only in the values of their weights
    found = _NORMAL_FORMS.find(content)
    return _NORMAL_FORMS.keep(content, _normal_form(proto, content)) if found is None else found


def _normal_form(proto: onnx.ModelProto, content: bytes) -> bytes:
    """Return a model as :mod:`onnxtrain.graph` writes it, with its functions inlined."""
    expanded = expand_functions(proto)
    if expanded is proto and graph.is_written(proto):
        return content
    return graph.save(graph.load(expanded)).SerializeToString(deterministic=True)


#: Numbers of multiplications, by the bytes of the model.
_COUNTED: Cache[float] = Cache("multiplications of models")


def multiplications(onx: bytes) -> float:
    r"""Return the approximate number of multiplications per row of a model that this package has written.

    The number is :math:`\sqrt{|A| |B| |C|}` summed over the products C = A B, where unknown dimensions count as 1. It
    is exact for matrices, and too small by a factor k for filters of width k.
    """
    found = _COUNTED.find(onx)
    if found is not None:
        return found
    model = onnx.load_model_from_string(onx).graph
    nodes = list(graph.nodes_in(model.node))
    sizes = _sizes_in(model)
    for node in nodes:
        for body in graph.bodies_of(node):
            sizes |= _sizes_in(body)
    products = [(*node.input[:2], node.output[0]) for node in nodes if node.op_type in graph.PRODUCTS]
    return _COUNTED.keep(onx, sum(math.sqrt(math.prod(sizes.get(x, 1) for x in names)) for names in products))


def _sizes_in(model: onnx.GraphProto) -> dict[str, int]:
    """Return the number of elements of each value of a graph, where unknown dimensions count as 1."""
    sizes = {w.name: math.prod(w.dims) for w in model.initializer}
    for value in (*model.input, *model.value_info, *model.output):
        sizes[value.name] = math.prod(d for d in graph.dimensions(value) or () if isinstance(d, int))
    return sizes


@dataclass(frozen=True)
class BatchGraph:
    """A graph on the rows of a batch: the losses of the rows, or their sum and its gradients.

    Attributes
    ----------
    onnx : bytes
    features : mapping of str to str
        The input that takes the rows of each input of the user's model.
    inputs : mapping of str to str
        The names of ``label`` and, with sample weights, ``weight``, if they are read.
    dtype : onnx_ir.DataType
        The floating-point type of the graph and the weights.
    multiplications : float
        The approximate number of multiplications per row.
    fixed_cost : float
        The cost of a run that does not depend on its rows, in multiplications: an optimizer updates all weights.
    """

    onnx: bytes = field(repr=False)
    features: Mapping[str, str]
    inputs: Mapping[str, str]
    dtype: ir.DataType
    multiplications: float
    fixed_cost: float = 0.0

    def feeds(self, rows: Piece) -> dict[str, Any]:
        """Return rows by the names of the inputs that read them; not every loss reads a label."""
        found = {self.features[name]: x for name, x in rows.features.items() if name in self.features}
        by_role = {"label": rows.label, "weight": rows.weight}
        return found | {self.inputs[role]: x for role, x in by_role.items() if role in self.inputs and x is not None}


class OpenGraph:
    """A graph under construction, which can be saved with chosen outputs.

    Attributes
    ----------
    model : onnx_ir.Model
    op : onnxscript builder
    dtype : onnx_ir.DataType
        The default type of its inputs.
    """

    def __init__(self, model: ir.Model, dtype: ir.DataType):
        build = graph.builder(model)
        self.model, self.dtype, self.op, self._names = model, dtype, build.op, build.names

    def add_input(self, name: str, shape: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """Add an input called `name`, with a numeric suffix if the name is already used."""
        return self.op.builder.input(self.unique(name), dtype or self.dtype, shape)

    def unique(self, name: str) -> str:
        """Return `name`, with a numeric suffix if the graph already has a value of this name."""
        return graph.unique_name(name, self._names)

    def save(self, outputs: Sequence[tuple[str, ir.Value]]) -> bytes:
        """Return the model with the given outputs and the inputs that they need."""
        needed = graph.ancestors([value for _, value in outputs])
        inputs = [v for v in self.model.graph.inputs if v in needed]
        self.model.graph.inputs[:] = inputs
        return graph.save(self.model, outputs=outputs).SerializeToString()


class ObjectiveGraph(OpenGraph):
    """The graph of the losses of the rows, to which a step or an evaluation is appended.

    Attributes
    ----------
    weights : list of onnx_ir.Value
        The trained weights, in the order of the objective.
    features : dict of str to onnx_ir.Value
        The input that takes the rows of each input of the user's model on which the loss depends.
    constants : list of onnx_ir.Value
        The values of ``objective.constants`` on which the loss depends.
    label : onnx_ir.Value
    losses : onnx_ir.Value
        The loss of each row, (n, 1).
    multiplications : float
        The approximate number of multiplications per row in the products of the model.
    weight : onnx_ir.Value or None
        The sample weights, (n, 1), if present.
    """

    def __init__(self, objective: Objective, *, weighted: bool, products: ir.DataType | None = None):
        model = graph.reload(objective.model)
        if products is not None:
            graph.products_in(model, products)
        inputs = {str(v.name): v for v in model.graph.inputs}
        self.multiplications = multiplications(objective.model)
        self.weights = [inputs.pop(name) for name in objective.weights]
        constants = [inputs.pop(name) for name in objective.constants]
        output = graph.find(model.graph.outputs, objective.output, "output")
        self.label, self.losses = add_row_loss(
            model,
            output,
            objective.loss,
            dict(objective.loss_params),
            classifies=objective.classifies,
            multilabel=objective.multilabel,
            output_is=objective.output_is,
            class_axis=objective.class_axis,
            class_weight=objective.class_weight,
        )
        super().__init__(model, self.losses.dtype or ir.DataType.FLOAT)
        needed = graph.ancestors([self.losses])
        self.features = {name: v for name, v in inputs.items() if v in needed}
        self.constants = [v for v in constants if v in needed]
        self.weight = self.add_input("sample_weight", self.losses.shape) if weighted else None

    def batch_graph(self, outputs: Sequence[tuple[str, ir.Value]], times: int = 1) -> BatchGraph:
        """Return the graph of the given outputs on the rows of a batch, which computes the products `times` times."""
        onx = self.save(outputs)
        read = set(self.model.graph.inputs)
        features = named({name: x for name, x in self.features.items() if x in read})
        roles = {"label": self.label, "weight": self.weight}
        inputs = named({role: x for role, x in roles.items() if x in read})
        return BatchGraph(onx, features, inputs, self.dtype, times * self.multiplications)


def rewrite_locally(
    op: graph.Op,
    within: ir.Graph,
    column: ir.Value,
    values: Sequence[ir.Value] = (),
    *,
    rows: ir.Value | None = None,
    ones: ir.Value | None = None,
    cpu_kernels: bool = False,
) -> list[ir.Value]:
    """Apply the peephole rewritings to a graph, in place; return the replacements of `values`.

    Parameters
    ----------
    op : onnxscript builder
    within : onnx_ir.Graph
    column : onnx_ir.Value
        A value of shape (n, 1), n the rows of the batch.
    values : sequence of onnx_ir.Value
        Values that will become outputs of the graph.
    rows : onnx_ir.Value, optional
        An input with the first axis of ``column``; by default ``column`` itself. If ``column`` depended on a sum over
        rows, ones of its length would make it depend on itself.
    ones : onnx_ir.Value, optional
        A value of ones of shape (1, n); if None, the graph computes it.
    cpu_kernels : bool
        Whether to also use the rewritings that pay only with CPU kernels.
    """
    if ones is None:
        length = op.Shape(column if rows is None else rows, start=0, end=1)
        filled = op.ConstantOfShape(length, value=graph.tensor([1.0], column.dtype))
        filled.type, filled.shape = column.type, ir.Shape(column.shape[:1])  # type: ignore[index]
        ones = op.Reshape(filled, op.initializer(graph.tensor([1, -1], name="row")))
    sums = partial(sum_rows_by_a_product, column=column, ones=ones)
    for inner in within.subgraphs() if cpu_kernels else ():
        graph.rewrite_nodes(graph.inner_builder(op, inner), inner, SIGNS)
    table = graph.Rewritings(ANYWHERE, {"ReduceSum": [sums]}, *((ON_CPU, SIGNS) if cpu_kernels else ()))
    return graph.rewrite_nodes(op, within, table, values)


def named(values: Mapping[str, ir.Value | None]) -> dict[str, str]:
    """Return the names of the values that are present, by role."""
    return {role: str(value.name) for role, value in values.items() if value is not None}
