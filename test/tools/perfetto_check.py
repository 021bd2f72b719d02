"""Opens a trace that umfctl wrote by Perfetto's own messages: perfetto_check.py <file> <pool> <function> <bytes at the end>
<bytes at the highest point> <instants>

Exit status 77: the package perfetto is not there (PYTHONPATH).
"""
import sys

try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages
except ImportError:
    sys.exit(77)


def main():
    pool, function = sys.argv[2:4]
    at_end, at_peak, instants = map(int, sys.argv[4:7])
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    trace = messages.Trace.FromString(data)
    trace.DiscardUnknownFields()
    assert len(trace.SerializeToString()) == len(data), "there are members that Perfetto does not know"
    assert trace.packet[0].sequence_flags == messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    names = trace.packet[0].interned_data
    functions = {one.iid: one.str.decode() for one in names.function_names}
    mappings = {one.iid for one in names.mappings}
    frames = {one.iid: functions[one.function_name_id] for one in names.frames if one.mapping_id in mappings}
    stacks = {one.iid: [frames[frame] for frame in one.frame_ids] for one in names.callstacks}
    tracks = [packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")]
    counters = {track.uuid: track.name for track in tracks if track.HasField("counter")}
    assert sorted(name.rsplit(" ", 1)[1] for name in counters.values()) == ["held"] * 3 + ["live"] * 3, counters
    events = [packet.track_event for packet in trace.packet if packet.HasField("track_event")]
    values = [event for event in events if event.type == messages.TrackEvent.TYPE_COUNTER]
    last = {counters[event.track_uuid]: event.counter_value for event in values}
    assert last[pool + " live"] == at_end <= last[pool + " held"], last
    marks = [event.name for event in events if event.type == messages.TrackEvent.TYPE_INSTANT]
    assert len(marks) == instants and "evaluation" in marks, marks

    profiles = [packet.profile_packet for packet in trace.packet if packet.HasField("profile_packet")]
    assert [profile.index for profile in profiles] == list(range(len(profiles))) and len(profiles) > 10
    live = []
    for profile in profiles:
        (process,) = profile.process_dumps
        assert all(sample.self_freed <= sample.self_allocated for sample in process.samples)
        live.append({tuple(stacks[one.callstack_id]): one.self_allocated - one.self_freed for one in process.samples})
    assert max(sum(one.values()) for one in live) == at_peak, [sum(one.values()) for one in live]
    found = {stack: size for stack, size in live[-1].items() if size > 0}
    ((stack, size),) = found.items()
    assert size == at_end and stack[0] == pool and stack[-1].startswith(function + " ("), found


main()
