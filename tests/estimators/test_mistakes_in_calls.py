"""Mistakes in calls, callbacks and cross-validation, as users of other libraries make them: each has a remedy."""

from __future__ import annotations

import io
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx.parser
import pandas as pd
import pytest
from skl2onnx import to_onnx
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier, VotingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import get_scorer
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    KFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    train_test_split,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, StandardScaler

from onnxtrain import (
    LiveLossCurve,
    LoRA,
    LossCurveDisplay,
    WeightsDisplay,
    add_loss_output,
    average_states,
    clear_caches,
    gradient_rule,
    limit_caches,
    load,
    loss,
    plot_graph,
    random_feed,
    save,
    trainable_weights,
    with_new_head,
)
from onnxtrain import OrtGradientClassifier as C
from onnxtrain import OrtGradientRegressor as R
from onnxtrain.errors import (
    ArgumentTypeError,
    DataError,
    DeviceError,
    ExportError,
    LossError,
    ModelError,
    OptimizerError,
    ParameterError,
    WeightError,
)
from onnxtrain.optim import Adam, Optimizer, Proximal, Schedule
from onnxtrain.rows import from_files
from onnxtrain.testing import check_gradient

X, y = load_diabetes(return_X_y=True)


def trained_by(update):
    """Train with an optimizer of one slot that has this method."""
    mine = type("Mine", (Optimizer,), {"slots": ("mean",), "update": update})
    return R(solver=dataclass(frozen=True)(mine)()).fit(X, y)


IRIS, SPECIES = load_iris(return_X_y=True)
PAIRS = IRIS[50:], SPECIES[50:] - 1
NAMES = np.array(["setosa", "versicolor", "virginica"])[SPECIES]
MLP = MLPRegressor(hidden_layer_sizes=(2,), tol=1e6, random_state=0)
ONE_BY_ONE = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 10] X) => (float[n, 1, 1] Y)
    <float[10, 1] W = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1}, int64[1] one = {1}> { z = MatMul(X, W) Y = Unsqueeze(z, one) }""")
LINE = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 10] X) => (float[n, 1] Y) <float[10, 1] W = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1}> { Y = MatMul(X, W) }""")
RECORDS = np.array([tuple(row) for row in X], dtype=[(f"x{i}", float) for i in range(10)])
WORDS, SPLIT = ["good day", "bad day"] * 10, make_pipeline(TfidfVectorizer(), LogisticRegression())
SOME = RECORDS[["x0", "x2", "x3"]]  # as of numpy.genfromtxt(names=True), without the target


def polars_frame(columns):
    return pytest.importorskip("polars").DataFrame(columns)


def build():
    return Ridge()


def of_lightgbm():
    return pytest.importorskip("lightgbm").early_stopping(10, verbose=False)


def boosted(library, name, **params):
    return getattr(pytest.importorskip(library), name)(n_estimators=2, **params)


def by_label(op, y_true, y_pred):
    return np.array([1.0, 5.0])[y_true] * y_pred


def stops(info):
    raise StopIteration


def first_and_second_derivative(op, y_true, y_pred):
    return y_pred - y_true, y_pred * 0.0 + 1.0


def tuned_by_zip(zips):
    encoded = make_pipeline(OneHotEncoder(handle_unknown="ignore"), Ridge())
    return R(encoded, max_iter=1).fit(pd.DataFrame({"zip": zips}), np.arange(len(zips)))


