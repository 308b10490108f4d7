"""Tasks on a cluster: submitted, waited for with a limit, and submitted again where workers were lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, NamedTuple

from distributed import Client, Future, KilledWorker, get_client, wait
from distributed.comm import CommClosedError

from onnxtrain.errors import ClusterError, ParameterError
from onnxtrain.training.state import Weights

#: Seconds between two looks at the workers.
_LOOK = 2.0

#: Bytes of weights that are not part of each task.
_LARGE = 2**16

#: What is raised where a worker was lost together with results that Dask cannot compute again by itself: sent data.
_LOST = (KilledWorker, CancelledError, CommClosedError)


class Place(NamedTuple):
    """A thread of a worker: a number, and the address of the worker, empty for any."""

    number: int
    address: str


@dataclass(frozen=True)
class Workers:
    """The workers of a client.

    Dask computes again by itself what a lost worker held, from the tasks that it follows from. What a task is sent is
    lost with its worker: then the tasks are submitted again, up to `max_failures` times.

    Attributes
    ----------
    client : distributed.Client
    max_failures : int
    timeout : float
        Seconds without a sign of life: no task ends, and none runs on a worker that the scheduler hears of.
    """

    client: Client
    max_failures: int
    timeout: float

    @classmethod
    def of(cls, client: Client | None, max_failures: int, timeout: float) -> Workers:
        """Return the workers of a client, of the current one for None."""
        try:
            return cls(get_client() if client is None else client, max_failures, timeout)
        except ValueError as e:
            raise ParameterError(
                "There is no cluster: make a client first, distributed.Client(...), which is then found; or give it as "
                "client=."
            ) from e

    @property
    def threads(self) -> dict[str, int]:
        """The number of threads of each worker by its address."""
        return dict(self.client.nthreads())

    def submit(self, function: Callable[..., Any], parts: Sequence[Any], *args: Any) -> list[Future]:
        """Start ``function(part, *args)`` for each part."""
        return [self.client.submit(function, part, *args, pure=False) for part in parts]

    def start(self, place: Place, function: Callable[..., Any], *args: Any) -> Future:
        """Start ``function(*args)`` at a place, elsewhere if that worker is lost."""
        at = [place.address] if place.address else None
        return self.client.submit(function, *args, pure=False, workers=at, allow_other_workers=True)

    def places(self, parts: Sequence[Future]) -> list[Place]:
        """Return a place for each part: neighbours have the same, on a worker that holds most of them already."""
        free = self.threads
        n_places = min(sum(free.values()), len(parts)) or 1
        of_part = [i * n_places // len(parts) for i in range(len(parts))]
        holders, found = self.client.who_has(list(parts)), []
        for number in range(n_places):
            near = Counter(a for i, part in enumerate(parts) if of_part[i] == number for a in holders.get(part.key, ()))
            address = max(free, key=lambda a: (free[a] > 0, near[a], free[a]), default="")
            free[address] = free.get(address, 0) - 1
            found.append(Place(number, address))
        return [found[number] for number in of_part]

    def send(self, weights: Weights) -> Weights | Future:
        """Return weights as an argument of several tasks: large ones travel once, beside the tasks."""
        if sum(w.nbytes for w in weights.values()) < _LARGE:
            return dict(weights)
        return self.client.scatter(dict(weights), hash=False)

    def results(self, submit: Callable[[], Sequence[Future]], needed: Sequence[Future] = ()) -> list[Any]:
        """Return the results of the tasks that `submit` starts.

        Parameters
        ----------
        submit : callable
            Called again after a failure.
        needed : sequence of Future
            What the tasks need, and is computed again if it was lost for good.

        Raises
        ------
        ClusterError
            The tasks were lost more than `max_failures` times, or there was no sign of life.
        """
        for _ in range(self.max_failures + 1):
            futures: Sequence[Future] = ()
            try:
                futures = submit()
                self.wait(futures)
                return self.client.gather(list(futures))
            except _LOST as e:
                lost = e
            finally:
                # also after Ctrl-C: what still waits or runs is of no use to anybody
                self.client.cancel([f for f in futures if not f.done()])
            self.client.retry([f for f in needed if f.status == "error"])
        raise ClusterError(
            f"Tasks were lost {self.max_failures + 1} times with their workers, max_failures={self.max_failures}: "
            f"{lost!r}. The logs of the workers say why they ended; too little memory is a usual reason."
        ) from lost

    def wait(self, futures: Sequence[Future]) -> None:
        """Wait until all tasks have ended, looking at the workers.

        Raises
        ------
        ClusterError
            There was no sign of life for `timeout` seconds.
        """
        n_done, alive = -1, time.monotonic()
        while True:
            try:
                with self.client.as_current():  # wait has no argument for it
                    wait(list(futures), timeout=_LOOK)
                return
            except TimeoutError:
                done = sum(f.done() for f in futures)
            if done > n_done or self._computes():
                n_done, alive = done, time.monotonic()
            if time.monotonic() - alive > self.timeout:
                raise ClusterError(
                    f"{len(futures) - done} of {len(futures)} tasks show no sign of life after {self.timeout:g} "
                    f"seconds, the limit timeout=; the scheduler knows {len(self.threads)} workers."
                )

    def _computes(self) -> bool:
        """Whether a worker that the scheduler hears of has a task to run."""
        heard = self.client.scheduler_info(n_workers=-1)["workers"]
        now = max((w["last_seen"] for w in heard.values()), default=0.0)
        return any(
            tasks and address in heard and now - heard[address]["last_seen"] < self.timeout
            for address, tasks in self.client.processing().items()
        )
