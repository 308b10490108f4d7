"""The start of a fit: the model of the user, made trainable, compared with the original and given initial weights.

A pipeline that ONNX does not compute as scikit-learn does is divided: scikit-learn runs its first steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from onnxtrain import graph
from onnxtrain.convert.boosted import check_exported
from onnxtrain.convert.check import answer
from onnxtrain.convert.failures import of_dates_passed_on
from onnxtrain.convert.last_layer import head_weights
from onnxtrain.convert.learned import holds, inside, predictor_of, thawed
from onnxtrain.convert.lookups import added_masks
from onnxtrain.convert.model_inputs import Entrance
from onnxtrain.convert.thresholds import HISTOGRAMS
from onnxtrain.dialects import for_table
from onnxtrain.errors import (
    ConversionError,
    DataError,
    OnnxTrainError,
    WeightError,
    warn,
)
from onnxtrain.estimators.agreement import check_start
from onnxtrain.estimators.arrays import as_array, as_pandas, is_polars, not_nullable, warn_of_multiplied_mask
from onnxtrain.estimators.cautions import (
    warn_of_lost_names,
    warn_of_no_penalized,
    warn_of_quantized,
    warn_of_scale,
    warn_of_steep_calibration,
    warn_of_stored_targets,
)
from onnxtrain.estimators.division import Division, divisions, is_divisible, refusal
from onnxtrain.estimators.fit_data import check_first_rows, check_rows
from onnxtrain.estimators.fitting import fitted_on, fitted_source
from onnxtrain.estimators.frames import InputForm, Rows, check_kind, holds_halves, is_rounded, warn_of_unknown
from onnxtrain.estimators.inner_parameters import warn_of_ignored_parameters
from onnxtrain.estimators.leaks import warn_of_target_among_columns
from onnxtrain.estimators.lora import LoRA, adapted
from onnxtrain.estimators.output_kind import settled
from onnxtrain.estimators.positions import warn_of_same_tokens
from onnxtrain.estimators.preprocessing import (
    PreprocessedForm,
    check_agreement,
    computes_integers,
    reason_of,
    reason_of_rounding,
)
from onnxtrain.estimators.protocols import (
    ArrayLike,
    Estimator,
    Features,
    Model,
    OnnxModel,
    is_fitted,
    is_frame,
    is_of_objects,
    is_onnx,
)
from onnxtrain.estimators.remedies import as_data_error, check_no_dates
from onnxtrain.estimators.reports import is_part_of_more
from onnxtrain.estimators.reuse import IN_FLOAT64, as_source
from onnxtrain.estimators.sample_weights import check_sample_weight
from onnxtrain.estimators.settings import floats_of, go_on, parameters_of_start, with_objective
from onnxtrain.estimators.source import Source, layout_of, opened, with_head
from onnxtrain.estimators.split_ranks import on_ranks
from onnxtrain.estimators.targets import Values, check_axes, check_class_axis
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.estimators.validation import check_even, check_lengths, check_targets
from onnxtrain.losses.link import Link
from onnxtrain.training.model import Reading, TrainableModel, draw_weights
from onnxtrain.training.parameters import scaling_weights
from onnxtrain.training.state import TrainingState, Weights
from onnxtrain.training.weights import choose_weights

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator


#: The number of rows that are searched for dates.
_FEW = 100


def start(
    estimator: OrtGradientEstimator,
    X: Features,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    known: TrainedModel | None,
) -> tuple[Rows, TrainedModel, TrainingState]:
    """Return the checked rows and the model with its state before the first step.

    If ONNX does not compute an estimator as scikit-learn does, the estimator is divided: scikit-learn runs its first
    steps.

    Parameters
    ----------
    estimator : OrtGradientRegressor or OrtGradientClassifier
    X, y, sample_weight : array-like
        As given to ``fit``.
    known : TrainedModel or None
        The model of the last fit, if training continues from it.
    """
    if known is not None:
        return _start_again(estimator, X, y, sample_weight, known)
    estimator._begun_with = parameters_of_start(estimator)
    if not is_onnx(estimator.estimator):
        check_even(y)
    if not is_part_of_more():
        warn_of_target_among_columns(X, y, estimator.estimator)
    X = as_array(X) if hasattr(X, "detach") else X  # a tensor
    rows, model, state = _start_first(estimator, X, y, sample_weight)
    warn_of_ignored_parameters(estimator, model.weights)
    return rows, model, state


def _start_first(
    estimator: OrtGradientEstimator, X: Features, y: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Rows, TrainedModel, TrainingState]:
    """Return the checked rows, and the model as it is given, with its state."""
    if is_onnx(estimator.estimator):
        return _start_of_onnx(estimator, X, y, sample_weight, estimator.estimator)
    refused: Exception | None = None
    rounding = ""
    try:
        if not (is_of_objects(X) and is_divisible(estimator.estimator)):
            rows = check_first_rows(estimator, X, y, sample_weight)
            whole = estimator._default_estimator() if estimator.estimator is None else estimator.estimator
            compared, model = _opened(estimator, rows, whole)
            if is_rounded(X) or holds_halves(X) or computes_integers(model.source.estimator, X):
                rounding = reason_of_rounding(model.source.estimator, X, rows.form.dtype)
            if not rounding:
                model, state = _agreed(estimator, compared, model)
                rows.form.warn_of_rounding(rows.exact)
                warn_of_lost_names(whole, X)
                if not is_part_of_more():
                    warn_of_scale(estimator.estimator, X)
                return rows, model, state
    except Exception as e:  # any class: a third-party step may ask for columns by name, but got an array
        _check_divisible(estimator.estimator, e, X)
        refused = e
    return _start_divided(estimator, X, y, sample_weight, refused, rounding)


def _check_divisible(model: Any, error: Exception, X: Features) -> None:
    """Raise the error if dividing the model cannot avoid it; all other errors are reasons to divide the model."""
    ours = isinstance(error, OnnxTrainError) and not isinstance(error, (ConversionError, DataError))
    if is_divisible(model) and not ours:
        return
    if isinstance(error, ConversionError) and holds(model, HISTOGRAMS):  # they may split on ranks
        return
    with as_data_error(X):  # the error may come from fitting in scikit-learn
        raise error


def _start_again(
    estimator: OrtGradientEstimator, X: Features, y: ArrayLike, sample_weight: ArrayLike | None, known: TrainedModel
) -> tuple[Rows, TrainedModel, TrainingState]:
    """Return the checked rows, and the model of the last fit with its state."""
    model, state = go_on(estimator, known)
    rows = check_rows(estimator, X, y, sample_weight, known)
    if known.form.front is None:
        known.form.warn_of_rounding(known.form.exact(X, rows.X))
    return rows, model, state


def _with_axes_of(model: onnx.ModelProto, X: Features) -> onnx.ModelProto:
    """Return a model whose inputs without a declared shape have as many axes as the rows for them."""
    unknown = [v.name for v in model.graph.input if v.type.HasField("tensor_type") and graph.dimensions(v) is None]
    given = X if isinstance(X, Mapping) else dict.fromkeys(unknown[:1], X) if len(model.graph.input) == 1 else {}
    n_axes = {name: _n_axes(given.get(name)) for name in unknown}
    if not any(n_axes.values()):
        return model
    declared = graph.copy_of(model)
    for value in declared.graph.input:
        if n_axes.get(value.name):
            dims = ["rows", *[None] * (n_axes[value.name] - 1)]
            value.type.CopyFrom(onnx.helper.make_tensor_type_proto(value.type.tensor_type.elem_type, dims))
    return declared


def _n_axes(values: Any) -> int:
    """Return the number of axes of an array, or of lists in lists."""
    if isinstance(values, (list, tuple)):
        return 1 + _n_axes(values[0]) if values else 0
    return len(getattr(values, "shape", ()))


def _start_of_onnx(
    estimator: OrtGradientEstimator, X: Features, y: ArrayLike, sample_weight: ArrayLike | None, path: OnnxModel
) -> tuple[Rows, TrainedModel, TrainingState]:
    """Return the checked rows, and an ONNX model with its state before the first step."""
    dtype = floats_of(estimator.dtype)
    model, _held = opened(path, dtype)
    model = _with_axes_of(model, X)
    layout = layout_of(path) if estimator.head == "keep" else {}  # opened() has checked that the file exists
    entrance = Entrance.of(model, estimator.inputs, estimator.batch_axis, estimator.output)
    form = InputForm.of_onnx(X, entrance, dtype, estimator.pad)
    rows = check_first_rows(estimator, X, y, sample_weight, form)
    trained, state = _begin(estimator, rows, model, entrance)
    warn_of_unknown(X, entrance.shapes, estimator.inputs or ())
    if isinstance(rows.X, Mapping):
        for name in added_masks(model) & rows.X.keys():
            warn_of_multiplied_mask(rows.X[name], f"X[{name!r}]")
    if estimator._targets.positional:
        for name in entrance.tables:
            warn_of_same_tokens(rows.y, rows.X[name] if isinstance(rows.X, Mapping) else rows.X)
    form.warn_of_rounding(rows.exact)
    if estimator.weights_to_train is None or str(estimator.weights_to_train) == "all":
        warn_of_quantized(trained.source.model)
    return rows, replace(trained, source=replace(trained.source, layout=layout)), state


def _start_divided(
    estimator: OrtGradientEstimator,
    X: Features,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    refused: Exception | None,
    rounding: str,
) -> tuple[Rows, TrainedModel, TrainingState]:
    """Return the rows transformed by the first steps, and the model of the other steps with its state.

    The largest part that ONNX computes is trained. `refused` or `rounding` is the reason why the whole is not.
    """
    check_kind(estimator, X)
    if isinstance(getattr(X, "shape", None), tuple) or isinstance(X, (list, tuple)):
        check_lengths(X, y)
    check_targets(X, y, classifies=estimator._classifies)
    if sample_weight is not None and not isinstance(sample_weight, Real):
        check_sample_weight(sample_weight, y, "float64")
    if estimator.estimator is not None and not is_fitted(estimator.estimator):
        _check_no_dates(estimator.estimator, X)
    with as_data_error(X), _targets_checked_on_error(estimator, y):
        fitted = fitted_on(
            estimator.estimator,
            (X, not_nullable(y), sample_weight),
            structure_only=estimator.init == "random",
            random_state=estimator._random_state,
        )
    whole = thawed(fitted)
    found = divisions(whole, estimator.weights_to_train)
    # only fitting failed, because the column names were missing
    if not found and not isinstance(refused, ConversionError) and not is_fitted(estimator.estimator):
        with _first_step_named(estimator, whole):
            rows = check_first_rows(estimator, X, y, sample_weight)
        return rows, *_begin(estimator, rows, whole)
    if isinstance(refused, ConversionError) and refused.remedy == IN_FLOAT64 and is_rounded(X):
        rounding = reason_of_rounding(whole, X, floats_of(estimator.dtype))
        refused = None if rounding else refused
    given = (X, y, sample_weight)
    begun, refused = _begun_divided(estimator, given, found, refused, rounding)
    if begun is None and (ranked := on_ranks(whole)) is not None:
        begun, _ = _begun_divided(estimator, given, divisions(ranked, estimator.weights_to_train), refused, rounding)
    if begun is None:
        raise refusal(whole, refused)
    return begun


def _begun_divided(
    estimator: OrtGradientEstimator,
    given: tuple[Features, ArrayLike, ArrayLike | None],
    found: Sequence[Division],
    refused: Exception | None,
    rounding: str,
) -> tuple[tuple[Rows, TrainedModel, TrainingState] | None, Exception | None]:
    """Return the rows, and the model of the first division that ONNX computes with its state; and the last error."""
    X, y, sample_weight = given
    for division in found:
        dates = of_dates_passed_on(division.whole, as_pandas(X[:_FEW])) if is_polars(X) else ""
        reason = for_table(dates, X) or reason_of(X, refused, rounding, division)
        form = PreprocessedForm.of_division(division, floats_of(estimator.dtype), reason, as_pandas(X))
        try:
            rows = check_first_rows(estimator, X, y, sample_weight, form)
            if division.inside:
                check_agreement(division, X)
            trained, state = _begin(estimator, rows, division.tail)
            exact = rows.exact
            if division.inside or not is_rounded(exact) or not reason_of_rounding(division.tail, exact, form.dtype):
                if rounding or dates:
                    form.warn_of_tail()
                return (rows, trained, state), refused
        except DataError as e:
            refused = _not_exported(division) or e
        except ConversionError as e:
            refused = ConversionError(f"{division.path}: {e}")
            refused.__cause__ = e.__cause__
    return None, refused


def _not_exported(division: Division) -> ConversionError | None:
    """Return the error for boosted trees that their library cannot export, such as of categories; None for others."""
    try:
        check_exported(predictor_of(division.tail))
    except ConversionError as e:
        return ConversionError(f"{division.path}: {e}")
    return None


@contextmanager
def _first_step_named(estimator: OrtGradientEstimator, whole: Estimator) -> Iterator[None]:
    """Raise a WeightError for rows that a pipeline refuses, if it is undivided because of weights_to_train."""
    try:
        yield
    except DataError as e:
        if divisions(whole):
            raise WeightError(
                f"weights_to_train={estimator.weights_to_train!r} names the first step of the pipeline, which has "
                "no weights that can be trained with these rows. Leave it out; None trains the last step."
            ) from e
        raise


def _check_no_dates(model: Estimator, X: Any) -> None:
    """Raise an ArgumentTypeError for columns of dates, if no step encodes them.

    scikit-learn converts dates to the time since 1970, unless the frame has columns of other types.
    """
    if not (is_polars(X) or is_frame(X)) or any(map(_may_take_dates, inside(model))):
        return
    check_no_dates(as_pandas(X[:_FEW]))


def _may_take_dates(step: Estimator) -> bool:
    """Whether a step is not scikit-learn's own, or may take values of any type, or texts."""
    if not type(step).__module__.startswith("sklearn."):
        return True
    tags = get_tags(step).input_tags
    return isinstance(step, (ColumnTransformer, FunctionTransformer, SimpleImputer)) or tags.categorical or tags.string


