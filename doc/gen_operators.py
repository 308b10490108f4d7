"""Write the page that lists every operator with a derivative, and those without.

Run from the root of the repository: ``python doc/gen_operators.py doc/operators.rst``; without a path it prints.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from onnxtrain import differentiable_ops

HEAD = """\
.. index:: ! opset, ! operator not supported, ! unsupported operator, ! supported operators, ! opset version

.. index:: ! autograd, ! backpropagation

Operators with a derivative
===========================

.. This page is written by doc/gen_operators.py: change that.

ai.onnx {opset} has {total} operators:

* {rule} have a gradient rule.
* {body} are differentiated through the function body by which ONNX defines them.
* {flat} are non-differentiable: their derivative is zero wherever it exists.
* The others raise :class:`~onnxtrain.errors.GradientError` if they are between a trained weight and the loss.

:func:`onnxtrain.differentiable_ops` returns this table at run time. To add a rule, see :doc:`add_a_gradient_rule`.

"""

WORDS = {
    "rule": "Rule",
    "function body": "Function body",
    "fused": "Fused",
    "flat": "Non-differentiable",
    "": "No derivative",
}
TELLS = {
    "rule": "",
    "function body": "ONNX defines these operators by a function body. It is expanded and differentiated.",
    "fused": "The graph optimizers of onnxruntime write these operators. onnxtrain replaces known forms of them by "
    "ai.onnx operators when it reads a model. The exported model keeps them.",
    "flat": "Operators on integers, booleans and shapes, comparisons, rounding and random numbers pass no gradient.",
    "": "These raise an error that names the node and the path from it to the loss.",
}


def heading(text: str) -> list[str]:
    """Return a title and its underline."""
    return [text, "-" * len(text), ""]


def page() -> str:
    """Return the page."""
    table = differentiable_ops()
    newest = {s.name: s for s in onnx.defs.get_all_schemas() if s.domain == "" and not s.deprecated}
    found = {name: table[name].how if name in table else "" for name in newest}
    count = {how: sum(value == how for value in found.values()) for how in WORDS}
    lines = HEAD.format(
        total=len(newest),
        opset=onnx.defs.onnx_opset_version(),
        rule=count["rule"],
        body=count["function body"],
        flat=count["flat"],
    ).splitlines()
    lines.append("")
    lines += heading(WORDS["rule"])
    lines += [".. list-table::", "   :header-rows: 1", "", "   * - Operator", "     - Rule", "     - Note"]
    for name, row in table.items():
        if row.how == "rule" and row.rule.startswith("onnxtrain."):
            module, _, function = row.rule.removeprefix("onnxtrain.autodiff.rules.").rpartition(".")
            lines += [f"   * - {name}", f"     - ``{module}.{function}``", f"     - {row.note}"]
    for how in ("function body", "fused", "flat", ""):
        names = sorted(n for n, value in found.items() if value == how)
        if how:
            names += sorted(n for n, row in table.items() if row.how == how and n not in newest)
        lines += ["", *heading(WORDS[how]), TELLS[how], "", ", ".join(names) + "."]
    return "\n".join(line.rstrip() for line in lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    else:
        print(page())
