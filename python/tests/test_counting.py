"""umf.counting, umf.profile and umf.MemoryHook."""

import asyncio
import gc
import sys
import threading

import pytest
from helpers import run_python

import umf


@pytest.fixture
def pool():
    with umf.Pool("disjoint") as pool:
        yield pool


# --- counters ---


def test_counters_count(pool):
    with umf.counting(pool) as c:
        kept = pool.allocate(1000)
        pool.allocate(500).free()
        with umf.Pool("proxy") as other:
            other.allocate(7)
    assert (c.current_bytes, c.peak_bytes, c.total_bytes) == (1000, 1500, 1500)
    assert (c.current_count, c.peak_count, c.total_count) == (1, 2, 2)
    kept.free()
    assert c.current_bytes == 1000  # it has ended
    assert "peak 1500" in repr(c)


def test_counters_nest(pool):
    with umf.counting() as outer:
        before = pool.allocate(100)
        with umf.counting(pool) as inner:
            before.free()
            pool.allocate(10).free()
        pool.allocate(30).free()
    assert (inner.current_bytes, inner.peak_bytes, inner.total_bytes) == (-100, 0, 10)
    assert inner.current_count == -1
    assert (outer.current_bytes, outer.peak_bytes, outer.total_bytes) == (0, 100, 140)
    with outer:
        assert outer.total_bytes == 0
        with pytest.raises(ValueError, match="in use"), outer:
            pass


def test_every_way_to_allocate_and_free_counts(pool):
    import copy

    with umf.counting(pool) as c:
        one = umf.from_bytes(b"abcd", pool)
        two = copy.copy(one)
        one.resize(100)
        assert c.current_bytes == 104
        one.free()
        one.free()
        del two
        gc.collect()
        assert (c.current_bytes, c.current_count, c.total_count) == (0, 0, 3)
        with pytest.raises(ValueError):
            pool.allocate(0)
        pool.set_limit(1 << 20)
        with pytest.raises(umf.OutOfMemoryError):
            pool.allocate(1 << 30)
        assert c.total_count == 3


def test_memory_that_went_with_its_pool_is_counted_as_freed():
    pool = umf.Pool("disjoint")
    with umf.counting() as c:
        buffer = pool.allocate(100)
        pool.close()
        assert c.current_bytes == 100
        del buffer
        assert (c.current_bytes, c.current_count) == (0, 0)


def test_threads_are_counted(pool):
    def work():
        for _ in range(500):
            pool.allocate(10).free()

    with umf.counting(pool) as c:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (c.current_bytes, c.total_bytes, c.total_count) == (0, 20000, 2000)


def test_counters_that_are_dropped_count_no_more(pool):
    umf.counting(pool).__enter__()
    gc.collect()
    pool.allocate(1).free()
    for wrong in (1, "disjoint"):
        with pytest.raises(TypeError):
            umf.counting(wrong)


# --- the profiler ---


def test_functions_and_blocks_are_profiled(pool):
    profile = umf.Profiler()

    @profile
    def load(nbytes):
        """Loads."""
        pool.allocate(nbytes).free()
        return nbytes

    @profile("both")
    def twice():
        return load(50) + load(50)

    assert load(100) == 100 and load.__doc__ == "Loads." and twice() == 100
    with pytest.raises(KeyError), profile("both"):
        pool.allocate(1)
        raise KeyError
    report = profile.report()
    assert [e[1:] for e in report] == [(3, 3, 200, 100), (2, 3, 101, 50)]
    assert report[0].name.endswith("load") and report[1].name == "both"
    assert str(report).splitlines()[0].split() == ["calls", "allocations", "bytes", "peak", "name"]
    profile.reset()
    assert profile.report() == []


