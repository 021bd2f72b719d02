"""Suspend, resume, jobs."""

import asyncio

import pytest

import umf

MIB = 1 << 20


@pytest.fixture
def sleeper():
    with umf.Pool("disjoint over linux_vmm") as pool:
        yield pool


def test_content_survives(sleeper):
    buffer = sleeper.allocate(MIB)
    memoryview(buffer)[:4] = b"kept"
    report = umf.suspend(sleeper)
    assert report.kept == MIB and report.bytes >= MIB
    assert sleeper.residency().state == "suspended" and sleeper.residency().resident == 0
    again = umf.suspend([sleeper])
    assert again.bytes == 0
    assert umf.resume(sleeper).kept == MIB
    with memoryview(buffer) as view:
        assert bytes(view[:4]) == b"kept"


def test_what_is_suspended_says_so(sleeper):
    buffer = sleeper.allocate(MIB)
    umf.suspend(sleeper)
    with pytest.raises(BufferError, match="suspended"):
        memoryview(buffer)
    with pytest.raises(BufferError, match="suspended"):
        buffer.__dlpack__()
    with pytest.raises(umf.OutOfResourcesError, match="resume it"):
        sleeper.allocate(1)
    buffer.free()
    umf.resume(sleeper)


def test_views_forbid_it(sleeper):
    buffer = sleeper.allocate(MIB)
    with memoryview(buffer):
        with pytest.raises(umf.OutOfResourcesError):
            umf.suspend(sleeper)
        assert sleeper.residency().state == "resident"
    sleeper.forbid_suspend()
    with pytest.raises(umf.OutOfResourcesError):
        umf.suspend(sleeper)
    sleeper.allow_suspend()
    umf.suspend(sleeper)


def test_policies(sleeper, tmp_path):
    buffer = sleeper.allocate(MIB)
    for keep, folder in (("host", None), ("file", str(tmp_path)), ("zero", None)):
        memoryview(buffer)[0] = 7
        sleeper.set_policy(keep, folder)
        umf.suspend(sleeper)
        umf.resume(sleeper)
        assert memoryview(buffer)[0] == (0 if keep == "zero" else 7)
    with pytest.raises(ValueError, match="keep must be one of"):
        sleeper.set_policy("gone")
    with pytest.raises(umf.InvalidArgumentError):
        sleeper.set_policy("file")


def test_pools_that_cannot(pool):
    with pytest.raises(umf.NotSupportedError):
        umf.suspend(pool)
    with pytest.raises(umf.Error):
        umf.suspend([])


def test_jobs_are_awaited(sleeper):
    sleeper.allocate(MIB)

    async def both():
        job = umf.suspend_async(sleeper)
        first = await job
        assert job.done() and job.wait() == first
        return first, await umf.resume_async([sleeper])

    suspended, resumed = asyncio.run(both())
    assert suspended.bytes == resumed.bytes


def test_a_job_raises_each_time(pool):
    job = umf.suspend_async(pool)
    for _ in range(2):
        with pytest.raises(umf.NotSupportedError):
            job.wait()


def test_a_job_that_nobody_waits_for(sleeper):
    sleeper.allocate(MIB)
    umf.suspend_async(sleeper)
    umf.resume(sleeper)
    assert sleeper.residency().state == "resident"
    umf.trim()


def test_refusals_say_what_to_do():
    suspended = "resume it (before|first)"
    with umf.Pool("disjoint over linux_vmm") as pool, umf.Pool("disjoint over os") as plain:
        buffer, other = pool.allocate(4096), plain.allocate(4096)
        with memoryview(buffer):
            with pytest.raises(umf.OutOfResourcesError, match="views of a pool's memory.* forbid_suspend"):
                umf.suspend(pool)
        with pytest.raises(umf.NotSupportedError, match="no virtual memory"):
            umf.suspend(plain)
        with pytest.raises(umf.InvalidArgumentError, match="there is no pool"):
            umf.suspend([])
        with pytest.raises(umf.InvalidArgumentError, match="was not forbidden"):
            pool.allow_suspend()
        with pytest.raises(umf.InvalidArgumentError, match="no folder is given"):
            pool.set_policy("file")
        with pytest.raises(umf.InvalidArgumentError, match="private memory.*os:visibility=shared"):
            other.ipc_handle()
        umf.suspend(pool)
        for call in (
            pool.forbid_suspend,
            buffer.ipc_handle,
            lambda: pool.set_policy("host"),
            lambda: pool.allocate(8),
            lambda: umf.copy(other, buffer),
            lambda: umf.fill(buffer, 1),
        ):
            with pytest.raises(umf.OutOfResourcesError, match=suspended):
                call()
        umf.resume(pool)


def test_numbers_are_no_pools(pool):
    """They are handles inside of the package."""
    for call in (umf.suspend, umf.resume, umf.suspend_async, umf.resume_async):
        for pools in ([1], b"a", [pool, pool.handle]):
            with pytest.raises(TypeError, match="pools must be umf.Pool objects, not "):
                call(pools)
