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

    Memory is handed out for the next user when the stream that it is freed on has passed: a free
    waits for it. No memory is ``MemoryError``.
    """
    addresses = _gpu.Addresses(_gpu.pool_of(pool, device))
    library = _gpu.hooks()

    def allocate(nbytes: int, stream: Any) -> int:
        return addresses.allocate(nbytes)

    def deallocate(ptr: int, nbytes: int, stream: Any) -> None:
        library.umf_cuda_wait(stream.__cuda_stream__()[1])
        addresses.free(ptr)

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)
