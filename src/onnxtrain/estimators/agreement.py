"""Before training, a model is compared on some rows with the user's original: a step of rate 0 must change nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx
from sklearn.base import is_classifier, is_outlier_detector, is_regressor
from sklearn.isotonic import IsotonicRegression

from onnxtrain.cache import Cache, content_key
from onnxtrain.convert import answer
from onnxtrain.convert.additions.calibration import (
    BY_SIGMOID,
    WITHOUT_ONE_VS_REST,
    divides_zeros,
    is_steep,
    magnifies_zeros,
)
from onnxtrain.convert.boosted import lost_outputs
from onnxtrain.convert.check import (
    MEASURED,
    are_equal,
    chooses_by_scores,
    differences,
    is_approximate,
    remedy_of,
    remedy_of_labels,
)
from onnxtrain.convert.columns import as_float64
from onnxtrain.convert.compared_rows import at_most, spread
from onnxtrain.convert.compared_rows import some_rows as chosen_rows
from onnxtrain.convert.learned import inside
from onnxtrain.errors import ConversionError, DataError, ModelError, warn
from onnxtrain.estimators.compared_results import TOLERANCE, TOLERANCE_OF_HALVES, check_labels, check_values
from onnxtrain.estimators.decoder import LabelDecoder
from onnxtrain.estimators.frames import count_rows
from onnxtrain.estimators.independence import check_first_axis, check_rows_alone, in_training_mode, random_numbers
from onnxtrain.estimators.original import answers_of_onnx, computes_in_halves, has_halves, is_rough, quantized_steps
from onnxtrain.estimators.protocols import Features, take
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.losses.link import Link, output_of
from onnxtrain.losses.outputs import NEXT_TOKEN
from onnxtrain.training.data import dense
from onnxtrain.training.objective import multiplications

#: The number of rows that are compared.
_ROWS = 200

#: The multiplications that all compared rows may take, 0.01 s for each of the two models; of a larger model two rows
#: are compared. With ten times as many, the comparison took a quarter of a fit of the head of a convolutional network
#: on 2000 images; with twice as many, that fit took a tenth longer.
WORK = 1e8

#: The largest number of elements of an output with positions, on all compared rows.
_ELEMENTS = 2**22

#: The remedy for rows of which a model of half precision has no finite result.
_TOO_LARGE_FOR_HALVES = (
    "The file computes in float16, whose largest number is 65504. Scale the rows as in its training, or export the "
    "model in float32."
)

#: The tolerance of sums of probabilities, for float16.
SUM = 1e-3

#: A larger difference is not just the last digits; sums of kernels with large coefficients of both signs cause it. If
#: the compared rows differ by more than the second number, other rows may differ by more than the first.
_LAST_DIGITS, _NEARLY = 1e-5, 5e-6

#: How much less accurate one order of the sums may be than another, in kernel machines.
_OTHER_KERNELS = 10

#: If the largest probability is smaller, differences are relative to this: onnxruntime's Sigmoid has steps of 6e-8.
_RARE = 1e-3

#: The exponentials and Sigmoids of lower scores may be 0 in float32.
_VANISHING = -80.0

#: The number of rows on which such labels, which are rare, or nearly too large differences are compared, and the
#: multiplications that these rows may take; libsvm needs about 2 s for them.
_MANY_ROWS, _WORK_OF_MANY_ROWS = 5000, 1e9

_OTHER_OUTPUT = "Choose the output to train with output=..., or set dtype='float64'."

#: The remedy for labels of libsvm.
_OF_LIBSVM = (
    "The file predicts a class by the decision function of a support vector machine, to which libsvm fits the "
    "probabilities. Convert CalibratedClassifierCV(SVC(), ensemble=False), which predicts by its probabilities, or "
    "SVC() without probability=True, which has none."
)

#: The remark where the labels of libsvm are those of its probabilities in all compared rows.
_ON_OTHER_ROWS = "predict agrees with the original model on the compared rows, but on others it may not. "

_OTHER_LABELS = (
    "If skl2onnx wrote the file, pass the scikit-learn estimator instead. Otherwise set output_is='scores' or "
    "output_is='probabilities', choose another output with output=..., or pass the model without its label output."
)

#: skl2onnx negates the scores of a binary support vector machine, or its probabilities if it has any.
_NEGATED = (
    "Its output holds the negated probabilities, as skl2onnx writes with raw_scores=True. Convert without raw_scores."
)

#: skl2onnx writes the decision values of a binary ensemble so with raw_scores=True.
_OPPOSITES = (
    "The two columns of the output {!r} are -d and d, one decision value stored twice. They are read as two scores, so "
    "predict_proba is 1 / (1 + exp(-2 d)) for the second class. Pass the scikit-learn estimator instead of the file, "
    "or let the model return only d."
)


class _Verdict(NamedTuple):
    """The result of a comparison.

    Attributes
    ----------
    decides : bool
        Whether the scores are the estimator's decision function.
    warnings : tuple of str
    off : float
        The largest difference between results of the estimator, relative to their range or to the largest.
    """

    decides: bool
    warnings: tuple[str, ...]
    off: float = 0.0


#: Comparisons that succeeded, by models, rows and the kind of comparison.
AGREED: Cache[_Verdict] = Cache("agreement")


def some_rows(X: Features, multiplications: float = 0.0) -> Features:
    """Return rows spread over X, as many as a model of `multiplications` per row runs quickly."""
    return _spread_rows(X, int(np.clip(WORK / max(multiplications, 1.0), 2, _ROWS)))


def _many_rows(X: Features, multiplications: float) -> Features:
    """Return rows spread over X, all of them if X is small, because rows that differ are rare."""
    return _spread_rows(X, int(np.clip(_WORK_OF_MANY_ROWS / max(multiplications, 1.0), _ROWS, _MANY_ROWS)))


def _spread_rows(X: Features, n_rows: int) -> Features:
    return take(X, spread(count_rows(X), at_most(X, n_rows)))


def check_start(
    model: TrainedModel, X: Features, decoder: LabelDecoder | None, target: tuple[int, ...] | None = None
) -> bool:
    """Compare the predictions of a model with its initial weights with those of the original model, on some rows.

    Parameters
    ----------
    model : TrainedModel
    X : array-like
    decoder : LabelDecoder or None
        The decoder of a classifier.
    target : tuple of int, optional
        The shape of the labels of a row with positions.

    Returns
    -------
    bool
        Whether the scores are the results of the model's ``decision_function``, if it has one; its probabilities may be
        the softmax of other scores.

    Raises
    ------
    ConversionError, ModelError
        The predictions differ; the message holds the row and both values. Or the first axis of the output is not that
        of the rows.
    DataError
        The positions of the output differ from those of the labels.
    """
    if target is not None:
        X = _with_room(model, X, target)
    how = type(model.source.estimator), tuple(model.weights), repr(decoder)
    if how not in model.source.agreed:
        verdict = _compare_start(model, X, decoder, how)
        for message in verdict.warnings:
            warn(message)
        model.source.agreed[how] = verdict.decides
    return model.source.agreed[how]


def _with_room(model: TrainedModel, X: Features, target: tuple[int, ...]) -> Features:
    """Return rows whose outputs are small enough to compare; check the output axes on one row and on two rows.

    Raises
    ------
    ModelError
        The first axis of the output is not that of the rows.
    DataError
        The positions of the output differ from those of labels of this shape.
    """
    output, layout = model.source.model.output, model.layout
    one = check_first_axis(model, X)
    positions = tuple(size for axis, size in enumerate(one) if axis not in (0, layout.class_axis))
    if positions != target:
        remedy = NEXT_TOKEN if len(positions) == 1 and target == (positions[0] - 1,) else ""
        if len(positions) == len(target) == 2:
            remedy = " Resize the labels to it, to the nearest neighbor: a mean of two classes is another class."
        raise DataError(
            f"The labels of a row must have shape {positions}, because the output {output!r} has shape {one} for one "
            f"row of X, but a row of y has shape {target}.{remedy}"
        )
    n_rows = int(np.clip(_ELEMENTS // max(math.prod(one), 1), 1, _ROWS))
    return take(X, spread(count_rows(X), n_rows))


def _compare_start(model: TrainedModel, X: Features, decoder: LabelDecoder | None, how: Hashable) -> _Verdict:
    source, read = model.source, model.source.model
    few = source.original is None and _differs_on_few(source.estimator)
    work = multiplications(model.objective.model) if source.original is not None or few else 0.0
    rows = _many_rows(X, work) if few else some_rows(X, work)
    feeds = _feeds(model, rows)
    key = content_key([read.onnx, source.original or b""], feeds, how)
    known = None if key is None else AGREED.find(key)
    if known is not None:
        return known
    if source.original is not None:
        found = _results(model, feeds)
        refuse_empty(read.output, found[read.output])
        verdict = _Verdict(True, _compare_with_onnx(model, found, feeds, decoder))
        check_rows_alone(model, found, feeds)
    else:
        answers = {"X": _as_float64(rows)} if few else source.answers
        verdict = _compare_with_estimator(model, feeds, X, decoder, answers)
        more_rows = not few and count_rows(rows) < count_rows(X)
        if verdict.off > _NEARLY and more_rows and are_equal(answers["X"], _as_float64(rows)):
            more = _many_rows(X, multiplications(model.objective.model))
            verdict = _compare_with_estimator(model, _feeds(model, more), X, decoder, {"X": _as_float64(more)})
    return verdict if key is None else AGREED.keep(key, verdict)


def _differs_on_few(estimator: Any) -> bool:
    """Whether few rows may differ: those between two classes for libsvm, those on a step of an isotonic regression."""
    steep = any(isinstance(e, IsotonicRegression) or getattr(e, "method", "") == "isotonic" for e in inside(estimator))
    return steep or (is_classifier(estimator) and is_approximate(estimator))


def refuse_empty(output: str, found: np.ndarray) -> None:
    """Raise a ModelError if the output of a model has no values for some rows."""
    if found.ndim and not found.size:
        raise ModelError(
            f"The output {output!r} is empty: it has shape {found.shape} for {len(found)} rows. Pass output=... to "
            "train another output, or set head='new' to give the model a new last layer."
        )


def _feeds(model: TrainedModel, rows: Features) -> dict[str, np.ndarray]:
    """Return rows as the inputs of the model, by name."""
    read = model.source.model
    return {name: dense(x, read.features[name]) for name, x in model.form.feeds(rows, read).items()}


def _as_float64(rows: Features) -> Any:
    """Return rows as scikit-learn takes them."""
    return as_float64(chosen_rows(rows, count_rows(rows)))


def _results(
    model: TrainedModel, feeds: Mapping[str, np.ndarray], *, as_predicted: bool = False
) -> dict[str, np.ndarray]:
    """Return the output and the scores of a model by name, one row per row if they have no positions."""
    outputs = dict.fromkeys([model.source.model.output, model.scores])
    found = model.run_once(feeds, list(outputs), as_predicted=as_predicted)
    return found if model.positional else {name: y.reshape(len(y), -1) for name, y in found.items()}


def _compare_with_estimator(
    model: TrainedModel,
    feeds: Mapping[str, np.ndarray],
    X: Features,
    decoder: LabelDecoder | None,
    answers: dict[str, Any],
) -> _Verdict:
    """Compare the results for `feeds` with those of the estimator, which are in `answers` or are added to it.

    The kernels of training, whose session is open already, usually agree by far. Where they do not, those of
    ``predict`` decide, which sum in another order.
    """
    ask = partial(answer, model.source.estimator, X, answers)

    def verdict(*, as_predicted: bool) -> _Verdict:
        found = _results(model, feeds, as_predicted=as_predicted)
        if decoder is None:
            return _compare_with_regressor(model, found, ask)
        return _compare_with_classifier(model, found, ask, decoder)

    with suppress(ConversionError):
        near = verdict(as_predicted=False)
        if _OTHER_KERNELS * near.off <= _NEARLY:
            return near
    return verdict(as_predicted=True)


def _compare_with_onnx(
    model: TrainedModel,
    found: Mapping[str, np.ndarray],
    feeds: Mapping[str, np.ndarray],
    decoder: LabelDecoder | None,
) -> tuple[str, ...]:
    """Compare outputs on some rows with those of the user's ONNX model; return warnings."""
    original, name = model.source.rows_first(), model.source.model.output
    expected, rough, steps = answers_of_onnx(original, feeds), is_rough(original), quantized_steps(original)
    steps = max(steps, TOLERANCE_OF_HALVES) if computes_in_halves(original) else steps
    if name in expected:
        check_values(
            f"the output {name!r}",
            found[name],
            expected[name],
            lambda: _remedy_of_file(onnx.load_model_from_string(original), expected[name]),
            error=ModelError,
            rough=rough,
            steps=steps,
            least=1e-30 if model.source.model.link is Link.IDENTITY else _RARE,
        )
        _check_link(model, found, steps)
    if decoder is None:
        return ()
    scores_alone = model.source.model.link is Link.IDENTITY
    warnings = (_OPPOSITES.format(name),) if scores_alone and _are_opposites(found[model.scores], original) else ()
    size = decoder.labels(model.layout.table(found[model.scores])).size
    # other outputs are lists of the classes, several classes for each row, or conditions
    labels = [y for y in expected.values() if y.dtype.kind != "f" and y.size == size]
    labels = [y for y in labels if y.dtype.kind != "b"] or labels
    negated = rough and _are_minus_probabilities(found[name])
    if len(labels) == 1:
        remedy = _NEGATED if negated else _OF_LIBSVM if rough else _OTHER_LABELS
        said = check_labels(
            model, found, labels[0], decoder, lambda: remedy, error=ModelError, rough=rough, steps=steps
        )
        return warnings + (said or ((_ON_OTHER_ROWS + remedy,) if rough else ()))
    if negated:
        raise ModelError(f"The output {name!r} cannot be trained. {_NEGATED}")
    return warnings


