"""Train with numpy and onnxruntime only: ``python run_plain.py FOLDER ROWS.npz``.

FOLDER contains the files of ``estimator.export_training_step``. ROWS.npz contains the rows of one epoch by input name
(X, y, sample_weight, ...), in the types given in step.json, and batch_size, epochs and learning_rate. The state is
written to FOLDER/state.npz.
"""

import os
import sys

import numpy as np
import onnxruntime


class Trainer:
    """A training step and its state."""

    def __init__(self, folder, n_threads=1):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = n_threads
        # as in fit: further optimizations of onnxruntime change the rounding
        options.graph_optimization_level = (
            onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        )

        def opened(name):
            path = os.path.join(folder, f"{name}.onnx")
            return (
                onnxruntime.InferenceSession(path, options)
                if os.path.exists(path)
                else None
            )

        self._before, self._step, self._predict = map(
            opened, ("before", "step", "predict")
        )
        init = opened("init")
        self.state = dict(
            zip([o.name for o in init.get_outputs()], init.run(None, {}), strict=True)
        )
        self._outputs = [o.name for o in self._step.get_outputs()]
        types = {i.name: i.type for i in self._step.get_inputs()}
        self._rate = (
            np.float64 if types["learning_rate"] == "tensor(double)" else np.float32
        )

    def inputs(self):
        """Return the names of the rows, targets and sample weights that rows() takes."""
        sessions = [s for s in (self._before, self._step) if s is not None]
        taken = {i.name for s in sessions for i in s.get_inputs()}
        made = {o.name for s in sessions[:-1] for o in s.get_outputs()}
        return taken - made - {"learning_rate"} - self.state.keys()

    def rows(self, rows):
        """Return the rows of the step; the frozen part is computed once for each row."""
        if self._before is not None:
            fed = {i.name: rows[i.name] for i in self._before.get_inputs()}
            names = [o.name for o in self._before.get_outputs()]
            rows = {
                **rows,
                **dict(zip(names, self._before.run(None, fed), strict=True)),
            }
        return {i.name: rows[i.name] for i in self._step.get_inputs() if i.name in rows}

    def step(self, rows, learning_rate):
        """Run a step and return its loss; the output ``next_S`` becomes the input ``S``."""
        rate = np.array([learning_rate], self._rate)
        found = self._step.run(None, {**rows, "learning_rate": rate, **self.state})
        named = dict(zip(self._outputs, found, strict=True))
        self.state = {name: named[f"next_{name}"] for name in self.state}
        return named["loss"].item()

    def predict(self, rows):
        """Return the outputs of the model for raw rows."""
        fed = {**self.state, **rows}
        return self._predict.run(
            None, {i.name: fed[i.name] for i in self._predict.get_inputs()}
        )


def main(folder, path):
    """Train for the epochs given in the file of rows, in the order of its rows."""
    with np.load(path) as file:
        given = dict(file)
    trainer = Trainer(folder)
    settings = "batch_size", "epochs", "learning_rate"
    if lacking := {*settings, *trainer.inputs()} - given.keys():
        sys.exit(f"{path} lacks {sorted(lacking)}. It has {sorted(given)}.")
    batch_size, epochs, rate = (given.pop(name).item() for name in settings)
    rows = trainer.rows(given)
    n = len(next(iter(rows.values())))
    for epoch in range(epochs):
        sum_ = 0.0
        for start in range(0, n, batch_size):
            batch = {name: x[start : start + batch_size] for name, x in rows.items()}
            sum_ += trainer.step(batch, rate) * len(batch["y"])
        print(f"epoch {epoch + 1}: loss {sum_ / n:.6f}")
    np.savez(os.path.join(folder, "state.npz"), **trainer.state)


if __name__ == "__main__":
    main(*sys.argv[1:])
