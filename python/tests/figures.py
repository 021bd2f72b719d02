"""Figures of the package on a GPU: python figures.py [GiB]. Times in ms; the first and the median of the rest.

Nothing here asserts: benchmark/README.md has the targets.
"""

import statistics
import subprocess
import sys
import time
import timeit

GIB = 1 << 30
SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 32
ROUNDS = 5


def timed(function):
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def show(name, down, up):
    down, up = ([timed_one for timed_one in times] for times in (down, up))
    print(
        f"{name:44} down {down[0]:9.1f} first {statistics.median(down[1:]):9.1f} steady   "
        f"up {up[0]:9.1f} first {statistics.median(up[1:]):9.1f} steady",
        flush=True,
    )


def cycles(name, down, up):
    pairs = [(timed(down), timed(up)) for _ in range(ROUNDS)]
    show(name, [one for one, _ in pairs], [one for _, one in pairs])


def fill(block):
    import torch

    return [
        torch.ones(block, dtype=torch.uint8, device="cuda") for _ in range(SIZE * GIB // block)
    ]


def package():
    code = "import time; t=time.perf_counter(); import umf; print(1e3*(time.perf_counter()-t))"
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
        for _ in range(5)
    ]
    print(f"import umf: {statistics.median(times):.1f} ms")
    import umf

    pool = umf.Pool("disjoint over os")
    pair = min(timeit.repeat(lambda: pool.allocate(256).free(), number=100000, repeat=5)) / 100000
    print(f"a pair from Python: {1e9 * pair:.0f} ns")


def memory_saver(block, **kept):
    import torch

    from umf.torch_memory_saver import torch_memory_saver as saver

    if saver._impl is None:
        saver.hook_mode = "torch"
    with saver.region("figures", **kept):
        tensors = fill(block)
    cycles(
        f"torch_memory_saver {SIZE} GiB of {block >> 20} MiB {kept or 'lost'}",
        lambda: saver.pause("figures"),
        lambda: saver.resume("figures"),
    )
    if kept:
        assert all(bool((one == 1).all()) for one in tensors), "content changed"
    del tensors
    saver._impl._mem_pools.clear()
    torch.cuda.empty_cache()


def vllm(tag):
    import gc

    import torch

    from umf.vllm.device_allocator.cumem import CuMemAllocator

    allocator = CuMemAllocator.get_instance()
    with allocator.use_memory_pool(tag):
        tensors = fill(GIB)
    cycles(
        f"CuMemAllocator {SIZE} GiB of 1 GiB, {tag}",
        lambda: allocator.sleep("weights"),
        lambda: allocator.wake_up(),
    )
    if tag == "weights":
        assert all(bool((one == 1).all()) for one in tensors), "content changed"
    del tensors
    allocator.release_pools()
    gc.collect()
    torch.cuda.empty_cache()


def pools():
    import torch

    import umf.torch

    pool = umf.torch.Pool()
    with pool.use():
        tensors = fill(GIB)
    cycles(f"umf.torch.Pool {SIZE} GiB of 1 GiB", pool.suspend, pool.resume)
    available, total = torch.cuda.mem_get_info()
    print(f"device memory in use: {(total - available) / GIB:.2f} GiB")
    del tensors


def main():
    package()
    memory_saver(GIB, enable_cpu_backup=True)
    memory_saver(2 << 20)
    vllm("weights")
    vllm("kv_cache")
    pools()


if __name__ == "__main__":
    main()
