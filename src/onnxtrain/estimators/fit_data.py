"""The rows of a fit: as the user gave them (arrays or parts), checked, and in the form for the trainer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse
from sklearn.model_selection import train_test_split

from onnxtrain.convert.learned import inside, library_of
from onnxtrain.dialects import for_part
from onnxtrain.errors import DataError, ParameterError
from onnxtrain.estimators.arrays import as_array
from onnxtrain.estimators.first_pass import (
    Survey,
    check_form,
    check_length,
    check_targets,
    check_weighted,
    form_of,
    n_rows_of,
    of_missing_targets,
    shape_of_targets,
    survey,
)
from onnxtrain.estimators.frames import InputForm, Rows
from onnxtrain.estimators.labelled import check_labelled
from onnxtrain.estimators.labels import balanced
from onnxtrain.estimators.leaks import warn_of_label_among_columns
from onnxtrain.estimators.named_columns import in_order
from onnxtrain.estimators.positions import counts
from onnxtrain.estimators.protocols import ArrayLike, Estimator, Features, Frame, is_fitted, is_frame, is_onnx
from onnxtrain.estimators.reports import is_part_of_more
from onnxtrain.estimators.sample_weights import NO_WEIGHT, check_sample_weight
from onnxtrain.estimators.settings import floats_of
from onnxtrain.estimators.targets import ClassWeights, is_positional
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.estimators.validation import check_known, check_map, check_no_durations, warn_of_other_order
from onnxtrain.rows.lazy import in_memory, is_plain
from onnxtrain.rows.parts import Part, Parts, as_parts, with_rows
from onnxtrain.training.data import TrainingData
from onnxtrain.training.mixing import gather
from onnxtrain.training.parts import PartedData, changed

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator

#: The number of rows from which types and shapes are read.
_FEW = 16

#: A model, cut after its frozen front, and the rows that the rest is trained on.
Ready: TypeAlias = "tuple[TrainedModel, TrainingData | PartedData]"


def given(X: Any, y: Any, sample_weight: Any = None, *, ending: str = "") -> GivenArrays | GivenParts:
    """Return the user's rows, with lazy collections read into arrays and frames.

    `ending` is that of the names of a validation set, "_val".

    Raises
    ------
    ArgumentTypeError
        X is a generator.
    DataError
        A lazy collection is too large, or y is given in addition to parts.
    """
    rows = ((X, "X"), (y, "y"), (sample_weight, "sample_weight"))
    if all(values is None or is_plain(values) for values, _ in rows):
        check_known(y)
        return GivenArrays(Part(X, y, sample_weight))
    parts = as_parts(X)
    if parts is None:
        found = Part(*(in_memory(values, name) for values, name in rows))
        check_known(found.y)
        for values, name in ((found.y, "y"), (found.sample_weight, "sample_weight")):
            warn_of_other_order(found.X, values, f"{name}{ending}", f"X{ending}")
        return GivenArrays(found)
    for name, values in (("y", y), ("sample_weight", sample_weight)):
        if values is not None:
            raise DataError(
                f"{name} cannot be passed with rows in parts, which contain it. Leave it out; label= and weight= of "
                "from_parquet name the columns, and read of other sources returns (X, y) or (X, y, sample_weight)."
            )
    return GivenParts(parts)


def at_hand(X: Any, y: Any = None) -> Part:
    """Return rows in memory; refuse rows in parts."""
    found = given(X, y)
    if isinstance(found, GivenParts):
        raise ParameterError(
            "Only fit, partial_fit, predict, score and losses take rows in parts. Elsewhere, pass the rows of one part "
            "at a time: X, y = parts.read(i)[:2]."
        )
    return found.sample


def features_of(X: Any) -> Iterator[Any]:
    """Yield the rows to predict for: each part in turn, or a whole array."""
    parts = as_parts(X)
    if parts is None:
        yield in_memory(X)
    else:
        for i, part in zip(with_rows(parts), parts.in_order(), strict=True):
            check_length(i, part, parts.n_rows(i), labelled=part.y is not None)
            yield part.X


@contextmanager
def of_rows_in_parts(X: Any) -> Iterator[None]:
    """Name ``read`` in the remedy of an error about the rows of a part; X itself is not a table."""
    try:
        yield
    except DataError as e:
        if is_plain(X) or as_parts(X) is None:
            raise
        raise DataError(for_part(str(e), "i")) from e


def labelled(X: Any, y: Any, sample_weight: Any = None) -> Iterator[Part]:
    """Yield rows with labels and weights: those of each part, or all of an array.

    Raises
    ------
    DataError
        There are no labels, all weights are zero, or some parts have weights and others have none.
    """
    found = given(X, y, sample_weight)
    parts = iter([found.sample]) if isinstance(found, GivenArrays) else found.labelled()
    counts = False
    for part in parts:
        if part.y is None:
            raise DataError("y is missing. Pass the labels of the rows: score(X, y) or losses(X, y).")
        counts = counts or part.sample_weight is None or bool(np.any(as_array(part.sample_weight) != 0))
        yield part
    if not counts:
        raise DataError(NO_WEIGHT)


def joined(values: Iterator[Any]) -> Any:
    """Concatenate the results of parts; the result is sparse if one part's is, and None if the parts have none."""
    found = list(values)
    if len(found) == 1 or found[0] is None:
        return found[0]
    return scipy.sparse.vstack(found, format="csr") if any(map(scipy.sparse.issparse, found)) else np.concatenate(found)


