"""The checks that fail a build of the documentation; the build itself applies them (doc/conf.py), in its own environment."""

import importlib.util
import pathlib

import pytest

PATH = pathlib.Path(__file__).resolve().parents[1] / "doc" / "completeness.py"
SPEC = importlib.util.spec_from_file_location("completeness", PATH)
completeness = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(completeness)


@pytest.mark.parametrize(
    "name",
    [
        "onnxtrain.OrtGradientRegressor.fit",  # its own
        "onnxtrain.OrtGradientRegressor.to_sklearn",  # of a base class here
        "onnxtrain.OrtGradientRegressor.score",  # of scikit-learn
        "onnxtrain.OrtGradientRegressor.set_fit_request",
        "onnxtrain.OrtGradientRegressor.coef_",  # a property
        "onnxtrain.OrtGradientRegressor.weights_",  # listed in the docstring
        "onnxtrain.LossCurveDisplay.from_estimator",  # a class method
        "onnxtrain.optim.SGD.scalars",
        "onnxtrain.onnx_derivative",
        "onnxtrain.errors.LossError",
        "onnxtrain.testing.check_gradient",
    ],
)
def test_public_names_are_those_of_modules_classes_and_docstrings(name):
    assert name in set(completeness.public_names())


@pytest.mark.parametrize(
    "name",
    [
        "onnxtrain.OrtGradientRegressor.See Also",
        "onnxtrain.OrtGradientRegressor._fit",
        "onnxtrain.DerivativeOptions.value",  # of Python's Enum
        "onnxtrain.errors.LossError.args",
    ],
)
def test_what_is_no_public_name(name):
    assert name not in set(completeness.public_names())


def test_a_name_without_a_page_is_found():
    names = ["onnxtrain.save", "onnxtrain.OrtGradientRegressor.fit"]
    assert completeness.undocumented(names, {"onnxtrain.save": "api.html"}) == ["onnxtrain.OrtGradientRegressor.fit"]
    assert completeness.undocumented(names, names) == []


def test_an_error_on_a_page_is_found(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "good.html").write_text("<p>ConvergenceWarning, OnnxTrainError</p>")
    assert completeness.shown_errors(tmp_path) == []
    (tmp_path / "sub" / "bad.html").write_text("<p>1</p>\n<span>ERROR: Adding a table of contents</span>")
    assert completeness.shown_errors(tmp_path) == ["sub/bad.html:2: <span>ERROR: Adding a table of contents</span>"]
    (tmp_path / "sub" / "bad.html").write_text("<p><strong>It is ``x``</strong></p>")
    assert completeness.shown_errors(tmp_path) == ["sub/bad.html:1: <p><strong>It is ``x``</strong></p>"]


def test_a_class_whose_arguments_are_hidden_is_found(tmp_path):
    heading = (
        '<dl class="py class">\n<dt>SGD(<em>{}</em>)</dt><dd><dl class="py method"><dt>f(*args, **kwargs)</dt></dl>'
    )
    (tmp_path / "a.html").write_text(heading.format("momentum=0.0"))
    assert completeness.hidden_arguments(tmp_path) == []
    (tmp_path / "b.html").write_text(heading.format("<span>*</span>args</em>, <em>**kwargs"))
    assert completeness.hidden_arguments(tmp_path) == ["b.html"]


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "logo.svg").write_text("<svg/>")
    (tmp_path / "index.html").write_text(
        '<h1 id="top"></h1><a href="#top"></a><a href="sub/a.html#it"></a><img src="logo.svg?v=1">'
        '<a href="https://onnx.ai/nowhere"></a><a href="mailto:nobody"></a>'
    )
    (tmp_path / "sub" / "a.html").write_text('<p id="it"></p><a href="../index.html#top"></a>')
    assert completeness.broken_links(tmp_path) == []
    (tmp_path / "sub" / "a.html").write_text('<a href="../index.html#end"></a><img src="gone.png"><a href="#it"></a>')
    assert completeness.broken_links(tmp_path) == [
        "index.html: sub/a.html#it",
        "sub/a.html: #it",
        "sub/a.html: ../index.html#end",
        "sub/a.html: gone.png",
    ]
