"""Whatever closes while something goes on: nothing crashes, calls end or raise, closes wait."""

import gc
import os
import signal
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import busy_pool, interrupts, run_python, scaled

import umf

KIB, MIB = 1 << 10, 1 << 20
SIZES = (64, 4 * KIB, 64 * KIB, MIB, 3 * MIB)


@pytest.fixture
def eager():
    """Threads take turns often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def allocates(pool, kept):
    kept.append(pool.allocate(SIZES[len(kept) % 5]))
    if len(kept) > 8:
        kept.pop(0).free()


def trims(pool, kept):
    pool.allocate(MIB).free()
    pool.trim()


def suspends(pool, kept):
    try:
        umf.suspend(pool)
        umf.resume(pool)
    except umf.OutOfResourcesError:
        pass  # another thread does


def copies(pool, kept):
    one, other = pool.allocate(MIB), pool.allocate(MIB)
    umf.fill(one, 7)
    umf.copy(other, one)
    assert other.tobytes() == b"\7" * MIB


def reads(pool, kept):
    pool.statistics()
    pool.residency()
    pool.wait_pending(0.01)


@pytest.mark.parametrize("work", [allocates, trims, suspends, copies, reads])
def test_a_close_waits_for_calls_and_refuses_later_ones(work, eager):
    ends = []

    def call(pool):
        kept = []
        with pytest.raises(ValueError, match="closed"):
            while True:
                try:
                    work(pool, kept)
                except umf.OutOfResourcesError:
                    pass  # suspended by another thread
        ends.append(True)

    rounds = scaled(60)
    for number in range(rounds):
        pool = umf.Pool("disjoint over linux_vmm")
        threads = [threading.Thread(target=call, args=(pool,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.001 * (number % 5))
        pool.close()
        for thread in threads:
            thread.join()
    assert len(ends) == 4 * rounds


def test_the_body_of_a_with_fails_while_an_executor_goes_on():
    for _ in range(scaled(40)):
        with ThreadPoolExecutor(4) as executor:
            with pytest.raises(KeyError):
                with umf.Pool("disjoint") as pool:
                    for _ in range(8):
                        executor.submit(lambda: [pool.allocate(64 * KIB) for _ in range(500)])
                    raise KeyError
            assert pool.closed


def test_a_close_waits_for_a_job():
    for _ in range(scaled(30)):
        pool, _ = busy_pool()
        job = umf.suspend_async(pool)
        pool.close()
        assert job.done() and job.wait().kept == 64 * MIB
        assert "suspend done" in repr(job)


def test_the_end_of_a_with_waits_for_a_job():
    for _ in range(scaled(30)):
        with pytest.raises(KeyError):
            pool, kept = busy_pool()
            with pool:
                job = umf.suspend_async(pool)
                raise KeyError
        assert pool.closed and job.done()


def test_a_close_of_a_provider_waits_for_calls(eager):
    for _ in range(scaled(100)):
        provider = umf.Provider("os")
        made = []

        def call(provider=provider, made=made):
            with pytest.raises(ValueError, match="provider is closed"):
                while True:
                    provider.statistics()
                    with umf.Pool("proxy", provider):
                        made.append(1)

        threads = [threading.Thread(target=call) for _ in range(2)]
        for thread in threads:
            thread.start()
        while True:
            try:
                provider.close()
                break
            except ValueError as error:
                assert "open pools" in str(error)
        for thread in threads:
            thread.join()
        assert provider.closed


def test_an_argument_that_closes_the_pool():
    class Closes:
        def __init__(self, end, value):
            self.end, self.value = end, value

        def __index__(self):
            self.end()
            return self.value

    for call in (
        lambda pool, buffer, end: pool.allocate(Closes(end, 64 * KIB)),
        lambda pool, buffer, end: pool.trim(Closes(end, 0)),
        lambda pool, buffer, end: pool.trim(0, Closes(end, 0)),
        lambda pool, buffer, end: buffer.use_on(Closes(end, 0)),
        lambda pool, buffer, end: umf.suspend(pool, [Closes(end, 0)]),
        lambda pool, buffer, end: umf.suspend_async(pool, [Closes(end, 0)]),
        lambda pool, buffer, end: umf.copy(buffer, b"1", Closes(end, 1)),
        lambda pool, buffer, end: umf.copy(buffer, b"1", queue=Closes(end, 0)),
        lambda pool, buffer, end: umf.fill(buffer, 1, queue=Closes(end, 0)),
    ):
        pool = umf.Pool("disjoint over linux_vmm")
        buffer = pool.allocate(64 * KIB)
        with pytest.raises(ValueError, match="closed"):
            call(pool, buffer, pool.close)
        pool = umf.Pool("disjoint over linux_vmm")
        buffer = pool.allocate(64 * KIB)
        buffer.free(stream=Closes(buffer.free, 0))


def test_memory_is_not_freed_while_it_is_copied(eager):
    def copy(to, source, begun):
        begun.set()
        try:
            umf.copy(to, source)
        except ValueError:
            pass  # freed before

    refused = False
    for _ in range(1000):
        with umf.Pool("proxy") as pool:
            one, other = pool.allocate(32 * MIB), pool.allocate(32 * MIB)
            begun = threading.Event()
            thread = threading.Thread(target=copy, args=(other, one, begun))
            thread.start()
            begun.wait()
            while thread.is_alive() and not one.freed and not refused:
                time.sleep(0.0005)
                try:
                    one.free()
                except BufferError as error:
                    refused = "another thread" in str(error)
            thread.join()
        if refused:
            return
    raise AssertionError("no free met a copy")


def test_a_pool_and_its_own_buffers_are_collected():
    class Arena(umf.Pool):
        def __new__(cls):
            self = super().__new__(cls, "disjoint")
            self.scratch = [self.allocate(MIB)]
            return self

    class Owner(umf.Provider):
        pass

    arenas = [weakref.ref(Arena()) for _ in range(5)]
    owner = Owner("os")
    owner.pool = umf.Pool("disjoint", owner)
    owner.job = umf.suspend_async(owner.pool)
    owners = weakref.ref(owner)
    del owner
    gc.collect()
    assert [one() for one in arenas] == [None] * 5 and owners() is None
    for kind in (umf.Pool, umf.Provider, umf.Buffer, umf.Job):
        assert kind.__flags__ & (1 << 14), kind  # Py_TPFLAGS_HAVE_GC


def test_cycles_through_every_object_are_collected():
    """Their types traverse and do not clear: a cycle has a dictionary or a list in it, which does."""
    pool = umf.Pool("disjoint over linux_vmm")

    class Counted(umf.counting(pool).__class__):
        pass

    class Hook(umf.MemoryHook):
        pass

    buffer, counted, hook = pool.allocate(KIB), Counted(pool), Hook()
    loop = [buffer, memoryview(pool.allocate(KIB)), umf.from_dlpack(pool.allocate(KIB))]
    loop += [umf.resume_async(pool), counted, hook, pool]
    counted.loop = hook.loop = loop
    loop.append(loop)
    below = umf.Provider("os")
    inner = umf.Pool("disjoint", below)
    ring = [inner, inner.allocate(KIB), below]
    ring.append(ring)
    gone = [weakref.ref(one) for one in (counted, hook)]
    handles = {pool.handle, inner.handle}
    assert handles <= {one["handle"] for one in umf.snapshot()["pools"]}
    del pool, buffer, counted, hook, loop, below, inner, ring
    gc.collect()
    assert [one() for one in gone] == [None, None]
    assert not handles & {one["handle"] for one in umf.snapshot()["pools"]}


def test_collections_in_the_middle_of_calls():
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(scaled(200)):
            with umf.Pool("disjoint over linux_vmm") as pool:
                loop = [pool.allocate(KIB), memoryview(pool.allocate(KIB))]
                loop.append(loop)
                job = umf.suspend_async(pool)
                with pytest.raises(umf.OutOfResourcesError):
                    job.wait()
                loop[1].release()
                del loop
    finally:
        gc.set_threshold(*before)


def test_a_signal_during_a_wait_loses_nothing():
    pool, kept = busy_pool()
    job = umf.suspend_async(pool)
    interrupts(job.wait, 0.001)
    assert job.wait().kept == 64 * MIB == job.result(10).kept == job.wait().kept
    umf.resume(pool)
    assert all(one[5] == 3 for one in kept)
    pool.close()


def test_a_signal_during_a_close_leaves_the_pool_open():
    run_python(
        """
