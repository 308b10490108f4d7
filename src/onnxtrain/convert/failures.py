"""Why an estimator is not converted: the step, by its path in the pipeline, the reason and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from numbers import Number
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from onnxtrain.convert.columns import (
    by_column,
    code_of_mixed,
    columns_of,
    date_columns,
    mixed_columns,
    number_columns,
    on_raw_columns,
    text_columns,
)
from onnxtrain.convert.custom import CONVERTERS, is_ours
from onnxtrain.convert.learned import inside, is_idle, paths, predictor_of, remedy_of_exporter, remedy_of_members
from onnxtrain.convert.repairs import ADDITIONS
from onnxtrain.convert.thresholds import HISTOGRAMS
from onnxtrain.errors import ConversionError
from onnxtrain.registry import is_of_package

#: skl2onnx's errors if a column of strings reaches a numeric converter, or is mixed with numeric columns.
_MEETS_TEXT = re.compile(r"InvalidInputLength|at most 1 input\(s\)|StringTensorType")

#: skl2onnx's invitation to open an issue, which is removed: the conversion is onnxtrain's.
_INVITATION = re.compile(r"\s*(You|Please|you)( may)? (raise|fill|open) an is+ue[^.]*(\S*/issues)?\.?", re.IGNORECASE)


def reason_in_front(estimator: BaseEstimator, front: BaseEstimator) -> str:
    """Return why an estimator is not one graph, whatever its rows are: a step in front, or splits by categories.

    It is empty if neither is the reason.
    """
    known, in_front = _known_classes(), {id(step) for step in inside(front)}
    for path, step in paths(estimator):
        kind = type(step)
        by_failure = kind.__module__.startswith("sklearn.") or not known.isdisjoint(kind.__mro__)  # it has their reason
        if id(step) in in_front and not by_failure and not is_idle(step):
            return f"{path} cannot be converted to ONNX: {_without_converter(step)} {_see(step)}"
    try:
        check_no_splits_by_categories(estimator)
    except ConversionError as e:
        return str(e)
    return ""


def _known_classes() -> set[type]:
    """Return the classes with a converter, without those of boosted trees."""
    from skl2onnx._supported_operators import sklearn_operator_name_map

    return {*sklearn_operator_name_map, *CONVERTERS, *ADDITIONS}


def _without_converter(step: BaseEstimator) -> str:
    return f"there is no converter for {type(step).__name__}. Register one with onnxtrain.converter."


def _see(step: BaseEstimator) -> str:
    return f"See {documentation(step)} and https://onnx.ai/sklearn-onnx/supported.html."


def failure(estimator: BaseEstimator, error: Exception, X: Any) -> str:
    """Return the message that names the step that cannot be converted, by its path, and the reason."""
    from skl2onnx.common.exceptions import MissingConverter, MissingShapeCalculator

    steps = {id(step): (path, step) for path, step in paths(estimator)}
    path, step = steps.get(id(_failed_step(error)), (type(estimator).__name__, estimator))
    if isinstance(error, (MissingConverter, MissingShapeCalculator, KeyError)):
        known = _known_classes()
        unknown = [at for at in steps.values() if type(at[1]) not in known and not is_ours(type(at[1]))]
        path, step = unknown[0] if unknown else (path, step)
    if isinstance(error, (MissingConverter, MissingShapeCalculator)) or error.args == (type(step),):
        why = _without_converter(step)
    else:
        why = f"{type(error).__name__}: {_INVITATION.sub('', str(error)).strip()}"
        why += "" if why.endswith((".", "!")) else "."
    name = type(step).__name__ if step is estimator else path
    if isinstance(error, ConversionError):  # it has a reason and a remedy
        return f"{name} cannot be converted to ONNX: {error}"
    if type(step) in CONVERTERS and not is_of_package(CONVERTERS[type(step)].function):
        return (
            f"The converter that is registered for {type(step).__name__} failed with {why} X is a value of the "
            "graph, not an array: compute with op, such as op.MatMul(X, estimator.coef_), and do not call predict."
        )
    taken = _columns_taken(estimator, step, X)
    if "at most 1 input(s)" in why and any(hasattr(inner, "transform") for inner in inside(step) if inner is not step):
        kind = type(step).__name__
        return (
            f"{name} cannot be converted to ONNX: skl2onnx gives the members of {kind} one array, but the columns of X "
            f"have several types. Put their encoder in front of it: make_pipeline(encoder, {kind}(...))."
        )
    if _MEETS_TEXT.search(why) and (found := _columns_at_fault(taken)):
        return f"{name} takes numeric columns, but X has {found}"
    if reason := _reason(estimator, step, taken, why):
        return f"{name} cannot be converted to ONNX: {reason}"
    within = any(inner is step for inner in inside(predictor_of(estimator)))
    of_members = remedy_of_members(estimator) if within else ""
    return f"{name} cannot be converted to ONNX: {why} {remedy_of_exporter(step) or of_members or _see(step)}"


def _columns_taken(estimator: BaseEstimator, step: BaseEstimator, X: Any) -> Any:
    """Return the columns of a frame that a ColumnTransformer passes to a step inside it; X for other steps."""
    parts = _parts_with_columns(estimator, X) if by_column(X) else ()
    return next((X[names] for part, names in parts if any(inner is step for inner in inside(part))), X)


def _parts_with_columns(estimator: BaseEstimator, X: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the parts of the ColumnTransformers that take columns of the frame X, each with their names."""
    for found in on_raw_columns(estimator):
        names = getattr(found, "feature_names_in_", X.columns)
        for name, part, _ in getattr(found, "transformers_", ()):
            yield part, list(names[found._transformer_to_input_indices[name]])


