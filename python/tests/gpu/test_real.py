"""CuPy and Numba themselves over pools, each in a process of its own, where they are installed."""

import importlib.util

import pytest
from gpu_helpers import needs_gpu
from helpers import run_python

pytestmark = needs_gpu


def needs(name):
    missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(missing, reason=f"{name} is not installed")


@needs("cupy")
def test_cupy():
    run_python("""
import cupy, umf, umf.cupy
allocator = umf.cupy.install()
values = cupy.arange(1 << 20, dtype=cupy.int64)
doubled = values * 2
assert allocator.pool.statistics().allocations > 0
cupy.cuda.Device().synchronize()
assert umf.suspend(allocator.pool).bytes > 0
umf.resume(allocator.pool)
assert int(doubled.sum()) == (1 << 20) * ((1 << 20) - 1)
view = umf.from_dlpack(values)
assert view.ptr == values.data.ptr and view.nbytes == values.nbytes
del view, values, doubled
with umf.Pool("coalescing over cuda_vmm") as pool:
    memory = pool.allocate(4096)
    umf.fill(memory, 7)
    seen = cupy.asarray(memory)
    assert seen.data.ptr == memory.ptr and int(seen.sum()) == 7 * 4096
    del seen
    memory.free()
try:
    cupy.empty(1 << 45, dtype=cupy.uint8)
except MemoryError:
    pass
else:
    raise AssertionError("no error")
""")


@needs("numba")
def test_numba():
    run_python(
        """
import numpy
from numba import cuda

@cuda.jit
def double(values):
    at = cuda.grid(1)
    if at < values.size:
        values[at] *= 2

on_device = cuda.to_device(numpy.arange(4096))
try:
    double[16, 256](on_device)
    factor = 2
except Exception as error:  # without a compiler of kernels that works there still is memory
    reason = (type(error).__name__ + str(error)).lower()
    if "nvvm" not in reason and "row_stack" not in reason:  # a NumPy that is too new for Numba
        raise
    factor = 1
assert (on_device.copy_to_host() == factor * numpy.arange(4096)).all()
import umf.numba
free, total = cuda.current_context().get_memory_info()
assert 0 < free < total
manager = cuda.current_context().memory_manager
assert isinstance(manager, umf.numba._numba_memory_manager), manager
assert manager._addresses.pool.statistics().allocations > 0
""",
        env={"NUMBA_CUDA_MEMORY_MANAGER": "umf.numba"},
    )


def test_memory_is_seen_by_torch_while_a_kernel_runs():
    """A free of a pool's memory waits for the work that uses it."""
    run_python("""
import torch, umf, umf.torch
pool = umf.torch.Pool()
with pool.use():
    big = torch.ones(64 << 20, dtype=torch.uint8, device="cuda")
torch.cuda._sleep(1 << 28)
result = big.sum(dtype=torch.int64)
pool.suspend()
assert int(result) == 64 << 20
pool.resume()
assert int(big.sum(dtype=torch.int64)) == 64 << 20
""")
