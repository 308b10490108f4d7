"""All benchmarks, one after the other: ``python benchmarks/run.py [--quick]``."""

from __future__ import annotations

import subprocess
import sys
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
    "convolution.py",
    "training_build.py",
    "gpu.py",
)


def main(arguments: list[str]) -> int:
    """Run each file in a process of its own and return how many failed."""
    failed = []
    for name in FILES:
        start = time.perf_counter()
        print(f"\n{'=' * 20} {name}", flush=True)
        if subprocess.run([sys.executable, Path(__file__).parent / name, *arguments], check=False).returncode:
            failed.append(name)
        print(f"\n({name}: {time.perf_counter() - start:.0f} s)", flush=True)
    print(f"\nFailed: {', '.join(failed)}" if failed else "")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
