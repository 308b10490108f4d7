"""Calls of skl2onnx that change nothing in it: the repairs are passed to each conversion.

Classes that skl2onnx does not know must be in its tables while a meta-estimator (VotingRegressor, StackingRegressor and
others) that contains one is converted. These entries are added for one conversion and removed after it.
"""

from __future__ import annotations

import copy
import functools
import itertools
import os
import re
import threading
import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier
from sklearn.feature_selection import RFE
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer

from onnxtrain.convert.as_transformers import with_transformers
from onnxtrain.convert.boosted import addition_of_boosted
from onnxtrain.convert.column_transformer import PARSERS
from onnxtrain.convert.columns import input_types
from onnxtrain.convert.custom import CONVERTERS, OF_OURS, is_ours, options_of_kind
from onnxtrain.convert.failures import check_encoded, check_no_leaves, check_no_splits_by_categories, failure
from onnxtrain.convert.fronts import with_fronts_outside
from onnxtrain.convert.learned import inside, is_idle, library_of, thawed
from onnxtrain.convert.repairs import ADDITIONS, REPAIRS, SHAPES, Addition, last_step, repair_graph
from onnxtrain.convert.selection import Columns
from onnxtrain.errors import ConversionError
from onnxtrain.graph import OPSET, assign, find_schema, names_in, unique_name, values_in

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer

#: The lock that is held while entries are in skl2onnx's tables.
_ENTRIES = threading.RLock()  # reentrant: inner estimators are converted meanwhile


#: The last seen tables of converters, and their version; in the key of a cache the tables would take 380 kB.
_SEEN: tuple[int, tuple[Any, ...]] = (0, ())
_NUMBERS = itertools.count(1)

#: Attributes that a subclass may override without changing prediction and transformation: those for fitting, scoring
#: and display, in imbalanced-learn's ensembles too. They include scores that no graph has.
_OF_FITTING = re.compile(
    r"fit|fit_\w+|_fit\w*|partial_fit|score|(get|set)_params|set_\w+_request|get_feature_names_out|predict_log_proba|"
    r"_validate_\w+|\w*_oob_\w+|_boost|_get_estimator|get_metadata_routing|_more_tags|"
    r"_parameter_constraints|_abc_impl|_estimator_type|_sklearn_auto_wrap_output_keys|__(?!getattr)\w+__"
)


def _unlock_in_child() -> None:
    global _ENTRIES
    _ENTRIES = threading.RLock()


if hasattr(os, "register_at_fork"):  # the thread that holds the lock does not exist in the child
    os.register_at_fork(after_in_child=_unlock_in_child)


def newest_opset() -> int:
    """Return the newest opset that skl2onnx can write."""
    from skl2onnx import __max_supported_opset__

    return __max_supported_opset__


