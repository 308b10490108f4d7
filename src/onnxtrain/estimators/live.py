"""A plot of the loss that is updated while a fit runs."""

from __future__ import annotations

import os
import sys
from typing import Any

from onnxtrain.errors import ParameterError
from onnxtrain.estimators.display import LossCurveDisplay
from onnxtrain.training.state import EpochInfo


class LiveLossCurve:
    """A callback for ``fit`` that draws the loss after each epoch.

    In a notebook the figure is updated in place. If `path` is given, the figure is written to this file. Otherwise
    nothing is drawn, and the values are kept for :meth:`plot`. If several fits use the same callback, as in a search,
    the curves of the earlier fits are gray.

    Parameters
    ----------
    path : path, optional
        The file of the figure, such as ``"loss.png"`` or ``"loss.svg"``; it is overwritten each time.
    every : int
        The number of epochs between two drawings.
    rate : bool
        Draw the learning rate as well.

    Attributes
    ----------
    loss : list of float
    validation_loss : list of float
    learning_rate : list of float
        The values of the current or last fit.
    earlier : list of list of float
        The losses of the earlier fits.

    Examples
    --------
    >>> from onnxtrain import LiveLossCurve, OrtGradientRegressor
    >>> live = LiveLossCurve()
    >>> model = OrtGradientRegressor(max_iter=4, init="random", random_state=0)
    >>> model = model.fit([[0.0], [1.0]], [0.0, 1.0], callback=live)
    >>> live.loss == model.loss_curve_
    True
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, every: int = 1, rate: bool = False):
        if not isinstance(every, int) or every < 1:
            raise ParameterError(f"every must be an integer, 1 or more, got {every!r}. It is a number of epochs.")
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise ParameterError(f"path must be the path of a picture, for example 'loss.png', got {path!r:.80}.")
        self.path, self.every, self.rate = path, every, rate
        self.loss: list[float] = []
        self.validation_loss: list[float] = []
        self.learning_rate: list[float] = []
        self.earlier: list[list[float]] = []
        self._epoch = 0
        self._shown: Any = None

    def __call__(self, info: EpochInfo) -> None:
        """Record the losses of an epoch and draw them; training never stops because of this callback."""
        if info.epoch <= self._epoch:  # another fit has begun
            self.earlier.append(self.loss)
            self.loss, self.validation_loss, self.learning_rate = [], [], []
        self._epoch = info.epoch
        self.loss.append(info.loss)
        self.learning_rate.append(info.learning_rate)
        if info.validation_loss is not None:
            self.validation_loss.append(info.validation_loss)
        if len(self.loss) % self.every == 0:
            self._draw()

    def plot(self, ax: Any = None) -> LossCurveDisplay:
        """Draw the curves so far.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw on; by default, new axes.

        Returns
        -------
        LossCurveDisplay
            The display, with the artists as attributes.

        Examples
        --------
        >>> from onnxtrain import LiveLossCurve, OrtGradientRegressor
        >>> live = LiveLossCurve()
        >>> model = OrtGradientRegressor(max_iter=4).fit([[0.0], [1.0]], [0.0, 1.0], callback=live)
        >>> len(live.plot().lines_[0].get_xdata())
        4
        """
        rates = self.learning_rate if self.rate else ()
        display = LossCurveDisplay(self.loss, self.validation_loss, learning_rate_curve=rates).plot(ax)
        for loss in self.earlier:
            display.ax_.plot(range(1, len(loss) + 1), loss, color="0.85", linewidth=1, zorder=0)
        return display

    def _draw(self) -> None:
        show = _notebook_display()
        if self.path is None and show is None:
            return
        import matplotlib.pyplot as plt  # optional

        figure = self.plot().figure_
        if self.path is not None:
            figure.savefig(self.path)
        if show is not None:
            if self._shown is None:
                self._shown = show(figure, display_id=True)
            else:
                self._shown.update(figure)
        plt.close(figure)


def _notebook_display() -> Any:
    """Return IPython's ``display`` in a notebook kernel, else None: a terminal shows no figures."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython.display import display

    return display
