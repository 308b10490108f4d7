"""A user's estimator or ONNX model, in trainable form; a model of another library is refused with its export."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import scipy.sparse
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from onnxtrain import graph
from onnxtrain.convert import Binding
from onnxtrain.convert.dynamo import Module, settled
from onnxtrain.convert.export_warnings import remarks
from onnxtrain.convert.faulty_files import remedy_of_faulty_file
from onnxtrain.convert.foreign import batch_size, open_batch, put_back, with_lengths_of
from onnxtrain.convert.head import with_new_head
from onnxtrain.convert.keras import remarks_on_keras, with_one_intercept
from onnxtrain.convert.learned import is_estimator
from onnxtrain.convert.low_rank import LowRank, merged, with_factors, without_factors
from onnxtrain.convert.merged import owners_of_copies, separate_merged, with_own_copies
from onnxtrain.convert.model_inputs import Entrance
from onnxtrain.convert.padding import with_padding
from onnxtrain.convert.quantized import has_integers, refuse_integer_products, with_master_copies
from onnxtrain.convert.tied_weights import tied
from onnxtrain.errors import ConvergenceError, GradientError, ModelError, ParameterError, as_model_error, warn
from onnxtrain.estimators.frames import comes_by_name
from onnxtrain.estimators.protocols import ArrayLike, Features, Inputs, Model, OnnxModel, is_frame, is_onnx
from onnxtrain.losses.link import Link
from onnxtrain.rewrite import rewrite_model
from onnxtrain.training.model import Reading, TrainableModel, initial_weights, read_model, with_weights
from onnxtrain.training.parameters import Role, made_by_code, record_buffers, roles_by_exporter


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
        The user's ONNX model, its fixed inputs with their values as defaults.
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
        return cls(model, original=proto.SerializeToString(), entrance=entrance, remarks=said)

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


def rewritten(onx: graph.ModelLike) -> onnx.ModelProto:
    """Return a user's ONNX model whose weights are separate initializers, none of them an input."""
    proto = _without_defaults(graph.read(onx))
    refuse_integer_products(proto)
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


def check_source(estimator: Model, X: ArrayLike | None = None, *, classifies: bool | None = None) -> None:
    """Raise a ParameterError if `estimator` cannot be trained, or predicts another kind of target.

    For a model of another library, the message shows how to export it, for rows like `X`.
    """
    if is_onnx(estimator):
        return
    if _is_ours(estimator):
        name = type(estimator).__name__
        if name == "LoRA":
            raise ParameterError("estimator must be a model, got LoRA(). Pass it as weights_to_train=LoRA(...).")
        if not hasattr(estimator, "fit"):
            found = "weights" if isinstance(estimator, Mapping) else name
            raise ParameterError(
                f"estimator must be a model, got {found} of an estimator. Pass what its get_trained_onnx() or "
                "to_sklearn() returns."
            )
        raise ParameterError(
            f"estimator is itself an {name}. Pass its model, which get_trained_onnx() or to_sklearn() returns, or "
            "continue its training with warm_start=True or partial_fit."
        )
    inner = getattr(estimator, "estimator", None)
    inner = inner.steps[-1][1] if isinstance(inner, Pipeline) and inner.steps else inner
    if hasattr(estimator, "refit") and _is_ours(inner):
        name, search = type(inner).__name__, type(estimator).__name__
        raise ParameterError(
            f"estimator is a {search} around an {name}. Put the search outside: {search}({name}(...), ...)."
        )
    if isinstance(estimator, (ColumnTransformer, Pipeline)):
        _check_steps(estimator)
    if isinstance(estimator, Pipeline):
        _check_last_step(estimator, "Classifier" if classifies else "Regressor")
    if is_estimator(estimator) and hasattr(estimator, "fit"):
        _check_members(estimator)
        if classifies is not None:
            _check_kind(estimator, classifies=classifies)
        return
    name = type(estimator).__name__
    if isinstance(estimator, type):
        network = any(kind.__module__.partition(".")[0] in _LINES for kind in estimator.__mro__)
        remedy = (
            "Create a network, export it to ONNX, and pass the file." if network else f"Pass {estimator.__name__}()."
        )
        raise ParameterError(f"estimator must be an instance, got the class {estimator.__name__}. {remedy}")
    if name in ("GraphProto", "FunctionProto", "InferenceSession"):
        raise ParameterError(f"estimator must be a whole model, got {name}. Pass the onnx.ModelProto, or its file.")
    raise ParameterError(
        f"estimator must be a scikit-learn estimator, an onnx.ModelProto, its bytes or a path, "
        f"got {type(estimator).__name__}.{_remedy(estimator, X, 'Classifier' if classifies else 'Regressor')}"
    )