#: The reason of the error and the remedy.
_NOT_BALANCED = "class_weight='balanced' is not available for multilabel targets in parts. Pass the weights."
_NOT_BALANCED_POSITIONS = (
    "class_weight='balanced' for labels with positions is computed from the sample, but there are more rows. Pass the "
    "weights as a dictionary, or use a larger sample: Parts(source, sample=...)."
)


@dataclass(frozen=True)
class GivenArrays:
    """Rows in memory; a fit starts with all of them."""

    sample: Part = field(repr=False)

    def surveyed(self, estimator: OrtGradientEstimator) -> GivenArrays:
        """Return the rows unchanged: rows in memory need no first pass."""
        return self

    def expecting_classes(self, estimator: OrtGradientEstimator) -> AbstractContextManager[None]:
        """Do nothing: all classes are among the first rows."""
        return nullcontext()

    def data(self, estimator: OrtGradientEstimator, model: TrainedModel, rows: Rows, n_epochs: int) -> Ready:
        """Return the model, cut after its frozen front, and the checked rows in the form for its rest."""
        with model.category_named(self.sample.X):
            return model.cut(_counted(data_of(estimator, model, rows)), n_epochs)

    def balanced_weights(self, estimator: OrtGradientEstimator, model: TrainedModel, rows: Rows) -> ClassWeights:
        """Return the class weights of the checked rows if `class_weight` is ``"balanced"``, else None."""
        return estimator._targets.balanced_weights(rows.y, rows.weight)

    def further(
        self, estimator: OrtGradientEstimator, model: TrainedModel, of_classes: ClassWeights
    ) -> TrainingData | PartedData:
        """Return further rows, in the form for a model that was started on other rows, with its class weights."""
        rows = check_rows(estimator, *self.sample, model, of_classes)
        with model.category_named(self.sample.X):
            return model.behind_front(_counted(data_of(estimator, model, rows)))[1]


def _counted(data: TrainingData) -> TrainingData:
    """Return the rows unchanged; raise if the weights, including those of the classes, are all zero."""
    if not data.n_rows:
        raise DataError(NO_WEIGHT)
    return data


@dataclass(frozen=True)
class GivenParts:
    """Rows in parts, before the first pass over them."""

    parts: Parts

    def surveyed(self, estimator: OrtGradientEstimator) -> SurveyedParts:
        """Return the rows after a first pass over the parts, see :func:`~onnxtrain.estimators.first_pass.survey`."""
        if self.parts.classes is not None and not estimator._classifies:
            raise ParameterError("classes= is only for classifiers. Leave it out for a regressor.")
        balanced = getattr(estimator, "class_weight", None) == "balanced"
        found = survey(
            replace(self.parts, classes=None) if balanced else self.parts,
            floats_of(estimator.dtype),
            classifies=estimator._classifies,
            counted=_counted_labels(estimator),
        )
        _say(estimator, found)
        if not is_part_of_more():
            X, y, _ = found.sample
            label = getattr(self.parts.source, "label", found.label)
            warn_of_label_among_columns(X, y, label, estimator.estimator)
        return SurveyedParts(self.parts, found)

    def further(
        self, estimator: OrtGradientEstimator, model: TrainedModel, of_classes: ClassWeights
    ) -> TrainingData | PartedData:
        """Return further rows, in the form for a model that was started on other rows, with its class weights."""
        lengths = tuple(self.parts.n_rows(i) for i in range(len(self.parts)))
        i = with_rows(self.parts)[0]
        part = self.parts.read(i)
        reader = _Reader(
            estimator,
            model,
            self.parts,
            First.of(i, part),
            lengths,
            weighted=part.sample_weight is not None,
            of_classes=of_classes,
        )
        like = _few(reader.check(i, part))
        data = PartedData(reader, lengths, None, like, self.parts.open_parts, None)
        if reader.weighted or reader.by_label:
            data = data.counted()
        if not data.n_rows:
            raise DataError(NO_WEIGHT)
        return data

    def labelled(self) -> Iterator[Part]:
        """Yield the parts that have rows; check that each has labels, and that all or none have weights."""
        order = with_rows(self.parts)
        weighted, shape = None, None
        for i, part in zip(order, self.parts.in_order(), strict=True):
            check_length(i, part, self.parts.n_rows(i))
            weighted = part.sample_weight is not None if weighted is None else weighted
            check_weighted(i, part, order[0], weighted=weighted)
            shape = shape_of_targets(part.y) if shape is None else shape
            check_targets(i, part.y, order[0], shape)
            yield part._replace(y=copy.copy(part.y))