def of_ones(op, y_true, y_pred):
    return np.ones_like(y_true) * abs(y_true - y_pred)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: R().fit(SOME, y), ArgumentTypeError, "Convert the fields to columns: pandas.DataFrame(X)."),
        (lambda: R(max_iter=-1).fit(X, y), ParameterError, "Got -1 instead. Pass a large number for no limit: tol"),
        (lambda: R(loss=first_and_second_derivative).fit(X, y), LossError, "Return the loss alone: unlike in XGBoost"),
        (lambda: R(loss=of_ones).fit(X, y), LossError, "numpy.ones_like here. Use a number, such as 1.0, for all rows"),
        (
            lambda: R(max_iter=2).fit(X, y, callback=stops),
            ParameterError,
            "StopIteration after epoch 1. To stop, return",
        ),
        (lambda: C(loss=by_label).fit(*PAIRS), LossError, "each label is op.Gather(values, y_true)"),
        (lambda: R(loss="gamma").fit(X, np.where(y < 90, 0, y)), DataError, "zeros and positive values, use loss='tw"),
        (
            lambda: R(max_iter=1).fit(X, y, checkpoint="at_{epoch:02d}-{val_loss:.2f}.onnx"),
            ParameterError,
            "{epoch:02d} is not replaced. The file holds the last state",
        ),
        (
            lambda: R(max_iter=1).fit(X, y, callback=of_lightgbm()),
            ParameterError,
            "reads its own training. Set early_stopping",
        ),
        (
            lambda: C(boosted("xgboost", "XGBClassifier")).fit(IRIS, np.array(["a", "b", "c"])[SPECIES]),
            DataError,
            "XGBClassifier takes the labels 0, 1, ...: pass sklearn.preprocessing.LabelEncoder",
        ),
        (
            lambda: R(boosted("xgboost", "XGBRegressor", early_stopping_rounds=9)).fit(X, y),
            DataError,
            "The given model gets no validation set. Leave out its early stopping, or fit it first",
        ),
        (
            lambda: R(boosted("lightgbm", "LGBMRegressor", early_stopping_round=9, verbose=-1)).fit(X, y),
            DataError,
            "evaluation. The given model gets no validation set. Leave out its early stopping",
        ),
        *(
            (
                lambda name=name: load("model.onnx", **{name: "cpu"}),
                ArgumentTypeError,
                f"unexpected keyword argument {name!r}. device is a parameter of the estimator: load(path).set_params(dev",
            )
            for name in ("device", "map_location")
        ),
        *(
            (
                lambda weights=weights, target=target: C(max_iter=1).fit(IRIS, target, weights),
                DataError,
                "expected (150,)! Pass one weight per row of X, or one per class as class_weight=dict(zip(numpy.unique(y), "
                "weights)) of OrtGradientClassifier.",
            )
            for weights, target in [([1.0, 2.0, 5.0], SPECIES), (np.ones(3), SPECIES.astype(str))]
        ),
        (lambda: C(max_iter=1).fit(IRIS, SPECIES, np.ones(4)), DataError, "(150,)! Pass one weight per row of X."),
        *(
            (
                lambda both=both: R(LINE).fit(X, both),
                DataError,
                "y has 2. y is a list of targets. A fit trains one output of an ONNX model: set output= and pass its t",
            )
            for both in ([y, -y], (y[:, None], y), [y.tolist(), y])
        ),
        (
            lambda: R(LINE).fit(X),
            DataError,
            "A model that learns its own rows, such as an autoencoder, takes fit(X, X).",
        ),
        (lambda: R(max_iter=1).fit(X, y).embed(X), ArgumentTypeError, "lists those of the results: embed(X, '?')."),
        (
            lambda: add_loss_output(LINE, "squared_error", sample_weight="w"),
            LossError,
            "Weights of rows are sample_weight of fit, or weight_name of add_loss_output; weights of classes are",
        ),
        (
            lambda: C(loss_params={"pos_weight": 3}).fit(IRIS, SPECIES),
            LossError,
            "weights of classes are class_weight of OrtGradientClassifier.",
        ),
        (
            lambda: MultiOutputRegressor(R(Ridge().fit(X, np.c_[y, 2 * y]))).fit(X, np.c_[y, 2 * y]),
            DataError,
            "MultiOutputRegressor or RegressorChain passes one target at a time. Leave it out",
        ),
        (
            lambda: gradient_rule("MyRelu", domain="my.domain")(lambda x: x),
            ParameterError,
            "is called as rule(op, node, dy), with the gradient of each output, but <lambda> takes (x)",
        ),
        (
            lambda: average_states([{"coef": np.ones(3)}, {"coef": np.ones(2)}]),
            DataError,
            "Average the states of one exported step, or the weights of estimators that began with the same model.",
        ),
        (
            lambda: R(max_iter=1).fit(X, y).summary().to_frame(),
            AttributeError,
            "Summary has no attribute 'to_frame'. Use pandas.DataFrame(summary.layers).",
        ),
        (
            lambda: VotingClassifier([("c", C(LogisticRegression(max_iter=500).fit(IRIS, SPECIES)))]).fit(
                IRIS[50:], SPECIES[50:]
            ),
            DataError,
            "number the labels 0, 1, ..., but the given model was fitted on the labels [0, 1, 2].",
        ),
        *(
            (
                lambda loss=loss, theirs=theirs: R(loss=loss, loss_params={theirs: 0.9}).fit(X, y),
                LossError,
                f"has no parameter {theirs!r}. Did you mean {ours!r}? Known: {ours}.",
            )
            for loss, theirs, ours in [
                ("huber", "epsilon", "delta"),
                ("huber", "beta", "delta"),
                ("quantile", "quantile", "q"),
                ("quantile", "alpha", "q"),
                ("tweedie", "tweedie_variance_power", "power"),
            ]
        ),
        (
            lambda: C(loss="focal", loss_params={"alpha": 0.25}).fit(IRIS, SPECIES),
            LossError,
            "weights of classes are class_weight of OrtGradientClassifier.",
        ),
        (
            lambda: C().fit(IRIS, pd.DataFrame({"a": ["yes", "no"] * 75, "b": ["no", "no", "yes"] * 50})),
            DataError,
            "For several labels, pass 0 and 1, as (y == 'yes').astype(int). For several multiclass targets, train one "
            "classifier per target: MultiOutputClassifier(OrtGradientClassifier(...)).",
        ),
        (lambda: R(ONE_BY_ONE).fit(X, y), DataError, "the length 1, pass y.reshape(-1, 1, 1)."),
        (
            lambda: R(build).fit(X, y),
            ParameterError,
            "got function. Pass the model that it returns: estimator=build().",
        ),
        (
            lambda: R(max_iter=1).fit(X, y).get_trained_onnx(X[:1]),
            ArgumentTypeError,
            "takes no rows: model.get_trained_onnx().",
        ),
        (lambda: R(loss="r2").fit(X, y), LossError, "It is a score, which scoring='r2' of a search maximizes"),
        (lambda: R(loss="neg_log_loss").fit(X, y), LossError, "a fit minimizes a loss. It is called 'log_loss' here"),
        (
            lambda: C(loss=lambda op, t, p: np.where(t == "spam", p, -p)).fit(*PAIRS),
            LossError,
            "y_true is the index of the class in classes_.",
        ),
        (
            lambda: R(loss="tweedie", loss_params={"power": "1.5"}).fit(X, y),
            LossError,
            "got '1.5'. Pass it without quotes: 1.5.",
        ),
        (
            lambda: R().fit(pd.read_csv(io.StringIO("age;size\n1;2.0\n3;4.0")), [1.0, 2.0]),
            DataError,
            "X has one column, 'age;size', so its file has another separator. Read it with sep=';'",
        ),
        (
            lambda: R().fit(pd.read_csv(io.StringIO("age,size\n1,2.0\n3,4.0"), header=None), [0.0, 1.0, 2.0]),
            DataError,
            "The first row of X holds names, age, size, so its file has a header. Read it with header=0",
        ),
        (
            lambda: R().fit(pd.DataFrame({7: ["one", "two"], 8: ["1", "2"]}), [1.0, 2.0]),
            DataError,
            "X contains strings in 7, 8, but the model takes numbers.",
        ),
        (
            lambda: tuned_by_zip(["06000", "75001"] * 3).predict(pd.DataFrame({"zip": [6000, 75001]})),
            DataError,
            "The column 'zip' contained texts in fit, but has dtype int64. Pass X.astype({'zip': str}) if these "
            "numbers are the texts, and the texts themselves if they are codes of them.",
        ),
        (lambda: with_new_head(LINE, SPECIES), ParameterError, "Pass the number of classes, len(numpy.unique(y))."),
        (
            lambda: R(make_pipeline(StandardScaler(), Ridge()), max_iter=1).fit(X, y).embed(X, "standardscaler"),
            ModelError,
            "It is a step of the pipeline: use to_sklearn()[:1].transform(X). Known: ",
        ),
        (
            lambda: C(SPLIT, max_iter=1).fit(WORDS, [0, 1] * 10).export_training_step("step"),
            ExportError,
            "For a training step, fit an estimator of that model on these rows, as a dense array.",
        ),
        (lambda: R(device="GPU").fit(X, y), DeviceError, "Did you mean 'gpu'?"),
        (lambda: R(device="auto:0").fit(X, y), DeviceError, "Did you mean 'auto'?"),
        (lambda: R(max_iter=1).fit(X, y).embed(X, "?"), ModelError, "The model has no result '?'. Known: "),
        (
            lambda: C().partial_fit(IRIS, SPECIES > 0, np.arange(150) % 2),
            DataError,
            "classes has one entry per row, 150",
        ),
        (
            lambda: C().partial_fit(IRIS, pd.Series(SPECIES), np.ones(150)),
            DataError,
            "Pass weights by name: partial_fit",
        ),
        (
            lambda: C(max_iter=1).fit(IRIS, SPECIES).losses(IRIS, NAMES),
            DataError,
            "y has labels such as 'setosa', but the classes of the model are [0, 1, 2]. Pass labels as in fit; numpy.uni",
        ),
        (lambda: C(max_iter=1).fit(IRIS, SPECIES).losses(IRIS[:90], NAMES[:90]), DataError, "Pass labels as in fit."),
        (lambda: C().fit(NAMES, IRIS), DataError, "as if they were swapped. Call fit(X, y)."),
        (
            lambda: C().fit(from_files([0, 1], lambda i: (NAMES[i::2], IRIS[i::2]))),
            DataError,
            "as if they were swapped. Let read(0) return (X, y).",
        ),
        (
            lambda: C(loss=lambda op, t, p: np.eye(3)[t] - p).fit(IRIS, SPECIES),
            LossError,
            "an indicator matrix of K classes numpy.arange(K) == y_true.",
        ),
        (
            lambda: R(loss="quantile", loss_params={"q": np.array([0.1, 0.9])}).fit(X, y),
            LossError,
            "Pass one number, and fit an estimator for each.",
        ),
        (lambda: R(loss=get_scorer("neg_mean_absolute_error")).fit(X, y), LossError, "Pass loss='absolute_error'."),
        (
            lambda: R(max_iter=1).fit(X, y).get_trained_onnx(Path("tuned.onnx")),
            ArgumentTypeError,
            "Path. Pass a file as path=...",
        ),
        (
            lambda: save(TransformedTargetRegressor(R(max_iter=1), transformer=StandardScaler()).fit(X, y), "a.onnx"),
            ExportError,
            "Pass the one inside, model.regressor_, or save all of it with joblib.dump.",
        ),
        (
            lambda: R(weights_to_train=trainable_weights(LINE)[0]).fit(X, y),
            ParameterError,
            "For example, pass [w.name for w in trainable_weights(model)]; for the last layer, weights_to_train='head'.",
        ),
        (
            lambda: R(make_pipeline(StandardScaler(), MLP), weights_to_train="coefs_[1]").fit(X, y),
            WeightError,
            "The pattern '*coefs_[1]*' matches 1. Known: mlpregressor, ",
        ),
        (lambda: plot_graph(LINE, X), ParameterError, "got ndarray. The graph has no rows: plot_graph(model)."),
        (
            lambda: R(max_iter=1).fit(X, y).gradient(X, wrt=["age", "bmi"]),
            DataError,
            "wrt must be the name of an input, got list. Call gradient(X, wrt='age'), once for each.",
        ),
        (
            lambda: clear_caches("all"),
            ArgumentTypeError,
            "clear_caches: too many positional arguments. It takes no arg",
        ),
        (
            lambda: limit_caches(),
            ArgumentTypeError,
            "missing a required argument: 'n_bytes'. Its arguments are n_bytes.",
        ),
        (
            lambda: random_feed(LINE.graph.input, random_state="x"),
            ParameterError,
            "random_state must be a non-negative integer or None, got 'x'. For example, pass random_state=0.",
        ),
        (
            lambda: with_new_head(LINE, 2, random_state=-5),
            ParameterError,
            "must be a non-negative integer or None, got -5",
        ),
        (
            lambda: check_gradient(LINE, {"X": X[:2]}, random_state=1.5),
            ParameterError,
            "random_state must be a non-negative integer or None, got 1.5",
        ),
        (
            lambda: check_gradient(LINE, {"X": X[:2]}, rtol=-1),
            ParameterError,
            "rtol must be a finite number >= 0, got -1",
        ),
        (lambda: check_gradient(LINE, {"X": X[:2]}, max_entries="4"), ParameterError, "integer, 0 or more, got '4'"),
        (lambda: check_gradient(LINE, {"X": X[:2]}, run=3), ArgumentTypeError, "called as run(model, feeds), got 3"),
        (lambda: check_gradient(LINE, {"X": "rows"}), DataError, "feeds['X'] must be an array of numbers, got 'rows'"),
        (
            lambda: R(loss="quantile", loss_params={0: 0.9}).fit(X, y),
            LossError,
            "The parameters of the loss 'quantile' have names, got 0. For example: {'q': 0.9}.",
        ),
        (
            lambda: R(solver=Proximal(Adam()), l1=0.1, l1_method="proximal").fit(X, y),
            OptimizerError,
            "Use one of solver=Proximal(...) and l1_method='proximal', which mean the same.",
        ),
        (
            lambda: R().fit("rows.parquet"),
            DataError,
            "fit(onnxtrain.rows.from_parquet('rows.parquet', label=...)), because X is a path.",
        ),
        (lambda: LiveLossCurve("."), ParameterError, "path='.' is a folder. Pass the path of a picture in it"),
        (lambda: LiveLossCurve(rate="yes"), ParameterError, "rate must be True, to draw the learning rate as well, or"),
        (lambda: loss("floored", least=3), ParameterError, "got 3. Pass least=lambda: (3, True)."),
        (lambda: Optimizer(), ArgumentTypeError, "Optimizer lacks the method update. Define it in a class derived"),
        (lambda: Schedule(), ArgumentTypeError, "use a class of onnxtrain.optim, such as SGD() or Cosine()."),
        (
            lambda: WeightsDisplay({"a": "abc"}),
            ArgumentTypeError,
            "The weight 'a' must be an array of numbers, got 'abc'",
        ),
        (
            lambda: R(l1_method=None).fit(X, y),
            ParameterError,
            "'proximal' makes weights exactly zero; no penalty is l1=0",
        ),
        (
            lambda: add_loss_output(LINE, class_axis=1),
            LossError,
            "class_axis is for classification losses only, got 1 for the loss 'squared_error'. Leave it out.",
        ),
        (lambda: add_loss_output(LINE, ignore_index="x"), LossError, "only, got 'x' for the loss 'squared_error'"),
        (
            lambda: add_loss_output(LINE, "log", ignore_index=-1.5),
            LossError,
            "ignore_index must be an integer, such as ignore_index=-100, got -1.5.",
        ),
        (
            lambda: WeightsDisplay({"a": [[1], [1, 2]]}),
            ArgumentTypeError,
            "'a' must be an array of numbers, got [[1], [1",
        ),
        (lambda: LossCurveDisplay(["a"]), ArgumentTypeError, "A curve must contain one number per epoch, got ['a']"),
        (
            lambda: LossCurveDisplay.from_estimator(R(max_iter=1).fit(X, y), rate="yes"),
            ParameterError,
            "rate must be True, to draw the learning rate as well, or False, got 'yes'.",
        ),
        (lambda: add_loss_output(LINE, label_name=None), LossError, "label_name must be a non-empty string, got None."),
        (lambda: gradient_rule(["A", "B"], domain="my"), ParameterError, "Pass them one by one: 'A', 'B'."),
        (lambda: trained_by(lambda self, op, w, dw, slots, lr: (w, ())), OptimizerError, "got the weight and 0 slots."),
        (
            lambda: trained_by(lambda self, op, w, dw, slots, lr: (dw, [X[0]])),
            OptimizerError,
            "1 here, got an object of type ndarray. End it with return w, slots, which are results of op.",
        ),
        (
            lambda: trained_by(lambda self, op, w, dw, slots, lr: (op.Sub(w, dw), [dw])),
            OptimizerError,
            "update does not read its slot 'mean'. Compute with its value, one of `slots`, or leave",
        ),
        (
            lambda: trained_by(lambda self, op, w, dw, slots, lr: setattr(self, "t", 1)),
            OptimizerError,
            "update changes self.t, but it runs once for each weight when the graph is built",
        ),
        (lambda: type("Twice", (Optimizer,), {"slots": ("m", "m")}), OptimizerError, "must differ, got ('m', 'm')."),
        (
            lambda: R().fit(X, y, sample_weight=pd.to_timedelta(np.arange(len(y)), unit="s")),
            DataError,
            "sample_weight must contain one number per row, but contains '0 ",
        ),
        (lambda: R().fit(X, y, callback=[print, "stop"]), ParameterError, "after each epoch, got 'stop'. For example"),
        (
            lambda: R().partial_fit(iter([(X, y)])),
            ArgumentTypeError,
            "For rows that come only once: for X, y in batches: model.partial_fit(X, y).",
        ),
        (
            lambda: R(max_iter=1).fit(X, y).predict(row for row in X),
            ArgumentTypeError,
            "X is a generator, and not an array or a frame. If it yields rows, pass list(X); if batches, numpy.con",
        ),
        (
            lambda: plot_graph(GridSearchCV(R(max_iter=1), {"l2": [0, 1]}, cv=2, refit=False).fit(X, y)),
            ArgumentTypeError,
            "got GridSearchCV. A search with refit=False keeps no fitted estimator. Set refit=True.",
        ),
        (
            lambda: save(GridSearchCV(R(max_iter=1), {"l2": [0, 1]}, cv=2, refit=False).fit(X, y), "search.onnx"),
            ExportError,
            "got GridSearchCV. A search with refit=False keeps no fitted estimator. Set refit=True.",
        ),
        (
            lambda: R(Pipeline([])).fit(X, y),
            ParameterError,
            "The pipeline has no steps. Put a regressor into it, which",
        ),
        (lambda: R().fit(X, y, ckpt_path="fit.onnx"), ArgumentTypeError, "fit(X, y, checkpoint=path, resume=True)."),
        (lambda: R(num_iterations=3), ArgumentTypeError, "Did you mean 'max_iter'?"),
        (lambda: C(is_unbalance=True), ArgumentTypeError, "Set class_weight='balanced' of OrtGradientClassifier."),
        (lambda: R(max_iter=1).fit(X, y).summary().as_frame(), AttributeError, "Use pandas.DataFrame(summary.layers)."),
    ],
)
def test_a_mistake_is_an_error_with_a_remedy(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)


