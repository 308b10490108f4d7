"""The table of losses, and the call of a loss with checks.

A loss is a function ``loss(op, y_true, y_pred, *, parameters) -> value`` that
returns one value per row, shape (n, 1). ``op`` is an onnxscript builder; Python's
operators and numpy's functions append the same nodes (:mod:`.operands`). The
meaning of ``y_true`` and ``y_pred`` depends on the kind of the loss:

==============  ====================  ==========================================
``Prediction``  ``y_true``            ``y_pred``
==============  ====================  ==========================================
``OUTPUT``      as the output (n, k)  the output of the model (n, k)
``LOG_MEAN``    as the output (n, k)  logarithm of the output (n, k), which is a
                                      mean and positive
``SCORES``      int64 (n, 1), index   binary decision values (n, 1), or one score
                of the class          per class (n, K)
``LIKELIHOOD``  int64 (n, 1), index   as ``SCORES``, and Sigmoid or Softmax of
                of the class          them are the probabilities of the classes
==============  ====================  ==========================================

An output of three or more axes has positions (tokens, pixels, steps). A loss is called once with one row per position,
so n is the number of rows times positions. Its ``y_pred`` is (n, K), where K is the length of the class axis, or (n, 1)
if labels have the shape of the output.

For outputs of Exp, Softmax or Sigmoid, the logarithm and the scores are the
inputs of these operators, so nothing overflows and no gradient vanishes.
"""

from __future__ import annotations

import enum
import inspect
import math
import operator
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import onnx_ir as ir

from onnxtrain.arguments import lists_its_arguments
from onnxtrain.errors import LossError, OnnxTrainError, ParameterError, as_number, unquoted
from onnxtrain.graph import Op, describe, is_float
from onnxtrain.losses.operands import WAY, OperandOp, unwrapped, wrapped
from onnxtrain.registry import Registry, did_you_mean, is_of_package
from onnxtrain.synonyms import options_of, renamed_options, several

F = TypeVar("F", bound=Callable[..., Any])


#: The names of our losses in Keras, PyTorch, XGBoost and others, for the error that proposes our name.
_OF_OTHERS = {
    "log": """
        cross_entropy crossentropy cross_entropy_loss ce ce_loss xent xentropy bce bce_loss bce_with_logits
        bce_with_logits_loss binary_cross_entropy binary_cross_entropy_with_logits binary_crossentropy
        categorical_crossentropy categorical_cross_entropy sparse_categorical_crossentropy softmax_cross_entropy
        softmax sigmoid nll nll_loss negative_log_likelihood logistic deviance binomial_deviance multinomial
        binary_logistic multi_softmax multi_softprob binary multiclass kl_div kl_divergence
    """,
    "hinge": "hinge_loss svm hinge_embedding_loss multi_margin_loss perceptron binary_hinge",
    "squared_hinge": "hinge_squared l2_hinge",
    "focal": "focal_loss sigmoid_focal_loss focal_crossentropy binary_focal_crossentropy",
    "squared_error": """
        mse mse_loss mean_squared_error mean_square_error squared squared_loss least_squares ls sse rmse
        root_mean_squared_error l2_loss quadratic regression square_loss reg_squarederror gaussian normal friedman_mse
    """,
    "absolute_error": "mae mae_loss mean_absolute_error lad l1_loss absolute regression_l1 reg_absoluteerror laplace",
    "huber": "huber_loss smooth_l1 smooth_l1_loss pseudo_huber reg_pseudohubererror",
    "quantile": "pinball pinball_loss quantile_loss mean_pinball_loss reg_quantileerror",
    "epsilon_insensitive": "svr eps_insensitive",
    "log_cosh": "logcosh log_cosh_loss",
    "poisson": "poisson_loss poisson_nll poisson_nll_loss poisson_deviance count_poisson half_poisson",
    "gamma": "gamma_deviance reg_gamma",
    "tweedie": "tweedie_deviance reg_tweedie",
}

#: Our name for each, by its name in lower-case letters and digits.
SYNONYMS = {"".join(filter(str.isalnum, name)): ours for ours, names in _OF_OTHERS.items() for name in names.split()}


