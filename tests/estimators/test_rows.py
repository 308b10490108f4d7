"""Rows of every kind: frames with texts, several inputs by name, images, sequences, sparse rows."""

import numpy as np
import onnx.parser
import pytest
import scipy.sparse
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import DataError
from onnxtrain.runtime.session import run

rng = np.random.default_rng(0)
N = 120


@pytest.fixture
def frame():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    return pandas.DataFrame(
        {
            "age": rng.normal(40, 10, N),
            "city": rng.choice(["Oslo", "Rome", "Lima"], N),
            "height": rng.normal(170, 8, N),
        }
    )


def by_column(model):
    texts = OneHotEncoder(sparse_output=False, handle_unknown="ignore")
    columns = ColumnTransformer([("numbers", StandardScaler(), ["age", "height"]), ("texts", texts, ["city"])])
    return make_pipeline(columns, model)


@pytest.mark.parametrize("rows", [np.eye(3), {"a": np.eye(3)}], ids=["array", "by name"])
@pytest.mark.parametrize(
    "estimator", [OrtGradientRegressor(), OrtGradientClassifier()], ids=["regressor", "classifier"]
)
def test_there_must_be_targets(estimator, rows):
    for method in (estimator.fit, estimator.partial_fit):
        with pytest.raises(DataError, match="requires y to be passed, but the target y is None"):
            method(rows, None)


def test_a_frame_with_texts(frame):
    y = (frame["city"] == "Rome") * 2.0 + frame["age"] / 40
    pipeline = by_column(LinearRegression())
    model = OrtGradientRegressor(pipeline, init="random", learning_rate=0.05, random_state=0).fit(frame, y)
    assert model.score(frame, y) > 0.9
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["age", "city", "height"]
    back = model.to_sklearn()
    np.testing.assert_allclose(back.predict(frame), model.predict(frame), rtol=1e-4)
    np.testing.assert_allclose(model.losses(frame, y), (model.predict(frame) - y) ** 2, rtol=1e-3, atol=1e-5)


def test_a_frame_with_texts_for_classes(frame):
    y = np.where(frame["age"] > 40, "old", "young")
    model = OrtGradientClassifier(by_column(LogisticRegression()), early_stopping=True, random_state=0).fit(frame, y)
    assert model.score(frame, y) > 0.9
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"age": "years"}))


def test_a_frame_of_numbers_is_a_matrix(frame):
    numbers = frame[["age", "height"]]
    target = 2 * frame["age"].to_numpy()
    a = OrtGradientRegressor(max_iter=3, random_state=0).fit(numbers, target)
    b = OrtGradientRegressor(max_iter=3, random_state=0).fit(numbers.to_numpy(), target)
    np.testing.assert_array_equal(a.predict(numbers), b.predict(numbers.to_numpy()))


def test_polars():
    polars = pytest.importorskip("polars")
    X, y = load_diabetes(return_X_y=True)
    frame = polars.DataFrame(X, schema=[f"x{i}" for i in range(10)])
    model = OrtGradientRegressor(max_iter=2).fit(frame, y)
    if hasattr(LinearRegression().fit(frame, y), "feature_names_in_"):  # scikit-learn 1.6 knows no names of polars
        assert model.feature_names_in_.tolist() == frame.columns
    np.testing.assert_array_equal(model.predict(frame)[:5], model.predict(frame[:5]))


TWO_INPUTS = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 2] left, int64[N] right) => (float[N, 1] Y)
    <float[2, 1] W = {0, 0}, float[3, 1] T = {0, 0, 0}> {
        A = MatMul(left, W)
        B = Gather(T, right)
        Y = Add(A, B)
    }"""
)


def test_several_inputs_by_name():
    left, right = rng.normal(size=(N, 2)), rng.integers(0, 3, N)
    y = left @ [1.0, -2.0] + np.array([0.0, 5.0, -1.0])[right]
    X = {"left": left, "right": right}
    model = OrtGradientRegressor(TWO_INPUTS, solver="lbfgs").fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-3)
    np.testing.assert_allclose(np.diff(model.weights_["T"].ravel()), [5, -6], atol=1e-2)
    with pytest.raises(DataError, match="X has no column 'right', which is an input of the model"):
        model.predict({"left": left})
    with pytest.raises(
        DataError, match="The model has several inputs: left, right. Pass X as a dictionary or a DataFrame"
    ):
        OrtGradientRegressor(TWO_INPUTS).fit(left, y)
    with pytest.raises(DataError, match="inconsistent numbers of samples"):
        OrtGradientRegressor(TWO_INPUTS).fit({"left": left[1:], "right": right}, y)


EMBEDDING = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]>
    g (int64[N, 5] tokens) => (float[N, 1] Y) <float[7, 1] E = {0, 0, 0, 0, 0, 0, 0}, int64[1] axis = {1}> {
        G = Gather(E, tokens)
        Y = ReduceSum<keepdims = 0>(G, axis)
    }"""
)


def test_sequences_of_integers():
    tokens = rng.integers(0, 7, (N, 5))
    value = np.arange(7.0)
    model = OrtGradientRegressor(EMBEDDING, solver="lbfgs").fit(tokens, value[tokens].sum(axis=1))
    np.testing.assert_allclose(model.weights_["E"].ravel(), value, atol=1e-2)


