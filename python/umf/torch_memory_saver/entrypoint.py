"""The memory saver that programs call."""

import atexit
import contextlib
import ctypes
import gc
import os
import threading
import weakref
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from .. import _torch_pools
from .binary_wrapper import BinaryWrapper
from .hooks.base import HookUtilBase
from .hooks.mode_preload import configure_subprocess
from .utils import check_environment, is_xpu

__all__ = ["TorchMemorySaver", "configure_subprocess", "is_xpu"]

_MODES = ("preload", "torch")
_BACKENDS = ("mmap", "pinned")
_DEFAULT_TAG = "default"
_TAG_SIZE = 256  # of saver.h

_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")

_PAUSED_LOST = 2  # of saver.h


class TorchMemorySaver:
    """Regions whose GPU memory can be given back and brought back.

    Nothing happens before the first call that needs the hook library: create it, fork, and use it
    in the child.
    """

    def __init__(self) -> None:
        self._impl_kwargs: Dict[str, Any] = {}
        self._impl: Optional["_TorchMemorySaverImpl"] = None

    @contextlib.contextmanager
    def region(
        self,
        tag: str = _DEFAULT_TAG,
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: Optional[str] = None,
    ) -> Iterator[None]:
        """GPU memory that this thread allocates inside belongs to ``tag``.

        Args:
            tag: name for ``pause`` and ``resume``.
            enable_cpu_backup: the content survives a pause, in memory of the host.
            enable_disk_backup: it survives in files; not together with the above.
            cpu_backup_backend: "pinned" (default, the fastest) or "mmap" (the system may swap it).

        Raises:
            ValueError: a backend without ``enable_cpu_backup``, unknown, or not there on this
                platform.
            RuntimeError: torch's expandable segments are on.
        """
        _check_tag(tag)
        _check_backup(enable_cpu_backup, cpu_backup_backend)
        assert not (
            enable_cpu_backup and enable_disk_backup
        ), "enable_cpu_backup and enable_disk_backup cannot be used together"
        impl = self._ensure_initialized()
        with impl.region(tag, enable_cpu_backup, enable_disk_backup, cpu_backup_backend):
            yield

    @contextlib.contextmanager
    def cuda_graph(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = _DEFAULT_TAG,
        enable_cpu_backup: bool = False,
        cpu_backup_backend: Optional[str] = None,
    ) -> Iterator[None]:
        """As ``torch.cuda.graph``, and the memory of the graph belongs to ``tag``.

        Replay it only while the tag is resumed.
        """
        _check_tag(tag)
        _check_backup(enable_cpu_backup, cpu_backup_backend)
        impl = self._ensure_initialized()
        with impl.cuda_graph(
            cuda_graph, pool, stream, capture_error_mode, tag, enable_cpu_backup, cpu_backup_backend
        ):
            yield

    @contextlib.contextmanager
    def disable(self) -> Iterator[None]:
        """Memory that is allocated inside, within a region, is ordinary: a pause leaves it.

        Raises:
            AssertionError: outside a region.
        """
        with self._ensure_initialized().disable():
            yield

    def pause(self, tag: Optional[str] = None) -> None:
        """Gives the memory of a tag back; ``None`` or "": of all tags. Waits for queued work.

        Inside a region of the tag this thread allocates from a new pool afterwards, which is awake.

        Raises:
            RuntimeError: nothing has changed then; another thread is inside a region of the tag, or
                there is no room for the content.
        """
        self._ensure_initialized().pause(tag)

    def resume(self, tag: Optional[str] = None) -> None:
        """Brings the memory of a tag back, and the content if it has a backup.

        Raises:
            RuntimeError: there is no memory; all of the tag stays paused, try again.
        """
        self._ensure_initialized().resume(tag)

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """The content of a paused tensor, as a tensor on the CPU.

        Args:
            x: a contiguous tensor on a GPU, allocated in a region.
            zero_copy: a view of the backup, valid until the resume, instead of a clone.

        Returns:
            None while it is resumed (unless the backup is retained), and for a backup on disk.

        Raises:
            RuntimeError: it is paused and has no backup.
        """
        return self._ensure_initialized().get_cpu_backup(x, zero_copy)

    def set_disk_backup_dir(self, path: Any) -> None:
        """The folder for backups on disk; it is created.

        Raises:
            ValueError: the path is empty.
            OSError: it cannot be created.
        """
        self._ensure_initialized().set_disk_backup_dir(path)

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether backups stay readable after a resume, at the same address."""
        return bool(self._ensure_initialized()._binary_wrapper.cdll.tms_get_retain_cpu_backup())

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        self._ensure_initialized()._binary_wrapper.cdll.tms_set_retain_cpu_backup(bool(value))

    @property
    def backup_lease(self) -> float:
        """Seconds from a resume to the time at which pinned host memory of its backups is given
        back: a pause within them is as fast as one that keeps its memory. After them it is given
        back in the background within 4 s, 128 MiB at a time; at once where the host lacks memory.
        0: within the resume, which then takes longer. Default: the environment variable
        ``UMF_BACKUP_LEASE``, else 5.

        Raises:
            ValueError: set to another number than 0 to 3600.
        """
        return float(self._ensure_initialized()._binary_wrapper.cdll.tms_get_backup_lease())

    @backup_lease.setter
    def backup_lease(self, value: float) -> None:
        if not self._ensure_initialized()._binary_wrapper.cdll.tms_set_backup_lease(float(value)):
            raise ValueError(f"backup_lease must be 0 to 3600 seconds, it is {value!r}")

    @property
    def memory_margin_bytes(self) -> int:
        """GPU memory that allocations of regions leave free. It can only be set."""
        raise NotImplementedError("memory_margin_bytes can only be set")

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        if not isinstance(value, int) or not 0 <= value < 1 << 64:
            raise ValueError(f"memory_margin_bytes must be 0 to {(1 << 64) - 1}, it is {value!r}")
        self._ensure_initialized()._binary_wrapper.cdll.set_memory_margin_bytes(value)

    @property
    def hook_mode(self) -> str:
        """"preload" (default) or "torch"; it can only be set, and before anything else."""
        raise AttributeError("hook_mode can only be set")

    @hook_mode.setter
    def hook_mode(self, value: str) -> None:
        if self._impl is not None:
            raise AttributeError("hook_mode must be set before the memory saver is used")
        if value not in _MODES:
            raise ValueError(f"hook_mode must be one of {', '.join(_MODES)}; it is {value!r}")
        self._impl_kwargs["hook_mode"] = value

    @property
    def enabled(self) -> bool:
        """True."""
        return True

    def _ensure_initialized(self) -> "_TorchMemorySaverImpl":
        if self._impl is None:
            self._impl = _TorchMemorySaverImpl(**self._impl_kwargs)
        return self._impl


def _check_tag(tag: str) -> None:
    if not isinstance(tag, str) or not 0 < len(tag.encode()) < _TAG_SIZE or "\0" in tag:
        raise ValueError(f"tag must be a text of 1 to {_TAG_SIZE - 1} bytes, it is {tag!r}")


def _check_backup(enable_cpu_backup: bool, backend: Optional[str]) -> None:
    if backend is None:
        return
    if backend not in _BACKENDS:
        raise ValueError(
            f"cpu_backup_backend must be one of {', '.join(_BACKENDS)}; it is {backend!r}"
        )
    if not enable_cpu_backup:
        raise ValueError(f"cpu_backup_backend={backend!r} requires enable_cpu_backup=True")
    if is_xpu():
        raise ValueError(f"cpu_backup_backend={backend!r} is not supported on XPU")
    import torch

    if backend == "mmap" and torch.version.hip:
        raise ValueError("cpu_backup_backend='mmap' is not supported on ROCm")


def _check_expandable_segments() -> None:
    names = [
        name for name in _SETTINGS if _torch_pools.has_expandable_segments(os.environ.get(name, ""))
    ]
    if not names and _torch_pools.are_segments_expandable():
        names = ["the settings of torch's allocator"]
    if names:
        raise RuntimeError(
            f"torch_memory_saver does not work with expandable_segments:True, it is in {names[0]}"
        )


_Key = Tuple[str, bool, bool, str, int]


class _TorchMemorySaverImpl:
    """State that exists once the hook library is loaded."""

    def __init__(self, hook_mode: str = "preload") -> None:
        import torch

        _check_expandable_segments()
        check_environment()
        self._environment_backend()
        if torch.version.cuda is None:
            raise RuntimeError(
                "umf.torch_memory_saver needs torch with CUDA; this one computes on "
                + ("ROCm" if torch.version.hip else "the CPU only")
            )
        self._hook_mode = hook_mode
        self._hook_util = HookUtilBase.create(hook_mode)
        self._binary_wrapper = BinaryWrapper(self._hook_util.get_path_binary())
        _torch_pools.watch_captures()
        self._mem_pools: Dict[_Key, Any] = {}
        self._asleep: Set[_Key] = set()
        self._inside: List[Tuple[int, _Key]] = []  # threads in regions
        self._pools_of_graphs: List[Tuple[Any, Any]] = []
        self._named_pools: Dict[Tuple[str, Any], Any] = {}
        self._asleep_named: Set[Tuple[str, Any]] = set()
        # Held over a pause: no thread enters a region of a tag that is about to sleep.
        self._lock = threading.Lock()
        self._process = os.getpid()
        atexit.register(self._release)

    # --- configuration of the thread ---

    @contextlib.contextmanager
    def _with_region_config(
        self,
        tag: str,
        enable_cpu_backup: bool,
        cpu_backup_backend: Optional[str] = None,
        enable_disk_backup: bool = False,
    ) -> Iterator[None]:
        before = self._binary_wrapper.get_config()
        self._binary_wrapper.set_config(
            tag=tag,
            interesting_region=True,
            enable_cpu_backup=enable_cpu_backup,
            enable_disk_backup=enable_disk_backup,
            cpu_backup_backend=cpu_backup_backend,
        )
        try:
            yield
        finally:
            self._binary_wrapper.set_config(**before)

    # --- pools of torch ---

    def _make_pool(self) -> Any:
        import torch

        allocator = self._hook_util.get_allocator()
        return torch.cuda.MemPool(allocator) if allocator is not None else torch.cuda.MemPool()

    def _pool_of_locked(self, key: _Key) -> Any:
        """The pool kept for a key. A new one if that sleeps: torch would serve small requests out of
        its segments, which have no memory. Tensors keep their memory of the old one."""
        if key in self._asleep:
            _torch_pools.drop([self._mem_pools.pop(key)])
            self._asleep.discard(key)
        if key not in self._mem_pools:
            self._mem_pools[key] = self._make_pool()
        return self._mem_pools[key]

    @contextlib.contextmanager
    def region(
        self, tag: str, enable_cpu_backup: bool, enable_disk_backup: bool, backend: Optional[str]
    ) -> Iterator[None]:
        import torch

        backend = backend or self._environment_backend()
        key_backend = backend if enable_cpu_backup else ""
        device = torch.cuda.current_device()
        key = (tag, enable_cpu_backup, enable_disk_backup, key_backend, device)
        with self._noted(key) as pool, _torch_pools.use(pool), self._with_region_config(
            tag=tag,
            enable_cpu_backup=enable_cpu_backup,
            cpu_backup_backend=backend,
            enable_disk_backup=enable_disk_backup,
        ):
            yield

    @contextlib.contextmanager
    def _noted(self, key: _Key) -> Iterator[Any]:
        """Yields the pool of a key; this thread is in a region of it inside."""
        note = (threading.get_ident(), key)
        with self._lock:
            pool = self._pool_of_locked(key)
            self._inside.append(note)
        try:
            yield pool
        finally:
            with self._lock:
                self._inside.remove(note)

    @staticmethod
    def _environment_backend() -> str:
        backend = os.environ.get("TMS_INIT_CPU_BACKUP_BACKEND") or "pinned"
        if backend not in _BACKENDS:
            raise ValueError(
                f"TMS_INIT_CPU_BACKUP_BACKEND must be one of {', '.join(_BACKENDS)}; it is "
                f"{backend!r}"
            )
        return backend

    @contextlib.contextmanager
    def cuda_graph(
        self,
        graph: Any,
        pool: Any,
        stream: Any,
        capture_error_mode: str,
        tag: str,
        enable_cpu_backup: bool,
        backend: Optional[str],
    ) -> Iterator[None]:
        import torch

        backend = backend or self._environment_backend()
        if self._hook_util.get_allocator() is not None:
            pool = self._graph_pool(graph, pool, tag)
        with torch.cuda.graph(
            graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode
        ), self._with_region_config(
            tag=tag, enable_cpu_backup=enable_cpu_backup, cpu_backup_backend=backend
        ):
            yield

    def _graph_pool(self, graph: Any, pool: Any, tag: str) -> Any:
        """A pool of ours in the place of one of torch's: its own for a graph without one, otherwise
        one for each that the caller names, or its own where that sleeps. Never a region's, whose
        tensors a replay would overwrite."""
        with self._lock:
            gone = [one for made, one in self._pools_of_graphs if made() is None]
            self._pools_of_graphs = [one for one in self._pools_of_graphs if one[0]() is not None]
            if pool is None or (tag, pool) in self._asleep_named:
                made = self._make_pool()
                self._pools_of_graphs.append((weakref.ref(graph), made))
            else:
                made = self._named_pools.get((tag, pool)) or self._make_pool()
                self._named_pools[(tag, pool)] = made
        _torch_pools.drop(gone)
        return made.id

    @contextlib.contextmanager
    def disable(self) -> Iterator[None]:
        cdll = self._binary_wrapper.cdll
        assert cdll.tms_get_interesting_region(), "disable() must be called inside a region"
        cdll.tms_set_interesting_region(False)
        temporary = [self._make_pool()]
        try:
            with _torch_pools.use(temporary[0]):
                yield
        finally:
            _torch_pools.drop(temporary)
            cdll.tms_set_interesting_region(True)

    # --- pause and resume ---

    @staticmethod
    def _encoded(tag: Optional[str]) -> Optional[bytes]:
        if tag is None or tag == "":
            return None
        _check_tag(tag)
        return tag.encode()

    def _raise(self, what: str, tag: Optional[str]) -> None:
        of = f"tag {tag!r}" if tag else "all tags"
        raise RuntimeError(f"{what} of {of} failed: {self._binary_wrapper.last_error()}")

    def _refuse_other_threads_locked(self, tag: Optional[str]) -> None:
        mine = threading.get_ident()
        tags = sorted({key[0] for who, key in self._inside if who != mine and tag in (None, "", key[0])})
        if tags:
            raise RuntimeError(
                f"{'tag' if len(tags) == 1 else 'tags'} {', '.join(map(repr, tags))} cannot be paused: "
                "another thread is inside a region, and torch would hand out memory that is gone; "
                "pause after the region"
            )

    def pause(self, tag: Optional[str]) -> None:
        name = self._encoded(tag)
        with self._lock, _torch_pools.refuse_captures("tags"):
            self._refuse_other_threads_locked(tag)
            if self._binary_wrapper.cdll.tms_pause(name) != 0:
                self._raise("pause", tag)
            self._asleep.update(key for key in self._mem_pools if not tag or key[0] == tag)
            self._asleep_named.update(key for key in self._named_pools if not tag or key[0] == tag)
            # This thread continues with new pools in the regions around it.
            mine = threading.get_ident()
            for key in {key for who, key in self._inside if who == mine and key in self._asleep}:
                old = self._mem_pools[key]
                _torch_pools.replace(old, self._pool_of_locked(key))

    def resume(self, tag: Optional[str]) -> None:
        name = self._encoded(tag)
        with _torch_pools.refuse_captures("tags"):
            if self._binary_wrapper.cdll.tms_resume(name) != 0:
                self._raise("resume", tag)
        with self._lock:
            for asleep in (self._asleep, self._asleep_named):
                asleep.difference_update([key for key in asleep if not tag or key[0] == tag])

    # --- backups ---

    def get_cpu_backup(self, x: Any, zero_copy: bool) -> Any:
        import torch

        assert x.is_cuda, f"x must be on a GPU, it is on {x.device}"
        assert x.is_contiguous(), "x must be contiguous"
        cdll, size = self._binary_wrapper.cdll, x.nbytes
        if size == 0:
            return None
        address = cdll.tms_get_cpu_backup_pointer(x.data_ptr(), size)
        if not address:
            if cdll.tms_state_of(x.data_ptr()) == _PAUSED_LOST:
                raise RuntimeError("the tensor is paused and has no CPU backup: its content is lost")
            return None
        bytes_ = (ctypes.c_uint8 * size).from_address(address)
        view = torch.frombuffer(bytes_, dtype=x.dtype).reshape(x.shape)
        return view if zero_copy else view.clone()

    def set_disk_backup_dir(self, path: Any) -> None:
        if not os.fspath(path):
            raise ValueError("path must name a folder, it is empty")
        os.makedirs(path, exist_ok=True)
        self._binary_wrapper.cdll.tms_set_disk_backup_dir(os.fsencode(path))

    def _release(self) -> None:
        """Pools before the allocator, while torch is still whole. A child of fork has no GPU."""
        if os.getpid() != self._process:
            return
        _torch_pools.drop(list(self._mem_pools.values()))
        self._mem_pools.clear()
        self._named_pools.clear()
        gc.collect()
