"""Estimators that differ in their numbers only: one is converted, the others lend it their numbers.

A grid search fits the same estimator hundreds of times. Its graph stays the same
but for the initializers that are learned attributes. What else in the graph may
depend on what was learned is found by comparing the graphs of two fits: only numbers
that differed in both, where the rest of the graph did not, are free to differ again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import onnx
from sklearn.base import BaseEstimator

from onnxtrain.convert import Binding, Conversion
from onnxtrain.convert.binding import get
from onnxtrain.convert.check import Run
from onnxtrain.errors import ConversionError
from onnxtrain.estimators._model import TrainableModel
from onnxtrain.estimators._recent import Recent
from onnxtrain.training.device import find_device
from onnxtrain.training.objective import initializers_as_inputs
from onnxtrain.training.session import cached_session, run_session

#: Attributes that count or record the fit, and are in no graph.
_RECORDS = frozenset(
    [
        *("n_iter_", "t_", "n_samples_seen_", "rank_", "loss_", "loss_curve_", "best_loss_", "feature_names_in_"),
        *("validation_scores_", "best_validation_score_", "_best_coefs", "_best_intercepts"),
        *("_no_improvement_count", "_optimizer", "_random_state"),
    ]
)

#: Numbers closer than this, relatively, may be the same in a graph of float32.
_VISIBLE = 1e-5

#: Larger arrays of other things than real numbers are not compared.
_FEW = 10_000

Path = tuple[Hashable, ...]


class _Unknown(Exception):
    """An attribute of a kind whose equality is not known."""


@dataclass(frozen=True)
class Anatomy:
    """An estimator taken apart: what must be equal, and the real numbers that were learned, by path."""

    structure: Hashable
    learned: Mapping[Path, np.ndarray] = field(repr=False)
    objects: Mapping[int, Path] = field(repr=False)

    def path_of(self, attribute: Any) -> Path | None:
        """Return where an attribute was found; a pipeline has several ways to one."""
        return self.objects.get(id(attribute))


def anatomy(estimator: Any, X: Any) -> Anatomy | None:
    """Return an estimator and the type of its input taken apart, None where one part is of an unknown kind."""
    learned: dict[Path, Any] = {}
    try:
        structure = _structure(estimator, (), learned, under_score=False)
    except _Unknown:
        return None
    kinds = tuple((str(name), str(dtype)) for name, dtype in X.dtypes.items()) if hasattr(X, "dtypes") else X.shape[1]
    objects = {id(value): path for path, value in learned.items()}
    return Anatomy((structure, kinds), {path: np.array(value) for path, value in learned.items()}, objects)


def _structure(x: Any, path: Path, learned: dict[Path, Any], *, under_score: bool) -> Hashable:
    if isinstance(x, (np.ndarray, np.generic)):
        if x.dtype.kind == "f":
            learned[path] = x
            return type(x), x.shape, x.dtype.str
        x = np.asarray(x)
        if x.dtype.kind in "iub" and x.size <= _FEW:
            return "array", x.shape, x.dtype.str, x.tobytes()
        if x.dtype.kind in "OUS" and x.size <= _FEW:
            return "array", x.shape, x.dtype.str, tuple(map(_value, x.ravel().tolist()))
        raise _Unknown
    if isinstance(x, float) and under_score:
        learned[path] = x
        return float
    if isinstance(x, (list, tuple)):
        parts = (_structure(v, (*path, i), learned, under_score=under_score) for i, v in enumerate(x))
        return type(x), tuple(parts)
    if isinstance(x, dict):
        keys = sorted(x, key=repr)
        return dict, tuple((k, _structure(x[k], (*path, k), learned, under_score=under_score)) for k in keys)
    if isinstance(x, BaseEstimator):
        attributes = {k: v for k, v in sorted(vars(x).items()) if k not in _RECORDS}
        parts = (
            (k, _structure(v, (*path, k), learned, under_score=k.startswith("_") or k.endswith("_")))
            for k, v in attributes.items()
        )
        return type(x), tuple(parts)
    if isinstance(x, np.random.RandomState):
        return np.random.RandomState
    return _value(x)


def _value(x: Any) -> Hashable:
    if isinstance(x, (str, bytes, int, float, complex, type, type(None))):
        return type(x), x if x == x else "nan"
    raise _Unknown


@dataclass
class _Template:
    """A conversion, what was made of it, its numbers, which of them are lent, which of them may be others."""

    conversion: Conversion
    model: TrainableModel
    default: tuple[str, ...]
    learned: Mapping[Path, np.ndarray]
    lent: frozenset[Path | None]
    free: Mapping[Path, np.ndarray]

    def fits(self, learned: Mapping[Path, np.ndarray]) -> bool:
        """Whether numbers differ from those of the template only where they are free to."""
        return all(
            np.all(self.free[path] | (value == learned[path]) | (np.isnan(value) & np.isnan(learned[path])))
            for path, value in self.learned.items()
        )

    def run_with(self, estimator: Any) -> Run:
        """Return how the graph is run with the numbers of an estimator: by one session for all of them."""
        onx, written = self.conversion.onnx, _written(self.conversion.bindings)
        numbers = _numbers(onx, written, estimator)
        session = cached_session(
            initializers_as_inputs(onx, list(numbers)).SerializeToString(deterministic=True), find_device("cpu"), 1
        )
        return lambda _, feeds: run_session(session, {**feeds, **numbers})

    def filled_model(self, estimator: Any) -> TrainableModel:
        """Return the model with the numbers of an estimator, exactly: graphs of skl2onnx hold float32."""
        proto = onnx.load_model_from_string(self.model.onnx)
        filled = _filled(proto, self.conversion.bindings, estimator)
        return replace(self.model, onnx=filled.SerializeToString(deterministic=True))

    def followed_by(self, new: _Template) -> _Template:
        """Return the newer one of two templates; numbers that differed in any two fits are free."""
        if not _same_but_for_weights(self, new):
            return new
        free = {}
        for path, value in new.learned.items():
            differs = _differ(self.learned[path], value)
            # what is lent is lent whole: single numbers of it may be equal by chance
            free[path] = self.free[path] | (differs.any() if path in new.lent else differs)
        return replace(new, free=free)


def _differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return which numbers differ by so much that a graph which holds them would."""
    return np.abs(a - b) > _VISIBLE * np.maximum(np.abs(a), np.abs(b))


