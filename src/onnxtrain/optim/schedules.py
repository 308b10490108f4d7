r"""Learning rates as functions of the step.

A schedule is a frozen value, called ``schedule(step, n_steps, plateaus)``: `step`
counts from 0, `n_steps` is the number of planned steps, `plateaus` the number of
times the loss has stopped falling. :math:`\eta_0` is ``learning_rate``.

Each call of ``fit`` counts its steps from 0, also with ``warm_start``. ``partial_fit`` continues the count of the
previous call. The planned steps are the steps of ``max_iter`` epochs over the rows of the call: a schedule of finite
length ends after ``max_iter`` calls of ``partial_fit`` with equally many rows, and keeps its final rate.
"""

from __future__ import annotations

import inspect
import itertools
import math
import numbers
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from onnxtrain.arguments import NamesItsParameters, lists_its_arguments
from onnxtrain.errors import OptimizerError, as_number, warn
from onnxtrain.optim.base import Optimizer, check_ranges
from onnxtrain.registry import Registry, is_of_package
from onnxtrain.synonyms import several


class Schedule(NamesItsParameters, ABC):
    """Base class of learning rate schedules.

    Attributes
    ----------
    has_length : bool
        Whether the schedule depends on `n_steps` and reaches its final rate there.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from onnxtrain.optim import Schedule
    >>> @dataclass(frozen=True)
    ... class Halved(Schedule):
    ...     def __call__(self, step, n_steps, plateaus=0):
    ...         return 0.1 * 0.5 ** (step // 100)
    >>> [Halved()(step, 300) for step in (0, 99, 100)]
    [0.1, 0.1, 0.05]
    """

    has_length: ClassVar[bool] = False
    #: The interval of each parameter that has one, such as ``"[0, 1)"``.
    ranges: ClassVar[Mapping[str, str]] = {}

    def __init__(self) -> None:
        """Do nothing: a subclass is a dataclass, which has its own."""

    def __post_init__(self) -> None:
        check_ranges(self, self.ranges)

    @abstractmethod
    def __call__(self, step: int, n_steps: int, plateaus: int = 0) -> float:
        """Return the learning rate of one step.

        Parameters
        ----------
        step : int
            Counted from 0.
        n_steps : int
            The number of planned steps, at least 1.
        plateaus : int
            The number of times the loss has stopped falling.
        """


SCHEDULES: Registry[type[Schedule]] = Registry(
    "learning rate schedule",
    OptimizerError,
    {
        **dict.fromkeys(("plateau", "reduceonplateau", "reducelronplateau"), "adaptive"),
        **dict.fromkeys(
            ("linear", "cosineannealing", "cosineannealinglr", "cosinewithrestarts", "cosinedecay"), "cosine"
        ),
        **dict.fromkeys(("inversetimedecay", "polynomial"), "invscaling"),
        **dict.fromkeys(("1cycle", "cyclic", "triangular"), "onecycle"),
        "fixed": "constant",
    },
)

LearningRate: TypeAlias = "float | str | Schedule | Callable[[int], float]"


@SCHEDULES.register("constant")
@dataclass(frozen=True)
class Constant(Schedule):
    r"""A constant learning rate :math:`\eta_0`.

    Parameters
    ----------
    learning_rate : float, positive
        :math:`\eta_0`.

    Examples
    --------
    >>> from onnxtrain.optim import Constant
    >>> Constant(0.1)(step=99, n_steps=100)
    0.1
    """

    learning_rate: float = 1e-3
    ranges: ClassVar[Mapping[str, str]] = {"learning_rate": "(0, inf)"}

    def __call__(self, step: int, n_steps: int, plateaus: int = 0) -> float:
        return float(self.learning_rate)


@SCHEDULES.register("invscaling")
@dataclass(frozen=True)
class InverseScaling(Schedule):
    r"""A learning rate that decays as a power of the step, :math:`\eta_0 / (t + 1)^p`.

    Parameters
    ----------
    learning_rate : float, positive
        :math:`\eta_0`.
    power_t : float, not negative
        :math:`p`. The time :math:`t` is the step, from 0; scikit-learn's MLP counts samples.

    Examples
    --------
    >>> schedule = InverseScaling(0.1)
    >>> [round(schedule(step, 100), 4) for step in (0, 3, 99)]
    [0.1, 0.05, 0.01]
    """

    learning_rate: float = 1e-3
    power_t: float = 0.5
    ranges: ClassVar[Mapping[str, str]] = {"learning_rate": "(0, inf)", "power_t": "[0, inf)"}

    def __call__(self, step: int, n_steps: int, plateaus: int = 0) -> float:
        return self.learning_rate / (step + 1) ** self.power_t


