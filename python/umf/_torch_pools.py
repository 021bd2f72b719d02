"""Contexts of torch's memory pools that nest, and pools that end without harm.

Torch serves a thread from the pool that it entered first, and ends the process when a pool is
destroyed while any is entered. So an inner pool replaces the outer one for as long as it holds, and
pools that nobody wants any more wait until none is entered.
"""

import contextlib
import threading
from typing import Any, Iterator, List, Tuple

_Entered = Tuple[int, Any]

_lock = threading.Lock()
_active = 0
_unwanted: List[Any] = []
_threads = threading.local()


def _stack() -> List[_Entered]:
    if not hasattr(_threads, "stack"):
        _threads.stack = []
    stack: List[_Entered] = _threads.stack
    return stack


def _begin(entered: _Entered) -> None:
    import torch

    global _active
    with _lock:
        _active += 1
    torch._C._cuda_beginAllocateCurrentThreadToPool(entered[0], entered[1].id)


def _end(entered: _Entered) -> None:
    import torch

    global _active
    torch._C._cuda_endAllocateToPool(entered[0], entered[1].id)
    torch._C._cuda_releasePool(entered[0], entered[1].id)
    with _lock:
        _active -= 1


@contextlib.contextmanager
def use(pool: Any) -> Iterator[None]:
    """What this thread allocates on the current device inside comes from `pool`."""
    import torch

    stack = _stack()
    mine = (torch.cuda.current_device(), pool)
    outer = stack[-1] if stack else None
    if outer is not None:
        _end(outer)
    _begin(mine)
    stack.append(mine)
    try:
        yield
    finally:
        stack.pop()
        _end(mine)
        if outer is not None:
            _begin(outer)
        else:
            drop_unwanted()


def drop(pools: List[Any]) -> None:
    """Destroys pools, now or when no pool is entered. The list is emptied."""
    with _lock:
        _unwanted.extend(pools)
    pools.clear()
    drop_unwanted()


def drop_unwanted() -> None:
    """Destroys what waits for that, if it can be."""
    with _lock:
        if _active == 0:
            _unwanted.clear()
