"""Providers, pools and buffers."""

import gc
import pickle
import threading

import pytest

import umf


def test_text_and_keywords_make_the_same_pool():
    with umf.Pool("disjoint:capacity=8,slab_min_size=1M over os") as text:
        with umf.Pool("disjoint", provider="os", capacity=8, slab_min_size="1M") as named:
            assert text.text == named.text


def test_a_provider_is_shared_and_closes_last():
    with umf.Provider("os", numa_mode="default") as provider:
        assert provider.text == "os:numa_mode=default"
        with umf.Pool("disjoint", provider, capacity=2, slab_min_size="1M") as one:
            with umf.Pool("proxy", provider) as two:
                assert one.provider is two.provider is provider
                with pytest.raises(ValueError, match="2 open pools"):
                    provider.close()
                with one.allocate(100), two.allocate(100):
                    assert provider.statistics().allocated > 0
    assert provider.closed
    provider.close()


def test_settings_that_are_wrong_are_named():
    with pytest.raises(umf.InvalidArgumentError, match="unknown setting 'capcity'") as info:
        umf.Pool("disjoint", capcity=1)
    assert info.value.code == 3 and info.value.name == "UMF_RESULT_ERROR_INVALID_ARGUMENT"
    assert isinstance(info.value, ValueError) and isinstance(info.value, RuntimeError)
    with umf.Provider("os") as provider:
        with pytest.raises(ValueError, match="unknown setting 'capcity' of pool 'disjoint'"):
            umf.Pool("disjoint", provider, capcity=1)
        with pytest.raises(ValueError, match="'much' cannot be the value of 'slab_min_size'"):
            umf.Pool("disjoint", provider, slab_min_size="much")
        with pytest.raises(ValueError, match="unknown kind of pool 'nix'"):
            umf.Pool("nix", provider)
    with pytest.raises(TypeError, match="text of the pool"):
        umf.Pool("disjoint over os", capacity=1)


def test_quoted_values_reach_the_library():
    with pytest.raises(umf.InvalidArgumentError, match="numa_mode"):
        umf.Provider("os", numa_mode='a, "b"')


def test_a_missing_driver_is_a_dependency_error():
    why = umf.info()["providers"]["cuda_vmm"]
    if why is None:
        pytest.skip("there is a CUDA driver here")
    with pytest.raises((umf.DependencyError, umf.NotSupportedError)):
        umf.Pool("proxy over cuda_vmm")


def test_errors_pickle():
    error = umf.OutOfMemoryError("gone", 1, "NAME", "why", 42)
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is umf.OutOfMemoryError and str(twin) == "gone" and twin.missing == 42
    assert isinstance(twin, MemoryError)
    assert str(umf.InvalidPathError("no such path")) == "no such path"


def test_allocate_and_free(pool):
    buffer = pool.allocate(1000, alignment=4096)
    assert buffer.ptr % 4096 == 0 and len(buffer) == buffer.nbytes == 1000
    assert buffer.pool is pool and buffer.origin == "pool"
    assert pool.statistics().allocations == 1
    buffer.free()
    buffer.free()
    assert buffer.freed and pool.statistics().allocations == 0
    with pytest.raises(ValueError, match="freed"):
        buffer.ptr
    with pytest.raises(ValueError, match="freed"):
        memoryview(buffer)


def test_the_last_reference_frees(pool):
    buffer = pool.allocate(1000)
    del buffer
    gc.collect()
    assert pool.statistics().allocations == 0


@pytest.mark.parametrize("size", [0, -1])
def test_sizes_that_are_none(pool, size):
    with pytest.raises((ValueError, OverflowError)):
        pool.allocate(size)


@pytest.mark.parametrize("alignment", [3, 48])
def test_alignments_that_are_none(pool, alignment):
    with pytest.raises(umf.InvalidAlignmentError, match=f"a power of two, it is {alignment}"):
        pool.allocate(8, alignment=alignment)


def test_too_much(pool):
    with pytest.raises(umf.OutOfMemoryError, match="cannot be allocated") as info:
        pool.allocate(1 << 60)
    assert isinstance(info.value, MemoryError)


def test_views_keep_memory_and_pool(pool):
    buffer = pool.allocate(16)
    view = memoryview(buffer)
    assert view.format == "B" and view.nbytes == 16 and not view.readonly
    view[:3] = b"umf"
    with pytest.raises(BufferError, match="1 views"):
        buffer.free()
    with pytest.raises(BufferError, match="1 views"):
        pool.close()
    del buffer
    gc.collect()
    assert bytes(view[:3]) == b"umf" and pool.statistics().allocations == 1
    view.release()
    gc.collect()
    assert pool.statistics().allocations == 0


def test_what_is_raised_inside_comes_out():
    with pytest.raises(KeyError, match="inside"):
        with umf.Pool("disjoint over os") as pool:
            view = memoryview(pool.allocate(8))
            raise KeyError("inside")
    assert not pool.closed and len(view) == 8
    view.release()
    pool.close()


def test_a_closed_pool_leaves_dead_buffers():
    pool = umf.Pool("disjoint over os")
    buffer = pool.allocate(8)
    pool.close()
    assert buffer.freed
    with pytest.raises(ValueError, match="closed"):
        memoryview(buffer)
    with pytest.raises(ValueError, match="closed"):
        pool.allocate(8)
    buffer.free()


def test_threads_allocate_at_once(pool):
    def work():
        for _ in range(200):
            with pool.allocate(4096) as one:
                memoryview(one)[0] = 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.statistics().allocations == 0


def test_info_names_what_is_missing():
    known = umf.info()
    assert known["version"] == umf.__version__
    assert known["providers"]["os"] is None and known["pools"]["disjoint"] is None
    assert all(why is None or why for why in known["providers"].values())


def test_trim(pool):
    pool.allocate(1 << 20).free()
    pool.trim()
    pool.trim(1 << 20)
    with pytest.raises(ValueError):
        pool.trim(-1)


def test_failures_tell_the_reason_of_the_library(tmp_path):
    with umf.Pool("disjoint over os") as pool, umf.Pool("proxy over linux_vmm") as proxy:
        pool.set_limit(1 << 20)
        with pytest.raises(umf.OutOfMemoryError, match="limit of the pool is 1048576 bytes") as limit:
            pool.allocate(1 << 24)
        assert limit.value.reason == "UMF_REASON_LIMIT"
        with pytest.raises(umf.NotSupportedError, match="this kind of pool keeps no free memory") as trim:
            proxy.trim()  # not that of the failure before
        assert trim.value.reason == ""
        with pytest.raises(umf.OutOfMemoryError, match="provider LINUX_VMM refuses") as full:
            proxy.allocate(1 << 50)
        assert full.value.reason == "UMF_REASON_EXHAUSTED"
        copy = pickle.loads(pickle.dumps(full.value))
        assert (str(copy), copy.reason) == (str(full.value), full.value.reason)
        proxy.forbid_suspend()
        with pytest.raises(umf.OutOfResourcesError, match="must not be suspended"):
            umf.suspend_async(proxy).wait()  # the failure was that of another thread
        proxy.allow_suspend()
        absent = tmp_path / "absent" / "file"
        with pytest.raises(umf.Error, match=f"{absent} cannot be made: No such file"):
            umf.record(absent).__enter__()
        with pytest.raises(umf.Error, match="nothing is recorded"):
            umf._core.record_save(str(absent))
