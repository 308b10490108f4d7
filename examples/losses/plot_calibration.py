"""
How do I improve the probabilities of naive Bayes?
==================================================

Naive Bayes assumes that the columns are independent. If columns are correlated, its probabilities are too close to 0
and 1. Training its means and variances with the log loss improves the probabilities. The formula of the model does not
change.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import scale

from onnxtrain import OrtGradientClassifier

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)[
    :, :10
]  # the means of ten measures; several are of the size of the nucleus
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)

# %%
# The trained weights are the means and the variances of each class.

bayes = GaussianNB().fit(X_train, y_train)
tuned = OrtGradientClassifier(
    bayes, learning_rate=0.02, max_iter=60, random_state=0
).fit(X_train, y_train)
print("trained:", ", ".join(tuned.weights_))
models = {"naive Bayes": bayes, "trained on": tuned.to_sklearn()}

losses, sure = {}, {}
for name, model in models.items():
    p = model.predict_proba(X_test)
    certain = p.max(axis=1) > 0.99
    right = p.argmax(axis=1) == y_test
    losses[name], sure[name] = log_loss(y_test, p), np.mean(~right[certain])
    print(
        f"{name:<12} log loss {losses[name]:.3f}, accuracy {right.mean():.3f}; "
        f"of {certain.sum()} rows that are 99 % certain {sure[name]:.1%} are wrong"
    )
assert losses["trained on"] < 0.7 * losses["naive Bayes"]
assert sure["trained on"] < sure["naive Bayes"]

# %%
# Both models are a :class:`~sklearn.naive_bayes.GaussianNB`. The dotted line in the plot shows perfect calibration.

fig, ax = plt.subplots(figsize=(5, 4.5), layout="constrained")
for name, model in models.items():
    CalibrationDisplay.from_estimator(
        model, X_test, y_test, n_bins=5, strategy="quantile", name=name, ax=ax
    )
