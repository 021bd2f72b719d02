"""Signals and last references while a suspend or resume goes on: they do not wait, and nothing is lost."""

import os
import signal
import threading
import time
import weakref

import pytest
from helpers import busy_pool, run_python

import umf

MIB = 1 << 20


def when_it_moves(pool, begins):
    """A thread that sends SIGINT once a suspend or resume of the pool has begun, and its end."""

    def send():
        begins.wait()
        while pool.residency().state not in ("suspending", "resuming") and not ends.is_set():
            time.sleep(0)
        if not ends.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    ends = threading.Event()
    thread = threading.Thread(target=send)
    thread.start()
    return thread, ends


def is_left_at_work(call, pool):
    """Whether a signal made `call` raise while its suspend or resume still went on."""
    begins = threading.Event()
    thread, ends = when_it_moves(pool, begins)
    try:
        begins.set()
        call(pool)
        ends.set()
        thread.join()
        time.sleep(0.01)  # a signal that was sent comes here
        return False
    except KeyboardInterrupt:
        return pool.residency().state in ("suspending", "resuming")
    finally:
        ends.set()
        thread.join()


@pytest.mark.parametrize("first, back", [(umf.suspend, umf.resume), (umf.resume, umf.suspend)])
def test_a_signal_is_answered_during_a_suspend_and_it_goes_on(first, back):
    pool, kept = busy_pool()
    with pool:
        for _ in range(100):
            back(pool)
            if is_left_at_work(first, pool):
                break
        else:
            raise AssertionError("no signal was answered before the end of the call")
        back(pool)  # waits for it, and finds it done
        assert pool.residency().state == ("resident" if back is umf.resume else "suspended")
        umf.resume(pool)
        assert all(one[0] == one[-1] == 3 for one in kept)
        pool.allocate(MIB).free()
        first(pool)
    assert pool.closed


def test_a_close_waits_for_a_suspend_that_a_signal_left():
    for _ in range(100):
        pool, kept = busy_pool()
        left = is_left_at_work(umf.suspend, pool)
        pool.close()
        assert pool.closed
        if left:
            return
    raise AssertionError("no signal was answered before the end of the call")


def test_the_last_reference_of_a_job_does_not_wait():
    for _ in range(100):
        pool, kept = busy_pool()
        job = umf.suspend_async(pool)
        del job
        went_on = pool.residency().state in ("resident", "suspending")
        assert umf.suspend(pool).bytes == 0  # waits for it
        umf.resume(pool)
        assert all(one[5] == 3 for one in kept)
        pool.close()
        if went_on:
            return
    raise AssertionError("each job was waited for by its last reference")


def test_what_is_left_keeps_its_pool_until_it_is_over():
    class Mine(umf.Pool):
        pass

    pool = Mine("disjoint over linux_vmm")
    kept = pool.allocate(8 * MIB)
    umf.suspend_async(pool)
    gone = weakref.ref(pool)
    del pool, kept
    with umf.Pool("disjoint over linux_vmm") as other:
        other.allocate(MIB).free()
        while gone():
            umf.suspend(other)  # looks
            umf.resume(other)


def test_the_exit_waits_for_what_is_left():
    said = run_python(
        """
import atexit
atexit.register(lambda: print(pool.residency().state))  # runs after the package's own
import umf
pool = umf.Pool("disjoint over linux_vmm")
pool.set_policy("host")
kept = [pool.allocate(8 << 20) for _ in range(8)]
for one in kept:
    umf.fill(one, 1)
umf.suspend_async(pool)
"""
    )
    assert said == "suspended\n"
