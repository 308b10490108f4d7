"""Damaged models and the errors of the public functions for them: the fuzzer of test_malformed.py.

``PYTHONPATH=. python tests/damaged.py 5000`` makes so many calls and prints those that end in a bare error, a dead process or a
hang. Calls are numbered: ``python tests/damaged.py --show 123`` repeats one and prints its traceback.
"""

from __future__ import annotations

import functools
import itertools
import pickle
import random
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError, Message
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.parser import parse_function, parse_model

#: Seconds for one call: one takes some 30 ms.
SECONDS = 30

#: Models as PyTorch's exporters and others write them: normalisations, attention, loops, bodies, functions.
WRITTEN = {
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
    "normalised": """
        <ir_version: 8, opset_import: ["" : 17]>
        normalised (float[N,4] X) => (float[N,1] Y)
        <float[4] scale = {1, 1, 1, 1}, float[4] b = {0, 0, 0, 0}, float[4] mean = {0, 0, 0, 0}, float[4] var = {1, 1, 1, 1},
         float[4,1] W = {1, 2, 3, 4}, float[1] c = {0.5}>
        {
            a = BatchNormalization <epsilon = 0.001> (X, scale, b, mean, var)
            e = LayerNormalization <axis = -1> (a, scale, b)
            g = Clip(e, , )
            d = Dropout(g)
            h = Gemm <alpha = 0.5, transB = 0> (d, W, c)
            Y = Tanh(h)
        }""",
    "attention": """
        <ir_version: 8, opset_import: ["" : 18]>
        attention (int64[N,3] ids, bool[N,3] mask) => (float[N,2] Y)
        <float[5,4] E = {1,2,3,4, 5,6,7,8, 1,3,5,7, 2,4,6,8, 1,1,2,2}, float[4,4] Q = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1},
         float[4,2] W = {1, 2, 3, 4, 5, 6, 7, 8}, int64[2] axes = {1, 2}, int64[1] one = {1}, float low = {-1e4}, float zero = {0}>
        {
            axis1 = Constant <value_ints = [1]> ()
            x = Gather(E, ids)
            q = MatMul(x, Q)
            k = Transpose <perm = [0, 2, 1]> (x)
            s = MatMul(q, k)
            m = Unsqueeze(mask, axis1)
            f = Where(m, zero, low)
            t = Add(s, f)
            p = Softmax <axis = -1> (t)
            r = MatMul(p, x)
            pooled = ReduceMean <keepdims = 0> (r, one)
            Y = MatMul(pooled, W)
        }""",
    "recurrent": """
        <ir_version: 8, opset_import: ["" : 14]>
        recurrent (float[3,N,2] X) => (float[1,N,1] Y)
        <float[1,4,2] W = {1, 2, 3, 4, 1, 2, 3, 4}, float[1,4,1] R = {1, 2, 3, 4}>
        { all, Y = LSTM <hidden_size = 1> (X, W, R) }""",
    "loop": """
        <ir_version: 8, opset_import: ["" : 16]>
        loop (float[N,2] X) => (float[N,2] Y) <float[2] w = {0.5, 2}, int64 n = {3}, bool go = {1}>
        {
            Y = Loop (n, go, X) <body = step (int64 i, bool c, float[N,2] s) => (bool d, float[N,2] t) {
                d = Identity(c)
                t = Mul(s, w)
            }>
        }""",
    "scan": """
        <ir_version: 8, opset_import: ["" : 16]>
        scan (float[N,2] X) => (float[N,2] Y) <float[2] start = {0, 0}, float[2] w = {0.5, 2}>
        {
            last, Y = Scan <num_scan_inputs = 1, body = step (float[2] s, float[2] x) => (float[2] t, float[2] y) {
                p = Mul(x, w)
                t = Add(s, p)
                y = Tanh(t)
            }> (start, X)
        }""",
    "shapes": """
        <ir_version: 8, opset_import: ["" : 13]>
        shapes (float[N,4] X) => (float[N,2] Y, int64[N] best)
        <float[2,2] W = {1, 2, 3, 4}, int64[3] three = {-1, 2, 2}, int64[1] zero = {0}, int64[1] one = {1}, int64[2] reps = {1, 2},
         int64[1] last = {2}, int64 k = {1}>
        {
            shape = Shape(X)
            rows = Slice(shape, zero, one)
            both = Concat <axis = 0> (rows, last)
            r = Reshape(X, three)
            a, b = Split <axis = 1> (r)
            s = Squeeze(a, one)
            e = Expand(s, both)
            t = Tile(e, reps)
            u = Slice(t, zero, last, one)
            Y = MatMul(u, W)
            best = ArgMax <axis = 1, keepdims = 0> (Y)
        }""",
    "half": """
        <ir_version: 8, opset_import: ["" : 15]>
        half (float16[N,2] X) => (float[N,1] Y) <float16[2,1] W = {1, 2}, double d = {2}>
        {
            h = MatMul(X, W)
            f = Cast <to = 1> (h)
            g = Cast <to = 11> (f)
            p = Pow(g, d)
            e = Einsum <equation = "ij->ij"> (p)
            Y = Cast <to = 1> (e)
        }""",
    "functions": """
        <ir_version: 10, opset_import: ["" : 21, "f" : 1, "pkg.torch" : 1]>
        functions (float[N,2] X) => (float[N,1] Y) <float[2,1] W = {1, 2}, float[1] b = {1}>
        { h = f.linear <alpha = 0.5> (X, W, b) Y = pkg.torch.act (h) }
        <domain: "f", opset_import: ["" : 21, "pkg.torch" : 1]> linear <alpha> (x, w, b) => (y)
            { m = MatMul(x, w) a = Add(m, b) y = LeakyRelu <alpha: float = @alpha> (a) }
        <domain: "pkg.torch", opset_import: ["" : 21]> act <beta: float = 0.3> (x) => (y)
            { c = Constant <value_float: float = @beta> () m = Mul(x, c) y = Gelu(m) }""",
    "quantised": """
        <ir_version: 10, opset_import: ["" : 21]>
        quantised (float[N,2] X) => (float[N,1] Y)
        <int8[2,1] W = {1, 2}, float s = {0.5}, int8 z = {0}>
        { w = DequantizeLinear(W, s, z) m = MatMul(X, w) Y = HardSwish(m) }""",
}

