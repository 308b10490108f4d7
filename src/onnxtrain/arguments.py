"""Errors that propose a parameter for an unknown argument, also for names of scikit-learn, Keras, PyTorch and skorch.

Python's own error would name a base class that users never see, and no remedy.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from numbers import Real
from types import MethodType
from typing import Any, ParamSpec, Self, TypeVar

from onnxtrain.cache import table
from onnxtrain.dialects import for_call
from onnxtrain.errors import ArgumentTypeError, OnnxTrainError, ParameterError
from onnxtrain.registry import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

#: For each parameter, the names that other libraries give it.
_SYNONYMS = {
    "accumulate": "accumulate_grad_batches accumulation_steps gradient_accumulation_steps iter_size",
    "alpha": "lora_alpha rho",
    "average": "ema swa averaging polyak use_ema",
    "batch_axis": "batch_dim batch_dims",
    "batch_size": "batch batchsize bs minibatch_size mini_batch_size train_batch_size chunk_size "
    "per_device_train_batch_size",
    "besides": "modules_to_save",
    "beta_1": "beta1 betas",
    "beta_2": "beta2",
    "class_weight": "class_weights",
    "clip_norm": "clipnorm clip clip_grad_norm gradient_clip_val gradient_clipping grad_clip max_grad_norm max_norm",
    "device": "device_index map_location provider providers execution_provider gpu use_gpu cuda accelerator",
    "dtype": "precision amp fp16 bf16 mixed_precision float_type",
    "early_stopping": "early_stop load_best_model_at_end",
    "epsilon": "eps",
    "estimator": "model base_estimator onnx_model model_onnx net module network regressor classifier pipeline",
    "gradient_builder": "builder backend",
    "ignore_index": "ignore_label padding_idx",
    "init": "init_method initialization kernel_initializer",
    "inputs": "input_names feeds fixed_inputs",
    "l1": "l1_reg l1_penalty reg_alpha lambda_l1",
    "l2": "l2_reg l2_penalty reg reg_lambda lambda_l2 regularization weight_penalty",
    "learning_rate": "lr eta eta0 rate step_size learning_rate_init lr_scheduler scheduler schedule lr_schedule "
    "learning_rate_schedule initial_lr max_lr lr_scheduler_type",
    "loss": "criterion objective loss_fn loss_function learning_loss cost",
    "loss_params": "loss_kwargs loss_args loss_kwds",
    "max_iter": "epoch epochs n_epochs num_epochs nb_epoch nb_epochs max_epochs n_iter n_iterations max_iterations "
    "iterations num_train_epochs n_estimators max_steps num_steps steps num_boost_round n_rounds nrounds",
    "n_iter_no_change": "patience early_stopping_patience",
    "n_threads": "n_jobs num_threads nthread threads n_workers num_workers intra_op_num_threads",
    "on_interrupt": "interrupt on_keyboard_interrupt",
    "output": "output_name outputs output_names score_name",
    "output_is": "from_logits logits output_type",
    "pad": "padding pad_value padding_value pad_token_id",
    "random_state": "seed random_seed rng manual_seed",
    "rank": "r lora_r lora_rank",
    "solver": "optimizer optim optimiser algorithm updater training_optimizer_name",
    "tol": "min_delta tolerance eps_stop",
    "validation_fraction": "validation_split val_size val_split valid_size validation_size test_size",
    "verbose": "verbosity log_level progress_bar",
    "warm_start": "resume_training continue_training",
    "weights": "target_modules",
    "weights_to_train": "trainable trainable_weights trainable_params params_to_train freeze frozen freeze_layers "
    "requires_grad weights_to_fit train_weights lora",
}

#: Names without a corresponding parameter, and what to use instead.
_REMEDIES = {
    "weight_decay": "Set l2=..., a term of the loss, or solver=onnxtrain.optim.AdamW(weight_decay=...).",
    "momentum": "Pass an optimizer: solver=onnxtrain.optim.SGD(momentum=...).",
    "early_stopping_rounds": "Use early_stopping=True and n_iter_no_change, the number of epochs to wait.",
    "nesterovs_momentum": "Pass an optimizer: solver=onnxtrain.optim.SGD(momentum=0.9, nesterov=True).",
    "beta_1": "Pass an optimizer: solver=onnxtrain.optim.Adam(beta_1=...).",
    "beta_2": "Pass an optimizer: solver=onnxtrain.optim.Adam(beta_2=...).",
    "epsilon": "Pass an optimizer, solver=onnxtrain.optim.Adam(epsilon=...), or loss_params={'epsilon': ...}.",
    "power_t": "Pass a schedule: learning_rate=onnxtrain.optim.InverseScaling(rate, power_t=...).",
    "warmup": "Pass a schedule: learning_rate=onnxtrain.optim.Cosine(rate, warmup=...).",
    "c": "Set l2 = 1 / (2 * C * n_samples) for the penalty of C.",
    "rank": "Use LoRA: weights_to_train=onnxtrain.LoRA(rank=...).",
    "alpha": "Set l2 = alpha / n_samples for the penalty of Ridge, l2 = alpha for that of SGDRegressor with the "
    "squared error (which minimizes half of it), and l2 = alpha / 2 for that of SGDClassifier.",
    "l1_ratio": "Set l1 = 2 * alpha * l1_ratio and l2 = alpha * (1 - l1_ratio) for the penalty of ElasticNet, or half "
    "of each for that of SGDClassifier.",
    "delta": "Pass parameters of the loss as loss_params: loss='huber', loss_params={'delta': 1.0}.",
    "gamma": "Pass parameters of the loss as loss_params: loss='focal', loss_params={'gamma': 2.0}.",
    "quantile": "Pass parameters of the loss as loss_params: loss='quantile', loss_params={'q': 0.9}.",
    "lora_dropout": "LoRA has rank, alpha, weights, besides and merge; there is no dropout during training.",
    "save_strategy": "Write checkpoints: fit(X, y, checkpoint=path, every=...).",
    "label_smoothing": "Pass parameters of the loss as loss_params: loss_params={'label_smoothing': 0.1}.",
    "train_dataset": "Pass the rows to fit: fit(X, y).",
    "gradient_checkpointing": "There is none. accumulate=... with a smaller batch_size saves memory.",
    "report_to": "Pass a function to fit, fit(X, y, callback=...), which is called with the losses of each epoch.",
    "dropout": "Dropout is off during training: the model is trained as it predicts.",
    "hidden_layer_sizes": "Set it on the model: estimator=MLPRegressor(hidden_layer_sizes=...), or MLPClassifier.",
    "fit_intercept": "Set it on the model: estimator=LinearRegression(fit_intercept=False).",
    "cv": "Use a search of scikit-learn: GridSearchCV(OrtGradientRegressor(...), {'l2': [0, 0.01]}, cv=...).",
    "opset": "The file has the opset of the model. onnx.version_converter.convert_version(onx, opset) changes it to 15 "
    "and later ones. For an older one, export the original so, or the estimator of to_sklearn(): "
    "skl2onnx.to_onnx(model.to_sklearn(), X, target_opset=...).",
    "max_depth": "Set it on the model: estimator=GradientBoostingRegressor(max_depth=...) or the classifier.",
    "num_classes": "The classes are those of y. Set head='new' to give the model one output per class.",
    "metrics": "Apply a metric of scikit-learn to predictions, as in sklearn.metrics.mean_absolute_error(y, "
    "model.predict(X)), or pass scoring= to cross_val_score.",
    "scale_pos_weight": "Set class_weight={1: scale_pos_weight}, by the labels in y; other classes count 1.",
    "validation_data": "Pass the validation set to fit: fit(X, y, X_val=..., y_val=...).",
    "eval_set": "Pass the validation set to fit: fit(X, y, X_val=..., y_val=...).",
    "callbacks": "Pass a function to fit, fit(X, y, callback=...), or callbacks of scikit-learn to set_callbacks.",
    "monitor": "early_stopping=True holds out rows, monitors their loss and keeps the weights of the best epoch.",
    "steps_per_epoch": "An epoch uses all rows once; batch_size sets the number of steps.",
    "initial_epoch": "To continue an earlier fit, use warm_start=True, partial_fit or fit(..., resume=True).",
    "t_max": "A schedule ends with the last of the max_iter epochs, so it needs no length.",
    "threshold": "Use TunedThresholdClassifierCV(model) of scikit-learn.",
    "target": "Pass the column of the targets as y, and X without it: fit(X.drop(columns='price'), X['price']).",
    "groups": "Pass groups to the cross-validation: cross_val_score(model, X, y, groups=groups, cv=GroupKFold()). To "
    "hold some out for early stopping: train, val = next(GroupShuffleSplit().split(X, y, groups)), fit(X[train], "
    "y[train], X_val=X[val], y_val=y[val]).",
    "eta_min": "The last rate is a share of the first: onnxtrain.optim.Cosine(rate, final_ratio=eta_min / rate).",
    "return_std": "Training gives no standard deviation. Use model.predict(X, return_std=True) of the model itself, or "
    "train bounds with loss='quantile'.",
    "drop_last": "The last batch of an epoch contains the remaining rows, and counts as that many.",
}
_SAME_REMEDY = {
    "scale_pos_weight": "pos_weight",
    "beta_1": "betas beta1",
    "beta_2": "beta2",
    "callbacks": "callback_list",
    "epsilon": "eps",
    "eta_min": "end_learning_rate end_lr final_lr min_learning_rate min_lr",
    "groups": "group group_id group_ids",
    "cv": "alphas cs l1_ratios param_grid param_distributions",
    "fit_intercept": "positive normalize",
    "initial_epoch": "init_model xgb_model",
    "hidden_layer_sizes": "activation dropout_rate hidden_size hidden_units layers n_hidden n_layers units",
    "max_depth": "num_leaves max_leaves max_leaf_nodes min_samples_leaf min_child_weight colsample_bytree subsample",
    "lora_dropout": "lora_bias use_rslora use_dora",
    "metrics": "metric scoring scorer eval_metric compute_metrics metric_for_best_model",
    "nesterovs_momentum": "nesterov",
    "monitor": "greater_is_better mode restore_best restore_best_weights save_best_only",
    "num_classes": "class_names classes id2label label2id labels n_classes n_labels n_outputs num_labels",
    "opset": "target_opset opset_version opset_import",
    "return_std": "return_cov",
    "rank": "r lora_r lora_rank lora_alpha target_modules modules_to_save",
    "target": "label label_col label_column target_col target_column target_name y_col y_column y_name",
    "t_max": "decay_steps n_steps num_training_steps total_iters total_steps",
    "validation_data": "eval_dataset valid_dataset val_dataset validation_dataset valid_data val_data "
    "validation_set eval_data eval_X valid_set valid_sets dev_set train_split "
    "x_dev x_eval x_holdout x_test x_valid y_dev y_eval y_holdout y_test y_valid",
    "save_strategy": "save_steps output_dir save_total_limit checkpoint_dir",
    "label_smoothing": "label_smoothing_factor",
    "train_dataset": "train_data dataset data data_collator processing_class tokenizer",
    "gradient_checkpointing": "use_checkpointing recompute",
    "report_to": "logging_steps logging_strategy logging_dir eval_strategy evaluation_strategy eval_steps logger",
    "warmup": "warmup_steps num_warmup_steps warmup_ratio",
    "weight_decay": "decay wd",
}

_OURS = {name: ours for ours, names in _SYNONYMS.items() for name in names.split()}
_REMEDY_OF = {name: name for name in _REMEDIES} | {n: to for to, names in _SAME_REMEDY.items() for n in names.split()}


def synonym(name: str) -> str | None:
    """Return the parameter that other libraries call `name`, or None."""
    return _OURS.get(_key(name))


#: For names of parameters of the estimators, the arguments of functions.
_OF_FUNCTIONS = {
    "device": "providers",
    "nclasses": "n_outputs",
    "weights": "weights_to_train",
    **dict.fromkeys(("file", "filename", "filepath", "fname"), "path"),
    **dict.fromkeys(("labelcolumn", "target", "targets", "y"), "label"),
}

#: The parameters that only the classifier has.
_OF_CLASSES = ("class_axis", "class_weight", "ignore_index", "output_is")

#: Arguments of a Dask client that users give to an estimator.
_OF_CLUSTER = ("address", "memory_limit", "n_workers", "threads_per_worker")


def advice(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown parameter: the parameter with this meaning, or the nearest.

    Examples
    --------
    >>> advice("epochs", ["loss", "max_iter"])
    "Did you mean 'max_iter'?"
    >>> advice("los", ["loss", "max_iter"])
    "Did you mean 'loss'?"
    """
    names, key = set(known), _key(name)
    if key in _OF_CLUSTER and "client" in names:
        return f"Pass a client: client=distributed.Client({key}=...)."
    ours = key if key in names else _OURS.get(key)
    ours = _OF_FUNCTIONS.get(key) if _OF_FUNCTIONS.get(key) in names else ours
    if ours in names:
        return f"Did you mean {ours!r}?"
    remedy = _REMEDIES.get(_REMEDY_OF.get(key, ""), "")
    if remedy and ("loss_params" in names or "loss_params" not in remedy):  # gamma of a schedule is none of a loss
        return remedy
    if "__" in key:  # skorch's parameters of its components, such as optimizer__lr
        outer, _, inner = key.partition("__")
        if _OURS.get(outer) == "estimator" and "estimator" in names:
            return "Pass a model that has its layers: estimator=model."
        part = next((part for part in (inner, outer) if part in names or part in _REMEDY_OF or part in _OURS), None)
        return advice(part, names) if part else ""
    if (ours or name) in _OF_CLASSES:
        return f"{ours or name} is a parameter of OrtGradientClassifier."
    hint = did_you_mean(name, names)
    ours = key if key in _SYNONYMS else ours
    if hint.startswith("Known") and ours is not None:  # such as a learning rate given to an optimizer
        return f"{ours} is a parameter of the estimator: OrtGradientRegressor({ours}=...)."
    return hint.partition(" Known")[0]