def _check_link(model: TrainedModel, found: Mapping[str, np.ndarray], steps: float) -> None:
    """Raise a ModelError if the output is not the function of the scores that was found in the graph."""
    read = model.source.model
    output, scores = (model.layout.table(found[name]) for name in (read.output, model.scores))
    if len(output) != len(scores):
        return  # an output of other rows is refused by the layout, in its own words
    sure = scores.max(axis=1) > _VANISHING
    output, computed = output[sure], output_of(read.link, scores[sure].astype(np.float64))
    if sure.any() and computed is not None and computed.shape[1] == output.shape[1]:
        name = f"the output {read.output!r}, as the {read.link.value} of {model.scores!r},"
        remedy = "Set output_is='scores', or let the model return its scores, without probabilities."
        check_values(name, computed, output, lambda: remedy, error=ModelError, steps=steps, least=_RARE)


def _remedy_of_file(original: onnx.ModelProto, expected: np.ndarray) -> str:
    """Return the remedy for a file whose output the trainable form does not reproduce."""
    if has_halves(original) and not np.isfinite(expected).all():
        return _TOO_LARGE_FOR_HALVES
    found = in_training_mode(original) or lost_outputs(original) or random_numbers(original)
    return found or _OTHER_OUTPUT


def _are_opposites(scores: np.ndarray, original: bytes) -> bool:
    """Whether the two columns of scores are -d and d, in a file of skl2onnx."""
    opposite = bool(scores.any()) and np.array_equal(scores[:, :1], -scores[:, 1:])
    return opposite and onnx.load_model_from_string(original).producer_name == "skl2onnx"


