"""Checks of one operator, for every kind of fault of a rule."""

from __future__ import annotations

import zlib

import numpy as np
import onnx
import pytest
import scipy.special
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxtrain.autodiff.registry import RULES
from onnxtrain.errors import OnnxTrainError
from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.runtime.session import open_session
from onnxtrain.runtime.session import run as run_onnxruntime
from onnxtrain.testing import check_gradient

#: Operators newer than the opset the project works at.
NEWER = {"BitCast": 26, "CumProd": 26, "Swish": 24, "TensorScatter": 24}

#: Operators that ONNX defines for float32 only; gradients are still compared in float64, by onnx.reference.
FLOAT32_ONLY = {"Celu", "DequantizeLinear"}

#: Operators that onnxruntime takes in float64 and computes in float32.
COARSE = {"Shrink"}

TYPES = {"float64": TensorProto.DOUBLE, "float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}
TYPES["bfloat16"] = TensorProto.BFLOAT16


class Erf(OpRun):
    """As in onnx.reference, but in float64: there it has the digits of float32."""

    op_domain = ""

    def _run(self, x):
        return (scipy.special.erf(x),)


class Mean(OpRun):
    """As in onnx.reference, but there an operand may not be larger than the first."""

    op_domain = ""

    def _run(self, *xs):
        return (sum(xs) / len(xs),)


class GlobalLpPool(OpRun):
    """onnx.reference has none."""

    op_domain = ""

    def _run(self, x, p=2):
        return (np.sum(np.abs(x) ** p, axis=tuple(range(2, x.ndim)), keepdims=True) ** (1 / p),)


class ConvTranspose(OpRun):
    """By its definition; onnx.reference knows neither groups nor all shapes of the output."""

    op_domain = ""

    def _run(self, x, w, b=None, *, auto_pad=None, dilations=None, group=1, kernel_shape=None,
             output_padding=None, output_shape=None, pads=None, strides=None):  # fmt: skip
        kernel, n = w.shape[2:], x.ndim - 2
        s, d, extra = strides or [1] * n, dilations or [1] * n, output_padding or [0] * n
        reach = [(x.shape[i + 2] - 1) * s[i] + (kernel[i] - 1) * d[i] + 1 + extra[i] for i in range(n)]
        y = np.zeros((x.shape[0], group, w.shape[1], *reach))
        xs = x.reshape(x.shape[0], group, -1, *x.shape[2:])
        ws = w.reshape(group, -1, *w.shape[1:])
        for k in np.ndindex(*kernel):
            where = [slice(k[i] * d[i], k[i] * d[i] + (x.shape[i + 2] - 1) * s[i] + 1, s[i]) for i in range(n)]
            y[(..., *where)] += np.einsum("ngc...,gcm->ngm...", xs, ws[(..., *k)])
        y = y.reshape(x.shape[0], -1, *reach)
        if (auto_pad or "").startswith("SAME") and not output_shape:
            output_shape = [x.shape[i + 2] * s[i] for i in range(n)]
        pads = list(pads or [0] * (2 * n))
        if output_shape:
            total = [max(0, a - b) for a, b in zip(reach, output_shape[-n:], strict=True)]
            half = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in total]
            pads = half + [t - h for t, h in zip(total, half, strict=True)]
        y = y[(..., *(slice(pads[i], reach[i] - pads[n + i]) for i in range(n)))]
        return (y if b is None else y + b.reshape(-1, *[1] * n),)


