"""Linear classifiers."""

from __future__ import annotations

from typing import Any

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from onnxtrain.convert.repairs.table import Converter, WithAttributes, repair


@repair(LinearDiscriminantAnalysis)
def logistic_for_two_classes(convert: Converter, scope: Any, operator: Any, container: Any) -> None:
    """Take the logistic function of the score: skl2onnx takes the softmax of [-z, z], the probability for 2 z."""
    two_classes = len(operator.raw_operator.classes_) == 2

    def change(given: dict[str, Any]) -> dict[str, Any]:
        if two_classes and given.get("post_transform") == "SOFTMAX":
            return {**given, "post_transform": "LOGISTIC", "multi_class": 0}
        return given

    convert(scope, operator, WithAttributes(container, change))
