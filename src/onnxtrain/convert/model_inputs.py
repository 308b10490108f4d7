"""The inputs of an ONNX model: the batch axis of each, and the inputs that are fixed for all rows.

A model is trained with the rows on the first axis of each input. If an input has another batch axis, a Transpose is
inserted after it. A fixed input becomes an initializer, repeated for each row if the model expects one value per row.
The user's file is unchanged except for the fixed values: each becomes the default of its input, unless its length is
the number of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.numpy_helper

from onnxtrain import graph
from onnxtrain.convert.lookups import lengths_of_tables, numbers_of_features, takes_missing
from onnxtrain.errors import ModelError, ParameterError
from onnxtrain.graph.query import assign, copy_of, dimensions, nodes_in
from onnxtrain.registry import did_you_mean

#: The dimensions of an input: a length, a name, or None.
Shape: TypeAlias = "tuple[int | str | None, ...]"

#: An axis of an input.
Axis: TypeAlias = "tuple[str, int]"


@dataclass(frozen=True)
class Entrance:
    """How rows reach the inputs of an ONNX model.

    Attributes
    ----------
    types : mapping of str to str
        The numpy type of each input that takes rows; float32 stands for any floating-point type.
    shapes : mapping of str to tuple or None
        The dimensions of each input, as declared or as its first layer takes them; None if the rank is unknown.
    axes : mapping of str to int
        The batch axis of each input.
    fixed : mapping of str to ndarray
        The values of the inputs that are the same for all rows.
    lengths : mapping of str to mapping of int to (str, int)
        For each axis of a fixed input that has the length of an axis of another input: that input and axis.
    tables : mapping of str to int
        For each input whose values select rows of a table, such as token ids: the number of its rows.
    missing : bool
        Whether the rows may have missing values, NaN.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Shape | None] = field(default_factory=dict)
    axes: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    lengths: Mapping[str, Mapping[int, Axis]] = field(default_factory=dict)
    tables: Mapping[str, int] = field(default_factory=dict)
    missing: bool = False

    @property
    def moved(self) -> dict[str, int]:
        """The batch axis of each input whose batch axis is not the first."""
        return {name: axis for name, axis in self.axes.items() if axis}

    @property
    def changes(self) -> bool:
        """Whether :meth:`rows_first` changes a model."""
        return bool(self.moved or self.fixed)

    @property
    def rows(self) -> dict[str, tuple[int | None, ...] | None]:
        """The shape of a row of each input, None for any length; None if the rank is unknown."""
        return {name: _row(shape, self.axes[name]) for name, shape in self.shapes.items()}

    @classmethod
    def of(
        cls,
        onx: graph.ModelLike,
        fixed: Mapping[str, Any] | None = None,
        batch_axis: Mapping[str, int | None] | None = None,
        output: int | str | None = None,
    ) -> Entrance:
        """Return the entrance of a model.

        Parameters
        ----------
        onx : onnx.ModelProto, bytes or path
        fixed : mapping of str to array-like, optional
            A scalar fills an input of any shape.
        batch_axis : mapping of str to int, optional
            The batch axis of inputs whose dimensions do not show it; None for an input without batch axis.
        output : int or str, optional
            The output whose first axis has the name of the batch axis; by default, the first output.

        Raises
        ------
        ParameterError
            An input or an axis does not exist, or a value does not fit its input.
        ModelError
            An input is not a tensor, or it has no batch axis and no value is given.
        """
        proto = graph.read(onx)
        listed = {value.name: value for value in proto.graph.input}
        told, values = dict(batch_axis or {}), dict(fixed or {})
        _check_names("batch_axis", told, listed)
        _check_names("inputs", values, listed)
        weights = {i.name for i in proto.graph.initializer}
        shapes = {name: _shape(value) for name, value in listed.items() if name in values or name not in weights}
        taking = {name: shape for name, shape in shapes.items() if name not in values}
        if not shapes:
            raise ModelError("The model has no input for rows. Export it with its rows as an input.")
        if not taking:
            raise ParameterError(
                "inputs= fixes every input of the model, so no input is left for the rows. Leave it out for one input."
            )
        declared = _shape(_chosen(proto, output))
        rows, size = _names_of_rows(taking.values(), declared), _fixed_size(list(taking.values()), declared)
        axes = {name: _axis(name, shape, told, rows, size) for name, shape in shapes.items()}
        without = next((name for name in taking if axes[name] is None), None)
        if without is not None:
            _refuse_training_step(proto)
            if without in told:
                raise ParameterError(
                    f"batch_axis={{{without!r}: None}} says that the input has no axis of rows, so it needs a value "
                    f"for all rows: inputs={{{without!r}: ...}}. If it has one, pass its index, or leave batch_axis "
                    "out."
                )
            raise ModelError(_no_rows(without, taking[without], of_torch=proto.producer_name == "pytorch"))
        known = {name: axis for name, axis in axes.items() if name in taking and axis is not None}
        for name, value in values.items():
            _check_not_rows(name, value, shapes[name], rows)
        arrays = {name: _filled(name, value, listed[name], shapes[name]) for name, value in values.items()}
        lengths = {
            name: _lengths(array, shapes[name], axes[name], taking, known, repeated=name in told or size == 1)
            for name, array in arrays.items()
        }
        types = {name: _dtype(listed[name]).str for name in taking}
        widths = numbers_of_features(proto)
        taking = {name: _with_features(shape, known[name], widths.get(name)) for name, shape in taking.items()}
        return cls(types, taking, known, arrays, lengths, lengths_of_tables(proto), takes_missing(proto))

    def with_defaults(self, onx: graph.ModelLike) -> onnx.ModelProto:
        """Return a model in which the fixed values are the defaults of their inputs."""
        proto = graph.read(onx)
        if not self.fixed:
            return proto
        changed = copy_of(proto)
        assign(changed.graph.initializer, [i for i in proto.graph.initializer if i.name not in self.fixed])
        changed.graph.initializer.extend(onnx.numpy_helper.from_array(x, name) for name, x in self.fixed.items())
        return changed

    def with_branches_taken(self, onx: graph.ModelLike) -> graph.ModelLike:
        """Return a model in which the branch that the fixed values choose replaces each If of the main graph."""
        proto = graph.read(onx)
        if not self.fixed or not any(node.op_type == "If" for node in proto.graph.node):
            return onx
        known = self.with_defaults(onx)
        assign(known.graph.input, [value for value in proto.graph.input if value.name not in self.fixed])
        taken = graph.with_branches_taken(graph.inline_functions(known))
        assign(taken.graph.input, proto.graph.input)
        assign(taken.graph.initializer, [w for w in taken.graph.initializer if w.name not in self.fixed])
        return taken

    def as_file(self, onx: onnx.ModelProto, trained: Collection[str]) -> onnx.ModelProto:
        """Return a model with defaults in the form for users, without the defaults whose length is the number of rows.

        With such a default, onnxruntime would accept no more rows than the default has. A `trained` default must be
        kept.
        """
        repeated = {name for name, lengths in self.lengths.items() if lengths} - set(trained)
        if not repeated:
            return onx
        changed = copy_of(onx)
        assign(changed.graph.initializer, [i for i in onx.graph.initializer if i.name not in repeated])
        return changed

    def rows_first(self, onx: onnx.ModelProto) -> onnx.ModelProto:
        """Return a model with the rows on the first axis of each input, and the fixed inputs as constants."""
        if not self.changes:
            return onx
        changed = copy_of(onx)
        assign(changed.graph.input, [value for value in onx.graph.input if value.name not in self.fixed])
        inner, nodes = _transposed(changed, self.moved)
        for name, lengths in self.lengths.items():
            if lengths:
                nodes += _repeated(
                    changed, name, {i: (inner.get(other, other), j) for i, (other, j) in lengths.items()}
                )
        assign(changed.graph.node, [*nodes, *changed.graph.node])
        return changed


