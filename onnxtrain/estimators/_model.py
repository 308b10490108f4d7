"""From what the user hands over to what is trained: an ONNX model, an output, weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.autodiff import dependents
from onnxtrain.convert import select_weights
from onnxtrain.errors import ModelError, WeightError
from onnxtrain.heads import Link, choose_output, join_labels, scores_behind
from onnxtrain.training.objective import weights_as_inputs

#: Bytes of a model above which nothing made of it is kept when nobody needs it.
LIGHT = 2**20

DTYPES = {"float32": ir.DataType.FLOAT, "float64": ir.DataType.DOUBLE}

#: The positions of operands that multiply; what is only added is an intercept.
_FACTORS = {
    "MatMul": (0, 1),
    "Gemm": (0, 1),
    "Einsum": (0, 1, 2, 3),
    "Conv": (1,),
    "ConvTranspose": (1,),
    "Gather": (0,),
    "RNN": (1, 2),
    "GRU": (1, 2),
    "LSTM": (1, 2),
}


@dataclass(frozen=True)
class TrainableModel:
    """A model of ai.onnx operators, and which of its values are what.

    Attributes
    ----------
    onnx : bytes
        With the outputs of the user's model, then the scores where they are none of them.
    outputs : tuple of str
        The outputs of the user's model.
    output : str
        The output that enters the loss, or what the labels it holds are taken from.
    scores : str or None
        What enters the Sigmoid or Softmax that ``output`` is, or ``output`` itself.
    link : Link
        How ``output`` follows from ``scores``.
    width, n_scores : int
        The number of columns of ``output`` and of ``scores``.
    features : mapping of str to numpy dtype
        The inputs.
    shapes : mapping of str to tuple
        Theirs, None for what is not known, rows first.
    classes : ndarray or None
        The labels that the model itself returns, by column.
    weights : tuple of str
        What may be trained.
    default : tuple of str
        What is trained unless other weights are asked for: not single numbers that
        scale, such as the 0.5 in Gelu.
    penalized : tuple of str
        Those among them that multiply: penalties spare the intercepts.
    learned : tuple of str
        Initializers that are learned attributes of an estimator. Fits of it differ in them alone:
        those that are not trained are inputs of the graphs, which all fits then share.
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

    def __getstate__(self) -> dict[str, Any]:
        """Return what is kept: arrays, numbers and text, of which skops trusts every type."""
        features = {name: dtype.str for name, dtype in self.features.items()}
        return vars(self) | {"link": self.link.value, "features": features}

    def __setstate__(self, state: dict[str, Any]) -> None:
        features = {name: np.dtype(text) for name, text in state["features"].items()}
        vars(self).update(state, link=Link(state["link"]), features=features)


def read_model(
    onx: graph.ModelLike, *, dtype: str, output: int | str | None, n_labels: int = 0, labels: bool = False
) -> TrainableModel:
    """Return a model of ai.onnx operators as one that can be trained, its real numbers of type `dtype`.

    With `n_labels` each column of the output is a label of which a row has any number; outputs of
    one label each are joined. With `labels` an output of labels is trained by the scores they are taken from.

    Raises
    ------
    ModelError
        The model cannot be read, it has several outputs and `output` is None, or it chooses one class a row
        where there are several labels.
    WeightError
        There is no weight between its inputs and the output.
    """
    model = graph.reload(onx)
    graph.cast_floats(model, DTYPES[dtype])
    outputs = tuple(str(v.name) for v in model.graph.outputs)
    op = graph.builder(model).op
    if n_labels:
        _check_labels(model, n_labels)
    joined = join_labels(model, op, n_labels) if output is None else None
    chosen = choose_output(model, output, labels=labels) if joined is None else joined
    output = _as_output(model, chosen)
    head = scores_behind(chosen, op)
    scores = None if head.link is Link.PROBABILITY else _as_output(model, head.value)
    # what stands between the scores and the probabilities is no part of the loss
    weights = _weights_that_reach(model, chosen if scores is None else head.value)
    if not weights:
        raise WeightError(f"The model has no weight between its inputs and its output {chosen.name!r}.")
    inputs = [v for v in model.graph.inputs if not v.is_initializer()]
    return TrainableModel(
        onnx=graph.save(model).SerializeToString(),
        outputs=outputs,
        output=output,
        scores=scores,
        link=head.link,
        width=_width(chosen),
        n_scores=_width(head.value),
        features={str(v.name): v.dtype.numpy() for v in inputs},  # type: ignore[union-attr]
        shapes={str(v.name): _shape(v) for v in inputs},
        classes=_label_classes(model),
        weights=tuple(str(w.name) for w in weights),
        default=tuple(str(w.name) for w in weights if not _is_constant(w)),
        penalized=tuple(str(w.name) for w in weights if _multiplies(w)),
    )


