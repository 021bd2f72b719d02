"""Copies and fills."""

import pytest

import umf

numpy = pytest.importorskip("numpy")


def test_bytes_arrays_and_buffers(pool):
    buffer, other = pool.allocate(16), pool.allocate(32)
    umf.copy(buffer, b"0123456789abcdef")
    umf.copy(other, buffer)
    array = numpy.zeros(4, dtype="int32")
    umf.copy(array, other, 16)
    assert array.tobytes() == b"0123456789abcdef"
    target = bytearray(4)
    umf.copy(target, buffer.ptr + 10, 4)
    assert target == b"abcd"
    umf.copy(buffer.ptr, target)
    assert bytes(memoryview(buffer)[:5]) == b"abcd4"


def test_patterns(pool):
    buffer = pool.allocate(5)
    umf.fill(buffer, b"ab")
    assert bytes(buffer) == b"ababa"
    umf.fill(buffer, 7, 2)
    assert bytes(buffer) == b"\7\7aba"
    umf.fill(buffer)
    assert not any(bytes(buffer))


def test_what_cannot_be_copied(pool):
    buffer = pool.allocate(4)
    for wrong in (
        lambda: umf.copy(buffer, b"12345"),
        lambda: umf.copy(buffer, b"1", 2),
        lambda: umf.copy(buffer.ptr, buffer.ptr),
        lambda: umf.fill(buffer.ptr),
        lambda: umf.fill(buffer, 0, -1),
        lambda: umf.fill(buffer, b""),
    ):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises((BufferError, TypeError)):
        umf.copy(b"1234", buffer)
    with pytest.raises(TypeError):
        umf.copy(buffer, 1.5)


def test_a_suspended_side_is_refused():
    with umf.Pool("disjoint over linux_vmm") as pool:
        buffer = pool.allocate(4096)
        umf.suspend(pool)
        with pytest.raises(umf.OutOfResourcesError):
            umf.copy(buffer, b"1")
        umf.resume(pool)
        umf.copy(buffer, b"1")