def _check_names(parameter: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise ParameterError(f"{parameter}: the model has no input {name!r}. {did_you_mean(name, known)}")


def _refuse_training_step(onx: onnx.ModelProto) -> None:
    """Raise a ModelError for the step.onnx of export_training_step, which returns the next state as ``next_``."""
    returned = {value.name for value in onx.graph.output}
    state = [value.name for value in onx.graph.input if f"next_{value.name}" in returned]
    if state and any(value.name == "learning_rate" for value in onx.graph.input):
        raise ModelError(
            f"The file is a training step: it takes the state {', '.join(state)} and returns the next one. Pass the "
            "model that was exported with export_training_step. To train it further from the state that the step has "
            "reached, call load_training_state(state) of its estimator, then partial_fit(X, y)."
        )


def _no_rows(name: str, shape: Shape | None, *, of_torch: bool) -> str:
    if shape == ():
        default = (
            " If forward has a default for it, such as logits_to_keep of transformers, torch.onnx.export(..., "
            "dynamo=False) should not have made it an input: use dynamo=True."
        )
        return (
            f"The input {name!r} of the model is a scalar, the same for all rows. Pass its value with "
            f"inputs={{{name!r}: ...}}.{default if of_torch else ''}"
        )
    if "edge" in name.casefold():
        return (
            f"The input {name!r} of the model, of shape {shape}, has no batch axis. It seems to hold the edges of one "
            "graph, whose nodes are not rows. Export the network for inputs with a first axis of graphs, such as "
            "(graphs, nodes, features) and an adjacency matrix (graphs, nodes, nodes)."
        )
    return (
        f"The input {name!r} of the model has the fixed shape {shape}, without a batch axis. Pass its value with "
        f"inputs={{{name!r}: ...}}, or set its batch axis with batch_axis={{{name!r}: ...}}."
    )


# ------------------------------------------------------------ what is declared


def _shape(value: onnx.ValueInfoProto | None) -> Shape | None:
    found = None if value is None else dimensions(value)
    return None if found is None else tuple(found)


def _with_features(shape: Shape | None, axis: int, n_features: int | None) -> Shape | None:
    """Return the shape of an input whose features are its open last axis."""
    if n_features is None or not shape or axis == len(shape) - 1 or isinstance(shape[-1], int):
        return shape
    return (*shape[:-1], n_features)


def _row(shape: Shape | None, axis: int) -> tuple[int | None, ...] | None:
    if shape is None:
        return None
    return tuple(d if isinstance(d, int) else None for i, d in enumerate(shape) if i != axis)


def _dtype(value: onnx.ValueInfoProto) -> np.dtype:
    """Return the type of an input, float32 for any floating-point type."""
    element = value.type.tensor_type.elem_type
    if not element:
        kind = (value.type.WhichOneof("value") or "none").removesuffix("_type")
        raise ModelError(
            f"The input {value.name!r} of the model is not a tensor ({kind}), so it cannot take rows. Export the model "
            "with a tensor in its place."
        )
    if element in graph.FLOATS:
        return np.dtype(np.float32)
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element))
    if dtype.type.__module__ != "numpy":  # types of 2, 4 and 8 bits
        raise ModelError(
            f"The input {value.name!r} of the model has dtype {dtype}, which numpy does not have. Put a Cast from a "
            "numpy dtype, such as int8 or float32, in front of it."
        )
    return dtype


