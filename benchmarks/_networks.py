"""The same fully connected network, fitted by each contender.

Each function takes a :class:`Problem` and returns ``fit(epochs)``, which includes
conversion and compilation, as for a user.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import _harness
import numpy as np

Fit = Callable[[int], object]


@dataclass(frozen=True)
class Problem:
    """A ReLU network, random data and the settings of the training.

    Attributes
    ----------
    sizes : tuple of int
        The number of columns of X, the sizes of the hidden layers and the number of outputs.
    rows, batch : int
    solver : {"adam", "momentum"}
    classifies : bool
        Whether the output is a Softmax with the log loss; otherwise the loss is the squared error.
    threads : int
    """

    sizes: tuple[int, ...]
    rows: int
    batch: int
    solver: str = "adam"
    classifies: bool = False
    threads: int = 2

    @property
    def name(self) -> str:
        return f"{'-'.join(map(str, self.sizes))}, {self.rows} rows, batch {self.batch}, {self.solver}"

    @property
    def steps(self) -> int:
        """The number of steps per epoch."""
        return -(-self.rows // self.batch)

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return X (n, p) and y: class indices (n,), or floats (n,) or (n, k)."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(self.rows, self.sizes[0])).astype(np.float32)
        y = X @ rng.normal(size=(self.sizes[0], self.sizes[-1])).astype(np.float32)
        if self.classifies:
            return X, y.argmax(axis=1)
        return X, (y / y.std()).squeeze()


def sklearn_network(problem: Problem, epochs: int, rows: int | None = None):
    """Return an unfitted MLPRegressor or MLPClassifier that trains for exactly the given number of epochs."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    solver = (
        {"solver": "adam"}
        if problem.solver == "adam"
        else {"solver": "sgd", "momentum": 0.9, "nesterovs_momentum": False}
    )
    return (MLPClassifier if problem.classifies else MLPRegressor)(
        hidden_layer_sizes=problem.sizes[1:-1],
        batch_size=min(problem.batch, rows or problem.rows),
        max_iter=epochs,
        alpha=0.0,
        learning_rate_init=1e-3,
        tol=0.0,
        n_iter_no_change=10**6,
        random_state=0,
        **solver,
    )


def onnxtrain(problem: Problem, *, device: str = "cpu", dtype: str = "float32") -> Fit:
    """Fine-tune a scikit-learn network that was fitted on few rows."""
    from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
    from onnxtrain.optim import SGD, Adam

    X, y = problem.data()
    few = slice(0, 50 * problem.sizes[-1])
    start = sklearn_network(problem, 1, len(X[few])).fit(X[few], y[few])
    estimator = OrtGradientClassifier if problem.classifies else OrtGradientRegressor

    def fit(epochs: int):
        return estimator(
            start,
            solver=Adam() if problem.solver == "adam" else SGD(momentum=0.9),
            batch_size=problem.batch,
            max_iter=epochs,
            tol=0.0,
            n_iter_no_change=10**6,
            device=device,
            dtype=dtype,
            n_threads=None if problem.threads > 1 else 1,
            random_state=0,
        ).fit(X, y)

    return fit


def sklearn(problem: Problem) -> Fit:
    X, y = problem.data()
    return lambda epochs: sklearn_network(problem, epochs).fit(X, y)


def _torch_network(problem: Problem, device: str = "cpu"):
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(problem.threads)
    layers: list = []
    for a, b in zip(problem.sizes, problem.sizes[1:], strict=False):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).to(device)


def _torch_data(problem: Problem):
    X, y = problem.data()
    return X, y.astype(np.int64) if problem.classifies else y.reshape(len(X), -1)


def pytorch(problem: Problem, *, device: str = "cpu", compiled: bool = False) -> Fit:
    """Use a training loop with the data on the device and a fused optimizer."""
    _harness.need("torch")
    import torch

    X, y = (torch.from_numpy(a).to(device) for a in _torch_data(problem))
    criterion = torch.nn.CrossEntropyLoss() if problem.classifies else torch.nn.MSELoss()

    start = _torch_network(problem, device)
    drawn = copy.deepcopy(start.state_dict())
    model = torch.compile(start) if compiled else start  # compiled once; each fit resets the weights

    def fit(epochs: int) -> float:
        start.load_state_dict(drawn)
        if problem.solver == "adam":
            solver = torch.optim.Adam(start.parameters(), 1e-3, fused=True)
        else:
            solver = torch.optim.SGD(start.parameters(), 1e-3, momentum=0.9, fused=True)
        total = torch.zeros((), device=device)
        for _ in range(epochs):
            order = torch.randperm(len(X), device=device)
            total = torch.zeros((), device=device)
            for rows in order.split(problem.batch):
                solver.zero_grad()
                loss = criterion(model(X[rows]), y[rows])
                loss.backward()
                solver.step()
                total += loss.detach()
        return float(total)

    return fit


def skorch(problem: Problem) -> Fit:
    _harness.need("torch", "skorch")
    import skorch as sk
    import torch

    X, y = _torch_data(problem)

    def fit(epochs: int):
        net = (sk.NeuralNetClassifier if problem.classifies else sk.NeuralNetRegressor)(
            _torch_network(problem),
            criterion=torch.nn.CrossEntropyLoss if problem.classifies else torch.nn.MSELoss,
            optimizer=torch.optim.Adam if problem.solver == "adam" else torch.optim.SGD,
            lr=1e-3,
            batch_size=problem.batch,
            max_epochs=epochs,
            train_split=None,
            iterator_train__shuffle=True,
            verbose=0,
        )
        return net.fit(X, y)

    return fit


