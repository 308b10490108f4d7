"""Values that a module or an estimator does not train, in a file that does not record it.

torch.onnx.export(dynamo=False) records no buffers, and neither exporter records requires_grad=False. Names, values and
the place of a value in the graph show that it is probably fixed.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator

import onnx

from onnxtrain import graph
from onnxtrain.convert.dynamo import holder_of
from onnxtrain.convert.fixed_values import may_be_constant, may_be_result
from onnxtrain.convert.tied_weights import is_computed

#: Names that modules give to buffers: statistics, bounds, priors, memories, filters, bases, graphs and anchors.
_NAMES = re.compile(
    r"(?!log_?(mean|std|var))((.*_)?(mean|std|stddev|variance|var|min|max|lb|ub|lower|upper|prior|queue|ema|avg|basis|"
    r"dct|stft|mel|fb|filterbank|window|wavelet|haar|laplacian|adj|adjacency|anchors?|components|slopes|freqs|"
    r"projection_matrix|reservoir)|(ema|inv|random|fixed|frozen|avg)_.+|center|embed)(_?\d+)?",
    re.IGNORECASE,
)

#: Names of the statistics of images in the code of models (pixel_mean, std) and in Keras' Normalization.
_STATISTIC = re.compile(r".*(normaliz|(mean|std|stddev|dev|deviation|var|variance)s?(_?\d+)?$)", re.IGNORECASE)

#: Names of the parameters of torch.nn, and of intercepts.
_WEIGHTS = re.compile(r"((in|out|q|k|v)_proj_)?weight(_.*)?|(.*_)?bias(_.*)?|original\d?")

#: Names that libraries give to other parameters, and the positions in a ParameterList.
_PARAMETERS = re.compile(
    r"(.*_)?(tokens?|quer(y|ies)|latents|rel_pos(_.*)?|logit_scale|layer_scale|gamma|beta|alpha|lambda)(_?\d+)?|"
    r".+_(pos|embed|embedding|embeddings|proj|gate|biases)(_?\d+)?|A_log|\d+"
)

_ARITHMETIC = ("Add", "Sub", "Mul", "Div")

#: Operators whose output has the elements of their first operand.
_VIEWS = (
    "Cast",
    "Concat",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Reshape",
    "Slice",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
)

#: Names of all values that torch.onnx.export(dynamo=False) computed in advance.
NUMBERED = re.compile(r"onnx::\w+_\d+")

#: Operators that change no shape, and products of linear layers.
_OF_ELEMENTS = frozenset({*_ARITHMETIC, "Elu", "Erf", "Gelu", "LayerNormalization", "LeakyRelu", "MatMul", "Relu"}) | {
    *("Sigmoid", "Softplus", "Tanh")
}

#: Operators that multiply by a weight.
_PRODUCTS = ("Mul", "MatMul", "Gemm", "Einsum")


class _Graph:
    """The nodes of a graph: which make and read a value, and which values depend on no row."""

    def __init__(self, onx: onnx.ModelProto):
        self.nodes = onx.graph.node
        self.outputs = [o.name for o in onx.graph.output]
        self.held = {i.name for i in onx.graph.initializer}
        self.made = {x: node for node in self.nodes for x in node.output}
        self.readers: defaultdict[str, list[onnx.NodeProto]] = defaultdict(list)
        self.fixed = {*self.held, ""}
        for node in self.nodes:
            for x in node.input:
                self.readers[x].append(node)
            if self.fixed.issuperset(node.input):
                self.fixed.update(node.output)
        self.rows = {i.name for i in onx.graph.input if i.type.tensor_type.elem_type in graph.FLOATS} - self.held

    def operands(self, node: onnx.NodeProto) -> tuple[str, str] | None:
        """Return the operand of a sum or product that depends on the rows, and the other one, which does not."""
        if node.op_type not in _ARITHMETIC or len(node.input) != 2:  # the file may be damaged
            return None
        x, w = node.input
        if (x in self.fixed) == (w in self.fixed):
            return None
        return (w, x) if x in self.fixed else (x, w)

    def initializers(self, value: str) -> Iterator[str]:
        """Yield the initializers from which a value is computed that depends on no row."""
        todo, seen = [value], set()
        while todo:
            x = todo.pop()
            if x in self.held:
                yield x
            elif x in self.made and x not in seen:
                seen.add(x)
                todo += self.made[x].input


def likely_buffers(onx: onnx.ModelProto) -> list[str]:
    """Return the initializers of a file of torch.onnx.export(dynamo=False) that are probably no parameters."""
    found = _Graph(onx)
    named = {*_scales_of_rows(found), *_scales_of_outputs(found), *factors_of_waves(onx), *_called_buffers(onx)}
    intercepts = {x for node in onx.graph.node if node.op_type in ("Gemm", "Conv") for x in node.input[2:]}
    likely = []
    for i in onx.graph.initializer:
        if i.data_type == onnx.TensorProto.FLOAT and not (i.name in intercepts and i.name.endswith(".bias")):
            array, computed = graph.array_of(i), is_computed(i.name)
            if (i.name in named and not computed) or (
                may_be_constant(array) and not (computed and may_be_result(array))
            ):
                likely.append(i.name)
    return likely


def computed_matrices(onx: onnx.ModelProto) -> list[str]:
    """Return the matrices of a file of torch.onnx.export(dynamo=False) that the exporter computed for own code.

    Own code of a module multiplies by them or adds them, so that they may be 2 w or a transposed buffer. The linear
    layers of torch.nn take a transposed parameter: they are modules of one product, or add an intercept with a name,
    and their parameter was computed in one step. Views for broadcasting have an axis of length 1, but a matrix that is
    repeated for all rows may be a buffer. Vectors are parts of parameters, except divisors, such as roots. A base of
    powers in any shape may be a buffer of decays.
    """
    found = _Graph(onx)
    divisors = {x for node in found.nodes if node.op_type == "Div" for x in node.input[1:]}
    bases = {x for node in found.nodes if node.op_type == "Pow" for x in node.input[:1]}
    repeated = {x for node in found.nodes if node.op_type == "Expand" for x in node.input[:1]} - divisors
    scopes: defaultdict[str, set[str]] = defaultdict(set)
    for node in found.nodes:
        scopes[_scope_of(node)].add(node.op_type)
    matrices = []
    for i in onx.graph.initializer:
        n_long = 1 if i.name in bases else 2 if i.name in repeated else len(i.dims)
        if is_computed(i.name) and (len(i.dims) > 1 or (i.dims and i.name in divisors)):
            matrices += [i.name] if sum(size > 1 for size in i.dims) >= n_long else []
    steps = _computed_in_steps(found)
    own: set[str] = set()
    for node in found.nodes:
        if node.name.startswith("/") and node.op_type in ("Einsum", "Expand", "MatMul", "Pow", *_ARITHMETIC):
            linear = node.op_type == "MatMul" and _is_linear_layer(found, node, scopes[_scope_of(node)])
            own.update(steps.intersection(node.input) if linear else node.input)
    return [x for x in matrices if x in own]


def _computed_in_steps(found: _Graph) -> set[str]:
    """Return the initializers that the exporter computed in several steps, such as the transposed product of w and c.

    The exporter numbers all results in the order of the nodes, so that the numbers of intermediate results are missing
    in the file. Shapes were computed in advance, too, so that only layers between which no shape changes show it.
    """
    readers = {x: i for i, node in reversed([*enumerate(found.nodes)]) for x in node.input}
    read = sorted((int(x.rpartition("_")[2]), x) for x in found.held if NUMBERED.fullmatch(x) and x in readers)
    steps = set()
    for (before, earlier), (number, x) in itertools.pairwise(read):
        between = found.nodes[readers[earlier] : readers[x] + 1]
        if number == before + 2 and all(node.op_type in _OF_ELEMENTS for node in between):
            steps.add(x)
    return steps


def _scope_of(node: onnx.NodeProto) -> str:
    """Return the module whose code made a node, from its name."""
    return node.name.rpartition("/")[0]


def _is_linear_layer(found: _Graph, node: onnx.NodeProto, operators: set[str]) -> bool:
    name = _scope_of(node).rpartition("/")[2].rpartition(".")[2]
    alone = bool(name) and operators <= {"MatMul", "Add"}
    sums = [n for n in found.readers[node.output[0]] if n.op_type == "Add"]
    biases = [x for n in sums for x in n.input if x in found.held and not is_computed(x) and x.endswith("bias")]
    holders = {holder_of(x).rpartition(".")[2] for x in biases}
    return alone or not holders.isdisjoint((name, re.sub(r"_\d+$", "", name)))  # a later call has a numeric suffix


def _called_buffers(onx: onnx.ModelProto) -> set[str]:
    """Return the initializers with names of buffers."""
    return {x for x in _after_weights(onx) if _NAMES.fullmatch(x.rpartition(".")[2])}


def unknown_names(onx: onnx.ModelProto) -> list[str]:
    """Return the initializers with names that neither torch.nn nor libraries give to parameters."""
    return [x for x in _after_weights(onx) if not _PARAMETERS.fullmatch(x.rpartition(".")[2])]


def _after_weights(onx: onnx.ModelProto) -> Iterator[str]:
    """Yield the initializers that may be buffers; the parameters of a module precede its buffers in the file."""
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for i in onx.graph.initializer:
        if not is_computed(i.name):
            modules[holder_of(i.name)].append(i.name)
    for names in modules.values():
        last = max((n for n, name in enumerate(names) if _WEIGHTS.fullmatch(name.rpartition(".")[2])), default=-1)
        yield from names[last + 1 :]


def _scales_of_rows(found: _Graph) -> Iterator[str]:
    """Yield the initializers of (x - a) / b and (x - a) b, where x is an input."""
    shifted: dict[str, str] = {}
    for node in found.nodes:
        operands = found.operands(node)
        if operands is None:
            continue
        x, w = operands
        if node.op_type == "Sub" and x in found.rows and node.input[0] == x:
            shifted[node.output[0]] = w
        elif x in shifted and (node.op_type == "Mul" or (node.op_type == "Div" and node.input[0] == x)):
            yield from found.initializers(w)
            yield from found.initializers(shifted[x])
            shifted[node.output[0]] = shifted[x]  # 2 (x - a) / (b - a)


def learned_scales(onx: onnx.ModelProto) -> Iterator[str]:
    """Yield the initializers a, b and v of (x - a) / b and x sqrt(v) in a file of PyTorch that are no statistics.

    Statistics have such names, or they are one row, which shifts or divides the inputs themselves.
    """
    shapes = {i.name: tuple(i.dims) for i in onx.graph.initializer}
    for name, of_inputs in _scales(_Graph(onx)):
        is_row = max(shapes[name], default=1) == math.prod(shapes[name])
        if not is_called_statistic(name) and not (is_row and of_inputs):
            yield name


def like_statistics(onx: onnx.ModelProto) -> set[str]:
    """Return the initializers that shift and scale values and have either the place or the name of a statistic."""
    found = _Graph(onx)
    named = (x for x, of_inputs in _scales(found) if not of_inputs and is_called_statistic(x))
    return {*named, *(x for x in _scales_of_rows(found) if not is_called_statistic(x))}


def _scales(found: _Graph) -> Iterator[tuple[str, bool]]:
    """Yield the named initializers a, b and v of (x - a) / b and x sqrt(v), and whether x is an input."""
    inputs = set(found.rows)
    roots: dict[str, str] = {}
    for node in found.nodes:
        x, w = found.operands(node) or (node.input[0] if node.op_type in _VIEWS and node.input else "", "")
        if x in inputs:
            inputs.update(node.output)
        if node.op_type in ("Sqrt", "Pow") and node.input[0] in found.fixed:
            roots.update(dict.fromkeys(node.output, node.input[0]))
        elif found.fixed.issuperset(node.input) and (of := roots.keys() & node.input):
            roots.update(dict.fromkeys(node.output, roots[min(of)]))
        divides = w and node.op_type in ("Sub", "Div") and node.input[1] == w
        names = found.initializers(roots[w]) if w in roots else _viewed(found, w) if divides else ()
        yield from ((name, x in inputs) for name in names if not is_computed(name))


def _viewed(found: _Graph, value: str) -> Iterator[str]:
    """Yield the initializer behind a view; nothing for other values."""
    while value in found.made and found.made[value].op_type in _VIEWS:
        value = found.made[value].input[0]
    if value in found.held:
        yield value


def is_called_statistic(name: str) -> bool:
    """Whether a module gives an initializer the name of a statistic."""
    return _NAMES.fullmatch(name.rpartition(".")[2]) is not None or _STATISTIC.match(name) is not None


#: Operators between an input and a scaler in the files of skl2onnx.
_PREPROCESSING = frozenset({*_VIEWS, "ArrayFeatureExtractor", "Clip", "Imputer", "Scaler", "Where"})


def of_scalers(onx: onnx.ModelProto) -> set[str]:
    """Return the initializers of x a + b and of x - c in a file of skl2onnx, where x are columns of the inputs.

    MinMaxScaler and StandardScaler(with_std=False) compute these. No predictor of scikit-learn multiplies and adds so,
    and a row of means that one subtracts is redundant beside its intercept. In files of other exporters, a, b and c may
    be learned.
    """
    if onx.producer_name != "skl2onnx":
        return set()
    found = _Graph(onx)
    rows = {i.name for i in onx.graph.input} - found.held
    shapes = {i.name: tuple(i.dims) for i in onx.graph.initializer}
    scaled: dict[str, str] = {}
    named: set[str] = set()
    for node in found.nodes:
        x, w = found.operands(node) or ("", "")
        if node.op_type == "Mul" and x in rows and w in found.held:
            scaled[node.output[0]] = w
        elif node.op_type == "Add" and x in scaled:
            named.update((scaled[x], w))
            rows.update(node.output)
        elif node.op_type == "Sub" and node.input[0] == x and x in rows and w in found.held:
            if shapes[w][:-1] in ((), (1,)):  # the means of classes have more axes
                named.add(w)
            rows.update(node.output)
        elif node.op_type in _PREPROCESSING and not rows.isdisjoint(node.input):
            rows.update(node.output)
    return named


def _scales_of_outputs(found: _Graph) -> Iterator[str]:
    """Yield the initializers that scale and shift an output that has an intercept, which makes them redundant."""
    for value in found.outputs:
        chain: list[tuple[str, str]] = []
        node = found.made.get(value)
        while node is not None and ((operands := found.operands(node)) is not None or node.op_type in _VIEWS):
            value, w = operands or (node.input[0], "")
            chain += [(node.op_type, w)] if w else []
            node = found.made.get(value)
        if node is None or node.op_type not in ("MatMul", "Gemm", "Conv"):
            continue
        if len(node.input) < 3 and (not chain or chain.pop()[0] != "Add"):
            continue
        if any(kind in ("Add", "Sub") for kind, _ in chain):
            for _, w in chain:
                yield from found.initializers(w)


def factors_of_waves(onx: onnx.ModelProto) -> set[str]:
    """Return the initializers that multiply an input before a sine and a cosine, without a phase."""
    found = _Graph(onx)
    rows = set(found.rows)
    for node in found.nodes:
        x, factor = found.operands(node) or (node.input[0] if node.op_type in _VIEWS else "", "")
        if x in rows and not any(found.initializers(factor)):
            rows.update(node.output)
    products = (n for n in found.nodes if n.op_type in _PRODUCTS and len(n.input) == 2)
    weighted = [(n, x) for n in products for x in n.input if x in found.fixed and not rows.isdisjoint(n.input)]
    return {w for n, x in weighted if _ends(found, n.output[0]) == {"Sin", "Cos"} for w in found.initializers(x)}


def factors_of_angles(onx: onnx.ModelProto) -> set[str]:
    """Return the operands of products that only a sine and a cosine read."""
    found = _Graph(onx)
    products = (n for n in found.nodes if n.op_type == "Mul")
    return {x for n in products if (ends := _ends(found, n.output[0])) and ends <= {"Sin", "Cos"} for x in n.input}


def _ends(found: _Graph, value: str) -> set[str]:
    """Return the operators that read a value, after shape changes and products with constants."""
    kinds, todo, seen = set(), [value], set()
    while todo:
        x = todo.pop()
        for node in found.readers[x]:
            scaled = node.op_type in ("Mul", "Div") and found.operands(node) is not None
            if node.output[0] in seen:
                continue
            if scaled or node.op_type in _VIEWS:
                seen.add(node.output[0])
                todo.append(node.output[0])
            else:
                kinds.add(node.op_type)
    return kinds