def _chosen(proto: onnx.ModelProto, output: int | str | None) -> onnx.ValueInfoProto | None:
    outputs = list(proto.graph.output)
    if isinstance(output, str):
        return next((value for value in outputs if value.name == output), None)
    position = 0 if output is None else int(output)
    return outputs[position] if -len(outputs) <= position < len(outputs) else None


def _names_of_rows(shapes: Iterable[Shape | None], output: Shape | None) -> set[str]:
    """Return the names of the batch axis: those of the first axes of the inputs, or of the output.

    If the output has no axis with the name of an input's first axis, such as time, the first axis of the output
    decides.
    """
    known = [shape for shape in shapes if shape]
    first_axes = {shape[0] for shape in known if isinstance(shape[0], str)}
    first = output[0] if output else None
    if not isinstance(first, str) or not any(first in shape for shape in known):
        return first_axes
    return first_axes if (first_axes - {first}).intersection(output or ()) else {first}


def _fixed_size(shapes: Sequence[Shape | None], output: Shape | None) -> int | None:
    """Return the fixed batch size of a model, or None if batches may be of any size.

    The output decides, or else the inputs if they agree.
    """
    if not shapes or any(not (shape and isinstance(shape[0], int)) for shape in shapes):
        return None
    if output and isinstance(output[0], int):
        return output[0]
    lengths = [shape[0] for shape in shapes if shape and isinstance(shape[0], int)]
    return lengths[0] if not output or len(set(lengths)) == 1 else None


