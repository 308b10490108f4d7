"""Weights that an exporter merged because they were equal: which are one weight, as the layers of the source have them.

Each network is judged by one that has all its weights apart, with the intercepts 1e-30 where the other one has 0.
"""

import warnings

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.convert.faulty_files import remedy_of_faulty_file
from onnxtrain.convert.padding import padding_rows, with_padding
from onnxtrain.errors import ConvergenceError, ModelError, WeightError
from onnxtrain.runtime.session import run

#: The warning of weights with short names, as in most networks here; a module may have such names for its buffers.
OWN_NAMES = "ignore:.* other names than parameters of torch.nn"
pytestmark = pytest.mark.filterwarnings(OWN_NAMES)

rng = np.random.default_rng(0)
X, Y = (rng.normal(size=(20, 3)).astype(np.float32) for _ in range(2))
W, U, V = (rng.normal(size=(3, 3)) for _ in range(3))
ZEROS = np.zeros(3)
EDGES = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1]])  # of a graph
FORGET = np.array([0, 1, 0])  # of an LSTM of Keras

#: Two steps of a recurrent layer, with the intercepts a, b and c.
RECURRENT = """P = MatMul(X, W) p = Add(P, a) s = Tanh(p) Q = MatMul(s, U) q = Add(b, Q) t = Tanh(q) R = MatMul(t, U) r = Add(R, b)
    u = Tanh(r) K = MatMul(u, V) Y = Add(K, c)"""
ENCODED = 'A = MatMul(X, w) B = Tanh(A) Y = MatMul(B, "onnx::MatMul_7")'
#: Layers l and m, each used twice.
LAYERS = "A = MatMul(X, l) a = Tanh(A) B = MatMul(a, l2) b = Tanh(B) C = MatMul(b, m) c = Tanh(C) Y = MatMul(c, m2)"
NORMS = """A = LayerNormalization(X, ones, a) B = Tanh(A) C = LayerNormalization(B, ones, a) D = MatMul(C, W)
    Y = Add(D, b)"""


def network(nodes, producer="pytorch", modules=None, opset=20, **weights):
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> g (float[n, 3] X) => (float[n, 3] Y) {{ {nodes} }}'
    onx = onnx.parser.parse_model(text)
    onx.producer_name = producer
    for name, w in weights.items():
        onx.graph.initializer.append(onnx.numpy_helper.from_array(w.astype(np.float32), name))
    for node in onx.graph.node:
        node.name = (modules or {}).get(node.output[0], node.output[0])
    return onx


def of_dynamo(nodes, held, operations, folded=(), output="Y", **weights):
    """Return a network with what torch.onnx.export(dynamo=True) writes beside it.

    `held` lists the parameters, `operations` those of PyTorch that made the values: module, name and operands. Values of
    the same one were made by one. `output` is the value that the module returned.
    """
    begun = {}
    onx = network(nodes, **weights)
    kinds = {name: "BUFFER" if name.startswith("running") else "PARAMETER" for name in held.split()}
    lines = [f"p_{name.replace('.', '_')}: {kind} target='{name}'" for name, kind in kinds.items()]
    key = "pkg.torch.export.ExportedProgram.graph_signature"
    onx.graph.metadata_props.add(
        key=key, value="# inputs\n" + "\n".join([*lines, "X: USER_INPUT", f"{output}: USER_OUTPUT"])
    )
    said = {name: ("pkg.torch.export.graph_signature.InputSpec.kind", kind) for name, kind in kinds.items()}
    said |= {name: ("pkg.onnxscript.optimizer.folded_from", str(sources)) for name, sources in dict(folded).items()}
    for name, (key, text) in said.items():
        if name in weights:
            value = onx.graph.value_info.add()
            value.CopyFrom(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, weights[name].shape))
            value.metadata_props.add(key=key, value=text)
    for node in onx.graph.node:
        operand = "".join(f"%{x}" for x in node.input[:1])
        module, operation = operations.get(node.output[0], ("", f"{node.op_type.lower()}({operand})"))
        name = begun.setdefault((module, operation), node.output[0])
        text = f"%{name} : [num_users=1] = call_function[target=torch.ops.aten.{operation}"
        node.metadata_props.add(key="pkg.torch.onnx.fx_node", value=text)
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(["", module, node.output[0]]))
    return onx


def with_intercept(layers, last):
    """Return the nodes of LAYERS with the intercepts i of the first layer and `last` of the last one."""
    return layers.replace("a = Tanh(A)", "A2 = Add(A, i) a = Tanh(A2)").replace("Y =", "Z =") + f" Y = Add(Z, {last})"


def copied_for_each_use(nodes):
    """Return what PyTorch's exporter computed in advance for each use, as Keras has it."""
    nodes = nodes.replace("Add(P, a)", "Add(P, val_0)").replace("Add(b, Q)", "Add(val_1, Q)")
    nodes = nodes.replace("Add(R, b)", "Add(R, val_2)").replace("Add(K, c)", "Add(K, val_3)")
    return "val_1 = Identity(val_0) val_2 = Identity(val_0) val_3 = Identity(val_0) " + nodes


MATRICES = dict(W=W, U=U, V=V)
#: Two steps of a recurrent layer without a state before the first one.
STEPS = """P = MatMul(X, W) p = Add(P, a) s = Tanh(p) Q = MatMul(X, W) R = MatMul(s, U) S = Add(R, Q) q = Add(S, a)
    t = Tanh(q) Y = MatMul(t, V)"""
DIRECT = RECURRENT.replace(", b)", ", a)").replace("(b,", "(a,").replace(", c)", ", a)")
TIED = LAYERS.replace("l2", "l").replace("m2", "m")
AFFINE = "A = Mul(X, {}) B = Add(A, {}) C = Tanh(B) D = Mul(C, {}) E = Add(D, {}) Y = MatMul(E, W)"
COPIES = "val_1 = Identity(val_0) val_2 = Identity(val_0) val_3 = Identity(val_0) "
COMPUTED = COPIES + LAYERS.replace("l2", "val_1").replace("m2", "val_3").replace("l)", "val_0)").replace("m)", "val_2)")
MODULES = {"A": "/l/MatMul", "B": "/l_1/MatMul", "C": "/m/MatMul", "Z": "/m_1/MatMul", "Y": "/m_1/Add"}
NUMBERED = {"A": "/l_1/MatMul", "B": "/l_1_1/MatMul", "C": "/l_2/MatMul", "Z": "/l_2_1/MatMul", "Y": "/l_2_1/Add"}

CALLS = """A = LayerNormalization(X, "a.weight", "a.bias") B = Tanh(A) C = LayerNormalization(B, "a.weight", "a.bias")
    D = Tanh(C) E = LayerNormalization(D, "a.weight", "a.bias") F = MatMul(E, W) Y = Add(F, "h.bias")"""
STEPPED = AFFINE.replace("{}", '"{}"').format(*2 * ("r.cell.w", "r.cell.b"))
STEPS_OF_CELL = {"A": "/r/Mul", "B": "/r/Add", "C": "/r/Tanh", "D": "/r/Mul_1", "E": "/r/Add_1", "Y": "/f/MatMul"}
LINEAR = 'P = Gemm(X, "f.weight", "f.bias") p = Tanh(P) Y = Gemm(p, "f.weight", "f.bias")'
SCALED = "A = Mul(X, view) B = Add(A, view_1) C = Tanh(B) D = Mul(C, view) E = Add(D, view_1) Y = MatMul(E, W)"
NORM = "layer_norm.default](args = (%X, [3], %p_{0}_weight, %p_{0}_bias, 1e-05))".format

#: A classifier by cosine similarity, whose norms the exporter computed, and distances, for which it computed squares.
COSINES = "A = MatMul(X, W) B = Tanh(A) D = Div(w, {}) E = Transpose<perm = [1, 0]>(D) Y = MatMul(B, E)"
DISTANCES = "A = MatMul(X, W) B = Tanh(A) C = MatMul(B, w) S = ReduceSum<keepdims = 0>({}, last) Y = Sub(C, S)"
LAST = "last = Constant<value_ints = [1]>() "

#: A unit vector, and a matrix of which all elements have norm 1.
UNIT = "least = Constant<value_float = 1e-12>() three = Constant<value_ints = [3]>() "
UNIT_VECTOR = """A = MatMul(X, W) B = Tanh(A) C = Clip({}, least) e = Expand(C, three) d = Div(w, e) D = Mul(B, d)
    Y = MatMul(D, W)"""
UNIT_MATRIX = "A = MatMul(X, W) B = Tanh(A) D = Div(w, l) Y = MatMul(B, D)"

#: A weight that is standardized by BatchNormalization in training mode. onnxruntime writes the new statistics over the
#: old ones, and merges equal constants, so these must not equal its scale and bias.
STANDARDIZED = """s = Constant<value_floats = [1.0, 1.0, 1.0]>() z = Constant<value_floats = [0.0, 0.0, 0.0]>()
    o = Constant<value_floats = [2.0, 2.0, 2.0]>() n = Constant<value_floats = [0.5, 0.5, 0.5]>() {}
    k, m, v = BatchNormalization<training_mode = 1>(W, s, z, {}, o) one = Constant<value_ints = [0]>()
    f = Squeeze(k, one) A = MatMul(X, f) B = Tanh(A) Y = MatMul(B, U)"""

#: A recurrent module of two layers that begin with equal intercepts.
STACK = """zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>() last = Constant<value_int = 1>()
    x = Unsqueeze(X, zero) xx = Concat<axis = 0>(x, x) A = RNN<hidden_size = 3>(xx, val_2, val_3, val_6) a = Squeeze(A, one)
    B = RNN<hidden_size = 3>(a, val_4, val_5, val_6) c = Squeeze(B, one) D = Gather(c, last) Y = MatMul(D, W)"""
STACKED = dict(val_2=W[None], val_3=U[None], val_4=V[None], val_5=U.T[None], val_6=np.zeros((1, 6)), W=W)
CALLED = {name: w for name, w in STACKED.items() if name not in ("val_4", "val_5")}
STACK_APART = network(STACK.replace("val_5, val_6)", "val_5, d)"), **{**STACKED, "d": np.zeros((1, 6)) + 1e-30})

#: Rows of a table, and the same with the second one fixed.
READ = "i = ArgMax<axis = 1, keepdims = 0>(X) E = Gather(W, i) B = Tanh(E) Y = MatMul(B, U)"
READ_BUT_ONE = READ.replace(
    "E = Gather(W, i)",
    f"""f = Constant<value_floats = [{", ".join(map(str, W[1]))}]>()
    k = ArgMax<axis = 1>(X) one = Constant<value_ints = [1]>() m = Equal(k, one) R = Gather(W, i) E = Where(m, f, R)""",
)
PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
LAYERED = "rnn_tanh.input](args = (%X, [" + ", ".join(f"%p_n_{part}_l{i}" for i in (0, 1) for part in PARTS) + "]))"

