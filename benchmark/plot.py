#!/usr/bin/env python3
"""Draws the main comparisons: plot.py RESULTS OUTPUT

RESULTS is a folder of JSON files of umf-bench (time, threads, memory, programs, turn-reference-*), as
scripts/bench.sh leaves them, and what umf-bench-gpu has printed, if it is there as gpu.txt; peak.txt is
what it has written with --course. OUTPUT is where the SVG files go. A figure without results is left as it is.
"""
import glob
import json
import math
import os
import re
import sys
from xml.sax.saxutils import escape

# Name: colour, dashes, mark, width. Ours are blue and violet and solid, the others dashed; every colour
# differs in lightness from its neighbours, for print and for those who see no hues.
STYLES = {
    "disjoint": ("#08306b", "", "circle", 2.6),
    "jemalloc pool": ("#4292c6", "", "square", 2.6),
    "coalescing": ("#6a51a3", "", "triangle", 2.6),
    "scalable": ("#9e9ac8", "", "diamond", 2.6),
    "preload library": ("#08306b", "", "circle", 2.6),
    "sleep": ("#08306b", "", "circle", 2.6),
    "wake": ("#6baed6", "", "square", 2.6),
    "glibc": ("#737373", "5 3", "circle", 1.8),
    "jemalloc": ("#a63603", "5 3", "square", 1.8),
    "mimalloc": ("#fd8d3c", "5 3", "triangle", 1.8),
    "TBB pool": ("#41ab5d", "5 3", "diamond", 1.8),
    "reference, disjoint": ("#000000", "2 2", "circle", 1.8),
    "reference, scalable": ("#bdbdbd", "2 2", "diamond", 1.8),
}

# Names of the plotted subjects in results.
POOLS = {
    "disjoint": "disjoint over os",
    "jemalloc pool": "jemalloc over os",
    "coalescing": "coalescing over os",
    "scalable": "scalable over os",
    "glibc": "glibc",
    "jemalloc": "jemalloc",
    "mimalloc": "mimalloc heap",
    "TBB pool": "TBB pool",
}
SIZES = ["16", "64", "256", "1K", "4K", "16K", "64K", "256K"]
THREADS = [1, 2, 4, 8, 16]
SMALL, NORMAL, LARGE = 11, 13, 17


class Drawing:
    """An SVG file that grows by elements."""

    def __init__(self, width, height, title, subtitle):
        self.width, self.height = width, height
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="Helvetica, Arial, sans-serif" '
            f'role="img" aria-label="{escape(title)}">',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
        self.text(20, 30, title, LARGE, weight="bold")
        self.text(20, 50, subtitle, NORMAL, colour="#555555")

    def add(self, element):
        self.parts.append(element)

    def text(self, x, y, words, size=SMALL, anchor="start", colour="#222222", weight="normal",
             turn=None, halo=False):
        more = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        more += ' stroke="#ffffff" stroke-width="4" paint-order="stroke"' if halo else ""
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                 f'fill="{colour}" font-weight="{weight}"{more}>{escape(words)}</text>')

    def line(self, x1, y1, x2, y2, colour="#e4e4e4", width=1.0, dash=""):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                 f'stroke="{colour}" stroke-width="{width}"{dashes}/>')

    def mark(self, x, y, shape, colour):
        points = {"triangle": [(0, -5), (5, 4), (-5, 4)],
                  "diamond": [(0, -5), (5, 0), (0, 5), (-5, 0)],
                  "square": [(-4, -4), (4, -4), (4, 4), (-4, 4)]}.get(shape)
        if points:
            corners = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in points)
            self.add(f'<polygon points="{corners}" fill="{colour}"/>')
        else:
            self.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.2" fill="{colour}"/>')

    def legend(self, x, y, names):
        for i, name in enumerate(names):
            colour, dash, shape, width = STYLES[name]
            at = y + 20 * i
            self.line(x, at, x + 28, at, colour, width, dash)
            self.mark(x + 14, at, shape, colour)
            self.text(x + 36, at + 4, name, NORMAL)

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(self.parts + ["</svg>", ""]))
        print(f"plot: {path}")


