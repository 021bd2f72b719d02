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

The first `Vault` starts the service, `umfd`, if none runs. Importing does nothing. A vault with the name
`file:<folder>` needs no service: its generations are files, which also outlive a boot.
"""

import os
import threading
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, ContextManager, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _core
from ._errors import Error, NotSupportedError
from ._memory import _Closing
from ._tensors import (
    Tensor,
    bytes_of_array,
    count_of,
    files_of,
    numpy_name,
    read_all,
    read_head,
    tensor_of_array,
    tensor_of_note,
)

__all__ = ["Draft", "Entry", "Event", "State", "Vault", "View", "list_vaults", "load_safetensors", "stop"]

_PRIVATE, _ZERO = 1, 2
_ALIGNMENT = 64
_EVENTS = {1: "committed", 2: "dropped", 3: "aborted", 4: "reader_ended", 5: "evicted", 6: "refilled", 7: "unclaimed"}
_Path = Union[str, "os.PathLike[str]"]


class State(NamedTuple):
    """The state of a vault: sizes in bytes; 0 is none, of `limit` no limit."""

    current: int
    generations: int
    bytes: int
    readers: int
    limit: int
    restarts: int
    event: int
    writer: int


class Event(NamedTuple):
    """An event: `committed`, `dropped`, `aborted`, `reader_ended`, `evicted`, `refilled` or `unclaimed`."""

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


class Entry(_core.Region):
    """Memory of a name. It has the buffer protocol, ``memoryview(entry)``, ``bytes(entry)``, and DLPack.

    A view of it keeps the draft or view where it is, which then cannot end.
    """

    __slots__ = ("_is_writable", "flags", "key", "note")

    _is_writable: bool
    key: str
    note: bytes
    flags: int

    @classmethod
    def _of(cls, hold: _core.Hold, found: Tuple[bytes, int, int, bytes, int], is_writable: bool) -> "Entry":
        entry = cls(hold, found[1], found[2], is_writable)
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

    def __dlpack_device__(self) -> Tuple[int, int]:
        return 1, 0  # memory of the host

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
            stream: memory of the host has none
            max_version: (1, 0) and above get a versioned capsule, as read-only memory needs
            dl_device: where the consumer wants it, which is the host
            copy: True is refused: nothing is copied

        Raises:
            BufferError: a request cannot be met.
        """
        if dl_device is not None and tuple(dl_device) != (1, 0):
            raise BufferError(f"the memory is of the host, not on device {tuple(dl_device)}")
        if copy:
            raise BufferError("umf does not copy for DLPack: copy the memory yourself")
        if stream not in (None, -1):
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
        """A tensor of PyTorch on the memory, with type and shape of the note.

        PyTorch has no read-only tensors: a write to one of an entry that is not `private` ends the process
        with SIGSEGV.
        """
        from ._vault_torch import tensor_of_entry

        return tensor_of_entry(self)

    def numpy(self, dtype: Any = None, shape: Optional[Tuple[int, ...]] = None) -> Any:
        """A NumPy array on the memory.

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

    def __init__(self, vault: "Vault", generation: int, timeout: float, identity: Optional[bytes]) -> None:
        self._vault = vault
        self._uses = _core.Uses("view", _core.vault_detach, vault._uses)
        self._hold = _core.Hold(vault._hold, self._uses)
        with vault._uses as number:
            self.generation: int = self._uses.open(_core.vault_attach, number, generation, _ms(timeout), identity)

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

        Parameters become tensors on the shared memory, which require no gradient and must not be written: PyTorch
        has no read-only tensors, and a write ends the process with SIGSEGV. Buffers become such
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
        entry: Any
        for entry in self.entries(prefix):
            with memoryview(entry), self._uses as number:
                try:
                    _core.vault_verify(number, _bytes(entry.key))
                    count += 1
                except NotSupportedError:  # without content, or kept without its sum
                    pass
        if count == 0:
            raise NotSupportedError("no entry has a sum")
        return count

    def close(self) -> None:
        """Unmaps it. BufferError while arrays or other views of its memory, or calls, are in use."""
        self._uses.end(0.0, self._hold, "detached", None)

    def _each(self, prefix: str) -> List[Tuple[bytes, int, int, bytes, int]]:
        with self._uses as number:
            return _core.vault_each(number, _bytes(prefix))

    def _entry(self, found: Tuple[bytes, int, int, bytes, int]) -> Entry:
        return Entry._of(self._hold, found, found[4] != 0)


class Draft:
    """A generation that is being written, by one thread at a time.

    The end of a ``with`` commits it; an exception that leaves the block aborts it.
    """

    __slots__ = ("_hold", "_lock", "_pools", "_process", "_uses", "_vault", "generation")

    def __init__(
        self, vault: "Vault", timeout: float, from_generation: int, replace: bool, identity: Optional[bytes]
    ) -> None:
        self._vault = vault
        self._uses = _core.Uses("draft", _core.vault_abort, vault._uses)
        self._hold = _core.Hold(vault._hold, self._uses)
        self._pools: Dict[int, int] = {}
        self._lock = threading.RLock()
        self._process = os.getpid()
        self.generation: Optional[int] = None
        with vault._uses as number:
            self._uses.open(_core.vault_begin, number, _ms(timeout), from_generation, replace, identity)

    def put(self, key: str, data: Any, *, note: Optional[bytes] = None, private: bool = False) -> None:
        """Copies memory, such as an array, a tensor or bytes, into an entry.

        Args:
            key: its name, 1 to 255 bytes
            data: a tensor of PyTorch, on any device, or anything contiguous with the buffer protocol; of tensors
                and NumPy arrays the note has type and shape
            note: up to 65535 bytes for readers
            private: each reader may write its own copy
        """
        tensor = None
        if hasattr(data, "untyped_storage"):
            from ._vault_torch import put_tensor

            put_tensor(self, key, data, note, private)
            return
        if hasattr(data, "__array_interface__"):
            tensor = tensor_of_array(data)
            data = bytes_of_array(data)
        with memoryview(data) as given:
            nbytes = given.nbytes or (1 if tensor else 0)  # an array may be empty
            note = note if note is not None else tensor.note() if tensor else b""
            flat = given.cast("B") if given.nbytes else None  # before anything is made
            with self._memory(key, nbytes, note, private) as memory:
                if flat:
                    memory[:] = flat

    def allocate(self, key: str, nbytes: int, *, note: bytes = b"", private: bool = False) -> Entry:
        """An entry of so many bytes to be filled in place, before the commit. Views must be released then."""
        with self._call() as number:
            entry = self._make(number, key, nbytes, note, _PRIVATE if private else 0)
            self._put(number, entry)
            return entry

    def empty(self, key: str, shape: Union[int, Tuple[int, ...]], dtype: Any = "float32", *, private: bool = False) -> Any:
        """A NumPy array on an entry, to be filled in place; it must be released before the commit."""
        import numpy

        about = numpy.empty(0, dtype)
        dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = count_of(dimensions) * about.dtype.itemsize
        if nbytes <= 0 or min(dimensions) < 0:
            raise ValueError(f"{key!r}: an entry has at least one byte")
        kind = tensor_of_array(about)
        note = Tensor(kind.dtype, dimensions).note() if kind else b""
        return self.allocate(key, nbytes, note=note, private=private).numpy(about.dtype, dimensions)

    def zero(self, key: str, nbytes: int, *, note: bytes = b"") -> None:
        """An entry of which only the size is kept: readers have their own memory, which reads as zero."""
        with self._call() as number:
            self._put(number, self._make(number, key, nbytes, note, _ZERO))

    def keep(self, prefix: str = "") -> None:
        """Takes over entries of the generation `from_generation`, without a copy."""
        with self._call() as number:
            _core.vault_keep(number, _bytes(prefix))

    def copy(self, view: View, prefix: str = "") -> None:
        """Copies entries of a view, of any vault, with their notes, and compares content that has a sum with it.

        A draft without identity gets that of the view. Private entries are copied as this process sees them.

        Args:
            view: whose entries
            prefix: of the names
        """
        with self._call() as number, view._uses as source:
            _core.vault_copy(number, source, _bytes(prefix))

    def put_module(self, module: Any, prefix: str = "") -> int:
        """Copies parameters and buffers of a module of PyTorch into entries, and returns how many names they have.

        Buffers are `private`. Tensors that have two names, such as tied weights, are there once.

        Args:
            module: a ``torch.nn.Module``
            prefix: of the names
        """
        from ._vault_torch import put_module

        return put_module(self, module, prefix)

    def load_safetensors(self, path: _Path, prefix: str = "") -> int:
        """Reads a safetensors file, or all of a folder, into entries; returns how many.

        Args:
            path: the file or folder
            prefix: of the names
        """
        count, seen = 0, set()
        for name in files_of(os.fspath(path)):
            with open(name, "rb") as file:
                for source in read_head(file, name):
                    if source.name in seen:
                        raise ValueError(f"{name}: {source.name!r:.80} is in another file, too")
                    seen.add(source.name)
                    file.seek(source.offset)
                    with self._memory(
                        prefix + source.name, max(1, source.nbytes), source.tensor.note(), False
                    ) as memory:
                        read_all(file, memory[: source.nbytes], name)
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

    def _make(self, number: int, key: str, nbytes: int, note: bytes, flags: int) -> Entry:
        if nbytes <= 0:
            raise ValueError(f"{key!r}: an entry has at least one byte")
        if flags not in self._pools:  # entries of different flags come from different pools
            self._pools[flags] = _core.vault_pool(number, "coalescing over linux_vmm")
        ptr = _core.vault_allocate(self._pools[flags], nbytes, _ALIGNMENT)
        return Entry._of(self._hold, (_bytes(key), ptr, nbytes, note, flags), True)

    def _put(self, number: int, entry: Entry) -> None:
        _core.vault_put(number, _bytes(entry.key), entry.ptr, entry.nbytes, entry.note, entry.flags)

    @contextmanager
    def _memory(self, key: str, nbytes: int, note: bytes, private: bool) -> Iterator[memoryview]:
        """Memory to be filled, which is an entry afterwards; if the caller raises, it is none."""
        with self._call() as number:
            entry: Any = self._make(number, key, nbytes, note, _PRIVATE if private else 0)
            with memoryview(entry) as memory:
                yield memory
            self._put(number, entry)


class Vault(_Closing):
    """A name, open in this process. Nothing is made before the first draft.

    Args:
        name: 1 to 255 bytes; `file:<folder>`: a vault in files of a folder
        folder: of the service; None: that of the user
        start: start the service if none answers
        timeout: seconds that the service may take to answer; handlers of signals run afterwards
        limit: bytes of all generations together; 0: no limit. It counts when the first draft makes the name
        keep: generations before the current one that stay without readers. It counts as `limit`
    """

    __slots__ = ("_hold", "_uses", "name")

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
        self.name = name
        self._uses.open(_core.vault_open, name, _path(folder), start, _ms(timeout), limit, keep)

    def draft(
        self,
        *,
        timeout: float = 0.0,
        from_generation: int = 0,
        replace: bool = False,
        identity: Optional[bytes] = None,
    ) -> Draft:
        """Begins to write a generation. A vault has one draft at a time, of all processes.

        Args:
            timeout: seconds to wait while another process writes
            from_generation: whose entries `Draft.keep` takes over; 0: none
            replace: the current generation goes first, where there is no room for two
            identity: bytes that readers may compare, such as model and revision
        """
        return Draft(self, timeout, from_generation, replace, identity)

    def attach(
        self, generation: int = 0, *, timeout: float = 0.0, identity: Optional[bytes] = None
    ) -> View:
        """Maps a generation, read-only and without a copy.

        Args:
            generation: its number; 0: the current one
            timeout: seconds to wait for it
            identity: that it must have; None: any
        """
        return View(self, generation, timeout, identity)

    def state(self) -> State:
        """Its state now."""
        with self._uses as number:
            return State(*_core.vault_stat(number))

    def wait(self, after: int, timeout: float) -> Optional[Event]:
        """Waits for the next event.

        Args:
            after: number of the last event that was seen; `state().event` is the last one
            timeout: seconds

        Returns:
            None if there was none in time
        """
        with self._uses as number:
            found = _core.vault_wait(number, after, _ms(timeout))
            return Event(found[0], _EVENTS.get(found[1], "unknown"), found[2]) if found else None

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

        BufferError while memory of them is in use, or another thread is in a call of any of them.
        """
        self._uses.end(0.0, self._hold, "closed", None)


def _close_quietly(which: Any) -> None:
    """Beside an exception, which matters more; the last reference ends it then."""
    with suppress(BufferError, Error):
        which.close()


def load_safetensors(
    vault: Vault, path: _Path, *, identity: Optional[bytes] = None, timeout: float = 0.0
) -> int:
    """Makes a generation of a safetensors file, or of all of a folder, and returns its number."""
    with vault.draft(identity=identity, timeout=timeout) as draft:
        draft.load_safetensors(path)
        return draft.commit()


def list_vaults(folder: Optional[_Path] = None) -> Dict[str, State]:
    """The vaults of a service and their states; none if no service runs."""
    return {_text(name): State(*state) for name, state in _core.vault_list(_path(folder))}


def stop(folder: Optional[_Path] = None, *, drop: bool = False) -> None:
    """Ends the service, with `drop` also if it has clients and content."""
    _core.vault_stop(_path(folder), drop)
