"""benchmark/figures.py, tried on the software runtime: what it prints means nothing there."""

import json
import subprocess
import sys

import pytest
from gpu_helpers import needs_fake
from helpers import ROOT

BENCHMARK = ROOT / "python" / "benchmark"


@needs_fake
@pytest.mark.parametrize("part", ["memory_saver", "lease", "memory_saver_lost"])
def test_a_part_works_alone(part, monkeypatch):
    monkeypatch.setenv("UMF_TEST_GPU", "soft")
    done = subprocess.run(
        [sys.executable, BENCHMARK / "figures.py", "--gib", "0.0625", part],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_fake
@pytest.mark.parametrize("mode", ["mempool", "process", "native"])
def test_a_training_tells_what_is_held(mode, monkeypatch, tmp_path):
    monkeypatch.setenv("UMF_TEST_GPU", "soft")
    trace = tmp_path / "trace"
    done = subprocess.run(
        [sys.executable, BENCHMARK / "training.py", mode, "--verbose"]
        + ["--trace", trace] * (mode == "native"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    held, last = done.stdout.splitlines()
    assert held.startswith(f"# training, {mode}:") and len(last.split()) == 3
    assert ("libumf held" in held, "MemPool held" in held) == (mode != "native", mode == "mempool")
    if mode == "native":
        lines = trace.read_text().splitlines()
        assert lines[1].startswith("t ") and lines[2].startswith("a 0 ") and len(lines) > 1000


@needs_fake
def test_the_host_is_touched_and_pinned(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARK))
    from plain import warm_host

    assert warm_host((1 << 30) + 1) == 1 << 30
    assert warm_host(1) == 0


@needs_fake
@pytest.mark.parametrize(
    ("workload", "allocator"),
    [("training", "native"), ("checkpointing", "arena"), ("fixed", "arena"), ("inference", "arena")],
)
def test_a_peak_is_told(workload, allocator, monkeypatch):
    monkeypatch.setenv("UMF_TEST_GPU", "soft")
    command = [sys.executable, BENCHMARK / "peak.py", workload, allocator, "--steps", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["reserved"] >= told["live"] > 0 and len(told["times"]) == 1
    assert len(told["losses"]) == (0 if workload == "inference" else 4)


@needs_fake
def test_two_processes_take_turns(monkeypatch):
    monkeypatch.setenv("UMF_TEST_GPU", "soft")
    command = [sys.executable, BENCHMARK / "figures.py", "step"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "median of 1 runs of 1" in done.stdout, done.stdout + done.stderr


@needs_fake
@pytest.mark.parametrize(("seconds", "steps"), [(0, 1), (1e9, 12)])
def test_each_process_is_told_at_once(seconds, steps, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(BENCHMARK))
    import table

    asked = []

    class Worker:
        def __init__(self, workload, name, *options, preload=None):
            self.name = f"{workload} {name}"

        def __enter__(self):
            return self

        def __exit__(self, *_):
            told = capsys.readouterr().out
            assert told.startswith(f"# {self.name}: {steps} steps in ") and told.count("\n") == 1

        def steps(self, count):
            asked.append((self.name, count))
            ones = [1.0] * count
            return {"times": ones, "driver": ones, "losses": [], "reserved": 3e6, "live": 2e6, "donated": 0}

    monkeypatch.setattr(table, "Worker", Worker)
    monkeypatch.setattr(table, "SECONDS", seconds)
    runs = table.runs_of("training", 12, 2)
    assert {name: [len(one["times"]) for one in of] for name, of in runs.items()} == {
        "native": [steps],
        "expandable": [steps] * 2,
        "arena": [steps] * 2,
    }
    assert asked[:steps] == [("training native", 1)] * steps
    assert [count for _, count in asked[steps:]] == [steps] * 4
