"""How a fit went and ended: the history, the progress bar, the curves, and the summary of what was trained."""

import builtins
import sys
import types
import xml.etree.ElementTree as ET

import matplotlib.pyplot as plt
import numpy as np
import onnx.parser
import pytest
from sklearn.datasets import load_diabetes
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onnxtrain
from onnxtrain import (
    LiveLossCurve,
    LoRA,
    LossCurveDisplay,
    OrtGradientClassifier,
    OrtGradientRegressor,
    load,
    plot_graph,
    save,
)
from onnxtrain.errors import ParameterError
from onnxtrain.optim import Cosine

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, y = load_diabetes(return_X_y=True)
X, y = X[:100] * 20, (y[:100] - 150) / 80


def line(**params):
    return OrtGradientRegressor(LinearRegression(), init="random", random_state=0, **params)


@pytest.fixture(autouse=True)
def _no_figure_stays():
    yield
    plt.close("all")


# ----------------------------------------------------------------- history


def test_the_history_has_a_row_for_each_epoch():
    rates = []
    model = line(max_iter=5, learning_rate=Cosine(0.1), early_stopping=True)
    model.fit(X, y, callback=lambda info: rates.append(info.learning_rate))
    frame = model.history_.to_frame()
    assert frame.index.tolist() == [1, 2, 3, 4, 5]
    assert frame.index.name == "epoch"
    assert frame["loss"].tolist() == model.loss_curve_
    assert frame["validation_loss"].tolist() == model.validation_loss_curve_
    assert frame["learning_rate"].tolist() == rates
    assert len(set(rates)) == 5


@pytest.mark.filterwarnings("ignore:The validation set")
def test_epochs_without_a_validation_set_have_none():
    model = line(max_iter=2, warm_start=True).fit(X, y)
    model.fit(X, y, X_val=X, y_val=y)
    assert np.isnan(model.history_.validation_loss).tolist() == [True, True, False, False]
    assert len(model.history_) == 4


def test_the_rates_are_in_the_file(tmp_path):
    model = line(max_iter=3, learning_rate=Cosine(0.1)).fit(X, y)
    save(model, tmp_path / "model.onnx")
    assert load(tmp_path / "model.onnx").history_ == model.history_


def is_third(info):
    return info.epoch == 3


ENDINGS = {
    "all": (lambda: line(max_iter=4).fit(X, y), "4 of 4 epochs"),
    "validated": (
        lambda: line(max_iter=30, tol=10, n_iter_no_change=2).fit(X, y, X_val=X, y_val=y),
        "stopped after 4 of 30: best epoch 4; the validation loss did not fall by tol=10 for 3 epochs",
    ),
    "loss": (
        lambda: line(max_iter=30, tol=10, n_iter_no_change=5).fit(X, y),
        "stopped after 7 of 30; the loss did not fall by tol=10 for 6 epochs",
    ),
    "callback": (
        lambda: line(max_iter=30).fit(X, y, callback=is_third),
        "stopped after 3 of 30; a callback asked for it",
    ),
    "solver": (lambda: line(solver="lbfgs", max_iter=500).fit(X, y), "; the solver has converged"),
    "one epoch": (lambda: line(max_iter=30).partial_fit(X, y), "1 of 1 epochs"),
    "none": (lambda: line(max_iter=0).fit(X, y), "0 of 0 epochs"),
}


@pytest.mark.parametrize("case", ENDINGS)
@pytest.mark.filterwarnings("ignore:The validation set")
def test_the_ending_says_where_a_fit_stopped_and_why(case):
    fit, expected = ENDINGS[case]
    ending = fit().history_.ending
    assert ending.endswith(expected) if expected.startswith(";") else ending == expected


def test_the_ending_is_of_the_fit_not_of_the_parameters_now():
    stopped = line(max_iter=50, tol=1e9, n_iter_no_change=3).fit(X, y)
    before = stopped.history_.ending
    assert "the loss did not fall by tol=1e+09" in before
    assert stopped.set_params(n_iter_no_change=10, tol=1e-4, max_iter=7).history_.ending == before


@pytest.mark.filterwarnings("ignore:The validation set")
def test_a_second_fit_counts_its_own_epochs():
    model = line(max_iter=3, warm_start=True).fit(X, y)
    assert model.fit(X, y, X_val=X, y_val=y).history_.ending == "3 of 3 epochs: best epoch 3"
    assert repr(model.history_) == "<History of 6 epochs: 3 of 3 epochs: best epoch 3>"


def test_what_is_not_fitted_has_no_history():
    assert not hasattr(line(), "history_")
    with pytest.raises(AttributeError, match="OrtGradientRegressor has no history_ before it is fitted"):
        line().history_  # noqa: B018


@pytest.mark.parametrize("widgets", [True, False])
@pytest.mark.filterwarnings("ignore:The validation set")
def test_the_progress_bar_says_how_it_ended(capsys, monkeypatch, widgets):
    find = onnxtrain.estimators.reports.importlib.util.find_spec
    spec = types.SimpleNamespace() if widgets else None
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: spec if name == "ipywidgets" else find(name, *a))
    line(max_iter=30, verbose=1, tol=10, n_iter_no_change=2).fit(X, y, X_val=X, y_val=y)
    assert "4/30" in (printed := capsys.readouterr().err)
    assert "stopped after 4 of 30: best epoch 4; the validation loss did not fall" in printed


