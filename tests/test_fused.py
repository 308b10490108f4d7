"""Fused operators of onnxruntime optimized it, spelled out by those of ai.onnx: on onnxruntime, the only one with them."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from numpy.testing import assert_allclose
from onnx import TensorProto, helper

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, with_new_head
from onnxtrain.errors import GradientError, ModelError
from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.graph import load, save
from onnxtrain.runtime.session import run

rng = np.random.default_rng(16)


def real(*shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def ints(*rows, dtype=np.int32):
    return np.array(rows, dtype)


#: Two rows of five tokens: the second one is padded by two.
MASK = ints([1, 1, 1, 1, 1], [1, 1, 1, 0, 0])
IDS = ints([1, 4, 2, 0, 3], [3, 3, 1, 0, 0])
TABLES = [real(6, 8), real(7, 8)]
TURNS = np.outer(np.arange(9), 0.3 ** np.arange(8))
ANGLES, LARGER = ([f(t).astype(np.float32) for f in (np.cos, np.sin)] for t in (TURNS[:, :4], TURNS))
QKV = [real(2, 5, 8), real(8, 24), real(24)]
HEADS = {"num_heads": 2}
GROUPS = {"num_heads": 4, "kv_num_heads": 2}
TOTAL = [ints(4, 4), np.array(5, np.int32)]

#: operator, operands (None: left out), attributes, number of outputs
ROWS = {
    "product": ("FusedMatMul", [real(2, 3), real(4, 3)], {"alpha": 0.5, "transB": 1}, 1),
    "product of batches": ("FusedMatMul", [real(5, 2, 3), real(2, 3, 4)], {"transBatchA": 1}, 1),
    "gemm": ("FusedGemm", [real(2, 3), real(3, 4), real(4)], {"activation": "LeakyRelu", "activation_alpha": 0.3}, 1),
    "gemm, selu": (
        "FusedGemm",
        [real(2, 3), real(3, 4), real(4)],
        {"activation": "Selu", "activation_alpha": 1.2, "activation_gamma": 2.0},
        1,
    ),
    "conv": ("FusedConv", [real(2, 3, 5, 5), real(4, 3, 3, 3), real(4)], {"activation": "Relu"}, 1),
    "conv and sum": (
        "FusedConv",
        [real(1, 3, 5, 5), real(4, 3, 3, 3), real(4), real(1, 4, 3, 3)],
        {"activation": "Relu"},
        1,
    ),
    "conv, clip": (
        "FusedConv",
        [real(2, 3, 5), real(4, 3, 3)],
        {"activation": "Clip", "activation_params": [-0.1, 0.2]},
        1,
    ),
    "conv, leaky": (
        "FusedConv",
        [real(2, 3, 5), real(4, 3, 3)],
        {"activation": "LeakyRelu", "activation_params": [0.3]},
        1,
    ),
    "gelu": ("Gelu", [real(2, 3)], {}, 1),
    "bias and gelu": ("BiasGelu", [real(2, 3), real(3)], {}, 1),
    "fast gelu": ("FastGelu", [real(2, 3), real(3)], {}, 1),
    "quick gelu": ("QuickGelu", [real(2, 3)], {"alpha": 1.5}, 1),
    "skip": ("SkipLayerNormalization", [real(2, 3, 4), real(2, 3, 4), real(4), real(4), real(4)], {}, 4),
    "skip, no beta": ("SkipLayerNormalization", [real(2, 3, 4), real(2, 3, 4), real(4)], {"epsilon": 0.01}, 1),
    "skip, root mean square": ("SkipSimplifiedLayerNormalization", [real(2, 3, 4), real(2, 3, 4), real(4)], {}, 4),
    "root mean square": ("SimplifiedLayerNormalization", [real(2, 3, 4), real(4)], {"epsilon": 0.01}, 1),
    "embeddings": ("EmbedLayerNormalization", [IDS, None, *TABLES, None, real(8), real(8), MASK], {}, 2),
    "embeddings of segments": (
        "EmbedLayerNormalization",
        [IDS, MASK, *TABLES, real(2, 8), real(8), real(8), None, IDS],
        {"epsilon": 0.01},
        3,
    ),
    "attention": ("Attention", QKV, HEADS, 1),
    "attention, mask": ("Attention", [*QKV, MASK], HEADS, 1),
    "attention, lengths": ("Attention", [*QKV, ints(5, 3)], HEADS, 1),
    "attention, mask of pairs": ("Attention", [*QKV, np.tril(MASK[:, None] * MASK[:, :, None])], HEADS, 1),
    "attention, past": (
        "Attention",
        [*QKV, None, real(2, 2, 2, 3, 4)],
        {"unidirectional": 1, "scale": 0.3, **HEADS},
        2,
    ),
    "attention, padded on the left, causal": (
        "Attention",
        [*QKV, MASK[:, ::-1].copy()],
        {"unidirectional": 1, "mask_filter_value": -3.0, **HEADS},
        1,
    ),
    "attention, large scores, causal": ("Attention", [QKV[0] * 1e4, *QKV[1:]], {"unidirectional": 1, **HEADS}, 1),
    "attention, bias": ("Attention", [*QKV, None, None, real(2, 2, 5, 5)], HEADS, 1),
    "attention, widths": (
        "Attention",
        [real(2, 5, 8), real(8, 20), real(20)],
        {"qkv_hidden_sizes": [4, 4, 12], **HEADS},
        1,
    ),
    "heads": ("MultiHeadAttention", [real(2, 5, 8), real(2, 6, 8), real(2, 6, 8)], HEADS, 1),
    "heads, bias, mask": (
        "MultiHeadAttention",
        [real(2, 5, 8), real(2, 5, 8), real(2, 5, 12), real(28), MASK],
        HEADS,
        1,
    ),
    "heads of another sequence": (
        "MultiHeadAttention",
        [real(2, 5, 8), real(2, 2, 6, 4), real(2, 2, 6, 4)],
        {"scale": 0.3, **HEADS},
        1,
    ),
    "heads, past": (
        "MultiHeadAttention",
        [real(2, 5, 8), real(2, 5, 8), real(2, 5, 8), None, None, real(2, 2, 5, 8), real(2, 2, 3, 4), real(2, 2, 3, 4)],
        {"unidirectional": 1, **HEADS},
        3,
    ),
    "angles": ("RotaryEmbedding", [real(2, 5, 16), np.array([2]), *ANGLES], {}, 1),
    "angles of positions": (
        "RotaryEmbedding",
        [real(2, 2, 5, 8), IDS.astype(np.int64), *ANGLES],
        {"interleaved": 1},
        1,
    ),
    "angles of a part": (
        "RotaryEmbedding",
        [real(2, 5, 24), IDS.astype(np.int64), *ANGLES],
        {"num_heads": 2, "rotary_embedding_dim": 8},
        1,
    ),
    "groups": ("GroupQueryAttention", [real(2, 5, 32), real(2, 5, 16), real(2, 5, 16), None, None, *TOTAL], GROUPS, 3),
    "groups, padded": (
        "GroupQueryAttention",
        [real(2, 5, 32), real(2, 5, 16), real(2, 5, 16), None, None, ints(4, 2), TOTAL[1]],
        GROUPS,
        3,
    ),
    "groups, padded, window": (
        "GroupQueryAttention",
        [real(2, 5, 128), None, None, None, None, ints(1, 3), TOTAL[1], *LARGER],
        {"do_rotary": 1, "local_window_size": 2, **GROUPS},
        3,
    ),
    "groups, packed": (
        "GroupQueryAttention",
        [real(2, 5, 128), None, None, None, None, *TOTAL, *LARGER],
        {"do_rotary": 1, "local_window_size": 2, "softcap": 2.0, **GROUPS},
        3,
    ),
}

#: Operands and attributes of operators that onnxruntime 1.19 has not, or whose padding it fills otherwise.
NEWER = pytest.mark.skipif(onnxruntime.__version__.startswith("1.19."), reason="onnxruntime 1.19 lacks this form")
NEWER_ROWS = {"groups, packed", "groups, padded", "groups, padded, window"}

#: Optional outputs that onnxruntime leaves empty.
EMPTY = {"SkipLayerNormalization": {1, 2}, "SkipSimplifiedLayerNormalization": {1, 2}}

#: Operators that onnxruntime registers without a domain of their own.
STANDARD = {"SimplifiedLayerNormalization"}


def model_of(op_type, arrays, attributes, outputs):
    """Return a model of one node; weights are initializers, as an optimizer has them, all else inputs."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in zip(names, arrays, strict=True)
        if name
    ]
    ys = ["" if k in EMPTY.get(op_type, ()) else f"y{k}" for k in range(outputs)]
    counts = op_type == "EmbedLayerNormalization"
    results = [
        helper.make_tensor_value_info(y, TensorProto.INT32 if counts and k == 1 else TensorProto.FLOAT, None)
        for k, y in enumerate(ys)
        if y
    ]
    node = helper.make_node(op_type, names, ys, domain="" if op_type in STANDARD else "com.microsoft", **attributes)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "one", inputs, results)
    feeds = {name: a for name, a in zip(names, arrays, strict=True) if name}
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


