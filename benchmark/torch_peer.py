#!/usr/bin/env python3
"""PyTorch's caching allocator, for the table of umf-bench-gpu: ns per allocation and free.

Calls the allocator by way of torch._C, as torch itself does; the time of an empty loop is taken
away, that of the call from Python is not. Threads take turns in Python, so 16 of them show the time
that a program sees, not that of the allocator alone. Exit status 77 without torch or a GPU.

With --out FILE the figures go there as well, for umf-bench-gpu --torch FILE.
"""
import sys
import threading
import time

SIZES = [512, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30]
THREADS = [1, 16]
ROUND_S = 0.02


def text(size):
    for unit in ("", "K", "M", "G"):
        if size < 1024 or size % 1024:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}T"


def timed(count, body):
    start = time.perf_counter()
    for _ in range(count):
        body()
    return time.perf_counter() - start


def pairs(torch, size):
    """A function that allocates and frees once."""
    alloc = torch._C._cuda_cudaCachingAllocator_raw_alloc
    free = torch._C._cuda_cudaCachingAllocator_raw_delete
    stream = torch.cuda.current_stream().cuda_stream

    def pair():
        free(alloc(size, stream))

    return pair


def measure(torch, size):
    pair = pairs(torch, size)
    pair()  # the objects that the first makes are kept
    count = 16
    while timed(count, pair) < ROUND_S:
        count *= 2
    empty = min(timed(count, lambda: None) for _ in range(3))
    return (min(timed(count, pair) for _ in range(3)) - empty) / count * 1e9


def measure_threads(torch, size, threads):
    times, errors = [], []

    def work():
        try:
            torch.cuda.set_device(0)
            times.append(measure(torch, size))
        except RuntimeError as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    torch.cuda.empty_cache()
    if errors:
        raise errors[0]
    return sum(times) / len(times)


def main():
    out = sys.argv[2] if len(sys.argv) == 3 and sys.argv[1] == "--out" else None
    if len(sys.argv) > 1 and not out:
        print("usage: torch_peer.py [--out FILE]", file=sys.stderr)
        return 2
    try:
        import torch
    except ImportError as error:
        print(f"torch_peer: {error}")
        return 77
    if not torch.cuda.is_available():
        print("torch_peer: torch finds no GPU")
        return 77
    torch.cuda.init()
    print(f"\nAllocate and free, ns per pair and thread: PyTorch {torch.__version__}")
    print(f"{'size':8} {'threads':8} {'caching allocator':>20}")
    lines = []
    for size in SIZES:
        for threads in THREADS:
            free, _ = torch.cuda.mem_get_info()
            if size * threads > free // 3:
                value = "no room"
            else:
                value = f"{measure_threads(torch, size, threads):.1f}"
                lines.append(f"{size} {threads} {value}\n")
            print(f"{text(size):8} {threads:<8} {value:>20}")
    if out:
        with open(out, "w", encoding="ascii") as file:
            file.writelines(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
