"""What users of NumPy and of Python's own containers expect."""

import copy
import inspect
import os
import subprocess
import sys

import pytest
from helpers import run_python

import umf

numpy = pytest.importorskip("numpy")


class Index:
    """A number that is none of Python's."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


# --- numbers ---


@pytest.mark.parametrize("number", [numpy.int64, numpy.uint8, Index, lambda value: numpy.array(value)])
def test_numbers_of_others_are_numbers(pool, number):
    assert pool.allocate(number(64)).nbytes == pool.allocate(size=number(64)).nbytes == 64
    buffer = pool.allocate(number(64), number(128))
    assert buffer.ptr % 128 == 0
    pool.trim(number(0))
    umf.copy(buffer, b"abc", number(2))
    umf.fill(buffer, b"x", number(1))
    assert buffer.tobytes()[:2] == b"xb"
    buffer.resize(number(2))
    buffer.free(stream=None)


@pytest.mark.parametrize("number", [5, numpy.int64(5), numpy.uint8(5), Index(5), True + 4])
def test_a_number_fills_each_byte(pool, number):
    buffer = pool.allocate(16)
    umf.fill(buffer, number)
    assert bytes(buffer) == b"\5" * 16


def test_patterns_that_are_none(pool):
    buffer = pool.allocate(16)
    umf.fill(buffer, 1)
    for wrong in (1.0, numpy.float64(1), numpy.float32(1), "a", None):
        with pytest.raises(TypeError):
            umf.fill(buffer, wrong)
        with pytest.raises(TypeError):
            umf.copy(buffer, wrong)
    for wrong in (256, -1, numpy.int64(-1), numpy.int64(300)):
        with pytest.raises(ValueError):
            umf.fill(buffer, wrong)
    assert bytes(buffer) == b"\1" * 16
    umf.fill(buffer, numpy.array([1.0]))
    assert numpy.frombuffer(buffer, "float64").tolist() == [1.0, 1.0]
    umf.fill(buffer, numpy.array(2.0))
    assert numpy.frombuffer(buffer, "float64").tolist() == [2.0, 2.0]


@pytest.mark.parametrize("wrong", [-1, numpy.int64(-5), Index(-1)])
def test_negative_numbers(pool, wrong):
    buffer = pool.allocate(8)
    for call in (
        lambda: pool.allocate(wrong),
        lambda: pool.allocate(size=wrong),
        lambda: pool.allocate(wrong, 8),
        lambda: pool.allocate(8, wrong),
        lambda: pool.trim(wrong),
        lambda: umf.copy(buffer, b"1", wrong),
        lambda: umf.fill(buffer, 1, wrong),
        lambda: buffer.resize(wrong),
    ):
        with pytest.raises(ValueError):
            call()
    for call in (lambda: pool.allocate(1.5), lambda: pool.allocate("8"), lambda: pool.allocate(8, 8.0)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(OverflowError):
        pool.allocate(1 << 100)


# --- read-only memory ---


class OfGpu:
    """An array of a GPU, as far as a copy reads it."""

    def __init__(self, array, is_read_only):
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, is_read_only),
            "version": 3,
        }


def test_read_only_memory_is_not_written(pool):
    array = numpy.full(64, 7, "uint8")
    array.flags.writeable = False
    buffer = pool.allocate(64)
    targets = [OfGpu(array, True), memoryview(b"\7" * 64), array]
    try:
        targets.append(umf.from_dlpack(array))
        assert targets[-1].read_only
    except BufferError:
        pass  # NumPy 1 does not export read-only arrays
    for target in targets:
        for write in (lambda to: umf.fill(to, 9), lambda to: umf.copy(to, buffer)):
            with pytest.raises((BufferError, TypeError, ValueError), match="read-only|[wW]ritable"):
                write(target)
        umf.copy(buffer, target)
        assert bytes(buffer) == b"\7" * 64
    umf.fill(OfGpu(numpy.zeros(4, "uint8"), False), 1)
    if len(targets) == 4:
        with pytest.raises(TypeError):
            targets[-1][0] = 1


# --- containers ---


def test_items_and_slices(pool):
    buffer = pool.allocate(8)
    buffer[:] = b"01234567"
    assert buffer[0] == ord("0") and buffer[-1] == ord("7")
    assert bytes(buffer[2:5]) == b"234" and bytes(buffer[::2]) == b"0246"
    buffer[1] = 0x41
    buffer[2:4] = b"bc"
    assert buffer.tobytes() == b"0Abc4567" == bytes(list(buffer)) and ord("A") in buffer
    part = buffer[2:4]
    with pytest.raises(BufferError, match="1 views"):
        buffer.free()
    part.release()
    for wrong in (lambda: buffer[8], lambda: buffer[-9]):
        with pytest.raises(IndexError):
            wrong()
    with pytest.raises(ValueError):
        buffer[0:2] = b"123"
    with pytest.raises(TypeError):
        del buffer[0]
    buffer.free()
    for call in (lambda: buffer[0], buffer.tobytes, lambda: iter(buffer), lambda: buffer.resize(4)):
        with pytest.raises(ValueError, match="freed"):
            call()


def test_copies_have_memory_of_their_own():
    with umf.Pool("disjoint over os:visibility=shared") as pool, pool.allocate(5) as buffer:
        buffer[:] = b"first"
        for make in (copy.copy, copy.deepcopy):
            twin = make(buffer)
            assert twin.tobytes() == b"first" and twin.pool is pool and twin.ptr != buffer.ptr
            twin[:] = b"twice"
            assert buffer.tobytes() == b"first"
        nest = {"a": [buffer]}
        assert copy.deepcopy(nest)["a"][0].ptr != buffer.ptr
        foreign = umf.from_dlpack(numpy.zeros(4, "uint8"))
        with pytest.raises(TypeError, match="foreign"):
            copy.deepcopy(foreign)


def test_resize(pool):
    buffer = pool.allocate(4)
    buffer[:] = b"1234"
    buffer.resize(100000)
    assert buffer.nbytes == len(buffer) == 100000 and buffer[:4].tobytes() == b"1234"
    with buffer[:], pytest.raises(BufferError):
        buffer.resize(2)
    buffer.resize(2)
    assert buffer.tobytes() == b"12" and pool.statistics().allocations == 1
    with pytest.raises(umf.OutOfMemoryError):
        buffer.resize(1 << 60)
    assert buffer.tobytes() == b"12"
    buffer.free()
    assert pool.statistics().allocations == 0


def test_from_bytes(pool):
    for data in (b"abc", bytearray(b"abc"), memoryview(b"abc"), numpy.array(list(b"abc"), "uint8")):
        assert umf.from_bytes(data, pool, alignment=64).tobytes() == b"abc"
    with pytest.raises(ValueError):
        umf.from_bytes(b"", pool)


def test_a_buffer_comes_from_somewhere():
    with pytest.raises(TypeError, match="Pool.allocate"):
        umf.Buffer()


# --- calls ---


def test_every_method_has_a_signature_and_a_text():
    kinds = (umf.Pool, umf.Provider, umf.Buffer, umf.Job, umf.Recording, umf._core.Recording)
    for kind in kinds:
        for name, method in inspect.getmembers(kind, callable):
            if not name.startswith("_"):
                assert inspect.signature(method) is not None and inspect.getdoc(method), (kind, name)
    for name in umf.__all__:
        assert inspect.getdoc(getattr(umf, name)), name
    for name, function in inspect.getmembers(umf._core, inspect.isbuiltin):
        assert inspect.signature(function) is not None, name


def test_keywords(pool):
    pool.trim(keep=0, stream=None)
    assert pool.wait_pending(timeout=0) == pool.wait_pending(timeout=None) == 0
    for wrong in (-1, float("nan"), 1e12):
        with pytest.raises(ValueError, match="from 0 to 1e9"):
            pool.wait_pending(wrong)


def test_objects_of_another_type_are_refused(pool):
    core, handle = umf._core, b"handle"
    for call in (
        lambda: umf.Buffer.ipc_handle(1),
        lambda: umf.Pool.residency("x"),
        lambda: umf.Pool.set_policy("x"),
        lambda: umf.Pool.statistics("x"),
        lambda: core.Pool("disjoint over os", 1, umf.Buffer),
        lambda: core.Pool("disjoint over os", None, int),
        lambda: core.dlpack_import(int, numpy.zeros(4).__dlpack__()),
        lambda: core.dlpack_import(umf.Buffer, object()),
        lambda: core.ipc_open(int, pool, handle, 16),
        lambda: core.move(("x",), (), (), False),
        lambda: pool.allocate(8)._exchange(1),
        lambda: umf.suspend([1.5]),
        lambda: umf.record(pools=[1]),
    ):
        with pytest.raises(TypeError):
            call()


def test_tensors_that_are_none():
    class Wrong:
        def __dlpack__(self, **_):
            return 1

    with pytest.raises(TypeError, match="must return a capsule"):
        umf.from_dlpack(Wrong())
    capsule = numpy.zeros(4).__dlpack__()
    umf._core.dlpack_import(umf.Buffer, capsule)
    with pytest.raises(TypeError, match="that nobody has used"):
        umf._core.dlpack_import(umf.Buffer, capsule)


# --- text ---


def test_pools_over_one_provider_have_names_and_all_settings():
    with umf.Provider("os") as provider:
        with umf.Pool("disjoint", provider, name="weights", check=True) as pool:
            assert pool.text == "disjoint:name=weights,check=yes"
            assert pool.provider_text() == "os"
            taken = [one["name"] for one in umf.snapshot()["pools"] if one["handle"] == pool.handle]
            assert "weights" in taken[0]
        with umf.Pool("disjoint:capacity=8", provider, name="a over b") as pool:
            assert pool.text == 'disjoint:capacity=8,name="a over b"'
        for kind, settings in {"disjoint": {"capacity": 1.5}, "disjoint over os": {}}.items():
            with pytest.raises(umf.InvalidArgumentError):
                umf.Pool(kind, provider, **settings)


def test_names_with_any_words():
    with umf.Pool("disjoint", name="sessions over day", provider="os:visibility=shared") as pool:
        assert pool.provider_text() == "os:visibility=shared"
        buffer = umf.from_bytes(b"shared", pool)
        with buffer.ipc_handle().open() as twin:
            assert twin.tobytes() == b"shared"
        assert buffer.__dlpack_device__() == (1, 0)
        buffer.free()
    for text, provider in {
        'disjoint:name="a over b"': "os",
        'disjoint:name="a \\" over b" over\tos:name="x over y"': 'os:name="x over y"',
        "disjoint:name = over over os": "os",
    }.items():
        with umf.Pool(text) as pool:
            assert pool.provider_text() == provider


# --- recordings ---


def test_recordings_of_some_pools(pool):
    with umf.record(pools=pool) as recording, umf.Pool("disjoint") as other:
        pool.allocate(4096).free()
        other.allocate(8192).free()
    assert [one.size for one in recording.events() if one.kind == "alloc"] == [4096]
    with umf.record(pools=[]) as recording:
        pool.allocate(4096).free()
    assert [one for one in recording.events() if one.kind == "alloc"] == []


def test_a_recording_that_nobody_keeps_stops(pool, tmp_path):
    for path in (None, tmp_path / "file"):
        umf.record(path)
        assert not umf._core.record_state()[0]
        with umf.record() as recording:
            pool.allocate(100).free()
        assert list(recording.events())


@pytest.mark.parametrize("end", ["sys.exit(0)", "del recording; os._exit(0)", "recording.stop(); os._exit(0)"])
def test_a_child_of_fork_leaves_the_recording_of_its_parent_alone(end):
    run_python(
        f"""
