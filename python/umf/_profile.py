"""A profiler: allocations by function."""

import functools
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, TypeVar, overload

from ._counting import Counters
from ._memory import Pool

_Function = TypeVar("_Function", bound=Callable[..., Any])


class ProfileEntry(NamedTuple):
    """Allocations by the calls of one function, or the runs of one block."""

    name: str
    calls: int
    allocations: int
    bytes: int
    """All that was allocated, in bytes."""
    peak: int
    """The most bytes that one call held at once of its allocations."""


class ProfileReport(List[ProfileEntry]):
    """Entries, the most bytes first. As a text it is a table."""

    def __str__(self) -> str:
        rows = [("calls", "allocations", "bytes", "peak", "name")]
        rows += [
            (str(e.calls), str(e.allocations), str(e.bytes), str(e.peak), e.name) for e in self
        ]
        return "\n".join(
            f"{calls:>9} {count:>12} {size:>15} {peak:>15}  {name}"
            for calls, count, size, peak, name in rows
        )


class _Block:
    """One run of a block or function."""

    def __init__(self, profiler: "Profiler", name: str) -> None:
        self._profiler, self._name = profiler, name
        self._counters: List[Counters] = []  # one for each entry that has not ended

    def __enter__(self) -> "_Block":
        self._counters.append(Counters(self._profiler.pool).__enter__())
        return self

    def __exit__(self, *error: object) -> None:
        counters = self._counters.pop()
        counters.__exit__(*error)
        self._profiler._add(self._name, counters)


class Profiler:
    """Counts allocations of functions and blocks: ``umf.profile`` is one, of all pools.

    Use it as ``@umf.profile``, as ``@umf.profile("name")`` for a function, or as
    ``with umf.profile("name"):``. A name of several blocks is one entry.

    It counts as ``umf.counting`` does: allocations of other threads meanwhile, too, and those of
    called functions. Functions of asyncio are counted from their start to their end.

    Args:
        pool: of which memory is counted; default: all.
    """

    def __init__(self, pool: Optional[Pool] = None) -> None:
        self.pool = pool
        self._lock = threading.RLock()
        self._entries: Dict[str, ProfileEntry] = {}

    @overload
    def __call__(self, what: str) -> "_Named": ...
    @overload
    def __call__(self, what: _Function) -> _Function: ...

    def __call__(self, what: Any) -> Any:
        """A function that is profiled, or, of a name, a block or decorator."""
        if isinstance(what, str):
            return _Named(self, what)
        if not callable(what):
            raise TypeError(f"a function or a name is profiled, not {what!r}")
        module, name = getattr(what, "__module__", None), getattr(what, "__qualname__", repr(what))
        return self._wrapped(what, f"{module}.{name}" if module else name)

    def _wrapped(self, function: Any, name: str) -> Any:
        import inspect  # takes longer to import than the rest of this module

        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("a generator is not profiled: profile its body with `with`")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with _Block(self, name):
                    return await function(*args, **kwargs)

            return awaited

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with _Block(self, name):
                return function(*args, **kwargs)

        return called

    def _add(self, name: str, counters: Counters) -> None:
        with self._lock:
            old = self._entries.get(name) or ProfileEntry(name, 0, 0, 0, 0)
            self._entries[name] = ProfileEntry(
                name,
                old.calls + 1,
                old.allocations + counters.total_count,
                old.bytes + counters.total_bytes,
                max(old.peak, counters.peak_bytes),
            )

    def report(self) -> ProfileReport:
        """Counts since the start or the last ``reset``."""
        with self._lock:
            return ProfileReport(sorted(self._entries.values(), key=lambda e: (-e.bytes, e.name)))

    def reset(self) -> None:
        """Sets all counts to zero."""
        with self._lock:
            self._entries.clear()


class _Named(_Block):
    """A block; as a decorator, of a function."""

    def __call__(self, function: _Function) -> _Function:
        if not callable(function):
            raise TypeError(f"a function is decorated, not {function!r}")
        wrapped: _Function = self._profiler._wrapped(function, self._name)
        return wrapped


profile = Profiler()
