"""Pools of libumf for PyTorch.

    import umf.torch

    pool = umf.torch.Pool()                 # memory of the current GPU that can be suspended
    with pool.use():
        weights = torch.randn(1 << 20, device="cuda")
    pool.suspend()                          # the memory is free for others, the address stays
    pool.resume()                           # the same values are back

`Pool` is a ``torch.cuda.MemPool``: torch caches inside of it and orders streams, statistics and
snapshots work. Pools need torch with CUDA.

`install` makes libumf the allocator of the whole process instead.
"""

import atexit
import contextlib
import ctypes
import functools
import sys
import threading
import weakref
from pathlib import Path
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import torch

from . import _core, _memory, _suspend, _torch_pools, _torch_process
from ._errors import Error, NotSupportedError, OutOfResourcesError
from ._torch_process import ArenaStatistics, ProcessAllocator, install

__all__ = ["ArenaStatistics", "Pool", "ProcessAllocator", "SharedTensor", "buffer", "install", "share", "tensor"]


class _Hooks:
    """The library that torch calls; loaded when the first pool is made."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(Path(__file__).parent / "umf_torch_pools.abi3.so"))
        self.library.umf_torch_take_slot.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self.library.umf_torch_leave_slot.argtypes = [ctypes.c_int]
        self.library.umf_torch_leave_slot.restype = None
        self.library.umf_torch_quiesce.restype = None

    def address(self, name: str) -> int:
        return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0


_hooks: Optional[_Hooks] = None
# A pool may be dropped by the garbage collector, at any place: nothing that follows waits for the lock.
_lock = threading.Lock()
# Pools of libumf whose pool of torch is gone: memory of tensors may be in them for longer.
_retired: List[_memory.Pool] = []


def _loaded() -> _Hooks:
    global _hooks
    with _lock:
        if _hooks is None:
            _hooks = _Hooks()
            atexit.register(_collect)
        return _hooks


def _retire(slot: int, pool: _memory.Pool) -> None:
    if _hooks is not None:
        _hooks.library.umf_torch_leave_slot(slot)
    _retired.append(pool)
    _collect()


def _collect() -> None:
    """Closes retired pools that nothing is allocated from any more."""
    _torch_pools.drop_unwanted()
    if not _lock.acquire(blocking=False):
        return  # another thread does that, or this one, above
    try:
        empty = []
        for pool in list(_retired):
            pool.wait_pending(0)
            with contextlib.suppress(Error):  # most kinds have nothing else to trim
                pool.trim(0, 0)
            if pool.statistics().allocations == 0:
                _retired.remove(pool)
                empty.append(pool)
    finally:
        _lock.release()
    if empty and _hooks is not None:
        _hooks.library.umf_torch_quiesce()
    for pool in empty:
        pool.close()


def _allocator(pool: _memory.Pool, device: int) -> Tuple[int, Any]:
    hooks = _loaded()
    slot = hooks.library.umf_torch_take_slot(pool.handle, device)
    if slot < 0:
        raise OutOfResourcesError("64 pools of umf.torch are in use: drop one before")
    made: Any = torch._C._cuda_customAllocator(
        hooks.address(f"umf_torch_malloc_{slot}"), hooks.address("umf_torch_free")
    )
    return slot, made


class Pool(torch.cuda.MemPool):  # type: ignore[misc]
    """A pool of torch whose segments come from a pool of libumf, on one GPU.

    Args:
        kind: a kind of pool, or the whole text of a pool and its provider. Default: "proxy", since
            torch divides the segments itself.
        provider: text of the provider. Default: "cuda_vmm" of the device, which can be suspended.
        device: the GPU; default: the current one.
        keep: where a suspend keeps the content (``umf.Pool.set_policy``); None: the pool is
            of a provider that cannot be suspended.
        use_on_oom, no_split: as for ``torch.cuda.MemPool``.
        settings: settings of the pool by name.

    Raises:
        RuntimeError: torch has no CUDA.
        umf.DependencyError: there is no driver.
        umf.OutOfResourcesError: 64 pools are in use.

    A request that the GPU has no memory for trims all pools of this module, is tried once more, and
    then is ``torch.OutOfMemoryError``. Segments without tensors go back when the pool is dropped;
    memory of tensors lives on. A pool that is dropped while a thread is inside ``use`` of any pool
    goes after that.
    """

    def __init__(
        self,
        kind: str = "proxy",
        provider: Optional[str] = None,
        *,
        device: Optional[int] = None,
        keep: Optional[str] = "pinned",
        use_on_oom: bool = False,
        no_split: bool = False,
        **settings: object,
    ) -> None:
        _torch_process.check_torch("umf.torch.Pool")
        if not torch.cuda.is_available():
            raise RuntimeError("umf.torch.Pool needs a GPU by NVIDIA, and torch finds none")
        self.device = torch.cuda.current_device() if device is None else device
        if provider is None and " over " not in kind:
            provider = f"cuda_vmm:device={self.device}"
        _torch_pools.watch_captures()
        _collect()
        self.pool = _memory.Pool(kind, provider, **settings)
        if keep is not None:
            self.pool.set_policy(keep)
        self._slot, allocator = _allocator(self.pool, self.device)
        super().__init__(allocator, use_on_oom=use_on_oom, no_split=no_split)

    def __del__(self) -> None:
        """Torch ends the process when a pool goes while any is entered: this one waits for that."""
        slot = self.__dict__.get("_slot")
        if slot is not None and not sys.is_finalizing():
            _torch_pools.drop([self], functools.partial(_retire, slot, self.pool))

    @contextlib.contextmanager
    def use(self) -> Iterator["Pool"]:
        """Allocations of this thread on the pool's GPU inside come from the pool.

        That includes backward passes: they run in this thread inside, since torch serves only the
        thread that entered a pool. Contexts nest: the inner pool holds.

        Raises:
            umf.OutOfResourcesError: it is suspended. Torch would hand out memory that is not there, which
                is why nothing can suspend it inside either.
            RuntimeError: another thread is inside of the same pool.
        """
        if self.pool.residency().state != "resident":
            raise OutOfResourcesError("the pool is suspended: resume it, or use another")
        with self._kept_awake(), torch.cuda.device(self.device), _torch_pools.use(self):
            with torch.autograd.set_multithreading_enabled(False):
                yield self

    @contextlib.contextmanager
    def _kept_awake(self) -> Iterator[None]:
        """Nothing suspends the pool inside: torch would hand out memory of segments that have none."""
        try:
            self.pool.forbid_suspend()
        except NotSupportedError:  # nothing can suspend it
            yield
            return
        try:
            yield
        finally:
            self.pool.allow_suspend()

    def suspend(self, streams: Iterable[Any] = ()) -> _suspend.Report:
        """Gives the memory back; see ``umf.suspend``.

        Args:
            streams: ``torch.cuda.Stream`` whose work is waited for; none: all work of the GPU.

        Raises:
            umf.OutOfResourcesError: a thread is inside ``use`` of it, or captures a graph.
            umf.Error: as for ``umf.suspend``.
        """
        inside = _torch_pools.entered() + _torch_pools.entered_elsewhere()
        if any(one is self for one in inside):
            raise OutOfResourcesError(
                "the pool cannot be suspended: a thread is inside use() of it, and torch would hand out "
                "memory that is gone; suspend it after that"
            )
        with _torch_pools.refuse_captures("the pool", OutOfResourcesError):
            return _suspend.suspend(self.pool, queues=[stream.cuda_stream for stream in streams])

    def resume(self, streams: Iterable[Any] = ()) -> _suspend.Report:
        """Brings it back; see ``umf.resume``."""
        with _torch_pools.refuse_captures("the pool", OutOfResourcesError):
            return _suspend.resume(self.pool, queues=[stream.cuda_stream for stream in streams])

    @contextlib.contextmanager
    def registered(self, backend: Any) -> Iterator["Pool"]:
        """The pool's memory is registered with a process group inside, and cannot be suspended: the
        group would go on with memory that is gone.

        Args:
            backend: has ``register_mem_pool`` and ``deregister_mem_pool``, as torch's
                ``ProcessGroupNCCL``: ``group._get_backend(torch.device("cuda"))``.

        Raises:
            umf.OutOfResourcesError: the pool is suspended. A suspend inside raises it, too.
        """
        self.pool.forbid_suspend()
        try:
            backend.register_mem_pool(self)
            try:
                yield self
            finally:
                backend.deregister_mem_pool(self)
        finally:
            self.pool.allow_suspend()

    def residency(self) -> _memory.Residency:
        """Where the memory is."""
        return self.pool.residency()

    def __repr__(self) -> str:
        return f"<umf.torch.Pool {self.pool.text!r} on cuda:{self.device}>"


# --- tensors and buffers ---


class _OnDevice:
    """A buffer as another GPU sees it."""

    def __init__(self, memory: _memory.Buffer, device: int) -> None:
        self._memory, self._device = memory, (2, device)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._device

    def __dlpack__(self, **arguments: Any) -> object:
        arguments["dl_device"] = self._device
        return self._memory.__dlpack__(**arguments)


def tensor(
    memory: _memory.Buffer,
    dtype: Optional[Any] = None,
    shape: Optional[Tuple[int, ...]] = None,
    device: Optional[int] = None,
) -> Any:
    """A tensor on the memory of a buffer, which stays as long as the tensor.

    Args:
        memory: of the CPU or a GPU by NVIDIA.
        dtype: default: ``torch.uint8``. Its size must divide that of the buffer.
        shape: default: one dimension.
        device: the GPU whose tensor it is; default: the one that the memory is on.

    Raises:
        BufferError: that GPU does not reach the memory: ``Pool(provider="cuda_vmm:peers=1")``.
    """
    made = torch.from_dlpack(memory if device is None else _OnDevice(memory, device))
    if dtype is not None:
        made = made.view(dtype)
    return made if shape is None else made.view(shape)


def buffer(of: Any) -> _memory.Buffer:
    """The memory of a contiguous tensor, which stays as long as the buffer."""
    return _memory.from_dlpack(of.detach().view(-1).view(torch.uint8))


# --- tensors of other processes ---


class SharedTensor(NamedTuple):
    """Names a tensor to other processes; it pickles."""

    handle: _memory.IPCHandle
    dtype: Any
    shape: Tuple[int, ...]

    def open(self, device: Optional[int] = None) -> Any:
        """The tensor, on the memory of the process that shares it.

        Args:
            device: the GPU whose tensor it is; default: the one that the memory is on.

        Raises:
            umf.InvalidArgumentError: the memory is gone, or was suspended since.
            umf.Error: that GPU does not reach it.
        """
        memory = self.handle.open(device)
        return tensor(memory, self.dtype, self.shape)


def share(of: Any, pool: Pool) -> SharedTensor:
    """Shares a tensor of a pool whose provider shares: ``Pool(provider="cuda_vmm:share=fd")``.

    Args:
        of: a contiguous tensor of the pool. It must live until the others have opened it; their
            memory stays until they drop it, or the pool is suspended: they see the old memory then.
        pool: where it was allocated.

    Raises:
        ValueError: it is not contiguous or empty.
        umf.InvalidArgumentError: the provider does not share, or the tensor is of no pool.
    """
    if not of.is_contiguous() or of.numel() == 0:
        raise ValueError("only contiguous tensors with elements can be shared")
    data, out = _core.ipc_get(of.data_ptr())
    weakref.finalize(of.untyped_storage(), _core.ipc_put, out).atexit = False
    nbytes = of.numel() * of.element_size()
    handle = _memory.IPCHandle(data, nbytes, pool.pool.provider_text())
    return SharedTensor(handle, of.dtype, tuple(of.shape))
