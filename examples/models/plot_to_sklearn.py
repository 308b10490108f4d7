"""
How do I train a whole scikit-learn pipeline end to end?
========================================================

scikit-learn fits the steps of a pipeline one after the other. Here they are a scaler, a PCA and a network. onnxtrain
then trains all steps together with the loss of the network. ``to_sklearn()`` returns a scikit-learn pipeline of the
same classes.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# %%
# With only eight components, the PCA keeps the directions of the largest variance. They are not those that separate the
# digits best.

pipeline = make_pipeline(
    StandardScaler(), PCA(8), MLPClassifier((32,), early_stopping=True, random_state=0)
)
pipeline.fit(X_train, y_train)

# %%
# ``weights_to_train="all"`` also trains the statistics of the scaler and the components of the PCA.

tuned = OrtGradientClassifier(
    pipeline, weights_to_train="all", max_iter=30, random_state=0
).fit(X_train, y_train)
back = tuned.to_sklearn()

print(f"log loss on {len(y_test)} held-out rows")
for name, model in {"as fitted": pipeline, "end to end": back}.items():
    print(
        f"  {name}: {log_loss(y_test, model.predict_proba(X_test)):.3f}, accuracy {model.score(X_test, y_test):.3f}"
    )
assert back.score(X_test, y_test) > pipeline.score(X_test, y_test) + 0.1
print("trained:", ", ".join(tuned.weights_))
print("what comes back:", " -> ".join(type(step).__name__ for _, step in back.steps))

# %%
# The first four components before and after training:

fig, axes = plt.subplots(2, 4, figsize=(7, 4))
for row, (name, model) in zip(
    axes, {"as fitted": pipeline, "end to end": back}.items(), strict=True
):
    row[0].set_ylabel(name)
    for ax, component in zip(row, model["pca"].components_, strict=False):
        ax.imshow(component.reshape(8, 8), cmap="RdBu")
        ax.set(xticks=[], yticks=[])
fig.tight_layout()
