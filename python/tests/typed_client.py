"""Uses the public names with their types: mypy --strict reads it (test_import.py), nothing runs it."""

import copy
from typing import Any, Dict, List, Optional, Tuple

import umf
import umf.compat
import umf.remote
import umf.torch_memory_saver
import umf.vault
import umf.vllm
from umf.torch_memory_saver import TorchMemorySaver, configure_subprocess, torch_memory_saver
from umf.vllm.device_allocator import (
    DEFERRABLE_TAGS,
    AllocationData,
    HandleType,
    MemAllocator,
    get_mem_allocator_instance,
)
from umf.vllm.device_allocator.cumem import CuMemAllocator
from umf.vllm.device_allocator.sleep_mode_backend import UmfSleepModeBackend


def errors() -> List[type]:
    return [
        umf.CallbackError,
        umf.DependencyError,
        umf.Error,
        umf.InvalidAlignmentError,
        umf.InvalidArgumentError,
        umf.InvalidPathError,
        umf.NotSupportedError,
        umf.OutOfMemoryError,
        umf.OutOfResourcesError,
        umf.ProviderError,
    ]


class Log(umf.MemoryHook):
    def malloc_preprocess(self, pool: umf.Pool, nbytes: int) -> None:
        print("malloc", pool.text, nbytes)

    def malloc_postprocess(self, pool: umf.Pool, nbytes: int, ptr: int) -> None:
        print("malloc", nbytes, ptr)

    def free_preprocess(self, pool: umf.Pool, nbytes: int, ptr: int) -> None:
        print("free", nbytes, ptr)

    def free_postprocess(self, pool: umf.Pool, nbytes: int, ptr: int) -> None:
        super().free_postprocess(pool, nbytes, ptr)


@umf.profile
def profiled(size: int) -> int:
    return size


@umf.profile("other")
def profiled_by_name() -> None:
    pass


