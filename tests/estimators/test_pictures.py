"""Pictures of models and steps: what is drawn is the graph."""

import xml.etree.ElementTree as ET
from itertools import combinations

import onnx
import pytest
from onnx import parser
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, onnx_derivative, plot_graph
from onnxtrain.drawing import COLORS
from onnxtrain.errors import ParameterError

# fits of one epoch: graphs are looked at, not results
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SVG = "{http://www.w3.org/2000/svg}"
X, y = load_diabetes(return_X_y=True)


def mlp():
    start = MLPRegressor(hidden_layer_sizes=(5,), max_iter=1, tol=1e9, n_iter_no_change=1, random_state=0)
    return start.fit(X, y)


def logistic():
    return LogisticRegression().fit(*load_iris(return_X_y=True))


CASES = {
    "line": lambda: OrtGradientRegressor(LinearRegression().fit(X, y), solver="sgd", max_iter=1).fit(X, y),
    "network": lambda: OrtGradientRegressor(mlp(), loss="huber", l2=0.1, l1=0.1, max_iter=1, tol=0).fit(X, y),
    "proximal": lambda: OrtGradientRegressor(mlp(), l1=0.1, l1_method="proximal", clip_norm=1.0, max_iter=1).fit(X, y),
    "weighted": lambda: OrtGradientRegressor(mlp(), max_iter=1).fit(X, y, sample_weight=y),
    "classes": lambda: OrtGradientClassifier(logistic(), max_iter=1).fit(*load_iris(return_X_y=True)),
    "pipeline": lambda: OrtGradientRegressor(make_pipeline(StandardScaler(), mlp()).fit(X, y), max_iter=1).fit(X, y),
}
MODEL = parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]>
    net (float[N,2] X) => (float[N,3] Y) <float[2,3] W = {1, 2, 3, 4, 5, 6}>
    { H = MatMul(X, W) T = Tanh(H) Y = Mul(T, H) }"""
)


def read(picture):
    """Return the boxes, sides by name and stage, and the edges, of an SVG."""
    root = ET.fromstring(picture.to_svg())
    nodes = [g for g in root.iter(f"{SVG}g") if g.get("class") == "node"]
    edges = [path for path in root.iter(f"{SVG}path") if path.get("class") == "edge"]
    return root, nodes, edges


def sides(node):
    (rect,) = node.iter(f"{SVG}rect")
    left, top, width, height = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
    return left, top, left + width, top + height


def assert_drawn(picture):
    root, nodes, edges = read(picture)
    for a, b in combinations(map(sides, nodes), 2):
        assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
    named = {}
    for node in nodes:
        named.setdefault(node.get("data-name"), []).append(sides(node))
        (rect,) = node.iter(f"{SVG}rect")
        assert (rect.get("fill"), rect.get("stroke")) == COLORS[node.get("data-stage")]
    for edge in edges:
        points = [float(v) for v in edge.get("d").replace("M", " ").replace("C", " ").split()]
        (x0, y0), (x1, y1) = points[:2], points[-2:]
        assert any(
            left < x0 < right and y0 == pytest.approx(b, abs=0.2) for left, _, right, b in named[edge.get("data-from")]
        )
        assert any(
            left < x1 < right and y1 == pytest.approx(t, abs=0.2) for left, t, right, _ in named[edge.get("data-to")]
        )
        assert y0 < y1
    keys = [rect.get("fill") for rect in root.iter(f"{SVG}rect") if rect.get("class") == "key"]
    assert keys == [COLORS[stage][0] for stage in COLORS if stage in {n.get("data-stage") for n in nodes}]
    return nodes, edges


@pytest.mark.parametrize("case", CASES)
def test_each_part_of_a_step_has_the_nodes_of_the_part_before(case):
    estimator, before = CASES[case](), {}
    stages = ("forward", "loss", "gradient", "optimizer")
    for k, part in enumerate(("model", "loss", "gradient", "step")):
        nodes, _ = assert_drawn(plot_graph(estimator, part))
        drawn = {s: [n.get("data-nodes") for n in nodes if n.get("data-stage") == s] for s in stages}
        assert [s for s in stages if drawn[s]] == [*stages[: k + 1]]
        if part == "step":
            outputs = {n.get("data-name") for n in nodes if n.get("data-stage") == "output"}
            assert {"loss", *(f"next_{name}" for name in estimator.weights_)} <= outputs
        if part == "gradient":
            outputs = {n.get("data-name") for n in nodes if n.get("data-stage") == "output"}
            assert outputs == {"loss", *(f"{name}_grad" for name in estimator.weights_)}
        if part in ("gradient", "step"):
            assert drawn["forward"] == before["forward"]
        before = drawn


def test_every_node_of_an_onnx_model_is_drawn_with_its_edges():
    nodes, edges = assert_drawn(plot_graph(MODEL))
    drawn = {n.get("data-name"): n.get("data-nodes") for n in nodes if n.get("data-nodes")}
    assert drawn == {node.output[0]: node.op_type for node in MODEL.graph.node}
    between = {(e.get("data-from"), e.get("data-to")) for e in edges}
    assert between == {(x, node.output[0]) for node in MODEL.graph.node for x in node.input} | {("Y", "Y")}


def test_the_gradient_of_an_onnx_model_is_the_graph_of_onnx_derivative():
    nodes, _ = assert_drawn(plot_graph(MODEL, "gradient"))
    derived = onnx_derivative(MODEL)
    outputs = {n.get("data-name") for n in nodes if n.get("data-stage") == "output"}
    assert outputs == {"Y", *(o.name for o in derived.graph.output)}
    forward = sorted(n.get("data-nodes") for n in nodes if n.get("data-stage") == "forward")
    assert forward == ["MatMul", "Mul", "Tanh"]


def test_a_model_may_be_a_path_or_bytes_and_a_file_is_written(tmp_path):
    onnx.save(MODEL, tmp_path / "model.onnx")
    pictures = [plot_graph(m) for m in (MODEL, MODEL.SerializeToString(), tmp_path / "model.onnx")]
    assert len({picture.to_svg() for picture in pictures}) == 1
    pictures[0].save(tmp_path / "model.svg")
    assert (tmp_path / "model.svg").read_text(encoding="utf-8") == pictures[0]._repr_svg_()


def long_model(n):
    lines = "".join(f"t{i} = Neg({f't{i - 1}' if i else 'X'}) " for i in range(n))
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> long (float[N] X) => (float[N] Y) {{ {lines} Y = Abs(t{n - 1}) }}'
    )


def test_large_graphs_are_folded_and_say_so():
    picture = plot_graph(long_model(30), max_nodes=20)
    assert picture.note == "31 nodes, chains are folded: 1 boxes"
    nodes, _ = assert_drawn(picture)
    assert sum(len(n.get("data-nodes").split()) for n in nodes) == 31


def test_graphs_that_stay_too_large_are_refused():
    estimator = CASES["network"]()
    with pytest.raises(ParameterError, match=r"has \d+ nodes, \d+ with chains folded, but max_nodes=20\. Set"):
        plot_graph(estimator, "step", max_nodes=20)


def test_mistakes():
    with pytest.raises(ParameterError, match="got 'gradients'. Did you mean 'gradient'"):
        plot_graph(MODEL, "gradients")
    with pytest.raises(ParameterError, match="an ONNX model has no loss"):
        plot_graph(MODEL, "step")
    with pytest.raises(NotFittedError):
        plot_graph(OrtGradientRegressor())
    lbfgs = OrtGradientRegressor(solver="lbfgs").fit(X, y)
    assert len(read(plot_graph(lbfgs, "gradient"))[1]) > 5
    with pytest.raises(ValueError, match="'lbfgs' has no step"):
        plot_graph(lbfgs, "step")