#: Estimators whose conversions are damaged, by their names in the zoo.
CONVERTED = [
    "LogisticRegression: iris",
    "MLPClassifier: relu bin",
    "MLPRegressor: tanh reg",
    "SVC: rbf iris",
    "RandomForestClassifier: iris",
    "GradientBoostingRegressor",
    "KNeighborsRegressor",
    "GaussianProcessRegressor",
    "GaussianNB: iris",
    "Pipeline: scaler, pca, mlp bin",
]


def good_models() -> dict[str, bytes]:
    """Return the models that are damaged, by name."""
    from skl2onnx import to_onnx

    from tests.zoo import ZOO

    found = {name: parse_model(text).SerializeToString() for name, text in WRITTEN.items()}
    for number, name in enumerate(CONVERTED):
        estimator, X = ZOO[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opset = (None, 11, 17)[number % 3]
            options = {"zipmap": False} if number % 2 and "predict_proba" in dir(estimator) else {}
            onx = to_onnx(estimator, np.asarray(X[:1], np.float32), target_opset=opset, options=options)
            found[name] = onx.SerializeToString()
    return found


# ------------------------------------------------------------------- damage


def messages(message):
    todo = [message]
    while todo:
        message = todo.pop()
        yield message
        for field, value in message.ListFields():
            if field.message_type is not None:
                todo.extend([value] if isinstance(value, Message) else value)


def nodes(onx):
    return [m for m in messages(onx) if isinstance(m, onnx.NodeProto)] or [onx.graph.node.add()]


def tensors(onx):
    return [m for m in messages(onx) if isinstance(m, TensorProto)] or [onx.graph.initializer.add()]


def truncated(onx, rng):
    data = onx.SerializeToString()
    return data[: rng.randrange(len(data))]


def with_other_bytes(onx, rng):
    data = bytearray(onx.SerializeToString())
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def with_a_cycle(onx, rng):
    first, last = sorted(rng.choices(range(len(onx.graph.node)), k=2))
    node = onx.graph.node[first]
    node.input[:] = [onx.graph.node[last].output[0], *node.input[1:]]


def with_a_missing_value(onx, rng):
    node = rng.choice(nodes(onx))
    values = rng.choice([node.input, node.output])
    if values:
        values[rng.randrange(len(values))] = rng.choice(["nowhere", "", "X"])


def with_another_arity(onx, rng):
    node = rng.choice(nodes(onx))
    values = rng.choice([node.input, node.output])
    if values and rng.random() < 0.5:
        del values[rng.randrange(len(values))]
    else:
        values.extend([rng.choice(["X", "more", ""])] * rng.randint(1, 4))


@functools.cache
def operators():
    return sorted({s.name for s in onnx.defs.get_all_schemas()})


def with_another_operator(onx, rng):
    node = rng.choice(nodes(onx))
    node.op_type = rng.choice([*operators(), "", "Conv9", "YieldOp", "x" * 999])
    node.domain = rng.choice(["", "", "", "ai.onnx", "ai.onnx.ml", "com.microsoft", "nobody.knows"])
    if rng.random() < 0.5:
        del node.attribute[:]


def with_another_type(onx, rng):
    places = [m for m in messages(onx) if isinstance(m, (TensorProto, onnx.TypeProto.Tensor))]
    place = rng.choice(places)
    number = rng.choice([0, 1, 2, 6, 7, 8, 9, 10, 11, 14, 16, 17, 22, 23, 26, 99, -1])
    setattr(place, "data_type" if isinstance(place, TensorProto) else "elem_type", number)


def with_another_shape(onx, rng):
    shapes = [m for m in messages(onx) if isinstance(m, onnx.TensorShapeProto)]
    shape = rng.choice(shapes)
    if rng.random() < 0.5 or not shape.dim:
        shape.dim.add().dim_value = rng.choice([-1, 0, 7, 2**62])
    elif rng.random() < 0.5:
        del shape.dim[rng.randrange(len(shape.dim))]
    else:
        shape.dim[rng.randrange(len(shape.dim))].dim_value = rng.choice([-1, 0, 1, 7, 2**62, -(2**63)])


def with_other_dimensions(onx, rng):
    tensor = rng.choice(tensors(onx))
    if tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice([-1, 0, 1, 3, 7, 2**40, -(2**63)])
    else:
        tensor.dims.append(rng.choice([-1, 0, 1, 2, 2**62]))


def with_other_data(onx, rng):
    tensor = rng.choice(tensors(onx))
    kind = rng.randrange(5)
    if kind == 0:
        tensor.raw_data = tensor.raw_data[:-1] or b"123"
    elif kind == 1:
        tensor.ClearField("raw_data")
    elif kind == 2:
        tensor.float_data.extend([np.nan, np.inf, 1e38])
    elif kind == 3:
        tensor.raw_data = bytes(rng.choice([0, 255, 127]) for _ in range(len(tensor.raw_data)))
    else:  # right in itself, and of another shape
        shape = rng.choice([[], [0], [1], [2], [3, 1], [1, 1, 1, 1, 1], [0, 3], [5, 5]])
        dtype = rng.choice([np.float32, np.int64, np.float64, np.int32, bool])
        tensor.CopyFrom(numpy_helper.from_array(np.ones(shape, dtype), tensor.name))


def with_other_attributes(onx, rng):
    node = rng.choice(nodes(onx))
    if node.attribute and rng.random() < 0.7:
        attribute = rng.choice(node.attribute)
        kind = rng.randrange(4)
        if kind == 0:
            attribute.type = rng.choice(range(15))
        elif kind == 1:
            attribute.i = rng.choice([-(2**63), -9, -1, 0, 1, 99, 2**40])
            attribute.f = rng.choice([np.nan, np.inf, -1.0, 0.0])
            attribute.s = rng.choice([b"", b"what", b"\xff", b"SAME_UPPER"])
        elif kind == 2:
            attribute.ints[:] = [rng.choice([-9, 0, 1, 2**40])] * rng.randrange(4)
            attribute.floats[:] = attribute.floats[: rng.randrange(len(attribute.floats) + 1)]
            attribute.strings[:] = attribute.strings[: rng.randrange(len(attribute.strings) + 1)]
        else:
            node.attribute.remove(attribute)
    else:
        name = rng.choice(["axis", "axes", "perm", "to", "keepdims", "alpha", "value", "body", "kernel_shape", "pads"])
        node.attribute.append(helper.make_attribute(name, rng.choice([-9, 99, "a", 1.5, [1, 2], [-1]])))


def with_names_twice(onx, rng):
    names = [v.name for v in (*onx.graph.input, *onx.graph.initializer, *onx.graph.output)]
    kind = rng.randrange(4)
    if kind == 0:
        rng.choice(nodes(onx)).output[:1] = [rng.choice(names)]
    elif kind == 1 and onx.graph.initializer:
        onx.graph.initializer.append(rng.choice(onx.graph.initializer))
    elif kind == 2:
        onx.graph.input.append(rng.choice(onx.graph.input))
    else:
        onx.graph.output.append(rng.choice([*onx.graph.output, *onx.graph.input]))


def with_other_names(onx, rng):
    place = rng.choice([m for m in messages(onx) if "name" in m.DESCRIPTOR.fields_by_name])
    place.name = rng.choice(
        ["", " ", "X", "Y", "loss", "é" * 99, "a/b:0", "\0", "__class__", "Y_grad", "sample_weight"]
    )


def with_bytes_for_names(onx, rng):
    texts = [
        (m, f.name)
        for m in messages(onx)
        for f, v in m.ListFields()
        if f.type == f.TYPE_STRING and v and isinstance(v, str)
    ]
    place, field = rng.choice(texts)
    setattr(place, field, "QQQQ")
    return onx.SerializeToString().replace(b"QQQQ", rng.choice([b"\xff\xfe\xfd\xfc", b"\xed\xa0\x80Q", b"Q\x80QQ"]))


def with_something_removed(onx, rng):
    parts = [
        (m, f.name)
        for m in messages(onx)
        for f, v in m.ListFields()
        if not isinstance(v, (str, bytes, int, float, Message)) and v
    ]
    place, field = rng.choice(parts)
    values = getattr(place, field)
    del values[rng.randrange(len(values))]


def with_a_field_cleared(onx, rng):
    fields = [(m, f.name) for m in messages(onx) for f, _ in m.ListFields()]
    place, field = rng.choice(fields)
    place.ClearField(field)


def with_any_field_set(onx, rng):
    place = rng.choice(list(messages(onx)))
    field = rng.choice(place.DESCRIPTOR.fields)
    value = getattr(place, field.name)
    if field.message_type is not None:
        (value if isinstance(value, Message) else value.add()).SetInParent() if isinstance(
            value, Message
        ) else value.add()
        return
    chosen = {
        field.TYPE_STRING: ["", "X", "odd"],
        field.TYPE_BYTES: [b"", b"\xff", b"12345678"],
        field.TYPE_ENUM: [v.number for v in field.enum_type.values] if field.enum_type else [],
        field.TYPE_FLOAT: [np.nan, 0.0, -1.0],
        field.TYPE_DOUBLE: [np.nan, 0.0, -1.0],
        field.TYPE_UINT64: [0, 1, 2**63],
    }.get(field.type, [0, 1, -1, 7, 2**31 - 1])
    drawn = rng.choice(chosen)
    if isinstance(value, (str, bytes, int, float)):
        setattr(place, field.name, drawn)
    else:
        value.append(drawn)


def with_another_opset(onx, rng):
    place = rng.choice([m for m in messages(onx) if isinstance(m, onnx.OperatorSetIdProto)])
    place.version = rng.choice([-1, 0, 1, 6, 8, 9, 12, 13, 22, 28, 99, 2**40])
    if rng.random() < 0.3:
        place.domain = rng.choice(["", "ai.onnx.ml", "nobody.knows", "ai.onnx"])
    if rng.random() < 0.3:
        onx.opset_import.append(place)
    if rng.random() < 0.3:
        onx.ir_version = rng.choice([0, 1, 2, 3, 4, 8, 13, 99, -1])


def with_deep_bodies(onx, rng):
    """Bodies in bodies, deeper than protobuf reads: they are made in place, from the outside in."""
    depth = rng.choice([5, 20, 30, 40, 400])
    if not onx.graph.node or not onx.graph.node[-1].output:  # another damage took them
        return
    last = onx.graph.node[-1].output[0]
    onx.graph.initializer.append(numpy_helper.from_array(np.array(True), "flag"))
    onx.graph.output[0].name = "deep0"
    graph = onx.graph
    for number in range(depth):
        node = graph.node.add(op_type="If", input=["flag"], output=[f"deep{number}"])
        other = node.attribute.add(name="else_branch", type=AttributeProto.GRAPH).g
        other.node.add(op_type="Identity", input=[last], output=["other"])
        other.output.add(name="other")
        graph = node.attribute.add(name="then_branch", type=AttributeProto.GRAPH).g
        graph.output.add(name=f"deep{number + 1}")
    graph.node.add(op_type="Identity", input=[last], output=[f"deep{depth}"])


def with_a_long_chain(onx, rng):
    last = onx.graph.node[-1].output[0]
    operator = rng.choice(["Tanh", "Identity", "Relu", "Transpose", "Reshape", "Unknown"])
    n = rng.choice([50, 1500])
    names = [last, *(f"chain{i}" for i in range(n))]
    onx.graph.node.extend(helper.make_node(operator, [a], [b]) for a, b in itertools.pairwise(names))
    onx.graph.output[0].name = names[-1]


def with_functions(onx, rng):
    node = rng.choice(onx.graph.node)
    head = '<domain: "g", opset_import: ["" : 18, "g" : 1]>'
    body = rng.choice(
        [
            f"{head} act (x) => (y) {{ y = g.act(x) }}",
            f"{head} act (x) => (y) {{ z = Relu(x) }}",
            f"{head} act (x, w) => (y) {{ y = MatMul(x, w) }}",
            f"{head} act <alpha> (x) => (y) {{ y = LeakyRelu <alpha: float = @alpha> (x) }}",
            f"{head} act (x) => (y) {{ y = g.other(x) }}",
            f"{head} act (x) => (y) {{ y = Loop(x) }}",
            f"{head} act () => (y) {{ y = Constant () }}",
            f"{head} act (x) => (x) {{ y = Tanh(x) }}",
        ]
    )
    onx.functions.extend([parse_function(body)] * rng.choice([1, 1, 2]))
    if rng.random() < 0.8:
        onx.opset_import.add(domain="g", version=1)
    node.op_type, node.domain = "act", "g"


def with_a_bomb(onx, rng):
    """Numbers that ask for terabytes when the model runs."""
    name = rng.choice([*onx.graph.input, *onx.graph.output]).name
    size = numpy_helper.from_array(np.array([rng.choice([2**45, 2**62, -1, 0])], np.int64), "size")
    last = onx.graph.output[0].name
    for node in onx.graph.node:
        node.output[:] = ["before" if y == last else y for y in node.output]
    source = name if name != last else "before"
    made = rng.choice(
        [
            [helper.make_node("Expand", [source, "size"], [last])],
            [helper.make_node("Tile", [source, "size"], [last])],
            [helper.make_node("ConstantOfShape", ["size"], ["b"]), helper.make_node("Add", [source, "b"], [last])],
            [helper.make_node("Reshape", [source, "size"], [last])],
            [helper.make_node("Pad", [source, "size"], [last])],
            [helper.make_node("Range", ["size", "size", "size"], [last])],
            [helper.make_node("OneHot", [source, "size", source], [last])],
        ]
    )
    onx.graph.initializer.append(size)
    onx.graph.node.extend(made)


def with_sparse(onx, rng):
    sparse = onnx.SparseTensorProto(dims=rng.choice([[2, 2], [2**40, 2**20], [-1], []]))
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(2, np.float32), "sparse"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array(rng.choice([[0, 1], [9, -9], [2**40, 0]])), "at"))
    if rng.random() < 0.4:
        onx.graph.sparse_initializer.append(sparse)
    node = rng.choice(nodes(onx))
    if node.input:
        onx.graph.node.insert(0, helper.make_node("Constant", [], ["sparse_"], sparse_value=sparse))
        node.input[rng.randrange(len(node.input))] = "sparse_"


