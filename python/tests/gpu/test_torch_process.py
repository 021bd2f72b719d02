"""umf.torch.install: a run of its own (run.sh, gpu.sh), as torch changes its allocator once."""

import gc
import os

import pytest
from gpu_helpers import IS_REAL, MIB, full, holds, needs_gpu, torch, used
from helpers import run_python

import umf.torch
from umf import _torch_pools

if os.environ.get("UMF_TEST_HOOK_MODE") != "process":
    pytest.skip("the allocator of a process needs one", allow_module_level=True)

allocator = umf.torch.install(arena=False) if os.environ.get("UMF_TEST_ARENA") == "no" else umf.torch.install()


@pytest.fixture(autouse=True)
def nothing_is_left():
    torch.cuda.synchronize()
    before = allocator.statistics().allocations
    yield
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert allocator.statistics().allocations == before


def test_tensors_and_statistics():
    assert umf.torch.install(arena=allocator.arena) is allocator and "cuda_vmm" in repr(allocator)
    start = allocator.statistics().allocations
    first, empty = full(8, 1), torch.empty(0, device="cuda")
    assert empty.data_ptr() == 0 and holds(first, 1)
    assert allocator.statistics().allocations >= start + 1
    assert allocator.statistics().used >= 8 * MIB
    assert allocator.statistics(device=1).allocations == 0
    again = [full(1, value) for value in range(50)]
    assert all(holds(one, value) for value, one in enumerate(again))
    del again, first
    reserved = allocator.statistics().reserved
    torch.cuda.empty_cache()
    assert allocator.statistics().reserved < reserved
    with pytest.raises(RuntimeError, match="already"):
        umf.torch.install("cuda")


def test_no_suspend_during_a_capture():
    class Graph:
        def capture_begin(self):
            pass

        def capture_end(self):
            pass

    _torch_pools.watch_captures(Graph)
    graph, tensor = Graph(), full(4, 1)
    graph.capture_begin()
    try:
        for call in (allocator.suspend, allocator.resume):
            with pytest.raises(umf.OutOfResourcesError, match="while a thread captures a graph"):
                call()
    finally:
        graph.capture_end()
    allocator.suspend()
    allocator.resume()
    assert holds(tensor, 1)


def test_all_tensors_survive_a_suspend():
    torch.cuda.empty_cache()
    tensors = [full(16, value) for value in range(8)]
    with torch.cuda.stream(torch.cuda.Stream()):
        tensors.append(full(16, 8))
    addresses = [one.data_ptr() for one in tensors]
    allocator.suspend()  # the first one makes streams, for which the driver takes memory
    allocator.resume()
    awake = used()
    report = allocator.suspend()
    try:
        asleep = used()
        with pytest.raises(torch.OutOfMemoryError, match="resume"):
            torch.empty(MIB, device="cuda")
    finally:
        resumed = allocator.resume(streams=[torch.cuda.current_stream()])
    assert report.bytes >= 9 * 16 * MIB and awake - asleep >= report.bytes
    assert resumed.kept == report.kept
    assert addresses == [one.data_ptr() for one in tensors]
    assert all(holds(one, value) for value, one in enumerate(tensors))


def test_no_memory_is_an_error_of_torch():
    _, total = torch.cuda.mem_get_info()
    for size in (2 * total, 1 << 50):
        with pytest.raises(torch.OutOfMemoryError, match=f"Tried to allocate .* GiB. GPU 0 .*{size} bytes"):
            torch.empty(size, dtype=torch.uint8, device="cuda")
    with pytest.raises(torch.OutOfMemoryError, match="more than 1EB"):
        torch.empty((1 << 60) + 1, dtype=torch.uint8, device="cuda")
    assert holds(full(4, 1), 1)


def test_what_a_stream_holds_free_serves_another():
    torch.cuda.empty_cache()
    available, _ = torch.cuda.mem_get_info()
    size = available * 7 // 10
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        torch.empty(size, dtype=torch.uint8, device="cuda")
    other.synchronize()
    assert torch.empty(size, dtype=torch.uint8, device="cuda").data_ptr()


