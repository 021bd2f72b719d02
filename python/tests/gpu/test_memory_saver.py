"""umf.torch_memory_saver, in the hook mode of UMF_TEST_HOOK_MODE."""

import ctypes
import os
import re
import subprocess
import sys
import threading
import types
from pathlib import Path

import fake_driver
import pytest
from gpu_helpers import MIB, Other, empty, full, holds, needs_fake, needs_gpu, torch, used
from helpers import run_python

import umf
from umf import _torch_pools
from umf.torch_memory_saver import TorchMemorySaver, configure_subprocess, torch_memory_saver
from umf.torch_memory_saver import testing_utils, utils
from umf.torch_memory_saver.hooks.base import HookUtilBase

MODE = os.environ.get("UMF_TEST_HOOK_MODE", "torch")


@pytest.fixture(scope="module")
def saver():
    if torch_memory_saver._impl is None and MODE == "torch":
        torch_memory_saver.hook_mode = "torch"
    return torch_memory_saver


@pytest.fixture(autouse=True)
def resumed(saver):
    yield
    saver.resume()


@pytest.fixture
def no_lease(saver):
    """Pinned memory is given back within the resume."""
    saver.backup_lease = 0
    yield
    saver.backup_lease = 5


def test_content_with_a_backup_survives_and_addresses_stay(saver):
    with saver.region("kept", enable_cpu_backup=True):
        tensor = full(8, 5)
    address, before = tensor.data_ptr(), used()
    saver.pause("kept")
    assert used() <= before - 8 * MIB
    saver.resume("kept")
    assert tensor.data_ptr() == address and holds(tensor, 5)


def test_memory_without_a_backup_comes_back(saver):
    with saver.region("lost"):
        tensor = full(8, 5)
    saver.pause("lost")
    with pytest.raises(RuntimeError, match="no CPU backup"):
        saver.get_cpu_backup(tensor)
    saver.resume("lost")
    assert not holds(tensor, 5)
    tensor.fill_(6)
    assert holds(tensor, 6)


def test_a_pause_touches_no_other_tag(saver):
    with saver.region("one", enable_cpu_backup=True):
        one = full(4, 1)
        with saver.region("two"):
            two = full(4, 2)
        again = full(4, 3)
    saver.pause("two")
    assert holds(one, 1) and holds(again, 3)
    saver.pause("one")
    saver.resume("two")
    two.fill_(4)
    assert holds(two, 4) and holds(saver.get_cpu_backup(one), 1)
    saver.resume("one")
    assert holds(one, 1) and holds(again, 3)


def test_a_second_pause_and_resume_change_nothing(saver):
    with saver.region("twice", enable_cpu_backup=True):
        tensor = full(4, 7)
    for _ in range(2):
        saver.pause("twice")
    for _ in range(2):
        saver.resume("twice")
    assert holds(tensor, 7)
    saver.pause("there is no such tag")
    saver.resume("there is no such tag")


def test_cycles_leave_nothing(saver):
    with saver.region("cycle", enable_cpu_backup=True):
        tensor = full(4, 7)
    saver.pause()
    saver.resume()
    before, lines = used(), len(open("/proc/self/maps").readlines())
    for _ in range(20):
        saver.pause()
        saver.resume()
    assert holds(tensor, 7) and used() == before
    assert len(open("/proc/self/maps").readlines()) <= lines + 10


def test_an_allocation_into_a_paused_tag_is_awake(saver):
    with saver.region("busy", enable_cpu_backup=True):
        old = full(4, 1)
        small = torch.full((64,), 2, dtype=torch.uint8, device="cuda")
    saver.pause("busy")
    with saver.region("busy", enable_cpu_backup=True):
        new = torch.full((64,), 3, dtype=torch.uint8, device="cuda")
    assert holds(new, 3)
    saver.resume("busy")
    assert holds(old, 1) and holds(small, 2) and holds(new, 3)


def is_awake(saver, tensor):
    awake = 1
    return saver._impl._binary_wrapper.cdll.tms_state_of(tensor.data_ptr()) == awake