def with_external(onx, rng):
    tensor = rng.choice(tensors(onx))
    tensor.data_location = rng.choice([0, 1, 1])
    tensor.external_data.add(
        key=rng.choice(["location", "odd"]), value=rng.choice(["/etc/passwd", "../x", "", "*/_ORT_MEM_ADDR_/*"])
    )


def with_another_kind(onx, rng):
    value = rng.choice([m for m in messages(onx) if isinstance(m, onnx.ValueInfoProto)])
    kind = rng.choice(["sequence_type", "map_type", "optional_type", "sparse_tensor_type", "nothing"])
    tensor = onnx.TypeProto()
    tensor.CopyFrom(value.type)
    value.ClearField("type")
    if kind == "map_type":
        value.type.map_type.key_type = rng.choice([0, 7, 8])
        value.type.map_type.value_type.CopyFrom(tensor)
    elif kind == "sparse_tensor_type":
        value.type.sparse_tensor_type.elem_type = 1
    elif kind != "nothing":
        getattr(value.type, kind).elem_type.CopyFrom(tensor)


def with_swapped_parts(onx, rng):
    kind = rng.randrange(3)
    part = [onx.graph.node, onx.graph.initializer, onx.graph.input][kind]
    shuffled = [type(p)() for p in part]
    for copy, p in zip(shuffled, rng.sample(list(part), len(part)), strict=True):
        copy.CopyFrom(p)
    if kind:  # their names stay where they were
        for copy, p in zip(shuffled, part, strict=True):
            copy.name = p.name
    del part[:]
    part.extend(shuffled)


