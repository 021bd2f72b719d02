"""Vaults: umf.vault, with a real service in a folder of its own."""

import contextlib
import gc
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading

import pytest
from helpers import run_python

import umf
from umf import vault

numpy = pytest.importorskip("numpy")


def tensors_of(path, tensors, head=None):
    """A safetensors file of (name, type, shape, bytes)."""
    found, at = {}, 0
    for name, dtype, shape, data in tensors:
        found[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(found if head is None else head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors))
    return path


def test_a_folder_needs_no_service(tmp_path, monkeypatch):
    monkeypatch.setenv("UMF_UMFD", "/missing")
    monkeypatch.setenv("UMF_VAULT_DIR", str(tmp_path / "missing"))
    name = f"file:{tmp_path / 'model'}"
    with vault.Vault(name) as model:
        with model.draft() as draft:
            draft.put("weight", numpy.arange(1000, dtype="float32"))
            draft.put("own", b"abc", private=True)
            draft.zero("cache", 100)
            with pytest.raises(umf.Error):
                vault.Vault(name).draft()  # one at a time
        assert model.state()[:2] == (1, 1) and model.wait(0, 0) == vault.Event(1, "committed", 1)
        with pytest.raises(umf.NotSupportedError):
            model.drop_draft()
    code = (
        "import sys, umf.vault\n"
        "with umf.vault.Vault(sys.argv[1]) as model, model.attach() as view:\n"
        "    assert view['weight'].numpy().sum() == 499500 and view.verify() == 2\n"
        "    assert bytes(view['own']) == b'abc' and bytes(view['cache']) == bytes(100)\n"
    )
    run_python(code, name)
    assert sorted(one.name for one in (tmp_path / "model").iterdir()) == ["1.vault", "lock"]


