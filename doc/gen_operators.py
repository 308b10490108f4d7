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
.. index:: ! opset, ! operator not supported, ! unsupported operator, ! supported operators

Operators with a derivative
===========================

.. This page is written by doc/gen_operators.py: change that.

Of the {total} operators of ai.onnx {opset}, {rule} have a rule, {body} are differentiated through the body by which
ONNX defines them, {flat} are flat on purpose: their derivative is zero wherever it exists. The others
raise :class:`~onnxtrain.errors.GradientError` when they stand between what is trained and the loss. The same table at
run time: :func:`onnxtrain.differentiable_ops`. To add a rule, see :doc:`add_a_gradient_rule`.

"""

WORDS = {
    "rule": "Rule",
    "function body": "Function body",
    "fused": "Fused",
    "flat": "Flat on purpose",
    "": "No derivative",
}
TELLS = {
    "rule": "",
    "function body": "ONNX defines these by other operators; the body is expanded and differentiated.",
    "fused": "onnxruntime's optimizers write these. When a model is read, operators of ai.onnx take their place, in "
    "forms that are known; the file that comes out keeps them.",
    "flat": "Integers, booleans, shapes, comparisons, roundings, random numbers: no gradient passes.",
    "": "These raise an error that names the node and the way from it to the loss.",
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
