"""Federated averaging: the mean of the states that machines reached with the same exported step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtrain.arguments import lists_its_arguments
from onnxtrain.errors import DataError, as_number


@lists_its_arguments
def average_states(
    states: Iterable[Mapping[str, Any]], weights: Sequence[float] | None = None
) -> dict[str, np.ndarray]:
    r"""Return the weighted mean of states of one training step, :math:`\sum_i w_i s_i / \sum_i w_i`.

    In a round of federated averaging, each machine runs ``step.onnx`` on its own rows from the same state. The mean of
    the resulting states is the state of the next round, or the argument of
    :meth:`OrtGradientRegressor.load_training_state`.

    Parameters
    ----------
    states : iterable of mapping of str to array-like
        The arrays of each state by name, as ``init.onnx`` and ``step.onnx`` return them. The optimizer state is
        averaged as well.
    weights : sequence of float, optional
        The weight of each state, such as its number of rows; equal by default.

    Returns
    -------
    dict of str to ndarray
        The mean, in the types of the first state. The mean of an integer, the step number, is rounded.

    Raises
    ------
    DataError
        There is no state, the states differ in names or shapes, a value is not finite, or the weights are negative, sum
        to zero or differ in number from the states.

    Examples
    --------
    >>> from onnxtrain import average_states
    >>> average_states([{"w": [1.0, 2.0]}, {"w": [4.0, 8.0]}], weights=[2, 1])["w"].tolist()
    [2.0, 4.0]

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-efficient learning of deep networks from
    decentralized data", AISTATS 2017.
    """
    given = list(states) if isinstance(states, Iterable) else [states]
    if isinstance(states, Mapping) or not all(isinstance(state, Mapping) for state in given):
        other = states if isinstance(states, Mapping) else next(s for s in given if not isinstance(s, Mapping))
        raise DataError(
            "states must be a list of states, each a mapping of str to array, as in average_states([a, b]), got "
            f"{'a single' if other is states else 'an entry of type'} {type(other).__name__}."
        )
    found = [{name: np.asarray(x) for name, x in state.items()} for state in given]
    for i, name, x in ((i, name, x) for i, state in enumerate(found) for name, x in state.items()):
        if x.dtype.kind not in "fiub":
            raise DataError(f"A state must contain numeric arrays, got {x!r:.80} for {name!r}.")
        if not np.isfinite(x).all():
            raise DataError(
                f"{name!r} of state {i} contains values that are not finite: its training diverged. Leave it out."
            )
    if not found:
        raise DataError("There is no state to average.")
    wanted = [1.0] * len(found) if weights is None else weights
    shares = np.array([as_number(w) for w in wanted] if isinstance(wanted, Iterable) else [])
    if shares.shape != (len(found),) or not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() == 0:
        raise DataError(f"weights must be {len(found)} non-negative numbers, not all zero, got {weights!r}.")
    shapes = [{name: x.shape for name, x in state.items()} for state in found]
    for i, other in enumerate(shapes):
        if other != shapes[0]:
            raise DataError(f"The states belong to different steps: {shapes[0]} in state 0, {other} in state {i}.")
    return {name: _mean([state[name] for state in found], shares / shares.sum()) for name in found[0]}


def _mean(arrays: Sequence[np.ndarray], shares: np.ndarray) -> np.ndarray:
    mean = np.tensordot(shares, np.stack(arrays).astype(np.float64), axes=1)
    dtype = arrays[0].dtype
    return np.asarray(np.rint(mean) if dtype.kind in "iu" else mean).astype(dtype)
