"""Peak of reserved memory of four trainings, by several allocators: peak.py <workload> <allocator> [--steps N].

A process for each. Prints the bytes reserved and live at their highest, the median time of a step in ms, and the
losses of all steps in hexadecimal, so that deterministic runs can be compared bit by bit.

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

from training import IS_SOFT, computing

WORKLOADS = ("training", "checkpointing", "streams", "fixed")
ALLOCATORS = ("native", "expandable", "arena")
STEPS = {"training": 16, "checkpointing": 8, "streams": 8, "fixed": 6}
# Of expandable segments in the same run; and of live blocks.
TARGETS = {"training": 0.98, "checkpointing": 0.90, "streams": 0.97, "fixed": 0.99}
BUCKET = 100 << 20  # bytes of gradients that are reduced together


def shape_of(workload, sizes, rng):
    if workload == "fixed":
        return 4, sizes.longest
    batches = (4, 8, 16) if workload == "checkpointing" else (2, 4, 8)
    return rng.choice(batches), rng.randint(sizes.longest // 8, sizes.longest)


def checkpoint_blocks(torch, model):
    for block in model.blocks:

        def forward(x, past, block=block):
            made = torch.utils.checkpoint.checkpoint(
                lambda y: type(block).forward(block, y, None)[0], x, use_reentrant=False
            )
            return made, None

        block.forward = forward


class Reducer:
    """Gradients go into buckets on another stream, as data parallel training does."""

    def __init__(self, torch, model):
        self.torch, self.stream, self.waiting, self.bytes = torch, torch.cuda.Stream(), [], 0
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self.add)

    def add(self, parameter):
        self.waiting.append(parameter.grad)
        self.bytes += parameter.grad.numel() * 4
        if self.bytes > BUCKET:
            self.flush()

    def flush(self):
        self.stream.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(self.stream):
            if self.waiting:
                bucket, at = self.torch.cat([one.flatten() for one in self.waiting]).mul_(0.5), 0
                for gradient in self.waiting:
                    gradient.copy_(bucket[at : at + gradient.numel()].view_as(gradient))
                    at += gradient.numel()
                    gradient.record_stream(self.stream)
        self.waiting, self.bytes = [], 0

    def finish(self):
        self.flush()
        self.torch.cuda.current_stream().wait_stream(self.stream)


class Training:
    def __init__(self, torch, workload):
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmark"))
        from torch_record import Sizes, make_model

        self.torch, self.workload = torch, workload
        self.sizes, self.rng, self.losses = Sizes(IS_SOFT), random.Random(1), []
        torch.manual_seed(1)
        with torch.device("cuda"):
            self.model = make_model(torch, self.sizes)
        if workload == "checkpointing":
            checkpoint_blocks(torch, self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.reducer = Reducer(torch, self.model) if workload == "streams" else None
        self.loads = torch.cuda.Stream()

    def tokens(self):
        torch = self.torch
        batch, length = shape_of(self.workload, self.sizes, self.rng)
        if not self.reducer:
            return torch.randint(self.sizes.words, (batch, length + 1), device="cuda")
        host = torch.randint(self.sizes.words, (batch, length + 1), device="cpu")
        with torch.cuda.stream(self.loads):
            made = host.pin_memory().cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(self.loads)
        made.record_stream(torch.cuda.current_stream())
        return made

    def step(self):
        torch = self.torch
        for _ in range(4):
            tokens = self.tokens()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits, kept = self.model(tokens[:, :-1])
                del kept
                loss = torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1).float(), tokens[:, 1:].flatten()
                )
            del logits
            self.losses.append(loss.detach())
            (loss / 4).backward()
        if self.reducer:
            self.reducer.finish()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def timed_step(self):
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        self.step()
        self.torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)


def installed(name):
    if not name == "arena":
        return None
    import umf.torch

    return umf.torch.install(keep=None, arena=True)


def here(workload, name, steps, is_deterministic):
    if is_deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch
    import torch.utils.checkpoint

    own = installed(name)
    if is_deterministic:
        torch.use_deterministic_algorithms(True)
    with computing() if IS_SOFT else contextlib.nullcontext():
        torch.cuda.init()
        training = Training(torch, workload)
        times = [training.timed_step() for _ in range(steps)]
        losses = torch.stack(training.losses).double().cpu()
    if own:
        seen = own.arena_statistics()
        reserved, live = seen.reserved_peak, seen.used_peak
        print(f"# {workload}, {name}: {seen}")
    else:
        stats = torch.cuda.memory_stats()
        reserved, live = (stats.get(f"{of}_bytes.all.peak", 0) for of in ("reserved", "requested"))
    exact = "-".join(one.hex() for one in losses.tolist())
    print(reserved, live, statistics.median(times[len(times) // 4 :]), exact)


def apart(workload, name, steps, *more):
    environment = dict(os.environ)
    if name == "expandable":
        environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    command = [sys.executable, __file__, workload, name, "--steps", str(steps), *more]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{workload}, {name}: {done.stderr.strip().splitlines()[-1]}")
    *notes, last = done.stdout.splitlines()
    print("".join(f"{line}\n" for line in notes if line.startswith("#")), end="", flush=True)
    reserved, live, step, losses = last.split()
    return float(reserved), float(live), float(step), losses


def rows(end):
    for workload in WORKLOADS:
        if time.monotonic() > end:
            break
        steps = 1 if IS_SOFT else STEPS[workload]
        runs = {name: apart(workload, name, steps) for name in ALLOCATORS}
        live = runs["native"][1]
        name = f"peak, {workload}, {live / 1e9:.1f} GB live"
        arena, expandable = runs["arena"], runs["expandable"]
        yield f"{name}: MB reserved / live", arena[0] / 1e6, live / 1e6, 1.016
        yield f"{name}: MB / expandable segments", arena[0] / 1e6, expandable[0] / 1e6, TARGETS[workload]
        yield f"{name}: ms a step / expandable segments", arena[2], expandable[2], 1.01
    runs = [apart("training", name, 3, "--deterministic")[3] for name in ("native", "arena")]
    yield "losses that differ from those of torch's own allocator", sum(
        one != other for one, other in zip(*(run.split("-") for run in runs))
    ), 0, 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("allocator", choices=ALLOCATORS)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--deterministic", action="store_true")
    options = parser.parse_args()
    here(options.workload, options.allocator, options.steps, options.deterministic)
