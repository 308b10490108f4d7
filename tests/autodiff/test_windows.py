"""Rules of convolutions, poolings and of Resize, with every attribute."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnxtrain.grad_helper import DerivativeOptions, onnx_derivative
from onnxtrain.opsets import runtime_version
from onnxtrain.runtime.session import run

rng = np.random.default_rng(12)
HEAD = '<ir_version: 10, opset_import: ["" : 21]>'

#: One way suffices where onnxruntime has no kernel for float64: both run onnx.reference.
STATIC = pytest.mark.parametrize("check_rule", ["static"], indirect=True)


def real(*shape):
    return rng.uniform(-1, 1, shape)


CONV = [
    ([real(2, 3, 7), real(4, 3, 3)], {}),
    ([real(1, 3, 7), real(4, 3, 3), real(4)], {"pads": [1, 2], "strides": [2], "dilations": [2]}),
    ([real(2, 2, 5, 6), real(3, 2, 2, 3), real(3)], {"strides": [2, 3], "pads": [1, 0, 0, 2]}),
    ([real(1, 4, 5, 5), real(6, 2, 3, 3)], {"group": 2, "strides": [2, 2]}),
    ([real(2, 3, 5, 5), real(3, 1, 3, 3), real(3)], {"group": 3, "dilations": [1, 2]}),
    ([real(1, 2, 6, 5), real(2, 2, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ([real(1, 2, 6, 5), real(2, 2, 2, 2)], {"auto_pad": "SAME_LOWER"}),
    ([real(1, 2, 7), real(2, 2, 3)], {"auto_pad": "SAME_UPPER", "strides": [2]}),
    ([real(1, 2, 6), real(2, 2, 3)], {"auto_pad": "SAME_UPPER", "dilations": [2]}),
    ([real(1, 2, 6, 5), real(2, 2, 3, 2)], {"auto_pad": "VALID", "strides": [2, 2]}),
    ([real(1, 2, 4, 3, 4), real(2, 2, 2, 2, 2)], {"strides": [2, 1, 1], "pads": [0, 1, 0, 1, 0, 0]}),
    ([real(1, 1, 3, 3, 4), real(1, 1, 2, 2, 2)], {"strides": [1, 1, 2], "pads": [0, 0, 0, 0, 0, 1]}),
]

TRANSPOSED = [
    ([real(2, 3, 4), real(3, 2, 3)], {}),
    (
        [real(1, 3, 4), real(3, 2, 3), real(2)],
        {"strides": [3], "pads": [1, 2], "output_padding": [1], "dilations": [2]},
    ),
    ([real(1, 4, 3, 3), real(4, 2, 2, 3)], {"group": 2, "strides": [2, 1]}),
    ([real(1, 2, 3, 3), real(2, 2, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ([real(1, 2, 3, 3), real(2, 2, 3, 3)], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ([real(1, 2, 3, 3), real(2, 2, 2, 2)], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ([real(1, 2, 3, 3), real(2, 2, 3, 3)], {"output_shape": [6, 6], "strides": [2, 2]}),
    ([real(1, 2, 3), real(2, 2, 3)], {"output_shape": [6], "strides": [2]}),
    ([real(1, 2, 3), real(2, 2, 3)], {"output_shape": [7], "strides": [2]}),
    ([real(1, 2, 3), real(2, 2, 3)], {"output_shape": [6], "strides": [2], "output_padding": [1]}),
    ([real(1, 1, 3), real(1, 1, 2)], {"strides": [1], "dilations": [2], "output_padding": [1]}),
]

MAX_POOL = [
    ([real(1, 2, 6)], {"kernel_shape": [3], "strides": [2]}),
    ([real(2, 2, 5, 5)], {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "strides": [1, 2]}),
    ([real(1, 2, 5, 6)], {"kernel_shape": [3, 2], "ceil_mode": 1, "strides": [2, 2]}),
    ([real(1, 1, 6, 6)], {"kernel_shape": [2, 2], "dilations": [2, 3]}),
    ([real(1, 1, 5, 5)], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ([real(1, 1, 4, 5)], {"kernel_shape": [2, 2], "storage_order": 1}),
]

AVERAGE_POOL = [
    ([real(1, 2, 6)], {"kernel_shape": [3], "strides": [2]}),
    ([real(2, 1, 5, 5)], {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "strides": [1, 2]}),
    ([real(2, 1, 5, 5)], {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "count_include_pad": 1}),
    ([real(1, 2, 5, 6)], {"kernel_shape": [3, 3], "ceil_mode": 1, "strides": [2, 2], "pads": [0, 1, 0, 1]}),
    ([real(1, 1, 6)], {"kernel_shape": [3], "strides": [2], "ceil_mode": 1, "count_include_pad": 1}),
    ([real(1, 1, 5, 5)], {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ([real(1, 1, 4, 4, 3)], {"kernel_shape": [2, 3, 2], "dilations": [2, 1, 1]}),
]

LP_POOL = [
    ([real(1, 2, 6)], {"kernel_shape": [3], "strides": [2]}),
    ([real(1, 2, 4, 5)], {"kernel_shape": [2, 3], "p": 1, "pads": [1, 1, 0, 0]}),
    ([real(1, 2, 4, 5)], {"kernel_shape": [2, 2], "p": 3}),
]

GLOBAL = [
    ("GlobalAveragePool", [real(2, 3, 4)], {}),
    ("GlobalAveragePool", [real(2, 3, 2, 3)], {}),
    ("GlobalMaxPool", [real(2, 3, 2, 3)], {}),
    ("GlobalLpPool", [real(2, 3, 2, 3)], {}),
    ("GlobalLpPool", [real(2, 3, 4)], {"p": 1}),
    ("GlobalLpPool", [real(2, 3, 4)], {"p": 3}),
]


@pytest.fixture(params=["by convolution", "by entry"])
def form(request, monkeypatch):
    """The two forms of the gradient of the filters, whatever their number of channels."""
    channels = {"by convolution": 10**6, "by entry": 1}
    monkeypatch.setattr("onnxtrain.autodiff.rules.conv._CHANNELS", channels[request.param])


@STATIC
@pytest.mark.parametrize("arrays,attributes", CONV)
def test_conv(check_rule, form, arrays, attributes):
    check_rule("Conv", arrays, attributes, max_entries=8)


@STATIC
@pytest.mark.parametrize("arrays,attributes", TRANSPOSED)
def test_conv_transpose(check_rule, form, arrays, attributes):
    check_rule("ConvTranspose", arrays, attributes, max_entries=8)


@STATIC
@pytest.mark.parametrize("arrays,attributes", MAX_POOL)
def test_max_pool(check_rule, arrays, attributes):
    check_rule("MaxPool", arrays, attributes, max_entries=8)


@STATIC
def test_max_pool_with_its_positions(check_rule):
    check_rule("MaxPool", [real(1, 2, 6)], {"kernel_shape": [3]}, outputs=2)


@STATIC
@pytest.mark.parametrize("arrays,attributes", AVERAGE_POOL)
def test_average_pool(check_rule, arrays, attributes):
    check_rule("AveragePool", arrays, attributes, max_entries=8)


@STATIC
@pytest.mark.parametrize("arrays,attributes", LP_POOL)
def test_lp_pool(check_rule, arrays, attributes):
    check_rule("LpPool", arrays, attributes, max_entries=8)


@pytest.mark.parametrize("op_type,arrays,attributes", GLOBAL)
def test_global_pool(check_rule, op_type, arrays, attributes):
    check_rule(op_type, arrays, attributes, max_entries=8)


@STATIC
@pytest.mark.parametrize("shape", [None, [1, 1, 5, 5]])
def test_max_unpool(check_rule, shape):
    """The positions are those in the shape before it is padded to the one given."""
    x, positions = real(1, 1, 2, 2), np.array([[[[5, 7], [8, 10]]]])
    given = [] if shape is None else [np.array(shape)]
    check_rule("MaxUnpool", [x, positions, *given], {"kernel_shape": [2, 2], "strides": [2, 2]})


@STATIC
def test_max_unpool_with_pads(check_rule):
    """Pads shorten what the positions are counted in, to 6 x 3 here."""
    x, positions = real(1, 1, 3, 2), np.array([[[[0, 2], [4, 10], [14, 17]]]])
    attributes = {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [0, 1, 0, 1]}
    check_rule("MaxUnpool", [x, positions, np.array([1, 1, 7, 5])], attributes)


@pytest.mark.parametrize("body", ["LpPool<kernel_shape = [2]>", "LpPool<kernel_shape = [2], p = 3>", "GlobalLpPool"])
def test_a_norm_of_zeros_is_flat(body):
    model = onnx.parser.parse_model(f"{HEAD} g (float[1,1,2] X) => (float[1,1,1] Y) {{ Y = {body}(X) }}")
    feeds = {"X": np.zeros((1, 1, 2), np.float32), "Y_grad": np.ones((1, 1, 1), np.float32)}
    np.testing.assert_array_equal(run(onnx_derivative(model), feeds), [feeds["X"]])


POOLED = "(float16[N,1,4] X) => (float16[N,1,3] Y) { Y = MaxPool<kernel_shape = [2]>(X) }"


def test_max_pool_of_half_precision():
    """Gradients that meet in one entry are added in float32: runtimes have no other kernel."""
    feeds = {"X": np.array([[[1, 3, 2, 0]]], np.float16), "Y_grad": np.array([[[1, 2, 4]]], np.float16)}
    (dx,) = run(onnx_derivative(onnx.parser.parse_model(f"{HEAD} g {POOLED}")), feeds)
    assert dx.dtype == np.float16
    np.testing.assert_array_equal(dx, [[[0, 3, 4, 0]]])


# ------------------------------------------------- dimensions that are not known


def model_of(op_type, arrays, attributes, shape, outputs=1):
    """Return a model whose first input has the shape `shape`, and whose others are static."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), shape if i == 0 else a.shape)
        for i, (n, a) in enumerate(zip(names, arrays, strict=True))
        if a is not None
    ]
    ys = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, ys, **attributes)
    free = [helper.make_tensor_value_info(y, TensorProto.DOUBLE, [None] * arrays[0].ndim) for y in ys]
    graph = helper.make_graph([node], "open", inputs, free)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


