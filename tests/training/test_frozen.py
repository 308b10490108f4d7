"""The frozen front is computed once if its values are proven to be rows, else with each batch."""

from __future__ import annotations

import io
import tempfile

import numpy as np
import onnx.parser
import pytest
import scipy.sparse
from onnx import numpy_helper
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onnxtrain
from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import ModelError
from onnxtrain.training import frozen

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4)).astype(np.float32)
y = rng.normal(size=60).astype(np.float32)
SGD = {"solver": "sgd", "learning_rate": 1e-3, "shuffle": False}


def model(nodes, inputs="float[N,4] X", outputs="float[N,1] Y", **weights):
    onx = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> m ({inputs}) => ({outputs}) {{ {nodes} }}'
    )
    arrays = {name: np.asarray(w, np.float32) for name, w in weights.items()}
    onx.graph.initializer.extend(numpy_helper.from_array(w, name) for name, w in arrays.items())
    return onx


W, V = rng.normal(size=(4, 4)), rng.normal(size=(4, 1))
HEAD = "Y = MatMul(H, V)"

#: What stands before the head, and whether it is computed once.
FRONTS = {
    "rows": ("A = MatMul(X, W) H = Tanh(A)", True),
    "rows and positions": (
        "s = Shape(X) i = Constant<value_int = 1>() n = Gather(s, i) o = Constant<value_int = 0>() r = Range(o, n, i) "
        "P = Cast<to = 1>(r) A = MatMul(X, W) H = Add(A, P)",
        True,
    ),
    "of a shape that is not known": (
        "s = Constant<value_ints = [4, -1]>() A = MatMul(X, W) T = Transpose<perm = [1, 0]>(A) R = Reshape(T, s) "
        "B = Transpose<perm = [1, 0]>(R) H = Tanh(B)",
        True,
    ),
    "the place in the batch": (
        "s = Shape(X) o = Constant<value_int = 0>() n = Gather(s, o) i = Constant<value_int = 1>() r = Range(o, n, i) "
        "P = Cast<to = 1>(r) a = Constant<value_ints = [-1, 1]>() Q = Reshape(P, a) A = MatMul(X, W) H = Add(A, Q) "
        "B = Sub(H, A)",  # what the head takes from H, and subtracts: its results are those of the rows
        False,
    ),
}


def fitted(onx, rows, **params):
    params = {"max_iter": 4, "batch_size": 16, "weights_to_train": ["V"], **SGD} | params
    return OrtGradientRegressor(onx, **params).fit(rows, y)


@pytest.mark.parametrize("named", [False, True], ids=["array", "by name"])
@pytest.mark.parametrize("front", FRONTS)
def test_a_front_changes_no_weight(front, named, monkeypatch):
    nodes, once = FRONTS[front]
    head = "C = MatMul(H, V) D = MatMul(B, V) Y = Sub(C, D)" if "B =" in nodes and not once else HEAD
    onx = model(f"{nodes} {head}", W=W, V=V)
    expected = fitted(onx, X)
    assert expected._trained.front is None  # too little to do
    monkeypatch.setattr(frozen, "_WORTH_A_CUT", 0)
    found = fitted(onx, {"X": X} if named else X)
    assert (found._trained.front is not None and "H" in found._trained.front.front.border) == once
    np.testing.assert_allclose(found.weights_["V"], expected.weights_["V"], atol=1e-6)
    rows = {"X": X} if named else X
    np.testing.assert_allclose(found.predict(rows), expected.predict(X), rtol=1e-5, atol=1e-6)
    if once:
        np.testing.assert_allclose(found.losses(rows, y), expected.losses(X, y), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found.gradient(rows, y), expected.gradient(X, y), rtol=1e-4, atol=1e-6)


def test_an_input_on_the_border_may_be_an_output(monkeypatch):
    monkeypatch.setattr(frozen, "_WORTH_A_CUT", 0)
    nodes = "A = MatMul(X, W) T = Tanh(A) P = MatMul(X, U) H = Mul(T, P) Y = MatMul(H, V)"
    found = [
        fitted(model(nodes, outputs=outputs, W=W, V=V, U=W), {"X": X}, output="Y", weights_to_train=["V", "U"])
        for outputs in ("float[N,1] Y", "float[N,1] Y, float[N,4] X")
    ]
    for name, w in found[0].weights_.items():
        np.testing.assert_array_equal(found[1].weights_[name], w)


