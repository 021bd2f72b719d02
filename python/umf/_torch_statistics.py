"""Torch's own statistics of GPU memory, under the allocator that ``umf.torch.install`` makes.

Torch asks its allocator in C++, and a pluggable one cannot answer. All of ``torch.cuda.memory`` and
``torch.accelerator.memory`` asks through a few functions of ``torch._C``, which are replaced here.
"""

import contextlib
import ctypes
import operator
from typing import Any, Dict, List, Optional, Tuple

import torch

from . import _core, _record
from ._errors import InvalidArgumentError

_DEVICES = 64  # with counts
_PARTS = ("current", "peak", "allocated", "freed")


class _Count(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in _PARTS]

    def as_dict(self) -> Dict[str, int]:
        return {name: getattr(self, name) for name in _PARTS}


class _Counts(ctypes.Structure):
    _fields_ = [
        ("blocks", _Count),
        ("bytes", _Count),
        ("requested", _Count),
        ("retries", ctypes.c_uint64),
        ("failures", ctypes.c_uint64),
    ]


class Place(ctypes.Structure):
    """A pool of the process."""

    _fields_ = [
        ("handle", ctypes.c_void_p),
        ("device", ctypes.c_int),
        ("is_arena", ctypes.c_int),
        ("graph", ctypes.c_ulonglong * 2),
        ("stream", ctypes.c_void_p),
    ]


def places(library: Any, device: Optional[int], settles: bool) -> List[Place]:
    """The pools of a GPU, or of all. `settles`: frees whose streams are done are completed before."""
    number = -1 if device is None else operator.index(device)
    count, room = 16, 0
    found: Any = ()
    while count > room:
        room = count
        found = (Place * room)()
        count = library.umf_torch_process_pools(number, settles, found, room)
    return list(found[:count])


def total(found: List[Place], name: str) -> int:
    """The sum of a counter over pools. One that another thread has just destroyed counts 0."""
    amount = 0
    for one in found:
        with contextlib.suppress(InvalidArgumentError):
            amount += _core.ctl_get("umf.pool.by_handle.{}.stats." + name, one.handle) or 0
    return amount


def _all(count: Dict[str, int]) -> Dict[str, Dict[str, int]]:
    """The library has one sort of pools, which is torch's for large blocks."""
    none = dict.fromkeys(count, 0)
    return {"all": count, "small_pool": none, "large_pool": dict(count)}


