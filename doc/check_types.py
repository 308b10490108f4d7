"""Check the code of the pages with mypy and pyright, as an editor does at a user's: ``python doc/check_types.py``."""

from __future__ import annotations

import doctest
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

DOC = Path(__file__).resolve().parent

#: dask annotates no ``chunks``; checkers take its default, a text, for its type.
_LEFT_OUT = {"cluster.rst"}

#: Of a library that ships no types, pyright would guess them from its code; results are not used in examples.
_PYRIGHT = {"useLibraryCodeForTypes": False, "reportUnusedExpression": False, "reportMissingModuleSource": False}


def write_code(folder: Path) -> None:
    """Write the code of each page to a module of its name."""
    for page in sorted([*DOC.glob("*.rst"), *DOC.glob("guide/*.rst")]):
        examples = doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8"))
        if examples and page.name not in _LEFT_OUT:
            lines = (f"# {page.name}, line {e.lineno + 1}\n{e.source}" for e in examples)
            (folder / f"page_{page.stem}.py").write_text("".join(lines), encoding="utf-8")


def main() -> int:
    """Run the checkers; return whether one has found something."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_code(folder)
        settings = {"include": ["."], "extraPaths": [str(DOC.parent / "src"), str(DOC.parent)], **_PYRIGHT}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings))
        mypy = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", name]
        found = 0
        for checker, options in {"mypy": mypy, "pyright": ["--pythonpath", sys.executable, "-p", name]}.items():
            if importlib.util.find_spec(checker) is None:
                print(f"SKIPPED: {checker} is not installed")
                continue
            print(f"{checker}:", flush=True)
            found |= subprocess.run([sys.executable, "-m", checker, *options], cwd=name, check=False).returncode
        return found


if __name__ == "__main__":
    sys.exit(main())
