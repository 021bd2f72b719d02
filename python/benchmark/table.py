"""Rows of the allocator of the process beside torch's own allocators: the parts peak, step, exact, sleeping and pairs of figures.py."""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from peak import DRIVER_TIME, Worker
from training import IS_SOFT

ROOT = Path(__file__).resolve().parents[2]
# Steps; the most of expandable segments in the same run.
TRAININGS = {"training": (12, 0.98), "checkpointing": (6, 0.90), "streams": (6, 0.97), "fixed": (4, 0.99)}
SMALL = ("training", "checkpointing") if IS_SOFT else ("training", "checkpointing", "streams")
SMALL_STEPS = 12
SECONDS = 45  # of a part, for each round; processes that begin take the rest of a minute


def built(name):
    """A program or library of the benchmark, in a build folder or beside this tree's packed programs; None: it is not there."""
    folders = [os.environ.get("UMF_BENCH_FOLDER", ""), ROOT / "build" / "release" / "benchmark", ROOT]
    return next((Path(one, name) for one in folders if one and Path(one, name).exists()), None)


def steps_of(count):
    return 1 if IS_SOFT else count


def in_turns(workers):
    """Workers one after the other, each begun one ahead: its imports are hidden behind the one before."""
    makers = list(workers)
    ahead = makers.pop(0)()
    while ahead:
        following = makers.pop(0)() if makers else None
        with ahead:
            yield ahead
        ahead = following


def steps_within(worker, most, seconds):
    """Steps one by one, until there are so many or they have taken so long."""
    run, end = worker.steps(1), time.monotonic() + seconds
    while len(run["times"]) < most and time.monotonic() < end:
        more = worker.steps(1)
        for name, value in more.items():
            run[name] = run[name] + value if isinstance(value, list) else value
    return run


def report(name, run, live, took):
    """What one process needed, as soon as it is known."""
    driver = f", driver {statistics.mean(run['driver'][len(run['driver']) // 2 :]):.1f} ms a late step" if run["driver"] else ""
    print(
        f"# {name}: {len(run['times'])} steps in {took:.1f} s, median {statistics.median(run['times']):.0f} ms, "
        f"reserved {run['reserved'] / 1e6:.0f} MB, {run['reserved'] / live:.4f} of live, {run['donated'] / 1e6:.0f} MB moved{driver}",
        flush=True,
    )


def runs_of(workload, steps, rounds, *options, parts=1):
    """Lists of what each allocator needed; torch's default allocator is there once, and first: it makes as many steps as
    its share of SECONDS allows (the workload is one of so many parts), and all others as many as it did."""
    order = ["native"] + ["expandable", "arena"] * rounds
    seconds = SECONDS * rounds / parts / len(order)
    timer = built(DRIVER_TIME)

    def make(name):
        return lambda: Worker(workload, name, *options, preload=timer if name == "arena" else None)

    done = {name: [] for name in order}
    for name, worker in zip(order, in_turns(make(name) for name in order)):
        begun = time.monotonic()
        if name == "native":
            run = steps_within(worker, steps, seconds)
            steps, live = len(run["times"]), run["live"]
        else:
            run = worker.steps(steps)
        done[name].append(run)
        report(worker.name, run, live, time.monotonic() - begun)
    return done


def of(runs, name, what):
    return statistics.median(one[what] for one in runs[name])


def spread(values):
    return "/".join(f"{one:.4f}" for one in sorted(values))


def peak_rows(name, runs, most_of_live, most_of_expandable):
    live = of(runs, "native", "live")
    arena, expandable, native = (of(runs, one, "reserved") for one in ("arena", "expandable", "native"))
    ratios = [one["reserved"] / live for one in runs["arena"]]
    moved = of(runs, "arena", "donated") / 1e6
    print(
        f"# {name}: reserved / live: arena {spread(ratios)}, expandable segments {expandable / live:.4f}, "
        f"default {native / live:.4f}; {moved:.0f} MB moved"
    )
    yield f"{name}: MB reserved / live", arena / 1e6, live / 1e6, most_of_live
    yield f"{name}: MB reserved / expandable segments", arena / 1e6, expandable / 1e6, most_of_expandable


