"""Vaults: named memory that outlives the processes that use it.

    from umf import vault

    with vault.Vault("model") as model:
        with model.draft() as draft:               # commits at the end, unless an exception leaves it
            draft.put("layers.0.weight", array)
            draft.load_safetensors("weights.safetensors")

    with vault.Vault("model") as model, model.attach(timeout=60) as view:   # any other process
        weights = view["layers.0.weight"].numpy()  # read-only, shared, not copied

Vaults and views may be used from several threads, drafts from one at a time. What another thread is
in a call of cannot be closed: BufferError.

Memory of GPUs: `device` of a draft, `devices` of an attach.

    with model.draft(device="cuda") as draft:          # entries in memory of the GPU
        draft.load_safetensors("weights.safetensors")
    with model.attach(devices="cuda") as view:         # any other process
        weights = view["layers.0.weight"].torch()      # a tensor on the same memory

The first `Vault` starts the service, `umfd`, if none runs. Importing does nothing. A vault with the name
`file:<folder>` needs no service: its generations are files, which also outlive a boot.
"""

import operator
import os
import threading
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

from . import _core
from ._copy import copy
from ._errors import Error, NotSupportedError
from ._memory import Buffer, _Closing
from ._tensors import (
    Tensor,
    bytes_of_array,
    count_of,
    fill_from,
    files_of,
    numpy_name,
    read_all,
    read_head,
    tensor_of_array,
    tensor_of_dlpack,
    tensor_of_interface,
    tensor_of_note,
)

if TYPE_CHECKING:
    from .remote import Remote

__all__ = [
    "Claim",
    "ClaimState",
    "Draft",
    "Entry",
    "Event",
    "State",
    "Vault",
    "View",
    "list_vaults",
    "load_safetensors",
    "stop",
]

_PRIVATE, _ZERO = 1, 2
_ALIGNMENT, _ALIGNMENT_OF_GPU = 64, 256
_FENCES = {"wait": 0, "epoch": 1, "kill": 2}
_EVENTS = {1: "committed", 2: "dropped", 3: "aborted", 4: "reader_ended", 5: "evicted", 6: "refilled", 7: "unclaimed"}
_Path = Union[str, "os.PathLike[str]"]
_HOST = "linux_vmm"
_CPU, _CUDA = 1, 2  # devices, as DLPack counts them


_Found = Tuple[bytes, int, int, bytes, int, int]  # key, address, bytes, note, flags, device


class State(NamedTuple):
    """The state of a vault: sizes in bytes; 0 is none, of `limit` no limit.

    `devices` is how many devices have memory of it, `device_bytes` how much of `bytes` that is, `device` the first
    of them by its UUID, or ""; `copy_bytes` how much of `bytes` are copies of it (`Vault.snapshot`), and `evicted` how
    many generations have only these. `claims` is how many keys have writable memory, see `Vault.claims`.
    """

    current: int
    generations: int
    bytes: int
    readers: int
    limit: int
    restarts: int
    event: int
    writer: int
    devices: int
    device_bytes: int
    device: str
    copy_bytes: int
    evicted: int
    claims: int


class ClaimState(NamedTuple):
    """Writable memory of a vault: `process` is one of its `holders`, or 0; `device` the UUID of its GPU, or ""."""

    key: str
    nbytes: int
    note_nbytes: int
    epoch: int
    holders: int
    process: int
    shared: bool
    device: str


class Event(NamedTuple):
    """An event: `committed`, `dropped`, `aborted`, `reader_ended`, `evicted`, `refilled` or `unclaimed`.

    Of `unclaimed`, `generation` is the epoch that the client had; 0: one that had lost its claim to a
    fence before no longer has the memory mapped.
    """

    number: int
    kind: str
    generation: int


def _ms(seconds: float) -> int:
    return int(min(max(0.0, seconds), 1e15) * 1000)


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def _path(folder: Optional[_Path]) -> Optional[str]:
    return None if folder is None else os.fspath(folder)


def _provider(device: Any) -> str:
    """The text of the provider for a device, as users name it."""
    if not isinstance(device, str):
        kind = getattr(device, "type", None)  # a torch.device
        if kind is None:
            number = operator.index(device)
            if number < 0:
                raise ValueError(f"there is no GPU {number}")
            return f"cuda_vmm:device={number}"
        device = kind if device.index is None else f"{kind}:{device.index}"
    kind, _, number = device.partition(":")
    if kind == "cpu" and (not number or number.isdigit()):
        return _HOST
    if kind != "cuda" or (number and not number.isdigit()):
        return str(device)
    return f"cuda_vmm:device={number}" if number else "cuda_vmm"


def _source_of(data: Any) -> Tuple[Any, int, Optional[Tensor]]:
    """What `umf.copy` takes, its bytes, and the tensor that it is, if it says so."""
    if hasattr(data, "__array_interface__"):
        flat = bytes_of_array(data)
        return flat, flat.nbytes, tensor_of_array(data)
    if isinstance(data, Entry) and data.device >= 0:
        return data, data.nbytes, data.tensor
    try:
        view = memoryview(data)
    except (TypeError, BufferError):
        if hasattr(data, "__dlpack__"):
            return _source_of_dlpack(data)
        if hasattr(data, "__cuda_array_interface__"):
            return (data, *tensor_of_interface(data.__cuda_array_interface__))
        raise
    tensor = data.tensor if isinstance(data, Entry) else None
    return (view.cast("B") if view.nbytes else view), view.nbytes, tensor


