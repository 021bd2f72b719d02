"""Trains a language model with 23 GB live, by several allocators: training.py <mode> in each process.

Prints the median time of a step in ms, the most device memory beyond the context, and the most that
was live, both in MB.
"""

import contextlib
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 3
WARM_STEPS, STEPS = 3, 9
MODES = ("native", "expandable", "process", "mempool")
RECORDER = Path(__file__).resolve().parents[2] / "benchmark"


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


def train(torch):
    """(times of the steps in ms, most device memory)"""
    sys.path.insert(0, str(RECORDER))
    from torch_record import Sizes, make_model

    sizes, rng, seen = Sizes(False), random.Random(1), [0]

    def watch():
        seen[0] = max(seen[0], used(torch))

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
    return times, seen[0]


def here(mode):
    import torch

    context = contextlib.nullcontext()
    if mode in ("process", "mempool"):
        import umf.torch

        if mode == "process":
            umf.torch.install()
        else:
            context = umf.torch.Pool().use()
    torch.cuda.init()
    torch.cuda.synchronize()
    before = used(torch)
    with context:
        times, peak = train(torch)
    live = 0 if mode == "process" else torch.cuda.max_memory_allocated()
    print(statistics.median(times[WARM_STEPS:]), (peak - before) / 1e6, live / 1e6)


def apart(mode):
    environment = dict(os.environ)
    if mode == "expandable":
        environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    done = subprocess.run(
        [sys.executable, __file__, mode], env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"{mode}: {done.stderr.strip().splitlines()[-1]}")
    return tuple(float(word) for word in done.stdout.split()[-3:])


def rows(end):
    """Interleaved runs: what the machine does meanwhile falls on all of them."""
    runs = {mode: [] for mode in MODES}
    for number in range(ROUNDS):
        if number and time.monotonic() > end:
            break
        for mode in list(runs):
            try:
                runs[mode].append(apart(mode))
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


if __name__ == "__main__":
    here(sys.argv[1])