def test_a_limit():
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(0.25)
    try:
        kept = torch.empty(total // 8, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(total // 4, dtype=torch.uint8, device="cuda")
        del kept
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.empty(total // 4, dtype=torch.uint8, device="cuda").data_ptr()


def test_frees_wait_for_recorded_streams():
    """The memory may serve again at once where the next work comes after that of the other stream."""
    other = torch.cuda.Stream()
    tensor = full(32, 1)
    tensor.record_stream(torch.cuda.current_stream())
    for _ in range(2):
        tensor.record_stream(other)
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        if IS_REAL:
            torch.cuda._sleep(1 << 30)
        seen = tensor.clone()
    del tensor
    again = full(32, 2)
    torch.cuda.synchronize()
    assert holds(seen, 1), "written while another stream reads it"
    assert holds(again, 2)
    del seen, again
    full(1, 3)


def test_a_recorded_tensor_is_free_when_its_streams_are_done():
    """Without an arena it stayed in the cache of its stream, which no allocation uses, until memory was short."""
    current, other = torch.cuda.current_stream(), torch.cuda.Stream()
    before = allocator.statistics()
    tensor = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    tensor.record_stream(other)
    del tensor
    for stream in (current, other):
        stream.synchronize()
    after = allocator.statistics()
    assert (after.allocations, after.used) == (before.allocations, before.used)


def test_memory_of_a_graph_is_its_own():
    """What torch calls around a capture, with a filter of its own."""
    graph = torch.cuda.graph_pool_handle()
    outside = full(2, 1)
    recorded = full(2, 5)
    recorded.record_stream(torch.cuda.Stream())
    torch._C._cuda_beginAllocateCurrentThreadToPool(0, graph)
    inside = full(2, 2)
    address = inside.data_ptr()
    del inside, recorded
    again = full(2, 3)
    torch._C._cuda_endAllocateToPool(0, graph)
    assert again.data_ptr() == address, "freed in the capture, used again in it"
    free = [full(2, 4) for _ in range(4)]
    del again
    free += [full(2, 4) for _ in range(4)]
    assert address not in [one.data_ptr() for one in free], "a replay would overwrite it"
    torch._C._cuda_releasePool(0, graph)
    assert holds(outside, 1) and all(holds(one, 4) for one in free)


def test_tensors_outlive_their_graph():
    graph = torch.cuda.graph_pool_handle()
    torch._C._cuda_beginAllocateCurrentThreadToPool(0, graph)
    result = full(2, 7)
    torch._C._cuda_endAllocateToPool(0, graph)
    torch._C._cuda_releasePool(0, graph)
    torch._C._cuda_releasePool(0, graph)
    allocator.suspend()
    allocator.resume()
    assert holds(result, 7)


@needs_gpu
def test_graphs():
    weights, results, graphs = full(4, 2), [], []
    weights + 1
    for number in range(3):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step = weights + number
            results.append(step * 2)
        graphs.append(graph)
    for _ in range(2):
        for graph in graphs:
            graph.replay()
        assert all(holds(result, 2 * (2 + number)) for number, result in enumerate(results))
        allocator.suspend()
        allocator.resume()
    del graphs, graph, results, step
    gc.collect()
    torch.cuda.empty_cache()
    assert holds(weights, 2)


def test_it_must_come_first():
    run_python("""
import torch, umf.torch
try:
    umf.torch.install(keep="tape")
except ValueError as error:
    assert "pinned" in str(error)
else:
    raise AssertionError("no error")
for provider in ("os", "nix:device=0", 3):
    try:
        umf.torch.install(provider)
    except ValueError as error:
        assert "cuda_vmm or cuda" in str(error) and repr(provider) in str(error)
    else:
        raise AssertionError("no error")
torch.zeros(1, device="cuda")
try:
    umf.torch.install()
except RuntimeError as error:
    assert "before torch has allocated" in str(error)
else:
    raise AssertionError("no error")
""")


def test_settings_that_are_wrong_are_named():
    run_python("""
import torch, umf.torch
umf.torch.install("cuda_vmm:bogus=1")
try:
    torch.empty(1 << 20, device="cuda")
except RuntimeError as error:
    assert "unknown setting 'bogus'" in str(error), error
else:
    raise AssertionError("no error")
""")


def test_memory_that_is_shared_is_of_no_arena():
    run_python("""
import umf.torch
allocator = umf.torch.install("cuda_vmm:share=fd")
assert not allocator.arena
assert umf.torch.install("cuda_vmm:share=fd", arena=False) is allocator
""")
    run_python("""
import umf.torch
assert umf.torch.install("cuda_vmm:share=none").arena
""")
    run_python("""
import umf.torch
assert umf.torch.install(arena=False) is umf.torch.install(), "a choice is asked for once"
""")


def test_a_device_is_a_number():
    with pytest.raises(TypeError):
        allocator.statistics(device="cuda:0")