#: The merged network, and the one whose weights are apart.
CASES = {
    "an intercept of a cell, which the code of a recurrent network steps": (
        network(STEPPED, modules=STEPS_OF_CELL, **{"r.cell.w": V[0], "r.cell.b": ZEROS, "W": W}),
        network(STEPPED, **{"r.cell.w": V[0], "r.cell.b": ZEROS + 1e-30, "W": W}),
    ),
    "dynamo: norms that begin equal, one used twice": (
        of_dynamo(
            CALLS,
            "a.weight a.bias b.weight b.bias W h.bias",
            {"A": ("a", NORM("a")), "C": ("b", NORM("b")), "E": ("a@1", NORM("a"))}
            | {"Y": ("", "add.Tensor](args = (%F, %p_h_bias))"), "F": ("", "matmul.default](args = (%E, %p_W))")},
            **{"a.weight": 1 + ZEROS, "a.bias": ZEROS, "W": W, "h.bias": V[0]},
        ),
        network(
            CALLS.replace('B, "a.weight", "a.bias"', "B, bw, bb"),
            **{"a.weight": 1 + ZEROS + 1e-6, "a.bias": ZEROS + 1e-30, "bw": 1 + ZEROS - 1e-6, "bb": ZEROS - 1e-30}
            | {"W": W, "h.bias": V[0]},
        ),
    ),
    "dynamo: layers that begin equal": (
        of_dynamo(
            LINEAR,
            "f.weight f.bias g.weight g.bias",
            {
                "P": ("f", "linear.default](args = (%X, %p_f_weight, %p_f_bias))"),
                "Y": ("g", "linear.default](args = (%p, %p_g_weight, %p_g_bias))"),
            },
            **{"f.weight": W, "f.bias": V[0]},
        ),
        network(
            LINEAR.replace('p, "f.weight", "f.bias"', "p, g, j"),
            **{"f.weight": W, "f.bias": V[0], "g": W, "j": V[0]},
        ),
    ),
    "dynamo: intercepts of zeros that were left out": (
        of_dynamo(
            'P = Gemm(X, W) p = Tanh(P) Y = Gemm(p, "g.weight")',
            "W f.bias g.weight g.bias",
            {
                "P": ("f", "linear.default](args = (%X, %p_W, %p_f_bias))"),
                "Y": ("g", "addmm.default](args = (%p_g_bias, %p, %p_g_weight))"),
            },
            **{"W": W, "g.weight": U},
        ),
        network("P = Gemm(X, W, i) p = Tanh(P) Y = Gemm(p, U, j)", W=W, U=U, i=ZEROS, j=ZEROS + 1e-30),
    ),
    "dynamo: views of parameters that begin equal": (
        of_dynamo(
            SCALED,
            "a.w a.b e.w e.b W",
            {
                "A": ("a", "mul.Tensor](args = (%X, %view))"),
                "B": ("a", "add.Tensor](args = (%A, %view_1))"),
                "D": ("e", "mul.Tensor](args = (%C, %view_2))"),
                "E": ("e", "add.Tensor](args = (%D, %view_3))"),
                "Y": ("", "matmul.default](args = (%E, %p_W))"),
            },
            {"view": ["a.w"], "view_1": ["a.b"]},
            view=1 + ZEROS,
            view_1=ZEROS,
            W=W,
        ),
        network(
            SCALED.replace("C, view", "C, s").replace("D, view_1", "D, t"),
            view=1 + ZEROS, view_1=ZEROS - 1e-30, s=1 + ZEROS, t=ZEROS + 1e-30, W=W,
        ),
    ),
    "dynamo: a constant that equals a parameter": (
        of_dynamo(
            'A = LayerNormalization(X, "a.weight") B = Tanh(A) C = Mul(B, "a.weight") Y = MatMul(C, W)',
            "a.weight W",
            {
                "A": ("a", "layer_norm.default](args = (%X, [3], %p_a_weight))"),
                "C": ("", "mul.Tensor](args = (%B,))"),
                "Y": ("", "matmul.default](args = (%C, %p_W))"),
            },
            **{"a.weight": 1 + ZEROS, "W": W},
        ),
        network("A = LayerNormalization(X, a) B = Tanh(A) Y = MatMul(B, W)", a=1 + ZEROS, W=W),
    ),
    "dynamo: recurrent layers of one module": (
        of_dynamo(
            STACK,
            " ".join(f"n.{part}_l{i}" for i in (0, 1) for part in PARTS) + " W",
            {"A": ("n", LAYERED), "B": ("n", LAYERED), "Y": ("", "matmul.default](args = (%D, %p_W))")},
            {"val_2": ["n.weight_ih_l0", "zeros"], "val_3": ["n.weight_hh_l0", "zeros"]}
            | {"val_4": ["n.weight_ih_l1", "zeros"], "val_5": ["n.weight_hh_l1", "zeros"]}
            | {"val_6": ["n.bias_ih_l0", "n.bias_hh_l0", "zeros"]},
            **STACKED,
        ),
        STACK_APART,
    ),
    "recurrent layers of one module": (
        network(
            "val_7 = Identity(val_6) " + STACK.replace("val_5, val_6)", "val_5, val_7)"),
            modules={"A": "/n/RNN", "B": "/n/RNN_1"},
            **STACKED,
        ),
        STACK_APART,
    ),
    "recurrent layers of a module that is called twice": (
        network(
            "val_4 = Identity(val_2) val_5 = Identity(val_3) val_7 = Identity(val_6) "
            + STACK.replace("val_5, val_6)", "val_5, val_7)"),
            modules={"A": "/n/RNN", "B": "/n_1/RNN"},
            **CALLED,
        ),
        network(STACK.replace("val_4, val_5", "val_2, val_3"), **CALLED),
    ),
    "recurrent layers of one module that begin as copies": (
        network(
            "val_7 = Identity(val_2) val_8 = Identity(val_3) val_9 = Identity(val_6) "
            + STACK.replace("val_4, val_5, val_6)", "val_7, val_8, val_9)"),
            modules={"A": "/n/RNN", "B": "/n/RNN_1"},
            **STACKED,
        ),
        network(
            STACK.replace("val_5, val_6)", "val_5, d)"),
            **{**STACKED, "val_4": W[None], "val_5": U[None], "d": np.zeros((1, 6)) + 1e-30},
        ),
    ),
    "dynamo: clones of a buffer and of a weight": (
        of_dynamo(
            """clone = Identity(running_mean) A = Mul(X, clone) B = MatMul(A, W) C = Tanh(B)
            clone_1 = Identity(W) Y = MatMul(C, clone_1)""",
            "running_mean W",
            {
                "clone": ("", "clone.default](args = (%p_running_mean,))"),
                "B": ("", "matmul.default](args = (%A, %p_W))"),
                "clone_1": ("", "clone.default](args = (%p_W,))"),
            },
            running_mean=V[0],
            W=W,
        ),
        network(
            "f = Constant<value_floats = [" + ", ".join(map(str, V[0])) + "]>() A = Mul(X, f) "
            "B = MatMul(A, W) C = Tanh(B) Y = MatMul(C, W)",
            W=W,
        ),
    ),
    "a weight that its module turns": (
        network(ENCODED, modules={"A": "/MatMul", "Y": "/MatMul_1"}, **{"w": W, "onnx::MatMul_7": W.T}),
        network("A = MatMul(X, w) B = Tanh(A) v = Transpose<perm = [1, 0]>(w) Y = MatMul(B, v)", w=W),
    ),
    "a layer that begins as the transpose of another one": (
        network(ENCODED, modules={"A": "/a/MatMul", "Y": "/b/MatMul"}, **{"w": W, "onnx::MatMul_7": W.T}),
        network("A = MatMul(X, w) B = Tanh(A) Y = MatMul(B, v)", w=W, v=W.T),
    ),
    **{
        f"norms of a weight, opset {opset}": (
            network(COSINES.format('"onnx::Div_7"'), opset=opset, W=W, w=U, **{"onnx::Div_7": np.linalg.norm(U, axis=1)[:, None]}),
            network(LAST + "n = ReduceL2(w, last) " + COSINES.format("n"), W=W, w=U),
        )
        for opset in (17, 20)
    },
    **{
        f"squares of a weight, {name}": (
            network(LAST + DISTANCES.format('"onnx::ReduceSum_7"'), W=W, w=U / 3, **{"onnx::ReduceSum_7": squares}),
            network(LAST + f"v = {name}(w) s = Mul(v, v) " + DISTANCES.format("s"), "", W=W, w=U / 3),
        )
        for name, squares in (("Identity", (U / 3) ** 2), ("Transpose", (U.T / 3) ** 2))
    },
    "a matrix of zeros and ones and its transpose, which equals its squares": (
        network(
            'A = MatMul(X, H) B = Tanh(A) Y = MatMul(B, "onnx::MatMul_7")',
            modules={"A": "/MatMul", "Y": "/MatMul_1"},
            **{"H": EDGES, "onnx::MatMul_7": EDGES.T},
        ),
        network("A = MatMul(X, H) B = Tanh(A) T = Transpose<perm = [1, 0]>(H) Y = MatMul(B, T)", H=EDGES),
    ),
    "the norm of a vector, as in functional.normalize": (
        network(UNIT + UNIT_VECTOR.format('"onnx::Clip_7"'), W=W, w=U[0], **{"onnx::Clip_7": np.linalg.norm(U[0], keepdims=True)}),
        network(UNIT + "l = ReduceL2(w) " + UNIT_VECTOR.format("l"), W=W, w=U[0]),
    ),
    "the norm of the elements of a matrix": (
        network('l = ReduceL2<keepdims = 0>("onnx::ReduceL2_7") ' + UNIT_MATRIX, W=W, w=U, **{"onnx::ReduceL2_7": U.reshape(-1)}),
        network("l = ReduceL2<keepdims = 0>(w) " + UNIT_MATRIX, W=W, w=U),
    ),
    "a scale that is no norm": (
        network(COSINES.format('"onnx::Div_7"'), W=W, w=U, **{"onnx::Div_7": 1 + abs(V[:, :1])}),
        network(COSINES.format("n"), "", W=W, w=U, n=1 + abs(V[:, :1])),
    ),
    "statistics that are not used, of a copy": (
        network(
            STANDARDIZED.format('a = Constant<value_ints = [0, 1]>() r = ReduceMean<keepdims = 0>("onnx::Mean_7", a)', "r"),
            W=W[None], U=U, **{"onnx::Mean_7": W.T[None]},
        ),
        network(STANDARDIZED.format("", "n"), W=W[None], U=U),
    ),
    "a norm in a Sequential that is called twice": (
        network(
            'A = LayerNormalization(X, ones, "n.1.bias") B = Tanh(A) C = LayerNormalization(B, ones, "n.1.bias") '
            "Y = MatMul(C, W)",
            modules={"A": "/n/n.1/LayerNormalization", "C": "/n/n.1_1/LayerNormalization"},
            **{"n.1.bias": ZEROS, "ones": 2 + ZEROS, "W": W},
        ),
        network(
            'A = LayerNormalization(X, ones, "n.bias") B = Tanh(A) C = LayerNormalization(B, ones, "n.bias") '
            "Y = MatMul(C, W)",
            **{"n.bias": ZEROS + 1e-30, "ones": 2 + ZEROS, "W": W},
        ),
    ),
    "modules of numbered names in a Sequential that begin equal": (
        network(
            'val_1 = Identity(val_0) "s.0.l_1.bias" = Identity("s.0.l.bias") A = MatMul(X, val_0) '
            'B = Add(A, "s.0.l.bias") C = Tanh(B) D = MatMul(C, val_1) Y = Add(D, "s.0.l_1.bias")',
            modules={"A": "/s/s.0/l/MatMul", "B": "/s/s.0/l/Add", "D": "/s/s.0/l_1/MatMul", "Y": "/s/s.0/l_1/Add"},
            **{"val_0": W, "s.0.l.bias": V[0]},
        ),
        network("A = MatMul(X, l) B = Add(A, i) C = Tanh(B) D = MatMul(C, m) Y = Add(D, j)", l=W, m=W, i=V[0], j=V[0]),
    ),
    "an intercept of the model beside two matrices": (
        network(
            "A = Gemm(X, W, b) B = Tanh(A) Y = Gemm(B, U, b)", modules={"A": "/Gemm", "Y": "/Gemm_1"}, b=ZEROS, W=W, U=U
        ),
        network("A = Gemm(X, W, b) B = Tanh(A) Y = Gemm(B, U, b)", b=ZEROS + 1e-30, W=W, U=U),
    ),
    "an intercept of the model that is added twice": (
        network(
            "A = MatMul(X, W) B = Tanh(A) C = Add(B, b) D = Tanh(C) E = Add(b, D) Y = MatMul(E, U)",
            modules={"C": "/Add", "E": "/Add_1"},
            b=ZEROS, W=W, U=U,
        ),
        network(
            "A = MatMul(X, W) B = Tanh(A) C = Add(B, b) D = Tanh(C) E = Add(D, b) Y = MatMul(E, U)",
            b=ZEROS + 1e-30, W=W, U=U,
        ),
    ),
    "a norm that is called twice": (
        network(
            'A = LayerNormalization(X, ones, "n.bias") B = Tanh(A) C = LayerNormalization(B, ones, "n.bias") '
            "Y = MatMul(C, W)",
            modules={"A": "/n/LayerNormalization", "C": "/n_1/LayerNormalization"},
            **{"n.bias": ZEROS, "ones": 2 + ZEROS, "W": W},
        ),
        network(
            'A = LayerNormalization(X, ones, "n.bias") B = Tanh(A) C = LayerNormalization(B, ones, "n.bias") '
            "Y = MatMul(C, W)",
            **{"n.bias": ZEROS + 1e-30, "ones": 2 + ZEROS, "W": W},
        ),
    ),
    "a scale and a shift that are computed for each of two calls": (
        network(
            '"onnx::Mul_3" = Identity("onnx::Mul_1") "onnx::Add_4" = Identity("onnx::Add_2") '
            + AFFINE.format('"onnx::Mul_1"', '"onnx::Add_2"', '"onnx::Mul_3"', '"onnx::Add_4"'),
            modules={"A": "/n/Mul", "B": "/n/Add", "D": "/n_1/Mul", "E": "/n_1/Add"},
            **{"onnx::Mul_1": 1 + ZEROS[None], "onnx::Add_2": ZEROS[None], "W": W},
        ),
        network(AFFINE.format("m", "a", "m", "a"), m=1 + 1e-6 + ZEROS[None], a=1e-30 + ZEROS[None], W=W),
    ),
    "parameters": (
        network("b = Identity(a) c = Identity(a) " + RECURRENT, a=ZEROS, **MATRICES),
        network(RECURRENT, a=ZEROS + 1e-30, b=ZEROS + 1e-30, c=ZEROS + 1e-30, **MATRICES),
    ),
    "computed for each use": (
        network(copied_for_each_use(RECURRENT), val_0=ZEROS, **MATRICES),
        network(RECURRENT, a=ZEROS + 1e-30, b=ZEROS + 1e-30, c=ZEROS + 1e-30, **MATRICES),
    ),
    "no copies": (
        network(DIRECT, "", a=ZEROS, **MATRICES),
        network(RECURRENT, "", a=ZEROS + 1e-30, b=ZEROS + 1e-30, c=ZEROS + 1e-30, **MATRICES),
    ),
    "forget gate": (
        network(DIRECT, "", a=FORGET, **MATRICES),
        network(RECURRENT, "", a=FORGET + 1e-30, b=FORGET + 1e-30, c=FORGET + 1e-30, **MATRICES),
    ),
    "forget gate, beside a sum of two products": (
        network(STEPS, "", a=FORGET, **MATRICES),
        network(STEPS, "", a=FORGET + 1e-30, **MATRICES),
    ),
    "scalars": (
        network("b = Identity(a) M = Mul(X, W1) A = Add(M, a) B = Tanh(A) Y = Add(B, b)", a=ZEROS[:1], W1=V[0]),
        network("M = Mul(X, W1) A = Add(M, a) B = Tanh(A) Y = Add(B, b)", a=ZEROS[:1], b=ZEROS[:1], W1=V[0]),
    ),
    "norm used twice": (
        network("b = Identity(a) " + NORMS, a=ZEROS, ones=1 + ZEROS, W=W),
        network(NORMS, a=ZEROS + 1e-30, b=ZEROS + 1e-30, ones=1 + ZEROS + 1e-6, W=W),
    ),
    "layers that begin equal": (
        network("m = Identity(l) " + TIED, l=W),
        network(TIED, l=W, m=W),
    ),
    "modules that begin equal": (
        network("j = Identity(i) " + with_intercept(COMPUTED, "j"), modules=MODULES, val_0=W, i=V[0]),
        network(with_intercept(TIED, "j"), l=W, m=W, i=V[0], j=V[0]),
    ),
    "modules with a tied weight": (
        network(with_intercept(COMPUTED, "j"), modules=MODULES, val_0=W, i=V[0], j=V[1]),
        network(with_intercept(TIED.replace("m)", "l)"), "j"), l=W, i=V[0], j=V[1]),
    ),
    "modules of numbered names that begin equal": (
        network("j = Identity(i) " + with_intercept(COMPUTED, "j"), modules=NUMBERED, val_0=W, i=V[0]),
        network(with_intercept(TIED, "j"), l=W, m=W, i=V[0], j=V[0]),
    ),
    "dynamo: a scalar that was read from a parameter": (
        of_dynamo(
            "A = Mul(X, select) B = MatMul(A, W) C = Tanh(B) Y = MatMul(C, U)",
            "a W U",
            {"A": ("", "mul.Tensor](args = (%X, %select))")},
            {"select": ["a", "val_0"]},
            select=V[0, 0], W=W, U=U,
        ),
        network("A = Mul(X, a) B = MatMul(A, W) C = Tanh(B) Y = MatMul(C, U)", a=V[0, 0], W=W, U=U),
    ),
    "dynamo: the row of padding_idx": (
        of_dynamo(
            READ,
            "W U",
            {"E": ("", "embedding.default](args = (%p_W, %i, 1))"), "Y": ("", "matmul.default](args = (%B, %p_U))")},
            W=W, U=U,
        ),
        network(READ_BUT_ONE, W=W, U=U),
    ),
    "dynamo: a view beside its parameter": (
        of_dynamo(
            "A = MatMul(X, W) B = Tanh(A) C = Mul(B, unsqueeze) D = Add(C, w) Y = MatMul(D, U)",
            "W U w",
            {"C": ("", "mul.Tensor](args = (%B, %unsqueeze))"), "D": ("", "add.Tensor](args = (%C, %p_w))")},
            {"unsqueeze": ["w", "val_0"]},
            W=W, U=U, w=V[0], unsqueeze=V[:1],
        ),
        network("A = MatMul(X, W) B = Tanh(A) C = Mul(B, w) D = Add(C, w) Y = MatMul(D, U)", W=W, U=U, w=V[0]),
    ),
    "dynamo: two views of one parameter": (
        of_dynamo(
            "A = MatMul(X, W) B = Tanh(A) C = Mul(B, unsqueeze) D = Add(C, view) Y = MatMul(D, U)",
            "W U w",
            {"C": ("", "mul.Tensor](args = (%B, %unsqueeze))"), "D": ("", "add.Tensor](args = (%C, %view))")},
            {"unsqueeze": ["w", "val_0"], "view": ["w", "val_1"]},
            W=W, U=U, view=V[:1], unsqueeze=V[0],
        ),
        network("A = MatMul(X, W) B = Tanh(A) C = Mul(B, w) D = Add(C, w) Y = MatMul(D, U)", W=W, U=U, w=V[0]),
    ),
    "a module used often": (
        network(with_intercept(COMPUTED, "i"), modules=dict.fromkeys(MODULES, "/l/MatMul"), val_0=W, i=V[0]),
        network(with_intercept(TIED.replace("m)", "l)"), "i"), l=W, i=V[0]),
    ),
}  # fmt: skip


