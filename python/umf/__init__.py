"""libumf: memory of the host and of GPUs in pools that can be suspended and shared.

    import umf

    with umf.Pool("disjoint", provider="os", capacity=8) as pool:
        with pool.allocate(1 << 20) as buffer:
            memoryview(buffer)[:4] = b"umf!"

Importing starts no thread and touches no driver. Errors of the library are ``umf.Error``.
"""

from typing import Any, Dict

from . import _core
from ._copy import copy, fill
from ._core import queue_ends
from ._counting import Counters, counting
from ._default import allocate, get_default_pool, set_default_pool, using
from ._errors import (
    CallbackError,
    DependencyError,
    Error,
    InvalidAlignmentError,
    InvalidArgumentError,
    InvalidPathError,
    NotSupportedError,
    OutOfMemoryError,
    OutOfResourcesError,
    ProviderError,
)
from ._hooks import MemoryHook
from ._memory import Buffer, IPCHandle, Pool, Provider, Residency, Statistics, from_bytes, from_dlpack
from ._paths import get_cmake_dir, get_include, get_library
from ._profile import ProfileEntry, Profiler, ProfileReport, profile
from ._record import Event, Leak, Recording, RecordingState, record, snapshot
from ._shortage import OutOfMemoryCallback, on_out_of_memory
from ._suspend import Job, Report, capturing, resume, resume_async, suspend, suspend_async, trim

__version__ = _core.VERSION

__all__ = [
    "Buffer",
    "CallbackError",
    "Counters",
    "DependencyError",
    "Error",
    "Event",
    "IPCHandle",
    "InvalidAlignmentError",
    "InvalidArgumentError",
    "InvalidPathError",
    "Job",
    "Leak",
    "MemoryHook",
    "NotSupportedError",
    "OutOfMemoryCallback",
    "OutOfMemoryError",
    "OutOfResourcesError",
    "Pool",
    "ProfileEntry",
    "ProfileReport",
    "Profiler",
    "Provider",
    "ProviderError",
    "Recording",
    "RecordingState",
    "Report",
    "Residency",
    "Statistics",
    "allocate",
    "capturing",
    "copy",
    "counting",
    "fill",
    "from_bytes",
    "from_dlpack",
    "get_cmake_dir",
    "get_default_pool",
    "get_include",
    "get_library",
    "info",
    "on_out_of_memory",
    "profile",
    "queue_ends",
    "record",
    "resume",
    "resume_async",
    "set_default_pool",
    "snapshot",
    "suspend",
    "suspend_async",
    "trim",
    "using",
]


def info() -> Dict[str, Any]:
    """Kinds of this machine.

    Returns:
        "version", and "providers" and "pools": for each kind None if it can work on this machine,
        otherwise the reason. Drivers are searched for.
    """
    return {
        "version": _core.VERSION,
        "providers": _core.kinds(False),
        "pools": _core.kinds(True),
    }
