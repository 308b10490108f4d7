"""Write the table of what a fit goes through, included in the design: ``python doc/gen_walk.py doc/walk.rst``."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from walk import Walk, walks


def table(columns: list[str], rows: dict[str, list[int]]) -> list[str]:
    """Return the lines of a table, a name in front of each row; an empty cell would be one of the row above."""
    width = max(map(len, rows))
    line = " ".join(["=" * width, *(["=" * 9] * len(columns))])
    head = " ".join(["\\".ljust(width), *(f"{column:>9s}" for column in columns)])
    body = [" ".join([f"{name:{width}s}", *(f"{number:9d}" for number in row)]) for name, row in rows.items()]
    return [line, head, line, *body, line]


def packages(walk: Walk) -> dict[str, list[int]]:
    """Return how many modules and functions of each package are called, the package with the most functions first."""
    functions = Counter(package_of(module) for module, _ in walk.functions)
    modules = Counter(map(package_of, walk.modules))
    return {f"``{name}``": [modules[name], number] for name, number in functions.most_common()}


def package_of(module: str) -> str:
    """Return the package inside onnxtrain, or the module that stands beside the packages."""
    return module.split(".")[1]


def page(found: dict[str, Walk]) -> str:
    """Return the tables, and the modules of ours in the order in which the fit comes to them."""
    figures = {name: [len(w.modules), len(w.functions), w.depth, len(w.both_ways)] for name, w in found.items()}
    way = ", ".join(f"``{module.removeprefix('onnxtrain.')}``" for module in found["onnxtrain"].modules)
    return "\n".join(
        [
            *table(["modules", "functions", "depth", "both ways"], figures),
            "",
            "By package:",
            "",
            *table(["modules", "functions"], packages(found["onnxtrain"])),
            "",
            f"The modules, in the order in which it comes to them: {way}.",
            "",
        ]
    )


if __name__ == "__main__":
    text = page(walks())
    Path(sys.argv[1]).write_text(text) if len(sys.argv) > 1 else print(text)
