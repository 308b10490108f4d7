"""Files of trained estimators, without pickle: ``save``, ``load``, and the code they share with checkpoints."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from numbers import Integral, Real
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import numpy as np
import onnx
from sklearn.utils.validation import check_is_fitted

from onnxtrain import graph
from onnxtrain.arguments import lists_its_arguments
from onnxtrain.convert.model_inputs import Entrance
from onnxtrain.errors import (
    ArgumentTypeError,
    ExportError,
    LossError,
    ModelError,
    OnnxTrainError,
    check_path,
    warn_of_given_file,
    warn_of_pickle,
)
from onnxtrain.estimators import file_format
from onnxtrain.estimators.file_format import Decoder, Encoder
from onnxtrain.estimators.frames import InputForm
from onnxtrain.estimators.labels import IndicatorLabels, Labels
from onnxtrain.estimators.positions import PositionLabels, PositionValues
from onnxtrain.estimators.preprocessing import PreprocessedForm, from_bytes, to_bytes
from onnxtrain.estimators.settings import check_each, is_same, parameters_of_start, with_objective
from onnxtrain.estimators.source import Source
from onnxtrain.estimators.targets import Targets, Values
from onnxtrain.estimators.trained import TrainedModel, set_learned
from onnxtrain.losses import LOSSES
from onnxtrain.losses.link import Link
from onnxtrain.training.model import TrainableModel, initial_weights, with_weights
from onnxtrain.training.state import TrainingState

if TYPE_CHECKING:
    from onnxtrain.estimators import OrtGradientClassifier, OrtGradientRegressor
    from onnxtrain.estimators.base import OrtGradientEstimator

#: Learned attributes besides the weights; all others follow from the training state.
_ATTRIBUTES: dict[str, Any] = {
    **dict.fromkeys(("n_features_in_", "_y_ndim", "_n_labels"), int),
    **dict.fromkeys(("feature_names_in_", "classes_", "_balanced"), np.ndarray),
    **dict.fromkeys(("_sparse_labels", "_decides", "_of_votes"), bool),
    "_random_state": np.random.RandomState,
}


#: The learned attributes of the targets, by their key in the file.
_OF_TARGETS = {
    "classes_": "classes",
    "_n_labels": "n_labels",
    "_sparse_labels": "sparse",
    "_balanced": "balanced",
    "_of_votes": "of_votes",
    "_y_ndim": "n_axes",
}


@lists_its_arguments
def save(estimator: OrtGradientClassifier | OrtGradientRegressor, path: str | os.PathLike) -> None:
    """Write a fitted estimator to one file: its trained model, its parameters and the optimizer state.

    The file is an ONNX model that any runtime reads; everything else is stored beside the graph as JSON and tensors.
    The file contains no code, and reading it runs none. Steps of a pipeline that scikit-learn runs are stored by skops,
    which must be installed. The file replaces an existing file atomically and keeps its permissions; a symbolic link
    stays a link. If the model and the optimizer state together exceed 2 GB, the limit of an ONNX file, the optimizer
    state is stored beside the file in ``NAME.CHECKSUM.data``; move both files together.

    Parameters
    ----------
    estimator : OrtGradientRegressor or OrtGradientClassifier
        A fitted estimator.
    path : path
        The file.

    Raises
    ------
    ExportError
        A parameter is a function (a loss, a learning rate), which is code: register a loss with :func:`onnxtrain.loss`
        and give its name. Or the class of the estimator is not one of this package.
    FileError
        The file cannot be written. Its earlier content is unchanged.
    sklearn.exceptions.NotFittedError
        The estimator is not fitted.

    See Also
    --------
    load : The inverse.

    Examples
    --------
    >>> import os, tempfile
    >>> from onnxtrain import OrtGradientRegressor, load, save
    >>> X, y = [[0.0], [1.0], [2.0]], [0.0, 2.0, 4.0]
    >>> path = os.path.join(tempfile.mkdtemp(), "line.onnx")
    >>> save(OrtGradientRegressor(solver="lbfgs").fit(X, y), path)
    >>> load(path).predict([[3.0]]).round(3).tolist()
    [6.0]
    """
    _check_class(estimator)
    check_path(path)
    check_is_fitted(estimator)
    warn_of_pickle(path, "onnxtrain.load")
    warn_of_given_file(path, estimator.estimator)
    write_estimator(path, estimator, estimator._trained, estimator._state)


#: Attributes in which estimators of scikit-learn keep a fitted estimator.
_INNER = ("regressor_", "classifier_", "estimator_")


def _check_class(estimator: object) -> None:
    """Raise an ExportError, with the remedy, for an object that is not an instance of one of our two classes."""
    classes = _classes()
    if type(estimator) in classes.values():
        return
    remedy = " Pass the estimator first: save(estimator, path)."
    if hasattr(estimator, "fit"):
        remedy = " Save it with joblib.dump, or train it: OrtGradientRegressor(model, max_iter=0).fit(X, y)."
    if not getattr(estimator, "refit", True):
        remedy = " A search with refit=False keeps no fitted estimator. Set refit=True."
    if isinstance(estimator, type):
        remedy = " Pass a fitted instance, not the class."
    inner = next((name for name in _INNER if isinstance(getattr(estimator, name, None), (*classes.values(),))), "")
    if hasattr(estimator, "steps") or hasattr(estimator, "best_estimator_") or inner:
        inside = f"model.{inner}" if inner else "pipeline[-1] or search.best_estimator_"
        remedy = f" Pass the one inside, {inside}, or save all of it with joblib.dump."
    if hasattr(estimator, "to_local"):
        remedy = " Save an estimator of onnxtrain.dask as a plain one: save(estimator.to_local(), path)."
    if hasattr(estimator, "graph"):
        remedy = " Save an ONNX model with onnx.save(model, path)."
    raise ExportError(f"Only {' and '.join(classes)} can be saved, got {type(estimator).__name__}.{remedy}")


@lists_its_arguments
def load(path: str | os.PathLike, *, trusted: Sequence[str] = ()) -> OrtGradientClassifier | OrtGradientRegressor:
    """Return the estimator that :func:`save`, or a checkpoint of ``fit``, wrote to a file.

    The estimator predicts and continues training like the saved one. Its parameter ``estimator`` is the trained model
    as ONNX, or None if it was None. If an ONNX model was given to the estimator, both this parameter and
    ``get_trained_onnx()`` are the user's own model with the trained weights. scikit-learn objects are not stored, so
    ``to_sklearn`` is not available. Only the steps of a pipeline that scikit-learn runs (``onnx_status_``) are stored,
    by skops.

    Parameters
    ----------
    path : path
        The file.
    trusted : sequence of str
        For such steps, types to trust besides those that skops trusts by default; the error names them.

    Raises
    ------
    ModelError
        The file does not exist, is truncated or modified, was written by a newer version of onnxtrain, or names an
        unknown loss, optimizer or function.

    See Also
    --------
    save : The inverse.

    Examples
    --------
    >>> import os, tempfile
    >>> from onnxtrain import OrtGradientRegressor, load, save
    >>> path = os.path.join(tempfile.mkdtemp(), "line.onnx")
    >>> save(OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0]), path)
    >>> again = load(path)
    >>> again.n_features_in_, {name: w.round(3).item() for name, w in again.weights_.items()}
    (1, {'coef': 2.0, 'intercept': 1.0})
    """
    of_content = isinstance(path, bytes) or hasattr(path, "read")
    check_path(path, remedy=" Write the content to a file first." if of_content else " Pass the path given to save.")
    if isinstance(trusted, str) or not isinstance(trusted, Sequence):
        raise ArgumentTypeError(
            f"trusted must be a list of type names, as in the error message of load, got {trusted!r:.80}."
        )
    kept = Kept(path, tuple(trusted))
    with _understood(path):
        return restore(kept, _classes())


@contextmanager
def _understood(path: str | os.PathLike) -> Iterator[None]:
    """Turn any exception from inconsistent content into a ModelError: a modified file may fail at any point."""
    try:
        yield
    except ModelError:
        raise
    except OnnxTrainError as e:
        raise ModelError(f"{os.fspath(path)!r}: {e}") from e
    except Exception as e:
        raise ModelError(f"This version of onnxtrain cannot read the content of {os.fspath(path)!r}: {e!r}.") from e


def _classes() -> dict[str, type]:
    """Return the estimator classes that a file may hold, by name."""
    from onnxtrain.estimators import OrtGradientClassifier, OrtGradientRegressor  # their fit writes checkpoints

    return {c.__name__: c for c in (OrtGradientClassifier, OrtGradientRegressor)}


def encode_parameters(estimator: OrtGradientEstimator, encoder: Encoder) -> dict[str, Any]:
    """Return the parameters as JSON, without the given model."""
    params = estimator.get_params(deep=False)
    del params["estimator"]
    return {name: encoder.encode(value, f"the parameter {name!r}") for name, value in params.items()}


def write_estimator(
    path: str | os.PathLike,
    estimator: OrtGradientEstimator,
    trained: TrainedModel,
    state: TrainingState,
    *,
    functions: bool = False,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write an estimator to a file, after a fit or during it.

    Parameters
    ----------
    path : path
        The file.
    estimator : OrtGradientRegressor or OrtGradientClassifier
    trained : TrainedModel
    state : TrainingState
        The state of training, with the weights.
    functions : bool
        As for :class:`~onnxtrain.estimators.file_format.Encoder`.
    more : mapping of str to object, optional
        Further values to store.
    """
    encoder = Encoder(functions=functions)
    model, weights = trained.source.model, state.result()
    in_graph = [name for name, value in _parts(state).items() if value is weights]
    kept = {name: vars(estimator)[name] for name in _ATTRIBUTES if name in vars(estimator)}
    targets = estimator._targets
    kept |= {key: getattr(targets, name) for key, name in _OF_TARGETS.items() if hasattr(targets, name)}
    whole, own = with_weights(model.graph(), weights), None
    if trained.source.original is not None:
        own = _without_copies(graph.attach(onnx.load_model_from_string(trained.source.original)), whole, weights)
    header = {
        "class": type(estimator).__name__,
        "has_estimator": estimator._begun_with["estimator"] is not None,
        "params": encode_parameters(estimator, encoder),
        "fitted_with": {name: encoder.encode(value, name) for name, value in _fitted_with(trained).items()},
        "begun_with": {name: encoder.encode(value, name) for name, value in _set_since_start(estimator).items()},
        "attributes": {name: encoder.encode(value, name) for name, value in kept.items()},
        "form": encoder.encode(_parts(trained.form, "front", "division", "reason", "taken"), "the input form"),
        "front": encoder.encode(_front_of(trained.form), "the preprocessing steps"),
        "own_file": encoder.encode(own, "the original model"),
        "layout": encoder.encode(trained.source.layout, "the files of its weights"),
        "model": encoder.encode({**_parts(model, "onnx", "proto", "held"), "link": model.link.value}, "the model"),
        "held": bool(model.held),
        "names": list(weights),
        "in_graph": in_graph,
        "state": {n: encoder.encode(value, n) for n, value in _parts(state).items() if n not in in_graph},
        "more": {name: encoder.encode(value, name) for name, value in (more or {}).items()},
    }
    file_format.write(path, whole, header, encoder.tensors)


