"""The frozen front of a model, which is computed once for all rows before the first step.

A model is cut where its trained weights begin::

    rows -> front -> border -> rest -> output
                                  ^
                               weights

A value can be on the border only if its first axis is the rows, because batches select rows of it. Its shape must not
contradict this, and runs on some of the user's rows, in batches of several sizes and in another order, must confirm it.
If a value fails, the cut is made before it.

The border is computed in pieces of bounded memory. A small border is kept in memory, a larger one in an unnamed
temporary file, which vanishes with the process at the latest. A border several times larger than the rows is computed
with each batch.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.cache import LIGHT, cached
from onnxtrain.convert.compared_rows import spread
from onnxtrain.errors import DataError, FileError, ModelError
from onnxtrain.runtime.session import Place, run_session
from onnxtrain.training.data import GROUP, TrainingData, batches, dense, in_files, rows_at_once
from onnxtrain.training.objective import Objective, multiplications

#: The least number of operations, about 0.1 s, that a cut must save in a fit, since a cut itself needs a session and
#: some runs.
_WORTH_A_CUT = 2**28

#: Maximum bytes of the border in memory.
IN_MEMORY = 2**28

#: Maximum size of the border in a file, in multiples of the bytes of the rows.
_MOST_TIMES = 4

#: Batch sizes of the runs that confirm a border.
_SIZES = (8, 5, 2)

#: The tolerance, relative to the largest value, between a row's values in two batches, in which sums are rounded
#: differently.
_RTOL = 1e-4

#: Maximum bytes computed for a piece of the rows.
_PIECE = 2**26


@dataclass(frozen=True)
class Front:
    """The subgraph of an objective that depends on no trained weight.

    Attributes
    ----------
    onnx : bytes
        The graph from the rows and constants to the border.
    border : tuple of str
        The outputs of the front.
    passed : tuple of str
        The inputs that the rest reads too.
    constants : tuple of str
        The constants of the objective that the front reads.
    multiplications, elements : float
        The approximate numbers of multiplications and of computed elements per row.
    """

    onnx: bytes = field(repr=False)
    border: tuple[str, ...]
    passed: tuple[str, ...]
    constants: tuple[str, ...]
    multiplications: float
    elements: float

    @property
    def work(self) -> float:
        """The approximate number of operations per row."""
        return self.multiplications + self.elements

    def run(self, data: TrainingData, features: Mapping[str, Any], place: Place) -> dict[str, np.ndarray]:
        """Return the border for rows `features`, in the types of `data`; in memory, or in a file if it is large.

        Raises
        ------
        DataError
            A value of the border does not have one entry per row.
        OSError
            The disk is full.
        """
        (n_rows,) = {x.shape[0] for x in features.values()}
        session = place.for_work(n_rows * self.work).open(self.onnx, shared=len(self.onnx) <= LIGHT)
        read = {i.name for i in session.get_inputs()}
        features = {name: x for name, x in features.items() if name in read}
        known = {name: data.constants[name] for name in self.constants}
        size = min(rows_at_once(features, data.dtypes), max(GROUP, int(_PIECE // (8 * max(self.elements, 1)))))

        def border(rows: slice) -> dict[str, np.ndarray]:
            some = {name: dense(x[rows], data.dtypes[name]) for name, x in features.items()}
            return dict(zip(self.border, run_session(session, known | some, self.border), strict=True))

        return _joined(map(border, batches(n_rows, size)), n_rows, size)


def _joined(pieces: Iterator[dict[str, np.ndarray]], n_rows: int, size: int) -> dict[str, np.ndarray]:
    """Return the concatenated pieces, each of `size` rows."""
    first = next(pieces)
    if n_rows <= size:
        return first
    keep = _in_memory if sum(y.nbytes for y in first.values()) / size * n_rows <= IN_MEMORY else _in_files
    return keep(_checked(itertools.chain([first], pieces), n_rows, size), first, n_rows)


def _checked(pieces: Iterable[dict[str, np.ndarray]], n_rows: int, size: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield pieces; raise a DataError if one has the wrong number of rows."""
    for rows, piece in zip(batches(n_rows, size), pieces, strict=True):
        if any(y.shape[:1] != (rows.stop - rows.start,) for y in piece.values()):
            found = ", ".join(f"{name} {y.shape}" for name, y in piece.items())
            raise DataError(
                f"For {rows.stop - rows.start} rows, the model computes {found}, whose first axis is not the batch "
                "axis. Export the model so that the first axis of each of its values is the batch axis."
            )
        yield piece


