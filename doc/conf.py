"""Settings of Sphinx.

A page ``X.rst`` for which there is a script ``gen_X.py`` is made by it where it
is missing: remove the page to have it made anew. Some take minutes.
"""

import inspect
import logging
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform
from sphinx.util.inspect import stringify_signature

import onnxtrain

sys.path.insert(0, str(Path(__file__).resolve().parent))
from completeness import broken_links, hidden_arguments, public_names, shown_errors, undocumented

project = "onnxtrain"
author = "onnxtrain developers"
copyright = "2026, onnxtrain developers"
version = release = onnxtrain.__version__

# napoleon, not numpydoc: it makes the attributes of a class objects that one can link to.
# No intersphinx: inventories of others would be fetched over the network, and no package ships its own.
extensions = [
    "matplotlib.sphinxext.plot_directive",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["templates"]
exclude_patterns = ["_build", "auto_examples/**/*.ipynb", "walk.rst", "loss_table.rst"]  # which other pages include

# The theme of scikit-learn, NumPy and pandas: a reader of theirs knows where everything is. Sections are in its head,
# pages of a section at the left, wide tables scroll.
html_theme = "pydata_sphinx_theme"
html_title = f"onnxtrain {release}"
html_static_path = ["static"]
html_css_files = ["onnxtrain.css"]
html_js_files = ["filter.js"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "onnxtrain"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
html_sidebars = {"index": [], "_modules/**": [], "changes": []}
copybutton_prompt_text = ">>> |\\.\\.\\. "
copybutton_prompt_is_regexp = True

plot_html_show_formats = False
plot_html_show_source_link = False
plot_formats = ["svg"]
plot_include_source = True
plot_rcparams = {"figure.figsize": (7, 3), "figure.constrained_layout.use": True, "svg.hashsalt": "onnxtrain"}
plot_apply_rcparams = True

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say it, with shapes
maximum_signature_line_length = 88  # longer ones have a parameter a line
toc_object_entries_show_parents = "hide"  # the name of the class is as wide as the sidebar
# of an error the class says it all; what BaseException brings is Python's
autodoc_default_options = {"members": True, "inherited-members": "BaseException", "show-inheritance": True}
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "subsection_order": [f"../examples/{theme}" for theme in ("losses", "models", "training", "parts", "files")],
    "within_subsection_order": "FileNameSortKey",
    "write_computation_times": False,
    "show_memory": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("onnxtrain",),
    "capture_repr": ("_repr_html_",),  # not what the last call to matplotlib returns
}
logging.getLogger("onnx_ir").setLevel(logging.WARNING)  # sphinx-gallery listens from INFO
warnings.filterwarnings("ignore", message=".*non-interactive.*", category=UserWarning)


class IndexedSections(SphinxTransform):
    """Let entries of ``.. index::`` lead to the section that they stand in front of, or in.

    The search, which puts entries marked by ``!`` first, shows the text of what they lead to: of the empty target that
    Sphinx makes there is none, and its script fails.
    """

    default_priority = 840  # the domain of the index reads them at 850

    def apply(self, **kwargs):
        for entry in self.document.findall(addnodes.index):
            section = indexed(entry)
            if isinstance(section, nodes.section):
                entry["entries"] = [(kind, term, section["ids"][0], *more) for kind, term, _, *more in entry["entries"]]


def indexed(entry):
    """Return the section that an entry of the index stands in front of, or in.

    In front of a title, an entry is the end of the section before.
    """
    node = entry
    while node.parent is not None:
        following = [other for other in node.parent[node.parent.index(node) + 1 :] if not is_mark(other)]
        if following:
            return following[0] if isinstance(following[0], nodes.section) else entry.parent
        node = node.parent
    return entry.parent


def is_mark(node):
    """Whether a node is invisible: an entry of the index, its target, a comment."""
    return isinstance(node, addnodes.index | nodes.target | nodes.comment)


def show_arguments(app, what, name, obj, options, signature, return_annotation):
    """Give a class the arguments that Python shows: autodoc takes those of ``__new__``, which only checks names.

    A protocol is not called.
    """
    if what != "class" or signature is None:
        return None
    if getattr(obj, "_is_protocol", False):
        return "", None
    return stringify_signature(inspect.signature(obj), show_annotation=False), return_annotation


def shorten_docstrings_of_sklearn(app, what, name, obj, options, lines):
    """Keep the first paragraph of a method that scikit-learn brings, without its links into scikit-learn's pages."""
    if (getattr(obj, "__module__", None) or "").partition(".")[0] == "sklearn" and "" in lines:
        summary = re.sub(r":ref:`(.+?) ?(?:<.*>)?`", r"\1", " ".join(lines[: lines.index("")]))
        lines[:] = [summary, "", "Inherited from scikit-learn.", ""]


def without_links_back(app, pagename, templatename, context, doctree):
    """Take the links back to the reference out of a page of sources: some lead nowhere.

    Of a method that is inherited, Sphinx joins the name in its own class with the page of the class that inherits it.
    """
    if pagename.startswith("_modules/"):
        context["body"] = re.sub(r'<a class="viewcode-back".*?</a>', "", context["body"])


def make_missing_pages(app):
    """Run the scripts of the pages that are figures and tables."""
    for script in sorted(Path(app.srcdir).glob("gen_*.py")):
        page = script.with_name(script.stem.removeprefix("gen_") + ".rst")
        if not page.exists():
            subprocess.run([sys.executable, str(script), str(page)], check=True, cwd=script.parent.parent)


def make_page_of_the_browser(app, exception):
    """Make the page that trains, with onnxruntime-web from npm where that is at hand; else the page loads it."""
    if exception is None and app.builder.format == "html":
        script = Path(app.srcdir).parent / "examples" / "web" / "make_page.py"
        dist = Path(os.environ.get("ONNXTRAIN_NODE_MODULES", "node_modules"), "onnxruntime-web", "dist")
        command = [
            sys.executable,
            str(script),
            str(Path(app.outdir, "trains")),
            *([str(dist)] if dist.is_dir() else []),
        ]
        subprocess.run(command, check=True)


def check_what_was_written(app, exception):
    """Fail where a public name has no reference, a page shows an error of docutils, or a link leads nowhere."""
    if exception is not None or app.builder.format != "html":
        return
    problems = [f"{name} is in no page" for name in undocumented(public_names(), app.env.domains["py"].objects)]
    problems += shown_errors(Path(app.outdir))
    problems += [f"{page} does not name the arguments of the class" for page in hidden_arguments(Path(app.outdir))]
    problems += [f"a link leads nowhere, {link}" for link in broken_links(Path(app.outdir))]
    if problems:
        raise ExtensionError("The documentation is not complete:\n" + "\n".join(problems))


def setup(app):
    """Called by Sphinx."""
    app.add_transform(IndexedSections)
    app.connect("builder-inited", make_missing_pages)
    app.connect("autodoc-process-signature", show_arguments)
    app.connect("autodoc-process-docstring", shorten_docstrings_of_sklearn)
    app.connect("html-page-context", without_links_back)
    app.connect("build-finished", make_page_of_the_browser)
    app.connect("build-finished", check_what_was_written)
