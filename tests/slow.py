"""The tests that ``-m "not slow"`` leaves out: those that took longest, as measured.

They are listed in ``slow.txt``, a line for each test function, which this makes of the durations of a run::

    python -m pytest --junitxml=durations.xml && python tests/slow.py durations.xml
"""

from __future__ import annotations

import collections
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

#: Seconds of all cases of a function together, in one process, from which it is slow.
_SECONDS = 1.5

LIST = Path(__file__).with_name("slow.txt")


def name_of(nodeid: str) -> str:
    """Return the name of a test function, for all of its cases.

    >>> name_of("tests/test_lora.py::test_merged[a::b-1]")
    'tests/test_lora.py::test_merged'
    """
    return nodeid.partition("[")[0]


def slow_functions(report: str) -> list[str]:
    """Return the functions of a report in JUnit's form that took long."""
    seconds: collections.Counter[str] = collections.Counter()
    for case in ET.parse(report).iter("testcase"):
        file = case.get("classname", "").replace(".", "/") + ".py"
        seconds[name_of(f"{file}::{case.get('name')}")] += float(case.get("time", 0))
    return sorted(name for name, total in seconds.items() if total >= _SECONDS)


if __name__ == "__main__":
    LIST.write_text("\n".join(slow_functions(sys.argv[1])) + "\n", encoding="utf-8")