def test_fields_become_columns_as_the_message_says():
    tuned = R(make_pipeline(StandardScaler(), Ridge()), max_iter=1).fit(pd.DataFrame(SOME), y)
    assert tuned.feature_names_in_.tolist() == ["x0", "x2", "x3"]


def test_several_labels_of_texts_become_ones_as_the_message_says():
    y = pd.DataFrame({"a": ["yes", "no"] * 75, "b": ["no", "no", "yes"] * 50})
    assert C(max_iter=1).fit(IRIS, (y == "yes").astype(int)).predict(IRIS).shape == (150, 2)


def test_a_value_of_three_axes_is_trained_as_the_message_says():
    column, one_by_one = (R(model, max_iter=3, random_state=0) for model in (LINE, ONE_BY_ONE))
    assert one_by_one.fit(X, y.reshape(-1, 1, 1)).loss_curve_ == pytest.approx(column.fit(X, y).loss_curve_)


@pytest.mark.parametrize("make", [pd.DataFrame, polars_frame])
def test_a_frame_with_a_column_of_the_name_of_the_only_input(make):  # filterwarnings = error
    """Columns X, Y and Z are the input X together."""
    rows = X[:, :3]
    file = to_onnx(Ridge().fit(rows, y), rows[:1].astype(np.float32))
    frame = make(dict(zip("XYZ", rows.T, strict=True)))
    tuned, of_array = (R(file, max_iter=2, random_state=0).fit(given, 2 * y) for given in (frame, rows))
    np.testing.assert_array_equal(tuned.predict(frame), of_array.predict(rows))


