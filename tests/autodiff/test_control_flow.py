"""Rules of If, Loop and Scan, and of the recurrent operators made of them."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from onnxtrain.errors import GradientError
from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.runtime.session import run
from onnxtrain.testing import check_gradient

rng = np.random.default_rng(14)


def real(*shape):
    return rng.uniform(-1, 1, shape)


def parse(signature, body, opset=21):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\nflow ({signature}) {{\n{body}\n}}')


IF = """
    c = Cast <to = 9> (C)
    Y = If (c) <
        then_branch = g1 () => (double[N,3] a) { a = Mul(X, W) },
        else_branch = g2 () => (double[N,3] b) { e = Exp(X)  b = Add(e, e) }>"""

# one branch hands out what is outside, and both put out one value twice
IF_TWICE = """
    c = Cast <to = 9> (C)
    Y, Z = If (c) <
        then_branch = g1 () => (double[N,3] a, double[N,3] a2) { a = Mul(X, W)  a2 = Identity(a) },
        else_branch = g2 () => (double[N,3] b, double[N,3] d) { b = Identity(X)  d = Identity(W) }>"""

LOOP = """
    {count}
    yes = Constant <value = bool {{1}}> ()
    last, each = Loop (M, yes, X) <body = g (int64 i, bool going, double[N,3] x) => (bool on, double[N,3] y, double[N,3] s) {{
        on = Identity(going)
        m = MatMul(x, W)
        y = Tanh(m)
        k = Cast <to = 11> (i)
        s = Mul(y, k)
    }}>"""

# the body stops itself, carries an integer and uses no state in its derivative
WHILE = """
    zero = Constant <value = int64 {0}> ()
    four = Constant <value = int64 {4}> ()
    yes = Constant <value = bool {1}> ()
    n, last = Loop (, yes, zero, X) <body = g (int64 i, bool going, int64 k, double[N,3] x)
        => (bool on, int64 k1, double[N,3] y) {
        one = Constant <value = int64 {1}> ()
        k1 = Add(k, one)
        on = Less(k1, four)
        y = Add(x, W)
    }>"""

SCAN = """
    last, each = Scan <num_scan_inputs = 1 {attributes},
        body = g (double[3] h, double[3] x) => (double[3] y, double[3] s) {{
            p = Mul(h, W)
            q = Add(p, x)
            y = Tanh(q)
            s = Mul(y, x)
        }}> (H, X)"""

NESTED = """
    last = Scan <num_scan_inputs = 1, body = g (double[3] h, double[3] x) => (double[3] y) {
            zero = Constant <value = double {0.0}> ()
            total = ReduceSum <keepdims = 0> (x)
            up = Greater(total, zero)
            y = If (up) <
                then_branch = t () => (double[3] a) { m = Mul(h, W)  a = Add(m, x) },
                else_branch = e () => (double[3] b) { b = Sub(h, x) }>
        }> (H, X)"""

# much of a turn needs no state: products with a matrix, parts, slices of fewer axes than others (V) and of as many (U)
FREE = """
    last, each = Scan <num_scan_inputs = 3 {attributes}, body = g (double[N,3] h, double[N,3] x, double[N,2] u, double[3] v)
        => (double[N,3] y, double[N,2] s) {{
            m = MatMul(x, W)
            first, others = Split <axis = 1, num_outputs = 2> (m)
            joined = Concat <axis = -1> (others, first)
            t = Tanh(joined)
            e = Mul(v, v)
            a = Mul(h, t)
            b = Mul(a, x)
            c = Mul(e, b)
            y = Add(c, m)
            k = ReduceSum <keepdims = 1> (v)
            s = Mul(u, k)
        }}> (H, X, U, V)"""

# the gradient of a turn's product is that of the state itself, and two weights have one gradient
ADDED_UP = """
    last = Scan <num_scan_inputs = 1, body = g (double[N,3] h, double[N,3] x) => (double[N,3] y) {
            both = Add(W, V)
            m = MatMul(x, both)
            n = MatMul(x, U)
            k = Add(m, n)
            y = Add(h, k)
        }> (H, X)"""

# what is sliced, and what is taken from outside, only say which way to go
THRESHOLDS = """
    last = Scan <num_scan_inputs = 1, body = g (double[3] h, double[3] x) => (double[3] y) {
            up = Greater(x, W)
            q = Mul(h, h)
            y = Where(up, q, h)
        }> (H, X)"""

# two states of different shapes, and a condition that is looked at
TWO_STATES = """
    yes = Constant <value = bool {1}> ()
    last, other = Loop (M, yes, X, V) <body = g (int64 i, bool going, double[N,3] x, double[2] v)
        => (bool on, double[N,3] y, double[2] w) {
        on = Identity(going)
        t = Tanh(x)
        y = Where(going, t, x)
        w = Mul(v, v)
    }>"""

# the first turn is only made if the condition, computed from the state, holds
STOPS = """
    two = Constant <value = double {2.0}> ()
    total = ReduceSum <keepdims = 0> (X)
    small = Less(total, two)
    last = Loop (, small, X) <body = g (int64 i, bool going, double[N,3] x) => (bool on, double[N,3] y) {
        y = Mul(x, W)
        sum = ReduceSum <keepdims = 0> (y)
        on = Less(sum, two)
    }>"""

# neither the body nor what is behind it says how many axes there are
BARE = """
    yes = Constant <value = bool {1}> ()
    a = Loop (M, yes, X) <body = g (int64 i, bool going, double[] x) => (bool on, double[] y) {
        on = Identity(going)
        m = MatMul(x, W)
        y = Tanh(m)
    }>
    b = Abs(a)
    c = Loop (M, yes, a) <body = h (int64 j, bool going2, double[] p) => (bool on2, double[] q) {
        on2 = Identity(going2)
        t = Mul(p, b)
        q = Sigmoid(t)
    }>
    last = MatMul(c, W)"""

INNER = """
    yes = Constant <value = bool {1}> ()
    axes = Constant <value_ints = [0]> ()
    last = Loop (M, yes, X) <body = g (int64 i, bool going, double[N,3] x) => (bool on, double[N,3] y) {
        on = Identity(going)
        y, each = Loop (i, yes, x) <body = h (int64 j, bool going2, double[N,3] p) => (bool on2, double[N,3] q, double[N,3] r) {
            on2 = Identity(going2)
            u = Unsqueeze(p, axes)
            s = Squeeze(u, axes)
            m = MatMul(s, W)
            q = Tanh(m)
            r = Mul(q, x)
        }>
    }>"""

STATE, STEPS = {"H": real(3), "W": real(3)}, "double[3] H, double[3] W, double[T,3] X"

FREELY = "double[N,3] H, double[3,3] W"

ROWS = {
    "if": (
        "bool C, double[N,3] X, double[N,3] W) => (double[N,3] Y",
        IF,
        {"C": np.array(True), "X": real(2, 3), "W": real(2, 3)},
    ),
    "else": (
        "bool C, double[N,3] X, double[N,3] W) => (double[N,3] Y",
        IF,
        {"C": np.array(False), "X": real(2, 3), "W": real(2, 3)},
    ),
    "twice": (
        "bool C, double[N,3] X, double[N,3] W) => (double[N,3] Y, double[N,3] Z",
        IF_TWICE,
        {"C": np.array(True), "X": real(2, 3), "W": real(2, 3)},
    ),
    "outside": (
        "bool C, double[N,3] X, double[N,3] W) => (double[N,3] Y, double[N,3] Z",
        IF_TWICE,
        {"C": np.array(False), "X": real(2, 3), "W": real(2, 3)},
    ),
    "one of two": (
        "bool C, double[N,3] X, double[N,3] W) => (double[N,3] Z",
        IF_TWICE,
        {"C": np.array(False), "X": real(2, 3), "W": real(2, 3)},
    ),
    "loop": (
        "double[N,3] X, double[3,3] W) => (double[N,3] last, double[M,N,3] each",
        LOOP.format(count="M = Constant <value = int64 {3}> ()"),
        {"X": real(2, 3), "W": real(3, 3)},
    ),
    "loop of a length given": (
        "int64 M, double[N,3] X, double[3,3] W) => (double[N,3] last, double[T,N,3] each",
        LOOP.format(count=""),
        {"M": np.array(2), "X": real(2, 3), "W": real(3, 3)},
    ),
    "loop of no turn": (
        "int64 M, double[N,3] X, double[3,3] W) => (double[N,3] last, double[T,N,3] each",
        LOOP.format(count=""),
        {"M": np.array(0), "X": real(2, 3), "W": real(3, 3)},
    ),
    "while that stops": (
        "double[N,3] X, double[N,3] W) => (double[N,3] last",
        STOPS,
        {"X": np.ones((2, 3)), "W": real(2, 3)},
    ),
    "while that goes on": (
        "double[N,3] X, double[N,3] W) => (double[N,3] last",
        STOPS,
        {"X": np.full((2, 3), 0.1), "W": np.full((2, 3), 2.5)},
    ),
    "loops of which nothing says the shape": (
        "int64 M, double[N,3] X, double[3,3] W) => (double[N,3] last",
        BARE,
        {"M": np.array(2), "X": real(2, 3), "W": real(3, 3)},
    ),
    "loop of a shape that is not known": (
        "int64 M, double[] X, double[] W) => (double[] last, double[] each",
        """yes = Constant <value = bool {1}> ()
        last, each = Loop (M, yes, X) <body = g (int64 i, bool going, double[] x) => (bool on, double[] y, double[] s) {
            on = Identity(going)
            y = Mul(x, W)
            s = Tanh(y)
        }>""",
        {"M": np.array(2), "X": real(2, 3), "W": real(3)},
    ),
    "loop in a loop, neither says the shape": (
        "int64 M, double[N,3] X, double[3,3] W) => (double[N,3] last",
        INNER.replace("double[N,3]", "double[]").replace("last = Loop", "z = Loop") + " last = MatMul(z, W)",
        {"M": np.array(2), "X": real(2, 3), "W": real(3, 3)},
    ),
    "loop in a loop, first of no turn": (
        "int64 M, double[N,3] X, double[3,3] W) => (double[N,3] last",
        INNER,
        {"M": np.array(3), "X": real(2, 3), "W": real(3, 3)},
    ),
    "loop that uses its last state only": (
        "int64 M, double[N,3] X, double[3,3] W) => (double[N,3] last",
        LOOP.format(count=""),
        {"M": np.array(2), "X": real(2, 3), "W": real(3, 3)},
    ),
    "loop that uses its turns only": (
        "int64 M, double[N,3] X, double[3,3] W) => (double[T,N,3] each",
        LOOP.format(count=""),
        {"M": np.array(2), "X": real(2, 3), "W": real(3, 3)},
    ),
    "while": ("double[N,3] X, double[N,3] W) => (int64 n, double[N,3] last", WHILE, {"X": real(2, 3), "W": real(2, 3)}),
    "scan": (f"{STEPS}) => (double[3] last, double[T,3] each", SCAN.format(attributes=""), {**STATE, "X": real(4, 3)}),
    "scan, one turn": (
        f"{STEPS}) => (double[3] last, double[T,3] each",
        SCAN.format(attributes=""),
        {**STATE, "X": real(1, 3)},
    ),
    "scan from the end": (
        f"{STEPS}) => (double[3] last, double[T,3] each",
        SCAN.format(attributes=", scan_input_directions = [1], scan_output_directions = [1]"),
        {**STATE, "X": real(4, 3)},
    ),
    "scan, much of it free": (
        f"{FREELY}, double[T,N,3] X, double[T,N,2] U, double[T,3] V) => (double[N,3] last, double[T,N,2] each",
        FREE.format(attributes=""),
        {"H": real(2, 3), "W": real(3, 3), "X": real(4, 2, 3), "U": real(4, 2, 2), "V": real(4, 3)},
    ),
    "scan, much of it free, from the end": (
        f"{FREELY}, double[T,N,3] X, double[T,N,2] U, double[T,3] V) => (double[N,3] last, double[T,N,2] each",
        FREE.format(attributes=", scan_input_directions = [1, 0, 1], scan_output_directions = [1]"),
        {"H": real(2, 3), "W": real(3, 3), "X": real(4, 2, 3), "U": real(4, 2, 2), "V": real(4, 3)},
    ),
    "scan, much of it free, along other axes": (
        f"{FREELY}, double[N,T,3] X, double[T,N,2] U, double[3,T] V) => (double[N,3] last, double[T,N,2] each",
        FREE.format(attributes=", scan_input_axes = [1, 0, 1]"),
        {"H": real(2, 3), "W": real(3, 3), "X": real(2, 4, 3), "U": real(4, 2, 2), "V": real(3, 4)},
    ),
    "scan that adds up products": (
        f"{FREELY}, double[3,3] U, double[3,3] V, double[T,N,3] X) => (double[N,3] last",
        ADDED_UP,
        {"H": real(2, 3), "W": real(3, 3), "U": real(3, 3), "V": real(3, 3), "X": real(4, 2, 3)},
    ),
    "scan along columns": (
        "double[3] H, double[3] W, double[3,T] X) => (double[3] last, double[3,T] each",
        SCAN.format(attributes=", scan_input_axes = [1], scan_output_axes = [1]"),
        {**STATE, "X": real(3, 4)},
    ),
    "scan with thresholds": (f"{STEPS}) => (double[3] last", THRESHOLDS, {**STATE, "X": real(4, 3)}),
    "loop of two states": (
        "int64 M, double[N,3] X, double[2] V) => (double[N,3] last, double[2] other",
        TWO_STATES,
        {"M": np.array(2), "X": real(2, 3), "V": real(2)},
    ),
    "if in scan": (f"{STEPS}) => (double[3] last", NESTED, {**STATE, "X": real(4, 3)}),
}


@pytest.mark.parametrize("name", ROWS)
def test_flow(check_model, name):
    signature, body, feeds = ROWS[name]
    model = parse(signature, body)
    check_model(model, feeds)


@pytest.mark.parametrize("name", ["if", "outside", "loop of a length given", "loop of no turn", "scan"])
def test_derivative_of_a_derivative(name):
    signature, body, feeds = ROWS[name]
    derived = onnx_derivative(parse(signature, body))
    onnx.checker.check_model(derived, full_check=True)
    shapes = {"Y_grad": (2, 3), "Z_grad": (2, 3), "last_grad": (2, 3), "each_grad": (2, 2, 3)}
    if name == "loop of no turn":
        shapes |= {"each_grad": (0, 2, 3)}
    if name == "scan":
        shapes |= {"last_grad": (3,), "each_grad": (4, 3)}
    given = {i.name: real(*shapes[i.name]) for i in derived.graph.input if i.name.endswith("_grad")}
    check_gradient(derived, feeds | given, max_entries=6)


def test_a_turn_back_computes_what_it_needs_and_no_more():
    derived = onnx_derivative(parse(*ROWS["while"][:2]))
    _, back = [n for n in derived.graph.node if n.op_type in ("Loop", "Scan")]
    body = next(a.g for a in back.attribute if a.name == "body")
    assert {n.op_type for n in body.node} == {"Identity", "Add"}, "the sum of the gradients of W"
    assert len(back.input) == 3, "gradients, sums, and one value that tells the number of turns"


def test_a_sequence_is_carried():
    model = parse(
        "double[3] X) => (double[K] Y",
        """
        M = Constant <value = int64 {2}> ()
        yes = Constant <value = bool {1}> ()
        empty = SequenceEmpty <dtype = 11> ()
        s, x = Loop (M, yes, empty, X) <body = g (int64 i, bool going, seq(double[3]) l, double[3] v)
            => (bool on, seq(double[3]) l1, double[3] w) {
            on = Identity(going)
            w = Mul(v, v)
            l1 = SequenceInsert(l, w)
        }>
        Y = Mul(x, x)""",
    )
    with pytest.raises(GradientError, match="carries .*, which is not a tensor"):
        onnx_derivative(model)


# ---------------------------------------------------------------- recurrent

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def layer(op_type, gates, direction="forward", extra="", more=(), outputs=("Y", "Yh", "Yc"), dtype="double"):
    """Return a recurrent layer of 2 units on 3 inputs with a bias, and its operands."""
    d = DIRECTIONS[direction]
    names = ["X", "W", "R", "B", *more]
    shapes = {
        "X": "T,N,3",
        "W": f"{d},{gates * 2},3",
        "R": f"{d},{gates * 2},2",
        "B": f"{d},{gates * 4}",
        "H": f"{d},N,2",
        "C": f"{d},N,2",
        "P": f"{d},6",
        "Y": f"T,{d},N,2",
        "Yh": f"{d},N,2",
        "Yc": f"{d},N,2",
    }
    outputs = outputs if op_type == "LSTM" else outputs[:2]
    inputs = ", ".join("int32[N] L" if n == "L" else f"{dtype}[{shapes[n]}] {n}" for n in names if n)
    results = ", ".join(f"{dtype}[{shapes[n]}] {n}" for n in outputs if n)
    body = f'{", ".join(outputs)} = {op_type} <hidden_size = 2, direction = "{direction}"{extra}> ({", ".join(names)})'
    sizes = {"T": 3, "N": 2}
    feeds = {n: real(*(sizes.get(s) or int(s) for s in shapes[n].split(","))) for n in names if n and n != "L"}
    if "L" in names:
        feeds["L"] = np.array([3, 2], np.int32)
    return parse(f"{inputs}) => ({results}", body), feeds


LAYERS = [
    *((op_type, gates, way) for op_type, gates in [("RNN", 1), ("GRU", 3), ("LSTM", 4)] for way in DIRECTIONS),
    ("GRU", 3, "forward", ", linear_before_reset = 1", ["", "H"]),
    ("LSTM", 4, "forward", "", ["", "H", "C", "P"]),
    ("RNN", 1, "reverse", ', activations = ["Affine"], activation_alpha = [0.5], activation_beta = [0.1]'),
]

#: onnx.reference knows neither lengths nor coupled gates.
LAYERS_FLOAT32 = [
    ("RNN", 1, "reverse", "", ["L"]),
    ("GRU", 3, "bidirectional", ", linear_before_reset = 1", ["L", "H"]),
    ("LSTM", 4, "bidirectional", "", ["L", "H", "C", "P"]),
    ("LSTM", 4, "forward", ", input_forget = 1", ["", "", "", "P"]),
    (
        "RNN",
        1,
        "bidirectional",
        ', activations = ["ScaledTanh", "Affine"], activation_alpha = [0.7, 0.2], activation_beta = [0.5, 0.1]',
    ),
]


@pytest.mark.parametrize("row", LAYERS)
def test_recurrent(check_model, row):
    model, feeds = layer(*row)
    check_model(model, feeds, max_entries=6)


@pytest.mark.parametrize("row", LAYERS_FLOAT32)
def test_recurrent_in_float32(check_float32, row):
    check_float32(*layer(*row, dtype="float"))


def all_nodes(graph):
    """Return the nodes of a graph and of the graphs inside them."""
    inner = (a.g for n in graph.node for a in n.attribute if a.HasField("g"))
    return [*graph.node, *(n for g in inner for n in all_nodes(g))]


def turns_of(model):
    """Return the operators inside each Scan."""
    scans = [n for n in model.graph.node if n.op_type == "Scan"]
    return [[n.op_type for a in scan.attribute for n in a.g.node] for scan in scans]


def test_a_turn_holds_what_goes_from_turn_to_turn():
    """The gates of all turns are computed at once from h, the output of the layer; its weights' gradients behind."""
    derived, _ = layer("LSTM", 4)
    turns = turns_of(onnx_derivative(derived))
    assert turns == [
        ["Mul", "Add", "Identity"],  # c = f c + i g, and c before the turn
        ["Add", "Mul", "Mul", "Add", "Mul", "Mul", "Mul", "Mul", "Concat", "Gemm"],
    ]
    derived, _ = layer("RNN", 1)
    assert turns_of(onnx_derivative(derived)) == [["Add", "Mul", "Gemm"]]