def with_a_default(onx, rng):
    for tensor in onx.graph.initializer:
        if rng.random() < 0.5:
            shape = rng.choice([list(tensor.dims), None, ["a", "b"]])
            onx.graph.input.append(
                helper.make_tensor_value_info(tensor.name, rng.choice([tensor.data_type, 1, 7]), shape)
            )


def with_texts(onx, rng):
    tensor = rng.choice(tensors(onx))
    shape = rng.choice([tensor.dims, [1], [1] * 40])
    texts = [rng.choice([b"", b"1", b"\xff"])] * min(int(np.prod(shape)), 99)
    tensor.CopyFrom(TensorProto(name=tensor.name, data_type=TensorProto.STRING, dims=shape, string_data=texts))


def with_copies_as_outputs(onx, rng):
    """Outputs that are copies, inputs or weights, beside a node without effect."""
    values = [*onx.graph.output, *onx.graph.input, *onx.graph.value_info]
    value = rng.choice(values)
    onx.graph.node.extend(
        [helper.make_node("Identity", [value.name], ["copied"]), helper.make_node("Cast", ["copied"], ["cast"], to=1)]
    )
    onx.graph.output.add(name=rng.choice(["copied", "cast", value.name])).type.CopyFrom(value.type)
    if onx.graph.initializer and rng.random() < 0.5:
        tensor = rng.choice(onx.graph.initializer)
        onx.graph.output.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, rng.choice([["N"], None])))