class Prediction(enum.Enum):
    """The kind of ``y_pred`` that a loss receives; see the table in the module's docstring."""

    OUTPUT = "output"
    LOG_MEAN = "log_mean"
    SCORES = "scores"
    LIKELIHOOD = "likelihood"


@dataclass(frozen=True)
class Loss:
    """A loss: its function and the kind of prediction it receives."""

    function: Callable[..., ir.Value]
    prediction: Prediction = Prediction.OUTPUT
    #: A function of the parameters: the infimum of valid labels, and whether it is valid itself.
    least: Callable[..., tuple[float, bool]] = lambda **params: (-math.inf, True)

    @property
    def classifies(self) -> bool:
        """Whether ``y_true`` is the index of a class."""
        return self.prediction in (Prediction.SCORES, Prediction.LIKELIHOOD)


LOSSES: Registry[Loss] = Registry("loss", LossError, SYNONYMS)


@lists_its_arguments
def loss(
    *names: str,
    prediction: Prediction | str = Prediction.OUTPUT,
    least: Callable[..., tuple[float, bool]] = Loss.least,
    override: bool = False,
) -> Callable[[F], F]:
    """Register a loss under one or several names.

    Parameters
    ----------
    *names : str
        The names that ``loss`` accepts.
    prediction : Prediction or str
        The kind of ``y_pred``: ``"output"``, ``"log_mean"``, ``"scores"`` or ``"likelihood"``.
    least : callable, optional
        ``least(**parameters) -> (number, allowed)``: the infimum of the labels for which the loss has a minimum, and
        whether a label may equal it. :class:`~onnxtrain.OrtGradientRegressor` refuses lower labels.
    override : bool
        Replace a registered loss of that name.

    Returns
    -------
    callable
        A decorator for ``function(op, y_true, y_pred, *, parameters) -> (n, 1)``. Its keyword-only
        arguments are the parameters of the loss. It raises LossError if one is out of range.

    Raises
    ------
    ParameterError
        One of the names is already registered.

    Examples
    --------
    >>> from onnxtrain.losses import loss
    >>> @loss("cubed_error")
    ... def cubed_error(op, y_true, y_pred):
    ...     cubed = op.Pow(op.Abs(op.Sub(y_pred, y_true)), 3.0)
    ...     return op.ReduceSum(cubed, [1], keepdims=1)
    """
    LOSSES.check_names(names)
    kinds = [kind.value for kind in Prediction]
    if prediction not in (*kinds, *Prediction):
        raise ParameterError(f"prediction must be one of {', '.join(map(repr, kinds))}, got {prediction!r:.80}.")
    if not callable(least):
        raise ParameterError(
            f"least must be a function of the parameters of the loss that returns the least label and whether a label "
            f"may equal it, got {least!r:.80}. Pass least=lambda: ({least!r:.80}, True)."
        )

    def decorate(function: F) -> F:
        _check_order(names[0], function)
        LOSSES.register(*names, override=override, definition=function)(Loss(function, Prediction(prediction), least))
        return function

    return decorate


def find_loss(
    loss: str | Callable[..., ir.Value], params: Mapping[str, Any] | None = None, *, classifies: bool = False
) -> Loss:
    """Return the table entry of a loss, given by name or as a user's function.

    Parameters
    ----------
    loss : str or callable
    params : mapping, optional
        Parameters of the loss; only their names are checked here.
    classifies : bool
        Whether a function that is not in the table receives the scores and the class index; otherwise it receives the
        output and a label of its shape.

    Raises
    ------
    LossError
        The name or the name of a parameter is unknown, or `loss` is neither a name nor callable.
    """
    if isinstance(loss, type):
        ours = SYNONYMS.get(loss.__name__.casefold())
        remedy = f"Pass {loss.__name__}()." if ours is None else f"Did you mean {ours!r}?"
        raise LossError(f"loss must be an instance or a name, got the class {loss.__name__}. {remedy}")
    _check_library(loss)
    if callable(loss):
        default = Loss(loss, Prediction.LIKELIHOOD if classifies else Prediction.OUTPUT)
        entry = next((known for known in LOSSES.values() if known.function is loss), default)
        _check_order(_name(loss), entry.function)
    elif isinstance(loss, str):
        entry = LOSSES.find(loss)
    else:
        remedy = several("loss", loss) or f" {LOSSES.hint(loss)}"
        if isinstance(loss, Mapping):
            remedy = " Pass the loss of one output, such as loss='log', and name this output with output=."
        found = repr(loss)
        if hasattr(loss, "shape"):
            found, remedy = f"an array of shape {loss.shape}", " Pass the function itself, without calling it."
        raise LossError(f"loss must be a name or a function, got {found}.{remedy}")
    _check_names(_name(loss), entry.function, params or {})
    return entry


