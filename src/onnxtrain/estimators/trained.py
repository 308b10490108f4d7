"""The trained model: ``fit`` and ``load`` create it, checkpoints store it."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import onnx

from onnxtrain.attributes import Named
from onnxtrain.cache import LIGHT
from onnxtrain.convert.bind import to_sklearn
from onnxtrain.convert.labels import with_labels
from onnxtrain.errors import DataError, DeviceError, ExportError, ModelError, ParameterError, WeightError, warn
from onnxtrain.estimators.arrays import as_pandas
from onnxtrain.estimators.decoder import LabelDecoder
from onnxtrain.estimators.frames import InputForm, count_rows
from onnxtrain.estimators.protocols import ArrayLike, Estimator, Features
from onnxtrain.estimators.remedies import as_data_error
from onnxtrain.estimators.sample_weights import rounded_weights
from onnxtrain.estimators.source import Source
from onnxtrain.graph import FLOATS, results_with, write_model
from onnxtrain.losses.outputs import Layout
from onnxtrain.registry import did_you_mean
from onnxtrain.runtime.device import Device, find_device
from onnxtrain.runtime.session import UNKNOWN_CATEGORY, KeptSession, Place, is_worth_a_thread, run_session
from onnxtrain.training.data import GROUP, NOTHING, TrainingData, dense, most_rows, rows_at_once
from onnxtrain.training.data import take as take_rows
from onnxtrain.training.entries import model_of_entries, reading_entries
from onnxtrain.training.evaluate import (
    build_loss_gradient,
    build_score_gradients,
    row_losses,
    with_result,
)
from onnxtrain.training.frozen import Cut, split_at_weights
from onnxtrain.training.model import with_weights
from onnxtrain.training.objective import Objective, multiplications
from onnxtrain.training.state import TrainingState

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator

#: The number of rows for which the number of threads is chosen, because a session serves predictions of any size.
_MANY_ROWS = 65_536


#: The least number of columns of a matrix that onnxruntime has packed for products, and the number of packed elements
#: from which this is avoided: the 200,000 weights of a linear model take 13 MB instead of 1.
_PACKED, _MANY_PACKED = 16, 2**20

#: The remedy for a gradient that is not one with respect to rows.
_OF_WEIGHTS = " get_training_graphs() has the graph that computes the gradients of the weights."


#: The remedy for the gradient of a model that takes token ids.
_OF_EMBEDDINGS = (
    " For the gradient of the embeddings of tokens, export the network with the embeddings as its input, inputs_embeds "
    "in transformers."
)


class _ShownWeights(Named):
    """The weights by name; an assignment changes an array in place, so that its type and shape stay."""

    def __missing__(self, name: object) -> NoReturn:
        if f"{name}.lora_A" in self:
            raise KeyError(
                f"There is no {name!r}. LoRA trains its factors, {name}.lora_A and {name}.lora_B; get_trained_onnx() "
                "has the sum."
            )
        super().__missing__(name)

    def __setitem__(self, name: str, values: ArrayLike) -> None:
        array = self[name]
        if np.shape(values) != array.shape:
            raise DataError(
                f"The weight {name!r} has the shape {array.shape}, got an array of shape {np.shape(values)}. "
                f"Assign {_reshaped(np.shape(values), array.shape)}."
            )
        with np.errstate(over="ignore"):
            new = np.asarray(values, array.dtype)
        if not np.isfinite(new).all():
            raise DataError(
                f"The values for the weight {name!r} contain NaN or infinity, as {array.dtype}. Replace them, for "
                "example by numpy.nan_to_num(values)."
            )
        array[...] = new

    def update(self, *others: Any, **weights: Any) -> None:
        """Assign several weights."""
        for name, values in dict(*others, **weights).items():
            self[name] = values

    def _cannot_remove(self, *args: Any) -> NoReturn:
        raise DataError(
            "The weights of a trained model cannot be removed. To set one to 0: "
            f"model.weights_[{next(iter(self))!r}][:] = 0."
        )

    __delitem__ = clear = pop = popitem = _cannot_remove

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a constructor for copies and pickles, which would otherwise assign to missing names."""
        return type(self), (dict(self),)