def jax_scan(problem: Problem) -> Fit:
    """Use a compiled scan over the batches of an epoch."""
    _harness.need("jax", "optax")
    import jax
    import jax.numpy as jnp
    import optax

    X, y = _torch_data(problem)
    solver = optax.adam(1e-3) if problem.solver == "adam" else optax.sgd(1e-3, momentum=0.9)
    n_whole = problem.rows // problem.batch  # a scan needs batches of equal size, so the last rows are omitted

    def forward(weights, x):
        for i, (w, b) in enumerate(weights):
            x = x @ w + b
            x = jax.nn.relu(x) if i < len(weights) - 1 else x
        return x

    def loss(weights, x, t):
        scores = forward(weights, x)
        if problem.classifies:
            return optax.softmax_cross_entropy_with_integer_labels(scores, t).mean()
        return ((scores - t) ** 2).mean()

    def epoch(carry, order, X, y):
        def step(carry, rows):
            weights, memory = carry
            value, dws = jax.value_and_grad(loss)(weights, X[rows], y[rows])
            updates, memory = solver.update(dws, memory, weights)
            return (optax.apply_updates(weights, updates), memory), value

        return jax.lax.scan(step, carry, order)

    run = jax.jit(epoch, donate_argnums=0)

    def fit(epochs: int) -> float:
        rng = np.random.default_rng(0)
        weights = [
            (jnp.asarray(rng.normal(size=(a, b), scale=a**-0.5), jnp.float32), jnp.zeros(b))
            for a, b in zip(problem.sizes, problem.sizes[1:], strict=False)
        ]
        carry, losses = (weights, solver.init(weights)), None
        data = jnp.asarray(X), jnp.asarray(y)
        for _ in range(epochs):
            order = rng.permutation(problem.rows)[: n_whole * problem.batch].reshape(n_whole, problem.batch)
            carry, losses = run(carry, order, *data)
        return float(losses.mean())

    return fit


def onnxsim_steps(problem: Problem) -> Fit:
    """Use a handwritten forward pass and loss; onnxsim derives the gradient and runs the step in onnxruntime."""
    _harness.need("onnxsim")
    from onnx import TensorProto
    from onnxsim import graph_grad, qat_graph

    X, y = _torch_data(problem)
    y = np.eye(problem.sizes[-1], dtype=np.float32)[y] if problem.classifies else y
    rng = np.random.default_rng(0)
    g, state, shapes = qat_graph.GraphBuilder(), {}, {}
    h, target = g.gather_rows("X", "rows"), g.gather_rows("y", "rows")
    first = len(g.nodes)
    shapes[h] = (problem.batch, problem.sizes[0])
    for i, (a, b) in enumerate(zip(problem.sizes, problem.sizes[1:], strict=False)):
        state |= {f"w{i}": rng.normal(size=(a, b), scale=a**-0.5), f"b{i}": np.zeros((1, b))}
        h = g.op("Gemm", [h, f"w{i}", f"b{i}"])
        shapes[h] = (problem.batch, b)
        if i < len(problem.sizes) - 2:
            h = g.op("Relu", [h])
            shapes[h] = (problem.batch, b)
    shapes |= {name: w.shape for name, w in state.items()}
    forward, n = list(g.nodes[first:]), problem.batch
    if problem.classifies:
        slope = g.mul(g.sub(g.op("Softmax", [h], axis=-1), target), g.const(1 / n))
        logs = g.mul(g.op("LogSoftmax", [h], axis=-1), target)
        loss = g.mul(g.op("ReduceSum", [logs], keepdims=0), g.const(-1 / n))
    else:
        error = g.sub(h, target)
        slope, loss = g.mul(error, g.const(2 / n)), g.mean_square(error)
    gradients = graph_grad.build_backward(g, forward, shapes, {h: slope}, list(state))
    wires, start = {}, {}
    for name, w in state.items():
        zeros, memory = np.zeros_like(w), [f"{name}.m", f"{name}.v"]
        if problem.solver == "adam":
            new = qat_graph.adam_update(g, name, gradients[name], *memory, "lr", "m_correction", "v_correction")
        else:
            new = qat_graph.sgd_momentum_update(g, name, gradients[name], memory[0], "lr")
        for old, value, output in zip([name, *memory], [w, zeros, zeros], new, strict=False):
            wires[old], start[old] = (w.shape, output), value.astype(np.float32)
    step = qat_graph.make_step_graph(
        g,
        {"X": (X.shape, TensorProto.FLOAT), "y": (y.shape, TensorProto.FLOAT)},
        wires,
        scalars=("lr", "m_correction", "v_correction") if problem.solver == "adam" else ("lr",),
        loss=loss,
        per_step={"rows": ((n,), TensorProto.INT64)},
    )
    rows = qat_graph.minibatch_indices(problem.rows, n)

    def scalars(t: int) -> dict[str, float]:
        return {"lr": 1e-3} | (qat_graph.adam_bias_corrections(t) if problem.solver == "adam" else {})

    def fit(epochs: int) -> float:
        losses: list[float] = []
        qat_graph.run_step_graph(
            step,
            {"X": X, "y": y},
            start,
            epochs * problem.steps,
            scalars=scalars,
            feeds=lambda t: {"rows": rows(t)},
            losses=losses,
        )
        return float(np.mean(losses[-problem.steps :]))

    return fit


CONTENDERS: dict[str, Callable[..., Fit]] = {
    _harness.OURS: onnxtrain,
    "scikit-learn": sklearn,
    "PyTorch loop, fused": pytorch,
    "skorch": skorch,
    "JAX scan": jax_scan,
}
