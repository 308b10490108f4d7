"""Plots of training, in the form of scikit-learn's displays, and a plot that is updated while a fit runs."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onnxtrain.arguments import lists_its_arguments
from onnxtrain.attributes import NamesItsAttributes, NamesItsConstructors
from onnxtrain.errors import ArgumentTypeError, DependencyError, ParameterError, printable
from onnxtrain.estimators.containers import place_in
from onnxtrain.estimators.inspection import History
from onnxtrain.estimators.protocols import Estimator
from onnxtrain.training.state import EpochInfo


def _axes(ax: Any) -> Any:
    if ax is not None:
        if not hasattr(ax, "plot"):
            one = " Pass one of them, ax=axes[0]." if np.size(ax) > 1 else ""
            raise ArgumentTypeError(f"ax must be a matplotlib Axes, such as plt.gca(), got {ax!r:.80}.{one}")
        return ax
    try:
        import matplotlib.pyplot as plt  # optional
    except ImportError as e:
        raise DependencyError(
            "Displays require matplotlib, which is not installed. Run pip install matplotlib.", name="matplotlib"
        ) from e
    return plt.subplots()[1]


#: The attributes in which estimators of scikit-learn hold the one that they have fitted; the last step of a pipeline.
_INSIDE = ("best_estimator_", "regressor_", "steps")

#: The attributes in which others hold several, and the first of them.
_SEVERAL = {"estimators_": "estimators_[0]", "calibrated_classifiers_": "calibrated_classifiers_[0].estimator"}


def _check_single(found: Any, display: str) -> None:
    """Raise an ArgumentTypeError for an ensemble of estimators of this package, which names the first of them."""
    for name, first in _SEVERAL.items():
        several: Any = getattr(found, name, ())
        inside = getattr(several[0], "estimator", several[0]) if len(several) else None
        if any(hasattr(type(one), "get_trained_onnx") for one in (inside, *several)):
            raise ArgumentTypeError(
                f"{type(found).__name__} contains {len(several)} fitted estimators. Draw one of them, "
                f"{display}.from_estimator(model.{first}), or several with the same ax=."
            )


def _trained(model: Any, display: str) -> Estimator:
    """Return the estimator of this package inside a search or at the end of a pipeline.

    Raises
    ------
    ArgumentTypeError
        It contains no estimator of this package.
    NotFittedError
    """
    found = model
    while inner := [name for name in _INSIDE if hasattr(found, name)]:
        found = getattr(found, inner[0])
        found = found[-1][1] if inner[0] == "steps" else found
    _check_single(found, display)
    if not hasattr(type(found), "get_trained_onnx"):
        if hasattr(found, "estimator") or hasattr(found, "regressor"):
            check_is_fitted(found)
        kept = getattr(model, "refit", True)
        remedy = "" if kept else " A search with refit=False keeps no fitted estimator. Set refit=True."
        remedy = remedy or _instead_of(model, display)
        name = f"the class {found.__name__}" if isinstance(found, type) else type(found).__name__
        name = "a dictionary" if isinstance(found, dict) else name
        raise ArgumentTypeError(
            "Expected a fitted OrtGradientRegressor or OrtGradientClassifier, or a fitted pipeline or search that ends "
            f"with one, got {name}.{remedy}"
        )
    check_is_fitted(found)
    return found


def _instead_of(given: Any, display: str) -> str:
    """Return the remedy for an argument of ``from_estimator`` that is not an estimator, such as a loss curve."""
    if (place := place_in(given)) is not None:
        return f" Pass one of them: {place}."
    if isinstance(given, (list, tuple)) and any(hasattr(type(one), "get_trained_onnx") for one in given):
        return " Draw them one by one, with the same ax=."
    if isinstance(given, History):
        return " Pass the estimator itself."
    if hasattr(given, "loss_curve_") and display == "LossCurveDisplay":  # a network of scikit-learn
        return " Draw its own curve with LossCurveDisplay(model.loss_curve_).plot()."
    if isinstance(given, type):
        return " Pass a fitted instance."
    is_drawn = isinstance(given, (list, tuple, np.ndarray) if display == "LossCurveDisplay" else Mapping)
    return f" Draw it with {display}(...).plot()." if is_drawn else ""


#: What to use instead of methods of figures, and of attributes before plot.
_OF_FIGURES = MappingProxyType(
    {
        **dict.fromkeys(("ax_", "boxes_", "figure_", "lines_"), "Call plot() first."),
        "save": "Use figure_.savefig(path).",
        "savefig": "Use figure_.savefig(path).",
        "show": "Use matplotlib.pyplot.show(); a notebook shows the figure.",
    }
)


class LossCurveDisplay(NamesItsAttributes, metaclass=NamesItsConstructors):
    """A plot of the training loss per epoch and, if present, of the validation loss and the learning rate.

    Parameters
    ----------
    loss_curve, validation_loss_curve : sequence of float
        The loss of each epoch.
    best_iteration : int, optional
        The epoch whose weights were kept, from 1.
    learning_rate_curve : sequence of float
        The learning rate of each epoch, drawn on a second axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
    rate_ax_ : matplotlib Axes or None
        The axis of the learning rate.
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D

    Examples
    --------
    >>> import numpy as np
    >>> from onnxtrain import LossCurveDisplay, OrtGradientRegressor
    >>> X = np.arange(6.0).reshape(-1, 1)
    >>> model = OrtGradientRegressor(max_iter=4).fit(X, X.ravel())
    >>> len(LossCurveDisplay.from_estimator(model).lines_[0].get_xdata())
    4
    """

    _remedies = _OF_FIGURES

    @lists_its_arguments
    def __init__(
        self,
        loss_curve: Sequence[float],
        validation_loss_curve: Sequence[float] = (),
        best_iteration: int | None = None,
        learning_rate_curve: Sequence[float] = (),
    ):
        for curve in (loss_curve, validation_loss_curve, learning_rate_curve):
            if isinstance(curve, History):
                raise ArgumentTypeError("A curve must contain one number per epoch, got History. Pass history_.loss.")
            of_estimators = hasattr(curve, "__iter__") and any(hasattr(one, "fit") for one in curve)
            if isinstance(curve, str) or not hasattr(curve, "__len__") or of_estimators or not _is_numeric(curve):
                raise ArgumentTypeError(
                    f"A curve must contain one number per epoch, got {curve!r:.80}. To plot a fitted estimator, use "
                    "LossCurveDisplay.from_estimator(estimator)."
                )
        self.learning_rate_curve = learning_rate_curve
        self.loss_curve = loss_curve
        self.validation_loss_curve = validation_loss_curve
        self.best_iteration = best_iteration

    @classmethod
    @lists_its_arguments
    def from_estimator(cls, estimator: Estimator, *, rate: bool = False, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the loss curves of a fitted estimator.

        Parameters
        ----------
        estimator : OrtGradientRegressor, OrtGradientClassifier, Pipeline or search
            A fitted estimator; of a pipeline the last step is drawn, of a search the best estimator, of a
            TransformedTargetRegressor its regressor.
        rate : bool
            Draw the learning rate as well, on an axis of its own.
        ax : matplotlib Axes, optional
            The axes to draw on; by default, new axes.
        **kwargs : dict
            Further arguments of matplotlib's ``plot``.

        Returns
        -------
        LossCurveDisplay
            The display, with the artists as attributes.

        Examples
        --------
        >>> from onnxtrain import LossCurveDisplay, OrtGradientRegressor
        >>> line = OrtGradientRegressor(max_iter=4).fit([[0.0], [1.0]], [0.0, 1.0])
        >>> LossCurveDisplay.from_estimator(line).ax_.get_ylabel()
        'loss'
        """
        trained = _trained(estimator, "LossCurveDisplay")
        history = trained.history_
        _check_rate(rate)
        best = history.best_epoch if history.validation_loss else None
        rates = history.learning_rate if rate else ()
        display = cls(history.loss, history.validation_loss, best, rates).plot(ax, **kwargs)
        if trained.solver == "lbfgs":
            display.ax_.set_xlabel("iteration")
        return display

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the loss curves.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw on; by default, new axes.
        **kwargs : dict
            Further arguments of matplotlib's ``plot``.

        Returns
        -------
        LossCurveDisplay
            The display, with the artists as attributes.

        Examples
        --------
        >>> from onnxtrain import LossCurveDisplay
        >>> display = LossCurveDisplay([2.0, 1.0, 0.5], [2.5, 1.5, 1.7], best_iteration=2).plot()
        >>> [line.get_label() for line in display.lines_]
        ['training', 'validation']
        """
        self.ax_ = _axes(ax)
        self.figure_ = self.ax_.figure
        self.lines_ = []
        curves = {"training": self.loss_curve, "validation": self.validation_loss_curve}
        for label, curve in curves.items():
            if len(curve):
                epochs = np.arange(1, len(curve) + 1)
                self.lines_ += self._line(epochs, curve, **{"label": label, **kwargs})
        if self.best_iteration:
            self.ax_.axvline(self.best_iteration, color="gray", linestyle=":", label="best")
        self.ax_.set(xlabel="epoch", ylabel="loss")
        self.rate_ax_ = self._plot_rate() if len(self.learning_rate_curve) else None
        if len(self.ax_.get_legend_handles_labels()[0]) > 1:
            self.ax_.legend()
        return self

    def _line(self, epochs: np.ndarray, curve: Sequence[float], **kwargs: Any) -> list[Any]:
        """Draw a curve; the error for an argument that matplotlib does not know says where arguments go."""
        try:
            return list(self.ax_.plot(epochs, curve, **kwargs))
        except AttributeError as e:
            raise ArgumentTypeError(
                f"{e}. Arguments other than ax and rate are passed to matplotlib's plot. For a title, use "
                "ax_.set_title(...), for a logarithmic scale, use ax_.set_yscale('log'), and to write the figure to a "
                "file, figure_.savefig(path)."
            ) from e

    def _plot_rate(self) -> Any:
        """Draw the learning rate on a second axis at the right."""
        axes = self.ax_.twinx()
        epochs = np.arange(1, len(self.learning_rate_curve) + 1)
        self.lines_ += axes.plot(epochs, self.learning_rate_curve, color="0.6", linestyle="--", linewidth=1)
        axes.set_ylabel("learning rate (dashed)")
        return axes


class WeightsDisplay(NamesItsAttributes, metaclass=NamesItsConstructors):
    """A box plot of the distribution of each trained weight.

    Parameters
    ----------
    weights : mapping of str to ndarray
        Arrays of any shape, by name.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    boxes_ : dict of matplotlib artists

    Examples
    --------
    >>> import numpy as np
    >>> from onnxtrain import OrtGradientRegressor, WeightsDisplay
    >>> X = np.arange(6.0).reshape(-1, 1)
    >>> model = OrtGradientRegressor(max_iter=4).fit(X, X.ravel())
    >>> [label.get_text() for label in WeightsDisplay.from_estimator(model).ax_.get_xticklabels()]
    ['coef', 'intercept']
    """

    _remedies = _OF_FIGURES

    @lists_its_arguments
    def __init__(self, weights: Mapping[str, np.ndarray]):
        if not isinstance(weights, Mapping):
            raise ArgumentTypeError(
                f"weights must be a mapping of names to arrays, got {weights!r:.80}. To plot a fitted estimator, use "
                "WeightsDisplay.from_estimator(estimator)."
            )
        self.weights = weights
        for name, weight in weights.items():
            if not _is_numeric(weight):
                raise ArgumentTypeError(
                    f"The weight {name!r} must be an array of numbers, got {weight!r:.80}. Pass the weights of a "
                    "fitted estimator, weights_, or arrays, such as {'coef': model.coef_}."
                )

    @classmethod
    @lists_its_arguments
    def from_estimator(cls, estimator: Estimator, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the weights of a fitted estimator.

        Parameters
        ----------
        estimator : OrtGradientRegressor, OrtGradientClassifier, Pipeline or search
            A fitted estimator; of a pipeline the last step is drawn, of a search the best estimator, of a
            TransformedTargetRegressor its regressor.
        ax : matplotlib Axes, optional
            The axes to draw on; by default, new axes.
        **kwargs : dict
            Further arguments of matplotlib's ``boxplot``.

        Returns
        -------
        WeightsDisplay
            The display, with the artists as attributes.

        Examples
        --------
        >>> from onnxtrain import WeightsDisplay, OrtGradientRegressor
        >>> line = OrtGradientRegressor(max_iter=4).fit([[0.0], [1.0]], [0.0, 1.0])
        >>> WeightsDisplay.from_estimator(line).ax_.get_ylabel()
        'value of the weight'
        """
        return cls(_trained(estimator, "WeightsDisplay").weights_).plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the boxes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw on; by default, new axes.
        **kwargs : dict
            Further arguments of matplotlib's ``boxplot``.

        Returns
        -------
        WeightsDisplay
            The display, with the artists as attributes.

        Examples
        --------
        >>> import numpy as np
        >>> from onnxtrain import WeightsDisplay
        >>> len(WeightsDisplay({"a": np.ones(3), "b": np.zeros((2, 2))}).plot().boxes_["boxes"])
        2
        """
        self.ax_ = _axes(ax)
        self.figure_ = self.ax_.figure
        values = [np.asarray(w, dtype=float).ravel() for w in self.weights.values()]
        try:
            self.boxes_ = self.ax_.boxplot(values, **kwargs)
        except TypeError as e:
            raise ArgumentTypeError(
                f"{e}. Arguments other than ax are passed to matplotlib's boxplot. To plot one weight, use "
                "WeightsDisplay({name: model.weights_[name]}).plot(), for a title ax_.set_title(...), and for a "
                "histogram of a weight plt.hist(model.weights_[name].ravel())."
            ) from e
        names = [printable(str(name)) for name in self.weights]
        self.ax_.set_xticklabels(names, rotation=30, ha="right", parse_math=False)  # a name may hold $
        self.ax_.set(ylabel="value of the weight")
        return self


# ------------------------------------------------------------ while a fit runs


class LiveLossCurve(NamesItsAttributes, metaclass=NamesItsConstructors):
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

    _remedies = MappingProxyType(
        {
            **dict.fromkeys(("ax_", "figure_", "lines_"), "plot() returns a display, which has it."),
            **dict.fromkeys(("save", "savefig"), "Set path=..., or use plot().figure_.savefig(path)."),
        }
    )
    _constructor = "LossCurveDisplay.from_estimator"

    @lists_its_arguments
    def __init__(self, path: str | os.PathLike[str] | None = None, *, every: int = 1, rate: bool = False):
        if not isinstance(every, int) or every < 1:
            raise ParameterError(f"every must be an integer, 1 or more, got {every!r}. It is a number of epochs.")
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise ParameterError(f"path must be the path of a picture, for example 'loss.png', got {path!r:.80}.")
        if path is not None and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            from onnxtrain.graph import in_folder  # imports onnx, which the classes of this module do not need

            raise ParameterError(f"The folder of the picture does not exist.{in_folder(path)}")
        if path is not None and os.path.isdir(path):
            raise ParameterError(f"path={path!r} is a folder. Pass the path of a picture in it, such as 'loss.png'.")
        _check_rate(rate)
        _check_format(path)
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


def _check_rate(rate: object) -> None:
    if not isinstance(rate, (bool, np.bool_)):
        raise ParameterError(f"rate must be True, to draw the learning rate as well, or False, got {rate!r:.80}.")


def _is_numeric(values: Any) -> bool:
    """Whether values form a real-valued array, which may be empty."""
    try:
        return np.asarray(values).dtype.kind in "biuf"
    except ValueError:  # rows of different lengths
        return False


def _check_format(path: str | os.PathLike[str] | None) -> None:
    """Raise a ParameterError if a file name has an ending of no format that matplotlib writes."""
    ending = "" if path is None else os.path.splitext(path)[1]
    if not ending or importlib.util.find_spec("matplotlib") is None:  # drawing requires it
        return
    from matplotlib.backend_bases import FigureCanvasBase  # optional

    formats = FigureCanvasBase.get_supported_filetypes()
    if ending[1:].lower() not in formats:
        raise ParameterError(
            f"path={path!r} has the ending {ending!r}, which no format of matplotlib has. Choose one of "
            f"{', '.join(sorted(formats))}, for example 'loss.png'."
        )


def _notebook_display() -> Any:
    """Return IPython's ``display`` in a notebook kernel, else None: a terminal shows no figures."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython.display import display

    return display