async def main() -> None:
    info: Dict[str, Any] = umf.info()
    version: str = umf.__version__
    folders: List[str] = [umf.get_include(), umf.get_library(), umf.get_cmake_dir()]
    provider = umf.Provider("os", numa_mode="default")
    with umf.Pool("disjoint", provider, capacity=2) as pool:
        stats: umf.Statistics = pool.statistics()
        residency: umf.Residency = pool.residency()
        umf.set_default_pool(pool)
        default: umf.Pool = umf.get_default_pool()
        with umf.using(pool) as entered:
            entered_pool: umf.Pool = entered
            some_memory: umf.Buffer = umf.allocate(100, alignment=64, stream=None)
            copied: umf.Buffer = umf.from_bytes(b"abc")
        umf.set_default_pool(None)
        with umf.counting(pool) as counters, Log() as hook:
            seen: Log = hook
            counts: umf.Counters = counters
            sums: int = counts.current_bytes + counts.peak_bytes + counts.total_bytes
            sums += counts.current_count + counts.peak_count + counts.total_count
        with umf.profile("block"):
            pass
        profiler = umf.Profiler(pool)
        report_of: umf.ProfileReport = profiler.report()
        entry: umf.ProfileEntry = report_of[0]
        figures: Tuple[str, int, int, int, int] = (
            entry.name, entry.calls, entry.allocations, entry.bytes, entry.peak
        )
        profiled_size: int = profiled(5)
        umf.profile.reset()
        with umf.on_out_of_memory(lambda short, nbytes: short is pool and nbytes > 1) as added:
            callback: umf.OutOfMemoryCallback = added
        callback.remove()
        pool.set_limit(size=1 << 30)
        pool.set_limit(fraction=0.5)
        limit: Optional[int] = pool.get_limit()
        pool.set_limit(None)
        n: Optional[int] = provider.statistics().allocated
        used: Optional[int] = stats.used
        state: str = residency.state
        kept: int = residency.pinned + residency.resident + residency.host + residency.peer + residency.file
        owner: Optional[umf.Provider] = pool.provider
        if pool.provider is not None:
            print(pool.provider.statistics(), pool.provider.closed, pool.provider_text())
            pool.provider.reset_peak()
        with pool.allocate(100, alignment=64, stream=None) as buffer:
            home: Optional[umf.Pool] = buffer.pool
            if buffer.pool is not None:
                print(buffer.pool.residency(), buffer.pool.statistics().reserved)
            first: int = buffer[0]
            some: memoryview = buffer[1:5]
            buffer[0] = first
            buffer[1:5] = bytes(some)
            total: int = sum(byte for byte in buffer)
            everything: bytes = buffer.tobytes()
            twin: umf.Buffer = copy.copy(buffer)
            deep: umf.Buffer = copy.deepcopy(buffer)
            buffer.resize(200)
            made: umf.Buffer = umf.from_bytes(everything, pool, alignment=64, stream=None)
            size: int = buffer.nbytes
            address: int = buffer.ptr
            view = memoryview(buffer)
            data: bytes = bytes(buffer)
            length: int = len(buffer)
            handle: umf.IPCHandle = buffer.ipc_handle()
            other: umf.Buffer = handle.open()
            raw: bytes = handle.data
            device: Tuple[int, int] = buffer.__dlpack_device__()
            device = buffer.dlpack_device()
            capsule: object = buffer.__dlpack__(
                stream=None, max_version=(1, 0), dl_device=None, copy=None
            )
            about: Dict[str, Any] = buffer.__cuda_array_interface__
            array = buffer.numpy("float32", (5, 5))
            origin: str = buffer.origin
            freed: bool = buffer.freed
            read_only: bool = buffer.read_only
            stream: Optional[int] = buffer.stream
            buffer.use_on(0)
            buffer.prefetch()
            umf.copy(buffer, b"x" * 100)
            umf.copy(buffer, other, 10, queue=0)
            umf.fill(buffer, 0)
            buffer.copy_from(b"x" * 100, 50, stream=None)
            buffer.copy_to(bytearray(100), nbytes=None, stream=0)
            umf.fill(buffer, b"ab", 10)
            foreign: umf.Buffer = umf.from_dlpack(buffer)
            buffer.free(stream=None)
        pool.set_policy("pinned")
        pool.trim()
        pool.trim(0, None)
        pool.trim(keep=1 << 20, stream=None)
        left: int = pool.wait_pending(1.0)
        pool.forbid_suspend()
        pool.allow_suspend()
        report: umf.Report = umf.suspend(pool, queues=[0])
        bytes_: int = report.bytes + report.kept + report.shared + report.exported + report.missing
        report = umf.resume([pool])
        job: umf.Job = umf.suspend_async(pool)
        report = await job
        report = umf.resume_async(pool).wait()
        done: bool = job.done()
        report = job.wait(timeout=1.0)
        report = job.result(1)
        cancelled: bool = job.cancel()
        text: str = pool.text
        closed: bool = pool.closed
        number: int = pool.handle
        umf.trim()
        umf.queue_ends(0)
        with umf.capturing(0):
            pass
        with umf.record(stacks=True, leaks=True) as recording:
            recording.mark("x")
        r: umf.Recording = recording
        how: umf.RecordingState = r.state()
        running: bool = how.running
        events_so_far: int = how.events + how.dropped + how.live_count + how.live_bytes + how.used
        r.save("copy.umfrec")
        r.stop()
        with umf.record("run.umfrec", size=1 << 20, min_size=1, max_size=2, rate=0, pools=pool):
            pass
        with umf.record(pools=[pool]):
            pass
        for event in r.events():
            where: Tuple[float, str, str, int, int] = event.time, event.kind, event.where, event.address, event.size
            who: Tuple[int, int, Tuple[str, ...]] = event.thread, event.queue, event.stack
        for leak in r.leaks():
            lost: Tuple[str, int, int, float, Tuple[str, ...]] = (
                leak.pool, leak.bytes, leak.allocations, leak.age, leak.stack
            )
        events: List[umf.Event] = list(r.events())
        leaks: List[umf.Leak] = list(r.leaks())
        html: str = r.html()
        now: Dict[str, Any] = umf.snapshot()
        pool.close()
    try:
        pass
    except umf.Error as error:
        code: int = error.code
        name: str = error.name
        why: str = error.text
        missing: int = error.missing
        reason: str = error.reason


async def other_machines(pool: umf.Pool) -> None:
    found, text = umf.remote.probe()
    with umf.remote.Remote(devices=None, key_file=None, deadline=1.5, limit_in_flight=1 << 20, network_only=True) as owner:
        published: umf.remote.Published = owner.publish(pool.allocate(100), get=True, put=True)
        handle: bytes = published.handle
        size: int = published.buffer.nbytes
        with owner.open(handle) as memory:
            content: bytes = bytes(memory.get(0, memory.nbytes))
            memory.put(b"abc", offset=1)
            transfer: umf.remote.Transfer = memory.get_async(bytearray(3), offset=1)
            await transfer
            done: bool = memory.put_async(b"abc").wait(1.0)
        published.close()
        is_open: bool = owner.is_open
        print(found, text, size, content, done, is_open)


