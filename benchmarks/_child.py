"""Measurement of code in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def run_child(code: str, *, python: str = sys.executable) -> Any:
    """Run code in a new interpreter and return its last line of output, parsed as JSON.

    Raises
    ------
    RuntimeError
        The code failed. The message is the end of its output.
    """
    done = subprocess.run([python, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])
