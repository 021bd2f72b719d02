"""Pools that are dropped, suspended or paused while threads are inside of them."""

import gc
import weakref

import pytest
from gpu_helpers import MIB, Other, empty, full, holds, torch

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