def _targets_of(kept: Kept, dtype: str, *, classifies: bool) -> Targets:
    """Return the targets of an estimator that was read from a file."""
    learned = {name: kept.attributes[key] for key, name in _OF_TARGETS.items() if key in kept.attributes}
    positional = kept.model.positional
    if not classifies:
        return (PositionValues if positional else Values)(dtype, n_axes=learned["n_axes"])
    kind = PositionLabels if positional else IndicatorLabels if learned["n_labels"] else Labels
    return kind(**{part.name: learned[part.name] for part in fields(kind) if part.name in learned})


def _fitted_with(trained: TrainedModel) -> dict[str, Any]:
    """Return the parameters of the last fit that methods read; the estimator's own may have been set since."""
    objective = trained.objective
    return {
        "dtype": trained.dtype,
        "loss": objective.loss,
        "loss_params": dict(objective.loss_params),
        "class_weight": objective.class_weight,
    }


def _as_fitted(trained: TrainedModel, dtype: str, **of_loss: Any) -> TrainedModel:
    """Return a trained model with the parameters of its last fit."""
    of_loss["loss_params"] = tuple(sorted(of_loss["loss_params"].items()))
    return replace(trained, dtype=dtype, objective=replace(trained.objective, **of_loss))


def _set_since_start(estimator: OrtGradientEstimator) -> dict[str, Any]:
    """Return the initial values of the parameters, except the model, that were changed since training began."""
    now = parameters_of_start(estimator)
    return {
        name: value
        for name, value in estimator._begun_with.items()
        if name.partition("__")[0] != "estimator" and not is_same(now.get(name), value)
    }


