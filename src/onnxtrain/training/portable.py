"""A training step that any onnxruntime runs without onnxtrain: everything it reads is in the graph or fed to it.

:class:`~onnxtrain.training.train.StepLoop` computes the per-step scalars of many steps at once, and binds constants and
counters. Here, the graph computes the scalars from the learning rate and the step number, and contains everything
else::

    features, y, sample_weight  --->+--------+
    learning_rate (1,)          --->|  step  |---> loss (1,)
    - - - - - - - - - - - - - - - - |        |- - - - - - - -
    weights, slots              --->|        |---> next_...
    step (1,)                   --->+--------+---> next_step

Below the line is the state: the output ``next_S`` is fed to the input ``S`` of the next run. The state has no default
values, because onnxruntime for JavaScript ignores values fed to inputs with defaults.

The states that machines reached with the same step are averaged by :func:`average_states`: federated averaging.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.arguments import lists_its_arguments
from onnxtrain.errors import DataError, ExportError, as_number
from onnxtrain.graph import Op, tensor
from onnxtrain.optim import Optimizer
from onnxtrain.runtime.device import CAPABILITIES, Capabilities, nodes_on_host
from onnxtrain.training.bound import joined
from onnxtrain.training.objective import Objective
from onnxtrain.training.packing import Part, part_of
from onnxtrain.training.settings import Settings
from onnxtrain.training.state import TrainingState
from onnxtrain.training.step import StepGraph, Wire, build_step
from onnxtrain.training.train import fill_slots, kept

#: The kinds of devices for which a step is written.
TARGETS = ("cpu", "webgpu")

#: The limit of a protobuf message in bytes, minus room for the encoding.
MOST_BYTES = graph.PROTO_LIMIT - 2**20

#: The key of a value of the state: a weight, or a slot of a weight.
Key = tuple[str, ...]

K = TypeVar("K")


@dataclass(frozen=True)
class PortableStep:
    """A training step that needs no host code.

    Attributes
    ----------
    onnx : bytes
    graph : StepGraph
        The step from which it was made.
    features : mapping of str to str
        As in ``graph``.
    state_names : mapping of str to str
        The name of each input of the state, by its name in ``graph``.
    label, weight, learning_rate, loss, counter : str
        The names of the inputs, the loss and the step number; ``weight`` is None without sample weights.
    """

    onnx: bytes = field(repr=False)
    graph: StepGraph
    features: Mapping[str, str]
    state_names: Mapping[str, str]
    label: str
    weight: str | None
    learning_rate: str
    loss: str
    counter: str

    @property
    def state(self) -> dict[str, dict[Key, Part | None]]:
        """The parts of each input of the state, by weight or by weight and slot; the step number has no parts."""
        found: dict[str, dict[Key, Part | None]] = {}
        for name, wire in self.graph.weights.items():
            found.setdefault(self.state_names[wire.input], {})[name,] = wire.part
        for key, wire in self.graph.slots.items():
            found.setdefault(self.state_names[wire.input], {})[key] = wire.part
        return {**found, self.counter: {}}

    def arrays(self, state: TrainingState, optimizer: Optimizer) -> dict[str, np.ndarray]:
        """Return the arrays of the state of training, by input."""
        state = self._begun(state, optimizer)
        number = np.array([state.step - state.slots_step + 1], np.int32)
        found = joined(state.weights, self.graph.weights) | joined(state.slots, self.graph.slots)
        return {**{self.state_names[name]: x for name, x in found.items()}, self.counter: number}

    def after(self, state: TrainingState, arrays: Mapping[str, np.ndarray], optimizer: Optimizer) -> TrainingState:
        """Return the state of training for given arrays, by input, after checking them.

        Raises
        ------
        DataError
            A name or a shape differs from the expected one, or a value is infinite or NaN.
        """
        state = self._begun(state, optimizer)
        found = _checked(arrays, self.arrays(state, optimizer), state.weights)
        number = int(found.pop(self.counter)[0])
        return replace(
            state,
            weights=self._parts(found, self.graph.weights),
            slots=self._parts(found, self.graph.slots),
            step=state.slots_step + number - 1,
            **_OF_ANOTHER_WAY,
        )

    def _begun(self, state: TrainingState, optimizer: Optimizer) -> TrainingState:
        """Return the state as at the beginning of a fit, with all optimizer slots."""
        state = replace(state)
        fill_slots(state, self.graph, optimizer)
        return state

    def _parts(self, arrays: Mapping[str, np.ndarray], wires: Mapping[K, Wire]) -> dict[K, np.ndarray]:
        return {key: np.array(part_of(arrays[self.state_names[w.input]], w.part)) for key, w in wires.items()}


#: The reset values of the state's records of earlier epochs, which do not apply to weights from elsewhere.
_OF_ANOTHER_WAY: dict[str, Any] = {
    "best_weights": None,
    "best_between": np.inf,
    "validated": False,
    "average": None,
    "averaged": 0,
    "stopped": False,
    "bad_epochs": 0,
}


def _checked(
    arrays: Mapping[str, Any], expected: Mapping[str, np.ndarray], weights: Container[str]
) -> dict[str, np.ndarray]:
    """Return arrays after checking their names, shapes and types; the names of `weights` are no state."""
    for names, problem in ((expected.keys() - arrays.keys(), "lacks"), (arrays.keys() - expected.keys(), "also has")):
        if names:
            remedy = "It comes from a step of another estimator, or with another solver."
            if arrays and all(name in weights for name in arrays):
                remedy = f"These are weights. Assign each of them: model.weights_[{min(arrays)!r}] = values."
            if names == {"loss"}:
                remedy = "Leave it out: it is no part of the state."
            if {f"next_{name}" for name in expected} <= {*arrays}:
                remedy = (
                    "The outputs of a step begin with next_. Pass "
                    "{name.removeprefix('next_'): x for name, x in state.items() if name != 'loss'}."
                )
            raise DataError(
                f"The state {problem} {', '.join(sorted(names))}. Expected {', '.join(sorted(expected))}, got "
                f"{', '.join(sorted(arrays)) or 'none'}. {remedy}"
            )
    found = {}
    for name, like in expected.items():
        array = np.asarray(arrays[name])
        if array.shape != like.shape:
            raise DataError(f"{name} of the state has shape {array.shape}, expected {like.shape}.")
        if array.dtype.kind not in "fiu":
            raise DataError(f"{name} of the state has dtype {array.dtype}, expected {like.dtype}.")
        if not np.isfinite(array).all():
            raise DataError(f"{name} of the state contains values that are not finite: the training diverged.")
        if like.dtype.kind == "i" and not (array.item() == int(array.item()) and 1 <= array.item() < 2**31):
            raise DataError(f"{name} of the state must be the number of the next step, 1 or more, got {array}.")
        found[name] = array.astype(like.dtype)
    return found


def portable_step(
    objective: Objective,
    optimizer: Optimizer,
    settings: Settings,
    constants: Mapping[str, np.ndarray],
    *,
    target: str,
    weighted: bool,
    labels: range | None = None,
) -> PortableStep:
    """Return the step of a fit with the given settings, as a graph that needs no host code.

    Parameters
    ----------
    objective : Objective
    optimizer : Optimizer
    settings : Settings
    constants : mapping of str to ndarray
        The values of the constants of the objective.
    target : {"cpu", "webgpu"}
        The device that will run it.
    weighted : bool
        Whether there are sample weights.
    labels : range, optional
        The valid labels, if they are integers. On a CPU, onnxruntime refuses other labels.

    Raises
    ------
    ExportError
        The target has no kernel for an operator or a type of the step.
    """
    capabilities = CAPABILITIES[target]
    step, strengths = _step_of(objective, optimizer, settings, capabilities, weighted=weighted)
    model = graph.reload(step.onnx)
    _fill(model, {name: constants[name] for name in step.constants}, "step.onnx")
    op, inputs = graph.builder(model).op, {str(v.name): v for v in model.graph.inputs}
    features = [inputs[name] for name in step.features.values()]
    state = {name: inputs[name] for name in step.state if name != step.counters["loss_sum"].input}
    taken = {str(v.name) for v in features}

    def named(name: str) -> str:
        return graph.unique_name(name, taken)

    rate_type = ir.DataType.DOUBLE if capabilities.float64 else ir.DataType.FLOAT
    known = labels if capabilities.float64 else None  # WebGPU kernels do not check indices
    y = _label(op, inputs[step.inputs["label"]], named("y"), known)
    weight = _label(op, inputs[step.inputs["weight"]], named("sample_weight")) if weighted else None
    rate, number = _input(named("learning_rate"), rate_type, [1]), _input(named("step"), ir.DataType.INT32, [1])
    share = op.Div(1.0, _weight_of_batch(op, y, weight, rate_type))
    scalars = optimizer.scalars(op, rate, op.Cast(number, to=rate_type))
    _take_scalars(op, inputs[step.inputs["scalars"]], [share, *scalars], strengths)
    outputs = {str(v.name): v for v in model.graph.outputs}
    results = [(named("loss"), _loss(op, step, inputs, outputs, share))]
    for value in state.values():  # a weight may have the name y
        value.name = named(str(value.name))
    results += [(f"next_{value.name}", outputs[step.state[name]]) for name, value in state.items()]
    results += [(f"next_{number.name}", op.Add(number, op.initializer(tensor([1], ir.DataType.INT32, "next"))))]
    model.graph.inputs[:] = [*features, y, *([weight] if weight is not None else []), rate, *state.values(), number]
    _take_unsigned_bytes(model)
    _rename_others(model, taken)
    onx = graph.save(model, outputs=results).SerializeToString()
    names = dict(label=y, weight=weight, learning_rate=rate, counter=number)
    of = {role: None if v is None else str(v.name) for role, v in names.items()}
    state_names = {name: str(value.name) for name, value in state.items()}
    return PortableStep(onx, step, step.features, state_names, loss=results[0][0], **of)  # type: ignore[arg-type]


def _step_of(
    objective: Objective, optimizer: Optimizer, settings: Settings, capabilities: Capabilities, *, weighted: bool
) -> tuple[StepGraph, tuple[float, ...]]:
    """Return the step that is fed the rows of a batch, and the strengths of its penalties."""
    if settings.accumulate > 1:
        raise ExportError(
            f"accumulate={settings.accumulate} sums the gradients of batches, but an exported step updates the weights "
            "after each batch. Set accumulate=1, and pass larger batches."
        )
    arguments, strengths = settings.of_steps(objective.penalized)
    step = kept(build_step, optimizer)(
        objective,
        optimizer,
        gathered=False,
        weighted=weighted,
        builder=settings.builder,
        products=settings.products,
        capabilities=capabilities,
        **arguments,
    )
    if "label" not in step.inputs:
        raise ExportError("The loss does not read y, but an exported step takes y. Add 0 * y_true to the loss.")
    return step, strengths


def _weight_of_batch(op: Op, y: ir.Value, weight: ir.Value | None, dtype: ir.DataType) -> ir.Value:
    """Return the sum of the sample weights of a batch or, without weights, the number of its rows, (1,)."""
    if weight is None:
        return op.Cast(op.Shape(y, start=0, end=1), to=dtype)
    return op.ReduceSum(op.Cast(weight, to=dtype), keepdims=1)


def _loss(
    op: Op, step: StepGraph, inputs: Mapping[str, ir.Value], outputs: Mapping[str, ir.Value], share: ir.Value
) -> ir.Value:
    """Return the objective of a batch, (1,), from its counter; the counter starts at 0 and is no longer an input."""
    counted = step.counters["loss_sum"]
    _replace(inputs[counted.input], op.initializer(tensor([[0.0]], step.dtype, "zero")))
    sum_ = op.Reshape(outputs[counted.output], op.initializer(tensor([1], name="one")))
    return op.Mul(sum_, op.Cast(share, to=step.dtype))


def _take_unsigned_bytes(model: ir.Model) -> None:
    """Change pairs of QuantizeLinear and DequantizeLinear from int8 to uint8 in place: q + 128, z + 128.

    The dequantized values are the same. At its default optimization level, onnxruntime 1.32 makes this change itself
    but keeps the signed output_dtype of these QuantizeLinear nodes, which it then refuses.
    """
    op = graph.builder(model).op
    shifted: dict[ir.Value, ir.Value] = {}
    for node in model.graph:
        users = [user for user, _ in node.outputs[0].uses()]
        if node.op_type != "QuantizeLinear" or not all(user.op_type == "DequantizeLinear" for user in users):
            continue
        zeros = {user.inputs[2] if len(user.inputs) > 2 else None for user in (node, *users)}
        points = {zero: graph.constant(zero) for zero in zeros if zero is not None and zero.dtype is ir.DataType.INT8}
        if points.keys() != zeros or any(z is None for z in points.values()):
            continue
        for zero, z in points.items():
            if zero not in shifted:
                unsigned = (z.astype(np.int16) + 128).astype(np.uint8)  # type: ignore[union-attr]
                shifted[zero] = op.initializer(tensor(unsigned, ir.DataType.UINT8, f"{zero.name}_unsigned"))
        node.attributes.pop("output_dtype", None)
        node.outputs[0].type = ir.TensorType(ir.DataType.UINT8)
        for each in (node, *users):
            each.replace_input_with(2, shifted[each.inputs[2]])  # type: ignore[index]


def _rename_others(model: ir.Model, names: Container[str]) -> None:
    """Rename initializers whose name an input needs; :func:`graph.save` does this for other values."""
    for name, value in list(model.graph.initializers.items()):
        if name in names:
            value.name = graph.unique_name(name, graph.names_in(model.graph))


def _input(name: str, dtype: ir.DataType | None, shape: Sequence[Any]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))  # type: ignore[arg-type]


def _replace(old: ir.Value, new: ir.Value) -> None:
    """Replace an input by another value, which gets its type and shape."""
    new.type, new.shape = old.type, old.shape
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)


def _label(op: Op, old: ir.Value, name: str, labels: range | None = None) -> ir.Value:
    """Replace an input with one or more entries per row by a new input: int32 for integers, (n,) for a column.

    JavaScript has int64 arrays only of its slow BigInt. Integers outside `labels` are refused.
    """
    n, *others = old.shape  # type: ignore[misc]
    is_column = others == [1]
    dtype = ir.DataType.INT32 if old.dtype == ir.DataType.INT64 else old.dtype
    if not is_column and dtype == old.dtype:
        old.name = name
        return old
    new = _input(name, dtype, [n] if is_column else [n, *others])
    column = op.Reshape(new, op.initializer(tensor([-1, 1], name="column"))) if is_column else new
    if dtype == old.dtype:
        _replace(old, column)
    elif labels is None:
        _replace(old, op.Cast(column, to=old.dtype))
    else:
        _replace(old, _checked_labels(op, column, labels))
    return new


def _checked_labels(op: Op, y: ir.Value, labels: range) -> ir.Value:
    """Return labels as int64; a run with invalid labels fails, which losses would take for another class.

    Gather counts negative indices from the end, so they are mapped to large ones.
    """
    index = op.Sub(y, op.initializer(tensor(labels.start, y.dtype, "first_label"))) if labels.start else y
    unsigned = op.Cast(op.Cast(index, to=ir.DataType.UINT32), to=ir.DataType.INT64)
    found = op.Gather(op.initializer(tensor(list(labels), name="labels")), unsigned)
    found.producer().name = "y_must_be_the_index_of_a_class"  # this name is shown in onnxruntime's error
    return found


def _take_scalars(op: Op, old: ir.Value, scalars: Sequence[ir.Value], strengths: Sequence[float]) -> None:
    """Compute the row of per-step scalars in the graph, (1,) each, with the penalty strengths as constants."""
    known = [op.initializer(tensor(strengths, scalars[0].dtype, "strengths"))] if strengths else []
    row = op.Concat(*scalars, *known, axis=0)
    _replace(old, op.Unsqueeze(op.Cast(row, to=old.dtype), op.initializer(tensor([0], name="axis"))))


# ----------------------------------------------------------- the other files


def _fill(model: ir.Model, constants: Mapping[str, np.ndarray], file: str) -> None:
    """Convert inputs of a model to initializers with the given values, in place."""
    _check_size(file, constants.values(), "Train a smaller model, only the part of it that differs, or only its head")
    for value in [v for v in model.graph.inputs if v.name in constants]:
        model.graph.inputs.remove(value)
        value.const_value = ir.Tensor(constants[str(value.name)], dtype=value.dtype, name=value.name)
        model.graph.register_initializer(value)


def _check_size(file: str, arrays: Iterable[np.ndarray], remedy: str) -> None:
    """Raise an ExportError if arrays exceed the size of a file; for browsers, there are no external data files."""
    n_bytes = sum(x.nbytes for x in arrays)
    if n_bytes >= MOST_BYTES:
        raise ExportError(f"{file} would be {n_bytes / 1e9:.2f} GB, but an ONNX file must be below 2.15 GB. {remedy}.")


def frozen_part(onx: bytes, constants: Mapping[str, np.ndarray]) -> bytes:
    """Return a model whose inputs `constants` are initializers."""
    model = graph.reload(onx)
    _fill(model, constants, "before.onnx")
    return graph.save(model).SerializeToString()


def predictor(
    objective: Objective, outputs: Sequence[str], step: PortableStep, constants: Mapping[str, np.ndarray]
) -> bytes:
    """Return the model of an objective that reads its weights from the state of a step.

    Parameters
    ----------
    objective : Objective
        The objective of the whole model.
    outputs : sequence of str
        The outputs to compute.
    step : PortableStep
    constants : mapping of str to ndarray
    """
    model = graph.reload(objective.model)
    _fill(model, constants, "predict.onnx")
    op, inputs = graph.builder(model).op, {str(v.name): v for v in model.graph.inputs}
    names = [str(v.name) for v in model.graph.outputs]  # a weight may be an output, and gets another name
    for name, parts in step.state.items():
        weights = {inputs[key[0]]: part for key, part in parts.items() if len(key) == 1}
        packed = {w: part for w, part in weights.items() if part is not None}
        if packed:
            model.graph.inputs.append(_unpacked(op, name, packed))
        for w in weights.keys() - packed.keys():
            w.name = name
    results = [(name, model.graph.outputs[names.index(name)]) for name in outputs]
    needed = graph.ancestors(value for _, value in results)
    model.graph.inputs[:] = [v for v in model.graph.inputs if v in needed]
    return graph.save(model, outputs=results).SerializeToString()


def _unpacked(op: Op, name: str, parts: Mapping[ir.Value, Part]) -> ir.Value:
    """Replace weights that are parts of an array by slices of one input of the state, which is returned."""
    sizes, rows = [part.stop - part.start for part in parts.values()], next(iter(parts.values())).rows
    old = next(iter(parts))
    whole = _input(name, old.dtype, [rows, sum(sizes) // rows])
    flat = op.Reshape(whole, op.initializer(tensor([-1], name="flat")))
    split = len(sizes) > 1
    pieces = op.Split(flat, op.initializer(tensor(sizes, name="sizes")), _outputs=len(sizes)) if split else [flat]
    for (w, part), piece in zip(parts.items(), pieces, strict=True):
        _replace(w, op.Reshape(piece, op.initializer(tensor(part.shape, name="shape"))))
    return whole


def state_model(arrays: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return a model without inputs whose outputs are the arrays, so that a runner needs no other file reader."""
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in arrays.items()
    ]
    nodes, shapes = [], []
    same = {name for name, x in arrays.items() if x.size > 1 and (x == x.flat[0]).all()}
    _check_size(
        "init.onnx", [x for name, x in arrays.items() if name not in same], "Train fewer weights (weights_to_train=...)"
    )
    for name, x in arrays.items():
        if name in same:  # most often an optimizer slot
            shapes.append(onnx.numpy_helper.from_array(np.array(x.shape, np.int64), f"shape of {name}"))
            value = onnx.numpy_helper.from_array(x.reshape(-1)[:1])
            nodes.append(onnx.helper.make_node("ConstantOfShape", [f"shape of {name}"], [name], value=value))
        else:
            nodes.append(onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(x)))
    made = onnx.helper.make_graph(nodes, "state", [], values, shapes)
    opsets = [onnx.helper.make_opsetid("", graph.OPSET)]
    return onnx.helper.make_model(made, ir_version=graph.IR_VERSION, opset_imports=opsets)


