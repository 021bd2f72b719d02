"""umf.torch: pools, tensors and buffers, tensors of other processes."""

import ctypes
import gc
import multiprocessing
import pickle
import threading

import pytest
from gpu_helpers import MIB, full, holds, needs_fake, needs_gpu, torch, used

import umf
import umf.torch


@pytest.fixture
def pool():
    made = umf.torch.Pool()
    yield made
    if made.residency().state != "resident":
        made.resume()
    del made
    gc.collect()
    torch.cuda.empty_cache()
    umf.torch._collect()


def test_tensors_survive_a_suspend(pool):
    full(1, 0)  # what its kernels need stays
    start = used()
    with pool.use():
        tensor = full(32, 5)
    address = tensor.data_ptr()
    assert pool.suspend().bytes == 32 * MIB and used() <= start
    with pytest.raises(umf.OutOfResourcesError, match="suspended"):
        with pool.use():
            pass
    assert pool.resume(streams=[torch.cuda.current_stream()]).kept == 32 * MIB
    assert holds(tensor, 5) and tensor.data_ptr() == address
    assert pool.residency().resident == 32 * MIB


def test_it_is_a_pool_of_torch(pool):
    with torch.cuda.use_mem_pool(pool):
        tensor = full(32, 1)
    assert [segment["address"] for segment in pool.snapshot()] == [tensor.data_ptr()]
    assert "cuda_vmm" in repr(pool)


def is_in(tensor, pool):
    return any(
        segment["address"] <= tensor.data_ptr() < segment["address"] + segment["total_size"]
        for segment in pool.snapshot()
    )


def test_backward_allocates_from_the_pool(pool):
    weights = torch.full((MIB,), 2.0, device="cuda", requires_grad=True)
    assert torch._C._is_multithreading_enabled()
    with pool.use():
        (weights * weights).sum().backward()
    assert is_in(weights.grad, pool) and not is_in(weights, pool)
    assert torch._C._is_multithreading_enabled()
    assert holds(weights.grad, 4)


def test_pools_nest():
    outer, inner = umf.torch.Pool(), umf.torch.Pool(keep="discard")
    with outer.use():
        first = full(32, 1)
        with inner.use():
            second = full(32, 2)
        third = full(32, 3)
    inner.suspend()
    assert holds(first, 1) and holds(third, 3)
    inner.resume()
    second.fill_(4)
    assert holds(second, 4)


def test_memory_outlives_the_pool():
    pool = umf.torch.Pool()
    below = pool.pool
    with pool.use():
        tensor = full(32, 1)
    del pool
    gc.collect()
    assert not below.closed and holds(tensor, 1)
    del tensor
    torch.cuda.empty_cache()
    umf.torch._collect()
    assert below.closed


def test_slots_are_used_again():
    for _ in range(100):
        umf.torch.Pool()
    gc.collect()
    kept = []
    with pytest.raises(umf.OutOfResourcesError, match="64"):
        for _ in range(65):
            kept.append(umf.torch.Pool())


def test_no_memory_is_an_error_of_torch(pool):
    _, total = torch.cuda.mem_get_info()
    with pytest.raises(torch.OutOfMemoryError):
        with pool.use():
            torch.empty(2 * total, dtype=torch.uint8, device="cuda")


@needs_fake
def test_memory_of_a_stream_that_is_gone_goes_back():
    """The thread that gives it back has not used the stream, so the driver is asked which it is."""
    made = [umf.torch.Pool()]
    below = made[0].pool
    driver, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert driver.cuStreamCreate(ctypes.byref(handle), 1) == 0
    with made[0].use(), torch.cuda.stream(torch.cuda.ExternalStream(handle.value)):
        full(4, 1)
    assert driver.cuStreamDestroy_v2(handle) == 0
    assert below.statistics().allocations == 1
    thread = threading.Thread(target=made.clear)
    thread.start()
    thread.join()
    umf.torch._collect()
    assert below.closed


def test_pools_without_suspend_and_with_text():
    pool = umf.torch.Pool("coalescing", "cuda:device=0,memory_type=device", keep=None)
    with pool.use():
        tensor = full(4, 1)
    with pytest.raises(umf.NotSupportedError):
        pool.suspend()
    assert holds(tensor, 1)


