"""Validation of the parameter `estimator` before it is read: other objects are refused with a remedy."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from onnxtrain.convert.learned import is_estimator
from onnxtrain.errors import ParameterError
from onnxtrain.estimators.export_code import LINES, how_to_export
from onnxtrain.estimators.protocols import ArrayLike, Model, is_onnx


def check_source(estimator: Model, X: ArrayLike | None = None, *, classifies: bool | None = None) -> None:
    """Raise a ParameterError if `estimator` cannot be trained, or predicts another kind of target.

    For a model of another library, the message shows how to export it, for rows like `X`.
    """
    if is_onnx(estimator):
        return
    _check_not_ours(estimator)
    if isinstance(estimator, (ColumnTransformer, Pipeline)):
        _check_steps(estimator)
    if isinstance(estimator, Pipeline):
        _check_last_step(estimator, "Classifier" if classifies else "Regressor")
    if is_estimator(estimator) and hasattr(estimator, "fit"):
        _check_members(estimator)
        if classifies is not None:
            _check_kind(estimator, classifies=classifies)
        return
    name = type(estimator).__name__
    if isinstance(estimator, type):
        network = any(kind.__module__.partition(".")[0] in LINES for kind in estimator.__mro__)
        remedy = (
            "Create a network, export it to ONNX, and pass the file." if network else f"Pass {estimator.__name__}()."
        )
        raise ParameterError(f"estimator must be an instance, got the class {estimator.__name__}. {remedy}")
    if name in ("GraphProto", "FunctionProto", "InferenceSession"):
        raise ParameterError(f"estimator must be a whole model, got {name}. Pass the onnx.ModelProto, or its file.")
    raise ParameterError(
        "estimator must be a scikit-learn estimator, an onnx.ModelProto, its bytes or a path, "
        f"got {name}.{_remedy(estimator, X, 'Classifier' if classifies else 'Regressor')}"
    )


def _check_not_ours(model: Any) -> None:
    """Raise a ParameterError for an estimator of onnxtrain, a part of one, or a search around one."""
    name = type(model).__name__
    inner = getattr(model, "estimator", None)
    inner = inner.steps[-1][1] if isinstance(inner, Pipeline) and inner.steps else inner
    if not _is_ours(model):
        if hasattr(model, "refit") and _is_ours(inner):
            ours = type(inner).__name__
            raise ParameterError(
                f"estimator is a {name} around an {ours}. Put the search outside: {name}({ours}(...), ...)."
            )
        return
    if name == "LoRA":
        raise ParameterError("estimator must be a model, got LoRA(). Pass it as weights_to_train=LoRA(...).")
    if not hasattr(model, "fit"):
        found = "weights" if isinstance(model, Mapping) else name
        raise ParameterError(
            f"estimator must be a model, got {found} of an estimator. Pass what its get_trained_onnx() or "
            "to_sklearn() returns."
        )
    raise ParameterError(
        f"estimator is itself an {name}. Pass its model, which get_trained_onnx() or to_sklearn() returns, or "
        "continue its training with warm_start=True or partial_fit."
    )


def _is_ours(model: object) -> bool:
    """Whether a model is an estimator of onnxtrain, or of a user's subclass, or one of their parameter values."""
    ours = (kind.__module__.startswith("onnxtrain.estimators") for kind in type(model).__mro__)
    return not isinstance(model, type) and any(ours)


