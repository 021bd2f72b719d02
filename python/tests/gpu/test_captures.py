"""Threads that capture graphs, beside others that enter, leave, suspend and drop pools."""

import contextlib
import ctypes
import threading

import pytest
from gpu_helpers import IS_REAL, Other, empty, full, holds, needs_fake, needs_gpu, torch
from helpers import run_python

import umf
import umf.torch
from umf import _torch_pools

THREAD_LOCAL = 1


class SoftGraph:
    """A capture on the software driver, which the CUDA runtime of the tests does not have, and torch's part of it."""

    def __init__(self):
        self._driver, self._stream = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        self._pool = torch.cuda.graph_pool_handle()
        context = ctypes.c_void_p()
        self._check(self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self._check(self._driver.cuCtxSetCurrent(context))
        self._check(self._driver.cuStreamCreate(ctypes.byref(self._stream), 1))

    @staticmethod
    def _check(result):
        if result != 0:
            raise RuntimeError(f"the driver says {result}")

    def capture_begin(self, capture_error_mode="thread_local"):
        mode = ("global", "thread_local", "relaxed").index(capture_error_mode)
        self._check(self._driver.cuStreamBeginCapture_v2(self._stream, mode))
        torch._C._cuda_beginAllocateCurrentThreadToPool(0, self._pool)

    def capture_end(self):
        graph = ctypes.c_void_p()
        torch._C._cuda_endAllocateToPool(0, self._pool)
        torch._C._cuda_releasePool(0, self._pool)
        self._check(self._driver.cuStreamEndCapture(self._stream, ctypes.byref(graph)))


Graph = torch.cuda.CUDAGraph if IS_REAL else SoftGraph
_torch_pools.watch_captures(Graph)


@contextlib.contextmanager
def captured(mode="thread_local"):
    """A capture by this thread; its end fails if the capture was broken."""
    with torch.cuda.stream(torch.cuda.Stream()):
        graph = Graph()
        graph.capture_begin(capture_error_mode=mode)
        try:
            yield
        finally:
            graph.capture_end()


def end_of(capture):
    """Ends the capture of another thread and returns its error."""
    capture.leave()
    return capture.error


class Capture(Other):
    """Another thread that captures until `leave`."""

    error = None

    def __init__(self, mode="thread_local"):
        super().__init__(captured(mode))

    def _run(self):
        try:
            super()._run()
        except RuntimeError as error:
            self.error = error


@pytest.mark.parametrize("mode", ["thread_local", "relaxed"])
def test_pools_are_entered_and_left_during_a_capture(allocator, mode):
    with allocator.use_memory_pool("weights"):
        gone = full(4, 1)
    capture = Capture(mode)
    del gone
    for value in range(3):
        with allocator.use_memory_pool("weights"):
            kept = full(4, value)
        with allocator.use_memory_pool("kv_cache"):
            empty()
    assert end_of(capture) is None
    assert holds(kept, 2)
    for tag in ("weights", "kv_cache"):
        with allocator.use_memory_pool(tag):
            pass
    assert list(allocator.pointer_to_data) == [kept.data_ptr()], "the next trims take the rest"


def test_no_sleep_and_no_wake_up_during_a_capture(allocator):
    with allocator.use_memory_pool("weights"):
        tensor = full(4, 3)
    capture = Capture()
    for call in (lambda: allocator.sleep("weights"), lambda: allocator.discard("weights")):
        with pytest.raises(RuntimeError, match="while a thread captures a graph"):
            call()
    assert end_of(capture) is None and holds(tensor, 3)
    allocator.sleep("weights")
    capture = Capture()
    with pytest.raises(RuntimeError, match="while a thread captures a graph"):
        allocator.wake_up()
    assert end_of(capture) is None
    allocator.wake_up()
    assert holds(tensor, 3)


def test_a_pool_of_torch_is_neither_suspended_nor_destroyed_during_a_capture():
    pool, dropped = umf.torch.Pool(), umf.torch.Pool()
    below = dropped.pool
    capture = Capture()
    del dropped
    assert not below.closed
    for call in (pool.suspend, pool.resume):
        with pytest.raises(umf.OutOfResourcesError, match="while a thread captures a graph"):
            call()
    assert end_of(capture) is None
    umf.torch._collect()
    assert below.closed and _torch_pools._active == 0
    pool.suspend()
    pool.resume()


@pytest.fixture
def plain():
    with umf.Pool("disjoint over cuda_vmm") as pool:
        pool.set_policy("host")
        yield pool


def test_a_plain_suspend_is_refused_during_a_capture(plain):
    buffer = plain.allocate(4 << 20)
    buffer.copy_from(b"a" * 100)
    capture = Capture()
    for call in (umf.suspend, lambda pool: umf.suspend_async(pool).wait()):
        with pytest.raises(umf.OutOfResourcesError, match="end the capture"):
            call(plain)
    assert plain.residency().state == "resident"
    plain.trim()
    assert end_of(capture) is None
    umf.suspend(plain)
    umf.resume(plain)
    content = bytearray(100)
    buffer.copy_to(content, 100)
    assert content == b"a" * 100


def test_a_plain_suspend_with_queues_goes_on_during_a_capture(plain):
    kept = plain.allocate(4 << 20)
    stream = torch.cuda.Stream()
    capture = Capture()
    umf.suspend(plain, queues=[stream.cuda_stream])
    umf.resume(plain, queues=[stream.cuda_stream])
    assert end_of(capture) is None
    kept.free()


def test_a_plain_close_does_not_end_a_capture():
    pool = umf.Pool("disjoint over cuda_vmm")
    pool.allocate(4 << 20).free()
    capture = Capture()
    pool.close()
    assert end_of(capture) is None


@needs_fake
def test_a_capture_of_others_is_announced(plain):
    """Of a class that nothing watches, as that of another framework: `capturing` is the only word of it."""

    class Foreign(SoftGraph):
        capture_begin, capture_end = (one.__wrapped__ for one in (SoftGraph.capture_begin, SoftGraph.capture_end))

    plain.allocate(4 << 20)
    graph = Foreign()
    with umf.capturing(graph._stream.value):
        graph.capture_begin()
        with pytest.raises(umf.OutOfResourcesError, match="end the capture"):
            umf.suspend(plain)
        graph.capture_end()
    umf.suspend(plain)
    umf.resume(plain)
    with pytest.raises(TypeError, match="stream must be the address"):
        with umf.capturing("x"):
            pass


def test_a_capture_begins_after_a_move():
    begun = threading.Event()

    def capture():
        with captured():
            begun.set()

    thread = threading.Thread(target=capture)
    with _torch_pools.unless_captured() as is_free:
        assert is_free
        thread.start()
        assert not begun.wait(0.2)
    thread.join(300)
    assert begun.is_set()


def test_captures_that_fail_do_not_count(plain):
    class Graph:
        def capture_begin(self, fails=False):
            if fails:
                raise RuntimeError("it cannot begin")

        def capture_end(self):
            raise RuntimeError("it was broken")

    before = _torch_pools._active
    _torch_pools.watch_captures(Graph)
    begin = Graph.capture_begin
    _torch_pools.watch_captures(Graph)
    assert Graph.capture_begin is begin
    try:
        with pytest.raises(RuntimeError, match="it cannot begin"):
            Graph().capture_begin(fails=True)
        assert _torch_pools._captures == 0
        assert _torch_pools._active == before + 1, "torch destroys no pool after that"
        graph = Graph()
        graph.capture_begin()
        with pytest.raises(RuntimeError, match="it was broken"):
            graph.capture_end()
        assert _torch_pools._captures == 0
        assert _torch_pools._active == before + 2, "nor after that"
        umf.suspend(plain)  # neither is announced
        umf.resume(plain)
    finally:
        _torch_pools._active = before


CAPTURING_THREADS = """
import threading, torch
from umf.vllm.device_allocator.cumem import CuMemAllocator

ROUNDS, MIB = 20, 1 << 20
generator = threading.Lock()  # captures register with one generator of torch, which takes no lock
allocator = CuMemAllocator.get_instance()
torch.ones(1, device="cuda").mul_(2).cpu()  # loads the kernels
made, errors = {}, []


def capture(tag, value):
    stream, graphs = torch.cuda.Stream(), []
    with torch.cuda.stream(stream):
        for number in range(ROUNDS):
            with allocator.use_memory_pool(tag=tag):
                source = torch.full((4 * MIB,), value + number, dtype=torch.uint8, device="cuda")
                stream.synchronize()
                with generator:
                    graph = torch.cuda.CUDAGraph()
                    graph.capture_begin(capture_error_mode="thread_local")
                try:
                    result = source * 2
                    result += 1
                finally:
                    with generator:
                        graph.capture_end()
            if number % 4 == 0:
                graphs.append((graph, source, result, 2 * (value + number) + 1))
            with generator:
                del graph
            del source, result
        for graph, _, result, _ in graphs:
            result.zero_()
            graph.replay()
        stream.synchronize()
    made[tag] = graphs


def run(tag, value):
    try:
        capture(tag, value)
    except BaseException as error:
        errors.append(repr(error))


threads = [threading.Thread(target=run, args=(f"t{n}", 10 + 40 * n), daemon=True) for n in range(2)]
for one in threads:
    one.start()
for one in threads:
    one.join()
assert not errors, errors
graphs = [one for tag in sorted(made) for one in made[tag]]
assert len(graphs) == 10
for _, _, result, wanted in graphs:
    assert bool((result == wanted).all()), wanted
addresses = [result.data_ptr() for _, _, result, _ in graphs]
allocator.sleep(("t0", "t1"))
allocator.wake_up()
for graph, _, result, wanted in graphs:
    assert bool((result == wanted).all()), "the content is back"
    result.zero_()
    graph.replay()
torch.cuda.synchronize()
for _, _, result, wanted in graphs:
    assert bool((result == wanted).all()), "replayed at the same addresses"
assert addresses == [result.data_ptr() for _, _, result, _ in graphs]
"""


@needs_gpu
def test_two_threads_capture_in_pools():
    """Each captures and replays graphs over memory of its tag while the other enters, leaves and trims."""
    run_python(CAPTURING_THREADS, timeout=240)


@needs_gpu
def test_a_thread_captures_while_another_uses_pools(allocator):
    """In the mode of ``torch.cuda.graph``, which forbids other threads the calls that may wait."""
    source, stop, errors = full(4, 5), threading.Event(), []
    graphs = []  # torch 2.11 begins no capture in a pool whose last graph has ended
    torch.cuda.synchronize()

    def use():
        try:
            while not stop.is_set():
                with allocator.use_memory_pool("weights"):
                    torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    try:
        for _ in range(20):
            graph = torch.cuda.CUDAGraph()
            with allocator.cudagraph_pool() as pool:
                with torch.cuda.stream(torch.cuda.Stream()):
                    graph.capture_begin(pool=pool, capture_error_mode="global")
                    try:
                        result = source * 3
                    finally:
                        graph.capture_end()
            graph.replay()
            torch.cuda.synchronize()
            assert holds(result, 15)
            graphs.append(graph)
    finally:
        stop.set()
        thread.join(300)
    assert not errors