def driver_rows(name, runs):
    """The driver's time in a step of the second half."""
    driver = [one["driver"] for one in runs["arena"]]
    if None in driver:
        print(f"# {name}: the driver's time is left out, there is no {DRIVER_TIME} (UMF_BENCH_FOLDER)")
        return
    late = [statistics.mean(one[len(one) // 2 :]) for one in driver]
    yield f"{name}: driver's ms on the host in a step of the second half / most", statistics.median(late), 4, 1


def peak_of(workload, rounds):
    steps, most = TRAININGS[workload]
    runs = runs_of(workload, steps_of(steps), rounds)
    name = f"{workload}, {of(runs, 'native', 'live') / 1e9:.1f} GB live, {rounds} rounds"
    yield from peak_rows(name, runs, 1.016, most)
    yield from driver_rows(name, runs)
    times = {one: statistics.median(sum((run["times"][1:] for run in runs[one]), []) or [0]) for one in runs}
    yield f"{name}: ms a step / expandable segments", times["arena"], times["expandable"], None


def peak_training(rounds, _):
    yield from peak_of("training", rounds)


def peak_checkpointing(rounds, _):
    yield from peak_of("checkpointing", rounds)


def peak_streams(rounds, _):
    yield from peak_of("streams", rounds)


def peak_fixed(rounds, _):
    yield from peak_of("fixed", rounds)


def peak_inference(rounds, _):
    runs = runs_of("inference", 1, rounds)
    name = f"inference, keys and values grow, {of(runs, 'native', 'live') / 1e9:.1f} GB live, {rounds} rounds"
    yield from peak_rows(name, runs, 1.02, None)


def peak_small(rounds, _):
    for workload in SMALL:
        runs = runs_of(workload, steps_of(SMALL_STEPS), rounds, "--small", parts=len(SMALL))
        name = f"small {workload}, {of(runs, 'native', 'live') / 1e9:.1f} GB live, {rounds} rounds"
        yield from peak_rows(name, runs, 1.03, None)


def step(_, end):
    """Ten runs of fifty steps, in turns of processes that stay."""
    count, runs, names = steps_of(50), 1 if IS_SOFT else 10, ("expandable", "arena")
    workers = {name: Worker("training", name, "--small") for name in names}
    medians, means = ({name: [] for name in names} for _ in range(2))
    for worker in workers.values():
        worker.steps(steps_of(5))
    for number in range(runs):
        if number and time.monotonic() > end:
            break
        for name in names if number % 2 else reversed(names):
            times = workers[name].steps(count)["times"]
            medians[name].append(statistics.median(times))
            means[name].append(statistics.mean(times))
    for worker in workers.values():
        with worker:
            pass
    for what, values in (("median", medians), ("mean", means)):
        ratios = [ours / peer for ours, peer in zip(values["arena"], values["expandable"])]
        print(f"# ms a step, {what} of each run: {values}; ratios {spread(ratios)}")
        name = f"step of small training, {what} of {len(ratios)} runs of {count}, ms / expandable segments"
        ours, peer = (statistics.median(values[one]) for one in ("arena", "expandable"))
        yield name, ours, peer, 1.01 if what == "median" else None


def exact(_, end):
    """Losses of deterministic models, of which each bit is compared."""
    for workload in SMALL:
        if time.monotonic() > end:
            break
        options = ("--small", "--deterministic")
        makers = [lambda name=name: Worker(workload, name, *options) for name in ("native", "arena")]
        runs = [worker.steps(steps_of(SMALL_STEPS)) for worker in in_turns(makers)]
        losses = [one["losses"] for one in runs]
        print(f"# {workload}: {len(losses[0])} losses, {runs[1]['donated'] / 1e6:.0f} MB moved")
        differ = sum(one != other for one, other in zip(*losses)) + (len(losses[0]) != len(losses[1]))
        yield f"losses of small {workload} that differ from those of torch's own allocator", differ, 0, 0


def sleeping(_, __):
    """200 suspends and resumes in a training, whose losses are those of a training without them."""
    count = steps_of(200)
    options = ("--small", "--deterministic")
    makers = [lambda: Worker("training", "arena", *options), lambda: Worker("training", "arena", "--suspend", *options)]
    awake, slept = (worker.steps(count) for worker in in_turns(makers))
    differ = sum(one != other for one, other in zip(awake["losses"], slept["losses"]))
    yield f"losses that differ in a training with {count} suspends and resumes", differ, 0, 0
    yield "MB reserved in it / without them", slept["reserved"] / 1e6, awake["reserved"] / 1e6, 1.02


def pairs(_, __):
    """The pairs of umf-bench-gpu, beside those of PyTorch."""
    bench = built("umf-bench-gpu")
    if not bench:
        raise RuntimeError("left out: there is no umf-bench-gpu (UMF_BENCH_FOLDER)")
    peer, command = Path(os.environ.get("TMPDIR", "/tmp")) / f"umf-pairs-{os.getpid()}", [bench, "--only", "pair"]
    try:
        if IS_SOFT:
            command += ["--quick", "--driver", "libcuda.so.1"]
        elif subprocess.run([sys.executable, ROOT / "benchmark" / "torch_peer.py", "--out", peer]).returncode == 0:
            command += ["--torch", peer]
        sys.stdout.flush()
        if subprocess.run(command).returncode:
            raise RuntimeError("umf-bench-gpu failed")
    finally:
        peer.unlink(missing_ok=True)
    return iter(())


PARTS = {
    one.__name__: one
    for one in (
        peak_training, peak_checkpointing, peak_streams, peak_fixed, peak_inference, peak_small,
        step, exact, sleeping, pairs,
    )
}  # fmt: skip
