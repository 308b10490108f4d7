"""Synonyms of parameters in scikit-learn, Keras, PyTorch and skorch, for error messages about unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Real
from typing import Any

from onnxtrain.registry import did_you_mean

#: For each parameter, the names that other libraries give it.
SYNONYMS = {
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
    "device": "device_index map_location provider providers execution_provider gpu gpu_id use_gpu cuda accelerator",
    "dtype": "precision amp fp16 bf16 mixed_precision float_type",
    "early_stopping": "early_stop load_best_model_at_end",
    "epsilon": "eps",
    "estimator": "model base_estimator onnx_model model_onnx model_path onnx_path path net module network regressor "
    "classifier pipeline",
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
    "iterations num_train_epochs max_steps num_steps steps num_boost_round n_rounds nrounds num_iterations",
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
    "verbose": "verbosity log_level progress_bar enable_progress_bar enable_logging",
    "warm_start": "resume_training continue_training",
    "weights": "target_modules",
    "weights_to_train": "trainable trainable_weights trainable_params params_to_train freeze frozen freeze_layers "
    "requires_grad weights_to_fit train_weights lora",
}

#: Names without a corresponding parameter, and what to use instead.
REMEDIES = {
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
    "power": "Pass parameters of the loss as loss_params: loss='tweedie', loss_params={'power': 1.5}.",
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
    "skl2onnx.to_onnx(model.to_sklearn(), X, target_opset=...), in which X is float32 where it is floating-point.",
    "options": "For a scikit-learn model, skl2onnx takes it: skl2onnx.to_onnx(model.to_sklearn(), X, "
    "options=...), and initial_types likewise.",
    "max_depth": "Set it on the model: estimator=GradientBoostingRegressor(max_depth=...) or the classifier.",
    "n_estimators": "Set it on the model: estimator=GradientBoostingRegressor(n_estimators=...) or the classifier. The "
    "number of epochs is max_iter.",
    "num_classes": "The classes are those of y. Set head='new' to give the model one output per class.",
    "metrics": "Apply a metric of scikit-learn to predictions, as in sklearn.metrics.mean_absolute_error(y, "
    "model.predict(X)), or pass scoring= to cross_val_score.",
    "scale_pos_weight": "Set class_weight={1: scale_pos_weight}, by the labels in y; other classes count 1.",
    "validation_data": "Pass the validation set to fit: fit(X, y, X_val=..., y_val=...).",
    "eval_set": "Pass the validation set to fit: fit(X, y, X_val=..., y_val=...).",
    "callbacks": "Pass a function to fit, fit(X, y, callback=...), or callbacks of scikit-learn to set_callbacks.",
    "monitor": "early_stopping=True holds out rows, monitors their loss and keeps the weights of the best epoch.",
    "scaler": "Scale in the model: estimator=make_pipeline(StandardScaler(), MLPRegressor(...)).",
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
    "y_true": "Pass the rows and their targets, score(X, y). A metric of sklearn.metrics compares y with predictions.",
    "is_unbalance": "Set class_weight='balanced' of OrtGradientClassifier.",
    "input_ids": "Pass the inputs of a model as one dictionary, X={'input_ids': ids, 'attention_mask': mask}.",
    "raw_score": "decision_function(X) of a classifier returns the scores.",
    "ckpt_path": "Pass the file to fit: fit(X, y, checkpoint=path, resume=True).",
    "categorical_feature": "Encode categories in the model: estimator=make_pipeline(make_column_transformer("
    "(OneHotEncoder(), columns), remainder='passthrough'), model).",
    "init_score": "Training starts from the weights of the model. Pass a fitted one: estimator=model.",
    "check_val_every_n_epoch": "The loss of the validation set is computed after each epoch.",
    "kernel": "Set it on the model: estimator=SVC(kernel=...) or SVR(kernel=...).",
    "drop_last": "The last batch of an epoch contains the remaining rows, and counts as that many.",
}
_SAME_REMEDY = {
    "scale_pos_weight": "pos_weight",
    "is_unbalance": "unbalanced_sets auto_class_weights",
    "input_ids": "attention_mask token_type_ids pixel_values input_values input_features inputs_embeds",
    "raw_score": "output_margin",
    "ckpt_path": "resume_from_checkpoint",
    "categorical_feature": "categorical_features cat_features enable_categorical",
    "init_score": "base_margin base_score coef_init intercept_init",
    "check_val_every_n_epoch": "val_check_interval validation_freq eval_freq",
    "early_stopping_rounds": "early_stopping_round",
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
    "max_depth": "num_leaves max_leaves max_leaf_nodes min_samples_leaf min_child_weight colsample_bytree subsample "
    "min_child_samples min_data_in_leaf feature_fraction bagging_fraction boosting_type max_bin",
    "lora_dropout": "lora_bias use_rslora use_dora",
    "metrics": "metric scoring scorer eval_metric compute_metrics metric_for_best_model",
    "nesterovs_momentum": "nesterov",
    "monitor": "greater_is_better mode restore_best restore_best_weights save_best_only",
    "power": "tweedie_variance_power variance_power",
    "quantile": "q quantile_alpha quantiles tau",
    "num_classes": "class_names classes id2label label2id labels n_classes n_labels n_outputs num_labels",
    "options": "initial_types final_types",
    "opset": "target_opset opset_version opset_import",
    "return_std": "return_cov",
    "rank": "r lora_r lora_rank lora_alpha target_modules modules_to_save",
    "target": "label label_col label_column target_col target_column target_name y_col y_column y_name",
    "t_max": "decay_steps n_steps num_training_steps total_iters total_steps",
    "validation_data": "eval_dataset valid_dataset val_dataset validation_dataset valid_data val_data "
    "val_dataloaders val_dataloader validation_steps eval_names "
    "validation_set eval_data eval_X valid_set valid_sets dev_set train_split "
    "x_dev x_eval x_holdout x_test x_valid y_dev y_eval y_holdout y_test y_valid",
    "scaler": "normalizer preprocessor scale standardize transformer",
    "save_strategy": "save_steps output_dir save_total_limit checkpoint_dir default_root_dir",
    "label_smoothing": "label_smoothing_factor",
    "train_dataset": "train_data dataset data data_collator processing_class tokenizer train_dataloaders "
    "train_dataloader datamodule",
    "gradient_checkpointing": "use_checkpointing recompute",
    "report_to": "logging_steps logging_strategy logging_dir eval_strategy evaluation_strategy eval_steps logger",
    "warmup": "warmup_steps num_warmup_steps warmup_ratio",
    "weight_decay": "decay wd",
    "y_true": "y_pred",
}

OURS = {name: ours for ours, names in SYNONYMS.items() for name in names.split()}
REMEDY_OF = {name: name for name in REMEDIES} | {n: to for to, names in _SAME_REMEDY.items() for n in names.split()}


def synonym(name: str) -> str | None:
    """Return the parameter that other libraries call `name`, or None."""
    return OURS.get(key_of(name))


#: The similarity of a misspelt name, which names that were chosen for something else do not reach.
_MISSPELT = 0.9


def meant(name: str, known: Iterable[str]) -> str | None:
    """Return the parameter that a name means, one of another library or misspelt; None if there is none.

    Examples
    --------
    >>> known = ["learning_rate", "loss"]
    >>> meant("lr", known), meant("learningrate", known), meant("losses_by_day", known)
    ('learning_rate', 'learning_rate', None)
    """
    names = [*known]
    if (ours := synonym(name)) in names:
        return ours
    return next(iter(difflib.get_close_matches(key_of(name), names, n=1, cutoff=_MISSPELT)), None)


#: For names of parameters of the estimators, the arguments of functions.
OF_FUNCTIONS = {
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
    names, key = set(known), key_of(name)
    if key in _OF_CLUSTER and "client" in names:
        return f"Pass a client: client=distributed.Client({key}=...)."
    ours = key if key in names else OURS.get(key)
    if key == "betas" and {"beta_1", "beta_2"} <= names:
        return "Pass the two numbers by name: beta_1=0.9, beta_2=0.999."
    ours = OF_FUNCTIONS.get(key) if OF_FUNCTIONS.get(key) in names else ours
    if ours in names:
        return f"Did you mean {ours!r}?"
    remedy = REMEDIES.get(REMEDY_OF.get(key, ""), "")
    if remedy and ("loss_params" in names or "loss_params" not in remedy):  # gamma of a schedule is none of a loss
        return remedy
    if "__" in key:  # skorch's parameters of its components, such as optimizer__lr
        outer, _, inner = key.partition("__")
        if OURS.get(outer) == "estimator" and "estimator" in names and inner not in names:
            return "Pass a model that has its layers: estimator=model."
        part = next((part for part in (inner, outer) if part in names or part in REMEDY_OF or part in OURS), None)
        return advice(part, names) if part else ""
    if (ours or name) in _OF_CLASSES:
        return f"{ours or name} is a parameter of OrtGradientClassifier."
    hint = did_you_mean(name, names)
    ours = key if key in SYNONYMS else ours
    if hint.startswith("Known") and ours is not None:  # such as a learning rate given to an optimizer
        return f"{ours} is a parameter of the estimator: OrtGradientRegressor({ours}=...)."
    return hint.partition(" Known")[0]


def options_of(foreign: object) -> dict[str, Any]:
    """Return the options with which an optimizer or a loss of PyTorch or Keras was made.

    Optimizers of PyTorch have them as ``defaults``, its losses as attributes and buffers. Keras has a configuration,
    from which its losses leave out parameters of their own.
    """
    own: dict[str, Any] = getattr(foreign, "__dict__", {})
    if callable(getattr(foreign, "get_config", None)):
        found = {**foreign.get_config(), **own.get("_fn_kwargs", {})}  # type: ignore[attr-defined]
    else:
        found = own.get("defaults") or {**own, **own.get("_buffers", {})}
    return {name: value for name, value in found.items() if name[:1] != "_"}


def renamed_options(foreign: object, known: Iterable[str]) -> dict[str, float]:
    """Return the numeric options of an object of PyTorch or Keras under the names of our parameters, if `known`.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> adam = SimpleNamespace(defaults={"lr": 0.1, "betas": (0.8, 0.9)})
    >>> renamed_options(adam, ["beta_1", "beta_2", "learning_rate"])
    {'learning_rate': 0.1, 'beta_1': 0.8, 'beta_2': 0.9}
    """
    found = options_of(foreign)
    if isinstance(found.get("betas"), tuple):
        found |= dict(zip(("beta_1", "beta_2"), found["betas"], strict=True))
    names = {name: name if name in known else OURS.get(key_of(name)) for name in found}
    return {
        ours: value if isinstance(value, bool) else float(f"{value:.7g}")  # Keras rounds to float32
        for name, value in found.items()
        if (ours := names[name]) is not None and ours in known and isinstance(value, Real)
    }


def several(name: str, value: object) -> str:
    """Return the end of a message about values or a distribution for a parameter: only a search takes them."""
    if hasattr(value, "rvs"):  # of scipy.stats
        return f" To draw values from a distribution, use RandomizedSearchCV(model, {{{name!r}: distribution}})."
    some = isinstance(value, (list, tuple, range)) or (not isinstance(value, type) and getattr(value, "ndim", 0) > 0)
    return f" To try several values, use GridSearchCV(model, {{{name!r}: [...]}})." if some else ""


def key_of(name: str) -> str:
    """Return a name as it stands in the tables: in lower case, with underscores."""
    return name.casefold().replace("-", "_")