def _without_copies(own: onnx.ModelProto, whole: onnx.ModelProto, trained: Container[str]) -> np.ndarray:
    """Return the user's model as bytes, without the tensors that the saved graph also holds."""
    twins = {w.name: w for w in whole.graph.initializer}
    for tensor in own.graph.initializer:
        twin = twins.get(tensor.name)
        if (
            twin is not None
            and _are_alike(tensor, twin)
            and (tensor.name in trained or tensor.raw_data == twin.raw_data)
        ):
            tensor.ClearField("raw_data")
    return np.frombuffer(own.SerializeToString(), np.uint8)


def _with_copies(content: np.ndarray, whole: onnx.ModelProto) -> bytes:
    """Return the user's model with the tensors that :func:`_without_copies` removed, taken from the saved graph."""
    own = onnx.load_model_from_string(content.tobytes())
    twins = {w.name: w for w in whole.graph.initializer}
    for tensor in own.graph.initializer:
        twin = twins.get(tensor.name)
        if twin is not None and not tensor.HasField("raw_data") and _are_alike(tensor, twin):
            tensor.raw_data = twin.raw_data
    return graph.read(own).SerializeToString()


def _are_alike(a: onnx.TensorProto, b: onnx.TensorProto) -> bool:
    """Whether two tensors have the same type and shape, and both store their values as raw bytes."""
    plain = not any(len(getattr(t, field)) for t in (a, b) for field in ("float_data", "double_data", "int32_data"))
    return plain and (a.data_type, list(a.dims)) == (b.data_type, list(b.dims)) and b.HasField("raw_data")