def check_runs_on(target: str, onx: bytes, name: str) -> None:
    """Raise an ExportError if a target lacks a kernel for an operator or type of a model, which `name` denotes."""
    if CAPABILITIES[target].float64:
        return
    proto = onnx.load_model_from_string(onx)
    for problem in (*_operators_without_kernel(proto, target), *_doubles(proto)):
        raise ExportError(f"{name} cannot be written for {target!r}: it has {problem}. target='cpu' runs everywhere.")


def _operators_without_kernel(proto: onnx.ModelProto, target: str) -> Iterable[str]:
    for node in ir.from_proto(proto).graph.all_nodes():
        if node.domain not in ("", "ai.onnx"):
            yield f"{node.domain}.{node.op_type}, an operator outside ai.onnx"
    for found in nodes_on_host(target, proto):
        why = "with Indices, which the gradient of a MaxPool needs" if found.op_type == "MaxPool" else _CHANNELS
        yield f"{found.op_type} {why}"


_CHANNELS = (
    "with a number of channels for which onnxruntime's results are or may be wrong; in the gradient of filters, this "
    "is the number of rows of a batch (weights_to_train='head' trains no filters)"
)


def _doubles(proto: onnx.ModelProto) -> Iterable[str]:
    double = onnx.TensorProto.DOUBLE
    tensors = {t.name: t.data_type for t in proto.graph.initializer}
    values = (*proto.graph.input, *proto.graph.output, *proto.graph.value_info)
    found = tensors | {v.name: v.type.tensor_type.elem_type for v in values}
    for name in sorted(name for name, dtype in found.items() if dtype == double):
        yield f"{name!r} in float64 (set dtype='float32')"


