"""PyTorch on the software runtime (../run.sh starts it), or on a GPU where UMF_TEST_GPU=real."""

import gc
import os
import sys
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "soft"))
sys.path.insert(0, str(Path(__file__).parents[1]))

MIB = 1 << 20
IS_REAL = os.environ.get("UMF_TEST_GPU") == "real"

needs_gpu = pytest.mark.skipif(not IS_REAL, reason="graphs and kernels need a GPU")
needs_fake = pytest.mark.skipif(IS_REAL, reason="counts memory on the software driver")

if not torch.cuda.is_available():
    pytest.exit("torch finds no GPU: run.sh starts the software one", returncode=1)


@pytest.fixture(autouse=True)
def compute():
    """Operations are done by the CPU where there is no GPU."""
    if IS_REAL:
        yield
    else:
        from soft_dispatch import SoftDispatch

        with SoftDispatch():
            yield
    gc.collect()
    torch.cuda.empty_cache()


def process_with(install):
    """The beginning of a program for `run_python`, whose allocator of torch `install` makes."""
    tests = Path(__file__).parents[1]
    return f"""
import random, sys, torch, umf, umf.torch
sys.path[:0] = [{str(tests)!r}, {str(tests / "soft")!r}]
MIB = 1 << 20
allocator = {install}
""" + ("" if IS_REAL else """
from soft_dispatch import SoftDispatch
dispatch = SoftDispatch()
dispatch.__enter__()
""")


def full(mib, value):
    return torch.full((mib * MIB,), value, dtype=torch.uint8, device="cuda")


def holds(tensor, value):
    return bool((tensor.cpu() == value).all())


def used():
    """Bytes of the GPU in use."""
    torch.cuda.synchronize()
    available, total = torch.cuda.mem_get_info()
    return total - available


def empty():
    """Less than a segment of torch."""
    return torch.empty(1000, dtype=torch.uint8, device="cuda")


class Other:
    """A thread that is inside of a context until `leave`."""

    def __init__(self, context, inside=lambda: None):
        self._context, self._inside = context, inside
        self._entered, self._leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._entered.wait(300)

    def _run(self):
        with self._context:
            self.made = self._inside()
            self._entered.set()
            self._leave.wait(300)

    def leave(self):
        self._leave.set()
        self._thread.join(300)
