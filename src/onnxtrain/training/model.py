"""The trainable form of a user's model: an ONNX model, an output and weights."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import ModelProto

from onnxtrain import graph
from onnxtrain.autodiff import blocking
from onnxtrain.cache import LIGHT, Cache
from onnxtrain.errors import ModelError, WeightError
from onnxtrain.losses.link import Link, Scores, normalized_sigmoids, scores_behind, skip
from onnxtrain.losses.outputs import Columns, Layout, choose_output, find_columns, join_labels
from onnxtrain.losses.ranges import before_normalization
from onnxtrain.training.objective import weights_as_inputs
from onnxtrain.training.parameters import Role, multiplies, role_of, trainable
from onnxtrain.training.weights import Weight

DTYPES = {"float32": ir.DataType.FLOAT, "float64": ir.DataType.DOUBLE}


@dataclass(frozen=True)
class TrainableModel:
    """A model of ai.onnx operators, and the roles of its values.

    Attributes
    ----------
    onnx : bytes
        The graph; its outputs are the outputs of the user's model, then the scores if they are not among these.
    outputs : tuple of str
        The outputs of the user's model.
    output : str
        The output that enters the loss; for an output of labels, the value from which the labels are computed.
    scores : str or None
        The operand of the Sigmoid or Softmax that computes ``output``, or ``output`` itself.
    link : Link
        How ``output`` follows from ``scores``.
    width, n_scores : int
        The number of columns of ``output`` and of ``scores``; 0 if unknown from the graph.
    features : mapping of str to numpy dtype
        The inputs.
    shapes : mapping of str to tuple
        The shapes of the inputs, None for an unknown dimension, rows first.
    classes : ndarray or None
        The labels that the model itself returns, by column.
    weights : tuple of str
        The weights that may be trained.
    default : tuple of str
        The weights that are trained by default: for an estimator, the weights of the predictor; for an ONNX model, the
        parameters, not the buffers.
    penalized : tuple of str
        The multiplicative weights, to which penalties apply; intercepts are not penalized.
    learned : tuple of str
        Initializers that are learned attributes of an estimator. Fits of one estimator differ only in them. Those that
        are not trained are inputs of the graphs, so that all fits share the graphs.
    certain : bool
        Whether the graph proves ``link``; otherwise rows must confirm it.
    low_rank : tuple
        The low-rank factors of weights, as the fields of :class:`~onnxtrain.convert.low_rank.LowRank`.
    n_axes : int
        The number of axes of ``output``, 2 if unknown from the graph.
    class_axis : int or None
        The axis that labels lack if the output has three or more axes; None: labels have the shape of the output.
    batchwise : bool
        Whether a condition that is computed from the rows chooses for the whole batch, by an If or a Where. The result
        for a row may then depend on the number of rows, so that ``predict`` neither pads nor cuts them.
    held : mapping of str to ndarray
        Large weights of an ONNX model, which ``onnx`` does not contain, by the keys by which ``onnx`` refers to them.
    proto : onnx.ModelProto or None
        The parsed ``onnx``, which must not be changed; None for a large model and after unpickling.
    """

    onnx: bytes = field(repr=False)
    outputs: tuple[str, ...]
    output: str
    scores: str | None
    link: Link
    width: int
    n_scores: int
    features: Mapping[str, np.dtype]
    shapes: Mapping[str, tuple[int | None, ...]]
    classes: np.ndarray | None
    weights: tuple[str, ...]
    default: tuple[str, ...]
    penalized: tuple[str, ...]
    learned: tuple[str, ...] = ()
    certain: bool = True
    low_rank: tuple[tuple[str, str, str, float, bool], ...] = ()
    n_axes: int = 2
    class_axis: int | None = None
    batchwise: bool = False
    held: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    proto: ModelProto | None = field(default=None, repr=False, compare=False)

    @property
    def positional(self) -> bool:
        """Whether a row of the output has positions."""
        return self.n_axes > 2

    @property
    def layout(self) -> Layout:
        """The axes of the output."""
        return Layout(self.n_axes, self.class_axis)

    def with_graph(self, proto: ModelProto) -> TrainableModel:
        """Return the same model with another graph, for example with other weights."""
        return replace(self, **_graph(proto))

    def graph(self) -> ModelProto:
        """Return the graph, which must not be changed."""
        return onnx.load_model_from_string(self.onnx) if self.proto is None else self.proto

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for pickling: arrays, scalars and strings, whose types skops trusts."""
        features = {name: dtype.str for name, dtype in self.features.items()}
        state = vars(self) | {"link": self.link.value, "features": features}
        del state["proto"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        features = {name: np.dtype(text) for name, text in state["features"].items()}
        vars(self).update({"held": {}} | state, link=Link(state["link"]), features=features, proto=None)
        graph.hold(self.held)


@dataclass(frozen=True)
class Reading:
    """How the output of a model is read.

    Attributes
    ----------
    dtype : {"float32", "float64"}
    output : int, str or None
        The output that enters the loss.
    n_labels : int
        The number of labels for multilabel targets.
    labels : bool
        As for :func:`~onnxtrain.losses.outputs.choose_output`; only for ONNX models.
    output_is : {"scores", "probabilities"} or None
        The kind of the output as the user declares it.
    target : tuple of int or None
        The shape of a row of targets with positions; None for other targets.
    class_axis : int or None
        The axis of the output that such labels lack, as the user declares it.
    """

    dtype: str
    output: int | str | None = None
    n_labels: int = 0
    labels: bool = False
    output_is: str | None = None
    target: tuple[int, ...] | None = None
    class_axis: int | None = None

    def needs_rows(self, model: TrainableModel) -> bool:
        """Whether rows must show the width or the kind of the output, or verify the kind that the user declared."""
        is_open = not model.certain or (self.output_is == "probabilities" and model.link is Link.PROBABILITY)
        return not model.width or (self.labels and is_open)


def _graph(proto: onnx.ModelProto) -> dict[str, Any]:
    content = proto.SerializeToString(deterministic=True)
    return {"onnx": content, "proto": proto if len(content) <= LIGHT else None}


@graph.as_model_error("The model cannot be trained")
def read_model(
    onx: onnx.ModelProto | bytes,
    reading: Reading,
    *,
    roles: Mapping[str, Role] | None = None,
    default: Container[str] | None = None,
    converted: bool = False,
) -> TrainableModel:
    """Return a model of ai.onnx operators in trainable form.

    Parameters
    ----------
    onx : onnx.ModelProto or bytes
    reading : Reading
    roles : mapping of str to Role, optional
        The roles of initializers that the exporter recorded; other roles are guessed.
    default : container of str, optional
        The weights that are trained by default; if None, the parameters.
    converted : bool
        Whether the model was an estimator. Its probabilities are then computed without underflow; those of a user's own
        graph are unchanged.

    Raises
    ------
    DataError
        The labels do not fit the axes of the output.
    ModelError
        The model cannot be read, it has several outputs and `output` is None, or it chooses one class per row
        for multilabel targets.
    WeightError
        There is no weight between the inputs and the output.
    """
    model = graph.reload(onx)
    graph.cast_floats(model, DTYPES[reading.dtype])
    outputs = _names(model.graph.outputs)
    op = graph.builder(model).op
    chosen = _choose(model, op, reading)
    columns = _columns_of(chosen, reading)
    behind = scores_behind(chosen, op, columns.class_axis).said(chosen, reading.output_is)
    weights = _weights_of(model, (chosen, behind))
    if not weights:
        raise _no_weights(model, chosen, converted=converted)
    if default is None:
        default = _names(w for w in weights if role_of(w, roles or {}) is Role.PARAMETER)
    if converted and behind.link is Link.NORMALIZED_SIGMOID:
        chosen = _without_underflow(model, op, chosen, behind.value)
    output = _as_output(model, chosen)
    scores = None if behind.link is Link.PROBABILITY else _as_output(model, behind.value)
    inputs = [v for v in model.graph.inputs if not v.is_initializer()]
    return TrainableModel(
        **_graph(graph.save(model)),
        outputs=outputs,
        output=output,
        scores=scores,
        link=behind.link,
        width=columns.width,
        n_scores=_width(behind.value) if graph.rank(chosen) in (1, 2) else columns.width,
        features={str(v.name): v.dtype.numpy() for v in inputs},  # type: ignore[union-attr]
        shapes={str(v.name): _shape(v) for v in inputs},
        classes=_label_classes(model),
        weights=_names(weights),
        default=tuple(name for name in _names(weights) if name in default),
        penalized=_names(filter(multiplies, weights)),
        certain=behind.certain,
        n_axes=max(graph.rank(chosen) or 2, 2),
        class_axis=columns.class_axis,
        batchwise=_chooses_for_batches(model, inputs),
    )


def _chooses_for_batches(model: ir.Model, inputs: Sequence[ir.Value]) -> bool:
    """Whether one condition that depends on the inputs chooses for the whole batch."""
    conditions = [
        node.inputs[0]
        for node in model.graph
        if node.op_type == "If"
        or (node.op_type == "Where" and graph.is_float(node.outputs[0]) and _is_single(node.inputs[0]))
    ]
    return bool(conditions) and not graph.dependents(model.graph, inputs).isdisjoint(conditions)


def _is_single(value: ir.Value | None) -> bool:
    return value is not None and graph.static_shape(value) in ((), (1,), (1, 1))


def _names(values: Iterable[ir.Value]) -> tuple[str, ...]:
    return tuple(str(v.name) for v in values)


def _choose(model: ir.Model, op: graph.Op, reading: Reading) -> ir.Value:
    """Return the output to train; outputs of one label each are concatenated."""
    if reading.n_labels:
        _check_labels(model, reading.n_labels)
        joined = join_labels(model, op, reading.n_labels) if reading.output is None else None
        if joined is not None:
            return joined
    return choose_output(model, reading.output, labels=reading.labels)


def _weights_of(model: ir.Model, *outputs: tuple[ir.Value, Scores]) -> list[ir.Value]:
    """Return the weights of outputs, without those of the link between scores and probabilities: the loss has it."""
    return trainable(model, *(y if behind.link is Link.PROBABILITY else behind.value for y, behind in outputs))


def _no_weights(model: ir.Model, chosen: ir.Value, *, converted: bool) -> WeightError:
    """Return the error for an output that depends on no weight, with the remedy for ONNX models."""
    before = graph.ancestors([chosen])
    weights = [w for w in model.graph.initializers.values() if w in before and graph.is_float(w)]
    features = "" if weights else f", features={chosen.name!r}"  # without a linear layer, head="new" needs them
    others = [y.name for y in model.graph.outputs if y is not chosen and graph.is_float(y) and trainable(model, y)]
    other = f"Train another output with output={others[0]!r}, or add" if others else "Add"
    remedy = "" if converted else f" {other} a layer to train with head='new'{features}."
    behind = [node.op_type for node in blocking(model.graph, weights) if before.intersection(node.outputs)]
    if behind and not converted:
        return WeightError(
            f"The output {chosen.name!r} depends on weights only through {', '.join(dict.fromkeys(behind))}, whose "
            f"derivative is zero.{remedy}"
        )
    return WeightError(f"The model has no weight between its inputs and its output {chosen.name!r}.{remedy}")


def _shape(value: ir.Value) -> tuple[int | None, ...]:
    return tuple(d if isinstance(d, int) else None for d in value.shape or (None, None))


def _check_labels(model: ir.Model, n_labels: int) -> None:
    for value in model.graph.outputs:
        if not graph.is_float(value) and (graph.rank(value) == 1 or graph.static_shape(value) == (1,)):
            raise ModelError(
                f"The model predicts one class per row, {graph.describe(value)}, but y has {n_labels} labels per row. "
                "Pass a model with a Sigmoid per label, such as MLPClassifier fitted on an indicator matrix."
            )


def _as_output(model: ir.Model, value: ir.Value) -> str:
    if not any(value is y for y in model.graph.outputs):
        model.graph.outputs.append(value)
    return str(value.name)


def _without_underflow(model: ir.Model, op: graph.Op, output: ir.Value, scores: ir.Value) -> ir.Value:
    """Replace an output by normalized probabilities that are computed from the logarithms of the Sigmoids of scores.

    The label is then chosen by the largest score, because several probabilities may be 0 or 1.
    """
    for p in (output, before_normalization(skip(output))):
        for node in () if p is None else tuple(p.consumers()):
            if node.op_type == "ArgMax":
                node.replace_input_with(0, scores)
    return _replaced(model, output, normalized_sigmoids(op, scores))


def _replaced(model: ir.Model, old: ir.Value, new: ir.Value) -> ir.Value:
    """Replace a value by another, which takes its name."""
    names = _names(model.graph.outputs)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    old.name, name = None, old.name
    new.name = name
    graph.set_outputs(model, list(zip(names, model.graph.outputs, strict=True)))
    return new


def _columns_of(output: ir.Value, reading: Reading) -> Columns:
    """Return the class axis of an output of three or more axes, and the number of columns of any output."""
    if reading.target is None or output.shape is None or len(output.shape) < 3:
        return Columns(None, _width(output))
    return find_columns(str(output.name), _shape(output), reading.target, reading.class_axis)


def _width(output: ir.Value) -> int:
    if graph.rank(output) == 1:
        return 1
    last = output.shape[-1] if output.shape else None
    return last if isinstance(last, int) else 0


def _label_classes(model: ir.Model) -> np.ndarray | None:
    """Return the classes of an output of labels, selected by an ArgMax of the scores."""
    found = (_classes_of(value) for value in model.graph.outputs if not graph.is_float(value))
    return next((classes for classes in found if classes is not None), None)


#: Operators between labels and the node that looks them up.
_CARRIERS = ("Reshape", "Cast", "Identity", "Squeeze", "Unsqueeze", "Flatten")


def _classes_of(labels: ir.Value | None) -> np.ndarray | None:
    while (carrier := graph.made_by(labels, *_CARRIERS)) is not None:
        labels = carrier.inputs[0]
    node = None if labels is None else labels.producer()
    if node is not None and node.op_type == "LabelEncoder":
        return _encoded(node, _classes_of(node.inputs[0]))
    if node is None or node.op_type not in ("Gather", "ArrayFeatureExtractor"):
        return None
    classes = graph.constant(node.inputs[0])
    # ONNX strings are bytes
    return None if classes is None else np.array([_text(c) for c in classes.ravel().tolist()])


def _encoded(node: ir.Node, before: np.ndarray | None) -> np.ndarray | None:
    """Return the labels that a LabelEncoder maps classes to, or column indices if there are no classes."""
    attributes = {name.partition("_")[0]: a for name, a in node.attributes.items()}
    if not {"keys", "values"} <= attributes.keys() or any(a.is_ref() for a in attributes.values()):
        return None
    keys, values = (np.asarray(attributes[name].value).ravel().tolist() for name in ("keys", "values"))
    known = dict(zip(map(_text, keys), map(_text, values), strict=False))
    found = [known.get(c) for c in (range(len(keys)) if before is None else before.tolist())]
    return None if None in found else np.array(found)


def _text(c: Any) -> Any:
    return c.decode() if isinstance(c, bytes) else c


def initial_weights(onx: onnx.ModelProto | bytes, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Return initializers by name, as copies; weights held outside the model are read-only and not copied."""
    proto = onx if isinstance(onx, onnx.ModelProto) else onnx.load_model_from_string(onx)
    known = {i.name: i for i in proto.graph.initializer}
    arrays = {name: graph.array_of(known[name]) for name in names}
    held = graph.held_by_name(proto)
    return {name: w if name in held else w.copy() for name, w in arrays.items()}


#: Models without weights, by model and names of weights.
_WITHOUT: Cache[bytes] = Cache("models without weights")


def without_weights(model: TrainableModel, names: tuple[str, ...]) -> bytes:
    """Return a model ready for differentiation, whose last inputs are the initializers `names`."""
    key = model.onnx, names
    found = _WITHOUT.find(key)
    if found is None:
        found = weights_as_inputs(model.graph(), names)
        if len(model.onnx) <= LIGHT:
            _WITHOUT.keep(key, found)
    return found


def learned_constants(model: TrainableModel, trained: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the learned attributes that are not trained, by name; held ones are not copied."""
    names = [name for name in model.learned if name not in trained]
    return initial_weights(model.graph(), names) if names else {}


def with_weights(
    onx: onnx.ModelProto, weights: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None
) -> onnx.ModelProto:
    """Return a copy with new values of initializers, cast to their types, and with the given outputs only."""
    proto = graph.copy_of(onx)
    for initializer in proto.graph.initializer:
        if initializer.name in weights:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(initializer.data_type)
            graph.put(initializer, np.asarray(weights[initializer.name], dtype=dtype))
    graph.attach(proto)
    if outputs is not None:
        graph.assign(proto.graph.output, [o for o in proto.graph.output if o.name in outputs])
    return proto


def draw_weights(
    weights: Mapping[str, np.ndarray],
    factors: Iterable[str],
    scales: Iterable[str],
    random_state: np.random.RandomState,
) -> dict[str, np.ndarray]:
    r"""Draw random weights, as MLPRegressor does.

    A matrix (p, q) is uniform in :math:`\pm\sqrt{6 / (p + q)}`; for other factors p and q are the first and the last
    axis. Weights that only scale elements are one, such as those of LayerNormalization; all others are zero.

    References
    ----------
    Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", AISTATS 2010.
    """
    factors, scales = set(factors), set(scales)

    def draw(name: str, w: np.ndarray) -> np.ndarray:
        if name not in factors:
            return np.full_like(w, name in scales)
        bound = np.sqrt(6.0 / (w.shape[0] + (w.shape[-1] if w.ndim > 1 else 1)))
        return random_state.uniform(-bound, bound, w.shape).astype(w.dtype)

    return {name: draw(name, w) for name, w in weights.items()}


def list_weights(onx: onnx.ModelProto | bytes, output: str | None, roles: Mapping[str, Role]) -> list[Weight]:
    """Return the weights that :func:`read_model` would find for an output, or for any output if None."""
    model = graph.reload(onx)
    op = graph.builder(model).op
    outputs = [y for y in model.graph.outputs if graph.is_float(y)] or list(model.graph.outputs)
    chosen = [choose_output(model, name, labels=True) for name in ([output] if output else _names(outputs))]
    found = _weights_of(model, *((y, scores_behind(y, op)) for y in chosen))
    return [Weight(str(w.name), "", graph.static_shape(w) or (), role_of(w, roles).value) for w in found]
