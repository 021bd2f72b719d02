"""Calls in progress of an object of the library that Python knows by its number."""

import os
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, ContextManager, Iterator, Optional


class Uses:
    """The number of an object, and how many calls use it. It is true while there are any.

    In a child of fork the calls of the parent's threads count no more.
    """

    __slots__ = ("_count", "_lock", "_process", "_what", "number")

    def __init__(self, what: str, number: Optional[int] = None) -> None:
        self._what = what
        self.number = number
        self._count = 0
        self._lock = threading.RLock()  # a handler of a signal may close
        self._process = os.getpid()

    def __bool__(self) -> bool:
        return self._count > 0

    def _of_process(self) -> ContextManager[Any]:
        if self._process != os.getpid():
            self._count, self._lock, self._process = 0, threading.RLock(), os.getpid()
        return self._lock

    def begin(self) -> Optional[int]:
        """Counts a call, and returns the number; None: the object is closed, nothing is counted."""
        with self._of_process():
            self._count += self.number is not None
            return self.number

    def end(self) -> None:
        """Ends a call."""
        with self._of_process():
            self._count -= self._count > 0  # the call itself may have forked

    @contextmanager
    def __call__(self) -> Iterator[int]:
        """The number, for one call. ValueError: the object is closed."""
        number = self.begin()
        if number is None:
            raise ValueError(f"the {self._what} is closed")
        try:
            yield number
        finally:
            self.end()

    def take(self, seconds: float = 0.0, before: Optional[Callable[[], None]] = None) -> Optional[int]:
        """The number, which no call gets from now on. None: it was taken.

        Args:
            seconds: how long calls of other threads are waited for
            before: called before, when no call is in progress; what it raises leaves all as it was

        Raises:
            BufferError: a call is in progress
        """
        end = time.monotonic() + seconds
        while True:
            with self._of_process():
                if self._count == 0:
                    if before and self.number is not None:
                        before()
                    number, self.number = self.number, None
                    return number
            if time.monotonic() >= end:
                raise BufferError(f"another thread is in a call of the {self._what}")
            time.sleep(0.001)
