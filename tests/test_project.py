"""The project around the package: metadata, documents and their claims."""

import ast
import builtins
import inspect
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import tomllib

import numpy as np
import onnx
import onnxruntime
import pytest
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression

import onnxtrain
from onnxtrain import errors, runtime
from onnxtrain.estimators import deferred

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "onnxtrain"
METADATA = tomllib.loads((ROOT / "pyproject.toml").read_text())
HEAVY = ("matplotlib", "onnxruntime", "onnxscript", "pandas", "skl2onnx", "sklearn", "torch")

DELIBERATE = [e for _, e in inspect.getmembers(errors, inspect.isclass) if issubclass(e, errors.OnnxTrainError)]


def python(code, **environment):
    """Run a program in a fresh interpreter and return what it printed, errors included."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return done.stdout


# ----------------------------------------------------------------- import


def test_without_onnxruntime_the_import_names_its_flavours():
    said = python("import sys; sys.modules['onnxruntime'] = None; import onnxtrain")
    assert "DependencyError" in said
    extras = METADATA["project"]["optional-dependencies"]
    for extra in ("cpu", "gpu", "webgpu", "training", "training-cpu"):
        assert all(flavour.partition(">")[0] in said for flavour in extras[extra])


@pytest.mark.parametrize("missing", ["dask", "distributed"])
def test_without_dask_its_module_names_the_extra(missing):
    said = python(f"import sys; sys.modules[{missing!r}] = None; import onnxtrain.dask")
    assert f"DependencyError: onnxtrain.dask needs {missing}, which is not installed" in said
    assert 'pip install "dask[array,dataframe]" distributed' in said
    assert {"dask[array,dataframe]>=2025.5", "distributed>=2025.5"} == {
        *METADATA["project"]["optional-dependencies"]["dask"]
    }


def test_dask_is_imported_by_its_own_estimators_alone():
    found = (
        "import sys; from onnxtrain import *; OrtGradientClassifier; print({'dask', 'distributed'} & {*sys.modules})"
    )
    assert python(found).split() == ["set()"]


def test_what_an_uninstalled_flavour_left_behind_is_not_onnxruntime(tmp_path):
    (tmp_path / "onnxruntime" / "capi").mkdir(parents=True)
    hide = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; "
    said = python(hide + f"sys.path.append({str(tmp_path)!r}); import onnxtrain")
    assert "DependencyError" in said
    assert "no distribution of it is installed" in said


def test_an_onnxruntime_that_is_too_old_is_named():
    old = "import onnxruntime; onnxruntime.__version__ = '1.18.1'; from onnxtrain import OrtGradientRegressor; "
    said = python(old + "OrtGradientRegressor().fit([[0.0], [1.0]], [0.0, 1.0])")
    assert "DependencyError: onnxtrain needs onnxruntime 1.19 or newer, found 1.18.1 in " in said
    assert "pip install --upgrade onnxruntime" in said
    oldest = ".".join(map(str, runtime.OLDEST))
    flavours = [METADATA["project"]["optional-dependencies"][e][0] for e in ("cpu", "gpu", "training", "training-cpu")]
    assert all(flavour.endswith(f">={oldest}") for flavour in flavours)
    for version in ("1.19.0", "1.19.2+cu118", "2.0", "1.100.1"):
        runtime.check_version(version)


def test_every_dependency_has_a_lower_bound_and_ci_tests_it():
    project = METADATA["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["cpu"]]
    assert not [requirement for requirement in needed if ">=" not in requirement]
    assert "lower_bounds" in (ROOT / ".ci" / "run").read_text()


def test_the_import_is_light():
    said = python(f"import sys, onnxtrain; print([m for m in {HEAVY} if m in sys.modules])")
    assert said.strip() == "[]"


@pytest.mark.parametrize("kind", ["OrtGradientRegressor", "OrtGradientClassifier"])
def test_an_estimator_brings_what_it_fits_with_at_its_first_fit(kind):
    heavy = {"onnx", "onnx_ir", "onnxruntime", "onnxscript", "skl2onnx", "sympy"}
    code = f"""
        import copy, sys
        from onnxtrain import {kind}
        from sklearn.base import clone
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.utils import get_tags
        model = make_pipeline(StandardScaler(), {kind}(max_iter=2))
        copy.deepcopy(clone(model)).set_params({kind.lower()}__l2=0.1)._repr_html_(), get_tags(model)
        print(sorted({heavy} & {{*sys.modules}}))
        model.fit([[0.0], [1.0]], [0, 1])
        print({heavy} <= {{*sys.modules}})
    """
    assert python(textwrap.dedent(code)).split("\n")[:2] == ["[]", "True"]


def test_deferred_modules_agree():
    assert all(getattr(deferred, name).__name__.endswith(f".{name}") for name in deferred.__all__)
    with pytest.raises(AttributeError, match="module 'onnxtrain.estimators.deferred' has no attribute 'base'"):
        deferred.base  # noqa: B018


@pytest.mark.parametrize("name", onnxtrain.__all__)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(onnxtrain, name)
    assert inspect.getdoc(value), f"{name} has no docstring"
    assert re.search(rf"\b{name}\b", (ROOT / "doc" / "api.rst").read_text()), f"{name} is not in doc/api.rst"


def test_public_names_agree():
    assert set(onnxtrain.__all__) == set(onnxtrain._HOMES)
    assert set(onnxtrain.__all__) <= set(dir(onnxtrain))
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    checked = next(n for n in tree.body if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING")
    typed = {alias.asname or alias.name for node in checked.body for alias in node.names}
    assert set(onnxtrain.__all__) == typed


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'onnxtrain' has no attribute 'OrtGradientRegresor'"):
        onnxtrain.OrtGradientRegresor  # noqa: B018


# ----------------------------------------------------------------- errors


@pytest.mark.parametrize("error", [e for e in DELIBERATE if e is not errors.OnnxTrainError], ids=lambda e: e.__name__)
def test_every_error_is_also_a_builtin(error):
    bases = {b for b in error.__mro__ if b.__module__ == builtins.__name__} - {Exception, BaseException, object}
    assert bases, f"{error.__name__} derives from no builtin of its own"
    assert error.__doc__


def test_no_bare_assert_and_no_error_that_is_swallowed():
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} assert")
            catches_all = isinstance(node, ast.ExceptHandler) and (
                node.type is None or getattr(node.type, "id", "") in ("Exception", "BaseException")
            )
            if catches_all and all(isinstance(s, ast.Pass) for s in node.body):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} except: pass")
    assert not found


def test_every_warning_names_the_line_of_the_user():
    texts = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    assert [path.name for path, text in texts.items() if "warnings.warn(" in text] == ["errors.py"]  # errors.warn


def test_every_slow_test_is_one():
    """A test that was renamed would be quick again by mistake."""
    for line in (ROOT / "tests" / "slow.txt").read_text().split():
        file, _, function = line.partition("::")
        assert re.search(rf"^ *def {function}\(", (ROOT / file).read_text(), re.MULTILINE), line


# --------------------------------------------------------------- commands


def readme_command(name):
    """Return the command of the block `:name: name` of the README."""
    (block,) = re.findall(rf":name: {name}\n\n    (.+)\n", (ROOT / "README.rst").read_text())
    return block


@pytest.mark.parametrize("name", ["run", "test", "doc"])
def test_readme_commands_are_one_line_and_ci_runs_them(name):
    command = readme_command(name)
    assert re.fullmatch(r'pip install -e "\.\[[a-z,]+\]" && python .+', command)
    assert f"$(readme_command {name})" in (ROOT / ".ci" / "run").read_text()


def test_the_readme_names_every_extra():
    extras = METADATA["project"]["optional-dependencies"]
    readme = (ROOT / "README.rst").read_text()
    assert {"cpu", "gpu", "webgpu", "training", "training-cpu", "plot", "test", "doc"} <= set(extras)
    assert not [extra for extra in set(extras) - {"lint"} if f"``{extra}``" not in readme]


def test_the_figures_of_the_readme_are_those_of_the_benchmarks():
    readme, printed = (ROOT / "README.rst").read_text(), (ROOT / "benchmarks" / "results.txt").read_text()
    table = re.search(r"\n(network .+)\n=[= ]+\n((?:.+\n)+?)=[= ]+\n", readme)
    _, *peers = re.split(r"  +", table[1])
    rows = table[2].splitlines()
    assert len(rows) == 3
    for network, *figures in (re.split(r"  +", row) for row in rows):
        (fit,) = re.findall(rf"{re.escape(network)}, adam: fit, 20 epochs\n((?:.+\n)+)", printed)
        assert figures == [re.search(rf"^  {re.escape(peer)} +[\d.]+ +([\d.]+)", fit, re.M)[1] for peer in peers]
    (search,) = re.findall(r"^GridSearchCV, .+\n.+\n.+\n  SGDRegressor +[\d.]+ +([\d.]+)", printed, re.M)
    assert f"takes {search} times as long as with ``SGDRegressor``" in " ".join(readme.split())


def test_the_contracts_name_every_module():
    """A module that no layer names would be free to import anything."""
    layers = (ROOT / ".importlinter").read_text().split("layers =\n")[1].split("\n\n")[0]
    named = set(re.findall(r"\w+", layers))
    modules = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert modules - {"__init__", "testing"} <= named


def test_types_are_shipped():
    assert (PACKAGE / "py.typed").exists()
    assert METADATA["tool"]["setuptools"]["package-data"] == {"onnxtrain": ["py.typed"]}


def test_the_citation_has_the_version_of_the_package():
    said = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", said, re.M)[1] == onnxtrain.__version__
    assert re.search(r"^license: (.+)$", said, re.M)[1] == METADATA["project"]["license"]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("plot_*.py")), ids=lambda p: p.stem)
def test_an_example_asks_one_question(path):
    title = ast.get_docstring(ast.parse(path.read_text())).splitlines()[0]
    assert title.endswith("?"), f"{path.name} is called {title!r}"


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch):
    first, second = re.findall(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", (ROOT / "README.rst").read_text())
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(textwrap.dedent(first), names)
    assert isinstance(onnx.load("tuned.onnx"), onnx.ModelProto)
    assert pathlib.Path("loss.png").stat().st_size > 1000
    search, test = names["search"], (names["X_test"], names["y_test"])
    assert set(search.best_params_) == {"loss", "l1", "l2"}
    assert np.ptp(search.cv_results_["mean_test_score"]) > 0.1  # there is something to choose
    before, *after = (fitted.score(*test) for fitted in (names["model"], names["tuned"], search))
    assert min(after) > before + 0.1
    for name, fitted in (("tuned", names["tuned"]), ("best", names["search"])):  # a file takes rows as they come
        (scores,) = onnxruntime.InferenceSession(f"{name}.onnx").run(None, {"X": names["X"].astype(np.float32)})
        np.testing.assert_allclose(scores.ravel(), fitted.predict(names["X"]), rtol=1e-5)
    # the second block needs a GPU and a file of one's own; here it gets a CPU and a file from scikit-learn
    X, y = names["X"], names["y"] > 140
    onx = to_onnx(LogisticRegression().fit(X, y), X.astype(np.float32), options={"zipmap": False})
    onnx.save(onx, "model.onnx")
    exec(textwrap.dedent(second).replace('"cuda"', '"cpu"'), {**names, "y": y})