@pytest.mark.parametrize("n, batch_size", [(4, 4), (4, 2), (3, 3), (60, 4), (1, 1)])
def test_values_with_a_first_axis_that_is_not_the_rows(n, batch_size):
    positions = (
        "s = Shape(X) i = Constant<value_int = 1>() n = Gather(s, i) o = Constant<value_int = 0>() r = Range(o, n, i) "
        "P = Cast<to = 1>(r)"
    )
    given = "P = Constant<value_floats = [0.0, 1.0, 2.0, 3.0]>()"
    fits = [
        OrtGradientRegressor(
            model(f"{nodes} Z = Mul(X, w) H = Add(Z, P) {HEAD}", w=V.ravel(), V=V),
            max_iter=2, batch_size=batch_size, weights_to_train=["w", "V"], **SGD,
        ).fit(rows, y[:n])
        for nodes, rows in ((positions, {"X": X[:n]}), (given, X[:n]))
    ]  # fmt: skip
    for name, w in fits[0].weights_.items():
        np.testing.assert_allclose(w, fits[1].weights_[name], atol=1e-6)


@pytest.mark.parametrize(
    "params, rows",
    [
        ({"early_stopping": True, "random_state": 0}, X),
        ({"solver": "lbfgs", "batch_size": "auto", "learning_rate": 1e-3}, X),
        ({"average": True, "shuffle": True, "random_state": 0}, X),
        ({}, scipy.sparse.csr_array(X)),
    ],
    ids=["early stopping", "lbfgs", "average", "sparse"],
)
def test_a_front_goes_with_whatever_trains(params, rows, monkeypatch):
    onx = model(f"{FRONTS['rows'][0]} {HEAD}", W=W, V=V)
    expected = fitted(onx, rows, **params)
    monkeypatch.setattr(frozen, "_WORTH_A_CUT", 0)
    found = fitted(onx, rows, **params)
    assert found._trained.front is not None
    np.testing.assert_allclose(found.weights_["V"], expected.weights_["V"], rtol=1e-3, atol=1e-5)


def test_a_fit_with_a_front_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(frozen, "_WORTH_A_CUT", 0)
    estimator = OrtGradientRegressor(
        model(f"{FRONTS['rows'][0]} {HEAD}", W=W, V=V), max_iter=2, weights_to_train=["V"], warm_start=True, **SGD
    )
    found = clone(estimator).fit(X, y, X_val=X[:9], y_val=y[:9]).partial_fit(X, y).fit(X[:40], y[:40])
    monkeypatch.setattr(frozen, "_WORTH_A_CUT", np.inf)
    expected = clone(estimator).fit(X, y, X_val=X[:9], y_val=y[:9]).partial_fit(X, y).fit(X[:40], y[:40])
    np.testing.assert_allclose(found.weights_["V"], expected.weights_["V"], atol=1e-6)
    monkeypatch.setattr(frozen, "_WORTH_A_CUT", 0)
    path = tmp_path / "fit.onnxtrain"
    begun = clone(estimator).fit(X, y, checkpoint=path)
    resumed = clone(begun).set_params(max_iter=6).fit(X, y, checkpoint=path, resume=True)
    assert resumed.n_iter_ == 6
    np.testing.assert_allclose(onnxtrain.load(path).losses(X, y), resumed.losses(X, y), rtol=1e-5)