def our_name(name: str) -> str | None:
    """Return our name for a loss that another library calls `name`, or None.

    Examples
    --------
    >>> our_name("count:poisson"), our_name("MSELoss"), our_name("rank:pairwise")
    ('poisson', 'squared_error', None)
    """
    known = {ours.replace("_", ""): ours for ours in LOSSES} | SYNONYMS
    return known.get("".join(filter(str.isalnum, name.casefold())))


#: Libraries whose losses compute with arrays of their own.
_LIBRARIES = ("jax", "keras", "mlx", "optax", "pandas", "scipy", "sklearn", "tensorflow", "torch", "xgboost")

#: Operators for functions of scipy.special that are no ufuncs.
_OF_SCIPY = (
    "Use op.Softmax(x, axis=1) for softmax, op.LogSoftmax(x, axis=1) for log_softmax, op.ReduceLogSumExp(x, [1], "
    "keepdims=1) for logsumexp, and numpy functions."
)


def _check_library(loss: object) -> None:
    """Raise a LossError for a loss object or function of another library, with our name for it."""
    loss = getattr(loss, "_score_func", loss)  # of a scorer of scikit-learn
    made_by = getattr(loss, "__module__", None) or type(loss).__module__
    library = made_by.partition(".")[0]
    if library not in _LIBRARIES:
        return
    name = getattr(loss, "__name__", type(loss).__name__)
    shown = f"{loss!r:.80}" if name == type(loss).__name__ and repr(loss)[0] != "<" else name
    ours = our_name(name)
    example = "loss=lambda op, y_true, y_pred: abs(y_true - y_pred)"
    remedy = f"Write it as a function of the graph, such as {example}." if ours is None else _with_options(ours, loss)
    raise LossError(f"loss must be a name or a function of (op, y_true, y_pred), got {shown} of {library}. {remedy}")


#: Options of losses of PyTorch that are parameters of the estimators.
_OF_ESTIMATORS = {"ignore_index": "ignore_index", "pos_weight": "class_weight", "weight": "class_weight"}


def _with_options(ours: str, loss: Any) -> str:
    """Return the code for a loss object of another library, with its options."""
    known = {p.name: p.default for p in _signature_of(LOSSES[ours].function) if p.kind is p.KEYWORD_ONLY}
    given = {} if isinstance(loss, type) else renamed_options(loss, known)
    params = {name: value for name, value in given.items() if value != known[name]}
    times, others = "", []
    if (beta := getattr(loss, "beta", 1.0)) != 1.0:  # of SmoothL1Loss
        params, times = {"delta": beta}, f", which is {beta!r} times this loss"
    for option, value in _changed_options(loss).items():
        if option in _OF_ESTIMATORS:
            others.append(f" For its {option}, set {_OF_ESTIMATORS[option]} of OrtGradientClassifier.")
        elif _PARAMETERS_OF_OTHERS.get(option, option) not in known:
            others.append(f" It has no {option}={value!r:.40}.")
    return f"Pass loss={ours!r}{f', loss_params={params!r}' if params else ''}{times}.{''.join(others)}"


def _changed_options(loss: Any) -> dict[str, Any]:
    """Return the options of a loss object of PyTorch or Keras whose values are not the default ones."""
    try:
        given, usual = options_of(loss), options_of(type(loss)())
    except (TypeError, ValueError):  # a function, or a class with required options
        return {}
    return {name: x for name, x in given.items() if name in usual and repr(x) != repr(usual[name])}


def loss_kind(loss: str | Callable[..., ir.Value]) -> str:
    """Return ``"regression"``, ``"classification"`` or, for a function not in the table, ``"custom"``.

    Examples
    --------
    >>> loss_kind("huber"), loss_kind("hinge"), loss_kind(lambda op, y_true, y_pred: y_pred)
    ('regression', 'classification', 'custom')
    """
    if callable(loss) and all(loss is not entry.function for entry in LOSSES.values()):
        return "custom"
    return "classification" if find_loss(loss).classifies else "regression"


