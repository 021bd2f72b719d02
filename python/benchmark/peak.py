"""Trains a model by one allocator and tells its peak: peak.py <workload> <allocator> [--small] [--deterministic] [--suspend] [--steps N].

Each line of the input is a number of steps. After them a line of JSON tells the bytes reserved and live at their highest so far, the
times of the steps in ms, the bytes that the arena has moved, the driver's ms in each step where libumf_bench_driver_time.so is
preloaded, and the losses in hexadecimal, so that deterministic runs can be compared bit by bit. With --steps they are the only ones.

`Worker` is such a process. With UMF_TEST_GPU=soft a tiny model tries the program on the software runtime.
"""

import argparse
import contextlib
import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from training import IS_SOFT, computing

WORKLOADS = ("training", "checkpointing", "streams", "fixed", "inference")
ALLOCATORS = ("native", "expandable", "arena")
BUCKET = 100 << 20  # bytes of gradients that are reduced together
DRIVER_TIME = "libumf_bench_driver_time.so"


def make_sizes(is_small):
    from torch_record import Sizes

    sizes = Sizes(IS_SOFT)
    sizes.requests = 2 if IS_SOFT else 8
    if is_small and not IS_SOFT:  # 2.5 GB live
        sizes.layers, sizes.hidden, sizes.heads, sizes.words, sizes.longest = 8, 512, 8, 8000, 768
    return sizes


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


class Inference:
    """Each step is a series of requests, whose keys and values grow, with a new model."""

    def __init__(self, torch, sizes):
        self.torch, self.sizes, self.rng, self.losses = torch, sizes, random.Random(1), []
        torch.manual_seed(1)

    def step(self):
        from torch_record import inference

        inference(self.torch, self.sizes, self.rng)


class Training:
    def __init__(self, torch, workload, sizes):
        from torch_record import make_model

        self.torch, self.workload = torch, workload
        self.sizes, self.rng, self.losses = sizes, random.Random(1), []
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


def driver_ns():
    """Nanoseconds in the driver so far; None without the library that measures them."""
    if DRIVER_TIME not in os.environ.get("LD_PRELOAD", ""):
        return None
    function = ctypes.CDLL(None).umf_bench_driver_ns
    function.restype = ctypes.c_uint64
    return function()


class Run:
    """Steps, and what they needed."""

    def __init__(self, torch, options, own):
        self.torch, self.own, self.is_suspended = torch, own, options.suspend
        sizes = make_sizes(options.small)
        is_inference = options.workload == "inference"
        self.work = Inference(torch, sizes) if is_inference else Training(torch, options.workload, sizes)

    def timed(self, function):
        before = driver_ns()
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        self.torch.cuda.synchronize()
        took = 1e3 * (time.perf_counter() - start)
        return took, 0 if before is None else 1e-6 * (driver_ns() - before)

    def sleep(self):
        if self.is_suspended:
            self.own.suspend()
            self.own.resume()

    def steps(self, count):
        done = []
        self.work.losses.clear()
        for _ in range(count):
            done.append(self.timed(self.work.step))
            self.sleep()
        losses = self.work.losses
        return {
            "times": [one[0] for one in done],
            "driver": [one[1] for one in done] if driver_ns() is not None else None,
            "losses": [one.hex() for one in (self.torch.stack(losses).double().cpu().tolist() if losses else [])],
            **self.memory(),
        }

    def memory(self):
        if self.own:
            seen = self.own.arena_statistics()
            return {"reserved": seen.reserved_peak, "live": seen.used_peak, "donated": seen.donated}
        stats = self.torch.cuda.memory_stats()
        reserved, live = (stats.get(f"{of}_bytes.all.peak", 0) for of in ("reserved", "requested"))
        return {"reserved": reserved, "live": live, "donated": 0}


def run_here(options, commands):
    import torch
    import torch.utils.checkpoint
    from torch.nn.attention import SDPBackend, sdpa_kernel

    own, run = None, None
    with contextlib.ExitStack() as stack:
        for steps in commands:
            if run is None:
                if options.allocator == "arena":
                    import umf.torch

                    own = umf.torch.install(keep="pinned" if options.suspend else None, arena=True)
                if options.deterministic:
                    torch.use_deterministic_algorithms(True)
                    stack.enter_context(sdpa_kernel(SDPBackend.MATH))
                stack.enter_context(computing() if IS_SOFT else contextlib.nullcontext())
                torch.cuda.init()
                run = Run(torch, options, own)
            print(json.dumps(run.steps(int(steps))), flush=True)


class Worker:
    """A process that makes steps; it imports torch at once, and touches the GPU with the first steps."""

    def __init__(self, workload, allocator, *options, preload=None):
        self.name = " ".join((workload, allocator, *options))
        environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8")
        if allocator == "expandable" and not IS_SOFT:
            environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
        if preload:
            environment["LD_PRELOAD"] = ":".join(filter(None, (environment.get("LD_PRELOAD"), str(preload))))
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, __file__, workload, allocator, *options],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
        )

    def steps(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.said.seek(0)
            said = self.said.read().strip().splitlines() or ["it ended"]
            raise RuntimeError(f"{self.name}: {said[-1]}")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.said.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("allocator", choices=ALLOCATORS)
    parser.add_argument("--small", action="store_true", help="a model with 2.5 GB live")
    parser.add_argument("--deterministic", action="store_true", help="losses that can be compared bit by bit")
    parser.add_argument("--suspend", action="store_true", help="a suspend and a resume after each step (arena)")
    parser.add_argument("--steps", type=int, help="without input")
    options = parser.parse_args()
    run_here(options, sys.stdin if options.steps is None else [options.steps])
