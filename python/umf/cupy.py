"""Arrays of CuPy in a pool of libumf.

    import umf.cupy
    umf.cupy.install()       # or: cupy.cuda.set_allocator(umf.cupy.Allocator(pool).malloc)
"""

import ctypes
from typing import Any, Optional

import cupy

from . import _gpu, _memory

__all__ = ["Allocator", "OutOfMemoryError", "install"]

_NO_MEMORY = 2  # cudaErrorMemoryAllocation


class OutOfMemoryError(cupy.cuda.runtime.CUDARuntimeError, MemoryError):  # type: ignore[misc]
    """The error that CuPy's pool takes as a reason to release its cache, and try again."""

    def __init__(self) -> None:
        super().__init__(_NO_MEMORY)


class Allocator:
    """Hands out memory of a pool; a free waits for the work of the GPU.

    Args:
        pool: of memory of the current GPU. Default: ``coalescing`` over ``cuda_vmm``.
    """

    def __init__(self, pool: Optional[_memory.Pool] = None) -> None:
        library = _gpu.hooks()
        self.pool = _gpu.pool_of(pool, cupy.cuda.runtime.getDevice())
        self._functions = cupy.cuda.memory.CFunctionAllocator(
            self.pool.handle,
            ctypes.cast(library.umf_cupy_malloc, ctypes.c_void_p).value,
            ctypes.cast(library.umf_cupy_free, ctypes.c_void_p).value,
            self.pool,
        )

    def malloc(self, size: int) -> Any:
        """Memory for CuPy; OutOfMemoryError if there is none."""
        memory = self._functions.malloc(size)
        if size > 0 and not memory.ptr:
            raise OutOfMemoryError
        return memory


def install(pool: Optional[_memory.Pool] = None) -> Allocator:
    """CuPy allocates from a pool of libumf from now on.

    CuPy's own pool is in between: it orders frees by CuPy's streams, so that they need not wait. Without
    memory it releases its cache and tries again, and then raises its own OutOfMemoryError.
    """
    allocator = Allocator(pool)
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool(allocator.malloc).malloc)
    return allocator