def _axis(name: str, shape: Shape | None, told: Mapping[str, Any], rows: set[str], size: int | None) -> int | None:
    """Return the batch axis of an input, or None if it has none; `size` is as in :func:`_fixed_size`."""
    if name in told:
        return _told(name, told[name], shape)
    if shape is None or (shape and shape[0] in rows):
        return 0
    if not shape:
        return None
    named = [i for i, d in enumerate(shape) if d in rows]
    if len(named) == 1:
        return named[0]
    if not isinstance(shape[0], int) or shape[0] == size:
        return 0
    possible = [i for i, d in enumerate(shape) if d == size]  # size is None if batches may be of any size
    return possible[0] if len(possible) == 1 else 0 if size else None


def _told(name: str, axis: Any, shape: Shape | None) -> int | None:
    if axis is None:
        return None
    rank = 1 if shape is None else len(shape)
    if not isinstance(axis, Integral) or isinstance(axis, bool) or not -rank <= int(axis) < rank:
        axes = "unknown shape" if shape is None else f"{rank} axes"
        raise ParameterError(
            f"batch_axis={{{name!r}: {axis!r}}} is not an axis of the input, which has {axes}. The first is 0."
        )
    return int(axis) % rank


# ------------------------------------------------------------ inputs that are fixed


def _filled(name: str, value: Any, declared: onnx.ValueInfoProto, shape: Shape | None) -> np.ndarray:
    """Return a fixed value in the type and rank of its input; a scalar gets length 1 on open axes."""
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(declared.type.tensor_type.elem_type))
    given = np.asarray(value)
    try:
        array = given.astype(dtype)
    except (TypeError, ValueError) as e:
        raise ParameterError(
            f"inputs[{name!r}] must have the dtype {dtype} of the model input, got {value!r:.80}. Pass a number or an "
            "array."
        ) from e
    if dtype.kind in "iub" and not np.array_equal(array, given):
        raise ParameterError(f"inputs[{name!r}] must have the dtype {dtype} of the model input, got {value!r:.80}.")
    if shape is None:
        return array
    if array.ndim == 0:
        return np.full([d if isinstance(d, int) else 1 for d in shape], array, dtype)
    if array.ndim != len(shape) or any(isinstance(d, int) and d != n for d, n in zip(shape, array.shape, strict=True)):
        raise ParameterError(
            f"inputs[{name!r}] must have the shape {_text(shape)} of the model input, got {array.shape}. The batch "
            "axis has length 1, and a scalar fills any shape."
        )
    return array


