#!/usr/bin/env python3
"""Records the allocations of a training and an inference of a language model, for umf-bench-gpu --replay.

    torch_record.py [--out FOLDER] [--small] [training|inference ...]

Needs torch and a GPU, nothing else; exit status 77 without them. Each workload runs in a process of
its own, from before its first allocation, with PyTorch's memory history on. FOLDER/<workload>.trace
(the current folder by default) gets its events, and the peaks that PyTorch's allocator had; the
same run once more with expandable segments is printed for comparison only.
"""
import argparse
import collections
import os
import random
import subprocess
import sys

MAX_EVENTS = 20_000_000


# --- the model ------------------------------------------------------------------------------------


class Sizes:
    def __init__(self, small):
        self.layers = 2 if small else 16
        self.hidden = 128 if small else 2048
        self.heads = 4 if small else 16
        self.words = 1000 if small else 32000
        self.longest = 64 if small else 2048
        self.steps = 2 if small else 16  # of the optimizer
        self.requests = 4 if small else 24  # batches of requests


def make_model(torch, sizes):
    from torch import nn
    from torch.nn import functional as f

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_in = nn.LayerNorm(sizes.hidden)
            self.qkv = nn.Linear(sizes.hidden, 3 * sizes.hidden, bias=False)
            self.out = nn.Linear(sizes.hidden, sizes.hidden, bias=False)
            self.norm_mlp = nn.LayerNorm(sizes.hidden)
            self.up = nn.Linear(sizes.hidden, 4 * sizes.hidden)
            self.down = nn.Linear(4 * sizes.hidden, sizes.hidden)

        def forward(self, x, past):
            batch, length, _ = x.shape
            q, k, v = (
                part.view(batch, length, sizes.heads, -1).transpose(1, 2)
                for part in self.qkv(self.norm_in(x)).chunk(3, dim=-1)
            )
            if past is not None:
                k = torch.cat((past[0], k), dim=2)
                v = torch.cat((past[1], v), dim=2)
            mixed = f.scaled_dot_product_attention(q, k, v, is_causal=past is None)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
            x = x + self.down(f.gelu(self.up(self.norm_mlp(x))))
            return x, (k, v)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(sizes.words, sizes.hidden)
            self.places = nn.Embedding(2 * sizes.longest, sizes.hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(sizes.layers))
            self.norm = nn.LayerNorm(sizes.hidden)

        def forward(self, tokens, pasts=None):
            start = pasts[0][0].shape[2] if pasts else 0
            places = torch.arange(start, start + tokens.shape[1], device=tokens.device)
            x = self.words(tokens) + self.places(places)
            kept = []
            for index, block in enumerate(self.blocks):
                x, past = block(x, pasts[index] if pasts else None)
                kept.append(past)
            return self.norm(x) @ self.words.weight.t(), kept

    return Model()


# --- the workloads --------------------------------------------------------------------------------


def random_tokens(torch, sizes, batch, length):
    return torch.randint(sizes.words, (batch, length), device="cuda")


def training(torch, sizes, rng):
    """Mixed precision, AdamW, four batches of different lengths for a step of the optimizer."""
    model = make_model(torch, sizes).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(sizes.steps):
        for _ in range(4):
            batch, length = rng.choice((2, 4, 8)), rng.randint(sizes.longest // 8, sizes.longest)
            tokens = random_tokens(torch, sizes, batch, length + 1)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits, kept = model(tokens[:, :-1])
                del kept
                loss = torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1).float(), tokens[:, 1:].flatten()
                )
            del logits
            (loss / 4).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