def settings_of(foreign: object, known: Iterable[str]) -> dict[str, float]:
    """Return the numbers with which an object of Keras or PyTorch was made, by our names, as far as those are known.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> settings_of(SimpleNamespace(defaults={"lr": 0.1, "betas": (0.8, 0.9)}), ["beta_1", "beta_2", "learning_rate"])
    {'learning_rate': 0.1, 'beta_1': 0.8, 'beta_2': 0.9}
    """
    own: dict[str, Any] = getattr(foreign, "__dict__", {})
    found: dict[str, Any] = getattr(foreign, "defaults", None) or own
    if callable(getattr(foreign, "get_config", None)):  # of Keras, whose losses leave their own parameters out
        found = {**foreign.get_config(), **own.get("_fn_kwargs", {})}  # type: ignore[attr-defined]
    if isinstance(found.get("betas"), tuple):
        found = {**found, **dict(zip(("beta_1", "beta_2"), found["betas"], strict=True))}
    names = {name: name if name in known else _OURS.get(_key(name)) for name in found}
    return {
        ours: value if isinstance(value, bool) else float(f"{value:.7g}")  # Keras rounds to float32
        for name, value in found.items()
        if (ours := names[name]) is not None and ours in known and isinstance(value, Real)
    }


def several(name: str, value: object) -> str:
    """Return the end of a message about a list given for a parameter: only a search takes several values."""
    return f" To try several values, use GridSearchCV(model, {{{name!r}: [...]}})." if isinstance(value, list) else ""