def fitted(onx, **params):
    params |= dict(solver="sgd", learning_rate=0.1, max_iter=20, batch_size=20, tol=0, random_state=0)
    return OrtGradientRegressor(onx, **params).fit(X, Y)


@pytest.mark.filterwarnings("ignore:.*max_iter", "ignore:.*once for several uses", "ignore:H may be buffers")
@pytest.mark.parametrize("name", CASES)
def test_weights_are_those_of_the_layers(name):
    merged, apart = map(fitted, CASES[name])
    assert sorted(w.shape for w in merged.weights_.values()) == sorted(w.shape for w in apart.weights_.values())
    assert apart.loss_curve_[-1] < 0.95 * apart.loss_curve_[0]
    np.testing.assert_allclose(merged.predict(X), apart.predict(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trained, copies", [(["W"], 2), (["a"], 0), (["b"], 1)])
def test_the_file_keeps_copies_of_what_was_not_trained(trained, copies):
    onx = CASES["parameters"][0]
    model = OrtGradientRegressor(onx, weights_to_train=trained, max_iter=3, random_state=0).fit(X, Y)
    found = model.get_trained_onnx()
    assert found.opset_import == onx.opset_import
    assert sum(node.op_type == "Identity" for node in found.graph.node) == copies
    again = OrtGradientRegressor(found, max_iter=1, learning_rate=1e-30, solver="sgd").fit(X, Y)
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-5, atol=1e-6)


def test_an_intercept_of_a_layer_that_is_used_twice_is_added_once():
    code = "A = Gemm(X, W, o) B = Gemm(A, V, o) C = Gemm(B, W, o) Y = Gemm(C, V, o)"
    onx = network(code, producer="tf2onnx", W=W / 3, V=V / 3, o=ZEROS)
    model = fitted(onx)
    assert len(model.weights_) == 4
    found = model.get_trained_onnx()
    assert [w.name for w in found.graph.initializer] == ["W", "V", "o", "o_1"]
    assert [node.input[2] for node in found.graph.node] == ["o", "o_1", "o", "o_1"]
    assert found.opset_import == onx.opset_import
    np.testing.assert_allclose(run(found, {"X": X})[0], model.predict(X), rtol=1e-5, atol=1e-6)


#: Matrices that show the operation that computed them, and matrices that do not.
RESULTS = {
    "a softmax": np.exp(W) / np.exp(W).sum(axis=0),
    "a softmax of rows, of zeros": np.full((3, 3), 1 / 3),
    "a division by the norm": W / np.linalg.norm(W),
    "columns of norm 1": W / np.linalg.norm(W, axis=0),
    "a mask": np.tril(W),
    "w + w.T": W + W.T,
    "w - w.T": W - W.T,
}
WEIGHTS = {
    "random": W,
    "orthogonal": np.linalg.qr(W)[0],
    "an identity": np.eye(3),
    "zeros": np.zeros((3, 3)),
    "ones": np.ones((3, 3)),
    "signs": np.sign(W),
    "a row of zeros": W * np.array([[1], [0], [1]]),
}

#: The polynomials 1, x, x² at equal steps.
POLYNOMIALS = (np.linspace(0, 0.9, 5) ** np.arange(3)[:, None]).astype(np.float32)

#: Matrices that a module holds as buffers, which a file of dynamo=False does not say.
GRAPH = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]], np.float32)
FIXED = {
    "numbers of edges": GRAPH,
    "a graph, normalized by rows": GRAPH / GRAPH.sum(axis=1, keepdims=True),
    "a graph, normalized by columns": GRAPH / GRAPH.sum(axis=0),
    "a graph, normalized by both": GRAPH / np.sqrt(np.outer(GRAPH.sum(axis=0), GRAPH.sum(axis=0))),
    "a filter": np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]], np.float32),
    "colors as brightness and differences": np.array(
        [[0.299, 0.587, 0.114], [-0.1687361, -0.3312639, 0.5], [0.5, -0.4186879, -0.0813121]]
    ),
    "numbers of few digits": np.array([[0.625, 0.8125, 1.4375], [1.875, 2.0625, 1.4375], [0.3, 0.59, 0.11]]),
    "a permutation": np.eye(3)[[1, 2, 0]],
}

