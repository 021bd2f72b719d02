"""Pinned memory of backups after a resume: kept for the next pause, then given back."""

import os
import time

import fake_driver
import pytest
from gpu_helpers import MIB, full, holds, needs_fake, torch
from helpers import run_python

from umf.torch_memory_saver import torch_memory_saver

pytestmark = needs_fake
UNPIN, PIN = "cuMemHostUnregister", "cuMemHostRegister"


@pytest.fixture(params=["saver", "vllm"])
def sleeper(request):
    """(object with the lease, region of a tag, pause, resume) of both interfaces."""
    if request.param == "vllm":
        allocator = request.getfixturevalue("allocator")
        yield (
            allocator,
            allocator.use_memory_pool,
            lambda *tags: allocator.sleep(tags or None),
            lambda *tags: allocator.wake_up(list(tags) or None),
        )
    else:
        allocator = torch_memory_saver
        if os.environ.get("UMF_TEST_HOOK_MODE", "torch") == "preload":
            pytest.skip("the preloaded hook is tested as a process of its own")
        if allocator._impl is None:
            allocator.hook_mode = "torch"
        yield (
            allocator,
            lambda tag: allocator.region(tag, enable_cpu_backup=True),
            lambda *tags: [allocator.pause(tag) for tag in tags],
            lambda *tags: [allocator.resume(tag) for tag in tags],
        )
        allocator.resume()
        allocator._impl._mem_pools.clear()
    allocator.backup_lease = 0
    allocator.backup_lease = 5


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_pause_within_the_lease_pins_nothing(sleeper):
    allocator, region, pause, resume = sleeper
    assert allocator.backup_lease == 5
    allocator.backup_lease = 600
    with region("leased"):
        tensor = full(300, 7)
    pause("leased")
    with fake_driver.counted() as calls:
        resume("leased")
        pause("leased")
        resume("leased")
    assert not {PIN, UNPIN, "cuMemHostAlloc", "cuMemFreeHost"} & set(calls)
    assert holds(tensor, 7)
    with fake_driver.counted() as calls:
        allocator.backup_lease = 0
    assert calls[UNPIN] == 3  # units of 128 MiB


def test_memory_is_given_back_after_the_lease(sleeper):
    allocator, region, pause, resume = sleeper
    allocator.backup_lease = 0.05
    with region("short"):
        tensor = full(300, 7)
    pause("short")
    index = fake_driver._NAMES.index(UNPIN)
    before = fake_driver.control().calls[index]
    resume("short")
    wait_for(lambda: fake_driver.control().calls[index] == before + 3)
    for _ in range(2):
        pause("short")
        resume("short")
    assert holds(tensor, 7)


def test_without_a_lease_memory_goes_with_the_resume(sleeper):
    allocator, region, pause, resume = sleeper
    allocator.backup_lease = 0
    with region("none"):
        tensor = full(4, 7)
    pause("none")
    with fake_driver.counted() as calls:
        resume("none")
    assert calls[UNPIN] == 1 and holds(tensor, 7)


def test_a_smaller_pause_takes_a_part_and_gives_the_rest_back(sleeper):
    allocator, region, pause, resume = sleeper
    allocator.backup_lease = 600
    with region("large"):
        large = full(300, 1)
    pause("large")
    resume("large")
    with region("small"):
        small = full(100, 2)
    with fake_driver.counted() as calls:
        pause("small")
    assert calls[UNPIN] == 2 and PIN not in calls
    resume("small")
    assert holds(small, 2)
    with fake_driver.counted() as calls:
        pause("large")  # the kept memory is too small now
    assert calls[UNPIN] == 1 and calls[PIN] >= 3
    resume("large")
    del large


def test_a_lack_of_memory_ends_the_lease(sleeper):
    allocator, region, pause, resume = sleeper
    allocator.backup_lease = 600
    with region("kept"):
        tensor = full(4, 7)
    pause("kept")
    resume("kept")
    with fake_driver.counted() as calls:
        with pytest.raises(torch.cuda.OutOfMemoryError), region("much"):
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    assert calls[UNPIN] == 1 and holds(tensor, 7)


def test_retained_memory_has_no_lease(allocator):
    allocator.backup_lease = 0.01
    allocator.retain_cpu_backup = True
    try:
        with allocator.use_memory_pool("retained"):
            tensor = full(4, 7)
        allocator.sleep("retained")
        with fake_driver.counted() as calls:
            allocator.wake_up()
            time.sleep(0.1)
            allocator.sleep("retained")
            allocator.wake_up()
        assert not {PIN, UNPIN} & set(calls) and holds(tensor, 7)
    finally:
        allocator.retain_cpu_backup = False
        allocator.backup_lease = 5


@pytest.mark.parametrize("wrong", [-1, 3601, float("nan"), float("inf")])
def test_a_lease_out_of_range(sleeper, wrong):
    with pytest.raises(ValueError, match="0 to 3600"):
        sleeper[0].backup_lease = wrong
    assert sleeper[0].backup_lease == 5


CHILD = """
import os, torch
from umf.torch_memory_saver import torch_memory_saver as saver
saver.hook_mode = "torch"
with saver.region("a", enable_cpu_backup=True):
    tensor = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
saver.pause("a")
saver.resume("a")
print("lease", saver.backup_lease)
child = os.fork()
if child == 0:
    os._exit(int(saver.backup_lease) % 256)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
saver.pause("a")
saver.resume("a")
print("done")
"""


@pytest.mark.parametrize(
    ("text", "lease", "says"), [("600", 600, ""), ("0", 0, ""), ("soon", 5, "UMF_BACKUP_LEASE")]
)
def test_the_environment_a_fork_and_the_end_of_the_process(text, lease, says):
    lines = run_python("import os; os.dup2(1, 2)" + CHILD, env={"UMF_BACKUP_LEASE": text})
    assert f"lease {lease:.1f}\n" in lines and f"child {lease % 256}\n" in lines
    assert "done\n" in lines and says in lines and ("umf:" in lines) == bool(says)