def of_dates_passed_on(estimator: BaseEstimator, X: Any) -> str:
    """Return a message about dates that a ColumnTransformer passes through, with the remedy; empty if there are none.

    scikit-learn makes numbers of them if the frame is of polars.
    """
    dates = date_columns(X)
    parts = list(_parts_with_columns(estimator, X)) if dates else []
    passed = [name for part, names in parts if _is_identity(part) for name in names if name in dates]
    if not passed:
        return ""
    return (
        f"X has dates or durations in {', '.join(map(repr, passed))}, which scikit-learn passes on as numbers, for "
        "dates the days or microseconds since 1970, and ONNX cannot. Convert such a column before every fit and "
        f"predict, for example X.assign(**{{{passed[0]!r}: {dates[passed[0]]}}}), or leave it out."
    )


def _is_identity(part: Any) -> bool:
    return part == "passthrough" if isinstance(part, str) else type(part) is FunctionTransformer and part.func is None


def _reason(estimator: BaseEstimator, step: BaseEstimator, X: Any, why: str) -> str:
    """Return cause and remedy for some error messages of skl2onnx; empty for others."""
    if isinstance(step, SimpleImputer):
        return _of_imputer(step, X)
    if isinstance(step, FunctionTransformer):
        return (
            "ONNX calls no Python functions; only those of numpy with an operator are converted, such as numpy.log1p, "
            "numpy.sqrt and numpy.sin. Apply others to X before fit and predict."
        )
    if "onehot encoding not supported" in why:
        return "ONNX has no sparse matrices. Set encode='onehot-dense', which bins alike."
    if "Infrequent categories are not implemented" in why:
        return (
            "skl2onnx groups infrequent categories only in an encoder of several columns of the table itself. Leave "
            "out min_frequency and max_categories, or steps in front of the encoder."
        )
    if "drop_idx_ not implemented" in why:
        return (
            "ONNX has no OneHotEncoder that both drops categories and groups infrequent ones. Leave out drop, or "
            "min_frequency and max_categories."
        )
    kinds = {name: dtype.kind for name, dtype in X.dtypes.items()} if hasattr(X, "dtypes") else {}
    if "should have the same type" in why or "Conflicted constraint" in why:
        types = ", ".join(f"{name!r}: float" for name, kind in kinds.items() if kind in "iub")
        if types:
            return f"in ONNX, this step takes floats. Pass X.astype({{{types}}}) to fit and predict."
    parts = _parts_with_columns(estimator, X) if kinds else ()
    own = [name for part, names in parts if _has(part, step) for name in names]
    floats = [name for name, kind in kinds.items() if kind == "f" and (not own or name in own)]
    if floats and ("only supports string and int64 categories" in why or "float NaN to integer" in why):
        types = ", ".join(f"{name!r}: str" for name in floats)
        return f"ONNX encodes strings and integers, but not floats. Pass X.astype({{{types}}}) to fit and predict."
    return ""


