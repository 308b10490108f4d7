"""Write the page: run ``python make_page.py FOLDER [DIST]``, then serve FOLDER, e.g. with ``python -m http.server``.

The frozen body is a network that was trained on the digits 0 to 4. The browser trains a new head for all ten digits.
DIST is the folder ``dist`` of the npm package onnxruntime-web. Without it, the page loads the package from a CDN.
"""

import json
import pathlib
import shutil
import sys

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier

HERE = pathlib.Path(__file__).resolve().parent
N_TRAIN, N_TEST = 600, 300


def rows():
    """Return digits of 8 by 8 pixels, integers from 0 to 16, in random order."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    return X[order].astype(np.float32), y[order]


def make_estimator():
    """Return the estimator whose new head the page trains."""
    X, y = rows()
    few = y < 5
    body = MLPClassifier((64, 32), random_state=0, tol=1e-3).fit(X[few] / 16, y[few])
    onx = to_onnx(body, X[:1], options={"zipmap": False})
    new = OrtGradientClassifier(
        onx,
        head="new",
        weights_to_train="head",
        learning_rate=0.01,
        max_iter=0,
        random_state=0,
    )
    return new.fit(X[:N_TRAIN] / 16, y[:N_TRAIN])


def main(folder, dist=None):
    """Write the page and its files, and copy onnxruntime-web from `dist` if given."""
    folder = pathlib.Path(folder)
    make_estimator().export_training_step(folder / "step")
    X, y = (part[: N_TRAIN + N_TEST] for part in rows())
    digits = {"X": X.astype(int).ravel().tolist(), "y": y.tolist(), "n_train": N_TRAIN}
    (folder / "digits.json").write_text(json.dumps(digits, separators=(",", ":")))
    for name in ("index.html", "trainer.mjs", "save.mjs"):
        shutil.copy(HERE / name, folder)
    if dist is not None:
        (folder / "ort").mkdir(exist_ok=True)
        for name in (
            "ort.wasm.min.mjs",
            "ort-wasm-simd-threaded.mjs",
            "ort-wasm-simd-threaded.wasm",
        ):
            shutil.copy(pathlib.Path(dist) / name, folder / "ort")


if __name__ == "__main__":
    main(*sys.argv[1:])
