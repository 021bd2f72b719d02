"""The import of the package."""

from helpers import run_python


def test_importing_starts_nothing():
    run_python(
        """
import os, sys
before = set(sys.modules)
import umf
assert len(os.listdir("/proc/self/task")) == 1, "a thread was started"
assert "libcuda" not in open("/proc/self/maps").read(), "the driver was loaded"
for heavy in ("asyncio", "numpy", "torch", "ctypes", "multiprocessing"):
    assert heavy not in set(sys.modules) - before, heavy
"""
    )


def test_what_stands_for_others_imports_without_torch_and_driver():
    run_python(
        """
import importlib.util, os, sys
class NoTorch:
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("torch", "vllm", "numpy", "cupy", "numba", "rmm"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoTorch())
import umf.compat, umf.remote, umf.torch_memory_saver, umf.torch_memory_saver.testing_utils, umf.vault, umf.vllm
import umf.vllm.device_allocator.sleep_mode_backend
from umf.vllm.device_allocator import cumem
if cumem.cumem_available:
    import umf.vllm.cumem_allocator
    assert os.path.basename(cumem.lib_name).startswith("cumem_allocator")
    assert "cumem_allocator" not in os.path.dirname(cumem.lib_name)
assert len(os.listdir("/proc/self/task")) == 1
assert "libcuda" not in open("/proc/self/maps").read()
saver = umf.torch_memory_saver.torch_memory_saver
assert saver._impl is None
"""
    )


def test_forked_children_work():
    run_python(
        """
import os, umf
pool = umf.Pool("disjoint over os")
kept = pool.allocate(100)
child = os.fork()
if child == 0:
    with umf.Pool("disjoint over os") as mine:
        mine.allocate(100)
    pool.allocate(100)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    )


def test_the_process_ends_well_with_memory_in_use():
    run_python(
        """
import sys, umf
pool = umf.Pool("disjoint over os")
sys.kept = [pool.allocate(100), memoryview(pool.allocate(100))]
"""
    )
