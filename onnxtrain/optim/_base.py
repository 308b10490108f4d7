r"""What an optimizer is: a frozen value that appends its update to a graph.

Conventions of this package: ``w`` a weight, ``dw`` its gradient, both of one
shape; a *slot* is memory of the optimizer of that same shape (a velocity, a
moment); :math:`\eta` the learning rate; :math:`t` the number of the step, 1 for
the first. Every update is elementwise, so several weights may be laid end to
end in one vector and moved together.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import OptimizerError
from onnxtrain.registry import Registry

OPTIMIZERS: Registry[type[Optimizer]] = Registry("solver", OptimizerError)


def optimizer(*names: str) -> Any:
    """Register a class of optimizers under the names that ``solver`` takes."""
    return OPTIMIZERS.register(*names)


class Optimizer(ABC):
    """Base class; a subclass is a frozen dataclass of its parameters.

    It names its memory in :attr:`slots`, computes in :meth:`scalars` what is the
    same for all weights, and moves one weight in :meth:`move`.
    """

    slots: ClassVar[tuple[str, ...]] = ()
    #: Whether :meth:`move` heeds its argument `decays`.
    spares_intercepts: ClassVar[bool] = False
    #: Whether :meth:`scalars` loses digits in float32, and is computed in double.
    scalars_in_double: ClassVar[bool] = False

    def initial(self, slot: str) -> float:
        """Return what fills a slot before the first step."""
        return 0.0

    def scalars(self, op: Any, learning_rate: Any, step: Any) -> tuple[Any, ...]:
        """Return the numbers :meth:`move` needs, from the learning rate and the number of the step.

        Written with Add, Sub, Mul, Div, Exp and Sqrt of `op` only, so that it also
        runs on numbers: see :meth:`scalar_table`.
        """
        return (learning_rate,)

    def pull(self, op: Any, step: Any) -> Any:
        """Return the sum of the factors with which the gradients so far enter this step, None where it is 1.

        It is all that a momentum is to :class:`~onnxtrain.optim.Proximal`; written as :meth:`scalars`.
        An optimizer that leaves it out has no proximal step.
        """
        raise NotImplementedError

    def metric(self, op: Any, slots: tuple[ir.Value, ...], *scalars: ir.Value) -> ir.Value | None:
        """Return what :meth:`move` divides each entry of the gradient by, from the next slots; None where it is 1.

        The step is then the first of the scalars times the gradient over this.
        """
        return None

    @abstractmethod
    def move(
        self,
        op: Any,
        w: ir.Value,
        dw: ir.Value,
        slots: tuple[ir.Value, ...],
        *scalars: ir.Value,
        decays: bool = True,
        l1: ir.Value | None = None,
    ) -> tuple[ir.Value, tuple[ir.Value, ...]]:
        """Return the next weight and the next slots.

        Parameters
        ----------
        op : onnxscript builder
        w, dw : onnx_ir.Value
            A weight and its gradient.
        slots : tuple of onnx_ir.Value
            One for each name in :attr:`slots`.
        *scalars : onnx_ir.Value
            What :meth:`scalars` returned, of the type of `w`.
        decays : bool
            False for an intercept: a decay of the weights leaves it alone.
        l1 : onnx_ir.Value, optional
            The strength of an l1 penalty whose slope is not in `dw`; it counts in a mean square.
            Given only where there is a :meth:`pull`.
        """

    def update(
        self,
        op: Any,
        w: ir.Value,
        dw: ir.Value,
        slots: tuple[ir.Value, ...],
        learning_rate: ir.Value,
        step: ir.Value,
        *,
        decays: bool = True,
    ) -> tuple[ir.Value, tuple[ir.Value, ...]]:
        """Return the next weight and the next slots; as :meth:`update_all`, for one weight."""
        moved = self.update_all(op, [w], [dw], [slots], learning_rate, step, decays=[decays])
        return moved[0]

    def update_all(
        self,
        op: Any,
        weights: Sequence[ir.Value],
        gradients: Sequence[ir.Value],
        slots: Sequence[tuple[ir.Value, ...]],
        learning_rate: ir.Value,
        step: ir.Value,
        *,
        decays: Sequence[bool] | None = None,
    ) -> list[tuple[ir.Value, tuple[ir.Value, ...]]]:
        """Append the update of several weights of one type.

        Parameters
        ----------
        op : onnxscript builder
        weights, gradients : sequence of onnx_ir.Value
        slots : sequence of tuple of onnx_ir.Value
            For each weight one value per name in :attr:`slots`.
        learning_rate, step : onnx_ir.Value
            Scalars of the type of the weights; `step` is 1 for the first update.
        decays : sequence of bool, optional
            False for the weights that a decay leaves alone; all decay by default.

        Returns
        -------
        list of (weight, slots)
        """
        scalars = self.graph_scalars(op, learning_rate, step)
        decays = [True] * len(weights) if decays is None else decays
        return [
            self.move(op, w, dw, memory, *scalars, decays=decay)
            for w, dw, memory, decay in zip(weights, gradients, slots, decays, strict=True)
        ]

    def graph_scalars(self, op: Any, learning_rate: ir.Value, step: ir.Value) -> tuple[ir.Value, ...]:
        """Append the computation of :meth:`scalars` to a graph, in double where float32 is too short."""
        dtype, double = learning_rate.dtype, ir.DataType.DOUBLE
        if not self.scalars_in_double or dtype in (None, double):
            return self.scalars(op, learning_rate, step)
        found = self.scalars(op, op.Cast(learning_rate, to=double), op.Cast(step, to=double))
        return tuple(op.Cast(x, to=dtype) for x in found)

    def scalar_table(self, learning_rates: Any, steps: Any) -> np.ndarray:
        """Return the values of :meth:`scalars` for many steps, computed beforehand in double.

        A training loop that feeds them saves the graph a dozen nodes a step.

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
        return np.stack(self.scalars(OnNumbers, rates, steps), axis=1)


class OnNumbers:
    """The builder's arithmetic, on numpy arrays."""

    Add, Sub, Mul, Div, Exp, Sqrt = np.add, np.subtract, np.multiply, np.divide, np.exp, np.sqrt


def check_number(
    owner: object, name: str, low: float, high: float = math.inf, *, open_low: bool = False, open_high: bool = True
) -> None:
    """Raise an OptimizerError unless the parameter `name` of `owner` is a number in the range."""
    value = getattr(owner, name)
    number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if number:
        above = value > low if open_low else value >= low
        below = value < high if open_high else value <= high
    if not (number and above and below):
        bounds = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
        raise OptimizerError(f"{type(owner).__name__}: {name} must be a number in {bounds}, got {value!r}.")


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
        f"Expected the name of a solver ({', '.join(sorted(OPTIMIZERS))}) or an optimizer such as "
        f"SGD(momentum=0.9), got {solver!r}."
    )