def _shape(value: ir.Value) -> tuple[int | None, ...]:
    return tuple(d if isinstance(d, int) else None for d in value.shape or (None, None))


def _check_labels(model: ir.Model, n_labels: int) -> None:
    for value in model.graph.outputs:
        if not graph.is_float(value) and (graph.rank(value) == 1 or graph.static_shape(value) == (1,)):
            raise ModelError(
                f"The model chooses one class a row, {graph.describe(value)}; y has {n_labels} labels a row. "
                "Hand over a model with a Sigmoid for each label, such as MLPClassifier fitted on indicators."
            )


def _as_output(model: ir.Model, value: ir.Value) -> str:
    if not any(value is y for y in model.graph.outputs):
        model.graph.outputs.append(value)
    return str(value.name)


def _width(output: ir.Value) -> int:
    if graph.rank(output) == 1:
        return 1
    last = output.shape[-1] if output.shape else None
    if not isinstance(last, int):
        raise ModelError(f"The number of columns of the output is not known: {graph.describe(output)}.")
    return last


def _weights_that_reach(model: ir.Model, output: ir.Value) -> list[ir.Value]:
    """Return the real initializers that `output` depends on in a way that has a derivative."""
    candidates = [w for w in model.graph.initializers.values() if graph.is_float(w)]
    return [w for w in candidates if output in dependents(_consumers(w), [w])]


def _consumers(value: ir.Value) -> list[ir.Node]:
    """Return the nodes that depend on a value, in the order of the graph."""
    found: dict[ir.Node, None] = {}
    todo = [value]
    while todo:
        for node in todo.pop().consumers():
            if node not in found:
                found[node] = None
                todo += node.outputs
    graph_ = value.graph
    return [node for node in graph_ if node in found] if graph_ is not None else list(found)


def _multiplies(w: ir.Value) -> bool:
    """Whether a weight is a factor of products: a coefficient, not an intercept or a scale."""
    if graph.rank(w) == 0:
        return False
    factor = any(index in _FACTORS.get(node.op_type, ()) for node, index in w.uses())
    reshaped = [n.outputs[0] for n in w.consumers() if n.op_type in ("Transpose", "Reshape", "Unsqueeze", "Cast")]
    return factor or any(_multiplies(v) for v in reshaped)


def _is_constant(w: ir.Value) -> bool:
    """Whether a weight is one number of a formula: without axes, or one that scales what it meets."""
    if not graph.rank(w):
        return True
    return graph.static_shape(w) == (1,) and all(node.op_type in ("Mul", "Div", "Pow") for node in w.consumers())


def _label_classes(model: ir.Model) -> np.ndarray | None:
    """Return the classes behind an output of labels, taken by ArgMax from the scores."""
    for value in model.graph.outputs:
        if graph.is_float(value):
            continue
        node = value.producer()
        while node is not None and node.op_type in ("Reshape", "Cast", "Identity", "Squeeze", "Flatten"):
            node = node.inputs[0].producer() if node.inputs[0] is not None else None
        if node is not None and node.op_type in ("Gather", "ArrayFeatureExtractor"):
            classes = graph.constant(node.inputs[0])
            if classes is not None:
                # strings in ONNX are bytes
                return np.array([c.decode() if isinstance(c, bytes) else c for c in classes.ravel().tolist()])
    return None


