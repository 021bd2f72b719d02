"""Limits of pools, and their peaks."""

import os
import threading

import numpy
import pytest

import umf

MIB = 1 << 20


@pytest.mark.parametrize("kind", ["disjoint", "coalescing", "proxy"])
def test_a_request_beyond_the_limit_is_refused(kind):
    with umf.Pool(kind) as pool:
        pool.set_limit(8 * MIB)
        kept = pool.allocate(6 * MIB)
        with pytest.raises(umf.OutOfMemoryError) as caught:
            pool.allocate(4 * MIB)
        held = pool.statistics().reserved if kind != "proxy" else 6 * MIB
        for number in (8 * MIB, held, 4 * MIB):
            assert str(number) in str(caught.value)
        assert isinstance(caught.value, MemoryError)
        kept.free()
        pool.allocate(7 * MIB).free()  # free memory is released first


def test_a_limit_is_changed_removed_and_read():
    with umf.Pool("disjoint") as pool:
        assert pool.get_limit() is None
        pool.set_limit(size=numpy.int64(MIB))
        assert pool.get_limit() == MIB
        with pytest.raises(umf.OutOfMemoryError):
            pool.allocate(2 * MIB)
        for none in (0, None):
            pool.set_limit(none)
            assert pool.get_limit() is None
            pool.allocate(2 * MIB).free()


def test_a_lower_limit_takes_what_is_free():
    with umf.Pool("coalescing") as pool:
        buffers = [pool.allocate(MIB) for _ in range(8)]
        while len(buffers) > 1:
            buffers.pop().free()
        pool.set_limit(2 * MIB)
        with pytest.raises(umf.OutOfMemoryError):
            pool.allocate(8 * MIB)
        buffers.pop().free()
        pool.allocate(MIB).free()


def test_a_limit_is_a_fraction_of_the_memory():
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with umf.Pool("disjoint") as pool:
        pool.set_limit(fraction=0.5)
        assert pool.get_limit() == total // 2
        pool.set_limit(fraction=1)
        assert pool.get_limit() == total


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"size": -1}, ValueError),
        ({"size": 1.5}, TypeError),
        ({"size": "1M"}, TypeError),
        ({"size": 1 << 70}, (OverflowError, ValueError)),
        ({"fraction": 0}, ValueError),
        ({"fraction": -0.5}, ValueError),
        ({"fraction": 1.5}, ValueError),
        ({"fraction": float("nan")}, ValueError),
        ({"fraction": "half"}, TypeError),
        ({"size": 1, "fraction": 0.5}, ValueError),
    ],
)
def test_a_bad_limit_changes_nothing(arguments, error):
    with umf.Pool("disjoint") as pool:
        pool.set_limit(MIB)
        with pytest.raises(error):
            pool.set_limit(**arguments)
        assert pool.get_limit() == MIB


def test_a_closed_pool_has_no_limit():
    pool = umf.Pool("disjoint")
    pool.close()
    with pytest.raises(ValueError, match="closed"):
        pool.set_limit(1)
    with pytest.raises(ValueError, match="closed"):
        pool.get_limit()


def test_a_limit_may_change_while_threads_allocate():
    errors = []
    with umf.Pool("disjoint", capacity=4) as pool:

        def work():
            try:
                for _ in range(200):
                    try:
                        pool.allocate(64 << 10).free()
                    except umf.OutOfMemoryError:
                        pass
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for size in range(1, 100):
            pool.set_limit(size << 12)
        for thread in threads:
            thread.join()
        pool.set_limit(None)
        pool.allocate(MIB).free()
    assert not errors


def test_the_peak_of_a_pool_stays_when_memory_goes():
    with umf.Pool("proxy") as pool:
        pool.allocate(4 * MIB).free()
        assert pool.statistics().peak >= 4 * MIB