def _check_steps(pipeline: ColumnTransformer | Pipeline) -> None:
    """Raise a ParameterError for a step without a name, or that is a class or a list; also for the steps inside."""
    of_columns = isinstance(pipeline, ColumnTransformer)
    steps = pipeline.transformers if isinstance(pipeline, ColumnTransformer) else pipeline.steps
    parts = "a name, a step and its columns" if of_columns else "a name and a step"
    for named in steps if isinstance(steps, (list, tuple)) else [steps]:
        if not isinstance(named, (tuple, list)) or len(named) != 2 + of_columns:
            found = type(named).__name__ + (f" of {len(named)}" if isinstance(named, (tuple, list)) else "")
            raise ParameterError(
                f"The steps of a {type(pipeline).__name__} are tuples of {parts}, got {found}. make_pipeline(...) and "
                "make_column_transformer(...) name them."
            )
        step = named[1]
        if isinstance(step, type):
            where = "of the pipeline " if isinstance(pipeline, Pipeline) else "of the ColumnTransformer "
            raise ParameterError(
                f"A step {where}must be an instance, got the class {step.__name__}. Pass {step.__name__}()."
            )
        if isinstance(step, (int, float, Mapping)) and isinstance(pipeline, Pipeline):
            raise ParameterError(
                f"A step of the pipeline is {step!r:.80}, and not an estimator. Pass parameters to the steps or to the "
                "estimator around the pipeline, by name."
            )
        if isinstance(step, list) and isinstance(pipeline, Pipeline):
            raise ParameterError("A step of the pipeline is a list. Pass the steps one by one: make_pipeline(*steps).")
        if isinstance(step, (ColumnTransformer, Pipeline)):
            _check_steps(step)


def _check_last_step(pipeline: Pipeline, kind: str) -> None:
    """Raise a ParameterError if the last step of a pipeline is an ONNX model, or no estimator."""
    if not pipeline.steps:
        raise ParameterError(f"The pipeline has no steps. Put a {kind.lower()} into it, which is trained.")
    *steps, last = (step for _, step in pipeline.steps)
    while isinstance(last, Pipeline):
        steps, last = [*steps, *(step for _, step in last.steps[:-1])], last.steps[-1][1]
    if last is None or (isinstance(last, str) and last in ("passthrough", "drop")):
        raise ParameterError(
            f"The last step of the pipeline is {last!r}. Put a {kind.lower()} there, which is trained."
        )
    if not is_onnx(last):
        return
    found, model = (repr(str(last)),) * 2 if isinstance(last, (str, os.PathLike)) else ("an ONNX model", "onx")
    code = ", ".join([*(" ".join(repr(step).split()) for step in steps), f"OrtGradient{kind}({model})"])
    raise ParameterError(
        f"The last step of the pipeline is {found}, which is no estimator. Put the pipeline outside, and pass the ONNX "
        f"model: make_pipeline({code}). OrtGradient{kind} takes its other parameters there."
    )


def _check_members(estimator: Any) -> None:
    """Raise a ParameterError if the predictions come from an onnxtrain estimator inside, which would stay frozen."""
    kind = type(estimator).__name__
    _check_parts(estimator)
    for name, member in _members(estimator):
        if not _is_ours(member):
            _check_members(member)
            continue
        ours = type(member).__name__
        remedy = (
            f"An ONNX model is no part of a model: put the {kind} outside, {kind}(...) with the {ours} as its {name!r}."
            if is_onnx(member.estimator)
            else f"Put there the estimator that the {ours} was made from, or what its to_sklearn() returns, and give "
            "its parameters to the one outside."
        )
        raise ParameterError(f"{name!r} of the {kind} is an {ours}, whose weights would not be trained. {remedy}")


#: Parameters of ensembles that hold a single estimator, and the strings that may stand in place of one.
_SINGLE = ("estimator", "final_estimator", "regressor")
_WORDS = ("drop", "passthrough", "prefit")


def _check_parts(ensemble: Any) -> None:
    """Raise a ParameterError if an ensemble has a class, a string or None in place of an estimator."""
    named = getattr(ensemble, "estimators", ())
    parts = [part for part in named if isinstance(part, tuple) and len(part) == 2] if isinstance(named, list) else []
    required = [name for name, p in inspect.signature(type(ensemble)).parameters.items() if p.default is p.empty]
    single = {name: getattr(ensemble, name, None) for name in _SINGLE}
    parts += [(name, part) for name, part in single.items() if name in required or part is not None]
    for name, part in parts:
        if isinstance(part, type) or part is None or (isinstance(part, str) and part not in _WORDS):
            found = f"the class {part.__name__}" if isinstance(part, type) else repr(part)
            made = f"{part.__name__}()" if isinstance(part, type) else "Ridge()"
            raise ParameterError(
                f"{name!r} of the {type(ensemble).__name__} must be an estimator, got {found}. Pass it as an object, "
                f"such as {made}."
            )


