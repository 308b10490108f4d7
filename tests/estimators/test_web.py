"""The files of a training step in Node and in a browser; skipped where npm's packages or Chromium are missing."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from onnxtrain import OrtGradientClassifier
from onnxtrain.runtime.session import run
from tests.estimators.test_step_files import CASES, EPOCHS, RATE, RUNNER, fitted, rows_of

EXAMPLES, HELPERS = RUNNER.parent, pathlib.Path(__file__).resolve().parents[1] / "web"
GUIDE = pathlib.Path(__file__).resolve().parents[2] / "doc" / "guide"
MODULES = pathlib.Path(os.environ.get("ONNXTRAIN_NODE_MODULES", "node_modules"))
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")

pytestmark = pytest.mark.browser


def needs(*packages, chromium=False):
    """Skip a test where Node, a package of npm or Chromium is missing."""
    missing = [name for name in packages if not (MODULES / name).is_dir()]
    missing += ["node"] * (shutil.which("node") is None) + ["chromium"] * (chromium and CHROMIUM is None)
    where = f"in {MODULES} (ONNXTRAIN_NODE_MODULES names another folder)"
    return pytest.mark.skipif(
        bool(missing), reason=f"there is no {', '.join(missing)}; packages of npm are sought {where}"
    )


def parse_version(text):
    return tuple(int(part) for part in text.split(".")[:2])


def load_example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def node(folder, script, *arguments):
    """Run a script of the examples beside the packages of npm."""
    for file in (*EXAMPLES.glob("*.mjs"), *HELPERS.glob("*.mjs")):
        shutil.copy(file, folder)
    (folder / "node_modules").symlink_to(MODULES.resolve())
    command = ["node", str(folder / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]


def written(name, folder, target="cpu"):
    """Write the step of a case and its rows; return these."""
    fitted(name).export_training_step(folder, target=target)
    rows = rows_of(name, folder)
    inputs = {n: {"values": x.ravel().tolist(), "shape": x.shape} for n, x in rows.items()}
    given = {"inputs": inputs, "batch_size": 32, "epochs": EPOCHS, "learning_rate": RATE}
    (folder / "rows.json").write_text(json.dumps(given))
    return rows


SOME = [
    "network",
    "two targets, nesterov",
    "proximal, momentum, clipped",
    "columns",
    "frozen body",
    "tokens",
    "network, weighted",
]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("flavour", [pytest.param(f, marks=needs(f)) for f in ("onnxruntime-node", "onnxruntime-web")])
def test_node_reaches_the_weights_of_fit(name, flavour, tmp_path):
    rows = written(name, tmp_path / "step")
    node(tmp_path, "node.mjs", tmp_path / "step", tmp_path / "step" / "rows.json", flavour)
    found, expected = fitted(name).load_training_state(tmp_path / "step"), fitted(name, max_iter=EPOCHS)
    # WebAssembly has other exponentials, an older onnxruntime other kernels
    exact = name in CASES and flavour == "onnxruntime-node" and parse_version(onnxruntime.__version__) >= (1, 30)
    for weight, w in expected.weights_.items():
        atol = 0 if exact else 1e-6 * max(1, np.abs(w).max())
        np.testing.assert_allclose(found.weights_[weight], w, rtol=0, atol=atol, err_msg=weight)
    trained = onnx.load(tmp_path / "step" / "trained.onnx")
    fed = {i.name: rows[i.name] for i in trained.graph.input if i.name in rows}
    both = (run(model, fed)[-1] for model in (trained, found.get_trained_onnx()))
    np.testing.assert_allclose(*both, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """What Chromium found on the page, the folder of the page and that of the downloads."""
    folder, out = tmp_path_factory.mktemp("page"), tmp_path_factory.mktemp("out")
    load_example("make_page").main(folder, MODULES / "onnxruntime-web" / "dist")
    node(out, "page.mjs", folder, CHROMIUM, out)
    return json.loads((out / "found.json").read_text()), folder, out


needs_browser = needs("onnxruntime-web", "playwright-core", chromium=True)


@needs_browser
def test_the_page_trains_as_python_does(page):
    found, folder, _ = page
    assert not found["errors"]
    digits = json.loads((folder / "digits.json").read_text())
    n = digits["n_train"]
    trainer = load_example("run_plain").Trainer(folder / "step")
    X = np.array(digits["X"], np.float32).reshape(-1, 64)[:n] / 16
    rows = trainer.rows({"X": X, "y": np.array(digits["y"][:n], np.int32)})
    losses = []
    for i in range(60):
        batch = np.arange(32 * i, 32 * i + 32) % n
        losses.append(trainer.step({name: x[batch] for name, x in rows.items()}, 0.01))
    np.testing.assert_allclose(found["losses"], losses, rtol=1e-6)
    assert losses[-1] < losses[0] / 3


@needs_browser
def test_the_state_of_the_page_comes_back(page):
    found, folder, out = page
    digits = json.loads((folder / "digits.json").read_text())
    X = np.array(digits["X"], np.float32).reshape(-1, 64)[digits["n_train"] :] / 16
    y = np.array(digits["y"][digits["n_train"] :])
    model = load_example("make_page").make_estimator()
    assert model.score(X, y) == pytest.approx(found["before"], abs=1e-12)
    model.load_training_state(out / "state.onnx")
    assert model.score(X, y) == pytest.approx(found["accuracy"], abs=1e-12)
    assert found["accuracy"] > 0.6 > found["before"]
    assert model._state.step == 61
    (scores,) = run(onnx.load(out / "trained.onnx"), {"X": X})
    np.testing.assert_allclose(scores, model.predict_proba(X), rtol=1e-5, atol=1e-6)


@needs_browser
def test_a_digit_that_is_drawn_is_a_row(page):
    found, folder, _ = page
    assert found["rows"] == json.loads((folder / "digits.json").read_text())["n_train"] + 1
    assert found["status"].startswith("120 steps")


@needs_browser
@pytest.mark.parametrize("name", ["network", "proximal", "frozen body"])
def test_webgpu_of_a_browser(name, tmp_path):
    """Chromium has a software GPU."""
    written(name, tmp_path / "page" / "step", target="webgpu")
    shutil.copy(HELPERS / "webgpu.html", tmp_path / "page" / "index.html")
    for file in ("trainer.mjs", "save.mjs"):
        shutil.copy(EXAMPLES / file, tmp_path / "page")
    (tmp_path / "page" / "ort").symlink_to(MODULES.resolve() / "onnxruntime-web" / "dist")
    node(tmp_path, "webgpu.mjs", tmp_path / "page", CHROMIUM, tmp_path / "state.onnx")
    found, expected = fitted(name).load_training_state(tmp_path / "state.onnx"), fitted(name, max_iter=EPOCHS)
    for weight, w in expected.weights_.items():
        np.testing.assert_allclose(found.weights_[weight], w, rtol=0, atol=1e-5 * max(1, np.abs(w).max()))


@needs()
def test_a_missing_number_is_not_zero(tmp_path):
    (tmp_path / "missing.mjs").write_text("""
        import { Trainer } from "./trainer.mjs";
        const inputs = { x: { dtype: "float32" }, y: { dtype: "int32" }, tokens: { dtype: "int64" } };
        const Tensor = class { constructor(type, data) { this.data = data; } };
        const trainer = Object.assign(new Trainer(), { ort: { Tensor }, about: { step: { inputs } } });
        console.log(String(trainer.tensor("x", [null, "NaN", "", 0.5]).data));
        for (const [name, value] of [["y", null], ["y", NaN], ["tokens", 1.5], ["tokens", ""], ["y", 2 ** 31]]) {
          try { console.log(String(trainer.tensor(name, [1, value]).data)); } catch (e) { console.log(e.message); }
        }
    """)
    shutil.copy(EXAMPLES / "trainer.mjs", tmp_path)
    command = ["node", str(tmp_path / "missing.mjs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    refused = [("y", "null"), ("y", "NaN"), ("tokens", "1.5"), ("tokens", "")]
    expected = [*(f"{n} takes integers, got {v}" for n, v in refused), "y takes int32, got 2147483648"]
    assert done.stdout.splitlines() == ["NaN,NaN,NaN,0.5", *expected]


def test_the_runner_needs_no_build_step():
    text = (EXAMPLES / "trainer.mjs").read_text()
    assert "import" not in text.replace("export class", "")
    assert len(text.splitlines()) < 70


@needs("onnxruntime-node")
def test_the_script_of_the_guide_predicts_as_the_estimator(tmp_path):
    X, kind = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[kind]
    start = LogisticRegression(max_iter=1000).fit(X, names)
    tuned = OrtGradientClassifier(start, loss="focal", max_iter=20, random_state=0).fit(X, names)
    tuned.get_trained_onnx(path=tmp_path / "iris.onnx")
    shutil.copy(GUIDE / "use_the_file.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(MODULES.resolve())
    command = ["node", str(tmp_path / "use_the_file.mjs"), str(tmp_path / "iris.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]])  # those of the script
    words, numbers = done.stdout.split("[ 2, 3 ]")
    assert re.findall("[a-z]+", words) == tuned.predict(rows).tolist()
    found = np.array(re.findall(r"\d\.\d+(?:e-\d+)?", numbers), float).reshape(2, 3)
    np.testing.assert_allclose(found, tuned.predict_proba(rows), rtol=1e-5)
