"""Meta-estimators whose members see the same rows: chains, output codes, one against the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from sklearn.base import is_classifier, is_regressor
from sklearn.ensemble import AdaBoostClassifier, StackingClassifier
from sklearn.model_selection import FixedThresholdClassifier, RandomizedSearchCV, TunedThresholdClassifierCV
from sklearn.model_selection._search_successive_halving import HalvingGridSearchCV, HalvingRandomSearchCV
from sklearn.multiclass import OneVsRestClassifier, OutputCodeClassifier, _ConstantPredictor
from sklearn.multioutput import ClassifierChain, RegressorChain
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.tree import DecisionTreeClassifier

from onnxtrain.convert.custom import Nodes, addition, built_in, label_tensor
from onnxtrain.convert.learned import holds, predictor_of
from onnxtrain.convert.repairs.table import Converter, repair
from onnxtrain.errors import ConversionError

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope


def response(estimator: Any) -> str:
    """Return the method whose results are the output of a classifier's graph."""
    return "predict_proba" if hasattr(estimator, "predict_proba") else "decision_function"


def score(op: Nodes, estimator: Any, X: ir.Value, method: str | None = None) -> ir.Value:
    """Return the score (n, 1) of a binary classifier, or the prediction of a regressor."""
    if is_regressor(estimator):
        return op.result(estimator, X)
    if isinstance(last := predictor_of(estimator), _ConstantPredictor):
        return op.repeated(X, op.constant(last.y_.reshape(1, 1).astype(np.float64)))
    method = method or ("decision_function" if hasattr(estimator, "decision_function") else "predict_proba")
    found = op.result(estimator, X, method)
    return op.Gather(found, np.array([1]), axis=1) if method == "predict_proba" else found


