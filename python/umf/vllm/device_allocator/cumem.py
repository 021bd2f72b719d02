"""Memory pools of torch whose memory sleeps: the names of ``vllm.device_allocator.cumem``.

Users replace functions of this module and members of ``libcudart``, and write the records of
``CuMemAllocator.pointer_to_data``. So names are looked up at each call, and records are the truth.
While nothing is replaced, one call of the library moves all allocations, or none.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import logging
import os
import threading
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from ... import _torch_pools
from . import DEFERRABLE_TAGS, AllocationData, HandleType, MemAllocator

_logger = logging.getLogger(__name__)
_TRUE = ("1", "true", "TRUE", "yes", "YES")

_module: Any
try:
    _module = importlib.import_module("umf.vllm.cumem_allocator")
except ModuleNotFoundError:  # built without CUDA
    _module = None

cumem_available = _module is not None
lib_name: Optional[str] = getattr(_module, "__file__", None)
init_module: Any = getattr(_module, "init_module", None)
python_create_and_map: Any = getattr(_module, "python_create_and_map", None)
python_unmap_and_release: Any = getattr(_module, "python_unmap_and_release", None)

_OWN_MAP, _OWN_UNMAP = python_create_and_map, python_unmap_and_release

__all__ = [
    "AllocationData",
    "CuMemAllocator",
    "HandleType",
    "create_and_map",
    "cumem_available",
    "get_pluggable_allocator",
    "init_module",
    "lib_name",
    "libcudart",
    "python_create_and_map",
    "python_unmap_and_release",
    "unmap_and_release",
    "use_memory_pool_with_allocator",
]


class _CudaRuntime:
    """The few functions of the CUDA runtime that are called here, of the one in the process."""

    def _call(self, name: str, *args: Any) -> None:
        function = getattr(ctypes.CDLL(None), name, None) or self._loaded(name)
        result = function(*args)
        if result != 0:
            raise RuntimeError(f"CUDART error: {name} failed with {result}")

    @staticmethod
    def _loaded(name: str) -> Any:
        with open("/proc/self/maps") as maps:
            for line in maps:
                if "libcudart" in line:
                    return getattr(ctypes.CDLL(line.split(maxsplit=5)[-1].strip()), name)
        raise RuntimeError(f"{name}: there is no CUDA runtime in the process")

    @staticmethod
    def _pointer(value: Any) -> ctypes.c_void_p:
        return value if isinstance(value, ctypes.c_void_p) else ctypes.c_void_p(value)

    def cudaMemcpy(self, dst: Any, src: Any, count: int) -> None:
        """Copies bytes, in any direction."""
        whichever = 4
        self._call(
            "cudaMemcpy", self._pointer(dst), self._pointer(src), ctypes.c_size_t(count), whichever
        )

    def cudaMemset(self, devPtr: Any, value: int, count: int) -> None:
        """Fills bytes."""
        self._call("cudaMemset", self._pointer(devPtr), value, ctypes.c_size_t(count))


libcudart: Any = _CudaRuntime()
_OWN_COPY = _CudaRuntime.cudaMemcpy


def create_and_map(allocation_handle: HandleType) -> None:
    """Gives an allocation memory."""
    python_create_and_map(*allocation_handle)


def unmap_and_release(allocation_handle: HandleType) -> None:
    """Takes the memory of an allocation; the address stays."""
    python_unmap_and_release(*allocation_handle)


_OWN = {"create_and_map": create_and_map, "unmap_and_release": unmap_and_release}


def get_pluggable_allocator(
    python_malloc_fn: Callable[[HandleType], None], python_free_func: Callable[[int], HandleType]
) -> Any:
    """An allocator of torch that calls these two for each allocation and free."""
    from torch.cuda.memory import CUDAPluggableAllocator

    init_module(python_malloc_fn, python_free_func)
    return CUDAPluggableAllocator(lib_name, "my_malloc", "my_free")


@contextlib.contextmanager
def use_memory_pool_with_allocator(
    python_malloc_fn: Callable[[HandleType], None], python_free_func: Callable[[int], HandleType]
) -> Iterator[Tuple[Any, Any]]:
    """Allocations of this thread inside come from a new pool over such an allocator.

    Yields:
        the MemPool and the allocator; both must live as long as their memory.
    """
    import torch

    allocator = get_pluggable_allocator(python_malloc_fn, python_free_func)
    pool = torch.cuda.MemPool(allocator._allocator)
    with _torch_pools.use(pool):
        yield pool, allocator


# --- moving ---

_Records = List[Tuple[int, AllocationData]]


def _is_replaced(name: str) -> bool:
    own = {"create_and_map": _OWN_MAP, "unmap_and_release": _OWN_UNMAP}[name]
    return globals()[name] is not _OWN[name] or globals()[f"python_{name}"] is not own


def _copies_itself() -> bool:
    """Whether the copy function is our own."""
    return getattr(libcudart.cudaMemcpy, "__func__", None) is _OWN_COPY


def _host_tensor(address: int, size: int) -> Any:
    """A tensor on memory of the module, which goes back with it."""
    import torch

    memory = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(memory, _module._drop, address).atexit = False
    return torch.frombuffer(memory, dtype=torch.uint8)


def _copied_by_tag(records: _Records) -> List[Any]:
    """One call for each tag, since tags wake by themselves and then give pinned memory back."""
    made: Dict[int, Any] = {}
    for tag in {data.tag for _, data in records}:
        chosen = [(pointer, data.handle) for pointer, data in records if data.tag == tag]
        addresses = _module._save(tuple((handle[2],) for _, handle in chosen))
        for at, (pointer, handle) in zip(addresses, chosen):
            made[pointer] = _host_tensor(at, handle[1])
    return [made[pointer] for pointer, _ in records]


def _copied(records: _Records) -> List[Any]:
    """Contents, as tensors on the CPU."""
    if _copies_itself():
        return _copied_by_tag(records)
    import torch

    tensors = []
    for pointer, data in records:
        tensor = torch.empty(data.handle[1], dtype=torch.uint8, device="cpu", pin_memory=True)
        libcudart.cudaMemcpy(tensor.data_ptr(), pointer, data.handle[1])
        tensors.append(tensor)
    return tensors


def _copy_back(records: _Records) -> None:
    kept: List[Tuple[int, Any]] = [(at, data.cpu_backup_tensor) for at, data in records]
    sized = tuple((at, one.data_ptr(), one.numel() * one.element_size()) for at, one in kept)
    if _copies_itself():
        _module._load(sized)
        return
    for pointer, host, size in sized:
        libcudart.cudaMemcpy(pointer, host, size)


def _mark(records: _Records, is_asleep: bool) -> None:
    for _, data in records:
        data.is_asleep = is_asleep


def _take_memory(records: _Records) -> None:
    if not _is_replaced("unmap_and_release"):
        _module._sleep(tuple((data.handle[2],) for _, data in records))
        _mark(records, True)
        return
    for one in records:
        unmap_and_release(one[1].handle)
        _mark([one], True)


def _give_memory(records: _Records) -> None:
    if not _is_replaced("create_and_map"):
        _module._wake(tuple((data.handle[2],) for _, data in records))
        _mark(records, False)
        return
    for one in records:
        create_and_map(one[1].handle)
        _mark([one], False)


def _put_to_sleep(records: _Records, kept: _Records) -> None:
    """All of `records`, of which `kept` get a copy; or none."""
    import torch

    if not records:
        return
    if not _is_capturing():
        torch.cuda.synchronize()
    for (_, data), tensor in zip(kept, _copied(kept) if kept else []):
        data.cpu_backup_tensor = tensor
    try:
        _take_memory(records)
    except BaseException:
        _wake([one for one in records if one[1].is_asleep])
        # The library may have taken and given back some of it before it failed.
        awake = [one for one in kept if one[1].cpu_backup_tensor is not None]
        if awake:
            _copy_back(awake)
        raise
    finally:
        for _, data in records:
            if not data.is_asleep:
                data.cpu_backup_tensor = None


def _wake(records: _Records) -> None:
    """All of `records`, or none."""
    if not records:
        return
    kept = [one for one in records if one[1].cpu_backup_tensor is not None]
    try:
        _give_memory(records)
        if kept:
            _copy_back(kept)
    except BaseException:
        _take_memory([one for one in records if not one[1].is_asleep])
        raise
    for _, data in kept:
        data.cpu_backup_tensor = None


def _is_capturing() -> bool:
    import torch

    return bool(torch.cuda.is_current_stream_capturing())


def _listed(tags: Union[Tuple[str, ...], str]) -> Tuple[str, ...]:
    listed = (tags,) if isinstance(tags, str) else tags
    assert isinstance(listed, tuple), f"tags must be a tuple or a str, not {tags!r}"
    return listed


class CuMemAllocator(MemAllocator):
    """The allocator of the process; `get_instance` makes it.

    Attributes:
        allocator_and_pools: (MemPool, allocator) of each entry, by tag.
    """

    instance: Optional["CuMemAllocator"] = None
    default_tag: str = "default"

    @staticmethod
    def get_instance() -> "CuMemAllocator":
        """The one allocator. AssertionError where libumf was built without CUDA."""
        assert cumem_available, "cumem allocator is not available: libumf was built without CUDA"
        if CuMemAllocator.instance is None:
            CuMemAllocator.instance = CuMemAllocator()
            atexit.register(CuMemAllocator._at_exit)
        return CuMemAllocator.instance

    def __init__(self) -> None:
        self._records: Dict[int, AllocationData] = {}
        self._notes_lock = threading.RLock()
        self._is_reading = False
        _torch_pools.watch_captures()
        self._base_tag: str = CuMemAllocator.default_tag
        self._uses: List[List[Any]] = []  # [thread, tag] of each use that is entered
        self._tags: List[str] = []  # by the numbers that the module has
        self.allocator_and_pools: Dict[str, List[Tuple[Any, Any]]] = {}
        self._trimmed: Dict[int, HandleType] = {}
        self._retain = False
        if os.environ.get("UMF_VLLM_RETAIN_CPU_BACKUP", "") in _TRUE:
            self.retain_cpu_backup = True
        # Bound methods are made anew at each look-up; these live as long as the allocator.
        self.python_malloc_callback = self._python_malloc_callback
        self.python_free_callback = self._python_free_callback
        if type(self) is CuMemAllocator:
            _module._note_for(self.python_malloc_callback, self.python_free_callback)
        self._tell_tags()

    # --- records ---

    @property
    def pointer_to_data(self) -> Dict[int, AllocationData]:
        """A record of each allocation, by address. Look it up anew after allocations: unless callbacks are
        replaced, the module takes notes of allocations, which are read here."""
        with self._notes_lock:
            if not self._is_reading:  # a finalizer inside of this gets the records so far
                self._is_reading = True
                try:
                    self._read_notes()
                finally:
                    self._is_reading = False
        return self._records

    def _read_notes(self) -> None:
        for is_gone, tag, device, size, address, handle in _module._notes():
            if is_gone:
                self._forget(address)
            else:
                self._records[address] = AllocationData(
                    (device, size, address, handle), self._tags[tag]
                )

    def _forget(self, address: int) -> HandleType:
        data = self._records.pop(address, None)
        if data is None:  # a trim took it, or a user
            return self._trimmed.pop(address, (0, 0, address, 0))
        data.cpu_backup_tensor = None
        return data.handle

    def _python_malloc_callback(self, allocation_handle: HandleType) -> None:
        self.pointer_to_data[allocation_handle[2]] = AllocationData(
            allocation_handle, self.current_tag
        )

    def _python_free_callback(self, ptr: int) -> HandleType:
        import torch

        data = self.pointer_to_data.get(ptr)
        with _torch_pools.unless_captured() as is_free:
            if data is not None and not data.is_asleep and is_free and not _is_capturing():
                torch.cuda.synchronize()
        return self._forget(ptr)

    # --- tags ---

    @property
    def current_tag(self) -> str:
        """The tag of allocations by this thread now: of the use that it entered last, else of the last
        one of any thread, since threads of torch allocate for captures, too."""
        mine = threading.get_ident()
        for thread, tag in reversed(self._uses):
            if thread == mine:
                return str(tag)
        return str(self._uses[-1][1]) if self._uses else self._base_tag

    @current_tag.setter
    def current_tag(self, tag: str) -> None:
        mine = threading.get_ident()
        for use in reversed(self._uses):
            if use[0] == mine:
                use[1] = tag
                break
        else:
            self._base_tag = tag
        self._tell_tags()

    def _number(self, tag: str) -> int:
        if tag not in self._tags:
            self._tags.append(tag)
        return self._tags.index(tag)

    def _tell_tags(self) -> None:
        is_inside = any(thread == threading.get_ident() for thread, _ in self._uses)
        of_process = self._uses[-1][1] if self._uses else self._base_tag
        _module._tags(
            self._number(self.current_tag) if is_inside else -1, self._number(of_process)
        )

    @contextlib.contextmanager
    def _tagged(self, tag: str) -> Iterator[None]:
        use = [threading.get_ident(), tag]
        self._uses.append(use)
        self._tell_tags()
        try:
            yield
        finally:
            self._uses[:] = [one for one in self._uses if one is not use]
            self._tell_tags()

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether pinned host memory stays for the next sleep: that is faster, and the host lacks it
        meanwhile. Default: the environment variable ``UMF_VLLM_RETAIN_CPU_BACKUP``, else no."""
        return self._retain

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        self._retain = bool(value)
        _module._retain(self._retain)

    @property
    def backup_lease(self) -> float:
        """Seconds from a wake-up to the time at which its pinned host memory is given back: a sleep
        within them is as fast as with `retain_cpu_backup`. After them it is given back in the
        background within 4 s, 128 MiB at a time; at once where the host lacks memory. 0: within
        the wake-up, which then takes longer. Default: the environment variable
        ``UMF_BACKUP_LEASE``, else 5.

        Raises:
            ValueError: set to another number than 0 to 3600.
        """
        return float(_module._lease())

    @backup_lease.setter
    def backup_lease(self, value: float) -> None:
        _module._lease(float(value))

    # --- pools ---

    @contextlib.contextmanager
    def use_memory_pool(self, tag: Optional[str] = None) -> Iterator[None]:
        """Allocations of this thread inside belong to `tag`; None: the default tag."""
        if tag is None:
            tag = CuMemAllocator.default_tag
        assert isinstance(tag, str), f"tag must be a str, not {tag!r}"
        if tag != self.current_tag:
            self._trim(tag)
        with self._tagged(tag), _torch_pools.without_expandable_segments():
            with use_memory_pool_with_allocator(
                self.python_malloc_callback, self.python_free_callback
            ) as made:
                self.allocator_and_pools.setdefault(tag, []).append(made)
                yield
        self._trim(tag)

    def _make_pool(self) -> Tuple[Any, Any]:
        import torch

        allocator = get_pluggable_allocator(self.python_malloc_callback, self.python_free_callback)
        return torch.cuda.MemPool(allocator._allocator), allocator

    def _sleeps(self, pool: Any) -> bool:
        """Whether torch would hand out memory of a segment that has none."""
        records = [self.pointer_to_data.get(one["address"]) for one in _torch_pools.segments(pool)]
        return any(data is not None and data.is_asleep for data in records)

    @contextlib.contextmanager
    def cudagraph_pool(self) -> Iterator[Any]:
        """Yields the id of the pool for captures, whose memory has the tag "cudagraph"; a new one while
        that sleeps."""
        pools = self.allocator_and_pools.setdefault("cudagraph", [])
        if not pools or self._sleeps(pools[-1][0]):
            pools.append(self._make_pool())
        with self._tagged("cudagraph"), _torch_pools.without_expandable_segments():
            yield pools[-1][0].id

    def _leave_sleeping_pools(self) -> None:
        """Where this thread is inside of pools that sleep it goes on with new ones."""
        for pools in list(self.allocator_and_pools.values()):
            for pool, _ in list(pools):
                if any(one is pool for one in _torch_pools.entered()) and self._sleeps(pool):
                    pools.append(self._make_pool())
                    _torch_pools.replace(pool, pools[-1][0])

    def _refuse_other_threads(self, records: _Records) -> None:
        """Called after `records` was made: a thread that enters a pool later makes allocations of its own."""
        elsewhere = _torch_pools.entered_elsewhere()
        addresses = {pointer for pointer, _ in records}
        for tag, pools in list(self.allocator_and_pools.items()):
            for pool, _ in list(pools):
                found = {segment["address"] for segment in _torch_pools.segments(pool)}
                if any(one is pool for one in elsewhere) and found & addresses:
                    raise RuntimeError(
                        f"memory of tag {tag!r} cannot sleep: another thread is inside use_memory_pool, "
                        "and torch would hand out memory that is gone; sleep after that"
                    )

    def _trim(self, tag: str) -> None:
        """Segments without live bytes lose memory and record. Torch keeps their addresses until
        their pool goes; nothing allocates from an older pool. During a capture they wait for the
        next trim."""
        if tag == "cudagraph":
            return
        with _torch_pools.unless_captured() as is_free:
            for pool, _ in self.allocator_and_pools.get(tag, []) if is_free else []:
                for segment in _torch_pools.segments(pool):
                    data = self.pointer_to_data.get(segment["address"])
                    if segment["allocated_size"] == 0 and data is not None and not data.is_asleep:
                        del self.pointer_to_data[segment["address"]]
                        self._trimmed[segment["address"]] = data.handle
                        unmap_and_release(data.handle)
        self._drop_empty_pools(tag)

    def _drop_empty_pools(self, tag: str) -> None:
        """Else they would grow by one with each entry."""
        pools = self.allocator_and_pools.get(tag, [])
        gone = [
            made
            for made in pools[:-1]
            if all(one["address"] not in self.pointer_to_data for one in _torch_pools.segments(made[0]))
        ]
        pools[:] = [made for made in pools if made not in gone]
        _torch_pools.drop(list(gone))

    def release_pools(self) -> None:
        """Destroys the pools, then the allocators. May be called again."""
        made = [one for pools in self.allocator_and_pools.values() for one in pools]
        self.allocator_and_pools.clear()
        allocators = [allocator for _, allocator in made]
        pools = [pool for pool, _ in made]
        made.clear()
        _torch_pools.drop(pools)
        gc.collect()
        allocators.clear()

    def close(self) -> None:
        """As `release_pools`."""
        self.release_pools()

    @staticmethod
    def _at_exit() -> None:
        if CuMemAllocator.instance is not None:
            CuMemAllocator.instance.release_pools()
        _module._end()

    # --- sleep ---

    def _awake(self, tags: Optional[Iterable[str]] = None) -> _Records:
        return [
            (pointer, data)
            for pointer, data in list(self.pointer_to_data.items())
            if not data.is_asleep and (tags is None or data.tag in tags)
        ]

    def sleep(self, offload_tags: Union[Tuple[str, ...], str, None] = None) -> None:
        """Gives the memory of all allocations back, of all or of none.

        Inside `use_memory_pool` this thread allocates from a new pool afterwards, which is awake.

        Args:
            offload_tags: tags whose content is kept on the host; None: the default tag. The rest is
                lost.

        Raises:
            RuntimeError: all stay awake; another thread is inside `use_memory_pool`, a graph is
                captured, or memory is missing.
        """
        tags = _listed((CuMemAllocator.default_tag,) if offload_tags is None else offload_tags)
        for data in self.pointer_to_data.values():
            if data.is_asleep and (data.cpu_backup_tensor is not None) != (data.tag in tags):
                _logger.warning(
                    "allocations of tag %r sleep already, their content is %s",
                    data.tag,
                    "lost" if data.cpu_backup_tensor is None else "kept",
                )
                break
        with _torch_pools.refuse_captures("memory"):
            awake = self._awake()
            self._refuse_other_threads(awake)
            _put_to_sleep(awake, [one for one in awake if one[1].tag in tags])
        self._leave_sleeping_pools()
        _collect()

    def discard(self, tags: Union[Tuple[str, ...], str]) -> None:
        """Gives the memory of these tags back; their content is lost."""
        with _torch_pools.refuse_captures("memory"):
            awake = self._awake(_listed(tags))
            self._refuse_other_threads(awake)
            _put_to_sleep(awake, [])
        self._leave_sleeping_pools()
        _collect()

    def wake_up(self, tags: Optional[Any] = None) -> None:
        """Brings memory back, and the content that was kept; of all or of none.

        Args:
            tags: None: all; else these and all that are not deferrable (weights, kv_cache).

        Raises:
            RuntimeError: all stay asleep; `missing` bytes of memory are missing, or a graph is
                captured. Try again.
        """
        _collect()
        asleep = [
            (pointer, data)
            for pointer, data in list(self.pointer_to_data.items())
            if data.is_asleep
            and (tags is None or data.tag in tags or data.tag not in DEFERRABLE_TAGS)
        ]
        # Kept content comes first: its host memory, which has page tables on the device, is gone
        # before the rest needs room.
        kept = [one for one in asleep if one[1].cpu_backup_tensor is not None]
        lost = [one for one in asleep if one[1].cpu_backup_tensor is None]
        with _torch_pools.refuse_captures("memory"):
            _wake(kept)
            try:
                _wake(lost)
            except Exception:
                _put_to_sleep(kept, kept)
                raise

    def get_current_usage(self) -> int:
        """Bytes of all allocations, also of those asleep."""
        return sum(data.handle[1] for data in self.pointer_to_data.values())


def _collect() -> None:
    import torch

    gc.collect()
    torch.cuda.empty_cache()
