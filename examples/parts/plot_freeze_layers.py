"""
Which layers should be trained on few rows?
===========================================

A new scanner transposes the images, so the model no longer recognizes the digits. Two hundred rows of transposed images
are available for training. ``weights_to_train`` selects the layers to train. This example compares the first layer, the
last layer and all layers.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier

X, y = load_digits(return_X_y=True)
X = X / 16
X_theirs, X_ours, y_theirs, y_ours = train_test_split(
    X, y, test_size=0.5, random_state=0
)
theirs = MLPClassifier((64, 32), max_iter=200, tol=1e-3, random_state=0).fit(
    X_theirs, y_theirs
)
X_ours = X_ours.reshape(-1, 8, 8).transpose(0, 2, 1).reshape(-1, 64)
X_train, X_test, y_train, y_test = train_test_split(
    X_ours, y_ours, train_size=200, random_state=0
)

# %%
# The weights have the names of the attributes of the model. A pattern selects several weights, and a minus sign in
# front of a pattern excludes them.

wanted = {"first layer": "*_0", "last layer": "*_2", "all": None}
found = {}
for name, weights in wanted.items():
    model = OrtGradientClassifier(
        theirs,
        weights_to_train=weights,
        learning_rate=3e-3,
        batch_size=25,
        max_iter=60,
        l2=1e-4,
        random_state=0,
    ).fit(X_train, y_train)
    back = model.to_sklearn()
    kept = [i for i in range(3) if np.array_equal(back.coefs_[i], theirs.coefs_[i])]
    found[name] = model.score(X_test, y_test)
    print(
        f"{name:<12} trains {', '.join(model.weights_)}; layers as they came: {kept}; accuracy {found[name]:.2f}"
    )
print(f"before: {theirs.score(X_test, y_test):.2f}")

# %%
# Training only the last layer is not enough, because the layers in front of it no longer extract useful features.
# Training only the first layer is as accurate as training all layers. The frozen layers keep their weights, bit by bit.

assert found["first layer"] > found["last layer"] + 0.1
assert found["first layer"] > found["all"] - 0.02

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.barh(list(found), list(found.values()))
ax.axvline(theirs.score(X_test, y_test), color="0.5", linestyle=":", label="before")
ax.set(xlabel="accuracy on digits that lie", xlim=(0, 1))
ax.invert_yaxis()
ax.legend()