@SCHEDULES.register("optimal")
@dataclass(frozen=True)
class Optimal(Schedule):
    r"""A learning rate that decays as one over the step, by Bottou's heuristic.

    .. math:: \eta_t = \frac{\eta_0}{1 + \alpha \gamma t}, \qquad
       \gamma = \frac{\omega}{\max(1, 2 (1 + \omega))}, \quad \omega = \alpha^{-1/4}

    :math:`\omega` is the typical size of weights under an l2 penalty of strength :math:`\alpha`, and :math:`\gamma` is
    a learning rate that suits the slope of the squared error there. scikit-learn's ``"optimal"`` takes
    :math:`\gamma = \omega` and begins with it instead of :math:`\eta_0`.

    Parameters
    ----------
    learning_rate : float, positive
        :math:`\eta_0`.
    alpha : float, positive
        :math:`\alpha`; the rate is half of the first after :math:`1 / (\alpha \gamma)` steps, 22 000 by default.

    Examples
    --------
    >>> schedule = Optimal(0.1)
    >>> [round(schedule(step, 100_000), 4) for step in (0, 22_000, 66_000)]
    [0.1, 0.05, 0.025]

    References
    ----------
    Bottou, Stochastic gradient descent tricks, 2012.
    """

    learning_rate: float = 1e-3
    alpha: float = 1e-4
    ranges: ClassVar[Mapping[str, str]] = {"learning_rate": "(0, inf)", "alpha": "(0, inf)"}

    def __call__(self, step: int, n_steps: int, plateaus: int = 0) -> float:
        weight = self.alpha**-0.25
        gamma = weight / max(1.0, 2 * (1 + weight))
        return self.learning_rate / (1 + self.alpha * gamma * step)


@SCHEDULES.register("adaptive")
@dataclass(frozen=True)
class Adaptive(Schedule):
    r"""A learning rate that is divided each time the loss stops falling, :math:`\eta_0 / f^{plateaus}`.

    Parameters
    ----------
    learning_rate : float, positive
        :math:`\eta_0`.
    factor : float, above 1
        :math:`f`.

    Examples
    --------
    >>> Adaptive(0.1)(step=7, n_steps=100, plateaus=1)
    0.02
    """

    learning_rate: float = 1e-3
    factor: float = 5.0
    ranges: ClassVar[Mapping[str, str]] = {"learning_rate": "(0, inf)", "factor": "(1, inf)"}

    def __call__(self, step: int, n_steps: int, plateaus: int = 0) -> float:
        return self.learning_rate / self.factor**plateaus


@SCHEDULES.register("cosine")
@dataclass(frozen=True)
class Cosine(Schedule):
    r"""Cosine annealing after a linear warm-up.

    With :math:`n` steps, the first :math:`k = \omega n` of them for the warm-up,

    .. math::

        \eta_t = \eta_0 \frac{t + 1}{k} \quad (t < k), \qquad
        \eta_t = \eta_0 \left(r + \frac{1 - r}{2} \left(1 + \cos \pi \frac{t - k}{n - k}\right)\right)

    Parameters
    ----------
    learning_rate : float, positive
        The highest rate.
    warmup : float in [0, 1)
        :math:`\omega`, a fraction of the planned steps.
    final_ratio : float in [0, 1]
        :math:`r`: the rate approaches :math:`r \eta_0`.

    Examples
    --------
    >>> schedule = Cosine(0.1, warmup=0.1)
    >>> [round(schedule(step, 100), 4) for step in (0, 9, 10, 55, 99)]
    [0.01, 0.1, 0.1, 0.05, 0.0]

    References
    ----------
    Loshchilov, Hutter, SGDR: stochastic gradient descent with warm restarts, ICLR 2017.
    """

    has_length: ClassVar[bool] = True
    learning_rate: float = 1e-3
    warmup: float = 0.0
    final_ratio: float = 0.0
    ranges: ClassVar[Mapping[str, str]] = {"learning_rate": "(0, inf)", "warmup": "[0, 1)", "final_ratio": "[0, 1]"}

    def __call__(self, step: int, n_steps: int, plateaus: int = 0) -> float:
        rising = round(self.warmup * n_steps)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        done = (_within(step, n_steps) - rising) / max(n_steps - rising, 1)
        return self.learning_rate * _cosine(1.0, self.final_ratio, done)


