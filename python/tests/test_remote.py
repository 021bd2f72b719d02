"""Memory of other processes: umf.remote."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading

import pytest
from helpers import interrupts

import umf
from umf import remote

is_here, text = remote.probe()
pytestmark = pytest.mark.skipif(not is_here, reason=text)

SIZE = 1 << 20


@pytest.fixture
def pair():
    with remote.Remote() as owner, remote.Remote() as peer, umf.Pool("disjoint over linux_vmm") as pool:
        buffer = pool.allocate(SIZE)
        memoryview(buffer)[:] = b"o" * SIZE
        with owner.publish(buffer, put=True) as published, peer.open(published.handle) as memory:
            yield published, memory, buffer
        buffer.free()


def test_get_and_put(pair):
    _, memory, buffer = pair
    assert memory.nbytes == SIZE
    assert memory.get() == b"o" * SIZE
    memory.put(b"hello", offset=10)
    assert bytes(memoryview(buffer)[9:16]) == b"ohelloo"
    assert memory.get(10, 5) == b"hello"
    into = bytearray(8)
    assert memory.get(10, 5, into) is into
    assert into == b"hello\0\0\0"


def test_arrays(pair):
    numpy = pytest.importorskip("numpy")
    _, memory, _ = pair
    memory.put(numpy.arange(1000, dtype=numpy.float64))
    got = numpy.zeros(1000)
    memory.get(into=got)
    assert (got == numpy.arange(1000)).all()
    with pytest.raises(BufferError):
        memory.get(into=b"read only")


def test_awaited(pair):
    _, memory, _ = pair

    async def main():
        into = [bytearray(1000) for _ in range(10)]
        await asyncio.gather(*(move(memory.get_async(one)) for one in into))
        await memory.put_async(b"x" * 10)
        assert all(one == b"o" * 1000 for one in into)

    async def move(transfer):
        await transfer

    asyncio.run(main())
    assert memory.get(0, 11) == b"x" * 10 + b"o"


def test_mistakes(pair):
    published, memory, _ = pair
    for far in (1, 1 << 46):
        with pytest.raises(ValueError, match="are not in the 1048576 bytes"):
            memory.get(SIZE, far)
    with pytest.raises(ValueError):
        memory.get(-1, 1)
    with pytest.raises(ValueError, match="are not in the 1048576 bytes"):
        memory.get(1, 1 << 62)
    with pytest.raises(umf.InvalidArgumentError):
        remote.Remote(devices="eth0")
    for limit in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            remote.Remote(limit_in_flight=limit)
    handle = bytearray(published.handle)
    handle[100] ^= 1
    with remote.Remote() as other, pytest.raises(umf.InvalidArgumentError):
        other.open(bytes(handle))
    published.close()
    with pytest.raises(umf.InvalidArgumentError, match="withdrawn"):
        memory.get(0, 1)
    with pytest.raises(ValueError):
        published.handle
    memory.close()
    with pytest.raises(ValueError):
        memory.get(0, 1)


def test_transfer_without_a_reference(pair):
    _, memory, _ = pair
    for _ in range(20):
        memory.get_async(bytearray(SIZE))
    transfer = memory.get_async(bytearray(SIZE))
    while not transfer.wait(0.01):
        pass
    assert transfer.wait() and transfer.wait(0)


def _end_of(transfer):
    try:
        return transfer.wait(0)
    except umf.Error as error:
        assert "canceled" in str(error)
        return str(error)


def test_a_close_ends_transfers(pair):
    published, memory, _ = pair
    kept = [memory.get_async(bytearray(SIZE)) for _ in range(5)]
    memory.close()
    for transfer in kept:
        assert _end_of(transfer) == _end_of(transfer)
    with remote.Remote() as other:
        kept = [other.open(published.handle).get_async(bytearray(SIZE)) for _ in range(5)]
    for transfer in kept:
        assert _end_of(transfer) == _end_of(transfer)
    cycle = [remote.Remote()]
    cycle += [cycle[0].open(published.handle).get_async(bytearray(SIZE)), cycle]
    del cycle
    gc.collect()


def test_a_close_cancels_what_another_thread_waits_for(pair):
    published, _, _ = pair
    with remote.Remote(limit_in_flight=4096) as other:
        memory = other.open(published.handle)
        into, ends = bytearray(SIZE), []

        def wait():
            try:
                while True:  # each is long enough for a close in between
                    transfer = memory.get_async(into)
                    begun.set()
                    transfer.wait()
            except (ValueError, umf.Error) as error:
                ends.append(str(error))

        begun = threading.Event()
        thread = threading.Thread(target=wait)
        thread.start()
        begun.wait()
        memory.close()
        thread.join()
        assert len(ends) == 1 and ("canceled" in ends[0] or "closed" in ends[0] or "ended" in ends[0])
        into.append(0)  # nothing holds it


def test_objects_end_with_their_last_reference(pair):
    published, memory, buffer = pair
    with remote.Remote() as other:
        mine = other.publish(buffer)
        opened = memory_of_other = other.open(mine.handle)
        del mine, memory_of_other
        with pytest.raises(umf.Error, match="withdrawn"):
            opened.get(0, 1)
        transfer = other.open(published.handle).get_async(bytearray(SIZE))  # keeps its range
        assert transfer.wait()


def test_no_close_under_a_call(pair, monkeypatch):
    published, memory, _ = pair
    monkeypatch.setattr(remote, "_PATIENCE", 0.05)
    for one in (memory, published):
        with one._uses, pytest.raises(BufferError, match="in progress"):
            one.close()
    with remote.Remote() as other:
        with other._uses, pytest.raises(BufferError, match="in progress"):
            other.close()
        assert other.is_open
    assert memory.get(0, 1) == b"o"
    with pytest.raises(ValueError, match="do not fit"):
        memory.get(0, 16, into=bytearray(8))


def test_threads_get_while_another_closes(pair):
    published, _, _ = pair
    with remote.Remote() as other:
        for _ in range(10):
            memory = other.open(published.handle)
            threads = [threading.Thread(target=_get_until_closed, args=(memory,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            memory.close()
            for thread in threads:
                thread.join()


def _get_until_closed(memory):
    with pytest.raises((ValueError, umf.Error)):
        while True:
            memory.get(0, 1000)


def test_a_child_of_fork_of_a_wait_ends(pair):
    _, memory, _ = pair
    transfer = memory.get_async(bytearray(SIZE))
    started = threading.Event()

    def wait():
        started.set()
        with contextlib.suppress(ValueError):
            transfer.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    child = os.fork()
    if child == 0:
        memory.close()  # without an end it would wait for a thread of the parent
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()


def test_a_child_of_fork_has_no_context(pair):
    _, memory, _ = pair
    child = os.fork()
    if child == 0:
        try:
            memory.get(0, 1)
        except umf.InvalidArgumentError:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert memory.get(0, 1) == b"o"


def test_another_process(pair):
    published, _, buffer = pair
    code = (
        "import sys; from umf import remote; handle = bytes.fromhex(sys.argv[1])\n"
        "with remote.Remote() as peer, peer.open(handle) as memory:\n"
        "    assert memory.get(0, 3) == b'ooo'; memory.put(b'new')\n"
    )
    subprocess.run([sys.executable, "-c", code, published.handle.hex()], check=True, timeout=600)
    assert bytes(memoryview(buffer)[:4]) == b"newo"


OWNER = """
import sys, umf
from umf import remote
with remote.Remote(network_only=len(sys.argv) > 1) as owner, umf.Pool("disjoint over linux_vmm") as pool:
    published = owner.publish(pool.allocate(4096))
    print(published.handle.hex(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("network_only", [False, True])
def test_a_signal_ends_an_open_of_a_silent_owner(network_only):
    command = [sys.executable, "-c", OWNER] + ["network only"] * network_only
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with owner, remote.Remote(deadline=600, network_only=network_only) as peer:
        handle = bytes.fromhex(owner.stdout.readline().decode())
        os.kill(owner.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, owner.pid, os.WSTOPPED)
        took = interrupts(lambda: peer.open(handle), 0.2)
        print(f"ended after {took * 1000:.0f} ms")
        assert took < 1  # promised are 0.1; a machine with much to do may take longer
        os.kill(owner.pid, signal.SIGCONT)
        with peer.open(handle) as memory:
            assert memory.nbytes == 4096
        owner.stdin.close()