def _has(part: Any, step: BaseEstimator) -> bool:
    """Whether `step` is a part of a ColumnTransformer or inside it."""
    return isinstance(part, BaseEstimator) and any(found is step for found in inside(part))


def _of_imputer(imputer: SimpleImputer, X: Any) -> str:
    """Return why an imputer of strings or of booleans is not converted, and the remedy; empty for other columns."""
    texts = text_columns(X)
    booleans = [name for name in texts if X[name].dropna().map(type).eq(bool).all()]
    if booleans:
        names, types = ", ".join(map(repr, booleans)), ", ".join(f"{name!r}: float" for name in booleans)
        return f"{names} has True, False and missing values as objects. Pass X.astype({{{types}}}) to fit and predict."
    if texts and imputer.strategy in ("mean", "median"):
        types = ", ".join(f"{name!r}: float" for name in texts)
        return f"{', '.join(map(repr, texts))} has numbers as strings. Pass X.astype({{{types}}}) to fit and predict."
    if mixed := mixed_columns(X):
        return f"{mixed[0]!r} has strings and numbers. {code_of_mixed(mixed[0])}"
    if texts and len(texts) < len(X.columns):
        return (
            f"it imputes numbers and strings, those in {', '.join(map(repr, texts))}, at once. Impute and encode "
            "strings in a step of their own: make_column_transformer((make_pipeline(SimpleImputer("
            f"strategy='most_frequent'), OneHotEncoder()), {texts}), remainder=SimpleImputer())."
        )
    values = dict(zip(X.columns, imputer.statistics_, strict=False)) if texts else {}
    fills = ", ".join(f"{name!r}: {str(values[name])!r}" for name in texts if name in values)
    how = f"Leave the imputer out, and pass X.fillna({{{fills}}}) to fit and predict."
    return f"ONNX has no missing strings. {how}" if fills else ""


def check_no_leaves(estimator: BaseEstimator) -> None:
    """Raise a ConversionError for a step of RandomTreesEmbedding: skl2onnx adds its columns to the model's outputs."""
    if any(isinstance(found, RandomTreesEmbedding) and found is not estimator for found in inside(estimator)):
        raise ConversionError(
            "RandomTreesEmbedding has one column for each leaf of all trees, which onnxtrain does not write."
        )


def check_no_splits_by_categories(estimator: BaseEstimator) -> None:
    """Raise a ConversionError for histogram gradient boosting on categories, which skl2onnx takes for thresholds."""
    for step in inside(estimator):
        trees = [tree for trees in getattr(step, "_predictors", ()) for tree in trees]
        if isinstance(step, HISTOGRAMS) and any(
            (tree.nodes["is_categorical"] > tree.nodes["is_leaf"]).any() for tree in trees
        ):
            name = type(step).__name__
            raise ConversionError(
                f"{name} splits on sets of categories, but the trees that skl2onnx writes compare a column with one "
                f"value. For a graph of all of it, set categorical_features=None, with an encoder in front: "
                f"make_pipeline(make_column_transformer((OrdinalEncoder(), [...]), remainder='passthrough'), {name}())."
            )


