"""Contexts of torch's memory pools that nest, and pools that end without harm.

Torch serves a thread from the pool that it entered first, and ends the process when a pool is
destroyed while any is entered. So an inner pool replaces the outer one for as long as it holds, and
pools that are dropped are destroyed when none is entered.
"""

import contextlib
import os
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple

_Entered = Tuple[int, Any]  # device, pool

# Of the counter: no pool is entered while pools are destroyed. A finalizer may run at any place and
# drops pools, so `drop` never waits for the lock.
_lock = threading.Lock()
_active = 0
_unwanted: Deque[Tuple[List[Any], Optional[Callable[[], None]]]] = deque()
# What each thread has entered, the innermost pool last. A thread writes its own only.
_stacks: Dict[int, List[_Entered]] = {}


def _begin(entered: _Entered) -> None:
    import torch

    global _active
    with _lock:
        _active += 1
    try:
        torch._C._cuda_beginAllocateCurrentThreadToPool(entered[0], entered[1].id)
    except BaseException:  # another thread is in the pool
        with _lock:
            _active -= 1
        raise


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

    thread = threading.get_ident()
    stack = _stacks.setdefault(thread, [])
    if stack:
        _end(stack[-1])
    stack.append((torch.cuda.current_device(), pool))
    try:
        _begin(stack[-1])
        try:
            yield
        finally:
            _end(stack[-1])
    finally:
        stack.pop()
        if stack:
            _begin(stack[-1])
        else:
            del _stacks[thread]
            drop_unwanted()


def entered() -> List[Any]:
    """Pools that this thread is inside of, the innermost last."""
    return [pool for _, pool in _stacks.get(threading.get_ident(), [])]


def entered_elsewhere() -> List[Any]:
    """Pools that other threads are inside of."""
    mine = threading.get_ident()
    return [pool for thread, stack in list(_stacks.items()) if thread != mine for _, pool in stack]


def replace(old: Any, new: Any) -> None:
    """This thread is inside of `new` where it was inside of `old`."""
    stack = _stacks.get(threading.get_ident(), [])
    for at, (device, pool) in enumerate(stack):
        if pool is old and at + 1 < len(stack):
            stack[at] = (device, new)
        elif pool is old:
            _end(stack[at])
            stack[at] = (device, new)
            _begin(stack[at])


def drop(pools: List[Any], then: Optional[Callable[[], None]] = None) -> None:
    """Destroys pools, now or when no pool is entered, and calls `then`. The list is emptied."""
    _unwanted.append((pools[:], then))
    pools.clear()
    drop_unwanted()


def _is_capturing() -> bool:
    import torch

    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def drop_unwanted() -> None:
    """Destroys what was dropped, if it can be. Whoever holds the lock does so, or leaves a pool soon."""
    while _unwanted and _active == 0 and not _is_capturing() and _lock.acquire(blocking=False):
        done = []
        try:
            while _unwanted and _active == 0:
                pools, then = _unwanted.popleft()
                pools.clear()
                done.append(then)
        finally:
            _lock.release()
        for then in done:
            if then is not None:
                then()


def segments(pool: Any) -> List[Dict[str, Any]]:
    """As ``pool.snapshot()``, which in torch 2.11 releases the numbers of the id, and True, once too
    often: the interpreter ends after some thousand calls. A snapshot of all pools does not."""
    import torch

    found: List[Dict[str, Any]] = torch._C._cuda_memorySnapshot(None)["segments"]
    return [segment for segment in found if tuple(segment["segment_pool_id"]) == tuple(pool.id)]


# --- settings of torch's allocator ---


def _live() -> Dict[str, Any]:
    import torch

    if not torch.cuda.is_initialized():
        return {}
    live: Dict[str, Any] = torch.cuda.memory._snapshot().get("allocator_settings", {})
    return live


def settings() -> str:
    """The text that set them last."""
    live = _live()
    if live:
        return str(live.get("PYTORCH_CUDA_ALLOC_CONF", ""))
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if os.environ.get(name):
            return os.environ[name]
    return ""


def set_settings(text: str) -> None:
    """Sets those in the text, and most others to their defaults."""
    import torch

    set_all: Any = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    (set_all or torch.cuda.memory._set_allocator_settings)(text)


def has_expandable_segments(text: str) -> bool:
    """Whether a text switches them on."""
    return any(one.replace(" ", "") == "expandable_segments:True" for one in text.split(","))


def are_segments_expandable() -> bool:
    """Whether they are on now: a later text that does not name them leaves them on."""
    return has_expandable_segments(settings()) or bool(_live().get("expandable_segments"))


@contextlib.contextmanager
def without_expandable_segments() -> Iterator[None]:
    """They are no memory of a pool's allocator. All settings are as before afterwards."""
    if not are_segments_expandable():
        yield
        return
    before = settings()
    others = [one for one in before.split(",") if "expandable_segments" not in one]
    set_settings(",".join([*filter(None, others), "expandable_segments:False"]))
    try:
        yield
    finally:
        set_settings(",".join([*filter(None, others), "expandable_segments:True"]))
        set_settings(before)
