"""Piecewise linear functions: IsotonicRegression, calibration with it or with a temperature, tables of quantiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import QuantileTransformer
from sklearn.tree import DecisionTreeClassifier

from onnxtrain.convert.additions.chains import score
from onnxtrain.convert.custom import Nodes, addition, built_in
from onnxtrain.convert.learned import holds, holds_boosted, inside
from onnxtrain.convert.repairs.table import Converter, repair
from onnxtrain.errors import ConversionError

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope


#: scikit-learn adds this to probabilities before it takes the logarithm.
_EPSILON = 1e-12


@built_in(IsotonicRegression)
def isotonic(op: Nodes, estimator: Any, x: ir.Value) -> ir.Value:
    r"""Interpolate between the values at the thresholds.

    .. math:: f(x) = \sum_k y_k (r_{k-1}(x) - r_k(x)), \qquad r_k(x) = \min(\max((x - x_k) / (x_{k+1} - x_k), 0), 1)
    """
    at, y = estimator.X_thresholds_.astype(np.float64), estimator.y_thresholds_.reshape(-1, 1)
    if len(at) == 1:
        return op.repeated(x, y)
    one, zero = (op.repeated(x, op.constant(np.array([[value]]))) for value in (1.0, 0.0))
    ramps = op.Clip(op.Mul(op.Sub(x, op.constant(at[None, :-1])), op.constant(1 / np.diff(at)[None])), 0.0, 1.0)
    weights = op.Sub(op.Concat(one, ramps, axis=1), op.Concat(ramps, zero, axis=1))
    found = op.MatMul(weights, y)
    if estimator.out_of_bounds != "nan":
        return found
    low, high = float(estimator.X_min_), float(estimator.X_max_)
    return op.Where(op.And(op.GreaterOrEqual(x, low), op.LessOrEqual(x, high)), found, float("nan"))


#: The least difference of two thresholds, relative to the largest, between which rounding does not decide.
_LEAST_DIFFERENCE = 1e-9

#: The slope above which the floor of zero probabilities in leaves, 5e-7, changes the fifth digit of a probability.
_STEEP = 20.0

#: Classifiers whose leaves hold the probabilities of all classes.
TREES = (RandomForestClassifier, ExtraTreesClassifier, DecisionTreeClassifier)

#: The remedy for steps that magnify the last digits.
BY_SIGMOID = (
    "The steps of its isotonic calibration are so steep that the last digits of the scores decide. Use "
    "CalibratedClassifierCV(method='sigmoid')."
)


def is_decided_by_rounding(estimator: Any) -> bool:
    """Whether a classifier is calibrated by steps so steep that the last digits of its scores decide."""
    thresholds = (found.X_thresholds_ for found in _calibrators(estimator))
    return any(np.diff(x).min() < _LEAST_DIFFERENCE * np.abs(x).max() for x in thresholds)


def is_steep(estimator: Any) -> bool:
    """Whether isotonic calibration magnifies the difference between a zero probability and its floor visibly."""
    slopes = (np.diff(found.y_thresholds_) / np.diff(found.X_thresholds_) for found in _calibrators(estimator))
    return any(slope.max() > _STEEP for slope in slopes)


def magnifies_zeros(estimator: Any) -> bool:
    """Whether steep isotonic calibration follows trees, whose leaves start from the floor in float64 as well."""
    return is_steep(estimator) and holds(estimator, TREES)


#: The remedy for trees whose zero probabilities are divided by a small sum.
WITHOUT_ONE_VS_REST = (
    "A class without rows in a leaf counts as 1.7e-7 there, so that it can be trained, and OneVsRestClassifier divides "
    "by the sum over the classes. Leave it out: trees know all classes."
)


def divides_zeros(estimator: Any) -> bool:
    """Whether the probabilities of trees are divided by their sum, which is small if no tree chooses its class."""
    return any(isinstance(found, OneVsRestClassifier) and holds(found, TREES) for found in inside(estimator))


def _calibrators(estimator: Any) -> Iterator[IsotonicRegression]:
    """Yield the isotonic regressions of calibrated classifiers that have a step."""
    for outer in inside(estimator):
        if isinstance(outer, CalibratedClassifierCV):
            for found in inside(outer):
                if isinstance(found, IsotonicRegression) and len(found.X_thresholds_) > 1:
                    yield found


def _calibrated(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the mean of the calibrated classifiers' probabilities."""
    found = [_probabilities(op, each, X) for each in estimator.calibrated_classifiers_]
    return found[0] if len(found) == 1 else op.Div(op.Sum(*found), float(len(found)))  # no Mean of float64


