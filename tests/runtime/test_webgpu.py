"""device="webgpu" beside the CPU: networks and optimizers; on a machine without a GPU a software GPU will do."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from sklearn.datasets import load_diabetes, load_digits, load_iris, make_multilabel_classification
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import DeviceError
from onnxtrain.optim import SGD, Adagrad, Adam, AdamW, RMSprop
from onnxtrain.runtime.device import Device, find_device
from tests.runtime.test_fork import in_a_child


def problem():
    """Return why there is no device to test on, nothing if there is one."""
    try:
        find_device("webgpu")
    except DeviceError as e:
        return str(e)
    return ""


pytestmark = [pytest.mark.webgpu, pytest.mark.skipif(bool(problem()), reason=problem())]

C, R = OrtGradientClassifier, OrtGradientRegressor
DIGITS = tuple(part[:128] for part in load_digits(return_X_y=True))
DIGITS = DIGITS[0] / 16, DIGITS[1]
IRIS = load_iris(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)
DIABETES = StandardScaler().fit_transform(DIABETES[0])[:128], (DIABETES[1][:128] - 150) / 80
TWO = DIABETES[0], np.stack([DIABETES[1], DIABETES[0][:, 2]], axis=1)
LABELS = make_multilabel_classification(100, 8, n_classes=4, random_state=0)
IMAGES = DIGITS[0].reshape(-1, 1, 8, 8).astype(np.float32), DIGITS[1]

HEAD = '<ir_version: 8, opset_import: ["" : 20]> net'
CONVOLUTION = f"""{HEAD} (float[N, 1, 8, 8] image) => (float[N, 10] logits)
    <float[4, 1, 3, 3] filters, float[4] shift, float[36, 10] W, float[10] b, int64[2] flat = {{-1, 36}}>
    {{
        c = Conv(image, filters, shift)
        r = Relu(c)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        f = Reshape(p, flat)
        m = MatMul(f, W)
        logits = Add(m, b)
    }}"""
NORMALIZED = f"""{HEAD} (float[N, 64] X) => (float[N, 10] logits)
    <float[64, 16] V, float[16] scale, float[16] shift, float[16, 10] W, float[10] b>
    {{
        z = MatMul(X, V)
        n = LayerNormalization<axis = -1>(z, scale, shift)
        h = Gelu(n)
        m = MatMul(h, W)
        logits = Add(m, b)
    }}"""


def network(text):
    """Return a network written in ONNX, its weights drawn."""
    rng, proto = np.random.default_rng(0), onnx.parser.parse_model(text)
    for value in proto.graph.value_info:
        w = rng.normal(scale=0.2, size=[d.dim_value for d in value.type.tensor_type.shape.dim]).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(w, value.name))
    del proto.graph.value_info[:]
    return proto


def mlp(kind, rows, **options):
    return kind(hidden_layer_sizes=(12,), tol=10, n_iter_no_change=1, random_state=0, **options).fit(*rows)


#: Ten networks: the class, what is trained, its rows, the parameters.
NETWORKS = {
    "classes": (C, lambda: mlp(MLPClassifier, DIGITS), DIGITS, {"clip_norm": 1.0}),
    "labels": (C, lambda: mlp(MLPClassifier, LABELS), LABELS, {}),
    "tanh": (R, lambda: mlp(MLPRegressor, DIABETES, activation="tanh"), DIABETES, {"l2": 0.01}),
    "logistic": (R, lambda: mlp(MLPRegressor, DIABETES, activation="logistic"), DIABETES, {"loss": "huber"}),
    "two targets": (R, lambda: mlp(MLPRegressor, TWO), TWO, {"l1": 0.01}),
    "two layers": (C, lambda: MLPClassifier((16, 8), tol=10, n_iter_no_change=1, random_state=0), DIGITS, {}),
    "scaled": (C, lambda: make_pipeline(StandardScaler(), PCA(3), LogisticRegression()), IRIS, {"init": "random"}),
    "kernel": (R, SVR, DIABETES, {"loss": "log_cosh"}),
    "convolution": (C, lambda: network(CONVOLUTION), IMAGES, {}),
    "normalized": (C, lambda: network(NORMALIZED), DIGITS, {}),
}
OPTIMIZERS = {
    "sgd": {"solver": SGD()},
    "momentum": {"solver": SGD(momentum=0.9)},
    "nesterov": {"solver": SGD(momentum=0.9, nesterov=True)},
    "adam": {"solver": Adam(epsilon=1e-4)},  # a gradient of a last digit is not a step of the learning rate
    "adamw": {"solver": AdamW(epsilon=1e-4)},
    "rmsprop": {"solver": RMSprop(centered=True, momentum=0.5, epsilon=1e-4)},
    "adagrad": {"solver": Adagrad(epsilon=1e-4)},
    "proximal": {"solver": Adam(epsilon=1e-4), "l1": 1e-3, "l1_method": "proximal"},
}


def trained(name, device, epochs=5, **changes):
    """Return the estimator after 20 steps: five epochs of four, the last of which has fewer rows."""
    kind, make, (X, y), params = NETWORKS[name]
    common = {"learning_rate": 1e-3, "random_state": 0, "batch_size": -(-len(y) // 4) + 1, "tol": 0.0}
    return kind(make(), max_iter=epochs, device=device, **common | params | changes).fit(X, y)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_twenty_steps_are_those_of_the_cpu(name, optimizer):
    found, expected = (trained(name, device, **OPTIMIZERS[optimizer]) for device in ("webgpu", "cpu"))
    assert len(found.loss_curve_) == 5
    np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-5)
    for weight, w in expected.weights_.items():
        np.testing.assert_allclose(found.weights_[weight], w, rtol=0, atol=1e-5 * max(1, np.abs(w).max()))
    X, _ = NETWORKS[name][2]
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"early_stopping": True},
        {"shuffle": False, "learning_rate": "adaptive"},
        {"solver": "lbfgs", "learning_rate": 1e-3, "batch_size": "auto"},
        {"average": True},
    ],
    ids=str,
)
def test_whole_fits(changes):
    found, expected = (trained("tanh", device, epochs=4, **changes) for device in ("webgpu", "cpu"))
    np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-4)
    np.testing.assert_allclose(found.predict(DIABETES[0]), expected.predict(DIABETES[0]), rtol=1e-3, atol=1e-4)
    found.set_params(device="cpu")
    np.testing.assert_allclose(found.predict(DIABETES[0]), expected.predict(DIABETES[0]), rtol=1e-3, atol=1e-4)


def test_sample_weights_and_losses():
    X, y = DIABETES
    weight = np.random.default_rng(0).uniform(0, 2, len(y))
    found, expected = (
        R(mlp(MLPRegressor, DIABETES), max_iter=3, random_state=0, device=device).fit(X, y, weight)
        for device in ("webgpu", "cpu")
    )
    np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-5)
    np.testing.assert_allclose(found.losses(X, y), expected.losses(X, y), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.gradient(X[:5], y[:5]), expected.gradient(X[:5], y[:5]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(3), np.zeros((2, 4))[:, ::2].astype(np.float32)],
    ids=lambda x: f"{x.dtype}{x.shape}",
)
def test_a_buffer_is_read_and_written(array):
    buffer = Device("webgpu").buffer(array)
    np.testing.assert_array_equal(buffer.read(), array)
    buffer.write(array + 1)
    np.testing.assert_array_equal(buffer.read(), array + 1)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_of_a_fork_does_not_wait_for_threads_that_it_has_not():
    X, _ = DIABETES
    model = trained("tanh", "webgpu", epochs=1)
    expected = model.predict(X)

    def predicted():
        with pytest.warns(UserWarning, match="forked from one that has used the device.*The CPU is used instead"):
            return model.predict(X)

    def fitted():
        with pytest.raises(DeviceError, match="forked from one that has used the device") as found:
            trained("tanh", "webgpu", epochs=1)
        return str(found.value)

    np.testing.assert_allclose(in_a_child(predicted), expected, rtol=1e-4, atol=1e-5)
    assert "device='webgpu' needs" in in_a_child(fitted)
    np.testing.assert_array_equal(model.predict(X), expected)


def test_a_software_gpu_is_none():
    hardware = {device.ep_name: device.device.type for device in onnxruntime.get_ep_devices()}
    real = hardware.get("WebGpuExecutionProvider") == onnxruntime.OrtHardwareDeviceType.GPU
    assert (find_device("auto").kind == "webgpu") == real