def test_a_column_transformer_of_a_column_with_the_name_of_an_input_is_converted():
    frame = pd.DataFrame(X[:, :3], columns=list("XYZ"))
    scaled = make_pipeline(make_column_transformer((StandardScaler(), ["X", "Y"]), remainder="passthrough"), Ridge())
    tuned = R(scaled, max_iter=1).fit(frame, y)
    assert set(tuned.onnx_status_.values()) == {"ONNX"}
    assert tuned.get_trained_onnx().graph.input[0].name == "X"


def test_another_order_of_the_index_of_a_validation_set_is_warned_of():
    frame, target = pd.DataFrame(X), pd.Series(y)
    held_out = {"X_val": frame[300:].sort_values(0), "y_val": target[300:]}
    with pytest.warns(
        UserWarning, match=r"index of y_val has .* in X_val, and 300 in y_val.* y_val.loc\[X_val.index\]"
    ):
        R(max_iter=1).fit(frame[:300], target[:300], **held_out)
    held_out["y_val"] = target.loc[held_out["X_val"].index]
    R(max_iter=1).fit(frame[:300], target[:300], **held_out)  # filterwarnings = error


FITTED = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y)
FOLDS = KFold(3)


@pytest.mark.parametrize("validate", [cross_val_score, cross_validate, cross_val_predict, learning_curve])
@pytest.mark.parametrize("around", [lambda tuned: tuned, lambda tuned: make_pipeline(StandardScaler(), tuned)])
def test_a_fitted_estimator_in_the_folds_of_a_cross_validation_is_warned_of(validate, around):
    with pytest.warns(UserWarning, match="Pipeline is fitted and stays so in each fold. .* it predicts them too well"):
        validate(around(R(FITTED, max_iter=1)), X, y, cv=FOLDS)


