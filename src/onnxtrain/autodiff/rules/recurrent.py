"""Rules of RNN, GRU and LSTM: each is recomputed as a Scan over time steps, which is differentiated.

``x`` is (T, N, inputs), ``h`` and ``c`` the states (N, H), ``w`` and ``r`` the weights of one
direction, ``p`` the peepholes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import zeros_like
from onnxtrain.autodiff.engine import differentiate
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.autodiff.rules.control_flow import STATES
from onnxtrain.autodiff.rules.fission import Turns
from onnxtrain.errors import GradientError
from onnxtrain.graph import Op, attribute, scan, scan_body, unique_name

#: A step of the recurrence: (op, x_t, states) -> new states.
Turn = Callable[[Any, ir.Value, Sequence[ir.Value]], list[ir.Value]]


@gradient_rule("RNN")
def rnn(op, node, *dy):
    return differentiate(op, node, partial(_recurrent, turn=_rnn, gates=1), *dy)


@gradient_rule("GRU")
def gru(op, node, *dy):
    return differentiate(op, node, partial(_recurrent, turn=_gru, gates=3), *dy)


@gradient_rule("LSTM")
def lstm(op, node, *dy):
    return differentiate(op, node, partial(_recurrent, turn=_lstm, gates=4), *dy)


# -------------------------------------------------------------------- steps


@dataclass(frozen=True)
class _Direction:
    """The weights of one direction, transposed: w (inputs, gates H), r (H, gates H), biases (gates H,)."""

    node: ir.Node
    w: ir.Value
    r: ir.Value
    wb: ir.Value | None
    rb: ir.Value | None
    p: ir.Value | None
    functions: Sequence[Callable[[Any, ir.Value], ir.Value]]


def _rnn(op: Op, d: _Direction) -> tuple[ir.Value | None, Turn]:
    (f,) = d.functions

    def turn(op, x, states):
        (h,) = states
        return [f(op, op.Add(x, op.MatMul(h, d.r)))]

    return _sum(op, d.wb, d.rb), turn


def _lstm(op: Op, d: _Direction) -> tuple[ir.Value | None, Turn]:
    f, g, last = d.functions
    coupled = attribute(d.node, "input_forget", 0)
    pi, po, pf = (None, None, None) if d.p is None else op.Split(d.p, axis=0, num_outputs=3, _outputs=3)

    def turn(op, x, states):
        h, c = states
        i, o, forget, new = op.Split(op.Add(x, op.MatMul(h, d.r)), axis=-1, num_outputs=4, _outputs=4)
        i = f(op, _peep(op, i, pi, c))
        forget = op.Sub(1.0, i) if coupled else f(op, _peep(op, forget, pf, c))
        c = op.Add(op.Mul(forget, c), op.Mul(i, g(op, new)))
        return [op.Mul(f(op, _peep(op, o, po, c)), last(op, c)), c]

    return _sum(op, d.wb, d.rb), turn


def _gru(op: Op, d: _Direction) -> tuple[ir.Value | None, Turn]:
    f, g = d.functions
    n = _units(d.node)
    r_gates, r_new = op.Split(d.r, [2 * n, n], axis=1, _outputs=2)

    def reset_last(op, x, states):
        (h,) = states
        z, r, new = op.Split(x, axis=-1, num_outputs=3, _outputs=3)
        hz, hr, hn = op.Split(_sum(op, op.MatMul(h, d.r), d.rb), axis=-1, num_outputs=3, _outputs=3)
        r = f(op, op.Add(r, hr))
        return [_mix(op, f(op, op.Add(z, hz)), h, g(op, op.Add(new, op.Mul(r, hn))))]

    def reset_first(op, x, states):
        (h,) = states
        gates, new = op.Split(x, [2 * n, n], axis=-1, _outputs=2)
        z, r = op.Split(f(op, op.Add(gates, op.MatMul(h, r_gates))), axis=-1, num_outputs=2, _outputs=2)
        return [_mix(op, z, h, g(op, op.Add(new, op.MatMul(op.Mul(r, h), r_new))))]

    if attribute(d.node, "linear_before_reset", 0):
        return d.wb, reset_last
    return _sum(op, d.wb, d.rb), reset_first


def _mix(op: Op, z: ir.Value, old: ir.Value, new: ir.Value) -> ir.Value:
    return op.Add(new, op.Mul(z, op.Sub(old, new)))  # (1 - z) new + z old


def _peep(op: Op, gate: ir.Value, p: ir.Value | None, c: ir.Value) -> ir.Value:
    return gate if p is None else op.Add(gate, op.Mul(p, c))


def _sum(op: Op, a: ir.Value | None, b: ir.Value | None) -> ir.Value | None:
    return a if b is None else op.Add(a, b)


# --------------------------------------------------------------- the layers


def _recurrent(op, node, x, w, r, b=None, lengths=None, h=None, c=None, p=None, *, turn, gates):
    """Return (Y, Y_h[, Y_c]) of a recurrent layer."""
    batch_first = attribute(node, "layout", 0)
    if batch_first:
        x, h, c = (v if v is None else op.Transpose(v, perm=[1, 0, 2]) for v in (x, h, c))
    ways = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[attribute(node, "direction", "forward")]
    functions = _activations(node, gates)
    found = []
    for k, backwards in enumerate(ways):
        own = (_of_direction(op, v, k, len(ways)) for v in (w, r, b, h, c, p))
        y = None if lengths is not None else _known_output(op, node, k)
        found.append(_one_way(op, node, x, own, lengths, backwards, turn, functions[k], y))
    y, *last = (_joined(op, parts, axis=int(i == 0)) for i, parts in enumerate(zip(*found, strict=True)))
    if batch_first:
        return [op.Transpose(y, perm=[2, 0, 1, 3]), *(op.Transpose(s, perm=[1, 0, 2]) for s in last)]
    return [y, *last]


def _known_output(op: Op, node: ir.Node, k: int) -> ir.Value | None:
    """Return h of one direction after each time step, (T, N, H), if the node outputs it."""
    y = node.outputs[0]
    if not y.name or y.shape is None:
        return None
    turned = op.Transpose(y, perm=[1, 2, 0, 3]) if attribute(node, "layout", 0) else y
    return op.Gather(turned, k, axis=1)


def _one_way(op, node, x, own, lengths, backwards, turn, functions, known):
    """Return (Y, Y_h[, Y_c]) of one direction, (T, 1, N, H) and (1, N, H)."""
    w, r, b, h, c, p = own
    wb, rb = (None, None) if b is None else op.Split(b, axis=0, num_outputs=2, _outputs=2)
    w, r = op.Transpose(w, perm=[1, 0]), op.Transpose(r, perm=[1, 0])
    bias, step = turn(op, _Direction(node, w, r, wb, rb, p, functions))
    states = [_zero_state(op, x, node) if s is None else s for s in ((h, c) if turn is _lstm else (h,))]
    x = _reversed(op, x, lengths) if backwards else x
    x = _sum(op, op.MatMul(x, w), bias)
    *last, y = _scan(op, x, states, step, lengths)
    if known is not None:
        known = _reversed(op, known, None) if backwards else known
        y.producer().meta[STATES] = _states_before(op, x, known, states, step)
    y = _reversed(op, y, lengths) if backwards else y
    return [op.Unsqueeze(y, [1]), *(op.Unsqueeze(s, [0]) for s in last)]


def _scan(op: Op, x: ir.Value, states: Sequence[ir.Value], turn: Turn, lengths: ir.Value | None) -> list[ir.Value]:
    """Return the last states and the first state at each step; past a row's length, states are kept and Y is 0."""
    xs = [x]
    if lengths is not None:
        turns = op.Unsqueeze(op.Range(0, op.Squeeze(op.Shape(x, start=0, end=1), [0]), 1), [1, 2])
        xs.append(op.Less(turns, op.Unsqueeze(op.Cast(lengths, to=ir.DataType.INT64), [1])))

    def body(inner: Any, *values: ir.Value) -> list[ir.Value]:
        old, (xt, *going) = values[: len(states)], values[len(states) :]
        new = turn(inner, xt, old)
        if not going:
            return [*new, new[0]]
        y = inner.Where(going[0], new[0], zeros_like(inner, new[0]))
        return [*(inner.Where(going[0], s, o) for s, o in zip(new, old, strict=True)), y]

    return scan(op, body, xs, states)