@contextmanager
def _targets_checked_on_error(estimator: OrtGradientEstimator, y: ArrayLike) -> Iterator[None]:
    """Replace an error of the estimator's own fit by that of the targets, if they are invalid; it has a remedy."""
    try:
        yield
    except Exception as e:
        if y is None:
            raise
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error of the fit is raised, if not that of the targets
            targets = estimator._new_targets(y, positional=False)
            labels = targets.check(y if hasattr(y, "shape") else np.asarray(y))
            if "one class" in str(e):
                targets.n_outputs(labels)
            if estimator._classifies and labels.ndim == 2 and np.all(labels.sum(axis=1) == 1):
                raise DataError(f"{e} If y has one column per class, pass y.argmax(axis=1).") from e
        raise


def _begin(
    estimator: OrtGradientEstimator, rows: Rows, model: Model, entrance: Entrance | None = None
) -> tuple[TrainedModel, TrainingState]:
    """Return the user's model, ready to be trained and compared with the original, and its state."""
    rows, trained = _opened(estimator, rows, model, entrance)
    with trained.source.remedy_in_errors():
        return _agreed(estimator, rows, trained)


def _opened(
    estimator: OrtGradientEstimator, rows: Rows, model: Model, entrance: Entrance | None = None
) -> tuple[Rows, TrainedModel]:
    """Make a model trainable; return the rows to compare it on, and the model with its objective.

    An unfitted estimator is fitted first.

    Parameters
    ----------
    estimator : OrtGradientRegressor or OrtGradientClassifier
    rows : Rows
    model : fitted or unfitted estimator, or ONNX model
    entrance : Entrance, optional
        How rows reach the inputs of an ONNX model.
    """
    output, random_state = estimator.output, estimator._random_state
    if is_onnx(model) and isinstance(output, str):  # else a large file is not read for this
        output = graph.tensor_behind_map(graph.read(model), output)
    if estimator.head == "new":
        model = model if entrance is None else entrance.with_branches_taken(model)
        model, output = with_head(model, estimator._targets.n_outputs(rows.y), estimator.features, output, random_state)
    reading = _reading(estimator, rows, output)
    if is_onnx(model):
        rows = rows._replace(exact=rows.X)
        source = Source.of_onnx(model, rows.X, reading, entrance)
    elif is_fitted(model):
        _check_fitted(estimator, model, rows)
        source = as_source(thawed(model), rows.exact, reading)
    else:
        source = _source_of_unfitted(estimator, model, rows, reading)
    rows.form.check_shape(rows.X, source.model.shapes)
    source = _with_output_known(estimator, source, rows, reading)
    if estimator.weights_to_train is None:
        warn_of_stored_targets(model)
    if not is_part_of_more():
        warn_of_steep_calibration(source.estimator)
    estimator._targets = estimator._targets.learned(rows.y, source, rows.weight)
    source, weights = _initial_weights(estimator, source)
    trained = with_objective(estimator, source, weights, rows.form)
    warn_of_no_penalized(estimator, trained)
    return rows, trained