def test_a_fitted_estimator_in_the_folds_that_choose_a_threshold_is_warned_of():
    fitted = LogisticRegression().fit(X, y > 140)
    with pytest.warns(UserWarning, match="LogisticRegression is fitted and stays so in each fold"):
        TunedThresholdClassifierCV(C(fitted, max_iter=1), cv=2).fit(X, y > 140)
    FixedThresholdClassifier(C(fitted, max_iter=1)).fit(X, y > 140)  # holds out none; warnings are errors


@pytest.mark.parametrize("model", [clone(FITTED), FrozenEstimator(FITTED)])
def test_what_the_warning_of_seen_folds_says_is_not_warned_of(model):  # filterwarnings = error
    cross_val_score(R(model, max_iter=1), X, y, cv=FOLDS)


def test_a_frozen_estimator_is_trained_like_the_one_inside():
    tuned, frozen = (R(model, max_iter=2, random_state=0).fit(X, 2 * y) for model in (FITTED, FrozenEstimator(FITTED)))
    np.testing.assert_array_equal(tuned.predict(X), frozen.predict(X))


@pytest.mark.parametrize(
    "around",
    [
        lambda tuned: StackingClassifier([("tuned", tuned)], cv=2),
        lambda tuned: CalibratedClassifierCV(tuned, cv=2),
    ],
)
def test_a_fitted_classifier_in_held_out_predictions_is_warned_of(around):
    fitted = LogisticRegression(max_iter=1000).fit(*PAIRS)
    with pytest.warns(UserWarning, match="LogisticRegression is fitted and stays so in each fold"):
        around(C(fitted, max_iter=1)).fit(*PAIRS)
    for model in (clone(fitted), FrozenEstimator(fitted)):
        around(C(model, max_iter=1)).fit(*PAIRS)  # filterwarnings = error


