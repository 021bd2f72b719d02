"""Calls with arguments made by chance, and threads that do everything at once, close included."""

import gc
import os
import random
import sys
import threading

import pytest
from helpers import scaled

import umf

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings, strategies  # noqa: E402

# NotImplementedError is of memoryview, for some keys.
EXPECTED = (
    AttributeError,
    BufferError,
    LookupError,
    NotImplementedError,
    OSError,
    OverflowError,
    TypeError,
    ValueError,
    umf.Error,
)

# No integers that might be addresses of memory or streams, which nothing checks.
VALUES = strategies.one_of(
    strategies.none(),
    strategies.booleans(),
    strategies.integers(-3, 3),
    strategies.sampled_from([1 << 63, -(1 << 63), 1 << 100, -(1 << 100)]),
    strategies.floats(),
    strategies.text(max_size=5).map(lambda text: text.replace("/", "_")),
    strategies.binary(max_size=5),
    strategies.just(()),
    strategies.builds(object),
    strategies.sampled_from([umf.Buffer, umf.Pool, gc.collect]),
)
ARGUMENTS = strategies.lists(VALUES, max_size=3)


def calls(pool, buffer):
    """Every public call that does not wait for ever or take an address as it is."""
    return [
        umf.Pool,
        umf.Provider,
        umf.Buffer,
        umf.from_bytes,
        umf.from_dlpack,
        umf.fill,
        umf.suspend,
        umf.resume,
        umf.suspend_async,
        umf.record,
        pool.allocate,
        pool.trim,
        pool.set_policy,
        pool.statistics,
        pool.residency,
        pool.provider_text,
        buffer.resize,
        buffer.tobytes,
        buffer.numpy,
        buffer.__getitem__,
        buffer.__dlpack__,
        buffer.ipc_handle,
        umf.IPCHandle(b"x", 1, "os").open,
        lambda *sizes: umf.copy(buffer, b"12", *sizes[:1]),
        lambda *sources: [umf.copy(buffer, one) for one in sources if not isinstance(one, int)],
        lambda *arguments: umf.fill(buffer, *arguments[:2]),
        lambda *arguments: umf.suspend_async(pool).wait(*arguments[:1]),
    ]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Names of files are made by chance, too."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("files"))
    yield
    os.chdir(before)


@settings(max_examples=scaled(2000), deadline=None)
@given(number=strategies.integers(0, 26), arguments=ARGUMENTS)
def test_any_arguments(elsewhere, number, arguments):
    with umf.Pool("disjoint") as pool:
        buffer = pool.allocate(64)
        umf.fill(buffer, 7)
        is_number = any(isinstance(one, int) for one in arguments)
        call = calls(pool, buffer)[number]
        if call in (umf.fill, umf.suspend, umf.resume, umf.suspend_async) and is_number:
            return  # a number is an address, or a list of streams
        try:
            call(*arguments)
        except EXPECTED:
            pass


class Rig:
    """Pools in slots, which threads use, close and replace at any time."""

    def __init__(self):
        self.slots = [self.pool(number) for number in range(3)]
        self.wrong = []

    def pool(self, number):
        pool = umf.Pool("disjoint" if number % 2 else "coalescing", provider="linux_vmm")
        pool.set_policy("host")
        return pool

    def step(self, chance, kept):
        number = chance.randrange(3)
        pool = self.slots[number]
        what = chance.randrange(12)
        if what < 4:
            buffer, value = pool.allocate(chance.choice((64, 4096, 1 << 16, 1 << 20))), chance.randrange(256)
            umf.fill(buffer, value)
            kept.append((buffer, value))
        elif what == 4 and kept:
            buffer, value = kept.pop()
            data = buffer.tobytes()
            if data != bytes([value]) * len(data):
                self.wrong.append((value, data[:8]))
            buffer.free()
        elif what == 5:
            umf.suspend(pool)
        elif what == 6:
            job = umf.suspend_async(pool)
            if chance.randrange(2):
                job.wait(0.001)
        elif what == 7:
            pool.trim()
            pool.residency()
            pool.statistics()
        elif what == 8:
            self.slots[number] = self.pool(number)
            pool.close()
        elif what == 9:
            with umf.record(pools=pool):
                umf.snapshot()
        elif what == 10 and kept:
            view = kept[-1][0][:8]
            view.release()
        if what >= 5:
            umf.resume(pool)
        del kept[:-10]

    def work(self, seed):
        chance, kept = random.Random(seed), []
        for _ in range(scaled(3000)):
            try:
                self.step(chance, kept)
            except (ValueError, BufferError, TimeoutError, umf.Error):
                pass
            except BaseException as error:
                self.wrong.append(error)
                raise


def test_threads_that_do_everything_at_once():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    rig = Rig()
    try:
        threads = [threading.Thread(target=rig.work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert rig.wrong == []