#: Positions of a transformer, (8, 3).
SINES = np.sin(np.arange(8)[:, None] * np.array([1, 0.3, 0.1]) + np.array([0, 0, np.pi / 2]))

#: Two linear layers of rows of three axes.
DENSE = """A = MatMul(X, "onnx::MatMul_5") B = Add("f.bias", A) C = Tanh(B) D = MatMul(C, "onnx::MatMul_7")
    Y = Add("g.bias", D)"""
IN_DENSE = {"A": "/f/MatMul", "B": "/f/Add", "C": "/Tanh", "D": "/g/MatMul", "Y": "/g/Add"}

#: A learned shift and a scale that have the names of statistics, and weights.
STATISTICS = {"W": W / 9, "U": U / 9, "mean": V[0] / 9, "std": 1 + V[1] ** 2}

#: Files of PyTorch's exporter that lack what PyTorch trains, and what the warning says.
LACKING = {
    "a scalar": (
        of_dynamo(
            "Y = MatMul(X, W)",
            "W scale",
            {"Y": ("", "matmul.default](args = (%mul, %p_W))")},
            W=W,
        ),
        r"left out scale\. .*optimize=False\) to keep them",
    ),
    "a scalar at the end": (
        of_dynamo("Y = MatMul(X, W)", "W head.scale", {"Y": ("head.last", "matmul(%X)")}, output="mul_2", W=W),
        r"left out head\.scale\. ",
    ),
    "a layer like another one": (
        of_dynamo(
            'A = LayerNormalization(X, "a.weight") B = MatMul(A, W) C = MatMul(A, U) Y = Add(B, C)',
            "a.weight b.weight W U",
            {
                "A": ("a", "layer_norm.default](args = (%X, [3], %p_a_weight))"),
                "B": ("", "matmul.default](args = (%A, %p_W))"),
                "C": ("", "matmul.default](args = (%A_1, %p_U))"),
            },
            **{"a.weight": 1 + ZEROS, "W": W, "U": U},
        ),
        r"left out b\.weight\. ",
    ),
    "a layer like another one, which is used elsewhere": (
        of_dynamo(
            """A = LayerNormalization(X, "a.weight") B = MatMul(A, W) C = MatMul(A, U) D = Add(B, C)
            Y = LayerNormalization(D, "a.weight")""",
            "a.weight b.weight W U",
            {
                "A": ("a", "layer_norm.default](args = (%X, [3], %p_a_weight))"),
                "B": ("", "matmul.default](args = (%A, %p_W))"),
                "C": ("", "matmul.default](args = (%A_1, %p_U))"),
                "Y": ("b", "layer_norm.default](args = (%D, [3], %p_b_weight))"),
            },
            **{"a.weight": 1 + ZEROS, "W": W, "U": U},
        ),
        r"left out b\.weight\. ",
    ),
    "a layer and a function like others": (
        of_dynamo(
            'A = LayerNormalization(X, "a.weight") T = Tanh(A) D = Concat<axis = 1>(T, T) Y = MatMul(D, W)',
            "a.weight b.weight W",
            {
                "A": ("a", "layer_norm.default](args = (%X, [3], %p_a_weight))"),
                "T": ("", "tanh.default](args = (%A,))"),
                "D": ("", "cat.default](args = ([%T, %T_1], 1))"),
                "Y": ("", "matmul.default](args = (%D, %p_W))"),
            },
            **{"a.weight": 1 + ZEROS, "W": np.concatenate([W, U])},
        ),
        r"left out b\.weight\. ",
    ),
    "a layer of three axes like another one but for its intercept": (
        of_dynamo(
            """A = MatMul(X, t) B = Add(A, "a.bias") C = Add(A, "b.bias") D = Tanh(C) E = Mul(B, D)
            Y = MatMul(E, W)""",
            "a.weight a.bias b.weight b.bias W",
            {
                "A": ("a", "linear.default](args = (%X, %p_a_weight, %p_a_bias))"),
                "B": ("a", "linear.default](args = (%X, %p_a_weight, %p_a_bias))"),
                "C": ("b", "linear.default](args = (%X, %p_b_weight, %p_b_bias))"),
                "Y": ("", "matmul.default](args = (%E, %p_W))"),
            },
            {"t": ["a.weight"]},
            **{"t": U, "a.bias": V[0], "b.bias": V[1], "W": W},
        ),
        r"left out b\.weight\. ",
    ),
    "initial states of an LSTM": (
        of_dynamo(
            """zero = Constant<value_ints = [0]>() x = Unsqueeze(X, zero) size = Shape(x) expand = Expand(h, size)
            A = LSTM<hidden_size = 3>(x, val_1, val_2, val_3, , expand, expand)
            both = Constant<value_ints = [0, 1]>() B = Squeeze(A, both) Y = MatMul(B, W)""",
            "h c W n.weight_ih_l0 n.weight_hh_l0 n.bias_ih_l0",
            {
                "expand": ("", "expand.default](args = (%p_h, [1, %sym_size_int, 3]))"),
                "A": ("n", "lstm.input](args = (%X, [%clone, %clone_1], [%p_n_weight_ih_l0, %p_n_weight_hh_l0]))"),
                "Y": ("", "matmul.default](args = (%B, %p_W))"),
            },
            {"val_1": ["n.weight_ih_l0"], "val_2": ["n.weight_hh_l0"], "val_3": ["n.bias_ih_l0"]},
            h=np.zeros((1, 1, 3)),
            val_1=np.ones((1, 12, 3)) / 9,
            val_2=np.ones((1, 12, 3)) / 8,
            val_3=np.ones((1, 24)) / 7,
            W=W,
        ),
        r"left out c\. ",
    ),
    "views of parameters of one module": (
        of_dynamo(
            "size = Shape(X) expand = Expand(a, size) A = Mul(X, expand) B = Tanh(A) C = Mul(B, expand) Y = MatMul(C, W)",
            "a b W",
            {
                "expand": ("", "expand.default](args = (%p_a, [%sym_size_int, -1]))"),
                "A": ("", "mul.Tensor](args = (%X, %expand))"),
                "C": ("", "mul.Tensor](args = (%B, %expand_1))"),
                "Y": ("", "matmul.default](args = (%C, %p_W))"),
            },
            a=1 + ZEROS[None],
            W=W,
        ),
        r"left out b\. .*views of parameters",
    ),
    "parts of a parameter": (
        of_dynamo(
            "A = Mul(X, select) B = Tanh(A) C = Mul(B, select) Y = MatMul(C, W)",
            "a W",
            {"A": ("", "mul.Tensor](args = (%X, %select))"), "C": ("", "mul.Tensor](args = (%B, %select_1))")},
            {"select": ["a", "val_0"]},
            select=ZEROS[0],
            W=W,
        ),
        r"left out a\. .*views of parameters",
    ),
    "scales of one module that begin equal": (
        network(
            '"onnx::Mul_2" = Identity("onnx::Mul_1") A = Mul(X, "onnx::Mul_1") B = Tanh(A) C = Mul(B, "onnx::Mul_2")'
            "Y = MatMul(C, W)",
            **{"onnx::Mul_1": ZEROS[None] + 0.7, "W": W},
        ),
        r"wrote onnx::Mul_1 once .*do_constant_folding=False\) to keep ",
    ),
    "layers act and act_1 that begin equal, or one called twice": (
        network(
            '"onnx::PRelu_2" = Identity("onnx::PRelu_1") A = PRelu(X, "onnx::PRelu_1") B = MatMul(A, W)'
            'C = PRelu(B, "onnx::PRelu_2") Y = MatMul(C, U)',
            modules={"A": "/act/PRelu", "C": "/act_1/PRelu"},
            **{"onnx::PRelu_1": ZEROS + 0.25, "W": W, "U": U},
        ),
        r"wrote onnx::PRelu_1 once .*do_constant_folding=False\)",
    ),
    "a scalar of a parameter or of a buffer": (
        network('A = Mul(X, "onnx::Mul_3") Y = MatMul(A, W)', **{"onnx::Mul_3": V[0, 0], "W": W}),
        r"computed onnx::Mul_3, which have one element\. .*do_constant_folding=False\) to keep",
    ),
    **{
        name: (
            network(
                'A = MatMul(X, "onnx::MatMul_1") B = Tanh(A) Y = MatMul(B, W)', **{"onnx::MatMul_1": array, "W": W}
            ),
            r"onnx::MatMul_1 seem to be results of .*do_constant_folding=False\) to keep ",
        )
        for name, array in RESULTS.items()
    },
    **{
        name: (
            network("A = MatMul(X, W) B = Tanh(A) Y = MatMul(B, U)", W=W, U=array),
            r"^U may be buffers, .* set weights_to_train=\['-U'\], or use .*dynamo=True",
        )
        for name, array in FIXED.items()
    },
    **{
        f"by the name {name}": (
            network(f"A = MatMul(X, W) B = Tanh(A) C = Mul(B, {name}) Y = MatMul(C, U)", W=W, U=U, **{name: V[0]}),
            rf"^{name} may be buffers, .* set weights_to_train=\['-{name}'\]",
        )
        for name in ("queue", "x_std", "log_prior", "ema_mu")
    },
    "a name that torch.nn does not give": (
        network(
            'A = MatMul(X, "f.W") B = MatMul(A, "f.bias") C = MatMul(B, "f.R") Y = MatMul(C, "f.gamma")',
            **{"f.W": W / 9, "f.bias": U / 9, "f.R": V / 9, "f.gamma": W / 9},
        ),
        r"^Some weights have other names than parameters of torch.nn: f\.R\. .* weights_to_train=\['-f\.R'\], or use .*dynamo=True",
    ),
    "statistics of the rows": (
        network("A = Sub(X, a) B = Mul(A, s) Y = MatMul(B, W)", a=V[0], s=V[1], W=W),
        r"^a, s may be buffers, .* set weights_to_train=\['-a', '-s'\]",
    ),
    "bounds of the rows": (
        network("r = Sub(b, a) A = Sub(X, a) B = Div(A, r) Y = MatMul(B, W)", a=V[0], b=V[0] + 2, W=W),
        r"^a, b may be buffers, .* set weights_to_train=\['-a', '-b'\]",
    ),
    "statistics of the target": (
        network("A = MatMul(X, W) B = Add(A, i) C = Mul(B, s) Y = Add(C, m)", W=W, i=V[0], s=V[1], m=V[2]),
        r"^s, m may be buffers, .* set weights_to_train=\['-s', '-m'\]",
    ),
    "random frequencies": (
        network("A = MatMul(X, F) S = Sin(A) C = Cos(A) H = Add(S, C) Y = MatMul(H, W)", F=U, W=W),
        r"^F may be buffers, .* set weights_to_train=\['-F'\]",
    ),
    "products of a parameter and a grid": (
        network(
            'A = MatMul(X, W) B = Tanh(A) C = Cos("onnx::Cos_5") Y = MatMul(B, C)',
            **{"W": W, "onnx::Cos_5": np.outer([0.5, 1, 1.5], [-1, 0, 1])},
        ),
        r"^onnx::Cos_5 may be buffers, .* says so, or dynamo=False, do_constant_folding=False to keep ",
    ),
    "a product or a transposed buffer of own code": (
        network(
            'A = MatMul(X, "f.weight") B = MatMul(A, "onnx::MatMul_5") Y = MatMul(B, "onnx::MatMul_6")',
            modules={"B": "/MatMul", "Y": "/g/MatMul"},
            **{"f.weight": W / 9, "onnx::MatMul_5": U / 9, "onnx::MatMul_6": V / 9},
        ),
        r"computed onnx::MatMul_5\. The file .*dynamo=True, optimize=False\), whose file says so",
    ),
    "a product of own code before an intercept of a layer": (
        network(
            'A = MatMul(X, "onnx::MatMul_5") B = Add(A, "f.bias") Y = MatMul(B, "onnx::MatMul_6")',
            modules={"A": "/MatMul", "B": "/Add", "Y": "/g/MatMul"},
            **{"f.bias": V[0], "onnx::MatMul_5": U, "onnx::MatMul_6": W},
        ),
        r"computed onnx::MatMul_5\. The file .*dynamo=True, optimize=False\), whose file says so",
    ),
    "a product of own code with three axes": (
        network(
            'A = MatMul(X, W) B = Tanh(A) Y = Einsum<equation = "bi,kio->bo">(B, "onnx::Einsum_5")',
            modules={"Y": "/Einsum"},
            **{"W": W, "onnx::Einsum_5": np.stack([U, V])},
        ),
        r"computed onnx::Einsum_5\. The file .*dynamo=True, optimize=False\), whose file says so",
    ),
    "a matrix of own code that is repeated for all rows": (
        network(
            "zero = Constant<value_ints = [0]>() two = Constant<value_ints = [2, 3, 3]>() A = MatMul(X, W) "
            'B = Tanh(A) C = Expand("onnx::Expand_5", two) D = ReduceSum<keepdims = 0>(C, zero) Y = MatMul(B, D)',
            modules={"C": "/Expand", "Y": "/MatMul"},
            **{"W": W, "onnx::Expand_5": U[None]},
        ),
        r"computed onnx::Expand_5\. The file .*dynamo=True, optimize=False\), whose file says so",
    ),
    "a product in a linear layer": (
        network(DENSE, modules=IN_DENSE, **{"onnx::MatMul_5": W, "onnx::MatMul_7": U, "f.bias": V[0], "g.bias": V[1]}),
        r"computed onnx::MatMul_7\. The file .*dynamo=True, optimize=False\), whose file says so",
    ),
    "a shift and a scale of the inputs": (
        network("A = Sub(X, t) B = Div(A, c) Y = MatMul(B, W)", t=V[0], c=1 + V[1] ** 2, W=W),
        r"^t, c shift and scale values .* list them in weights_to_train along with the other weights, or use ",
    ),
    "a shift and a scale of a layer with the names of statistics": (
        network("A = MatMul(X, W) T = Tanh(A) B = Sub(T, mean) C = Div(B, std) Y = MatMul(C, U)", **STATISTICS),
        r"^mean, std shift and scale values .* list them in weights_to_train along with the other weights, or use ",
    ),
    "a root of a parameter as divisor": (
        network(
            """A = MatMul(X, W) T = Tanh(A) B = Div(T, "onnx::Div_5") Y = MatMul(B, U)""",
            modules={"B": "/Div"},
            **{"W": W / 9, "U": U / 9, "onnx::Div_5": 1 + V[0] ** 2},
        ),
        r"computed onnx::Div_5\. The file .*do_constant_folding=False to keep ",
    ),
    "decays as base of powers": (
        network(
            """A = MatMul(X, W) P = Pow("onnx::Pow_5", E) B = Mul(A, P) Y = MatMul(B, U)""",
            modules={"P": "/Pow"},
            **{"W": W / 9, "U": U / 9, "E": np.ones(3), "onnx::Pow_5": 1 / (1.5 + V[:1] ** 2)},
        ),
        r"computed onnx::Pow_5\. The file .*do_constant_folding=False to keep ",
    ),
    "a view of a parameter of own code": (
        network(
            """A = MatMul(X, W) T = Tanh(A) B = Mul(T, "onnx::Mul_5") C = Add(B, w) Y = MatMul(C, U)""",
            **{"W": W, "U": U, "w": V[0], "onnx::Mul_5": V[:1]},
        ),
        r"computed onnx::Mul_5\. The file .*do_constant_folding=False to keep ",
    ),
    "equal parts of a parameter of 1 / n": (
        of_dynamo(
            "A = Mul(X, select) B = Tanh(A) C = Mul(B, select) Y = MatMul(C, W)",
            "a W",
            {"A": ("", "mul.Tensor](args = (%X, %select))"), "C": ("", "mul.Tensor](args = (%B, %select_1))")},
            {"select": ["a", "val_0"]},
            select=np.array(1 / 3),
            W=W,
        ),
        r"left out a\. .*views of parameters",
    ),
    **{
        f"elements that were read several times, as {name}": (
            of_dynamo(
                f"A = MatMul(X, {name}) Y = MatMul(A, W)",
                "w running_rel W",
                {"A": ("", f"matmul.default](args = (%X, %{name}))")},
                {name: ["w", "running_rel", "val_0", *operations]},
                W=W,
                **{name: np.arange(6)[np.arange(3)[:, None] - np.arange(3)] / 9},
            ),
            rf"precomputed {name}, .*optimize=False\) to keep the parameters",
        )
        for name, operations in (("index", []), ("t", ["index"]))
    },
    "a copy that has the name of a buffer": (
        network(
            'ema_weight = Identity("f.weight") A = MatMul(X, "f.weight") B = Tanh(A) Y = MatMul(B, ema_weight)',
            **{"f.weight": W},
        ),
        r"^ema_weight may be buffers, .* set weights_to_train=\['-ema_weight'\]",
    ),
    "factors of peft": (
        of_dynamo(
            """A = MatMul(X, "f.base_layer.weight") P = MatMul(X, "f.lora_A.default.weight")
            Q = MatMul(P, "f.lora_B.default.weight") Y = Add(A, Q)""",
            "f.base_layer.weight f.lora_A.default.weight f.lora_B.default.weight",
            {
                "A": ("f", "matmul.default](args = (%X, %p_f_base_layer_weight))"),
                "P": ("f", "matmul.default](args = (%X, %p_f_lora_A_default_weight))"),
                "Q": ("f", "matmul.default](args = (%P, %p_f_lora_B_default_weight))"),
            },
            **{"f.base_layer.weight": W, "f.lora_A.default.weight": U[:, :2], "f.lora_B.default.weight": V[:2]},
        ),
        r"only the adapters, set weights_to_train=\['f\.lora_A\.default\.weight', 'f\.lora_B\.default\.weight'\]",
    ),
    "factors of peft that were transposed": (
        network(
            """A = MatMul(X, "onnx::MatMul_1") P = MatMul(X, "onnx::MatMul_2") Q = MatMul(P, "onnx::MatMul_3")
            Y = Add(A, Q)""",
            modules={"A": "/f/base_layer/MatMul", "P": "/f/default/MatMul", "Q": "/f/default_1/MatMul"},
            **{"onnx::MatMul_1": W, "onnx::MatMul_2": U[:, :2], "onnx::MatMul_3": V[:2]},
        ),
        r"only the adapters, set weights_to_train=\['onnx::MatMul_2', 'onnx::MatMul_3'\]",
    ),
    "positions that may be trained": (
        network(
            'A = MatMul(X, W) Q = MatMul(A, "p.weight") Y = Tanh(Q)', **{"W": np.resize(W, (3, 8)), "p.weight": SINES}
        ),
        r"^p\.weight have equal steps or sines .* list them in weights_to_train ",
    ),
    "a function of the result": (
        network('A = MatMul(X, W) E = Exp("onnx::Exp_3") Y = Mul(A, E)', **{"W": W, "onnx::Exp_3": ZEROS}),
        r"computed onnx::Exp_3, perhaps as -2 w .*do_constant_folding=False\) to keep ",
    ),
    "BatchNormalization without a scale": (
        of_dynamo("Y = MatMul(X, W)", "W bn.running_var", {"Y": ("", "linear.default](args = (%X, %p_W))")}, W=W),
        r"folded BatchNormalization into the preceding layers: ",
    ),
    "a result that equals a parameter": (
        of_dynamo(
            "A = Mul(X, a) B = Tanh(A) C = Mul(B, a) Y = MatMul(C, W)",
            "a W",
            {
                "A": ("", "mul.Tensor](args = (%X, %p_a))"),
                "C": ("", "mul.Tensor](args = (%B, %reciprocal))"),
                "Y": ("", "matmul.default](args = (%C, %p_W))"),
            },
            a=1 + ZEROS,
            W=W,
        ),
        r"left out a\. .*results that equal a parameter",
    ),
    "a parameter of frequencies": (
        of_dynamo(
            "A = MatMul(X, F) S = Sin(A) C = Cos(A) H = Add(S, C) Y = MatMul(H, W)",
            "F W",
            {
                "A": ("", "matmul.default](args = (%X, %p_F))"),
                "Y": ("", "matmul.default](args = (%H, %p_W))"),
            },
            F=U,
            W=W,
        ),
        r"^F may be frozen in PyTorch, .* set weights_to_train=\['-F'\]",
    ),
    "a parameter of equal steps": (
        of_dynamo(
            "A = MatMul(X, W) B = Sub(A, g) C = Tanh(B) Y = MatMul(C, U)",
            "W g U",
            {"A": ("", "matmul.default](args = (%X, %p_W))"), "Y": ("", "matmul.default](args = (%C, %p_U))")},
            W=np.resize(W, (3, 6)),
            g=np.linspace(0, 1, 6),
            U=np.resize(U, (6, 3)),
        ),
        r"^g may be frozen in PyTorch, .* set weights_to_train=\['-g'\]",
    ),
    "two parameters of equal steps that are written once": (
        of_dynamo(
            "A = MatMul(X, W) B = Sub(A, g) C = Tanh(B) D = Sub(C, g) Y = MatMul(D, U)",
            "W g h U",
            {
                "A": ("", "matmul.default](args = (%X, %p_W))"),
                "B": ("", "sub.Tensor](args = (%A, %p_g))"),
                "C": ("", "tanh.default](args = (%B,))"),
                "D": ("", "sub.Tensor](args = (%C, %p_h))"),
                "Y": ("", "matmul.default](args = (%D, %p_U))"),
            },
            W=np.resize(W, (3, 6)) / 9,
            g=np.linspace(0, 1, 6),
            U=np.resize(U, (6, 3)) / 9,
        ),
        r"^g, h may be frozen in PyTorch, .* set weights_to_train=\['-g', '-h'\]",
    ),
    "polynomials in rows": (
        network("A = MatMul(X, P) B = Tanh(A) Y = MatMul(B, W)", P=POLYNOMIALS, W=np.resize(W, (5, 3))),
        r"^P may be buffers, ",
    ),
    "polynomials in columns": (
        network("A = MatMul(X, W) B = Tanh(A) Y = MatMul(B, P)", P=POLYNOMIALS.T, W=np.resize(W, (3, 5))),
        r"^P may be buffers, ",
    ),
    "a grid of three steps, or thresholds": (
        network("A = MatMul(X, W) B = Sub(A, g) Y = MatMul(B, V)", W=W, V=U, g=np.arange(3, dtype=np.float32)),
        r"^g may be buffers, ",
    ),
    "a factor of angles": (
        network(
            'A = Mul(X, "onnx::Mul_3") S = Sin(A) C = Cos(A) H = Add(S, C) Y = MatMul(H, W)',
            **{"onnx::Mul_3": V[0], "W": W},
        ),
        r"computed onnx::Mul_3, whose products .*do_constant_folding=False\) to keep ",
    ),
    "zeros added to the output": (
        network('A = MatMul(X, W) Y = Add(A, "onnx::Add_3")', **{"W": W, "onnx::Add_3": ZEROS[None]}),
        r"^onnx::Add_3 may be buffers, .* set weights_to_train=\['-onnx::Add_3'\]",
    ),
    "a grid of many steps": (
        network(
            "A = MatMul(X, W) B = Sub(A, g) C = Tanh(B) Y = MatMul(C, V)",
            W=np.resize(W, (3, 6)),
            g=np.linspace(0, 1, 6, dtype=np.float32),
            V=np.resize(U, (6, 3)),
        ),
        r"^g have equal steps or sines .*, and are not trained\. .* list them in weights_to_train ",
    ),
    **{
        f"positions that may be frozen, of {len(shape)} axes": (
            of_dynamo(
                "A = MatMul(X, W) Q = Squeeze(P) Y = MatMul(A, Q)",
                "W P",
                {
                    "A": ("", "matmul.default](args = (%X, %p_W))"),
                    "Q": ("", "squeeze.default](args = (%p_P,))"),
                    "Y": ("", "matmul.default](args = (%A, %Q))"),
                },
                W=np.concatenate([W, U, V[:, :2]], axis=1) / 9,
                P=SINES.reshape(shape),
            ),
            r"^P may be frozen in PyTorch, .* set weights_to_train=\['-P'\]\.",
        )
        for shape in ((8, 3), (1, 8, 3))
    },
    "modules without intercepts": (
        network(COMPUTED, modules=MODULES, val_0=W),
        r"wrote val_0 once .*do_constant_folding=False\) to keep ",
    ),
    "a row of zeros": (
        network(READ, W=W * np.array([[1], [0], [1]]), U=U),
        r"zeros of W is treated as the row of padding_idx.*optimize=False\), whose file says so",
    ),
    "a matrix of several weights": (
        network('Y = Gemm<transB = 1>(X, "onnx::Gemm_3")', **{"onnx::Gemm_3": W}),
        r"computed onnx::Gemm_3 from several weights.*do_constant_folding=False\) to keep ",
    ),
    "a scale of several weights, as for a standardized convolution": (
        network(
            'A = BatchNormalization(X, "onnx::BatchNormalization_3", b, m, v) Y = MatMul(A, W)',
            **{"onnx::BatchNormalization_3": V[0], "b": V[1], "m": ZEROS, "v": 1 + ZEROS, "W": W},
        ),
        r"computed onnx::BatchNormalization_3 from several weights.*do_constant_folding=False\) to keep ",
    ),
    "a scale of BatchNormalization, as Keras writes it": (
        network(
            'A = Sub(X, "onnx::Sub_1") B = Mul(A, "onnx::Mul_2") C = Add(B, "onnx::Add_3") Y = MatMul(C, "onnx::MatMul_4")',
            **{"onnx::Sub_1": V[0], "onnx::Mul_2": V[1] / 9, "onnx::Add_3": V[2] / 9, "onnx::MatMul_4": W / 9},
        ),
        r"computed onnx::Mul_2 from several weights.*do_constant_folding=False\) to keep ",
    ),
    "views of a parameter": (
        of_dynamo(
            """A = MatMul(X, W) B = Add(A, "a.bias") n = Constant<value_ints = [3, 0]>() i, j = Split("a.bias", n)
            C = MatMul(B, U) Y = Add(C, i)""",
            "a.bias b.bias W U",
            {
                "B": ("a", "add.Tensor](args = (%A, %p_a_bias))"),
                "A": ("", "matmul.default](args = (%X, %p_W))"),
                "C": ("", "matmul.default](args = (%B, %p_U))"),
                "Y": ("b", "add.Tensor](args = (%C, %getitem))"),
            },
            **{"a.bias": ZEROS, "W": W, "U": U},
        ),
        r"left out b\.bias\. .*views of parameters",
    ),
    "a parametrization": (
        of_dynamo(
            "Y = MatMul(X, mul)",
            "f.g f.v",
            {"Y": ("f", "linear.default](args = (%X, %mul))")},
            {"mul": ["div", "f.g", "f.v"]},
            mul=W,
        ),
        "precomputed mul",
    ),
    "convolutions": (
        network(
            's = Constant<value_ints = [-1, 1, 3]>() R = Reshape(X, s) C = Conv(R, "onnx::Conv_3") F = Flatten(C) Y = Add(F, bias)',
            **{"onnx::Conv_3": W[:1, :1, None], "bias": V[0]},
        ),
        r"computed onnx::Conv_3 from several weights.*do_constant_folding=False\) to keep ",
    ),
    "channels": (
        network(
            """s = Constant<value_ints = [-1, 3, 1, 1]>() R = Reshape(X, s) C = Conv(R, k) M = Mul(C, "onnx::Mul_3")
            A = Add(M, "onnx::Add_4") Y = Flatten(A)""",
            **{"k": W[:, :, None, None], "onnx::Mul_3": V[0][None, :, None, None]},
            **{"onnx::Add_4": V[1][None, :, None, None]},
        ),
        "onnx::Add_4, onnx::Mul_3 scale|onnx::Mul_3, onnx::Add_4 scale",
    ),
    "BatchNormalization": (
        of_dynamo(
            "Y = MatMul(X, W)",
            "W n.weight n.bias n.running_var",
            {"Y": ("n", "batch_norm.default](args = (%linear, %p_n_weight, %p_n_bias, %p_n_running_var))")},
            W=W,
        ),
        "folded BatchNormalization into the preceding layers: n",
    ),
}


