"""Contexts of torch's memory pools that nest, and pools that end without harm.

Torch serves a thread from the pool that it entered first, and ends the process when a pool is
destroyed while any is entered. So an inner pool replaces the outer one for as long as it holds, and
pools that nobody wants any more wait until none is entered.
"""

import contextlib
import os
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


# --- settings of torch's allocator ---


def settings() -> str:
    """All of them as one text, as they are now."""
    import torch

    if torch.cuda.is_initialized():
        live = torch.cuda.memory._snapshot().get("allocator_settings", {})
        return str(live.get("PYTORCH_CUDA_ALLOC_CONF", ""))
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if os.environ.get(name):
            return os.environ[name]
    return ""


def set_settings(text: str) -> None:
    """Sets those in the text, and all others to their defaults."""
    import torch

    set_all: Any = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    (set_all or torch.cuda.memory._set_allocator_settings)(text)


def has_expandable_segments(text: str) -> bool:
    """Whether a text switches them on."""
    return any(one.replace(" ", "") == "expandable_segments:True" for one in text.split(","))


@contextlib.contextmanager
def without_expandable_segments() -> Iterator[None]:
    """They are no memory of a pool's allocator. All settings are as before afterwards."""
    before = settings()
    if not has_expandable_segments(before):
        yield
        return
    others = [one for one in before.split(",") if not one.strip().startswith("expandable_segments")]
    set_settings(",".join([*others, "expandable_segments:False"]))
    try:
        yield
    finally:
        set_settings(before)
