"""Shared by the tests with PyTorch; on a GPU where UMF_TEST_GPU=real."""

import ctypes
import gc

import pytest
from gpu_helpers import compute, torch  # noqa: F401

from umf.vllm import cumem_allocator
from umf.vllm.device_allocator.cumem import CuMemAllocator


def pytest_collection_finish():
    """Each test collects garbage, and searches nothing of PyTorch for it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def allocator():
    made = CuMemAllocator.get_instance()
    assert CuMemAllocator.get_instance() is made is CuMemAllocator.instance
    yield made
    made.wake_up()
    made.release_pools()
    gc.collect()
    torch.cuda.empty_cache()
    made.release_pools()
    assert not made.pointer_to_data and not made._trimmed


@pytest.fixture
def raw():
    library = ctypes.CDLL(cumem_allocator.__file__)
    library.my_malloc.restype = ctypes.c_void_p
    library.my_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    library.my_free.restype = None
    library.my_free.argtypes = [
        ctypes.c_void_p,
        ctypes.c_ssize_t,
        ctypes.c_int,
        ctypes.c_void_p,
    ]
    torch.zeros(1, device="cuda")
    yield library
    made = CuMemAllocator.get_instance()
    cumem_allocator.init_module(made.python_malloc_callback, made.python_free_callback)