def _agreed(estimator: OrtGradientEstimator, rows: Rows, model: TrainedModel) -> tuple[TrainedModel, TrainingState]:
    """Check that a model predicts like the original; return the model and its state before the first step."""
    source, targets, weights = model.source, estimator._targets, model.weights
    target = rows.y.shape[1:] if targets.positional else None
    estimator._decides = check_start(model, rows.exact, targets.decoder(model), target)
    if isinstance(targets, Values) and rows.y.shape[1:] == (1,) and source.estimator is not None:
        # of a single column, Ridge predicts one axis and LinearRegression two
        n_axes = np.ndim(answer(source.estimator, rows.exact, source.answers, "predict"))
        estimator._targets = replace(targets, n_axes=n_axes)
    if estimator.init == "random":
        scales = scaling_weights(source.model.graph())
        weights = draw_weights(weights, source.model.penalized, scales, estimator._random_state)
    return replace(model, source=replace(source, answers={}, agreed={})), TrainingState(weights)


def _reading(estimator: OrtGradientEstimator, rows: Rows, output: int | str | None) -> Reading:
    """Return how the output of a model is read, given the parameters and the shape of y."""
    targets = estimator._targets
    return Reading(
        floats_of(estimator.dtype),
        output,
        targets.n_labels,
        estimator._classifies,
        estimator.output_is,
        target=rows.y.shape[1:] if targets.positional else None,
        class_axis=estimator.class_axis,
    )


