"""Providers, pools, and the memory that they hand out."""

import operator
import re
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    List,
    NamedTuple,
    Optional,
    SupportsIndex,
    Tuple,
    TypeVar,
    Union,
    cast,
)

from . import _core, _limits

if TYPE_CHECKING:
    import numpy

# Devices as DLPack counts them.
_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED, _ONE_API = 1, 2, 3, 13, 14
_LEGACY = 0  # the default stream
# Kinds of memory as the library counts them.
_HOST, _DEVICE, _SHARED = 1, 2, 3

_Self = TypeVar("_Self", bound="_Closing")


class _Closing:
    """Closes at the end of a ``with``."""

    __slots__ = ()

    def close(self) -> None:
        """Ends it."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: Optional[object], *error: object) -> None:
        try:
            self.close()
        except BufferError:
            if kind is None:
                raise
            # The exception may hold the views that are in the way. It matters more; the last
            # reference closes then.


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return "+".join(_value_text(one) for one in value)
    text = str(value)
    plain = text and not any(c.isspace() or c in ',"\\' for c in text)
    return text if plain else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _kind_text(kind: str, settings: Dict[str, object]) -> str:
    """``kind:name=value,...``; ``kind`` may have settings of its own."""
    given = ",".join(f"{name}={_value_text(value)}" for name, value in settings.items())
    if not given:
        return kind
    return kind + ("," if ":" in kind else ":") + given


def _unquoted(text: str) -> str:
    """Creation text of the same length without the text in quotes."""
    return re.sub(r'"(?:\\.|[^"\\])*("|$)', lambda found: "x" * len(found[0]), text, flags=re.DOTALL)


def _settings(text: str) -> List[str]:
    """The settings ``name=value`` of creation text, between commas."""
    ends = [found.start() for found in re.finditer(",|$", _unquoted(text))]
    return [text[begin:end] for begin, end in zip([0, *(end + 1 for end in ends)], ends)]


def _split_over(text: str) -> Tuple[str, Optional[str]]:
    """The text of a pool and, if it is there, of the provider below."""
    over = re.search(r"(?<![=,:\s])\s+over\s+(?![=,])", _unquoted(text))
    return (text[: over.start()], text[over.end() :].strip()) if over else (text, None)


class Provider(_core.Provider, _Closing):
    """Where memory comes from.

    Args:
        kind: a kind of provider ("os", "cuda_vmm"), or all of its text
            ("os:visibility=shared").
        settings: settings of the kind by name; lists are joined, truth is yes or no:
            ``Provider("os", numa_mode="bind", numa_list=[0, 1])``.

    Raises:
        InvalidArgumentError: the text has a mistake.
        DependencyError: a driver is missing.
        Error: anything else that the library says.

    It can be closed when no pool on it is open. Safe to use from several threads, ``close`` too.
    """

    __slots__ = ()

    def __new__(cls, kind: str, **settings: object) -> "Provider":
        return cast("Provider", super().__new__(cls, _kind_text(kind, settings)))

    def statistics(self) -> "Statistics":
        """Bytes allocated from the provider, now and at most."""
        return Statistics(
            allocated=_core.ctl_get(
                "umf.provider.by_handle.{}.stats.allocated_memory", self
            ),
            peak=_core.ctl_get("umf.provider.by_handle.{}.stats.peak_memory", self),
        )

    def reset_peak(self) -> None:
        """Sets the peak of ``statistics`` to the bytes allocated now."""
        _core.ctl_run("umf.provider.by_handle.{}.stats.peak_memory.reset", self)

    def __repr__(self) -> str:
        return f"<umf.Provider {self.text!r}{' closed' if self.closed else ''}>"


class Statistics(NamedTuple):
    """Counters; None for a counter that the kind does not have."""

    allocated: Optional[int] = None
    """Bytes of a provider in use."""
    peak: Optional[int] = None
    """The most at once, in bytes: in use of a provider, held by a pool."""
    allocations: Optional[int] = None
    """Live allocations of a pool."""
    used: Optional[int] = None
    """Bytes of a pool in use, rounded as the pool rounds."""
    reserved: Optional[int] = None
    """Bytes that a pool holds."""


class Residency(NamedTuple):
    """Where the memory of a pool is; bytes."""

    state: str
    """"resident", "suspending", "suspended" or "resuming"."""
    reserved: int
    """Allocated from the provider."""
    resident: int
    """Of that, with physical memory."""
    pinned: int
    """Content kept in pinned memory of the host."""
    host: int
    """Content kept in ordinary memory of the host."""
    file: int
    """Content kept in files."""
    peer: int
    """Content kept on other devices."""


_STATES = ("resident", "suspending", "suspended", "resuming")
_KEEPS = ("pinned", "host", "file", "peer", "zero", "discard")


class Pool(_core.Pool, _Closing):
    """An allocator over one provider.

    Args:
        kind: a kind of pool ("disjoint", "coalescing", "proxy", ...), or the whole text of a pool
            and its provider ("disjoint:capacity=8 over os"); ``provider`` is not given then.
        provider: a ``Provider`` of the caller, which several pools may share, or the text of
            one that the pool owns. Default: "os".
        settings: settings of the pool by name, sizes in bytes or as "1M".

    Raises:
        InvalidArgumentError: a kind or a setting is not known or does not fit.
        Error: anything else that the library says.

    Usable from several threads at once, ``close`` too: with it, or at the end of a ``with``, all
    memory of the pool is invalid. It waits for calls in progress and for jobs; whatever uses the
    pool then raises ``ValueError``. The last reference closes, too.
    """

    __slots__ = ()

    def __new__(
        cls, kind: str, provider: Union[Provider, str, None] = None, **settings: object
    ) -> "Pool":
        below = provider if isinstance(provider, Provider) else None
        if below is not None:
            kind = _kind_text(kind, settings)
        elif provider is not None or _split_over(kind)[1] is None:
            kind = f"{_kind_text(kind, settings)} over {provider or 'os'}"
        elif settings:
            raise TypeError("settings belong into the text of the pool where that names all")
        return cast("Pool", super().__new__(cls, kind, below, Buffer))

    if TYPE_CHECKING:

        @property
        def provider(self) -> Optional[Provider]:
            """The Provider given, or None: it has one of its own."""

        def allocate(self, size: SupportsIndex, alignment: SupportsIndex = 0, stream: Any = None) -> "Buffer":
            """Allocates memory."""

    def provider_text(self) -> str:
        """The text of the provider below: another process makes one alike of it."""
        if self.provider is not None:
            return self.provider.text
        return _split_over(self.text)[1] or ""

    def set_policy(self, keep: str = "pinned", folder: Optional[str] = None, device: int = -1) -> None:
        """Sets where a suspend keeps the content, if at all.

        Args:
            keep: "pinned" (memory of the host, the fastest), "host", "file" (in ``folder``, without
                a name), "peer" (memory of the GPU ``device``), "zero" (reads as zero afterwards) or
                "discard" (not defined afterwards).
            folder: an existing folder, for "file".
            device: number of a GPU, for "peer".

        Raises:
            NotSupportedError: the pool cannot be suspended, or its provider cannot keep in that way.
            OutOfResourcesError: the pool is not resident.
        """
        if keep not in _KEEPS:
            raise ValueError(f"keep must be one of {', '.join(_KEEPS)}; it is {keep!r}")
        _core.set_policy(self, _KEEPS.index(keep), folder, device)

    def set_limit(self, size: Optional[SupportsIndex] = None, *, fraction: Optional[float] = None) -> None:
        """Limits the bytes that the pool holds from its provider, in use or free.

        Args:
            size: bytes; 0 or None: no limit.
            fraction: the same as a part, above 0 and at most 1, of the physical memory of the
                machine, or of the GPU for memory of a GPU.

        A request beyond it raises OutOfMemoryError, after the pool has released its free memory. If
        the pool holds more already, it releases free memory at once; memory in use stays.

        Raises:
            ValueError: a number is out of range, or both are given.
            NotSupportedError: the memory of the device is not known, so it has no fraction.
        """
        _core.limit_set(self, _limits.size_of(self, size, fraction))

    def get_limit(self) -> Optional[int]:
        """The limit of ``set_limit`` in bytes; None if there is none."""
        return _core.limit_get(self)[0]

    def residency(self) -> Residency:
        """Where the memory of the pool is, at any time."""
        state, *sizes = _core.residency(self)
        return Residency(_STATES[state], *sizes)

    def statistics(self) -> Statistics:
        """Counters of the pool."""

        def read(name: str) -> Optional[int]:
            return _core.ctl_get("umf.pool.by_handle.{}.stats." + name, self)

        return Statistics(
            allocations=read("alloc_count"),
            used=read("used_memory"),
            reserved=read("reserved_memory"),
            peak=_core.limit_get(self)[2],
        )

    def __repr__(self) -> str:
        return f"<umf.Pool {self.text!r}{' closed' if self.closed else ''}>"


class Buffer(_core.Buffer, _Closing):
    """Bytes of memory, of a pool, of another process, or of another library.

    It is freed with its last reference, by ``free``, or at the end of a ``with``. Memory that the
    CPU reaches has the buffer protocol (``memoryview(b)``, ``numpy.frombuffer(b)``). All memory has
    DLPack (``torch.from_dlpack(b)``): one dimension of ``uint8``. Memory of a GPU by NVIDIA also has
    ``__cuda_array_interface__``.

    Such views keep the memory: meanwhile it cannot be freed and its pool can be neither closed nor
    suspended. Views of a suspended pool's memory raise ``BufferError``. Items and slices of memory
    that the CPU reaches are those of a memoryview: ``b[0]`` is a number, ``b[2:5]`` such a view.

    ``copy.copy`` and ``copy.deepcopy`` allocate and copy, as they do for arrays. A pickle is none: it
    names the same memory.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def pool(self) -> Optional[Pool]:
            """The Pool; None for memory of another library."""

    def close(self) -> None:
        """As ``free``."""
        self.free()

    def dlpack_device(self) -> Tuple[int, int]:
        """Kind and number of the device, as DLPack counts them."""
        if self.origin == "foreign":
            return self._foreign_device
        kind, device = _core.memory_of(self.ptr)
        if kind == 0:
            return _CPU, 0
        is_cuda = _provider_kind(cast(Pool, self.pool)).startswith("cuda")
        if self.origin == "ipc" and is_cuda:  # of the device that it was opened for
            device = _provider_device(cast(Pool, self.pool))
        if kind == _HOST:
            return (_CUDA_HOST if is_cuda else _CPU), 0
        if not is_cuda:
            return _ONE_API, max(device, 0)
        return (_CUDA_MANAGED if kind == _SHARED else _CUDA), max(device, 0)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self.dlpack_device()

    def __dlpack__(
        self,
        *,
        stream: Optional[int] = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> object:
        """A capsule of the bytes.

        Args:
            stream: the consumer's. It waits for the stream of the buffer, and the buffer's free
                waits for it; without a stream the memory must be ready.
            max_version: (1, 0) and above get a versioned capsule.
            dl_device: where the consumer wants it: where it is, or a GPU by NVIDIA that reaches it
                (``peers`` of ``cuda_vmm``).
            copy: True is refused: nothing is copied.

        Raises:
            BufferError: the memory was freed or is suspended, or a request cannot be met.
        """
        device = self.dlpack_device()
        if dl_device is not None and tuple(dl_device) != device:
            if not self._is_reached_by(dl_device):
                raise BufferError(f"the memory is on device {device}, not on {tuple(dl_device)}")
            device = dl_device[0], dl_device[1]
        if copy:
            raise BufferError("umf does not copy for DLPack: copy the memory yourself")
        if device[0] == _CPU and stream not in (None, -1):
            raise BufferError(f"memory of the host has no streams, not {stream}")
        if device[0] != _CPU and stream == 0:
            raise BufferError("stream 0 may mean two things: 1 is the legacy default stream")
        if stream is not None and not (isinstance(stream, int) and stream >= -1):
            raise BufferError(f"stream must be None, -1, 1, 2 or the address of one, not {stream!r}")
        if device[0] == _CUDA and self.stream is not None and stream != -1:
            self._order(device[1], _LEGACY if stream is None or stream == 1 else stream)
        versioned = max_version is not None and max_version[0] >= 1
        return _core.dlpack_export(self, device[0], device[1], versioned)

    def _order(self, device: int, consumer: int) -> None:
        from . import _gpu

        result = _gpu.hooks().umf_cuda_order(device, self.stream, consumer)
        if result != 0:
            raise BufferError(f"stream {consumer:#x} cannot wait for the memory: CUDA error {result}")
        self.use_on(consumer)

    def _is_reached_by(self, device: Tuple[int, ...]) -> bool:
        if device[0] != _CUDA or self.dlpack_device()[0] != _CUDA:
            return False
        from . import _gpu  # with ctypes, which takes long to import

        return bool(_gpu.hooks().umf_cuda_reaches(device[1], self.ptr))

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        """Version 3, one dimension of bytes. AttributeError for memory of the host."""
        if self.dlpack_device()[0] not in (_CUDA, _CUDA_MANAGED):
            raise AttributeError("memory of the host has no __cuda_array_interface__")
        if cast(Pool, self.pool).residency().state != "resident":
            raise BufferError("the memory cannot be viewed: its pool is suspended; resume it before")
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.ptr, self.read_only),
            "version": 3,
            "strides": None,
            "stream": self.stream or (None if self.stream is None else 1),
        }

    def numpy(self, dtype: Any = "uint8", shape: Optional[Tuple[int, ...]] = None) -> "numpy.ndarray[Any, Any]":
        """A NumPy array on the memory, which the CPU must reach.

        Args:
            dtype: of the elements; its size must divide ``nbytes`` unless ``shape`` is given.
            shape: default: one dimension of all elements.
        """
        import numpy

        if shape is None:
            return numpy.frombuffer(cast(Any, self), dtype)
        count = int(numpy.prod(shape, dtype=numpy.int64))
        return numpy.frombuffer(cast(Any, self), dtype=dtype, count=count).reshape(shape)

    def resize(self, nbytes: SupportsIndex) -> None:
        """Has ``nbytes`` bytes from here on, of which the first are those of before.

        The memory moves: ``ptr`` changes, alignment is the pool's own.

        Raises:
            BufferError: views of the memory are in use.
            TypeError: it is of no pool of this process.
            Error: as ``Pool.allocate``; the buffer is as before then.
        """
        with self._twin(nbytes) as twin:
            self._exchange(twin)

    def copy_from(
        self, source: Any, nbytes: Optional[SupportsIndex] = None, *, stream: Any = None
    ) -> None:
        """Copies bytes to the start of this memory: ``umf.copy(self, source, nbytes)``.

        Args:
            source: memory as for ``umf.copy``: NumPy, DLPack, ``__cuda_array_interface__``, bytes.
            nbytes: default: all of the source.
            stream: that the copy is put on; default: the buffer's, if it has one.

        Raises as ``umf.copy``; BufferError if this memory is read-only.
        """
        from ._copy import copy

        copy(self, source, nbytes, queue=self._queue(stream))

    def copy_to(
        self, target: Any, nbytes: Optional[SupportsIndex] = None, *, stream: Any = None
    ) -> None:
        """Copies bytes from the start of this memory: ``umf.copy(target, self, nbytes)``.

        Args:
            target: writable memory as for ``umf.copy``.
            nbytes: default: all of this memory.
            stream: as for ``copy_from``.

        Raises as ``umf.copy``; BufferError if the target is read-only.
        """
        from ._copy import copy

        copy(target, self, nbytes, queue=self._queue(stream))

    def prefetch(self, device: Optional[SupportsIndex] = None, *, stream: Any = None) -> None:
        """Moves managed memory to a GPU, or to the host, before it is used there.

        Args:
            device: number of a GPU, -1: the host. Default: the GPU of the provider.
            stream: that the move is put on; default: the buffer's, else the legacy default stream.

        Returns at once. The content and the address do not change.

        Raises:
            InvalidArgumentError: the memory is not managed (provider "cuda:memory_type=managed"), or
                there is no such GPU.
            DependencyError: there is no driver.
            NotSupportedError: the driver, or the build of the library, has no prefetch.
        """
        number = max(_core.memory_of(self.ptr)[1], 0) if device is None else operator.index(device)
        _core.prefetch(self, number, self._queue(stream))

    def _queue(self, stream: Any) -> Any:
        return (self.stream or 0) if stream is None else stream

    def _twin(self, nbytes: SupportsIndex) -> "Buffer":
        """New memory of the same pool, for the same stream, with the bytes that fit."""
        if self.origin != "pool" or self.pool is None:
            raise TypeError(
                f"memory of origin {self.origin!r} has no pool here to allocate from: allocate a Buffer"
                " and umf.copy into it"
            )
        twin = self.pool.allocate(nbytes, stream=self.stream)
        _core.copy(twin, self, min(twin.nbytes, self.nbytes), self.stream or 0)
        return twin

    def __copy__(self) -> "Buffer":
        return self._twin(self.nbytes)

    def __deepcopy__(self, memo: object) -> "Buffer":
        return self._twin(self.nbytes)

    def ipc_handle(self) -> "IPCHandle":
        """Names the memory to other processes; it pickles.

        The caller must keep the memory until the consumers are done with it: after a free, or a
        close of the pool, they read the next allocation there. A suspend of the pool makes handles
        stale.

        Raises:
            InvalidArgumentError: the provider is not configured to share (``visibility=shared``,
                ``share=fd``).
            OutOfResourcesError: the pool is suspended.
        """
        return IPCHandle(_core.ipc_handle(self), self.nbytes, cast(Pool, self.pool).provider_text())

    def __reduce__(self) -> Tuple[object, ...]:
        return _open_shared, (self.ipc_handle(),)

    def __repr__(self) -> str:
        state = "freed" if self.freed else f"{self.nbytes} bytes at {self.ptr:#x}"
        return f"<umf.Buffer {state}, {self.origin}>"


