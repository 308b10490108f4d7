"""A user's estimator or ONNX model, made trainable."""

from __future__ import annotations

import copy
import hashlib
import math
import pickle
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import onnx
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.neighbors import KNeighborsRegressor, RadiusNeighborsRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from onnxtrain import graph
from onnxtrain.cache import LIGHT, Cache
from onnxtrain.convert import Binding, Conversion, ConvertsToOnnx, convert, registered_converters
from onnxtrain.convert.entrance import Entrance
from onnxtrain.convert.foreign import batch_size, open_batch, put_back, separate_merged
from onnxtrain.convert.head import with_new_head
from onnxtrain.convert.learned import is_estimator
from onnxtrain.convert.low_rank import LowRank, merged, with_factors, without_factors
from onnxtrain.convert.quantized import refuse_integer_products, with_master_copies
from onnxtrain.errors import ParameterError, warn
from onnxtrain.estimators.export_lines import how_to_export
from onnxtrain.estimators.protocols import ArrayLike, Estimator, Features, Model, OnnxModel, is_onnx, take
from onnxtrain.estimators.template import convert_once, without_values
from onnxtrain.losses.link import Link
from onnxtrain.rewrite import rewrite_model
from onnxtrain.training.model import (
    TrainableModel,
    choose_weights,
    initial_weights,
    list_weights,
    read_model,
    with_weights,
)
from onnxtrain.training.parameters import Role, Weight, quantized_weights, roles_by_exporter

#: Packages whose objects are determined by their state, and their classes by name.
_KNOWN = frozenset({"builtins", "numpy", "sklearn"})

#: Modules of scikit-learn whose callable objects hold names and scalars; a scorer holds a function.
_CALLABLE = frozenset({"sklearn.compose._column_transformer", "sklearn.gaussian_process.kernels"})

#: Rows of more elements than this are not hashed: that takes a tenth of a second.
_MANY = 2**25


#: Rows above which a structure is taken from fewer, of which there are so many, and so many of each class.
_MANY_ROWS, _FEW_ROWS, _OF_EACH = 20_000, 2000, 50


#: X, y and sample weights, checked.
Given: TypeAlias = "tuple[Features, np.ndarray, np.ndarray | None]"


@dataclass(frozen=True)
class Reading:
    """How the output of a model is read.

    Attributes
    ----------
    dtype : {"float32", "float64"}
    output : int, str or None
        The one that enters the loss.
    n_labels : int
        The number of labels for multilabel targets.
    labels : bool
        As :func:`~onnxtrain.losses.link.choose_output`; of an ONNX model.
    output_is : {"scores", "probabilities"} or None
        The kind of the output according to the user.
    target : tuple of int or None
        The shape of a row of targets that have a label for each position; None for any others.
    class_axis : int or None
        The axis of the output that such labels lack, according to the user.
    """

    dtype: str
    output: int | str | None = None
    n_labels: int = 0
    labels: bool = False
    output_is: str | None = None
    target: tuple[int, ...] | None = None
    class_axis: int | None = None