@pytest.mark.parametrize(
    "around", [lambda c: VotingClassifier([("c", c)]), lambda c: StackingClassifier([("c", c)]), BaggingClassifier]
)
@pytest.mark.filterwarnings("ignore:LogisticRegression is fitted and stays so")
def test_an_ensemble_that_numbers_the_labels_of_a_fitted_model_has_a_remedy(around):
    names = np.array(["setosa", "versicolor", "virginica"])[SPECIES]
    fitted = LogisticRegression(max_iter=1000).fit(IRIS, names)
    with pytest.raises(DataError, match="ensembles of scikit-learn number the labels 0, 1, .*LabelEncoder"):
        around(C(fitted, max_iter=1)).fit(IRIS, names)
    numbered = clone(fitted).fit(IRIS, LabelEncoder().fit_transform(names))
    for model in (clone(fitted), numbered):
        assert around(C(model, max_iter=1)).fit(IRIS, names).score(IRIS, names) > 0.9


def test_a_search_or_a_vote_of_fitted_estimators_is_not_warned_of():  # filterwarnings = error
    tuned = R(FITTED, max_iter=1)
    GridSearchCV(tuned, {"l2": [0, 0.1]}, cv=FOLDS).fit(X, 2 * y)
    VotingRegressor([("tuned", tuned)]).fit(X, 2 * y)
    clone(tuned).fit(X, 2 * y)


