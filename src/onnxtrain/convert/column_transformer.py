"""The parser of ColumnTransformer for skl2onnx, also for one that follows other steps of a pipeline.

skl2onnx needs the widths and names of the columns, which are known for the inputs of a graph only. It joins the results
of all transformers, also strings and numbers, and ignores the order of columns that are all columns of a matrix.
"""

from __future__ import annotations

import bisect
import copy
import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer


def parse(scope: Any, model: ColumnTransformer, inputs: Any, custom_parsers: Any = None) -> Any:
    """Return the results of a ColumnTransformer: one matrix or, if only some are strings, those of each transformer.

    The arguments are those of a parser of skl2onnx.
    """
    from skl2onnx._parse import sklearn_parsers_map
    from skl2onnx.common.data_types import StringTensorType

    has_names = all(any(x is known for known in scope.input_variables) for x in inputs)
    if len(inputs) == 1:
        _set_width(inputs[0], model.n_features_in_)
    results = []
    for name, step, columns in model.transformers_:
        given, positions = inputs, list(map(int, model._transformer_to_input_indices[name]))
        if len(inputs) == 1 or not has_names:
            given, columns = _selected(scope, inputs, positions), list(range(len(positions)))
        elif isinstance(columns, slice):  # of names, which skl2onnx does not know
            columns = positions
        alone = copy.copy(model)
        alone.transformers_ = [(name, step, columns)]
        for result in sklearn_parsers_map[ColumnTransformer](scope, alone, given, custom_parsers=custom_parsers):
            taken = model.output_indices_[name]
            _set_width(result, taken.stop - taken.start)
            results.append(result)
    strings = [isinstance(result.type, StringTensorType) for result in results]
    if len(results) < 2 or any(strings) > all(strings):
        return results
    joined = scope.declare_local_operator("SklearnConcat")
    joined.inputs = results
    joined.outputs.append(scope.declare_local_variable("transformed_column", type(results[0].type)([None, None])))
    return joined.outputs


def _selected(scope: Any, inputs: Any, positions: Sequence[int]) -> list[Any]:
    """Return the columns at some positions, in this order: a matrix for those that follow each other in one input."""
    ends = np.cumsum([x.type.shape[1] for x in inputs]).tolist()
    selected = []
    for i, group in itertools.groupby(positions, partial(bisect.bisect_right, ends)):
        matrix, first = inputs[i], ends[i] - inputs[i].type.shape[1]
        columns = [position - first for position in group]
        if columns != list(range(matrix.type.shape[1])):
            extractor = scope.declare_local_operator("SklearnArrayFeatureExtractor")
            extractor.inputs, extractor.column_indices = [matrix], columns
            matrix = scope.declare_local_variable("extracted_columns", type(matrix.type)([None, len(columns)]))
            extractor.outputs.append(matrix)
        selected.append(matrix)
    return selected


def _set_width(value: Any, width: int) -> None:
    """Set the number of columns of a value; its type may be an object that others share."""
    value.set_type(type(value.type)([None, width]))


#: The parsers that replace those of skl2onnx, by class.
PARSERS = {ColumnTransformer: parse}