def check_encoded(estimator: BaseEstimator, X: Any) -> None:
    """Raise a ConversionError for an encoder of dates, or of columns of other types than those of its fit.

    skl2onnx would compare the strings of dates with other strings. A frame of polars gives an encoder all its columns
    as one array of objects.
    """
    for path, step in paths(estimator):
        categories = [each for each in getattr(step, "categories_", ()) if len(each)]
        if any(each.dtype.kind in "mM" or isinstance(each[0], (date, timedelta)) for each in categories):
            name = next(iter(date_columns(_columns_taken(estimator, step, X))), "date")
            raise ConversionError(
                f"{path} encodes dates or durations in {name!r}, which ONNX does not have. Convert them to strings in "
                f"fit and in predict, for example X[{name!r}].map(str)."
            )
        taken = _columns_taken(estimator, step, X)
        kinds = [dtype.kind for dtype in taken.dtypes] if by_column(taken) and _comes_first(step, estimator) else []
        if len(kinds) == len(categories) and any(
            kind in "iufb" and each.dtype == object and isinstance(each[0], Number)
            for kind, each in zip(kinds, categories, strict=True)
        ):
            raise ConversionError(
                f"{path} encodes strings and numbers of a frame that is not of pandas, which it takes as one array of "
                "objects. Give each type an encoder of its own, or fit the model and this estimator on a frame of "
                "pandas: X.to_pandas()."
            )


def _comes_first(step: BaseEstimator, estimator: BaseEstimator) -> bool:
    """Whether a step takes columns of X themselves: no other step is in front of it in a pipeline."""
    parts = [part for found in on_raw_columns(estimator) for _, part, _ in getattr(found, "transformers_", ())]
    for part in (estimator, *parts):
        while isinstance(part, Pipeline):
            part = part.steps[0][1]
        if part is step:
            return True
    return False


def _columns_at_fault(X: Any) -> str:
    """Return the non-numeric columns of X and the remedy, for the end of a message; empty if there are none."""
    if columns := text_columns(X):
        to_floats = ", ".join(f"{name!r}: float" for name in columns[:3])
        return (
            f"strings or categories in {', '.join(map(repr, columns))}. Put an encoder in front of it, such as "
            "make_column_transformer((OneHotEncoder(), [...]), remainder='passthrough'). Convert numbers stored as "
            f"strings with X.astype({{{to_floats}}})."
        )
    if decimals := columns_of(Decimal, X):
        to_floats = ", ".join(f"{name!r}: float" for name in decimals)
        return f"numbers of type Decimal in {', '.join(map(repr, decimals))}. Pass X.astype({{{to_floats}}})."
    if numbers := number_columns(X):
        return f"the dtype object for the numbers in {', '.join(map(repr, numbers))}. Pass X.infer_objects()."
    if dates := date_columns(X):
        return (
            f"dates or durations in {', '.join(map(repr, dates))}. Convert such a column to numbers, for example with "
            f"{next(iter(dates.values()))}, or leave it out."
        )
    return ""


def _failed_step(error: Exception) -> object:
    """Return the innermost estimator that skl2onnx was converting when an error was raised."""
    found, at = None, error.__traceback__
    while at is not None:
        found = getattr(at.tb_frame.f_locals.get("operator"), "raw_operator", None) or found
        at = at.tb_next
    return found


def documentation(estimator: BaseEstimator) -> str:
    """Return the address of the documentation of a scikit-learn class; for another class, its full name."""
    kind = type(estimator)
    if not kind.__module__.startswith("sklearn."):
        return f"{kind.__module__}.{kind.__name__}"
    module = ".".join(part for part in kind.__module__.split(".") if not part.startswith("_"))
    return f"https://scikit-learn.org/stable/modules/generated/{module}.{kind.__name__}.html"
