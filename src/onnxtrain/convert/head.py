"""Replace the last layer of a model by a new one with the number of outputs that another task needs.

The user's opset, nodes and names are kept; only the last layer and nodes that cannot follow the new one change.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes
from sklearn.utils import check_random_state

from onnxtrain import graph
from onnxtrain.arguments import lists_its_arguments, seeded
from onnxtrain.convert.dynamo import OPERATION
from onnxtrain.convert.last_layer import Layer, as_layer, constant_array, last_layer
from onnxtrain.errors import ModelError, ParameterError
from onnxtrain.losses.outputs import choose_output
from onnxtrain.rewrite import rewrite_model

#: The names of the new initializers, unless the model already uses them.
WEIGHT, BIAS = "head.weight", "head.bias"

#: The first opset at which ReduceMean takes its axes as an input.
_AXES_AS_INPUT = 18


@lists_its_arguments
@graph.as_model_error("The model cannot get a new head")
def with_new_head(
    model: graph.ModelLike,
    n_outputs: int,
    *,
    features: str | None = None,
    output: int | str | None = None,
    random_state: Any = None,
) -> onnx.ModelProto:
    r"""Return a model whose last linear layer is replaced by a new layer of `n_outputs` outputs.

    The new weights are uniform in :math:`\pm\sqrt{6 / (p + q)}` for p features and q outputs; intercepts are zero.

    Parameters
    ----------
    model : onnx.ModelProto, bytes or path
        The model; it is not changed.
    n_outputs : int
        The number of outputs, 1 or more.
    features : str, optional
        The name of a value (n, p) of the model, or of an input. The new layer is applied to this value, and its result
        is the output. A value with more axes is first averaged over them: (n, p, h, w) over h and w, (n, t, p) over t;
        a value (n, p, t) of a convolution over t; (t, n, p) over t if n has the name of the inputs' first axis. None:
        the last linear layer is replaced. This is a Gemm, MatMul or Conv with constant weights that is on all paths to
        the output, with no weights of another form after it. The nodes after it are kept if they work for any number
        of outputs, such as Softmax.
    output : int or str, optional
        The output whose last layer is replaced, if there are several. Other outputs that depend on that layer are
        removed.
    random_state : int, RandomState or None
        The seed of the new weights.

    Returns
    -------
    onnx.ModelProto
        The new model, with the initializers ``head.weight`` and ``head.bias``; if `model` has these names,
        ``head.weight_1`` and ``head.bias_1``. Its opset, names and other weights are those of `model`.

    Raises
    ------
    ModelError
        There is no value of this name, or no layer that can be replaced.

    Examples
    --------
    A classifier of three classes becomes one of five:

    >>> import numpy as np
    >>> from skl2onnx import to_onnx
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neural_network import MLPClassifier
    >>> from onnxtrain import with_new_head
    >>> X, y = load_iris(return_X_y=True)
    >>> mlp = MLPClassifier((8,), tol=0.1, random_state=0).fit(X, y)
    >>> body = to_onnx(mlp, X[:1].astype(np.float32), options={"zipmap": False})
    >>> changed = with_new_head(body, 5, random_state=0)
    >>> [(w.name, tuple(w.dims)) for w in changed.graph.initializer if w.name.startswith("head")]
    [('head.weight', (8, 5)), ('head.bias', (5,))]
    """
    if not isinstance(n_outputs, (int, np.integer)) or isinstance(n_outputs, bool) or n_outputs < 1:
        raise ParameterError(
            f"n_outputs must be an integer >= 1, got {n_outputs!r:.40}. Pass the number of classes, "
            "len(numpy.unique(y))."
        )
    proto = graph.inline_functions(graph.without_maps(graph.read(model)))
    graph.leave_out_listed_weights(proto)
    if any(node.domain == "ai.onnx.ml" for node in proto.graph.node):
        proto = rewrite_model(proto)
    with graph.as_model_error("Shapes cannot be inferred"):
        changed = ir.from_proto(graph.infer_shapes(proto))
        graph.put_in_order(changed)  # refuses cycles
    rng = seeded(check_random_state, random_state)
    if features is None:
        chosen = choose_output(changed, output, labels=True)
        try:
            layer = last_layer(changed, chosen, _remedy(changed, chosen))
        except ModelError:
            graph.refuse_integer_products(proto)  # its layers are no products of floats
            raise
        cut, scores = _replaced(changed, layer, chosen, int(n_outputs), rng)
    else:
        known = [v for v in _values(changed) if v.name == features] or _with_features(changed)
        results = graph.results_with(proto.graph.node, features)
        if results and not any(v.name == features for v in known):
            raise ModelError(
                f"The model has no value {features!r}. The layer with these weights returns {results[-1]!r}."
            )
        cut = graph.find(known, features, "value")
        if not _has_features(cut) or not _shows_rows(changed, cut):
            _infer_at_newest_opset(proto, cut)
        if not _has_features(cut):
            _take_shape_of_layer(cut)
        scores = _on_features(changed, cut, int(n_outputs), rng)
    return graph.with_nodes_of(_written(changed, cut, scores), proto)


def _remedy(model: ir.Model, output: ir.Value) -> str:
    reached = graph.ancestors([output])
    nodes = [node for node in model.graph if any(y in reached for y in node.outputs)]
    return f"Set features to the name of the value that the new layer takes, such as {_near_values(model, nodes)}"


def _near_values(model: ir.Model, nodes: list[ir.Node]) -> str:
    """Return the names of some values near the output, or of the output, that hold features of rows, for a message.

    One feature is only named if there are no others: it is the norm by which the features are divided.
    """
    made = {y for node in nodes for y in node.outputs}
    rows, outputs = _names_of_rows(model), model.graph.outputs
    known = [v for v in _with_features(model) if v in made]
    named = [v for v in known if v in outputs or not rows or any(dim in rows for dim in v.shape or ())]
    several = [v for v in named if _n_features(v) > 1]
    return ", ".join(map(graph.describe, (several or named)[-3:])) or "a value with a feature axis"


def _another_value(model: ir.Model) -> str:
    return f"Set features to the name of another value, such as {_near_values(model, list(model.graph))}."


# ------------------------------------------------------------ the new layer


def _replaced(
    model: ir.Model, layer: Layer, output: ir.Value, n_outputs: int, rng: np.random.RandomState
) -> tuple[ir.Value, ir.Value]:
    """Replace the weights of a layer in place; return its product and the last following value of the new width."""
    before = layer.weight.shape[layer.axis]
    shape = list(layer.weight.shape)
    shape[layer.axis] = n_outputs
    n_in, n_out = math.prod(shape) // n_outputs, n_outputs * math.prod(shape[2:])
    layer.product.replace_input_with(1, _drawn(model, shape, n_in + n_out, layer.weight.dtype, rng))
    bias = _initializer(model, BIAS, np.zeros(n_outputs, layer.weight.dtype))
    product = layer.product
    scores = product.outputs[0]
    if layer.bias is not None:
        node, position = layer.bias
        node.replace_input_with(position, bias)
        scores = node.outputs[0]
    elif product.op_type == "MatMul":
        scores = _added(model, product, bias)
    else:
        product.resize_inputs(3)
        product.replace_input_with(2, bias)
        product.attributes.pop("beta", None)  # a file without intercept may have 0
    for node in (*layer.product.inputs[1].consumers(), *bias.consumers()):  # type: ignore[union-attr]
        node.metadata_props.pop(OPERATION, None)  # the record of the exporter is about the former layer
    return product.outputs[0], _behind(model, scores, graph.ancestors([output]), before, n_outputs)


def _added(model: ir.Model, product: ir.Node, bias: ir.Value) -> ir.Value:
    """Append an intercept to a product; the consumers of the product take the sum."""
    (y,) = product.outputs
    node = ir.node("Add", [y, bias])
    total = node.outputs[0]
    total.name, total.type, total.shape = _fresh(model, f"{y.name}_with_bias"), y.type, y.shape
    model.graph.insert_after(product, node)
    y.replace_all_uses_with(total, replace_graph_outputs=True)
    node.replace_input_with(0, y)
    return total


#: Operators that work for any number of outputs, if their other floating-point operands are scalars.
_ANY_WIDTH = frozenset(
    [
        *("Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid", "Tanh", "Identity", "Cast", "Dropout", "Clip", "Exp"),
        *("Add", "Sub", "Mul", "Div", "Neg", "Relu", "LeakyRelu", "Softplus", "Flatten", "Squeeze", "Transpose"),
        *("GlobalAveragePool", "GlobalMaxPool", "AveragePool", "MaxPool", "ReduceMean", "ReduceMax", "Resize"),
        *("Gather", "GatherND", "Slice", "Unsqueeze"),
    ]
)


def _behind(model: ir.Model, scores: ir.Value, wanted: set[ir.Value], before: int, n_outputs: int) -> ir.Value:
    """Return the result of the last node in the chain to the output that works for any number of outputs."""
    axis = 1 if graph.made_by(scores, "Conv") else (graph.rank(scores) or 0) - 1
    while True:
        nodes = {use.node for use in scores.uses() if use.node.op_type != "Shape" and use.node.outputs[0] in wanted}
        node = nodes.pop() if len(nodes) == 1 else None
        if node is None or node.inputs[0] is not scores or node.domain not in ("", "ai.onnx"):
            return scores
        if node.op_type in ("Flatten", "Reshape") and n_outputs != before and _merges(node, axis):
            return scores
        if node.op_type == "Reshape":
            if not _widened(model, node, before, n_outputs):
                return scores
            axis = (graph.rank(node.outputs[0]) or 0) - 1
        elif node.op_type not in _ANY_WIDTH or (node.op_type != "Resize" and any(map(_is_wide, node.inputs[1:]))):
            return scores
        elif (n_outputs, before) != (1, 1) and axis >= 0:
            if axis in _axes_taken(node):
                return scores
            if node.op_type == "Resize":
                _resize(model, node, axis, n_outputs)
            axis = _axis_behind(node, axis)
        scores = node.outputs[0]


def _merges(node: ir.Node, axis: int) -> bool:
    """Whether a Flatten or a Reshape to an open length merges the axis of the outputs with others."""
    lengths = graph.constant(node.inputs[1]) if node.op_type == "Reshape" else np.array([0, -1])
    if lengths is None or lengths[-1] != -1:
        return False
    shape = node.inputs[0].shape or ()  # type: ignore[union-attr]
    return len(lengths) == 1 or any(d != 1 for i, d in enumerate(shape) if i not in (0, axis))


def _axes_taken(node: ir.Node) -> range | list[int]:
    """Return the axes along which a node squeezes, pools or selects."""
    n_axes = graph.rank(node.inputs[0]) or 0  # type: ignore[arg-type]
    if node.op_type.endswith("Pool"):
        return range(2, n_axes)
    if node.op_type == "GatherND":
        first, indices = graph.attribute(node, "batch_dims", 0), node.inputs[1]
        depth = indices.shape[-1] if indices is not None and indices.shape else 0
        return range(first, first + depth) if isinstance(depth, int) else range(n_axes)
    if node.op_type == "Gather":
        axes = [graph.attribute(node, "axis", 0)]
    elif node.op_type in _HAVE_AXES:
        operand = _listed(dict(enumerate(node.inputs)).get(_HAVE_AXES[node.op_type]))
        axes = graph.attribute(node, "axes", range(n_axes) if operand is None else operand)
    else:
        axes = []
    return [i % n_axes for i in axes] if n_axes else []


def _listed(value: ir.Value | None) -> list[int] | None:
    """Return the axes that a value holds, which PyTorch's exporter may write as a reshaped constant."""
    while (node := graph.made_by(value, "Identity", "Cast", "Reshape")) is not None:
        value = node.inputs[0]
    array = graph.constant(value)
    return None if array is None else array.ravel().tolist()


