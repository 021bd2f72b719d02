"""Recordings of events of pools and providers."""

import os
import weakref
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

from . import _core
from ._errors import InvalidArgumentError, OutOfResourcesError
from ._memory import Pool

_STACK_DEPTH = 16
_KINDS = (
    "",
    "alloc",
    "free",
    "free refused",
    "out of memory",
    "provider alloc",
    "provider free",
    "provider refused",
    "trim",
    "suspend",
    "resume",
    "open",
    "close",
    "create",
    "destroy",
    "mark",
    "page create",
    "page destroy",
    "page donate",
    "page retire",
    "page unmap",
    "pages",
    "pages moved",
)
_STATES = ("", "live", "cached", "free", "unknown")
_POOL, _PROVIDER = 1, 2
_IS_GONE, _IS_ASLEEP = 1, 2
_IS_AWAY, _IS_IMPORT, _IS_EXPORTED = 1, 2, 4

Stack = Tuple[str, ...]


class Event(NamedTuple):
    """Something that happened.

    Attributes:
        time: seconds since the recording began.
        kind: "alloc", "free", "free refused", "out of memory", "provider alloc", "provider free",
            "provider refused", "trim", "suspend", "resume", "open", "close", "create", "destroy",
            "mark"; of pools whose pages move "page create", "page destroy", "page donate", "page
            retire", "page unmap", "pages", "pages moved".
        where: the pool or provider, as "disjoint #3"; of a mark its name.
        address: of the memory. "out of memory": bytes held by the pool. "trim": bytes held before.
            "pages": bytes of all pages. "pages moved": bytes of stale addresses.
        size: in bytes. "trim": bytes held after. "pages": of spare pages. "pages moved": of all
            pages that were donated.
        thread: as ``threading.get_native_id`` says.
        queue: number of the queue; 0: none.
        stack: native frames, the innermost first; empty where stacks were not recorded.
    """

    time: float
    kind: str
    where: str
    address: int
    size: int
    thread: int
    queue: int
    stack: Stack


class Leak(NamedTuple):
    """Live allocations of one pool, made at one place.

    Attributes:
        pool: as "disjoint #3".
        bytes: of all, as requested.
        allocations: how many these are.
        age: of the oldest in seconds.
        stack: native frames, the innermost first; empty where stacks were not recorded.
    """

    pool: str
    bytes: int
    allocations: int
    age: float
    stack: Stack


class RecordingState(NamedTuple):
    """How a recording does.

    Attributes:
        running: False: it was stopped, and the rest is 0.
        events: so far.
        dropped: events that were overwritten, or found no room.
        live_count, live_bytes: allocations that live, of those recorded; 0 without ``leaks``.
        used: bytes of the file.
    """

    running: bool
    events: int
    dropped: int
    live_count: int
    live_bytes: int
    used: int


class _File:
    """A file of a recording or a snapshot, read."""

    def __init__(self, path: str) -> None:
        self.file = _core.Recording(path)
        self.objects = self.file.objects()
        self._stacks: Dict[int, Stack] = {0: ()}

    def label(self, number: int) -> str:
        return self.objects[number][4] if 0 < number < len(self.objects) else ""

    def stack(self, number: int) -> Stack:
        if number not in self._stacks:
            self._stacks[number] = tuple(self.file.stack(number))
        return self._stacks[number]

    def end(self) -> int:
        """ns at the last event, or at the youngest live allocation."""
        return max([self.file.info()[6], *(one[2] for one in self.file.live())])


def _temporary(suffix: str) -> str:
    import tempfile  # takes longer to import than all of this package

    handle, path = tempfile.mkstemp(prefix="umf-", suffix=suffix)
    os.close(handle)
    return path


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


# --- snapshots ---


def _figures(entry: Any) -> Dict[str, Any]:
    names = ("live", "live_count", "held", "peak", "away", "allocs", "frees")
    return {"name": entry[4], "handle": entry[3], **dict(zip(names, entry[5:]))}


def _span(span: Any) -> Dict[str, Any]:
    address, size, _, flags, runs = span
    return {
        "address": address,
        "size": size,
        "away": bool(flags & _IS_AWAY),
        "imported": bool(flags & _IS_IMPORT),
        "exported": bool(flags & _IS_EXPORTED),
        "runs": [
            {"address": at, "size": each, "count": count, "state": _STATES[state]}
            if state < len(_STATES)
            else {"address": at, "size": each, "count": count, "state": "unknown"}
            for at, each, count, state in runs
        ],
    }


