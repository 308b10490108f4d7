"""
How do I train on a file that is larger than memory?
====================================================

``fit`` can read the row groups of a parquet file as parts. A few parts are open at a time, and each batch has rows of
all open parts. This example compares numbers of open parts. The rows of the file are sorted by label, which is the
worst case.
"""

import os
import tempfile
import tracemalloc

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from onnxtrain import OrtGradientClassifier
from onnxtrain.rows import Parts, from_parquet

# %%
# The file has 100,000 rows: digits of the first writers with added noise, sorted by label. The row groups are written
# one after the other, so that the whole table is never in memory.

X, y = load_digits(return_X_y=True, as_frame=True)
X_train, y_train, X_test, y_test = X[:1200], y[:1200], X[1200:], y[1200:]
rng = np.random.default_rng(0)


def row_group(digit, n_rows=2000):
    pixels = X_train.iloc[rng.choice(np.flatnonzero(y_train == digit), n_rows)]
    pixels = (pixels + 3 * rng.standard_normal(pixels.shape)).astype(np.float32)
    return pa.Table.from_pandas(pixels.assign(digit=digit), preserve_index=False)


path = os.path.join(tempfile.mkdtemp(), "digits.parquet")
with pq.ParquetWriter(path, row_group(0).schema) as file:
    for digit in np.repeat(range(10), 5):
        file.write_table(row_group(digit))

rows = from_parquet(path, label="digit")
table_bytes = 100_000 * 64 * 4
print(f"{len(rows)} row groups, {table_bytes / 1e6:.0f} MB as a table of float32")

# %%
# With one open part, the network forgets digits that it has seen earlier in the epoch. With more open parts, the
# accuracy is higher. The fit needs less than 60 % of the memory of the whole table.

network = MLPClassifier((64,))
model = OrtGradientClassifier(network, init="random", max_iter=1, random_state=0)
model.fit(X_train, y_train)  # compiles the step before memory is measured
open_parts = [1, 4, 8]
memory, accuracy = [], []
for n in open_parts:
    tracemalloc.start()
    model.fit(Parts(rows, open_parts=n))
    memory.append(tracemalloc.get_traced_memory()[1] / table_bytes)
    tracemalloc.stop()
    accuracy.append(model.score(X_test, y_test))
    print(
        f"{n} open: memory {memory[-1]:.0%} of the table, accuracy {accuracy[-1]:.1%}"
    )
assert accuracy[0] + 0.05 < accuracy[1] < accuracy[2]
assert max(memory) < 0.6

fig, axes = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
labels = ["accuracy on later writers", "memory of the fit / size of the table"]
for ax, values, label in zip(axes, [accuracy, memory], labels, strict=True):
    ax.plot(open_parts, values, "o-")
    ax.set(xlabel="row groups open at a time", ylabel=label, ylim=(0, 1))
