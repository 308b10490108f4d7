"""Mistakes with ONNX files of other tools, memory maps, states and optimizers of one's own, and the answers."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import pytest
from onnx import helper, numpy_helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import StringTensorType
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from onnxtrain import (
    DerivativeOptions,
    OrtGradientClassifier,
    OrtGradientForwardBackward,
    OrtGradientRegressor,
    add_loss_output,
    converter,
    gradient_rule,
    onnx_derivative,
    penalty_loss_onnx,
    trainable_weights,
    with_new_head,
)
from onnxtrain.convert.custom import CONVERTERS
from onnxtrain.errors import (
    ArgumentTypeError,
    ConversionError,
    DataError,
    GradientError,
    LossError,
    ModelError,
    OptimizerError,
    ParameterError,
    WeightError,
)
from onnxtrain.optim import Optimizer
from onnxtrain.rows import from_dask, from_files

R = OrtGradientRegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(20, 3))
y = X @ [1.0, -2.0, 0.5]


def built(nodes, opset, *weights):
    """Return a model of onnx.helper from X (n, 3) to Y (n, 1)."""
    ends = [helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("X", 3), ("Y", 1))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(w, name) for name, w in weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


LINE = built([helper.make_node("MatMul", ["X", "W"], ["Y"])], 21, ("W", np.ones((3, 1), np.float32)))

#: A line whose intercept is an input.
LINE_OF_TWO = built(
    [helper.make_node("MatMul", ["X", "W"], ["h"]), helper.make_node("Add", ["h", "b"], ["Y"])],
    21,
    ("W", np.ones((3, 1), np.float32)),
)
LINE_OF_TWO.graph.input.append(helper.make_tensor_value_info("b", 1, ["n", 1]))


def without_input():
    """Return a model without inputs."""
    weight = ("X", np.ones((2, 3), np.float32))
    onx = built([helper.make_node("MatMul", ["X", "W"], ["Y"])], 21, weight, ("W", np.ones((3, 1), np.float32)))
    del onx.graph.input[:]
    return onx


#: A network as torch.export writes it: the names of weights begin with those of the modules.
NETWORK = built(
    [
        helper.make_node("Gemm", ["X", "body.weight", "body.bias"], ["linear"]),
        helper.make_node("Relu", ["linear"], ["relu"]),
        helper.make_node("MatMul", ["relu", "fc.weight"], ["Y"]),
    ],
    21,
    ("body.weight", np.float32([[1, 2], [3, 4], [5, 6]])),
    ("body.bias", np.float32([0, 1])),
    ("fc.weight", np.float32([[1], [-1]])),
)


# ------------------------------------------------------------ modules of PyTorch


@pytest.mark.parametrize("name, attribute", [("OptimizedModule", "_orig_mod"), ("DataParallel", "module")])
def test_a_module_inside_another_is_exported(name, attribute):
    """torch.onnx.export refuses what torch.compile and torch.nn.DataParallel return."""
    inner = type("Net", (), {"__module__": "torch.nn"})()
    outer = type(name, (), {"__module__": "torch.nn", attribute: inner})()
    with pytest.raises(ParameterError, match=rf"\n    model = model.{attribute}\n    torch.onnx.export\(model.eval"):
        R(outer).fit(X, y)


# --------------------------------------------------- nodes that are written for another opset

#: Nodes, the declared opset, and that for which the nodes are written.
OPSETS = {
    "an attribute that became an input": (
        [
            helper.make_node("MatMul", ["X", "W"], ["h"]),
            helper.make_node("ReduceSum", ["h"], ["Y"], axes=[1], keepdims=1),
        ],
        21,
        12,
    ),
    "a missing input": (
        [helper.make_node("Unsqueeze", ["X"], ["h"], axes=[0]), helper.make_node("MatMul", ["h", "W"], ["Y"])],
        21,
        12,
    ),
    "an input that was an attribute": (
        [helper.make_node("Clip", ["X", "low"], ["h"]), helper.make_node("MatMul", ["h", "W"], ["Y"])],
        8,
        11,
    ),
}


@pytest.mark.parametrize("name", OPSETS)
def test_a_node_for_another_opset(name):
    nodes, declared, written = OPSETS[name]
    weights = [("W", np.ones((3, 1), np.float32)), ("low", np.float32(0))]
    with pytest.raises(ModelError, match=rf"It is written for opset {written}.*make_opsetid\('', {written}\)"):
        R(built(nodes, declared, *weights)).fit(X, y)
    if name != "a missing input":  # its output has three axes
        assert R(built(nodes, written, *weights), max_iter=1).fit(X, y).n_iter_ == 1


def test_an_attribute_of_no_opset():
    with pytest.raises(ModelError, match="unknown attribute 'slope'. Known: none.$"):
        R(built([helper.make_node("Relu", ["X"], ["Y"], slope=3.0)], 21)).fit(X, y)


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_weights_of_another_type(dtype):
    onx = built([helper.make_node("MatMul", ["X", "W"], ["Y"])], 21, ("W", np.ones((3, 1), dtype)))
    with pytest.raises(ModelError, match=r"must have one type. Store arrays of numpy as float32, .*astype"):
        R(onx).fit(X, y)


@pytest.mark.parametrize("producer", ["", "pytorch"])
def test_weights_of_another_type_in_front_of_others(producer):
    """The type of the product is that of its first operand, so that only onnxruntime refuses the node."""
    nodes = [helper.make_node("MatMul", ["X", "weight"], ["h"]), helper.make_node("Add", ["h", "bias"], ["Y"])]
    onx = built(nodes, 21, ("weight", np.ones((3, 1))), ("bias", np.ones(1, np.float32)))
    onx.producer_name = producer
    with pytest.raises(ModelError, match=r"must have one type. Store arrays of numpy as float32, .*astype"):
        R(onx).fit(X, y)


# --------------------------------------------------------------------------- names


def without_opset(*domains):
    """Return a model that does not declare the opsets of these domains."""
    nodes = [
        helper.make_node("Scaler", ["X"], ["h"], domain="ai.onnx.ml", offset=[0.0], scale=[2.0]),
        helper.make_node("MatMul", ["h", "W"], ["Y"]),
    ]
    onx = built(nodes, 21, ("W", np.ones((3, 1), np.float32)))
    declared = {"": 21, "ai.onnx.ml": 3}
    del onx.opset_import[:]
    onx.opset_import.extend(helper.make_opsetid(d, version) for d, version in declared.items() if d not in domains)
    return onx


CALLS = {
    **{
        f"no opset of {domains}": (
            lambda domains=domains: R(without_opset(*domains)).fit(X, y),
            ModelError,
            "Declare the domain of each operator, for example onnx.helper.make_model(graph, opset_imports=[onnx.helper.",
        )
        for domains in [("ai.onnx.ml",), ("", "ai.onnx.ml")]
    },
    "an operator in other letters": (
        lambda: R(built([helper.make_node("Matmul", ["X", "W"], ["Y"])], 17, ("W", np.ones((3, 1), np.float32)))).fit(
            X, y
        ),
        ModelError,
        "ONNX has no operator Matmul (node ''), so the file is not valid. Did you mean 'MatMul'?",
    ),
    "embed a module": (
        lambda: R(NETWORK, max_iter=0).fit(X, y).embed(X, "body"),
        ModelError,
        "The model has no result 'body'. The layer with these weights returns 'linear'. Known: ",
    ),
    "embed an input": (
        lambda: R(NETWORK, max_iter=0).fit(X, y).embed(X, "X"),
        ModelError,
        "The model has no result 'X'. Known: ",
    ),
    "features of a module": (
        lambda: R(NETWORK, head="new", features="body").fit(X, y),
        ModelError,
        "The model has no value 'body'. The layer with these weights returns 'linear'.",
    ),
    "an input among the weights": (
        lambda: onnx_derivative(LINE, weights=["X"]),
        WeightError,
        "'X' is an input. Pass its name as inputs=['X'].",
    ),
    "a weight among the inputs": (
        lambda: onnx_derivative(LINE, inputs=["W"]),
        WeightError,
        "'W' is an initializer. Pass its name as weights=['W'].",
    ),
    "a penalty on a linear operator": (
        lambda: add_loss_output(to_onnx(LinearRegression().fit(X, y), X[:1].astype(np.float32)), penalty={"coef": 1}),
        LossError,
        "Known: X. Its weights are in LinearRegressor, which OrtGradientRegressor and OrtGradientClassifier can train. "
        "Use skl2onnx.to_onnx(model, X, black_op={'LinearRegressor'})",
    ),
    "a penalty on an array": (
        lambda: penalty_loss_onnx(np.ones((3, 1)), np.float32, l2=1.0),
        ArgumentTypeError,
        "name must be the name of the weight, a string, got ndarray.",
    ),
    "a renamed weight": (
        lambda: R(built([helper.make_node("MatMul", ["X", "W"], ["Y"])], 21, ("V", np.ones((3, 1), np.float32)))).fit(
            X, y
        ),
        ModelError,
        "reads 'W', which no node computes. Add an initializer or an input of this name, or correct the name in the node.",
    ),
    "no input": (lambda: R(without_input()).fit(X, y), ModelError, "The model has no input for rows."),
    "a missing state": (
        lambda: R(LINE_OF_TWO).fit({"X": X}, y),
        DataError,
        "Add it to the others: X. A value for all rows is inputs={'b': 0}, a parameter.",
    ),
    "the path as model_path": (
        lambda: R(model_path="net.onnx"),
        ArgumentTypeError,
        "has no parameter 'model_path'. Did you mean 'estimator'?",
    ),
    "options of a session": (
        lambda: OrtGradientForwardBackward(LINE, sess_options={"intra_op_num_threads": 1}),
        ArgumentTypeError,
        "sess_options must be onnxruntime.SessionOptions, got {'intra_op_num_threads': 1} of type dict. Make them",
    ),
    "options of a run": (
        lambda: OrtGradientForwardBackward(LINE, run_options={"log_severity_level": 3}),
        ArgumentTypeError,
        "run_options must be onnxruntime.RunOptions",
    ),
    "options of a provider": (
        lambda: OrtGradientForwardBackward(LINE, provider_options={"device_id": 0}),
        ArgumentTypeError,
        "Pass [{'device_id': 0}].",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_answer_says_what_was_found_and_what_to_do(name):
    call, error, message = CALLS[name]
    with pytest.raises(error) as e:
        call()
    assert message in str(e.value)


def test_the_remedies_for_names():
    model = R(NETWORK, max_iter=0).fit(X, y)
    assert model.embed(X, "linear").shape == (20, 2)
    assert R(NETWORK, head="new", features="linear", max_iter=1).fit(X, y).n_iter_ == 1
    assert [o.name for o in onnx_derivative(LINE, inputs=["X"], weights=["W"]).graph.output] == ["X_grad", "W_grad"]
    assert R(LINE_OF_TWO, inputs={"b": 0}, max_iter=1).fit({"X": X}, y).n_iter_ == 1
    assert onnx_derivative(add_loss_output(LINE), options=DerivativeOptions.Loss, loss="loss", label="label")
    assert OrtGradientForwardBackward(LINE, input_names="X", output_names="Y").output_names == ["Y"]


# --------------------------------------------------------- rules and converters


def ruled(name, rule):
    """Return the derivative of a model with an operator of a domain of its own, whose rule is `rule`."""
    gradient_rule(name, domain="mistakes")(rule)
    nodes = [helper.make_node("MatMul", ["X", "W"], ["h"]), helper.make_node(name, ["h"], ["Y"], domain="mistakes")]
    onx = built(nodes, 21, ("W", np.ones((3, 1), np.float32)))
    onx.opset_import.append(helper.make_opsetid("mistakes", 1))
    return onnx_derivative(onx)


def test_a_rule_without_return():
    def forgotten(op, node, dy):
        op.Mul(dy, 2.0)

    with pytest.raises(GradientError, match="returned nothing. End it with return and the gradient of each operand."):
        ruled("Forgotten", forgotten)


def test_a_rule_of_numpy():
    def of_numpy(op, node, dy):
        return dy * np.sign(node.inputs[0])

    with pytest.raises(GradientError, match=r"A rule computes with op, such as op.Mul\(dy, 2.0\), and not with numpy"):
        ruled("OfNumpy", of_numpy)


class Own(RegressorMixin, BaseEstimator):
    """A linear model of one's own."""

    def fit(self, X, y):
        """Solve the least squares."""
        self.n_features_in_ = X.shape[1]
        self.coef_ = np.linalg.lstsq(X, y, rcond=None)[0]
        return self


