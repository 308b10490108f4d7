"""The modules that the estimators use, each imported at its first use: ``deferred.fit_data.at_hand(X)``.

They import onnx, onnxruntime, skl2onnx and most of scikit-learn, which takes longer than
``import sklearn.neural_network``. Constructing, cloning or printing an estimator needs none of them. So only the
estimator classes use them through this module. These modules import each other as usual and never import the estimator
classes; ``.importlinter`` enforces this.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxtrain import losses
    from onnxtrain.convert import custom, learned
    from onnxtrain.estimators import (
        fit,
        fit_data,
        given_labels,
        graphs,
        labels,
        positions,
        remedies,
        reports,
        sample_weights,
        settings,
        step_files,
        summary,
        targets,
        trained,
        unsuitable_losses,
        validation,
    )
    from onnxtrain.losses import link

__all__ = [
    "custom",
    "fit",
    "fit_data",
    "given_labels",
    "graphs",
    "labels",
    "learned",
    "link",
    "losses",
    "positions",
    "remedies",
    "reports",
    "sample_weights",
    "settings",
    "step_files",
    "summary",
    "targets",
    "trained",
    "unsuitable_losses",
    "validation",
]

#: The packages of the modules outside ``onnxtrain.estimators``.
_PACKAGES = {
    "link": "onnxtrain.losses",
    "losses": "onnxtrain",
    "custom": "onnxtrain.convert",
    "learned": "onnxtrain.convert",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> ModuleType:
        """Import a module at its first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = module = import_module(f"{_PACKAGES.get(name, 'onnxtrain.estimators')}.{name}")
        return module
