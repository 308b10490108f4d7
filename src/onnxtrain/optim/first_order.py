r"""First-order optimizers; equations and defaults are PyTorch's, names scikit-learn's.

A decaying average :math:`m \leftarrow \beta m + (1 - \beta) g` is kept as
:math:`M = m / (1 - \beta)`, so :math:`M \leftarrow \beta M + g`. The omitted factors
are per-step scalars, which saves elementwise passes over each weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import onnx_ir as ir

from onnxtrain.errors import OptimizerError
from onnxtrain.graph import Op
from onnxtrain.optim.base import Optimizer, Scalar, Slots, Updated, optimizer


@optimizer("sgd")
@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    r"""Gradient descent, with momentum :math:`\mu` if it is not zero.

    .. math:: v \leftarrow \mu v + g, \qquad w \leftarrow w - \eta v

    With `nesterov`, :math:`w \leftarrow w - \eta (g + \mu v)`; the slot then holds :math:`\mu v`.

    Parameters
    ----------
    momentum : float in [0, 1)
        :math:`\mu`.
    nesterov : bool
        Requires a momentum.

    Raises
    ------
    OptimizerError
        A parameter is out of its range.

    Examples
    --------
    A momentum of 0.9 lengthens steps in one direction up to tenfold:

    >>> from onnxtrain import OrtGradientRegressor
    >>> from onnxtrain.optim import SGD
    >>> def loss_after(solver):
    ...     line = OrtGradientRegressor(init="random", solver=solver, learning_rate=0.01, max_iter=9, random_state=0)
    ...     return line.fit([[0.0], [1.0]], [1.0, 3.0]).best_loss_
    >>> loss_after(SGD()) > 2 * loss_after(SGD(momentum=0.9))
    True

    References
    ----------
    Sutskever, Martens, Dahl, Hinton, On the importance of initialization and
    momentum in deep learning, ICML 2013.
    """

    momentum: float = 0.0
    nesterov: bool = False
    ranges: ClassVar[Mapping[str, str]] = {"momentum": "[0, 1)"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise OptimizerError(
                f"SGD: nesterov=True needs a momentum above 0, got {self.momentum!r}. Set momentum=0.9."
            )

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("velocity",) if self.momentum else ()

    def pull(self, op: Op, step: Scalar) -> Scalar | None:
        return _sum_of_powers(op, self.momentum, op.Add(step, 1.0) if self.nesterov else step)

    def update(
        self, op: Op, w: ir.Value, dw: ir.Value, slots: Slots, *scalars: ir.Value, slope: ir.Value | None = None
    ) -> Updated:
        rate = scalars[0]
        if not self.momentum:
            return op.Sub(w, op.Mul(dw, rate)), ()
        (v,) = slots
        if self.nesterov:
            v = op.Mul(op.Add(v, dw), self.momentum)
            return op.Sub(w, op.Mul(op.Add(dw, v), rate)), (v,)
        v = op.Add(op.Mul(v, self.momentum), dw)
        return op.Sub(w, op.Mul(v, rate)), (v,)


@optimizer("adam")
@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    r"""Adam: the mean gradient of each weight, divided by the root of its mean square.

    .. math::

        m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad
        v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
        w \leftarrow w - \eta \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}

    Parameters
    ----------
    beta_1, beta_2 : float in [0, 1)
        :math:`\beta_1` of the mean, :math:`\beta_2` of the mean square.
    epsilon : float, positive
        :math:`\epsilon`.

    Raises
    ------
    OptimizerError
        A parameter is out of its range.

    Examples
    --------
    The first step has the length of the learning rate, whatever the gradient:
    the mean is :math:`g`, the root :math:`|g|`.

    >>> rate, epsilon = Adam().scalar_table([0.1], [1])[0]
    >>> round(float(rate), 6), float(epsilon)
    (0.1, 1e-08)

    References
    ----------
    Kingma, Ba, Adam: a method for stochastic optimization, ICLR 2015.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    slots: ClassVar[tuple[str, ...]] = ("mean", "square")
    ranges: ClassVar[Mapping[str, str]] = {"beta_1": "[0, 1)", "beta_2": "[0, 1)", "epsilon": "(0, inf)"}

    def scalars(self, op: Op, learning_rate: Scalar, step: Scalar) -> tuple[Any, ...]:
        # m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) = rate / eta * M / (sqrt(V) + eps * root)
        mean_left, square_left = _filled(op, self.beta_1, step), _filled(op, self.beta_2, step)
        root = op.Sqrt(op.Div(square_left, 1.0 - self.beta_2))
        rate = op.Mul(op.Div(op.Mul(learning_rate, 1.0 - self.beta_1), mean_left), root)
        return rate, op.Mul(root, self.epsilon)

    def pull(self, op: Op, step: Scalar) -> Scalar | None:
        return _sum_of_powers(op, self.beta_1, step)

    def metric(self, op: Op, slots: Slots, *scalars: ir.Value) -> ir.Value:
        return op.Add(op.Sqrt(slots[1]), scalars[1])

    def update(
        self, op: Op, w: ir.Value, dw: ir.Value, slots: Slots, *scalars: ir.Value, slope: ir.Value | None = None
    ) -> Updated:
        mean, square = slots
        mean = op.Add(op.Mul(mean, self.beta_1), dw)
        slope = dw if slope is None else slope
        square = op.Add(op.Mul(square, self.beta_2), op.Mul(slope, slope))
        direction = op.Div(mean, self.metric(op, (mean, square), *scalars))
        return op.Sub(w, op.Mul(direction, scalars[0])), (mean, square)


