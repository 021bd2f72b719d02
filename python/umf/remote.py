"""Memory of other machines: buffers are published, opened by a handle, read and written.

    import umf
    from umf import remote

    with remote.Remote() as owner, umf.Pool("disjoint over linux_vmm") as pool:
        published = owner.publish(pool.allocate(1 << 20))
        handle = published.handle          # bytes: send them to the other process

        with remote.Remote() as peer, peer.open(handle) as memory:
            memory.get(into=array)         # or: await memory.get_async(into=array)

Nothing is encrypted on the wire. Without a key file only processes of this machine can connect. What
another thread is in a call of for longer than a second cannot be closed: BufferError.
UCX is found at run time; :func:`probe` reports it. Importing loads nothing.
"""

import asyncio
from typing import Any, Generator, Optional, Tuple

from . import _core
from ._memory import Buffer, _Closing

__all__ = ["Memory", "Published", "Remote", "Transfer", "probe"]

_GET, _PUT = 1, 2
_PATIENCE = 1.0  # seconds for calls of other threads, at a close
_SLICE_MS = 100  # so often a wait lets handlers of signals run


def probe() -> Tuple[bool, str]:
    """Whether UCX is here, and which one, or the missing part."""
    return _core.remote_probe()


class Transfer:
    """A get or put that is under way. It can be awaited.

    The memory of the caller is held until it has ended. Without a reference, and when its range is
    closed, it is canceled.
    """

    __slots__ = ("_transfer",)

    def __init__(self, transfer: Any) -> None:
        self._transfer = transfer

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until it has ended. The end is reported to each wait, also to one after the range was closed.

        Args:
            timeout: the most seconds; None: until it has ended, which its deadline bounds

        Returns:
            True if it is done; False if the time has passed

        Raises:
            umf.Error: it failed, or a close has canceled it
            ValueError: another thread waits for it
        """
        left = None if timeout is None else int(min(max(0.0, timeout), 1e15) * 1000)
        while True:
            step = _SLICE_MS if left is None else min(left, _SLICE_MS)
            if _core.remote_wait(self._transfer, step):
                return True
            if left is not None:
                left -= step
                if left <= 0:
                    return False

    def __await__(self) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        yield from loop.run_in_executor(None, self.wait).__await__()


class Published(_Closing):
    """A published buffer, until it is closed, or without a reference. It keeps the buffer alive."""

    __slots__ = ("_uses", "buffer")

    def __init__(self, remote: "Remote", buffer: Buffer, rights: int) -> None:
        self.buffer = buffer
        self._uses = _core.Uses("range", _core.remote_withdraw, remote._uses)
        with remote._uses as context:
            self._uses.open(_core.remote_publish, context, buffer, rights)

    @property
    def handle(self) -> bytes:
        """The bytes by which others open it. They contain its secret."""
        with self._uses as number:
            return _core.remote_handle(number)

    def close(self) -> None:
        """Refuses new requests and waits for those under way, at most the deadline of its context."""
        self._uses.end(_PATIENCE, None, "", None)


class Memory(_Closing):
    """An opened range of another process."""

    __slots__ = ("_uses", "nbytes")

    def __init__(self, remote: "Remote", handle: bytes) -> None:
        self._uses = _core.Uses("range", _core.remote_close, remote._uses)
        with remote._uses as context:
            self.nbytes: int = self._uses.open(_core.remote_open, context, handle)

    def get(self, offset: int = 0, nbytes: Optional[int] = None, into: Any = None) -> Any:
        """Reads a part.

        Args:
            offset: where it begins
            nbytes: bytes; None: those of `into`, or the rest of the range
            into: contiguous memory that can be written, such as a NumPy array; None: new bytes

        Returns:
            `into`, or a bytearray
        """
        target = self._target(offset, nbytes, into)
        self._begin(False, offset, target).wait()
        return target if into is None else into

    def put(self, data: Any, offset: int = 0) -> None:
        """Writes contiguous memory, such as bytes or a NumPy array, to a part."""
        self._begin(True, offset, data).wait()

    def get_async(self, into: Any, offset: int = 0) -> Transfer:
        """Begins to read a part into memory that can be written."""
        return self._begin(False, offset, into)

    def put_async(self, data: Any, offset: int = 0) -> Transfer:
        """Begins to write a part."""
        return self._begin(True, offset, data)

    def close(self) -> None:
        """Cancels its transfers, and closes it."""
        self._uses.end(_PATIENCE, None, "", None)

    def _target(self, offset: int, nbytes: Optional[int], into: Any) -> Any:
        if into is None:
            left = self.nbytes - offset
            nbytes = max(0, left) if nbytes is None else nbytes
            if nbytes > max(0, left):  # before so much memory is taken
                raise ValueError(f"{nbytes} bytes at {offset} are not in the {self.nbytes} bytes of the range")
            return bytearray(nbytes)
        if nbytes is None:
            return into
        view = memoryview(into).cast("B")
        if nbytes > view.nbytes:
            raise ValueError(f"{nbytes} bytes do not fit into {view.nbytes}")
        return view[:nbytes]

    def _begin(self, is_put: bool, offset: int, data: Any) -> Transfer:
        if offset < 0:
            raise ValueError("the offset is negative")
        return Transfer(_core.remote_begin(self._uses, is_put, offset, data))


class Remote(_Closing):
    """A context: a thread of the library, and its connections.

    Args:
        devices: network devices, as UCX names them; None: loopback, or only shared memory of this
            machine where UCX is missing. Others need `key_file`
        key_file: a file of 32 random bytes, mode 0600, the same on all machines
        deadline: seconds without progress until a transfer fails
        limit_in_flight: bytes in transfer at once in each direction; 0: 64 MiB
        network_only: processes of this machine use UCX, too, and not a socket and shared memory
        limit_requests: requests in transfer at once on a connection, whatever their size; further
            ones wait; 0: 1,024
    """

    __slots__ = ("_uses",)

    def __init__(
        self,
        devices: Optional[str] = None,
        key_file: Optional[str] = None,
        deadline: float = 10.0,
        limit_in_flight: int = 0,
        network_only: bool = False,
        limit_requests: int = 0,
    ) -> None:
        self._uses = _core.Uses("context", _core.remote_destroy, None)
        milliseconds = int(min(max(0.001, deadline), 1e15) * 1000)
        self._uses.open(
            _core.remote_create, devices, key_file, milliseconds, limit_in_flight, network_only, limit_requests
        )

    @property
    def is_open(self) -> bool:
        """Whether it was not closed."""
        return self._uses.is_open

    def publish(self, buffer: Buffer, get: bool = True, put: bool = False) -> Published:
        """Lets others read (`get`) or write (`put`) a buffer of a pool."""
        rights = (_GET if get else 0) | (_PUT if put else 0)
        return Published(self, buffer, rights)

    def open(self, handle: bytes) -> Memory:
        """Opens a range by the handle of :attr:`Published.handle`. Ctrl-C ends the wait for its owner in about 50 ms."""
        return Memory(self, bytes(handle))

    def close(self) -> None:
        """Cancels transfers, closes connections, withdraws published ranges, ends the thread."""
        self._uses.end(_PATIENCE, None, "", None)