@pytest.mark.filterwarnings("ignore:y is from")  # a network ends in Tanh
@pytest.mark.filterwarnings("ignore:.*max_iter")
@pytest.mark.parametrize("name", LACKING)
def test_what_the_exporter_left_out_is_named(name):
    onx, message = LACKING[name]
    with pytest.warns(UserWarning, match=message):
        fitted(onx)


#: A value that the exporter folded from f.weight by moving its elements, and all values from which it was folded.
MOVED = {
    "a weight in the shape of rows": ("val_8", ["f.weight", "tanh", "val_1", "x"]),
    "one and a weight": ("add_4", ["f.weight", "val_1", "scalar_tensor_default_1"]),
    "an embedding at the positions arange + offset": ("embedding_1", ["f.weight", "add_4", "arange", "unsqueeze"]),
}


@pytest.mark.filterwarnings("error", "ignore:.*max_iter")
@pytest.mark.parametrize("name, sources", MOVED.values(), ids=MOVED)
def test_a_value_with_the_elements_of_a_parameter_is_not_precomputed(name, sources):
    operations = {"Y": ("f", "bilinear.default](args = (%tanh, %x, %p_f_weight))")}
    onx = of_dynamo(f"tanh = Tanh(X) Y = MatMul(tanh, {name})", "f.weight", operations, {name: sources}, **{name: W})
    onx.graph.metadata_props[0].value = onx.graph.metadata_props[0].value.replace("X: USER", "x: USER")
    fitted(onx)