def test_a_pause_inside_of_a_region_goes_on_with_a_new_pool(saver):
    with saver.region("inside", enable_cpu_backup=True):
        old = empty()
        with saver.region("between"):
            saver.pause("inside")
            between = empty()
        new = empty()
        assert not is_awake(saver, old) and is_awake(saver, new) and is_awake(saver, between)
        saver.pause()
        last = empty()
        assert not is_awake(saver, new) and is_awake(saver, last)
    saver.resume()


def test_no_pause_while_another_thread_is_inside_of_a_region(saver):
    other = Other(saver.region("elsewhere", enable_cpu_backup=True), empty)
    with saver.region("here"):
        mine = empty()
    for tag in ("elsewhere", None):
        with pytest.raises(RuntimeError, match="'elsewhere' cannot be paused: another thread"):
            saver.pause(tag)
    assert is_awake(saver, other.made) and is_awake(saver, mine)
    saver.pause("here")
    other.leave()
    saver.pause("elsewhere")
    assert not is_awake(saver, other.made)
    saver.resume()
    del other.made


def test_memory_is_freed_while_it_is_paused(saver):
    with saver.region("freed", enable_cpu_backup=True):
        tensor = full(32, 1)
    saver.pause("freed")
    del tensor
    saver._impl._mem_pools.clear()
    torch.cuda.empty_cache()
    saver.resume("freed")


def test_backups_are_read(saver):
    with saver.region("read", enable_cpu_backup=True):
        tensor = torch.arange(3 * 5, device="cuda").to(torch.float32).reshape(3, 5)
    assert saver.get_cpu_backup(tensor) is None
    saver.pause("read")
    copy, view = saver.get_cpu_backup(tensor), saver.get_cpu_backup(tensor, zero_copy=True)
    assert copy.dtype == torch.float32 and copy.shape == (3, 5) and copy.device.type == "cpu"
    assert copy.data_ptr() != view.data_ptr() and copy[2, 4] == view[2, 4] == 14
    assert saver.get_cpu_backup(tensor[1]).tolist() == [5, 6, 7, 8, 9]
    with pytest.raises(AssertionError):
        saver.get_cpu_backup(tensor.t())
    with pytest.raises(AssertionError):
        saver.get_cpu_backup(torch.zeros(1))
    saver.resume("read")
    assert saver.get_cpu_backup(tensor) is None


@pytest.mark.parametrize("backend", ["pinned", "mmap"])
def test_only_pinned_backups_have_flags(saver, backend, no_lease):
    with saver.region("flags", enable_cpu_backup=True, cpu_backup_backend=backend):
        tensor = full(4, 1)
    saver.pause("flags")
    view = saver.get_cpu_backup(tensor, zero_copy=True)
    flags, cdll = ctypes.c_uint(), saver._impl._binary_wrapper.cdll
    address = ctypes.c_void_p(view.data_ptr())
    assert (cdll.cudaHostGetFlags(ctypes.byref(flags), address) == 0) == (backend == "pinned")
    saver.resume("flags")
    assert cdll.cudaHostGetFlags(ctypes.byref(flags), address) != 0
    cdll.cudaGetLastError()


def test_pinned_memory_goes_with_its_tag(saver, no_lease):
    tensors = {}
    for tag in ("first", "second"):
        with saver.region(tag, enable_cpu_backup=True):
            tensors[tag] = full(4, 1)
    saver.pause()
    addresses = {
        tag: ctypes.c_void_p(saver.get_cpu_backup(one, zero_copy=True).data_ptr())
        for tag, one in tensors.items()
    }
    flags, cdll = ctypes.c_uint(), saver._impl._binary_wrapper.cdll
    saver.resume("first")
    assert cdll.cudaHostGetFlags(ctypes.byref(flags), addresses["first"]) != 0
    assert cdll.cudaHostGetFlags(ctypes.byref(flags), addresses["second"]) == 0
    cdll.cudaGetLastError()
    saver.resume("second")
    assert holds(tensors["first"], 1) and holds(tensors["second"], 1)


