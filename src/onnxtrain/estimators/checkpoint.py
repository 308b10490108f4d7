"""Checkpoints: files of the state of a fit, from which a killed fit resumes."""

from __future__ import annotations

import copy
import difflib
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np

from onnxtrain import graph
from onnxtrain.errors import DataError, FileError, ParameterError, unquoted, warn
from onnxtrain.estimators.file_format import Encoder, may_be_replaced, remove_parts
from onnxtrain.estimators.protocols import is_fitted, is_onnx
from onnxtrain.estimators.reports import is_part_of_more, no_progress
from onnxtrain.estimators.saving import Kept, encode_parameters, write_estimator
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.training.data import HasFingerprint
from onnxtrain.training.model import learned_constants
from onnxtrain.training.state import EpochInfo, Listener, TrainingState

#: Parameters that may differ in a resumed fit, because they change its length or device but not its trajectory.
_FREE = frozenset({"max_iter", "verbose", "device", "n_threads", "random_state"})

#: Parameters of the given estimator that do not change what its fit learns.
_FREE_INSIDE = frozenset({"verbose", "n_jobs", "memory"})

#: The address in the representation of an object, such as a random generator; it differs between processes.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+", re.IGNORECASE)

#: The similarity of two names that probably mean the same file, and what names of a series differ in.
_SIMILAR, _DIGITS = 0.8, re.compile(r"\d+")

#: The remedy for a checkpoint of another fit.
_REMEDY = "Pass another path, or start over with resume=False, which replaces the file."


