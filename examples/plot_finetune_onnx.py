"""
How do I fine-tune an ONNX file on new data?
============================================

The model is available only as an ONNX file, without its training code or framework. It classifies dark digits on a
white background. A new scanner inverts black and white, so the accuracy of the model drops below 20 %. A few hundred
rows from the new scanner are enough to fine-tune it.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import onnx
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier

X, y = load_digits(return_X_y=True)
X = (X / 16).astype("float32")
X_theirs, X_ours, y_theirs, y_ours = train_test_split(
    X, y, test_size=0.5, random_state=0
)
X_train, X_test, y_train, y_test = train_test_split(
    1 - X_ours, y_ours, train_size=400, random_state=0
)

# %%
# This code stands for the provider of the file.

path = Path(tempfile.mkdtemp()) / "model.onnx"
theirs = MLPClassifier((64,), early_stopping=True, random_state=0).fit(
    X_theirs, y_theirs
)
onnx.save(to_onnx(theirs, X_theirs[:1], options={"zipmap": False}), path)

# %%
# From here on, only the file is used. It has two outputs, labels and probabilities. The loss is computed from the
# probabilities. ``early_stopping=True`` holds out 20 % of the rows as a validation set.

tuned = OrtGradientClassifier(
    path,
    learning_rate=3e-3,
    batch_size=32,
    early_stopping=True,
    validation_fraction=0.2,
    random_state=0,
).fit(X_train, y_train)
before = theirs.score(X_test, y_test)
after = tuned.score(X_test, y_test)
assert before < 0.2
assert after > 0.9
print(
    f"accuracy on {len(y_test)} of our rows, before: {before:.3f}, after: {after:.3f}"
)

# %%
# The trained model has the same inputs and outputs as the file, including the labels.

print("outputs:", [output.name for output in tuned.get_trained_onnx().graph.output])

fig, ax = plt.subplots(figsize=(6, 4))
ax.plot(tuned.loss_curve_, label="rows trained on")
ax.plot(tuned.validation_loss_curve_, label="rows held out")
ax.set(
    xlabel="epoch",
    ylabel="log loss",
    title=f"Accuracy on our rows: {before:.2f} → {after:.2f}",
)
ax.legend()
fig.tight_layout()
