"""
How do I train a convolutional network from PyTorch?
====================================================

A network that was exported to ONNX can be trained as a scikit-learn estimator. The rows of X are images, and X has the
shape (n, 1, 8, 8). One line of code exports a PyTorch module:

.. code-block:: python

    torch.onnx.export(module, (torch.zeros(2, 1, 8, 8),), "cnn.onnx", dynamo=True, dynamic_shapes=[{0: "n"}])

The example defines the same ONNX model in text form, so that it runs without PyTorch.
"""

import matplotlib.pyplot as plt
import numpy as np
import onnx
import onnx.parser
from sklearn.datasets import load_digits
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split

from onnxtrain import OrtGradientClassifier

cnn = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    cnn (float[n, 1, 8, 8] image) => (float[n, 10] logits) {
        c1 = Conv <pads = [1, 1, 1, 1]> (image, conv1_weight, conv1_bias)
        r1 = Relu(c1)
        p1 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r1)
        c2 = Conv <pads = [1, 1, 1, 1]> (p1, conv2_weight, conv2_bias)
        r2 = Relu(c2)
        flat = Flatten(r2)
        logits = Gemm <transB = 1> (flat, fc_weight, fc_bias)
    }""")

# %%
# The initial weights are drawn as in PyTorch, uniformly from :math:`[-1/\sqrt{k}, 1/\sqrt{k}]`. Here, :math:`k` is the
# number of inputs of a unit of the layer.

rng = np.random.default_rng(0)
for layer, shape in {
    "conv1": (8, 1, 3, 3),
    "conv2": (16, 8, 3, 3),
    "fc": (10, 256),
}.items():
    limit = np.prod(shape[1:]) ** -0.5
    for name, size in {"weight": shape, "bias": shape[:1]}.items():
        values = rng.uniform(-limit, limit, size).astype(np.float32)
        cnn.graph.initializer.append(
            onnx.numpy_helper.from_array(values, f"{layer}_{name}")
        )

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32).reshape(-1, 1, 8, 8)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = OrtGradientClassifier(
    cnn, learning_rate="one_cycle", batch_size=50, max_iter=15, random_state=0
)
model.set_params(learning_rate=0.005).fit(X_train, y_train)
print(f"accuracy on {len(y_test)} held-out digits: {model.score(X_test, y_test):.3f}")
assert model.score(X_test, y_test) > 0.97

# %%
# The trained model has the same nodes as the original one.

onx = model.get_trained_onnx()
assert [node.op_type for node in onx.graph.node] == [
    node.op_type for node in cnn.graph.node
]

fig, ax = plt.subplots(figsize=(5, 5), layout="constrained")
ConfusionMatrixDisplay.from_estimator(
    model, X_test, y_test, colorbar=False, cmap="Blues", ax=ax
)