def test_tensors_of_buffers_and_back():
    with umf.Pool("coalescing over cuda_vmm") as pool:
        memory = pool.allocate(4 * MIB)
        assert memory.__dlpack_device__() == (2, 0)
        about = memory.__cuda_array_interface__
        assert about["data"] == (memory.ptr, False) and about["shape"] == (4 * MIB,)
        with pytest.raises(BufferError, match="does not reach"):
            memoryview(memory)
        for stream in (0, -2, "1", 1.0):
            with pytest.raises(BufferError):
                memory.__dlpack__(stream=stream)
        tensor = umf.torch.tensor(memory, torch.int32, (1024, -1))
        tensor.fill_(3)
        assert tensor.data_ptr() == memory.ptr and tensor.shape == (1024, 1024)
        with pytest.raises(umf.OutOfResourcesError):
            umf.suspend(pool)
        target = bytearray(8)
        umf.copy(target, memory, 8)
        assert target == b"\3\0\0\0" * 2
        umf.copy(tensor, b"\1\0\0\0")
        assert int(tensor[0, 0]) == 1
        view = umf.torch.buffer(tensor)
        assert view.ptr == memory.ptr and view.nbytes == 4 * MIB
        view.free()
        del tensor
        gc.collect()
        umf.suspend(pool)
        for view in (memory.__dlpack__, lambda: memory.__cuda_array_interface__):
            with pytest.raises(BufferError, match="suspended"):
                view()
        umf.resume(pool)


needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")


@needs_two
def test_a_tensor_of_another_gpu():
    with umf.Pool("coalescing over cuda_vmm:device=0,peers=1") as pool:
        memory = pool.allocate(4 * MIB)
        umf.fill(memory, 7)
        tensor = umf.torch.tensor(memory, device=1)
        assert tensor.device == torch.device("cuda", 1) and tensor.data_ptr() == memory.ptr
        assert holds(tensor, 7)
        with pytest.raises(BufferError, match="not on"):
            memory.__dlpack__(dl_device=(2, 5))
        del tensor
    pool = umf.torch.Pool(provider="cuda_vmm:device=0,peers=1")
    with pool.use():
        tensor = full(32, 3)
    torch.cuda.synchronize()
    there = umf.torch.tensor(umf.torch.buffer(tensor), device=1)
    assert there.device.index == 1 and holds(there, 3)
    del there
    alone = umf.torch.Pool(provider="cuda_vmm:device=0")
    with alone.use():
        tensor = full(32, 3)
    with pytest.raises(BufferError, match="not on"):
        umf.torch.tensor(umf.torch.buffer(tensor), device=1)


def _child(shared, connection, device):
    tensor = shared.open(device)
    connection.send((str(tensor.device), tensor.cpu().tolist()))
    tensor.copy_(torch.tensor([[7.0, 8.0], [9.0, 10.0]]))
    torch.cuda.synchronize()
    del tensor
    gc.collect()
    connection.send("done")


@pytest.mark.parametrize("device", [None, pytest.param(1, marks=needs_two)])
def test_a_tensor_of_another_process(device):
    pool = umf.torch.Pool(provider="cuda_vmm:share=fd")
    with pool.use():
        tensor = torch.empty(2, 2, device="cuda")
    tensor.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    torch.cuda.synchronize()
    shared = umf.torch.share(tensor, pool)
    assert pickle.loads(pickle.dumps(shared)) == shared
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(shared, theirs, device))
    child.start()
    theirs.close()
    assert ours.recv() == (f"cuda:{device or 0}", [[1.0, 2.0], [3.0, 4.0]])
    assert ours.recv() == "done"
    child.join(300)
    assert child.exitcode == 0
    assert tensor.cpu().tolist() == [[7.0, 8.0], [9.0, 10.0]]
    with pytest.raises(ValueError):
        umf.torch.share(tensor.t(), pool)


def test_what_cannot_be_shared(pool):
    with pool.use():
        tensor = full(4, 1)
    with pytest.raises(umf.InvalidArgumentError):
        umf.torch.share(tensor, pool)


@needs_gpu
def test_graphs_replay_after_a_suspend(pool):
    with pool.use():
        weights, result = full(4, 2), full(4, 0)
    weights + 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        result.copy_(weights + 1)
    for _ in range(3):
        result.zero_()
        torch.cuda.synchronize()
        pool.suspend()
        pool.resume()
        graph.replay()
        assert holds(result, 3)
