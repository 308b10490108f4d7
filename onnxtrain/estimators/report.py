"""Progress reports of ``verbose``: a progress bar, or a line per epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onnxtrain.training.epoch import EpochInfo


@contextmanager
def reporter(verbose: int, n_epochs: int) -> Iterator[Callable[[EpochInfo], bool]]:
    """Yield a function to be called after each epoch; it returns whether to stop."""
    if not verbose:
        yield lambda info: False
    elif verbose == 1:
        from tqdm.auto import tqdm  # looks for a notebook when it is imported

        with tqdm(total=n_epochs, unit="epoch") as bar:

            def advance(info: EpochInfo) -> bool:
                bar.set_postfix_str(_losses(info), refresh=False)
                bar.update()
                return False

            yield advance
    else:
        yield _print_line


def _print_line(info: EpochInfo) -> bool:
    print(f"epoch {info.epoch}, {_losses(info)}, learning rate {info.learning_rate:.3g}, {info.time:.1f} s")
    return False


def _losses(info: EpochInfo) -> str:
    validation = "" if info.validation_loss is None else f", validation loss {info.validation_loss:.6g}"
    return f"loss {info.loss:.6g}{validation}"