def number(value):
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


class LogPanel:
    """Lines over a list of places; the other axis is logarithmic."""

    def __init__(self, drawing, box, labels, low, high):
        self.drawing, self.labels = drawing, labels
        self.x, self.y, self.width, self.height = box
        self.low, self.high = math.log10(low), math.log10(high)

    def at(self, place, value):
        step = self.width / max(len(self.labels) - 1, 1)
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.x + step * place, self.y + self.height * (1 - share)

    def axes(self, title, x_title, y_title):
        d = self.drawing
        d.text(self.x, self.y - 10, title, NORMAL, weight="bold")
        for exponent in range(math.floor(self.low), math.ceil(self.high) + 1):
            for factor in (1, 2, 5):
                value = factor * 10 ** exponent
                if self.low - 1e-9 <= math.log10(value) <= self.high + 1e-9:
                    y = self.at(0, value)[1]
                    d.line(self.x, y, self.x + self.width, y)
                    d.text(self.x - 8, y + 4, number(value), anchor="end", colour="#555555")
        for place, label in enumerate(self.labels):
            x = self.at(place, 10 ** self.low)[0]
            d.text(x, self.y + self.height + 18, label, anchor="middle", colour="#555555")
        bottom = self.y + self.height
        d.line(self.x, bottom, self.x + self.width, bottom, "#555555")
        d.text(self.x + self.width / 2, bottom + 38, x_title, anchor="middle")
        d.text(self.x - 46, self.y + self.height / 2, y_title, anchor="middle", turn=-90)

    def series(self, name, values):
        colour, dash, shape, width = STYLES[name]
        points = [self.at(place, value) for place, value in enumerate(values) if value]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.drawing.add(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                         f'stroke-width="{width}"{dashes}/>')
        for x, y in points:
            self.drawing.mark(x, y, shape, colour)


def limits(series):
    values = [value for line in series.values() for value in line if value]
    return min(values) / 1.25, max(values) * 1.25


def bars(path, title, subtitle, groups, names, unit, top, base=None):
    """Horizontal bars: groups is a list of (label, {name: value}); bars beyond `top` are cut off."""
    bar, gap, left, right = 15, 14, 230, 150
    height = 90 + sum(bar * len(values) + gap for _, values in groups) + 40
    d = Drawing(920, height, title, subtitle)
    width = 920 - left - right
    scale = width / top
    y, bottom = 76, height - 46
    if base:
        d.line(left + base * scale, 70, left + base * scale, bottom, "#222222", 1.4, "4 3")
    for i in range(6):
        x = left + width * i / 5
        d.line(x, y - 6, x, bottom)
        d.text(x, bottom + 16, number(round(top * i / 5, 2)), anchor="middle", colour="#555555")
    d.text(left + width / 2, bottom + 36, unit, anchor="middle")
    for label, values in groups:
        middle = y + bar * len(values) / 2 + 4
        d.text(left - 10, middle, label, NORMAL, anchor="end")
        for name in names:
            if name in values:
                value = values[name]
                d.add(f'<rect x="{left}" y="{y:.1f}" width="{min(value, top) * scale:.1f}" '
                      f'height="{bar - 2}" fill="{STYLES[name][0]}"/>')
                cut = " (cut off)" if value > top else ""
                d.text(left + min(value, top) * scale + 5, y + 11, f"{value:.2f}{cut}", halo=True)
                y += bar
        y += gap
    for i, name in enumerate(names):
        x = 920 - right + 20
        d.add(f'<rect x="{x}" y="{80 + 22 * i}" width="14" height="14" fill="{STYLES[name][0]}"/>')
        d.text(x + 20, 92 + 22 * i, name, NORMAL)
    d.save(path)


