"""Gradient clipping by global norm before an optimizer's update, and soft thresholding after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnxtrain.arguments import called_as, lists_its_arguments
from onnxtrain.errors import OptimizerError
from onnxtrain.graph import Op
from onnxtrain.optim.base import ON_ARRAYS, Optimizer, Scalar, Slots, Updated


@called_as("Proximal(SGD())")
@dataclass(frozen=True)
class Proximal(Optimizer):
    r"""An optimizer with a proximal step for the l1 penalty: weights become exactly zero.

    The optimizer updates a weight by :math:`\eta\, m / h`: m is a mean of gradients, h an elementwise
    divisor (1 for SGD). In the metric h the proximal step of :math:`\lambda \lVert w \rVert_1` is

    .. math::

        u = w - \eta \frac{m}{h}, \qquad
        w \leftarrow \operatorname{sign}(u) \max\left(|u| - \eta \frac{\lambda}{h},\, 0\right)

    At a fixed point m is the gradient g, and the condition is :math:`-g \in \lambda\, \partial |w|` for any h: the
    minimum of the penalized objective. A threshold of :math:`\eta \lambda` for all entries would converge to another
    point. Momentum accumulates gradients, so it accumulates :math:`\lambda` as well. Here, the momentum of RMSprop
    accumulates gradients, as in Adam, not quotients. ``clip_norm`` multiplies :math:`\lambda` by the same factor as the
    gradients.

    If h is a root mean square, it is computed from the whole gradient, :math:`g + \lambda \operatorname{sign}(w)`, as
    without the proximal step. With only g, a converged weight, :math:`g \approx 0`, would have a divisor close to zero,
    and one step would set all weights of a trained model to zero.

    Parameters
    ----------
    optimizer : Optimizer
        An optimizer that defines :meth:`~Optimizer.pull`, as all optimizers of this package do.

    Raises
    ------
    OptimizerError
        The optimizer does not define this method.

    Examples
    --------
    The soft threshold of SGD is the learning rate times the penalty; a momentum of 0.9 multiplies it by up to 10.

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

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, Optimizer):
            raise OptimizerError(f"Proximal expects an optimizer, as in Proximal(SGD()), got {self.optimizer!r:.80}.")
        if isinstance(self.optimizer, Proximal):
            raise OptimizerError(
                f"The optimizer is already Proximal, got {self.optimizer!r:.80}. Use one of solver=Proximal(...) and "
                "l1_method='proximal', which mean the same."
            )
        if type(self.optimizer).pull is Optimizer.pull:
            raise OptimizerError(
                f"{type(self.optimizer).__name__} has no proximal step. Give it the methods pull and metric of "
                "onnxtrain.optim.Optimizer, or keep the l1 penalty in the loss with l1_method='penalty'."
            )

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.optimizer.slots

    def initial(self, slot: str) -> float:
        return self.optimizer.initial(slot)

    def scalars(self, op: Op, learning_rate: Scalar, step: Scalar) -> tuple[Any, ...]:
        # the scalars of the optimizer and, with momentum, the step for a constant gradient of 1
        found = self.optimizer.scalars(op, learning_rate, step)
        pull = self.optimizer.pull(op, step)
        return found if pull is None else (*found, op.Mul(found[0], pull))

    def without_decay(self) -> Proximal:
        return Proximal(self.optimizer.without_decay())

    def update(
        self,
        op: Op,
        w: ir.Value,
        dw: ir.Value,
        slots: Slots,
        *scalars: ir.Value,
        slope: ir.Value | None = None,
        l1: ir.Value | None = None,
    ) -> Updated:
        if l1 is None:
            return self.optimizer.update(op, w, dw, slots, *scalars)
        slope = op.Add(dw, op.Mul(op.Sign(w), l1))
        w, slots = self.optimizer.update(op, w, dw, slots, *scalars, slope=slope)
        lengthened = self.optimizer.pull(ON_ARRAYS, 1.0) is not None
        threshold = op.Mul(scalars[-1 if lengthened else 0], l1)
        metric = self.optimizer.metric(op, slots, *scalars)
        if metric is not None:
            threshold = op.Div(threshold, metric)
        # w - w is exactly zero, so every weight within the threshold becomes exactly zero
        return op.Sub(w, op.Max(op.Min(w, threshold), op.Neg(threshold))), slots


#: Keeps the quotient finite for a zero gradient; PyTorch's value.
_TINY = 1e-6


@lists_its_arguments
def global_norm_factor(op: Op, gradients: Sequence[ir.Value], max_norm: float) -> ir.Value:
    r"""Return the scalar factor that clips all gradients by their global norm.

    .. math:: g \leftarrow g \min\left(1, \frac{c}{\lVert g \rVert_2 + 10^{-6}}\right)

    Parameters
    ----------
    op : onnxscript builder
        It adds nodes: ``op.Add(a, b)``.
    gradients : sequence of onnx_ir.Value
        One or more gradients of one type. The norm is computed of their concatenation.
    max_norm : float
        :math:`c`.

    Returns
    -------
    onnx_ir.Value
        A scalar.

    Examples
    --------
    A gradient of norm 5 is clipped to norm 1 by the factor 1/5:

    >>> import numpy as np, onnx_ir as ir
    >>> from onnx.reference import ReferenceEvaluator
    >>> from onnxtrain.graph import builder, save
    >>> model = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 21}), ir_version=10)
    >>> build = builder(model)
    >>> g = build.input("g", ir.DataType.FLOAT, [2])
    >>> factor = global_norm_factor(build.op, [g], 1.0)
    >>> run = ReferenceEvaluator(save(model, outputs=[("factor", factor)]))
    >>> round(run.run(None, {"g": np.array([3, 4], np.float32)})[0].item(), 3)
    0.2

    References
    ----------
    Pascanu, Mikolov, Bengio, On the difficulty of training recurrent neural
    networks, ICML 2013.
    """
    squares = [op.ReduceSumSquare(dw, keepdims=0) for dw in gradients]
    total = squares[0] if len(squares) == 1 else op.Sum(*squares)
    return op.Min(op.Div(max_norm, op.Add(op.Sqrt(total), _TINY)), 1.0)
