r"""The optimizer interface: a frozen value that appends its update to a graph.

Conventions of this package: ``w`` is a weight and ``dw`` its gradient, of the same
shape; a *slot* is optimizer state of that shape (a velocity, a moment);
:math:`\eta` is the learning rate; :math:`t` is the step number, starting at 1.
Every update is elementwise, so several weights may be concatenated into one
vector and updated together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike

from onnxtrain.arguments import NamesItsParameters
from onnxtrain.errors import OptimizerError, as_number
from onnxtrain.graph import Op
from onnxtrain.registry import Registry

#: A per-step scalar: a value of the graph, or an array of one number per step.
Scalar: TypeAlias = "ir.Value | np.ndarray | float"

#: The slots of a weight, in the order of their names.
Slots: TypeAlias = tuple[ir.Value, ...]

#: The next weight and its next slots.
Updated: TypeAlias = tuple[ir.Value, Slots]

OPTIMIZERS: Registry[type[Optimizer]] = Registry("solver", OptimizerError)
T = TypeVar("T", bound="type[Optimizer]")


def optimizer(*names: str, override: bool = False) -> Callable[[T], T]:
    """Register an optimizer class under names accepted by ``solver``; `override` replaces a registered one."""
    return OPTIMIZERS.register(*names, override=override)


def check_ranges(owner: object, ranges: Mapping[str, str]) -> None:
    """Raise an OptimizerError unless each parameter named in `ranges` is a number in its interval."""
    for name, interval in ranges.items():
        low, high = map(float, interval[1:-1].split(","))
        value = getattr(owner, name)
        number = as_number(value)
        above = number >= low if interval.startswith("[") else number > low
        below = number <= high if interval.endswith("]") else number < high
        if not (above and below):
            raise OptimizerError(f"{type(owner).__name__}: {name} must be a number in {interval}, got {value!r}.")


class Optimizer(NamesItsParameters, ABC):
    """Base class; a subclass is a frozen dataclass of its parameters.

    It names its state in :attr:`slots` and gives the initial value in :meth:`initial`. :meth:`scalars`
    computes the per-step scalars that all weights share, and :meth:`update` returns the next weight and
    the next slots. :meth:`pull` and :meth:`metric` are needed only by :class:`~onnxtrain.optim.Proximal`.
    """

    slots: ClassVar[tuple[str, ...]] = ()
    #: The interval of each parameter that has one, such as ``"[0, 1)"``.
    ranges: ClassVar[Mapping[str, str]] = {}

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
        """Return the initial value of the entries of a slot."""
        return 0.0

    def scalars(self, op: Op, learning_rate: Scalar, step: Scalar) -> tuple[Any, ...]:
        """Return the per-step scalars of :meth:`update` for a learning rate and a step number.

        Written with Add, Sub, Mul, Div, Exp and Sqrt of `op` only, so that it also
        runs on arrays: see :meth:`scalar_table`.
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
        w, dw : onnx_ir.Value
            A weight and its gradient.
        slots : tuple of onnx_ir.Value
            One for each name in :attr:`slots`.
        *scalars : onnx_ir.Value
            The results of :meth:`scalars`, of the type of `w`; a wrapper may pass more.
        slope : onnx_ir.Value, optional
            The gradient of the whole objective if `dw` excludes that of an l1 penalty. It is used
            for the mean squares. Passed only by :class:`~onnxtrain.optim.Proximal`.
        """

    def without_decay(self) -> Optimizer:
        """Return the same optimizer without weight decay, for the intercepts."""
        return self

    def pull(self, op: Op, step: Scalar) -> Scalar | None:
        """Return the sum of the factors of all gradients so far in this step, None if it is 1.

        :class:`~onnxtrain.optim.Proximal` multiplies its threshold by this sum. It is restricted to the
        same operators as :meth:`scalars`.
        """
        raise NotImplementedError

    def metric(self, op: Op, slots: Slots, *scalars: ir.Value) -> ir.Value | None:
        """Return the elementwise divisor of the gradient in :meth:`update`, from the next slots; None if it is 1.

        The step is the first scalar times the gradient, divided by this metric.
        """
        return None

    def scalar_table(self, learning_rates: ArrayLike, steps: ArrayLike) -> np.ndarray:
        """Return the values of :meth:`scalars` for many steps, precomputed in double.

        A training loop that feeds them removes a dozen nodes from the graph of a step.

        Parameters
        ----------
        learning_rates, steps : array-like of shape (n_steps,)

        Returns
        -------
        numpy.ndarray of shape (n_steps, n_scalars), float64

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


def make_optimizer(solver: str | Optimizer) -> Optimizer:
    """Return an optimizer from its name, or as it is.

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
        raise OptimizerError(f"Expected an optimizer, got the class {solver.__name__}: write {solver.__name__}().")
    raise OptimizerError(
        f"Expected the name of a solver ({', '.join(sorted([*OPTIMIZERS, 'lbfgs']))}) or an optimizer such as "
        f"SGD(momentum=0.9), got {solver!r}."
    )