def repaired_graph(estimator: BaseEstimator, X: Any, *, raw_scores: bool = False) -> onnx.ModelProto:
    """Return the graph that skl2onnx builds for a fitted estimator, with the repairs of onnxtrain.

    Parameters
    ----------
    estimator : fitted estimator
    X : array or DataFrame
        Rows that give the types of the inputs.
    raw_scores : bool
        Whether the output is that of ``decision_function`` even if there is ``predict_proba``.

    Raises
    ------
    ConversionError
        There is no converter, or it fails, or an encoder has dates as categories.
    """
    estimator = _predicting(_with_signed_labels(_without_covers(estimator)))
    check_no_splits_by_categories(estimator)
    check_no_leaves(estimator)
    check_encoded(estimator, X)
    types = input_types(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            written = with_fronts_outside(estimator) if len(types) > 1 else estimator
            onx = to_onnx(written, types, {"": OPSET, "ai.onnx.ml": 3}, raw_scores=raw_scores)
        except Exception as e:  # converters raise exceptions of any class
            raise ConversionError(failure(estimator, e, X)) from e
    return repair_graph(estimator, _with_names_of_columns(onx, X))


def _with_names_of_columns(onx: onnx.ModelProto, X: Any) -> onnx.ModelProto:
    """Return the model with inputs named after the columns, and no other value with these names.

    skl2onnx writes ``a_b`` for ``a b``, and ``label2`` for a column ``label``, because an output has this name.
    """
    names = [name for name, _ in input_types(X)]
    if names == [value.name for value in onx.graph.input] or len(names) != len(onx.graph.input):
        return onx
    model = ir.from_proto(onx)
    taken = names_in(model.graph) | {*names}
    for value in {*values_in(model.graph)} - {*model.graph.inputs}:
        if value.name in names:
            value.name = unique_name(value.name, taken)
    for value, name in zip(model.graph.inputs, names, strict=True):
        value.name = name
    return ir.to_proto(model)


def _without_covers(estimator: BaseEstimator) -> BaseEstimator:
    """Return a copy with each FrozenEstimator and search replaced by its estimator, and pipelines without idle steps.

    skl2onnx supports only GridSearchCV of these, and not if it is inside another estimator.
    """
    covers = {
        id(found): _without_covers(_covered(found)) for found in inside(estimator) if _covered(found) is not found
    }
    return copy.deepcopy(estimator, covers) if covers else estimator


def _covered(found: BaseEstimator) -> BaseEstimator:
    """Return the estimator that a wrapper stands for, or a composite of working transformers; any other unchanged."""
    found = with_transformers(found)
    if isinstance(found, Pipeline) and any(is_idle(step) for _, step in found.steps):
        steps = [(name, step) for name, step in found.steps if not is_idle(step)]
        return Pipeline(steps or [("identity", FunctionTransformer())])
    if isinstance(found, FeatureUnion) and any(isinstance(member, str) for _, member in found.transformer_list):
        members = [(name, member) for name, member in found.transformer_list if not isinstance(member, str)]  # "drop"
        return FeatureUnion(members, transformer_weights=found.transformer_weights)
    return getattr(found, "best_estimator_", _of_known_class(thawed(found)))


def _of_known_class(found: BaseEstimator) -> BaseEstimator:
    """Return a user's subclass instance that predicts like its parent as an instance of the parent's class."""
    from skl2onnx._supported_operators import sklearn_operator_name_map

    known = {*sklearn_operator_name_map, *CONVERTERS, *ADDITIONS}
    kinds = type(found).__mro__
    n_own = next((i for i, kind in enumerate(kinds) if kind in known), 0)
    parent, own = kinds[n_own], kinds[:n_own]
    anew = {name for kind in own for name in vars(kind) if hasattr(parent, name) or name.startswith("__getattr")}
    if not own or any(map(is_ours, own)) or not all(map(_OF_FITTING.fullmatch, anew)):
        return found
    plain = copy.copy(found)
    plain.__class__ = parent
    return plain


def _with_signed_labels(estimator: BaseEstimator) -> BaseEstimator:
    """Return a copy in which unsigned and real-valued class labels, such as 0.0 and 1.0, are int64, as in a graph.

    skl2onnx and its converters take other numbers than signed integers for strings.
    """
    labels = [vars(found).get("classes_") for found in inside(estimator)]
    arrays = [array for array in labels if isinstance(array, np.ndarray) and array.dtype.kind in "uf"]
    return copy.deepcopy(estimator, {id(a): a.astype(np.int64) for a in arrays}) if arrays else estimator


def _predicting(estimator: BaseEstimator) -> BaseEstimator:
    """Replace an RFE as last step by the columns that it chose and the estimator with which it predicts.

    skl2onnx supports RFE only as a transformer.
    """
    last = last_step(estimator)
    last = last_step(getattr(last, "best_estimator_", last))
    if not isinstance(last, RFE):
        return estimator
    chosen = Columns(np.flatnonzero(last.support_), len(last.support_))
    return copy.deepcopy(estimator, {id(last): Pipeline([("columns", chosen), ("estimator", last.estimator_)])})


def to_onnx(
    estimator: BaseEstimator,
    initial_types: list[tuple[str, Any]],
    target_opset: dict[str, int],
    *,
    raw_scores: bool = False,
) -> onnx.ModelProto:
    """Return skl2onnx's model of a fitted estimator, with the repairs of onnxtrain.

    A converter that the user has registered with skl2onnx for a class is used unchanged.
    """
    from skl2onnx._parse import parse_sklearn_model  # 1.3 s
    from skl2onnx.common._topology import convert_topology

    options = _options(estimator, raw_scores=raw_scores)
    kinds = {type(found) for found in inside(estimator)}
    functions = {kind: CONVERTERS[kind].convert for kind in kinds & CONVERTERS.keys()}
    shapes = {kind: CONVERTERS[kind].shapes for kind in functions}
    for kind in kinds & REPAIRS.keys() - functions.keys():
        own = _own_converter(kind)
        if own is not None:
            functions[kind] = functools.partial(REPAIRS[kind], own)
            shapes.update({kind: SHAPES[kind]} if kind in SHAPES else {})
    with _entries(kinds):
        topology = parse_sklearn_model(
            estimator, initial_types, target_opset, functions, shapes, PARSERS, options=options
        )  # fmt: skip
        topology.convert_operators = functools.partial(_convert_operators, topology.convert_operators)
        onx = convert_topology(
            topology, f"ONNX({type(estimator).__name__})", "", target_opset, options=options, remove_identity=False
        )
    others = [opset for opset in onx.opset_import if opset.domain]
    # the operators are written for this opset, even if they need only a lower one
    assign(onx.opset_import, [onnx.helper.make_opsetid("", target_opset[""]), *others])
    return onx


def _convert_operators(convert: Any, container: ModelComponentContainer, verbose: int = 0) -> None:
    """Call a topology's `convert_operators` with a container that gets operator versions from onnx.

    For each conversion skl2onnx builds a table of all operators, which takes 7 ms, longer than the rest for a small
    model. The container also writes large class labels completely.
    """
    by_table = getattr(container, "_get_op_version", None)
    if by_table is not None:
        container._get_op_version = functools.partial(_version, container, by_table)
    container.add_initializer = functools.partial(_add_integers, container.add_initializer)
    convert(container=container, verbose=verbose)


def _add_integers(add: Any, name: str, onnx_type: int, shape: Any, content: Any) -> Any:
    """Add an initializer, as int64 if int32 cannot hold its values: skl2onnx writes class labels as int32."""
    if onnx_type == onnx.TensorProto.INT32 and np.size(content):
        values, limits = np.asarray(content), np.iinfo(np.int32)
        if values.dtype.kind in "iu" and not limits.min <= values.min() <= values.max() <= limits.max:
            onnx_type = onnx.TensorProto.INT64
    return add(name, onnx_type, shape, content)


def _version(container: ModelComponentContainer, by_table: Any, domain: str, op_type: str) -> int:
    """Return the version of an operator at the model's opset; skl2onnx decides for operators unknown to onnx."""
    schema = find_schema(op_type, container.target_opset_any_domain(domain), domain)
    return by_table(domain, op_type) if schema is None else schema.since_version


def _own_converter(kind: type) -> Any:
    """Return skl2onnx's converter of a class, or None if the user has registered another."""
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import _converter_pool

    found = _converter_pool.get(sklearn_operator_name_map.get(kind, ""))
    function = getattr(found, "_fct", found)
    return found if (getattr(function, "__module__", None) or "").partition(".")[0] == "skl2onnx" else None


def _options(estimator: BaseEstimator, *, raw_scores: bool) -> dict[int, dict[str, Any]] | None:
    """Return the options of the last step's converter, by its id: probabilities as a matrix, not as dictionaries."""
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import _converter_pool

    last = last_step(estimator)
    chosen = getattr(last, "best_estimator_", last)  # the options of a search are those of its best estimator
    kind = type(last_step(chosen))
    if kind in CONVERTERS:
        return None
    known = _converter_pool.get(sklearn_operator_name_map.get(kind, ""))
    allowed = known.get_allowed_options() if known is not None else {}
    allowed = allowed if isinstance(allowed, dict) else {}
    if raw_scores and "raw_scores" not in allowed:
        raise ConversionError(
            f"The graph of {type(chosen).__name__} holds its probabilities, but its decision_function is needed here, "
            f"because it is inside another estimator. Put OrtGradientClassifier({type(chosen).__name__}(...)) in its "
            "place there."
        )
    options = {"zipmap": False, "raw_scores": True} if raw_scores else {"zipmap": False}
    if "zipmap" in allowed:
        return {id(last): options}
    # with an entry, skl2onnx does not set the option zipmap, which LinearSVC lacks
    return {id(last): {}} if allowed else None


def _missing(kinds: set[type]) -> dict[type, Addition]:
    """Return converters for the classes among `kinds` that are not in skl2onnx's tables and that onnxtrain supports."""
    from skl2onnx._supported_operators import sklearn_operator_name_map

    unknown = [kind for kind in kinds if kind not in sklearn_operator_name_map]
    known = {**ADDITIONS, **CONVERTERS}
    made = {kind: OF_OURS for kind in unknown if is_ours(kind)}
    boosted = {kind: addition_of_boosted(kind) for kind in unknown if library_of(kind) is not None}
    return {**boosted, **made, **{kind: known[kind] for kind in unknown if kind in known}}


@contextmanager
def _entries(kinds: set[type]) -> Iterator[None]:
    """Add the missing classes to skl2onnx's tables during a conversion.

    The tables are read under the lock, because another thread's entry could disappear before this conversion ends.
    """
    with _ENTRIES:
        additions = _missing(kinds)
        if additions:
            with _added(additions):
                yield
            return
    yield


@contextmanager
def _added(additions: Mapping[type, Addition]) -> Iterator[None]:
    """Add classes to skl2onnx's tables within a context."""
    from skl2onnx._supported_operators import sklearn_classifier_list, sklearn_operator_name_map
    from skl2onnx.common._registration import RegisteredConverter, _converter_pool, _shape_calculator_pool

    classifiers = [kind for kind in additions if _is_unknown_classifier(kind)]
    added = [(kind, f"Onnxtrain{kind.__name__}{id(kind)}", each) for kind, each in additions.items()]
    try:
        for kind, alias, each in added:
            _converter_pool[alias] = RegisteredConverter(each.convert, options_of_kind(kind))
            _shape_calculator_pool[alias] = each.shapes
            sklearn_operator_name_map[kind] = alias
        sklearn_classifier_list.extend(classifiers)
        yield
    finally:
        for kind in classifiers:
            sklearn_classifier_list.remove(kind)
        for kind, alias, _ in added:
            del sklearn_operator_name_map[kind], _shape_calculator_pool[alias], _converter_pool[alias]


def _is_unknown_classifier(kind: type) -> bool:
    """Whether skl2onnx does not see that a class is a classifier, because it has no mixin, such as CatBoost's."""
    return getattr(kind, "_estimator_type", "") == "classifier" and not issubclass(kind, ClassifierMixin)


def registered_converters() -> Hashable:
    """Return a version of skl2onnx's tables, which changes if a converter is registered or removed."""
    from skl2onnx._parse import sklearn_parsers_map
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import _converter_pool, _shape_calculator_pool

    global _SEEN
    tables: tuple[Mapping[Any, Any], ...] = (
        sklearn_operator_name_map,
        sklearn_parsers_map,
        _converter_pool,
        _shape_calculator_pool,
        CONVERTERS,
    )
    found = tuple((*table, *table.values()) for table in tables)
    number, before = _SEEN
    if found != before:
        number = next(_NUMBERS)
        _SEEN = number, found
    return number


def register_converter() -> None:
    """Add the estimators of onnxtrain, and the classes that only onnxtrain converts, to skl2onnx's tables.

    skl2onnx converts an estimator of onnxtrain at the end of a pipeline without this call. Inside VotingRegressor,
    StackingRegressor and others, it looks up the class in its table. With an entry, a classifier also has skl2onnx's
    ``zipmap`` by default. onnxtrain never calls this function, so that the user controls the tables.

    Examples
    --------
    >>> from onnxtrain.convert import register_converter
    >>> register_converter()
    """
    from skl2onnx import update_registered_converter
    from skl2onnx._supported_operators import sklearn_operator_name_map

    known = BaseEstimator.__subclasses__()
    for kind in known:
        known.extend(kind.__subclasses__())
    for kind in (*filter(is_ours, known), *ADDITIONS, *CONVERTERS):
        if kind not in sklearn_operator_name_map:
            each = {**ADDITIONS, **CONVERTERS}.get(kind, OF_OURS)
            parser, options = _parse_by_task if hasattr(kind, "predict_proba") else None, options_of_kind(kind)
            update_registered_converter(
                kind, f"Onnxtrain{kind.__name__}", each.shapes, each.convert, parser=parser, options=options
            )


def _parse_by_task(scope: Any, model: BaseEstimator, inputs: Any, custom_parsers: Any = None) -> Any:
    """Parse a class that is both, such as RandomizedSearchCV, as a classifier or as a regressor."""
    from skl2onnx._parse import _parse_sklearn_classifier, _parse_sklearn_simple_model

    parse = _parse_sklearn_classifier if is_classifier(model) else _parse_sklearn_simple_model
    return parse(scope, model, inputs, custom_parsers)