def _in_memory(
    pieces: Iterable[Mapping[str, np.ndarray]], like: Mapping[str, np.ndarray], n_rows: int
) -> dict[str, np.ndarray]:
    """Return the concatenated pieces as arrays in memory."""
    found = {name: np.empty((n_rows, *y.shape[1:]), y.dtype) for name, y in like.items()}
    start = 0
    for piece in pieces:
        stop = start + len(next(iter(piece.values())))
        for name, y in piece.items():
            found[name][start:stop] = y
        start = stop
    return found


def _in_files(
    pieces: Iterable[Mapping[str, np.ndarray]], like: Mapping[str, np.ndarray], n_rows: int
) -> dict[str, np.ndarray]:
    """Return the concatenated pieces as arrays in files."""
    return in_files(pieces, {name: (n_rows, *y.shape[1:]) for name, y in like.items()})


@dataclass(frozen=True)
class Cut:
    """A divided objective: the front, and the objective of the rest."""

    front: Front
    objective: Objective

    def apply(self, data: TrainingData, place: Place) -> TrainingData:
        """Convert rows of the whole objective to rows of the objective of the rest."""
        return self._behind(data, self.front.run(data, data.features, place))

    def _behind(self, data: TrainingData, computed: Mapping[str, np.ndarray]) -> TrainingData:
        passed = {name: data.features[name] for name in self.front.passed}
        dtypes = {name: y.dtype for name, y in computed.items()} | {name: data.dtypes[name] for name in passed}
        constants = {name: data.constants[name] for name in self.objective.constants}
        return replace(data, features={**computed, **passed}, dtypes=dtypes, constants=constants)


def split_at_weights(
    whole: Objective, data: TrainingData, n_epochs: int, place: Place, *, always: bool
) -> tuple[Cut, TrainingData] | None:
    """Cut an objective at its trained weights if the border is confirmed to hold rows and the cut saves enough work.

    Parameters
    ----------
    whole : Objective
    data : TrainingData
    n_epochs : int
        How often the front would be computed without a cut.
    place : Place
    always : bool
        Whether to cut even if little work is saved; used for inputs by name and for strings.

    Returns
    -------
    (Cut, TrainingData) or None
        The cut, and the rows for the rest. None: the whole objective is computed for each batch.
    """
    n_rows, texts = len(data.label), data.has_texts

    def is_worth_it(work: float) -> bool:
        return always or work * n_rows * (n_epochs - 1) >= _WORTH_A_CUT

    if not is_worth_it(multiplications(whole.model)):
        return None
    refused: frozenset[str] = frozenset()
    while (front := find_front(whole, refused)) is not None and is_worth_it(front.work):
        try:
            rows, found, wrong = _check_rows(front, data, place)
        except DataError:  # the model does not accept batches of other sizes
            if texts:
                raise
            return None
        if not wrong:
            if not texts and not _may_be_kept(found, n_rows, data.features):
                return None
            computed = _computed(front, data, place, needed=texts)
            if computed is None:
                return None
            wrong = frozenset(name for name, y in found.items() if not _agree(computed[name][rows], y))
            if not wrong:
                values = {**data.features, **found}
                border = tuple((name, values[name].ndim) for name in front.border + front.passed)
                made = Cut(front, behind(whole, border))
                return made, made._behind(data, computed)
        refused |= wrong
    return None