def _is_ours(model: object) -> bool:
    """Whether a model is an estimator of onnxtrain, or of a user's subclass, or one of their parameter values."""
    ours = (kind.__module__.startswith("onnxtrain.estimators") for kind in type(model).__mro__)
    return not isinstance(model, type) and any(ours)


def _check_steps(pipeline: ColumnTransformer | Pipeline) -> None:
    """Raise a ParameterError for a step without a name, or that is a class or a list; also for the steps inside."""
    of_columns = isinstance(pipeline, ColumnTransformer)
    steps = pipeline.transformers if isinstance(pipeline, ColumnTransformer) else pipeline.steps
    parts = "a name, a step and its columns" if of_columns else "a name and a step"
    for named in steps if isinstance(steps, (list, tuple)) else [steps]:
        if not isinstance(named, (tuple, list)) or len(named) != 2 + of_columns:
            found = type(named).__name__ + (f" of {len(named)}" if isinstance(named, (tuple, list)) else "")
            raise ParameterError(
                f"The steps of a {type(pipeline).__name__} are tuples of {parts}, got {found}. make_pipeline(...) and "
                "make_column_transformer(...) name them."
            )
        step = named[1]
        if isinstance(step, type):
            where = "of the pipeline " if isinstance(pipeline, Pipeline) else "of the ColumnTransformer "
            raise ParameterError(
                f"A step {where}must be an instance, got the class {step.__name__}. Pass {step.__name__}()."
            )
        if isinstance(step, (int, float, Mapping)) and isinstance(pipeline, Pipeline):
            raise ParameterError(
                f"A step of the pipeline is {step!r:.80}, and not an estimator. Pass parameters to the steps or to the "
                "estimator around the pipeline, by name."
            )
        if isinstance(step, list) and isinstance(pipeline, Pipeline):
            raise ParameterError("A step of the pipeline is a list. Pass the steps one by one: make_pipeline(*steps).")
        if isinstance(step, (ColumnTransformer, Pipeline)):
            _check_steps(step)


def _check_last_step(pipeline: Pipeline, kind: str) -> None:
    """Raise a ParameterError if the last step of a pipeline is an ONNX model."""
    *steps, last = (step for _, step in pipeline.steps)
    while isinstance(last, Pipeline):
        steps, last = [*steps, *(step for _, step in last.steps[:-1])], last.steps[-1][1]
    if last is None or (isinstance(last, str) and last in ("passthrough", "drop")):
        raise ParameterError(
            f"The last step of the pipeline is {last!r}. Put a {kind.lower()} there, which is trained."
        )
    if not is_onnx(last):
        return
    found, model = (repr(str(last)),) * 2 if isinstance(last, (str, os.PathLike)) else ("an ONNX model", "onx")
    code = ", ".join([*(" ".join(repr(step).split()) for step in steps), f"OrtGradient{kind}({model})"])
    raise ParameterError(
        f"The last step of the pipeline is {found}, which is no estimator. Put the pipeline outside, and pass the ONNX "
        f"model: make_pipeline({code}). OrtGradient{kind} takes its other parameters there."
    )


def _check_members(estimator: Any) -> None:
    """Raise a ParameterError if the predictions come from an onnxtrain estimator inside, which would stay frozen."""
    kind = type(estimator).__name__
    _check_parts(estimator)
    for name, member in _members(estimator):
        if not _is_ours(member):
            _check_members(member)
            continue
        ours = type(member).__name__
        remedy = (
            f"An ONNX model is no part of a model: put the {kind} outside, {kind}(...) with the {ours} as its {name!r}."
            if is_onnx(member.estimator)
            else f"Put there the estimator that the {ours} was made from, or what its to_sklearn() returns, and give "
            "its parameters to the one outside."
        )
        raise ParameterError(f"{name!r} of the {kind} is an {ours}, whose weights would not be trained. {remedy}")


