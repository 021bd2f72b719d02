"""Buffer.copy_from and Buffer.copy_to."""

import numpy
import pytest

import umf


class OnlyDLPack:
    """Memory that is reached by DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)


@pytest.fixture
def pool():
    with umf.Pool("disjoint") as pool:
        yield pool


@pytest.mark.parametrize("wrap", [lambda array: array, OnlyDLPack, memoryview])
def test_bytes_come_and_go(pool, wrap):
    values = numpy.arange(16, dtype="float32")
    with pool.allocate(64) as buffer:
        buffer.copy_from(wrap(values))
        assert (buffer.numpy("float32") == values).all()
        target = numpy.zeros(16, "float32")
        buffer.copy_to(wrap(target))
        assert (target == values).all()


def test_a_part_is_copied(pool):
    with pool.allocate(8) as buffer:
        umf.fill(buffer, 0)
        buffer.copy_from(b"abcdef", 3)
        assert bytes(buffer) == b"abc" + bytes(5)
        target = bytearray(2)
        buffer.copy_to(target, 2)
        assert target == b"ab"
        with pool.allocate(8) as other:
            buffer.copy_to(other)
            assert bytes(other) == bytes(buffer)


def test_what_does_not_fit_is_refused(pool):
    with pool.allocate(8) as buffer:
        with pytest.raises(ValueError):
            buffer.copy_from(bytes(9))
        with pytest.raises(ValueError):
            buffer.copy_to(bytearray(7))
        for wrong in (None, object(), 1.5):
            with pytest.raises(TypeError):
                buffer.copy_from(wrong)
            with pytest.raises(TypeError):
                buffer.copy_to(wrong)
        with pytest.raises(TypeError):
            buffer.copy_from(b"a", stream="no stream")


@pytest.mark.parametrize("wrap", [lambda array: array, OnlyDLPack, umf.from_dlpack])
def test_read_only_memory_is_not_written(pool, wrap):
    array = numpy.zeros(8, "uint8")
    array.flags.writeable = False
    with umf.from_bytes(b"x" * 8, pool) as buffer:
        with pytest.raises((BufferError, ValueError)):  # NumPy says ValueError
            buffer.copy_to(wrap(array))
    with pytest.raises(BufferError):
        umf.from_dlpack(array).copy_from(b"x" * 8)
    assert not array.any()


def test_memory_that_was_freed_is_refused(pool):
    buffer = pool.allocate(8)
    buffer.free()
    with pytest.raises(ValueError, match="freed"):
        buffer.copy_from(b"a")
    with pytest.raises(ValueError, match="freed"):
        buffer.copy_to(bytearray(8))
