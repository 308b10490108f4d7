"""The gradient graph of a model by onnxruntime-training, with the interface of the built-in builder, or appended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes

from onnxtrain import graph as graphs
from onnxtrain.errors import GradientError
from onnxtrain.graph import Op
from onnxtrain.training_build.native import check_kernels, loss_gradient, module_gradient, require
from onnxtrain.training_build.prepare import prepare, reaching, total, values_by_name

# the bits of onnxtrain.grad_helper.DerivativeOptions, which is defined in a higher layer
KEEP_YIELD_OP, KEEP_OUTPUTS, FILL_GRAD, LOSS = 1, 2, 4, 8


def derive(
    model: ir.Model,
    inputs: Sequence[ir.Value],
    weights: Sequence[ir.Value],
    *,
    options: int = 0,
    loss: ir.Value | None = None,
) -> onnx.ModelProto:
    """Return the gradient graph of onnxruntime-training.

    OrtModuleGraphBuilder differentiates all floating-point outputs, GradientGraphBuilder,
    used with a loss, one value.

    Parameters
    ----------
    model : onnx_ir.Model
        As :func:`onnxtrain.graph.load` returns it; it is changed.
    inputs, weights : sequence of onnx_ir.Value
        Inputs of the graph and initializers to differentiate with respect to.
    options : int
        The bits of :class:`onnxtrain.grad_helper.DerivativeOptions`.
    loss : onnx_ir.Value, optional
        The value to differentiate instead of the outputs; several elements are summed.

    Returns
    -------
    onnx.ModelProto
        A graph with the inputs and outputs of :func:`onnxtrain.grad_helper.onnx_derivative`. It contains operators that
        only the training build of onnxruntime can run.

    Raises
    ------
    ImportError
        There is no training build of onnxruntime.
    GradientError
        It cannot derive this model.
    """
    require()
    found = model.opset_imports.get("", 0)
    if found > graphs.OPSET:
        raise GradientError(
            f"The model needs opset {found}, but onnxruntime-training reads {graphs.OPSET} at most. "
            'Use the builder "builtin".'
        )
    result = _Derivation(model, inputs, weights, loss).build(options)
    check_kernels(result)
    return result


class _Derivation:
    """A model prepared for onnxruntime-training, and the names of its values for the user and the builder."""

    def __init__(self, model: ir.Model, inputs: Sequence[ir.Value], weights: Sequence[ir.Value], loss: ir.Value | None):
        self.model = model
        self.loss = loss
        self.weights = list(weights)
        self.inputs = [v for v in model.graph.inputs if v not in weights]
        self.wrt = [*inputs, *weights]
        names = [str(v.name) for v in (*self.inputs, *self.weights)]
        output_names = [str(y.name) for y in model.graph.outputs]
        loss_name = None if loss is None else str(loss.name)
        tensors = [w.const_value for w in weights]
        for w in weights:  # a weight must not count as a constant while the graph is prepared
            w.const_value = None
        if loss is not None:
            model.graph.outputs[:] = [total(model, loss), loss, *model.graph.outputs]
        passes.RemoveUnusedNodesPass()(model)
        active = prepare(model, self.wrt)
        for w, tensor in zip(weights, tensors, strict=True):
            w.const_value = tensor
            tensor.name = w.name  # type: ignore[union-attr]
        self.user_name = dict(zip([str(v.name) for v in (*self.inputs, *self.weights)], names, strict=True))
        self.outputs = list(model.graph.outputs)
        self.output_names = output_names if loss_name is None else ["", loss_name, *output_names]
        self.reached = reaching(model, active)

    def build(self, options: int) -> onnx.ModelProto:
        wanted = [str(v.name) for v in self.wrt if v in self.reached]
        model = ir.from_proto(self._foreign(wanted))
        self.values = values_by_name(model.graph)
        for name, known in values_by_name(self.model.graph).items():
            if name in self.values:  # onnxruntime-training drops the types of its outputs
                self.values[name].type, self.values[name].shape = known.type, known.shape
        self.op: Op = graphs.builder(model).op
        self._take_inputs(model.graph, options)
        if self.loss is not None:
            outputs = self._loss_outputs(options)
        else:
            outputs = self._outputs(model, options)
        for name, user_name in self.user_name.items():
            self._rename(self.values[name], user_name)
        return graphs.save(model, outputs=outputs)

    def _foreign(self, wanted: list[str]) -> onnx.ModelProto:
        """Return the graph of onnxruntime-training, or the unchanged graph if there is nothing to differentiate."""
        self.model.ir_version = graphs.IR_VERSION
        proto = ir.to_proto(self.model)
        if not wanted:
            return proto
        if self.loss is not None:
            return loss_gradient(proto, str(self.outputs[0].name), wanted)
        weights = [str(w.name) for w in self.weights if w.name in wanted]
        return module_gradient(proto, weights, [name for name in wanted if name not in weights])

    def _take_inputs(self, graph: ir.Graph, options: int) -> None:
        """Order the inputs: the inputs of the model, then the weights; restore inputs that the builder dropped."""
        found = []
        for given in (*self.inputs, *self.weights):
            name = str(given.name)
            value = self.values.get(name) or ir.Value(name=name, type=given.type, shape=given.shape)
            self.values[name] = value
            found.append(value)
            if given in self.weights and not options & LOSS and name in graph.initializers:
                graph.initializers.pop(name)
                value.const_value = None
        graph.inputs[:] = found

    # ---------------------------------------------------------- from a loss

    def _loss_outputs(self, options: int) -> list[tuple[str, ir.Value]]:
        _, loss, *others = self.outputs
        named = [(self.output_names[1], self.values[str(loss.name)]), *self._gradients()]
        if options & KEEP_OUTPUTS:
            named += [
                (name, self.values[str(y.name)])
                for name, y in zip(self.output_names[2:], others, strict=True)
                if name != self.output_names[1]
            ]
        return named

    def _gradients(self, yields: Sequence[ir.Node] = ()) -> list[tuple[str, ir.Value]]:
        """Return the gradient of each value to differentiate, zeros if no output depends on it.

        They are placed after `yields`: TrainingAgent returns only values computed in the backward pass.
        """
        taken = {*self.user_name.values(), *self.output_names}
        named = []
        for x in self.wrt:
            value = self.values.get(f"{x.name}_grad") if x in self.reached else self._zeros(x, yields)
            if value is None:
                raise GradientError(
                    f"onnxruntime-training returned no gradient for {self.user_name[str(x.name)]!r}. "
                    'Use the builder "builtin".'
                )
            if yields and graphs.origin(value) in yields:
                value = self.op.Sum(
                    value
                )  # a copy that no optimizer removes: TrainingAgent cannot return its own inputs
            named.append((graphs.unique_name(f"{self.user_name[str(x.name)]}_grad", taken), value))
        return named

    def _zeros(self, x: ir.Value, yields: Sequence[ir.Node]) -> ir.Value:
        op, shape = self.op, self.op.Shape(self.values[str(x.name)])
        if yields:
            shape = graphs.depending_on(op, shape, yields[0].outputs[0])
        return self._filled(0.0, shape, x.dtype)

    def _filled(self, number: float, shape: ir.Value, dtype: ir.DataType | None) -> ir.Value:
        filling = ir.tensor(np.full(1, number, dtype.numpy()), name="filling")  # type: ignore[union-attr]
        return self.op.ConstantOfShape(shape, value=filling)

    # ------------------------------------------------------- from the outputs

    def _outputs(self, model: ir.Model, options: int) -> list[tuple[str, ir.Value]]:
        computed = [self.values[str(y.name)] for y in self.outputs]
        yields = [node for node in model.graph if node.op_type == "YieldOp"]
        if options & KEEP_YIELD_OP:
            if not yields:
                raise GradientError("No output depends on the values to differentiate, so there is no gradient.")
            self._copy_passed_on(yields)
            return self._gradients(yields)
        taken = {*self.user_name.values(), *self.output_names}
        incoming = _incoming_of(yields)
        for i, (name, y) in enumerate(zip(self.output_names, self.outputs, strict=True)):
            if not graphs.is_float(y):
                continue
            if options & FILL_GRAD:
                dy = self._filled(1.0, self.op.Shape(computed[i]), y.dtype)
            else:
                dy = ir.Value(name=graphs.unique_name(f"{name}_grad", taken), type=y.type, shape=y.shape)
                model.graph.inputs.append(dy)
            if i in incoming:
                self._rename(incoming[i], f"{name}_given")
                ir.convenience.replace_all_uses_with(incoming[i], dy)
        named = self._gradients()
        for node in yields:
            model.graph.remove(node, safe=True)
        return named + (self._kept(computed) if options & KEEP_OUTPUTS else [])

    def _kept(self, computed: Sequence[ir.Value]) -> list[tuple[str, ir.Value]]:
        """Return the outputs of the model; an output that is an input is returned as the input."""
        inputs = {user_name: self.values[name] for name, user_name in self.user_name.items()}
        return [(name, inputs.get(name, y)) for name, y in zip(self.output_names, computed, strict=True)]

    def _copy_passed_on(self, yields: Sequence[ir.Node]) -> None:
        """Copy outputs that share the memory of an input: TrainingAgent would return the input itself."""
        for node in yields:
            for i, y in enumerate(node.inputs):
                if y is not None and graphs.origin(y) is None and y.dtype != ir.DataType.BOOL:
                    node.replace_input_with(i, self.op.Sum(y) if graphs.is_float(y) else self.op.Max(y))

    def _rename(self, value: ir.Value, name: str) -> None:
        """Name `value`, and rename any other value of this name."""
        if value.name == name:
            return
        other = values_by_name(self.op.builder.graph).get(name)
        if other is not None and other is not value:
            other.name = graphs.unique_name(name, self.op.builder.names)
        value.name = name


def _incoming_of(yields: Iterable[ir.Node]) -> dict[int, ir.Value]:
    """Return the output of YieldOp that is the gradient of each differentiated output, by its index."""
    found: dict[int, ir.Value] = {}
    for node in yields:
        flat = node.attributes.get("non_differentiable_outputs")
        skipped = set(flat.as_ints()) if flat is not None else set()
        derived = [i for i in range(len(node.inputs)) if i not in skipped]
        found.update(zip(derived, node.outputs, strict=True))
    return found


# -------------------------------------------------- appended to another graph


def append_gradients(model: ir.Model, output: ir.Value, wrt: Sequence[ir.Value]) -> dict[ir.Value, ir.Value]:
    """Append the gradient of a value to its graph, derived by GradientGraphBuilder.

    The forward pass that the gradient reads is appended too; nodes that duplicate
    nodes of the graph are merged when the model is saved.

    Parameters
    ----------
    model : onnx_ir.Model
        Changed in place.
    output : onnx_ir.Value
        The loss; several elements are summed.
    wrt : sequence of onnx_ir.Value
        Inputs or initializers of the graph.

    Returns
    -------
    dict of value to value
        The gradients. A value of `wrt` on which the output does not depend is missing.

    Raises
    ------
    ImportError
        There is no training build of onnxruntime.
    GradientError
        It cannot derive this graph.
    """
    require()
    copy = ir.from_proto(ir.to_proto(model))
    values = values_by_name(copy.graph)
    sources = [*model.graph.inputs, *model.graph.initializers.values()]
    twins = {values[str(v.name)]: v for v in sources}
    wanted = {values[str(x.name)]: x for x in wrt}
    copy.graph.outputs[:] = [total(copy, values[str(output.name)])]
    passes.RemoveUnusedNodesPass()(copy)
    depends = reaching(copy, prepare(copy, list(wanted)))
    reached = {twin: x for twin, x in wanted.items() if twin in depends}
    if not reached:
        return {}
    copy.ir_version = graphs.IR_VERSION
    proto = loss_gradient(ir.to_proto(copy), str(copy.graph.outputs[0].name), [str(twin.name) for twin in reached])
    known = _inline(model, ir.from_proto(proto), {str(twin.name): v for twin, v in twins.items()})
    found = {}
    for twin, x in reached.items():
        dx = known[f"{twin.name}_grad"]
        dx.type, dx.shape = x.type, x.shape
        found[x] = dx
    return found


def _inline(model: ir.Model, foreign: ir.Model, known: dict[str, ir.Value]) -> dict[str, ir.Value]:
    """Append the nodes of `foreign`; `known` maps its names to values of `model` and is updated."""
    build = graphs.builder(model)
    for name, value in foreign.graph.initializers.items():
        if name not in known:
            known[name] = build.op.initializer(value.const_value, name=name)
    passes.TopologicalSortPass()(foreign)
    for node in foreign.graph:
        twin = ir.node(
            node.op_type,
            [None if x is None else known[str(x.name)] for x in node.inputs],
            attributes=dict(node.attributes),
            domain=node.domain,
            num_outputs=len(node.outputs),
        )
        for mine, theirs in zip(twin.outputs, node.outputs, strict=True):
            mine.type, mine.shape = theirs.type, theirs.shape
            mine.name = graphs.unique_name(theirs.name, build.names) if theirs.name else ""
            known[str(theirs.name)] = mine
        model.graph.append(twin)
    for domain, version in foreign.opset_imports.items():
        if any(node.domain == domain for node in foreign.graph):
            model.opset_imports.setdefault(domain, version)
    return known