import os, sys, umf
pool = umf.Pool("disjoint")
recording = umf.record(leaks=True)
child = os.fork()
if child == 0:
    recording.mark("child")
    {end}
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert os.path.exists(recording.path) and recording.state().running
pool.allocate(1000).free()
recording.stop()
assert [one.kind for one in recording.events() if one.kind in ("alloc", "mark")] == ["alloc"]
"""
    )


# --- interpreters ---


def test_a_second_interpreter_leaves_the_classes_of_the_first_alone():
    run_python(
        """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        sys.exit(0)
import umf
pool = umf.Pool("disjoint")
if sys.version_info >= (3, 13):
    other = interpreters.create("legacy")
else:
    other = interpreters.create(isolated=False)
interpreters.run_string(other, "import umf; assert type(umf.Pool('disjoint').allocate(5)) is umf.Buffer")
assert type(pool.allocate(5)) is umf.Buffer
"""
    )


# --- types ---


def test_the_types_of_the_extension_are_its_own(tmp_path):
    pytest.importorskip("mypy")
    allowed = tmp_path / "allowed"
    # In the C interface, and in Python from 3.12 on.
    allowed.write_text("" if sys.version_info >= (3, 12) else "umf._core.(Buffer|Region).__buffer__\n")
    built = os.path.dirname(os.path.dirname(umf.__file__))
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "umf._core", "--allowlist", str(allowed)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": built},
    )
    assert done.returncode == 0, done.stdout
