"""Torch's own statistics under the allocator of the process: torch.cuda.memory_stats and its users."""

import pytest
from gpu_helpers import process_with
from helpers import run_python

CHECKS = """
from collections import Counter

def rounded(size):
    return -(-size // 512) * 512

# What torch's statistics have to be, from the sizes of tensors.
class Model:
    def __init__(self):
        self.now, self.peak, self.allocated, self.freed = Counter(), Counter(), Counter(), Counter()

    def change(self, size, sign):
        for key, amount in (("allocation", 1), ("allocated_bytes", rounded(size)), ("requested_bytes", size)):
            self.now[key] += sign * amount
            (self.allocated if sign > 0 else self.freed)[key] += amount
        self.peak |= self.now

    def check(self, stats):
        for key in ("allocation", "allocated_bytes", "requested_bytes"):
            for part, own in (("current", self.now), ("peak", self.peak), ("allocated", self.allocated), ("freed", self.freed)):
                for pool in ("all", "large_pool"):
                    assert stats[f"{key}.{pool}.{part}"] == own[key], (key, part, stats[f"{key}.{pool}.{part}"], own[key])
                assert stats[f"{key}.small_pool.{part}"] == 0
        for key, same in (("active", "allocation"), ("active_bytes", "allocated_bytes")):
            for part in ("current", "peak", "allocated", "freed"):
                assert stats[f"{key}.all.{part}"] == stats[f"{same}.all.{part}"]

def tensor_of(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")
"""


@pytest.fixture(params=["True", "False"])
def start(request):
    return process_with(f"umf.torch.install(arena={request.param})") + CHECKS


def test_they_are_those_of_a_model(start):
    run_python(
        start
        + """
chance, model, tensors = random.Random(5), Model(), []
streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
most_reserved = 0
for step in range(1000):
    action = chance.random()
    if action < 0.5 or not tensors:
        with torch.cuda.stream(chance.choice(streams)):
            size = chance.choice([1, 512, 513, 5000, 300_000, MIB, MIB + 1, 6 * MIB])
            tensors.append(tensor_of(chance.randint(max(1, size // 2), size)))
        model.change(tensors[-1].numel(), 1)
        if chance.random() < 0.2:
            tensors[-1].record_stream(chance.choice(streams))
    elif action < 0.95:
        tensor = tensors.pop(chance.randrange(len(tensors)))
        model.change(tensor.numel(), -1)
        del tensor
    elif action < 0.97:
        torch.cuda.reset_peak_memory_stats()
        model.peak = Counter(model.now)
        assert torch.cuda.max_memory_reserved() == torch.cuda.memory_reserved()
        most_reserved = 0
    elif action < 0.98:
        torch.cuda.reset_accumulated_memory_stats()
        model.allocated, model.freed = Counter(), Counter()
    elif action < 0.99:
        torch.cuda.empty_cache()
    else:
        allocator.suspend()
        model.check(torch.cuda.memory_stats())
        allocator.resume()
    stats = torch.cuda.memory_stats()
    model.check(stats)
    reserved = stats["reserved_bytes.all.current"]
    most_reserved = max(most_reserved, reserved)
    assert model.now["allocated_bytes"] <= reserved and most_reserved <= stats["reserved_bytes.all.peak"]
    if step % 50 == 0:
        for stream in streams:
            stream.synchronize()
        seen = allocator.statistics()
        assert seen.used == model.now["allocated_bytes"] and seen.allocations == model.now["allocation"], (seen, model.now)
        assert seen.reserved == torch.cuda.memory_reserved()
tensors.clear()
torch.cuda.synchronize()
torch.cuda.empty_cache()
assert torch.cuda.memory_allocated() == torch.cuda.memory_reserved() == 0
assert torch.cuda.max_memory_reserved() >= most_reserved > 0
"""
    )