@pytest.mark.filterwarnings("ignore:.*max_iter")
@pytest.mark.parametrize("factor", ["", "value: 2"])
def test_one_times_a_weight_in_addcmul_is_not_precomputed(factor):
    """As the response normalization of ConvNeXt V2 is written."""
    text = f"addcmul.default](args = (%view, %view_1, %X), kwargs = {{{factor}}})"
    operations = {"A": ("f", text), "B": ("f", text)}
    sources = {"tmp": ["f.weight", "value", "value_cast", "view_1"]}
    onx = of_dynamo(
        "A = Mul(tmp, X) B = Add(view, A) Y = MatMul(B, U)",
        "f.weight",
        operations,
        sources,
        tmp=V[:1],
        view=V[1:2],
        U=U,
    )
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fitted(onx)
    assert any("precomputed tmp" in str(w.message) for w in found) == bool(factor)


@pytest.mark.filterwarnings("error", "ignore:.*max_iter")
def test_a_filter_that_was_computed_is_not_said_to_be_frozen():
    operations = {"Y": ("", "conv2d.default](args = (%X, %einsum))")}
    onx = of_dynamo(
        """s = Constant<value_ints = [-1, 1, 3, 1]>() R = Reshape(X, s) C = Conv<pads = [1, 0, 1, 0]>(R, einsum)
        Y = Flatten(C)""",
        "f.weight",
        operations,
        {"einsum": ["f.weight", "einsum"]},
        einsum=np.array([0.25, 0.5, 0.25]).reshape(1, 1, 3, 1),
    )
    with pytest.warns(UserWarning, match="precomputed einsum"):
        fitted(onx)