@dataclass(frozen=True)
class Source:
    """A trainable model and where it comes from.

    Attributes
    ----------
    model : TrainableModel
    estimator : object or None
        The fitted scikit-learn estimator that was converted.
    bindings : tuple of Binding
        Which of its attributes the weights are.
    original : bytes or None
        The ONNX model that was handed over, its fixed inputs with their values as defaults.
    entrance : Entrance or None
        How rows reach its inputs.
    layout : mapping of str to mapping
        Which of its tensors came in files beside it, and where.
    answers : dict
        The results of the estimator on the rows of the comparison, by method.
    agreed : set
        How it was trained where its predictions were found equal to the estimator's: a search has many candidates,
        whose source is the same object, and to look up their rows takes a twentieth of a fit.
    """

    model: TrainableModel
    estimator: Any = None
    bindings: tuple[Binding, ...] = ()
    original: bytes | None = field(default=None, repr=False)
    entrance: Entrance | None = None
    layout: graph.Layout = field(default_factory=dict, repr=False)
    answers: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    agreed: set[Hashable] = field(default_factory=set, repr=False, compare=False)

    @property
    def factors(self) -> list[LowRank]:
        """The low-rank factors beside weights."""
        return [LowRank(*fields) for fields in self.model.low_rank]

    def merged(self, weights: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return trained weights by the names that they have in the model that came: without factors."""
        if not self.factors:
            return weights
        return merged(weights, self.factors, self.initial_weights(tuple(f.weight for f in self.factors)))

    def with_weights(self, weights: Mapping[str, np.ndarray], *, merge: bool = True) -> onnx.ModelProto:
        """Return the model that came with other weights: its inputs, outputs and types.

        Without `merge` its factors stand beside its weights.
        """
        found = self._with_weights(weights, merge=merge)
        return found if self.entrance is None else self.entrance.as_file(found, weights)

    def _with_weights(self, weights: Mapping[str, np.ndarray], *, merge: bool) -> onnx.ModelProto:
        if self.factors and not merge:
            return self._with_factors(weights)
        weights = self.merged(weights)
        if self.original is None:
            plain = without_factors(self.model.graph(), self.factors) if self.factors else self.model.onnx
            own = with_weights(plain, weights, outputs=self.model.outputs)
            joined = self.model.link is Link.SIGMOIDS or self.model.output not in self.model.outputs
            # the node that concatenates the scores of labels is needed for training only
            return graph.save(graph.load(own)) if joined else own
        original = onnx.load_model_from_string(self.original)
        own_file = put_back(original, weights, self.model.graph())
        if own_file is not None:
            return graph.attach(own_file)
        if original.functions:
            warn(
                "Weights inside functions of the model were trained. Each call has its own, so that the model comes "
                "out with the nodes of its functions in place of the calls, at another opset."
            )
        trained = with_weights(rewritten(self.original).SerializeToString(), weights)
        kept = {part.name for part in (*trained.graph.input, *trained.graph.initializer)}
        unread = {i.name for i in original.graph.input} - kept
        trained.graph.initializer.extend(w for w in original.graph.initializer if w.name in unread)
        graph.assign(trained.graph.input, original.graph.input)
        graph.attach(trained)
        return graph.with_maps_of(trained, original)

    def _with_factors(self, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
        """Return the file that came with factors beside its weights, if these are its initializers."""
        if self.original is not None:
            own = {name for f in self.factors for name in (f.a, f.b)}
            original = onnx.load_model_from_string(self.original)
            others = {name: w for name, w in weights.items() if name not in own}
            put = put_back(original, others, self.model.graph())
            found = None if put is None else with_factors(put, self.factors, weights)
            if found is not None:
                return graph.attach(found)
        return with_weights(self.model.onnx, weights, outputs=self.model.outputs)

    def rows_first(self) -> bytes:
        """Return the ONNX model that was handed over with the rows on the first axis of each input."""
        if self.original is None or self.entrance is None or not self.entrance.changes:
            return self.original or b""
        return self.entrance.rows_first(onnx.load_model_from_string(self.original)).SerializeToString()

    def initial_weights(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return the weights as they came, by name."""
        return initial_weights(self.model.graph(), names)


#: By fingerprint: the folds of a cross-validation, and some.
SOURCES: Cache[Source] = Cache("sources of estimators")

#: By fingerprint as well: pipelines that are split.
FITTED: Cache[Any] = Cache("fitted pipelines")


def rewritten(onx: graph.ModelLike) -> onnx.ModelProto:
    """Return the ONNX model of a user with its weights as initializers, each for itself, and none of them an input."""
    proto = graph.read(onx)
    refuse_integer_products(proto)
    if {i.name for i in proto.graph.input} & {w.name for w in proto.graph.initializer}:
        listed, proto = proto, onnx.ModelProto()
        with graph.as_model_error("The model cannot be read"):
            proto.CopyFrom(listed)
        graph.leave_out_defaults(proto.graph)
    found = with_master_copies(separate_merged(rewrite_model(proto)))
    declared = {value.name: value.type.tensor_type for value in proto.graph.output}
    for value in found.graph.output:  # shapes inferred anew may be less specific than those of the model
        given, shape = declared.get(value.name), value.type.tensor_type.shape
        if given is not None and not _sizes(shape) and _sizes(given.shape):
            shape.CopyFrom(given.shape)
    return found


def _sizes(shape: onnx.TensorShapeProto) -> list[int]:
    """Return the dimensions after the rows, none if one of them is unknown."""
    sizes = [d.dim_value for d in shape.dim][1:]
    return sizes if all(sizes) else []


def is_fitted(estimator: Estimator) -> bool:
    """Whether an estimator has been fitted; one that is frozen has, a pipeline where each of its steps has."""
    if isinstance(estimator, Pipeline) and not all(is_fitted(step) for _, step in estimator.steps if _is_step(step)):
        return False  # scikit-learn asks the last step alone
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def _is_step(step: object) -> bool:
    return step is not None and not isinstance(step, str)  # "passthrough"


def takes_sparse(estimator: Model) -> bool:
    """Whether `fit` takes sparse rows: a graph does, an estimator that has to be fitted first may not."""
    return is_onnx(estimator) or get_tags(estimator).input_tags.sparse or is_fitted(estimator)


def takes_labels(estimator: Model) -> bool:
    """Whether `fit` accepts multilabel targets, as far as known in advance."""
    if is_onnx(estimator):
        return True
    tags = get_tags(estimator)
    return bool(tags.target_tags.multi_output or (tags.classifier_tags and tags.classifier_tags.multi_label))


def check_source(estimator: Model, X: ArrayLike | None = None, *, classifies: bool | None = None) -> None:
    """Raise a ParameterError if `estimator` cannot be trained, or predicts another kind of target.

    Of a model of another library the message has the lines that export it, for rows like `X`.
    """
    if is_onnx(estimator):
        return
    if is_estimator(estimator) and hasattr(estimator, "fit"):
        if classifies is not None and (is_regressor if classifies else is_classifier)(estimator):
            kind, gives = ("regressor", "numbers") if classifies else ("classifier", "classes")
            raise ParameterError(
                f"{type(estimator).__name__} is a {kind}, which predicts {gives}: train it with "
                f"OrtGradient{kind.capitalize()}, or give a {'classifier' if classifies else 'regressor'} here; "
                "an output is trained as it is where output= names it."
            )
        return
    if isinstance(estimator, type):
        raise ParameterError(f"estimator is the class {estimator.__name__}: give an instance, {estimator.__name__}().")
    raise ParameterError(
        f"estimator must be a scikit-learn estimator, an onnx.ModelProto, its bytes or a path, "
        f"got {type(estimator).__name__}.{how_to_export(estimator, X)}"
    )


def warn_of_stored_targets(estimator: Model) -> None:
    """Warn of a model that stores the targets of its rows as learned attributes: they are its weights."""
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    if isinstance(last, (KNeighborsRegressor, RadiusNeighborsRegressor)):
        warn(
            f"{type(estimator).__name__} averages the targets of the rows it was fitted on; they are what is "
            "trained here, one for each row. Name them in weights_to_train if that is meant."
        )


def warn_of_quantized(model: TrainableModel) -> None:
    """Warn of an ONNX model whose weights are integers in part: left to train are intercepts and scales."""
    names = quantized_weights(model.graph())
    if names:
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        warn(
            f"Quantized weights of the model: {len(names)} ({some}). They are integers that are multiplied as such, "
            "which have no derivative, and stay as they are. Train the floating-point model it was made from, or one "
            "quantized in the format QDQ (onnxruntime's quantize_static); name the other weights in weights_to_train "
            "if they alone are meant."
        )


def frozen_layers(model: TrainableModel) -> str:
    """Return how layers compute that PyTorch runs otherwise in training, for a message; empty without any."""
    kinds = {node.op_type for node in model.graph().graph.node}
    dropout = ["Dropout is off"] * ("Dropout" in kinds)
    statistics = ["BatchNormalization uses the statistics it came with"] * ("BatchNormalization" in kinds)
    return " and ".join([*dropout, *statistics])


def source_of(
    estimator: Model,
    X: Features,
    rows: Given,
    reading: Reading,
    weights_to_train: Any = None,
    *,
    structure_only: bool,
    random_state: np.random.RandomState,
    entrance: Entrance | None = None,
) -> Source:
    """Return a user's model as a source: an unfitted estimator is fitted on the rows.

    Sources are cached by estimator and rows: the
    candidates of a grid search differ in later steps only.

    Parameters
    ----------
    estimator : estimator, or ONNX model
    X : array-like
        As of :func:`as_source`.
    rows : tuple of X, y, sample_weight
    reading : Reading
    weights_to_train : str, sequence of str, optional
        As :func:`~onnxtrain.training.model.choose_weights` takes them.
    structure_only : bool
        These weights will be drawn anew: an iterative estimator does one iteration, and where nothing else is
        learned, a few rows are enough.
    random_state : numpy.random.RandomState
        Draws the seeds that the estimator leaves open.
    entrance : Entrance, optional
        Of an ONNX model.
    """
    if is_onnx(estimator):
        return as_source(estimator, X, reading, entrance)
    if is_fitted(estimator):
        return as_source(thawed(estimator), X, reading)
    params = estimator.get_params()
    changes = _changes(params, structure_only=structure_only, random_state=random_state)
    key = _fingerprint(estimator, params, changes, rows, reading)
    source = None if key is None else SOURCES.find(key)
    if source is not None:
        return source
    unfitted = clone(estimator).set_params(**changes)
    if structure_only and len(rows[1]) > _MANY_ROWS:
        source = _from_few_rows(unfitted, X, rows, weights_to_train, reading)
        if source is not None:
            return source
    source = as_source(_fit(unfitted, *rows), X, reading)
    if key is not None and len(source.model.onnx) <= LIGHT:
        SOURCES.keep(key, source)
    return source


def with_head(
    model: Any, n_outputs: int, features: str | None, output: int | str | None, random_state: np.random.RandomState
) -> tuple[onnx.ModelProto, str]:
    """Return an ONNX model with a new last layer, and the name of its output."""
    if not is_onnx(model):
        raise ParameterError(
            f"head='new' replaces the last layer of an ONNX model, got {type(model).__name__}: an estimator gets "
            "another number of outputs where it is fitted."
        )
    changed = with_new_head(model, n_outputs, features=features, output=output, random_state=random_state)
    return changed, changed.graph.output[-1].name


def fitted_on(
    estimator: Any, rows: tuple[Any, Any, Any], *, structure_only: bool, random_state: np.random.RandomState
) -> Any:
    """Return an estimator fitted on rows as they came; one that is fitted as it is.

    The candidates of a grid search share the fitted one of a fold.
    """
    if is_fitted(estimator):
        return estimator
    params = estimator.get_params()
    changes = _changes(params, structure_only=structure_only, random_state=random_state)
    key = _fingerprint(estimator, params, changes, rows, Reading("as it came"))
    found = None if key is None else FITTED.find(key)
    if found is None:
        found = _fit(clone(estimator).set_params(**changes), *rows)
        if key is not None:
            FITTED.keep(key, found)
    return found


def _changes(params: Mapping[str, Any], *, structure_only: bool, random_state: np.random.RandomState) -> dict[str, Any]:
    """Return the parameters with which an estimator is fitted instead of its own."""
    seeds = {
        name: random_state.randint(np.iinfo(np.int32).max)
        for name, value in sorted(params.items())
        if name.rpartition("__")[2] == "random_state" and value is None
    }
    return {**seeds, **({"max_iter": 1} if structure_only and "max_iter" in params else {})}


def _fingerprint(
    estimator: Estimator,
    params: Mapping[str, Any],
    changes: Mapping[str, Any],
    rows: Given,
    reading: Reading,
) -> Hashable | None:
    """Return the fingerprint of a source, None if it cannot be determined or takes long to compute."""
    if not all(map(_is_what_it_says, (estimator, *params.values()))):
        return None
    shape = getattr(rows[0], "shape", None)
    if shape is None or math.prod(shape) > _MANY:
        return None
    content = hashlib.sha256()

    def look_through(array: pickle.PickleBuffer) -> None:  # without a copy
        content.update(array.raw())

    try:
        rest = pickle.dumps((estimator, changes, rows, get_config()), protocol=5, buffer_callback=look_through)
    except Exception:  # some objects cannot be pickled: a masked array of objects raises ValueError
        return None
    content.update(rest)
    # equal bytes are equal objects; where equal objects have other bytes, the estimator is fitted once more
    return content.digest(), reading, registered_converters()


def _is_what_it_says(part: object) -> bool:
    """Whether equal bytes imply equal objects: a function is pickled by its name, not by its code."""
    if isinstance(part, (list, tuple)):
        return all(map(_is_what_it_says, part))
    if isinstance(part, dict):
        return all(map(_is_what_it_says, part.values()))
    is_class = isinstance(part, type)
    module = (part if is_class else type(part)).__module__
    return module.partition(".")[0] in _KNOWN and (is_class or not callable(part) or module in _CALLABLE)


def _from_few_rows(
    estimator: Estimator, X: Features, rows: Given, weights_to_train: Any, reading: Reading
) -> Source | None:
    """Return the source from a few rows of each class, None if all rows might give another one.

    The steps before the last one of a pipeline are fitted on all rows, the last step on two samples, of which
    one is twice as large: if the two models differ only in weights that are drawn anew,
    they hold nothing else that was learned.
    """
    front, last = (estimator[:-1], estimator[-1]) if isinstance(estimator, Pipeline) else (None, estimator)
    # of an estimator around others, a search for example, all depends on all rows
    is_plain = isinstance(last, BaseEstimator) and not any(map(_is_estimator, last.get_params().values()))
    if not is_plain:
        return None
    if front is not None:
        front = _fit(front, *rows)
    found = []
    for size in (_FEW_ROWS, 2 * _FEW_ROWS):
        X_some, y, weight = _some_rows(rows, size, classes=reading.labels)
        try:
            fitted = _fit(clone(last), X_some if front is None else front.transform(X_some), y, weight)
            whole = fitted if front is None else Pipeline([*front.steps, (estimator.steps[-1][0], fitted)])
            source = as_source(whole, X, reading)
        except Exception:  # it needs more rows; if all are too few, the error is raised there
            return None
        names = choose_weights(source.model, weights_to_train, converted=True)
        found.append((without_values(source.model.graph(), names), names, source))
    (few, few_names, _), (more, names, source) = found
    return source if (few, few_names) == (more, names) else None


def _is_estimator(part: object) -> bool:
    return isinstance(part, BaseEstimator)


def _some_rows(rows: Given, size: int, *, classes: bool) -> Given:
    """Return so many rows, some of each class or value of a label among them, and such that weigh something first."""
    X, y, weight = rows
    order = np.random.RandomState(0).permutation(len(y))
    if weight is not None:
        order = order[np.argsort(weight[order] == 0, kind="stable")]
    parts = [order[:size]]
    for column in np.reshape(y, (len(y), -1)).T if classes else ():
        _, which, counts = np.unique(column[order], return_inverse=True, return_counts=True)
        by_class = order[np.argsort(which, kind="stable")]
        parts += [part[:_OF_EACH] for part in np.split(by_class, np.cumsum(counts)[:-1])]
    chosen = np.unique(np.concatenate(parts))
    return take(X, chosen), y[chosen], None if weight is None else weight[chosen]


def _fit(estimator: Estimator, X: Features, y: np.ndarray, sample_weight: np.ndarray | None) -> Estimator:
    routed = get_config()["enable_metadata_routing"] and sample_weight is not None
    with warnings.catch_warnings():
        # training goes on from here: that it has not converged is no news
        warnings.simplefilter("ignore", ConvergenceWarning)
        if routed and get_routing_for_object(estimator).consumes("fit", ["sample_weight"]):
            return estimator.fit(X, y, sample_weight=sample_weight)
        with config_context(enable_metadata_routing=False):  # nothing was asked for: whoever takes weights gets them
            return estimator.fit(X, y, **_weight_for(estimator, sample_weight))


def _weight_for(estimator: Estimator, sample_weight: np.ndarray | None) -> dict[str, Any]:
    """Return the sample weights by the names under which ``fit`` takes them, each step of a pipeline its own."""
    if sample_weight is None:
        return {}
    if isinstance(estimator, Pipeline):
        steps = {name: step for name, step in estimator.steps if has_fit_parameter(step, "sample_weight")}
        return {f"{name}__sample_weight": sample_weight for name in steps}
    return {"sample_weight": sample_weight} if has_fit_parameter(estimator, "sample_weight") else {}


def thawed(estimator: Any) -> Any:
    """Return the estimator inside a FrozenEstimator, any other as it is."""
    return estimator.estimator if type(estimator).__name__ == "FrozenEstimator" else estimator


def as_source(estimator: Model, X: Features, reading: Reading, entrance: Entrance | None = None) -> Source:
    """Return an ONNX model, or a fitted estimator as one, ready to be trained.

    Parameters
    ----------
    estimator : fitted estimator, or ONNX model
    X : array-like
        Rows on which the conversion is compared with the estimator.
    reading : Reading
    entrance : Entrance, optional
        Of an ONNX model: how rows reach its inputs.
    """
    if is_onnx(estimator):
        entrance = Entrance.of(estimator) if entrance is None else entrance
        onx = entrance.with_defaults(estimator)
        roles = roles_by_exporter(onx) | dict.fromkeys(entrance.fixed, Role.BUFFER)
        model = read_model(rewritten(open_batch(entrance.rows_first(onx))), **vars(reading), roles=roles)
        held = graph.held_by_name(model.graph())
        if held:
            model = replace(model, held=graph.held_by_key(model.graph()), learned=tuple(held))
        return Source(model, original=onx.SerializeToString(), entrance=entrance, layout=layout_of(estimator))
    answers: dict[str, Any] = {}
    model, bindings = convert_once(estimator, X, answers, vars(replace(reading, labels=False)))
    return Source(model, copy.deepcopy(estimator), bindings, answers=answers)


def layout_of(onx: OnnxModel) -> graph.Layout:
    """Return which tensors of an ONNX model are in files beside its own."""
    return {} if isinstance(onx, (onnx.ModelProto, bytes, bytearray)) else graph.layout_of(onx)


def opened(onx: OnnxModel, dtype: str) -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
    """Return an ONNX model, and its large weights, which are held beside it as long as somebody has them."""
    held: dict[str, np.ndarray] = {}
    proto = graph.read(onx, held if dtype == "float32" else None)
    if dtype != "float32" or batch_size(proto) is not None:  # a fixed batch is opened by running the model as it is
        return graph.attach(proto) if held else proto, {}
    proto, more = graph.detached(proto)
    return proto, held | more


def trainable_weights(
    model: Model | Conversion, X: ArrayLike | None = None, *, output: str | None = None
) -> list[Weight]:
    """Return the weights that can be trained, in the order in which the model uses them.

    Their names, patterns and steps are what `weights_to_train` takes.

    Parameters
    ----------
    model : fitted estimator, or ONNX model
        A scikit-learn estimator or pipeline, an :class:`~onnxtrain.OrtGradientRegressor` or
        :class:`~onnxtrain.OrtGradientClassifier`, an ``onnx.ModelProto``, its bytes or a path.
        Of an ONNX model: every floating-point initializer with respect to which an output
        has a derivative that may differ from zero.
    X : DataFrame, optional
        Rows for an estimator that takes its columns by name. Not needed if all columns are
        numeric.
    output : str, optional
        This output only.

    Returns
    -------
    list of Weight
        Each with ``name``, ``step`` of the pipeline, ``shape``, ``size`` and ``kind``
        (``"coefficient"``, ``"intercept"``, ``"scale"``, ``"leaf"``, ...; of an ONNX model
        ``"weight"``, or ``"buffer"`` for those trained only if `weights_to_train` says so: statistics of
        BatchNormalization, masks, tables of positions, scalars of formulas).

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
    check_source(model)
    if is_onnx(model):
        onx = graph.read(model)
        return list_weights(rewritten(onx), output, roles_by_exporter(onx))
    check_is_fitted(model)
    if isinstance(model, ConvertsToOnnx):  # one of our own
        source: Source = vars(model)["_trained"].source
        if source.bindings:
            return _bound(source.model.onnx, source.bindings, output)
        roles = {w: Role.PARAMETER if w in source.model.default else Role.BUFFER for w in source.model.weights}
        return list_weights(source.model.onnx, output or source.model.output, roles)
    if X is None:
        if not hasattr(model, "n_features_in_"):
            raise ParameterError(f"{type(model).__name__} does not say how many columns it takes: give X.")
        X = np.zeros((1, model.n_features_in_))
    return trainable_weights(convert(model, X), output=output)


def _bound(onx: onnx.ModelProto | bytes, bindings: Sequence[Binding], output: str | None) -> list[Weight]:
    """Return the learned attributes among the weights of a graph."""
    names = {w.name for w in list_weights(onx, output, {})}
    return [Weight(b.name, b.step, b.shape, b.kind) for b in bindings if b.name in names]
