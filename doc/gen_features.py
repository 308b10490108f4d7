"""Write the page that compares features with the peers', and run the line of code that shows each here.

Run from the root of the repository: ``python doc/gen_features.py doc/features.rst``; without a path it prints.
Of the peers, scikit-learn is asked itself where a parameter answers; of skorch 1.4 and Keras 3 it is said what their
documentation says.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

WORDS = ("comparison", "alternatives", "skorch", "MLPClassifier", "SGDClassifier")

SETUP = """
import pickle
import numpy as np, onnx, pandas as pd, scipy.sparse
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
import onnxtrain
from onnxtrain import LossCurveDisplay, OrtGradientClassifier, OrtGradientRegressor
X, y = load_iris(return_X_y=True)
names = load_iris().target_names[y]
mlp = MLPClassifier(hidden_layer_sizes=(8,), max_iter=50, random_state=0).fit(X, y)
fitted = OrtGradientClassifier(mlp, max_iter=2, random_state=0).fit(X, y)
onnx.save(fitted.get_trained_onnx(), "model.onnx")
def my_loss(op, y_true, y_pred): return op.Abs(op.Sub(y_pred, y_true))
"""

YES, NO = "yes", "—"


def parameter(name: str, *estimators: type) -> str:
    """Whether scikit-learn's estimators have a parameter, of the constructor or of ``fit``."""
    functions = [f for e in estimators for f in (e.__init__, e.fit)]
    return YES if any(name in inspect.signature(f).parameters for f in functions) else NO


def mlp(name: str) -> str:
    """Whether scikit-learn's MLP has a parameter."""
    return parameter(name, MLPClassifier, MLPRegressor)


def sgd(name: str) -> str:
    """Whether scikit-learn's SGD estimators have a parameter."""
    return parameter(name, SGDClassifier, SGDRegressor)


@dataclass(frozen=True)
class Feature:
    """One row: what, the line that shows it here, and who else has it."""

    title: str
    code: str
    mlp: str = NO
    sgd: str = NO
    skorch: str = NO
    keras: str = NO