class Results:
    """The best results by key, of all the files of a part."""

    def __init__(self, folder, part):
        self.values, self.machine = {}, ""
        for path in sorted(glob.glob(os.path.join(folder, part + ".json"))):
            with open(path, encoding="utf-8") as file:
                run = json.load(file)
            self.machine = f"{run['machine']['cpu']}, {run['machine']['cpus']} CPUs"
            for result in run["results"]:
                old = self.values.get(result["key"], math.inf)
                self.values[result["key"]] = min(old, result["best"])

    def get(self, key):
        value = self.values.get(key)
        return value if value and value > 0 else None


def plot_pairs(folder, output):
    ours = Results(folder, "time")
    other = Results(folder, "turn-reference-*")
    series = {}
    for name, subject in POOLS.items():
        series[name] = [ours.get(f"pair/{size}/1/{subject}") for size in SIZES]
    for pool in ("disjoint", "scalable"):
        series["reference, " + pool] = [other.get(f"pair/{size}/1/{pool} over os") for size in SIZES]
    series = {name: line for name, line in series.items() if any(line)}
    if not series:
        return
    d = Drawing(920, 520, "Allocate and free at once, one thread", ours.machine)
    panel = LogPanel(d, (80, 96, 600, 350), SIZES, *limits(series))
    panel.axes("", "bytes per object", "ns per pair (less is better)")
    for name, line in series.items():
        panel.series(name, line)
    d.legend(720, 110, list(series))
    d.save(os.path.join(output, "pairs.svg"))


def plot_threads(folder, output):
    results = Results(folder, "threads")
    cases = [("pair/64", "pair, 64 B"), ("batch shuffled/64", "batch of 1,000, 64 B"),
             ("handover/64", "handover to another thread, 64 B")]
    panels = []
    for key, title in cases:
        lines = {name: [results.get(f"{key}/{t}/{subject}") for t in THREADS]
                 for name, subject in POOLS.items()}
        panels.append((title, {name: line for name, line in lines.items() if any(line)}))
    if not all(lines for _, lines in panels):
        return
    d = Drawing(1240, 440, "More threads: time per operation and core", results.machine +
                "; a flat line is perfect scaling, threads beyond the cores take turns")
    for i, (title, lines) in enumerate(panels):
        panel = LogPanel(d, (80 + 340 * i, 100, 270, 270), [str(t) for t in THREADS], *limits(lines))
        panel.axes(title, "threads", "ns (less is better)")
        for name, line in lines.items():
            panel.series(name, line)
    d.legend(1090, 110, list(panels[0][1]))
    d.save(os.path.join(output, "threads.svg"))


def plot_memory(folder, output):
    results = Results(folder, "memory")
    stages = [("full", "all alive"), ("freed", "90 % freed at random"), ("waited", "some time later"),
              ("trimmed", "and trimmed")]
    groups = []
    for stage, label in stages:
        values = {name: results.get(f"rss/{stage}/{subject}") for name, subject in POOLS.items()}
        groups.append((label, {name: value for name, value in values.items() if value}))
    if not groups[0][1]:
        return
    bars(os.path.join(output, "memory.svg"), "Resident memory / live bytes, objects of 16 KiB",
         results.machine + "; less is better, 1 is what is live", groups, list(groups[0][1]),
         "resident bytes per live byte", 15, base=1)


def plot_programs(folder, output):
    results = Results(folder, "programs")
    subjects = {"preload library": "libumf_proxy", "jemalloc": "jemalloc", "mimalloc": "mimalloc"}
    names = [key.split("/")[2] for key in results.values
             if key.startswith("program/time/") and key.endswith("/glibc")]
    for what, title in (("time", "Time of whole programs"), ("rss", "Peak memory of whole programs")):
        groups = []
        for program in names:
            base = results.get(f"program/{what}/{program}/glibc")
            values = {name: results.get(f"program/{what}/{program}/{subject}")
                      for name, subject in subjects.items()}
            groups.append((program, {name: value / base for name, value in values.items() if value}))
        if groups:
            bars(os.path.join(output, f"programs-{what}.svg"), title + " against glibc",
                 results.machine + "; less is better, 1 is glibc", groups, list(subjects),
                 "multiple of glibc", 2.5 if what == "time" else 5, base=1)