@SCHEDULES.register("onecycle")
@dataclass(frozen=True)
class OneCycle(Schedule):
    r"""The one-cycle policy: from :math:`\eta_0 / d` up to :math:`\eta_0`, then down to :math:`\eta_0 / (d D)`.

    Both phases follow half a cosine, as in PyTorch's OneCycleLR.

    Parameters
    ----------
    learning_rate : float, positive
        The highest rate.
    pct_start : float in [0, 1]
        The fraction of the steps in which the rate rises.
    div_factor : float, at least 1
        :math:`d`.
    final_div_factor : float, at least 1
        :math:`D`.

    Examples
    --------
    >>> schedule = OneCycle(0.1)
    >>> [round(schedule(step, 100), 6) for step in (0, 29, 99)]
    [0.004, 0.1, 0.0]

    References
    ----------
    Smith, Topin, Super-convergence: very fast training of neural networks using
    large learning rates, 2018.
    """

    has_length: ClassVar[bool] = True
    learning_rate: float = 1e-3
    pct_start: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    ranges: ClassVar[Mapping[str, str]] = {
        "learning_rate": "(0, inf)",
        "pct_start": "[0, 1]",
        "div_factor": "[1, inf)",
        "final_div_factor": "[1, inf)",
    }

    def __call__(self, step: int, n_steps: int, plateaus: int = 0) -> float:
        first = self.learning_rate / self.div_factor
        step, top, last = _within(step, n_steps), self.pct_start * n_steps - 1.0, n_steps - 1.0
        if step <= top:
            return _cosine(first, self.learning_rate, step / top if top else 1.0)
        done = (step - top) / (last - top) if last > top else 1.0
        return _cosine(self.learning_rate, first / self.final_div_factor, done)


@dataclass(frozen=True)
class Custom(Schedule):
    """A user-defined function of the step, whose results are checked.

    Raises
    ------
    OptimizerError
        On a call, if the function raises an error or does not return a positive, finite number.
    """

    function: Callable[[int], float]

    def __call__(self, step: int, n_steps: int, plateaus: int = 0) -> float:
        try:
            inspect.signature(self.function).bind(step)
        except TypeError as e:
            raise OptimizerError(
                f"The learning rate is called as function(step), but the function takes other arguments: {e}. "
                "For example: lambda step: 0.01 * 0.999**step."
            ) from e
        call = f"{getattr(self.function, '__name__', self.function)!s}({step})"
        try:
            rate: object = self.function(step)
        except Exception as e:  # a function of the user, which may raise anything
            raise OptimizerError(
                f"The learning rate of step {step} could not be computed: {call} raised {type(e).__name__}: {e}. "
                "Steps count from 0."
            ) from e
        number = as_number(rate)
        if not 0 < number < math.inf:
            least = " Bound it from below, for example max(rate, 1e-6)." if number <= 0 else ""
            if rate is None:
                least = " End it with return rate."
            if isinstance(rate, Schedule):
                least = f" Pass the schedule itself: learning_rate={rate!r}."
            if hasattr(rate, "item") and not isinstance(rate, numbers.Real):  # a tensor, as of a schedule of Keras
                least = " Convert it: learning_rate=lambda step: float(function(step))."
            raise OptimizerError(
                f"The learning rate must be a positive, finite number; {call} returned {rate!r}. Steps count from 0."
                + least
            )
        return number


def _tried(schedule: Schedule) -> Schedule:
    """Return a user's schedule after a call for the first of a thousand steps."""
    name = type(schedule).__name__
    try:
        rate: object = schedule(0, 1000, 0)
    except TypeError as e:
        raise OptimizerError(f"{name} is called as schedule(step, n_steps, plateaus), but failed: {e}.") from e
    if not 0 < as_number(rate) < math.inf:
        raise OptimizerError(f"{name} must return a positive, finite number for each step, got {rate!r} for step 0.")
    return schedule