FEATURES = [
    Feature("Fine-tunes a fitted scikit-learn model", "OrtGradientClassifier(mlp, max_iter=2).fit(X, y)"),
    Feature("Fine-tunes an ONNX file", 'OrtGradientClassifier("model.onnx", max_iter=2).fit(X, y)'),
    Feature(
        "Trains a whole pipeline, end to end",
        'OrtGradientClassifier(make_pipeline(StandardScaler(), mlp), weights_to_train="all", max_iter=2).fit(X, y)',
    ),
    Feature("Returns the scikit-learn object", "fitted.to_sklearn().predict(X)", mlp=YES, sgd=YES),
    Feature("Returns the trained model as ONNX", "fitted.get_trained_onnx()"),
    Feature("Any loss by name", 'OrtGradientRegressor(loss="absolute_error").fit(X, y)', "two", YES, YES, YES),
    Feature("A custom loss", "OrtGradientRegressor(loss=my_loss, max_iter=2).fit(X, y)", NO, NO, YES, YES),
    Feature("l1 and l2 penalties", "OrtGradientClassifier(l1=1e-3, l2=1e-3).fit(X, y)", "l2", YES, "by hand", YES),
    Feature(
        "Weights that are exactly zero, with any optimizer",
        'OrtGradientClassifier(l1=1e-2, l1_method="proximal").fit(X, y)',
        sgd="SGD",
    ),
    Feature(
        "Class weights",
        'OrtGradientClassifier(class_weight="balanced").fit(X, y)',
        mlp("class_weight"),
        sgd("class_weight"),
        "by hand",
        YES,
    ),
    Feature(
        "Sample weights",
        "OrtGradientClassifier().fit(X, y, sample_weight=np.ones(len(X)))",
        mlp("sample_weight"),
        sgd("sample_weight"),
        "by hand",
        YES,
    ),
    Feature(
        "A validation set of your own",
        "OrtGradientClassifier().fit(X[::2], y[::2], X_val=X[1::2], y_val=y[1::2])",
        mlp("X_val"),
        sgd("X_val"),
        YES,
        YES,
    ),
    Feature("``partial_fit``", "OrtGradientClassifier().partial_fit(X, y)", YES, YES, YES, YES),
    Feature(
        "L-BFGS and first-order optimizers",
        'OrtGradientClassifier(solver="lbfgs").fit(X, y)',
        YES,
        NO,
        "first-order",
        "first-order",
    ),
    Feature(
        "Callbacks",
        "OrtGradientClassifier(max_iter=2).fit(X, y, callback=lambda info: info.loss < 0.1)",
        mlp("callback"),
        sgd("callback"),
        YES,
        YES,
    ),
    Feature(
        "Checkpoints, and resuming from one",
        'OrtGradientClassifier(max_iter=2).fit(X, y, checkpoint="half.onnx")',
        skorch=YES,
        keras=YES,
    ),
    Feature("A file without pickle", 'onnxtrain.save(fitted, "fitted.onnx")', keras=YES),
    Feature("Pickle", "pickle.loads(pickle.dumps(fitted)).predict(X)", YES, YES, YES, YES),
    Feature(
        "Multilabel targets, any loss",
        'OrtGradientClassifier(loss="focal").fit(X, np.eye(3, dtype=int)[y])',
        "one loss",
        NO,
        "by hand",
        YES,
    ),
    Feature("Labels of any type", "OrtGradientClassifier().fit(X, names)", YES, YES, NO, YES),
    Feature(
        "pandas and sparse rows", "OrtGradientClassifier().fit(scipy.sparse.csr_matrix(X), y)", YES, YES, "pandas", NO
    ),
    Feature(
        "Grid search over the loss",
        'GridSearchCV(OrtGradientClassifier(max_iter=2), {"loss": ["log", "focal"]}).fit(X, y)',
        "two",
        YES,
        YES,
        YES,
    ),
    Feature("Gradients with respect to rows", "fitted.gradient(X, y)", skorch="by hand", keras="by hand"),
    Feature("Results of hidden layers", "fitted.embed(X, output=layer)", skorch="by hand", keras=YES),
    Feature("Loss of each row", "fitted.losses(X, y)", skorch="by hand", keras="by hand"),
    Feature("A GPU", 'OrtGradientClassifier(device="auto", max_iter=2).fit(X, y)', NO, NO, YES, YES),
    Feature(
        "The same bits for the same seed", "OrtGradientClassifier(random_state=0).fit(X, y)", YES, YES, "CPU", "CPU"
    ),
]


def run(features: list[Feature]) -> None:
    """Run the line of each feature; what fails raises."""
    names: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = Path.cwd()
        os.chdir(folder)
        try:
            exec(SETUP, names)
            for feature in features:
                names["layer"] = hidden_result(names["fitted"])
                exec(feature.code, names)
        finally:
            os.chdir(before)


def hidden_result(fitted) -> str:
    """Return the name of a result in the middle of the model."""
    nodes = fitted.get_trained_onnx().graph.node
    return next(node.output[0] for node in nodes if node.op_type == "Relu")


def page(features: list[Feature]) -> str:
    """Return the page, reStructuredText."""
    lines = [
        f".. index:: {', '.join(f'! {word}' for word in WORDS)}",
        "",
        "Comparison with other libraries",
        "===============================",
        "",
        ".. This page is written by doc/gen_features.py: change that.",
        "",
        "This table compares onnxtrain with the ``MLP*`` and ``SGD*`` estimators of scikit-learn, skorch and the",
        "scikit-learn wrappers of Keras. Each line of code was run when this page was built. *By hand* means that",
        "the library does not have the feature, but a user can write it.",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 26 44 8 8 8 8",
        "",
    ]
    head = ("Feature", "Here", "MLP", "SGD", "skorch", "Keras")
    rows = [(f.title, f"``{f.code}``", f.mlp, f.sgd, f.skorch, f.keras) for f in features]
    for first, *others in (head, *rows):
        lines += [f"   * - {first}", *(f"     - {cell}" for cell in others)]
    return "\n".join(lines) + "\n"


def main(target: str | None = None) -> None:
    """Run every line, then write the page."""
    run(FEATURES)
    text = page(FEATURES)
    if target is None:
        print(text)
    else:
        Path(target).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
