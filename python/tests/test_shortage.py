"""umf.on_out_of_memory."""

import gc
import threading
import weakref

import pytest

import umf

MIB = 1 << 20


@pytest.fixture
def pool():
    with umf.Pool("proxy") as pool:
        pool.set_limit(8 * MIB)
        yield pool


def test_what_a_callback_gives_back_is_used(pool):
    cache, calls = [pool.allocate(2 * MIB) for _ in range(4)], []

    def give(short, nbytes):
        calls.append((short, nbytes))
        if not cache:
            return False
        cache.pop().free()
        return True

    with umf.on_out_of_memory(give):
        with pool.allocate(6 * MIB) as buffer:
            assert len(cache) == 1 and len(calls) == 3
            assert all(short is pool and nbytes >= 6 * MIB for short, nbytes in calls)
            with umf.using(pool), pytest.raises(umf.OutOfMemoryError):
                umf.allocate(8 * MIB)
            assert not cache and buffer.nbytes == 6 * MIB
    seen = len(calls)
    with pytest.raises(umf.OutOfMemoryError):
        pool.allocate(9 * MIB)
    assert len(calls) == seen


def test_a_callback_that_gives_nothing_ends_the_request(pool):
    calls = []
    with umf.on_out_of_memory(lambda *about: calls.append(about)):
        with pytest.raises(umf.OutOfMemoryError):
            pool.allocate(9 * MIB)
        assert len(calls) == 1
    with umf.on_out_of_memory(lambda *about: calls.append(about) or True):
        with pytest.raises(umf.OutOfMemoryError):
            pool.allocate(9 * MIB)
    assert len(calls) == 9


def test_callbacks_are_called_in_their_order(pool):
    order = []
    one = umf.on_out_of_memory(lambda *about: order.append(1))
    with umf.on_out_of_memory(lambda *about: order.append(2)):
        with pytest.raises(umf.OutOfMemoryError):
            pool.allocate(9 * MIB)
        one.remove()
        one.remove()
        with pytest.raises(umf.OutOfMemoryError):
            pool.allocate(9 * MIB)
    assert order == [1, 2, 2]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_an_exception_reaches_who_allocates(pool, error):
    def fail(*about):
        raise error("why")

    with umf.on_out_of_memory(fail):
        with pytest.raises(error, match="why"):
            pool.allocate(9 * MIB)
        pool.allocate(7 * MIB).free()
    assert pool.statistics().allocations == 0


def test_a_limit_may_be_raised(pool):
    def raise_limit(short, nbytes):
        short.set_limit(16 * MIB)
        return True

    with umf.on_out_of_memory(raise_limit):
        pool.allocate(9 * MIB).free()


def test_the_pool_of_the_request_stays_open(pool):
    calls = []

    def end(short, nbytes):
        for call in (short.close, lambda: umf.suspend(short), lambda: umf.suspend_async(short)):
            with pytest.raises(BufferError, match="callback"):
                call()
            calls.append(call)
        with umf.Pool("disjoint") as other:
            other.close()
        return False

    with umf.on_out_of_memory(end), pytest.raises(umf.OutOfMemoryError):
        pool.allocate(9 * MIB)
    assert len(calls) == 3


def test_what_a_callback_allocates_is_no_recursion(pool):
    depth = []

    def allocate(short, nbytes):
        depth.append(1)
        with pytest.raises(umf.OutOfMemoryError):
            short.allocate(9 * MIB)
        return False

    with umf.on_out_of_memory(allocate), pytest.raises(umf.OutOfMemoryError):
        pool.allocate(9 * MIB)
    assert depth == [1]


def test_threads_ask_at_once(pool):
    ready, failed = threading.Barrier(3), []

    def wait(*about):
        ready.wait(60)  # all three are in the callback
        return False

    def work():
        try:
            pool.allocate(9 * MIB)
        except umf.OutOfMemoryError:
            failed.append(1)

    with umf.on_out_of_memory(wait):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(failed) == 3


def test_a_removed_callback_is_dropped():
    class Callback:
        def __call__(self, pool, nbytes):
            return False

    callback = Callback()
    gone = weakref.ref(callback)
    umf.on_out_of_memory(callback).remove()
    del callback
    gc.collect()
    assert gone() is None


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError):
        umf.on_out_of_memory(None)
