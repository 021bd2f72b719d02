"""Copies and fills between any two memories."""

from typing import Any, Optional, Tuple

from . import _core


def _side(thing: Any) -> Tuple[Any, Optional[int]]:
    """What the extension takes, an address or an object with a buffer, and its bytes."""
    if isinstance(thing, int):
        return thing, None
    if isinstance(thing, _core.Buffer):
        return thing.ptr, thing.nbytes
    if hasattr(thing, "__cuda_array_interface__"):
        about = thing.__cuda_array_interface__
        if about.get("strides") is not None:
            raise ValueError("only contiguous arrays are rows of bytes")
        size = int(about["typestr"][2:])
        for length in about["shape"]:
            size *= length
        return about["data"][0], size
    if hasattr(thing, "data_ptr") and hasattr(thing, "is_contiguous"):
        if not thing.is_contiguous():
            raise ValueError("only contiguous tensors are rows of bytes")
        return thing.data_ptr(), thing.numel() * thing.element_size()
    return thing, memoryview(thing).nbytes


def copy(to: Any, source: Any, nbytes: Optional[int] = None, *, queue: int = 0) -> None:
    """Copies bytes between any two memories.

    Args:
        to: a ``Buffer``, an array or tensor of the CPU or a GPU, any writable buffer, or an address.
        source: the same, also read-only.
        nbytes: default: the size of the source; it must fit into both.
        queue: address of a native queue (``stream.cuda_stream``) that the copy is put on, as
            ``umf/copy.h`` says; without one the data is there on return.

    Raises:
        ValueError: a side is too small, or not contiguous.
        OutOfResourcesError: a side is in a suspended pool.
        NotSupportedError: there is no way between the two.

    Nothing was written when a check fails. Runs without the GIL.
    """
    target, room = _side(to)
    origin, size = _side(source)
    if nbytes is None:
        nbytes = room if size is None else size
    if nbytes is None:
        raise ValueError("nbytes must be given for two addresses")
    _check(room, nbytes, "destination")
    _check(size, nbytes, "source")
    _core.copy(target, origin, nbytes, queue)


def fill(to: Any, pattern: Any = b"\0", nbytes: Optional[int] = None, *, queue: int = 0) -> None:
    """Fills memory with a pattern.

    Args:
        to: as for ``copy``.
        pattern: bytes, repeated and at the end cut; or a number from 0 to 255.
        nbytes: default: all of ``to``.
        queue: as for ``copy``.

    Raises as ``copy``. Runs without the GIL.
    """
    target, room = _side(to)
    nbytes = room if nbytes is None else nbytes
    if nbytes is None:
        raise ValueError("nbytes must be given for an address")
    _check(room, nbytes, "destination")
    _core.fill(target, bytes([pattern]) if isinstance(pattern, int) else pattern, nbytes, queue)


def _check(room: Optional[int], nbytes: int, name: str) -> None:
    if nbytes < 0 or (room is not None and nbytes > room):
        raise ValueError(f"the {name} has {room} bytes, not {nbytes}")