def test_the_bar_of_no_epoch_and_the_lines(capsys):
    line(max_iter=0, verbose=1).fit(X, y)
    assert "epoch" in capsys.readouterr().err
    line(max_iter=2, verbose=2).fit(X, y)
    assert capsys.readouterr().out.splitlines()[-1] == "2 of 2 epochs"


# ------------------------------------------------------------------ curves


def test_the_loss_curve_draws_rates_and_validation():
    model = line(max_iter=5, learning_rate=Cosine(0.1), early_stopping=True).fit(X, y)
    display = LossCurveDisplay.from_estimator(model, rate=True)
    training, validation, rates = (drawn.get_ydata().tolist() for drawn in display.lines_)
    assert training == model.loss_curve_
    assert validation == model.validation_loss_curve_
    assert rates == list(model.history_.learning_rate)
    assert display.rate_ax_ is not display.ax_
    assert LossCurveDisplay.from_estimator(model).rate_ax_ is None


def test_the_live_curve_is_written_to_a_file(tmp_path):
    live = LiveLossCurve(tmp_path / "loss.svg", every=2, rate=True)
    sizes = []

    def look(info):
        live(info)
        sizes.append((tmp_path / "loss.svg").stat().st_size if (tmp_path / "loss.svg").exists() else 0)

    model = line(max_iter=4, early_stopping=True).fit(X, y, callback=look)
    assert live.loss == model.loss_curve_
    assert live.validation_loss == model.validation_loss_curve_
    assert live.learning_rate == list(model.history_.learning_rate)
    assert sizes[0] == 0
    assert sizes[1] > 0
    assert ET.parse(tmp_path / "loss.svg").getroot().tag.endswith("svg")
    assert plt.get_fignums() == []


def test_the_live_curve_is_replaced_in_a_notebook(monkeypatch):
    shown = []

    class Handle:
        def update(self, figure):
            shown.append(("update", len(figure.axes[0].lines[0].get_xdata())))

    def display(figure, display_id):
        shown.append(("display", len(figure.axes[0].lines[0].get_xdata())))
        return Handle()

    module = types.ModuleType("IPython.display")
    module.display = display
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    line(max_iter=3).fit(X, y, callback=LiveLossCurve())
    assert shown == [("display", 1), ("update", 2), ("update", 3)]


def test_the_live_curve_of_several_fits_begins_anew_with_each():
    live = LiveLossCurve()
    for _ in range(2):
        line(max_iter=3).fit(X, y, callback=live)
    going_on = line(max_iter=2, warm_start=True).fit(X, y, callback=live)
    going_on.fit(X, y, callback=live)
    assert [len(loss) for loss in live.earlier] == [3, 3]
    assert len(live.loss) == 4  # a fit that goes on is one
    drawn = [len(curve.get_xdata()) for curve in live.plot().ax_.lines]
    assert drawn == [4, 3, 3]


def test_elsewhere_nothing_is_drawn(monkeypatch):
    imported = builtins.__import__

    def no_matplotlib(name, *args, **kwargs):
        assert not name.startswith("matplotlib")
        return imported(name, *args, **kwargs)

    live = LiveLossCurve()
    with monkeypatch.context() as m:
        m.setattr(builtins, "__import__", no_matplotlib)
        line(max_iter=3).fit(X, y, callback=live)
    assert live.plot().lines_[0].get_ydata().tolist() == live.loss
    with pytest.raises(ParameterError, match="every must be an integer, 1 or more, got 0. It is a number of epochs"):
        LiveLossCurve(every=0)


# ----------------------------------------------------------------- summary


def network():
    return MLPRegressor(hidden_layer_sizes=(5,), max_iter=2, random_state=0).fit(X, y)


SUMMARIES = {
    "trained": (None, {"coefs_0": (50, "trained"), "intercepts_0": (5, "trained"), "coefs_1": (5, "trained")}),
    "frozen": ("coefs_0", {"coefs_0": (50, "trained"), "intercepts_0": (5, "frozen"), "intercepts_1": (1, "frozen")}),
    "lora": (LoRA(rank=1), {"coefs_0": (50, "frozen"), "coefs_0.lora_A": (10, "trained")}),
}


@pytest.mark.parametrize("case", SUMMARIES)
def test_the_summary_counts_what_is_trained(case):
    wanted, expected = SUMMARIES[case]
    model = OrtGradientRegressor(network(), weights_to_train=wanted, max_iter=1).fit(X, y)
    summary = model.summary()
    layers = {layer.layer: (layer.parameters, layer.trained) for layer in summary.layers}
    assert {name: layers[name] for name in expected} == expected
    assert summary.n_trained == sum(w.size for w in model.weights_.values())
    assert summary.n_parameters == sum(n for n, _ in layers.values())
    assert summary.n_trained == sum(n for n, state in layers.values() if state == "trained")


