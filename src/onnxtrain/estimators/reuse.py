"""Equal conversions of estimators are done once, as the folds of a cross-validation need them.

A conversion is reused for estimators that differ only in their learned values. The graph stays the same except for the
initializers that hold learned attributes. Other parts of the graph may depend on learned values too. They are found by
comparing the graphs of two fits: a learned value may vary in later fits only if it differed between the two while the
rest of the graph did not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import onnx
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    BaggingClassifier,
    IsolationForest,
    VotingClassifier,
)
from sklearn.neighbors import KNeighborsClassifier, RadiusNeighborsClassifier

from onnxtrain import graph
from onnxtrain.cache import LIGHT, Cache
from onnxtrain.convert import Binding, Conversion, compare, convert, registered_converters
from onnxtrain.convert.additions.calibration import (
    BY_SIGMOID,
    TREES,
    is_decided_by_rounding,
    is_steep,
    magnifies_zeros,
)
from onnxtrain.convert.check import NEAREST
from onnxtrain.convert.custom import CONVERTERS
from onnxtrain.convert.learned import get, holds, inside, remedy_of_members
from onnxtrain.errors import ConversionError, ModelError, OnnxTrainError, WeightError
from onnxtrain.estimators.protocols import Estimator, Features
from onnxtrain.estimators.source import Source
from onnxtrain.runtime.device import find_device
from onnxtrain.runtime.session import Place
from onnxtrain.training.model import (
    Reading,
    TrainableModel,
    initial_weights,
    learned_constants,
    read_model,
    with_weights,
    without_weights,
)

#: Attributes that record the course of a fit and do not affect the graph.
_RECORDS = frozenset(
    [
        *("n_iter_", "t_", "n_samples_seen_", "rank_", "loss_", "loss_curve_", "best_loss_", "feature_names_in_"),
        *("validation_scores_", "best_validation_score_", "_best_coefs", "_best_intercepts"),
        *("_no_improvement_count", "_optimizer", "_random_state"),
    ]
)

#: Values with a smaller relative difference may be equal in a float32 graph.
_VISIBLE = 1e-5

#: The remedy for a graph that agrees with its estimator in float64 only.
IN_FLOAT64 = "float32 has too few digits for what it computes. Set dtype='float64'."

#: Larger arrays that are not floating-point make an estimator unknown.
_FEW = 10_000

Path = tuple[Hashable, ...]


class _Unknown(Exception):
    """An attribute of a type whose equality cannot be decided."""


@dataclass(frozen=True)
class Fingerprint:
    """An estimator taken apart: its structure, which must be equal, and its learned floating-point values, by path.

    `objects` maps the id of each value to its path, because several paths in a pipeline may lead to one object.
    """

    structure: Hashable
    learned: Mapping[Path, np.ndarray] = field(repr=False)
    objects: Mapping[int, Path] = field(repr=False)


def fingerprint(estimator: Estimator, X: Features) -> Fingerprint | None:
    """Return the fingerprint of an estimator and its input types; None if a part has an unknown type.

    It holds the arrays of the estimator, which must not be changed.
    """
    if isinstance(X, Mapping):
        return None  # no estimator takes a dictionary of columns; the conversion raises the error
    learned: dict[Path, Any] = {}
    try:
        structure = _structure(estimator, (), learned, is_learned=False)
    except _Unknown:
        return None
    kinds = tuple((str(name), str(dtype)) for name, dtype in X.dtypes.items()) if hasattr(X, "dtypes") else X.shape[1]
    objects = {id(value): path for path, value in learned.items()}
    return Fingerprint((structure, kinds), {path: np.asarray(value) for path, value in learned.items()}, objects)


def _structure(x: object, path: Path, learned: dict[Path, Any], *, is_learned: bool) -> Hashable:
    """Return a value without its learned floating-point values, which are added to `learned`."""
    if isinstance(x, (np.ndarray, np.generic)):
        return _array(x, path, learned)
    if isinstance(x, float) and is_learned:
        learned[path] = x
        return float
    if isinstance(x, np.random.RandomState):
        return np.random.RandomState
    parts = _parts(x, is_learned)
    if parts is None:
        return _value(x)
    return type(x), tuple((k, _structure(v, (*path, k), learned, is_learned=mark)) for k, v, mark in parts)


def _parts(x: object, is_learned: bool) -> list[tuple[Hashable, object, bool]] | None:
    """Return the parts of a container, by key, and whether each is learned; None for a value without parts."""
    if isinstance(x, (list, tuple)):
        return [(i, v, is_learned) for i, v in enumerate(x)]
    if isinstance(x, dict):
        return [(k, x[k], is_learned) for k in sorted(x, key=repr)]
    if isinstance(x, BaseEstimator):
        attributes = sorted(vars(x).items())
        return [(k, v, k.startswith("_") or k.endswith("_")) for k, v in attributes if k not in _RECORDS]
    return None


def _array(x: np.ndarray | np.generic, path: Path, learned: dict[Path, Any]) -> Hashable:
    if x.dtype.kind == "f":
        learned[path] = x
        return type(x), x.shape, x.dtype.str
    if x.size <= _FEW and x.dtype.kind in "iub":
        return "array", x.shape, x.dtype.str, x.tobytes()
    if x.size <= _FEW and x.dtype.kind in "OUS":
        return "array", x.shape, x.dtype.str, tuple(map(_value, np.ravel(x).tolist()))
    raise _Unknown


def _value(x: object) -> Hashable:
    if isinstance(x, (str, bytes, int, float, complex, type, type(None))):
        return type(x), x if x == x else "nan"
    raise _Unknown


@dataclass
class _Template:
    """A conversion with its model and learned values, of which some are bound to initializers and some may vary."""

    conversion: Conversion
    model: TrainableModel
    learned: Mapping[Path, np.ndarray]
    bound: frozenset[Path | None]
    varying: Mapping[Path, np.ndarray]

    @classmethod
    def of(cls, conversion: Conversion, model: TrainableModel, parts: Fingerprint, estimator: Estimator) -> _Template:
        """Return the template of a first conversion; none of its values may vary yet."""
        bound = frozenset(parts.objects.get(id(get(estimator, b.path))) for b in _written(conversion.bindings))
        varying = {path: np.zeros(value.shape, bool) for path, value in parts.learned.items()}
        return cls(conversion, model, parts.learned, bound, varying)

    def fits(self, learned: Mapping[Path, np.ndarray]) -> bool:
        """Whether learned values differ from the template's only where they may vary."""
        return all(
            np.all(self.varying[path] | (value == learned[path]) | (np.isnan(value) & np.isnan(learned[path])))
            for path, value in self.learned.items()
        )

    def followed_by(self, new: _Template) -> _Template:
        """Return the newer of two templates, in which all values may vary that differed between two fits."""
        if not _same_but_for_weights(self, new):
            return new
        varying = {}
        for path, value in new.learned.items():
            differs = _differ(self.learned[path], value)
            # a bound array may vary as a whole: single entries may be equal by chance
            varying[path] = self.varying[path] | (differs.any() if path in new.bound else differs)
        return replace(new, varying=varying)