def _are_minus_probabilities(found: np.ndarray) -> bool:
    found = found.reshape(len(found), -1)
    return bool(np.all(found <= 0) and np.all(np.abs(found.sum(axis=1) + 1) <= SUM))


def _compare_with_regressor(
    model: TrainedModel, found: Mapping[str, np.ndarray], ask: Callable[[str], Any]
) -> _Verdict:
    """Compare predictions with those of a regressor; `ask` is as for :func:`_compare_with_classifier`."""
    estimator = model.source.estimator
    if not is_regressor(estimator):
        return _Verdict(True, ())
    output, remedy = found[model.source.model.output], partial(remedy_of, estimator)
    off = check_values("predict", output, ask("predict"), remedy, error=ConversionError, of_range=True)
    return _Verdict(True, _lost_digits(model, "predict", off, of_range=True), off)


def _compare_with_classifier(
    model: TrainedModel, found: Mapping[str, np.ndarray], ask: Callable[[str], Any], decoder: LabelDecoder
) -> _Verdict:
    """Compare probabilities or scores, and labels, with results of the classifier's methods; `ask(name)` gives one."""
    estimator = model.source.estimator
    if not (is_classifier(estimator) or is_outlier_detector(estimator)):
        return _Verdict(True, ())
    remedy, rough = partial(remedy_of, estimator), is_approximate(estimator)
    scores = found[model.scores]
    own = {"decision_function": scores} if decoder.link is Link.IDENTITY else {}
    if decoder.likely:
        own["predict_proba"] = decoder.probabilities(
            scores if decoder.takes_scores else found[model.source.model.output]
        )
    messages: tuple[str, ...] = ()
    largest = 0.0
    for method, values in own.items():
        if hasattr(estimator, method):
            off = check_values(method, values, ask(method), remedy, error=ConversionError, rough=rough)
            messages += _lost_digits(model, method, off)
            largest = max(largest, off)
    if hasattr(estimator, "predict"):
        remedy = partial(remedy_of_labels, estimator)
        said = check_labels(model, found, ask("predict"), decoder, remedy, error=ConversionError, rough=rough)
        messages += said or ((_ON_OTHER_ROWS + remedy(),) if chooses_by_scores(estimator) else ())
    decides = not hasattr(estimator, "decision_function") or _are_decisions(scores, ask("decision_function"))
    return _Verdict(decides, messages, largest)


