"""Limits of pools as bytes, from a size or a fraction of the memory of the host or of a GPU."""

import operator
import os
from typing import TYPE_CHECKING, Optional, SupportsIndex

from . import _core
from ._errors import NotSupportedError

if TYPE_CHECKING:
    from ._memory import Pool


def size_of(
    pool: "Pool", size: Optional[SupportsIndex], fraction: Optional[float]
) -> Optional[int]:
    """Bytes of the limit; None: no limit."""
    if fraction is None:
        return (operator.index(size) or None) if size is not None else None
    if size is not None:
        raise ValueError("size and fraction cannot both be given")
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be above 0 and at most 1, it is {fraction!r}")
    return max(1, int(_memory_below(pool) * fraction))


def _memory_below(pool: "Pool") -> int:
    """All bytes of the memory that the provider of the pool takes from."""
    from . import _memory  # which imports this module

    kind, _, settings = pool.provider_text().partition(":")
    if kind.startswith("level_zero"):
        raise NotSupportedError("the memory of this GPU is not known: limit the pool by a size")
    given = [one.strip() for one in _memory._settings(settings)]
    is_host = any(one.startswith(("memory_type=host", "host_node=")) for one in given)
    if kind.startswith("cuda") and not is_host:
        return _core.device_memory(_memory._provider_device(pool))
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
