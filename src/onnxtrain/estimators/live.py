"""A plot of the loss that grows while a fit runs."""

from __future__ import annotations

import os
import sys
from typing import Any

from onnxtrain.errors import ParameterError
from onnxtrain.estimators.display import LossCurveDisplay
from onnxtrain.training.state import EpochInfo


class LiveLossCurve:
    """A callback for ``fit``: draws the loss of each epoch while training runs.

    In a notebook the picture is replaced in place; with a `path` it is written there. Elsewhere nothing is drawn, and
    the values are kept for :meth:`plot`. Given to several fits, those of a search, it draws the earlier ones in gray.

    Parameters
    ----------
    path : path, optional
        A file of matplotlib's, ``"loss.png"`` or ``"loss.svg"``, that is written anew each time.
    every : int
        Draw after every so many epochs of a fit.
    rate : bool
        Draw the learning rate as well.

    Attributes
    ----------
    loss : list of float
    validation_loss : list of float
    learning_rate : list of float
        Those of the fit that runs, or was the last.
    earlier : list of list of float
        The losses of the fits before it.

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
            raise ParameterError(f"every is a number of epochs, 1 or more, got {every!r}.")
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise ParameterError(f"path is that of a picture, such as 'loss.png', got {path!r:.80}.")
        self.path, self.every, self.rate = path, every, rate
        self.loss: list[float] = []
        self.validation_loss: list[float] = []
        self.learning_rate: list[float] = []
        self.earlier: list[list[float]] = []
        self._epoch = 0
        self._shown: Any = None

    def __call__(self, info: EpochInfo) -> None:
        """Take the losses after an epoch; never stop the fit."""
        if info.epoch <= self._epoch:  # of another fit
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
            Where it is drawn; new ones if left out.

        Returns
        -------
        LossCurveDisplay
            With the artists as attributes.

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
    """Return IPython's ``display`` if this process is a kernel of a notebook: a terminal shows no pictures."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython.display import display

    return display
