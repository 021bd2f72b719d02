"""Pools of libumf as the allocator of all of torch."""

import ctypes
import re
from pathlib import Path
from typing import Any, Iterable, List, NamedTuple, Optional

import torch

from . import _core, _memory, _suspend, _torch_pools, _torch_statistics
from ._errors import NotSupportedError, OutOfResourcesError

_FILE = Path(__file__).parent / "umf_torch_process.abi3.so"
_KINDS = ("cuda_vmm", "cuda")
_SETTERS = (
    ("set_record_stream_fn", "umf_torch_process_record_stream"),
    ("set_reset_fn", "umf_torch_process_reset"),
    ("set_memory_fraction_fn", "umf_torch_process_set_fraction"),
    ("set_begin_allocate_to_pool", "umf_torch_process_begin"),
    ("set_end_allocate_to_pool_fn", "umf_torch_process_end"),
    ("set_release_pool", "umf_torch_process_release"),
)


class ArenaStatistics(NamedTuple):
    """Bytes of an arena. Its peaks are never reset; those of ``torch.cuda.memory_stats`` are."""

    used: int  #: of tensors
    used_peak: int  #: the highest sum of them
    reserved: int  #: of pages of the GPU
    reserved_peak: int  #: the highest sum of them
    spare: int  #: of pages that are mapped nowhere
    stale: int  #: of old addresses that queued work may still use
    donated: int  #: of all pages that were moved so far


def _shares(provider: str) -> bool:
    return re.search(r"\bshare\s*=\s*(?!none\b)", provider) is not None


def _has_ranges(provider: object) -> bool:
    return isinstance(provider, str) and provider.partition(":")[0].strip() == "cuda_vmm"


class ProcessAllocator:
    """The allocator of torch in this process; `install` makes it.

    Each GPU has an arena, or each of its streams a ``coalescing`` pool; all pools of a GPU share a
    provider, and memory that one holds free serves the others before a request fails. A graph has
    pools of its own.
    """

    def __init__(self, provider: str, keep: Optional[str], arena: bool) -> None:
        if not _FILE.exists():
            raise RuntimeError("libumf was built without CUDA, so it cannot be torch's allocator")
        if keep is not None and keep not in _memory._KEEPS:
            raise ValueError(f"keep must be one of {', '.join(_memory._KEEPS)}; it is {keep!r}")
        if not isinstance(provider, str) or provider.partition(":")[0].strip() not in _KINDS:
            raise ValueError(
                f"provider must be {' or '.join(_KINDS)}, with settings as it goes; it is {provider!r}"
            )
        if arena and not _has_ranges(provider):
            raise ValueError(f"an arena needs the provider cuda_vmm, whose pages move; it is {provider!r}")
        _torch_pools.watch_captures()
        self.provider = provider
        self.arena = arena
        self._library = ctypes.CDLL(str(_FILE))
        self._library.umf_torch_process_configure.restype = None
        self._library.umf_torch_process_configure.argtypes = [
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_bool,
        ]
        self._library.umf_torch_process_configure(
            provider.encode(), -1 if keep is None else _memory._KEEPS.index(keep), arena
        )
        self._statistics = _torch_statistics.Statistics(self._library)
        self.allocator = torch.cuda.memory.CUDAPluggableAllocator(
            str(_FILE), "umf_torch_process_malloc", "umf_torch_process_free"
        )
        for setter, name in _SETTERS:
            address = ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value
            getattr(self.allocator.allocator(), setter)(address)

    def _places(self, device: Optional[int]) -> List[_torch_statistics.Place]:
        return _torch_statistics.places(self._library, device, True)

    def _move(
        self, device: Optional[int], streams: Iterable[Any], is_resume: bool
    ) -> _suspend.Report:
        handles = tuple(one.handle for one in self._places(device))
        queues = tuple(one.cuda_stream for one in streams)
        with _torch_pools.refuse_captures("memory of torch", OutOfResourcesError):
            moved = _core.move(handles, queues, (), is_resume) if handles else (0,) * 5
        return _suspend.Report(*moved)

    def suspend(self, streams: Iterable[Any] = (), device: Optional[int] = None) -> _suspend.Report:
        """Gives all memory of tensors back; addresses stay. See ``umf.suspend``.

        Args:
            streams: ``torch.cuda.Stream`` whose work is waited for; none: all work of the GPUs.
            device: number of a GPU; None: all.

        An allocation meanwhile is ``torch.OutOfMemoryError``.

        Raises:
            umf.OutOfResourcesError: a thread captures a graph.
            umf.Error: as for ``umf.suspend``.
        """
        return self._move(device, streams, False)

    def resume(self, streams: Iterable[Any] = (), device: Optional[int] = None) -> _suspend.Report:
        """Brings it back; see ``umf.resume``. Raises as ``suspend``."""
        return self._move(device, streams, True)

    def statistics(self, device: Optional[int] = None) -> _memory.Statistics:
        """Counters over all pools of a GPU, or of all GPUs."""
        pools, total = self._places(device), _torch_statistics.total
        return _memory.Statistics(
            allocations=total(pools, "alloc_count"),
            used=total(pools, "used_memory"),
            reserved=total(pools, "reserved_memory"),
        )

    def arena_statistics(self, device: Optional[int] = None) -> ArenaStatistics:
        """Counters of the arena of a GPU, or the sums over all GPUs; all 0 before the first tensor.

        Raises:
            umf.NotSupportedError: it has no arenas.
        """
        if not self.arena:
            raise NotSupportedError("this allocator has no arenas: umf.torch.install(arena=True)")
        names = ["used_memory", "used_peak", "reserved_memory", "reserved_peak"]
        names += ["spare_memory", "stale_memory", "donated_memory"]
        arenas = [one for one in self._places(device) if one.is_arena]
        return ArenaStatistics(*(_torch_statistics.total(arenas, name) for name in names))

    def __repr__(self) -> str:
        arena = ", arena" if self.arena else ""
        return f"<umf.torch.ProcessAllocator over {self.provider!r}{arena}>"


