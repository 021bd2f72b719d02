"""Memory of a GPU by plain calls of the driver, block by block, as other libraries pause it."""

import ctypes
import mmap
import os
import threading
import time

_DEVICE_MEMORY = 1  # CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE
_READ_AND_WRITE = 3


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Property(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_uint8 * 8),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


_U64, _POINTER = ctypes.c_uint64, ctypes.c_void_p
_ARGUMENTS = {
    "cuInit": [ctypes.c_uint],
    "cuDevicePrimaryCtxRetain": [_POINTER, ctypes.c_int],
    "cuCtxSetCurrent": [_POINTER],
    "cuMemAddressReserve": [_POINTER, _U64, _U64, _U64, _U64],
    "cuMemAddressFree": [_U64, _U64],
    "cuMemCreate": [_POINTER, _U64, _POINTER, _U64],
    "cuMemMap": [_U64, _U64, _U64, _U64, _U64],
    "cuMemSetAccess": [_U64, _U64, _POINTER, _U64],
    "cuMemUnmap": [_U64, _U64],
    "cuMemRelease": [_U64],
    "cuMemHostAlloc": [_POINTER, _U64, ctypes.c_uint],
    "cuMemFreeHost": [_U64],
    "cuMemHostRegister_v2": [_U64, _U64, ctypes.c_uint],
    "cuMemHostUnregister": [_U64],
    "cuMemcpyDtoH_v2": [_U64, _U64, _U64],
    "cuMemcpyHtoD_v2": [_U64, _U64, _U64],
    "cuDriverGetVersion": [_POINTER],
}


class _Driver:
    """The driver, with the context that torch uses on device 0 current in this thread."""

    def __init__(self):
        library = ctypes.CDLL("libcuda.so.1")
        for name, arguments in _ARGUMENTS.items():
            function = getattr(library, name)
            function.argtypes = arguments
            setattr(self, name, self._checked(name, function))
        context = _POINTER()
        self.cuInit(0)
        self.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.cuCtxSetCurrent(context)
        version = ctypes.c_int()
        start = time.perf_counter()
        for _ in range(1000):
            self.cuDriverGetVersion(ctypes.byref(version))
        self.call_s = (time.perf_counter() - start) / 1000

    @staticmethod
    def _checked(name, function):
        def call(*args):
            result = function(*args)
            if result != 0:
                raise RuntimeError(f"{name} failed with {result}")

        return call


def _available():
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


def warm_host(nbytes):
    """Touches and pins that much of the host once, and gives it back; returns the bytes.

    A virtual machine gets its memory from its host at the first touch, and its devices reach a page
    after the first pinning. Both take seconds, once for each page.
    """
    driver, part = _Driver(), 1 << 30
    count = min(nbytes, _available() // 10 * 9) // part
    if count == 0:
        return 0
    memory = mmap.mmap(-1, count * part, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    whole = (ctypes.c_char * (count * part)).from_buffer(memory)
    parts = [ctypes.addressof(whole) + at * part for at in range(count)]
    workers = os.cpu_count() or 1

    def touch(first):
        for address in parts[first::workers]:
            ctypes.memset(address, 0, part)

    threads = [threading.Thread(target=touch, args=(first,)) for first in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for address in parts:
        driver.cuMemHostRegister_v2(address, part, 0)
    for address in parts:
        driver.cuMemHostUnregister(address)
    del whole
    memory.close()
    return count * part


class Blocks:
    """`count` blocks of `size` bytes, each with an address, memory and a backup of its own.

    The times that its functions return, in ms, are without the cost of a call from Python.
    """

    def __init__(self, count, size):
        self.driver, self.count, self.size = _Driver(), count, size
        place = _Location(_DEVICE_MEMORY, 0)
        self._property = _Property(type=_DEVICE_MEMORY, location=place)
        self._access = _Access(place, _READ_AND_WRITE)
        self.addresses = [self._reserved() for _ in range(count)]
        self.handles = [0] * count
        self.backups = [0] * count
        self.give()

    def _reserved(self):
        address = _U64()
        self.driver.cuMemAddressReserve(ctypes.byref(address), self.size, 0, 0, 0)
        return address.value

    def _timed(self, calls, body):
        start = time.perf_counter()
        for at in range(self.count):
            body(at)
        return 1e3 * max(time.perf_counter() - start - calls * self.count * self.driver.call_s, 0)

    def _give_one(self, at):
        handle = _U64()
        self.driver.cuMemCreate(ctypes.byref(handle), self.size, ctypes.byref(self._property), 0)
        self.driver.cuMemMap(self.addresses[at], self.size, 0, handle.value, 0)
        self.driver.cuMemSetAccess(self.addresses[at], self.size, ctypes.byref(self._access), 1)
        self.handles[at] = handle.value

    def _take_one(self, at):
        self.driver.cuMemUnmap(self.addresses[at], self.size)
        self.driver.cuMemRelease(self.handles[at])

    def _save_one(self, at):
        if not self.backups[at]:
            memory = _U64()
            self.driver.cuMemHostAlloc(ctypes.byref(memory), self.size, 0)
            self.backups[at] = memory.value
        self.driver.cuMemcpyDtoH_v2(self.backups[at], self.addresses[at], self.size)

    def _load_one(self, at):
        self.driver.cuMemcpyHtoD_v2(self.addresses[at], self.backups[at], self.size)

    def _drop_one(self, at):
        self.driver.cuMemFreeHost(self.backups[at])
        self.backups[at] = 0

    def give(self):
        return self._timed(3, self._give_one)

    def take(self):
        return self._timed(2, self._take_one)

    def save(self):
        return self._timed(2, self._save_one)

    def load(self):
        return self._timed(1, self._load_one)

    def drop(self):
        return self._timed(1, self._drop_one)

    def close(self):
        self.take()
        if any(self.backups):
            self.drop()
        self._timed(1, lambda at: self.driver.cuMemAddressFree(self.addresses[at], self.size))
