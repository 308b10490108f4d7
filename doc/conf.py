"""Settings of Sphinx.

A page ``X.rst`` for which there is a script ``gen_X.py`` is made by it where it
is missing: remove the page to have it made anew. Some take minutes.
"""

import logging
import subprocess
import sys
import warnings
from pathlib import Path

import onnxtrain

project = "onnxtrain"
author = "onnxtrain developers"
copyright = "2026, onnxtrain developers"
version = release = onnxtrain.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["templates"]
exclude_patterns = ["_build", "auto_examples/*.ipynb"]
html_theme = "furo"
html_title = f"onnxtrain {release}"

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say it, with shapes
autodoc_default_options = {"members": True, "inherited-members": False, "show-inheritance": True}
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "show_memory": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
}
logging.getLogger("onnx_ir").setLevel(logging.WARNING)  # sphinx-gallery listens from INFO
warnings.filterwarnings("ignore", message=".*non-interactive.*", category=UserWarning)


def skip_what_is_inherited_from_others(app, what, name, member, skip, options):
    """Leave out what scikit-learn's base classes bring: its text links to their documentation."""
    module = getattr(member, "__module__", None) or getattr(type(member), "__module__", "")
    return True if module.partition(".")[0] == "sklearn" else None


def make_missing_pages(app):
    """Run the scripts of the pages that are figures and tables."""
    for script in sorted(Path(app.srcdir).glob("gen_*.py")):
        page = script.with_name(script.stem.removeprefix("gen_") + ".rst")
        if not page.exists():
            subprocess.run([sys.executable, str(script), str(page)], check=True, cwd=script.parent.parent)


def setup(app):
    """Called by Sphinx."""
    app.connect("builder-inited", make_missing_pages)
    app.connect("autodoc-skip-member", skip_what_is_inherited_from_others)