@cached
def find_front(objective: Objective, refused: frozenset[str] = frozenset()) -> Front | None:
    """Return the part of an objective that depends on no trained weight, or None if there is none.

    Parameters
    ----------
    objective : Objective
    refused : frozenset of str
        Values that must not be on the border.

    Raises
    ------
    ModelError
        A step would have to read strings.
    """
    model = graph.reload(objective.model)
    border = _border(model, objective, refused)
    texts = [v for v in border if v.dtype == ir.DataType.STRING]
    if texts:
        raise ModelError(
            f"Strings reach the trained weights: {graph.describe(texts[0])}. A step needs encoded strings whose first "
            "axis is the batch axis. Export the model accordingly."
        )
    passed = tuple(str(v.name) for v in border if v.is_graph_input())
    computed = [(str(v.name), v) for v in border if v.name not in passed]
    if not computed:
        return None
    read = graph.ancestors(v for _, v in computed)
    inputs = [v for v in model.graph.inputs if v in read]
    elements = _elements(read)
    model.graph.inputs[:] = inputs
    onx = graph.save(model, outputs=computed).SerializeToString()
    return Front(
        onx,
        border=tuple(name for name, _ in computed),
        passed=passed,
        constants=tuple(str(v.name) for v in inputs if v.name in objective.constants),
        multiplications=multiplications(onx),
        elements=elements,
    )


def _border(model: ir.Model, objective: Objective, refused: frozenset[str]) -> list[ir.Value]:
    """Return the outputs of the front from which the rest computes the output."""
    features = _features(model, objective)
    trained = [v for v in model.graph.inputs if v.name in objective.weights]
    with_rows = graph.dependents(model.graph, features)
    frozen = with_rows - graph.dependents(model.graph, trained)
    names = _AxisNames.of(features)
    stops = {v for v in frozen if v in features or (v.name not in refused and names.allow_rows(v))}
    found: set[ir.Value] = set()
    todo = [graph.find(model.graph.outputs, objective.output, "output")]
    while todo:
        value = todo.pop()
        if value in with_rows and value not in found:
            found.add(value)
            todo += [] if value in stops else _operands(value)
    return [v for v in _values(model) if v in found & stops]


def _features(model: ir.Model, objective: Objective) -> list[ir.Value]:
    """Return the inputs that have one entry per row."""
    return [v for v in model.graph.inputs if v.name not in (*objective.weights, *objective.constants)]


def _values(model: ir.Model) -> list[ir.Value]:
    """Return the inputs and all computed values, in order."""
    return [*model.graph.inputs, *(y for node in model.graph for y in node.outputs)]


def _operands(value: ir.Value) -> list[ir.Value]:
    node = value.producer()
    return [] if node is None else [x for x in graph.operands(node) if x is not None]


class _AxisNames(NamedTuple):
    """Names of the axes of the inputs: those used only for the batch axis, and those of other axes."""

    rows: frozenset[str]
    others: frozenset[str]

    @classmethod
    def of(cls, inputs: Iterable[ir.Value]) -> _AxisNames:
        shapes = [[_name(d) for d in v.shape or ()] for v in inputs]
        others = {name for shape in shapes for name in shape[1:] if name}
        first = {shape[0] for shape in shapes if shape and shape[0]} - others
        return cls(frozenset(first), frozenset(others))

    def allow_rows(self, value: ir.Value) -> bool:
        """Whether the first axis of a value may be the batch axis, by its name."""
        if value.shape is None:
            return True
        if not len(value.shape) or isinstance(value.shape[0], int):
            return False
        return _name(value.shape[0]) not in self.others


def _name(dimension: Any) -> str | None:
    return dimension.value if isinstance(dimension, ir.SymbolicDim) else None


def _elements(values: Iterable[ir.Value]) -> float:
    """Return the approximate number of elements that are computed per row."""
    shapes = (y.shape for y in values if y.producer() is not None)
    return float(sum(math.prod(d for d in shape if isinstance(d, int)) for shape in shapes if shape is not None))


def behind(objective: Objective, border: tuple[tuple[str, int], ...]) -> Objective:
    """Return the objective after a border, given as the name and the rank of each of its values."""
    onx, constants = _graph_behind(objective, border)
    return replace(objective, model=onx, constants=constants)


