"""The allowed values of the parameters of the estimators."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import (
    Interval,
    InvalidParameterError,
    StrOptions,
    validate_parameter_constraints,
)

from onnxtrain.cache import table
from onnxtrain.errors import ParameterError, as_number, unquoted
from onnxtrain.estimators.lora import LoRA
from onnxtrain.estimators.protocols import Estimator
from onnxtrain.losses.link import OUTPUT_IS
from onnxtrain.registry import did_you_mean
from onnxtrain.synonyms import several

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator

#: The constraint of a nonnegative number.
_STRENGTH = [Interval(Real, 0, None, closed="left")]

#: The constraints on the parameters of the estimators. The loss, the solver, the schedule, the
#: device and the output are looked up in their own tables, which propose the nearest name.
PARAMETERS: dict[str, list[Any]] = {
    "loss_params": [dict, None],
    "l1": _STRENGTH,
    "l2": _STRENGTH,
    "penalty": [dict, None],
    "init": [StrOptions({"estimator", "random"})],
    "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    "accumulate": [Interval(Integral, 1, None, closed="left")],
    "max_iter": [Interval(Integral, 0, None, closed="left")],
    "shuffle": ["boolean"],
    "tol": _STRENGTH,
    "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    "early_stopping": ["boolean"],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "clip_norm": [Interval(Real, 0, None, closed="neither"), None],
    "warm_start": ["boolean"],
    "n_threads": [Interval(Integral, 1, 1024, closed="both"), None],  # a million threads take minutes to start
    "dtype": [StrOptions({"float32", "float64", "float16", "bfloat16"})],
    "gradient_builder": [StrOptions({"builtin", "onnxruntime-training"})],
    "output": [str, Integral, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
    "output_is": [StrOptions(set(OUTPUT_IS)), None],
    "l1_method": [StrOptions({"penalty", "proximal"})],
    "head": [StrOptions({"keep", "new"})],
    "features": [str, None],
    "on_interrupt": [StrOptions({"keep", "raise"})],
    "inputs": [dict, None],
    "batch_axis": [dict, None],
    "pad": [dict, None],
    "average": ["boolean", Interval(Real, 0, 1, closed="neither")],
    "class_weight": [dict, list, StrOptions({"balanced"}), None],
    "class_axis": [Integral, None],
    "ignore_index": [Integral, str, None],
}

#: The constraints on the parameters of LoRA; names and patterns are those of `weights_to_train`.
_OF_LORA: dict[str, list[Any]] = {
    "rank": [Interval(Integral, 1, 2**14, closed="both")],  # a larger one may not fit in memory
    "alpha": [Interval(Real, 0, None, closed="neither")],
    "weights": [str, list, tuple],
    "besides": [str, list, tuple, None],
    "merge": ["boolean"],
}


def check_parameters(estimator: Estimator) -> None:
    """Check the parameters of an estimator against :data:`PARAMETERS`."""
    kind: Any = type(estimator)
    for name, default in defaults_of(kind).items():
        value = getattr(estimator, name)
        if value is not default and name in PARAMETERS:  # one check takes longer than an epoch
            check = _check_once if isinstance(value, (bool, int, float, str)) else _check_parameter
            check(kind.__name__, name, value)
    wanted = getattr(estimator, "weights_to_train", None)
    if isinstance(wanted, LoRA):
        _check_lora(wanted, estimator)
    elif wanted is not None and not isinstance(wanted, str):
        _check_words(wanted)
    class_weight = vars(estimator).get("class_weight")  # a regressor has none, and would make an error message
    if class_weight is not None and not isinstance(class_weight, str):
        _check_class_weight(class_weight)


def _check_class_weight(wanted: Any) -> None:
    """Check that class weights are finite and not negative; a negative weight would make a class less likely."""
    for of_label in wanted if isinstance(wanted, list) else [wanted]:
        if not isinstance(of_label, Mapping):
            numbers = "[1.0, 2.0]" if math.isnan(as_number(of_label)) else repr(wanted)
            raise ParameterError(
                f"class_weight as a list must contain dictionaries, got {wanted!r:.80}. For one class per row, pass "
                f"dict(zip(numpy.unique(y), {numbers})); for several labels per row, the weight of each label is "
                f"[{{0: 1.0, 1: weight}} for weight in {numbers}]."
            )
        for label, weight in of_label.items():
            if not 0 <= as_number(weight) < math.inf:
                raise ParameterError(
                    f"class_weight must contain finite, non-negative numbers, got {weight!r} for {label!r}."
                    + (" Set class_weight='balanced' itself." if weight == "balanced" else unquoted(weight))
                )


#: How to name weights.
_NAMES = "For example, pass [w.name for w in trainable_weights(model)]; for the last layer, weights_to_train='head'."


def _check_words(wanted: Any) -> None:
    """Check that a list of weights consists of strings."""
    if isinstance(wanted, type) and issubclass(wanted, LoRA):
        raise ParameterError("weights_to_train must be an instance of LoRA, got the class. Pass LoRA().")
    if isinstance(wanted, Mapping) or not isinstance(wanted, Iterable):
        raise ParameterError(
            f"weights_to_train must be a weight name, a pattern, a list of these, 'all', 'head' or LoRA(...), got "
            f"{wanted!r:.80}. {_NAMES}"
        )
    if isinstance(wanted, Iterator):
        raise ParameterError(
            f"weights_to_train must be a list, got {wanted!r:.80}, which is empty after a use. Pass a list."
        )
    for word in wanted:
        if isinstance(word, LoRA):
            raise ParameterError(
                f"weights_to_train contains {word!r} in a list. Pass it alone, weights_to_train=LoRA(...). Its "
                "weights= names the weights that get factors, its besides= those that are also trained."
            )
        if not isinstance(word, str):
            raise ParameterError(f"weights_to_train must contain names, patterns or steps, got {word!r:.80}. {_NAMES}")


def _check_lora(lora: LoRA, estimator: OrtGradientEstimator) -> None:
    for name, value in lora.get_params(deep=False).items():
        _check_parameter("LoRA", name, value, _OF_LORA)
    if not len(lora.weights):
        raise ParameterError("weights of LoRA is empty. Pass names or patterns; '*' matches all weight matrices.")
    if estimator.init == "random":
        raise ParameterError(
            "init='random' draws new weights, but LoRA adds factors to weights that were learned. Set init='estimator'."
        )


def check_no_inputs(estimator: OrtGradientEstimator) -> None:
    """Raise a ParameterError if a parameter is set that only ONNX models use."""
    for name in ("inputs", "batch_axis", "pad"):
        if getattr(estimator, name):
            given = "no estimator" if estimator.estimator is None else type(estimator.estimator).__name__
            raise ParameterError(f"{name}= applies to the inputs of an ONNX model, but got {given}. Leave it out.")


def _check_parameter(caller: str, name: str, value: object, constraints: dict[str, list[Any]] = PARAMETERS) -> None:
    example = _example_of(constraints[name])
    if isinstance(value, (bool, np.bool_)) and example is not None:
        raise ParameterError(f"{name} must be a number such as {example}, got {value}.")
    try:
        validate_parameter_constraints(constraints, {name: value}, caller_name=caller)
    except InvalidParameterError as e:
        words = [option for one in constraints[name] if isinstance(one, StrOptions) for option in one.options]
        near = did_you_mean(value, words).partition(" Known")[0] if isinstance(value, str) and words else ""
        key = f"weights_to_train__{name}" if caller == "LoRA" else name
        for_search = several(key, value).strip() if _are_allowed(name, value, constraints) else ""
        hint = near if near.startswith("Did") else for_search or _unquoted(name, value) or _INSTEAD.get(name, "")
        raise ParameterError(f"{e} {hint}".rstrip()) from e


def _are_allowed(name: str, values: Any, constraints: dict[str, list[Any]]) -> bool:
    """Whether a search could vary a parameter over values or a distribution."""
    if name in _SINGLE or isinstance(values, (str, type)) or not (hasattr(values, "rvs") or np.iterable(values)):
        return False
    try:
        for value in [] if hasattr(values, "rvs") else islice(values, 100):
            validate_parameter_constraints(constraints, {name: value}, caller_name="")
    except InvalidParameterError:
        return False
    return True


def _unquoted(name: str, value: object) -> str:
    """Return the remedy for a value that is a string, or an integer that is a float; empty for another value."""
    allowed, text = {**PARAMETERS, **_OF_LORA}[name], str(value).removesuffix(".0")
    if isinstance(value, (float, str)) and text.isdecimal() and _example_of(allowed) in (0, 1):
        return f"Pass the integer, {name}={text}."
    if isinstance(value, float) and math.isinf(value) and name in ("max_iter", "n_iter_no_change"):
        return f"Pass a large number for no limit, such as {name}=10**6."
    if isinstance(value, float) and _example_of(allowed) == 1:
        return "Pass an integer; in a random search, scipy.stats.randint(1, 100) draws them."
    takes_text = dict in allowed or str in allowed or (value == "None" and None not in allowed)
    return "" if takes_text else unquoted(value).strip()


def _example_of(constraints: list[Any]) -> float | None:
    """Return a number that constraints allow; None if they allow no number, or bools, too."""
    kinds = [getattr(one, "type", one) for one in constraints]
    if "boolean" in kinds or "verbose" in kinds:
        return None
    return next((number for kind, number in _NUMBERS.items() if kind in kinds), None)


_check_once = table(maxsize=256, typed=True)(_check_parameter)


@table(maxsize=16)
def defaults_of(kind: type) -> dict[str, Any]:
    """Return the defaults of the parameters of a class."""
    return {parameter.name: parameter.default for parameter in inspect.signature(kind).parameters.values()}


def is_set(estimator: Estimator, name: str) -> bool:
    """Whether a parameter has another value than its default."""
    return bool(getattr(estimator, name) != defaults_of(type(estimator))[name])


#: Parameters that a search has no reason to vary.
_SINGLE = frozenset({"features", "ignore_index", "output"})

#: A number of each type of constraint, for which scikit-learn accepts True and False.
_NUMBERS = {Real: 0.01, Integral: 1, "random_state": 0}

#: What to set instead of an invalid value of a parameter.
_INSTEAD = {
    "accumulate": "1 updates the weights after each batch.",
    "alpha": "The default of LoRA is alpha=16.",
    "besides": "Pass names or patterns of weights, or None.",
    "class_axis": "Pass the index of the axis of the classes, or None.",
    "batch_size": "For all rows in one step, set batch_size=len(X) or solver='lbfgs'.",
    "clip_norm": "Pass the largest norm of all gradients together, such as 1.0, or None to disable clipping.",
    "dtype": "Pass a string: dtype='float64' for numpy.float64 or double, 'float32' for torch.float32. Half precision "
    "is 'float16' or 'bfloat16'. Integers are those of a model: pass one that onnxruntime.quantization.quantize_static "
    "wrote.",
    "average": "True is a mean over the epochs; 0.99 is the decay of an exponential moving average.",
    "batch_axis": "Pass a mapping from input names to the axis of the rows: batch_axis={'state': 1}.",
    "class_weight": "Pass the weights of labels as a dictionary: class_weight={'rare': 10, 'common': 1}, or "
    "dict(zip(numpy.unique(y), weights)) for an array.",
    "early_stopping": "early_stopping=True holds out rows; n_iter_no_change is the number of epochs without progress.",
    "gradient_builder": "'builtin' derives the gradients here; the other needs the package onnxruntime-training-cpu.",
    "head": "'new' replaces the last layer by one with an output for each class, label or column of y; "
    "weights_to_train='head' trains it alone.",
    "features": "Pass the name of a value of the ONNX model, or None.",
    "ignore_index": "Pass the label that is not counted, such as -100, or None. Of several, make one in y.",
    "inputs": "Pass a mapping from input names to values that are the same for all rows: inputs={'rate': 16000}.",
    "init": "'estimator' starts from the weights of estimator=, 'random' from Glorot uniform ones and zero intercepts.",
    "l1": "0 is no penalty; penalty={'coef': {'l1': 0.1}} penalizes a single weight.",
    "l2": "0 is no penalty; penalty={'coef': 0.1} penalizes a single weight.",
    "merge": "Pass True or False.",
    "max_iter": "Pass a large number for no limit: tol, n_iter_no_change and early_stopping end a fit before.",
    "n_iter_no_change": "To never stop early, set tol=0 and n_iter_no_change=max_iter.",
    "n_threads": "None uses one thread for a small model, else all that this process may use.",
    "l1_method": "'penalty' adds the penalty to the loss; 'proximal' makes weights exactly zero; no penalty is l1=0.",
    "loss_params": "Pass a mapping from names to values: loss_params={'delta': 1.0}.",
    "on_interrupt": "'keep' ends the fit with the weights so far, 'raise' raises KeyboardInterrupt.",
    "output": "Pass the name or the index of an output of the ONNX model, or None. A fit trains one output; a Concat "
    "in the model joins several.",
    "output_is": "For logits, set output_is='scores'; for results of Sigmoid or Softmax, 'probabilities'.",
    "pad": "Pass a mapping from input names to the value that fills the end of shorter rows: pad={'input_ids': 0}.",
    "penalty": "Set l1= and l2= for all weights; penalty={'coef': 0.1} penalizes a single weight.",
    "random_state": "Pass an integer, such as random_state=0; of a numpy Generator, int(generator.integers(2**31)).",
    "rank": "The default of LoRA is rank=8.",
    "shuffle": "Pass True or False.",
    "tol": "To never stop early, set tol=0 and n_iter_no_change=max_iter.",
    "validation_fraction": "For a tenth of the rows, set 0.1.",
    "verbose": "0 prints nothing, 1 shows a progress bar.",
    "warm_start": "Pass True or False.",
    "weights": "Pass names or patterns of weights.",
}


def random_state_of(estimator: Estimator) -> np.random.RandomState:
    """Return the random generator for the parameter ``random_state`` of an estimator."""
    return check_random_state(vars(estimator)["random_state"])