def test_a_converter_of_other_arguments():
    with pytest.raises(
        ParameterError, match=r"is called with \(op, estimator, X\), but takes other arguments: too many"
    ):
        converter(Own)(lambda estimator, X: X)


def test_a_converter_that_returns_an_array():
    converter(Own)(lambda op, estimator, X: estimator.coef_)
    try:
        with pytest.raises(ConversionError, match=r"must return a result of op, such as op.MatMul\(.*, got ndarray"):
            R(Own().fit(X, y)).fit(X, y)
    finally:
        CONVERTERS.pop(Own)


# ------------------------------------------------------------------------- rows


def test_a_reader_that_is_a_generator():
    def read(part):
        yield X, y

    with pytest.raises(
        DataError, match=r"read\(0\) must return \(X, y\) .*, got a generator. Return the rows .* at once"
    ):
        R().fit(from_files([0, 1], read))
    halves = from_files([(0, 0), (0, 1)], lambda part: (X[part[1] :: 2], y[part[1] :: 2]))
    assert R(max_iter=1).fit(halves).n_iter_ == 1


@pytest.mark.parametrize(
    "of, remedy",
    [
        (lambda array, frame: (frame, "5"), r"X.drop\(columns='5'\), y=X\['5'\]"),
        (lambda array, frame: (array, y), r"Pass dask.array.from_array\(y, chunks=X.chunks\[0\]\)."),
        (lambda array, frame: (X, y), r"Pass rows in memory to fit itself: fit\(X, y\)."),
    ],
)
def test_rows_of_dask_with_other_targets(of, remedy):
    array, frames = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    frame = frames.from_pandas(pd.DataFrame(np.c_[X, X]).rename(columns=str), npartitions=2)
    with pytest.raises(ArgumentTypeError, match=remedy):
        from_dask(*of(array.from_array(X, chunks=(9, 3)), frame))
    chunked = array.from_array(X, chunks=(9, 3))
    assert len(from_dask(chunked, array.from_array(y, chunks=chunked.chunks[0]))) == 3