class First(NamedTuple):
    """Facts of the first part that has rows, which all parts must share: form of the rows, presence of weights."""

    number: int
    form: tuple[Any, ...]
    weighted: bool

    @classmethod
    def of(cls, number: int, part: Part) -> First:
        """Return the facts of a part."""
        return cls(number, form_of(part.X), part.sample_weight is not None)


@dataclass(frozen=True)
class SurveyedParts:
    """Rows in parts after the first pass over them."""

    parts: Parts
    found: Survey

    @property
    def sample(self) -> Part:
        """The rows on which a fit starts."""
        return self.found.sample

    @contextmanager
    def expecting_classes(self, estimator: OrtGradientEstimator) -> Iterator[None]:
        """Return a context in which the sample may lack some of the classes, and a missing target names its part."""
        classes = self.found.labels if self.parts.classes is None else np.unique(self.parts.classes)
        with estimator._expecting(classes):
            try:
                yield
            except DataError as e:
                targets = ((i, self.parts.read(i).y) for i in with_rows(self.parts))
                raise of_missing_targets(e, targets) from e.__cause__

    def balanced_weights(self, estimator: OrtGradientEstimator, model: TrainedModel, rows: Rows) -> ClassWeights:
        """Return the class weights of all rows if `class_weight` is ``"balanced"``, else None."""
        counts = _counts(estimator, model, self.found)
        return None if counts is None else balanced(counts)

    def data(self, estimator: OrtGradientEstimator, model: TrainedModel, rows: Rows, n_epochs: int) -> Ready:
        """Return the model, cut after its frozen front, and all rows for its rest; `rows` is the checked sample."""
        found = self.found
        model, sample = model.cut(data_of(estimator, model, rows), 1)
        reader = _Reader(
            estimator,
            model,
            self.parts,
            First.of(with_rows(self.parts)[0], found.sample),
            found.lengths,
            weighted=found.weights is not None,
            of_classes=self.balanced_weights(estimator, model, rows),
            constant=_constant_weight(found),
        )
        data = PartedData(
            reader,
            found.sizes,
            found.weights,
            _few(sample),
            self.parts.open_parts,
            found.digest,
            shares=_shares_of_classes(estimator, model, found),
        )
        if reader.by_label:
            data = data.counted()
        for i in found.suspects:
            reader.check(i, reader.read(i))
        if not model.positional:
            estimator._targets.encode(found.labels, model)  # labels that the model does not know
        return model, data


