"""A fitted estimator becomes a graph, its numbers become named initializers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from sklearn.pipeline import Pipeline

from onnxtrain.convert.bind import bind
from onnxtrain.convert.binding import Binding
from onnxtrain.convert.check import Run, check, documentation
from onnxtrain.convert.columns import as_float32, by_column, feeds_of, input_types, positional
from onnxtrain.convert.converters import register_converter, share_versions
from onnxtrain.convert.faults import in_float32, options_of, repair
from onnxtrain.convert.ties import tie
from onnxtrain.errors import ConversionError, ModelError
from onnxtrain.graph import OPSET

#: Rows on which graph and estimator are compared.
_CHECKED_ROWS = 100


@dataclass(frozen=True)
class Conversion:
    """The graph of an estimator, and where each of its weights comes from."""

    onnx: onnx.ModelProto
    bindings: tuple[Binding, ...]


def convert(
    estimator: Any,
    X: Any,
    *,
    rewrite: Callable[[onnx.ModelProto], onnx.ModelProto] | None = None,
    run: Run | None = None,
) -> Conversion:
    """Return a fitted estimator as an ONNX graph, with the origin of its weights.

    Parameters
    ----------
    estimator : fitted scikit-learn estimator or pipeline
    X : array or DataFrame of shape (n_samples, n_features)
        Gives the types of the inputs, and the rows for the comparison.
    rewrite : callable, optional
        :func:`onnxtrain.rewrite.rewrite_model`; without it the numbers of ai.onnx.ml
        operators stay attributes, and have no binding.
    run : callable, optional
        ``run(onx, feeds) -> outputs``; with it the graph is compared with the estimator.

    Returns
    -------
    Conversion
        The model computes in float32. Its initializers are called like the attributes
        they come from: ``coef``, ``standardscaler.mean``, ``mlp.coefs_0``.

    Raises
    ------
    ConversionError
        There is no converter, or its graph gives other results than the estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from onnxtrain.rewrite import rewrite_model
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    >>> [(b.name, b.shape) for b in convert(model, X, rewrite=rewrite_model).bindings][-1]
    ('logisticregression.intercept', (3,))
    """
    if not hasattr(X, "columns") and np.ndim(X) != 2:
        raise ConversionError(
            f"The graph of {type(estimator).__name__} takes X of shape (n_samples, n_features), numbers or a "
            f"DataFrame; got {type(X).__name__} of shape {np.shape(X)}. Encode text, dictionaries and labels before."
        )

    if not by_column(X):
        estimator = positional(estimator)

    def graph_of(fitted: Any) -> onnx.ModelProto:
        onx = repair(fitted, _to_onnx(fitted, X))
        try:
            return onx if rewrite is None else tie(fitted, in_float32(rewrite(onx)))
        except ModelError as e:
            raise ConversionError(
                f"The graph of {type(fitted).__name__} is not one that can be trained: {e} See {documentation(fitted)}."
            ) from e

    onx, bindings = bind(estimator, graph_of(estimator), graph_of)
    if run is not None:
        compare(estimator, onx, X, run)
    return Conversion(onx, bindings)


def compare(estimator: Any, onx: onnx.ModelProto, X: Any, run: Run) -> None:
    """Compare a graph with the estimator on some rows of `X`; see :func:`onnxtrain.convert.check.check`."""
    rows = _some_rows(X)
    if not by_column(X):
        estimator = positional(estimator)
    check(estimator, onx, as_float32(rows), feeds_of(onx, rows), run)


def _to_onnx(estimator: Any, X: Any) -> onnx.ModelProto:
    from skl2onnx import to_onnx  # 1.3 s

    register_converter()
    share_versions()
    estimator = _without_passthrough(estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return to_onnx(
                estimator,
                initial_types=input_types(X),
                options=options_of(estimator),
                target_opset={"": OPSET, "ai.onnx.ml": 3},
                model_optim=False,
            )
        except Exception as e:  # converters raise whatever they meet
            raise ConversionError(
                f"{type(estimator).__name__} cannot be converted to ONNX: {type(e).__name__}: {str(e).strip()} "
                f"See {documentation(estimator)} and https://onnx.ai/sklearn-onnx/supported.html."
            ) from e


def _without_passthrough(estimator: Any) -> Any:
    """Return a pipeline without the steps that do nothing, which skl2onnx does not know."""
    if not isinstance(estimator, Pipeline):
        return estimator
    steps = [(n, _without_passthrough(s)) for n, s in estimator.steps if s is not None and not isinstance(s, str)]
    return Pipeline(steps)


def _some_rows(X: Any) -> Any:
    chosen = np.unique(np.linspace(0, np.shape(X)[0] - 1, _CHECKED_ROWS).astype(int))
    if hasattr(X, "toarray"):  # sparse
        return X[chosen].toarray()
    return X.iloc[chosen] if hasattr(X, "iloc") else np.asarray(X)[chosen]
