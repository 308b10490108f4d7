"""
How do I read the output of a hidden layer?
===========================================

``embed`` returns the output of any node of the graph, for example the features in front of the last layer. They can be
used for a nearest neighbor search, a plot, or as the input of another model. This example shows that training moves
digits of the same class closer together.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier

X, y = load_digits(return_X_y=True)
X = X / 16
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
network = MLPClassifier((32, 16), tol=0.1, n_iter_no_change=2, random_state=0).fit(
    X_train, y_train
)

# %%
# A layer is chosen by the name of its output in the graph. The last Relu is the hidden layer in front of the output
# layer.

as_it_came = OrtGradientClassifier(network, max_iter=0).fit(X_train, y_train)
tuned = OrtGradientClassifier(
    network, learning_rate=3e-3, max_iter=40, random_state=0
).fit(X_train, y_train)
layer = [
    node.output[0]
    for node in tuned.get_trained_onnx().graph.node
    if node.op_type == "Relu"
][-1]
hidden = {
    "before": as_it_came.embed(X_test, layer),
    "after": tuned.embed(X_test, layer),
}

# %%
# The silhouette compares the distances of a row to its own class and to the nearest other class. The best value is 1.

scores = {"pixels": silhouette_score(X_test, y_test)} | {
    n: silhouette_score(h, y_test) for n, h in hidden.items()
}
for name, score in scores.items():
    print(f"{name:<8} silhouette {score:.2f}")
assert scores["after"] > scores["pixels"]
assert scores["after"] > scores["before"] + 0.1

fig, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for ax, (name, values) in zip(axes, hidden.items(), strict=True):
    places = PCA(2, random_state=0).fit_transform(values)
    picture = ax.scatter(*places.T, c=y_test, cmap="tab10", s=10)
    ax.set(title=f"{name}: silhouette {scores[name]:.2f}", xticks=[], yticks=[])
fig.colorbar(picture, ax=axes, label="digit")
