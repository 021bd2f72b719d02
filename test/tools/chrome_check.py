"""Checks a trace that umfctl wrote by the trace event format: chrome_check.py <file> <counters> <marks> <sleeps>"""
import json
import sys

# What an event of each phase must have beside ph, pid, ts and name.
MEMBERS = {"M": {"tid", "args"}, "C": {"tid", "args"}, "i": {"tid", "s"}, "X": {"tid", "dur", "args"}}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        trace = json.load(file)
    counters, marks, sleeps = set(), [], []
    last = {}
    for event in trace["traceEvents"]:
        phase = event["ph"]
        assert MEMBERS[phase] | {"pid", "ts", "name"} <= set(event), event
        assert event["ts"] >= 0 and isinstance(event["pid"], int) and isinstance(event["tid"], int), event
        if phase == "C":
            assert all(isinstance(value, int) and value >= 0 for value in event["args"].values()), event
            assert last.get(event["name"], 0) <= event["ts"], event
            last[event["name"]] = event["ts"]
            counters.add(event["name"])
        elif phase == "i":
            assert event["s"] in "gpt", event
            marks.append(event["name"])
        elif phase == "X":
            assert event["dur"] >= 0, event
            sleeps.append(event["name"])
    found = [len(counters), len(marks), len(sleeps)]
    assert found == [int(word) for word in sys.argv[2:5]], found


main()