@built_in(RegressorChain, ClassifierChain)
def chain(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the results of the members of a chain; each takes the results of the earlier ones as further columns."""
    handed_on = getattr(estimator, "chain_method_", "predict")
    found: list[ir.Value] = []
    for link in estimator.estimators_:
        y = op.result(link, X) if is_regressor(link) else score(op, link, X, response(link))
        found.append(y)
        if link is estimator.estimators_[-1]:
            break
        if is_classifier(link) and handed_on != response(link):
            y = _handed_on(op, link, X, handed_on)
        X = op.Concat(X, y, axis=1)
    order = np.argsort(estimator.order_)
    return op.Gather(op.Concat(*found, axis=1), order, axis=1)


def _handed_on(op: Nodes, link: Any, X: ir.Value, method: str) -> ir.Value:
    """Return the column (n, 1) that a classifier passes to later members of the chain."""
    if method == "predict":
        return op.Unsqueeze(op.Cast(op.result(link, X), to=ir.DataType.FLOAT), [1])
    if method == "predict_log_proba":
        return op.Log(score(op, link, X, "predict_proba"))
    return score(op, link, X, method)


def _stacked(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the output of the final classifier for the results of the others and, with passthrough, the rows."""
    columns = [
        op.result(each, X, method)
        if method != "predict" and len(estimator.classes_) > 2
        else _handed_on(op, each, X, method)
        for each, method in zip(estimator.estimators_, estimator.stack_method_, strict=True)
    ]
    rows = op.Concat(*columns, *([X] if estimator.passthrough else []), axis=1)
    return op.result(estimator.final_estimator_, rows, response(estimator.final_estimator_))


_STACKED = addition(_stacked)


@repair(StackingClassifier)
def one_score_for_two_classes(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Write one column for each binary classifier; skl2onnx writes two, unless all members have probabilities."""
    stack = operator.raw_operator
    two = len(stack.classes_) == 2 and set(stack.stack_method_) != {"predict_proba"}
    if two or "predict" in stack.stack_method_:
        _STACKED.convert(scope, operator, container)
    else:
        convert(scope, operator, container)


@built_in(OutputCodeClassifier)
def output_code(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the negative squared distance of the scores to the code of each class."""
    scores = op.Concat(*(score(op, each, X) for each in estimator.estimators_), axis=1)
    difference = op.Sub(op.Unsqueeze(scores, [1]), op.constant(estimator.code_book_[None].astype(np.float64)))
    return op.Neg(op.ReduceSumSquare(difference, [2], keepdims=0))


@built_in(SelfTrainingClassifier, RandomizedSearchCV, HalvingGridSearchCV, HalvingRandomSearchCV)
def the_one_inside(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the output of the refitted or best estimator."""
    inner = getattr(estimator, "best_estimator_", None) or estimator.estimator_
    return op.result(inner, X, response(inner) if is_classifier(inner) else "predict")


@built_in(AdaBoostClassifier)
def ada_boost(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the softmax of the weighted mean vote over k - 1; a vote is 1 for the chosen class, else -1 / (k - 1).

    skl2onnx writes each weight as a scalar, so equal weights could not be distinguished.
    """
    classes, n_others = op.constant(label_tensor(estimator.classes_)), len(estimator.classes_) - 1
    hits = [
        op.Unsqueeze(op.Cast(op.Equal(op.Unsqueeze(op.result(each, X), [1]), classes), to=ir.DataType.FLOAT), [2])
        for each in estimator.estimators_
    ]
    votes = op.Sub(op.Mul(op.Concat(*hits, axis=2), 1 + 1 / n_others), 1 / n_others)
    weights = op.Identity(estimator.estimator_weights_)
    used = op.Slice(weights, np.array([0]), np.array([len(hits)]))  # fewer are fitted if one is perfect
    mean = op.Div(op.Squeeze(op.MatMul(votes, op.Unsqueeze(used, [1])), [2]), op.ReduceSum(weights, keepdims=0))
    return op.Softmax(op.Div(mean, float(n_others)), axis=1)


def _one_vs_rest(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the score of each class; a single score for two classes."""
    return op.Concat(*(score(op, each, X) for each in estimator.estimators_), axis=1)


_ONE_VS_REST = addition(_one_vs_rest)


@repair(OneVsRestClassifier)
def scores_without_probabilities(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Write the scores of classifiers without probabilities, which skl2onnx divides by the sum of their magnitudes."""
    if hasattr(operator.raw_operator, "predict_proba"):
        convert(scope, operator, container)
    else:
        _ONE_VS_REST.convert(scope, operator, container)


@built_in(FixedThresholdClassifier, TunedThresholdClassifierCV)
def at_a_threshold(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the output of the inner classifier; raise unless the threshold of its labels is 1/2 or 0."""
    threshold: Any = getattr(estimator, "best_threshold_", getattr(estimator, "threshold", "auto"))
    plain = 0.5 if hasattr(estimator, "predict_proba") else 0.0
    positive = _positive_label(estimator)
    response_method = getattr(estimator, "response_method", "auto")
    of_scores = response_method == "decision_function" and plain == 0.5  # a threshold on scores, not on probabilities
    moved = threshold != "auto" and (of_scores or threshold != plain)
    differs = moved or positive not in (None, estimator.classes_[1])
    if differs or holds(estimator.estimator_, DecisionTreeClassifier):
        threshold = plain if threshold == "auto" else threshold
        label = "" if positive is None else f", pos_label={positive!r}"
        label += "" if response_method == "auto" else f", response_method={response_method!r}"
        why = (
            f"applies the threshold {threshold} to the scores of its classifier, but the graph applies {plain}"
            if differs
            else f"predicts the second class at exactly {plain}, as trees often give, but the graph the first"
        )
        raise ConversionError(
            f"{type(estimator).__name__} {why}. Put its estimator_ in its place, train the result as model, and apply "
            f"the threshold outside: FixedThresholdClassifier(OrtGradientClassifier(model), threshold={threshold}"
            f"{label})."
        )
    return op.result(estimator.estimator_, X, response(estimator))


def _positive_label(estimator: Any) -> Any:
    """Return the label of a threshold, that of the scorer if the threshold was tuned; None is the second class."""
    if isinstance(estimator, FixedThresholdClassifier):
        return estimator.pos_label
    return estimator._curve_scorer._get_pos_label()
