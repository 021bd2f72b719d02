"""umf.torch.install with an arena: one for all streams, whose free pages move."""

import pytest
from gpu_helpers import IS_REAL, needs_gpu, process_with
from helpers import ROOT, run_python

START = process_with("umf.torch.install(arena=True)")

# Activations of a training with sequences of changing length on three streams: each is made on one
# stream, used on the next one, and freed while that works.
STREAMS = (
    START
    + """
streams = [torch.cuda.Stream() for _ in range(3)]
chance = random.Random(7)
weights = [torch.empty(8 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
for step in range(12):
    length = chance.randint(20, 48)
    activations = []
    for layer in range(16):
        with torch.cuda.stream(streams[layer % 3]):
            made = torch.empty(length * MIB // 4 + layer * 4096, dtype=torch.uint8, device="cuda")
            made[:4] = layer
        made.record_stream(streams[(layer + 1) % 3])
        activations.append(made)
    del made
    while activations:
        assert int(activations.pop()[0]) == len(activations)
    for stream in streams:
        stream.synchronize()
"""
)


def test_record_stream_delays_no_free():
    """A pool for each stream held 10 % more than expandable segments: frees came back late."""
    run_python(
        STREAMS
        + """
seen = allocator.arena_statistics()
assert seen.used == 64 * MIB, seen
assert seen.reserved_peak <= 1.05 * seen.used_peak, seen
del weights
torch.cuda.synchronize()
torch.cuda.empty_cache()
left = allocator.arena_statistics()
assert left.used == 0 and left.reserved == 0, left
"""
    )


def test_content_stays_while_pages_move():
    run_python(
        START
        + """
chance, kept = random.Random(3), {}
streams = [torch.cuda.Stream() for _ in range(2)]
for step in range(400):
    key = chance.randrange(24)
    if key in kept:
        tensor, value = kept.pop(key)
        assert bool((tensor.cpu() == value).all()), step
        del tensor
    with torch.cuda.stream(chance.choice(streams)):
        size = chance.choice([1000, 300000, 3 * MIB, 11 * MIB, 17 * MIB])
        tensor = torch.full((chance.randint(size // 2, size),), step % 251, dtype=torch.uint8, device="cuda")
        kept[key] = tensor, step % 251
        torch.cuda.current_stream().synchronize()
        del tensor
for tensor, value in kept.values():
    assert bool((tensor.cpu() == value).all())
"""
    )


def test_it_sleeps_after_its_pages_have_moved():
    run_python(
        STREAMS
        + """
tensors = [torch.full((9 * MIB,), value, dtype=torch.uint8, device="cuda") for value in range(5)]
del tensors[1::2]
for round in range(3):
    report = allocator.suspend()
    assert report.bytes >= (64 + 27) * MIB and report.kept <= report.bytes, report
    try:
        torch.empty(MIB, device="cuda")
    except torch.OutOfMemoryError as error:
        assert "suspended" in str(error)
    else:
        raise AssertionError("no error")
    assert allocator.resume().bytes == report.bytes
    for index, tensor in enumerate(tensors):
        assert bool((tensor.cpu() == 2 * index).all())
    large = torch.full((20 * MIB,), 9, dtype=torch.uint8, device="cuda")  # more than any hole
    assert bool((large.cpu() == 9).all())
    del large
"""
    )


def test_a_pool_of_torch_is_one():
    run_python(
        f"""
import sys, torch, umf.torch
sys.path[:0] = [{str(ROOT / "python/tests")!r}, {str(ROOT / "python/tests/soft")!r}]
"""
        + ("" if IS_REAL else """
from soft_dispatch import SoftDispatch
SoftDispatch().__enter__()
""")
        + """
pool = umf.torch.Pool("coalescing", arena=True)
with pool.use():
    tensors = [torch.full((30 << 20,), value, dtype=torch.uint8, device="cuda") for value in range(4)]
report = pool.suspend()
assert report.bytes >= 120 << 20, report
pool.resume()
for value, tensor in enumerate(tensors):
    assert bool((tensor.cpu() == value).all())
"""
    )


def test_what_cannot_be_is_said():
    run_python(
        """
import torch, umf, umf.torch
try:
    umf.torch.install("cuda", arena=True)
except ValueError as error:
    assert "cuda_vmm" in str(error)
else:
    raise AssertionError("no error")
allocator = umf.torch.install(arena=True)
assert "arena" in repr(allocator) and allocator.arena_statistics() == (0,) * 7
assert allocator.suspend().bytes == allocator.resume().bytes == 0
assert umf.torch.install() is allocator, "an arena is the default"
try:
    umf.torch.install(arena=False)
except RuntimeError as error:
    assert "arena" in str(error)
else:
    raise AssertionError("no error")
try:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    assert "libumf" in str(error)
else:
    raise AssertionError("no error")
"""
    )


@needs_gpu
@pytest.mark.parametrize("shares_pool", [False, True])
def test_a_graph_has_memory_of_its_own(shares_pool):
    run_python(
        START
        + f"""
weights = torch.full((4 * MIB,), 2.0, device="cuda")
graphs, results, pool = [], [], torch.cuda.graph_pool_handle() if {shares_pool} else None
for number in range(3):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        results.append((weights + number) * 2)
    graphs.append(graph)
for _ in range(3):
    noise = [torch.rand(MIB * n, device="cuda") for n in range(1, 20)]
    del noise
    for number, graph in enumerate(graphs):
        graph.replay()
        assert bool((results[number] == 2 * (2 + number)).all())
"""
    )