@pytest.mark.filterwarnings("error", "ignore:.*max_iter", OWN_NAMES)
@pytest.mark.parametrize("name", WEIGHTS)
def test_initial_weights_are_no_results(name):
    fitted(
        network(
            'A = MatMul(X, W) B = Tanh(A) Y = MatMul(B, "onnx::MatMul_1")', W=W, **{"onnx::MatMul_1": WEIGHTS[name]}
        )
    )


@pytest.mark.filterwarnings("error", "ignore:.*max_iter")
def test_transposed_weights_of_linear_layers_are_no_results_of_own_code():
    nodes = """A = MatMul(X, "onnx::MatMul_3") B = Add(A, "f.bias") C = MatMul(B, "onnx::MatMul_4") D = Tanh(C)
        E = MatMul(D, "onnx::MatMul_5") Y = Add("g.in_proj_bias", E)"""
    weights = {"onnx::MatMul_3": W, "f.bias": V[0], "onnx::MatMul_4": U, "onnx::MatMul_5": V, "g.in_proj_bias": V[1]}
    modules = {"A": "/f/MatMul", "B": "/f/Add", "C": "/h/MatMul", "D": "/g/Tanh", "E": "/g/MatMul", "Y": "/g/Add"}
    fitted(network(nodes, modules=modules, **weights))


@pytest.mark.filterwarnings("error", "ignore:.*max_iter")
@pytest.mark.parametrize("code, number", [(DENSE, 6), (DENSE.replace("Tanh(B)", "Concat<axis = 1>(B)"), 7)])
def test_transposed_weights_are_computed_in_one_step(code, number):
    weights = {"onnx::MatMul_5": W, f"onnx::MatMul_{number}": U, "f.bias": V[0], "g.bias": V[1]}
    fitted(network(code.replace("MatMul_7", f"MatMul_{number}"), modules=IN_DENSE, **weights))


@pytest.mark.filterwarnings("error", "ignore:.*max_iter", OWN_NAMES)
@pytest.mark.parametrize("rows, code", [("T", "T = Tanh(A)"), ("X", "")], ids=["of a layer", "of the inputs"])
def test_shifts_and_scales_are_trained_unless_they_are_one_row_for_the_inputs(rows, code):
    nodes = f"""one = Constant<value_ints = [1]>() A = MatMul(X, W) {code} R = Unsqueeze({rows}, one) S = Sub(R, t)
        D = Div(S, c) E = ReduceSum<keepdims = 0>(D, one) F = Add(A, E) Y = MatMul(F, U)"""
    found = fitted(network(nodes, W=W / 9, U=U / 9, t=V / 9, c=1 + V**2)).weights_
    assert set(found) == {"W", "U", "t", "c"}


@pytest.mark.filterwarnings("error", "ignore:.*max_iter", OWN_NAMES)
def test_a_root_of_a_parameter_is_no_deviation():
    nodes = "A = MatMul(X, W) T = Tanh(A) R = Sqrt(power) S = Mul(T, R) Y = MatMul(S, U)"
    assert set(fitted(network(nodes, W=W / 9, U=U / 9, power=1 + V[0] ** 2)).weights_) == {"W", "U", "power"}


@pytest.mark.filterwarnings("error", "ignore:.*max_iter", OWN_NAMES)
def test_transposed_kernels_of_keras_are_no_products():
    nodes = """s = Constant<value_ints = [-1, 1, 3]>() R = Reshape(X, s) C = Conv(R, "onnx::Conv_3") A = Add(C, "onnx::Add_4")
        Y = Flatten(A)"""
    fitted(network(nodes, **{"onnx::Conv_3": W[:1, :1, None], "onnx::Add_4": ZEROS[None, :1, None]}))


@pytest.mark.filterwarnings("error", "ignore:.*max_iter", OWN_NAMES)
@pytest.mark.parametrize(
    "array",
    [W, np.eye(3, dtype=np.float32), 1 + ZEROS * W, np.eye(3) * 0.85 + 0.05, np.sign(W)],
    ids=["random", "identity", "ones", "cross-stitch", "signs"],
)
def test_initial_weights_are_no_constants(array):
    fitted(network("A = MatMul(X, W) B = Tanh(A) Y = MatMul(B, U)", W=W, U=array))


#: Parameters that resemble buffers.
PARAMETERS = {
    "an intercept of few digits": network(
        'A = Gemm(X, W, "f.bias") B = Tanh(A) Y = MatMul(B, U)',
        **{"W": W, "U": U, "f.bias": np.array([0.1, 0.25, 0.9])},
    ),
    "a name before a weight": network(
        'A = MatMul(X, "f.center") B = Tanh(A) Y = MatMul(B, "f.weight")', **{"f.center": U, "f.weight": W}
    ),
    "the deviation of a policy": network("A = MatMul(X, W) B = Exp(log_std) Y = Mul(A, B)", W=W, log_std=ZEROS - 0.3),
    "a shift and a scale of activations": network(
        "A = Add(X, a) E = Exp(s) B = Mul(A, E) Y = MatMul(B, W)", a=V[0], s=V[1] / 9, W=W
    ),
    "a scale without an intercept": network("A = MatMul(X, W) C = Mul(A, s) Y = Add(C, b)", W=W, s=V[1], b=V[2]),
    "frequencies with phases": network(
        "A = MatMul(X, F) B = Add(A, p) S = Sin(B) C = Cos(B) H = Add(S, C) Y = MatMul(H, W)", F=U, p=V[0], W=W
    ),
}


@pytest.mark.filterwarnings("error", "ignore:.*max_iter", OWN_NAMES)
@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_that_resemble_buffers_are_not_named(name):
    fitted(PARAMETERS[name])


@pytest.mark.filterwarnings("error", "ignore:.*max_iter", OWN_NAMES)
def test_a_slice_that_is_taken_twice_is_no_layer_that_was_left_out():
    operations = {
        "A": ("a", "layer_norm.default](args = (%X, [3], %p_a_weight))"),
        "slice_1": ("", "slice.Tensor](args = (%A,))"),
        "C": ("b", "layer_norm.default](args = (%slice_1, [3], %p_b_weight))"),
        "D": ("", "matmul.default](args = (%C, %p_W))"),
        "Y": ("", "add.Tensor](args = (%D, %slice_2))"),
    }
    nodes = """A = LayerNormalization(X, "a.weight") slice_1 = Identity(A) C = LayerNormalization(slice_1, "a.weight")
        D = MatMul(C, W) Y = Add(D, slice_1)"""
    fitted(of_dynamo(nodes, "a.weight b.weight W", operations, **{"a.weight": 1 + ZEROS, "W": W}))


@pytest.mark.filterwarnings("error", "ignore:.*max_iter", OWN_NAMES)
def test_an_auxiliary_head_that_the_file_lacks_was_not_folded():
    held = "W aux.0.weight aux.1.weight aux.1.bias aux.1.running_var"
    fitted(of_dynamo("Y = MatMul(X, W)", held, {"Y": ("", "matmul.default](args = (%X, %p_W))")}, W=W))


@pytest.mark.filterwarnings("error", "ignore:.*max_iter", OWN_NAMES)
def test_a_layer_that_a_new_head_replaces_was_not_left_out():
    operations = {
        "A": ("a", "linear.default](args = (%X, %p_a_weight))"),
        "Y": ("b", "linear.default](args = (%B, %p_b_weight, %p_b_bias))"),
    }
    nodes = 'A = MatMul(X, "a.weight") B = Tanh(A) Y = Gemm(B, "b.weight", "b.bias")'
    weights = {"a.weight": W, "b.weight": U, "b.bias": 1 + ZEROS}
    onx = of_dynamo(nodes, "a.weight b.weight b.bias", operations, **weights)
    OrtGradientRegressor(onx, head="new", max_iter=1, random_state=0).fit(X, Y[:, :2])
    with pytest.raises(
        WeightError, match="The new head replaced the last layer: for its weights, set weights_to_train='"
    ):
        OrtGradientRegressor(onx, head="new", weights_to_train=["b.weight"], random_state=0).fit(X, Y[:, :2])


@pytest.mark.filterwarnings("error", "ignore:.*max_iter", OWN_NAMES)
def test_a_bias_that_is_linear_in_the_distance_is_no_table_of_a_parameter():
    distance = np.abs(np.arange(5)[:, None] - np.arange(5))
    onx = network(
        """A = MatMul(X, W) s = Constant<value_ints = [-1, 5, 5]>() S = Reshape(A, s) M = Add(S, "onnx::Add_3")
        P = Softmax(M) F = Flatten(P) Y = MatMul(F, U)""",
        **{"W": rng.normal(size=(3, 25)), "onnx::Add_3": -distance[None] / 8, "U": rng.normal(size=(25, 3))},
    )
    assert set(fitted(onx).weights_) == {"W", "U"}