def _provider_kind(pool: Pool) -> str:
    return pool.provider_text().split(":", 1)[0].strip()


def _provider_device(pool: Pool) -> int:
    """Number of the GPU in the text of the provider."""
    for setting in _settings(pool.provider_text().partition(":")[2]):
        name, _, value = setting.partition("=")
        if name.strip() == "device":
            return int(value)
    return 0


class IPCHandle(NamedTuple):
    """Names memory of one process to others, by pickle or any other way."""

    data: bytes
    """The handle in the private format of the library."""
    nbytes: int
    """Size of the memory."""
    provider: str
    """Text of the producer's provider."""

    def open(self, device: Optional[int] = None) -> Buffer:
        """The memory, mapped into this process until the buffer is freed.

        Args:
            device: the GPU that uses it, for memory of a GPU; default: the one that it is on.

        Raises:
            InvalidArgumentError: the memory is gone, or was suspended since.
            Error: that GPU does not reach it.
        """
        return _core.ipc_open(Buffer, _opener(self.provider, device), self.data, self.nbytes)


def _open_shared(handle: IPCHandle) -> Buffer:
    return handle.open()


_openers: Dict[Tuple[str, Optional[int]], Pool] = {}


def _opener(provider: str, device: Optional[int] = None) -> Pool:
    """The pool that opens all memory of one kind of provider in this process, for a device."""
    key = provider, device
    if key not in _openers:
        # A name is the producer's alone.
        others = ("shm_name",) if device is None else ("shm_name", "device", "peers")
        kind, _, settings = provider.partition(":")
        kept = [one for one in _settings(settings) if one and one.split("=")[0].strip() not in others]
        if device is not None:
            kept.append(f"device={device}")
        _openers[key] = Pool("proxy", provider=":".join([kind, ",".join(kept)]).rstrip(":"))
    return _openers[key]


