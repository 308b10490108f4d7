"""Rules of operators that change shape or order, slice, pad and join."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from onnxtrain.grad_helper import DerivativeOptions, onnx_derivative
from onnxtrain.runtime.session import open_session, run_session

rng = np.random.default_rng(4)
FAR = np.iinfo(np.int64).max


def real(*shape):
    return rng.uniform(-1, 1, shape)


def ints(*numbers):
    return np.array(numbers, np.int64)


X = real(2, 3, 4)
IMAGE = real(1, 1, 4, 5)

SLICES = [
    ([X, ints(1), ints(3)], "starts and ends only"),
    ([X, ints(1, 0), ints(3, 2), ints(1, 0)], "axes"),
    ([X, ints(-3), ints(-1), ints(-1)], "from the end"),
    ([X, ints(-2), ints(-1), ints(2)], "the last but one"),
    ([X, ints(1), ints(FAR), ints(2)], "to the end"),
    ([X, ints(-2), ints(FAR), ints(2)], "the last two"),
    ([X, ints(0), ints(2), ints(2)], "the first two"),
    ([X, ints(0), ints(FAR), ints(2)], "all"),
    ([X, ints(1), ints(-1), ints(2)], "without both ends"),
    ([X, ints(-3), ints(2), ints(2)], "mixed signs"),
    ([X, ints(-100), ints(100), ints(2)], "clamped"),
    ([X, ints(100), ints(200), ints(2)], "behind the end"),
    ([X, ints(3), ints(1), ints(2)], "nothing"),
    ([X, ints(0, 1), ints(FAR, FAR), ints(1, 2), ints(2, 1)], "steps"),
    ([X, ints(-1), ints(-FAR), ints(2), ints(-1)], "backwards"),
    ([X, ints(3), ints(0), ints(2), ints(-2)], "backwards by two"),
    ([X, ints(-1, -1), ints(-FAR, -FAR), ints(0, 2), ints(-1, -1)], "backwards twice"),
]

PADS = [
    ([X, ints(0, 1, 2, 1, 0, 0)], {}),
    ([X, ints(1, 2), np.array(0.5), ints(2)], {}),
    ([X, ints(1, 2), np.array([0.5]), ints(2)], {}),
    *(([X, ints(2, 1), None, ints(2)], {"mode": mode}) for mode in ("reflect", "edge", "wrap")),
    *(([X, ints(1, 0, 1, 1), None, ints(1, 0)], {"mode": mode}) for mode in ("edge", "wrap")),
]

ROWS = [
    ("Reshape", [X, ints(3, 8)], {}),
    ("Reshape", [X, ints(0, -1)], {}),
    ("Flatten", [X], {"axis": 2}),
    ("Flatten", [X], {"axis": -1}),
    ("Squeeze", [real(1, 3, 1, 2, 2)], {}),
    ("Squeeze", [real(1, 3, 4, 1), ints(-1)], {}),
    ("Unsqueeze", [real(3), ints(0, -1)], {}),
    ("Unsqueeze", [real(3), np.array(1)], {}),
    ("Transpose", [X], {}),
    ("Transpose", [X], {"perm": [1, 2, 0]}),
    ("Expand", [real(3, 1), ints(2, 1, 4)], {}),
    ("Expand", [real(3, 4), ints(1)], {}),
    ("Expand", [real(1), ints(2, 2)], {}),
    ("Tile", [X, ints(2, 1, 3)], {}),
    ("Tile", [X, ints(1, 1, 1)], {}),
    ("Tile", [X, ints(1, 0, 1)], {}),
    ("Concat", [X], {"axis": 1}),
    ("Concat", [real(2, 3), real(2, 1), real(2, 4)], {"axis": 1}),
    ("Concat", [real(2, 3), real(2, 1)], {"axis": -1}),
    ("Concat", [real(2, 3), real(4, 3)], {"axis": -2}),
    ("ReverseSequence", [X, ints(3, 1)], {"batch_axis": 0, "time_axis": 1}),
    ("ReverseSequence", [X, ints(2, 1, 2)], {}),
    ("SpaceToDepth", [real(2, 2, 4, 6)], {"blocksize": 2}),
    ("DepthToSpace", [real(1, 12, 2, 3)], {"blocksize": 2}),
    ("DepthToSpace", [real(1, 12, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    *(("Slice", arrays, {}) for arrays, _ in SLICES),
    *(("Pad", arrays, attributes) for arrays, attributes in PADS),
    ("Pad", [IMAGE, ints(0, 0, 2, 1, 0, 0, 3, 2)], {"mode": "reflect"}),
]


@pytest.mark.parametrize("op_type, arrays, attributes", ROWS, ids=lambda v: v if isinstance(v, str) else "")
def test_rule(check_rule, op_type, arrays, attributes):
    check_rule(op_type, arrays, attributes, max_entries=12)


@pytest.mark.parametrize(
    "check_rule", ["symbolic-open"], indirect=True
)  # onnx infers no axes that are constants in int32
def test_pads_of_axes_in_int32(check_rule):
    check_rule("Pad", [real(3, 4), ints(1, 2), None, np.int32([1])], max_entries=12)


AXES = {
    "constant": ("a = Constant<value = int32[1] {2}>()", "Y = MaxPool<kernel_shape = [2, 2]>(z)"),
    "given": ("a = Cast<to = 6>(A)", "Y = Tanh(z)"),
}


@pytest.mark.parametrize("axes, behind", AXES.values(), ids=AXES)
def test_axes_in_int32_inside_a_model(axes, behind):
    """onnx infers neither shape nor type behind them, onnxruntime refuses the constant: here they are those in int64."""
    both, rows = [], real(2, 1, 4, 4).astype(np.float32)
    for text in (axes, "a = Constant<value_ints = [2]>()"):
        onx = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
            padded (float[2,1,4,4] X, int64[1] A) => (float[B,C,H,W] Y) {{
                x = Sin(X) p = Constant<value_ints = [1, 2]>() {text} z = Pad(x, p, , a) {behind} }}""")
        filled = DerivativeOptions.FillGrad | DerivativeOptions.KeepOutputs
        session = open_session(onnx_derivative(onx, options=filled), "cpu", 1)
        both += run_session(session, {"X": rows, "A": ints(2)}, ["X_grad"])
    np.testing.assert_array_equal(*both)
    assert np.any(both[0])