@optimizer("adamw")
@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    r"""Adam with decoupled weight decay, :math:`w \leftarrow (1 - \eta \lambda) w` before each step.

    Intercepts do not decay.

    Parameters
    ----------
    beta_1, beta_2, epsilon
        As in :class:`Adam`.
    weight_decay : float, not negative
        :math:`\lambda`.

    Examples
    --------
    >>> import numpy as np
    >>> from onnxtrain.optim import AdamW
    >>> AdamW(weight_decay=0.5).scalar_table([0.1], [1])[0, 2].item()  # what is kept of a weight
    0.95

    References
    ----------
    Loshchilov, Hutter, Decoupled weight decay regularization, ICLR 2019.
    """

    weight_decay: float = 1e-2
    ranges: ClassVar[Mapping[str, str]] = {**Adam.ranges, "weight_decay": "[0, inf)"}

    def scalars(self, op: Op, learning_rate: Scalar, step: Scalar) -> tuple[Any, ...]:
        kept = op.Sub(1.0, op.Mul(learning_rate, self.weight_decay))
        return (*super().scalars(op, learning_rate, step), kept)

    def without_decay(self) -> AdamW:
        return replace(self, weight_decay=0.0)

    def update(
        self, op: Op, w: ir.Value, dw: ir.Value, slots: Slots, *scalars: ir.Value, slope: ir.Value | None = None
    ) -> Updated:
        if self.weight_decay:
            w = op.Mul(w, scalars[2])
        return super().update(op, w, dw, slots, *scalars, slope=slope)


@optimizer("rmsprop")
@dataclass(frozen=True, kw_only=True)
class RMSprop(Optimizer):
    r"""RMSprop: the gradient divided by the root of its mean square, :math:`s`.

    .. math::

        s \leftarrow \alpha s + (1 - \alpha) g^2, \qquad
        w \leftarrow w - \eta \frac{g}{\sqrt{s} + \epsilon}

    If centered, the root is taken of the variance :math:`s - \bar g^2`, with
    :math:`\bar g \leftarrow \alpha \bar g + (1 - \alpha) g`. With momentum the quotients are accumulated:
    :math:`u \leftarrow \mu u + g / (\sqrt{s} + \epsilon)`, :math:`w \leftarrow w - \eta u`.

    Parameters
    ----------
    alpha : float in [0, 1)
        :math:`\alpha`, of the mean square.
    epsilon : float, positive
        :math:`\epsilon`.
    momentum : float in [0, 1)
        :math:`\mu`.
    centered : bool
        Divide by the root of the variance.

    Raises
    ------
    OptimizerError
        A parameter is out of its range.

    Examples
    --------
    Each option adds a slot, which has the shape of the weight:

    >>> from onnxtrain.optim import RMSprop
    >>> RMSprop().slots, RMSprop(centered=True, momentum=0.9).slots
    (('square',), ('square', 'mean', 'velocity'))

    References
    ----------
    Tieleman, Hinton, Lecture 6.5, Neural networks for machine learning, 2012;
    centered: Graves, Generating sequences with recurrent neural networks, 2013.
    """

    alpha: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0
    centered: bool = False
    ranges: ClassVar[Mapping[str, str]] = {"alpha": "[0, 1)", "epsilon": "(0, inf)", "momentum": "[0, 1)"}

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("square", *(["mean"] if self.centered else []), *(["velocity"] if self.momentum else []))

    def scalars(self, op: Op, learning_rate: Scalar, step: Scalar) -> tuple[Any, ...]:
        return (op.Div(learning_rate, math.sqrt(1.0 - self.alpha)),)

    def pull(self, op: Op, step: Scalar) -> Scalar | None:
        return _sum_of_powers(op, self.momentum, step)

    def metric(self, op: Op, slots: Slots, *scalars: ir.Value) -> ir.Value:
        spread = slots[0]
        if self.centered:
            variance = op.Sub(spread, op.Mul(op.Mul(slots[1], slots[1]), 1.0 - self.alpha))
            spread = op.Relu(variance)  # rounding may make the variance negative
        return op.Add(op.Sqrt(spread), self.epsilon / math.sqrt(1.0 - self.alpha))

    def update(
        self, op: Op, w: ir.Value, dw: ir.Value, slots: Slots, *scalars: ir.Value, slope: ir.Value | None = None
    ) -> Updated:
        old = dict(zip(self.slots, slots, strict=True))
        sums_quotients = slope is None
        slope = dw if slope is None else slope
        new = {"square": op.Add(op.Mul(old["square"], self.alpha), op.Mul(slope, slope))}
        if self.centered:
            new["mean"] = op.Add(op.Mul(old["mean"], self.alpha), slope)
        metric = self.metric(op, tuple(new.values()), *scalars)
        if self.momentum and sums_quotients:
            new["velocity"] = op.Add(op.Mul(old["velocity"], self.momentum), op.Div(dw, metric))
            return op.Sub(w, op.Mul(new["velocity"], scalars[0])), tuple(new[name] for name in self.slots)
        if self.momentum:  # under Proximal all gradients in the sum share the metric of the threshold, as in Adam
            dw = new["velocity"] = op.Add(op.Mul(old["velocity"], self.momentum), dw)
        direction = op.Div(dw, metric)
        return op.Sub(w, op.Mul(direction, scalars[0])), tuple(new[name] for name in self.slots)