def _reshaped(given: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Return the code that brings values of one shape, such as that of coef_, to another shape."""
    if given == wanted[::-1]:
        return "values.T"
    return f"numpy.reshape(values, {wanted})" if math.prod(given) == math.prod(wanted) else "an array of its shape"


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model with its weights, and how it is run; at the start of a fit it is compared with the user's model.

    Attributes
    ----------
    source : Source
        The user's model, and its trainable form.
    objective : Objective
        The objective of the whole model.
    constants : mapping of str to ndarray
        The values of the learned constants, which are not trained.
    weights : dict of str to ndarray
        The trained weights; the estimator's ``weights_``.
    form : InputForm
        The form of the rows.
    dtype : {"float32", "float64"}
        The type of rows and weights.
    device : str
    n_threads : int or None
    front : Cut or None
        The frozen front that training computed once.
    shown : bool
        Whether the user has got the arrays of the weights, and may change them.
    """

    source: Source
    objective: Objective
    constants: Mapping[str, np.ndarray] = field(repr=False)
    weights: dict[str, np.ndarray] = field(repr=False)
    form: InputForm
    dtype: str
    device: str
    n_threads: int | None
    front: Cut | None = field(default=None, repr=False)
    shown: bool = False
    _session: KeptSession = field(default_factory=KeptSession, init=False, repr=False, compare=False)

    @property
    def rest(self) -> Objective:
        """The objective of the part after the frozen front, which is trained."""
        return self.objective if self.front is None else self.front.objective

    @property
    def scores(self) -> str:
        """The name of the output that is compared between classes: the scores or, without scores, the probabilities."""
        return self.source.model.scores or self.source.model.output

    @property
    def positional(self) -> bool:
        """Whether a row of the output has positions."""
        return self.source.model.positional

    @property
    def layout(self) -> Layout:
        """The axes of the output and of the scores."""
        return self.source.model.layout

    def device_at_hand(self) -> Device:
        """Return the device, or the CPU with a warning if this machine lacks it."""
        try:
            return find_device(self.device)
        except DeviceError as e:
            warn(f"{e} The CPU is used instead.")
            return find_device("cpu")

    # rows in ----------------------------------------------------------------

    def check(self, estimator: Estimator, X: ArrayLike) -> Features:
        """Check rows for the fitted `estimator` that has this model, and return them."""
        return self.form.check(estimator, X, original=self.source.estimator)[0]

    def _feeds(self, X: Features) -> dict[str, Any]:
        return self.form.feeds(X, self.source.model)

    def data(self, X: Features, label: np.ndarray, weight: np.ndarray | None = None) -> TrainingData:
        """Return checked rows with their labels, for the objective of the whole model."""
        column = None if weight is None else rounded_weights(weight, self.dtype).reshape(-1, 1)
        n_scores = self.source.model.width if self.positional else 1
        dtypes = dict(self.source.model.features)
        label = label.astype(self.dtype, copy=False) if label.dtype.kind == "f" else label  # after set_params
        return TrainingData(self._feeds(X), label, column, dtypes, self.constants, n_scores=n_scores)

    def cut(self, data: TrainingData, n_epochs: int) -> tuple[TrainedModel, TrainingData]:
        """Compute the frozen front once if that pays; return the model with its cut, and the rows for the rest."""
        found = split_at_weights(
            self.objective, data, n_epochs, self._place(data), always=self.form.by_name or data.has_texts
        )
        cut, rest = (None, data) if found is None else found
        if cut is None and self.front is None and not self.form.shapes:
            return self, data
        fitted = {name: x.shape[1:] for name, x in data.features.items()} if self.form.shapes else {}
        return replace(self, front=cut, form=replace(self.form, fitted=fitted)), rest

    def behind_front(self, data: TrainingData) -> tuple[TrainedModel, TrainingData]:
        """Return the model and further rows after its front; a model with string inputs is cut if it was not."""
        if self.front is not None:
            return self, self.front.apply(data, self._place(data))
        return self.cut(data, 1) if data.has_texts else (self, data)

    def _place(self, data: TrainingData) -> Place:
        return self.cpu_place if data.has_texts else self.place

    @property
    def place(self) -> Place:
        """The device, with the requested number of threads."""
        return Place(self.device_at_hand(), self.n_threads)

    @property
    def cpu_place(self) -> Place:
        """The CPU, with the requested number of threads."""
        return Place(find_device("cpu"), self.n_threads)

    def raise_as_original(self, X: ArrayLike) -> None:
        """Raise the error of the user's estimator for rows as a DataError, if it refuses them; a graph raises none.

        A logarithm or a Box-Cox transformation of a negative number is NaN in a graph, and an error in scikit-learn.
        """
        if self.source.estimator is None:
            return
        original = self.form.around(self.source.estimator)
        with as_data_error(X), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            original.predict(as_pandas(X))

    @contextmanager
    def category_named(self, X: ArrayLike) -> Iterator[None]:
        """Raise the error of the user's estimator for an unknown category, because it names the category."""
        try:
            yield
        except DataError as e:
            if UNKNOWN_CATEGORY in str(e):
                self.raise_as_original(X)
            raise

    # results out ------------------------------------------------------------

    def predict(self, X: Features, output: str) -> Iterator[np.ndarray]:
        """Yield one output for checked rows, in pieces: all scores of a language model may not fit in memory."""
        if self.source.model.batchwise:
            yield self.run_once(self._feeds(X), [output], as_predicted=True)[output]
            return
        feeds = self._feeds(X)
        onx, stored = model_of_entries(self.objective.model, feeds)
        session, known = self._with_inputs(onx, shared=True) if stored else self._predictor()
        dtypes, large = self.source.model.features, self.positional
        for (found,) in run_pieces(session, feeds, dtypes, [output], known, large=large, stored=stored):
            yield found

    def run_once(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str], *, as_predicted: bool = False
    ) -> dict[str, np.ndarray]:
        """Return outputs for exactly the given rows, by input name, from the kernels of training or of ``predict``."""
        shared = len(self.objective.model) <= LIGHT
        session, known = self._predictor() if as_predicted else self._with_inputs(self.objective.model, shared=shared)
        rows = {name: dense(x, self.source.model.features[name]) for name, x in feeds.items()}
        return dict(zip(outputs, run_session(session, rows | known, outputs), strict=True))

    def _predictor(self) -> tuple[Any, dict[str, np.ndarray]]:
        """Return a session that predicts, and the values of its inputs besides the rows.

        Opening a session takes 0.6 ms, scoring a fold of a grid search with a small model 0.3 ms. So the weights of
        small models are inputs, and all fits of the same structure share one session.
        """
        # frozen weights count, and so do weights that are not multiplied, such as the leaves of a tree
        n_elements = sum(w.size for w in self.weights.values())
        work = _MANY_ROWS * max(multiplications(self.objective.model), n_elements)
        large = is_worth_a_thread(work)
        # a session would copy them, and matrices of few columns several times, if they were not inputs
        if self.source.model.held or any(map(_is_narrow, self.weights.values())):
            return self._with_inputs(self.objective.model, shared=True, work=work)
        if not large and len(self.source.model.onnx) <= LIGHT:  # shared sessions are cached
            return self._with_inputs(self.objective.model, shared=True)
        may_change = self.weights if self.shown else {}
        session = self._session.find(may_change)
        if session is None:
            session = self.place.for_work(work).open(self._filled(), shared=False, thorough=large)
            self._session.keep(session, may_change)
        return session, {}

    def _with_inputs(self, onx: bytes, *, shared: bool, work: float = 0.0) -> tuple[Any, dict[str, np.ndarray]]:
        """Return a session on a model whose weights are inputs, and the values of these inputs."""
        known = {name: np.asarray(w, self.dtype) for name, w in self.weights.items()} | dict(self.constants)
        place = self.place.for_work(work) if work else Place(self.device_at_hand(), 1)
        return place.open(onx, shared=shared, thorough=False), known

    def _filled(self) -> bytes:
        """Return the trainable form with the trained weights as initializers."""
        return with_weights(self.source.model.graph(), self.weights).SerializeToString()

    def losses(self, X: Features, label: np.ndarray) -> np.ndarray:
        """Return the loss of each row, without penalties."""
        model, data = self.behind_front(self.data(X, label))
        place = self.place.for_work(len(label) * multiplications(model.rest.model))
        place = place.for_results(data.rows_at_once * data.bytes_of_scores)
        found = reading_entries(model.rest.as_of_now(), data)
        return row_losses(found.objective, self.weights, found.data, place)

    def score_gradient(self, X: Features, wrt: str) -> np.ndarray:
        """Return the gradients of the scores of a classifier, or of the output, with respect to an input."""
        asked = self.scores if self.objective.classifies else self.source.model.output
        found = self._run_all(build_score_gradients(self._filled(), asked, self._feature(wrt)), X)
        stacked = np.stack(found, axis=-1)
        return stacked[..., 0] if len(found) == 1 else stacked

    def loss_gradient(self, X: Features, label: np.ndarray, wrt: str) -> np.ndarray:
        """Return the gradient of the loss of each row with respect to an input."""
        g = build_loss_gradient(self.objective.as_of_now(), self._feature(wrt))
        session = self.place.open(g.onnx, shared=False)
        data = self.data(X, label)
        known = {i.name for i in session.get_inputs()}
        parts = []
        for rows in data.batches(data.rows_at_once):
            feeds = {**data.constants, **self.weights, **g.feeds(data.piece(rows))}
            parts.append(run_session(session, {name: v for name, v in feeds.items() if name in known})[0])
        return np.concatenate(parts)

    def embed(self, X: Features, output: str) -> np.ndarray:
        """Return an intermediate result for checked rows."""
        try:
            onx = with_result(self._filled(), output)
        except ModelError:
            raise self._no_result(output) from None
        (found,) = self._run_all(onx, X)
        return found

    def _no_result(self, output: object) -> ModelError:
        """Return the error for a value that is not computed, which lists those that the user's file has, too."""
        nodes_of_file = self.to_onnx().graph.node
        of_file = {name for node in nodes_of_file for name in node.output}
        nodes = self.source.model.graph().graph.node
        ours = [name for node in nodes if node.op_type != "Constant" for name in node.output]
        ours = [name for name in ours if name in of_file] or ours
        if not isinstance(output, str):
            return ModelError(
                f"embed takes the name of a result, got {output!r}. In the order of the graph: {', '.join(ours[:20])}"
                f"{f' and {len(ours) - 20} more' if len(ours) > 20 else ''}."
            )
        known = did_you_mean(output, ours)
        if output in of_file:
            return ModelError(
                f"The file has a value {output!r}, but training replaces the operators that compute it, so embed "
                f"cannot return it. To get it, run the file of get_trained_onnx with this output. {known}"
            )
        steps = list(self.form.runs(self.source.estimator))  # those that scikit-learn runs, too
        if output in steps[:-1] and not any("." in step for step in steps):
            known = f"It is a step of the pipeline: use to_sklearn()[:{steps.index(output) + 1}].transform(X). {known}"
        if made := next((node.output[0] for node in nodes_of_file if node.name == output != ""), None):
            known = f"The node of this name returns {made!r}. {known}"
        of_kind = [name for node in nodes if node.op_type.casefold() == output.casefold() for name in node.output]
        if of_kind := [name for name in of_kind if name in ours]:
            known = f"The results of {output} nodes are called {', '.join(of_kind[:5])}. {known}"
        results = [name for name in results_with(nodes, output) if name in ours]
        if results and output not in self.source.model.features:
            known = f"The layer with these weights returns {results[-1]!r}. {known}"
        return ModelError(f"The model has no result {output!r}. {known}")

    def _feature(self, wrt: str) -> str:
        """Return the name of the floating-point input that is meant."""
        names = list(self.source.model.features)
        if not isinstance(wrt, str):
            several = isinstance(wrt, (list, tuple)) and len(wrt) and all(isinstance(name, str) for name in wrt)
            remedy = f"Call gradient(X, wrt={wrt[0]!r}), once for each." if several else "Call gradient(X, y)."
            raise DataError(f"wrt must be the name of an input, got {type(wrt).__name__}. {remedy}")
        if wrt == "X" and len(names) == 1:
            wrt = names[0]
        if wrt not in names:
            remedy = " The gradient of a column is that column of gradient(X)." if len(names) == 1 else ""
            if wrt in self.weights:
                remedy = _OF_WEIGHTS
            if wrt == "X" and not any(dtype.kind == "f" for dtype in self.source.model.features.values()):
                raise DataError(f"No input is floating-point: {', '.join(names)}.{self._differentiable()}")
            if wrt == "X" and not remedy:
                raise DataError(f"The model has several inputs: {', '.join(names)}.{self._differentiable()}")
            raise DataError(f"The model has no input {wrt!r}. Its inputs are {', '.join(names)}.{remedy}")
        kind = self.source.model.features[wrt].kind
        if content := {"O": "text", "U": "text", "b": "booleans", "i": "integers", "u": "integers"}.get(kind):
            raise WeightError(f"The input {wrt!r} contains {content}, without a derivative.{self._differentiable(wrt)}")
        return wrt

    def _differentiable(self, wrt: str | None = None) -> str:
        """Return the remedy for an input that is not floating-point, `wrt`, or for none."""
        kinds = {name: dtype.kind for name, dtype in self.source.model.features.items()}
        floats = [name for name, kind in kinds.items() if kind == "f"]
        integers = [name for name, kind in kinds.items() if kind in "iu"]
        column = wrt if floats or wrt in integers else next(iter(integers), None)
        if self.source.original is None and column in integers:
            return f" Pass the column {column!r} as floats in fit: X.astype({{{column!r}: float}})."
        if floats:
            return f" Name a floating-point input: wrt={floats[-1]!r}."
        return f"{_OF_EMBEDDINGS}{_OF_WEIGHTS}" if integers and self.source.original is not None else _OF_WEIGHTS

    def _run_all(self, onx: bytes, X: Features) -> list[np.ndarray]:
        session = self.place.open(onx, shared=False)
        names = [o.name for o in session.get_outputs()]
        return list(run_rows(session, self._feeds(X), self.source.model.features, names).values())

    # other models -----------------------------------------------------------

    def to_be_shown(self) -> TrainedModel:
        """Return the same model, whose predictions follow changes of the arrays in `weights`."""
        return self if self.shown else replace(self, shown=True, weights=_ShownWeights(self.weights))

    def on(self, device: str, n_threads: int | None) -> TrainedModel:
        """Return the same model on another device or with another number of threads."""
        if (device, n_threads) == (self.device, self.n_threads):
            return self
        return replace(self, device=device, n_threads=n_threads)

    def to_onnx(self, *, merge: bool = True) -> onnx.ModelProto:
        """Return the user's model with the trained weights; without `merge`, low-rank factors stay separate."""
        return self.source.with_weights(self.weights, merge=merge)

    def write(self, onx: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
        """Write `onx`, the trained form of the user's model, with external data files if the original had any."""
        write_model(onx, path, self.source.layout)

    def with_labels(self, onx: onnx.ModelProto, decoder: LabelDecoder | None) -> onnx.ModelProto:
        """Return `onx`, the trained form of the user's model, with a classifier's labels and probabilities as outputs.

        Raises
        ------
        ParameterError
            `decoder` is None: a regressor has no labels.
        ExportError
            The output has positions, or the model already has a value with the name of a new output.
        """
        read = self.source.model
        if decoder is None:
            raise ParameterError("labels=True is only for classifiers; a regressor has no labels.")
        tensors = [y.type.tensor_type for y in onx.graph.output if y.type.HasField("tensor_type")]
        has_labels = any(tensor.elem_type not in FLOATS for tensor in tensors)
        if has_labels and (read.classes is not None or self.source.original is None):
            return onx
        if read.positional:
            raise ExportError(
                "labels=True needs one label per row, but this output has one per position. Take the argmax along axis "
                f"{read.class_axis} of the output of get_trained_onnx()."
            )
        return with_labels(
            onx,
            output=read.output,
            n_columns=read.width,
            scores=read.scores,
            n_scores=read.n_scores,
            link=read.link,
            classes=decoder.classes,
            n_labels=decoder.n_labels,
            likely=decoder.likely,
        )

    def to_sklearn(self) -> Any:
        """Return a copy of the user's estimator with the trained weights.

        Raises
        ------
        ExportError
            The model was given as ONNX, or a weight has no corresponding attribute in the estimator.
        """
        if self.source.estimator is None:
            raise ExportError(
                "There is no estimator to write to: the model was passed as ONNX, or loaded from a file of "
                "onnxtrain.save, which contains no scikit-learn objects. Use get_trained_onnx()."
            )
        weights = self.source.merged(self.weights)
        return self.form.around(to_sklearn(self.source.estimator, self.source.bindings, weights))


def set_learned(estimator: OrtGradientEstimator, model: TrainedModel, state: TrainingState) -> None:
    """Set the learned attributes of an estimator; the state shares ``weights_``, from which training continues."""
    # held weights that are read-only are the user's own
    result = {name: w if w.flags.writeable else w.copy() for name, w in state.result().items()}
    state.best_weights = result if state.validated and state.best_weights is not None else None
    state.weights = result if state.average is None else dict(state.weights)  # training must not change the mean
    set_learned_so_far(estimator, model, state, result)


def set_learned_so_far(
    estimator: OrtGradientEstimator, model: TrainedModel, state: TrainingState, weights: dict[str, np.ndarray]
) -> None:
    """Set the learned attributes of an estimator to given weights and the losses that a state has recorded."""
    estimator._trained, estimator._state = replace(model, weights=weights), state
    estimator.loss_curve_ = list(state.loss_curve)
    estimator.validation_loss_curve_ = list(state.validation_loss_curve)
    estimator.best_loss_ = state.best_loss
    estimator.best_iteration_ = state.best_epoch
    estimator.n_iter_ = state.epoch


def _is_narrow(w: np.ndarray) -> bool:
    """Whether a session would pack a large matrix of weights to several times its size."""
    return w.ndim == 2 and 2 * w.shape[1] <= _PACKED and _PACKED * w.shape[0] > _MANY_PACKED


def run_rows(
    session: Any,
    feeds: Mapping[str, Any],
    dtypes: Mapping[str, np.dtype],
    outputs: Sequence[str],
    known: Mapping[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Return the outputs of a session for rows, computed by :func:`run_pieces`."""
    parts = list(run_pieces(session, feeds, dtypes, outputs, known))
    found = parts[0] if len(parts) == 1 else [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    return dict(zip(outputs, found, strict=True))


def run_pieces(
    session: Any,
    feeds: Mapping[str, Any],
    dtypes: Mapping[str, np.dtype],
    outputs: Sequence[str],
    known: Mapping[str, np.ndarray] | None = None,
    *,
    large: bool = False,
    stored: Mapping[str, int] = NOTHING,
) -> Iterator[list[np.ndarray]]:
    """Yield outputs of a session for rows, in pieces of bounded size.

    Parameters
    ----------
    session : InferenceSession
    feeds : mapping of str to array-like
        The rows by input.
    dtypes : mapping of str to numpy dtype
        The types of the inputs.
    outputs : sequence of str
    known : mapping of str to ndarray, optional
        The values of inputs that are the same for all rows, such as weights. The result for a row must not depend on
        the number of rows then, so the last row is repeated to fill a group.
    large : bool
        Whether the outputs of a row may take much memory; the first row then shows how much.
    stored : mapping of str to int
        The inputs whose stored entries the session reads, and the width of their products.
    """
    n_rows, most, start = count_rows(feeds), rows_at_once(feeds, dtypes, stored), 0
    size = 1 if large else most
    while start < n_rows:
        stop = min(start + size, n_rows)
        rows: slice | np.ndarray = slice(start, stop)
        if known and (stop - start) % GROUP:
            rows = np.minimum(np.arange(start, stop + -(stop - start) % GROUP), n_rows - 1)
        piece = take_rows(feeds, rows, dtypes, stored)
        found = run_session(session, {**piece, **(known or {})}, outputs)
        if known:
            found = [y[: stop - start] for y in found]
        del piece  # before the next one is made
        yield found
        start += size
        if large:
            size = min(most, most_rows(max(y[:1].nbytes for y in found)))