def memory_that_stays() -> None:
    with umf.vault.Vault("model", folder="/tmp/x", start=False, timeout=1, limit=1 << 30, keep=1) as model:
        with model.draft(timeout=1.0, from_generation=1, replace=False, identity=b"v1", device="cuda") as draft:
            draft.put("a", b"x", note=b"note", private=True, device="cpu")
            entry: umf.vault.Entry = draft.allocate("b", 100, note=b"", private=False, device=0)
            array = draft.empty("c", (3, 4), "float32", private=False)
            draft.zero("d", 100, note=b"", device="cuda_vmm:device=1")
            draft.keep("layers.")
            named: int = draft.put_module(None, "prefix.", device=0)
            count: int = draft.load_safetensors("weights.safetensors", "prefix.", device=0)
            number: int = draft.commit(group="ranks", group_count=2, timeout=1.0, digest=True)
            made: Optional[int] = draft.generation
            draft.abort()
        view: umf.vault.View
        with model.attach(1, timeout=1.0, identity=b"v1", devices="cuda") as view:
            names: List[str] = list(view)
            content: bytes = bytes(view["a"])
            length: int = len(view) + view.generation + view.verify("layers.")
            for entry in view.entries("layers."):
                about: Tuple[str, bytes, int, int, bool, int, int] = (
                    entry.key, entry.note, entry.flags, entry.nbytes, entry.private, entry.ptr, entry.device
                )
                interface: Dict[str, Any] = entry.__cuda_array_interface__
                shape = entry.tensor.shape if entry.tensor else ()
                values = entry.numpy("float32", shape)
                tensor = entry.torch()
            served = view.module(None, "prefix.")
            view.suspend(queues=[1], events=[2], in_use=True)
            is_away: bool = view.suspended
            view.resume()
            moved: int = view.move(2, queues=[1], events=(), in_use=True)
            with model.draft() as second:
                second.copy(view, "layers.")
        state: umf.vault.State = model.state()
        event: Optional[umf.vault.Event] = model.wait(state.event, 1.0)
        kind: str = event.kind if event else ""
        devices: Tuple[int, int, str, int, int] = (
            state.devices, state.device_bytes, state.device, state.copy_bytes, state.evicted
        )
        model.snapshot(1, timeout=1.0, digest=False)
        model.snapshot(folder="stored")
        model.evict(1)
        model.claim("kv", 4096, device=0).close()
        where: str = model.claims()[0].device
        with umf.remote.Remote() as context:
            fetched: int = model.fetch(
                context, "umfr:a", "umfr:b", keep=True, digest=True, limit=1, in_flight=0, timeout=1.0, progress=print
            )
        with model.claim("kv", 1 << 20, shared=True, fence="epoch", timeout=1.0) as claim:
            held: umf.vault.Claim = claim
            memory: umf.vault.Entry = held.memory
            values = memory.numpy("int64", (10, 10))
            about_claim: Tuple[str, int, bool, bytes, bool, bool] = (
                claim.key, claim.epoch, claim.is_new, claim.note, claim.shared, claim.fenced
            )
            claim.commit(b"10 are valid")
            epoch: int = claim.renew(fence="wait", timeout=1.0)
            claim.close()
        for one in model.claims():
            state_of_claim: umf.vault.ClaimState = one
            numbers: Tuple[str, int, int, int, int, int, bool] = (
                one.key, one.nbytes, one.note_nbytes, one.epoch, one.holders, one.process, one.shared
            )
        model.forget("kv")
        keys: int = state.claims
        model.drop(1)
        model.drop_draft()
        number = umf.vault.load_safetensors(model, "folder", identity=None, timeout=0, device="cuda")
    vaults: Dict[str, umf.vault.State] = umf.vault.list_vaults()
    umf.vault.stop("/tmp/x", drop=True)


def saver() -> None:
    with torch_memory_saver.region("a", enable_cpu_backup=True, cpu_backup_backend="mmap"):
        pass
    with torch_memory_saver.disable():
        pass
    with configure_subprocess():
        pass
    with torch_memory_saver.cuda_graph(None, tag="g"):
        pass
    torch_memory_saver.pause()
    torch_memory_saver.resume("a")
    torch_memory_saver.set_disk_backup_dir("/tmp")
    torch_memory_saver.retain_cpu_backup = True
    torch_memory_saver.memory_margin_bytes = 1
    torch_memory_saver.hook_mode = "torch"
    enabled: bool = torch_memory_saver.enabled
    backup: Any = torch_memory_saver.get_cpu_backup(None, zero_copy=True)
    another = TorchMemorySaver()


def vllm() -> None:
    allocator: CuMemAllocator = CuMemAllocator.get_instance()
    base: MemAllocator = get_mem_allocator_instance()
    with allocator.use_memory_pool("weights"):
        pass
    with allocator.cudagraph_pool() as pool_id:
        print(pool_id)
    allocator.sleep(("weights",))
    allocator.discard("kv_cache")
    allocator.wake_up(["weights"])
    usage: int = allocator.get_current_usage()
    record: AllocationData = allocator.pointer_to_data[0]
    handle: HandleType = record.handle
    allocator.release_pools()
    allocator.close()
    backend = UmfSleepModeBackend()
    backend.suspend(1)
    backend.resume()
    umf.vllm.register()
    umf.compat.install("vllm")
    print(DEFERRABLE_TAGS)