class Batch:
    """Requests that were taken in together. Their keys and values grow by a token in each step."""

    def __init__(self, torch, sizes, model, rng):
        count = rng.randint(1, 8)
        prompt = rng.randint(sizes.longest // 16, sizes.longest // 2)
        self.left = [rng.randint(2, sizes.longest // 16) for _ in range(count)]
        logits, self.pasts = model(random_tokens(torch, sizes, count, prompt))
        self.last = logits[:, -1:].argmax(dim=-1)

    def step(self, torch, model):
        logits, self.pasts = model(self.last, self.pasts)
        self.last = logits[:, -1:].argmax(dim=-1)
        self.left = [left - 1 for left in self.left]
        stay = [index for index, left in enumerate(self.left) if left > 0]
        if stay and len(stay) < len(self.left):
            chosen = torch.tensor(stay, device="cuda")
            self.pasts = [tuple(part[chosen] for part in past) for past in self.pasts]
            self.last = self.last[chosen]
        self.left = [self.left[index] for index in stay]


def inference(torch, sizes, rng):
    """A server: batches of requests come, and go when their last request has its text."""
    model = make_model(torch, sizes).to(torch.bfloat16).cuda().eval()
    running = []
    to_come = sizes.requests
    with torch.inference_mode():
        while to_come or running:
            if to_come and len(running) < 6 and (not running or rng.random() < 0.1):
                running.append(Batch(torch, sizes, model, rng))
                to_come -= 1
            for batch in running:
                batch.step(torch, model)
            running = [batch for batch in running if batch.left]


WORKLOADS = {"training": training, "inference": inference}


# --- recording ------------------------------------------------------------------------------------


def events(history):
    """Lines of the trace: an address gets a new number with each allocation."""
    numbers = {}
    count = 0
    kinds = collections.Counter(entry["action"] for entry in history)
    free = "free_completed" if kinds["free_completed"] else "free"
    for entry in history:
        if entry["action"] == "alloc" and entry["size"] > 0:
            numbers[entry["addr"]] = count
            yield f"a {count} {entry['size']}"
            count += 1
        elif entry["action"] == free and entry["addr"] in numbers:
            yield f"f {numbers.pop(entry['addr'])}"


def start(torch):
    torch.cuda.memory._record_memory_history(
        enabled="all", context=None, stacks="python", max_entries=MAX_EVENTS
    )


def write(torch, name, path):
    """The trace of the allocations since `start`."""
    stats = torch.cuda.memory_stats()
    history = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    if len(history) >= MAX_EVENTS:
        raise RuntimeError("the history is not whole")
    with open(path, "w", encoding="ascii") as file:
        file.write(f"# {name}, PyTorch {torch.__version__}\n")
        file.write(f"t {stats['allocated_bytes.all.peak']} {stats['reserved_bytes.all.peak']}\n")
        file.writelines(line + "\n" for line in events(history))


def record(torch, name, sizes, path):
    rng = random.Random(1)
    torch.manual_seed(1)
    torch.cuda.init()
    if path:
        start(torch)
    WORKLOADS[name](torch, sizes, rng)
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    allocated = stats["allocated_bytes.all.peak"]
    requested = stats.get("requested_bytes.all.peak", allocated)
    reserved = stats["reserved_bytes.all.peak"]
    if path:
        write(torch, name, path)
    print(
        f"{name:12} {requested / 1e9:10.3f} {allocated / 1e9:10.3f} {reserved / 1e9:10.3f} "
        f"{reserved / requested:10.3f}  {'recorded' if path else 'expandable segments'}",
        flush=True,
    )


def record_here(options):
    try:
        import torch
    except ImportError as error:
        print(f"torch_record: {error}")
        return 77
    if not torch.cuda.is_available():
        print("torch_record: torch finds no GPU")
        return 77
    path = None if options.compare else os.path.join(options.out, options.workloads[0] + ".trace")
    record(torch, options.workloads[0], Sizes(options.small), path)
    return 0


def record_apart(options):
    """Each in a process of its own: with all of its history, and peaks of its own."""
    print(f"{'PyTorch, GB':12} {'requested':>10} {'allocated':>10} {'reserved':>10} {'ratio':>10}")
    sys.stdout.flush()
    os.makedirs(options.out, exist_ok=True)
    for name in options.workloads or WORKLOADS:
        for compare in (False, True):
            command = [sys.executable, __file__, "--here", "--out", options.out, name]
            command += ["--small"] * options.small + ["--compare"] * compare
            environment = dict(os.environ)
            if compare:
                environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
            status = subprocess.run(command, env=environment, check=False).returncode
            if status and not compare:
                return status
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="workload", help=" or ".join(WORKLOADS))
    parser.add_argument("--out", default=".", help="folder for the traces")
    parser.add_argument("--small", action="store_true", help="a tiny model: tries the program")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--compare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload is called {unknown[0]}")
    return record_here(options) if options.here else record_apart(options)


if __name__ == "__main__":
    sys.exit(main())