def _same_but_for_weights(a: _Template, b: _Template) -> bool:
    if a.conversion.bindings != b.conversion.bindings or a.default != b.default:
        return False
    known = [f.name for f in fields(TrainableModel) if f.name not in ("onnx", "classes")]
    if any(getattr(a.model, name) != getattr(b.model, name) for name in known):
        return False
    names = {binding.name for binding in _written(a.conversion.bindings)}
    graphs = [(t.conversion.onnx, onnx.load_model_from_string(t.model.onnx)) for t in (a, b)]
    return all(_without(x, names) == _without(y, names) for x, y in zip(*graphs, strict=True))


def _written(bindings: Iterable[Binding]) -> list[Binding]:
    """Return the bindings of initializers that are one attribute, not derived from several."""
    return [binding for binding in bindings if binding.path]


def _without(onx: onnx.ModelProto, names: set[str]) -> bytes:
    proto = onnx.ModelProto()
    proto.CopyFrom(onx)
    for initializer in proto.graph.initializer:
        if initializer.name in names:
            initializer.ClearField("raw_data")
            initializer.ClearField("float_data")
            initializer.ClearField("double_data")
    return proto.SerializeToString(deterministic=True)


def _filled(onx: onnx.ModelProto, bindings: Iterable[Binding], estimator: Any) -> onnx.ModelProto:
    """Return a copy of a model with the learned numbers of an estimator."""
    proto = onnx.ModelProto()
    proto.CopyFrom(onx)
    initializers = {initializer.name: initializer for initializer in proto.graph.initializer}
    for name, array in _numbers(onx, bindings, estimator).items():
        initializers[name].CopyFrom(onnx.numpy_helper.from_array(array, name))
    return proto


def _numbers(onx: onnx.ModelProto, bindings: Iterable[Binding], estimator: Any) -> dict[str, np.ndarray]:
    """Return the initializers of a model as an estimator holds them, by name."""
    initializers = {initializer.name: initializer for initializer in onx.graph.initializer}
    numbers = {}
    for binding in _written(bindings):
        initializer = initializers[binding.name]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(initializer.data_type)
        array = np.ascontiguousarray(binding.read(estimator).reshape(initializer.dims), dtype=dtype)
        numbers[binding.name] = array.reshape(initializer.dims)
    return numbers


#: By structure and settings.
TEMPLATES: Recent[_Template] = Recent(64)


def convert_once(
    estimator: Any,
    X: Any,
    settings: Hashable,
    *,
    convert: Callable[[], tuple[Conversion, TrainableModel, tuple[str, ...]]],
    check: Callable[[onnx.ModelProto, Run], None],
) -> tuple[TrainableModel, tuple[Binding, ...], tuple[str, ...]]:
    """Return what a conversion gives: the model, its bindings, the weights trained by default.

    Parameters
    ----------
    estimator : fitted estimator
    X : array or DataFrame
    settings : hashable
        What else the conversion depends on.
    convert : callable
        The conversion, from the beginning.
    check : callable
        Called with a graph and how it is run; raises a ConversionError where it is not the estimator.
    """
    parts = anatomy(estimator, X)
    if parts is None:
        conversion, model, default = convert()
        return model, conversion.bindings, default
    key = (parts.structure, settings)
    known = TEMPLATES.find(key)
    if known is not None and known.fits(parts.learned):
        with suppress(ConversionError):  # then it is no template for this one
            check(known.conversion.onnx, known.run_with(estimator))
            return known.filled_model(estimator), known.conversion.bindings, known.default
    free = {path: np.zeros(value.shape, bool) for path, value in parts.learned.items()}
    conversion, model, default = convert()
    lent = frozenset(parts.path_of(get(estimator, binding.path)) for binding in _written(conversion.bindings))
    new = _Template(conversion, model, default, parts.learned, lent, free)
    TEMPLATES.keep(key, new if known is None else known.followed_by(new))
    # converters round in their own ways: the result must not depend on what was converted before
    return new.filled_model(estimator), new.conversion.bindings, new.default