@optimizer("adagrad")
@dataclass(frozen=True, kw_only=True)
class Adagrad(Optimizer):
    r"""Adagrad: the gradient divided by the root of the sum :math:`s` of its squares so far.

    .. math::

        s \leftarrow s + g^2, \qquad
        w \leftarrow w - \frac{\eta}{1 + (t - 1) \delta} \frac{g}{\sqrt{s} + \epsilon}

    Parameters
    ----------
    lr_decay : float, not negative
        :math:`\delta`.
    initial_accumulator_value : float, not negative
        :math:`s` before the first step.
    epsilon : float, positive
        :math:`\epsilon`.

    Raises
    ------
    OptimizerError
        A parameter is out of its range.

    Examples
    --------
    `lr_decay` lowers the rate with the step, in addition to the sum:

    >>> from onnxtrain.optim import Adagrad
    >>> Adagrad(lr_decay=1.0).scalar_table([0.1, 0.1], [1, 2]).tolist()
    [[0.1], [0.05]]

    References
    ----------
    Duchi, Hazan, Singer, Adaptive subgradient methods for online learning and
    stochastic optimization, JMLR 12, 2011.
    """

    lr_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    epsilon: float = 1e-10
    slots: ClassVar[tuple[str, ...]] = ("sum",)
    ranges: ClassVar[Mapping[str, str]] = {
        "lr_decay": "[0, inf)",
        "initial_accumulator_value": "[0, inf)",
        "epsilon": "(0, inf)",
    }

    def initial(self, slot: str) -> float:
        return float(self.initial_accumulator_value)

    def scalars(self, op: Op, learning_rate: Scalar, step: Scalar) -> tuple[Any, ...]:
        if not self.lr_decay:
            return (learning_rate,)
        return (op.Div(learning_rate, op.Add(op.Mul(op.Sub(step, 1.0), self.lr_decay), 1.0)),)

    def pull(self, op: Op, step: Scalar) -> Scalar | None:
        return None

    def metric(self, op: Op, slots: Slots, *scalars: ir.Value) -> ir.Value:
        return op.Add(op.Sqrt(slots[0]), self.epsilon)

    def update(
        self, op: Op, w: ir.Value, dw: ir.Value, slots: Slots, *scalars: ir.Value, slope: ir.Value | None = None
    ) -> Updated:
        slope = dw if slope is None else slope
        total = op.Add(slots[0], op.Mul(slope, slope))
        direction = op.Div(dw, self.metric(op, (total,), *scalars))
        return op.Sub(w, op.Mul(direction, scalars[0])), (total,)


def _filled(op: Op, beta: float, step: Scalar) -> Scalar:
    r"""Return ``1 - beta ** step``, the total weight of the gradients so far in a decaying average.

    The difference would keep only four digits in float32, so there it is computed as
    :math:`1 - e^x = -\tanh(x / 2) (e^x + 1)`.
    """
    x = op.Mul(step, math.log(beta) if beta else -math.inf)
    if isinstance(x, ir.Value) and x.dtype == ir.DataType.FLOAT:
        return op.Neg(op.Mul(op.Tanh(op.Mul(x, 0.5)), op.Add(op.Exp(x), 1.0)))
    return op.Sub(1.0, op.Exp(x))


def _sum_of_powers(op: Op, beta: float, count: Scalar) -> Scalar | None:
    """Return ``1 + beta + ... + beta ** (count - 1)``, or None for beta = 0."""
    return op.Div(_filled(op, beta, count), 1.0 - beta) if beta else None