def test_class_weights_of_the_given_model_are_warned_of_in_a_search():
    weighted = LogisticRegression(class_weight="balanced", max_iter=1000)
    with pytest.warns(UserWarning, match="class_weight='balanced' of LogisticRegression has no effect on the training"):
        GridSearchCV(C(weighted, max_iter=1), {"l2": [0, 0.1]}, cv=2).fit(IRIS, SPECIES)
    same = C(weighted, class_weight="balanced", max_iter=1)
    GridSearchCV(same, {"l2": [0, 0.1]}, cv=2).fit(IRIS, SPECIES)  # filterwarnings = error


def test_a_fitted_model_of_an_unfitted_estimator_predicts_as_the_message_says():
    with pytest.raises(NotFittedError, match="only its Pipeline is. .* with max_iter=0, it stays as it is"):
        R(FITTED).predict(X)
    np.testing.assert_allclose(R(FITTED, max_iter=0).fit(X, y).predict(X), FITTED.predict(X), rtol=1e-5)


def test_the_layers_of_a_summary_become_a_frame_as_the_message_says():
    summary = R(max_iter=1).fit(X, y).summary()
    assert pd.DataFrame(summary.layers).layer.tolist() == ["coef", "intercept"]


def test_a_schedule_that_ended_in_a_loop_of_partial_fit_is_warned_of_once():
    tuned = R(Ridge().fit(X, y), loss="absolute_error", learning_rate="cosine", max_iter=2, random_state=0)
    tuned.partial_fit(X, y).partial_fit(X, y)  # filterwarnings = error
    with pytest.warns(
        UserWarning, match="has ended after max_iter=2 epochs, so partial_fit goes on at .*number of calls"
    ):
        tuned.partial_fit(X, y)
    tuned.partial_fit(X, y)
    np.testing.assert_allclose(tuned.history_.learning_rate[-1], tuned.history_.learning_rate[-2])