class DeformConv(OpRun):
    """By its definition; onnx.reference looks up the image in float32."""

    op_domain = ""

    def _run(self, x, w, offset, b=None, mask=None, *, dilations=None, group=1, kernel_shape=None,
             offset_group=1, pads=None, strides=None):  # fmt: skip
        (n, c, *image), (m, _, *kernel), positions = x.shape, w.shape, offset.shape[2:]
        s, d, p = strides or [1, 1], dilations or [1, 1], pads or [0] * 4
        offset = offset.reshape(n, offset_group, *kernel, 2, *positions)
        mask = np.ones((n, offset_group, *kernel, *positions)) if mask is None else mask
        mask = mask.reshape(n, offset_group, *kernel, *positions)
        seen = np.zeros((n, c, *kernel, *positions))
        for row, channel, *at in np.ndindex(*seen.shape):
            k, o, g = at[:2], at[2:], channel // (c // offset_group)
            place = [o[i] * s[i] - p[i] + k[i] * d[i] + offset[(row, g, *k, i, *o)] for i in range(2)]
            near = [np.maximum(0, 1 - np.abs(place[i] - np.arange(image[i]))) for i in range(2)]
            seen[(row, channel, *at)] = mask[(row, g, *at)] * (near[0] @ x[row, channel] @ near[1])
        seen = seen.reshape(n, group, -1, *seen.shape[2:])
        y = np.einsum("gmckl,ngcklij->ngmij", w.reshape(group, -1, *w.shape[1:]), seen).reshape(n, m, *positions)
        return (y if b is None else y + b.reshape(-1, 1, 1),)


def make_model(op_type, arrays, attributes=None, *, outputs=1, shapes="static", constant=False, dtype="float64"):
    """Return a model of one node.

    ``shapes`` is ``"static"``, ``"symbolic"`` (every dimension a name of its own) or ``"unknown"`` (not
    even the number of axes). With ``constant``, operands that are not real are initializers.
    """
    inputs, initializers, names = [], [], []
    for i, array in enumerate(arrays):
        names.append("" if array is None else f"x{i}")
        if array is None:
            continue
        array = np.asarray(array)
        real = array.dtype.kind == "f"
        code = TYPES[dtype] if real else helper.np_dtype_to_tensor_dtype(array.dtype)
        if constant and not real:
            initializers.append(onnx.numpy_helper.from_array(array, names[-1]))
            continue
        shape = {"static": list(array.shape), "symbolic": [f"x{i}_{a}" for a in range(array.ndim)], "unknown": None}
        inputs.append(helper.make_tensor_value_info(names[-1], code, shape[shapes] if real else array.shape))
    ys = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, ys, name="the_node", **(attributes or {}))
    graph = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name=y) for y in ys], initializers)
    opset = [helper.make_opsetid("", NEWER.get(op_type, 21))]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True, strict_mode=shapes == "static")
    known = {v.name: v for v in inferred.graph.output}
    for y in model.graph.output:
        y.CopyFrom(known[y.name])
    unknown = [y for y in model.graph.output if not y.type.tensor_type.HasField("shape")]
    if unknown:  # a model must say of what type its outputs are, and how many axes they have
        found = dict(zip(ys, run_either(model, feeds_of(model, arrays)), strict=True))
        for y in unknown:
            value = np.asarray(found[y.name])
            y.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(value.dtype)
            y.type.tensor_type.shape.CopyFrom(
                onnx.TensorShapeProto(dim=[onnx.TensorShapeProto.Dimension()] * value.ndim)
            )
    assert any(y.type.tensor_type.elem_type in TYPES.values() for y in model.graph.output), "nothing to derive"
    return model


def feeds_of(model, arrays):
    given = {f"x{i}": np.asarray(a) for i, a in enumerate(arrays) if a is not None}
    return {i.name: given[i.name] for i in model.graph.input}


def run_reference(onx, feeds):
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(onx, new_ops=[Erf, Mean, GlobalLpPool, ConvTranspose, DeformConv]).run(None, feeds)


def run_either(onx, feeds):
    if COARSE & {n.op_type for n in onx.graph.node}:
        return run_reference(onx, feeds)
    try:
        return run_onnxruntime(onx, feeds)
    except OnnxTrainError:
        return run_reference(onx, feeds)