ONE = [
    truncated,
    with_other_bytes,
    with_a_cycle,
    with_a_missing_value,
    with_another_arity,
    with_another_operator,
    with_another_type,
    with_another_shape,
    with_other_dimensions,
    with_other_data,
    with_other_attributes,
    with_names_twice,
    with_other_names,
    with_bytes_for_names,
    with_something_removed,
    with_a_field_cleared,
    with_any_field_set,
    with_another_opset,
    with_deep_bodies,
    with_a_long_chain,
    with_functions,
    with_a_bomb,
    with_sparse,
    with_external,
    with_another_kind,
    with_swapped_parts,
    with_a_default,
    with_texts,
    with_copies_as_outputs,
]


def with_two(onx, rng):
    """Two things broken at once."""
    for breaks in rng.sample(ONE[2:], 2):
        changed = None
        with suppress(DecodeError, IndexError):  # the first made it too deep for a copy, or left nothing to break
            changed = breaks(onx, rng)
        if isinstance(changed, bytes):
            return changed
    return onx


BREAKS = [*ONE, with_two]


# -------------------------------------------------------------------- calls


def rows_for(onx, n=6):
    """Return rows for the inputs of a good model."""
    rng = np.random.default_rng(0)
    held = {i.name for i in onx.graph.initializer}
    rows = {}
    for value in onx.graph.input:
        if value.name in held:
            continue
        tensor = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        shape = [d.dim_value or n for d in tensor.shape.dim]
        rows[value.name] = (np.abs(rng.normal(size=shape)) * 2).astype(dtype)
    return rows


