"""Figures of the package on a GPU, each beside its peer: figures.py [--gib N[,N...]] [--seconds S] [--rounds N] [--verbose] [--trace FILE] [part...]

Prints rows `name ours peer ratio target`: ours / peer, which should be at most the target; where the
target is 0, ours is what should be 0. The peer is plain calls of the CUDA driver, block by block, as
the originals do; for training, torch's own allocators. No part begins after --seconds, and
training makes fewer rounds. The parts `peak-...`, `step`, `exact`, `sleeping`, `lease` and `pairs` are those of the allocator of the
process with an arena, in turns with torch's allocators; `table` is all of them. Ends with 0 if everything ran; missed targets are printed and are no error.

With UMF_TEST_GPU=soft it tries itself on the software runtime; its figures mean nothing then.
"""

import argparse
import contextlib
import functools
import os
import statistics
import subprocess
import sys
import time
import timeit

GIB = 1 << 30
HERE = os.path.dirname(os.path.abspath(__file__))
SLEEP = ("memory_saver", "lease", "vllm", "memory_saver_lost", "pools", "growth")
missed = []


def show(name, ours, peer, target):
    ratio = ours / peer if peer else None
    text = f"{name:92} {ours:12.1f} {peer:12.1f} " + (f"{ratio:8.3f}" if peer else f"{'-':>8}")
    if target is not None:
        is_met = (ratio if peer else ours) <= target
        text += f" {target:7.3f} {'reached' if is_met else 'MISSED'}"
        if not is_met:
            missed.append(name)
    print(text, flush=True)


def per_call(call, number):
    """Nanoseconds, the least of five rounds."""
    return 1e9 * min(timeit.repeat(call, number=number, repeat=5)) / number


def package(*_):
    code = "import time; t=time.perf_counter(); import umf; print(1e3*(time.perf_counter()-t))"
    for name, options in (("", []), (" without what site loads", ["-S"])):
        times = [
            float(subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True).stdout)
            for _ in range(20)
        ]
        yield f"import umf{name}, ms / the most it may take", statistics.median(times), 25, 1
    import umf

    pool = umf.Pool("disjoint over os")
    pair = per_call(lambda: pool.allocate(256).free(), 100000)
    yield "a pair from Python, ns / the most it may take", pair, 300, 1
    try:
        import numpy
    except ImportError:
        return
    buffer = pool.allocate(256)
    yield "numpy.asarray of a buffer, ns / the most it may take", per_call(lambda: numpy.asarray(buffer), 100000), 400, 1


def training(_, __, end, options):
    import training

    if os.environ.get("UMF_TEST_GPU") == "soft":
        raise RuntimeError("left out: the software runtime has no kernels")
    yield from training.rows(end, options.verbose, options.trace)


def of_table(part, options):
    """A part of the table, which computes in processes of its own."""
    return lambda _, __, end: part(options.rounds, end)


def parts(options):
    """What there is: a name, and a function of bytes, a peer and the end that yields rows."""
    yield "package", package
    import sleep

    for name in SLEEP:
        yield name, getattr(sleep, name)
    yield "training", functools.partial(training, options=options)
    import table

    for name, part in table.PARTS.items():
        yield name.replace("_", "-"), of_table(part, options)


class Lazy:
    """The peer of memory with content: measured once, when a row first wants it."""

    def __init__(self, nbytes):
        self.nbytes, self.block, self.made = nbytes, min(GIB, nbytes // 4), None
        self.is_warm = os.environ.get("UMF_TEST_GPU") == "soft"

    def warm(self):
        """Before anything of either side is measured."""
        if not self.is_warm:
            from plain import warm_host

            begun, self.is_warm = time.monotonic(), True
            gib = warm_host(4 * self.nbytes) / GIB
            print(f"# {gib:.0f} GiB of the host touched and pinned before: {time.monotonic() - begun:.1f} s")

    def __getattr__(self, name):
        if self.made is None:
            import sleep

            self.made = sleep.Peer(self.nbytes, self.block)
        return getattr(self.made, name)


def computing():
    """What computes: a GPU, or the CPU in its place."""
    if os.environ.get("UMF_TEST_GPU") != "soft":
        return contextlib.nullcontext()
    sys.path.insert(0, os.path.join(HERE, "..", "tests", "soft"))
    from soft_dispatch import SoftDispatch

    return SoftDispatch()


def run_one(name, function, nbytes, peer, end):
    begun = time.monotonic()
    try:
        for row in function(nbytes, peer, end):
            show(*row)
    except Exception as error:  # the other parts are worth having
        print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
        return False
    finally:
        print(f"# {name}: {time.monotonic() - begun:.1f} s", flush=True)
    return True


def chosen(names):
    """Names of parts; without any, all but those of the table that are not lease."""
    import table

    of_table = [name.replace("_", "-") for name in table.PARTS]
    plain = ["package", *SLEEP, "training"]
    return [one for name in names or plain for one in ([*of_table, "lease"] if name == "table" else [name])]


def run(options):
    """Names of the parts that failed."""
    end, failed = time.monotonic() + options.seconds, []
    peers = [Lazy(int(float(one) * GIB)) for one in options.gib.split(",")]
    for name, function in parts(options):
        if name not in chosen(options.parts):
            continue
        if name in SLEEP:
            max(peers, key=lambda one: one.nbytes).warm()
        for peer in peers if name in SLEEP else peers[:1]:
            if time.monotonic() > end:
                print(f"{name}: left out, the time is over")
            elif not run_one(name, function, peer.nbytes, peer, end):
                failed.append(name)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", default="32", help="how much sleeps; several, with commas between")
    parser.add_argument("--rounds", type=int, default=3, help="of the parts peak-...")
    parser.add_argument("--seconds", type=float, default=300, help="after which no part begins")
    parser.add_argument("--verbose", action="store_true", help="what allocators hold in the training")
    parser.add_argument("--trace", help="file for the allocations of the training")
    parser.add_argument("parts", nargs="*", help="default: all")
    options = parser.parse_args()
    print(f"{'name':92} {'ours':>12} {'peer':>12} {'ratio':>8} {'target':>7}")
    failed = run(options)
    print(f"figures: {len(missed)} targets missed, parts that failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, HERE)
    with computing():
        sys.exit(main())
