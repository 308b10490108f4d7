"""What the user hands over, an estimator or an ONNX model, made trainable."""

from __future__ import annotations

import copy
import hashlib
import math
import os
import pickle
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import onnx
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from onnxtrain import graph
from onnxtrain.convert import Binding, Conversion, compare, convert, default_weights, registered_converters
from onnxtrain.errors import ParameterError
from onnxtrain.estimators._batch import open_batch
from onnxtrain.estimators._merged import separate_merged
from onnxtrain.estimators._model import LIGHT, TrainableModel, initial_weights, read_model, with_weights
from onnxtrain.estimators._recent import Recent
from onnxtrain.estimators._template import convert_once
from onnxtrain.heads import Link
from onnxtrain.rewrite import rewrite_model
from onnxtrain.training.session import run

#: Packages whose objects are what their state says, and whose classes what their name says.
_KNOWN = frozenset({"builtins", "numpy", "sklearn"})

#: Modules of scikit-learn whose callable objects hold names and numbers; a scorer holds a function.
_CALLABLE = frozenset({"sklearn.compose._column_transformer", "sklearn.gaussian_process.kernels"})

#: Rows of more numbers than this are not looked through: that takes a tenth of a second.
_MANY = 2**25


@dataclass(frozen=True)
class Source:
    """A trainable model and where it comes from.

    Attributes
    ----------
    model : TrainableModel
    estimator : object or None
        The fitted scikit-learn estimator behind it.
    bindings : tuple of Binding
        Which of its attributes the weights are.
    default : tuple of str or None
        The weights that are trained unless others are asked for; None leaves it to the model.
    original : bytes or None
        The ONNX model that was handed over.
    """

    model: TrainableModel
    estimator: Any = None
    bindings: tuple[Binding, ...] = ()
    default: tuple[str, ...] | None = None
    original: bytes | None = field(default=None, repr=False)

    def with_weights(self, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
        """Return the model that came with other weights: its inputs, outputs and types."""
        if self.original is None:
            own = with_weights(self.model.onnx, weights, outputs=self.model.outputs)
            joined = self.model.link is Link.SIGMOIDS or self.model.output not in self.model.outputs
            # what joins the scores of labels is needed for training only
            return graph.save(graph.load(own)) if joined else own
        trained = with_weights(rewritten(self.original).SerializeToString(), weights)
        original = onnx.load_model_from_string(self.original)
        declared = {i.name: i for i in original.graph.input}
        for value in trained.graph.input:
            value.CopyFrom(declared[value.name])
        return graph.with_maps_of(trained, original)

    def initial_weights(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return the weights as they came, by name, exactly: ONNX graphs hold float32, estimators float64."""
        weights = initial_weights(self.model.onnx, names)
        for binding in self.bindings:
            if binding.name in weights and binding.path:
                exact = binding.read(self.estimator)
                weights[binding.name] = exact.astype(weights[binding.name].dtype)
        return weights


#: By fingerprint: the folds of a cross-validation, and some.
SOURCES: Recent[Source] = Recent(16)


def rewritten(onx: graph.ModelLike) -> onnx.ModelProto:
    """Return the ONNX model of a user with its weights as initializers, each for itself."""
    return separate_merged(rewrite_model(onx))


def is_onnx(estimator: Any) -> bool:
    """Whether what the user hands over is an ONNX model: a ModelProto, its bytes, or a path."""
    return isinstance(estimator, (onnx.ModelProto, bytes, bytearray, str, os.PathLike))


def is_fitted(estimator: Any) -> bool:
    """Whether an estimator has been fitted; one that is frozen has, a pipeline where each of its steps has."""
    if isinstance(estimator, Pipeline) and not all(is_fitted(step) for _, step in estimator.steps if _is_step(step)):
        return False  # scikit-learn asks the last step alone
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def _is_step(step: Any) -> bool:
    return step is not None and not isinstance(step, str)  # "passthrough"


def takes_sparse(estimator: Any) -> bool:
    """Whether `fit` takes sparse rows: a graph does, an estimator that has to be fitted first may not."""
    return is_onnx(estimator) or get_tags(estimator).input_tags.sparse or is_fitted(estimator)


def takes_labels(estimator: Any) -> bool:
    """Whether `fit` takes several labels a row, as far as is known before."""
    if is_onnx(estimator):
        return True
    tags = get_tags(estimator)
    return bool(tags.target_tags.multi_output or (tags.classifier_tags and tags.classifier_tags.multi_label))


def check_source(estimator: Any) -> None:
    """Raise a ParameterError where `estimator` is nothing that can be trained."""
    if is_onnx(estimator) or (isinstance(estimator, BaseEstimator) and hasattr(estimator, "fit")):
        return
    if isinstance(estimator, type):
        raise ParameterError(f"estimator is the class {estimator.__name__}: give an instance, {estimator.__name__}().")
    raise ParameterError(
        f"estimator must be a scikit-learn estimator, an onnx.ModelProto, its bytes or a path, "
        f"got {type(estimator).__name__}."
    )


def source_of(
    estimator: Any,
    X: Any,
    rows: tuple[Any, Any, Any],
    *,
    structure_only: bool,
    random_state: np.random.RandomState,
    **settings: Any,
) -> Source:
    """Return what the user hands over as a source: an estimator that is not fitted is fitted on the rows.

    What came of the same estimator and the same rows before is returned again: the
    candidates of a grid search differ in what comes after.

    Parameters
    ----------
    estimator : estimator, or ONNX model
    X : array-like
        As of :func:`as_source`.
    rows : tuple of X, y, sample_weight
    structure_only : bool
        The weights will be drawn anew: an iterative estimator does one iteration.
    random_state : numpy.random.RandomState
        Draws the seeds that the estimator leaves open.
    **settings
        Of :func:`as_source`.
    """
    if is_onnx(estimator):
        return as_source(estimator, X, **settings)
    if is_fitted(estimator):
        return as_source(estimator.estimator if _is_frozen(estimator) else estimator, X, **settings)
    params = estimator.get_params()
    changes = _changes(params, structure_only=structure_only, random_state=random_state)
    key = _fingerprint(estimator, params, changes, rows, settings)
    source = None if key is None else SOURCES.find(key)
    if source is None:
        source = as_source(_fit(clone(estimator).set_params(**changes), *rows), X, **settings)
        if key is not None and len(source.model.onnx) <= LIGHT:
            SOURCES.keep(key, source)
    return source


def _changes(params: Mapping[str, Any], *, structure_only: bool, random_state: np.random.RandomState) -> dict[str, Any]:
    """Return the parameters with which an estimator is fitted instead of its own."""
    seeds = {
        name: random_state.randint(np.iinfo(np.int32).max)
        for name, value in sorted(params.items())
        if name.rpartition("__")[2] == "random_state" and value is None
    }
    return {**seeds, **({"max_iter": 1} if structure_only and "max_iter" in params else {})}


def _fingerprint(
    estimator: Any,
    params: Mapping[str, Any],
    changes: Mapping[str, Any],
    rows: tuple[Any, Any, Any],
    settings: Mapping[str, Any],
) -> Hashable | None:
    """Return what tells a source from all others, None where it cannot be known or takes long to find."""
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
    except Exception:  # what cannot be pickled says so in its own way: a masked array of objects by ValueError
        return None
    content.update(rest)
    # equal bytes are equal objects; where equal objects have other bytes, the estimator is fitted once more
    return content.digest(), tuple(settings.items()), registered_converters()


def _is_what_it_says(part: Any) -> bool:
    """Whether equal bytes of an object are an equal object: a function has its name for them, whatever it does."""
    if isinstance(part, (list, tuple)):
        return all(map(_is_what_it_says, part))
    if isinstance(part, dict):
        return all(map(_is_what_it_says, part.values()))
    is_class = isinstance(part, type)
    module = (part if is_class else type(part)).__module__
    return module.partition(".")[0] in _KNOWN and (is_class or not callable(part) or module in _CALLABLE)


def _fit(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Any:
    routed = get_config()["enable_metadata_routing"] and sample_weight is not None
    with warnings.catch_warnings():
        # training goes on from here: that it has not converged is no news
        warnings.simplefilter("ignore", ConvergenceWarning)
        if routed and get_routing_for_object(estimator).consumes("fit", ["sample_weight"]):
            return estimator.fit(X, y, sample_weight=sample_weight)
        with config_context(enable_metadata_routing=False):  # nothing was asked for: whoever takes weights gets them
            return estimator.fit(X, y, **_weight_for(estimator, sample_weight))


def _weight_for(estimator: Any, sample_weight: Any) -> dict[str, Any]:
    """Return the sample weights by the names under which ``fit`` takes them, each step of a pipeline its own."""
    if sample_weight is None:
        return {}
    if isinstance(estimator, Pipeline):
        steps = {name: step for name, step in estimator.steps if has_fit_parameter(step, "sample_weight")}
        return {f"{name}__sample_weight": sample_weight for name in steps}
    return {"sample_weight": sample_weight} if has_fit_parameter(estimator, "sample_weight") else {}


def _is_frozen(estimator: Any) -> bool:
    return type(estimator).__name__ == "FrozenEstimator"


def as_source(
    estimator: Any, X: Any, *, dtype: str, output: int | str | None, n_labels: int = 0, labels: bool = False
) -> Source:
    """Return an ONNX model, or a fitted estimator as one, ready to be trained.

    Parameters
    ----------
    estimator : fitted estimator, or ONNX model
    X : array-like
        Rows on which the conversion is compared with the estimator.
    dtype : {"float32", "float64"}
    output : int, str or None
    n_labels : int
        The number of labels where a row has any number of them.
    labels : bool
        As :func:`~onnxtrain.heads.choose_output`; of an ONNX model.
    """
    if is_onnx(estimator):
        onx = graph.read(estimator)
        model = read_model(rewritten(open_batch(onx)), dtype=dtype, output=output, n_labels=n_labels, labels=labels)
        return Source(model, original=onx.SerializeToString())

    def from_the_beginning() -> tuple[Conversion, TrainableModel, tuple[str, ...]]:
        conversion = convert(estimator, X, rewrite=rewrite_model, run=partial(run, n_threads=1, thorough=False))
        model = read_model(conversion.onnx, dtype=dtype, output=output, n_labels=n_labels)
        model = replace(model, learned=tuple(binding.name for binding in conversion.bindings if binding.path))
        return conversion, model, tuple(default_weights(conversion))

    model, bindings, default = convert_once(
        estimator,
        X,
        (dtype, output, n_labels, registered_converters()),
        convert=from_the_beginning,
        check=lambda onx, run: compare(estimator, onx, X, run),
    )
    return Source(model, copy.deepcopy(estimator), bindings, default)