@lists_its_arguments
def make_schedule(learning_rate: LearningRate) -> Schedule:
    """Return a schedule from a number, a name, a schedule or a function of the step.

    Parameters
    ----------
    learning_rate : float, str, Schedule or callable
        A function takes the step, from 0, and returns its learning rate.

    Returns
    -------
    Schedule
        The schedule, a frozen value.

    Raises
    ------
    OptimizerError
        The name is unknown, the number is not positive and finite, or the argument has another type.

    Examples
    --------
    >>> make_schedule(0.01)
    Constant(learning_rate=0.01)
    >>> make_schedule("adaptive")
    Adaptive(learning_rate=0.001, factor=5.0)
    >>> make_schedule(lambda step: 0.1 * 0.99**step)(2, 100)
    0.09801
    """
    if isinstance(learning_rate, Schedule):
        return learning_rate if is_of_package(type(learning_rate)) else _tried(learning_rate)
    if isinstance(learning_rate, str):
        return _of_name(learning_rate)
    if isinstance(learning_rate, type):
        name = learning_rate.__name__
        ours = issubclass(learning_rate, Schedule)
        remedy = (
            f"Pass {name}()."
            if ours
            else "Pass one of onnxtrain.optim, such as Cosine(0.1), or a function of the step."
        )
        raise OptimizerError(f"Expected a schedule, got the class {name}. {remedy}")
    if callable(learning_rate):
        return _of_function(learning_rate)
    if isinstance(learning_rate, numbers.Real):
        if not 0 < as_number(learning_rate) < math.inf:
            remedy = " To leave the weights as they are, set max_iter=0." if learning_rate == 0 else ""
            remedy = " Pass the size of a step, such as 0.001, which descends." if learning_rate < 0 else remedy
            raise OptimizerError(f"learning_rate must be a number in (0, inf), got {learning_rate!r}.{remedy}")
        return Constant(learning_rate)
    if isinstance(learning_rate, Optimizer):
        raise OptimizerError(f"learning_rate={learning_rate!r} is an optimizer. Pass it as solver=.")
    if isinstance(learning_rate, Mapping):
        if all(isinstance(step, int) for step in learning_rate) and len(learning_rate) > 1:
            raise OptimizerError(
                f"learning_rate={learning_rate!r:.80} is a dictionary. If its keys are steps, pass a function of the "
                f"step: learning_rate={_piecewise(learning_rate)}. An epoch has ceil(n_rows / batch_size) steps."
            )
        raise OptimizerError(
            f"learning_rate={learning_rate!r:.80} is a dictionary, but one rate holds for all weights. Pass a number; "
            "weights_to_train=[...] names the weights to train at all."
        )
    raise OptimizerError(
        f"learning_rate must be a number, one of {', '.join(SCHEDULES)}, a schedule or a function of the step, "
        f"got {learning_rate!r}."
        f"{several('learning_rate', learning_rate) or ' For example: learning_rate=onnxtrain.optim.Cosine(0.1).'}"
    )


def _piecewise(rates: Mapping[int, float]) -> str:
    """Return the code of a function of the step that has each rate from its step on."""
    steps = sorted(rates)
    code = [f"{rates[step]!r} if step < {end} else " for step, end in itertools.pairwise(steps)]
    return f"lambda step: {''.join(code)}{rates[steps[-1]]!r}"


def _of_function(function: Callable[[int], float]) -> Schedule:
    """Return a function of the step as a schedule; warn of one that takes the epoch, as the schedulers of Keras do."""
    code = getattr(function, "__code__", None)
    if code is not None and code.co_argcount == 1 and code.co_varnames[0].startswith("epoch"):
        warn(
            f"The learning rate is a function of the step, and its argument is named {code.co_varnames[0]!r}. An epoch "
            "has ceil(n_rows / batch_size) steps: divide the step by this number, and name the argument step."
        )
    return Custom(function)


def _of_name(name: str) -> Schedule:
    """Return the schedule named `name`, with its defaults."""
    if re.fullmatch(r"\s*[\d.]+(e-?\d+)?\s*", name, re.IGNORECASE):
        raise OptimizerError(f"learning_rate is the string {name!r}. Pass the number, learning_rate={name.strip()}.")
    if name not in SCHEDULES and (hint := SCHEDULES.hint(name)).startswith("Known"):
        raise OptimizerError(
            f"Unknown learning rate schedule {name!r}. {hint} For another one, pass a function of the step, such as "
            "lambda step: 0.01 * 0.5 ** (step // 100); for a warm-up, onnxtrain.optim.Cosine(0.01, warmup=0.1)."
        )
    return SCHEDULES.find(name)()


def _within(step: int, n_steps: int) -> int:
    return min(step, max(n_steps - 1, 0))


def _cosine(start: float, end: float, done: float) -> float:
    return end + (start - end) / 2.0 * (1.0 + math.cos(math.pi * done))
