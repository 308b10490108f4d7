"""Random straight-line programs and random broadcast shapes, against central differences and PyTorch.

A table of rules does not test the engine: here values are used twice, paths
meet, operands are broadcast along dimensions that may be known, named or not.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from sklearn.utils.fixes import parse_version

from onnxtrain.grad_helper import DerivativeOptions, onnx_derivative
from onnxtrain.testing import check_gradient

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import strategies as st  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

#: More than two thousand programs in each run of the tests, the same ones each time.
PROGRAMS, BROADCASTS, CONTROLS = 1050, 750, 240

#: How the programs with control flow declare a matrix: by numbers, with a name, without shape in bodies.
FORMS = [{"T": "double[2,3]", "N": 2}, {"T": "double[N,3]", "N": "N"}, {"T": "double[]", "N": "N"}]


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator of ONNX: how many operands, what it computes (numpy and torch), its settings for given operands."""

    name: str
    arity: int
    compute: Callable
    settings: Callable = lambda draw, *xs: {}
    fits: Callable = lambda *xs: True


def lib(x):
    return np if isinstance(x, np.ndarray) else torch


def softplus(x):
    return np.logaddexp(x, 0) if lib(x) is np else torch.logaddexp(x, torch.zeros_like(x))


def axes_of(draw, x):
    return tuple(draw(st.lists(st.integers(0, x.ndim - 1), unique=True, min_size=1).map(sorted)))


def reduced(name):
    def compute(x, *, axes, keepdims):
        if lib(x) is np:
            return getattr(x, name)(axis=axes, keepdims=bool(keepdims))
        return getattr(x, "amax" if name == "max" else name)(dim=axes, keepdim=bool(keepdims))

    return compute


def reduction(draw, x):
    return {"axes": axes_of(draw, x), "keepdims": draw(st.integers(0, 1))}


def softmax(x, *, axis):
    if lib(x) is not np:
        return torch.softmax(x, axis)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def transpose(x, *, perm):
    return x.transpose(perm) if lib(x) is np else x.permute(perm)


def flatten(x, *, axis):
    return x.reshape((int(np.prod(x.shape[:axis])), -1))


def multiplies(a, b):
    inner = b.shape[-2] if b.ndim > 1 else b.shape[0] if b.ndim else 0
    return a.ndim > 0 and b.ndim > 0 and a.shape[-1] == inner and broadcasts(a.shape[:-2], b.shape[:-2])


def broadcasts(*shapes):
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def elementwise(*xs):
    return broadcasts(*(x.shape for x in xs))


def has_axes(x):
    return x.ndim > 0


def axis_of(draw, x):
    return {"axis": draw(st.integers(0, x.ndim - 1))}


UNARY = [
    Operator("Tanh", 1, lambda x: lib(x).tanh(x)),
    Operator("Sigmoid", 1, lambda x: 1 / (1 + lib(x).exp(-x))),
    Operator("Sin", 1, lambda x: lib(x).sin(x)),
    Operator("Exp", 1, lambda x: lib(x).exp(x)),
    Operator("Neg", 1, lambda x: -x),
    Operator("Abs", 1, lambda x: abs(x)),
    Operator("Softplus", 1, softplus),
    Operator("ReduceSum", 1, reduced("sum"), reduction, has_axes),
    Operator("ReduceMean", 1, reduced("mean"), reduction, has_axes),
    Operator("ReduceMax", 1, reduced("max"), reduction, has_axes),
    Operator("Softmax", 1, softmax, axis_of, has_axes),
    Operator(
        "Transpose", 1, transpose, lambda draw, x: {"perm": tuple(draw(st.permutations(range(x.ndim))))}, has_axes
    ),
    Operator("Flatten", 1, flatten, axis_of, has_axes),
]
BINARY = [
    Operator("Add", 2, lambda a, b: a + b, fits=elementwise),
    Operator("Sub", 2, lambda a, b: a - b, fits=elementwise),
    Operator("Mul", 2, lambda a, b: a * b, fits=elementwise),
    Operator("Div", 2, lambda a, b: a / b, fits=elementwise),
    Operator("Max", 2, lambda a, b: lib(a).maximum(a, b), fits=elementwise),
    Operator("Min", 2, lambda a, b: lib(a).minimum(a, b), fits=elementwise),
    Operator("Pow", 2, lambda a, b: a**b, fits=elementwise),
    Operator("Where", 2, lambda a, b: lib(a).where(a > b, a, b), fits=elementwise),
    Operator("MatMul", 2, lambda a, b: a @ b, fits=multiplies),
]
#: Far from where it is not smooth, whatever the operand; the others follow on any value of moderate size.
DELICATE = {"Div", "Pow", "Exp"}