def row_loss(
    op: Op, loss: str | Callable[..., ir.Value], y_true: ir.Value, y_pred: ir.Value, params: Mapping[str, Any]
) -> ir.Value:
    """Append the nodes of a loss and return its value for each row, (n, 1).

    Raises
    ------
    LossError
        A parameter is unknown or out of range, or a user's function did not
        return a float value of shape (n, 1) or (n,).
    """
    name, entry = _name(loss), find_loss(loss, params)
    try:
        if is_of_package(entry.function):  # no losses of this package use Python's operators or numpy's functions
            rows = entry.function(op, y_true, y_pred, **params)
        else:
            own = OperandOp(op, y_pred.dtype, None if is_float(y_true) else y_true)
            rows = unwrapped(entry.function(own, *wrapped([y_true, y_pred], own), **params))
    except (OnnxTrainError, AttributeError, TypeError, ValueError) as e:
        if library := _library_of(e):
            remedy = "Use op, Python operators and numpy functions, such as numpy.abs(y_true - y_pred)."
            raise LossError(
                f"The loss {name!r} calls a function of {library}, which takes no values of the graph. "
                f"{_OF_SCIPY if library == 'scipy' else remedy}"
            ) from e
        if isinstance(e, OnnxTrainError):
            raise
        said = f"The loss {name!r} failed when it was called with (op, y_true, y_pred): {e}".rstrip(".")
        raise LossError(f"{said}. {_way(loss, e)}") from e
    if isinstance(rows, ir.Value) and rows.shape is not None and _one_per_row(rows.shape, y_true):
        rows = op.Unsqueeze(rows, [1])
    _check_rows(name, rows, y_true, y_pred)
    return rows


def _way(loss: str | Callable[..., ir.Value], failure: Exception) -> str:
    """Return the remedy for a failed loss function: a loss of another library, or a function of other arguments."""
    theirs = getattr(loss, "__name__", type(loss).__name__)  # MSELoss() of PyTorch has none
    ours = SYNONYMS.get("".join(filter(str.isalnum, theirs.casefold())))
    if ours is not None:
        return f"Did you mean {ours!r}?"
    missing = re.search(r"missing .* argument: '(\w+)'", str(failure))
    if missing and missing[1] == "sample_weight":
        return "Leave it out: the values of the rows are multiplied by their weights after the call."
    if missing and missing[1] not in _OPERANDS:
        return f"Give it a default value, or pass loss_params={{{missing[1]!r}: ...}}."
    if "{'axis'}" in str(failure) or "{'axes'}" in str(failure):
        return "The axes of a reduction are its second input: op.ReduceSum(x, [1], keepdims=1), or x.sum(axis=1)."
    if found := re.search(r"numpy array dtype float64 does not match the IR data type (\w+)", str(failure)):
        dtype = ir.DataType[found[1]].numpy().name
        return f"Convert the array, array.astype({dtype!r}), or use Python operators, as in array * (y_true - y_pred)."
    return WAY if "'Operand'" in str(failure) else "For example: lambda op, y_true, y_pred: abs(y_true - y_pred)."


def _library_of(failure: Exception) -> str:
    """Return the library whose function failed on a value of the graph; empty if it is none of the known ones."""
    frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(failure.__traceback__))
    used = [library for name in frames if (library := name.partition(".")[0]) in _LIBRARIES]
    compiled = re.search(r"\bTensor\b.*\bOperand\b|\bOperand\b.*\bTensor\b", str(failure), re.DOTALL)
    return used[0] if used else "torch" if compiled else ""


def _one_per_row(shape: ir.Shape, y_true: ir.Value) -> bool:
    """Whether a shape is (n,); with a constant n, (n,) could be another axis of this length."""
    n = y_true.shape[0]  # type: ignore[index]
    return len(shape) == 1 and isinstance(n, ir.SymbolicDim) and shape[0] == n