def test_the_summary_of_an_onnx_model_has_its_operators_and_shapes():
    onx = OrtGradientRegressor(make_pipeline(StandardScaler(), network()), max_iter=0).fit(X, y).get_trained_onnx()
    summary = OrtGradientRegressor(onx, max_iter=1).fit(X, y).summary()
    assert summary.title == "OrtGradientRegressor of an ONNX model, loss squared_error"
    products = [layer for layer in summary.layers if layer.operator == "MatMul"]
    assert [(layer.weights, layer.output) for layer in products] == [("(10, 5)", "(n, 5)"), ("(5, 1)", "(n, 1)")]


def test_a_weight_that_meets_the_rows_behind_other_nodes_and_in_a_body_has_a_layer():
    from onnx import parser

    onx = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        net (float[N,2] X) => (float[N,3] Y) <float[3,2] W = {1, 2, 3, 4, 5, 6}, float[3] b = {1, 2, 3}, int64 zero = {0}>
        { Wt = Transpose(W) H = MatMul(X, Wt) n = ReduceSum(X) c = Greater(n, n)
          Y = If (c) <then_branch = yes () => (float[N,3] A) { A = Add(H, b) },
                      else_branch = no () => (float[N,3] B) { B = Sub(H, b) }> }"""
    )
    summary = (
        OrtGradientRegressor(onx, weights_to_train="W", max_iter=1).fit(X[:, :2], np.stack([y, y, y], 1)).summary()
    )
    assert [(layer.layer, layer.operator) for layer in summary.layers] == [("W", "MatMul"), ("b", "If")]


def test_names_that_shape_inference_made_up_are_not_shown():
    onx = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[N, 1, t] X) => (float[N, 1] Y) <float[2, 1, 3] W = {1, 2, 3, 4, 5, 6}, float[2, 1] V = {1, 1}, int64[1] a = {2}> {
            C = Conv(X, W)
            H = ReduceMean<keepdims = 0>(C, a)
            Y = MatMul(H, V)
        }""")
    model = OrtGradientRegressor(onx, max_iter=1).fit(np.ones((4, 1, 9)), np.ones(4))
    assert model.summary().layers[0].output == "(n, 2, ?)"
    picture = repr(plot_graph(model).boxes)
    assert "'(N, 2, ?)'" in picture
    assert "unk__" not in picture


def test_the_summary_says_who_runs_a_step_and_prints_as_text_and_html():
    texts, marks = ["good day", "bad day", "good", "bad"] * 5, [1, 0, 1, 0] * 5
    model = OrtGradientClassifier(make_pipeline(CountVectorizer(), LogisticRegression()), max_iter=2)
    summary = model.fit(texts, marks).summary()
    assert summary.steps == {"countvectorizer": "scikit-learn", "logisticregression": "ONNX"}
    text = str(summary).splitlines()
    assert text[1:3] == ["countvectorizer: scikit-learn", "logisticregression: ONNX"]
    assert text[-2:] == ["4 parameters: 4 trained, 0 frozen", "2 of 2 epochs"]
    root = ET.fromstring(summary._repr_html_().replace("<br>", "<br/>"))
    rows = [[cell.text for cell in row] for row in root.iter("tr")]
    assert rows[0] == ["layer", "operator", "weights", "output", "parameters", "trained"]
    assert [row[0] for row in rows[1:]] == [layer.layer for layer in summary.layers]


def test_a_loss_of_ones_own_is_named():
    def my_loss(op, y_true, y_pred):
        return op.Abs(op.Sub(y_true, y_pred))

    assert line(loss=my_loss, max_iter=1).fit(X, y).summary().title.endswith("loss my_loss")


@pytest.mark.filterwarnings("ignore:The validation set")
def test_the_html_of_a_fitted_estimator_says_where_it_stopped():
    model = line(max_iter=30, tol=10, n_iter_no_change=2)
    assert "<details><summary>" not in model._repr_html_()
    model.fit(X, y, X_val=X, y_val=y)
    for html in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert "stopped after 4 of 30: best epoch 4; the validation loss did not fall by tol=10 for 3 epochs" in html
        assert "11 parameters: 11 trained, 0 frozen" in html
        assert "LinearRegression" in html


# --------------------------------------------------------------------- dir


def test_dir_shows_what_is_for_users():
    public = [name for name in dir(onnxtrain) if not name.startswith("_")]
    assert public == sorted(onnxtrain.__all__)
    regressor, classifier = line(max_iter=1).fit(X, y), OrtGradientClassifier(max_iter=1).fit(X, y > 0)
    for model in (regressor, classifier):
        assert not {"onnx_parser", "onnx_converter", "onnx_shape_calculator"} & set(dir(model))
        assert {"fit", "predict", "history_", "summary", "loss", "weights_"} <= set(dir(model))
    assert not {"output_is", "class_axis"} & set(dir(regressor))
    assert {"output_is", "class_axis"} <= set(dir(classifier))