@dataclasses.dataclass
class Program:
    """Nodes of a graph, and the same steps for torch."""

    inputs: list[np.ndarray]
    names: str
    nodes: list[onnx.NodeProto] = dataclasses.field(default_factory=list)
    constants: list[onnx.TensorProto] = dataclasses.field(default_factory=list)
    steps: list[tuple] = dataclasses.field(default_factory=list)
    values: list[np.ndarray] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.values += self.inputs

    def append(self, operator, operands, settings):
        name = f"v{len(self.values)}"
        inputs = [f"v{i}" for i in operands]
        attributes = dict(settings)
        if "axes" in attributes:
            axes = np.array(attributes.pop("axes"), np.int64)
            self.constants.append(onnx.numpy_helper.from_array(axes, f"axes_{name}"))
            inputs.append(f"axes_{name}")
        if operator.name == "Where":
            self.nodes.append(helper.make_node("Greater", inputs, [f"c_{name}"]))
            inputs.insert(0, f"c_{name}")
        self.nodes.append(helper.make_node(operator.name, inputs, [name], **attributes))
        self.steps.append((operator, operands, settings))
        self.values.append(np.asarray(operator.compute(*(self.values[i] for i in operands), **settings)))

    def dimension(self, value, axis):
        size = self.inputs[value].shape[axis]
        return {"known": size, "named by size": f"size_{size}", "all different": f"v{value}_{axis}"}[self.names]

    def model(self, outputs):
        graph = helper.make_graph(
            self.nodes,
            "program",
            [
                helper.make_tensor_value_info(
                    f"v{i}", TensorProto.DOUBLE, [self.dimension(i, axis) for axis in range(x.ndim)]
                )
                for i, x in enumerate(self.inputs)
            ],
            [helper.make_tensor_value_info(f"v{i}", TensorProto.DOUBLE, [None] * self.values[i].ndim) for i in outputs],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)

    def torch_gradients(self, outputs):
        values = [torch.tensor(x, requires_grad=True) for x in self.inputs]
        for operator, operands, settings in self.steps:
            values.append(operator.compute(*(values[i] for i in operands), **settings))
        sum(values[i].sum() for i in outputs).backward()
        zeros = (torch.zeros_like(x) for x in values)
        return [
            (zero if x.grad is None else x.grad).numpy()
            for x, zero in zip(values[: len(self.inputs)], zeros, strict=False)
        ]


NAMES = st.sampled_from(["known", "named by size", "all different"])
SIZES = st.integers(1, 3)


@st.composite
def operand_shapes(draw, count):
    """Draw shapes that broadcast together: a common one, with axes in front left out and sizes set to 1."""
    common = draw(st.lists(SIZES, max_size=3))
    shapes = []
    for _ in range(count):
        kept = common[draw(st.integers(0, len(common))) :]
        shapes.append([draw(st.sampled_from([size, size, 1])) for size in kept])
    return shapes


@st.composite
def programs(draw):
    shapes = draw(operand_shapes(draw(st.integers(1, 3))))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    program = Program([np.asarray(rng.uniform(0.3, 1.8, shape)) for shape in shapes], draw(NAMES))
    for _ in range(draw(st.integers(1, 7))):
        operator = draw(st.sampled_from(UNARY + BINARY))
        # mostly what came last, so that programs are deep; often the same value twice, so that paths meet
        positions = st.sampled_from([*range(len(program.values)), len(program.values) - 1])
        operands = [draw(positions) for _ in range(operator.arity)]
        xs = [program.values[i] for i in operands]
        if not operator.fits(*xs):
            continue
        if operator.name in DELICATE and any((x < 0.2).any() or (x > 3).any() for x in xs):
            continue
        program.append(operator, operands, operator.settings(draw, *xs))
        if np.abs(program.values[-1]).max() > 4:
            program.append(UNARY[0], [len(program.values) - 1], {})
    if not program.steps:
        program.append(UNARY[0], [0], {})
    last = len(program.values) - 1
    first = len(program.inputs)
    return program, sorted({last, draw(st.integers(first, last))})


def compare(program, outputs):
    onx = program.model(outputs)
    feeds = {f"v{i}": x for i, x in enumerate(program.inputs)}
    check_gradient(onx, feeds, max_entries=1)
    if torch is None:
        return
    both = DerivativeOptions.KeepOutputs | DerivativeOptions.FillGrad
    found = ReferenceEvaluator(onnx_derivative(onx, options=both)).run(None, feeds)
    for dx, expected in zip(found, program.torch_gradients(outputs), strict=False):
        np.testing.assert_allclose(dx, expected, rtol=1e-8, atol=1e-10)