def _allocation(file: _File, live: Any) -> Dict[str, Any]:
    address, size, _, pool, stack = live
    return {
        "address": address,
        "size": size,
        "pool": file.label(pool),
        "stack": list(file.stack(stack)),
    }


def _dict_of(path: str) -> Dict[str, Any]:
    file = _File(path)
    pid, _, realtime, _, _, _, _ = file.file.info()
    pools: Dict[int, Dict[str, Any]] = {}
    providers = []
    for number, entry in enumerate(file.objects):
        if entry[0] == _POOL and not entry[1] & _IS_GONE:
            pools[number] = _figures(entry)
            pools[number]["provider"] = file.label(entry[2])
            pools[number]["asleep"] = bool(entry[1] & _IS_ASLEEP)
            pools[number]["spans"] = []
        elif entry[0] == _PROVIDER and not entry[1] & _IS_GONE:
            providers.append(_figures(entry))
    for span in file.file.spans():
        if span[2] in pools:
            pools[span[2]]["spans"].append(_span(span))
    return {
        "pid": pid,
        "time": realtime / 1e9,
        "pools": list(pools.values()),
        "providers": providers,
        "allocations": [_allocation(file, live) for live in file.file.live()],
        "notes": file.file.notes(),
    }


def snapshot() -> Dict[str, Any]:
    """Every pool and provider of this process, now. Needs no recording.

    Returns:
        "pid"; "time", seconds since 1970; "pools" and "providers", lists of dicts; "allocations",
        live ones, if a recording with ``leaks`` runs: "address", "size", "pool", "stack"; "notes":
        oddities of the file. A pool has "name", "provider", "handle", "asleep"; "live", "live_count" (in use
        by the program), "held" (from its provider), "peak" (the most of that), "away" (suspended),
        all in bytes and None where the kind does not count; "allocs" and "frees" since it was created; and
        "spans", its memory from the provider: "address", "size", "away", "imported", "exported" and
        "runs", blocks of one size side by side: "address", "size", "count", "state" ("live",
        "cached", "free", "unknown"). A provider has the figures only.

    Each pool is consistent in itself. Threads go on meanwhile.
    """
    path = _temporary(".umfsnap")
    try:
        _core.record_snapshot(path)
        return _dict_of(path)
    finally:
        _remove(path)


# --- recordings ---


def _recorded(pools: Union[Pool, Iterable[Pool], None]) -> Tuple[Pool, ...]:
    """The pools that count; () for all."""
    if pools is None:
        return ()
    listed = (pools,) if isinstance(pools, Pool) else tuple(pools)
    return listed or (Pool("proxy"),)  # one that goes at once, since () is all


class _Running:
    """Ends with a `Recording`, in the process that started it only: its child has neither."""

    def __init__(self, path: str, is_own: bool) -> None:
        self.path = path
        self.is_own = is_own
        self.is_running = False
        self._pid = os.getpid()

    def is_here(self) -> bool:
        """Whether it runs, in this process."""
        return self.is_running and self._pid == os.getpid()

    def stop(self) -> None:
        if self.is_here():
            self.is_running = False
            try:
                _core.record_stop()
            except InvalidArgumentError:
                pass  # it was stopped in C

    def end(self) -> None:
        if self._pid == os.getpid():
            self.stop()
            if self.is_own:
                _remove(self.path)


