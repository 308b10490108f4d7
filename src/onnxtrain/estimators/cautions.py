"""Warnings at the start of a fit that is possible, but probably not meant.

They are about parameters without effect, rows in another form, weights that store something else, and losses that do
not fit the predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from sklearn.neighbors import KNeighborsRegressor, RadiusNeighborsRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from onnxtrain import graph
from onnxtrain.convert.additions.calibration import is_decided_by_rounding
from onnxtrain.convert.columns import some_rows
from onnxtrain.errors import warn
from onnxtrain.estimators.output_kind import few_rows
from onnxtrain.estimators.protocols import Features, Model, is_fitted, is_frame
from onnxtrain.estimators.reports import is_part_of_more
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.losses import Prediction, find_loss
from onnxtrain.losses.link import Link
from onnxtrain.losses.ranges import range_of
from onnxtrain.registry import is_of_package
from onnxtrain.runtime.device import find_device
from onnxtrain.runtime.session import Place
from onnxtrain.training.data import TrainingData, dense
from onnxtrain.training.evaluate import row_losses
from onnxtrain.training.model import TrainableModel
from onnxtrain.training.parameters import quantized_weights
from onnxtrain.training.settings import Settings

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator


# ------------------------------------------------------------------- parameters


def warn_of_fraction(estimator: OrtGradientEstimator, *, given: bool) -> None:
    """Warn that no rows are held out although a fraction is set; `given` says whether a validation set is."""
    reason = "X_val is the validation set" if given else "early_stopping=False, so no rows are held out"
    remedy = "Leave one of the two out." if given else "Set early_stopping=True."
    warn(f"validation_fraction={estimator.validation_fraction!r} has no effect: {reason}. {remedy}")


def warn_of_one_epoch(estimator: OrtGradientEstimator, settings: Settings, *, continued: bool) -> None:
    """Warn of parameters that ``partial_fit`` ignores, and of a solver that forgets the rows of earlier calls."""
    if estimator.early_stopping:
        warn(
            "early_stopping=True has no effect in partial_fit, which holds out no rows. Compute the loss of further "
            "rows with losses(X, y)."
        )
    if continued and settings.optimizer is None:
        warn(
            "solver='lbfgs' minimizes the loss of the rows of this call alone, so partial_fit forgets the rows of "
            "earlier calls. Choose a solver that takes steps, such as 'adam'."
        )


# ------------------------------------------------------------------------- rows


#: The number of rows that tell most columns from y, so that few are compared whole.
_FIRST = 10


def warn_of_target_among_columns(X: Any, y: Any) -> None:
    """Warn of a column of a frame that is y: of the same name and values, or of the same values with fractions."""
    if not (hasattr(X, "iloc") and hasattr(X, "columns") and X.columns.is_unique) or np.ndim(y) != 1:
        return
    values, called = np.asarray(y), getattr(y, "name", None) if hasattr(y, "iloc") else None
    with np.errstate(invalid="ignore"):  # infinity has no fraction
        has_fractions = values.dtype.kind == "f" and bool(np.any(values % 1))
    candidates = [name for name in X.columns if name == called or (has_fractions and X[name].dtype == values.dtype)]
    begins_so = [name for name in candidates if np.array_equal(X[name].iloc[:_FIRST].to_numpy(), values[:_FIRST])]
    same = [name for name in begins_so if X[name].equals(y) or np.array_equal(X[name].to_numpy(), values)]
    if same:
        warn(
            f"The column {same[0]!r} of X has the values of y, so the model predicts y from itself. Pass X without it: "
            f"X.drop(columns={same[0]!r})."
        )


def warn_of_lost_names(model: Any, X: Features) -> None:
    """Warn of an array for a model that was fitted on a frame, because the order of the columns is not compared."""
    known = getattr(model, "feature_names_in_", None)
    if known is not None and isinstance(X, np.ndarray):
        names = ", ".join(map(str, known[:5])) + (", ..." if len(known) > 5 else "")
        warn(
            f"X has no column names, but {type(model).__name__} was fitted on columns with names: {names}. The columns "
            "of X must have this order. Pass a frame to have them compared."
        )


#: The attribute of a scaler that has the spread of the columns in its fit, and the function that computes it.
_SPREAD: dict[type, tuple[str, Callable[..., np.ndarray]]] = {
    MinMaxScaler: ("data_range_", np.ptp),
    StandardScaler: ("scale_", np.std),
}

#: The least factor between the spreads of all columns that is another unit, such as a forgotten division by 255.
_OTHER_UNIT = 50.0

#: The largest mean, and the largest deviation of the standard deviation from 1, of columns that were standardized.
_STANDARD = 0.2

#: The least number of rows and of columns that show a scale, and the number of rows that are looked at.
_ROWS, _COLUMNS, _SAMPLE = 20, 2, 1000


def warn_of_scale(model: Any, X: Any) -> None:
    """Warn of rows in another unit, or already standardized, for a fitted pipeline that begins with a scaler."""
    scaler = model.steps[0][1] if isinstance(model, Pipeline) and is_fitted(model) else None
    if type(scaler) not in _SPREAD or not (isinstance(X, np.ndarray) or is_frame(X)) or X.shape[0] < _ROWS:
        return
    attribute, spread_of = _SPREAD[type(scaler)]
    rows, before = np.asarray(some_rows(X, _SAMPLE)), getattr(scaler, attribute)
    if rows.dtype.kind not in "fiu" or before is None or rows.shape[1:] != np.shape(before):
        return
    with np.errstate(all="ignore"):
        spread, mean = spread_of(rows, axis=0), rows.mean(axis=0)
        varies = (spread > 0) & (before > 0)
        ratios = spread[varies] / before[varies]
    if len(ratios) < _COLUMNS or not np.isfinite(ratios).all():
        return
    name = type(scaler).__name__
    if ratios.min() > _OTHER_UNIT or ratios.max() < 1 / _OTHER_UNIT:
        warn(
            f"The columns of X vary {np.median(ratios):.3g} times as much as those on which the {name} of the pipeline "
            "was fitted, as in another unit. Scale X as in that fit, for example X / 255 for pixels from 0 to 255."
        )
    elif isinstance(scaler, StandardScaler) and _is_standard(mean[varies], spread[varies]):
        means = np.zeros(len(ratios)) if scaler.mean_ is None else scaler.mean_[varies]
        if not _is_standard(means, before[varies]) and np.all(np.abs(means) + np.abs(before[varies] - 1) > _STANDARD):
            warn(
                "The columns of X have means near 0 and standard deviations near 1, as after a StandardScaler, but the "
                f"pipeline begins with one that was fitted on other values, with means such as {means[0]:.3g}. Pass "
                "the rows as they were before scaling, or a pipeline without the scaler."
            )


def _is_standard(mean: np.ndarray, spread: np.ndarray) -> bool:
    return bool(np.all(np.abs(mean) < _STANDARD) and np.all(np.abs(spread - 1) < _STANDARD))


# ---------------------------------------------------------------------- weights


def warn_of_stored_targets(estimator: Model) -> None:
    """Warn if a model's only weights are the targets of its rows, which it stores as learned attributes."""
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    if isinstance(last, (KNeighborsRegressor, RadiusNeighborsRegressor)):
        warn(
            f"{type(estimator).__name__} averages the targets of the rows it was fitted on. These targets, one per "
            "row, are the weights that are trained. Name them in weights_to_train if this is intended."
        )