@hypothesis.settings(max_examples=PROGRAMS, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(programs())
def test_random_programs(drawn):
    compare(*drawn)


@st.composite
def broadcasts_of_one_operator(draw):
    operator = draw(st.sampled_from([o for o in BINARY if o.fits is elementwise]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    shapes = draw(operand_shapes(2))
    program = Program([np.asarray(rng.uniform(0.3, 1.8, shape)) for shape in shapes], draw(NAMES))
    program.append(operator, [0, 1], {})
    return program, [2]


@hypothesis.settings(max_examples=BROADCASTS, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(broadcasts_of_one_operator())
def test_random_broadcasts(drawn):
    compare(*drawn)


# ------------------------------------------------------------- control flow

#: Statements of (2, 3) matrices: `y` is made from `a` and `b`; `i` is a type of indices, `k` 0 or 1, `T` a matrix's type.
STATEMENTS = [
    "{y} = Sin({a})",
    "{y}w = Mul({a}, {b})  {y} = Tanh({y}w)",
    "{y}c = Greater({a}, {b})  {y}s = Sin({b})  {y} = Where({y}c, {a}, {y}s)",
    "{y}m = MatMul({a}, W)  {y} = Tanh({y}m)",
    "{y}i = Constant <value = {i}[3] {{2, 0, -3}}> ()  {y} = Gather <axis = 1> ({a}, {y}i)",
    "{y}i = Constant <value = int64[2,1] {{1, {k}}}> ()  {y} = GatherND({a}, {y}i)",
    "{y}x = Constant <value = {i} {{{k}}}> ()  {y}k = CumSum <reverse = {k}> ({a}, {y}x)  {y} = Tanh({y}k)",
    "{y}p = Constant <value_ints = [0, 1, 0, -1]> ()  {y} = Pad({a}, {y}p)",
    "{y}k = Constant <value_ints = [3]> ()  {y}, {y}i = TopK({a}, {y}k)",
    """{y}i = Constant <value = {i}[2,1] {{2, {k}}}> ()  {y}z = Constant <value_ints = [0]> ()
    {y}o = Constant <value_ints = [1]> ()  {y}u = Slice({b}, {y}z, {y}o, {y}o)
    {y} = ScatterElements <axis = 1> ({a}, {y}i, {y}u)""",
]

#: onnxruntime 1.19 has no Cos in float64, and onnx.reference, which would be asked instead, concatenates what a Loop stacks.
SIN = "Sin" if parse_version(onnxruntime.__version__) >= parse_version("1.20") else "Tanh"

#: Statements with bodies: `then` and `other` end in `t` and `o`. A Loop takes no turn, one or two.
CONTROL = [
    """{y}s = ReduceSum <keepdims = 0> ({a})  {y}z = Constant <value = double {{0.1}}> ()  {y}c = Greater({y}s, {y}z)
    {y} = If({y}c) <then_branch = then{y} () => ({T} {y}T) {{ {then} {y}T = Sin({t}) }},
                    else_branch = else{y} () => ({T} {y}E) {{ {other} {y}E = Identity({o}) }}>""",
    """{y}m = Constant <value = int64 {{{turns}}}> ()  {y}y = Constant <value = bool {{1}}> ()
    {y} = Loop({y}m, {y}y, {a}) <body = body{y} (int64 {y}n, bool {y}c, {T} {y}x) => (bool {y}d, {T} {y}X)
        {{ {then} {y}d = Identity({y}c)  {y}g = Add({t}, {y}x)  {y}X = Tanh({y}g) }}>""",
    """{y}f, {y}e = Scan <num_scan_inputs = 1, body = body{y} (double[{N},3] {y}x, double[3] {y}r) =>
        (double[{N},3] {y}X, double[3] {y}R) {{ {then} {y}g = Add({t}, {y}x)  {y}h = Add({y}g, {y}r)
        {y}X = Tanh({y}h)  {y}R = Sin({y}r) }}> ({a}, {b})
    {y} = Add({y}f, {y}e)""",
]


def block(rng, names, values, form, depth=0):
    """Return statements and the name of the last value; a body sees the values outside."""
    lines, values = [], list(values)
    for _ in range(rng.integers(1, 4)):
        y = f"v{next(names)}"
        a, b = values[-1], values[rng.integers(len(values))]
        table = CONTROL if depth < 2 and rng.random() < 0.4 else STATEMENTS
        then, t = block(rng, names, values, form, depth + 1) if table is CONTROL else ("", "")
        other, o = block(rng, names, values, form, depth + 1) if table is CONTROL else ("", "")
        found = {"i": rng.choice(["int32", "int64"]), "k": rng.integers(2), "turns": rng.integers(3), **form}
        found |= {"y": y, "a": a, "b": b, "then": then, "t": t, "other": other, "o": o}
        lines.append(table[rng.integers(len(table))].format(**found))
        values.append(y)
    return "\n".join(lines), values[-1]


@pytest.mark.parametrize("part", range(3))
def test_random_control_flow(part):
    """Bodies in bodies, at every opset that is supported, sizes known, named or left out, indices of both types."""
    for seed in range(part, CONTROLS, 3):
        rng = np.random.default_rng(seed)
        opset, form = rng.integers(13, 1 + min(28, onnx.defs.onnx_opset_version())), FORMS[seed % 3]
        lines, last = block(rng, itertools.count(), ["X", "Z"], form)
        lines = lines.replace("Sin(", f"{SIN}(")
        size = f"double[{form['N']},3]"
        onx = onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["" : {opset}]>
            program ({size} X, {size} Z, double[3,3] W) => ({size} Y) {{ {lines} Y = Tanh({last}) }}"""
        )
        feeds = {name: rng.uniform(-1, 1, shape) for name, shape in {"X": (2, 3), "Z": (2, 3), "W": (3, 3)}.items()}
        check_gradient(onx, feeds, max_entries=1)


def test_more_than_two_thousand_are_drawn():
    assert PROGRAMS + BROADCASTS + CONTROLS >= 2000
