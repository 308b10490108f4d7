"""Compare fits and steps on a CUDA device with PyTorch on the same device, and with onnxtrain on the CPU."""

from __future__ import annotations

from functools import partial

from _harness import OURS, Missing, Options, case, environment, need, options
from _networks import Problem, onnxtrain, pytorch
from mlp import steps_alone, whole_fit

PROBLEMS = [
    Problem((10, 100, 1), 4000, 200),
    Problem((784, 256, 128, 10), 10_000, 200, classifies=True),
    Problem((784, 1024, 1024, 10), 20_480, 1024, classifies=True),
    Problem((784, 4096, 4096, 10), 20_480, 1024, classifies=True),
]


def check_device() -> None:
    """Raise Missing if onnxruntime cannot use a GPU."""
    need("onnxruntime")
    from onnxtrain.errors import DeviceError
    from onnxtrain.runtime.device import find_device

    try:
        find_device("cuda")
    except DeviceError as e:
        raise Missing(str(e)) from e


def pytorch_on_cuda(problem: Problem):
    """Fit with PyTorch on the same device."""
    need("torch")
    import torch

    if not torch.cuda.is_available():
        raise Missing("this PyTorch has no CUDA")
    return pytorch(problem, device="cuda")


def main(given: Options) -> None:
    """Print the tables."""
    contenders = {
        OURS: partial(onnxtrain, device="cuda"),
        "onnxtrain, bfloat16": partial(onnxtrain, device="cuda", dtype="bfloat16"),
        "onnxtrain, CPU": onnxtrain,
        "PyTorch loop, fused, CUDA": pytorch_on_cuda,
    }
    for problem in PROBLEMS[: 2 if given.quick else None]:
        large = sum(problem.sizes) > 4000
        makers = {n: m for n, m in contenders.items() if not (large and n == "onnxtrain, CPU")}
        epochs = 3 if large else 5
        fits = {name: whole_fit(make, problem, epochs) for name, make in makers.items()}
        case(f"{problem.name}: fit, {epochs} epochs", fits, given)
        steps = {name: steps_alone(make, problem, epochs) for name, make in makers.items()}
        case(f"{problem.name}: one step", steps, given, unit="us", scale=1e6)


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    try:
        check_device()
    except Missing as e:
        print(f"Left out: {e}")
    else:
        main(found)
