"""Shared parts of the hooks of CuPy, Numba and RMM."""

import ctypes
import functools
from pathlib import Path
from typing import Any, Dict, Optional

from . import _memory
from ._errors import Error


@functools.lru_cache(maxsize=None)
def hooks() -> Any:
    """The library of functions that wait for GPUs; nothing is started by loading it."""
    path = Path(__file__).parent / "umf_gpu.abi3.so"
    if not path.exists():
        raise RuntimeError("libumf was built without CUDA, so it has no memory of GPUs by NVIDIA")
    library = ctypes.CDLL(str(path))
    library.umf_cuda_reaches.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.umf_cuda_order.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    return library


def pool_of(pool: Optional[_memory.Pool], device: int) -> _memory.Pool:
    """The pool given, or one of memory of the device that can be suspended."""
    return pool or _memory.Pool("coalescing", f"cuda_vmm:device={device}")


class Addresses:
    """Memory of a pool by address, for libraries that keep addresses themselves."""

    def __init__(self, pool: _memory.Pool) -> None:
        self.pool = pool
        self._buffers: Dict[int, _memory.Buffer] = {}

    def allocate(self, nbytes: int, stream: Any = None) -> int:
        """Address of new memory, a multiple of 256; MemoryError if there is none."""
        if nbytes < 0:
            raise ValueError(f"the size must not be negative, it is {nbytes}")
        try:
            buffer = self.pool.allocate(max(nbytes, 1), alignment=256, stream=stream)
        except Error as error:
            raise MemoryError(str(error)) from error
        self._buffers[buffer.ptr] = buffer
        return buffer.ptr

    def free(self, address: int, stream: Any = None) -> None:
        """Gives it back, on a stream; without one who calls has waited for its work. Unknown
        addresses are ignored."""
        buffer = self._buffers.pop(address, None)
        if buffer is not None:
            buffer.free(stream)
