"""Compare the size of the gradient graph and the time to derive it with onnx-ad and onnxruntime-training.

All contenders differentiate the same model with respect to the same values. onnx-ad can only differentiate with respect
to inputs, so the weights of its model are inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import onnx
from _harness import OURS, Missing, Options, Run, Wanted, case, environment, need, options, timed
from onnx.parser import parse_model
from training_build import has_training_build

#: onnxtrain has at most as many nodes as each other contender.
AS_LEAN = {"onnx-ad": Wanted(1.0), "onnxruntime-training": Wanted(1.0)}


def network(*widths: int, activation: str = "Relu") -> onnx.ModelProto:
    """Return a multilayer perceptron with squared error; its weights are inputs."""
    layers = list(itertools.pairwise(widths))
    weights = "".join(f", float[{a},{b}] W{i}, float[{b}] b{i}" for i, (a, b) in enumerate(layers))
    body, x = "", "X"
    for i in range(len(layers)):
        body += f" p{i} = MatMul({x}, W{i}) z{i} = Add(p{i}, b{i})"
        x = f"z{i}"
        if i < len(layers) - 1:
            body += f" a{i} = {activation}(z{i})"
            x = f"a{i}"
    return parse_model(f"""
        <ir_version: 8, opset_import: ["" : 18]>
        network (float[N,{widths[0]}] X, float[N,{widths[-1]}] label{weights}) => (float loss) {{
            {body} d = Sub({x}, label) s = Mul(d, d) loss = ReduceSum <keepdims = 0> (s) }}""")


def chain(length: int) -> onnx.ModelProto:
    """Return a chain with the given number of nodes."""
    body = "".join(f" x{i + 1} = {'Tanh' if i % 2 else 'Neg'}(x{i})" for i in range(length - 1))
    return parse_model(f"""
        <ir_version: 8, opset_import: ["" : 18]>
        chain (float[N,3] x0) => (float loss) {{ {body} loss = ReduceSum <keepdims = 0> (x{length - 1}) }}""")


def derived_by_us(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the gradient graph of onnxtrain."""
    from onnxtrain import DerivativeOptions, onnx_derivative

    return onnx_derivative(model, [], options=DerivativeOptions.Loss, loss="loss", label=_labels(model))


def derived_by_onnx_ad(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the gradient graph of onnx-ad."""
    from onnx_ad import reverse

    return reverse(model)


def derived_by_training_build(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the gradient graph of onnxruntime-training."""
    from onnxtrain import DerivativeOptions, onnx_derivative

    given = {"options": DerivativeOptions.Loss, "loss": "loss", "label": _labels(model)}
    return onnx_derivative(model, [], builder="onnxruntime-training", **given)


def _labels(model: onnx.ModelProto) -> list[str] | None:
    return ["label"] if any(i.name == "label" for i in model.graph.input) else None


def contender(
    derive: Callable[[onnx.ModelProto], onnx.ModelProto], model: onnx.ModelProto, measure: Callable, *needed: str
) -> Callable[[], Run]:
    """Return the maker of one contender, which is omitted if it is not installed or cannot derive the model."""

    def make() -> Run:
        need(*needed)
        if derive is derived_by_training_build and not has_training_build():
            raise Missing("this onnxruntime is not the training build")
        try:
            derive(model)
        except Exception as e:  # each contender raises other exceptions
            raise Missing(f"it refuses the model: {type(e).__name__}") from e
        return lambda: measure(lambda: derive(model))

    return make


def main(given: Options) -> None:
    """Print the numbers of nodes and the times."""
    models = {
        "10-100-1": network(10, 100, 1),
        "10-50-50-50-3, tanh": network(10, 50, 50, 50, 3, activation="Tanh"),
        "a chain of 500": chain(500),
        "a chain of 2,000": chain(2000),
    }
    if given.quick:
        del models["a chain of 2,000"]
    for title, model in models.items():
        for what, measure, unit, scale, targets in (
            ("nodes", lambda derive: len(derive().graph.node), "nodes", 1.0, AS_LEAN),
            ("time to derive", timed, "ms", 1e3, None),
        ):
            makers = {
                OURS: contender(derived_by_us, model, measure),
                "onnx-ad": contender(derived_by_onnx_ad, model, measure, "onnx_ad"),
                "onnxruntime-training": contender(derived_by_training_build, model, measure),
            }
            case(f"{title}: {what}", makers, given, unit=unit, scale=scale, targets=targets)


if __name__ == "__main__":
    print(environment())
    main(options(__doc__))
