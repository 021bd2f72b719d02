"""The default pool, of the process and of contexts."""

import asyncio
import threading

import pytest
from helpers import run_python

import umf


@pytest.fixture(autouse=True)
def unchanged():
    yield
    umf.set_default_pool(None)


@pytest.fixture
def pools():
    with umf.Pool("disjoint") as one, umf.Pool("proxy") as other:
        yield one, other


def test_there_is_a_default_pool():
    pool = umf.get_default_pool()
    assert umf.get_default_pool() is pool
    with umf.allocate(100, alignment=64) as buffer:
        assert buffer.pool is pool and buffer.ptr % 64 == 0


def test_the_package_pool_is_made_again_after_a_close():
    pool = umf.get_default_pool()
    pool.close()
    assert not umf.get_default_pool().closed


def test_import_makes_no_pool():
    run_python("import umf; assert not umf.snapshot()['pools']; umf.allocate(1); assert umf.snapshot()['pools']")


def test_a_pool_becomes_the_default(pools):
    umf.set_default_pool(pools[0])
    assert umf.allocate(1).pool is pools[0]
    assert umf.from_bytes(b"abc").pool is pools[0]
    assert umf.from_bytes(b"abc", pools[1]).pool is pools[1]
    umf.set_default_pool(None)
    assert umf.get_default_pool() not in pools


def test_using_nests_and_ends_by_exceptions(pools):
    umf.set_default_pool(pools[0])
    with umf.using(pools[1]) as inside:
        assert inside is pools[1] and umf.allocate(1).pool is pools[1]
        with pytest.raises(KeyError), umf.using(pools[0]):
            assert umf.get_default_pool() is pools[0]
            raise KeyError
        assert umf.get_default_pool() is pools[1]
    assert umf.get_default_pool() is pools[0]
    assert not pools[1].closed


def test_other_threads_have_the_pool_of_the_process(pools):
    umf.set_default_pool(pools[0])
    seen = []
    with umf.using(pools[1]):
        thread = threading.Thread(target=lambda: seen.append(umf.get_default_pool()))
        thread.start()
        thread.join()
    assert seen == [pools[0]]


def test_tasks_have_a_pool_of_their_own(pools):
    async def task(pool, both):
        with umf.using(pool):
            await both.wait()
            return umf.allocate(1).pool is pool

    class Both:
        def __init__(self):
            self.count, self.event = 0, asyncio.Event()

        async def wait(self):
            self.count += 1
            if self.count == 2:
                self.event.set()
            await self.event.wait()

    async def main():
        both = Both()
        return await asyncio.gather(*(task(pool, both) for pool in pools))

    assert asyncio.run(main()) == [True, True]


def test_a_closed_pool_is_no_default():
    pool = umf.Pool("disjoint")
    umf.set_default_pool(pool)
    pool.close()
    for call in (umf.get_default_pool, lambda: umf.allocate(1), lambda: umf.from_bytes(b"a")):
        with pytest.raises(ValueError, match="closed"):
            call()
    with pytest.raises(ValueError, match="closed"):
        umf.set_default_pool(pool)
    with pytest.raises(ValueError, match="closed"), umf.using(pool):
        pass
    for wrong in (None, "disjoint", 1):
        with pytest.raises(TypeError), umf.using(wrong):
            pass
    with pytest.raises(TypeError):
        umf.set_default_pool("disjoint")
