"""
How do I train a model on a device without Python?
==================================================

A training step is one graph of standard operators. Exported to ONNX files, it runs wherever onnxruntime runs: in a web
page, on a phone, or in a server in another language. In this example, code that uses only numpy and onnxruntime stands
for the other device. :doc:`/browser` trains a model in a web page.
"""

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# %%
# Export the training step of a network with random weights. ``max_iter=0`` prepares the step without training.

model = OrtGradientClassifier(
    MLPClassifier((32,)), init="random", max_iter=0, random_state=0
).fit(X_train, y_train)
before = model.score(X_test, y_test)

folder = Path(tempfile.mkdtemp())
model.export_training_step(folder)
print({path.name: path.stat().st_size for path in sorted(folder.iterdir())})

# %%
# The other device runs the step in a loop. It feeds each output ``next_S`` to the input ``S`` of the next step.

about = json.loads((folder / "step.json").read_text())
init, step = (
    onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("init", "step")
)
state = dict(zip([o.name for o in init.get_outputs()], init.run(None, {}), strict=True))
names = [o.name for o in step.get_outputs()]
print("state:", {name: array.shape for name, array in state.items()})

rng, losses = np.random.default_rng(0), []
for _ in range(400):
    rows = rng.choice(len(X_train), 50)
    feeds = {"X": X_train[rows], about["label"]: y_train[rows].astype(np.int32)}
    found = dict(
        zip(
            names,
            step.run(None, {**feeds, "learning_rate": np.array([0.005]), **state}),
            strict=True,
        )
    )
    losses.append(found.pop("loss").item())
    state = {name.removeprefix("next_"): array for name, array in found.items()}

# %%
# Load the trained state back into the estimator.

after = model.load_training_state(state).score(X_test, y_test)
print(f"accuracy on held-out digits: {before:.2f} before, {after:.2f} after")
assert before < 0.3
assert after > 0.85

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.semilogy(losses, linewidth=0.8)
ax.set(
    xlabel="step on the other machine",
    ylabel="log loss",
    title=f"Accuracy: {before:.2f} → {after:.2f}",
)