def _check_rows(name: str, rows: object, y_true: ir.Value, y_pred: ir.Value) -> None:
    """Raise a LossError if a loss returned anything but floats of shape (n, 1), one for each row of the batch."""
    if not isinstance(rows, ir.Value):
        found = f"a {type(rows).__name__} of {len(rows)}" if isinstance(rows, (dict, list, tuple)) else ""
        found = found or f"{type(rows).__name__}: {rows!r:.80}"
        raise LossError(f"The loss {name!r} must return a value of the graph, got {found}.{_instead_of(rows)}")
    if not is_float(rows) or rows.shape is None or len(rows.shape) != 2 or rows.shape[1] != 1:
        raise LossError(
            f"The loss {name!r} must return floats of shape (n, 1), one for each row, got {describe(rows)}. "
            f"{_as_one_per_row(rows, y_true, y_pred)}"
        )
    n, expected = rows.shape[0], y_true.shape[0]  # type: ignore[index]
    if isinstance(n, int) and n > 1 and not isinstance(expected, int):
        raise LossError(
            f"The loss {name!r} must return one value per row of a batch, but returned {n} for any batch. An array in "
            "it must not have an axis of rows. Pass weights of rows to fit(X, y, sample_weight)."
        )
    if n == 1 != expected:
        raise LossError(
            f"The loss {name!r} must return one value per row, but returned {describe(rows)} for {describe(y_true)}. "
            "Leave out the mean or the sum over the rows; the objective is the mean of these values. To reduce outputs "
            "only, use x.mean(axis=1, keepdims=True) or op.ReduceMean(x, [1], keepdims=1)."
        )
    if isinstance(n, ir.SymbolicDim) and str(n.value).startswith(f"{expected}*"):
        raise LossError(
            f"The loss {name!r} must return one value per row, but returned {describe(rows)} for {describe(y_true)}. "
            "Sum over outputs with x.sum(axis=1, keepdims=True)."
        )


def _instead_of(returned: object) -> str:
    """Return the remedy for a loss that returned an object that is not in the graph."""
    if returned is None:
        return " Begin its last line with return."
    if isinstance(returned, str) and returned in LOSSES:
        return f" Pass the name itself: loss={returned!r}."
    if isinstance(returned, (dict, list, tuple)):
        return (
            " Return the loss alone: unlike in XGBoost and LightGBM, its derivatives are not returned. The sum of "
            "several terms is one loss."
        )
    return " Compute it from y_true and y_pred, such as abs(y_true - y_pred)."


def _as_one_per_row(returned: ir.Value, y_true: ir.Value, y_pred: ir.Value) -> str:
    """Return the remedy for a loss that returned a value of another type or shape than floats (n, 1)."""
    if returned.shape is not None and not len(returned.shape):
        return "Leave out the mean or the sum over the rows; the objective is the mean of these values."
    if returned.dtype is ir.DataType.BOOL:
        return "A comparison has no derivative. A smooth form of a > b is op.Sigmoid(a - b)."
    if not is_float(returned):
        return "Convert it to floats: op.CastLike(x, y_pred)."
    if _width(returned) not in {None, _width(y_pred), _width(y_true)}:
        return (
            f"An array of {_width(returned)} numbers in it was computed with each row. Pass weights of rows to "
            "fit(X, y, sample_weight). Otherwise: sum over outputs with x.sum(axis=1, keepdims=True) or "
            "op.ReduceSum(x, [1], keepdims=1)."
        )
    return "Sum over outputs with x.sum(axis=1, keepdims=True) or op.ReduceSum(x, [1], keepdims=1)."


def _width(x: ir.Value) -> int | None:
    """Return the length of the second axis; None if it is unknown."""
    width = x.shape[1] if x.shape is not None and len(x.shape) > 1 else None
    return width if isinstance(width, int) else None


_OPERANDS = ("op", "y_true", "y_pred")

_COMPARED = {">": operator.gt, ">=": operator.ge, "<": operator.lt}


def check_number(
    value: object, name: str, *, above: float | None = None, at_least: float | None = None, below: float | None = None
) -> float:
    """Return `value` as a float, or raise a LossError that names the parameter and its range."""
    bounds = [
        (sign, bound) for sign, bound in zip(_COMPARED, (above, at_least, below), strict=True) if bound is not None
    ]
    number = as_number(value)
    if math.isfinite(number) and all(_COMPARED[sign](number, bound) for sign, bound in bounds):
        return number
    several = hasattr(value, "__len__") and not isinstance(value, str)
    one = " Pass one number, and fit an estimator for each." if several else ""
    if below == 1 and 1 < number < 100:
        one = f" {number:g} percent is {name}={number / 100:g}."
    expected = " and".join(f" {sign} {bound:g}" for sign, bound in bounds)
    raise LossError(f"{name} must be a finite number{expected}, got {value!r}.{unquoted(value) or one}")


