"""Callbacks before an allocation fails for lack of memory."""

from typing import Callable, Optional, Tuple

from . import _core
from ._memory import Pool


class OutOfMemoryCallback:
    """A callback of ``on_out_of_memory``: ``remove()`` removes it, as does the end of a ``with``."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[Pool, int], object]) -> None:
        self._function = function

    def remove(self) -> None:
        """Removes it. Does nothing if that was done.

        A call that another thread is in goes on.
        """
        global _callbacks
        _callbacks = tuple(each for each in _callbacks if each is not self)

    def __enter__(self) -> "OutOfMemoryCallback":
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


_callbacks: Tuple[OutOfMemoryCallback, ...] = ()


def _ask(pool: Pool, nbytes: int) -> bool:
    is_given = False
    for each in _callbacks:
        is_given = bool(each._function(pool, nbytes)) or is_given
    return is_given


def on_out_of_memory(callback: Callable[[Pool, int], object]) -> OutOfMemoryCallback:
    """Adds a callback that is called before an allocation fails for lack of memory.

    Args:
        callback: called with the pool and the bytes that its provider could not allocate. It
            returns true if it gave something back: then the request is repeated. All callbacks are
            called in a round, in their order, and there are up to eight rounds for a request.

    Returns:
        An object that removes it, also as a context manager.

    It is called for allocations by Python: ``Pool.allocate``, ``umf.allocate``, ``umf.from_bytes``,
    ``Buffer.resize`` and copies of buffers, of any pool, in the thread that allocates. It is not for
    those of C: PyTorch, CuPy and others hold locks of their own then, for which a thread with the
    GIL may wait. They use ``umfAddReclaimCallback`` of ``umf/reclaim.h``.

    It may free buffers, trim, suspend and close other pools, and raise the limit of this one.
    Closing or suspending the pool of the request raises ``BufferError``. Its own allocations are
    served from free memory of that pool, or fail. It must not wait for a thread that allocates.

    An exception in a callback ends the request: ``allocate`` raises it.
    """
    global _callbacks
    if not callable(callback):
        raise TypeError(f"callback must be callable, not {callback!r}")
    _core.shortage_ask(_ask)
    made = OutOfMemoryCallback(callback)
    _callbacks = (*_callbacks, made)
    return made
