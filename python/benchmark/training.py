"""Trains a language model with 28 GB live, by several allocators: training.py <mode> [--verbose] [--trace FILE].

A process for each mode. Prints the median time of a step in ms, the most device memory beyond the
context, and the peak of live bytes, both in MB; before that, when verbose, the bytes that allocators held
when that was reached. The trace has all allocations, for umf-bench-gpu --replay.

With UMF_TEST_GPU=soft a small model tries the program on the software runtime.
"""

import argparse
import contextlib
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 3
MODES = ("native", "expandable", "process", "mempool")
# A MemPool of torch alone, for comparison: with and without the memory of its backward passes.
VERBOSE_MODES = (*MODES, "torch_mempool", "torch_mempool_backward")
IS_SOFT = os.environ.get("UMF_TEST_GPU") == "soft"
WARM_STEPS, STEPS = (0, 1) if IS_SOFT else (3, 9)
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmark"))  # torch_record


def used(torch):
    available, total = torch.cuda.mem_get_info()
    return total - available


def step(torch, model, optimizer, sizes, rng, watch):
    """Four batches of different lengths for a step of the optimizer, in mixed precision."""
    for _ in range(4):
        batch, length = rng.choice((1, 2, 4)), rng.randint(sizes.longest // 8, sizes.longest)
        tokens = torch.randint(sizes.words, (batch, length + 1), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits, kept = model(tokens[:, :-1])
            del kept
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), tokens[:, 1:].flatten()
            )
        del logits
        watch()
        (loss / 4).backward()
        watch()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    watch()
    optimizer.zero_grad(set_to_none=True)


class Watch:
    """The most device memory, and what `describe` said about it then."""

    def __init__(self, torch, describe):
        self.torch, self.describe, self.most, self.text = torch, describe, 0, ""

    def __call__(self):
        now = used(self.torch)
        if now > self.most:
            self.most, self.text = now, self.describe()


def train(torch, watch):
    """Times of the steps in ms."""
    from torch_record import Sizes, make_model

    sizes, rng = Sizes(IS_SOFT), random.Random(1)
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = make_model(torch, sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    times = []
    for _ in range(WARM_STEPS + STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step(torch, model, optimizer, sizes, rng, watch)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return times


@contextlib.contextmanager
def computing():
    """What computes: a GPU, or the CPU in its place."""
    if not IS_SOFT:
        yield
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "soft"))
    from soft_dispatch import SoftDispatch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with SoftDispatch(), sdpa_kernel(SDPBackend.MATH):  # the others are kernels of the GPU alone
        yield


@contextlib.contextmanager
def torch_pool(torch, is_threaded):
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool), torch.autograd.set_multithreading_enabled(is_threaded):
        yield pool


def allocator(torch, mode):
    """A context that yields the source of the memory, None for torch's own allocator."""
    if mode.startswith("torch_mempool"):
        return torch_pool(torch, is_threaded=mode == "torch_mempool")
    if mode not in ("process", "mempool"):
        return contextlib.nullcontext()
    import umf.torch

    if mode == "process":
        return contextlib.nullcontext(umf.torch.install())
    return umf.torch.Pool().use()


def describe(torch, memory):
    """What there is now, in MB: by libumf, by the segments of a MemPool, by all of torch."""
    if hasattr(memory, "statistics"):
        now = memory.statistics()
        yield f"libumf held {now.reserved / 1e6:.1f} live {now.used / 1e6:.1f} in {now.allocations}"
    elif hasattr(memory, "residency"):
        yield f"libumf held {memory.residency().resident / 1e6:.1f}"
    if isinstance(memory, torch.cuda.MemPool):
        segments = memory.snapshot(include_traces=False)
        held, live = (sum(one[of] for one in segments) for of in ("total_size", "allocated_size"))
        yield f"MemPool held {held / 1e6:.1f} live {live / 1e6:.1f} in {len(segments)}"
    if torch.cuda.get_allocator_backend() != "pluggable":
        now = torch.cuda.memory_stats()
        held, live = (now.get(f"{of}_bytes.all.current", 0) for of in ("reserved", "allocated"))
        yield f"torch held {held / 1e6:.1f} live {live / 1e6:.1f}"


def here(mode, is_verbose, trace):
    import torch
    import torch_record

    with computing(), allocator(torch, mode) as memory:
        torch.cuda.init()
        torch.cuda.synchronize()
        before = used(torch)
        if trace:
            torch_record.start(torch)
        watch = Watch(torch, lambda: "; ".join(describe(torch, memory)) if is_verbose else "")
        times = train(torch, watch)
        if trace:
            torch_record.write(torch, "training", trace)
    live = torch.cuda.max_memory_allocated()
    if is_verbose:
        print(f"# training, {mode}: {(watch.most - before) / 1e6:.1f} MB at the peak: {watch.text}")
    print(statistics.median(times[WARM_STEPS:]), (watch.most - before) / 1e6, live / 1e6)


def apart(mode, is_verbose, *more):
    environment = dict(os.environ)
    if mode == "expandable":
        environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    command = [sys.executable, __file__, mode, *["--verbose"] * is_verbose, *more]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{mode}: {done.stderr.strip().splitlines()[-1]}")
    *notes, last = done.stdout.splitlines()
    print("".join(f"{line}\n" for line in notes if line.startswith("#")), end="", flush=True)
    return tuple(float(word) for word in last.split())


def rows(end, is_verbose=False, trace=None):
    """Interleaved runs: other load of the machine falls on all of them."""
    runs = {mode: [] for mode in (VERBOSE_MODES if is_verbose else MODES)}
    for number in range(ROUNDS):
        if number and time.monotonic() > end:
            break
        for mode in list(runs):
            try:
                runs[mode].append(apart(mode, is_verbose))
            except RuntimeError as error:  # the other modes are worth having
                print(f"training: FAILED: {error}", flush=True)
                del runs[mode]
    live = f"training, {runs['native'][0][2] / 1e3:.1f} GB live, {len(runs['native'])} rounds"
    step = {mode: statistics.median(one[0] for one in done) for mode, done in runs.items()}
    peak = {mode: max(one[1] for one in done) for mode, done in runs.items()}
    if "process" in runs:
        yield f"{live}: as process allocator, ms a step", step["process"], step["native"], 1.0
    if "process" in runs and "expandable" in runs:
        yield f"{live}: MB / expandable segments", peak["process"], peak["expandable"], 1.0
    if "mempool" in runs:
        yield f"{live}: in a MemPool, ms a step", step["mempool"], step["native"], 1.0
        yield f"{live}: in a MemPool, MB", peak["mempool"], peak["native"], 1.02
    for mode in VERBOSE_MODES[len(MODES) :]:
        if mode in runs:
            yield f"{live}: {mode}, MB", peak[mode], peak["native"], None
    if trace:
        apart("native", is_verbose, "--trace", trace)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=VERBOSE_MODES)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--trace", help="native only: torch has no history with another allocator")
    options = parser.parse_args()
    here(options.mode, options.verbose, options.trace)
