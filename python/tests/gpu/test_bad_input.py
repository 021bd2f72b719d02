"""What does not fit: an exception that says what to do, nothing half done, a process that goes on."""

import threading

import pytest
from gpu_helpers import IS_REAL, full, holds, torch
from helpers import run_python

import umf
import umf.torch
from umf.torch_memory_saver import TorchMemorySaver
from umf.vllm.device_allocator.cumem import CuMemAllocator


@pytest.mark.parametrize("hip, word", [("6.2", "ROCm"), (None, "CPU")])
def test_torch_without_cuda(monkeypatch, hip, word):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: hip is not None)
    with pytest.raises(RuntimeError, match=word):
        TorchMemorySaver().pause()
    with pytest.raises(RuntimeError, match=word):
        umf.torch.install()
    with pytest.raises(RuntimeError, match=word):
        umf.torch.Pool()


def test_a_missing_driver():
    run_python(
        """
import umf, umf.torch
from umf.torch_memory_saver import torch_memory_saver as saver
from umf.vllm.device_allocator.cumem import CuMemAllocator
allocator = CuMemAllocator.get_instance()
assert allocator.get_current_usage() == 0
allocator.sleep()
allocator.wake_up()
for call, error in (
    (lambda: umf.Pool("proxy over cuda_vmm"), umf.Error),
    (umf.torch.Pool, RuntimeError),
    (lambda: saver.region().__enter__(), (RuntimeError, AssertionError)),
):
    try:
        call()
    except error as caught:
        assert str(caught), caught
    else:
        raise AssertionError("no error")
""",
        env={"LD_PRELOAD": "", "LD_LIBRARY_PATH": "", "CUDA_VISIBLE_DEVICES": ""},
    )


@pytest.mark.skipif(IS_REAL, reason="a GPU has a driver")
def test_nothing_is_needed_to_sleep_without_memory():
    allocator = CuMemAllocator.get_instance()
    for _ in range(2):
        allocator.sleep(("weights",))
        allocator.discard("kv_cache")
        allocator.wake_up(["weights"])
        allocator.wake_up()


def test_fork_after_the_import():
    run_python(
        """
import os, sys
import torch, umf, umf.torch, umf.vllm, umf.torch_memory_saver
from umf.vllm.device_allocator.cumem import CuMemAllocator
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        pool = umf.torch.Pool()
        with pool.use():
            tensor = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        pool.suspend()
        pool.resume()
        allocator = CuMemAllocator.get_instance()
        with allocator.use_memory_pool("weights"):
            other = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
        allocator.sleep("weights")
        allocator.wake_up()
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    )


def test_an_exception_in_a_pool_leaves_it():
    pool = umf.torch.Pool()
    with pytest.raises(KeyError):
        with pool.use():
            inside = full(32, 1)
            raise KeyError
    outside = full(32, 2)
    pool.suspend()
    assert holds(outside, 2)
    pool.resume()
    assert holds(inside, 1)


def test_other_threads_are_in_other_pools():
    pools = [umf.torch.Pool() for _ in range(4)]
    tensors = [None] * len(pools)

    def work(number):
        with pools[number].use():
            tensors[number] = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(pools))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pool, tensor in zip(pools, tensors):
        assert [one["address"] for one in pool.snapshot()] == [tensor.data_ptr()]
    report = pools[1].suspend()
    assert report.bytes >= 32 << 20
    assert [pool.residency().state for pool in pools] == ["resident", "suspended", "resident", "resident"]
    pools[1].resume()


def test_memory_is_freed_while_its_pool_sleeps():
    pool = umf.torch.Pool()
    with pool.use():
        first, second = full(32, 1), full(32, 2)
    pool.suspend()
    del first
    assert pool.suspend().bytes == 0  # a second one changes nothing
    pool.resume()
    assert pool.resume().bytes == 0
    assert holds(second, 2)


def test_a_pool_without_room_to_come_back():
    pool = umf.torch.Pool()
    with pool.use():
        tensor = full(64, 3)
    pool.suspend()
    available, _ = torch.cuda.mem_get_info()
    hog = torch.empty(available - (16 << 20), dtype=torch.uint8, device="cuda")
    with pytest.raises(umf.OutOfMemoryError) as info:
        pool.resume()
    assert info.value.missing > 0 and pool.residency().state == "suspended"
    del hog
    torch.cuda.empty_cache()
    pool.resume()
    assert holds(tensor, 3)
