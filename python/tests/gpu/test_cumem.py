"""umf.vllm: the module, the allocator, the backend."""

import gc
import sys
import types

import fake_driver
import pytest
from gpu_helpers import MIB, full, holds, needs_fake, torch, used

import umf
import umf.vllm
from umf import _torch_pools
from umf.vllm import cumem_allocator, device_allocator
from umf.vllm.device_allocator import cumem, sleep_mode_backend
from umf.vllm.device_allocator.cumem import CuMemAllocator


def states(allocator):
    return {
        data.tag: (data.is_asleep, data.cpu_backup_tensor is not None)
        for data in allocator.pointer_to_data.values()
    }


def test_levels_of_sleep(allocator):
    with allocator.use_memory_pool("weights"):
        weights = full(32, 5)
        with allocator.use_memory_pool("kv_cache"):
            cache = full(32, 6)
            assert allocator.current_tag == "kv_cache"
        assert allocator.current_tag == "weights"
    assert allocator.current_tag == "default"
    assert allocator.get_current_usage() == 64 * MIB
    addresses = weights.data_ptr(), cache.data_ptr()
    allocator.sleep(("weights",))  # the first one makes streams, for which the driver takes memory
    allocator.wake_up()
    awake = used()
    for _ in range(3):
        allocator.sleep(("weights",))
        assert awake - used() >= 64 * MIB and allocator.get_current_usage() == 64 * MIB
        assert states(allocator) == {"weights": (True, True), "kv_cache": (True, False)}
        allocator.wake_up(["weights"])
        assert states(allocator) == {"weights": (False, False), "kv_cache": (True, False)}
        assert holds(weights, 5)
        allocator.wake_up(["kv_cache"])
        cache.fill_(7)
        assert holds(cache, 7) and addresses == (weights.data_ptr(), cache.data_ptr())


