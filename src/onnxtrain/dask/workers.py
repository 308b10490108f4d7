"""Tasks on a cluster: submission, waiting with a time limit, and resubmission if workers were lost."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple

from distributed import Client, Future, KilledWorker, get_client, wait
from distributed.comm import CommClosedError

from onnxtrain.errors import ClusterError, ParameterError
from onnxtrain.training.state import Weights

#: Seconds between two checks of the workers.
_LOOK = 2.0

#: Seconds before lost tasks are submitted again, four times as many for each further attempt; until the scheduler
#: notices, it still sends data to a lost worker.
_PAUSE = 0.1

#: From this size in bytes, weights are sent separately, not within each task.
_LARGE = 2**16

#: The remedy for a cluster without workers.
_NO_WORKERS = (
    " Start some, for example with cluster.scale(2). A worker that lacks onnxtrain ends at its first task, with "
    "ModuleNotFoundError in its log. Start it in the environment of the client."
)

#: The exceptions raised if a lost worker held data that Dask cannot recompute: data that was sent to it.
_LOST = (KilledWorker, CancelledError, CommClosedError)


class Place(NamedTuple):
    """A thread of a worker: an index, and the address of the worker, empty for any worker."""

    number: int
    address: str


@dataclass(frozen=True)
class Workers:
    """The workers of a client.

    Dask itself recomputes the results that a lost worker held from their tasks. Data that was sent to the worker is
    lost with it; then the tasks are submitted again, up to `max_failures` times.

    Attributes
    ----------
    client : distributed.Client
    max_failures : int
    timeout : float
        The number of seconds in which a task must end, or the scheduler must hear of a worker that has a task. The task
        of a worker that responds may take longer.
    """

    client: Client
    max_failures: int
    timeout: float

    @classmethod
    def of(cls, client: Client | None, max_failures: int, timeout: float) -> Workers:
        """Return the workers of a client; None is the current client.

        Raises
        ------
        ParameterError
            There is no client, the argument is not a client, or a limit is not positive.
        """
        try:
            client = get_client() if client is None else client
        except ValueError as e:
            raise ParameterError(
                "There is no cluster. Create a client first, distributed.Client(...), which is then found, or pass it "
                "as client=."
            ) from e
        if not isinstance(client, Client) or client.asynchronous:
            raise ParameterError(
                f"client must be a distributed.Client(...) created without asynchronous=True, got {client!r}."
                f"{_as_client(client)}"
            )
        if client.status != "running":
            raise ParameterError(f"The client is {client.status}. Create a new one, distributed.Client(...).")
        if not isinstance(max_failures, Integral) or max_failures < 0:
            raise ParameterError(f"max_failures must be a non-negative integer, got {max_failures!r}.")
        if not isinstance(timeout, Real) or not 0 < timeout < math.inf:
            raise ParameterError(f"timeout must be a finite number of seconds above 0, got {timeout!r}.")
        return cls(client, max_failures, timeout)

    @property
    def threads(self) -> dict[str, int]:
        """The number of threads of each worker, by address."""
        return dict(self._asked("ncores"))

    def submit(self, function: Callable[..., Any], parts: Sequence[Any], *args: Any) -> list[Future]:
        """Start ``function(part, *args)`` for each part."""
        return [self.client.submit(function, part, *args, pure=False) for part in parts]

    def start(self, place: Place, function: Callable[..., Any], *args: Any) -> Future:
        """Start ``function(*args)`` at a place, or elsewhere if that worker is lost."""
        at = [place.address] if place.address else None
        return self.client.submit(function, *args, pure=False, workers=at, allow_other_workers=True)

    def places(self, parts: Sequence[Future]) -> list[Place]:
        """Return a place for each part; neighbours share a place, on a worker that already holds most of them."""
        free = self.threads
        n_places = min(sum(free.values()), len(parts)) or 1
        of_part = [i * n_places // len(parts) for i in range(len(parts))]
        holders, found = self._asked("who_has", keys=[part.key for part in parts]), []
        for number in range(n_places):
            near = Counter(a for i, part in enumerate(parts) if of_part[i] == number for a in holders.get(part.key, ()))
            address = max(free, key=lambda a: (free[a] > 0, near[a], free[a]), default="")
            free[address] = free.get(address, 0) - 1
            found.append(Place(number, address))
        return [found[number] for number in of_part]

    def send(self, weights: Weights) -> Weights | Future:
        """Return weights as an argument of several tasks; large weights are sent once, separately."""
        if sum(w.nbytes for w in weights.values()) < _LARGE:
            return dict(weights)
        # a list, because the keys of a dictionary would become task keys, which another fit may use as well
        scatter = partial(self.client.scatter, [dict(weights)], hash=False, timeout=self.timeout)
        (sent,) = self._within_limit(scatter)
        return sent

    def results(self, submit: Callable[[], Sequence[Future]], needed: Sequence[Future] = ()) -> list[Any]:
        """Return the results of the tasks that `submit` starts.

        Parameters
        ----------
        submit : callable
            Starts the tasks; it is called again after a failure.
        needed : sequence of Future
            The futures that the tasks need; they are recomputed if they were lost.

        Raises
        ------
        ClusterError
            The tasks were lost more than `max_failures` times, or the workers did not respond in time.
        """
        for n_failures in range(self.max_failures + 1):
            self._check_open()
            futures: Sequence[Future] = ()
            try:
                if n_failures:
                    time.sleep(min(_PAUSE * 4 ** (n_failures - 1), _LOOK))
                    self._within_limit(partial(self.client.retry, [f for f in needed if f.status == "error"]))
                futures = submit()
                self.wait(futures)
                return self._within_limit(partial(self.client.gather, list(futures)))
            except _LOST as e:
                lost = e
            except ImportError as e:
                raise ClusterError(
                    f"A worker cannot import a module: {e}. Install it on each worker, for example with "
                    "client.register_plugin(distributed.PipInstall([name])), or start the workers in the environment "
                    "of the client."
                ) from e
            finally:
                # also after Ctrl-C: waiting and running tasks are no longer needed
                if self.client.status == "running":
                    self.client.cancel([f for f in futures if not f.done()])
        raise ClusterError(
            f"Tasks were lost with their workers {self.max_failures + 1} times, more than max_failures="
            f"{self.max_failures}: {lost!r}. See the logs of the workers for why they ended; too little memory is a "
            "common reason. Cancelled rows are lost as well, and so are all rows after client.restart(). Create them "
            "anew and fit again; with checkpoint= and resume=True, the fit continues."
        ) from lost

    def _check_open(self) -> None:
        if self.client.status != "running":
            raise ClusterError(
                f"The client is {self.client.status} before its tasks are done: it was closed, or its scheduler ended. "
                "With checkpoint=, continue the fit with resume=True and a new client."
            )

    def wait(self, futures: Sequence[Future]) -> None:
        """Wait until all tasks have ended, checking the workers meanwhile.

        Raises
        ------
        ClusterError
            The workers did not respond for `timeout` seconds.
        """
        n_done, heard, alive = -1, dict[str, float](), time.monotonic()
        while True:
            try:
                with self.client.as_current():  # wait() has no argument for the client
                    wait(list(futures), timeout=_LOOK)
                return
            except TimeoutError:
                done, latest = sum(f.done() for f in futures), self._heard()
            if done > n_done or any(when > heard.get(address, 0.0) for address, when in latest.items()):
                alive = time.monotonic()
            n_done, heard = done, latest
            if time.monotonic() - alive > self.timeout:
                raise self._no_sign_of_life(f"{len(futures) - done} of {len(futures)} tasks", latest)

    def _heard(self) -> dict[str, float]:
        """Return when the scheduler last heard of each worker that has a task to run, by the scheduler's clock."""
        workers = self._asked("identity", n_workers=-1)["workers"]
        busy = self._asked("processing").items()
        return {address: workers[address]["last_seen"] for address, tasks in busy if tasks and address in workers}

    def _asked(self, question: str, **arguments: Any) -> Any:
        """Return an answer of the scheduler within the limit; the client itself would wait for a frozen one forever."""
        try:
            return self.client.sync(
                getattr(self.client.scheduler, question), **arguments, callback_timeout=self.timeout
            )
        except TimeoutError as e:
            raise ClusterError(
                f"No response from the scheduler within timeout={self.timeout:g} seconds. It may be stopped, swapping, "
                "or cut off from the network."
            ) from e

    def _within_limit(self, transfer: Callable[..., Any]) -> Any:
        """Return the result of a client method that moves data, within the limit; a frozen worker never ends it."""
        begin = time.monotonic()
        try:
            return self.client.sync(partial(transfer, asynchronous=True), callback_timeout=self.timeout)
        except TimeoutError as e:
            if time.monotonic() - begin < self.timeout:  # the task's own TimeoutError, for example from reading a file
                raise
            raise self._no_sign_of_life("the transfer of weights or results", self.threads) from e

    def _no_sign_of_life(self, subject: str, silent: Iterable[str]) -> ClusterError:
        names = ", ".join(sorted(silent))
        return ClusterError(
            f"No response from {subject} within timeout={self.timeout:g} seconds. The scheduler knows "
            f"{len(self.threads)} workers"
            + (f" and waits for {names}, which may be stopped, swapping or cut off from the network." if names else ".")
            + ("" if self.threads else _NO_WORKERS)
        )


def _as_client(given: object) -> str:
    """Return the remedy for an address, a cluster or a class that is passed in place of a client."""
    if given is Client or given is True:
        return " Pass client=distributed.Client(), which starts a cluster of this machine."
    if isinstance(given, str):
        return f" Pass client=distributed.Client({given!r})."
    return " Pass client=distributed.Client(cluster)." if hasattr(given, "scheduler_address") else ""
