"""A user's estimator or ONNX model, in trainable form."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from onnxtrain import graph
from onnxtrain.convert import Binding
from onnxtrain.convert.dynamo import Module, settled
from onnxtrain.convert.export_warnings import remarks
from onnxtrain.convert.faulty_files import remedy_of_faulty_file
from onnxtrain.convert.foreign import batch_size, open_batch, put_back, with_lengths_of
from onnxtrain.convert.head import with_new_head
from onnxtrain.convert.keras import remarks_on_keras, with_one_intercept
from onnxtrain.convert.low_rank import LowRank, merged, with_factors, without_factors
from onnxtrain.convert.merged import holders_of, owners_of_copies, separate_merged, with_own_copies
from onnxtrain.convert.model_inputs import Entrance
from onnxtrain.convert.padding import with_padding
from onnxtrain.convert.quantized import has_integers, with_master_copies
from onnxtrain.convert.tied_weights import tied
from onnxtrain.errors import ConvergenceError, GradientError, ModelError, ParameterError, as_model_error, warn
from onnxtrain.estimators.protocols import Features, OnnxModel, is_onnx
from onnxtrain.losses.link import Link
from onnxtrain.rewrite import rewrite_model
from onnxtrain.training.model import Reading, TrainableModel, initial_weights, read_model, with_weights
from onnxtrain.training.parameters import Role, made_by_code, record_buffers, roles_by_exporter

#: The types of weights that lose small changes when they are written back. The training sees the rounding of integers.
_HALVES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)

#: The share of moved elements with their old values in the file from which most of the training is lost.
_MANY = 0.75


@dataclass(frozen=True)
class Source:
    """A trainable model and its origin.

    Attributes
    ----------
    model : TrainableModel
    estimator : object or None
        The fitted scikit-learn estimator that was converted.
    bindings : tuple of Binding
        The attribute of the estimator that each weight corresponds to.
    original : bytes or None
        The user's ONNX model, its fixed inputs with their values as defaults, the types and shapes of its results true.
    entrance : Entrance or None
        How rows reach the inputs of the ONNX model.
    layout : mapping of str to mapping
        The location of its tensors that were stored in external data files.
    remarks : tuple of str
        Warnings to give if all parameters of the model are trained.
    answers : dict
        The results of the estimator on the compared rows, by method.
    agreed : dict
        Earlier comparisons: the settings under which the predictions were found equal to the estimator's, and whether
        the scores were the decision function. The candidates of a search share this object, and comparing rows again
        takes a twentieth of a fit.
    """

    model: TrainableModel
    estimator: Any = None
    bindings: tuple[Binding, ...] = ()
    original: bytes | None = field(default=None, repr=False)
    entrance: Entrance | None = None
    layout: graph.Layout = field(default_factory=dict, repr=False)
    remarks: tuple[str, ...] = ()
    answers: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    agreed: dict[Hashable, bool] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of_onnx(cls, onx: OnnxModel, X: Features, reading: Reading, entrance: Entrance | None = None) -> Source:
        """Return a trainable ONNX model, with the rows on the first axis of each input.

        Parameters
        ----------
        onx : onnx.ModelProto, bytes or path
        X : array-like
            Rows, which give the lengths of axes that the model leaves open.
        reading : Reading
        entrance : Entrance, optional
            How rows reach the inputs of the model; by default, as the model declares them.
        """
        entrance = Entrance.of(onx) if entrance is None else entrance
        proto = entrance.with_defaults(onx)
        with as_model_error("The parameters of the model cannot be found"):  # the nodes are checked later
            roles = roles_by_exporter(with_own_copies(proto)) | dict.fromkeys(entrance.fixed, Role.BUFFER)
        try:
            plain = rewritten(with_lengths_of(open_batch(entrance.rows_first(proto)), X))
            model = read_model(plain, reading, roles=roles)
        except ModelError as e:
            if remedy := remedy_of_faulty_file(proto, str(e)):
                raise ModelError(f"{str(e).removesuffix('.')}. {remedy}") from e
            raise
        keys = graph.keys_of_columns(proto, model.output) if model.classes is None and reading.labels else None
        if keys is not None and len(keys) == model.width:
            model = replace(model, classes=np.array(keys))
        held = graph.held_by_name(model.graph())
        if held:
            model = replace(model, held=graph.held_by_key(model.graph()), learned=tuple(held))
        said = (*remarks(proto, model.default, model.weights), *remarks_on_keras(proto, model.default))
        return cls(model, original=_truly_declared(proto).SerializeToString(), entrance=entrance, remarks=said)

    @contextmanager
    def remedy_in_errors(self) -> Iterator[None]:
        """Add to an error the remedy for the user's file, if its exporter wrote it wrongly."""
        try:
            yield
        except (ConvergenceError, GradientError, ModelError) as e:
            if remedy := self._remedy_of(str(e)):
                raise type(e)(f"{str(e).rstrip('.')}. {remedy}") from e
            raise

    def _remedy_of(self, error: str) -> str:
        """Return the remedy if the user's file, as its exporter wrote it, raised an error; else ""."""
        if self.original is None:
            return ""
        with suppress(ModelError), as_model_error("The model cannot be read"):
            return remedy_of_faulty_file(onnx.load_model_from_string(self.original), error)
        return ""

    @property
    def factors(self) -> list[LowRank]:
        """The low-rank factors of weights."""
        return [LowRank(*fields) for fields in self.model.low_rank]

    def merged(self, weights: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the trained weights under the names of the original model, with low-rank factors merged into them."""
        if not self.factors:
            return weights
        return merged(weights, self.factors, self.initial_weights(tuple(f.weight for f in self.factors)))

    def with_weights(self, weights: Mapping[str, np.ndarray], *, merge: bool = True) -> onnx.ModelProto:
        """Return the original model, with its inputs, outputs and types, and the given weights.

        If not `merge`, low-rank factors stay separate weights.
        """
        found = self._with_weights(weights, merge=merge)
        return found if self.entrance is None else self.entrance.as_file(found, weights)

    def _with_weights(self, weights: Mapping[str, np.ndarray], *, merge: bool) -> onnx.ModelProto:
        if self.factors and not merge:
            return self._with_factors(weights)
        weights = self.merged(weights)
        if self.original is None:
            plain = without_factors(self.model.graph(), self.factors) if self.factors else self.model.graph()
            own = with_weights(plain, weights, outputs=self.model.outputs)
            record_buffers(own, {*self.model.weights}.difference(self.model.default, weights))
            joined = self.model.link is Link.SIGMOIDS or self.model.output not in self.model.outputs
            # only training needs the node that concatenates the scores of labels
            return graph.save(graph.load(own)) if joined else own
        original = onnx.load_model_from_string(self.original)
        own_file = put_back(original, weights, self.model.graph())
        if own_file is not None:
            self._warn_of_rounding(original, own_file, weights)
            return graph.attach(own_file)
        if original.functions:
            warn(
                "Weights inside functions of the model were trained. Each call has its own weights, so the exported "
                "model has the nodes of its functions in place of the calls, and another opset."
            )
        trained = _with_integers_again(original, weights, self.model.graph())
        trained = with_weights(rewritten(self.original), weights) if trained is None else trained
        kept = {part.name for part in (*trained.graph.input, *trained.graph.initializer)}
        unread = {i.name for i in original.graph.input} - kept
        trained.graph.initializer.extend(w for w in original.graph.initializer if w.name in unread)
        graph.assign(trained.graph.input, original.graph.input)
        graph.attach(trained)
        return graph.with_maps_of(trained, original)

    def _warn_of_rounding(
        self, original: onnx.ModelProto, trained: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> None:
        """Warn if most of the training is lost because the user's file stores weights in half precision."""
        before, after = holders_of(original), holders_of(trained)
        halves = [x for x in weights if x in before and before[x].data_type in _HALVES]
        initial = self.initial_weights(tuple(halves))
        moved = {x: weights[x] != initial[x] for x in halves}
        n_moved = sum(int(moved[x].sum()) for x in halves)
        n_lost = sum(int((moved[x] & (graph.array_of(before[x]) == graph.array_of(after[x]))).sum()) for x in halves)
        if n_lost > _MANY * n_moved:
            warn(
                f"The original file stores weights in half precision. Training moved {n_moved} of their elements, but "
                f"{n_lost} round to their old values, so the exported file predicts almost as the original. Fit with a "
                "larger learning_rate or for more epochs, or train a float32 file: in PyTorch, export model.float()."
            )

    def _with_factors(self, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
        """Return the user's file with separate factors if the weights are its initializers, else the trainable form."""
        if self.original is not None:
            own = {name for f in self.factors for name in (f.a, f.b)}
            original = onnx.load_model_from_string(self.original)
            others = {name: w for name, w in weights.items() if name not in own}
            put = put_back(original, others, self.model.graph())
            found = None if put is None else with_factors(put, self.factors, weights)
            if found is not None:
                return graph.attach(found)
        return with_weights(self.model.graph(), weights, outputs=self.model.outputs)

    def rows_first(self) -> bytes:
        """Return the user's ONNX model with the rows on the first axis of each input."""
        if self.original is None or self.entrance is None or not self.entrance.changes:
            return self.original or b""
        return self.entrance.rows_first(onnx.load_model_from_string(self.original)).SerializeToString()

    def initial_weights(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return the original values of weights, by name."""
        return initial_weights(self.model.graph(), names)


def _truly_declared(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a user's model whose results are declared as they are: onnxruntime refuses false element types."""
    with suppress(ModelError), graph.as_model_error("Types cannot be inferred"):
        return graph.without_false_declarations(proto)
    return proto


def rewritten(onx: graph.ModelLike) -> onnx.ModelProto:
    """Return a user's ONNX model whose weights are separate initializers, none of them an input."""
    proto = _without_defaults(graph.read(onx))
    graph.refuse_integer_products(proto)
    owners = owners_of_copies(proto)
    own = with_own_copies(proto)
    found = _in_standard_operators(own)
    found = with_master_copies(found if owners else separate_merged(found, made_by_code(proto) | settled(Module(own))))
    declared = {value.name: value.type.tensor_type.shape.dim for value in proto.graph.output}
    for value in found.graph.output:
        _complete(value.type.tensor_type.shape.dim, declared.get(value.name, ()))
    return found


def _with_integers_again(
    original: onnx.ModelProto, weights: Mapping[str, np.ndarray], trained: onnx.ModelProto
) -> onnx.ModelProto | None:
    """Return a quantized model as operators of ai.onnx, with trained weights; None if it is not quantized."""
    if not has_integers(original):
        return None
    return put_back(_in_standard_operators(with_own_copies(_without_defaults(original))), weights, trained)


def _without_defaults(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which no initializer is an input; a copy if one was."""
    if not {i.name for i in proto.graph.input} & {w.name for w in proto.graph.initializer}:
        return proto
    changed = onnx.ModelProto()
    with graph.as_model_error("The model cannot be read"):
        changed.CopyFrom(proto)
    graph.leave_out_defaults(changed.graph)
    return changed


def _in_standard_operators(own: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which each layer has its own weights as operators of ai.onnx, its integers unchanged."""
    return rewrite_model(tied(with_padding(with_one_intercept(own))))


def _complete(dims: Any, declared: Sequence[Any]) -> None:
    """Set, in place, the lengths of an output that inference left open to the declared ones, except that of rows."""
    if not dims and len(declared) > 1:
        dims.extend(declared)
    elif len(dims) == len(declared):
        for dim, given in zip(dims[1:], declared[1:], strict=True):
            if given.dim_value and not dim.dim_value:
                dim.dim_value = given.dim_value


def with_head(
    model: Any, n_outputs: int, features: str | None, output: int | str | None, random_state: np.random.RandomState
) -> tuple[onnx.ModelProto, str]:
    """Return an ONNX model with a new last layer, and the name of its output."""
    if not is_onnx(model):
        raise ParameterError(
            f"head='new' replaces the last layer of an ONNX model, but got {type(model).__name__}. An estimator gets "
            "its outputs when it is fitted: to learn other classes, leave out head='new' and pass an unfitted one, "
            "sklearn.base.clone(model), or convert it to ONNX with skl2onnx.to_onnx."
        )
    changed = with_new_head(model, n_outputs, features=features, output=output, random_state=random_state)
    return changed, changed.graph.output[-1].name


def layout_of(onx: OnnxModel) -> graph.Layout:
    """Return which tensors of an ONNX model are stored in external data files."""
    return {} if isinstance(onx, (onnx.ModelProto, bytes, bytearray)) else graph.layout_of(onx)


def opened(onx: OnnxModel, dtype: str) -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
    """Return an ONNX model, and its large weights, which stay valid only while they are referenced."""
    held: dict[str, np.ndarray] = {}
    proto = graph.read(onx, held if dtype == "float32" else None)
    if dtype != "float32" or batch_size(proto) is not None:  # to remove a fixed batch size, the complete model is run
        return graph.attach(proto) if held else proto, {}
    proto, more = graph.detached(proto)
    return proto, held | more
