"""umf.vllm in several threads, and inside of what sleeps."""

import ctypes
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from gpu_helpers import Other, empty, full, torch
from helpers import run_python

from umf import _torch_pools
from umf.vllm import cumem_allocator


def test_two_threads_in_pools_do_not_wait_for_each_other():
    """One holds the lock of torch's allocator where the other holds the GIL: no hook takes the GIL."""
    code = """
import threading, torch
from umf.vllm.device_allocator.cumem import CuMemAllocator
allocator = CuMemAllocator.get_instance()
torch.empty(1, device="cuda")

def work(tag):
    for _ in range(200):
        with allocator.use_memory_pool(tag=tag):
            torch.empty(3 << 20, dtype=torch.uint8, device="cuda")

threads = [threading.Thread(target=work, args=(f"t{n}",), daemon=True) for n in range(2)]
for one in threads:
    one.start()
for one in threads:
    one.join()
"""
    run_python(code, timeout=150)


def test_snapshots_of_pools_keep_the_interpreter_alive(allocator):
    with allocator.use_memory_pool("weights"):
        tensor = full(4, 1)
    (pool, _) = allocator.allocator_and_pools["weights"][0]
    numbers = (True, *pool.id)
    before = [sys.getrefcount(one) for one in numbers]
    for _ in range(200):
        assert _torch_pools.segments(pool)[0]["address"] == tensor.data_ptr()
    after = [sys.getrefcount(one) for one in numbers]
    assert all(b > a - 100 for a, b in zip(before, after))


def test_each_thread_has_its_tag(allocator):
    other = Other(allocator.use_memory_pool("kv_cache"), empty)
    with allocator.use_memory_pool("weights"):
        assert allocator.current_tag == "weights"
        mine = empty()
        other.leave()
        assert allocator.current_tag == "weights"
    assert allocator.current_tag == "default"
    tags = {one.handle[2]: one.tag for one in allocator.pointer_to_data.values()}
    assert tags == {mine.data_ptr(): "weights", other.made.data_ptr(): "kv_cache"}
    del other.made


def test_a_sleep_inside_of_a_pool(allocator):
    with allocator.use_memory_pool("weights"):
        before = empty()
        allocator.sleep("weights")
        after = empty()
    records = allocator.pointer_to_data
    assert records[before.data_ptr()].is_asleep and not records[after.data_ptr()].is_asleep


def test_no_sleep_while_another_thread_is_inside(allocator):
    other = Other(allocator.use_memory_pool("weights"), empty)
    for call in (allocator.sleep, lambda: allocator.discard("weights")):
        with pytest.raises(RuntimeError, match="'weights' cannot sleep: another thread is inside"):
            call()
    assert not any(one.is_asleep for one in allocator.pointer_to_data.values())
    other.leave()
    allocator.sleep()
    del other.made


def test_a_capture_does_not_allocate_from_what_sleeps(allocator):
    with allocator.cudagraph_pool() as first:
        pass
    (pool, _) = allocator.allocator_and_pools["cudagraph"][0]
    with _torch_pools.use(pool), allocator._tagged("cudagraph"):
        small = empty()
    with allocator.cudagraph_pool() as again:
        assert again == first
    allocator.sleep()
    with allocator.cudagraph_pool() as other:
        assert other != first
    del small


def test_callbacks_that_were_replaced_are_called(allocator):
    seen_calls = []
    own = allocator.python_malloc_callback
    allocator.python_malloc_callback = lambda handle: (seen_calls.append(handle), own(handle))
    try:
        with allocator.use_memory_pool("weights"):
            tensor = full(4, 1)
    finally:
        allocator.python_malloc_callback = own
    assert [handle[2] for handle in seen_calls] == [tensor.data_ptr()]
    assert allocator.pointer_to_data[tensor.data_ptr()].tag == "weights"
    with allocator.use_memory_pool("kv_cache"):
        noted = full(4, 2)
    assert len(seen_calls) == 1 and allocator.pointer_to_data[noted.data_ptr()].tag == "kv_cache"


_PENDING = """
#include <Python.h>
#include <sys/types.h>
void *call(void *(*make)(ssize_t, int, void *), void (*drop)(void *, ssize_t, int, void *), void *ptr) {
    PyErr_SetString(PyExc_ValueError, "the program's own");
    if (drop) {
        drop(ptr, 1 << 20, 0, NULL);
    }
    return make ? make(1 << 20, 0, NULL) : NULL;
}
"""


def test_an_exception_that_is_pending_stays(raw, tmp_path, monkeypatch):
    compiler = shutil.which("cc")
    headers = Path(sysconfig.get_path("include"))
    if compiler is None or not (headers / "Python.h").exists():
        pytest.skip("there is no C compiler, or no headers of Python")
    (tmp_path / "pending.c").write_text(_PENDING)
    library = tmp_path / "pending.so"
    command = [compiler, "-shared", "-fPIC", f"-I{headers}", "-o", library, tmp_path / "pending.c"]
    subprocess.run(command, check=True)
    call = ctypes.PyDLL(str(library)).call
    call.argtypes, call.restype = [ctypes.c_void_p] * 3, ctypes.c_void_p
    unraisable, held = [], {}
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    cumem_allocator.init_module(lambda handle: held.update({handle[2]: handle}), held.pop)
    make, drop = (ctypes.cast(one, ctypes.c_void_p) for one in (raw.my_malloc, raw.my_free))
    with pytest.raises(ValueError, match="the program's own"):
        call(make, None, None)
    (address,) = held
    with pytest.raises(ValueError, match="the program's own"):
        call(None, drop, address)
    assert not held and not unraisable