#: Parameters that are set as a whole, and a value of each.
_WHOLE = {
    "batch_axis": "{'state': 1}",
    "inputs": "{'rate': 16000}",
    "learning_rate": "onnxtrain.optim.Cosine(0.1)",
    "pad": "{'input_ids': 0}",
    "penalty": "{'coef': 0.1}",
    "solver": "onnxtrain.optim.SGD(momentum=0.9)",
}


def _key(name: str) -> str:
    return name.casefold().replace("-", "_")


class NamesItsParameters:
    """A mixin for classes with keyword parameters: an unknown parameter raises an error that names the intended one.

    The mixin comes after the class that defines ``__init__`` in the list of bases.
    """

    #: The end of the message about too many positional arguments.
    _hint_by_name = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Check the names of the arguments; ``__init__`` stores them."""
        signature = _signature(cls)
        if unknown := signature.unknown(kwargs):
            model = args[0] if args else kwargs.get("estimator")
            raise ArgumentTypeError(_unknown_parameter(cls, unknown, signature.names) + _of_model(model, unknown))
        if len(args) > signature.n_positional:
            raise ArgumentTypeError(_too_many(cls, signature, len(args)))
        if twice := [name for name in signature.names[: len(args)] if name in kwargs]:
            raise ArgumentTypeError(f"{cls.__name__} got {twice[0]} twice, by position and by name. Leave one out.")
        return super().__new__(cls)


def called_as(example: str) -> Callable[[type[T]], type[T]]:
    """Make a constructor call without a required argument raise an error with an example of a call.

    The constructor is replaced, because ``__new__`` is also called without arguments, to copy and to unpickle.
    """

    def decorate(cls: type[T]) -> type[T]:
        init: Callable[..., None] = cls.__init__
        signature = _Signature.of(init)

        @wraps(init)
        def checked(self: T, *args: Any, **kwargs: Any) -> None:
            if missing := signature.missing(len(args), kwargs):
                raise ArgumentTypeError(f"{cls.__name__} requires {' and '.join(missing)}: {example}.")
            init(self, *args, **kwargs)

        cls.__init__ = checked  # type: ignore[assignment, method-assign]
        return cls

    return decorate


class SetsItsParameters(NamesItsParameters):
    """The same for an estimator of scikit-learn, which also has ``set_params``."""

    def set_params(self, *unnamed: Any, **params: Any) -> Self:
        """Set parameters of this object, or of a nested object: ``estimator__alpha=1``.

        They take effect at the next ``fit`` or ``partial_fit``; until then, the predictions, losses and gradients of a
        fitted estimator do not change. ``device``, ``n_threads``, ``ignore_index``, and ``merge`` of
        :class:`~onnxtrain.LoRA` take effect immediately. A change that cannot affect a continued training is an error
        in ``fit`` with ``warm_start=True`` and in ``partial_fit``.

        Parameters
        ----------
        *unnamed : object
            Not used: a value without a name is an error.
        **params : dict
            The values, by name.

        Returns
        -------
        self
            The object itself.

        Raises
        ------
        ArgumentTypeError
            A value has no name.
        ParameterError
            A parameter is unknown; the message proposes one.

        Examples
        --------
        >>> from sklearn.linear_model import Ridge
        >>> from onnxtrain import OrtGradientRegressor
        >>> OrtGradientRegressor(Ridge()).set_params(max_iter=5, estimator__alpha=2.0)
        OrtGradientRegressor(estimator=Ridge(alpha=2.0), max_iter=5)
        """
        if unnamed:
            raise ArgumentTypeError(
                f"set_params takes parameters by name, set_params(l2=0.1), got {unnamed[0]!r:.80}. Pass a dictionary "
                "as set_params(**parameters)."
            )
        signature = _signature(type(self))
        for key in params:
            if signature.unknown([key.partition("__")[0]]):
                raise ParameterError(_unknown_parameter(type(self), key, signature.names, self))
        for key in params:
            outer, _, inner = key.partition("__")
            value = params.get(outer, getattr(self, outer))
            if inner and not hasattr(value, "set_params"):
                if outer in _WHOLE:
                    raise ParameterError(
                        f"{outer}__{inner} cannot be set, because {outer} is set as a whole, such as "
                        f"{outer}={_WHOLE[outer]}."
                    )
                if outer in ("loss", "loss_params") and not isinstance(value, type):
                    raise ParameterError(
                        f"{outer}__{inner} cannot be set. The parameters of a loss are set as a whole, "
                        f"loss_params={{{inner!r}: 0.5}}, in a search {{'loss_params': [{{{inner!r}: 0.5}}, "
                        f"{{{inner!r}: 0.9}}]}}."
                    )
                instance = "onnxtrain.LoRA()" if outer == "weights_to_train" else "a scikit-learn estimator"
                shown = "an ONNX model" if isinstance(value, bytes) else repr(value)
                raise ParameterError(
                    f"{outer}__{inner} sets a parameter of {outer}, but {outer}={shown:.80} has no parameters. Set "
                    f"{outer} to {instance} first."
                )
            if inner and not isinstance(value, type) and not any(key.startswith(f"{name}__") for name in params):
                _check_inner(outer, inner, value, signature.names)
        before = self.get_params() if any("__" in key for key in params) else {}  # type: ignore[attr-defined]
        super().set_params(**params)  # type: ignore[misc]
        self._warn_of_no_effect([key for key in params if key in before and repr(before[key]) != repr(params[key])])
        return self

    def _warn_of_no_effect(self, changed: Sequence[str]) -> None:
        """Warn of parameters of nested objects whose change has no effect."""


@dataclass(frozen=True)
class _Signature:
    """The arguments of a method, without the object."""

    names: tuple[str, ...]
    required: tuple[str, ...]
    n_positional: int
    takes_any: bool

    @classmethod
    def of(cls, method: Callable[..., Any]) -> Self:
        """Read the signature of a function, without its first argument."""
        found = list(inspect.signature(method).parameters.values())[1:]
        named = [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        positional = [p.name for p in named if p.kind is not p.KEYWORD_ONLY]
        return cls(
            tuple(p.name for p in named),
            tuple(p.name for p in named if p.default is p.empty),
            sys.maxsize if any(p.kind is p.VAR_POSITIONAL for p in found) else len(positional),
            any(p.kind is p.VAR_KEYWORD for p in found),
        )

    def unknown(self, given: Iterable[str]) -> str | None:
        """Return the first name that is not an argument."""
        return next((name for name in given if not self.takes_any and name not in self.names), None)

    def missing(self, n_given: int, given: Iterable[str]) -> list[str]:
        """Return the required arguments that are given neither by position nor by name."""
        return [name for name in self.required if self.names.index(name) >= n_given and name not in given]


@table(maxsize=64)
def _signature(cls: type) -> _Signature:
    return _Signature.of(cls.__init__)  # type: ignore[misc]  # the constructor of the class; a subclass has another one


def _unknown_parameter(cls: type, name: str, known: Iterable[str], owner: object = None) -> str:
    said = f"{cls.__name__} has no parameter {name!r}. "
    inside: Any = getattr(owner, "estimator", None)
    of_model = inside.get_params() if hasattr(inside, "get_params") and not isinstance(inside, type) else ()
    if name in of_model:
        said += f"Use estimator__{name} for the parameter of its model. "
        return (said + advice(name, ())).rstrip() if _key(name) in _REMEDY_OF else said.rstrip()
    near = difflib.get_close_matches(name, of_model, n=1, cutoff=0.8) or [
        n for n in of_model if name.endswith(f"__{n}")
    ]
    if "__" in name and near:
        return f"{said}Did you mean 'estimator__{max(near, key=len)}'?"
    outer, _, last = name.partition("__")
    ours = _OURS.get(_key(outer), outer)
    value: Any = getattr(owner, ours, None)
    if hasattr(value, "get_params") and not isinstance(value, type) and last in value.get_params():
        return f"{said}Did you mean '{ours}__{last}'?"
    fit = getattr(cls, "fit", None)
    if fit is not None and name in inspect.signature(fit).parameters:
        return f"{said}It is an argument of fit: fit(X, y, {name}=...)."
    return said + advice(name, known)


def _check_inner(outer: str, name: str, value: Any, ours: Iterable[str]) -> None:
    """Raise a ParameterError if `value`, the parameter `outer` of an estimator, has no parameter of this name.

    `ours` are the parameters of the estimator itself.
    """
    known, parent = value.get_params(), name.rpartition("__")[0]
    if parent in known and not hasattr(known[parent], "set_params"):
        raise ParameterError(f"{outer}__{parent} is {known[parent]!r:.80}. Set it to an estimator first.")
    if name not in known:
        ends = [each for each in known if each.endswith(f"__{name.rpartition('__')[2]}")]
        near = difflib.get_close_matches(name, ends or known, n=1, cutoff=0.0 if ends else 0.6)
        hint = f"Did you mean '{outer}__{near[0]}'?" if near else f"See {outer}.get_params()."
        if (last := name.rpartition("__")[2]) in ours:
            hint = f"{last!r} is a parameter of the estimator around it: set {last!r} without a prefix."
        raise ParameterError(f"{outer}, a {type(value).__name__}, has no parameter {name!r}. {hint}")


def _of_model(model: object, name: str) -> str:
    """Return the end of a message about a parameter that the model of the estimator has; empty if it has none."""
    if not hasattr(model, "get_params") or isinstance(model, type) or name not in model.get_params():
        return ""
    return f" It is a parameter of the model: {type(model).__name__}({name}=...)."


def _too_many(cls: type[NamesItsParameters], signature: _Signature, n_given: int) -> str:
    """Return the message for a constructor call with too many positional arguments."""
    n, others = signature.n_positional, signature.names[signature.n_positional :]
    said = f"{cls.__name__} takes {n or 'no'} positional argument{'s' * (n != 1)}, got {n_given}"
    if others:
        first = "..., " if n else ""
        said += f". Pass {'the others' if n else 'arguments'} by name: {cls.__name__}({first}{others[0]}=...)"
    return f"{said}. {cls._hint_by_name}".rstrip()


def names_its_arguments(method: Callable[P, R]) -> Callable[P, R]:
    """Make a method raise the errors of the constructor for unknown and missing arguments, with the intended name."""
    signature = _Signature.of(method)
    least, most = len(signature.required), signature.n_positional

    @wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        n_given = len(args) - 1
        right = least <= n_given <= most and not kwargs and hasattr(args[0], method.__name__)
        if not right:  # valid calls skip this, because predict(X) takes no longer than the checks
            unknown, missing = signature.unknown(kwargs), signature.missing(n_given, kwargs)
            owner = args[0] if args else None
            if unknown or missing or n_given > most or not hasattr(owner, method.__name__):
                raise ArgumentTypeError(_wrong_call(owner, method.__name__, signature, n_given, kwargs))
        if n_given == 3 and args[2] is args[3] is not None:
            raise ArgumentTypeError(_twice(args[0], method.__name__, signature))
        try:
            return method(*args, **kwargs)
        except OnnxTrainError as e:
            X, y = (args[i] if n_given >= i else kwargs.get(name) for i, name in ((1, "X"), (2, "y")))
            e.args = (for_call(str(e), method.__name__, X, y),)
            raise

    return checked


def lists_its_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Make an invalid call of a public function or constructor raise an error with the names of its arguments."""
    signature = inspect.signature(function)
    of_kind = {p.name: p.kind for p in signature.parameters.values() if p.name not in ("self", "cls")}
    names = [name for name, kind in of_kind.items() if kind is not inspect.Parameter.VAR_KEYWORD]
    listed = f"Its arguments are {', '.join(names)}." if names else "It takes no arguments."
    by_name = ", ".join(name for name in names if of_kind[name] is inspect.Parameter.KEYWORD_ONLY)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as e:
            name = function.__qualname__.removesuffix(".__init__")
            if unknown := [word for word in kwargs if word not in of_kind and len(names) == len(of_kind)]:
                hint = did_you_mean(unknown[0], names, _OURS | _OF_FUNCTIONS).partition("Known")[0]
                if name == "load" and (ours := synonym(unknown[0]) or unknown[0]) in _SYNONYMS:
                    hint = f"{ours} is a parameter of the estimator: load(path).set_params({ours}=...). "
                if name == "plot_graph" and _OF_FUNCTIONS.get(_key(unknown[0]), unknown[0]) == "path":
                    hint = "To write the picture, use plot_graph(model).save(path). "
                said = f"{name}: got an unexpected keyword argument {unknown[0]!r}. {hint}"
                raise ArgumentTypeError(f"{said}{listed}") from None
            remedy = f" Pass {by_name} by name." if by_name and "too many positional" in str(e) else ""
            raise ArgumentTypeError(f"{name}: {e}. {listed}{remedy}") from None
        return function(*args, **kwargs)

    return checked