def test_a_layer_whose_output_is_not_there():
    """Without Y, h before each turn comes from the recurrence, as it does where rows have lengths."""
    model, feeds = layer("LSTM", 4, outputs=("", "Yh", "Yc"))
    check_gradient(model, feeds)
    assert "MatMul" in turns_of(onnx_derivative(model))[0]


#: The parameters that the operator's description gives an activation without any.
ACTIVATIONS = [
    ("Softsign", {}),
    ("Softplus", {}),
    ("Elu", {"alpha": 1.0}),
    ("ThresholdedRelu", {"alpha": 1.0}),
    ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}),
]


def with_activation(name, given):
    lists = "".join(f", activation_{key} = [{value}]" for key, value in given.items())
    return layer("RNN", 1, "forward", f', activations = ["{name}"]{lists}', dtype="float")


@pytest.mark.parametrize("activation,defaults", ACTIVATIONS)
def test_activation(check_float32, activation, defaults):
    (model, feeds), (explicit, _) = with_activation(activation, {}), with_activation(activation, defaults)
    feeds = {name: x.astype(np.float32) for name, x in feeds.items()}
    if not np.allclose(run(model, feeds)[0], run(explicit, feeds)[0], atol=1e-6):
        pytest.skip(f"this onnxruntime has other defaults for {activation}")
    check_float32(model, feeds)


PARAMETERS = [
    ("Elu", {"alpha": 0.5}),
    ("LeakyRelu", {"alpha": 0.25}),
    ("ThresholdedRelu", {"alpha": 0.25}),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.75}),
    ("ScaledTanh", {"alpha": 0.5, "beta": 0.75}),  # without parameters onnxruntime's is 0
]


@pytest.mark.parametrize("activation,given", PARAMETERS)
def test_parameters_of_an_activation(check_float32, activation, given):
    check_float32(*with_activation(activation, given))


def test_batch_first(check_model):
    model = parse(
        "double[N,T,3] X, double[1,2,3] W, double[1,2,2] R, double[N,1,2] H) => (double[N,T,1,2] Y, double[N,1,2] Yh",
        "Y, Yh = RNN <hidden_size = 2, layout = 1> (X, W, R, , , H)",
    )
    feeds = {"X": real(2, 3, 3), "W": real(1, 2, 3), "R": real(1, 2, 2), "H": real(2, 1, 2)}
    check_model(model, feeds)


def test_recurrent_refused():
    model, _ = layer("RNN", 1, "forward", ', activations = ["Wave"]')
    with pytest.raises(GradientError, match="unknown activation 'Wave'"):
        onnx_derivative(model)
