"""
How do I search for the best loss and penalty?
==============================================

The loss and the penalties are parameters of the estimator, so :class:`~sklearn.model_selection.GridSearchCV` can search
them. The training graph is built once for each loss, because the strengths of the penalties are inputs of the graph.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from onnxtrain import OrtGradientRegressor
from onnxtrain.optim import Cosine

X, y = load_diabetes(return_X_y=True)
# 65 columns: without a penalty, a model of 442 rows overfits
X = PolynomialFeatures(2, include_bias=False).fit_transform(X)

losses = ["squared_error", "absolute_error", "huber"]
l1, l2 = [0.0, 0.03, 0.3], [0.0, 0.001, 0.01]
model = OrtGradientRegressor(
    LinearRegression(), learning_rate=Cosine(0.3), max_iter=60, random_state=0
)
search = GridSearchCV(
    make_pipeline(StandardScaler(), model),
    {
        "ortgradientregressor__loss": losses,
        "ortgradientregressor__l1": l1,
        "ortgradientregressor__l2": l2,
    },
    scoring="neg_mean_absolute_error",
    cv=3,
).fit(X, y)

print(f"{len(search.cv_results_['params'])} settings, 3 folds each")
assert search.best_params_["ortgradientregressor__loss"] != "squared_error"
print(f"best: {search.best_params_}, mean absolute error {-search.best_score_:.2f}")

# %%
# The mean absolute error for each loss and each pair of penalties:

names = [p["ortgradientregressor__loss"] for p in search.cv_results_["params"]]
fig, axes = plt.subplots(
    1, len(losses), figsize=(9, 3), sharey=True, layout="constrained"
)
errors = -search.cv_results_["mean_test_score"]
for ax, name in zip(axes, losses, strict=True):
    table = errors[[n == name for n in names]].reshape(len(l1), len(l2))
    picture = ax.imshow(table, vmin=errors.min(), vmax=errors.max(), cmap="viridis_r")
    ax.set(
        title=name,
        xlabel="l2",
        xticks=range(3),
        xticklabels=l2,
        yticks=range(3),
        yticklabels=l1,
    )
axes[0].set_ylabel("l1")
fig.colorbar(picture, ax=axes, label="mean absolute error")