def test_the_name_of_a_weight_that_lora_leaves_names_its_factors():
    tuned = R(LINE, weights_to_train=LoRA(rank=1), max_iter=1, random_state=0).fit(X, y)
    with pytest.raises(KeyError, match="LoRA trains its factors, W.lora_A and W.lora_B; get_trained_onnx"):
        tuned.weights_["W"]


def test_a_page_is_known_behind_its_empty_lines(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_text("\n\n\n<!DOCTYPE html>\n<html></html>\n")
    with pytest.raises(ModelError, match="It is a web page .* download the raw file"):
        R(path).fit(X, y)


def test_a_memory_map_that_was_emptied_is_warned_of(tmp_path):
    np.memmap(tmp_path / "X", np.float32, "w+", shape=X.shape)[:] = X
    emptied = np.memmap(tmp_path / "X", np.float32, "w+", shape=X.shape)
    with pytest.warns(UserWarning, match="X is a memory map of zeros. mode='w\\+' .* read it with mode='r'"):
        R(LINE, max_iter=1).fit(emptied, y)
    emptied[:] = X
    R(LINE, max_iter=1).fit(emptied, y)  # filterwarnings = error
    R(LINE, max_iter=1).fit(np.memmap(tmp_path / "X", np.float32, "r", shape=X.shape), y)


def test_a_fit_is_resumed_with_the_rows_that_the_message_says(tmp_path):
    path = tmp_path / "fit.onnx"
    for n_epochs, seed, fitting in [(2, 0, True), (4, 1, False), (4, 0, True)]:
        rows, _, target, _ = train_test_split(X, y, random_state=seed)
        with (
            nullcontext()
            if fitting
            else pytest.raises(DataError, match=r"pass the rows of that fit; train_test_split\(")
        ):
            R(Ridge(), max_iter=n_epochs, random_state=0).fit(rows, target, checkpoint=path, resume=True)


def test_the_training_step_of_a_split_pipeline_as_the_message_says(tmp_path):
    split = C(SPLIT, max_iter=1).fit(WORDS, [0, 1] * 10)
    rows = split.front_.transform(WORDS).toarray()
    C(split.get_trained_onnx(part="tail"), max_iter=0).fit(rows, [0, 1] * 10).export_training_step(tmp_path)
    assert (tmp_path / "step.onnx").exists()


def test_a_lambda_that_stops_a_fit_at_once_is_warned_of():
    with pytest.warns(UserWarning, match="callback returned True after epoch 1, its first, .* result of tqdm's update"):
        R(max_iter=30).fit(X, y, callback=lambda info: info.epoch > 0)
    R(max_iter=30).fit(X, y, callback=lambda info: info.epoch > 1)  # filterwarnings = error