#: Operators that squeeze, average or select along given axes, and the operand that may give these.
_HAVE_AXES = {"Squeeze": 1, "ReduceMean": 1, "ReduceMax": 1, "Slice": 3}


def _axis_behind(node: ir.Node, axis: int) -> int:
    """Return the axis of the outputs in the result of a node that does not act along it."""
    before, after = (graph.rank(value) or 0 for value in (node.inputs[0], node.outputs[0]))  # type: ignore[arg-type]
    if node.op_type == "Flatten":
        return 1
    if node.op_type == "Transpose":
        return list(graph.attribute(node, "perm", range(before)[::-1])).index(axis)
    if node.op_type == "Unsqueeze":
        added = graph.attribute(node, "axes") or graph.constant(node.inputs[1]).tolist()  # type: ignore[union-attr]
        return [i for i in range(after) if i not in {j % after for j in added}][axis]
    in_front = sum(i < axis for i in _axes_taken(node))
    if not in_front or before == after:
        return axis
    return axis + after - before if node.op_type in ("Gather", "GatherND") else axis - in_front


def _resize(model: ir.Model, node: ir.Node, axis: int, n_outputs: int) -> None:
    """Change the constant sizes of a Resize to the new number of outputs."""
    sizes = graph.constant(node.inputs[3]) if len(node.inputs) > 3 else None
    if sizes is not None and len(sizes) > axis:
        changed = np.array([*sizes[:axis], n_outputs, *sizes[axis + 1 :]], np.int64)
        node.replace_input_with(3, _initializer(model, "head.sizes", changed))