def test_pinned_memory_is_made_in_several_units(saver):
    values = torch.arange(300 * MIB // 8)
    with saver.region("units", enable_cpu_backup=True):
        tensors = [torch.empty_like(values, device="cuda") for _ in range(2)]
    for number, tensor in enumerate(tensors):
        tensor.copy_(values + number)
    saver.pause("units")
    saver.resume("units")
    for number, tensor in enumerate(tensors):
        assert torch.equal(tensor.cpu(), values + number)


@needs_fake
def test_one_thread_pins_whole_huge_pages():
    """Several threads that pin at once, or pages that are not huge, take several times as long."""
    code = """
import os
os.dup2(1, 2)
import torch
from umf.torch_memory_saver import torch_memory_saver as saver
if os.environ["UMF_TEST_HOOK_MODE"] == "torch":
    saver.hook_mode = "torch"
with saver.region("a", enable_cpu_backup=True):
    tensors = [torch.empty(300 << 20, dtype=torch.uint8, device="cuda") for _ in range(2)]
torch.cuda.synchronize()
print("pause", flush=True)
saver.pause()
print("paused", flush=True)
"""
    lines = run_python(code, env={"UMF_TEST_HOOK_MODE": MODE, "SOFT_CUDART_TRACE": "1"})
    lines = lines[lines.index("pause\n") : lines.index("paused\n")]
    made = re.findall(r"register 0x(\w+) (\d+) in (\d+): 0", lines)
    sizes = [int(size) for _, size, _ in made if int(size) > MIB]  # a page tests whether flags work
    assert sizes == [128 * MIB] * 4 + [88 * MIB] and "host alloc" not in lines
    assert len({thread for _, _, thread in made}) == 1
    assert all(int(at, 16) % (2 * MIB) == 0 for at, size, _ in made if int(size) > MIB)


@needs_fake
@pytest.mark.parametrize("backend", ["pinned", "mmap"])
def test_backups_are_near_the_device(saver, monkeypatch, backend, no_lease):
    def policy(address):
        mode, nodes = ctypes.c_int(-1), (ctypes.c_ulong * 16)()
        get_mempolicy, of_address = 239, 2
        result = ctypes.CDLL(None).syscall(
            get_mempolicy, ctypes.byref(mode), nodes, 1024, ctypes.c_void_p(address), of_address
        )
        if result != 0:
            pytest.skip("the system does not report the node of memory")
        return mode.value, nodes[0]

    preferred = 1
    with saver.region("near", enable_cpu_backup=True, cpu_backup_backend=backend):
        tensor = full(4, 1)
    for node, wanted in ((0, (preferred, 1)), (-1, (0, 0))):
        monkeypatch.setattr(fake_driver.control(), "host_node", node)
        saver.pause("near")
        found = policy(saver.get_cpu_backup(tensor, zero_copy=True).data_ptr())
        saver.resume("near")
        assert found == wanted


@needs_fake
@pytest.mark.parametrize("function", ["cuMemUnmap", "cuMemRelease"])
@pytest.mark.parametrize("at", [1, 2])
def test_a_pause_that_fails_midway_brings_content_back(saver, function, at):
    with saver.region("midway", enable_cpu_backup=True):
        tensors = [full(24, 1), full(24, 2)]
    with fake_driver.failing(function, at):
        with pytest.raises(RuntimeError, match="memory cannot be given back"):
            saver.pause("midway")
    assert saver.get_cpu_backup(tensors[0]) is None
    assert holds(tensors[0], 1) and holds(tensors[1], 2)
    saver.pause("midway")
    saver.resume("midway")
    assert holds(tensors[0], 1) and holds(tensors[1], 2)


@needs_fake
def test_a_pause_after_which_the_driver_fails_loses_nothing(saver):
    """From each of its calls on. Content that cannot come back at once is in the backups until a resume."""
    with saver.region("broken", enable_cpu_backup=True):
        tensors = [full(1, value) for value in range(4)]  # two segments
    said = set()
    for at in range(1, 1000):
        try:
            with fake_driver.failing(fake_driver.ANY, at, and_on=True):
                saver.pause("broken")
            break
        except RuntimeError as error:
            said.add(re.sub(r".*(is in their backups only|failed:).*", r"\1", str(error)))
        saver.resume("broken")
        assert all(holds(one, value) for value, one in enumerate(tensors)), at
    saver.resume("broken")
    assert all(holds(one, value) for value, one in enumerate(tensors))
    assert said == {"failed:", "is in their backups only"}


def is_mapped(address):
    with open("/proc/self/maps") as maps:
        ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps]
    return any(begin <= address < end for begin, end in ranges)