#: The runtime, what is known of the shapes, and whether integer operands are known.
WAYS = {
    "static": (run_either, "static", True),
    "static-reference": (run_reference, "static", True),
    "symbolic": (run_either, "symbolic", True),
    "symbolic-open": (run_either, "symbolic", False),
}


@pytest.fixture(params=WAYS)
def check_rule(request):
    """``check_rule(op_type, arrays, attributes, ...)``: first and second derivative, constants, closure."""
    run, shapes, constant = WAYS[request.param]

    def check(op_type, arrays, attributes=None, *, second=True, max_entries=40, outputs=1):
        if request.param == "symbolic-open" and not any(
            np.asarray(a).dtype.kind in "biu" for a in arrays if a is not None
        ):
            return  # nothing to open: the same as "symbolic"
        dtype = "float32" if op_type in FLOAT32_ONLY else "float64"
        model = make_model(op_type, arrays, attributes, outputs=outputs, shapes=shapes, constant=constant, dtype=dtype)
        feeds = feeds_of(model, arrays)
        check_gradient(model, feeds, run=run, max_entries=max_entries)
        derived = onnx_derivative(model)
        onnx.checker.check_model(derived, full_check=True)
        check_closed(derived)
        if shapes == "static":
            assert not {"Shape", "Size"} & {n.op_type for n in derived.graph.node}
        if second and request.param != "symbolic":
            rng = np.random.default_rng(0)
            ys = dict(zip((y.name for y in model.graph.output), run_either(model, feeds), strict=True))
            for dy in list(derived.graph.input)[len(feeds) :]:
                feeds[dy.name] = rng.standard_normal(np.shape(ys[dy.name.removesuffix("_grad")]))
            check_gradient(derived, feeds, weights=[], run=run, max_entries=6)

    return check


@pytest.fixture
def check_model():
    """``check_model(onx, feeds, ...)``: the first derivative, by the first runtime that has the kernels."""
    return lambda model, feeds, **options: check_gradient(model, feeds, run=run_either, **options)


@pytest.fixture
def check_float32():
    """``check_float32(onx, feeds, prepare)``: entry by entry in float32, where float64 has no kernel."""

    def check(model, feeds, *, prepare=lambda onx: onx, max_entries=12):
        rng = np.random.default_rng(0)
        feeds = {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in feeds.items()}
        names = [name for name, a in feeds.items() if a.dtype.kind == "f"]
        forward = open_session(prepare(model), n_threads=1)
        backward = open_session(prepare(onnx_derivative(model, inputs=names)), n_threads=1)
        ys = dict(zip((o.name for o in model.graph.output), forward.run(None, feeds), strict=True))
        dys = {f"{name}_grad": rng.uniform(-1, 1, y.shape).astype(np.float32) for name, y in ys.items()}

        def slope(name, direction):
            high, low = (forward.run(None, feeds | {name: feeds[name] + h * direction}) for h in (1e-2, -1e-2))
            return sum(float(np.sum(dy * (a - b))) for dy, a, b in zip(dys.values(), high, low, strict=True)) / 2e-2

        for name, dx in zip(names, backward.run(None, feeds | dys), strict=True):
            for entry in rng.permutation(dx.size)[:max_entries]:
                unit = np.zeros(dx.size, np.float32)
                unit[entry] = 1
                expected = slope(name, unit.reshape(dx.shape))
                assert float(dx.flat[entry]) == pytest.approx(expected, rel=1e-2, abs=2e-3), (name, entry)

    return check


def check_closed(derived):
    """Assert that a gradient is made of standard operators that have a derivative themselves."""
    for node in derived.graph.node:
        assert node.domain == ""
        assert node.op_type in RULES, f"{node.op_type} is emitted, but has no derivative"


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order(request):
    """Let a test draw the same numbers whatever ran before it."""
    seed = zlib.crc32(request.node.name.encode())
    for generator in vars(request.module).values():
        if isinstance(generator, np.random.Generator):
            generator.bit_generator.state = np.random.default_rng(seed).bit_generator.state