def _check_fitted(estimator: OrtGradientEstimator, model: Estimator, rows: Rows) -> None:
    """Check that the rows and targets match those on which an estimator was fitted."""
    name = type(model).__name__
    if getattr(model, "n_features_in_", 0):  # copies of CatBoost's models have 0
        wanted = {"X": (None, model.n_features_in_)}
        rows.form.check_shape(rows.X, wanted, f"{name} was fitted on")
    estimator._targets.check_estimator(model, rows.exact)


def _source_of_unfitted(estimator: OrtGradientEstimator, model: Estimator, rows: Rows, reading: Reading) -> Source:
    """Fit an estimator on the rows as given, not rounded to float32, and return its source."""
    rows = rows._replace(X=rows.exact)
    estimator._targets.check_estimator(model, rows.X)
    return fitted_source(
        model,
        rows.X,
        estimator._targets.rows_for_estimator(rows)[:3],
        reading,
        estimator.weights_to_train,
        structure_only=estimator.init == "random",
        random_state=estimator._random_state,
    )


def _with_output_known(estimator: OrtGradientEstimator, source: Source, rows: Rows, reading: Reading) -> Source:
    """Return the source, with the width and the kind of its output determined, and check them against the targets."""
    if estimator.head == "new" and reading.output_is is None:  # a Softmax after the new head overrides this
        reading = replace(reading, output_is="scores")
    of_rows = reading.needs_rows(source.model)
    if of_rows:
        with source.remedy_in_errors():
            source = settled(source, rows.X, rows.form, reading)
    if source.original is not None:
        check_axes(source.model, rows.y, positional=reading.target is not None)
    if estimator.class_axis is not None:
        check_class_axis(source.model, estimator.class_axis)
    if estimator.verbose:
        _report(source, of_rows=of_rows and reading.labels)
    return source