import os, signal, threading, time, umf
pool = umf.Pool("disjoint over linux_vmm")
pool.set_policy("host")
kept = [pool.allocate(8 << 20) for _ in range(64)]
for one in kept:
    umf.fill(one, 1)
job = umf.suspend_async(pool)
begins = threading.Event()
def send():
    begins.wait()
    time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
thread = threading.Thread(target=send)
thread.start()
try:
    begins.set()
    pool.close()
    time.sleep(600)  # it was done before the signal
except KeyboardInterrupt:
    pass
thread.join()
if not pool.closed:
    assert job.wait().kept == 512 << 20
    umf.resume(pool)
    assert pool.allocate(100)[:1].nbytes == 1
pool.close()
"""
    )


def test_a_handler_may_close_what_is_waited_for():
    pool, _ = busy_pool()
    job = umf.suspend_async(pool)
    before = signal.signal(signal.SIGALRM, lambda *_: pool.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        assert job.wait().kept == 64 * MIB
        while not pool.closed:
            time.sleep(0.001)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_job_has_a_timeout():
    pool, _ = busy_pool()
    with pool:
        job = umf.suspend_async(pool)
        if not job.done():
            with pytest.raises(TimeoutError):
                job.wait(0)
        assert job.wait(timeout=600) == job.result() and job.cancel() is False
        for wrong in (-1, float("nan"), "1"):
            with pytest.raises((ValueError, TypeError)):
                job.wait(wrong)


def test_threads_that_wait_for_one_job_all_get_its_report():
    pool, _ = busy_pool()
    with pool, ThreadPoolExecutor(4) as executor:
        job = umf.suspend_async(pool)
        reports = [one.result() for one in [executor.submit(job.wait) for _ in range(4)]]
        assert len(set(reports)) == 1 and reports[0].kept == 64 * MIB


def test_a_refusal_of_a_suspended_pool_is_told_as_one(eager):
    seen = set()
    with umf.Pool("disjoint over linux_vmm") as pool:
        pool.set_policy("discard")
        kept = pool.allocate(MIB)
        ends = threading.Event()

        def allocate():
            while not ends.is_set():
                try:
                    pool.allocate(3 * MIB).free()
                except Exception as error:
                    seen.add(type(error))

        threads = [threading.Thread(target=allocate) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(scaled(3000)):
            umf.suspend(pool)
            umf.resume(pool)
        ends.set()
        for thread in threads:
            thread.join()
        kept.free()
    assert seen <= {umf.OutOfResourcesError}


def test_a_child_of_fork_closes_a_pool_that_a_thread_of_its_parent_uses():
    run_python(
        """