@dataclass(frozen=True)
class _Reader:
    """Reads parts in the form that the objective of a model takes.

    Attributes
    ----------
    first : First
    lengths : tuple of int
        The number of rows of each part at the beginning of the fit, including rows of weight zero.
    weighted : bool
        Whether the sample weights differ between rows.
    of_classes : dict or None
        The class weights of the rows of the fit, if they are balanced.
    constant : float, optional
        The sample weight that all rows share.
    """

    estimator: OrtGradientEstimator
    model: TrainedModel
    parts: Parts
    first: First
    lengths: tuple[int, ...]
    weighted: bool
    of_classes: ClassWeights
    constant: float | None = None

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def by_label(self) -> bool:
        """Whether the weight of a row depends on its labels."""
        return self.model.positional or getattr(self.estimator, "class_weight", None) is not None

    def read(self, i: int) -> Part:
        """Return a part as its source returns it."""
        return self.parts.read(i)

    def check_lengths(self) -> None:
        """Raise a DataError if the parts or their lengths have changed since the fit began."""
        if len(self.parts) != len(self.lengths):
            raise DataError(
                f"The source has {len(self.parts)} parts, but had {len(self.lengths)} when the fit began. Pass rows "
                "that come later to partial_fit."
            )
        for i, n_rows in enumerate(self.lengths):
            if (now := self.parts.n_rows(i)) != n_rows:
                raise changed(i, f"n_rows({i}) is {now}, but was {n_rows}")

    def check(self, i: int, part: Part) -> TrainingData:
        """Check a part and return its rows after the frozen front of the model."""
        check_length(i, part, self.lengths[i])
        check_form(i, form_of(part.X), self.first.number, self.first.form)
        check_weighted(i, part, self.first.number, weighted=self.first.weighted)
        try:
            rows = check_rows(self.estimator, part.X, part.y, None, self.model)
            rows = rows._replace(weight=self._weight(rows.y, part.sample_weight))
            data = data_of(self.estimator, self.model, rows)
        except DataError as e:
            found = of_missing_targets(e, [(i, part.y)])
            raise (DataError(f"Part {i}: {for_part(str(e), i)}") if found is e else found) from e
        return self.model.behind_front(data)[1]

    def _weight(self, y: np.ndarray, sample_weight: ArrayLike | None) -> np.ndarray | None:
        """Return the sample weights times the class weights; None in all parts or in none."""
        if sample_weight is None and not self.by_label:
            return None
        dtype = floats_of(self.estimator.dtype)
        given = np.ones(len(y), dtype) if sample_weight is None else sample_weight
        weight = check_sample_weight(given, y, dtype, keep=True)
        if self.constant is not None and np.any(weight != self.constant):
            raise DataError(f"the sample weights have changed during the fit; all of them were {self.constant:g}.")
        if not self.weighted and not self.by_label:
            return None
        return self.estimator._targets.weigh(y, weight, self.of_classes)


def _constant_weight(found: Survey) -> float | None:
    """Return the weight that all rows share; None if rows have no weights, or different ones."""
    weight = found.sample.sample_weight
    return None if weight is None or found.weights is not None else float(weight[0])


def _few(data: TrainingData) -> TrainingData:
    """Return copies of a few rows."""
    n = min(_FEW, len(data.label))
    return gather([data], np.zeros(n, np.int64), np.arange(n))


def _shares_of_classes(estimator: OrtGradientEstimator, model: TrainedModel, found: Survey) -> np.ndarray | None:
    """Return the share of each class in each part, if each row has one class and all parts were read."""
    if found.shares is None or estimator._targets.n_labels or model.positional:
        return None
    codes = estimator._targets.encode(found.labels, model)[:, 0]
    shares = np.zeros((len(found.shares), codes.max() + 1))
    shares[:, codes] = found.shares
    return shares


def _counts(estimator: OrtGradientEstimator, model: TrainedModel, found: Survey) -> dict[Any, int] | None:
    """Return the number of rows of each class, if class weights are balanced."""
    if getattr(estimator, "class_weight", None) != "balanced":
        return None
    if model.positional:  # the graph holds the class weights, computed on the sample
        if n_rows_of(found.sample.y) < sum(found.lengths):
            raise ParameterError(_NOT_BALANCED_POSITIONS)
        return None
    if found.labels.ndim > 1 or estimator._targets.n_labels:
        raise ParameterError(_NOT_BALANCED)
    return dict(zip(found.labels.tolist(), found.counts.tolist(), strict=True))


def _counted_labels(estimator: OrtGradientEstimator) -> Callable[[np.ndarray], np.ndarray | None]:
    """Return a function that tells which labels of y count, if rows have positions."""

    def counted(y: np.ndarray) -> np.ndarray | None:
        positional = is_positional(estimator, np.empty((1,) * y.ndim), None)
        return counts(y, estimator.ignore_index) if positional else None

    return counted


def _say(estimator: OrtGradientEstimator, found: Survey) -> None:
    """Print on how many rows an unfitted estimator is fitted first."""
    model = estimator._default_estimator() if estimator.estimator is None else estimator.estimator
    if estimator.verbose and not is_onnx(model) and not is_fitted(model):
        n = n_rows_of(found.sample.y)
        print(
            f"{type(model).__name__} is fitted on {n:,} of {sum(found.sizes):,} rows, spread over the parts; "
            "training then continues on all rows."
        )