def _fit(onx, good):
    from onnxtrain import OrtGradientClassifier, OrtGradientRegressor

    rows = rows_for(good)
    X = next(iter(rows.values())) if len(rows) == 1 else rows
    outputs = {o.name: o for o in good.graph.output}
    classifier = any("label" in name for name in outputs) and "loss" not in outputs
    classes = 2 if good.graph.name.startswith(("MLP", "Pipeline")) else 3
    width = [d.dim_value for d in good.graph.output[0].type.tensor_type.shape.dim[1:]]
    y = np.arange(6) % classes if classifier else np.zeros((6, width[0]) if len(width) == 1 else 6)
    output = None if classifier else good.graph.output[0].name
    kind = OrtGradientClassifier if classifier else OrtGradientRegressor
    kind(onx, max_iter=2, learning_rate=1e-3, output=output, random_state=0).fit(X, y).predict(X)


def _derivative(onx, good):
    from onnxtrain import DerivativeOptions, onnx_derivative

    if any(o.name == "loss" for o in good.graph.output):
        onnx_derivative(onx, options=DerivativeOptions.Loss, loss="loss", label="label")
    else:
        onnx_derivative(onx)


def _loss(onx, good):
    from onnxtrain import add_loss_output

    last = good.graph.output[-1]
    classes = any("label" in o.name for o in good.graph.output)
    add_loss_output(
        onx, "log" if classes else "squared_error", output_index=None if classes else last.name, weight_name="weights"
    )


