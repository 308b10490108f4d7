"""The parts of a model: the table of the layers of a fitted estimator, the list of the weights that can be trained."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from types import MappingProxyType

import numpy as np
import onnx
import onnx_ir as ir
from sklearn.utils.validation import check_is_fitted

from onnxtrain import graph
from onnxtrain.arguments import lists_its_arguments
from onnxtrain.attributes import HasNoItems
from onnxtrain.convert import Binding, Conversion, convert
from onnxtrain.convert.merged import with_own_copies
from onnxtrain.errors import ConversionError, ParameterError, as_model_error, printable
from onnxtrain.estimators.containers import place_in
from onnxtrain.estimators.given_model import check_source
from onnxtrain.estimators.protocols import ArrayLike, Estimator, HasShape, Model, is_onnx
from onnxtrain.estimators.row_shapes import check_features
from onnxtrain.estimators.source import Source, rewritten
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.training.model import list_weights
from onnxtrain.training.parameters import Role, roles_by_exporter
from onnxtrain.training.weights import Weight

_NO_WEIGHTS = "This %(name)s instance is not fitted yet, so it has no weights. Pass it after its fit: model.fit(X, y)."

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

    _remedies = MappingProxyType(
        dict.fromkeys(("to_frame", "to_dataframe", "to_pandas", "as_frame"), "Use pandas.DataFrame(summary.layers).")
    )

    @property
    def totals(self) -> str:
        """The number of parameters, trained and frozen."""
        frozen = self.n_parameters - self.n_trained
        return f"{self.n_parameters:,} parameters: {self.n_trained:,} trained, {frozen:,} frozen"

    def _rows(self) -> list[tuple[str, ...]]:
        return [tuple(map(_cell, asdict(layer).values())) for layer in self.layers]

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


def _cell(value: int | str) -> str:
    """Return an entry of the table on one line; names in a model can hold any character."""
    return f"{value:,}" if isinstance(value, int) else printable(value).replace("\n", "\\n")


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


# --------------------------------------------- the weights that can be trained


@lists_its_arguments
def trainable_weights(
    model: Model | Conversion, X: ArrayLike | None = None, *, output: str | None = None
) -> list[Weight]:
    """Return the weights that can be trained, in the order in which the model uses them.

    `weights_to_train` accepts their names, patterns of names, and steps.

    Parameters
    ----------
    model : fitted estimator, or ONNX model
        A scikit-learn estimator or pipeline, an :class:`~onnxtrain.OrtGradientRegressor` or
        :class:`~onnxtrain.OrtGradientClassifier`, an ``onnx.ModelProto``, its bytes or a path. For an ONNX model, the
        weights are all floating-point initializers with respect to which an output may have a nonzero derivative.
    X : DataFrame, optional
        Rows, for an estimator that selects columns by name. Not needed if all columns are numeric.
    output : str, optional
        Only weights on which this output depends are returned.

    Returns
    -------
    list of Weight
        Each with ``name``, ``step`` of the pipeline, ``shape``, ``size`` and ``kind`` (``"coefficient"``,
        ``"intercept"``, ``"scale"``, ``"leaf"``, ...; for an ONNX model, ``"weight"``, or ``"buffer"`` for values that
        are trained only if `weights_to_train` names them: statistics of BatchNormalization and of preprocessing, masks,
        position tables, scalars of formulas).

    Raises
    ------
    ConversionError
        The estimator cannot be converted.
    NotFittedError
        The estimator has no weights yet.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from onnxtrain import trainable_weights
    >>> model = make_pipeline(StandardScaler(), LogisticRegression()).fit(*load_iris(return_X_y=True))
    >>> for weight in trainable_weights(model):
    ...     print(weight.name, weight.shape, weight.kind)
    standardscaler.mean (4,) mean
    standardscaler.scale (4,) scale
    logisticregression.coef (4, 3) coefficient
    logisticregression.intercept (3,) intercept
    """
    if isinstance(model, Conversion):
        return _bound(model.onnx, model.bindings, output)
    if hasattr(type(model), "get_trained_onnx"):  # an estimator of this package
        check_is_fitted(model)
        return _of_source(vars(model)["_trained"].source, output)
    if (place := place_in(model)) is not None:
        raise ParameterError(f"trainable_weights takes no {type(model).__name__}. Pass {place}.")
    check_source(model)
    if isinstance(X, str):
        raise ParameterError(
            f"X must be rows, got {X!r:.80}. trainable_weights lists all weights, and weights_to_train={X!r:.80} of "
            "the estimator selects some by a pattern."
        )
    if is_onnx(model):
        onx = graph.read(model)
        with as_model_error("The parameters of the model cannot be found"):
            roles = roles_by_exporter(with_own_copies(onx))
        return list_weights(rewritten(onx), output, roles)
    check_is_fitted(model, msg=_NO_WEIGHTS)
    if isinstance(X, HasShape) and len(X.shape) == 2:
        check_features(X, (None, getattr(model, "n_features_in_", 0) or None), f"{type(model).__name__} takes")
    try:
        converted = convert(model, _a_row_for(model) if X is None else X)
    except ConversionError as e:
        if X is not None:
            raise
        of_row = "Without X, a row of zeros is converted. For columns of text, pass rows: trainable_weights(model, X)."
        raise ConversionError(e.found, f"{e.remedy} {of_row}".lstrip()) from e
    return trainable_weights(converted, output=output)


def _of_source(source: Source, output: str | None) -> list[Weight]:
    """Return the weights of a model that an estimator of this package has trained."""
    model = source.model
    if source.bindings:
        return _bound(model.onnx, source.bindings, output)
    roles = {name: Role.PARAMETER if name in model.default else Role.BUFFER for name in model.weights}
    return list_weights(model.onnx, output or model.output, roles)


def _a_row_for(model: Estimator) -> np.ndarray:
    """Return a row of zeros with as many columns as an estimator takes."""
    if not getattr(model, "n_features_in_", 0):  # copies of CatBoost's models have 0
        raise ParameterError(f"{type(model).__name__} does not say how many columns it takes. Pass X.")
    return np.zeros((1, model.n_features_in_))


def _bound(onx: onnx.ModelProto | bytes, bindings: Sequence[Binding], output: str | None) -> list[Weight]:
    """Return the learned attributes that are weights of a graph."""
    names = {w.name for w in list_weights(onx, output, {})}
    return [Weight(b.name, b.step, b.shape, b.kind) for b in bindings if b.name in names]
