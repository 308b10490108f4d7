"""Matrices that PyTorch's exporters wrote twice, as they are and transposed: of a tied weight, which stays one.

A language model multiplies by its embedding. In a file whose constants were folded the transposed embedding is an
initializer of its own, and two weights would be trained to be different.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

import numpy as np
import onnx

from onnxtrain import graph

#: Where torch.onnx.export(dynamo=True) writes the names of the values that an initializer was folded from.
_FOLDED = "pkg.onnxscript.optimizer.folded_from"

#: Names of values that torch.onnx.export computed, and that onnxruntime computes in advance where it optimizes such a
#: model; parameters keep their names.
_COMPUTED = re.compile(r"onnx::.*|/.*_output_\d+|val_\d+")

#: Makers of files with such names.
_MAKERS = ("pytorch", "onnxruntime.transformers")


def folded_from(onx: onnx.ModelProto) -> dict[str, list[str]]:
    """Return the names of the values that each folded initializer was computed from, as the dynamo exporter says."""
    said = {v.name: p.value for v in onx.graph.value_info for p in v.metadata_props if p.key == _FOLDED}
    return {name: _listed(text) for name, text in said.items()}


def _listed(text: str) -> list[str]:
    """Return the names in a list as Python writes it; none where the text is something else."""
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def transposed_copies(onx: onnx.ModelProto) -> dict[str, str]:
    """Return which initializers the exporter computed as the transpose of another one: copy to original, by name."""
    if onx.producer_name not in _MAKERS:
        return {}
    inputs = {i.name for i in onx.graph.input}
    matrices = {i.name: i for i in onx.graph.initializer if len(i.dims) == 2 and i.name not in inputs}
    candidates = _candidates(
        matrices, folded_from(onx), {x for n in onx.graph.node if n.op_type == "Gather" for x in n.input[:1]}
    )
    return {copy: w for copy, w in candidates if _is_transpose(matrices[copy], matrices[w])}


def _candidates(
    matrices: Mapping[str, onnx.TensorProto], folded: Mapping[str, list[str]], embeddings: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a computed matrix and a parameter that it may have been computed from."""
    for name in matrices:
        if name in folded:
            yield from ((name, other) for other in folded[name] if other in matrices)
        elif _COMPUTED.fullmatch(name):
            # a name says nothing there: other layers may begin as copies of each other
            yield from ((name, other) for other in matrices if other in embeddings)


def _is_transpose(copy: onnx.TensorProto, w: onnx.TensorProto) -> bool:
    if list(copy.dims) != list(w.dims)[::-1] or copy.data_type != w.data_type:
        return False
    array, other = graph.array_of(copy), graph.array_of(w)
    return array.dtype.kind == "f" and array.size > 1 and np.ptp(array[:1]) > 0 and np.array_equal(array, other.T)


def tied(onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that transposes a weight where the file has a transposed copy of it."""
    copies = transposed_copies(onx)
    if not copies:
        return onx
    found = graph.copy_of(onx)
    graph.assign(found.graph.initializer, [i for i in found.graph.initializer if i.name not in copies])
    turned = [onnx.helper.make_node("Transpose", [w], [copy], perm=[1, 0]) for copy, w in copies.items()]
    graph.assign(found.graph.node, [*turned, *found.graph.node])
    return found


def with_copies(weights: Mapping[str, np.ndarray], copies: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return weights, and their transposed copies, by name."""
    return {**weights, **{copy: weights[w].T for copy, w in copies.items() if w in weights}}