class Checkpoint:
    """The checkpoint file of a fit; does nothing if `path` is None.

    A resumed fit repeats the random draws before the first epoch, from the
    same state of the generator.

    Parameters
    ----------
    estimator : OrtGradientRegressor or OrtGradientClassifier
    path : path or None
    every : int
        The number of epochs between two writings.
    resume : bool
        Continue from the file if it exists.
    """

    def __init__(self, estimator: Any, path: str | os.PathLike | None, every: int, resume: bool):
        self._estimator, self.path, self.every = estimator, path, every
        self._kept: Kept | None = None
        self._moments: dict[str, Any] = {}
        self._failed: FileError | None = None
        if not isinstance(resume, (bool, np.bool_)):
            raise ParameterError(f"resume must be True or False, got {resume!r:.80}. Pass the file as checkpoint=...")
        if path is None:
            if resume:
                raise ParameterError("resume=True continues from a file. Pass its path as checkpoint=...")
            if every != 1:
                raise ParameterError(
                    f"every={every!r} is the number of epochs between two writings of a checkpoint, but got no file. "
                    "Pass its path as checkpoint=..., or leave every out."
                )
            return
        _check(estimator, path, every)
        if is_part_of_more("sklearn.model_selection"):
            raise ParameterError(
                f"checkpoint={os.fspath(path)!r:.200} would be one file for all fits of a search or cross-validation. "
                "Leave it out, and pass it to a fit with the best parameters: search.best_estimator_.fit(X, y, "
                "checkpoint=...)."
            )
        self._params = encode_parameters(estimator, Encoder(functions=True))
        self._moments["estimator"] = _described(estimator.estimator)
        if resume:
            remove_parts(path)
            self._kept = Kept(path) if os.path.exists(path) else None
            if self._kept is None:
                _warn_of_similar(path)
        if self._kept is not None:
            _check_same_fit(path, type(estimator).__name__, self._params, self._moments["estimator"], self._kept)

    def rng_at(self, moment: str, random_state: np.random.RandomState) -> np.random.RandomState:
        """Return the random generator as it was at a point of the killed fit, or as it is now if there was none."""
        if self._kept is not None:
            random_state = self._kept.more[moment]
        if self.path is not None:
            self._moments[moment] = copy.deepcopy(random_state)
        return random_state

    def restored(
        self, model: TrainedModel, data: HasFingerprint, validation: HasFingerprint | None
    ) -> tuple[TrainedModel, TrainingState, np.random.RandomState] | None:
        """Return the model, state and generator of the killed fit, or None if there was none.

        Raises
        ------
        DataError
            The killed fit had other rows or another model.
        """
        if self.path is None:
            return None
        held_out = "none" if validation is None else validation.fingerprint()
        self._moments["rows"] = f"{data.fingerprint()} {held_out}"
        self._moments["weights"] = self._digests(model)
        if self._kept is None:
            return None
        kept = self._kept
        if kept.more["rows"] != self._moments["rows"]:
            raise DataError(
                f"The checkpoint {os.fspath(self.path)!r} is of other rows or of other sample weights. {_REMEDY} To "
                "resume, pass the rows of that fit; train_test_split(..., random_state=0) draws the same again. The "
                "fits of a search or a cross-validation have other rows, so leave checkpoint out there."
            )
        if _shapes(kept.state.weights) != _shapes(model.weights):
            raise DataError(f"The checkpoint {os.fspath(self.path)!r} is of a model with other weights. {_REMEDY}")
        self._check_same_start(self.path, kept.more["weights"])
        self._warn_of_no_epoch(self.path, kept.state)
        constants = learned_constants(kept.model, tuple(model.weights))
        model = replace(model, source=replace(model.source, model=kept.model), constants=constants)
        return model, kept.state, kept.attributes["_random_state"]

    def _warn_of_no_epoch(self, path: str | os.PathLike, state: TrainingState) -> None:
        """Warn if no epoch is left to train after those of the checkpoint."""
        done, most = state.epoch - state.first_epoch, self._estimator.max_iter
        found = f"The checkpoint {os.fspath(path)!r}"
        if state.stopped:
            patience = self._estimator.n_iter_no_change
            stalled = state.bad_epochs > patience
            reason = no_progress(state, self._estimator.tol) if stalled else "a callback asked for it"
            longer = f", n_iter_no_change={2 * patience}" if stalled else ""
            warn(
                f"{found} is of a fit that stopped after {done} epochs, because {reason}, so none was trained. To "
                f"train further: onnxtrain.load({os.fspath(path)!r}).set_params(warm_start=True{longer}).fit(X, y)."
            )
        elif done == most:
            epochs = f"all {done} epochs" if done > 1 else "the one epoch"
            warn(
                f"{found} already has {epochs} of max_iter={most}, so none was trained. Raise max_iter to train "
                "further; it counts the epochs of the checkpoint."
            )
        elif done > most:
            warn(
                f"{found} has {done} epochs, more than max_iter={most}, so no epoch is run and its weights are kept. "
                "Set max_iter to a larger number to continue, or start over with resume=False, which replaces the file."
            )

    def _digests(self, model: TrainedModel) -> dict[str, str]:
        """Return a digest of each learned value at the start; empty if the start differs between two calls."""
        given = self._estimator.estimator
        if self._estimator.warm_start or not (is_onnx(given) or (given is not None and is_fitted(given))):
            return {}
        learned = {**model.weights, **model.constants}
        return {name: hashlib.sha256(np.ascontiguousarray(w)).hexdigest() for name, w in learned.items()}

    def _check_same_start(self, path: str | os.PathLike, killed: Mapping[str, str]) -> None:
        """Raise a DataError if the killed fit began with other values than this one."""
        now = self._moments["weights"]
        others = [name for name, digest in now.items() if killed.get(name, digest) != digest]
        if others:
            raise DataError(
                f"The checkpoint {os.fspath(path)!r} is of a fit that started from other values of "
                f"{', '.join(others[:3])}{', ...' if len(others) > 3 else ''}: the estimator or the ONNX file that was "
                f"given is another one, or has been trained since. {_REMEDY}"
            )

    def listeners(self, model: TrainedModel, state: TrainingState) -> list[Listener]:
        """Return the listener that writes this model and state, if a path was given."""
        return [] if self.path is None else [partial(self._after_epoch, self.path, model, state)]

    def _after_epoch(self, path: str | os.PathLike, model: TrainedModel, state: TrainingState, info: EpochInfo) -> bool:
        """Write the file if it is due; return False, because a checkpoint never stops training."""
        done = info.epoch - state.first_epoch
        due = state.stopped or done == self._estimator.max_iter or done % self.every == 0
        if due:
            self._write(path, model, state)
        return False

    def _write(self, path: str | os.PathLike, model: TrainedModel, state: TrainingState) -> None:
        try:
            write_estimator(path, self._estimator, model, state, functions=True, more=self._moments)
            self._failed = None
        except FileError as e:
            if self._failed is None:
                warn(f"{e} Training continues; the file is unchanged.")
            self._failed = e

    def check_written(self) -> None:
        """Raise a FileError if the last writing failed."""
        if self._failed is not None:
            raise FileError(
                f"{self._failed} The checkpoint is older than the estimator, or missing. The estimator is fitted. "
                "Save it elsewhere."
            ) from self._failed


