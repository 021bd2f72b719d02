"""Memory that is allocated and freed on streams."""

import ctypes
import os
import types

import fake_driver
import pytest
from gpu_helpers import MIB, needs_fake, torch
from helpers import run_python

import umf


@pytest.fixture
def pool():
    torch.zeros(1, device="cuda")
    made = umf.Pool("coalescing over cuda_vmm")
    yield made
    made.close()


def test_what_a_stream_freed_it_has_again(pool):
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    buffer = pool.allocate(4 * MIB, stream=first)
    ptr = buffer.ptr
    buffer.free()
    again = pool.allocate(4 * MIB, 256, stream=first.cuda_stream)
    assert again.ptr == ptr
    again.use_on(second)
    again.free(stream=second)
    assert again.freed
    assert pool.wait_pending() == 0 and pool.wait_pending(0) == 0
    pool.trim(0, first)
    pool.trim(0, second)
    assert pool.statistics().allocations == 0
    umf.queue_ends(first)
    umf.queue_ends(second)


def test_memory_that_an_exception_refuses_stays_behind_its_stream(pool):
    """Memory is found after a callback has failed. It counts as allocated until its stream has completed."""
    with open("/proc/self/maps") as maps:
        library = ctypes.CDLL(next(line.split()[-1] for line in maps if "/libumf.so" in line))
    stream, held = torch.cuda.Stream(), [pool.allocate(12 * MIB)]
    pool.set_limit(16 * MIB)

    @ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_void_p)
    def give(*about):
        while held:
            held.pop().free()
        return True

    def fail(*about):
        raise KeyError("why")

    with umf.on_out_of_memory(fail):
        assert library.umfAddReclaimCallback(give, None) == 0
        with pytest.raises(KeyError, match="why"):
            pool.allocate(12 * MIB, stream=stream)
        assert library.umfRemoveReclaimCallback(give, None) == 0
    assert not held and pool.statistics().allocations == 1
    umf.queue_ends(stream)
    pool.trim()
    assert pool.statistics().allocations == 0


def test_who_views_it_waits(pool):
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    plain, buffer = pool.allocate(MIB), pool.allocate(MIB, stream=stream)
    assert plain.stream is None and buffer.stream == stream.cuda_stream
    assert plain.__cuda_array_interface__["stream"] is None
    assert buffer.__cuda_array_interface__["stream"] == stream.cuda_stream
    assert pool.allocate(MIB, stream=0).__cuda_array_interface__["stream"] == 1
    umf.fill(buffer, 5, queue=stream.cuda_stream)
    for consumer in (torch.cuda.default_stream(), other):
        with torch.cuda.stream(consumer):
            tensor = torch.from_dlpack(buffer)
            assert int(tensor[-1]) == 5
            del tensor
    assert buffer.__dlpack__(stream=-1)
    buffer.free()
    plain.free()


def test_managed_memory_is_prefetched():
    torch.zeros(1, device="cuda")
    stream = torch.cuda.Stream()
    with umf.Pool("coalescing over cuda:memory_type=managed") as managed:
        buffer, of_stream = managed.allocate(MIB), managed.allocate(MIB, stream=stream)
        assert buffer.dlpack_device() == (13, 0), "managed, of GPU 0"
        umf.fill(buffer, 7)
        for device in (0, -1, None):
            buffer.prefetch(device, stream=stream)
            of_stream.prefetch(device)
            stream.synchronize()
            assert buffer[0] == buffer[-1] == 7
        buffer.prefetch()
        torch.cuda.synchronize()
        with pytest.raises(umf.InvalidArgumentError, match="no device 1000"):
            buffer.prefetch(1000)
        buffer.free()
        with pytest.raises(ValueError):
            buffer.prefetch()
        of_stream.free()


def test_only_managed_memory_is_prefetched(pool):
    with pool.allocate(MIB) as buffer, pytest.raises(umf.InvalidArgumentError, match="not managed"):
        buffer.prefetch()


@needs_fake
def test_prefetches_are_calls_of_the_driver():
    with umf.Pool("proxy over cuda:memory_type=managed") as managed, managed.allocate(MIB) as buffer:
        with fake_driver.counted() as calls:
            buffer.prefetch()
        assert calls["cuMemPrefetchAsync"] == 1
        torch.cuda.synchronize()


def test_streams_of_other_libraries(pool):
    stream = torch.cuda.Stream()
    protocol = types.SimpleNamespace(__cuda_stream__=lambda: (0, stream.cuda_stream))
    with pool.allocate(MIB, stream=protocol) as buffer:
        buffer.use_on(0)
    plain = pool.allocate(MIB)
    plain.use_on(stream)
    del plain
    assert pool.wait_pending() == 0


def test_words_that_are_wrong(pool):
    buffer = pool.allocate(MIB)
    for wrong in ("a", 1.5, object()):
        with pytest.raises(TypeError, match="stream"):
            pool.allocate(MIB, stream=wrong)
        with pytest.raises(TypeError, match="stream"):
            buffer.free(stream=wrong)
        with pytest.raises(TypeError, match="stream"):
            buffer.use_on(wrong)
    for wrong in (-1, float("nan"), 1e10):
        with pytest.raises(ValueError, match="timeout"):
            pool.wait_pending(wrong)
    assert not buffer.freed
    buffer.free()
    with pytest.raises(ValueError, match="freed"):
        buffer.use_on(0)


def test_memory_of_the_host_has_one_queue():
    with umf.Pool("disjoint over os") as pool:
        buffer = pool.allocate(100, stream=0)
        buffer.use_on(0)
        with pytest.raises(umf.NotSupportedError):
            buffer.free(stream=4096)
        assert not buffer.freed
        memoryview(buffer)[0] = 1
        buffer.free(stream=0)
        with pytest.raises(umf.Error):
            pool.allocate(100, stream=4096)
        assert pool.statistics().allocations == 0


@pytest.mark.skipif(os.environ.get("UMF_TEST_GPU") == "real", reason="of the software driver")
def test_a_signal_is_answered_while_work_is_waited_for():
    run_python(
        """
import ctypes, signal, threading, torch, umf
torch.zeros(1, device="cuda")
driver = ctypes.CDLL("libcuda.so.1")
pool = umf.Pool("coalescing over cuda_vmm")
stream = torch.cuda.Stream()
gate = threading.Event()
work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(20) and None)
buffer = pool.allocate(4 << 20, stream=stream)
assert driver.cuLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), work, None) == 0
buffer.free()
assert pool.wait_pending(0) > 0
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    pool.wait_pending()
    raise AssertionError("the work has passed before the signal was answered")
except KeyboardInterrupt:
    assert pool.wait_pending(0) > 0  # it has not
gate.set()
assert pool.wait_pending() == 0  # waits for the other one
pool.close()
""",
        env={"UMF_FAKE_CUDA_LATE": "1"},
    )
