"""Inspection of a fitted estimator: weights, the history of its epochs, a table of its layers, diagrams."""

from __future__ import annotations

import html
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.metaestimators import available_if

from onnxtrain.arguments import names_its_arguments
from onnxtrain.attributes import HasNoItems
from onnxtrain.errors import ExportError
from onnxtrain.estimators import deferred
from onnxtrain.estimators.base import OrtGradientEstimator
from onnxtrain.training.state import TrainingState

if TYPE_CHECKING:
    from onnxtrain.estimators.summary import Summary


@dataclass(frozen=True, repr=False)
class History(HasNoItems):
    """The losses and learning rates of all epochs, and how the last fit ended.

    Attributes
    ----------
    loss : tuple of float
        The objective, averaged over each epoch.
    validation_loss : tuple of float
        The validation loss after each epoch; NaN for epochs without a validation set, empty if no epoch had one.
    learning_rate : tuple of float
        The learning rate of the last step of each epoch; 1 for an iteration of L-BFGS.
    best_epoch : int
        The epoch with the lowest monitored loss, from 1.
    ending : str
        How the last fit ended and why, such as ``"stopped after 12 of 30: best epoch 2"``.
    """

    loss: tuple[float, ...]
    validation_loss: tuple[float, ...]
    learning_rate: tuple[float, ...]
    best_epoch: int
    ending: str

    _remedies = MappingProxyType(
        {
            "epochs": "Use len(history_).",
            "history": "Use loss and validation_loss, or to_frame().",
            "lr": "Use learning_rate.",
            "plot": "Use LossCurveDisplay.from_estimator(model).",
            "val_loss": "Use validation_loss.",
        }
    )

    def __len__(self) -> int:
        """Return the number of epochs."""
        return len(self.loss)

    def __repr__(self) -> str:
        return f"<History of {len(self)} epochs: {self.ending}>"

    def to_frame(self) -> Any:
        """Return a pandas frame with one row per epoch.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> model = OrtGradientRegressor(max_iter=3, learning_rate=0.1, init="random", random_state=0)
        >>> frame = model.fit([[0.0], [1.0]], [0.0, 1.0]).history_.to_frame()
        >>> frame.index.tolist(), frame["learning_rate"].tolist(), list(frame.columns)
        ([1, 2, 3], [0.1, 0.1, 0.1], ['loss', 'learning_rate'])
        """
        import pandas as pd  # optional

        columns = {"loss": self.loss, "validation_loss": self.validation_loss, "learning_rate": self.learning_rate}
        epochs = pd.RangeIndex(1, len(self) + 1, name="epoch")
        return pd.DataFrame({name: values for name, values in columns.items() if values}, index=epochs)


def history_of(state: TrainingState) -> History:
    """Return the history that a training state has recorded."""
    n, ending = state.epoch, state.ending or f"{state.epoch} epochs"
    validation = _for_each(state.validation_loss_curve, n) if state.validation_loss_curve else ()
    return History(tuple(state.loss_curve), validation, _for_each(state.rates, n), state.best_epoch, ending)


def _for_each(values: list[float], n: int) -> tuple[float, ...]:
    """Return values of the last epochs as one value per epoch, NaN for the epochs before."""
    return (*[np.nan] * (n - len(values)), *values)


#: The methods that skl2onnx calls to convert an estimator.
_OF_SKL2ONNX = {"onnx_parser", "onnx_shape_calculator", "onnx_converter"}


def _holds_estimator(estimator: OrtGradientEstimator) -> bool:
    """Whether an estimator is fitted and trained a scikit-learn estimator, not an ONNX model."""
    return estimator.__sklearn_is_fitted__() and estimator._trained.source.estimator is not None