def _check(estimator: Any, path: Any, every: Any) -> None:
    """Check the arguments of ``fit`` that concern the checkpoint."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "\0" in os.fsdecode(path):
        raise ParameterError(f"checkpoint must be the path of a file, such as 'fit.onnx', got {path!r:.80}.")
    if fields := re.findall(r"\{[a-z_]+(?::[^{}]*)?\}", os.fsdecode(path)):
        raise ParameterError(
            f"checkpoint={os.fspath(path)!r} is the name of one file, in which {fields[0]} is not replaced. The file "
            "holds the last state, and is written again after each epoch. Pass a name such as 'fit.onnx'."
        )
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise ParameterError(f"The folder of the checkpoint {os.fspath(path)!r} does not exist.{graph.in_folder(path)}")
    if os.path.isdir(path):
        raise ParameterError(
            f"checkpoint must be the path of a file, but {os.fspath(path)!r} is a folder. Pass "
            f"checkpoint={os.path.join(os.fspath(path), 'fit.onnx')!r}."
        )
    try:
        free = may_be_replaced(path)
    except OSError as e:  # its name is too long, or it may not be read
        raise ParameterError(f"checkpoint={os.fspath(path)!r} cannot be used: {e.strerror}. Pass another path.") from e
    if not free:
        raise ParameterError(
            f"The file {os.fspath(path)!r} exists and is not a checkpoint, so it is not overwritten. Pass another path "
            "as checkpoint=..., or remove the file."
        )
    if not isinstance(every, Integral) or isinstance(every, bool) or every < 1:
        raise ParameterError(
            f"every must be an integer, 1 or more, got {every!r}. It is a number of epochs.{unquoted(every)}"
        )
    if estimator.solver == "lbfgs":
        raise ParameterError("checkpoint is not available with solver='lbfgs'. Use a solver that takes steps.")


def _described(model: Any) -> dict[str, str]:
    """Return the class of the given model, as "", and the parameters of an unfitted estimator, as text.

    The values that a fitted estimator or an ONNX model starts from are compared instead.
    """
    if is_onnx(model) or model is None or is_fitted(model):
        return {"": "an ONNX model" if is_onnx(model) else _text(model) + " (fitted)" * (model is not None)}
    params = model.get_params() if hasattr(model, "get_params") else {}
    free = {name for name in params if name.rpartition("__")[2] in _FREE_INSIDE}
    return {"": _text(model), **{name: _text(params[name]) for name in sorted(params.keys() - free)}}


def _text(value: Any) -> str:
    """Return the class of an estimator, whose parameters have names of their own, or another value, as text."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_text, value))}]"
    if hasattr(value, "get_params"):
        return (value if isinstance(value, type) else type(value)).__name__
    if callable(value) and not isinstance(value, type):
        return str(Encoder(functions=True).encode(value, "a function"))
    return _ADDRESS.sub("", repr(value))


def _other_values(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Describe the differences of two models; lists of steps only if there is no other difference."""
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    both = [name for name in names if name in before and name in now]
    values = [name for name in both if not now[name].startswith("[")]
    shown = [""] if "" in both else values or both or names
    changes = [
        f"{name}{': ' if name else ''}{before.get(name, 'none'):.80}, now {now.get(name, 'none'):.80}" for name in shown
    ]
    return f"estimator ({'; '.join(changes[:3])}{'; ...' if len(changes) > 3 else ''})"


def _check_same_fit(
    path: str | os.PathLike, name: str, params: dict[str, Any], model: dict[str, str], kept: Kept
) -> None:
    found = f"The checkpoint {os.fspath(path)!r}"
    if not {"start", "split", "rows", "weights", "estimator"} <= kept.more.keys():
        raise ParameterError(
            f"{found} was written by onnxtrain.save, and not by a fit. Continue from it with "
            f"onnxtrain.load({os.fspath(path)!r}).set_params(warm_start=True).fit(X, y)."
        )
    if kept.kind != name:
        raise ParameterError(f"{found} is of a fit of {kept.kind}, and not of {name}. {_REMEDY}")
    others = [key for key in params if key not in _FREE and params[key] != kept.params.get(key)]
    if model != kept.more["estimator"]:
        others.append(_other_values(kept.more["estimator"], model))
    if others:
        raise ParameterError(
            f"{found} was written with other values of {', '.join(others)}. Restore these parameters, or start over "
            "with resume=False."
        )


def _warn_of_similar(path: str | os.PathLike) -> None:
    """Warn of a file with nearly the same name if there is none to resume from; names of a series differ in digits."""
    folder, name = os.path.split(os.path.abspath(path))
    others = [other for other in os.listdir(folder) if _DIGITS.sub("", other) != _DIGITS.sub("", name)]
    near = difflib.get_close_matches(name, others, n=1, cutoff=_SIMILAR)
    if near and may_be_replaced(os.path.join(folder, near[0])):
        warn(
            f"There is no checkpoint {os.fspath(path)!r} to resume from, so the fit starts from the beginning. The "
            f"folder has {near[0]!r}; if you mean that file, stop the fit and pass it as checkpoint=..."
        )


def _shapes(weights: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: w.shape for name, w in weights.items()}