BATCH, ALL = ("N", *[None] * 3), ("N", "C", "H", "W")

OPEN = [
    ("Conv", [real(2, 3, 5, 5), real(2, 3, 3, 3)], {}, ALL),
    ("Conv", [real(2, 3, 5, 6), real(2, 3, 3, 3)], {"strides": [2, 2], "pads": [1, 0, 0, 0]}, ALL),
    ("Conv", [real(2, 4, 5, 6), real(2, 2, 3, 3)], {"group": 2, "strides": [2, 3]}, ALL),
    ("Conv", [real(2, 4, 5, 6), real(2, 2, 3, 3)], {"group": 2, "auto_pad": "SAME_UPPER"}, ALL),
    ("Conv", [real(2, 3, 5, 6), real(2, 3, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, ("N", 3, 5, 6)),
    ("ConvTranspose", [real(2, 3, 3, 4), real(3, 2, 3, 3)], {"strides": [2, 2]}, ALL),
    ("ConvTranspose", [real(2, 3, 3, 4), real(3, 2, 3, 3)], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, ALL),
    ("MaxPool", [real(2, 3, 5, 6)], {"kernel_shape": [2, 2], "strides": [2, 2]}, ALL),
    ("AveragePool", [real(2, 3, 5, 6)], {"kernel_shape": [2, 2], "strides": [2, 2]}, ("N", 3, 5, 6)),
    ("Resize", [real(2, 2, 3, 4), None, np.array([1, 1, 2, 2], np.float32)], {"mode": "linear"}, ALL),
    ("Resize", [real(2, 2, 3, 4), None, None, np.array([2, 2, 5, 7])], {"mode": "nearest"}, ALL),
    ("Resize", [real(2, 2, 3, 4), None, None, np.array([2, 2, 5, 7])], {"mode": "linear"}, ("N", 2, 3, 4)),
]


@pytest.mark.parametrize("op_type,arrays,attributes,shape", OPEN)
def test_open_dimensions(check_model, op_type, arrays, attributes, shape):
    model = model_of(op_type, arrays, attributes, shape)
    scales = op_type == "Resize" and arrays[2] is not None
    if scales:  # float32 in every type of Resize
        model.graph.initializer.append(onnx.numpy_helper.from_array(arrays[2], "x2"))
        del model.graph.input[1]
    feeds = {i.name: arrays[int(i.name[1:])] for i in model.graph.input}
    check_model(model, feeds)


# ------------------------------------------------------------------- Resize

RESIZE = [
    ({"mode": mode, "coordinate_transformation_mode": coordinates, **more}, scales)
    for mode, coordinates, more, scales in [
        ("nearest", "asymmetric", {"nearest_mode": "floor"}, [1, 1, 2, 2]),
        ("nearest", "half_pixel", {"nearest_mode": "ceil"}, [1, 1, 0.6, 1.5]),
        ("linear", "half_pixel", {}, [1, 1, 2, 1.3]),
        ("linear", "align_corners", {}, [1, 1, 2, 2]),
        ("linear", "pytorch_half_pixel", {}, [1, 1, 0.6, 0.6]),
        ("linear", "half_pixel", {"antialias": 1}, [1, 1, 0.6, 0.6]),
        ("cubic", "half_pixel", {}, [1, 1, 2, 1]),
        ("cubic", "asymmetric", {"exclude_outside": 1, "cubic_coeff_a": -0.5}, [1, 1, 1, 2]),
    ]
]


def resize_model(x, attributes, *, roi=None, scales=None, sizes=None):
    constants = {"roi": roi, "scales": scales, "sizes": sizes}
    dtypes = {"roi": np.float64, "scales": np.float32, "sizes": np.int64}
    weights = [onnx.numpy_helper.from_array(np.array(v, dtypes[n]), n) for n, v in constants.items() if v is not None]
    names = [n if v is not None else "" for n, v in constants.items()]
    node = helper.make_node("Resize", ["X", *names], ["Y"], **attributes)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "resized", [info("X", 11, x.shape)], [info("Y", 11, [None] * x.ndim)], initializer=weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("attributes,scales", RESIZE)
def test_resize(check_model, attributes, scales):
    x = real(1, 1, 4, 5)
    check_model(resize_model(x, attributes, scales=scales), {"X": x}, weights=[])


@pytest.mark.parametrize("axes", ["2, 3", "-2, -1", "3, 2"])
def test_axes_of_resize(check_float32, axes, request):
    """In float32: onnx.reference does not count axes from the end."""
    if "-" in axes and onnxruntime.__version__.startswith("1.19."):
        request.applymarker(pytest.mark.xfail(reason="it does not count them either"))
    body = f'S = Constant<value_floats = [2.0, 1.5]>() Y = Resize<axes = [{axes}], mode = "linear">(X, , S)'
    model = onnx.parser.parse_model(f"{HEAD} g (float[1,1,2,4] X) => (float[1,1,H,W] Y) {{ {body} }}")
    check_float32(model, {"X": real(1, 1, 2, 4)})


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_resize_keeps_the_aspect_ratio(check_model, policy):
    x = real(1, 1, 2, 4)
    attributes = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": "nearest"}
    check_model(resize_model(x, attributes, sizes=[6, 8]), {"X": x})


def test_resize_of_a_region(check_model):
    x = real(1, 1, 4, 4)
    attributes = {"axes": [2, 3], "coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}
    model = resize_model(x, attributes, roi=[0.1, 0.2, 0.7, 1.2], sizes=[3, 3])
    check_model(model, {"X": x}, weights=[])


@pytest.mark.parametrize("opset", [13, 19, 21, 22])
@pytest.mark.parametrize("length", [[1, 2, "length"], None], ids=["named", "static"])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "n, kernel, stride, pad, dilation, counts",
    [
        (8, 3, 3, 1, 1, 0),
        (8, 3, 3, 1, 1, 1),
        (6, 2, 3, 0, 1, 0),
        (7, 2, 2, 1, 1, 1),
        (8, 2, 3, 1, 2, 0),
        (7, 3, 2, 1, 1, 1),
    ],
)
def test_a_window_that_starts_in_the_padding_at_the_end_is_left_out(
    opset, length, op_type, n, kernel, stride, pad, dilation, counts
):
    """As in PyTorch; onnx counts it before opset 22, onnxruntime from 1.21 at no opset."""
    torch = pytest.importorskip("torch")
    if runtime_version() < (1, 21):
        pytest.skip("onnxruntime before 1.21 counts the window, and returns a value of the padding")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 2, n)).astype(np.float32)
    primal = torch.tensor(x, requires_grad=True)
    attributes = {"kernel_shape": [kernel], "strides": [stride], "pads": [pad, pad], "ceil_mode": 1}
    if op_type == "MaxPool":
        attributes["dilations"] = [dilation]
        expected = torch.nn.functional.max_pool1d(primal, kernel, stride, pad, dilation, True)
    else:
        attributes["count_include_pad"] = counts
        expected = torch.nn.functional.avg_pool1d(primal, kernel, stride, pad, True, bool(counts))
    dy = rng.normal(size=expected.shape).astype(np.float32)
    expected.neg().backward(torch.tensor(dy))
    onx = helper.make_model(
        helper.make_graph(
            [helper.make_node(op_type, ["X"], ["P"], **attributes), helper.make_node("Neg", ["P"], ["Y"])],
            "pool",
            [helper.make_tensor_value_info("X", TensorProto.FLOAT, length or x.shape)],
            [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["N", "C", "L"])],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    derived = onnx_derivative(onx, options=DerivativeOptions.KeepOutputs)
    session = onnxruntime.InferenceSession(derived.SerializeToString(), providers=["CPUExecutionProvider"])
    dx, y = session.run(None, {"X": x, derived.graph.input[-1].name: dy})
    np.testing.assert_allclose(y, -expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dx, primal.grad.numpy(), rtol=1e-5, atol=1e-6)
