"""A memory resource of RMM over a pool of libumf: ``rmm.mr.set_current_device_resource(resource())``.

Each call goes through Python; a pool of RMM above makes that rare.
"""

from typing import Any, Optional

import rmm

from . import _gpu, _memory

__all__ = ["resource"]


def resource(pool: Optional[_memory.Pool] = None, device: int = 0) -> Any:
    """A ``CallbackMemoryResource`` over a pool.

    Args:
        pool: of memory of the device. Default: ``coalescing`` over ``cuda_vmm``.
        device: number of the GPU, for the default.

    Memory freed on a stream is used on it again at once, and on other streams when its work has
    completed; the host does not wait. No memory is ``MemoryError``.
    """
    addresses = _gpu.Addresses(_gpu.pool_of(pool, device))

    def allocate(nbytes: int, stream: Any) -> int:
        return addresses.allocate(nbytes, stream)

    def deallocate(ptr: int, nbytes: int, stream: Any) -> None:
        addresses.free(ptr, stream)

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)