def from_dlpack(source: Any) -> Buffer:
    """The bytes of another library's tensor, without a copy.

    Args:
        source: has ``__dlpack__``; contiguous and not empty.

    Raises:
        BufferError: it cannot be one row of bytes.
        TypeError: ``__dlpack__`` is missing, or returns no capsule.

    The tensor lives at least as long as the buffer.
    """
    try:
        capsule = source.__dlpack__(max_version=(1, 0))
    except TypeError:  # older than versions
        capsule = source.__dlpack__()
    return _core.dlpack_import(Buffer, capsule)


def from_bytes(
    data: Any, pool: Optional[Pool] = None, *, alignment: SupportsIndex = 0, stream: Any = None
) -> Buffer:
    """A new buffer of a pool with a copy of bytes.

    Args:
        data: at least one byte, of anything that has the buffer protocol.
        pool: where the memory is allocated; default: ``umf.get_default_pool()``.
        alignment, stream: as for ``Pool.allocate``; the copy is done on the stream.

    Raises as ``Pool.allocate`` and ``umf.copy``.
    """
    from ._default import get_default_pool  # which imports this module

    size = memoryview(data).nbytes
    made = (pool or get_default_pool()).allocate(size, alignment, stream)
    _core.copy(made, data, size, made.stream or 0)
    return made
