"""Contexts of torch's memory pools that nest, and pools that end without harm.

Torch serves a thread from the pool that it entered first, and ends the process when a pool is
destroyed while any is entered. So an inner pool replaces the outer one for as long as it holds, and
pools that nobody wants any more wait until none is entered.
"""

import contextlib
import os
import threading
from typing import Any, Dict, Iterator, List, Tuple

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
