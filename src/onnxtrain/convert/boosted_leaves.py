"""The leaf values of LightGBM, XGBoost and CatBoost: their place in the library, and their order in its exported file.

The order is read off a second export, of a copy whose leaf values are 1, 2, 3 and so on.
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from onnxtrain import graph
from onnxtrain.convert.boosted import exported
from onnxtrain.convert.learned import Binding, Path, find_boosted, get, library_of, n_columns_of, with_all_digits
from onnxtrain.errors import ExportError
from onnxtrain.rewrite import rewritten

#: float32 represents all integers up to this one.
_MOST_VALUES = 2**24


@dataclass(frozen=True)
class BoostedBinding(Binding):
    """The leaf values of an estimator of LightGBM, XGBoost or CatBoost.

    Attributes
    ----------
    trees : Path
        The estimator; `path` is empty, because no attribute holds the values.
    """

    trees: Path = ()

    def write(self, estimator: BaseEstimator, weight: np.ndarray) -> None:
        """Replace the leaf values in place.

        Raises
        ------
        ExportError
            The file that the library exports does not hold the leaf values as the library does.
        """
        trees = get(estimator, self.trees)
        values, place = values_of(trees), _places(trees, weight.shape)
        values[place] = with_all_digits(weight, values[place])
        _LIBRARIES[_library(trees)].put(trees, values)
        if not np.allclose(_in_file(trees), weight, rtol=1e-5, atol=1e-30):
            raise _not_written(trees, "its exporter writes other values than the library holds")


def bind_boosted(estimator: BaseEstimator, arrays: Mapping[str, np.ndarray]) -> Iterator[BoostedBinding]:
    """Yield the binding of each initializer to the first estimator of boosted trees that has all of its values."""
    found = {path: values_of(get(estimator, path)).astype(np.float32) for path in find_boosted(estimator)}
    for name, array in arrays.items():
        trees = next((path for path, values in found.items() if np.isin(array, values).all()), None)
        if trees is not None:
            del found[trees]
            yield BoostedBinding(name, (), "leaf", array.shape, trees=trees)


def told_apart(estimator: BaseEstimator) -> BaseEstimator:
    """Return an estimator unchanged, or a copy in which no two estimators of boosted trees have the same values."""
    found = {path: values_of(get(estimator, path)) for path in find_boosted(estimator)}
    if len({values.tobytes() for values in found.values()}) == len(found):
        return estimator
    marked = copy.deepcopy(estimator)
    for i, (path, values) in enumerate(found.items()):
        trees = get(marked, path)
        _LIBRARIES[_library(trees)].put(trees, values * (1 + i / 1024) + i)
    return marked


def values_of(trees: Any) -> np.ndarray:
    """Return all leaf values (n,) of a fitted estimator of boosted trees, float64, in the order of its library."""
    return np.array(_LIBRARIES[_library(trees)].get(trees), dtype=np.float64)


def _places(trees: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return, for each value of the exported initializer of the given shape, its index in the library's order."""
    n = len(values_of(trees))
    if n >= _MOST_VALUES:
        raise _not_written(trees, f"it has {n} leaf values, but the maximum is {_MOST_VALUES - 1}")
    marked = copy.deepcopy(trees)
    _LIBRARIES[_library(trees)].put(marked, np.arange(1.0, n + 1))
    marks = _in_file(marked)
    place = marks.astype(np.int64) - 1
    each_once = len(np.unique(place)) == place.size and np.all((place >= 0) & (place < n))
    if marks.shape != shape or not each_once or not np.array_equal(place + 1, marks):
        raise _not_written(trees, "its exporter does not write each leaf value of the library once")
    return place


def _in_file(trees: Any) -> np.ndarray:
    """Return the leaf values in the file that the library exports."""
    model = rewritten(graph.load(graph.without_maps(exported(trees, n_columns_of(trees)))))
    found = [x for name, x in model.graph.initializers.items() if name.startswith("leaf_values")]
    if len(found) != 1 or found[0].const_value is None:
        raise _not_written(trees, f"its exported file has {len(found)} tables of leaf values instead of 1")
    return found[0].const_value.numpy()


def _not_written(trees: Any, why: str) -> ExportError:
    return ExportError(f"The leaves of {type(trees).__name__} cannot be written back: {why}. Use get_trained_onnx().")


def _library(trees: Any) -> str:
    return str(library_of(type(trees)))


# ------------------------------------------------------------- the libraries


def _leaves_of_lightgbm(estimator: Any) -> list[tuple[int, int]]:
    """Return the tree and the number of each leaf."""
    trees = estimator.booster_.dump_model(num_iteration=-1)["tree_info"]
    return [(i, leaf) for i, tree in enumerate(trees) for leaf in range(tree["num_leaves"])]


def _get_lightgbm(estimator: Any) -> list[float]:
    booster = estimator.booster_
    return [booster.get_leaf_output(*leaf) for leaf in _leaves_of_lightgbm(estimator)]


def _put_lightgbm(estimator: Any, values: np.ndarray) -> None:
    booster = estimator.booster_
    for leaf, value in zip(_leaves_of_lightgbm(estimator), values.tolist(), strict=True):
        booster.set_leaf_output(*leaf, value)


def _json_of_xgboost(estimator: Any) -> dict[str, Any]:
    return json.loads(estimator.get_booster().save_raw("json"))


def _leaves_of_xgboost(model: dict[str, Any]) -> list[tuple[list[float], int]]:
    """Return, for each leaf, the list that holds its value, and the index in it."""
    trees = model["learner"]["gradient_booster"]["model"]["trees"]
    return [
        (tree["split_conditions"], node)
        for tree in trees
        for node, left in enumerate(tree["left_children"])
        if left < 0
    ]


def _get_xgboost(estimator: Any) -> list[float]:
    return [values[node] for values, node in _leaves_of_xgboost(_json_of_xgboost(estimator))]


def _put_xgboost(estimator: Any, values: np.ndarray) -> None:
    model, booster = _json_of_xgboost(estimator), estimator.get_booster()
    for (held, node), value in zip(_leaves_of_xgboost(model), values.tolist(), strict=True):
        held[node] = value
    config = booster.save_config()  # the file of a model lacks settings such as the device
    booster.load_model(bytearray(json.dumps(model), "utf-8"))
    booster.load_config(config)


def _put_catboost(estimator: Any, values: np.ndarray) -> None:
    with tempfile.TemporaryDirectory() as folder:  # CatBoost modifies fitted and read models, but no copied ones
        path = os.path.join(folder, "model.cbm")
        estimator.save_model(path)
        with open(path, "rb") as file:
            estimator.load_model(stream=file)
    estimator.set_leaf_values(values)


@dataclass(frozen=True)
class _Library:
    """How a library returns and takes the leaf values of a fitted estimator."""

    get: Callable[[Any], Any]
    put: Callable[[Any, np.ndarray], None]


_LIBRARIES = {
    "lightgbm": _Library(_get_lightgbm, _put_lightgbm),
    "xgboost": _Library(_get_xgboost, _put_xgboost),
    "catboost": _Library(lambda estimator: estimator.get_leaf_values(), _put_catboost),
}