def warn_of_steep_calibration(estimator: Model) -> None:
    """Warn of isotonic calibration between scores that rounding can exchange, as those of GaussianNB near 0 and 1."""
    if is_decided_by_rounding(estimator):
        warn(
            f"The steps of the isotonic calibration in {type(estimator).__name__} are so steep that the last digits of "
            "the scores decide. After training, to_sklearn() may predict other probabilities for some rows. Use "
            "CalibratedClassifierCV(method='sigmoid')."
        )


def warn_of_quantized(model: TrainableModel) -> None:
    """Warn if some weights of an ONNX model are integers, so that mainly intercepts and scales can be trained."""
    names = quantized_weights(model.graph())
    if names:
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        warn(
            f"The model has quantized weights: {len(names)} ({some}). They are multiplied as integers, which has no "
            "derivative, and are not trained. Train the floating-point model that was quantized, or one quantized in "
            "the QDQ format (onnxruntime's quantize_static). To train only the other weights, name them in "
            "weights_to_train."
        )


# ----------------------------------------------------------------------- losses


def warn_of_means(model: TrainedModel, X: Features) -> None:
    """Warn of rows whose prediction cannot be the mean that the loss takes it for: it is zero or negative."""
    objective, read = model.objective, model.source.model
    loss = find_loss(objective.loss, dict(objective.loss_params), classifies=objective.classifies)
    if loss.prediction is not Prediction.LOG_MEAN or read.link is Link.EXP:
        return
    feeds = model.form.feeds(few_rows(X, read), read)
    feeds = {name: dense(x, read.features[name]) for name, x in feeds.items()}
    means = model.run_once(feeds, [read.output])[read.output]
    n_rows = int((means.reshape(len(means), -1) <= 0).any(axis=1).sum())
    if n_rows:
        warn(
            f"loss={objective.loss!r} interprets the output {read.output!r} as a mean, but it is zero or negative in "
            f"{n_rows} of {len(means)} rows, which have no gradient. Use a model with positive predictions: "
            "PoissonRegressor, GammaRegressor, TweedieRegressor, or a network that ends in Exp or Softplus."
        )