def test_the_names_of_weights_of_text_columns():
    frame = pd.DataFrame({"town": ["Ulm", "Bern"] * 10})
    model = make_pipeline(OneHotEncoder(), Ridge()).fit(frame, y)
    with pytest.raises(
        ConversionError, match=r"a row of zeros is converted. .* pass rows: trainable_weights\(model, X\)"
    ):
        trainable_weights(model)
    assert [w.name for w in trainable_weights(model, frame)] == ["ridge.coef", "ridge.intercept"]


def test_embed_a_step_that_scikit_learn_runs():
    texts = ["good day", "bad day", "good", "bad"] * 5
    model = R(make_pipeline(TfidfVectorizer(), Ridge()), max_iter=0).fit(texts, y)
    with pytest.raises(ModelError, match=r"It is a step of the pipeline: use to_sklearn\(\)\[:1\].transform\(X\)."):
        model.embed(texts, "tfidfvectorizer")
    assert model.to_sklearn()[:1].transform(texts).shape == (20, 3)


def test_labels_of_several_names():
    onx = built([helper.make_node("MatMul", ["X", "W"], ["Y"])], 21, ("W", np.ones((3, 3), np.float32)))
    onx.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 3
    names = np.array(["a,b", "c", "", "a", "b,c"] * 4)
    with pytest.warns(UserWarning, match="looks like a missing label"), pytest.raises(DataError) as e:
        OrtGradientClassifier(onx).fit(X, names)
    assert "MultiLabelBinarizer().fit_transform([label.split(',') for label in y])" in str(e.value)
    with pytest.raises(DataError, match="Set head='new'"):
        OrtGradientClassifier(onx).fit(X, np.array(["a", "b", "c", "d"] * 5))