def _probabilities(op: Nodes, calibrated: Any, X: ir.Value) -> ir.Value:
    classifier, n_classes = calibrated.estimator, len(calibrated.classes)
    if n_classes == 2:
        scores = score(op, classifier, X)
    else:
        method = "decision_function" if hasattr(classifier, "decision_function") else "predict_proba"
        scores = op.result(classifier, X, method)
    if calibrated.method == "temperature":
        return _by_temperature(op, calibrated, scores)
    columns = [
        isotonic(op, each, op.Gather(scores, np.array([i]), axis=1)) for i, each in enumerate(calibrated.calibrators)
    ]
    if n_classes == 2:
        return op.Concat(op.Sub(1.0, columns[0]), columns[0], axis=1)
    each = op.Concat(*columns, axis=1)
    total = op.ReduceSum(each, [1], keepdims=1)
    none = op.Equal(total, 0.0)
    return op.Where(none, 1.0 / n_classes, op.Div(each, op.Where(none, 1.0, total)))


def _by_temperature(op: Nodes, calibrated: Any, scores: ir.Value) -> ir.Value:
    """Return the softmax of the scores, or of the logarithms of probabilities, times the inverse temperature."""
    classifier = calibrated.estimator
    has_scores = hasattr(classifier, "decision_function")
    if len(calibrated.classes) == 2:
        scores = op.Concat(op.Neg(scores) if has_scores else op.Sub(1.0, scores), scores, axis=1)
    logits = scores if has_scores else op.Log(op.Add(scores, _EPSILON))
    return op.Softmax(op.Mul(logits, np.array([calibrated.calibrators[0].beta_])), axis=1)


_CALIBRATED = addition(_calibrated)


@repair(CalibratedClassifierCV)
def other_than_logistic(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Write isotonic calibration, which skl2onnx does not interpolate, and temperature scaling, which it lacks.

    Raises
    ------
    ConversionError
        The scores of LightGBM are calibrated. Its exporter writes only probabilities.
    """
    for each in operator.raw_operator.calibrated_classifiers_:
        if holds_boosted(each.estimator) and hasattr(each.estimator, "decision_function"):
            raise ConversionError(
                "It calibrates the decision_function of boosted trees, but their exporter writes only predict_proba. "
                "Put the calibration outside: CalibratedClassifierCV(OrtGradientClassifier(classifier))."
            )
    if operator.raw_operator.method == "sigmoid":
        convert(scope, operator, container)
    else:
        _CALIBRATED.convert(scope, operator, container)


#: skl2onnx writes nodes for each quantile of each column: 200 take a second, 5000 take minutes.
_MOST_QUANTILES = 200


@repair(QuantileTransformer)
def few_quantiles(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Write tables with few quantiles; refuse others, and the quantiles of the normal distribution."""
    if operator.raw_operator.output_distribution == "normal":
        raise ConversionError(
            "ONNX has no quantiles of the normal distribution. Use PowerTransformer() or output_distribution='uniform'."
        )
    n_quantiles, n_columns = operator.raw_operator.quantiles_.shape
    if n_quantiles * n_columns > _MOST_QUANTILES:
        fewer = max(_MOST_QUANTILES // n_columns, 1)
        raise ConversionError(
            f"The table of QuantileTransformer has {n_columns} columns of {n_quantiles} quantiles, but at most "
            f"{_MOST_QUANTILES} quantiles in all can be converted to ONNX nodes. "
            + (f"Set n_quantiles={fewer}." if fewer > 1 else "Let it transform fewer columns.")
        )
    convert(scope, operator, container)