def _twice(owner: object, method: str, signature: _Signature) -> str:
    """Return the message for a call with one object as the second and as the third argument."""
    second, third = signature.names[1:3]
    remedy = " A validation set is passed by name: X_val=..., y_val=..." if "X_val" in signature.names else ""
    return (
        f"{type(owner).__name__}.{method} got the same object as {second} and as its third argument, {third}. Leave "
        f"the third out, or pass it by name, {third}=..., if this is intended.{remedy}"
    )


#: How to find an argument that is missing, by method.
_IF_MISSING = {"embed": " The error for an unknown name lists those of the results: embed(X, '?')."}


def _wrong_call(owner: object, method: str, signature: _Signature, n_given: int, kwargs: Iterable[str]) -> str:
    """Return the message for an invalid call of a method."""
    if not hasattr(owner, method):  # OrtGradientRegressor.fit(X, y)
        return (
            f"{method} must be called on an estimator, not on {type(owner).__name__}. Create one first, "
            f"model = OrtGradientRegressor(...) or OrtGradientClassifier(...), then call model.{method}(...)."
        )
    name = f"{type(owner).__name__}.{method}"
    if unknown := signature.unknown(kwargs):
        return f"{name} has no argument {unknown!r}. {_place(type(owner), method, unknown, signature.names)}"
    if missing := signature.missing(n_given, kwargs):
        shown = signature.names[:2] if signature.names[1:2] == ("y",) else signature.required
        return f"{name} requires {' and '.join(missing)}: {method}({', '.join(shown)}).{_IF_MISSING.get(method, '')}"
    if not signature.names:
        return f"{name} takes no arguments, got {n_given}."
    positional = ", ".join(signature.names[: signature.n_positional])
    remedy = "Pass the others by name." if len(signature.names) > signature.n_positional else "It takes no others."
    if "X_val" in signature.names:
        remedy = "Pass the others by name, a validation set as X_val=..., y_val=..."
    remedy = "Use score(X, y) to compare predictions with y." if method.startswith("predict") else remedy
    return f"{name} takes only {positional} by position, got {n_given} arguments. {remedy}"


