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
from types import MethodType
from typing import Any, ParamSpec, Self, TypeVar

from onnxtrain.cache import table
from onnxtrain.dialects import for_call
from onnxtrain.errors import ArgumentTypeError, OnnxTrainError, ParameterError
from onnxtrain.registry import did_you_mean
from onnxtrain.synonyms import OF_FUNCTIONS, OURS, REMEDIES, REMEDY_OF, SYNONYMS, advice, key_of, synonym

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

#: Parameters that are set as a whole, and a value of each.
_WHOLE = {
    "batch_axis": "{'state': 1}",
    "inputs": "{'rate': 16000}",
    "learning_rate": "onnxtrain.optim.Cosine(0.1)",
    "pad": "{'input_ids': 0}",
    "penalty": "{'coef': 0.1}",
    "solver": "onnxtrain.optim.SGD(momentum=0.9)",
}


class NamesItsParameters:
    """A mixin for classes with keyword parameters: an unknown parameter raises an error that names the intended one.

    The mixin comes after the class that defines ``__init__`` in the list of bases.
    """

    #: The end of the message about too many positional arguments.
    _hint_by_name = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Check the names of the arguments; ``__init__`` stores them."""
        signature = _signature(cls)
        if inspect.isabstract(cls):
            missing = " and ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            raise ArgumentTypeError(
                f"{cls.__name__} lacks the method {missing}. Define it in a class derived from {cls.__name__}, or use "
                "a class of onnxtrain.optim, such as SGD() or Cosine()."
            )
        if unknown := signature.unknown(kwargs):
            if unknown == "alpha" and kwargs.get("loss") == "quantile":  # as in GradientBoostingRegressor
                raise ArgumentTypeError(f"{cls.__name__} has no parameter 'alpha'. {REMEDIES['quantile']}")
            model = args[0] if args else kwargs.get("estimator")
            raise ArgumentTypeError(_unknown_parameter(cls, unknown, signature.names) + _of_model(model, unknown))
        if len(args) > signature.n_positional:
            raise ArgumentTypeError(_too_many(cls, signature, args))
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
        return (said + advice(name, ())).rstrip() if key_of(name) in REMEDY_OF else said.rstrip()
    near = difflib.get_close_matches(name, of_model, n=1, cutoff=0.8) or [
        n for n in of_model if name.endswith(f"__{n}")
    ]
    outer, _, last = name.partition("__")
    if "__" in name and near and outer != cls.__name__.lower():  # the name of the step of a pipeline
        either = f"{last!r} or " if last in known else ""
        return f"{said}Did you mean {either}'estimator__{max(near, key=len)}'?"
    ours = OURS.get(key_of(outer), outer)
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
        last = name.rpartition("__")[2]
        ends = [each for each in known if each.rpartition("__")[2] == last]
        near = difflib.get_close_matches(name, ends or known, n=1, cutoff=0.0 if ends else 0.6)
        hint = f"Did you mean '{outer}__{near[0]}'?" if near else f"See {outer}.get_params()."
        if last in ours:
            hint = f"{last!r} is a parameter of the estimator around it: set {last!r} without a prefix."
        raise ParameterError(f"{outer}, a {type(value).__name__}, has no parameter {name!r}. {hint}")


def _of_model(model: object, name: str) -> str:
    """Return the end of a message about a parameter that the model of the estimator has; empty if it has none."""
    if not hasattr(model, "get_params") or isinstance(model, type) or name not in model.get_params():
        return ""
    return f" It is a parameter of the model: {type(model).__name__}({name}=...)."


def _too_many(cls: type[NamesItsParameters], signature: _Signature, args: Sequence[Any]) -> str:
    """Return the message for a constructor call with too many positional arguments."""
    n, others = signature.n_positional, signature.names[signature.n_positional :]
    said = f"{cls.__name__} takes {n or 'no'} positional argument{'s' * (n != 1)}, got {len(args)}"
    if hasattr(cls, "fit") and hasattr(args[n], "shape"):
        said += f". Pass rows and targets to fit: {cls.__name__}(model).fit(X, y)"
    elif others:
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
                hint = did_you_mean(unknown[0], names, OURS | OF_FUNCTIONS).partition("Known")[0]
                if name == "load" and (ours := synonym(unknown[0]) or unknown[0]) in SYNONYMS:
                    hint = f"{ours} is a parameter of the estimator: load(path).set_params({ours}=...). "
                if name == "plot_graph" and OF_FUNCTIONS.get(key_of(unknown[0]), unknown[0]) == "path":
                    hint = "To write the picture, use plot_graph(model).save(path). "
                said = f"{name}: got an unexpected keyword argument {unknown[0]!r}. {hint}"
                raise ArgumentTypeError(f"{said}{listed}") from None
            positional = ", ".join(name for name in names if name not in by_name.split(", "))
            some = f"only {positional} by position, and " if positional else ""
            remedy = f" Pass {some}{by_name} by name." if by_name and "too many positional" in str(e) else ""
            raise ArgumentTypeError(f"{name}: {e}. {listed}{remedy}") from None
        return function(*args, **kwargs)

    return checked


def seeded(make: Callable[[Any], T], random_state: Any) -> T:
    """Return a random number generator; raise a ParameterError if `random_state` is not a seed."""
    try:
        return make(random_state)
    except (TypeError, ValueError) as e:
        raise ParameterError(
            f"random_state must be a non-negative integer or None, got {random_state!r:.80}. For example, pass "
            "random_state=0."
        ) from e


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


#: What to do with the result of a method without arguments.
_OF_RESULTS = {"to_sklearn": " To write its result to a file, use joblib.dump(model.to_sklearn(), path)."}


#: What to do instead of passing several arguments to predict by position.
_OF_PREDICTIONS = "Pass all rows as one array, [[5.1, 3.5]] for one row. Use score(X, y) to compare predictions with y."


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
        return f"{name} takes no arguments, got {n_given}.{_OF_RESULTS.get(method, '')}"
    positional = ", ".join(signature.names[: signature.n_positional])
    remedy = "Pass the others by name." if len(signature.names) > signature.n_positional else "It takes no others."
    if "X_val" in signature.names:
        remedy = "Pass the others by name, a validation set as X_val=..., y_val=..."
    remedy = _OF_PREDICTIONS if method.startswith("predict") else remedy
    return f"{name} takes only {positional} by position, got {n_given} arguments. {remedy}"


#: The similarity of a name with one more letter, such as label and labels.
_NEAR = 0.85


def _place(cls: type, method: str, name: str, known: Sequence[str]) -> str:
    """Return advice on an argument that a method does not have: the parameter of the estimator, or a near name."""
    near = difflib.get_close_matches(key_of(name), known, n=1, cutoff=_NEAR)
    if near and method not in ("fit", "partial_fit"):  # whose remedies say more
        return f"Did you mean {near[0]!r}?"
    parameters = _signature(cls).names
    ours = name if name in parameters else OURS.get(key_of(name))
    if method == "partial_fit" and ours == "max_iter":
        return "One call trains one epoch: call it once for each."
    if REMEDY_OF.get(key_of(name)) == "num_classes" and not getattr(cls, "_classifies", True):
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