def _is_wide(value: ir.Value | None) -> bool:
    """Whether an operand holds several floating-point values, which may belong to the former outputs."""
    array = constant_array(value)
    return graph.is_float(value) and (array is None or array.size > 1)


def _widened(model: ir.Model, node: ir.Node, before: int, n_outputs: int) -> bool:
    """Change a Reshape that ends in the former number of outputs to the new one; return whether it did."""
    joined = graph.made_by(node.inputs[1], "Concat")
    user, position = (node, 1) if joined is None else (joined, len(joined.inputs) - 1)
    lengths = graph.constant(user.inputs[position])
    if lengths is None or lengths[-1] not in (before, -1):
        return False
    if lengths[-1] == before:
        changed = np.array([*lengths[:-1], n_outputs], np.int64)
        user.replace_input_with(position, _initializer(model, "head.shape", changed))
    return True


def _on_features(model: ir.Model, features: ir.Value, n_outputs: int, rng: np.random.RandomState) -> ir.Value:
    """Append a linear layer to features; return its result."""
    x = _pooled(model, features)
    p = x.shape[-1] if x.shape is not None else None
    if not isinstance(p, int):
        raise ModelError(f"The number of features of {graph.describe(features)} is unknown. {_another_value(model)}")
    if not graph.is_float(x):
        raise ModelError(f"The value {graph.describe(features)} is not floating-point. {_another_value(model)}")
    weight = _drawn(model, [p, n_outputs], p + n_outputs, x.dtype.numpy(), rng)  # type: ignore[union-attr]
    bias = _initializer(model, BIAS, np.zeros(n_outputs, x.dtype.numpy()))  # type: ignore[union-attr]
    return _appended(model, "Gemm", [x, weight, bias], "head")