def test_a_fleet_has_one_model():
    if not os.path.exists("/proc/self/smaps_rollup"):
        pytest.skip("the kernel does not sum the memory of a process")
    program = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "python", "fleet.py")
    words = [sys.executable, program, "--mib", "16", "--processes", "3"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "3 processes attached 16 MiB" in done.stdout
    times = float(done.stdout.split()[-4])
    assert 0.9 < times < 2, done.stdout  # each process also has a little of its own


def test_a_copy_of_another_vault(model, tmp_path):
    with model.draft(identity=b"v1") as draft:
        draft.put("a.weight", numpy.arange(10))
        draft.put("b", b"abc")
    with vault.Vault(f"file:{tmp_path / 'stored'}") as stored:
        with model.attach() as view, stored.draft() as draft:
            draft.copy(view, "a.")
            draft.put("c", b"new")
        with stored.attach(identity=b"v1") as view:
            assert list(view) == ["a.weight", "c"] and view["a.weight"].numpy().sum() == 45
            with pytest.raises(ValueError):
                draft.copy(view)
        with stored.draft() as draft:
            with pytest.raises(ValueError):
                draft.copy(view)
            draft.put("d", b"new")


def test_dlpack(tmp_path):
    with vault.Vault(f"file:{tmp_path / 'model'}") as model:
        with model.draft() as draft:
            draft.put("weight", numpy.arange(6, dtype="float32").reshape(2, 3))
            draft.put("empty", numpy.empty((0, 3), "int16"))
            draft.put("raw", b"abc", note=b"text")
            draft.put("own", numpy.ones(3, "uint64"), private=True)
            draft.put("brain", b"\0\0\x80?", note=b'{"dtype": "BF16", "shape": [2]}')
            draft.put("lies", b"abc", note=b'{"dtype": "F64", "shape": [2]}')
            draft.put("huge", b"abc", note=b'{"dtype": "F64", "shape": [0, 4611686018427387904, 8]}')
        view = model.attach()
        entry = view["weight"]
        weight = numpy.from_dlpack(entry)
        assert weight.dtype == "float32" and weight.tolist() == [[0, 1, 2], [3, 4, 5]] and not weight.flags.writeable
        assert numpy.from_dlpack(view["empty"]).shape == (0, 3)
        assert bytes(numpy.from_dlpack(view["raw"])) == bytes(numpy.from_dlpack(view["lies"])) == b"abc"
        own = numpy.from_dlpack(view["own"])
        own[0] = 5
        assert view["own"].numpy().tolist() == [5, 1, 1] and view["own"].__dlpack_device__() == (1, 0)
        with pytest.raises((BufferError, RuntimeError)):  # NumPy has no such type
            numpy.from_dlpack(view["brain"])
        for refused in ({}, {"copy": True}, {"stream": 1}, {"dl_device": (2, 0)}):
            with pytest.raises(BufferError):
                entry.__dlpack__(**refused)
        with pytest.raises(BufferError, match="larger"):
            view["huge"].__dlpack__(max_version=(1, 0))
        with pytest.raises(BufferError, match="2 views"):
            view.close()
        del weight, own
        view.close()
        with pytest.raises(ValueError):
            entry.__dlpack__(max_version=(1, 0))
        for wrong in ((entry, 2, 0, (1,)), (entry, 256, 1, (1,)), (entry, 1, 1, (1,) * 65)):
            with pytest.raises(ValueError):
                umf._core.dlpack_region(*wrong, True)
        with pytest.raises(TypeError):
            umf._core.dlpack_region(b"abc", 1, 1, (1,), True)


def test_a_writer_and_a_reader(model, service):
    with model.draft(identity=b"v1") as draft:
        draft.put("array", numpy.arange(1000, dtype="float32").reshape(10, 100))
        draft.put("bytes", b"hello", note=b"text")
        draft.put("own", b"abc", private=True)
        draft.zero("cache", 100)
        filled = draft.empty("filled", (3, 4), "int16")
        filled[:] = 7
        del filled
    assert draft.generation == 1
    code = (
        "import sys, umf.vault\n"
        "with umf.vault.Vault(sys.argv[1], folder=sys.argv[2], start=False) as model, model.attach() as view:\n"
        "    assert list(view) == ['array', 'bytes', 'cache', 'filled', 'own']\n"
        "    assert view['array'].numpy().sum() == 499500 and view['array'].numpy().shape == (10, 100)\n"
    )
    run_python(code, model.name, service)
    with model.attach(identity=b"v1") as view:
        assert view.generation == 1 and len(view) == 5 and "own" in view and "other" not in view
        entry = view["bytes"]
        assert bytes(entry) == b"hello" and entry.note == b"text" and entry.nbytes == len(entry) == 5
        with pytest.raises((BufferError, TypeError)):
            memoryview(entry)[0] = 1
        assert not view["array"].numpy().flags.writeable
        memoryview(view["own"])[0:1] = b"x"  # a copy of this process
        assert bytes(view["own"]) == b"xbc" and view["own"].private
        assert bytes(view["cache"]) == bytes(100)
        memoryview(view["cache"])[5] = 1
        assert (view["filled"].numpy() == 7).all() and view["filled"].numpy().dtype == "int16"
        assert [one.key for one in view.entries("f")] == ["filled"]
        with pytest.raises(KeyError):
            view["other"]
    with pytest.raises(umf.InvalidArgumentError):
        model.attach(identity=b"v2")


def test_generations(model, service):
    with model.draft() as draft:
        draft.put("a", b"one")
        draft.put("b", b"two")
    with model.attach() as old:
        with model.draft(from_generation=1) as draft:
            draft.put("a", b"new")
            draft.keep()
        assert bytes(old["a"]) == b"one"
    with model.attach() as view:
        assert {key: bytes(entry) for key, entry in view.items()} == {"a": b"new", "b": b"two"}
    state = model.state()
    assert state.current == 2 and state.writer == 0 and state.readers >= 1 and state.bytes > 0
    names = set(vault.list_vaults(service))
    assert names and names.isdisjoint(vault.list_vaults(os.environ["UMF_VAULT_DIR"]))
    event = model.wait(0, 10)
    assert event and event.kind == "committed"
    assert model.wait(model.state().event, 0.01) is None
    model.drop()
    with pytest.raises(umf.InvalidArgumentError):
        model.attach()


def test_sums(model):
    with model.draft() as draft:
        draft.put("a", b"one")
        draft.put("own", b"two", private=True)
        draft.zero("cache", 10)
        draft.commit(digest=True)
    with model.attach() as view:
        assert view.verify() == 2 and view.verify("a") == 1
        memoryview(view["own"])[0] = 1
        with pytest.raises(umf.InvalidArgumentError, match="own"):
            view.verify()
        assert view.verify("a") == 1
    with model.draft() as draft:
        draft.put("a", b"one")
    with model.attach() as view, pytest.raises(umf.NotSupportedError):
        view.verify()


def test_an_exception_aborts(model):
    with pytest.raises(ZeroDivisionError), model.draft() as draft:
        draft.put("a", b"one")
        1 / 0
    assert model.state().current == 0
    with model.draft() as draft, pytest.raises(umf.OutOfResourcesError):
        model.draft(timeout=0.01)
    with pytest.raises(ValueError):
        draft.put("b", b"late")


def test_views_keep_memory(model):
    draft = model.draft()
    array = draft.empty("a", 100)
    for end in (draft.commit, draft.abort, model.close):
        with pytest.raises(BufferError, match="1 views"):
            end()
    array[:] = 1
    del array
    assert draft.commit() == 1
    view = model.attach()
    entry = draft_entry = view["a"]
    array = entry.numpy()
    with pytest.raises(BufferError):
        model.close()
    with pytest.raises(BufferError):
        view.close()
    assert array.sum() == 100
    del array
    view.close()
    with pytest.raises(ValueError):
        memoryview(draft_entry)
    with pytest.raises(ValueError):
        entry.ptr


def test_a_signal_after_a_move_leaves_the_right_generation(model, monkeypatch):
    for value in b"ab":
        with model.draft() as draft:
            draft.put("weight", bytes([value]) * 4096)
        if value == ord("a"):
            view = model.attach()
    real = umf._core.vault_move

    def interrupted(*args):
        real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(umf._core, "vault_move", interrupted)
    with pytest.raises(KeyboardInterrupt):
        view.move()
    assert not view.suspended and bytes(view["weight"]) == b"b" * 4096
    assert view.generation == 2
    view.close()


def test_an_entry_that_is_put_keeps_its_type(model, tmp_path):
    with model.draft() as draft:
        draft.put("weight", numpy.ones((2, 3), "float32"))
    with model.attach() as view, vault.Vault(f"file:{tmp_path}") as other:
        with other.draft(device="cpu:0") as draft:
            draft.put("weight", view["weight"])
        with other.attach() as copied:
            assert copied["weight"].tensor == view["weight"].tensor


def test_a_view_is_equal_to_itself_only(model):
    with model.draft() as draft:
        draft.put("a", b"x")
    with model.attach() as one, model.attach() as other:
        assert one == one and one != other and len({one, other, one}) == 2


def test_the_last_reference_closes(service):
    model = vault.Vault("references", folder=service)
    model.draft().put("a", b"x")
    model.draft().abort()  # the one before was aborted with its last reference
    with model.draft() as draft:
        draft.put("a", numpy.ones(10))
    array = model.attach()["a"].numpy()
    del model, draft
    assert array.sum() == 10


def test_mistakes(model, service):
    with model.draft() as draft:
        for key, data in (("", b"x"), ("k" * 256, b"x"), ("a", b"")):
            with pytest.raises(ValueError):
                draft.put(key, data)
        with pytest.raises(TypeError):
            draft.put("a", 5)
        with pytest.raises(ValueError):
            draft.put("a\0b", b"x")
        with pytest.raises(ValueError):
            draft.put("a", b"x", note=b"n" * 65536)
        with pytest.raises(ValueError):
            draft.empty("a", (5, 0))
        draft.put("big-endian", numpy.arange(5, dtype=">i4"))
        draft.put("strided", numpy.arange(10)[::2])
        draft.put("empty", numpy.ones((0, 3), dtype="float32"))
        draft.put("scalar", numpy.float64(3))
    with model.attach() as view:
        assert view["big-endian"].note == b"" and (view["big-endian"].numpy(">i4") == range(5)).all()
        assert (view["strided"].numpy() == [0, 2, 4, 6, 8]).all()
        assert view["empty"].numpy().shape == (0, 3)
        assert view["scalar"].numpy() == 3
    with pytest.raises(TypeError):
        vault.Vault("a", nothing=1)
    with pytest.raises(umf.InvalidArgumentError):
        vault.Vault("", folder=service)
    with pytest.raises(umf.DependencyError):
        vault.Vault("a", folder=service + "/none", start=False)
    model.close()
    for call in (model.state, model.attach, model.draft):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("number", [-1, 1 << 64, (1 << 64) + 1])
def test_a_number_that_does_not_fit_is_refused(model, service, number):
    with model.draft() as draft:
        draft.put("a", b"x")
    for call in (
        lambda: model.attach(number),
        lambda: model.drop(number),
        lambda: model.draft(from_generation=number),
        lambda: model.wait(number, 0),
        lambda: vault.Vault("other", folder=service, limit=number),
        lambda: vault.Vault("other", folder=service, keep=number),
        lambda: vault.Vault("other", folder=service, keep=1 << 32),
    ):
        with pytest.raises(OverflowError):
            call()
    with model.draft() as draft:
        draft.put("a", b"y")
        with pytest.raises(OverflowError):
            draft.commit(group="all", group_count=number)
    assert model.attach(timeout=float("inf")).generation == 2


def test_safetensors(model, tmp_path):
    weights = numpy.arange(12, dtype="float32")
    tensors_of(
        tmp_path / "a.safetensors",
        [("w", "F32", [3, 4], weights.tobytes()), ("half", "BF16", [2], b"\x80\x3f\x00\x40"), ("none", "I8", [0], b"")],
    )
    tensors_of(tmp_path / "b.safetensors", [("b", "I64", [], numpy.int64(5).tobytes())])
    assert vault.load_safetensors(model, tmp_path, identity=b"m") == 1
    with model.attach(identity=b"m") as view:
        assert sorted(view) == ["b", "half", "none", "w"]
        assert (view["w"].numpy() == weights.reshape(3, 4)).all()
        assert view["b"].numpy() == 5 and view["b"].numpy().shape == ()
        assert view["none"].numpy().shape == (0,)
        assert view["half"].tensor == ("BF16", (2,))
        with pytest.raises(TypeError, match="BF16"):
            view["half"].numpy()
        assert view["half"].numpy("uint16").tolist() == [0x3F80, 0x4000]
    with model.draft() as draft:
        assert draft.load_safetensors(tmp_path / "b.safetensors", "p.") == 1
    with model.attach() as view:
        assert list(view) == ["p.b"]


@pytest.mark.parametrize(
    "head",
    [
        [],
        {"w": 5},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
        {"w": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}},
        {"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}},
        {"w": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [1]}},
        {"w": {"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 1 << 126]}},
    ],
)
def test_a_safetensors_file_that_lies(model, tmp_path, head):
    path = tensors_of(tmp_path / "a.safetensors", [("w", "F32", [1], b"1234")], head)
    with pytest.raises(ValueError, match="a.safetensors"):
        vault.load_safetensors(model, path)
    assert model.state().current == 0


@pytest.mark.parametrize("data", [b"", b"1234567", b"\xff" * 8, b"\xff" * 100, struct.pack("<Q", 2) + b"{", struct.pack("<Q", 60) + b"[" * 60,
                                  struct.pack("<Q", 13) + b'{"a":1,"a":1}'])
def test_a_file_that_is_none(model, tmp_path, data):
    (tmp_path / "a.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match="a.safetensors"):
        vault.load_safetensors(model, tmp_path)
    with pytest.raises(FileNotFoundError):
        vault.load_safetensors(model, tmp_path / "nothing")


def test_two_files_with_one_name(model, tmp_path):
    for name in "ab":
        tensors_of(tmp_path / (name + ".safetensors"), [("w", "I8", [1], b"1")])
    with pytest.raises(ValueError, match="another file"):
        vault.load_safetensors(model, tmp_path)


def test_threads_read(model):
    with model.draft() as draft:
        draft.put("a", numpy.arange(1000))
    failed = []

    def read():
        try:
            for _ in range(50):
                with model.attach() as view:
                    assert view["a"].numpy().sum() == 499500
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed


def test_a_close_beside_a_call_is_refused(model):
    begun = threading.Event()

    def wait():
        begun.set()
        model.wait(model.state().event, 60)

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    while not model._uses.in_use:
        pass
    with pytest.raises(BufferError, match="in progress"):
        while model._uses.in_use:
            model.close()
    with model.draft() as draft:
        draft.put("a", b"x")
    thread.join()


def test_no_close_under_a_call_of_a_draft(model, service):
    draft = model.draft()
    draft.put("a", b"x")
    failed = []

    def commit():
        try:
            draft.commit(group="alone", group_count=2, timeout=600)
        except umf.Error as error:
            failed.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    while not model._uses.in_use and thread.is_alive():
        pass
    with pytest.raises(BufferError):
        while thread.is_alive():
            model.close()
    with vault.Vault(model.name, folder=service) as other:
        other.drop_draft()  # ends the wait
    thread.join()
    assert len(failed) == 1
    draft.put("b", b"more")  # in other memory: that of before is sealed
    with pytest.raises(umf.InvalidArgumentError, match="ended"):
        draft.commit()
    draft.abort()


def test_no_close_under_a_call_of_a_view(model):
    with model.draft() as draft:
        draft.put("a", numpy.zeros(1 << 24, "uint8"))
        draft.commit(digest=True)
    view = model.attach()
    ends = threading.Event()

    def verify():
        while not ends.is_set():
            view.verify()

    thread = threading.Thread(target=verify)
    thread.start()
    while not view._uses.in_use and thread.is_alive():
        pass
    for _ in range(20):
        for one in (model, view):
            with view._uses, pytest.raises(BufferError):  # as the other thread is in one
                one.close()
    assert thread.is_alive()
    ends.set()
    thread.join()
    view.close()


def test_threads_find_while_others_close(model):
    with model.draft() as draft:
        draft.put("a", b"kept")

    def find():
        for _ in range(200):
            try:
                view = views[0]
                assert bytes(view["a"]) == b"kept"
            except ValueError:
                pass

    views = [model.attach()]
    threads = [threading.Thread(target=find) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        views[0], old = model.attach(), views[0]
        try:
            old.close()
        except BufferError:
            pass
    for thread in threads:
        thread.join()
    views.clear()


def test_a_put_that_is_refused_leaves_no_entry(model):
    with model.draft() as draft:
        draft.put("a", b"x")
        with pytest.raises((TypeError, ValueError, BufferError)):
            draft.put("b", memoryview(bytearray(10))[::2])
        with pytest.raises(ValueError):
            draft.empty("c", (-2, -3))
    with model.attach() as view:
        assert list(view) == ["a"]


def test_a_wait_without_an_event_is_none_in_each_thread(tmp_path, model):
    for waited in (model, vault.Vault(f"file:{tmp_path / 'model'}")):
        with waited.draft() as draft:
            draft.put("a", b"x")
        event, seen = waited.state().event, []
        thread = threading.Thread(target=lambda: seen.append(waited.wait(event, 0.25)))
        thread.start()
        thread.join()
        assert seen == [None]


def test_a_commit_with_a_wrong_argument_changes_nothing(model):
    with model.draft() as draft:
        for wrong in ({"group_count": -1}, {"group": "a\0b"}, {"group": 5}, {"timeout": "x"}):
            with pytest.raises((TypeError, ValueError, OverflowError)):
                draft.commit(**wrong)
        draft.put("b", b"456")


def test_a_child_of_fork_ends_while_its_parent_commits(model):
    draft = model.draft()
    draft.put("a", b"x")
    thread = threading.Thread(
        target=lambda: pytest.raises(umf.Error, draft.commit, group="alone", group_count=2, timeout=1)
    )
    thread.start()
    while not model._uses.in_use and thread.is_alive():
        pass
    child = os.fork()
    if child == 0:
        try:
            draft.abort()
            with pytest.raises(ValueError):
                draft.put("b", b"x")
        finally:
            os._exit(0 if not draft._uses.is_open else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()
    draft.abort()


def test_a_child_of_fork_reads(model):
    with model.draft() as draft:
        draft.put("a", b"kept")
    view = model.attach()
    entry = view["a"]
    child = os.fork()
    if child == 0:
        try:
            fine = bytes(entry) == b"kept"
            try:
                model.state()
            except umf.InvalidArgumentError:
                os._exit(3 if fine else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert bytes(entry) == b"kept" and model.state().current == 1


class _Signal(Exception):
    pass


@contextlib.contextmanager
def _alarms(handler):
    """A function that lets a signal come soon, which `handler` gets."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 5e-4))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _raise(*_):
    raise _Signal


def test_signals_leave_no_call_counted_and_lose_no_draft(model):
    with model.draft() as draft:
        draft.put("a", b"x")
    view = model.attach()
    with _alarms(_raise) as alarm:
        for one in (lambda: view["a"], lambda: model.draft().abort(), lambda: model.attach().close()):
            for _ in range(200):
                with contextlib.suppress(_Signal):
                    alarm()
                    while True:
                        one()
    model.draft().abort()  # the place of the writer is free
    view.close()
    model.close()  # no call is counted


def test_a_signal_ends_the_wait_for_a_service_that_does_not_answer():
    folder = tempfile.mkdtemp(prefix="umf_hung_")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hung, _alarms(_raise):
        hung.bind(folder + "/vault")
        hung.listen()

        def interrupt():
            with hung.accept()[0] as client:
                client.recv(1)  # the service was asked, and does not answer
                os.kill(os.getpid(), signal.SIGALRM)
                left.wait()

        left = threading.Event()
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(_Signal):
            vault.Vault("a", folder=folder, start=False, timeout=3600)
        left.set()
        thread.join()
    shutil.rmtree(folder)


def test_a_handler_that_aborts_a_draft_under_a_put_is_refused(model):
    refused = []

    def abort(*_):
        try:
            draft.abort()
        except BufferError as error:
            refused.append(str(error))

    with _alarms(abort) as alarm:
        for _ in range(10000):
            with model.draft() as draft:
                alarm()
                with contextlib.suppress(ValueError):
                    for i in range(50):
                        draft.put(str(i), b"x" * 100)
                signal.setitimer(signal.ITIMER_REAL, 0)
                draft.abort()
            if refused:
                break
    assert "a call of the draft is in progress" in refused[0]


def test_a_child_of_fork_leaves_all_to_its_parent(model):
    with model.draft() as draft:
        draft.put("a", b"kept")
    view, draft = model.attach(), model.draft()
    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(umf.InvalidArgumentError, match="parent process"):
                view["a"]
            with pytest.raises(umf.InvalidArgumentError, match="parent process"):
                "other" in view
            for one in (view, draft, model):
                one.close()
                one.close()
            with pytest.raises(ValueError, match="closed"):
                view["a"]
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bytes(view["a"]) == b"kept"
    draft.put("a", b"new")
    assert draft.commit() == 2
    with pytest.raises(ValueError, match="closed"):
        draft.commit()


def test_cycles_with_arrays_are_collected(model, service):
    with model.draft() as draft:
        draft.put("a", numpy.ones(100))
    sums = []

    class Last(list):
        def __del__(self):
            sums.append(self[0].sum())

    def make():
        own = vault.Vault(model.name, folder=service)
        cycle = Last([own.attach()["a"].numpy(), own])
        draft = own.draft()
        cycle += [draft, draft.empty("b", 100), cycle]

    make()
    gc.collect()
    assert sums == [100]
    model.draft().abort()


def test_the_writer_ends(service):
    code = (
        "import sys, os, umf.vault\n"
        "model = umf.vault.Vault('ends', folder=sys.argv[1])\n"
        "with model.draft() as draft: draft.put('a', b'stays')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, service]).returncode == -9
    with vault.Vault("ends", folder=service) as model, model.attach() as view:
        assert bytes(view["a"]) == b"stays"
