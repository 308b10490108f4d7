"""The targets of a fit as a value: the kinds of targets, and the targets of a regressor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import onnx
import scipy.sparse
from sklearn.base import is_outlier_detector

from onnxtrain import graph
from onnxtrain.convert.last_layer import head_features
from onnxtrain.convert.learned import predictor_of
from onnxtrain.errors import DataError, ModelError, ParameterError
from onnxtrain.estimators.protocols import ArrayLike, Estimator, Features, OnnxModel, is_onnx
from onnxtrain.estimators.validation import check_domain, check_size, check_target, one_column, warn_of_lost_targets
from onnxtrain.losses import find_loss
from onnxtrain.losses.link import OF_CLASSES
from onnxtrain.losses.outputs import choose_output
from onnxtrain.registry import is_of_package
from onnxtrain.training.model import TrainableModel

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator
    from onnxtrain.estimators.decoder import LabelDecoder
    from onnxtrain.estimators.frames import Rows
    from onnxtrain.estimators.source import Source
    from onnxtrain.estimators.trained import TrainedModel

#: A weight for each class or, for multilabel targets, the weights of both values of each label.
ClassWeights: TypeAlias = Mapping[Any, float] | list[Mapping[Any, float]] | None


class Targets(ABC):
    """The targets of an estimator, a frozen value: a method that learns attributes returns a new value.

    The subclasses are for numbers, classes, an indicator matrix, and numbers or classes for each position of a row.
    """

    #: Whether a row has a target for each of its positions.
    positional: ClassVar[bool] = False

    #: The number of labels for multilabel targets, else 0.
    n_labels: int = 0

    #: Whether predictions are a sparse matrix.
    sparse: bool = False

    @property
    def class_weights(self) -> np.ndarray:
        """The weight of each class in the loss of a position; empty if all are equal."""
        return np.empty(0)

    # before the model -------------------------------------------------------

    @abstractmethod
    def check(self, y: Any) -> np.ndarray:
        """Return targets, after checking that they are of this kind.

        Raises
        ------
        DataError
            The targets are of another kind.
        """

    @abstractmethod
    def n_outputs(self, y: np.ndarray) -> int:
        """Return the number of outputs of a new head."""

    def check_estimator(self, estimator: Estimator, X: Features) -> None:
        """Raise a DataError if an estimator is for another kind of targets; a regressor accepts all."""
        return

    def rows_for_estimator(self, rows: Rows) -> Rows:
        """Return the rows on which an unfitted estimator is fitted."""
        return rows

    # with the model ---------------------------------------------------------

    @abstractmethod
    def learned(self, y: np.ndarray, source: Source, sample_weight: np.ndarray | None) -> Self:
        """Return targets with the attributes learned from the first rows: classes, axes, class weights.

        Rows of zero `sample_weight` do not count for the class weights.

        Raises
        ------
        DataError
            The output of the model does not fit the targets.
        """

    @abstractmethod
    def encode(self, y: np.ndarray, model: TrainedModel) -> np.ndarray:
        """Return y as the label of the loss: (n, k), int64 (n, 1), or with an axis for each axis of positions."""

    def weigh(
        self, y: np.ndarray, sample_weight: np.ndarray | None, of_classes: ClassWeights = None
    ) -> np.ndarray | None:
        """Return sample weights times class weights: `of_classes` or, if None, those of `class_weight`."""
        return sample_weight

    def balanced_weights(self, y: np.ndarray, sample_weight: np.ndarray | None) -> ClassWeights:
        """Return the class weights of these rows if `class_weight` is ``"balanced"``, else None."""
        return None

    def row_weights(self, label: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """Return the weights of rows whose loss is a mean over positions, from their encoded targets."""
        return weight

    def counted(
        self, y: ArrayLike, predicted: np.ndarray, sample_weight: ArrayLike | None
    ) -> tuple[Any, Any, ArrayLike | None]:
        """Return the targets that count for a score, their predictions and their weights."""
        return y, predicted, sample_weight

    def decoder(self, model: TrainedModel) -> LabelDecoder | None:
        """Return the decoder of scores to labels; None for a regressor."""
        return None


@dataclass(frozen=True, eq=False)
class Values(Targets):
    """The targets of a regressor.

    Attributes
    ----------
    dtype : {"float32", "float64"}
        The type of rows and weights.
    several : bool
        Whether the model takes several targets per row.
    named : bool
        Whether the user named the output that is fitted to the targets.
    n_axes : int
        The number of axes of predictions: that of the estimator's or, without an estimator, of the first targets.
    """

    dtype: str
    several: bool = True
    named: bool = False
    n_axes: int = 1

    def check(self, y: Any) -> np.ndarray:
        """Return targets with as many axes as the model accepts."""
        check_size(y, self.dtype)
        return y if self.several else one_column(y)

    def n_outputs(self, y: np.ndarray) -> int:
        """Return the number of columns."""
        return y.shape[1] if y.ndim > 1 else 1

    def learned(self, y: np.ndarray, source: Source, sample_weight: np.ndarray | None) -> Self:
        """Return these targets with the number of axes of y."""
        model = source.model
        if source.estimator is not None and is_outlier_detector(source.estimator):
            name = type(predictor_of(source.estimator)).__name__
            raise DataError(
                f"{name} predicts 1 for an inlier and -1 for an outlier, which are classes. Train it with "
                f"OrtGradientClassifier({name}(...)) and these two values as y; its decision_function returns the "
                "scores."
            )
        if not self.named and source.original is not None and model.classes is not None:
            raise DataError(
                f"The model is a classifier with the labels {', '.join(map(repr, model.classes[:5].tolist()))}. "
                "Train it with OrtGradientClassifier, or pass output=... to fit an output to numbers."
            )
        n_columns = y.shape[1] if y.ndim == 2 else 1
        if not self.positional and model.width != n_columns and model.link in OF_CLASSES:
            raise DataError(
                f"y has {n_columns} columns, but the output {model.output!r} of the model contains the probabilities "
                f"of {model.width} classes. Train it with OrtGradientClassifier."
            )
        if not self.positional and self.dtype == "float32":
            warn_of_lost_targets(y)
        return self if y.ndim == self.n_axes else replace(self, n_axes=y.ndim)

    def encode(self, y: np.ndarray, model: TrainedModel) -> np.ndarray:
        """Return the targets as (n, k); raise if the loss does not accept them."""
        loss, params = model.objective.loss, dict(model.objective.loss_params)
        own_loss = not is_of_package(find_loss(loss, params).function)
        y = check_target(y, model.source.model.width, model.dtype, own_loss=own_loss)
        check_domain(y, loss, params)
        return y


def is_positional(estimator: OrtGradientEstimator, y: ArrayLike, known: TrainedModel | None) -> bool:
    """Whether targets have a label for each position of a row: three axes, or two if the output has more.

    If a new last layer takes `features`, the output has one result per row, and targets of two axes are a multilabel
    indicator matrix or several targets.

    Parameters
    ----------
    estimator : OrtGradientRegressor or OrtGradientClassifier
    y : array-like
    known : TrainedModel or None
        The trained model, whose output decides; if None, the output of the user's model decides.

    Raises
    ------
    DataError
        The rows of y have different lengths.
    """
    if known is not None:
        return known.positional
    if estimator.estimator is None or not is_onnx(estimator.estimator) or scipy.sparse.issparse(y):
        return False
    try:
        n_axes = np.ndim(y)
    except ValueError as e:
        if _rank(estimator.estimator, estimator.output) == 2:
            return False  # lists of labels, which the check of the targets refuses
        raise DataError(
            "The rows of y have different lengths. Pad them to the same length, with ignore_index (-100) for classes "
            "or NaN for numbers."
        ) from e
    if n_axes == 2 and estimator.features is None:
        return _rank(estimator.estimator, estimator.output) > 2
    return n_axes > 2


def check_axes(model: TrainableModel, y: np.ndarray, *, positional: bool) -> None:
    """Check that the targets have positions if and only if the output of the model has.

    Raises
    ------
    DataError
        Only one of them has positions.
    """
    if model.positional == positional:
        return
    found = "(n" + "".join(f", {size}" for size in y.shape[1:]) + ("," if y.ndim == 1 else "") + ")"
    if positional:
        raise DataError(
            f"y must have one label per row, but has shape {found}, a label per position: the output {model.output!r} "
            "of the model has one result per row, (n, k). Pass one label per row, or an output with positions as "
            "output=."
        )
    features = ""
    with suppress(ModelError):
        features = f", such as features={head_features(model.graph(), model.output)!r}"
    raise DataError(
        f"The output {model.output!r} of the model has {model.n_axes} axes, but y has shape {found}. y must have a "
        "label per position, the shape of the output without its class axis, or the shape of the output. For one label "
        "or number per row, set head='new', and features= to a value from whose mean over the positions it follows"
        f"{features}.{_of_single_positions(model)}"
    )


def _of_single_positions(model: TrainableModel) -> str:
    """Return the remedy for an output with one position per row, whose axes of length 1 y must have, except classes."""
    shape = next((graph.dimensions(value) for value in model.graph().graph.output if value.name == model.output), None)
    n_long = sum(isinstance(d, int) and d > 1 for d in (shape or ())[1:])
    if n_long > 1:
        return ""
    return f" If the further axes have the length 1, pass y.reshape(-1{', 1' * (model.n_axes - 1 - n_long)})."


def check_class_axis(model: TrainableModel, class_axis: int) -> None:
    """Raise a ParameterError if `class_axis` is set but the output has no positions."""
    if not model.positional:
        raise ParameterError(
            f"class_axis={class_axis} applies to outputs with three or more axes, but the output {model.output!r} has "
            "one result per row. Set class_axis=None."
        )


def _rank(onx: OnnxModel, output: int | str | None) -> int:
    """Return the number of axes of an output, declared or inferred, or of the scores behind labels; 2 if unknown."""
    proto = graph.read(onx)
    with suppress(ModelError), graph.as_model_error("Shapes cannot be inferred"):
        proto = graph.without_false_declarations(proto)
    if found := _declared_rank(proto, output):
        return found
    with suppress(ModelError), graph.as_model_error("Shapes cannot be inferred"):
        inferred = graph.infer_shapes(proto)
        if found := _declared_rank(inferred, output):
            return found
        return graph.rank(choose_output(graph.reload(inferred), output, labels=True)) or 2
    return 2


def _declared_rank(proto: onnx.ModelProto, output: int | str | None) -> int | None:
    """Return the number of axes of the floating-point outputs, or of a chosen one; None if it is unknown."""
    outputs = list(proto.graph.output)
    if isinstance(output, str):
        outputs = [v for v in outputs if v.name == output]
    elif output is not None:
        outputs = outputs[output : output + 1 or None]
    types = [v.type.tensor_type for v in outputs]
    ranks = {len(t.shape.dim) for t in types if t.elem_type in graph.FLOATS and t.HasField("shape")}
    return ranks.pop() if len(ranks) == 1 else None
