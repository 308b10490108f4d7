"""Write the table of losses that the guide includes: ``python doc/gen_loss_table.py doc/loss_table.rst``.

Names, formulas and parameters are those of the registry; only the words of the last column are here.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from onnxtrain.losses import LOSSES, Loss

WHEN = {
    "squared_error": "the mean is wanted; no outliers",
    "absolute_error": "the median is wanted; outliers are measurement errors",
    "elastic": "between the two",
    "huber": "outliers, and a smooth minimum",
    "quantile": "a quantile is wanted: prediction intervals, asymmetric costs",
    "epsilon_insensitive": "small errors do not matter",
    "log_cosh": "like huber, without a parameter",
    "poisson": "counts",
    "gamma": "positive amounts with a constant relative error",
    "tweedie": "amounts, many of them 0, such as claims or rain",
    "log": "probabilities are wanted",
    "hinge": "only labels are wanted, as in a support vector machine",
    "squared_hinge": "only labels are wanted; smooth",
    "modified_huber": "some labels are wrong, but probabilities are wanted",
    "focal": "rare classes; most rows are easy",
}


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Return name, formula, task and use of each loss that the package brings; other names of one are aliases."""
    seen: dict[Loss, list[str]] = {}
    for name in LOSSES:
        if LOSSES[name].function.__module__.startswith("onnxtrain."):
            seen.setdefault(LOSSES[name], []).append(name)
    for loss, (name, *aliases) in sorted(seen.items(), key=lambda found: found[0].classifies):
        parameters = inspect.signature(loss.function).parameters.values()
        own = [f"{p.name}={p.default}" for p in parameters if p.kind is p.KEYWORD_ONLY]
        title = ", ".join([f"``{name}``", *(f"``{alias}``" for alias in aliases)])
        formula = (inspect.getdoc(loss.function) or "").splitlines()[0].split(". ")[0]
        yield (
            title + (f" ({', '.join(own)})" if own else ""),
            formula.rstrip("."),
            "classification" if loss.classifies else "regression",
            WHEN[name],
        )


def page() -> str:
    """Return the table, reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 25 36 14 25", ""]
    for first, *others in (("Name and parameters", "Formula", "Task", "When"), *rows()):
        lines += [f"   * - {first}", *(f"     - {cell}" for cell in others)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8") if len(sys.argv) > 1 else print(page())
