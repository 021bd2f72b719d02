"""Rows of memory that sleeps: each function yields (name, ours, peer, target)."""

import functools
import gc
import os
import statistics
import time

import torch
from plain import Blocks

GIB, MIB = 1 << 30, 1 << 20
IS_GPU = os.environ.get("UMF_TEST_GPU") != "soft"
ROUNDS = 4  # the first, and the median of the others


def timed(function):
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def cycles(down, up):
    """(first, median of the rest, the longest) of a way down and up."""
    times = [timed(down) + timed(up) for _ in range(ROUNDS)]
    return times[0], statistics.median(times[1:]), max(times)


def filled(nbytes, block):
    return [
        torch.full((block,), 1 + at % 100, dtype=torch.uint8, device="cuda")
        for at in range(nbytes // block)
    ]


def check(tensors):
    """The content is as it was; a part of each, as there may be many."""
    wrong = [at for at, one in enumerate(tensors) if int(one[-1]) != 1 + at % 100]
    if wrong:
        raise AssertionError(f"content of tensor {wrong[0]} of {len(tensors)} has changed")


def used():
    torch.cuda.synchronize()
    available, total = torch.cuda.mem_get_info()
    return total - available


def status(name):
    """A size out of /proc/self/status, in bytes."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":"))


class Peer:
    """Times of plain calls for memory with content: as others keep it, block by block."""

    def __init__(self, nbytes, block):
        blocks = Blocks(nbytes // block, block)
        before = used()
        saved = blocks.save()
        self.tables = used() - before  # of the GPU, for pages of pinned memory
        self.first = saved + blocks.take() + blocks.give() + blocks.load()
        rounds = [
            (blocks.save(), blocks.take(), blocks.give(), blocks.load()) for _ in range(ROUNDS - 1)
        ]
        self.retained = statistics.median(map(sum, rounds))
        self.link = statistics.median(one[0] + one[3] for one in rounds)
        dropped = blocks.drop()
        self.again = dropped + blocks.save() + blocks.take() + blocks.give() + blocks.load()
        blocks.close()


class Saver:
    """Ours in the place of torch_memory_saver."""

    def __init__(self):
        from umf.torch_memory_saver import torch_memory_saver

        self.saver = torch_memory_saver
        if self.saver._impl is None:
            self.saver.hook_mode = "torch"

    def cycles(self, nbytes, block, tag, **kept):
        with self.saver.region(tag, **kept):
            tensors = filled(nbytes, block)
        try:
            return cycles(lambda: self.saver.pause(tag), lambda: self.saver.resume(tag))
        finally:
            if kept:
                check(tensors)
            del tensors
            self.drop()

    def drop(self):
        self.saver._impl._mem_pools.clear()
        gc.collect()
        torch.cuda.empty_cache()


def memory_saver(nbytes, peer, _):
    ours = Saver()
    name = f"torch_memory_saver {nbytes // MIB} MiB, pause + resume with backup, ms:"
    first, steady, _ = ours.cycles(nbytes, peer.block, "kept", enable_cpu_backup=True)
    yield f"{name} first", first, peer.first, 0.1
    yield f"{name} steady, within the lease", steady, peer.again, 0.8
    ours.saver.retain_cpu_backup = True
    _, steady, _ = ours.cycles(nbytes, peer.block, "retained", enable_cpu_backup=True)
    ours.saver.retain_cpu_backup = False
    yield f"{name} steady, backup retained", steady, peer.retained, 0.8


def slowest_launch(seconds):
    """The longest launch of a kernel of half a millisecond, in ms, over some time."""
    one = torch.empty(GIB if IS_GPU else MIB, dtype=torch.uint8, device="cuda")
    other, slowest, end = torch.empty_like(one), 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(8):
            start = time.perf_counter()
            other.copy_(one)
            slowest = max(slowest, time.perf_counter() - start)
        torch.cuda.synchronize()
    return 1e3 * slowest


def lease(nbytes, peer, _):
    """Pinned memory that stays for the next pause, against memory that is kept for good."""
    ours, blocks = Saver(), Blocks(nbytes // peer.block, peer.block)
    with ours.saver.region("leased", enable_cpu_backup=True):
        tensors = filled(nbytes, peer.block)
    blocks.save()
    host = status("RssAnon")
    pause = functools.partial(ours.saver.pause, "leased")
    resume = functools.partial(ours.saver.resume, "leased")
    timed(pause), timed(resume)
    rounds = [
        (blocks.save() + blocks.take(), blocks.give() + blocks.load(), timed(pause), timed(resume))
        for _ in range(2 * ROUNDS)
    ]
    down, up, own_down, own_up = (statistics.median(one) for one in zip(*rounds))
    blocks.close()
    name = f"torch_memory_saver {nbytes // MIB} MiB"
    yield f"{name}, pause within the lease / memory kept for good, ms", own_down, down, 1.02
    yield f"{name}, resume within the lease / memory kept for good, ms", own_up, up, 1.02
    seconds = 10 if IS_GPU else 0.1
    slowest = slowest_launch(seconds)
    yield "MiB of host memory 10 s after a resume", (status("RssAnon") - host) // MIB, 0, 0
    yield "slowest launch beside kernels of 0.5 ms while memory is given back, ms / most", slowest, 10, 1
    yield "slowest launch while nothing is given back, ms / most", slowest_launch(seconds / 4), 10, 1
    yield f"{name}, pause after the lease / memory kept for good, ms", timed(pause), down, 1.6
    yield f"{name}, resume after that / memory kept for good, ms", timed(resume), up, 1.02
    check(tensors)
    del tensors
    ours.drop()


def memory_saver_lost(nbytes, *_):
    """Torch puts two tensors of 1 MiB into each segment of 2."""
    ours, blocks = Saver(), Blocks(nbytes // (2 * MIB), 2 * MIB)
    rounds = [(blocks.take(), blocks.give()) for _ in range(3)]
    blocks.close()
    with ours.saver.region("lost"):
        tensors = [
            torch.empty(MIB, dtype=torch.uint8, device="cuda") for _ in range(nbytes // MIB)
        ]
    times = [
        (timed(lambda: ours.saver.pause("lost")), timed(lambda: ours.saver.resume("lost")))
        for _ in range(3)
    ]
    del tensors
    ours.drop()
    for way, (at, target) in {"pause": (0, 1.15), "resume": (1, None)}.items():
        yield (
            f"torch_memory_saver {nbytes // MIB} MiB, blocks of 2 MiB, {way} without backup, ms",
            statistics.median(one[at] for one in times),
            statistics.median(one[at] for one in rounds),
            target,
        )


def vllm(nbytes, peer, _):
    from umf.vllm.device_allocator.cumem import CuMemAllocator

    allocator = CuMemAllocator.get_instance()
    name = f"CuMemAllocator {nbytes // MIB} MiB, level 1 sleep + wake_up, ms:"
    with torch.cuda.stream(torch.cuda.Stream()):  # the first takes memory of the device for good
        torch.zeros(1, device="cuda")
    before, host = used(), status("RssAnon")
    with allocator.use_memory_pool("weights"):
        tensors = filled(nbytes, peer.block)
    left = []

    def down():
        allocator.sleep("weights")
        left.append(used() - before)

    first, _, worst = cycles(down, allocator.wake_up)
    collect = 2 * timed(lambda: (gc.collect(), torch.cuda.empty_cache()))
    retained = peer.retained + collect
    yield "ms of both that Python's collector takes in a sleep and a wake_up", collect, 0, None
    yield f"{name} first", first, peer.first + collect, 0.1
    yield f"{name} longest of {ROUNDS}, within the lease", worst, retained, 1.3
    tables = "page tables of as much pinned memory by plain calls"
    yield f"MB of device memory left while asleep / {tables}", max(left) / 1e6, peer.tables / 1e6, 1
    if IS_GPU:
        time.sleep(10)
    yield "MiB of host memory 10 s after a wake_up", (status("RssAnon") - host) // MIB, 0, 0
    if hasattr(allocator, "retain_cpu_backup"):
        allocator.retain_cpu_backup = True
        _, steady, _ = cycles(lambda: allocator.sleep("weights"), allocator.wake_up)
        allocator.retain_cpu_backup = False
        yield f"{name} steady, host memory retained", steady, retained, 0.9
        yield f"{name} steady, the same without the collector / link", steady - collect, peer.link, 1 / 0.95
    check(tensors)
    del tensors
    allocator.release_pools()
    gc.collect()
    torch.cuda.empty_cache()


def growth(nbytes, peer, _):
    """Growth over 200 cycles, beyond the needs of the first ten."""
    from umf.vllm.device_allocator.cumem import CuMemAllocator

    allocator = CuMemAllocator.get_instance()
    size = min(nbytes, GIB // 4)
    gc.freeze()  # else each cycle looks at all objects of torch, four times
    with allocator.use_memory_pool("weights"):
        tensors = filled(size, size // 8)

    def run(count):
        for _ in range(count):
            allocator.sleep("weights")
            allocator.wake_up()
        gc.collect()
        return status("VmRSS"), used(), status("VmSize")

    before = run(10)
    names = "host memory", "device memory", "address space"
    for name, early, late in zip(names, before, run(200)):
        yield f"KiB that {name} grew in 200 cycles of {size // MIB} MiB", (late - early) >> 10, 0, 0
    gc.unfreeze()
    check(tensors)
    del tensors
    allocator.release_pools()
    gc.collect()
    torch.cuda.empty_cache()


def pools(nbytes, peer, _):
    import umf.torch

    pool = umf.torch.Pool()
    with pool.use():
        tensors = filled(nbytes, peer.block)
    first, steady, _ = cycles(pool.suspend, pool.resume)
    check(tensors)
    name = f"umf.torch.Pool {nbytes // MIB} MiB, suspend + resume, ms:"
    yield f"{name} first", first, peer.first, 0.1
    yield f"{name} steady", steady, peer.retained, 0.9
