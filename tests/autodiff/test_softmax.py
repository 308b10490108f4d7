"""Rules of Softmax, LogSoftmax and of the losses on scores."""

from __future__ import annotations

import numpy as np
import pytest

rng = np.random.default_rng(11)


def real(*shape):
    return rng.uniform(-1, 1, shape)


def labels(*shape):
    return np.resize([2, 0, 1, 2], shape)  # never all of one class: it may be the one to ignore


WEIGHT = np.array([0.5, 1.0, 2.0])

LOSSES = [
    (attributes, weight, shape)
    for attributes, weight, shape in [
        ({}, None, (4, 3)),
        ({}, WEIGHT, (4, 3)),
        ({"reduction": "sum"}, None, (4, 3)),
        ({"reduction": "sum"}, WEIGHT, (4, 3, 2)),
        ({"reduction": "none"}, None, (4, 3, 2)),
        ({"reduction": "none"}, WEIGHT, (4, 3)),
        ({"ignore_index": 1}, WEIGHT, (4, 3, 2)),
        ({"ignore_index": 1}, None, (4, 3)),
        ({"ignore_index": 0}, WEIGHT, (4, 3)),
        ({"ignore_index": -1, "reduction": "none"}, WEIGHT, (4, 3)),
    ]
]

ROWS = [
    ("Softmax", [real(2, 3)], {}),
    ("Softmax", [real(2, 3, 2)], {"axis": 1}),
    ("Softmax", [real(0, 3)], {}),
    ("Softmax", [1000 * real(2, 3)], {}),
    ("LogSoftmax", [real(2, 3, 2)], {"axis": 0}),
    ("LogSoftmax", [real(1, 3)], {}),
    ("LogSoftmax", [real(2, 3, 2)], {}),
    ("Softmax", [real(2, 3, 2)], {}),
    ("Hardmax", [real(2, 3)], {}),
]


def loss_operands(weight, shape, attributes):
    target = labels(shape[0], *shape[2:])
    if attributes.get("ignore_index") == -1:
        target.flat[0] = -1
    return [real(*shape), target, *([] if weight is None else [weight])]


def name(row):
    return "-".join(map(str, row)) if isinstance(row, tuple) else None


@pytest.mark.parametrize("op_type,arrays,attributes", ROWS)
def test_softmax(check_rule, op_type, arrays, attributes):
    check_rule(op_type, arrays, attributes)


@pytest.mark.parametrize("attributes,weight,shape", LOSSES)
def test_negative_log_likelihood(check_rule, attributes, weight, shape):
    check_rule("NegativeLogLikelihoodLoss", loss_operands(weight, shape, attributes), attributes)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("attributes,weight,shape", LOSSES)
def test_softmax_cross_entropy(check_rule, attributes, weight, shape, outputs):
    check_rule("SoftmaxCrossEntropyLoss", loss_operands(weight, shape, attributes), attributes, outputs=outputs)


@pytest.mark.parametrize("op_type", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_short_labels(check_rule, op_type):
    check_rule(op_type, [real(4, 3), labels(4).astype(np.int32), WEIGHT], {"ignore_index": 1})


MASKED = """
<ir_version: 10, opset_import: ["" : 21]>
masked (double[2,3] X, bool[2,3] M) => (double[2,3] Y) {{
    low = Constant <value = double {{-inf}}> ()
    zero = Constant <value = double {{0.0}}> ()
    {scores}
    P0 = Softmax(S)
    P = {cast}(P0)
    none = IsNaN(P)
    Y = Where(none, zero, P)
}}"""


@pytest.mark.parametrize("scores", ["S = Where(M, X, low)", "mask = Where(M, zero, low) S = Add(X, mask)"])
@pytest.mark.parametrize("cast", ["Cast <to = 11>", "Identity"])
def test_rows_without_any_score_get_no_gradient(check_model, cast, scores):
    """Attention replaces what Softmax makes of a row of -inf; 0 times NaN must not come back."""
    import onnx.parser

    onx = onnx.parser.parse_model(MASKED.format(cast=cast, scores=scores))
    check_model(onx, {"X": real(2, 3), "M": np.array([[True, True, False], [False, False, False]])})


def test_cross_entropy_without_its_loss(check_model):
    """Only the second output is used: the loss has no gradient."""
    import onnx.parser

    onx = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        log_p (double[N,3] X, int64[N] T) => (double[N,3] Y) { L, Y = SoftmaxCrossEntropyLoss(X, T) }"""
    )
    check_model(onx, {"X": real(4, 3), "T": labels(4)})
