"""Device arrays of Numba in a pool of libumf: ``NUMBA_CUDA_MEMORY_MANAGER=umf.numba``."""

import ctypes
from typing import Any

from numba import cuda

from . import _gpu
from ._errors import NotSupportedError

__all__ = ["UmfMemoryManager"]


class UmfMemoryManager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Memory of devices comes from a pool, one for each context; a free waits for the GPU."""

    _addresses: Any = None

    def initialize(self) -> None:
        """Makes the pool of the context's device."""
        super().initialize()
        if self._addresses is None:
            self._device = self.context.device.id if self.context is not None else 0
            self._addresses = _gpu.Addresses(_gpu.pool_of(None, self._device))

    def memalloc(self, size: int) -> Any:
        """Memory of the device; MemoryError if there is none, even after Numba's deferred frees."""
        if self._addresses is None:
            self.initialize()
        addresses, device = self._addresses, self._device
        try:
            address = addresses.allocate(size)
        except MemoryError:
            self.deallocations.clear()
            address = addresses.allocate(size)

        def finalizer() -> None:
            _gpu.hooks().umf_cuda_drain(device)
            addresses.free(address)

        return cuda.MemoryPointer(
            self.context, ctypes.c_void_p(address), size, finalizer=finalizer
        )

    def get_ipc_handle(self, memory: Any) -> Any:
        """CUDA's own IPC refuses virtual memory: umf.Buffer.ipc_handle shares it."""
        raise NotSupportedError("share memory of umf by umf.Buffer.ipc_handle")

    def get_memory_info(self) -> Any:
        """Free and total bytes of the device."""
        available, total = ctypes.c_size_t(), ctypes.c_size_t()
        if self._addresses is None:
            self.initialize()
        result = _gpu.hooks().umf_cuda_memory(
            self._device, ctypes.byref(available), ctypes.byref(total)
        )
        if result != 0:
            raise RuntimeError(f"the memory of device {self._device} is not known: {result}")
        return cuda.MemoryInfo(free=available.value, total=total.value)

    @property
    def interface_version(self) -> int:
        """Of Numba's interface."""
        return 1


_numba_memory_manager = UmfMemoryManager
