"""Fine-tune scikit-learn and ONNX models with onnxruntime.

The public names are imported at their first use, so ``import onnxtrain`` loads neither onnxruntime nor skl2onnx.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
from types import ModuleType
from typing import TYPE_CHECKING, Any

from onnxtrain.errors import DependencyError, unknown_name

if TYPE_CHECKING:
    from onnxtrain import errors, optim, rows, testing
    from onnxtrain.autodiff import gradient, gradient_rule, no_gradient
    from onnxtrain.autodiff.registry import differentiable_ops
    from onnxtrain.cache import cache_info, clear_caches, limit_caches
    from onnxtrain.convert import converter
    from onnxtrain.convert.head import with_new_head
    from onnxtrain.estimators import LossCurveDisplay, OrtGradientClassifier, OrtGradientRegressor, WeightsDisplay
    from onnxtrain.estimators.display import LiveLossCurve
    from onnxtrain.estimators.graphs import plot_graph
    from onnxtrain.estimators.lora import LoRA
    from onnxtrain.estimators.protocols import Inputs
    from onnxtrain.estimators.saving import load, save
    from onnxtrain.estimators.summary import trainable_weights
    from onnxtrain.grad_helper import DerivativeOptions, onnx_derivative, random_feed
    from onnxtrain.loss_helper import add_loss_output, get_train_initializer, penalty_loss_onnx
    from onnxtrain.losses import loss
    from onnxtrain.ortgradient import OrtGradientForwardBackward, OrtGradientForwardBackwardFunction
    from onnxtrain.training.portable import average_states
    from onnxtrain.versions import show_versions

__version__ = "0.1.0"

#: The module that defines each public name; for a public module, the module itself.
_HOMES = {
    "DerivativeOptions": "onnxtrain.grad_helper",
    "Inputs": "onnxtrain.estimators.protocols",
    "LiveLossCurve": "onnxtrain.estimators.display",
    "LoRA": "onnxtrain.estimators.lora",
    "LossCurveDisplay": "onnxtrain.estimators",
    "OrtGradientClassifier": "onnxtrain.estimators",
    "OrtGradientForwardBackward": "onnxtrain.ortgradient",
    "OrtGradientForwardBackwardFunction": "onnxtrain.ortgradient",
    "OrtGradientRegressor": "onnxtrain.estimators",
    "WeightsDisplay": "onnxtrain.estimators",
    "add_loss_output": "onnxtrain.loss_helper",
    "average_states": "onnxtrain.training.portable",
    "cache_info": "onnxtrain.cache",
    "clear_caches": "onnxtrain.cache",
    "converter": "onnxtrain.convert",
    "differentiable_ops": "onnxtrain.autodiff.registry",
    "errors": "onnxtrain.errors",
    "get_train_initializer": "onnxtrain.loss_helper",
    "gradient": "onnxtrain.autodiff",
    "gradient_rule": "onnxtrain.autodiff",
    "limit_caches": "onnxtrain.cache",
    "load": "onnxtrain.estimators.saving",
    "loss": "onnxtrain.losses",
    "no_gradient": "onnxtrain.autodiff",
    "onnx_derivative": "onnxtrain.grad_helper",
    "optim": "onnxtrain.optim",
    "penalty_loss_onnx": "onnxtrain.loss_helper",
    "plot_graph": "onnxtrain.estimators.graphs",
    "random_feed": "onnxtrain.grad_helper",
    "rows": "onnxtrain.rows",
    "save": "onnxtrain.estimators.saving",
    "show_versions": "onnxtrain.versions",
    "testing": "onnxtrain.testing",
    "trainable_weights": "onnxtrain.estimators.summary",
    "with_new_head": "onnxtrain.convert.head",
}

#: Names that other libraries give to functions and modules, and what to use instead.
_REMEDIES = {
    **dict.fromkeys(("Callback", "callbacks"), "Pass a function to fit: fit(X, y, callback=...)"),
    **dict.fromkeys(
        ("DataLoader", "Dataset"), "Pass arrays to fit, or rows in parts: onnxtrain.rows.from_files(files, read)"
    ),
    **dict.fromkeys(
        ("LearningRateScheduler", "lr_scheduler"), "Set learning_rate, for example onnxtrain.optim.Cosine(0.1)"
    ),
    **dict.fromkeys(
        ("Classifier", "NeuralNetClassifier"), "Use OrtGradientClassifier(model), with an ONNX model or an estimator"
    ),
    **dict.fromkeys(
        ("Model", "Module", "NeuralNetRegressor", "OrtGradientEstimator", "Regressor"),
        "Use OrtGradientRegressor(model) or OrtGradientClassifier(model), with an ONNX model or an estimator",
    ),
    **dict.fromkeys(("ModelCheckpoint", "checkpoint"), "Pass a file to fit: fit(X, y, checkpoint=path)"),
    **dict.fromkeys(
        ("GridSearchCV", "RandomizedSearchCV", "cross_val_score", "train_test_split"),
        "Import it from sklearn.model_selection",
    ),
    **dict.fromkeys(("Pipeline", "make_pipeline"), "Import it from sklearn.pipeline"),
    "ReduceLROnPlateau": "Set learning_rate='adaptive'",
    "datasets": "Use sklearn.datasets",
    "device": "Set device, a parameter of the estimators",
    "evaluate": "Use score(X, y) of a fitted estimator",
    "export": "Use get_trained_onnx(path=...) of a fitted estimator",
    "from_sklearn": "Use get_trained_onnx() of a fitted estimator",
    "metrics": "Use sklearn.metrics",
    "predict": "Use predict(X) of a fitted estimator",
    **dict.fromkeys(
        ("manual_seed", "seed", "seed_everything", "set_seed"), "Set random_state, a parameter of the estimators"
    ),
    "set_device": "Set device, a parameter of the estimators",
    "to_onnx": "Use get_trained_onnx() of a fitted estimator",
    "to_sklearn": "Use to_sklearn() of a fitted estimator",
    "version": "Use __version__ or show_versions()",
    **dict.fromkeys(
        ("Trainer", "compile", "fine_tune", "finetune", "fit", "train"),
        "Use fit(X, y) of OrtGradientRegressor(model) or OrtGradientClassifier(model)",
    ),
}

__all__ = [
    "DerivativeOptions",
    "Inputs",
    "LiveLossCurve",
    "LoRA",
    "LossCurveDisplay",
    "OrtGradientClassifier",
    "OrtGradientForwardBackward",
    "OrtGradientForwardBackwardFunction",
    "OrtGradientRegressor",
    "WeightsDisplay",
    "add_loss_output",
    "average_states",
    "cache_info",
    "clear_caches",
    "converter",
    "differentiable_ops",
    "errors",
    "get_train_initializer",
    "gradient",
    "gradient_rule",
    "limit_caches",
    "load",
    "loss",
    "no_gradient",
    "onnx_derivative",
    "optim",
    "penalty_loss_onnx",
    "plot_graph",
    "random_feed",
    "rows",
    "save",
    "show_versions",
    "testing",
    "trainable_weights",
    "with_new_head",
]


def _require_onnxruntime() -> None:
    """Raise if no flavour of onnxruntime is installed, without importing anything.

    Uninstalling one flavour over another can leave a folder without code.
    """
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        raise DependencyError(
            "onnxtrain requires onnxruntime, but no distribution of it is installed. Install exactly one: "
            'pip install onnxruntime (any machine), "onnxruntime-gpu[cuda,cudnn]" (CUDA), onnxruntime with the plug-in '
            "onnxruntime-ep-webgpu (other GPUs), onnxruntime-training-cpu or onnxruntime-training (with their own "
            "gradients, for older versions of Python).",
            name="onnxruntime",
        )


_require_onnxruntime()


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _HOMES:
        raise unknown_name(__name__, name, _hint(name))
    home: ModuleType = importlib.import_module(_HOMES[name])
    value = home if home.__name__ == f"{__name__}.{name}" else getattr(home, name)
    if _HOMES[name] == "onnxtrain.cache":  # the check of arguments is cached, so it is in a higher layer
        value = importlib.import_module(f"{__name__}.arguments").lists_its_arguments(value)
    globals()[name] = value
    return value


def _hint(name: str) -> str:
    """Return the end of a message about an unknown name: the public module that has it, or a similar name."""
    if name[:1].isupper():  # only classes: for a module, Python may be in the middle of importing it
        for module in ("onnxtrain.optim", "onnxtrain.errors", "onnxtrain.rows"):
            if name in importlib.import_module(module).__all__:
                return f". Use {module}.{name}."
    if name == "dask":  # it needs Dask, so nothing else imports it
        return ". Run import onnxtrain.dask."
    if name in _REMEDIES:
        return f". {_REMEDIES[name]}."
    if remedy := _of_other_library(name):
        return remedy
    if name.startswith("from_"):
        return f". Did you mean onnxtrain.rows.{name}?"
    if name[0] == "_":
        return ""
    near = [known for known in _HOMES if name[:4].isalpha() and known.startswith(name)]
    near = near[-1:] or difflib.get_close_matches(name, _HOMES, n=1)
    return f". Did you mean {near[0]!r}?" if near else f". Known: {', '.join(__all__)}."


def _of_other_library(name: str) -> str:
    """Return the end of a message about a name that other libraries give to a loss, a parameter or a method."""
    if importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return ""  # Python is importing this module
    attributes, losses, synonyms = (
        importlib.import_module(f"{__name__}.{module}") for module in ("attributes", "losses.table", "synonyms")
    )
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).casefold()  # EarlyStopping
    if (ours := losses.SYNONYMS.get(words.replace("_", ""))) is not None:
        return f". Set loss={ours!r}, a parameter of the estimators."
    if words in attributes.OF_OTHERS:
        return f". {attributes.OF_OTHERS[words]}."
    if words in synonyms.REMEDY_OF:
        return f". {synonyms.REMEDIES[synonyms.REMEDY_OF[words]]}"
    if hasattr(importlib.import_module(f"{__name__}.estimators").OrtGradientClassifier, name):
        return f". Use {name}, an attribute of a fitted estimator."
    if (ours := words if words in synonyms.SYNONYMS else synonyms.synonym(words)) is not None:
        return f". Set {ours}, a parameter of the estimators."
    return ""


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