def plot_gpu(folder, output):
    path = os.path.join(folder, "gpu.txt")
    if not os.path.exists(path):
        return
    groups, title, reading = [], "", False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("Sleep and wake of "):
                reading = "blocks of 1G" in line
                groups, title = ([], line.strip()) if reading else (groups, title)
            row = re.match(r"  (\S.{27}) +[\d.]+ ms +([\d.]+) GB/s +[\d.]+ ms +([\d.]+) GB/s", line)
            # What keeps no content is not a copy.
            if row and reading and float(row[2]) < 1000:
                groups.append((row[1].strip(), {"sleep": float(row[2]), "wake": float(row[3])}))
    top = max((max(values.values()) for _, values in groups), default=0)
    if groups:
        bars(os.path.join(output, "gpu-sleep.svg"), title, "GB/s, more is better", groups,
             ["sleep", "wake"], "GB/s", 10 * math.ceil(top / 10))


def read_course(path):
    """Bytes of each line, in GB, by the name of the line."""
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return {name: [int(word) / 1e9 for word in words] for name, *words in rows}


def plot_peak(folder, output):
    path = os.path.join(folder, "peak.txt")
    if not os.path.exists(path):
        return
    course = read_course(path)
    live, top = course["live"], 10 * math.ceil(max(map(max, course.values())) / 10)
    d = Drawing(920, 470, "Live memory of a training, and the memory that pools hold",
                "recorded from PyTorch, replayed through pools; the most in each of "
                f"{len(live)} equal parts of its allocations")
    left, low, width, height = 70, 410, 610, 330

    def at(i, value, count):
        return left + width * i / max(count - 1, 1), low - height * value / top

    for value in range(0, top + 1, 10):
        y = at(0, value, 1)[1]
        d.line(left, y, left + width, y)
        d.text(left - 8, y + 4, str(value), anchor="end", colour="#555555")
    d.text(left + width / 2, low + 24, "allocations", anchor="middle")
    d.text(26, low - height / 2, "GB", anchor="middle", turn=-90)
    area = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(i, one, len(live)) for i, one in enumerate(live)))
    d.add(f'<polygon points="{left},{low} {area} {left + width},{low}" fill="#d9d9d9"/>')
    lines = [("PyTorch, peak", "#a63603", "5 3", "PyTorch, default"), ("coalescing", "#6a51a3", "", "coalescing"),
             ("coalescing:arena=yes", "#08306b", "", "arena")]
    for name, colour, dash, label in lines:
        values = course.get(name, [])
        values = values * 2 if len(values) == 1 else values
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(i, one, len(values)) for i, one in enumerate(values)))
        d.add(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"'
              + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")
    for i, (name, colour, dash, label) in enumerate([*lines, ("live", "#bdbdbd", "", "live")]):
        if name in course:
            y = 100 + 44 * i
            d.line(710, y, 738, y, colour, 6 if name == "live" else 2, dash)
            d.text(746, y + 4, label, NORMAL)
            ratio = max(course[name]) / max(live)
            d.text(746, y + 21, f"{max(course[name]):.2f} GB" + (f", {ratio:.3f} of live" if name != "live" else ""),
                   colour="#555555")
    d.save(os.path.join(output, "peak.svg"))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, output = sys.argv[1:]
    os.makedirs(output, exist_ok=True)
    for plot in (plot_pairs, plot_threads, plot_memory, plot_programs, plot_gpu, plot_peak):
        plot(folder, output)


main()
