#!/usr/bin/env python3
"""Checks that code is not written twice: repeats.py <project root> [--list]

A line is repeated if it belongs to a run of eight lines that stands somewhere else, too, equal or of the same
shape: names, numbers and texts may differ. Comments, empty lines, #include and lines of brackets do not count, nor
does a list (members, cases, rows of a table): eight lines of three shapes at most. --list prints the places, the
longest runs first.
"""
import collections
import os
import re
import sys

RUN = 8
LIST = 3
BOUNDS = {"src": 3.0, "lib": 3.0, "test": 1.5, "python": 3.0}  # percent of the lines of a folder

KEYWORDS = frozenset(
    "if else for while do switch case default return break continue goto sizeof static const void int char bool "
    "auto struct enum union class namespace using typedef template typename public private unsigned long short "
    "size_t extern inline volatile nullptr NULL true false new delete".split()
)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
TOKEN = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[A-Za-z_]\w*|\d[\w.]*|\S")
BRACKETS = re.compile(r"[\s{}()\[\];,]*")


def shape(line):
    def word(match):
        text = match.group()
        if text[0] in "\"'":
            return "text"
        if text[0].isdigit():
            return "number"
        return text if text in KEYWORDS or not (text[0].isalpha() or text[0] == "_") else "name"

    return " ".join(map(word, TOKEN.finditer(line)))


def lines_of(path):
    """The number and the shape of each line that counts."""
    with open(path, encoding="utf-8") as file:
        code = COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), file.read())
    for number, line in enumerate(code.split("\n"), 1):
        if not BRACKETS.fullmatch(line) and not line.startswith("#include"):
            yield number, shape(line)


def files_of(folder):
    for parent, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            if name.endswith((".c", ".cpp", ".h")):
                yield os.path.join(parent, name)


def repeated(files):
    """The places of the lines of each file that are repeated, and where the same stands."""
    places = collections.defaultdict(list)
    for path, lines in files.items():
        for at in range(len(lines) - RUN + 1):
            run = tuple(text for _, text in lines[at : at + RUN])
            if len(set(run)) > LIST:
                places[run].append((path, at))
    found = collections.defaultdict(dict)
    for same in places.values():
        for path, at in same:
            other = next(((p, a) for p, a in same if p != path or abs(a - at) >= RUN), None)
            if other:
                for step in range(RUN):
                    found[path].setdefault(at + step, (other[0], other[1] + step))
    return found


def runs(files, found):
    """Length, place and other place of each unbroken run."""
    for path, lines in found.items():
        first = None
        for at in sorted(lines):
            first = at if first is None or at - 1 not in lines else first
            if at + 1 not in lines:
                other, there = lines[first]
                yield at - first + 1, path, files[path][first][0], other, files[other][there][0]


def is_good(folder, bound, wants_list):
    files = {path: list(lines_of(path)) for path in files_of(folder)}
    found = repeated(files)
    count, total = sum(map(len, found.values())), sum(map(len, files.values()))
    percent = 100 * count / max(total, 1)
    print(f"{folder}: {count} of {total} lines are repeated, {percent:.2f} % (at most {bound} %)")
    if percent > bound or wants_list:
        for length, path, line, other, there in sorted(runs(files, found), reverse=True)[:40]:
            print(f"  {length} lines: {path}:{line} as {other}:{there}")
    if total == 0 or percent > bound:
        print(f"write once what lines of {folder}/ have in common; for tests in test/fakes or a helper beside them")
    return 0 < total and percent <= bound


def main(root, wants_list):
    os.chdir(root)
    return 0 if all([is_good(folder, bound, wants_list) for folder, bound in BOUNDS.items()]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--list" in sys.argv[2:]))
