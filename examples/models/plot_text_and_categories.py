"""
How do I fine-tune a pipeline with text, categories and missing values?
=======================================================================

The pipeline preprocesses texts, categories and missing values with scikit-learn. onnxtrain trains the model at its end
as an ONNX graph. ``to_sklearn()`` returns the same pipeline with new coefficients.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from onnxtrain import OrtGradientClassifier

# %%
# The table is made from the wine data. The color becomes a text, the alcohol content becomes a category, and one value
# in ten of the alcalinity is missing.

wine = load_wine(as_frame=True)
rng = np.random.default_rng(0)
X = pd.DataFrame(
    {
        "note": np.where(
            wine.data["color_intensity"] > 5, "deep red", "light and clear"
        )
        + np.where(wine.data["hue"] > 0.9, " young", " brownish old"),
        "strength": pd.cut(
            wine.data["alcohol"], 3, labels=["low", "middle", "high"]
        ).astype(str),
        "alcalinity": wine.data["alcalinity_of_ash"].mask(
            rng.random(len(wine.data)) < 0.1
        ),
        "malic_acid": wine.data["malic_acid"],
    }
)
y = wine.target_names[wine.target]
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

pipeline = make_pipeline(
    make_column_transformer(
        (CountVectorizer(), "note"),
        (OneHotEncoder(handle_unknown="ignore"), ["strength"]),
        (
            make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()),
            ["alcalinity", "malic_acid"],
        ),
    ),
    LogisticRegression(C=0.01),
).fit(X_train, y_train)

# %%
# The penalty of the fitted model was too strong. Its training continues with a weaker one and with early stopping.

tuned = OrtGradientClassifier(
    pipeline,
    l2=1e-4,
    learning_rate=0.05,
    max_iter=100,
    early_stopping=True,
    validation_fraction=0.2,
    random_state=0,
).fit(X_train, y_train)
print("each step is run by:", tuned.onnx_status_)

back = tuned.to_sklearn()
losses = {
    name: log_loss(y_test, m.predict_proba(X_test))
    for name, m in {"before": pipeline, "after": back}.items()
}
print(
    "log loss on held-out wines:",
    {name: round(value, 3) for name, value in losses.items()},
)
print("what comes back:", " -> ".join(type(step).__name__ for _, step in back.steps))
assert losses["after"] < 0.6 * losses["before"]
assert np.allclose(back.predict_proba(X_test), tuned.predict_proba(X_test), atol=1e-5)

# %%
# The new coefficients, with the names of the columns that the preprocessing returns:

columns = [name.split("__")[-1] for name in back[0].get_feature_names_out()]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
picture = ax.imshow(back[-1].coef_, cmap="RdBu", vmin=-3, vmax=3, aspect="auto")
ax.set_xticks(range(len(columns)), columns, rotation=60, ha="right")
ax.set_yticks(range(3), back.classes_)
fig.colorbar(picture, label="coefficient")