@pytest.mark.parametrize(
    "case", [pytest.param(row, id=name, marks=[NEWER] if name in NEWER_ROWS else []) for name, row in ROWS.items()]
)
def test_the_same_by_standard_operators(case):
    model, feeds = model_of(*case)
    spelled = save(load(model))
    assert {node.domain for node in spelled.graph.node} == {""}
    assert {node.op_type for node in spelled.graph.node}.isdisjoint(STANDARD)
    assert [y.name for y in spelled.graph.output] == [y.name for y in model.graph.output]
    for found, expected in zip(run(spelled, feeds), run(model, feeds), strict=True):
        assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("row", ["attention", "heads", "heads, bias, mask", "angles of a part"])
def test_no_rows_give_no_rows(row):
    op_type, operands, attributes, outputs = ROWS[row]
    onx, feeds = model_of(op_type, operands, attributes, outputs)
    for value in onx.graph.input:
        if len(value.type.tensor_type.shape.dim) > 1 and feeds[value.name].shape[0] == 2:
            value.type.tensor_type.shape.dim[0].dim_param = "n"
            feeds[value.name] = feeds[value.name][:0]
    (y,) = run(save(load(onx)), feeds)
    assert y.shape == (0, 5, y.shape[2])


@pytest.mark.parametrize("opset", [11, 17])
def test_a_normalization_without_a_domain_in_a_model_of_an_older_opset(opset):
    model, feeds = model_of("SimplifiedLayerNormalization", [real(2, 3, 4), real(4)], {"epsilon": 0.01}, 1)
    model.opset_import[0].version = opset
    (found,), (expected,) = run(save(load(model)), feeds), run(model, feeds)
    assert_allclose(found, expected, rtol=1e-5)
    assert {node.domain for node in model.graph.node} == {""}, "the model that was given has changed"