def _with_features(model: ir.Model) -> list[ir.Value]:
    """Return the values to which a new layer can be applied: floats that depend on the rows, of known width."""
    inputs = [x for x in model.graph.inputs if not x.is_initializer()]
    of_rows = graph.dependents(model.graph, inputs)
    return [v for v in _values(model) if v in of_rows and graph.is_float(v) and _has_features(v)]


def _has_features(value: ir.Value) -> bool:
    """Whether a value has rows and a feature axis of known length."""
    return _n_features(value) > 0


def _n_features(value: ir.Value) -> int:
    """Return the length of the feature axis of a value; 0 if it is unknown or there is none."""
    if value.shape is None or len(value.shape) < 2:
        return 0
    length = value.shape[-1 if len(value.shape) == 2 else _axis_of_features(value)]
    return length if isinstance(length, int) else 0


def _shows_rows(model: ir.Model, value: ir.Value) -> bool:
    """Whether the rows are on an axis of their name, or need not be looked for."""
    rows = _names_of_rows(model)
    return not rows or len(value.shape or ()) < 3 or any(dim in rows for dim in value.shape or ())


def _infer_at_newest_opset(proto: onnx.ModelProto, features: ir.Value) -> None:
    """Set the type and shape of a value behind operators of onnxruntime or of an opset with less inference in onnx."""
    shown = graph.copy_of(proto)
    if features.producer() is None or any(y.name == features.name for y in shown.graph.output):
        return
    shown.graph.output.add(name=features.name)
    found = graph.load(shown).graph.outputs[-1]
    if found.shape is not None:
        features.type, features.shape = found.type, found.shape


def _take_shape_of_layer(features: ir.Value) -> None:
    """Set the shape of a value to that in which a convolution or a Gemm takes it."""
    layers = [as_layer(use.node) for use in features.uses() if use.idx == 0]
    layer = next((found for found in layers if found is not None and found.product.op_type != "MatMul"), None)
    if layer is not None:
        open_axes = [None] * (layer.weight.ndim - 2)
        features.shape = ir.Shape([None, layer.weight.shape[1 - layer.axis], *open_axes])


def _names_of_rows(model: ir.Model) -> set[ir.SymbolicDim]:
    """Return the names of the first axes of the inputs that depend on the batch."""
    first = (x.shape[0] for x in model.graph.inputs if not x.is_initializer() and x.shape)
    return {dim for dim in first if isinstance(dim, ir.SymbolicDim) and dim.value is not None}


def _axis_of_rows(model: ir.Model, value: ir.Value, axis: int) -> int:
    """Return the axis before the features that has the name of the rows, if it is the only one; else the first."""
    rows = _names_of_rows(model)
    found = [i for i, dim in enumerate(value.shape) if dim in rows]  # type: ignore[arg-type]
    return found[0] if len(found) == 1 and found[0] < axis else 0


