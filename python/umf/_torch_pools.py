"""Contexts of torch's memory pools that nest, and pools that end without harm.

Torch serves a thread from the pool that it entered first, and ends the process when a pool is
destroyed while any is entered or a graph is captured, in whatever thread. So an inner pool replaces
the outer one for as long as it holds, and dropped pools are destroyed when no pool is entered. Where a
thread is still inside of one when the interpreter ends, pools stay until the process ends.
"""

import atexit
import contextlib
import ctypes
import functools
import os
import threading
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Set, Tuple, Type

from . import _core

_Entered = Tuple[int, Any]  # device, pool

# Of the counters: no pool is entered while pools are destroyed. A finalizer may run at any place and
# drops pools, so `drop` never waits for the lock.
_lock = threading.Lock()
_active = 0  # entered pools and captures
_captures = 0
_moves = 0  # blocks of `unless_captured` at work
_no_moves = threading.Condition(_lock)
_watched: Set[Any] = set()
_announced: Dict[int, int] = {}  # streams that are captured, by id of the graph
_unwanted: Deque[Tuple[List[Any], Optional[Callable[[], None]]]] = deque()
# Pools entered by each thread, the innermost last. A thread writes its own only.
_stacks: Dict[int, List[_Entered]] = {}
_met: "weakref.WeakSet[Any]" = weakref.WeakSet()  # that a thread has entered


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
    """Allocations of this thread on the current device inside come from `pool`."""
    import torch

    thread = threading.get_ident()
    stack = _stacks.setdefault(thread, [])
    _met.add(pool)
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
    """Pools entered by other threads."""
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
    """Destroys dropped pools if none is entered. If the lock is taken, its thread does so, or ends a use soon."""
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


def _at_exit() -> None:
    """Runs after the handlers of modules that import this one. The interpreter drops pools later, in any order."""
    drop_unwanted()
    left = [pool for pools, _ in list(_unwanted) for pool in pools]
    for pool in [*left, *(list(_met) if _active else [])]:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))


atexit.register(_at_exit)


def segments(pool: Any) -> List[Dict[str, Any]]:
    """As ``pool.snapshot()``, which in torch 2.11 releases the numbers of the id, and True, once too
    often: the interpreter ends after some thousand calls. A snapshot of all pools does not."""
    import torch

    found: List[Dict[str, Any]] = torch._C._cuda_memorySnapshot(None)["segments"]
    return [segment for segment in found if tuple(segment["segment_pool_id"]) == tuple(pool.id)]


# --- captures of graphs ---


def watch_captures(graphs: Any = None) -> None:
    """Counts captures of a class from here on; default: ``torch.cuda.CUDAGraph``."""
    import torch

    graphs = graphs or torch.cuda.CUDAGraph
    if graphs not in _watched:
        _watched.add(graphs)
        graphs.capture_begin = _counted_begin(graphs.capture_begin)
        graphs.capture_end = _counted_end(graphs.capture_end)


def _announce(graph: Any) -> None:
    """The library waits for no device until the end of the capture."""
    import torch

    stream = torch.cuda.current_stream().cuda_stream
    _core.capture_changes(stream, True)
    _announced[id(graph)] = stream


def _announce_end(graph: Any) -> None:
    stream = _announced.pop(id(graph), None)
    if stream is not None:
        _core.capture_changes(stream, False)


def _counted_begin(begin: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(begin)
    def capture_begin(*args: Any, **named: Any) -> None:
        global _active, _captures
        with _no_moves:
            _no_moves.wait_for(lambda: _moves == 0)
            _active += 1
            _captures += 1
        try:
            _announce(args[0])
            begin(*args, **named)
        except BaseException:
            # Torch may be left as if it captured, and refuses to destroy pools: `_active` stays.
            _announce_end(args[0])
            with _lock:
                _captures -= 1
            raise

    return capture_begin


def _counted_end(end: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(end)
    def capture_end(*args: Any, **named: Any) -> None:
        global _active, _captures
        try:
            end(*args, **named)
        finally:
            _announce_end(args[0])
            with _lock:
                _captures -= 1
        # After a failure torch refuses to destroy pools: the count of `_active` stays.
        with _lock:
            _active -= 1
        drop_unwanted()

    return capture_end


@contextlib.contextmanager
def unless_captured() -> Iterator[bool]:
    """Yields whether no thread captures a graph. If so, captures begin after the block.

    Inside, memory may be suspended and the device waited for, which would break a capture.
    """
    global _moves
    with _lock:
        is_free = _captures == 0
        _moves += is_free
    try:
        yield is_free
    finally:
        with _no_moves:
            _moves -= is_free
            _no_moves.notify_all()


@contextlib.contextmanager
def refuse_captures(memory: str, error: Type[Exception] = RuntimeError) -> Iterator[None]:
    """As `unless_captured`, with an error while a graph is captured."""
    with unless_captured() as is_free:
        if not is_free:
            raise error(
                f"{memory} cannot be suspended or resumed while a thread captures a graph, which would "
                "break the capture: try again after its end"
            )
        yield


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