def _states_before(op: Op, x: ir.Value, known: ir.Value, states: Sequence[ir.Value], turn: Turn) -> dict[int, ir.Value]:
    """Return the states before each step, from h after each step; c is computed without the recurrent products."""
    h, *c = states
    before = op.Concat(op.Unsqueeze(h, [0]), op.Slice(known, [0], [-1], [0]), axis=0)
    if not c:
        return {0: before}

    def cell(inner: Any, old: ir.Value, xt: ir.Value, ht: ir.Value) -> list[ir.Value]:
        return [turn(inner, xt, [ht, old])[1], old]

    body = scan_body(op, cell, [x, before], c)
    last, cells = (ir.Value(name=unique_name(name, op.builder.names), type=h.type) for name in ("last_cell", "cells"))
    last.shape, cells.shape = c[0].shape, before.shape
    Turns(op, body, c, [x, before], [cells]).append([last], first_sum=1)
    return {0: before, 1: cells}


def _reversed(op: Op, x: ir.Value, lengths: ir.Value | None) -> ir.Value:
    """Return `x` with the steps of each row reversed, up to its length."""
    if lengths is None:
        return op.Slice(x, [-1], [np.iinfo(np.int64).min], [0], [-1])
    return op.ReverseSequence(x, op.Cast(lengths, to=ir.DataType.INT64), time_axis=0, batch_axis=1)


