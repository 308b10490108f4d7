"""Rules of products, determinants and triangles."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from onnxtrain import onnx_derivative
from onnxtrain.runtime.session import run

rng = np.random.default_rng(2)


def real(*shape):
    return rng.uniform(-1, 1, shape)


MATMUL = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((2, 1, 2, 3), (1, 5, 3, 4)),
    ((2, 5, 2, 3), (5, 3, 1)),
]

GEMM = [
    ((2, 3), (3, 4), None, {}),
    ((2, 3), (3, 4), None, {"beta": 2.0}),
    ((2, 3), (3, 4), (4,), {"alpha": 0.5, "beta": 2.0}),
    ((3, 2), (3, 4), (2, 1), {"transA": 1, "beta": 0.5}),
    ((2, 3), (4, 3), (2, 4), {"transB": 1, "alpha": 3.0}),
    ((3, 2), (4, 3), (), {"transA": 1, "transB": 1, "alpha": 0.5}),
]

EINSUM = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij, kj -> ki", (2, 3), (4, 3)),
    ("i,i->", (3,), (3,)),
    ("i,j", (3,), (4,)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->i", (2, 3)),
    ("ij", (2, 3)),
    ("ba", (2, 3)),
    (",ij->ij", (), (2, 3)),
    (",->", (), ()),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("bij,jk->bik", (5, 2, 3), (3, 4)),
    ("...ij,...jk->...ik", (5, 2, 3), (1, 3, 4)),
    ("...ij,...jk->...ik", (5, 1, 2, 3), (1, 6, 3, 4)),
    ("i...j,jk->i...k", (2, 5, 3), (3, 4)),
    ("i...j,...k->i...jk", (2, 5, 3), (1, 4)),
    ("...i,...i", (5, 3), (5, 3)),
    ("...i->...", (5, 3)),
    ("ij,ij,jk->ik", (2, 3), (2, 3), (3, 4)),
    ("bi,ijk,bk->bj", (2, 3), (3, 4, 5), (2, 5)),
    ("ij,jk->ik", (2, 1), (3, 4)),
    ("ij,jk->k", (2, 1), (3, 4)),
    ("ij,jk->k", (2, 3), (1, 4)),
    ("BhTd,BhSd->BhTS", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("...ab,...bc->...ac", (5, 2, 3), (5, 3, 4)),
]

ROWS = [
    *(("MatMul", [real(*a), real(*b)], {}) for a, b in MATMUL),
    *(("Gemm", [real(*a), real(*b), *([] if c is None else [real(*c)])], attributes) for a, b, c, attributes in GEMM),
    *(("Einsum", [real(*shape) for shape in shapes], {"equation": equation}) for equation, *shapes in EINSUM),
    ("Trilu", [real(3, 4)], {}),
    ("Trilu", [real(2, 3, 4), np.array(1)], {"upper": 0}),
    ("Trilu", [real(2, 3, 4), np.array(-1)], {"upper": 1}),
]


@pytest.mark.parametrize("op_type, arrays, attributes", ROWS, ids=lambda v: v if isinstance(v, str) else "")
def test_rule(check_rule, op_type, arrays, attributes):
    check_rule(op_type, arrays, attributes)


def test_an_ellipsis_that_stands_for_fewer_axes(check_model):
    """The lengths are left open: where they are known, the shape inference of onnx refuses it."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> outer (double[A] X, double[B,C] Z) => (double[B,A,C] Y)
        { Y = Einsum <equation = "...i,...j->...ij"> (X, Z) }"""
    )
    check_model(model, {"X": real(3), "Z": real(5, 4)})


SINGULAR = np.outer([1.0, 2.0, 3.0], [1.0, -1.0, 0.5])


@pytest.mark.parametrize(
    "matrices", [real(1, 1), real(4, 1, 1), real(2, 2), real(3, 2, 3, 3), SINGULAR, np.zeros((2, 2))], ids=np.shape
)
@pytest.mark.parametrize("check_rule", ["static", "static-reference"], indirect=True)
def test_det(check_rule, matrices):
    check_rule("Det", [matrices], second=matrices.shape[-1] < 4)


SIGNAL, SPECTRUM = real(2, 5, 1), real(2, 4, 2)
DFT = [
    ([SIGNAL], {}),
    ([SIGNAL], {"onesided": 1}),
    ([SPECTRUM], {"inverse": 1}),
    ([SIGNAL, np.array(4)], {}),
    ([SIGNAL, np.array(7), np.array(1)], {"onesided": 1}),
    ([SIGNAL, None, np.array(0)], {}),
    ([SPECTRUM, np.array(6)], {"inverse": 1}),
    ([SPECTRUM], {"inverse": 1, "onesided": 1}),
    ([SPECTRUM, np.array(4), np.array(-2)], {"inverse": 1, "onesided": 1}),
    ([SPECTRUM[:, :3], np.array(5), np.array(1)], {"inverse": 1, "onesided": 1}),
]


@pytest.mark.parametrize("check_rule", ["static-reference", "symbolic", "symbolic-open"], indirect=True)
@pytest.mark.parametrize("arrays, attributes", DFT)
def test_dft(check_rule, arrays, attributes):
    check_rule("DFT", arrays, attributes, second=False)


def test_half_of_the_frequencies_of_a_signal_of_any_length():
    """onnxruntime takes a length that is computed for that of the operand, whose memory was too short."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        f (double[n, k, 1] X) => (double[p, q, r] Y) { x = Neg(X) axis = Constant <value_int = 0> ()
        z = DFT <onesided = 1> (x, , axis) Y = Mul(z, z) }""")
    derived, feeds = onnx_derivative(model), {"X": np.ones((3, 2, 1)), "Y_grad": np.ones((2, 2, 2))}
    expected = ReferenceEvaluator(derived).run(None, feeds)
    np.testing.assert_allclose(run(derived, feeds)[0], expected[0], atol=1e-12)
