"""Networks of layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, numpy_helper
from sklearn.neural_network import MLPClassifier, MLPRegressor

from onnxtrain.convert.repairs.table import Container, Converter, repair


@repair(MLPClassifier, MLPRegressor)
def arrays_in_one_piece(convert: Converter, scope: Any, operator: Any, container: Any) -> None:
    """Write each array of weights in one piece."""
    convert(scope, operator, _WritesWhole(container))


class _WritesWhole(Container):
    """A container that takes arrays: entry by entry takes longer than the rest of the conversion of a network."""

    def add_initializer(self, name: str, onnx_type: int, shape: Any, content: Any) -> Any:
        """Add an initializer of the type asked for."""
        if isinstance(content, np.ndarray) and content.dtype.kind == "f":
            array = content.astype(helper.tensor_dtype_to_np_dtype(onnx_type)).reshape(shape)
            content = numpy_helper.from_array(array, name)
        return self._container.add_initializer(name, onnx_type, shape, content)