@needs_fake
@pytest.mark.parametrize("stays", [False, True])
def test_pinned_memory_that_the_driver_keeps_stays_mapped(saver, stays, no_lease):
    """Else the driver would go on with pages that are gone, or of another owner."""
    with saver.region("pinned", enable_cpu_backup=True):
        tensor = full(1, 3)
    saver.pause("pinned")
    address = saver.get_cpu_backup(tensor, zero_copy=True).data_ptr()
    assert is_mapped(address)
    with fake_driver.failing("cuMemHostUnregister", 1 if stays else 0, and_on=True):
        saver.resume("pinned")
    assert holds(tensor, 3) and is_mapped(address) == stays
    saver.pause("pinned")
    saver.resume("pinned")
    assert holds(tensor, 3)


@needs_fake
def test_calls_of_the_driver(saver):
    """Of a pause and a resume that retain: one of each kind for a block."""
    count = 10
    with saver.region("counted", enable_cpu_backup=True):
        tensors = [full(12, value) for value in range(count)]
    saver.retain_cpu_backup = True
    try:
        saver.pause("counted")
        saver.resume("counted")
        with fake_driver.counted() as pause:
            saver.pause("counted")
        with fake_driver.counted() as resume:
            saver.resume("counted")
    finally:
        saver.retain_cpu_backup = False
    assert pause["cuMemUnmap"] == pause["cuMemRelease"] == count
    assert resume["cuMemCreate"] == resume["cuMemMap"] == resume["cuMemSetAccess"] == count
    for made in (pause, resume):
        assert made["cuMemcpyAsync"] == count
        assert made["cuStreamCreate"] == made["cuStreamSynchronize"] == 1
        assert made.get("cuCtxSynchronize", 0) <= 2
        assert not {"cuMemHostRegister", "cuMemHostUnregister", "cuMemHostAlloc"} & set(made)
    with fake_driver.counted() as nothing:
        saver.resume("counted")
    assert not {"cuMemCreate", "cuMemcpyAsync", "cuCtxSynchronize", "cuStreamCreate"} & set(nothing)
    assert all(holds(one, value) for value, one in enumerate(tensors))


@needs_fake
def test_pinned_memory_where_the_runtime_forgets_it():
    code = """
import ctypes, os, torch
from umf.torch_memory_saver import torch_memory_saver as saver
if os.environ["UMF_TEST_HOOK_MODE"] == "torch":
    saver.hook_mode = "torch"
with saver.region("a", enable_cpu_backup=True):
    tensors = [torch.empty(24 << 20, dtype=torch.uint8, device="cuda") for _ in range(2)]
host = torch.arange(24 << 20).to(torch.uint8)
for tensor in tensors:
    tensor.copy_(host)
for _ in range(2):
    saver.pause()
    view = saver.get_cpu_backup(tensors[1], zero_copy=True)
    assert saver._impl._binary_wrapper.cdll.cudaHostGetFlags(
        ctypes.byref(ctypes.c_uint()), ctypes.c_void_p(view.data_ptr())
    ) == 0
    saver.resume()
assert all(torch.equal(tensor.cpu(), host) for tensor in tensors)
"""
    run_python(code, env={"UMF_TEST_HOOK_MODE": MODE, "SOFT_CUDART_FORGETS_REGISTERED": "1"})


def test_retained_backups_stay_where_they_are(saver):
    with saver.region("retained", enable_cpu_backup=True):
        tensor = full(4, 1)
    saver.retain_cpu_backup = True
    try:
        assert saver.retain_cpu_backup is True
        saver.pause("retained")
        saver.resume("retained")
        view = saver.get_cpu_backup(tensor, zero_copy=True)
        tensor.fill_(2)
        assert holds(view, 1)
        saver.pause("retained")
        assert holds(view, 2)
        assert saver.get_cpu_backup(tensor, zero_copy=True).data_ptr() == view.data_ptr()
    finally:
        saver.retain_cpu_backup = False
    del view
    saver.resume("retained")
    assert saver.get_cpu_backup(tensor) is None and holds(tensor, 2)