def _rest(onx, good):
    from onnxtrain.loss_helper import get_train_initializer
    from onnxtrain.ortgradient import OrtGradientForwardBackward

    get_train_initializer(onx)
    OrtGradientForwardBackward(onx)


def _check(onx, good):
    from onnxtrain.testing import check_gradient

    check_gradient(onx, rows_for(good), max_entries=2)


def _weights(onx, good):
    from onnxtrain import trainable_weights

    trainable_weights(onx)


CALLS = {"fit": _fit, "derivative": _derivative, "loss": _loss, "weights": _weights, "forward": _rest, "check": _check}

#: fit goes through the most; it is called more often.
_TURN = ["fit", "derivative", "fit", "loss", "weights", "fit", "forward", "derivative", "check"]


def case(number, good):
    """Return the name of a case, the call, the damaged model, and the good one."""
    rng = random.Random(number)
    breaks = BREAKS[number % len(BREAKS)]
    name = rng.choice(sorted(good))
    onx = onnx.load_model_from_string(good[name])
    call = rng.choice(_TURN)
    damaged = breaks(onx, rng)
    damaged = onx if damaged is None else damaged
    if isinstance(damaged, onnx.ModelProto) and rng.random() < 0.7:
        with suppress(EncodeError):  # it is too deep for bytes
            damaged = damaged.SerializeToString()
    return f"{call}({name} {breaks.__name__})", call, damaged, onnx.load_model_from_string(good[name])


