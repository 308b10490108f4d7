"""The page of the documentation over all classes of scikit-learn: it names each, and tells what trains from what does not."""

import importlib.util
import pathlib
import sys

import pytest
from sklearn.utils import all_estimators

from onnxtrain import OrtGradientRegressor

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")

PATH = pathlib.Path(__file__).resolve().parents[1] / "doc" / "gen_estimators.py"
SPEC = importlib.util.spec_from_file_location("gen_estimators", PATH)
gen = sys.modules["gen_estimators"] = importlib.util.module_from_spec(SPEC)  # its dataclass looks its module up
SPEC.loader.exec_module(gen)


@pytest.fixture(scope="module")
def cases():
    return {name: (kind, estimator) for name, kind, estimator in gen.cases()}


def test_the_page_has_every_class(cases):
    assert {name.partition(":")[0] for name in cases} == {name for name, _ in all_estimators()}


@pytest.mark.parametrize(
    "name, state, words",
    [
        ("Ridge", "trains", ["coef", "intercept"]),
        ("StandardScaler", "trains", ["standardscaler.mean", "standardscaler.scale"]),
        ("GaussianMixture", "trains", None),
        ("PolynomialCountSketch", "front only", ""),
        ("TfidfVectorizer", "front only", ""),
        ("KNeighborsClassifier", "no weights", "neighbours vote"),
        ("SelectKBest", "no weights", "columns are chosen"),
        ("NearestCentroid", "refused", "priors='empirical'"),
        ("TSNE", "no step", "scikit-learn does not take it"),
        ("DBSCAN", "no step", "neither predict nor transform"),
        ("FrozenEstimator", "no step", "as that is"),
    ],
)
def test_the_state_of_a_class(cases, name, state, words):
    found = gen.examine(name, *cases[name])
    assert found.state == state, found.reason
    if isinstance(words, list):
        assert found.weights == words
    elif words is not None:
        assert words in found.reason


def test_weights_that_are_not_written_back_fail(cases, monkeypatch):
    monkeypatch.setattr(OrtGradientRegressor, "to_sklearn", lambda self: self.estimator)
    found = gen.examine("Ridge", *cases["Ridge"])
    assert (found.state, found.reason[:26]) == ("FAILS", "Wrong: written back predic")


def test_the_page_is_a_table(cases):
    results = [gen.examine(name, *cases[name]) for name in ("Ridge", "KNeighborsClassifier")]
    page = gen.page(results)
    assert "* *trains* (1): its weights are trained" in page
    assert "   * - `Ridge <https://scikit-learn.org/stable/modules/generated/sklearn.linear\\_model" not in page
    assert (
        "   * - `Ridge <https://scikit-learn.org/stable/modules/generated/sklearn.linear_model.Ridge.html>`__" in page
    )
    assert "     - neighbours vote" in page
