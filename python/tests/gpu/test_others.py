"""umf.cupy, umf.numba, umf.rmm: against what these packages call, where they are not installed."""

import ctypes
import importlib
import sys
import types

import pytest
from gpu_helpers import MIB, torch, used

import umf


def stub(monkeypatch, name, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def fresh(monkeypatch, name):
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


@pytest.fixture
def cupy(monkeypatch):
    made = types.SimpleNamespace()

    class CFunctionAllocator:
        def __init__(self, param, malloc, free, owner):
            kind = ctypes.CFUNCTYPE(
                ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
            )
            end = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
            self.param, self.owner = param, owner
            self.allocate, self.free = kind(malloc), end(free)

        def malloc(self, size):
            ptr = self.allocate(self.param, size, 0)
            free, param = self.free, self.param
            return types.SimpleNamespace(ptr=ptr or 0, free=lambda: free(param, ptr, 0))

    class CUDARuntimeError(RuntimeError):
        def __init__(self, status):
            self.status = status

    memory = types.SimpleNamespace(CFunctionAllocator=CFunctionAllocator)
    cuda = types.SimpleNamespace(
        memory=memory,
        runtime=types.SimpleNamespace(getDevice=lambda: 0, CUDARuntimeError=CUDARuntimeError),
        MemoryPool=lambda malloc: types.SimpleNamespace(malloc=malloc),
        set_allocator=lambda malloc: setattr(made, "malloc", malloc),
    )
    stub(monkeypatch, "cupy", cuda=cuda)
    made.module = fresh(monkeypatch, "umf.cupy")
    return made


def test_cupy(cupy):
    torch.zeros(1, device="cuda")
    start = used()
    allocator = cupy.module.install()
    memory = cupy.malloc(4 * MIB)
    assert memory.ptr and allocator.pool.statistics().allocations == 1 and used() > start
    umf.fill(memory.ptr, 1, 16)
    memory.free()
    assert allocator.pool.statistics().allocations == 0
    with pytest.raises(MemoryError) as info:
        cupy.malloc(1 << 50)
    assert info.value.status == 2  # CuPy's pool gives back what it caches, and tries again


def test_numba(monkeypatch):
    manager_frees_later = object()

    class HostOnlyCUDAMemoryManager:
        def __init__(self, context=None):
            self.context = context
            self.deallocations = [manager_frees_later]

        def initialize(self):
            pass

    class MemoryPointer:
        def __init__(self, context, pointer, size, finalizer=None):
            self.pointer, self.size, self.free = pointer, size, finalizer

    cuda = stub(
        monkeypatch,
        "numba.cuda",
        HostOnlyCUDAMemoryManager=HostOnlyCUDAMemoryManager,
        MemoryPointer=MemoryPointer,
        MemoryInfo=lambda free, total: (free, total),
    )
    stub(monkeypatch, "numba", cuda=cuda)
    manager = fresh(monkeypatch, "umf.numba")._numba_memory_manager(context=None)
    manager.initialize()
    assert manager.interface_version == 1
    memory = manager.memalloc(MIB)
    assert memory.pointer.value % 256 == 0 and memory.size == MIB
    available, total = manager.get_memory_info()
    assert 0 < available < total
    with pytest.raises(umf.NotSupportedError):
        manager.get_ipc_handle(memory)
    memory.free()
    assert manager._addresses.pool.statistics().allocations == 0
    with pytest.raises(MemoryError):
        manager.memalloc(1 << 50)
    with pytest.raises(ValueError, match="-1"):
        manager.memalloc(-1)
    assert not manager.deallocations


def test_rmm(monkeypatch):
    resource = types.SimpleNamespace(CallbackMemoryResource=lambda *functions: functions)
    stub(monkeypatch, "rmm", mr=resource)
    torch.zeros(1, device="cuda")
    pool = umf.Pool("coalescing over cuda_vmm")
    allocate, deallocate = fresh(monkeypatch, "umf.rmm").resource(pool)
    stream = types.SimpleNamespace(__cuda_stream__=lambda: (0, 0))
    ptr = allocate(MIB, stream)
    assert ptr % 256 == 0 and pool.statistics().allocations == 1
    deallocate(ptr, MIB, stream)
    assert allocate(MIB, stream) == ptr  # at once, on the same stream
    deallocate(ptr, MIB, stream)
    pool.trim(0, stream)
    assert pool.statistics().allocations == 0
    with pytest.raises(MemoryError):
        allocate(1 << 50, stream)
