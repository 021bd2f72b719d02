"""Pools that are dropped, suspended or paused while threads are inside of them."""

import gc
import weakref

import pytest
from gpu_helpers import MIB, Other, empty, full, holds, torch
from helpers import run_python

import umf
import umf.torch
from umf import _torch_pools


def is_alive(pool):
    return not pool.closed


@pytest.mark.parametrize("is_cycle", [False, True])
def test_a_pool_that_is_dropped_inside_of_another_goes_later(is_cycle):
    outer = umf.torch.Pool()
    with outer.use():
        inner = umf.torch.Pool()
        below, gone = inner.pool, weakref.ref(inner)
        if is_cycle:
            inner.itself = inner
        del inner
        gc.collect()
        tensor = full(4, 1)
        assert is_alive(below)
    umf.torch._collect()
    assert gone() is None and not is_alive(below)
    assert holds(tensor, 1) and is_alive(outer.pool)


def test_a_pool_that_is_dropped_while_a_thread_is_inside_of_another():
    pool, dropped = umf.torch.Pool(), umf.torch.Pool()
    below = dropped.pool
    other = Other(pool.use(), empty)
    del dropped
    gc.collect()
    assert is_alive(below)
    other.leave()
    umf.torch._collect()
    assert not is_alive(below)
    del other.made


@pytest.mark.parametrize("names", ["pool", "saver", "vllm"])
def test_the_interpreter_ends_while_a_thread_is_inside_of_a_pool(names):
    """Torch ends the process if any other pool is destroyed then."""
    code = """
import gc, sys, threading, torch, umf.torch

if sys.argv[1] == "pool":
    region = lambda tag: umf.torch.Pool().use()
elif sys.argv[1] == "saver":
    from umf.torch_memory_saver import torch_memory_saver
    torch_memory_saver.hook_mode = "torch"
    region = torch_memory_saver.region
else:
    from umf.vllm.device_allocator.cumem import CuMemAllocator
    region = CuMemAllocator.get_instance().use_memory_pool

def empty():
    return torch.empty(4 << 20, dtype=torch.uint8, device="cuda")

def stay():
    with region("other"):
        one = empty()
        is_inside.set()
        threading.Event().wait()

is_inside = threading.Event()
threading.Thread(target=stay, daemon=True).start()
is_inside.wait()
with region("first"):
    kept = empty()
gc.collect()
print("ends")
"""
    assert run_python(code, names) == "ends\n"


def test_no_suspend_inside_of_a_pool():
    pool = umf.torch.Pool()
    calls = (
        (pool.suspend, "a thread is inside use"),
        (lambda: umf.suspend(pool.pool), "forbid_suspend"),
    )
    with pool.use():
        first = empty()
        for call, text in calls:
            with pytest.raises(umf.OutOfResourcesError, match=text):
                call()
        with umf.torch.Pool().use(), pytest.raises(umf.OutOfResourcesError, match="inside"):
            pool.suspend()
        second = empty()
    assert pool.residency().state == "resident"
    assert abs(first.data_ptr() - second.data_ptr()) < 2 * MIB
    other = Other(pool.use(), empty)
    for call, text in calls:
        with pytest.raises(umf.OutOfResourcesError, match=text):
            call()
    other.leave()
    pool.suspend()
    pool.resume()
    del other.made


def test_a_second_thread_in_a_pool_changes_nothing():
    pool = umf.torch.Pool()
    other = Other(pool.use(), empty)
    with pytest.raises(RuntimeError):
        with pool.use():
            pass
    assert _torch_pools.entered() == []
    other.leave()
    assert _torch_pools._active == 0
    with pool.use():
        empty()
    pool.suspend()
    pool.resume()
    del other.made