def test_color_images_for_a_network_of_gray_images():
    nodes = [helper.make_node("Flatten", ["X"], ["h"]), helper.make_node("MatMul", ["h", "W"], ["Y"])]
    onx = built(nodes, 21, ("W", np.ones((4, 1), np.float32)))
    onx.graph.input[0].CopyFrom(helper.make_tensor_value_info("X", 1, ["n", 1, 2, 2]))
    images = rng.random((20, 2, 2, 3))
    with pytest.raises(DataError, match=r"Pass X.mean\(axis=-1\)\[:, None\] for gray images."):
        R(onx).fit(images, y)
    assert R(onx, max_iter=1).fit(images.mean(axis=-1)[:, None], y).n_iter_ == 1


# ------------------------------------------------------------------------ states


@pytest.mark.parametrize("name", ["step.onnx", "init.onnx", "predict.onnx"])
def test_a_graph_is_no_state(name, tmp_path):
    model = R(max_iter=0).fit(X, y)
    model.export_training_step(tmp_path)
    with pytest.raises(DataError, match=r"contains a graph, not a state. Save the state .*numpy.savez\('state.npz', "):
        model.load_training_state(tmp_path / name)


def test_a_description_is_no_state(tmp_path):
    model = R(max_iter=0).fit(X, y)
    model.export_training_step(tmp_path)
    with pytest.raises(DataError, match=r"is no state, which is a file .npz of numpy, or .onnx .*numpy.savez"):
        model.load_training_state(tmp_path / "step.json")
    with pytest.raises(DataError, match=r"there is none: .* Save the state .*, numpy.savez"):
        model.load_training_state(tmp_path)