def _members(estimator: Any) -> list[tuple[str, Any]]:
    """Return the estimators inside an estimator from which its predictions come, by name."""
    if isinstance(estimator, Pipeline):
        return estimator.steps[-1:]
    found: list[tuple[str, Any]] = []
    for name, value in vars(estimator).items():
        named = value if isinstance(value, (list, tuple)) else [(name, value)]
        found += [(p[0], p[1]) for p in named if isinstance(p, tuple) and len(p) == 2 and is_estimator(p[1])]
    return found


def _remedy(model: Any, X: Any, kind: str) -> str:
    """Return the end of a message about an object that is no model."""
    if isinstance(model, Mapping):
        if not any(hasattr(value, "shape") or isinstance(value, Mapping) for value in model.values()):
            return " Of a search, pass the estimator with the best parameters: search.best_estimator_."
        return " Weights have no graph. Load them into their module, and export that with torch.onnx.export."
    if isinstance(model, memoryview):
        return " Pass bytes(model)."
    if isinstance(model, (list, tuple)) and model and all(is_onnx(part) for part in model):
        return " Pass one of them. A file and its external data are one model, given by the path of the .onnx file."
    if isinstance(model, (list, tuple)):
        return " Combine steps into an estimator with sklearn.pipeline.Pipeline or make_pipeline."
    if inspect.ismethod(model):
        return f" Pass the {type(model.__self__).__name__} itself, without .{model.__name__}."
    if inspect.isfunction(model):
        return f" Pass the model that it returns: estimator={model.__name__}()."
    if hasattr(model, "shape"):  # rows; networks of Keras and transformers have a dtype, too
        return f" Pass rows to fit: OrtGradient{kind}().fit(X, y)."
    if hasattr(model, "model_proto"):  # an ONNXProgram of PyTorch
        return " Pass its attribute model_proto."
    if type(model).__module__.partition(".")[0] == "onnx_ir":
        return " Pass onnx_ir.to_proto(model)."
    if type(model).__module__.partition(".")[0] == "statsmodels":
        return (
            " Models of statsmodels are not converted. Pass the same model of scikit-learn, such as LinearRegression() "
            "for OLS, PoissonRegressor() for a GLM of counts or LogisticRegression() for Logit, and the rows without a "
            "constant."
        )
    if hasattr(model, "read"):
        return " Pass the content of the file, the bytes that read() returns."
    return how_to_export(model, X)


def _check_kind(estimator: Any, *, classifies: bool) -> None:
    """Raise a ParameterError if a scikit-learn estimator does not predict the kind of target that is trained."""
    kind = get_tags(estimator).estimator_type
    if kind is None and not hasattr(estimator, "predict"):
        kind = "transformer"
    if kind in ("clusterer", "density_estimator", "transformer"):
        kind = kind.replace("_", " ")
        verb = "ends with" if isinstance(estimator, Pipeline) else "is"
        raise ParameterError(
            f"{type(estimator).__name__} {verb} a {kind}, which learns without y, so there is no loss to train it "
            f"with. Pass a regressor or a classifier; a {kind} may precede it in a pipeline."
        )
    if kind == ("regressor" if classifies else "classifier"):
        kind, gives = ("regressor", "numbers") if classifies else ("classifier", "classes")
        raise ParameterError(
            f"{type(estimator).__name__} is a {kind}, which predicts {gives}. Train it with "
            f"OrtGradient{kind.capitalize()}, or pass a {'classifier' if classifies else 'regressor'} here. "
            "To train an output as it is, name it with output=."
        )