@pytest.mark.parametrize("check_rule", ["static", "symbolic", "symbolic-open"], indirect=True)  # not in onnx.reference
@pytest.mark.parametrize(
    "arrays, attributes",
    [
        ([X, ints(0, -1, 2, 1, 0, -2)], {}),
        ([X, ints(0, -1, 0, 0, 0, -2)], {}),
        ([X, ints(-1, 0, 1, 2), np.array(0.5), ints(-1, 1)], {}),
        ([IMAGE, ints(0, 0, -1, 1, 0, 0, 2, -2)], {"mode": "edge"}),
    ],
)
def test_negative_pads(check_rule, arrays, attributes):
    check_rule("Pad", arrays, attributes, max_entries=12)


def test_negative_pads_of_axes_that_are_given(check_model):
    onx = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        cut (double[3,4] X, int64[1] A) => (double[H,W] Y) {
            x = Sin(X) p = Constant<value_ints = [-1, 0]>() Y = Pad(x, p, , A) }""")
    check_model(onx, {"X": real(3, 4), "A": ints(1)})


@pytest.mark.parametrize(
    "arrays, attributes", [([real(2, 6)], {"axis": 1}), ([real(6, 2), ints(1, 2, 3)], {"axis": 0}), ([real(6, 2)], {})]
)
def test_split(check_rule, arrays, attributes):
    attributes = attributes if len(arrays) == 2 else {**attributes, "num_outputs": 3}
    check_rule("Split", arrays, attributes, outputs=3)


@pytest.mark.parametrize("length", ["5", "N"])
@pytest.mark.parametrize("start", [0, 1, -3, 9])
def test_the_end_of_a_slice_at_run_time(check_model, start, length):
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (double[2,{length}] X, int64[1] E) => (double[2,M] Y)
        {{ S = Constant<value_ints = [{start}]>() A = Constant<value_ints = [1]>() Y = Slice(X, S, E, A) }}"""
    )
    check_model(model, {"X": real(2, 5), "E": ints(4)})
