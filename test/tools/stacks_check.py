"""Checks stacks that umfctl wrote: stacks_check.py <collapsed> <speedscope> <pprof> <pool> <function> <bytes>

The three files have the same stacks; the function of the pool has so many bytes at the end.
"""
import collections
import json
import sys


def collapsed(path):
    stacks = collections.Counter()
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            stack, weight = line.rstrip("\n").rsplit(" ", 1)
            stacks[tuple(stack.split(";"))] += int(weight)
    return stacks


def speedscope(path):
    """Weights of each profile by stack, as its file format's schema has them."""
    with open(path, encoding="utf-8") as file:
        whole = json.load(file)
    assert whole["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = [frame["name"] for frame in whole["shared"]["frames"]]
    profiles = {}
    for profile in whole["profiles"]:
        assert profile["type"] == "sampled" and profile["unit"] in ("bytes", "none"), profile["unit"]
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["startValue"] == 0 and profile["endValue"] == sum(profile["weights"])
        stacks = profiles[profile["name"]] = collections.Counter()
        for sample, weight in zip(profile["samples"], profile["weights"]):
            stacks[tuple(frames[frame] for frame in sample)] += weight
    return profiles


def varint(data, at):
    number, shift = 0, 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def members(data):
    """(member, number or bytes) of a message of protocol buffers."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        assert key & 7 in (0, 2), key
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
            assert at <= len(data)
        yield key >> 3, value


def packed(data):
    at, numbers = 0, []
    while at < len(data):
        number, at = varint(data, at)
        numbers.append(number)
    return numbers


def pprof(path):
    """The same as of speedscope, by the message perftools.profiles.Profile."""
    with open(path, "rb") as file:
        whole = list(members(file.read()))
    texts = [value.decode() for member, value in whole if member == 6]
    assert texts[0] == ""
    functions = {one[1]: texts[one[2]] for one in (dict(members(v)) for m, v in whole if m == 5)}
    places = {}
    for location in (dict(members(value)) for member, value in whole if member == 4):
        places[location[1]] = functions[dict(members(location[4]))[1]]
    types = [dict(members(value)) for member, value in whole if member == 1]
    names = [(texts[one[1]], texts[one[2]]) for one in types]
    assert names == [("live", "bytes"), ("peak", "bytes"), ("allocated", "bytes"), ("allocations", "count")]
    profiles = [collections.Counter() for _ in types]
    for sample in (dict(members(value)) for member, value in whole if member == 2):
        stack = tuple(places[one] for one in reversed(packed(sample[1])))
        for profile, weight in zip(profiles, packed(sample[2])):
            profile[stack] += weight
    return profiles


def main():
    pool, function, size = sys.argv[4], sys.argv[5], int(sys.argv[6])
    peak, all_speedscope, all_pprof = collapsed(sys.argv[1]), speedscope(sys.argv[2]), pprof(sys.argv[3])
    assert list(all_speedscope) == [
        "live at the end",
        "live at the highest point",
        "allocated in total",
        "allocations in total",
    ]
    for one, other in zip(all_speedscope.values(), all_pprof):
        assert +one == +other
    assert peak == all_speedscope["live at the highest point"]
    live = all_speedscope["live at the end"]
    found = sum(
        weight
        for stack, weight in live.items()
        if stack[0].startswith(pool) and any(frame.startswith(function + " (") for frame in stack)
    )
    assert found == size, (found, live)


main()