def test_recursion_and_coroutines_are_profiled(pool):
    profile = umf.Profiler(pool)
    assert isinstance(umf.profile, umf.Profiler)

    @profile("down")
    def down(depth):
        kept = pool.allocate(10)
        return depth and down(depth - 1) or kept.nbytes

    @profile("task")
    async def task():
        await asyncio.sleep(0)
        pool.allocate(5)

    down(2)
    asyncio.run(task())
    entries = {e.name: e for e in profile.report()}
    assert entries["down"][1:] == (3, 6, 60, 30)
    assert entries["task"][1:] == (1, 1, 5, 5)

    def steps():
        yield

    for wrong in (1, None, steps):
        with pytest.raises(TypeError):
            profile(wrong)
    with pytest.raises(TypeError):
        profile("name")(1)


# --- hooks ---


class Log(umf.MemoryHook):
    def __init__(self):
        self.events = []

    def malloc_preprocess(self, pool, nbytes):
        self.events.append(("malloc", pool, nbytes))

    def malloc_postprocess(self, pool, nbytes, ptr):
        self.events.append(("malloced", pool, nbytes, ptr))

    def free_preprocess(self, pool, nbytes, ptr):
        self.events.append(("free", pool, nbytes, ptr))

    def free_postprocess(self, pool, nbytes, ptr):
        self.events.append(("freed", pool, nbytes, ptr))


def test_a_hook_sees_allocations_and_frees(pool):
    with Log() as log:
        buffer = pool.allocate(100)
        ptr = buffer.ptr
        del buffer
        with pytest.raises(ValueError, match="in use"), log:
            pass
        pool.set_limit(1 << 20)
        with pytest.raises(umf.OutOfMemoryError):
            pool.allocate(1 << 30)
    pool.allocate(5).free()
    assert log.events == [
        ("malloc", pool, 100),
        ("malloced", pool, 100, ptr),
        ("free", pool, 100, ptr),
        ("freed", pool, 100, ptr),
        ("malloc", pool, 1 << 30),
    ]


def test_hooks_nest_in_their_order(pool):
    order = []

    class Number(umf.MemoryHook):
        def __init__(self, number):
            self.number = number

        def malloc_preprocess(self, pool, nbytes):
            order.append(self.number)

    with Number(1), Number(2):
        pool.allocate(1)
    assert order == [1, 2]


def test_a_hook_of_malloc_may_refuse(pool):
    class Before(umf.MemoryHook):
        def malloc_preprocess(self, pool, nbytes):
            raise KeyError("before")

    class After(umf.MemoryHook):
        def malloc_postprocess(self, pool, nbytes, ptr):
            raise KeyError("after")

    for hook in (Before(), After()):
        with umf.counting(pool) as c, hook, pytest.raises(KeyError):
            pool.allocate(100)
        assert c.current_bytes == 0
    assert pool.statistics().allocations == 0


def test_a_hook_of_free_cannot_keep_memory(pool, monkeypatch):
    class Bad(umf.MemoryHook):
        def free_preprocess(self, pool, nbytes, ptr):
            raise KeyError("why")

    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda about: seen.append(about.exc_type))
    with Bad():
        pool.allocate(100).free()
        with pytest.raises(IndexError):
            kept = pool.allocate(100)
            raise IndexError
        del kept
    assert seen == [KeyError, KeyError]
    assert pool.statistics().allocations == 0


def test_a_hook_may_allocate_and_close(pool):
    class Busy(umf.MemoryHook):
        def malloc_preprocess(self, pool, nbytes):
            pool.allocate(nbytes).free()

    with Busy():
        pool.allocate(100)

    class Closing(umf.MemoryHook):
        def free_preprocess(self, pool, nbytes, ptr):
            pool.close()

    with Closing():
        other = umf.Pool("disjoint")
        other.allocate(100).free()
        assert other.closed

    class Before(umf.MemoryHook):
        def malloc_preprocess(self, pool, nbytes):
            pool.close()

    with Before(), umf.Pool("disjoint") as third:
        with pytest.raises(ValueError, match="closed"):
            third.allocate(1)


def test_the_process_ends_well_inside_a_hook():
    run_python(
        """
import umf
class Log(umf.MemoryHook):
    def free_preprocess(self, pool, nbytes, ptr):
        print("free", nbytes)
hook = Log().__enter__()
counters = umf.counting().__enter__()
pool = umf.Pool("disjoint")
kept = pool.allocate(100)
"""
    )