def test_a_border_that_is_larger_than_the_rows_is_computed_with_each_batch(monkeypatch):
    onx = model(f"A = MatMul(X, W) H = Tanh(A) {HEAD}", W=rng.normal(size=(4, 40)), V=rng.normal(size=(40, 1)))
    monkeypatch.setattr(frozen, "_WORTH_A_CUT", 0)
    assert fitted(onx, X)._trained.front is not None
    monkeypatch.setattr(frozen, "IN_MEMORY", 4 * X.nbytes)
    assert fitted(onx, X)._trained.front is None


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of temporary files."""
    monkeypatch.setattr(frozen, "_WORTH_A_CUT", 0)
    monkeypatch.setattr(frozen, "_PIECE", 0)  # pieces of 16 rows
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


ROWS = model(f"{FRONTS['rows'][0]} {HEAD}", W=W, V=V)


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_a_large_border_is_kept_in_a_file_that_no_folder_lists(folder, monkeypatch, solver):
    size = 16 if solver == "adam" else "auto"
    estimator = OrtGradientRegressor(ROWS, max_iter=4, batch_size=size, weights_to_train=["V"], solver=solver)
    estimator.set_params(early_stopping=True, random_state=0)
    in_memory = clone(estimator).fit(X, y)
    monkeypatch.setattr(frozen, "IN_MEMORY", 0)
    made = []
    in_files = frozen._in_files
    monkeypatch.setattr(frozen, "_in_files", lambda *a: made.append(in_files(*a)) or made[-1])
    in_file = clone(estimator).fit(X, y)
    (border,) = made
    assert isinstance(border["H"], np.memmap)
    np.testing.assert_allclose(border["H"], np.tanh(X @ W.astype(np.float32)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(in_file.weights_["V"], in_memory.weights_["V"])
    assert not list(folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_no_file_is_left_by_an_error(folder, monkeypatch, error):
    monkeypatch.setattr(frozen, "IN_MEMORY", 0)
    run, times = frozen.run_session, []

    def fails(*args):
        times.append(args)
        if len(times) == 5:  # three runs confirm the border
            raise error
        return run(*args)

    monkeypatch.setattr(frozen, "run_session", fails)
    with pytest.raises(error):
        fitted(ROWS, X)
    assert len(times) == 5
    assert not list(folder.iterdir())


def full(*args, **kwargs):
    raise OSError(28, "No space left on device")


def test_on_a_full_disk_the_front_is_computed_with_each_batch(folder, monkeypatch):
    monkeypatch.setattr(frozen, "IN_MEMORY", 0)
    expected = fitted(ROWS, X)
    assert expected._trained.front is not None
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    found = fitted(ROWS, X)
    assert found._trained.front is None
    np.testing.assert_allclose(found.weights_["V"], expected.weights_["V"], atol=1e-6)


def test_folds_share_a_step_behind_a_front(monkeypatch):
    monkeypatch.setattr(frozen, "_WORTH_A_CUT", 0)
    estimator = OrtGradientRegressor(make_pipeline(StandardScaler(), LinearRegression()), max_iter=2, **SGD)
    first = clone(estimator).fit(X[:40], y[:40])
    assert first._trained.front is not None
    second = clone(estimator).fit(X[20:], y[20:])
    assert second._trained.rest == first._trained.rest  # a step is built once for equal ones
    monkeypatch.setattr(frozen, "_WORTH_A_CUT", np.inf)
    np.testing.assert_allclose(
        second.weights_["linearregression.coef"],
        clone(estimator).fit(X[20:], y[20:]).weights_["linearregression.coef"],
        atol=1e-6,
    )


def test_a_small_fit_is_not_looked_through(monkeypatch):
    monkeypatch.setattr("onnxtrain.training.frozen.find_front", None)
    OrtGradientRegressor(make_pipeline(StandardScaler(), LinearRegression()), max_iter=10, **SGD).fit(X, y)


@pytest.mark.parametrize(
    "nodes",
    [
        "F = Cast<to = 1>(E) o = Constant<value_int = 0>() c = CumSum(F, o)",
        "S = Slice(T, z, e, z) R = Slice(T, z, b, z) U = Concat<axis = 0>(R, S) G = Equal(T, U) c = Cast<to = 1>(G)",
    ],
    ids=["behind their encoding", "as texts"],
)
def test_texts_that_are_mixed_between_rows(nodes):
    onx = model(
        f"E = Equal(T, t) {nodes} A = Mul(X, c) H = MatMul(A, W) {HEAD}", inputs="float[N,4] X, string[N,1] T", W=W, V=V
    )
    onx.graph.initializer.append(onnx.helper.make_tensor("t", onnx.TensorProto.STRING, [1], [b"a"]))
    for name, number in {"e": -1, "b": 1, "z": 0}.items():
        onx.graph.initializer.append(numpy_helper.from_array(np.array([number]), name))
    texts = np.array(["a", "b", "b"] * 20, dtype=object)[:, None]
    estimator = OrtGradientRegressor(onx, max_iter=1, batch_size=60, weights_to_train=["V"], **SGD)
    with pytest.raises(ModelError, match="The output 'Y' of a row depends on the other rows of its batch"):
        estimator.fit({"X": X, "T": texts}, y)


def test_texts_whose_encoding_has_the_rows_on_another_axis():
    onx = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 4]> m (string[N, 1] T) => (float[N, 1] Y)
        <float[1, 1] W = {2}> {
            turned = Transpose <perm = [1, 0]> (T)
            E = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_floats = [1.0, 3.0]> (turned)
            H = MatMul (W, E)
            Y = Transpose <perm = [1, 0]> (H)
        }"""
    )
    texts = np.array(["a", "b"] * 30, dtype=object)[:, None]
    with pytest.raises(
        ModelError, match=r"Strings reach the trained weights: T: STRING\[N,1\]. .* first axis .* batch axis"
    ):
        OrtGradientRegressor(onx, **SGD).fit({"T": texts}, y)