def _check_not_rows(name: str, value: Any, shape: Shape | None, rows: set[str]) -> None:
    """Raise a ParameterError for a fixed value that has an entry for each row."""
    given = np.shape(value)
    for n, d in zip(given, shape or (), strict=False):
        if d in rows and n > 1 and len(given) == len(shape or ()):
            raise ParameterError(
                f"inputs[{name!r}] has {n} rows, but inputs= sets values that are the same for all rows. Pass it in X, "
                f"with the other inputs: X={{{name!r}: ...}}."
            )


def _text(shape: Shape) -> str:
    return "(" + ", ".join("?" if d is None else str(d) for d in shape) + ("," if len(shape) == 1 else "") + ")"


def _lengths(
    array: np.ndarray,
    shape: Shape | None,
    axis: int | None,
    taking: Mapping[str, Shape | None],
    axes: Mapping[str, int],
    *,
    repeated: bool,
) -> dict[int, Axis]:
    """Return the axes of a fixed value that share their length with axes of other inputs: the rows, and others by name.

    `repeated` says that the model is for batches of one row, so that a batch axis of fixed length is repeated.
    """
    places: dict[Any, Axis] = {}
    for name, other in taking.items():
        for i, d in enumerate(other or ()):
            places.setdefault(d, (name, i))
    found = {}
    for i, d in enumerate(shape or ()):
        if array.shape[i] != 1:
            continue
        if i == axis and (repeated or not isinstance(d, int)):
            found[i] = next(iter(axes.items()))
        elif isinstance(d, str) and d in places:
            found[i] = places[d]
    return found


# ------------------------------------------------------------ changes of a graph


def _transposed(onx: onnx.ModelProto, moved: Mapping[str, int]) -> tuple[dict[str, str], list[onnx.NodeProto]]:
    """Change inputs, in place, to have the rows first; return their names after the Transpose, and the nodes.

    `moved` maps each input to its batch axis in the model.
    """
    inner, nodes = {}, []
    for value in onx.graph.input:
        if value.name in moved:
            axis, dims = moved[value.name], value.type.tensor_type.shape.dim
            inner[value.name] = _renamed(onx, value.name)
            order = [*range(1, axis + 1), 0, *range(axis + 1, len(dims))]
            nodes.append(onnx.helper.make_node("Transpose", [value.name], [inner[value.name]], perm=order))
            assign(dims, [dims[i] for i in np.argsort(order)])
    return inner, nodes


def _repeated(onx: onnx.ModelProto, name: str, lengths: Mapping[int, Axis]) -> list[onnx.NodeProto]:
    """Repeat a fixed value, in place, to the length of other inputs on some axes; return the nodes that do so."""
    (held,) = (i for i in onx.graph.initializer if i.name == name)
    inner = _renamed(onx, name)
    nodes, parts = [], []
    for i in range(len(held.dims)):
        part = f"{inner}_length_{i}"
        parts.append(part)
        if i not in lengths:
            onx.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(1, np.int64), part))
            continue
        other, axis = lengths[i]
        onx.graph.initializer.append(onnx.numpy_helper.from_array(np.array([axis]), f"{part}_axis"))
        nodes.append(onnx.helper.make_node("Shape", [other], [f"{part}_shape"]))
        nodes.append(onnx.helper.make_node("Gather", [f"{part}_shape", f"{part}_axis"], [part]))
    nodes.append(onnx.helper.make_node("Concat", parts, [f"{inner}_shape"], axis=0))
    nodes.append(onnx.helper.make_node("Expand", [name, f"{inner}_shape"], [inner]))
    return nodes


def _renamed(onx: onnx.ModelProto, name: str) -> str:
    """Replace an input by another value in all nodes, in place; return the name of that value."""
    known = {part.name for part in (*onx.graph.input, *onx.graph.initializer)}
    known |= {y for node in nodes_in(onx.graph.node) for y in node.output}
    new = graph.unique_name(f"{name}_of_the_model", known)
    for node in nodes_in(onx.graph.node):
        for i, x in enumerate(node.input):
            if x == name:
                node.input[i] = new
    return new
