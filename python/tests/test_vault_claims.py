"""Writable memory of vaults that outlives its holder: Vault.claim."""

import os
import signal
import subprocess
import sys
import threading

import pytest

import umf
from umf import vault

numpy = pytest.importorskip("numpy")

HOLDER = """
import os, sys
import umf.vault
with umf.vault.Vault(sys.argv[1], folder=sys.argv[2], start=False) as model, model.claim("kv", 1 << 16) as claim:
    for word in sys.stdin:
        answer = "done"
        word = word.split()
        try:
            if word[0] == "write":
                claim.memory.numpy("int64")[: int(word[1])] = int(word[1])
                claim.commit(word[1].encode())
            elif word[0] == "fenced":
                answer = claim.fenced
            elif word[0] == "renew":
                answer = claim.renew(timeout=60), claim.note.decode()
            elif word[0] == "die":
                os.kill(os.getpid(), 9)
        except umf.Error as error:
            answer = error.reason
        print(answer, flush=True)
"""


class Holder:
    """A process that has claimed "kv"."""

    def __init__(self, model, service):
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, model.name, service],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.ask("begin")

    def ask(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def holder(model, service):
    with Holder(model, service) as made:
        yield made


def test_a_killed_holder_leaves_its_memory(model, holder):
    with pytest.raises(umf.OutOfResourcesError, match=f"process {holder.process.pid}") as refused:
        model.claim("kv")
    assert refused.value.reason == "UMF_REASON_BUSY"
    assert holder.ask("write 5") == "done"
    assert holder.ask("die") == ""
    with model.claim("kv", timeout=60) as claim:
        values = claim.memory.numpy("int64")
        assert claim.note == b"5" and not claim.is_new and claim.memory.nbytes == 1 << 16
        assert values[:6].tolist() == [5] * 5 + [0]
        assert claim.epoch > 1 and not claim.fenced
        values[0] = 6
        del values
    with model.claim("kv", 1 << 16) as claim:
        assert claim.memory.numpy("int64")[0] == 6


def test_a_fence_takes_it_away(model, holder):
    holder.ask("write 3")
    assert holder.ask("fenced") == "False"
    with model.claim("kv", fence="epoch") as claim:
        assert claim.note == b"3"
        assert holder.ask("fenced") == "True"
        assert holder.ask("write 4") == "UMF_REASON_STALE"  # what is written is there, the note is not
        claim.commit(b"mine")
        assert claim.note == b"mine"
        epoch = claim.epoch
    number, note = holder.ask("renew").strip("()").split(", ")
    assert int(number) > epoch and note == "'mine'"
    assert holder.ask("write 4") == "done"


def test_a_fence_kills_a_stopped_holder(model, holder):
    holder.ask("write 7")
    os.kill(holder.process.pid, signal.SIGSTOP)
    with model.claim("kv", fence="kill", timeout=60) as claim:
        assert claim.note == b"7"
    assert holder.process.wait() == -signal.SIGKILL


def test_some_share_it(model, service):
    with vault.Vault(model.name, folder=service) as other:
        with model.claim("table", 4096, shared=True) as one, other.claim("table", shared=True) as two:
            assert one.is_new and not two.is_new and one.epoch == two.epoch
            memoryview(one.memory)[5] = 9
            assert memoryview(two.memory)[5] == 9
            with vault.Vault(model.name, folder=service) as third, pytest.raises(umf.OutOfResourcesError):
                third.claim("table")
            (state,) = model.claims()
            assert state[:3] == ("table", 4096, 0) and state.holders == 2 and state.shared
            assert state.process == os.getpid() and model.state().claims == 1
        assert other.claims()[0].holders == 0
        other.forget("table")
        other.forget("table")  # there is none
        assert model.claims() == [] and model.state().claims == 0


def test_a_key_is_claimed_once_by_a_vault(model):
    with model.claim("a", 100) as claim:
        for call in (lambda: model.claim("a"), lambda: model.claim("a", 100), lambda: model.forget("a")):
            with pytest.raises(BufferError, match="claimed by this vault"):
                call()
        memoryview(claim.memory)[0] = 1
        assert claim.renew() == claim.epoch
    with model.claim("a") as claim:
        assert claim.memory.numpy()[0] == 1
    won = []

    def claim_it():
        try:
            won.append(model.claim("b", 100))
        except BufferError:
            pass

    threads = [threading.Thread(target=claim_it) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(won) == 1
    won.pop().close()
    model.forget("b")


def test_views_keep_the_memory(model):
    claim = model.claim("a", 8000)
    array = claim.memory.numpy("float64", (10, 100))
    array[:] = 2
    assert numpy.from_dlpack(claim.memory).nbytes == claim.memory.nbytes == 8192
    for end in (claim.close, model.close):
        with pytest.raises(BufferError, match="1 views"):
            end()
    memory = claim.memory
    del claim
    assert array.sum() == 2000 and model.claims()[0].holders == 1
    del array, memory  # the last reference
    assert model.claims()[0].holders == 0
    claim = model.claim("a")
    memory = claim.memory
    claim.close()
    claim.close()
    for late in (lambda: memoryview(memory), lambda: memory.ptr, lambda: claim.commit(b""), lambda: claim.fenced, claim.renew):
        with pytest.raises(ValueError):
            late()
    again = model.claim("a")
    model.close()
    with pytest.raises(ValueError):
        memoryview(again.memory)
    again.close()


def test_a_dropped_claim_is_stale(model):
    with model.claim("a", 100) as claim:
        model.drop()
        for call in (lambda: claim.commit(b"x"), claim.renew):
            with pytest.raises(umf.InvalidArgumentError) as refused:
                call()
            assert refused.value.reason == "UMF_REASON_STALE"
    with model.claim("a", 100) as claim:
        assert claim.is_new and claim.note == b""


def test_a_child_of_fork_has_no_claim(model):
    claim = model.claim("a", 100)
    memoryview(claim.memory)[0] = 1
    child = os.fork()
    if child == 0:
        try:
            for call in (lambda: memoryview(claim.memory), lambda: claim.memory.ptr, lambda: claim.fenced, claim.renew,
                         lambda: claim.commit(b"x")):  # fmt: skip
                with pytest.raises(ValueError):
                    call()
            claim.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    claim.commit(b"mine")
    assert memoryview(claim.memory)[0] == 1
    claim.close()


class _Signal(Exception):
    pass


def test_a_signal_ends_the_wait_for_a_holder(model, service):
    def interrupt(*_):
        raise _Signal

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with vault.Vault(model.name, folder=service) as other, model.claim("a", 100):
            with pytest.raises(_Signal):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                other.claim("a", timeout=3600)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with vault.Vault(model.name, folder=service) as other:
        other.claim("a").close()


def _each_moment(call):
    """Calls it as often as a handler of a signal could raise in it, with the exception at the next such moment."""
    moment, has_raised = 0, True
    while has_raised:
        moment += 1
        has_raised, left = False, moment

        def hook(frame, event, arg):
            nonlocal left
            left -= event in ("call", "c_return")  # the interpreter looks for signals at both
            if left == 0:
                sys.setprofile(None)
                raise _Signal

        sys.setprofile(hook)
        try:
            call()
        except _Signal:
            has_raised = True
        finally:
            sys.setprofile(None)
        yield moment


def test_a_signal_loses_no_claim(model):
    for moment in _each_moment(lambda: model.claim("a", 100).close()):
        model.claim("a", 100).close()
        assert model.claims()[0].holders == 0, moment
    assert moment > 5
    claim = model.claim("a")
    for moment in _each_moment(lambda: claim.close()):
        claim.close()
        assert model.claims()[0].holders == 0, moment
        claim = model.claim("a")
    assert moment > 2
    claim.close()
    for _ in _each_moment(lambda: model.forget("b")):
        model.claim("b", 100).close()


def test_mistakes(model, tmp_path):
    model.claim("b", 100).close()
    for reason, call in (
        ("UMF_REASON_ABSENT", lambda: model.claim("a")),
        ("UMF_REASON_IDENTITY", lambda: model.claim("b", 100000)),
        ("", lambda: model.claim("")),
        ("", lambda: model.claim("k" * 256, 100)),
        ("", lambda: model.claim("c", 1 << 60)),
        ("", lambda: model.forget("")),
    ):
        with pytest.raises(umf.InvalidArgumentError) as refused:
            call()
        assert refused.value.reason == reason
    with model.claim("b") as claim, pytest.raises(umf.InvalidArgumentError, match="256 bytes"):
        claim.commit(b"n" * 257)
    for call in (lambda: model.claim("c\0d", 100), lambda: model.claim("c", 100, fence="none")):
        with pytest.raises(ValueError):
            call()
    for number in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            model.claim("c", number)
    for call in (lambda: model.claim("c", "x"), lambda: model.claim("c", 100, timeout="x"), lambda: model.claim(5, 100)):
        with pytest.raises((TypeError, AttributeError)):
            call()
    with vault.Vault(f"file:{tmp_path / 'folder'}") as folder:
        for call in (lambda: folder.claim("a", 100), lambda: folder.forget("a")):
            with pytest.raises(umf.NotSupportedError):
                call()
        assert folder.claims() == [] and folder.state().claims == 0
    assert [one.key for one in model.claims()] == ["b"]
    with model.claim("c", 100):  # none of the mistakes has left it claimed
        pass
    model.close()
    for call in (lambda: model.claim("b"), model.claims, lambda: model.forget("b")):
        with pytest.raises(ValueError):
            call()