class Statistics:
    """Answers for torch, from the counts of the hooks, of pools and of providers."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.umf_torch_process_pools.restype = ctypes.c_size_t
        library.umf_torch_process_pools.argtypes = [
            ctypes.c_int,
            ctypes.c_bool,
            ctypes.c_void_p,
            ctypes.c_size_t,
        ]
        library.umf_torch_process_provider.restype = ctypes.c_void_p
        library.umf_torch_process_provider.argtypes = [ctypes.c_int]
        for name, more in (("counts", [ctypes.c_void_p]), ("reset_peaks", []), ("reset_totals", [])):
            function = getattr(library, f"umf_torch_process_{name}")
            function.restype = None
            function.argtypes = [ctypes.c_int, *more]

    def install(self) -> None:
        """Replaces functions of ``torch._C``, those that this torch has."""
        replacements = {
            "_cuda_memoryStats": self.read,
            "_cuda_resetPeakMemoryStats": self.reset_peaks,
            "_cuda_resetAccumulatedMemoryStats": self.reset_totals,
            "_cuda_memorySnapshot": self.snapshot,
            "_accelerator_getDeviceStats": self.read,
            "_accelerator_resetPeakStats": self.reset_peaks,
            "_accelerator_resetAccumulatedStats": self.reset_totals,
            # torch.accelerator goes on with torch's own allocator, which is not started.
            "_accelerator_isAllocatorInitialized": torch.cuda.is_initialized,
            "_accelerator_emptyCache": torch._C._cuda_emptyCache,
        }
        for name, function in replacements.items():
            if hasattr(torch._C, name):
                setattr(torch._C, name, function)

    def _peak(self, device: int, action: str = "") -> Tuple[str, Optional[int]]:
        """The counter of the provider of a GPU, which no policy of the library reads."""
        path = "umf.provider.by_handle.{}.stats.peak_memory" + action
        return path, self._library.umf_torch_process_provider(device)

    def read(self, device: int) -> Dict[str, Any]:
        """As ``torch._C._cuda_memoryStats``."""
        device = _checked(device)
        counts = _Counts()
        self._library.umf_torch_process_counts(device, ctypes.byref(counts))
        pools = places(self._library, device, False)
        reserved = total(pools, "reserved_memory")
        path, provider = self._peak(device)
        peak = (_core.ctl_get(path, provider) or 0) if provider else 0
        none = dict.fromkeys(_PARTS, 0)
        bytes_of = {**none, "current": reserved, "peak": max(peak, reserved)}
        arenas = [one for one in pools if one.is_arena]
        return {
            "num_alloc_retries": counts.retries,
            "num_ooms": counts.failures,
            "max_split_size": -1,
            "num_sync_all_streams": 0,
            "num_device_alloc": 0,
            "num_device_free": 0,
            "allocation": _all(counts.blocks.as_dict()),
            "segment": _all(none),
            "active": _all(counts.blocks.as_dict()),
            "inactive_split": _all(none),
            "allocated_bytes": _all(counts.bytes.as_dict()),
            "reserved_bytes": _all(bytes_of),
            "active_bytes": _all(counts.bytes.as_dict()),
            "inactive_split_bytes": _all(none),
            "requested_bytes": _all(counts.requested.as_dict()),
            "oversize_allocations": dict(none),
            "oversize_segments": dict(none),
            "umf": {f"{name}_bytes": total(arenas, f"{name}_memory") for name in ("spare", "stale", "donated")},
        }

    def reset_peaks(self, device: int) -> None:
        """As ``torch._C._cuda_resetPeakMemoryStats``."""
        device = _checked(device)
        self._library.umf_torch_process_reset_peaks(device)
        path, provider = self._peak(device, ".reset")
        if provider:
            _core.ctl_run(path, provider)

    def reset_totals(self, device: int) -> None:
        """As ``torch._C._cuda_resetAccumulatedMemoryStats``."""
        self._library.umf_torch_process_reset_totals(_checked(device))

    def snapshot(self, pool_id: Any = None) -> Dict[str, Any]:
        """As ``torch._C._cuda_memorySnapshot``, without traces."""
        wanted = tuple(pool_id or ())[:2]
        known = {one.handle: one for one in places(self._library, None, False)}
        segments = []
        for pool in _record.snapshot()["pools"]:
            place = known.get(pool["handle"])
            if place and (wanted in ((), (0, 0)) or wanted == tuple(place.graph)):
                segments += [_segment(place, span) for span in pool["spans"]]
        return {
            "segments": sorted(segments, key=lambda one: (one["device"], one["address"])),
            "device_traces": [[] for _ in range(torch.cuda.device_count())],
            "allocator_settings": {},
            "external_annotations": [],
        }


def _checked(device: int) -> int:
    number = operator.index(device)
    if not 0 <= number < min(torch.cuda.device_count(), _DEVICES):
        raise RuntimeError(f"Invalid device argument {number}: did you call init?")
    return number


def _blocks(span: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    for run in span["runs"]:
        is_live = run["state"] == "live"
        for at in range(run["count"]):
            found.append(
                {
                    "address": run["address"] + at * run["size"],
                    "size": run["size"],
                    "requested_size": run["size"] if is_live else 0,
                    "state": "active_allocated" if is_live else "inactive",
                    "frames": [],
                }
            )
    return found


def _segment(place: Place, span: Dict[str, Any]) -> Dict[str, Any]:
    blocks = _blocks(span)
    live = sum(block["size"] for block in blocks if block["state"] != "inactive")
    return {
        "device": place.device,
        "address": span["address"],
        "total_size": span["size"],
        "allocated_size": live,
        "active_size": live,
        "requested_size": live,
        "stream": place.stream or 0,
        "segment_type": "large",
        "segment_pool_id": tuple(place.graph),
        "is_expandable": True,  # it is in no count of segments, as in torch
        "frames": [],
        "blocks": blocks,
    }