def _differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return which values differ by more than the rounding of a float32 graph."""
    return np.abs(a - b) > _VISIBLE * np.maximum(np.abs(a), np.abs(b))


def _same_but_for_weights(a: _Template, b: _Template) -> bool:
    if a.conversion.bindings != b.conversion.bindings:
        return False
    known = [f.name for f in fields(TrainableModel) if f.name not in ("onnx", "proto", "classes", "certain")]
    if any(getattr(a.model, name) != getattr(b.model, name) for name in known):
        return False
    names = [binding.name for binding in _written(a.conversion.bindings)]
    pairs = (a.conversion.onnx, b.conversion.onnx), (a.model.graph(), b.model.graph())
    return all(without_values(x, names) == without_values(y, names) for x, y in pairs)


def without_values(onx: onnx.ModelProto, names: Sequence[str]) -> bytes:
    """Return a model without the values of the initializers `names`, for comparison with others."""
    return graph.initializers_as_inputs(onx, names).SerializeToString(deterministic=True)


def _written(bindings: Iterable[Binding]) -> list[Binding]:
    """Return the bindings of initializers that hold a single attribute, not a value derived from several."""
    return [binding for binding in bindings if binding.path]


def _filled(model: TrainableModel, bindings: Iterable[Binding], estimator: Estimator) -> TrainableModel:
    """Return a model with the exact learned values of an estimator; skl2onnx rounds them to float32."""
    values = {binding.name: binding.read(estimator) for binding in _written(bindings)}
    return model.with_graph(with_weights(model.graph(), values)) if values else model


#: Templates by structure and settings.
TEMPLATES: Cache[_Template] = Cache("templates of conversions")


def as_source(estimator: Estimator, X: Features, reading: Reading) -> Source:
    """Return a fitted estimator as a source; reuse the graph of an estimator of the same structure if possible.

    Parameters
    ----------
    estimator : fitted estimator
    X : array or DataFrame
        Rows on which the conversion is compared with the estimator.
    reading : Reading
        How the output is read; the converted graph itself shows whether its output holds labels.
    """
    reading = replace(reading, labels=False)
    answers: dict[str, Any] = {}
    estimator = copy.deepcopy(estimator)  # the user may change the original; templates hold arrays of the copy
    parts = fingerprint(estimator, X)
    key = None if parts is None else (parts.structure, reading, registered_converters())
    known = None if key is None else TEMPLATES.find(key)
    if parts is not None and known is not None and known.fits(parts.learned):
        bindings = known.conversion.bindings
        model = _filled(known.model, bindings, estimator)
        with suppress(ConversionError):  # the template does not fit this estimator
            _compare(estimator, model, X, answers)
            return Source(model, estimator, bindings, answers=answers)
    conversion = convert(estimator, X)
    with _output_explained(estimator):
        model = read_model(conversion.onnx, reading, default=conversion.default, converted=True)
    model = replace(model, learned=tuple(binding.name for binding in _written(conversion.bindings)))
    # converters round in different ways: the result must not depend on earlier conversions
    filled = _filled(model, conversion.bindings, estimator)
    try:
        _compare(estimator, filled, X, answers)
    except ConversionError as e:
        in_float64 = partial(_agrees_in_float64, estimator, conversion, X, reading)
        if remedy := _remedy_of_digits(estimator, reading, in_float64):
            raise ConversionError(e.found, remedy) from e.__cause__
        raise
    if parts is not None:
        new = _Template.of(conversion, filled, parts, estimator)
        TEMPLATES.keep(key, new if known is None else known.followed_by(new))
    return Source(filled, estimator, conversion.bindings, answers=answers)


def _remedy_of_digits(estimator: Estimator, reading: Reading, agrees_in_float64: Callable[[], bool]) -> str:
    """Return the remedy for a graph that differs because it computes with fewer digits; empty for other causes."""
    if is_decided_by_rounding(estimator) or magnifies_zeros(estimator):
        return BY_SIGMOID
    ties = holds(estimator, NEAREST)  # with more digits, other rows are equally far
    if reading.dtype == "float32" and not ties and agrees_in_float64():
        return IN_FLOAT64
    return BY_SIGMOID if is_steep(estimator) else ""


@contextmanager
def _output_explained(estimator: Estimator) -> Iterator[None]:
    """Add the remedy to errors about a model that counts the votes of its members, or has an output for each."""
    try:
        yield
    except WeightError as e:
        raise WeightError(f"{e} {_remedy_of_votes(estimator)}".strip()) from e
    except ModelError as e:
        problem, chosen, _ = str(e).partition(" Set output to")
        if chosen and (remedy := remedy_of_members(estimator)):
            raise ModelError(f"{problem} {remedy}") from e
        raise


def _remedy_of_votes(estimator: Estimator) -> str:
    """Return the remedy for an estimator that counts the classes its members choose; empty for others."""
    for found in inside(estimator):
        if isinstance(found, VotingClassifier) and found.voting == "hard":
            return _remedy_of_hard_votes(found)
        if isinstance(found, BaggingClassifier) and not hasattr(found.estimators_[0], "predict_proba"):
            return (
                "BaggingClassifier counts the votes of estimators without probabilities, which have no derivative. "
                "Give it an estimator with predict_proba, for example LogisticRegression()."
            )
        if isinstance(found, (KNeighborsClassifier, RadiusNeighborsClassifier)):
            return (
                f"{type(found).__name__} counts the classes of neighbours. Use LabelSpreading(kernel='knn'), which "
                "averages label distributions of the nearest rows, or kernel='rbf', of all rows; these are trained."
            )
        if isinstance(found, TREES) and isinstance(found.classes_, list):
            name = type(found).__name__
            return (
                f"A leaf of {name} contains the probabilities of all labels, which ONNX looks up by its index. Use "
                f"MultiOutputClassifier({name}(...)), which has separate leaves for each label; these are trained."
            )
        if isinstance(found, DummyClassifier) and found.strategy != "prior":
            return "Use DummyClassifier(strategy='prior'), which has the class frequencies; these are trained."
        if isinstance(found, IsolationForest):
            return (
                "IsolationForest counts splits, which have no derivative. Use OrtGradientClassifier(OneClassSVM()) or "
                "SGDOneClassSVM(), with y of 1 for inliers and -1."
            )
        if type(found) in CONVERTERS:
            return (
                f"The converter of {type(found).__name__} must pass learned arrays to the operators as they are, and "
                "calculate with them by op: op.Mul(estimator.coef_, 2.0), not 2.0 * estimator.coef_."
            )
    return ""


def _remedy_of_hard_votes(vote: VotingClassifier) -> str:
    """Return the remedy for a vote by classes; members without probabilities have to be replaced."""
    remedy = "VotingClassifier counts votes, which have no derivative. Use voting='soft' for mean probabilities"
    members = vote.named_estimators_.items()
    if without := [name for name, member in members if not hasattr(member, "predict_proba")]:
        remedy += f", with members that have predict_proba in place of {', '.join(map(repr, without))}: "
        return remedy + "LogisticRegression(), or CalibratedClassifierCV around LinearSVC()."
    return f"{remedy}."


def _agrees_in_float64(estimator: Estimator, conversion: Conversion, X: Features, reading: Reading) -> bool:
    with suppress(OnnxTrainError):
        model = read_model(conversion.onnx, replace(reading, dtype="float64"), default=conversion.default)
        _compare(estimator, _filled(model, conversion.bindings, estimator), X, {})
        return True
    return False


def _compare(estimator: Estimator, model: TrainableModel, X: Features, answers: dict[str, Any]) -> None:
    """Compare a model with the estimator, in the session from which training starts and which predicts."""
    names = (*model.default, *learned_constants(model, model.default))
    content, proto = without_weights(model, names), model.graph()
    place = Place(find_device("cpu"), n_threads=1)
    session = place.open(content, shared=len(content) <= LIGHT, thorough=False)
    compare(estimator, proto, X, answers, session, initial_weights(proto, names), model.outputs)
