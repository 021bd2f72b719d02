"""Memory of pools in NCCL, on two GPUs: registered, suspended between two registrations, and not while one lasts."""

import ctypes
import multiprocessing

import pytest
from gpu_helpers import MIB, needs_gpu, torch

import umf
import umf.torch

pytestmark = [
    needs_gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU"),
]

SIZE = 64 * MIB


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Rank:
    """One of two processes, with the GPU of its number."""

    def __init__(self, rank, unique):
        torch.cuda.set_device(rank)
        torch.zeros(1, device="cuda")  # the context
        self.rank = rank
        self.nccl = ctypes.CDLL("libnccl.so.2")  # torch has loaded it
        self.comm = ctypes.c_void_p()
        self.pool = umf.Pool(f"coalescing over cuda_vmm:device={rank},share=fd")
        self.memory = self.pool.allocate(SIZE)
        self.call("ncclCommInitRank", ctypes.byref(self.comm), 2, unique, rank)

    def call(self, name, *arguments):
        result = getattr(self.nccl, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def tensor(self):
        return umf.torch.tensor(self.memory, device=self.rank).view(torch.float32)

    def registered(self):
        record = ctypes.c_void_p()
        self.call(
            "ncclCommRegister",
            self.comm,
            ctypes.c_void_p(self.memory.ptr),
            ctypes.c_size_t(SIZE),
            ctypes.byref(record),
        )
        return record

    def reduce(self):
        """The sum of both ranks, in place."""
        address = ctypes.c_void_p(self.memory.ptr)
        count = ctypes.c_size_t(SIZE // 4)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.call("ncclAllReduce", address, address, count, 7, 0, self.comm, stream)
        torch.cuda.synchronize()

    def is_all(self, value):
        return bool((self.tensor() == value).all())

    def run(self):
        self.tensor().fill_(self.rank + 1)
        self.pool.forbid_suspend()
        record = self.registered()
        self.reduce()
        assert self.is_all(3)
        with pytest.raises(umf.OutOfResourcesError):
            umf.suspend(self.pool)
        self.call("ncclCommDeregister", self.comm, record)
        self.pool.allow_suspend()
        assert umf.suspend(self.pool).bytes >= SIZE
        umf.resume(self.pool)
        assert self.is_all(3)
        record = self.registered()
        self.reduce()
        assert self.is_all(6)
        self.call("ncclCommDeregister", self.comm, record)
        self.call("ncclCommDestroy", self.comm)


def _run(rank, unique, connection):
    try:
        Rank(rank, UniqueId.from_buffer_copy(unique)).run()
        connection.send("done")
    except BaseException as error:
        connection.send(repr(error))
        raise


def test_an_all_reduce_before_and_after_a_suspend():
    torch.zeros(1, device="cuda")
    unique = UniqueId()
    assert ctypes.CDLL("libnccl.so.2").ncclGetUniqueId(ctypes.byref(unique)) == 0
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe() for _ in range(2)]
    ranks = [
        context.Process(target=_run, args=(rank, bytes(unique), ends[rank][1]))
        for rank in range(2)
    ]
    for one in ranks:
        one.start()
    for (ours, _), one in zip(ends, ranks):
        assert ours.poll(100), "no answer of a rank"
        assert ours.recv() == "done"
        one.join(60)
        assert one.exitcode == 0