def check_torch(name: str) -> None:
    """RuntimeError where torch has no CUDA."""
    if torch.version.cuda is None:
        kind = "ROCm" if torch.version.hip else "the CPU only"
        raise RuntimeError(f"{name} needs torch with CUDA; this one computes on {kind}")


_installed: Optional[ProcessAllocator] = None


def install(
    provider: str = "cuda_vmm", keep: Optional[str] = "pinned", arena: Optional[bool] = None
) -> ProcessAllocator:
    """All GPU memory of torch comes from pools of libumf from now on.

    Args:
        provider: text of the provider, without ``device``, which each GPU adds.
        keep: where a suspend keeps the content (``umf.Pool.set_policy``); None: the provider
            cannot be suspended.
        arena: all streams of a GPU share an arena, whose free pages are moved to where tensors need
            them. It holds about 1 % more than the tensors of its highest moment, and
            ``record_stream`` delays no free. Name streams: a tensor that is used on a stream
            without ``record_stream`` may lose its address too early. None: where the provider
            is ``cuda_vmm`` without ``share``, as memory of an arena has no IPC handles. False:
            each stream has a pool.

    Returns:
        the allocator, the same at each call.

    Raises:
        ValueError: the provider is no memory of GPUs by NVIDIA, or no ``cuda_vmm`` with an arena, or
            ``keep`` is unknown.
        RuntimeError: torch has no CUDA, or has allocated already: call this first.

    Frees follow the order of streams; without an arena ``record_stream`` delays them until the other
    streams are done.
    Graphs keep their memory. Without memory everything free is given back, the request is tried once
    more, and then is ``torch.OutOfMemoryError``. Torch has no ``MemPool`` and no
    ``_record_memory_history`` with an allocator of the process: ``umf.torch.Pool`` has them, and
    ``umf.record`` records both.

    ``torch.cuda.memory_stats``, all functions that read it, both resets, ``memory_snapshot`` and the
    functions of ``torch.accelerator.memory`` answer from then on, for calls in Python. Bytes allocated
    are the sizes of tensors, each rounded up to 512 as by torch's own allocator, also while suspended.
    ``active`` is ``allocation``: a free that waits for another stream counts as free.
    Bytes reserved are those of ``statistics``, with suspended ones. All is of the ``large_pool``.
    ``umf.spare_bytes``, ``umf.stale_bytes`` and ``umf.donated_bytes`` are those of
    ``arena_statistics``. 0 are: ``segment``, ``inactive_split`` and their bytes, as with expandable
    segments; ``num_device_alloc``, ``num_device_free``, ``num_sync_all_streams``, ``oversize_*``, and
    "allocated" and "freed" of bytes reserved. A reset of peaks resets ``stats.peak_memory`` of the
    providers, and not the peaks of ``arena_statistics``. A snapshot has no traces, no frames, and the
    rounded sizes as requested ones.
    """
    global _installed
    check_torch("umf.torch.install")
    is_arena = _has_ranges(provider) and not _shares(provider) if arena is None else bool(arena)
    if _installed is None:
        made = ProcessAllocator(provider, keep, is_arena)
        try:
            torch.cuda.memory.change_current_allocator(made.allocator)
        except RuntimeError as error:
            raise RuntimeError(f"call umf.torch.install before torch has allocated: {error}") from error
        made._statistics.install()
        _installed = made
    elif _installed.provider != provider or (arena is not None and _installed.arena != is_arena):
        raise RuntimeError(f"torch allocates from {_installed!r} already")
    return _installed