#: Words in place of an estimator inside an ensemble.
_WORDS = ("drop", "passthrough", "prefit")


def _check_parts(ensemble: Any) -> None:
    """Raise a ParameterError if an ensemble has a class, a string or None in place of an estimator."""
    named = getattr(ensemble, "estimators", ())
    parts = [part for part in named if isinstance(part, tuple) and len(part) == 2] if isinstance(named, list) else []
    required = [name for name, p in inspect.signature(type(ensemble)).parameters.items() if p.default is p.empty]
    single = {name: getattr(ensemble, name, None) for name in _SINGLE}
    parts += [(name, part) for name, part in single.items() if name in required or part is not None]
    for name, part in parts:
        if isinstance(part, type) or part is None or (isinstance(part, str) and part not in _WORDS):
            found = f"the class {part.__name__}" if isinstance(part, type) else repr(part)
            made = f"{part.__name__}()" if isinstance(part, type) else "Ridge()"
            raise ParameterError(
                f"{name!r} of the {type(ensemble).__name__} must be an estimator, got {found}. Pass it as an object, "
                f"such as {made}."
            )


#: Parameters of ensembles that hold a single estimator.
_SINGLE = ("estimator", "final_estimator", "regressor")


def _members(estimator: Any) -> list[tuple[str, Any]]:
    """Return the estimators inside an estimator from which its predictions come, by name."""
    if isinstance(estimator, Pipeline):
        return estimator.steps[-1:]
    found: list[tuple[str, Any]] = []
    for name, value in vars(estimator).items():
        named = value if isinstance(value, (list, tuple)) else [(name, value)]
        found += [(p[0], p[1]) for p in named if isinstance(p, tuple) and len(p) == 2 and is_estimator(p[1])]
    return found


def _remedy(model: Any, X: Any, kind: str) -> str:
    """Return the end of a message about an object that is no model."""
    if isinstance(model, Mapping):
        if not any(hasattr(value, "shape") or isinstance(value, Mapping) for value in model.values()):
            return " Of a search, pass the estimator with the best parameters: search.best_estimator_."
        return " Weights have no graph. Load them into their module, and export that with torch.onnx.export."
    if isinstance(model, memoryview):
        return " Pass bytes(model)."
    if isinstance(model, (list, tuple)) and model and all(is_onnx(part) for part in model):
        return " Pass one of them. A file and its external data are one model, given by the path of the .onnx file."
    if isinstance(model, (list, tuple)):
        return " Combine steps into an estimator with sklearn.pipeline.Pipeline or make_pipeline."
    if inspect.ismethod(model):
        return f" Pass the {type(model.__self__).__name__} itself, without .{model.__name__}."
    if inspect.isfunction(model):
        return f" Pass the model that it returns: estimator={model.__name__}()."
    if hasattr(model, "shape"):  # rows; networks of Keras and transformers have a dtype, too
        return f" Pass rows to fit: OrtGradient{kind}().fit(X, y)."
    if hasattr(model, "model_proto"):  # an ONNXProgram of PyTorch
        return " Pass its attribute model_proto."
    if type(model).__module__.partition(".")[0] == "onnx_ir":
        return " Pass onnx_ir.to_proto(model)."
    if type(model).__module__.partition(".")[0] == "statsmodels":
        return (
            " Models of statsmodels are not converted. Pass the same model of scikit-learn, such as LinearRegression() "
            "for OLS, PoissonRegressor() for a GLM of counts or LogisticRegression() for Logit, and the rows without a "
            "constant."
        )
    if hasattr(model, "read"):
        return " Pass the content of the file, the bytes that read() returns."
    return how_to_export(model, X)


