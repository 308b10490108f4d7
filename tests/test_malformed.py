"""Broken models: an error of our own, never a bare KeyError, a hang or a dead process.

Each of more than a thousand models is a good one with one thing broken. They are
read in other processes: the C++ of onnx may end the process, which is a failure too.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

import onnx
import pytest
from onnx.parser import parse_model

from onnxtrain.errors import OnnxTrainError
from onnxtrain.grad_helper import DerivativeOptions, onnx_derivative

#: Broken models of each kind, and seconds for one of them: reading one takes some 10 ms.
EACH, SECONDS = 120, 20

GOOD = {
    "network": """
        <ir_version: 8, opset_import: ["" : 15]>
        network (float[N,3] X, float[N,2] label) => (float[N,2] scores, float loss)
        <float[3,2] W = {1, -2, 3, 4, 5, -6}, float[2] b = {1, 2}, int64[1] axis = {1}>
        {
            product = MatMul(X, W)
            z = Add(product, b)
            scores = Softmax <axis = 1> (z)
            d = Sub(scores, label)
            squares = Mul(d, d)
            rows = ReduceSum <keepdims = 0> (squares, axis)
            loss = ReduceMean <keepdims = 0> (rows)
        }""",
    "image": """
        <ir_version: 8, opset_import: ["" : 17]>
        image (float[N,1,6,6] X) => (float[N,4] Y)
        <float[2,1,3,3] W = {1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1}, int64[2] shape = {-1, 4},
         float[8,4] V = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8,
                         1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}>
        {
            conv = Conv <kernel_shape = [3, 3]> (X, W)
            relu = Relu (conv)
            pool = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (relu)
            flat = Flatten (pool)
            Y = MatMul(flat, V)
        }""",
    "branches": """
        <ir_version: 9, opset_import: ["" : 20, "local" : 1]>
        branches (float[N,2] X, bool[1] c) => (float[N,2] Y) <float[2] w = {1, 2}>
        {
            s = local.square (X)
            Y = If (c) <
                then_branch = then () => (float[N,2] a) { a = Mul(s, w) },
                else_branch = other () => (float[N,2] o) { o = Add(s, w) }>
        }
        <domain: "local", opset_import: ["" : 20]> square (x) => (y) { y = Mul(x, x) }""",
}


def any_node(onx, rng):
    return rng.choice(onx.graph.node)


def truncated(onx, rng):
    data = onx.SerializeToString()
    return data[: rng.randrange(len(data))]


def with_other_bytes(onx, rng):
    data = bytearray(onx.SerializeToString())
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def with_a_cycle(onx, rng):
    first, last = sorted(rng.sample(range(len(onx.graph.node)), 2)) if len(onx.graph.node) > 2 else (0, 1)
    onx.graph.node[first].input[0] = onx.graph.node[last].output[0]
    return onx


def with_a_missing_input(onx, rng):
    node = any_node(onx, rng)
    node.input[rng.randrange(len(node.input))] = "nowhere"
    return onx


def with_another_arity(onx, rng):
    node = any_node(onx, rng)
    values = rng.choice([node.input, node.output])
    if rng.random() < 0.5:
        del values[rng.randrange(len(values))]
    else:
        values.extend([rng.choice(["X", "more", ""])] * rng.randint(1, 4))
    return onx


def with_an_unknown_operator(onx, rng):
    node = any_node(onx, rng)
    node.op_type = rng.choice(["", "Conv9", "Einsum", "Loop", "Split", "Gather", "YieldOp"])
    node.domain = rng.choice(["", "ai.onnx.ml", "nobody.knows"])
    return onx


def with_an_unknown_type(onx, rng):
    place = rng.choice([*onx.graph.input, *onx.graph.output, *onx.graph.initializer])
    number = rng.choice([0, 8, 9, 14, 23, 99, -1])
    if isinstance(place, onnx.TensorProto):
        place.data_type = number
    else:
        place.type.tensor_type.elem_type = number
    return onx


def with_another_shape(onx, rng):
    place = rng.choice([*onx.graph.input, *onx.graph.output, *onx.graph.initializer])
    if isinstance(place, onnx.TensorProto):
        place.dims[rng.randrange(len(place.dims))] = rng.choice([-1, 0, 7, 2**40])
    else:
        place.type.tensor_type.shape.dim.add().dim_value = rng.choice([-1, 0, 7, 2**62])
    return onx


def with_other_attributes(onx, rng):
    node = any_node(onx, rng)
    if node.attribute and rng.random() < 0.6:
        attribute = rng.choice(node.attribute)
        attribute.type = rng.choice([0, 1, 2, 3, 4, 5, 6, 7])
        attribute.i, attribute.ints[:] = rng.choice([-9, 2**40]), [rng.choice([-9, 0, 2**40])] * rng.randrange(4)
    else:
        node.attribute.append(onnx.helper.make_attribute("axis", rng.choice([-9, 99, "a", 1.5, [1, 2]])))
    return onx


def with_names_twice(onx, rng):
    names = [v.name for v in (*onx.graph.input, *onx.graph.initializer)]
    rng.choice(onx.graph.node).output[0] = rng.choice(names)
    return onx


def with_something_removed(onx, rng):
    part = rng.choice([onx.graph.node, onx.graph.input, onx.graph.output, onx.graph.initializer, onx.opset_import])
    del part[rng.randrange(len(part))]
    return onx


def with_another_opset(onx, rng):
    onx.opset_import[0].version = rng.choice([-1, 0, 1, 6, 22, 28, 99, 2**40])
    onx.opset_import[0].domain = rng.choice(["", "", "ai.onnx.ml", "nobody.knows"])
    return onx


BROKEN = [
    truncated,
    with_other_bytes,
    with_a_cycle,
    with_a_missing_input,
    with_another_arity,
    with_an_unknown_operator,
    with_an_unknown_type,
    with_another_shape,
    with_other_attributes,
    with_names_twice,
    with_something_removed,
    with_another_opset,
]


def broken(breaks, number):
    rng = random.Random(number)
    return breaks(parse_model(GOOD[rng.choice(sorted(GOOD))]), rng)


def verdict(breaks, number):
    """Return what became of one broken model: a class of ours, or fine where it still means something."""
    options = {"options": DerivativeOptions.Loss, "loss": "loss"} if number % 7 == 0 else {}
    try:
        onnx_derivative(broken(breaks, number), **options)
    except OnnxTrainError as e:
        return type(e).__name__
    except Exception as e:
        return f"BARE {type(e).__name__}: {e}".replace("\n", " ")
    return "fine"


def verdicts(breaks):
    """Ask another process, and a new one behind each model that ended it or took too long."""
    found: list[str] = []
    while len(found) < EACH:
        command = [sys.executable, "-W", "ignore", __file__, breaks.__name__, str(len(found))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            output, _ = process.communicate(timeout=SECONDS + EACH)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        found += output.splitlines()
        if len(found) < EACH:
            found.append(f"DIED {process.returncode}")
    return found


@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__)
def test_broken_models_raise_errors_of_our_own(breaks):
    found = dict(enumerate(verdicts(breaks)))
    bad = {number: what for number, what in found.items() if what.startswith(("BARE", "DIED"))}
    assert not bad
    raised = Counter(found.values())
    assert raised["fine"] < EACH, raised


def test_more_than_a_thousand_models_are_broken():
    assert EACH * len(BROKEN) >= 1000


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_the_good_ones_are_good(text):
    onx = parse_model(text)
    onnx.checker.check_model(onx, full_check=True)
    onnx_derivative(onx)


if __name__ == "__main__":
    import faulthandler

    breaks = globals()[sys.argv[1]]
    for number in range(int(sys.argv[2]), EACH):
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        print(verdict(breaks, number), flush=True)
