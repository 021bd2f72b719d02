"""Recordings and snapshots."""

import json
import os
import re
import threading
from html import unescape

import pytest
from helpers import run_python

import umf

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def pool():
    with umf.Pool("disjoint:name=recorded over os") as made:
        yield made


def kinds(recording):
    return [event.kind for event in recording.events()]


def test_events_say_what_happened(pool):
    with umf.record() as recording:
        recording.mark("step 1")
        kept, gone = pool.allocate(3 * KIB), pool.allocate(5 * KIB)
        address = gone.ptr
        gone.free()
        recording.mark("step 2")
    assert not recording.state().running
    events = [one for one in recording.events() if one.kind in ("mark", "alloc", "free")]
    assert [(one.kind, one.size) for one in events if one.kind != "free"] == [
        ("mark", 0),
        ("alloc", 3 * KIB),
        ("alloc", 5 * KIB),
        ("mark", 0),
    ]
    assert [one.where for one in events if one.kind == "mark"] == ["step 1", "step 2"]
    (free,) = [one for one in events if one.kind == "free"]
    assert free.address == address and "recorded" in free.where
    assert free.thread == threading.get_native_id() and free.stack == ()
    times = [one.time for one in recording.events()]
    assert times == sorted(times) and times[0] >= 0
    kept.free()


def test_what_lives_is_told_by_pool_and_place(pool):
    with umf.record(stacks=True, leaks=True) as recording:
        kept = [pool.allocate(KIB) for _ in range(3)]
        pool.allocate(MIB).free()
        state = recording.state()
        assert state.running and state.live_count == 3 and state.live_bytes == 3 * KIB
        assert state.events >= 5 and state.dropped == 0 and state.used > 0
        running = recording.leaks()
    leaks = recording.leaks()
    assert sum(one.allocations for one in leaks) == 3 == sum(one.allocations for one in running)
    assert sum(one.bytes for one in leaks) == 3 * KIB
    assert all("recorded" in one.pool and one.age >= 0 for one in leaks)
    assert any("umfPool" in frame or "_core" in frame for one in leaks for frame in one.stack)
    for one in kept:
        one.free()


def test_what_died_with_its_pool_is_no_leak():
    with umf.record(leaks=True) as recording:
        with umf.Pool("disjoint over os") as mine:
            mine.allocate(KIB).free()
    assert recording.leaks() == []


def test_filters(pool):
    with umf.Pool("disjoint over os") as other, umf.record(
        min_size=2 * KIB, max_size=4 * KIB, pools=[pool]
    ) as recording:
        for size in (KIB, 3 * KIB, 5 * KIB):
            pool.allocate(size).free()
        other.allocate(3 * KIB).free()
    assert [one.size for one in recording.events() if one.kind == "alloc"] == [3 * KIB]


def test_the_file_is_where_it_was_wanted(pool, tmp_path):
    with umf.record(tmp_path / "run-%p.umfrec", size=MIB) as recording:
        pool.allocate(KIB).free()
        recording.save(tmp_path / "copy.umfrec")
    assert recording.path == str(tmp_path / f"run-{os.getpid()}.umfrec")
    recording.save(tmp_path / "again.umfrec")
    assert "alloc" in kinds(recording)
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "again.umfrec",
        "copy.umfrec",
        f"run-{os.getpid()}.umfrec",
    ]


def test_a_temporary_file_goes_with_its_recording(pool):
    with umf.record() as recording:
        pass
    path = recording.path
    assert os.path.exists(path)
    del recording
    assert not os.path.exists(path)


def test_an_exception_ends_the_recording(pool):
    with pytest.raises(KeyError):
        with umf.record() as recording:
            raise KeyError
    assert not recording.state().running
    recording.stop()
    recording.mark("is ignored")


def test_wrong_arguments(pool, tmp_path):
    for wrong in ({"size": 1}, {"stacks": 65}):
        with pytest.raises(umf.InvalidArgumentError):
            umf.record(**wrong)
    for name in ("size", "stacks", "min_size", "max_size", "rate"):
        with pytest.raises(ValueError, match=name):
            umf.record(**{name: -1})
    with pytest.raises(TypeError, match="umf.Pool"):
        umf.record(pools=["disjoint"])
    with pytest.raises(umf.OutOfResourcesError):
        umf.record(tmp_path / "no folder" / "file")
    with umf.record():
        with pytest.raises(umf.OutOfResourcesError, match="running already"):
            umf.record()
    with umf.Pool("disjoint over os") as closed:
        pass
    with pytest.raises(ValueError):
        umf.record(pools=[closed])


def test_no_temporary_file_stays_after_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(umf.InvalidArgumentError):
        umf.record(stacks=65)
    umf.snapshot()
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_none(pool, tmp_path):
    with umf.record(tmp_path / "file") as recording:
        pass
    (tmp_path / "file").write_bytes(b"something else")
    for read in (recording.leaks, recording.html, lambda: list(recording.events())):
        with pytest.raises(umf.InvalidArgumentError, match="file"):
            read()


def test_the_picture(pool):
    with umf.record(stacks=True) as recording:
        kept = pool.allocate(KIB)
        recording.mark("a <mark>")
    page = recording.html()
    assert page.lstrip().lower().startswith("<!doctype html") and "http://" not in page
    frame = recording._repr_html_()
    (inside,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert unescape(inside) == page and 'sandbox="allow-scripts"' in frame
    kept.free()


def test_a_snapshot_has_every_pool(pool):
    kept = pool.allocate(100 * KIB)
    with umf.record(leaks=True) as recording:
        more = pool.allocate(200 * KIB)
        taken = recording.snapshot()
    assert json.loads(json.dumps(taken)) == taken
    assert taken["pid"] == os.getpid() and taken["time"] > 1e9
    (mine,) = [one for one in taken["pools"] if one["handle"] == pool.handle]
    assert mine["held"] >= 300 * KIB and mine["asleep"] is False
    assert mine["provider"] in [one["name"] for one in taken["providers"]]
    assert any(
        span["address"] <= kept.ptr < span["address"] + span["size"] for span in mine["spans"]
    )
    (live,) = [one for one in taken["allocations"] if one["address"] == more.ptr]
    assert live["size"] == 200 * KIB and live["pool"] == mine["name"]
    assert umf.snapshot()["allocations"] == []
    kept.free()
    more.free()


def test_a_snapshot_of_a_pool_that_sleeps():
    with umf.Pool("disjoint over linux_vmm") as sleeper:
        buffer = sleeper.allocate(MIB)
        umf.suspend(sleeper)
        (mine,) = [one for one in umf.snapshot()["pools"] if one["handle"] == sleeper.handle]
        assert mine["asleep"] is True and mine["away"] >= MIB
        umf.resume(sleeper)
        buffer.free()


def test_a_child_of_fork_does_not_record():
    run_python(
        """
import os, umf
pool = umf.Pool("disjoint over os")
with umf.record() as recording:
    child = os.fork()
    if child == 0:
        pool.allocate(1000)
        recording.mark("child")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pool.allocate(2000).free()
sizes = [one.size for one in recording.events() if one.kind == "alloc"]
assert sizes == [2000], sizes
assert not any(one.kind == "mark" for one in recording.events())
"""
    )


def test_the_end_of_the_process_ends_a_recording(tmp_path):
    run_python(
        """
import sys, umf
pool = umf.Pool("disjoint over os")
sys.recording = umf.record(sys.argv[1])
sys.kept = pool.allocate(1000)
""",
        tmp_path / "file",
    )
    assert (tmp_path / "file").stat().st_size > 0
