"""The pool that is used where none is named: of the context, or of the process."""

import contextlib
import contextvars
import threading
from typing import Any, Iterator, Optional, SupportsIndex

from ._memory import Buffer, Pool

_TEXT = "disjoint over os"

_lock = threading.Lock()
_of_process: Optional[Pool] = None
_own: Optional[Pool] = None  # of the package, made when it is first needed
_of_context: "contextvars.ContextVar[Optional[Pool]]" = contextvars.ContextVar("umf_pool", default=None)


def _checked(pool: Pool) -> Pool:
    if not isinstance(pool, Pool):
        raise TypeError(f"pool must be a umf.Pool, not {pool!r}")
    if pool.closed:
        raise ValueError(f"the pool {pool.text!r} is closed: it cannot be the default pool")
    return pool


def set_default_pool(pool: Optional[Pool]) -> None:
    """Makes a pool the default one of the process.

    Args:
        pool: kept alive until it is replaced; None: the package's own, as at the start.

    Raises:
        ValueError: the pool is closed.

    ``using`` has precedence where it is entered.
    """
    global _of_process
    _of_process = None if pool is None else _checked(pool)


def get_default_pool() -> Pool:
    """The pool that ``umf.allocate`` uses here.

    It is the one of the innermost ``using`` of this context, else the one of ``set_default_pool``,
    else one of the package: "disjoint over os", made by the first call that needs it.

    Raises:
        ValueError: that pool was closed since.
    """
    pool = _of_context.get() or _of_process
    return _own_pool() if pool is None else _checked(pool)


def _own_pool() -> Pool:
    global _own
    with _lock:
        if _own is None or _own.closed:
            _own = Pool(_TEXT)
        return _own


@contextlib.contextmanager
def using(pool: Pool) -> Iterator[Pool]:
    """Makes a pool the default one in this context: ``with umf.using(pool): ...``.

    Contexts are those of ``contextvars``: other threads do not see it, tasks of asyncio that are made
    inside do. It nests, and ends with the ``with``, also by an exception. It does not close the pool.

    Raises:
        ValueError: the pool is closed.
    """
    token = _of_context.set(_checked(pool))
    try:
        yield pool
    finally:
        _of_context.reset(token)


def allocate(size: SupportsIndex, alignment: SupportsIndex = 0, stream: Any = None) -> Buffer:
    """Allocates from the default pool: ``get_default_pool().allocate(...)``.

    Raises as ``get_default_pool`` and ``Pool.allocate``.
    """
    return get_default_pool().allocate(size, alignment, stream)