def test_a_state_with_the_loss():
    model = R(max_iter=0, solver="sgd").fit(X, y)
    state = {"coef": np.zeros((3, 1)), "intercept": np.zeros(1), "step": np.ones(1, int), "loss": np.ones(1)}
    with pytest.raises(DataError, match="also has loss. .* Leave it out: it is no part of the state."):
        model.load_training_state(state)


# ------------------------------------------------------------------- memory maps


def test_a_memory_map_of_another_type(tmp_path):
    words = np.ones((40, 3), np.float32)
    words[2::3, 1] = np.nan  # as the lower halves of float64 may be
    words.tofile(tmp_path / "x.bin")
    broken = np.memmap(tmp_path / "x.bin", np.float32, "r", shape=X.shape)
    for rows in (broken, broken[2:]):
        with pytest.raises(
            DataError, match="a memory map of float32 that reads 240 of the 480 bytes of its file. Pass"
        ):
            R().fit(rows, y[: len(rows)])


@pytest.mark.parametrize("wide, narrow", [(np.float64, np.float32), (np.int64, np.int32)])
def test_a_memory_map_of_halves(wide, narrow, tmp_path):
    numbers = np.arange(1, 81).reshape(20, 4)
    numbers.astype(wide).tofile(tmp_path / "x.bin")
    with pytest.warns(UserWarning, match=f"every second value is 0. .*numpy.memmap.path, dtype='{np.dtype(wide)}'"):
        R(max_iter=0).fit(np.memmap(tmp_path / "x.bin", narrow, "r", shape=(20, 4)), y)
    R(max_iter=0).fit(np.memmap(tmp_path / "x.bin", wide, "r", shape=(20, 4)), y)
    numbers.astype(narrow).tofile(tmp_path / "x.bin")
    R(max_iter=0).fit(np.memmap(tmp_path / "x.bin", narrow, "r", shape=(10, 4)), y[:10])


def test_a_memory_map_with_gaps(tmp_path):
    np.where(X > 1, np.nan, X).tofile(tmp_path / "x.bin")
    with pytest.raises(DataError, match="X contains NaN in row .* Pass a model with an imputer"):
        R().fit(np.memmap(tmp_path / "x.bin", np.float64, "r", shape=X.shape), y)