def test_an_input_of_which_only_the_shape_is_used():
    nodes = "s = Shape<start=0, end=1>(M) one = Constant<value_ints=[1]>() t = Concat<axis=0>(s, one) "
    onx = model(nodes + "Z = MatMul(X, V) Y = Expand(Z, t)", "float[N,4] X, int64[N,t] M", V=V)
    plain = OrtGradientRegressor(model("Y = MatMul(X, V)", V=V), max_iter=2, **SGD).fit(X, y)
    masked = OrtGradientRegressor(onx, max_iter=2, **SGD).fit({"X": X, "M": np.ones((60, 5), np.int64)}, y)
    np.testing.assert_allclose(masked.weights_["V"], plain.weights_["V"], rtol=1e-6)


# tokens and their mask --------------------------------------------------------

torch = pytest.importorskip("torch", reason="PyTorch makes these models")
nn = torch.nn


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions, self.norm = nn.Embedding(20, 8), nn.Embedding(10, 8), nn.LayerNorm(8)
        self.q, self.k, self.v, self.head = (nn.Linear(8, n) for n in (8, 8, 8, 2))
        self.register_buffer("position_ids", torch.arange(10)[None])

    def forward(self, input_ids, attention_mask):
        n_rows, n = input_ids.shape
        h = self.norm(self.tokens(input_ids) + self.positions(self.position_ids[:, :n]))
        q, k, v = (f(h).view(n_rows, n, 2, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        mask = (1.0 - attention_mask[:, None, None].float()) * torch.finfo(torch.float32).min
        h = (q @ k.transpose(-1, -2) / 2 + mask).softmax(-1) @ v
        return self.head(h.transpose(1, 2).reshape(n_rows, n, 8)[:, 0])


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_tokens_and_their_mask(dynamo):
    torch.manual_seed(0)
    module = Bert().eval()
    with torch.no_grad():
        for w in module.parameters():  # else the exporter keeps equal ones once
            w += 0.1 * torch.randn(w.shape)
    names, n = ["input_ids", "attention_mask"], 24
    ids, lengths = torch.randint(0, 20, (n, 7)), torch.randint(1, 8, (n, 1))
    rows = ids, (torch.arange(7) < lengths).long()
    some = tuple(x[:3] for x in rows)
    if dynamo:
        shapes = {name: {0: torch.export.Dim("N", min=2)} for name in names}
        onx = torch.onnx.export(
            module, some, dynamo=True, optimize=False, dynamic_shapes=shapes, input_names=names, verbose=False
        ).model_proto
    else:
        file = io.BytesIO()
        options = {"do_constant_folding": False, "training": torch.onnx.TrainingMode.PRESERVE}
        axes = {name: {0: "N", 1: "T"} for name in names}
        torch.onnx.export(module, some, file, dynamo=False, dynamic_axes=axes, input_names=names, **options)
        onx = file.getvalue()
    labels = torch.randint(0, 2, (n,))
    X = {name: x.numpy() for name, x in zip(names, rows, strict=True)}
    for trained in (["head.weight", "head.bias"], [name for name, _ in module.named_parameters()]):
        tuned = OrtGradientClassifier(
            onx, solver="sgd", learning_rate=0.01, shuffle=False, batch_size=16, max_iter=5, weights_to_train=trained
        ).fit(X, labels.numpy())
        expected = Bert().eval()
        expected.load_state_dict(module.state_dict())
        weights = dict(expected.named_parameters())
        optimizer = torch.optim.SGD([weights[name] for name in trained], 0.01)
        for start in [0, 16] * 5:
            batch = slice(start, start + 16)
            loss = nn.functional.cross_entropy(expected(*(x[batch] for x in rows)), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert set(tuned.weights_) == set(trained)
        for name in trained:
            np.testing.assert_allclose(tuned.weights_[name], weights[name].detach().numpy(), atol=1e-4)