def test_torch_and_torch_accelerator_answer_alike(start):
    run_python(
        start
        + """
assert torch.cuda.memory_allocated() == torch.cuda.memory_reserved() == 0, "before the first tensor"
assert torch.cuda.memory_snapshot() == []
torch.cuda.reset_peak_memory_stats()
first, second = tensor_of(3 * MIB + 1), tensor_of(100)
del first
names = ["memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats"]
for name in names:
    assert getattr(torch.cuda, name)() == getattr(torch.accelerator, name)(), name
assert torch.cuda.memory_allocated() == 512 and torch.cuda.max_memory_allocated() == 3 * MIB + 1024
for device in range(1, torch.cuda.device_count()):
    there = torch.empty(MIB, dtype=torch.uint8, device=device)
    assert torch.cuda.memory_allocated(device) == MIB <= torch.cuda.memory_reserved(device)
    assert torch.cuda.memory_allocated() == 512
    del there
    assert torch.cuda.memory_allocated(device) == 0 < torch.cuda.max_memory_allocated(device)
torch.accelerator.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == 512
torch.accelerator.reset_accumulated_memory_stats()
assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0
text = torch.cuda.memory_summary() + torch.cuda.memory_summary(abbreviated=True)
assert text.count("GPU reserved memory") == 2 and "512 B" in text
before = torch.cuda.memory_reserved()
del second
torch.accelerator.empty_cache()
assert torch.cuda.memory_reserved() == 0 < before <= torch.cuda.max_memory_reserved()
for function in (torch.cuda.memory_stats, torch.cuda.reset_peak_memory_stats, torch.cuda.reset_accumulated_memory_stats):
    try:
        function(77)
    except RuntimeError as error:
        assert "Invalid device argument 77" in str(error)
    else:
        raise AssertionError("no error")
extra = {key for key in torch.cuda.memory_stats() if key.startswith("umf.")}
assert extra == {"umf.spare_bytes", "umf.stale_bytes", "umf.donated_bytes"}, extra

# Requests that fail.
torch.cuda.reset_accumulated_memory_stats()
for size in (1 << 50, (1 << 60) + 1):
    try:
        tensor_of(size)
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("no error")
stats = torch.cuda.memory_stats()
assert stats["num_ooms"] == stats["num_alloc_retries"] == 2, stats
assert stats["allocation.all.allocated"] == stats["allocation.all.current"] == 0
torch.cuda.reset_accumulated_memory_stats()
assert torch.cuda.memory_stats()["num_ooms"] == torch.cuda.memory_stats()["num_alloc_retries"] == 0
"""
    )


def test_threads_are_counted_exactly(start):
    """The peak of each thread alone is certain to be reached, the sum of all is never exceeded."""
    run_python(
        start
        + """
import threading
ready = threading.Barrier(4)

def work(number):
    chance = random.Random(number)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(100):
            kept = [tensor_of(chance.randint(1, 4096)) for _ in range(8)]
            kept.append(tensor_of(MIB))
            if _ == 50:
                ready.wait(300)  # all have a MiB
            del kept

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
stats = torch.cuda.memory_stats()
assert stats["allocation.all.current"] == stats["allocated_bytes.all.current"] == 0, stats
assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 4 * 9 * 100
assert 4 * MIB <= stats["allocated_bytes.all.peak"] <= 4 * (MIB + 8 * 4096)
assert 4 <= stats["allocation.all.peak"] <= 36
"""
    )


def test_a_snapshot_agrees_with_them_and_graphs_are_in_it(start):
    run_python(
        start
        + """
import os, pickle, tempfile
from torch.cuda import _memory_viz
tensors = [tensor_of(size) for size in (100, 5000, 9 * MIB, 700, 11 * MIB, 300_000) * 4]
with torch.cuda.stream(torch.cuda.Stream()):
    tensors.append(tensor_of(5 * MIB))
del tensors[1::3]
torch.cuda.synchronize()
segments, stats = torch.cuda.memory_snapshot(), torch.cuda.memory_stats()
blocks = []
for segment in segments:
    assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    at = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == at
        at += block["size"]
        blocks.append(block)
live = {block["address"]: block["size"] for block in blocks if block["state"] == "active_allocated"}
assert live == {tensor.data_ptr(): rounded(tensor.numel()) for tensor in tensors}
assert sum(live.values()) == stats["allocated_bytes.all.current"]
assert sum(segment["total_size"] for segment in segments) == stats["reserved_bytes.all.current"]
assert torch.cuda.memory_snapshot((7, 7)) == []
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "snapshot.pickle")
    torch.cuda.memory._dump_snapshot(path)
    with open(path, "rb") as file:
        assert pickle.load(file)["segments"] == segments
assert "total_allocated" in _memory_viz.segsum(torch.cuda.memory._snapshot())

# Memory of a graph: the calls of torch around a capture, with a filter of its own.
tensors.clear()
outside, graph = tensor_of(2 * MIB), torch.cuda.graph_pool_handle()
torch._C._cuda_beginAllocateCurrentThreadToPool(0, graph)
inside = tensor_of(3 * MIB)
torch._C._cuda_endAllocateToPool(0, graph)
assert torch.cuda.memory_allocated() == 5 * MIB <= torch.cuda.memory_reserved()
(segment,) = torch.cuda.memory_snapshot(graph)
assert segment["segment_pool_id"] == tuple(graph) and segment["allocated_size"] == 3 * MIB
assert sum(one["allocated_size"] for one in torch.cuda.memory_snapshot()) == 5 * MIB
torch._C._cuda_releasePool(0, graph)
assert torch.cuda.memory_allocated() == 5 * MIB
del inside
assert torch.cuda.memory_allocated() == 2 * MIB
"""
    )


def test_a_pool_of_torch_leaves_them_to_torch():
    run_python(
        process_with("umf.torch.Pool()")
        + """
before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
with allocator.use():
    tensor = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_allocated() - before[0] == 5 * MIB <= torch.cuda.memory_reserved() - before[1]
assert "umf.spare_bytes" not in torch.cuda.memory_stats()
"""
    )