def test_a_memory_map_of_the_header_of_numpy(tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(DataError, match=r"whose header it reads as values. Pass numpy.load\(path, mmap_mode='r'\)."):
        R().fit(np.memmap(tmp_path / "x.npy", np.float64, "r", shape=X.shape), y)
    assert R(max_iter=1).fit(np.load(tmp_path / "x.npy", mmap_mode="r"), y).n_iter_ == 1


# -------------------------------------------------------------------- optimizers


class Counting(Optimizer):
    """Gradient descent that counts its steps in an attribute."""

    def __init__(self):
        self.t = 0

    def update(self, op, w, dw, slots, *scalars, slope=None):
        """Count a call, which is that of a weight and not of a step."""
        self.t += 1
        return op.Sub(w, op.Mul(dw, op.Div(scalars[0], float(self.t)))), slots


class Keeping(Counting):
    """Gradient descent that keeps the gradients of its weights, as those of PyTorch do."""

    def __init__(self):
        self.t = {}

    def update(self, op, w, dw, slots, *scalars, slope=None):
        """Keep the gradient."""
        self.t[w] = dw
        return op.Sub(w, op.Mul(dw, scalars[0])), slots


@dataclass
class Marked(Counting):
    """Gradient descent that sets an attribute in its first update."""

    def update(self, op, w, dw, slots, *scalars, slope=None):
        """Set the attribute."""
        self.t = dw
        return op.Sub(w, op.Mul(dw, scalars[0])), slots


class Halved(Optimizer):
    """Gradient descent with half the rate, which is computed once."""

    @cached_property
    def factor(self):
        """Return the factor of the rate."""
        return 0.5

    def update(self, op, w, dw, slots, *scalars, slope=None):
        """Return the next weight."""
        return op.Sub(w, op.Mul(dw, op.Mul(scalars[0], self.factor))), slots


@pytest.mark.parametrize("kind", [Counting, Keeping, Marked])
def test_an_optimizer_with_state_of_its_own(kind):
    with pytest.raises(
        OptimizerError, match=r"update changes self.t, but it runs once for each weight .*Keep arrays of"
    ):
        R(Ridge(), solver=kind()).fit(X, y)


def test_an_optimizer_with_a_cached_property():
    halved = R(Ridge(), solver=Halved(), learning_rate=0.1, max_iter=2, random_state=0).fit(X, y)
    plain = R(Ridge(), solver="sgd", learning_rate=0.05, max_iter=2, random_state=0).fit(X, y)
    np.testing.assert_allclose(halved.coef_, plain.coef_, rtol=1e-6)


def test_an_optimizer_of_another_interface():
    own = type("Mine", (), {"step": lambda self: None})()
    with pytest.raises(OptimizerError, match="For one of your own, derive a class from onnxtrain.optim.Optimizer."):
        R(solver=own).fit(X, y)


# ------------------------------------------------------------------ names and weights


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_a_weight_that_is_not_finite_is_not_assigned(value):
    model = R(LINE, max_iter=0).fit(X, y)
    with pytest.raises(DataError, match="values for the weight 'W' contain NaN or infinity, as float32. Replace them"):
        model.weights_["W"] = np.full((3, 1), value)
    assert (model.weights_["W"] == 1).all()


def test_the_name_of_a_node_for_that_of_its_result():
    onx = built([helper.make_node("MatMul", ["X", "W"], ["Y"], name="dense")], 21, ("W", np.ones((3, 1), np.float32)))
    model = R(onx, max_iter=0).fit(X, y)
    with pytest.raises(ModelError, match="no result 'dense'. The node of this name returns 'Y'."):
        model.embed(X, "dense")


def test_two_weights_of_one_name():
    onx = built([helper.make_node("MatMul", ["X", "W"], ["Y"])], 21, *[("W", np.ones((3, 1), np.float32))] * 2)
    with pytest.raises(ModelError, match="2 values named 'W'. Give each a name of its own."):
        R(onx).fit(X, y)


def test_none_for_the_gradient_of_an_output():
    function = OrtGradientForwardBackward(LINE).new_instance()
    function.forward([X.astype(np.float32), np.ones((3, 1), np.float32)], training=True)
    with pytest.raises(DataError, match="got a NoneType. If nothing depends on this output, pass zeros."):
        function.backward([None])


def test_a_new_head_on_a_value_without_features():
    nodes = [helper.make_node("Shape", ["X"], ["s"]), *NETWORK.graph.node]
    onx = built(nodes, 21, *((w.name, numpy_helper.to_array(w)) for w in NETWORK.graph.initializer))
    with pytest.raises(ModelError, match=r"of another value, such as linear: .*\[n,2\], relu: .*\[n,2\]"):
        with_new_head(onx, 2, features="s")


def test_a_model_of_one_row_without_an_axis_of_rows():
    onx = built([helper.make_node("MatMul", ["X", "W"], ["Y"])], 21, ("W", np.ones((3, 1), np.float32)))
    for value, size in ((onx.graph.input[0], 3), (onx.graph.output[0], 1)):
        value.CopyFrom(helper.make_tensor_value_info(value.name, 1, [size]))
    with pytest.raises(ModelError, match=r"'X' has one axis, of length 3, .* Export it with rows of shape \(n, 3\)"):
        R(onx).fit(X, y)


def test_tokens_beyond_the_table_of_positions():
    onx = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Gather", ["E", "ids"], ["e"]),
                helper.make_node("Add", ["e", "P"], ["x"]),
                helper.make_node("ReduceMean", ["x", "axes"], ["Y"], keepdims=0),
            ],
            "g",
            [helper.make_tensor_value_info("ids", 7, ["n", "t"])],
            [helper.make_tensor_value_info("Y", 1, ["n", 2])],
            [
                numpy_helper.from_array(np.arange(10, dtype=np.float32).reshape(5, 2), "E"),
                numpy_helper.from_array(np.arange(8, dtype=np.float32).reshape(4, 2), "P"),
                numpy_helper.from_array(np.array([1]), "axes"),
            ],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=8,
    )
    words = r"run the model: Add \(node '.*'\): .* 4 by 6. .* no longer than the model's table of positions"
    with pytest.raises(DataError, match=words):
        OrtGradientClassifier(onx).fit(np.ones((20, 6), int), np.arange(20) % 2)