class Recording:
    """A recording of this process; `record` starts it. A context manager that stops it.

    Its last reference stops it, too. A child of fork neither records nor ends it.

    Attributes:
        path: its file. One that `record` made itself goes with this object.
    """

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]", None],
        stacks: Union[bool, int],
        leaks: bool,
        size: int,
        min_size: int,
        max_size: int,
        rate: int,
        pools: Union[Pool, Iterable[Pool], None],
    ) -> None:
        depth = _STACK_DEPTH if stacks is True else int(stacks)
        for name, value in {
            "stacks": depth,
            "size": size,
            "min_size": min_size,
            "max_size": max_size,
            "rate": rate,
        }.items():
            if value < 0:
                raise ValueError(f"{name} must not be negative, it is {value}")
        if _core.record_state()[0]:
            raise OutOfResourcesError("a recording is running already: stop it before the next")
        self.path = _temporary(".umfrec") if path is None else os.fspath(path)
        self.path = self.path.replace("%p", str(os.getpid()))
        self._running = _Running(self.path, path is None)
        self._end = weakref.finalize(self, self._running.end)
        try:
            _core.record_start(
                self.path, size, depth, bool(leaks), min_size, max_size, rate, _recorded(pools)
            )
        except BaseException:
            self._end()
            raise
        self._running.is_running = True

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def mark(self, name: str) -> None:
        """Records a mark, as "step 12". Does nothing after the end.

        Args:
            name: of which the first 255 bytes count.
        """
        if self._running.is_here():
            _core.record_mark(name)

    def stop(self) -> None:
        """Ends the recording; its file is complete then. May be called again."""
        self._running.stop()

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a copy of the recording, also of one that is running."""
        if self._running.is_here():
            _core.record_save(os.fspath(path))
            return
        import shutil

        shutil.copyfile(self.path, path)

    def state(self) -> RecordingState:
        """How it does."""
        state = _core.record_state() if self._running.is_here() else (False, 0, 0, 0, 0, 0)
        return RecordingState(*state)

    def snapshot(self) -> Dict[str, Any]:
        """The state now; see ``umf.snapshot``."""
        return snapshot()

    def events(self) -> Iterator[Event]:
        """All events so far, by time. Those that were overwritten are missing."""
        file = _File(self.path)
        for ns, kind, number, address, size, thread, queue, stack, name in file.file.events():
            yield Event(
                ns / 1e9,
                _KINDS[kind] if kind < len(_KINDS) else str(kind),
                name or file.label(number),
                address,
                size,
                thread,
                queue,
                file.stack(stack),
            )

    def leaks(self) -> List[Leak]:
        """Live allocations made since the beginning, by pool and place, the oldest first.

        Memory destroyed with its pool is no leak. With ``leaks`` in `record` the list also has
        allocations whose events are overwritten.
        """
        file = _File(self.path)
        groups: Dict[Tuple[int, int], List[Tuple[int, int]]] = {}
        for _, size, ns, pool, stack in file.file.live():
            groups.setdefault((pool, stack), []).append((ns, size))
        end = file.end()
        made = [
            Leak(
                file.label(pool),
                sum(size for _, size in group),
                len(group),
                (end - min(ns for ns, _ in group)) / 1e9,
                file.stack(stack),
            )
            for (pool, stack), group in groups.items()
        ]
        return sorted(made, key=lambda leak: (-leak.age, -leak.bytes))

    def html(self) -> str:
        """The picture: one page that needs nothing beside it, as ``umfctl trace --html`` writes it."""
        return _core.recording_html(self.path)

    def _repr_html_(self) -> str:
        """The picture in a notebook. Its script runs in a frame that reaches nothing else."""
        from html import escape

        return (
            '<iframe sandbox="allow-scripts" width="100%" height="720" style="border:0" '
            f'srcdoc="{escape(self.html())}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<umf.Recording {self.path!r}{', running' if self._running.is_here() else ''}>"


def record(
    path: Union[str, "os.PathLike[str]", None] = None,
    *,
    stacks: Union[bool, int] = False,
    leaks: bool = False,
    size: int = 0,
    min_size: int = 0,
    max_size: int = 0,
    rate: int = 0,
    pools: Union[Pool, Iterable[Pool], None] = None,
) -> Recording:
    """Starts to record events of pools and providers of this process.

    Args:
        path: the file, which is replaced; "%p" in it becomes the number of the process. None: a
            temporary file that goes with the recording.
        stacks: whether native stacks are recorded, or of how many frames, up to 64; True: 16.
        leaks: whether a table of live allocations is kept (`Recording.leaks`).
        size: bytes that the file may have, at least 1 MiB; 0: 256 MiB. When it is full the oldest
            events are overwritten.
        min_size, max_size: only allocations of at least, at most so many bytes; 0: no limit.
        rate: only one allocation of about so many, and its free; 0: all.
        pools: only this or these; None: all, also those that are made later. An empty list: none.

    Raises:
        ValueError, umf.InvalidArgumentError: a number is out of range.
        umf.OutOfResourcesError: a recording is running already, or the file cannot be made.

    Keep the recording: with its last reference it stops. A child of fork does not record. Pools that
    are not recorded do not become slower.
    """
    return Recording(path, stacks, leaks, size, min_size, max_size, rate, pools)
