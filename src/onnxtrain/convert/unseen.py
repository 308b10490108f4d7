"""Warnings about parameters of a PyTorch module that its file lacks or has in another form, where training differs."""

from __future__ import annotations

import re
from collections.abc import Collection

import onnx

from onnxtrain.convert.dynamo import computed_in_advance, folded_normalizations, lost_parameters

#: Weights of convolutions that torch.onnx.export(dynamo=False) computed: parameters keep their names.
_FOLDED = re.compile(r"onnx::Conv(Transpose)?_\d+")

#: What it computed to scale and shift the channels of a convolution.
_SCALED = re.compile(r"onnx::(Add|Mul)_\d+")


def remarks(onx: onnx.ModelProto, trained: Collection[str], others: Collection[str]) -> list[str]:
    """Return warnings about weights that PyTorch would train otherwise.

    Parameters
    ----------
    onx : onnx.ModelProto
    trained : collection of str
        The weights that are trained by default.
    others : collection of str
        Those that may be trained.
    """
    if onx.producer_name != "pytorch":
        return []
    found = []
    if lost := lost_parameters(onx):
        found.append(
            f"PyTorch's exporter left out {_some(lost)}: sums with 0, products with 1, layers that begin equal and "
            "take the same rows, and views of parameters that begin equal. PyTorch trains these parameters; "
            "torch.onnx.export(..., dynamo=True, optimize=False) keeps them."
        )
    if folded := folded_normalizations(onx):
        found.append(
            f"PyTorch's exporter folded BatchNormalization into the layers before: {_some(folded)}. The products are "
            "trained, PyTorch trains their factors; torch.onnx.export(..., dynamo=True, optimize=False) keeps them."
        )
    if computed := [name for name in computed_in_advance(onx) if name in trained]:
        found.append(
            f"PyTorch's exporter computed {_some(computed)} in advance, as of parametrizations. The results are "
            "trained, not what they come from; torch.onnx.export(..., dynamo=True, optimize=False) keeps that."
        )
    if folded := [name for name in trained if _FOLDED.fullmatch(name)]:
        found.append(
            f"PyTorch's exporter computed {_some(folded)} of several weights, as those of a convolution and of "
            "BatchNormalization. The products are trained, PyTorch trains their factors; torch.onnx.export(..., "
            "dynamo=False, do_constant_folding=False) keeps them."
        )
    channels = {i.name for i in onx.graph.initializer if len(i.dims) > 2 and list(i.dims[-2:]) == [1, 1]}
    if scaled := [name for name in others if name in channels - {*trained} and _SCALED.fullmatch(name)]:
        found.append(
            f"{_some(scaled)} scale and shift channels as a FrozenBatchNorm2d does, and are not trained. If PyTorch "
            "learns them, name them in weights_to_train besides the others."
        )
    return found


def _some(names: Collection[str]) -> str:
    return ", ".join(list(names)[:4]) + (", ..." if len(names) > 4 else "")