def _name(loss: str | Callable[..., ir.Value]) -> str:
    return loss if isinstance(loss, str) else getattr(loss, "__name__", repr(loss))


#: Names that functions give to labels and to predictions.
_OF_LABELS = frozenset({"label", "labels", "target", "targets", "true", "truth", "y_true", "y_label", "y_test"})
_OF_PREDICTIONS = frozenset({"input", "logits", "output", "outputs", "pred", "preds", "prediction", "predictions"})
_OF_PREDICTIONS |= {"scores", "y_hat", "yhat", "y_pred", "y_score", "y_scores"}


def _check_order(name: str, function: Callable[..., Any]) -> None:
    """Raise a LossError if a function names the prediction before the label: both are passed by position."""
    operands = [p.name for p in _signature_of(function)][:3]
    if operands[1:2] and operands[1] in _OF_PREDICTIONS and operands[2:3] and operands[2] in _OF_LABELS:
        raise LossError(
            f"The loss {name!r} is called with (op, y_true, y_pred), but its parameters are ({', '.join(operands)}), "
            f"with the prediction first. Swap {operands[1]} and {operands[2]}."
        )


def _signature_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function; empty for a callable written in C, which has no signature."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


#: Parameters of losses in scikit-learn, LightGBM and PyTorch, and their names here.
_PARAMETERS_OF_OTHERS = {
    **dict.fromkeys(("epsilon", "beta", "threshold"), "delta"),
    **dict.fromkeys(("quantile", "alpha", "quantilealpha", "tau", "level"), "q"),
    **dict.fromkeys(("p", "variancepower", "tweedievariancepower"), "power"),
}


def _check_names(name: str, function: Callable[..., Any], params: Mapping[str, Any]) -> None:
    found = _signature_of(function) if params else []
    if not found or any(p.kind is p.VAR_KEYWORD for p in found):
        return
    given = [p.name for p in found if p.kind is p.POSITIONAL_OR_KEYWORD][3:]
    known = [*(p.name for p in found if p.kind is p.KEYWORD_ONLY), *given]
    for param in params:
        if not isinstance(param, str):
            raise LossError(
                f"The parameters of the loss {name!r} have names, got {param!r:.80}. "
                f"{'For example: ' + repr({known[0]: params[param]}) if known else 'It has none'}."
            )
        if param not in known:
            renamed = _PARAMETERS_OF_OTHERS.get(param.replace("_", "")) in known
            raise LossError(
                f"The loss {name!r} has no parameter {param!r}. {did_you_mean(param, known, _PARAMETERS_OF_OTHERS)}"
                f"{'' if renamed else _remedy_of_param(name, param, params)}"
            )


def _remedy_of_param(name: str, param: str, params: Mapping[str, Any]) -> str:
    """Return the remedy for an unknown parameter of a loss, with a leading space; empty if there is none."""
    if param in ("reduce", "reduction", "size_average"):
        return " Leave it out: the objective is the mean over the rows, weighted by sample_weight."
    if "weight" in param or (name, param) == ("focal", "alpha"):
        return (
            " Weights of rows are sample_weight of fit, or weight_name of add_loss_output; weights of classes are "
            "class_weight of OrtGradientClassifier."
        )
    if param in ("l1", "l2"):
        return (
            f" It is a parameter of the estimators; add_loss_output takes it by the name of the weight, "
            f"penalty={{name: {{{param!r}: 0.1}}}}."
        )
    owners = [n for n, entry in LOSSES.items() if param in inspect.signature(entry.function).parameters]
    if not owners or param in _OPERANDS:
        return ""
    grids = f"{{'loss': [{owners[0]!r}], 'loss_params': [{params!r:.80}]}}, {{'loss': [{name!r}]}}"
    return (
        f" It is a parameter of {', '.join(map(repr, owners))}. In a search, each loss has a grid of its own: "
        f"[{grids}]."
    )