def test_content_of_several_units(allocator):
    values = torch.arange(300 * MIB // 8)
    with allocator.use_memory_pool("weights"):
        tensors = [torch.empty_like(values, device="cuda") for _ in range(2)]
    for number, tensor in enumerate(tensors):
        tensor.copy_(values + number)
    allocator.sleep("weights")
    allocator.wake_up()
    for number, tensor in enumerate(tensors):
        assert torch.equal(tensor.cpu(), values + number)


def test_host_memory_is_retained(allocator):
    assert allocator.retain_cpu_backup is False
    allocator.retain_cpu_backup = True
    try:
        with allocator.use_memory_pool("weights"):
            tensor = full(300, 1)

        def asleep():
            allocator.sleep("weights")
            backup = next(iter(allocator.pointer_to_data.values())).cpu_backup_tensor
            where, value = backup.data_ptr(), int(backup[-1])
            del backup
            allocator.wake_up()
            return where, value

        first = asleep()
        tensor.fill_(2)
        assert asleep() == (first[0], 2) and holds(tensor, 2)
        with allocator.use_memory_pool("weights"):
            more = full(4, 3)
        asleep()
        assert holds(tensor, 2) and holds(more, 3)
    finally:
        allocator.retain_cpu_backup = False
    asleep()
    assert holds(tensor, 2) and holds(more, 3)


@needs_fake
@pytest.mark.parametrize("function", ["cuMemUnmap", "cuMemRelease"])
@pytest.mark.parametrize("at", [1, 2])
def test_a_sleep_that_fails_midway_brings_content_back(allocator, function, at):
    with allocator.use_memory_pool("weights"):
        tensors = [full(24, 1), full(24, 2)]
    with fake_driver.failing(function, at):
        with pytest.raises(RuntimeError, match="memory cannot be given back"):
            allocator.sleep("weights")
    assert states(allocator) == {"weights": (False, False)}
    assert holds(tensors[0], 1) and holds(tensors[1], 2)


@needs_fake
def test_calls_of_the_driver(allocator):
    count = 10
    with allocator.use_memory_pool("weights"):
        tensors = [full(12, value) for value in range(count)]
    allocator.backup_lease = 0
    with fake_driver.counted() as sleep:
        allocator.sleep("weights")
    with fake_driver.counted() as wake:
        allocator.wake_up()
    allocator.backup_lease = 5
    assert sleep["cuMemHostRegister"] <= 2 and wake["cuMemHostUnregister"] == 1  # a unit, a page
    assert sleep["cuMemUnmap"] == sleep["cuMemRelease"] == count
    assert wake["cuMemCreate"] == wake["cuMemMap"] == wake["cuMemSetAccess"] == count
    for made in (sleep, wake):
        assert made["cuMemcpyAsync"] == count
        assert made["cuStreamCreate"] == 1 and made.get("cuCtxSynchronize", 0) <= 3
    assert all(holds(one, value) for value, one in enumerate(tensors))


def test_defaults_and_words_that_are_wrong(allocator):
    with allocator.use_memory_pool():
        tensor = full(4, 1)
    allocator.sleep()
    assert states(allocator) == {"default": (True, True)}
    backup = next(iter(allocator.pointer_to_data.values())).cpu_backup_tensor
    handle = next(iter(allocator.pointer_to_data.values())).handle
    assert backup.dtype == torch.uint8 and backup.nbytes == handle[1]
    del backup
    allocator.wake_up(["other"])  # not deferrable
    assert holds(tensor, 1)
    for wrong in (["weights"], 3):
        with pytest.raises(AssertionError):
            allocator.sleep(wrong)
    with pytest.raises(AssertionError):
        with allocator.use_memory_pool(3):
            pass


def test_a_policy_stays(allocator, caplog):
    with allocator.use_memory_pool("weights"):
        tensor = full(4, 1)
    allocator.sleep("weights")
    allocator.sleep(())
    assert "sleep already" in caplog.text
    allocator.wake_up()
    assert holds(tensor, 1)


def test_discard(allocator):
    with allocator.use_memory_pool("weights"):
        weights = full(4, 1)
    with allocator.use_memory_pool("kv_cache"):
        cache = full(4, 2)
    allocator.discard("kv_cache")
    assert states(allocator) == {"weights": (False, False), "kv_cache": (True, False)}
    assert holds(weights, 1)
    allocator.wake_up()
    cache.fill_(3)
    assert holds(cache, 3)


def test_a_wake_up_without_memory_changes_nothing(allocator):
    with allocator.use_memory_pool("weights"):
        weights = full(32, 5)
    with allocator.use_memory_pool("kv_cache"):
        cache = full(64, 6)
    allocator.sleep("weights")
    available, _ = torch.cuda.mem_get_info()
    hog = torch.empty(available - 48 * MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(RuntimeError) as info:
        allocator.wake_up()
    assert isinstance(info.value, umf.OutOfMemoryError) and info.value.missing > 0
    assert states(allocator) == {"weights": (True, True), "kv_cache": (True, False)}
    del hog
    torch.cuda.empty_cache()
    allocator.wake_up()
    assert holds(weights, 5) and cache.data_ptr()


def test_dead_segments_are_trimmed(allocator):
    with allocator.use_memory_pool("weights"):
        live = full(32, 1)
        dead = full(64, 2)
        del dead
    assert allocator.get_current_usage() == 32 * MIB
    for _ in range(5):
        with allocator.use_memory_pool("weights"):
            full(32, 3)
    assert allocator.get_current_usage() == 32 * MIB and holds(live, 1)
    assert len(allocator.allocator_and_pools["weights"]) <= 3


def test_a_free_while_asleep_fails_nothing(allocator):
    with allocator.use_memory_pool("weights"):
        tensor = full(32, 1)
    allocator.sleep("weights")
    del tensor
    allocator.release_pools()
    gc.collect()
    torch.cuda.empty_cache()
    with allocator.use_memory_pool("weights"):
        tensor = full(32, 2)
    assert holds(tensor, 2)


def test_records_are_the_truth(allocator):
    with allocator.use_memory_pool("weights"):
        tensor = full(4, 1)
    for data in allocator.pointer_to_data.values():
        data.cpu_backup_tensor = torch.full((data.handle[1],), 9, dtype=torch.uint8)
        cumem.unmap_and_release(data.handle)
        cumem.unmap_and_release(data.handle)
        data.is_asleep = True
    allocator.wake_up()
    assert holds(tensor, 9)
    assert all(data.cpu_backup_tensor is None for data in allocator.pointer_to_data.values())
    data = next(iter(allocator.pointer_to_data.values()))
    cumem.create_and_map(data.handle)
    assert holds(tensor, 9)


def test_replaced_functions_are_called_for_each(allocator, monkeypatch):
    with allocator.use_memory_pool("weights"):
        tensors = [full(24, 1), full(24, 2)]
    calls = []
    own = cumem.unmap_and_release, cumem.create_and_map, cumem.libcudart.cudaMemcpy
    monkeypatch.setattr(cumem, "unmap_and_release", lambda h: (calls.append("unmap"), own[0](h)))
    monkeypatch.setattr(cumem, "create_and_map", lambda h: (calls.append("map"), own[1](h)))
    monkeypatch.setattr(
        cumem.libcudart, "cudaMemcpy", lambda *args: (calls.append("copy"), own[2](*args))
    )
    allocator.sleep("weights")
    allocator.wake_up()
    assert calls == ["copy", "copy", "unmap", "unmap", "map", "map", "copy", "copy"]
    assert holds(tensors[0], 1) and holds(tensors[1], 2)


def test_a_failed_sleep_leaves_all_awake(allocator, monkeypatch):
    with allocator.use_memory_pool("weights"):
        tensor = full(4, 1)
    monkeypatch.setattr(cumem.libcudart, "cudaMemcpy", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        allocator.sleep("weights")
    assert states(allocator) == {"weights": (False, False)} and holds(tensor, 1)


def test_a_failed_sleep_gives_back_what_a_replaced_function_took(allocator, monkeypatch):
    with allocator.use_memory_pool("weights"):
        tensors = [full(24, 1), full(24, 2)]
    own, calls = cumem.unmap_and_release, []

    def second_fails(handle):
        calls.append(handle)
        if len(calls) == 2:
            raise KeyError
        own(handle)

    with monkeypatch.context() as patch:
        patch.setattr(cumem, "unmap_and_release", second_fails)
        with pytest.raises(KeyError):
            allocator.sleep("weights")
    assert states(allocator) == {"weights": (False, False)}
    assert holds(tensors[0], 1) and holds(tensors[1], 2)


@pytest.mark.parametrize("what", ["create_and_map", "cudaMemcpy"])
def test_a_failed_wake_up_takes_what_a_replaced_function_gave(allocator, monkeypatch, what):
    with allocator.use_memory_pool("weights"):
        tensors = [full(24, 1), full(24, 2)]
    allocator.sleep("weights")
    asleep, calls = used(), []
    where = cumem if what == "create_and_map" else cumem.libcudart
    own = getattr(where, what)

    def second_fails(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyError
        own(*args)

    with monkeypatch.context() as patch:
        patch.setattr(where, what, second_fails)
        with pytest.raises(KeyError):
            allocator.wake_up()
    assert states(allocator) == {"weights": (True, True)} and used() == asleep
    allocator.wake_up()
    assert holds(tensors[0], 1) and holds(tensors[1], 2)


def test_a_copy_that_is_replaced_in_the_class_is_called(allocator, monkeypatch):
    with allocator.use_memory_pool("weights"):
        tensor = full(24, 1)
    kind, calls = type(cumem.libcudart), []
    own = kind.cudaMemcpy
    monkeypatch.setattr(kind, "cudaMemcpy", lambda *args: (calls.append("copy"), own(*args)))
    allocator.sleep("weights")
    allocator.wake_up()
    assert calls == ["copy", "copy"] and holds(tensor, 1)


def test_expandable_segments_that_the_last_settings_do_not_name(allocator):
    def live():
        return torch.cuda.memory._snapshot()["allocator_settings"]

    before = _torch_pools.settings()
    _torch_pools.set_settings("expandable_segments:True")
    _torch_pools.set_settings("max_split_size_mb:128")
    try:
        outside = live()
        assert outside["expandable_segments"]
        with allocator.use_memory_pool("weights"):
            assert not live()["expandable_segments"]
        assert live() == outside
    finally:
        _torch_pools.set_settings("expandable_segments:False")
        _torch_pools.set_settings(before or "expandable_segments:False")


def test_the_pool_of_graphs(allocator):
    with allocator.cudagraph_pool() as first:
        assert allocator.current_tag == "cudagraph" and len(first) == 2
    with allocator.cudagraph_pool() as second:
        assert first == second
    assert allocator.current_tag == "default"


def test_settings_are_restored(allocator):
    before = _torch_pools.settings()
    text = "expandable_segments:True,max_split_size_mb:512"
    _torch_pools.set_settings(text)
    try:
        with pytest.raises(KeyError):
            with allocator.use_memory_pool("weights"):
                inside = _torch_pools.settings().split(",")
                assert sorted(inside) == ["expandable_segments:False", "max_split_size_mb:512"]
                raise KeyError
        assert _torch_pools.settings() == text
    finally:
        _torch_pools.set_settings(before or "expandable_segments:False")


# --- the module ---


def test_arguments_of_the_module():
    with pytest.raises(TypeError):
        cumem_allocator.init_module(print)
    with pytest.raises(TypeError, match="Both arguments must be callables"):
        cumem_allocator.init_module(print, 3)
    for function in (
        cumem_allocator.python_create_and_map,
        cumem_allocator.python_unmap_and_release,
    ):
        with pytest.raises(TypeError, match="Expected a tuple of size 4"):
            function(1, 2)
        with pytest.raises(TypeError):
            function("a", 2, 3, 4)
        with pytest.raises(RuntimeError, match="^CUDA Error: "):
            function(0, 4096, 4096, 4096)


def test_content_that_does_not_fit_is_refused(allocator):
    with allocator.use_memory_pool("weights"):
        tensor = full(20, 1)
    allocator.sleep("weights")
    (record,) = allocator.pointer_to_data.values()
    address, size = record.cpu_backup_tensor.data_ptr(), record.handle[1]
    module, pointer = cumem_allocator, record.handle[2]
    module._wake(((pointer,),))
    for host, count, text in ((address, size + 1, f"has {size} bytes of content, not {size + 1}"), (0, 1, "has 0 bytes")):
        with pytest.raises(umf.InvalidArgumentError, match=text):
            module._load(((pointer, host, count),))
    with pytest.raises(umf.InvalidArgumentError, match="no allocation of this module"):
        module._load(((pointer + 4096, address, size),))
    module._sleep(((pointer,),))
    allocator.wake_up()
    assert holds(tensor, 1)


def test_callbacks(raw):
    seen = {}
    cumem_allocator.init_module(lambda handle: seen.update({handle[2]: handle}), seen.pop)
    address = raw.my_malloc(3 * MIB + 1, 0, None)
    assert seen[address][:3] == (0, 4 * MIB, address)
    cumem_allocator.python_unmap_and_release(*seen[address])
    cumem_allocator.python_create_and_map(*seen[address])
    raw.my_free(address, 3 * MIB + 1, 0, None)
    assert not seen


def test_callbacks_that_fail(raw, monkeypatch):
    seen_calls = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: seen_calls.append(one.exc_type))
    start = used()
    cumem_allocator.init_module(lambda handle: 1 / 0, lambda address: None)
    assert raw.my_malloc(MIB, 0, None) is None
    assert seen_calls == [ZeroDivisionError] and used() == start
    cumem_allocator.init_module(lambda handle: None, lambda address: 1 / 0)
    for wrong in (lambda address: 1 / 0, lambda address: None, lambda address: (1, 2, 3, 4)):
        seen_calls.clear()
        address = raw.my_malloc(MIB, 0, None)
        cumem_allocator.init_module(lambda handle: None, wrong)
        raw.my_free(address, MIB, 0, None)
        assert len(seen_calls) == 1 and used() == start
        cumem_allocator.init_module(lambda handle: None, lambda address: 1 / 0)


# --- the plugin ---


@pytest.fixture
def stubs(monkeypatch):
    registered = {}

    class Factory:
        @staticmethod
        def register_backend(name, module_path, class_name):
            if name in registered:
                raise ValueError(name)
            registered[name] = (module_path, class_name)

    class SleepModeBackend:
        def discard(self, tags):
            raise RuntimeError("no")

    names = "vllm", "vllm.device_allocator", "vllm.device_allocator.sleep_mode_backend"
    for name in names:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name in ("vllm.cumem_allocator", "vllm.device_allocator.cumem"):
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    sys.modules[names[2]].SleepModeBackendFactory = Factory
    sys.modules[names[2]].SleepModeBackend = SleepModeBackend
    return registered


def test_the_plugin_may_run_twice(stubs):
    for _ in range(2):
        umf.vllm.register()
        assert sys.modules["vllm.cumem_allocator"] is cumem_allocator
        assert sys.modules["vllm.device_allocator.cumem"] is cumem
    assert stubs == {
        "umf": ("umf.vllm.device_allocator.sleep_mode_backend", "UmfSleepModeBackend")
    }


def test_a_build_without_cuda_replaces_nothing(stubs, monkeypatch):
    monkeypatch.setitem(sys.modules, "umf.vllm.cumem_allocator", None)
    umf.vllm.register()
    assert not stubs
    assert "vllm.cumem_allocator" not in sys.modules
    assert "vllm.device_allocator.cumem" not in sys.modules


def test_the_backend(allocator):
    backend = sleep_mode_backend.UmfSleepModeBackend()
    assert backend.state() == "RUNNING" and backend.is_supported()
    assert backend.preserves_communicators() and not backend.supports_durable_storage()
    tensors = {}
    for tag in ("weights", "runtime", "kv_cache"):
        with allocator.use_memory_pool(tag):
            tensors[tag] = full(4, 1)
    backend.suspend()
    assert backend.state() == "SUSPENDED"
    assert [kept for _, kept in states(allocator).values()] == [True, True, False]
    backend.resume(["weights"])
    assert backend.state() == "RUNNING" and holds(tensors["weights"], 1)
    assert states(allocator)["kv_cache"][0]
    backend.resume()
    backend.suspend(level=2)
    assert [kept for _, kept in states(allocator).values()] == [False, True, False]
    backend.resume()
    backend.discard(["kv_cache"])
    assert backend.state() == "SUSPENDED"
    backend.resume()
    assert device_allocator.get_mem_allocator_instance() is allocator
