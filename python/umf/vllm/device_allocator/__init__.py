"""Common parts of allocators of devices: the names of ``vllm.device_allocator``."""

import abc
from dataclasses import dataclass
from typing import Any, ContextManager, Optional, Tuple, Union

# Tags that stay asleep in a wake-up that does not name them.
DEFERRABLE_TAGS: Tuple[str, ...] = ("weights", "kv_cache")

# Device, bytes, address, and a word that only the allocator understands.
HandleType = Tuple[int, int, int, int]

__all__ = [
    "DEFERRABLE_TAGS",
    "AllocationData",
    "HandleType",
    "MemAllocator",
    "get_mem_allocator_instance",
]


@dataclass
class AllocationData:
    """One allocation. It may be written: sleep and wake-up read it."""

    handle: HandleType
    tag: str
    cpu_backup_tensor: Optional[Any] = None
    """Its content, a tensor of bytes on the CPU, while it is asleep and kept."""
    is_asleep: bool = False


class MemAllocator(abc.ABC):
    """An allocator whose memory can be put to sleep."""

    @abc.abstractmethod
    def use_memory_pool(self, tag: Optional[str] = None) -> ContextManager[None]:
        """Allocations of torch inside belong to a tag."""

    @abc.abstractmethod
    def sleep(self, offload_tags: Union[Tuple[str, ...], str, None] = None) -> None:
        """Gives all memory back, keeping the content of some tags."""

    @abc.abstractmethod
    def wake_up(self, tags: Optional[Any] = None) -> None:
        """Brings memory and kept content back."""

    @abc.abstractmethod
    def get_current_usage(self) -> int:
        """Bytes of all allocations."""


def get_mem_allocator_instance() -> MemAllocator:
    """The allocator of this process."""
    from .cumem import CuMemAllocator

    return CuMemAllocator.get_instance()