def test_a_training_step_for_a_model(tmp_path):
    model = R(LINE, max_iter=0).fit(X, y)
    model.export_training_step(tmp_path)
    with pytest.raises(ModelError, match="is a training step: it takes the state .* Pass the model that was exported"):
        R(tmp_path / "step.onnx").fit(X, y)


@pytest.mark.filterwarnings("error", "ignore:.*scale")
@pytest.mark.parametrize("size", [3e4, 1e6])
def test_rows_that_are_too_large_for_half_precision(size):
    onx = built([helper.make_node("MatMul", ["X", "W"], ["Y"])], 21, ("W", np.full((3, 1), 9, np.float16)))
    for value in (*onx.graph.input, *onx.graph.output):
        value.type.tensor_type.elem_type = 10
    with pytest.raises(ModelError, match="differs from .* in float16, whose largest number is 65504. Scale the rows"):
        R(onx).fit(X * size, y)


def test_a_file_of_texts_for_a_locale_that_is_not_installed():
    texts, marks = ["good day", "bad day", "good", "bad"] * 5, [1, 0, 1, 0] * 5
    words = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, marks)

    def file(locale):
        options = {CountVectorizer: {"locale": locale}, LogisticRegression: {"zipmap": False}}
        return to_onnx(words, initial_types=[("text", StringTensorType([None]))], options=options)

    with pytest.raises(ModelError, match="locale with name:xx_XX.* one that every machine has: .*'locale': 'C'"):
        OrtGradientClassifier(file("xx_XX")).fit(texts, marks)
    assert OrtGradientClassifier(file("C"), max_iter=1).fit(texts, marks).score(texts, marks) == 1
