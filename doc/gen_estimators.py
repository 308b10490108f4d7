"""Write the page that says, of every scikit-learn class, whether it converts, trains and goes back.

Run from the root of the repository: ``python doc/gen_estimators.py doc/estimators.rst``. It takes a few minutes; a name
(``python doc/gen_estimators.py - Ridge``) restricts it to the classes that contain it and prints.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
from sklearn.base import is_classifier, is_regressor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, trainable_weights
from onnxtrain.convert import compare, convert, documentation
from onnxtrain.convert.check import check
from onnxtrain.convert.columns import feeds_of
from onnxtrain.convert.export import to_sklearn
from onnxtrain.errors import OnnxTrainError
from onnxtrain.runtime.session import run
from tests.zoo import ROUNDING, WITHOUT_WEIGHTS, ZOO, rows

STEPS = 20


@dataclass
class Result:
    """What became of one fitted estimator."""

    name: str
    page: str
    converts: str = ""
    weights: list[str] = field(default_factory=list)
    loss: tuple[float, float] | None = None
    trains: str = ""
    back: str = ""

    @property
    def state(self) -> str:
        """One word."""
        if self.converts:
            return "refused"
        if not self.weights:
            return "no weights"
        return "trains" if not self.trains and not self.back else "FAILS"

    @property
    def reason(self) -> str:
        """Why not, empty where it trains."""
        return (
            self.converts or ("" if self.weights else WITHOUT_WEIGHTS.get(self.name, "?")) or self.trains or self.back
        )


def examine(name: str) -> Result:
    """Convert, train on moved targets, write back."""
    estimator, X = ZOO[name]()
    result = Result(name, documentation(estimator))
    try:
        conversion = convert(estimator, X)
        compare(estimator, conversion.onnx, X)
    except OnnxTrainError as e:
        result.converts = short(e)
        return result
    result.weights = [b.name for b in conversion.bindings]
    if not result.weights:
        return result
    try:
        for tuned in attempts(estimator, name, conversion, X):
            result.loss = (float(tuned.loss_curve_[0]), float(tuned.loss_curve_[-1]))
            result.trains = judge(result, tuned, estimator, conversion)
            if not result.trains:
                break
    except Exception as e:  # the page says of every class what happens
        result.trains = short(e)
        return result
    try:
        onx = tuned.get_trained_onnx()
        back = to_sklearn(estimator, conversion.bindings, tuned.weights_)
        x = np.asarray(X, dtype=np.float32).astype(np.float64)
        found = dict(zip((y.name for y in onx.graph.output), run(onx, feeds_of(onx, X)), strict=True))
        check(back, found, x, tolerance=ROUNDING.get(name, 1e-5))
    except Exception as e:  # as above
        result.back = short(e)
    return result


def attempts(estimator, name, conversion, X):
    """Yield one training after the other: the way a user would go first, then smaller steps and a smoother loss."""
    outputs = conversion.onnx.graph.output
    scores = [o.name for o in outputs if o.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]
    for rate in (1e-3, 1e-4, 1e-5):
        options = {
            "weights_to_train": [b.name for b in conversion.bindings], "max_iter": STEPS, "learning_rate": rate,
            "batch_size": len(X), "random_state": 0, "n_iter_no_change": STEPS,
        }  # fmt: skip
        y, rng = rows(name)[1], np.random.default_rng(0)
        if is_classifier(estimator) and len(outputs) == 2 and np.ndim(y) == 1:
            loss = "log" if hasattr(estimator, "predict_proba") else "squared_hinge"
            moved = np.where(rng.random(len(y)) < 0.3, rng.permutation(y), y)
            yield OrtGradientClassifier(estimator, loss=loss, **options).fit(X, moved)
        elif is_regressor(estimator) and len(outputs) == 1:
            yield OrtGradientRegressor(estimator, loss="absolute_error", **options).fit(X, 0.7 * np.asarray(y) + 0.3)
        yield train_outputs(estimator, conversion, scores, X, options)


def train_outputs(estimator, conversion, scores, X, options):
    """Train each output of scores on moved scores, one after the other."""
    rng = np.random.default_rng(0)
    onx, weights, losses = conversion.onnx, {}, np.zeros(2)
    for name in scores:
        reach = {w.name for w in trainable_weights(onx, output=name)}
        found = run(onx, feeds_of(onx, X), outputs=[name])[0].reshape(len(X), -1)
        moved = 0.7 * found + 0.3 * found.std() * rng.normal(size=found.shape)
        options["weights_to_train"] = [b.name for b in conversion.bindings if b.name in reach]
        source = estimator if len(scores) == 1 and not is_classifier(estimator) else onx
        tuned = OrtGradientRegressor(source, output=name, **options).fit(X, moved)
        onx = tuned.get_trained_onnx()
        weights.update(tuned.weights_)
        losses += [tuned.loss_curve_[0], tuned.loss_curve_[-1]]
    return SimpleNamespace(weights_=weights, loss_curve_=losses, get_trained_onnx=lambda: onx)


def judge(result, tuned, estimator, conversion) -> str:
    """Return what is wrong with the training."""
    first, last = result.loss
    if not last < first:
        return f"the loss goes from {first:.4g} to {last:.4g}"
    still = [
        b.name for b in conversion.bindings if np.allclose(tuned.weights_[b.name], b.read(estimator), rtol=1e-6, atol=0)
    ]
    return f"{', '.join(still[:3])} did not move" if still else ""


def short(error: Exception) -> str:
    """Return the first sentence of an error."""
    text = f"{type(error).__name__}: {error}".replace("\n", " ")
    text = text.split(" Its converter")[0].split(" See http")[0][:200]
    return "".join(f"\\{c}" if c in "*_`|\\" else c for c in text)


def page(results: list[Result]) -> str:
    """Return the page, reStructuredText."""
    classes = defaultdict(list)
    for result in results:
        classes[result.name.split(":")[0]].append(result)
    states = {name: best(found) for name, found in classes.items()}
    counts = {state: sum(s == state for s in states.values()) for state in sorted(set(states.values()))}
    lines = [
        "Every scikit-learn class", "========================", "",
        ".. This page is written by doc/gen_estimators.py: do not edit.", "",
        f"Of {len(classes)} classes, fitted in {len(results)} ways: "
        + ", ".join(f"{n} {state}" for state, n in counts.items()) + ".", "",
        f"*Trains*: the graph equals the estimator, {STEPS} steps lower the loss on moved targets, every weight",
        "moves, and the weights written back give an estimator that predicts as the trained ONNX model does, within",
        "1e-5 of the largest value (1e-4 for a few whose formulas magnify the rounding of float32).", "",
        ".. list-table::", "   :header-rows: 1", "   :widths: 26 10 34 30", "",
        "   * - Class", "     - ", "     - Weights", "     - Why not",
    ]  # fmt: skip
    for name in sorted(classes, key=str.lower):
        for result in classes[name]:
            link = f"`{result.name} <{result.page}>`__" if result.page.startswith("http") else result.name
            weights = ", ".join(result.weights[:6]) + (", ..." if len(result.weights) > 6 else "")
            lines += [f"   * - {link}", f"     - {result.state}", f"     - {weights}", f"     - {result.reason}"]
    return "\n".join(lines) + "\n"


def best(found: list[Result]) -> str:
    """Return the state of a class: FAILS if one variant does, else the best of its variants."""
    states = {r.state for r in found}
    return next(state for state in ("FAILS", "trains", "no weights", "refused") if state in states)


def main(target: str, *words: str) -> int:
    """Write the page; return 1 where something fails that should not."""
    names = [name for name in ZOO if not words or any(word in name for word in words)]
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            results.append(examine(name))
            if target == "-":
                print(f"{name}: {results[-1].state} {results[-1].loss} {results[-1].reason}", flush=True)
    if target != "-":
        Path(target).write_text(page(results), encoding="utf-8")
    failures = [r for r in results if r.state == "FAILS"]
    for r in failures:
        print(f"{r.name}: {r.reason}", file=sys.stderr)
    print(page(results).splitlines()[5])
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["doc/estimators.rst"])))
