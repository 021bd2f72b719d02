#!/usr/bin/env python3
"""The results of several runs of umf-bench in one place.

  summary.py RUN.json...                               all targets and their verdicts
  summary.py RUN.json... --reference OTHER.json...     and what both libraries have, side by side

Of several runs of the same case the best counts. Of programs of others (--mimalloc-bench) the median of
all rounds of all runs counts, and their ratios are those of the medians. OTHER.json are runs of the same
umf-bench on another library with the same API.
"""
import json
import re
import statistics
import sys

# Targets that compare with the reference: result, must, stretch.
REFERENCE_TARGETS = [
    ("pair/64/1/disjoint over os", 0.08, None),
    ("pair/64/2/disjoint over os", 0.025, None),
    ("byptr/1000000 random/1", 0.08, 0.015),
]

# Figures that a library with this API decides; the peers are the same in both runs.
OURS = re.compile(r"(disjoint|scalable|proxy|jemalloc) over (os|fixed|chunks|null)|^byptr/|^ipc/|"
                  r"^pool/create,? (proxy|disjoint|scalable|use)|^lookup/|^framework/pair|^span/|"
                  r"^provider/(OS|proxy|file)|^many pools/|^topology/|^metadata/|"
                  r"^ir/(umfPoolByPtr|usable|properties|pair through|OS|proxy|get|open|"
                  r"create,? (proxy|disjoint|jemalloc|scalable|use))")


def load(paths):
    runs = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            runs.append(json.load(file))
    return runs


def best_results(runs):
    best = {}
    for run in runs:
        for result in run["results"]:
            key = result["key"]
            if key not in best or result["best"] < best[key]["best"]:
                best[key] = result
    return best


def judged_programs(runs):
    """{set: {program: {allocator: median}}} for "time" and for "rss", of the programs of others."""
    values = {"time": {}, "rss": {}}
    for run in runs:
        for result in run["results"]:
            found = re.fullmatch(r"judge/program (time|rss)/([^/]*)/([^/]*)/(.*)", result["key"])
            if found:
                what, group, program, allocator = found.groups()
                row = values[what].setdefault(group, {}).setdefault(program, {})
                row.setdefault(allocator, []).extend(result["values"])
    for groups in values.values():
        for programs in groups.values():
            for row in programs.values():
                for allocator, rounds in row.items():
                    row[allocator] = statistics.median_high(rounds)
    return values


def peer_of(row, peer):
    if peer != "best":
        return row.get(peer)
    return min((value for name, value in row.items() if not name.startswith("libumf_proxy")), default=None)


def judged_ratios(programs, ours, peer):
    """By program, where both have a result."""
    return {name: row[ours] / peer_of(row, peer) for name, row in programs.items()
            if ours in row and peer_of(row, peer)}


def judged_value(values, key):
    """The value of a target on programs of others, from all runs; None: it has none."""
    parts = key.split("/")
    if parts[1] == "worst":
        ratios = [ratio for group, programs in values["time"].items() if group != "others"
                  for ratio in judged_ratios(programs, parts[2], "best").values()]
        return max(ratios, default=None)
    groups = values[parts[1]]
    chosen = [programs for group, programs in groups.items() if group == parts[2]
              or (parts[2] == "all" and group != "others")]
    ratios = [ratio for programs in chosen for ratio in judged_ratios(programs, parts[3], parts[4]).values()]
    return statistics.geometric_mean(ratios) if ratios else None


def print_programs(values):
    print("\nprograms of others, libumf_proxy / the best peer, median of the rounds\n"
          "---------------------------------------------------------------------")
    for group, programs in values["time"].items():
        for name, ratio in judged_ratios(programs, "libumf_proxy", "best").items():
            row = programs[name]
            best = min((peer for peer in row if not peer.startswith("libumf_proxy")), key=row.get)
            print(f"  {group:<11} {name:<14} {ratio:6.2f}  {best}")


def verdict(value, must, stretch):
    if value > must:
        return "MISSED"
    return "reached, stretch too" if stretch and value <= stretch else "reached"


def print_targets(runs):
    seen = {}
    judged = judged_programs(runs)
    if judged["time"]:
        print_programs(judged)
    for run in runs:
        for target in run["targets"]:
            if target["key"].startswith("judge/"):
                target["value"] = judged_value(judged, target["key"])
            if target["value"] is not None:
                if target["key"].startswith("judge/"):
                    target["verdict"] = verdict(target["value"], target["must"], target["stretch"])
                old = seen.get(target["what"] + target["key"])
                if old is None or target["value"] < old["value"]:
                    seen[target["what"] + target["key"]] = target
    print("\ntargets\n-------")
    for target in seen.values():
        stretch = f"{target['stretch']:g}" if target["stretch"] else "-"
        print(f"  {target['what']:<62} {target['value']:>10.4g} {target['unit']:<7}"
              f" must {target['must']:<8g} stretch {stretch:<7} {target['verdict']}")
    missed = sum(target["verdict"] == "MISSED" for target in seen.values())
    print(f"\n{len(seen) - missed} reached, {missed} missed")


def print_comparison(ours, reference):
    print("\nours beside the reference library, best of the runs\n"
          "---------------------------------------------------")
    print(f"  {'':<60} {'ours':>11} {'reference':>11}          ours / reference")
    targets = {key: (must, stretch) for key, must, stretch in REFERENCE_TARGETS}
    for key, result in ours.items():
        other = reference.get(key)
        if other is None or not OURS.search(key) or "(the loop" in key or other["best"] <= 0:
            continue
        ratio = result["best"] / other["best"]
        note = "slower" if ratio > 1.1 else ""
        if key in targets:
            note = f"must be <= {targets[key][0]}: {verdict(ratio, *targets[key])}"
        print(f"  {key:<60} {result['best']:>11.4g} {other['best']:>11.4g} {result['unit']:<7}"
              f" {ratio:>7.3f}  {note}")


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit(__doc__)
    cut = arguments.index("--reference") if "--reference" in arguments else len(arguments)
    ours = load(arguments[:cut])
    print_targets(ours)
    if arguments[cut + 1:]:
        print_comparison(best_results(ours), best_results(load(arguments[cut + 1:])))


main(sys.argv[1:])
