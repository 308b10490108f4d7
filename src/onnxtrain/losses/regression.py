r"""Losses of regressors.

y is the label, f the prediction, both (n, k), and r = f - y. The loss of a row is
summed over its k outputs. The subgradient at a kink is 0, unless the docstring
states another value.

The last three take the logarithm z of the prediction, :math:`f = e^z`: the log
link of scikit-learn's PoissonRegressor, GammaRegressor and TweedieRegressor,
whose graphs end in Exp. A prediction that is not the output of an Exp must be
positive; one below 1e-6 counts as 1e-6 and its row has zero gradient. These losses
are half the deviance of the distribution, as in scikit-learn, without the terms
that depend on y only.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from onnxtrain.errors import LossError
from onnxtrain.graph import Op, taken_for_constant
from onnxtrain.losses.operands import softplus, sum_outputs
from onnxtrain.losses.table import Prediction, check_number, loss


@loss("squared_error", "l2")
def squared_error(op: Op, y_true: ir.Value, y_pred: ir.Value) -> ir.Value:
    r""":math:`r^2`. No factor 1/2: the loss of Ridge, LinearRegression and ``mean_squared_error``."""
    r = op.Sub(y_pred, y_true)
    return sum_outputs(op, op.Mul(r, r))


@loss("absolute_error", "l1")
def absolute_error(op: Op, y_true: ir.Value, y_pred: ir.Value) -> ir.Value:
    r""":math:`|r|`, minimal at the median."""
    return sum_outputs(op, op.Abs(op.Sub(y_pred, y_true)))


@loss("elastic")
def elastic(op: Op, y_true: ir.Value, y_pred: ir.Value, *, l1_weight: float = 0.5, l2_weight: float = 0.5) -> ir.Value:
    r""":math:`\lambda_1 |r| + \lambda_2 r^2`."""
    l1 = check_number(l1_weight, "l1_weight", at_least=0)
    l2 = check_number(l2_weight, "l2_weight", at_least=0)
    r = op.Sub(y_pred, y_true)
    return sum_outputs(op, op.Add(op.Mul(op.Abs(r), l1), op.Mul(op.Mul(r, r), l2)))


@loss("huber")
def huber(op: Op, y_true: ir.Value, y_pred: ir.Value, *, delta: float = 1.0) -> ir.Value:
    r""":math:`r^2/2` if :math:`|r| \le \delta`, else :math:`\delta (|r| - \delta/2)`.

    The scale of PyTorch's ``HuberLoss``; HuberRegressor's loss, at a scale of 1, is twice as large.

    Source: P. J. Huber, Robust Estimation of a Location Parameter, 1964.
    """
    delta = check_number(delta, "delta", above=0)
    r = op.Sub(y_pred, y_true)
    c = taken_for_constant(op.Clip(r, -delta, delta))
    # the derivative of c (r - c/2) by c is r - c, 0 wherever c is not constant
    return sum_outputs(op, op.Mul(c, op.Sub(r, op.Mul(c, 0.5))))


@loss("quantile")
def quantile(op: Op, y_true: ir.Value, y_pred: ir.Value, *, q: float = 0.5) -> ir.Value:
    r""":math:`\max(q (y - f), (q - 1) (y - f))`, minimal at the quantile q; half the absolute error for q = 1/2.

    The subgradient at the kink is the mean of both sides, 1/2 - q.

    Source: R. Koenker, G. Bassett, Regression Quantiles, 1978; scikit-learn's ``mean_pinball_loss``.
    """
    q = check_number(q, "q", above=0, below=1)
    d = op.Sub(y_true, y_pred)
    return sum_outputs(op, op.Max(op.Mul(d, q), op.Mul(d, q - 1)))


@loss("epsilon_insensitive")
def epsilon_insensitive(op: Op, y_true: ir.Value, y_pred: ir.Value, *, epsilon: float = 0.1) -> ir.Value:
    r""":math:`\max(0, |r| - \varepsilon)`, the loss of support vector regression."""
    epsilon = check_number(epsilon, "epsilon", at_least=0)
    return sum_outputs(op, op.Relu(op.Sub(op.Abs(op.Sub(y_pred, y_true)), epsilon)))


@loss("log_cosh")
def log_cosh(op: Op, y_true: ir.Value, y_pred: ir.Value) -> ir.Value:
    r""":math:`\log \cosh r`, close to :math:`r^2/2` for a small r and to :math:`|r| - \log 2` for a large one."""
    r = op.Sub(y_pred, y_true)
    return sum_outputs(op, op.Sub(op.Add(r, softplus(op, op.Mul(r, -2.0))), math.log(2)))


@loss("poisson", prediction=Prediction.LOG_MEAN, least=lambda: (0.0, True))
def poisson(op: Op, y_true: ir.Value, y_pred: ir.Value) -> ir.Value:
    r""":math:`e^z - y z`, half the Poisson deviance less :math:`y \log y - y`."""
    return sum_outputs(op, op.Sub(op.Exp(y_pred), op.Mul(y_true, y_pred)))


@loss("gamma", prediction=Prediction.LOG_MEAN, least=lambda: (0.0, False))
def gamma(op: Op, y_true: ir.Value, y_pred: ir.Value) -> ir.Value:
    r""":math:`z + y e^{-z}`, half the gamma deviance plus :math:`1 + \log y`."""
    return sum_outputs(op, op.Add(y_pred, op.Mul(y_true, op.Exp(op.Neg(y_pred)))))


def _least_of_tweedie(power: float = 1.5) -> tuple[float, bool]:
    power = check_number(power, "power")
    return (0.0, power < 2) if power >= 1 else (-math.inf, True)


@loss("tweedie", prediction=Prediction.LOG_MEAN, least=_least_of_tweedie)
def tweedie(op: Op, y_true: ir.Value, y_pred: ir.Value, *, power: float = 1.5) -> ir.Value:
    r""":math:`e^{(2-p) z} / (2-p) - y e^{(1-p) z} / (1-p)`, half the Tweedie deviance of power p.

    The term :math:`\max(y, 0)^{2-p} / ((1-p)(2-p))` is omitted. Power 1 is ``poisson``,
    power 2 ``gamma``. No Tweedie distribution has a power between 0 and 1.

    Source: B. Jorgensen, Exponential Dispersion Models, 1987; scikit-learn's ``mean_tweedie_deviance``.
    """
    p = check_number(power, "power")
    if p == 1:
        return poisson(op, y_true, y_pred)
    if p == 2:
        return gamma(op, y_true, y_pred)
    if 0 <= p < 1:
        raise LossError(
            f"power must be negative or at least 1, got {power!r}. Pass loss='squared_error' for power 0; a "
            "distribution with zeros and positive amounts has a power between 1 and 2."
        )
    mean = op.Mul(op.Exp(op.Mul(y_pred, 2 - p)), 1 / (2 - p))
    return sum_outputs(op, op.Sub(mean, op.Mul(op.Mul(y_true, op.Exp(op.Mul(y_pred, 1 - p))), 1 / (1 - p))))
