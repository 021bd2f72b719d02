"""Copies and fills between any two memories."""

import operator
from typing import Any, Optional, SupportsIndex, Tuple

from . import _core
from ._memory import Buffer, from_dlpack


def _side(thing: Any, is_written: bool) -> Tuple[Any, Optional[int]]:
    """The argument for the extension, an address or an object with a buffer, and its bytes."""
    if isinstance(thing, _core.Buffer):
        return thing, thing.nbytes
    if isinstance(thing, _core.Region) and thing.device >= 0:  # an entry of a vault
        capsule = _core.dlpack_region(thing, 1, 1, (thing.nbytes,), True)
        return _core.dlpack_import(Buffer, capsule), thing.nbytes
    address = _number(thing)
    if address is not None:
        return address, None
    if hasattr(thing, "__cuda_array_interface__"):
        about = thing.__cuda_array_interface__
        if about.get("strides") is not None:
            raise ValueError("only contiguous arrays are rows of bytes")
        if is_written and about["data"][1]:
            raise BufferError("the memory is read-only")
        size = int(about["typestr"][2:])
        for length in about["shape"]:
            size *= length
        return about["data"][0], size
    if hasattr(thing, "data_ptr") and hasattr(thing, "is_contiguous"):
        if not thing.is_contiguous():
            raise ValueError("only contiguous tensors are rows of bytes")
        return thing.data_ptr(), thing.numel() * thing.element_size()
    if hasattr(thing, "__dlpack__") and not _has_buffer(thing):
        found = from_dlpack(thing)
        return found, found.nbytes
    return thing, _view(thing).nbytes


def _has_buffer(thing: Any) -> bool:
    try:
        memoryview(thing).release()
    except (TypeError, BufferError, ValueError):
        return False
    return True


def _number(thing: Any) -> Optional[int]:
    """An integer of Python or NumPy; None for memory, such as an array of one integer."""
    if hasattr(thing, "__index__") and not hasattr(thing, "__setitem__"):
        return operator.index(thing)
    return None


def _view(thing: Any) -> memoryview:
    """Its memory. A single number is refused, although NumPy's numbers have a buffer."""
    view = memoryview(thing)
    if view.ndim == 0 and not hasattr(thing, "__setitem__"):
        raise TypeError(f"it must be memory or an integer, not {thing!r}")
    return view


def copy(
    to: Any, source: Any, nbytes: Optional[SupportsIndex] = None, *, queue: Any = 0
) -> None:
    """Copies bytes between any two memories.

    Args:
        to: a ``Buffer``, an array or tensor of the CPU or a GPU, any writable buffer, an object with
            ``__dlpack__``, or an address.
        source: the same, also read-only.
        nbytes: default: the size of the source; it must fit into both.
        queue: a stream, or the address of a native queue, that the copy is put on, as
            ``umf/copy.h`` says; without one the data is there on return.

    Raises:
        ValueError: a side is too small, or not contiguous.
        BufferError: ``to`` is read-only (a Buffer, an array of a GPU, any other buffer).
        TypeError: a side is no memory.
        OutOfResourcesError: a side is in a suspended pool.
        NotSupportedError: there is no way between the two.

    Nothing was written when a check fails. Until the call returns neither side can be freed. Runs
    without the GIL.
    """
    target, room = _side(to, True)
    origin, size = _side(source, False)
    default = room if size is None else size
    count = default if nbytes is None else operator.index(nbytes)
    if count is None:
        raise ValueError("nbytes must be given for two addresses")
    _check(room, count, "destination")
    _check(size, count, "source")
    _core.copy(target, origin, count, queue)


def fill(
    to: Any, pattern: Any = b"\0", nbytes: Optional[SupportsIndex] = None, *, queue: Any = 0
) -> None:
    """Fills memory with a pattern.

    Args:
        to: as for ``copy``.
        pattern: bytes, repeated and at the end cut; or an integer from 0 to 255.
        nbytes: default: all of ``to``.
        queue: as for ``copy``.

    Raises as ``copy``. Runs without the GIL.
    """
    target, room = _side(to, True)
    count = room if nbytes is None else operator.index(nbytes)
    if count is None:
        raise ValueError("nbytes must be given for an address")
    _check(room, count, "destination")
    number = _number(pattern)
    _core.fill(target, _view(pattern) if number is None else bytes([number]), count, queue)


def _check(room: Optional[int], nbytes: int, name: str) -> None:
    if nbytes < 0 or (room is not None and nbytes > room):
        raise ValueError(f"the {name} has {room} bytes, not {nbytes}")