#: Two distances of predictions from the labels, as multiples of their size. A loss that falls in proportion to the
#: distance, or faster, is lower by the ratio of the two; a loss with a logarithm is not.
_FAR = (1e2, 1e4)

#: The least ratio of the losses at these distances.
_RATIO = 50.0


def warn_of_no_minimum(model: TrainedModel, label: np.ndarray) -> None:
    """Warn of a loss of the user's own that falls without end as the predictions grow, or fall.

    Nothing is said if the range of the model's output bounds the loss.
    """
    objective = model.objective
    loss = find_loss(objective.loss, dict(objective.loss_params), classifies=objective.classifies).function
    if is_of_package(loss) or model.positional or is_part_of_more():
        return
    width = _width_if_unbounded(model)
    if not width:
        return
    size = 1 + float(np.abs(label).max(initial=0))
    losses = {sign: [_mean_loss(model, label, sign * far * size, width) for far in _FAR] for sign in (-1.0, 1.0)}
    for sign, (near, far) in losses.items():
        if near < 0 and far < _RATIO * near:
            grow = "grow" if sign > 0 else "fall"
            name = getattr(loss, "__name__", repr(loss))
            return warn(
                f"The loss {name!r} has no minimum: it is {near:.3g} and then {far:.3g} as the predictions {grow}, so "
                f"training makes them {grow} without end. Return a loss that is lowest for the best prediction, for "
                "example abs(y_true - y_pred)."
            )


def _width_if_unbounded(model: TrainedModel) -> int:
    """Return the number of outputs; 0 if their range is known, or if there are several axes."""
    onx = graph.reload(model.source.model.graph())
    output = next(v for node in onx.graph for v in node.outputs if v.name == model.scores)
    known = range_of(output)
    width = output.shape[1] if output.shape is not None and len(output.shape) == 2 else None
    return width if isinstance(width, int) and not np.isfinite([known.low, known.high]).all() else 0


def _mean_loss(model: TrainedModel, label: np.ndarray, far: float, width: int) -> float:
    """Return the mean loss of predictions that are all the same large number."""
    predictions = np.full((len(label), width), far, model.dtype)
    kind = "scores" if model.objective.classifies else None
    identity = _identity(width, model.dtype)
    objective = replace(model.objective, model=identity, output="Y", weights=(), constants=(), output_is=kind)
    data = TrainingData({"X": predictions}, label, None, {"X": predictions.dtype})
    with np.errstate(all="ignore"):
        return float(np.mean(row_losses(objective, {}, data, Place(find_device("cpu"), 1))))


def _identity(width: int, dtype: str) -> bytes:
    """Return a model whose output is its input."""
    kind = ir.DataType.from_numpy(np.dtype(dtype))
    values = [onnx.helper.make_tensor_value_info(name, int(kind), ["n", width]) for name in ("X", "Y")]
    nodes = [onnx.helper.make_node("Identity", ["X"], ["Y"])]
    made = onnx.helper.make_graph(nodes, "predictions", values[:1], values[1:])
    return onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 21)]).SerializeToString()
