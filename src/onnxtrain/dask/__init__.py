"""Training on a Dask cluster, on rows that are distributed over several machines.

:class:`OrtGradientRegressor` and :class:`OrtGradientClassifier` take Dask arrays and frames. The rows stay on the
workers. The client holds the weights and the optimizer, and makes every decision.
"""

import importlib.util
from typing import TYPE_CHECKING

from onnxtrain.attributes import of_module
from onnxtrain.errors import DependencyError

for _name in ("dask", "distributed"):
    if importlib.util.find_spec(_name) is None:
        raise DependencyError(
            f"onnxtrain.dask needs {_name}, which is not installed. Install the extra dask of onnxtrain, or run "
            'pip install "dask[array,dataframe]" distributed.',
            name=_name,
        )

from onnxtrain.dask.estimators import OrtGradientClassifier, OrtGradientRegressor  # noqa: E402

__all__ = ["OrtGradientClassifier", "OrtGradientRegressor"]

if not TYPE_CHECKING:
    _client = dict.fromkeys(("Client", "LocalCluster"), "Use the one of Dask: distributed.Client(...).")
    __getattr__ = of_module(__name__, __all__, _client)
