"""Exports of a fitted estimator: ONNX, scikit-learn, the training step for other runtimes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.ensemble import StackingClassifier, StackingRegressor, VotingClassifier, VotingRegressor
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.validation import check_is_fitted

from onnxtrain.arguments import names_its_arguments
from onnxtrain.attributes import Named
from onnxtrain.errors import ArgumentTypeError, ParameterError, check_path, warn_of_given_file, warn_of_pickle
from onnxtrain.estimators import deferred
from onnxtrain.estimators.base import OrtGradientEstimator
from onnxtrain.estimators.protocols import ArrayLike, is_fitted
from onnxtrain.registry import did_you_mean

if TYPE_CHECKING:
    import onnx


class ExportableEstimator(OrtGradientEstimator):
    """An estimator that can be written as other models and files once it is fitted."""

    @names_its_arguments
    def get_trained_onnx(
        self, part: str = "whole", *, labels: bool = False, path: str | os.PathLike[str] | None = None
    ) -> onnx.ModelProto:
        """Return the model with the trained weights; an ONNX model keeps its inputs and outputs, labels included.

        Its predictions equal those of the estimator up to the rounding of its floating-point type.

        Parameters
        ----------
        part : {"whole", "tail"}
            ``"tail"``: only the graph, without the first steps of a pipeline, which scikit-learn runs
            (:attr:`onnx_status_`); the input of the graph is the output of these steps.
        labels : bool
            For a classifier that was given as ONNX: replace the outputs by ``label``, strings or int64, and
            ``probabilities`` (n, K), or ``scores`` if the loss has no probabilities. A model that already returns
            labels keeps its own outputs.
        path : path, optional
            The model is also written to this file. Weights that came in external data files are written to files of the
            same names beside it; if another model uses a file of this name, the name is prefixed with that of the new
            model.

        Returns
        -------
        onnx.ModelProto
            A new model; the given model is unchanged. For an ONNX model, only the values of trained initializers are
            new. A trained weight that the exporter had stored once for several equal weights, or omitted as an
            intercept of zeros, is a new initializer, which the nodes that use it take. Trained weights inside functions
            or operators of ai.onnx.ml give a different graph.

        Raises
        ------
        ExportError
            A step of the pipeline is run by scikit-learn because ONNX does not compute it in the same way.
        FileError
            The file cannot be written.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> import numpy as np, onnxruntime
        >>> session = onnxruntime.InferenceSession(line.get_trained_onnx().SerializeToString())
        >>> session.run(None, {"X": np.array([[5.0]], np.float32)})[0].round(3).tolist()
        [[11.0]]
        """
        if not isinstance(part, str):
            remedy = "Unlike skl2onnx.to_onnx, get_trained_onnx takes no rows: model.get_trained_onnx()."
            remedy = "Pass a file as path=..." if isinstance(part, os.PathLike) else remedy
            raise ArgumentTypeError(f"part must be 'whole' or 'tail', got {type(part).__name__}. {remedy}")
        if part not in ("whole", "tail"):
            near = did_you_mean(part, ("whole", "tail")).partition("Known")[0]
            near = "The steps in front of the trained part are model.front_. " if part == "front" else near
            raise ParameterError(f"part must be 'whole' or 'tail', got {part!r}. {near}Pass a file as path=...")
        if hasattr(path, "write"):
            check_path(path, remedy=" Write to it: file.write(model.get_trained_onnx().SerializeToString()).")
        elif path is not None:
            check_path(path)
            warn_of_pickle(path, "onnxruntime.InferenceSession")
            warn_of_given_file(path, self.estimator)
        if not isinstance(labels, bool):
            raise ParameterError(f"labels must be True or False, got {labels!r:.80}.")
        model = self._model
        if part == "whole":
            model.form.check_whole()
        onx = model.to_onnx(merge=getattr(self.weights_to_train, "merge", True))  # of LoRA
        onx = model.with_labels(onx, self._targets.decoder(model)) if labels else onx
        if path is not None:
            model.write(onx, path)
        return onx

    @names_its_arguments
    def to_sklearn(self) -> Any:
        """Return a fitted copy of the scikit-learn estimator whose learned attributes hold the trained weights.

        Returns
        -------
        estimator or pipeline
            An estimator of the given class.

        Raises
        ------
        ExportError
            The model was given as ONNX, or a weight has no corresponding attribute in the estimator.

        Examples
        --------
        >>> from sklearn.linear_model import LinearRegression
        >>> from onnxtrain import OrtGradientRegressor
        >>> X, y = [[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]
        >>> tuned = OrtGradientRegressor(LinearRegression(), solver="lbfgs").fit(X, y)
        >>> tuned.to_sklearn(), tuned.to_sklearn().coef_.round(3).tolist()
        (LinearRegression(), [2.0])
        """
        model = self._model.to_sklearn()
        if self._model.form.front is None and (self.estimator is None or not is_fitted(self.estimator)):
            _name_columns(model, vars(self).get("feature_names_in_"))
        return model

    @names_its_arguments
    def export_training_step(self, folder: str | os.PathLike, *, target: str = "cpu") -> None:
        """Write the training step to files that any onnxruntime runs: in a browser, on a phone, on another server.

        ``step.onnx`` is one training step; training continues from the current state of the estimator (``fit`` with
        ``max_iter=0`` gives the initial state). Its inputs are the rows, ``y``, the sample weights if the last fit had
        some, ``learning_rate`` and the state. Its outputs are ``loss`` and the next state. A runner needs only one
        rule: feed the output ``next_S`` to the input ``S``.

        * ``init.onnx`` has no inputs and returns the state, which includes the step number ``step``.
        * ``before.onnx`` is present if a part of the model does not depend on trained weights. It is run once per row;
          its outputs are the rows of the step.
        * ``predict.onnx`` is the whole model; it reads its weights from the state.
        * ``step.json`` describes the values, the classes that the labels 0, 1, ... stand for, the label of an ignored
          position (``no_label``: -1, in a regression ``"NaN"``; ``ignore_index`` is not fed), the parts of packed
          state, and what the host must do: the learning rate schedule, shuffling, stopping.

        Penalties, clipping and the optimizer are in the graph. The batch may have any size. If rows have positions, the
        weight to feed for a row is its sample weight times the number of its positions whose label is not -1 or NaN.

        Parameters
        ----------
        folder : path
            Created if it is missing; files of these names are replaced.
        target : {"cpu", "webgpu"}
            ``"cpu"`` runs everywhere, including WebAssembly; with the rows and learning rates of ``fit``, the weights
            equal those of ``fit`` bit by bit. ``"webgpu"`` is for GPUs: no float64, and weights are not packed into one
            tensor.

        Raises
        ------
        ExportError
            The solver is ``"lbfgs"``, the rows are sparse or strings, scikit-learn runs a part of the pipeline, or the
            target lacks an operator.
        FileError
            The folder cannot be written.

        Examples
        --------
        >>> import os, tempfile
        >>> import numpy as np, onnxruntime
        >>> from onnxtrain import OrtGradientRegressor
        >>> X, y = np.array([[0.0], [1.0], [2.0]], np.float32), np.array([1.0, 3.0, 5.0], np.float32)
        >>> line = OrtGradientRegressor(solver="sgd", init="random", max_iter=0).fit(X, y)
        >>> folder = tempfile.mkdtemp()
        >>> line.export_training_step(folder)
        >>> files = [os.path.join(folder, f"{name}.onnx") for name in ("step", "init")]
        >>> step, init = map(onnxruntime.InferenceSession, files)
        >>> state = dict(zip([o.name for o in init.get_outputs()], init.run(None, {})))
        >>> names = [o.name for o in step.get_outputs()]
        >>> for _ in range(100):
        ...     found = step.run(None, {"X": X, "y": y, "learning_rate": np.array([0.1]), **state})
        ...     state = {name.removeprefix("next_"): x for name, x in zip(names, found) if name != "loss"}
        >>> line.load_training_state(state).predict([[3.0]]).round(3).tolist()
        [7.0]
        """
        check_is_fitted(self)
        if not isinstance(folder, (str, os.PathLike)) or "\0" in os.fsdecode(folder):
            raise ArgumentTypeError(f"folder must be the path of a folder, got {folder!r:.80}.")
        deferred.step_files.write(folder, self, target)

    @names_its_arguments
    def get_training_graphs(self) -> dict[str, onnx.ModelProto]:
        """Return the graphs of the training objective, its gradient and its step, as they are derived.

        They start from the current weights and can be inspected or run.

        The step that ``fit`` runs is equivalent and has fewer nodes; :meth:`export_training_step` writes it, with a
        description of its state.

        Returns
        -------
        dict of str to onnx.ModelProto
            ``"model"``, the trained part of the model; ``"loss"``, the objective of a batch; ``"gradient"``, the
            objective and ``<weight>_grad`` for each trained weight; ``"step"``, the objective and the next state,
            absent for ``"lbfgs"``. Weights and penalty strengths are inputs with their current values as defaults. The
            other inputs are the rows; ``label``, class indices for a classifier (named ``label_1`` if the model has a
            ``label``); the sample weights if ``fit`` had some; and ``share``, one over the number of rows, or over the
            sum of their weights. The inputs of a step are also the optimizer state and ``scalar_0``, ..., the entries
            of the optimizer's ``scalar_table`` for this step.

        Raises
        ------
        NotFittedError
            The estimator is not fitted.

        Examples
        --------
        >>> import numpy as np, onnxruntime
        >>> from onnxtrain import OrtGradientRegressor
        >>> X, y = np.array([[0.0], [1.0]], np.float32), np.array([[0.0], [4.0]], np.float32)
        >>> line = OrtGradientRegressor(solver="sgd", max_iter=0).fit(X, 2 * X.ravel())
        >>> graphs = line.get_training_graphs()
        >>> list(graphs)
        ['model', 'loss', 'gradient', 'step']
        >>> session = onnxruntime.InferenceSession(graphs["gradient"].SerializeToString())
        >>> [o.name for o in session.get_outputs()]
        ['loss', 'coef_grad', 'intercept_grad']
        >>> feeds = {"X": X, "label": y, "share": np.array([[1 / 2]], np.float32)}
        >>> loss, slope, _ = session.run(None, feeds)
        >>> loss.round(3).item(), slope.round(3).item()
        (2.0, -2.0)
        """
        check_is_fitted(self)
        return Named(deferred.graphs.training_graphs(self))

    @names_its_arguments
    def load_training_state(self, state: str | os.PathLike | Mapping[str, ArrayLike]) -> Self:
        """Continue from the state that the files of :meth:`export_training_step` have reached elsewhere.

        Afterwards ``predict``, ``to_sklearn``, ``partial_fit`` and a further export use this state. The loss curves
        stay those of the fits in this process.

        Parameters
        ----------
        state : mapping of str to array-like, or path
            The arrays, by the output names of ``init.onnx``; or a file, ``.npz`` of numpy or ``.onnx`` of the
            JavaScript runner; or a folder with ``state.npz`` or ``state.onnx``.

        Returns
        -------
        self
            The estimator with this state.

        Raises
        ------
        DataError
            A name or a shape does not match the step of this estimator, a value is not finite, or ``step.json`` beside
            the file describes weights or classes of another estimator.

        Examples
        --------
        Another estimator continues from the state, as it would after training elsewhere:

        >>> import os, tempfile
        >>> import onnxruntime
        >>> from onnxtrain import OrtGradientRegressor
        >>> X, y = [[0.0], [1.0]], [1.0, 3.0]
        >>> trained = OrtGradientRegressor(learning_rate=0.1, max_iter=5, random_state=0).fit(X, y)
        >>> folder = tempfile.mkdtemp()
        >>> trained.export_training_step(folder)
        >>> init = onnxruntime.InferenceSession(os.path.join(folder, "init.onnx"))
        >>> state = dict(zip([o.name for o in init.get_outputs()], init.run(None, {})))
        >>> other = OrtGradientRegressor(init="random", max_iter=0, random_state=1).fit(X, y).load_training_state(state)
        >>> (other.predict(X) == trained.predict(X)).all().item()
        True
        """
        check_is_fitted(self)
        if not isinstance(state, (str, os.PathLike, Mapping)):
            other = "For the weights of another estimator, use model.weights_.update(other.weights_)."
            raise ArgumentTypeError(
                f"state must be a mapping of names to arrays, or the path of a file or folder, got {state!r:.80}. "
                f"{other if hasattr(state, 'weights_') else 'A step that ran elsewhere returns the mapping.'}"
            )
        deferred.trained.set_learned(self, *deferred.step_files.read(state, self))
        return self

    # the protocol of skl2onnx ------------------------------------------------

    def onnx_parser(self) -> Callable[..., list[Any]]:
        """Return the function that skl2onnx calls for the names and types of the outputs.

        Returns
        -------
        callable
            For skl2onnx.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> callable(line.onnx_parser())
        True
        """
        return deferred.custom.parser_of(self)

    def onnx_shape_calculator(self) -> Callable[[Any], None]:
        """Return the function that skl2onnx calls to set the types of the outputs.

        Returns
        -------
        callable
            For skl2onnx.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> line = OrtGradientRegressor(solver="lbfgs").fit([[0.0], [1.0]], [1.0, 3.0])
        >>> callable(line.onnx_shape_calculator())
        True
        """
        return deferred.custom.shape_calculator_of(self)

    def onnx_converter(self) -> Callable[[Any, Any, Any], None]:
        """Return the function that skl2onnx calls to add the nodes.

        Returns
        -------
        callable
            For skl2onnx.

        Examples
        --------
        skl2onnx puts the trained graph inside a pipeline:

        >>> import numpy as np
        >>> from onnxtrain import OrtGradientRegressor
        >>> from skl2onnx import to_onnx
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> model = make_pipeline(StandardScaler(), OrtGradientRegressor(solver="lbfgs"))
        >>> model = model.fit([[0.0], [1.0]], [1.0, 3.0])
        >>> [node.op_type for node in to_onnx(model, np.zeros((1, 1), np.float32)).graph.node][:1]
        ['Scaler']
        """
        return deferred.custom.converter_of(self)


def _name_columns(model: Any, names: np.ndarray | None) -> None:
    """Give an estimator, which `fit` fitted on the values of a frame, the names of its columns.

    They are those of the first step of a pipeline, and of all members to which an ensemble or a union passes the frame.
    With ``set_output(transform="pandas")`` later steps of a pipeline know names that are made of it.
    """
    while isinstance(model, Pipeline):
        model, *later = [step for _, step in model.steps if step not in ("passthrough", None)]
        if any(hasattr(step, "feature_names_in_") for step in later):
            return
    if names is None or getattr(model, "n_features_in_", None) != len(names):
        return
    for member in _members(model):
        _name_columns(member, names)
    if type(model).__module__.startswith("sklearn.") and not any(
        hasattr(p, "fit") for p in model.get_params().values()
    ):
        model.feature_names_in_ = names


#: Ensembles that pass rows on to their members as they are.
_PASS_ON = (
    *(VotingClassifier, VotingRegressor, StackingClassifier, StackingRegressor),
    *(MultiOutputClassifier, MultiOutputRegressor),
)


def _members(model: Any) -> list[Any]:
    """Return the fitted estimators to which a union or an ensemble passes rows on as they are."""
    if isinstance(model, FeatureUnion):
        return [member for _, member in model.transformer_list]
    return list(model.estimators_) if isinstance(model, _PASS_ON) else []