# -------------------------------------------------------------------- averages


@lists_its_arguments
def average_states(
    states: Iterable[Mapping[str, Any]], weights: Sequence[float] | None = None
) -> dict[str, np.ndarray]:
    r"""Return the weighted mean of states of one training step, :math:`\sum_i w_i s_i / \sum_i w_i`.

    In a round of federated averaging, each machine runs ``step.onnx`` on its own rows from the same state. The mean of
    the resulting states is the state of the next round, or the argument of
    :meth:`OrtGradientRegressor.load_training_state`.

    Parameters
    ----------
    states : iterable of mapping of str to array-like
        The arrays of each state by name, as ``init.onnx`` and ``step.onnx`` return them. The optimizer state is
        averaged as well.
    weights : sequence of float, optional
        The weight of each state, such as its number of rows; equal by default.

    Returns
    -------
    dict of str to ndarray
        The mean, in the types of the first state. The mean of an integer, the step number, is rounded.

    Raises
    ------
    DataError
        There is no state, the states differ in names or shapes, a value is not finite, or the weights are negative, sum
        to zero or differ in number from the states.

    Examples
    --------
    >>> from onnxtrain import average_states
    >>> average_states([{"w": [1.0, 2.0]}, {"w": [4.0, 8.0]}], weights=[2, 1])["w"].tolist()
    [2.0, 4.0]

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-efficient learning of deep networks from
    decentralized data", AISTATS 2017.
    """
    given = list(states) if isinstance(states, Iterable) else [states]
    if isinstance(states, Mapping) or not all(isinstance(state, Mapping) for state in given):
        other = states if isinstance(states, Mapping) else next(s for s in given if not isinstance(s, Mapping))
        remedy = " Average their weights: a.weights_.update(average_states([a.weights_, b.weights_]))."
        raise DataError(
            "states must be a list of states, each a mapping of str to array, as in average_states([a, b]), got "
            f"{'a single' if other is states else 'an entry of type'} {type(other).__name__}."
            + (remedy if hasattr(other, "weights_") else "")
            + (" Read a file first: dict(numpy.load('state.npz'))." if isinstance(other, (str, os.PathLike)) else "")
        )
    found = [{name: np.asarray(x) for name, x in state.items()} for state in given]
    for i, name, x in ((i, name, x) for i, state in enumerate(found) for name, x in state.items()):
        if x.dtype.kind not in "fiub":
            raise DataError(f"A state must contain numeric arrays, got {x!r:.80} for {name!r}.")
        if not np.isfinite(x).all():
            raise DataError(
                f"{name!r} of state {i} contains values that are not finite: its training diverged. Leave it out."
            )
    if not found:
        raise DataError("There is no state to average. Pass a list of states: average_states([a, b]).")
    wanted = [1.0] * len(found) if weights is None else weights
    shares = np.array([as_number(w) for w in wanted] if isinstance(wanted, Iterable) else [])
    if shares.shape != (len(found),) or not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() == 0:
        raise DataError(f"weights must be {len(found)} non-negative numbers, not all zero, got {weights!r}.")
    shapes = [{name: x.shape for name, x in state.items()} for state in found]
    for i, other in enumerate(shapes):
        if other != shapes[0]:
            raise DataError(
                f"The states have different names or shapes: {shapes[0]} in state 0, {other} in state {i}. Average the "
                "states of one exported step, or the weights of estimators that began with the same model."
            )
    return {name: _mean([state[name] for state in found], shares / shares.sum()) for name in found[0]}


def _mean(arrays: Sequence[np.ndarray], shares: np.ndarray) -> np.ndarray:
    mean = np.tensordot(shares, np.stack(arrays).astype(np.float64), axes=1)
    dtype = arrays[0].dtype
    return np.asarray(np.rint(mean) if dtype.kind in "iu" else mean).astype(dtype)
