"""Measure the code that one ``fit`` runs: modules, functions, depth, and pairs of modules that call each other.

A fitted ``MLPRegressor`` is fine-tuned for two epochs under :func:`sys.setprofile`, and then a second time. The second
fit uses the cached graphs of the first one, as in a search. Only a direct call from one module of the package to
another counts as an edge, and calls through other libraries do not. ``python benchmarks/walk.py`` prints the table that
``doc/design.rst`` includes. It also has the figures of scikit-learn's own fit.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

#: A comprehension counts as part of its function, because Python versions differ in which ones have a frame.
_NO_FUNCTION = frozenset({"<module>", "<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"})


@dataclass
class Walk:
    """The called functions, by file and name.

    Attributes
    ----------
    functions : dict of (module, function)
        The functions, in the order of their first calls.
    edges : set of (module, module)
        Direct calls between two modules of the package.
    depth : int
        The largest number of frames of the package on the stack at once.
    """

    functions: dict[tuple[str, str], None] = field(default_factory=dict)
    edges: set[tuple[str, str]] = field(default_factory=set)
    depth: int = 0

    @property
    def modules(self) -> list[str]:
        """The modules with at least one called function, in the order of their first calls."""
        return list(dict.fromkeys(module for module, _ in self.functions))

    @property
    def both_ways(self) -> set[tuple[str, str]]:
        """Pairs of modules that call each other."""
        return {(a, b) for a, b in self.edges if a < b and (b, a) in self.edges}


def walk(package: str, call: Callable[[], Any]) -> Walk:
    """Return the functions of a package that a call runs.

    Parameters
    ----------
    package : str
        The name of an imported package.
    call : callable
        The function to call, without arguments.
    """
    root = Path(str(sys.modules[package].__file__)).parent
    known: dict[CodeType, str | None] = {}
    found = Walk()
    depth = 0

    def module_of(code: CodeType) -> str | None:
        if code not in known:
            path = Path(code.co_filename)
            inside = path.is_relative_to(root)
            known[code] = ".".join(path.relative_to(root.parent).with_suffix("").parts) if inside else None
        return known[code]

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal depth
        if event not in ("call", "return"):
            return
        code = frame.f_code
        module = module_of(code)
        if module is None or code.co_name in _NO_FUNCTION:
            return
        if event == "return":
            depth -= 1
            return
        depth += 1
        found.depth = max(found.depth, depth)
        found.functions[module, code.co_qualname] = None
        caller = None if frame.f_back is None else module_of(frame.f_back.f_code)
        if caller is not None and caller != module:
            found.edges.add((caller, module))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def walks() -> dict[str, Walk]:
    """Return the walks of the fine-tuning of a fitted MLPRegressor, of a second fine-tuning, and of its own fit."""
    from sklearn.base import clone
    from sklearn.neural_network import MLPRegressor

    from onnxtrain import OrtGradientRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 10)).astype(np.float32)
    y = X[:, 0] - X[:, 1] * X[:, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs do not converge
        OrtGradientRegressor(max_iter=1).fit(X[:50], y[:50])  # imports do not count as part of a fit
        mlp = MLPRegressor(hidden_layer_sizes=(30,), max_iter=2, random_state=0)
        tuned = OrtGradientRegressor(clone(mlp).fit(X, y), max_iter=2, random_state=0)
        return {
            "onnxtrain": walk("onnxtrain", lambda: tuned.fit(X, y)),
            "onnxtrain, again": walk("onnxtrain", lambda: tuned.fit(X, y)),
            "scikit-learn": walk("sklearn", lambda: mlp.fit(X, y)),
        }


def main() -> None:
    """Print the table."""
    found = walks()
    print(f"{'':18s}{'modules':>9s}{'functions':>11s}{'depth':>7s}{'both ways':>11s}")
    for name, w in found.items():
        print(f"{name:18s}{len(w.modules):9d}{len(w.functions):11d}{w.depth:7d}{len(w.both_ways):11d}")
    for a, b in sorted(found["onnxtrain"].both_ways):
        print(f"{a} and {b} call each other")


if __name__ == "__main__":
    main()