def initial_weights(onx: bytes, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Return copies of initializers by name."""
    return {name: w.copy() for name, w in _of_light(_initializers, onx, tuple(names)).items()}


def without_weights(onx: bytes, names: tuple[str, ...]) -> bytes:
    """Return a model ready to be differentiated: the initializers `names` are its last inputs."""
    return _of_light(_weights_as_inputs, onx, names)


@lru_cache(maxsize=16)
def _initializers(onx: bytes, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    known = {i.name: i for i in onnx.load_model_from_string(onx).graph.initializer}
    return {name: onnx.numpy_helper.to_array(known[name]) for name in names}


@lru_cache(maxsize=16)
def _weights_as_inputs(onx: bytes, names: tuple[str, ...]) -> bytes:
    return weights_as_inputs(onnx.load_model_from_string(onx), names)


def _of_light(make: Any, onx: bytes, names: tuple[str, ...]) -> Any:
    """Return what a cached function makes of a model, without the cache where that would keep a large one."""
    return (make if len(onx) <= LIGHT else make.__wrapped__)(onx, names)


def learned_constants(model: TrainableModel, trained: Sequence[str]) -> dict[str, np.ndarray]:
    """Return copies of the learned numbers that are not trained, by name: those left in the graph."""
    names = set(model.learned) - set(trained)
    if not names:
        return {}
    initializers = onnx.load_model_from_string(model.onnx).graph.initializer
    return {i.name: np.array(onnx.numpy_helper.to_array(i)) for i in initializers if i.name in names}


def with_weights(
    onx: bytes, weights: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None
) -> onnx.ModelProto:
    """Return a model with other values of initializers, in the types they have there, and only some of its outputs."""
    proto = onnx.load_model_from_string(onx)
    for initializer in proto.graph.initializer:
        if initializer.name in weights:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(initializer.data_type)
            w = np.asarray(weights[initializer.name], dtype=dtype)
            initializer.CopyFrom(onnx.numpy_helper.from_array(w, initializer.name))
    if outputs is not None:
        kept = [o for o in proto.graph.output if o.name in outputs]
        del proto.graph.output[:]
        proto.graph.output.extend(kept)
    return proto


def draw_weights(
    weights: Mapping[str, np.ndarray], factors: Iterable[str], random_state: np.random.RandomState
) -> dict[str, np.ndarray]:
    r"""Draw weights anew, as MLPRegressor does.

    Uniform in :math:`\pm\sqrt{6 / (p + q)}` for a matrix (p, q), other factors by their
    first and last axis; what is not a factor is zero.

    References
    ----------
    Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", AISTATS 2010.
    """
    factors = set(factors)

    def draw(name: str, w: np.ndarray) -> np.ndarray:
        if name not in factors:
            return np.zeros_like(w)
        bound = np.sqrt(6.0 / (w.shape[0] + (w.shape[-1] if w.ndim > 1 else 1)))
        return random_state.uniform(-bound, bound, w.shape).astype(w.dtype)

    return {name: draw(name, w) for name, w in weights.items()}


def choose_weights(
    model: TrainableModel, wanted: str | Sequence[str] | None, default: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the weights to train.

    Parameters
    ----------
    model : TrainableModel
    wanted : str, sequence of str, or None for `default`
        As :func:`~onnxtrain.convert.select_weights` takes them.
    default : names, or None
        None: those of the model.

    Raises
    ------
    WeightError
        A name is unknown, or does not reach the output.
    """
    if wanted is None:
        names = [w for w in model.weights if w in (model.default if default is None else default)]
    else:
        names = select_weights(model.weights, wanted, f"weight that reaches the output {model.output!r}")
    if not names:
        raise WeightError("There is no weight to train. Name some in weights_to_train.")
    return tuple(names)
