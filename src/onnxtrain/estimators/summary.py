"""A table of the parts of a fitted estimator: steps, layers, shapes, trained or frozen."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape

import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.attributes import HasNoItems
from onnxtrain.estimators.trained import TrainedModel

_COLUMNS = ("layer", "operator", "weights", "output", "parameters", "trained")


@dataclass(frozen=True)
class Layer:
    """A node with its own weights.

    Attributes
    ----------
    layer : str
        The names of its weights.
    operator : str
    weights, output : str
        The shapes of the weights and of the output.
    parameters : int
        The number of entries of the weights.
    trained : str
        ``"trained"``, ``"frozen"``, or how many of the entries are trained.
    """

    layer: str
    operator: str
    weights: str
    output: str
    parameters: int
    trained: str


@dataclass(frozen=True, repr=False)
class Summary(HasNoItems):
    """The parts of a fitted estimator, printed as text and shown by a notebook as a table.

    Attributes
    ----------
    title : str
    ending : str
        How the last fit ended.
    steps : mapping of str to str
        The library that runs each step, ``"ONNX"`` or ``"scikit-learn"``.
    layers : tuple of Layer
    n_parameters, n_trained : int
    """

    title: str
    ending: str
    steps: Mapping[str, str]
    layers: tuple[Layer, ...]
    n_parameters: int
    n_trained: int

    @property
    def totals(self) -> str:
        """The number of parameters, trained and frozen."""
        frozen = self.n_parameters - self.n_trained
        return f"{self.n_parameters:,} parameters: {self.n_trained:,} trained, {frozen:,} frozen"

    def _rows(self) -> list[tuple[str, ...]]:
        return [tuple(f"{v:,}" if isinstance(v, int) else v for v in asdict(layer).values()) for layer in self.layers]

    def __repr__(self) -> str:
        """Return the table as text."""
        rows = [_COLUMNS, *self._rows()]
        widths = [max(len(row[k]) for row in rows) for k in range(len(_COLUMNS))]
        numeric = _COLUMNS.index("parameters")
        formats = [f"{{:{'>' if k == numeric else '<'}{width}}}" for k, width in enumerate(widths)]
        lines = ["  ".join(formats).format(*row) for row in rows]
        rule = "-" * max(map(len, lines))
        steps = [f"{name}: {by}" for name, by in self.steps.items()]
        table = [line.rstrip() for line in (lines[0], rule, *lines[1:], rule)]
        return "\n".join([self.title, *steps, *table, self.totals, self.ending])

    def _repr_html_(self) -> str:
        """Return the table as HTML."""
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self._rows())
        steps = "".join(f"<li>{escape(name)}: {by}</li>" for name, by in self.steps.items())
        return (
            f'<div class="onnxtrain-summary"><p><b>{escape(self.title)}</b><br>{escape(self.ending)}<br>'
            f"{self.totals}</p><ul>{steps}</ul>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )


def summary_of(title: str, trained: TrainedModel, ending: str) -> Summary:
    """Return the summary of a trained model; `title` describes its estimator, `ending` how its fit ended."""
    read = trained.source.model
    layers = layers_of(graph.reload(read.graph()), read.weights, trained.weights)
    return Summary(
        title=title,
        ending=ending,
        steps=trained.form.runs(trained.source.estimator),
        layers=layers,
        n_parameters=sum(layer.parameters for layer in layers),
        n_trained=sum(w.size for w in trained.weights.values()),
    )


def layers_of(model: ir.Model, weights: Collection[str], trained: Iterable[str]) -> tuple[Layer, ...]:
    """Return the layers of a model, in the order of computation.

    A weight belongs to the first node that combines it with the rows.

    Parameters
    ----------
    model : onnx_ir.Model
    weights : collection of str
        The initializers that are weights.
    trained : iterable of str
    """
    of_rows = graph.dependents(model.graph, [v for v in model.graph.inputs if v.name not in weights])
    made_of: dict[ir.Value, list[ir.Value]] = {v: [v] for v in graph.values_in(model.graph) if v.name in weights}
    missing, trained, found = set(weights), set(trained), []
    for node in model.graph:
        own = [w for x in graph.operands(node) if x is not None for w in made_of.get(x, ())]
        if not any(y in of_rows for y in node.outputs):  # computed from weights only, not yet combined with the rows
            made_of |= dict.fromkeys(node.outputs, own)
        elif own := [w for w in dict.fromkeys(own) if w.name in missing]:
            missing -= {str(w.name) for w in own}
            found.append(_layer(node, own, trained))
    return tuple(found)


def _layer(node: ir.Node, weights: Sequence[ir.Value], trained: set[str]) -> Layer:
    sizes = {str(w.name): math.prod(graph.static_shape(w) or ()) for w in weights}
    moved = sum(n for name, n in sizes.items() if name in trained)
    total = sum(sizes.values())
    state = "trained" if moved == total else "frozen" if not moved else f"{moved:,} trained"
    shapes = ", ".join(_shape(w) for w in weights)
    operator = graph.operator_name(node.op_type, node.domain)
    return Layer(", ".join(sizes), operator, shapes, _shape(node.outputs[0]), total, state)


def _shape(value: ir.Value) -> str:
    if value.shape is None:
        return "?"
    dims = [str(d) if graph.has_name(d) else "?" for d in value.shape]
    if dims and not isinstance(value.shape[0], int):
        dims[0] = "n"  # the batch axis, whatever its name
    return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"