def _pooled(model: ir.Model, features: ir.Value) -> ir.Value:
    """Return features as (n, p): the mean over all other axes."""
    n_axes = graph.rank(features)
    if n_axes is None or n_axes < 2:
        raise ModelError(
            f"features must have shape (n, p) or more axes, got {graph.describe(features)}. {_another_value(model)}"
        )
    if n_axes == 2:
        return features
    axis = _axis_of_features(features)
    rows = _axis_of_rows(model, features, axis)
    others = [i for i in range(n_axes) if i not in (rows, axis)]
    version = model.opset_imports.get("", 1)
    if version >= _AXES_AS_INPUT:
        axes = _initializer(model, "head.axes", np.array(others, np.int64))
        pooled = _appended(model, "ReduceMean", [features, axes], "head.features", keepdims=0)
    else:
        pooled = _appended(model, "ReduceMean", [features], "head.features", keepdims=0, axes=others)
    pooled.shape = ir.Shape([features.shape[rows], features.shape[axis]])  # type: ignore[index]
    return pooled


#: The feature axis of the results of operators, and of their operands.
_AXIS = dict.fromkeys(
    [
        *("Conv", "ConvTranspose", "FusedConv", "BatchNormalization", "InstanceNormalization", "GroupNormalization"),
        *("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"),
    ],
    1,
) | dict.fromkeys(
    ["MatMul", "Gemm", "LayerNormalization", "RMSNormalization", "RNN", "GRU", "LSTM", "DynamicQuantizeLSTM"], -1
)


def _axis_of_features(value: ir.Value) -> int:
    """Return the feature axis: that of the operator that computes them, through operators that keep all axes.

    If there is none, it is the axis in which the next operator takes them.
    """
    n_axes = len(value.shape)  # type: ignore[arg-type]
    node, turns = value.producer(), []
    while node is not None and node.op_type not in _AXIS:
        if node.op_type == "Transpose":  # the lengths of two axes may be equal
            turns.append(list(graph.attribute(node, "perm", range(n_axes)[::-1])))
            node = node.inputs[0].producer()  # type: ignore[union-attr]
        else:
            node = next((x.producer() for x in node.inputs if x is not None and graph.alike(x, node.outputs[0])), None)
    if node is None:
        taking = [use.node.op_type for use in value.uses() if use.idx == 0 and use.node.op_type in _AXIS]
        return _AXIS.get(next(iter(taking), ""), 1 if n_axes > 3 else -1) % n_axes
    axis = _AXIS[node.op_type] % n_axes
    for perm in reversed(turns):
        axis = perm.index(axis)
    return axis


# ---------------------------------------------------------------- writing


def _values(model: ir.Model) -> list[ir.Value]:
    return [*(y for node in model.graph for y in node.outputs), *model.graph.inputs]


def _appended(model: ir.Model, op_type: str, operands: list[ir.Value], name: str, **attributes: Any) -> ir.Value:
    node = ir.node(op_type, operands, attributes)
    (y,) = node.outputs
    y.name, y.type = _fresh(model, name), operands[0].type
    model.graph.append(node)
    return y


def _drawn(model: ir.Model, shape: list[int], n_units: int, dtype: np.dtype, rng: np.random.RandomState) -> ir.Value:
    bound = math.sqrt(6.0 / n_units)
    return _initializer(model, WEIGHT, rng.uniform(-bound, bound, shape).astype(dtype))


def _initializer(model: ir.Model, name: str, array: np.ndarray) -> ir.Value:
    name = _fresh(model, name)
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    model.graph.register_initializer(value)
    return value


def _fresh(model: ir.Model, name: str) -> str:
    return graph.unique_name(name, graph.names_in(model.graph))


def _written(model: ir.Model, cut: ir.Value, scores: ir.Value) -> onnx.ModelProto:
    """Return the model with `scores` as an output, and those of its outputs that do not depend on the value `cut`."""
    old = graph.dependents(list(model.graph), [cut])
    kept = [y for y in model.graph.outputs if y not in old]
    for value in old:
        if value.producer() is not None:  # inputs keep their declared shapes
            value.shape = None
    model.graph.outputs[:] = [*kept, scores]
    passes.RemoveUnusedNodesPass()(model)
    proto = ir.to_proto(model)
    marked = [value for value in proto.graph.value_info if value.metadata_props]  # roles
    graph.assign(proto.graph.value_info, marked)
    with graph.as_model_error("Shapes cannot be inferred"):
        return onnx.shape_inference.infer_shapes(proto)
