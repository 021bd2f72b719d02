"""NumPy, DLPack."""

import ctypes
import gc
import re
from pathlib import Path

import pytest

import umf

numpy = pytest.importorskip("numpy")
hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings, strategies  # noqa: E402


@settings(max_examples=50, deadline=None)
@given(data=strategies.binary(min_size=1, max_size=4096))
def test_any_bytes_come_back_by_every_way(data):
    with umf.Pool("disjoint over os") as pool:
        buffer = pool.allocate(len(data))
        with memoryview(buffer) as view:
            view[:] = data
        assert bytes(buffer) == data
        assert buffer.numpy().tobytes() == data
        assert numpy.from_dlpack(buffer).tobytes() == data
        other = umf.from_dlpack(numpy.frombuffer(bytearray(data), dtype="uint8"))
        assert bytes(other) == data


def test_numpy_has_types_and_shapes(pool):
    array = pool.allocate(96).numpy("float64", (3, 4))
    array[:] = 1.5
    assert array.shape == (3, 4) and array.sum() == 18
    with pytest.raises(ValueError):
        pool.allocate(10).numpy("float64")
    del array


def test_arrays_keep_the_memory(pool):
    array = pool.allocate(64).numpy()
    gc.collect()
    assert pool.statistics().allocations == 1
    with pytest.raises(BufferError):
        pool.close()
    del array
    gc.collect()
    assert pool.statistics().allocations == 0


def test_capsules_that_nobody_takes_are_given_back(pool):
    buffer = pool.allocate(64)
    for version in (None, (0, 8), (1, 0), (2, 0)):
        capsule = buffer.__dlpack__(max_version=version)
        name = "dltensor_versioned" if version and version[0] >= 1 else "dltensor"
        assert f'"{name}"' in repr(capsule)
        with pytest.raises(BufferError):
            buffer.free()
        del capsule
    buffer.free()


def test_what_cannot_be_exported(pool):
    buffer = pool.allocate(64)
    assert buffer.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="does not copy"):
        buffer.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="not on"):
        buffer.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="no streams"):
        buffer.__dlpack__(stream=1)
    assert not hasattr(buffer, "__cuda_array_interface__")


def test_foreign_memory_keeps_its_rights():
    array = numpy.arange(10, dtype="int32")
    buffer = umf.from_dlpack(array)
    assert buffer.nbytes == 40 and buffer.origin == "foreign" and buffer.pool is None
    assert numpy.frombuffer(buffer, "int32").tolist() == list(range(10))
    with pytest.raises(BufferError, match="contiguous"):
        umf.from_dlpack(array[::2])
    array.flags.writeable = False
    try:
        locked = umf.from_dlpack(array)
    except BufferError:
        return  # NumPy 1 does not export read-only arrays
    assert locked.read_only and memoryview(locked).readonly


def test_a_foreign_buffer_keeps_its_owner():
    buffer = umf.from_dlpack(numpy.full(1000, 3, dtype="uint8"))
    gc.collect()
    assert set(bytes(buffer)) == {3}
    view = umf.from_dlpack(buffer)
    buffer_again = bytes(view)
    assert len(buffer_again) == 1000
    view.free()
    buffer.free()


def test_a_view_of_a_pool_that_cannot_be_suspended_is_no_failure(pool):
    """Each refusal would format a message, which takes longer than the view."""
    buffer = pool.allocate(64)
    memoryview(buffer).release()
    maps = Path("/proc/self/maps").read_text()
    library = ctypes.CDLL(re.search(r"/\S*/libumf[^/\s]*\.so\S*", maps)[0])
    library.umfLastErrorText.restype = ctypes.c_char_p
    assert library.umfPoolFree(ctypes.c_void_p(pool.handle), ctypes.c_void_p(1)) != 0
    text = library.umfLastErrorText()
    assert text
    numpy.asarray(buffer)
    assert library.umfLastErrorText() in (text, b"")