#: What the second layer of LINEAR takes, the module's parameters, and the weights that the fit has.
NAMED = {
    "the first operand of addmm is added last": (
        ("g", "addmm.default](args = (%p_g_bias, %p, %p_g_weight))"),
        "f.weight f.bias g.weight g.bias",
        {"f.weight": (3, 3), "f.bias": (3,), "g.weight": (3, 3), "g.bias": (3,)},
    ),
    "a parameter has the name of a value": (
        ("", "linear.default](args = (%p, %p_p, %p_f_bias))"),
        "f.weight f.bias p",
        {"f.weight": (3, 3), "f.bias": (3,)},
    ),
    "a parameter has the name of the input": (
        ("", "linear.default](args = (%p, %p_X, %p_f_bias))"),
        "f.weight f.bias X",
        {"f.weight": (3, 3), "f.bias": (3,)},
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_restored_parameters_have_their_names(name):
    second, held, shapes = NAMED[name]
    operations = {"P": ("f", "linear.default](args = (%X, %p_f_weight, %p_f_bias))"), "Y": second}
    trained = fitted(of_dynamo(LINEAR, held, operations, **{"f.weight": W, "f.bias": V[0]}))
    assert {w: array.shape for w, array in trained.weights_.items()} == shapes


def test_a_file_with_restored_intercepts_is_like_the_one_that_came():
    onx = CASES["dynamo: intercepts of zeros that were left out"][0]
    model = fitted(onx)
    found = model.get_trained_onnx()
    assert [node.op_type for node in found.graph.node] == [node.op_type for node in onx.graph.node]
    assert [*found.graph.node[0].input] == ["X", "W", "f.bias"]
    assert sorted(fitted(found).weights_) == sorted(model.weights_)
    only = OrtGradientRegressor(onx, weights_to_train=["W"], max_iter=1, random_state=0).fit(X, Y)
    assert [*only.get_trained_onnx().graph.node] == [*onx.graph.node]


def test_a_table_that_is_read_at_constant_indices_is_no_embedding():
    code = "k = Constant<value_ints = [0]>() E = Gather(a, k) A = Add(X, E) Y = MatMul(A, W)"
    assert padding_rows(network(code, a=ZEROS[None], W=W)) == {}


def test_results_without_a_name_are_no_embeddings():
    """Of a damaged file, whose lookups all have the empty name, a lookup in another value was taken for one."""
    onx = network(
        "i = Cast<to = 7>(X) F = Gather(i, i) E = Gather(W, i) A = ReduceSum(E) Y = MatMul(X, U)",
        W=W * [[1], [0], [1]],
        U=U,
    )
    for node in onx.graph.node[1:3]:
        node.output[:] = [""]
    with_padding(onx)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_tables_of_every_type_have_a_row_for_padding(dtype):
    table = (W * np.array([[1], [0], [1]])).astype(dtype)
    assert padding_rows(network(READ, W=table, U=U)) == {"E": 1}


def test_a_file_that_records_all_parameters_as_buffers_has_a_remedy():
    operations = {"Y": ("", "matmul.default](args = (%X, %p_running_w))")}
    onx = of_dynamo("Y = MatMul(X, running_w)", "running_w", operations, running_w=W)
    with pytest.raises(
        WeightError, match=r"only buffers, .* name those to train, as in weights_to_train=\['running_w'\]\.$"
    ):
        fitted(onx)


def test_a_faulty_file_of_pytorch_has_a_remedy():
    onx = network("A = MatMul(X, W) B = Add(A, c) Y = MatMul(B, U)", W=W, U=U, c=V[:, :2])
    with pytest.raises(
        ModelError, match=r"^Add\(.*\) is not valid: .*onnxruntime cannot run them either\. .*dynamo=True"
    ):
        fitted(onx)


def test_a_faulty_file_has_a_remedy_when_its_output_is_looked_at(monkeypatch):
    def refused(*_):
        raise ModelError("onnxruntime cannot load the model: Op (Squeeze) [ShapeInferenceError] Dimension of input 1")

    monkeypatch.setattr("onnxtrain.estimators.start.settled", refused)
    with pytest.raises(ModelError, match=r"onnxruntime cannot run them either\. Use .*dynamo=True\)\.$"):
        OrtGradientClassifier(network("A = MatMul(X, W) Y = Relu(A)", W=W)).fit(X, np.arange(20) % 3)


def of_keras(nodes, n_constants, folded, operations=(), **weights):
    """Return the network of a Keras model, whose weights torch.onnx.export(dynamo=True) writes as constants."""
    onx = of_dynamo(nodes, "", dict(operations), folded, **weights)
    onx.graph.metadata_props[0].value += "\n".join(
        f"c_{i}: CONSTANT_TENSOR target='lifted_tensor_{i}'" for i in range(n_constants)
    )
    for name in weights.keys() - dict(folded):
        value = onx.graph.value_info.add()
        value.CopyFrom(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, weights[name].shape))
        value.metadata_props.add(key="pkg.torch.export.graph_signature.InputSpec.kind", value="CONSTANT_TENSOR")
    return onx


def test_the_weights_of_a_keras_model_that_dynamo_wrote_as_constants_are_trained():
    """Statistics are not, and a product of gamma and a statistic is warned of; a reshaped intercept is trained as it is."""
    nodes = """e = Constant<value_float = 0.001>() H = MatMul(X, "lifted_tensor_0") Z = Add(H, view) C = Sub(Z, "lifted_tensor_1")
        V = Add("lifted_tensor_2", e) S = Sqrt(V) D = Div(C, S) Y = Mul(D, mul)"""
    ones = np.ones(W.shape[1])
    folded = {"view": ["lifted_tensor_3", "val_0"], "mul": ["lifted_tensor_4", "rsqrt"]}
    onx = of_keras(
        nodes, 5, folded, lifted_tensor_0=W, lifted_tensor_1=ones, lifted_tensor_2=ones, view=ones[None], mul=2 * ones
    )
    with pytest.warns(UserWarning, match="PyTorch's exporter") as said:
        assert set(fitted(onx).weights_) == {"lifted_tensor_0", "view", "mul"}
    assert [str(w.message).partition(" as constants. ")[2][:50] or str(w.message)[:40] for w in said] == [
        "PyTorch's exporter precomputed mul, for ",
        "lifted_tensor_1, lifted_tensor_2 have the place of",
    ]


def test_reshaped_intercepts_of_a_keras_model_that_start_equal_are_trained_separately():
    nodes = """A = MatMul(X, "lifted_tensor_0") B = Add(A, view) H = Relu(B) D = MatMul(H, "lifted_tensor_2")
        Y = Add(D, view)"""
    operations = {"B": ("", "add.Tensor(args = (%A, %view))"), "Y": ("", "add.Tensor(args = (%D, %view_1))")}
    square = np.eye(W.shape[1]) + 0.1
    weights = dict(lifted_tensor_0=W, view=np.zeros((1, W.shape[1])), lifted_tensor_2=square)
    onx = of_keras(nodes, 4, {"view": ["lifted_tensor_1"]}, operations, **weights)
    assert set(fitted(onx).weights_) == {"lifted_tensor_0", "view", "lifted_tensor_2", "lifted_tensor_3"}


def test_a_file_with_a_list_of_tensors_has_a_remedy():
    onx = network("A = MatMul(X, W) Y = MatMul(A, U)", W=W, U=U)
    onx.graph.node.add(op_type="SequenceEmpty", output=["list"])
    assert remedy_of_faulty_file(onx, "requires the number of axes of A").endswith(
        "Use torch.onnx.export(..., dynamo=True)."
    )
    assert not remedy_of_faulty_file(onx, "The model has no weights")


def test_a_file_with_shapes_that_contradict_each_other_has_the_other_exporter_as_remedy():
    of_script = network("A = MatMul(X, W) Y = MatMul(A, U)", W=W, U=U)
    error = "onnxruntime cannot load the model: Op (Squeeze) [ShapeInferenceError] Dimension of input 1 must be 1"
    other = of_dynamo("Y = MatMul(X, W)", "W", {"Y": ("", "matmul.default](args = (%X, %p_W))")}, W=W)
    assert remedy_of_faulty_file(of_script, error).endswith("Use torch.onnx.export(..., dynamo=True).")
    error = "Transpose(A: FLOAT[?,4]) is not valid: [TypeInferenceError] Invalid attribute perm {0, -2}, input shape ="
    assert remedy_of_faulty_file(of_script, error).endswith("Use torch.onnx.export(..., dynamo=True).")
    assert remedy_of_faulty_file(other, error).endswith("dynamo=False, do_constant_folding=False).")


def test_a_file_whose_loss_is_nan_has_a_remedy():
    operations = {"Y": ("", "matmul.default](args = (%A, %p_W))")}
    onx = of_dynamo("A = Div(X, none) Y = MatMul(A, W)", "W", operations, {"none": ["val_1"]}, none=ZEROS, W=W)
    with pytest.raises(ConvergenceError, match=r"own output is finite, .*dynamo=True, optimize=False\)\.$"):
        fitted(onx)


def test_a_file_of_dynamo_that_lacks_a_node_has_a_remedy():
    """As timm's gemma4_vit is written, whose limits of Clip the optimizer removes."""
    onx = of_dynamo("A = MatMul(X, W) Y = Clip(A, lost)", "W", {"A": ("", "matmul.default](args = (%X, %p_W))")}, W=W)
    with pytest.raises(ModelError, match=r"'lost', which no node computes\. The optimizer of .* optimize=False\)\.$"):
        fitted(onx)


@pytest.mark.parametrize("end", ["Constant<value_float = 3.0>()", "ReduceSum<keepdims = 0>(three)"])
def test_a_file_of_dynamo_with_operands_of_two_types_has_a_remedy(end):
    """As torch.arange(0, 3.0) is written."""
    nodes = f"""a = Constant<value_int = 0>() b = {end} c = Constant<value_int = 1>() r = Range(a, b, c)
        s = Mul(X, r) Y = MatMul(s, W)"""
    onx = of_dynamo(nodes, "W", {"Y": ("", "matmul.default](args = (%s, %p_W))")}, W=W, three=1 + ZEROS)
    with pytest.raises(ModelError, match=r"Pass numbers of one type, .*dynamo=False, do_constant_folding=False\)\.$"):
        fitted(onx)


def test_parameters_that_dynamo_recorded_as_constants_beside_others_are_named():
    onx = of_dynamo('Y = MatMul(X, "r.lifted_tensor_0")', "mask", {}, **{"r.lifted_tensor_0": W})
    onx.graph.metadata_props[0].value += "\nc_0: CONSTANT_TENSOR target='r.lifted_tensor_0'"
    value = onx.graph.value_info.add()
    value.CopyFrom(onnx.helper.make_tensor_value_info("r.lifted_tensor_0", onnx.TensorProto.FLOAT, W.shape))
    value.metadata_props.add(key="pkg.torch.export.graph_signature.InputSpec.kind", value="CONSTANT_TENSOR")
    with pytest.raises(
        WeightError, match=r"recorded all tensors as constants \(r\.lifted_tensor_0, .*dynamo=False\), wh"
    ):
        fitted(onx)
