"""Execution of the two passes: two sessions of any onnxruntime, or the TrainingAgent of the training build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import onnxruntime
from onnxruntime.capi import _pybind_state as native

from onnxtrain.errors import DataError, ModelError
from onnxtrain.ortgradient._graphs import PassGraphs
from onnxtrain.ortgradient._tensors import vector
from onnxtrain.runtime.session import kept_after_fork


class Saved(NamedTuple):
    """The results of a forward pass that its backward pass needs.

    ``memory`` is private to the engine. ``shapes`` and ``inputs`` serve for checks
    and keep the memory alive that onnxruntime borrows.
    """

    memory: Any
    shapes: tuple[tuple[int, ...], ...]
    inputs: Any


class Engine(Protocol):
    """Two passes over one graph."""

    def forward(self, inputs: Any) -> tuple[list[Any], Any]:
        """Return the outputs and the saved values for the backward pass."""

    def backward(self, memory: Any, gradients: Sequence[Any]) -> Any:
        """Return the gradients as an OrtValueVector; `gradients` has one entry per incoming gradient."""


class Runner:
    """A session that takes and returns OrtValues and leaves them on the device."""

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        device: Any,
        inputs: Sequence[str],
        outputs: Sequence[str],
        run_options: Any = None,
    ):
        self.session = session
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.devices = [device] * len(self.outputs)
        self.run_options = run_options if run_options is not None else onnxruntime.RunOptions()

    def __call__(self, feeds: Any) -> Any:
        fetches = native.OrtValueVector()
        if not self.outputs:
            return fetches
        guarded(
            lambda: self.session.run_with_ortvaluevector(
                self.run_options, self.inputs, feeds, self.outputs, fetches, self.devices
            )
        )
        return fetches


class TwoSessions:
    """The passes as two graphs of standard operators; the values that backward needs are outputs of forward."""

    def __init__(self, graphs: PassGraphs, forward: Runner, backward: Runner):
        self.graphs = graphs
        self.run_forward = forward
        self.run_backward = backward

    def forward(self, inputs: Any) -> tuple[list[Any], Any]:
        """See :class:`Engine`."""
        g = self.graphs
        fetches = list(self.run_forward(inputs))
        known = dict(zip((t.name for t in g.inputs), inputs, strict=True))
        known |= dict(zip(self.run_forward.outputs, fetches, strict=True))
        return fetches[: len(g.outputs)], [known[name] for name in g.needed]

    def backward(self, memory: Any, gradients: Sequence[Any]) -> Any:
        """See :class:`Engine`."""
        return self.run_backward(vector([*gradients, *memory]))


class Agent:
    """TrainingAgent: one session that stops at YieldOp and resumes there."""

    def __init__(self, graphs: PassGraphs, session: onnxruntime.InferenceSession, device: Any):
        names = [t.name for t in graphs.inputs]
        self.session = session
        self.cache = native.OrtValueCache()
        # one device per output: with fewer the process crashes
        self.agent = native.TrainingAgent(
            session._sess,
            names,
            [device] * len(graphs.outputs),
            list(graphs.gradients),
            [device] * len(graphs.gradients),
            device.device_id(),
        )

    def forward(self, inputs: Any) -> tuple[list[Any], Any]:
        """See :class:`Engine`."""
        state, fetches = native.PartialGraphExecutionState(), native.OrtValueVector()
        guarded(lambda: self.agent.run_forward(inputs, fetches, state, self.cache))
        return list(fetches), state

    def backward(self, memory: Any, gradients: Sequence[Any]) -> Any:
        """See :class:`Engine`."""
        fetches = native.OrtValueVector()
        guarded(lambda: self.agent.run_backward(vector(gradients), fetches, memory))
        return fetches


def guarded(run: Callable[[], None]) -> None:
    """Call onnxruntime and re-raise its exceptions as errors of this package."""
    try:
        run()
    except Exception as e:  # onnxruntime's exceptions have no common base but Exception
        raise DataError(f"onnxruntime cannot run the model: {e}") from e


def open_with(content: bytes, options: Any, providers: Any, provider_options: Any) -> onnxruntime.InferenceSession:
    """Return a session on a model, with the options of the user."""
    if options is None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(content, options, providers, provider_options, enable_fallback=0)
    except Exception as e:  # onnxruntime's exceptions have no common base but Exception
        raise ModelError(f"onnxruntime {onnxruntime.__version__} cannot load the model: {e}") from e
    return kept_after_fork(session)
