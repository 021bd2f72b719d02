"""A recording as a snapshot for PyTorch's own tool."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_helpers import torch

import umf


@pytest.fixture
def exported(tmp_path):
    built = Path(umf._core.__file__).parents[2] / "tools" / "umfctl"
    if not built.exists():
        pytest.skip(f"there is no {built}")
    started = subprocess.run([built, "--version"], capture_output=True, text=True)
    if started.returncode == 127:  # of the loader: this machine lacks a library of `umfctl top`
        pytest.skip(started.stderr.strip())
    with umf.Pool("disjoint:name=weights over os") as pool:
        with umf.record(tmp_path / "run.umfrec", stacks=True, leaks=True):
            kept = pool.allocate(3 << 20)
            pool.allocate(1 << 20).free()
        kept.free()
    out = tmp_path / "run.pickle"
    subprocess.run([built, "trace", tmp_path / "run.umfrec", "--pytorch", out], check=True)
    return out


def test_the_tool_of_torch_reads_it(exported):
    from torch.cuda import _memory_viz

    snapshot = pickle.loads(exported.read_bytes())
    assert snapshot["device_traces"] and "segments" in snapshot
    actions = [one["action"] for trace in snapshot["device_traces"] for one in trace]
    assert "alloc" in actions and any(action.startswith("free") for action in actions)
    assert _memory_viz.trace(snapshot) and _memory_viz.segsum(snapshot)
    assert "<html" in _memory_viz.trace_plot(snapshot).lower()
    assert "<html" in _memory_viz.segment_plot(snapshot).lower()


def test_its_command_line_reads_it(exported, tmp_path):
    page = tmp_path / "page.html"
    subprocess.run(
        [sys.executable, "-m", "torch.cuda._memory_viz", "trace_plot", exported, "-o", page],
        check=True,
    )
    assert page.stat().st_size > 0 and torch.cuda.is_available()
