"""Run all benchmarks one after the other: ``python benchmarks/run.py [--quick]``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

FILES = (
    "import_time.py",
    "mlp.py",
    "linear.py",
    "grid_search.py",
    "predict.py",
    "frozen.py",
    "growth.py",
    "memory.py",
    "inputs.py",
    "gradient.py",
    "deep.py",
    "large.py",
    "convolution.py",
    "training_build.py",
    "gpu.py",
)


def main(arguments: list[str]) -> int:
    """Run each benchmark in a separate process, print all judged figures and return the number of failed files."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        for name in FILES:
            start = time.perf_counter()
            print(f"\n{'=' * 20} {name}", flush=True)
            command = [sys.executable, Path(__file__).parent / name, "--rows", rows, *arguments]
            if subprocess.run(command, check=False).returncode:
                failed.append(name)
            print(f"\n({name}: {time.perf_counter() - start:.0f} s)", flush=True)
        if rows.exists():
            print_rows([json.loads(line) for line in rows.read_text().splitlines()])
    print(f"\nFailed: {', '.join(failed)}" if failed else "")
    return len(failed)


def print_rows(rows: list[tuple[str, str, float, float, bool, str]]) -> None:
    """Print each figure that has a limit and, if it exceeds the limit, the reason."""
    print(f"\n{'=' * 20} all figures of which a most is wanted\n")
    print(f"  {'':76} {'against, or unit':34} {'ours':>8} {'at most':>8}")
    for title, peer, figure, at_most, met, reason in rows:
        print(f"  {title:76} {peer:34} {figure:8.2f} {at_most:8.2f} {'ok' if met else 'MISSED'}")
        if not met and reason:
            print(textwrap.indent(textwrap.fill(reason, 110), " " * 6))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