def test_a_domain_without_an_opset():
    """onnxruntime.transformers.optimizer returns such models; its own files declare the opset."""
    model, feeds = model_of("BiasGelu", [real(3, 4), real(4)], {}, 1)
    (expected,) = run(model, feeds)
    del model.opset_import[1]
    (found,) = run(save(load(model)), feeds)
    assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("scale", [0, 1e-4, 300])
def test_squares_of_half_precision(scale):
    """float16 has neither 1e-12 nor 300²."""
    model, feeds = model_of("SimplifiedLayerNormalization", [real(2, 3, 4) * scale, real(4)], {"epsilon": 1e-12}, 1)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    feeds = {name: x.astype(np.float16) for name, x in feeds.items()}
    (found,) = run(save(load(model)), feeds)
    x, gamma = (a.astype(np.float64) for a in feeds.values())
    expected = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-12) * gamma
    assert_allclose(found, expected, rtol=0, atol=2e-3)


def test_layouts_of_one_processor_name_the_way_back(tmp_path):
    """The file of ORT_ENABLE_ALL is refused; that of the level below is trained as the model itself."""
    weights = {"k": real(16, 3, 3, 3), "l": real(16, 16, 3, 3), "w": real(16, 2)}
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3, 6, 6] X) => (float[n, 2] Y) {
        A = Conv(X, k) B = Relu(A) C = Conv(B, l) P = GlobalAveragePool(C) F = Flatten(P) Y = MatMul(F, w) }"""
    )
    onx.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in weights.items())
    onnx.save(onx, tmp_path / "plain.onnx")
    options, levels = onnxruntime.SessionOptions(), onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "extended.onnx")
    onnxruntime.InferenceSession(tmp_path / "plain.onnx", options, providers=["CPUExecutionProvider"])
    X, y = real(8, 3, 6, 6), np.arange(8) % 2
    params = {"solver": "sgd", "learning_rate": 0.1, "max_iter": 5, "shuffle": False}
    plain, extended = (
        OrtGradientClassifier(str(tmp_path / f"{name}.onnx"), **params).fit(X, y) for name in ("plain", "extended")
    )
    assert "FusedConv" in {node.op_type for node in extended.get_trained_onnx().graph.node}
    assert_allclose(extended.predict_proba(X), plain.predict_proba(X), rtol=1e-5)
    for node in onx.graph.node[:1]:
        node.domain = "com.microsoft.nchwc"
    with pytest.raises(ModelError, match="operators of com.microsoft.nchwc.*ORT_ENABLE_EXTENDED"):
        OrtGradientClassifier(onx).fit(X, y)


@pytest.mark.parametrize(
    "op_type, before", [("Inverse", "onnxruntime optimized it"), ("DynamicQuantizeLSTM", "it was quantized")]
)
def test_an_operator_of_onnxruntime_that_is_not_known_names_the_model_before_it(op_type, before):
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[n, 4] X, float[n, 4] Z) => (float[n, 4] Y) {{ Y = com.microsoft.{op_type}(X) }}"""
    )
    with pytest.raises(GradientError, match=f"Pass the model from before {before}, register a rule"):
        onnx_derivative(onx)


