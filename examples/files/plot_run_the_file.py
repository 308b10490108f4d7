"""
How do I run a trained model without onnxtrain?
===============================================

A trained pipeline is exported as one ONNX file, with its scaler, its class labels and its probabilities. To run it, a
server needs onnxruntime or another ONNX runtime. It needs neither scikit-learn nor onnxtrain.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientClassifier

wine = load_wine()
names = wine.target_names[wine.target]
X_train, X_test, y_train, y_test = train_test_split(
    wine.data, names, stratify=names, random_state=0
)
pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X_train, y_train)
tuned = OrtGradientClassifier(pipeline, loss="focal", max_iter=30, random_state=0).fit(
    X_train, y_train
)
path = Path(tempfile.mkdtemp()) / "wine.onnx"
tuned.get_trained_onnx(path=path)
print(f"{path.name}: {path.stat().st_size} bytes")

# %%
# From here on, only onnxruntime is used. The session describes its inputs and outputs: it expects float32 and any
# number of rows.

session = onnxruntime.InferenceSession(path)
for value in (*session.get_inputs(), *session.get_outputs()):
    print(f"{value.name}: {value.type} {value.shape}")
label, probabilities = session.run(
    None, {session.get_inputs()[0].name: X_test.astype(np.float32)}
)
print(
    "first rows:", label[:3].tolist(), probabilities[:3].max(axis=1).round(3).tolist()
)
assert (label == tuned.predict(X_test)).all()
assert np.abs(probabilities - tuned.predict_proba(X_test)).max() < 1e-5

# %%
# onnxruntime does not accept float64, the default type of numpy. Convert the rows with ``astype(np.float32)`` first.

try:
    session.run(None, {session.get_inputs()[0].name: X_test})
    raise AssertionError("onnxruntime takes float64 now")
except onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument as e:
    print(str(e).split(" , ")[0])

order = np.argsort(probabilities.max(axis=1))
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.stackplot(
    range(len(order)), probabilities[order].T, labels=wine.target_names, alpha=0.8
)
ax.set(
    xlabel="held-out wines, the least certain first",
    ylabel="probability by onnxruntime",
    ylim=(0, 1),
)
ax.legend(loc="lower right")
