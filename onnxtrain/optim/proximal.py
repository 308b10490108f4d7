"""The proximal step of an l1 penalty: any first-order optimizer, then a soft threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import onnx_ir as ir

from onnxtrain.errors import OptimizerError
from onnxtrain.optim._base import OnNumbers, Optimizer


@dataclass(frozen=True)
class Proximal(Optimizer):
    r"""An optimizer whose l1 penalty is no part of the gradient: weights become exactly zero.

    The optimizer moves a weight by :math:`\eta\, m / h`: m is a mean of gradients, h what each entry of
    it is divided by (1 for SGD). In the metric h the proximal step of :math:`\lambda \lVert w \rVert_1` is

    .. math::

        u = w - \eta \frac{m}{h}, \qquad
        w \leftarrow \operatorname{sign}(u) \max\left(|u| - \eta \frac{\lambda}{h},\, 0\right)

    At rest m is the gradient g, and the condition is :math:`-g \in \lambda\, \partial |w|`, whatever h is: the
    minimum of the penalized objective. With a threshold :math:`\eta \lambda` for all entries it would not be.
    A momentum adds up gradients, so it adds up :math:`\lambda` as well; that of RMSprop is here one of
    gradients, not of quotients, as Adam's.

    Where h is a root mean square, it is that of the whole slope, :math:`g + \lambda \operatorname{sign}(w)`, as
    without the proximal step. With g alone a weight that had come to rest, :math:`g \approx 0`, would be
    divided by almost nothing, and a trained model be all zeros after one step.

    Parameters
    ----------
    optimizer : Optimizer
        One that has a :meth:`~Optimizer.pull`: all of this package have.

    Raises
    ------
    OptimizerError
        It has none.

    Examples
    --------
    The soft threshold of SGD is the learning rate times the penalty; a momentum of 0.9 makes it the tenfold, slowly.

    >>> from onnxtrain.optim import SGD
    >>> Proximal(SGD()).scalar_table([0.1], [1]).tolist()
    [[0.1]]
    >>> Proximal(SGD(momentum=0.9)).scalar_table([0.1, 0.1], [1, 1000]).round(6).tolist()
    [[0.1, 0.1], [0.1, 1.0]]

    References
    ----------
    Duchi, Hazan, Singer, Adaptive subgradient methods for online learning and
    stochastic optimization, JMLR 12, 2011 (the l1 step in a diagonal metric).
    Yun, Lozano, Yang, Adaptive proximal gradient methods for structured neural networks, NeurIPS 2021.
    """

    optimizer: Optimizer
    scalars_in_double: ClassVar[bool] = True  # a sum of powers loses digits

    def __post_init__(self) -> None:
        if type(self.optimizer).pull is Optimizer.pull:
            raise OptimizerError(
                f"{type(self.optimizer).__name__} has no proximal step: give it the methods pull and metric of "
                "onnxtrain.optim.Optimizer, or leave the l1 penalty in the loss with l1_method='penalty'."
            )

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.optimizer.slots

    @property
    def spares_intercepts(self) -> bool:  # type: ignore[override]
        return self.optimizer.spares_intercepts

    def initial(self, slot: str) -> float:
        return self.optimizer.initial(slot)

    def scalars(self, op: Any, learning_rate: Any, step: Any) -> tuple[Any, ...]:
        """Return those of the optimizer; where it has a momentum, behind them how far a slope of 1 moves a weight."""
        found = self.optimizer.scalars(op, learning_rate, step)
        pull = self.optimizer.pull(op, step)
        return found if pull is None else (*found, op.Mul(found[0], pull))

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
        """Return the next weight and the next slots; `l1` is the strength of the penalty, None where there is none."""
        w, slots = self.optimizer.move(op, w, dw, slots, *scalars, decays=decays, l1=l1)
        if l1 is None:
            return w, slots
        lengthened = self.optimizer.pull(OnNumbers, 1.0) is not None
        threshold = op.Mul(scalars[-1 if lengthened else 0], l1)
        metric = self.optimizer.metric(op, slots, *scalars)
        if metric is not None:
            threshold = op.Div(threshold, metric)
        # w - w is exactly zero: so is every weight within the threshold
        return op.Sub(w, op.Max(op.Min(w, threshold), op.Neg(threshold))), slots