def outcome(call, damaged, good):
    """Return what became of a call: a class of ours, fine where the model still means something, or BARE; and how."""
    from onnxtrain.errors import OnnxTrainError

    try:
        CALLS[call](damaged, good)
    except OnnxTrainError as e:
        return type(e).__name__, ""
    except Exception as e:
        where = traceback.extract_tb(e.__traceback__)
        own = next((f for f in reversed(where) if "onnxtrain/" in f.filename), where[-1])
        place = f"{own.filename.rpartition('/')[2]}:{own.lineno}"
        return "BARE", f"{type(e).__name__}: {str(e)[:150]} at {place}".replace("\n", " ")
    return "fine", ""


def verdict(number, good):
    """Return what became of a case, as text."""
    name, call, damaged, onx = case(number, good)
    kind, how = outcome(call, damaged, onx)
    return f"BARE {name} {how}" if kind == "BARE" else kind


def verdicts(numbers, good):
    """Ask another process, and a new one behind each model that ended it or took too long."""
    found: dict[int, str] = {}
    left = list(numbers)
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        models.write_bytes(pickle.dumps(good))
        while left:
            command = [
                sys.executable,
                "-W",
                "ignore",
                __file__,
                "--child",
                str(models),
                f"{left[0]}:{left[-1] + 1}:{left[1] - left[0] if len(left) > 1 else 1}",
            ]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            output, errors = process.communicate()
            answers = [line.partition(" ")[::2] for line in output.splitlines()]
            found.update({int(number): answer for number, answer in answers})
            left = left[len(answers) :]
            if left:
                name = case(left[0], good)[0]
                if "onnxruntime_inference_collection.py" in next((x for x in errors.splitlines() if "File" in x), ""):
                    found[left.pop(0)] = "onnxruntime"  # it hangs or ends the process itself: a loop without an end
                    continue
                tail = " | ".join(line.strip() for line in errors.splitlines() if "File" in line or "rror" in line)[
                    :600
                ]
                found[left.pop(0)] = f"DIED {name} {process.returncode} {tail}"
    return found


def failures(found):
    return {number: answer for number, answer in found.items() if answer.startswith(("BARE", "DIED"))}


def _child(models, numbers):
    import faulthandler

    good = pickle.loads(Path(models).read_bytes())
    for number in range(*map(int, numbers.split(":"))):
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        print(number, verdict(number, good), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        _child(*sys.argv[2:])
    elif sys.argv[1] == "--show":
        models = good_models()
        name, call, damaged, onx = case(int(sys.argv[2]), models)
        print(name)
        CALLS[call](damaged, onx)
    else:
        start, _, stop = sys.argv[1].rpartition(":")
        found = verdicts(range(int(start or 0), int(stop)), good_models())
        for number, answer in failures(found).items():
            print(number, answer)
        print(Counter(answer.split()[0] for answer in found.values()))