def _check_kind(estimator: Any, *, classifies: bool) -> None:
    """Raise a ParameterError if a scikit-learn estimator does not predict the kind of target that is trained."""
    kind = get_tags(estimator).estimator_type
    if kind is None and not hasattr(estimator, "predict"):
        kind = "transformer"
    if kind in ("clusterer", "density_estimator", "transformer"):
        kind = kind.replace("_", " ")
        verb = "ends with" if isinstance(estimator, Pipeline) else "is"
        raise ParameterError(
            f"{type(estimator).__name__} {verb} a {kind}, which learns without y, so there is no loss to train it "
            f"with. Pass a regressor or a classifier; a {kind} may precede it in a pipeline."
        )
    if kind == ("regressor" if classifies else "classifier"):
        kind, gives = ("regressor", "numbers") if classifies else ("classifier", "classes")
        raise ParameterError(
            f"{type(estimator).__name__} is a {kind}, which predicts {gives}. Train it with "
            f"OrtGradient{kind.capitalize()}, or pass a {'classifier' if classifies else 'regressor'} here. "
            "To train an output as it is, name it with output=."
        )


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


# ---------------------------------------------------------------------- errors


def how_to_export(model: object, X: Any) -> str:
    """Return the code that exports a model of another library for rows like `X`; empty for an unknown library.

    Each line can be run as it is if the variables `model` and `X` exist.
    """
    packages = [kind.__module__.partition(".")[0] for kind in type(model).__mro__]
    lines = next((_LINES[package] for package in packages if package in _LINES), None)
    if lines is None:
        return ""
    if lines is _of_transformers and not hasattr(model, "forward") and not hasattr(model, "model"):
        return (
            " It has no weights. Pass the file of an exported model; a tokenizer makes the rows, "
            "X = tokenizer(texts, padding=True)."
        )
    shown = "".join(f"\n    {line}" for line in lines(model, X))
    return f' Export it, and pass the file:{shown}\n    estimator = "model.onnx"'


#: The attribute with the module inside a module of torch.compile, or of several GPUs, which cannot be exported.
_WRAPPED = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}


def _of_torch(model: Any, X: Any) -> list[str]:
    if type(model).__name__ == "ExportedProgram":
        return ['torch.onnx.export(model, f="model.onnx", dynamo=True, optimize=False)']
    for kind, attribute in _WRAPPED.items():
        if kind in [base.__name__ for base in type(model).__mro__]:
            return [f"model = model.{attribute}", *_of_torch(getattr(model, attribute), X)]
    dtype = next((str(w.dtype) for w in getattr(model, "parameters", tuple)()), "torch.float32")
    taken = _arguments(model)
    names = [name for name in _names(X, taken) if name in taken] or _names(X, taken)
    found = {name: _tensor(f"X[{name!r}]", X[name], dtype) for name in names}
    has_tokens = "input_ids" in names
    shapes = {name: '{0: "n", 1: "t"}' if has_tokens or _is_ragged(X[name]) else '{0: "n"}' for name in names}
    if not names:
        args, how = f"({_tensor('X', X, dtype)},)", 'dynamic_shapes=[{0: "n"}]'
    elif set(names) <= taken:
        args, how = "()", f"kwargs={_dictionary(found)}, dynamic_shapes={_dictionary(shapes)}"
    else:
        args = f"({', '.join(found.values())},)"
        how = f"input_names={names!r}, dynamic_shapes=[{', '.join(shapes.values())}]"
    if any(kind.__name__ == "ScriptModule" for kind in type(model).__mro__):  # refused with dynamo=True
        names = names or ["X"]
        axes = _dictionary({name: shapes.get(name, '{0: "n"}') for name in names})
        how = f"input_names={names!r}, dynamic_axes={axes}"
        return [f'torch.onnx.export(model.eval(), {args}, "model.onnx", dynamo=False, {how})']
    return [f'torch.onnx.export(model.eval(), {args}, "model.onnx", dynamo=True, optimize=False, {how})']


def _of_transformers(model: Any, X: Any) -> list[str]:
    """Return the lines for a model, or for the model in a pipeline, whose tokenizer makes the rows."""
    lines = []
    if not hasattr(model, "forward"):
        model, lines = model.model, ["model, tokenizer = model.model, model.tokenizer"]
    if isinstance(X, (list, tuple, np.ndarray)) and len(X) and isinstance(X[0], str):
        lines.append('X = tokenizer(list(X), padding=True, return_tensors="np")')
        X = dict.fromkeys(["input_ids", "attention_mask"], np.ones((2, 2), np.int64))
    return [*lines, *_of_torch(model, X)]