def _lost_digits(model: TrainedModel, method: str, off: float, *, of_range: bool = False) -> tuple[str, ...]:
    """Return the warning that the graph loses more than the last digits; nothing if it does not."""
    if off <= _LAST_DIGITS:
        return ()
    differs = f"before the first step, {method} differs from the original model by {off:.1e} of {MEASURED[of_range]}."
    estimator = model.source.estimator
    if model.dtype == "float32" and not magnifies_zeros(estimator) and not divides_zeros(estimator):
        return (f"float32 is not precise enough for this model: {differs} Set dtype='float64'.",)
    remedy = f" {BY_SIGMOID}" if is_steep(estimator) else f" {WITHOUT_ONE_VS_REST}" if divides_zeros(estimator) else ""
    return (f"The graph is not precise enough for this model: {differs}{remedy}",)


def _are_decisions(scores: np.ndarray, expected: Any) -> bool:
    """Whether the scores equal a decision function, which has one column for two classes."""
    expected = np.asarray(expected, np.float64).reshape(len(scores), -1)
    if scores.shape[1] == 2 and expected.shape[1] == 1:
        scores = scores[:, 1:] - scores[:, :1]
    return scores.shape == expected.shape and bool(differences(scores, expected).max(initial=0.0) <= TOLERANCE)