import os, threading, umf
pool = umf.Pool("disjoint over linux_vmm")
pool.set_policy("host")
kept = [pool.allocate(8 << 20) for _ in range(8)]
for one in kept:
    umf.fill(one, 1)
job = umf.suspend_async(pool)
ends = threading.Event()
def work():
    with umf.Pool("disjoint") as mine:
        global used
        used = mine
        while not ends.is_set():
            mine.allocate(1 << 20).free()
            mine.trim()
thread = threading.Thread(target=work)
thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        job.wait()
        pool.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
ends.set()
thread.join()
assert job.wait().kept == 64 << 20
""",
    )


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise KeyError"])
def test_the_interpreter_ends_while_all_of_it_goes_on(end):
    code = """
import sys, threading, umf
pool = umf.Pool("disjoint over linux_vmm")
kept = [pool.allocate(1 << 20) for _ in range(8)]
def work():
    while True:
        try:
            pool.allocate(1 << 16).free()
        except umf.OutOfResourcesError:
            pass
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
job = umf.suspend_async(pool)
class Late:
    def __del__(self, close=pool.close):
        try:
            close()
        except RuntimeError:
            pass
sys.late = Late()
"""
    import subprocess

    done = subprocess.run([sys.executable, "-c", code + end], capture_output=True, timeout=300)
    assert done.returncode == (0 if not end else 3 if "exit" in end else 1), done.stderr
