"""Bad input gets a clear error of our own family, in time, and loses nothing."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from onnxtrain import LoRA, OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import (
    DataError,
    DeviceError,
    LossError,
    ModelError,
    OnnxTrainError,
    OptimizerError,
    ParameterError,
    WeightError,
)

X, y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)


def model(text):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


NO_WEIGHT = model("g (float[N, 10] X) => (float[N, 1] Y) { Y = ReduceSum(X) }".replace("ReduceSum(X)", "Identity(X)"))
TWO_OUTPUTS = model(
    """g (float[N, 10] X) => (float[N, 1] A, float[N, 1] B)
    <float[10, 1] W = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}> { A = MatMul(X, W)  B = Neg(A) }"""
)
QUANTIZED = model(
    """g (float[N, 10] X) => (float[N, 1] Y)
    <uint8[10, 1] Q = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, float scale = {0.5}> {
        q, s, z = DynamicQuantizeLinear(X)
        m = MatMulInteger(q, Q, z)
        f = Cast <to = 1> (m)
        t = Mul(s, scale)
        Y = Mul(f, t)
    }"""
)
APART = model(
    """g (float[N, 10] X) => (float[N, 1] Y)
    <float[10, 1] W = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, float[1] V = {1}> {
        A = MatMul(X, W)
        S = Sign(V)
        Y = Add(A, S)
    }"""
)

PARAMETERS = [
    (dict(loss="sqared_error"), LossError, "Unknown loss 'sqared_error'. Did you mean 'squared_error'"),
    (dict(loss="huber", loss_params={"epsilon": 1}), LossError, "epsilon"),
    (dict(loss="huber", loss_params={"delta": -1.0}), LossError, "delta"),
    (dict(loss="log"), LossError, "The loss 'log' is for classes"),
    (dict(solver="adamm"), OptimizerError, "Unknown solver 'adamm'. Did you mean 'adam'"),
    (dict(learning_rate="adptive"), OptimizerError, "Did you mean 'adaptive'"),
    (dict(learning_rate=-1.0), OptimizerError, "learning"),
    (dict(l1=-1.0), ParameterError, "The 'l1' parameter"),
    (dict(batch_size=0), ParameterError, "The 'batch_size' parameter"),
    (dict(dtype="float8"), ParameterError, "The 'dtype' parameter"),
    (dict(init="zeros"), ParameterError, "The 'init' parameter"),
    (dict(clip_norm=0.0), ParameterError, "The 'clip_norm' parameter"),
    (dict(device="tpu"), DeviceError, "Unknown device 'tpu'. Known: 'cpu', 'cuda'"),
    (dict(weights_to_train="coeff"), WeightError, "Did you mean 'coef'"),
    (dict(weights_to_train=["coef", "bias"]), WeightError, "'bias' is neither a weight that the output"),
    (dict(weights_to_train=[LoRA()]), ParameterError, "in a list. Pass it alone, weights_to_train=LoRA"),
    (
        dict(weights_to_train=["coef", 1]),
        ParameterError,
        "must contain names, patterns or steps, got 1.* w in trainable_weights",
    ),
    (dict(weights_to_train=[]), WeightError, "There is no weight to train"),
    (
        dict(estimator=QUANTIZED),
        WeightError,
        "There is no weight to train: weights of a dynamically quantized model are integers. Quantize the original model in the QDQ",
    ),
    (dict(penalty={"coeff": 1.0}), WeightError, "The penalty is on 'coeff', which is not trained. Did you mean 'coef'"),
    (dict(penalty={"coef": -1.0}), LossError, "must be a finite number >= 0"),
    (dict(penalty={"coef": {"l3": 1.0}}), LossError, "l3"),
    (
        dict(estimator=LinearRegression),
        ParameterError,
        r"estimator must be an instance, got the class LinearRegression",
    ),
    (dict(estimator=3), ParameterError, "estimator must be a scikit-learn estimator, an onnx.ModelProto"),
    (dict(estimator="nowhere.onnx"), ModelError, "There is no file 'nowhere.onnx'"),
    (dict(estimator=b"no model"), ModelError, "cannot be read as an ONNX model"),
    (dict(estimator=TWO_OUTPUTS), ModelError, "several floating-point outputs: A: FLOAT"),
    (dict(estimator=TWO_OUTPUTS, output="C"), ModelError, "C"),
    (dict(estimator=NO_WEIGHT), WeightError, "no weight between its inputs and its output 'Y'"),
    (
        dict(estimator=APART, weights_to_train=["V"]),
        WeightError,
        "'V' is neither a weight that the output 'Y' depends on",
    ),
]


@pytest.mark.parametrize("params, error, message", PARAMETERS, ids=lambda p: str(p)[:40])
def test_parameters(params, error, message):
    assert issubclass(error, OnnxTrainError)
    with pytest.raises(error, match=message.replace("(", r"\(")):
        OrtGradientRegressor(**params).fit(X, y)


HALF_QUANTIZED = model(
    """g (float[N, 10] X) => (float[N, 1] Y)
    <uint8[1, 10] Q = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, float scale = {0.5}, float[1] b = {0}> {
        R = Transpose <perm = [1, 0]> (Q)
        q, s, z = DynamicQuantizeLinear(X)
        m = MatMulInteger(q, R, z)
        f = Cast <to = 1> (m)
        t = Mul(s, scale)
        p = Mul(f, t)
        Y = Add(p, b)
    }"""
)


def test_quantized_weights_beside_others():
    with pytest.warns(UserWarning, match=r"The model has quantized weights: 1 \(Q\).* Train the floating-point model"):
        ours = OrtGradientRegressor(HALF_QUANTIZED, max_iter=2).fit(X, y)
    ours.partial_fit(X, y)
    assert list(ours.weights_) == ["b"]
    OrtGradientRegressor(HALF_QUANTIZED, max_iter=2, weights_to_train=["b"]).fit(X, y)  # they alone are meant


INTEGERS_SCALED = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]> g (float[N,4] X) => (float[N,1] Y)
    <int8[4,1] Q = {1, 2, 3, 4}, float[1] zero = {1}, float[1] scale = {0.5}, float[1] b = {0}> {
        f = Cast <to = 1> (Q)
        w = Sub(f, zero)
        scaled = Mul(w, scale)
        m = MatMul(X, scaled)
        Y = Add(m, b)
    }"""
)