def test_disk_backups_are_files_while_paused(saver, tmp_path):
    folder = tmp_path / "made"
    saver.set_disk_backup_dir(folder)
    with saver.region("disk", enable_disk_backup=True):
        tensor = full(32, 3)
    for _ in range(3):
        saver.pause("disk")
        files = list(folder.iterdir())
        assert len(files) == 1 and files[0].stat().st_size == 32 * MIB
        assert saver.get_cpu_backup(tensor) is None
        saver.resume("disk")
        assert holds(tensor, 3) and not list(folder.iterdir())
    saver.pause("disk")
    del tensor
    saver._impl._mem_pools.clear()
    torch.cuda.empty_cache()
    assert not list(folder.iterdir())


def test_a_folder_that_is_not_there_fails_the_pause(saver, tmp_path):
    saver.set_disk_backup_dir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    (tmp_path / "gone").touch()
    with saver.region("nodisk", enable_disk_backup=True):
        tensor = full(4, 3)
    with pytest.raises(RuntimeError, match="gone"):
        saver.pause("nodisk")
    assert holds(tensor, 3)
    saver.set_disk_backup_dir(tmp_path)


def test_a_resume_without_memory_can_be_tried_again(saver):
    with saver.region("large", enable_cpu_backup=True):
        tensor = full(32, 4)
    saver.pause("large")
    available, _ = torch.cuda.mem_get_info()
    hog = torch.empty(available - 8 * MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(RuntimeError, match="bytes are missing"):
        saver.resume("large")
    assert holds(saver.get_cpu_backup(tensor), 4)
    del hog
    torch.cuda.empty_cache()
    saver.resume("large")
    assert holds(tensor, 4)


def test_the_margin_is_left_free(saver):
    available, total = torch.cuda.mem_get_info()
    saver.memory_margin_bytes = total
    try:
        with pytest.raises(torch.OutOfMemoryError):
            with saver.region("margin"):
                full(4, 0)
    finally:
        saver.memory_margin_bytes = 0
    with pytest.raises(NotImplementedError):
        saver.memory_margin_bytes
    with pytest.raises(ValueError):
        saver.memory_margin_bytes = -1


def test_disabled_memory_is_ordinary(saver):
    with pytest.raises(AssertionError):
        with saver.disable():
            pass
    with saver.region("some"):
        inside = full(4, 1)
        with saver.disable():
            ordinary = full(4, 2)
        after = full(4, 3)
    saver.pause("some")
    assert holds(ordinary, 2)
    saver.resume("some")
    del inside, after


def test_configurations_are_of_a_thread(saver):
    made = []

    def work():
        made.append(full(24, 9))

    with saver.region("thread"):
        inside = full(24, 1)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    saver.pause("thread")
    assert made[0].data_ptr() and saver._impl._binary_wrapper.cdll.tms_state_of(
        made[0].data_ptr()
    ) in (0, 1)
    saver.resume("thread")
    del inside


def test_a_region_that_raises_restores_what_was(saver):
    cdll = saver._impl._binary_wrapper.cdll
    with pytest.raises(KeyError):
        with saver.region("raises"):
            raise KeyError
    assert not cdll.tms_get_interesting_region()
    assert cdll.tms_get_current_tag() == b"default"


def test_arguments_that_are_wrong(saver):
    for arguments, text in (
        ({"cpu_backup_backend": "pinned"}, "requires enable_cpu_backup=True"),
        ({"cpu_backup_backend": "tape", "enable_cpu_backup": True}, "one of mmap, pinned"),
        ({"tag": ""}, "tag must be"),
        ({"tag": 3}, "tag must be"),
    ):
        with pytest.raises(ValueError, match=text):
            with saver.region(**arguments):
                pass
    with pytest.raises(AssertionError):
        with saver.region(enable_cpu_backup=True, enable_disk_backup=True):
            pass
    with pytest.raises(AttributeError):
        saver.hook_mode = "torch"
    with pytest.raises(AttributeError):
        saver.hook_mode
    with pytest.raises(ValueError):
        TorchMemorySaver().hook_mode = "other"
    with pytest.raises(ValueError):
        HookUtilBase.create("other")
    assert saver.enabled is True


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_expandable_segments_are_refused(name, monkeypatch):
    monkeypatch.setenv(name, "expandable_segments:True")
    with pytest.raises(RuntimeError, match="expandable_segments"):
        TorchMemorySaver()._ensure_initialized()


def test_live_expandable_segments_are_refused(saver):
    before = _torch_pools.settings()
    _torch_pools.set_settings("expandable_segments:True")
    try:
        with pytest.raises(RuntimeError, match="expandable_segments"):
            TorchMemorySaver()._ensure_initialized()
    finally:
        _torch_pools.set_settings(before or "expandable_segments:False")


def test_expandable_segments_that_the_last_settings_do_not_name(saver):
    before = _torch_pools.settings()
    _torch_pools.set_settings("expandable_segments:True")
    _torch_pools.set_settings("max_split_size_mb:128")
    try:
        with pytest.raises(RuntimeError, match="expandable_segments"):
            TorchMemorySaver()._ensure_initialized()
    finally:
        _torch_pools.set_settings("expandable_segments:False")
        _torch_pools.set_settings(before or "expandable_segments:False")


@pytest.mark.parametrize("bad", [3, b"bytes", "a\0b", "x" * 256])
def test_tags_that_cannot_be(saver, bad):
    for call in (saver.pause, saver.resume):
        with pytest.raises(ValueError, match="tag must be"):
            call(bad)


@pytest.mark.parametrize(
    "name, value",
    [
        ("TMS_INIT_ENABLE", "2"),
        ("TMS_RETAIN_CPU_BACKUP", "on"),
        ("TMS_INIT_CPU_BACKUP_BACKEND", "tape"),
        ("TMS_DISK_BACKUP_CHUNK_MB", "0"),
        ("TMS_DISK_BACKUP_CHUNK_MB", "many"),
        ("TMS_DISK_BACKUP_CHUNK_MB", "17592186044416"),
    ],
)
def test_words_of_the_environment_that_are_unknown(saver, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name} must be .*{value}"):
        TorchMemorySaver()._ensure_initialized()


@pytest.mark.parametrize("bad", [-1, 1 << 64, "much"])
def test_margins_that_cannot_be(saver, bad):
    with pytest.raises(ValueError, match="memory_margin_bytes must be"):
        saver.memory_margin_bytes = bad


def test_a_resume_of_what_is_awake_drops_what_was_retained(saver):
    with saver.region("once", enable_cpu_backup=True):
        tensor = full(4, 1)
    saver.retain_cpu_backup = True
    saver.pause("once")
    saver.resume("once")
    saver.retain_cpu_backup = False
    assert saver.get_cpu_backup(tensor) is not None
    saver.resume("once")
    assert saver.get_cpu_backup(tensor) is None and holds(tensor, 1)


def test_a_folder_that_was_removed_is_made_again(saver, tmp_path):
    folder = tmp_path / "one" / "two"
    saver.set_disk_backup_dir(folder)
    with saver.region("again", enable_disk_backup=True):
        tensor = full(24, 3)
    folder.rmdir()
    folder.parent.rmdir()
    saver.pause("again")
    assert len(list(folder.iterdir())) == 1
    saver.resume("again")
    assert holds(tensor, 3)
    with pytest.raises(ValueError, match="path must name a folder"):
        saver.set_disk_backup_dir("")
    saver.set_disk_backup_dir(tmp_path)


def test_a_forked_child_leaves_the_files_of_its_parent(tmp_path):
    code = """
import os, sys, torch
from umf.torch_memory_saver import torch_memory_saver as saver
if os.environ["UMF_TEST_HOOK_MODE"] == "torch":
    saver.hook_mode = "torch"
saver.set_disk_backup_dir(sys.argv[1])
with saver.region("a", enable_disk_backup=True):
    tensor = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
saver.pause()
child = os.fork()
if child == 0:
    sys.exit(0)  # not os._exit: the child ends as a program does
os.waitpid(child, 0)
assert len(os.listdir(sys.argv[1])) == 1
saver.resume()
"""
    run_python(code, tmp_path, env={"UMF_TEST_HOOK_MODE": MODE})
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_cut_fails_the_resume(saver, tmp_path):
    saver.set_disk_backup_dir(tmp_path)
    with saver.region("cut", enable_disk_backup=True):
        tensor = full(32, 5)
    saver.pause("cut")
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    os.truncate(file, 100)
    errno = ctypes.CDLL(None).__errno_location
    errno.restype = ctypes.POINTER(ctypes.c_int)
    for _ in range(2):
        errno()[0] = 4  # EINTR of an earlier call
        with pytest.raises(RuntimeError, match=file.name):
            saver.resume("cut")
    file.write_bytes(content)
    saver.resume("cut")
    assert holds(tensor, 5)


def test_a_name_that_is_taken_is_not_followed(saver, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "backups"
    saver.set_disk_backup_dir(folder)
    with saver.region("link", enable_disk_backup=True):
        tensor = full(32, 5)
    name = f"torch_memory_saver_{os.getpid()}_{tensor.data_ptr():#x}"
    (folder / name).symlink_to(victim)
    saver.pause("link")
    assert victim.read_text() == "mine" and not (folder / name).is_symlink()
    content = (folder / name).read_bytes()
    (folder / "mine").write_bytes(content)
    (folder / name).rename(folder / "kept")
    (folder / "mine").rename(folder / name)  # another file of that name and content
    with pytest.raises(RuntimeError, match=name):
        saver.resume("link")
    (folder / "kept").rename(folder / name)
    saver.resume("link")
    assert holds(tensor, 5)


class _Torch:
    """As much of torch as names of files need."""

    def __init__(self, cuda=None, hip=None, xpu=False):
        self.version = types.SimpleNamespace(cuda=cuda, hip=hip)
        self.xpu = types.SimpleNamespace(is_available=lambda: xpu)


def test_the_file_is_that_of_the_torch_in_use(tmp_path, monkeypatch):
    package = tmp_path / "package"
    package.mkdir()
    for name in ("hook.abi3.so", "hook_cu12.abi3.so", "hook_cu13.abi3.so"):
        (tmp_path / name).touch()
    monkeypatch.setattr(utils, "__file__", str(package / "utils.py"))

    def found(**kind):
        monkeypatch.setitem(sys.modules, "torch", _Torch(**kind))
        return utils.get_binary_path_from_package("hook")

    assert found(cuda="12.4") == tmp_path / "hook_cu12.abi3.so"
    assert found(cuda="13.0") == tmp_path / "hook_cu13.abi3.so"
    assert found(hip="6.2") == found(xpu=True) == tmp_path / "hook.abi3.so"
    for kind in ({"cuda": "11.8"}, {}):
        with pytest.raises(RuntimeError):
            found(**kind)
    (package / "hook_cu13.abi3.so").touch()
    assert found(cuda="13.0") == package / "hook_cu13.abi3.so"
    (package / "hook_cu13.other.so").touch()
    with pytest.raises(RuntimeError, match="more than one"):
        found(cuda="13.0")


def test_the_file_where_users_say_that_there_is_an_xpu(monkeypatch):
    monkeypatch.setattr(utils, "is_xpu", lambda: True)
    path = utils.get_binary_path_from_package("torch_memory_saver_hook_mode_torch")
    assert path.name == "torch_memory_saver_hook_mode_torch.abi3.so"


def test_the_preload_mode_needs_one_entry(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    with pytest.raises(AssertionError):
        TorchMemorySaver()._ensure_initialized()
    with configure_subprocess():
        first, second = os.environ["LD_PRELOAD"].split(":")
        assert "torch_memory_saver_hook_mode_preload_cu" in first and second == "libother.so"
    assert os.environ["LD_PRELOAD"] == "libother.so"


def test_what_users_reach_into(saver):
    with saver.region("reached", enable_cpu_backup=True):
        pass
    assert saver._impl._hook_mode == MODE
    assert ("reached", True, False, "pinned", torch.cuda.current_device()) in saver._impl._mem_pools
    with saver._impl._with_region_config(
        tag="mine", enable_cpu_backup=False, cpu_backup_backend=None
    ):
        assert saver._impl._binary_wrapper.cdll.tms_get_current_tag() == b"mine"
    assert utils.get_binary_path_from_package("torch_memory_saver_hook_mode_torch").exists()
    with pytest.raises(RuntimeError):
        utils.get_binary_path_from_package("no_such_hook")
    with utils.change_env("UMF_TEST_VARIABLE", "1"):
        assert os.environ["UMF_TEST_VARIABLE"] == "1"
    assert "UMF_TEST_VARIABLE" not in os.environ
    assert testing_utils.get_device() == "cuda" and not testing_utils.is_xpu()
    testing_utils.empty_cache()
    assert testing_utils.get_and_print_gpu_memory("now") >= 0


@needs_gpu
@pytest.mark.parametrize("own_pool", [False, True])
def test_graphs_replay_after_a_resume(saver, own_pool):
    with saver.region("weights", enable_cpu_backup=True):
        weights = full(4, 2)
        result = full(4, 0)
    weights + 1  # warms up
    graph = torch.cuda.CUDAGraph()
    with saver.cuda_graph(graph, tag="graph", pool=torch.cuda.graph_pool_handle() if own_pool else None):
        result.copy_(weights + 1)
    for _ in range(3):
        saver.pause()
        saver.resume()
        graph.replay()
        assert holds(result, 3)


def test_the_last_word_is_a_clean_exit(tmp_path):
    code = """
import os, sys
import torch
from umf.torch_memory_saver import torch_memory_saver as saver
if os.environ.get("UMF_TEST_HOOK_MODE", "torch") == "torch":
    saver.hook_mode = "torch"
saver.set_disk_backup_dir(sys.argv[1])
with saver.region("a", enable_cpu_backup=True):
    sys.a = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
with saver.region("b", enable_disk_backup=True):
    sys.b = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
saver.pause()
"""
    run_python(code, tmp_path, env={"UMF_TEST_HOOK_MODE": MODE})
    assert not list(tmp_path.iterdir())


@needs_fake
def test_an_exit_waits_for_a_pause_of_another_thread(tmp_path):
    """The pause makes its file after the exit began; an exit that did not wait would leave half a file."""
    code = """
import ctypes, os, sys, threading
sys.path[:0] = sys.argv[3:]
import fake_driver
from umf.torch_memory_saver.binary_wrapper import BinaryWrapper

# Without torch, whose own destructors take longer than the pause.
library, libc, driver = BinaryWrapper(sys.argv[2]), ctypes.CDLL(None), ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert driver.cuInit(0) == driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
library.cdll.tms_set_disk_backup_dir(sys.argv[1].encode())
library.set_config(tag="a", interesting_region=True, enable_disk_backup=True)
make = library.cdll.tms_torch_malloc
make.restype, make.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
assert make(4 << 20, 0, None)
semaphore = ctypes.create_string_buffer(64)
libc.sem_init(semaphore, 0, 0)
# The GPU is at work until the semaphore is posted, and a pause waits for it with its lock held.
assert driver.cuLaunchHostFunc(None, libc.sem_wait, semaphore) == 0
calls, number = fake_driver.control().calls, fake_driver._NAMES.index("cuCtxSynchronize")
before = calls[number]

def pause():
    assert library.cdll.tms_pause(b"a") == 0, library.last_error()

def post():
    os.read(0, 1)
    libc.sem_post(semaphore)

for work in (pause, post):
    threading.Thread(target=work, daemon=True).start()
while calls[number] == before:
    pass
print("exit", flush=True)
libc.exit(0)  # the other threads go on while it runs the destructors
"""
    folders = [Path(__file__).parent, Path(__file__).parents[1]]
    hook = Path(umf.__file__).with_name("torch_memory_saver_hook_mode_torch.abi3.so")
    child = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path, hook, *folders],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout.readline() == b"exit\n"
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.5)
    assert not list(tmp_path.iterdir())
    child.communicate(b"1", timeout=300)
    assert child.returncode == 0 and not list(tmp_path.iterdir())
