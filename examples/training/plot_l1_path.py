"""
How do I select features with an l1 penalty?
============================================

An l1 penalty shrinks coefficients towards zero. With ``l1_method="penalty"``, it is a term of the loss, and small
coefficients remain. With ``l1_method="proximal"``, a proximal step sets them to exactly zero. Both methods have the
same minimum as :class:`~sklearn.linear_model.Lasso`.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Lasso
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientRegressor
from onnxtrain.optim import Cosine

data = load_diabetes()
X = StandardScaler().fit_transform(data.data)
y = (data.target - data.target.mean()) / data.target.std()

# %%
# ``l1`` equals twice the ``alpha`` of the Lasso, because the squared error here has no factor of one half. The strength
# is an input of the training step, so the whole path compiles only two graphs, one for each method.

strengths = np.logspace(-2, 0, 9)
paths = {}
for method in ("penalty", "proximal"):
    model = OrtGradientRegressor(
        l1_method=method,
        learning_rate=Cosine(0.02),
        batch_size=len(X),
        max_iter=500,
        tol=0,
        n_iter_no_change=500,
    )
    paths[method] = np.array(
        [model.set_params(l1=l1).fit(X, y).weights_["coef"].ravel() for l1 in strengths]
    )
lasso = np.array([Lasso(alpha=l1 / 2).fit(X, y).coef_ for l1 in strengths])

zeros = {
    name: (path == 0).sum(axis=1) for name, path in {**paths, "Lasso": lasso}.items()
}
for name, n in zeros.items():
    print(
        f"{name:<9} coefficients that are exactly 0, from weak to strong: {n.tolist()}"
    )
assert zeros["penalty"].sum() == 0
assert np.array_equal(zeros["proximal"], zeros["Lasso"])
assert np.abs(paths["proximal"] - lasso).max() < 2e-3

# %%
# As the penalty grows, one coefficient after the other becomes zero. The last features to remain are the body mass
# index and one of the blood serum measurements.

names = np.array(data.feature_names)
last = names[paths["proximal"][zeros["proximal"] <= 8][-1] != 0]
print("the last to stay:", ", ".join(last))
assert set(last) == {"bmi", "s5"}

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.semilogx(strengths, paths["proximal"], label=names)
ax.set_prop_cycle(None)
ax.semilogx(strengths, lasso, linestyle="none", marker="x", markersize=4)
ax.set(xlabel="l1", ylabel="coefficient", title="lines: proximal steps, crosses: Lasso")
ax.legend(fontsize="small", ncols=2)
