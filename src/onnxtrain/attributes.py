"""Errors that propose an attribute for an unknown one, also for names of scikit-learn, Keras, PyTorch and skorch."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn

from onnxtrain.errors import ArgumentTypeError, unknown_name
from onnxtrain.registry import did_you_mean
from onnxtrain.synonyms import synonym

#: What to use instead of attributes of other libraries' models, with their names.
_REMEDIES = {
    "Compare predictions with sklearn.metrics, or pass scoring= to cross_val_score": "auc classification_report "
    "confusion_matrix f1_score metric metrics metrics_names plot_confusion_matrix report roc_auc",
    "fit and partial_fit compute a new gradient in each step; nothing has to be reset": "zero_grad",
    "Pass a complete model: OrtGradientRegressor(MLPRegressor(hidden_layer_sizes=...)), or an ONNX model": "add "
    "add_module append register_buffer register_module register_parameter",
    "Pass a function to fit: fit(X, y, callback=...)": "add_callback callbacks callbacks_ register_forward_hook "
    "register_hook",
    "Pass a model that has these weights; it is trained from its own": "set_weights",
    "predict(X) has no training mode to leave: Dropout is off, also in fit": "eval training",
    "predict and score compute no gradients; call them as they are": "enable_grad inference_mode no_grad "
    "set_grad_enabled",
    "Quantize the file of get_trained_onnx(path=...) with onnxruntime.quantization": "quantize quantize_dynamic",
    "Set device='cuda', a parameter of the estimator": "cuda to to_device",
    "Set device='cpu', a parameter of the estimator; results are numpy arrays": "cpu detach numpy",
    "Set dtype='float16', a parameter of the estimator": "half",
    "Set dtype='float32', a parameter of the estimator": "float",
    "Set dtype='float64', a parameter of the estimator": "double",
    "Set head='new', a parameter of the estimator, to replace the last layer of an ONNX model": "add_head classifier "
    "fc replace_head reset_classifier",
    "Set l1=... and l1_method='proximal', parameters of the estimator, to make weights exactly zero": "prune",
    "Set loss and solver, parameters of the estimator": "compile configure_optimizers",
    "Set weights_to_train, a parameter of the estimator; trainable_weights(model) lists the names": "freeze "
    "freeze_layers requires_grad requires_grad_ set_trainable trainable trainable_variables unfreeze",
    "Set weights_to_train=onnxtrain.LoRA(), a parameter of the estimator": "add_adapter get_peft_model lora",
    "Use get_trained_onnx(), which merges the factors of LoRA into the weights": "merge_adapter merge_and_unload",
    "The optimizer is the parameter solver; onnxtrain.save stores its state": "optimizer_ optimizer_state",
    "To start anew, call fit with warm_start=False; sklearn.base.clone(model) is an unfitted copy": "clone copy "
    "reinitialize reset reset_parameters reset_weights",
    "Use to_sklearn().named_steps or estimator.named_steps, if the estimator is a pipeline": "named_steps steps",
    "Use a search of scikit-learn: GridSearchCV(model, {'l2': [0, 0.01]})": "best_estimator_ best_params_ best_score_ "
    "cv_results_ grid_search search tune",
    "Use cross_val_score of scikit-learn": "cross_val_score cross_validate cv validate",
    "Use CalibratedClassifierCV(model) of scikit-learn": "calibrate",
    "Use classes_, the labels of y": "class_names class_names_ label_encoder_ labels_ n_classes n_classes_",
    "Use coef_ and intercept_ of a linear model, or weights_": "beta coef coefficients params",
    "Use decision_function(X) of a classifier": "get_logits logits",
    "Use score(X, y), which is R² for a regressor": "rsquared rsquared_adj",
    "Use predict(X) - y": "resid residuals",
    "Use predict(X) of the rows of fit": "fittedvalues",
    "Gradient descent gives no standard errors; statsmodels fits models that have them": "aic bic bse conf_int "
    "cov_params f_pvalue pvalues tvalues",
    "Use embed(X, output) for a value inside the model": "attention attentions hidden_states last_hidden_state",
    "Use fit(X, y)": "fine_tune finetune fit_generator fit_model learn optimize train train_model",
    "Use fit(X, y); max_iter=0 takes no step": "build initialize",
    "Use fit(X, y).predict(X)": "fit_predict",
    "Use get_trained_onnx()": "get_onnx onnx onnx_ onnx_model onnx_model_ to_onnx",
    "Use get_trained_onnx(path=...)": "convert export export_model export_onnx save_onnx write",
    "Use get_trained_onnx().graph. To write a file, use onnx.save(model.get_trained_onnx(), path)": "graph",
    "Use get_trained_onnx() or to_sklearn(), which return the model": "base_estimator base_estimator_ estimator_ "
    "get_model model model_ module module_ net net_ network regressor_ to_keras to_torch",
    "Use get_trained_onnx(), which contains the trained trees": "booster_ dump_model get_booster get_dump",
    "Use get_trained_onnx().SerializeToString()": "SerializeToString to_bytes",
    "Use gradient(X, y) for the gradient of the loss, or gradient(X) for that of the prediction": "get_gradients grad "
    "grads gradients saliency",
    "Use history_.best_epoch": "best_epoch best_epoch_ best_ntree_limit",
    "Use history_, the losses of each epoch, also of the validation set": "evals_result evals_result_ history "
    "loss_history loss_history_ losses_ train_loss train_loss_ train_losses train_score_ val_loss val_losses "
    "validation_loss validation_loss_ validation_scores_",
    "Use history_.to_frame()": "to_frame",
    "Use loss_curve_[-1], the loss of the last epoch": "final_loss last_loss loss_",
    "Use losses(X, y), the loss of each row": "compute_loss get_loss",
    "Use LossCurveDisplay.from_estimator(model)": "plot plot_history plot_loss plot_loss_curve plot_metric",
    "Use n_features_in_, and feature_names_in_ if X has column names": "feature_name_ feature_names feature_names_ "
    "n_features n_features_ num_features",
    "Use n_iter_, the number of epochs": "epoch epochs_ n_epochs_",
    "Use onnxruntime.InferenceSession(model.get_trained_onnx().SerializeToString()).get_inputs()": "get_inputs "
    "get_providers input_names sess session session_",
    "Use onnxruntime.InferenceSession(model.get_trained_onnx().SerializeToString()).get_outputs()": "get_outputs "
    "output_names",
    "Results are arrays. For a frame's index, use pandas.Series(model.predict(X), X.index)": "set_output",
    "Use onnxtrain.load(path)": "from_pretrained load_checkpoint load_model load_params load_state_dict load_weights "
    "restore",
    "Use onnxtrain.load(path), a function": "load",
    "Use onnxtrain.plot_graph(model), a function": "draw plot_graph plot_model show visualize",
    "Use onnxtrain.save(estimator, path)": "dump save_checkpoint save_params save_pretrained save_weights serialize",
    "Use onnxtrain.save(estimator, path), a function": "save",
    "Use onnxtrain.save(estimator, path), or get_trained_onnx(path=...) for the model": "save_model to_json",
    "Use onnxtrain.trainable_weights(model), a function": "trainable_weights",
    "Use partial_fit(X, y) for an epoch of training, or gradient(X, y) for the gradient of the loss": "backward",
    "Use partial_fit(X, y)": "train_on_batch",
    "Use partial_fit(X, y), which takes the steps of an epoch": "step train_epoch train_step training_step update",
    "Use WeightsDisplay.from_estimator(model)": "plot_coef plot_weights weights_histogram",
    "Use predict(X)": "forward inference predict_classes predict_generator predict_on_batch predict_step",
    "Use predict(X), or embed(X, output) for a value inside the model": "apply encode fit_transform transform",
    "Use predict(X), or onnxruntime.InferenceSession with the file of get_trained_onnx(path=...)": "run",
    "Use score(X, y) or losses(X, y)": "accuracy evaluate r2 r2_score score_ test test_on_batch",
    "Use sklearn.inspection.permutation_importance(model, X, y)": "explain feature_importance feature_importances_ "
    "get_fscore get_score plot_importance shap_values",
    "Use summary(), which shows them": "children get_layer layers modules named_children named_modules",
    "Use summary(), which shows the parameters": "architecture count_params describe info n_params num_parameters",
    "Use TunedThresholdClassifierCV(model) of scikit-learn": "threshold threshold_",
    "Use weights_": "get_parameters get_weights state_dict trained_weights weights",
    "Use weights_; trainable_weights(model) lists their names": "named_parameters parameters",
}

#: The same by name.
OF_OTHERS = {name: remedy for remedy, names in _REMEDIES.items() for name in names.split()}

#: Methods that skl2onnx calls, and class attributes of a regressor that are parameters of a classifier.
_NOT_FOR_USERS = frozenset({"class_axis", "onnx_converter", "onnx_parser", "onnx_shape_calculator", "output_is"})


def of_estimator(owner: Any, name: str) -> str:
    """Return the message for an attribute that an estimator does not have: an equivalent, or the nearest, or all."""
    kind, parameters, stem = type(owner).__name__, owner.get_params(deep=False), name.removesuffix("_")
    if (ours := stem if stem in parameters else synonym(stem)) in parameters:
        return f"{kind} has no {name}. Use {ours}, a parameter of the estimator."
    if name in inspect.signature(type(owner).fit).parameters:
        return f"{kind} has no {name}. It is an argument of fit: fit(X, y, {name}=...)."
    names = {*dir(type(owner)), *vars(owner)}  # dir(owner) evaluates each property
    public = sorted(word for word in names if word[0] != "_" and word not in _NOT_FOR_USERS)
    near = difflib.get_close_matches(name, public, n=1, cutoff=0.75)
    known = ", ".join(word for word in public if word not in parameters)
    return f"{kind} has no attribute {name!r}. {f'Did you mean {near[0]!r}?' if near else f'Known: {known}.'}"


class NamesItsAttributes:
    """A mixin for results: a missing attribute, or a key, raises an error that names the attributes."""

    #: What to use instead of attributes of other libraries.
    _remedies: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __getattr__(self, name: str) -> NoReturn:
        said = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name[0] != "_":
            hint = self._remedies.get(name) or did_you_mean(name, _public(self))
            said = f"{type(self).__name__} has no attribute {name!r}. {hint}"
        raise AttributeError(said, name=name, obj=self)


class NamesItsConstructors(type):
    """The type of a class whose unknown class attributes, such as a constructor of another class, raise with a hint."""

    def __getattr__(cls, name: str) -> NoReturn:
        said = f"type object {cls.__name__!r} has no attribute {name!r}"
        if name.startswith("from_"):
            use = vars(cls).get("_constructor", f"{cls.__name__}.from_estimator")
            said = f"{cls.__name__} has no {name}. Use {use}(model), with a fitted model."
        raise AttributeError(said, name=name, obj=cls)


class HasNoItems(NamesItsAttributes):
    """The same for results that other libraries index as a dictionary or a list."""

    def __getitem__(self, key: object) -> NoReturn:
        example = f", .{key}" if isinstance(key, str) and key in _public(self) else ""
        raise ArgumentTypeError(
            f"{type(self).__name__} cannot be indexed, got [{key!r:.80}]. Use an attribute{example}. "
            f"Known: {', '.join(_public(self))}."
        )


class Named(dict[str, Any]):
    """A dictionary whose KeyError proposes a key."""

    def __missing__(self, key: object) -> NoReturn:
        raise KeyError(f"There is no {key!r}. {did_you_mean(key, self)}")

    def __getattr__(self, name: str) -> NoReturn:
        hint = f" Use the key, [{name!r}]." if name in self else ""
        raise AttributeError(f"A dictionary has no attribute {name!r}.{hint}", name=name, obj=self)


def of_module(
    module: str, known: Sequence[str], remedies: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str], NoReturn]:
    """Return the ``__getattr__`` of a public module; `remedies` has a remedy for names that users expect."""

    def missing(name: str) -> NoReturn:
        raise unknown_name(
            module, name, "" if name[0] == "_" else f". {remedies.get(name) or did_you_mean(name, known)}"
        )

    return missing


def _public(owner: object) -> list[str]:
    return [name for name in dir(owner) if not name.startswith("_")]
