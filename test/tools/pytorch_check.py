"""Checks a snapshot that umfctl wrote: pytorch_check.py <pickle> <segments> <expandable ones> <live bytes> [<_memory_viz.py>]

Live blocks must be the same in the segments and by the events, and blocks must cover their segment.
"""
import pickle
import sys


def live_by_events(trace):
    live = {}
    for entry in trace:
        assert isinstance(entry["size"], int) and isinstance(entry["stream"], int), entry
        assert entry["time_us"] > 1_500_000_000_000_000, entry
        for frame in entry["frames"]:
            assert set(frame) == {"filename", "line", "name"}, frame
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            assert live.pop(entry["addr"]) == entry["size"], entry
        elif entry["action"] == "oom":
            assert "device_free" in entry and "addr" not in entry
        else:
            assert entry["action"] in ("free_requested", "segment_alloc", "segment_free", "segment_map", "segment_unmap"), entry
    return live


def mapped_by_events(trace):
    mapped = {}
    for entry in trace:
        if entry["action"] == "segment_map":
            mapped[entry["addr"]] = entry["size"]
        elif entry["action"] == "segment_unmap":
            assert mapped.pop(entry["addr"]) == entry["size"], entry
    return mapped


def check(snapshot, segment_count, expandable_count, live_bytes):
    segments = snapshot["segments"]
    assert len(segments) == segment_count, len(segments)
    expandable = [segment for segment in segments if segment["is_expandable"]]
    assert len(expandable) == expandable_count, len(expandable)
    live = {}
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at, (segment["address"], block)
            at += block["size"]
            if block["state"] == "active_allocated":
                live[block["address"]] = block["size"]
        assert at == segment["address"] + segment["total_size"], segment["address"]
        assert segment["allocated_size"] == sum(
            block["size"] for block in segment["blocks"] if block["state"] == "active_allocated"
        )
    assert sum(live.values()) == live_bytes, sum(live.values())
    (trace,) = snapshot["device_traces"]
    if trace:
        assert live_by_events(trace) == live
        mapped = mapped_by_events(trace)
        assert sum(mapped.values()) == sum(segment["total_size"] for segment in expandable), mapped


def main():
    with open(sys.argv[1], "rb") as file:
        snapshot = pickle.load(file)
    segment_count, expandable_count, live_bytes = map(int, sys.argv[2:5])
    check(snapshot, segment_count, expandable_count, live_bytes)
    if len(sys.argv) > 5:
        import runpy

        viewer = runpy.run_path(sys.argv[5])
        assert "MiB" in viewer["segsum"](snapshot)
        assert "active_allocated" in viewer["segments"](snapshot, format_flamegraph=str)
        assert viewer["memory"](snapshot, format_flamegraph=str)
        assert viewer["compare"](snapshot["segments"], [], format_flamegraph=str)
        assert "<html" in viewer["trace_plot"](snapshot)
        assert "<html" in viewer["segment_plot"](snapshot)
        if snapshot["device_traces"][0]:
            text = viewer["trace"](snapshot)
            assert ("segment_map" if expandable_count else "cudaMalloc") in text, text


main()
