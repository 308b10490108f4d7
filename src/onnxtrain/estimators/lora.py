"""LoRA, a value of ``weights_to_train``: low-rank factors are trained instead of the weight matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
from sklearn.base import BaseEstimator

from onnxtrain import graph
from onnxtrain.arguments import SetsItsParameters
from onnxtrain.convert.last_layer import head_weights
from onnxtrain.convert.low_rank import LowRank, matrices, with_factors
from onnxtrain.errors import ModelError, WeightError, warn
from onnxtrain.training.model import TrainableModel, initial_weights
from onnxtrain.training.weights import select_weights


class LoRA(SetsItsParameters, BaseEstimator):
    r"""Low-rank adaptation, for ``weights_to_train``: two low-rank factors are trained for each chosen weight matrix.

    .. math:: x W \quad\text{becomes}\quad x W + \frac{\alpha}{r}\,(x A)\,B

    with A of shape (p, r) and B of shape (r, q) for a layer of p features and q outputs. ``weights_`` names them
    ``W.lora_A`` and ``W.lora_B``. As in peft, A is initialised uniformly in :math:`\pm 1/\sqrt{p}`, drawn by
    ``random_state``, and B is initialised to zero, so that training starts from the predictions of the model. All other
    weights stay unchanged.

    Parameters
    ----------
    rank : int, default 8
        r.
    alpha : float, default 16
        :math:`\alpha`.
    weights : str or sequence of str
        The weight matrices that get factors, in the form of ``weights_to_train``: names, patterns, steps, a leading
        minus to exclude. ``"*"``: every matrix that would be trained by default. Only a matrix by which a MatMul or a
        Gemm multiplies rows, and which no other node uses, can get factors.
    besides : str or sequence of str, optional
        Weights that are trained themselves, without factors, in the same form; ``"head"`` is the last layer. None: the
        new layer if ``head="new"``, else none.
    merge : bool
        How the model is exported to ONNX. True: with :math:`W + \frac{\alpha}{r} A B` in place of W. False: with the
        factors as separate weights. The parameter may be changed after ``fit``. ``to_sklearn`` always merges.

    Notes
    -----
    As in peft, ``l1``, ``l2`` and the weight decay of AdamW apply to the factors, not to their product.

    References
    ----------
    Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022.

    Examples
    --------
    The hidden layer of 64 by 32 weights is adapted by factors of 2 (64 + 32) weights:

    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neural_network import MLPClassifier
    >>> from onnxtrain import LoRA, OrtGradientClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> mlp = MLPClassifier((32,), tol=0.1, random_state=0).fit(X / 16, y)
    >>> adapted = OrtGradientClassifier(
    ...     mlp, weights_to_train=LoRA(rank=2, weights="*coefs_0"), max_iter=5, random_state=0
    ... ).fit(X / 16, y)
    >>> {name: w.shape for name, w in adapted.weights_.items()}
    {'coefs_0.lora_A': (64, 2), 'coefs_0.lora_B': (2, 32)}
    >>> int(np.linalg.matrix_rank(adapted.to_sklearn().coefs_[0] - mlp.coefs_[0], tol=1e-5))
    2
    """

    def __init__(
        self,
        rank: int = 8,
        alpha: float = 16,
        weights: str | Sequence[str] = "*",
        *,
        besides: str | Sequence[str] | None = None,
        merge: bool = True,
    ):
        self.rank = rank
        self.alpha = alpha
        self.weights = weights
        self.besides = besides
        self.merge = merge


def adapted(
    model: TrainableModel, lora: LoRA, *, head: bool, random_state: np.random.RandomState
) -> tuple[TrainableModel, dict[str, np.ndarray]]:
    """Return a model with low-rank factors, and the initial values of all weights that are trained.

    `head` says that the last layer is new; it is trained unless ``lora.besides`` names other weights.

    Raises
    ------
    WeightError
        A name or pattern of ``lora.weights`` or ``lora.besides`` matches no eligible weight.
    """
    proto = model.graph()
    besides = _besides(model, "head" if lora.besides is None and head else lora.besides)
    known = matrices(graph.reload(proto))
    chosen = _chosen(model, lora, [name for name in model.weights if name in known and name not in besides])
    names = {w.name for w in proto.graph.initializer}
    _warn_of_rank(lora, [max(w.dims) for w in proto.graph.initializer if w.name in chosen])
    factors, drawn = [], {}
    initializers = {w.name: w for w in proto.graph.initializer}
    for weight in chosen:
        turned, w = known[weight][0][1], initializers[weight]
        p, q = reversed(w.dims) if turned else w.dims
        dtype = onnx.helper.tensor_dtype_to_np_dtype(w.data_type)
        a, b = (graph.unique_name(f"{weight}.lora_{which}", names) for which in "AB")
        factors.append(LowRank(weight, a, b, float(lora.alpha / lora.rank), turned))
        drawn[a] = (random_state.uniform(-1, 1, (p, lora.rank)) / math.sqrt(p)).astype(dtype)
        drawn[b] = np.zeros((lora.rank, q), dtype)
    # the model holds zeros for both factors, so that fits with different seeds share the cached graphs
    found = with_factors(proto, factors, {name: np.zeros_like(w) for name, w in drawn.items()})
    if found is None:
        raise ModelError(f"The model already has values with the names of the LoRA factors: {', '.join(drawn)}.")
    changed = replace(
        model.with_graph(found),
        weights=(*model.weights, *drawn),
        default=(*drawn, *besides),
        penalized=(*model.penalized, *drawn),
        low_rank=tuple(factors),
    )
    return changed, drawn | initial_weights(proto, besides)


def _warn_of_rank(lora: LoRA, sizes: Sequence[int]) -> None:
    """Warn of a rank above all dimensions of the matrices, so that their factors have more values than they have."""
    if lora.rank > max(sizes):
        warn(
            f"LoRA(rank={lora.rank}) has a larger rank than any dimension of the matrices, at most {max(sizes)}, so "
            f"the factors have more values than the matrices. Set a small rank, such as {max(1, max(sizes) // 4)}; the "
            "scale is alpha / rank."
        )


def _besides(model: TrainableModel, wanted: str | Sequence[str] | None) -> list[str]:
    """Return the names of the weights that are trained themselves, without factors."""
    if wanted is None:
        return []
    if wanted == "head":
        wanted = head_weights(model.graph(), model.scores or model.output)
    kind = f"weight that the output {model.output!r} depends on"
    return select_weights(model.weights, wanted, kind, of=model.default)


def _of_quantized(model: TrainableModel) -> str:
    """Return why quantized weights get no factors, as part of a message: merging would quantize them again."""
    if not any(node.op_type == "DequantizeLinear" for node in model.graph().graph.node):
        return ""
    return " except the quantized ones, which get no factors and are trained directly by default"


def _chosen(model: TrainableModel, lora: LoRA, names: Sequence[str]) -> list[str]:
    """Return the eligible matrices that get factors."""
    default = [name for name in names if name in model.default]
    if not names or (lora.weights == "*" and not default):
        raise WeightError(
            "LoRA needs weight matrices by which a MatMul or Gemm multiplies rows, but the model has none that can be "
            f"trained{_of_quantized(model)}. Train weights directly: leave out weights_to_train, or set it to names "
            "from onnxtrain.trainable_weights."
        )
    if isinstance(lora.weights, str) and lora.weights == "*":
        return default
    kind = "weight matrix for LoRA (used only by a MatMul or Gemm, which multiplies rows by it)"
    return select_weights(names, lora.weights, kind, of=default)
