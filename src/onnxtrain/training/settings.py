"""The settings of training as a frozen value, and the penalties of an objective's weights."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.optim import Optimizer, Schedule
from onnxtrain.runtime.device import Device
from onnxtrain.runtime.session import Place

#: The default batch size, as in scikit-learn's MLPs.
_BATCH = 200

#: Groups of weights with a common penalty strength, and the strength.
Groups = dict[tuple[str, ...], float]


@dataclass(frozen=True)
class Penalties:
    """The strength of both penalties for each weight, by name; absent weights are not penalized."""

    l1: Mapping[str, float]
    l2: Mapping[str, float]

    def spread(self, which: Mapping[str, float], weights: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the strength for each element of the flattened weights."""
        return np.concatenate([np.full(w.size, which.get(name, 0.0)) for name, w in weights.items()])

    def value(self, weights: Mapping[str, np.ndarray]) -> float:
        """Return the sum of both penalties, which is added to the loss."""
        value = 0.0
        with np.errstate(over="ignore"):  # an infinite penalty is a valid result
            for name, w in weights.items():
                if l1 := self.l1.get(name, 0.0):
                    value += l1 * float(np.abs(w).sum(dtype=np.float64))
                if l2 := self.l2.get(name, 0.0):
                    value += l2 * float(np.square(w, dtype=np.float64).sum())
        return value


@dataclass(frozen=True)
class Settings:
    """The checked parameters of an estimator that control training, under the same names.

    Attributes
    ----------
    optimizer : Optimizer or None
        None for L-BFGS.
    schedule : Schedule
    batch_size : int or None
        None for ``"auto"``.
    penalty : mapping of str to (float, float)
        The strengths of l1 and l2 on single weights, in addition to the common strengths.
    products : onnx_ir.DataType or None
        The type in which matrix products are computed, if it differs from that of the weights.
    accumulate : int
        The number of batches per step.
    """

    optimizer: Optimizer | None
    schedule: Schedule
    device: Device
    n_threads: int | None = None
    batch_size: int | None = None
    max_iter: int = 200
    shuffle: bool = True
    tol: float = 1e-4
    n_iter_no_change: int = 10
    average: float | bool = False
    clip_norm: float | None = None
    l1: float = 0.0
    l2: float = 0.0
    penalty: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    builder: str = "builtin"
    products: ir.DataType | None = None
    accumulate: int = 1

    @property
    def place(self) -> Place:
        """The device and threads on which graphs run."""
        return Place(self.device, self.n_threads)

    def rows_of_a_batch(self, n_rows: int) -> int:
        """Return the batch size for `n_rows` rows."""
        return min(self.batch_size or _BATCH, n_rows)

    def steps_of_an_epoch(self, n_rows: int) -> int:
        """Return the number of steps in which an epoch visits `n_rows` rows."""
        n_batches = -(-n_rows // self.rows_of_a_batch(n_rows))
        return -(-n_batches // self.accumulate)

    def penalties(self, penalized: tuple[str, ...]) -> Penalties:
        """Return the strength of both penalties for each weight; the common strengths apply to `penalized`."""
        l1, l2 = dict.fromkeys(penalized, self.l1), dict.fromkeys(penalized, self.l2)
        for name, (own1, own2) in self.penalty.items():
            l1[name], l2[name] = l1.get(name, 0.0) + own1, l2.get(name, 0.0) + own2
        return Penalties(l1, l2)

    def of_steps(self, penalized: tuple[str, ...]) -> tuple[dict[str, Any], tuple[float, ...]]:
        """Return the arguments that build steps and updates, and the strengths of their penalties."""
        l1, l2 = self.penalty_groups(penalized)
        return {"clip_norm": self.clip_norm, "l1": tuple(l1), "l2": tuple(l2)}, (*l1.values(), *l2.values())

    def penalty_groups(self, penalized: tuple[str, ...]) -> tuple[Groups, Groups]:
        """Return l1 and l2 for groups of weights with a common strength; weights of `penalty` are separate groups."""
        both = self.penalties(penalized)
        return _in_groups(both.l1, self.penalty), _in_groups(both.l2, self.penalty)


def _in_groups(strengths: Mapping[str, float], single: Container[str]) -> Groups:
    # the groups must not depend on the strengths, so that the candidates of a search share a step
    common = tuple(w for w in strengths if w not in single)
    groups = [common] * bool(common) + [(w,) for w in sorted(strengths) if w in single]
    return {group: strengths[group[0]] for group in groups if strengths[group[0]] > 0}
