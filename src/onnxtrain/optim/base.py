r"""The optimizer interface: a frozen value that appends its update to a graph.

Conventions of this package: ``w`` is a weight and ``dw`` its gradient, of the same
shape; a *slot* is optimizer state of that shape (a velocity, a moment);
:math:`\eta` is the learning rate; :math:`t` is the step number, starting at 1.
Every update is elementwise, so several weights may be concatenated into one
vector and updated together.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, fields
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike

from onnxtrain.arguments import NamesItsParameters, lists_its_arguments
from onnxtrain.errors import OptimizerError, as_number, unquoted
from onnxtrain.graph import Op, static_shape
from onnxtrain.registry import Registry
from onnxtrain.synonyms import renamed_options, several

#: A per-step scalar: a value of the graph, or an array of one number per step.
Scalar: TypeAlias = "ir.Value | np.ndarray | float"

#: The slots of a weight, in the order of their names.
Slots: TypeAlias = tuple[ir.Value, ...]

#: The next weight and its next slots.
Updated: TypeAlias = tuple[ir.Value, Slots]

OPTIMIZERS: Registry[type[Optimizer]] = Registry("solver", OptimizerError)
T = TypeVar("T", bound="type[Optimizer]")


@lists_its_arguments
def optimizer(*names: str, override: bool = False) -> Callable[[T], T]:
    """Register an optimizer class under names that ``solver`` accepts.

    Parameters
    ----------
    *names : str
        The names that ``solver`` accepts.
    override : bool
        Replace a registered optimizer of that name.

    Returns
    -------
    callable
        A decorator for a subclass of :class:`Optimizer`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from onnxtrain.optim import OPTIMIZERS, SGD, make_optimizer, optimizer
    >>> @optimizer("heavy_ball")
    ... @dataclass(frozen=True)
    ... class HeavyBall(SGD):
    ...     momentum: float = 0.9
    >>> make_optimizer("heavy_ball")
    HeavyBall(momentum=0.9, nesterov=False)
    >>> OPTIMIZERS.unregister("heavy_ball")
    """
    OPTIMIZERS.check_names(names)

    def decorate(kind: T) -> T:
        if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
            raise OptimizerError(f"The solver {names[0]!r} must be a class derived from Optimizer, got {kind!r:.80}.")
        return OPTIMIZERS.register(*names, override=override)(kind)

    return decorate


#: Parameters of schedules that are a fraction of the steps, which other libraries give as a number of steps.
_OF_ALL_STEPS = ("pct_start", "warmup")


def check_ranges(owner: object, ranges: Mapping[str, str]) -> None:
    """Raise an OptimizerError unless each parameter named in `ranges` is a number in its interval."""
    for name, interval in ranges.items():
        low, high = map(float, interval[1:-1].split(","))
        value = getattr(owner, name)
        number = as_number(value)
        above = number >= low if interval.startswith("[") else number > low
        below = number <= high if interval.endswith("]") else number < high
        if not (above and below):
            share = f" It is the share of the steps: {name}=0.1 is a tenth." if name in _OF_ALL_STEPS else ""
            divisor = f" The rate is divided by it: {name}={1 / number:g}." if low == 1 and 0 < number < 1 else ""
            raise OptimizerError(
                f"{type(owner).__name__}: {name} must be a number in {interval}, got {value!r}.{share}{divisor}"
                f"{unquoted(value)}"
            )


class Optimizer(NamesItsParameters, ABC):
    """Base class of optimizers; a subclass is a frozen dataclass of its parameters.

    The subclass names its state in :attr:`slots` and gives the initial values in :meth:`initial`. :meth:`scalars`
    computes the per-step scalars that all weights share, and :meth:`update` returns the next weight and the next slots.
    :meth:`pull` and :meth:`metric` are needed only by :class:`~onnxtrain.optim.Proximal`.

    Examples
    --------
    The step depends only on the sign of the gradient, as in Rprop:

    >>> from dataclasses import dataclass
    >>> from onnxtrain.optim import Optimizer
    >>> @dataclass(frozen=True)
    ... class SignSGD(Optimizer):
    ...     def update(self, op, w, dw, slots, *scalars, slope=None):
    ...         return op.Sub(w, op.Mul(op.Sign(dw), scalars[0])), ()
    >>> from onnxtrain import OrtGradientRegressor
    >>> line = OrtGradientRegressor(init="random", solver=SignSGD(), learning_rate=0.5, max_iter=4, tol=0)
    >>> float(line.fit([[1.0]], [9.0]).weights_["intercept"][0])  # four steps of 0.5
    2.0
    """

    slots: ClassVar[tuple[str, ...]] = ()
    #: The interval of each parameter that has one, such as ``"[0, 1)"``.
    ranges: ClassVar[Mapping[str, str]] = {}
    _hint_by_name = "The learning rate is a parameter of the estimator: OrtGradientRegressor(learning_rate=...)."

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(cls.slots, str):  # the names would be its letters
            raise OptimizerError(
                f"{cls.__name__}: slots must be a tuple of names, got the string {cls.slots!r}. Write "
                f"slots = ({cls.slots!r},)."
            )
        if isinstance(cls.slots, tuple) and len({*cls.slots}) < len(cls.slots):
            raise OptimizerError(f"{cls.__name__}: the names of the slots must differ, got {cls.slots!r}.")

    def __init__(self) -> None:
        """Do nothing: a subclass is a dataclass, which has its own."""

    def __post_init__(self) -> None:
        check_ranges(self, self.ranges)
        for field in fields(self):  # type: ignore[arg-type]  # each subclass is a dataclass
            value = getattr(self, field.name)
            if isinstance(field.default, bool) and not isinstance(value, (bool, np.bool_)):
                raise OptimizerError(
                    f"{type(self).__name__}: {field.name} must be True or False, got {value!r}. The learning rate is a "
                    "parameter of the estimator, learning_rate=."
                )

    def initial(self, slot: str) -> float:
        """Return the initial value of the entries of a slot.

        Parameters
        ----------
        slot : str
            One of :attr:`slots`.

        Returns
        -------
        float
            The value of all entries before the first step.

        Examples
        --------
        >>> from onnxtrain.optim import Adagrad
        >>> Adagrad(initial_accumulator_value=0.1).initial("sum")
        0.1
        """
        return 0.0

    def scalars(self, op: Op, learning_rate: Scalar, step: Scalar) -> tuple[Any, ...]:
        """Return the per-step scalars of :meth:`update` for a learning rate and a step number.

        The method uses only Add, Sub, Mul, Div, Exp and Sqrt of `op`, so that it also runs on arrays, see
        :meth:`scalar_table`.

        Parameters
        ----------
        op : onnxscript builder, or an object with its operators
            It adds nodes: ``op.Add(a, b)``.
        learning_rate, step : onnx_ir.Value, array or float
            The learning rate and the number of the step, from 1.

        Returns
        -------
        tuple
            The scalars, in the order in which :meth:`update` takes them.

        Examples
        --------
        >>> from onnxtrain.optim import SGD
        >>> SGD().scalars(None, 0.1, 1)
        (0.1,)
        """
        return (learning_rate,)

    @abstractmethod
    def update(
        self, op: Op, w: ir.Value, dw: ir.Value, slots: Slots, *scalars: ir.Value, slope: ir.Value | None = None
    ) -> Updated:
        """Return the next weight and the next slots.

        Parameters
        ----------
        op : onnxscript builder
            It adds nodes: ``op.Add(a, b)``.
        w, dw : onnx_ir.Value
            A weight and its gradient.
        slots : tuple of onnx_ir.Value
            One for each name in :attr:`slots`.
        *scalars : onnx_ir.Value
            The results of :meth:`scalars`, of the type of `w`; a wrapper may pass more.
        slope : onnx_ir.Value, optional
            The gradient of the whole objective, if `dw` excludes the gradient of an l1 penalty. The mean squares are
            computed from it. Only :class:`~onnxtrain.optim.Proximal` passes it.

        Returns
        -------
        w, slots
            The next weight, and the next slots in the order of :attr:`slots`.

        Examples
        --------
        The nodes that gradient descent adds to a graph:

        >>> import onnx_ir as ir
        >>> from onnxtrain.graph import builder
        >>> from onnxtrain.optim import SGD
        >>> build = builder(ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 21}), ir_version=10))
        >>> w, dw, rate = (build.input(name, ir.DataType.FLOAT, [3]) for name in ("w", "dw", "rate"))
        >>> next_w, slots = SGD().update(build.op, w, dw, (), rate)
        >>> [node.op_type for node in next_w.producer().graph], slots
        (['Mul', 'Sub'], ())
        """

    def without_decay(self) -> Optimizer:
        """Return the same optimizer without weight decay, for the intercepts.

        Examples
        --------
        >>> from onnxtrain.optim import AdamW
        >>> AdamW(weight_decay=0.1).without_decay()
        AdamW(beta_1=0.9, beta_2=0.999, epsilon=1e-08, weight_decay=0.0)
        """
        return self

    def pull(self, op: Op, step: Scalar) -> Scalar | None:
        """Return the total factor with which this step applies all gradients so far, or None if it is 1.

        :class:`~onnxtrain.optim.Proximal` multiplies its threshold by this factor. The method is restricted to the same
        operators as :meth:`scalars`.

        Parameters
        ----------
        op : onnxscript builder, or an object with its operators
            It adds nodes: ``op.Add(a, b)``.
        step : onnx_ir.Value, array or float
            The number of the step, from 1.

        Returns
        -------
        onnx_ir.Value, array or float, or None
            How far this step moves a weight if all gradients so far are 1 and the learning rate is 1; None for 1.

        Examples
        --------
        Momentum accumulates the gradients, plain gradient descent does not:

        >>> from onnxtrain.optim import SGD
        >>> SGD().pull(None, 1) is None
        True
        """
        raise NotImplementedError

    def metric(self, op: Op, slots: Slots, *scalars: ir.Value) -> ir.Value | None:
        """Return the elementwise divisor of the gradient in :meth:`update`, or None if it is 1.

        The divisor is computed from the next slots. The step is the first scalar times the gradient, divided by this
        metric.

        Parameters
        ----------
        op : onnxscript builder
            It adds nodes: ``op.Add(a, b)``.
        slots : tuple of onnx_ir.Value
            The next slots.
        *scalars : onnx_ir.Value
            The scalars of the step.

        Returns
        -------
        onnx_ir.Value or None
            The divisor, in the shape of the weight.

        Examples
        --------
        >>> from onnxtrain.optim import SGD
        >>> SGD().metric(None, ()) is None
        True
        """
        return None

    def scalar_table(self, learning_rates: ArrayLike, steps: ArrayLike) -> np.ndarray:
        """Return the values of :meth:`scalars` for many steps, computed in float64.

        Feeding these values to the step saves a dozen nodes in its graph.

        Parameters
        ----------
        learning_rates, steps : array-like of shape (n_steps,)
            The learning rate and the number of each step, from 1.

        Returns
        -------
        numpy.ndarray of shape (n_steps, n_scalars), float64
            One row per step.

        Examples
        --------
        >>> from onnxtrain.optim import SGD
        >>> SGD().scalar_table([0.1, 0.05], [1, 2]).tolist()
        [[0.1], [0.05]]
        """
        rates, steps = np.asarray(learning_rates, np.float64), np.asarray(steps, np.float64)
        return np.stack(self.scalars(ON_ARRAYS, rates, steps), axis=1)


#: The arithmetic of the builder, applied to numpy arrays.
ON_ARRAYS: Any = SimpleNamespace(Add=np.add, Sub=np.subtract, Mul=np.multiply, Div=np.divide, Exp=np.exp, Sqrt=np.sqrt)


@lists_its_arguments
def make_optimizer(solver: str | Optimizer) -> Optimizer:
    """Return the optimizer of a name, or the given optimizer.

    Parameters
    ----------
    solver : str or Optimizer
        A registered name stands for the optimizer with its defaults.

    Returns
    -------
    Optimizer
        The optimizer, a frozen value.

    Raises
    ------
    OptimizerError
        The name is unknown, or `solver` is neither a name nor an optimizer.

    Examples
    --------
    >>> from onnxtrain.optim import SGD
    >>> make_optimizer("adam")
    Adam(beta_1=0.9, beta_2=0.999, epsilon=1e-08)
    >>> make_optimizer(SGD(momentum=0.9))
    SGD(momentum=0.9, nesterov=False)
    """
    if isinstance(solver, Optimizer):
        return solver
    if isinstance(solver, str):
        return OPTIMIZERS.find(solver)()
    if isinstance(solver, type) and issubclass(solver, Optimizer):
        raise OptimizerError(f"Expected an optimizer, got the class {solver.__name__}. Pass {solver.__name__}().")
    schedule = " Pass a schedule as learning_rate=." if isinstance(solver, NamesItsParameters) else ""
    own = callable(solver) or any(hasattr(solver, method) for method in ("step", "update", "apply_gradients"))
    if own and not schedule and not isinstance(solver, Mapping):
        schedule = " For one of your own, derive a class from onnxtrain.optim.Optimizer."
    kind = solver if isinstance(solver, type) else type(solver)
    library = kind.__module__.partition(".")[0]
    if kind.__name__.lower() in OPTIMIZERS:  # of PyTorch or Keras
        raise OptimizerError(
            f"Expected an optimizer of onnxtrain, got {kind.__name__} of {library}. {_remedy_for_foreign(solver, kind)}"
        )
    if library == "optax":
        raise OptimizerError(
            "Expected an optimizer of onnxtrain, got one of optax, which does not tell its parameters. Pass its name "
            "and its rate, such as solver='adam', learning_rate=0.001."
        )
    raise OptimizerError(
        f"Expected a solver name ({', '.join(sorted([*OPTIMIZERS, 'lbfgs']))}) or an optimizer such as "
        f"SGD(momentum=0.9), got {solver!r}.{schedule}{several('solver', solver)}"
    )


def _remedy_for_foreign(solver: object, kind: type) -> str:
    """Return the remedy for an optimizer of PyTorch or Keras: ours of the same name, with its parameters."""
    ours = OPTIMIZERS[kind.__name__.lower()]
    defaults = {field.name: field.default for field in fields(ours)}  # type: ignore[arg-type]  # all are dataclasses
    given = {} if isinstance(solver, type) else renamed_options(solver, [*defaults, "learning_rate", "weight_decay"])
    own = ", ".join(f"{name}={v!r}" for name, v in given.items() if name in defaults and v != defaults[name])
    others = {"learning_rate": given.get("learning_rate")}
    coupled = kind.__module__.startswith("torch.") and "weight_decay" not in defaults  # Keras adds it to the step
    if coupled and given.get("weight_decay"):
        others["l2"] = given["weight_decay"] / 2  # the derivative of l2 w^2 is 2 l2 w
    code = "".join(f", {name}={v!r}" for name, v in others.items() if v is not None)
    if own:
        return f"Pass solver=onnxtrain.optim.{ours.__name__}({own}){code}."
    return f"Pass solver={kind.__name__.lower()!r}{code}, or onnxtrain.optim.{ours.__name__}(...) for its parameters."


def updated(
    optimizer: Optimizer, op: Op, w: ir.Value, dw: ir.Value, slots: Slots, *scalars: ir.Value, **l1: ir.Value
) -> list[ir.Value]:
    """Return the next weight and the next slots from the method ``update`` of an optimizer, checked.

    Raises
    ------
    OptimizerError
        The method takes other arguments or returns another kind of value.
    """
    name, n_slots = type(optimizer).__name__, len(optimizer.slots)
    try:
        inspect.signature(optimizer.update).bind(op, w, dw, slots, *scalars, **l1)
    except TypeError as e:
        raise OptimizerError(
            f"{name}.update is called as update(op, w, dw, slots, learning_rate), but takes other arguments: {e}."
        ) from e
    before = _contents(optimizer)
    try:
        found: Any = optimizer.update(op, w, dw, slots, *scalars, **l1)
    except FrozenInstanceError as e:
        raise _changes(name, str(e).split("'")[1]) from e
    except ValueError as e:
        if "magic handler" not in str(e):  # of onnx_ir
            raise
        raise OptimizerError(
            f"{name}.update uses an operator of Python, such as w - dw. Use those of ONNX: op.Sub(w, dw), op.Mul(w, "
            "dw)."
        ) from e
    if changed := _changed(before, _contents(optimizer)):
        raise _changes(name, changed[0])
    new = _values_in(found, name, n_slots)
    unused = [slot for slot, value in zip(optimizer.slots, slots, strict=True) if not value.uses() and value not in new]
    if unused:
        raise OptimizerError(
            f"{name}.update does not read its slot {unused[0]!r}. Compute with its value, one of `slots`, or leave the "
            "name out of the class."
        )
    for value in new:
        if static_shape(value) and static_shape(w) and static_shape(value) != static_shape(w):
            raise OptimizerError(
                f"{name}.update must return values with the shape of the weight, {static_shape(w)}, got shape "
                f"{static_shape(value)}. An update is elementwise."
            )
    return new


def _values_in(found: Any, name: str, n_slots: int) -> list[ir.Value]:
    """Return the weight and the slots in the result of ``update``; raise an OptimizerError if it is anything else."""
    pair = isinstance(found, (tuple, list)) and len(found) == 2 and isinstance(found[1], (tuple, list))
    new = [found[0], *found[1]] if pair else []
    wrong = [type(x).__name__ for x in new if not isinstance(x, ir.Value)]
    if len(new) == 1 + n_slots and not wrong:
        return new
    got = f"{type(found).__name__}{f' of {len(found)}' if isinstance(found, (tuple, list)) else ''}"
    if pair:
        got = f"an object of type {wrong[0]}" if wrong else f"the weight and {len(found[1])} slots"
    raise OptimizerError(
        f"{name}.update must return the weight and a tuple of its slots, {n_slots} here, got {got}. End it with return "
        "w, slots, which are results of op."
    )


def _contents(optimizer: Optimizer) -> dict[str, tuple[Any, ...]]:
    """Return the objects that each attribute of an optimizer holds, without cached properties."""
    kind = type(optimizer)
    return {
        name: (*value, *value.values()) if isinstance(value, dict) else (value,)
        for name, value in vars(optimizer).items()
        if not isinstance(getattr(kind, name, None), cached_property)
    }


def _changed(before: Mapping[str, tuple[Any, ...]], after: Mapping[str, tuple[Any, ...]]) -> list[str]:
    """Return the attributes that hold other objects than before."""
    return [
        name
        for name, held in after.items()
        if name not in before
        or len(held) != len(before[name])
        or any(a is not b for a, b in zip(held, before[name], strict=True))
    ]


def _changes(name: str, attribute: str) -> OptimizerError:
    """Return the error for a method ``update`` that assigns to an attribute."""
    return OptimizerError(
        f"{name}.update changes self.{attribute}, but it runs once for each weight when the graph is built, not at "
        "each step. Keep arrays of a weight in slots, and compute with the number of the step in scalars(self, op, "
        "learning_rate, step)."
    )