@cached
def _graph_behind(objective: Objective, border: tuple[tuple[str, int], ...]) -> tuple[bytes, tuple[str, ...]]:
    """Return the model after a border, and its constants. Objectives with equal losses share the result."""
    model = graph.reload(objective.model)
    values = {str(v.name): v for v in _values(model)}
    features = _features(model, objective)
    others = [v for v in model.graph.inputs if v not in features]
    rows = _AxisNames.of(features).rows
    output = graph.find(model.graph.outputs, objective.output, "output")
    model.graph.outputs[:] = [output]  # another one may be an input, which is replaced
    inputs = [_taken_as_input(values[name], rank, rows) for name, rank in border]
    read = graph.ancestors([output])
    model.graph.inputs[:] = [*inputs, *(v for v in others if v in read)]
    onx = graph.save(model, outputs=[(objective.output, output)]).SerializeToString()
    return onx, tuple(n for n in objective.constants if values[n] in read)


def _taken_as_input(old: ir.Value, rank: int, rows: frozenset[str]) -> ir.Value:
    """Replace a value on the border by a new input whose first axis is named like the batch axis."""
    shape: list[int | str | ir.SymbolicDim | None] = [None] * rank if old.shape is None else list(old.shape)
    if _name(shape[0]) not in rows:
        shape[0] = min(rows, default="rows")
    new = ir.Value(name=old.name, type=old.type, shape=ir.Shape(shape))
    ir.convenience.replace_all_uses_with(old, new)
    old.name = f"{new.name}_of_the_front"
    return new


def _check_rows(
    front: Front, data: TrainingData, place: Place
) -> tuple[np.ndarray, dict[str, np.ndarray], frozenset[str]]:
    """Run a front on some rows in batches of several sizes, and compare the results.

    Returns
    -------
    rows : ndarray of int
        The examined rows.
    found : dict of str to ndarray
        The border for these rows.
    refused : frozenset of str
        The values whose first axis is not the batch axis.
    """
    rows = spread(len(data.label), _SIZES[0])
    rows = rows if len(rows) > _SIZES[-1] else np.resize(rows, _SIZES[-1] + 1)
    order = np.random.default_rng(0).permutation(len(rows))

    def of(part: Any) -> dict[str, np.ndarray]:
        return front.run(data, {name: x[rows[part]] for name, x in data.features.items()}, place)

    found = of(slice(None))
    refused = {name for name, y in found.items() if y.shape[:1] != rows.shape}
    for part in (order[:size] for size in _SIZES[1:]):
        refused |= {name for name, y in of(part).items() if name not in refused and not _agree(y, found[name][part])}
    return rows, found, frozenset(refused)


def _agree(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two results are equal up to rounding."""
    if a.shape != b.shape or a.dtype.kind != "f":
        return np.array_equal(a, b)
    finite = np.abs(b[np.isfinite(b)])
    return np.allclose(a, b, rtol=_RTOL, atol=_RTOL * finite.max(initial=0), equal_nan=True)


def _may_be_kept(found: Mapping[str, np.ndarray], n_rows: int, features: Mapping[str, Any]) -> bool:
    """Whether a border, given for some rows, is small enough to be kept for all rows, in memory or in a file."""
    total = sum(y.nbytes / len(y) for y in found.values()) * n_rows
    return total <= max(IN_MEMORY, _MOST_TIMES * sum(map(_n_bytes, features.values())))


def _n_bytes(x: Any) -> int:
    return x.data.nbytes if hasattr(x, "indptr") else x.nbytes


def _computed(front: Front, data: TrainingData, place: Place, *, needed: bool) -> dict[str, np.ndarray] | None:
    """Return the border for all rows, or None if it is too large and not needed."""
    try:
        return front.run(data, data.features, place)
    except DataError:  # a larger batch shows that the first axis is not the batch axis
        if needed:
            raise
    except OSError as e:
        if needed:
            raise FileError(
                f"The encoded strings are too large for memory, and cannot be written to "
                f"{tempfile.gettempdir()!r}: {e.strerror or e}. Set the environment variable TMPDIR to another folder."
            ) from e
    return None