#: The similarity of a name with one more letter, such as label and labels.
_NEAR = 0.85


def _place(cls: type, method: str, name: str, known: Sequence[str]) -> str:
    """Return advice on an argument that a method does not have: the parameter of the estimator, or a near name."""
    near = difflib.get_close_matches(_key(name), known, n=1, cutoff=_NEAR)
    if near and method not in ("fit", "partial_fit"):  # whose remedies say more
        return f"Did you mean {near[0]!r}?"
    parameters = _signature(cls).names
    ours = name if name in parameters else _OURS.get(_key(name))
    if method == "partial_fit" and ours == "max_iter":
        return "One call trains one epoch: call it once for each."
    if _REMEDY_OF.get(_key(name)) == "num_classes" and not getattr(cls, "_classifies", True):
        return "A regressor has no classes. Leave it out, or use OrtGradientClassifier."
    if ours in parameters:
        return f"It is a parameter of the estimator: {cls.__name__}({ours}=...)."
    for method in ("fit", "partial_fit"):
        if name in inspect.signature(getattr(cls, method)).parameters:
            return f"It is an argument of {method}."
    return advice(name, known) if known else "It takes no arguments."


class given:
    """Make a method available only if `check` is true; otherwise access raises the AttributeError of `check`.

    scikit-learn's ``available_if`` would hide this reason behind a generic message.
    """

    def __init__(self, check: Callable[[Any], bool]):
        self.check = check

    def __call__(self, method: Callable[..., Any]) -> Any:
        """Return the descriptor of a method."""
        self.method = method
        self.__doc__ = method.__doc__
        return self

    def __get__(self, owner: Any, kind: type | None = None) -> Callable[..., Any]:
        if owner is None:
            return self.method
        self.check(owner)
        return MethodType(self.method, owner)
