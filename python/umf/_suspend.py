"""Suspend and resume: memory goes, addresses stay."""

import atexit
import contextlib
from typing import Any, Generator, Iterable, Iterator, NamedTuple, Optional, Tuple, Union, cast

from . import _core
from ._memory import Pool


class Report(NamedTuple):
    """Result of a suspend or resume; bytes over all its pools."""

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
_Args = Tuple[Tuple[Pool, ...], Tuple[int, ...], Tuple[int, ...]]


def _listed(pools: _Pools) -> Tuple[Pool, ...]:
    listed = (pools,) if isinstance(pools, Pool) else tuple(pools)
    for one in listed:
        if not isinstance(one, _core.Pool):
            raise TypeError(f"pools must be umf.Pool objects, not {one!r}")
    return listed


def _arguments(pools: _Pools, queues: Iterable[int], events: Iterable[int]) -> _Args:
    return _listed(pools), tuple(queues), tuple(events)


def suspend(pools: _Pools, queues: Iterable[int] = (), events: Iterable[int] = ()) -> Report:
    """Gives the physical memory of pools back, of all or of none.

    Args:
        pools: one pool or several. ``Pool.set_policy`` sets where content is kept.
        queues: addresses of native queues (``stream.cuda_stream``) whose work is waited for.
        events: addresses of native events to wait for. Without queues and events all work
            of the devices is waited for; not while a stream is captured into a graph, see
            ``capturing``.

    Raises:
        NotSupportedError: a pool cannot be suspended: its provider has no virtual memory.
        OutOfResourcesError: a view of its memory or ``forbid_suspend`` forbids it, another call is
            at work, or a stream is captured and no queues or events are named.
        OutOfMemoryError: there is no room for the content.

    On failure every pool is as before. Runs without the GIL.

    Signals are answered meanwhile. If a handler raises, the suspend goes on in the background with its
    pools in use, and its report is lost. The next suspend, resume or close of one of them waits for it
    first. For this the main thread makes the call in a thread, except for pools of ``linux_vmm`` that
    have 4 MiB or less in all: these are called directly, as in other threads, which get no signals, and
    where no thread can be started.
    """
    return Report(*_core.move(*_arguments(pools, queues, events), False))


def resume(pools: _Pools, queues: Iterable[int] = (), events: Iterable[int] = ()) -> Report:
    """Brings the memory of pools back: same addresses, same content; of all or of none.

    Arguments as for ``suspend``.

    Raises:
        OutOfMemoryError: ``missing`` bytes are missing. Every pool stays suspended, with its
            content kept: try again.
        Error: as for ``suspend``.

    Runs without the GIL. Signals are answered meanwhile, as in ``suspend``.
    """
    return Report(*_core.move(*_arguments(pools, queues, events), True))


class Job(_core.Job):
    """A suspend or resume in the background: ``await job``, or ``job.wait()``.

    It uses its pools until it is done: a close of one waits for it. Without references it goes on, with the
    pools kept alive; the next suspend, resume or close of one of them waits for it, and so does the exit.
    """

    def __new__(
        cls, pools: _Pools, queues: Iterable[int], events: Iterable[int], is_resume: bool
    ) -> "Job":
        return cast("Job", super().__new__(cls, *_arguments(pools, queues, events), is_resume))

    def wait(self, timeout: Optional[float] = None) -> Report:
        """Waits until it is done, without the GIL, in any number of threads and calls.

        Args:
            timeout: seconds at most.

        Raises:
            TimeoutError: it goes on.
            Error: as ``suspend`` or ``resume``, at each call.

        Signals are answered meanwhile: if a handler raises, the job goes on, and another ``wait``
        has its report.
        """
        return Report(*self._wait(timeout))

    def result(self, timeout: Optional[float] = None) -> Report:
        """As ``wait``."""
        return self.wait(timeout)

    def cancel(self) -> bool:
        """False: a suspend or resume is of all pools or of none, so it continues to its end."""
        return False

    def __await__(self) -> Generator[object, None, Report]:
        import asyncio  # takes longer than the rest of the package

        loop = asyncio.get_running_loop()
        return loop.run_in_executor(None, self.wait).__await__()

    def __repr__(self) -> str:
        state = "done" if self.done() else "at work"
        return f"<umf.Job {'resume' if self._is_resume else 'suspend'} {state}>"


def suspend_async(pools: _Pools, queues: Iterable[int] = (), events: Iterable[int] = ()) -> Job:
    """``suspend`` in the background. Until it is done allocations of the pools are refused, and their
    content must not be used."""
    return Job(pools, queues, events, False)


def resume_async(pools: _Pools, queues: Iterable[int] = (), events: Iterable[int] = ()) -> Job:
    """``resume`` in the background."""
    return Job(pools, queues, events, True)


@contextlib.contextmanager
def capturing(stream: Any) -> Iterator[None]:
    """Announces the capture of a stream into a CUDA graph: ``with umf.capturing(stream): ...``.

    Inside, in every thread, the library does not wait for a whole device, which would break the capture:
    a ``suspend`` without queues and events raises OutOfResourcesError, and freed memory is returned to the
    driver after the capture. Captures by ``torch.cuda.CUDAGraph`` announce themselves once ``umf.torch``,
    the names of torch_memory_saver or those of vLLM are used; others, and those of a program without
    them, need this.

    Args:
        stream: as for ``Pool.allocate``.

    It is entered before the capture begins, waits for waits in progress, and ends after the capture.
    """
    _core.capture_changes(stream, True)
    try:
        yield
    finally:
        _core.capture_changes(stream, False)


def trim() -> None:
    """Gives back pinned memory of the host that is held ready for the next suspend."""
    _core.suspend_trim()


atexit.register(_core.wait_all)
