"""The second gradient builder: its availability, its input, and its agreement with the first."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxtrain import training_build
from onnxtrain.errors import GradientError, OnnxTrainError
from onnxtrain.grad_helper import DerivativeOptions, onnx_derivative
from onnxtrain.opsets import installed_runtimes
from onnxtrain.runtime.session import run
from onnxtrain.testing import check_gradient
from onnxtrain.training_build import derivation, native

needs_training = pytest.mark.skipif(
    not training_build.is_available(), reason="needs the training build of onnxruntime: onnxtrain[training-cpu]"
)

ALL = DerivativeOptions.KeepOutputs | DerivativeOptions.FillGrad

# ------------------------------------------------------------ is it there?

ADVICE = [
    (
        {},
        (3, 11),
        "Linux",
        "x86_64",
        ["no onnxruntime at all", "install onnxruntime-training or", "install onnxruntime-training-cpu."],
    ),
    (
        {"onnxruntime": "1.31.1"},
        (3, 12),
        "Linux",
        "x86_64",
        ["pip uninstall -y onnxruntime &&", "install onnxruntime-training-cpu."],
    ),
    (
        {"onnxruntime": "1.31.1"},
        (3, 12),
        "Darwin",
        "arm64",
        ["onnxruntime 1.31.1", "install onnxruntime-training-cpu."],
    ),
    (
        {"onnxruntime": "1.31.1"},
        (3, 13),
        "Linux",
        "x86_64",
        ["There is no training build", "Python 3.13", 'the builder "builtin"'],
    ),
    (
        {"onnxruntime-gpu": "1.31.1"},
        (3, 11),
        "Linux",
        "aarch64",
        ["There is no training build", "aarch64", "onnxruntime-gpu 1.31.1"],
    ),
    (
        {"onnxruntime": "1.31.1", "onnxruntime-training-cpu": "1.19.2"},
        (3, 11),
        "Windows",
        "AMD64",
        ["onnxruntime-training-cpu was overwritten", "uninstall -y onnxruntime onnxruntime-training-cpu"],
    ),
]


@pytest.mark.parametrize("found, python, system, machine, words", ADVICE)
def test_advice(found, python, system, machine, words):
    advice = training_build.advice(found, python, system, machine)
    for word in words:
        assert word in advice
    if system == "Darwin" or python > (3, 11):
        assert "install onnxruntime-training or" not in advice


@pytest.mark.parametrize("module", [None, importlib.import_module("types")], ids=["not there", "overwritten"])
def test_without_the_training_build(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "onnxruntime.capi._pybind_state", module)
    assert not training_build.is_available()
    with pytest.raises(ImportError, match=r"Installed: (onnxruntime|no)"):
        onnx_derivative(model("{ Y = Neg(X) }"), builder="onnxruntime-training")


def test_options_have_the_same_bits():
    o = DerivativeOptions
    assert (o.KeepYieldOp, o.KeepOutputs, o.FillGrad, o.Loss) == (
        derivation.KEEP_YIELD_OP,
        derivation.KEEP_OUTPUTS,
        derivation.FILL_GRAD,
        derivation.LOSS,
    )


def test_installed_names_what_is_imported():
    import onnxruntime

    assert onnxruntime.__version__ in installed_runtimes().values()


# ------------------------------- what it derives, what it lacks or derives wrongly


def model(body, head="float[N,4] X", out="float[N,4] Y", weights=""):
    weights = f"<{weights}>" if weights else ""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g ({head}) => ({out}) {weights} {body}')


#: name -> model; each is derived by the built-in builder and by central differences
MODELS = (
    {
        "MatMul by a vector": model("{ Y = MatMul(X, w) }", out="float[N] Y", weights="float[4] w = {1,2,3,4}"),
        "a vector times MatMul": model("{ Y = MatMul(w, X) }", "float[3,4] X", "float[4] Y", "float[3] w = {1,2,3}"),
        "a vector times a vector": model("{ Y = MatMul(w, X) }", "float[3] X", "float Y", "float[3] w = {1,2,3}"),
        "Where with broadcast operands": model(
            "{ c = Greater(X, z) Y = Where(c, w, X) }", weights="float z = {0}, float[4] w = {1,2,3,4}"
        ),
        "Where with a broadcast condition": model(
            "{ c = Greater(Z, w) Y = Where(c, X, w) }", "float[N,4] X, float[N,1] Z", weights="float w = {0.1}"
        ),
        "Pow with a broadcast base": model("{ Y = Pow(X, E) }", "float[4] X, int64[N,4] E"),
        "Split with an unused output": model("{ Y, b = Split<axis=1, num_outputs=2>(X) }", out="float[N,2] Y"),
        "Split into given parts": model(
            "{ a, b = Split<axis=1>(X, s) Y = Neg(b) }", out="float[N,3] Y", weights="int64[2] s = {1,3}"
        ),
        "weights as the bounds of Clip": model(
            "{ c = Clip(X, low, high) Y = Mul(c, high) }", weights="float low = {-0.3}, float high = {0.4}"
        ),
        "BatchNormalization": model(
            "{ Y = BatchNormalization(X, s, b, m, v) }",
            weights="float[4] s = {1,2,3,4}, float[4] b = {1,2,3,4}, float[4] m = {1,0,-1,1}, float[4] v = {1,2,3,4}",
        ),
        "an operand twice": model("{ a = Mul(X, X) Y = Sum(a, X, a) }"),
        "Max of an operand twice": model("{ Y = Max(X, w, X) }", weights="float[4] w = {1,-2,0.3,0}"),
        "Sum": model("{ Y = Sum(X, w, X) }", weights="float[4] w = {1,2,3,4}"),
        "Sum of one": model("{ Y = Sum(X) }"),
        "Mean": model("{ Y = Mean(X, w) }", weights="float[4] w = {1,2,3,4}"),
        "Reciprocal": model("{ a = Exp(X) Y = Reciprocal(a) }"),
        "Sign": model("{ a = Sign(X) Y = Mul(a, X) }"),
        "Floor and Ceil": model("{ a = Floor(X) b = Ceil(X) c = Mul(a, b) Y = Mul(c, X) }"),
        "Dropout": model("{ Y, mask = Dropout(X) }", out="float[N,4] Y, bool[N,4] mask"),
        "LayerNormalization without bias": model("{ Y = LayerNormalization(X, s) }", weights="float[4] s = {1,2,3,4}"),
        "Transpose": model("{ Y = Transpose(X) }", out="float[4,N] Y"),
        "CastLike": model("{ a = CastLike(X, d) b = CastLike(a, X) Y = Mul(b, X) }", weights="double d = {1}"),
        "Pow of an integer": model("{ Y = Pow(X, n) }", weights="int64 n = {3}"),
        "SoftmaxCrossEntropyLoss": model(
            "{ Y = SoftmaxCrossEntropyLoss(X, L) }", "float[N,4] X, int64[N] L", "float Y"
        ),
        "a gradient's name": model(
            "{ X_grad = Neg(X) Y = Mul(X_grad, Y_grad) }", weights="float[4] Y_grad = {1,2,3,4}"
        ),
        "an output that is an input": model("{ Y = Neg(X) }", out="float[N,4] Y, float[N,4] X"),
        "a weight that reaches nothing": model("{ Y = Neg(X) b = Neg(w) }", weights="float[4] w = {1,2,3,4}"),
        "only through Shape": model(
            "{ s = Shape(w) z = Expand(o, s) Y = Sub(X, z) }", weights="float[4] w = {1,2,3,4}, float o = {1}"
        ),
        "batched MatMul": model(
            "{ Y = MatMul(X, w) }",
            "float[2,N,4] X",
            "float[2,N,4] Y",
            "float[1,4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}",
        ),
    }
    | {
        op: model(f"{{ Y = {op}(X) }}")
        for op in (
            "Elu",
            "Celu",
            "Gelu",
            "Selu",
            "HardSigmoid",
            "HardSwish",
            "Mish",
            "Softplus",
            "Softsign",
            "ThresholdedRelu",
            "Tan",
            "Sinh",
            "Cosh",
            "Relu",
            "Softmax",
            "LogSoftmax",
            "Abs",
            "LpNormalization",
        )
    }
    | {
        op: model(f"{{ Y = {op}<keepdims=1>(X, axes) }}", out="float[N,1] Y", weights="int64[1] axes = {1}")
        for op in ("ReduceSumSquare", "ReduceL1", "ReduceMax", "ReduceMin")
    }
    | {
        "ReduceLogSum": model("{ a = Exp(X) Y = ReduceLogSum<keepdims=0>(a) }", out="float Y"),
        "Gelu by tanh": model('{ Y = Gelu<approximate="tanh">(X) }'),
        "PRelu": model("{ Y = PRelu(X, w) }", weights="float[4] w = {1,2,3,4}"),
        "Acosh": model("{ a = Exp(X) b = Add(a, o) Y = Acosh(b) }", weights="float o = {1.1}"),
        "Atanh": model("{ a = Tanh(X) Y = Atanh(a) }"),
        "GlobalMaxPool": model("{ Y = GlobalMaxPool(X) }", "float[N,2,4] X", "float[N,2,1] Y"),
    }
)


#: what onnxruntime-training derives rightly; it refuses the others, or we do, because it would be wrong without a word
DERIVED = {
    "Abs",
    "Gelu",
    "LogSoftmax",
    "Max of an operand twice",
    "Reciprocal",
    "Relu",
    "Softmax",
    "SoftmaxCrossEntropyLoss",
    "a gradient's name",
    "a vector times MatMul",
    "a weight that reaches nothing",
    "an output that is an input",
    "batched MatMul",
    "only through Shape",
}


def feeds_of(onx):
    """Return a feed for each input: weights keep their values, labels are small."""
    rng = np.random.default_rng(0)
    values = {t.name: onnx.numpy_helper.to_array(t) for t in onx.graph.initializer}
    feeds = {}
    for v in onx.graph.input:
        shape = [5 if d.dim_param else d.dim_value for d in v.type.tensor_type.shape.dim]
        if v.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            feeds[v.name] = rng.integers(0, 4, shape)
        else:
            feeds[v.name] = rng.uniform(-2, 2, shape).astype(np.float32)
    return feeds, values


@needs_training
@pytest.mark.parametrize(
    "options",
    [DerivativeOptions.Zero, DerivativeOptions.KeepOutputs, ALL],
    ids=repr,
)
@pytest.mark.parametrize("name", sorted(DERIVED))
def test_the_builders_agree(name, options):
    onx = MODELS[name]
    feeds, values = feeds_of(onx)
    first = onnx_derivative(onx, options=options)
    second = onnx_derivative(onx, options=options, builder="onnxruntime-training")
    for part in ("input", "output"):
        assert [v.name for v in getattr(first.graph, part)] == [v.name for v in getattr(second.graph, part)]
    rng = np.random.default_rng(1)
    outputs = run(onx, feeds)
    given = {v.name for v in first.graph.input}
    dys = {
        name: rng.normal(size=y.shape).astype(np.float32)
        for v, y in zip(onx.graph.output, outputs, strict=True)
        for name in (f"{v.name}_grad", f"{v.name}_grad_1")
    }
    known = dys | feeds | values
    feeds = {name: known[name] for name in given}
    for a, b in zip(run(first, feeds), run(second, feeds), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


@needs_training
@pytest.mark.parametrize("name", sorted(MODELS.keys() - DERIVED))
def test_an_operator_that_it_cannot_derive_is_named(name):
    onx = MODELS[name]
    with pytest.raises(GradientError) as caught:
        onnx_derivative(onx, options=ALL, builder="onnxruntime-training")
    said = str(caught.value)
    assert any(f"{node.op_type} " in said for node in onx.graph.node)
    assert 'the builder "builtin"' in said


@needs_training
@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"GlobalMaxPool"}))  # it has no kernel in float64
def test_central_differences_agree(name):
    onx = MODELS[name]
    check_gradient(onx, feeds_of(onx)[0])


@needs_training
def test_loss():
    onx = model(
        "{ m = MatMul(X, w) a = Add(m, b) d = Sub(a, L) loss = Mul(d, d) label = ArgMax<axis=1>(a) }",
        "float[N,4] X, float[N,2] L",
        "float[N,2] loss, float[N,2] a, int64[N,1] label",
        "float[4,2] w = {1,2,3,4,5,6,7,8}, float[2] b = {1,2}",
    )
    feeds, _ = feeds_of(onx)
    options = DerivativeOptions.Loss | DerivativeOptions.KeepOutputs
    graphs = [
        onnx_derivative(onx, ["b", "w"], ["X"], options, "loss", "L", builder=builder)
        for builder in ("builtin", "onnxruntime-training")
    ]
    for part in ("input", "output"):
        first, second = ([v.name for v in getattr(g.graph, part)] for g in graphs)
        assert first == second
    for a, b in zip(*(run(g, feeds) for g in graphs), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5)


REFUSED = [
    (model("{ Y = Atan(X) }"), "not been registered: Atan"),
    (model("{ a = Abs(X) Y = Pow(a, X) }"), "'X' had no effect"),
    (
        model("{ Y = Pad(X, p, w) }", out="float[N,M] Y", weights="int64[4] p = {0,0,0,1}, float w = {1}"),
        "'w' had no effect",
    ),
    (
        model('{ Y = ScatterElements<axis=0, reduction="add">(X, I, Z) }', "float[N,4] X, int64[N,4] I, float[N,4] Z"),
        "incorrectly with reduction='add'",
    ),
    (
        model('{ Y = AveragePool<kernel_shape=[2], auto_pad="SAME_UPPER">(X) }', "float[N,1,4] X", "float[N,1,4] Y"),
        "incorrectly with auto_pad",
    ),
    (
        model(
            "{ Y, I = MaxPool<kernel_shape=[2,2], storage_order=1>(X) }",
            "float[N,1,4,4] X",
            "float[N,1,3,3] Y, int64[N,1,3,3] I",
        ),
        "incorrectly with storage_order",
    ),
    (
        model(
            "{ Y, m = LayerNormalization(X, s, b) }",
            out="float[N,4] Y, float[N,1] m",
            weights="float[4] s = {1,2,3,4}, float[4] b = {1,2,3,4}",
        ),
        "as if its output 'm' had no effect",
    ),
    (
        model(
            "{ Y = If <then_branch = t () => (float[N,4] A) { A = Neg(X) },"
            "else_branch = e () => (float[N,4] B) { B = Exp(X) }>(c) }",
            "float[N,4] X, bool c",
        ),
        "does not differentiate If",
    ),
]


@needs_training
@pytest.mark.parametrize("onx, words", REFUSED)
def test_what_it_cannot_derive_is_refused(onx, words):
    with pytest.raises(GradientError, match=words) as caught:
        onnx_derivative(onx, builder="onnxruntime-training")
    assert 'the builder "builtin"' in str(caught.value)


@needs_training
@pytest.mark.parametrize(
    "body, without_kernel",
    [("{ Y = MatMul(X, w) }", "FusedMatMul"), ("{ Y = Relu(X) }", "ReluGrad"), ("{ Y = Softmax(X) }", "SoftmaxGrad")],
)
def test_float64_without_kernels_is_refused(body, without_kernel):
    text = f"g (double[2,N,2] X) => (double[2,N,2] Y) <double[2,2] w = {{1,2,3,4}}> {body}"
    onx = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    with pytest.raises(GradientError, match=f"cannot run: .*{without_kernel}.*builtin"):
        onnx_derivative(onx, options=ALL, builder="onnxruntime-training")


@needs_training
def test_float64_where_there_are_kernels():
    onx = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (double[N,2] X) => (double[N,2] Y) '
        "<double[2,2] w = {1,2,3,4}> { a = MatMul(X, w) Y = Mul(a, a) }"
    )
    X, w = np.random.default_rng(0).normal(size=(5, 2)), np.array([[1.0, 2], [3, 4]])
    dx, dw, y = run(onnx_derivative(onx, options=ALL, builder="onnxruntime-training"), {"X": X, "w": w})
    np.testing.assert_allclose(y, (X @ w) ** 2, rtol=1e-12)
    np.testing.assert_allclose(dx, 2 * (X @ w) @ w.T, rtol=1e-12)
    np.testing.assert_allclose(dw, X.T @ (2 * (X @ w)), rtol=1e-12)


@needs_training
def test_a_newer_opset_is_refused_or_brought_down():
    onx = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Neg", ["X"], ["Y"])],
            "g",
            [onnx.helper.make_tensor_value_info("X", 1, ["N"])],
            [onnx.helper.make_tensor_value_info("Y", 1, ["N"])],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 23)],
    )
    assert onnx_derivative(onx, builder="onnxruntime-training").opset_import[0].version == 21


@needs_training
def test_all_of_the_foreign_message_is_kept():
    assert "Node arg nope is not found" in str(
        native._refused(RuntimeError("f(const X& y) Node arg nope is not found."))
    )


# --------------------------------------------- the table of the gradient issue

#: cases in which the two differ, and which of them is right
DIFFER = dict.fromkeys(
    (
        "test_attention_23_boolmask_fullymasked_row_nan_robustness",
        "test_attention_23_fullymasked_qk_matmul_output_mode3_zero",
        "test_attention_24_fullymasked_qk_matmul_output_mode3_zero",
        "test_attention_24_qk_matmul_output_mode3_softmax_precision",
        "test_attention_4d_causal_nonpad_negative_offset_structural_empty",
        "test_attention_causal_boolmask_nan_robustness",
        "test_attention_local_window_gqa_rank4_mask",
    ),
    "a row that is masked whole: onnxruntime-training returns NaN, the built-in rules what is finite",
)


def backend_cases():
    if not training_build.is_available():
        return {}
    from tests.autodiff import test_backend_cases

    return test_backend_cases.CASES


@needs_training
@pytest.mark.parametrize("name", sorted(backend_cases()))
def test_the_builders_agree_on_the_node_tests(name):
    from tests.autodiff.test_backend_cases import feeds_of as backend_feeds

    case = backend_cases()[name]
    try:
        second = onnx_derivative(case.model, [], options=ALL, builder="onnxruntime-training")
        first = onnx_derivative(case.model, [], options=ALL)
        types = {v.name: onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in first.graph.input}
        feeds = {n: np.asarray(a).astype(types[n]) for n, a in backend_feeds(case).items() if n in types}
        wanted = [v.name for v in first.graph.output if v.name.endswith("_grad")]
        found, expected = run(second, feeds, outputs=wanted), run(first, feeds, outputs=wanted)
    except OnnxTrainError as e:
        pytest.skip(f"only one can: {str(e)[:100]}")
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if isinstance(a, np.ndarray) and b is not None]
    if name in DIFFER:
        assert any(np.isnan(a).any() for a, _ in pairs), "the two agree now: leave it out of DIFFER"
        assert not any(np.isnan(b).any() for _, b in pairs)
        return
    rtol = 1e-5 if all(b.dtype != np.float16 for _, b in pairs) else 1e-2
    for a, b in pairs:
        scale = np.max(np.abs(b), initial=1.0, where=np.isfinite(b))
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale)


# ------------------------------------------------------------------- training


@needs_training
@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_estimators_end_at_the_same_weights(kind):
    from sklearn.datasets import load_diabetes, load_iris
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.preprocessing import scale

    from onnxtrain import OrtGradientClassifier, OrtGradientRegressor

    X, y = (load_diabetes if kind == "regressor" else load_iris)(return_X_y=True)
    X = scale(X)[:150].astype(np.float32)
    y = scale(y)[:150] if kind == "regressor" else y
    mlp, ours = (MLPRegressor, OrtGradientRegressor) if kind == "regressor" else (MLPClassifier, OrtGradientClassifier)
    start = mlp(hidden_layer_sizes=(8, 8), max_iter=20, random_state=0)
    with pytest.warns(UserWarning, match="converge"):
        start.fit(X, y)
    # 2 batches an epoch, 50 epochs: 100 steps
    first, second = (
        ours(
            start,
            batch_size=75,
            max_iter=50,
            tol=0,
            n_iter_no_change=100,
            random_state=0,
            gradient_builder=builder,
        ).fit(X, y)
        for builder in ("builtin", "onnxruntime-training")
    )
    assert first.weights_.keys() == second.weights_.keys()
    for name, w in first.weights_.items():
        np.testing.assert_allclose(second.weights_[name], w, rtol=1e-4, atol=1e-4 * np.abs(w).max())


@needs_training
def test_a_penalty_is_refused_by_name():
    from onnxtrain import OrtGradientRegressor

    X = np.arange(12.0).reshape(-1, 1)
    penalized = OrtGradientRegressor(l2=0.1, gradient_builder="onnxruntime-training")
    with pytest.raises(GradientError, match='ReduceSumSquare.*the builder "builtin"'):
        penalized.fit(X, X.ravel())