STAYS = {
    "groups, past": (
        "GroupQueryAttention",
        [real(2, 1, 64), real(2, 1, 32), real(2, 1, 32), real(2, 2, 4, 16), real(2, 2, 4, 16), *TOTAL, *LARGER],
        {"do_rotary": 1, **GROUPS},
        3,
    ),
    "groups, no window": (
        "GroupQueryAttention",
        [real(2, 5, 32), real(2, 5, 16), real(2, 5, 16), None, None, *TOTAL],
        {"local_window_size": 0, **GROUPS},
        3,
    ),
    "attention, ends and starts": ("Attention", [*QKV, ints(5, 3, 0, 1)], HEADS, 1),
    "heads of another sequence, causal": (
        "MultiHeadAttention",
        [real(2, 5, 8), real(2, 6, 8), real(2, 6, 8)],
        {"unidirectional": 1, **HEADS},
        1,
    ),
}


@pytest.mark.parametrize("case", STAYS.values(), ids=STAYS)
def test_a_form_that_is_not_known_stays(case):
    model, _ = model_of(*case)
    assert [node.op_type for node in save(load(model)).graph.node] == [case[0]]


def test_an_operator_that_nobody_knows_stays_beside_a_fused_one():
    onx = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "mine" : 1, "com.microsoft" : 1]>
        g (float[n, 4] X, float[4] b) => (float[n, 4] Y) {
        B = com.microsoft.BiasGelu(X, b) A = mine.Mine(B) Y = com.microsoft.BiasGelu(A, b) }"""
    )
    assert [node.op_type for node in load(onx).graph] == ["Add", "Gelu", "Mine", "BiasGelu"]


def few_bits(bits, *, zeros):
    """Return operands of a product by a matrix (20, 6) in blocks of 16 rows, and that matrix."""
    high = 2**bits
    q, zero = rng.integers(0, high, (6, 2, 16)), rng.integers(0, high, (6, 2)) if zeros else np.full((6, 2), high // 2)
    scales = real(6, 2)
    w = ((q - zero[..., None]) * scales[..., None]).reshape(6, 32)[:, :20].T
    packed, packed_zero = (
        a.astype(np.uint8) if bits == 8 else (a[..., ::2] + 16 * a[..., 1::2]).astype(np.uint8) for a in (q, zero)
    )
    return [real(3, 20), packed, scales.ravel(), *([packed_zero.ravel()] if zeros else [])], w


def of_few_bits(operands, bits):
    """Return a model with a product by a matrix of few bits, and the rows."""
    model, feeds = model_of("MatMulNBits", operands, {"K": 20, "N": 6, "bits": bits, "block_size": 16}, 1)
    held = [name for name in feeds if name != "x0"]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(feeds.pop(name), name) for name in held)
    kept = [value for value in model.graph.input if value.name == "x0"]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model, feeds


def test_weights_of_few_bits_are_said_not_to_be_trained():
    model, feeds = of_few_bits(few_bits(4, zeros=False)[0], 4)
    (y,), name = run(model, feeds), model.graph.output[0].name
    model.graph.initializer.append(onnx.numpy_helper.from_array(real(6), "shift"))
    model.graph.node.append(helper.make_node("Add", [name, "shift"], ["shifted"]))
    model.graph.output[0].name = "shifted"
    with pytest.warns(
        UserWarning, match=r"The model has quantized weights: 1 \(x1_dequantized\). Integers have no deriv"
    ):
        ours = OrtGradientRegressor(model, max_iter=1).fit(feeds["x0"], y)
    assert list(ours.weights_) == ["shift"]


@pytest.mark.parametrize("zeros", [False, True], ids=["symmetric", "zero points"])
@pytest.mark.parametrize("bits", [4, pytest.param(8, marks=NEWER)])
def test_weights_of_few_bits(bits, zeros):
    operands, w = few_bits(bits, zeros=zeros)
    model, feeds = of_few_bits(operands, bits)
    spelled = save(load(model))
    (found,), (expected,) = run(spelled, feeds), run(model, feeds)
    assert_allclose(found, feeds["x0"] @ w, rtol=1e-5, atol=1e-5)
    assert_allclose(found, expected, rtol=0, atol=1e-2 * np.abs(expected).max())  # onnxruntime may round the rows


def classifier():
    """Return rows (n, t, 8) to two scores by fused operators, their weights as initializers."""
    weights = {
        "w": real(8, 24), "b": real(24), "gamma": real(8), "beta": real(8), "up": real(8, 8), "shift": real(8),
        "head": real(8, 2), "axis": np.array([1]),
    }  # fmt: skip
    info, fused = helper.make_tensor_value_info, {"domain": "com.microsoft"}
    nodes = [
        helper.make_node("Attention", ["X", "w", "b", "mask"], ["seen"], num_heads=2, **fused),
        helper.make_node("SkipLayerNormalization", ["X", "seen", "gamma", "beta"], ["normal"], **fused),
        helper.make_node("FusedMatMul", ["normal", "up"], ["raised"], alpha=0.5, transB=1, **fused),
        helper.make_node("BiasGelu", ["raised", "shift"], ["active"], **fused),
        helper.make_node("MatMul", ["active", "up"], ["lowered"]),
        helper.make_node("SkipLayerNormalization", ["lowered", "normal", "gamma", "beta"], ["last"], **fused),
        helper.make_node("FastGelu", ["last"], ["ended"], **fused),
        helper.make_node("ReduceMean", ["ended", "axis"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "head"], ["scores"]),
    ]
    inputs = [info("X", TensorProto.FLOAT, ["n", "t", 8]), info("mask", TensorProto.INT32, ["n", "t"])]
    graph = helper.make_graph(nodes, "fused", inputs, [info("scores", TensorProto.FLOAT, ["n", 2])])
    graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in weights.items())
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_the_file_of_an_optimizer_is_trained():
    """The weights are those of the same network by standard operators, and the file keeps its fused ones."""
    model = classifier()
    X = {"X": real(6, 5, 8), "mask": np.repeat(MASK, 3, axis=0)}
    params = {"solver": "sgd", "learning_rate": 0.1, "max_iter": 5, "random_state": 0}
    y = [0, 1, 0, 1, 1, 0]
    tuned = OrtGradientClassifier(model, **params).fit(X, y)
    plain = OrtGradientClassifier(save(load(model)), **params).fit(X, y)
    assert set(tuned.weights_) == {"w", "b", "gamma", "beta", "up", "shift", "head"} == set(plain.weights_)
    for name, w in tuned.weights_.items():
        assert_allclose(w, plain.weights_[name], rtol=1e-6)
    trained = tuned.get_trained_onnx()
    assert list(trained.graph.node) == list(model.graph.node)
    (scores,) = run(trained, X)
    assert_allclose(scores[:, 1] - scores[:, 0], tuned.decision_function(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("features", ["normal", "active", "last", "ended", "mean"])
def test_features_behind_fused_operators(features):
    """onnx infers no shapes there; the new layer takes the mean over positions."""
    onx = classifier()
    X = {"X": real(6, 5, 8), "mask": np.repeat(MASK, 3, axis=0)}
    changed = with_new_head(onx, 3, features=features, random_state=0)
    shown = onnx.ModelProto.FromString(onx.SerializeToString())
    shown.graph.output.append(helper.make_empty_tensor_value_info(features))
    values = run(shown, X)[-1]
    pooled = values if values.ndim == 2 else values.mean(axis=1)
    weight = next(onnx.numpy_helper.to_array(w) for w in changed.graph.initializer if w.name == "head.weight")
    assert_allclose(run(changed, X)[-1], pooled @ weight, rtol=1e-4, atol=1e-5)


KERNELS = {
    "MatMulInteger": ("Z = MatMulInteger(q, Q, z, shift)", "Z = MatMul(H, W)", (8, 3), "n,8"),
    "ConvInteger": ("Z = ConvInteger(q, Q, z, shift)", "Z = Conv(H, W)", (3, 4, 2), "n,4,5"),
}


@pytest.mark.parametrize("case", KERNELS.values(), ids=KERNELS)
def test_what_is_in_front_of_a_product_of_integers(case):
    """The weights in front of a layer of ``quantize_dynamic`` move as in front of one in floats, but for the rounding."""
    integers, floats, shape, rows = case
    q = rng.integers(0, 200, shape).astype(np.uint8)
    scale, weights = np.float32(0.01), {"a": real(*[int(d) for d in rows.split(",")[1:]]), "V": real(1)}
    quantized = {**weights, "Q": q, "shift": np.uint8(107), "scale": scale}
    plain = {**weights, "W": (q.astype(np.float32) - 107) * scale}
    moved = []
    for nodes, arrays in (
        (
            f"q, s, z = DynamicQuantizeLinear(H) {integers} F = Cast<to = 1>(Z) t = Mul(s, scale) P = Mul(F, t)",
            quantized,
        ),
        (f"{floats} P = Identity(Z)", plain),
    ):
        onx = onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["" : 21]> g (float[{rows}] X) => (float[n, m] Y) {{
            A = Mul(X, a) H = Tanh(A) {nodes} T = Tanh(P) D = Mul(T, V) Y = Flatten(D) }}"""
        )
        onx.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(w), name) for name, w in arrays.items())
        X = np.random.default_rng(0).normal(size=(40, *weights["a"].shape)).astype(np.float32)
        (y,) = run(onx, {"X": X})
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The model has quantized weights: 1|y is from 1 to 1")
            ours = OrtGradientRegressor(onx, solver="sgd", learning_rate=0.1, max_iter=3, weights_to_train=["a"])
            moved.append(ours.fit(X, np.ones_like(y)).weights_["a"] - weights["a"])
    assert np.abs(moved[1]).max() > 1e-3
    assert_allclose(moved[0], moved[1], rtol=0, atol=0.03 * np.abs(moved[1]).max())
