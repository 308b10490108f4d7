"""Training on a Dask cluster, on rows that are distributed over several machines.

:class:`OrtGradientRegressor` and :class:`OrtGradientClassifier` take Dask arrays and frames. The rows stay on the
workers. The client holds the weights and the optimizer, and makes every decision.
"""

import importlib.util

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