def _source_of_dlpack(data: Any) -> Tuple[Any, int, Optional[Tensor]]:
    try:
        capsule = data.__dlpack__(max_version=(1, 0))
    except TypeError:  # older than versions
        capsule = data.__dlpack__()
    code, bits, lanes, shape = _core.dlpack_about(capsule)
    tensor = tensor_of_dlpack(code, bits, lanes, shape)
    if count_of(shape) == 0:
        return b"", 0, tensor
    found = _core.dlpack_import(Buffer, capsule)
    return found, found.nbytes, tensor


class Entry(_core.Region):
    """Memory of a name: ``device`` is the number of its GPU, or -1.

    Memory of the host has the buffer protocol, ``memoryview(entry)``, ``bytes(entry)``, and DLPack; memory of a GPU
    has DLPack and ``__cuda_array_interface__``, and `umf.copy` takes both. A view of it keeps the draft or view where
    it is, which then cannot end.
    """

    __slots__ = ("_is_writable", "flags", "key", "note")

    _is_writable: bool
    key: str
    note: bytes
    flags: int

    @classmethod
    def _of(cls, hold: _core.Hold, found: _Found, is_writable: bool) -> "Entry":
        entry = cls(hold, found[1], found[2], is_writable, found[5])
        entry._is_writable = is_writable
        entry.key, entry.note, entry.flags = _text(found[0]), found[3], found[4]
        return entry

    @property
    def private(self) -> bool:
        """Whether each reader can write its own copy."""
        return bool(self.flags & _PRIVATE)

    @property
    def tensor(self) -> Optional[Tensor]:
        """Type and shape, if the note has them."""
        return tensor_of_note(self.note)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        """Version 3, with type and shape of the note, or the bytes. AttributeError for memory of the host.

        It has no way to say how long it is used, so the entry is a view of its memory from then on: the draft or view
        cannot end before the entry has gone.
        """
        if self.device < 0:
            raise AttributeError("memory of the host has no __cuda_array_interface__")
        self.pin()
        tensor = self.tensor
        name = tensor.typestr() if tensor and tensor.nbytes() <= self.nbytes else None
        return {
            "shape": tensor.shape if tensor and name else (self.nbytes,),
            "typestr": name or "|u1",
            "data": (self.ptr, not self._is_writable),
            "version": 3,
            "strides": None,
            "stream": None,
        }

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (_CPU, 0) if self.device < 0 else (_CUDA, self.device)

    def __dlpack__(
        self,
        *,
        stream: Optional[int] = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> object:
        """A capsule of the tensor of the note, or of the bytes if it has none.

        Args:
            stream: memory of the host has none; nothing is queued on committed memory of a GPU
            max_version: (1, 0) and above get a versioned capsule, as read-only memory needs
            dl_device: where the consumer wants it, which is where it is
            copy: True is refused: nothing is copied

        Raises:
            BufferError: a request cannot be met.
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            where = "the host" if self.device < 0 else f"GPU {self.device}"
            raise BufferError(f"the memory is of {where}, not on device {tuple(dl_device)}")
        if copy:
            raise BufferError("umf does not copy for DLPack: copy the memory yourself")
        if self.device < 0 and stream not in (None, -1):
            raise BufferError(f"memory of the host has no streams, not {stream}")
        versioned = max_version is not None and max_version[0] >= 1
        if not versioned and not self._is_writable:
            raise BufferError("the memory is read-only, which only versioned DLPack can say")
        return self._capsule(self.tensor, versioned)

    def _capsule(self, tensor: Optional[Tensor], versioned: bool) -> object:
        kind = tensor.dlpack() if tensor and tensor.nbytes() <= self.nbytes else None
        if tensor is None or kind is None:
            return _core.dlpack_region(self, *Tensor("U8", ()).dlpack() or (1, 1), (self.nbytes,), versioned)
        return _core.dlpack_region(self, *kind, tensor.shape, versioned)

    def torch(self) -> Any:
        """A tensor of PyTorch on the memory, of the host or a GPU, with type and shape of the note.

        PyTorch has no read-only tensors: a write to one of an entry that is not `private` ends the process
        with SIGSEGV; on a GPU it is an illegal access, after which CUDA refuses all calls of the process.
        """
        from ._vault_torch import tensor_of_entry

        return tensor_of_entry(self)

    def numpy(self, dtype: Any = None, shape: Optional[Tuple[int, ...]] = None) -> Any:
        """A NumPy array on the memory; BufferError if that is of a GPU.

        Args:
            dtype: of the elements; None: that of the note, or bytes if it has none
            shape: None: that of the note, or one dimension of all elements
        """
        import numpy

        tensor = self.tensor
        if tensor and tensor.nbytes() <= self.nbytes:
            if dtype is None:
                dtype = numpy_name(tensor.dtype)
            if shape is None and numpy.dtype(dtype).itemsize * count_of(tensor.shape) == tensor.nbytes():
                shape = tensor.shape
        dtype = numpy.dtype("uint8" if dtype is None else dtype)
        buffer: Any = self
        if shape is None:
            return numpy.frombuffer(buffer, dtype)
        count = count_of(shape)
        if count == 0:
            return numpy.empty(shape, dtype)
        return numpy.frombuffer(buffer, dtype, count=count).reshape(shape)


class View(_Closing, Mapping[str, Entry]):
    """A generation that is attached: names and their memory, read-only.

    It is equal to itself only, and has a hash: two views of a generation have memory at different addresses.
    """

    __slots__ = ("_hold", "_uses", "_vault", "generation")
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(
        self, vault: "Vault", generation: int, timeout: float, identity: Optional[bytes], devices: Any = None
    ) -> None:
        text = None if devices is None else _provider(devices)
        self._vault = vault
        self._uses = _core.Uses("view", _core.vault_detach, vault._uses)
        self._hold = _core.Hold(vault._hold, self._uses)
        with vault._uses as number:
            self.generation: int = self._uses.open(_core.vault_attach, number, generation, _ms(timeout), identity, text)

    def __getitem__(self, key: str) -> Entry:
        found = None
        if isinstance(key, str) and "\0" not in key:
            with self._uses as number:
                found = _core.vault_find(number, _bytes(key))
        if found is None:
            raise KeyError(key)
        return self._entry(found)

    def __iter__(self) -> Iterator[str]:
        return (_text(found[0]) for found in self._each(""))

    def __len__(self) -> int:
        return len(self._each(""))

    def entries(self, prefix: str = "") -> List[Entry]:
        """The entries whose names begin so, by name."""
        return [self._entry(found) for found in self._each(prefix)]

    def module(self, module: Any, prefix: str = "") -> Any:
        """Gives a module of PyTorch the tensors of this view, without a copy, and returns it.

        Parameters become tensors on the shared memory, of the host or of GPUs, which require no gradient and must
        not be written: PyTorch has no read-only tensors, see `Entry.torch`. Buffers become such
        tensors too, or memory of their own if their entry is `private`, as `Draft.put_module` makes it. The module may have been
        made on the device ``meta``. The view cannot be closed while tensors of it live.

        Args:
            module: a ``torch.nn.Module``
            prefix: of the names

        Raises:
            KeyError: a parameter, or a buffer on ``meta``, has no entry.
            ValueError: an entry has another type or shape. In both cases nothing was changed.
        """
        from ._vault_torch import fill_module

        return fill_module(self, module, prefix)

    def verify(self, prefix: str = "") -> int:
        """Reads the entries whose names begin so, compares them with the sums of the commit, and returns how many.

        InvalidArgumentError names an entry that differs; NotSupportedError: none has a sum.
        """
        count = 0
        for entry in self.entries(prefix):
            with self._uses as number:
                try:
                    _core.vault_verify(number, _bytes(entry.key))
                    count += 1
                except NotSupportedError:  # without content, or kept without its sum
                    pass
        if count == 0:
            raise NotSupportedError("no entry has a sum")
        return count

    @property
    def suspended(self) -> bool:
        """Whether its memory is out of the process: `resume` brings it back."""
        return self._hold.is_away

    def suspend(self, queues: Iterable[Any] = (), events: Iterable[Any] = (), *, in_use: bool = False) -> None:
        """Takes the shared memory of the view out of this process; the addresses and the content stay.

        Entries that are `private` or without content stay as they are. Nothing can be read until `resume`.

        Args:
            queues: addresses of native queues, or streams, whose work is waited for
            events: addresses of native events. Without queues and events all work of the devices is waited for
            in_use: True: also while arrays and tensors of the memory live, which must not be touched until it is back:
                a read ends the process, or on a GPU its CUDA

        Raises:
            BufferError: the memory is in use, or another thread is in a call of the view.
            Error: the work could not be waited for. Nothing was changed.
        """
        self._uses.alone(self._suspend, tuple(queues), tuple(events), in_use)

    def resume(self) -> None:
        """Brings the memory of a suspended view back, to its addresses. Does nothing if it is there.

        Raises:
            BufferError: another thread is in a call of the view.
            Error: `reason` is ``UMF_REASON_STALE`` if the vault has lost the generation. The view stays suspended.
        """
        self._uses.alone(self._resume)

    def move(
        self, generation: int = 0, queues: Iterable[Any] = (), events: Iterable[Any] = (), *, in_use: bool = False
    ) -> int:
        """Makes it a view of another generation of the same layout: new content at the same addresses.

        Entries that were taken before, with arrays and tensors on them, have the new content; their notes are those
        of before. A suspended view is resumed by it.

        Args:
            generation: its number; 0: the current one
            queues, events, in_use: as for `suspend`

        Returns:
            the number of the generation

        Raises:
            BufferError: as for `suspend`.
            Error: `reason` is ``UMF_REASON_IDENTITY`` if the layout differs. The view is of its former generation; if
                its memory could not be brought back, it is suspended.
        """
        number: int = self._uses.alone(self._move, generation, tuple(queues), tuple(events), in_use)
        return number

    def close(self) -> None:
        """Unmaps it. BufferError while arrays or other views of its memory, or calls, are in use.

        Error: work that is queued on a device could not be waited for, as while a stream is captured. The view stays.
        """
        _end(self._uses, self._hold, "detached", _core.vault_detach)

    def _suspend(self, number: int, queues: Tuple[Any, ...], events: Tuple[Any, ...], in_use: bool) -> None:
        if self._hold.is_away:
            return
        try:
            self._hold.leave(in_use)
            _core.vault_suspend(number, queues, events)
        except BaseException:
            self._come_back(number)
            raise

    def _resume(self, number: int) -> None:
        self._hold.back(_core.vault_resume, number)

    def _move(self, number: int, generation: int, queues: Tuple[Any, ...], events: Tuple[Any, ...], in_use: bool) -> int:
        was_away = self._hold.is_away
        try:
            self._hold.leave(in_use or was_away)
            self.generation = self._hold.back(_core.vault_move, number, generation, queues, events)
        except BaseException:  # a handler of a signal may raise it after the move
            if not was_away:
                self._come_back(number)
            self.generation = _core.vault_generation(number)
            raise
        return self.generation

    def _come_back(self, number: int) -> None:
        """After a failure; what does not come back stays suspended."""
        with suppress(Error):
            self._resume(number)

    def _each(self, prefix: str) -> List[_Found]:
        with self._uses as number:
            return _core.vault_each(number, _bytes(prefix))

    def _entry(self, found: _Found) -> Entry:
        return Entry._of(self._hold, found, found[4] != 0)


class Draft:
    """A generation that is being written, by one thread at a time.

    Entries are in memory of the draft's device, or of the `device` of a call: None is the draft's, "cpu" the host. Others
    are as for `Vault.draft`. The end of a ``with`` commits it; an exception that leaves the block aborts it.
    """

    __slots__ = ("_hold", "_lock", "_pools", "_process", "_provider", "_uses", "_vault", "generation")

    def __init__(
        self,
        vault: "Vault",
        timeout: float,
        from_generation: int,
        replace: bool,
        identity: Optional[bytes],
        device: Any = None,
    ) -> None:
        self._vault = vault
        self._provider = _HOST if device is None else _provider(device)
        copies = None if self._provider == _HOST else f"proxy over {self._provider}"
        self._uses = _core.Uses("draft", _core.vault_abort, vault._uses)
        self._hold = _core.Hold(vault._hold, self._uses)
        self._pools: Dict[Tuple[int, str], int] = {}
        self._lock = threading.RLock()
        self._process = os.getpid()
        self.generation: Optional[int] = None
        with vault._uses as number:
            self._uses.open(_core.vault_begin, number, _ms(timeout), from_generation, replace, identity, copies)

    def put(
        self, key: str, data: Any, *, note: Optional[bytes] = None, private: bool = False, device: Any = None
    ) -> None:
        """Copies memory, such as an array, a tensor or bytes, into an entry.

        Args:
            key: its name, 1 to 255 bytes
            data: a tensor of PyTorch, on any device, or anything contiguous with the buffer protocol, ``__dlpack__`` or
                ``__cuda_array_interface__`` (work of its stream must be complete); of tensors and arrays the note has
                type and shape
            note: up to 65535 bytes for readers
            private: each reader may write its own copy
            device: where the entry is
        """
        if hasattr(data, "untyped_storage"):
            from ._vault_torch import put_tensor

            put_tensor(self, key, data, note, private, device)
            return
        source, nbytes, tensor = _source_of(data)  # before anything is made
        note = note if note is not None else tensor.note() if tensor else b""
        with self._call() as number:
            least = 1 if tensor else 0  # an array may be empty
            entry = self._make(number, key, nbytes or least, note, _PRIVATE if private else 0, device)
            if nbytes:
                copy(entry, source, nbytes)
            self._put(number, entry)

    def allocate(
        self, key: str, nbytes: int, *, note: bytes = b"", private: bool = False, device: Any = None
    ) -> Entry:
        """An entry of so many bytes to be filled in place, before the commit. Views must be released then."""
        with self._call() as number:
            entry = self._make(number, key, nbytes, note, _PRIVATE if private else 0, device)
            self._put(number, entry)
            return entry

    def empty(self, key: str, shape: Union[int, Tuple[int, ...]], dtype: Any = "float32", *, private: bool = False) -> Any:
        """A NumPy array on an entry in memory of the host, to be filled in place; it must be released before the commit."""
        import numpy

        about = numpy.empty(0, dtype)
        dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = count_of(dimensions) * about.dtype.itemsize
        if nbytes <= 0 or min(dimensions) < 0:
            raise ValueError(f"{key!r}: an entry has at least one byte")
        kind = tensor_of_array(about)
        note = Tensor(kind.dtype, dimensions).note() if kind else b""
        return self.allocate(key, nbytes, note=note, private=private, device="cpu").numpy(about.dtype, dimensions)

    def zero(self, key: str, nbytes: int, *, note: bytes = b"", device: Any = None) -> None:
        """An entry of which only the size is kept: readers have their own memory, which reads as zero."""
        with self._call() as number:
            self._put(number, self._make(number, key, nbytes, note, _ZERO, device))

    def keep(self, prefix: str = "") -> None:
        """Takes over entries of the generation `from_generation`, without a copy."""
        with self._call() as number:
            _core.vault_keep(number, _bytes(prefix))

    def copy(self, view: View, prefix: str = "") -> None:
        """Copies entries of a view, of any vault, with their notes, and compares content that has a sum with it.

        They are in memory of the draft's device, whatever that of the view: so a generation of a GPU is stored in a
        folder or in memory of the host, and comes back. A draft without identity gets that of the view. Private
        entries are copied as this process sees them.

        Args:
            view: whose entries
            prefix: of the names
        """
        with self._call() as number, view._uses as source:
            _core.vault_copy(number, source, _bytes(prefix))

    def put_module(self, module: Any, prefix: str = "", *, device: Any = None) -> int:
        """Copies parameters and buffers of a module of PyTorch into entries, and returns how many names they have.

        Buffers are `private`. Tensors that have two names, such as tied weights, are there once.

        Args:
            module: a ``torch.nn.Module``
            prefix: of the names
            device: where the entries are, wherever the module is
        """
        from ._vault_torch import put_module

        return put_module(self, module, prefix, device)

    def load_safetensors(self, path: _Path, prefix: str = "", *, device: Any = None) -> int:
        """Reads a safetensors file, or all of a folder, into entries; returns how many.

        Args:
            path: the file or folder
            prefix: of the names
            device: where the entries are
        """
        count, seen = 0, set()
        for name in files_of(os.fspath(path)):
            with open(name, "rb") as file:
                for source in read_head(file, name):
                    if source.name in seen:
                        raise ValueError(f"{name}: {source.name!r:.80} is in another file, too")
                    seen.add(source.name)
                    file.seek(source.offset)
                    with self._call() as number:
                        key, note = prefix + source.name, source.tensor.note()
                        entry: Any = self._make(number, key, max(1, source.nbytes), note, 0, device)
                        if entry.device >= 0:
                            fill_from(file, entry.ptr, source.nbytes, name)
                        else:
                            with memoryview(entry) as memory:
                                read_all(file, memory[: source.nbytes], name)
                        self._put(number, entry)
                    count += 1
        return count

    def commit(
        self, *, group: Optional[str] = None, group_count: int = 0, timeout: float = 0.0, digest: bool = False
    ) -> int:
        """Makes it the current generation, in one step, and returns its number.

        With a group, that of several vaults become current together: when `group_count` have committed, or,
        after `timeout` seconds, none. Handlers of signals run when the wait for a group is over. With `digest`
        a sum of each entry is kept for `View.verify`.
        BufferError while views of its memory are in use. After an error entries that were filled in place
        are over, and a draft whose group has ended can only be aborted.
        """
        milliseconds = _ms(timeout)
        with self._locked():
            try:
                generation: Optional[int] = self._uses.end(
                    0.0, self._hold, "committed", _core.vault_commit, group, group_count, milliseconds, digest
                )
            except BufferError:  # nothing has begun
                raise
            except BaseException:  # memory of these pools may be sealed by now
                self._hold, self._pools = _core.Hold(self._vault._hold, self._uses), {}
                raise
            if generation is None:
                raise ValueError("the draft is closed")
            self.generation = generation
            return generation

    def abort(self) -> None:
        """Ends it without a commit. BufferError while views of its memory are in use."""
        with self._locked():
            self._uses.end(0.0, self._hold, "aborted", None)

    close = abort

    def __enter__(self) -> "Draft":
        return self

    def __exit__(self, kind: Optional[object], *error: object) -> None:
        if kind is None and self._uses.is_open:
            try:
                self.commit()
            except BaseException:
                _close_quietly(self)
                raise
        elif kind is not None:
            _close_quietly(self)

    def _locked(self) -> ContextManager[Any]:
        """One thread at a time; a child of fork has no threads of its parent."""
        return self._lock if self._process == os.getpid() else nullcontext()

    @contextmanager
    def _call(self) -> Iterator[int]:
        if self._process != os.getpid():
            raise ValueError("the draft is that of another process")
        with self._lock, self._uses as number:
            yield number

    def _make(self, number: int, key: str, nbytes: int, note: bytes, flags: int, device: Any) -> Entry:
        if nbytes <= 0:
            raise ValueError(f"{key!r}: an entry has at least one byte")
        provider = self._provider if device is None else _provider(device)
        of = flags, provider  # entries of different flags come from different pools
        if of not in self._pools:
            self._pools[of] = _core.vault_pool(number, f"coalescing over {provider}")
        is_of_host = provider.partition(":")[0] == _HOST
        ptr = _core.vault_allocate(self._pools[of], nbytes, _ALIGNMENT if is_of_host else _ALIGNMENT_OF_GPU)
        which = -1 if is_of_host else _core.memory_of(ptr)[1]
        return Entry._of(self._hold, (_bytes(key), ptr, nbytes, note, flags, which), True)

    def _put(self, number: int, entry: Entry) -> None:
        _core.vault_put(number, _bytes(entry.key), entry.ptr, entry.nbytes, entry.note, entry.flags)


class Claim(_Closing):
    """Writable memory with a key, of the host or of a GPU, which stays in the vault when its holder ends.

    `memory` is the memory, an `Entry` without a type: ``claim.memory.numpy("float32", (8, 1024))``, ``memoryview``, DLPack;
    of a GPU ``claim.memory.torch()`` is its bytes.
    `epoch` is the number of this claim, `is_new` whether the memory was made by it, and zero, `note` the last note. A
    child of fork has none of them. The end of a ``with`` gives it back.
    """

    __slots__ = ("_hold", "_key", "_lock", "_now", "_process", "_uses", "epoch", "is_new", "key", "memory", "note", "shared")

    def __init__(
        self, vault: "Vault", key: str, nbytes: int, shared: bool, fence: str, timeout: float, devices: Optional[str]
    ) -> None:
        self.key, self.shared = key, shared
        self._key = _bytes(key)
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._uses = _core.Uses("claim", partial(_core.vault_unclaim, vault._claimed, self._key), vault._uses)
        self._hold = _core.Hold(vault._hold, self._uses, True)
        with vault._uses as number:
            found = self._uses.open(
                _core.vault_claim,
                number,
                vault._claimed,
                self._key,
                nbytes,
                shared,
                _fence(fence),
                _ms(timeout),
                devices,
            )
        ptr, size = found[:2]
        self.epoch: int = found[2]
        self._now: int = found[3]
        self.is_new: bool = found[4]
        self.note: bytes = found[5]
        self.memory: Entry = Entry._of(self._hold, (self._key, ptr, size, b"", 0, found[6]), True)

    @property
    def fenced(self) -> bool:
        """Whether another client has the memory now: stop writing, and `renew` or close it.

        Read it before each write if claims with the fence "epoch" are made.
        """
        with self._call():
            return _core.vault_epoch(self._now) != self.epoch

    def commit(self, note: bytes) -> None:
        """Stores a note beside the memory, such as how much of it is valid. The next holder gets the last one, whole.

        Args:
            note: at most 256 bytes

        Raises:
            InvalidArgumentError: `reason` is ``UMF_REASON_STALE`` if another client has the memory, or the service has
                lost it; the note is as it was.
        """
        note = bytes(note)
        with self._call() as number:
            _core.vault_claim_note(number, self._key, self.epoch, note)
            self.note = note

    def renew(self, *, fence: str = "wait", timeout: float = 0.0) -> int:
        """Claims it again after another client has had it, at the same addresses, and returns its epoch.

        `note` is the last note then. Without effect while this claim holds it. Arguments as of `Vault.claim`.

        Raises:
            InvalidArgumentError: `reason` is ``UMF_REASON_STALE`` if the memory was dropped: close it first.
        """
        with self._call() as number:
            _, found = _core.vault_claim(number, None, self._key, 0, self.shared, _fence(fence), _ms(timeout), None)
            self.epoch, self.note = found[2], found[5]
            return self.epoch

    def close(self) -> None:
        """Gives it back: the memory leaves this process and stays in the vault.

        Of a GPU it waits for the work that is queued on it. BufferError while arrays or other views of its memory, or
        calls, are in use. Error: the service has not answered, and the memory has left this process; or the work cannot
        be waited for, and the memory stays mapped. The process may count as its holder until it closes the vault.
        """
        self._uses.end(0.0, self._hold, "given back", None)

    @contextmanager
    def _call(self) -> Iterator[int]:
        if self._process != os.getpid():
            raise ValueError("the claim is that of another process")
        with self._lock, self._uses as number:
            yield number


def _fence(name: str) -> int:
    if name not in _FENCES:
        raise ValueError(f"there is no fence {name!r}: it is one of {', '.join(_FENCES)}")
    return _FENCES[name]


class Vault(_Closing):
    """A name, open in this process. Nothing is made before the first draft.

    Args:
        name: 1 to 255 bytes; `file:<folder>`: a vault in files of a folder
        folder: of the service; None: that of the user
        start: start the service if none answers
        timeout: seconds that the service may take to answer; handlers of signals run meanwhile
        limit: bytes of all generations together; 0: no limit. It counts when the first draft makes the name
        keep: generations before the current one that stay without readers. It counts as `limit`
    """

    __slots__ = ("_claimed", "_hold", "_uses", "name")

    def __init__(
        self,
        name: str,
        *,
        folder: Optional[_Path] = None,
        start: bool = True,
        timeout: float = 10.0,
        limit: int = 0,
        keep: int = 0,
    ) -> None:
        self._uses = _core.Uses("vault", _core.vault_close, None)
        self._hold = _core.Hold(None, self._uses)
        self._claimed: Dict[bytes, None] = {}  # keys that this vault holds
        self.name = name
        self._uses.open(_core.vault_open, name, _path(folder), start, _ms(timeout), limit, keep)

    def draft(
        self,
        *,
        timeout: float = 0.0,
        from_generation: int = 0,
        replace: bool = False,
        identity: Optional[bytes] = None,
        device: Any = None,
    ) -> Draft:
        """Begins to write a generation. A vault has one draft at a time, of all processes.

        Args:
            timeout: seconds to wait while another process writes
            from_generation: whose entries `Draft.keep` takes over; 0: none
            replace: the current generation goes first, where there is no room for two
            identity: bytes that readers may compare, such as model and revision
            device: where its entries are: None or "cpu": in memory of the host; the number of a GPU, "cuda", "cuda:1", a
                ``torch.device``, or a provider as ``umf.Pool`` takes it, such as "cuda_vmm:device=1"
        """
        return Draft(self, timeout, from_generation, replace, identity, device)

    def attach(
        self,
        generation: int = 0,
        *,
        timeout: float = 0.0,
        identity: Optional[bytes] = None,
        devices: Any = None,
    ) -> View:
        """Maps a generation, read-only and without a copy.

        Args:
            generation: its number; 0: the current one
            timeout: seconds to wait for it
            identity: that it must have; None: any
            devices: what maps memory of GPUs: "cuda" on the GPU that it is of; another as for `draft`, which must reach
                it. "none": names, sizes and notes of such entries are there, their memory is not, and no driver is
                started. None: NotSupportedError if there is such memory
        """
        return View(self, generation, timeout, identity, devices)

    def claim(
        self,
        key: str,
        nbytes: int = 0,
        *,
        shared: bool = False,
        fence: str = "wait",
        timeout: float = 0.0,
        device: Any = None,
    ) -> Claim:
        """Maps memory with a key for writing. The first claim makes it, later ones continue with its content.

        It has no generations, and stays until `forget`, or `drop` of the whole vault.

        Args:
            key: 1 to 255 bytes
            nbytes: rounded up to pages, of a GPU to 2 MiB or what its driver needs; 0: the memory must be there, of any
                size
            shared: hold it together with all others that say so
            fence: how other holders are treated. "wait": they are waited for, until they give it back or their process has
                ended. "epoch": they lose it at once, and see it in `Claim.fenced`; until then they may go on writing.
                "kill": their processes are killed and waited for, which no signal interrupts
            timeout: seconds to wait for them
            device: a GPU by number, "cuda:1" or a ``torch.device``, which makes the memory there; "cuda" maps memory on
                the GPU that it is of. None: memory of the host

        Raises:
            InvalidArgumentError: `reason` is ``UMF_REASON_ABSENT`` if there is no memory and `nbytes` is 0,
                ``UMF_REASON_IDENTITY`` if it has another size, or is of the host or a GPU, and the other was asked for.
            OutOfResourcesError: `reason` is ``UMF_REASON_BUSY`` if another client has it, or a limit is reached.
            NotSupportedError: the vault is a folder, or a process cannot be killed.
            BufferError: this vault has claimed the key already.
        """
        text = None if device is None else _provider(device)
        return Claim(self, key, nbytes, shared, fence, timeout, None if text == _HOST else text)

    def claims(self) -> List[ClaimState]:
        """The writable memory of the vault, held or not."""
        with self._uses as number:
            return [ClaimState(_text(found[0]), *found[1:]) for found in _core.vault_claims(number)]

    def forget(self, key: str) -> None:
        """Ends the memory of a key, if there is any.

        Raises:
            OutOfResourcesError: another client has it.
            BufferError: this vault has claimed it: close the claim before.
        """
        with self._uses as number:
            _core.vault_forget(number, self._claimed, _bytes(key))

    def fetch(
        self,
        remote: "Remote",
        *addresses: str,
        keep: bool = True,
        digest: bool = False,
        limit: int = 0,
        in_flight: int = 0,
        timeout: float = 0.0,
        progress: Optional[Callable[[int, int], object]] = None,
    ) -> int:
        """Makes the generation of `umf-remote serve` on other machines the current one here.

        Either the vault has the whole generation afterwards, or it is as it was. Handlers of signals run meanwhile, so
        Ctrl-C ends it: at once while content comes, at the deadline of `remote` if a server does not answer.

        Args:
            remote: the context that connects to the servers; beyond this machine it needs devices and a key file
            addresses: of 1 to 16 servers of the same generation, "umfr:...". All are used at once
            keep: content that the current generation has already does not travel
            digest: keep a sum of each entry, for `View.verify`
            limit: bytes that the generation may have; 0: no limit
            in_flight: bytes that may be in transfer at once from each server, at least 4 MiB; 0: 64 MiB
            timeout: seconds to wait while another process writes
            progress: called about every 50 ms with the bytes that are here and those of all content, which are 0 until
                a server has answered. An exception ends the fetch

        Returns:
            the number of the generation; that of the current one if nothing differs

        Raises:
            InvalidArgumentError: an address is none. `reason` is ``UMF_REASON_ABSENT`` if the server has no generation,
                ``UMF_REASON_STALE`` if no server has it any more, ``UMF_REASON_BROKEN`` if its content is damaged,
                ``UMF_REASON_DENIED`` if it has another key.
            OutOfResourcesError: `reason` is ``UMF_REASON_GONE`` or ``UMF_REASON_DEADLINE`` if no server answers,
                ``UMF_REASON_LIMIT`` if the generation is too large, ``UMF_REASON_BUSY`` while another process writes.
        """
        from .remote import Remote

        if not isinstance(remote, Remote):
            raise TypeError(f"remote must be a umf.remote.Remote, not {type(remote).__name__}")
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be callable, not {type(progress).__name__}")
        with self._uses as number, remote._uses as context:
            return _core.vault_fetch(
                number, context, " ".join(addresses), keep, digest, limit, in_flight, _ms(timeout), progress
            )

    def state(self) -> State:
        """Its state now."""
        with self._uses as number:
            return State(*_core.vault_stat(number))

    def wait(self, after: int, timeout: float) -> Optional[Event]:
        """Waits for the next event.

        Args:
            after: number of the last event that was seen; `state().event` is the last one. A number that the service has
                not reached is of one that has ended: then the oldest event is the next
            timeout: seconds

        Returns:
            None if there was none in time
        """
        with self._uses as number:
            found = _core.vault_wait(number, after, _ms(timeout))
            return Event(found[0], _EVENTS.get(found[1], "unknown"), found[2]) if found else None

    def snapshot(
        self,
        generation: int = 0,
        *,
        timeout: float = 0.0,
        digest: bool = True,
        folder: Optional[_Path] = None,
    ) -> None:
        """Copies the memory of GPUs of a generation into memory of the host, which the service keeps beside it, or all
        of the generation into a file of a folder.

        Handlers of signals run when the call is over.

        Args:
            generation: its number; 0: the current one
            timeout: seconds to wait while another process copies or refills it
            digest: keep a sum of each piece, which a refill compares; with `folder` there always is one
            folder: gets a new generation of the vault `file:<folder>`, and the copies in memory go. The service reads
                this file for the next attach after `evict`, also if it was renamed or removed

        Raises:
            OutOfResourcesError: the limit of the vault, a full disk, or another process copies it.
            InvalidArgumentError: no such generation, content that differs from its sum, or a folder that cannot be
                written.
            NotSupportedError: the vault is a folder.
        """
        with self._uses as number:
            _core.vault_snapshot(number, generation, _ms(timeout), digest, _path(folder))

    def evict(self, generation: int = 0) -> None:
        """Releases the memory of GPUs of a generation that has copies in memory of the host or in a file.

        It is free when the last process that has it attached has closed or suspended its view, and the process that
        wrote it has closed its vault. The next attach or resume makes it again, from the copies.

        Args:
            generation: its number; 0: all that have copies

        Raises:
            InvalidArgumentError: there is none with copies of all its memory of GPUs.
            OutOfResourcesError: a process makes copies or memory of it.
            NotSupportedError: the vault is a folder.
        """
        with self._uses as number:
            _core.vault_evict(number, generation)

    def drop(self, generation: int = 0) -> None:
        """Drops a generation, or with 0 all of them and the draft. Readers keep what they have."""
        with self._uses as number:
            _core.vault_drop(number, generation)

    def drop_draft(self) -> None:
        """Ends the draft of another process."""
        with self._uses as number:
            _core.vault_drop_draft(number)

    def close(self) -> None:
        """Aborts its draft and detaches its views.

        BufferError while memory of them is in use, or another thread is in a call of any of them. Error as for
        `View.close`; then it stays open.
        """
        _end(self._uses, self._hold, "closed", _core.vault_close)


def _end(uses: _core.Uses, hold: _core.Hold, word: str, function: Callable[[int], None]) -> None:
    try:
        uses.end(0.0, hold, word, function)
    except BaseException:
        if uses.is_open:
            hold.reopen()
        raise


def _close_quietly(which: Any) -> None:
    """Beside an exception, which matters more; the last reference ends it then."""
    with suppress(BufferError, Error):
        which.close()


def load_safetensors(
    vault: Vault, path: _Path, *, identity: Optional[bytes] = None, timeout: float = 0.0, device: Any = None
) -> int:
    """Makes a generation of a safetensors file, or of all of a folder, and returns its number. Arguments as of `Vault.draft`."""
    with vault.draft(identity=identity, timeout=timeout, device=device) as draft:
        draft.load_safetensors(path)
        return draft.commit()


def list_vaults(folder: Optional[_Path] = None) -> Dict[str, State]:
    """The vaults of a service and their states; none if no service runs."""
    return {_text(name): State(*state) for name, state in _core.vault_list(_path(folder))}


def stop(folder: Optional[_Path] = None, *, drop: bool = False) -> None:
    """Ends the service, with `drop` also if it has clients and content."""
    _core.vault_stop(_path(folder), drop)