def hold_out(
    estimator: OrtGradientEstimator, data: TrainingData | PartedData
) -> tuple[TrainingData | PartedData, TrainingData | PartedData]:
    """Return training rows and held-out rows, stratified by class; of rows in parts, a fraction of each part."""
    fraction, random_state = estimator.validation_fraction, estimator._random_state
    if isinstance(data, PartedData):
        return data.hold_out(fraction, random_state)
    targets: Any = estimator._targets
    of_classes = estimator._classifies and data.label.shape[1:] == (1,)
    try:
        train, held_out = train_test_split(
            data.rows,
            test_size=fraction,
            random_state=random_state,
            stratify=data.label[data.rows, 0] if of_classes else None,
        )
    except ValueError as e:
        why = str(e).removesuffix(".")
        if of_classes and 1 in (counts := np.bincount(data.label[data.rows, 0])):
            why = f"the class {targets.classes.tolist()[counts.tolist().index(1)]!r} has only 1 row"
        raise DataError(
            f"early_stopping=True cannot hold out validation_fraction={fraction} of {len(data.rows)} rows: {why}. "
            "Set early_stopping=False, or pass a validation set: fit(X, y, X_val=..., y_val=...)."
        ) from e
    return data.subset(train), data.subset(held_out)


# ------------------------------------------------------------------ checks


def check_rows(
    estimator: OrtGradientEstimator,
    X: Features,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    model: TrainedModel,
    of_classes: ClassWeights = None,
) -> Rows:
    """Check further rows for a trained model, in the form of its first rows."""
    return _checked(estimator, X, y, sample_weight, model.form, model, of_classes)


def check_first_rows(
    estimator: OrtGradientEstimator,
    X: Features,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    form: InputForm | None = None,
) -> Rows:
    """Check the first rows of a fit; their form is that of a table unless `form` is given."""
    check_map(X)
    if form is None:
        form = InputForm.of(X, estimator.estimator, floats_of(estimator.dtype))
    names = getattr(estimator.estimator, "feature_names_in_", None)
    if names is not None and is_frame(X) and not _are_names_of_lightgbm(names, X, estimator.estimator):
        X = in_order(X, names, estimator.estimator)
    rows = _checked(estimator, X, y, sample_weight, form, None)
    return rows._replace(exact=form.exact(X, rows.X))


def _are_names_of_lightgbm(names: Sequence[str], X: Frame, model: Estimator) -> bool:
    """Whether `names` are the columns of X in their order, as LightGBM records them: it writes a blank as ``_``."""
    as_recorded = list(names) == [str(name).replace(" ", "_") for name in X.columns]
    return as_recorded and any(library_of(type(found)) == "lightgbm" for found in inside(model))


def data_of(estimator: OrtGradientEstimator, model: TrainedModel, rows: Rows) -> TrainingData:
    """Return checked rows in the form that the objective of the whole model takes."""
    targets = estimator._targets
    label = targets.encode(rows.y, model)
    return model.data(rows.X, label, targets.row_weights(label, rows.weight))


def _checked(
    estimator: OrtGradientEstimator,
    X: Features,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    form: InputForm,
    model: TrainedModel | None,
    of_classes: ClassWeights = None,
) -> Rows:
    """Check rows in a form; `model` is None for the first rows."""
    check_labelled(estimator, X, y)
    if scipy.sparse.issparse(y) and not estimator._classifies:
        raise DataError(
            "The y of a regressor must be an array, got a sparse matrix. Pass y.toarray() or y.toarray().ravel()."
        )
    if not estimator._classifies:
        check_no_durations(y)
    y = as_array(y, "y") if hasattr(y, "detach") else y  # a tensor
    reset, dtype = model is None, floats_of(estimator.dtype)
    original = None if model is None else model.source.estimator
    positional = is_positional(estimator, y, model)
    if not positional:
        found, y = form.check(estimator, X, y, original, reset=reset, numeric=not estimator._classifies)
    if reset:
        estimator._targets = estimator._new_targets(y, positional=positional)
    targets = estimator._targets
    y = targets.check(y)
    if positional:
        found, _ = form.check(estimator, X, np.zeros(len(y)), original, reset=reset, numeric=False)
    weight = targets.weigh(y, check_sample_weight(sample_weight, y, dtype), of_classes)
    return Rows(found, y, weight, form, found)