def test_integer_weights_that_are_scaled_before_a_product_are_named():
    with pytest.warns(UserWarning, match=r"The model has quantized weights: 1 \(Q\).* Train the floating-point model"):
        OrtGradientRegressor(INTEGERS_SCALED, max_iter=2).fit(X[:, :4], y)


def test_an_integer_mask_of_weights_is_no_weight():
    masked = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[N,4] X) => (float[N,1] Y)
        <float[4,1] W = {1, 2, 3, 4}, uint8[4,1] mask = {1, 0, 1, 1}> {
            f = Cast <to = 1> (mask)
            w = Mul(W, f)
            Y = MatMul(X, w)
        }"""
    )
    assert list(OrtGradientRegressor(masked, max_iter=2).fit(X[:, :4], y).weights_) == ["W"]  # warnings are errors


def test_no_gpu_is_an_error_before_any_work():
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime was built for GPUs")
    with pytest.raises(
        DeviceError, match=r"CUDAExecutionProvider .*has only .*CPUExecutionProvider.*onnxruntime-gpu\[cuda,cudnn\]"
    ):
        OrtGradientRegressor(device="cuda").fit(X, y)


def spoiled(array, value):
    array = np.array(array, dtype=float)
    array.flat[3] = value
    return array


ROWS = [
    (spoiled(X, np.nan), y, "NaN"),
    (spoiled(X, np.inf), y, "infinity"),
    (X, spoiled(y, np.nan), "NaN"),
    (X, spoiled(y, np.inf), "infinity"),
    (X[:-1], y, "inconsistent numbers of samples"),
    (X[:, 0], y, "Expected 2D array"),
    (X[:0], y[:0], "0 sample"),
]


@pytest.mark.parametrize("rows, target, message", ROWS, ids=[row[-1] for row in ROWS])
def test_rows(rows, target, message):
    with pytest.raises(DataError, match=message):
        OrtGradientRegressor().fit(rows, target)


FITTED = LinearRegression().fit(X, y)


@pytest.mark.parametrize(
    "X, y, message",
    [
        (X[:, :4], y, "X has 4 features, but LinearRegression was fitted on 10"),
        (X[:, :4], y, "X has 4 features"),
        (X, np.stack([y, y], axis=1), "y has 2 columns, but the model has 1 output."),
    ],
)
def test_rows_that_do_not_fit_the_model(X, y, message):
    with pytest.raises(ValueError, match=message):
        OrtGradientRegressor(FITTED).fit(X, y)


@pytest.mark.parametrize(
    "weight, message",
    [
        (np.zeros(len(X)), "at least one non-zero"),
        (np.full(len(X), -1.0), "Negative values"),
        (np.ones(3), "sample_weight"),
        (spoiled(np.ones(len(X)), np.nan), "NaN"),
        (1e-46 * np.arange(len(X)), "outside the range of float32. Divide all weights by a constant"),
        (1e37 * np.arange(len(X)), "outside the range of float32"),
    ],
)
def test_sample_weights(weight, message):
    with pytest.raises(DataError, match=message):
        OrtGradientRegressor(FITTED).fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("weight", [-1, np.nan, np.inf, "a"])
def test_weights_of_classes_are_finite_and_not_negative(weight):
    """A loss of negative weight has no minimum."""
    with pytest.raises(ParameterError, match=rf"non-negative numbers, got {weight!r} for 1"):
        OrtGradientClassifier(class_weight={0: 1, 1: weight}).fit(IRIS, SPECIES)


def test_weights_of_classes_that_are_all_zero():
    with pytest.raises(DataError, match="at least one non-zero"):
        OrtGradientClassifier(LogisticRegression(max_iter=500).fit(IRIS, SPECIES), class_weight={0: 0, 1: 0, 2: 0}).fit(
            IRIS, SPECIES
        )


def test_equal_sample_weights_may_be_tiny():
    weighted, plain = (OrtGradientRegressor(FITTED, max_iter=2, random_state=0) for _ in range(2))
    weighted.fit(X, y, sample_weight=np.full(len(X), 1e-50))
    assert weighted.loss_curve_ == plain.fit(X, y).loss_curve_


def test_classes_the_model_does_not_know():
    fitted = LogisticRegression(max_iter=500).fit(IRIS, SPECIES)
    with pytest.raises(DataError, match=r"labels that the model does not know: 7"):
        OrtGradientClassifier(fitted).fit(IRIS, np.where(SPECIES == 2, 7, SPECIES))


def test_a_model_with_other_classes():
    onx = model("g (float[N, 4] X) => (float[N, 2] Y) <float[4, 2] W = {1, 1, 1, 1, 1, 1, 1, 1}> { Y = MatMul(X, W) }")
    with pytest.raises(DataError, match="The model has 2 classes, but y has 3: 0, 1, 2"):
        OrtGradientClassifier(onx).fit(IRIS, SPECIES)


def test_validation_sets_are_whole():
    with pytest.raises(DataError, match="X_val and y_val go together"):
        OrtGradientRegressor().fit(X, y, X_val=X)
    with pytest.raises(DataError, match="X_val and y_val go together, but X_val is missing"):
        OrtGradientRegressor().fit(X, y, sample_weight_val=np.ones(len(y)))


def test_no_probabilities_without_a_likelihood():
    model = OrtGradientClassifier(loss="hinge", estimator=None, max_iter=1)
    from sklearn.svm import LinearSVC

    model = OrtGradientClassifier(LinearSVC(), loss="hinge", max_iter=1).fit(IRIS, SPECIES)
    assert not hasattr(model, "predict_proba")
    assert model.decision_function(IRIS).shape == (150, 3)


def test_an_error_in_a_second_fit_keeps_the_first():
    model = OrtGradientRegressor(max_iter=1).fit(X, y)
    before = model.predict(X)
    with pytest.raises(DataError):
        model.fit(spoiled(X, np.nan), y)
    with pytest.raises(LossError):
        model.set_params(loss="hubr").fit(X, y)
    np.testing.assert_array_equal(model.predict(X), before)


LABELS = [
    ("poisson", {}, -1.0, "The loss 'poisson' requires y >= 0, got -1"),
    ("gamma", {}, 0.0, "The loss 'gamma' requires y > 0, got 0"),
    ("tweedie", {}, -1.0, "The loss 'tweedie' requires y >= 0, got -1"),
    ("tweedie", {"power": 2.5}, 0.0, "The loss 'tweedie' requires y > 0, got 0"),
    ("squared_error", {}, "low", "y must be numeric, got the string '"),
]


@pytest.mark.parametrize("loss, loss_params, label, message", LABELS)
def test_labels_without_a_minimum(loss, loss_params, label, message):
    with pytest.raises(DataError, match=message):
        OrtGradientRegressor(loss=loss, loss_params=loss_params).fit(X[:3], [1, 2, label])


@pytest.mark.parametrize("loss, power, label", [("poisson", None, 0.0), ("tweedie", 1.5, 0.0), ("tweedie", -1.0, -1.0)])
def test_labels_with_a_minimum(loss, power, label):
    params = {"power": power} if power else {}
    fitted = OrtGradientRegressor(PoissonRegressor(), loss=loss, loss_params=params, max_iter=1).fit(X, y)
    assert np.isfinite(fitted.losses(X, np.full(len(X), label))).all()


@pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie"])
def test_predictions_that_are_no_means_are_warned_of(loss):
    means = np.abs(X[:, 2]) + 0.1
    line = LinearRegression().fit(X[:, :1], X[:, 0])  # half of its predictions are negative
    words = (
        rf"loss='{loss}' interprets the output 'variable' as a mean, .* negative in \d+ of \d+ rows.*PoissonRegressor"
    )
    with pytest.warns(UserWarning, match=words):
        OrtGradientRegressor(line, loss=loss, max_iter=1).fit(X[:, :1], means)
    line = LinearRegression().fit(X, means)
    assert line.predict(X).min() > 0
    OrtGradientRegressor(line, loss=loss, max_iter=1).fit(X, means)  # filterwarnings = error


def test_a_wrong_parameter_is_refused_each_time_whatever_its_equal_was():
    OrtGradientRegressor(max_iter=2).fit(X, y)
    for _ in range(2):
        with pytest.raises(ParameterError, match="The 'max_iter' parameter of OrtGradientRegressor"):
            OrtGradientRegressor(max_iter=2.0).fit(X, y)


def _labels_of_positions():
    onx = model("g (float[N, T, 1] X) => (float[N, T, 3] Y) <float[1, 3] W = {1, 2, 3}> { Y = MatMul(X, W) }")
    labels = np.array([[0, 1, -1], [1, 0, -1]])
    OrtGradientClassifier(onx, output_is="scores", max_iter=1).fit(np.ones((2, 3, 1), np.float32), labels)


ROUNDED = np.column_stack([1e9 + np.arange(20), np.arange(20)])
#: Something done by a user, and the first words and the class of the warning.
WARNINGS = {
    "fit": (
        lambda: OrtGradientRegressor(DecisionTreeRegressor(), max_iter=1).fit(ROUNDED, ROUNDED[:, 1]),
        "float32 rounds", UserWarning,
    ),
    "partial_fit": (
        lambda: OrtGradientRegressor(DecisionTreeRegressor()).partial_fit(ROUNDED, ROUNDED[:, 1]),
        "float32 rounds", UserWarning,
    ),
    "labels of positions": (_labels_of_positions, "y has the label -1", UserWarning),
    "a pipeline": (
        lambda: make_pipeline(StandardScaler(), OrtGradientRegressor(KNeighborsRegressor(), max_iter=1)).fit(X, y),
        "KNeighborsRegressor averages", UserWarning,
    ),
    "a search": (
        lambda: GridSearchCV(OrtGradientRegressor(init="random", max_iter=12), {"l2": [0.1]}).fit(X, y),
        "max_iter=12 was reached", ConvergenceWarning,
    ),
}  # fmt: skip


@pytest.mark.parametrize("call, words, category", WARNINGS.values(), ids=WARNINGS)
def test_a_warning_names_the_line_of_the_user(call, words, category):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    (filename,) = {w.filename for w in caught if str(w.message).startswith(words) and w.category is category}
    assert filename == __file__


def test_a_warning_in_a_worker_names_the_line_of_scikit_learn():
    search = GridSearchCV(OrtGradientRegressor(init="random", max_iter=12), {"l2": [0.1]}, cv=2, refit=False)
    with warnings.catch_warnings(record=True) as caught, ThreadPoolExecutor(1) as worker:  # two would race for filters
        warnings.simplefilter("always")
        worker.submit(search.fit, X, y).result()
    places = {w.filename for w in caught if w.category is ConvergenceWarning}
    assert places
    assert all("sklearn" in place for place in places)
