"""Counters of allocations by Python."""

from typing import Optional, cast

from . import _core
from ._memory import Pool


class Counters(_core.Counters):
    """Counts inside a ``with``; see ``counting``. The numbers stay when it has ended."""

    __slots__ = ()

    def __new__(cls, pool: Optional[Pool] = None) -> "Counters":
        return cast("Counters", super().__new__(cls, pool))

    @property
    def current_bytes(self) -> int:
        """Allocated less freed; below zero if more was freed that was there before."""
        return self._read()[0]

    @property
    def peak_bytes(self) -> int:
        """The most that ``current_bytes`` was."""
        return self._read()[1]

    @property
    def total_bytes(self) -> int:
        """All that was allocated."""
        return self._read()[2]

    @property
    def current_count(self) -> int:
        """Allocations less frees."""
        return self._read()[3]

    @property
    def peak_count(self) -> int:
        """The most that ``current_count`` was."""
        return self._read()[4]

    @property
    def total_count(self) -> int:
        """All allocations."""
        return self._read()[5]

    def __enter__(self) -> "Counters":
        self._begin()
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def __repr__(self) -> str:
        now, peak, total, count = self._read()[:4]
        return f"<umf.Counters {now} bytes in {count} allocations, peak {peak}, total {total}>"


def counting(pool: Optional[Pool] = None) -> Counters:
    """Counts allocations and frees: ``with umf.counting(pool) as c: ...``.

    Args:
        pool: default: all pools.

    Counts begin at zero. They nest: each counts on its own, so an inner one is a part of an outer.
    All threads are counted, of the memory of ``Pool.allocate`` and its like, in requested bytes.
    Memory that went with its pool is counted as freed when its buffer is dropped. For all memory of a
    pool, of any allocating library, see ``Pool.statistics``.
    """
    return Counters(pool)