def _parts(value: Any, *without: str) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value) if f.name not in without}


def _front_of(form: InputForm) -> np.ndarray | None:
    return to_bytes(form.front) if isinstance(form, PreprocessedForm) else None


def _form_of(parts: Mapping[str, Any], front: np.ndarray | None, trusted: tuple[str, ...]) -> InputForm:
    _check_types("the input form", parts, get_type_hints(InputForm if front is None else PreprocessedForm))
    return InputForm(**parts) if front is None else PreprocessedForm(**parts, front=from_bytes(front, trusted))


class Kept:
    """An estimator that was read from a file.

    Attributes
    ----------
    kind : str
        The name of its class.
    params : dict
        The parameters as they were written; functions among them cannot be decoded.
    begun_with : dict
        The initial values of parameters that were changed since training began.
    attributes, more : dict
        The attributes learned besides the weights, and the values saved with the estimator.
    form : InputForm
    model : TrainableModel
        The model, with the weights at that point of training.
    own_file : bytes or None
        The ONNX model that the user gave.
    layout : mapping of str to mapping
        The location of its tensors that were stored in external data files.
    state : TrainingState
        The state from which training continues.
    has_estimator : bool

    Raises
    ------
    ModelError
        The file cannot be read, or is inconsistent.
    """

    def __init__(self, path: str | os.PathLike, trusted: tuple[str, ...] = ()):
        with _understood(path):
            onx, header, tensors = file_format.read(path)
            graph.check_nodes(onx)
            self._decoder = Decoder(tensors)
            self.kind, self.has_estimator = str(header["class"]), bool(header["has_estimator"])
            self.params = dict(header["params"])
            self.begun_with, self._fitted_with = self._decoded(header["begun_with"]), dict(header["fitted_with"])
            self.attributes, self.more = self._decoded(header["attributes"]), self._decoded(header["more"])
            self.form = _form_of(self._decoder.decode(header["form"]), self._decoder.decode(header["front"]), trusted)
            content, parts = onx.SerializeToString(), self._decoder.decode(header["model"])
            small, held = graph.detached(onx) if header["held"] else (onx, {})
            parts |= {"link": Link(parts["link"]), "onnx": content if small is onx else small.SerializeToString()}
            self.model = TrainableModel(**parts, proto=None, held=held)
            own = self._decoder.decode(header["own_file"])
            self.layout = self._decoder.decode(header["layout"])
            _check_types("the original model", {"layout": self.layout}, {"layout": Mapping[str, Mapping[str, str]]})
            self.own_file = None if own is None else _with_copies(own, onx)
            weights = initial_weights(content, header["names"])
            self.state = TrainingState(**self._decoded(header["state"]) | dict.fromkeys(header["in_graph"], weights))
            _check_types("the estimator", self.attributes, _ATTRIBUTES)
            for value in (self.model, self.state):
                _check_types(type(value).__name__, vars(value), get_type_hints(type(value)))
            _check_model(self.model, onx)
            _check_state(self.state)

    def _decoded(self, part: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._decoder.decode(value) for name, value in part.items()}

    def fitted_with(self) -> dict[str, Any]:
        """Return the parameters of the last fit that methods of the estimator read."""
        found = self._decoded(self._fitted_with)
        hints = {"dtype": str, "loss_params": dict, "class_weight": tuple[float, ...]}
        _check_types("the last fit", found, hints)
        return found

    def decoded_params(self) -> dict[str, Any]:
        """Return the parameters; raise a ModelError if one of them is a function."""
        return self._decoded(self.params)