def _of_keras(model: Any, X: Any) -> list[str]:
    export = 'model.export("model.onnx", format="onnx")'  # for a model that has been called
    own, given = [tensor.name for tensor in getattr(model, "inputs", None) or ()], _names(X, set())
    if not own:  # the first call builds the model
        rows = {name: _keras_tensor(f"X[{name!r}]", X[name]) for name in given}
        return [f"model({_dictionary(rows) if rows else _keras_tensor('X', X)}); {export}"]
    export = f"model(model.inputs); {export}"
    if len(own) != len(given) or set(own) <= set(given):
        return [export]
    pairs = {name: f"X[{other!r}]" for name, other in zip(own, given, strict=True)}
    return [export, f"X = {_dictionary(pairs)}  # the file has the names of model.inputs, in this order"]


def _keras_tensor(code: str, values: Any) -> str:
    return f"keras.ops.convert_to_tensor({_array(code, values)})"


def _booster(library: str) -> Callable[[Any, Any], list[str]]:
    types = "onnxmltools.convert.common.data_types.FloatTensorType([None, X.shape[1]])"
    line = f'onnx.save(onnxmltools.convert_{library}(model, initial_types=[("X", {types})]), "model.onnx")'
    return lambda model, X: [line]


#: The lines by the package of the model's class; the first match is used.
_LINES: dict[str, Callable[[Any, Any], list[str]]] = {
    "keras": _of_keras,
    "torch": _of_torch,
    "transformers": _of_transformers,
    "lightgbm": _booster("lightgbm"),
    "xgboost": _booster("xgboost"),
}


def _arguments(model: Any) -> set[str]:
    """Return the argument names of a module's ``forward``."""
    try:
        return set(inspect.signature(model.forward).parameters)
    except (AttributeError, TypeError, ValueError):  # unknown for a compiled module
        return set()


def _names(X: Any, taken: set[str]) -> list[str]:
    """Return the names of the values that X gives separately; empty for a single array."""
    if isinstance(X, (Mapping, Inputs)) and not scipy.sparse.issparse(X):
        return list(map(str, X.keys()))
    if X is None or not hasattr(X, "columns"):
        return []
    names = [str(name) for name in X.columns]
    return names if comes_by_name(X) or not taken.isdisjoint(names) else []


def _dictionary(items: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {value}" for name, value in items.items()) + "}"


def _array(code: str, values: Any) -> str:
    """Return code for some rows as an array; ragged rows are replaced by two copies of the first row."""
    if _is_ragged(values):
        return f"list({code}[:1]) * 2"
    if scipy.sparse.issparse(values):
        return f"{code}[:2].toarray()"
    if not hasattr(values, "to_numpy"):
        return f"{code}[:2]"
    return f"{code}[:2].to_numpy()" if _sample(values).dtype != object else f"{code}[:2].to_list()"


def _tensor(code: str, values: Any, dtype: str) -> str:
    """Return code that gives some rows as a tensor; floating-point rows get the type of the weights."""
    tensor = f"torch.as_tensor({_array(code, values)})"
    found = str(values.dtype) if hasattr(values, "detach") else f"torch.{_sample(values).dtype}"
    return f"{tensor}.to({dtype})" if "float" in found and found != dtype else tensor


def _sample(values: Any) -> np.ndarray:
    """Return one row as an array; a float without rows."""
    if values is None:
        return np.zeros((1, 1))
    rows = values[:1]
    return np.asarray(rows.toarray() if scipy.sparse.issparse(rows) else rows)


def _is_ragged(values: Any) -> bool:
    """Whether rows are lists of different lengths."""
    if values is None or hasattr(values, "detach") or is_frame(values) or scipy.sparse.issparse(values):
        return False
    if getattr(values, "dtype", None) not in (None, object):
        return False
    return len({np.shape(row) for row in values}) > 1
