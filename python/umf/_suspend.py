"""Suspend and resume: memory goes, addresses stay."""

import threading
from typing import Generator, Iterable, NamedTuple, Optional, Tuple, Union, cast

from . import _core
from ._errors import Error
from ._memory import Pool


class Report(NamedTuple):
    """What a suspend or resume did; bytes over all its pools."""

    bytes: int
    """Physical memory given back, or brought back."""
    kept: int
    """Content that was kept, or brought back."""
    shared: int
    """Left as it was: memory of others lies in the same pieces."""
    exported: int
    """Memory whose handles other processes may hold."""
    missing: int
    """How much is missing after a resume that failed; else 0."""


_Pools = Union[Pool, Iterable[Pool]]
_Args = Tuple[Tuple[int, ...], Tuple[int, ...], Tuple[int, ...]]


def _listed(pools: _Pools) -> Tuple[Pool, ...]:
    return (pools,) if isinstance(pools, Pool) else tuple(pools)


def _arguments(pools: Tuple[Pool, ...], queues: Iterable[int], events: Iterable[int]) -> _Args:
    return tuple(pool.handle for pool in pools), tuple(queues), tuple(events)


def suspend(pools: _Pools, queues: Iterable[int] = (), events: Iterable[int] = ()) -> Report:
    """Gives the physical memory of pools back, of all or of none.

    Args:
        pools: one pool or several. What becomes of the content: ``Pool.set_policy``.
        queues: addresses of native queues (``stream.cuda_stream``) whose work is waited for.
        events: addresses of native events that are waited for. Without queues and events all work
            of the devices is waited for.

    Raises:
        NotSupportedError: a pool cannot be suspended: its provider has no virtual memory.
        OutOfResourcesError: a view of its memory or ``forbid_suspend`` forbids it, or another call
            is at work.
        OutOfMemoryError: there is no room for the content.

    On failure every pool is as before. Runs without the GIL.
    """
    listed = _listed(pools)
    return Report(*_core.move(*_arguments(listed, queues, events), False))


def resume(pools: _Pools, queues: Iterable[int] = (), events: Iterable[int] = ()) -> Report:
    """Brings the memory of pools back: same addresses, same content; of all or of none.

    Arguments as for ``suspend``.

    Raises:
        OutOfMemoryError: ``missing`` bytes are missing. Every pool stays suspended, with its
            content kept: try again.
        Error: as for ``suspend``.

    Runs without the GIL.
    """
    listed = _listed(pools)
    return Report(*_core.move(*_arguments(listed, queues, events), True))


class Job(_core.Job):
    """A suspend or resume in the background: ``await job``, or ``job.wait()``."""

    _lock: threading.Lock
    _outcome: Union[Report, Error, None]

    def __new__(
        cls, pools: _Pools, queues: Iterable[int], events: Iterable[int], is_resume: bool
    ) -> "Job":
        listed = _listed(pools)
        made = cast("Job", super().__new__(cls, *_arguments(listed, queues, events), is_resume, listed))
        made._lock = threading.Lock()
        made._outcome = None
        return made

    def wait(self) -> Report:
        """Waits until it is done, without the GIL.

        Raises as ``suspend`` or ``resume``, at each call.
        """
        with self._lock:
            if self._outcome is None:
                try:
                    self._outcome = Report(*self._wait())
                except Error as error:
                    self._outcome = error
        if isinstance(self._outcome, Error):
            raise self._outcome
        return self._outcome

    def __await__(self) -> Generator[object, None, Report]:
        import asyncio  # takes longer than the rest of the package

        loop = asyncio.get_running_loop()
        return loop.run_in_executor(None, self.wait).__await__()


def suspend_async(pools: _Pools, queues: Iterable[int] = (), events: Iterable[int] = ()) -> Job:
    """``suspend`` in the background. The pools must not be used until it is done."""
    return Job(pools, queues, events, False)


def resume_async(pools: _Pools, queues: Iterable[int] = (), events: Iterable[int] = ()) -> Job:
    """``resume`` in the background."""
    return Job(pools, queues, events, True)


def trim() -> None:
    """Gives back pinned memory of the host that is held ready for the next suspend."""
    _core.suspend_trim()
