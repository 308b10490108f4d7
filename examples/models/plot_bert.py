"""
How do I train a transformer with an attention mask?
====================================================

A transformer for texts has two inputs: the token ids, and an attention mask that marks the padding. The class
:class:`~onnxtrain.Inputs` holds both, and scikit-learn can index it by rows. The texts are the descriptions of
scikit-learn's data sets. The classifier predicts from which description a sequence of 6 to 12 words comes.
"""

import re

import matplotlib.pyplot as plt
import numpy as np
import onnx
import onnx.parser
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_linnerud,
    load_wine,
)
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split

from onnxtrain import Inputs, OrtGradientClassifier

rng = np.random.default_rng(0)
loaders = [
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_linnerud,
    load_wine,
]
names = [loader.__name__.removeprefix("load_") for loader in loaders]
texts = [re.findall(r"[a-z]+", loader().DESCR.lower()) for loader in loaders]
vocabulary = {
    word: i + 1
    for i, word in enumerate(sorted({word for text in texts for word in text}))
}  # 0 is the padding
size = len(vocabulary) + 1

# %%
# The texts are cut into sequences of 6 to 12 words that do not overlap.

pieces, labels = [], []
for name, text in zip(names, texts, strict=True):
    start = 0
    while start + 6 <= len(text):
        n = int(rng.integers(6, 13))
        pieces.append([vocabulary[word] for word in text[start : start + n]])
        labels.append(name)
        start += n
X = Inputs(input_ids=pieces, attention_mask=[[1] * len(piece) for piece in pieces])
y = np.array(labels)
print(f"{len(X)} pieces, {size} tokens")

# %%
# The model is one block of a small BERT. It has embeddings of tokens and positions, masked attention and a feed-forward
# network, each of the two followed by a layer normalization, and the mean over the tokens that are not padding. An ONNX
# file of a model from Hugging Face has the same structure and is larger.

d = 32
bert = onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 21]>
    bert (int64[n, t] input_ids, int64[n, t] attention_mask) => (float[n, {len(names)}] logits)
    <float scale = {{{d**-0.5}}}, float far = {{-10000}}, float one = {{1}}, int64 zero = {{0}}, int64 step = {{1}},
     int64[1] axis0 = {{0}}, int64[1] axis1 = {{1}}, int64[1] axis2 = {{2}}> {{
        words = Gather(tokens, input_ids)
        length = Shape <start = 1, end = 2> (input_ids)
        t_end = Squeeze(length, axis0)
        order = Range(zero, t_end, step)
        where = Gather(positions, order)
        x = Add(words, where)
        there = Cast <to = 1> (attention_mask)
        missing = Sub(one, there)
        bias = Mul(missing, far)
        mask = Unsqueeze(bias, axis1)
        q = MatMul(x, query)
        k = MatMul(x, key)
        v = MatMul(x, value)
        kt = Transpose <perm = [0, 2, 1]> (k)
        products = MatMul(q, kt)
        scaled = Mul(products, scale)
        masked = Add(scaled, mask)
        attention = Softmax <axis = -1> (masked)
        mixed = MatMul(attention, v)
        added = Add(x, mixed)
        h = LayerNormalization <axis = -1> (added, norm1_weight, norm1_bias)
        up = MatMul(h, dense1)
        active = Gelu(up)
        down = MatMul(active, dense2)
        both = Add(h, down)
        z = LayerNormalization <axis = -1> (both, norm2_weight, norm2_bias)
        column = Unsqueeze(there, axis2)
        kept = Mul(z, column)
        sum = ReduceSum <keepdims = 0> (kept, axis1)
        n_tokens = ReduceSum <keepdims = 1> (there, axis1)
        mean = Div(sum, n_tokens)
        logits = Gemm(mean, classifier_weight, classifier_bias)
    }}""")
shapes = {
    "tokens": (size, d),
    "positions": (12, d),
    **dict.fromkeys(("query", "key", "value"), (d, d)),
    "dense1": (d, 2 * d),
    "dense2": (2 * d, d),
    "classifier_weight": (d, len(names)),
}
weights = {name: rng.normal(0, 0.1, shape) for name, shape in shapes.items()}
weights |= {f"norm{i}_weight": np.ones(d) for i in (1, 2)} | {
    f"norm{i}_bias": np.zeros(d) for i in (1, 2)
}
weights["classifier_bias"] = np.zeros(len(names))
for name, values in weights.items():
    bert.graph.initializer.append(
        onnx.numpy_helper.from_array(values.astype(np.float32), name)
    )

# %%
# ``pad`` sets the value that is appended to shorter rows.

X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
model = OrtGradientClassifier(
    bert,
    pad={"input_ids": 0},
    learning_rate=0.005,
    batch_size=32,
    max_iter=15,
    random_state=0,
).fit(X_train, y_train)
most = max(np.mean(y_test == name) for name in names)
print(
    f"accuracy on {len(y_test)} held-out pieces: {model.score(X_test, y_test):.2f}, the most frequent text: {most:.2f}"
)
assert model.score(X_test, y_test) > most + 0.2

# %%
# Padding does not change a prediction: a row has the same probabilities alone and in a batch with longer rows.

short = int(np.argmin([len(piece) for piece in X_test["input_ids"]]))
assert np.allclose(
    model.predict_proba(X_test[[short]]),
    model.predict_proba(X_test)[[short]],
    atol=1e-5,
)

fig, ax = plt.subplots(figsize=(5.5, 5), layout="constrained")
ConfusionMatrixDisplay.from_estimator(
    model, X_test, y_test, colorbar=False, cmap="Blues", xticks_rotation=40, ax=ax
)