def _check_types(owner: str, values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Check that values have the types that annotations name."""
    for name, value in values.items():
        if name in hints and not _is_of(value, hints[name]):
            hint = hints[name]
            expected = hint.__name__ if isinstance(hint, type) else str(hint)
            raise ModelError(f"In the file, {name} of {owner} must be of type {expected}, got {value!r:.50}.")


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a value is of a type: a class, a union, or a container with item types."""
    if hint in (int, float):  # a parameter may have a numpy type, and be an integer where a float is expected
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    kind, parts = get_origin(hint), get_args(hint)
    if kind is UnionType:
        return any(_is_of(value, part) for part in parts)
    if kind is None or kind is np.ndarray or kind is np.dtype:
        return isinstance(value, kind or hint) and (hint is bool or not isinstance(value, bool))
    return isinstance(value, kind) and _are_of(value, kind, parts)


def _are_of(values: Any, kind: type, hints: tuple[Any, ...]) -> bool:
    """Whether the items of a container have the types that its annotation names."""
    if issubclass(kind, Mapping):
        return all(_is_of(k, hints[0]) and _is_of(v, hints[1]) for k, v in values.items())
    if kind is tuple and hints[-1] is not ...:
        return len(values) == len(hints) and all(map(_is_of, values, hints))
    return all(_is_of(item, hints[0]) for item in values)


def _check_model(model: TrainableModel, onx: onnx.ModelProto) -> None:
    inputs, names = {i.name for i in onx.graph.input}, {o.name for o in onx.graph.output}
    wrong = (inputs ^ {*model.shapes}) | (inputs ^ {*model.features}) | ({model.output, *model.outputs} - names)
    wrong |= {model.scores or model.output} - names
    if wrong:
        raise ModelError(f"The inputs or outputs in the file do not match its graph: {', '.join(sorted(wrong))}.")
    for i in onx.graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
        if model.features[i.name] != dtype:
            raise ModelError(
                f"The file declares dtype {model.features[i.name]} for the input {i.name!r}, but its graph has {dtype}."
            )


def _check_state(state: TrainingState) -> None:
    shapes = {name: w.shape for name, w in state.weights.items()}
    for weights in (state.best_weights, state.average):
        if weights is not None and {name: w.shape for name, w in weights.items()} != shapes:
            raise ModelError("The weights in the file have inconsistent shapes.")
    for (name, slot), memory in state.slots.items():
        if memory.shape != shapes[name]:
            raise ModelError(f"The optimizer state {slot!r} has another shape than the weight {name!r}.")


def restore(kept: Kept, classes: Mapping[str, type]) -> Any:
    """Return the estimator that was written to a file.

    Parameters
    ----------
    kept : Kept
    classes : mapping of str to type
        The classes that are allowed.
    """
    if kept.kind not in classes:
        raise ModelError(f"The file contains a {kept.kind}, expected one of {', '.join(classes)}.")
    model = kept.model
    params, entrance = kept.decoded_params(), None
    if kept.own_file is not None:
        entrance = Entrance.of(kept.own_file, params.get("inputs"), params.get("batch_axis"), params.get("output"))
    source = Source(model, original=kept.own_file, entrance=entrance, layout=kept.layout)
    whole = source.with_weights(kept.state.result()).SerializeToString() if kept.has_estimator else None
    estimator = classes[kept.kind](whole, **params)
    own = ("classes_", "_n_labels", "_sparse_labels") if estimator._classifies else ("_y_ndim",)
    for name in ("_random_state", *own):
        if name not in kept.attributes:
            raise ModelError(f"The file does not contain {name.strip('_')}.")
    for name in ("n_features_in_", "feature_names_in_", "_random_state", "_decides"):
        if name in kept.attributes:
            setattr(estimator, name, kept.attributes[name])
    fitted_with = kept.fitted_with()
    for loss in (estimator.loss, fitted_with["loss"]):
        if isinstance(loss, str) and loss not in LOSSES:
            raise LossError(
                f"Unknown loss {loss!r}. First import the module that registers it with @onnxtrain.loss({loss!r})."
            )
    estimator._targets = _targets_of(kept, fitted_with["dtype"], classifies=estimator._classifies)
    check_each(estimator)
    estimator._begun_with = parameters_of_start(estimator) | kept.begun_with
    trained = with_objective(estimator, source, kept.state.result(), kept.form)
    trained = _as_fitted(trained, **fitted_with)
    set_learned(estimator, trained, kept.state)
    return estimator