def _of_direction(op: Op, v: ir.Value | None, k: int, directions: int) -> ir.Value | None:
    if v is None:
        return None
    return op.Squeeze(v, [0]) if directions == 1 else op.Gather(v, k, axis=0)


def _zero_state(op: Op, x: ir.Value, node: ir.Node) -> ir.Value:
    rows, n, zero = x.shape[1], _units(node), ir.tensor([0.0], dtype=x.dtype)
    shape = [rows, n] if isinstance(rows, int) else op.Concat(op.Shape(x, start=1, end=2), [n], axis=0)
    state = op.ConstantOfShape(shape, value=zero)
    state.shape = ir.Shape([rows, n])
    return state


def _units(node: ir.Node) -> Any:
    """Return the length of a state, found without a static shape: the weights may be computed."""
    return attribute(node, "hidden_size") or node.inputs[2].shape[2]


def _joined(op: Op, parts: Sequence[ir.Value], axis: int) -> ir.Value:
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=axis)


# -------------------------------------------------------------- activations

#: By name in lower case: (number of parameters, their defaults, the function).
_FUNCTIONS: dict[str, tuple[tuple[float, ...], Callable[..., ir.Value]]] = {
    "sigmoid": ((), lambda op, x: op.Sigmoid(x)),
    "tanh": ((), lambda op, x: op.Tanh(x)),
    "relu": ((), lambda op, x: op.Relu(x)),
    "softsign": ((), lambda op, x: op.Softsign(x)),
    "softplus": ((), lambda op, x: op.Softplus(x)),
    "elu": ((1.0,), lambda op, x, a: op.Elu(x, alpha=a)),
    "leakyrelu": ((0.01,), lambda op, x, a: op.LeakyRelu(x, alpha=a)),
    "thresholdedrelu": ((1.0,), lambda op, x, a: op.ThresholdedRelu(x, alpha=a)),
    "hardsigmoid": ((0.2, 0.5), lambda op, x, a, b: op.HardSigmoid(x, alpha=a, beta=b)),
    "affine": ((1.0, 0.0), lambda op, x, a, b: op.Add(op.Mul(x, a), b)),
    "scaledtanh": ((1.0, 1.0), lambda op, x, a, b: op.Mul(op.Tanh(op.Mul(x, b)), a)),
}

_DEFAULTS = {1: ["Tanh"], 3: ["Sigmoid", "Tanh"], 4: ["Sigmoid", "Tanh", "Tanh"]}


def _activations(node: ir.Node, gates: int) -> list[list[Callable[[Any, ir.Value], ir.Value]]]:
    """Return the activation functions of each direction; they consume the parameters in order."""
    defaults = _DEFAULTS[gates]
    names = attribute(node, "activations") or defaults * 2
    alphas, betas = (iter(attribute(node, f"activation_{name}") or ()) for name in ("alpha", "beta"))
    # onnxruntime clips the inputs of the gates and of a new state, but not the output of the cell
    limits = [attribute(node, "clip", 0.0) * (i % len(defaults) < 2) for i in range(len(names))]
    functions = [_activation(node, name, alphas, betas, clip) for name, clip in zip(names, limits, strict=True)]
    return [functions[i : i + len(defaults)] for i in range(0, len(functions), len(defaults))]


def _activation(
    node: ir.Node, name: str, alphas: Iterator[float], betas: Iterator[float], clip: float
) -> Callable[[Any, ir.Value], ir.Value]:
    if name.lower() not in _FUNCTIONS:
        raise GradientError(f"{node.op_type} (node {node.name!r}) has an unknown activation {name!r}.")
    defaults, function = _FUNCTIONS[name.lower()]
    given = [next(source, default) for source, default in zip((alphas, betas), defaults, strict=False)]
    if not clip:
        return lambda op, x: function(op, x, *given)
    return lambda op, x: function(op, op.Clip(x, -clip, clip), *given)