def _initial_weights(estimator: OrtGradientEstimator, source: Source) -> tuple[Source, Weights]:
    """Return the source, with low-rank factors if requested, and the initial values of the trained weights."""
    model, wanted = source.model, estimator.weights_to_train
    if isinstance(wanted, LoRA):
        model, weights = adapted(model, wanted, head=estimator.head == "new", random_state=estimator._random_state)
        return replace(source, model=model), weights
    if wanted == "head":
        wanted = head_weights(model.graph(), model.scores or model.output)
    if wanted is None:
        for remark in source.remarks:
            warn(remark)
    return source, source.initial_weights(choose_weights(model, wanted, converted=source.original is None))


def _report(source: Source, *, of_rows: bool) -> None:
    """Print how the output is read if the rows decided it, and which layers compute as in predictions."""
    if of_rows:
        kind = "scores" if source.model.link is Link.IDENTITY else "probabilities"
        print(f"The output {source.model.output!r} is read as {kind}, as the rows show.")
    if layers := _frozen_layers(source.model):
        print(f"{layers}, in training as in predictions.")


def _frozen_layers(model: TrainableModel) -> str:
    """Describe the layers that PyTorch would compute differently in training, for a message; empty if none."""
    kinds = {node.op_type for node in model.graph().graph.node}
    dropout = ["Dropout is off"] * ("Dropout" in kinds)
    statistics = ["BatchNormalization uses the statistics it came with"] * ("BatchNormalization" in kinds)
    return " and ".join([*dropout, *statistics])
