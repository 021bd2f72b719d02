"""Buffers registered by address with another library, as NCCL does, over a sleep."""

import ctypes

import pytest
from gpu_helpers import full, holds, torch

import umf
import umf.torch

RANGE_START, RANGE_SIZE, DEVICE, MEMORY_TYPE = 11, 12, 9, 2
ON_A_DEVICE, READ_AND_WRITE = 1, 3


class _Place(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Registrar:
    """Facts that a library reads when a buffer is registered with it, and relies on from then on."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.known = {}

    def _attribute(self, kind, address):
        value = ctypes.c_uint64(0)
        result = self.driver.cuPointerGetAttribute(
            ctypes.byref(value), kind, ctypes.c_uint64(address)
        )
        assert result == 0
        return value.value

    def _access(self, device, address):
        flags = ctypes.c_ulonglong(0)
        place = _Place(ON_A_DEVICE, device)
        result = self.driver.cuMemGetAccess(
            ctypes.byref(flags), ctypes.byref(place), ctypes.c_uint64(address)
        )
        assert result == 0
        return flags.value

    def look_at(self, address):
        kinds = (RANGE_START, RANGE_SIZE, DEVICE, MEMORY_TYPE)
        devices = range(torch.cuda.device_count())
        return (
            tuple(self._attribute(kind, address) for kind in kinds),
            tuple(self._access(device, address) for device in devices),
        )

    def register(self, tensor):
        self.known[tensor.data_ptr()] = (tensor.nbytes, self.look_at(tensor.data_ptr()))

    def all_is_as_it_was(self):
        return all(self.look_at(address) == seen for address, (_, seen) in self.known.items())

    def reduce(self):
        """Adds up all buffers into the first one, by their addresses alone."""
        hosts = []
        for address, (size, _) in self.known.items():
            host = torch.empty(size, dtype=torch.uint8)
            assert self.driver.cuMemcpyDtoH_v2(*_copied(host.data_ptr(), address, size)) == 0
            hosts.append(host)
        total = sum(hosts[1:], hosts[0])
        first = next(iter(self.known))
        assert self.driver.cuMemcpyHtoD_v2(*_copied(first, total.data_ptr(), total.nbytes)) == 0


def _copied(to, source, size):
    return ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size)


def of_a_pool():
    pool = umf.torch.Pool(provider="cuda_vmm:device=0" + (",peers=1" if peers() else ""))
    return pool.use, pool.suspend, pool.resume


def of_the_saver():
    from umf.torch_memory_saver import torch_memory_saver as saver

    if saver._impl is None:
        saver.hook_mode = "torch"
    return (
        lambda: saver.region("registered", enable_cpu_backup=True),
        lambda: saver.pause("registered"),
        lambda: saver.resume("registered"),
    )


def of_vllm():
    from umf.vllm.device_allocator.cumem import CuMemAllocator

    allocator = CuMemAllocator.get_instance()
    return (
        lambda: allocator.use_memory_pool("weights"),
        lambda: allocator.sleep("weights"),
        allocator.wake_up,
    )


def peers():
    return torch.cuda.device_count() > 1 and torch.cuda.can_device_access_peer(0, 1)


@pytest.mark.parametrize("kind", [of_a_pool, of_the_saver, of_vllm])
def test_registered_buffers_are_the_same_after_a_sleep(kind):
    use, down, up = kind()
    library = Registrar()
    with use():
        tensors = [full(4, 1), full(4, 2), full(8, 0)]
    for tensor in tensors[:2]:
        library.register(tensor)
    assert all(seen[0] == READ_AND_WRITE for _, (_, seen) in library.known.values())
    for value in (3, 5):
        down()
        up()
        assert library.all_is_as_it_was()
        library.reduce()
        torch.cuda.synchronize()
        assert holds(tensors[0], value) and holds(tensors[1], 2)


def test_a_registration_can_forbid_the_sleep():
    pool = umf.torch.Pool()
    with pool.use():
        tensor = full(4, 1)
    library = Registrar()
    library.register(tensor)
    pool.pool.forbid_suspend()
    with pytest.raises(umf.OutOfResourcesError):
        pool.suspend()
    assert library.all_is_as_it_was() and holds(tensor, 1)
    pool.pool.allow_suspend()
    pool.suspend()
    pool.resume()
    assert holds(tensor, 1)


class _Group:
    """As much of ProcessGroupNCCL as there is to call."""

    def __init__(self):
        self.calls = []

    def register_mem_pool(self, pool):
        self.calls.append(("register", pool))

    def deregister_mem_pool(self, pool):
        self.calls.append(("deregister", pool))


def test_a_pool_that_a_group_has_registered_stays():
    pool, group = umf.torch.Pool(), _Group()
    with pool.use():
        tensor = full(4, 3)
    with pytest.raises(KeyError):
        with pool.registered(group):
            with pytest.raises(umf.OutOfResourcesError, match="must not be suspended.*forbid_suspend"):
                pool.suspend()
            raise KeyError
    assert group.calls == [("register", pool), ("deregister", pool)]
    pool.suspend()
    with pytest.raises(umf.OutOfResourcesError, match="is not resident: resume it before"):
        with pool.registered(group):
            pass
    assert len(group.calls) == 2
    pool.resume()
    assert holds(tensor, 3)
