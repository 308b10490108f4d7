"""Write the table of what a fit goes through, included in the design: ``python doc/gen_walk.py doc/walk.rst``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from walk import Walk, walks


def page(found: dict[str, Walk]) -> str:
    """Return the table, and the modules of ours in the order in which the fit comes to them."""
    line = "=" * 13 + " " + " ".join(["=" * 9] * 4)
    rows = [
        f"{name:13s} {len(w.modules):9d} {len(w.functions):9d} {w.depth:9d} {len(w.both_ways):9d}"
        for name, w in found.items()
    ]
    head = f"{'':13s} {'modules':>9s} {'functions':>9s} {'depth':>9s} {'both ways':>9s}"
    way = ", ".join(f"``{module.removeprefix('onnxtrain.')}``" for module in found["onnxtrain"].modules)
    return "\n".join(
        [line, head, line, *rows, line, "", f"The modules, in the order in which it comes to them: {way}.", ""]
    )


if __name__ == "__main__":
    text = page(walks())
    Path(sys.argv[1]).write_text(text) if len(sys.argv) > 1 else print(text)
