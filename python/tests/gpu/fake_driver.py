"""The software driver: what tests turn, and the calls that they count (test/fakes/cuda/fake_cuda.h)."""

import contextlib
import ctypes
import re

from helpers import ROOT

_NAMES = [
    name
    for file in ("src/providers/cuda/driver.def", "test/fakes/cuda/extra.def")
    for name in re.findall(r"^UMF_CUDA\((\w+)", (ROOT / file).read_text(), re.MULTILINE)
]


class _Control(ctypes.Structure):
    """fake_cuda_t, up to the calls."""

    _fields_ = [
        ("devices", ctypes.c_int),
        ("device_memory", ctypes.c_size_t * 4),
        ("granularity", ctypes.c_size_t),
        ("misalign", ctypes.c_size_t),
        ("fail_function", ctypes.c_int),
        ("fail_at", ctypes.c_long),
        ("fail_on", ctypes.c_int),
        ("fail_with", ctypes.c_int),
        ("gone", ctypes.c_int),
        ("keeps_memory", ctypes.c_int),
        ("fabric", ctypes.c_int),
        ("host_node", ctypes.c_int),
        ("bus_id", ctypes.c_char * 32),
        ("has_rdma", ctypes.c_int),
        ("refuses_rdma", ctypes.c_int),
        ("lacks_dmabuf", ctypes.c_int),
        ("lacks_managed", ctypes.c_int),
        ("lacks_peers", ctypes.c_int),
        ("late", ctypes.c_ulong),
        ("calls", ctypes.c_long * len(_NAMES)),
    ]


def control():
    function = ctypes.CDLL("libcuda.so.1").fake_cuda
    function.restype = ctypes.POINTER(_Control)
    return function().contents


@contextlib.contextmanager
def counted():
    """Yields a dict that has, at the end, the calls of the driver that were made inside."""
    before, made = list(control().calls), {}
    yield made
    after = list(control().calls)
    made.update({name: b - a for name, a, b in zip(_NAMES, before, after) if b != a})


ANY = -1


@contextlib.contextmanager
def failing(name, at, code=2, and_on=False):
    """The `at`-th call of a function, or of ANY, inside fails, and if `and_on` all after it; the default
    is for the lack of memory."""
    now = control()
    now.fail_function = name if name == ANY else _NAMES.index(name)
    now.fail_on, now.fail_with, now.fail_at = and_on, code, at
    try:
        yield
    finally:
        now.fail_at = 0
