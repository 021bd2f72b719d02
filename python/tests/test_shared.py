"""Memory that other processes open."""

import multiprocessing
import pickle

import pytest

import umf

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings, strategies  # noqa: E402

TEXT = "disjoint over os:visibility=shared"


def _write(buffer, conn):
    with memoryview(buffer) as view:
        conn.send(bytes(view[:5]))
        view[:5] = b"child"
    conn.close()


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_a_buffer_is_an_argument_of_a_process(start):
    context = multiprocessing.get_context(start)
    with umf.Pool(TEXT) as pool:
        buffer = pool.allocate(4096)
        memoryview(buffer)[:5] = b"mummy"
        ours, theirs = context.Pipe()
        child = context.Process(target=_write, args=(buffer, theirs))
        child.start()
        theirs.close()
        assert ours.recv() == b"mummy"
        child.join(300)
        assert child.exitcode == 0 and bytes(memoryview(buffer)[:5]) == b"child"


def test_a_handle_travels_in_any_way():
    with umf.Pool(TEXT) as pool:
        buffer = pool.allocate(100)
        memoryview(buffer)[:2] = b"hi"
        handle = pickle.loads(pickle.dumps(buffer.ipc_handle()))
        with handle.open() as twin:
            assert twin.origin == "ipc" and twin.nbytes == 100
            assert bytes(memoryview(twin)[:2]) == b"hi"
            with pytest.raises(ValueError, match="shared further"):
                twin.ipc_handle()
        buffer.free()
        pool.trim()


def test_what_cannot_be_shared(pool):
    with pytest.raises(umf.InvalidArgumentError):
        pickle.dumps(pool.allocate(8))


@settings(max_examples=50, deadline=None)
@given(data=strategies.binary(min_size=1, max_size=4096))
def test_any_bytes_pass_to_whoever_unpickles(data):
    with umf.Pool(TEXT) as pool:
        with pool.allocate(len(data)) as buffer, memoryview(buffer) as view:
            view[:] = data
            with pickle.loads(pickle.dumps(buffer.ipc_handle())).open() as twin:
                assert bytes(twin) == data
                with memoryview(twin) as there:
                    there[:1] = b"!"
            assert view[0] == ord("!")


@settings(max_examples=200, deadline=None)
@given(changes=strategies.lists(strategies.tuples(strategies.integers(0), strategies.integers(1, 255))))
def test_changed_handles_open_the_memory_or_nothing(changes):
    with umf.Pool(TEXT) as pool:
        buffer = pool.allocate(100)
        handle = buffer.ipc_handle()
        data = bytearray(handle.data)
        for at, bits in changes:
            data[at % len(data)] ^= bits
        try:
            twin = handle._replace(data=bytes(data)).open()
        except umf.Error:
            return
        with twin:
            assert len(bytes(twin)) == 100


def test_damaged_handles_are_refused():
    with umf.Pool(TEXT) as pool:
        handle = pool.allocate(100).ipc_handle()
        with pytest.raises(umf.Error):
            handle._replace(data=handle.data[:-1]).open()
        with pytest.raises(umf.Error):
            handle._replace(data=b"\0" * len(handle.data)).open()