class InspectableEstimator(OrtGradientEstimator):
    """An estimator that shows its trained model: attributes, tables, diagrams."""

    @property
    def weights_(self) -> dict[str, np.ndarray]:
        """The trained weights, a dictionary of arrays by name; changing an array changes the predictions.

        Training continues from the changed arrays too; with `average`, it continues from the unaveraged weights.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> {name: w.ravel().round(3).tolist() for name, w in line.weights_.items()}
        {'coef': [2.0], 'intercept': [1.0]}
        """
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"{type(self).__name__} has no weights_ before it is fitted. Call fit first.")
        model = self._trained.to_be_shown()
        if self._state.weights is self._trained.weights:  # training continues from the dictionary that is returned
            self._state.weights = model.weights
        self._trained = model
        return self._trained.weights

    @weights_.setter
    def weights_(self, weights: object) -> NoReturn:
        name = next(iter(self.weights_)) if self.__sklearn_is_fitted__() else "coef"
        raise AttributeError(f"weights_ cannot be replaced. Assign each weight: model.weights_[{name!r}] = values.")

    @property
    def history_(self) -> History:
        """The losses and learning rates of all epochs, and how the last fit ended; ``to_frame()`` gives a pandas frame.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> def enough(info):
        ...     return info.epoch == 3
        >>> model = OrtGradientRegressor(max_iter=30).fit([[0.0], [1.0]], [0.0, 1.0], callback=enough)
        >>> model.history_
        <History of 3 epochs: stopped after 3 of 30; a callback asked for it>
        """
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"{type(self).__name__} has no history_ before it is fitted. Call fit first.")
        return history_of(self._state)

    @names_its_arguments
    def summary(self) -> Summary:
        """Return a table of the layers: operators, shapes, parameters, trained or frozen, and the runtime of each step.

        The table prints as text; a notebook shows it as HTML.

        Returns
        -------
        Summary
            The table, with the attributes ``layers``, ``steps``, ``n_parameters`` and ``n_trained``.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> from onnxtrain import OrtGradientClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> start = LogisticRegression(max_iter=1000).fit(X, y)
        >>> OrtGradientClassifier(start, weights_to_train="coef", max_iter=2, random_state=0).fit(X, y).summary()
        OrtGradientClassifier of LogisticRegression, loss log
        logisticregression: ONNX
        layer      operator  weights  output  parameters  trained
        ---------------------------------------------------------
        coef       MatMul    (4, 3)   (n, 3)          12  trained
        intercept  Add       (3,)     (n, 3)           3  frozen
        ---------------------------------------------------------
        15 parameters: 12 trained, 3 frozen
        2 of 2 epochs
        """
        trained = self._model.source.estimator
        kind = "an ONNX model" if trained is None else type(trained).__name__
        loss = self._trained.objective.loss
        name = loss if isinstance(loss, str) else getattr(loss, "__name__", repr(loss))
        title = f"{type(self).__name__} of {kind}, loss {name}"
        return deferred.summary.summary_of(title, self._model, self.history_.ending)

    @property
    def coef_(self) -> np.ndarray:
        """The coefficients, a copy in the shape that the trained scikit-learn estimator gives them; set ``weights_``.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> line.coef_.round(3).tolist()
        [2.0]
        """
        return self._trained_attribute("coef_")

    @coef_.setter
    def coef_(self, values: object) -> NoReturn:
        self._refuse_assignment("coef")

    @property
    def intercept_(self) -> Any:
        """The intercepts, a copy in the shape that the trained scikit-learn estimator gives them; set ``weights_``.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> round(float(line.intercept_), 3)
        1.0
        """
        return self._trained_attribute("intercept_")

    @intercept_.setter
    def intercept_(self, values: object) -> NoReturn:
        self._refuse_assignment("intercept")

    def _refuse_assignment(self, name: str) -> NoReturn:
        """Raise the error for an assignment to a learned attribute; it names the weight, with the pipeline step."""
        weights = self.weights_ if self.__sklearn_is_fitted__() else ()
        weight = next((weight for weight in weights if weight.rpartition(".")[2] == name), name)
        raise AttributeError(f"{name}_ cannot be assigned. Assign the weight: model.weights_[{weight!r}] = values.")

    def _trained_attribute(self, name: str) -> Any:
        estimator = self._trained.source.estimator if self.__sklearn_is_fitted__() else None
        if estimator is None:
            raise AttributeError(
                f"{type(self).__name__} has {name} only after it was fitted with a scikit-learn estimator that has "
                f"{name}. Use weights_ for the learned weights of any model."
            )
        if not hasattr(estimator, name):
            raise AttributeError(f"{type(estimator).__name__} has no {name}. Use weights_ for the trained weights.")
        try:
            model = self._model.to_sklearn()  # a pipeline if scikit-learn runs its first steps
        except ExportError as e:  # hasattr and dir ask for it
            raise AttributeError(str(e)) from e
        if not hasattr(model, name):
            raise AttributeError(f"{type(model).__name__} has no {name}. Use weights_ for the trained weights.")
        value = getattr(model, name)
        if isinstance(value, np.ndarray):  # a copy, so writing to it would change no prediction
            value.flags.writeable = False
        return value

    @property
    def front_(self) -> Pipeline | None:
        """The pipeline of fitted first steps that scikit-learn runs and that are not trained; None if there are none.

        Examples
        --------
        Here the whole pipeline is converted to ONNX:

        >>> from sklearn.linear_model import Ridge
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from onnxtrain import OrtGradientRegressor
        >>> model = make_pipeline(StandardScaler(), Ridge())
        >>> tuned = OrtGradientRegressor(model, max_iter=1).fit([[0.0], [1.0]], [1.0, 3.0])
        >>> tuned.front_ is None
        True
        """
        return self._model.form.front

    @property
    def onnx_status_(self) -> dict[str, str]:
        """The library that runs each step, ``"ONNX"`` or ``"scikit-learn"``, by name; an ONNX model is a single step.

        Examples
        --------
        >>> from sklearn.linear_model import Ridge
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from onnxtrain import OrtGradientRegressor
        >>> model = make_pipeline(StandardScaler(), Ridge())
        >>> tuned = OrtGradientRegressor(model, max_iter=1).fit([[0.0], [1.0]], [1.0, 3.0])
        >>> tuned.onnx_status_
        {'standardscaler': 'ONNX', 'ridge': 'ONNX'}
        """
        return self._model.form.runs(self._trained.source.estimator)

    @available_if(_holds_estimator)
    def _sk_visual_block_(self) -> Any:
        """Return scikit-learn's diagram, with the steps grouped by the library that runs them."""
        model = self._trained
        front = [] if model.form.front is None else [("scikit-learn", Pipeline(model.form.front.steps))]
        trained = clone(model.source.estimator)  # a clone, because the fitted attributes are those from before training
        for step in trained.get_params().values():
            if isinstance(step, FunctionTransformer):
                step.n_features_in_ = 0  # otherwise, scikit-learn takes the length of names that are None
        steps = trained if isinstance(trained, Pipeline) else make_pipeline(trained)
        return Pipeline([*front, ("ONNX", steps)])._sk_visual_block_()

    def _repr_html_inner(self) -> str:
        """Return scikit-learn's diagram and, if the estimator is fitted, the summary."""
        return super()._repr_html_inner() + self._fitted_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/html": bundle["text/html"] + self._fitted_html()} if "text/html" in bundle else bundle

    def _fitted_html(self) -> str:
        """Return the summary as HTML, collapsed under a line that says how training ended; empty if not fitted."""
        if not self.__sklearn_is_fitted__():
            return ""
        summary = self.summary()
        line = f"{summary.ending}; {summary.totals}"
        return f"<details><summary>{html.escape(line)}</summary>{summary._repr_html_()}</details>"

    def __dir__(self) -> list[str]:
        """Leave out names that are not for users: skl2onnx's protocol and the parameters of the other class."""
        others = {"output_is", "class_axis"} - set(self._get_param_names())
        return sorted({*super().__dir__()} - others - _OF_SKL2ONNX)