@pytest.mark.parametrize("batch_size", ["auto", 32])
def test_sparse_rows_are_as_dense_ones(batch_size):
    X = scipy.sparse.random(N, 20, density=0.2, format="csr", random_state=0)
    y = X @ np.arange(20.0)
    params = dict(estimator=LinearRegression().fit(X, y + 1), max_iter=3, batch_size=batch_size, random_state=0)
    a = OrtGradientRegressor(**params).fit(X, y)
    b = OrtGradientRegressor(**params).fit(X.toarray(), y)
    np.testing.assert_allclose(a.predict(X), b.predict(X.toarray()), rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------ from PyTorch


def networks():
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Linear(6, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, activation="gelu")
            self.head = nn.Linear(16, 3)

        def forward(self, x):
            return self.head(self.layer(self.embedding(x)).mean(dim=1))

    cnn = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(32, 3),
    )  # fmt: skip
    return {"cnn": (cnn, (1, 8, 8)), "transformer": (Encoder(), (5, 6))}


def test_what_an_exporter_merged_is_trained_apart():
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 4] X) => (float[N, 4] Y) <float[4] ones = {1, 1, 1, 1}, float[4] zeros = {0, 0, 0, 0}> {
        A = LayerNormalization(X, ones, zeros)
        B = Tanh(A)
        Y = LayerNormalization(B, ones, zeros)
    }"""
    X = rng.normal(size=(N, 4))
    model = OrtGradientRegressor(onnx.parser.parse_model(text), max_iter=3, random_state=0).fit(X, X)
    assert set(model.weights_) == {"ones", "zeros", "ones_1", "zeros_1"}
    assert not np.array_equal(model.weights_["ones"], model.weights_["ones_1"])
    trained = {i.name: onnx.numpy_helper.to_array(i) for i in model.get_trained_onnx().graph.initializer}
    np.testing.assert_array_equal(trained["ones_1"], model.weights_["ones_1"])


def test_copies_of_an_intercept_that_an_exporter_merged_are_trained_apart():
    """Keras writes intercepts as (1, 1, 1, k), and those that were merged as copies of one."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 4] X) => (float[N, 4] Y)
      <float[1, 4] b = {0, 0, 0, 0}, float[4, 4] V = {1, 0, 0, 2, 0, 1, 0, 0, 0, 3, 1, 0, 0, 0, 0, 1}> {
        c = Identity(b)
        A = Add(X, c)
        B = Tanh(A)
        C = MatMul(B, V)
        Y = Add(C, b)
    }"""
    X = rng.normal(size=(N, 4))
    model = OrtGradientRegressor(onnx.parser.parse_model(text), max_iter=3, random_state=0).fit(X, X)
    assert {name: w.shape for name, w in model.weights_.items()} == {"b": (1, 4), "c": (1, 4), "V": (4, 4)}
    assert not np.array_equal(model.weights_["b"], model.weights_["c"])
    (found,) = run(model.get_trained_onnx(), {"X": X.astype(np.float32)})
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_fifty_steps_as_in_pytorch(name, tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net, shape = networks()[name]
    with torch.no_grad():  # the exporter drops intercepts that are zero
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn(parameter.shape) if parameter.dim() == 1 else 0.0
    X = rng.normal(size=(100, *shape)).astype(np.float32)
    y = rng.integers(0, 3, 100)
    rows = torch.export.Dim("rows")
    program = torch.onnx.export(
        net, (torch.tensor(X[:7]),), dynamo=True, dynamic_shapes=({0: rows},), input_names=["X"], verbose=False
    )
    program.save(tmp_path / "net.onnx")
    model = OrtGradientClassifier(
        tmp_path / "net.onnx", learning_rate=1e-2, batch_size=20, max_iter=10, shuffle=False, tol=0
    ).fit(X, y)

    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    curve = []
    for _ in range(10):
        total = 0.0
        for start in range(0, 100, 20):
            optimizer.zero_grad()
            batch = slice(start, start + 20)
            loss = torch.nn.functional.cross_entropy(net(torch.tensor(X[batch])), torch.tensor(y[batch]))
            loss.backward()
            optimizer.step()
            total += loss.item() / 5
        curve.append(total)
    np.testing.assert_allclose(model.loss_curve_, curve, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:The trainable model was not compared")  # onnxruntime 1.19 does not read its opset
def test_what_onnx_defines_by_a_body_is_trained_through():
    text = """<ir_version: 10, opset_import: ["" : 23]>
    g (float[N, 4, 8] X) => (float[N, 8] Y) <int64[1] axis = {1}> {
        Q = MatMul(X, W)
        A = Attention<q_num_heads = 2, kv_num_heads = 2>(Q, X, X)
        Y = ReduceMean<keepdims = 0>(A, axis)
    }"""
    onx = onnx.parser.parse_model(text)
    onx.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "W"))
    X = rng.normal(size=(N, 4, 8))
    model = OrtGradientRegressor(onx, max_iter=20, learning_rate=0.05, random_state=0).fit(X, X[:, 0])
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    assert "Attention" in {node.op_type for node in model.get_trained_onnx().graph.node}
